//! Compares the laboratory's files of `docs/schema` with the schemas of the types that are serialised.
//!
//! To update the files: `ROPEWALK_BLESS=1 cargo test -p ropewalk-lab --bin ropewalk-lab schemas`.

use crate::sizing::SizingReport;
use ropewalk_run::schemas::schema_of;
use ropewalk_sim::campaign::Summary;
use schemars::Schema;

#[test]
fn each_schema_is_that_of_the_type_that_is_written() {
    let schemas = [("simulate.json", schema_of::<Summary<'_>>()), ("sizing.json", schema_of::<SizingReport<'_>>())];
    let differing = ropewalk_tidy::differing_schemas(schemas.map(|(name, schema)| (name, json(&schema))));
    assert!(
        differing.is_empty(),
        "{differing:?} of docs/schema are not those of the types: ROPEWALK_BLESS=1 writes them"
    );
}

fn json(schema: &Schema) -> String {
    serde_json::to_string_pretty(schema).expect("it is JSON")
}
