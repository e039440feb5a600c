//! The black box of a source: what came last, as it came, handed over to be saved when something was wrong with it.
//!
//! ```text
//!  received bytes --copied--> Recording (a ring of bytes) --incident--> RecordingLine --> the thread that writes files
//!                                  ^ the spare one takes its place          |
//!                                  +------------- given back, empty <-------+
//! ```
//! The bytes are copied, because slices that are kept would hold the blocks of the source's pool, which it needs to go on.
//! Memory is laid out before the run: two recordings for each source. While both are full of incidents nothing is recorded.

use ropewalk_flow::messages::Received;
use ropewalk_flow::readout::FrameCounts;
use ropewalk_terms::{Instant, SourceId};
use ropewalk_wire::message::FragmentFlags;
use rtrb::{Consumer, Producer, RingBuffer};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// How much is kept of a source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BlackBoxConfig {
    /// Nothing older than this.
    pub last: Duration,
    /// At most this many bytes.
    pub max_bytes: usize,
}

/// Between two incidents of a source that are saved lies so much time: one fault often comes with a thousand others.
const PAUSE: Duration = Duration::from_secs(10);
/// The most incidents of a source that are saved in a run.
const MOST_SAVED: u32 = 16;
/// Bytes for each arrival on average, for which there is room.
const USUAL_BYTES: usize = 256;

/// What came at once: bytes of a stream, or a datagram.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Arrival {
    at: Instant,
    from: SocketAddr,
    /// Where its bytes end, counted from the first one that was ever recorded.
    end: u64,
    /// In a stream: where a frame begins that was not whole before, which may be here. `None` if that is not recorded.
    frame: Option<u64>,
}

/// What came last.
#[derive(Debug)]
pub struct Recording {
    last: Duration,
    /// A ring: the byte that is the n-th to come lies at n modulo its length.
    bytes: Box<[u8]>,
    arrivals: VecDeque<Arrival>,
    /// Where the first arrival's bytes begin, and where the last one's end.
    begin: u64,
    end: u64,
    /// Where the frame begins that is not whole yet.
    frame: Option<u64>,
    /// The first bytes of a connection of this source, needed to replay the rest.
    greeting: Vec<u8>,
    /// What was wrong, and when.
    incident: Option<(&'static str, Instant)>,
}

/// The place of a greeting: that of generic fragments.
const GREETING_BYTES: usize = 64;

impl Recording {
    fn new(config: BlackBoxConfig) -> Self {
        Self {
            last: config.last,
            bytes: vec![0; config.max_bytes.max(1)].into(),
            arrivals: VecDeque::with_capacity((config.max_bytes / USUAL_BYTES).max(64)),
            begin: 0,
            end: 0,
            frame: None,
            greeting: Vec::with_capacity(GREETING_BYTES),
            incident: None,
        }
    }

    /// Forgets everything.
    fn clear(&mut self) {
        self.arrivals.clear();
        (self.begin, self.end, self.frame) = (0, 0, None);
        self.incident = None;
    }

    fn record(&mut self, at: Instant, from: SocketAddr, bytes: &[u8]) {
        // Of more than there is room for, the end.
        let skipped = bytes.len().saturating_sub(self.bytes.len());
        self.end += skipped as u64;
        let bytes = &bytes[skipped..];
        let room = self.bytes.len() as u64;
        let is_too_old = |first: &Arrival| at.since(first.at) > self.last;
        while let Some(first) = self.arrivals.front()
            && (self.end + bytes.len() as u64 - self.begin > room
                || self.arrivals.len() == self.arrivals.capacity()
                || is_too_old(first))
        {
            self.begin = first.end;
            self.arrivals.pop_front();
        }
        if self.arrivals.is_empty() {
            self.begin = self.end;
        }
        let place = (self.end % room) as usize;
        let (to_end, rest) = bytes.split_at(bytes.len().min(self.bytes.len() - place));
        self.bytes[place..place + to_end.len()].copy_from_slice(to_end);
        self.bytes[..rest.len()].copy_from_slice(rest);
        self.end += bytes.len() as u64;
        self.arrivals.push_back(Arrival { at, from, end: self.end, frame: self.frame });
    }

    /// The last `unframed` bytes belong to a frame that is not whole yet, or to none.
    const fn mark_frame(&mut self, unframed: usize) {
        self.frame = self.end.checked_sub(unframed as u64);
    }

