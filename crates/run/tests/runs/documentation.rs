//! The first example of the documentation of the configuration runs.

use crate::support::{Run, TemporaryDirectory};
use ropewalk_config::parse;
use ropewalk_run::launch;
use ropewalk_terms::EventKey;
use std::path::Path;

#[test]
fn the_first_block_of_the_page_runs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = std::fs::read_to_string(path).expect("the page is there");
    let (_, rest) = page.split_once("```toml\n").expect("there is a block");
    let (block, _) = rest.split_once("```").expect("a block has an end");
    let directory = TemporaryDirectory::new("documentation");
    let mut configuration =
        parse("docs/configuration.md", block, &|_| None).unwrap_or_else(|error| panic!("{error}\n{block}"));
    configuration.run.output = directory.path().to_owned();
    let events = configuration.run.events.expect("it ends by itself");
    let mut handle = launch(&configuration, Some(events)).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, events)));
    assert_eq!(Run { handle }.end().events.written, events);
}
