//! The emulated trigger and sources of one flow: they send sets of packets to the gateways that the trigger assigns.

use super::link::{contiguous, send_bytes};
use super::report::Notice;
use crate::Drive;
use ropewalk_flow::gateway::{Trigger, TriggerConfig};
use ropewalk_flow::source::mep::{EmulatedPacket, MepSourceConfig, MepSources};
use ropewalk_flow::source::{TriggerGate, TriggerRate, TriggerSequence};
use ropewalk_io::packet::{Packet, Receiver, Refusal, Sender, over_v4};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Incarnation, Instant};
use ropewalk_wire::gateway::{Frame, Message, Stream};
use ropewalk_wire::mep::MepRequest;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddrV4;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Configuration of the emulated sources of a flow.
#[derive(Clone, Debug)]
pub struct PacketSourceDriveConfig {
    /// Configuration of their state machines.
    pub sources: MepSourceConfig,
    /// How the trigger assigns gateways.
    pub trigger: TriggerConfig,
    /// Rate of events.
    pub rate: TriggerRate,
    /// Address of each gateway for this flow's packets.
    pub gateways: Vec<SocketAddrV4>,
    /// Gate that limits the triggers.
    pub gate: Arc<TriggerGate>,
}

/// Report of a flow's trigger and sources.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct PacketSourceReport {
    /// Triggered sets of events.
    pub sets: u64,
    /// Packets that were sent, including duplicates.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Packets that were lost on purpose.
    pub lost: u64,
    /// Packets that were sent twice.
    pub duplicates: u64,
    /// Unsent packets: the system finally refused them, or they were too long for it.
    pub failed: u64,
    /// Decisions that arrived in the order of events.
    pub decisions: u64,
    /// Accepted events among them.
    pub accepted: u64,
    /// Decisions that did not arrive, or not in order.
    pub missed: u64,
    /// Time in which triggers could come.
    pub live: Duration,
    /// Time in which gateways allowed none.
    pub dead: Duration,
    /// Whether everything was sent.
    pub is_over: bool,
}

/// Trigger and sources of a flow; see the module documentation.
pub struct PacketSourceDrive<R: Receiver, S: Sender> {
    sources: MepSources,
    trigger: Trigger,
    sequence: TriggerSequence,
    /// When the next set is due after the start, without dead time.
    due: Duration,
    /// Time in which no trigger could come.
    held_up: Duration,
    /// The last time at which a set was due and not wanted.
    waits_since: Option<Instant>,
    gate: Arc<TriggerGate>,
    issued: u64,
    is_exhausted: bool,
    gateways: Vec<SocketAddrV4>,
    control: R,
    /// By source.
    senders: Vec<S>,
    /// Number of packets of each source that the system had refused at the last query.
    refused: Vec<u64>,
    /// Sources whose senders have something queued.
    queued: Vec<u16>,
    is_queued: Vec<bool>,
    /// A packet for which there was no room.
    current: Option<EmulatedPacket>,
    /// Packets that are sent later than their trigger.
    later: BinaryHeap<Reverse<(Instant, EmulatedPacket)>>,
    started: Option<Instant>,
    packets: Vec<Packet>,
    bytes: Vec<u8>,
    scratch: Vec<u8>,
    /// The address from which each gateway sends.
    speakers: Vec<Option<SocketAddrV4>>,
    /// By gateway: its current incarnation, and the number of decisions it has reported so far.
    told: Vec<(Incarnation, u64)>,
    report: PacketSourceReport,
    notice: Notice<PacketSourceReport>,
}

/// Maximum number of packets in one turn.
const PACKETS: usize = 512;
/// Maximum sleep while the trigger waits for a gateway.
const LOOK: Duration = Duration::from_millis(1);

