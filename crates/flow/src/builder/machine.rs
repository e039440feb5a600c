//! The builder unit's state machine: its state, inputs and outputs.

use super::message::{Hints, Recent};
use super::slots::{Slot, Slots, Stage};
use super::synchrony::{Action, Config, ConfigError, Observation, Synchrony};
use super::{BuilderConfig, BuilderSource, EventView};
use crate::messages::{
    AcknowledgeEntry, Credit, Fragment, FragmentFlags, LackingEntry, LumisectionEnd, Message, ReportEntry,
    SynchronyState,
};
use crate::run_state::KnownLumisections;
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{
    AcknowledgementLevel, ByCause, Cause, Counter, EventAccount, EventKey, Instant, Outcome, Requirement, SourceId,
    Verdict,
};
use std::collections::VecDeque;

/// An action of the builder unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BuilderAction {
    /// Send a message to the event manager.
    ToManager(Message),
    /// Send a request over the data connection of a readout unit.
    ToReadout {
        /// The readout unit.
        readout: u16,
        /// The request.
        message: Message,
    },
    /// All events of a lumisection have ended, here and on all other builder units. Returned once and in order, and not
    /// before each of its events here was written or failed.
    EndLumisection(LumisectionEnd),
    /// The configured policy stops the run for this cause. Returned once per run.
    StopRun {
        /// The cause.
        cause: Cause,
    },
}

/// Counters outside the ledger.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct BuilderCounts {
    /// Answers that no event waits for, or of an older attempt: dropped.
    pub stale_answers: u64,
    /// Assignments of events that are in work or done: a newer attempt is acknowledged again.
    pub repeated_assignments: u64,
    /// Assignments beyond the granted credit: ignored.
    pub refused_assignments: u64,
    /// Messages for other kinds of nodes: ignored.
    pub refused_messages: u64,
    /// Fragments of sources that the readout unit does not have.
    pub unknown_fragments: u64,
    /// Second fragments of one source in one event.
    pub duplicate_fragments: u64,
    /// Fragments of required sources that were missing, by cause.
    pub missing: ByCause,
    /// Built events with a doubtful fragment.
    pub doubtful: u64,
    /// Events that failed to be written after their acknowledgement, at a level below `Written`.
    pub lost_after_acknowledgement: u64,
}

/// Progress of the list for a new event manager.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Told {
    pub(super) slots: u32,
    pub(super) recent: usize,
}

/// The builder unit.
#[derive(Debug)]
pub struct Builder {
    pub(super) config: BuilderConfig,
    pub(super) slots: Slots,
    pub(super) peers: Vec<ReadoutPeer>,
    /// Number of unmasked sources.
    pub(super) unmasked: u32,
    pub(super) ready: VecDeque<u32>,
    pub(super) acknowledgements: VecDeque<AcknowledgeEntry>,
    /// Entries to be sent before them: the readout units without which events were built.
    pub(super) lacking: VecDeque<LackingEntry>,
    pub(super) recent: Recent,
    pub(super) hints: Hints,
    pub(super) ledger: EventAccount,
    pub(super) counts: BuilderCounts,
    /// By source: fragments whose bunch crossing differed from the majority's, and displaced fragments.
    pub(super) mismatches: Vec<u64>,
    pub(super) displaced: Vec<u64>,
    /// Credit that was freed since the beginning.
    pub(super) freed: Credit,
    /// Freed credit and used credit at the beginning of the manager's connection.
    pub(super) freed_before: Credit,
    pub(super) used_before: Credit,
    pub(super) credit_due: bool,
    pub(super) telling: Option<Told>,
    pub(super) lumisections: KnownLumisections,
    /// Messages about lumisections for a new event manager.
    pub(super) lumisections_due: VecDeque<Message>,
    /// Finished lumisections that were not returned yet.
    pub(super) ended_lumisections: VecDeque<LumisectionEnd>,
    pub(super) stop_run: Option<Cause>,
    pub(super) stop_said: bool,
    pub(super) observer: Option<Observer>,
    pub(super) paused: Option<Cause>,
    /// Kept for its capacity, like the next one.
    reached: Vec<u32>,
    holding: Vec<u32>,
}

