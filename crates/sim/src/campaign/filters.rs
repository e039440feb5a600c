//! Filter units behind builder units. Their processes crash, hang, lie and cannot decide at the events that the seed names, once in each unit,
//! and die at times of their own. What a filter decides follows from the event's number.

use super::content::mixed;
use super::machines::pool;
use ropewalk_engine::{FilterLink, FilterSight, FilterStage, NotBelieved, Offered, RESULT_BYTES, Said, UnitDecision};
use ropewalk_flow::builder::EventView;
use ropewalk_flow::filter::{Decision, FarmConfig, StreamConfig, Streams};
use ropewalk_flow::source::Random;
use ropewalk_flow::supervision::SupervisorConfig;
use ropewalk_memory::Staging;
use ropewalk_terms::{Instant, RunNumber, TriggerBits};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How long it takes until a process that was killed has ended; it works on meanwhile.
const DYING: Duration = Duration::from_millis(3);
/// Room, in events; credit does not change it.
const ROOM: usize = 15;

/// What a filter unit does wrong at an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Mishap {
    Crash,
    Hang,
    /// It says what cannot be true.
    Lie,
    /// It says that it cannot decide.
    Undecided,
}

/// The filter units of each builder unit.
#[derive(Clone, PartialEq, Debug)]
pub struct Filters {
    seed: u64,
    units: u16,
    /// How many events each takes at once.
    credit: u64,
    /// How long each takes over an event.
    each: Duration,
    /// How long each takes until it is ready.
    start: Duration,
    /// How many processes of each are started again within a minute.
    restarts: u32,
    mishaps: BTreeMap<u64, Mishap>,
    /// Times at which the process of a filter unit dies.
    deaths: Vec<(Duration, u16)>,
}

impl Filters {
    /// Those of a seed, for runs of so many events. In every fourth seed nothing goes wrong.
    pub(super) fn draw(seed: u64, events: u64) -> Self {
        let mut draw = Random::new(seed, 60);
        let is_quiet = seed.is_multiple_of(4);
        let units = draw.between(1, 4) as u16;
        let wrong = if is_quiet { 0 } else { draw.below(8) };
        let kinds = [Mishap::Crash, Mishap::Hang, Mishap::Lie, Mishap::Undecided];
        let mishaps = (0..wrong).map(|_| (draw.between(1, events), draw.of(&kinds))).collect();
        let deaths = if is_quiet || !draw.one_in(3) { 0 } else { draw.between(1, 4) };
        let death = |_| (Duration::from_millis(draw.below(2000)), draw.below(units.into()) as u16);
        let deaths = (0..deaths).map(death).collect();
        Self {
            seed,
            units,
            credit: draw.of(&[1, 3, 20]),
            each: draw.time(Duration::from_micros(20), Duration::from_millis(20)),
            start: draw.time(Duration::from_millis(1), Duration::from_millis(600)),
            restarts: if !is_quiet && draw.one_in(5) { draw.between(1, 4) as u32 } else { 1000 },
            mishaps,
            deaths,
        }
    }

    /// One for each builder unit, which takes so long for an event and does nothing wrong.
    #[cfg(test)]
    pub(super) fn slow(each: Duration) -> Self {
        let (mishaps, deaths) = (BTreeMap::new(), Vec::new());
        Self { seed: 0, units: 1, credit: 4, each, start: Duration::ZERO, restarts: 1, mishaps, deaths }
    }

    /// Whether a filter rejects an event on which it decides.
    pub(super) fn rejects(&self, event: u64) -> bool {
        mixed(self.seed, event, 7).is_multiple_of(3)
    }

    /// Those of a life of a builder unit with so many slots.
    pub(super) fn filter(&self, slots: u32) -> FilterStage {
        let supervision = SupervisorConfig {
            timeout: Duration::from_millis(500),
            start_timeout: Duration::from_secs(2),
            restart_delay: Duration::from_millis(50),
            restarts: self.restarts,
        };
        let results = Staging::new(pool("results", RESULT_BYTES, slots as usize + 1));
        let farm = FarmConfig { units: self.units, slots, supervision };
        let unit = |index| Box::new(FilterUnit::new(self, index)) as Box<dyn FilterLink>;
        FilterStage::units(farm, (0..self.units).map(unit).collect(), streams(), results)
    }
}

/// One stream for accepted events, and the error stream for events that no filter unit could decide.
pub(super) fn streams() -> Streams {
    Streams::new(vec![StreamConfig::everything()], true).expect("they make sense")
}

