//! The other end: a farm node assembles events from pushes, and reports decisions so that a lost message costs little.
//!
//! For emulated nodes and tests. The caller decides, and chooses when.

use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Incarnation, Instant};
use ropewalk_wire::gateway::{
    BITMAP_WORDS, Credit, Decision, Decisions, MOST_DECISIONS, MOST_OUTSTANDING, Message, PieceHead, Progress,
    PushView, Verdict,
};
use std::collections::VecDeque;

/// Configuration of a node towards one gateway, or one input queue of a gateway.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FarmNodeConfig {
    /// Its number.
    pub node: u16,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The gateway.
    pub gateway: u16,
    /// Maximum number of undecided events that it accepts, at most 256.
    pub window: u16,
    /// Interval of its messages, which repeat its last decisions.
    pub heartbeat: Duration,
    /// How long it waits for an event, or for the rest of one, once it knows of it.
    pub patience: Duration,
    /// Maximum size of an event, in bytes.
    pub largest_event: u32,
}

/// State of a sequence number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// Not known.
    Unknown,
    /// The event exists; not all of it has arrived.
    Awaited { since: Instant },
    /// The event is complete.
    Whole,
    /// The event is decided.
    Decided,
}

#[derive(Debug)]
struct Slot {
    state: State,
    head: PieceHead,
    bytes: Vec<u8>,
    /// Beginning and end of the parts that have arrived.
    parts: Vec<(u32, u32)>,
}

/// An event that has arrived whole.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ReceivedEvent<'a> {
    /// Its head; a decision refers to its sequence number.
    pub head: PieceHead,
    /// Raw banks in the order of sources.
    pub bytes: &'a [u8],
}

/// A farm node as one gateway sees it.
#[derive(Debug)]
pub struct FarmNode {
    config: FarmNodeConfig,
    /// The known incarnation of the gateway.
    gateway_incarnation: Option<Incarnation>,
    slots: Box<[Slot]>,
    /// Every number below is decided or not awaited.
    cumulative: u64,
    /// One past the latest known number.
    end: u64,
    /// Numbers of whole events that were not shown yet.
    whole: VecDeque<u64>,
    unsaid: VecDeque<Decision>,
    said: VecDeque<Decision>,
    credit_due: Instant,
    repeat_due: Instant,
    /// Whether the gateway has reported its progress and not yet got an answer.
    is_asked: bool,
}

impl FarmNode {
    /// Creates a node that has sent and received nothing.
    pub fn new(config: FarmNodeConfig) -> Self {
        let slot = || Slot { state: State::Unknown, head: PieceHead::default(), bytes: Vec::new(), parts: Vec::new() };
        Self {
            config,
            gateway_incarnation: None,
            slots: core::iter::repeat_with(slot).take(MOST_OUTSTANDING as usize).collect(),
            cumulative: 0,
            end: 0,
            whole: VecDeque::new(),
            unsaid: VecDeque::new(),
            said: VecDeque::with_capacity(MOST_DECISIONS),
            credit_due: Instant::ZERO,
            repeat_due: Instant::FAR_FUTURE,
            is_asked: false,
        }
    }

    const fn slot(&mut self, sequence: u64) -> &mut Slot {
        &mut self.slots[(sequence % MOST_OUTSTANDING) as usize]
    }

    /// Handles a push.
    pub fn on_push(&mut self, push: &PushView<'_>, now: Instant) {
        let head = push.head();
        if head.gateway != self.config.gateway || !self.is_in_life(head.incarnation, head.floor) {
            return;
        }
        self.forget_below(head.floor);
        for (piece, bytes) in push.pieces() {
            self.on_piece(piece, bytes, now);
        }
    }

    /// Handles a progress message of the gateway, which says which numbers exist; the node answers with its own
    /// progress. Without an answer, the gateway would count forgotten events and lost decisions against this node's
    /// credit for ever.
    pub fn on_progress(&mut self, progress: &Progress, now: Instant) {
        if progress.gateway == self.config.gateway && self.is_in_life(progress.incarnation, progress.floor) {
            self.forget_below(progress.floor);
            self.expect_up_to(progress.next, now);
            self.is_asked = true;
        }
    }