impl Builder {
    /// Creates a builder unit without connections and allocates all memory. A synchrony check that
    /// [`BuilderConfig::check`] refuses is left out.
    pub fn new(config: BuilderConfig) -> Self {
        let slots = config.slots.max(1);
        let count = slots as usize;
        let unmasked = |place: &usize| config.sources[*place].requirement != Requirement::Masked;
        let peers = (0..config.readouts).map(|readout| {
            let places = (0..config.sources.len()).filter(unmasked);
            let own = places.filter(|&place| config.sources[place].readout == readout);
            ReadoutPeer::new(own.map(|place| (config.sources[place].id, place as u32)).collect(), count)
        });
        let table = if is_planted(Flaw::DoneForgotten) { 0 } else { config.table as usize };
        Self {
            slots: Slots::new(slots, config.sources.len(), config.readouts),
            peers: peers.collect(),
            unmasked: (0..config.sources.len()).filter(unmasked).count() as u32,
            ready: VecDeque::with_capacity(count),
            acknowledgements: VecDeque::with_capacity(2 * count),
            lacking: VecDeque::with_capacity(2 * count),
            recent: Recent::new(2 * count + table, config.readouts),
            hints: Hints::new(count),
            ledger: EventAccount::default(),
            counts: BuilderCounts::default(),
            mismatches: vec![0; config.sources.len()],
            displaced: vec![0; config.sources.len()],
            freed: Credit::default(),
            freed_before: Credit::default(),
            used_before: Credit::default(),
            credit_due: true,
            telling: None,
            lumisections: KnownLumisections::default(),
            lumisections_due: VecDeque::new(),
            ended_lumisections: VecDeque::new(),
            stop_run: None,
            stop_said: false,
            observer: config.synchrony.clone().and_then(|synchrony| Observer::new(synchrony).ok()),
            paused: None,
            reached: Vec::with_capacity(count),
            holding: Vec::with_capacity(count),
            config,
        }
    }

    /// Returns the next action; `None` until the next input or [`Builder::next_deadline`].
    pub fn poll(&mut self, now: Instant) -> Option<BuilderAction> {
        self.give_up_on_the_silent(now);
        if let Some(cause) = self.stop_run.take() {
            return Some(BuilderAction::StopRun { cause });
        }
        if let Some(message) = self.next_message() {
            return Some(BuilderAction::ToManager(message));
        }
        if let Some((readout, message)) = self.next_request() {
            return Some(BuilderAction::ToReadout { readout, message });
        }
        self.next_ended_lumisection().map(BuilderAction::EndLumisection)
    }

    /// Emits an event and returns its slot. The caller writes it or passes it on, and reports its progress with
    /// [`Builder::reached`]. Events that the caller does not take yet wait here.
    pub fn next_event(&mut self) -> Option<u32> {
        let slot = self.ready.pop_front()?;
        self.slots.at_mut(slot).stage = Stage::Emitted;
        Some(slot)
    }

    /// Returns a lumisection that is over and has no events here any more.
    fn next_ended_lumisection(&mut self) -> Option<LumisectionEnd> {
        let number = self.ended_lumisections.front()?.number;
        let is_here = self.slots.iter().any(|(_, slot)| slot.lumisection <= number && slot.stage != Stage::Leftover);
        if is_here { None } else { self.ended_lumisections.pop_front() }
    }

    /// Number of times that an event manager began a lumisection that was over here: a successor that had not heard all
    /// builder units, or had forgotten it.
    pub const fn contradicted_lumisections(&self) -> u64 {
        self.lumisections.contradicted()
    }

    /// Returns an assigned event that is counted in the wrong lumisection. Impossible with a single event manager; a
    /// successor may disagree about where a lumisection begins.
    pub fn misplaced(&self) -> Option<EventKey> {
        let is_misplaced = |slot: &Slot| {
            let is_known = slot.stage != Stage::Leftover && slot.lumisection > self.lumisections.last_ended();
            is_known && slot.lumisection != self.lumisections.of(slot.key)
        };
        self.slots.iter().find(|(_, slot)| is_misplaced(slot)).map(|(_, slot)| slot.key)
    }

    /// Whether events of a lumisection that is over are still here.
    pub fn awaits_lumisection(&self) -> bool {
        !self.ended_lumisections.is_empty()
    }

