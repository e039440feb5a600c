//! The state machine: rows in, verdicts out.

use super::search::{Assessment, Comparer, Scene, Search, Step, WITNESSES, Witness};
use super::{Change, Config, ConfigError, Doubt, Observation, REACH, SourceConfig, Status, Verdict};
use ropewalk_terms::{Cause, EventKey, SourceId};
use std::collections::VecDeque;

/// Events between two checks of a source. Sources take turns, so that the work is spread over the events.
const CHECK_UP_EVERY: u64 = 32;
/// Comparisons that a check needs; it waits for them if fragments are missing.
const ENOUGH: u32 = 16;
/// A source is in doubt if one in this many comparisons fails: an error rate of 1 % rarely does that.
const DOUBT_SHARE: u32 = 8;
/// Comparisons in doubt after which a source is lost. The largest offset is found after about 100.
const LOST_AFTER: u32 = 128;
/// Checks without comparisons after which the verdict is withdrawn.
const SILENT: u16 = 32;
/// Rows that may be read for sources in doubt, for each event.
const BUDGET: u32 = 1024;
/// The least part of the budget that an assessment takes.
const ASSESSMENT: u32 = 64;
/// Events that pass during a search: the history must be this much longer than the window.
const SLACK: usize = 50;

/// Watches whether sources slip against the reference. See the [module's page](super).
#[derive(Debug)]
pub struct Synchrony {
    config: Config,
    configured_reference: Option<usize>,
    reference: Option<usize>,
    /// Events in a row without the reference.
    reference_missing: usize,
    history: History,
    /// The row of the event seen before.
    previous: Option<Place>,
    events: u64,
    watches: Vec<Watch>,
    standings: Vec<Standing>,
    /// Whether any source needs more than [`compare_row`].
    any_displaced: bool,
    /// Sources that wait for an assessment. Never longer than the list of sources.
    waiting: VecDeque<usize>,
    search: Option<Search>,
    /// Sources whose verdict changed and was not reported yet. Never longer than the list of sources.
    changed: VecDeque<usize>,
}

