//! Filter units in processes: the machine of a real builder unit with everything after it (farm, streams, order,
//! storage), and simulated processes that crash, hang and answer wrongly, as the seed determines.
//!
//! ```text
//!   Assigner: event manager and readout unit --events--> Builder --> EventOutput: FilterStage, Storage --> disk
//!                                                                 ^            |  ^
//!                                                    acknowledged |     events v  |  decisions, or its end
//!                                                                            SimulatedUnit
//! ```
//! In scenarios with [`Lines`], the units are on other machines: a real `RemoteUnit`, a simulated network, and behind
//! it a `SimulatedNode` with the `SimulatedUnit`. Connections break at any step, and have delays.
//!
//! The scenario determines the result: each event is decided once, by its number; an event on which two processes ended
//! is set aside; histograms contain what filters filled in, once per decided event; and nothing in the hands of a
//! process is reused before that process has certainly ended.

mod stand_ins;

use super::mixed;
use super::stand::pool;
use super::{seeds, unless};
use ropewalk_engine::{
    EventOutput, FilterLink, FilterStage, RESULT_BYTES, RecordStore, RemoteUnit, Storage, StorageConfig, StreamStorage,
};
use ropewalk_flow::builder::{Builder, BuilderConfig, BuilderSource};
use ropewalk_flow::filter::{
    Decision, ERROR_STREAM, FarmConfig, HistogramShape, LumisectionRecord, StreamConfig, Streams,
};
use ropewalk_flow::source::Random;
use ropewalk_flow::supervision::SupervisorConfig;
use ropewalk_io::clock::{Clock, SimulatedClock};
use ropewalk_io::disk::{DiskFaults, SimulatedDisk, SimulatedDiskConfig, SimulatedStorage};
use ropewalk_io::simulated::{Faults, Network, SimulatedConfig};
use ropewalk_memory::Staging;
use ropewalk_terms::{
    Cause, Ending, Incarnation, Instant, NodeId, Outcome, RunNumber, SourceId, TriggerBits, Utc, Verdict,
};
use ropewalk_wire::filter_result::FilterResult;
use ropewalk_wire::run_file::{EventView, Item, Items, RecordKind, SegmentName};
use stand_ins::{Assigner, FILTER, Notes, SOURCES, SimulatedNode, SimulatedUnit, payload};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time-out of a filter unit for an event.
const TIMEOUT: Duration = Duration::from_millis(500);

/// A fault of a filter unit at an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Mishap {
    /// Its process crashes, the first n times.
    Crash(u8),
    /// Its process hangs, the first n times.
    Hang(u8),
    /// It decides slightly too late, the first n times: it was ordered to end, and has not yet.
    Slow(u8),
    /// It gives an impossible answer, the first n times.
    Lie(u8),
    /// It reports that it cannot decide, which is permitted.
    Undecided,
}

impl Mishap {
    /// How often it happens.
    const fn times(self) -> u8 {
        match self {
            Self::Crash(times) | Self::Hang(times) | Self::Slow(times) | Self::Lie(times) => times,
            Self::Undecided => u8::MAX,
        }
    }
}

/// The connections to filter units on other machines.
#[derive(Clone, PartialEq, Debug)]
struct Lines {
    /// The faults of the network.
    faults: Faults,
    /// When the connection to which filter unit breaks.
    losses: Vec<(Duration, u16)>,
    /// The number of valid callers that each node refuses.
    refusals: u8,
}

impl Lines {
    /// Whether no connection breaks.
    fn hold(&self) -> bool {
        self.losses.is_empty() && self.faults.reset == 0.0 && self.faults.half_open == 0.0
    }
}