    /// When [`Builder::poll`] must be called without further input.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.peers.iter().filter_map(|peer| peer.deadline).min()
    }

    /// Returns the announced payload bytes of an assigned event and the time since its assignment.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn size_and_age(&self, now: Instant, slot: u32) -> (u64, Duration) {
        let state = self.slots.at(slot);
        (state.bytes.into(), now.since(state.since))
    }

    /// Returns the event in an emitted slot.
    ///
    /// # Panics
    /// If this builder never emitted `slot`.
    pub fn event(&self, slot: u32) -> EventView<'_> {
        let state = self.slots.at(slot);
        EventView {
            key: state.key,
            attempt: state.attempt,
            lumisection: state.lumisection,
            complete: state.outcome == Outcome::Complete,
            sources: &self.config.sources,
            fragments: self.slots.fragments(slot),
            causes: self.slots.causes(slot),
        }
    }

    /// Records that an emitted event has reached a level. At the configured level it is acknowledged; from `Written` on
    /// its payloads are dropped.
    pub fn reached(&mut self, now: Instant, slot: u32, level: AcknowledgementLevel) {
        self.all_reached(now, [slot], level);
    }

    /// The same for several events. Dropping their payloads together costs less than one after the other.
    pub fn all_reached(&mut self, _now: Instant, slots: impl IntoIterator<Item = u32>, level: AcknowledgementLevel) {
        let mut reached = core::mem::take(&mut self.reached);
        reached.clear();
        reached.extend(slots.into_iter().filter(|&slot| self.emitted(slot).is_some()));
        if level >= AcknowledgementLevel::Written {
            self.let_go(&reached);
        }
        let enough = level >= self.config.level || is_planted(Flaw::AcknowledgedTooEarly);
        for &slot in &reached {
            // A slot that is named twice is free by now.
            if self.emitted(slot).is_none() {
                continue;
            }
            if enough && !self.slots.at(slot).acknowledged {
                self.acknowledge(slot);
            }
            let state = self.slots.at(slot);
            if state.acknowledged && !state.holds_payloads {
                self.give_back(slot);
            }
        }
        self.reached = reached;
    }

    /// Drops the remaining payloads of written events.
    fn let_go(&mut self, written: &[u32]) {
        let mut holding = core::mem::take(&mut self.holding);
        holding.clear();
        for &slot in written {
            let state = self.slots.at_mut(slot);
            if core::mem::take(&mut state.holds_payloads) {
                self.ledger.written += u64::from(state.stage == Stage::Emitted);
                holding.push(slot);
            }
        }
        self.drop_payloads(&holding);
        self.holding = holding;
    }

    /// Sets the verdict on an emitted event to write. Before that it counts as accepted.
    pub fn decided(&mut self, slot: u32, verdict: Verdict) {
        if self.emitted(slot).is_some() {
            self.slots.at_mut(slot).verdict = verdict;
        }
    }

    /// Discards emitted events that will not be written, each with its verdict: acknowledges them at any configured
    /// level, and frees their slots.
    pub fn discard(&mut self, _now: Instant, decided: impl IntoIterator<Item = (u32, Verdict)>) {
        let mut holding = core::mem::take(&mut self.holding);
        holding.clear();
        for (slot, verdict) in decided {
            let Some(state) = self.emitted(slot) else { continue };
            // A slot that is named twice is discarded once.
            if !core::mem::take(&mut self.slots.at_mut(slot).holds_payloads) {
                continue;
            }
            self.slots.at_mut(slot).verdict = verdict;
            if !state.acknowledged {
                self.acknowledge(slot);
            }
            holding.push(slot);
        }
        self.drop_payloads(&holding);
        holding.iter().for_each(|&slot| self.give_back(slot));
        self.holding = holding;
    }

    /// Returns the lowest key of the assigned events that were not emitted yet.
    pub fn oldest_unemitted(&self) -> Option<EventKey> {
        let is_waited_for = |slot: &Slot| matches!(slot.stage, Stage::Collecting | Stage::Ready);
        self.slots.iter().filter(|(_, slot)| is_waited_for(slot)).map(|(_, slot)| slot.key).min()
    }

    /// Drops an emitted event that could not be written, with this cause.
    pub fn failed(&mut self, _now: Instant, slot: u32, cause: Cause) {
        let Some(state) = self.emitted(slot) else { return };
        if !state.acknowledged {
            self.slots.at_mut(slot).outcome = Outcome::Dropped(cause);
            self.acknowledge(slot);
        } else if state.stage == Stage::Emitted {
            self.counts.lost_after_acknowledgement += 1;
        }
        if state.holds_payloads {
            self.drop_payloads(&[slot]);
        }
        self.give_back(slot);
    }

    /// Returns the slot if the caller has its event.
    fn emitted(&self, slot: u32) -> Option<Slot> {
        self.slots.get(slot).filter(|state| matches!(state.stage, Stage::Emitted | Stage::Leftover)).copied()
    }

    /// Returns the synchrony of the sources, if it is checked.
    pub fn synchrony(&self) -> Option<&Synchrony> {
        self.observer.as_ref().map(Observer::machine)
    }

    /// Why no credit is granted, if the synchrony check paused the run. Events in work continue.
    pub const fn paused(&self) -> Option<Cause> {
        self.paused
    }

    /// Grants credit again after a pause.
    pub const fn resume(&mut self) {
        self.paused = None;
        self.credit_due = true;
    }

    /// Returns the account of events since the start of the run. Events in flight are counted from the slots.
    pub fn account(&self) -> EventAccount {
        let mut account = self.ledger;
        account.in_flight = self.slots.iter().filter(|(_, slot)| !slot.acknowledged).count() as u64;
        account
    }

    /// Returns the counters outside the ledger.
    pub const fn counts(&self) -> &BuilderCounts {
        &self.counts
    }

    /// Returns the numbers for the event manager, cumulative since the start of the run.
    pub fn report(&self) -> impl Iterator<Item = ReportEntry> {
        let account = self.account();
        let refused = self.counts.stale_answers + self.counts.refused_assignments + self.counts.refused_messages;
        let counters = [
            (Counter::EventsBuilt, account.built),
            (Counter::EventsIncompleteEmitted, account.incomplete_emitted),
            (Counter::EventsAccepted, account.accepted),
            (Counter::EventsRejected, account.rejected),
            (Counter::EventsQuarantined, account.quarantined),
            (Counter::EventsUnselected, account.unselected),
            (Counter::EventsWritten, account.written),
            (Counter::EventsInFlight, account.in_flight),
            (Counter::BuilderPlaces, self.slots.len() as u64),
            (Counter::MessagesRefused, refused),
            (Counter::EventsDoubtful, self.counts.doubtful),
        ];
        let counted = counters.into_iter().map(|(counter, value)| (counter as u16, value));
        let dropped = account.incomplete_dropped;
        let causes = ropewalk_terms::CAUSES.iter().map(move |&cause| (ReportEntry::cause(cause), dropped.get(cause)));
        let causes = causes.filter(|&(_, value)| value > 0);
        let own = counted.chain(causes).map(|(what, value)| ReportEntry { source: None, what, value });
        own.chain(self.doubts())
    }

    /// Returns the doubtful fragments by source whose doubt only the whole event shows.
    fn doubts(&self) -> impl Iterator<Item = ReportEntry> {
        const SHOWN: [FragmentFlags; 2] = [FragmentFlags::BUNCH_CROSSING_MISMATCH, FragmentFlags::DISPLACED];
        SHOWN.into_iter().zip([&self.mismatches, &self.displaced]).flat_map(|(flag, counts)| {
            let by_source = self.config.sources.iter().zip(counts).filter(|&(_, &count)| count > 0);
            by_source.flat_map(move |(source, &count)| {
                flag.doubts().map(move |doubt| ReportEntry::doubt(source.id, doubt, count))
            })
        })
    }

    /// Whether there is no room for further events: all slots are in use, or so many bytes are held that one more event
    /// may be too much.
    pub const fn is_full(&self) -> bool {
        let enough = self.config.credit_bytes - self.config.credit_bytes / 8;
        self.slots.in_work() == self.slots.len() || self.slots.held_bytes() >= enough
    }

    /// Returns the number of slots in use.
    pub fn in_work(&self) -> usize {
        self.slots.in_work()
    }
}

