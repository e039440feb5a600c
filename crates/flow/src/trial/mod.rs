//! Tries a description, a layout or a named format, on the data of a board: whether it finds frames in them, and
//! whether their numbers are correct.
//!
//! ```text
//! datagrams, bytes of a stream --> Trial --> whole frames -> numbers one after the other (sequence, event), checksums,
//!                                       \    differences of time -> accounts of each board
//!                                        \-> the first bad place: the rule that failed, and the bytes around it
//! ```
//! The frames are the same ones that a readout unit would find with this description. Memory is bounded by the longest
//! frame.

mod account;
#[cfg(test)]
mod tests;

pub use account::{BadPlace, Board, BoardAccount, Interval, Intervals, Numbers, OwnBoard, TrialAccount};

use crate::readout::{Assembly, DatagramLimits, Placed};
use core::fmt::Arguments;
use core::net::IpAddr;
use core::ops::Range;
use ropewalk_terms::{Cause, Instant, Utc};
use ropewalk_wire::description::Description;
use ropewalk_wire::foreign::{Counting, Describe, Inspector, Value};
use ropewalk_wire::framing::{Framing, Front, PieceHead, Search};
use ropewalk_wire::layout::{Frame, Number, Pattern, Plan, Size};
use std::collections::BTreeMap;

/// The configuration key that names a format.
const FORMAT: &str = "format";

/// Number of bytes of a bad place that are shown before and after its beginning.
const SHOWN_BEFORE: usize = 32;
const SHOWN_BEHIND: usize = 64;
/// Number of wrong checksums after which another kind is searched for.
const LEAST_CHECKED: u64 = 4;

/// Tries a description.
#[derive(Debug)]
pub struct Trial<'a> {
    framing: &'a Description,
    /// Whether consecutive frames of one event belong together.
    gathers: bool,
    /// Whether event numbers grow, but not by one.
    grows: bool,
    /// The board whose frames are checked; `None` for all boards.
    own: Option<&'a OwnBoard>,
    /// The boards in the order in which they appeared, if that order identifies them.
    seen: Vec<Board>,
    account: TrialAccount,
    parts: Parts,
    /// Bytes of the stream that do not form a whole frame yet, and the bytes before them.
    rest: Vec<u8>,
    before: Vec<u8>,
    search: Search,
    is_lost: bool,
    /// Whether bytes are being skipped. They count as one lost frame, however many skips follow each other.
    is_skipping: bool,
    /// The last frame.
    last: Option<LastFrame>,
    /// The first frame without a checksum that no frame followed, and the number of such frames.
    suspect: Option<BadPlace>,
    suspects: u64,
    /// Where the clock of a board first went backward.
    backward: Option<BadPlace>,
    /// The first whole frames, in which a checksum is searched for if theirs is wrong.
    whole: Vec<Vec<u8>>,
    split: Option<Split<'a>>,
}

/// Divides a frame into events, and returns their numbers.
///
/// # Errors
/// The reason why it cannot be divided.
pub type Divide<'a> = Box<dyn FnMut(&[u8]) -> Result<Vec<u64>, String> + 'a>;

/// A splitter, and the number of bits of its numbers.
struct Split<'a> {
    divide: Divide<'a>,
    bits: u8,
}

impl core::fmt::Debug for Split<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Split").field("bits", &self.bits).finish_non_exhaustive()
    }
}

/// A frame whose length may have been wrong.
#[derive(Debug)]
struct LastFrame {
    offset: u64,
    bytes: Vec<u8>,
    length: usize,
    checksum: Option<bool>,
}

/// Number of frames in which a checksum is searched for, and the longest of them in bytes.
const CHECKED_FRAMES: usize = 32;
const CHECKED_BYTES: usize = 64 << 10;
/// Number of bytes in which the beginning of the next frame is searched for.
const LOOKED_THROUGH: usize = 64 << 10;

/// The origin and the time of arrival of bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Arrival {
    /// Their sender; `None` for a file.
    pub from: Option<IpAddr>,
    /// The time of arrival.
    pub time: Option<Utc>,
    /// Their position in the input: a byte offset, or the index of a packet.
    pub offset: u64,
    /// Whether the input is a capture, whose positions are packets, counted from 0.
    pub is_packet: bool,
}

