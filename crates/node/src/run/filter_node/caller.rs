//! A builder unit that uses a filter unit of this node: what it said, and the events that it is owed decisions on.

use ropewalk_flow::messages::{Fragment, FragmentMeta};
use ropewalk_memory::{ByteQueue, Slice};
use ropewalk_plugin::filter::FilterEvent;
use ropewalk_plugin::filter::process::{FilterProcess, Offer};
use ropewalk_terms::{Attempt, EventKey, TriggerBits};
use ropewalk_wire::filter_node::{
    DecisionHead, DeclaredHistogram, EVENT_HEAD, EventHead, FILTER_NODE_VERSION, FRAGMENT_HEAD, FRAME_BYTES, Frame,
    Kind, decode_begin, decode_event_head, decode_fragment, decode_hello, encode_decision, encode_welcome,
};
use std::collections::VecDeque;

/// Why a connection is of no more use.
#[derive(Debug)]
pub(super) enum Wrong {
    /// It is not there any more, or the process is not.
    Lost,
    /// The filter cannot be had.
    NotReady(String),
    /// The caller said what cannot be.
    Said(String),
}

/// An event of a builder unit elsewhere.
#[derive(Debug)]
struct RemoteEvent {
    head: EventHead,
    fragments: Vec<Fragment>,
}

impl FilterEvent for RemoteEvent {
    fn key(&self) -> EventKey {
        self.head.key
    }

    fn attempt(&self) -> Attempt {
        self.head.attempt
    }

    fn is_complete(&self) -> bool {
        self.head.is_complete
    }

    fn trigger_type(&self) -> u16 {
        self.head.trigger_type
    }