    /// Whether the message is of the known incarnation of the gateway, or of a new one, which resets the node.
    fn is_in_life(&mut self, incarnation: Incarnation, floor: u64) -> bool {
        if self.gateway_incarnation.is_none_or(|known| known < incarnation) {
            self.gateway_incarnation = Some(incarnation);
            self.slots.iter_mut().for_each(|slot| slot.state = State::Unknown);
            (self.cumulative, self.end) = (floor, floor);
            self.whole.clear();
            self.unsaid.clear();
            if !is_planted(Flaw::GatewayLivesMixed) {
                self.said.clear();
            }
        }
        self.gateway_incarnation == Some(incarnation)
    }

    fn forget_below(&mut self, floor: u64) {
        if floor > self.end {
            self.slots.iter_mut().for_each(|slot| slot.state = State::Unknown);
            (self.cumulative, self.end) = (floor, floor);
        }
        while self.cumulative < floor {
            self.slot(self.cumulative).state = State::Unknown;
            self.cumulative += 1;
        }
        self.advance();
    }

    fn advance(&mut self) {
        while self.cumulative < self.end && self.slot(self.cumulative).state == State::Decided {
            self.slot(self.cumulative).state = State::Unknown;
            self.cumulative += 1;
        }
    }

    /// Records that all numbers below this one exist.
    fn expect_up_to(&mut self, next: u64, now: Instant) {
        let next = next.min(self.cumulative + MOST_OUTSTANDING);
        for sequence in self.end..next {
            let slot = self.slot(sequence);
            slot.state = State::Awaited { since: now };
            slot.bytes.clear();
            slot.parts.clear();
        }
        self.end = self.end.max(next);
    }

    fn on_piece(&mut self, head: PieceHead, bytes: &[u8], now: Instant) {
        let is_near = head.sequence >= self.cumulative && head.sequence - self.cumulative < MOST_OUTSTANDING;
        if !is_near || head.total > self.config.largest_event {
            return;
        }
        self.expect_up_to(head.sequence + 1, now);
        let slot = self.slot(head.sequence);
        if !matches!(slot.state, State::Awaited { .. }) {
            return;
        }
        let (start, end) = (head.offset, head.offset + head.length);
        let is_other = !slot.parts.is_empty() && (slot.head.key, slot.head.total) != (head.key, head.total);
        if is_other || slot.parts.iter().any(|&(from, to)| start < to && from < end) {
            return;
        }
        slot.head = head;
        slot.bytes.resize(head.total as usize, 0);
        slot.bytes[start as usize..end as usize].copy_from_slice(bytes);
        slot.parts.push((start, end));
        if slot.parts.iter().map(|(from, to)| to - from).sum::<u32>() == head.total {
            slot.state = State::Whole;
            self.whole.push_back(head.sequence);
        }
    }

