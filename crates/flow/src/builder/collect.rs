//! From assignment to completion: requests and collects super-fragments, and checks the event.

use super::message::Whereabouts;
use super::slots::Stage;
use super::synchrony::Action;
use super::{Builder, BuilderConfig, BuilderSource, IncompletePolicy};
use crate::messages::{AssignEntry, BATCH, Batch, Fragment, FragmentFlags, Message, Request, RequestEntry, overwrite};
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventKey, Instant, Outcome, Requirement};
use ropewalk_wire::message::SuperFragmentEntry;

impl Builder {
    /// Records that the data connection to a readout unit is open, and requests the fragments that events still await
    /// from it.
    pub fn readout_connected(&mut self, now: Instant, readout: u16) {
        let Some(peer) = self.peers.get_mut(usize::from(readout)) else { return };
        peer.connected = true;
        peer.last_answer = now;
        peer.to_request.clear();
        let awaited = self.slots.iter().filter(|&(number, _)| self.slots.is_awaited(number, readout));
        let repeated = if is_planted(Flaw::RequestNotRepeated) { 0 } else { usize::MAX };
        peer.to_request.extend(awaited.map(|(number, _)| number).take(repeated));
    }

    /// Records the loss of the data connection to a readout unit. The unit is waited for until the time-out, or until
    /// the event manager reports its loss.
    pub fn readout_lost(&mut self, _now: Instant, readout: u16) {
        let Some(peer) = self.peers.get_mut(usize::from(readout)) else { return };
        peer.connected = false;
        peer.to_request.clear();
    }

    /// Processes a super-fragment, or the answer that the readout unit does not hold one. The payloads are moved out of
    /// `fragments`; fragments of an event that does not wait for them are counted and left for the caller to drop.
    pub fn super_fragment(
        &mut self,
        now: Instant,
        readout: u16,
        entry: &SuperFragmentEntry,
        fragments: &mut [Fragment],
    ) {
        let expected = self.slots.get(entry.slot).filter(|slot| {
            let same = slot.key == entry.key && slot.requested_as == entry.attempt;
            slot.stage == Stage::Collecting && (same || is_planted(Flaw::StaleAnswerTaken))
        });
        let known = readout < self.config.readouts;
        let Some(since) =
            expected.filter(|_| known && self.slots.is_awaited(entry.slot, readout)).map(|slot| slot.since)
        else {
            self.counts.stale_answers += 1;
            return;
        };
        self.store(readout, entry, fragments);
        let peer = &mut self.peers[usize::from(readout)];
        peer.last_answer = now;
        peer.answered_since = peer.answered_since.max(since);
        self.answered(entry.slot, readout);
    }

    /// Stores an answer's fragments, and the causes of missing ones.
    fn store(&mut self, readout: u16, entry: &SuperFragmentEntry, fragments: &mut [Fragment]) {
        let peer = &self.peers[usize::from(readout)];
        let (slot, places, causes) = self.slots.row_mut(entry.slot);
        let mut hint = 0;
        let (mut filled, mut flags) = (0, slot.flags);
        for fragment in fragments {
            let Some(place) = peer.place_of(fragment.meta.source, &mut hint) else {
                self.counts.unknown_fragments += 1;
                continue;
            };
            if fragment.meta.flags.contains(FragmentFlags::MISSING) {
                causes[place] = fragment.meta.missing_cause();
            } else if places[place].is_some() {
                self.counts.duplicate_fragments += 1;
            } else {
                let Fragment { meta, ref mut payload } = *fragment;
                overwrite(&mut places[place], Some(Fragment { meta, payload: core::mem::take(payload) }));
                filled += 1;
                flags = flags.with(meta.flags);
            }
        }
        slot.filled += filled;
        slot.flags = flags;
        if filled as usize != peer.sources() {
            self.name_not_held(readout, entry);
        }
    }

