//! Front ends under run control: the order in which they and the nodes of a run start and stop.
//!
//! ```text
//!              every source ready      nodes run       every source started
//!  idle -> configuring -------> awaiting nodes -> starting -------> running (now the trigger source is enabled)
//!   ^           |                     |               |                |
//!   |           +---------------------+---------------+----------------+--Stop, or the nodes end by themselves
//!   |                                                                  v
//!   +-- finished <--nodes are stopped-- stopping <--last event known-- vetoing
//!                        (every source's data up to the last event have left)
//! ```
//! Every command is answered, and repeats do no harm: a front end that reconnects reports its stage and gets the
//! commands that it missed. During a pause the trigger source is held (`pause`). Before the nodes run, the start waits
//! for every source that an event needs. Later every wait has a limit: a front end that does not answer is named and
//! left behind, so that every stop finishes.

mod member;
mod pause;
#[cfg(test)]
mod tests;

pub use member::{FrontEndConfig, Incident, IncidentKind, MOST_INCIDENTS, Member, READINGS_PER_SECOND, Readings};

use crate::control::{RunCommand, RunPhase};
use pause::{Hold, Pause};
use ropewalk_terms::{EventKey, Instant, RunNumber, SourceId};
use ropewalk_wire::front_end::{Command, Configure, Hello, Stage, Start, Stop, Word};
use std::collections::VecDeque;
use std::time::Duration;

/// The front ends and the time-outs of their answers.
#[derive(Clone, Debug)]
pub struct FrontEndsConfig {
    /// The sources under run control.
    pub front_ends: Vec<FrontEndConfig>,
    /// The time-out of an answer.
    pub answer: Duration,
    /// How long a front end that reports progress may take until its data have left.
    pub drain: Duration,
}

/// The run to begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunOrder {
    /// The run.
    pub run: RunNumber,
    /// Its first event: front ends count from this number.
    pub first: EventKey,
    /// Its last event, if known.
    pub last: Option<EventKey>,
    /// The address of each front end's data, in the order of the configuration.
    pub addresses: Vec<String>,
}

/// An action for the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrontEndAction {
    /// Send this command to the front end at this place of the configuration.
    Tell(usize, Command),
    /// Give this command to the nodes of the run.
    Nodes(RunCommand),
}

/// The phase of the front ends: see the module's diagram.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[expect(missing_docs, reason = "the module's picture says what each waits for")]
pub enum FrontEndPhase {
    #[default]
    Idle,
    Configuring,
    AwaitingNodes,
    Starting,
    Running,
    Vetoing,
    Stopping,
    Finished,
}

impl FrontEndPhase {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Configuring => "configuring",
            Self::AwaitingNodes => "awaiting_nodes",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Vetoing => "vetoing",
            Self::Stopping => "stopping",
            Self::Finished => "finished",
        }
    }

    /// Whether a run is active.
    pub const fn is_active(self) -> bool {
        !matches!(self, Self::Idle | Self::Finished)
    }
}

/// The interval of status requests to a front end.
const PING: Duration = Duration::from_secs(1);
/// A front end without a message for this long is silent, and another program may take its place.
const SILENCE: Duration = Duration::from_secs(4);
/// The time-out of front ends when a run is stopped by force.
const FORCED: Duration = Duration::from_secs(1);

/// Run control of front ends: see the module's diagram.
#[derive(Debug)]
pub struct FrontEnds {
    config: FrontEndsConfig,
    members: Vec<Member>,
    phase: FrontEndPhase,
    order: RunOrder,
    /// The last event, as reported by the trigger source or given with the stop.
    last: Option<u64>,
    nodes: RunPhase,
    /// The time limit of the present phase.
    limit: Instant,
    /// The time limit for a front end whose data are still leaving.
    drain_limit: Instant,
    pause: Pause,
    /// The time limit for a trigger source that was told to hold or release.
    hold_limit: Instant,
    actions: VecDeque<FrontEndAction>,
    incidents: Vec<Incident>,
    incidents_beyond: u64,
}

impl FrontEnds {
    /// Creates the run control of these front ends, before the first run.
    pub fn new(config: FrontEndsConfig) -> Self {
        let order = RunOrder { run: RunNumber(0), first: EventKey::new(0, 1), last: None, addresses: Vec::new() };
        Self {
            members: config.front_ends.iter().cloned().map(Member::new).collect(),
            phase: FrontEndPhase::Idle,
            order,
            last: None,
            nodes: RunPhase::Initial,
            limit: Instant::FAR_FUTURE,
            drain_limit: Instant::FAR_FUTURE,
            pause: Pause::default(),
            hold_limit: Instant::FAR_FUTURE,
            actions: VecDeque::new(),
            incidents: Vec::new(),
            incidents_beyond: 0,
            config,
        }
    }