impl Arrival {
    /// Returns the arrival of the bytes `bytes` further on.
    const fn behind(self, bytes: usize) -> Self {
        let further = if self.is_packet { 0 } else { bytes as u64 };
        Self { offset: self.offset + further, ..self }
    }
}

impl<'a> Trial<'a> {
    /// Creates a trial without input.
    pub fn new(framing: &'a Description) -> Self {
        Self {
            framing,
            gathers: false,
            grows: false,
            own: None,
            seen: Vec::new(),
            account: TrialAccount::default(),
            parts: Parts::new(DatagramLimits::USUAL),
            rest: Vec::new(),
            before: Vec::new(),
            search: Search::default(),
            is_lost: false,
            is_skipping: false,
            last: None,
            suspect: None,
            suspects: 0,
            backward: None,
            whole: Vec::new(),
            split: None,
        }
    }

    /// Divides frames into events, with numbers of `bits` bits.
    #[must_use]
    pub fn dividing(self, divide: Option<Divide<'a>>, bits: u8) -> Self {
        Self { split: divide.map(|divide| Split { divide, bits }), ..self }
    }

    /// Expects consecutive frames of one event that belong together.
    #[must_use]
    pub fn gathering(self, gathers: bool) -> Self {
        Self { gathers, ..self }
    }

    /// Expects event numbers that grow, but not by one.
    #[must_use]
    pub fn growing(self, grows: bool) -> Self {
        Self { grows, ..self }
    }

    /// Waits for the other datagrams of a frame as a run with these limits does.
    #[must_use]
    pub fn waiting(self, limits: DatagramLimits) -> Self {
        Self { parts: Parts::new(limits), ..self }
    }

    /// Counts frames of other boards without checking them.
    #[must_use]
    pub fn of(self, own: Option<&'a OwnBoard>) -> Self {
        Self { own, ..self }
    }

    /// Takes a datagram.
    pub fn datagram(&mut self, arrival: Arrival, bytes: &[u8]) {
        self.account.datagrams += 1;
        if !self.framing.comes_in_pieces() {
            self.frames_of(arrival, bytes);
            return;
        }
        let Some(piece) = self.framing.piece(bytes) else {
            let short = format!("{} bytes are too few for the header of a piece", bytes.len());
            self.bad(arrival.offset, "frame.pieces.header", &short, &[], bytes, bytes.len());
            self.account.skipped_bytes += bytes.len() as u64;
            return;
        };
        if let Some(whole) = self.parts.accept(arrival.from, arrival.time, &piece, bytes, self.framing.most()) {
            self.frame(arrival, &[], &whole);
        }
        self.account.unfinished_frames = self.parts.unfinished();
    }

    fn frames_of(&mut self, arrival: Arrival, bytes: &[u8]) {
        let (mut at, mut search) = (0, Search::default());
        while at < bytes.len() || at == 0 {
            let (done, rest) = bytes.split_at(at);
            let here = arrival.behind(at);
            match self.framing.front(rest, &mut search) {
                Front::Frame { bytes } => {
                    search = Search::default();
                    self.frame(here, done, &rest[..bytes]);
                    at += bytes;
                }
                Front::Skip { bytes, cause } => {
                    self.skip(here.offset, cause, done, rest, bytes);
                    at += bytes;
                }
                Front::Needs { bytes } => {
                    let short = format!("the datagram ends after {} of {bytes} bytes that a frame needs", rest.len());
                    self.bad(here.offset, self.length_key(), &short, done, rest, rest.len());
                    self.account.left_over_bytes += rest.len() as u64;
                    break;
                }
                Front::Lost { cause } => {
                    self.skip(here.offset, cause, done, rest, rest.len());
                    break;
                }
            }
        }
    }

