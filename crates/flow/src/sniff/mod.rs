//! What unknown frames say: which of their bytes count, which are clocks, which hold the length, which are always the same.
//!
//! ```text
//! datagrams -----------------------------------------> frames of each peer --> counters  up by one per frame, per event
//! streams --> cut: length fields that lead from       (their first bytes,      clocks    linear in arrival time
//!             frame to frame, sync words, fixed size   when they came)         lengths   field = frame's length
//!                                                                              constants, and what tells peers apart
//!                                    draft: a Layout of all that, which compiles to a plan
//! ```
//! Everything is a guess with its evidence: in how many of how many frames it holds. Where another reading of a draft fits as
//! well, or too little was seen, that is said ([`Doubt`]): a draft without doubts is right for what was seen. Looked at are the first frames of each
//! peer, as many as [`Limits`] allow, and for clocks as many of the last ones; accounts of rates and sizes are of everything that came. Peers that
//! send to one place are taken for boards of one kind.

mod checksums;
mod clocks;
mod fields;
mod findings;
mod frames;
mod steps;
#[cfg(test)]
mod tests;

pub use findings::{Doubt, Findings, Group, Guess, Meaning, Note, draft};

use core::net::SocketAddr;
use core::ops::Range;
use frames::{Cutting, Frames, Table};
use ropewalk_terms::Instant;
use ropewalk_wire::layout::Frame;
use std::collections::VecDeque;

/// How bytes come.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Transport {
    /// In datagrams, each of which is a frame.
    Udp,
    /// As a stream, in which frames have no visible end.
    Tcp,
    /// As the bytes of a file, from the first one on.
    File,
}

impl Transport {
    /// Whether frames have to be found.
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::Tcp | Self::File)
    }
}

/// A sender, and where it sends to.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Peer {
    /// The port that it sends to.
    pub port: u16,
    /// How.
    pub transport: Transport,
    /// Where it sends from.
    pub from: SocketAddr,
}

/// How much is looked at. The limits bound the memory for any input.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Peers that are looked at; of further ones the packets are counted.
    pub peers: usize,
    /// First frames of a peer, and as many last ones.
    pub frames: usize,
    /// Bytes of a frame.
    pub head_bytes: usize,
    /// First bytes of a stream, in which frames are looked for, and half as many last ones.
    pub stream_bytes: usize,
}

impl Default for Limits {
    /// 32 peers with 2,048 frames of 192 bytes, or 768 KiB of a stream: 24 MiB at most.
    fn default() -> Self {
        Self { peers: 32, frames: 1024, head_bytes: 192, stream_bytes: 512 << 10 }
    }
}

/// First packets that are kept to be shown.
const SHOWN_PACKETS: usize = 3;
/// Bytes of each of them.
const SHOWN_BYTES: usize = 64;

/// Whole frames whose checksum is looked for.
const CHECKED_FRAMES: usize = 32;

/// What came from a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerAccount {
    /// Who.
    pub peer: Peer,
    /// Datagrams, or pieces of a stream as they were received.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of the shortest one.
    pub least_bytes: usize,
    /// Bytes of the longest one.
    pub most_bytes: usize,
    /// When the first one came.
    pub first: Instant,
    /// When the last one came.
    pub last: Instant,
    /// The first packets, each as far as it is shown.
    pub shown: Vec<Vec<u8>>,
}

impl PeerAccount {
    const fn new(peer: Peer, now: Instant) -> Self {
        let shown = Vec::new();
        Self { peer, packets: 0, bytes: 0, least_bytes: usize::MAX, most_bytes: 0, first: now, last: now, shown }
    }

    fn add(&mut self, now: Instant, bytes: &[u8]) {
        self.packets += 1;
        self.bytes += bytes.len() as u64;
        self.least_bytes = self.least_bytes.min(bytes.len());
        self.most_bytes = self.most_bytes.max(bytes.len());
        self.last = self.last.max(now);
        if self.shown.len() < SHOWN_PACKETS {
            self.shown.push(bytes[..bytes.len().min(SHOWN_BYTES)].to_vec());
        }
    }

    /// Packets per second; 0 where all came at once.
    pub fn rate(&self) -> f64 {
        let seconds = self.last.since(self.first).as_secs_f64();
        if seconds > 0.0 { self.packets.saturating_sub(1) as f64 / seconds } else { 0.0 }
    }
}

/// The last frames or pieces of a peer, and when they came.
#[derive(Debug, Default)]
struct Tail {
    pieces: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
}

