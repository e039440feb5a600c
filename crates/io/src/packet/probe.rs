//! What the kernel tells of other people's sockets, and of the way to another machine.
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// The port of the service that throws everything away (RFC 863), and that nobody has open.
const DISCARD: u16 = 9;
/// Sizes of packets that networks have, largest first, in bytes.
const SIZES: [u32; 8] = [65535, 16110, 9216, 9000, 8192, 4096, 4000, 1500];
/// What every network takes, in bytes (RFC 791).
const SMALLEST: u32 = 576;
/// How long an answer is waited for. Within a hall it comes within a millisecond.
const PATIENCE: Duration = Duration::from_millis(250);

/// The option by which a socket has the kernel note the time of every packet, where it has one.
///
/// # Errors
/// When it is no socket.
pub fn stamping_of(socket: impl AsFd) -> io::Result<Option<&'static str>> {
    let options = [
        (libc::SO_TIMESTAMP, "SO_TIMESTAMP"),
        (libc::SO_TIMESTAMPNS, "SO_TIMESTAMPNS"),
        (libc::SO_TIMESTAMPING, "SO_TIMESTAMPING"),
    ];
    for (option, name) in options {
        if number(&socket, libc::SOL_SOCKET, option)? != 0 {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Has the kernel note the time of every packet, as `ping` does, so that tests have somebody to find.
///
/// # Errors
/// When it is no socket.
pub fn stamp(socket: impl AsFd) -> io::Result<()> {
    set_number(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMP, 1)
}

/// The largest packet in bytes, of the sizes that networks have and of `most`, that came to another machine. Asked by
/// datagrams to a port that nobody has open, for which the other machine answers that it got them. None where it never
/// answers.
///
/// # Errors
/// When no socket can be had, or there is no way to the address.
pub fn path_mtu(address: IpAddr, most: u32) -> io::Result<Option<u32>> {
    let (any, level, option, probe, headers): (SocketAddr, i32, i32, i32, u32) = match address {
        IpAddr::V4(_) => {
            let any = (Ipv4Addr::UNSPECIFIED, 0).into();
            (any, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE, 28)
        }
        IpAddr::V6(_) => {
            let any = (Ipv6Addr::UNSPECIFIED, 0).into();
            (any, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE, 48)
        }
    };
    let socket = UdpSocket::bind(any)?;
    // Whole or not at all: no packet is cut into pieces, whatever the kernel believes of the way.
    set_number(&socket, level, option, probe)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect((address, DISCARD))?;
    let came = |size: u32| came(&socket, size.min(SIZES[0]).saturating_sub(headers));
    // Who does not answer the smallest one says nothing of the others.
    if !came(most.min(SMALLEST))? {
        return Ok(None);
    }
    for size in [most].into_iter().chain(SIZES.into_iter().filter(|&size| size < most)) {
        // A second time, since any network may lose a packet.
        if came(size)? || came(size)? {
            return Ok(Some(size.min(SIZES[0])));
        }
    }
    Ok(Some(most.min(SMALLEST)))
}

/// Whether a datagram of so many bytes comes to the other machine.
fn came(socket: &UdpSocket, bytes: u32) -> io::Result<bool> {
    match socket.send(&vec![0; bytes as usize]) {
        Ok(_) => Ok(is_answered(socket)),
        // Larger than the interface of this machine.
        Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Ok(false),
        // The answer to one before, which came late.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the other machine says that nobody is at the port: then the packet came.
fn is_answered(socket: &UdpSocket) -> bool {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        match socket.recv(&mut [0; 1]) {
            // Somebody is there, and even answers.
            Ok(_) => return true,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    false
}

/// An option that is a number.
fn number(socket: impl AsFd, level: i32, name: i32) -> io::Result<i32> {
    let (mut value, mut length) = (0_i32, size_of::<i32>() as libc::socklen_t);
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: writes at most as many bytes as the number has.
    let result = unsafe { libc::getsockopt(socket, level, name, (&raw mut value).cast(), &raw mut length) };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

fn set_number(socket: impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let (socket, length) = (socket.as_fd().as_raw_fd(), size_of::<i32>() as libc::socklen_t);
    // SAFETY: reads a number, whose size is given.
    let result = unsafe { libc::setsockopt(socket, level, name, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_tells_whether_it_wants_times() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        assert_eq!(stamping_of(&socket).expect("a socket"), None);
        stamp(&socket).expect("anybody may");
        assert_eq!(stamping_of(&socket).expect("a socket"), Some("SO_TIMESTAMP"));
        let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        let software = (libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE) as i32;
        set_number(&other, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, software).expect("anybody may");
        assert_eq!(stamping_of(&other).expect("a socket"), Some("SO_TIMESTAMPING"));
        assert!(stamping_of(std::fs::File::open("/dev/null").expect("a file")).is_err());
    }

    #[test]
    fn the_way_to_this_machine_takes_what_its_interface_takes() {
        let most = path_mtu(Ipv4Addr::LOCALHOST.into(), 4000).expect("loopback");
        assert_eq!(most, Some(4000));
        assert_eq!(path_mtu(Ipv4Addr::LOCALHOST.into(), 65536).expect("loopback"), Some(65535));
    }
}
