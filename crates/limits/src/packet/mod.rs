//! Packets: bare receivers that only count, bare echoes, and a sender with prepared frames.
//!
//! ```text
//!  Flood: prepared frames, AF_XDP ────────► card ─┬─ socket: recvfrom, recvmmsg, GRO, raw IP ─► counted, or sent back
//!                                                 ├─ ring: TPACKET_V3 ───► counted, or copied to a PACKET_TX_RING
//!                                                 └─ xdp: AF_XDP ────────► counted, or sent back as it lies
//! ```
//! Everything is opened in the calling thread's network namespace, and needs root except for UDP.

mod program;
mod ring;
mod socket;
mod xdp;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RawProtocol, SocketFlags, SocketType};

use ring::RingLoop;
use socket::SocketLoop;
use xdp::XdpLoop;

pub use xdp::Flood;

/// Packets per batch.
const BATCH: usize = 64;
/// Bytes of buffer for each: the longest received packet.
const ROOM: usize = 2048;
/// The protocol number of packets directly over IP: RFC 3692's first one for experiments.
pub const BARE_PROTOCOL: u8 = 253;

/// How packets are received and sent back.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum BarePackets {
    /// `recvfrom` and `sendto`, one call per packet.
    RecvFrom,
    /// `recvmmsg` and `sendmmsg`.
    RecvMmsg,
    /// Packets that the kernel has coalesced, sent back coalesced.
    UdpGro,
    /// IP with its own protocol number, over `recvmmsg` and `sendmmsg`.
    RawIp,
    /// A mapped ring of blocks, and one of frames.
    Ring,
    /// AF_XDP in the driver, with copies.
    Xdp,
}

impl BarePackets {
    /// Every mechanism.
    pub const ALL: [Self; 6] = [Self::RecvFrom, Self::RecvMmsg, Self::UdpGro, Self::RawIp, Self::Ring, Self::Xdp];
}

/// The capacity of the queue for a receiver that is away.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Depth {
    /// Bytes in a socket, as the kernel counts them: several hundred per packet besides its own.
    pub socket_bytes: i32,
    /// Blocks of a ring, of 256 KiB each.
    pub blocks: usize,
    /// Frames that AF_XDP receives into, a power of two.
    pub frames: usize,
}

impl Depth {
    /// Several thousand packets.
    pub const USUAL: Self = Self { socket_bytes: 4 << 20, blocks: 64, frames: 4096 };
    /// More than 64,000 short packets: a quarter of a second at 250,000 a second.
    pub const LONG: Self = Self { socket_bytes: 64 << 20, blocks: 256, frames: 64 << 10 };
}

/// A receiver that counts the packets to an address without reading them.
pub struct BareReceiver(Loop);

enum Loop {
    Socket(Box<SocketLoop>),
    Ring(Box<RingLoop>),
    Xdp(Box<XdpLoop>),
}

impl BareReceiver {
    /// Receives packets to this address (port 0 is any free one) over this card.
    ///
    /// # Errors
    /// The kernel's error, mostly missing permission.
    pub fn open(how: BarePackets, address: SocketAddrV4, card: &str, depth: Depth) -> io::Result<Self> {
        Ok(Self(match how {
            BarePackets::Ring => Loop::Ring(Box::new(RingLoop::open(address, card, depth.blocks)?)),
            BarePackets::Xdp => Loop::Xdp(Box::new(XdpLoop::open(address, card, depth.frames)?)),
            socket => Loop::Socket(Box::new(SocketLoop::open(socket, address, depth.socket_bytes)?)),
        }))
    }

    /// The destination address for packets, with the port filled in.
    pub fn address(&self) -> SocketAddrV4 {
        match &self.0 {
            Loop::Socket(socket) => socket.address,
            Loop::Ring(ring) => ring.listener.1,
            Loop::Xdp(xdp) => xdp.listener.1,
        }
    }

    /// Receives a batch of waiting packets and returns their number. Does not wait.
    pub fn receive(&mut self) -> u64 {
        match &mut self.0 {
            Loop::Socket(socket) => socket.receive(),
            Loop::Ring(ring) => ring.receive(),
            Loop::Xdp(xdp) => xdp.receive(),
        }
    }

    /// Receives a batch and sends each packet back to its sender; returns their number.
    pub fn echo(&mut self) -> u64 {
        match &mut self.0 {
            Loop::Socket(socket) => socket.echo(),
            Loop::Ring(ring) => ring.echo(),
            Loop::Xdp(xdp) => xdp.echo(),
        }
    }

    /// Sleeps until a packet arrives, or for `at_most`.
    pub fn wait(&self, at_most: Duration) {
        let descriptor = match &self.0 {
            Loop::Socket(socket) => socket.descriptor(),
            Loop::Ring(ring) => ring.descriptor(),
            Loop::Xdp(xdp) => xdp.descriptor(),
        };
        let at_most = Timespec { tv_sec: 0, tv_nsec: at_most.subsec_nanos().into() };
        // The result does not matter: the caller looks again.
        let _ = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&at_most));
    }
}

/// Occupies an address without receiving: the kernel sees a listener, so that it does not answer with an ICMP error.
///
/// # Errors
/// The kernel's error.
pub fn deaf(address: SocketAddrV4, is_raw: bool) -> io::Result<(OwnedFd, SocketAddrV4)> {
    let (socket, address) = bound(address, is_raw)?;
    socket::refuse_all(socket.as_fd())?;
    Ok((socket, address))
}

/// A socket that requests receive timestamps: while it exists, the kernel records them for every packet of the machine.
///
/// # Errors
/// The kernel's error.
pub fn timestamped() -> io::Result<OwnedFd> {
    let (socket, _) = bound(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), false)?;
    socket::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMP, &1)?;
    Ok(socket)
}

/// A non-blocking socket at an address, for UDP or directly over IP; and the address with its port.
fn bound(address: SocketAddrV4, is_raw: bool) -> io::Result<(OwnedFd, SocketAddrV4)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (kind, protocol) = if is_raw {
        (SocketType::RAW, RawProtocol::new(BARE_PROTOCOL.into()).map(rustix::net::Protocol::from_raw))
    } else {
        (SocketType::DGRAM, None)
    };
    let socket = rustix::net::socket_with(AddressFamily::INET, kind, flags, protocol)?;
    rustix::net::bind(&socket, &address)?;
    let named = SocketAddrV4::try_from(rustix::net::getsockname(&socket)?)?;
    Ok((socket, SocketAddrV4::new(*named.ip(), if is_raw { 0 } else { named.port() })))
}

/// The interface index of a card.
fn card_number(card: &str, socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(rustix::net::netdevice::name_to_index(socket, card)?)
}

#[cfg(test)]
mod tests;