impl Tail {
    /// Adds a piece. The first ones go, as long as there are more pieces than `most`, or as many bytes without them.
    fn push(&mut self, now: u64, piece: &[u8], most: usize, most_bytes: usize) {
        self.bytes += piece.len();
        self.pieces.push_back((now, piece.to_vec()));
        while self.pieces.len() > most
            || self.pieces.front().is_some_and(|(_, first)| self.bytes - first.len() >= most_bytes && most_bytes > 0)
        {
            let Some((_, first)) = self.pieces.pop_front() else { break };
            self.bytes -= first.len();
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Pieces of a stream whose time is known, for each frame.
const PIECES_EACH: usize = 8;

/// The beginning of a stream, and when its pieces came.
#[derive(Debug, Default)]
struct Stream {
    bytes: Vec<u8>,
    /// The end of it.
    tail: Tail,
    /// Where what follows is no continuation of what was before.
    breaks: Vec<usize>,
    /// For pieces of it: where each ends, and when it came.
    marks: Vec<(usize, u64)>,
}

impl Stream {
    fn push(&mut self, limits: &Limits, now: u64, bytes: &[u8]) {
        let most = limits.frames * PIECES_EACH;
        self.tail.push(now, bytes, most, limits.stream_bytes / 2);
        let room = limits.stream_bytes.saturating_sub(self.bytes.len());
        let taken = bytes.len().min(room);
        if taken == 0 {
            return;
        }
        self.bytes.extend_from_slice(&bytes[..taken]);
        // The ends of further pieces are not kept: a frame's time is then that of the last mark.
        if self.marks.len() < most {
            self.marks.push((self.bytes.len(), now));
        }
    }

    /// What comes next is the begin of another connection, or comes after bytes that are not there.
    fn break_off(&mut self) {
        self.tail.clear();
        let end = self.bytes.len();
        if end > 0 && self.breaks.last() != Some(&end) {
            self.breaks.push(end);
        }
    }

    /// The parts within which bytes follow each other.
    fn parts(&self) -> impl Iterator<Item = Range<usize>> {
        let ends = self.breaks.iter().copied().chain([self.bytes.len()]);
        core::iter::once(0).chain(self.breaks.iter().copied()).zip(ends).map(|(start, end)| start..end)
    }

    /// The longest of them.
    fn longest_part(&self) -> Range<usize> {
        self.parts().max_by_key(Range::len).unwrap_or(0..0)
    }

    /// Its end as a stream.
    fn end(&self) -> Self {
        let mut end = Self::default();
        for (at, piece) in &self.tail.pieces {
            end.bytes.extend_from_slice(piece);
            end.marks.push((end.bytes.len(), *at));
        }
        end
    }

    /// When the byte at this place came, which frames are cut at.
    fn time(&self, place: usize) -> u64 {
        let mark = self.marks.partition_point(|(end, _)| *end <= place);
        self.marks.get(mark).or(self.marks.last()).map_or(0, |(_, at)| *at)
    }
}

/// What is kept of a peer.
#[derive(Debug)]
enum Kept {
    /// The first ones, and the last ones.
    Datagrams(Frames, Tail),
    Stream(Stream),
}

impl Kept {
    /// Its bytes, where they are a stream.
    const fn stream(&self) -> Option<&Stream> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Datagrams(..) => None,
        }
    }
}

/// Looks at what peers send.
#[derive(Debug)]
pub struct Sniffer {
    limits: Limits,
    heard: Vec<(PeerAccount, Kept)>,
    unheard: u64,
}

impl Sniffer {
    /// Nothing came yet.
    pub const fn new(limits: Limits) -> Self {
        Self { limits, heard: Vec::new(), unheard: 0 }
    }

    /// Takes a datagram, or the next bytes of a stream.
    pub fn accept(&mut self, peer: Peer, now: Instant, bytes: &[u8]) {
        let known = self.heard.iter().position(|(account, _)| account.peer == peer);
        let index = match known {
            Some(index) => index,
            None if self.heard.len() >= self.limits.peers => {
                self.unheard += 1;
                return;
            }
            None => {
                let kept = match peer.transport {
                    Transport::Udp => Kept::Datagrams(Frames::new(self.limits.head_bytes), Tail::default()),
                    Transport::Tcp | Transport::File => Kept::Stream(Stream::default()),
                };
                self.heard.push((PeerAccount::new(peer, now), kept));
                self.heard.len() - 1
            }
        };
        let (account, kept) = &mut self.heard[index];
        account.add(now, bytes);
        match kept {
            Kept::Datagrams(frames, _) if frames.len() < self.limits.frames => frames.push(now.as_nanoseconds(), bytes),
            Kept::Datagrams(_, tail) => {
                let head = &bytes[..bytes.len().min(self.limits.head_bytes)];
                tail.push(now.as_nanoseconds(), head, self.limits.frames, 0);
            }
            Kept::Stream(stream) => stream.push(&self.limits, now.as_nanoseconds(), bytes),
        }
    }

