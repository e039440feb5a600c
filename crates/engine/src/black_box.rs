//! The black box of a source: its latest input, unmodified, handed over for saving when an error was seen.
//!
//! ```text
//!  received bytes --copied--> Recording (a ring of bytes) --incident--> RecordingLine --> the thread that writes files
//!                                  ^ the spare one takes its place          |
//!                                  +------------- given back, empty <-------+
//! ```
//! The bytes are copied, because slices that are kept would occupy the blocks of the source's pool, which it needs to
//! continue. Memory is allocated before the run: two recordings for each source. While both contain unsaved incidents
//! nothing is recorded.

use ropewalk_flow::messages::Received;
use ropewalk_flow::readout::FrameCounts;
use ropewalk_terms::{Instant, SourceId};
use ropewalk_wire::message::FragmentFlags;
use rtrb::{Consumer, Producer, RingBuffer};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// How much input is kept of a source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BlackBoxConfig {
    /// Maximum age.
    pub last: Duration,
    /// Maximum size, in bytes.
    pub max_bytes: usize,
}

/// Minimum time between two saved incidents of a source. One fault often causes many others.
const PAUSE: Duration = Duration::from_secs(10);
/// Maximum number of incidents of a source that are saved in a run.
const MOST_SAVED: u32 = 16;
/// Average number of bytes in an arrival for which capacity is reserved.
const USUAL_BYTES: usize = 256;

/// One arrival: bytes of a stream, or a datagram.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Arrival {
    at: Instant,
    from: SocketAddr,
    /// Position of the end of its bytes, counted from the first byte ever recorded.
    end: u64,
    /// For a stream: where the frame that was incomplete before this arrival begins, which may be in this arrival.
    /// `None` if that beginning is not recorded.
    frame: Option<u64>,
}

/// The latest input of a source.
#[derive(Debug)]
pub struct Recording {
    last: Duration,
    /// A ring: byte number n lies at n modulo the length.
    bytes: Box<[u8]>,
    arrivals: VecDeque<Arrival>,
    /// Where the first arrival's bytes begin, and where the last one's end.
    begin: u64,
    end: u64,
    /// Where the incomplete frame begins.
    frame: Option<u64>,
    /// The first bytes of the source's connection, needed to replay the rest.
    greeting: Vec<u8>,
    /// The incident and its time.
    incident: Option<(&'static str, Instant)>,
}

/// Capacity for a greeting: the size of that of generic fragments.
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

    fn clear(&mut self) {
        self.arrivals.clear();
        (self.begin, self.end, self.frame) = (0, 0, None);
        self.incident = None;
    }

    fn record(&mut self, at: Instant, from: SocketAddr, bytes: &[u8]) {
        // If the bytes exceed the ring, only their end is kept.
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

    /// Marks the last `unframed` bytes as part of an incomplete frame, or of none.
    const fn mark_frame(&mut self, unframed: usize) {
        self.frame = self.end.checked_sub(unframed as u64);
    }

    /// Returns the incident and its time.
    pub const fn incident(&self) -> Option<(&'static str, Instant)> {
        self.incident
    }

    /// Returns when the first recorded arrival came.
    pub fn since(&self) -> Option<Instant> {
        self.arrivals.front().map(|first| first.at)
    }

    /// Returns the recorded stream from the beginning of the first frame: the connection's greeting, and the bytes in
    /// two pieces.
    pub fn stream(&self) -> [&[u8]; 3] {
        let mut frames = self.arrivals.iter().filter_map(|arrival| arrival.frame);
        let frame = frames.find(|&frame| frame >= self.begin);
        let begin = frame.unwrap_or(self.begin);
        let [first, second] = self.pieces(begin, self.end);
        [&self.greeting, first, second]
    }

    /// Returns the recorded datagrams: time of arrival, sender, and the bytes in two pieces.
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
    /// The greeting of the latest connection. It belongs to every recording, whichever one is in use.
    greeting: Vec<u8>,
    saved: Producer<Box<Recording>>,
    back: Consumer<Box<Recording>>,
    /// The incident since the last hand-over.
    incident: Option<(&'static str, Instant)>,
    next: Instant,
    left: u32,
}

/// The consumer's end of the recordings, for the thread that writes files.
#[derive(Debug)]
pub struct RecordingLine {
    source: SourceId,
    saved: Consumer<Box<Recording>>,
    back: Producer<Box<Recording>>,
}

impl BlackBox {
    /// Creates a black box for this source, and the consumer's end of its recordings.
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

    /// Records an arrival.
    pub(super) fn record(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        if let Some(recording) = &mut self.recording {
            recording.record(now, from, bytes);
        }
    }

    /// Marks the last `unframed` bytes of the stream so far as not part of a complete frame. To be called before the
    /// next arrival is recorded.
    pub(super) fn mark_frame(&mut self, unframed: usize) {
        if let Some(recording) = &mut self.recording {
            recording.mark_frame(unframed);
        }
    }

    /// Records the greeting of a new connection.
    pub(super) fn greet(&mut self, greeting: &[u8; GREETING_BYTES]) {
        self.greeting.clear();
        self.greeting.extend_from_slice(greeting);
    }

    /// Records an incident of the source. Only the first one counts.
    pub(super) fn note(&mut self, now: Instant, what: &'static str) {
        self.incident.get_or_insert((what, now));
    }

    /// Looks for incidents in the framed fragments and in the counts beside them.
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

    /// Hands the recording over if it has an incident and the pause since the last one is over.
    pub(super) fn hand_over(&mut self, now: Instant) {
        if self.recording.is_none() {
            self.recording = self.back.pop().ok();
        }
        if self.incident.is_none() || now < self.next || self.left == 0 {
            // Incidents during the pause are part of the recording saved before.
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
    /// Returns the source.
    pub const fn source(&self) -> SourceId {
        self.source
    }

    /// Returns the next recording to be saved.
    pub fn take_next(&mut self) -> Option<Box<Recording>> {
        self.saved.pop().ok()
    }

    /// Takes back a saved recording, to be filled again.
    pub fn give_back(&mut self, mut recording: Box<Recording>) {
        recording.clear();
        // There is room: no more recordings exist than were made. If the readout unit is gone, its black box needs
        // none.
        let _ = self.back.push(recording);
    }

    /// Returns whether no further recordings will come.
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
                    // Empty arrivals before the oldest one that fits may be present or not.
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
        // Nothing that arrives during the write or after it is lost.
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