impl Synchrony {
    /// Creates a machine for these sources. Allocates everything that it will ever need: for each source 16 bytes for
    /// each event of about twice the window.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let reference = config.check()?;
        let sources = config.sources.len();
        let depth = usize::from(config.window) + REACH as usize + SLACK;
        let mut machine = Self {
            configured_reference: reference,
            reference: None,
            reference_missing: 0,
            history: History::new(sources, depth),
            previous: None,
            events: 0,
            watches: config.sources.iter().map(|own| Watch::new(Comparer::new(own, own, config.orbit))).collect(),
            standings: vec![Standing::new(); sources],
            any_displaced: false,
            waiting: VecDeque::with_capacity(sources),
            search: None,
            changed: VecDeque::with_capacity(sources),
            config,
        };
        if let Some(reference) = reference {
            machine.refer_to(reference);
        }
        Ok(machine)
    }

    /// Takes the observations of all sources of an event, in the order of the configuration. A source without a
    /// fragment in this event, or masked, is [`Observation::MISSING`].
    ///
    /// Events may come with gaps and somewhat out of order. The work for one event is bounded.
    pub fn observe(&mut self, key: EventKey, observations: &[Observation]) {
        let Some(place) = self.history.insert(key, observations) else { return };
        self.events += 1;
        let before = self.previous.replace(place);
        let Some(reference) = self.choose_reference(observations) else { return };
        let (row, before) = self.history.row_and(place, before);
        compare_row(&mut self.watches, row, before, reference);
        if self.any_displaced {
            self.follow_displaced(key, reference, observations);
        }
        let turn = (self.events % CHECK_UP_EVERY) as usize;
        for source in (turn..self.watches.len()).step_by(CHECK_UP_EVERY as usize) {
            self.check_up(source, reference, key);
        }
        if !self.waiting.is_empty() || self.search.is_some() {
            self.work(reference, BUDGET);
        }
    }

    /// Returns the next changed verdict. A source that changed twice since then is reported once, with its present
    /// verdict.
    pub fn poll(&mut self) -> Option<Change> {
        let source = self.changed.pop_front()?;
        let standing = &mut self.standings[source];
        standing.untold = false;
        let &mut Standing { verdict, since, at, .. } = standing;
        let action = verdict.is_displaced().then_some(self.config.action);
        Some(Change { source: self.config.sources[source].source, verdict, since, at, action })
    }

    /// Judges what there is at the end of a run, without waiting for more events.
    pub fn conclude(&mut self) {
        let (Some(reference), Some(newest)) = (self.reference, self.history.newest()) else { return };
        self.work(reference, u32::MAX);
        for source in 0..self.watches.len() {
            self.check_up(source, reference, newest);
            self.enqueue(source);
        }
        self.work(reference, u32::MAX);
    }

    /// The cause with which fragments of the source at this place of the configuration are flagged now.
    pub fn cause(&self, source: usize) -> Option<Cause> {
        self.standings.get(source)?.verdict.cause()
    }

    /// Whether any source is displaced now; if not, no source has a [cause](Self::cause).
    pub const fn any_displaced(&self) -> bool {
        self.any_displaced
    }

    /// The source that the others are compared with, if one was found.
    pub fn reference(&self) -> Option<SourceId> {
        self.reference.map(|reference| self.config.sources[reference].source)
    }

    /// The capacity of the lists, which must never change.
    #[cfg(test)]
    pub(super) fn room(&self) -> [usize; 2] {
        [self.waiting.capacity(), self.changed.capacity()]
    }

    /// The status of each source, in the order of the configuration, for the summary.
    pub fn statuses(&self) -> impl Iterator<Item = Status> + '_ {
        self.config.sources.iter().zip(&self.standings).enumerate().map(|(place, (source, standing))| Status {
            source: source.source,
            is_reference: self.reference == Some(place),
            verdict: standing.verdict,
            since: standing.since,
            displaced_events: standing.displaced_events,
            disagreements: standing.disagreements,
            displacements: standing.displacements,
            first_displaced: standing.first_displaced,
            stuck_bits: standing.stuck_bits,
        })
    }

    /// Chooses the configured reference, or else the first source with a key; another one if that is silent for longer
    /// than the history.
    fn choose_reference(&mut self, observations: &[Observation]) -> Option<usize> {
        if self.configured_reference.is_some() {
            return self.configured_reference;
        }
        if let Some(reference) = self.reference {
            if observations.get(reference).is_some_and(|seen| !seen.is_missing()) {
                self.reference_missing = 0;
                return Some(reference);
            }
            self.reference_missing += 1;
            if self.reference_missing < self.history.depth() {
                return Some(reference);
            }
        }
        let first = observations.iter().take(self.watches.len()).position(|seen| !seen.is_missing());
        if let Some(first) = first {
            self.refer_to(first);
        }
        self.reference
    }

    /// Compares with another source from now on.
    fn refer_to(&mut self, reference: usize) {
        self.reference = Some(reference);
        self.reference_missing = 0;
        self.search = None;
        self.waiting.clear();
        let referred: SourceConfig = self.config.sources[reference];
        for (place, own) in self.config.sources.iter().enumerate() {
            self.watches[place] = Watch::new(Comparer::new(own, &referred, self.config.orbit));
            let standing = &mut self.standings[place];
            let had_verdict = standing.verdict != Verdict::CannotTell(Doubt::TooFew);
            standing.start_again();
            standing.busy = false;
            if had_verdict && !standing.untold {
                standing.untold = true;
                self.changed.push_back(place);
            }
        }
        self.any_displaced = false;
    }

    /// Compares displaced sources with the history, and counts displaced fragments.
    fn follow_displaced(&mut self, key: EventKey, reference: usize, observations: &[Observation]) {
        for source in 0..self.watches.len() {
            if self.standings[source].verdict.is_displaced() {
                let seen = observations.get(source).is_some_and(|own| !own.is_missing());
                self.standings[source].displaced_events += u64::from(seen);
            }
            let Mode::Displaced(witness) = self.watches[source].mode else { continue };
            let offset = i64::from(self.watches[source].offset);
            // An early source waits for the reference's event; that of a late one is in the history.
            let own = shifted(key, -offset.max(0));
            if let Some(agreed) = self.scene(source, reference, key).pairing(witness, offset).agrees(own) {
                self.history.note(own, source, agreed);
                self.watches[source].count(agreed);
            }
        }
    }

    /// Evaluates the comparisons since the last check, and requests an assessment if one is due.
    fn check_up(&mut self, source: usize, reference: usize, key: EventKey) {
        let (watch, standing) = (&mut self.watches[source], &mut self.standings[source]);
        if source == reference || standing.busy {
            return;
        }
        if watch.mode == Mode::Idle {
            if standing.has_rested() {
                self.enqueue(source);
            }
            return;
        }
        if watch.compared < ENOUGH {
            standing.silent += 1;
            if standing.silent >= SILENT {
                standing.silent = 0;
                self.fall_silent(source, key);
            }
            return;
        }
        let (compared, disagreed) = (core::mem::take(&mut watch.compared), core::mem::take(&mut watch.disagreed));
        standing.silent = 0;
        standing.disagreements += u64::from(disagreed);
        let doubtful = disagreed * DOUBT_SHARE >= compared;
        standing.doubtful = if doubtful { standing.doubtful.saturating_add(compared) } else { 0 };
        let at_once = if doubtful { standing.fruitless == 0 } else { standing.verdict == Verdict::Lost };
        if at_once || standing.has_rested() {
            self.enqueue(source);
        }
    }

    /// Withdraws the verdict of a source without data, unless it is displaced.
    fn fall_silent(&mut self, source: usize, key: EventKey) {
        if matches!(self.standings[source].verdict, Verdict::InSync) {
            self.watches[source].mode = Mode::Idle;
            self.decide(source, Verdict::CannotTell(Doubt::TooFew), key, key);
        }
    }

    fn enqueue(&mut self, source: usize) {
        let standing = &mut self.standings[source];
        if !standing.busy && self.reference != Some(source) {
            standing.busy = true;
            self.waiting.push_back(source);
        }
    }

    /// Assesses and searches until the budget is spent or no source waits.
    fn work(&mut self, reference: usize, mut budget: u32) {
        while budget > 0 {
            if let Some(mut search) = self.search.take() {
                let source = search.source();
                let Some(newest) = self.history.newest() else { return };
                let step = search.step(&self.scene(source, reference, newest), &mut budget);
                if matches!(step, Step::More) {
                    self.search = Some(search);
                } else {
                    self.standings[source].busy = false;
                    self.conclude_search(source, step, newest);
                }
            } else if let Some(source) = self.waiting.pop_front() {
                budget = budget.saturating_sub(ASSESSMENT);
                self.assess(source, reference);
            } else {
                return;
            }
        }
    }

    fn scene(&self, source: usize, reference: usize, newest: EventKey) -> Scene<'_> {
        Scene {
            history: &self.history,
            watch: &self.watches[source],
            standing: &self.standings[source],
            source,
            reference,
            newest,
            window: self.config.window.into(),
        }
    }

    /// Assesses the offset of a source, and begins a search if it is not the one it is watched at.
    fn assess(&mut self, source: usize, reference: usize) {
        let Some(newest) = self.history.newest() else { return };
        let assessment = self.scene(source, reference, newest).assess();
        self.standings[source].busy = false;
        match assessment {
            Assessment::TooFew => self.standings[source].tire(),
            Assessment::NoInformation(witness) => self.cannot_tell(source, witness, newest),
            Assessment::Stands { witness, offset, clock, stuck, contradicted } => {
                let (watch, standing) = (&mut self.watches[source], &mut self.standings[source]);
                watch.comparer.clock = clock.unwrap_or(watch.comparer.clock);
                watch.comparer.ignore(witness, stuck);
                standing.stuck_bits |= stuck;
                for (distrusted, contradicted) in standing.distrusted.iter_mut().zip(contradicted) {
                    *distrusted |= contradicted;
                }
                let stood_there = standing.is_at(offset);
                let pairing = self.scene(source, reference, newest).pairing(witness, offset.into());
                let since = if stood_there { newest } else { pairing.agreement_began(newest) };
                self.settle(source, witness, offset, since, newest);
            }
            Assessment::Elsewhere { denying } => {
                let search = Search::new(&self.scene(source, reference, newest), denying);
                let standing = &mut self.standings[source];
                if self.watches[source].mode == Mode::Idle {
                    standing.doubtful = standing.doubtful.saturating_add(CHECK_UP_EVERY as u32);
                }
                standing.busy = true;
                self.search = Some(search);
            }
        }
    }

    /// Records that the triggers are too regular. A known displacement stays known; the source is watched as well as
    /// possible.
    fn cannot_tell(&mut self, source: usize, witness: Option<Witness>, newest: EventKey) {
        let (watch, standing) = (&mut self.watches[source], &mut self.standings[source]);
        standing.reassure();
        if let Some(witness) = witness
            && watch.mode == Mode::Idle
            && (witness != Witness::Time || watch.comparer.clock.is_known())
        {
            watch.follow(witness, 0);
        }
        if matches!(self.standings[source].verdict, Verdict::InSync | Verdict::CannotTell(_)) {
            self.decide(source, Verdict::CannotTell(Doubt::NoInformation), newest, newest);
        }
    }

    fn conclude_search(&mut self, source: usize, step: Step, newest: EventKey) {
        match step {
            Step::More => {}
            Step::Found { witness, offset, since, clock } => {
                let comparer = &mut self.watches[source].comparer;
                comparer.clock = clock.unwrap_or(comparer.clock);
                self.settle(source, witness, offset, since, newest);
            }
            Step::Nothing => {
                let standing = &mut self.standings[source];
                standing.tire();
                if standing.doubtful < LOST_AFTER {
                    return;
                }
                if !standing.was_related {
                    return self.decide(source, Verdict::CannotTell(Doubt::NoRelation), newest, newest);
                }
                let since = self.disagreement_began(source, newest);
                self.decide(source, Verdict::Lost, since, newest);
            }
        }
    }

    /// Records the offset of a source: its verdict, and where it is watched from now on.
    fn settle(&mut self, source: usize, witness: Witness, offset: i16, since: EventKey, at: EventKey) {
        let watch = &mut self.watches[source];
        if watch.witness() != Some(witness) || watch.offset != offset {
            watch.follow(witness, offset);
        }
        let standing = &mut self.standings[source];
        standing.was_related = true;
        standing.reassure();
        let verdict = if offset == 0 { Verdict::InSync } else { Verdict::Offset(offset) };
        self.decide(source, verdict, since, at);
    }

    fn decide(&mut self, source: usize, verdict: Verdict, since: EventKey, at: EventKey) {
        let standing = &mut self.standings[source];
        if !standing.decide(verdict, since, at) {
            return;
        }
        if !standing.untold {
            standing.untold = true;
            self.changed.push_back(source);
        }
        let displaced = |(standing, watch): (&Standing, &Watch)| {
            standing.verdict.is_displaced() || matches!(watch.mode, Mode::Displaced(_))
        };
        self.any_displaced = self.standings.iter().zip(&self.watches).any(displaced);
    }

    /// The first event since which disagreements outnumber agreements, as far as the history reaches.
    fn disagreement_began(&self, source: usize, newest: EventKey) -> EventKey {
        let (mut balance, mut worst, mut since) = (0, 0, newest);
        for back in 0..self.history.depth() as i64 {
            let key = shifted(newest, -back);
            match self.history.get(key, source).and_then(Observation::noted) {
                Some(false) => balance += 1,
                Some(true) => balance -= 1,
                None => {}
            }
            if balance > worst {
                (worst, since) = (balance, key);
            }
        }
        since
    }
}

