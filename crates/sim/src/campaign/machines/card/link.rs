//! One e-link of a card: what it sends, how each chunk ends up in its blocks, and how many fragments must, and may,
//! count as received.

use crate::campaign::cards::{CardSetting, Damage};
use crate::campaign::content::Contents;
use crate::campaign::fault::{Fault, FaultKind};
use crate::campaign::machines::front_end::{FAR, How, Made, Record, SLOW};
use crate::campaign::machines::subscriber::elink;
use crate::campaign::scenario::Scenario;
use ropewalk_flow::readout::felix::EventRule;
use ropewalk_terms::{Instant, SourceId};
use ropewalk_wire::felix::{BlockFormat, ELink, Encoder, Status, SubChunkType, Trailer};
use std::collections::VecDeque;
use std::time::Duration;

/// Sequence numbers come round after so many blocks.
const SEQUENCES: u32 = 32;
/// Words by which a chunk is longer that is larger than any may be.
const OVERSIZE_BYTES: usize = (64 << 10) + 1000;
/// What a piece without the rest of its chunk has, at most.
const PIECE: usize = 32;

/// What becomes of a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Good,
    Lost,
    Damaged(Damage),
}

/// A chunk of which some block has not left.
#[derive(Clone, Debug)]
struct UnderWay {
    event: u64,
    /// It was sent before.
    is_again: bool,
    how: How,
    /// Its first and its last block, counted from the e-link's beginning.
    first: u64,
    last: u64,
    begins: bool,
    ends: bool,
    /// Where its first piece is: ring and position of its block.
    begun: Option<(u64, u64)>,
    is_spoilt: bool,
    /// The reader cannot know that it is a chunk.
    is_doubtful: bool,
    status: Status,
    bytes: Vec<u8>,
}

/// A whole chunk in a ring, as subscribers should get it.
#[derive(Clone, Debug)]
pub(in crate::campaign) struct Said {
    /// Which event's it says that it is.
    pub(in crate::campaign) number: u64,
    /// In which ring, and where it ends there.
    pub(in crate::campaign) ring: u64,
    pub(in crate::campaign) end: u64,
    pub(in crate::campaign) status: Status,
    pub(in crate::campaign) bytes: Vec<u8>,
    /// A reader may miss it for reasons of the format.
    pub(in crate::campaign) is_doubtful: bool,
}

impl UnderWay {
    fn new(event: u64, how: How, (first, last): (u64, u64)) -> Self {
        let (is_again, is_spoilt, is_doubtful) = (false, false, false);
        let (begins, ends, begun, status, bytes) = (true, true, None, Status::GOOD, Vec::new());
        Self { event, is_again, how, first, last, begins, ends, begun, is_spoilt, is_doubtful, status, bytes }
    }

    /// Whether it is a time-out in one piece, which looks like the end of a chunk to a reader that missed something.
    fn may_be_an_end(&self) -> bool {
        self.first == self.last && matches!(self.how, How::Flagged(status, _) if status.has(Status::TIMED_OUT))
    }
}

/// What the reader knows of an e-link's blocks.
#[derive(Clone, Debug, Default)]
struct View {
    /// It has seen a good block of this ring.
    has_joined: bool,
    /// Blocks since the last one that it saw or believed.
    unseen: u32,
    /// Nothing was missed since a chunk began.
    is_sure: bool,
}

/// One e-link.
pub(in crate::campaign) struct Link {
    pub(super) id: SourceId,
    pub(super) record: Record,
    pub(super) tally: Tally,
    /// Every whole chunk, if there are subscribers for them.
    pub(super) said: Vec<Said>,
    is_heard: bool,
    pub(super) next: u64,
    last: u64,
    pace: Duration,
    contents: Contents,
    rule: EventRule,
    encoder: Encoder,
    /// Chunks of which some block has not left; blocks that are full or being filled, and blocks that have left.
    under_way: VecDeque<UnderWay>,
    block: u64,
    gone: u64,
    most_in_block: usize,
    open_since: Instant,
    troubles: VecDeque<FaultKind>,
    /// Blocks to be lost, and damages of the next ones.
    lose: u64,
    damages: VecDeque<Damage>,
    dead_until: Instant,
    /// It stopped within a chunk until then.
    silent_until: Instant,
    stalls_until: Instant,
    slow_until: Instant,
    sent_last: Instant,
    twice: u64,
    skip: u64,
    jumps: u64,
    /// The last chunk was never ended.
    is_within: bool,
    view: View,
    view_life: u64,
}

