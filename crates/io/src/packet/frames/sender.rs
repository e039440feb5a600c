//! Sends frames: writes their headers, and sends a frame from the memory in which it was written.
//!
//! [`Neighbours`] knows the card of an address, as far as the kernel has found it out. It does not ask for a card
//! itself: the first packets to an address leave through a socket, which makes the kernel ask.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::Instant;
use ropewalk_wire::internet::{
    Ethernet2Header, IpNumber, Ipv4Header, LEAST_FRAME_BYTES, UdpHeader, checksum, ether_type, ip_number,
};

use super::ring::TransmitRing;
use super::socket::Card;
use crate::packet::{Fill, Flow, PacketError, Refusal, SendConfig, SendCounters, Sender, SocketSender};

/// Settings for sending through a card's ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameConfig {
    /// The packets to send.
    pub flow: Flow,
    /// The card's address to send from; with the port (0: any free one) for UDP.
    pub address: SocketAddrV4,
    /// The name of the card.
    pub card: String,
    /// Maximum number of frames in flight.
    pub frames: usize,
    /// Whether to bypass the kernel's queues of the card, which would order packets by urgency.
    pub is_direct: bool,
    /// Whether to compute UDP checksums: they need a pass over all bytes, and Ethernet has its own checksum.
    pub checksums: bool,
}

impl FrameConfig {
    /// A flow from a card's address.
    pub fn new(flow: Flow, address: SocketAddrV4, card: &str) -> Self {
        Self { flow, address, card: card.to_owned(), frames: 256, is_direct: true, checksums: false }
    }
}

/// A ring of frames that leave through a card.
pub trait Transmit {
    /// Bytes of the largest frame.
    fn room(&self) -> usize;

    /// The next frame to fill, the same one until it is submitted; `None` while all are in flight.
    fn frame(&mut self) -> Option<&mut [u8]>;

    /// Makes a received frame, which contains this slice, the next one to be submitted. Returns its bytes, starting
    /// `before` bytes in front of the slice; all of them can be written.
    ///
    /// # Errors
    /// Returns the slice if its frame is not of this ring, has other references, or has too little room in front.
    fn adopt(&mut self, slice: Slice, before: usize) -> Result<&mut [u8], Slice> {
        let _ = before;
        Err(slice)
    }

    /// Sends the first `bytes` bytes of that frame, with the next flush.
    fn submit(&mut self, bytes: usize);

    /// Tells the kernel about submitted frames, and takes back those that have left.
    ///
    /// # Errors
    /// An error of the kernel; submitted frames stay submitted.
    fn flush(&mut self) -> io::Result<()>;

    /// Number of frames that are submitted or in flight.
    fn in_flight(&self) -> usize;

    /// Number of frames that the kernel did not send.
    fn refused(&self) -> u64;
}

/// Sends a flow through a card's ring. Packets to an address whose card the kernel does not know go through a socket,
/// which makes the kernel find it out.
pub struct FrameSender<T> {
    ring: T,
    socket: SocketSender,
    card: Card,
    config: FrameConfig,
    neighbours: Neighbours,
    /// Common headers of all frames.
    headers: Headers,
    /// Counts packets, for reassembly at the receiver.
    identification: u16,
    /// Number of frames submitted since the last flush.
    submitted: usize,
    counters: SendCounters,
}

/// Offsets of the headers of IPv4 and of UDP.
const IP: usize = Ethernet2Header::LEN;
const UDP: usize = IP + Ipv4Header::MIN_LEN;

/// The headers of a frame.
#[derive(Copy, Clone)]
struct Headers {
    bytes: [u8; UDP + UdpHeader::LEN],
    length: usize,
}

impl Headers {
    /// Headers common to all frames of a flow from an address.
    fn new(flow: Flow, from: SocketAddrV4, card: &Card) -> Self {
        let ethernet = Ethernet2Header { source: card.mac, destination: [0; 6], ether_type: ether_type::IPV4 };
        let ip = Ipv4Header {
            dont_fragment: false,
            time_to_live: 64,
            protocol: IpNumber(flow.protocol()),
            source: from.ip().octets(),
            ..Ipv4Header::default()
        };
        let udp = UdpHeader { source_port: from.port(), ..UdpHeader::default() };
        let mut bytes = [0; UDP + UdpHeader::LEN];
        bytes[..IP].copy_from_slice(&ethernet.to_bytes());
        bytes[IP..UDP].copy_from_slice(&ip.to_bytes());
        bytes[UDP..].copy_from_slice(&udp.to_bytes());
        Self { bytes, length: if flow == Flow::Udp { bytes.len() } else { UDP } }
    }

