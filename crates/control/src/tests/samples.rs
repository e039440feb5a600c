//! Streams of samples: so many a second, for those who read, and for those who do not.

use super::{Setup, wait};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

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
fn whoever_waits_for_what_never_comes_hears_that_somebody_is_there() {
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
fn streams_are_bounded_and_those_who_do_not_read_hold_nobody_up() {
    let setup = Setup::new("samples-unread");
    setup.go(&["configure", "start"]);
    let mut streams: Vec<_> = (0..6).map(|_| setup.samples("?rate=20&front=65536")).collect();
    assert!(streams.iter().all(|(status, _)| status == "200"));
    assert_eq!(setup.samples("").0, "503");
    assert_eq!(setup.json("GET", "/api/v1/connections").1["streams_crowded"], 1);
    // Nobody reads any of them. Single samples and commands have places of their own.
    assert_eq!(setup.json("GET", "/api/v1/events/sample").0, 200);
    let before = setup.built();
    wait("the run goes on", || (setup.built() > before + 10_000).then_some(()));
    setup.go(&["stop"]);
    assert_eq!(setup.json("GET", "/api/v1/runs/1").1["ledger"]["balanced"], true);
    streams.pop();
    wait("there is a place again", || (setup.samples("").0 == "200").then_some(()));
}
