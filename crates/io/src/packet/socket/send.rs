//! Sends to a socket: one packet, a queue, or a train at a time.
#![allow(unsafe_code)]

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::Instant;
use rustix::io::Errno;

use super::{Control, bound_v4, empty_header, set_send_buffer, to_kernel};
use crate::packet::{Fill, Flow, MOST_BATCH, PacketError, Refusal, SendConfig, SendCounters, SendMechanism, Sender};

/// Maximum number of pieces that one system call gathers into a packet (`UIO_MAXIOV`).
const MOST_PIECES: usize = 1024;
/// Maximum number of bytes that UDP and IP carry.
const LARGEST_UDP: usize = 65_507;
const LARGEST_IP: usize = 65_515;
/// Maximum number of packets of a train, in every kernel that has trains (`UDP_MAX_SEGMENTS`).
const MOST_OF_TRAIN: usize = 64;

/// A queued packet.
#[derive(Copy, Clone)]
struct Queued {
    to: SocketAddrV4,
    bytes: usize,
    pieces: usize,
}

/// Sends a flow through a socket.
pub struct SocketSender {
    socket: Arc<OwnedFd>,
    address: SocketAddrV4,
    config: SendConfig,
    queue: Vec<Queued>,
    /// The pieces of all queued packets, in order.
    pieces: Vec<Slice>,
    /// For packets that are written here, and for packets with too many pieces.
    staging: Staging,
    /// The arguments of a system call, made again for each.
    headers: Vec<libc::mmsghdr>,
    addresses: Vec<libc::sockaddr_in>,
    gathered: Vec<libc::iovec>,
    controls: Vec<Control>,
    /// Number of packets of each message.
    trains: Vec<usize>,
    /// Longer packets are not coupled, because the output path has refused such a train.
    largest_of_train: usize,
    counters: SendCounters,
}

// SAFETY: the pointers in a system call's arguments are set again before each call, to memory that this value owns.
unsafe impl Send for SocketSender {}

impl SocketSender {
    /// Opens a socket and binds it. `staging` is for packets that are written here ([`Sender::send_with`]).
    ///
    /// # Errors
    /// Impossible settings, an address that is in use or not this machine's, or no right to open a raw socket.
    pub fn new(config: SendConfig, staging: Staging) -> Result<Self, PacketError> {
        let (socket, address) = bound_v4(config.flow, config.address, false)?;
        Self::over(Arc::new(socket), address, config, staging)
    }

    pub(super) fn over(
        socket: Arc<OwnedFd>,
        address: SocketAddrV4,
        config: SendConfig,
        staging: Staging,
    ) -> Result<Self, PacketError> {
        if !(1..=MOST_BATCH).contains(&config.batch) {
            return Err(PacketError::Config { what: "a batch has 1 to 1024 packets" });
        }
        if config.mechanism == SendMechanism::UdpGso && config.flow != Flow::Udp {
            return Err(PacketError::Config { what: "the kernel cuts UDP packets alone; use sendmmsg for raw IP" });
        }
        let refused = |source: io::Error| PacketError::of("cannot set the send buffer", address, source);
        set_send_buffer(&socket, config.socket_buffer).map_err(refused)?;
        let (batch, pieces) = (config.batch, config.batch.saturating_mul(16).max(MOST_PIECES));
        Ok(Self {
            socket,
            address,
            config,
            queue: Vec::with_capacity(batch),
            pieces: Vec::with_capacity(pieces),
            staging,
            headers: Vec::with_capacity(batch),
            addresses: Vec::with_capacity(batch),
            gathered: Vec::with_capacity(pieces),
            controls: Vec::with_capacity(batch),
            trains: Vec::with_capacity(batch),
            largest_of_train: LARGEST_UDP,
            counters: SendCounters::default(),
        })
    }

    /// Number of packets of the queue, from `first` on, that pass through the kernel as one.
    fn train(&self, first: usize) -> usize {
        let head = self.queue[first];
        if self.config.mechanism != SendMechanism::UdpGso || head.bytes > self.largest_of_train {
            return 1;
        }
        let (mut bytes, mut pieces) = (0, 0);
        let mut count = 0;
        for packet in self.queue[first..].iter().take(MOST_OF_TRAIN) {
            (bytes, pieces) = (bytes + packet.bytes, pieces + packet.pieces);
            let fits = packet.to == head.to && packet.bytes <= head.bytes && packet.bytes > 0;
            if count > 0 && (!fits || bytes > LARGEST_UDP || pieces > MOST_PIECES) {
                break;
            }
            count += 1;
            if packet.bytes < head.bytes {
                break;
            }
        }
        count
    }

    /// Prepares the arguments for the kernel: a message for each packet or train.
    fn gather(&mut self) {
        self.headers.clear();
        self.addresses.clear();
        self.gathered.clear();
        self.controls.clear();
        self.trains.clear();
        let piece = |slice: &Slice| libc::iovec { iov_base: slice.as_ptr().cast_mut().cast(), iov_len: slice.len() };
        self.gathered.extend(self.pieces.iter().map(piece));
        let (mut first, mut first_piece) = (0, 0);
        while first < self.queue.len() {
            let (count, head) = (self.train(first), self.queue[first]);
            let pieces = self.queue[first..first + count].iter().map(|packet| packet.pieces).sum();
            let mut header = empty_header();
            self.addresses.push(to_kernel(head.to));
            self.controls.push(Control::EMPTY);
            header.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            header.msg_iovlen = pieces;
            // Index of its first piece, until nothing grows any more.
            header.msg_iov = core::ptr::without_provenance_mut(first_piece);
            if count > 1
                && let Some(control) = self.controls.last_mut()
            {
                header.msg_controllen = control.set_segment(head.bytes as u16);
            }
            self.headers.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
            self.trains.push(count);
            (first, first_piece) = (first + count, first_piece + pieces);
        }
        self.link();
    }

