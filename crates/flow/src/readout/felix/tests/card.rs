//! A card's ring up to the accounts of its sources, with a second listener, and the headers of chunks.

use super::*;
use crate::messages::{Fragment, FragmentFlags, Message, Release, ReleaseEntry, Start};
use crate::readout::{Readout, ReadoutConfig, SourceConfig};
use crate::source::felix::{
    CHUNK_HEAD_BYTES, ChunkOrigin, EmulatedCard, EmulatedCardConfig, FAULTS, Fault, FaultShare, Faults,
};
use crate::source::{SizeDistribution, Trigger, TriggerGate, TriggerRate, TriggerSequence};
use core::time::Duration;
use ropewalk_memory::ring::{RingReader, RingWriter, ring};
use ropewalk_memory::{Payload, PoolConfig};
use ropewalk_terms::{Cause, EventKey, FragmentAccount, Instant, NodeId, Outcome, SourceId};
use ropewalk_wire::felix::BlockError;
use ropewalk_wire::rod;

const FORMAT: BlockFormat = BlockFormat::WIDE;
const LINKS: u32 = 3;
const TIMEOUT: Duration = Duration::from_millis(100);

/// A card of three e-links, its ring, and a readout unit.
struct Rig {
    writer: RingWriter,
    input: CardInput,
    readout: Readout,
    now: Instant,
    encoders: Vec<Encoder>,
}

pub(super) fn elink(link: u32) -> ELink {
    ELink::new(8 + link as u16)
}

fn source(link: u32) -> SourceId {
    SourceId(100 + link)
}

impl Rig {
    /// Creates a ring of `kibibytes` KiB, and a window of `window` events.
    pub(super) fn new(kibibytes: usize, window: u32) -> Self {
        Self::with_rules(kibibytes, window, &EventRule::USUAL.into())
    }

    /// The same, with these headers of the e-links' chunks.
    fn with_rules(kibibytes: usize, window: u32, rules: &EventRules) -> Self {
        let bits = |link| rules.of(elink(link)).bits().expect("a rule");
        let sources = (0..LINKS).map(|link| SourceConfig::of_card(source(link), bits(link))).collect();
        let config = ReadoutConfig { source_timeout: TIMEOUT, window, ..ReadoutConfig::new(0, sources) };
        let mut readout = Readout::new(config);
        let now = Instant::from_nanoseconds(1_000);
        readout.message(now, NodeId::MANAGER, &Message::Start(Start::of_run(EventKey::new(0, 1))));
        let (writer, reader) = ring(PoolConfig::heap("card", 1 << 10, kibibytes)).expect("a small ring");
        let chunks = ChunkConfig { blocks_per_batch: 8, most_chunk_bytes: 64 << 10, ..ChunkConfig::new(FORMAT) };
        let links = (0..LINKS).map(|link| (elink(link), source(link))).collect();
        let input = CardInput::new(&CardConfig { chunks, rules: rules.clone(), links }, reader, &readout);
        let encoders = (0..=LINKS).map(|link| Encoder::new(FORMAT, elink(link))).collect();
        Self { writer, input, readout, now, encoders }
    }

    /// Writes the chunk of an event in its own blocks.
    fn say(&mut self, link: u32, number: u32, bytes: usize) {
        let mut chunk = vec![0; bytes];
        ChunkOrigin { source: source(link), number }.fill(&mut chunk);
        self.say_bytes(link, &chunk);
    }

    /// Writes a chunk of these bytes in its own blocks.
    fn say_bytes(&mut self, link: u32, chunk: &[u8]) {
        self.encode(link, |encoder, out| encoder.chunk(chunk, Status::GOOD, out));
    }

    /// Returns the format of the card's blocks.
    pub(super) const fn format(&self) -> BlockFormat {
        FORMAT
    }

    /// Lets `fill` write into the ring instead of the links.
    fn write_with(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) {
        let filled = fill(self.writer.space());
        let _ = self.writer.commit(filled);
    }

    fn encode(&mut self, link: u32, what: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        let (encoder, mut blocks) = (&mut self.encoders[link as usize], Vec::new());
        what(encoder, &mut blocks);
        encoder.flush(&mut blocks);
        self.write(&blocks);
    }

    /// Writes these blocks to the card's ring, as far as there is room.
    fn write(&mut self, mut blocks: &[u8]) {
        while !blocks.is_empty() {
            let space = self.writer.space();
            let length = space.len().min(blocks.len());
            assert!(length > 0, "the ring is full");
            space[..length].copy_from_slice(&blocks[..length]);
            let _ = self.writer.commit(length);
            blocks = &blocks[length..];
        }
    }

