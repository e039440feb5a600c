//! Pages of numbers, read by another process: of running nodes, of a killed one, at the end, and without pages.

use crate::cluster::Cluster;
use crate::forms::{expect_form, schema};
use crate::process::Program;
use crate::support::{FrontEnd, Setup, wait_for};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Two sources, one readout unit, builder units that have their pages in a directory of the test.
fn setup(name: &str) -> (Setup, PathBuf) {
    let setup = Setup::new(name, &[841, 843]);
    let pages = setup.directory().join("pages");
    let text = format!("[monitor]\npages = {:?}\n", pages.display().to_string());
    (setup.and(&text), pages)
}

/// The current contents of the pages in a directory, by node.
fn pages(directory: &Path) -> BTreeMap<String, Value> {
    let read = Program::run(["counters".as_ref(), directory.as_os_str(), "--json".as_ref()]);
    let told = read.expect_status(0).account();
    expect_form(&told, &schema("counters.json"));
    let pages = told["pages"].as_array().expect("an array").iter();
    pages.map(|page| (page["node"].as_str().expect("a name").to_owned(), page.clone())).collect()
}

fn number(page: &Value, name: &str) -> u64 {
    page["numbers"][name].as_u64().unwrap_or(0)
}

fn built(pages: &BTreeMap<String, Value>) -> u64 {
    ["bu0", "bu1"].iter().filter_map(|name| pages.get(*name)).map(|page| number(page, "events_built")).sum()
}

/// Links every page under another name, so that it still exists after the end of its node.
fn keep(pages: &Path, kept: &Path) {
    std::fs::create_dir_all(kept).expect("a directory can be made");
    for entry in std::fs::read_dir(pages).expect("it is there") {
        let entry = entry.expect("it can be read");
        std::fs::hard_link(entry.path(), kept.join(entry.file_name())).expect("it is the same disk");
    }
}

#[test]
fn a_killed_builder_unit_still_tells_its_last_numbers_and_that_its_process_is_gone() {
    let (setup, directory) = setup("counters-killed");
    let mut cluster = Cluster::new(setup.another_builder());
    cluster.start("manager", &["--events", "400", "--json"]);
    ["ru0", "bu0", "bu1"].iter().for_each(|name| cluster.start(name, &[]));
    let address = cluster.front_end_address("ru0");
    let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&address, id));
    front_ends.iter_mut().for_each(|front_end| front_end.send(1..=200));
    // Each node writes its numbers at a different moment.
    let before = wait_for("all that was sent in the pages", || {
        let all = pages(&directory);
        let known = (number(&all["manager"], "events_assigned"), number(&all["ru0"], "fragments_received"));
        (built(&all) == 200 && known == (200, 400)).then_some(all)
    });
    for (name, role) in [("manager", "manager"), ("ru0", "readout"), ("bu0", "builder"), ("bu1", "builder")] {
        let page = &before[name];
        let told = (&page["role"], &page["state"], &page["run"], &page["phase"]);
        assert_eq!(told, (&role.into(), &"turns".into(), &1.into(), &"running".into()), "{page:#}");
    }
    assert_eq!(number(&before["manager"], "events_assigned"), 200);
    assert_eq!(
        (number(&before["ru0"], "fragments_received"), before["ru0"]["sources"]["841"]["fragments_received"].as_u64()),
        (400, Some(200))
    );
    cluster.kill("bu0");
    let after = wait_for("the end of its process", || {
        let all = pages(&directory);
        (all["bu0"]["state"] == "gone").then_some(all)
    });
    assert_eq!(after["bu0"]["numbers"]["events_built"], before["bu0"]["numbers"]["events_built"]);
    assert_eq!(after["bu1"]["state"], "turns");
    let for_people = Program::run(["counters".as_ref(), directory.as_os_str(), "--sources".as_ref()]);
    let text = for_people.expect_status(0).out.join("\n");
    assert!(text.contains("GONE: its process ended before the run") && text.contains("source 841"), "{text}");
    front_ends.iter_mut().for_each(|front_end| front_end.send(201..=400));
    for name in ["manager", "ru0", "bu1"] {
        cluster.take(name).end().expect_status(0);
    }
    assert_eq!(pages(&directory).keys().collect::<Vec<_>>(), ["bu0"], "what ends in order leaves no page");
    let output = cluster.run_directory("bu0").parent().expect("the output directory").to_owned();
    for (output, removed) in [(directory.as_path(), "0 pages"), (&output, "1 page")] {
        let arguments = ["--remove".as_ref(), "--output".as_ref(), output.as_os_str()];
        let ended = Program::run(["counters".as_ref(), directory.as_os_str()].into_iter().chain(arguments));
        assert_eq!(ended.expect_status(0).errors, format!("{removed} of ended processes removed"));
        assert!(ended.out.is_empty(), "{ended:#?}");
    }
    assert!(pages(&directory).is_empty());
}