/// A system and its faults.
#[derive(Clone, PartialEq, Debug)]
struct Scenario {
    /// The seed of all random choices.
    seed: u64,
    /// Events of the run.
    events: u64,
    /// Maximum events in work at the builder unit.
    slots: u32,
    /// Filter units.
    units: u16,
    /// Maximum events at each unit.
    credit: u64,
    /// The time of each for an event.
    each: Duration,
    /// The time until each is ready.
    start: Duration,
    /// How many processes of each are restarted within a minute.
    restarts: u32,
    /// Faults, by event.
    mishaps: BTreeMap<u64, Mishap>,
    /// When the process of which filter unit dies.
    deaths: Vec<(Duration, u16)>,
    /// When the run must end, and how long it then waits for decisions.
    drain: Option<(Duration, Duration)>,
    /// The prescale of the second stream.
    prescale: u32,
    /// Whether the first stream must be in order.
    ordered: bool,
    /// Blocks for results.
    results: usize,
    /// The faults of the disk.
    faults: DiskFaults,
    /// The connections, if filter units are on other machines.
    lines: Option<Lines>,
}

impl Scenario {
    /// The scenario of a seed. Every fourth has no faults.
    fn draw(seed: u64) -> Self {
        let mut draw = Random::new(seed, 60);
        let is_quiet = seed.is_multiple_of(4);
        let events = draw.between(20, 400);
        let units = draw.between(1, 4) as u16;
        let mishap = |draw: &mut Random| {
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
            // An event that waits for others holds its result.
            results: if ordered { slots as usize + 1 } else { draw.of(&[1, 8, 64]) },
            faults: DiskFaults { write_error, ..DiskFaults::default() },
            lines: None,
        };
        let moment = |draw: &mut Random, most| Duration::from_millis(draw.below(most));
        let drain = (!is_quiet && draw.one_in(6)).then(|| (moment(&mut draw, 1000), moment(&mut draw, 500)));
        Self { drain, ..scenario }
    }

    /// The scenario of a seed with filter units on other machines. Every fourth has no faults.
    fn draw_remote(seed: u64) -> Self {
        let scenario = Self::draw(seed);
        let mut draw = Random::new(seed, 62);
        let is_quiet = seed.is_multiple_of(4);
        let faults = if is_quiet { Faults::default() } else { draw.of(&[Faults::bumpy(), Faults::nasty()]) };
        // More than one connection in a hundred events breaks, so that it happens for most seeds.
        let faults = Faults { reset: 10.0 * faults.reset, half_open: 4.0 * faults.half_open, ..faults };
        let losses = if is_quiet || draw.one_in(3) { 0 } else { draw.between(1, 6) };
        let unit = u64::from(scenario.units);
        let losses = (0..losses).map(|_| (Duration::from_millis(draw.below(3000)), draw.below(unit) as u16)).collect();
        let refusals = if is_quiet { 0 } else { draw.below(3) as u8 };
        // A broken connection counts as an end of the unit, and nodes are not given up.
        Self { lines: Some(Lines { faults, losses, refusals }), restarts: 1000, ..scenario }
    }

    /// The decision of a filter on an event that it decides.
    fn decision(&self, event: u64) -> Decision {
        let chance = mixed(self.seed, event, 7);
        let triggers = TriggerBits(u128::from(chance % 4));
        Decision { accept: !(chance >> 8).is_multiple_of(3), triggers }
    }

    /// The resulting verdict, apart from prescales.
    fn verdict(&self, event: u64) -> Verdict {
        match self.decision(event) {
            Decision { accept: false, .. } => Verdict::Rejected,
            Decision { triggers: TriggerBits(0), .. } => Verdict::Unselected,
            Decision { .. } => Verdict::Accepted,
        }
    }

    /// The result that a filter stores with an event: a few bytes, or so many that only few fit.
    fn result(&self, event: u64) -> Vec<u8> {
        let length = if event.is_multiple_of(9) { 3000 } else { event as usize % 30 };
        (0..length).map(|place| (event as usize + place) as u8).collect()
    }

