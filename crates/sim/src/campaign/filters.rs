//! Filter units behind builder units. What a filter decides follows from the event's number. A fault makes a process crash, hang, decide
//! late, answer wrongly or fail to decide at the next event that it begins, or ends it at once.
//!
//! Each builder unit has a [`Board`]: its filter units find the faults there, and note what the referee must know: over which events
//! processes ended, on which they decided, and what each has in work.

use super::content::mixed;
use super::endpoints::Surroundings;
use super::fault::{Fault, FaultKind, Place};
use super::machines::{Site, pool, remote_unit};
use super::runner::{Broken, ensure};
use super::world::World;
use ropewalk_engine::{FilterLink, FilterSight, FilterStage, NotBelieved, Offered, RESULT_BYTES, Said, UnitDecision};
use ropewalk_flow::builder::EventView;
use ropewalk_flow::filter::{Decision, FarmConfig, StreamConfig, Streams};
use ropewalk_flow::source::Random;
use ropewalk_flow::supervision::SupervisorConfig;
use ropewalk_memory::Staging;
use ropewalk_terms::{Attempt, EventKey, Instant, RunNumber, SourceId, TriggerBits, Verdict};
use ropewalk_wire::filter_result::FilterResult;
use ropewalk_wire::run_file::{self, EventFlags};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a filter unit may take over an event.
const TIMEOUT: Duration = Duration::from_millis(500);
/// How long it takes until a process that was killed has ended; it works on meanwhile.
const DYING: Duration = Duration::from_millis(3);
/// Room, in events; credit does not change it.
const ROOM: usize = 15;
/// Which stream of the seed decides on the number of streams of events.
const STREAMS_STREAM: u64 = 909;
/// Which stream of the seed decides whether filter units are on other machines.
pub(super) const REMOTE_STREAM: u64 = 1111;
/// With fewer restarts a filter unit may be given up.
const MANY_RESTARTS: u32 = 1000;

/// The filter units of each builder unit.
#[derive(Clone, PartialEq, Debug)]
pub struct Filters {
    seed: u64,
    /// Filter units of each builder unit.
    pub(super) units: u16,
    /// They are on other machines.
    pub(super) is_remote: bool,
    /// How many connections each refuses at first, although it could serve them.
    pub(super) refusals: u64,
    /// How many events each takes at once.
    pub(super) credit: u64,
    /// How long each takes over an event.
    each: Duration,
    /// How long each takes until it is ready.
    start: Duration,
    /// How many processes of each are started again within a minute.
    restarts: u32,
    /// Number of streams that accepted events go to: a single one takes all of them, several take those with their trigger.
    streams: u8,
}

impl Filters {
    /// Those of a seed.
    pub(super) fn draw(seed: u64, draw: &mut Random) -> Self {
        // A separate random stream: the draws of a seed that follow stay the same.
        let streams = Random::new(seed, STREAMS_STREAM).between(1, 3) as u8;
        let mut remote = Random::new(seed, REMOTE_STREAM);
        let is_remote = remote.one_in(3);
        let filters = Self {
            seed,
            units: draw.between(1, 4) as u16,
            is_remote,
            refusals: if is_remote { remote.below(3) } else { 0 },
            credit: draw.of(&[1, 3, 20]),
            each: draw.time(Duration::from_micros(20), Duration::from_millis(20)),
            start: draw.time(Duration::from_millis(1), Duration::from_millis(600)),
            restarts: if draw.one_in(6) { draw.between(1, 4) as u32 } else { MANY_RESTARTS },
            streams,
        };
        // A lost connection counts as the end of a process.
        Self { restarts: if is_remote { MANY_RESTARTS } else { filters.restarts }, ..filters }
    }

    /// One for each builder unit, which takes so long for an event.
    #[cfg(test)]
    pub(super) fn slow(each: Duration) -> Self {
        let (start, restarts, is_remote, refusals) = (Duration::ZERO, MANY_RESTARTS, false, 0);
        Self { seed: 0, units: 1, is_remote, refusals, credit: 4, each, start, restarts, streams: 1 }
    }

