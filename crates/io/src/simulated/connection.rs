//! One end of a simulated connection.

use ropewalk_memory::Pool;
use ropewalk_terms::Instant;

use super::SimulatedConfig;
use super::faults::Faults;
use super::network::{State as NetworkState, between};
use super::wire::{Direction, End, Wire};
use crate::endpoint::{BrokenCause, ConnectCause, Endpoint, Event};
use crate::ends::Ends;
use crate::receive_block::ReceiveBlock;
use crate::send_queue::SendQueue;

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

    /// Whether the peer's end has arrived, though bytes may wait before it.
    pub(super) fn peer_has_ended(&self, network: &NetworkState) -> bool {
        let ended = |wire: &Wire| {
            network.passes(wire, 1 - self.side) && wire.directions[1 - self.side].has_end_arrived(network.now)
        };
        network.wires.get(&self.wire).is_some_and(ended)
    }

    /// The first bytes that have arrived, as many as there are and fit, without taking them.
    pub(super) fn peek(&self, network: &NetworkState, head: &mut [u8]) -> Option<usize> {
        let wire = network.wires.get(&self.wire)?;
        let passes = network.passes(wire, 1 - self.side);
        Some(if passes { wire.directions[1 - self.side].peek(network.now, head) } else { 0 })
    }

    /// Whether bytes have arrived. What the network holds back has not.
    pub(super) fn has_waiting(&self, network: &NetworkState) -> bool {
        let comes = |wire: &Wire| {
            network.passes(wire, 1 - self.side) && wire.directions[1 - self.side].arrived(network.now) > 0
        };
        network.wires.get(&self.wire).is_some_and(comes)
    }

    /// Whether bytes wait that the quota has no block for.
    pub(super) fn waits_for_block(&self, network: &NetworkState) -> bool {
        self.state == State::Open && self.reading && self.block.is_dry() && self.has_waiting(network)
    }
}
