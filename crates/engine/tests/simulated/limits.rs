//! What limits a run, provoked one after the other, and the sentence that says so.

use super::world::{Plan, World};
use ropewalk_engine::{
    FilterLink, FilterSight, Filtering, NotBelieved, Offered, RESULT_BYTES, Said, UnitDecision, observe,
};
use ropewalk_flow::builder::EventView;
use ropewalk_flow::filter::{Decision, FarmConfig, Streams};
use ropewalk_flow::supervision::SupervisorConfig;
use ropewalk_io::disk::DiskFaults;
use ropewalk_io::simulated::Faults;
use ropewalk_memory::Staging;
use ropewalk_monitor::bottleneck::{Finder, Finding, Limit};
use ropewalk_terms::{Counter, Instant, Measure, RunNumber, TriggerBits, Utc};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Far more events than any of these runs takes.
const EVENTS: u64 = 1 << 20;
/// A look as often as whoever serves the run takes one.
const LOOK: Duration = Duration::from_millis(500);

/// What a finder says of a run after some seconds of it.
fn found(plan: Plan, prepare: impl FnOnce(&mut World)) -> Finding {
    let mut world = World::new(Plan { events: EVENTS, ..plan });
    world.front_ends.iter_mut().for_each(|front_end| front_end.pace = Duration::from_micros(300));
    prepare(&mut world);
    let mut finder = Finder::default();
    for _ in 0..24 {
        world.run_for(LOOK);
        let now = world.now();
        finder.observe(observe(world.manager.node.standing(), now, Utc(0), None));
    }
    finder.finding().expect("it was looked at often enough").clone()
}

/// One readout unit of two sources and one builder unit, so that there is no doubt who waits for whom.
fn plain() -> Plan {
    Plan { readouts: 1, builders: 1, ..Plan::new(7) }
}

#[test]
fn a_run_that_takes_what_its_sources_send_is_not_limited() {
    let finding = found(plain(), |world| {
        world.front_ends.iter_mut().for_each(|front_end| front_end.pace = Duration::from_millis(20));
    });
    assert_eq!(finding.limit, Limit::Sources, "{finding:?}");
    assert!(finding.sentence.starts_with("not limited: sources send "), "{finding:?}");
}

#[test]
fn a_slow_disk_is_named_with_its_builder_unit() {
    let disk = DiskFaults { bandwidth: Some(50 << 10), ..DiskFaults::default() };
    let finding = found(Plan { disk, ..plain() }, |_| ());
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::Disk, "bu0"), "{finding:?}");
    assert!(finding.sentence.starts_with("rate limited by builder unit bu0: disk writing "), "{finding:?}");
    let share = finding.evidence[0].value;
    assert!(share > 0.9, "{finding:?}");
}

#[test]
fn a_network_that_is_full_is_named_with_its_readout_unit() {
    // The builder unit's connection carries what two sources send over one each.
    let network = Faults { bandwidth: Some(500 << 10), window: 8 << 10, ..Faults::default() };
    let finding = found(Plan { network, ..plain() }, |_| ());
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::Link, "ru0"), "{finding:?}");
}

#[test]
fn a_source_that_is_slower_than_the_others_is_named() {
    let finding = found(plain(), |world| world.front_ends[1].pace = Duration::from_millis(20));
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::SourceSlow, "source 101"), "{finding:?}");
}

#[test]
fn a_builder_unit_with_too_few_places_is_named() {
    let far = Duration::from_millis(10);
    let network = Faults { least_latency: far, most_latency: far, ..Faults::default() };
    let finding = found(Plan { network, slots: 1, ..plain() }, |_| ());
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::BuilderSmall, "bu0"), "{finding:?}");
}

#[test]
fn a_slow_filter_is_named_with_its_builder_unit() {
    let finding = found(Plan { slow_filter: Some(Duration::from_millis(5)), ..plain() }, |_| ());
    assert_eq!((finding.limit, finding.subject.as_str()), (Limit::Filter, "bu0"), "{finding:?}");
}

