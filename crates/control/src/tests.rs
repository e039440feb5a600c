//! A real server on loopback, asked by hand.

mod crowds;
mod encrypted;
mod requests;
mod runs;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ropewalk_config::fields::Fields;
use ropewalk_config::{AlarmsSection, LogbookSection, alarm_rules, parse};
use ropewalk_run::session::{AfterRun, Launcher, Patience, Session, SessionConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use crate::{Client, ControlConfig, ControlError, Identity, Server, Token};

/// A session, its server, and a directory that goes with them.
struct Setup {
    session: Session,
    server: Server,
    output: PathBuf,
}

impl Setup {
    fn new(test: &str) -> Self {
        Self::with(test, "")
    }

    /// With this behind its configuration.
    fn with(test: &str, more: &str) -> Self {
        let output = std::env::temp_dir().join(format!("ropewalk-control-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&output).expect("a directory can be made");
        let text = format!(
            "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\npool = \"8MiB\"\n[[builder]]\nname = \"bu0\"\n\
             bytes = \"8MiB\"\n[[source]]\nid = 1\nreadout = \"ru0\"\nmax_fragment = \"4KiB\"\non_close = \"end\"\n\
             emulate = {{ rate = \"20kHz\", fragment_size = \"128B\" }}\n{more}",
            output.display().to_string()
        );
        let configuration = parse("control", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
        let config = SessionConfig {
            after_run: AfterRun::Wait,
            is_single: false,
            patience: Patience::Unlimited,
            fields: Fields::default(),
        };
        let (alarms, hearers) = (alarm_rules(&configuration.alarm), configuration.alarms.clone());
        let (logbook, reference) = (configuration.logbook.clone(), configuration.monitor.reference);
        let identity = Identity::configured(&configuration.control).unwrap_or_else(|error| panic!("{error}"));
        let session = Session::open(config, Arc::new(Launcher::new(configuration))).expect("a thread");
        let config = ControlConfig {
            listen: "127.0.0.1:0".parse().expect("an address"),
            token: None,
            identity,
            output: output.clone(),
            alarms,
            hearers,
            logbook,
            reference,
        };
        let server = Server::start(config, session.control()).expect("a free port");
        Self { session, server, output }
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn ask(&self, method: &str, path: &str) -> (u16, String) {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address());
        loop {
            let answer = self.say(request.as_bytes());
            // Tests look as fast as they can.
            if answer.0 != 429 || !answer.1.contains("requests a second") {
                return answer;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends these bytes, and reads the answer to its end: status and body.
    fn say(&self, request: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address()).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        // The server may close before it has read all.
        let _ = stream.write_all(request);
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, body.to_owned())
    }

    fn json(&self, method: &str, path: &str) -> (u16, Value) {
        let (status, body) = self.ask(method, path);
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}")))
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        let _ = self.session.control().ask(ropewalk_run::session::Command::Shutdown, "the test");
        let _ = std::fs::remove_dir_all(&self.output);
    }
}

#[test]
fn commands_of_others_are_refused_while_an_operator_holds_the_controls() {
    let setup = Setup::new("operator");
    assert_eq!(setup.json("GET", "/api/v1/operator"), (200, serde_json::json!({ "operator": null })));
    assert_eq!(setup.ask("POST", "/api/v1/operator/take").0, 400);
    assert_eq!(setup.json("POST", "/api/v1/operator/take?by=%00").0, 400);
    let (status, taken) = setup.json("POST", "/api/v1/operator/take?by=ada");
    assert_eq!((status, &taken["operator"]["name"]), (200, &"ada".into()));
    assert!(taken["operator"]["since_ns"].as_i64() > Some(0), "{taken}");
    for look in ["state", "live", "operator"] {
        assert_eq!(setup.json("GET", &format!("/api/v1/{look}")).1["operator"], taken["operator"], "{look}");
    }
    let (status, reply) = setup.json("POST", "/api/v1/commands/configure?by=bob");
    assert_eq!((status, &reply["answer"], &reply["state"]), (409, &"held_by_another".into(), &"initial".into()));
    assert!(reply["text"].as_str().is_some_and(|text| text.starts_with("ada has had control since ")), "{reply}");
    assert_eq!(setup.json("POST", "/api/v1/operator/take?by=bob").0, 409);
    assert_eq!(setup.json("POST", "/api/v1/operator/give?by=bob").0, 409);
    assert_eq!(setup.json("POST", "/api/v1/operator/give?by=ada&to=").0, 400);
    assert_eq!(setup.json("POST", "/api/v1/commands/configure?by=ada").0, 200);
    assert_eq!(setup.json("POST", "/api/v1/operator/take?by=bob&force=true").1["operator"]["name"], "bob");
    assert_eq!(setup.json("POST", "/api/v1/operator/give?by=bob&to=eve").1["operator"]["name"], "eve");
    assert_eq!(setup.json("POST", "/api/v1/operator/give?by=eve").1["operator"], Value::Null);
    assert_eq!(setup.json("POST", "/api/v1/commands/reset?by=bob").0, 200);
}

#[test]
fn a_run_is_started_watched_and_stopped() {
    let setup = Setup::new("run");
    let (status, state) = setup.json("GET", "/api/v1/state");
    assert_eq!((status, &state["state"], &state["allowed"][0]), (200, &"initial".into(), &"configure".into()));
    for (command, expected) in
        [("configure", "configured"), ("enable", "running"), ("pause", "paused"), ("resume", "running")]
    {
        let (status, reply) = setup.json("POST", &format!("/api/v1/commands/{command}?by=ada"));
        assert_eq!((status, &reply["state"]), (200, &expected.into()), "{reply}");
    }
    let (status, reply) = setup.json("POST", "/api/v1/commands/configure");
    assert_eq!((status, &reply["answer"]), (409, &"not_now".into()), "{reply}");
    assert!(reply["allowed"].as_array().is_some_and(|allowed| allowed.contains(&"stop".into())));
    let begun = Instant::now();
    while setup.json("GET", "/api/v1/ledger").1["events"]["built"].as_u64() < Some(100) {
        assert!(begun.elapsed() < Duration::from_secs(30), "no events");
    }
    let (_, live) = setup.json("GET", "/api/v1/live");
    assert_eq!((&live["run"], live["sources"][0]["id"].as_u64()), (&1.into(), Some(1)), "{live}");
    assert_eq!(live["nodes"][0]["name"], "ru0", "{live}");
    let is_paced = |live: &Value| {
        let source = &live["sources"][0];
        let is_fast = live["rates"]["sources"][0]["fragments_hz"].as_f64() > Some(0.0);
        is_fast
            && source["is_connected"] == true
            && source["readout"] == "ru0"
            && source["last_event"].as_u64() > Some(0)
            && source["behind"].is_u64()
    };
    while !is_paced(&setup.json("GET", "/api/v1/live").1) {
        assert!(begun.elapsed() < Duration::from_secs(30), "no rates are reported");
    }
    let (status, event) = setup.json("GET", "/api/v1/events/sample?source=1&front=4");
    let shown = &event["sources"][0];
    assert_eq!((status, &event["is_complete"], &shown["bytes"]), (200, &true.into(), &128.into()), "{event}");
    assert_eq!(shown["hex"].as_str().map(str::len), Some(8), "{event}");
    assert_eq!(setup.json("GET", "/api/v1/events/sample?least_bytes=1000000").0, 404);
    assert_eq!(setup.ask("GET", "/api/v1/events/sample?source=many").0, 400);
    let (status, metrics) = setup.ask("GET", "/metrics");
    assert!(status == 200 && metrics.contains("# TYPE ropewalk_"), "{metrics}");
    while setup.json("GET", "/api/v1/limit").1["sentence"].as_str().is_none_or(str::is_empty) {
        assert!(begun.elapsed() < Duration::from_secs(30), "no limit is reported");
    }
    let is_plotted = |history: &Value| history["series"]["events_per_second"][0].as_f64() > Some(0.0);
    while !is_plotted(&setup.json("GET", "/api/v1/history").1) {
        assert!(begun.elapsed() < Duration::from_secs(30), "there is no history");
    }
    let (_, history) = setup.json("GET", "/api/v1/history?since=1000&step=90");
    assert_eq!((&history["step_seconds"], history["times"][0].as_i64().map(|time| time % 60)), (&120.into(), Some(0)));
    let (_, measures) = setup.json("GET", "/api/v1/measures");
    let latency = measures.as_array().and_then(|all| all.iter().find(|one| one["measure"] == "build_latency"));
    let latency = latency.expect("events were built");
    assert!(latency["count"].as_u64() >= Some(100) && latency["p99"].as_f64() > Some(0.0), "{latency}");
    let (status, incidents) = setup.json("GET", "/api/v1/incidents?search=nothing%20of%20this&limit=3");
    assert_eq!((status, &incidents["found"], &incidents["incidents"]), (200, &0.into(), &Value::Array(Vec::new())));
    let (_, alarms) = setup.json("GET", "/api/v1/alarms");
    let name = alarms[0]["name"].as_str().expect("there are some").to_owned();
    assert_eq!(setup.json("POST", &format!("/api/v1/alarms/{name}/acknowledge")).0, 409, "{alarms}");
    assert_eq!(setup.json("POST", &format!("/api/v1/alarms/{name}/shelve?seconds=60")).1[0]["is_shelved"], true);
    assert_eq!(setup.json("POST", "/api/v1/alarms/explosion/acknowledge").0, 404);
    assert_eq!(setup.json("POST", "/api/v1/commands/stop").0, 200);
    let (status, account) = setup.json("GET", "/api/v1/runs/1");
    assert_eq!((status, &account["ledger"]["balanced"]), (200, &true.into()));
    let (_, runs) = setup.json("GET", "/api/v1/runs");
    let ended: Vec<_> = runs.as_array().expect("a list").iter().filter(|run| run["has_account"] == true).collect();
    assert_eq!(ended.len(), 1);
    let (_, journal) = setup.json("GET", "/api/v1/journal");
    let texts: Vec<_> = journal.as_array().expect("a list").iter().map(|entry| entry["text"].clone()).collect();
    assert!(texts.contains(&"start, by ada".into()) && texts.contains(&"running".into()), "{texts:?}");
}

#[test]
fn what_is_not_there_is_said_in_words() {
    let setup = Setup::new("not-there");
    for (method, path, status, word) in [
        ("POST", "/api/v1/commands/explode", 404, "configure, start"),
        ("GET", "/api/v1/nothing", 404, "/api/docs"),
        ("GET", "/api/v1/runs/7", 404, "no account"),
        ("GET", "/api/v1/runs/..%2f..%2fetc%2fpasswd", 400, ""),
        ("GET", "/..%2f..%2fetc%2fpasswd", 404, ""),
        ("GET", "/api/v1/commands/start", 405, ""),
        ("DELETE", "/api/v1/state", 405, ""),
        ("GET", &format!("/api/v1/incidents?search={}", "a".repeat(256)), 200, ""),
        ("GET", &format!("/api/v1/incidents?search={}", "a".repeat(257)), 400, "256 bytes"),
    ] {
        let (answer, body) = setup.ask(method, path);
        assert_eq!(answer, status, "{method} {path}: {body}");
        assert!(body.contains(word), "{path}: {body}");
    }
}

#[test]
fn what_comes_from_elsewhere_is_refused_and_nothing_happens() {
    let setup = Setup::new("elsewhere");
    let address = setup.address();
    let foreign = format!(
        "POST /api/v1/commands/configure HTTP/1.1\r\nHost: {address}\r\nOrigin: https://example.org\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(setup.say(foreign.as_bytes()).0, 403);
    assert_eq!(setup.say(b"GET /api/v1/state HTTP/1.1\r\nHost: daq.example\r\nConnection: close\r\n\r\n").0, 403);
    assert_eq!(setup.say(b"nonsense\r\n\r\n").0, 400);
    let long = format!("GET / HTTP/1.1\r\nHost: {address}\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    assert!([431, 0].contains(&setup.say(long.as_bytes()).0));
    let (_, state) = setup.json("GET", "/api/v1/state");
    assert_eq!(state["state"], "initial");
}

#[test]
fn views_come_as_events_and_many_viewers_hold_nothing_up() {
    let setup = Setup::new("stream");
    allow_descriptors(4096);
    for command in ["configure", "start"] {
        assert_eq!(setup.json("POST", &format!("/api/v1/commands/{command}")).0, 200);
    }
    let request = format!("GET /api/v1/live/stream HTTP/1.1\r\nHost: {}\r\n\r\n", setup.address());
    let clients: Vec<_> = (0..1000)
        .map(|_| {
            let mut stream = TcpStream::connect(setup.address()).expect("it listens");
            stream.write_all(request.as_bytes()).expect("it reads");
            stream
        })
        .collect();
    // The last one reads, all others never do.
    let mut lines = BufReader::new(clients.last().expect("there are some")).lines().map(|line| line.expect("text"));
    assert!(lines.any(|line| line == "event: live"));
    let data = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned)).expect("a view");
    let live: Value = serde_json::from_str(&data).expect("JSON");
    assert_eq!(live["state"], "running");
    let built = || setup.json("GET", "/api/v1/ledger").1["events"]["built"].as_u64().expect("a number");
    let before = built();
    wait("the run goes on", || (built() > before + 10_000).then_some(()));
    let (status, reply) = setup.json("POST", "/api/v1/commands/stop");
    assert_eq!((status, &reply["answer"]), (200, &"done".into()));
    let account = setup.json("GET", "/api/v1/runs/1").1;
    assert_eq!(account["ledger"]["balanced"], true, "{account}");
}

/// Raises the descriptor limit for a thousand clients and their server in one process.
fn allow_descriptors(wanted: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < wanted) {
        let raised = Rlimit { current: maximum.map_or(Some(wanted), |most| Some(most.min(wanted))), maximum };
        setrlimit(Resource::Nofile, raised).expect("every process may raise it up to the maximum");
    }
}

#[test]
fn the_document_lists_every_path_and_the_page_is_there() {
    let setup = Setup::new("document");
    let (status, document) = setup.json("GET", "/api/docs");
    assert_eq!(status, 200);
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() >= 12, "{paths:?}");
    for (path, methods) in paths {
        let Some(get) = methods.get("get").filter(|_| !path.contains('{') && !path.ends_with("stream")) else {
            continue;
        };
        // No run is set up.
        let expected = if path.ends_with("/events/sample") { 404 } else { 200 };
        assert_eq!(setup.ask("GET", path).0, expected, "{path}: {get}");
    }
    for (path, word) in [("/", "Ropewalk"), ("/dashboard.js", "EventSource"), ("/dashboard.css", "color")] {
        let (status, body) = setup.ask("GET", path);
        assert!(status == 200 && body.contains(word), "{path}: {status}");
    }
    // Every file that the page and its modules name is served.
    for asking in ["/", "/dashboard.js", "/sources.js", "/path.js"] {
        let body = setup.ask("GET", asking).1;
        let named = body.split('"').filter(|word| [".js", ".css", ".svg"].iter().any(|end| word.ends_with(end)));
        for file in named.map(|word| word.trim_start_matches("./")) {
            assert_eq!(setup.ask("GET", &format!("/{file}")).0, 200, "{asking} names {file}");
        }
    }
}

#[test]
fn the_manual_says_what_to_do_about_every_incident_and_phase() {
    let manual = include_str!("../../../docs/operating.md");
    let causes: Vec<_> = ropewalk_monitor::incidents::causes().collect();
    // In any other phase the sentence says only that no data are taken.
    let phases: Vec<_> = ropewalk_monitor::PHASES.into_iter().filter(|phase| *phase != "running").collect();
    for (section, names) in [("Incidents", causes), ("The sentence under the state", phases)] {
        let (_, behind) = manual.split_once(&format!("\n## {section}\n")).expect("the manual has it");
        let text = behind.split("\n## ").next().unwrap_or_default();
        let unsaid: Vec<_> = names.into_iter().filter(|name| !text.contains(&format!("`{name}`"))).collect();
        assert!(unsaid.is_empty(), "docs/operating.md, {section}, says nothing of {unsaid:?}");
    }
}

/// The page of the interface, made of its OpenAPI document.
fn page_of_the_interface(document: &Value) -> String {
    use std::fmt::Write as _;
    let text = |value: &Value| value.as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let mut page =
        "# Paths of the interface\n\nThis page is generated from the OpenAPI document, `/api/docs`.\n".to_owned();
    for (path, methods) in document["paths"].as_object().expect("there are paths") {
        for (method, operation) in methods.as_object().expect("a path has methods") {
            let about = format!("{} {}", text(&operation["summary"]), text(&operation["description"]));
            let _ = write!(page, "\n## `{} {path}`\n\n{}\n", method.to_uppercase(), about.trim());
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let parameters = parameters.map(|one| (format!("`{}`", text(&one["name"])), text(&one["description"])));
            let responses = operation["responses"].as_object().expect("an operation has responses");
            let responses = responses.iter().map(|(status, answer)| (status.clone(), text(&answer["description"])));
            let said = parameters.chain(responses).filter(|(_, about)| !about.is_empty());
            let items: String = said.map(|(name, about)| format!("- {name}: {about}\n")).collect();
            page += &if items.is_empty() { items } else { format!("\n{items}") };
        }
    }
    page
}

/// To update the page: `ROPEWALK_BLESS=1 cargo test -p ropewalk-control interface`.
#[test]
fn the_page_of_the_interface_is_its_openapi_document() {
    let setup = Setup::new("interface");
    let document: Value = serde_json::from_str(&setup.ask("GET", "/api/docs").1).expect("it is JSON");
    let path = "docs/api-paths.md";
    let is_current = ropewalk_tidy::is_current(path, &page_of_the_interface(&document));
    assert!(is_current, "{path} differs: ROPEWALK_BLESS=1 writes it");
}

#[test]
fn an_address_that_others_reach_needs_a_token() {
    let setup = Setup::new("token");
    let mut config = ControlConfig {
        listen: "0.0.0.0:0".parse().expect("an address"),
        token: None,
        identity: None,
        output: setup.output.clone(),
        alarms: Vec::new(),
        hearers: AlarmsSection::default(),
        logbook: LogbookSection::default(),
        reference: None,
    };
    let refused = Server::start(config.clone(), setup.session.control());
    assert!(matches!(refused, Err(ControlError::Open(_))));
    config.listen = setup.address();
    let taken = Server::start(config.clone(), setup.session.control());
    assert!(matches!(taken, Err(ControlError::Listen { .. })));
    config.listen = "127.0.0.1:0".parse().expect("an address");
    config.token = Some(Token::of_file(&setup.output.join("token")).expect("it can be made"));
    let server = Server::start(config, setup.session.control()).expect("a free port");
    let text = std::fs::read_to_string(setup.output.join("token")).expect("it is there");
    let ask = |authorization: &str| {
        let request = format!(
            "POST /api/v1/commands/reset HTTP/1.1\r\nHost: {}\r\n{authorization}Connection: close\r\n\r\n",
            server.address()
        );
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0_u16)
    };
    assert_eq!(ask(""), 401);
    assert_eq!(ask(&format!("Authorization: Bearer {}\r\n", text.trim())), 200);
}

#[test]
fn a_promised_answer_comes_although_the_server_ends() {
    for round in 0..20 {
        let setup = Setup::new(&format!("shutdown-{round}"));
        let streams = format!("GET /api/v1/live/stream HTTP/1.1\r\nHost: {}\r\n\r\n", setup.address());
        let mut looking = TcpStream::connect(setup.address()).expect("it listens");
        looking.write_all(streams.as_bytes()).expect("it reads");
        let address = setup.address();
        let asking = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).expect("it listens");
            let request = format!("POST /api/v1/commands/shutdown HTTP/1.1\r\nHost: {address}\r\n\r\n");
            stream.write_all(request.as_bytes()).expect("it reads");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("an answer, and the end");
            text
        });
        while !setup.session.is_over() {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        drop(setup);
        assert!(begun.elapsed() < Duration::from_secs(2), "streams hold the end up");
        let answer = asking.join().expect("no panic");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"over\""), "{answer}");
    }
}