impl Link {
    pub(super) fn new(scenario: &Scenario, setting: &CardSetting, link: u16, source: usize) -> Self {
        Self {
            id: scenario.source_id(source),
            record: Record::new(scenario.events),
            tally: Tally::default(),
            said: Vec::new(),
            is_heard: !setting.subscribers.is_empty(),
            next: 1,
            last: scenario.events,
            pace: scenario.pace,
            contents: scenario.contents(),
            rule: setting.rule_of(link.into()),
            encoder: Encoder::new(setting.format, elink(link)),
            under_way: VecDeque::new(),
            block: 0,
            gone: 0,
            most_in_block: scenario.rooms.window as usize / 2,
            open_since: Instant::ZERO,
            troubles: VecDeque::new(),
            lose: 0,
            damages: VecDeque::new(),
            dead_until: Instant::ZERO,
            silent_until: Instant::ZERO,
            stalls_until: Instant::ZERO,
            slow_until: Instant::ZERO,
            sent_last: Instant::ZERO,
            twice: 0,
            skip: 0,
            jumps: 0,
            is_within: false,
            view: View::default(),
            view_life: 0,
        }
    }

    pub(super) const fn elink(&self) -> ELink {
        self.encoder.header().elink
    }

    const fn format(&self) -> BlockFormat {
        self.encoder.format()
    }

    /// Something is to go wrong with it.
    pub(super) fn order(&mut self, until: Instant, fault: &Fault) {
        match fault.kind {
            FaultKind::LinkDies => self.dead_until = self.dead_until.max(until),
            FaultKind::LinkStalls => {
                self.stalls_until = until;
                self.troubles.push_back(fault.kind);
            }
            FaultKind::BlockLost => self.lose += fault.count(),
            FaultKind::BlockDamaged => self.damages.push_back(Damage::ALL[fault.count() as usize]),
            FaultKind::SendTwice => self.twice += fault.count(),
            FaultKind::Skip => self.skip += fault.count(),
            FaultKind::Jump => self.jumps += 1,
            FaultKind::Slow => self.slow_until = until,
            kind => self.troubles.push_back(kind),
        }
    }

    /// When its next chunk is due; none where there is none.
    pub(super) fn due(&self, burst: u64) -> Option<Instant> {
        if self.next > self.last {
            return None;
        }
        let planned = Instant::ZERO.after(self.pace * self.next as u32);
        let slow = self.sent_last.after(self.pace * SLOW).min(self.slow_until);
        let due = if self.next <= burst { Instant::ZERO } else { planned.max(slow) };
        Some(due.max(self.silent_until))
    }

    /// When the block that is being filled should go as it is.
    pub(super) fn flush_due(&self, after: Duration) -> Option<Instant> {
        if self.encoder.is_empty() {
            return None;
        }
        let due = if self.next > self.last { self.open_since } else { self.open_since.after(after) };
        Some(due.max(self.silent_until))
    }

    /// Whether so many chunks are in the block that is being filled that another e-link's must come first: what a window
    /// has no room for keeps everything behind it waiting.
    pub(super) fn has_said_enough(&self) -> bool {
        let in_block = self.under_way.iter().rev().take_while(|chunk| chunk.first == self.block).count();
        !self.encoder.is_empty() && in_block >= self.most_in_block
    }

    /// It has nothing more to say.
    pub(super) fn is_over(&self) -> bool {
        self.next > self.last && self.encoder.is_empty()
    }

