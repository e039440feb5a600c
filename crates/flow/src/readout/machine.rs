//! The readout machine: its state, its inputs, and the order of its actions.

use super::ReadoutConfig;
use super::announcing::{Announcing, ReportCursor};
use super::beginning::MOST_DECLARED;
use super::collating::Collating;
use super::framer::FrameCounts;
use super::requests::Requests;
use super::source::{Oldest, Presence, Source};
use super::table::{NEVER, ORIGIN, Position, Table, Timeline};
use crate::messages::{BATCH, Batch, Finished, Message, Report, ReportEntry, Setting, Start, SuperFragmentEntry};
use core::time::Duration;
use ropewalk_memory::Payload;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventKey, FragmentAccount, Instant, NodeId, Parameter, Role, SourceId};
use std::collections::VecDeque;

/// If the readout unit meets a deadline late by more than this fraction (1/4) of the source time-out, the unit itself
/// was stopped.
const OVERDUE: u32 = 4;

/// An action that the readout unit requests.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "batches live in the message so that none needs an allocation")]
pub enum ReadoutAction {
    /// Send this message to the event manager.
    ToManager(Message),
    /// Send this super-fragment to a builder unit, with the fragments that [`Readout::super_fragment`] returns for it.
    /// If `entry.not_held` gives a cause, there are none.
    Answer {
        /// The builder unit.
        builder: u16,
        /// The header of the answer.
        entry: SuperFragmentEntry,
    },
}

/// A readout unit: accepts fragments, determines which events are settled, and holds them until they are released.
#[derive(Debug)]
pub struct Readout {
    pub(super) sources: Vec<Source>,
    pub(super) table: Table,
    pub(super) timeline: Timeline,
    pub(super) requests: Requests,
    pub(super) window: Position,
    pub(super) source_timeout: Duration,
    pub(super) resync_timeout: Duration,
    /// Whether some readout unit has a trigger source, which declares resynchronisations.
    pub(super) resync_declared: bool,
    /// Whether this is the only readout unit.
    pub(super) is_alone: bool,
    /// Whether the number at which counting begins is still to be shown by the sources.
    pub(super) first_is_open: bool,
    /// Whether the run was started.
    pub(super) started: bool,
    /// The event number of the run's first event.
    pub(super) first_number: u64,
    /// One past the latest event that another readout unit holds, as reported by the event manager.
    shown_elsewhere: Position,
    /// The highest such key, possibly of a resync count that has not begun here.
    highest_elsewhere: EventKey,
    /// Everything before this event is settled. It is the oldest event that may still be incomplete.
    pub(super) head: Position,
    /// Number of sources that the event at `head` waits for.
    pub(super) behind: usize,
    /// Until this time no source's numbers have been in doubt for too long.
    pub(super) doubt_check: Instant,
    /// Number of sources whose fragments wait for room or for a resynchronisation.
    pub(super) waiting: usize,
    pub(super) oldest: Oldest,
    /// Until this time no source times out.
    timeout_check: Instant,
    /// When the clock was last read.
    looked_at: Instant,
    /// Declared resynchronisations whose keys have not begun here.
    pub(super) declared: VecDeque<EventKey>,
    /// Timing of the first of them.
    pub(super) pending: Oldest,
    /// Until this time no source is left behind for not following it.
    pub(super) resync_deadline: Instant,
    /// Until this time no source has waited too long for a declaration.
    pub(super) restart_check: Instant,
    pub(super) announcing: Announcing,
    pub(super) stop: Option<Stop>,
    highest_asked: bool,
    final_report: Option<ReportCursor>,
    pub(super) finished: bool,
    /// The sources whose events are numbered here.
    pub(super) collating: Option<Collating>,
}