/// Waits until this is true.
fn wait<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Takes what is posted, and says that it was good: the bodies.
fn webhook() -> (SocketAddr, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has one");
    let (sender, bodies) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.expect("a connection"));
            loop {
                let (mut length, mut line) = (0, String::new());
                while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
                    if let Some((_, bytes)) = line.to_lowercase().split_once("content-length:") {
                        length = bytes.trim().parse().expect("a number");
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                if length == 0 || reader.read_exact(&mut body).is_err() {
                    break;
                }
                // A test that has ended takes no more.
                let _ = sender.send(serde_json::from_slice(&body).expect("JSON"));
                reader.get_mut().write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("it listens");
            }
        }
    });
    (address, bodies)
}

#[test]
fn alarms_are_sent_to_a_command_and_a_webhook() {
    let (address, bodies) = webhook();
    let heard = std::env::temp_dir().join(format!("ropewalk-control-heard-{}", std::process::id()));
    let setup = Setup::with(
        "alarms",
        &format!(
            "[[alarm]]\nname = \"busy\"\nquantity = \"events_per_second\"\nabove = 100\nseverity = \"notice\"\n\
             [alarms]\ncommand = [\"sh\", \"-c\", \"cat >> {}\"]\nwebhook = \"http://{address}/alarms\"\nalive_every = \"1s\"\n",
            heard.display()
        ),
    );
    for command in ["configure", "start"] {
        assert_eq!(setup.json("POST", &format!("/api/v1/commands/{command}")).0, 200);
    }
    let of_busy = |messages: &[Value]| messages.iter().find(|message| message["name"] == "busy").cloned();
    let mut posted = Vec::new();
    let raised = loop {
        posted.push(bodies.recv_timeout(Duration::from_secs(30)).expect("a message comes"));
        if let Some(raised) = of_busy(&posted) {
            break raised;
        }
    };
    assert_eq!((&raised["what"], &raised["state"], &raised["run"]), (&"alarm".into(), &"active".into(), &1.into()));
    assert_eq!((&raised["quantity"], raised["value"].as_f64() > Some(100.0)), (&"events_per_second".into(), true));
    assert!(posted.iter().any(|message| message["what"] == "alive"), "{posted:?}");
    let lines = wait("the command hears it", || {
        let text = std::fs::read_to_string(&heard).ok()?;
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        of_busy(&lines).is_some().then_some(lines)
    });
    assert_eq!(of_busy(&lines), Some(raised));
    // The end of an alarm is sent as well.
    assert_eq!(setup.json("POST", "/api/v1/commands/pause").0, 200);
    wait("it is over", || {
        let message = bodies.recv_timeout(Duration::from_secs(30)).expect("a message comes");
        (message["name"] == "busy" && message["state"] == "normal").then_some(())
    });
    assert!(setup.json("GET", "/api/v1/alarms/told").1["told"].as_u64() >= Some(3));
    std::fs::remove_file(&heard).expect("the test's own file");
}