/// The most checks between two searches without result; the pause doubles each time.
const LONGEST_REST: u16 = 32;
/// Checks between two certifications of a source that is not in doubt.
const CERTIFY_EVERY: u16 = 32;

/// The state of a source.
#[derive(Copy, Clone, Debug)]
pub(super) struct Standing {
    pub(super) verdict: Verdict,
    pub(super) since: EventKey,
    pub(super) at: EventKey,
    /// Whether it ever agreed with this reference: only then can it be lost.
    was_related: bool,
    /// Kinds of key that are no longer used, because a weaker kind proved them wrong. Indexed by witness.
    distrusted: [bool; WITNESSES.len()],
    /// Comparisons made since agreement fell.
    doubtful: u32,
    /// Searches in a row without result.
    pub(super) fruitless: u16,
    /// Checks to wait before the next job.
    rest: u16,
    /// Checks in a row without enough comparisons.
    silent: u16,
    /// Whether a job is waiting or running.
    busy: bool,
    /// Whether the change of verdict still has to be reported.
    untold: bool,
    pub(super) stuck_bits: u32,
    pub(super) displaced_events: u64,
    pub(super) disagreements: u64,
    pub(super) displacements: u32,
    pub(super) first_displaced: Option<(Verdict, EventKey)>,
}

