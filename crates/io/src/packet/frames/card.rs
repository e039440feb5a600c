//! What the kernel says of a network card.
#![allow(unsafe_code)]

use core::mem::zeroed;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use ropewalk_wire::internet::MacAddress;

/// A network card.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// Its number in its network namespace.
    pub index: u32,
    /// Its address on the cable.
    pub mac: MacAddress,
    /// Bytes of the largest IP packet that it carries.
    pub mtu: usize,
}

impl Card {
    /// Asks for the card with this name through any socket of its namespace.
    ///
    /// # Errors
    /// What the kernel says, mostly that there is none.
    pub fn find(name: &str, socket: impl AsFd) -> io::Result<Self> {
        // SAFETY: names, numbers and a pointer that is not used, for which zeros are good.
        let mut request: libc::ifreq = unsafe { zeroed() };
        if name.is_empty() || name.len() >= request.ifr_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let mut ask = |what: libc::c_ulong| {
            // SAFETY: these requests read a name and write an answer, both within the structure.
            let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), what, &raw mut request) };
            if result == 0 { Ok(request.ifr_ifru) } else { Err(io::Error::last_os_error()) }
        };
        // SAFETY: the fields that these requests have written.
        let (index, mac, mtu) = unsafe {
            (
                ask(libc::SIOCGIFINDEX)?.ifru_ifindex,
                ask(libc::SIOCGIFHWADDR)?.ifru_hwaddr.sa_data,
                ask(libc::SIOCGIFMTU)?.ifru_mtu,
            )
        };
        let mac = MacAddress([0, 1, 2, 3, 4, 5].map(|at| mac[at] as u8));
        Ok(Self { name: name.to_owned(), index: index as u32, mac, mtu: usize::try_from(mtu).unwrap_or(0) })
    }
}

#[cfg(test)]
#[test]
fn the_loop_is_a_card_and_others_are_not_there() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let card = Card::find("lo", &socket).expect("every machine has it");
    assert_eq!((card.mac, card.index, card.mtu > 1500), (MacAddress([0; 6]), 1, true));
    assert!(Card::find("no such card", &socket).is_err() && Card::find("", &socket).is_err());
    assert_eq!(Card::find(&"x".repeat(16), &socket).err().map(|error| error.kind()), Some(io::ErrorKind::InvalidInput));
}