#[test]
fn a_command_that_hangs_is_given_up_and_the_run_goes_on() {
    let setup =
        Setup::with("hangs", "[alarms]\ncommand = [\"sleep\", \"600\"]\ntimeout = \"100ms\"\nalive_every = \"1s\"\n");
    let told = wait("it is given up", || {
        let told = setup.json("GET", "/api/v1/alarms/told").1;
        (told["failed"].as_u64() >= Some(1)).then_some(told)
    });
    assert!(told["last_failure"].as_str().is_some_and(|text| text.contains("took longer than 100ms")), "{told}");
    assert_eq!(setup.json("POST", "/api/v1/commands/configure").0, 200);
}

/// The entries of the journal.
fn journal(setup: &Setup) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (_, entries) = setup.json("GET", "/api/v1/journal");
    entries.as_array().expect("a list").iter().map(|entry| (text(&entry["kind"]), text(&entry["text"]))).collect()
}

#[test]
fn a_message_that_is_not_accepted_raises_an_alarm_until_one_is() {
    let flag = std::env::temp_dir().join(format!("ropewalk-control-flag-{}", std::process::id()));
    let section = format!("[alarms]\ncommand = [\"test\", \"-e\", \"{}\"]\n", flag.display());
    let setup = Setup::with("unsent", &section);
    assert_eq!(setup.json("POST", "/api/v1/commands/configure").0, 200);
    let (status, refused) = setup.json("POST", "/api/v1/alarms/test?by=ada");
    assert!(
        status == 500 && refused["error"].as_str().is_some_and(|why| why.contains("`test` ended with")),
        "{refused}"
    );
    let state_of = |name: &str| {
        let (_, alarms) = setup.json("GET", "/api/v1/alarms");
        alarms.as_array().expect("a list").iter().find(|alarm| alarm["name"] == name).expect("it is built in").clone()
    };
    let raised = wait("the alarm", || Some(state_of("alarms_not_sent")).filter(|alarm| alarm["state"] == "active"));
    // The first look at the run may come after the message.
    assert!(raised["run"] == 1 || raised["run"].is_null(), "{raised}");
    assert!(raised["sentence"].as_str().is_some_and(|sentence| sentence.contains("`test` ended with")), "{raised}");
    let entries = journal(&setup);
    assert!(entries.contains(&("command".to_owned(), "test message of alarms, by ada".to_owned())), "{entries:?}");
    let incidents = entries.iter().filter(|(kind, text)| kind == "incident" && text.starts_with("alarms: a message"));
    assert_eq!(incidents.count(), 1, "{entries:?}");
    std::fs::write(&flag, "").expect("a file can be made");
    assert_eq!(setup.json("POST", "/api/v1/alarms/test?by=ada").0, 200);
    wait("it is over", || (state_of("alarms_not_sent")["state"] == "latched").then_some(()));
    std::fs::remove_file(&flag).expect("the test's own file");
}

