//! A front end: it sends what the scenario says, and misbehaves on command. A [`Record`] of each event tells the referee what
//! may be missing. A [`Stranger`] connects to the same service point and sends nonsense.

use super::{Site, listen_address, pool};
use crate::campaign::content::{self, Contents, Format, mixed};
use crate::campaign::endpoints::{Endpoints, Surroundings};
use crate::campaign::fault::{Fault, FaultKind};
use crate::campaign::node::{Machine, forward};
use ropewalk_engine::Drive;
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::{Instant, SourceId};
use ropewalk_wire::felix::Status;
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Pause before a lost connection is opened again.
const RETRY: Duration = Duration::from_millis(20);
/// Pause before blocks are looked for again.
const DRY: Duration = Duration::from_millis(5);
/// How much slower a slow source is.
pub(super) const SLOW: u32 = 1000;
/// How far a counter jumps.
pub(super) const FAR: u64 = 1_000_000;

/// What a source is to do wrong, until when, and how often.
type Order = (FaultKind, Instant, u64);

/// What is complete with a piece.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Ends {
    /// No fragment.
    Nothing,
    /// A fragment that was sent before.
    Again,
    /// The event's fragment, sent like this.
    Event(u64, How),
}

/// Bytes to be queued, and what is complete with them.
type Piece = (Vec<u8>, Ends);

/// One front end.
pub(in crate::campaign) struct FrontEnd {
    pub(in crate::campaign) id: SourceId,
    format: Format,
    contents: Contents,
    address: String,
    endpoints: Endpoints,
    staging: Staging,
    endpoint: Option<Endpoint>,
    established: bool,
    blocked: bool,
    /// Its own blocks are all under way: another look then.
    dry_until: Instant,
    retry: Instant,
    /// The next event, its last one, and how far events lie apart.
    pub(in crate::campaign) next: u64,
    last: u64,
    /// With which event numbering begins again, in all sources.
    resync: Option<u64>,
    pace: Duration,
    slow_until: Instant,
    sent_last: Instant,
    silent_until: Instant,
    /// What is to be queued, each with the event that is complete with it.
    waiting: VecDeque<Piece>,
    message: Vec<Slice>,
    /// The present connection and the bytes queued there.
    connection: u64,
    queued: u64,
    orders: VecDeque<Order>,
    /// How far the counter is set back, and for how many fragments still.
    reset: Option<(u64, u64)>,
    twice: u64,
    pub(in crate::campaign) record: Record,
}

impl FrontEnd {
    /// The source with this index.
    pub(in crate::campaign) fn new(site: &Site<'_>, around: &Surroundings, index: u16) -> (Self, Vec<u32>) {
        let (scenario, index) = (site.scenario, usize::from(index));
        let endpoints = site.endpoints("front end receives", 256, 2, around);
        let hosts = vec![endpoints.host()];
        let front_end = Self {
            id: scenario.source_id(index),
            format: scenario.sources[index],
            contents: scenario.contents(),
            address: listen_address(scenario.readout_of(index)),
            endpoints,
            staging: Staging::new(pool("front end", 16 << 10, 8)),
            endpoint: None,
            established: false,
            blocked: false,
            dry_until: Instant::ZERO,
            retry: Instant::ZERO,
            next: 1,
            last: scenario.events,
            resync: scenario.resync(),
            pace: scenario.pace,
            slow_until: Instant::ZERO,
            sent_last: Instant::ZERO,
            silent_until: Instant::ZERO,
            waiting: VecDeque::new(),
            message: Vec::new(),
            connection: 0,
            queued: 0,
            orders: VecDeque::new(),
            reset: None,
            twice: 0,
            record: Record::new(scenario.events),
        };
        (front_end, hosts)
    }

    /// It has sent everything and has no connection any more.
    pub(in crate::campaign) const fn has_left(&self) -> bool {
        self.next > self.last && self.endpoint.is_none()
    }

    /// Something is to go wrong with it.
    pub(in crate::campaign) fn order(&mut self, now: Instant, until: Instant, fault: &Fault) {
        match fault.kind {
            FaultKind::Slow => self.slow_until = until,
            FaultKind::SendTwice => self.twice += fault.count(),
            FaultKind::Disconnect => self.leave(now, until),
            kind => self.orders.push_back((kind, until, fault.count())),
        }
    }

    /// Closes the connection in order.
    fn leave(&mut self, now: Instant, until: Instant) {
        if let Some(endpoint) = self.endpoint.filter(|_| self.established) {
            self.endpoints.close(endpoint);
            self.forget_connection(now);
        }
        self.retry = until;
    }