    /// Records why an answer lacks fragments.
    #[cold]
    fn name_not_held(&mut self, readout: u16, entry: &SuperFragmentEntry) {
        let peer = &self.peers[usize::from(readout)];
        if entry.not_held.is_some() {
            self.slots.lack(entry.slot, readout);
        }
        let (_, places, causes) = self.slots.row_mut(entry.slot);
        let otherwise = entry.not_held.unwrap_or(Cause::NotHeld);
        for place in peer.places().filter(|&place| places[place].is_none()) {
            causes[place].get_or_insert(otherwise);
        }
    }

    /// Starts to collect an assigned event.
    pub(super) fn assigned(&mut self, now: Instant, entry: &AssignEntry) {
        if self.assigned_again(entry) {
            return;
        }
        let Some(slot) = self.slots.take(now, entry.key, entry.attempt, entry.bytes) else {
            self.counts.refused_assignments += 1;
            return;
        };
        let newest = is_planted(Flaw::LumisectionOfTheNewest);
        let key = if newest { EventKey::MAX } else { entry.key };
        self.slots.at_mut(slot).lumisection = self.lumisections.of(key);
        self.ledger.assigned += 1;
        self.hints.set(entry.key, Whereabouts::Slot(slot));
        let deadline = now.after(self.config.event_timeout);
        for readout in 0..self.config.readouts {
            let peer = &mut self.peers[usize::from(readout)];
            if peer.sources() == 0 {
                continue;
            }
            if !peer.present {
                self.name_missing(slot, readout, Cause::ReadoutLost);
                continue;
            }
            peer.awaits(deadline);
            self.slots.await_answer(slot, readout);
            if peer.connected {
                peer.to_request.push_back(slot);
            }
        }
        if self.slots.at(slot).awaited == 0 {
            self.collected(slot);
        }
    }

    /// Records the event manager's report on whether a readout unit takes part.
    pub(super) fn readout_state(&mut self, now: Instant, readout: u16, present: bool) {
        let Some(peer) = self.peers.get_mut(usize::from(readout)) else { return };
        peer.present = present;
        if !present {
            self.give_up(now, readout, Cause::ReadoutLost, |_| true);
        }
    }

    /// Returns the next request. Each builder unit begins at another readout unit, so that not all ask the same one
    /// first.
    pub(super) fn next_request(&mut self) -> Option<(u16, Message)> {
        let Self { peers, slots, config, .. } = self;
        for turn in 0..config.readouts {
            let readout = ((u32::from(config.index) + u32::from(turn)) % u32::from(config.readouts)) as u16;
            let to_request = &mut peers[usize::from(readout)].to_request;
            let mut entries = Batch::new();
            while entries.len() < BATCH
                && let Some(number) = to_request.pop_front()
            {
                if slots.is_awaited(number, readout) {
                    let slot = slots.at(number);
                    entries.push(RequestEntry { key: slot.key, slot: number, attempt: slot.requested_as });
                }
            }
            if !entries.is_empty() {
                return Some((readout, Message::Request(Request { entries })));
            }
        }
        None
    }

    /// Gives up waiting for readout units that have sent nothing for too long, or have skipped a request.
    pub(super) fn give_up_on_the_silent(&mut self, now: Instant) {
        for readout in 0..self.config.readouts {
            let peer = &self.peers[usize::from(readout)];
            if peer.deadline.is_none_or(|deadline| now < deadline) {
                continue;
            }
            let (timeout, patience) = (self.config.event_timeout, self.patience());
            let silent = now >= peer.last_answer.after(patience);
            let skipped = peer.answered_since;
            let cause = if peer.connected { Cause::TimedOut } else { Cause::Disconnected };
            self.give_up(now, readout, cause, |since| {
                let is_skipped = since.after(timeout) <= now.min(skipped);
                is_skipped || silent && since.after(patience) <= now
            });
        }
    }

    /// Time-out for a readout unit that answers nothing at all.
    fn patience(&self) -> Duration {
        self.config.unreachable_timeout.max(self.config.event_timeout)
    }

