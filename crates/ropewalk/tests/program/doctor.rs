//! What this machine can do.

use crate::accounts::{expect_form, schema};
use crate::process::Program;
use crate::support::TemporaryDirectory;

#[test]
fn whoever_only_looks_is_told_at_once_in_the_promised_form() {
    let told = Program::run(["doctor", "--look", "--json"]).expect_status(0).account();
    expect_form(&told, &schema("doctor.json"));
    assert!(told["measured"].is_null() && told["verdict"].is_null(), "{told:#}");
    let features = told["features"].as_array().expect("there are some");
    assert!(features.iter().any(|feature| feature["name"] == "io_uring"), "{features:#?}");
}

#[test]
fn a_directory_that_is_not_there_is_not_made() {
    let directory = TemporaryDirectory::new("doctor");
    let nowhere = directory.path().join("nowhere");
    let refused = Program::run(["doctor", "--output", &nowhere.display().to_string()]);
    refused.expect_status(2);
    assert!(refused.errors.contains("there is no directory") && refused.errors.contains("nowhere"), "{refused:?}");
    assert!(!nowhere.exists());
}
