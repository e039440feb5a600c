//! What stands for a filter unit's process.

use super::super::content::mixed;
use super::scenario::{Mishap, Scenario, TIMEOUT};
use ropewalk_flow::builder::EventView;
use ropewalk_flow::filter::{Fill, HistogramShape};
use ropewalk_node::drive::{FilterLink, FilterSight, NotBelieved, Offered, Said, UnitDecision};
use ropewalk_terms::{EventKey, Instant, RunNumber};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long it takes until a process that was killed has ended; it works on meanwhile.
const DYING: Duration = Duration::from_millis(3);
/// Events for which there is room, whatever was granted.
const ROOM: usize = 15;

/// Everything that happened to all filter units, for the digest and the referee.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) digest: u64,
    /// How often each event went wrong.
    wrong: BTreeMap<u64, u8>,
    /// By unit: what its process has, and may look at.
    pub(super) has: BTreeMap<u16, Vec<(u32, EventKey)>>,
    /// Events on which a process decided before it was ordered to end.
    pub(super) decided: BTreeSet<u64>,
    /// Processes of one unit that were there at once, at most.
    pub(super) most_at_once: usize,
    /// Connections to filter nodes that were lost while a process was behind them.
    pub(super) lost_connections: usize,
}

impl Notes {
    /// Those of all who share them.
    pub(super) fn of(shared: &Arc<Mutex<Self>>) -> MutexGuard<'_, Self> {
        shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Process {
    ready_at: Instant,
    is_ready: bool,
    /// When it has decided on the first event that it has.
    due: Instant,
    hangs: bool,
    /// It has taken too long over the first event that it has, and decides on it now.
    is_late: bool,
    ends_at: Option<Instant>,
    is_condemned: bool,
    decided: u64,
}

/// See the module's text.
pub(super) struct SimulatedUnit {
    scenario: Scenario,
    index: u16,
    deaths: Vec<Instant>,
    now: Instant,
    process: Option<Process>,
    has: VecDeque<(u32, EventKey)>,
    /// Decisions that were not taken; none where it lies.
    said: VecDeque<(u32, Option<u64>)>,
    histograms: Vec<HistogramShape>,
    notes: Arc<Mutex<Notes>>,
}

impl SimulatedUnit {
    pub(super) fn new(scenario: &Scenario, index: u16, notes: Arc<Mutex<Notes>>) -> Self {
        let own = scenario.deaths.iter().filter(|(_, unit)| *unit == index);
        let mut deaths: Vec<Instant> = own.map(|(death, _)| Instant::ZERO.after(*death)).collect();
        deaths.sort_by(|one, other| other.cmp(one));
        Self {
            scenario: scenario.clone(),
            index,
            deaths,
            now: Instant::ZERO,
            process: None,
            has: VecDeque::new(),
            said: VecDeque::new(),
            histograms: vec![scenario.histogram()],
            notes,
        }
    }

    fn note(&self, what: u64) {
        let mut notes = Notes::of(&self.notes);
        notes.digest = mixed(notes.digest, what + 10 * u64::from(self.index), self.now.as_nanoseconds());
    }

    /// What its process has lies with the builder unit, unless it is elsewhere.
    fn show(&self) {
        if self.scenario.lines.is_some() {
            return;
        }
        Notes::of(&self.notes).has.insert(self.index, self.has.iter().copied().collect());
    }

    /// What happens at an event this time.
    fn mishap(&self, event: u64) -> Option<Mishap> {
        let mishap = *self.scenario.mishaps.get(&event)?;
        let mut notes = Notes::of(&self.notes);
        let before = notes.wrong.entry(event).or_default();
        if *before >= mishap.times() {
            return None;
        }
        *before += 1;
        Some(mishap)
    }

    /// It is given an event.
    pub(super) fn give(&mut self, slot: u32, key: EventKey) {
        if self.has.is_empty() {
            let due = self.now.after(self.scenario.each);
            self.process.iter_mut().for_each(|process| process.due = due);
        }
        self.has.push_back((slot, key));
        self.show();
    }

