//! Making sockets, with every option set before the first packet can come.
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, Protocol, RawProtocol, SocketFlags, SocketType, sockopt};

use crate::packet::{Flow, PacketError};

/// A socket of a flow at an address, and that address with its port filled in.
pub(super) fn bound(flow: Flow, address: SocketAddr, is_shared: bool) -> Result<(OwnedFd, SocketAddr), PacketError> {
    let refused = |what: &'static str| move |errno: Errno| PacketError::of(what, address, errno.into());
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = match (flow, address) {
        (Flow::Udp, SocketAddr::V4(_)) => net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None),
        (Flow::Udp, SocketAddr::V6(_)) => net::socket_with(AddressFamily::INET6, SocketType::DGRAM, flags, None),
        (Flow::Ip(_), SocketAddr::V6(_)) => {
            return Err(PacketError::Config { what: "packets straight in IP are received over IPv4 alone" });
        }
        (Flow::Ip(number), SocketAddr::V4(_)) => {
            let protocol = RawProtocol::new(number.into()).map(Protocol::from_raw);
            net::socket_with(AddressFamily::INET, SocketType::RAW, flags, protocol)
        }
    };
    let socket = socket.map_err(refused("cannot open a socket"))?;
    if is_shared {
        sockopt::set_socket_reuseport(&socket, true).map_err(refused("cannot share a port"))?;
    }
    if address.is_ipv6() {
        // `::` hears IPv4 too, whatever the system's default is.
        let is_any = address.ip().is_unspecified();
        sockopt::set_ipv6_v6only(&socket, !is_any).map_err(refused("cannot choose a version of IP"))?;
    }
    let address = match flow {
        Flow::Udp => address,
        Flow::Ip(_) => SocketAddr::new(address.ip(), 0),
    };
    net::bind(&socket, &address).map_err(refused("cannot bind a socket"))?;
    let mut bound =
        net::getsockname(&socket).and_then(SocketAddr::try_from).map_err(refused("cannot name a socket"))?;
    if flow != Flow::Udp {
        // A raw socket's port is its protocol's number, which is no port.
        bound.set_port(0);
    }
    Ok((socket, bound))
}

/// The same for what is IPv4 alone.
pub(in crate::packet) fn bound_v4(
    flow: Flow,
    address: SocketAddrV4,
    is_shared: bool,
) -> Result<(OwnedFd, SocketAddrV4), PacketError> {
    let (socket, bound) = bound(flow, address.into(), is_shared)?;
    Ok((socket, SocketAddrV4::new(*address.ip(), bound.port())))
}

/// Lets a socket that is bound to the address of a multicast group hear it: at the interface that has this address, or where
/// the kernel's routes lead to. A group of IPv6 is joined at the interface of this number, 0: where routes lead to.
pub(super) fn join(socket: &OwnedFd, group: IpAddr, interface: Option<IpAddr>, index: u32) -> io::Result<()> {
    let joined = match (group, interface) {
        (IpAddr::V6(group), _) => sockopt::set_ipv6_add_membership(socket, &group, index),
        (IpAddr::V4(group), Some(IpAddr::V4(interface))) => sockopt::set_ip_add_membership(socket, &group, &interface),
        (IpAddr::V4(group), _) => sockopt::set_ip_add_membership(socket, &group, &Ipv4Addr::UNSPECIFIED),
    };
    Ok(joined?)
}

/// Lets as many bytes wait in the kernel before it drops packets: beyond the system's limit where the process may.
pub(super) fn set_receive_buffer(socket: &OwnedFd, bytes: usize) -> io::Result<()> {
    set_buffer(socket, bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)
}

/// The same for packets that are on their way out.
pub(super) fn set_send_buffer(socket: &OwnedFd, bytes: usize) -> io::Result<()> {
    set_buffer(socket, bytes, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)
}

fn set_buffer(socket: &OwnedFd, bytes: usize, by_force: i32, as_allowed: i32) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    // The kernel doubles the number, for what it needs itself.
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX / 2);
    set_option(socket, libc::SOL_SOCKET, by_force, bytes)
        .or_else(|_| set_option(socket, libc::SOL_SOCKET, as_allowed, bytes))
}

/// Sets an option that is a number.
pub(super) fn set_option(socket: &OwnedFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: reads a number, whose size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How the kernel counts a socket's memory (`linux/sock_diag.h`).
#[derive(Copy, Clone)]
pub(super) struct SocketMemory {
    /// Bytes of packets that wait, with all that the kernel needs for them.
    pub(super) waiting: u32,
    /// So many are allowed to.
    pub(super) allowed: u32,
    /// Packets that the kernel dropped at this socket since it was opened, modulo 2^32: its queue was full, or UDP's checksum
    /// was wrong. The number that `SO_RXQ_OVFL` puts beside each packet, without its price for each packet.
    pub(super) drops: u32,
}

/// Asks the kernel for a socket's numbers. Where it fails they are 0.
pub(super) fn socket_memory(socket: &OwnedFd) -> SocketMemory {
    let mut numbers = [0_u32; 9];
    let mut length = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: writes at most as many bytes as the numbers have.
    unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            numbers.as_mut_ptr().cast(),
            &raw mut length,
        );
    }
    let [waiting, allowed, .., drops] = numbers;
    SocketMemory { waiting, allowed, drops }
}
