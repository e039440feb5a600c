//! From waiting events to pushes: selects the events for a node and the bytes of each push.
//!
//! ```text
//!  plan   | push head | piece head | fragments of an event ... | piece head | fragments ... |     at most an MTU
//! ```
//! Events that fit into a push are not cut; a push holds as many events as fit and as the node has credit for. A longer
//! event starts a new push, and the next events use the space that its last part leaves. A plan lists where the bytes
//! lie; the caller sends them as a list of pieces or copies them into a transmit buffer. The plan is kept until it was
//! sent.

use super::config::FarmConfig;
use super::farm::{Farm, Held, is_waiting};
use super::set::{Bytes, FragmentPlace, GatheredEvent, InPieces, Range, Stage, append_range, bytes_of_all, head_of};
use crate::messages::append;
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{EventKey, Incarnation, Instant};
use ropewalk_wire::gateway::{
    Copying, Credit, MOST_OUTSTANDING, PIECE_HEAD_BYTES, PUSH_HEAD_BYTES, PieceHead, PushHead, copy_piece,
};
use std::collections::VecDeque;

/// Marks a part of the heads.
const HEADS: u16 = u16::MAX;

/// Bytes of a push: of the heads, or of a source's packet in a set.
#[derive(Copy, Clone, Debug)]
struct Part {
    slot: u16,
    source: u16,
    start: u32,
    length: u32,
}

/// The event that is being put into pushes.
#[derive(Copy, Clone, Debug)]
struct Current {
    place: EventPlace,
    /// The node and the sequence number, once the event has begun.
    to: Option<(u16, u64)>,
    total: u32,
    /// Number of bytes already in pushes.
    offset: u32,
    /// Index of the next fragment, and the number of its bytes already in pushes.
    fragment: usize,
    inside: u16,
}

/// The next push, and the event that continues in the one after it.
#[derive(Debug)]
pub(super) struct Plan {
    largest: usize,
    node: Option<u16>,
    length: usize,
    pieces: u16,
    heads: Vec<u8>,
    parts: Vec<Part>,
    /// The sets whose bytes it contains.
    slots: Vec<u16>,
    current: Option<Current>,
    fragments: Vec<FragmentPlace>,
}

impl Plan {
    /// Creates a plan for pushes of this size, from sets of this number of sources.
    pub(super) fn new(largest: usize, sources: usize) -> Self {
        let pieces = largest / (PIECE_HEAD_BYTES + 1) + 1;
        Self {
            largest,
            node: None,
            length: 0,
            pieces: 0,
            heads: Vec::with_capacity(PUSH_HEAD_BYTES + pieces * PIECE_HEAD_BYTES),
            parts: Vec::with_capacity(largest + 2 * pieces),
            slots: Vec::with_capacity(pieces),
            current: None,
            fragments: Vec::with_capacity(sources),
        }
    }

    /// Whether it contains bytes of a set.
    pub(super) fn needs(&self, slot: u16) -> bool {
        self.slots.contains(&slot)
    }

    const fn room(&self) -> usize {
        self.largest - self.length
    }

    fn begin(&mut self, node: u16) {
        (self.node, self.length, self.pieces) = (Some(node), PUSH_HEAD_BYTES, 0);
        self.heads.clear();
        self.heads.extend_from_slice(&[0; PUSH_HEAD_BYTES]);
        self.parts.clear();
        self.slots.clear();
        self.parts.push(Part { slot: HEADS, source: 0, start: 0, length: PUSH_HEAD_BYTES as u32 });
    }

    /// Appends the next bytes of the current event, as many as fit.
    fn add_piece(&mut self, current: &mut Current, mut head: PieceHead) {
        let mut left = (current.total - current.offset).min((self.room() - PIECE_HEAD_BYTES) as u32);
        (head.total, head.offset, head.length) = (current.total, current.offset, left);
        let start = self.heads.len() as u32;
        self.heads.extend_from_slice(&head.to_bytes());
        self.parts.push(Part { slot: HEADS, source: 0, start, length: PIECE_HEAD_BYTES as u32 });
        self.length += PIECE_HEAD_BYTES + left as usize;
        self.pieces += 1;
        current.offset += left;
        let Self { fragments, parts, .. } = self;
        for &FragmentPlace { source, start, length } in &fragments[current.fragment..] {
            if left == 0 {
                break;
            }
            let taken = left.min(u32::from(length - current.inside));
            let start = u32::from(start) + u32::from(current.inside);
            // There is room: each part has at least one byte.
            append(parts, Part { slot: current.place.slot, source, start, length: taken });
            left -= taken;
            current.inside += taken as u16;
            if current.inside == length {
                (current.fragment, current.inside) = (current.fragment + 1, 0);
            }
        }
        if self.slots.last() != Some(&current.place.slot) {
            self.slots.push(current.place.slot);
        }
    }
}

