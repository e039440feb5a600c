//! The members of a push system, the clock that turns them, how far the run is, and what faults do to members, network and disks.

use super::address;
use super::fault::{Spoiling, keeps_away, on_way};
use super::member::{GatewayMachine, NodeMachine, Reader, SendingMachine, TriggerMachine, Watcher, member};
use super::referee::{Referee, Shared, Turned};
use super::scenario::{FlowSetting, Scenario};
use super::wires::Tampering;
use crate::campaign::cluster::{Active, Cluster, Core, Process, Seeded, seeded};
use crate::campaign::content::mixed;
use crate::campaign::fault::{FaultKind, Place, Scheduled};
use crate::campaign::machines::pool;
use crate::campaign::node::NodeClock;
use crate::campaign::recorder::Recorder;
use crate::campaign::runner::{Broken, Situation, SystemKind, ensure};
use ropewalk_engine::Drive;
use ropewalk_engine::gateway::{Order, OrderBoard};
use ropewalk_flow::gateway::Receiver;
use ropewalk_flow::source::TriggerGate;
use ropewalk_io::disk::{DiskFaults, SimulatedStorage};
use ropewalk_io::packet::simulated::{PacketFaults, PacketNetwork, PacketPath};
use ropewalk_io::packet::{Flow, SendConfig, Sender};
use ropewalk_io::simulated::{Faults, Network};
use ropewalk_memory::Staging;
use ropewalk_terms::Instant;
use std::collections::VecDeque;
use std::net::SocketAddrV4;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// After the last fault is over, and everything was triggered, so long until the end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Turns of readers behind the end, a tenth of a second apart.
const READ_ON: usize = 10;

/// A run in virtual time.
pub struct World {
    pub(super) core: Core,
    pub(super) scenario: Rc<Scenario>,
    pub(super) network: PacketNetwork,
    /// The network of connections.
    pub(super) lines: Network,
    pub(super) storages: Vec<SimulatedStorage>,
    pub(super) referee: Shared,
    pub(super) gateways: Vec<Process<GatewayMachine>>,
    /// By gateway: the halves that send; empty where one thread does all.
    pub(super) senders: Vec<Process<SendingMachine>>,
    pub(super) nodes: Vec<Process<NodeMachine>>,
    /// By flow.
    pub(super) triggers: Vec<Process<TriggerMachine>>,
    pub(super) readers: Vec<Process<Reader>>,
    /// By gateway: who watches it.
    pub(super) watchers: Vec<Watcher>,
    /// By flow, by source.
    pub(super) tampering: Vec<Vec<Tampering>>,
    pub(super) gates: Vec<Arc<TriggerGate>>,
    pub(super) is_over: Arc<AtomicBool>,
    pub(super) orders: Arc<OrderBoard>,
    /// What is still to be ordered.
    to_order: VecDeque<(Duration, Order)>,
    have_come: bool,
}

seeded!(Push);

