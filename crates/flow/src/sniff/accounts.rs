//! Who sends, how much, and how much of it is looked at.

use super::frames::Frames;
use core::net::SocketAddr;
use core::ops::Range;
use ropewalk_terms::Instant;

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

/// Who sends, and where to.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Peer {
    /// The port that it sends to.
    pub port: u16,
    /// How.
    pub transport: Transport,
    /// Where it sends from.
    pub from: SocketAddr,
}

/// How much is looked at. Memory is what they come to, whatever is sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Peers that are looked at; of further ones the packets are counted.
    pub peers: usize,
    /// Frames of a peer.
    pub frames: usize,
    /// Bytes of a frame.
    pub head_bytes: usize,
    /// Bytes of a stream, in which frames are looked for.
    pub stream_bytes: usize,
}

impl Default for Limits {
    /// 32 peers with 1,024 frames of 192 bytes, or 512 KiB of a stream: 16 MiB at most.
    fn default() -> Self {
        Self { peers: 32, frames: 1024, head_bytes: 192, stream_bytes: 512 << 10 }
    }
}

/// First packets that are kept to be shown.
const SHOWN_PACKETS: usize = 3;
/// Bytes of each of them.
const SHOWN_BYTES: usize = 64;

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
    pub(super) const fn new(peer: Peer, now: Instant) -> Self {
        let shown = Vec::new();
        Self { peer, packets: 0, bytes: 0, least_bytes: usize::MAX, most_bytes: 0, first: now, last: now, shown }
    }

    pub(super) fn add(&mut self, now: Instant, bytes: &[u8]) {
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

/// The beginning of a stream, and when its pieces came.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) bytes: Vec<u8>,
    /// Where what follows is no continuation of what was before.
    pub(super) breaks: Vec<usize>,
    /// For pieces of it: where each ends, and when it came.
    pub(super) marks: Vec<(usize, u64)>,
}

impl Stream {
    pub(super) fn push(&mut self, limits: &Limits, now: u64, bytes: &[u8]) {
        let room = limits.stream_bytes.saturating_sub(self.bytes.len());
        let taken = bytes.len().min(room);
        if taken == 0 {
            return;
        }
        self.bytes.extend_from_slice(&bytes[..taken]);
        // Of more pieces the ends are not known apart: a frame's time is then that of the last mark.
        if self.marks.len() < limits.frames {
            self.marks.push((self.bytes.len(), now));
        }
    }

    /// What comes next is the begin of another connection, or comes after bytes that are not there.
    pub(super) fn break_off(&mut self) {
        let end = self.bytes.len();
        if end > 0 && self.breaks.last() != Some(&end) {
            self.breaks.push(end);
        }
    }

    /// The parts within which bytes follow each other.
    pub(super) fn parts(&self) -> impl Iterator<Item = Range<usize>> {
        let ends = self.breaks.iter().copied().chain([self.bytes.len()]);
        core::iter::once(0).chain(self.breaks.iter().copied()).zip(ends).map(|(start, end)| start..end)
    }

    /// The longest of them.
    pub(super) fn longest_part(&self) -> Range<usize> {
        self.parts().max_by_key(Range::len).unwrap_or(0..0)
    }

    /// When the byte at this place came, which frames are cut at.
    pub(super) fn time(&self, place: usize) -> u64 {
        let mark = self.marks.partition_point(|(end, _)| *end <= place);
        self.marks.get(mark).or(self.marks.last()).map_or(0, |(_, at)| *at)
    }
}

/// What is kept of a peer.
#[derive(Debug)]
pub(super) enum Kept {
    Datagrams(Frames),
    Stream(Stream),
}

impl Kept {
    /// Its bytes, where they are a stream.
    pub(super) const fn stream(&self) -> Option<&Stream> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Datagrams(_) => None,
        }
    }
}
