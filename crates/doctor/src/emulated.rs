//! Emulated front ends at full speed: valid S-LINK64 fragments in FEROL blocks over TCP.
//!
//! Each stream has one buffer of many fragments that is sent repeatedly; between two sends only the event numbers, and
//! with them the checksums, are patched in place. The receiver gets what real front ends would send: benches use this
//! for a bare receiver and for ours, so that both get the same. Where payloads are *written*, each event has a
//! different payload, written word by word, and its checksum is computed over all of it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ropewalk_kernels::Crc16;
use ropewalk_terms::SourceId;
use ropewalk_wire::fed::{self, Header, Patch, Trailer};
use ropewalk_wire::ferol;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, sockopt};

/// The configuration of the senders.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SlinkConfig {
    /// TCP streams, one source each.
    pub streams: usize,
    /// The source id of the first stream; the others follow.
    pub first_source: SourceId,
    /// Bytes of a whole FED fragment, header and trailer included: a multiple of 8, at least 16.
    pub fragment_bytes: usize,
    /// Whether every payload is written for every event; otherwise the payloads of a buffer repeat.
    pub written: bool,
    /// Fragments per system call.
    pub fragments_per_send: usize,
    /// The number of events of all streams; `None` sends until the caller stops.
    pub events: Option<u32>,
}

impl Default for SlinkConfig {
    /// 16 streams of 2 KiB fragments, 64 KiB a send.
    fn default() -> Self {
        Self {
            streams: 16,
            first_source: SourceId(0),
            fragment_bytes: 2048,
            written: false,
            fragments_per_send: 32,
            events: None,
        }
    }
}

/// The fragments of one source, buffer by buffer.
pub struct SlinkStream {
    source: SourceId,
    fragment_bytes: usize,
    /// Bytes of a fragment on the wire, including the headers of its blocks.
    wire_bytes: usize,
    /// Fragments per buffer.
    fragments: usize,
    buffer: Vec<u8>,
    patch: Patch,
    is_written: bool,
    /// The event number of the buffer's first fragment in the next send, counted from 1.
    next_event: u32,
}

impl SlinkStream {
    /// A stream of fragments of `fragment_bytes`, with `fragments` per buffer and differing payloads.
    pub fn new(source: SourceId, fragment_bytes: usize, fragments: usize) -> Self {
        let fragment_bytes = (fragment_bytes / 8 * 8).max(fed::MIN_BYTES);
        let (mut buffer, mut fragment, mut payload) = (Vec::new(), Vec::new(), Vec::new());
        let fragments = fragments.max(1);
        let mut state = 0x9E37_79B9_7F4A_7C15 ^ u64::from(source.0);
        for _ in 0..fragments {
            payload.clear();
            while payload.len() < fragment_bytes - fed::MIN_BYTES {
                // A linear congruential generator is random enough to make every payload different.
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                payload.extend_from_slice(&state.to_le_bytes());
            }
            fragment.clear();
            let encoded = fed::encode(Header::new(source, 0, 0), &payload, Trailer::new(), &mut fragment);
            encoded.expect("whole words, and fewer than a trailer can count");
            ferol::encode_fragment(&fragment, source, 0, &mut buffer);
        }
        let wire_bytes = buffer.len() / fragments;
        let patch = Patch::for_length(fragment_bytes);
        Self { source, fragment_bytes, wire_bytes, fragments, buffer, patch, is_written: false, next_event: 1 }
    }

    /// The same with a different payload for each event.
    pub fn written(self) -> Self {
        Self { is_written: true, ..self }
    }

    /// Bytes of a fragment as the builder counts them.
    pub fn fragment_bytes(&self) -> usize {
        self.fragment_bytes
    }

    /// Bytes of a fragment as the socket counts them.
    pub fn wire_bytes(&self) -> usize {
        self.wire_bytes
    }

    /// The event number of the next fragment.
    pub fn next_event(&self) -> u32 {
        self.next_event
    }

    /// The next fragments, at most a buffer full and none after event `last`; empty when all were sent.
    pub fn next_fragments(&mut self, last: u32) -> &[u8] {
        let count = self.fragments.min((last + 1).saturating_sub(self.next_event) as usize);
        for (wire, event) in self.buffer.chunks_exact_mut(self.wire_bytes).zip(self.next_event..).take(count) {
            if self.is_written {
                write(wire, self.fragment_bytes, self.source, event);
            } else {
                number(wire, &self.patch, self.source, event);
            }
        }
        self.next_event += count as u32;
        &self.buffer[..count * self.wire_bytes]
    }
}

