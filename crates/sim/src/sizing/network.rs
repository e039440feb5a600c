//! A network: senders, a switch with a finite buffer for each output port, flows between them.
//!
//! ```text
//!  flow --+                 +--> port: buffer --> receiver        many senders at one port: incast
//!  flow --+--> sender ======+
//!  flow --+    (turns)      +--> port: buffer --> receiver
//! ```
//! A sender cuts its flows into packets, one flow after the other. A packet that finds no room in its port's buffer
//! either stops its sender until there is room (`pause`, lossless, whoever waits behind it waits too), or is lost, and
//! its flow stands still until a time-out and begins again with a window of one packet (`drop`, like TCP).

use super::queue::{Queue, Side, Step};
use std::collections::VecDeque;

/// What happens to a packet that finds no room.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Full {
    /// Its sender waits.
    Pause,
    /// It is lost, and sent again after this many nanoseconds.
    Drop { timeout: u64 },
}

/// How a network is.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) struct Nature {
    pub(super) side: Side,
    /// The most bytes of a packet.
    pub(super) packet: u64,
    /// Bytes of each port's buffer.
    pub(super) buffer: u64,
    /// From the port to the receiver's memory, and back, in nanoseconds.
    pub(super) latency: u64,
    /// The most bytes of a flow that the receiver has not taken.
    pub(super) window: u64,
    pub(super) full: Full,
}

/// How fast something handles bytes, without losing fractions of nanoseconds.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) struct Pace {
    femtoseconds_per_byte: u64,
    owed: u64,
}

impl Pace {
    pub(super) fn new(bytes_per_second: f64) -> Self {
        Self { femtoseconds_per_byte: (1e15 / bytes_per_second).round() as u64, owed: 0 }
    }

    /// How many nanoseconds these bytes take.
    pub(super) const fn take(&mut self, bytes: u64) -> u64 {
        let total = bytes * self.femtoseconds_per_byte + self.owed;
        self.owed = total % 1_000_000;
        total / 1_000_000
    }
}

#[derive(Copy, Clone, Debug)]
struct Packet {
    flow: u32,
    bytes: u64,
}

/// What a sender or a port did.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Load {
    pub(super) busy: u64,
    pub(super) bytes: u64,
}

/// Whoever sends: a front-end link, a readout unit's interface.
#[derive(Debug)]
struct Sender {
    pace: Pace,
    /// Flows that can send, in turn.
    line: VecDeque<u32>,
    /// On the wire, or before a full port.
    packet: Option<Packet>,
    load: Load,
    paused: u64,
    paused_since: Option<u64>,
}

/// An output port of the switch, with the receiver's interface behind it.
#[derive(Debug)]
struct Port {
    pace: Pace,
    queue: VecDeque<Packet>,
    held: u64,
    most_held: u64,
    /// Senders that wait for room.
    waiting: VecDeque<u32>,
    load: Load,
}

/// The bytes of one sender for one receiver: a stream of TCP, or the like. All numbers count from the beginning.
#[derive(Debug)]
struct Flow {
    sender: u32,
    port: u32,
    queued: u64,
    sent: u64,
    received: u64,
    consumed: u64,
    window: u64,
    /// Up to here the window doubles in a round trip, beyond it grows by a packet.
    threshold: u64,
    in_line: bool,
    /// Since when it stands still after a loss.
    stalled_since: Option<u64>,
}

impl Flow {
    /// What may be sent now: a whole packet, or all that there is.
    fn sendable(&self, packet: u64) -> u64 {
        let there = (self.queued - self.sent).min(packet);
        let room = self.window.saturating_sub(self.sent.saturating_sub(self.consumed));
        if self.stalled_since.is_some() || room < there { 0 } else { there }
    }
}

/// What was counted in a network.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Counts {
    pub(super) packets: u64,
    pub(super) dropped: u64,
    pub(super) timeouts: u64,
    /// Nanoseconds that flows stood still after a loss, of all flows together.
    pub(super) stalled: u64,
}

/// A network: see the module's picture.
#[derive(Debug)]
pub(super) struct Network {
    nature: Nature,
    senders: Vec<Sender>,
    ports: Vec<Port>,
    flows: Vec<Flow>,
    pub(super) counts: Counts,
    /// Senders that may go on.
    freed: Vec<u32>,
}

impl Network {
    /// A network of senders and ports with these rates in bytes a second, without flows.
    pub(super) fn new(nature: Nature, senders: impl Iterator<Item = f64>, ports: impl Iterator<Item = f64>) -> Self {
        let sender = |rate| Sender {
            pace: Pace::new(rate),
            line: VecDeque::new(),
            packet: None,
            load: Load::default(),
            paused: 0,
            paused_since: None,
        };
        let port = |rate| Port {
            pace: Pace::new(rate),
            queue: VecDeque::new(),
            held: 0,
            most_held: 0,
            waiting: VecDeque::new(),
            load: Load::default(),
        };
        Self {
            nature,
            senders: senders.map(sender).collect(),
            ports: ports.map(port).collect(),
            flows: Vec::new(),
            counts: Counts::default(),
            freed: Vec::new(),
        }
    }