    /// Gives up waiting for a readout unit for events whose assignment time `expired`; sets the deadline for the oldest
    /// remaining event.
    fn give_up(&mut self, now: Instant, readout: u16, cause: Cause, expired: impl Fn(Instant) -> bool) {
        let mut oldest: Option<Instant> = None;
        for number in 0..self.slots.len() as u32 {
            if !self.slots.is_awaited(number, readout) {
                continue;
            }
            let since = self.slots.at(number).since;
            if expired(since) {
                self.name_missing(number, readout, cause);
                self.answered(number, readout);
            } else {
                oldest = Some(oldest.map_or(since, |oldest| oldest.min(since)));
            }
        }
        let (timeout, patience) = (self.config.event_timeout, self.patience());
        let peer = &mut self.peers[usize::from(readout)];
        peer.deadline = oldest.map(|oldest| {
            let silent = oldest.max(peer.last_answer).after(patience);
            // An answer may show in the meantime that a request was skipped.
            if silent > now { silent.min(now.after(timeout)) } else { now.after(timeout) }
        });
    }

    fn name_missing(&mut self, slot: u32, readout: u16, cause: Cause) {
        self.slots.lack(slot, readout);
        let peer = &self.peers[usize::from(readout)];
        let (_, places, causes) = self.slots.row_mut(slot);
        for place in peer.places().filter(|&place| places[place].is_none()) {
            causes[place].get_or_insert(cause);
        }
    }

    fn answered(&mut self, slot: u32, readout: u16) {
        self.slots.answered(slot, readout);
        self.peers[usize::from(readout)].awaits_no_more();
        if self.slots.at(slot).awaited == 0 {
            self.collected(slot);
        }
    }
}

/// Judgement of events after all readout units have answered.
impl Builder {
    /// Judges the event in a slot: it is emitted or ends here.
    fn collected(&mut self, number: u32) {
        let outcome = self.judge(number);
        let slot = self.slots.at_mut(number);
        slot.outcome = outcome;
        if matches!(outcome, Outcome::Dropped(_)) {
            self.acknowledge(number);
            self.drop_payloads(&[number]);
            self.give_back(number);
            return;
        }
        slot.stage = Stage::Ready;
        let key = slot.key;
        let (slot, fragments, _) = self.slots.row_mut(number);
        if self.config.check_bunch_crossing {
            flag_mismatches(&self.config, fragments, &mut slot.flags, &mut self.mismatches);
        }
        let action = self.observer.as_mut().and_then(|observer| {
            observer.observe(key, &self.config.sources, fragments, &mut slot.flags, &mut self.displaced)
        });
        self.counts.doubtful += u64::from(slot.flags.has_error());
        match action {
            Some((Action::Stop, cause)) => self.ask_to_stop(cause),
            Some((Action::Pause, cause)) => self.paused = Some(cause),
            Some((Action::Flag, _)) | None => {}
        }
        self.ready.push_back(number);
    }

    /// Returns the outcome of the event, by its content and the policy.
    fn judge(&mut self, number: u32) -> Outcome {
        if self.slots.at(number).filled == self.unmasked {
            return Outcome::Complete;
        }
        let missing = self.first_missing(number);
        if self.slots.at(number).filled == 0 {
            return Outcome::Dropped(missing.unwrap_or(Cause::NotHeld));
        }
        let Some(cause) = missing else { return Outcome::Complete };
        match self.config.incomplete {
            IncompletePolicy::Emit => Outcome::IncompleteEmitted,
            IncompletePolicy::Drop => Outcome::Dropped(Cause::IncompletePolicy),
            IncompletePolicy::Stop => {
                self.ask_to_stop(cause);
                Outcome::IncompleteEmitted
            }
        }
    }

    /// Sets causes for missing required sources only; returns the first. A source that its readout unit reports as
    /// masked is not missing.
    fn first_missing(&mut self, number: u32) -> Option<Cause> {
        let mut first = None;
        let (_, fragments, causes) = self.slots.row_mut(number);
        let is_masked = |cause: &Option<Cause>| *cause == Some(Cause::Masked);
        for (place, (fragment, cause)) in fragments.iter().zip(causes).enumerate() {
            let required = self.config.sources[place].requirement == Requirement::Required;
            if fragment.is_none() && required && !is_masked(cause) {
                let cause = *cause.get_or_insert(Cause::NotHeld);
                self.counts.missing.add(cause, 1);
                first.get_or_insert(cause);
            } else {
                *cause = None;
            }
        }
        first
    }

