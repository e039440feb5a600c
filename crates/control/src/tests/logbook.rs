//! The logbook of runs under control.

use super::{Setup, wait, webhook};
use serde_json::Value;
use std::time::Duration;

fn say(setup: &Setup, run: &str, text: &str) -> (u16, Value) {
    let request = format!(
        "POST /api/v1/runs/{run}/notes?by=ada HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: text/plain\r\n\
         Content-Length: {}\r\n\r\n{text}",
        setup.address(),
        text.len()
    );
    let (status, body) = setup.say(request.as_bytes());
    (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
}

#[test]
fn what_happens_and_what_people_say_stands_in_the_logbook_and_is_handed_on() {
    let (address, bodies) = webhook();
    let setup = Setup::with("logbook", &format!("[logbook]\nwebhook = \"http://{address}/log\"\n"));
    for command in ["configure", "start"] {
        assert_eq!(setup.json("POST", &format!("/api/v1/commands/{command}?by=ada")).0, 200);
    }
    let (status, note) = say(&setup, "1", " target moved\nby 2 mm ");
    assert_eq!((status, &note["text"], &note["by"]), (200, &"target moved\nby 2 mm".into(), &"ada".into()));
    for (run, text, wrong) in [("2", "what", 404), ("1", " ", 400), ("one", "what", 400), ("1", "\u{1b}[2J", 400)] {
        assert_eq!(say(&setup, run, text).0, wrong, "{run} {text:?}");
    }
    let choice = format!(
        "POST /api/v1/reference?by=bob HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: 12\r\n\r\n{{\"run\":null}}",
        setup.address()
    );
    assert_eq!(setup.say(choice.as_bytes()).0, 200);
    assert_eq!(setup.json("POST", "/api/v1/commands/stop?by=ada").0, 200);
    // Who gives a command has said so; what comes of it the program says.
    let wanted = [
        ("note", "ada", "target moved\nby 2 mm"),
        ("command", "ada", "stop, by ada"),
        ("state", "ropewalk", "running"),
        ("command", "bob", "bob compares with no run"),
    ];
    let is_one = |note: &Value, (kind, by, text): (&str, &str, &str)| {
        note["kind"] == kind && note["by"] == by && note["text"] == text
    };
    let is_whole = |notes: &[Value]| wanted.iter().all(|wanted| notes.iter().any(|note| is_one(note, *wanted)));
    let kept = wait("the logbook", || {
        let (status, notes) = setup.json("GET", "/api/v1/runs/1/notes");
        assert_eq!(status, 200);
        notes.as_array().filter(|notes| is_whole(notes)).cloned()
    });
    assert!(kept.iter().all(|note| note["run"] == 1 && note["at_ns"].as_i64() > Some(0)), "{kept:?}");
    // What was set up before there was a run is nobody's.
    let text = std::fs::read_to_string(setup.output.join("logbook.jsonl")).expect("it is there");
    let all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(all.iter().any(|note| note["run"].is_null() && note["text"] == "configure, by ada"), "{text}");
    // In the list of runs stands what people said, and nothing of the program's own.
    let (status, runs) = setup.json("GET", "/api/v1/runs");
    // The directory of the run that is set up next may be there already.
    let first = runs.as_array().and_then(|runs| runs.iter().find(|run| run["run"] == 1)).expect("run 1 is there");
    assert_eq!((status, &first["notes"]), (200, &serde_json::json!([note])), "{runs}");
    let mut handed = Vec::new();
    while !is_whole(&handed) {
        handed.push(bodies.recv_timeout(Duration::from_secs(30)).expect("all of it"));
    }
    assert_eq!(setup.json("GET", "/api/v1/logbook/told").1["dropped"], 0);
}

#[test]
fn a_run_that_there_is_not_has_no_notes_and_one_that_was_taken_away_keeps_its_own() {
    let setup = Setup::new("no-notes");
    let (status, problem) = setup.json("GET", "/api/v1/runs/7/notes");
    assert_eq!((status, &problem["error"]), (404, &"there is no run 7".into()));
    let directory = setup.output.join("run000007");
    std::fs::create_dir(&directory).expect("it can be made");
    assert_eq!(setup.json("GET", "/api/v1/runs/7/notes"), (200, serde_json::json!([])));
    assert_eq!(say(&setup, "7", "beam back").0, 200);
    std::fs::remove_dir(&directory).expect("it is empty");
    let (status, notes) = setup.json("GET", "/api/v1/runs/7/notes");
    assert_eq!((status, &notes[0]["text"]), (200, &"beam back".into()));
}
