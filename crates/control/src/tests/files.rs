//! What is told of the files of runs.

use super::{Setup, wait};
use serde_json::{Value, json};

#[test]
fn files_of_the_present_run_and_of_past_ones_are_told_with_their_events() {
    let setup = Setup::new("files");
    let nothing =
        json!({ "run": null, "has_account": false, "found": 0, "files": [], "deleted": null, "transfer": null });
    assert_eq!(setup.json("GET", "/api/v1/files"), (200, nothing));
    for command in ["configure", "start"] {
        assert_eq!(setup.json("POST", &format!("/api/v1/commands/{command}")).0, 200);
    }
    let open = wait("a file that is written", || {
        let files = setup.json("GET", "/api/v1/files").1;
        let is_open = files["files"][0]["state"] == "open" && files["files"][0]["bytes"].as_u64() > Some(0);
        is_open.then_some(files)
    });
    assert_eq!((&open["run"], &open["has_account"], &open["found"]), (&1.into(), &false.into(), &1.into()), "{open}");
    assert_eq!(open["files"][0]["path"], "run000001/run000001-bu0-000001.rwk.open");
    assert_eq!((&open["files"][0]["writer"], &open["files"][0]["events"]), (&"bu0".into(), &Value::Null));
    assert_eq!(setup.json("POST", "/api/v1/commands/stop").0, 200);
    let account = setup.json("GET", "/api/v1/runs/1").1;
    let (status, closed) = setup.json("GET", "/api/v1/runs/1/files");
    assert_eq!((status, &closed["has_account"], &closed["deleted"]), (200, &true.into(), &account["deleted"]));
    let events: u64 = closed["files"].as_array().into_iter().flatten().filter_map(|file| file["events"].as_u64()).sum();
    assert_eq!(Some(events), account["events"]["written"].as_u64(), "{closed}");
    let path = &closed["files"][0]["path"];
    assert_eq!((path, &closed["files"][0]["state"]), (&"run000001/run000001-bu0-000001.rwk".into(), &"closed".into()));
    // What is only set up has no files: the last one is told of.
    assert_eq!(setup.json("GET", "/api/v1/files"), (200, closed.clone()));
    let before = |path: &str| setup.json("GET", &format!("/api/v1/runs/1/files?before={path}")).1["files"].clone();
    assert_eq!(before("run000001%2Frun000001-bu0-000001.rwk"), json!([]), "nothing is older");
    assert_eq!(before("run000001%2Frun000001-bu0-000002.rwk.open"), closed["files"]);
    assert_eq!(setup.json("GET", "/api/v1/files?limit=0").1["found"], closed["found"]);
}

#[test]
fn nothing_but_files_of_runs_is_told_whatever_is_asked_for() {
    let setup = Setup::new("file-tricks");
    let long = "a".repeat(9000);
    std::fs::write(setup.output.join("run000001-bu0-000001.rwk"), "beside the runs").expect("it can be written");
    for (path, status) in [
        ("runs/7/files".to_owned(), 404),
        ("runs/4294967296/files".to_owned(), 400),
        ("runs/..%2f..%2fetc/files".to_owned(), 400),
        ("runs/%2e%2e/files".to_owned(), 400),
        ("runs/1%00/files".to_owned(), 400),
        (format!("runs/{long}/files"), 400),
        ("files?before=..%2frun000001-bu0-000001.rwk".to_owned(), 400),
        ("files?before=%2e%2e%2frun000001-bu0-000001.rwk".to_owned(), 400),
        ("files?before=%2fetc%2fpasswd".to_owned(), 400),
        ("files?before=run000001-bu0-000001.rwk%00".to_owned(), 400),
        (format!("files?before={long}.rwk"), 400),
        ("files?limit=-1".to_owned(), 400),
        ("files?limit=many".to_owned(), 400),
        ("files?limit=18446744073709551615".to_owned(), 200),
        // It is compared with names alone.
        ("files?before=%2fetc%2frun000001-bu0-000001.rwk".to_owned(), 200),
    ] {
        let (answered, body) = setup.json("GET", &format!("/api/v1/{path}"));
        let path = &path[..path.len().min(80)];
        assert_eq!(answered, status, "{path}: {body}");
        assert!(body["error"].is_string() || body["files"] == json!([]), "{path}: {body}");
    }
}