    /// Fills the block up.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        if self.block.is_multiple_of(2) {
            self.encoder.flush(out)
        } else {
            self.encoder.time_out(out)
        }
        self.block += 1;
    }

    /// The chunk of the next event, with what is wrong with it.
    pub(super) fn speak(&mut self, now: Instant, out: &mut Vec<u8>) {
        let event = self.next;
        self.next += 1;
        self.sent_last = now;
        if self.skip > 0 || now < self.dead_until {
            self.skip = self.skip.saturating_sub(1);
            return self.note(now, event, How::Skipped);
        }
        if self.encoder.is_empty() {
            self.open_since = now;
        }
        let before = out.len();
        // What is in doubt for the reader must not be put together from pieces of two chunks.
        let is_possible = |trouble: &&FaultKind| match trouble {
            FaultKind::ChunkNeverBegins | FaultKind::ChunkTimedOut => !self.is_within,
            _ => true,
        };
        let trouble = self.troubles.front().filter(is_possible).copied();
        if trouble.is_some() {
            self.troubles.pop_front();
        }
        self.compose(event, trouble, out);
        self.is_within = trouble == Some(FaultKind::ChunkNeverEnds);
        if out.len() > before {
            self.open_since = now;
        }
        if trouble == Some(FaultKind::LinkStalls) && self.under_way.back().is_some_and(|last| last.first < last.last) {
            self.silent_until = self.stalls_until;
        }
    }

    fn compose(&mut self, event: u64, trouble: Option<FaultKind>, out: &mut Vec<u8>) {
        let number = event + if self.jumps > 0 { FAR } else { 0 };
        let mut how = if self.jumps > 0 { How::Misnumbered } else { How::Right };
        self.jumps = self.jumps.saturating_sub(1);
        let mut chunk = self.contents.chunk(self.rule, self.id, event, number);
        let mut status = Status::GOOD;
        match trouble {
            Some(FaultKind::ChunkNeverEnds) => return self.piece(event, SubChunkType::First, &chunk, out),
            Some(FaultKind::ChunkNeverBegins) => return self.piece(event, SubChunkType::Last, &chunk, out),
            Some(FaultKind::ChunkOversize) => {
                chunk.resize(OVERSIZE_BYTES, 0x55);
                how = How::Spoilt;
            }
            // Its first piece has four bytes and ends a block.
            Some(FaultKind::LinkStalls) => {
                while self.encoder.room() > self.format().trailer_bytes() + 4 {
                    self.encoder.null(out);
                }
            }
            Some(kind) => {
                let flags = flag_of(kind);
                // Narrow trailers have no place for it.
                let has_place = flags != Status::BUSY || self.format().trailer_bytes() == 4;
                status = if has_place { flags } else { Status::GOOD };
                if flags.has(Status::TRUNCATED) || flags.has(Status::TIMED_OUT) {
                    chunk.truncate((chunk.len() / 2).max(Contents::chunk_head(self.rule)));
                }
                if flags.has(Status::TIMED_OUT) {
                    status = status.and(Status::TRUNCATED);
                }
                if how == How::Right && !status.is_good() {
                    how = How::Flagged(status, chunk.len() as u32);
                }
            }
            None => {}
        }
        self.say(event, how, &chunk, status, out);
        if self.twice > 0 && how == How::Right {
            self.twice -= 1;
            self.say(event, how, &chunk, status, out);
            if let Some(again) = self.under_way.back_mut() {
                again.is_again = true;
            }
        }
    }

    /// A chunk, in as many blocks as it takes.
    fn say(&mut self, event: u64, how: How, chunk: &[u8], status: Status, out: &mut Vec<u8>) {
        // A trailer alone has no place for a first piece.
        if self.encoder.room() == self.format().trailer_bytes() {
            self.encoder.null(out);
            self.block += 1;
        }
        let (first, before) = (self.block, out.len());
        self.encoder.chunk(chunk, status, out);
        self.block += ((out.len() - before) / self.format().block_bytes()) as u64;
        // The chunk may end the block that has just left.
        let last = self.block - u64::from(self.encoder.is_empty());
        let bytes = if self.is_heard { chunk.to_vec() } else { Vec::new() };
        self.under_way.push_back(UnderWay { status, bytes, ..UnderWay::new(event, how, (first, last)) });
    }

    /// A piece of a chunk without the rest.
    fn piece(&mut self, event: u64, kind: SubChunkType, chunk: &[u8], out: &mut Vec<u8>) {
        let piece = &chunk[..chunk.len().min(PIECE)];
        let trailer = Trailer::new(kind, piece.len() as u16, Status::GOOD);
        let bytes = piece.len().next_multiple_of(self.format().trailer_bytes()) + self.format().trailer_bytes();
        if bytes > self.encoder.room() {
            self.encoder.flush(out);
            self.block += 1;
        }
        let (first, before) = (self.block, out.len());
        self.encoder.sub_chunk(trailer, piece, out);
        self.block += u64::from(out.len() > before);
        let (begins, ends) = (kind == SubChunkType::First, kind == SubChunkType::Last);
        let chunk = UnderWay::new(event, How::Spoilt, (first, first));
        self.under_way.push_back(UnderWay { begins, ends, is_spoilt: true, ..chunk });
    }

    fn note(&mut self, at: Instant, event: u64, how: How) {
        self.record.note(event, Made { at, connection: 0, end: 0, how });
    }

    /// What is to become of the next block, if it gets so far.
    pub(super) fn next_fate(&mut self, life: u64) -> Fate {
        // A reader that missed as many as there are numbers would miss nothing.
        let comes_round = self.view.unseen > 0 && self.view.unseen.is_multiple_of(SEQUENCES);
        if self.lose > 0 || comes_round && self.view_life == life {
            return Fate::Lost;
        }
        self.damages.front().map_or(Fate::Good, |&damage| Fate::Damaged(damage))
    }

    /// Its next block has left, or was to: into this ring, at this place. A chunk that is longer than `most_open` may be
    /// given up by a reader whose ring is full.
    pub(super) fn left(&mut self, now: Instant, place: (u64, u64, u64), fate: Fate, most_open: u64) {
        let (life, start, end) = place;
        if std::mem::replace(&mut self.view_life, life) != life {
            self.view = View::default();
        }
        match fate {
            Fate::Good => (self.view.has_joined, self.view.unseen) = (true, 0),
            Fate::Lost => {
                self.lose = self.lose.saturating_sub(1);
                self.view.unseen += 1;
            }
            Fate::Damaged(damage) => {
                self.damages.pop_front();
                let is_due = self.view.has_joined && self.view.unseen == 0;
                self.view.unseen += u64::from(damage == Damage::StartOfBlock || !is_due) as u32;
            }
        }
        self.view.is_sure &= fate == Fate::Good;
        let block = self.gone;
        self.gone += 1;
        let Self { under_way, view, tally, .. } = self;
        if fate == Fate::Good {
            tally.goes_on(end);
        }
        for chunk in under_way.iter_mut().filter(|chunk| (chunk.first..=chunk.last).contains(&block)) {
            if fate != Fate::Good {
                chunk.is_spoilt = true;
            } else if chunk.first == block && chunk.begins {
                chunk.begun = Some((life, start));
                chunk.is_doubtful = chunk.may_be_an_end() && !view.is_sure;
                if chunk.is_doubtful {
                    tally.perhaps.push(end);
                } else {
                    tally.begun.push(end);
                    view.is_sure = chunk.ends;
                }
            } else if chunk.begun.is_none_or(|(begun, _)| begun != life) {
                chunk.is_spoilt = true;
                tally.perhaps.push(end);
            }
        }
        while self.under_way.front().is_some_and(|chunk| chunk.last == block) {
            if let Some(chunk) = self.under_way.pop_front() {
                self.finish(now, chunk, (life, end), fate, most_open);
            }
        }
    }

    /// The last block of a chunk has left.
    fn finish(&mut self, at: Instant, chunk: UnderWay, (connection, end): (u64, u64), fate: Fate, most_open: u64) {
        if let Some((_, start)) = chunk.begun.filter(|&(ring, _)| ring == connection) {
            let has_ended = chunk.ends && fate == Fate::Good;
            if has_ended { self.tally.spans.push((start, end)) } else { self.tally.endless.push(start) }
        }
        let span = chunk.begun.filter(|_| !chunk.is_spoilt).map(|(_, start)| end - start);
        let is_doubtful = chunk.is_doubtful || span.is_some_and(|span| span > most_open);
        let event = chunk.event;
        if span.is_some() && chunk.how != How::Spoilt {
            if !chunk.is_doubtful {
                self.tally.whole.push(end);
            }
            let number = if chunk.how == How::Misnumbered { event + FAR } else { event };
            let (ring, status, bytes) = (connection, chunk.status, chunk.bytes);
            self.said.extend(self.is_heard.then_some(Said { number, ring, end, status, bytes, is_doubtful }));
        }
        let how = if span.is_some() { chunk.how } else { How::Spoilt };
        if chunk.is_again && (how == How::Spoilt || self.record.made(event).is_some_and(|made| made.how.is_whole())) {
            return;
        }
        if is_doubtful {
            self.record.doubtful.insert(event);
        }
        self.record.note(event, Made { at, connection, end, how });
    }

    /// Where the oldest chunk of this ring begins that is open for who has read so far.
    pub(super) fn oldest_open(&self, ring: u64, handed_on: u64) -> Option<u64> {
        let begun = self.under_way.iter().filter_map(|chunk| chunk.begun);
        let begun = begun.filter(|&(other, start)| other == ring && start < handed_on).map(|(_, start)| start);
        begun.chain(self.tally.oldest_open(handed_on)).min()
    }
}