impl Farm {
    /// Returns the node of the next push, if there is one. The same push is offered until it was sent.
    pub fn next_push(&mut self) -> Option<u16> {
        if self.plan.node.is_none() {
            self.make_plan();
        }
        self.plan.node
    }

    /// Returns the push of [`Farm::next_push`].
    pub fn push_view(&self) -> PushBytes<'_> {
        PushBytes { plan: &self.plan, slots: &self.slots }
    }

    /// Records that the push was passed to the transport.
    pub fn sent(&mut self, now: Instant) {
        if let Some(node) = self.plan.node.take().and_then(|node| self.nodes.get(node)) {
            node.told = Some(now);
        }
        while let Some(slot) = self.plan.slots.pop() {
            self.release(slot);
        }
    }

    fn make_plan(&mut self) {
        let Some((node, mut current)) = self.next_event() else { return };
        self.plan.begin(node);
        loop {
            self.add(node, &mut current);
            if current.offset < current.total {
                self.plan.current = Some(current);
                break;
            }
            match self.following(node) {
                Some(next) => current = next,
                None => break,
            }
        }
        self.finish_plan(node);
    }

    fn finish_plan(&mut self, node: u16) {
        if self.plan.current.is_none_or(|current| current.to.is_none()) {
            self.nodes.rotate();
        }
        let (gateway, incarnation, pieces) = (self.gateway, self.incarnation, self.plan.pieces);
        let floor = self.nodes.get(node).map_or(0, |node| node.awaited_from());
        let head = PushHead { gateway, incarnation, pieces, floor };
        let head = head.to_bytes(self.plan.length - PUSH_HEAD_BYTES);
        self.plan.heads[..PUSH_HEAD_BYTES].copy_from_slice(&head);
    }

    /// Returns the beginning of a new push: the rest of a cut event, or an event for the node whose turn it is.
    fn next_event(&mut self) -> Option<(u16, Current)> {
        if let Some(current) = self.plan.current.take_if(|current| current.to.is_some())
            && let Some((node, sequence)) = current.to
        {
            if self.is_with(current.place, node, sequence) {
                return Some((node, current));
            }
            // Decided or taken back: the rest of the event is not sent.
            self.nodes.rotate();
        }
        let node = self.nodes.first_ready()?;
        Some((node, self.next_waiting()?))
    }

    /// Returns another event for the same push, if it fits and the node has credit.
    fn following(&mut self, node: u16) -> Option<Current> {
        if self.nodes.get(node).is_none_or(|node| node.credit() == 0) || self.plan.room() <= PIECE_HEAD_BYTES {
            return None;
        }
        let next = self.next_waiting()?;
        let fits = next.total as usize + PIECE_HEAD_BYTES <= self.plan.room();
        if !fits {
            self.plan.current = Some(next);
        }
        fits.then_some(next)
    }

    /// Returns the next waiting event, gathered, of the first flow that has one.
    fn next_waiting(&mut self) -> Option<Current> {
        if let Some(current) = self.plan.current.take()
            && is_waiting(current.place, &self.slots)
        {
            return Some(current);
        }
        let slots = &self.slots;
        let next = |flow: &mut super::farm::FarmFlow| {
            core::iter::from_fn(|| flow.waiting.pop_front()).find(|place| is_waiting(*place, slots))
        };
        let place = self.flows.iter_mut().find_map(next)?;
        let held = self.slots[usize::from(place.slot)].as_mut()?;
        let total = held.set.gather(place.event, &mut self.plan.fragments);
        Some(Current { place, to: None, total, offset: 0, fragment: 0, inside: 0 })
    }

    fn is_with(&mut self, place: EventPlace, node: u16, sequence: u64) -> bool {
        let stage = self.held(place).map(|held| held.set.events[usize::from(place.event)].stage);
        stage == Some(Stage::Sent { node, sequence })
    }

    /// Adds an event, or its next part, to the push.
    fn add(&mut self, node: u16, current: &mut Current) {
        let place = current.place;
        let Some(held) = self.slots[usize::from(place.slot)].as_mut() else { return };
        let event = &mut held.set.events[usize::from(place.event)];
        let sequence = match current.to {
            Some((_, sequence)) => sequence,
            None => {
                let Some(known) = self.nodes.get(node) else { return };
                let sequence = known.assign(place);
                current.to = Some((node, sequence));
                event.stage = Stage::Sent { node, sequence };
                if event.attempt.0 == 0 || !is_planted(Flaw::PushAttemptKept) {
                    event.attempt.0 = event.attempt.0.saturating_add(1);
                }
                let account = &mut self.flows[usize::from(held.set.flow)].account;
                account.pushed_bytes += u64::from(current.total);
                *(if event.attempt.0 == 1 { &mut account.pushed } else { &mut account.pushed_again }) += 1;
                sequence
            }
        };
        let head = PieceHead { sequence, ..head_of(&held.set, place.event) };
        self.plan.add_piece(current, head);
    }

    /// Returns the next accepted event for storage, if there is one. The same event is offered until it was stored.
    pub fn next_stored(&mut self) -> Option<EventKey> {
        if self.storing.is_none() {
            let place = self.flows.iter_mut().find_map(|flow| flow.stored.pop_front())?;
            let held = self.slots[usize::from(place.slot)].as_mut()?;
            held.set.gather(place.event, &mut self.stored_fragments);
            self.storing = Some(place);
        }
        let place = self.storing?;
        let held = self.slots[usize::from(place.slot)].as_ref()?;
        Some(Self::key(held, place.event))
    }

    /// Returns the event of [`Farm::next_stored`] with its head.
    pub fn stored_view(&self) -> Option<GatheredEvent<'_>> {
        let place = self.storing?;
        let held = self.slots[usize::from(place.slot)].as_ref()?;
        Some(GatheredEvent::new(&held.set, place.event, &self.stored_fragments))
    }

    /// Records that no stream selects the event of [`Farm::next_stored`]; [`Farm::stored`] must follow.
    pub fn unselected(&mut self) {
        let Some(place) = self.storing else { return };
        if let Some(held) = self.slots[usize::from(place.slot)].as_mut() {
            held.ended.unselected += 1;
        }
    }

    /// Records that storage has the event.
    pub fn stored(&mut self) {
        let bytes = u64::from(bytes_of_all(&self.stored_fragments));
        let Some(place) = self.storing.take() else { return };
        if let Some(held) = self.slots[usize::from(place.slot)].as_mut() {
            held.leaving -= 1;
            let account = &mut self.flows[usize::from(held.set.flow)].account;
            (account.stored, account.stored_bytes) = (account.stored + 1, account.stored_bytes + bytes);
        }
        self.release(place.slot);
    }
}

