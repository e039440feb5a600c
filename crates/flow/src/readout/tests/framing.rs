//! Fragments are found however the stream is cut, and what is wrong with them is told.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use ropewalk_memory::{Owner, Pool, PoolConfig};
use ropewalk_wire::{fed, ferol, generic};

const SOURCE: SourceId = SourceId(7);
const LIMITS: FramerLimits = FramerLimits { max_fragment: 100_000, check_crc: true, gather: None };

/// A FED fragment with `words` words of payload.
fn fed_fragment(source: SourceId, level1_id: u32, words: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let payload: Vec<u8> = (0..8 * words).map(|byte| (byte as u32 ^ level1_id) as u8).collect();
    let header = fed::Header::new(source, level1_id, 100 + level1_id as u16).with_event_type(3);
    fed::encode(header, &payload, fed::Trailer::new(), &mut bytes).expect("whole words");
    bytes
}

fn as_blocks(fragment: &[u8], level1_id: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    ferol::encode_fragment(fragment, SOURCE, level1_id, &mut bytes);
    bytes
}

fn hello() -> Vec<u8> {
    generic::Hello::new(SOURCE, generic::HelloFlags::UTC, "counter").expect("short").to_bytes().to_vec()
}

fn generic_fragment(event_number: u64, payload: &[u8]) -> Vec<u8> {
    let flags = generic::Flags::default();
    let header = generic::Header { source: SOURCE, flags, event_number, timestamp: 5_000, payload_bytes: 0 };
    let mut bytes = Vec::new();
    generic::encode(&header, payload, &mut bytes).expect("short");
    bytes
}

/// A framer, and a pool of blocks of 1 KiB through which its bytes come.
struct Stream {
    framer: Framer,
    pool: Pool,
}

impl Stream {
    fn new(limits: FramerLimits) -> Self {
        Self { framer: Framer::new(limits), pool: Pool::new(PoolConfig::heap("test", 1024, 2048)).expect("a pool") }
    }

    /// Lets bytes arrive in pieces of these lengths (again and again), each in a block of its own.
    fn send(&mut self, mut bytes: &[u8], lengths: &[usize]) {
        let mut lengths = lengths.iter().cycle();
        while !bytes.is_empty() {
            let length = lengths.next().map_or(1024, |&length| length.clamp(1, 1024)).min(bytes.len());
            self.pool.collect();
            let mut loan = self.pool.loan(Owner::SHARED).expect("blocks enough");
            self.framer.push(loan.append(&bytes[..length]).expect("room enough"));
            bytes = &bytes[length..];
        }
    }

    fn take(&mut self, at_most: usize) -> Result<Vec<Received>, FramingError> {
        let mut out = Vec::new();
        self.framer.next_batch(&mut out, at_most).map(|()| out)
    }

    fn all(&mut self) -> Vec<Received> {
        self.take(usize::MAX).expect("the stream makes sense")
    }
}

fn flags_of(bytes: &[u8], limits: FramerLimits) -> FragmentFlags {
    let mut stream = Stream::new(limits);
    stream.send(bytes, &[1000]);
    let [ref fragment] = stream.all()[..] else { panic!("one fragment") };
    fragment.meta.flags
}

/// Looking at the first bytes tells what a framer that gets them tells, however few there are.
#[test]
fn an_opening_says_what_the_framer_will_say() {
    let streams = [
        as_blocks(&fed_fragment(SOURCE, 1, 9), 1),
        [hello(), generic_fragment(1, b"payload")].concat(),
        b"GET / HTTP/1.0 and so on, and on and on, until there are as many as a hello has".to_vec(),
        b"RWHI\xff and so on, and on and on, until there are as many as a hello has".to_vec(),
        b"GZ and so on, and on and on, until there are as many as a hello has, and more".to_vec(),
    ];
    for bytes in streams {
        for length in 1..bytes.len().min(80) {
            let opening = Opening::read(&bytes[..length]);
            let mut stream = Stream::new(LIMITS);
            stream.send(&bytes[..length], &[length]);
            assert_eq!(opening.identity(), stream.framer.identity(), "{length} of {bytes:?}");
            assert_eq!(matches!(opening, Opening::Nonsense(_)), stream.framer.is_lost(), "{length} of {bytes:?}");
            let is_enough = length >= Opening::BYTES;
            assert!(!is_enough || opening != Opening::Unfinished, "{length} of {bytes:?}");
        }
    }
}

