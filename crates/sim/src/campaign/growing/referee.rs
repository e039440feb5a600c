//! What must come of what boards sent: which pulses are in which events, and what may be missing.

use super::super::broken::{Broken, Checker};
use super::super::stand::{held, is_accounted_for};
use super::board::{Board, Sent, pulse_and_board};
use super::scenario::{Ending, Mishap, Scenario};
use ropewalk_flow::readout::Readout;
use ropewalk_terms::{Cause, EventKey, FragmentAccount, Instant};
use ropewalk_wire::message::FragmentFlags;
use std::collections::BTreeSet;
use std::time::Duration;

/// Whose clock begins anew after no more pulses than these has shown what may be of an earlier run, where no other board can tell.
const BEGINNING: u64 = 40;

/// See the module's text.
#[derive(Default)]
pub(super) struct Referee {
    /// Board and pulse of each frame that is in a settled event.
    taken: BTreeSet<(usize, u64)>,
    /// The number that boards gave to the last event.
    last: u64,
}

impl Referee {
    /// Looks at a settled event; says whether it is complete.
    pub(super) fn look(
        &mut self,
        key: EventKey,
        scenario: &Scenario,
        boards: &[Board],
        readout: &Readout,
    ) -> Result<bool, Broken> {
        let (event, mut fragments) = (key.number(), held(key, readout)?);
        fragments.retain(|one| one.meta.missing_cause().is_none());
        let (mut time, mut is_right) = (None, true);
        for fragment in &fragments {
            let frame = fragment.payload.to_vec();
            let sent = pulse_and_board(&frame)
                .filter(|&(_, board)| fragment.meta.source.0 == board as u32 + 1)
                .and_then(|(pulse, board)| Some((pulse, board, boards.get(board)?.journal.sent.get(&pulse)?)))
                .filter(|(_, _, sent)| sent.frame == frame);
            let Some((pulse, board, sent)) = sent else {
                let words = format!("event {event}: nobody sent what {:?} has in it", fragment.meta.source);
                return Err(Broken::new(Checker::Content, words));
            };
            let is_damaged = scenario.boards[board].mishaps.get(&pulse) == Some(&Mishap::Damage);
            let is_flagged = fragment.meta.flags.contains(FragmentFlags::CRC_ERROR);
            Broken::unless(is_damaged == is_flagged, Checker::Content, || {
                format!("event {event}: the frame of board {board} and pulse {pulse} is damaged: {is_damaged}")
            })?;
            is_right &= sent.is_right;
            let time = *time.get_or_insert(sent.time);
            Broken::unless(time == sent.time, Checker::Content, || {
                format!("event {event} is of the times {time} and {} (board {board}, pulse {pulse})", sent.time)
            })?;
            Broken::unless(self.taken.insert((board, pulse)), Checker::Keys, || {
                format!("event {event}: the frame of board {board} and pulse {pulse} is in another one, too")
            })?;
        }
        // What is of no pulse may be believed for a moment, and is in an event of its own.
        if let Some(time) = time.filter(|_| is_right) {
            Broken::unless(time > self.last || scenario.may_begin_anew(), Checker::Order, || {
                format!("event {event} is of the time {time}, and the one before of {}", self.last)
            })?;
            self.last = time;
        }
        Ok(fragments.len() == boards.len())
    }

    /// Nobody holds up the frames of boards with which all is well.
    pub(super) fn judge_pace(&self, now: Instant, scenario: &Scenario, boards: &[Board]) -> Result<(), Broken> {
        let longest = scenario.timeout * (2 + 2 * boards.len() as u32) + 20 * scenario.pace;
        let steady = boards.iter().enumerate().filter(|(board, _)| scenario.boards[*board].is_steady());
        for (board, one) in steady {
            let waits = |(pulse, sent): &(&u64, &Sent)| {
                now > sent.at.after(longest)
                    && !self.taken.contains(&(board, **pulse))
                    && !scenario.excuses(board, **pulse, sent)
            };
            if let Some((pulse, sent)) = one.journal.sent.iter().find(waits) {
                let words =
                    format!("the frame of board {board} and pulse {pulse} waits since {:?}, until {now:?}", sent.at);
                return Err(Broken::new(Checker::Liveness, words));
            }
        }
        Ok(())
    }