    /// Begins a run; ignored during another one.
    pub fn start(&mut self, now: Instant, order: RunOrder) {
        if self.phase.is_active() {
            return;
        }
        self.incidents.clear();
        self.incidents_beyond = 0;
        self.members.iter_mut().for_each(Member::begin);
        (self.order, self.last, self.nodes) = (order, None, RunPhase::Initial);
        self.enter(now, FrontEndPhase::Configuring);
    }

    /// Continues a run whose event manager is gone: front ends connect and report their stage, and stay in it.
    pub fn take_over(&mut self, now: Instant, order: RunOrder) {
        if !self.phase.is_active() {
            (self.order, self.nodes) = (order, RunPhase::Running);
            self.enter(now, FrontEndPhase::Running);
        }
    }

    /// Ends the run. `last` is its last event, if known from outside run control. A second stop changes nothing.
    pub fn stop(&mut self, now: Instant, last: Option<EventKey>) {
        if !self.phase.is_active() || self.phase >= FrontEndPhase::Vetoing {
            return;
        }
        // During a pause there may be no room for the front ends' remaining data.
        self.end_pause();
        self.last = last.map(EventKey::number);
        let may_trigger = self.phase >= FrontEndPhase::Starting && self.trigger().is_some();
        self.enter(now, if may_trigger { FrontEndPhase::Vetoing } else { FrontEndPhase::Stopping });
    }

    /// Ends the run at once: the nodes drop what they have, and front ends get little time.
    pub fn force_stop(&mut self, now: Instant) {
        if self.phase.is_active() {
            self.actions.push_back(FrontEndAction::Nodes(RunCommand::ForceStop));
            (self.pause, self.hold_limit) = (Pause::default(), Instant::FAR_FUTURE);
            if self.phase < FrontEndPhase::Stopping {
                self.enter(now, FrontEndPhase::Stopping);
            }
            if self.phase == FrontEndPhase::Stopping {
                self.limit = self.limit.min(now.after(FORCED));
                self.drain_limit = self.limit;
            }
        }
    }

    /// Masks a source: run control does not wait for its front end, in this run and in later ones. Unmasking sends the
    /// front end the commands of the present run that it missed, as if it had not been left behind, so that a restarted
    /// board takes part again. The trigger source cannot be masked.
    pub fn mask(&mut self, now: Instant, source: SourceId, is_masked: bool) {
        let members = self.members.iter_mut();
        let found = members.filter(|member| member.config.source == source && !member.config.is_trigger).last();
        let Some(member) = found else { return };
        let was_masked = core::mem::replace(&mut member.is_masked, is_masked);
        if was_masked && !is_masked {
            (member.is_left_behind, member.has_failed) = (false, false);
            if member.asked.is_some_and(|asked| asked > member.reached) {
                // The last command to it may have failed.
                member.asked = None;
            }
        }
        self.advance(now);
    }

    /// Records the phase of the nodes.
    pub fn nodes_are(&mut self, now: Instant, nodes: RunPhase) {
        self.nodes = nodes;
        if self.phase == FrontEndPhase::AwaitingNodes && nodes.is_running() {
            self.enter(now, FrontEndPhase::Starting);
        } else if nodes > RunPhase::Running {
            // They stop by themselves: at their last event, or because one of them requested it.
            self.stop(now, None);
        }
        self.advance(now);
    }

    /// Whether a program that connects as this front end is accepted: not while another one is alive.
    pub fn may_connect(&self, now: Instant, place: usize) -> bool {
        let member = &self.members[place];
        member.hello.is_none() || now.since(member.heard) >= SILENCE
    }

