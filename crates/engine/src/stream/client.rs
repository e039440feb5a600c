//! A subscriber: it connects, subscribes, receives chunks, and reconnects when the connection breaks.

use super::{StreamIncoming, StreamReader};
use crate::Drive;
use ropewalk_io::{Dispatcher, Endpoint, EndpointError, Event};
use ropewalk_memory::{Payload, Slice, Staging};
use ropewalk_terms::Instant;
use ropewalk_wire::frame::FrameError;
use ropewalk_wire::stream::{ChunkHead, Down, DownRefused, End, Hello, Loss, Message, RefuseReason, Subscribe};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Configuration of a [`StreamClient`].
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Address of the server.
    pub address: String,
    /// Readable name.
    pub name: String,
    /// The subscription.
    pub wanted: Subscribe,
    /// Messages sent to e-links, once.
    pub down: Vec<Down>,
    /// Pause before it reconnects; `None`: it does not reconnect.
    pub reconnect: Option<Duration>,
    /// Number of chunks after which it disconnects.
    pub chunks: Option<u64>,
    /// Maximum chunk length. Longer chunks are malformed.
    pub most_chunk_bytes: u32,
}

/// State of the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientState {
    /// Not connected; tries again at this time.
    Away(Instant),
    /// Connected, not yet subscribed.
    Asking,
    /// Subscribed: chunks are being received.
    Subscribed,
    /// Complete: it has the requested chunks, or the server has announced the end.
    Done,
    /// Refused by the server.
    Refused(RefuseReason),
    /// The connection failed or broke for this reason, and the client does not reconnect.
    Lost(String),
}

/// Account of received data.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientReport {
    /// Received chunks.
    pub chunks: u64,
    /// Received bytes.
    pub bytes: u64,
    /// Number of subscriptions.
    pub connections: u64,
    /// Chunks that the server dropped, as far as it reported them; of all connections.
    pub lost: Loss,
    /// The server's announcement of the end.
    pub end: Option<End>,
    /// Messages to e-links that the server refused, and the first of them.
    pub down_refused: u64,
    /// See [`Self::down_refused`].
    pub first_down_refused: Option<DownRefused>,
}

/// Receives chunks from a server and passes them to `take`.
pub struct StreamClient<D, F> {
    config: ClientConfig,
    endpoints: D,
    staging: Staging,
    take: F,
    events: Vec<Event>,
    endpoint: Option<Endpoint>,
    reader: StreamReader,
    state: ClientState,
    report: ClientReport,
    /// Chunks dropped by the server over this connection, as last reported.
    lost: Loss,
}

impl<D: Dispatcher, F: FnMut(ChunkHead, Payload)> StreamClient<D, F> {
    /// Creates a client. It connects at the first turn.
    pub fn new(config: ClientConfig, endpoints: D, staging: Staging, take: F) -> Self {
        let reader = StreamReader::new(config.most_chunk_bytes);
        Self {
            config,
            endpoints,
            staging,
            take,
            events: Vec::with_capacity(256),
            endpoint: None,
            reader,
            state: ClientState::Away(Instant::ZERO),
            report: ClientReport::default(),
            lost: Loss::default(),
        }
    }

    /// Returns its state.
    pub const fn state(&self) -> &ClientState {
        &self.state
    }

    /// Returns its account so far.
    pub const fn report(&self) -> &ClientReport {
        &self.report
    }

    /// Stops the client.
    pub fn stop(&mut self) {
        if let Some(endpoint) = self.endpoint.take() {
            self.endpoints.abort(endpoint);
        }
        self.state = ClientState::Done;
    }

    fn connect(&mut self, now: Instant) {
        self.reader = StreamReader::new(self.config.most_chunk_bytes);
        self.lost = Loss::default();
        match self.endpoints.connect(&self.config.address) {
            Ok(endpoint) => {
                self.endpoint = Some(endpoint);
                self.state = ClientState::Asking;
            }
            Err(error @ (EndpointError::BadAddress { .. } | EndpointError::NoSuchName { .. })) => {
                self.state = ClientState::Lost(error.to_string())
            }
            Err(error) => self.lose(error.to_string(), now),
        }
    }

    /// Handles the loss of the connection.
    fn lose(&mut self, why: String, now: Instant) {
        self.endpoint = None;
        if matches!(self.state, ClientState::Asking | ClientState::Subscribed | ClientState::Away(_)) {
            self.state = match self.config.reconnect {
                Some(delay) => ClientState::Away(now.after(delay)),
                None => ClientState::Lost(why),
            };
        }
    }