impl World {
    /// All members of a scenario; no member has had a turn yet.
    fn new(scenario: Scenario, recorder: Recorder) -> Self {
        let core = Core::new(scenario.seed, &scenario.faults, recorder);
        let scenario = Rc::new(scenario);
        let clock_of = |place| NodeClock::new(core.clock.clone(), scenario.drift(place));
        let faults = PacketFaults { queue: scenario.rooms.queue, ..scenario.network };
        let network = PacketNetwork::new(scenario.seed, faults);
        network.watch();
        let clocks: Vec<NodeClock> = (0..scenario.gateways).map(|gateway| clock_of(Place::Gateway(gateway))).collect();
        let disk = |gateway| SimulatedStorage::new(scenario.seed ^ u64::from(gateway) << 32, DiskFaults::default());
        let gate = |flow: &FlowSetting| Arc::new(TriggerGate::new(flow.sets * u64::from(flow.sources.packing)));
        let nodes = 0..scenario.nodes.len() as u16;
        let orders = Arc::<OrderBoard>::default();
        let mut world = Self {
            storages: (0..scenario.gateways).map(disk).collect(),
            referee: Referee::new(&scenario, &orders, &core.recorder),
            // Halves of a gateway have the same clock.
            senders: clocks.iter().cloned().map(member).collect(),
            gateways: clocks.into_iter().map(member).collect(),
            readers: Vec::new(),
            watchers: (0..scenario.gateways).map(|_| Watcher::new(&scenario)).collect(),
            lines: Network::new(scenario.seed, scenario.lines.clone()),
            nodes: nodes.map(|node| member(clock_of(Place::Node(node)))).collect(),
            triggers: Vec::new(),
            tampering: Vec::new(),
            gates: scenario.flows.iter().map(gate).collect(),
            is_over: Arc::default(),
            orders,
            to_order: scenario.orders.iter().copied().collect(),
            have_come: false,
            network,
            core,
            scenario,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        (0..self.scenario.gateways).for_each(|gateway| self.start_gateway(gateway));
        for reader in 0..self.scenario.reader_places().len() as u16 {
            let clock = NodeClock::new(self.core.clock.clone(), 0);
            let drive = self.reader(reader, &clock);
            let mut reading = member(clock);
            reading.start(drive);
            self.readers.push(reading);
        }
        for flow in 0..self.scenario.flows.len() as u8 {
            let clock = NodeClock::new(self.core.clock.clone(), 0);
            let (drive, tampering) = self.trigger(flow, &clock);
            let mut trigger = member(clock);
            trigger.start(drive);
            self.triggers.push(trigger);
            self.tampering.push(tampering);
        }
    }

    /// A gateway begins a life.
    pub(super) fn start_gateway(&mut self, gateway: u16) {
        let index = usize::from(gateway);
        let life = u64::from(self.gateways[index].life + 1);
        if life > 1 {
            self.referee.borrow_mut().begin_life(gateway, life);
        }
        let (drive, sender) = self.gateway(gateway, life, &self.gateways[index].clock);
        self.gateways[index].start(drive);
        if let Some(sender) = sender {
            self.senders[index].start(sender);
        }
    }

    /// Nodes that should be there and are not begin a life.
    pub(super) fn start_nodes(&mut self) {
        for node in 0..self.nodes.len() as u16 {
            let is_wanted = self.have_come && !self.suffers(FaultKind::NodeKilled, &[Place::Node(node)]);
            if is_wanted && self.nodes[usize::from(node)].machine.is_none() {
                self.start_node(node);
            }
        }
    }

    fn start_node(&mut self, node: u16) {
        let index = usize::from(node);
        let drive = self.node(node, u64::from(self.nodes[index].life + 1), &self.nodes[index].clock);
        self.referee.borrow_mut().voices.talks[index].fill(Default::default());
        self.nodes[index].start(drive);
    }

    fn turn_gateway(&mut self, index: usize) -> Result<Option<usize>, Broken> {
        let member = &mut self.gateways[index];
        let done = turn(member);
        if let (Some(_), Some(drive)) = (done, &member.machine) {
            let receiver = drive.receiver();
            let turned = Turned { receiver: Some(receiver), sender: drive.sender() };
            self.referee.borrow_mut().after_turn(index as u16, turned, member.clock.now())?;
            check_throttle(receiver, self.scenario.flows.len())?;
            self.tell_last_events(index);
            self.watchers[index].look();
        }
        Ok(done)
    }

    fn turn_sender(&mut self, index: usize) -> Result<Option<usize>, Broken> {
        let member = &mut self.senders[index];
        let done = turn(member);
        if let (Some(_), Some(half)) = (done, &member.machine) {
            let turned = Turned { receiver: None, sender: Some(half.drive.machine()) };
            self.referee.borrow_mut().after_turn(index as u16, turned, member.clock.now())?;
        }
        Ok(done)
    }

    /// Delivers the messages that were sent to readers before the end, over lines that are fast again: a run does not wait
    /// for messages on a slow line (seed 60547).
    pub(super) fn read_on(&mut self) -> Result<(), Broken> {
        (0..self.readers.len() as u16).for_each(|reader| self.set_rate(reader, None));
        for _ in 0..READ_ON {
            self.core.clock.set(self.core.now().after(Duration::from_millis(100)));
            for reader in &mut self.readers {
                reader.turn();
            }
            self.core.recorder.borrow().verdict()?;
        }
        Ok(())
    }

    /// Behind a run's last event nothing belongs to it: gateways look for that at the end of their turns.
    fn tell_last_events(&self, gateway: usize) {
        if !self.scenario.knows_last {
            return;
        }
        let mut referee = self.referee.borrow_mut();
        for ((gate, setting), twin) in
            self.gates.iter().zip(&self.scenario.flows).zip(&mut referee.twins[gateway].flows)
        {
            if let Some(issued) = gate.last() {
                twin.last_event = Some((setting.sources.first_event + issued).saturating_sub(1));
            }
        }
    }

    fn next_turn(&self) -> Option<Instant> {
        fn next<D: Drive>(members: &[Process<D>]) -> Option<Instant> {
            members.iter().filter_map(Process::next_time).min()
        }
        let gateways = [next(&self.gateways), next(&self.senders)].into_iter();
        gateways.chain([next(&self.nodes), next(&self.triggers), next(&self.readers)]).flatten().min()
    }

    fn stop(&self) -> Option<Duration> {
        self.scenario.stop.map(|stop| stop + self.scenario.nodes_come)
    }

    fn next_command(&self) -> Option<Instant> {
        let nodes = (!self.have_come).then_some(self.scenario.nodes_come);
        let order = self.to_order.front().map(|(at, _)| *at);
        let times = nodes.into_iter().chain(self.stop()).chain(order).map(|time| Instant::ZERO.after(time));
        times.filter(|&time| time > self.core.now()).min()
    }

    /// Sources have sent everything.
    pub(super) fn have_sent(&self) -> bool {
        let mut triggers = self.triggers.iter().filter_map(|member| member.machine.as_ref());
        triggers.all(|drive| drive.notice().read().is_over)
    }

    fn have_closed(&self) -> bool {
        let have_received = self.gateways.iter().all(|member| member.machine.as_ref().is_some_and(Drive::is_done));
        have_received && self.senders.iter().all(|member| member.machine.as_ref().is_none_or(Drive::is_done))
    }

    fn set_drift(&self, place: Place, ppm: i32) {
        match place {
            Place::Node(node) => self.nodes[usize::from(node)].clock.set_drift(ppm),
            _ => self.gateways[usize::from(place.index())].clock.set_drift(ppm),
        }
    }

    fn change_pauses(&mut self, place: Place, by: i32) {
        match place {
            Place::Gateway(gateway) => {
                self.gateways[usize::from(gateway)].pause(by);
                self.senders[usize::from(gateway)].pause(by);
            }
            Place::Sending(gateway) => self.senders[usize::from(gateway)].pause(by),
            Place::Reader(reader) => self.readers[usize::from(reader)].pause(by),
            Place::Node(node) => self.nodes[usize::from(node)].pause(by),
            Place::Trigger(flow) => self.triggers[usize::from(flow)].pause(by),
            // A source has its turns with its trigger.
            _ => {}
        }
    }

    fn set_reader_away(&mut self, reader: u16, is_away: bool) {
        let member = &mut self.readers[usize::from(reader)];
        if let Some(drive) = &mut member.machine {
            drive.set_away(is_away);
        }
        member.wake();
    }

    /// The connections of a node break.
    fn disconnect(&self, node: u16) {
        for host in self.core.recorder.borrow().hosts_of(*address::node(node).ip()) {
            for (_, endpoint) in self.lines.connections_of(host) {
                self.lines.reset(host, endpoint);
            }
        }
    }

    /// How often gateways have turns now.
    pub(super) fn set_paces(&mut self) {
        for (number, gateway) in (0..).zip(&mut self.gateways) {
            let slow = self.core.schedule.active().filter(|fault| fault.kind == FaultKind::GatewaySlow);
            let paces = slow.filter(|fault| fault.places == [Place::Gateway(number)]).map(|fault| fault.time);
            gateway.set_pace(paces.max().unwrap_or_default());
        }
    }

    /// Whether this goes wrong now.
    pub(super) fn suffers(&self, kind: FaultKind, places: &[Place]) -> bool {
        self.core.schedule.active().any(|active| active.kind == kind && active.places == places)
    }

    /// A gateway that nothing keeps away any more begins its next life.
    fn restart_gateway(&mut self, gateway: u16) {
        let is_dead = self.suffers(FaultKind::GatewayKilled, &[Place::Gateway(gateway)]);
        if !is_dead && self.gateways[usize::from(gateway)].machine.is_none() {
            self.start_gateway(gateway);
        }
    }

    /// Who hears whom over connections now.
    pub(super) fn set_lines(&self) {
        for node in 0..self.scenario.nodes.len() as u16 {
            let is_cut_off = self.suffers(FaultKind::NodeCutOff, &[Place::Node(node)]);
            let is_deaf = self.suffers(FaultKind::NodeDeaf, &[Place::Node(node)]);
            for gateway in 0..self.scenario.gateways {
                let ours = self.core.recorder.borrow().hosts_of(*self.scenario.address(gateway, address::CONTROL).ip());
                for there in self.core.recorder.borrow().hosts_of(*address::node(node).ip()) {
                    for &here in &ours {
                        self.lines.heal(here, there);
                        if is_cut_off {
                            self.lines.partition(here, there);
                        } else if is_deaf {
                            self.lines.partition_one_way(here, there);
                        }
                    }
                }
            }
        }
    }

    /// Readers who are slow now, at gateways that may have begun another life.
    pub(super) fn set_rates(&self) {
        for fault in self.core.schedule.active().filter(|fault| fault.kind == FaultKind::ReaderSlow) {
            self.set_rate(fault.place().index(), Some(fault.count()));
        }
    }

    /// Limits the bytes a second that a reader of decisions receives; without a number only the network does.
    pub(super) fn set_rate(&self, reader: u16, bandwidth: Option<u64>) {
        let (gateway, flow) = self.scenario.reader_places()[usize::from(reader)];
        let faults = bandwidth.map(|_| Faults { bandwidth, ..self.scenario.lines.clone() });
        for here in self.core.recorder.borrow().hosts_of(*self.scenario.address(gateway, address::decisions(flow)).ip())
        {
            for there in self.core.recorder.borrow().hosts_of(*address::reader(reader).ip()) {
                self.lines.set_link(here, there, faults.clone());
            }
        }
    }

    /// What goes wrong on gateways' disks now.
    pub(super) fn set_disks(&self) {
        for (gateway, storage) in (0..).zip(&self.storages) {
            let mut disk = DiskFaults::default();
            let own = self.core.schedule.active().filter(|fault| fault.places == [Place::Gateway(gateway)]);
            own.for_each(|fault| fault.strike_disk(&mut disk));
            storage.set_faults(disk);
        }
    }

    /// What goes wrong on the network now, all of it together.
    pub(super) fn set_network(&self) {
        let base = PacketFaults { queue: self.scenario.rooms.queue, ..self.scenario.network };
        let is_short = self.suffers(FaultKind::QueueShort, &[]);
        self.network.set_faults(PacketFaults { queue: if is_short { SHORT_QUEUE } else { base.queue }, ..base });
        let silence = PacketFaults { loss: 1.0, ..base };
        let mut paths = Vec::new();
        for fault in self.core.schedule.active() {
            match (fault.kind, fault.places.first()) {
                (FaultKind::SourceSilent, Some(&Place::FlowSource(flow, source))) => {
                    let from = address::only(address::source(flow, source));
                    paths.push(PacketPath { from, to: address::GATEWAYS, faults: silence });
                }
                (kind @ (FaultKind::NodeDeaf | FaultKind::NodeCutOff), Some(&Place::Node(node))) => {
                    let to = address::only(address::node(node));
                    paths.push(PacketPath { from: address::GATEWAYS, to: to.clone(), faults: silence });
                    if kind == FaultKind::NodeCutOff {
                        paths.push(PacketPath { from: to, to: address::GATEWAYS, faults: silence });
                    }
                }
                _ => {}
            }
        }
        let ways = [
            (address::SOURCES, address::GATEWAYS),
            (address::GATEWAYS, address::NODES),
            (address::NODES, address::GATEWAYS),
            (address::GATEWAYS, address::TRIGGERS),
        ];
        for (way, (from, to)) in ways.into_iter().enumerate() {
            let mut faults = base;
            for fault in self.core.schedule.active() {
                let Some((_, manner)) = on_way(fault.kind).filter(|(of, _)| *of == way) else { continue };
                match manner {
                    0 => faults.loss = faults.loss.max(fault.number as f64 / 100.0),
                    1 => faults.duplication = fault.number as f64 / 100.0,
                    2 => (faults.disorder, faults.held_up) = (0.5, faults.held_up.max(fault.time)),
                    _ => faults.latency = faults.latency.max(fault.time),
                }
            }
            paths.push(PacketPath { from, to, faults });
        }
        self.network.set_paths(paths);
    }

    /// Nonsense to every port, from a stranger's address and from a source's.
    fn speak_nonsense(&mut self, now: Instant) {
        let flows = 0..self.scenario.flows.len() as u8;
        let mut ports: Vec<SocketAddrV4> = flows.clone().map(address::trigger).collect();
        ports.extend((0..self.nodes.len() as u16).map(address::node));
        for gateway in 0..self.scenario.gateways {
            ports.push(self.scenario.address(gateway, address::CONTROL));
            ports.extend(flows.clone().map(|flow| self.scenario.address(gateway, address::input(flow))));
        }
        for (index, from) in (0..).zip([address::STRANGER, address::source(0, 0)]) {
            let staging = Staging::new(pool("nonsense", 1 << 12, 2));
            let mut sender = self.network.sender(SendConfig::new(Flow::Udp, from), staging);
            for (port, &to) in (0..).zip(&ports) {
                let number = mixed(self.scenario.seed, index, port ^ now.as_nanoseconds());
                let length = (number % 80) as usize;
                let mut fill = |room: &mut [u8]| {
                    let bytes = (0..length as u64).map(|place| mixed(number, place, 2) as u8);
                    room.iter_mut().zip(bytes).for_each(|(byte, nonsense)| *byte = nonsense);
                    length
                };
                // Without room for nonsense it is left out.
                let _ = sender.send_with(to, length.max(1), &mut fill);
                sender.flush(now);
            }
        }
    }
}

impl Cluster for World {
    const MOST_ROUNDS: u32 = 5000;
    const MOST_IDLE: u32 = 40_000;

    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn situation(&self) -> Option<Situation> {
        let referee = self.referee.borrow();
        let decided =
            referee.twins.iter().any(|twin| twin.farm.accounts.iter().any(|one| one.decided + one.by_default > 0));
        let situation = if self.have_closed() {
            return None;
        } else if referee.voices.named.iter().all(|named| named.is_empty()) && !self.have_sent() {
            Situation::Idle
        } else if self.core.schedule.active().any(keeps_away) {
            Situation::Recovering
        } else if self.have_sent() {
            Situation::Draining
        } else if decided {
            Situation::Running
        } else {
            Situation::Starting
        };
        Some(situation)
    }

