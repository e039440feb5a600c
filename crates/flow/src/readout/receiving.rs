//! Input of fragments: the plain path, which nearly all take, and the path for all others.

use super::announcing::Announcing;
use super::beginning::LOOKED_AHEAD;
use super::doubt::{MOST_HELD, is_unreliable};
use super::machine::Readout;
use super::sequence::Step;
use super::source::{MOST_AT_ONCE, Standing};
use super::table::{NEVER, ORIGIN, Position};
use crate::messages::Received;
use ropewalk_terms::{Cause, Instant};

impl Readout {
    /// Returns how many more fragments of a source are accepted now; 0 means that it must not be read further
    /// (back-pressure).
    pub fn room(&self, source: usize) -> usize {
        if !self.started || self.finished {
            return 0;
        }
        let collated = self.collating.as_ref().and_then(|collating| collating.room(source));
        collated.map_or_else(|| self.room_for_numbered(source), |room| room.min(MOST_AT_ONCE))
    }

    /// Returns the same for fragments whose events are numbered already.
    pub(super) fn room_for_numbered(&self, source: usize) -> usize {
        let input = &self.sources[source];
        if !input.has_place() && input.doubt.awaits_others() {
            return LOOKED_AHEAD.saturating_sub(input.waiting.len());
        }
        if !input.waiting.is_empty() {
            return 0;
        }
        // The numbers of the first source that sends are decided when others have sent, or when its time is over.
        let is_first = !input.has_joined && !input.trusts_numbers;
        if is_first && (self.first_is_open || self.opened() == ORIGIN || self.may_join_soon(source)) {
            return MOST_HELD - input.doubt.len().min(MOST_HELD);
        }
        let next = input.sequence.last() + 1;
        if input.doubt.awaits_others() {
            return 0;
        }
        // Fragments that find no place anyway are accepted and counted.
        let unwanted = input.masking.covers(next) || next >= self.stop_end() || next < self.head;
        if unwanted || input.standing != Standing::Following {
            return MOST_AT_ONCE;
        }
        self.room_end().saturating_sub(next).min(MOST_AT_ONCE as u64) as usize
    }

    /// Returns one past the last event that any source is read for, where the window and the table end.
    #[inline]
    pub(super) fn room_end(&self) -> Position {
        (self.head + self.window).min(self.table.limit())
    }

    /// Returns one past the run's last event.
    #[inline]
    pub(super) fn stop_end(&self) -> Position {
        self.stop.as_ref().map_or(NEVER, |stop| stop.end)
    }

    /// Accepts fragments of a source, in its order. Leaves `fragments` empty, with its capacity. There should be no
    /// more of them than [`Readout::room`] returns. Fragments that the framer gave up (entries of
    /// `FragmentMeta::missing`) are counted.
    pub fn receive(&mut self, now: Instant, source: usize, fragments: &mut Vec<Received>) {
        let refused = self.takes_nothing();
        self.sources[source].note_arrival(now, fragments, refused.is_none());
        if let Some(cause) = refused {
            self.refuse(source, fragments, cause);
            return;
        }
        if !self.collate(now, source, fragments) {
            self.receive_numbered(now, source, fragments);
        }
    }

    /// Accepts fragments whose events are numbered already.
    pub(super) fn receive_numbered(&mut self, now: Instant, source: usize, fragments: &mut Vec<Received>) {
        let came = !fragments.is_empty();
        if came && !self.sources[source].has_joined {
            self.sources[source].opened_then = self.opened();
        }
        let input = &mut self.sources[source];
        input.sequence.keep_up(self.head);
        input.note_contents(fragments);
        let last = input.sequence.last();
        let plain_end = self.plain_end(source);
        let mut rest = &mut fragments[..];
        loop {
            let placed = self.place_plain(source, plain_end, rest);
            if placed > 0 {
                self.joins(source);
                let input = &mut self.sources[source];
                input.statistics.last_number = Some(input.sequence.last_raw());
            }
            let Some((fragment, behind)) = rest[placed..].split_first_mut() else { break };
            self.take_aside(now, source, fragment.take());
            rest = behind;
        }
        fragments.clear();
        let input = &mut self.sources[source];
        input.fresh &= !came;
        input.note_delivery(last);
        self.moved(now, source);
    }