    /// A new flow; they are numbered as they are made.
    pub(super) fn add_flow(&mut self, sender: u32, port: u32) {
        self.flows.push(Flow {
            sender,
            port,
            queued: 0,
            sent: 0,
            received: 0,
            consumed: 0,
            window: self.nature.window,
            threshold: self.nature.window,
            in_line: false,
            stalled_since: None,
        });
    }

    /// More bytes are to be sent. The sender has to be [served](Network::serve) after that.
    pub(super) fn offer(&mut self, flow: u32, bytes: u64) {
        self.flows[flow as usize].queued += bytes;
        self.join(flow);
    }

    /// Bytes of a flow that were queued since the beginning, on the wire and received ones included.
    pub(super) fn queued(&self, flow: u32) -> u64 {
        self.flows[flow as usize].queued
    }

    /// Bytes of a flow that the sender still keeps: not sent, or not received.
    pub(super) fn kept(&self, flow: u32) -> u64 {
        let flow = &self.flows[flow as usize];
        flow.queued - flow.received
    }

    /// Bytes of a flow that are not sent.
    pub(super) fn unsent(&self, flow: u32) -> u64 {
        let flow = &self.flows[flow as usize];
        flow.queued - flow.sent
    }

    /// Bytes of a flow that the receiver can read, or has read.
    pub(super) fn received(&self, flow: u32) -> u64 {
        self.flows[flow as usize].received
    }

    /// Bytes of a flow that the receiver has taken.
    pub(super) fn consumed(&self, flow: u32) -> u64 {
        self.flows[flow as usize].consumed
    }

    /// Where a flow leaves the switch.
    pub(super) fn port_of(&self, flow: u32) -> u32 {
        self.flows[flow as usize].port
    }

    /// Who sends a flow.
    pub(super) fn sender_of(&self, flow: u32) -> u32 {
        self.flows[flow as usize].sender
    }

    fn join(&mut self, number: u32) {
        let flow = &mut self.flows[number as usize];
        if !flow.in_line && flow.sendable(self.nature.packet) > 0 {
            flow.in_line = true;
            self.senders[flow.sender as usize].line.push_back(number);
        }
    }

    /// Lets a sender send its next packet, if it is free and has one.
    pub(super) fn serve(&mut self, queue: &mut Queue, now: u64, sender: u32) {
        let state = &mut self.senders[sender as usize];
        while state.packet.is_none() {
            let Some(number) = state.line.pop_front() else { return };
            let flow = &mut self.flows[number as usize];
            flow.in_line = false;
            let bytes = flow.sendable(self.nature.packet);
            if bytes == 0 {
                continue;
            }
            state.packet = Some(Packet { flow: number, bytes });
            flow.sent += bytes;
            if flow.sendable(self.nature.packet) > 0 {
                flow.in_line = true;
                state.line.push_back(number);
            }
            let time = state.pace.take(bytes);
            state.load.busy += time;
            state.load.bytes += bytes;
            queue.push(now + time, Step::Sent { network: self.nature.side, sender });
        }
    }

    /// A sender's packet is in the switch. The senders that may go on are in [`Network::take_freed`].
    pub(super) fn sent(&mut self, queue: &mut Queue, now: u64, sender: u32) {
        let Some(packet) = self.senders[sender as usize].packet else { return };
        self.counts.packets += 1;
        let port = self.flows[packet.flow as usize].port;
        let state = &mut self.ports[port as usize];
        if state.held == 0 || state.held + packet.bytes <= self.nature.buffer {
            self.senders[sender as usize].packet = None;
            self.freed.push(sender);
            self.admit(queue, now, port, packet);
            return;
        }
        match self.nature.full {
            Full::Pause => {
                state.waiting.push_back(sender);
                self.senders[sender as usize].paused_since = Some(now);
            }
            Full::Drop { timeout } => {
                self.senders[sender as usize].packet = None;
                self.freed.push(sender);
                self.lose(queue, now, packet, timeout);
            }
        }
    }

    fn admit(&mut self, queue: &mut Queue, now: u64, port: u32, packet: Packet) {
        let state = &mut self.ports[port as usize];
        state.held += packet.bytes;
        state.most_held = state.most_held.max(state.held);
        state.queue.push_back(packet);
        if state.queue.len() == 1 {
            self.forward(queue, now, port);
        }
    }

    /// Begins to send the first packet of a port's queue.
    fn forward(&mut self, queue: &mut Queue, now: u64, port: u32) {
        let state = &mut self.ports[port as usize];
        if let Some(packet) = state.queue.front() {
            let time = state.pace.take(packet.bytes);
            state.load.busy += time;
            state.load.bytes += packet.bytes;
            queue.push(now + time, Step::Forwarded { network: self.nature.side, port });
        }
    }