    /// Headers of the next packet, to an address of this card.
    fn to(mut self, to: SocketAddrV4, card: [u8; 6], identification: u16) -> Self {
        self.bytes[..6].copy_from_slice(&card);
        self.put(IP + 4, identification);
        self.bytes[IP + 16..UDP].copy_from_slice(&to.ip().octets());
        self.put(UDP + 2, to.port());
        self
    }

    fn put(&mut self, at: usize, number: u16) {
        self.bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
    }

    /// Writes the headers in front of a payload in its frame; returns the frame's length.
    fn write(mut self, frame: &mut [u8], payload_bytes: usize, has_checksum: bool) -> Option<usize> {
        let end = self.length + payload_bytes;
        let (headers, payload) = frame.get_mut(..end)?.split_at_mut(self.length);
        self.put(IP + 2, u16::try_from(end - IP).ok()?);
        let of_header = checksum(&[&self.bytes[IP..UDP]]);
        self.bytes[IP + 10..IP + 12].copy_from_slice(&of_header);
        if self.length > UDP {
            let length = (end - UDP) as u16;
            self.put(UDP + 4, length);
            if has_checksum {
                // The addresses, and the other covered fields of IP, are in front of the header of UDP.
                let (covered, rest) = (&self.bytes[IP + 12..], [0, ip_number::UDP.0]);
                let sum = checksum(&[covered, &rest, &length.to_be_bytes(), payload]);
                // The value 0 means that a packet has no checksum.
                let sum = if sum == [0, 0] { [0xFF; 2] } else { sum };
                self.bytes[UDP + 6..].copy_from_slice(&sum);
            }
        }
        headers.copy_from_slice(&self.bytes[..self.length]);
        // A cable carries no shorter frames, and the bytes behind are those of an earlier packet.
        if end < LEAST_FRAME_BYTES {
            frame.get_mut(end..LEAST_FRAME_BYTES)?.fill(0);
        }
        Some(end.max(LEAST_FRAME_BYTES))
    }
}

impl FrameSender<TransmitRing> {
    /// Makes a ring at a card, mapped by a packet socket. `staging` is for packets that leave through a socket.
    ///
    /// # Errors
    /// Impossible settings, no such card, an address in use, or no right to use packet sockets.
    pub fn new(config: FrameConfig, staging: Staging) -> Result<Self, PacketError> {
        if config.address.ip().is_unspecified() {
            return Err(PacketError::Config { what: "a ring needs the card's own address, not 0.0.0.0" });
        }
        let socket = SocketSender::new(SendConfig::new(config.flow, config.address), staging)?;
        let config = FrameConfig { address: socket.address(), ..config };
        let refused = |source: io::Error| PacketError::of("no such card", config.address, source);
        let card = Card::find(&config.card, &socket).map_err(refused)?;
        let ring = TransmitRing::open(&card, &config)?;
        Ok(Self::over(ring, card, config, socket))
    }
}

impl<T: Transmit> FrameSender<T> {
    /// Makes a sender over a ring of a card.
    pub(super) fn over(ring: T, card: Card, config: FrameConfig, socket: SocketSender) -> Self {
        let (neighbours, counters) = (Neighbours::new(&config.card), SendCounters::default());
        let headers = Headers::new(config.flow, config.address, &card);
        Self { ring, socket, card, config, neighbours, headers, identification: 0, submitted: 0, counters }
    }

    /// Whether packets to this address go directly through the card, because the kernel knows its card. Sends no packet
    /// to find out.
    pub fn is_near(&mut self, address: Ipv4Addr, now: Instant) -> bool {
        let is_known = |sender: &mut Self| sender.neighbours.card_of(address).is_some();
        if !is_known(self) {
            self.neighbours.refresh(now);
        }
        is_known(self)
    }

    fn headers(&mut self, to: SocketAddrV4, card: [u8; 6]) -> Headers {
        self.identification = self.identification.wrapping_add(1);
        self.headers.to(to, card, self.identification)
    }

