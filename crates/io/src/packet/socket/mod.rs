//! Packets over the kernel's sockets: UDP, and IP with a user-chosen protocol number.
//!
//! ```text
//!  card -> driver -> IP (puts fragments together) -> UDP or raw IP -> the socket's queue -> copy -> PacketMemory
//! ```
//! The kernel makes a buffer for each packet and frees it after the packet was copied out: the cost that paper 2 is
//! about.
//!
//! This file has the parts shared by receiving and sending: sockets, which have every option set before the first
//! packet can arrive; addresses in the kernel's form; the headers for `recvmmsg` and `sendmmsg`, made once and used for
//! every batch; and a socket's membership of a multicast group. The kernel silently drops the membership with the
//! network card; the group is joined again when the card is back.
#![allow(unsafe_code)]

mod receive;
mod send;

use core::mem::zeroed;
use core::ptr::null_mut;
use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, Protocol, RawProtocol, SocketFlags, SocketType, sockopt};

use super::{Flow, PacketError};

pub use self::receive::SocketReceiver;
pub use self::send::SocketSender;

/// Makes a socket of a flow at an address; also returns that address with its port filled in.
fn bound(flow: Flow, address: SocketAddr, is_shared: bool) -> Result<(OwnedFd, SocketAddr), PacketError> {
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
        // `::` receives IPv4 too, independent of the system's default.
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

/// Like [`bound`], for IPv4 only.
pub(in crate::packet) fn bound_v4(
    flow: Flow,
    address: SocketAddrV4,
    is_shared: bool,
) -> Result<(OwnedFd, SocketAddrV4), PacketError> {
    let (socket, bound) = bound(flow, address.into(), is_shared)?;
    Ok((socket, SocketAddrV4::new(*address.ip(), bound.port())))
}

/// Lets a socket that is bound to the address of a multicast group receive it: at the interface with this address, or
/// at that of the kernel's routes. An IPv6 group is joined at the interface with this index; 0 follows the routes.
pub(super) fn join(socket: &OwnedFd, group: IpAddr, interface: Option<IpAddr>, index: u32) -> io::Result<()> {
    let joined = match (group, interface) {
        (IpAddr::V6(group), _) => sockopt::set_ipv6_add_membership(socket, &group, index),
        (IpAddr::V4(group), Some(IpAddr::V4(interface))) => sockopt::set_ip_add_membership(socket, &group, &interface),
        (IpAddr::V4(group), _) => sockopt::set_ip_add_membership(socket, &group, &Ipv4Addr::UNSPECIFIED),
    };
    Ok(joined?)
}

/// Sets how many bytes may wait in the kernel before it drops packets; exceeds the system's limit if the process may.
fn set_receive_buffer(socket: &OwnedFd, bytes: usize) -> io::Result<()> {
    set_buffer(socket, bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)
}

/// Sets the same for outgoing packets.
fn set_send_buffer(socket: &OwnedFd, bytes: usize) -> io::Result<()> {
    set_buffer(socket, bytes, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)
}

fn set_buffer(socket: &OwnedFd, bytes: usize, by_force: i32, as_allowed: i32) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    // The kernel doubles the number, to include its own data.
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX / 2);
    set_option(socket, libc::SOL_SOCKET, by_force, bytes)
        .or_else(|_| set_option(socket, libc::SOL_SOCKET, as_allowed, bytes))
}

