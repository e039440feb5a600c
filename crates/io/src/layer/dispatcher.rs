//! The event dispatcher: serves many end points from one thread, and reports the results of posted work.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ropewalk_memory::{Payload, Pool, Slice};
use ropewalk_terms::Instant;

use super::event::{
    Completion, Cookie, Ended, Event, FlushReason, PostError, Received, Refused, Requests, Setting, Task, Why, Work,
    WorkRequest,
};
use super::framer::{Framer, FramingError};
use super::hello::{Hello, Stage, Word, Words};
use super::threads::{EventQueue, Exchange, Requester};
use super::{EventHandler, hello};
use crate::Dispatcher;
use crate::endpoint::{BrokenCause, ConnectCause, Endpoint, EndpointError, SendError, ServicePoint};
use crate::wait::Waiter;

/// An event dispatcher: see the module's picture.
pub struct EventDispatcher {
    inner: Box<dyn Dispatcher + Send>,
    address: String,
    /// The messages with which both sides greet each other, if they do.
    words: Option<Words>,
    /// Indexed by end point.
    works: Vec<Option<(Endpoint, EndpointWork)>>,
    /// End points with messages in flight or bytes that wait, each once.
    listed: Vec<Endpoint>,
    exchange: Exchange,
    arrived: Vec<crate::Event>,
    message: Vec<Slice>,
}

impl EventDispatcher {
    pub(super) fn new(inner: Box<dyn Dispatcher + Send>, address: &str, greets: bool) -> Result<Self, EndpointError> {
        let words = greets.then(Words::new).transpose().map_err(|error| EndpointError::System {
            what: "no memory for the hello of",
            address: address.to_owned(),
            source: std::io::Error::other(error),
        })?;
        let (works, listed) = (Vec::with_capacity(64), Vec::with_capacity(64));
        let (arrived, message) = (Vec::with_capacity(1024), Vec::with_capacity(1024));
        let (address, exchange) = (address.to_owned(), Exchange::new());
        Ok(Self { inner, address, words, works, listed, exchange, arrived, message })
    }

    /// Opens a public service point on the adapter's address: a port, `0` for any free one.
    ///
    /// # Errors
    /// The port is in use or no port, or another error of the operating system.
    pub fn listen(&mut self, service: &str) -> Result<ServicePoint, EndpointError> {
        let Self { inner, address, .. } = self;
        inner.listen(&if address.contains(':') {
            format!("[{address}]:{service}")
        } else {
            format!("{address}:{service}")
        })
    }

    /// The service point's bound address, for peers.
    pub fn address_of(&self, service_point: ServicePoint) -> Option<String> {
        self.inner.address_of(service_point)
    }

    /// The pool that provides buffers if none are posted; `None` in-process.
    pub fn pool_mut(&mut self) -> Option<&mut Pool> {
        self.inner.pool_mut()
    }

