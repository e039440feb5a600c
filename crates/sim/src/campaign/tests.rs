//! Systems that tests look into while they run: what limits them, what strangers cost, and when fragments move.

use super::cluster::{Cluster, Seeded};
use super::content::Format;
use super::fault::{Fault, FaultKind, Place, Scheduled};
use super::filters::{Board, Filters};
use super::machines::pool;
use super::recorder::Recorder;
use super::scenario::{End, Rooms, Scenario};
use super::world::World;
use ropewalk_engine::observe;
use ropewalk_io::disk::DiskFaults;
use ropewalk_io::simulated::{Faults, Simulated, SimulatedConfig};
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::Staging;
use ropewalk_monitor::Sample;
use ropewalk_monitor::bottleneck::{Finder, Finding, Limit};
use ropewalk_terms::{Cause, Counter, Instant, Measure, NodeId, Utc};
use std::time::Duration;

const fn milliseconds(number: u64) -> Duration {
    Duration::from_millis(number)
}

impl World {
    fn run_for(&mut self, time: Duration) {
        let end = self.core.now().after(time);
        while self.core.now() < end {
            assert_eq!(self.step(), Ok(()));
        }
    }

    /// Nothing is lost without a cause.
    fn run_to_end(&mut self) {
        assert_eq!(self.go_on().and_then(|()| self.judge()), Ok(()));
    }

    fn sample(&mut self) -> Sample {
        let now = self.core.now();
        let manager = self.managers[0].machine.as_mut().expect("no fault strikes it");
        observe(manager.drive_mut().standing(), now, Utc(0), None)
    }

    fn counter(&mut self, counter: Counter) -> u64 {
        self.snapshot().counter(counter)
    }
}

fn world(scenario: Scenario) -> World {
    scenario.world(Recorder::default())
}

/// One readout unit of two sources and one builder unit, so that there is no doubt who waits for whom.
fn plain() -> Scenario {
    let pace = Duration::from_micros(300);
    Scenario { readouts: 1, builders: 1, sources: vec![Format::Ferol; 2], pace, ..Scenario::quiet(7) }
}

/// A fault that goes on for a minute.
fn lasting(kind: FaultKind, source: u16, number: i64) -> Scheduled {
    let fault = Fault::at(kind, Place::Source(source)).with_number(number);
    Scheduled { at: Duration::ZERO, lasts: Duration::from_secs(60), fault }
}

/// What a finder says of a run after some seconds of it, looking as often as in a program. The run has far more events than it takes.
fn found(scenario: Scenario) -> Finding {
    let (mut world, mut finder) = (world(Scenario { events: 100_000, ..scenario }), Finder::default());
    for _ in 0..24 {
        world.run_for(milliseconds(500));
        finder.observe(world.sample());
    }
    finder.finding().expect("it was looked at often enough").clone()
}

fn expect_limit(scenario: Scenario, limit: Limit, subject: &str) {
    let finding = found(scenario);
    assert_eq!((finding.limit, finding.subject.as_str()), (limit, subject), "{finding:?}");
}

#[test]
fn a_run_that_takes_what_its_sources_send_is_not_limited() {
    let finding = found(Scenario { pace: milliseconds(20), ..plain() });
    assert_eq!(finding.limit, Limit::Sources, "{finding:?}");
    assert!(finding.sentence.starts_with("not limited: sources send "), "{finding:?}");
}

#[test]
fn a_slow_disk_is_named_with_its_builder_unit() {
    let disk = DiskFaults { bandwidth: Some(50 << 10), ..DiskFaults::default() };
    let finding = found(Scenario { disk, ..plain() });
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::Disk, "bu0"), "{finding:?}");
    assert!(finding.sentence.starts_with("rate limited by builder unit bu0: disk writing "), "{finding:?}");
    assert!(finding.evidence[0].value > 0.9, "{finding:?}");
}

#[test]
fn a_network_that_is_full_is_named_with_its_readout_unit() {
    // The builder unit's connection carries what two sources send over one each.
    let network = Faults { bandwidth: Some(500 << 10), window: 8 << 10, ..Faults::default() };
    expect_limit(Scenario { network, ..plain() }, Limit::Link, "ru0");
}

#[test]
fn a_source_that_is_slower_than_the_others_is_named() {
    let faults = vec![lasting(FaultKind::Slow, 1, 0)];
    expect_limit(Scenario { pace: Duration::from_micros(20), faults, ..plain() }, Limit::SourceSlow, "source 101");
}

#[test]
fn a_builder_unit_with_too_few_places_is_named() {
    let far = milliseconds(10);
    let network = Faults { least_latency: far, most_latency: far, ..Faults::default() };
    let rooms = Rooms { slots: 1, ..plain().rooms };
    expect_limit(Scenario { network, rooms, ..plain() }, Limit::BuilderSmall, "bu0");
}

#[test]
fn a_slow_filter_is_named_with_its_builder_unit() {
    expect_limit(Scenario { filters: Some(Filters::slow(milliseconds(5))), ..plain() }, Limit::Filter, "bu0");
}

