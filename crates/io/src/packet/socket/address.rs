//! IPv4 addresses as the kernel has them.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::net::{Ipv4Addr, SocketAddrV4};

/// The kernel's form of an address.
pub(super) const fn to_kernel(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}

/// The address that the kernel means.
pub(super) const fn from_kernel(address: &libc::sockaddr_in) -> SocketAddrV4 {
    let [a, b, c, d] = address.sin_addr.s_addr.to_ne_bytes();
    SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be(address.sin_port))
}

/// The name of the interface that has an address, if there is one.
pub(super) fn interface_with(address: Ipv4Addr) -> Option<String> {
    let mut first = core::ptr::null_mut();
    // SAFETY: writes a pointer to a list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return None;
    }
    let (mut next, mut found) = (first, None);
    // SAFETY: the list ends with a null pointer, and each of its names with a zero; an address of the family INET is a
    // `sockaddr_in`, which is read wherever it lies. Nothing of it is used after it was freed.
    unsafe {
        while let Some(entry) = next.as_ref() {
            next = entry.ifa_next;
            let is_inet = entry.ifa_addr.as_ref().is_some_and(|own| i32::from(own.sa_family) == libc::AF_INET);
            if is_inet && *from_kernel(&entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned()).ip() == address {
                found = CStr::from_ptr(entry.ifa_name).to_str().ok().map(str::to_owned);
            }
        }
        libc::freeifaddrs(first);
    }
    found
}

/// No address.
pub(super) const NOBODY: libc::sockaddr_in = to_kernel(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_found_by_their_addresses() {
        assert_eq!(interface_with(Ipv4Addr::LOCALHOST).as_deref(), Some("lo"));
        assert_eq!(interface_with(Ipv4Addr::new(192, 0, 2, 1)), None, "an address for documents");
    }

    #[test]
    fn addresses_come_back() {
        let address = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 3), 9001);
        assert_eq!(from_kernel(&to_kernel(address)), address);
        assert_eq!(to_kernel(address).sin_port.to_ne_bytes(), 9001_u16.to_be_bytes());
    }
}
