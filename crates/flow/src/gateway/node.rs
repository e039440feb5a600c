//! The other end: a node of the farm puts events together, and tells what was decided so that little can get lost.
//!
//! For emulated nodes and tests; what decides, and when, is outside.

use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Incarnation, Instant};
use ropewalk_wire::gateway::{
    BITMAP_WORDS, Credit, Decision, Decisions, MOST_DECISIONS, MOST_OUTSTANDING, Message, PieceHead, Progress,
    PushView, Verdict,
};
use std::collections::VecDeque;

/// What a node is to be, towards one gateway (or one input queue of one).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FarmNodeConfig {
    /// Its number.
    pub node: u16,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// The gateway.
    pub gateway: u16,
    /// How many events it takes without a decision: at most 256.
    pub window: u16,
    /// How often it says that it is there, and what it decided last.
    pub heartbeat: Duration,
    /// How long it waits for an event, or for the rest of one, once it knows of it.
    pub patience: Duration,
    /// The longest event that it takes, in bytes.
    pub largest_event: u32,
}

/// What is under a sequence number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// Not known.
    Unknown,
    /// It exists; not all of it is here.
    Awaited { since: Instant },
    /// It is here.
    Whole,
    /// It is decided.
    Decided,
}

#[derive(Debug)]
struct Slot {
    state: State,
    head: PieceHead,
    bytes: Vec<u8>,
    /// Where parts begin that have come.
    parts: Vec<(u32, u32)>,
}

/// An event that has arrived whole.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ReceivedEvent<'a> {
    /// What is known of it; its sequence number is what a decision names.
    pub head: PieceHead,
    /// Raw banks in the order of sources.
    pub bytes: &'a [u8],
}

/// A node of the farm, as one gateway sees it.
#[derive(Debug)]
pub struct FarmNode {
    config: FarmNodeConfig,
    /// Which life of the gateway is known.
    gateway_incarnation: Option<Incarnation>,
    slots: Box<[Slot]>,
    /// Every number below is decided or not awaited.
    cumulative: u64,
    /// One past the latest number that is known of.
    end: u64,
    /// Numbers of events that are whole and were not shown yet.
    whole: VecDeque<u64>,
    unsaid: VecDeque<Decision>,
    said: VecDeque<Decision>,
    credit_due: Instant,
    repeat_due: Instant,
    /// The gateway said how far it is, and has not heard since how far this node is.
    is_asked: bool,
}

impl FarmNode {
    /// A node that has said and heard nothing.
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

    /// Events came.
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

    /// The gateway says which numbers exist, and gets in return how far this node is. Otherwise, once nothing is left
    /// to decide, the gateway would count events that were forgotten here, or whose decisions were lost, against this
    /// node's credit for ever.
    pub fn on_progress(&mut self, progress: &Progress, now: Instant) {
        if progress.gateway == self.config.gateway && self.is_in_life(progress.incarnation, progress.floor) {
            self.forget_below(progress.floor);
            self.expect_up_to(progress.next, now);
            self.is_asked = true;
        }
    }

    /// Whether this is the life of the gateway that is known, or a new one, with which everything begins again.
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

    /// Numbers below this one exist.
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

    /// The next event that has arrived whole.
    pub fn next_event(&mut self) -> Option<ReceivedEvent<'_>> {
        let sequence = loop {
            let sequence = self.whole.pop_front()?;
            // The gateway may have forgotten it meanwhile.
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

    /// Time passes: what has not come in time is said not to have been received.
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

    /// When something is due that time alone brings.
    pub fn next_deadline(&self) -> Instant {
        let awaited = (self.cumulative..self.end).filter_map(|sequence| {
            match self.slots[(sequence % MOST_OUTSTANDING) as usize].state {
                State::Awaited { since } => Some(since.after(self.config.patience)),
                _ => None,
            }
        });
        awaited.chain([self.credit_due, self.repeat_due]).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// The next message for the gateway.
    pub fn next_message(&mut self, now: Instant) -> Option<Message> {
        if self.credit_due <= now {
            self.credit_due = now.after(self.config.heartbeat);
            let FarmNodeConfig { node, incarnation, window, .. } = self.config;
            return Some(Message::Credit(Credit { node, incarnation, window }));
        }
        let gateway_incarnation = self.gateway_incarnation?;
        let has_entries = !self.unsaid.is_empty() || self.repeat_due <= now;
        // Where the last decisions are still to be repeated, that is soon enough.
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

    /// What is decided, as far as the next message has said it: a decision that has no room in that is not settled for the
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

    /// New decisions first, then the latest ones of before: so many that each is said three times, or all where there is
    /// nothing new.
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