impl<R: Receiver, S: Sender> PacketSourceDrive<R, S> {
    /// Creates sources that send through `senders`, one for each. Messages of gateways arrive through `control`.
    pub fn new(config: PacketSourceDriveConfig, control: R, senders: Vec<S>) -> Self {
        let gateways = config.gateways.len();
        let mut sequence = TriggerSequence::new(config.sources.seed, config.rate);
        let due = due_of_set(&mut sequence, config.sources.packing);
        Self {
            sources: MepSources::new(config.sources),
            trigger: Trigger::new(config.trigger),
            sequence,
            due,
            held_up: Duration::ZERO,
            waits_since: None,
            gate: config.gate,
            issued: 0,
            is_exhausted: false,
            gateways: config.gateways,
            control,
            queued: Vec::with_capacity(senders.len()),
            is_queued: vec![false; senders.len()],
            refused: vec![0; senders.len()],
            senders,
            current: None,
            later: BinaryHeap::new(),
            started: None,
            packets: Vec::with_capacity(1024),
            bytes: Vec::with_capacity(65_536),
            scratch: Vec::with_capacity(2048),
            speakers: vec![None; gateways],
            told: vec![(Incarnation(0), 0); gateways],
            report: PacketSourceReport::default(),
            notice: Notice::default(),
        }
    }

    /// Returns its report.
    pub fn notice(&self) -> Notice<PacketSourceReport> {
        self.notice.clone()
    }

    /// Handles the messages of gateways.
    fn hear(&mut self, now: Instant) -> usize {
        let work = self.control.receive(now, &mut self.packets);
        let Self { packets, trigger, scratch, report, told, speakers, .. } = self;
        for Packet { from, payload, .. } in packets.drain(..) {
            let bytes = contiguous(&payload, scratch);
            if let Ok((kind, body, _)) = Frame::split(bytes) {
                match Message::decode(kind, body) {
                    Ok(Message::Throttle(throttle)) => {
                        if let Some(speaker) = speakers.get_mut(usize::from(throttle.gateway)) {
                            *speaker = Some(over_v4(from));
                        }
                        trigger.on_throttle(&throttle, now);
                    }
                    Ok(Message::Stream(stream)) => note_decisions(&stream, told, report),
                    _ => {}
                }
            } else if let Ok(request) = MepRequest::parse(bytes)
                && let Some(gateway) =
                    speakers.iter().position(|speaker| speaker.is_some_and(|one| is_same(one, over_v4(from))))
            {
                // A request does not name its gateway. A throttle message does, so that its sender address is known.
                trigger.on_request(gateway as u16, &request);
            }
        }
        work
    }

    /// Triggers due sets and sends their packets, up to the limit of a turn.
    fn send(&mut self, now: Instant) -> usize {
        let started = *self.started.get_or_insert(now);
        let mut sent = 0;
        while sent < PACKETS {
            if let Some(packet) = self.current.take().or_else(|| self.next_packet(now)) {
                if !self.send_packet(&packet, now) {
                    self.current = Some(packet);
                    return sent;
                }
                sent += 1;
            } else if !self.trigger_next(now, started) {
                return sent;
            }
        }
        sent
    }

    /// Returns the next packet to send now.
    fn next_packet(&mut self, now: Instant) -> Option<EmulatedPacket> {
        if let Some(Reverse((due, ..))) = self.later.peek()
            && *due <= now
        {
            return self.later.pop().map(|Reverse((_, packet))| packet);
        }
        loop {
            let packet = match self.sources.next_packet() {
                Some(packet) => packet,
                None if self.is_exhausted => self.sources.next_late_packet()?,
                None => return None,
            };
            if packet.is_lost {
                self.report.lost += 1;
            } else if packet.delay.is_zero() {
                return Some(packet);
            } else {
                self.later.push(Reverse((now.after(packet.delay), packet)));
            }
        }
    }

    /// Sends a packet. Returns false if there is no room for it.
    fn send_packet(&mut self, packet: &EmulatedPacket, now: Instant) -> bool {
        self.bytes.clear();
        self.sources.encode(packet, &mut self.bytes);
        let (bytes, source) = (&self.bytes, usize::from(packet.source));
        let (Some(sender), Some(&to)) = (self.senders.get_mut(source), self.gateways.get(usize::from(packet.gateway)))
        else {
            return true;
        };
        match send_bytes(sender, to, bytes, now) {
            Ok(()) => {}
            Err(Refusal::Full) => return false,
            Err(Refusal::TooLarge) => {
                self.report.failed += 1;
                return true;
            }
        }
        if !std::mem::replace(&mut self.is_queued[source], true) {
            self.queued.push(packet.source);
        }
        self.report.packets += 1;
        self.report.bytes += bytes.len() as u64;
        self.report.duplicates += u64::from(packet.is_duplicate);
        true
    }