    /// What was under way over a connection that has ended is not sent again.
    fn forget_connection(&mut self, now: Instant) {
        (self.endpoint, self.established, self.blocked) = (None, false, false);
        self.retry = now.after(RETRY);
        self.message.clear();
        while let Some((_, ends)) = self.waiting.pop_front() {
            if let Ends::Event(event, _) = ends {
                self.note(now, event, How::CutShort);
            }
        }
        self.reset = None;
    }

    fn note(&mut self, at: Instant, event: u64, how: How) {
        let made = Made { at, connection: self.connection, end: self.queued, how };
        self.record.note(event, made);
    }

    fn poll(&mut self, now: Instant) -> usize {
        if self.endpoint.is_none() && now >= self.retry && self.next <= self.last {
            self.retry = now.after(RETRY);
            self.endpoint = self.endpoints.connect(&self.address).ok();
        }
        let mut events = Vec::new();
        let work = self.endpoints.poll(now, &mut events);
        for event in events {
            if self.endpoint != Some(event.endpoint()) {
                continue;
            }
            match event {
                Event::Established { endpoint } => {
                    (self.established, self.blocked) = (true, false);
                    self.connection = self.endpoints.connection(endpoint).unwrap_or(0);
                    self.queued = 0;
                    let hello = content::hello(self.format, self.id);
                    self.waiting.extend((!hello.is_empty()).then_some((hello, Ends::Nothing)));
                }
                Event::SendQueueLow { .. } => self.blocked = false,
                Event::Disconnected { .. } | Event::Broken { .. } | Event::ConnectFailed { .. } => {
                    self.forget_connection(now);
                }
                _ => {}
            }
        }
        work
    }

    /// When the next event is due.
    fn due(&self) -> Instant {
        let planned = Instant::ZERO.after(self.pace * self.next as u32);
        let slow = self.sent_last.after(self.pace * SLOW).min(self.slow_until);
        planned.max(slow).max(self.silent_until)
    }

    /// Queues what is due; says how many pieces.
    fn send(&mut self, now: Instant) -> usize {
        let (Some(endpoint), true, false) = (self.endpoint, self.established, self.blocked) else { return 0 };
        let mut sent = 0;
        while now >= self.silent_until {
            if self.waiting.is_empty() && (self.next > self.last || self.due() > now || !self.compose(now)) {
                break;
            }
            if !self.queue_front(now, endpoint) {
                break;
            }
            sent += 1;
            if let Some(&(FaultKind::StopMidFragment, until, _)) =
                self.orders.front().filter(|_| !self.waiting.is_empty())
            {
                self.orders.pop_front();
                self.silent_until = until;
            }
            if self.waiting.is_empty() && self.reset.is_some_and(|(_, left)| left == 0) {
                self.leave(now, now.after(RETRY));
                return sent;
            }
        }
        if self.next > self.last && self.waiting.is_empty() && self.established && self.endpoints.queued(endpoint) == 0
        {
            self.endpoints.close(endpoint);
            self.established = false;
        }
        sent
    }

    /// Queues the first of what waits; false where there is no room.
    fn queue_front(&mut self, now: Instant, endpoint: Endpoint) -> bool {
        let Some((bytes, _)) = self.waiting.front() else { return true };
        if self.message.is_empty() {
            let slices = bytes.chunks(self.staging.largest()).map_while(|chunk| self.staging.write(chunk));
            self.message.extend(slices);
            if self.message.iter().map(|slice| slice.len()).sum::<usize>() < bytes.len() {
                self.message.clear();
                self.dry_until = now.after(DRY);
                return false;
            }
        }
        let length = bytes.len() as u64;
        if self.endpoints.send(endpoint, &mut self.message).is_err() {
            self.blocked = true;
            return false;
        }
        self.queued += length;
        let Some((_, ends)) = self.waiting.pop_front() else { return true };
        let end = self.queued;
        self.endpoints.with_line(self.connection, |line| match ends {
            Ends::Nothing => {}
            Ends::Event(_, How::Ruinous) => line.ruin(),
            Ends::Again | Ends::Event(..) => line.send(end),
        });
        if let Ends::Event(event, how) = ends {
            self.note(now, event, how);
            self.sent_last = now;
        }
        true
    }