impl Standing {
    pub(super) const fn new() -> Self {
        Self {
            verdict: Verdict::CannotTell(Doubt::TooFew),
            since: EventKey::MIN,
            at: EventKey::MIN,
            was_related: false,
            distrusted: [false; WITNESSES.len()],
            doubtful: 0,
            fruitless: 0,
            rest: 0,
            silent: 0,
            busy: false,
            untold: false,
            stuck_bits: 0,
            displaced_events: 0,
            disagreements: 0,
            displacements: 0,
            first_displaced: None,
        }
    }

    /// Forgets what was known relative to the old reference; the counts stay.
    const fn start_again(&mut self) {
        *self = Self {
            displaced_events: self.displaced_events,
            disagreements: self.disagreements,
            displacements: self.displacements,
            first_displaced: self.first_displaced,
            busy: self.busy,
            untold: self.untold,
            ..Self::new()
        };
    }

    /// Whether this kind of key is used.
    pub(super) const fn trusts(&self, witness: Witness) -> bool {
        !self.distrusted[witness as usize]
    }

    /// Whether the verdict already has the source at this offset.
    pub(super) fn is_at(&self, offset: i16) -> bool {
        match self.verdict {
            Verdict::InSync => offset == 0,
            Verdict::Offset(stands_at) => offset == stands_at,
            Verdict::Lost | Verdict::CannotTell(_) => false,
        }
    }