    /// Whether an event on which a filter decides is written nowhere: the filter rejects it, or no stream selects it.
    pub(super) fn leaves_out(&self, event: u64) -> bool {
        self.selected_by(event).is_empty()
    }

    /// The names of the streams that an event belongs to if a filter decides on it.
    pub(super) fn selected_by(&self, event: u64) -> BTreeSet<String> {
        let Decision { accept, triggers } = self.decision(event);
        match self.streams {
            _ if !accept => BTreeSet::new(),
            1 => BTreeSet::from(["physics".to_owned()]),
            several => (0..several).filter(|stream| triggers.0 >> stream & 1 == 1).map(stream_name).collect(),
        }
    }

    /// What a filter decides on an event.
    fn decision(&self, event: u64) -> Decision {
        let accept = !mixed(self.seed, event, 7).is_multiple_of(3);
        let triggers = if self.streams == 1 { 0 } else { mixed(self.seed, event, 8) % (1 << self.streams) };
        Decision { accept, triggers: TriggerBits(triggers.into()) }
    }

    /// What a filter stores with an event: a few bytes, or so many that few such fit.
    fn result(event: u64) -> impl Iterator<Item = u8> {
        let length = if event.is_multiple_of(9) { 3000 } else { event % 30 };
        (0..length).map(move |place| (event + place) as u8)
    }

    /// Those of a life of a builder unit. Their places on the network are added to `hosts`.
    pub(super) fn filter(
        &self,
        site: &Site<'_>,
        around: &Surroundings,
        builder: u16,
        hosts: &mut Vec<u32>,
    ) -> FilterStage {
        let (board, slots) = (&site.boards[usize::from(builder)], site.scenario.rooms.slots.max(1));
        let supervision = SupervisorConfig {
            timeout: TIMEOUT,
            start_timeout: Duration::from_secs(2),
            restart_delay: Duration::from_millis(50),
            restarts: self.restarts,
        };
        let results = Staging::new(pool("results", RESULT_BYTES, slots as usize + 1));
        let farm = FarmConfig { units: self.units, slots, supervision };
        // The processes of the life before are gone with it.
        board.notes().has.clear();
        let mut unit = |index| -> Box<dyn FilterLink> {
            if !self.is_remote {
                return Box::new(FilterUnit::new(self, board, index));
            }
            let (link, host) = remote_unit(site, around, builder, index);
            hosts.push(host);
            link
        };
        let links = (0..self.units).map(&mut unit).collect();
        FilterStage::units(farm, links, self.streams(), results)
    }

    /// The streams for accepted events, and the error stream for events that no filter unit could decide.
    pub(super) fn streams(&self) -> Streams {
        let of_trigger = |stream| StreamConfig {
            name: stream_name(stream).parse().expect("a short name"),
            triggers: TriggerBits::of(stream.into()),
            ..StreamConfig::everything()
        };
        let several = || (0..self.streams).map(of_trigger).collect();
        let streams = if self.streams == 1 { vec![StreamConfig::everything()] } else { several() };
        Streams::new(streams, true).expect("the streams have different names")
    }
}

/// The name of one of several streams.
fn stream_name(stream: u8) -> String {
    format!("stream_{stream}")
}

/// What went wrong with an event, and what is known of it.
#[derive(Clone, Debug, Default)]
struct Notes {
    /// What goes wrong at the next event that a filter unit begins.
    orders: VecDeque<(u16, FaultKind, u64)>,
    /// Filter units whose processes die now.
    dying: BTreeSet<u16>,
    /// What goes wrong at an event, and how often still.
    mishaps: BTreeMap<EventKey, (FaultKind, u64)>,
    /// How many processes ended over an event, or answered wrongly.
    blamed: BTreeMap<EventKey, u64>,
    /// Events of which a process said that it cannot decide.
    undecided: BTreeSet<EventKey>,
    /// Events on which a process decided that was not ordered to end, with a sum of their bytes.
    decided: BTreeMap<(EventKey, Attempt), u64>,
    /// By filter unit: what its process has, and may look at.
    has: BTreeMap<u16, Vec<(u32, EventKey)>>,
    /// A filter unit had two processes at once.
    had_two: bool,
    /// Connections to filter nodes that were lost while a process was behind them: each may be held against the event
    /// that the builder unit awaited then.
    lost_connections: u64,
}