    fn turn(&mut self) {
        self.turn_with(&mut ());
    }

    fn turn_with(&mut self, listener: &mut impl Listener) {
        self.input.turn(self.now, &mut self.readout, listener);
        while self.readout.poll(self.now).is_some() {}
    }

    /// Only takes turns for a while.
    fn wait(&mut self, duration: Duration) {
        for _ in 0..10 {
            self.now = self.now.after(duration / 10);
            self.turn();
        }
    }

    fn release(&mut self, from: u64, count: u32) {
        let entry = ReleaseEntry { first: EventKey::new(0, from), count, outcome: Outcome::Complete };
        let entries = [entry].into_iter().collect();
        self.readout.message(self.now, NodeId::MANAGER, &Message::Release(Release { entries }));
        self.turn();
    }

    fn account(&self, link: u32) -> FragmentAccount {
        let account = self.readout.account(link as usize);
        assert_eq!(account.received, account.accounted(), "link {link}: {account:?}");
        account
    }

    /// Returns the held fragments of an event, if it is settled.
    fn fragments(&self, number: u64) -> Option<Vec<Fragment>> {
        let mut fragments = Vec::new();
        self.readout.super_fragment(EventKey::new(0, number))?.append_to(&mut fragments);
        Some(fragments)
    }

    fn is_settled(&self, number: u64) -> bool {
        self.readout.super_fragment(EventKey::new(0, number)).is_some()
    }
}

#[test]
fn chunks_of_all_links_are_events_whose_bytes_lie_in_the_ring() {
    let mut rig = Rig::new(64, 100);
    for number in 1..=5 {
        (0..LINKS).for_each(|link| rig.say(link, number, 500 + 1000 * link as usize));
    }
    rig.turn();
    for number in 1..=5 {
        let fragments = rig.fragments(u64::from(number)).expect("it is settled");
        assert_eq!(fragments.len(), LINKS as usize);
        for (link, fragment) in (0..).zip(fragments) {
            let origin = ChunkOrigin { source: source(link), number };
            assert_eq!(
                (ChunkOrigin::of(&fragment.payload.to_vec()), fragment.meta.source),
                (Some(origin), source(link))
            );
            assert_eq!((fragment.meta.length, fragment.meta.flags), (500 + 1000 * link, FragmentFlags::default()));
            assert!(fragment.payload.into_slices().all(|slice| slice.pool() == rig.input.ring().id()));
        }
    }
    let held = rig.input.ring().account().held;
    assert!(held >= 20, "{held}");
    rig.release(1, 5);
    rig.turn();
    assert_eq!((rig.input.ring().account().held, rig.input.ring().released()), (0, rig.writer.written()));
}

#[test]
fn unusable_chunks_are_counted_under_their_cause() {
    let mut rig = Rig::new(64, 100);
    rig.say(LINKS, 1, 100);
    rig.encode(0, |encoder, out| encoder.chunk(&[1, 0, 0], Status::GOOD, out));
    rig.encode(0, |encoder, out| encoder.out_of_band(7, out));
    rig.encode(1, |encoder, out| encoder.sub_chunk(Trailer::new(SubChunkType::Last, 9, Status::GOOD), &[1; 9], out));
    rig.encode(1, |encoder, out| encoder.sub_chunk(Trailer::new(SubChunkType::First, 9, Status::GOOD), &[1; 9], out));
    rig.say(1, 1, 100);
    rig.encode(LINKS, |encoder, out| {
        encoder.sub_chunk(Trailer::new(SubChunkType::Last, 9, Status::GOOD), &[1; 9], out);
    });
    rig.turn();
    let dropped = |rig: &Rig, link, cause| rig.account(link).dropped.get(cause);
    assert_eq!((rig.account(0).received, dropped(&rig, 0, Cause::Malformed)), (1, 1), "too short for a number");
    let of_one = [Cause::Malformed, Cause::CutShort].map(|cause| dropped(&rig, 1, cause));
    assert_eq!((rig.account(1).received, of_one), (3, [1, 1]), "no beginning, no end, and a good one");
    let counts = rig.input.counts();
    assert_eq!((counts.nobodys, counts.given_up, counts.chunks.signals), (2, 3, 1));
}