impl Readout {
    /// Creates a readout unit before its run, and allocates all memory for its tables.
    pub fn new(config: ReadoutConfig) -> Self {
        let capacity = config.capacity.clamp(2, 1 << 30).next_power_of_two();
        let sources: Vec<_> = config.sources.iter().map(|source| Source::new(source, &config)).collect();
        Self {
            table: Table::new(capacity as usize, sources.len(), ORIGIN),
            sources,
            timeline: Timeline::new(EventKey::MIN),
            requests: Requests::new(config.builders),
            window: Position::from(config.window.clamp(1, capacity)),
            source_timeout: config.source_timeout,
            resync_timeout: config.resync_timeout,
            resync_declared: config.trigger.is_some() || config.trigger_elsewhere,
            is_alone: config.is_alone,
            first_is_open: config.first_is_open && config.sources.iter().any(|source| !source.runs_free),
            started: false,
            first_number: 0,
            shown_elsewhere: ORIGIN,
            highest_elsewhere: EventKey::MIN,
            head: ORIGIN,
            behind: 0,
            doubt_check: Instant::FAR_FUTURE,
            waiting: 0,
            oldest: Oldest::default(),
            timeout_check: Instant::FAR_FUTURE,
            looked_at: Instant::ZERO,
            declared: VecDeque::with_capacity(MOST_DECLARED),
            pending: Oldest::default(),
            resync_deadline: Instant::FAR_FUTURE,
            restart_check: Instant::FAR_FUTURE,
            announcing: Announcing::default(),
            stop: None,
            highest_asked: false,
            final_report: None,
            finished: false,
            collating: Collating::new(&config),
        }
    }

    /// Handles a message from the event manager, or a request from a builder unit. Others are ignored.
    pub fn message(&mut self, now: Instant, from: NodeId, message: &Message) {
        match (from.role, message) {
            (Role::Manager, Message::Start(start)) => self.start(now, start),
            (Role::Manager, Message::QueryHighest) => self.highest_asked = true,
            (Role::Manager, Message::Highest(key)) => self.shown_elsewhere(now, *key),
            (Role::Manager, Message::StopAt(last)) => self.stop_at(now, *last),
            (Role::Manager, Message::Resync(resync)) => {
                self.declare(now, resync.first);
                self.advance(now);
            }
            (Role::Manager, Message::Release(release)) => self.release(now, release),
            (Role::Manager, Message::Ended(ended)) => self.keep_ended(ended),
            (Role::Manager, Message::Lumisection(begun)) => self.announcing.lumisections.begin(*begun),
            (Role::Manager, Message::LumisectionEnd(end)) => _ = self.announcing.lumisections.end(end),
            (Role::Manager, Message::Mask(mask)) => self.mask_or_unmask(now, *mask),
            (Role::Manager, Message::Set(setting)) => self.set(now, *setting),
            (Role::Manager, Message::Recover) => self.announce_again(),
            (Role::Manager, Message::Finish) => self.finish(),
            (Role::Builder, Message::Request(request)) => {
                request.entries.iter().for_each(|entry| self.requests.add(from.index, *entry));
            }
            _ => {}
        }
    }

    /// Handles the loss of a node. The requests of a lost builder unit are dropped. For the event manager everything is
    /// kept, since a new one will ask for it.
    pub fn peer_lost(&mut self, _now: Instant, node: NodeId) {
        if node.role == Role::Builder {
            self.requests.forget(node.index);
        }
    }

    /// Changes a parameter. Waits that have already begun use the new value. Parameters of other nodes are kept for a
    /// new event manager.
    fn set(&mut self, now: Instant, setting: Setting) {
        let time = setting.time();
        match setting.parameter {
            Parameter::SourceTimeout => {
                self.source_timeout = time;
                if let Some(collating) = &mut self.collating {
                    collating.set_timeout(time);
                }
                self.timeout_check = self.earliest_timeout().max(now);
            }
            // Resynchronisations that are under way keep their time-out.
            Parameter::ResyncTimeout => self.resync_timeout = time,
            _ => {}
        }
        self.announcing.settings.keep(setting);
        self.pass_time(now);
    }

