//! A simulated connection: each end of it, what is under way in each direction, and how it ends.

use std::collections::VecDeque;
use std::time::Duration;

use ropewalk_memory::Pool;
use ropewalk_terms::Instant;

use super::network::{State as NetworkState, between};
use super::{Faults, Random, SimulatedConfig};
use crate::endpoint::{BrokenCause, ConnectCause, Endpoint, Event};
use crate::endpoint_state::{Ends, ReceiveBlock, SendQueue};

/// Segments that one endpoint sends in one poll.
const SEGMENTS: usize = 64;

#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum State {
    Connecting,
    Requested,
    Open,
    Closing,
}

pub(super) struct Connection {
    pub(super) wire: u64,
    /// 0 for the end that connected, 1 for the one that accepts.
    pub(super) side: usize,
    pub(super) state: State,
    pub(super) reading: bool,
    pub(super) ends: Ends,
    pub(super) queue: SendQueue,
    pub(super) block: ReceiveBlock,
}

/// What of its dispatcher a connection works with.
pub(super) struct Context<'a> {
    pub(super) config: &'a SimulatedConfig,
    pub(super) pool: &'a mut Pool,
    pub(super) events: &'a mut Vec<Event>,
}

impl Connection {
    pub(super) fn new(wire: u64, side: usize, state: State, send_queue_bytes: usize) -> Self {
        let queue = SendQueue::new(send_queue_bytes);
        Self { wire, side, state, reading: true, ends: Ends::new(), queue, block: ReceiveBlock::new() }
    }

    /// Whether it was closed and everything is on its way.
    pub(super) fn is_flushed(&self) -> bool {
        self.state == State::Closing && self.queue.is_empty()
    }

    /// Does what can be done now; returns the work done and the last event, if this is the end.
    pub(super) fn serve(
        &mut self,
        endpoint: Endpoint,
        network: &mut NetworkState,
        context: &mut Context<'_>,
    ) -> (usize, Option<Event>) {
        match self.state {
            State::Requested => (0, None),
            State::Connecting => self.finish_connecting(endpoint, network, context.events),
            State::Open | State::Closing => {
                if let Some(cause) = self.broken(network) {
                    return (0, Some(Event::Broken { endpoint, cause }));
                }
                let now = network.now;
                let Some(wire) = network.wires.get(&self.wire) else { return (0, None) };
                let passes = network.passes(wire, 1 - self.side);
                let faults = between(&network.faults, &network.links, wire.hosts);
                let Some(wire) = network.wires.get_mut(&self.wire) else { return (0, None) };
                let incoming = &mut wire.directions[1 - self.side];
                let mut work = 0;
                if passes {
                    work += self.receive(endpoint, incoming, now, faults, context);
                    if incoming.arrived_end(now) == Some(End::Closed) && self.ends.may_receive() {
                        self.ends.peer_ended(endpoint, context.events);
                        work += 1;
                    }
                }
                if !self.ends.are_over() {
                    work += self.flush(wire, now, faults);
                }
                if self.is_over(wire, now) {
                    wire.directions[self.side].end(now, faults, End::Closed);
                    return (work, Some(Event::Disconnected { endpoint }));
                }
                self.queue.tell(endpoint, context.events);
                (work, None)
            }
        }
    }

    /// Both directions have ended, or the peer is no longer there to receive.
    fn is_over(&self, wire: &Wire, now: Instant) -> bool {
        let peer = 1 - self.side;
        let is_closed = self.state == State::Closing && self.queue.is_empty();
        // A reset that is on its way says more.
        let is_left = wire.names[peer].is_none() && wire.directions[peer].arrived_end(now) == Some(End::Closed);
        self.ends.are_over() || (!self.ends.may_receive() && (is_closed || is_left))
    }

    /// Whether messages are taken.
    pub(super) fn may_send(&self) -> bool {
        self.state == State::Open && self.ends.may_send()
    }

    fn finish_connecting(
        &mut self,
        endpoint: Endpoint,
        network: &NetworkState,
        events: &mut Vec<Event>,
    ) -> (usize, Option<Event>) {
        let Some(wire) = network.wires.get(&self.wire) else { return (0, None) };
        let cause = match wire.answer {
            Some((answer, arrival)) if arrival <= network.now && network.passes(wire, 1) => match answer {
                Ok(()) => {
                    self.state = State::Open;
                    events.push(Event::Established { endpoint });
                    return (1, None);
                }
                Err(cause) => cause,
            },
            _ if network.now >= wire.connect_deadline => ConnectCause::TimedOut,
            _ => return (0, None),
        };
        (0, Some(Event::ConnectFailed { endpoint, cause }))
    }