    /// Takes the next bytes of a stream.
    pub fn stream(&mut self, arrival: Arrival, bytes: &[u8]) {
        if self.is_lost {
            self.account.left_over_bytes += bytes.len() as u64;
            return;
        }
        // The rest of the previous bytes may be the beginning of a frame that ends in these.
        let open = if arrival.is_packet { 0 } else { self.rest.len() as u64 };
        let begin = Arrival { offset: arrival.offset.saturating_sub(open), ..arrival };
        self.rest.extend_from_slice(bytes);
        let (mut at, rest) = (0, core::mem::take(&mut self.rest));
        loop {
            let here = begin.behind(at);
            let window = &rest[at..];
            match self.framing.front(window, &mut self.search) {
                Front::Frame { bytes } => {
                    self.search = Search::default();
                    let before = core::mem::take(&mut self.before);
                    self.frame(here, &before, &window[..bytes]);
                    self.before = before;
                    self.remember(&window[..bytes]);
                    at += bytes;
                }
                Front::Skip { bytes, cause } => {
                    let before = core::mem::take(&mut self.before);
                    self.skip(here.offset, cause, &before, window, bytes);
                    self.before = before;
                    self.remember(&window[..bytes]);
                    at += bytes;
                }
                Front::Needs { .. } => break,
                Front::Lost { cause } => {
                    let before = core::mem::take(&mut self.before);
                    self.skip(here.offset, cause, &before, window, 0);
                    self.account.left_over_bytes += window.len() as u64;
                    self.is_lost = true;
                    return;
                }
            }
        }
        self.rest = rest[at..].to_vec();
    }

    /// Ends the stream; another one may begin.
    pub fn end_of_stream(&mut self) {
        self.account.left_over_bytes += self.rest.len() as u64;
        self.rest.clear();
        self.before.clear();
        (self.search, self.is_lost, self.is_skipping) = (Search::default(), false, false);
        self.last = None;
    }

    /// Ends the trial, and returns its account.
    pub fn end(mut self) -> TrialAccount {
        self.end_of_stream();
        self.blame_suspects();
        self.doubt_times();
        self.name_checksum();
        self.account
    }

    /// Blames the length if most frames are not followed by a frame.
    fn blame_suspects(&mut self) {
        let is_usual = self.suspects * 2 > self.account.frames() + self.account.other_frames;
        if let Some(place) = self.suspect.take().filter(|_| is_usual) {
            self.account.first_bad = Some(place);
        }
    }

    /// Reports a clock that repeatedly goes backward as a bad place.
    fn doubt_times(&mut self) {
        let doubtful = || self.account.boards.iter().filter(|(_, board)| board.intervals.is_doubtful());
        let (boards, backward) =
            (doubtful().count(), doubtful().map(|(_, board)| board.intervals.doubtful_times()).sum::<u64>());
        let why = doubtful().next().and_then(|(_, board)| board.doubt_of_time());
        let Some((mut place, why)) = self.backward.take().zip(why).filter(|_| boards > 0) else { return };
        place.what = why;
        self.account.bad_places += backward;
        self.account.first_bad.get_or_insert(place);
    }

    /// Names the checksum of the frames, if it differs from that of the layout.
    fn name_checksum(&mut self) {
        let sum =
            |count: fn(&BoardAccount) -> u64| self.account.boards.iter().map(|(_, board)| count(board)).sum::<u64>();
        let (wrong, right) = (sum(|board| board.wrong_checksums), sum(|board| board.right_checksums));
        let Some(place) = self.account.first_bad.as_mut().filter(|place| place.key == "checksum") else { return };
        if wrong < LEAST_CHECKED || right * 10 > wrong {
            return;
        }
        let frames: Vec<&[u8]> = self.whole.iter().map(Vec::as_slice).collect();
        place.what = match crate::sniff::checksum_of(&frames) {
            Some(text) => format!("the checksum is wrong in {wrong} of {} frames; {text} fits", wrong + right),
            None => format!("the checksum is wrong in {wrong} of {} frames, and no known one fits", wrong + right),
        };
    }

    fn remember(&mut self, bytes: &[u8]) {
        self.before.extend_from_slice(&bytes[bytes.len().saturating_sub(SHOWN_BEFORE)..]);
        let excess = self.before.len().saturating_sub(SHOWN_BEFORE);
        self.before.drain(..excess);
    }

