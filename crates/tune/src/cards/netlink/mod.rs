//! The cards of the machine that this runs on, asked for by netlink: families `ethtool` and `netdev` for what drivers
//! tell, rtnetlink for the MTU. Nothing is shelled out to; of what a driver lacks nothing is said.

use std::io;

use rustix::io::Errno;

use super::{CardError, CardReport, Cards};
use crate::Property;

mod ethtool;
mod message;
mod socket;

use ethtool::Command;
use message::{Message, attribute, number};
use socket::Socket;

/// The head of a generic family in an answer.
const GENERIC_HEAD: usize = 4;
/// The head of messages about interfaces: family, kind, index, flags, which of them are meant.
const INTERFACE_HEAD: usize = 16;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const LINK_NAME: u16 = 3;
const LINK_MTU: u16 = 4;
const LINK_MOST_MTU: u16 = 51;
/// The longest name of an interface in bytes.
const LONGEST_NAME: usize = 15;

/// The cards of the network namespace of the thread that asks.
#[derive(Debug, Default)]
pub struct Netlink(());

/// A socket, and the number of the family `ethtool`.
struct Ethtool {
    socket: Socket,
    family: u16,
}

impl Ethtool {
    const NAME: &str = "ethtool";

    fn open() -> io::Result<Self> {
        let mut socket = Socket::generic()?;
        let family = socket.family(Self::NAME)?;
        Ok(Self { socket, family })
    }
}

/// An interface as rtnetlink tells of it.
struct Link {
    index: u32,
    mtu: u32,
    /// The largest that it can have; none where there is no bound, which the kernel writes as 0, or none is told.
    most_mtu: Option<u32>,
}

fn link(interface: &str) -> io::Result<Link> {
    if interface.is_empty() || interface.len() > LONGEST_NAME || interface.contains(['/', '\0']) {
        return Err(Errno::NODEV.into());
    }
    let request = Message::new(GET_LINK, &[0; INTERFACE_HEAD]).with(LINK_NAME, &message::ended(interface));
    let bodies = Socket::interfaces()?.ask(&request)?;
    let read = |body: &Vec<u8>| {
        let index = number(body.get(4..)?)?;
        let value = |kind: u16| attribute(body.get(INTERFACE_HEAD..)?, kind).and_then(number);
        Some(Link { index, mtu: value(LINK_MTU)?, most_mtu: value(LINK_MOST_MTU).filter(|&most| most > 0) })
    };
    bodies.first().and_then(read).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// What the system said of an interface.
fn refused(interface: &str, source: io::Error) -> CardError {
    let interface = interface.to_owned();
    match Errno::from_io_error(&source) {
        Some(Errno::NODEV) => CardError::Unknown(interface),
        _ => CardError::Refused { interface, source },
    }
}

fn xdp(index: u32, report: &mut CardReport) -> io::Result<()> {
    let mut socket = Socket::generic()?;
    let family = socket.family("netdev")?;
    let bodies = socket.ask(&ethtool::xdp(family, index))?;
    bodies.iter().filter_map(|body| body.get(GENERIC_HEAD..)).for_each(|body| ethtool::read_xdp(body, report));
    Ok(())
}

impl Cards for Netlink {
    fn report(&mut self, interface: &str) -> Result<CardReport, CardError> {
        let link = link(interface).map_err(|source| refused(interface, source))?;
        let mut report = CardReport { most_mtu: link.most_mtu, ..CardReport::default() };
        // Kernels before 5.6 do not have the family, those before 6.3 not the other one.
        if let Ok(mut ethtool) = Ethtool::open() {
            for command in Command::ALL {
                // Drivers say in several ways that they lack something; what cannot be read is not told.
                let bodies = ethtool.socket.ask(&command.get(ethtool.family, interface)).unwrap_or_default();
                let bodies = bodies.iter().filter_map(|body| body.get(GENERIC_HEAD..));
                bodies.for_each(|body| command.read(body, &mut report));
            }
        }
        let _ = xdp(link.index, &mut report);
        Ok(report)
    }

    fn value(&mut self, interface: &str, property: &Property) -> Result<Option<String>, CardError> {
        link(interface).map_err(|source| refused(interface, source))?;
        let Some(command) = Command::of(property) else { return Ok(None) };
        let asked = Ethtool::open().and_then(|mut ethtool| ethtool.socket.ask(&command.get(ethtool.family, interface)));
        match asked {
            Ok(bodies) => {
                let mut report = CardReport::default();
                let bodies = bodies.iter().filter_map(|body| body.get(GENERIC_HEAD..));
                bodies.for_each(|body| command.read(body, &mut report));
                Ok(report.value(property).map(str::to_owned))
            }
            // The driver does not have it; kernels before 5.6 do not have the family. Everything else is no answer.
            Err(source) if matches!(Errno::from_io_error(&source), Some(Errno::OPNOTSUPP | Errno::NOENT)) => Ok(None),
            Err(source) => Err(CardError::Refused { interface: interface.to_owned(), source }),
        }
    }

    fn set(&mut self, interface: &str, property: &Property, value: &str) -> Result<(), CardError> {
        link(interface).map_err(|source| refused(interface, source))?;
        let mut ethtool = Ethtool::open().map_err(|source| refused(interface, source))?;
        let (of, property) = (interface.to_owned(), property.clone());
        let Some(request) = ethtool::set(ethtool.family, interface, &property, value) else {
            return Err(CardError::Value { interface: of, property, value: value.to_owned() });
        };
        match ethtool.socket.ask(&request) {
            Ok(_) => Ok(()),
            Err(source) => Err(match Errno::from_io_error(&source) {
                Some(Errno::OPNOTSUPP) => CardError::Unsupported { interface: of, property },
                Some(Errno::INVAL | Errno::RANGE) => {
                    CardError::Value { interface: of, property, value: value.to_owned() }
                }
                _ => refused(interface, source),
            }),
        }
    }

    fn mtu(&mut self, interface: &str) -> Result<u32, CardError> {
        link(interface).map(|link| link.mtu).map_err(|source| refused(interface, source))
    }

    fn set_mtu(&mut self, interface: &str, bytes: u32) -> Result<(), CardError> {
        link(interface).map_err(|source| refused(interface, source))?;
        let request = Message::new(NEW_LINK, &[0; INTERFACE_HEAD]).with(LINK_NAME, &message::ended(interface));
        let request = request.with(LINK_MTU, &bytes.to_ne_bytes());
        let asked = Socket::interfaces().and_then(|mut socket| socket.ask(&request));
        asked.map(|_| ()).map_err(|source| match Errno::from_io_error(&source) {
            Some(Errno::INVAL | Errno::RANGE) => {
                CardError::Mtu { interface: interface.to_owned(), value: bytes.to_string() }
            }
            _ => refused(interface, source),
        })
    }
}

#[cfg(test)]
mod tests;
