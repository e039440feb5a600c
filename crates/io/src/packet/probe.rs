//! The kernel's reports about other sockets, about the path to another machine, and about this machine's losses of any
//! flow: its own counts, as differences from those when the receiver was made ([`Around`]).
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use ropewalk_terms::{ByCause, Cause};

/// The port of the discard service (RFC 863), which no machine is expected to have open.
const DISCARD: u16 = 9;
/// Usual packet sizes of networks, largest first, in bytes.
const SIZES: [u32; 8] = [65535, 16110, 9216, 9000, 8192, 4096, 4000, 1500];
/// Packet size that every network accepts, in bytes (RFC 791).
const SMALLEST: u32 = 576;
/// Time-out of an answer. Within a hall it arrives within a millisecond.
const PATIENCE: Duration = Duration::from_millis(250);

/// The option by which a socket makes the kernel note the time of every packet, if it has one.
///
/// # Errors
/// If it is no socket.
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

/// Makes the kernel note the time of every packet, as `ping` does, so that tests find a program that does so.
///
/// # Errors
/// If it is no socket.
pub fn stamp(socket: impl AsFd) -> io::Result<()> {
    set_number(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMP, 1)
}

/// The largest packet in bytes, out of the usual sizes of networks and `most`, that reached another machine. Sends
/// datagrams to a closed port, which the other machine answers. `None` if it never answers.
///
/// # Errors
/// If no socket can be made, or there is no route to the address.
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
    // Whole or not at all: no packet is cut into pieces, even if the kernel assumes a smaller limit on the path.
    set_number(&socket, level, option, probe)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect((address, DISCARD))?;
    let came = |size: u32| came(&socket, size.min(SIZES[0]).saturating_sub(headers));
    // If a peer does not answer the smallest packet, the others show nothing.
    if !came(most.min(SMALLEST))? {
        return Ok(None);
    }
    for size in [most].into_iter().chain(SIZES.into_iter().filter(|&size| size < most)) {
        // A second attempt, since any network may lose a packet.
        if came(size)? || came(size)? {
            return Ok(Some(size.min(SIZES[0])));
        }
    }
    Ok(Some(most.min(SMALLEST)))
}

