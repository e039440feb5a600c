//! The cards of this machine, read by netlink: families `ethtool` and `netdev` for drivers, rtnetlink for the MTU. No
//! program is started. What a driver does not support is left out.
//!
//! Messages (netlink(7)) are built here, and parsed without trust in their content. Numbers are in the byte order of
//! the machine; everything is aligned to four bytes. The attributes of a card are in linux/ethtool_netlink.h and
//! linux/netdev.h.
//!
//! ```text
//! length 4 | kind 2 | flags 2 | sequence 4 | port 4 | head of the family | attributes: length 2, kind 2, value
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use super::{CardError, CardReport, Cards};
use crate::Property;

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

/// An interface as rtnetlink reports it.
struct Link {
    index: u32,
    mtu: u32,
    /// The largest MTU that the driver allows; `None` without a limit (the kernel reports 0 or nothing).
    most_mtu: Option<u32>,
}

fn link(interface: &str) -> io::Result<Link> {
    if interface.is_empty() || interface.len() > LONGEST_NAME || interface.contains(['/', '\0']) {
        return Err(Errno::NODEV.into());
    }
    let request = Message::new(GET_LINK, &[0; INTERFACE_HEAD]).with(LINK_NAME, &ended(interface));
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
    let bodies = socket.ask(&xdp_question(family, index))?;
    bodies.iter().filter_map(|body| body.get(GENERIC_HEAD..)).for_each(|body| read_xdp(body, report));
    Ok(())
}

