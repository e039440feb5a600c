//! Data threads allocate nothing between start and stop, also when connections are closed and opened, and when run
//! files are opened, closed and deleted. The same holds for the threads of a link card and of its emulator.

use crate::alone;
use crate::counting::{ALLOCATIONS, COUNTING, FIRST_SIZES, OUTSIDE};
use ropewalk_config::parse;
use ropewalk_engine::tap::EventSelection;
use ropewalk_flow::control::RunPhase;
use ropewalk_run::{RunHandle, RunSummary, launch};
use ropewalk_terms::{Counter, EventKey, SourceId};
use ropewalk_wire::{fed, ferol};
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const SOURCES: u32 = 4;

/// Sends the events `from..=to` of one source as fast as they are accepted. They are larger than a FEROL block, so that
/// fragments have several pieces, and are chains where a block of memory ends.
fn send(stream: &mut TcpStream, id: u32, from: u64, to: u64) {
    let payload = [id as u8; 8 * 700];
    let (mut fragment, mut bytes) = (Vec::new(), Vec::new());
    for event in from..=to {
        fragment.clear();
        bytes.clear();
        let header = fed::Header::new(SourceId(id), event as u32, (event % 3564) as u16);
        fed::encode(header, &payload, fed::Trailer::new(), &mut fragment).expect("a fragment of allowed length");
        ferol::encode_fragment(&fragment, SourceId(id), event as u32, &mut bytes);
        stream.write_all(&bytes).expect("the readout unit takes it");
    }
}

/// Returns the configuration of a run without its sources.
fn units(output: &std::path::Path) -> String {
    format!(
        "version = 1\n[run]\noutput = {:?}\nsync = \"never\"\nsegment_bytes = \"8MiB\"\nkeep = \"16MiB\"\n\
         [[readout]]\nname = \"ru0\"\npool = \"64MiB\"\nblock = \"64KiB\"\n[[builder]]\nname = \"bu0\"\n",
        output.display().to_string()
    )
}

fn configuration(output: &std::path::Path) -> String {
    let mut text = units(output);
    for id in 0..SOURCES {
        text += &format!("[[source]]\nid = {id}\nreadout = \"ru0\"\nmax_fragment = \"64KiB\"\n");
    }
    text
}

/// Number of rounds. In every round each source connects, sends, reconnects and sends again.
const ROUNDS: u64 = 5;
const EVENTS_OF_ROUND: u64 = 3000;

fn send_rounds(id: u32, address: &str, round_begins: &Barrier) {
    OUTSIDE.set(true);
    let connect = || TcpStream::connect(address).expect("the readout unit listens");
    let mut stream = connect();
    // This thread has started, which allocates.
    round_begins.wait();
    for round in 0..ROUNDS {
        round_begins.wait();
        let before = round * EVENTS_OF_ROUND;
        send(&mut stream, id, before + 1, before + EVENTS_OF_ROUND / 2);
        stream = connect();
        send(&mut stream, id, before + EVENTS_OF_ROUND / 2 + 1, before + EVENTS_OF_ROUND);
    }
}

/// Runs every round after the previous one has ended completely. Returns the number of allocations by data threads in
/// each round but the first, in which threads still start and builder units join the run.
fn count_rounds(handle: &RunHandle, round_begins: &Barrier) -> Vec<u64> {
    round_begins.wait();
    let tap = handle.tap().expect("builder units are in this process");
    let count = |round| {
        // The client provides the memory for the copy.
        let mut asked = tap.ask(EventSelection::default(), 1 << 10).expect("no other client asks");
        ALLOCATIONS.store(0, Ordering::Relaxed);
        COUNTING.store(true, Ordering::Relaxed);
        round_begins.wait();
        let until = Instant::now() + Duration::from_secs(20);
        while handle.snapshot().counter(Counter::EventsWritten) < (round + 1) * EVENTS_OF_ROUND
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        COUNTING.store(false, Ordering::Relaxed);
        assert!(asked.take().is_some_and(|event| event.fragments.len() == SOURCES as usize));
        ALLOCATIONS.load(Ordering::Relaxed)
    };
    (0..ROUNDS).map(count).skip(1).collect()
}

