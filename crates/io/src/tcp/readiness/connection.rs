//! One TCP connection: receives in place, sends what is queued in one gathered call.

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
    /// [`Dispatcher::close`](crate::Dispatcher::close) was called: what is queued is sent.
    Flushing,
    /// Everything is sent and the own direction is shut; the peer's end is awaited.
    Shut,
}

/// What a connection needs of its dispatcher to be served.
pub(super) struct Tools<'a> {
    pub(super) config: &'a TcpConfig,
    pub(super) pool: &'a mut Pool,
    pub(super) gathered: &'a mut Gathered,
}

/// A connection. Readiness comes in edges, so it is remembered here until the kernel says otherwise.
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) state: State,
    pub(super) queue: SendQueue,
    /// Whether the user wants to receive.
    pub(super) reading: bool,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// The peer has ended its direction: a short read is not the last one then.
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

    /// Whether what comes is delivered.
    const fn receives(&self) -> bool {
        matches!(self.state, State::Open) && self.reading && self.ends.may_receive()
    }

    /// Whether it is still connecting or closing, which may not take for ever.
    pub(super) fn is_awaited(&self) -> bool {
        self.state != State::Open
    }

    /// Whether messages are taken.
    pub(super) fn may_send(&self) -> bool {
        self.state == State::Open && self.ends.may_send()
    }

    /// Whether serving it now would do something.
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

    /// Whether the kernel is to be asked if it can be read, and written.
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

    /// Begins to close; the block goes back at once, since nothing is delivered any more.
    pub(super) fn begin_close(&mut self) {
        self.state = State::Flushing;
        self.block.give_back();
    }

    /// Does what can be done now. Returns the work done and the connection's last event, if it has ended.
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
            // If it fails, the connection has ended already, which the reading tells.
            let _ = net::shutdown(&self.socket, Shutdown::Write);
        }
        if matches!(received.end, Some(End::Closed)) {
            self.ends.peer_ended(endpoint, events);
        }
        // What came before the end is delivered before the end: a failed send waits for the reading.
        let work = sent.unwrap_or(1) + received.work;
        let last = match (received.end, sent) {
            // The kernel reports an error only once: what looks like an orderly end after an error is not one.
            (Some(End::Closed), Err(cause)) | (Some(End::Broken(cause)), _) => Some(Event::Broken { endpoint, cause }),
            (None, Err(cause)) if !(self.receives() && self.readable) => Some(Event::Broken { endpoint, cause }),
            _ => self.ends.are_over().then_some(Event::Disconnected { endpoint }),
        };
        if last.is_none() {
            self.queue.tell(endpoint, events);
        }
        (work, last)
    }

    /// Reads what has come, up to the batch, into the block that is being filled.
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
                    // Less than asked for means that the socket is empty: the next byte makes a new edge.
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
                // Less than offered means that the socket is full: room makes a new edge.
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

    /// Stands alone: otherwise its buffer would take room on the stack when sending, too.
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
                // If it fails, the connection has ended already, which the reading tells.
                let _ = net::shutdown(&self.socket, Shutdown::Write);
            }
        }
        // What the peer still sends must be read: closing over unread bytes would reset the connection, and
        // the peer could lose what it was sent before.
        let mut unwanted = [0u8; 16 << 10];
        while self.readable && work < 64 {
            work += 1;
            match net::recv(&self.socket, &mut unwanted, RecvFlags::empty()) {
                Ok((0, _)) if self.state == State::Shut => return (work, Some(Event::Disconnected { endpoint })),
                // It may still want what is queued.
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