/// What the filter units of a builder unit share with the world, in all lives of the builder unit. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Board(Arc<Mutex<Notes>>);

impl Board {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to a filter node is lost.
    pub(super) fn lose_connection(&self) {
        self.notes().lost_connections += 1;
    }

    /// Lost connections to filter nodes with a process behind them.
    #[cfg(test)]
    pub(super) fn lost_connections(&self) -> u64 {
        self.notes().lost_connections
    }

    /// Events on which processes decided.
    #[cfg(test)]
    pub(super) fn decided(&self) -> usize {
        self.notes().decided.len()
    }

    /// Something is to go wrong with a filter unit.
    pub(super) fn order(&self, unit: u16, fault: &Fault) {
        match fault.kind {
            FaultKind::FilterDies => _ = self.notes().dying.insert(unit),
            kind => self.notes().orders.push_back((unit, kind, fault.count())),
        }
    }

    /// What goes wrong at an event that a process begins now. An order for its filter unit is for this event from now on.
    fn mishap(&self, unit: u16, key: EventKey) -> Option<FaultKind> {
        let mut notes = self.notes();
        if let Some(index) = notes.orders.iter().position(|order| order.0 == unit)
            && !notes.mishaps.contains_key(&key)
            && let Some((_, kind, times)) = notes.orders.remove(index)
        {
            notes.mishaps.insert(key, (kind, times));
        }
        let (kind, times) = notes.mishaps.get_mut(&key)?;
        *times = times.checked_sub(1)?;
        Some(*kind)
    }
}

/// A process of a filter unit.
#[derive(Default)]
struct Process {
    ready_at: Instant,
    is_ready: bool,
    /// When it has decided on the first event that it has.
    due: Instant,
    hangs: bool,
    /// It has taken too long over the first event that it has, and decides on it now.
    is_late: bool,
    ends_at: Option<Instant>,
    /// It was ordered to end, or has answered wrongly: nothing that it does from then on counts.
    is_condemned: bool,
    decided: u64,
}

/// An event that a process has.
#[derive(Copy, Clone)]
pub(super) struct Given {
    pub(super) slot: u32,
    pub(super) key: EventKey,
    pub(super) attempt: Attempt,
    /// A sum of the bytes of its fragments.
    pub(super) sum: u64,
}

/// What a process says of an event.
#[derive(Copy, Clone)]
enum Word {
    Decision,
    Undecided,
    Lie,
}

/// A filter unit: the process of a builder unit, or of a filter node.
pub(super) struct FilterUnit {
    filters: Filters,
    board: Board,
    index: u16,
    now: Instant,
    process: Option<Process>,
    has: VecDeque<Given>,
    /// What was not taken.
    said: VecDeque<(Given, Word)>,
}

impl FilterUnit {
    pub(super) fn new(filters: &Filters, board: &Board, index: u16) -> Self {
        let (now, process, has, said) = (Instant::ZERO, None, VecDeque::new(), VecDeque::new());
        Self { filters: filters.clone(), board: board.clone(), index, now, process, has, said }
    }

    /// What its process has is what the builder unit must keep, unless it is on another machine.
    fn show(&self) {
        if self.filters.is_remote {
            return;
        }
        let has = self.has.iter().map(|given| (given.slot, given.key)).collect();
        self.board.notes().has.insert(self.index, has);
    }

    /// Takes an event.
    pub(super) fn give(&mut self, now: Instant, given: Given) {
        if let (true, Some(process)) = (self.has.is_empty(), &mut self.process) {
            process.due = now.after(self.filters.each);
        }
        self.has.push_back(given);
        self.show();
    }