    /// A packet has left a port: it arrives a little later, the next one goes, and who waited for room may have it.
    pub(super) fn forwarded(&mut self, queue: &mut Queue, now: u64, port: u32) {
        let state = &mut self.ports[port as usize];
        let Some(packet) = state.queue.pop_front() else { return };
        state.held -= packet.bytes;
        let arrived = Step::Arrived { network: self.nature.side, flow: packet.flow, bytes: packet.bytes as u32 };
        queue.push(now + self.nature.latency, arrived);
        self.forward(queue, now, port);
        while let Some(&sender) = self.ports[port as usize].waiting.front() {
            let state = &mut self.senders[sender as usize];
            let Some(packet) = state.packet else { break };
            let held = self.ports[port as usize].held;
            if held > 0 && held + packet.bytes > self.nature.buffer {
                break;
            }
            state.packet = None;
            state.paused += state.paused_since.take().map_or(0, |since| now - since);
            self.ports[port as usize].waiting.pop_front();
            self.freed.push(sender);
            self.admit(queue, now, port, packet);
        }
    }

    /// The next of the senders that may go on.
    pub(super) fn take_freed(&mut self) -> Option<u32> {
        self.freed.pop()
    }

    /// A packet is lost. Its sender has not begun the flow's next one, so that nothing can overtake what is missing.
    fn lose(&mut self, queue: &mut Queue, now: u64, packet: Packet, timeout: u64) {
        self.counts.dropped += 1;
        let flow = &mut self.flows[packet.flow as usize];
        flow.sent -= packet.bytes;
        flow.stalled_since = Some(now);
        queue.push(now + timeout, Step::Resend { network: self.nature.side, flow: packet.flow });
    }

    /// A flow has waited long enough: what was lost is sent again.
    pub(super) fn resend(&mut self, now: u64, number: u32) {
        let flow = &mut self.flows[number as usize];
        self.counts.timeouts += 1;
        self.counts.stalled += flow.stalled_since.take().map_or(0, |since| now - since);
        flow.threshold = (flow.window / 2).max(2 * self.nature.packet);
        flow.window = self.nature.packet;
        self.join(number);
    }

    /// Bytes have arrived.
    pub(super) fn arrived(&mut self, number: u32, bytes: u64) {
        let flow = &mut self.flows[number as usize];
        flow.received += bytes;
        if flow.window < self.nature.window {
            let slow = flow.window < flow.threshold;
            let more = if slow { bytes } else { self.nature.packet * bytes / flow.window };
            flow.window = (flow.window + more).min(self.nature.window);
        }
    }

    /// The receiver has taken all bytes up to `consumed`. A sender that waited for that hears it a little later.
    pub(super) fn consume(&mut self, queue: &mut Queue, now: u64, number: u32, consumed: u64) {
        let flow = &mut self.flows[number as usize];
        let waits = |flow: &Flow| flow.queued > flow.sent && !flow.in_line;
        flow.consumed = consumed;
        if waits(flow) && flow.sendable(self.nature.packet) > 0 {
            queue.push(now + self.nature.latency, Step::Opened { network: self.nature.side, flow: number });
        }
    }

    /// The sender of a flow has heard that there is room.
    pub(super) fn opened(&mut self, number: u32) {
        self.join(number);
    }

    /// Counts anew from here.
    pub(super) fn reset(&mut self, now: u64) {
        self.counts = Counts::default();
        for sender in &mut self.senders {
            (sender.load, sender.paused) = (Load::default(), 0);
            sender.paused_since = sender.paused_since.map(|_| now);
        }
        for port in &mut self.ports {
            (port.load, port.most_held) = (Load::default(), port.held);
        }
        for flow in &mut self.flows {
            flow.stalled_since = flow.stalled_since.map(|_| now);
        }
    }

    /// What each sender did.
    pub(super) fn sender_loads(&self) -> impl Iterator<Item = Load> + '_ {
        self.senders.iter().map(|sender| sender.load)
    }

    /// What each port did.
    pub(super) fn port_loads(&self) -> impl Iterator<Item = Load> + '_ {
        self.ports.iter().map(|port| port.load)
    }

    /// The most that lay in one port's buffer.
    pub(super) fn most_held(&self) -> u64 {
        self.ports.iter().map(|port| port.most_held).max().unwrap_or(0)
    }

    /// Nanoseconds that each sender stood before a full port.
    pub(super) fn paused(&self, now: u64) -> impl Iterator<Item = u64> + '_ {
        self.senders.iter().map(move |sender| sender.paused + sender.paused_since.map_or(0, |since| now - since))
    }

    /// Nanoseconds that flows stood still after a loss, of all flows together.
    pub(super) fn stalled(&self, now: u64) -> u64 {
        let open = self.flows.iter().filter_map(|flow| flow.stalled_since).map(|since| now - since);
        self.counts.stalled + open.sum::<u64>()
    }
}
