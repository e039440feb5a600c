//! Frames described by a layout become fragments, in streams and in datagrams, among any other bytes.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};
use ropewalk_wire::foreign::Counting;
use ropewalk_wire::framing::{Framing, Piece, PieceKey, Splitter, Window};
use ropewalk_wire::layout::{
    Checksum, ChecksumKind, Clock, Contents, Counts, End, Frame, Layout, Length, Number, Pattern, Pieces, Place, Plan,
    Size, Status,
};
use std::cell::RefCell;
use std::sync::Arc;

const SOURCE: SourceId = SourceId(7);
const LIMITS: FramerLimits = FramerLimits { max_fragment: 100_000, check_crc: true, gather: None };

fn plan(layout: &Layout) -> Arc<Plan> {
    Arc::new(Plan::compile(layout).expect("a good layout"))
}

const fn number(at: i32, bytes: u8) -> Number {
    Number::little_endian(at, bytes)
}

/// A length, then event, clock, sequence, status and checksum; with a sync word in front if `with_sync`.
fn digitiser(with_sync: bool) -> Layout {
    let length = Length { number: number(4, 4), unit: 4, counts: Counts::Frame, add: 0 };
    let size = Size::Length(length);
    let frame =
        if with_sync { Frame::Sync { word: vec![0xba, 0xdc, 0x0f, 0xfe], size } } else { Frame::Length(length) };
    let kind = ChecksumKind::Crc32;
    Layout {
        event: vec![number(8, 4).masked(0xff_ffff)],
        time: Some(Clock { ticks: vec![number(12, 4)], tick_attoseconds: 8_000_000_000, seconds: None }),
        trigger_type: Some(number(16, 1)),
        sequence: Some(number(17, 1)),
        status: Some(Status { number: number(18, 1), error: 0x80, busy: 1 }),
        checksum: Some(Checksum { kind, number: number(-4, 4), from: 0, to: -4 }),
        ..Layout::new(frame, 4096)
    }
}

fn frame(plan: &Plan, contents: Contents, bytes: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    plan.compose(&contents, &vec![0x33; bytes], &mut frame);
    frame
}

fn event(event: u64) -> Contents {
    Contents { event, sequence: event, ..Contents::default() }
}

fn memory() -> Pool {
    Pool::new(PoolConfig::heap("test", 1024, 2048)).expect("a pool")
}

/// Pushes the bytes in pieces of these lengths, used cyclically, each in its own block. Returns the fragments, and the
/// error that ends the stream.
fn received(framer: &mut Framer, bytes: &[u8], lengths: &[usize]) -> (Vec<Received>, Option<Cause>) {
    let (mut pool, mut out, mut rest) = (memory(), Vec::new(), bytes);
    let mut lengths = lengths.iter().cycle();
    // Long streams in single bytes would need more blocks than there are.
    let least = 1 + bytes.len() / pool.blocks();
    while !rest.is_empty() {
        let length = lengths.next().map_or(1024, |&length| length.clamp(least, 1024)).min(rest.len());
        let mut loan = pool.loan(Owner::SHARED).expect("blocks enough");
        framer.push(loan.append(&rest[..length]).expect("room enough"));
        rest = &rest[length..];
        loop {
            let before = out.len();
            if let Err(error) = framer.next_batch(&mut out, 3) {
                return (out, Some(error.cause));
            }
            if out.len() == before {
                break;
            }
        }
    }
    (out, None)
}

fn stream(plan: &Arc<Plan>) -> Framer {
    Framer::described(SOURCE, Arc::clone(plan), LIMITS)
}

/// Summarises the received fragments: the event, or the cause of a loss.
fn outcome(received: &[Received]) -> Vec<Result<u64, Cause>> {
    received.iter().map(|one| one.meta.missing_cause().map_or(Ok(one.meta.raw_id), Err)).collect()
}

#[test]
fn a_frame_is_described_by_its_layout() {
    let plan = plan(&digitiser(true));
    let contents = Contents { event: 9, time: 125, trigger_type: 3, sequence: 1, status: 0x81, ..event(0) };
    let bytes = frame(&plan, contents, 40);
    let mut framer = stream(&plan);
    assert_eq!((framer.source(), framer.format()), (Some(SOURCE), Some(Format::Described)));
    let (all, error) = received(&mut framer, &bytes, &[1000]);
    let [ref fragment] = all[..] else { panic!("one fragment") };
    assert_eq!((fragment.payload.to_vec(), error), (bytes, None), "the whole frame as it came");
    let flags = [FragmentFlags::CRC_CHECKED, FragmentFlags::HAS_TIME, FragmentFlags::STATUS_ERROR, FragmentFlags::BUSY];
    let flags = flags.into_iter().fold(FragmentFlags::default(), FragmentFlags::with);
    assert!(flags.has_error(), "what the board says of itself is in doubt");
    let expected =
        FragmentMeta { source: SOURCE, length: 40, flags, bunch_crossing: 0, trigger_type: 3, raw_id: 9, time: 1000 };
    assert_eq!((fragment.meta, fragment.restarts), (expected, false));
}