    /// What was wrong, and when.
    pub const fn incident(&self) -> Option<(&'static str, Instant)> {
        self.incident
    }

    /// When the first of it came.
    pub fn since(&self) -> Option<Instant> {
        self.arrivals.front().map(|first| first.at)
    }

    /// Of a stream what there is from the first frame's begin on, in two pieces, and what the connection began with.
    pub fn stream(&self) -> [&[u8]; 3] {
        let mut frames = self.arrivals.iter().filter_map(|arrival| arrival.frame);
        let frame = frames.find(|&frame| frame >= self.begin);
        let begin = frame.unwrap_or(self.begin);
        let [first, second] = self.pieces(begin, self.end);
        [&self.greeting, first, second]
    }

    /// The datagrams: when each came, from where, and its bytes in two pieces.
    pub fn datagrams(&self) -> impl Iterator<Item = (Instant, SocketAddr, [&[u8]; 2])> {
        let begins = std::iter::once(self.begin).chain(self.arrivals.iter().map(|arrival| arrival.end));
        let one = |(arrival, begin): (&Arrival, u64)| (arrival.at, arrival.from, self.pieces(begin, arrival.end));
        self.arrivals.iter().zip(begins).map(one)
    }

    fn pieces(&self, begin: u64, end: u64) -> [&[u8]; 2] {
        let (place, length) = ((begin % self.bytes.len() as u64) as usize, (end - begin) as usize);
        let first = length.min(self.bytes.len() - place);
        [&self.bytes[place..place + first], &self.bytes[..length - first]]
    }
}

/// The black box of one source.
#[derive(Debug)]
pub struct BlackBox {
    recording: Option<Box<Recording>>,
    /// What the last connection began with: of each recording, whichever one it was.
    greeting: Vec<u8>,
    saved: Producer<Box<Recording>>,
    back: Consumer<Box<Recording>>,
    /// What was wrong since the last one was handed over.
    incident: Option<(&'static str, Instant)>,
    next: Instant,
    left: u32,
}

/// The consumer's end, for the thread that writes files.
#[derive(Debug)]
pub struct RecordingLine {
    source: SourceId,
    saved: Consumer<Box<Recording>>,
    back: Producer<Box<Recording>>,
}

impl BlackBox {
    /// A black box for this source, and where its recordings come out.
    pub fn new(source: SourceId, config: BlackBoxConfig) -> (Self, RecordingLine) {
        let (saved, to_save) = RingBuffer::new(2);
        let (mut given_back, back) = RingBuffer::new(2);
        let recording = Some(Box::new(Recording::new(config)));
        let spare = given_back.push(Box::new(Recording::new(config)));
        debug_assert!(spare.is_ok(), "it has room for two");
        let line = RecordingLine { source, saved: to_save, back: given_back };
        (
            Self {
                recording,
                greeting: Vec::with_capacity(GREETING_BYTES),
                saved,
                back,
                incident: None,
                next: Instant::ZERO,
                left: MOST_SAVED,
            },
            line,
        )
    }

    /// Something came.
    pub(super) fn record(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        if let Some(recording) = &mut self.recording {
            recording.record(now, from, bytes);
        }
    }

    /// Of what came in the stream so far, the last `unframed` bytes are no whole frame. To be told before what comes next.
    pub(super) fn mark_frame(&mut self, unframed: usize) {
        if let Some(recording) = &mut self.recording {
            recording.mark_frame(unframed);
        }
    }

    /// A connection began so.
    pub(super) fn greet(&mut self, greeting: &[u8; GREETING_BYTES]) {
        self.greeting.clear();
        self.greeting.extend_from_slice(greeting);
    }

    /// Something is wrong with the source; the first word counts.
    pub(super) fn note(&mut self, now: Instant, what: &'static str) {
        self.incident.get_or_insert((what, now));
    }

