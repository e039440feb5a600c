//! Analyses unknown frames: which of their bytes are counters, clocks, lengths or constants.
//!
//! ```text
//! datagrams -----------------------------------------> frames of each peer --> counters  up by one per frame, per event
//! streams --> cut: length fields that lead from       (their first bytes,      clocks    linear in arrival time
//!             frame to frame, sync words, fixed size   when they came)         lengths   field = frame's length
//!                                                                              constants, and what tells peers apart
//!                                    draft: a Layout of all that, which compiles to a plan
//! ```
//! Every result is a guess with its evidence: in how many of how many frames it holds. If another reading of a draft
//! fits as well, or too few frames were seen, a [`Doubt`] says so. A draft without doubts is right for all frames seen.
//! The analysis uses the first frames of each peer, as many as [`Limits`] allow, and for clocks as many of the last
//! ones. Accounts of rates and sizes cover all input. Peers that send to one place are assumed to be boards of one
//! kind.

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

/// How bytes arrive.
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
    /// Whether frame boundaries have to be found.
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::Tcp | Self::File)
    }
}

/// A sender and its destination.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Peer {
    /// The destination port.
    pub port: u16,
    /// How its bytes arrive.
    pub transport: Transport,
    /// The sender's address.
    pub from: SocketAddr,
}

/// Limits of the analysis. They bound the memory for any input.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most peers that are analysed; for further ones packets are counted.
    pub peers: usize,
    /// Number of first frames kept per peer, and of last ones.
    pub frames: usize,
    /// Number of bytes kept per frame.
    pub head_bytes: usize,
    /// Number of first bytes of a stream in which frames are searched; half as many last ones are kept.
    pub stream_bytes: usize,
}

impl Default for Limits {
    /// 32 peers with 2,048 frames of 192 bytes, or 768 KiB of a stream: 24 MiB at most.
    fn default() -> Self {
        Self { peers: 32, frames: 1024, head_bytes: 192, stream_bytes: 512 << 10 }
    }
}

/// Number of first packets that are kept for display.
const SHOWN_PACKETS: usize = 3;
/// Number of bytes kept of each of them.
const SHOWN_BYTES: usize = 64;

/// Number of whole frames in which a checksum is searched.
const CHECKED_FRAMES: usize = 32;

/// The account of a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerAccount {
    /// The peer.
    pub peer: Peer,
    /// Number of datagrams, or of pieces of a stream as they were received.
    pub packets: u64,
    /// Bytes of all packets.
    pub bytes: u64,
    /// Bytes of the shortest packet.
    pub least_bytes: usize,
    /// Bytes of the longest packet.
    pub most_bytes: usize,
    /// When the first packet arrived.
    pub first: Instant,
    /// When the last packet arrived.
    pub last: Instant,
    /// The first packets, truncated for display.
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

    /// Returns the packets per second; 0 if all arrived at once.
    pub fn rate(&self) -> f64 {
        let seconds = self.last.since(self.first).as_secs_f64();
        if seconds > 0.0 { self.packets.saturating_sub(1) as f64 / seconds } else { 0.0 }
    }
}

/// The last frames or pieces of a peer, and their times of arrival.
#[derive(Debug, Default)]
struct Tail {
    pieces: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
}

impl Tail {
    /// Adds a piece. Drops the first ones while there are more than `most` pieces, or at least `most_bytes` bytes
    /// without the first one.
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

/// Number of pieces of a stream, per frame, whose time is kept.
const PIECES_EACH: usize = 8;

/// The beginning of a stream, and the times of arrival of its pieces.
#[derive(Debug, Default)]
struct Stream {
    bytes: Vec<u8>,
    /// The end of the stream.
    tail: Tail,
    /// Offsets at which the bytes do not continue the previous ones.
    breaks: Vec<usize>,
    /// The end of each piece, and its time of arrival.
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
        // The ends of further pieces are not kept: a frame then gets the time of the last mark.
        if self.marks.len() < most {
            self.marks.push((self.bytes.len(), now));
        }
    }

    /// Notes that the next bytes begin another connection, or follow missing bytes.
    fn break_off(&mut self) {
        self.tail.clear();
        let end = self.bytes.len();
        if end > 0 && self.breaks.last() != Some(&end) {
            self.breaks.push(end);
        }
    }

    /// Returns the ranges of contiguous bytes.
    fn parts(&self) -> impl Iterator<Item = Range<usize>> {
        let ends = self.breaks.iter().copied().chain([self.bytes.len()]);
        core::iter::once(0).chain(self.breaks.iter().copied()).zip(ends).map(|(start, end)| start..end)
    }

    /// Returns the longest of them.
    fn longest_part(&self) -> Range<usize> {
        self.parts().max_by_key(Range::len).unwrap_or(0..0)
    }

    /// Returns the end of the stream, as a stream.
    fn end(&self) -> Self {
        let mut end = Self::default();
        for (at, piece) in &self.tail.pieces {
            end.bytes.extend_from_slice(piece);
            end.marks.push((end.bytes.len(), *at));
        }
        end
    }

    /// Returns when the byte at this place arrived. Frames get the time of their first byte.
    fn time(&self, place: usize) -> u64 {
        let mark = self.marks.partition_point(|(end, _)| *end <= place);
        self.marks.get(mark).or(self.marks.last()).map_or(0, |(_, at)| *at)
    }
}

