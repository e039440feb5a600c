//! Packets: bare receivers that only count, bare echoes, and a sender that has everything prepared.
//!
//! ```text
//!  Flood: frames that lie ready, AF_XDP ──► card ─┬─ socket: recvfrom, recvmmsg, GRO, raw IP ─► counted, or sent back
//!                                                 ├─ ring: TPACKET_V3 ───► counted, or copied to a PACKET_TX_RING
//!                                                 └─ xdp: AF_XDP ────────► counted, or sent back as it lies
//! ```
//! Everything is opened in the calling thread's network namespace, and needs the administrator's rights but for UDP.

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

/// Packets of a batch.
const BATCH: usize = 64;
/// Bytes of room for each: the longest packet that is received.
const ROOM: usize = 2048;
/// The protocol number of packets that are sent straight over IP: RFC 3692's first one for experiments.
pub const BARE_PROTOCOL: u8 = 253;

/// How packets are received and sent back.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum BarePackets {
    /// `recvfrom` and `sendto`, a call for each packet.
    RecvFrom,
    /// `recvmmsg` and `sendmmsg`.
    RecvMmsg,
    /// Packets that the kernel has coupled, sent back coupled.
    UdpGro,
    /// IP with a protocol number of its own, over `recvmmsg` and `sendmmsg`.
    RawIp,
    /// A mapped ring of blocks, and one of frames.
    Ring,
    /// AF_XDP in the driver, with copies.
    Xdp,
}

impl BarePackets {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::RecvFrom, Self::RecvMmsg, Self::UdpGro, Self::RawIp, Self::Ring, Self::Xdp];
}

/// How much can wait for a receiver that is away.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Depth {
    /// Bytes in a socket, as the kernel counts them: a packet has several hundred beside its own.
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

/// A receiver that counts what comes to an address and looks at nothing.
pub struct BareReceiver(Loop);

enum Loop {
    Socket(Box<SocketLoop>),
    Ring(Box<RingLoop>),
    Xdp(Box<XdpLoop>),
}

impl BareReceiver {
    /// Receives what comes to this address (a port of 0 is any free one) over this card.
    ///
    /// # Errors
    /// What the kernel says, mostly that the right is missing.
    pub fn open(how: BarePackets, address: SocketAddrV4, card: &str, depth: Depth) -> io::Result<Self> {
        Ok(Self(match how {
            BarePackets::Ring => Loop::Ring(Box::new(RingLoop::open(address, card, depth.blocks)?)),
            BarePackets::Xdp => Loop::Xdp(Box::new(XdpLoop::open(address, card, depth.frames)?)),
            socket => Loop::Socket(Box::new(SocketLoop::open(socket, address, depth.socket_bytes)?)),
        }))
    }

    /// Where packets have to be sent, the port filled in.
    pub fn address(&self) -> SocketAddrV4 {
        match &self.0 {
            Loop::Socket(socket) => socket.address,
            Loop::Ring(ring) => ring.listener.1,
            Loop::Xdp(xdp) => xdp.listener.1,
        }
    }

    /// Takes a batch of what is there, and returns how many packets that were. Does not wait.
    pub fn receive(&mut self) -> u64 {
        match &mut self.0 {
            Loop::Socket(socket) => socket.receive(),
            Loop::Ring(ring) => ring.receive(),
            Loop::Xdp(xdp) => xdp.receive(),
        }
    }

    /// Takes a batch and sends each packet back to where it came from; returns how many.
    pub fn echo(&mut self) -> u64 {
        match &mut self.0 {
            Loop::Socket(socket) => socket.echo(),
            Loop::Ring(ring) => ring.echo(),
            Loop::Xdp(xdp) => xdp.echo(),
        }
    }

    /// Sleeps until there is something, or the time is over.
    pub fn wait(&self, at_most: Duration) {
        let descriptor = match &self.0 {
            Loop::Socket(socket) => socket.descriptor(),
            Loop::Ring(ring) => ring.descriptor(),
            Loop::Xdp(xdp) => xdp.descriptor(),
        };
        let at_most = Timespec { tv_sec: 0, tv_nsec: at_most.subsec_nanos().into() };
        // With any result, the next step is to look.
        let _ = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&at_most));
    }
}

/// Keeps an address without receiving anything: the kernel sees a listener, so that it does not answer with an ICMP
/// error.
///
/// # Errors
/// What the kernel says.
pub fn deaf(address: SocketAddrV4, is_raw: bool) -> io::Result<(OwnedFd, SocketAddrV4)> {
    let (socket, address) = bound(address, is_raw)?;
    socket::refuse_all(socket.as_fd())?;
    Ok((socket, address))
}

/// A socket that wants to know when its packets came: as long as it is there, the kernel notes that of every packet of the
/// machine.
///
/// # Errors
/// What the kernel says.
pub fn timestamped() -> io::Result<OwnedFd> {
    let (socket, _) = bound(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), false)?;
    socket::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMP, &1)?;
    Ok(socket)
}

/// A socket at an address, for UDP or straight over IP, which does not block; and the address with its port.
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

/// The number of a card.
fn card_number(card: &str, socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(rustix::net::netdevice::name_to_index(socket, card)?)
}

#[cfg(test)]
mod tests;
