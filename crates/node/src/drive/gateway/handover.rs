//! Two queues between two threads, with a bell at each end: sets of events go over, and come back empty.

use ropewalk_flow::gateway::EventSet;
use ropewalk_io::Doorbell;
use ropewalk_terms::flaws::{Flaw, is_planted};
use rtrb::{Consumer, Producer, RingBuffer};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What one end says to the other one beside its sets.
#[derive(Debug, Default)]
struct Word {
    /// Nothing more comes from there.
    is_closed: AtomicBool,
    /// A node is there.
    has_nodes: AtomicBool,
}

/// One end of the line.
#[derive(Debug)]
pub(super) struct End {
    to: Producer<EventSet>,
    from: Consumer<EventSet>,
    own_bell: Arc<Doorbell>,
    other_bell: Arc<Doorbell>,
    own_word: Arc<Word>,
    other_word: Arc<Word>,
    /// What the other end had said when this turn began: closed, nodes.
    seen: (bool, bool),
    /// It said that it sleeps.
    is_asleep: bool,
}

/// A line with room for so many sets in either direction: all that there are.
pub(super) fn line(sets: usize) -> io::Result<(End, End)> {
    let ((to_there, from_here), (to_here, from_there)) = (RingBuffer::new(sets), RingBuffer::new(sets));
    let bells = [Arc::new(Doorbell::new()?), Arc::new(Doorbell::new()?)];
    let words = [Arc::<Word>::default(), Arc::<Word>::default()];
    let end = |to, from, own: usize| End {
        to,
        from,
        own_bell: Arc::clone(&bells[own]),
        other_bell: Arc::clone(&bells[1 - own]),
        own_word: Arc::clone(&words[own]),
        other_word: Arc::clone(&words[1 - own]),
        seen: (false, false),
        is_asleep: false,
    };
    Ok((end(to_there, from_there, 0), end(to_here, from_here, 1)))
}

impl End {
    /// Gives the other end a set. To be followed by [`End::ring`].
    pub(super) fn give(&mut self, set: EventSet) {
        self.to.push(set).expect("there is room for all sets that there are");
    }

    /// Wakes the other end if it sleeps.
    pub(super) fn ring(&self) {
        if !is_planted(Flaw::BellForgotten) {
            self.other_bell.notify();
        }
    }

    /// The next set that the other end gave.
    pub(super) fn take(&mut self) -> Option<EventSet> {
        self.from.pop().ok()
    }

    /// Nothing more is given from here, and what was is there.
    pub(super) fn close(&self) {
        self.own_word.is_closed.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether the other end has closed: what it gave is all there is.
    pub(super) fn is_closed(&self) -> bool {
        self.other_word.is_closed.load(Ordering::Acquire)
    }

    /// Tells the other end whether a node is there.
    pub(super) fn set_has_nodes(&self, has_nodes: bool) {
        if !has_nodes && is_planted(Flaw::NodesGoneUntold) {
            return;
        }
        if self.own_word.has_nodes.swap(has_nodes, Ordering::Relaxed) != has_nodes {
            self.ring();
        }
    }

    /// Whether the other end says that a node is there.
    pub(super) fn has_nodes(&self) -> bool {
        self.other_word.has_nodes.load(Ordering::Relaxed)
    }

    /// Before the thread sleeps: false if something is here to be taken, or the other end has said something since this turn
    /// began.
    pub(super) fn fall_asleep(&mut self) -> bool {
        self.own_bell.arm();
        self.is_asleep = true;
        // Looked at after the word was left: whoever gives or says something later rings.
        self.from.is_empty() && (self.is_closed(), self.has_nodes()) == self.seen
    }

    /// The thread is awake, and its turn begins.
    pub(super) fn wake(&mut self) {
        self.seen = (self.is_closed(), self.has_nodes());
        if core::mem::take(&mut self.is_asleep) {
            self.own_bell.disarm();
            self.own_bell.silence();
        }
    }

    /// Whether the other end has rung since this one fell asleep.
    pub(super) fn has_rung(&self) -> bool {
        self.own_bell.has_rung()
    }

    /// Readable when the other end has rung.
    pub(super) fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.own_bell.descriptor()
    }
}

impl Drop for End {
    /// Whoever goes without a word, because its thread panicked, says this one: the other half must not wait for it.
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_goes_without_a_word_has_closed_and_wakes_the_other_one() {
        let (mut here, there) = line(2).expect("bells");
        assert!(here.fall_asleep() && !here.has_rung() && !here.is_closed());
        drop(there);
        assert!(here.has_rung() && here.is_closed());
        here.wake();
        assert!(!here.has_rung());
    }

    #[test]
    fn what_is_said_between_a_turn_and_sleep_is_slept_over_by_nobody() {
        let (mut here, there) = line(2).expect("bells");
        here.wake();
        there.set_has_nodes(true);
        assert!(!here.has_rung() && !here.fall_asleep(), "nobody rings for who is awake");
        here.wake();
        assert!(here.has_nodes() && here.fall_asleep());
    }
}
