//! What a seed is: events, filter units, how slow these are, and at which events they go wrong.

use super::super::content::mixed;
use super::super::draw::Draw;
use ropewalk_flow::filter::{Decision, HistogramShape, StreamConfig, Streams};
use ropewalk_io::disk::DiskFaults;
use ropewalk_io::simulated::Faults;
use ropewalk_terms::{TriggerBits, Verdict};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a filter unit may take over an event.
pub(super) const TIMEOUT: Duration = Duration::from_millis(500);

/// What a filter unit does wrong at an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Mishap {
    /// Its process crashes, the first so many times.
    Crash(u8),
    /// Its process hangs, the first so many times.
    Hang(u8),
    /// It decides a little too late, the first so many times: it was ordered to end, and has not yet.
    Slow(u8),
    /// It says what cannot be true, the first so many times.
    Lie(u8),
    /// It says that it cannot decide, as it may.
    Undecided,
}

impl Mishap {
    /// How often it happens.
    pub(super) const fn times(self) -> u8 {
        match self {
            Self::Crash(times) | Self::Hang(times) | Self::Slow(times) | Self::Lie(times) => times,
            Self::Undecided => u8::MAX,
        }
    }
}

/// The way to filter units on other machines.
#[derive(Clone, PartialEq, Debug)]
pub struct Lines {
    /// What the network does wrong.
    pub faults: Faults,
    /// At these times the connection to a filter unit is lost.
    pub losses: Vec<(Duration, u16)>,
    /// So many callers each node refuses, although nothing is wrong with them.
    pub refusals: u8,
}

impl Lines {
    /// Whether no connection is lost.
    fn hold(&self) -> bool {
        self.losses.is_empty() && self.faults.reset == 0.0 && self.faults.half_open == 0.0
    }
}

/// A system and what goes wrong with it.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// The seed of all chances.
    pub seed: u64,
    /// Events of the run.
    pub events: u64,
    /// How many of them a builder unit has in work.
    pub slots: u32,
    /// Filter units.
    pub units: u16,
    /// How many events each takes at once.
    pub credit: u64,
    /// How long each takes over an event.
    pub each: Duration,
    /// How long each takes until it is ready.
    pub start: Duration,
    /// How many processes of each are started again within a minute.
    pub restarts: u32,
    /// By event, what goes wrong.
    pub mishaps: BTreeMap<u64, Mishap>,
    /// At these times the process of a filter unit dies, whatever it does.
    pub deaths: Vec<(Duration, u16)>,
    /// From when on the run must end, and how long decisions are waited for then.
    pub drain: Option<(Duration, Duration)>,
    /// Of the second stream.
    pub prescale: u32,
    /// The first stream is to be in order.
    pub ordered: bool,
    /// Blocks for results.
    pub results: usize,
    /// What the disk does wrong.
    pub faults: DiskFaults,
    /// Where filter units are on other machines, the way there.
    pub lines: Option<Lines>,
}