#[test]
fn a_chunk_without_a_beginning_stands_for_the_number_that_is_missing_at_its_place() {
    let mut rig = Rig::new(64, 100);
    (1..=4).for_each(|number| (1..LINKS).for_each(|link| rig.say(link, number, 20)));
    rig.encode(0, |encoder, out| {
        for number in [1, 2, 4] {
            if number == 4 {
                encoder.sub_chunk(Trailer::new(SubChunkType::Last, 9, Status::GOOD), &[1; 9], out);
            }
            let mut chunk = [0; CHUNK_HEAD_BYTES];
            ChunkOrigin { source: source(0), number }.fill(&mut chunk);
            encoder.chunk(&chunk, Status::GOOD, out);
        }
    });
    rig.turn();
    let fragments = rig.fragments(4).expect("it is settled");
    assert_eq!(fragments[0].meta.missing_cause(), None);
}

#[test]
fn flags_of_the_card_are_flags_of_the_fragment() {
    let mut rig = Rig::new(64, 100);
    let flags = [
        (Status::BUSY, FragmentFlags::BUSY),
        (Status::CRC, FragmentFlags::CRC_CHECKED.with(FragmentFlags::CRC_ERROR)),
        (Status::ERROR, FragmentFlags::MALFORMED),
        (Status::TRUNCATED, FragmentFlags::LENGTH_MISMATCH),
        (Status::TIMED_OUT, FragmentFlags::LENGTH_MISMATCH),
    ];
    for (number, (status, _)) in (1..).zip(flags) {
        let mut chunk = [0; CHUNK_HEAD_BYTES];
        ChunkOrigin { source: source(0), number }.fill(&mut chunk);
        rig.encode(0, |encoder, out| encoder.chunk(&chunk, status, out));
        (1..LINKS).for_each(|link| rig.say(link, number, 20));
    }
    // Damaged fragments get their events when later fragments confirm them.
    (0..LINKS).for_each(|link| rig.say(link, 6, 20));
    rig.turn();
    for (number, (status, expected)) in (1..).zip(flags) {
        let fragments = rig.fragments(number).expect("it is settled");
        assert_eq!(fragments[0].meta.flags, expected, "{status:?}");
    }
}

#[test]
fn a_link_that_says_nothing_is_given_up_and_taken_again_when_it_returns() {
    let mut rig = Rig::new(64, 100);
    for number in 1..=3 {
        (0..LINKS - 1).for_each(|link| rig.say(link, number, 50));
    }
    rig.turn();
    rig.wait(TIMEOUT / 2);
    assert!(!rig.is_settled(1));
    rig.wait(TIMEOUT);
    assert!(rig.is_settled(3), "without the dead link");
    let fragments = rig.fragments(3).expect("it is settled");
    assert_eq!(fragments[2].meta.missing_cause(), Some(Cause::TimedOut));
    (0..LINKS).for_each(|link| rig.say(link, 4, 50));
    (0..LINKS - 1).for_each(|link| rig.say(link, 5, 50));
    rig.turn();
    assert!(rig.is_settled(4) && !rig.is_settled(5), "the link is waited for again");
}

/// A card is one stream: the waiting chunks of a source without room lie in front of the chunks that the others wait
/// for.
#[test]
fn a_dead_link_holds_the_others_up_for_its_time_out_only_however_little_room_there_is() {
    for (kibibytes, window, events) in [(64, 4, 20), (8, 100, 20)] {
        let mut rig = Rig::new(kibibytes, window);
        let mut next = 1;
        for _ in 0..400 {
            while next <= events && rig.writer.space().len() >= 2 * FORMAT.block_bytes() {
                (0..LINKS - 1).for_each(|link| rig.say(link, next, 50));
                next += 1;
            }
            rig.wait(TIMEOUT / 5);
            let settled = (1..=u64::from(events)).filter(|&number| rig.is_settled(number)).count();
            if settled > 0 && next <= events {
                rig.release(1, next);
            }
        }
        assert_eq!(next, events + 1, "{kibibytes} KiB, window {window}: the card goes on");
        assert_eq!(rig.account(0).received, u64::from(events));
    }
}

