//! Compares `docs/schema` with the schemas of the types that are serialised.
//!
//! To update the files: `ROPEWALK_BLESS=1 cargo test -p ropewalk --bin ropewalk schemas`.

use crate::felix::{ServeReport, SubscribeReport};
use crate::topology::TopologyReport;
use crate::tune::plan::PlanReport;
use crate::tune::{CheckReport, ToldApplied, ToldUndone};
use ropewalk_doctor::Diagnosis;
use ropewalk_engine::pages::PagesReport;
use ropewalk_run::RunSummary;
use ropewalk_run::monitoring::Histograms;
use ropewalk_run::schemas::schema_of;
use ropewalk_tools::VerifyReport;
use ropewalk_tools::felix::DecodeReport;
use ropewalk_tools::file_based::FilesSummary;
use ropewalk_tools::foreign::{InspectReport, SniffReport, TrialReport};
use schemars::Schema;

#[test]
fn each_schema_is_that_of_the_type_that_is_written() {
    let schemas = [
        ("counters.json", schema_of::<PagesReport>()),
        ("doctor.json", schema_of::<Diagnosis>()),
        ("felix-decode.json", schema_of::<DecodeReport>()),
        ("felix-serve.json", schema_of::<ServeReport>()),
        ("felix-subscribe.json", schema_of::<SubscribeReport>()),
        ("files.json", schema_of::<FilesSummary>()),
        ("foreign.json", schema_of::<InspectReport<'_>>()),
        ("histograms.json", schema_of::<Histograms>()),
        ("run.json", schema_of::<RunSummary>()),
        ("sniff.json", schema_of::<SniffReport>()),
        ("source-test.json", schema_of::<TrialReport>()),
        ("topology.json", schema_of::<TopologyReport<'_>>()),
        ("tune-apply.json", schema_of::<ToldApplied<'_>>()),
        ("tune-check.json", schema_of::<CheckReport<'_>>()),
        ("tune-plan.json", schema_of::<PlanReport<'_>>()),
        ("tune-undo.json", schema_of::<ToldUndone<'_>>()),
        ("verify.json", schema_of::<VerifyReport>()),
    ];
    let differing = ropewalk_tidy::differing_schemas(schemas.map(|(name, schema)| (name, json(&schema))));
    assert!(
        differing.is_empty(),
        "{differing:?} of docs/schema are not those of the types: ROPEWALK_BLESS=1 writes them"
    );
}

fn json(schema: &Schema) -> String {
    serde_json::to_string_pretty(schema).expect("it is JSON")
}