#[test]
fn each_event_and_each_batch_is_measured_once() {
    let disk = DiskFaults { least_latency: Duration::from_millis(2), ..DiskFaults::default() };
    let disk = DiskFaults { most_latency: disk.least_latency, ..disk };
    let slow_filter = Some(Duration::from_millis(5));
    let mut world = World::new(Plan { disk, slow_filter, builders: 2, ..plain() });
    world.run_to_end();
    world.expect_lossless();
    let now = world.now();
    let sample = observe(world.manager.node.standing(), now, Utc(0), None);
    let of = |measure| sample.distribution(measure);
    let (sizes, latencies, filter) = (of(Measure::EventSize), of(Measure::BuildLatency), of(Measure::FilterTime));
    assert_eq!([sizes.count(), latencies.count(), filter.count()], [world.plan.events; 3]);
    let bytes: u64 = sample.sources.iter().map(|source| source.numbers.get(Counter::PayloadBytesReceived)).sum();
    assert_eq!(sizes.sum, bytes, "every byte is in an event");
    assert!(filter.quantile(0.0) >= Some(5_000_000), "{filter:?}");
    let written = of(Measure::DiskWriteTime);
    assert!(written.count() > 0 && written.quantile(0.0) >= Some(2_000_000), "{written:?}");
}

/// A filter unit that takes so long for each event.
#[derive(Debug)]
struct SlowUnit {
    time: Duration,
    is_ready: bool,
    now: Instant,
    /// Events, and when each is decided.
    work: VecDeque<(u32, Instant)>,
    given: u64,
}

/// A filter unit of such a kind decides on the events of a builder unit with so many slots.
pub(crate) fn slow_filter(time: Duration, slots: u32, results: Staging) -> Filtering {
    let unit = SlowUnit { time, is_ready: false, now: Instant::ZERO, work: VecDeque::new(), given: 0 };
    let supervision = SupervisorConfig {
        timeout: Duration::from_secs(60),
        start_timeout: Duration::from_secs(60),
        restart_delay: Duration::from_secs(1),
        restarts: 1,
    };
    assert!(results.largest() >= RESULT_BYTES, "what it says has to fit");
    Filtering::units(FarmConfig { units: 1, slots, supervision }, vec![Box::new(unit)], Streams::everything(), results)
}

impl SlowUnit {
    fn decided(&self) -> usize {
        self.work.iter().take_while(|&&(_, due)| due <= self.now).count()
    }
}

impl FilterLink for SlowUnit {
    fn start(&mut self) {
        self.is_ready = true;
    }

    fn kill(&mut self) {}

    fn begin(&mut self, _: RunNumber) {}

    fn end(&mut self) {}

    fn look(&mut self, now: Instant) -> FilterSight {
        self.now = now;
        let taken = self.given - self.work.len() as u64;
        FilterSight {
            is_ready: std::mem::take(&mut self.is_ready),
            has_ended: false,
            granted: taken + 4,
            decided: taken + self.decided() as u64,
        }
    }

    fn offer(&mut self, slot: u32, _: &EventView<'_>) -> Offered {
        let begins = self.work.back().map_or(self.now, |&(_, due)| due.max(self.now));
        self.work.push_back((slot, begins.after(self.time)));
        self.given += 1;
        Offered::Taken
    }

    fn flush(&mut self) {}

    fn next_decision(&mut self, said: &mut Said) -> Option<Result<UnitDecision, NotBelieved>> {
        let (slot, _) = self.work.pop_front_if(|(_, due)| *due <= self.now)?;
        said.clear();
        Some(Ok(UnitDecision { slot, decision: Some(Decision { accept: true, triggers: TriggerBits::default() }) }))
    }

    fn copied_bytes(&self) -> u64 {
        0
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.work.front().map(|&(_, due)| due)
    }

    fn descriptors<'a>(&'a self, _: &mut Vec<BorrowedFd<'a>>) {}
}
