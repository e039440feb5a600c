//! Fragments are found wherever the stream is cut, and consecutive frames of one event become one fragment.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};
use ropewalk_wire::foreign::{ForeignFormat, Header, alice, dune, ess};
use ropewalk_wire::{fed, ferol, generic};

const SOURCE: SourceId = SourceId(7);
const LIMITS: FramerLimits = FramerLimits { max_fragment: 100_000, check_crc: true, gather: None };

/// Returns a FED fragment with `words` words of payload.
fn fed_fragment(source: SourceId, level1_id: u32, words: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let payload: Vec<u8> = (0..8 * words).map(|byte| (byte as u32 ^ level1_id) as u8).collect();
    let mut header = fed::Header::new(source, level1_id, 100 + level1_id as u16).to_bytes();
    header[7] |= 3; // the event type
    let header = fed::Header::parse(header).expect("only the event type differs");
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

/// A framer, and a pool of blocks of 1 KiB for its bytes.
struct Stream {
    framer: Framer,
    pool: Pool,
}

impl Stream {
    fn new(limits: FramerLimits) -> Self {
        Self { framer: Framer::new(limits), pool: Pool::new(PoolConfig::heap("test", 1024, 2048)).expect("a pool") }
    }

    /// Pushes the bytes in pieces of these lengths, used cyclically, each in its own block.
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

/// The opening and the framer agree, however few bytes there are.
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
    assert!(!stream.framer.is_mid_fragment(), "the format is not known yet");
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
fn fragments_that_lie_in_one_slice_are_found_in_order() {
    let other_source: Vec<u8> = {
        let mut bytes = generic_fragment(3, b"other");
        bytes[8..12].copy_from_slice(&99_u32.to_le_bytes());
        bytes
    };
    let mut too_long = generic_fragment(6, b"long");
    too_long[12..16].copy_from_slice(&(LIMITS.max_fragment + 1).to_le_bytes());
    let fragments = [
        generic_fragment(1, b"one"),
        generic_fragment(2, b""),
        other_source,
        generic_fragment(4, b"four"),
        generic_fragment(5, b"last"),
        too_long,
    ];
    let mut stream = Stream::new(LIMITS);
    stream.send(&hello(), &[64]);
    stream.send(&fragments.concat(), &[1024]);
    let mut found = stream.take(2).expect("plain fragments");
    let lost = stream.framer.next_batch(&mut found, usize::MAX).expect_err("an impossible length");
    assert_eq!((lost.cause, lost.bytes_discarded), (Cause::Oversize, 36));
    let seen: Vec<_> = found.iter().map(|one| (one.meta.raw_id, one.payload.to_vec())).collect();
    let expected: [(u64, &[u8]); 5] = [(1, b"one"), (2, b""), (3, b"other"), (4, b"four"), (5, b"last")];
    assert_eq!(seen, expected.map(|(number, payload)| (number, payload.to_vec())));
    let wrong = found.iter().map(|one| one.meta.flags.contains(FragmentFlags::WRONG_SOURCE));
    assert_eq!(wrong.collect::<Vec<_>>(), [false, false, true, false, false]);
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

const TIMEOUT: Duration = Duration::from_millis(100);
const GATHERING: FramerLimits = FramerLimits { max_fragment: 10_000, check_crc: true, gather: Some(TIMEOUT) };

/// Returns a page: its orbit, its index in the orbit, its counter, and whether it is the last one.
fn page(orbit: u64, place: u64, counter: u64, is_last: bool) -> Vec<u8> {
    let header = Header::new().with(alice::FEE, 7).with(alice::ORBIT, orbit).with(alice::PAGE, place);
    let header = header.with(alice::PACKET_COUNTER, counter & 0xff).with(alice::STOP, is_last.into());
    let mut page = Vec::new();
    alice::encode(header, &[(orbit + place) as u8; 32], &mut page).expect("it is short");
    page
}

/// Returns a piece of a trigger record.
fn record(trigger: u64, place: u64) -> Vec<u8> {
    let header = Header::new().with(dune::SOURCE, 7).with(dune::TRIGGER_NUMBER, trigger).with(dune::SEQUENCE, place);
    let mut fragment = Vec::new();
    dune::encode(header, &[place as u8; 20], &mut fragment);
    fragment
}

/// Returns a packet of a pulse.
fn packet(pulse: u64, number: u64) -> Vec<u8> {
    let header = Header::new().with(ess::QUEUE, 7).with(ess::SEQUENCE, number).with(ess::PULSE_TICKS, pulse);
    let mut packet = Vec::new();
    assert!(ess::encode(header, &[(1, 2, &[number as u8; 8][..])], &mut packet));
    packet
}

/// A stream of a format, and the fragments found in it.
struct GatheredStream {
    framer: Framer,
    pool: Pool,
    out: Vec<Received>,
    now: Instant,
}

impl GatheredStream {
    fn new(format: ForeignFormat, limits: FramerLimits) -> Self {
        let pool = Pool::new(PoolConfig::heap("test", 1024, 4096)).expect("a pool");
        Self { framer: Framer::described(SOURCE, format, limits), pool, out: Vec::new(), now: Instant::ZERO }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), FramingError> {
        let slice = slice(&mut self.pool, bytes);
        self.framer.set_now(self.now);
        self.framer.push(slice);
        self.take()
    }

    /// Takes all available fragments, one at a time.
    fn take(&mut self) -> Result<(), FramingError> {
        loop {
            let before = self.out.len();
            self.framer.next_batch(&mut self.out, 1)?;
            assert!(self.out.len() <= before + 1, "no more than there is room for");
            if self.out.len() == before {
                return Ok(());
            }
        }
    }

    fn settle(&mut self, after: Duration, was_heard: bool) {
        self.now = self.now.after(after);
        if self.framer.settle(self.now, was_heard) {
            self.take().expect("nothing else came");
        }
    }
}

fn slice(pool: &mut Pool, bytes: &[u8]) -> Slice {
    let mut loan = pool.loan(Owner::SHARED).expect("blocks enough");
    loan.append(bytes).expect("room enough")
}

/// Summarises the received fragments: the event with its bytes and whether some are missing, or the cause of a loss.
fn outcome(received: &[Received]) -> Vec<Result<(u64, usize, bool), Cause>> {
    let in_short = |one: &Received| match one.meta.missing_cause() {
        Some(cause) => Err(cause),
        None => {
            assert_eq!(one.meta.length as usize, one.payload.len());
            Ok((one.meta.raw_id, one.payload.len(), one.meta.flags.contains(FragmentFlags::FRAMES_MISSING)))
        }
    };
    received.iter().map(in_short).collect()
}

/// Pages of 96 bytes each.
const PAGE: usize = 96;

#[test]
fn pages_of_an_orbit_are_one_fragment_as_soon_as_the_last_one_is_there() {
    let mut stream = GatheredStream::new(ForeignFormat::Alice, GATHERING);
    let pages = [page(1, 0, 0, false), page(1, 1, 1, false), page(1, 2, 2, true)];
    stream.push(&pages[0]).expect("a page");
    stream.push(&pages[1]).expect("a page");
    assert!(stream.out.is_empty());
    stream.push(&pages[2]).expect("a page");
    assert_eq!(outcome(&stream.out), [Ok((1, 3 * PAGE, false))]);
    assert_eq!(stream.out[0].payload.to_vec(), pages.concat());
    stream.push(&page(2, 0, 3, true)).expect("a page");
    assert_eq!(outcome(&stream.out[1..]), [Ok((2, PAGE, false))]);
    assert_eq!(stream.framer.take_counts(), FrameCounts { gathered: 2, ..FrameCounts::NONE });
}

#[test]
fn what_is_missing_in_an_orbit_is_flagged_wherever_it_was() {
    let mut stream = GatheredStream::new(ForeignFormat::Alice, GATHERING);
    let within = [page(1, 0, 0, false), page(1, 2, 2, true)];
    let first = [page(2, 1, 4, false), page(2, 2, 5, true)];
    let last = [page(3, 0, 6, false), page(3, 1, 7, false)];
    let good = [page(4, 0, 9, true)];
    for page in within.iter().chain(&first).chain(&last).chain(&good) {
        stream.push(page).expect("a page");
    }
    let missing = |orbit| Ok((orbit, 2 * PAGE, true));
    assert_eq!(outcome(&stream.out), [missing(1), missing(2), missing(3), Ok((4, PAGE, false))]);
    assert!(stream.out[0].meta.flags.has_error(), "it is doubtful");
    assert_eq!(stream.framer.take_counts().missing, 3, "by their places");
}

#[test]
fn places_alone_show_what_is_missing_where_frames_have_no_numbers() {
    let mut stream = GatheredStream::new(ForeignFormat::Dune, GATHERING);
    for frame in [record(1, 0), record(1, 3), record(2, 1), record(3, 0)] {
        stream.push(&frame).expect("a record");
    }
    let bytes = dune::HEADER_BYTES + 20;
    assert_eq!(outcome(&stream.out), [Ok((1, 2 * bytes, true)), Ok((2, bytes, true))]);
    assert_eq!(stream.framer.take_counts(), FrameCounts { gathered: 1, missing: 3, ..FrameCounts::NONE });
}

#[test]
fn a_page_that_comes_twice_is_there_once_and_one_that_comes_too_late_is_late() {
    let mut stream = GatheredStream::new(ForeignFormat::Alice, GATHERING);
    let once = page(1, 0, 0, false);
    for page in [&once, &once, &page(1, 1, 1, true), &page(1, 1, 1, true), &page(1, 2, 2, true), &page(2, 0, 3, true)] {
        stream.push(page).expect("a page");
    }
    // The orbit had already been passed on when its last page was repeated.
    assert_eq!(
        outcome(&stream.out),
        [Ok((1, 2 * PAGE, false)), Err(Cause::Late), Err(Cause::Late), Ok((2, PAGE, false))]
    );
    let counts = stream.framer.take_counts();
    assert_eq!((counts.repeated, counts.gathered), (1, 1));
}

#[test]
fn an_event_whose_last_frame_is_not_marked_ends_with_the_next_one_or_with_silence_or_with_the_connection() {
    let mut stream = GatheredStream::new(ForeignFormat::Dune, GATHERING);
    for frame in [record(1, 0), record(1, 1), record(2, 0)] {
        stream.push(&frame).expect("a record");
    }
    let bytes = dune::HEADER_BYTES + 20;
    assert_eq!(outcome(&stream.out), [Ok((1, 2 * bytes, false))]);
    assert_eq!(stream.framer.next_deadline(), Some(Instant::ZERO.after(TIMEOUT)));
    stream.settle(TIMEOUT / 2, true);
    stream.push(&record(2, 1)).expect("a record");
    stream.settle(TIMEOUT - Duration::from_nanos(1), true);
    assert_eq!(stream.out.len(), 1, "it spoke since");
    stream.settle(Duration::from_nanos(1), true);
    assert_eq!(outcome(&stream.out[1..]), [Ok((2, 2 * bytes, false))]);
    assert_eq!(stream.framer.next_deadline(), None);
    stream.push(&record(2, 2)).expect("a record");
    stream.push(&record(3, 0)).expect("a record");
    let mut rest = Vec::new();
    stream.framer.end(&mut rest);
    assert_eq!((outcome(&stream.out[2..]), outcome(&rest)), (vec![Err(Cause::Late)], vec![Ok((3, bytes, false))]));
}

#[test]
fn silence_counts_only_while_the_source_could_be_heard() {
    let mut stream = GatheredStream::new(ForeignFormat::Dune, GATHERING);
    stream.push(&record(1, 0)).expect("a record");
    stream.settle(10 * TIMEOUT, false);
    stream.settle(TIMEOUT / 2, true);
    assert!(stream.out.is_empty(), "the source was not read");
    stream.push(&record(1, 1)[..30]).expect("a part of one");
    stream.settle(10 * TIMEOUT, true);
    assert!(stream.out.is_empty(), "the rest of the frame must come");
    stream.push(&record(1, 1)[30..]).expect("the rest");
    stream.settle(TIMEOUT, true);
    assert_eq!(outcome(&stream.out), [Ok((1, 2 * (dune::HEADER_BYTES + 20), false))]);
}

#[test]
fn a_frame_that_came_while_the_source_was_not_read_counts_from_when_it_is_found() {
    let mut stream = GatheredStream::new(ForeignFormat::Dune, GATHERING);
    let slice = slice(&mut stream.pool, &[record(1, 0), record(1, 1)].concat());
    stream.framer.push(slice);
    // There was no room for the frame.
    stream.settle(10 * TIMEOUT, false);
    stream.take().expect("two records");
    stream.settle(TIMEOUT / 2, true);
    assert!(stream.out.is_empty());
    stream.settle(TIMEOUT / 2, true);
    assert_eq!(outcome(&stream.out), [Ok((1, 2 * (dune::HEADER_BYTES + 20), false))]);
}

#[test]
fn an_event_that_grows_beyond_the_limit_is_given_up_and_the_next_one_is_found() {
    let mut stream = GatheredStream::new(ForeignFormat::Alice, FramerLimits { max_fragment: 200, ..GATHERING });
    for page in [page(1, 0, 0, false), page(1, 1, 1, false), page(1, 2, 2, false), page(1, 3, 3, true)] {
        stream.push(&page).expect("a page");
    }
    stream.push(&page(2, 0, 4, true)).expect("a page");
    assert_eq!(outcome(&stream.out), [Err(Cause::Oversize), Ok((2, PAGE, false))]);
}

#[test]
fn behind_a_lost_boundary_what_was_gathered_leaves_with_a_flag() {
    let mut stream = GatheredStream::new(ForeignFormat::Alice, GATHERING);
    stream.push(&page(1, 0, 0, false)).expect("a page");
    let error = stream.push(&[1; 80]).expect_err("no page");
    assert_eq!((error.cause, outcome(&stream.out)), (Cause::FramingLost, vec![Ok((1, PAGE, true))]));
}

#[test]
fn garbage_between_the_frames_of_an_event_may_have_been_one_of_them() {
    let mut stream = GatheredStream::new(ForeignFormat::Dune, GATHERING);
    for bytes in [&record(1, 0), &vec![0; 50], &record(1, 1), &record(2, 0)] {
        stream.push(bytes).expect("something");
    }
    let bytes = 2 * (dune::HEADER_BYTES + 20);
    assert_eq!(outcome(&stream.out), [Err(Cause::FramingLost), Ok((1, bytes, true))]);
}

#[test]
fn packets_of_a_pulse_are_one_fragment_and_one_that_strays_ends_no_other_pulse() {
    let mut framer = DatagramFramer::new(SOURCE, ForeignFormat::Ess, GATHERING, DatagramLimits::USUAL);
    let (mut pool, mut out) = (Pool::new(PoolConfig::heap("test", 1024, 64)).expect("a pool"), Vec::new());
    let mut push = |framer: &mut DatagramFramer<ForeignFormat>, bytes: &[u8]| {
        framer.push(Instant::ZERO, slice(&mut pool, bytes), false, &mut out);
    };
    let packets = [(100, 1), (100, 2), (100, 3), (200, 5), (100, 4), (200, 6), (200, 6), (300, 8)];
    packets.iter().for_each(|&(pulse, number)| push(&mut framer, &packet(pulse, number)));
    let bytes = packet(100, 1).len();
    framer.advance(Instant::ZERO.after(TIMEOUT / 2), &mut out);
    // Number 4 came after its pulse was passed on, number 6 was repeated, and number 7 may belong to either pulse.
    assert_eq!(outcome(&out), [Ok((100, 3 * bytes, false)), Err(Cause::Late), Ok((200, 2 * bytes, false))]);
    assert_eq!(out[0].payload.to_vec(), [packet(100, 1), packet(100, 2), packet(100, 3)].concat());
    framer.advance(Instant::ZERO.after(TIMEOUT), &mut out);
    assert_eq!(outcome(&out[3..]), [Ok((300, bytes, false))]);
    let counts = framer.take_counts();
    assert_eq!((counts.missing, counts.repeated, counts.gathered), (2, 1, 3));
}

#[test]
fn without_gathering_each_frame_is_a_fragment() {
    let mut stream = GatheredStream::new(ForeignFormat::Alice, FramerLimits { gather: None, ..GATHERING });
    stream.push(&page(1, 0, 0, false)).expect("a page");
    stream.push(&page(1, 1, 1, true)).expect("a page");
    assert_eq!(outcome(&stream.out), [Ok((1, PAGE, false)), Ok((1, PAGE, false))]);
}

proptest! {
    #[test]
    fn in_any_order_each_page_is_in_one_fragment_or_counted(
        pages in vec((0u64..4, 0u64..4, any::<bool>(), 0u64..6, 1usize..100), 1..60), marks: bool,
    ) {
        let mut stream = GatheredStream::new(if marks { ForeignFormat::Alice } else { ForeignFormat::Dune }, GATHERING);
        let mut frames = 0;
        for &(step, place, is_last, counter, cut) in &pages {
            let number = frames / 7 + step;
            let bytes = if marks { page(number, place, counter, is_last) } else { record(number, place) };
            frames += 1;
            let cut = cut.min(bytes.len());
            stream.push(&bytes[..cut]).expect("a part of one");
            stream.push(&bytes[cut..]).expect("the rest of it");
            stream.settle(Duration::from_millis(counter * 30), is_last);
        }
        let mut rest = Vec::new();
        stream.framer.end(&mut rest);
        stream.out.append(&mut rest);
        let counts = stream.framer.take_counts();
        // Each frame began a fragment, continued one, was repeated or came too late.
        prop_assert_eq!(stream.out.len() as u64 + counts.gathered + counts.repeated, frames);
        let late = stream.out.iter().filter(|one| one.meta.missing_cause() == Some(Cause::Late)).count() as u64;
        let bytes: usize = stream.out.iter().map(|one| one.payload.len()).sum();
        let each = if marks { PAGE } else { dune::HEADER_BYTES + 20 };
        prop_assert_eq!(bytes, (frames - counts.repeated - late) as usize * each);
    }
}

/// Returns the fragments of bytes that arrive in pieces of `step` and are then complete.
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

/// As in the files of ATLAS: file records, and events in any order, each named after the program that built it.
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
