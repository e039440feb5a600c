//! What users see of a gateway, and what it must be. A [`Reader`] of decisions connects, leaves, reads slowly, and keeps what it
//! received. A [`Watcher`] takes samples all the time: they are what sources sent, and say what was missing.

use super::farm::Held;
use super::judge::banks;
use super::referee::Shared;
use super::scenario::{Scenario, source_of};
use super::world::World;
use crate::campaign::endpoints::Endpoints;
use crate::campaign::outcome::{Broken, Checker, ensure};
use ropewalk_engine::Drive;
use ropewalk_engine::tap::{Asked, EventSample, EventSelection, Tap};
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::ByteQueue;
use ropewalk_terms::{Incarnation, Instant, NodeId};
use ropewalk_wire::gateway::{FRAME_BYTES, Frame, Message, Stream, StreamEntry};
use ropewalk_wire::run_file::EventFlags;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How soon a reader who is not connected tries again.
const RETRY: Duration = Duration::from_millis(5);

/// A reader of a flow's decisions in one gateway.
pub(super) struct Reader {
    lines: Endpoints,
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
    pub(super) fn new(lines: Endpoints, at: SocketAddrV4, (gateway, flow): (u16, u8), referee: Shared) -> Self {
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
        ensure!(Order, is_next;
            "gw{}: a reader of flow {} has {due} decisions of {life:?}, and the next ones begin behind {} of {:?}",
            self.gateway, self.flow, stream.before, stream.incarnation)?;
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

/// Samples of each kind that are kept of a gateway.
const MOST: usize = 32;
/// Bytes of each fragment.
const FRONT: usize = 256;

/// One kind of events that are asked for, one after the other.
struct Kind {
    selection: EventSelection,
    asked: Option<Asked>,
    /// Turns until the next one is asked for: more from one to the next, so that samples are of the whole run.
    rests: usize,
    samples: Vec<EventSample>,
}

/// A client that watches a gateway through all of its lives.
pub(super) struct Watcher {
    pub(super) tap: Tap,
    kinds: [Kind; 2],
}

impl Watcher {
    /// A watcher that asks for any event, and for an incomplete one.
    pub(super) fn new(scenario: &Scenario) -> Self {
        let sources = scenario.flows.iter().map(|flow| usize::from(flow.sources.sources)).max();
        let kinds = [false, true].map(|is_incomplete| Kind {
            selection: EventSelection { is_incomplete, ..EventSelection::default() },
            asked: None,
            rests: 0,
            samples: Vec::new(),
        });
        let mut watcher = Self { tap: Tap::new(sources.unwrap_or_default()), kinds };
        watcher.look();
        watcher
    }

    /// Takes the samples that have come, and asks for more.
    pub(super) fn look(&mut self) {
        for kind in self.kinds.iter_mut().filter(|kind| kind.samples.len() < MOST) {
            if let Some(sample) = kind.asked.as_mut().and_then(Asked::take) {
                kind.samples.push(sample);
                (kind.asked, kind.rests) = (None, kind.samples.len());
            }
            kind.rests = kind.rests.saturating_sub(1);
            if kind.asked.is_none() && kind.rests == 0 {
                kind.asked = self.tap.ask(kind.selection, FRONT);
            }
        }
    }
}

impl World {
    /// Checks that watchers were shown events as they were.
    pub(super) fn judge_samples(&self) -> Result<(), Broken> {
        let referee = self.referee.borrow();
        for (gateway, watcher) in (0u16..).zip(&self.watchers) {
            let sets = || referee.lives_of(gateway).flat_map(|life| &life.farm.sets);
            for (kind, sample) in
                watcher.kinds.iter().flat_map(|kind| kind.samples.iter().map(move |sample| (kind, sample)))
            {
                let broken = |words: &str| Broken::new(Checker::Content, format!("gw{gateway}: {words}: {sample:?}"));
                let place = self.place_of_sample(sample).ok_or_else(|| broken("there is no such event"))?;
                let mut lives = sets().filter(|(known, _)| **known == place).peekable();
                lives.peek().ok_or_else(|| broken("a sample of a set that no node was to get"))?;
                let is_right = lives.any(|(_, held)| is_as_held(sample, place.0, held)) && self.is_as_sent(sample);
                let is_wanted = !kind.selection.is_incomplete || !sample.is_complete();
                let is_named = sample.builder == NodeId::builder(gateway);
                ensure!(Content, is_right && is_wanted && is_named; "gw{gateway}: a watcher was shown {sample:?}")?;
            }
            let was_something = sets().next().is_some();
            ensure!(Loss, !was_something || !watcher.kinds[0].samples.is_empty();
                "gw{gateway}: a watcher saw no event in the whole run")?;
        }
        Ok(())
    }

    /// Flow and set of a sample: its sources tell the flow.
    fn place_of_sample(&self, sample: &EventSample) -> Option<(u8, u64)> {
        let there = sample.fragments.iter().map(|fragment| fragment.entry.source);
        let (flow, _) = source_of(there.chain(sample.missing.iter().map(|missing| missing.source)).next()?);
        let (set, _) = self.scenario.flows.get(usize::from(flow))?.place_of(sample.key)?;
        Some((flow, set))
    }

    /// Whether its fragments are what sources sent.
    fn is_as_sent(&self, sample: &EventSample) -> bool {
        sample.fragments.iter().all(|fragment| {
            let (flow, source) = source_of(fragment.entry.source);
            let sent = banks(&self.scenario.flows[usize::from(flow)], source, sample.key.number());
            fragment.entry.length as usize == sent.len() && sample.front_of(fragment) == &sent[..sent.len().min(FRONT)]
        })
    }
}

/// Whether a sample of a flow has the sources that had come, and says why which are missing.
fn is_as_held(sample: &EventSample, flow: u8, held: &Held) -> bool {
    let there = sample.fragments.iter().map(|fragment| (fragment.entry.source, None));
    let said = there.chain(sample.missing.iter().map(|missing| (missing.source, missing.cause())));
    said.collect::<BTreeMap<_, _>>() == held.found(flow)
        && sample.flags.contains(EventFlags::INCOMPLETE) != held.absent.is_empty()
}