    /// Notes the framer's counts of a source until `now`, besides its frames. A source that sends only bytes without a
    /// frame is not silent.
    pub fn note_frames(&mut self, now: Instant, source: usize, counts: FrameCounts) {
        let source = &mut self.sources[source];
        if counts.skipped_bytes > 0 && source.last_came.is_some() {
            source.last_came = Some(now);
        }
        let statistics = &mut source.statistics;
        statistics.frames_missing = (statistics.frames_missing + counts.missing).saturating_sub(counts.found);
        if counts.missing > 0 {
            statistics.last_gap = counts.missing;
        }
        let out_of_order = statistics.frames_out_of_order + counts.out_of_order + counts.repeated;
        statistics.frames_out_of_order = out_of_order.saturating_sub(counts.forgiven);
        statistics.garbage_bytes += counts.skipped_bytes;
        statistics.filler_bytes += counts.filler_bytes;
        statistics.frames_divided += counts.divided;
        statistics.frames_gathered += counts.gathered;
    }

    /// Counts fragments that were framed but not given to the machine before it had [finished](Readout::is_finished).
    /// They are counted under the cause that ended the run.
    pub fn abandon(&mut self, source: usize, fragments: u64) {
        let is_drained = self.is_drained();
        let account = &mut self.sources[source].account;
        account.received += fragments;
        if is_drained {
            account.after_stop += fragments;
        } else {
            account.dropped.add(Cause::ForcedStop, fragments);
        }
    }

    /// Whether no event is needed any more, and nothing is taken.
    pub const fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether the run was started. Before that every fragment is stale.
    pub const fn has_started(&self) -> bool {
        self.started
    }

    /// Returns the index of a source in this readout unit.
    pub fn source_index(&self, id: SourceId) -> Option<usize> {
        self.sources.iter().position(|source| source.id == id)
    }

    /// Notes that a source is connected, after its first bytes have identified it.
    pub fn source_connected(&mut self, now: Instant, source: usize) {
        self.leaves_now(now, source);
        self.end_restart(now, source);
        self.sources[source].connect();
        self.compare_again(now, source);
        self.run_clock(now, source, false);
    }

    /// Notes the end of a source's connection. With `mid_fragment` it cut a fragment, which counts as one dropped.
    pub fn source_disconnected(&mut self, now: Instant, source: usize, mid_fragment: bool) {
        if mid_fragment {
            let account = &mut self.sources[source].account;
            account.received += 1;
            account.dropped.add(Cause::CutShort, 1);
        }
        if !self.leaves_later(now, source) {
            self.disconnect(now, source);
        }
    }

    pub(super) fn disconnect(&mut self, now: Instant, source: usize) {
        let input = &mut self.sources[source];
        input.disconnect();
        self.run_clock(now, source, false);
        self.moved(now, source);
        if self.sources.iter().all(|input| input.presence == Presence::Ended) {
            // No further fragment can prove the held ones.
            for ended in 0..self.sources.len() {
                self.decide(now, ended, true);
                self.moved(now, ended);
            }
        }
    }

    /// Sets whether a connected source's bytes are being read. While they are not, its silence is no evidence.
    pub fn set_being_read(&mut self, now: Instant, source: usize, reading: bool) {
        self.run_clock(now, source, reading);
    }

    /// Whether events have waited for a source for the full time-out.
    pub fn is_overdue(&self, now: Instant, source: usize) -> bool {
        let input = &self.sources[source];
        let waits_too_long = || input.clock.shows(now, &self.oldest) >= self.source_timeout;
        input.presence == Presence::GivenUp(Cause::TimedOut) || input.frontier <= self.head && waits_too_long()
    }

    /// Starts or stops the absence clock of a source. It runs while the source is read or not connected.
    fn run_clock(&mut self, now: Instant, source: usize, reading: bool) {
        let input = &mut self.sources[source];
        input.set_read(now, reading);
        input.clock.set_running(now, reading || !input.connected, &self.oldest);
        input.resync_clock.set_running(now, reading || !input.connected, &self.pending);
        if self.oldest.is_waiting() && input.frontier <= self.head {
            self.timeout_check = self.timeout_check.min(input.clock.deadline(self.source_timeout, &self.oldest));
        }
    }