    /// Returns the next event that has arrived whole.
    pub fn next_event(&mut self) -> Option<ReceivedEvent<'_>> {
        let sequence = loop {
            let sequence = self.whole.pop_front()?;
            // The gateway may have given it up meanwhile.
            if sequence >= self.cumulative && self.slot(sequence).state == State::Whole {
                break sequence;
            }
        };
        let slot = self.slot(sequence);
        Some(ReceivedEvent { head: slot.head, bytes: &slot.bytes })
    }

    /// Decides an event. False if its decision is no longer awaited.
    pub fn decide(&mut self, sequence: u64, accept: bool, word: u32) -> bool {
        let is_known = (self.cumulative..self.end).contains(&sequence) && self.slot(sequence).state == State::Whole;
        if is_known {
            let verdict = if accept { Verdict::Accept } else { Verdict::Reject };
            self.settle(Decision { sequence, verdict, word });
        }
        is_known
    }

    fn settle(&mut self, decision: Decision) {
        self.slot(decision.sequence).state = State::Decided;
        self.unsaid.push_back(decision);
        self.advance();
    }

    /// Handles time: events that did not arrive in time are reported as not received.
    pub fn on_time(&mut self, now: Instant) {
        for sequence in self.cumulative..self.end {
            let patience = self.config.patience;
            if let State::Awaited { since } = self.slot(sequence).state
                && since.after(patience) <= now
            {
                self.settle(Decision { sequence, verdict: Verdict::NotReceived, word: 0 });
            }
        }
    }

    /// Returns when [`FarmNode::on_time`] has something to do.
    pub fn next_deadline(&self) -> Instant {
        let awaited = (self.cumulative..self.end).filter_map(|sequence| {
            match self.slots[(sequence % MOST_OUTSTANDING) as usize].state {
                State::Awaited { since } => Some(since.after(self.config.patience)),
                _ => None,
            }
        });
        awaited.chain([self.credit_due, self.repeat_due]).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Returns the next message for the gateway.
    pub fn next_message(&mut self, now: Instant) -> Option<Message> {
        if self.credit_due <= now {
            self.credit_due = now.after(self.config.heartbeat);
            let FarmNodeConfig { node, incarnation, window, .. } = self.config;
            return Some(Message::Credit(Credit { node, incarnation, window }));
        }
        let gateway_incarnation = self.gateway_incarnation?;
        let has_entries = !self.unsaid.is_empty() || self.repeat_due <= now;
        // If the last decisions are still to be repeated, the message can wait for that.
        if !has_entries && (!self.is_asked || self.repeat_due != Instant::FAR_FUTURE) {
            return None;
        }
        self.repeat_due = if self.unsaid.is_empty() { Instant::FAR_FUTURE } else { now.after(self.config.heartbeat) };
        self.is_asked = false;
        let (cumulative, bitmap) = self.decided();
        let FarmNodeConfig { node, gateway, incarnation, .. } = self.config;
        let head =
            Decisions { node, gateway, incarnation, gateway_incarnation, cumulative, bitmap, ..Decisions::default() };
        Some(Message::Decisions(if has_entries { self.with_entries(head) } else { head }))
    }

    /// Returns the decided numbers that the next message covers: a decision without room in it is not settled for the
    /// gateway.
    fn decided(&mut self) -> (u64, [u64; BITMAP_WORDS]) {
        let unsaid: Vec<u64> = self.unsaid.iter().skip(MOST_DECISIONS).map(|decision| decision.sequence).collect();
        let cumulative = unsaid.iter().copied().fold(self.cumulative, u64::min);
        let mut bitmap = [0; BITMAP_WORDS];
        for sequence in cumulative..self.end.min(cumulative + MOST_OUTSTANDING) {
            let bit = (sequence - cumulative) % MOST_OUTSTANDING;
            let is_decided = sequence < self.cumulative || self.slot(sequence).state == State::Decided;
            bitmap[(bit / 64) as usize] |= u64::from(is_decided && !unsaid.contains(&sequence)) << (bit % 64);
        }
        (cumulative, bitmap)
    }

    /// Adds new decisions first, then the latest earlier ones, so that each is sent three times; without new ones, all.
    fn with_entries(&mut self, mut decisions: Decisions) -> Decisions {
        let news = self.unsaid.len().min(MOST_DECISIONS);
        decisions.entries.extend(self.unsaid.drain(..news));
        let again = if news == 0 { MOST_DECISIONS } else { (2 * news).min(MOST_DECISIONS - news) };
        let before = self.said.iter().rev().take(again);
        decisions.entries.extend(before.copied());
        let excess = (self.said.len() + news).saturating_sub(MOST_DECISIONS);
        self.said.drain(..excess.min(self.said.len()));
        self.said.extend(&decisions.entries[..news]);
        decisions
    }
}
