//! One TCP connection: its operations in the kernel, and the handling of their completions.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use ropewalk_memory::{Loan, Owner, Pool};
use rustix::io::Errno;
use rustix::net::{self, Shutdown};

use super::ring::{Buffers, Completion, MOST_POSTED, Operation, Ring, Token};
use crate::endpoint::{BrokenCause, Endpoint, Event};
use crate::endpoint_state::{Ends, SendQueue};
use crate::tcp::TcpConfig;
use crate::tcp::socket::{broken_cause, connect_cause, connect_result};

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    Connecting,
    Requested,
    Open,
    /// [`Dispatcher::close`](crate::Dispatcher::close) was called: the queue is sent.
    Flushing,
    /// Everything is sent and the own direction is shut; waits for the end of the peer's direction.
    Shut,
    /// The user has had the last event, or wants none; the kernel still has operations.
    Ended,
}

/// The kernel's handling of received bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Receiving {
    Nothing,
    /// It reports arriving bytes: the endpoint holds no block meanwhile.
    Watches,
    /// It receives into the posted blocks, and reports when none is left.
    Receives,
    Discards,
}

/// The way in which receiving ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum End {
    Closed,
    Broken(BrokenCause),
}

/// The parts of the dispatcher that preparing and delivering need.
pub(super) struct Tools<'a> {
    pub(super) config: &'a TcpConfig,
    pub(super) ring: &'a mut Ring,
    pub(super) pool: &'a mut Pool,
}

pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) state: State,
    pub(super) queue: SendQueue,
    /// Whether the user wants to receive.
    pub(super) reading: bool,
    pub(super) owner: Owner,
    pub(super) ends: Ends,
    /// Blocks that the user posted and the kernel does not have yet; `None` if blocks come from the pool.
    supply: Option<VecDeque<Loan>>,
    /// Whether it is in the dispatcher's list of connections to serve.
    pub(super) listed: bool,
    receiving: Receiving,
    /// Whether received bytes wait in the kernel for a block.
    waiting: bool,
    /// Whether the quota gave no block at the last attempt.
    dry: bool,
    end: Option<End>,
    sending: bool,
    /// Whether the kernel copies all sends, of any size: the user may lock no more memory.
    copies: bool,
    /// Number of bytes sent without copying that the kernel may still need.
    lent: usize,
    /// Cause of a failed send, until receiving has ended.
    failure: Option<BrokenCause>,
    /// Number of operations whose last completion has not arrived.
    in_flight: u32,
    cancelled: bool,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, state: State, send_queue_bytes: usize) -> Self {
        Self {
            socket,
            state,
            queue: SendQueue::new(send_queue_bytes),
            reading: true,
            owner: Owner::SHARED,
            ends: Ends::new(),
            supply: None,
            listed: false,
            receiving: Receiving::Nothing,
            waiting: false,
            dry: false,
            end: None,
            sending: false,
            copies: false,
            lent: 0,
            failure: None,
            in_flight: 0,
            cancelled: false,
        }
    }

    /// Whether the kernel has no operation of it.
    pub(super) const fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Whether it could receive if it had a block.
    pub(super) const fn wants_block(&self) -> bool {
        self.receives() && self.waiting && self.dry
    }

    /// Takes its blocks from this owner's quota from now on.
    pub(super) const fn set_owner(&mut self, owner: Owner) {
        self.owner = owner;
        self.dry = false;
    }

    /// Whether its blocks come from the pool.
    pub(super) const fn takes_from_pool(&self) -> bool {
        self.supply.is_none()
    }

    /// Whether received bytes are delivered.
    const fn receives(&self) -> bool {
        matches!(self.state, State::Open) && self.reading && self.ends.may_receive()
    }

    /// Whether it is still connecting or closing, for which there is a time limit.
    pub(super) fn is_awaited(&self) -> bool {
        !matches!(self.state, State::Open | State::Ended)
    }

    /// Whether messages are accepted.
    pub(super) fn may_send(&self) -> bool {
        self.state == State::Open && self.ends.may_send()
    }

    /// Whether blocks are accepted.
    pub(super) const fn may_post(&self) -> bool {
        matches!(self.state, State::Connecting | State::Requested | State::Open)
    }

    /// Receives into this block, behind the blocks posted before, and no longer into blocks of the pool.
    pub(super) fn post(&mut self, block: Loan, buffers: Option<&mut Buffers>) {
        if self.supply.is_none()
            && let Some(buffers) = buffers
        {
            buffers.release();
        }
        self.supply.get_or_insert_default().push_back(block);
        self.dry = false;
    }

    /// Whether there is work to do on it now.
    pub(super) fn has_work(&self, buffers: Option<&Buffers>) -> bool {
        let sends = !self.sending && !self.queue.is_empty() && self.failure.is_none();
        match self.state {
            State::Requested => false,
            State::Connecting => self.is_idle(),
            State::Open => {
                let delivers = self.receives() && (self.end.is_some() || buffers.is_some_and(Buffers::has_some));
                let ends = self.ends.must_shut(self.is_sent()) || self.ends.are_over() || self.fails();
                delivers || sends || self.starts_receiving() || self.queue.has_news() || ends
            }
            State::Flushing | State::Shut => {
                let shuts = self.state == State::Flushing && self.is_sent();
                sends || shuts || self.starts_receiving() || self.closed().is_some()
            }
            State::Ended => !self.cancelled || self.is_idle(),
        }
    }

    fn starts_receiving(&self) -> bool {
        let wanted = self.state != State::Open || (self.receives() && !self.wants_block());
        self.receiving == Receiving::Nothing && self.end.is_none() && wanted
    }

    /// Whether the kernel has taken all queued bytes.
    fn is_sent(&self) -> bool {
        self.queue.is_empty() && !self.sending
    }

    /// Whether a failed send ends the connection now. Otherwise it waits for the reading, so that bytes received before
    /// are delivered.
    const fn fails(&self) -> bool {
        self.failure.is_some() && !self.receives()
    }

    /// Ends it for the user: cancels the kernel's operations, after which it can be removed.
    pub(super) fn end(&mut self, buffers: Option<&mut Buffers>) {
        self.state = State::Ended;
        self.supply = None;
        if let Some(buffers) = buffers {
            buffers.give_back();
        }
    }

    /// Begins to close. Returns the blocks at once, since nothing is delivered any more.
    pub(super) fn begin_close(&mut self, buffers: Option<&mut Buffers>) {
        self.state = State::Flushing;
        self.supply = None;
        if let Some(buffers) = buffers {
            buffers.give_back();
        }
    }

    /// Ends it while the kernel may still send: closes the socket, and leaks the slices.
    pub(super) fn abandon(self) {
        core::mem::forget(self.queue);
    }

    /// Queues the operations that it needs now.
    pub(super) fn prepare(&mut self, index: u32, buffers: Option<&mut Buffers>, tools: &mut Tools<'_>) {
        match self.state {
            State::Requested => {}
            State::Connecting => self.prepare_connect(index, tools.ring),
            State::Open => {
                self.prepare_send(index, tools);
                if self.ends.must_shut(self.is_sent()) {
                    self.ends.shut();
                    self.shut();
                }
                if let Some(buffers) = buffers {
                    self.prepare_receive(index, buffers, tools);
                }
            }
            State::Flushing | State::Shut => self.prepare_closing(index, tools),
            State::Ended => self.prepare_cancel(index, tools.ring),
        }
    }

    fn prepare_connect(&mut self, index: u32, ring: &mut Ring) {
        if self.is_idle() && ring.connect(&self.socket, index) {
            self.in_flight += 1;
        }
    }

    fn prepare_send(&mut self, index: u32, tools: &mut Tools<'_>) {
        if self.sending || self.queue.is_empty() || self.failure.is_some() {
            return;
        }
        let copies = self.copies || self.queue.unsettled() < tools.config.zero_copy_bytes;
        // SAFETY: slices leave the queue after the last completion, and the queue is dropped with the connection, which
        // stays until nothing is in flight.
        let bytes = unsafe { tools.ring.send(&self.socket, self.queue.iter(), copies, index) };
        self.sending = bytes > 0;
        self.in_flight += u32::from(self.sending);
    }

    fn prepare_receive(&mut self, index: u32, buffers: &mut Buffers, tools: &mut Tools<'_>) {
        if !self.receives() || self.end.is_some() || buffers.has_some() {
            return;
        }
        match self.receiving {
            Receiving::Receives => {
                // Only a busy connection gets another block before the kernel asks for it.
                let turnover = buffers.take_turnover();
                if turnover > 0 || self.supply.is_some() {
                    self.fill(1 + turnover, buffers, tools);
                }
            }
            Receiving::Nothing if buffers.posted() == 0 && !self.waiting => {
                self.start(Receiving::Watches, tools.ring.await_bytes(&self.socket, index));
            }
            Receiving::Nothing => {
                let turnover = buffers.take_turnover();
                self.fill(1 + turnover, buffers, tools);
                self.dry = buffers.posted() == 0;
                if !self.dry {
                    self.start(Receiving::Receives, tools.ring.receive(&self.socket, index as u16, index));
                }
            }
            Receiving::Watches | Receiving::Discards => {}
        }
    }

    fn start(&mut self, receiving: Receiving, queued: bool) {
        if queued {
            self.receiving = receiving;
            self.waiting = false;
            self.in_flight += 1;
        }
    }

    /// Gives the kernel blocks until it has `wanted`, within the batch of one poll and the quota, or the blocks that
    /// the user posted.
    fn fill(&mut self, wanted: usize, buffers: &mut Buffers, tools: &mut Tools<'_>) {
        let batch = tools.config.receive_batch_bytes;
        if let Some(supply) = &mut self.supply {
            while buffers.posted() < MOST_POSTED
                && buffers.room() < batch
                && let Some(block) = supply.pop_front()
            {
                buffers.post(block);
            }
            return;
        }
        // An owner with a separate quota takes nothing from others by keeping one block in reserve.
        let reserve = usize::from(self.owner != Owner::SHARED);
        let wanted = wanted.min(batch.div_ceil(tools.pool.block_size()).max(1) + reserve).min(MOST_POSTED);
        while buffers.posted() < wanted
            && let Some(loan) = tools.pool.loan(self.owner)
        {
            buffers.post(loan);
        }
    }

    fn prepare_closing(&mut self, index: u32, tools: &mut Tools<'_>) {
        self.prepare_send(index, tools);
        if self.state == State::Flushing && self.is_sent() {
            self.state = State::Shut;
            self.shut();
        }
        // The peer's remaining bytes must be read: closing with unread bytes would reset the connection, and the peer
        // could lose bytes sent to it before.
        if self.receiving == Receiving::Nothing && self.end.is_none() {
            self.start(Receiving::Discards, tools.ring.discard(&self.socket, index));
        }
    }

    fn shut(&self) {
        // If it fails, the connection has ended already, which the next read reports.
        let _ = net::shutdown(&self.socket, Shutdown::Write);
    }

    fn prepare_cancel(&mut self, index: u32, ring: &mut Ring) {
        if self.cancelled || self.is_idle() {
            return;
        }
        let receives = match self.receiving {
            Receiving::Nothing => None,
            Receiving::Watches => Some(Operation::Watch),
            Receiving::Receives => Some(Operation::Receive),
            Receiving::Discards => Some(Operation::Discard),
        };
        let sends = self.sending.then_some(Operation::Send);
        // A connection that neither receives nor sends can only be connecting.
        let connects = (receives.is_none() && sends.is_none()).then_some(Operation::Connect);
        let mut operations = [receives, sends, connects].into_iter().flatten();
        self.cancelled = operations.all(|operation| ring.cancel(Token::new(operation, index)));
    }

    /// Processes a completion.
    pub(super) fn complete(
        &mut self,
        endpoint: Endpoint,
        completion: &Completion,
        buffers: Option<&mut Buffers>,
        events: &mut Vec<Event>,
    ) {
        self.in_flight -= u32::from(!completion.more);
        match completion.token.operation {
            Operation::Connect => self.connected(endpoint, completion.result, events),
            Operation::Watch => {
                self.receiving = Receiving::Nothing;
                self.waiting = completion.result.is_ok();
            }
            Operation::Receive => {
                if !completion.more {
                    self.receiving = Receiving::Nothing;
                }
                self.received(completion.result, buffers);
            }
            Operation::Discard => {
                self.receiving = Receiving::Nothing;
                self.discarded(completion.result);
            }
            Operation::Send => self.sent(completion),
            // Operations of listeners, or of no connection.
            Operation::Accept | Operation::Cancel => {}
        }
    }

    fn connected(&mut self, endpoint: Endpoint, result: Result<usize, Errno>, events: &mut Vec<Event>) {
        if self.state != State::Connecting {
            return;
        }
        match result.map_err(connect_cause).and_then(|_| connect_result(&self.socket)) {
            Ok(()) => {
                self.state = State::Open;
                events.push(Event::Established { endpoint });
            }
            Err(cause) => {
                self.state = State::Ended;
                events.push(Event::ConnectFailed { endpoint, cause });
            }
        }
    }

    fn received(&mut self, result: Result<usize, Errno>, buffers: Option<&mut Buffers>) {
        match result {
            Ok(0) => self.end = Some(End::Closed),
            Ok(bytes) => {
                if self.state == State::Open && !buffers.is_some_and(|buffers| buffers.received(bytes)) {
                    self.end = Some(End::Broken(broken_cause(Errno::PROTO)));
                }
            }
            Err(Errno::NOBUFS) => self.waiting = true,
            Err(Errno::CANCELED | Errno::AGAIN | Errno::INTR) => {}
            Err(error) => self.end = Some(End::Broken(broken_cause(error))),
        }
    }

    fn discarded(&mut self, result: Result<usize, Errno>) {
        match result {
            Ok(0) => self.end = Some(End::Closed),
            Ok(_) | Err(Errno::CANCELED | Errno::AGAIN | Errno::INTR) => {}
            Err(error) => self.end = Some(End::Broken(broken_cause(error))),
        }
    }

    fn sent(&mut self, completion: &Completion) {
        self.sending = completion.more;
        if completion.notification {
            self.queue.advance(core::mem::take(&mut self.lent));
            return;
        }
        match completion.result {
            Ok(bytes) if completion.more => self.lent = bytes,
            Ok(bytes) => self.queue.advance(bytes),
            Err(Errno::CANCELED | Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOBUFS | Errno::NOMEM) if !self.copies => self.copies = true,
            Err(error) => self.failure = Some(broken_cause(error)),
        }
    }

    /// Delivers received bytes, up to the batch. Returns the work done and the connection's last event, if it has
    /// ended.
    pub(super) fn deliver(
        &mut self,
        endpoint: Endpoint,
        config: &TcpConfig,
        buffers: Option<&mut Buffers>,
        events: &mut Vec<Event>,
    ) -> (usize, Option<Event>) {
        let before = events.len();
        let last = match self.state {
            State::Open => self.deliver_open(endpoint, config, buffers, events),
            _ => self.closed(),
        };
        let last = last.map(|end| match end {
            End::Closed => Event::Disconnected { endpoint },
            End::Broken(cause) => Event::Broken { endpoint, cause },
        });
        if last.is_none() && self.state == State::Open {
            self.queue.tell(endpoint, events);
        }
        (events.len() - before, last)
    }

    fn deliver_open(
        &mut self,
        endpoint: Endpoint,
        config: &TcpConfig,
        mut buffers: Option<&mut Buffers>,
        events: &mut Vec<Event>,
    ) -> Option<End> {
        let mut left = config.receive_batch_bytes;
        while left > 0
            && self.receives()
            && let Some(slice) = buffers.as_mut().and_then(|buffers| buffers.take(left))
        {
            left -= slice.len();
            events.push(Event::Received { endpoint, slice });
        }
        if self.receives() && !buffers.is_some_and(|buffers| buffers.has_some()) {
            match (self.end, self.failure) {
                (Some(End::Broken(cause)), _) => return Some(End::Broken(cause)),
                // The kernel reports an error only once: an orderly end after an error is not one.
                (Some(End::Closed), Some(cause)) => return Some(End::Broken(cause)),
                (Some(End::Closed), None) => self.ends.peer_ended(endpoint, events),
                (None, _) => {}
            }
        }
        match self.failure {
            Some(cause) if self.fails() => Some(End::Broken(cause)),
            _ => self.ends.are_over().then_some(End::Closed),
        }
    }

    /// The end of a connection that is being closed, if it has ended. The peer's end alone is not enough: it may still
    /// want the queued bytes.
    fn closed(&self) -> Option<End> {
        match (self.end, self.failure) {
            (Some(End::Broken(cause)), _) | (_, Some(cause)) if self.is_closing() => Some(End::Broken(cause)),
            (Some(End::Closed), _) if self.state == State::Shut => Some(End::Closed),
            _ => None,
        }
    }

    const fn is_closing(&self) -> bool {
        matches!(self.state, State::Flushing | State::Shut)
    }
}
