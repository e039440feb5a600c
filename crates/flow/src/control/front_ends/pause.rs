//! A pause of the run: the trigger source is held, so that no event begins that no node builds.
//!
//! ```text
//!              pause: Hold to the trigger source      Held, or its time is over: Pause to the nodes
//!  going on ----------------------------------> awaited -----------------------------> paused
//!     ^ ^----------------resume: Release-----------+                                     |
//!     +----------------resume, or stop: Resume to the nodes, then Release----------------+
//! ```
//! Being held is not a stage: it is independent of the other commands to the trigger source, so that a start may end
//! paused. Hold and Release are sent once over each connection, without waiting for earlier answers. The unanswered
//! commands of each kind are counted, so that the answer to an earlier Hold is not taken for the answer to the last.

use super::member::{IncidentKind, Member};
use super::{FrontEndAction, FrontEndPhase, FrontEnds};
use crate::control::RunCommand;
use ropewalk_terms::Instant;
use ropewalk_wire::front_end::{Command, Hello, Stage};

/// Whether the run is paused.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Pause {
    /// The run continues.
    #[default]
    GoesOn,
    /// A pause was commanded, and the answer of the trigger source is awaited.
    Awaited,
    /// The run is paused, and its nodes know it.
    Paused,
}

impl Pause {
    pub(super) const fn is_wanted(self) -> bool {
        !matches!(self, Self::GoesOn)
    }
}

/// The pause commands to a front end, and its answers.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Hold {
    /// Its last answer.
    pub(super) is_held: bool,
    /// The number of the last event when it last reported that it was held.
    pub(super) last: Option<u64>,
    /// The last command sent over this connection, or the state that its hello reported.
    told: bool,
    /// Unanswered Release and Hold commands of this connection.
    unanswered: [u32; 2],
}

impl Hold {
    /// The state of a front end that connects during the run.
    pub(super) const fn of(hello: &Hello, last: Option<u64>) -> Self {
        Self { is_held: hello.is_held, last, told: hello.is_held, unanswered: [0; 2] }
    }

    /// Forgets commands that the ended connection will not answer.
    pub(super) const fn lost(&mut self) {
        self.unanswered = [0; 2];
    }

    /// Handles an answer: held, since this event, or released.
    pub(super) fn answered(&mut self, is_held: bool, last: Option<u64>) {
        (self.is_held, self.last) = (is_held, last.or(self.last));
        let unanswered = &mut self.unanswered[usize::from(is_held)];
        *unanswered = unanswered.saturating_sub(1);
    }

    /// Handles the failure of a Hold or Release; false if it got none.
    pub(super) fn failed(&mut self) -> bool {
        let [released, held] = &mut self.unanswered;
        let (last, other) = if self.told { (held, released) } else { (released, held) };
        let found = if *last > 0 { last } else { other };
        let was_told = *found > 0;
        *found = found.saturating_sub(1);
        was_told
    }

    /// Whether no answer is awaited. A failed Release is repeated; a failed Hold was answered with its reason.
    const fn is_settled(&self, is_wanted: bool) -> bool {
        self.told == is_wanted && self.unanswered[is_wanted as usize] == 0 && (is_wanted || !self.is_held)
    }
}

impl FrontEnds {
    /// Pauses or resumes the run. A pause holds the trigger source first, waits for its answer up to a limit, and then
    /// pauses the nodes; a resume starts with the nodes. Ignored if no run can be paused now. A stop ends a pause.
    pub fn pause(&mut self, now: Instant, is_paused: bool) {
        let may_be_paused = (FrontEndPhase::AwaitingNodes..=FrontEndPhase::Running).contains(&self.phase);
        if !may_be_paused || self.pause.is_wanted() == is_paused {
            return;
        }
        if is_paused {
            self.pause = Pause::Awaited;
            self.await_hold(now);
        } else {
            self.end_pause();
        }
        self.advance(now);
    }

