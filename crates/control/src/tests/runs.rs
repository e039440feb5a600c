//! Tests of what the API returns for runs: files, source histograms from the configuration to the account, the logbook,
//! and sample streams, their rate, and clients that do or do not read them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Setup, wait, webhook};

#[test]
fn files_of_the_present_run_and_of_past_ones_are_listed_with_their_events() {
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
    // A run that is only set up has no files, so that the files of the last run are returned.
    assert_eq!(setup.json("GET", "/api/v1/files"), (200, closed.clone()));
    let before = |path: &str| setup.json("GET", &format!("/api/v1/runs/1/files?before={path}")).1["files"].clone();
    assert_eq!(before("run000001%2Frun000001-bu0-000001.rwk"), json!([]), "nothing is older");
    assert_eq!(before("run000001%2Frun000001-bu0-000002.rwk.open"), closed["files"]);
    assert_eq!(setup.json("GET", "/api/v1/files?limit=0").1["found"], closed["found"]);
}

#[test]
fn only_files_of_runs_are_listed() {
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

pub(super) const HISTOGRAMS: &str = "\
[[histogram]]\nname = \"sizes\"\nof = \"size\"\nbins = 4\nfrom = 0\nto = \"256B\"\n\
[[histogram]]\nname = \"pauses\"\nsources = [\"1-3\"]\nof = \"interval\"\nbins = 9\nfrom = \"1ns\"\nto = \"1s\"\nscale = \"logarithmic\"\n\
[[histogram]]\nname = \"far\"\nsources = [1]\nof = { offset = 4096, bytes = 2 }\nbins = 2\nfrom = 0\nto = 65536\n";

fn total(counts: &Value) -> u64 {
    counts["counts"].as_array().into_iter().flatten().filter_map(Value::as_u64).sum()
}

#[test]
fn histograms_are_served_while_they_are_filled_and_stand_in_the_account() {
    let setup = Setup::with("histograms", HISTOGRAMS);
    assert_eq!(setup.json("GET", "/api/v1/histograms"), (200, json!([])), "no run is set up");
    for command in ["configure", "start"] {
        assert_eq!(setup.ask("POST", &format!("/api/v1/commands/{command}")).0, 200);
    }
    let begun = Instant::now();
    let sizes = loop {
        let (_, sizes) = setup.json("GET", "/api/v1/histograms?name=sizes");
        if total(&sizes[0]["sources"]["1"]) > 0 {
            break sizes;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{sizes}");
    };
    assert_eq!((&sizes[0]["unit"], &sizes[0]["edges"]), (&"bytes".into(), &json!([0, 64, 128, 192, 256])));
    assert_eq!(sizes[0]["sources"]["1"]["counts"][2], total(&sizes[0]["sources"]["1"]), "all have 128 bytes: {sizes}");
    let names = |query: &str| {
        let (_, found) = setup.json("GET", &format!("/api/v1/histograms{query}"));
        found.as_array().into_iter().flatten().map(|one| one["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names("?source=1"), ["sizes", "pauses", "far"]);
    assert_eq!((names("?source=2").len(), names("?name=no").len()), (0, 0));
    for wrong in ["histograms?source=many", "runs/%ff"] {
        let (status, problem) = setup.json("GET", &format!("/api/v1/{wrong}"));
        assert!(status == 400 && problem["error"].is_string(), "{problem}");
    }
    assert_eq!(setup.ask("POST", "/api/v1/commands/stop").0, 200);
    let (_, account) = setup.json("GET", "/api/v1/runs/1");
    let received = account["fragments"]["received"].as_u64().expect("a number");
    let [sizes, pauses, far] = [0, 1, 2].map(|index| &account["histograms"][index]["sources"]["1"]);
    assert_eq!((total(sizes), &sizes["short"]), (received, &0.into()), "{account}");
    let beside = pauses["underflow"].as_u64().unwrap_or(0) + pauses["overflow"].as_u64().unwrap_or(0);
    assert_eq!(total(pauses) + beside, received - 1, "the first one has none before it: {pauses}");
    assert_eq!((total(far), far["short"].as_u64()), (0, Some(received)), "{far}");
}

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
fn the_logbook_has_events_and_notes_and_hands_them_on() {
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
    // A command is recorded with the operator's name, its effects with the program's.
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
    // Entries before the first run belong to no run.
    let text = std::fs::read_to_string(setup.output.join("logbook.jsonl")).expect("it is there");
    let all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(all.iter().any(|note| note["run"].is_null() && note["text"] == "configure, by ada"), "{text}");
    // The list of runs contains the notes of operators, but no entries of the program.
    let (status, runs) = setup.json("GET", "/api/v1/runs");
    // The directory of the next run may exist already.
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

impl Setup {
    /// A stream of samples, of which the status was read.
    fn samples(&self, query: &str) -> (String, BufReader<TcpStream>) {
        let mut stream = TcpStream::connect(self.address()).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        let request = format!("GET /api/v1/events/stream{query} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address());
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("an answer");
        (String::from_utf8_lossy(&status[9..]).into_owned(), BufReader::new(stream))
    }

    fn built(&self) -> u64 {
        self.json("GET", "/api/v1/ledger").1["events"]["built"].as_u64().expect("a number")
    }

    fn go(&self, commands: &[&str]) {
        for command in commands {
            assert_eq!(self.json("POST", &format!("/api/v1/commands/{command}")).0, 200, "{command}");
        }
    }
}

/// The next line that begins so, and the rest of it.
fn line(stream: &mut BufReader<TcpStream>, begin: &str) -> String {
    let mut line = String::new();
    while stream.read_line(&mut line).expect("it goes on") > 0 {
        if let Some(rest) = line.strip_prefix(begin) {
            return rest.to_owned();
        }
        line.clear();
    }
    panic!("the stream has ended before `{begin}`")
}

fn sample(stream: &mut BufReader<TcpStream>) -> Value {
    assert_eq!(line(stream, "event: "), "sample\n");
    serde_json::from_str(&line(stream, "data: ")).expect("JSON")
}

#[test]
fn samples_come_as_often_as_was_asked_for_and_in_the_next_run_too() {
    let setup = Setup::new("samples");
    let (status, mut stream) = setup.samples("?rate=20&source=1&front=4");
    assert_eq!(status, "200", "also while no run is set up");
    setup.go(&["configure", "start"]);
    let begun = Instant::now();
    let samples: Vec<_> = (0..5).map(|_| sample(&mut stream)).collect();
    assert!(begun.elapsed() >= Duration::from_millis(150), "{:?}", begun.elapsed());
    for sample in &samples {
        assert_eq!((&sample["sources"][0]["bytes"], &sample["is_complete"]), (&128.into(), &true.into()), "{sample}");
        assert_eq!(sample["sources"][0]["hex"].as_str().map(str::len), Some(8), "{sample}");
    }
    let number = |sample: &Value| sample["key"].as_str().and_then(|key| key.parse::<u64>().ok()).expect("a number");
    assert!(samples.is_sorted_by(|one, next| number(one) < number(next)), "{samples:?}");
    setup.go(&["pause", "stop", "start"]);
    let last = number(samples.last().expect("five"));
    // The events of the next run are counted from 1.
    while number(&sample(&mut stream)) > last {}
    let (_, mut slowest) = setup.samples("?rate=0.01");
    sample(&mut slowest);
    assert!(line(&mut slowest, ":").contains("no such event"), "the next one comes in 100 s");
}

#[test]
fn a_client_that_waits_for_what_never_comes_gets_signs_of_life() {
    let setup = Setup::new("samples-never");
    setup.go(&["configure", "start"]);
    let (status, mut stream) = setup.samples("?least_bytes=1000000");
    assert_eq!(status, "200");
    for _ in 0..2 {
        assert_eq!(line(&mut stream, ":"), " no such event was built lately\n");
    }
    for wrong in ["rate=0", "rate=-1", "rate=0.009", "rate=20.1", "rate=nan", "rate=inf", "rate=fast", "source=many"] {
        let (status, answer) = setup.json("GET", &format!("/api/v1/events/stream?{wrong}"));
        assert!(status == 400 && answer["error"].is_string(), "{wrong}: {answer}");
    }
}

#[test]
fn streams_are_bounded_and_clients_that_do_not_read_hold_nothing_up() {
    let setup = Setup::new("samples-unread");
    setup.go(&["configure", "start"]);
    let mut streams: Vec<_> = (0..6).map(|_| setup.samples("?rate=20&front=65536")).collect();
    assert!(streams.iter().all(|(status, _)| status == "200"));
    assert_eq!(setup.samples("").0, "503");
    assert_eq!(setup.json("GET", "/api/v1/connections").1["streams_crowded"], 1);
    // No client reads these streams. Single samples and commands have places of their own.
    assert_eq!(setup.json("GET", "/api/v1/events/sample").0, 200);
    let before = setup.built();
    wait("the run goes on", || (setup.built() > before + 10_000).then_some(()));
    setup.go(&["stop"]);
    assert_eq!(setup.json("GET", "/api/v1/runs/1").1["ledger"]["balanced"], true);
    streams.pop();
    wait("there is a place again", || (setup.samples("").0 == "200").then_some(()));
}
