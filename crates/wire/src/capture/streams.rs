//! The bytes that a TCP connection carried, in order: enough for captures that miss a packet now and then.

use crate::internet::InternetError;
use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, HashMap};

/// Bytes of a header without options.
const TCP_BYTES: usize = 20;
/// Directions of connections that are followed.
const MOST_STREAMS: usize = 1024;
/// Bytes of one direction that wait for others before them. Then those are taken for lost.
const MOST_WAITING_BYTES: usize = 16 << 20;
/// Segments of one direction that wait so.
const MOST_WAITING: usize = 16_384;

/// A TCP segment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Segment<'a> {
    /// Whence it comes.
    pub source: SocketAddr,
    /// Where it goes.
    pub destination: SocketAddr,
    /// The number of its first byte.
    pub sequence: u32,
    /// The connection begins with it.
    pub begins: bool,
    /// The connection ends with it.
    pub ends: bool,
    /// What it carries.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Looks at what an IP packet carries.
    ///
    /// # Errors
    /// Where it ends within its header.
    pub(super) fn parse(source: IpAddr, destination: IpAddr, bytes: &'a [u8]) -> Result<Self, InternetError> {
        let header = bytes.first_chunk::<TCP_BYTES>().ok_or(InternetError::Short)?;
        let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let header_bytes = usize::from(header[12] >> 4) * 4;
        if header_bytes < TCP_BYTES {
            return Err(InternetError::HeaderLength);
        }
        let payload = bytes.get(header_bytes..).ok_or(InternetError::HeaderLength)?;
        const FIN: u8 = 1;
        const SYN: u8 = 2;
        const RST: u8 = 4;
        Ok(Self {
            source: SocketAddr::new(source, number(0)),
            destination: SocketAddr::new(destination, number(2)),
            sequence: u32::from(number(4)) << 16 | u32::from(number(6)),
            begins: header[13] & SYN != 0,
            ends: header[13] & (FIN | RST) != 0,
            payload,
        })
    }
}

/// A stretch of a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamPiece {
    /// Bytes before these that the capture does not have.
    pub lost_bytes: u64,
    /// A new connection begins with these bytes.
    pub begins: bool,
    /// How many they are.
    pub bytes: usize,
}

/// What follows in a stream, stretch by stretch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stretches {
    bytes: Vec<u8>,
    pieces: Vec<StreamPiece>,
}

impl Stretches {
    /// Forgets all of it.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
    }

    /// Each stretch with its bytes. One without bytes is the begin of a connection.
    pub fn iter(&self) -> impl Iterator<Item = (StreamPiece, &[u8])> {
        let mut at = 0;
        self.pieces.iter().map(move |piece| {
            let from = at;
            at += piece.bytes;
            (*piece, &self.bytes[from..at])
        })
    }

    fn push(&mut self, lost_bytes: u64, begins: bool, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        match self.pieces.last_mut() {
            Some(last) if lost_bytes == 0 && !begins => last.bytes += bytes.len(),
            _ => self.pieces.push(StreamPiece { lost_bytes, begins, bytes: bytes.len() }),
        }
    }
}

/// Every direction of every connection.
#[derive(Debug, Default)]
pub struct Streams {
    streams: HashMap<(SocketAddr, SocketAddr), Stream>,
    /// How many there were before.
    number: u64,
}

#[derive(Debug, Default)]
struct Stream {
    /// Which one it is, in the order in which they began.
    number: u64,
    /// The number of the next byte, counted on beyond 32 bits.
    next: u64,
    /// Segments that came too soon, by the number of their first byte.
    waiting: BTreeMap<u64, Vec<u8>>,
    waiting_bytes: usize,
}

