//! What must hold of a run. Whenever all members have come to rest: [`World::watch`]. When it is over: does the ledger balance,
//! is everything back, and is everything that is missing missing for a reason?
//!
//! Each event that is in the files more than once, or was forgotten by the event manager that ended the run, needs a reason of
//! its own. An event manager gives an event to another builder unit when its own is lost, and counts that. A successor assigns
//! it again, without a count, where no unit could tell it that the event was done: the writer had died by then, was not heard in
//! time, or had forgotten it, because it remembers no more events than the event manager's table and twice its slots hold. The
//! last one matters only where a readout unit still held the event, whose release it had not heard.

use super::event_files::unnamed_files;
use super::fault::{Fault, FaultKind, POWER, Place};
use super::machines::{How, ManagerMachine, ReadoutMachine};
use super::masking::Masked;
use super::node::Node;
use super::referee::{Held, Record, Timeline};
use super::runner::{Broken, Checker, ensure};
use super::scenario::{End, Managers};
use super::world::World;
use ropewalk_engine::Drive;
use ropewalk_flow::builder::IncompletePolicy;
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::messages::LumisectionEnd;
use ropewalk_terms::{AcknowledgementLevel, Attempt, Cause, Epoch, Instant, NodeId};
use ropewalk_wire::run_file::OPEN_EXTENSION;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Who is away for so long is not waited for any more, by clocks that may be too fast (the event manager's patience
/// with a lost connection is one second).
const AWAY: Duration = Duration::from_millis(900);
/// Whose connection is lost calls again after this time, at latest.
const RECALL: Duration = Duration::from_millis(250);
/// A connection over which nothing comes keeps its node's place for so long.
const SILENCE: Duration = Duration::from_secs(1);
/// A node that was away is there again after this time: it calls five times a second.
const RETURN: Duration = Duration::from_secs(3);

impl World {
    /// What must hold of a run that is over.
    ///
    /// # Errors
    /// What does not.
    pub fn judge(&mut self) -> Result<(), Broken> {
        self.judge_ledger()?;
        self.judge_pools()?;
        self.judge_credits()?;
        let held = self.read_files()?;
        self.judge_account(&held)?;
        self.judge_fragments(&held)?;
        self.judge_lumisections(&held)?;
        self.judge_files()?;
        let timeline = self.timeline();
        self.judge_copies(&held, &timeline)?;
        self.judge_subscribers()?;
        let masked = self.judge_masks()?;
        self.judge_events(&held, &timeline, &masked)
    }

    fn judge_ledger(&mut self) -> Result<(), Broken> {
        let ledger = self.snapshot().ledger;
        let imbalances = ledger.imbalances();
        ensure!(Ledger, imbalances.is_empty(); "{imbalances:?}")?;
        let in_flight = (ledger.fragments.in_flight, ledger.events.in_flight);
        ensure!(Ledger, in_flight == (0, 0);
            "{} fragments and {} events are in flight after the end", in_flight.0, in_flight.1)
    }

    /// Blocks are out only while they are filled: one for what is staged, or one for each connection.
    fn judge_pools(&mut self) -> Result<(), Broken> {
        let network = self.network.clone();
        // What a source sent and no unit wanted stays in the blocks of its connection until the process ends.
        let left = self.front_ends.iter().filter_map(Node::machine).all(|one| one.has_left());
        let everything = self.scenario.events * self.scenario.sources.len() as u64;
        let all_came = left && self.snapshot().ledger.fragments.in_complete_events == everything;
        let rings: Vec<(u16, u64)> =
            self.scenario.cards.iter().map(|card| (card.readout, self.most_pages_out(card.readout))).collect();
        for member in self.members() {
            let (place, done) = (member.around().place, member.is_done());
            let connections = member.hosts(false).into_iter().map(|host| network.connections_of(host).len() as u64);
            let connections = connections.sum::<u64>() + 1;
            for (index, pool) in member.pools().into_iter().enumerate() {
                let is_for_front_ends = matches!(place, Place::Readout(_)) && index == 2;
                // What was not taken lies in its ring.
                let ring = rings.iter().find(|&&(readout, _)| place == Place::Readout(readout) && index == 3);
                let most = ring.map_or(connections, |&(_, pages)| pages);
                ensure!(Pools, !done || is_for_front_ends && !all_came || pool.held <= most;
                    "{place}: {} blocks of its pool {index} are out after the end, and {most} may be", pool.held)?;
            }
        }
        Ok(())
    }

    /// A builder unit that saw the end has granted again what it was given, and the event manager that it obeyed knows
    /// it. (Another one may have ended the run as well, before it knew that it was overtaken: seed 25519.)
    fn judge_credits(&mut self) -> Result<(), Broken> {
        for (index, node) in (0..).zip(&self.builders) {
            let Some(builder) = node.machine().filter(|builder| builder.is_done()) else { continue };
            let in_work = builder.machine().in_work() as u64;
            let is_forced = self.scenario.end.is_forced();
            ensure!(Credits, in_work == 0 || is_forced; "bu{index} ended with {in_work} slots in use")?;
            let obeyed = builder.obeyed().map(|(epoch, _)| epoch);
            let mut managers = self.managers.iter().filter_map(Node::machine);
            let Some(manager) = managers.find(|manager| obeyed.is_some() && manager.speaks() == obeyed) else {
                continue;
            };
            let free = manager.drive().machine().free_credit(index).0;
            let slots = u64::from(self.scenario.rooms.slots);
            ensure!(Credits, free == slots || is_forced;
                "bu{index} has {slots} slots and can be given {free} events after the end")?;
        }
        Ok(())
    }

    /// Checks that acknowledged events are in files, and that in the account of a run that has ended no chunks wait for
    /// subscribers. A forced stop does not wait for them: its account counts them as they are.
    fn judge_account(&mut self, held: &Held) -> Result<(), Broken> {
        let ended = |node: &Node<ReadoutMachine>| node.life == 1 && node.machine().is_some_and(|one| one.is_done());
        let is_awaited = self.scenario.managers == Managers::Alone && !self.scenario.end.is_forced();
        let have_all_ended = is_awaited && self.readouts.iter().all(ended);
        let queued = self.snapshot().ledger.chunks.queued;
        ensure!(Ledger, !have_all_ended || queued == 0;
            "{queued} chunks wait for subscribers in the account of a run that has ended")?;
        let events = self.snapshot().ledger.events;
        let (kept, in_files) = (events.built + events.incomplete_emitted, held.events.len() as u64);
        ensure!(Loss, in_files + events.rejected + events.unselected >= kept || self.may_forget();
            "{kept} events were acknowledged, {in_files} are in files")?;
        let unheard = if self.was_a_builder_unheard() { events.incomplete_dropped.total() } else { 0 };
        ensure!(Ledger, in_files <= kept + unheard || !self.were_all_told();
            "{in_files} events are in files, and the account knows of {kept}")
    }

    /// A fragment counts as in an event where the event's record has it, and nowhere else. Checked only where no node died or took
    /// over: all accounts are complete then, and every built event was written.
    fn judge_fragments(&mut self, held: &Held) -> Result<(), Broken> {
        let snapshot = self.snapshot();
        let (level, events) = (self.scenario.level, snapshot.ledger.events);
        let is_told = self.scenario.managers == Managers::Alone && self.safe.deaths.is_empty() && self.were_all_told();
        let is_written = level >= AcknowledgementLevel::Written && !self.may_forget();
        let is_kept = events.rejected + events.unselected == 0 && held.events.values().all(|copies| copies.len() == 1);
        if !is_told || !is_written || !is_kept {
            return Ok(());
        }
        let whole = held.whole();
        for source in 0..self.scenario.sources.len() {
            let index = self.scenario.readout_of(source);
            let readout = &self.readouts[usize::from(index)];
            let is_known = snapshot.unknown.iter().all(|&(node, _)| node != NodeId::readout(index));
            let has_ended = is_known && readout.life == 1 && readout.machine().is_some_and(|one| one.is_done());
            let id = self.scenario.source_id(source);
            let Some(account) = snapshot.sources.get(&id).filter(|_| has_ended) else { continue };
            let told = account.in_complete_events + account.in_incomplete_events;
            let found = whole.iter().filter(|(_, of)| *of == id).count() as u64;
            let unknown = account.dropped.get(Cause::OutcomeUnknown);
            ensure!(Ledger, (told..=told + unknown).contains(&found);
                "{told} (perhaps {unknown} more) fragments of source {id} are in events by the account, and {found} \
                 in records")?;
        }
        Ok(())
    }

    /// Lumisections are closed in order, all of them, and each one's account names the events in the files that are of it.
    fn judge_lumisections(&mut self, held: &Held) -> Result<(), Broken> {
        let events = self.snapshot().ledger.events;
        let (may_forget, were_told) = (self.may_forget(), self.were_all_told());
        let has_successors = self.reign.recoveries().next().is_some();
        let builders = self.builders.iter().filter_map(Node::machine);
        let contradicted: u64 = builders.map(|builder| builder.machine().contradicted_lumisections()).sum();
        ensure!(Order, !were_told || contradicted == 0;
            "builder units heard {contradicted} times that a lumisection begins that is over")?;
        let speaker = self.speaker().map(usize::from);
        let Some(manager) = speaker.and_then(|index| self.managers[index].machine.as_mut()) else { return Ok(()) };
        let mut ends: Vec<LumisectionEnd> = Vec::new();
        while let Some(end) = manager.drive_mut().next_ended_lumisection() {
            // A later term closes a lumisection again if the report of its first closing was lost.
            while has_successors && ends.last().is_some_and(|last| last.number >= end.number) {
                ends.pop();
            }
            ends.push(end);
        }
        let first = ends.first().map_or(1, |first| first.number);
        ensure!(Order, first == 1 || has_successors; "{first} is the first lumisection")?;
        let mut number = first;
        for end in &ends {
            let place = format!("lumisection {}", end.number);
            // Another event manager closed those between two terms of this one.
            let is_next = end.number == number || has_successors && end.number > number;
            ensure!(Order, is_next; "{place} was closed, and {number} was due")?;
            number = end.number + 1;
            let range = end.before.below..end.ended.below;
            let own = held.events.keys().filter(|&&event| range.contains(&self.scenario.key_of(event))).count() as u64;
            let account = end.account();
            let kept = account.built + account.incomplete_emitted;
            ensure!(Loss, may_forget || has_successors || own + account.rejected + account.unselected >= kept;
                "{place} has {kept} events by its account, and {own} are in files")?;
            let unheard = if self.was_a_builder_unheard() { account.incomplete_dropped.total() } else { 0 };
            ensure!(Ledger, !were_told || has_successors || own <= kept + unheard;
                "{place} has {own} events in files, and its account knows of {kept}")?;
        }
        let Some(last) = ends.last() else { return Ok(()) };
        let (whole, counted) = (events.accounted(), last.ended.account().assigned);
        ensure!(Ledger, whole == counted; "lumisections have {counted} events, and the run has {whole}")
    }

    /// Whether event managers heard of everything that was written: each one that took over heard all units, no builder
    /// unit died that had written what no other member knew of, and the end waited for all.
    fn were_all_told(&self) -> bool {
        let is_writer = |place: Place| matches!(place, Place::Builder(_));
        let have_heard = self.reign.recoveries().all(|recovery| !recovery.is_blind(&self.scenario));
        have_heard && !self.scenario.end.is_forced() && !self.safe.deaths.iter().any(|death| is_writer(death.place))
    }

    /// Whether an event manager could not hear a builder unit for longer than it waits for one that it has lost. That one may have kept
    /// events that were dropped in the next attempt.
    fn was_a_builder_unheard(&self) -> bool {
        let touches = |fault: &Fault, of: fn(&Place) -> bool| fault.places.iter().any(of);
        let is_manager = |place: &Place| matches!(place, Place::Manager(_));
        let is_builder = |place: &Place| matches!(place, Place::Builder(_));
        self.happened.iter().any(|one| {
            // An event manager that was cut off ends the run with the units that come back first.
            let is_alone = matches!(one.fault.kind, FaultKind::Pause | FaultKind::PoolDry | FaultKind::ManagerCutOff);
            let is_between = touches(&one.fault, is_manager) && (is_alone || touches(&one.fault, is_builder));
            is_between && one.until.since(one.from) + RECALL >= AWAY
        })
    }

    /// A builder unit that saw the end in its first life has closed its files.
    fn judge_files(&self) -> Result<(), Broken> {
        let is_forced = self.scenario.end.is_forced();
        for (node, storage) in self.builders.iter().zip(&self.storages) {
            let ended = node.life == 1 && node.machine().is_some_and(|builder| builder.is_done()) && !is_forced;
            let is_open = |path: &PathBuf| path.to_string_lossy().ends_with(OPEN_EXTENSION);
            let open: Vec<PathBuf> = match self.scenario.event_files {
                Some(_) => unnamed_files(storage),
                None => storage.paths().into_iter().filter(is_open).collect(),
            };
            ensure!(Content, !ended || open.is_empty();
                "{} ended in order and has not closed {open:?}", node.around.place)?;
        }
        Ok(())
    }

    /// Whether the level of acknowledgement allows that what was acknowledged is lost with a builder unit.
    fn may_forget(&self) -> bool {
        let deaths = |place: Place| matches!(place, Place::Builder(_));
        let died = self.safe.deaths.iter().any(|death| deaths(death.place));
        match self.scenario.level {
            AcknowledgementLevel::Built | AcknowledgementLevel::Handed => died,
            AcknowledgementLevel::Written => !self.safe.cut.is_empty(),
            AcknowledgementLevel::Synced => false,
        }
    }

    fn judge_events(&self, held: &Held, timeline: &Timeline, masked: &Masked) -> Result<(), Broken> {
        let last = match self.spoken_for().and_then(|manager| manager.drive().machine().last()) {
            Some(last) => self.scenario.event_of(last).unwrap_or(self.scenario.events),
            None if self.scenario.end == End::Last => self.scenario.events,
            None => return Ok(()),
        };
        let mut behind = held.events.range(last + 1..).map(|(&event, _)| event);
        let unknown = behind.find(|&event| !self.is_forgotten(held, timeline, event));
        ensure!(Keys, unknown.is_none(); "event {unknown:?} was written, and the run ended with {last}")?;
        let is_forced = self.scenario.end.is_forced();
        for event in 1..=last {
            match held.counting(event) {
                Some(copy) => {
                    for source in 0..self.scenario.sources.len() {
                        if masked.covers(self.scenario.source_id(source), self.scenario.key_of(event)) {
                            self.judge_masked(timeline, masked, event, source, copy)?;
                            continue;
                        }
                        match copy.found.get(&self.scenario.source_id(source)) {
                            Some(None) => self.must_be_there(event, source)?,
                            Some(Some(Cause::ForcedStop)) if is_forced => {}
                            Some(Some(cause)) => self.excuse(timeline, event, source, Some(*cause))?,
                            None if self.may_be_masked(source) => {}
                            None => ensure!(Loss, false; "event {event} says nothing of source number {source}")?,
                        }
                    }
                }
                // What was not done was dropped.
                None if is_forced => {}
                None => self.excuse_event(timeline, event, masked)?,
            }
        }
        // The run should have gone on to its last event, but for a policy that stopped it.
        let is_cut = self.scenario.end != End::Last || self.scenario.incomplete == IncompletePolicy::Stop;
        let behind = if is_cut { 0..0 } else { last + 1..self.scenario.events + 1 };
        behind.into_iter().try_for_each(|event| self.excuse_event(timeline, event, masked))
    }

    /// A fragment is in a file: its source sent it whole, or another event's under its number.
    fn must_be_there(&self, event: u64, source: usize) -> Result<(), Broken> {
        let record = self.record(source);
        let number = self.scenario.key_of(event).number();
        let was_sent = record.is_none_or(|record| {
            record.lied_as(number).is_some()
                || record.said_of(event).is_some()
                || record.made(event).is_some_and(|made| made.how.is_whole())
        });
        let made = record.and_then(|record| record.made(event));
        ensure!(Content, was_sent;
            "event {event} holds a fragment of source number {source}, which never came whole: {made:?}")
    }

    /// An event is not there at all.
    fn excuse_event(&self, timeline: &Timeline, event: u64, masked: &Masked) -> Result<(), Broken> {
        let number = self.scenario.key_of(event).number();
        if self.scenario.filters.as_ref().is_some_and(|filters| filters.leaves_out(number)) {
            return Ok(());
        }
        if self.scenario.level < AcknowledgementLevel::Written && self.may_forget() {
            return Ok(());
        }
        // What the trigger source did not open is no event.
        let trigger = self.scenario.trigger.map(usize::from);
        if trigger.is_some_and(|source| self.excuse(timeline, event, source, None).is_ok()) {
            return Ok(());
        }
        let cut = self.safe.cut.iter().any(|&(lost, _)| lost == event);
        if cut && self.scenario.level < AcknowledgementLevel::Synced {
            return Ok(());
        }
        let (mut any, mut first) = (false, None);
        for source in 0..self.scenario.sources.len() {
            let is_masked = masked.covers(self.scenario.source_id(source), self.scenario.key_of(event));
            // The readout unit died before it could say from which event on the source took part again.
            let is_known = !self.may_be_masked(source);
            match self.excuse(timeline, event, source, None) {
                Ok(()) => any |= !is_masked || !is_known,
                Err(broken) if !is_masked => first = first.or(Some(broken)),
                Err(_) => {}
            }
        }
        let dropped_whole = any && self.scenario.incomplete == IncompletePolicy::Drop;
        match first {
            Some(broken) if !dropped_whole => {
                let known = if any { "some of its sources failed" } else { "nothing explains that" };
                Err(Broken { words: format!("event {event} is in no file, {known}: {}", broken.words), ..broken })
            }
            _ => Ok(()),
        }
    }

    /// Finds the reason why a fragment is not where it belongs: one of its own, or that the source or the trigger source
    /// was not there when the count began that the event belongs to.
    fn excuse(&self, timeline: &Timeline, event: u64, source: usize, cause: Option<Cause>) -> Result<(), Broken> {
        self.excuse_alone(timeline, event, source, cause).or_else(|broken| {
            let trigger = self.scenario.trigger.map_or(source, usize::from);
            let missed = |resync: u64| {
                [source, trigger].into_iter().any(|one| self.excuse_alone(timeline, resync, one, None).is_ok())
            };
            let begun = self.scenario.resync().filter(|&resync| event >= resync);
            if begun.is_some_and(missed) { Ok(()) } else { Err(broken) }
        })
    }

    /// Finds the reason of its own why a fragment is not where it belongs.
    fn excuse_alone(&self, timeline: &Timeline, event: u64, source: usize, cause: Option<Cause>) -> Result<(), Broken> {
        let id = self.scenario.source_id(source);
        let Some(record) = self.record(source) else { return Ok(()) };
        let made = record.made(event);
        let history = &timeline.histories[source];
        let delivered = history.delivered[event as usize];
        let lost_on_the_way = made.is_some_and(|made| {
            !made.how.is_whole()
                // A damaged one has its place only if its neighbours show it.
                || matches!(made.how, How::Damaged | How::Flagged(..))
                || delivered.is_none() && !self.is_present_ring(source, made.connection)
                || record.is_ruined(made.connection, made.end)
                || record.is_doubtful(event)
        });
        if lost_on_the_way || self.safe.cut.contains(&(event, id)) && self.scenario.level < AcknowledgementLevel::Synced
        {
            return Ok(());
        }
        let (histories, index) = (&timeline.histories, event as usize);
        if self.is_unconfirmed(source, index, histories)
            || self.is_left_over(source, index, histories)
            || self.precedes_first_number(source, index, histories)
        {
            return Ok(());
        }
        let at = delivered.unwrap_or(Instant::FAR_FUTURE);
        let readout = Place::Readout(self.scenario.readout_of(source));
        let died = self
            .safe
            .deaths
            .iter()
            .any(|death| death.place == readout && death.at >= at && !death.whole.contains(&(event, id)));
        // Whether the event, or a later one, had begun by then.
        let first = timeline.begun[event as usize..].iter().min();
        let waits_by = |until| first.is_some_and(|&begun| begun <= until);
        if died || history.absences.iter().any(|absence| absence.from <= at && waits_by(absence.until)) {
            return Ok(());
        }
        let begun = timeline.begun[event as usize];
        if self.was_away(readout, begun) || self.was_refused(readout, begun) {
            return Ok(());
        }
        let made = made.map(|made| made.at.since(Instant::ZERO));
        let words = format!(
            "event {event}: source {id} is missing ({}); it was sent at {made:?} and received at {:?}, and {readout} \
             was not away",
            cause.map_or("no record", Cause::name),
            delivered.map(|at| at.since(Instant::ZERO)),
        );
        let checker = if cause == Some(Cause::TimedOut) { Checker::TimeOut } else { Checker::Loss };
        Err(Broken::new(checker, words))
    }

    /// Whether something came between a readout unit and the others for long enough, while this event could suffer.
    pub(super) fn was_away(&self, readout: Place, begun: Instant) -> bool {
        use FaultKind::*;
        let touching = self.happened.iter().filter(|disturbance| {
            let places = &disturbance.fault.places;
            match disturbance.fault.kind {
                // It may be given events before readout units count its former life's connections as dead, a second after these
                // were heard last. Campaigns wait no longer for units that cannot be reached than for others.
                PowerCut if matches!(places[..], [Place::Builder(_)]) => {
                    let gives_up_before = self.scenario.time_outs.builder < SILENCE;
                    gives_up_before || self.scenario.managers != Managers::Alone || self.lost_its_manager(places[0])
                }
                Crash | PowerCut => *places == [readout],
                Pause | Reconnect | PoolDry => !places[0].is_outside(),
                Delay | SlowLink | Partition | OneWay | HalfOpen => {
                    places.contains(&readout) && !places.iter().any(|place| place.is_outside())
                }
                // The event manager that leads the run and cannot be heard, or whose end is not reported to anyone.
                ManagerCutOff | ManagerPowerCut => {
                    self.reign.has_led(places[0].index(), disturbance.from, disturbance.until)
                }
                ManagerReplaced => disturbance.fault.is(POWER),
                _ => false,
            }
        });
        touching.into_iter().any(|disturbance| {
            let is_fatal = matches!(disturbance.fault.kind, Crash | PowerCut);
            // Whose connection is lost calls again a moment later.
            let loses_connections = !matches!(disturbance.fault.kind, Pause | PoolDry);
            let lasts =
                disturbance.until.since(disturbance.from) + if loses_connections { RECALL } else { Duration::ZERO };
            let patience = AWAY.min(self.scenario.time_outs.builder.mul_f64(0.9));
            (is_fatal || lasts >= patience) && begun <= disturbance.until.after(RETURN)
        })
    }

    /// Whether something came between a unit and the event manager: that one may have forgotten the connection before the unit died.
    fn lost_its_manager(&self, unit: Place) -> bool {
        let is_manager = |place: &Place| matches!(place, Place::Manager(_));
        let mut faults = self.happened.iter().map(|disturbance| &disturbance.fault.places);
        faults.any(|places| places.contains(&unit) && places.iter().any(is_manager))
    }

    /// Whether a line of a readout unit could not be opened for long enough, because its caller was refused again and
    /// again, perhaps after something else went wrong there.
    pub(super) fn was_refused(&self, readout: Place, begun: Instant) -> bool {
        let (recorder, name) = (self.core.recorder.borrow(), readout.to_string());
        let refused = recorder.refusals.iter().filter(|one| one.caller == readout || one.address == name);
        let refused = refused.map(|one| (one.at, one.at.after(RECALL), true));
        let touches = |fault: &Fault| {
            let places = &fault.places;
            places.contains(&readout) && !places.iter().any(|place| place.is_outside())
        };
        let cut = self.happened.iter().filter(|one| touches(&one.fault));
        let mut away: Vec<_> = refused.chain(cut.map(|one| (one.from, one.until, false))).collect();
        away.sort_unstable();
        let patience = AWAY.min(self.scenario.time_outs.builder.mul_f64(0.9));
        let (mut begin, mut end, mut any) = (Instant::ZERO, Instant::ZERO, false);
        away.into_iter().any(|(from, until, is_refusal)| {
            // A unit that has lost a line calls after a pause.
            let goes_on = from <= end.after(RECALL);
            (begin, end, any) =
                if goes_on { (begin, end.max(until), any || is_refusal) } else { (from, until, is_refusal) };
            any && end.since(begin) + RECALL >= patience && begun <= end.after(RETURN)
        })
    }

    /// Every copy of an event but its first one was assigned for a reason.
    ///
    /// # Errors
    /// Where an event manager had more written again than it had reason to.
    fn judge_copies(&self, held: &Held, timeline: &Timeline) -> Result<(), Broken> {
        let mut again: BTreeMap<Epoch, Vec<u64>> = BTreeMap::new();
        for (&event, copies) in &held.events {
            for two in copies.windows(2) {
                let epoch = epoch_of(two[1].attempt);
                let is_excused = || {
                    self.was_untold(event, &two[0], epoch)
                        || self.was_unreleased(timeline, event, epoch) && self.has_forgotten(held, &two[0], epoch)
                };
                if epoch_of(two[0].attempt) == epoch || !is_excused() {
                    again.entry(epoch).or_default().push(event);
                }
            }
        }
        let mut written = 0;
        again.into_iter().try_for_each(|(epoch, events)| {
            // What was assigned again may be written again only when a successor has assigned it once more (seed 21739).
            let reassigned: u64 = self.reign.reassigned.range(..=epoch).map(|(_, &count)| count).sum();
            written += events.len() as u64;
            ensure!(Keys, written <= reassigned;
                "{written} events were written again until epoch {epoch}, the last ones {events:?}, and {reassigned} \
                 were assigned again")
        })
    }

    /// Whether the successor with this epoch could not hear that a copy had been written.
    fn was_untold(&self, event: u64, copy: &Record, epoch: Epoch) -> bool {
        let Some(recovery) = self.reign.recovery_in(epoch) else { return false };
        let heard = recovery.until.unwrap_or(Instant::FAR_FUTURE);
        recovery.is_blind(&self.scenario) || self.writer_died(event, copy, heard)
    }

    /// Whether the builder unit's life that wrote a copy had ended by then.
    fn writer_died(&self, event: u64, copy: &Record, by: Instant) -> bool {
        let mut own = self.safe.deaths.iter().filter(|death| death.place == Place::Builder(copy.writer));
        own.any(|death| death.at <= by && death.copies.contains(&(event, copy.attempt)))
    }

    /// Whether readout units may hold an event that was released: they did not hear the event manager before this one.
    fn was_unreleased(&self, timeline: &Timeline, event: u64, epoch: Epoch) -> bool {
        let Some(recovery) = self.reign.recovery_in(epoch) else { return false };
        let heard = recovery.until.unwrap_or(Instant::FAR_FUTURE);
        self.happened.iter().any(|disturbance| {
            let places = &disturbance.fault.places;
            let is_manager = |place: &Place| matches!(place, Place::Manager(_));
            let is_readout = |place: &Place| matches!(place, Place::Readout(_));
            let between = places.iter().any(is_manager) && places.iter().any(is_readout);
            let is_deaf = between || disturbance.fault.kind == FaultKind::ManagerCutOff;
            is_deaf && disturbance.from <= heard && timeline.begun[event as usize] <= disturbance.until
        })
    }

    /// Whether the builder unit that wrote a copy has done so much since, before this epoch, that it may have forgotten
    /// the copy. It acknowledges events that it has in work at one time in any order, so as many as it has slots may
    /// stand before the copy (seed 21195). Events in no file may have been dropped, and are remembered as well.
    fn has_forgotten(&self, held: &Held, copy: &Record, epoch: Epoch) -> bool {
        let all = held.events.values().flatten();
        let own = all.filter(|one| one.writer == copy.writer && one.incarnation == copy.incarnation);
        let later = own.filter(|one| one.place > copy.place && epoch_of(one.attempt) < epoch).count() as u64;
        let dropped = self.scenario.events - held.events.len() as u64;
        later + dropped > u64::from(self.scenario.rooms.slots + self.scenario.rooms.table)
    }

    /// Whether the event manager that ended the run cannot know of an event that is in a file: it succeeded the one
    /// that had the event written, and every unit that held or wrote the event had died before the successor had heard
    /// all units. The successor does not read the files of an earlier life, so the run may end before this event if its
    /// sources had nothing more to show.
    fn is_forgotten(&self, held: &Held, timeline: &Timeline, event: u64) -> bool {
        let Some(epoch) = self.spoken_for().and_then(ManagerMachine::speaks) else { return false };
        let Some(recovery) = self.reign.recovery_in(epoch) else { return false };
        // A unit that connects too late may have died before it could report.
        let heard = recovery.until.filter(|_| !recovery.is_blind(&self.scenario)).unwrap_or(Instant::FAR_FUTURE);
        let is_gone = |copy: &Record| epoch_of(copy.attempt) < epoch && self.writer_died(event, copy, heard);
        let held_it = |source: usize| {
            let readout = Place::Readout(self.scenario.readout_of(source));
            let mut deaths = self.safe.deaths.iter().filter(|death| death.place == readout && death.at <= heard);
            timeline.histories[source].delivered[event as usize].is_none_or(|came| deaths.any(|death| death.at >= came))
        };
        held.events[&event].iter().all(is_gone) && (0..self.scenario.sources.len()).all(held_it)
    }

    /// What must hold while the run goes on.
    ///
    /// # Errors
    /// What does not.
    pub(super) fn watch(&self) -> Result<(), Broken> {
        self.core.recorder.borrow().verdict()?;
        self.watch_beginning()?;
        self.watch_credits()?;
        self.watch_cards()?;
        self.watch_filters()?;
        self.watch_inlets()
    }

    /// A run that is called running has begun where sources are heard: what they send from then on belongs to it.
    /// Checked until the first fault, after which units come back that need the start again.
    fn watch_beginning(&self) -> Result<(), Broken> {
        let is_undisturbed = self.happened.is_empty();
        let manager = self.spoken_for().map(ManagerMachine::drive).filter(|_| is_undisturbed);
        let is_called_running = manager.is_some_and(|manager| manager.phase() == RunPhase::Running);
        if !is_called_running || self.core.now().since(Instant::ZERO) > BEGINNING {
            return Ok(());
        }
        for (index, node) in self.readouts.iter().enumerate() {
            let has_begun = node.machine().is_none_or(|readout| readout.machine().has_started());
            ensure!(Loss, has_begun; "the run is called running, and ru{index} has not heard of its start")?;
        }
        Ok(())
    }

    /// Room is granted once: a builder unit can be given no more than it has beside what it works on. Less, while
    /// assignments or credits are under way.
    fn watch_credits(&self) -> Result<(), Broken> {
        let Some(manager) = self.spoken_for().map(ManagerMachine::drive) else { return Ok(()) };
        let slots = u64::from(self.scenario.rooms.slots);
        for (index, node) in (0..).zip(&self.builders) {
            let Some(builder) = node.machine() else { continue };
            let (free, in_work) = (manager.machine().free_credit(index).0, builder.machine().in_work() as u64);
            ensure!(Credits, free + in_work <= slots;
                "bu{index} has {slots} slots, works on {in_work} events and can be given {free} more")?;
        }
        Ok(())
    }

    /// What a readout unit says it received from a source is what the network brought it: nothing is made, and nothing
    /// is left out where it reads the source and has room.
    fn watch_inlets(&self) -> Result<(), Broken> {
        let recorder = self.core.recorder.borrow();
        for (source, front_end) in self.front_ends.iter().enumerate() {
            let inlet = front_end.hosts.first().and_then(|host| recorder.inlets.get(host));
            let node = &self.readouts[usize::from(self.scenario.readout_of(source))];
            let (Some(inlet), Some(readout)) = (inlet, node.machine()) else { continue };
            let lines = inlet.lines.values().filter(|line| line.host == node.hosts.first().copied());
            let (whole, most) = lines.fold((0, 0), |(whole, most), line| (whole + line.whole, most + line.most()));
            let place = source % self.scenario.sources_each();
            let received = readout.machine().account(place).received;
            let is_taken = inlet.is_read() && readout.machine().room(place) > 0;
            let least = if is_taken { whole } else { 0 };
            ensure!(Ledger, (least..=most).contains(&received);
                "{received} fragments of source number {source} count as received, and {whole} came whole")?;
        }
        Ok(())
    }
}

/// The epoch whose event manager assigned an event in this attempt. Each epoch has its own range of attempts; the first one
/// counts from one.
fn epoch_of(attempt: Attempt) -> Epoch {
    Epoch(u32::from(attempt.0 >> 8).max(1))
}

/// Until this time after the start no event manager calls a run running merely because it has waited long enough for
/// nodes that have not heard of the start.
const BEGINNING: Duration = Duration::from_secs(1);
