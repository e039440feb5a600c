//! Frames of one event that follow each other become one fragment: pages of an orbit, pieces of a trigger record, packets of a
//! pulse.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};
use ropewalk_wire::foreign::{ForeignFormat, Header, alice, dune, ess};

const SOURCE: SourceId = SourceId(7);
const TIMEOUT: Duration = Duration::from_millis(100);
const LIMITS: FramerLimits = FramerLimits { max_fragment: 10_000, check_crc: true, gather: Some(TIMEOUT) };

/// A page: which orbit, which page of it, its counter, whether it is the last.
fn page(orbit: u64, place: u64, counter: u64, is_last: bool) -> Vec<u8> {
    let header = Header::new().with(alice::FEE, 7).with(alice::ORBIT, orbit).with(alice::PAGE, place);
    let header = header.with(alice::PACKET_COUNTER, counter & 0xff).with(alice::STOP, is_last.into());
    let mut page = Vec::new();
    alice::encode(header, &[(orbit + place) as u8; 32], &mut page).expect("it is short");
    page
}

/// A piece of a trigger record.
fn record(trigger: u64, place: u64) -> Vec<u8> {
    let header = Header::new().with(dune::SOURCE, 7).with(dune::TRIGGER_NUMBER, trigger).with(dune::SEQUENCE, place);
    let mut fragment = Vec::new();
    dune::encode(header, &[place as u8; 20], &mut fragment);
    fragment
}

/// A packet of a pulse.
fn packet(pulse: u64, number: u64) -> Vec<u8> {
    let header = Header::new().with(ess::QUEUE, 7).with(ess::SEQUENCE, number).with(ess::PULSE_TICKS, pulse);
    let mut packet = Vec::new();
    assert!(ess::encode(header, &[(1, 2, &[number as u8; 8][..])], &mut packet));
    packet
}

/// A stream of a format, and what comes of it.
struct Stream {
    framer: Framer,
    pool: Pool,
    out: Vec<Received>,
    now: Instant,
}

impl Stream {
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

    /// Takes what there is, one at a time.
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

/// What came, in short: the event with its bytes and whether some are missing, or the cause of a loss.
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
    let mut stream = Stream::new(ForeignFormat::Alice, LIMITS);
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
    let mut stream = Stream::new(ForeignFormat::Alice, LIMITS);
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
    let mut stream = Stream::new(ForeignFormat::Dune, LIMITS);
    for frame in [record(1, 0), record(1, 3), record(2, 1), record(3, 0)] {
        stream.push(&frame).expect("a record");
    }
    let bytes = dune::HEADER_BYTES + 20;
    assert_eq!(outcome(&stream.out), [Ok((1, 2 * bytes, true)), Ok((2, bytes, true))]);
    assert_eq!(stream.framer.take_counts(), FrameCounts { gathered: 1, missing: 3, ..FrameCounts::NONE });
}

#[test]
fn a_page_that_comes_twice_is_there_once_and_one_that_comes_too_late_is_late() {
    let mut stream = Stream::new(ForeignFormat::Alice, LIMITS);
    let once = page(1, 0, 0, false);
    for page in [&once, &once, &page(1, 1, 1, true), &page(1, 1, 1, true), &page(1, 2, 2, true), &page(2, 0, 3, true)] {
        stream.push(page).expect("a page");
    }
    // The orbit had left when its last page came again.
    assert_eq!(
        outcome(&stream.out),
        [Ok((1, 2 * PAGE, false)), Err(Cause::Late), Err(Cause::Late), Ok((2, PAGE, false))]
    );
    let counts = stream.framer.take_counts();
    assert_eq!((counts.repeated, counts.gathered), (1, 1));
}

#[test]
fn an_event_whose_last_frame_is_not_marked_ends_with_the_next_one_or_with_silence_or_with_the_connection() {
    let mut stream = Stream::new(ForeignFormat::Dune, LIMITS);
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
    let mut stream = Stream::new(ForeignFormat::Dune, LIMITS);
    stream.push(&record(1, 0)).expect("a record");
    stream.settle(10 * TIMEOUT, false);
    stream.settle(TIMEOUT / 2, true);
    assert!(stream.out.is_empty(), "nobody listened");
    stream.push(&record(1, 1)[..30]).expect("a part of one");
    stream.settle(10 * TIMEOUT, true);
    assert!(stream.out.is_empty(), "the rest of the frame must come");
    stream.push(&record(1, 1)[30..]).expect("the rest");
    stream.settle(TIMEOUT, true);
    assert_eq!(outcome(&stream.out), [Ok((1, 2 * (dune::HEADER_BYTES + 20), false))]);
}

#[test]
fn a_frame_that_came_before_nobody_listened_and_is_found_later_is_heard_then() {
    let mut stream = Stream::new(ForeignFormat::Dune, LIMITS);
    let slice = slice(&mut stream.pool, &[record(1, 0), record(1, 1)].concat());
    stream.framer.push(slice);
    // There was no room for it.
    stream.settle(10 * TIMEOUT, false);
    stream.take().expect("two records");
    stream.settle(TIMEOUT / 2, true);
    assert!(stream.out.is_empty());
    stream.settle(TIMEOUT / 2, true);
    assert_eq!(outcome(&stream.out), [Ok((1, 2 * (dune::HEADER_BYTES + 20), false))]);
}

