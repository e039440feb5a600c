//! `docs/formats.md` has the tables of every format; this test makes them anew and compares.
//!
//! After a change that was meant: `ROPEWALK_BLESS=1 cargo test -p ropewalk-wire --lib page` writes them.

use super::*;
use std::path::Path;

/// The headers of a format, a line for each field.
fn tables(format: ForeignFormat) -> String {
    let mut text = String::new();
    for (title, places) in format.headers() {
        write!(text, "\n| {title}: byte | type | field |\n|---:|---|---|\n").expect("a string takes everything");
        for place in *places {
            let (at, kind, name) = (place.offset(), place.type_text(), place.name());
            writeln!(text, "| {at} | {kind} | {name} |").expect("a string takes everything");
        }
    }
    text + "\n"
}

#[test]
fn the_page_has_the_tables_of_every_format() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let mut made = page.clone();
    for &format in ForeignFormat::ALL {
        let name = format.name();
        let begin = format!("<!-- begin of {name}, made by a test -->\n");
        let (start, end) = (made.find(&begin), made.find(&format!("<!-- end of {name} -->")));
        let (start, end) = start.zip(end).unwrap_or_else(|| panic!("the page has a place for {name}"));
        made.replace_range(start + begin.len()..end, &tables(format));
    }
    if std::env::var_os("ROPEWALK_BLESS").is_some() {
        std::fs::write(&path, &made).expect("the page can be written");
    } else {
        assert!(made == page, "the page and the formats differ: ROPEWALK_BLESS=1 writes it");
    }
}