    /// Whether the nodes were told to pause and the trigger source, if reachable, is held.
    pub const fn is_paused(&self) -> bool {
        matches!(self.pause, Pause::Paused)
    }

    /// Waits for the trigger source from now on; before the nodes run there is nothing to wait for.
    pub(super) fn await_hold(&mut self, now: Instant) {
        if self.pause == Pause::Awaited && self.phase != FrontEndPhase::AwaitingNodes {
            self.hold_limit = now.after(self.config.answer);
        }
    }

    /// Resumes the nodes. Only then can the data of the front ends leave.
    pub(super) fn end_pause(&mut self) {
        if core::mem::take(&mut self.pause) == Pause::Paused {
            self.actions.push_back(FrontEndAction::Nodes(RunCommand::Resume));
        }
        self.hold_limit = Instant::FAR_FUTURE;
    }

    /// Sends the trigger source the command that the pause requires, and tells the nodes after its answer.
    pub(super) fn advance_pause(&mut self, now: Instant) {
        if !matches!(self.phase, FrontEndPhase::Starting | FrontEndPhase::Running) {
            return;
        }
        if let Some(place) = self.trigger() {
            self.tell_hold(now, place);
        }
        if self.pause == Pause::Awaited && self.is_hold_settled() {
            self.pause_nodes();
        }
    }

    fn pause_nodes(&mut self) {
        self.pause = Pause::Paused;
        self.hold_limit = Instant::FAR_FUTURE;
        self.actions.push_back(FrontEndAction::Nodes(RunCommand::Pause));
    }

    fn tell_hold(&mut self, now: Instant, place: usize) {
        let (is_wanted, run) = (self.pause.is_wanted(), self.order.run);
        let member = &mut self.members[place];
        let Some(may_be_held) = member.hello.as_ref().map(Hello::may_be_held) else { return };
        let is_triggering = (Stage::Started..=Stage::Triggering).contains(&member.reached);
        if !is_triggering || member.hold.told == is_wanted {
            return;
        }
        if !may_be_held {
            return self.note(now, place, IncidentKind::CannotBeHeld);
        }
        member.hold.told = is_wanted;
        member.hold.unanswered[usize::from(is_wanted)] += 1;
        let command = if is_wanted { Command::Hold(run) } else { Command::Release(run) };
        if self.pause != Pause::Awaited {
            self.hold_limit = now.after(self.config.answer);
        }
        self.actions.push_back(FrontEndAction::Tell(place, command));
    }

    /// Whether the run can be paused without a further wait for the trigger source.
    fn is_hold_settled(&self) -> bool {
        let Some(member) = self.trigger().map(|place| &self.members[place]) else { return true };
        let issues_none = member.is_left_behind || member.reached > Stage::Triggering;
        let cannot = member.hello.as_ref().is_some_and(|hello| !hello.may_be_held());
        issues_none || cannot || self.has_answered(member)
    }

    fn has_answered(&self, member: &Member) -> bool {
        member.hello.is_some() && member.hold.is_settled(self.pause.is_wanted())
    }

    /// Handles a missing answer of the trigger source. A pause waits no longer; a Release is repeated.
    pub(super) fn give_up_hold(&mut self, now: Instant) {
        self.hold_limit = Instant::FAR_FUTURE;
        let late = self.trigger().filter(|&place| {
            let member = &self.members[place];
            // Its absence is reported already; that a pause does not reach it is not.
            let may_answer = member.hello.as_ref().map_or(self.pause == Pause::Awaited, Hello::may_be_held);
            may_answer && !member.is_left_behind && !self.has_answered(member)
        });
        if let Some(place) = late {
            let kind = if self.pause.is_wanted() { IncidentKind::NotHeld } else { IncidentKind::NotReleased };
            self.note(now, place, kind);
            let hold = &mut self.members[place].hold;
            hold.told |= !self.pause.is_wanted();
        }
        if self.pause == Pause::Awaited {
            self.pause_nodes();
        }
        self.advance(now);
    }
}