#[test]
fn at_the_end_the_pages_have_the_numbers_of_the_account() {
    let (setup, directory) = setup("counters-end");
    let kept = setup.directory().join("kept");
    let mut cluster = Cluster::new(setup.another_builder());
    cluster.start("manager", &["--events", "300", "--json"]);
    ["ru0", "bu0", "bu1"].iter().for_each(|name| cluster.start(name, &[]));
    keep(&directory, &kept);
    let address = cluster.front_end_address("ru0");
    for id in [841, 843] {
        FrontEnd::ferol(&address, id).send(1..=300);
    }
    let account = cluster.take("manager").end().expect_status(0).account();
    ["ru0", "bu0", "bu1"].iter().for_each(|name| _ = cluster.take(name).end().expect_status(0));
    let last = pages(&kept);
    assert_eq!(last.len(), 4);
    assert!(last.values().all(|page| page["state"] == "ended" && page["phase"] == "ended"), "{last:#?}");
    for (number_of_page, field) in [
        ("events_assigned", "assigned"),
        ("events_built", "built"),
        ("events_accepted", "accepted"),
        ("events_in_flight", "in_flight"),
    ] {
        assert_eq!(
            number(&last["manager"], number_of_page),
            account["events"][field].as_u64().expect("a number"),
            "{field}"
        );
    }
    for name in ["events_built", "events_written", "events_accepted"] {
        let sum: u64 = ["bu0", "bu1"].iter().map(|unit| number(&last[*unit], name)).sum();
        assert_eq!(sum, 300, "{name}");
    }
    let written: u64 = ["bu0", "bu1"].iter().map(|unit| number(&last[*unit], "bytes_written")).sum();
    assert_eq!(Some(written), account["bytes"]["written"].as_u64());
    for id in ["841", "843"] {
        let (source, of_account) = (&last["ru0"]["sources"][id], &account["by_source"][id]);
        for (number, field) in
            [("fragments_received", "received"), ("fragments_in_complete_events", "in_complete_events")]
        {
            assert_eq!(source[number], of_account[field], "{id}: {of_account:#}");
        }
    }
    assert_eq!(Some(number(&last["ru0"], "payload_bytes_received")), account["bytes"]["payload_received"].as_u64());
    assert!(pages(&directory).is_empty());
}

#[test]
fn counters_that_are_watched_show_how_fast_numbers_grow() {
    let setup = Setup::new("counters-watch", &[]);
    let directory = setup.directory().join("pages");
    let text = format!("[monitor]\npages = {:?}\n", directory.display().to_string());
    let setup =
        setup.source("id = 1\nreadout = \"ru0\"\nemulate = { rate = \"1kHz\", fragment_size = \"1KiB\" }").and(&text);
    let mut run = Program::start(["run", &setup.file().display().to_string()]);
    wait_for("the pages of three nodes", || (directory.exists() && pages(&directory).len() == 3).then_some(()));
    let mut watch =
        Program::start(["counters".as_ref(), directory.as_os_str(), "--watch=100ms".as_ref(), "--json".as_ref()]);
    let rate = |line: &str| {
        let told: Value = serde_json::from_str(line).ok()?;
        let builder = told["pages"].as_array()?.iter().find(|page| page["role"] == "builder").cloned()?;
        builder["rates_per_s"]["events_built"].as_f64()
    };
    let rate = watch.expect_line_where("a rate of the builder unit", |line| rate(line).filter(|&rate| rate > 0.0));
    // There are a thousand triggers a second, and a busy machine may be late with them, and build many at once.
    assert!(rate < 100_000.0, "{rate}");
    watch.kill();
    run.kill();
}

#[test]
fn a_directory_that_cannot_be_had_is_said_once_and_the_run_goes_on() {
    let setup = Setup::new("counters-nowhere", &[]);
    let taken = setup.directory().join("taken");
    std::fs::write(&taken, "").expect("it can be written");
    let text = format!("[monitor]\npages = {:?}\n", taken.join("below").display().to_string());
    let setup = setup.source("id = 1\nreadout = \"ru0\"\nemulate = { rate = \"10kHz\" }").and(&text);
    let ended = Program::run(["run", &setup.file().display().to_string(), "--events", "500", "--json"]);
    assert_eq!(ended.expect_status(0).account()["events"]["built"], 500);
    assert_eq!(ended.errors.matches("Nodes have no page of numbers").count(), 1, "{}", ended.errors);
}

#[test]
fn what_is_no_page_is_named_and_what_is_not_there_is_an_error_of_usage() {
    let (setup, _) = setup("counters-damaged");
    let (file, missing) = (setup.directory().join("one.page"), setup.directory().join("none"));
    std::fs::write(&file, [b'x'; 300]).expect("it can be written");
    let ended = Program::run(["counters".as_ref(), setup.directory().as_os_str()]);
    ended.expect_status(1);
    assert!(ended.errors.contains("one.page: not a counter page"), "{}", ended.errors);
    Program::run(["counters".as_ref(), missing.as_os_str()]).expect_status(2);
}
