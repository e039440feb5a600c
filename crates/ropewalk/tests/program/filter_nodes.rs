//! Filter units on other machines, over connections: nodes that are killed in the middle of a run, and callers who are none.

use crate::filters::{EVENTS, compile, configuration, expect_each_filled_once, expect_each_once, stream};
use crate::process::Program;
use crate::support::TemporaryDirectory;
use ropewalk_terms::{Attempt, EventKey, RunNumber};
use ropewalk_wire::filter_node::{
    EventHead, FILTER_NODE_VERSION, FRAME_BYTES, Frame, Kind, decode_decision, encode_begin, encode_event, encode_hello,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Starts a filter node, and says where it listens.
fn node(config: &str, listen: &str) -> (Program, String) {
    let mut node = Program::start(["filter-node", config, "--listen", listen]);
    let address = node.expect_line("ready filter-node ");
    (node, address)
}

/// The configuration of a run with these nodes.
fn with_nodes(directory: &TemporaryDirectory, config: &str, nodes: &[&str]) -> String {
    let text = std::fs::read_to_string(config).expect("it is ours");
    let file = directory.path().join("with-nodes.toml");
    std::fs::write(&file, text.replace("[filter]\n", &format!("[filter]\nnodes = {nodes:?}\n"))).expect("it is ours");
    file.display().to_string()
}

#[test]
fn nodes_that_are_killed_and_come_back_lose_nothing_and_double_nothing() {
    let directory = TemporaryDirectory::new("filter-nodes");
    let config = configuration(&directory, "units = 2\nevents = 64");
    let (mut first, first_at) = node(&config, "127.0.0.1:0");
    let (second, second_at) = node(&config, "127.0.0.1:0");
    let run_config = with_nodes(&directory, &config, &[&first_at, &second_at]);
    let (output, events) = (directory.path().display().to_string(), EVENTS.to_string());
    let mut run = Program::start(["run", &run_config, "--json", "--output", &output, "--events", &events]);
    run.expect_error_line_with("listens");
    let kills = 3;
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(700));
        // Killed as it is dropped: without a word, as a machine that is switched off.
        drop(first);
        std::thread::sleep(Duration::from_millis(100));
        first = node(&config, &first_at).0;
    }
    let account = run.end().expect_status(0).account();
    let of = PathBuf::from(account["directory"].as_str().expect("a path"));
    let [odd, even, error] = ["odd", "even", "error"].map(|name| stream(&of, name));
    expect_each_once([&odd, &even, &error], 1000, kills);
    expect_each_filled_once(&account, &error);
    let warnings = account["warnings"].to_string();
    assert!(warnings.contains(&first_at) && warnings.contains("the connection was lost"), "{warnings}");
    for node in [first, second] {
        node.interrupt();
        let ended = node.end();
        assert!(ended.expect_status(0).errors.contains(" decisions; "), "{ended:?}");
    }
}

/// What a node had when it stood still is decided elsewhere, once, and it has work again when it goes on.
#[test]
fn a_node_that_stands_still_too_long_decides_nothing_twice_when_it_goes_on() {
    let directory = TemporaryDirectory::new("filter-node-stopped");
    let config = configuration(&directory, "units = 2\nevents = 64\ntimeout = \"500ms\"");
    compile(directory.path(), &["-DENDS_OVER=20000"]);
    let (first, first_at) = node(&config, "127.0.0.1:0");
    let (_second, second_at) = node(&config, "127.0.0.1:0");
    let run_config = with_nodes(&directory, &config, &[&first_at, &second_at]);
    let (output, events) = (directory.path().display().to_string(), EVENTS.to_string());
    let mut run = Program::start(["run", &run_config, "--json", "--output", &output, "--events", &events]);
    run.expect_error_line_with("listens");
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(500));
        first.pause();
        std::thread::sleep(Duration::from_millis(900));
        first.wake();
    }
    let account = run.end().expect_status(0).account();
    let of = PathBuf::from(account["directory"].as_str().expect("a path"));
    let [odd, even, error] = ["odd", "even", "error"].map(|name| stream(&of, name));
    expect_each_once([&odd, &even, &error], EVENTS, 0);
    expect_each_filled_once(&account, &error);
    assert!(account["filter"]["returned"].as_u64() > Some(0), "{}", account["filter"]);
    let warnings = account["warnings"].to_string();
    assert!(!warnings.contains("decided on something else"), "{warnings}");
}

/// A run whose nodes are not there yet waits for them, and takes no harm.
#[test]
fn a_node_that_comes_late_is_waited_for() {
    let directory = TemporaryDirectory::new("filter-node-late");
    let config = configuration(&directory, "units = 1\nevents = 64");
    let (probe, address) = node(&config, "127.0.0.1:0");
    drop(probe);
    let run_config = with_nodes(&directory, &config, &[&address]);
    let output = directory.path().display().to_string();
    let mut run = Program::start(["run", &run_config, "--json", "--output", &output, "--events", "500"]);
    run.expect_error_line_with("listens");
    std::thread::sleep(Duration::from_millis(500));
    let (_node, _) = node(&config, &address);
    let account = run.end().expect_status(0).account();
    let count = |name: &str| account["events"][name].as_u64().expect("a count");
    assert_eq!((count("accepted"), count("rejected"), count("quarantined")), (50, 450, 0), "{account:#}");
}

