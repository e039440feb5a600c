//! The bytes that a TCP connection carried, in order: enough for captures that miss a packet now and then.

use crate::internet::InternetError;
use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;

/// Bytes of a header without options.
const TCP_BYTES: usize = 20;
/// Directions of connections that are followed.
const MOST_STREAMS: usize = 1024;
/// Bytes of one direction that wait for others before them. Then those are taken for lost.
const MOST_WAITING_BYTES: usize = 4 << 20;
/// Segments of one direction that wait so.
const MOST_WAITING: usize = 4096;

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

/// What a segment adds to its stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamPiece {
    /// Bytes before these that the capture does not have.
    pub lost_bytes: u64,
    /// A new connection begins with these bytes.
    pub begins: bool,
    /// Bytes that were appended.
    pub bytes: usize,
}

/// Every direction of every connection.
#[derive(Debug, Default)]
pub struct Streams {
    streams: HashMap<(SocketAddr, SocketAddr), Stream>,
}

#[derive(Debug, Default)]
struct Stream {
    /// The number of the next byte.
    next: u32,
    /// Segments that came too soon.
    waiting: Vec<(u32, Vec<u8>)>,
    waiting_bytes: usize,
}

impl Streams {
    /// No connection was seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a segment, and appends to `out` what follows in its stream: nothing, where bytes before it are missing.
    /// None where there are more connections than are followed.
    pub fn accept(&mut self, segment: &Segment<'_>, out: &mut Vec<u8>) -> Option<StreamPiece> {
        let whose = (segment.source, segment.destination);
        let is_new = segment.begins || !self.streams.contains_key(&whose);
        if is_new {
            if self.streams.len() >= MOST_STREAMS && !self.streams.contains_key(&whose) {
                return None;
            }
            // The first byte of a connection has the number behind that of its first segment.
            let next = segment.sequence.wrapping_add(segment.begins.into());
            self.streams.insert(whose, Stream { next, ..Stream::default() });
        }
        let (before, stream) = (out.len(), self.streams.get_mut(&whose)?);
        let lost_bytes = stream.accept(segment, out);
        if segment.ends && stream.waiting.is_empty() {
            self.streams.remove(&whose);
        }
        Some(StreamPiece { lost_bytes, begins: is_new, bytes: out.len() - before })
    }

    /// Bytes that still wait for others before them.
    pub fn waiting_bytes(&self) -> usize {
        self.streams.values().map(|stream| stream.waiting_bytes).sum()
    }
}

impl Stream {
    /// Appends what follows, and says how many bytes before it were given up.
    fn accept(&mut self, segment: &Segment<'_>, out: &mut Vec<u8>) -> u64 {
        let sequence = segment.sequence.wrapping_add(segment.begins.into());
        if !segment.payload.is_empty() && !self.append(sequence, segment.payload, out) {
            self.waiting.push((sequence, segment.payload.to_vec()));
            self.waiting_bytes += segment.payload.len();
        }
        self.append_waiting(out);
        let mut lost = 0;
        if self.waiting_bytes > MOST_WAITING_BYTES || self.waiting.len() > MOST_WAITING {
            let nearest = self.waiting.iter().map(|(sequence, _)| sequence.wrapping_sub(self.next)).min();
            lost = u64::from(nearest.unwrap_or(0));
            self.next = self.next.wrapping_add(nearest.unwrap_or(0));
            self.append_waiting(out);
        }
        lost
    }

    /// Appends what of a segment was not there yet. False where bytes before it are missing.
    fn append(&mut self, sequence: u32, payload: &[u8], out: &mut Vec<u8>) -> bool {
        let known = self.next.wrapping_sub(sequence);
        if (known as i32) < 0 {
            return false;
        }
        let new = payload.get(known as usize..).unwrap_or_default();
        out.extend_from_slice(new);
        self.next = self.next.wrapping_add(new.len() as u32);
        true
    }

    fn append_waiting(&mut self, out: &mut Vec<u8>) {
        let next = |stream: &Self| {
            stream.waiting.iter().position(|(sequence, _)| stream.next.wrapping_sub(*sequence) as i32 >= 0)
        };
        while let Some(index) = next(self) {
            let (sequence, payload) = self.waiting.swap_remove(index);
            self.waiting_bytes -= payload.len();
            self.append(sequence, &payload, out);
        }
    }
}