    /// Looks at what was framed, and at what was seen beside it.
    pub(super) fn look(&mut self, now: Instant, received: &[Received], counts: &FrameCounts) {
        let wrong = received.iter().find_map(|fragment| {
            let flags = fragment.meta.flags;
            match fragment.meta.missing_cause() {
                Some(cause) => Some(cause.name()),
                None if flags.contains(FragmentFlags::CRC_ERROR) => Some("crc_error"),
                None if flags.contains(FragmentFlags::LENGTH_MISMATCH) => Some("length_mismatch"),
                None if flags.contains(FragmentFlags::MALFORMED) => Some("malformed"),
                None if flags.contains(FragmentFlags::WRONG_SOURCE) => Some("wrong_source"),
                None if flags.contains(FragmentFlags::FRAMES_MISSING) => Some("frames_missing"),
                None => None,
            }
        });
        let beside = [
            (counts.skipped_bytes, "skipped_bytes"),
            (counts.missing, "frames_missing"),
            (counts.out_of_order, "frames_out_of_order"),
            (counts.restarts, "restarted"),
        ];
        let beside = beside.into_iter().find_map(|(count, what)| (count > 0).then_some(what));
        if let Some(what) = wrong.or(beside) {
            self.note(now, what);
        }
    }

    /// Hands over what was recorded, if something was wrong with it and it is not too soon.
    pub(super) fn hand_over(&mut self, now: Instant) {
        if self.recording.is_none() {
            self.recording = self.back.pop().ok();
        }
        if self.incident.is_none() || now < self.next || self.left == 0 {
            // What was wrong meanwhile is part of what was saved before.
            self.incident = self.incident.filter(|_| now >= self.next && self.left > 0);
            return;
        }
        let Some(mut recording) = self.recording.take() else { return };
        recording.incident = self.incident.take();
        recording.greeting.clone_from(&self.greeting);
        let spare = self.back.pop().ok();
        match self.saved.push(recording) {
            Ok(()) => {
                (self.next, self.left) = (now.after(PAUSE), self.left - 1);
                self.recording = spare;
            }
            Err(rtrb::PushError::Full(recording)) => self.recording = Some(recording),
        }
    }
}

impl RecordingLine {
    /// Whose it is.
    pub const fn source(&self) -> SourceId {
        self.source
    }

    /// The next recording to be saved.
    pub fn take_next(&mut self) -> Option<Box<Recording>> {
        self.saved.pop().ok()
    }

    /// One that was saved, to be filled again.
    pub fn give_back(&mut self, mut recording: Box<Recording>) {
        recording.clear();
        // There is room: no more come than were made. A box whose readout unit is gone needs none.
        let _ = self.back.push(recording);
    }

    /// Whether no more will come.
    pub fn is_over(&self) -> bool {
        self.saved.is_abandoned() && self.saved.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_flow::messages::FragmentMeta;
    use ropewalk_memory::Payload;
    use ropewalk_terms::Cause;
    use std::net::{IpAddr, Ipv4Addr};

    const FROM: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

    fn at(milliseconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(milliseconds))
    }

    fn config(max_bytes: usize) -> BlackBoxConfig {
        BlackBoxConfig { last: Duration::from_millis(100), max_bytes }
    }

    #[test]
    fn the_newest_datagrams_are_kept_that_fit_and_are_not_too_old() {
        // A model that keeps everything.
        for max_bytes in [40, 64, 1000] {
            let mut recording = Recording::new(config(max_bytes));
            let mut all: Vec<(Instant, Vec<u8>)> = Vec::new();
            for number in 0..500_u64 {
                let now = at(number * 7 + if number > 250 { 500 } else { 0 });
                let datagram = vec![number as u8; (number * 13 % 40) as usize];
                recording.record(now, FROM, &datagram);
                all.push((now, datagram));
                let kept: Vec<(Instant, Vec<u8>)> =
                    recording.datagrams().map(|(at, _, pieces)| (at, pieces.concat())).collect();
                let room = all.iter().rev().scan(0, |bytes, (_, datagram)| {
                    *bytes += datagram.len();
                    Some(*bytes <= max_bytes)
                });
                let fit = room.take_while(|fits| *fits).count();
                let young = all.iter().rev().take_while(|(at, _)| now.since(*at) <= config(0).last).count();
                if fit > 0 {
                    // Empty ones before the oldest that fits may be there or not.
                    assert!(kept.len() <= young && all.ends_with(&kept), "{max_bytes}, {number}");
                    assert!(kept.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() <= max_bytes);
                    assert!(kept.len() >= fit.min(young).min(64), "{max_bytes}, {number}: {} of {fit}", kept.len());
                }
            }
        }
    }