    /// Whether the connection has broken.
    fn broken(&self, network: &NetworkState) -> Option<BrokenCause> {
        let wire = network.wires.get(&self.wire)?;
        let reset = wire.directions[1 - self.side].arrived_end(network.now) == Some(End::Reset);
        if reset && network.passes(wire, 1 - self.side) {
            return Some(BrokenCause::Reset);
        }
        let since = network.unreachable_since(wire)?;
        (network.now >= since.after(network.faults_of(wire).give_up)).then_some(BrokenCause::TimedOut)
    }

    fn receive(
        &mut self,
        endpoint: Endpoint,
        incoming: &mut Direction,
        now: Instant,
        faults: &Faults,
        context: &mut Context<'_>,
    ) -> usize {
        if self.state == State::Closing {
            return usize::from(incoming.discard(now) > 0);
        }
        let (mut left, mut work) = (context.config.receive_batch_bytes, 0);
        while self.reading && left > 0 && incoming.arrived(now) > 0 {
            let Some(loan) = self.block.get(context.pool, context.config.smallest_receive) else { break };
            let spare = loan.spare();
            let mut length = incoming.arrived(now).min(spare.len()).min(left);
            if incoming.random.chance(faults.short_read) {
                length = incoming.random.cut(length);
            }
            incoming.read(&mut spare[..length]);
            loan.commit(length);
            if let Some(slice) = loan.split_committed() {
                context.events.push(Event::Received { endpoint, slice });
            }
            self.block.release_full();
            left -= length;
            work += 1;
        }
        work
    }

    /// Puts on the wire what the window allows.
    fn flush(&mut self, wire: &mut Wire, now: Instant, faults: &Faults) -> usize {
        let mut work = 0;
        while work < SEGMENTS && !self.queue.is_empty() {
            let outgoing = &mut wire.directions[self.side];
            let mut length = outgoing.room(faults).min(self.queue.unsettled()).min(faults.segment.max(1));
            if length == 0 {
                break;
            }
            let short = outgoing.random.chance(faults.short_write);
            if short {
                length = outgoing.random.cut(length);
            }
            outgoing.send(now, faults, length, self.queue.iter().map(|slice| &**slice));
            self.queue.advance(length);
            work += 1;
            self.strike(wire, now, faults);
            if short {
                break;
            }
        }
        let shuts = self.ends.must_shut(self.queue.is_empty());
        if shuts {
            self.ends.shut();
            work += 1;
        }
        if shuts || (self.state == State::Closing && self.queue.is_empty()) {
            wire.directions[self.side].end(now, faults, End::Closed);
        }
        work
    }

    /// Lets the faults of a sent segment happen.
    fn strike(&self, wire: &mut Wire, now: Instant, faults: &Faults) {
        let random = &mut wire.directions[self.side].random;
        let (reset, half_open) = (random.chance(faults.reset), random.chance(faults.half_open));
        if reset {
            wire.reset(now, faults);
        }
        if half_open {
            wire.silent_since.get_or_insert(now);
        }
    }

    /// When serving it will do something, if that is known.
    pub(super) fn next_time(&self, network: &NetworkState) -> Option<Instant> {
        let wire = network.wires.get(&self.wire)?;
        let passes = network.passes(wire, 1 - self.side);
        match self.state {
            State::Requested => None,
            State::Connecting => {
                let answer = wire.answer.filter(|_| passes).map(|(_, arrival)| arrival);
                Some(answer.map_or(wire.connect_deadline, |arrival| arrival.min(wire.connect_deadline)))
            }
            State::Open | State::Closing => {
                let faults = network.faults_of(wire);
                let give_up = network.unreachable_since(wire).map(|since| since.after(faults.give_up));
                let incoming = &wire.directions[1 - self.side];
                let takes = self.state == State::Closing || (self.reading && !self.block.is_dry());
                let takes = takes && self.ends.may_receive();
                let arrival = if takes { incoming.next_arrival() } else { incoming.next_reset() };
                let sendable = !self.queue.is_empty() && wire.directions[self.side].room(faults) > 0;
                let shuts = self.ends.must_shut(self.queue.is_empty());
                let send = (sendable || shuts || self.queue.has_news()).then_some(network.now);
                [give_up, arrival.filter(|_| passes), send].into_iter().flatten().min()
            }
        }
    }