#[test]
fn a_wrong_checksum_is_flagged_and_the_stream_goes_on() {
    let plan = plan(&digitiser(false));
    let mut bytes = [frame(&plan, event(1), 40), frame(&plan, event(2), 40)].concat();
    bytes[30] ^= 4;
    let (all, _) = received(&mut stream(&plan), &bytes, &[23]);
    let wrong: Vec<bool> = all.iter().map(|one| one.meta.flags.contains(FragmentFlags::CRC_ERROR)).collect();
    assert_eq!(wrong, [true, false]);
    let unchecked = FramerLimits { check_crc: false, ..LIMITS };
    let (all, _) = received(&mut Framer::described(SOURCE, plan, unchecked), &bytes, &[1000]);
    assert!(all.iter().all(|one| !one.meta.flags.contains(FragmentFlags::CRC_CHECKED)));
}

#[test]
fn garbage_counts_as_one_lost_frame_and_the_next_good_one_is_found() {
    let plan = plan(&digitiser(true));
    let frames: Vec<Vec<u8>> = (1..=4).map(|number| frame(&plan, event(number), 60)).collect();
    let bytes = [&frames[0][..], &[0xee; 333], &frames[1], &frames[2], &frames[3]].concat();
    for cuts in [&[1][..], &[1000], &[7, 100]] {
        let mut framer = stream(&plan);
        let (all, error) = received(&mut framer, &bytes, cuts);
        assert_eq!(outcome(&all), [Ok(1), Err(Cause::SyncLost), Ok(2), Ok(3), Ok(4)]);
        assert_eq!((framer.take_counts().skipped_bytes, error), (333, None));
        assert!(!framer.is_mid_fragment());
    }
}

/// The frames of a board carry the mark of another one.
#[test]
fn bytes_without_any_frame_are_counted_all_the_time() {
    let plan = plan(&digitiser(true));
    let mut framer = stream(&plan);
    let mut skipped = 0;
    for batch in 0..50 {
        let (all, error) = received(&mut framer, &[0xee; 1000], &[1000]);
        assert_eq!((all.len(), error), (usize::from(batch == 0), None), "one lost frame for all of them");
        let counts = framer.take_counts();
        assert!(counts.skipped_bytes > 0 || batch == 0, "batch {batch}");
        skipped += counts.skipped_bytes;
    }
    assert!(skipped > 48_000, "{skipped}");
}

#[test]
fn each_line_that_does_not_end_counts_once() {
    let plan = plan(&Layout::new(Frame::Delimiter { bytes: b"\n".to_vec() }, 20));
    let bytes = [&[b'a'; 50][..], b"\ngood\n", &[b'b'; 70], b"\nbetter\nbest\n"].concat();
    for cuts in [&[1][..], &[1000], &[33]] {
        let (all, _) = received(&mut stream(&plan), &bytes, cuts);
        let expected = [Err(Cause::Oversize), Ok(1), Err(Cause::Oversize), Ok(2), Ok(3)];
        assert_eq!(outcome(&all), expected, "{cuts:?}");
    }
}

#[test]
fn what_no_frame_can_be_ends_a_connection_without_sync_words() {
    let plan = plan(&digitiser(false));
    let good = frame(&plan, event(1), 40);
    let stated = |words: u32| {
        let bad = [&[9; 4], &words.to_le_bytes()[..], &[0; 100]].concat();
        let (all, error) = received(&mut stream(&plan), &[good.clone(), bad].concat(), &[9]);
        assert_eq!(outcome(&all), [Ok(1)]);
        error
    };
    assert_eq!(stated(0), Some(Cause::FramingLost), "of length 0");
    assert_eq!(stated(5), Some(Cause::FramingLost), "below the header");
    assert_eq!(stated(1025), Some(Cause::Oversize), "above the longest");
    assert_eq!(stated(28), None, "the rest may come");
    let small = FramerLimits { max_fragment: 36, ..LIMITS };
    let (_, error) = received(&mut Framer::described(SOURCE, Arc::clone(&plan), small), &good, &[1000]);
    assert_eq!(error, Some(Cause::Oversize), "above what this source is believed");
}

#[test]
fn a_lost_frame_shows_in_the_sequence_and_a_restarted_board_does_not() {
    let plan = plan(&digitiser(false));
    let numbers = [250, 251, 255, 0, 1, 1, 2, 100, 101].map(|sequence| Contents { sequence, ..event(5) });
    let mut framer = stream(&plan);
    received(&mut framer, &numbers.map(|contents| frame(&plan, contents, 40)).concat(), &[50]);
    let expected = FrameCounts { missing: 3 + 97, out_of_order: 1, ..FrameCounts::default() };
    assert_eq!(framer.take_counts(), expected);
    framer.clear();
    assert_eq!(framer.take_counts(), FrameCounts::default(), "another connection");
    assert_eq!(framer.source(), Some(SOURCE), "of the same source");
}