#[test]
fn an_event_that_grows_beyond_the_limit_is_given_up_and_the_next_one_is_found() {
    let mut stream = Stream::new(ForeignFormat::Alice, FramerLimits { max_fragment: 200, ..LIMITS });
    for page in [page(1, 0, 0, false), page(1, 1, 1, false), page(1, 2, 2, false), page(1, 3, 3, true)] {
        stream.push(&page).expect("a page");
    }
    stream.push(&page(2, 0, 4, true)).expect("a page");
    assert_eq!(outcome(&stream.out), [Err(Cause::Oversize), Ok((2, PAGE, false))]);
}

#[test]
fn behind_a_lost_boundary_what_was_gathered_leaves_with_a_flag() {
    let mut stream = Stream::new(ForeignFormat::Alice, LIMITS);
    stream.push(&page(1, 0, 0, false)).expect("a page");
    let error = stream.push(&[1; 80]).expect_err("no page");
    assert_eq!((error.cause, outcome(&stream.out)), (Cause::FramingLost, vec![Ok((1, PAGE, true))]));
}

#[test]
fn garbage_between_the_frames_of_an_event_may_have_been_one_of_them() {
    let mut stream = Stream::new(ForeignFormat::Dune, LIMITS);
    for bytes in [&record(1, 0), &vec![0; 50], &record(1, 1), &record(2, 0)] {
        stream.push(bytes).expect("something");
    }
    let bytes = 2 * (dune::HEADER_BYTES + 20);
    assert_eq!(outcome(&stream.out), [Err(Cause::FramingLost), Ok((1, bytes, true))]);
}

#[test]
fn packets_of_a_pulse_are_one_fragment_and_one_that_strays_ends_no_other_pulse() {
    let mut framer = DatagramFramer::new(SOURCE, ForeignFormat::Ess, LIMITS, DatagramLimits::USUAL);
    let (mut pool, mut out) = (Pool::new(PoolConfig::heap("test", 1024, 64)).expect("a pool"), Vec::new());
    let mut push = |framer: &mut DatagramFramer<ForeignFormat>, bytes: &[u8]| {
        framer.push(Instant::ZERO, slice(&mut pool, bytes), false, &mut out);
    };
    let packets = [(100, 1), (100, 2), (100, 3), (200, 5), (100, 4), (200, 6), (200, 6), (300, 8)];
    packets.iter().for_each(|&(pulse, number)| push(&mut framer, &packet(pulse, number)));
    let bytes = packet(100, 1).len();
    framer.advance(Instant::ZERO.after(TIMEOUT / 2), &mut out);
    // Number 4 came after its pulse had left, number 6 twice, and number 7 may have been of either pulse.
    assert_eq!(outcome(&out), [Ok((100, 3 * bytes, false)), Err(Cause::Late), Ok((200, 2 * bytes, false))]);
    assert_eq!(out[0].payload.to_vec(), [packet(100, 1), packet(100, 2), packet(100, 3)].concat());
    framer.advance(Instant::ZERO.after(TIMEOUT), &mut out);
    assert_eq!(outcome(&out[3..]), [Ok((300, bytes, false))]);
    let counts = framer.take_counts();
    assert_eq!((counts.missing, counts.repeated, counts.gathered), (2, 1, 3));
}

#[test]
fn without_gathering_each_frame_is_a_fragment() {
    let mut stream = Stream::new(ForeignFormat::Alice, FramerLimits { gather: None, ..LIMITS });
    stream.push(&page(1, 0, 0, false)).expect("a page");
    stream.push(&page(1, 1, 1, true)).expect("a page");
    assert_eq!(outcome(&stream.out), [Ok((1, PAGE, false)), Ok((1, PAGE, false))]);
}

proptest! {
    #[test]
    fn whatever_pages_come_each_is_in_one_fragment_or_counted(
        pages in vec((0u64..4, 0u64..4, any::<bool>(), 0u64..6, 1usize..100), 1..60), marks: bool,
    ) {
        let mut stream = Stream::new(if marks { ForeignFormat::Alice } else { ForeignFormat::Dune }, LIMITS);
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
        // Each frame began a fragment, went on with one, came twice or too late.
        prop_assert_eq!(stream.out.len() as u64 + counts.gathered + counts.repeated, frames);
        let late = stream.out.iter().filter(|one| one.meta.missing_cause() == Some(Cause::Late)).count() as u64;
        let bytes: usize = stream.out.iter().map(|one| one.payload.len()).sum();
        let each = if marks { PAGE } else { dune::HEADER_BYTES + 20 };
        prop_assert_eq!(bytes, (frames - counts.repeated - late) as usize * each);
    }
}