impl Scenario {
    /// The scenario of a seed. In every fourth nothing goes wrong.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 60);
        let is_quiet = seed.is_multiple_of(4);
        let events = draw.between(20, 400);
        let units = draw.between(1, 4) as u16;
        let mishap = |draw: &mut Draw| {
            let times = draw.between(1, 3) as u8;
            match draw.below(5) {
                0 => Mishap::Crash(times),
                1 => Mishap::Hang(times),
                2 => Mishap::Slow(times),
                3 => Mishap::Lie(times),
                _ => Mishap::Undecided,
            }
        };
        let wrong = if is_quiet { 0 } else { draw.below(8) };
        let mishaps = (0..wrong).map(|_| (draw.between(1, events), mishap(&mut draw))).collect();
        let deaths = if is_quiet || !draw.one_in(3) { 0 } else { draw.between(1, 4) };
        let deaths =
            (0..deaths).map(|_| (Duration::from_millis(draw.below(2000)), draw.below(u64::from(units)) as u16));
        let deaths = deaths.collect();
        let (slots, ordered) = (draw.of(&[4, 16, 64]), draw.one_in(2));
        let write_error = if is_quiet || !draw.one_in(4) { 0.0 } else { 0.2 };
        let scenario = Self {
            seed,
            events,
            slots,
            units,
            credit: draw.of(&[1, 3, 20]),
            each: draw.time(Duration::from_micros(20), Duration::from_millis(20)),
            start: draw.time(Duration::from_millis(1), Duration::from_millis(600)),
            restarts: if !is_quiet && draw.one_in(5) { draw.between(1, 4) as u32 } else { 1000 },
            mishaps,
            deaths,
            drain: None,
            prescale: draw.of(&[1, 3, 10]),
            ordered,
            // What waits for events before it holds its result.
            results: if ordered { slots as usize + 1 } else { draw.of(&[1, 8, 64]) },
            faults: DiskFaults { write_error, ..DiskFaults::default() },
            lines: None,
        };
        let moment = |draw: &mut Draw, most| Duration::from_millis(draw.below(most));
        let drain = (!is_quiet && draw.one_in(6)).then(|| (moment(&mut draw, 1000), moment(&mut draw, 500)));
        Self { drain, ..scenario }
    }

    /// The scenario of a seed with filter units on other machines. In every fourth nothing goes wrong.
    pub fn draw_remote(seed: u64) -> Self {
        let scenario = Self::draw(seed);
        let mut draw = Draw::new(seed, 62);
        let is_quiet = seed.is_multiple_of(4);
        let faults = if is_quiet { Faults::default() } else { draw.of(&[Faults::bumpy(), Faults::nasty()]) };
        // More than one connection in a hundred events is lost, so that it happens in most seeds.
        let faults = Faults { reset: 10.0 * faults.reset, half_open: 4.0 * faults.half_open, ..faults };
        let losses = if is_quiet || draw.one_in(3) { 0 } else { draw.between(1, 6) };
        let unit = u64::from(scenario.units);
        let losses = (0..losses).map(|_| (Duration::from_millis(draw.below(3000)), draw.below(unit) as u16)).collect();
        let refusals = if is_quiet { 0 } else { draw.below(3) as u8 };
        // A connection that is lost counts as an end of the unit, and nodes are not given up.
        Self { lines: Some(Lines { faults, losses, refusals }), restarts: 1000, ..scenario }
    }

    /// Filter units behind the builder units of a drawn system, by the same seed.
    pub(in super::super) fn behind(seed: u64) -> Self {
        Self { drain: None, ..Self::draw(seed) }
    }

    /// Whether a filter rejects an event on which it decides.
    pub(in super::super) fn rejects(&self, event: u64) -> bool {
        !self.decision(event).accept
    }

    /// What a filter decides on an event that it decides on.
    pub(super) fn decision(&self, event: u64) -> Decision {
        let chance = mixed(self.seed, event, 7);
        let triggers = TriggerBits(u128::from(chance % 4));
        Decision { accept: !(chance >> 8).is_multiple_of(3), triggers }
    }

    /// What becomes of it then, as far as it is not for a prescale to say.
    pub(super) fn verdict(&self, event: u64) -> Verdict {
        match self.decision(event) {
            Decision { accept: false, .. } => Verdict::Rejected,
            Decision { triggers: TriggerBits(0), .. } => Verdict::Unselected,
            Decision { .. } => Verdict::Accepted,
        }
    }

    /// What a filter stores with an event: a few bytes, or so many that few such fit.
    pub(super) fn result(&self, event: u64) -> Vec<u8> {
        let length = if event.is_multiple_of(9) { 3000 } else { event as usize % 30 };
        (0..length).map(|place| (event as usize + place) as u8).collect()
    }

    /// Whether which events are set aside follows from the mishaps alone: no process dies by chance, none is missing, none may
    /// decide just in time, the run does not have to end, and no process lies, for what it does behind a lie before it is ended is not held against the events.
    pub(super) fn is_exact(&self) -> bool {
        let any = |is: fn(&Mishap) -> bool| self.mishaps.values().any(is);
        let lies = any(|mishap| matches!(mishap, Mishap::Lie(_))) && self.mishaps.len() > 1;
        let is_free = self.lines.as_ref().is_none_or(Lines::hold)
            && self.deaths.is_empty()
            && self.restarts > 100
            && self.drain.is_none();
        is_free && !lies && !any(|mishap| matches!(mishap, Mishap::Slow(_)))
    }

    /// Whether an event is set aside by its mishap.
    pub(super) fn is_set_aside(&self, event: u64) -> bool {
        self.mishaps.get(&event).is_some_and(|mishap| mishap.times() >= 2)
    }

    /// What filters fill: each event has a bin of its own.
    pub(super) fn histogram(&self) -> HistogramShape {
        let bins = self.events as u32 + 1;
        HistogramShape::new("number", bins, 0.0, f64::from(bins)).expect("events are few")
    }

    /// The streams: the first takes trigger 0, the second one trigger 1.
    pub(super) fn streams(&self) -> Streams {
        let stream = |name: &str, trigger, prescale, ordered| StreamConfig {
            name: name.parse().expect("a good name"),
            triggers: TriggerBits::of(trigger),
            trigger_types: Vec::new(),
            prescale,
            ordered,
        };
        let streams = vec![stream("first", 0, 1, self.ordered), stream("second", 1, self.prescale, false)];
        Streams::new(streams, true).expect("they make sense")
    }
}
