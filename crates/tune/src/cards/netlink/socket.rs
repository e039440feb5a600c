//! Requests to the kernel, and its answers.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use super::message::{self, Message, Part};

/// As long as a driver may take to answer: some stop the card and start it again for a new ring.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than any answer has.
const ANSWER: usize = 1 << 17;
/// The family that tells of families (linux/genetlink.h).
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// A socket to one part of the kernel. It asks the network namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct Socket {
    socket: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// To the generic families.
    pub(super) fn generic() -> io::Result<Self> {
        Self::open(Some(netlink::GENERIC))
    }

    /// To the table of interfaces (rtnetlink(7), which is number 0 and the default).
    pub(super) fn interfaces() -> io::Result<Self> {
        Self::open(None)
    }

    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Asks for something. The bodies of the messages that answer it, without netlink's own head.
    pub(super) fn ask(&mut self, message: &Message) -> io::Result<Vec<Vec<u8>>> {
        self.sequence = self.sequence.wrapping_add(1);
        net::send(&self.socket, &message.bytes(self.sequence), SendFlags::empty())?;
        let mut bytes = vec![0; ANSWER];
        let mut bodies = Vec::new();
        loop {
            let (length, _) = retry_on_intr(|| net::recv(&self.socket, &mut bytes[..], RecvFlags::empty()))?;
            for part in message::parts(&bytes[..length], self.sequence) {
                match part {
                    Part::Body(body) => bodies.push(body.to_vec()),
                    Part::End(0) => return Ok(bodies),
                    Part::End(error) => return Err(io::Error::from_raw_os_error(error)),
                }
            }
        }
    }

    /// The number that a generic family has today.
    pub(super) fn family(&mut self, name: &str) -> io::Result<u16> {
        let request = Message::generic(CONTROL, GET_FAMILY).with(FAMILY_NAME, &message::ended(name));
        let bodies = self.ask(&request)?;
        let id = bodies.first().and_then(|body| message::attribute(body.get(4..)?, FAMILY_ID)?.first_chunk().copied());
        id.map(u16::from_ne_bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}