/// State of one readout unit.
#[derive(Debug, Default)]
pub(super) struct ReadoutPeer {
    /// Whether it takes part, as reported by the event manager.
    pub(super) present: bool,
    /// Whether its data connection is open.
    pub(super) connected: bool,
    /// Slots to be requested from it, in order.
    pub(super) to_request: VecDeque<u32>,
    /// Number of slots that wait for it.
    pub(super) awaited: u32,
    /// When to check for its silence, while something is awaited.
    pub(super) deadline: Option<Instant>,
    /// When it last answered.
    pub(super) last_answer: Instant,
    /// The latest assignment that it answered. It answers in order, so an assignment from long before was skipped.
    pub(super) answered_since: Instant,
    /// The places of its unmasked sources, in the configured order, with their ids.
    places: Vec<(SourceId, u32)>,
    /// The same, sorted by id.
    by_id: Vec<(SourceId, u32)>,
}

impl ReadoutPeer {
    /// Creates a readout unit whose sources have these places; up to `slots` events wait for it at once.
    pub(super) fn new(places: Vec<(SourceId, u32)>, slots: usize) -> Self {
        let mut by_id = places.clone();
        by_id.sort_unstable();
        Self { present: true, to_request: VecDeque::with_capacity(slots), places, by_id, ..Self::default() }
    }