#[test]
fn a_command_that_cannot_be_executed_refuses_the_server() {
    let setup = Setup::new("no-command");
    assert_eq!(setup.json("POST", "/api/v1/alarms/test").0, 409, "no receiver is configured");
    let command = vec!["/no/such/program".to_owned()];
    let config = ControlConfig {
        listen: "127.0.0.1:0".parse().expect("an address"),
        token: None,
        identity: None,
        output: setup.output.clone(),
        alarms: Vec::new(),
        hearers: AlarmsSection { command, ..AlarmsSection::default() },
        logbook: LogbookSection::default(),
        reference: None,
    };
    let refused = Server::start(config, setup.session.control()).expect_err("it cannot be executed");
    assert!(refused.to_string().starts_with("[alarms] command: `/no/such/program`: "), "{refused}");
}

#[test]
fn a_field_of_a_start_is_refused_while_the_run_goes_on() {
    let setup = Setup::new("late-field");
    assert_eq!(setup.json("POST", "/api/v1/commands/configure").0, 200);
    assert_eq!(setup.json("POST", "/api/v1/commands/start?by=max&field=beam=120GeV").0, 200);
    let (status, again) = setup.json("POST", "/api/v1/commands/start?by=ada&field=beam=120GeV");
    assert_eq!((status, &again["answer"]), (200, &"already_so".into()), "it has this field: {again}");
    let (status, refused) = setup.json("POST", "/api/v1/commands/start?by=ada&field=beam=80GeV");
    assert_eq!((status, &refused["answer"]), (409, &"refused".into()), "{refused}");
    assert!(refused["text"].as_str().is_some_and(|why| why.contains("beam=80GeV is not stored")), "{refused}");
    assert_eq!(setup.json("GET", "/api/v1/state").1["fields"]["beam"], "120GeV");
    assert_eq!(setup.json("POST", "/api/v1/commands/start").0, 200);
}