    fn ask_to_stop(&mut self, cause: Cause) {
        if !self.stop_said {
            (self.stop_run, self.stop_said) = (Some(cause), true);
        }
    }
}

/// Returns the bunch crossing of a fragment for comparison, if it has one.
fn compared(source: &BuilderSource, fragment: &Fragment, orbit: u16) -> Option<u16> {
    let meta = &fragment.meta;
    if source.bunch_crossing_mask == 0 || !meta.flags.contains(FragmentFlags::HAS_BUNCH_CROSSING) {
        return None;
    }
    let moved = i32::from(meta.bunch_crossing) + i32::from(source.bunch_crossing_offset);
    let wrapped = if orbit == 0 { moved } else { moved.rem_euclid(i32::from(orbit)) };
    Some(wrapped as u16 & source.bunch_crossing_mask)
}

/// Whether two bunch crossings agree in the bits that both sources have.
fn agree(one: (&BuilderSource, u16), two: (&BuilderSource, u16)) -> bool {
    let bits = one.0.bunch_crossing_mask & two.0.bunch_crossing_mask;
    one.1 & bits == two.1 & bits
}

/// Whether all fragments have the same number and the same comparison settings, which is the common case: then all
/// agree.
fn are_plainly_equal(sources: &[BuilderSource], fragments: &[Option<Fragment>]) -> bool {
    let mut all =
        sources.iter().zip(fragments).filter_map(|(source, fragment)| Some((source, &fragment.as_ref()?.meta)));
    let Some((first, as_first)) = all.next() else { return true };
    all.all(|(source, meta)| {
        meta.bunch_crossing == as_first.bunch_crossing
            && meta.flags.contains(FragmentFlags::HAS_BUNCH_CROSSING)
            && source.bunch_crossing_offset == first.bunch_crossing_offset
            && source.bunch_crossing_mask == first.bunch_crossing_mask
    })
}

/// Flags every fragment whose bunch crossing differs from the majority, and counts it in `mismatches`. Without a
/// majority, the first source in the configured order is right.
fn flag_mismatches(
    config: &BuilderConfig,
    fragments: &mut [Option<Fragment>],
    flags: &mut FragmentFlags,
    mismatches: &mut [u64],
) {
    let (sources, orbit) = (&config.sources, config.orbit);
    if are_plainly_equal(sources, fragments) {
        return;
    }
    let mut all = sources.iter().zip(fragments.iter()).filter_map(|(source, fragment)| {
        let fragment = fragment.as_ref()?;
        compared(source, fragment, orbit).map(|crossing| (source, crossing))
    });
    let Some(first) = all.next() else { return };
    if all.clone().all(|other| agree(first, other)) {
        return;
    }
    let right = majority(first, all);
    for ((source, fragment), count) in sources.iter().zip(fragments).zip(mismatches) {
        let Some(fragment) = fragment else { continue };
        if compared(source, fragment, orbit).is_some_and(|crossing| !agree(right, (source, crossing))) {
            fragment.meta.flags = fragment.meta.flags.with(FragmentFlags::BUNCH_CROSSING_MISMATCH);
            *flags = flags.with(fragment.meta.flags);
            *count += 1;
        }
    }
}

/// Returns the crossing of more than half of the sources, `first` included; without a majority, `first`.
fn majority<'a>(
    first: (&'a BuilderSource, u16),
    others: impl Iterator<Item = (&'a BuilderSource, u16)> + Clone,
) -> (&'a BuilderSource, u16) {
    // Boyer and Moore: pairs of different votes cancel each other, so the majority's vote is left over.
    let (mut candidate, mut lead) = (first, 1_u32);
    for other in others.clone() {
        if lead == 0 {
            (candidate, lead) = (other, 1);
        } else if agree(candidate, other) {
            lead += 1;
        } else {
            lead -= 1;
        }
    }
    let all = core::iter::once(first).chain(others);
    let (total, votes) = all.fold((0, 0), |(total, votes), one| (total + 1, votes + u32::from(agree(candidate, one))));
    if 2 * votes > total { candidate } else { first }
}