    /// Returns its places in the configured order.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.places.iter().map(|&(_, place)| place as usize)
    }

    /// Returns the number of its participating sources.
    pub(super) const fn sources(&self) -> usize {
        self.places.len()
    }

    /// Returns the place of one of its sources. `hint` is the index of the last hit: answers come in order.
    pub(super) fn place_of(&self, source: SourceId, hint: &mut usize) -> Option<usize> {
        if let Some(&(expected, place)) = self.places.get(*hint)
            && expected == source
        {
            *hint += 1;
            return Some(place as usize);
        }
        let found = self.by_id.binary_search_by_key(&source, |&(id, _)| id).ok()?;
        Some(self.by_id[found].1 as usize)
    }

    /// Counts one more awaited slot.
    pub(super) const fn awaits(&mut self, deadline: Instant) {
        if self.awaited == 0 {
            self.deadline = Some(deadline);
        }
        self.awaited += 1;
    }

    /// Counts one awaited slot less.
    pub(super) const fn awaits_no_more(&mut self) {
        self.awaited -= 1;
        if self.awaited == 0 {
            self.deadline = None;
        }
    }
}

/// The synchrony machine, with its settings for the next run and its changes that the manager has not heard.
#[derive(Debug)]
pub(super) struct Observer {
    config: Config,
    machine: Synchrony,
    observations: Vec<Observation>,
    /// The reference source as known to the event manager.
    reference: Option<SourceId>,
    changes: VecDeque<SynchronyState>,
}

impl Observer {
    /// Creates a synchrony check of these sources.
    pub(super) fn new(config: Config) -> Result<Self, ConfigError> {
        let sources = config.sources.len();
        Ok(Self {
            machine: Synchrony::new(config.clone())?,
            config,
            observations: vec![Observation::MISSING; sources],
            reference: None,
            changes: VecDeque::with_capacity(sources + 1),
        })
    }

    /// Clears everything for a new run.
    pub(super) fn restart(&mut self) {
        if let Ok(machine) = Synchrony::new(self.config.clone()) {
            self.machine = machine;
        }
        self.reference = None;
        self.changes.clear();
    }

    /// Checks an event. Flags fragments of displaced sources, and the event in `flags`. Returns the action if a source
    /// became displaced with this event.
    pub(super) fn observe(
        &mut self,
        key: EventKey,
        sources: &[BuilderSource],
        fragments: &mut [Option<Fragment>],
        flags: &mut FragmentFlags,
        displaced: &mut [u64],
    ) -> Option<(Action, Cause)> {
        let places = self.observations.iter_mut().zip(sources).zip(fragments.iter());
        for ((observation, source), fragment) in places {
            *observation = match fragment {
                Some(fragment) if source.requirement != Requirement::Masked => (&fragment.meta).into(),
                _ => Observation::MISSING,
            };
        }
        self.machine.observe(key, &self.observations);
        if self.reference != self.machine.reference() {
            self.reference = self.machine.reference();
            // The reference agrees with itself. Readers need it to find the source that disagrees with most others.
            let in_sync = |source| SynchronyState { source, verdict: 1, offset: 0, since: key };
            self.changes.extend(self.reference.map(in_sync));
        }
        if self.machine.any_displaced() {
            for (place, fragment) in fragments.iter_mut().enumerate() {
                if let (Some(_), Some(fragment)) = (self.machine.cause(place), fragment) {
                    fragment.meta.flags = fragment.meta.flags.with(FragmentFlags::DISPLACED);
                    *flags = flags.with(fragment.meta.flags);
                    displaced[place] += 1;
                }
            }
        }
        self.take_changes()
    }

    /// Concludes the check at the end of the run.
    pub(super) fn conclude(&mut self) {
        self.machine.conclude();
        self.take_changes();
    }

    /// Returns the next verdict for the event manager.
    pub(super) fn next_change(&mut self) -> Option<SynchronyState> {
        self.changes.pop_front()
    }

    /// The machine, for summaries.
    pub(super) const fn machine(&self) -> &Synchrony {
        &self.machine
    }

    fn take_changes(&mut self) -> Option<(Action, Cause)> {
        let mut action = None;
        while let Some(change) = self.machine.poll() {
            self.changes.push_back((&change).into());
            action = change.action.zip(change.verdict.cause()).or(action);
        }
        action
    }
}
