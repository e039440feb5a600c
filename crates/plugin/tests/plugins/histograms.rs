//! Histograms of filters: declared when one is created, filled with its decisions, in a thread and in a process alike.

use crate::support::{Event, TemporaryDirectory, build, fragment, pool, process_config};
use ropewalk_flow::filter::{Fill, Fills, HistogramShape};
use ropewalk_memory::MemoryKind;
use ropewalk_plugin::Filter;
use ropewalk_plugin::filter::process::{FilterProcess, Offer};
use ropewalk_plugin::filter::{Decision, FilterConfig};
use ropewalk_terms::RunNumber;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);
const HISTOGRAMS: &str = "crates/plugin/tests/histograms.c";

/// What a decision came with.
#[derive(Clone, PartialEq, Debug)]
struct Said {
    result: Vec<u8>,
    fills: Vec<Fill>,
    dropped: u64,
}

impl From<Decision<'_>> for Said {
    fn from(decision: Decision<'_>) -> Self {
        let (result, fills) = (decision.result.to_vec(), decision.fills.values().to_vec());
        Self { result, fills, dropped: decision.fills.dropped() }
    }
}

fn shapes() -> Vec<HistogramShape> {
    [("size", 10, 0.0, 10.0), ("time", 5, -1.0, 1.0)]
        .map(|(name, bins, low, high)| HistogramShape::new(name, bins, low, high).expect("there can be one"))
        .to_vec()
}

/// What the filter fills in for an event with this first byte.
fn expected(count: u8) -> Said {
    let mut fills = Fills::default();
    (0..count).for_each(|one| fills.push(Fill { histogram: 0, value: f64::from(one) }));
    if count < 200 {
        fills.push(Fill { histogram: 1, value: 0.5 });
    } else {
        (count as u16..300).for_each(|_| fills.push(Fill { histogram: 1, value: 2.0 }));
    }
    if count == 7 {
        fills.push(Fill { histogram: 99, value: 1.0 });
    }
    Said { result: vec![b'r'], fills: fills.values().to_vec(), dropped: fills.dropped() }
}

/// Decides on events with these first bytes in a process.
fn in_a_process(process: &mut FilterProcess, counts: &[u8]) -> Vec<Option<Said>> {
    let mut memory = pool(MemoryKind::Memfd, 4096, 300);
    let events: Vec<_> = counts.iter().map(|&count| Event::new(1, [fragment(&mut memory, 1, &[count], 1)])).collect();
    let (mut offered, mut said, begun) = (0, Vec::new(), Instant::now());
    while said.len() < counts.len() {
        while offered < events.len() && process.offer(offered as u32, &events[offered]) == Offer::Taken {
            offered += 1;
        }
        process.flush();
        let mut waits: Vec<_> = process.descriptors().map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)).collect();
        poll(&mut waits, Some(&Timespec { tv_sec: 20, tv_nsec: 0 })).expect("it can be waited for");
        assert!(!process.look().has_ended && begun.elapsed() < LONG, "{:?}", process.journal().ends());
        while let Some(decision) = process.next_decision() {
            let (ticket, decision) = decision.expect("it can be true");
            assert_eq!(ticket as usize, said.len());
            said.push(decision.map(Said::from));
        }
    }
    said
}

#[test]
fn what_a_filter_fills_in_comes_with_its_decision_wherever_it_runs() {
    let directory = TemporaryDirectory::new();
    let library = build(&directory, HISTOGRAMS, &[]);
    // The ring of results is passed several times, and what a filter cannot decide on fills in nothing.
    let counts: Vec<u8> = (0..4000_u32).map(|number| [0, 1, 7, 13, 199, 200, 255][number as usize % 7]).collect();
    let expected: Vec<_> = counts.iter().map(|&count| (count != 13).then(|| expected(count))).collect();
    let config = FilterConfig { library: library.clone(), configuration: String::new() };
    let mut filter = Filter::new(&config).expect("it is a filter");
    assert_eq!(filter.histograms(), shapes());
    filter.begin_run(RunNumber(1));
    let mut memory = pool(MemoryKind::Heap, 4096, 1);
    for (&count, expected) in counts.iter().zip(&expected) {
        let event = Event::new(1, [fragment(&mut memory, 1, &[count], 1)]);
        let decision = filter.process(&event).expect("it can be true");
        assert_eq!(decision.map(Said::from), *expected, "{count}");
    }
    let mut process = FilterProcess::new(process_config(&library, "")).expect("it can be had");
    process.try_out(LONG).expect("it works");
    assert_eq!(process.histograms(), shapes(), "they are known before the run");
    process.begin_run(RunNumber(1));
    process.start();
    for (said, expected) in in_a_process(&mut process, &counts).iter().zip(&expected) {
        assert_eq!(said, expected);
    }
    assert_eq!(process.histograms(), shapes());
}

#[test]
fn a_filter_has_so_many_histograms_and_not_one_more() {
    let directory = TemporaryDirectory::new();
    let library = build(&directory, HISTOGRAMS, &[]);
    let mut process = FilterProcess::new(process_config(&library, "many")).expect("it can be had");
    process.try_out(LONG).expect("it works");
    assert_eq!(process.histograms().len(), 64);
}

#[test]
fn a_filter_that_was_built_before_there_were_histograms_still_decides() {
    let directory = TemporaryDirectory::new();
    let library = build(&directory, "crates/plugin/tests/first_version.c", &[]);
    let old = Said { result: vec![b'o'], fills: Vec::new(), dropped: 0 };
    let config = FilterConfig { library: library.clone(), configuration: String::new() };
    let mut filter = Filter::new(&config).expect("it is a filter");
    let decision = filter.process(&Event::new(1, [])).expect("it can be true").expect("it decides");
    assert!(decision.accept);
    assert_eq!(Said::from(decision), old);
    let mut process = FilterProcess::new(process_config(&library, "")).expect("it can be had");
    process.try_out(LONG).expect("it works");
    process.start();
    assert_eq!(in_a_process(&mut process, &[1, 2, 3]), vec![Some(old); 3]);
}