    fn begin(&mut self, now: Instant, active: &mut Active) -> bool {
        let fault = &active.scheduled.fault;
        if let Some(spoiling) = Spoiling::of(fault) {
            let Place::FlowSource(flow, source) = fault.place() else { return false };
            self.tampering[usize::from(flow)][usize::from(source)].set(Some(spoiling));
            return true;
        }
        let index = fault.places.first().map_or(0, |place| place.index());
        match fault.kind {
            FaultKind::StrangerPackets => self.speak_nonsense(now),
            FaultKind::NodeKilled => self.nodes[usize::from(index)].machine = None,
            FaultKind::GatewayKilled => {
                self.gateways[usize::from(index)].machine = None;
                self.senders[usize::from(index)].machine = None;
            }
            FaultKind::NodeDisconnected => self.disconnect(index),
            FaultKind::ReaderLeaves => self.set_reader_away(index, true),
            FaultKind::NodeSleeps | FaultKind::GatewaySleeps | FaultKind::TriggerSleeps | FaultKind::ReaderSleeps => {
                self.change_pauses(fault.place(), 1);
            }
            FaultKind::NodeSlow => {
                let slower = 1_000_000 - 1_000_000 / (fault.number as i32).max(1);
                self.set_drift(fault.place(), -slower);
            }
            FaultKind::ClockDrift => self.set_drift(fault.place(), fault.number as i32),
            // Network, disks and the scheduler read the active faults themselves.
            _ => {}
        }
        true
    }