/// Writes an event's fragment over one of the same length: every word of its payload contains source and event number.
fn write(wire: &mut [u8], bytes: usize, source: SourceId, event: u32) {
    let level1_id = event & Header::MAX_LEVEL1_ID;
    let header = Header::new(source, level1_id, bunch_crossing(event));
    let trailer = Trailer::new().with_length_in_words((bytes / fed::WORD_BYTES) as u32).with_crc(0);
    let base = u64::from(source.0) << 48 ^ u64::from(event) << 16;
    let (mut words, mut crc) = (0.., Crc16::new());
    for ((block, _), place) in ferol::blocks_of(bytes, source, level1_id).zip(wire.chunks_mut(ferol::MAX_BLOCK_BYTES)) {
        let (head, payload) = place.split_at_mut(ferol::HEADER_BYTES);
        head.copy_from_slice(&block.to_bytes());
        for (word, number) in payload.as_chunks_mut::<{ fed::WORD_BYTES }>().0.iter_mut().zip(&mut words) {
            *word = (base ^ number).to_le_bytes();
        }
        if block.first {
            payload[..fed::WORD_BYTES].copy_from_slice(&header.to_bytes());
        }
        let end = payload.len() - fed::WORD_BYTES;
        if block.last {
            payload[end..].copy_from_slice(&trailer.to_bytes());
        }
        crc.update(payload);
        if block.last {
            payload[end..].copy_from_slice(&trailer.with_crc(trailer.covered(crc)).to_bytes());
        }
    }
}

/// The bunch crossing of an event: consecutive events have consecutive ones.
fn bunch_crossing(event: u32) -> u16 {
    (event % 3564) as u16
}

/// Replaces the event number of a fragment on the wire.
fn number(wire: &mut [u8], patch: &Patch, source: SourceId, event: u32) {
    let level1_id = event & Header::MAX_LEVEL1_ID;
    for block in wire.chunks_mut(ferol::MAX_BLOCK_BYTES) {
        // The event number is the low half of the second big-endian word.
        block[13..16].copy_from_slice(&level1_id.to_be_bytes()[1..]);
    }
    let end = wire.len();
    let (front, trailer) = wire.split_at_mut(end - fed::WORD_BYTES);
    let header = front[ferol::HEADER_BYTES..].first_chunk_mut::<8>();
    // A fragment of two words has both in its only block, header first.
    let (Some(header), Some(trailer)) = (header, trailer.first_chunk_mut::<8>()) else { return };
    patch.apply(header, trailer, Header::new(source, level1_id, bunch_crossing(event)));
}

/// The amount of data sent.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Sent {
    /// The number of events of which every stream has sent a fragment.
    pub events: u32,
    /// Bytes of FED fragments, of all streams.
    pub fragment_bytes: u64,
}

struct Connection {
    socket: OwnedFd,
    stream: SlinkStream,
    /// Where the next write begins in the stream's buffer, and where the buffer ends.
    place: usize,
    end: usize,
}

/// Emulated front ends: all streams of one thread.
pub struct SlinkSender {
    connections: Vec<Connection>,
    config: SlinkConfig,
}