    /// Places fragments that plainly continue, up to the first one that does not. Returns their number.
    #[inline]
    fn place_plain(&mut self, source: usize, plain_end: Position, fragments: &mut [Received]) -> usize {
        if self.may_begin_anywhere(source) || !self.sources[source].is_going_on() {
            return 0;
        }
        let input = &mut self.sources[source];
        let mut placed = 0;
        'lane: loop {
            let slots_end = self.table.slots_end();
            let mut lane = self.table.lane(source, input.triggers);
            for fragment in &mut fragments[placed..] {
                let plain = !fragment.restarts && !is_unreliable(fragment);
                let step = input.sequence.plain_step(fragment.meta.raw_id, plain_end);
                let Some(position) = step.filter(|&position| position >= self.head && plain) else { return placed };
                if position >= slots_end {
                    self.table.reach(position + 1);
                    continue 'lane;
                }
                input.sequence.advance(position, fragment.meta.raw_id);
                if !lane.place(position, fragment) {
                    input.account.late += 1;
                }
                placed += 1;
            }
            return placed;
        }
    }

    /// Returns why no fragment is accepted at all: the run has not begun, or is over, here or everywhere. `None` if
    /// fragments are accepted.
    fn takes_nothing(&self) -> Option<Cause> {
        match self {
            Self { finished: true, .. } => Some(Cause::ForcedStop),
            Self { started: false, .. } => Some(Cause::Stale),
            Self { announcing: Announcing { told_all: true, .. }, .. } => Some(Cause::Late),
            _ => None,
        }
    }

    /// Returns one past the last event in which a source's fragment is placed without a further check.
    fn plain_end(&self, source: usize) -> Position {
        let input = &self.sources[source];
        let wanted = input.masking.wanted_end(input.sequence.last() + 1).min(self.stop_end());
        self.room_end().min(wanted).min(self.timeline.limit())
    }

    fn place(&mut self, source: usize, position: Position, mut fragment: Received) {
        let input = &mut self.sources[source];
        input.sequence.advance(position, fragment.meta.raw_id);
        self.table.reach(position + 1);
        if !self.table.lane(source, input.triggers).place(position, &mut fragment) {
            input.account.late += 1;
        }
    }

    #[cold]
    fn refuse(&mut self, source: usize, fragments: &mut Vec<Received>, cause: Cause) {
        let input = &mut self.sources[source];
        for fragment in fragments.drain(..) {
            input.statistics.add_payload(&fragment.meta);
            input.statistics.follow_number(&fragment.meta);
            match cause {
                Cause::Stale => {
                    input.account.stale += 1;
                    input.statistics.before_start += 1;
                }
                Cause::Late => input.account.late += 1,
                _ => input.account.dropped.add(cause, 1),
            }
        }
    }

    /// Handles a fragment that does not plainly continue: it is placed after further checks, counted, or queued behind
    /// the waiting ones.
    #[cold]
    fn take_aside(&mut self, now: Instant, source: usize, fragment: Received) {
        self.sources[source].statistics.follow_number(&fragment.meta);
        if let Some(cause) = fragment.meta.missing_cause() {
            let input = &mut self.sources[source];
            if !input.doubt.is_empty() && input.is_following() {
                self.hold(now, source, fragment);
                self.admit_believed(now, source);
                return;
            }
            // The next number may be one higher.
            input.doubt.count_gone(input.sequence.last());
            input.count_given_up(cause);
            return;
        }
        let fragment =
            if self.sources[source].waiting.is_empty() { self.judge(now, source, fragment) } else { Some(fragment) };
        self.sources[source].waiting.extend(fragment);
        self.note_waiting(source);
        self.admit_believed(now, source);
    }

    /// Updates the number of sources that wait.
    pub(super) fn note_waiting(&mut self, source: usize) {
        let input = &mut self.sources[source];
        let waits = !input.waiting.is_empty();
        let before = core::mem::replace(&mut input.counts_as_waiting, waits);
        self.waiting = self.waiting + usize::from(waits) - usize::from(before);
    }

    /// Notes that a source has shown its position in the run.
    pub(super) fn joins(&mut self, source: usize) {
        let input = &mut self.sources[source];
        (input.has_joined, input.has_begun) = (true, true);
        self.first_is_open &= input.runs_free;
    }

    /// Places or counts a fragment. Returns it if it must wait.
    pub(super) fn judge(&mut self, now: Instant, source: usize, fragment: Received) -> Option<Received> {
        let raw = fragment.meta.raw_id;
        let is_masked = {
            let masking = &self.sources[source].masking;
            masking.is_open() && masking.covers(self.head)
        };
        if is_masked && !self.comes_back(source, &fragment) {
            // Its numbers are not checked while it is masked.
            self.sources[source].account.dropped.add(Cause::Masked, 1);
            return None;
        }
        let input = &mut self.sources[source];
        if input.standing != Standing::Following {
            self.stray_all(now, source);
            return self.judge_strayed(now, source, fragment);
        }
        if fragment.restarts {
            // The fragment itself declares the restart; this does not depend on its number.
            self.weigh(now, source, true);
            if self.sources[source].believed > 0 {
                return Some(fragment);
            }
        } else if input.repeats(&fragment) {
            input.account.duplicate += 1;
            return None;
        } else if !input.trusts_numbers
            && !input.passes_mask(raw, self.head)
            && (self.first_is_open
                || input.is_yet_to_begin()
                || !input.doubt.is_empty()
                || is_unreliable(&fragment)
                || !input.sequence.goes_on(raw))
        {
            // The driver may have read more fragments before reading stopped.
            if input.doubt.is_full() && (self.first_is_open || input.doubt.awaits_others()) {
                return Some(fragment);
            }
            self.hold(now, source, fragment);
            return None;
        }
        self.judge_believed(now, source, fragment)
    }

    /// Does the same for a fragment whose number is not in doubt.
    fn judge_believed(&mut self, now: Instant, source: usize, fragment: Received) -> Option<Received> {
        let raw = fragment.meta.raw_id;
        let input = &mut self.sources[source];
        if input.standing != Standing::Following {
            return self.judge_strayed(now, source, fragment);
        }
        match input.sequence.step(raw, fragment.restarts, self.head) {
            Step::Forward(position) => return self.judge_forward(source, position, fragment),
            // If this readout unit began later than the run, the first fragment of a source may come from the beginning
            // of the run.
            Step::Restart if input.fresh && input.sequence.last() < ORIGIN && !fragment.restarts => {
                input.account.stale += 1;
            }
            Step::Restart => return self.restarted(now, source, fragment),
            Step::Implausible => input.account.corrupt += 1,
            Step::Backward(position) if position < ORIGIN => input.account.stale += 1,
            Step::Backward(position) => {
                if position == input.sequence.last() || self.table.has_fragment(source, position) {
                    input.account.duplicate += 1;
                } else {
                    input.account.late += 1;
                }
            }
        }
        None
    }

    /// Handles a fragment of an event after the last one.
    fn judge_forward(&mut self, source: usize, position: Position, fragment: Received) -> Option<Received> {
        let (stop_end, room_end, limit) = (self.stop_end(), self.room_end(), self.timeline.limit());
        if position >= limit {
            self.sources[source].account.corrupt += 1;
            return None;
        }
        self.joins(source);
        let input = &mut self.sources[source];
        let is_masked = input.masking.covers(position);
        let wanted = position < stop_end && !is_masked && position >= self.head;
        if wanted && position >= room_end {
            input.waiting_at = position;
            return Some(fragment);
        }
        if wanted {
            self.place(source, position, fragment);
            return None;
        }
        input.sequence.advance(position, fragment.meta.raw_id);
        if position >= stop_end {
            input.account.after_stop += 1;
        } else if is_masked {
            input.account.dropped.add(Cause::Masked, 1);
        } else {
            input.account.late += 1;
        }
        None
    }

    /// Takes in waiting fragments that no longer need to wait.
    pub(super) fn admit_waiting(&mut self, now: Instant) {
        if self.waiting == 0 {
            return;
        }
        for source in 0..self.sources.len() {
            let input = &self.sources[source];
            if matches!(input.standing, Standing::Restarted { .. }) || input.waiting.is_empty() {
                continue;
            }
            let at = input.waiting_at;
            // A fragment of an unknown event lies behind all known ones, and is always checked.
            if at < self.room_end() || at >= self.stop_end() || input.masking.covers(at) {
                self.admit(now, source);
            }
        }
    }

    /// Takes in waiting fragments of a source if some of them are known to be right.
    pub(super) fn admit_believed(&mut self, now: Instant, source: usize) {
        if self.sources[source].believed > 0 && self.sources[source].waiting_at == NEVER {
            self.admit(now, source);
        }
    }

    fn admit(&mut self, now: Instant, source: usize) {
        let last = self.sources[source].sequence.last();
        self.sources[source].waiting_at = NEVER;
        while let Some(fragment) = self.sources[source].waiting.pop_front() {
            let is_believed = self.sources[source].believed > 0;
            self.sources[source].believed -= usize::from(is_believed);
            let left = if is_believed {
                self.judge_believed(now, source, fragment)
            } else {
                self.judge(now, source, fragment)
            };
            let input = &mut self.sources[source];
            if let Some(fragment) = left {
                // The fragment follows the fragments accepted during its check.
                let place = if is_believed { 0 } else { input.believed };
                input.believed += usize::from(is_believed);
                input.waiting.insert(place, fragment);
                if place == 0 {
                    break;
                }
            }
        }
        self.note_waiting(source);
        self.sources[source].note_delivery(last);
        self.moved(now, source);
    }
}