    /// Does everything that is due by now. Afterwards a source may have [`Readout::room`] that had none, even without
    /// an action to poll.
    pub fn pass_time(&mut self, now: Instant) {
        if self.started {
            self.restart_clocks_if_stopped(now);
            self.go_on_collating(now);
            self.look_at_the_clock(now);
            self.admit_waiting(now);
        }
    }

    /// Returns the next action; `None` if there is none until the next input or deadline.
    pub fn poll(&mut self, now: Instant) -> Option<ReadoutAction> {
        self.pass_time(now);
        if self.started {
            if let Some(left) = self.next_left() {
                return Some(ReadoutAction::ToManager(left));
            }
            if let Some(follows) = self.next_follows() {
                return Some(ReadoutAction::ToManager(follows));
            }
            if let Some(announce) = self.next_announce() {
                return Some(ReadoutAction::ToManager(Message::Announce(announce)));
            }
            if let Some(answer) = self.next_answer() {
                return Some(answer);
            }
            if core::mem::take(&mut self.highest_asked) {
                return Some(ReadoutAction::ToManager(Message::Highest(self.highest())));
            }
        }
        if !self.started && core::mem::take(&mut self.highest_asked) {
            // A new event manager asks, and no earlier one has started the run here.
            return Some(ReadoutAction::ToManager(Message::Highest(EventKey::MIN)));
        }
        self.next_final_message(now).map(ReadoutAction::ToManager)
    }

    /// Returns when [`Readout::poll`] must be called at the latest, even without input.
    pub fn next_deadline(&self) -> Option<Instant> {
        let collating = self.collating.as_ref().and_then(Collating::next_deadline).unwrap_or(Instant::FAR_FUTURE);
        let deadline = self.timeout_check.min(self.resync_deadline).min(self.restart_check).min(collating);
        let deadline = deadline.min(self.doubt_check);
        (deadline < Instant::FAR_FUTURE).then_some(deadline)
    }

    /// Restarts all time-outs if this readout unit itself was stopped, so that data that arrived meanwhile is read
    /// first.
    pub(super) fn restart_clocks_if_stopped(&mut self, now: Instant) {
        let due = self.next_deadline().unwrap_or(Instant::FAR_FUTURE).max(self.looked_at);
        self.looked_at = now;
        if now < due.after(self.source_timeout / OVERDUE) {
            return;
        }
        if self.oldest.is_waiting() {
            self.oldest.begin(now);
            self.timeout_check = now.after(self.source_timeout);
        }
        if let Some(collating) = &mut self.collating {
            collating.restart_clocks(now);
        }
        self.restart_doubts(now);
        self.restart_resync_clocks(now);
    }

    fn look_at_the_clock(&mut self, now: Instant) {
        if now >= self.timeout_check {
            self.give_up_absent_sources(now);
        }
        if now >= self.doubt_check {
            self.end_doubts(now);
        }
        if now >= self.restart_check {
            self.give_up_restarted_sources(now);
        }
        if now >= self.resync_deadline {
            self.leave_behind(now);
        }
    }

    /// Gives up sources for which the oldest event has waited long enough. They are not awaited again until they
    /// deliver.
    fn give_up_absent_sources(&mut self, now: Instant) {
        for index in 0..self.sources.len() {
            let source = &self.sources[index];
            if source.frontier <= self.head && source.clock.shows(now, &self.oldest) >= self.source_timeout {
                // Nothing from the source is awaited any longer, not even for numbers in doubt.
                self.decide(now, index, true);
            }
            let source = &mut self.sources[index];
            if source.frontier <= self.head && source.clock.shows(now, &self.oldest) >= self.source_timeout {
                source.presence = Presence::GivenUp(source.silence());
                self.note_frontier(index);
            }
        }
        self.timeout_check = self.earliest_timeout();
        self.advance(now);
    }