#[test]
fn a_board_that_is_restarted_begins_its_events_anew() {
    let plan = plan(&digitiser(true));
    let first: Vec<u8> = (1..=3).flat_map(|number| frame(&plan, event(number), 40)).collect();
    let second: Vec<u8> = (1..=2).flat_map(|number| frame(&plan, event(number), 40)).collect();
    // The board failed in the middle of a frame.
    let bytes = [&first[..100], &second, &second].concat();
    let (all, _) = received(&mut stream(&plan), &bytes, &[33]);
    // The sent part of the third frame swallows the beginning of the next one.
    assert_eq!(outcome(&all), [Ok(1), Ok(2), Ok(3), Err(Cause::SyncLost), Ok(2), Ok(1), Ok(2)]);
    assert!(all[2].meta.flags.contains(FragmentFlags::CRC_ERROR));
}

#[test]
fn a_narrow_clock_is_made_wide_by_the_time_of_arrival() {
    let ticks = Clock { ticks: vec![number(12, 2)], tick_attoseconds: 1_000_000_000_000_000, seconds: None };
    let plan = plan(&Layout { time: Some(ticks), ..digitiser(false) });
    let mut framer = stream(&plan);
    let mut time = |seconds: u64| {
        framer.set_now(Instant::from_nanoseconds(seconds * 1_000_000_000));
        let contents = Contents { time: seconds * 1000 % 65_536, ..event(1) };
        received(&mut framer, &frame(&plan, contents, 40), &[1000]).0[0].meta.time / 1_000_000_000
    };
    assert_eq!([1, 2, 64, 66, 130, 131, 10_000, 10_001].map(&mut time), [1, 2, 64, 66, 130, 131, 10_000, 10_001]);
}

#[test]
fn frames_that_number_nothing_are_counted_as_they_come() {
    let plan = plan(&Layout::new(Frame::Fixed { bytes: 12 }, 12));
    let (all, _) = received(&mut stream(&plan), &[7; 60], &[5]);
    assert_eq!(outcome(&all), [Ok(1), Ok(2), Ok(3), Ok(4), Ok(5)]);
    assert_eq!(SourceConfig::of_frames(SOURCE, &*plan, plan.has_event()).counter_bits, 64);
    let counted = self::plan(&Layout { event: Vec::new(), ..digitiser(false) });
    let (all, _) = received(&mut stream(&counted), &frame(&counted, event(250), 40), &[100]);
    assert_eq!(outcome(&all), [Ok(250)], "their own number is used as the event's");
    assert_eq!(SourceConfig::of_frames(SOURCE, &*counted, false).counter_bits, 8);
    assert_eq!(SourceConfig::of_frames(SOURCE, &digitiser_plan(), true).counter_bits, 24);
}

fn digitiser_plan() -> Plan {
    Plan::compile(&digitiser(false)).expect("a good layout")
}

#[test]
fn a_frame_of_another_source_is_counted() {
    let matches = Some(Pattern { at: 20, bytes: b"OK".to_vec(), mask: None });
    let plan = plan(&Layout { matches, ..digitiser(true) });
    let mut bytes = [frame(&plan, event(1), 40), frame(&plan, event(2), 40), frame(&plan, event(3), 40)].concat();
    bytes[60] = b'K';
    let (all, error) = received(&mut stream(&plan), &bytes, &[1000]);
    assert_eq!((outcome(&all), error), (vec![Ok(1), Err(Cause::NotMatched), Ok(3)], None));
    let board = Some(ropewalk_wire::layout::Source { number: number(20, 1), is: Some(5) });
    let plan = self::plan(&Layout { source: board, ..digitiser(false) });
    let mut bytes = frame(&plan, event(1), 40);
    let flags = |bytes: &[u8]| received(&mut stream(&plan), bytes, &[1000]).0[0].meta.flags;
    assert!(!flags(&bytes).contains(FragmentFlags::WRONG_SOURCE));
    bytes[20] = 6;
    assert!(flags(&bytes).contains(FragmentFlags::WRONG_SOURCE));
}

proptest! {
    #[test]
    fn fragments_are_the_same_however_the_stream_is_cut(
        sizes in vec(1usize..3000, 1..12), garbage in vec(any::<u8>(), 0..50), place in 0usize..12, lengths in vec(1usize..1500, 1..5),
    ) {
        let plan = plan(&digitiser(true));
        let mut frames: Vec<Vec<u8>> =
            sizes.iter().zip(1..).map(|(&bytes, number)| frame(&plan, event(number), bytes)).collect();
        frames.insert(place.min(sizes.len()), garbage);
        let bytes = frames.concat();
        let (one, other) = (received(&mut stream(&plan), &bytes, &lengths), received(&mut stream(&plan), &bytes, &[1024]));
        prop_assert_eq!(one.1, other.1);
        prop_assert_eq!(outcome(&one.0), outcome(&other.0));
        let same = |pair: (&Received, &Received)| (pair.0.meta, &pair.0.payload) == (pair.1.meta, &pair.1.payload);
        prop_assert!(one.0.iter().zip(&other.0).all(same));
    }
}