/// What a node answers to these bytes before it closes: the kinds of its messages, and the last one's body.
fn answer(address: &str, bytes: &[u8]) -> (Vec<Kind>, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    // It may close before all was taken.
    let _ = stream.write_all(bytes);
    let (mut kinds, mut text) = (Vec::new(), String::new());
    while let Some((kind, body)) = next_message(&mut stream) {
        kinds.push(kind);
        text = String::from_utf8_lossy(&body).into_owned();
    }
    (kinds, text)
}

/// The next message of a node: its kind and its body; none behind the last one.
fn next_message(stream: &mut TcpStream) -> Option<(Kind, Vec<u8>)> {
    let mut head = [0; FRAME_BYTES];
    stream.read_exact(&mut head).ok()?;
    let frame = Frame::parse(&head).expect("it speaks as it should");
    let mut body = vec![0; frame.body as usize];
    stream.read_exact(&mut body).expect("its messages are whole");
    Some((frame.kind, body))
}

/// What a run says first to its node, which is looked at by being that node.
fn greeting(directory: &TemporaryDirectory, config: &str) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let run_config = with_nodes(directory, config, &[&listener.local_addr().expect("it listens").to_string()]);
    let output = directory.path().display().to_string();
    let _run = Program::start(["run", &run_config, "--json", "--output", &output, "--events", "1"]);
    let (mut stream, _) = listener.accept().expect("the run calls");
    let (kind, body) = next_message(&mut stream).expect("it says something");
    assert_eq!(kind, Kind::Hello);
    [&Frame { kind, body: body.len() as u32 }.to_bytes()[..], &body].concat()
}

/// The node stands still while its filter decides on 63 events and ends over the next one, so that it sees all of that at once.
#[test]
fn what_was_decided_before_a_filter_ended_is_said_before_the_connection_ends() {
    let directory = TemporaryDirectory::new("filter-node-said");
    let config = configuration(&directory, "units = 1\nevents = 64");
    compile(directory.path(), &["-DENDS_OVER=20000", "-DSLOW=4"]);
    let hello = greeting(&directory, &config);
    let (node, address) = node(&config, "127.0.0.1:0");
    let mut stream = TcpStream::connect(&address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    stream.write_all(&hello).expect("it listens");
    assert_eq!(next_message(&mut stream).map(|(kind, _)| kind), Some(Kind::Welcome));
    let numbers = 714..=777;
    let mut events = Vec::new();
    for (sequence, number) in (1..).zip(numbers.clone()) {
        let (key, attempt) = (EventKey::new(0, number), Attempt(0));
        let head = EventHead { sequence, key, attempt, trigger_type: 0, is_complete: true, fragments: 0 };
        encode_event(&head, [].iter(), &mut events);
    }
    stream.write_all(&events).expect("it listens");
    std::thread::sleep(Duration::from_millis(50));
    node.pause();
    std::thread::sleep(Duration::from_millis(600));
    node.wake();
    for number in numbers.clone().filter(|number| number != numbers.end()) {
        let (kind, body) = next_message(&mut stream).unwrap_or_else(|| panic!("nothing is said of {number}"));
        assert_eq!(kind, Kind::Decision);
        let (said, _) = decode_decision(&body, |_, _| ()).expect("a decision");
        assert_eq!((said.key.number(), said.accept), (number, Some(number % 10 == 0)));
    }
    assert!(next_message(&mut stream).is_none(), "nothing is said of what the filter ended over");
}

#[test]
fn callers_who_are_none_are_refused_and_harm_nobody() {
    let directory = TemporaryDirectory::new("filter-node-hostile");
    let config = configuration(&directory, "units = 1\nevents = 64");
    let (mut node, address) = node(&config, "127.0.0.1:0");
    let message = |kind, body: &[u8]| [&Frame { kind, body: body.len() as u32 }.to_bytes()[..], body].concat();
    let (mut hello, mut begin) = (Vec::new(), Vec::new());
    encode_hello(1234, &mut hello);
    encode_begin(RunNumber(1), &mut begin);
    let newer = message(Kind::Hello, &(FILTER_NODE_VERSION + 1).to_le_bytes());
    let oversized = [&b"RWU"[..], &[Kind::Hello as u8], &u32::MAX.to_le_bytes()].concat();
    for (bytes, words) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "wrong magic number"),
        (&oversized, "longer than allowed"),
        (&newer, "this node speaks version 1"),
        (&hello, "another filter"),
        (&begin, "has no place here"),
        (&message(Kind::Event, &[0; 100]), "has no place here"),
        (&message(Kind::Decision, &[0; 100]), "has no place here"),
        (&message(Kind::Hello, &[1, 0, 7]), "ends before"),
    ] {
        let (kinds, text) = answer(&address, bytes);
        assert_eq!(kinds, [Kind::Refuse], "{text}");
        assert!(text.contains(words), "{text} instead of {words}");
    }
    assert!(!node.has_ended());
    let run_config = with_nodes(&directory, &config, &[&address]);
    let output = directory.path().display().to_string();
    let run = ["run", &run_config, "--json", "--output", &output, "--events", "500"];
    let account = Program::run(run).expect_status(0).account();
    assert_eq!(account["events"]["accepted"], 50, "{account:#}");
    node.interrupt();
    let ended = node.end();
    assert!(ended.expect_status(0).errors.contains("and 8 refused"), "{ended:?}");
    assert!(Path::new(&output).exists());
}
