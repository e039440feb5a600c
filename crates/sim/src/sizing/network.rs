//! A network: senders, a switch with a finite buffer for each output port, flows between them.
//!
//! ```text
//!  flow --+                 +--> port: buffer --> receiver        many senders at one port: incast
//!  flow --+--> sender ======+
//!  flow --+    (turns)      +--> port: buffer --> receiver
//! ```
//! A sender cuts its flows into packets, one flow after the other. A packet that finds no room in its port's buffer
//! either stops its sender until there is room (`pause`, lossless, packets behind it wait too), or is lost
//! (`drop`), and its flow stands still, like TCP's: for a round trip where packets behind it would tell the sender, and
//! with half of what was on its way as its window after that; otherwise until a time-out, and with a window of one packet.

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
    pub(super) framing: Framing,
}

/// Packets that behind a lost one tell its sender of the loss, as TCP counts acknowledgements that repeat.
const TELLING: u64 = 3;

/// What the headers of a network cost: so many bytes for each frame with so many bytes in it.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) struct Framing {
    pub(super) payload: u64,
    pub(super) header: u64,
}

impl Framing {
    /// How many bytes go over the wire for these, that begin a frame.
    const fn on_the_wire(self, bytes: u64) -> u64 {
        bytes + bytes.div_ceil(self.payload) * self.header
    }
}

/// How fast something handles bytes, without losing fractions of nanoseconds.
#[derive(Copy, Clone, PartialEq, Default, Debug)]
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

    /// How many nanoseconds these bytes would take.
    const fn would_take(&self, bytes: u64) -> u64 {
        bytes * self.femtoseconds_per_byte / 1_000_000
    }
}

#[derive(Copy, Clone, Debug)]
struct Packet {
    flow: u32,
    bytes: u64,
    /// The same with headers.
    on_the_wire: u64,
}

/// What a sender or a port did.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Load {
    pub(super) busy: u64,
    pub(super) bytes: u64,
}

/// A sender: a front-end link, a readout unit's interface.
#[derive(Default, Debug)]
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
#[derive(Default, Debug)]
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
#[derive(Default, Debug)]
pub(super) struct Flow {
    pub(super) sender: u32,
    /// Where it leaves the switch.
    pub(super) port: u32,
    /// Bytes that were given to the sender, and how many of them it has sent, the receiver can read, and has taken.
    pub(super) queued: u64,
    sent: u64,
    pub(super) received: u64,
    pub(super) consumed: u64,
    window: u64,
    /// Up to here the window doubles in a round trip, beyond it grows by a packet.
    threshold: u64,
    in_line: bool,
    /// It stands still after a loss.
    stalled: Option<Stall>,
}

/// A flow stands still after a loss.
#[derive(Copy, Clone, Debug)]
struct Stall {
    since: u64,
    /// When what was lost is sent again.
    due: u64,
    /// Its sender hears of the loss, and need not wait for the time-out.
    told: bool,
}

impl Flow {
    /// Bytes that the sender still keeps: not sent, or not received.
    pub(super) const fn kept(&self) -> u64 {
        self.queued - self.received
    }

    /// Bytes that are not sent.
    pub(super) const fn unsent(&self) -> u64 {
        self.queued - self.sent
    }

    /// What may be sent now: a whole packet, or all that there is.
    fn sendable(&self, packet: u64) -> u64 {
        let there = self.unsent().min(packet);
        if self.stalled.is_some() || self.room() < there { 0 } else { there }
    }

    /// Whether so many packets of these bytes may follow the next one that the receiver, who misses that, tells so.
    fn tells(&self, packet: u64) -> bool {
        self.unsent().min(self.room()) >= (1 + TELLING) * packet
    }

    /// Bytes that the window has room for.
    const fn room(&self) -> u64 {
        self.window.saturating_sub(self.sent.saturating_sub(self.consumed))
    }
}

