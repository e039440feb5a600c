//! The examples of filters, in C, in C++ and as a program, built as their reader builds them.

use crate::support::{Event, TemporaryDirectory, fragment, pool, root};
use ropewalk_flow::filter::{Fill, Fills};
use ropewalk_memory::{MemoryKind, Staging};
use ropewalk_plugin::filter::process::{FilterProcess, Offer, ProcessConfig};
use ropewalk_plugin::filter::{Decision, FilterConfig};
use ropewalk_plugin::{Filter, Library};
use ropewalk_terms::{RunNumber, TriggerBits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

/// The examples, built by CMake where there is one, and otherwise as CMake would.
struct Built(TemporaryDirectory);

impl Built {
    fn new() -> Self {
        let this = Self(TemporaryDirectory::new());
        let has_cmake = Command::new("cmake").arg("--version").output().is_ok_and(|output| output.status.success());
        if has_cmake {
            run(Command::new("cmake").arg("-S").arg(root().join("examples/plugins")).arg("-B").arg(&this.0.0));
            run(Command::new("cmake").arg("--build").arg(&this.0.0));
            return this;
        }
        let (bindings, examples) = (root().join("bindings/c"), root().join("examples/plugins"));
        let client = bindings.join("ropewalk_client.c");
        let library = ["-shared", "-fPIC"];
        let compile = |compiler: &str, flags: &[&str], name: &str, files: &[&Path]| {
            let mut command = Command::new(compiler);
            command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-I"]).arg(&bindings).args(flags);
            run(command.arg("-o").arg(this.0.0.join(name)).args(files));
        };
        compile("cc", &library, "threshold.so", &[&examples.join("threshold.c")]);
        compile("c++", &library, "coincidence.so", &[&examples.join("coincidence.cpp")]);
        compile("cc", &["-std=c99"], "program", &[&examples.join("program.c"), &client]);
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.0.join(name)
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("it can be run");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn config(library: PathBuf, configuration: &str) -> FilterConfig {
    FilterConfig { library, configuration: configuration.to_owned() }
}

fn samples(memory: &mut Staging, number: u64, samples: &[u16]) -> Event {
    let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    // Pieces of odd length: samples cross from one to the next.
    Event::new(number, [fragment(memory, 10, b"something else", 100), fragment(memory, 11, &bytes, 3)])
}

#[test]
fn the_filters_in_c_and_cpp_decide_as_they_say() {
    let built = Built::new();
    let mut memory = pool(MemoryKind::Heap, 4096, 16);
    assert_eq!(Library::open(&built.path("threshold.so")).expect("a plug-in").name(), "threshold 1.0");
    let refused = Filter::new(&config(built.path("threshold.so"), "eleven")).expect_err("that is no number");
    assert!(refused.to_string().contains("a source's id and a threshold"), "{refused}");
    let mut threshold = Filter::new(&config(built.path("threshold.so"), "11 1000")).expect("it is a filter");
    for (values, accept) in
        [(&[300_u16, 400, 300][..], true), (&[300, 400, 299], false), (&[u16::MAX], true), (&[], false)]
    {
        let sum: u64 = values.iter().map(|&value| u64::from(value)).sum();
        let event = samples(&mut memory, 1, values);
        let decision = threshold.process(&event).expect("it can be true").expect("it decides");
        let bits = if accept { TriggerBits::of(0) } else { TriggerBits::default() };
        let mut fills = Fills::default();
        fills.push(Fill { histogram: 0, value: sum as f64 });
        assert_eq!(decision, Decision { accept, bits, result: &sum.to_ne_bytes(), fills: &fills });
    }
    let refused = Filter::new(&config(built.path("coincidence.so"), "two")).expect_err("that is no number");
    assert!(refused.to_string().contains("a number of sources"), "{refused}");
    let mut coincidence = Filter::new(&config(built.path("coincidence.so"), "2 10")).expect("it is a filter");
    coincidence.begin_run(RunNumber(3));
    for (values, loud) in [(5, 2), (4, 1)] {
        let event = samples(&mut memory, 1, &vec![0; values]);
        let decision = coincidence.process(&event).expect("it can be true").expect("it decides");
        assert_eq!((decision.accept, decision.bits), (loud == 2, TriggerBits::of(loud)));
    }
    coincidence.end_run();
}

#[test]
fn the_page_shows_the_first_filter_as_it_is() {
    let [page, filter] = ["docs/filters.md", "examples/plugins/threshold.c"]
        .map(|file| std::fs::read_to_string(root().join(file)).expect("it is there"));
    assert!(page.contains(&format!("```c\n{filter}```")));
    assert!(filter.lines().count() < 40, "a first filter is short");
}

/// The program, which speaks the protocol in C, decides as its library does, and is ended as one.
#[test]
fn a_program_of_ones_own_is_a_filter() {
    let built = Built::new();
    let config = |configuration: &str| ProcessConfig {
        filter: config(PathBuf::new(), configuration),
        memory: 1 << 20,
        copies: 1 << 20,
        command: vec![built.path("program")],
    };
    let mut refused = FilterProcess::new(config("none")).expect("it can be had");
    let told = refused.try_out(LONG).expect_err("that is no number").to_string();
    assert!(told.contains("one event of so many is kept"), "{told}");
    let mut process = FilterProcess::new(config("3")).expect("it can be had");
    process.try_out(LONG).expect("it works");
    assert_eq!(process.histograms()[0].name(), "event size");
    process.begin_run(RunNumber(8));
    process.start();
    let mut shared = pool(MemoryKind::Memfd, 64 << 10, 16);
    let mut own = pool(MemoryKind::Anonymous, 64 << 10, 16);
    let events: Vec<Event> = (0..997_u64)
        .map(|number| {
            let memory = if number % 5 == 0 { &mut own } else { &mut shared };
            samples(memory, number, &vec![1; number as usize % 40])
        })
        .collect();
    // Its own rings are passed several times.
    let (all, mut offered, mut decided, mut has_ended) = (50_000_u32, 0, 0, false);
    let begun = Instant::now();
    while decided < all {
        while offered < all && process.offer(offered, &events[offered as usize % 997]) == Offer::Taken {
            offered += 1;
        }
        process.flush();
        let mut waits: Vec<_> = process.descriptors().map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)).collect();
        poll(&mut waits, Some(&Timespec { tv_sec: 20, tv_nsec: 0 })).expect("it can be waited for");
        has_ended |= process.look().has_ended;
        while let Some(decision) = process.next_decision() {
            let (ticket, decision) = decision.expect("it can be true");
            let number = u64::from(ticket) % 997;
            let bytes = 14 + 2 * (number % 40);
            let (accept, bits) = (number % 3 == 0, TriggerBits::default());
            assert_eq!(ticket, decided);
            let mut fills = Fills::default();
            fills.push(Fill { histogram: 0, value: bytes as f64 });
            assert_eq!(decision, Some(Decision { accept, bits, result: &bytes.to_ne_bytes(), fills: &fills }));
            decided += 1;
        }
        assert!(!has_ended && begun.elapsed() < LONG, "{:?}", process.journal().ends());
    }
    process.end_run();
    assert!(process.copied_bytes() > 0);
    // A program that no run has started says so.
    let alone = Command::new(built.path("program")).stdin(std::process::Stdio::null()).output().expect("it runs");
    assert!(!alone.status.success() && String::from_utf8_lossy(&alone.stderr).contains("a run"), "{alone:?}");
}