/// Frames of any length in datagrams, after "ESS", a sequence and a length.
fn in_datagrams(frame: Frame) -> Layout {
    Layout {
        matches: Some(Pattern { at: 0, bytes: b"ESS".to_vec(), mask: None }),
        event: vec![Number::big_endian(4, 4)],
        sequence: Some(Number::big_endian(8, 2)),
        ..Layout::new(frame, 4096)
    }
}

fn datagram(pool: &mut Pool, bytes: &[u8]) -> Slice {
    pool.collect();
    let mut loan = pool.loan(Owner::SHARED).expect("blocks enough");
    loan.append(bytes).expect("room enough")
}

fn of_datagrams(layout: &Layout) -> (DatagramFramer<Arc<Plan>>, Arc<Plan>) {
    let plan = plan(layout);
    (DatagramFramer::new(SOURCE, Arc::clone(&plan), LIMITS, DatagramLimits::USUAL), plan)
}

#[test]
fn a_datagram_is_a_fragment_unless_it_is_short_cut_or_of_no_source() {
    let (mut framer, plan) = of_datagrams(&in_datagrams(Frame::Datagram));
    let (mut pool, mut out) = (memory(), Vec::new());
    let mut push = |bytes: &[u8], is_cut| framer.push(Instant::ZERO, datagram(&mut pool, bytes), is_cut, &mut out);
    let good = frame(&plan, event(1), 100);
    push(&good, false);
    push(&good[..9], false);
    push(&good, true);
    push(&[0; 100], false);
    push(&[], false);
    push(&frame(&plan, event(4), 100), false);
    let causes = [Cause::ShortPacket, Cause::Truncated, Cause::NotMatched, Cause::ShortPacket].map(Err);
    assert_eq!(outcome(&out), [&[Ok(1)][..], &causes, &[Ok(4)]].concat());
    assert_eq!(out[0].payload.to_vec(), good);
    assert_eq!(framer.take_counts().missing, 2, "by their own numbers");
}

#[test]
fn several_frames_in_a_datagram_are_a_fragment_each() {
    let length = Length { number: Number::big_endian(10, 2), unit: 1, counts: Counts::Frame, add: 0 };
    let (mut framer, plan) = of_datagrams(&in_datagrams(Frame::Several(Size::Length(length))));
    let frames: Vec<Vec<u8>> = (1..=3).map(|number| frame(&plan, event(number), 20 * number as usize)).collect();
    let (mut pool, mut out) = (memory(), Vec::new());
    let whole = frames.concat();
    framer.push(Instant::ZERO, datagram(&mut pool, &whole), false, &mut out);
    assert_eq!(outcome(&out), [Ok(1), Ok(2), Ok(3)]);
    assert!(out.iter().zip(&frames).all(|(one, frame)| one.payload.to_vec() == *frame));
    out.clear();
    framer.push(Instant::ZERO, datagram(&mut pool, &whole[..70]), true, &mut out);
    assert_eq!(outcome(&out), [Ok(1), Ok(2), Err(Cause::Truncated)], "a jumbo datagram that the socket cut");
    out.clear();
    let bad = [&frames[0][..], &[1; 50], &frames[1], &[2; 30]].concat();
    framer.push(Instant::ZERO, datagram(&mut pool, &bad), false, &mut out);
    let expected = [Ok(1), Err(Cause::NotMatched)];
    assert_eq!(outcome(&out), expected, "behind garbage a frame needs another one behind it");
    out.clear();
    framer.push(Instant::ZERO, datagram(&mut pool, &frames[1]), false, &mut out);
    assert_eq!(outcome(&out), [Ok(2)], "the next datagram is looked at afresh");
}

/// Frames in the bodies of several datagrams, as with the ESnet load balancer's reassembly header.
fn in_pieces(place: Place, end: End) -> Layout {
    let pieces = Pieces { header: 20, frame: Number::big_endian(12, 8), place, end };
    Layout { event: vec![Number::big_endian(12, 8)], ..Layout::new(Frame::Pieces(pieces), 4096) }
}

const BY_OFFSET: (Place, End) = (Place::Offset(Number::big_endian(4, 4)), End::Length(Number::big_endian(8, 4)));

/// Returns the datagrams of a frame with this body, cut into bodies of `each` bytes.
fn pieces_of(event: u64, body: &[u8], each: usize) -> Vec<Vec<u8>> {
    let header = |offset: usize| {
        let numbers = [&[0; 4][..], &(offset as u32).to_be_bytes(), &(body.len() as u32).to_be_bytes()];
        [&numbers.concat()[..], &event.to_be_bytes()].concat()
    };
    body.chunks(each).enumerate().map(|(index, chunk)| [&header(index * each)[..], chunk].concat()).collect()
}