    /// Sets a verdict; true if it is new.
    fn decide(&mut self, verdict: Verdict, since: EventKey, at: EventKey) -> bool {
        if self.verdict == verdict {
            return false;
        }
        (self.verdict, self.since, self.at) = (verdict, since, at);
        if verdict.is_displaced() {
            self.displacements += 1;
            self.first_displaced.get_or_insert((verdict, since));
        }
        true
    }

    /// Schedules the next certification: the source is at the offset at which it is watched.
    const fn reassure(&mut self) {
        (self.doubtful, self.fruitless, self.rest) = (0, 0, CERTIFY_EVERY);
    }

    /// Whether a source that is not in doubt is due for certification; counts the pause down.
    const fn has_rested(&mut self) -> bool {
        let rested = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        rested
    }

    /// Postpones the next job after one without result.
    fn tire(&mut self) {
        self.fruitless = self.fruitless.saturating_add(1);
        self.rest = match self.fruitless {
            // Large early offsets need that many events to be visible, so the first searches follow quickly.
            0..=4 => 0,
            more => (1 << (more - 4).min(6)).min(LONGEST_REST),
        };
    }
}

/// The key by which a source is compared in each event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// None: it is the reference, or no common key was found yet.
    Idle,
    /// This key, at offset 0.
    InStep(Witness),
    /// This key, at another offset: partners are in the history.
    Displaced(Witness),
}

/// The part of a source's state that every event uses.
#[derive(Copy, Clone, Debug)]
pub(super) struct Watch {
    mode: Mode,
    /// The offset at which it is watched.
    pub(super) offset: i16,
    /// Comparisons since the last check-up.
    compared: u32,
    /// How many of these failed.
    pub(super) disagreed: u32,
    pub(super) comparer: Comparer,
}

impl Watch {
    pub(super) const fn new(comparer: Comparer) -> Self {
        Self { mode: Mode::Idle, offset: 0, compared: 0, disagreed: 0, comparer }
    }

    /// Compares by `witness` at `offset` from now on.
    const fn follow(&mut self, witness: Witness, offset: i16) {
        self.mode = if offset == 0 { Mode::InStep(witness) } else { Mode::Displaced(witness) };
        self.offset = offset;
        (self.compared, self.disagreed) = (0, 0);
    }

    /// The key by which it is compared.
    pub(super) const fn witness(&self) -> Option<Witness> {
        match self.mode {
            Mode::Idle => None,
            Mode::InStep(witness) | Mode::Displaced(witness) => Some(witness),
        }
    }

    #[inline]
    pub(super) fn count(&mut self, agreed: bool) {
        self.compared += 1;
        self.disagreed += u32::from(!agreed);
    }
}

/// Compares each source that is in step with the reference in this event. `before` is the row of the previous event,
/// for intervals; it may be empty.
fn compare_row(watches: &mut [Watch], row: &mut [Observation], before: &[Observation], reference: usize) {
    let Some(&seen) = row.get(reference) else { return };
    for (index, (watch, own)) in watches.iter_mut().zip(row).enumerate() {
        let agreed = match watch.mode {
            Mode::InStep(Witness::BunchCrossing) => watch.comparer.crossings(own, &seen).map(|(own, seen)| own == seen),
            Mode::InStep(Witness::Time) => interval_agrees(&watch.comparer, (own, &seen), before, (index, reference)),
            Mode::Idle | Mode::Displaced(_) => None,
        };
        if let Some(agreed) = agreed {
            own.note(agreed);
            watch.count(agreed);
        }
    }
}