/// Stops the run. Returns its account.
fn stopped(mut handle: RunHandle, output: &Path) -> RunSummary {
    handle.stop();
    let until = Instant::now() + Duration::from_secs(20);
    while !handle.is_ended() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let summary = handle.finish(Duration::from_secs(5));
    std::fs::remove_dir_all(output).expect("the test's own directory");
    summary
}

/// Waits until the units have connected, and the run has begun.
fn await_start(handle: &RunHandle) {
    let until = Instant::now() + Duration::from_secs(20);
    while handle.snapshot().phase != RunPhase::Running && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the number of allocations by data threads while `events` more were written.
fn count_until(handle: &RunHandle, events: u64) -> u64 {
    let written = || handle.snapshot().counter(Counter::EventsWritten);
    let (end, until) = (written() + events, Instant::now() + Duration::from_secs(20));
    ALLOCATIONS.store(0, Ordering::Relaxed);
    COUNTING.store(true, Ordering::Relaxed);
    while written() < end && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    COUNTING.store(false, Ordering::Relaxed);
    assert!(written() >= end, "the run stands still");
    ALLOCATIONS.load(Ordering::Relaxed)
}

#[test]
fn a_card_is_written_and_read_and_built_without_an_allocation() {
    OUTSIDE.set(true);
    let _alone = alone(false);
    let output = std::env::temp_dir().join(format!("ropewalk-allocation-card-{}", std::process::id()));
    let mut text = units(&output);
    // Chunks of several pieces, with every fault that causes additional work in a card's reader.
    text += "[[felix]]\nname = \"card\"\nmemory = \"4MiB\"\n[felix.emulate]\nchunk_size = \"uniform(16,6000)\"\n\
             rate = \"10kHz\"\nfaults = { crc = 0.01, no_last = 0.001, lost_block = 0.001, padding = 0.001 }\n";
    for id in 0..SOURCES {
        text += &format!("[[source]]\nid = {id}\nreadout = \"ru0\"\nmax_fragment = \"64KiB\"\n");
        text += &format!("felix = {{ card = \"card\", elink = {id} }}\n");
    }
    let configuration = parse("allocation", &text, &|_| None).expect("a good configuration");
    let mut handle = launch(&configuration, None).expect("a run with a card");
    handle.start(EventKey::new(0, 1), None);
    await_start(&handle);
    // The first events fill the initial state.
    count_until(&handle, 2000);
    let counts = [(); 3].map(|()| count_until(&handle, 3000));
    let summary = stopped(handle, &output);
    assert!(summary.is_balanced() && summary.cards.chunks > 40_000, "{:?}", summary.cards);
    let sizes: Vec<usize> = FIRST_SIZES.iter().map(|size| size.load(Ordering::Relaxed)).collect();
    assert_eq!(counts, [0; 3], "data threads asked for memory; sizes: {sizes:?}");
}

#[test]
fn data_threads_allocate_nothing_while_data_flow() {
    OUTSIDE.set(true);
    let _alone = alone(false);
    let output = std::env::temp_dir().join(format!("ropewalk-allocation-{}", std::process::id()));
    let configuration = parse("allocation", &configuration(&output), &|_| None).expect("a good configuration");
    let mut handle = launch(&configuration, None).expect("a run on loopback");
    let address = handle.addresses()[0].1.clone();
    handle.start(EventKey::new(0, 1), None);
    await_start(&handle);
    let round_begins = Barrier::new(SOURCES as usize + 1);
    let counts = std::thread::scope(|scope| {
        for id in 0..SOURCES {
            let (address, round_begins) = (&address, &round_begins);
            scope.spawn(move || send_rounds(id, address, round_begins));
        }
        count_rounds(&handle, &round_begins)
    });
    let summary = stopped(handle, &output);
    assert_eq!(summary.events.written, ROUNDS * EVENTS_OF_ROUND);
    assert!(summary.is_balanced() && summary.is_lossless());
    let sizes: Vec<usize> = FIRST_SIZES.iter().map(|size| size.load(Ordering::Relaxed)).collect();
    assert_eq!(counts, [0; ROUNDS as usize - 1], "data threads asked for memory; sizes: {sizes:?}");
}