/// A push as references to its bytes.
#[derive(Copy, Clone, Debug)]
pub struct PushBytes<'a> {
    plan: &'a Plan,
    slots: &'a [Option<Held>],
}

/// Returns the location of a part of a plan.
#[inline]
fn bytes_of<'a>(part: &Part, plan: &'a Plan, slots: &'a [Option<Held>]) -> Bytes<'a> {
    let (start, length) = (part.start as usize, part.length as usize);
    match slots.get(usize::from(part.slot)) {
        Some(Some(held)) => Bytes::In(Range::new(&held.set.packets[usize::from(part.source)], start, length)),
        _ => Bytes::Here(&plan.heads[start..start + length]),
    }
}

impl<'a> PushBytes<'a> {
    /// Returns the size of the whole message in bytes.
    pub const fn length(&self) -> usize {
        self.plan.length
    }

    /// Returns the number of pieces if every packet is contiguous; otherwise there may be more.
    pub const fn piece_count(&self) -> usize {
        self.plan.parts.len()
    }

    /// Returns the bytes in order, for a gathering system call.
    #[inline]
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let Self { plan, slots } = *self;
        InPieces::new(plan.parts.iter().map(move |part| bytes_of(part, plan, slots)))
    }

    /// Appends the bytes as slices: heads are staged, packets stay in place. False if there was no room for the heads;
    /// the appended slices are then useless.
    pub fn append_slices(&self, heads: &mut Staging, out: &mut Vec<Slice>) -> bool {
        for part in &self.plan.parts {
            let (start, length) = (part.start as usize, part.length as usize);
            if part.slot == HEADS {
                let Some(head) = heads.write(&self.plan.heads[start..start + length]) else { return false };
                out.push(head);
            } else if let Some(held) = self.slots.get(usize::from(part.slot)).and_then(Option::as_ref) {
                append_range(&held.set.packets[usize::from(part.source)], start, length, out);
            }
        }
        true
    }

    /// Copies all bytes to the front of a transmit buffer and returns their number; `None` if the buffer is too short.
    #[inline]
    pub fn copy_to(&self, buffer: &mut [u8], copying: Copying) -> Option<usize> {
        let mut rest = buffer;
        for part in &self.plan.parts {
            match bytes_of(part, self.plan, self.slots) {
                Bytes::Here(bytes) => rest = copy_piece(rest, bytes, copying)?,
                // Most packets are contiguous and need no search for the next slice.
                Bytes::In(mut range) => {
                    while !range.is_empty()
                        && let Some(piece) = range.take_piece()
                    {
                        rest = copy_piece(rest, piece, copying)?;
                    }
                }
            }
        }
        Some(self.length())
    }
}