    /// Sends a packet from the frame in which it was received, if possible.
    fn forward(&mut self, to: SocketAddrV4, card: [u8; 6], payload: &mut Vec<Slice>) -> Result<bool, Refusal> {
        if payload.len() != 1 || payload[0].len() > self.largest() {
            return Ok(false);
        }
        let Some(slice) = payload.pop() else { return Ok(false) };
        let (bytes, headers) = (slice.len(), self.headers(to, card));
        match self.ring.adopt(slice, headers.length) {
            Err(slice) => {
                payload.push(slice);
                Ok(false)
            }
            Ok(frame) => {
                let length = headers.write(frame, bytes, self.config.checksums).ok_or(Refusal::TooLarge)?;
                self.ring.submit(length);
                self.submitted += 1;
                self.counters.bytes += bytes as u64;
                Ok(true)
            }
        }
    }

    /// Fills the next frame and submits it.
    fn transmit(&mut self, to: SocketAddrV4, card: [u8; 6], most: usize, fill: Fill<'_>) -> Result<(), Refusal> {
        if most > self.largest() {
            return Err(Refusal::TooLarge);
        }
        let headers = self.headers(to, card);
        let frame = self.ring.frame().ok_or(Refusal::Full)?;
        let room = frame.get_mut(headers.length..headers.length + most).ok_or(Refusal::TooLarge)?;
        let bytes = fill(room).min(most);
        let length = headers.write(frame, bytes, self.config.checksums).ok_or(Refusal::TooLarge)?;
        self.ring.submit(length);
        self.submitted += 1;
        self.counters.bytes += bytes as u64;
        self.counters.bytes_copied += bytes as u64;
        Ok(())
    }
}

impl<T: Transmit> Sender for FrameSender<T> {
    fn send(&mut self, to: SocketAddrV4, payload: &mut Vec<Slice>) -> Result<(), Refusal> {
        let Some(card) = self.neighbours.card_of(*to.ip()) else { return self.socket.send(to, payload) };
        if self.forward(to, card, payload)? {
            return Ok(());
        }
        let bytes = payload.iter().map(|slice| slice.len()).sum();
        let gather = &mut |room: &mut [u8]| {
            let mut rest = room;
            for slice in payload.iter() {
                let (now, later) = rest.split_at_mut(slice.len());
                now.copy_from_slice(slice);
                rest = later;
            }
            bytes
        };
        self.transmit(to, card, bytes, gather)?;
        payload.clear();
        Ok(())
    }

    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal> {
        match self.neighbours.card_of(*to.ip()) {
            Some(card) => self.transmit(to, card, most, fill),
            None => self.socket.send_with(to, most, fill),
        }
    }

    fn flush(&mut self, now: Instant) -> usize {
        let through_socket = self.socket.flush(now);
        self.neighbours.refresh(now);
        if self.submitted == 0 && self.ring.in_flight() == 0 {
            return through_socket;
        }
        self.counters.calls += 1;
        if let Err(error) = self.ring.flush() {
            self.counters.last_error = error.raw_os_error().unwrap_or(0);
        }
        let sent = core::mem::take(&mut self.submitted);
        self.counters.packets += sent as u64;
        sent + through_socket
    }

    fn queued(&self) -> usize {
        self.socket.queued() + self.ring.in_flight()
    }

    fn largest(&self) -> usize {
        // Packets sent here are not cut into fragments.
        (self.card.mtu + IP).min(self.ring.room()).saturating_sub(self.headers.length)
    }

    fn address(&self) -> SocketAddrV4 {
        self.config.address
    }

    fn counters(&self) -> SendCounters {
        let (socket, own) = (self.socket.counters(), self.counters);
        let refused = self.ring.refused();
        SendCounters {
            packets: socket.packets + own.packets - refused,
            bytes: socket.bytes + own.bytes,
            calls: socket.calls + own.calls,
            bytes_copied: socket.bytes_copied + own.bytes_copied,
            failed: socket.failed + refused,
            last_error: if own.last_error == 0 { socket.last_error } else { own.last_error },
        }
    }
}

/// Interval at which the kernel's table is read again: while a neighbour's card is unknown, and, for the longer one, to
/// see whether a card has changed.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_secs(1);

/// Maximum number of addresses that are kept.
const MOST: usize = 1024;

/// The addresses to which packets are sent.
struct Neighbours {
    /// The kernel's table of the network namespace and card in which this was made.
    table: Option<File>,
    card: String,
    /// Addresses with their cards; `None` as long as the card is not known.
    known: Vec<(Ipv4Addr, Option<[u8; 6]>)>,
    due: Instant,
}