    /// Whether the mishaps alone determine which events are set aside: no process dies by chance, none is missing, none
    /// may decide just in time, the run need not end, and no process lies, because its faults between a lie and its end
    /// are not held against events.
    fn is_exact(&self) -> bool {
        let any = |is: fn(&Mishap) -> bool| self.mishaps.values().any(is);
        let lies = any(|mishap| matches!(mishap, Mishap::Lie(_))) && self.mishaps.len() > 1;
        let is_free = self.lines.as_ref().is_none_or(Lines::hold)
            && self.deaths.is_empty()
            && self.restarts > 100
            && self.drain.is_none();
        is_free && !lies && !any(|mishap| matches!(mishap, Mishap::Slow(_)))
    }

    /// Whether an event is set aside by its mishap.
    fn is_set_aside(&self, event: u64) -> bool {
        self.mishaps.get(&event).is_some_and(|mishap| mishap.times() >= 2)
    }

    /// The histogram that filters fill: each event has its own bin.
    fn histogram(&self) -> HistogramShape {
        let bins = self.events as u32 + 1;
        HistogramShape::new("number", bins, 0.0, f64::from(bins)).expect("events are few")
    }

    /// The streams: the first takes trigger 0, the second one trigger 1.
    fn streams(&self) -> Streams {
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

/// Maximum time of a scenario.
const LONGEST: Duration = Duration::from_secs(120);
const RESTART_DELAY: Duration = Duration::from_millis(50);
const STEP: Duration = Duration::from_millis(1);

/// The machines of remote filter units, and the network between.
struct Elsewhere {
    network: Network,
    nodes: Vec<SimulatedNode>,
    /// Connections that are yet to break, the first one last.
    losses: Vec<(Instant, u16)>,
}

impl Elsewhere {
    /// The machines, and the builder unit's link to each.
    fn new(scenario: &Scenario, lines: &Lines, notes: &Arc<Mutex<Notes>>) -> (Self, Vec<Box<dyn FilterLink>>) {
        let network = Network::new(scenario.seed, lines.faults.clone());
        let config = SimulatedConfig::default();
        let (mut nodes, mut links) = (Vec::new(), Vec::new());
        for index in 0..scenario.units {
            let address = format!("filter node {index}");
            let unit = SimulatedUnit::new(scenario, index, Arc::clone(notes));
            let peers = network.dispatcher(config, pool("events", 4 << 10, 32));
            nodes.push(SimulatedNode::new(peers, &address, scenario, unit, Arc::clone(notes)));
            let peers = network.dispatcher(config, pool("decisions", 8 << 10, 64));
            let heads = Staging::new(pool("heads", 4 << 10, 64));
            links.push(Box::new(RemoteUnit::new(address, FILTER, peers, heads)) as Box<dyn FilterLink>);
        }
        let mut losses: Vec<_> = lines.losses.iter().map(|(at, unit)| (Instant::ZERO.after(*at), *unit)).collect();
        losses.sort_by(|one, other| other.cmp(one));
        (Self { network, nodes, losses }, links)
    }

    /// Breaks the connections that are due, and gives each machine a turn.
    fn turn(&mut self, now: Instant) -> Result<usize, String> {
        while let Some((_, unit)) = self.losses.pop_if(|(at, _)| now >= *at) {
            let host = self.nodes[usize::from(unit)].host();
            for (_, endpoint) in self.network.connections_of(host) {
                self.network.reset(host, endpoint);
            }
        }
        self.nodes.iter_mut().map(|node| node.turn(now)).sum()
    }
}

/// Builder unit, filter units, disk.
struct World {
    scenario: Scenario,
    clock: SimulatedClock,
    medium: SimulatedStorage,
    builder: Builder,
    output: EventOutput,
    assigner: Assigner,
    kept: Kept,
    notes: Arc<Mutex<Notes>>,
    elsewhere: Option<Elsewhere>,
}

fn builder(scenario: &Scenario) -> Builder {
    let source = |id| BuilderSource { bunch_crossing_mask: 0, ..BuilderSource::new(id, 0) };
    Builder::new(BuilderConfig {
        slots: scenario.slots,
        table: 0,
        credit_bytes: 1 << 20,
        event_timeout: LONGEST,
        check_bunch_crossing: false,
        orbit: 0,
        ..BuilderConfig::new(0, 1, SOURCES.map(source).into())
    })
}

fn storage(scenario: &Scenario, medium: &SimulatedStorage, clock: &SimulatedClock) -> Storage<SimulatedDisk> {
    let config = StorageConfig {
        epoch: Utc(1),
        streams: scenario
            .streams()
            .names()
            .map(|name| StreamStorage { name, selected: true, ..StreamStorage::default() })
            .collect(),
        segment_bytes: 16 << 10,
        batch_bytes: 4 << 10,
        give_up_after: LONGEST,
        ..StorageConfig::new(NodeId::builder(0), "/data")
    };
    let disk = medium.disk(SimulatedDiskConfig::default(), clock.clone());
    Storage::new(disk, config, Staging::new(pool("records", 4 << 10, 64)))
}

impl World {
    /// The world of a scenario, at its beginning.
    fn new(scenario: Scenario) -> Self {
        let clock = SimulatedClock::new(Utc(1));
        let medium = SimulatedStorage::new(scenario.seed, scenario.faults.clone());
        let notes = Arc::new(Mutex::new(Notes::default()));
        let unit = |index| Box::new(SimulatedUnit::new(&scenario, index, Arc::clone(&notes))) as Box<dyn FilterLink>;
        let supervision = SupervisorConfig {
            timeout: TIMEOUT,
            start_timeout: Duration::from_secs(2),
            restart_delay: RESTART_DELAY,
            restarts: scenario.restarts,
        };
        let (elsewhere, links) = match &scenario.lines {
            None => (None, (0..scenario.units).map(unit).collect()),
            Some(lines) => {
                let (elsewhere, links) = Elsewhere::new(&scenario, lines, &notes);
                (Some(elsewhere), links)
            }
        };
        let farm = FarmConfig { units: scenario.units, slots: scenario.slots, supervision };
        let results = Staging::new(pool("results", RESULT_BYTES, scenario.results));
        let filter = FilterStage::units(farm, links, scenario.streams(), results);
        let kept = Kept::default();
        let filter = filter.with_record_store(Box::new(kept.clone()));
        let storage = storage(&scenario, &medium, &clock);
        let patience = scenario.drain.map_or(LONGEST, |(_, patience)| patience);
        let mut output = EventOutput::new(Some(Box::new(storage)), scenario.slots).with_filter(filter, patience);
        let (mut builder, now) = (builder(&scenario), clock.now());
        builder.manager_connected(now);
        builder.readout_connected(now, 0);
        output.begin(now, RunNumber(1), Incarnation(1));
        let assigner = Assigner::new(&scenario);
        Self { scenario, clock, medium, builder, output, assigner, kept, notes, elsewhere }
    }

    /// A digest of everything that happened: equal for equal histories.
    fn digest(&self) -> u64 {
        mixed(Notes::of(&self.notes).digest, self.clock.now().as_nanoseconds(), self.assigner.ended.len() as u64)
    }

    /// Executes the run.
    fn run(&mut self) -> Result<(), String> {
        while !self.assigner.is_over() {
            if self.scenario.drain.is_some_and(|(from, _)| self.clock.now() >= Instant::ZERO.after(from)) {
                self.output.drain(self.clock.now());
            }
            let work = self.turn()?;
            self.look()?;
            self.go_on(work)?;
        }
        self.medium.set_faults(DiskFaults::default());
        while !self.output.close(self.clock.now()) {
            self.turn()?;
            self.go_on(0)?;
        }
        unless(self.output.is_idle() && self.assigner.held() == 0, || {
            format!("{} blocks of fragments are held, and every event has ended", self.assigner.held())
        })?;
        self.output.end();
        self.kept.judge(&self.scenario, &self.assigner.ended)?;
        let notes = Notes::of(&self.notes);
        for (event, ending) in &self.assigner.ended {
            let is_right = ending.verdict == Verdict::Quarantined || notes.decided.contains(event);
            unless(is_right, || format!("event {event} ended as {ending:?} without a valid decision"))?;
        }
        let ended = &self.assigner.ended;
        judge(&self.scenario, ended, &self.medium, &self.builder, &self.output, notes.lost_connections)
    }

    /// Gives every machine a turn.
    fn turn(&mut self) -> Result<usize, String> {
        let now = self.clock.now();
        let mut work = self.assigner.turn(now, &mut self.builder);
        while let Some(action) = self.builder.poll(now) {
            self.assigner.hear(action)?;
            work += 1;
        }
        if let Some(elsewhere) = &mut self.elsewhere {
            work += elsewhere.turn(now)?;
        }
        Ok(work + self.output.turn(now, &mut self.builder, usize::MAX))
    }

    /// Advances the time to the next event.
    fn go_on(&mut self, work: usize) -> Result<(), String> {
        let now = self.clock.now();
        let nodes = self.elsewhere.iter().flat_map(|elsewhere| &elsewhere.nodes);
        let nodes = nodes.filter_map(SimulatedNode::next_deadline);
        let next = nodes.chain(self.output.next_deadline()).min().unwrap_or(Instant::FAR_FUTURE);
        let step = if work > 0 { STEP / 20 } else { next.since(now).clamp(STEP / 20, 10 * STEP) };
        self.clock.advance(step);
        unless(now < Instant::ZERO.after(LONGEST), || {
            format!("{} of {} events have ended", self.assigner.ended.len(), self.scenario.events)
        })
    }

    /// Checks the invariants of every step.
    fn look(&self) -> Result<(), String> {
        let notes = Notes::of(&self.notes);
        unless(notes.most_at_once <= 1, || "a unit has two processes".to_owned())?;
        for (unit, has) in &notes.has {
            for &(slot, key) in has {
                let found = self.builder.event(slot).key;
                unless(found == key, || {
                    format!("unit {unit} has event {key} in slot {slot}, where event {found} is now")
                })?;
            }
        }
        let account = self.builder.account();
        let decided = account.accepted + account.rejected + account.quarantined;
        unless(account.built + account.incomplete_emitted == decided, || format!("{account:?}"))
    }
}

/// Stored records.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<LumisectionRecord>>>);

impl RecordStore for Kept {
    fn keep(&mut self, _: RunNumber, record: LumisectionRecord) -> Result<(), LumisectionRecord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(record);
        Ok(())
    }
}

impl Kept {
    /// Checks that every event is counted once, as it ended, and that exactly the decided events filled the histogram,
    /// once each.
    fn judge(&self, scenario: &Scenario, ended: &BTreeMap<u64, Ending>) -> Result<(), String> {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |of: &dyn Fn(&LumisectionRecord) -> u64| records.iter().map(of).sum::<u64>();
        let are = |of: &dyn Fn(u64, Verdict) -> bool| {
            ended.iter().filter(|(event, ending)| of(**event, ending.verdict)).count() as u64
        };
        let is_accepted = |verdict| matches!(verdict, Verdict::Accepted | Verdict::Unselected);
        let passed = |event, trigger| scenario.decision(event).triggers.meets(TriggerBits::of(trigger));
        let trigger = |number: u32| are(&|event, verdict| is_accepted(verdict) && passed(event, number));
        for (what, counted, due) in [
            ("accepted", sum(&|record| record.accepted), are(&|_, verdict| is_accepted(verdict))),
            ("rejected", sum(&|record| record.rejected), are(&|_, verdict| verdict == Verdict::Rejected)),
            ("set aside", sum(&|record| record.quarantined), are(&|_, verdict| verdict == Verdict::Quarantined)),
            ("of trigger 0", sum(&|record| record.triggers[0]), trigger(0)),
            ("of trigger 1", sum(&|record| record.triggers[1]), trigger(1)),
            ("without a place for what was filled in", sum(&|record| record.dropped_fills), 0),
        ] {
            unless(counted == due, || format!("{counted} events are counted that are {what}, and there were {due}"))?;
        }
        for (&event, ending) in ended {
            let filled = sum(&|record| record.histograms.iter().map(|one| one.counts[event as usize]).sum());
            let due = u64::from(ending.verdict != Verdict::Quarantined);
            unless(filled == due, || {
                format!(
                    "event {event}, which ended as {ending:?}, is {filled} times in the histogram, and {due} were due"
                )
            })?;
        }
        Ok(())
    }
}

/// By stream, the events in its files, in order.
type Found = BTreeMap<String, Vec<u64>>;

/// Checks the result at the end.
fn judge(
    scenario: &Scenario,
    ended: &BTreeMap<u64, Ending>,
    medium: &SimulatedStorage,
    builder: &Builder,
    output: &EventOutput,
    lost_connections: usize,
) -> Result<(), String> {
    for (&event, ending) in ended {
        verdict_is_right(scenario, event, *ending)?;
    }
    let aside = ended.values().filter(|ending| ending.verdict == Verdict::Quarantined).count();
    let blamed = scenario.mishaps.len() + scenario.deaths.len() + lost_connections;
    unless(scenario.restarts <= 100 || scenario.drain.is_some() || aside <= blamed, || {
        format!("{aside} events are set aside, over which {blamed} things went wrong")
    })?;
    let found = found(scenario, medium)?;
    let all = |of: &dyn Fn(u64, Verdict) -> bool| -> Vec<u64> {
        let events = ended.iter().filter(|(event, ending)| of(**event, ending.verdict));
        events.map(|(event, _)| *event).collect()
    };
    let passed = |event, trigger| scenario.decision(event).triggers.meets(TriggerBits::of(trigger));
    let is_kept = |event, verdict| verdict != Verdict::Quarantined && scenario.decision(event).accept;
    let first = all(&|event, verdict| is_kept(event, verdict) && passed(event, 0));
    let second = all(&|event, verdict| is_kept(event, verdict) && passed(event, 1));
    let error = all(&|_, verdict| verdict == Verdict::Quarantined);
    holds(&found, "first", &first, scenario.ordered)?;
    holds(&found, ERROR_STREAM, &error, false)?;
    let kept = found.get("second").map_or(0, Vec::len);
    let expected = second.len().div_ceil(scenario.prescale as usize);
    unless(kept == expected, || {
        format!("{kept} events are in the second stream, one of {} of {}", scenario.prescale, second.len())
    })?;
    let accounts = output.filter().accounts();
    for ((name, selected), account) in
        [("first", first.len()), ("second", second.len()), (ERROR_STREAM, error.len())].into_iter().zip(accounts)
    {
        let written = found.get(name).map_or(0, Vec::len) as u64;
        let is_right = account.selected == selected as u64
            && account.written == written
            && account.selected == account.accounted()
            && account.in_flight == 0;
        unless(is_right, || format!("stream {name}: {account:?}, {written} in its files"))?;
    }
    let account = builder.account();
    unless(account.assigned == account.accounted() && account.in_flight == 0, || format!("{account:?}"))
}

/// Checks that an event ended as its number and its mishap determine.
fn verdict_is_right(scenario: &Scenario, event: u64, ending: Ending) -> Result<(), String> {
    let is_aside = ending.verdict == Verdict::Quarantined;
    let must_be = scenario.is_set_aside(event);
    let is_undecided = scenario.mishaps.get(&event) == Some(&Mishap::Undecided);
    let aside_is_right = if scenario.is_exact() { is_aside == must_be } else { is_aside || !is_undecided };
    unless(aside_is_right, || format!("event {event} ended as {ending:?}"))?;
    let expected = scenario.verdict(event);
    // A prescale may leave out an event that only the second stream takes.
    let is_left_out = ending.verdict == Verdict::Unselected && expected == Verdict::Accepted;
    let only_second = scenario.decision(event).triggers == TriggerBits::of(1);
    let is_right = is_aside || ending.verdict == expected || is_left_out && only_second;
    unless(is_right && ending.outcome == Outcome::Complete, || {
        format!("event {event} ended as {ending:?}, and {expected:?} was due")
    })
}

fn holds(found: &Found, stream: &str, expected: &[u64], ordered: bool) -> Result<(), String> {
    let mut events = found.get(stream).cloned().unwrap_or_default();
    unless(!ordered || events.is_sorted(), || format!("stream {stream} is not in order"))?;
    events.sort_unstable();
    unless(events == expected, || format!("stream {stream} has {events:?} and not {expected:?}"))
}

/// The events in the files, each of them checked.
fn found(scenario: &Scenario, medium: &SimulatedStorage) -> Result<Found, String> {
    let mut found = Found::new();
    let mut paths = medium.paths();
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<SegmentName>().ok());
        let (Some(name), Ok(bytes)) = (name, medium.read(&path)) else {
            return Err(format!("{} is no closed segment", path.display()));
        };
        for item in Items::new(&bytes) {
            let Item::Record { record, .. } = item else { continue };
            if record.kind() != RecordKind::EVENT {
                continue;
            }
            let event = EventView::parse(&record).map_err(|error| error.to_string())?;
            content_is_right(scenario, &event)?;
            found.entry(name.stream.to_string()).or_default().push(event.key().number());
        }
    }
    Ok(found)
}