    /// Lets another thread take the events of this task. Up to `events` may wait for it; then the dispatcher stops
    /// receiving and completing.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn hand_out(&mut self, task: Task, events: usize) -> std::io::Result<EventQueue> {
        self.exchange.hand_out(task, events)
    }

    /// Accepts work from another thread, with up to `requests` requests in flight.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn requester(&mut self, requests: usize) -> std::io::Result<Requester> {
        self.exchange.requester(requests)
    }

    /// The next event for this thread.
    pub fn next_event(&mut self) -> Option<Event> {
        self.exchange.next_event()
    }

    /// Does the work that is possible now, or nothing as long as events of the last turn were not taken. Never blocks.
    /// Returns the amount of work done, 0 for none.
    pub fn turn(&mut self, now: Instant) -> usize {
        self.exchange.awake();
        self.exchange.hand_over();
        if self.exchange.is_clogged() {
            return 0;
        }
        let mut work = 0;
        while let Some(request) = self.exchange.next_request() {
            work += 1;
            if let Err(refused) = self.post(request) {
                self.flush_refused(*refused);
            }
        }
        let mut arrived = core::mem::take(&mut self.arrived);
        work += self.inner.poll(now, &mut arrived);
        for event in arrived.drain(..) {
            self.take(now, event);
        }
        self.arrived = arrived;
        self.look_after(now);
        self.exchange.hand_over();
        work
    }

    /// Does a turn, and passes every event of this thread to the handler. Returns the amount of work done.
    pub fn dispatch(&mut self, now: Instant, handler: &mut dyn EventHandler) -> usize {
        let mut work = self.turn(now);
        while let Some(event) = self.next_event() {
            handler.handle(event, self);
            work += 1;
        }
        work
    }

    /// Prepares the thread for sleep. False if there is something to do now.
    pub fn prepare_wait(&mut self) -> bool {
        self.exchange.prepare_wait() && self.inner.prepare_wait()
    }

    /// The descriptors that become readable when there is something to do, after [`prepare_wait`](Self::prepare_wait)
    /// has returned true. The second one exists from the first [`requester`](Self::requester) or
    /// [`hand_out`](Self::hand_out) on.
    pub fn wait_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.inner.wait_descriptor().into_iter().chain(self.exchange.descriptor())
    }

    /// Makes a waiter for a thread that serves only this dispatcher. Call it after the last
    /// [`requester`](Self::requester) and [`hand_out`](Self::hand_out).
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn waiter(&mut self) -> std::io::Result<Waiter> {
        Waiter::of(&mut *self.inner, self.exchange.descriptor().as_slice())
    }

    /// Sleeps at the [`waiter`](Self::waiter), after [`prepare_wait`](Self::prepare_wait) has returned true: see
    /// [`Waiter::wait`].
    pub fn wait(&mut self, waiter: &Waiter, timeout: Option<Duration>) -> bool {
        waiter.wait_in(&mut *self.inner, timeout)
    }

    /// Time at which there is something to do even if the descriptors stay silent.
    pub fn next_deadline(&self) -> Option<Instant> {
        let waiting = self.listed.iter().filter_map(|&endpoint| self.work(endpoint)?.next_deadline());
        waiting.chain(self.inner.next_deadline()).min()
    }

    fn work(&self, endpoint: Endpoint) -> Option<&EndpointWork> {
        let (known, work) = self.works.get(endpoint.index())?.as_ref()?;
        (*known == endpoint).then_some(work)
    }

    fn work_mut(&mut self, endpoint: Endpoint) -> Option<&mut EndpointWork> {
        let (known, work) = self.works.get_mut(endpoint.index())?.as_mut()?;
        (*known == endpoint).then_some(work)
    }

    fn begin(&mut self, endpoint: Endpoint, connect: Option<Cookie>) {
        let index = endpoint.index();
        if self.works.len() <= index {
            self.works.resize_with(index + 1, || None);
        }
        self.works[index] = Some((endpoint, EndpointWork::new(connect)));
    }

    /// Adds the end point to the list of those to look after.
    fn list(&mut self, endpoint: Endpoint) {
        if let Some(work) = self.work_mut(endpoint)
            && !core::mem::replace(&mut work.is_listed, true)
        {
            self.listed.push(endpoint);
        }
    }

    /// Reports sent messages, and bytes that have waited long enough.
    fn look_after(&mut self, now: Instant) {
        let mut late = Vec::new();
        let Self { inner, works, listed, exchange, .. } = self;
        listed.retain(|&endpoint| {
            let Some(Some((known, work))) = works.get_mut(endpoint.index()) else { return false };
            if *known != endpoint {
                return false;
            }
            let mut tell = |completion| exchange.tell(Event::Completed { endpoint, completion });
            let hello = &mut work.hello;
            if !hello.is_done() && now >= *hello.deadline.get_or_insert(now.after(hello::PATIENCE)) {
                late.push(endpoint);
            }
            work.settle(inner.queued(endpoint), &mut tell);
            work.expire(now, &mut tell);
            work.is_listed = work.is_busy();
            work.is_listed
        });
        for endpoint in late {
            self.inner.abort(endpoint);
            self.end(endpoint, Ended::NotConnected(ConnectCause::TimedOut));
        }
    }

    fn take(&mut self, now: Instant, event: crate::Event) {
        use crate::Event as Low;
        match event {
            Low::ConnectionRequest { service_point, endpoint, peer } => {
                self.begin(endpoint, None);
                if self.words.is_some() {
                    self.greet(endpoint, Stage::Accepting { service_point, peer });
                    self.inner.accept(endpoint);
                } else {
                    self.exchange.tell(Event::ConnectionRequested { service_point, endpoint, peer });
                }
            }
            Low::Established { endpoint } => {
                let Some(work) = self.work(endpoint) else { return };
                let cookie = work.connect;
                if work.hello.is_done() {
                    self.exchange.tell(Event::Established { endpoint, cookie });
                } else if work.hello.is_connecting() {
                    self.say(endpoint, Word::Greeting);
                }
            }
            Low::Received { endpoint, slice } => self.receive(now, endpoint, slice),
            // No objects are handed over: the layer carries bytes.
            Low::HandedOver { .. } => {}
            Low::SendQueueHigh { endpoint } => self.exchange.tell(Event::QueueHigh { endpoint }),
            Low::SendQueueLow { endpoint } => self.exchange.tell(Event::QueueLow { endpoint }),
            Low::Finished { endpoint } => self.exchange.tell(Event::Finished { endpoint }),
            Low::Disconnected { endpoint } => self.end(endpoint, Ended::Disconnected),
            Low::Broken { endpoint, cause } => self.end(endpoint, Ended::Broken(cause)),
            Low::ConnectFailed { endpoint, cause } => self.end(endpoint, Ended::NotConnected(cause)),
        }
    }

    /// Sets the stage of the end point's hello.
    fn greet(&mut self, endpoint: Endpoint, stage: Stage) {
        if let Some(work) = self.work_mut(endpoint) {
            work.hello = Hello::at(stage);
        }
        self.list(endpoint);
    }

    fn say(&mut self, endpoint: Endpoint, word: Word) {
        let Some(words) = &self.words else { return };
        let word = words.say(word);
        let bytes = word.len();
        self.message.push(word);
        // If it is refused, the connection has ended, which its events report.
        let is_queued = self.inner.send(endpoint, &mut self.message).is_ok();
        self.message.clear();
        if let Some(work) = self.work_mut(endpoint).filter(|_| is_queued) {
            work.said(bytes);
        }
    }

    /// Takes the peer's part of the hello off the front. False if nothing is left for the user.
    fn hear(&mut self, endpoint: Endpoint, slice: &mut Slice) -> bool {
        let Some(work) = self.work_mut(endpoint) else { return false };
        if work.hello.is_done() {
            return true;
        }
        let word = if work.hello.is_requested() { Err(()) } else { work.hello.read(slice) };
        match (word, work.connect) {
            (Ok(None), _) => return false,
            (Ok(Some(Word::Greeting)), None) => {
                if let Stage::Accepting { service_point, peer } = work.hello.pass(Stage::Requested) {
                    self.exchange.tell(Event::ConnectionRequested { service_point, endpoint, peer });
                }
            }
            (Ok(Some(Word::Accepted)), cookie @ Some(_)) => {
                let _ = work.hello.pass(Stage::Done);
                self.exchange.tell(Event::Established { endpoint, cookie });
            }
            (Ok(Some(Word::Rejected)), Some(_)) => {
                self.inner.abort(endpoint);
                self.end(endpoint, Ended::NotConnected(ConnectCause::Rejected));
            }
            // The peer sends a greeting that is invalid or out of turn.
            _ => {
                self.inner.abort(endpoint);
                self.end(endpoint, Ended::Framing(FramingError::Malformed("no hello")));
            }
        }
        !slice.is_empty()
    }

    fn receive(&mut self, now: Instant, endpoint: Endpoint, mut slice: Slice) {
        // Bytes behind a greeting out of turn are read too, and found invalid.
        while !self.work(endpoint).is_none_or(|work| work.hello.is_done()) {
            if !self.hear(endpoint, &mut slice) {
                return;
            }
        }
        let Self { works, exchange, .. } = self;
        let Some(Some((known, work))) = works.get_mut(endpoint.index()) else { return };
        if *known != endpoint || work.is_closing {
            return;
        }
        let taken = work.take(now, slice, &mut |completion| exchange.tell(Event::Completed { endpoint, completion }));
        let is_busy = work.is_busy();
        if let Err(error) = taken {
            self.inner.abort(endpoint);
            self.end(endpoint, Ended::Framing(error));
        } else if is_busy {
            self.list(endpoint);
        }
    }

    /// Returns everything that was posted, and then reports the end.
    fn end(&mut self, endpoint: Endpoint, how: Ended) {
        let Self { works, exchange, .. } = self;
        let Some((_, mut work)) =
            works.get_mut(endpoint.index()).and_then(|known| known.take_if(|(known, _)| *known == endpoint))
        else {
            return;
        };
        if work.hello.is_unknown() {
            return;
        }
        let reason = match how {
            Ended::Disconnected if !work.is_closing => FlushReason::Disconnected,
            Ended::Broken(cause) => FlushReason::Broken(cause),
            Ended::NotConnected(_) => FlushReason::Broken(BrokenCause::Unreachable),
            Ended::Disconnected | Ended::Framing(_) | Ended::Aborted => FlushReason::Closed,
        };
        if how == Ended::Disconnected {
            // In order: everything queued is sent, on either side.
            work.settle(0, |completion| exchange.tell(Event::Completed { endpoint, completion }));
        }
        work.flush(reason, &mut |completion| exchange.tell(Event::Completed { endpoint, completion }));
        exchange.tell(Event::Ended { endpoint, cookie: work.connect, how });
    }

    fn accept(&mut self, endpoint: Endpoint) {
        match self.work_mut(endpoint) {
            Some(work) if work.hello.is_requested() => {
                let _ = work.hello.pass(Stage::Done);
                self.say(endpoint, Word::Accepted);
                self.exchange.tell(Event::Established { endpoint, cookie: None });
            }
            _ => self.inner.accept(endpoint),
        }
    }

    fn reject(&mut self, endpoint: Endpoint) {
        match self.work(endpoint) {
            Some(work) if work.hello.is_requested() => {
                self.say(endpoint, Word::Rejected);
                self.inner.close(endpoint);
            }
            _ => self.inner.reject(endpoint),
        }
    }

    fn send(&mut self, endpoint: Endpoint, message: Payload, cookie: Cookie) -> Result<(), Box<Refused>> {
        let bytes = message.len();
        self.message.extend(message.into_slices());
        match self.inner.send(endpoint, &mut self.message) {
            Ok(()) => {
                if let Some(work) = self.work_mut(endpoint) {
                    work.sending(cookie, bytes);
                }
                self.list(endpoint);
                Ok(())
            }
            Err(error) => {
                let mut message = Payload::default();
                self.message.drain(..).for_each(|slice| message.push(slice));
                let why = if error == SendError::Full { PostError::Full } else { PostError::Closed };
                Err(Box::new(Refused { request: WorkRequest::Send { endpoint, message, cookie }, why }))
            }
        }
    }

    fn set(&mut self, endpoint: Endpoint, setting: Setting) {
        match setting {
            Setting::Framer(framer) => {
                if let Some(work) = self.work_mut(endpoint) {
                    work.framer = Some(framer);
                }
            }
            Setting::Deadline(patience) => self.set_patience(endpoint, patience),
            Setting::Reading(reading) => self.inner.set_reading(endpoint, reading),
            Setting::HalfClose(half_close) => self.inner.set_half_close(endpoint, half_close),
            Setting::SendLimits(limits) => self.inner.set_send_limits(endpoint, limits),
            Setting::Owner(owner) => self.inner.set_owner(endpoint, owner),
        }
    }

    fn set_patience(&mut self, endpoint: Endpoint, patience: Duration) {
        if let Some(work) = self.work_mut(endpoint) {
            work.patience = patience;
        }
    }

    /// Completes a request of another thread that could not be carried out.
    fn flush_refused(&mut self, Refused { request, why }: Refused) {
        use super::event::{Completion, Work};
        let (endpoint, cookie, work) = match request {
            WorkRequest::Send { endpoint, cookie, .. } => (endpoint, cookie, Work::Send),
            WorkRequest::Receive { endpoint, cookie, .. } => (endpoint, cookie, Work::Receive),
            WorkRequest::Connect { cookie, .. } => {
                // There is no end point: the end is reported for `Endpoint::NONE`.
                let how = Ended::NotConnected(match why {
                    PostError::Address(EndpointError::System { source, .. }) => {
                        ConnectCause::System(source.raw_os_error().unwrap_or(0))
                    }
                    _ => ConnectCause::Unreachable,
                });
                return self.exchange.tell(Event::Ended { endpoint: Endpoint::NONE, cookie: Some(cookie), how });
            }
            _ => return,
        };
        let completion = Completion::Flushed { cookie, work, reason: FlushReason::Refused };
        self.exchange.tell(Event::Completed { endpoint, completion });
    }
}