/// An event in the farm: the slot of its set, its index, and the serial number of the set, because slots are reused.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct EventPlace {
    pub(super) slot: u16,
    pub(super) event: u16,
    pub(super) serial: u32,
}

/// State of a sequence number.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum Entry {
    /// Free: the event is decided.
    #[default]
    Settled,
    /// The node has the event; its decision is awaited.
    Awaited(EventPlace),
    /// The node may have the event, which was decided by default; the flow of the event.
    GivenUp(u8),
}

/// Result of settling a sequence number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Settled {
    /// A decision was awaited for this event.
    Awaited(EventPlace),
    /// The event was decided by default before; its flow.
    Late(u8),
    /// The event was not awaited.
    Unawaited,
}

/// A node of the farm.
#[derive(Debug)]
pub(super) struct Node {
    /// Incarnation of the connected node; `None` without one.
    incarnation: Option<Incarnation>,
    /// Maximum number of events that it may have.
    window: u64,
    /// Sequence number of the next event.
    pub(super) next: u64,
    /// Numbers below this one are settled.
    pub(super) floor: u64,
    /// Count of unsettled numbers.
    outstanding: u64,
    /// When it was last heard.
    heard: Instant,
    /// When the last message was sent to it; `None` before the first.
    pub(super) told: Option<Instant>,
    is_listed: bool,
    entries: Box<[Entry]>,
}

impl Node {
    fn new() -> Self {
        Self {
            incarnation: None,
            window: 0,
            next: 0,
            floor: 0,
            outstanding: 0,
            heard: Instant::ZERO,
            told: None,
            is_listed: false,
            entries: vec![Entry::Settled; MOST_OUTSTANDING as usize].into_boxed_slice(),
        }
    }

    /// Returns how many more events it may have now.
    pub(super) fn credit(&self) -> u64 {
        if self.incarnation.is_none() {
            return 0;
        }
        let (by_window, by_span) =
            (self.window.saturating_sub(self.outstanding), MOST_OUTSTANDING - (self.next - self.floor));
        if by_window < by_span && !is_planted(Flaw::PushBeyondCredit) { by_window } else { by_span }
    }

    pub(super) const fn is_present(&self) -> bool {
        self.incarnation.is_some()
    }

    /// Whether it was connected and fell silent.
    pub(super) fn is_away(&self) -> bool {
        self.incarnation.is_none() && self.heard > Instant::ZERO
    }

    /// Whether this is its known incarnation.
    pub(super) fn is_in(&self, incarnation: Incarnation) -> bool {
        self.incarnation == Some(incarnation)
    }

    const fn entry(&mut self, sequence: u64) -> &mut Entry {
        &mut self.entries[(sequence % MOST_OUTSTANDING) as usize]
    }

    /// Assigns the next number to an event; the node must have credit.
    fn assign(&mut self, place: EventPlace) -> u64 {
        debug_assert!(self.credit() > 0, "only a node with credit gets events");
        let sequence = self.next;
        *self.entry(sequence) = Entry::Awaited(place);
        self.next += 1;
        self.outstanding += 1;
        sequence
    }

    /// Settles a number for which the node answered.
    pub(super) fn settle(&mut self, sequence: u64) -> Settled {
        if sequence < self.floor || sequence >= self.next {
            return Settled::Unawaited;
        }
        let settled = match core::mem::take(self.entry(sequence)) {
            Entry::Settled => return Settled::Unawaited,
            Entry::Awaited(place) => Settled::Awaited(place),
            Entry::GivenUp(flow) => Settled::Late(flow),
        };
        self.outstanding -= 1;
        while self.floor < self.next && *self.entry(self.floor) == Entry::Settled {
            self.floor += 1;
        }
        settled
    }

    /// Records that the event was decided without the node, which keeps the event until it answers.
    pub(super) fn give_up(&mut self, sequence: u64, flow: u8) {
        if (self.floor..self.next).contains(&sequence) {
            *self.entry(sequence) = Entry::GivenUp(flow);
        }
    }