fn content_is_right(scenario: &Scenario, event: &EventView<'_>) -> Result<(), String> {
    let number = event.key().number();
    let fragments: Vec<(SourceId, &[u8])> = event.fragments().map(|one| (one.entry.source, one.payload)).collect();
    let [one, other, (SourceId::FILTER, said)] = fragments[..] else {
        return Err(format!("event {number} has {} fragments", fragments.len()));
    };
    let is_whole = [one, other]
        == SOURCES.map(|source| (source, payload(source, number))).each_ref().map(|(id, bytes)| (*id, &bytes[..]));
    let (said, own) = FilterResult::decode(said).map_err(|error| error.to_string())?;
    let is_right = match said.verdict {
        Verdict::Quarantined => said.cause == Some(Cause::FilterFailed) && own.is_empty(),
        _ => said.triggers == scenario.decision(number).triggers && own == scenario.result(number),
    };
    unless(is_whole && is_right, || format!("event {number}: {said:?} and {} bytes", own.len()))
}

fn expect_all_is_well(draw: fn(u64) -> Scenario) {
    for seed in 0..seeds(300) {
        let scenario = draw(seed);
        assert_eq!(World::new(scenario.clone()).run(), Ok(()), "seed {seed}: {scenario:#?}");
    }
}

#[test]
fn every_event_is_decided_once_while_filter_units_die() {
    expect_all_is_well(Scenario::draw);
}