impl Requests for EventDispatcher {
    fn post(&mut self, request: WorkRequest) -> Result<(), Box<Refused>> {
        let refuse = |request, why| Err(Box::new(Refused { request, why }));
        match request {
            WorkRequest::Connect { address, cookie } => match self.inner.connect(&address) {
                Ok(endpoint) => {
                    self.begin(endpoint, Some(cookie));
                    if self.words.is_some() {
                        self.greet(endpoint, Stage::Connecting);
                    }
                }
                Err(error) => return refuse(WorkRequest::Connect { address, cookie }, error.into()),
            },
            WorkRequest::Accept { endpoint } => self.accept(endpoint),
            WorkRequest::Reject { endpoint } => {
                self.reject(endpoint);
                if let Some(known) = self.works.get_mut(endpoint.index()) {
                    let _ = known.take_if(|(known, _)| *known == endpoint);
                }
            }
            WorkRequest::Send { endpoint, message, cookie } => return self.send(endpoint, message, cookie),
            WorkRequest::Receive { endpoint, mut buffer, cookie } => {
                let room = buffer.spare().len();
                if room == 0 {
                    return refuse(WorkRequest::Receive { endpoint, buffer, cookie }, PostError::Full);
                }
                // The answer to a greeting must not be received into the user's buffer.
                if self.work(endpoint).is_some_and(|work| work.hello.is_connecting()) {
                    return refuse(WorkRequest::Receive { endpoint, buffer, cookie }, PostError::Closed);
                }
                if let Err(buffer) = self.inner.post_block(endpoint, buffer) {
                    let has_ended = self.work(endpoint).is_none_or(|work| work.is_closing);
                    let why = if has_ended { PostError::Closed } else { PostError::NoBuffers };
                    return refuse(WorkRequest::Receive { endpoint, buffer, cookie }, why);
                }
                if let Some(work) = self.work_mut(endpoint) {
                    work.receiving(cookie, room);
                }
            }
            WorkRequest::Set { endpoint, setting } => self.set(endpoint, setting),
            WorkRequest::Finish { endpoint } => self.inner.finish(endpoint),
            WorkRequest::Close { endpoint } => {
                if let Some(work) = self.work_mut(endpoint) {
                    work.is_closing = true;
                }
                self.inner.close(endpoint);
            }
            WorkRequest::Abort { endpoint } => {
                self.inner.abort(endpoint);
                self.end(endpoint, Ended::Aborted);
            }
            WorkRequest::Raise { cookie } => self.exchange.tell(Event::Raised { cookie }),
        }
        Ok(())
    }
}