    /// Its process ends over the event that it has first, or over this one, to which it gave a wrong answer.
    fn condemn(&mut self, lied: Option<EventKey>) {
        let Some(process) = self.process.as_mut().filter(|process| !process.is_condemned) else { return };
        process.is_condemned = true;
        if let Some(key) = lied.or_else(|| self.has.front().map(|given| given.key)) {
            *self.board.notes().blamed.entry(key).or_default() += 1;
        }
    }

    /// Works until `now`.
    fn work(&mut self, now: Instant) {
        while let (Some(process), Some(&given)) = (self.process.as_mut(), self.has.front()) {
            let is_over = process.ends_at.is_some_and(|end| end <= process.due);
            if process.hangs || is_over || now < process.due {
                return;
            }
            let mishap = if process.is_late { None } else { self.board.mishap(self.index, given.key) };
            let word = match mishap {
                Some(FaultKind::FilterCrashes) => {
                    process.ends_at = Some(process.due);
                    continue;
                }
                Some(FaultKind::FilterHangs) => {
                    process.hangs = true;
                    continue;
                }
                Some(FaultKind::FilterLate) => {
                    (process.due, process.is_late) = (process.due.after(TIMEOUT + DYING / 2), true);
                    continue;
                }
                Some(FaultKind::FilterLies) => Word::Lie,
                Some(_) => Word::Undecided,
                None => Word::Decision,
            };
            (process.due, process.is_late) = (process.due.after(self.filters.each), false);
            process.decided += 1;
            let counts = !process.is_condemned;
            let mut notes = self.board.notes();
            match word {
                Word::Decision if counts => _ = notes.decided.insert((given.key, given.attempt), given.sum),
                Word::Undecided if counts => _ = notes.undecided.insert(given.key),
                _ => {}
            }
            drop(notes);
            self.has.pop_front();
            self.said.push_back((given, word));
            self.show();
        }
    }
}

impl FilterLink for FilterUnit {
    fn start(&mut self) {
        self.board.notes().had_two |= self.process.is_some();
        self.has.clear();
        self.said.clear();
        self.process = Some(Process { ready_at: self.now.after(self.filters.start), ..Process::default() });
    }

    fn kill(&mut self) {
        let at = self.now.after(DYING);
        self.process.iter_mut().for_each(|process| process.ends_at = Some(at));
        self.condemn(None);
    }

    fn begin(&mut self, _: RunNumber) {}

    fn end(&mut self) {}

    fn look(&mut self, now: Instant) -> FilterSight {
        self.now = now;
        self.work(now);
        let dies = self.board.notes().dying.remove(&self.index);
        let Some(process) = &mut self.process else { return FilterSight::default() };
        let has_ended = dies || process.ends_at.is_some_and(|at| now >= at);
        let is_ready = !has_ended && !process.is_ready && now >= process.ready_at;
        process.is_ready |= is_ready;
        let decided = process.decided;
        if has_ended {
            self.condemn(None);
            self.process = None;
            self.has.clear();
            self.show();
        }
        FilterSight { is_ready, has_ended, granted: decided + self.filters.credit, decided, ..FilterSight::default() }
    }

    fn offer(&mut self, slot: u32, event: &EventView<'_>) -> Offered {
        if self.has.len() >= ROOM {
            return Offered::Full;
        }
        let pieces = event.fragments().map(|fragment| (fragment.meta.source, fragment.payload.pieces()));
        let sum = pieces.fold(0, |sum, (source, pieces)| sum_of(sum, source, pieces.flatten().copied()));
        self.give(self.now, Given { slot, key: event.key, attempt: event.attempt, sum });
        Offered::Taken
    }

    fn flush(&mut self) {}

