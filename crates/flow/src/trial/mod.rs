//! A description, a layout or a format with a name, tried on what a board sent: does it find frames in it, and are their
//! numbers as they should be?
//!
//! ```text
//! datagrams, bytes of a stream --> Trial --> whole frames -> numbers one after the other (sequence, event), checksums,
//!                                       \    differences of time -> accounts of each board
//!                                        \-> the first bad place: the rule that failed, and the bytes around it
//! ```
//! The frames are the ones that a readout unit would find, by the same description. Memory is bounded by the longest
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
use ropewalk_wire::layout::{Frame, Number, Plan, Size};
use std::collections::BTreeMap;

/// The key of a configuration that names a format.
const FORMAT: &str = "format";

/// Bytes of a bad place that are shown before and behind where it begins.
const SHOWN_BEFORE: usize = 32;
const SHOWN_BEHIND: usize = 64;

/// Tries a description.
#[derive(Debug)]
pub struct Trial<'a> {
    framing: &'a Description,
    /// Several frames of an event that follow each other belong together.
    gathers: bool,
    /// Event numbers grow, but not one by one.
    grows: bool,
    /// The board whose frames are looked at; `None` for all boards.
    own: Option<&'a OwnBoard>,
    /// The boards in the order in which they appeared, where that tells whose they are.
    seen: Vec<Board>,
    account: TrialAccount,
    parts: Parts,
    /// Bytes of the stream that are no whole frame yet, and what is before them.
    rest: Vec<u8>,
    before: Vec<u8>,
    search: Search,
    is_lost: bool,
    /// In what was skipped one frame was lost, however many skips follow each other.
    is_skipping: bool,
}

/// Where bytes come from, and when.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Arrival {
    /// Their sender; `None` for a file.
    pub from: Option<IpAddr>,
    /// When they came.
    pub time: Option<Utc>,
    /// Where they begin in the input: so many bytes, or in this packet.
    pub offset: u64,
    /// The input is a capture, in which places are packets, counted from 0.
    pub is_packet: bool,
}

impl Arrival {
    /// So many bytes further.
    const fn behind(self, bytes: usize) -> Self {
        let further = if self.is_packet { 0 } else { bytes as u64 };
        Self { offset: self.offset + further, ..self }
    }
}

impl<'a> Trial<'a> {
    /// Nothing was tried yet.
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
        }
    }

    /// Several frames of an event that follow each other belong together.
    #[must_use]
    pub fn gathering(self, gathers: bool) -> Self {
        Self { gathers, ..self }
    }

    /// Event numbers grow, but not one by one.
    #[must_use]
    pub fn growing(self, grows: bool) -> Self {
        Self { grows, ..self }
    }

    /// The other datagrams of a frame are waited for as in a run with these limits.
    #[must_use]
    pub fn waiting(self, limits: DatagramLimits) -> Self {
        Self { parts: Parts::new(limits), ..self }
    }

    /// Frames of other boards are counted and not looked at.
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
        // What was left of the bytes before may be the begin of a frame that ends in these.
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

    /// The stream ended; another one may begin.
    pub fn end_of_stream(&mut self) {
        self.account.left_over_bytes += self.rest.len() as u64;
        self.rest.clear();
        self.before.clear();
        (self.search, self.is_lost, self.is_skipping) = (Search::default(), false, false);
    }

    /// What came of it.
    pub fn end(mut self) -> TrialAccount {
        self.end_of_stream();
        self.account
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
            *self.account.faults.entry(cause.name()).or_default() += 1;
            let key = match cause {
                Cause::Oversize => "frame.max",
                Cause::SyncLost | Cause::NotMatched => self.begin_key(),
                _ => self.length_key(),
            };
            let what = format!("no frame begins here ({})", cause.name());
            self.bad(offset, key, &what, before, rest, 1);
        }
    }

    /// The key of a configuration that says what a frame begins with.
    fn begin_key(&self) -> &'static str {
        let Description::Layout(plan) = self.framing else { return FORMAT };
        if matches!(plan.layout().frame, Frame::Sync { .. }) { "frame.sync" } else { "match" }
    }

    /// The key of a configuration that says where a frame ends.
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
        // What a format calls an event may be a time, or come again in each frame of it.
        let counts = !self.grows && (matches!(self.framing, Description::Layout(_)) || counting == Counting::Events);
        let step = self.framing.events_in(frame);
        let goes_on = |number: u64| self.gathers && account.event.last == Some(number);
        let begins = fields.event.filter(|&number| !self.framing.goes_on(frame) && !goes_on(number));
        let event = begins.map(|number| {
            let wrong = if counts { account.event.add(number, widths.event, step) } else { account.event.see(number) };
            ("event", wrong)
        });
        if let Some(time) = fields.time {
            account.intervals.add(time, widths.time, self.framing.tick());
        }
        let checksum = self.framing.checksum(frame);
        account.right_checksums += u64::from(checksum == Some(true));
        account.wrong_checksums += u64::from(checksum == Some(false));
        if checksum == Some(false) {
            self.bad(arrival.offset, "checksum", "the checksum is wrong", before, frame, frame.len());
        }
        for (key, step) in sequence.into_iter().chain(event) {
            // An event's number may be what it likes where frames have numbers of their own.
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

    /// Keeps the first bad place: what the rule with this key looks at is marked.
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
        let kept = &before[before.len().saturating_sub(SHOWN_BEFORE)..];
        let bytes = [kept, &here[..here.len().min(SHOWN_BEHIND)]].concat();
        let (what, before) = (what.to_owned(), kept.len());
        self.account.first_bad = Some(BadPlace { key, what, offset, bytes, before, marked });
    }
}

/// Frames of several datagrams, which each sender numbers for itself.
#[derive(Debug)]
pub struct Parts {
    limits: DatagramLimits,
    senders: BTreeMap<Option<IpAddr>, Assembly<Vec<u8>>>,
    given_up: u64,
}

impl Parts {
    /// With the limits of a run.
    pub const fn new(limits: DatagramLimits) -> Self {
        Self { limits, senders: BTreeMap::new(), given_up: 0 }
    }

    /// Takes a datagram that came from this sender at this time, where that is known. Returns the frame that is whole with it. A frame
    /// of more than `most` bytes is given up.
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

    /// Frames that did not become whole, including the ones that are still open.
    pub fn unfinished(&self) -> u64 {
        self.given_up + self.senders.values().map(|assembly| assembly.unfinished() as u64).sum::<u64>()
    }
}

/// The bytes that the rule with this key reads in a frame of `length` bytes; `None` if it reads the whole frame.
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

/// The places in the frame, and what is wrong there; empty for a layout, whose rules are looked at one by one.
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