#[test]
fn each_event_and_each_batch_is_measured_once() {
    let latency = milliseconds(2);
    let disk = DiskFaults { least_latency: latency, most_latency: latency, ..DiskFaults::default() };
    let filters = Some(Filters::slow(milliseconds(5)));
    let mut world = world(Scenario { disk, filters, builders: 2, ..plain() });
    world.run_to_end();
    let (sample, events) = (world.sample(), world.scenario.events);
    let of = |measure| sample.distribution(measure);
    let (sizes, latencies, filter) = (of(Measure::EventSize), of(Measure::BuildLatency), of(Measure::FilterTime));
    assert_eq!([sizes.count(), latencies.count(), filter.count()], [events; 3]);
    let bytes: u64 = sample.sources.iter().map(|source| source.numbers.get(Counter::PayloadBytesReceived)).sum();
    assert_eq!(sizes.sum, bytes, "every byte is in an event");
    assert!(filter.quantile(0.0) >= Some(5_000_000), "{filter:?}");
    let written = of(Measure::DiskWriteTime);
    assert!(written.count() > 0 && written.quantile(0.0) >= Some(2_000_000), "{written:?}");
}

/// As long as a run goes on its disks may be mended. While it drains the end comes first, and the account names what disks never took.
#[test]
fn a_disk_that_fails_for_good_is_given_up_while_the_run_drains() {
    let dead = DiskFaults { write_error: 1.0, ..DiskFaults::default() };
    let full = DiskFaults { capacity: 0, ..DiskFaults::default() };
    for (faults, error) in [(dead, Some(5)), (full, None)] {
        let mut world = world(Scenario { end: End::Stop(milliseconds(4000)), ..Scenario::quiet(3) });
        world.run_for(milliseconds(2));
        world.storages.iter().for_each(|storage| storage.set_faults(faults.clone()));
        world.run_for(milliseconds(3000));
        let snapshot = world.snapshot();
        let failing: Vec<(NodeId, i32)> = (0..2).filter_map(|index| Some((NodeId::builder(index), error?))).collect();
        assert_eq!(snapshot.failing_disks, failing);
        assert_eq!((snapshot.counter(Counter::DiskFull) > 0, snapshot.phase.is_running()), (error.is_none(), true));
        assert_eq!(snapshot.ledger.events.incomplete_emitted, 0, "back-pressure is not absence");
        assert_eq!(world.go_on(), Ok(()));
        let (events, held) = (world.snapshot().ledger.events, world.read_files().expect("whole files"));
        let lost = events.incomplete_dropped.get(Cause::WriteFailed);
        assert!(lost > 0 && lost == events.incomplete_dropped.total(), "{events:?}");
        assert_eq!(held.events.len() as u64, events.built);
    }
}

/// Every event is in a file; only the files' last names cannot be given to them. `recover` does that later.
#[test]
fn files_that_cannot_be_closed_stay_open_and_the_run_ends() {
    let mut world = world(Scenario::quiet(4));
    while world.snapshot().ledger.events.built < world.scenario.events - 1 {
        assert_eq!(world.step(), Ok(()));
    }
    let faults = DiskFaults { name_error: 1.0, ..DiskFaults::default() };
    world.storages.iter().for_each(|storage| storage.set_faults(faults.clone()));
    assert_eq!(world.go_on(), Ok(()));
    let (snapshot, events) = (world.snapshot(), world.scenario.events);
    assert_eq!((snapshot.ledger.events.built, snapshot.failing_disks.len()), (events, 2));
    assert_eq!(world.read_files().expect("whole files").events.len() as u64, events);
}

/// A source waits for a slow one, and sends each fragment twice, so that half of each of its blocks holds nothing that is kept.
#[test]
fn fragments_that_pin_a_block_each_move_so_that_their_source_goes_on() {
    let faults = vec![lasting(FaultKind::SendTwice, 0, 1000), lasting(FaultKind::Slow, 1, 0)];
    for seed in 0..6 {
        let rooms = Rooms { blocks_each: 3, ..plain().rooms };
        let pace = Duration::from_micros(20);
        let mut world = world(Scenario { seed, rooms, pace, faults: faults.clone(), ..plain() });
        world.run_to_end();
        let (moved, fragments) = (world.counter(Counter::BytesCopied), world.snapshot().ledger.fragments);
        let received = world.counter(Counter::PayloadBytesReceived);
        assert!((1..=received).contains(&moved), "each moves once at most: {moved} of {received} bytes");
        assert_eq!((fragments.in_complete_events, fragments.lost()), (2 * world.scenario.events, fragments.duplicate));
    }
}

#[test]
fn nothing_moves_as_long_as_blocks_come_home() {
    let mut world = world(Scenario::quiet(1));
    world.run_to_end();
    assert_eq!((world.counter(Counter::BytesCopied), world.snapshot().ledger.fragments.lost()), (0, 0));
}

/// A client that connects to the port of the front ends and says this.
struct Client {
    endpoints: Simulated,
    endpoint: Endpoint,
    says: &'static [u8],
    staging: Staging,
    is_open: bool,
}

