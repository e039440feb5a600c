//! One TCP connection: receives in place, sends the queue in one gathered call.

use std::os::fd::OwnedFd;

use ropewalk_memory::Pool;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, Shutdown};

use crate::endpoint::{BrokenCause, Endpoint, Event};
use crate::endpoint_state::{Ends, ReceiveBlock, SendQueue};
use crate::tcp::TcpConfig;
use crate::tcp::gather::Gathered;
use crate::tcp::socket::{broken_cause, connect_result};

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    Connecting,
    Requested,
    Open,
    /// [`Dispatcher::close`](crate::Dispatcher::close) was called: the queue is sent.
    Flushing,
    /// Everything is sent and the own direction is shut; waits for the end of the peer's direction.
    Shut,
}

/// The parts of the dispatcher that serve a connection.
pub(super) struct Tools<'a> {
    pub(super) config: &'a TcpConfig,
    pub(super) pool: &'a mut Pool,
    pub(super) gathered: &'a mut Gathered,
}

/// A connection. Readiness is reported in edges, so it is remembered here until the kernel reports otherwise.
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) state: State,
    pub(super) queue: SendQueue,
    /// Whether the user wants to receive.
    pub(super) reading: bool,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// Whether the peer has ended its direction: a short read is not the last one then.
    pub(super) hung_up: bool,
    pub(super) ends: Ends,
    /// Whether it is in the dispatcher's list of connections to serve.
    pub(super) listed: bool,
    pub(super) block: ReceiveBlock,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, state: State, send_queue_bytes: usize) -> Self {
        Self {
            socket,
            state,
            queue: SendQueue::new(send_queue_bytes),
            reading: true,
            readable: false,
            writable: false,
            hung_up: false,
            ends: Ends::new(),
            listed: false,
            block: ReceiveBlock::new(),
        }
    }

    /// Whether it could receive if it had a block.
    pub(super) const fn wants_block(&self) -> bool {
        self.receives() && self.readable && self.block.is_dry()
    }

    /// Whether received bytes are delivered.
    const fn receives(&self) -> bool {
        matches!(self.state, State::Open) && self.reading && self.ends.may_receive()
    }

    /// Whether it is still connecting or closing, for which there is a time limit.
    pub(super) fn is_awaited(&self) -> bool {
        self.state != State::Open
    }

    /// Whether messages are accepted.
    pub(super) fn may_send(&self) -> bool {
        self.state == State::Open && self.ends.may_send()
    }

    /// Whether there is work to do on it now.
    pub(super) fn has_work(&self) -> bool {
        match self.state {
            State::Requested => false,
            State::Connecting => self.writable,
            State::Open => {
                (self.receives() && self.readable && !self.block.is_dry())
                    || (self.writable && !self.queue.is_empty())
                    || self.queue.has_news()
                    || self.ends.must_shut(self.queue.is_empty())
            }
            State::Flushing => (self.readable && !self.hung_up) || self.writable || self.queue.is_empty(),
            State::Shut => self.readable,
        }
    }

    /// Whether to ask the kernel if the socket is readable, and writable.
    pub(super) fn asks(&self) -> (bool, bool) {
        let (read, write) = match self.state {
            State::Requested => (false, false),
            State::Connecting => (false, true),
            State::Open => (self.receives(), !self.queue.is_empty()),
            State::Flushing => (true, !self.queue.is_empty()),
            State::Shut => (true, false),
        };
        (read && !self.readable, write && !self.writable)
    }

    /// Tries to get a block again; returns whether it can receive now.
    pub(super) fn refill(&mut self, pool: &mut Pool, config: &TcpConfig) -> bool {
        self.block.get(pool, config.smallest_receive).is_some()
    }

    /// Begins to close. Returns the block at once, since nothing is delivered any more.
    pub(super) fn begin_close(&mut self) {
        self.state = State::Flushing;
        self.block.give_back();
    }

    /// Does the work that is possible now. Returns the work done and the connection's last event, if it has ended.
    pub(super) fn serve(
        &mut self,
        endpoint: Endpoint,
        tools: &mut Tools<'_>,
        events: &mut Vec<Event>,
    ) -> (usize, Option<Event>) {
        match self.state {
            State::Requested => (0, None),
            State::Connecting => self.finish_connecting(endpoint, events),
            State::Open => self.serve_open(endpoint, tools, events),
            State::Flushing | State::Shut => self.serve_closing(endpoint, tools.gathered),
        }
    }

    fn finish_connecting(&mut self, endpoint: Endpoint, events: &mut Vec<Event>) -> (usize, Option<Event>) {
        if !self.writable {
            return (0, None);
        }
        if let Err(cause) = connect_result(&self.socket) {
            return (1, Some(Event::ConnectFailed { endpoint, cause }));
        }
        self.state = State::Open;
        events.push(Event::Established { endpoint });
        (1, None)
    }

    fn serve_open(
        &mut self,
        endpoint: Endpoint,
        tools: &mut Tools<'_>,
        events: &mut Vec<Event>,
    ) -> (usize, Option<Event>) {
        let sent = self.flush(tools.gathered);
        let received = self.receive(endpoint, tools, events);
        if self.ends.must_shut(self.queue.is_empty()) {
            self.ends.shut();
            // If it fails, the connection has ended already, which the next read reports.
            let _ = net::shutdown(&self.socket, Shutdown::Write);
        }
        if matches!(received.end, Some(End::Closed)) {
            self.ends.peer_ended(endpoint, events);
        }
        // Bytes received before the end are delivered before it: a failed send waits for the reading.
        let work = sent.unwrap_or(1) + received.work;
        let last = match (received.end, sent) {
            // The kernel reports an error only once: an orderly end after an error is not one.
            (Some(End::Closed), Err(cause)) | (Some(End::Broken(cause)), _) => Some(Event::Broken { endpoint, cause }),
            (None, Err(cause)) if !(self.receives() && self.readable) => Some(Event::Broken { endpoint, cause }),
            _ => self.ends.are_over().then_some(Event::Disconnected { endpoint }),
        };
        if last.is_none() {
            self.queue.tell(endpoint, events);
        }
        (work, last)
    }

    /// Reads received bytes, up to the batch, into the block that is being filled.
    fn receive(&mut self, endpoint: Endpoint, tools: &mut Tools<'_>, events: &mut Vec<Event>) -> Received {
        let Tools { config, pool, .. } = tools;
        let (mut left, mut work) = (config.receive_batch_bytes, 0);
        while self.receives() && self.readable && left > 0 {
            let Some(loan) = self.block.get(pool, config.smallest_receive) else {
                return Received { work, end: None };
            };
            let spare = loan.spare();
            let asked = spare.len().min(left);
            match net::recv(&self.socket, &mut spare[..asked], RecvFlags::empty()) {
                Ok((0, _)) => return Received { work, end: Some(End::Closed) },
                Ok((got, _)) => {
                    loan.commit(got);
                    if let Some(slice) = loan.split_committed() {
                        events.push(Event::Received { endpoint, slice });
                    }
                    self.block.release_full();
                    left -= got;
                    work += 1;
                    // Fewer bytes than asked for mean that the socket is empty: the next byte makes a new edge.
                    self.readable = got == asked || self.hung_up;
                }
                Err(Errno::AGAIN) => self.readable = false,
                Err(Errno::INTR) => {}
                Err(error) => return Received { work, end: Some(End::Broken(broken_cause(error))) },
            }
        }
        Received { work, end: None }
    }

    /// Sends as much of the queue as one system call takes.
    fn flush(&mut self, gathered: &mut Gathered) -> Result<usize, BrokenCause> {
        if !self.writable || self.queue.is_empty() {
            return Ok(0);
        }
        let (slices, offered) = gathered.list(self.queue.iter());
        match net::sendmsg(&self.socket, slices, &mut net::SendAncillaryBuffer::default(), SendFlags::NOSIGNAL) {
            Ok(sent) => {
                self.queue.advance(sent);
                // Fewer bytes than offered mean that the socket is full: new room makes a new edge.
                self.writable = sent == offered;
                Ok(1)
            }
            Err(Errno::AGAIN) => {
                self.writable = false;
                Ok(0)
            }
            Err(Errno::INTR) => Ok(0),
            Err(error) => Err(broken_cause(error)),
        }
    }

    /// A separate function: otherwise its buffer would take stack space when sending, too.
    #[inline(never)]
    fn serve_closing(&mut self, endpoint: Endpoint, gathered: &mut Gathered) -> (usize, Option<Event>) {
        let mut work = 0;
        if self.state == State::Flushing {
            match self.flush(gathered) {
                Ok(sent) => work += sent,
                Err(cause) => return (1, Some(Event::Broken { endpoint, cause })),
            }
            if self.queue.is_empty() {
                self.state = State::Shut;
                work += 1;
                // If it fails, the connection has ended already, which the next read reports.
                let _ = net::shutdown(&self.socket, Shutdown::Write);
            }
        }
        // The peer's remaining bytes must be read: closing with unread bytes would reset the connection, and the peer
        // could lose bytes sent to it before.
        let mut unwanted = [0u8; 16 << 10];
        while self.readable && work < 64 {
            work += 1;
            match net::recv(&self.socket, &mut unwanted, RecvFlags::empty()) {
                Ok((0, _)) if self.state == State::Shut => return (work, Some(Event::Disconnected { endpoint })),
                // The peer may still want the queued bytes.
                Ok((0, _)) => {
                    self.hung_up = true;
                    break;
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.readable = false,
                Err(error) => return (work, Some(Event::Broken { endpoint, cause: broken_cause(error) })),
            }
        }
        (work, None)
    }
}

enum End {
    Closed,
    Broken(BrokenCause),
}

struct Received {
    work: usize,
    end: Option<End>,
}