    /// Points the messages at their parts.
    fn link(&mut self) {
        let parts = self.addresses.iter_mut().zip(&mut self.controls);
        for (message, (address, control)) in self.headers.iter_mut().zip(parts) {
            let header = &mut message.msg_hdr;
            header.msg_name = core::ptr::from_mut(address).cast();
            header.msg_iov = self.gathered.as_mut_ptr().wrapping_add(header.msg_iov.addr());
            if header.msg_controllen > 0 {
                header.msg_control = control.address();
            }
        }
    }

    /// Passes the messages from `first` on to the kernel, and returns how many it took.
    fn transmit(&mut self, first: usize) -> Result<usize, Errno> {
        let (descriptor, flags) = (self.socket.as_raw_fd(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        let headers = &mut self.headers[first..];
        self.counters.calls += 1;
        // SAFETY: the messages and their pointers were set by `link`; they are only read, except for their lengths.
        let sent = unsafe {
            if self.config.mechanism == SendMechanism::SendTo {
                libc::sendmsg(descriptor, &raw const headers[0].msg_hdr, flags).signum().min(0) + 1
            } else {
                libc::sendmmsg(descriptor, headers.as_mut_ptr(), headers.len() as u32, flags) as isize
            }
        };
        if sent > 0 {
            return Ok(sent as usize);
        }
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    }

    /// Sends the gathered messages until the kernel takes no more. Returns how many packets of the queue are finished,
    /// and whether the rest has to be gathered again.
    fn transmit_all(&mut self) -> (usize, bool) {
        let (mut message, mut done) = (0, 0);
        while message < self.headers.len() {
            let train = self.trains[message];
            match self.transmit(message) {
                Ok(sent) => {
                    let packets: usize = self.trains[message..message + sent].iter().sum();
                    let bytes: usize = self.queue[done..done + packets].iter().map(|packet| packet.bytes).sum();
                    self.counters.packets += packets as u64;
                    self.counters.bytes += bytes as u64;
                    (message, done) = (message + sent, done + packets);
                }
                Err(Errno::AGAIN | Errno::NOBUFS) => return (done, false),
                Err(Errno::INTR) => {}
                // Packets that would have to be cut into fragments cannot leave as a train.
                Err(Errno::INVAL | Errno::MSGSIZE | Errno::IO) if train > 1 => {
                    self.largest_of_train = self.queue[done].bytes - 1;
                    return (done, true);
                }
                Err(error) => {
                    self.counters.failed += train as u64;
                    self.counters.last_error = error.raw_os_error();
                    (message, done) = (message + 1, done + train);
                }
            }
        }
        (done, false)
    }

    /// Queues the packet whose pieces were pushed.
    fn queue(&mut self, to: SocketAddrV4, bytes: usize, pieces: usize) {
        let port = if self.config.flow == Flow::Udp { to.port() } else { 0 };
        self.queue.push(Queued { to: SocketAddrV4::new(*to.ip(), port), bytes, pieces });
    }

    /// Whether a packet with `pieces` pieces has to wait.
    fn is_full(&self, pieces: usize) -> bool {
        self.queue.len() >= self.config.batch || self.pieces.len() + pieces > self.pieces.capacity()
    }
}

impl AsFd for SocketSender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Sender for SocketSender {
    fn send(&mut self, to: SocketAddrV4, payload: &mut Vec<Slice>) -> Result<(), Refusal> {
        let bytes = payload.iter().map(|slice| slice.len()).sum();
        if bytes > self.largest() {
            return Err(Refusal::TooLarge);
        }
        if payload.len() > MOST_PIECES {
            self.send_with(to, bytes, &mut |room| {
                let mut at = 0;
                for slice in payload.iter() {
                    room[at..at + slice.len()].copy_from_slice(slice);
                    at += slice.len();
                }
                at
            })?;
            payload.clear();
            return Ok(());
        }
        if self.is_full(payload.len()) {
            return Err(Refusal::Full);
        }
        self.queue(to, bytes, payload.len());
        self.pieces.append(payload);
        Ok(())
    }

    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal> {
        if most > self.largest() || most > self.staging.largest() {
            return Err(Refusal::TooLarge);
        }
        if self.is_full(1) {
            return Err(Refusal::Full);
        }
        self.staging.room(most.max(1)).ok_or(Refusal::Full)?;
        // No piece if nothing was written: an empty packet.
        let piece = self.staging.write_with(most, fill);
        self.queue(to, piece.as_ref().map_or(0, |piece| piece.len()), piece.is_some().into());
        self.pieces.extend(piece);
        Ok(())
    }

    fn flush(&mut self, _now: Instant) -> usize {
        let before = self.counters.packets;
        while !self.queue.is_empty() {
            self.gather();
            let (done, again) = self.transmit_all();
            let pieces: usize = self.queue[..done].iter().map(|packet| packet.pieces).sum();
            self.queue.drain(..done);
            self.pieces.drain(..pieces);
            if !again {
                break;
            }
        }
        (self.counters.packets - before) as usize
    }

    fn queued(&self) -> usize {
        self.queue.len()
    }

    fn largest(&self) -> usize {
        if self.config.flow == Flow::Udp { LARGEST_UDP } else { LARGEST_IP }
    }

    fn address(&self) -> SocketAddrV4 {
        self.address
    }

    fn counters(&self) -> SendCounters {
        SendCounters { bytes_copied: self.staging.copied(), ..self.counters }
    }
}