    /// What comes next of this peer's stream is no continuation of what came: it is another connection, or bytes are missing.
    pub fn break_off(&mut self, peer: Peer) {
        let known = self.heard.iter_mut().find(|(account, _)| account.peer == peer);
        if let Some((_, Kept::Stream(stream))) = known {
            stream.break_off();
        }
    }

    /// Packets so far.
    pub fn packets(&self) -> u64 {
        self.heard.iter().map(|(account, _)| account.packets).sum::<u64>() + self.unheard
    }

    /// What was found, for each place that was sent to; for connections whose frames are different, apart.
    pub fn findings(&self) -> Findings {
        let mut order: Vec<&(PeerAccount, Kept)> = self.heard.iter().collect();
        order.sort_by_key(|(account, _)| account.peer);
        let same = |one: &&(PeerAccount, Kept), other: &&(PeerAccount, Kept)| {
            (one.0.peer.port, one.0.peer.transport) == (other.0.peer.port, other.0.peer.transport)
        };
        let groups = order.chunk_by(same).flat_map(|peers| self.groups(peers)).collect();
        Findings { groups, unheard: self.unheard }
    }

    /// Peers that send to one place: those together whose frames are found in the same way.
    fn groups(&self, peers: &[&(PeerAccount, Kept)]) -> Vec<Group> {
        let (mut groups, mut left) = (Vec::new(), peers.to_vec());
        while let Some(cutting) =
            frames::find_cutting(&left.iter().filter_map(|(_, kept)| kept.stream()).collect::<Vec<_>>())
        {
            let fits = |(_, kept): &&(PeerAccount, Kept)| {
                kept.stream().is_some_and(|stream| cutting.frames_of(stream).is_some())
            };
            let (alike, others): (Vec<_>, Vec<_>) = left.iter().copied().partition(fits);
            if alike.is_empty() {
                break;
            }
            groups.push(self.group(&alike, Some(&cutting)));
            left = others;
        }
        if !left.is_empty() {
            groups.push(self.group(&left, None));
        }
        groups
    }

    fn group(&self, peers: &[&(PeerAccount, Kept)], cutting: Option<&Cutting>) -> Group {
        let streams: Vec<&Stream> = peers.iter().filter_map(|(_, kept)| kept.stream()).collect();
        let datagrams = peers.iter().filter_map(|(_, kept)| match kept {
            Kept::Datagrams(frames, tail) => Some((frames, self.last(tail))),
            Kept::Stream(_) => None,
        });
        let datagrams: Vec<(&Frames, Frames)> = datagrams.collect();
        let cut: Vec<(Frames, Frames)> = cutting.iter().flat_map(|cutting| self.cut(cutting, &streams)).collect();
        let of_datagrams = datagrams.iter().map(|(first, last)| (*first, last));
        let table = Table::new(of_datagrams.chain(cut.iter().map(|(first, last)| (first, last))));
        let whole: Vec<&[u8]> = table.rows().filter_map(|row| row.whole()).take(CHECKED_FRAMES).collect();
        let checksum = checksums::find_checksum(&whole);
        let mut guesses = fields::find_lengths(&table, checksum.as_slice());
        if let (true, Some(Frame::Length(length))) = (guesses.is_empty(), cutting.map(|cutting| &cutting.frame)) {
            // All frames are of one size, which it is.
            let frames = table.len() as u64;
            guesses.push(Guess { meaning: Meaning::Length(*length), holds: frames, of: frames });
        }
        guesses.extend(checksum);
        let counters = fields::find_counters(&table, &guesses);
        let steps = steps::find_steps(&table, &[&guesses[..], &counters].concat());
        let clocks = clocks::find_clocks(&table, &[&guesses[..], &counters, &steps].concat());
        guesses.extend(clocks.guesses);
        // Where a clock ends and in which order its bytes are tells more of the counters beside it.
        guesses.extend(fields::find_counters(&table, &guesses));
        steps::unmask(&table, &mut guesses);
        guesses.extend(steps::find_steps(&table, &guesses));
        guesses.extend(fields::find_slow(&table, &guesses));
        guesses.extend(fields::find_constants(&table, &guesses));
        let framing = cutting.map(|cutting| likeliest(&cutting.frame, &guesses));
        let ranges: Vec<_> =
            cutting.iter().flat_map(|cutting| streams.iter().filter_map(|one| cutting.frames_of(one))).collect();
        let begins_within = ranges.iter().any(|ranges| ranges.first().is_some_and(|first| first.start > 0));
        // Frames whose checksums are right are the right ones.
        let is_checked = |guess: &Guess| matches!(guess.meaning, Meaning::Checksum(_)) && guess.holds == guess.of;
        let is_certain = guesses.iter().any(is_checked);
        let rival = cutting.and_then(|cutting| cutting.rival.as_ref()).filter(|_| !is_certain);
        let mut doubts = findings::find_doubts(&table, &guesses, framing.as_ref(), rival, begins_within);
        doubts.extend(clocks.perhaps);
        let of_streams: usize = streams.iter().map(|stream| stream.bytes.len()).sum();
        let framed: usize = ranges.iter().flatten().map(|range| range.len()).sum();
        let unframed_bytes = of_streams.saturating_sub(framed) as u64;
        let mut group = Group {
            peers: peers.iter().map(|(account, _)| account.clone()).collect(),
            frames: table.len() as u64,
            least_frame: table.rows().map(|row| row.length).min().unwrap_or(0),
            most_frame: table.rows().map(|row| row.length).max().unwrap_or(0),
            framing,
            notes: findings::find_notes(&table, &guesses, &doubts),
            guesses,
            doubts,
            unframed_bytes,
        };
        let has_steps = group.doubts.iter().any(|doubt| matches!(doubt, Doubt::Steps(..)));
        if !has_steps && draft(&group).is_some_and(|layout| layout.event.is_empty()) {
            group.doubts.push(Doubt::NoEvent);
        }
        group
    }

