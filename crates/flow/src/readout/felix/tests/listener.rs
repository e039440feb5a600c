//! Somebody beside the readout unit who gets the chunks of a card.

use super::card::{LINKS, Rig, TIMEOUT, elink};
use super::*;
use crate::messages::Fragment;
use ropewalk_memory::Payload;
use ropewalk_memory::ring::RingReader;

/// Takes whole batches while it has room for their chunks, and keeps these if it is told to.
#[derive(Default)]
struct Slow {
    room: usize,
    keeps: bool,
    kept: Vec<Payload>,
    taken: Vec<(ELink, u64)>,
}

impl Listener for Slow {
    fn take(&mut self, batch: &ChunkBatch, ring: &mut RingReader) -> bool {
        let chunks: Vec<_> = batch.chunks().collect();
        if chunks.len() > self.room {
            return false;
        }
        self.room -= chunks.len();
        for (elink, chunk) in chunks {
            let Chunk::Short { piece, .. } = chunk else { panic!("all chunks are short") };
            let mut payload = Payload::default();
            ring.append(piece.position, piece.length, &mut payload);
            self.taken.extend(EventRule::USUAL.number(&payload).map(|number| (elink, number)));
            self.kept.extend(Some(payload).filter(|_| self.keeps));
        }
        true
    }

    fn holds(&self) -> bool {
        !self.kept.is_empty()
    }
}

fn expect_whole(fragments: &[Fragment]) {
    assert_eq!(fragments.len(), LINKS as usize);
    assert!(fragments.iter().all(|fragment| fragment.meta.missing_cause().is_none()), "{fragments:?}");
}

#[test]
fn a_listener_gets_what_the_readout_unit_gets_and_each_block_is_decoded_once() {
    let (mut rig, mut listener) = (Rig::new(64, 100), Slow { room: usize::MAX, ..Slow::default() });
    for number in 1..=20 {
        (0..LINKS).for_each(|link| rig.say(link, number, 50));
        rig.turn_with(&mut listener);
        assert!(rig.is_settled(u64::from(number)));
        rig.release(u64::from(number), 1);
    }
    let expected: Vec<_> = (1..=20).flat_map(|number| (0..LINKS).map(move |link| (elink(link), number))).collect();
    assert_eq!(listener.taken, expected);
    assert_eq!(rig.input.counts().chunks.chunks, expected.len() as u64);
}

/// What stands behind the batch that it has no room for is not read: its sources are not absent.
#[test]
fn a_listener_that_is_waited_for_holds_the_card_up_and_nobody_is_missed_for_it() {
    let (mut rig, mut listener) = (Rig::new(64, 100), Slow::default());
    (0..LINKS - 1).for_each(|link| rig.say(link, 1, 50));
    rig.turn_with(&mut listener);
    rig.say(LINKS - 1, 1, 50);
    for _ in 0..100 {
        rig.now = rig.now.after(TIMEOUT);
        rig.turn_with(&mut listener);
    }
    assert!(!rig.is_settled(1) && listener.taken.is_empty());
    listener.room = usize::MAX;
    rig.turn_with(&mut listener);
    expect_whole(&rig.fragments(1).expect("it is settled"));
    assert_eq!(listener.taken.len(), LINKS as usize);
}

#[test]
fn where_a_listener_keeps_the_ring_full_nobody_is_missed_for_it() {
    let (mut rig, mut listener) = (Rig::new(4, 100), Slow { room: usize::MAX, keeps: true, ..Slow::default() });
    (0..LINKS).for_each(|link| rig.say(link, 1, 50));
    rig.say(0, 2, 50);
    rig.turn_with(&mut listener);
    rig.release(1, 1);
    rig.turn_with(&mut listener);
    for _ in 0..100 {
        rig.now = rig.now.after(TIMEOUT);
        rig.turn_with(&mut listener);
    }
    assert!(rig.input.is_starved(), "{:?}", rig.input.ring());
    assert!(!rig.is_settled(2));
    listener.kept.clear();
    rig.turn_with(&mut listener);
    (1..LINKS).for_each(|link| rig.say(link, 2, 50));
    rig.turn_with(&mut listener);
    expect_whole(&rig.fragments(2).expect("it is settled"));
}

#[test]
fn a_card_that_ends_is_not_ended_before_its_listener_has_everything() {
    let (mut rig, mut listener) = (Rig::new(64, 100), Slow::default());
    (0..LINKS).for_each(|link| rig.say(link, 1, 50));
    let _ = rig.writer.close();
    rig.turn_with(&mut listener);
    assert!(rig.is_settled(1) && !rig.input.is_ended());
    listener.room = usize::MAX;
    rig.turn_with(&mut listener);
    assert!(rig.input.is_ended());
}