    /// Makes the next event's bytes, as far as it sends that event; false where it has none to send.
    fn compose(&mut self, now: Instant) -> bool {
        while let Some(&(FaultKind::Skip, _, count)) = self.orders.front() {
            self.orders.pop_front();
            for _ in 0..count.min(self.last + 1 - self.next) {
                self.note(now, self.next, How::Skipped);
                self.next += 1;
            }
        }
        // What it skips takes its time all the same.
        if self.next > self.last || self.due() > now {
            return false;
        }
        let event = self.next;
        self.next += 1;
        let (number, how) = self.number_of(now, event);
        if how == How::Ruinous {
            self.record.ruined.push((self.connection, self.queued));
            self.waiting.push_back((content::huge(self.format, self.id, number), Ends::Event(event, how)));
            return true;
        }
        let bytes = self.contents.sent(self.format, self.id, event, number, how == How::Damaged);
        if matches!(self.orders.front(), Some((FaultKind::StopMidFragment, ..))) {
            let (head, tail) = bytes.split_at(bytes.len() / 2);
            self.waiting.extend([(head.to_vec(), Ends::Nothing), (tail.to_vec(), Ends::Event(event, how))]);
            return true;
        }
        let again = (self.twice > 0 && how == How::Right).then(|| (bytes.clone(), Ends::Again));
        self.twice -= u64::from(again.is_some());
        self.waiting.push_back((bytes, Ends::Event(event, how)));
        self.waiting.extend(again);
        true
    }

    /// Which number an event gets, and what is wrong with it.
    fn number_of(&mut self, now: Instant, event: u64) -> (u64, How) {
        if let Some(&(FaultKind::ResetCounter, _, count)) = self.orders.front() {
            self.orders.pop_front();
            // A counter that has hardly begun would repeat itself, which no reader could tell.
            if event > 2 {
                self.reset = Some((event - 1, count));
                self.record.strayed.push((now, self.connection));
            }
        }
        if let Some((base, left)) = &mut self.reset {
            *left = left.saturating_sub(1);
            self.record.lies.push((event - *base, event));
            return (event - *base, How::Misnumbered);
        }
        let right = self.resync.filter(|&resync| event >= resync).map_or(event, |resync| event + 1 - resync);
        let (number, how) = match self.orders.front() {
            Some((FaultKind::Jump, ..)) => (right + FAR, How::Misnumbered),
            Some((FaultKind::WrongCrc, ..)) => (right, How::Damaged),
            Some((FaultKind::HugeLength, ..)) => (right, How::Ruinous),
            _ => return (right, How::Right),
        };
        self.orders.pop_front();
        (number, how)
    }
}

impl Drive for FrontEnd {
    fn turn(&mut self, now: Instant) -> usize {
        self.poll(now) + self.send(now)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let retry = (self.endpoint.is_none() && self.next <= self.last).then_some(self.retry);
        let may_send = self.established && !self.blocked;
        let due = if self.waiting.is_empty() { self.due() } else { self.silent_until.max(self.dry_until) };
        let due = (may_send && (self.next <= self.last || !self.waiting.is_empty())).then_some(due);
        [retry, due, self.endpoints.next_deadline()].into_iter().flatten().min()
    }

    forward!(mut endpoints: prepare_wait -> bool);

    fn wait_descriptors<'a>(&'a self, _into: &mut Vec<BorrowedFd<'a>>) {}

    fn is_done(&self) -> bool {
        false
    }
}

impl Machine for FrontEnd {}

/// What a source did with an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in crate::campaign) enum How {
    /// Sent it as it should be.
    Right,
    /// Sent it with a wrong bit.
    Damaged,
    /// Sent it with another number.
    Misnumbered,
    /// Sent something that ends the connection.
    Ruinous,
    /// Began to send it, and never ended.
    CutShort,
    /// Left it out.
    Skipped,
    /// Sent it as a chunk with these flags, cut to so many bytes.
    Flagged(Status, u32),
    /// Sent it as a chunk of which a block was lost or damaged, or that is larger than any may be.
    Spoilt,
}

impl How {
    /// Whether the event's fragment can be in a file.
    pub(in crate::campaign) const fn is_whole(self) -> bool {
        matches!(self, Self::Right | Self::Damaged | Self::Flagged(..))
    }
}

/// How a source sent one event.
#[derive(Copy, Clone, Debug)]
pub(in crate::campaign) struct Made {
    /// When it was sent.
    pub(in crate::campaign) at: Instant,
    /// Over which connection, or in which ring of a card.
    pub(in crate::campaign) connection: u64,
    /// The connection's or the ring's bytes until its end.
    pub(in crate::campaign) end: u64,
    /// What the source did.
    pub(in crate::campaign) how: How,
}

/// What a source did.
#[derive(Clone, Debug)]
pub(in crate::campaign) struct Record {
    /// By event, from 1.
    made: Vec<Option<Made>>,
    /// Connections whose framing the source ruined, and their bytes before that.
    ruined: Vec<(u64, u64)>,
    /// Events whose chunk is whole, and that a reader may miss for reasons of the format.
    pub(super) doubtful: BTreeSet<u64>,
    /// Numbers that it gave to events that have others.
    pub(in crate::campaign) lies: Vec<(u64, u64)>,
    /// From when to when its counter was not the run's: until its first fragment over a new connection.
    pub(in crate::campaign) strayed: Vec<(Instant, u64)>,
}