/// Sets an option that is a number.
fn set_option(socket: &OwnedFd, level: i32, name: i32, value: i32) -> io::Result<()> {
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

/// The kernel's accounting of a socket's memory (`linux/sock_diag.h`).
#[derive(Copy, Clone)]
struct SocketMemory {
    /// Bytes of waiting packets, including the kernel's overhead.
    pub(super) waiting: u32,
    /// The limit of `waiting`.
    allowed: u32,
    /// Number of packets that the kernel dropped at this socket since it was opened, modulo 2^32: its queue was full,
    /// or UDP's checksum was wrong. The same number that `SO_RXQ_OVFL` adds to each packet, without the cost for each
    /// packet.
    drops: u32,
}

/// Reads a socket's numbers from the kernel. If that fails they are 0.
fn socket_memory(socket: &OwnedFd) -> SocketMemory {
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

/// Room for an address of either version of IP. Family and port have the same offset in both; an IPv4 address lies at
/// the flow label of IPv6.
type Room = libc::sockaddr_in6;

/// The kernel's form of an address.
const fn to_kernel(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}

/// The address in a kernel structure. An IPv4 address is returned as one, even if it was received through an IPv6
/// socket.
fn from_kernel(room: &Room) -> SocketAddr {
    let port = u16::from_be(room.sin6_port);
    if i32::from(room.sin6_family) != libc::AF_INET6 {
        return SocketAddrV4::new(Ipv4Addr::from(room.sin6_flowinfo.to_ne_bytes()), port).into();
    }
    let address = Ipv6Addr::from(room.sin6_addr.s6_addr);
    match address.to_ipv4_mapped() {
        Some(address) => SocketAddrV4::new(address, port).into(),
        None => SocketAddrV6::new(address, port, 0, room.sin6_scope_id).into(),
    }
}

/// The name of the interface that has an address, if there is one.
fn interface_with(address: IpAddr) -> Option<String> {
    let mut first = core::ptr::null_mut();
    // SAFETY: writes a pointer to a list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return None;
    }
    let (mut next, mut found) = (first, None);
    // SAFETY: the list ends with a null pointer, and each of its names with a zero; an address of the family INET is a
    // `sockaddr_in` and one of INET6 a `sockaddr_in6`, which are read wherever they lie. Nothing of it is used after it
    // was freed.
    unsafe {
        while let Some(entry) = next.as_ref() {
            next = entry.ifa_next;
            let own: Option<IpAddr> = match entry.ifa_addr.as_ref().map(|own| i32::from(own.sa_family)) {
                Some(libc::AF_INET) => {
                    let own = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    Some(Ipv4Addr::from(own.sin_addr.s_addr.to_ne_bytes()).into())
                }
                Some(libc::AF_INET6) => {
                    let own = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    Some(Ipv6Addr::from(own.sin6_addr.s6_addr).into())
                }
                _ => None,
            };
            if own == Some(address) {
                found = CStr::from_ptr(entry.ifa_name).to_str().ok().map(str::to_owned);
            }
        }
        libc::freeifaddrs(first);
    }
    found
}

/// The index of the interface with this address; 0 if no interface has it.
fn index_with(address: IpAddr) -> u32 {
    let name = interface_with(address).and_then(|name| CString::new(name).ok());
    name.map_or(0, |name| index_of(&name))
}

/// Returns the index of the named interface, or 0 if no such interface exists.
fn index_of(name: &CStr) -> u32 {
    // SAFETY: reads a name that ends with a zero.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// No address.
const NO_ADDRESS: Room = Room {
    sin6_family: libc::AF_INET as libc::sa_family_t,
    sin6_port: 0,
    sin6_flowinfo: 0,
    sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
    sin6_scope_id: 0,
};

/// Room for one control message that contains a number.
#[repr(C, align(8))]
#[derive(Copy, Clone)]
struct Control([u8; 32]);

/// Bytes of a control message with a 16-bit number, as the kernel counts them.
const SEGMENT_SPACE: usize = 24;
const _: () = {
    // SAFETY: arithmetic.
    assert!(unsafe { libc::CMSG_SPACE(size_of::<u16>() as u32) } as usize == SEGMENT_SPACE);
};

impl Control {
    const EMPTY: Self = Self([0; 32]);

    /// Makes a message with the length of the pieces of a coupled packet; returns its length.
    fn set_segment(&mut self, bytes: u16) -> usize {
        let header = libc::cmsghdr {
            // SAFETY: arithmetic.
            cmsg_len: unsafe { libc::CMSG_LEN(size_of::<u16>() as u32) } as usize,
            cmsg_level: libc::SOL_UDP,
            cmsg_type: libc::UDP_SEGMENT,
        };
        // SAFETY: 32 bytes, aligned to 8: room for a header of 16 and a number.
        unsafe {
            self.0.as_mut_ptr().cast::<libc::cmsghdr>().write(header);
            self.0.as_mut_ptr().add(size_of::<libc::cmsghdr>()).cast::<u16>().write(bytes);
        }
        SEGMENT_SPACE
    }

    /// The length of the pieces of a packet that the kernel has coupled, if the first message of `length` bytes states
    /// it.
    pub(super) fn segment(&self, length: usize) -> Option<usize> {
        if length < size_of::<libc::cmsghdr>() + size_of::<i32>() {
            return None;
        }
        // SAFETY: 32 bytes, aligned to 8; any bits are a header and a number.
        let (header, number) = unsafe {
            let start = self.0.as_ptr();
            (start.cast::<libc::cmsghdr>().read(), start.add(size_of::<libc::cmsghdr>()).cast::<i32>().read())
        };
        let is_segment = header.cmsg_level == libc::SOL_UDP && header.cmsg_type == libc::UDP_GRO;
        usize::try_from(number).ok().filter(|&bytes| is_segment && bytes > 0)
    }

    pub(super) const fn address(&mut self) -> *mut libc::c_void {
        self.0.as_mut_ptr().cast()
    }

    const BYTES: usize = 32;
}

/// An empty header.
fn empty_header() -> libc::msghdr {
    // SAFETY: null pointers and numbers, for which zeros are valid.
    unsafe { zeroed() }
}

/// Headers, addresses and pieces of a batch. The headers point into the others: nothing is moved after [`Batch::link`].
pub(super) struct Batch {
    pub(super) headers: Box<[libc::mmsghdr]>,
    pub(super) addresses: Box<[Room]>,
    pub(super) pieces: Box<[libc::iovec]>,
}

// SAFETY: the pointers lead to memory that the batch owns, or are set again before each call.
unsafe impl Send for Batch {}

impl Batch {
    /// One address and one piece for each of `packets` packets.
    pub(super) fn new(packets: usize) -> Self {
        let piece = libc::iovec { iov_base: null_mut(), iov_len: 0 };
        let header = libc::mmsghdr { msg_hdr: empty_header(), msg_len: 0 };
        Self {
            headers: vec![header; packets].into(),
            addresses: vec![NO_ADDRESS; packets].into(),
            pieces: vec![piece; packets].into(),
        }
    }

    /// Prepares packet `index` to be received into `bytes` bytes at `start`.
    pub(super) fn prepare(&mut self, index: usize, start: *mut u8, bytes: usize) {
        self.pieces[index] = libc::iovec { iov_base: start.cast(), iov_len: bytes };
        let header = &mut self.headers[index].msg_hdr;
        header.msg_name = (&raw mut self.addresses[index]).cast();
        header.msg_namelen = size_of::<Room>() as libc::socklen_t;
        header.msg_iov = &raw mut self.pieces[index];
        header.msg_iovlen = 1;
        header.msg_flags = 0;
    }
}

/// A change of a membership since the last check.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MembershipChange {
    /// The card is gone, and the group with it: no packets arrive.
    Lost,
    /// The group is joined again.
    JoinedAgain,
}

/// Watches over the membership of a receiver's socket, as long as the socket exists.
#[derive(Debug)]
pub struct Membership {
    socket: Weak<OwnedFd>,
    group: SocketAddr,
    /// The address of the interface; `None` follows the kernel's routes.
    interface: Option<IpAddr>,
    /// The name of the interface given in the group's own address.
    name: Option<CString>,
    /// The index of the interface at which the group is joined. A card that comes back has another index.
    index: u32,
    is_lost: bool,
    losses: Arc<AtomicU64>,
}

impl Membership {
    /// Joins the group. `losses` counts how often the membership was lost.
    pub(super) fn join(
        socket: &Arc<OwnedFd>,
        group: SocketAddr,
        interface: Option<IpAddr>,
        losses: &Arc<AtomicU64>,
    ) -> std::io::Result<Self> {
        join_at(socket, group, interface)?;
        let index = interface_of(group, interface);
        let (losses, name) = (Arc::clone(losses), name_of(scope_of(group)));
        Ok(Self { socket: Arc::downgrade(socket), group, interface, name, index, is_lost: false, losses })
    }

    /// Checks whether the card is present, and joins again if it is a new one. Asks the system: for a thread that may
    /// wait.
    pub fn look(&mut self) -> Option<MembershipChange> {
        let socket = self.socket.upgrade()?;
        if !self.is_lost {
            if self.index == 0 || exists(self.index) {
                return None;
            }
            self.is_lost = true;
            self.losses.fetch_add(1, Ordering::Relaxed);
            return Some(MembershipChange::Lost);
        }
        self.rebind(&socket)?;
        // Fails without an interface of this address, or without a route.
        join_at(&socket, self.group, self.interface).ok()?;
        (self.index, self.is_lost) = (interface_of(self.group, self.interface), false);
        Some(MembershipChange::JoinedAgain)
    }

    /// Binds a socket with a link-local group again to the card, which has another index now. `None` if the card is not
    /// present, or this process may not.
    fn rebind(&mut self, socket: &OwnedFd) -> Option<()> {
        if let (SocketAddr::V6(group), Some(name)) = (&mut self.group, &self.name) {
            let index = self.interface.map_or_else(|| index_of(name), index_with);
            let number = i32::try_from(index).ok().filter(|&number| number > 0)?;
            set_option(socket, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, number).ok()?;
            group.set_scope_id(index);
        }
        Some(())
    }

    /// The group.
    pub const fn group(&self) -> IpAddr {
        self.group.ip()
    }
}

fn join_at(socket: &OwnedFd, group: SocketAddr, interface: Option<IpAddr>) -> std::io::Result<()> {
    join(socket, group.ip(), interface, interface.map_or_else(|| scope_of(group), index_with))
}

/// The index of the interface given in the address itself; 0 for none.
const fn scope_of(group: SocketAddr) -> u32 {
    if let SocketAddr::V6(group) = group { group.scope_id() } else { 0 }
}

/// The index of the interface at which the group is joined; 0 if unknown.
fn interface_of(group: SocketAddr, interface: Option<IpAddr>) -> u32 {
    if let Some(interface) = interface {
        return index_with(interface);
    }
    let list = |name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    match group.ip() {
        IpAddr::V4(group) => joined_at(&list("igmp"), group),
        IpAddr::V6(_) if scope_of(group) != 0 => scope_of(group),
        IpAddr::V6(group) => joined_at_v6(&list("igmp6"), group),
    }
}

/// The last interface of the kernel's list at which the group is joined.
fn joined_at(list: &str, group: Ipv4Addr) -> u32 {
    let wanted = format!("{:08X}", u32::from_ne_bytes(group.octets()));
    let (mut index, mut found) = (0, 0);
    for line in list.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if !line.starts_with(char::is_whitespace) {
            index = first.parse().unwrap_or(0);
        } else if first == wanted {
            found = index;
        }
    }
    found
}