    fn fragments(&self) -> impl Iterator<Item = &Fragment> {
        self.fragments.iter()
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// It has not said who it is.
    Unknown,
    /// It has, and the process is to be started.
    Greeted,
    /// The process was started.
    Started,
    /// It was told that the filter is ready.
    Welcome,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Caller {
    filter: u64,
    window: u32,
    state: State,
    bytes: ByteQueue,
    /// Without decisions; their bytes stay where they are until then.
    held: VecDeque<RemoteEvent>,
    /// So many of these the process has, from the first one on.
    given: usize,
    /// The sequence of the event that comes next.
    next: u64,
    /// The first event that is held will never fit into what the process is shown.
    is_too_large: bool,
}

impl Caller {
    /// Somebody of whom nothing is known, who may want the filter with this fingerprint and have so many events decided at once.
    pub(super) fn new(filter: u64, window: u32) -> Self {
        Self {
            filter,
            window,
            state: State::Unknown,
            bytes: ByteQueue::with_capacity(1024),
            held: VecDeque::with_capacity(window as usize),
            given: 0,
            next: 1,
            is_too_large: false,
        }
    }

    /// Bytes came.
    pub(super) fn push(&mut self, slice: Slice) {
        self.bytes.push(slice);
    }

    /// Whether its process is to be started now.
    pub(super) fn wants_process(&mut self) -> bool {
        let wants = self.state == State::Greeted;
        if wants {
            self.state = State::Started;
        }
        wants
    }

    /// Whether it was told that the filter is ready.
    pub(super) fn is_welcome(&self) -> bool {
        self.state == State::Welcome
    }

    /// The filter is ready: what it is told.
    pub(super) fn welcome(&mut self, process: &FilterProcess, out: &mut Vec<u8>) {
        let declared = process.histograms().iter().map(|shape| DeclaredHistogram {
            name: shape.name().to_owned(),
            bins: shape.bins(),
            low: shape.low(),
            high: shape.high(),
        });
        encode_welcome(self.window, &declared.collect::<Vec<_>>(), out);
        self.state = State::Welcome;
    }

    /// Looks at what has come, and gives the process what it takes. Returns how much that was.
    pub(super) fn hear(&mut self, process: &mut FilterProcess) -> Result<usize, Wrong> {
        let mut heard = 0;
        while let Some(head) = self.bytes.peek_array::<FRAME_BYTES>(0) {
            let frame = Frame::parse(&head).map_err(|error| Wrong::Said(error.to_string()))?;
            if self.bytes.len() < FRAME_BYTES + frame.body as usize {
                break;
            }
            self.bytes.skip(FRAME_BYTES);
            self.message(frame, process)?;
            heard += 1;
        }
        while self.state == State::Welcome && self.given < self.held.len() && !self.is_too_large {
            match process.offer(0, &self.held[self.given]) {
                Offer::Taken => self.given += 1,
                Offer::Full => break,
                Offer::TooLarge => self.is_too_large = true,
            }
        }
        process.flush();
        Ok(heard)
    }

    /// A message, whose body has come whole.
    fn message(&mut self, frame: Frame, process: &mut FilterProcess) -> Result<(), Wrong> {
        let length = frame.body as usize;
        if frame.kind == Kind::Event && self.state == State::Welcome {
            return self.event(length);
        }
        let mut body = vec![0; length];
        self.bytes.copy_to(0, &mut body);
        self.bytes.skip(length);
        match (frame.kind, self.state) {
            (Kind::Hello, State::Unknown) => self.hello(&body),
            (Kind::Begin, State::Greeted | State::Started | State::Welcome) => {
                process.begin_run(decode_begin(&body).map_err(|error| Wrong::Said(error.to_string()))?);
                Ok(())
            }
            (Kind::End, State::Greeted | State::Started | State::Welcome) => {
                process.end_run();
                Ok(())
            }
            (kind, _) => Err(Wrong::Said(format!("{kind:?} has no place here"))),
        }
    }

    fn hello(&mut self, body: &[u8]) -> Result<(), Wrong> {
        let (version, filter) = decode_hello(body).map_err(|error| Wrong::Said(error.to_string()))?;
        if version != FILTER_NODE_VERSION {
            let why = format!("version {version} of the messages, and this node speaks version {FILTER_NODE_VERSION}");
            return Err(Wrong::Said(why));
        }
        if filter != self.filter {
            let why = "this node has another filter: `library`, `program` and `configuration` are to be the same";
            return Err(Wrong::Said(why.to_owned()));
        }
        self.state = State::Greeted;
        Ok(())
    }

    /// An event: its payloads are cut from what came, where they lie.
    fn event(&mut self, length: usize) -> Result<(), Wrong> {
        let wrong = |what: &str| Wrong::Said(format!("an event {what}"));
        let meaning = |error: ropewalk_wire::frame::FrameError| Wrong::Said(error.to_string());
        let head = self.bytes.peek_array::<EVENT_HEAD>(0).filter(|_| length >= EVENT_HEAD);
        let head = decode_event_head(&head.ok_or_else(|| wrong("without its head"))?).map_err(meaning)?;
        if head.sequence != self.next {
            return Err(wrong("out of order"));
        }
        if self.held.len() == self.window as usize {
            return Err(wrong("beyond those that are taken at once"));
        }
        let count = usize::from(head.fragments);
        let payloads = length.checked_sub(EVENT_HEAD + count * FRAGMENT_HEAD);
        let mut left = payloads.ok_or_else(|| wrong("shorter than its heads"))?;
        let mut metas = Vec::with_capacity(count);
        for index in 0..count {
            let bytes = self.bytes.peek_array::<FRAGMENT_HEAD>(EVENT_HEAD + index * FRAGMENT_HEAD);
            let meta = decode_fragment(&bytes.ok_or_else(|| wrong("without its heads"))?).map_err(meaning)?;
            left = left.checked_sub(meta.length as usize).ok_or_else(|| wrong("shorter than its fragments"))?;
            metas.push(meta);
        }
        if left > 0 {
            return Err(wrong("longer than its fragments"));
        }
        self.bytes.skip(EVENT_HEAD + count * FRAGMENT_HEAD);
        let bytes = &mut self.bytes;
        let fragment = |meta: FragmentMeta| Fragment { meta, payload: bytes.take(meta.length as usize) };
        let fragments = metas.into_iter().map(fragment).collect();
        self.held.push_back(RemoteEvent { head, fragments });
        self.next += 1;
        Ok(())
    }

    /// Writes the next decision to `out`; false where there is none.
    pub(super) fn next_decision(&mut self, process: &mut FilterProcess, out: &mut Vec<u8>) -> Result<bool, Wrong> {
        if self.given == 0 {
            if !std::mem::take(&mut self.is_too_large) {
                return Ok(false);
            }
            // Nothing that a builder unit could do with it is better than to set it aside.
            let Some(event) = self.held.pop_front() else { return Ok(false) };
            let head = decision_head(&event.head, None, TriggerBits::default(), 0);
            encode_decision(&head, [].into_iter(), &[], out);
            return Ok(true);
        }
        match process.next_decision() {
            None => Ok(false),
            Some(Err(_)) => Err(Wrong::Lost),
            Some(Ok((_, decision))) => {
                let Some(event) = self.held.pop_front() else { return Err(Wrong::Lost) };
                self.given -= 1;
                match decision {
                    None => {
                        let head = decision_head(&event.head, None, TriggerBits::default(), 0);
                        encode_decision(&head, [].into_iter(), &[], out);
                    }
                    Some(said) => {
                        let dropped = said.fills.dropped().try_into().unwrap_or(u32::MAX);
                        let head = decision_head(&event.head, Some(said.accept), said.bits, dropped);
                        let fills = said.fills.values().iter().map(|fill| (fill.histogram, fill.value));
                        encode_decision(&head, fills, said.result, out);
                    }
                }
                Ok(true)
            }
        }
    }
}

const fn decision_head(
    event: &EventHead,
    accept: Option<bool>,
    triggers: TriggerBits,
    dropped_fills: u32,
) -> DecisionHead {
    let EventHead { sequence, key, attempt, .. } = *event;
    DecisionHead { sequence, key, attempt, accept, triggers, dropped_fills }
}