impl Cards for Netlink {
    fn report(&mut self, interface: &str) -> Result<CardReport, CardError> {
        let link = link(interface).map_err(|source| refused(interface, source))?;
        let mut report = CardReport { most_mtu: link.most_mtu, ..CardReport::default() };
        // Kernels before 5.6 do not have the family, those before 6.3 not the other one.
        if let Ok(mut ethtool) = Ethtool::open() {
            for command in Command::ALL {
                // Drivers say in several ways that they lack something; what cannot be read is left out.
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
        let Some(request) = set(ethtool.family, interface, &property, value) else {
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
        let request = Message::new(NEW_LINK, &[0; INTERFACE_HEAD]).with(LINK_NAME, &ended(interface));
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

/// The attribute with the interface, in every request.
const HEADER: u16 = 1;
const HEADER_NAME: u16 = 2;
const HEADER_FLAGS: u16 = 3;
/// Of what was set no account is wanted.
const OMIT_REPLY: u32 = 1 << 1;

/// A command that asks for something; the one that sets it is the next one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Command {
    LinkModes = 4,
    Features = 11,
    Rings = 15,
    Channels = 17,
    Coalesce = 19,
    Pause = 21,
    Spread = 38,
}

impl Command {
    const ALL: [Self; 7] =
        [Self::LinkModes, Self::Features, Self::Rings, Self::Channels, Self::Coalesce, Self::Pause, Self::Spread];

    /// The one that asks for a property.
    fn of(property: &Property) -> Option<Self> {
        match property {
            Property::Feature(_) => Some(Self::Features),
            _ => {
                positions().into_iter().find(|position| position.property == *property).map(|position| position.command)
            }
        }
    }

    /// Asks for it.
    fn get(self, family: u16, interface: &str) -> Message {
        let header = Attributes::default().with(HEADER_NAME, &ended(interface));
        Message::generic(family, self as u8).with_nested(HEADER, &header)
    }

    /// Puts what an answer says into the report.
    fn read(self, answer: &[u8], report: &mut CardReport) {
        match self {
            Self::LinkModes => link_modes(answer, report),
            Self::Features => features(answer, report),
            Self::Spread => spread(answer, report),
            _ => numbers(self, answer, report),
        }
    }
}

/// The place of a property that is a number or a switch.
struct Position {
    command: Command,
    property: Property,
    attribute: u16,
    /// The attribute with the largest value, if there is one.
    most: Option<u16>,
}

fn positions() -> [Position; 11] {
    use Command::{Channels, Coalesce, Pause, Rings};
    let at = |command, property, attribute, most| Position { command, property, attribute, most };
    [
        at(Rings, Property::ReceiveRing, 6, Some(2)),
        at(Rings, Property::TransmitRing, 9, Some(5)),
        at(Channels, Property::CombinedChannels, 9, Some(5)),
        at(Channels, Property::ReceiveChannels, 6, Some(2)),
        at(Channels, Property::TransmitChannels, 7, Some(3)),
        at(Coalesce, Property::AdaptiveReceive, 11, None),
        at(Coalesce, Property::ReceiveMicroseconds, 2, None),
        at(Coalesce, Property::ReceiveFrames, 3, None),
        at(Pause, Property::NegotiatedPause, 2, None),
        at(Pause, Property::ReceivePause, 3, None),
        at(Pause, Property::TransmitPause, 4, None),
    ]
}

fn numbers(command: Command, answer: &[u8], report: &mut CardReport) {
    for position in positions().into_iter().filter(|position| position.command == command) {
        let most = position.most.map(|most| attribute(answer, most).and_then(number).unwrap_or(0));
        let Some(value) = attribute(answer, position.attribute) else { continue };
        // A card that may have none of them does not have the property.
        if most == Some(0) {
            continue;
        }
        match position.property {
            Property::ReceiveRing => report.most_receive_ring = most,
            Property::TransmitRing => report.most_transmit_ring = most,
            Property::CombinedChannels => report.most_combined_channels = most,
            _ => {}
        }
        let value = if position.property.is_switch() {
            value.first().map(|&byte| switched(byte != 0).to_owned())
        } else {
            number(value).map(|number| number.to_string())
        };
        report.properties.extend(value.map(|value| (position.property, value)));
    }
}

const fn switched(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

const FEATURES_HARDWARE: u16 = 2;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;
const FEATURES_NO_CHANGE: u16 = 5;
const BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

/// The bits of a set by name. A set without a mask names only the bits that are set.
fn bits(answer: &[u8], kind: u16) -> Vec<(String, bool)> {
    let Some(set) = attribute(answer, kind) else { return Vec::new() };
    let without_mask = attribute(set, 1).is_some();
    let bits = attributes(attribute(set, BITS).unwrap_or_default()).filter(|(kind, _)| *kind == BIT);
    let named = |(_, bit)| {
        let name = attribute(bit, BIT_NAME).map(text).filter(|name| !name.is_empty())?;
        Some((name, without_mask || attribute(bit, BIT_VALUE).is_some()))
    };
    bits.filter_map(named).collect()
}

fn features(answer: &[u8], report: &mut CardReport) {
    let has = |bits: &[(String, bool)], name: &str| bits.iter().any(|(other, is_set)| other == name && *is_set);
    let active = bits(answer, FEATURES_ACTIVE);
    let never = bits(answer, FEATURES_NO_CHANGE);
    for (name, may_change) in bits(answer, FEATURES_HARDWARE) {
        let is_on = has(&active, &name);
        if may_change && !has(&never, &name) {
            report.properties.push((Property::Feature(name), switched(is_on).to_owned()));
        } else {
            report.fixed_features.insert(name, is_on);
        }
    }
}

/// The attribute with the link modes that the card supports; those it advertises are set.
const LINK_MODES: u16 = 3;

fn link_modes(answer: &[u8], report: &mut CardReport) {
    // Such as 100000baseSR4/Full; the same set names ports and pauses, in other forms.
    let speed = |name: &str| name.split_once("base")?.0.parse::<u32>().ok();
    let modes = bits(answer, LINK_MODES);
    report.most_megabits = modes.iter().filter_map(|(name, _)| speed(name)).max();
    report.offered_megabits = modes.iter().filter(|(_, is_set)| *is_set).filter_map(|(name, _)| speed(name)).max();
}

/// The attribute with the table of queues.
const SPREAD_TABLE: u16 = 4;

fn spread(answer: &[u8], report: &mut CardReport) {
    let (slots, _) = attribute(answer, SPREAD_TABLE).unwrap_or_default().as_chunks();
    report.spread = slots.iter().map(|slot| u32::from_ne_bytes(*slot)).collect();
}

/// Sets a property. `None` if the text is not a valid value of it.
fn set(family: u16, interface: &str, property: &Property, value: &str) -> Option<Message> {
    if !property.takes(value) {
        return None;
    }
    let header = Attributes::default().with(HEADER_NAME, &ended(interface));
    let header = header.with(HEADER_FLAGS, &OMIT_REPLY.to_ne_bytes());
    let request = |command: Command| Message::generic(family, command as u8 + 1).with_nested(HEADER, &header);
    if let Property::Feature(name) = property {
        let bit = Attributes::default().with(BIT_NAME, &ended(name));
        let bit = if value == "on" { bit.with(BIT_VALUE, &[]) } else { bit };
        let bits = Attributes::default().with_nested(BIT, &bit);
        let set = Attributes::default().with_nested(BITS, &bits);
        return Some(request(Command::Features).with_nested(FEATURES_WANTED, &set));
    }
    let position = positions().into_iter().find(|position| position.property == *property)?;
    let bytes = match value.parse::<u32>() {
        Ok(number) => number.to_ne_bytes().to_vec(),
        Err(_) => vec![u8::from(value == "on")],
    };
    Some(request(position.command).with(position.attribute, &bytes))
}

/// The command of the family `netdev` for one device.
const DEVICE_GET: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_XDP: u16 = 3;
/// The kernel's names, from the lowest bit on.
const XDP: [&str; 7] = ["basic", "redirect", "ndo-xmit", "xsk-zerocopy", "hw-offload", "rx-sg", "ndo-xmit-sg"];

/// Asks for what a driver can do with XDP programs.
fn xdp_question(family: u16, index: u32) -> Message {
    Message::generic(family, DEVICE_GET).with(DEVICE_INDEX, &index.to_ne_bytes())
}

/// Reads the answer to it.
fn read_xdp(answer: &[u8], report: &mut CardReport) {
    let bits =
        attribute(answer, DEVICE_XDP).and_then(|value| value.first_chunk()).map_or(0, |bits| u64::from_ne_bytes(*bits));
    let has = |(bit, name): (usize, &&str)| (bits >> bit & 1 == 1).then(|| (*name).to_owned());
    report.xdp = XDP.iter().enumerate().filter_map(has).collect();
}

/// Bytes of a message before the family's own head.
const HEAD: usize = 16;
/// Bytes of an attribute before its value.
const ATTRIBUTE: usize = 4;
/// Whether there are attributes in an attribute's value.
const NESTED: u16 = 1 << 15;
/// The bits of an attribute's kind that are not flags.
const KIND: u16 = 0x3fff;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
/// The kind of a message that ends the answer to a request.
const ERROR: u16 = 2;

/// A message that is being made.
struct Message {
    kind: u16,
    body: Vec<u8>,
}

impl Message {
    /// A message with the head of its family.
    fn new(kind: u16, head: &[u8]) -> Self {
        Self { kind, body: head.to_vec() }
    }

    /// A message of a generic family (linux/genetlink.h: command, version, two bytes of nothing).
    fn generic(family: u16, command: u8) -> Self {
        Self::new(family, &[command, 1, 0, 0])
    }

    /// With another attribute.
    fn with(mut self, kind: u16, value: &[u8]) -> Self {
        push(&mut self.body, kind, value);
        self
    }

    /// With an attribute that has attributes in it.
    fn with_nested(self, kind: u16, attributes: &Attributes) -> Self {
        self.with(kind | NESTED, &attributes.0)
    }

    /// The bytes of a request whose end the kernel acknowledges.
    fn bytes(&self, sequence: u32) -> Vec<u8> {
        let mut bytes = ((HEAD + self.body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&self.kind.to_ne_bytes());
        bytes.extend_from_slice(&(REQUEST | ACKNOWLEDGE).to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// Attributes that are being made.
#[derive(Default)]
struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds an attribute.
    fn with(mut self, kind: u16, value: &[u8]) -> Self {
        push(&mut self.0, kind, value);
        self
    }

    /// With one that has attributes in it.
    fn with_nested(self, kind: u16, attributes: &Self) -> Self {
        self.with(kind | NESTED, &attributes.0)
    }
}

fn push(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend_from_slice(&((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// What an answer is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Part<'a> {
    /// A message with the answer: the bytes after its header.
    Body(&'a [u8]),
    /// The end: 0, or the number of an error.
    End(i32),
}

/// The parts in bytes from the kernel that answer the request with this number; what else is in them is passed over.
fn parts(mut bytes: &[u8], sequence: u32) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    while let Some((length, head)) = number(bytes).map(|length| length as usize).zip(bytes.get(..HEAD)) {
        let Some(body) = bytes.get(HEAD..length) else { break };
        let kind = u16::from_ne_bytes([head[4], head[5]]);
        if number(&head[8..]) == Some(sequence) {
            match number(body) {
                // The kernel reports errors as negative numbers.
                Some(error) if kind == ERROR => parts.push(Part::End((error as i32).wrapping_neg())),
                _ => parts.push(Part::Body(body)),
            }
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    parts
}

/// The attributes in some bytes: kind and value. They end where one does not fit.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.first_chunk().copied()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & KIND;
        let value = bytes.get(ATTRIBUTE..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of the first attribute of a kind.
fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(other, _)| *other == kind).map(|(_, value)| value)
}

/// The number of four bytes at the beginning.
fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// A text, without the zero that ends it.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The bytes of a text with the zero that ends it.
fn ended(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// As long as a driver may take to answer: some stop the card and start it again for a new ring.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than any answer has.
const ANSWER: usize = 1 << 17;
/// The family that lists families (linux/genetlink.h).
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// A socket to one part of the kernel. It asks the network namespace of the thread that opened it.
#[derive(Debug)]
struct Socket {
    socket: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// To the generic families.
    fn generic() -> io::Result<Self> {
        Self::open(Some(netlink::GENERIC))
    }

    /// To the table of interfaces (rtnetlink(7), which is number 0 and the default).
    fn interfaces() -> io::Result<Self> {
        Self::open(None)
    }

    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Asks for something. The bodies of the messages that answer it, without netlink's own head.
    fn ask(&mut self, message: &Message) -> io::Result<Vec<Vec<u8>>> {
        self.sequence = self.sequence.wrapping_add(1);
        net::send(&self.socket, &message.bytes(self.sequence), SendFlags::empty())?;
        let mut bytes = vec![0; ANSWER];
        let mut bodies = Vec::new();
        loop {
            let (length, _) = retry_on_intr(|| net::recv(&self.socket, &mut bytes[..], RecvFlags::empty()))?;
            for part in parts(&bytes[..length], self.sequence) {
                match part {
                    Part::Body(body) => bodies.push(body.to_vec()),
                    Part::End(0) => return Ok(bodies),
                    Part::End(error) => return Err(io::Error::from_raw_os_error(error)),
                }
            }
        }
    }

    /// The number that a generic family has today.
    fn family(&mut self, name: &str) -> io::Result<u16> {
        let request = Message::generic(CONTROL, GET_FAMILY).with(FAMILY_NAME, &ended(name));
        let bodies = self.ask(&request)?;
        let id = bodies.first().and_then(|body| attribute(body.get(4..)?, FAMILY_ID)?.first_chunk().copied());
        id.map(u16::from_ne_bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;
    use ropewalk_io::packet::cable::{CARD, Cable};

    use super::{Attributes, Part, attributes, parts, *};

    /// An answer as the kernel would send it.
    fn answer(parts: &[(u16, &[u8])]) -> Vec<u8> {
        let message = parts.iter().fold(Message::new(0, &[]), |message, (kind, value)| message.with(*kind, value));
        message.bytes(1)[16..].to_vec()
    }

    #[test]
    fn rings_channels_and_coalescing_are_read() {
        let word = |number: u32| number.to_ne_bytes();
        let mut report = CardReport::default();
        Command::Rings
            .read(&answer(&[(2, &word(8192)), (5, &word(4096)), (6, &word(1024)), (9, &word(512))]), &mut report);
        Command::Channels.read(&answer(&[(2, &word(0)), (5, &word(64)), (6, &word(0)), (9, &word(63))]), &mut report);
        Command::Coalesce.read(&answer(&[(2, &word(8)), (11, &[1])]), &mut report);
        Command::Pause.read(&answer(&[(2, &[0]), (3, &[1]), (4, &[0])]), &mut report);
        Command::Spread.read(&answer(&[(4, &[word(0), word(1), word(0)].concat())]), &mut report);
        read_xdp(&answer(&[(3, &0b1011_u64.to_ne_bytes())]), &mut report);
        let values: Vec<_> = report.properties.iter().map(|(property, value)| format!("{property} {value}")).collect();
        let expected = "receive ring 1024, transmit ring 512, combined channels 63, adaptive coalescing on, coalescing time 8, \
                    negotiated pause frames off, heeded pause frames on, sent pause frames off";
        assert_eq!(values.join(", "), expected);
        assert_eq!((report.most_receive_ring, report.most_transmit_ring), (Some(8192), Some(4096)));
        assert_eq!((report.most_combined_channels, report.spread), (Some(64), vec![0, 1, 0]));
        assert_eq!(report.xdp, ["basic", "redirect", "xsk-zerocopy"]);
    }

    #[test]
    fn links_that_a_card_can_have_are_read() {
        let bits = [("Autoneg", true), ("100000baseSR4/Full", false), ("FIBRE", true), ("25000baseSR/Full", true)];
        let bits = bits.iter().fold(Attributes::default(), |bits, (name, is_set)| {
            let bit = Attributes::default().with(2, &ended(name));
            bits.with_nested(1, &if *is_set { bit.with(3, &[]) } else { bit })
        });
        let answer = |bits: &Attributes| {
            let set = Attributes::default().with_nested(3, bits);
            Message::new(0, &[]).with_nested(3, &set).bytes(1)[16..].to_vec()
        };
        let mut report = CardReport::default();
        Command::LinkModes.read(&answer(&bits), &mut report);
        assert_eq!((report.most_megabits, report.offered_megabits), (Some(100_000), Some(25_000)));
        Command::LinkModes.read(&answer(&Attributes::default()), &mut report);
        assert_eq!((report.most_megabits, report.offered_megabits), (None, None), "a driver that does not tell");
    }

    #[test]
    fn changeable_and_fixed_features_are_told_apart() {
        let set = |names: &[(&str, bool)], is_masked: bool| {
            let bits = names.iter().fold(Attributes::default(), |bits, (name, is_set)| {
                let bit = Attributes::default().with(2, &ended(name));
                bits.with_nested(1, &if *is_set && is_masked { bit.with(3, &[]) } else { bit })
            });
            let set = if is_masked { Attributes::default() } else { Attributes::default().with(1, &[]) };
            set.with_nested(3, &bits)
        };
        let request = Message::new(0, &[])
            .with_nested(
                2,
                &set(&[("rx-gro", true), ("tx-lockless", true), ("rx-lro", false), ("rx-hashing", true)], true),
            )
            .with_nested(4, &set(&[("rx-gro", true), ("tx-lockless", true)], false))
            .with_nested(5, &set(&[("tx-lockless", true), ("rx-gro", false)], true));
        let mut report = CardReport::default();
        Command::Features.read(&request.bytes(1)[16..], &mut report);
        assert_eq!(report.value(&Property::Feature("rx-gro".to_owned())), Some("on"));
        assert_eq!(report.value(&Property::Feature("rx-hashing".to_owned())), Some("off"));
        let fixed: Vec<_> = report.fixed_features.iter().map(|(name, is_on)| (name.as_str(), *is_on)).collect();
        assert_eq!(fixed, [("rx-lro", false), ("tx-lockless", true)]);
    }

    #[test]
    fn an_interface_that_is_not_there_is_unknown() {
        for name in ["none-such0", "", "a-name-that-is-far-too-long", "eth0/..", "eth\0"] {
            let message = format!("there is no network interface `{name}`");
            assert_eq!(Netlink::default().report(name).expect_err(name).to_string(), message);
            assert_eq!(Netlink::default().mtu(name).expect_err(name).to_string(), message);
            assert_eq!(Netlink::default().set_mtu(name, 9000).expect_err(name).to_string(), message);
            let set = Netlink::default().set(name, &Property::ReceiveRing, "64");
            assert_eq!(set.expect_err(name).to_string(), message);
            let value = Netlink::default().value(name, &Property::ReceiveRing);
            assert_eq!(value.expect_err(name).to_string(), message);
        }
    }

    #[test]
    fn the_loop_is_there_and_has_features() {
        let report = Netlink::default().report("lo").expect("every machine has it");
        assert_eq!(report.fixed_features.get("loopback"), Some(&true), "{report:?}");
        assert!(report.properties.iter().any(|(property, _)| matches!(property, Property::Feature(_))), "{report:?}");
        assert_eq!((report.value(&Property::ReceiveRing), report.most_mtu), (None, None), "it has no bound");
        let value = |property: &Property| Netlink::default().value("lo", property).expect("it answers");
        assert!(report.properties.iter().all(|(property, told)| value(property).as_ref() == Some(told)), "{report:?}");
        assert_eq!(value(&Property::ReceiveRing), None, "the driver does not have it");
        assert!(Netlink::default().mtu("lo").expect("every machine has it") > 0);
    }

    /// A veth pair with four queues in its own network namespace.
    fn on_a_cable(test: &str, what: impl FnOnce(&mut Netlink) + Send) {
        match Cable::lay(1500, 4) {
            Ok(cable) => cable.source.inside(|| what(&mut Netlink::default())),
            Err(_) => ropewalk_tidy::skipped(test, "may not make network namespaces"),
        }
    }

    #[test]
    fn what_is_set_is_read_again() {
        on_a_cable("cards::netlink::tests::what_is_set_is_read_again", |cards| {
            let before = cards.report(CARD).expect("it is there");
            let feature = |name: &str| Property::Feature(name.to_owned());
            let changes = [
                (feature("tx-tcp-segmentation"), "off"),
                (feature("rx-gro"), "on"),
                (Property::ReceiveChannels, "2"),
                (Property::TransmitChannels, "3"),
            ];
            for (property, value) in &changes {
                assert_ne!(before.value(property), Some(*value), "{property}: {before:?}");
                cards.set(CARD, property, value).expect("it can be set");
                assert_eq!(cards.report(CARD).expect("it is there").value(property), Some(*value), "{property}");
            }
            cards.set_mtu(CARD, 9000).expect("it can be set");
            assert_eq!(cards.mtu(CARD).expect("it is there"), 9000);
            assert_eq!(before.most_mtu, Some(65535), "veth.c, ETH_MAX_MTU");
            assert!(before.xdp.contains(&"basic".to_owned()), "{before:?}");
        });
    }

    #[test]
    fn what_a_driver_refuses_is_reported() {
        on_a_cable("cards::netlink::tests::what_a_driver_refuses_is_reported", |cards| {
            let mut said = |property: Property, value: &str| {
                cards.set(CARD, &property, value).expect_err("it is refused").to_string()
            };
            assert_eq!(said(Property::ReceiveRing, "64"), "veth0: the driver cannot set the receive ring");
            assert_eq!(said(Property::ReceiveChannels, "99"), "veth0: `99` is no value of the receive channels");
            assert_eq!(said(Property::ReceiveChannels, "many"), "veth0: `many` is no value of the receive channels");
            let none = Property::Feature("no-such-feature".to_owned());
            assert_eq!(said(none, "on"), "veth0: the driver cannot set the no-such-feature");
            assert_eq!(
                cards.set_mtu(CARD, 7).expect_err("it is refused").to_string(),
                "veth0: `7` is no MTU that it can have: write a number of bytes"
            );
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Every view over bytes from outside returns; what is cut off is left out.
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), small in prop::collection::vec(0..12_u8, 0..300)) {
            for bytes in [&bytes, &small] {
                for part in parts(bytes, 0) {
                    if let Part::Body(body) = part {
                        prop_assert!(body.len() <= bytes.len());
                    }
                }
                prop_assert!(attributes(bytes).map(|(_, value)| value.len() + 4).sum::<usize>() <= bytes.len());
                let mut report = CardReport::default();
                Command::ALL.into_iter().for_each(|command| command.read(bytes, &mut report));
                read_xdp(bytes, &mut report);
            }
        }

        #[test]
        fn what_is_made_is_read(kinds in prop::collection::vec((0..99_u16, prop::collection::vec(any::<u8>(), 0..40)), 0..9), sequence: u32) {
            let message = kinds.iter().fold(Message::new(77, &[]), |message, (kind, value)| message.with(*kind, value));
            let bytes = [message.bytes(sequence), message.bytes(sequence.wrapping_add(1)), message.bytes(sequence)].concat();
            let read = parts(&bytes, sequence);
            prop_assert_eq!(read.len(), 2);
            let Part::Body(body) = read[1] else { panic!("no error was written") };
            let attributes: Vec<_> = attributes(body).map(|(kind, value)| (kind, value.to_vec())).collect();
            prop_assert_eq!(attributes, kinds);
        }
    }
}
