//! A filter sees fragments where the builder unit's endpoint received them: address by address, nothing was moved in between.

use super::front_end::content;
use super::world::{Plan, World, pool};
use ropewalk_engine::{Filtering, LocalFilter, RESULT_BYTES, Said};
use ropewalk_flow::builder::EventView;
use ropewalk_flow::filter::{Decision, Streams};
use ropewalk_io::simulated::{Faults, Simulated};
use ropewalk_io::{Dispatcher, Event};
use ropewalk_memory::Staging;
use ropewalk_terms::{Instant, TriggerBits};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the endpoints of builder units received, and what filters saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// In the order in which it came: the address, and the bytes that lay there.
    received: Vec<(usize, Vec<u8>)>,
    events: u64,
    pieces: u64,
}

impl Seen {
    /// Whether an endpoint received exactly these bytes at exactly this address, and nothing else there since.
    fn lies_as_received(&self, piece: &[u8]) -> bool {
        let (mut address, mut rest) = (piece.as_ptr().addr(), piece);
        while !rest.is_empty() {
            let newest_first = self.received.iter().rev();
            let mut there = newest_first.filter(|(at, bytes)| (*at..at + bytes.len()).contains(&address));
            let Some((at, bytes)) = there.next() else { return false };
            let received = &bytes[address - at..];
            let length = received.len().min(rest.len());
            if received[..length] != rest[..length] {
                return false;
            }
            (address, rest) = (address + length, &rest[length..]);
        }
        true
    }
}

impl Watch {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A filter that accepts everything, and looks where each fragment lies; for a builder unit with so many slots.
    pub(crate) fn filtering(&self, seed: u64, slots: u32) -> Filtering {
        let results = Staging::new(pool("results", RESULT_BYTES, slots as usize + 1));
        Filtering::here(Box::new(Observer { watch: self.clone(), seed }), Streams::everything(), results, slots)
    }
}

struct Observer {
    watch: Watch,
    seed: u64,
}

impl LocalFilter for Observer {
    fn decide(&mut self, event: &EventView<'_>, _: &mut Said) -> Option<Decision> {
        let mut seen = self.watch.seen();
        for fragment in event.fragments() {
            let (source, number) = (fragment.meta.source, event.key.number());
            let whole: Vec<u8> = fragment.payload.pieces().flatten().copied().collect();
            assert_eq!(whole, content(self.seed, source, number), "event {number}, source {source}");
            assert!(!seen.lies_as_received(&whole), "a copy lies elsewhere");
            for piece in fragment.payload.pieces() {
                assert!(seen.lies_as_received(piece), "event {number}, source {source} was moved");
                seen.pieces += 1;
            }
        }
        seen.events += 1;
        Some(Decision { accept: true, triggers: TriggerBits::default() })
    }
}

/// A builder unit's connections, which note where everything is received if somebody watches.
pub(crate) struct Watched {
    pub(crate) inner: Simulated,
    pub(crate) watch: Option<Watch>,
}

impl Dispatcher for Watched {
    ropewalk_io::pass_on!(
        inner:
        listen, address_of, connect, accept, reject, set_owner, pool, pool_mut, post_block, set_reading, is_dry, peek, peer_has_ended, has_waiting,
        send, set_send_limits, send_room, queued, set_half_close, finish, close, abort, prepare_wait, wait_descriptor,
        next_deadline
    );

    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        let known = events.len();
        let work = self.inner.poll(now, events);
        if let Some(watch) = &self.watch {
            let mut seen = watch.seen();
            for event in &events[known..] {
                if let Event::Received { slice, .. } = event {
                    seen.received.push((slice.as_ptr().addr(), slice.to_vec()));
                }
            }
        }
        work
    }
}

#[test]
fn a_filter_sees_every_fragment_at_the_address_at_which_it_was_received() {
    // Whole messages at once, and bytes that come as they like.
    let torn = Faults { short_read: 0.5, window: 3000, segment: 1000, ..Faults::default() };
    for (seed, network) in [(1, Faults::default()), (2, torn)] {
        let watch = Watch::default();
        let mut world = World::new(Plan { network, watch: Some(watch.clone()), ..Plan::new(seed) });
        world.run_to_end();
        world.expect_lossless();
        let seen = watch.seen();
        assert_eq!(seen.events, world.plan.events);
        assert!(seen.pieces >= seen.events * world.plan.all_sources().len() as u64, "{} pieces", seen.pieces);
    }
}