impl SlinkSender {
    /// Connects every stream, round robin over the addresses. Connecting blocks, sending does not.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn connect(addresses: &[SocketAddr], config: SlinkConfig) -> io::Result<Self> {
        let connections = (0..config.streams).zip(addresses.iter().cycle()).map(|(number, address)| {
            let source = SourceId(config.first_source.0 + number as u32);
            let stream = SlinkStream::new(source, config.fragment_bytes, config.fragments_per_send);
            let stream = if config.written { stream.written() } else { stream };
            Ok(Connection { socket: connect(*address)?, stream, place: 0, end: 0 })
        });
        Ok(Self { connections: connections.collect::<io::Result<_>>()?, config })
    }

    /// Sends until `stop` is set or the configured events are sent, then brings every stream to the same event and
    /// closes it in order. The receiver's back-pressure sets the pace.
    ///
    /// # Errors
    /// The error of the operating system, for example if the receiver is gone.
    pub fn run(self, stop: &AtomicBool) -> io::Result<Sent> {
        self.run_counted(stop, &AtomicU64::new(0))
    }

    /// Like [`SlinkSender::run`], and stores the number of fragments that sockets have accepted, for another thread.
    ///
    /// # Errors
    /// As [`SlinkSender::run`].
    pub fn run_counted(mut self, stop: &AtomicBool, fragments: &AtomicU64) -> io::Result<Sent> {
        // One below the maximum, so that an event after the last can be named.
        let mut last = self.config.events.unwrap_or(u32::MAX - 1);
        while self.send_round(last)? {
            let sent = self.connections.iter().map(|connection| u64::from(connection.stream.next_event - 1));
            fragments.store(sent.sum(), Ordering::Relaxed);
            if last == u32::MAX - 1 && stop.load(Ordering::Relaxed) {
                last = self.connections.iter().map(|connection| connection.stream.next_event - 1).max().unwrap_or(0);
            }
        }
        for connection in &self.connections {
            rustix::net::shutdown(&connection.socket, Shutdown::Write)?;
        }
        let fragment_bytes = self
            .connections
            .iter()
            .map(|connection| u64::from(connection.stream.next_event - 1) * connection.stream.fragment_bytes as u64);
        let events = self.connections.iter().map(|connection| connection.stream.next_event - 1).min().unwrap_or(0);
        Ok(Sent { events, fragment_bytes: fragment_bytes.sum() })
    }

    /// Sends to every socket what it accepts; returns false when everything up to event `last` is sent.
    fn send_round(&mut self, last: u32) -> io::Result<bool> {
        let (mut unfinished, mut sent) = (false, 0);
        for connection in &mut self.connections {
            if connection.place == connection.end {
                connection.place = 0;
                connection.end = connection.stream.next_fragments(last).len();
            }
            if connection.end == 0 {
                continue;
            }
            unfinished = true;
            let bytes = &connection.stream.buffer[connection.place..connection.end];
            match rustix::net::send(&connection.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(taken) => {
                    connection.place += taken;
                    sent += taken;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if unfinished && sent == 0 {
            self.wait_for_room()?;
        }
        Ok(unfinished)
    }

    /// Sleeps until a socket with unsent data accepts more.
    fn wait_for_room(&self) -> io::Result<()> {
        let unfinished = self.connections.iter().filter(|connection| connection.place < connection.end);
        let mut sockets: Vec<PollFd<'_>> =
            unfinished.map(|connection| PollFd::new(&connection.socket, PollFlags::OUT)).collect();
        // Bounded, so that a stop is noticed even if the receiver stalls.
        let a_moment = Timespec { tv_sec: 0, tv_nsec: Duration::from_millis(20).as_nanos() as i64 };
        match rustix::event::poll(&mut sockets, Some(&a_moment)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Connects a stream; blocks until the other side has accepted it.
///
/// # Errors
/// The error of the operating system.
pub fn connect(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_congestion_control(&socket);
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

/// Sets cubic if the kernel has it: bbr, a common default, is four times slower over loopback.
pub fn set_congestion_control(socket: &impl AsFd) {
    // Without it the figure is lower, but still valid.
    let _ = sockopt::set_tcp_congestion(socket, "cubic");
}

#[cfg(test)]
mod tests {
    use ropewalk_wire::fed::Fragment;
    use ropewalk_wire::ferol::{Assembly, Block};

    use super::*;

    /// Reassembles every fragment of these bytes.
    fn fragments(mut wire: &[u8]) -> Vec<Vec<u8>> {
        let (mut assembly, mut fragments, mut fragment) = (Assembly::new(1 << 20), Vec::new(), Vec::new());
        while let Some((block, rest)) = Block::split_first(wire).expect("blocks back to back") {
            let accepted = assembly.accept(&block.header);
            assert_eq!(accepted.gives_up, None);
            fragment.extend_from_slice(block.payload);
            if accepted.completes.is_some() {
                fragments.push(core::mem::take(&mut fragment));
            }
            wire = rest;
        }
        assert!(wire.is_empty() && fragment.is_empty());
        fragments
    }

    #[test]
    fn every_fragment_has_the_right_number_and_checksum() {
        for (bytes, written) in [16, 24, 2048, 4080, 4088, 20_000].into_iter().flat_map(|it| [(it, false), (it, true)])
        {
            let stream = SlinkStream::new(SourceId(7), bytes, 5);
            let mut stream = if written { stream.written() } else { stream };
            let mut event = 0;
            for _ in 0..3 {
                for fragment in fragments(stream.next_fragments(13)) {
                    event += 1;
                    let view = Fragment::parse(&fragment).expect("a whole fragment");
                    assert_eq!((fragment.len(), view.header().level1_id()), (bytes, event));
                    assert_eq!((view.check_source(SourceId(7)), view.check_crc()), (Ok(()), Ok(())));
                }
            }
            assert_eq!(event, 13, "none behind the last");
            assert!(stream.next_fragments(13).is_empty());
        }
    }
}
