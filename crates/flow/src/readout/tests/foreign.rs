//! Streams of other people's formats: what stands between frames, and what is none.

use super::*;
use ropewalk_memory::{Owner, Pool, PoolConfig};
use ropewalk_wire::foreign::ForeignFormat;

const SOURCE: SourceId = SourceId(7);
const LIMITS: FramerLimits = FramerLimits { max_fragment: 100_000, check_crc: true, gather: None };

/// What a framer makes of bytes that come in pieces of `step`, behind which nothing comes.
fn received(framer: &mut Framer, bytes: &[u8], step: usize) -> Vec<Received> {
    let mut pool = Pool::new(PoolConfig::heap("test", 1024, 4096)).expect("a pool");
    let mut out = Vec::new();
    for piece in bytes.chunks(step) {
        let mut loan = pool.loan(Owner::SHARED).expect("blocks enough");
        framer.push(loan.append(piece).expect("room enough"));
        assert_eq!(framer.next_batch(&mut out, usize::MAX), Ok(()));
    }
    framer.finish();
    assert_eq!(framer.next_batch(&mut out, usize::MAX), Ok(()));
    framer.end(&mut out);
    out
}

fn frames(format: ForeignFormat, events: impl IntoIterator<Item = u32>) -> Vec<Vec<u8>> {
    let frame = |event| format.emulate(SOURCE.0, event, &[0x33; 60]).expect("it is short").concat();
    events.into_iter().map(frame).collect()
}

#[test]
fn zeros_in_a_stream_are_no_frames_and_counted_as_garbage() {
    let streams = ForeignFormat::ALL.iter().copied().filter(|format| !format.needs_datagrams());
    for format in streams {
        let frames = frames(format, 1..9);
        let (first, rest) = frames.split_at(4);
        let bytes = [&[0; 512][..], &first.concat(), &[0; 4096], &rest.concat(), &[0; 1000]].concat();
        for step in [100, 1024] {
            let mut framer = Framer::described(SOURCE, format, LIMITS);
            let all = received(&mut framer, &bytes, step);
            let came: Vec<u8> = all.iter().flat_map(|one| one.payload.to_vec()).collect();
            assert!(came == frames.concat(), "{format:?} in steps of {step}");
            let left = framer.buffered() as u64;
            assert_eq!(framer.take_counts().skipped_bytes + left, 512 + 4096 + 1000, "{format:?}");
            assert!(left == 0 || format != ForeignFormat::Midas, "nothing is left over");
        }
    }
}

#[test]
fn a_datagram_of_zeros_is_given_up() {
    for &format in ForeignFormat::ALL {
        let mut pool = Pool::new(PoolConfig::heap("test", 1024, 16)).expect("a pool");
        let mut framer = DatagramFramer::new(SOURCE, format, LIMITS, DatagramLimits::USUAL);
        let (mut loan, mut out) = (pool.loan(Owner::SHARED).expect("a block"), Vec::new());
        framer.push(Instant::ZERO, loan.append(&[0; 200]).expect("room enough"), false, &mut out);
        framer.end(Instant::ZERO, &mut out);
        assert!(out.len() == 1 && out[0].meta.missing_cause().is_some(), "{format:?}: {out:?}");
        assert_eq!(framer.take_counts().skipped_bytes, 200, "{format:?}");
    }
}

/// As the files of ATLAS have them: records of the file, and events in any order, each named after who built it.
#[test]
fn records_of_a_data_file_are_filler_and_its_events_come_in_any_order() {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let start = words(&[0x1234_AAAA, 8, 2, 2, 0, 0, 0, 0, 0x1234_AABB, 5, 0x2D4F_4653, 0x31, 3, 0x6C6C_4120]);
    let separator = words(&[0x1234_CCCC, 4, 1, 500]);
    let end = words(&[0x1234_DDDD, 10, 0, 0, 10, 0, 10, 0, 0, 0x1234_EEEE]);
    let frames = frames(ForeignFormat::Atlas, [105, 108, 109, 107, 106, 120]);
    let events: Vec<u8> = frames.iter().flat_map(|event| [&separator[..], event].concat()).collect();
    let bytes = [start, events, end].concat();
    for first in [1, 199_781] {
        let mut framer = Framer::described(SourceId(1), ForeignFormat::Atlas, LIMITS).counting_from(first);
        let all = received(&mut framer, &bytes, 77);
        assert_eq!(all.iter().map(|one| one.meta.raw_id).collect::<Vec<_>>(), (first..first + 6).collect::<Vec<_>>());
        assert!(all.iter().all(|one| !one.meta.flags.contains(FragmentFlags::WRONG_SOURCE)));
        let counts = framer.take_counts();
        assert_eq!((counts.filler_bytes, counts.skipped_bytes, framer.buffered()), (4 * (14 + 6 * 4 + 10), 0, 0));
    }
}