#[test]
fn format_and_source_are_known_after_the_first_header() {
    let mut stream = Stream::new(LIMITS);
    let bytes = as_blocks(&fed_fragment(SOURCE, 1, 10), 1);
    stream.send(&bytes[..15], &[4]);
    assert_eq!((stream.framer.source(), stream.framer.format()), (None, None));
    assert!(!stream.framer.is_mid_fragment(), "nobody knows yet what it is");
    stream.send(&bytes[15..20], &[2]);
    assert_eq!((stream.framer.source(), stream.framer.format()), (Some(SOURCE), Some(Format::Ferol)));
    assert!(stream.framer.is_mid_fragment());
    let mut stream = Stream::new(LIMITS);
    stream.send(&hello(), &[10]);
    assert_eq!((stream.framer.source(), stream.framer.format()), (Some(SOURCE), Some(Format::Generic)));
    assert_eq!(stream.framer.hello().map(|hello| hello.name.to_string()), Some("counter".to_owned()));
    assert!(!stream.framer.is_mid_fragment(), "between two fragments");
}

#[test]
fn a_fed_fragment_is_described_by_its_own_words() {
    let mut stream = Stream::new(LIMITS);
    let fragment = fed_fragment(SOURCE, 42, 3);
    stream.send(&as_blocks(&fragment, 42), &[1000]);
    let [ref received] = stream.all()[..] else { panic!("one fragment") };
    assert_eq!(received.payload.to_vec(), fragment);
    let flags = FragmentFlags::CRC_CHECKED.with(FragmentFlags::HAS_BUNCH_CROSSING);
    let expected =
        FragmentMeta { source: SOURCE, length: 40, flags, bunch_crossing: 142, trigger_type: 3, raw_id: 42, time: 0 };
    assert_eq!(received.meta, expected);
}

#[test]
fn a_generic_fragment_is_described_by_its_header() {
    let mut stream = Stream::new(LIMITS);
    stream.send(&hello(), &[64]);
    stream.send(&generic_fragment(9, b"abc"), &[5]);
    stream.send(&generic_fragment(10, b""), &[5]);
    let [ref first, ref second] = stream.all()[..] else { panic!("two fragments") };
    assert_eq!((first.payload.to_vec(), first.meta.raw_id, first.meta.time), (b"abc".to_vec(), 9, 5_000));
    assert!(first.meta.flags.contains(FragmentFlags::HAS_TIME) && !first.restarts);
    assert_eq!((second.payload.len(), second.meta.length, second.meta.raw_id), (0, 0, 10));
}

#[test]
fn a_resynchronisation_is_passed_on() {
    let mut stream = Stream::new(LIMITS);
    let mut bytes = generic_fragment(1, b"abc");
    bytes[6] = generic::Flags::RESYNC.0 as u8;
    stream.send(&hello(), &[64]);
    stream.send(&bytes, &[64]);
    assert!(stream.all()[0].restarts);
}

#[test]
fn no_more_fragments_are_taken_than_there_is_room_for() {
    let mut stream = Stream::new(LIMITS);
    for event in 1..=5 {
        stream.send(&as_blocks(&fed_fragment(SOURCE, event, 4), event), &[100]);
    }
    assert_eq!(stream.take(2).map(|fragments| fragments.len()), Ok(2));
    assert_eq!(stream.framer.buffered(), 3 * (16 + 48));
    assert_eq!(stream.take(0).map(|fragments| fragments.len()), Ok(0));
    assert_eq!(stream.take(9).map(|fragments| fragments.len()), Ok(3));
    assert!(!stream.framer.is_mid_fragment());
}