    /// What comes from the peer, unless the network holds it back.
    fn incoming<'a>(&self, network: &'a NetworkState) -> Option<&'a Direction> {
        let wire = network.wires.get(&self.wire)?;
        network.passes(wire, 1 - self.side).then_some(&wire.directions[1 - self.side])
    }

    /// Whether the peer's end has arrived, though bytes may wait before it.
    pub(super) fn peer_has_ended(&self, network: &NetworkState) -> bool {
        self.incoming(network).is_some_and(|incoming| incoming.has_end_arrived(network.now))
    }

    /// The first bytes that have arrived, as many as there are and fit, without taking them.
    pub(super) fn peek(&self, network: &NetworkState, head: &mut [u8]) -> Option<usize> {
        network.wires.get(&self.wire)?;
        Some(self.incoming(network).map_or(0, |incoming| incoming.peek(network.now, head)))
    }

    /// Whether bytes have arrived. What the network holds back has not.
    pub(super) fn has_waiting(&self, network: &NetworkState) -> bool {
        self.incoming(network).is_some_and(|incoming| incoming.arrived(network.now) > 0)
    }

    /// Whether bytes wait that the quota has no block for.
    pub(super) fn waits_for_block(&self, network: &NetworkState) -> bool {
        self.state == State::Open && self.reading && self.block.is_dry() && self.has_waiting(network)
    }
}

/// How a side ended its direction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// In order: everything else arrives before.
    Closed,
    /// By a reset.
    Reset,
}

struct Segment {
    arrival: Instant,
    length: usize,
}

/// One direction, named by the side that sends.
pub(super) struct Direction {
    bytes: VecDeque<u8>,
    segments: VecDeque<Segment>,
    end: Option<(End, Instant)>,
    /// When the last byte has left, as the bandwidth allows.
    busy_until: Instant,
    last_arrival: Instant,
    pub(super) random: Random,
}

/// A connection between two hosts; side 0 connected, side 1 accepts.
pub(super) struct Wire {
    pub(super) hosts: [u32; 2],
    /// What the hosts call it; `None` once (or as long as) they do not know it.
    pub(super) names: [Option<Endpoint>; 2],
    pub(super) directions: [Direction; 2],
    /// The answer to the connection request and when it arrives.
    pub(super) answer: Option<(Result<(), ConnectCause>, Instant)>,
    pub(super) connect_deadline: Instant,
    /// Since when it carries nothing for ever, because one side vanished without a word.
    pub(super) silent_since: Option<Instant>,
}

/// How long a segment takes.
pub(super) fn latency(faults: &Faults, random: &mut Random) -> Duration {
    if random.chance(faults.outlier) {
        return faults.outlier_latency;
    }
    random.between(faults.least_latency, faults.most_latency)
}

impl Direction {
    pub(super) const fn new(random: Random) -> Self {
        Self {
            bytes: VecDeque::new(),
            segments: VecDeque::new(),
            end: None,
            busy_until: Instant::ZERO,
            last_arrival: Instant::ZERO,
            random,
        }
    }

    /// Bytes that may be sent now.
    pub(super) fn room(&self, faults: &Faults) -> usize {
        faults.window.saturating_sub(self.bytes.len())
    }