/// Like [`joined_at`], for the list of IPv6, each of whose lines has the interface's index, its name and the group.
fn joined_at_v6(list: &str, group: Ipv6Addr) -> u32 {
    let wanted = format!("{:032x}", u128::from(group));
    let mut lines = list.lines().rev().map(|line| line.split_whitespace());
    let found = lines.find_map(|mut words| {
        let index = words.next()?.parse().ok()?;
        (words.nth(1)? == wanted).then_some(index)
    });
    found.unwrap_or(0)
}

fn exists(index: u32) -> bool {
    name_of(index).is_some()
}

/// The name of the interface with this index.
fn name_of(index: u32) -> Option<CString> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: writes a name and its zero, for which there is room, and returns its address.
    let name = unsafe { libc::if_indextoname(index, name.as_mut_ptr()).as_ref().map(|name| CStr::from_ptr(name)) };
    name.map(CStr::to_owned)
}

#[cfg(test)]
mod tests {

    use std::net::{SocketAddrV6, UdpSocket};

    use super::*;

    #[test]
    fn interfaces_are_found_by_their_addresses() {
        assert_eq!(interface_with(Ipv4Addr::LOCALHOST.into()).as_deref(), Some("lo"));
        assert_eq!(interface_with(Ipv4Addr::new(192, 0, 2, 1).into()), None, "an address for documents");
        assert_eq!((index_with(Ipv4Addr::LOCALHOST.into()), index_with(Ipv4Addr::BROADCAST.into())), (1, 0));
    }

