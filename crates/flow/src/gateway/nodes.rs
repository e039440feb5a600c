//! What a gateway knows of each node: its life, its credit, the events that it has.

use super::config::FarmConfig;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Incarnation, Instant};
use ropewalk_wire::gateway::{Credit, MOST_OUTSTANDING};
use std::collections::VecDeque;

/// An event that is held: the slot of its set, which of its events, and the set's serial number, since slots are used again.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct EventPlace {
    pub(super) slot: u16,
    pub(super) event: u16,
    pub(super) serial: u32,
}

/// What is under a sequence number.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum Entry {
    /// Nothing any more: it is decided.
    #[default]
    Settled,
    /// The node has it, and a decision is awaited.
    Awaited(EventPlace),
    /// The node may have it, but it was decided by default: an event of this flow.
    GivenUp(u8),
}

/// What came of a sequence number that a node tells about.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Settled {
    /// A decision was awaited for this event.
    Awaited(EventPlace),
    /// It was decided by default before: an event of this flow.
    Late(u8),
    /// Nobody waited.
    Nobody,
}

/// One node.
#[derive(Debug)]
pub(super) struct Node {
    /// Of the node that is there; none while nobody is.
    incarnation: Option<Incarnation>,
    /// How many events it may have.
    window: u64,
    /// The number that the next event will have.
    pub(super) next: u64,
    /// Numbers below this one are settled.
    pub(super) floor: u64,
    /// Numbers that are not.
    outstanding: u64,
    /// When it said something.
    heard: Instant,
    /// When it was told something; never, at first.
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

    /// How many more events it may have now.
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

    /// Whether it speaks in the life that is known.
    pub(super) fn is_in(&self, incarnation: Incarnation) -> bool {
        self.incarnation == Some(incarnation)
    }

    const fn entry(&mut self, sequence: u64) -> &mut Entry {
        &mut self.entries[(sequence % MOST_OUTSTANDING) as usize]
    }

    /// Gives an event the next number; there must be credit.
    pub(super) fn assign(&mut self, place: EventPlace) -> u64 {
        debug_assert!(self.credit() > 0, "only who has credit gets events");
        let sequence = self.next;
        *self.entry(sequence) = Entry::Awaited(place);
        self.next += 1;
        self.outstanding += 1;
        sequence
    }

    /// The node told about a number: it is settled from now on.
    pub(super) fn settle(&mut self, sequence: u64) -> Settled {
        if sequence < self.floor || sequence >= self.next {
            return Settled::Nobody;
        }
        let settled = match core::mem::take(self.entry(sequence)) {
            Entry::Settled => return Settled::Nobody,
            Entry::Awaited(place) => Settled::Awaited(place),
            Entry::GivenUp(flow) => Settled::Late(flow),
        };
        self.outstanding -= 1;
        while self.floor < self.next && *self.entry(self.floor) == Entry::Settled {
            self.floor += 1;
        }
        settled
    }

    /// The event was decided without the node, which goes on having it until it says something.
    pub(super) fn give_up(&mut self, sequence: u64, flow: u8) {
        if (self.floor..self.next).contains(&sequence) {
            *self.entry(sequence) = Entry::GivenUp(flow);
        }
    }

    /// Below which number no decision is awaited.
    pub(super) fn awaited_from(&mut self) -> u64 {
        let awaited = (self.floor..self.next).find(|&sequence| matches!(self.entry(sequence), Entry::Awaited(_)));
        awaited.unwrap_or(self.next)
    }

    /// Numbers that are not settled, oldest first.
    pub(super) fn unsettled(&mut self) -> impl Iterator<Item = u64> + use<> {
        let unsettled: arrayvec::ArrayVec<u64, { MOST_OUTSTANDING as usize }> =
            (self.floor..self.next).filter(|&sequence| *self.entry(sequence) != Entry::Settled).collect();
        unsettled.into_iter()
    }

    /// Takes everything back, latest number first.
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

/// What a credit means.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Greeting {
    /// Nobody by this number, or an earlier life.
    Ignored,
    /// The same as before.
    Known,
    /// It was not there: everything that an earlier life had is to be taken back.
    New,
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Nodes {
    nodes: Box<[Node]>,
    /// Those with credit, in the order in which they are fed.
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

    /// A node says that it is there.
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

    /// A node said something in its life.
    pub(super) fn heard(&mut self, node: u16, now: Instant) {
        if let Some(node) = self.get(node) {
            node.heard = now;
        }
    }

    /// The first node that said nothing for so long; it is gone.
    pub(super) fn fall_silent(&mut self, before: impl Fn(Instant) -> bool) -> Option<u16> {
        let silent = self.nodes.iter().position(|node| node.is_present() && before(node.heard))?;
        self.nodes[silent].incarnation = None;
        Some(silent as u16)
    }

    /// When somebody was heard, of those who are there: the earliest.
    pub(super) fn least_heard(&self) -> Option<Instant> {
        self.nodes.iter().filter(|node| node.is_present()).map(|node| node.heard).min()
    }

    /// A node may have credit now.
    pub(super) fn list(&mut self, node: u16) {
        let Some(known) = self.nodes.get_mut(usize::from(node)) else { return };
        if !known.is_listed && known.credit() > 0 {
            known.is_listed = true;
            self.ready.push_back(node);
        }
    }

    /// The node whose turn it is: it stays at the front.
    pub(super) fn first_ready(&mut self) -> Option<u16> {
        while let Some(&node) = self.ready.front() {
            if self.nodes[usize::from(node)].credit() > 0 {
                return Some(node);
            }
            self.ready.pop_front();
            self.nodes[usize::from(node)].is_listed = false;
        }
        None
    }

    /// The one at the front had its turn.
    pub(super) fn rotate(&mut self) {
        if let Some(node) = self.ready.pop_front() {
            self.nodes[usize::from(node)].is_listed = false;
            self.list(node);
        }
    }
}
