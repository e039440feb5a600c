//! Other programs that move messages over TCP, in turns with ours: iperf3, ZeroMQ, libfabric. A program that is not
//! installed is reported as skipped.

use super::ours::{OurPair, our_pair};
use super::{SEND, Tuning, throughput};
use crate::pairs::alternate;
use crate::session::{Row, Session, case};
use crate::{BenchError, Scale};
use ropewalk_doctor::run::scratch;
use ropewalk_io::tcp::Mechanism;
use serde_json::{Map, Value, json};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const NOTE_IPERF: &str =
    "ours: messages coalesced into 64 KiB; limit: iperf3, one write for each of as many bytes, no messages";
const NOTE_ZEROMQ: &str =
    "ours: messages coalesced into 64 KiB; limit: ZeroMQ PUSH to PULL, which coalesces too; target: 1";
const NOTE_FABRIC: &str =
    "ours: messages coalesced into 64 KiB; limit: fi_msg_bw over libfabric's tcp provider; target: 1";
const ZEROMQ: &str = include_str!("zeromq.c");
/// Attempts to reach a program that was just started, and the pause between them.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// A program, and the function that measures its rate for messages of this many bytes.
struct Peer {
    name: &'static str,
    note: &'static str,
    rate: Box<dyn Fn(usize) -> Result<f64, BenchError>>,
}

pub(super) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let directory = scratch(&session.options.output, "peers");
    std::fs::create_dir_all(&directory).map_err(BenchError::system("a directory"))?;
    let (_, duration) = throughput::times(session.options.scale);
    let found = [
        ("iperf3", iperf3()),
        ("zeromq", zeromq(&directory, duration)),
        ("libfabric", libfabric(session.options.scale)),
    ];
    let measured = found.into_iter().try_for_each(|(name, peer)| match peer {
        Ok(peer) => measure(session, &peer),
        Err(why) => match case_of(name, None) {
            case if session.wants(&case) => session.skip(&case, &why),
            _ => Ok(()),
        },
    });
    // Ignored: what remains is this process's own directory, and the figures are valid.
    let _ = std::fs::remove_dir_all(&directory);
    measured
}

fn case_of(peer: &str, message_bytes: Option<usize>) -> Map<String, Value> {
    let bytes = message_bytes.map_or_else(|| json!("any"), |bytes| json!(bytes));
    case([("figure", json!("peers")), ("peer", json!(peer)), ("message_bytes", bytes)])
}

fn measure(session: &mut Session<'_>, peer: &Peer) -> Result<(), BenchError> {
    let scale = session.options.scale;
    let (warm_up, duration) = throughput::times(scale);
    let all: &[usize] = &[64, 256, 2 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
    for &bytes in scale.choose(&[2048][..], &[64, 2 << 10, 64 << 10, 1 << 20], all) {
        let case = case_of(peer.name, Some(bytes));
        session.measure(&case, |session| {
            let pair = OurPair {
                mechanism: Mechanism::Auto,
                message_bytes: bytes,
                messages_per_send: (SEND / bytes).max(1),
                sockets: Tuning::Tuned.sockets(),
                warm_up,
                duration,
                cpus: Tuning::Tuned.cpus(),
            };
            let ours = || our_pair(pair).map(|figures| [figures.gigabytes_per_second()]);
            let [series] = alternate(scale.choose(1, 1, 5), ours, || Ok([(peer.rate)(bytes)?]))?;
            session.row(Row::of(&case, "GB/s", &series, peer.note))
        })?;
    }
    Ok(())
}

/// Whether a program can be started.
fn is_there(program: &str, argument: &str) -> bool {
    Command::new(program).arg(argument).stdin(Stdio::null()).output().is_ok()
}

/// A port that was free a moment ago.
fn free_port() -> Result<String, BenchError> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    Ok(address.map_err(BenchError::system("a port"))?.port().to_string())
}