    fn end(&mut self, active: &Active) {
        let fault = &active.scheduled.fault;
        match fault.kind {
            FaultKind::NodeKilled => self.start_nodes(),
            FaultKind::GatewayKilled => self.restart_gateway(fault.place().index()),
            FaultKind::ReaderLeaves => self.set_reader_away(fault.place().index(), false),
            // Other faults that still slow the same reader set its rate again.
            FaultKind::ReaderSlow => self.set_rate(fault.place().index(), None),
            FaultKind::NodeSleeps | FaultKind::GatewaySleeps | FaultKind::TriggerSleeps | FaultKind::ReaderSleeps => {
                self.change_pauses(fault.place(), -1);
            }
            FaultKind::NodeSlow | FaultKind::ClockDrift => {
                self.set_drift(fault.place(), self.scenario.drift(fault.place()));
            }
            _ => {}
        }
    }

    fn after_faults(&mut self) {
        self.set_network();
        self.set_disks();
        self.set_lines();
        self.set_paces();
        self.set_rates();
    }

    /// Nodes come, sources are masked, time-outs changed, and the run is stopped.
    fn command(&mut self) {
        let now = self.core.now().since(Instant::ZERO);
        while let Some((_, order)) = self.to_order.pop_front_if(|(at, _)| *at <= now) {
            let number = if matches!(order, Order::Mask(..)) { 8 } else { 9 };
            self.core.recorder.borrow_mut().note(self.core.now(), (number, 0), || format!("{order:?}"));
            match order {
                Order::Mask(source, is_masked) => self.orders.mask(source, is_masked),
                Order::SetTimeout(flow, timeout) => self.orders.set_timeout(flow, timeout),
                Order::SetPrescale(stream, prescale) => self.orders.set_prescale(stream, prescale),
            }
        }
        if !self.have_come && now >= self.scenario.nodes_come {
            self.have_come = true;
            self.start_nodes();
        }
        if self.stop().is_some_and(|stop| now >= stop) {
            for gate in &self.gates {
                gate.close();
            }
        }
        if self.have_sent() {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    fn round(&mut self) -> Result<(bool, usize), Broken> {
        let (gateways, nodes) = (self.gateways.len(), self.nodes.len());
        let (triggers, readers) = (self.triggers.len(), self.readers.len());
        let (mut any, mut work) = (false, 0);
        for index in self.core.in_turns(2 * gateways + nodes + triggers + readers) {
            let done = if index < gateways {
                self.turn_gateway(index)?
            } else if index < 2 * gateways {
                self.turn_sender(index - gateways)?
            } else if index < 2 * gateways + nodes {
                turn(&mut self.nodes[index - 2 * gateways])
            } else if index < 2 * gateways + nodes + triggers {
                turn(&mut self.triggers[index - 2 * gateways - nodes])
            } else {
                turn(&mut self.readers[index - 2 * gateways - nodes - triggers])
            };
            any |= done.is_some();
            work += done.unwrap_or_default();
            self.core.recorder.borrow().verdict()?;
        }
        let passages = self.network.take_passages();
        self.referee.borrow_mut().on_passages(passages);
        Ok((any, work))
    }

    /// No process has anything to do: then no half of a gateway sleeps over what the other one gave it or told it.
    fn rest(&mut self) -> Result<(), Broken> {
        for (index, (gateway, sender)) in self.gateways.iter_mut().zip(&mut self.senders).enumerate() {
            let are_up = gateway.is_up() && sender.is_up();
            let receiving = gateway.machine.as_mut().filter(|_| are_up).and_then(GatewayMachine::half);
            let (Some(receiving), Some(sending)) = (receiving, &mut sender.machine) else { continue };
            let sleeps = receiving.sleeps_over_work() || sending.sleeps_over_work();
            ensure!(Liveness, !sleeps;
                "gw{index}: one half has something for the other one, which sleeps and was not woken")?;
            if receiving.is_asleep() && !receiving.is_done() && !sending.is_done() {
                self.referee.borrow().twins[index].check_alarm(receiving.drive.machine())?;
            }
        }
        Ok(())
    }

    fn next_moment(&mut self) -> Option<Instant> {
        self.next_turn().into_iter().chain(self.next_command()).min()
    }

    /// A trigger that waits for gateways again and again needs its time.
    fn limit(&self) -> Instant {
        Instant::ZERO.after(self.scenario.span().max(self.scenario.faults_end()) + PATIENCE)
    }

    fn has_ended(&self) -> bool {
        self.have_closed()
    }

    fn judge(&mut self) -> Result<(), Broken> {
        Self::judge(self)
    }

    fn described(&mut self) -> String {
        let triggers = self.triggers.iter().filter_map(|member| member.machine.as_ref());
        let sets: Vec<_> = triggers.map(|drive| drive.notice().read().sets).collect();
        let gateways = self.gateways.iter().filter_map(|member| member.machine.as_ref()).map(|drive| {
            let receiver = drive.receiver();
            let flows = 0..self.scenario.flows.len() as u8;
            let in_flight: Vec<_> = flows.map(|flow| receiver.account(flow).packets.in_flight).collect();
            let levels: Vec<_> = receiver.throttle().levels().map(|one| (one.used, one.capacity)).collect();
            format!("{:?} {in_flight:?} in flight, {levels:?}", receiver.throttle().state())
        });
        let (now, gateways) = (self.core.now().since(Instant::ZERO), gateways.collect::<Vec<_>>());
        format!(
            "at {now:?}, {sets:?} sets were triggered; gateways {gateways:?}; the next turn is at {:?}",
            self.next_turn()
        )
    }
}

/// A member has its turn if it is due; how much it did.
fn turn<D: Drive>(member: &mut Process<D>) -> Option<usize> {
    member.is_due().then(|| member.turn())
}

/// What is held is never more than there may be, and a level that is nearly full lets no trigger come.
fn check_throttle(receiver: &Receiver, flows: usize) -> Result<(), Broken> {
    let throttle = receiver.throttle();
    for (index, level) in throttle.levels().enumerate() {
        let must_stop = level.used > 0 && level.headroom > 0 && level.used + level.headroom >= level.capacity;
        // More may wait in front of an input than there is room for: when the room has just become less.
        let is_bounded = level.used <= level.capacity || index == flows + 1;
        let is_right = is_bounded && !(must_stop && throttle.state().is_open());
        ensure!(Bounds, is_right; "level {index} of the throttle: {level:?}, and it says {:?}", throttle.state())?;
    }
    Ok(())
}

/// Packets that find room at a receiver while queues are short.
const SHORT_QUEUE: usize = 8;