    /// Triggers the next set if it is due and wanted.
    fn trigger_next(&mut self, now: Instant, started: Instant) -> bool {
        if self.is_exhausted || now.since(started) < self.due + self.held_up {
            return false;
        }
        let packing = u64::from(self.sources.config().packing);
        let Some(gateway) = self.trigger.name(now) else {
            let since = self.waits_since.replace(now).unwrap_or(now);
            self.held_up += now.since(since);
            // The run may end while no set is wanted.
            self.is_exhausted = self.gate.last().is_some();
            return self.is_exhausted;
        };
        self.waits_since = None;
        if self.gate.advance_to(self.issued + packing) < self.issued + packing {
            self.is_exhausted = true;
            return true;
        }
        self.issued += packing;
        self.sources.trigger(gateway);
        self.report.sets += 1;
        self.due = due_of_set(&mut self.sequence, packing as u16);
        true
    }

    fn flush(&mut self, now: Instant) -> usize {
        let mut taken = 0;
        let Self { senders, queued, is_queued, refused, report, .. } = self;
        queued.retain(|&source| {
            let sender = &mut senders[usize::from(source)];
            taken += sender.flush(now);
            let failed = sender.counters().failed;
            let more = failed - std::mem::replace(&mut refused[usize::from(source)], failed);
            (report.packets, report.failed) = (report.packets - more, report.failed + more);
            let is_left = sender.queued() > 0;
            is_queued[usize::from(source)] = is_left;
            is_left
        });
        taken
    }

    fn is_over(&self) -> bool {
        self.is_exhausted && self.current.is_none() && self.later.is_empty() && self.queued.is_empty()
    }
}

/// Returns when a set is due: with its last event.
fn due_of_set(sequence: &mut TriggerSequence, packing: u16) -> Duration {
    (0..packing).map(|_| sequence.next_trigger().at).last().unwrap_or_default()
}

/// Returns whether two addresses belong to the same gateway queue: queues of a gateway may have ports of one host.
fn is_same(one: SocketAddrV4, other: SocketAddrV4) -> bool {
    one.ip() == other.ip() && (one.port() == other.port() || is_planted(Flaw::SpeakerByHost))
}

fn note_decisions(stream: &Stream, told: &mut [(Incarnation, u64)], report: &mut PacketSourceReport) {
    let Some((life, before)) = told.get_mut(usize::from(stream.gateway)) else { return };
    let entries = stream.entries.len() as u64;
    if stream.incarnation > *life {
        // The new incarnation counts from zero.
        (*life, *before) = (stream.incarnation, 0);
    }
    if stream.incarnation < *life || stream.before < *before {
        return;
    }
    report.missed += stream.before - *before;
    report.decisions += entries;
    report.accepted += stream.entries.iter().filter(|entry| entry.accept).count() as u64;
    *before = stream.before + entries;
}

impl<R: Receiver, S: Sender> Drive for PacketSourceDrive<R, S> {
    fn turn(&mut self, now: Instant) -> usize {
        let work = self.hear(now) + self.send(now) + self.flush(now);
        (self.report.live, self.report.dead) = self.trigger.live_and_dead();
        self.report.is_over = self.is_over();
        let report = self.report;
        self.notice.renew(|told| *told = report);
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        let later = self.later.peek().map(|Reverse((due, ..))| *due);
        let due = match (self.started, self.waits_since) {
            (Some(_), Some(since)) if !self.is_exhausted => Some(since.after(LOOK)),
            (Some(started), None) if !self.is_exhausted => Some(started.after(self.due + self.held_up)),
            _ => None,
        };
        later.into_iter().chain(due).chain(self.control.next_deadline()).min()
    }

    fn prepare_wait(&mut self) -> bool {
        self.queued.is_empty() && self.current.is_none() && self.control.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.control.wait_descriptor());
    }

    fn is_done(&self) -> bool {
        // Decisions still arrive after the last packet: the drive continues until its thread ends.
        false
    }
}
