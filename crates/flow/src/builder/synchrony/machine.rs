//! The machine: rows in, verdicts out.

use super::assess::{Assessment, Scene};
use super::comparer::{Comparer, Witness};
use super::history::{History, Place, shifted};
use super::search::{Search, Step};
use super::standing::Standing;
use super::watch::{Mode, Watch, compare_row};
use super::{Change, Config, ConfigError, Doubt, Observation, REACH, SourceConfig, Status, Verdict};
use ropewalk_terms::{Cause, EventKey, SourceId};
use std::collections::VecDeque;

/// Events between two check-ups of a source. Sources take turns, so that the work spreads over the events.
const CHECK_UP_EVERY: u64 = 32;
/// Comparisons that a check-up needs; it waits for them where fragments are missing.
const ENOUGH: u32 = 16;
/// A source is in doubt where one comparison of this many fails: an error in a hundred rarely does that.
const DOUBT_SHARE: u32 = 8;
/// Comparisons in doubt after which a source is lost. The largest offset shows itself after about 100.
const LOST_AFTER: u32 = 128;
/// Check-ups without comparisons after which nothing is said any more.
const SILENT: u16 = 32;
/// Rows that may be looked at for sources in doubt, for each event.
const BUDGET: u32 = 1024;
/// What an assessment takes of it at least.
const ASSESSMENT: u32 = 64;
/// Events that pass while a search is under way: so much older the history must be than the window.
const SLACK: usize = 50;

/// Watches whether sources slip against the reference. See the [room's page](super).
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
    /// Sources that wait to be assessed. Never longer than the list of sources.
    waiting: VecDeque<usize>,
    search: Option<Search>,
    /// Sources whose verdict changed and was not told yet. Never longer than the list of sources.
    changed: VecDeque<usize>,
}

impl Synchrony {
    /// A machine for these sources. Everything that it will ever need is allocated here: for each source 16 bytes
    /// for each event of about twice the window.
    ///
    /// # Errors
    /// Where the configuration makes no sense.
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

    /// Takes in what the sources say about an event, in the order of the configuration. A source without a fragment
    /// in this event, or masked, is [`Observation::MISSING`].
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

    /// The next verdict that changed. A source that changed twice since is told once, as it stands now.
    pub fn poll(&mut self) -> Option<Change> {
        let source = self.changed.pop_front()?;
        let standing = &mut self.standings[source];
        standing.untold = false;
        let &mut Standing { verdict, since, at, .. } = standing;
        let action = verdict.is_displaced().then_some(self.config.action);
        Some(Change { source: self.config.sources[source].source, verdict, since, at, action })
    }

    /// At the end of a run: judges what there is, without waiting for more events.
    pub fn conclude(&mut self) {
        let (Some(reference), Some(newest)) = (self.reference, self.history.newest()) else { return };
        self.work(reference, u32::MAX);
        for source in 0..self.watches.len() {
            self.check_up(source, reference, newest);
            self.enqueue(source);
        }
        self.work(reference, u32::MAX);
    }

    /// The cause that fragments of the source at this place of the configuration are flagged with now.
    pub fn cause(&self, source: usize) -> Option<Cause> {
        self.standings.get(source)?.verdict.cause()
    }

    /// Whether any source is displaced now; where not, nobody needs to be asked for a [cause](Self::cause).
    pub const fn any_displaced(&self) -> bool {
        self.any_displaced
    }

    /// The source that the others are compared with, if one was found.
    pub fn reference(&self) -> Option<SourceId> {
        self.reference.map(|reference| self.config.sources[reference].source)
    }

    /// What the lists have room for: it must never change.
    #[cfg(test)]
    pub(super) fn room(&self) -> [usize; 2] {
        [self.waiting.capacity(), self.changed.capacity()]
    }

    /// How each source stands, in the order of the configuration: the lines of the summary.
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

    /// How the reference itself seems to stand: where two or more other sources are all displaced by the same, since
    /// the same event, it is more likely the one that slipped. Its offset is theirs with the other sign.
    pub fn suspicion_of_reference(&self) -> Option<(Verdict, EventKey)> {
        let reference = self.reference?;
        let mut others = self.standings.iter().enumerate().filter_map(|(source, standing)| {
            (source != reference && standing.was_related).then_some((standing.verdict, standing.since))
        });
        let (Verdict::Offset(offset), since) = others.next()? else { return None };
        let near = shifted(since, -2)..=shifted(since, 2);
        let mut further = 0;
        for (verdict, since) in others {
            if verdict != Verdict::Offset(offset) || !near.contains(&since) {
                return None;
            }
            further += 1;
        }
        (further > 0).then_some((Verdict::Offset(-offset), since))
    }

    /// The configured reference, or the first source that shows a key; another one if it falls silent for longer
    /// than the history reaches back.
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

    /// Sources at another offset are compared with what the history holds; and what is displaced is counted.
    fn follow_displaced(&mut self, key: EventKey, reference: usize, observations: &[Observation]) {
        for source in 0..self.watches.len() {
            if self.standings[source].verdict.is_displaced() {
                let seen = observations.get(source).is_some_and(|own| !own.is_missing());
                self.standings[source].displaced_events += u64::from(seen);
            }
            let Mode::Displaced(witness) = self.watches[source].mode else { continue };
            let offset = i64::from(self.watches[source].offset);
            // An early source waits for the reference's event, a late one finds it in the past.
            let own = shifted(key, -offset.max(0));
            if let Some(agreed) = self.scene(source, reference, key).pairing(witness, offset).agrees(own) {
                self.history.note(own, source, agreed);
                self.watches[source].count(agreed);
            }
        }
    }

    /// Looks at what the comparisons since the last check-up say, and asks for an assessment where that is due.
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

    /// A source that is not seen any more cannot be said to be in sync; a displaced one stays what it was.
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

    /// Assesses and searches until the budget is spent or nobody waits.
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

    /// Asks where a source stands, and begins a search where it stands elsewhere.
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

    /// The triggers are too regular. A known displacement stays known; the source is watched as well as can be.
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

    /// The source stands at this offset: it is watched there, and that is its verdict.
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

    /// The first event of those that disagree on balance, as far as the history reaches back.
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
