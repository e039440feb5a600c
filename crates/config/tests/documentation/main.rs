//! What the documentation says of a configuration is what the program reads: its examples, those of `examples/`, and the
//! tables of keys.

mod reference;

use ropewalk_config::{Configuration, parse};
use std::path::{Path, PathBuf};

/// What a block that is not a whole configuration is put behind.
const BASE: &str = r#"version = 1
[[readout]]
name = "ru0"
[[builder]]
name = "bu0"
[[source]]
id = 1
readout = "ru0"
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages of `docs/` whose names begin so, each with its path and text.
fn pages(beginnings: &[&str]) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(root().join("docs")).expect("there are pages");
    let names = entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> =
        names.filter(|name| name.ends_with(".md") && beginnings.iter().any(|begin| name.starts_with(begin))).collect();
    names.sort_unstable();
    let read = |name| std::fs::read_to_string(root().join(name)).expect("the page is there");
    names.into_iter().map(|name| format!("docs/{name}")).map(|name| (name.clone(), read(name))).collect()
}

/// The texts between "```toml" and "```".
fn blocks(page: &str) -> Vec<&str> {
    let behind = page.split("```toml\n").skip(1);
    behind.map(|rest| rest.split_once("```").expect("a block has an end").0).collect()
}

fn read(name: &str, text: &str) -> Configuration {
    let variable = |name: &str| (name == "ROPEWALK_DATA").then(|| "/data".to_owned());
    parse(name, text, &variable).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn every_block_of_the_pages_is_a_good_configuration() {
    for (name, page) in pages(&["configuration", "gateway"]) {
        for block in blocks(&page) {
            let whole = block.contains("version =");
            read(&name, &if whole { block.to_owned() } else { format!("{BASE}{block}") });
        }
    }
}

#[test]
fn every_example_is_a_good_configuration() {
    let entries = std::fs::read_dir(root().join("examples")).expect("there are examples");
    let files = entries.map(|entry| entry.expect("it can be read").path());
    let examples: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|end| end == "toml")).collect();
    for example in &examples {
        let (name, text) = (example.display().to_string(), std::fs::read_to_string(example).expect("it can be read"));
        assert_eq!(read(&name, &text).renamed, [""; 0], "{name}");
    }
    assert!(examples.len() >= 2, "{examples:?}");
}

#[test]
fn every_cluster_of_paper_3_has_as_many_streams_and_units_as_its_figure() {
    let clusters = [
        ("fig11-24-streams", [24, 2, 4]),
        ("fig11-47-streams", [47, 4, 8]),
        ("fig12-32-streams", [32, 2, 4]),
        ("fig12-64-streams", [64, 4, 8]),
    ];
    for (name, counts) in clusters {
        let file = root().join(format!("examples/cluster/{name}.toml"));
        let cluster = read(name, &std::fs::read_to_string(file).expect("it can be read"));
        assert_eq!([cluster.source.len(), cluster.readout.len(), cluster.builder.len()], counts, "{name}");
        for readout in &cluster.readout {
            let streams = cluster.source.iter().filter(|source| source.readout == readout.name).count();
            // As evenly as the number allows.
            assert!(streams.abs_diff(counts[0] / counts[1]) <= 1, "{name}: {streams} to {}", readout.name);
        }
    }
}