#[test]
fn a_connection_that_ends_within_a_fragment_cuts_it_short() {
    let mut stream = Stream::new(LIMITS);
    let bytes = as_blocks(&fed_fragment(SOURCE, 1, 1000), 1);
    stream.send(&bytes[..5000], &[1000]);
    assert_eq!(stream.all().len(), 0);
    assert!(stream.framer.is_mid_fragment());
    assert_eq!(stream.framer.buffered(), 5000 - 16, "one block was taken, the next is not whole");
}

#[test]
fn wrong_contents_are_flagged_and_the_fragment_is_going_on() {
    let right = fed_fragment(SOURCE, 1, 4);
    let described = FragmentFlags::HAS_BUNCH_CROSSING;
    let checked = described.with(FragmentFlags::CRC_CHECKED);
    assert_eq!(flags_of(&as_blocks(&right, 1), LIMITS), checked);

    let mut damaged = right.clone();
    damaged[20] ^= 1;
    assert_eq!(flags_of(&as_blocks(&damaged, 1), LIMITS), checked.with(FragmentFlags::CRC_ERROR));
    let unchecked = FramerLimits { check_crc: false, ..LIMITS };
    assert_eq!(flags_of(&as_blocks(&damaged, 1), unchecked), described);

    let other = fed_fragment(SourceId(8), 1, 4);
    assert_eq!(flags_of(&as_blocks(&other, 1), LIMITS), checked.with(FragmentFlags::WRONG_SOURCE));
    assert_eq!(flags_of(&as_blocks(&right, 2), LIMITS), checked.with(FragmentFlags::MALFORMED), "another event");

    let mut longer = right.clone();
    longer.splice(16..16, [0; 8]);
    assert_eq!(flags_of(&as_blocks(&longer, 1), LIMITS), described.with(FragmentFlags::LENGTH_MISMATCH));
    assert_eq!(flags_of(&as_blocks(&[0; 48], 1), LIMITS), FragmentFlags::MALFORMED);
    assert_eq!(flags_of(&as_blocks(&right[..8], 1), LIMITS), described.with(FragmentFlags::MALFORMED));
}