#[inline]
fn interval_agrees(
    comparer: &Comparer,
    (own, seen): (&Observation, &Observation),
    before: &[Observation],
    (source, reference): (usize, usize),
) -> Option<bool> {
    let source = comparer.interval(before.get(source)?, own)?;
    let reference = comparer.reference_interval(before.get(reference)?, seen)?;
    Some(comparer.clock.fits(source, reference))
}

/// A ring of rows. The event number gives the place of a row, so that gaps in the keys and events out of order (builder
/// units build the events they are assigned) need no search.
#[derive(Debug)]
pub(super) struct History {
    /// `places` rows of `sources` observations.
    rows: Vec<Observation>,
    keys: Vec<EventKey>,
    sources: usize,
    newest: Option<EventKey>,
}

/// A row's place in the ring.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Place(usize);

/// No event has this key: the place is free.
const FREE: EventKey = EventKey::MAX;

impl History {
    /// Creates it with room for at least `depth` events of `sources` sources.
    pub(super) fn new(sources: usize, depth: usize) -> Self {
        let places = depth.next_power_of_two();
        Self { rows: vec![Observation::MISSING; places * sources], keys: vec![FREE; places], sources, newest: None }
    }

    /// How many events fit.
    pub(super) const fn depth(&self) -> usize {
        self.keys.len()
    }

    /// The largest key seen recently.
    pub(super) const fn newest(&self) -> Option<EventKey> {
        self.newest
    }

    /// Inserts the row of an event; sources beyond the end of `observations` are missing. None if the event is older
    /// than the history.
    fn insert(&mut self, key: EventKey, observations: &[Observation]) -> Option<Place> {
        let place = self.place(key);
        if self.keys[place] != FREE && self.is_shortly_before(key, self.keys[place]) {
            return None;
        }
        self.keys[place] = key;
        if !self.newest.is_some_and(|newest| self.is_shortly_before(key, newest)) {
            self.newest = Some(key);
        }
        let row = &mut self.rows[place * self.sources..][..self.sources];
        let given = observations.len().min(row.len());
        for (own, seen) in row.iter_mut().zip(observations) {
            *own = seen.without_note();
        }
        row[given..].fill(Observation::MISSING);
        Some(Place(place))
    }

    /// The observation of `source` in the event, if the history has both.
    pub(super) fn get(&self, key: EventKey, source: usize) -> Option<&Observation> {
        let place = self.place(key);
        if self.keys[place] != key || key == FREE {
            return None;
        }
        self.rows.get(place * self.sources + source)
    }

    /// The row at a place, and another one for reading.
    fn row_and(&mut self, place: Place, other: Option<Place>) -> (&mut [Observation], &[Observation]) {
        let (start, sources) = (place.0 * self.sources, self.sources);
        let Some(other) = other.filter(|&other| other != place).map(|other| other.0 * sources) else {
            return (&mut self.rows[start..][..sources], &[]);
        };
        if other < start {
            let (low, high) = self.rows.split_at_mut(start);
            (&mut high[..sources], &low[other..][..sources])
        } else {
            let (low, high) = self.rows.split_at_mut(other);
            (&mut low[start..][..sources], &high[..sources])
        }
    }

    /// Records the result of a later comparison for an event of a source.
    pub(super) fn note(&mut self, key: EventKey, source: usize, agreed: bool) {
        let place = self.place(key);
        if self.keys[place] == key {
            self.rows[place * self.sources + source].note(agreed);
        }
    }

    /// Whether `key` came late. If it is further back, the larger key was a mistake.
    fn is_shortly_before(&self, key: EventKey, later: EventKey) -> bool {
        later.since(key).is_some_and(|events| events > 0 && events <= 2 * self.keys.len() as u64)
    }

    fn place(&self, key: EventKey) -> usize {
        key.to_bits() as usize & (self.keys.len() - 1)
    }
}

/// The key `events` later, or earlier if negative. Outside the range of a resync count no event has the key, and the
/// caller finds nothing, as intended.
pub(super) const fn shifted(key: EventKey, events: i64) -> EventKey {
    EventKey::from_bits(key.to_bits().wrapping_add_signed(events))
}
