//! A layout tried on what a board sent: does it find frames in it, and are their numbers as they should be?
//!
//! ```text
//! datagrams, bytes of a stream --> Trial --> whole frames -> numbers one after the other (sequence, event), checksums,
//!                                       \    differences of time -> accounts of each board
//!                                        \-> the first bad place: the rule that failed, and the bytes around it
//! ```
//! The frames are those that a readout unit would find, by the same plan. Memory is bounded by the longest frame.

mod account;
mod board;
mod intervals;
mod numbers;
mod parts;
#[cfg(test)]
mod tests;

pub use account::{BadPlace, TrialAccount};
pub use board::{Board, BoardAccount};
pub use intervals::{Interval, Intervals};
pub use numbers::Numbers;

use core::net::IpAddr;
use parts::Parts;
use ropewalk_terms::{Cause, Utc};
use ropewalk_wire::framing::{Framing, Front, Search};
use ropewalk_wire::layout::{Frame, Plan};

/// Bytes of a bad place that are shown before and behind where it begins.
const SHOWN_BEFORE: usize = 32;
const SHOWN_BEHIND: usize = 64;

/// Tries a layout.
#[derive(Debug)]
pub struct Trial<'a> {
    plan: &'a Plan,
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
    /// Who sent them; none of a file.
    pub from: Option<IpAddr>,
    /// When they came.
    pub time: Option<Utc>,
    /// Where they begin in the input, in bytes.
    pub offset: u64,
}

impl<'a> Trial<'a> {
    /// Nothing was tried yet.
    pub fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            account: TrialAccount::default(),
            parts: Parts::default(),
            rest: Vec::new(),
            before: Vec::new(),
            search: Search::default(),
            is_lost: false,
            is_skipping: false,
        }
    }

    /// Takes a datagram.
    pub fn datagram(&mut self, arrival: Arrival, bytes: &[u8]) {
        self.account.datagrams += 1;
        if !self.plan.comes_in_pieces() {
            self.frames_of(arrival, bytes);
            return;
        }
        let Some(piece) = self.plan.piece(bytes) else {
            let short = format!("{} bytes are too few for the header of a piece", bytes.len());
            self.bad(arrival.offset, "frame.pieces.header", &short, &[], bytes, bytes.len());
            self.account.skipped_bytes += bytes.len() as u64;
            return;
        };
        let mut whole = Vec::new();
        if self.parts.accept(arrival.from, &piece, bytes, self.plan.most(), &mut whole) {
            self.frame(arrival, &[], &whole);
        }
        self.account.unfinished_frames = self.parts.unfinished();
    }

    fn frames_of(&mut self, arrival: Arrival, bytes: &[u8]) {
        let (mut at, mut search) = (0, Search::default());
        while at < bytes.len() || at == 0 {
            let (done, rest) = bytes.split_at(at);
            let here = Arrival { offset: arrival.offset + at as u64, ..arrival };
            match self.plan.front(rest, &mut search) {
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
        self.rest.extend_from_slice(bytes);
        let end = arrival.offset + bytes.len() as u64;
        let (mut at, rest) = (0, core::mem::take(&mut self.rest));
        loop {
            let offset = end - (rest.len() - at) as u64;
            let window = &rest[at..];
            match self.plan.front(window, &mut self.search) {
                Front::Frame { bytes } => {
                    self.search = Search::default();
                    let before = core::mem::take(&mut self.before);
                    self.frame(Arrival { offset, ..arrival }, &before, &window[..bytes]);
                    self.before = before;
                    self.remember(&window[..bytes]);
                    at += bytes;
                }
                Front::Skip { bytes, cause } => {
                    let before = core::mem::take(&mut self.before);
                    self.skip(offset, cause, &before, window, bytes);
                    self.before = before;
                    self.remember(&window[..bytes]);
                    at += bytes;
                }
                Front::Needs { .. } => break,
                Front::Lost { cause } => {
                    let before = core::mem::take(&mut self.before);
                    self.skip(offset, cause, &before, window, 0);
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
        self.account.skipped_bytes += bytes as u64;
        if !core::mem::replace(&mut self.is_skipping, true) {
            *self.account.faults.entry(cause.name()).or_default() += 1;
            let key = match cause {
                Cause::Oversize => "frame.max",
                Cause::SyncLost if matches!(self.plan.layout().frame, Frame::Sync { .. }) => "frame.sync",
                Cause::SyncLost | Cause::NotMatched => "match",
                _ => self.length_key(),
            };
            let what = format!("no frame begins here ({})", cause.name());
            self.bad(offset, key, &what, before, rest, 1);
        }
    }

    /// The key of a configuration that says where a frame ends.
    fn length_key(&self) -> &'static str {
        use ropewalk_wire::layout::Size;
        match &self.plan.layout().frame {
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
        if !self.plan.is_matched(frame) {
            *self.account.faults.entry(Cause::NotMatched.name()).or_default() += 1;
            self.account.skipped_bytes += frame.len() as u64;
            self.bad(arrival.offset, "match", "the frame has other bytes here", before, frame, frame.len());
            return;
        }
        let (fields, widths) = (self.plan.fields(frame), self.plan.widths());
        let board = Board { from: arrival.from, number: self.plan.board_of(frame) };
        let account = self.account.board(board);
        account.add(frame.len(), arrival.time);
        let sequence = fields.sequence.map(|number| ("sequence", account.sequence.add(number, widths.sequence, 1)));
        let event = fields.event.map(|number| ("event", account.event.add(number, widths.event, 1)));
        if let Some(time) = fields.time {
            account.intervals.add(time, widths.time, self.plan.tick());
        }
        let checksum = self.plan.checksum(frame);
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
    }

    /// Keeps the first bad place.
    fn bad(&mut self, offset: u64, key: &'static str, what: &str, before: &[u8], here: &[u8], length: usize) {
        self.account.bad_places += 1;
        if self.account.first_bad.is_some() {
            return;
        }
        let kept = &before[before.len().saturating_sub(SHOWN_BEFORE)..];
        let bytes = [kept, &here[..here.len().min(SHOWN_BEHIND)]].concat();
        let marked = parts::place_of(self.plan, key, length);
        let (what, before) = (what.to_owned(), kept.len());
        self.account.first_bad = Some(BadPlace { key, what, offset, bytes, before, marked });
    }
}