impl Record {
    /// Of a source that has done nothing yet, and has so many events to send.
    pub(in crate::campaign) fn new(events: u64) -> Self {
        let (made, doubtful) = (vec![None; events as usize + 1], BTreeSet::new());
        Self { made, ruined: Vec::new(), doubtful, lies: Vec::new(), strayed: Vec::new() }
    }

    /// What it did with an event; none where it had no occasion.
    pub(in crate::campaign) fn made(&self, event: u64) -> Option<&Made> {
        self.made.get(event as usize)?.as_ref()
    }

    /// Takes note of what it did with an event.
    pub(super) fn note(&mut self, event: u64, made: Made) {
        if let Some(place) = self.made.get_mut(event as usize) {
            *place = Some(made);
        }
    }

    /// Whether a reader may miss the event's fragment although it is there: a time-out in one piece behind a loss looks like
    /// the end of what was lost, and a chunk that is open for a whole ring is given up.
    pub(in crate::campaign) fn is_doubtful(&self, event: u64) -> bool {
        self.doubtful.contains(&event)
    }

    /// The event that it sent under the number of another one. A readout unit that has just begun cannot know better.
    pub(in crate::campaign) fn lied_as(&self, number: u64) -> Option<u64> {
        self.lies.iter().find(|&&(said, _)| said == number).map(|&(_, event)| event)
    }

    /// The number that it gave to an event that has another one.
    pub(in crate::campaign) fn said_of(&self, event: u64) -> Option<u64> {
        self.lies.iter().find(|&&(_, of)| of == event).map(|&(said, _)| said)
    }

    /// Whether what a connection brought up to its byte `end` lies behind something that ruined its framing.
    pub(in crate::campaign) fn is_ruined(&self, connection: u64, end: u64) -> bool {
        self.ruined.iter().any(|&(ruined, bytes)| ruined == connection && end > bytes)
    }
}

/// Pause before the next attempt.
const STRANGER_RETRY: Duration = Duration::from_millis(30);

/// A client that connects again and again, until it is ordered to leave.
pub(in crate::campaign) struct Stranger {
    address: String,
    seed: u64,
    endpoints: Endpoints,
    staging: Staging,
    endpoint: Option<Endpoint>,
    retry: Instant,
    attempts: u64,
    leaving: bool,
}

impl Stranger {
    /// A stranger that connects to this readout unit.
    pub(in crate::campaign) fn new(
        site: &Site<'_>,
        around: &Surroundings,
        readout: u16,
        seed: u64,
    ) -> (Self, Vec<u32>) {
        let endpoints = site.endpoints("stranger receives", 256, 2, around);
        let hosts = vec![endpoints.host()];
        let staging = Staging::new(pool("stranger", 4 << 10, 2));
        let address = listen_address(readout);
        let (endpoint, retry) = (None, Instant::ZERO);
        (Self { address, seed, endpoints, staging, endpoint, retry, attempts: 0, leaving: false }, hosts)
    }

    /// Has had enough.
    pub(in crate::campaign) fn leave(&mut self) {
        self.leaving = true;
        if let Some(endpoint) = self.endpoint.take() {
            self.endpoints.abort(endpoint);
        }
    }

    /// Nonsense of some length: too short to be anything, or long enough to be refused.
    fn speak(&mut self, endpoint: Endpoint) {
        let draw = mixed(self.seed, self.attempts, 0);
        let bytes: Vec<u8> = (0..draw % 200).map(|index| mixed(draw, index, 1) as u8).collect();
        let mut message: Vec<_> = self.staging.write(&bytes).into_iter().filter(|slice| !slice.is_empty()).collect();
        if !message.is_empty() {
            // Without room for nonsense it is left out.
            let _ = self.endpoints.send(endpoint, &mut message);
        }
    }
}

impl Drive for Stranger {
    fn turn(&mut self, now: Instant) -> usize {
        if self.endpoint.is_none() && now >= self.retry && !self.leaving {
            self.retry = now.after(STRANGER_RETRY);
            self.attempts += 1;
            self.endpoint = self.endpoints.connect(&self.address).ok();
        }
        let mut events = Vec::new();
        let work = self.endpoints.poll(now, &mut events);
        for event in events {
            match event {
                Event::Established { endpoint } => self.speak(endpoint),
                last if last.is_last() => (self.endpoint, self.retry) = (None, now.after(STRANGER_RETRY)),
                _ => {}
            }
        }
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        let retry = (self.endpoint.is_none() && !self.leaving).then_some(self.retry);
        retry.into_iter().chain(self.endpoints.next_deadline()).min()
    }

    forward!(mut endpoints: prepare_wait -> bool);

    fn wait_descriptors<'a>(&'a self, _into: &mut Vec<BorrowedFd<'a>>) {}

    fn is_done(&self) -> bool {
        self.leaving
    }
}

impl Machine for Stranger {}