    fn next_decision(&mut self, into: &mut Said) -> Option<Result<UnitDecision, NotBelieved>> {
        let (Given { slot, key, .. }, word) = self.said.pop_front()?;
        if let Word::Lie = word {
            self.condemn(Some(key));
            return Some(Err(NotBelieved));
        }
        into.clear();
        into.result.extend(Filters::result(key.number()));
        let decision = matches!(word, Word::Decision).then(|| self.filters.decision(key.number()));
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

/// A sum that differs where sources, lengths or bytes differ.
pub(super) fn sum_of(sum: u64, source: SourceId, bytes: impl Iterator<Item = u8>) -> u64 {
    let add = |sum: u64, byte| (sum.rotate_left(9) ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bytes.fold(mixed(sum, u64::from(source.0), 1), add)
}

impl World {
    /// Something is to go wrong with a filter unit; false if its builder unit is dead.
    pub(super) fn trouble_filter(&mut self, fault: &Fault) -> bool {
        let Place::Filter(builder, unit) = fault.place() else { return false };
        let node = &mut self.builders[usize::from(builder)];
        let is_up = node.machine.is_some();
        if is_up {
            self.boards[usize::from(builder)].order(unit, fault);
            node.wake();
            self.filter_nodes.iter_mut().for_each(|node| node.wake());
        }
        is_up
    }

    /// With filters each event in a file has its decision and the filter's result, as a filter made them from the bytes that are there. An
    /// event was set aside only if its filter could not decide or two processes ended over it, or none was left to decide.
    pub(super) fn compare_decision(&self, writer: u16, event: &run_file::EventView<'_>) -> Result<(), Broken> {
        let (key, is_aside) = (event.key(), event.head().flags.contains(EventFlags::QUARANTINED));
        let said = event.fragments().find(|fragment| fragment.entry.source == SourceId::FILTER);
        let said = said.map(|said| FilterResult::decode(said.payload)).transpose();
        let (filters, said, own) = match (&self.scenario.filters, said) {
            (None, Ok(None)) => return ensure!(Content, !is_aside; "event {key} is set aside, and there is no filter"),
            (Some(filters), Ok(Some((said, own)))) => (filters, said, own),
            (_, said) => return ensure!(Content, false; "event {key} is in a file with the decision {said:?}"),
        };
        let notes = self.boards[usize::from(writer)].notes();
        if said.verdict == Verdict::Quarantined {
            let blamed = notes.blamed.get(&key).copied().unwrap_or_default() + notes.lost_connections;
            let is_failed = filters.restarts < MANY_RESTARTS || blamed >= 2 || notes.undecided.contains(&key);
            return ensure!(Content, is_aside && own.is_empty() && is_failed;
                "event {key} was set aside ({is_aside}, {own:?}), and {blamed} processes ended over it");
        }
        let decision = filters.decision(key.number());
        let is_right = !is_aside
            && decision.accept
            && (said.verdict, said.triggers) == (Verdict::Accepted, decision.triggers)
            && own.iter().copied().eq(Filters::result(key.number()));
        ensure!(Content, is_right; "event {key} is in a file, set aside {is_aside}, with {said:?} and {own:?}")?;
        let pieces = event.fragments().filter(|fragment| fragment.entry.source != SourceId::FILTER);
        let sum = pieces.fold(0, |sum, one| sum_of(sum, one.entry.source, one.payload.iter().copied()));
        let seen = notes.decided.get(&(key, event.head().attempt)).copied();
        ensure!(Content, seen == Some(sum); "event {key}: its filter decided on {seen:?}, and {sum} is in the file")
    }

    /// What the process of a filter unit has is not used for another event before that process has ended, and each filter unit has one.
    pub(super) fn watch_filters(&self) -> Result<(), Broken> {
        for (node, board) in self.builders.iter().zip(&self.boards) {
            let Some(builder) = node.machine() else { continue };
            let (notes, place) = (board.notes(), node.around.place);
            ensure!(Bounds, !notes.had_two; "{place}: a filter unit had two processes at once")?;
            for &(slot, key) in notes.has.values().flatten() {
                let found = builder.machine().event(slot).key;
                ensure!(Content, found == key;
                    "{place}: a filter unit has event {key} in slot {slot}, where event {found} is now")?;
            }
        }
        Ok(())
    }
}