    fn skip(&mut self, offset: u64, cause: Cause, before: &[u8], rest: &[u8], bytes: usize) {
        if bytes > 0 && self.framing.is_filler(&rest[..bytes]) {
            self.account.filler_bytes += bytes as u64;
            return;
        }
        self.account.skipped_bytes += bytes as u64;
        if !core::mem::replace(&mut self.is_skipping, true) {
            let is_begin = matches!(cause, Cause::SyncLost | Cause::NotMatched);
            let is_blamed = is_begin && self.blame_length(rest);
            if is_blamed {
                *self.account.faults.entry(cause.name()).or_default() += 1;
                return;
            }
            *self.account.faults.entry(cause.name()).or_default() += 1;
            let no_frame = format!("no frame begins here ({})", cause.name());
            let (key, what) = match cause {
                Cause::Oversize => ("frame.max", no_frame),
                _ if is_begin => self.impossible_length(rest).unwrap_or((self.begin_key(), no_frame)),
                _ => (self.length_key(), no_frame),
            };
            self.bad(offset, key, &what, before, rest, 1);
        }
    }

    /// Blames the length of a frame whose `match` is right: it makes the frame too short for the fields of the layout.
    fn impossible_length(&self, rest: &[u8]) -> Option<(&'static str, String)> {
        let Description::Layout(plan) = self.framing else { return None };
        let is_begun = plan.layout().matches.as_ref().is_some_and(|pattern| begins_with(pattern, rest));
        let is_counted = is_begun && matches!(plan.layout().frame, Frame::Length(_));
        let (least, most) = (plan.least(), plan.layout().max);
        let what = || format!("this length fits no frame: the layout allows {least} to {most} bytes in all");
        is_counted.then(|| (self.length_key(), what()))
    }

    /// Blames the length of the last frame if no frame follows it and its checksum is wrong too. Without a checksum the
    /// length is only suspected, since other bytes may follow a frame.
    fn blame_length(&mut self, rest: &[u8]) -> bool {
        let key = self.length_key();
        let Description::Layout(plan) = self.framing else { return false };
        let is_suspect = |last: &LastFrame| key == "frame.length" && last.checksum != Some(true);
        let Some(last) = self.last.take().filter(is_suspect) else { return false };
        let bytes = &rest[..rest.len().min(LOOKED_THROUGH)];
        let (pattern, has_match) = (plan.layout().matches.as_ref(), plan.layout().matches.is_some());
        let next = (0..bytes.len()).find(|&at| pattern.is_some_and(|pattern| begins_with(pattern, &bytes[at..])));
        let begin = if has_match { "`match`" } else { "frame" };
        let next = next
            .map_or_else(String::new, |at| format!("; the next one is {} bytes after its beginning", last.length + at));
        let length = last.length;
        let what =
            format!("after this frame of {length} bytes no {begin} follows{next}: compare what the length counts");
        let (offset, marked) = (last.offset, place_of(plan, key, length));
        let place = BadPlace { key, what, offset, bytes: last.bytes, before: 0, marked };
        if last.checksum.is_none() {
            self.suspects += 1;
            self.suspect.get_or_insert(place);
            return false;
        }
        // The checksum of a frame that was cut off in the wrong place is meaningless.
        let is_same = |bad: &BadPlace| bad.key == "checksum" && bad.offset == offset;
        if self.account.first_bad.as_ref().is_some_and(is_same) {
            self.account.first_bad = None;
        } else {
            self.account.bad_places += 1;
        }
        self.account.first_bad.get_or_insert(place);
        true
    }