/// What was counted in a network.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Counts {
    pub(super) packets: u64,
    pub(super) dropped: u64,
    pub(super) timeouts: u64,
    /// Losses that packets behind the lost one told of.
    pub(super) fast: u64,
    /// Nanoseconds that flows stood still after a loss, of all flows together.
    pub(super) stalled: u64,
}

/// A network: see the module's picture.
pub(super) struct Network {
    nature: Nature,
    senders: Vec<Sender>,
    ports: Vec<Port>,
    flows: Vec<Flow>,
    pub(super) counts: Counts,
    /// Senders that may go on.
    pub(super) freed: Vec<u32>,
    /// Flows that stand still and got more to send.
    followed: Vec<u32>,
}

impl Network {
    /// A network of senders and ports with these rates in bytes a second, without flows.
    pub(super) fn new(nature: Nature, senders: impl Iterator<Item = f64>, ports: impl Iterator<Item = f64>) -> Self {
        let sender = |rate| Sender { pace: Pace::new(rate), ..Sender::default() };
        let port = |rate| Port { pace: Pace::new(rate), ..Port::default() };
        Self {
            nature,
            senders: senders.map(sender).collect(),
            ports: ports.map(port).collect(),
            flows: Vec::new(),
            counts: Counts::default(),
            freed: Vec::new(),
            followed: Vec::new(),
        }
    }

    /// A new flow; they are numbered as they are made.
    pub(super) fn add_flow(&mut self, sender: u32, port: u32) {
        let window = self.nature.window;
        self.flows.push(Flow { sender, port, window, threshold: window, ..Flow::default() });
    }

    /// More bytes are to be sent. The sender has to be [served](Network::serve) after that.
    pub(super) fn offer(&mut self, number: u32, bytes: u64) {
        let flow = &mut self.flows[number as usize];
        flow.queued += bytes;
        if flow.stalled.is_some() {
            self.followed.push(number);
        }
        self.join(number);
    }

    /// A flow by its number.
    pub(super) fn flow(&self, number: u32) -> &Flow {
        &self.flows[number as usize]
    }

    /// A flow can send, perhaps: its sender has it in line.
    pub(super) fn join(&mut self, number: u32) {
        let flow = &mut self.flows[number as usize];
        if !flow.in_line && flow.sendable(self.nature.packet) > 0 {
            flow.in_line = true;
            self.senders[flow.sender as usize].line.push_back(number);
        }
    }

    /// Lets a sender send its next packet, if it is free and has one.
    pub(super) fn serve(&mut self, queue: &mut Queue, now: u64, sender: u32) {
        while let Some(flow) = self.followed.pop() {
            self.tell(queue, now, flow);
        }
        let state = &mut self.senders[sender as usize];
        while state.packet.is_none() {
            let Some(number) = state.line.pop_front() else { return };
            let flow = &mut self.flows[number as usize];
            flow.in_line = false;
            let bytes = flow.sendable(self.nature.packet);
            if bytes == 0 {
                continue;
            }
            let on_the_wire = self.nature.framing.on_the_wire(bytes);
            state.packet = Some(Packet { flow: number, bytes, on_the_wire });
            flow.sent += bytes;
            if flow.sendable(self.nature.packet) > 0 {
                flow.in_line = true;
                state.line.push_back(number);
            }
            let time = state.pace.take(on_the_wire);
            state.load.busy += time;
            state.load.bytes += on_the_wire;
            queue.push(now + time, Step::Sent { network: self.nature.side, sender });
        }
    }

    /// A sender's packet is in the switch. The senders that may go on are in [`Network::freed`].
    pub(super) fn sent(&mut self, queue: &mut Queue, now: u64, sender: u32) {
        let Some(packet) = self.senders[sender as usize].packet else { return };
        self.counts.packets += 1;
        let port = self.flows[packet.flow as usize].port;
        let state = &mut self.ports[port as usize];
        if state.held == 0 || state.held + packet.on_the_wire <= self.nature.buffer {
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
        state.held += packet.on_the_wire;
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
            let time = state.pace.take(packet.on_the_wire);
            state.load.busy += time;
            state.load.bytes += packet.on_the_wire;
            queue.push(now + time, Step::Forwarded { network: self.nature.side, port });
        }
    }