#[test]
fn back_pressure_is_no_absence() {
    let mut rig = Rig::new(6, 100);
    for number in 1..=2 {
        (0..LINKS).for_each(|link| rig.say(link, number, 50));
    }
    rig.turn();
    assert!(rig.is_settled(2) && rig.input.is_starved());
    // The links have no room in the ring: the missing chunks of event 3 cannot come before there is some.
    rig.wait(TIMEOUT * 20);
    rig.release(1, 1);
    rig.turn();
    rig.say(0, 3, 50);
    rig.say(1, 3, 50);
    rig.say(0, 4, 50);
    rig.turn();
    assert!(rig.input.ring().is_full());
    rig.wait(TIMEOUT * 20);
    assert!(!rig.is_settled(3), "event 2 waits to be released, and so does the room for the third link");
    rig.release(2, 1);
    rig.say(2, 3, 50);
    rig.turn();
    assert!(rig.is_settled(3));
    let fragments = rig.fragments(3).expect("it is settled");
    assert!(fragments.iter().all(|fragment| fragment.meta.missing_cause().is_none()));
}

#[test]
fn a_chunk_that_never_ends_does_not_keep_the_ring() {
    let mut rig = Rig::new(8, 100);
    let begins = Trailer::new(SubChunkType::First, 8, Status::GOOD);
    rig.encode(2, |encoder, out| encoder.sub_chunk(begins, &[1; 8], out));
    for number in 1..=7 {
        rig.say(0, number, 50);
    }
    rig.turn();
    assert_eq!(rig.account(2).dropped.get(Cause::TimedOut), 1);
    rig.turn();
    assert_eq!(rig.input.ring().released(), 1024);
}

#[test]
fn a_card_that_ends_is_read_to_its_end_and_what_was_open_is_cut_short() {
    let mut rig = Rig::new(64, 100);
    (0..LINKS).for_each(|link| rig.say(link, 1, 2000));
    let begins = Trailer::new(SubChunkType::First, 8, Status::GOOD);
    rig.encode(1, |encoder, out| encoder.sub_chunk(begins, &[1; 8], out));
    let _ = rig.writer.close();
    rig.turn();
    assert!(rig.is_settled(1) && rig.input.is_ended());
    let account = rig.account(1);
    assert_eq!((account.received, account.dropped.get(Cause::CutShort)), (2, 1));
    assert_eq!(rig.account(0).received, 1);
    rig.release(1, 1);
    rig.input.ring_mut().collect();
    assert!(rig.input.ring().account().held <= 1);
}

/// With any fault on the card, every chunk of which a piece arrived is in its source's account.
#[test]
fn every_fault_ends_in_an_account_that_balances() {
    let shares = FAULTS.iter().filter(|fault| !fault.is_of_streams()).map(|&fault| {
        // A chunk that is too long lies in many blocks: some must come through.
        let share = match fault {
            Fault::Oversize | Fault::Stalled => 0.002,
            fault if fault.strikes_blocks() => 0.004,
            _ => 0.02,
        };
        FaultShare::new(fault, share).expect("a share")
    });
    let faults = Faults::new(shares).expect("no more than everything");
    let (mut seen, mut damaged) = ([0; ChunkError::ALL.len()], [0; BlockError::ALL.len()]);
    for seed in 0..20 {
        let size = SizeDistribution::Uniform { least: 16, most: 2400 };
        let mut config = EmulatedCardConfig::new(FORMAT, (0..LINKS).map(elink), size, seed);
        config.links.iter_mut().zip(0..).for_each(|(of_link, link)| of_link.source = source(link));
        let mut card = EmulatedCard::new(EmulatedCardConfig {
            least_chunk_bytes: CHUNK_HEAD_BYTES as u32,
            most_chunk_bytes: 64 << 10,
            ring_bytes: 256 << 10,
            faults,
            ..config
        });
        let (mut rig, gate) = (Rig::new(256, 20), TriggerGate::new(400));
        let mut released = 1;
        for _ in 0..20_000 {
            if rig.input.is_ended() {
                break;
            }
            let filled = card.fill(Duration::ZERO, &gate, rig.writer.space());
            let _ = rig.writer.commit(filled);
            if card.is_exhausted() {
                let _ = rig.writer.close();
            }
            rig.wait(TIMEOUT / 10);
            while let Some(fragments) = rig.fragments(released) {
                for fragment in fragments.iter().filter(|fragment| fragment.meta.missing_cause().is_none()) {
                    let origin = ChunkOrigin::of(&fragment.payload.to_vec()).expect("its bytes are right");
                    assert_eq!((origin.source, u64::from(origin.number)), (fragment.meta.source, released));
                }
                drop(fragments);
                rig.release(released, 1);
                released += 1;
            }
        }
        assert!(rig.input.is_ended(), "seed {seed}: stands still");
        let (mut received, mut dropped) = (0, 0);
        for link in 0..LINKS {
            let account = rig.account(link);
            // A link's last chunk after lost ones may belong to an event that no other link shows.
            let of_chunks = account.dropped.total() - account.dropped.get(Cause::ImplausibleJump);
            (received, dropped) = (received + account.received, dropped + of_chunks);
        }
        let counts = rig.input.counts();
        let causes: Vec<_> = (0..LINKS).map(|link| rig.account(link).dropped.iter().collect::<Vec<_>>()).collect();
        assert_eq!(
            (received, dropped),
            (counts.chunks.chunks + counts.given_up, counts.given_up),
            "seed {seed}: {causes:?}"
        );
        let written = card.injected_by_all().chunks;
        assert!(received <= written && received > written * 7 / 10, "seed {seed}: {received} of {written}");
        seen.iter_mut().zip(counts.chunks.chunk_errors).for_each(|(all, one)| *all += one);
        damaged.iter_mut().zip(counts.chunks.block_errors).for_each(|(all, one)| *all += one);
    }
    // In a ring every block has its size.
    assert_eq!(damaged[BlockError::Size as usize - 1], 0);
    assert!(seen.iter().chain(&damaged[1..]).all(|&count| count > 0), "{seen:?} {damaged:?}: each is seen");
}

