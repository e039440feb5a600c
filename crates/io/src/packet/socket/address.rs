//! Addresses as the kernel has them.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for an address of either version of IP. Family and port lie at the same place in both; an IPv4 address lies where the
/// flow label of IPv6 is.
pub(super) type Room = libc::sockaddr_in6;

/// The kernel's form of an address.
pub(super) const fn to_kernel(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}

/// The address that the kernel means. One of IPv4 is that whatever socket it came through.
pub(super) fn from_kernel(room: &Room) -> SocketAddr {
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
pub(super) fn interface_with(address: IpAddr) -> Option<String> {
    let mut first = core::ptr::null_mut();
    // SAFETY: writes a pointer to a list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return None;
    }
    let (mut next, mut found) = (first, None);
    // SAFETY: the list ends with a null pointer, and each of its names with a zero; an address of the family INET is a
    // `sockaddr_in` and one of INET6 a `sockaddr_in6`, which are read wherever they lie. Nothing of it is used after it was freed.
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
pub(super) fn index_with(address: IpAddr) -> u32 {
    let name = interface_with(address).and_then(|name| CString::new(name).ok());
    name.map_or(0, |name| index_of(&name))
}

/// Returns the index of the named interface, or 0 if no such interface exists.
pub(super) fn index_of(name: &CStr) -> u32 {
    // SAFETY: reads a name that ends with a zero.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// No address.
pub(super) const NOBODY: Room = Room {
    sin6_family: libc::AF_INET as libc::sa_family_t,
    sin6_port: 0,
    sin6_flowinfo: 0,
    sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
    sin6_scope_id: 0,
};

#[cfg(test)]
mod tests {
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
        assert_eq!(from_kernel(&Room { sin6_family, sin6_port, sin6_flowinfo, ..NOBODY }), address.into());
        let room = |address: Ipv6Addr| Room {
            sin6_family: libc::AF_INET6 as libc::sa_family_t,
            sin6_port,
            sin6_addr: libc::in6_addr { s6_addr: address.octets() },
            sin6_scope_id: 2,
            ..NOBODY
        };
        assert_eq!(from_kernel(&room(address.ip().to_ipv6_mapped())), address.into());
        let link_local = Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 7);
        assert_eq!(from_kernel(&room(link_local)), SocketAddrV6::new(link_local, 9001, 0, 2).into());
    }
}