impl Client {
    fn new(world: &World, says: &'static [u8]) -> Self {
        let mut endpoints = world.network.dispatcher(SimulatedConfig::default(), pool("client receives", 256, 2));
        let endpoint = endpoints.connect("ru0 front ends").expect("a name is an address");
        Self { endpoints, endpoint, says, staging: Staging::new(pool("client", 256, 2)), is_open: false }
    }

    fn turn(&mut self, now: Instant) {
        let mut events = Vec::new();
        self.endpoints.poll(now, &mut events);
        for event in events {
            self.is_open = matches!(event, Event::Established { .. });
            if self.is_open && !self.says.is_empty() {
                let mut said = vec![self.staging.write(self.says).expect("it is short")];
                self.endpoints.send(self.endpoint, &mut said).expect("the queue is empty");
            }
        }
        // What is queued leaves with the next poll.
        self.endpoints.poll(now, &mut Vec::new());
    }
}

/// Which clients are still connected this long after the begin.
fn still_open(world: &mut World, clients: &mut [Client], after: Duration) -> Vec<bool> {
    while world.core.now() < Instant::ZERO.after(after) {
        clients.iter_mut().for_each(|client| client.turn(world.core.now()));
        assert_eq!(world.step(), Ok(()));
    }
    clients.iter().map(|client| client.is_open).collect()
}

#[test]
fn clients_that_say_too_little_or_nothing_are_turned_away_after_a_while() {
    let mut world = world(Scenario { pace: milliseconds(100), ..Scenario::quiet(1) });
    // Half a hello, the first bytes of a block, nothing, and what is neither.
    let said: [&[u8]; 4] = [b"RWHI\x01\0\0\0", b"GZ\0", b"", b"GET / HTTP/1.0"];
    let mut clients = said.map(|says| Client::new(&world, says));
    let mut open = |seconds| still_open(&mut world, &mut clients, Duration::from_secs(seconds));
    assert_eq!(open(4), [true, true, true, false], "what is neither format shows at once");
    assert_eq!(open(6), [false, false, true, false]);
    assert_eq!(open(9), [false, false, true, false], "it may wait for its first trigger");
    assert_eq!(open(13), [false; 4], "but every source is there");
    world.run_to_end();
    assert_eq!(world.counter(Counter::ConnectionsRefused), 4);
    assert_eq!(world.counter(Counter::GarbageBytes), 8 + 3 + 14);
    assert_eq!(world.snapshot().ledger.fragments.lost(), 0);
}

/// More clients than there are blocks: the readout unit looks at unknown ones where they wait, and lets in a few at a time.
#[test]
fn strangers_take_no_memory_from_sources_and_few_connections() {
    let mut world = world(Scenario { pace: milliseconds(50), ..Scenario::quiet(1) });
    let mut clients: Vec<Client> = (0..100).map(|_| Client::new(&world, b"RWHI\x01\0\0\0")).collect();
    still_open(&mut world, &mut clients, Duration::from_secs(4));
    let refused = world.counter(Counter::ConnectionsRefused);
    assert!((84..100).contains(&refused), "few are let in at a time, and these may take a while: {refused}");
    still_open(&mut world, &mut clients, Duration::from_secs(6));
    world.run_to_end();
    assert_eq!((world.counter(Counter::ConnectionsRefused), world.snapshot().ledger.fragments.lost()), (100, 0));
}

#[test]
fn event_files_are_drawn_and_hold_every_event() {
    let drawn = (0..400).map(Scenario::draw).filter(|scenario| scenario.event_files.is_some()).count();
    assert!((20..100).contains(&drawn), "{drawn} of 400 seeds write event files");
    let mut quiet = Scenario { sources: vec![Format::Ferol; 4], ..Scenario::quiet(5) };
    while quiet.event_files.is_none() {
        quiet.seed += 1;
        quiet.draw_event_files();
    }
    let mut world = world(quiet);
    world.run_to_end();
    let held = world.read_files().expect("whole files");
    assert_eq!(held.events.len() as u64, world.scenario.events);
    assert_eq!(held.whole().len() as u64, 4 * world.scenario.events);
    let documents = |end: &str| {
        let paths = world.storages.iter().flat_map(|storage| storage.paths());
        paths.filter(|path| path.to_string_lossy().ends_with(end)).count()
    };
    assert_eq!(documents("EoR.jsn") + documents("EoR_BU.jsn"), world.storages.len());
}

#[test]
fn filter_nodes_are_drawn_and_decide_on_events() {
    let is_remote = |scenario: &Scenario| scenario.filters.as_ref().is_some_and(|filters| filters.is_remote);
    let drawn: Vec<Scenario> = (0..400).map(Scenario::draw).filter(is_remote).collect();
    assert!((15..80).contains(&drawn.len()), "{} of 400 seeds have filter nodes", drawn.len());
    let mut lost = 0;
    for scenario in drawn.into_iter().take(15) {
        let mut world = world(scenario);
        world.run_to_end();
        assert!(world.boards.iter().any(|board| board.decided() > 0), "seed {}", world.scenario.seed);
        lost += world.boards.iter().map(Board::lost_connections).sum::<u64>();
    }
    assert!(lost > 0, "no connection to a node was lost");
}