    /// Returns the configuration key of the beginning of a frame.
    fn begin_key(&self) -> &'static str {
        let Description::Layout(plan) = self.framing else { return FORMAT };
        if matches!(plan.layout().frame, Frame::Sync { .. }) { "frame.sync" } else { "match" }
    }

    /// Returns the configuration key of the end of a frame.
    fn length_key(&self) -> &'static str {
        use ropewalk_wire::layout::Size;
        let Description::Layout(plan) = self.framing else { return FORMAT };
        match &plan.layout().frame {
            Frame::Length(_) | Frame::Sync { size: Size::Length(_), .. } | Frame::Several(Size::Length(_)) => {
                "frame.length"
            }
            Frame::Fixed { .. } | Frame::Sync { .. } | Frame::Several(_) => "frame.fixed",
            Frame::Trailer { .. } => "frame.trailer",
            Frame::Delimiter { .. } => "frame.delimiter",
            Frame::Datagram | Frame::Pieces(_) => "frame",
        }
    }

    fn frame(&mut self, arrival: Arrival, before: &[u8], frame: &[u8]) {
        self.is_skipping = false;
        if !self.framing.is_matched(frame) && self.blame_length(frame) {
            *self.account.faults.entry(Cause::NotMatched.name()).or_default() += 1;
            self.account.skipped_bytes += frame.len() as u64;
            return;
        }
        if !self.framing.is_matched(frame) {
            *self.account.faults.entry(Cause::NotMatched.name()).or_default() += 1;
            self.account.skipped_bytes += frame.len() as u64;
            self.bad(arrival.offset, "match", "the frame has other bytes here", before, frame, frame.len());
            return;
        }
        let (fields, widths, counting) = (self.framing.fields(frame), self.framing.widths(), self.framing.counting());
        let board = Board { from: arrival.from, number: self.framing.board_of(frame) };
        if !self.is_own(&board) {
            self.account.other_frames += 1;
            return;
        }
        let account = self.account.board(board);
        account.add(frame.len(), arrival.time);
        let sequence = fields.sequence.map(|number| ("sequence", account.sequence.add(number, widths.sequence, 1)));
        // The event number of a format may be a time, or be repeated in each frame of the event.
        let counts = !self.grows && (matches!(self.framing, Description::Layout(_)) || counting == Counting::Events);
        let step = self.framing.events_in(frame);
        let goes_on = |number: u64| self.gathers && account.event.last == Some(number);
        let begins = fields.event.filter(|&number| !self.framing.goes_on(frame) && !goes_on(number));
        let event = begins.map(|number| {
            let wrong = if counts { account.event.add(number, widths.event, step) } else { account.event.see(number) };
            ("event", wrong)
        });
        let mut is_backward = false;
        if let Some(time) = fields.time {
            let odd = account.intervals.odd();
            account.intervals.add(time, widths.time, self.framing.tick());
            if let Some(reversed) = reversed_time(self.framing, frame) {
                account.reversed.add(reversed, widths.time, self.framing.tick());
            }
            is_backward = account.intervals.odd() > odd;
        }
        let checksum = self.framing.checksum(frame);
        account.right_checksums += u64::from(checksum == Some(true));
        account.wrong_checksums += u64::from(checksum == Some(false));
        if checksum == Some(false) {
            self.bad(arrival.offset, "checksum", "the checksum is wrong", before, frame, frame.len());
        }
        if is_backward && self.backward.is_none() {
            self.backward = Some(self.place(arrival.offset, "time", String::new(), before, frame));
        }
        if self.whole.len() < CHECKED_FRAMES && frame.len() <= CHECKED_BYTES && checksum.is_some() {
            self.whole.push(frame.to_vec());
        }
        let shown = frame[..frame.len().min(SHOWN_BEHIND)].to_vec();
        self.last = Some(LastFrame { offset: arrival.offset, bytes: shown, length: frame.len(), checksum });
        self.divide(arrival, board, before, frame);
        for (key, step) in sequence.into_iter().chain(event) {
            // The event number need not be consecutive if frames have their own numbers.
            if let Some(what) = step.filter(|_| key == "sequence" || fields.sequence.is_none()) {
                self.bad(arrival.offset, key, &what, before, frame, frame.len());
            }
        }
        for (at, fault) in contradictions(self.framing, frame) {
            *self.account.faults.entry(fault).or_default() += 1;
            let marked = Some(at.min(frame.len())..frame.len().min(at + 1));
            self.bad_at(arrival.offset, FORMAT, fault, marked, before, frame);
        }
    }

    /// Divides a frame, if there is a splitter, and checks the numbers of its events.
    fn divide(&mut self, arrival: Arrival, board: Board, before: &[u8], frame: &[u8]) {
        let grows = self.grows;
        let Some(Split { divide, bits }) = &mut self.split else { return };
        let (divided, bits) = (divide(frame), *bits);
        let account = self.account.board(board);
        let wrong = match divided {
            Ok(keys) => {
                account.pieces += keys.len() as u64;
                let mut add = |key| if grows { account.event.see(key) } else { account.event.add(key, bits, 1) };
                keys.into_iter().filter_map(&mut add).fold(None, |first, wrong| first.or(Some(wrong)))
            }
            Err(why) => {
                *self.account.faults.entry(Cause::Malformed.name()).or_default() += 1;
                Some(why)
            }
        };
        if let Some(what) = wrong {
            self.bad(arrival.offset, "splitter", &what, before, frame, frame.len());
        }
    }

    fn is_own(&mut self, board: &Board) -> bool {
        let Some(own) = self.own else { return true };
        let OwnBoard::InOrder(order) = own else { return own.is(board, 0) };
        let known = self.seen.iter().position(|seen| seen == board);
        // Boards after the source's own one need not be remembered.
        let others = known.unwrap_or(self.seen.len());
        if known.is_none() && others <= *order {
            self.seen.push(*board);
        }
        own.is(board, others)
    }

    /// Keeps the first bad place, and marks the bytes that the rule with this key reads.
    fn bad(&mut self, offset: u64, key: &'static str, what: &str, before: &[u8], here: &[u8], length: usize) {
        match self.framing {
            Description::Layout(plan) => {
                self.bad_at(offset, key, what, place_of(plan, key, length), before, here);
            }
            // A format counts as one rule.
            Description::Format(_) | Description::Board(..) => self.bad_at(offset, FORMAT, what, None, before, here),
        }
    }

    fn bad_at(
        &mut self,
        offset: u64,
        key: &'static str,
        what: &str,
        marked: Option<Range<usize>>,
        before: &[u8],
        here: &[u8],
    ) {
        self.account.bad_places += 1;
        if self.account.first_bad.is_some() {
            return;
        }
        let place = self.place(offset, key, what.to_owned(), before, here);
        self.account.first_bad = Some(BadPlace { marked, ..place });
    }

    /// Returns a place in a whole frame, with the bytes around it.
    fn place(&self, offset: u64, key: &'static str, what: String, before: &[u8], here: &[u8]) -> BadPlace {
        let kept = &before[before.len().saturating_sub(SHOWN_BEFORE)..];
        let bytes = [kept, &here[..here.len().min(SHOWN_BEHIND)]].concat();
        let marked = match self.framing {
            Description::Layout(plan) => place_of(plan, key, here.len()),
            Description::Format(_) | Description::Board(..) => None,
        };
        BadPlace { key, what, offset, bytes, before: kept.len(), marked }
    }
}