    /// A packet has left a port: it arrives a little later, the next one goes, and who waited for room may have it.
    pub(super) fn forwarded(&mut self, queue: &mut Queue, now: u64, port: u32) {
        let state = &mut self.ports[port as usize];
        let Some(packet) = state.queue.pop_front() else { return };
        state.held -= packet.on_the_wire;
        let arrived = Step::Arrived { network: self.nature.side, flow: packet.flow, bytes: packet.bytes as u32 };
        queue.push(now + self.nature.latency, arrived);
        self.forward(queue, now, port);
        while let Some(&sender) = self.ports[port as usize].waiting.front() {
            let state = &mut self.senders[sender as usize];
            let Some(packet) = state.packet else { break };
            let held = self.ports[port as usize].held;
            if held > 0 && held + packet.on_the_wire > self.nature.buffer {
                break;
            }
            state.packet = None;
            state.paused += state.paused_since.take().map_or(0, |since| now - since);
            self.ports[port as usize].waiting.pop_front();
            self.freed.push(sender);
            self.admit(queue, now, port, packet);
        }
    }

    /// A packet is lost. Its sender has not begun the flow's next one, so that nothing can overtake what is missing.
    fn lose(&mut self, queue: &mut Queue, now: u64, packet: Packet, timeout: u64) {
        self.counts.dropped += 1;
        let flow = &mut self.flows[packet.flow as usize];
        // Half of what was on its way, however large the window was: so much the port could take.
        flow.threshold = (flow.sent.saturating_sub(flow.consumed) / 2).max(2 * self.nature.packet);
        flow.sent -= packet.bytes;
        flow.stalled = Some(Stall { since: now, due: now + timeout, told: false });
        queue.push(now + timeout, Step::Resend { network: self.nature.side, flow: packet.flow });
        self.tell(queue, now, packet.flow);
    }

    /// Where enough follows a lost packet, its sender hears of the loss a round trip later and sends it again.
    fn tell(&mut self, queue: &mut Queue, now: u64, number: u32) {
        let flow = &mut self.flows[number as usize];
        let tells = flow.tells(self.nature.packet);
        let Some(stall) = flow.stalled.as_mut().filter(|stall| tells && !stall.told) else { return };
        // What tells of the loss has to be sent, and to pass the same port.
        let port = &self.ports[flow.port as usize];
        let telling = self.senders[flow.sender as usize].pace.would_take(TELLING * self.nature.packet);
        let round_trip = 2 * self.nature.latency + port.pace.would_take(port.held) + telling;
        if now + round_trip < stall.due {
            (stall.told, stall.due) = (true, now + round_trip);
            queue.push(stall.due, Step::Resend { network: self.nature.side, flow: number });
        }
    }

    /// A flow has waited long enough: what was lost is sent again.
    pub(super) fn resend(&mut self, now: u64, number: u32) {
        let flow = &mut self.flows[number as usize];
        // The time-out of a loss that was told of earlier means nothing any more.
        let Some(stall) = flow.stalled.take_if(|stall| stall.due == now) else { return };
        self.counts.stalled += now - stall.since;
        if stall.told {
            self.counts.fast += 1;
            flow.window = flow.threshold;
        } else {
            self.counts.timeouts += 1;
            flow.window = self.nature.packet;
        }
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
        let waits = |flow: &Flow| flow.unsent() > 0 && !flow.in_line;
        flow.consumed = consumed;
        if waits(flow) && flow.sendable(self.nature.packet) > 0 {
            queue.push(now + self.nature.latency, Step::Opened { network: self.nature.side, flow: number });
        }
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
            flow.stalled = flow.stalled.map(|stall| Stall { since: now, ..stall });
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
        let open = self.flows.iter().filter_map(|flow| flow.stalled).map(|stall| now - stall.since);
        self.counts.stalled + open.sum::<u64>()
    }
}
