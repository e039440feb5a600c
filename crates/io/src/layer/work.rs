//! What is posted at one end point, and what has come for it.

use std::collections::VecDeque;
use std::time::Duration;

use ropewalk_memory::{Payload, Slice};
use ropewalk_terms::Instant;

use super::event::{Completion, FlushReason, Received, Why, Work};
use super::framer::{Framer, FramingError};
use super::hello::Hello;
use super::request::Cookie;

/// A posted buffer.
struct Buffer {
    cookie: Cookie,
    /// Bytes that can still be received into it.
    room: usize,
}

/// One end point's work.
pub(super) struct EndpointWork {
    /// That of the connect request.
    pub(super) connect: Option<Cookie>,
    /// It was closed from here: what comes is thrown away.
    pub(super) is_closing: bool,
    pub(super) hello: Hello,
    /// It stands in the dispatcher's list of those to look after.
    pub(super) is_listed: bool,
    pub(super) framer: Option<Box<dyn Framer>>,
    /// How long bytes wait for more.
    pub(super) patience: Duration,
    /// Messages that the transport has not taken, each with the number of the byte behind its end.
    sends: VecDeque<(Cookie, u64)>,
    /// Bytes of all messages so far.
    sent: u64,
    /// Whether buffers are posted, and the first of them is being filled.
    is_posted: bool,
    buffers: VecDeque<Buffer>,
    /// What has come and was not told yet, and since when it waits.
    piece: Payload,
    since: Instant,
}

impl EndpointWork {
    pub(super) fn new(connect: Option<Cookie>) -> Self {
        Self {
            connect,
            is_closing: false,
            hello: Hello::none(),
            is_listed: false,
            framer: None,
            patience: Duration::ZERO,
            sends: VecDeque::new(),
            sent: 0,
            is_posted: false,
            buffers: VecDeque::new(),
            piece: Payload::default(),
            since: Instant::ZERO,
        }
    }

    /// So many bytes were queued of which nobody wants to know.
    pub(super) fn said(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// A message of so many bytes was queued.
    pub(super) fn sending(&mut self, cookie: Cookie, bytes: usize) {
        self.said(bytes);
        self.sends.push_back((cookie, self.sent));
    }

    /// A buffer with room for so many bytes was posted.
    pub(super) fn receiving(&mut self, cookie: Cookie, room: usize) {
        self.is_posted = true;
        self.buffers.push_back(Buffer { cookie, room });
    }

    /// The transport holds so many bytes still; tells of the messages that it has taken.
    pub(super) fn settle(&mut self, queued: usize, mut tell: impl FnMut(Completion)) {
        let taken = self.sent - queued as u64;
        while let Some((cookie, _)) = self.sends.pop_front_if(|(_, end)| *end <= taken) {
            tell(Completion::Sent { cookie });
        }
    }

    /// Whether it has to be looked after: messages under way, or bytes that wait.
    pub(super) fn is_busy(&self) -> bool {
        !self.sends.is_empty() || !self.hello.is_done() || self.deadline().is_some()
    }

    /// Bytes have come.
    ///
    /// # Errors
    /// They are no message; what came before was told.
    pub(super) fn take(
        &mut self,
        now: Instant,
        mut slice: Slice,
        tell: &mut impl FnMut(Completion),
    ) -> Result<(), FramingError> {
        while !slice.is_empty() {
            let room = self.buffers.front().map_or(usize::MAX, |buffer| buffer.room);
            let end = match &mut self.framer {
                Some(framer) => framer.boundary(&slice)?,
                None => None,
            };
            // A slice never reaches beyond the buffer that it lies in.
            let piece = slice.split_to(end.unwrap_or(slice.len()));
            if self.piece.is_empty() {
                self.since = now;
            }
            let is_full = self.is_posted && piece.len() >= room;
            if let Some(buffer) = self.buffers.front_mut() {
                buffer.room -= piece.len().min(room);
            }
            self.piece.push(piece);
            match end {
                Some(_) => self.complete(Why::Boundary, tell),
                None if is_full => self.complete(Why::Full, tell),
                None => {}
            }
        }
        Ok(())
    }

    /// Tells of what waits.
    fn complete(&mut self, why: Why, tell: &mut impl FnMut(Completion)) {
        let payload = core::mem::take(&mut self.piece);
        let done = self.buffers.pop_front_if(|buffer| buffer.room == 0);
        let cookie = done.as_ref().or(self.buffers.front()).map(|buffer| buffer.cookie);
        tell(Completion::Received(Received { cookie, payload, why, is_last: done.is_some() }));
    }

    /// When it is to be looked after even if nothing comes.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadline().into_iter().chain(self.hello.deadline).min()
    }

    /// When what waits is to be told. With provided buffers and a framer a message waits until it is whole.
    fn deadline(&self) -> Option<Instant> {
        let waits = !self.piece.is_empty() && (self.is_posted || self.framer.is_none());
        waits.then(|| self.since.after(self.patience))
    }

    /// Tells of what has waited long enough.
    pub(super) fn expire(&mut self, now: Instant, tell: &mut impl FnMut(Completion)) {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.complete(Why::Deadline, tell);
        }
    }

    /// The end point has ended: everything comes back.
    pub(super) fn flush(&mut self, reason: FlushReason, tell: &mut impl FnMut(Completion)) {
        if !self.piece.is_empty() {
            self.complete(Why::End, tell);
        }
        for (cookie, _) in self.sends.drain(..) {
            tell(Completion::Flushed { cookie, work: Work::Send, reason });
        }
        for Buffer { cookie, .. } in self.buffers.drain(..) {
            tell(Completion::Flushed { cookie, work: Work::Receive, reason });
        }
    }
}