#[test]
fn a_frame_in_several_datagrams_is_put_together_in_any_order() {
    let body: Vec<u8> = (0..250).map(|byte| byte as u8).collect();
    let pieces = pieces_of(77, &body, 100);
    let whole = [&pieces[0][..], &body[100..]].concat();
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
        let (mut framer, _) = of_datagrams(&in_pieces(BY_OFFSET.0, BY_OFFSET.1));
        let (mut pool, mut out) = (memory(), Vec::new());
        for (count, piece) in order.into_iter().enumerate() {
            assert_eq!((out.len(), framer.unfinished()), (0, count.min(1)));
            framer.push(Instant::ZERO, datagram(&mut pool, &pieces[piece]), false, &mut out);
        }
        assert_eq!(outcome(&out), [Ok(77)]);
        assert_eq!(out[0].payload.to_vec(), whole, "the first datagram, and what the others carry");
        framer.push(Instant::ZERO, datagram(&mut pool, &pieces[1]), false, &mut out);
        assert_eq!((out.len(), framer.take_counts().repeated, framer.unfinished()), (1, 1, 0), "once more");
    }
}

#[test]
fn the_last_of_several_datagrams_is_known_by_a_count_or_by_a_bit() {
    let index = Place::Index(Number::big_endian(4, 2));
    let ends = [End::Count(Number::big_endian(6, 2)), End::Last(Number::big_endian(6, 2))];
    for (end, says) in ends.into_iter().zip([[3, 3, 3], [0, 0, 1]]) {
        let (mut framer, _) = of_datagrams(&in_pieces(index, end));
        let (mut pool, mut out) = (memory(), Vec::new());
        for place in [2, 0, 1] {
            let header = [&[0; 4][..], &[0, place as u8, 0, says[place]], &[0; 4], &9u64.to_be_bytes()].concat();
            let bytes = [&header[..], &[place as u8; 5]].concat();
            framer.push(Instant::ZERO, datagram(&mut pool, &bytes), false, &mut out);
        }
        assert_eq!(outcome(&out), [Ok(9)]);
        assert_eq!(out[0].payload.to_vec()[20..], [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
    }
}

#[test]
fn a_frame_whose_datagrams_do_not_all_come_is_given_up_in_time() {
    let (mut framer, _) = of_datagrams(&in_pieces(BY_OFFSET.0, BY_OFFSET.1));
    let (mut pool, mut out) = (memory(), Vec::new());
    let pieces = pieces_of(5, &[1; 250], 100);
    let begun = Instant::from_nanoseconds(1000);
    framer.push(begun, datagram(&mut pool, &pieces[0]), false, &mut out);
    let due = framer.next_deadline().expect("one waits");
    assert_eq!(due, begun.after(DatagramLimits::USUAL.pieces_timeout));
    framer.advance(begun, &mut out);
    assert_eq!(out.len(), 0);
    framer.advance(due, &mut out);
    assert_eq!((outcome(&out), framer.next_deadline()), (vec![Err(Cause::PiecesMissing)], None));
    pool.collect();
    assert_eq!(pool.held(), 0, "nothing of it is kept");
    framer.push(due, datagram(&mut pool, &pieces[1]), false, &mut out);
    assert_eq!((framer.unfinished(), framer.take_counts().repeated), (0, 1), "what comes too late begins nothing");
}

#[test]
fn datagrams_that_do_not_fit_together_cost_their_frame() {
    let cause = |pieces: &[Vec<u8>]| {
        let (mut framer, _) = of_datagrams(&in_pieces(BY_OFFSET.0, BY_OFFSET.1));
        let (mut pool, mut out) = (memory(), Vec::new());
        pieces.iter().for_each(|piece| framer.push(Instant::ZERO, datagram(&mut pool, piece), false, &mut out));
        assert_eq!(framer.unfinished(), 0);
        outcome(&out)
    };
    let (short, long) = (pieces_of(5, &[1; 150], 100), pieces_of(5, &[1; 250], 100));
    assert_eq!(cause(&[short[0].clone(), long[1].clone()]), [Err(Cause::PiecesMissing)], "of two lengths");
    let overlapping = pieces_of(5, &[1; 250], 90);
    assert_eq!(cause(&[long[0].clone(), overlapping[1].clone(), overlapping[2].clone()]), [Err(Cause::PiecesMissing)]);
    assert_eq!(cause(&[pieces_of(5, &[1; 5000], 100)[0].clone()]), [Err(Cause::Oversize)], "longer than allowed");
    assert_eq!(cause(&[vec![0; 19]]), [Err(Cause::ShortPacket)], "not even a header");
}

#[test]
fn more_frames_than_can_be_put_together_cost_the_oldest() {
    let (mut framer, _) = of_datagrams(&in_pieces(BY_OFFSET.0, BY_OFFSET.1));
    let (mut pool, mut out) = (memory(), Vec::new());
    for event in 0..DatagramLimits::USUAL.open_frames as u64 + 4 {
        let pieces = pieces_of(event, &[1; 150], 100);
        framer.push(Instant::from_nanoseconds(event), datagram(&mut pool, &pieces[0]), false, &mut out);
    }
    assert_eq!(outcome(&out), [Err(Cause::PiecesMissing); 4]);
    assert_eq!(framer.unfinished(), DatagramLimits::USUAL.open_frames);
    let pieces = pieces_of(4, &[1; 150], 100);
    framer.push(Instant::ZERO, datagram(&mut pool, &pieces[1]), false, &mut out);
    assert_eq!(outcome(&out)[4..], [Ok(4)], "the others wait");
}

#[test]
fn a_frame_whose_number_was_done_long_ago_is_a_new_one() {
    let (mut framer, _) = of_datagrams(&in_pieces(BY_OFFSET.0, BY_OFFSET.1));
    let (mut pool, mut out) = (memory(), Vec::new());
    let mut now = Instant::ZERO;
    for again in 0..2 {
        for event in 0..5 {
            for piece in pieces_of(event, &[again; 150], 100) {
                framer.push(now, datagram(&mut pool, &piece), false, &mut out);
            }
        }
        now = now.after(DatagramLimits::USUAL.pieces_timeout).after(Duration::from_nanos(1));
    }
    assert_eq!(outcome(&out), (0..5).chain(0..5).map(Ok).collect::<Vec<_>>(), "the sender was started again");
    assert_eq!(framer.take_counts().repeated, 0);
}

/// A frame is not assembled from pieces of two frames.
#[test]
fn a_piece_with_other_bytes_in_the_same_place_begins_another_frame() {
    let (mut framer, _) = of_datagrams(&in_pieces(BY_OFFSET.0, BY_OFFSET.1));
    let (mut pool, mut out) = (memory(), Vec::new());
    let (before, after) = (pieces_of(7, &[1; 150], 100), pieces_of(7, &[2; 150], 100));
    for piece in [&before[0], &before[0], &after[0], &after[1]] {
        framer.push(Instant::ZERO, datagram(&mut pool, piece), false, &mut out);
    }
    assert_eq!(outcome(&out), [Err(Cause::PiecesMissing), Ok(7)]);
    assert_eq!(out[1].payload.to_vec()[20..], [2; 150]);
    assert_eq!(framer.take_counts().repeated, 1);
}

/// The restart is immediate, so that the earlier frames are remembered, and holds for any number of pieces.
#[test]
fn a_sender_that_is_started_again_at_once_loses_nothing() {
    for length in [50, 150, 800, 1500] {
        let (mut framer, _) = of_datagrams(&in_pieces(BY_OFFSET.0, BY_OFFSET.1));
        let (mut pool, mut out) = (memory(), Vec::new());
        for again in 0..3 {
            for event in 0..5 {
                let pieces = pieces_of(event, &vec![again; length], 100);
                // The first piece is repeated.
                for piece in pieces.iter().chain(&pieces[..1]) {
                    framer.push(Instant::ZERO, datagram(&mut pool, piece), false, &mut out);
                }
            }
        }
        let right: Vec<_> = (0..15).map(|event| Ok(event % 5)).collect();
        assert_eq!((outcome(&out), framer.take_counts().repeated), (right, 15), "{length}");
    }
}

#[test]
fn frames_that_are_not_whole_at_the_end_are_counted() {
    let (mut framer, _) = of_datagrams(&in_pieces(BY_OFFSET.0, BY_OFFSET.1));
    let (mut pool, mut out) = (memory(), Vec::new());
    for event in 1..=3 {
        framer.push(Instant::ZERO, datagram(&mut pool, &pieces_of(event, &[1; 150], 100)[0]), false, &mut out);
    }
    framer.end(Instant::ZERO, &mut out);
    assert_eq!((outcome(&out), framer.unfinished()), (vec![Err(Cause::PiecesMissing); 3], 0));
    framer.push(Instant::ZERO, datagram(&mut pool, &pieces_of(4, &[1; 150], 100)[0]), false, &mut out);
    assert_eq!((framer.abandon(), framer.unfinished()), (1, 0));
}

/// Pushes datagrams with these sequence numbers in this order. Returns the fragments and the counts.
fn overtaking(numbers: &[u64], counting: Counting) -> (Vec<Result<u64, Cause>>, FrameCounts) {
    let plan = plan(&in_datagrams(Frame::Datagram));
    let waits = DatagramLimits { counting, ..DatagramLimits::USUAL };
    let mut framer = DatagramFramer::new(SOURCE, Arc::clone(&plan), LIMITS, waits);
    let (mut pool, mut out) = (memory(), Vec::new());
    for &number in numbers {
        framer.push(Instant::ZERO, datagram(&mut pool, &frame(&plan, event(number), 50)), false, &mut out);
    }
    framer.end(Instant::ZERO, &mut out);
    (outcome(&out), framer.take_counts())
}

#[test]
fn datagrams_that_overtake_each_other_are_put_in_order_and_none_is_missing() {
    for counting in [Counting::Frames, Counting::Events] {
        let order: Vec<u64> = [1, 2, 5, 3, 4, 6, 8, 7, 9].to_vec();
        let (out, counts) = overtaking(&order, counting);
        assert_eq!(out, (1..=9).map(Ok).collect::<Vec<_>>());
        assert_eq!(counts, FrameCounts { out_of_order: 3, ..FrameCounts::NONE });
    }
    let far: Vec<u64> = (1..=5).chain([30]).chain(6..30).chain(31..=40).collect();
    let counts = overtaking(&far, Counting::Frames).1;
    assert_eq!(counts.missing, counts.found, "one that is far ahead claims no loss: {counts:?}");
}

#[test]
fn what_came_while_this_process_did_not_run_is_not_late() {
    let plan = plan(&in_datagrams(Frame::Datagram));
    let waits = DatagramLimits { counting: Counting::Events, ..DatagramLimits::USUAL };
    let mut framer = DatagramFramer::new(SOURCE, Arc::clone(&plan), LIMITS, waits);
    let (mut pool, mut out) = (memory(), Vec::new());
    let at = |milliseconds| Instant::ZERO.after(Duration::from_millis(milliseconds));
    let mut push = |framer: &mut DatagramFramer<_>, time, number, out: &mut _| {
        framer.push(at(time), datagram(&mut pool, &frame(&plan, event(number), 50)), false, out);
    };
    [1, 5].into_iter().for_each(|number| push(&mut framer, 0, number, &mut out));
    framer.advance(at(0), &mut out);
    [3, 4, 2, 8, 7].into_iter().for_each(|number| push(&mut framer, 20, number, &mut out));
    framer.advance(at(20), &mut out);
    assert_eq!(outcome(&out), (1..=5).map(Ok).collect::<Vec<_>>());
    framer.advance(at(25), &mut out);
    push(&mut framer, 26, 6, &mut out);
    framer.push_empty(&mut out);
    assert_eq!(outcome(&out[5..]), [Ok(7), Ok(8), Ok(6), Err(Cause::ShortPacket)], "6 came too late");
}

/// Number of sequences of each kind; a million by hand with `PROPTEST_CASES=1000000`.
#[test]
fn no_datagrams_do_any_harm() {
    let length = Length { number: Number::big_endian(10, 2), unit: 1, counts: Counts::Frame, add: 0 };
    let index = Place::Index(Number::big_endian(4, 2));
    // One pool for all: creating one for each would take longer than everything else.
    let pool = RefCell::new(memory());
    for layout in [
        in_datagrams(Frame::Datagram),
        in_datagrams(Frame::Several(Size::Length(length))),
        in_pieces(BY_OFFSET.0, BY_OFFSET.1),
        in_pieces(index, End::Count(Number::big_endian(6, 2))),
        in_pieces(BY_OFFSET.0, End::Last(Number::big_endian(8, 1))),
    ] {
        let drawn = vec((vec(0u8..4, 0..60), any::<bool>(), 0u64..200), 0..60);
        let all_good =
            TestRunner::default().run(&drawn, |datagrams| harmless(&layout, &datagrams, &mut pool.borrow_mut()));
        all_good.unwrap_or_else(|failed| panic!("{:?}: {failed}", layout.frame));
    }
}

/// Pushes datagrams, each possibly cut by the socket, at these intervals in milliseconds.
fn harmless(layout: &Layout, datagrams: &[(Vec<u8>, bool, u64)], pool: &mut Pool) -> Result<(), TestCaseError> {
    let (mut framer, plan) = of_datagrams(layout);
    let (mut out, mut now) = (Vec::new(), Instant::ZERO);
    for (bytes, is_cut, wait) in datagrams {
        now = now.after(Duration::from_millis(*wait));
        framer.advance(now, &mut out);
        let before = out.len();
        framer.push(now, datagram(pool, bytes), *is_cut, &mut out);
        prop_assert!(out.len() - before <= bytes.len().max(1));
        prop_assert!(out.iter().all(|one| one.payload.len() <= plan.most()));
        prop_assert!(framer.next_deadline().is_none_or(|due| due > now));
    }
    drop((framer, out));
    pool.collect();
    prop_assert_eq!(pool.held(), 0);
    Ok(())
}

/// Divides a frame as its bytes specify: an event and a length each.
struct ByBytes;

impl Splitter for ByBytes {
    fn split(&self, frame: &(impl Window + ?Sized), pieces: &mut Vec<Piece>) -> Result<(), Cause> {
        let mut offset = 0;
        while let Some([event, length]) = frame.array(offset) {
            if length == 0xff {
                return Err(Cause::Malformed);
            }
            offset += 2;
            let key = if event < 100 { PieceKey::Event(event.into()) } else { PieceKey::Time(event.into()) };
            pieces.push(Piece { key, offset, length: length.into() });
            offset += usize::from(length);
        }
        Ok(())
    }
}

#[test]
fn a_frame_of_several_events_is_a_fragment_for_each() {
    let (mut framer, plan) = of_datagrams(&Layout::new(Frame::Datagram, 100));
    let (mut pool, mut frames, mut out) = (memory(), Vec::new(), Vec::new());
    let mut divider = Divider::new(SOURCE, &plan);
    let whole: &[u8] = &[1, 3, 11, 12, 13, 2, 0, 103, 2, 21, 22, 4, 9, 1];
    for bytes in [whole, &[5, 1, 7, 6, 0xff], &[0]] {
        framer.push(Instant::ZERO, datagram(&mut pool, bytes), false, &mut frames);
    }
    framer.push(Instant::ZERO, datagram(&mut pool, whole), true, &mut frames);
    for frame in frames.drain(..) {
        divider.put(Instant::ZERO, frame);
        while !divider.is_empty() {
            let before = out.len();
            divider.next_batch(&mut ByBytes, &mut out, 0);
            assert_eq!(out.len(), before, "no more than there is room for");
            divider.next_batch(&mut ByBytes, &mut out, 3);
        }
    }
    let cut = Err(Cause::Malformed);
    let expected = [Ok(1), Ok(2), Ok(103), cut, cut, Err(Cause::Truncated)];
    assert_eq!(outcome(&out), expected, "a piece beyond its frame, a frame that cannot be divided, one that was lost");
    assert_eq!(out[0].payload.to_vec(), [11, 12, 13]);
    assert_eq!((out[1].payload.len(), out[2].payload.to_vec()), (0, vec![21, 22]));
    assert_eq!((out[0].meta.length, out[2].meta.time), (3, 103));
    assert!(out[2].meta.flags.contains(FragmentFlags::HAS_TIME));
    assert_eq!(divider.take_divided(), 2, "one that falls apart into nothing is divided, too");
}

/// Divides this many frames, and then waits.
struct Slow(usize);

impl Divides for Slow {
    fn divide(&mut self, frame: &Payload, pieces: &mut Vec<Piece>) -> Option<Result<(), Cause>> {
        self.0 = self.0.checked_sub(1)?;
        ByBytes.divide(frame, pieces)
    }
}

#[test]
fn frames_whose_pieces_are_not_known_yet_wait_in_their_order() {
    let (mut framer, plan) = of_datagrams(&Layout::new(Frame::Datagram, 100));
    let (mut pool, mut frames, mut out) = (memory(), Vec::new(), Vec::new());
    let mut divider = Divider::new(SOURCE, &plan);
    for (bytes, is_cut) in [(&[1, 0, 2, 0][..], false), (&[3, 0], true), (&[4, 0, 5, 0], false)] {
        framer.push(Instant::ZERO, datagram(&mut pool, bytes), is_cut, &mut frames);
    }
    frames.drain(..).for_each(|frame| divider.put(Instant::ZERO, frame));
    divider.next_batch(&mut Slow(0), &mut out, 100);
    assert_eq!((out.len(), divider.fragments()), (0, 3), "a frame that is not divided counts as one");
    divider.next_batch(&mut Slow(1), &mut out, 1);
    assert_eq!((out.len(), divider.fragments()), (1, 3));
    divider.next_batch(&mut Slow(0), &mut out, 100);
    assert_eq!(outcome(&out), [Ok(1), Ok(2), Err(Cause::Truncated)], "what is known goes on");
    assert!(!divider.is_empty());
    divider.next_batch(&mut Slow(1), &mut out, 100);
    assert_eq!(outcome(&out[3..]), [Ok(4), Ok(5)]);
    assert!(divider.is_empty());
    divider.put(Instant::ZERO, out.remove(0));
    divider.clear();
    assert!(divider.is_empty());
}

#[test]
fn times_of_pieces_are_nanoseconds_on_a_clock_that_does_not_wrap() {
    let clock = Clock { ticks: vec![number(0, 1)], tick_attoseconds: 8_000_000_000, seconds: None };
    let (mut framer, plan) = of_datagrams(&Layout { time: Some(clock), ..Layout::new(Frame::Datagram, 100) });
    let (mut pool, mut frames, mut out) = (memory(), Vec::new(), Vec::new());
    let mut divider = Divider::new(SOURCE, &plan);
    for bytes in [[200, 0, 250, 0], [101, 0, 110, 0]] {
        framer.push(Instant::ZERO, datagram(&mut pool, &bytes), false, &mut frames);
    }
    frames[1].restarts = true;
    frames.drain(..).for_each(|frame| divider.put(Instant::ZERO, frame));
    divider.next_batch(&mut ByBytes, &mut out, 100);
    let times: Vec<_> = out.iter().map(|one| one.meta.time / 8).collect();
    assert_eq!(times, [200, 250, 256 + 101, 256 + 110]);
    assert!(out.iter().all(|one| one.meta.raw_id == one.meta.time));
    assert_eq!(out.iter().map(|one| one.restarts).collect::<Vec<_>>(), [false, false, true, false], "once is enough");
}