/// The flag of a chunk in which this goes wrong.
const fn flag_of(kind: FaultKind) -> Status {
    match kind {
        FaultKind::ChunkBusy => Status::BUSY,
        FaultKind::ChunkCrc => Status::CRC,
        FaultKind::ChunkError => Status::ERROR,
        FaultKind::ChunkTruncated => Status::TRUNCATED,
        _ => Status::TIMED_OUT,
    }
}

/// Ends of chunks and pieces in the present ring, in the order of writing.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Where each whole chunk ends.
    whole: Vec<u64>,
    /// Where the first piece ends of each chunk that began. Each counts once: as a fragment, or as given up.
    begun: Vec<u64>,
    /// Where something ends that may count or not: a piece without a beginning, a time-out after a loss.
    perhaps: Vec<u64>,
    /// Where each chunk that has ended was open for the reader: from, to.
    spans: Vec<(u64, u64)>,
    /// Where chunks begin that have not ended.
    endless: Vec<u64>,
}

impl Tally {
    /// A good block that ends at `end`.
    fn goes_on(&mut self, end: u64) {
        self.spans.extend(self.endless.drain(..).map(|start| (start, end)));
    }

    /// Where the oldest chunk begins that is open for a reader that has handed on this much.
    pub(super) fn oldest_open(&self, handed_on: u64) -> Option<u64> {
        let spans = self.spans.iter().filter(|&&(_, end)| end > handed_on).map(|&(start, _)| start);
        spans.chain(self.endless.iter().copied()).filter(|&start| start < handed_on).min()
    }

    /// The fewest and the most fragments that count as received if everything was handed on up to the first position
    /// and decoded up to the second; and the fewest if the ring has ended there.
    pub(super) fn bounds(&self, handed_on: u64, decoded: u64) -> (u64, u64, u64) {
        let until = |ends: &[u64], position: u64| ends.partition_point(|&end| end <= position) as u64;
        let most = until(&self.begun, decoded) + until(&self.perhaps, decoded);
        (until(&self.whole, handed_on), most, until(&self.begun, handed_on))
    }
}
