//! The limits of a run, really provoked, and run control's reports of them within seconds.

use crate::cluster::Cluster;
use crate::filters::compile;
use crate::process::Program;
use crate::support::{FrontEnd, PATIENCE, Setup, Tampering};
use serde_json::Value;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Waits until run control names this limit. Returns its report.
fn wait_for_limit(url: &str, limit: &str) -> Value {
    let begun = Instant::now();
    loop {
        let told = Program::run(["ctl", "limit", "--url", url, "--json"]).expect_status(0).account();
        if told["kind"] == limit {
            return told;
        }
        assert!(begun.elapsed() < PATIENCE, "it is never {limit}, but {told:#}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Starts the run of this setup. Returns the address of its run control.
fn start(setup: &Setup) -> (Program, String) {
    let mut program = Program::start(["run", &setup.file().display().to_string(), "--control", "127.0.0.1:0"]);
    let url = program.expect_error_line("run control and dashboard: ");
    (program, url)
}

fn sentence(told: &Value) -> &str {
    told["sentence"].as_str().unwrap_or_default()
}

/// Sends as fast as it is read.
const GREEDY: &str = "id = 1\nreadout = \"ru0\"\nemulate = { fragment_size = \"1KiB\" }";

#[test]
fn a_filter_that_takes_its_time_is_named() {
    let setup = Setup::new("slow-filter", &[]).source(GREEDY);
    let library = compile(setup.directory(), &["-DSLOW=4", "-DENDS_OVER=1000000000"]);
    let streams = "[[stream]]\nname = \"odd\"\ntriggers = [0]\n[[stream]]\nname = \"even\"\ntriggers = [1]\n";
    let setup = setup.and(&format!("[filter]\nlibrary = {library:?}\n{streams}"));
    let (program, url) = start(&setup);
    let told = wait_for_limit(&url, "filter");
    assert_eq!(told["subject"], "bu0", "{told:#}");
    assert!(sentence(&told).starts_with("rate limited by the filter of builder unit bu0: "), "{told:#}");
    Program::run(["ctl", "reset", "--url", &url]).expect_status(0);
    program.interrupt();
    program.end();
}

/// The link from the readout unit to the builder unit carries 20 MB a second. The builder unit requests 64 MiB at a
/// time (half of its pool), far more than the kernel's buffers in between hold.
#[test]
fn a_link_that_is_full_is_named_with_its_readout_unit() {
    let large = "id = 1\nreadout = \"ru0\"\nemulate = { fragment_size = \"32KiB\" }";
    let setup =
        Setup::new("full-link", &[]).source(large).builder("pool = \"128MiB\"\nbytes = \"64MiB\"\nevents = 2048\n");
    let setup = setup.readout("pool = \"96MiB\"\nwindow = 4096\ncapacity = 8192\n");
    let mut cluster = Cluster::new(setup).with_relay("ru0", Tampering::Slow(20_000_000));
    cluster.start("manager", &["--control", "127.0.0.1:0"]);
    let url = cluster.node("manager").expect_error_line("run control and dashboard: ");
    cluster.start("ru0", &[]);
    cluster.start("bu0", &[]);
    let told = wait_for_limit(&url, "link");
    assert_eq!(told["subject"], "ru0", "{told:#}");
    assert!(sentence(&told).contains("the network between ru0 and builder units"), "{told:#}");
    ["bu0", "ru0", "manager"].into_iter().for_each(|name| cluster.kill(name));
}

/// One event at a time, and a slow network between the nodes.
#[test]
fn a_builder_unit_with_a_single_place_is_named() {
    let setup = Setup::new("one-place", &[]).source(GREEDY).builder("bytes = \"4MiB\"\nevents = 1\n");
    let mut cluster = Cluster::new(setup).with_relay("ru0", Tampering::Late(20));
    cluster.start("manager", &["--control", "127.0.0.1:0"]);
    let url = cluster.node("manager").expect_error_line("run control and dashboard: ");
    cluster.start("ru0", &[]);
    cluster.start("bu0", &[]);
    let told = wait_for_limit(&url, "builder_small");
    assert_eq!(told["subject"], "bu0", "{told:#}");
    ["bu0", "ru0", "manager"].into_iter().for_each(|name| cluster.kill(name));
}

/// A board sends faster than its readout unit may store: the pool is full, and so is the socket behind it.
#[test]
fn datagrams_that_a_socket_drops_are_reported_with_what_helps() {
    let setup = Setup::new("dropped", &[]).readout("pool = \"2MiB\"\nblock = \"16KiB\"\nwindow = 64\ncapacity = 256\n");
    let setup = setup
        .source("id = 1\nreadout = \"ru0\"\nlisten = \"udp://127.0.0.1:0\"\nframe = \"datagram\"\nevent = { at = 0, type = \"u32be\" }")
        .source("id = 2\nreadout = \"ru0\"\nemulate = { fragment_size = \"64B\", rate = \"100Hz\" }");
    let (mut program, url) = start(&setup);
    let address = program.expect_error_line("source-1 listens on ");
    let flood = Flood::to(address.trim_start_matches("udp://"));
    let told = wait_for_limit(&url, "datagrams_lost");
    drop(flood);
    assert_eq!(told["subject"], "source 1", "{told:#}");
    assert!(sentence(&told).ends_with(": raise net.core.rmem_max"), "{told:#}");
    Program::run(["ctl", "reset", "--url", &url]).expect_status(0);
    program.interrupt();
    program.end();
}

/// Waits until `wanted` of the two alarms is raised and the other one is not; with `None`, until neither is.
fn wait_for_alarm(url: &str, wanted: Option<&str>) {
    let begun = Instant::now();
    loop {
        let told = Program::run(["ctl", "alarms", "--url", url, "--json"]).expect_status(0).account();
        let is_active = |name: &str| {
            told.as_array().into_iter().flatten().any(|alarm| alarm["name"] == name && alarm["state"] == "active")
        };
        let raised = ["no_triggers", "data_acquisition_dead"].map(|name| is_active(name).then_some(name));
        if raised.iter().flatten().eq(wanted.iter()) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{wanted:?} is not what there is: {told:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Front ends that send nothing, a builder unit that is stalled, and one that is gone are three different alarms.
#[test]
fn no_beam_and_a_dead_data_acquisition_are_told_apart() {
    let alarms = "[[alarm]]\nname = \"no_triggers\"\nquantity = \"limited_by:no_data\"\nabove = 0\nseverity = \"notice\"\nfor = \"1s\"\n\
                  [[alarm]]\nname = \"data_acquisition_dead\"\nquantity = \"dead\"\nabove = 0\nseverity = \"critical\"\nfor = \"1s\"\n";
    let mut cluster = Cluster::new(Setup::new("no-beam", &[841, 843]).and(alarms));
    cluster.start("manager", &["--control", "127.0.0.1:0"]);
    let url = cluster.node("manager").expect_error_line("run control and dashboard: ");
    cluster.start("ru0", &[]);
    cluster.start("bu0", &[]);
    let address = cluster.front_end_address("ru0");
    let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&address, id));
    front_ends.iter_mut().for_each(|front_end| front_end.send(1..=20));
    wait_for_limit(&url, "no_data");
    wait_for_alarm(&url, Some("no_triggers"));
    cluster.node("bu0").pause();
    let senders = front_ends.map(|mut front_end| {
        // Until the readout unit is gone.
        std::thread::spawn(move || front_end.send_until_closed(21.., Duration::from_millis(20)))
    });
    wait_for_alarm(&url, Some("data_acquisition_dead"));
    cluster.node("bu0").wake();
    wait_for_alarm(&url, None);
    cluster.kill("bu0");
    assert_eq!(wait_for_limit(&url, "node_missing")["subject"], "bu0");
    ["ru0", "manager"].into_iter().for_each(|name| cluster.kill(name));
    senders.into_iter().for_each(|sender| _ = sender.join().expect("it was sent away"));
}

/// Sends numbered datagrams as fast as possible, until it is dropped.
struct Flood {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    fn to(address: &str) -> Self {
        let (is_over, address) = (Arc::new(AtomicBool::new(false)), address.to_owned());
        let is_told = Arc::clone(&is_over);
        let send = move || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
            for event in 1_u32.. {
                if is_told.load(Ordering::Relaxed) {
                    return;
                }
                let mut datagram = [0; 1000];
                datagram[..4].copy_from_slice(&event.to_be_bytes());
                // The run may no longer listen at the end.
                let _ = socket.send_to(&datagram, &address);
            }
        };
        Self { is_over, thread: Some(std::thread::spawn(send)) }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

// ---- heaps of threads

/// The C library reserves 64 MiB of addresses for each heap of threads.
const HEAP: u64 = 64 << 20;

/// The number of thread heaps of a process: reserved but unused parts of one may not be read.
fn heaps(process: u32) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("it runs");
    let unused = |line: &&str| {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let ends = range.split_once('-').map(|(begin, end)| [begin, end].map(|text| u64::from_str_radix(text, 16)));
        rights == "---p" && matches!(ends, Some([Ok(begin), Ok(end)]) if (HEAP / 2..HEAP).contains(&(end - begin)))
    };
    maps.lines().filter(unused).count()
}

#[test]
fn threads_share_a_few_heaps() {
    let setup = Setup::new("heaps", &[841]);
    let output = setup.output().display().to_string();
    let options = "demo --duration 5s --rate 1kHz --control 127.0.0.1:0 --output";
    let mut demo = Program::start(options.split(' ').chain([output.as_str()]));
    demo.expect_error_line("run 1 running");
    assert!(heaps(demo.id()) <= 2, "{} heaps", heaps(demo.id()));
    demo.interrupt();
    demo.end().expect_status(0);
}
