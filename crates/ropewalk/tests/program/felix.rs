//! FELIX blocks on the command line: made, counted, shown.

use crate::accounts::{expect_form, schema};
use crate::process::{Ended, Program};
use crate::support::TemporaryDirectory;
use std::path::Path;

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Blocks with these options, in a file of the directory.
fn generated(directory: &TemporaryDirectory, options: &[&str]) -> String {
    let file = directory.path().join("blocks.dat");
    Program::run([&["felix", "generate", text(&file)], options].concat()).expect_status(0);
    text(&file).to_owned()
}

fn decoded(file: &str) -> Ended {
    Program::run(["felix", "decode", file, "--json"])
}

#[test]
fn blocks_of_every_kind_are_made_and_counted() {
    let directory = TemporaryDirectory::new("felix-kinds");
    for (kind, symbol) in [("narrow", "0xABCD"), ("wide", "0xABCE"), ("1KiB", "0xC0CE"), ("4KiB", "0xC3CE")] {
        let options = ["--kind", kind, "--elinks", "0,8-10", "--chunks", "500", "--chunk-size", "uniform(0,3000)"];
        let ended = decoded(&generated(&directory, &options));
        let report = ended.expect_status(0).account();
        expect_form(&report, &schema("felix-decode.json"));
        assert_eq!((&report["symbol"], &report["chunks"]), (&symbol.into(), &2000.into()));
        let elinks: Vec<_> = report["elinks"].as_array().expect("a list").iter().map(|link| &link["elink"]).collect();
        assert_eq!(elinks, [0, 8, 9, 10]);
    }
}

#[test]
fn damage_is_status_1_and_named_and_shown_where_it_is() {
    let directory = TemporaryDirectory::new("felix-damage");
    let options = ["--chunks", "2000", "--elinks", "5", "--fault", "past_header=0.02", "--fault", "crc=0.01"];
    let file = generated(&directory, &options);
    let ended = decoded(&file);
    let report = ended.expect_status(1).account();
    expect_form(&report, &schema("felix-decode.json"));
    let first = &report["first_faults"][0];
    assert_eq!((&first["error"], &first["elink"]), (&"past_header".into(), &5.into()));
    let readable = Program::run(["felix", "decode", &file]);
    let line = readable.expect_status(1).out.iter().find(|line| line.starts_with("damaged blocks: past_header "));
    assert!(line.is_some(), "{readable:#?}");
    let block = first["block"].to_string();
    let shown = Program::run(["felix", "dump", &file, "--blocks", &block]);
    assert!(shown.expect_status(0).out[0].starts_with(&format!("block {block} at 0x")), "{shown:#?}");
    assert!(shown.out[1].contains("past_header") && !shown.out[1].contains('\x1b'), "{shown:#?}");
}

#[test]
fn what_is_no_block_or_not_there_is_status_2_and_says_what_would_be_right() {
    let directory = TemporaryDirectory::new("felix-wrong");
    let none = directory.path().join("none.dat");
    std::fs::write(&none, "no block far and wide").expect("a file can be written");
    let good = generated(&directory, &["--chunks", "10"]);
    for (arguments, hint) in [
        (&["felix", "decode", text(&none)][..], "cd ab"),
        (&["felix", "dump", "no-such-file"], "no-such-file"),
        (&["felix", "dump", &good, "--blocks", "9000.."], "there is no block 9000"),
        (&["felix", "dump", &good, "--blocks", "8..5"], "5..8"),
        (&["felix", "generate", "-", "--fault", "bitrot=1"], "lost_block"),
        (&["felix", "generate", "-", "--fault", "crc=2"], "from 0 to 1"),
        (&["felix", "generate", "-", "--kind", "3000"], "narrow"),
        (&["felix", "generate", "-", "--elinks", "5-1"], "1,8-15"),
        (&["felix", "generate", "no-such-directory/blocks.dat"], "no-such-directory"),
    ] {
        let ended = Program::run(arguments);
        assert!(ended.expect_status(2).errors.contains(hint), "{hint}: {ended:#?}");
    }
}