impl Streams {
    /// No connection was seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a segment, and appends to `out` what follows in its stream: nothing, where bytes before it are missing.
    /// False where there are more connections than are followed.
    pub fn accept(&mut self, segment: &Segment<'_>, out: &mut Stretches) -> bool {
        let whose = (segment.source, segment.destination);
        let known = self.streams.get_mut(&whose);
        let is_new = match known {
            // The same one comes again when the other side did not hear of it.
            Some(stream) => segment.begins && !stream.begins_with(segment),
            None => true,
        };
        if is_new {
            if let Some(mut before) = self.streams.remove(&whose) {
                before.give_up(out);
            }
            if self.streams.len() >= MOST_STREAMS {
                return false;
            }
            self.streams.insert(whose, Stream::new(segment, self.number));
            self.number += 1;
            out.push(0, true, &[]);
        }
        let Some(stream) = self.streams.get_mut(&whose) else { return false };
        stream.accept(segment, out);
        if segment.ends && stream.waiting.is_empty() {
            self.streams.remove(&whose);
        }
        true
    }

    /// No more segments come: gives what still waits, of each stream what follows behind the bytes that are missing.
    pub fn end(&mut self, give: &mut dyn FnMut((SocketAddr, SocketAddr), &Stretches)) {
        let mut left: Vec<_> = self.streams.drain().filter(|(_, stream)| !stream.waiting.is_empty()).collect();
        left.sort_by_key(|(_, stream)| stream.number);
        for (whose, mut stream) in left {
            let mut out = Stretches::default();
            stream.give_up(&mut out);
            give(whose, &out);
        }
    }
}

impl Stream {
    fn new(segment: &Segment<'_>, number: u64) -> Self {
        // The first byte of a connection has the number behind that of its first segment; room is left for such as came before it.
        let next = (1 << 32) + u64::from(segment.sequence) + u64::from(segment.begins);
        Self { number, next, ..Self::default() }
    }

    /// The number of a byte, counted on beyond 32 bits: the nearest to what comes next.
    const fn place(&self, sequence: u32) -> u64 {
        self.next.wrapping_add_signed(sequence.wrapping_sub(self.next as u32) as i32 as i64)
    }

    /// Whether this is the first segment of this stream once more.
    const fn begins_with(&self, segment: &Segment<'_>) -> bool {
        self.place(segment.sequence.wrapping_add(1)) == self.next
    }

    /// Appends what follows; what comes too soon waits, until it is so much that what is before it is taken for lost.
    fn accept(&mut self, segment: &Segment<'_>, out: &mut Stretches) {
        let place = self.place(segment.sequence.wrapping_add(segment.begins.into()));
        if place <= self.next {
            self.append(place, segment.payload, 0, out);
        } else if !segment.payload.is_empty() {
            let before = self.waiting.get(&place).map_or(0, Vec::len);
            if before < segment.payload.len() {
                self.waiting.insert(place, segment.payload.to_vec());
                self.waiting_bytes += segment.payload.len() - before;
            }
        }
        self.append_waiting(out);
        while self.waiting_bytes > MOST_WAITING_BYTES || self.waiting.len() > MOST_WAITING {
            self.pass_over(out);
        }
    }

    /// Takes what is missing for lost, and appends what follows.
    fn pass_over(&mut self, out: &mut Stretches) {
        let Some((place, payload)) = self.waiting.pop_first() else { return };
        let lost = place - self.next;
        self.next = place;
        self.waiting_bytes -= payload.len();
        self.append(place, &payload, lost, out);
        self.append_waiting(out);
    }

    fn give_up(&mut self, out: &mut Stretches) {
        while !self.waiting.is_empty() {
            self.pass_over(out);
        }
    }

    /// Appends what of a segment was not there yet; none of its bytes lie behind the next one.
    fn append(&mut self, place: u64, payload: &[u8], lost: u64, out: &mut Stretches) {
        let new = payload.get((self.next - place) as usize..).unwrap_or_default();
        if !new.is_empty() {
            out.push(lost, false, new);
            self.next += new.len() as u64;
        }
    }

    fn append_waiting(&mut self, out: &mut Stretches) {
        while let Some(entry) = self.waiting.first_entry()
            && *entry.key() <= self.next
        {
            let (place, payload) = entry.remove_entry();
            self.waiting_bytes -= payload.len();
            self.append(place, &payload, 0, out);
        }
    }
}