    /// The first frames of each stream, and its last ones.
    fn cut(&self, cutting: &Cutting, streams: &[&Stream]) -> Vec<(Frames, Frames)> {
        let cut = |stream: &Stream, ranges: &mut dyn Iterator<Item = Range<usize>>| {
            let mut frames = Frames::new(self.limits.head_bytes);
            ranges.for_each(|range| frames.push(stream.time(range.start), &stream.bytes[range]));
            frames
        };
        let most = self.limits.frames;
        let both = streams.iter().map(|stream| {
            let first = cut(stream, &mut cutting.frames_of(stream).into_iter().flatten().take(most));
            let end = stream.end();
            // Anything falls apart into frames of one size.
            let is_sure = !matches!(cutting.frame, Frame::Fixed { .. });
            let ranges = cutting.frames_of(&end).filter(|_| is_sure).unwrap_or_default();
            let skipped = ranges.len().saturating_sub(most);
            (first, cut(&end, &mut ranges.into_iter().skip(skipped)))
        });
        both.collect()
    }

    /// The last datagrams as frames.
    fn last(&self, tail: &Tail) -> Frames {
        let mut frames = Frames::new(self.limits.head_bytes);
        tail.pieces.iter().for_each(|(at, head)| frames.push(*at, head));
        frames
    }
}

/// The checksum of these whole frames, as a configuration writes it: `checksum = { kind = "crc32", at = -4, type = "u32le" }`.
pub fn checksum_of(frames: &[&[u8]]) -> Option<String> {
    let Meaning::Checksum(checksum) = checksums::find_checksum(frames)?.meaning else { return None };
    let from = if checksum.from == 0 { String::new() } else { format!(", from = {}", checksum.from) };
    let (kind, number) = (checksum.kind.name(), findings::Key(&checksum.number));
    Some(format!("`checksum = {{ kind = \"{kind}\", {number}{from} }}`"))
}

/// How frames are found. Of length fields that lead to the same frames the one is taken that is likeliest by its place and width.
fn likeliest(found: &Frame, guesses: &[Guess]) -> Frame {
    let length = guesses.iter().find_map(|guess| match guess.meaning {
        Meaning::Length(length) if guess.holds == guess.of => Some(length),
        _ => None,
    });
    match (found, length) {
        (Frame::Length(_), Some(length)) => Frame::Length(length),
        (Frame::Sync { word, size }, _) => {
            // What changes later is no part of the word.
            let fields = guesses.iter().filter_map(Guess::number).map(|number| number.at as usize);
            let end = fields.min().unwrap_or(word.len()).clamp(2, word.len().max(2));
            Frame::Sync { word: word[..end.min(word.len())].to_vec(), size: size.clone() }
        }
        _ => found.clone(),
    }
}