    #[test]
    fn addresses_come_back() {
        let address = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 3), 9001);
        let kernel = to_kernel(address);
        assert_eq!(kernel.sin_port.to_ne_bytes(), 9001_u16.to_be_bytes());
        let (sin6_family, sin6_port, sin6_flowinfo) = (kernel.sin_family, kernel.sin_port, kernel.sin_addr.s_addr);
        assert_eq!(from_kernel(&Room { sin6_family, sin6_port, sin6_flowinfo, ..NO_ADDRESS }), address.into());
        let room = |address: Ipv6Addr| Room {
            sin6_family: libc::AF_INET6 as libc::sa_family_t,
            sin6_port,
            sin6_addr: libc::in6_addr { s6_addr: address.octets() },
            sin6_scope_id: 2,
            ..NO_ADDRESS
        };
        assert_eq!(from_kernel(&room(address.ip().to_ipv6_mapped())), address.into());
        let link_local = Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 7);
        assert_eq!(from_kernel(&room(link_local)), SocketAddrV6::new(link_local, 9001, 0, 2).into());
    }

    #[test]
    fn the_interface_of_a_group_is_found_in_the_kernels_list() {
        let group = |last| Ipv4Addr::new(239, 1, 2, last);
        let word = |last| format!("{:08X}", u32::from_ne_bytes(group(last).octets()));
        let list = format!(
            "Idx\tDevice    : Count Querier\tReporter\n1\tlo        :     1      V3\n\t\t\t\t{}     1 0:00000000\t\t0\n\
             7\teth0      :     2      V3\n\t\t\t\t{}     1 0:00000000\t\t0\n",
            word(3),
            word(4)
        );
        assert_eq!([3, 4, 5].map(|last| joined_at(&list, group(last))), [1, 7, 0]);
        let list = "1    lo              ff020000000000000000000000000001     1 0000000C 0\n\
                    7    eth0            ff150000000000000000000000000009     1 00000004 0\n";
        let group = |last| Ipv6Addr::new(0xFF15, 0, 0, 0, 0, 0, 0, last);
        assert_eq!([9, 8].map(|last| joined_at_v6(list, group(last))), [7, 0]);
    }

    #[test]
    fn a_group_whose_card_is_gone_is_lost_once_and_joined_again() {
        let socket = Arc::new(OwnedFd::from(UdpSocket::bind("127.0.0.1:0").expect("a socket")));
        let losses = Arc::new(AtomicU64::new(0));
        let group = Ipv4Addr::new(239, 1, 2, 3);
        let mut membership =
            Membership::join(&socket, (group, 0).into(), Some(Ipv4Addr::LOCALHOST.into()), &losses).expect("a group");
        assert_eq!(membership.look(), None);
        let here = std::mem::replace(&mut membership.index, u32::MAX);
        assert_eq!(membership.look(), Some(MembershipChange::Lost));
        // The kernel has dropped the membership with the card; here it has not.
        rustix::net::sockopt::set_ip_drop_membership(&socket, &group, &Ipv4Addr::LOCALHOST).expect("it was joined");
        assert_eq!(membership.look(), Some(MembershipChange::JoinedAgain));
        assert_eq!((membership.look(), membership.index, losses.load(Ordering::Relaxed)), (None, here, 1));
        drop(socket);
        membership.index = u32::MAX;
        assert_eq!(membership.look(), None, "the receiver is gone");
    }

    #[test]
    fn a_group_of_a_link_is_joined_again_at_the_card_s_new_number() {
        let here = index_of(c"lo");
        let group = SocketAddrV6::new(Ipv6Addr::new(0xFF12, 0, 0, 0, 0, 0, 0, 9), 0, 0, here);
        // SAFETY: reads the user's id.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let Ok(socket) = UdpSocket::bind(group) else { return };
        let socket = Arc::new(OwnedFd::from(socket));
        let mut membership = Membership::join(&socket, group.into(), None, &Arc::default()).expect("a group");
        (membership.index, membership.group) = (u32::MAX, SocketAddrV6::new(*group.ip(), 0, 0, 7777).into());
        assert_eq!(membership.look(), Some(MembershipChange::Lost));
        rustix::net::sockopt::set_ipv6_drop_membership(&socket, group.ip(), here).expect("it was joined");
        assert_eq!(membership.look(), Some(MembershipChange::JoinedAgain));
        assert_eq!((membership.index, scope_of(membership.group)), (here, here));
    }
}