    /// Returns the number below which no decision is awaited.
    pub(super) fn awaited_from(&mut self) -> u64 {
        let awaited = (self.floor..self.next).find(|&sequence| matches!(self.entry(sequence), Entry::Awaited(_)));
        awaited.unwrap_or(self.next)
    }

    /// Returns the unsettled numbers, oldest first.
    pub(super) fn unsettled(&mut self) -> impl Iterator<Item = u64> + use<> {
        let unsettled: arrayvec::ArrayVec<u64, { MOST_OUTSTANDING as usize }> =
            (self.floor..self.next).filter(|&sequence| *self.entry(sequence) != Entry::Settled).collect();
        unsettled.into_iter()
    }

    /// Takes back all events, latest number first.
    pub(super) fn take_back(&mut self, mut visit: impl FnMut(EventPlace)) {
        for sequence in (self.floor..self.next).rev() {
            let entry = self.entry(sequence);
            if let Entry::Awaited(place) = *entry {
                visit(place);
            }
            if !is_planted(Flaw::StaleAttemptAccepted) {
                *entry = Entry::Settled;
            }
        }
        if is_planted(Flaw::StaleAttemptAccepted) {
            return;
        }
        (self.floor, self.outstanding) = (self.next, 0);
    }
}

/// Meaning of a credit message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Greeting {
    /// There is no node with this number, or the message is of an earlier incarnation.
    Ignored,
    /// The incarnation is known.
    Known,
    /// The node is new: all events of an earlier incarnation must be taken back.
    New,
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Nodes {
    nodes: Box<[Node]>,
    /// Nodes with credit, in the order in which they get events.
    ready: VecDeque<u16>,
    most_outstanding: u64,
}

impl Nodes {
    pub(super) fn new(config: &FarmConfig) -> Self {
        let count = usize::from(config.nodes);
        let mut ready = VecDeque::new();
        ready.reserve_exact(count);
        let nodes = core::iter::repeat_with(Node::new).take(count).collect();
        Self { nodes, ready, most_outstanding: u64::from(config.most_outstanding) }
    }

    pub(super) fn get(&mut self, node: u16) -> Option<&mut Node> {
        self.nodes.get_mut(usize::from(node))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    /// Handles the credit message of a node.
    pub(super) fn greet(&mut self, credit: &Credit, now: Instant) -> Greeting {
        let most = self.most_outstanding;
        let Some(node) = self.get(credit.node) else { return Greeting::Ignored };
        if node.incarnation.is_some_and(|known| known > credit.incarnation) {
            return Greeting::Ignored;
        }
        let is_known = node.incarnation.replace(credit.incarnation) == Some(credit.incarnation);
        (node.window, node.heard) = (u64::from(credit.window).min(most), now);
        if is_known {
            self.list(credit.node);
            return Greeting::Known;
        }
        node.told = None;
        Greeting::New
    }

    /// Records that a node was heard in its incarnation.
    pub(super) fn heard(&mut self, node: u16, now: Instant) {
        if let Some(node) = self.get(node) {
            node.heard = now;
        }
    }

    /// Returns the first node that has been silent too long, and marks it as away.
    pub(super) fn fall_silent(&mut self, before: impl Fn(Instant) -> bool) -> Option<u16> {
        let silent = self.nodes.iter().position(|node| node.is_present() && before(node.heard))?;
        self.nodes[silent].incarnation = None;
        Some(silent as u16)
    }

    /// Returns when the present node that has been silent longest was last heard.
    pub(super) fn least_heard(&self) -> Option<Instant> {
        self.nodes.iter().filter(|node| node.is_present()).map(|node| node.heard).min()
    }

    /// Adds a node that may have credit now.
    pub(super) fn list(&mut self, node: u16) {
        let Some(known) = self.nodes.get_mut(usize::from(node)) else { return };
        if !known.is_listed && known.credit() > 0 {
            known.is_listed = true;
            self.ready.push_back(node);
        }
    }

    /// Returns the node whose turn it is; it stays at the front.
    fn first_ready(&mut self) -> Option<u16> {
        while let Some(&node) = self.ready.front() {
            if self.nodes[usize::from(node)].credit() > 0 {
                return Some(node);
            }
            self.ready.pop_front();
            self.nodes[usize::from(node)].is_listed = false;
        }
        None
    }

    /// Moves the node at the front to the end.
    fn rotate(&mut self) {
        if let Some(node) = self.ready.pop_front() {
            self.nodes[usize::from(node)].is_listed = false;
            self.list(node);
        }
    }
}