    /// Puts a segment on its way.
    pub(super) fn send<'a>(
        &mut self,
        now: Instant,
        faults: &Faults,
        length: usize,
        slices: impl Iterator<Item = &'a [u8]>,
    ) {
        let mut left = length;
        for slice in slices {
            if left == 0 {
                break;
            }
            let piece = &slice[..slice.len().min(left)];
            self.bytes.extend(piece);
            left -= piece.len();
        }
        let takes = faults
            .bandwidth
            .map_or(Duration::ZERO, |rate| Duration::from_nanos(length as u64 * 1_000_000_000 / rate.max(1)));
        self.busy_until = self.busy_until.max(now).after(takes);
        let arrival = self.busy_until.after(latency(faults, &mut self.random)).max(self.last_arrival);
        self.last_arrival = arrival;
        self.segments.push_back(Segment { arrival, length });
    }

    /// Ends the direction, once; a close arrives after everything else, a reset throws everything away.
    pub(super) fn end(&mut self, now: Instant, faults: &Faults, end: End) {
        if self.end.is_some_and(|(before, _)| before == End::Reset || end == End::Closed) {
            return;
        }
        let mut arrival = now.after(latency(faults, &mut self.random));
        if end == End::Closed {
            arrival = arrival.max(self.last_arrival);
        }
        self.end = Some((end, arrival));
    }

    /// The end, if it has arrived and nothing stands before it.
    fn arrived_end(&self, now: Instant) -> Option<End> {
        let (end, arrival) = self.end?;
        (arrival <= now && (end == End::Reset || self.segments.is_empty())).then_some(end)
    }

    /// Whether the end has arrived, though segments may stand before it.
    fn has_end_arrived(&self, now: Instant) -> bool {
        self.end.is_some_and(|(_, arrival)| arrival <= now)
    }

    /// Bytes of the first segment, if that has arrived.
    pub(super) fn arrived(&self, now: Instant) -> usize {
        self.segments.front().filter(|segment| segment.arrival <= now).map_or(0, |segment| segment.length)
    }

    /// Copies the first bytes that have arrived, as many as there are and fit; returns how many.
    pub(super) fn peek(&self, now: Instant, head: &mut [u8]) -> usize {
        let arrived = self.segments.iter().take_while(|segment| segment.arrival <= now);
        let length = arrived.map(|segment| segment.length).sum::<usize>().min(head.len());
        for (to, from) in head[..length].iter_mut().zip(&self.bytes) {
            *to = *from;
        }
        length
    }

    /// Takes bytes of the first segment; `into` is not longer than that.
    pub(super) fn read(&mut self, into: &mut [u8]) {
        let length = into.len();
        let (front, back) = self.bytes.as_slices();
        let (first, second) = into.split_at_mut(front.len().min(length));
        first.copy_from_slice(&front[..first.len()]);
        second.copy_from_slice(&back[..second.len()]);
        self.bytes.drain(..length);
        self.shorten(length);
    }

    /// Throws away what has arrived; returns how many bytes.
    pub(super) fn discard(&mut self, now: Instant) -> usize {
        let mut discarded = 0;
        while self.arrived(now) > 0 {
            let length = self.arrived(now);
            self.bytes.drain(..length);
            self.shorten(length);
            discarded += length;
        }
        discarded
    }

    fn shorten(&mut self, length: usize) {
        if let Some(segment) = self.segments.front_mut() {
            segment.length -= length;
            if segment.length == 0 {
                self.segments.pop_front();
            }
        }
    }

    /// When the next thing arrives.
    fn next_arrival(&self) -> Option<Instant> {
        let bytes = self.segments.front().map(|segment| segment.arrival);
        let end = self.end.filter(|&(end, _)| end == End::Reset || bytes.is_none()).map(|(_, arrival)| arrival);
        [bytes, end].into_iter().flatten().min()
    }

    /// When a reset arrives, which is noticed even where nothing is read.
    fn next_reset(&self) -> Option<Instant> {
        self.end.filter(|&(end, _)| end == End::Reset).map(|(_, arrival)| arrival)
    }

    /// What waited on a slow link arrives at latest now.
    pub(super) fn hurry_to(&mut self, instant: Instant) {
        for segment in &mut self.segments {
            segment.arrival = segment.arrival.min(instant);
        }
        if let Some((_, arrival)) = &mut self.end {
            *arrival = (*arrival).min(instant);
        }
        self.busy_until = self.busy_until.min(instant);
        self.last_arrival = self.last_arrival.min(instant);
    }

    /// What was held back by a partition arrives after its end.
    pub(super) fn delay_to(&mut self, instant: Instant) {
        for segment in &mut self.segments {
            segment.arrival = segment.arrival.max(instant);
        }
        if let Some((_, arrival)) = &mut self.end {
            *arrival = (*arrival).max(instant);
        }
        self.last_arrival = self.last_arrival.max(instant);
    }
}

impl Wire {
    /// Breaks the connection at both ends.
    pub(super) fn reset(&mut self, now: Instant, faults: &Faults) {
        for direction in &mut self.directions {
            direction.end(now, faults, End::Reset);
        }
    }
}