/// A posted buffer.
struct Buffer {
    cookie: Cookie,
    /// Bytes that can still be received into it.
    room: usize,
}

/// One end point's work.
struct EndpointWork {
    /// The connect request's cookie.
    pub(super) connect: Option<Cookie>,
    /// Whether the user has closed it: incoming data are discarded.
    pub(super) is_closing: bool,
    hello: Hello,
    /// Whether it is in the dispatcher's list of end points to look after.
    is_listed: bool,
    pub(super) framer: Option<Box<dyn Framer>>,
    /// Time for which bytes wait for more.
    pub(super) patience: Duration,
    /// Messages that the transport has not taken, each with the stream offset of its end.
    sends: VecDeque<(Cookie, u64)>,
    /// Bytes of all messages so far.
    sent: u64,
    /// Whether buffers are posted, and the first of them is being filled.
    is_posted: bool,
    buffers: VecDeque<Buffer>,
    /// Bytes that have arrived but were not reported, and the time since when they wait.
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

    /// Counts queued bytes that do not belong to a message of the user.
    fn said(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Records that a message of `bytes` bytes was queued.
    pub(super) fn sending(&mut self, cookie: Cookie, bytes: usize) {
        self.said(bytes);
        self.sends.push_back((cookie, self.sent));
    }

    /// Records that a buffer with `room` bytes was posted.
    pub(super) fn receiving(&mut self, cookie: Cookie, room: usize) {
        self.is_posted = true;
        self.buffers.push_back(Buffer { cookie, room });
    }

    /// Reports the messages that the transport has taken, given that it still holds `queued` bytes.
    pub(super) fn settle(&mut self, queued: usize, mut tell: impl FnMut(Completion)) {
        let taken = self.sent - queued as u64;
        while let Some((cookie, _)) = self.sends.pop_front_if(|(_, end)| *end <= taken) {
            tell(Completion::Sent { cookie });
        }
    }

    /// Whether it has to be looked after: messages in flight, or bytes that wait.
    fn is_busy(&self) -> bool {
        !self.sends.is_empty() || !self.hello.is_done() || self.deadline().is_some()
    }

    /// Takes received bytes.
    ///
    /// # Errors
    /// The bytes are no message; everything before them has been reported.
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
            // A slice never extends beyond its buffer.
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

    /// Reports the waiting bytes.
    fn complete(&mut self, why: Why, tell: &mut impl FnMut(Completion)) {
        let payload = core::mem::take(&mut self.piece);
        let done = self.buffers.pop_front_if(|buffer| buffer.room == 0);
        let cookie = done.as_ref().or(self.buffers.front()).map(|buffer| buffer.cookie);
        tell(Completion::Received(Received { cookie, payload, why, is_last: done.is_some() }));
    }

    /// Time of its next service, even if nothing arrives.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadline().into_iter().chain(self.hello.deadline).min()
    }

    /// Time to report waiting bytes. With provided buffers and a framer, a message waits until it is
    /// complete.
    fn deadline(&self) -> Option<Instant> {
        let waits = !self.piece.is_empty() && (self.is_posted || self.framer.is_none());
        waits.then(|| self.since.after(self.patience))
    }

    /// Reports bytes that have waited long enough.
    pub(super) fn expire(&mut self, now: Instant, tell: &mut impl FnMut(Completion)) {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.complete(Why::Deadline, tell);
        }
    }

    /// Ends the end point: returns everything that was posted.
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