/// Starts a server, and a client that may be too early and is then started again. Returns the client's output.
fn serve(server: &mut Command, client: &mut Command) -> Result<Output, BenchError> {
    struct Server(Child);
    impl Drop for Server {
        fn drop(&mut self) {
            // Fails if it has ended already.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Server(server.spawn().map_err(BenchError::system("a server"))?);
    for _ in 0..TRIES {
        std::thread::sleep(PAUSE);
        let output = client.stdin(Stdio::null()).output().map_err(BenchError::system("a client"))?;
        if output.status.success() {
            return Ok(output);
        }
    }
    Err(BenchError::wrong(format!("{client:?} has not worked")))
}

fn iperf3() -> Result<Peer, String> {
    if !is_there("iperf3", "--version") {
        return Err("iperf3 is not installed".to_owned());
    }
    let rate = |bytes: usize| {
        let (port, bytes) = (free_port()?, bytes.to_string());
        let mut server = Command::new("iperf3");
        server.args(["--server", "--one-off", "--port", &port]);
        let mut client = Command::new("iperf3");
        client.args(["--client", "127.0.0.1", "--port", &port, "--length", &bytes]);
        client.args(["--time", "1", "--json", "--congestion", "cubic", "--affinity", "1,0"]);
        let output = serve(&mut server, &mut client)?;
        let told: Value = serde_json::from_slice(&output.stdout).map_err(BenchError::wrong)?;
        let bits = told["end"]["sum_received"]["bits_per_second"].as_f64();
        bits.map(|bits| bits / 8e9).ok_or_else(|| BenchError::wrong("iperf3 tells no rate"))
    };
    Ok(Peer { name: "iperf3", note: NOTE_IPERF, rate: Box::new(rate) })
}

fn zeromq(directory: &Path, duration: Duration) -> Result<Peer, String> {
    let (source, program): (PathBuf, PathBuf) = (directory.join("zeromq.c"), directory.join("zeromq"));
    std::fs::write(&source, ZEROMQ).map_err(|error| error.to_string())?;
    let compiled =
        Command::new("cc").args(["-O2", "-o"]).args([&program, &source]).args(["-lzmq", "-lpthread"]).output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        return Err("a C compiler with the headers of libzmq is not installed".to_owned());
    }
    let program = std::fs::canonicalize(&program).map_err(|error| error.to_string())?;
    let rate = move |bytes: usize| {
        let arguments = [bytes.to_string(), duration.as_millis().to_string()];
        let output = Command::new(&program).args(arguments).stdin(Stdio::null()).output();
        let output = output.map_err(BenchError::system("ZeroMQ"))?;
        String::from_utf8_lossy(&output.stdout).trim().parse().map_err(|_| BenchError::wrong("ZeroMQ tells no rate"))
    };
    Ok(Peer { name: "zeromq", note: NOTE_ZEROMQ, rate: Box::new(rate) })
}

fn libfabric(scale: Scale) -> Result<Peer, String> {
    if !is_there("fi_msg_bw", "-h") {
        return Err("fi_msg_bw, of libfabric's fabtests, is not installed".to_owned());
    }
    let most_bytes: usize = scale.choose(1 << 20, 1 << 27, 1 << 30);
    let rate = move |bytes: usize| {
        let (port, size) = (free_port()?, bytes.to_string());
        let iterations = (most_bytes / bytes).clamp(100, 1_000_000).to_string();
        let common = ["-p", "tcp", "-S", &size, "-I", &iterations];
        let mut server = Command::new("fi_msg_bw");
        server.args(common).args(["-B", &port, "-s", "127.0.0.1"]);
        let mut client = Command::new("fi_msg_bw");
        client.args(common).args(["-P", &port, "127.0.0.1"]);
        let output = serve(&mut server, &mut client)?;
        fabric_rate(&String::from_utf8_lossy(&output.stdout))
    };
    Ok(Peer { name: "libfabric", note: NOTE_FABRIC, rate: Box::new(rate) })
}

/// The rate in a table of fabtests: the column under `MB/sec` in its header.
fn fabric_rate(table: &str) -> Result<f64, BenchError> {
    let mut lines = table.lines().skip_while(|line| !line.contains("MB/sec"));
    let place = lines.next().and_then(|head| {
        // By version, the header may say `total time`, two words above one column: so columns are counted from the end.
        let words: Vec<&str> = head.split_whitespace().collect();
        Some(words.len() - words.iter().position(|word| *word == "MB/sec")?)
    });
    let last = lines.filter(|line| !line.trim().is_empty()).last().unwrap_or_default();
    let found = place.and_then(|place| last.split_whitespace().rev().nth(place - 1)?.parse::<f64>().ok());
    found.map(|megabytes| megabytes / 1e3).ok_or_else(|| BenchError::wrong("fi_msg_bw tells no rate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_stands_below_its_head() {
        let table = "bytes   iters   total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                     2k      1k      2m          0.01s    390.10       5.25       0.19\n";
        assert!(fabric_rate(table).is_ok_and(|rate| (rate - 0.3901).abs() < 1e-9));
        assert!(fabric_rate("nothing").is_err());
    }
}