    /// What must hold of a board's frames in the end.
    pub(super) fn judge(
        &self,
        scenario: &Scenario,
        board: usize,
        sent: &Board,
        account: &FragmentAccount,
    ) -> Result<(), Broken> {
        is_accounted_for(board, account)?;
        let taken = self.taken.iter().filter(|(whose, _)| *whose == board).count() as u64;
        let of = |cause| account.dropped.get(cause);
        let named = of(Cause::OutOfSync) + of(Cause::Late) + of(Cause::ForcedStop) + of(Cause::ImplausibleJump);
        let named = named + account.late + account.after_stop + account.corrupt;
        let (whole, halves) = (sent.journal.sent.len() as u64, sent.journal.halves);
        // Behind the run's end nobody reads what is sent, and what is no frame counts as one that waits.
        let noises = sent.journal.wrong.iter().filter(|wrong| wrong.mishap == Mishap::Noise).count() as u64;
        let is_all = |found: u64, sent: u64| found == sent || found <= sent + noises && scenario.ending != Ending::Last;
        Broken::unless(is_all(taken + named, whole), Checker::Ledger, || {
            format!("board {board}: of {whole} frames {taken} are in events, and {named} have a name: {account:?}")
        })?;
        Broken::unless(is_all(of(Cause::CutShort), halves), Checker::Ledger, || {
            format!("board {board}: {halves} frames were cut: {account:?}")
        })?;
        let in_events = account.in_complete_events + account.in_incomplete_events;
        Broken::unless(taken == in_events, Checker::Ledger, || {
            format!("board {board}: {taken} frames are in events that were settled: {account:?}")
        })?;
        let is_lost = |(pulse, one): &(&u64, &Sent)| {
            !self.taken.contains(&(board, **pulse))
                && !scenario.excuses(board, **pulse, one)
                && scenario.is_in_time(one.at)
        };
        if let Some((pulse, one)) = sent.journal.sent.iter().find(is_lost) {
            let words = format!(
                "the frame of board {board} and pulse {pulse}, sent at {:?}, is in no event: {account:?}",
                one.at
            );
            return Err(Broken::new(Checker::Loss, words));
        }
        let timed_out = account.missing.get(Cause::TimedOut);
        let is_heard = timed_out == 0 || !scenario.boards[board].is_steady() || scenario.set_back.is_some();
        Broken::unless(is_heard, Checker::TimeOut, || {
            format!("board {board} never paused, and is taken for absent {timed_out} times")
        })
    }
}

impl Scenario {
    /// How long it may take until a board is where the others are, after something that went wrong.
    fn rejoining(&self) -> Duration {
        self.timeout + 20 * self.pace
    }

    /// Whether a frame may be in no event, because its board was somewhere else or had just come back.
    pub(super) fn excuses(&self, board: usize, pulse: u64, sent: &Sent) -> bool {
        let is_within = |from: u64, to: u64| {
            let begins = Instant::ZERO.after(self.pace * from as u32);
            pulse >= from
                && sent.at >= begins
                && sent.at <= Instant::ZERO.after(self.pace * to as u32).after(self.rejoining())
        };
        let is_mishap = |(&from, mishap): (&u64, &Mishap)| match *mishap {
            Mishap::Restart { pulses, .. } | Mishap::Silent { pulses } => is_within(from, from + pulses),
            Mishap::CutOff => is_within(from, from),
            Mishap::Jump | Mishap::Outliers { .. } | Mishap::Overtaken { .. } | Mishap::Damage | Mishap::Noise => false,
        };
        // A damaged frame says no time: where no other board shows its pulse it has no place.
        let is_damaged = self.boards[board].mishaps.get(&pulse) == Some(&Mishap::Damage);
        !sent.is_right
            || is_damaged
            || self.boards[board].mishaps.iter().any(is_mishap)
            || self.set_back.is_some_and(|back| is_within(back, back))
            || self.begins_twice(pulse)
    }

    /// Whether a pulse is one of a few before the clock of the only board began anew.
    fn begins_twice(&self, pulse: u64) -> bool {
        let [board] = &self.boards[..] else { return false };
        let mut anew = board.restarts().map(|(from, _)| from).chain(self.set_back);
        anew.any(|from| pulse < from && from <= BEGINNING)
    }

    /// Whether what was sent then is done with when the run ends.
    fn is_in_time(&self, at: Instant) -> bool {
        match self.ending {
            Ending::Last => true,
            Ending::Stop(pulse) | Ending::Force(pulse) => {
                let boards = self.boards.len() as u32;
                let slack = self.timeout * (2 + 2 * boards) + 20 * self.pace;
                at.after(slack) < Instant::ZERO.after(self.pace * pulse as u32)
            }
        }
    }
}