#[test]
fn a_block_of_another_source_is_flagged() {
    let mut bytes = as_blocks(&fed_fragment(SOURCE, 1, 4), 1);
    ferol::encode_fragment(&fed_fragment(SOURCE, 2, 4), SourceId(8), 2, &mut bytes);
    let mut stream = Stream::new(LIMITS);
    stream.send(&bytes, &[1000]);
    let wrong = |fragment: &Received| fragment.meta.flags.contains(FragmentFlags::WRONG_SOURCE);
    assert_eq!(stream.all().iter().map(wrong).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn a_generic_fragment_of_another_source_is_flagged() {
    let mut bytes = hello();
    let fragment = generic_fragment(1, b"abc");
    bytes.extend_from_slice(&fragment[..8]);
    bytes.extend_from_slice(&99_u32.to_le_bytes());
    bytes.extend_from_slice(&fragment[12..]);
    assert_eq!(flags_of(&bytes, LIMITS), FragmentFlags::HAS_TIME.with(FragmentFlags::WRONG_SOURCE));
}

#[test]
fn garbage_loses_the_connection_and_is_counted_in_bytes() {
    let mut stream = Stream::new(LIMITS);
    stream.send(&[b'x'; 200], &[30]);
    let lost = FramingError { cause: Cause::FramingLost, bytes_discarded: 200 };
    assert_eq!(stream.take(10).map(|_| ()), Err(lost));
    stream.send(&[b'x'; 50], &[30]);
    let again = FramingError { cause: Cause::FramingLost, bytes_discarded: 50 };
    assert_eq!(stream.take(10).map(|_| ()), Err(again), "it stays lost");
}

#[test]
fn the_first_byte_that_neither_format_has_loses_the_connection() {
    for beginning in [as_blocks(&fed_fragment(SOURCE, 1, 1), 1), hello()] {
        for length in 1..16 {
            let mut stream = Stream::new(LIMITS);
            stream.send(&beginning[..length], &[1]);
            assert_eq!(stream.framer.next_batch(&mut Vec::new(), 0), Ok(()), "{:x?} may go on", &beginning[..length]);
            assert_eq!((stream.framer.source(), stream.framer.buffered()), (None, length));
        }
    }
    for beginning in [&[0][..], b"GE", b"R0", b"RWHO", b"ZG"] {
        let mut stream = Stream::new(LIMITS);
        stream.send(beginning, &[1]);
        let lost = FramingError { cause: Cause::FramingLost, bytes_discarded: beginning.len() as u64 };
        assert_eq!(stream.framer.next_batch(&mut Vec::new(), 0), Err(lost), "{beginning:x?}");
    }
}

#[test]
fn garbage_behind_good_fragments_leaves_these_alone() {
    let mut stream = Stream::new(LIMITS);
    stream.send(&as_blocks(&fed_fragment(SOURCE, 1, 4), 1), &[30]);
    stream.send(&[0; 100], &[30]);
    let mut out = Vec::new();
    let error = stream.framer.next_batch(&mut out, 10);
    assert_eq!(error, Err(FramingError { cause: Cause::FramingLost, bytes_discarded: 100 }));
    assert_eq!(out.len(), 1);
}

#[test]
fn a_length_of_four_gibibytes_is_not_believed() {
    let mut stream = Stream::new(LIMITS);
    let mut bytes = generic_fragment(1, b"abc");
    bytes[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    stream.send(&hello(), &[64]);
    stream.send(&bytes, &[64]);
    assert_eq!(stream.take(1).map(|_| ()), Err(FramingError { cause: Cause::Oversize, bytes_discarded: 35 }));
}

#[test]
fn a_fed_fragment_that_is_too_long_is_given_up_and_the_stream_is_going_on() {
    let mut stream = Stream::new(FramerLimits { max_fragment: 10_000, ..LIMITS });
    stream.send(&as_blocks(&fed_fragment(SOURCE, 1, 2000), 1), &[1000]);
    stream.send(&as_blocks(&fed_fragment(SOURCE, 2, 2), 2), &[1000]);
    let [ref lost, ref good] = stream.all()[..] else { panic!("a loss and a fragment") };
    assert_eq!((lost.meta.missing_cause(), lost.payload.len()), (Some(Cause::Oversize), 0));
    assert_eq!((good.meta.raw_id, good.meta.missing_cause()), (2, None));
}

#[test]
fn a_fragment_without_one_of_its_blocks_is_counted_as_dropped() {
    let mut stream = Stream::new(LIMITS);
    let blocks = as_blocks(&fed_fragment(SOURCE, 1, 2000), 1);
    stream.send(&blocks[..4096], &[1000]);
    stream.send(&blocks[8192..], &[1000]);
    let next = fed_fragment(SOURCE, 2, 1000);
    stream.send(&as_blocks(&next, 2), &[1000]);
    let mut settings = config(1);
    settings.sources[0].id = SOURCE;
    let mut rig = Rig::started(settings);
    let fragments = stream.all();
    assert_eq!(fragments.last().map(|fragment| fragment.payload.to_vec()), Some(next), "nothing of event 1 is in it");
    rig.feed_fragments(0, fragments);
    assert_eq!((rig.account(0).received, rig.account(0).dropped.get(Cause::Malformed)), (2, 1));
    assert_eq!(rig.numbers(), [2], "event 1 has no fragment, and event 2 proves it");
}

#[test]
fn a_framer_can_serve_the_next_connection() {
    let mut stream = Stream::new(LIMITS);
    stream.send(&[b'x'; 200], &[30]);
    assert!(stream.take(1).is_err());
    stream.framer.clear();
    assert_eq!((stream.framer.source(), stream.framer.buffered()), (None, 0));
    stream.send(&as_blocks(&fed_fragment(SOURCE, 1, 1), 1), &[30]);
    assert_eq!(stream.all().len(), 1);
}

#[test]
fn limits_can_be_set_when_the_source_is_known() {
    let mut stream = Stream::new(FramerLimits { max_fragment: 5_000, check_crc: false, gather: None });
    stream.send(&as_blocks(&fed_fragment(SOURCE, 1, 1000), 1), &[1000]);
    assert_eq!(stream.framer.source(), Some(SOURCE));
    stream.framer.set_limits(LIMITS);
    let [ref fragment] = stream.all()[..] else { panic!("one fragment") };
    assert!(fragment.meta.flags.contains(FragmentFlags::CRC_CHECKED));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn fed_fragments_are_found_however_the_stream_is_cut(
        words in vec(0..1500_usize, 1..12),
        lengths in vec(1..1024_usize, 6..9),
        at_most in 1..5_usize,
    ) {
        let mut stream = Stream::new(LIMITS);
        let fragments: Vec<_> =
            words.iter().zip(1..).map(|(&words, event)| fed_fragment(SOURCE, event, words)).collect();
        let bytes: Vec<u8> = fragments.iter().zip(1..).flat_map(|(bytes, event)| as_blocks(bytes, event)).collect();
        let mut found = Vec::new();
        for part in bytes.chunks(3000) {
            stream.send(part, &lengths);
            loop {
                let batch = stream.take(at_most).expect("the stream makes sense");
                if batch.is_empty() {
                    break;
                }
                prop_assert!(batch.len() <= at_most);
                found.extend(batch.iter().map(|fragment| fragment.payload.to_vec()));
            }
        }
        prop_assert_eq!(found, fragments);
        prop_assert!(!stream.framer.is_mid_fragment());
    }

    #[test]
    fn generic_fragments_are_found_however_the_stream_is_cut(
        payloads in vec(vec(any::<u8>(), 0..3000), 1..12),
        lengths in vec(1..1024_usize, 6..9),
    ) {
        let mut stream = Stream::new(LIMITS);
        let fragments = payloads.iter().zip(1..).flat_map(|(payload, event)| generic_fragment(event, payload));
        let bytes: Vec<u8> = hello().into_iter().chain(fragments).collect();
        let mut found = Vec::new();
        for part in bytes.chunks(2000) {
            stream.send(part, &lengths);
            found.extend(stream.all().iter().map(|fragment| fragment.payload.to_vec()));
        }
        prop_assert_eq!(found, payloads);
    }

    #[test]
    fn any_bytes_are_taken_or_discarded_and_none_is_forgotten(
        begin in 0..3_usize,
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        tail in vec(any::<u8>(), 0..200),
        lengths in vec(10..300_usize, 1..6),
    ) {
        let ferol: Vec<u8> = (1..4).flat_map(|event| as_blocks(&fed_fragment(SOURCE, event, 600), event)).collect();
        let generic: Vec<u8> = hello().into_iter().chain((1..4).flat_map(|n| generic_fragment(n, &[1; 50]))).collect();
        let mut bytes = [Vec::new(), ferol, generic][begin].clone();
        bytes.extend_from_slice(&tail);
        for (index, value) in damage {
            if !bytes.is_empty() {
                let at = index.index(bytes.len());
                bytes[at] = value;
            }
        }
        let mut stream = Stream::new(LIMITS);
        stream.send(&bytes, &lengths);
        let mut out = Vec::new();
        let result = stream.framer.next_batch(&mut out, usize::MAX);
        let payload: usize = out.iter().map(|fragment| fragment.payload.len()).sum();
        let discarded = result.map_or_else(|error| error.bytes_discarded as usize, |()| stream.framer.buffered());
        prop_assert!(payload + discarded <= bytes.len());
    }
}