    /// Works until `now`.
    fn work(&mut self, now: Instant) {
        loop {
            let Some(&(slot, key)) = self.has.front() else { return };
            let Some(process) = &self.process else { return };
            let end = process.ends_at.unwrap_or(Instant::FAR_FUTURE);
            if process.hangs || now < process.due || end <= process.due {
                return;
            }
            let (due, is_late) = (process.due, process.is_late);
            let mishap = if is_late { None } else { self.mishap(key.number()) };
            let process = self.process.as_mut().expect("it was looked at above");
            match mishap {
                Some(Mishap::Crash(_)) => {
                    process.ends_at = Some(due);
                    return self.note(1);
                }
                Some(Mishap::Hang(_)) => {
                    process.hangs = true;
                    return self.note(2);
                }
                Some(Mishap::Slow(_)) => {
                    (process.due, process.is_late) = (due.after(TIMEOUT + DYING / 2), true);
                    self.note(6);
                    continue;
                }
                _ => {}
            }
            (process.due, process.is_late) = (due.after(self.scenario.each), false);
            process.decided += 1;
            if !process.is_condemned {
                Notes::of(&self.notes).decided.insert(key.number());
            }
            self.has.pop_front();
            let said = if matches!(mishap, Some(Mishap::Lie(_))) { None } else { Some(key.number()) };
            self.said.push_back((slot, said));
            self.show();
        }
    }
}

impl FilterLink for SimulatedUnit {
    fn start(&mut self) {
        self.note(3);
        let mut notes = Notes::of(&self.notes);
        notes.most_at_once = notes.most_at_once.max(1 + usize::from(self.process.is_some()));
        drop(notes);
        self.has.clear();
        self.said.clear();
        let ready_at = self.now.after(self.scenario.start);
        let due = Instant::ZERO;
        let (is_ready, hangs, is_late) = (false, false, false);
        let (is_condemned, ends_at, decided) = (false, None, 0);
        self.process = Some(Process { ready_at, is_ready, due, hangs, is_late, ends_at, is_condemned, decided });
    }

    fn kill(&mut self) {
        self.note(4);
        let at = self.now.after(DYING);
        self.process.iter_mut().for_each(|process| (process.ends_at, process.is_condemned) = (Some(at), true));
    }

    fn begin(&mut self, _: RunNumber) {}

    fn end(&mut self) {}

    fn look(&mut self, now: Instant) -> FilterSight {
        self.now = now;
        self.work(now);
        if self.deaths.pop_if(|death| now >= *death).is_some() {
            self.note(5);
            self.process.iter_mut().for_each(|process| process.ends_at = Some(now));
        }
        let Some(process) = &mut self.process else { return FilterSight::default() };
        let has_ended = process.ends_at.is_some_and(|at| now >= at);
        let is_ready = !has_ended && !process.is_ready && now >= process.ready_at;
        process.is_ready |= is_ready;
        let decided = process.decided;
        if has_ended {
            self.process = None;
            self.has.clear();
            self.show();
        }
        FilterSight { is_ready, has_ended, granted: decided + self.scenario.credit, decided }
    }

    fn offer(&mut self, slot: u32, event: &EventView<'_>) -> Offered {
        if self.has.len() >= ROOM {
            return Offered::Full;
        }
        self.give(slot, event.key);
        Offered::Taken
    }

    fn flush(&mut self) {}

    fn histograms(&self) -> &[HistogramShape] {
        &self.histograms
    }

    fn next_decision(&mut self, into: &mut Said) -> Option<Result<UnitDecision, NotBelieved>> {
        let (slot, said) = self.said.pop_front()?;
        let Some(event) = said else { return Some(Err(NotBelieved)) };
        into.clear();
        into.result.extend(self.scenario.result(event));
        into.fills.push(Fill { histogram: 0, value: event as f64 });
        let is_undecided = self.scenario.mishaps.get(&event) == Some(&Mishap::Undecided);
        let decision = (!is_undecided).then(|| self.scenario.decision(event));
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