#[test]
fn every_event_is_decided_once_while_filter_units_die_on_other_machines() {
    expect_all_is_well(Scenario::draw_remote);
}

#[test]
fn connections_are_lost_in_many_seeds_and_in_no_quiet_one() {
    let lost = |seed| {
        let mut world = World::new(Scenario::draw_remote(seed));
        world.run().map(|()| Notes::of(&world.notes).lost_connections).expect("nothing is broken")
    };
    let lost: Vec<usize> = (0..60).map(lost).collect();
    assert_eq!(lost.iter().step_by(4).sum::<usize>(), 0);
    assert!(lost.iter().filter(|&&lost| lost > 0).count() > 25, "{lost:?}");
}

#[test]
fn a_seed_is_a_run_and_each_mishap_is_drawn() {
    let (mut digests, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..40 {
        let digest = || {
            let mut world = World::new(Scenario::draw(seed));
            world.run().map(|()| world.digest())
        };
        assert_eq!(digest(), digest(), "seed {seed}");
        digests.extend(digest());
        kinds.extend(Scenario::draw(seed).mishaps.into_values().map(|mishap| match mishap {
            Mishap::Crash(_) => "crash",
            Mishap::Hang(_) => "hang",
            Mishap::Slow(_) => "slow",
            Mishap::Lie(_) => "lie",
            Mishap::Undecided => "undecided",
        }));
    }
    assert!(digests.len() > 35, "different seeds are different runs");
    assert_eq!(kinds.len(), 5);
}