/// Frames of several datagrams, which each sender numbers separately.
#[derive(Debug)]
pub struct Parts {
    limits: DatagramLimits,
    senders: BTreeMap<Option<IpAddr>, Assembly<Vec<u8>>>,
    given_up: u64,
}

impl Parts {
    /// Creates it with the limits of a run.
    pub const fn new(limits: DatagramLimits) -> Self {
        Self { limits, senders: BTreeMap::new(), given_up: 0 }
    }

    /// Takes a datagram of this sender at this time, if known. Returns the frame that it completes. A frame of more
    /// than `most` bytes is given up.
    pub fn accept(
        &mut self,
        from: Option<IpAddr>,
        time: Option<Utc>,
        piece: &PieceHead,
        datagram: &[u8],
        most: usize,
    ) -> Option<Vec<u8>> {
        let now = Instant::from_nanoseconds(time.map_or(0, |time| time.0.max(0) as u64));
        let limits = self.limits;
        let new = || Assembly::new(most, limits.open_frames, limits.pieces_timeout);
        let assembly = self.senders.entry(from).or_insert_with(new);
        self.given_up += assembly.expire(now) as u64;
        let given_up = &mut self.given_up;
        match assembly.place(now, piece, datagram.to_vec(), &mut |_| *given_up += 1) {
            Placed::Whole(frame) => return Some(frame),
            Placed::Waits | Placed::Repeated => {}
            Placed::GivenUp(_) => self.given_up += 1,
        }
        None
    }

