//! Faults begin and end: what each does to the members, the network and the disks.

use super::address;
use super::fault::{Spoiling, on_way};
use super::world::World;
use crate::campaign::cluster::Process;
use crate::campaign::content::mixed;
use crate::campaign::fault::{Fault, FaultKind, Place};
use crate::campaign::machines::pool;
use ropewalk_engine::Drive;
use ropewalk_io::disk::DiskFaults;
use ropewalk_io::packet::simulated::{PacketFaults, PacketPath};
use ropewalk_io::packet::{Flow, SendConfig, Sender};
use ropewalk_io::simulated::Faults;
use ropewalk_memory::Staging;
use ropewalk_terms::Instant;
use std::net::SocketAddrV4;

/// Packets that find room at a receiver while queues are short.
const SHORT_QUEUE: usize = 8;

impl World {
    pub(super) fn begin_fault(&mut self, now: Instant, fault: &Fault) {
        if let Some(spoiling) = Spoiling::of(fault) {
            let Place::FlowSource(flow, source) = fault.place() else { return };
            return self.tampering[usize::from(flow)][usize::from(source)].set(Some(spoiling));
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
    }

    pub(super) fn end_fault(&mut self, fault: &Fault) {
        match fault.kind {
            FaultKind::NodeKilled => self.start_nodes(),
            FaultKind::GatewayKilled => self.restart_gateway(fault.place().index()),
            FaultKind::ReaderLeaves => self.set_reader_away(fault.place().index(), false),
            // Several may slow the same one: those that still do, do it again.
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

    fn set_drift(&self, place: Place, ppm: i32) {
        match place {
            Place::Node(node) => self.nodes[usize::from(node)].clock.set_drift(ppm),
            _ => self.gateways[usize::from(place.index())].clock.set_drift(ppm),
        }
    }

    fn change_pauses(&mut self, place: Place, by: i32) {
        fn change<D: Drive>(member: &mut Process<D>, by: i32) {
            member.pauses = member.pauses.saturating_add_signed(by);
            member.wake();
        }
        match place {
            Place::Gateway(gateway) => {
                change(&mut self.gateways[usize::from(gateway)], by);
                change(&mut self.senders[usize::from(gateway)], by);
            }
            Place::Sending(gateway) => change(&mut self.senders[usize::from(gateway)], by),
            Place::Reader(reader) => change(&mut self.readers[usize::from(reader)], by),
            Place::Node(node) => change(&mut self.nodes[usize::from(node)], by),
            Place::Trigger(flow) => change(&mut self.triggers[usize::from(flow)], by),
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

    /// So many bytes a second come to a reader of decisions; as many as the network carries where none are said.
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

    /// Nonsense to every door, from a stranger's address and from a source's.
    fn speak_nonsense(&mut self, now: Instant) {
        let flows = 0..self.scenario.flows.len() as u8;
        let mut doors: Vec<SocketAddrV4> = flows.clone().map(address::trigger).collect();
        doors.extend((0..self.nodes.len() as u16).map(address::node));
        for gateway in 0..self.scenario.gateways {
            doors.push(self.scenario.address(gateway, address::CONTROL));
            doors.extend(flows.clone().map(|flow| self.scenario.address(gateway, address::input(flow))));
        }
        for (index, from) in (0..).zip([address::STRANGER, address::source(0, 0)]) {
            let staging = Staging::new(pool("nonsense", 1 << 12, 2));
            let mut sender = self.network.sender(SendConfig::new(Flow::Udp, from), staging);
            for (door, &to) in (0..).zip(&doors) {
                let number = mixed(self.scenario.seed, index, door ^ now.as_nanoseconds());
                let length = (number % 80) as usize;
                let mut fill = |room: &mut [u8]| {
                    let bytes = (0..length as u64).map(|place| mixed(number, place, 2) as u8);
                    room.iter_mut().zip(bytes).for_each(|(byte, nonsense)| *byte = nonsense);
                    length
                };
                // Where there is no room for nonsense it goes unsaid.
                let _ = sender.send_with(to, length.max(1), &mut fill);
                sender.flush(now);
            }
        }
    }
}