impl Neighbours {
    pub(super) fn new(card: &str) -> Self {
        let table = File::open("/proc/thread-self/net/arp").ok();
        Self { table, card: card.to_owned(), known: Vec::with_capacity(MOST), due: Instant::ZERO }
    }

    /// Returns the card of an address, if known. An unknown one is looked up later.
    #[inline]
    fn card_of(&mut self, address: Ipv4Addr) -> Option<[u8; 6]> {
        match self.known.binary_search_by_key(&address, |known| known.0) {
            Ok(place) => self.known[place].1,
            Err(place) => {
                if self.known.len() < MOST {
                    self.known.insert(place, (address, None));
                    self.due = Instant::ZERO;
                }
                None
            }
        }
    }

    /// Reads the kernel's table if the interval has passed.
    fn refresh(&mut self, now: Instant) {
        if self.known.is_empty() || now < self.due {
            return;
        }
        let Self { table, card, known, .. } = self;
        if let Some(table) = table {
            each_line(table, |line| {
                let Some((address, mac)) = entry(line, card) else { return };
                if let Ok(place) = known.binary_search_by_key(&address, |known| known.0) {
                    known[place].1 = Some(mac);
                }
            });
        }
        let all = self.known.iter().all(|known| known.1.is_some());
        self.due = now.after(if all { LATER } else { SOON });
    }
}

/// Visits a file's lines, without an allocation. Lines of more than a kilobyte are skipped, as none of the wanted ones
/// is that long.
fn each_line(file: &File, mut use_it: impl FnMut(&str)) {
    let (mut buffer, mut offset) = ([0; 1024], 0);
    while let Ok(length) = file.read_at(&mut buffer, offset) {
        let Some(end) = buffer[..length].iter().rposition(|&byte| byte == b'\n') else { return };
        core::str::from_utf8(&buffer[..end]).unwrap_or_default().lines().for_each(&mut use_it);
        offset += end as u64 + 1;
    }
}

/// Parses a line of `/proc/net/arp`: address, type, flags, card, mask, device. Flag 2 means that the card has answered.
fn entry(line: &str, card: &str) -> Option<(Ipv4Addr, [u8; 6])> {
    let mut words = line.split_ascii_whitespace();
    let address = words.next()?.parse().ok()?;
    let flags = u32::from_str_radix(words.nth(1)?.strip_prefix("0x")?, 16).ok()?;
    let mut mac = [0; 6];
    let mut bytes = words.next()?.split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(bytes.next()?, 16).ok()?;
    }
    (flags & 2 != 0 && words.nth(1)? == card).then_some((address, mac))
}

#[cfg(test)]
mod tests {

    use std::io::Write;

    use super::*;

    const TABLE: &str = "IP address       HW type     Flags       HW address            Mask     Device\n\
                         10.77.0.2        0x1         0x2         02:00:00:00:00:0a     *        veth0\n\
                         10.77.0.3        0x1         0x0         00:00:00:00:00:00     *        veth0\n\
                         10.77.0.4        0x1         0x2         02:00:00:00:00:0c     *        veth1\n";

    #[test]
    fn cards_that_have_answered_are_found() {
        let found: Vec<_> = TABLE.lines().filter_map(|line| entry(line, "veth0")).collect();
        assert_eq!(found, [(Ipv4Addr::new(10, 77, 0, 2), [2, 0, 0, 0, 0, 10])]);
    }

    #[test]
    fn an_address_is_looked_for_once_it_was_asked_for_also_in_a_long_table() {
        let path = std::env::temp_dir().join(format!("ropewalk-neighbours-{}", std::process::id()));
        let mut file = File::create_new(&path).expect("a file of the test's own");
        for _ in 0..50 {
            file.write_all(TABLE.replace("10.77.0.2", "10.77.1.2").as_bytes()).expect("room");
        }
        file.write_all(TABLE.as_bytes()).expect("room");
        let table = File::open(&path).ok();
        std::fs::remove_file(&path).expect("the test's own file");
        let mut neighbours = Neighbours { table, ..Neighbours::new("veth0") };
        let (known, silent) = (Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(10, 77, 0, 3));
        neighbours.refresh(Instant::ZERO);
        assert_eq!((neighbours.card_of(known), neighbours.card_of(silent)), (None, None));
        neighbours.refresh(Instant::ZERO);
        assert_eq!(neighbours.card_of(known), Some([2, 0, 0, 0, 0, 10]));
        assert_eq!((neighbours.card_of(silent), neighbours.due), (None, Instant::ZERO.after(SOON)));
    }
}