/// The kept input of a peer.
#[derive(Debug)]
enum Kept {
    /// The first datagrams, and the last ones.
    Datagrams(Frames, Tail),
    Stream(Stream),
}

impl Kept {
    /// Returns its bytes if they are a stream.
    const fn stream(&self) -> Option<&Stream> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Datagrams(..) => None,
        }
    }
}

/// Analyses the input from peers.
#[derive(Debug)]
pub struct Sniffer {
    limits: Limits,
    heard: Vec<(PeerAccount, Kept)>,
    unheard: u64,
}

impl Sniffer {
    /// Creates a sniffer without input.
    pub const fn new(limits: Limits) -> Self {
        Self { limits, heard: Vec::new(), unheard: 0 }
    }

    /// Adds a datagram, or the next bytes of a stream.
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

    /// Notes that the next bytes of this peer's stream do not continue it: they are from another connection, or bytes
    /// are missing.
    pub fn break_off(&mut self, peer: Peer) {
        let known = self.heard.iter_mut().find(|(account, _)| account.peer == peer);
        if let Some((_, Kept::Stream(stream))) = known {
            stream.break_off();
        }
    }

    /// Returns the number of packets so far.
    pub fn packets(&self) -> u64 {
        self.heard.iter().map(|(account, _)| account.packets).sum::<u64>() + self.unheard
    }

    /// Returns the findings for each destination. Connections with different frames are reported separately.
    pub fn findings(&self) -> Findings {
        let mut order: Vec<&(PeerAccount, Kept)> = self.heard.iter().collect();
        order.sort_by_key(|(account, _)| account.peer);
        let same = |one: &&(PeerAccount, Kept), other: &&(PeerAccount, Kept)| {
            (one.0.peer.port, one.0.peer.transport) == (other.0.peer.port, other.0.peer.transport)
        };
        let groups = order.chunk_by(same).flat_map(|peers| self.groups(peers)).collect();
        Findings { groups, unheard: self.unheard }
    }

    /// Returns the groups of peers that send to one destination: those whose frames are found in the same way.
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
            // All frames have the same size, so this one.
            let frames = table.len() as u64;
            guesses.push(Guess { meaning: Meaning::Length(*length), holds: frames, of: frames });
        }
        guesses.extend(checksum);
        let counters = fields::find_counters(&table, &guesses);
        let steps = steps::find_steps(&table, &[&guesses[..], &counters].concat());
        let clocks = clocks::find_clocks(&table, &[&guesses[..], &counters, &steps].concat());
        guesses.extend(clocks.guesses);
        // The end of a clock and its byte order reveal more about the counters beside it.
        guesses.extend(fields::find_counters(&table, &guesses));
        steps::unmask(&table, &mut guesses);
        guesses.extend(steps::find_steps(&table, &guesses));
        guesses.extend(fields::find_slow(&table, &guesses));
        guesses.extend(fields::find_constants(&table, &guesses));
        let framing = cutting.map(|cutting| likeliest(&cutting.frame, &guesses));
        let ranges: Vec<_> =
            cutting.iter().flat_map(|cutting| streams.iter().filter_map(|one| cutting.frames_of(one))).collect();
        let begins_within = ranges.iter().any(|ranges| ranges.first().is_some_and(|first| first.start > 0));
        // Frames with right checksums are the right frames.
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

    /// Cuts the first frames of each stream, and its last ones.
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
            // Any bytes can be cut into frames of a fixed size.
            let is_sure = !matches!(cutting.frame, Frame::Fixed { .. });
            let ranges = cutting.frames_of(&end).filter(|_| is_sure).unwrap_or_default();
            let skipped = ranges.len().saturating_sub(most);
            (first, cut(&end, &mut ranges.into_iter().skip(skipped)))
        });
        both.collect()
    }

    /// Returns the last datagrams as frames.
    fn last(&self, tail: &Tail) -> Frames {
        let mut frames = Frames::new(self.limits.head_bytes);
        tail.pieces.iter().for_each(|(at, head)| frames.push(*at, head));
        frames
    }
}

/// Returns the checksum of these whole frames as a configuration writes it: `checksum = { kind = "crc32", at = -4, type
/// = "u32le" }`.
pub fn checksum_of(frames: &[&[u8]]) -> Option<String> {
    let Meaning::Checksum(checksum) = checksums::find_checksum(frames)?.meaning else { return None };
    let from = if checksum.from == 0 { String::new() } else { format!(", from = {}", checksum.from) };
    let (kind, number) = (checksum.kind.name(), findings::Key(&checksum.number));
    Some(format!("`checksum = {{ kind = \"{kind}\", {number}{from} }}`"))
}

/// Returns the framing. Of length fields that lead to the same frames it takes the likeliest one by place and width.
fn likeliest(found: &Frame, guesses: &[Guess]) -> Frame {
    let length = guesses.iter().find_map(|guess| match guess.meaning {
        Meaning::Length(length) if guess.holds == guess.of => Some(length),
        _ => None,
    });
    match (found, length) {
        (Frame::Length(_), Some(length)) => Frame::Length(length),
        (Frame::Sync { word, size }, _) => {
            // Bytes that change later are not part of the word.
            let fields = guesses.iter().filter_map(Guess::number).map(|number| number.at as usize);
            let end = fields.min().unwrap_or(word.len()).clamp(2, word.len().max(2));
            Frame::Sync { word: word[..end.min(word.len())].to_vec(), size: size.clone() }
        }
        _ => found.clone(),
    }
}
