//! IPv4 addresses as the kernel has them.

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

/// No address.
pub(super) const NOBODY: libc::sockaddr_in = to_kernel(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        let address = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 3), 9001);
        assert_eq!(from_kernel(&to_kernel(address)), address);
        assert_eq!(to_kernel(address).sin_port.to_ne_bytes(), 9001_u16.to_be_bytes());
    }
}