    /// Records that a front end has connected. Nothing more comes over an earlier connection.
    pub fn connected(&mut self, now: Instant, place: usize, hello: Hello) {
        let (run, is_active) = (self.order.run, self.phase.is_active());
        let is_elsewhere = hello.run != run && (Stage::Ready..Stage::Stopped).contains(&hello.stage);
        if is_elsewhere {
            // No other command will stop a run that is unknown here.
            let stop = Stop { run: hello.run, last: None };
            self.actions.push_back(FrontEndAction::Tell(place, Command::Stop(stop)));
        }
        let member = &mut self.members[place];
        let (stage, before) = (Member::stage_of(&hello, run), member.reached);
        member.hold = if hello.run == run { Hold::of(&hello, member.hold.last) } else { Hold::default() };
        (member.heard, member.ping_due, member.is_silent) = (now, now.after(PING), false);
        (member.name, member.versions) = (hello.name(), hello.versions.clone());
        (member.hello, member.asked, member.has_failed) = (Some(hello), None, false);
        member.was_ready |= has_settings(stage);
        let was_known = core::mem::replace(&mut member.is_known, true);
        if self.phase >= FrontEndPhase::Starting && is_active && stage < Stage::Ready {
            // What it reported before it disconnected still counts.
            member.reached = if before >= Stage::Vetoed { before } else { stage };
            member.is_left_behind = true;
            self.note(now, place, IncidentKind::StartedAnew);
        } else if !is_active && stage == Stage::Idle {
            // It knows nothing of the last run, so that it has no data to send.
            member.asked = Some(Stage::Stopped);
        } else {
            (member.reached, member.is_left_behind) = (stage, false);
            if is_active && was_known && before != Stage::Idle {
                self.note(now, place, IncidentKind::Returned);
            }
        }
        self.advance(now);
    }

    /// Records that a front end's connection ended.
    pub fn lost(&mut self, now: Instant, place: usize) {
        let member = &mut self.members[place];
        (member.hello, member.asked, member.ping_due) = (None, None, Instant::FAR_FUTURE);
        member.hold.lost();
        if self.phase.is_active() {
            self.note(now, place, IncidentKind::Lost);
        }
        self.advance(now);
    }

    /// Handles a message of a front end. Messages about another run change nothing.
    pub fn heard(&mut self, now: Instant, place: usize, word: &Word) {
        let run = self.order.run;
        let member = &mut self.members[place];
        (member.heard, member.is_silent) = (now, false);
        let reached = match word {
            Word::Ready(of) if *of == run => Stage::Ready,
            Word::Started(of) if *of == run => Stage::Started,
            Word::Enabled(of) if *of == run => Stage::Triggering,
            Word::Vetoed(vetoed) if vetoed.run == run => {
                member.vetoed.get_or_insert_with(|| vetoed.clone());
                Stage::Vetoed
            }
            Word::Stopped(stopped) if stopped.run == run => {
                member.stopped.get_or_insert(*stopped);
                Stage::Stopped
            }
            Word::Status(status) if status.run == run => {
                let goes_on = status.sent != member.status.sent || status.bytes != member.status.bytes;
                member.status.clone_from(status);
                if goes_on && self.phase == FrontEndPhase::Stopping {
                    self.limit = now.after(self.config.answer).min(self.drain_limit);
                }
                return;
            }
            Word::Held(held) if held.run == run => {
                member.hold.answered(true, Some(held.last));
                return self.advance(now);
            }
            Word::Released(of) if *of == run => {
                member.hold.answered(false, None);
                return self.advance(now);
            }
            Word::Failed(failed) if failed.run == run => {
                let is_on_its_way = member.asked.is_some_and(|asked| asked > member.reached);
                if !is_on_its_way && member.hold.failed() {
                    // The run continues with a trigger source that cannot be held, or not yet be released.
                    self.note(now, place, IncidentKind::Failed(failed.text.clone()));
                    return self.advance(now);
                }
                (member.has_failed, member.asked) = (true, None);
                // A run that has begun continues without it.
                member.is_left_behind |= self.phase >= FrontEndPhase::Starting || !member.is_needed();
                self.note(now, place, IncidentKind::Failed(failed.text.clone()));
                return self.advance(now);
            }
            _ => return,
        };
        member.reached = member.reached.max(reached);
        member.was_ready |= has_settings(reached);
        self.advance(now);
    }

    /// Records that a front end reported a slow reading; `has_room` says whether it can be stored. Returns whether to
    /// store it: beyond a limit readings are refused and counted.
    pub fn reported(&mut self, now: Instant, place: usize, has_room: bool) -> bool {
        let member = &mut self.members[place];
        (member.heard, member.is_silent) = (now, false);
        member.readings.take(now, has_room)
    }

    /// Returns the next action that is due.
    pub fn poll(&mut self, now: Instant) -> Option<FrontEndAction> {
        if now >= self.limit {
            self.give_up(now);
        }
        if now >= self.hold_limit {
            self.give_up_hold(now);
        }
        self.ping(now);
        self.actions.pop_front()
    }