    /// Returns when the first of the sources that the oldest event waits for times out.
    fn earliest_timeout(&self) -> Instant {
        if !self.oldest.is_waiting() {
            return Instant::FAR_FUTURE;
        }
        let lagging = self.sources.iter().filter(|source| source.frontier <= self.head);
        let deadlines = lagging.map(|source| source.clock.deadline(self.source_timeout, &self.oldest));
        deadlines.min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Starts the clock when an event becomes the oldest incomplete one, and stops it when none is left.
    ///
    /// An event that no source here has shown waits for no source, even if the run's last event is known: its trigger
    /// may still come. An event for which there is no room does not wait either, since no source could fill it.
    pub(super) fn watch(&mut self, now: Instant, head_moved: bool) {
        let waits = self.started && self.behind > 0 && self.opened() > self.head && self.head < self.table.limit();
        if !waits {
            self.oldest.end();
            self.timeout_check = Instant::FAR_FUTURE;
        } else if head_moved || !self.oldest.is_waiting() {
            self.oldest.begin(now);
            // Not earlier. Whether the clocks of lagging sources were stopped is checked then.
            self.timeout_check = now.after(self.source_timeout);
        }
    }

    /// Returns one past the latest event that some source has shown, here or elsewhere.
    pub(super) fn opened(&self) -> Position {
        let stopped = self.stop.as_ref().filter(|stop| stop.is_shown && stop.end != NEVER).map_or(0, |stop| stop.end);
        let seen = if self.waiting == 0 { 0 } else { self.end_of_waiting() };
        self.table.end().max(stopped).max(seen).max(self.shown_elsewhere)
    }

    /// Notes that another readout unit holds this event, so that it is awaited here too.
    fn shown_elsewhere(&mut self, now: Instant, key: EventKey) {
        if self.started {
            self.highest_elsewhere = self.highest_elsewhere.max(key);
            self.place_shown_elsewhere();
            self.advance(now);
        }
    }

    /// Updates the end of the events that other readout units have shown, as far as the resync counts have begun here.
    pub(super) fn place_shown_elsewhere(&mut self) {
        let end = self.timeline.end_of(self.highest_elsewhere).unwrap_or(ORIGIN);
        self.shown_elsewhere = self.shown_elsewhere.max(end);
    }

    /// Returns one past the latest event of which a fragment waits for room.
    fn end_of_waiting(&self) -> Position {
        let known = self.sources.iter().map(|source| source.waiting_at).filter(|&position| position != NEVER);
        known.max().map_or(0, |latest| latest + 1)
    }

    /// Returns the highest key that any source has shown; before the first fragment, the key before the run's first
    /// one.
    pub(super) fn highest(&self) -> EventKey {
        let highest = self.sources.iter().map(Source::highest).max().unwrap_or(ORIGIN - 1);
        let position = highest.max(self.table.end() - 1);
        if position < ORIGIN { self.timeline.key_before(ORIGIN) } else { self.timeline.key(position) }
    }

    /// Returns the number of events between the oldest that some source may still contribute to and the latest that a
    /// fragment was placed in. At most the window.
    pub fn lead(&self) -> u64 {
        self.table.end().saturating_sub(self.head)
    }

    /// Returns the account of one source. Fragments in flight are counted from the table.
    pub fn account(&self, source: usize) -> FragmentAccount {
        let input = &self.sources[source];
        let collated = self.collating.as_ref().map_or(0, |collating| collating.held_of(source));
        let undecided = input.waiting.len() + input.doubt.len();
        let in_flight = self.table.held_of(source) + undecided as u64 + collated;
        FragmentAccount { in_flight, ..input.account }
    }

    /// Returns the account of all sources.
    pub fn total(&self) -> FragmentAccount {
        let mut total = FragmentAccount::default();
        (0..self.sources.len()).for_each(|source| total.merge(&self.account(source)));
        total
    }

    /// Whether a settled event is held. Its release makes room without any source.
    pub const fn holds_settled(&self) -> bool {
        self.table.base() < self.head
    }

    /// Whether settled events are held and no builder unit requests one.
    pub const fn awaits_requests(&self) -> bool {
        self.holds_settled() && self.requests.is_empty()
    }

    /// Returns the number of events held.
    pub fn held(&self) -> usize {
        self.table.held()
    }

    /// Returns the bytes of all payloads held.
    pub fn held_bytes(&self) -> u64 {
        self.table.held_bytes()
    }

    /// Passes the held payloads to `visit`, oldest event first, so that they can be replaced by copies elsewhere when
    /// the pool runs low. Each is passed once, until `visit` breaks.
    pub fn oldest_payloads(&mut self, visit: impl FnMut(usize, &mut Payload) -> core::ops::ControlFlow<()>) {
        self.table.visit_oldest(visit);
    }
}

/// The run's end, as set by the event manager.
#[derive(Copy, Clone, Debug)]
pub(super) struct Stop {
    /// The run's last event.
    pub(super) last: EventKey,
    /// One past its position; [`NEVER`] while its resync count has not begun here.
    pub(super) end: Position,
    /// Whether some source had shown it, or a later event, when the end was set.
    pub(super) is_shown: bool,
    /// Whether the settling of everything up to `last` was announced.
    pub(super) announced: bool,
}

impl Readout {
    /// Begins the run. A second start is a repetition of the first one and is ignored.
    pub(super) fn start(&mut self, now: Instant, start: &Start) {
        if self.started {
            return;
        }
        let Start { first, origin } = *start;
        self.started = true;
        self.timeline = Timeline::new(first);
        self.first_number = origin.number();
        // The sources of a readout unit that restarts in mid-run do not show where their counters began.
        self.first_is_open &= first == origin;
        self.begin_masked(origin);
        for source in 0..self.sources.len() {
            // For a readout unit that restarts in mid-run, the counters have advanced meanwhile.
            let input = &mut self.sources[source];
            input.sequence.restart(ORIGIN - 1, first.number().wrapping_sub(origin.number()));
            input.resync = first.resync();
            input.resumes = first != origin;
            self.note_frontier(source);
            if !self.sources[source].connected {
                self.run_clock(now, source, false);
            }
        }
        self.advance(now);
    }