    /// Returns the number of frames that were not completed, including open ones.
    pub fn unfinished(&self) -> u64 {
        self.given_up + self.senders.values().map(|assembly| assembly.unfinished() as u64).sum::<u64>()
    }
}

/// Whether bytes begin with the pattern that frames begin with.
fn begins_with(pattern: &Pattern, bytes: &[u8]) -> bool {
    let Ok(at) = usize::try_from(pattern.at) else { return false };
    let mask = |index: usize| pattern.mask.as_ref().and_then(|mask| mask.get(index)).copied().unwrap_or(0xFF);
    let here = bytes.get(at..at + pattern.bytes.len());
    here.is_some_and(|here| {
        let pairs = here.iter().zip(&pattern.bytes).enumerate();
        pairs.into_iter().all(|(index, (one, other))| (one ^ other) & mask(index) == 0)
    })
}

/// Returns the time of a frame with its bytes in reverse order.
fn reversed_time(framing: &Description, frame: &[u8]) -> Option<u64> {
    let Description::Layout(plan) = framing else { return None };
    let time = plan.layout().time.as_ref()?;
    let [ticks] = time.ticks.as_slice() else { return None };
    if ticks.bytes < 2 || time.seconds.is_some() || ticks.mask.is_some() {
        return None;
    }
    let bytes = frame.get(place_of(plan, "time", frame.len())?)?;
    let join = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    Some(if ticks.is_big_endian { bytes.iter().rev().fold(0, join) } else { bytes.iter().fold(0, join) })
}

/// Returns the range of bytes that the rule with this key reads in a frame of `length` bytes; `None` if it reads the
/// whole frame.
fn place_of(plan: &Plan, key: &str, length: usize) -> Option<Range<usize>> {
    let layout = plan.layout();
    let place = |at: i32, bytes: usize| {
        let start = if at < 0 { length.saturating_sub(at.unsigned_abs() as usize) } else { at as usize };
        start..start + bytes
    };
    let number = |number: &Number| place(number.at, number.bytes.into());
    match key {
        "match" => layout.matches.as_ref().map(|pattern| place(pattern.at, pattern.bytes.len())),
        "sequence" => layout.sequence.as_ref().map(number),
        "event" => layout.event.first().map(number),
        "time" => layout.time.as_ref().and_then(|time| time.ticks.first()).map(number),
        "checksum" => layout.checksum.as_ref().map(|checksum| number(&checksum.number)),
        "frame.sync" => match &layout.frame {
            Frame::Sync { word, .. } => Some(0..word.len()),
            _ => None,
        },
        "frame.length" | "frame.max" => match &layout.frame {
            Frame::Length(length)
            | Frame::Sync { size: Size::Length(length), .. }
            | Frame::Several(Size::Length(length)) => Some(number(&length.number)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the offsets of errors in the frame, each with its description; empty for a layout, whose rules are checked
/// one by one.
fn contradictions(framing: &Description, frame: &[u8]) -> Vec<(usize, &'static str)> {
    let mut found = Found::default();
    if let Description::Format(format) | Description::Board(format, _) = framing {
        format.describe(frame, &mut found);
    }
    found.0
}

#[derive(Default)]
struct Found(Vec<(usize, &'static str)>);

impl Inspector for Found {
    fn kind(&mut self, _: &str) {}

    fn field(&mut self, _: &str, _: usize, _: usize, _: Value<'_>) {}

    fn part(&mut self, _: Arguments<'_>, _: usize, _: usize) {}

    fn fault(&mut self, at: usize, what: &'static str) {
        self.0.push((at, what));
    }
}