    /// When [`FrontEnds::poll`] must be called without further input.
    pub fn next_deadline(&self) -> Option<Instant> {
        let limits = [self.limit, self.hold_limit];
        let due = self.members.iter().map(|member| member.ping_due).chain(limits).min()?;
        (due < Instant::FAR_FUTURE).then_some(due)
    }

    /// The phase of the front ends.
    pub const fn phase(&self) -> FrontEndPhase {
        self.phase
    }

    /// The present run, or the last one; 0 before the first.
    pub const fn run(&self) -> RunNumber {
        self.order.run
    }

    /// The number of the run's first event.
    pub const fn first(&self) -> u64 {
        self.order.first.number()
    }

    /// The number of the run's last event, once it is known.
    pub const fn last(&self) -> Option<u64> {
        self.last
    }

    /// The front ends, in the order of the configuration.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The first [`MOST_INCIDENTS`] incidents of this run, and the number of further ones.
    pub fn incidents(&self) -> (&[Incident], u64) {
        (&self.incidents, self.incidents_beyond)
    }

    fn trigger(&self) -> Option<usize> {
        self.members.iter().position(|member| member.config.is_trigger)
    }

    /// The stage that the phase requires of a front end.
    fn wanted(&self, place: usize) -> Stage {
        let is_trigger = self.members[place].config.is_trigger;
        match self.phase {
            FrontEndPhase::Idle => Stage::Idle,
            FrontEndPhase::Configuring | FrontEndPhase::AwaitingNodes => Stage::Ready,
            FrontEndPhase::Running if is_trigger => Stage::Triggering,
            FrontEndPhase::Vetoing if is_trigger => Stage::Vetoed,
            FrontEndPhase::Starting | FrontEndPhase::Running | FrontEndPhase::Vetoing => Stage::Started,
            FrontEndPhase::Stopping | FrontEndPhase::Finished => Stage::Stopped,
        }
    }

    fn enter(&mut self, now: Instant, phase: FrontEndPhase) {
        self.phase = phase;
        self.drain_limit = now.after(self.config.drain);
        self.limit = if phase.is_active() { now.after(self.config.answer) } else { Instant::FAR_FUTURE };
        if phase == FrontEndPhase::Starting {
            self.await_hold(now);
        }
        self.advance(now);
    }

    /// Sends each front end its next command, and enters the next phase when every front end has completed the present
    /// one.
    fn advance(&mut self, now: Instant) {
        self.advance_pause(now);
        for place in 0..self.members.len() {
            self.tell(place);
        }
        let are_all = |stage: Stage| self.members.iter().all(|member| member.is_settled(stage));
        match self.phase {
            FrontEndPhase::Configuring if are_all(Stage::Ready) => {
                let RunOrder { run, first, last, .. } = self.order;
                self.actions.push_back(FrontEndAction::Nodes(RunCommand::Start { run, first, last }));
                self.enter(now, FrontEndPhase::AwaitingNodes);
                // There is no limit for the nodes, as without front ends under run control.
                self.limit = Instant::FAR_FUTURE;
            }
            FrontEndPhase::AwaitingNodes if self.nodes.is_running() => self.enter(now, FrontEndPhase::Starting),
            FrontEndPhase::Starting if are_all(Stage::Started) => self.enter(now, FrontEndPhase::Running),
            FrontEndPhase::Running if self.trigger().is_none_or(|place| self.is_settled(place)) => {
                self.limit = Instant::FAR_FUTURE;
            }
            FrontEndPhase::Vetoing if self.trigger().is_none_or(|place| self.is_settled(place)) => {
                let trigger = self.trigger().and_then(|place| self.members[place].vetoed.as_ref());
                self.last = trigger.map(|vetoed| vetoed.last).or(self.last);
                self.enter(now, FrontEndPhase::Stopping);
            }
            FrontEndPhase::Stopping if self.members.iter().all(Self::has_left) => self.finish(now),
            _ => {}
        }
    }

    fn is_settled(&self, place: usize) -> bool {
        self.members[place].is_settled(self.wanted(place))
    }

    /// Whether no more of its data is awaited. A front end that got no command of the run has none.
    fn has_left(member: &Member) -> bool {
        let was_told = member.reached > Stage::Idle || member.asked.is_some();
        member.is_settled(Stage::Stopped) || !was_told
    }

    fn finish(&mut self, now: Instant) {
        // A run without events has no last one.
        let last = self.last.filter(|&last| last >= self.first());
        let last = last.map(|last| EventKey::new(self.order.first.resync(), last));
        self.actions.push_back(FrontEndAction::Nodes(RunCommand::Stop { last }));
        self.enter(now, FrontEndPhase::Finished);
    }