    /// Ends the run with this event. Later events are not wanted. Missing fragments up to it are awaited, with the
    /// usual time-out once a source has shown the event. An event that no source shows here is up to the event manager,
    /// which learns of it from the other readout units. A run that is stopped before its known end ends earlier;
    /// nothing makes it end later.
    fn stop_at(&mut self, now: Instant, last: EventKey) {
        if !self.started {
            return;
        }
        if let Some(stop) = self.stop.as_mut().filter(|stop| stop.last <= last) {
            stop.announced = false;
            return;
        }
        let end = self.timeline.end_of(last).unwrap_or(NEVER);
        let is_shown = self.highest() >= last;
        self.stop = Some(Stop { last, end, is_shown, announced: false });
        for source in 0..self.sources.len() {
            self.sources[source].account.after_stop += self.table.withdraw(source, end..NEVER);
            if self.sources[source].is_restarted() && self.is_stopping_in_this_count() {
                self.drop_waiting(source, Cause::AfterStop);
            }
        }
        self.admit_waiting(now);
        self.advance(now);
    }

    /// Whether the run's end was announced and everything up to it is released.
    pub fn is_drained(&self) -> bool {
        let Some(stop) = &self.stop else { return false };
        stop.announced && self.table.base() >= stop.end
    }

    /// Drops everything that is still held, since no event is needed any more, and begins the final report.
    pub(super) fn finish(&mut self) {
        self.end_collating();
        let mut in_flight = 0;
        for source in 0..self.sources.len() {
            // A builder unit may have written the fragments that it was sent: the release was lost with the event
            // manager.
            let sent = self.table.answered_of(source);
            let withdrawn = self.table.withdraw(source, 0..NEVER);
            let input = &self.sources[source];
            in_flight += withdrawn + (input.waiting.len() + input.doubt.len()) as u64;
            self.drop_waiting(source, Cause::ForcedStop);
            let dropped = &mut self.sources[source].account.dropped;
            dropped.add(Cause::OutcomeUnknown, sent);
            dropped.add(Cause::ForcedStop, withdrawn - sent);
        }
        self.finished = true;
        self.final_report = Some(ReportCursor { sent: 0, in_flight });
    }