    #[test]
    fn a_stream_begins_with_a_frame_and_ends_with_all_that_came() {
        let mut recording = Recording::new(config(100));
        let stream: Vec<u8> = (0..2500_u32).map(|place| (place / 10) as u8).collect();
        // Frames of 10 bytes, in arrivals of 7.
        for (arrival, number) in stream.chunks(7).zip(0..) {
            recording.mark_frame(7 * number as usize % 10);
            recording.record(at(number / 10), FROM, arrival);
        }
        let kept = recording.stream().concat();
        assert!((80..=100).contains(&kept.len()) && kept.len().is_multiple_of(10), "{}", kept.len());
        assert!(stream.ends_with(&kept));
    }

    #[test]
    fn an_arrival_longer_than_there_is_room_leaves_its_end() {
        let mut recording = Recording::new(config(10));
        recording.record(at(0), FROM, &[1, 2, 3]);
        recording.record(at(0), FROM, &(0..25).collect::<Vec<u8>>());
        assert_eq!(recording.datagrams().map(|(_, _, pieces)| pieces.concat()).last(), Some((15..25).collect()));
    }

    #[test]
    fn one_incident_is_saved_and_the_ones_that_come_with_it_are_not() {
        let (mut black_box, mut line) = BlackBox::new(SourceId(7), config(100));
        for number in 0..5 {
            black_box.record(at(number), FROM, &[number as u8]);
            black_box.hand_over(at(number));
        }
        assert!(line.take_next().is_none(), "nothing was wrong");
        black_box.note(at(5), "crc_error");
        black_box.note(at(5), "frames_missing");
        black_box.hand_over(at(5));
        let saved = line.take_next().expect("it was handed over");
        assert_eq!((saved.incident(), saved.datagrams().count()), (Some(("crc_error", at(5))), 5));
        black_box.note(at(6), "crc_error");
        black_box.hand_over(at(6));
        assert!(line.take_next().is_none(), "too soon");
        // Nothing is lost of what comes while it is written, nor afterwards.
        black_box.record(at(10_000), FROM, &[9]);
        line.give_back(saved);
        black_box.note(at(10_006), "sync_lost");
        black_box.hand_over(at(10_006));
        let saved = line.take_next().expect("it was handed over");
        assert_eq!((saved.incident(), saved.datagrams().count()), (Some(("sync_lost", at(10_006))), 1));
    }

    #[test]
    fn what_is_wrong_with_a_fragment_is_an_incident() {
        for (flag, incident) in [
            (FragmentFlags::CRC_ERROR, Some("crc_error")),
            (FragmentFlags::LENGTH_MISMATCH, Some("length_mismatch")),
            (FragmentFlags::FRAMES_MISSING, Some("frames_missing")),
            (FragmentFlags::default(), None),
        ] {
            let (mut black_box, mut line) = BlackBox::new(SourceId(7), config(100));
            black_box.record(at(0), FROM, &[1]);
            let meta = FragmentMeta { flags: flag, ..FragmentMeta::missing(SourceId(7), Cause::Late) };
            let fragment = Received { meta, restarts: false, payload: Payload::default() };
            black_box.look(at(0), &[fragment], &FrameCounts::NONE);
            black_box.hand_over(at(0));
            assert_eq!(line.take_next().and_then(|saved| saved.incident()), incident.map(|what| (what, at(0))));
        }
    }

    #[test]
    fn each_recording_of_a_connection_begins_as_that_one_did() {
        let (mut black_box, mut line) = BlackBox::new(SourceId(7), config(100));
        black_box.greet(&[42; GREETING_BYTES]);
        for second in [0, 10, 20] {
            black_box.record(at(1000 * second), FROM, &[1, 2]);
            black_box.note(at(1000 * second), "crc_error");
            black_box.hand_over(at(1000 * second));
            let saved = line.take_next().expect("it was handed over");
            assert_eq!(saved.stream()[0], [42; GREETING_BYTES], "after {second} s");
            line.give_back(saved);
        }
    }

    #[test]
    fn a_source_that_is_always_wrong_is_saved_so_often_and_no_more() {
        let (mut black_box, mut line) = BlackBox::new(SourceId(7), config(100));
        let mut saved = 0;
        for second in 0..1000 {
            black_box.record(at(1000 * second), FROM, &[1]);
            black_box.note(at(1000 * second), "crc_error");
            black_box.hand_over(at(1000 * second));
            while let Some(recording) = line.take_next() {
                saved += 1;
                line.give_back(recording);
            }
        }
        assert_eq!(saved, MOST_SAVED);
        assert!(!line.is_over());
        drop(black_box);
        assert!(line.is_over());
    }
}