    /// Sends a front end the next command that it lacks, once over each connection.
    fn tell(&mut self, place: usize) {
        let (wanted, run) = (self.wanted(place), self.order.run);
        let member = &self.members[place];
        let told = member.asked.map_or(member.reached, |asked| asked.max(member.reached));
        // A front end enters a run step by step. The stop waits for no answer, and no front end enters a run during it.
        let is_ending = self.phase >= FrontEndPhase::Vetoing;
        let may_be_told = match wanted {
            Stage::Stopped => true,
            Stage::Vetoed => !member.is_left_behind,
            _ => !is_ending && !member.is_left_behind && !member.has_failed && told == member.reached,
        };
        if member.hello.is_none() || told >= wanted || !may_be_told {
            return;
        }
        let (stage, command) = match (wanted, told) {
            // It got no command of this run, so there is nothing to stop.
            (Stage::Stopped, Stage::Idle) => return,
            (Stage::Stopped, _) => (Stage::Stopped, Command::Stop(Stop { run, last: self.last })),
            (Stage::Vetoed, _) => (Stage::Vetoed, Command::Veto(run)),
            (_, Stage::Idle) => (Stage::Ready, self.configure(place)),
            (_, Stage::Ready) => (Stage::Started, self.start_command()),
            _ => (Stage::Triggering, Command::Enable(run)),
        };
        self.members[place].asked = Some(stage);
        self.actions.push_back(FrontEndAction::Tell(place, command));
    }

    fn configure(&self, place: usize) -> Command {
        Command::Configure(Configure {
            run: self.order.run,
            address: self.order.addresses.get(place).cloned().unwrap_or_default(),
            settings: self.config.front_ends[place].settings.clone(),
        })
    }

    fn start_command(&self) -> Command {
        let RunOrder { run, first, last, .. } = self.order;
        Command::Start(Start { run, first: first.number(), last: last.map(EventKey::number) })
    }

    /// Handles the time limit of the phase. Before the nodes run, and if the trigger source does not start, it tries
    /// again; later the run continues without the front ends that did not answer.
    fn give_up(&mut self, now: Instant) {
        self.limit = now.after(self.config.answer);
        for place in 0..self.members.len() {
            let wanted = self.wanted(place);
            let member = &mut self.members[place];
            let is_waited_for = match self.phase {
                FrontEndPhase::Stopping => !Self::has_left(member),
                _ => !member.is_settled(wanted),
            };
            if !is_waited_for {
                continue;
            }
            let tries_again = match self.phase {
                FrontEndPhase::Configuring => member.is_needed(),
                phase => phase == FrontEndPhase::Running,
            };
            let (was_asked, has_failed) = (member.asked.is_some(), core::mem::take(&mut member.has_failed));
            if tries_again {
                member.asked = None;
            } else {
                member.is_left_behind = true;
            }
            // The start waits for an absent front end, as for a node; one that gave a reason is already named.
            if (was_asked || !tries_again) && !has_failed {
                self.note(now, place, IncidentKind::NoAnswer(wanted));
            }
        }
        self.advance(now);
    }

    fn ping(&mut self, now: Instant) {
        for place in 0..self.members.len() {
            let member = &mut self.members[place];
            if now < member.ping_due {
                continue;
            }
            member.ping_due = now.after(PING);
            self.actions.push_back(FrontEndAction::Tell(place, Command::Ping));
            if now.since(member.heard) >= SILENCE && !core::mem::replace(&mut member.is_silent, true) {
                self.note(now, place, IncidentKind::Silent);
            }
        }
    }

    fn note(&mut self, at: Instant, place: usize, kind: IncidentKind) {
        // A front end that fails at every try reports the same each time.
        let source = self.members[place].config.source;
        let is_known = |known: &Incident| known.source == source && known.kind == kind;
        let repeats = matches!(
            kind,
            IncidentKind::Failed(_)
                | IncidentKind::NoAnswer(_)
                | IncidentKind::CannotBeHeld
                | IncidentKind::NotReleased
        );
        if repeats && self.incidents.iter().any(is_known) {
            return;
        }
        if self.incidents.len() < MOST_INCIDENTS {
            self.incidents.push(Incident { source, at, kind });
        } else {
            self.incidents_beyond += 1;
        }
    }
}

/// Whether a front end at this stage was configured for the run. One that knows nothing of the run is `Stopped` too.
fn has_settings(stage: Stage) -> bool {
    (Stage::Ready..Stage::Stopped).contains(&stage)
}