    /// Returns the next message after the end: the last report, then the number of fragments that were still held.
    fn next_final_message(&mut self, now: Instant) -> Option<Message> {
        let cursor = self.final_report?;
        let mut left = self.report(now).chain(self.histograms()).skip(cursor.sent);
        let entries: Batch<ReportEntry> = left.by_ref().take(BATCH).collect();
        let last = left.next().is_none();
        drop(left);
        if entries.is_empty() {
            self.final_report = None;
            return Some(Message::Finished(Finished { in_flight: cursor.in_flight }));
        }
        self.final_report = Some(ReportCursor { sent: cursor.sent + entries.len(), ..cursor });
        Some(Message::Report(Report { entries, last }))
    }
}

/// Settling of events: everything before `head`, the oldest event that some source may still contribute to, is settled.
///
/// Each source has a frontier, before which it has delivered or will not deliver. `head` is the smallest frontier of
/// the sources that events wait for. It is determined anew only when every source has passed `head`, so that the cost
/// per fragment is constant on average.
impl Readout {
    /// Notes that a source has advanced, or that events have begun or ceased to wait for it.
    pub(super) fn moved(&mut self, now: Instant, source: usize) {
        self.note_frontier(source);
        self.advance(now);
    }

    /// Updates a source's frontier and whether the event at `head` waits for it.
    pub(super) fn note_frontier(&mut self, source: usize) {
        let input = &mut self.sources[source];
        let frontier = input.current_frontier();
        self.behind -= usize::from(input.frontier <= self.head);
        self.behind += usize::from(frontier <= self.head);
        input.frontier = frontier;
    }

    /// Settles all events that no longer wait for a source.
    pub(super) fn advance(&mut self, now: Instant) {
        let before = self.head;
        while self.started && self.behind == 0 {
            let frontier = self.sources.iter().map(|source| source.frontier).min().unwrap_or(NEVER);
            self.announcing.follows = frontier == NEVER;
            let settled = if frontier == NEVER { self.opened() } else { frontier };
            let settled = settled.saturating_add(Position::from(is_planted(Flaw::SettledTooFar)));
            self.settle(settled.min(self.stop_end()));
            if frontier != NEVER || !self.begin_declared_segment(now) {
                break;
            }
        }
        self.announcing.follows &= self.behind == 0;
        self.table.close_gap(self.head);
        let moved = self.head != before;
        if moved {
            self.requests.look_again();
        }
        self.watch(now, moved);
    }

    /// Settles everything before `end`.
    fn settle(&mut self, end: Position) {
        if end <= self.head {
            return;
        }
        let (sources, timeline) = (&mut self.sources, &self.timeline);
        // Called once per event for each source that has no fragment in it.
        self.table.settle(self.head..end, |source, position| {
            let cause = sources[source].missing_cause(position);
            if let Some(cause) = cause.filter(|&cause| cause != Cause::Masked) {
                sources[source].account.missing.add(cause, 1);
                sources[source].gaps.note(position, timeline.key(position));
            }
            cause
        });
        self.set_head(end);
    }

    /// Moves `head` and recounts the sources that it waits for.
    pub(super) fn set_head(&mut self, head: Position) {
        self.head = head;
        self.behind = self.sources.iter().filter(|source| source.frontier <= head).count();
    }

    /// Skips events at `head` that were released before they were settled.
    pub(super) fn skip_released(&mut self, now: Instant) {
        let mut head = self.head;
        while self.table.is_released(head) {
            head += 1;
        }
        if head > self.head {
            self.set_head(head);
            self.requests.look_again();
            self.advance(now);
            self.watch(now, true);
        }
    }

    /// Whether no source can deliver any more: each has ended, has no waiting fragments, and is not awaited.
    pub(super) fn is_exhausted(&self) -> bool {
        let any_required = self.has_needed_source();
        self.sources.iter().all(|source| source.is_done(any_required)) && self.head >= self.opened()
    }

    /// Whether a required source takes part.
    pub(super) fn has_needed_source(&self) -> bool {
        self.sources.iter().any(super::source::Source::is_needed)
    }
}