    /// Sends several messages at once. If there is no room now there never will be: the queue is empty.
    fn say(&mut self, messages: &[Message]) {
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| message.encode(&mut bytes));
        let slices: Option<Vec<Slice>> =
            bytes.chunks(self.staging.largest()).map(|piece| self.staging.write(piece)).collect();
        if let (Some(mut slices), Some(endpoint)) = (slices, self.endpoint) {
            // The end of an endpoint is reported as an event.
            let _ = self.endpoints.send(endpoint, &mut slices);
        }
    }

    fn came(&mut self, slice: Slice, now: Instant) {
        self.reader.push(slice);
        while self.endpoint.is_some() {
            let heard = match self.reader.next_incoming() {
                Ok(None) => return,
                Ok(Some(StreamIncoming::Control(message))) => self.hear(message),
                Ok(Some(StreamIncoming::Chunk(head, payload))) => self.take_chunk(head, payload),
                Err(error) => Err(error),
            };
            if let (Err(error), Some(endpoint)) = (heard, self.endpoint) {
                self.endpoints.abort(endpoint);
                self.lose(format!("{}: {error}", self.config.address), now);
            }
        }
    }

    fn take_chunk(&mut self, head: ChunkHead, payload: Payload) -> Result<(), FrameError> {
        if self.state != ClientState::Subscribed {
            return Err(FrameError::Meaning);
        }
        self.report.chunks += 1;
        self.report.bytes += u64::from(head.length);
        (self.take)(head, payload);
        if self.config.chunks.is_some_and(|most| self.report.chunks >= most) {
            self.stop();
        }
        Ok(())
    }

    fn hear(&mut self, message: Message) -> Result<(), FrameError> {
        match message {
            Message::Welcome if self.state == ClientState::Asking => {
                let mut messages = vec![Message::Subscribe(self.config.wanted.clone())];
                messages.extend(self.config.down.drain(..).map(Message::Down));
                self.say(&messages);
            }
            Message::Refuse(reason) => {
                self.state = ClientState::Refused(reason);
                self.endpoint.take().into_iter().for_each(|endpoint| self.endpoints.abort(endpoint));
            }
            Message::Subscribed(_) => {
                self.report.connections += 1;
                self.state = ClientState::Subscribed;
            }
            Message::Loss(loss) => {
                self.report.lost.chunks += loss.chunks.saturating_sub(self.lost.chunks);
                self.report.lost.bytes += loss.bytes.saturating_sub(self.lost.bytes);
                self.lost = loss;
            }
            Message::DownRefused(refused) => {
                self.report.down_refused += 1;
                self.report.first_down_refused.get_or_insert(refused);
            }
            Message::End(end) => {
                self.report.end = Some(end);
                self.report.lost.chunks += end.dropped.saturating_sub(self.lost.chunks);
                self.state = ClientState::Done;
                self.endpoint.take().into_iter().for_each(|endpoint| self.endpoints.close(endpoint));
            }
            _ => return Err(FrameError::Meaning),
        }
        Ok(())
    }
}

impl<D: Dispatcher, F: FnMut(ChunkHead, Payload)> Drive for StreamClient<D, F> {
    fn turn(&mut self, now: Instant) -> usize {
        self.staging.pool_mut().collect();
        if matches!(self.state, ClientState::Away(until) if now >= until) {
            self.connect(now);
        }
        let mut events = std::mem::take(&mut self.events);
        let work = self.endpoints.poll(now, &mut events);
        for event in events.drain(..) {
            if Some(event.endpoint()) != self.endpoint {
                continue;
            }
            match event {
                Event::Established { .. } => self.say(&[Message::Hello(Hello::new(&self.config.name))]),
                Event::Received { slice, .. } => self.came(slice, now),
                Event::Disconnected { .. } => self.lose(format!("{}: the server closed", self.config.address), now),
                Event::Broken { cause, .. } => self.lose(format!("{}: {cause}", self.config.address), now),
                Event::ConnectFailed { cause, .. } => self.lose(format!("{}: {cause}", self.config.address), now),
                _ => {}
            }
        }
        self.events = events;
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        let again = match self.state {
            ClientState::Away(until) => Some(until),
            _ => None,
        };
        [self.endpoints.next_deadline(), again].into_iter().flatten().min()
    }

    fn prepare_wait(&mut self) -> bool {
        self.endpoints.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.endpoints.wait_descriptor());
    }

    fn is_done(&self) -> bool {
        matches!(self.state, ClientState::Done | ClientState::Refused(_) | ClientState::Lost(_))
    }
}