#[test]
fn the_journal_has_notes_and_the_system_users_of_commands() {
    let setup = Setup::new("journal-notes");
    assert_eq!(setup.json("POST", "/api/v1/commands/configure?by=ada").0, 200);
    let client = Client::new(&format!("http://{}", setup.address()), None, None).expect("a plain URL");
    let client = client.as_user("daq".to_owned());
    assert_eq!(client.command("start", &[], "ada").expect("it answers").status, 200);
    assert_eq!(client.note(1, "target moved", "ada").expect("it answers").status, 200);
    assert_eq!(client.command("pause", &[], "daq").expect("it answers").status, 200);
    let entries = journal(&setup);
    for (kind, text) in [
        ("command", "configure, by ada"),
        ("command", "start, by ada (system user daq)"),
        ("note", "note by ada (system user daq): target moved"),
        ("command", "pause, by daq"),
    ] {
        assert!(entries.contains(&(kind.to_owned(), text.to_owned())), "{text}: {entries:?}");
    }
    wait("the logbook", || {
        let (_, notes) = setup.json("GET", "/api/v1/runs/1/notes");
        let notes = notes.as_array().expect("a list");
        let is_note = |note: &&Value| note["kind"] == "note";
        let is_pause = |note: &Value| note["text"].as_str().is_some_and(|text| text.starts_with("pause"));
        notes.iter().any(is_pause).then(|| assert_eq!(notes.iter().filter(is_note).count(), 1, "{notes:?}"))
    });
}