/// Whether a datagram of `bytes` bytes reaches the other machine.
fn came(socket: &UdpSocket, bytes: u32) -> io::Result<bool> {
    match socket.send(&vec![0; bytes as usize]) {
        Ok(_) => Ok(is_answered(socket)),
        // Larger than the interface of this machine.
        Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Ok(false),
        // A late answer to an earlier packet.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the other machine answers that the port is closed, which means that the packet arrived.
fn is_answered(socket: &UdpSocket) -> bool {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        match socket.recv(&mut [0; 1]) {
            // The port is open, and even answers.
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

/// Maximum length of these files: `snmp` has about 1.5 kB, and `dev` a line of 130 bytes for each interface.
const MOST_BYTES: usize = 8192;

/// The kernel's files, which stay open: reading them allocates nothing.
pub(super) struct Around {
    /// Counts of IP and UDP in this network namespace.
    protocols: Option<File>,
    /// The same of IPv6.
    protocols_v6: Option<File>,
    /// Counts of all interfaces.
    interfaces: Option<File>,
    /// The interface to read; `None` for all of them.
    interface: Option<String>,
    /// The counts at the start.
    before: ByCause,
}

impl Around {
    /// Reads the counts of this network namespace, and of an interface in it, or of all.
    pub(super) fn new(interface: Option<String>) -> Self {
        // A missing file counts nothing: /proc may not be mounted.
        let protocols = File::open("/proc/thread-self/net/snmp").ok();
        let protocols_v6 = File::open("/proc/thread-self/net/snmp6").ok();
        let interfaces = File::open("/proc/thread-self/net/dev").ok();
        let mut around = Self { protocols, protocols_v6, interfaces, interface, before: ByCause::default() };
        around.before = around.absolute();
        around
    }

    /// Losses since the start.
    pub(super) fn read(&self) -> ByCause {
        let (now, mut since) = (self.absolute(), ByCause::default());
        for (cause, count) in now.iter() {
            since.set(cause, count.saturating_sub(self.before.get(cause)));
        }
        since
    }

    fn absolute(&self) -> ByCause {
        let mut counts = ByCause::default();
        with_text(self.protocols.as_ref(), |text| {
            counts.set(Cause::Malformed, field(text, "Ip:", "InHdrErrors"));
            counts.set(Cause::NotReassembled, field(text, "Ip:", "ReasmFails"));
            counts.set(Cause::BadChecksum, field(text, "Udp:", "InCsumErrors"));
            counts.set(Cause::SocketQueueFull, field(text, "Udp:", "RcvbufErrors"));
        });
        with_text(self.protocols_v6.as_ref(), |text| {
            counts.add(Cause::Malformed, named(text, "Ip6InHdrErrors"));
            counts.add(Cause::NotReassembled, named(text, "Ip6ReasmFails"));
            counts.add(Cause::BadChecksum, named(text, "Udp6InCsumErrors"));
            counts.add(Cause::SocketQueueFull, named(text, "Udp6RcvbufErrors"));
        });
        with_text(self.interfaces.as_ref(), |text| {
            counts.set(Cause::InterfaceDropped, received_and_dropped(text, self.interface.as_deref()));
        });
        counts
    }
}

/// Passes a file's text, as far as it can be read, to a function.
fn with_text(file: Option<&File>, use_it: impl FnOnce(&str)) {
    let mut bytes = [0; MOST_BYTES];
    let Some(Ok(length)) = file.map(|file| file.read_at(&mut bytes, 0)) else { return };
    if let Ok(text) = core::str::from_utf8(&bytes[..length]) {
        use_it(text);
    }
}

/// A number of `/proc/net/snmp`: a line of names, then a line of numbers, both with the protocol in front.
fn field(text: &str, protocol: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else { return 0 };
    let place = names.split_ascii_whitespace().position(|word| word == name);
    let number = place.and_then(|place| numbers.split_ascii_whitespace().nth(place));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// A number of `/proc/net/snmp6`, which has a line for each name.
fn named(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let number = lines.find(|(known, _)| *known == name).map(|(_, number)| number.trim());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// A number of `/proc/net/dev`, which has a line for each interface with bytes, packets, errors and drops: of one of them, or
/// of all together.
fn received_and_dropped(text: &str, interface: Option<&str>) -> u64 {
    let all = text.lines().filter_map(|line| line.trim_start().split_once(':'));
    let chosen = all.filter(|(name, _)| interface.is_none_or(|wanted| wanted == *name));
    let dropped = |numbers: &str| numbers.split_ascii_whitespace().nth(3)?.parse::<u64>().ok();
    chosen.filter_map(|(_, numbers)| dropped(numbers)).sum()
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_socket_tells_whether_it_wants_times() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        assert_eq!(stamping_of(&socket).expect("a socket"), None);
        stamp(&socket).expect("no right is needed");
        assert_eq!(stamping_of(&socket).expect("a socket"), Some("SO_TIMESTAMP"));
        let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        let software = (libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE) as i32;
        set_number(&other, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, software).expect("no right is needed");
        assert_eq!(stamping_of(&other).expect("a socket"), Some("SO_TIMESTAMPING"));
        assert!(stamping_of(std::fs::File::open("/dev/null").expect("a file")).is_err());
    }

    #[test]
    fn the_way_to_this_machine_takes_what_its_interface_takes() {
        let most = path_mtu(Ipv4Addr::LOCALHOST.into(), 4000).expect("loopback");
        assert_eq!(most, Some(4000));
        assert_eq!(path_mtu(Ipv4Addr::LOCALHOST.into(), 65536).expect("loopback"), Some(65535));
    }

    #[test]
    fn numbers_are_found_by_their_names() {
        let text = "Ip: Forwarding ReasmFails FragOKs\nIp: 1 17 3\nUdp: InCsumErrors\nUdp: 5\nUdpLite: InCsumErrors\nUdpLite: 9\n";
        assert_eq!(field(text, "Ip:", "ReasmFails"), 17);
        assert_eq!(field(text, "Udp:", "InCsumErrors"), 5);
        let text_v6 = "Ip6InHdrErrors                  \t3\nUdp6InErrors \t4\nUdp6RcvbufErrors                \t7\n";
        assert_eq!(["Udp6RcvbufErrors", "Udp6InErrors", "Udp6In"].map(|name| named(text_v6, name)), [7, 4, 0]);
        assert_eq!((field(text, "Udp:", "NoPorts"), field(text, "Tcp:", "InSegs"), field("", "Ip:", "x")), (0, 0, 0));
    }

    #[test]
    fn drops_of_an_interface_are_found_by_its_name() {
        let text = "Inter-| Receive\n face |bytes packets errs drop\n  eth1: 1 2 3 4 0\n  eth10: 5 6 7 8 0\n";
        assert_eq!(
            [Some("eth1"), Some("eth10"), Some("eth"), None].map(|name| received_and_dropped(text, name)),
            [4, 8, 0, 12]
        );
    }

    #[test]
    fn what_happened_before_does_not_count() {
        let around = Around::new(Some("lo".to_owned()));
        assert!(around.protocols.is_some() && around.interfaces.is_some(), "Linux has these files");
        assert!(around.read().total() <= around.absolute().total());
    }
}
