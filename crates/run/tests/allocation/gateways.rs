//! The threads of a gateway allocate nothing between start and stop, however its work is divided among them, also when
//! run files are opened, closed and deleted. Emulated nodes may allocate.

use crate::alone;
use crate::counting::{ALLOCATIONS, COUNTING, FIRST_SIZES, OUTSIDE};
use ropewalk_config::parse;
use ropewalk_engine::tap::EventSelection;
use ropewalk_run::RunHandle;
use ropewalk_run::gateway::SystemPart;
use ropewalk_run::launch_part;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Every event is accepted and written. Packets are lost, duplicated and out of order; a histogram of sizes is filled.
fn configuration(output: &Path, architecture: &str, has_farm: bool) -> String {
    let text = format!(
        "version = 1\n[run]\noutput = {:?}\nsync = \"never\"\nsegment_bytes = \"1MiB\"\nkeep = \"4MiB\"\nlumisection = {{ time = \"100ms\" }}\n\
         [[flow]]\nname = \"hlt\"\npacking = 10\nsources = {{ count = 20, address = \"127.0.0.1:25000\" }}\n\
         timeout = \"20ms\"\nsets = 1024\nassembling = 512\n\
         emulate = {{ fragment_size = \"uniform(8,100)\", rate = \"10kHz\", loss = 0.001, duplicates = 0.01, reordered = 0.01 }}\n\
         [[flow]]\nname = \"l1\"\npacking = 25\nsources = {{ count = 10, address = \"127.0.0.1:26000\" }}\noutput = \"stream\"\n\
         emulate = {{ rate = \"10kHz\" }}\n\
         [[gateway]]\nname = \"gw0\"\nqueues = 2\narchitecture = {architecture:?}\n\
         listen = {{ hlt = \"127.0.0.1:0\", l1 = \"127.0.0.1:0\" }}\n\
         [[histogram]]\nname = \"sizes\"\nof = \"size\"\nfrom = 0\nto = 256\nbins = 64\n\
         [farm]\nemulate = {{ accept = 1.0, decision_time = \"exponential(500us)\" }}\n",
        output.display().to_string()
    );
    let (farm, local) = (
        "[farm]\nemulate = { accept = 1.0, decision_time = \"exponential(500us)\" }",
        "[farm]\nnodes = 0\n[filter]\ntriggers = [\"all\"]",
    );
    if has_farm { text } else { text.replace(farm, local).replace("output = \"stream\"\n", "") }
}

/// Waits until this many more events were written.
fn await_written(handle: &RunHandle, more: u64) {
    let written = || -> u64 {
        let gateways = handle.gateways().gateways;
        gateways.iter().filter_map(|(_, gateway)| gateway.storage).map(|storage| storage.events).sum()
    };
    let (end, until) = (written() + more, Instant::now() + Duration::from_secs(60));
    while written() < end {
        assert!(Instant::now() < until, "the run stands still: {:?}", handle.gateways());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn packets_are_received_built_and_sent_without_an_allocation_on_one_thread_or_two() {
    OUTSIDE.set(true);
    let _alone = alone(true);
    let both = ["run_to_completion", "threads"];
    for (architecture, has_farm) in both.map(|one| (one, true)).into_iter().chain(both.map(|one| (one, false))) {
        let output = std::env::temp_dir().join(format!("ropewalk-push-allocation-{}", std::process::id()));
        let text = configuration(&output, architecture, has_farm);
        let configuration = parse("test.toml", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
        let mut handle =
            launch_part(&configuration, &SystemPart::Whole, None).unwrap_or_else(|error| panic!("{error}"));
        // Until files were deleted as well.
        await_written(&handle, 10_000);
        ALLOCATIONS.store(0, Ordering::Relaxed);
        COUNTING.store(true, Ordering::Relaxed);
        // A client requests events, and one of its requests is never fulfilled.
        let tap = handle.tap().expect("gateways are in this process").clone();
        let huge = tap.ask(EventSelection { least_bytes: 1 << 30, ..EventSelection::default() }, 64);
        await_written(&handle, 10_000);
        let mut any = tap.ask(EventSelection::default(), 64).expect("not many have asked");
        await_written(&handle, 10_000);
        let sample = any.take().expect("there were many");
        drop(huge);
        COUNTING.store(false, Ordering::Relaxed);
        let sizes: Vec<_> = FIRST_SIZES.iter().map(|size| size.load(Ordering::Relaxed)).collect();
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0, "{architecture}, farm {has_farm}: of {sizes:?} bytes");
        assert!(!sample.fragments.is_empty(), "{sample:?}");
        handle.stop();
        while !handle.is_ended() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let summary = handle.finish(Duration::ZERO);
        assert!(summary.is_balanced() && summary.lumisections.len() > 4, "{:?}", summary.ledger);
        std::fs::remove_dir_all(&output).expect("the test's own directory");
    }
}