/// Takes whole batches while it has room for their chunks, and keeps these if `keeps` is set.
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

/// Data after the batch that the listener has no room for is not read: its sources are not absent.
#[test]
fn a_listener_that_is_waited_for_holds_up_the_card_and_no_source_times_out() {
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
fn no_source_times_out_while_a_listener_keeps_the_ring_full() {
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

const SEED: u64 = 7;

/// The first e-link has a number of three bytes in the middle of its header, the last one has headers of ROD fragments.
fn rules() -> EventRules {
    let field = NumberField { offset: 5, bytes: 3, is_big_endian: true, mask: 0xff_ffff };
    EventRules::from(EventRule::USUAL).with(elink(0), EventRule::Field(field)).with(elink(LINKS - 1), EventRule::Rod)
}

#[test]
fn the_chunks_of_an_event_are_found_however_each_link_of_a_card_says_it() {
    let mut rig = Rig::with_rules(256, 100, &rules());
    let size = SizeDistribution::Uniform { least: 40, most: 3000 };
    let mut config = EmulatedCardConfig::new(rig.format(), (0..LINKS).map(elink), size, SEED);
    config.links.iter_mut().for_each(|link| link.rule = rules().of(link.elink));
    let (mut card, gate) = (EmulatedCard::new(config), TriggerGate::new(10));
    rig.write_with(|space| card.fill(Duration::ZERO, &gate, space));
    rig.turn();
    let mut triggers = TriggerSequence::new(SEED, TriggerRate::Unlimited);
    for _ in 0..10 {
        let Trigger { number, bunch_crossing, .. } = triggers.next_trigger();
        let fragments = rig.fragments(number).expect("it is settled");
        let metas: Vec<_> = fragments.iter().map(|fragment| fragment.meta).collect();
        assert!(metas.iter().all(|meta| meta.missing_cause().is_none() && meta.raw_id == number), "{metas:?}");
        let of_rod = metas.last().expect("there are three");
        assert_eq!((of_rod.bunch_crossing, of_rod.flags), (bunch_crossing, FragmentFlags::HAS_BUNCH_CROSSING));
        assert!(metas[..LINKS as usize - 1].iter().all(|meta| meta.flags == FragmentFlags::default()));
        let head = fragments[LINKS as usize - 1].payload.read_array(0).expect("36 bytes");
        assert!(rod::Header::parse(&head).is_ok_and(|head| u64::from(head.level1_id()) == number));
    }
}

#[test]
fn a_chunk_without_the_marker_of_its_head_is_malformed_and_costs_itself() {
    let mut rig = Rig::with_rules(64, 100, &rules());
    let chunk = |number| [&rod::Header::new(1, number, 5, 9).to_bytes()[..], &[0; 20]].concat();
    rig.say_bytes(LINKS - 1, &chunk(1));
    let mut unmarked = chunk(2);
    unmarked[0] = 0;
    rig.say_bytes(LINKS - 1, &unmarked);
    rig.say_bytes(LINKS - 1, &chunk(3)[..35]);
    rig.say_bytes(LINKS - 1, &chunk(4));
    rig.turn();
    let account = rig.account(LINKS - 1);
    assert_eq!((account.received, account.dropped.get(Cause::Malformed), account.in_flight), (4, 2, 2), "{account:?}");
}
