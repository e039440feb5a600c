//! The run is over: is everything decided, stored and given back, and is what is missing missing for a reason? Run files are
//! compared with what was accepted: every byte, every missing source and its cause.

use super::farm::Held;
use super::fault::Spoiling;
use super::referee::{Identity, Twin};
use super::scenario::{FlowSetting, Scenario, source_of};
use super::world::World;
use crate::campaign::fault::{Fault, FaultKind, Place};
use crate::campaign::referee::{found_in, read_events};
use crate::campaign::runner::{Broken, Checker, ensure};
use ropewalk_flow::gateway::Output;
use ropewalk_terms::{Attempt, Cause, Instant};
use ropewalk_wire::run_file::EventView;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl World {
    /// What must hold of a run that is over.
    ///
    /// # Errors
    /// What does not.
    pub fn judge(&mut self) -> Result<(), Broken> {
        self.judge_triggers()?;
        self.judge_events()?;
        self.judge_missing()?;
        self.judge_room()?;
        self.judge_files()?;
        self.judge_reports()?;
        self.judge_readers()?;
        self.judge_samples()?;
        self.judge_pools()
    }

    /// Everything was triggered, unless the run was stopped before.
    fn judge_triggers(&self) -> Result<(), Broken> {
        let referee = self.referee.borrow();
        for (((flow, setting), named), trigger) in
            (0..).zip(&self.scenario.flows).zip(&referee.voices.named).zip(&self.triggers)
        {
            let report = trigger.machine.as_ref().map(|drive| drive.notice().read()).unwrap_or_default();
            let sets = report.sets;
            let is_all = self.scenario.stop.is_some() || sets == setting.sets;
            ensure!(Loss, is_all; "flow {flow}: {sets} sets were sent, and there are {}", setting.sets)?;
            let are_plausible = named.keys().all(|set| *set < sets);
            // A set whose sources lost all of its packets on purpose is never seen.
            let lost =
                (0..sets).filter(|set| (0..setting.sources.sources).all(|one| setting.sources.is_lost(*set, one)));
            // Gateways that hear nothing for long behind the last trigger end without sources that were away for a while.
            let asleep = Fault::at(FaultKind::TriggerSleeps, Place::Trigger(flow));
            let was_asleep = self.scenario.faults.iter().any(|scheduled| scheduled.fault == asleep);
            let was_away = !report.is_over && was_asleep;
            let is_unseen = self.scenario.stop.is_some() || report.failed > 0 || was_away;
            let seen = (named.len() + lost.count()) as u64;
            let is_gapless = is_unseen || (seen..=seen + self.spoilt(flow)).contains(&sets);
            ensure!(Keys, are_plausible && is_gapless; "flow {flow}: of {sets} sets {:?} were sent", named.keys())?;
        }
        Ok(())
    }

    /// Packets of a flow that were spoilt, and do not say whose they are. Each may have been the only one of its set.
    fn spoilt(&self, of: u8) -> u64 {
        let own = self.scenario.faults.iter().map(|scheduled| &scheduled.fault);
        let own = own.filter(|fault| matches!(fault.places[..], [Place::FlowSource(flow, _)] if flow == of));
        let spoilt = own.filter_map(Spoiling::of).filter(|one| one.kind != FaultKind::PacketWrongPartition);
        spoilt.map(|one| one.count).sum()
    }

    /// Every event of every set that came to the farm is decided, and left where it should.
    fn judge_events(&self) -> Result<(), Broken> {
        let referee = self.referee.borrow();
        for (gateway, twin) in (0..).zip(&referee.twins) {
            for (flow, setting) in (0..).zip(&self.scenario.flows) {
                let packets = twin.flows[usize::from(flow)].account();
                let events = twin.farm.account(flow);
                let in_flight = (packets.packets.in_flight, packets.open, events.events.in_flight);
                ensure!(Ledger, in_flight == (0, 0, 0);
                    "gw{gateway}, flow {flow}: packets, sets and events in flight at the end: {in_flight:?}")?;
                let held = twin.farm.sets.iter().filter(|((of, _), _)| *of == flow);
                let decided = held.map(|(_, held)| held.events.len() as u64).sum::<u64>();
                let due = if setting.gateway.output == Output::Stream { decided } else { 0 };
                let streamed = twin.farm.streamed[usize::from(flow)].len() as u64;
                ensure!(Loss, streamed == due;
                    "gw{gateway}, flow {flow}: {streamed} decisions left in order, and {due} should have")?;
            }
        }
        Ok(())
    }

    /// Who is missing had not come by the time at which the set was given up.
    fn judge_missing(&mut self) -> Result<(), Broken> {
        let mut is_dry = Vec::new();
        for (gateway, member) in (0..).zip(&mut self.gateways) {
            let Some(drive) = &member.machine else { continue };
            let report = drive.notice().read();
            let dry = (0u8..).zip(report.received).filter(|(_, input)| input.dry > 0);
            is_dry.extend(dry.map(|(flow, _)| (gateway, flow)));
        }
        let referee = self.referee.borrow();
        for (gateway, twin) in (0u16..).zip(&referee.twins) {
            for (flow, assembly) in (0u8..).zip(&twin.flows) {
                let incomplete = assembly.sets.iter().filter(|(_, set)| set.is_incomplete());
                for (&number, set) in incomplete {
                    let deadline = set.deadline;
                    let given_up = set.absent.iter().filter(|(_, cause)| **cause == Cause::TimedOut);
                    for (&source, _) in given_up {
                        let fate = referee.fates.get(&(gateway, (flow, number, source)));
                        let arrivals = fate.map(|fate| fate.arrivals.as_slice()).unwrap_or_default();
                        // Before this time of the world no gateway's clock showed the deadline.
                        let least = deadline.since(Instant::ZERO).div_f64(1.0 + WORST_DRIFT);
                        let in_time = arrivals.iter().filter(|at| at.since(Instant::ZERO) < least).count();
                        let lost = fate.map_or(0, |fate| fate.overflown);
                        let setting = &self.scenario.flows[usize::from(flow)];
                        // It held up the order of decisions, while what it lacked waited behind packets of later sets.
                        let held_up = setting.gateway.output == Output::Stream
                            && twin
                                .closed
                                .get(&(flow, number))
                                .is_some_and(|&at| at >= deadline.after(setting.gateway.decision_timeout));
                        let is_right = in_time <= lost || held_up || is_dry.contains(&(gateway, flow));
                        ensure!(TimeOut, is_right;
                            "gw{gateway}, flow {flow}, set {number}: source {source} is missing, and arrived at \
                             {arrivals:?}, before {deadline:?}")?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Where the throttle leaves room for what is on its way, and the trigger hears it, nothing finds none.
    fn judge_room(&self) -> Result<(), Broken> {
        let referee = self.referee.borrow();
        for ((flow, setting), lost) in (0u8..).zip(&self.scenario.flows).zip(&referee.overflown) {
            let is_right = *lost == 0 || !leaves_room(&self.scenario, flow, setting);
            ensure!(Bounds, is_right; "flow {flow}: {lost} packets were lost although the throttle was heard")?;
        }
        Ok(())
    }

    /// What gateways and triggers tell of themselves in the end is what the referee saw.
    fn judge_reports(&self) -> Result<(), Broken> {
        let referee = self.referee.borrow();
        for ((gateway, twin), member) in (0..).zip(&referee.twins).zip(&self.gateways) {
            let Some(report) = member.machine.as_ref().map(|drive| drive.notice().read()) else { continue };
            for ((flow, told), assembly) in (0u8..).zip(&report.flows).zip(&twin.flows) {
                let (events, packing) =
                    (twin.farm.account(flow), self.scenario.flows[usize::from(flow)].sources.packing);
                let is_right = told.packets == assembly.account()
                    && told.events.events == events.events
                    && told.unclaimed == 0
                    && told.is_handed_over(packing);
                ensure!(Ledger, is_right && report.is_over; "gw{gateway}, flow {flow}: it ends with {told:?}")?;
            }
        }
        for ((flow, due), member) in (0..).zip(&referee.voices.decisions).zip(&self.triggers) {
            let Some(told) = member.machine.as_ref().map(|drive| drive.notice().read()) else { continue };
            ensure!(Ledger, (told.decisions, told.missed) == (due.came, due.missed);
                "trigger{flow} heard {} decisions and missed {}, and tells {told:?}", due.came, due.missed)?;
        }
        Ok(())
    }

    /// Readers of decisions were told what left, and those who stayed all of it.
    fn judge_readers(&mut self) -> Result<(), Broken> {
        self.read_on()?;
        let referee = self.referee.borrow();
        for (number, reader) in (0..).zip(self.readers.iter().filter_map(|member| member.machine.as_ref())) {
            let flow = usize::from(reader.flow);
            for (life, index, entry) in &reader.journal {
                let mut lives = referee.lives_of(reader.gateway);
                let due = lives
                    .find(|twin| twin.farm.life == *life)
                    .and_then(|twin| twin.farm.streamed[flow].get(*index as usize));
                ensure!(Content, due == Some(entry);
                    "reader{number} was told {entry:?} as decision {index} of {life:?}, and that is {due:?}")?;
            }
            let all = referee.twins[usize::from(reader.gateway)].farm.streamed[flow].len() as u64;
            ensure!(Loss, reader.told.is_none_or(|(_, told)| told == all);
                "reader{number} was connected to the end, and has {:?} of {all} decisions", reader.told)?;
        }
        Ok(())
    }

    /// Every packet's memory is back.
    fn judge_pools(&mut self) -> Result<(), Broken> {
        for (gateway, member) in (0..).zip(&mut self.gateways) {
            let Some(drive) = &mut member.machine else { continue };
            for (flow, used) in (0..).zip(drive.memory_in_use()) {
                // One block is being filled.
                ensure!(Pools, used.held <= 1;
                    "gw{gateway}, flow {flow}: {} of {} blocks are held after the end", used.held, used.all)?;
            }
        }
        Ok(())
    }

    /// Accepted events of flows that are stored are in their gateway's files, each once, and nothing else is.
    pub(super) fn judge_files(&self) -> Result<(), Broken> {
        let referee = self.referee.borrow();
        for (gateway, twin) in (0u16..).zip(&referee.twins) {
            let lives: Vec<&Twin> = referee.lives_of(gateway).collect();
            let found = self.read_files(gateway, &lives)?;
            // What a life that was killed had not written is gone.
            let due = self.accepted(twin);
            let may_be = lives.iter().flat_map(|life| self.accepted(life)).collect::<BTreeSet<Identity>>();
            let (lost, made) = (&due - &found, &found - &may_be);
            ensure!(Loss, lost.is_empty() && made.is_empty();
                "gw{gateway}: events {lost:?} were accepted and are in no file, and {made:?} are there unasked")?;
        }
        Ok(())
    }

    /// Accepted events of flows that are stored.
    fn accepted(&self, twin: &Twin) -> BTreeSet<Identity> {
        let mut accepted = BTreeSet::new();
        for (&(flow, set), held) in &twin.farm.sets {
            if self.scenario.flows[usize::from(flow)].gateway.output == Output::Storage {
                let wanted = (0..).zip(&held.events).filter(|(_, event)| event.ruling.is_some_and(|one| one.accept));
                accepted.extend(wanted.map(|(event, _)| (flow, set, event)));
            }
        }
        accepted
    }

    fn read_files(&self, gateway: u16, lives: &[&Twin]) -> Result<BTreeSet<Identity>, Broken> {
        let mut found = BTreeMap::<Identity, usize>::new();
        // A gateway that was killed had no time to finish what it wrote.
        let may_be_torn = lives.len() > 1;
        let place = Place::Gateway(gateway);
        read_events(&self.storages[usize::from(gateway)], place, may_be_torn, |_, event| {
            let broken = |words: String| Broken::new(Checker::Content, format!("{place}: {words}"));
            let event_place = self.place_of(event).ok_or_else(|| broken(format!("no event {}", event.key())))?;
            self.compare_with(lives, event_place, event).map_err(broken)?;
            // Each life may have had some of its packets.
            let times = found.entry(event_place).or_default();
            *times += 1;
            ensure!(Keys, *times <= lives.len(); "{place}: {event_place:?} is stored {times} times")
        })?;
        Ok(found.into_keys().collect())
    }

    /// Whether a record holds what one of the gateway's lives decided; what is wrong otherwise.
    fn compare_with(&self, lives: &[&Twin], place: Identity, event: &EventView<'_>) -> Result<(), String> {
        let mut wrong = format!("{place:?} was never decided");
        for held in lives.iter().filter_map(|life| life.farm.sets.get(&(place.0, place.1))) {
            match self.compare(place, event, held) {
                Ok(()) => return Ok(()),
                Err(words) => wrong = words,
            }
        }
        Err(wrong)
    }

    /// Which event a record is of: its sources tell the flow.
    fn place_of(&self, event: &EventView<'_>) -> Option<Identity> {
        let there = event.fragments().map(|fragment| fragment.entry.source);
        let (flow, _) = source_of(there.chain(event.missing().map(|missing| missing.source)).next()?);
        let (set, index) = self.scenario.flows.get(usize::from(flow))?.place_of(event.key())?;
        Some((flow, set, index))
    }

    /// Whether a record holds what its sources sent, and says of it what is true; what is wrong otherwise.
    fn compare(&self, place: Identity, event: &EventView<'_>, held: &Held) -> Result<(), String> {
        let setting = &self.scenario.flows[usize::from(place.0)];
        for fragment in event.fragments() {
            let (_, source) = source_of(fragment.entry.source);
            if fragment.payload != banks(setting, source, event.key().number()) {
                return Err(format!("{place:?}: source {source} sent something else"));
            }
        }
        let (found, due) = (found_in(event).map_err(|broken| broken.words)?, held.found(place.0));
        if found != due {
            return Err(format!("{place:?} holds {found:?}, and should hold {due:?}"));
        }
        let known = &held.events[usize::from(place.2)];
        let word = known.ruling.map(|ruling| ruling.word as u16);
        let head = event.head();
        let is_right = Some(head.trigger_type) == word && head.attempt == Attempt(known.attempt);
        if is_right { Ok(()) } else { Err(format!("{place:?}: {head:?}, and it is {known:?}")) }
    }
}

/// How much too fast a clock may be.
const WORST_DRIFT: f64 = 0.06;

/// Whether the queues in front of gateways have room for all packets that come before the trigger stops. Gateways reserve this room
/// at all times: packets that they cannot take wait there.
fn leaves_room(scenario: &Scenario, flow: u8, setting: &FlowSetting) -> bool {
    let network = scenario.network;
    if !scenario.is_heard() {
        return false;
    }
    let held_up = if network.disorder > 0.0 { network.held_up } else { Duration::ZERO };
    let away = scenario.faults.iter().map(|scheduled| away(scenario, &scheduled.fault)).max().unwrap_or_default();
    let reaction = LOOK + away + 2 * (network.latency + held_up) + setting.sources.jitter + Duration::from_micros(10);
    let burst = if setting.is_random { 5.0 } else { 1.0 };
    let coming = (reaction.as_secs_f64() / setting.pace.as_secs_f64() * burst).ceil() as u64;
    let reordered = if setting.sources.reordered > 0.0 { u64::from(setting.sources.delay_sets) } else { 0 };
    let doubled = 1 + u64::from(setting.sources.duplicates > 0.0);
    // Strangers say something, too.
    let strangers =
        scenario.faults.iter().filter(|scheduled| scheduled.fault.kind == FaultKind::StrangerPackets).count() as u64
            * 2;
    let packets = (coming + reordered + 2) * u64::from(setting.sources.sources) * doubled + strangers;
    let room = scenario.rooms.queue as u64;
    let wanted = scenario.gateway_config(0, 1).wanted_queue(&[flow], 1);
    wanted.unwrap_or_else(|| room.div_ceil(8)).min(room / 2) >= packets
}

/// How often gateways look how much waits.
const LOOK: Duration = Duration::from_micros(200);

/// How long a gateway may not look how much waits in front of it, before triggers take it for dead.
fn away(scenario: &Scenario, fault: &Fault) -> Duration {
    match fault.kind {
        // It looks, and looks again in its next turn.
        FaultKind::GatewaySlow => 2 * fault.time,
        FaultKind::GatewaySleeps if matches!(fault.place(), Place::Sending(_)) => Duration::ZERO,
        FaultKind::GatewaySleeps | FaultKind::GatewayKilled => scenario.trigger_silence,
        _ => Duration::ZERO,
    }
}

/// What a source sends for an event.
pub(super) fn banks(setting: &FlowSetting, source: u16, event: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    setting.sources.append_banks(source, event, &mut bytes);
    bytes
}
