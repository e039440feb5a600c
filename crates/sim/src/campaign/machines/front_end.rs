//! A front end: sends what the scenario says, and misbehaves when it is told to. It remembers what it did with each
//! event, so that the referee knows what may be missing.

use super::super::broken::Broken;
use super::super::content::{self, Contents, Format};
use super::super::endpoints::{Endpoints, Surroundings};
use super::super::node::Machine;
use super::super::scenario::Scenario;
use super::readout::door_of;
use super::record::{How, Made, Record};
use super::{Site, pool};
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::{Slice, Staging};
use ropewalk_node::drive::Drive;
use ropewalk_terms::{Instant, PoolAccount, SourceId};
use std::collections::VecDeque;
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

/// What a source is told to do wrong.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in super::super) enum Misbehaviour {
    /// Stop within the next fragment, until that time.
    StopMidFragment(Instant),
    /// Close the connection, until that time.
    Disconnect(Instant),
    /// Send the next fragments twice.
    SendTwice(u64),
    /// Leave out the next ones.
    Skip(u64),
    /// Start the numbering again, for so many fragments.
    ResetCounter(u64),
    /// Number the next one far too high.
    Jump,
    /// Damage the next one.
    Damage,
    /// Claim that the next one is larger than anything.
    Huge,
    /// Be slow until that time.
    Slow(Instant),
}

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
pub(in super::super) struct FrontEnd {
    pub(in super::super) id: SourceId,
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
    pub(in super::super) next: u64,
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
    orders: VecDeque<Misbehaviour>,
    /// How far the counter is set back, and for how many fragments still.
    reset: Option<(u64, u64)>,
    twice: u64,
    pub(in super::super) record: Record,
}

impl FrontEnd {
    /// The source with this index.
    pub(in super::super) fn new(site: &Site<'_>, around: &Surroundings, index: u16) -> (Self, Vec<u32>) {
        let (scenario, index) = (site.scenario, usize::from(index));
        let endpoints = site.endpoints("front end receives", 256, 2, around);
        let hosts = vec![endpoints.host()];
        let front_end = Self {
            id: scenario.source_id(index),
            format: scenario.sources[index],
            contents: scenario.contents(),
            address: door_of(scenario.readout_of(index)),
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
    pub(in super::super) const fn has_left(&self) -> bool {
        self.next > self.last && self.endpoint.is_none()
    }

    /// Tells it to misbehave.
    pub(in super::super) fn order(&mut self, now: Instant, order: Misbehaviour) {
        match order {
            Misbehaviour::Slow(until) => self.slow_until = until,
            Misbehaviour::SendTwice(count) => self.twice += count,
            Misbehaviour::Disconnect(until) => self.leave(now, until),
            _ => self.orders.push_back(order),
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
                Event::ConnectionRequest { .. }
                | Event::Received { .. }
                | Event::HandedOver { .. }
                | Event::SendQueueHigh { .. }
                | Event::Finished { .. } => {}
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
            if let Some(&Misbehaviour::StopMidFragment(until)) =
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
        while let Some(&Misbehaviour::Skip(count)) = self.orders.front() {
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
            self.record.ruin(self.connection, self.queued);
            self.waiting.push_back((content::huge(self.format, self.id, number), Ends::Event(event, how)));
            return true;
        }
        let bytes = self.contents.sent(self.format, self.id, event, number, how == How::Damaged);
        if matches!(self.orders.front(), Some(Misbehaviour::StopMidFragment(_))) {
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
        if let Some(&Misbehaviour::ResetCounter(count)) = self.orders.front() {
            self.orders.pop_front();
            // One that has hardly counted repeats itself, rather, and nobody could tell.
            if event > 2 {
                self.reset = Some((event - 1, count));
                self.record.strayed.push((now, self.connection));
            }
        }
        if let Some((base, left)) = &mut self.reset {
            *left = left.saturating_sub(1);
            self.record.lie(event - *base, event);
            return (event - *base, How::Misnumbered);
        }
        let right = self.resync.filter(|&resync| event >= resync).map_or(event, |resync| event + 1 - resync);
        let (number, how) = match self.orders.front() {
            Some(Misbehaviour::Jump) => (right + FAR, How::Misnumbered),
            Some(Misbehaviour::Damage) => (right, How::Damaged),
            Some(Misbehaviour::Huge) => (right, How::Ruinous),
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

    fn prepare_wait(&mut self) -> bool {
        self.endpoints.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, _into: &mut Vec<BorrowedFd<'a>>) {}

    fn is_done(&self) -> bool {
        false
    }
}

impl Machine for FrontEnd {
    fn pools(&mut self) -> Vec<PoolAccount> {
        Vec::new()
    }

    fn check(&self, _scenario: &Scenario) -> Result<(), Broken> {
        Ok(())
    }
}
