//! Readers of a gateway's decisions: they come, go, read slowly, and keep what they were told.

use super::lines::Lines;
use super::referee::Shared;
use crate::campaign::outcome::{Broken, Checker};
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::ByteQueue;
use ropewalk_node::drive::Drive;
use ropewalk_terms::{Incarnation, Instant};
use ropewalk_wire::gateway::{FRAME_BYTES, Frame, Message, Stream, StreamEntry};
use std::net::SocketAddrV4;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How soon a reader who is not connected tries again.
const RETRY: Duration = Duration::from_millis(5);

/// A reader of a flow's decisions in one gateway.
pub(super) struct Reader {
    lines: Lines,
    at: SocketAddrV4,
    pub(super) gateway: u16,
    pub(super) flow: u8,
    referee: Shared,
    endpoint: Option<Endpoint>,
    is_away: bool,
    retry_at: Instant,
    bytes: ByteQueue,
    events: Vec<Event>,
    /// Which life of the gateway speaks over this connection, and how many decisions it has told up to now.
    pub(super) told: Option<(Incarnation, u64)>,
    /// Everything it was ever told: which life's decision, which one of them.
    pub(super) journal: Vec<(Incarnation, u64, StreamEntry)>,
}

impl Reader {
    /// A reader of the decisions that a gateway tells at an address.
    pub(super) fn new(lines: Lines, at: SocketAddrV4, (gateway, flow): (u16, u8), referee: Shared) -> Self {
        Self {
            lines,
            at,
            gateway,
            flow,
            referee,
            endpoint: None,
            is_away: false,
            retry_at: Instant::ZERO,
            bytes: ByteQueue::new(),
            events: Vec::new(),
            told: None,
            journal: Vec::new(),
        }
    }

    /// It goes, or comes back.
    pub(super) fn set_away(&mut self, is_away: bool) {
        self.is_away = is_away;
        if let Some(endpoint) = self.endpoint.filter(|_| is_away) {
            self.lines.close(endpoint);
            self.forget(Instant::ZERO);
        }
    }

    fn forget(&mut self, now: Instant) {
        (self.endpoint, self.told, self.bytes) = (None, None, ByteQueue::new());
        self.retry_at = now.after(RETRY);
    }

    fn connect(&mut self) {
        self.endpoint = self.lines.connect(&self.at.to_string()).ok();
    }

    fn read(&mut self) {
        while let Some(message) = self.next_message() {
            let told = message.and_then(|stream| self.note(&stream));
            self.referee.borrow_mut().keep(told);
        }
    }

    /// The next message that is here whole, if it is what it should be.
    fn next_message(&mut self) -> Option<Result<Stream, Broken>> {
        let broken = |words: String| Some(Err(Broken::new(Checker::Content, words)));
        let head = self.bytes.peek_array::<FRAME_BYTES>(0)?;
        let Ok(frame) = Frame::parse(&head) else { return broken(format!("a reader is told {head:?}")) };
        let length = FRAME_BYTES + frame.body as usize;
        if self.bytes.len() < length {
            return None;
        }
        let bytes = self.bytes.take(length).to_vec();
        match Message::decode(frame.kind, &bytes[FRAME_BYTES..]) {
            Ok(Message::Stream(stream)) => Some(Ok(stream)),
            other => broken(format!("a reader is told {other:?}")),
        }
    }

    /// Decisions come without a gap.
    fn note(&mut self, stream: &Stream) -> Result<(), Broken> {
        let (life, due) = self.told.unwrap_or((stream.incarnation, stream.before));
        let is_next = (stream.gateway, stream.flow) == (self.gateway, self.flow)
            && (stream.incarnation, stream.before) == (life, due);
        Broken::unless(is_next, Checker::Order, || {
            format!(
                "gw{}: a reader of flow {} has {due} decisions of {life:?}, and the next ones begin behind {} of {:?}",
                self.gateway, self.flow, stream.before, stream.incarnation
            )
        })?;
        self.journal.extend((due..).zip(&stream.entries).map(|(number, entry)| (life, number, *entry)));
        self.told = Some((life, due + stream.entries.len() as u64));
        Ok(())
    }
}

impl Drive for Reader {
    fn turn(&mut self, now: Instant) -> usize {
        if self.endpoint.is_none() && !self.is_away && now >= self.retry_at {
            self.connect();
        }
        let mut events = std::mem::take(&mut self.events);
        let work = self.lines.poll(now, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Received { endpoint, slice } if self.endpoint == Some(endpoint) => self.bytes.push(slice),
                Event::Disconnected { endpoint }
                | Event::Broken { endpoint, .. }
                | Event::ConnectFailed { endpoint, .. }
                    if self.endpoint == Some(endpoint) =>
                {
                    self.read();
                    self.forget(now);
                }
                _ => {}
            }
        }
        self.events = events;
        self.read();
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        let retry = (self.endpoint.is_none() && !self.is_away).then_some(self.retry_at);
        retry.into_iter().chain(self.lines.next_deadline()).min()
    }

    fn prepare_wait(&mut self) -> bool {
        self.lines.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, _into: &mut Vec<BorrowedFd<'a>>) {}

    fn is_done(&self) -> bool {
        false
    }
}