/// A process of a filter unit.
#[derive(Default)]
struct Process {
    ready_at: Instant,
    is_ready: bool,
    /// When it has decided on the first event that it has.
    due: Instant,
    hangs: bool,
    ends_at: Option<Instant>,
    decided: u64,
}

struct FilterUnit {
    filters: Filters,
    deaths: Vec<Instant>,
    now: Instant,
    process: Option<Process>,
    has: VecDeque<(u32, u64)>,
    /// Slots and events of decisions that were not taken.
    said: VecDeque<(u32, u64)>,
    /// Events at which something went wrong already.
    struck: BTreeSet<u64>,
}

impl FilterUnit {
    fn new(filters: &Filters, index: u16) -> Self {
        let own = filters.deaths.iter().filter(|(_, unit)| *unit == index);
        let mut deaths: Vec<Instant> = own.map(|(death, _)| Instant::ZERO.after(*death)).collect();
        deaths.sort_by(|one, other| other.cmp(one));
        Self {
            filters: filters.clone(),
            deaths,
            now: Instant::ZERO,
            process: None,
            has: VecDeque::new(),
            said: VecDeque::new(),
            struck: BTreeSet::new(),
        }
    }

    /// Works until `now`.
    fn work(&mut self, now: Instant) {
        let Self { filters, process, has, said, struck, .. } = self;
        while let (Some(process), Some(&(slot, event))) = (process.as_mut(), has.front()) {
            let is_over = process.ends_at.is_some_and(|end| end <= process.due);
            if process.hangs || is_over || now < process.due {
                return;
            }
            match filters.mishaps.get(&event) {
                Some(Mishap::Crash) if struck.insert(event) => process.ends_at = Some(process.due),
                Some(Mishap::Hang) if struck.insert(event) => process.hangs = true,
                _ => {
                    process.due = process.due.after(filters.each);
                    process.decided += 1;
                    has.pop_front();
                    said.push_back((slot, event));
                }
            }
        }
    }
}

impl FilterLink for FilterUnit {
    fn start(&mut self) {
        self.has.clear();
        self.said.clear();
        self.process = Some(Process { ready_at: self.now.after(self.filters.start), ..Process::default() });
    }

    fn kill(&mut self) {
        let at = self.now.after(DYING);
        self.process.iter_mut().for_each(|process| process.ends_at = Some(at));
    }

    fn begin(&mut self, _: RunNumber) {}

    fn end(&mut self) {}

    fn look(&mut self, now: Instant) -> FilterSight {
        self.now = now;
        self.work(now);
        let dies = self.deaths.pop_if(|death| now >= *death).is_some();
        let Some(process) = &mut self.process else { return FilterSight::default() };
        let has_ended = dies || process.ends_at.is_some_and(|at| now >= at);
        let is_ready = !has_ended && !process.is_ready && now >= process.ready_at;
        process.is_ready |= is_ready;
        let decided = process.decided;
        if has_ended {
            self.process = None;
            self.has.clear();
        }
        FilterSight { is_ready, has_ended, granted: decided + self.filters.credit, decided, ..FilterSight::default() }
    }

    fn offer(&mut self, slot: u32, event: &EventView<'_>) -> Offered {
        if self.has.len() >= ROOM {
            return Offered::Full;
        }
        if let (true, Some(process)) = (self.has.is_empty(), &mut self.process) {
            process.due = self.now.after(self.filters.each);
        }
        self.has.push_back((slot, event.key.number()));
        Offered::Taken
    }

    fn flush(&mut self) {}

    fn next_decision(&mut self, into: &mut Said) -> Option<Result<UnitDecision, NotBelieved>> {
        let (slot, event) = self.said.pop_front()?;
        let mishap = self.filters.mishaps.get(&event);
        if mishap == Some(&Mishap::Lie) && self.struck.insert(event) {
            return Some(Err(NotBelieved));
        }
        into.clear();
        into.result.extend((0..event % 30).map(|place| (event + place) as u8));
        let decision = Decision { accept: !self.filters.rejects(event), triggers: TriggerBits::default() };
        let decision = (mishap != Some(&Mishap::Undecided)).then_some(decision);
        Some(Ok(UnitDecision { slot, decision }))
    }

    fn copied_bytes(&self) -> u64 {
        0
    }

    fn next_deadline(&self) -> Option<Instant> {
        let process = self.process.as_ref()?;
        let ready = Some(process.ready_at).filter(|_| !process.is_ready);
        let due = Some(process.due).filter(|_| !self.has.is_empty() && !process.hangs);
        process.ends_at.or(ready).or(due)
    }

    fn descriptors<'a>(&'a self, _: &mut Vec<BorrowedFd<'a>>) {}
}
