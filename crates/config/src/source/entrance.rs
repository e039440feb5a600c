//! The input of a source.
//!
//! Sources may share an input: boards that send to one address, or whose packets are in one capture.

use super::layout::{BoardChoice, DemuxTable, FrameChoice, FrameTable, PeerOrPlace};
use super::{FormatName, SourceSection};
use crate::error::{Fault, Faults};
use crate::felix::{ELinkSection, FelixSection};
use crate::quantity::{ByteOrigin, Form, read_from_text};
use ropewalk_flow::choosing::{Chosen, Wanted};
use ropewalk_flow::readout::felix::EventRule;
use ropewalk_flow::trial::OwnBoard;
use ropewalk_wire::front_end::LARGEST_SETTINGS_BYTES;
use ropewalk_wire::mending::StreamFrames;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

/// The origin of a source's data.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum SourceInput {
    /// The source connects to `listen` of its readout unit and identifies itself.
    #[default]
    Readout,
    /// A program that run control configures with these settings; it connects as well.
    Controlled(Option<Settings>),
    /// A connection to this address, or datagrams that arrive there.
    Listen(NetworkAddress),
    /// A connection to the board, which listens at this address.
    Connect(NetworkAddress),
    /// A file, a FIFO or standard input; of a capture these packets.
    File(ByteOrigin, PacketsTable),
    /// The standard output of a program with these arguments.
    Program(Vec<String>),
    /// An e-link of a link card.
    Card(ELinkSection),
    /// A file of S-LINK64 fragments, which is played over TCP.
    Played(PathBuf),
}

impl SourceInput {
    /// The key that selects it.
    pub(super) const fn key(&self) -> &'static str {
        match self {
            Self::Readout => "readout",
            Self::Controlled(_) => "controlled",
            Self::Listen(_) => "listen",
            Self::Connect(_) => "connect",
            Self::File(..) => "input",
            Self::Program(_) => "program",
            Self::Card(_) => "felix",
            Self::Played(_) => "play",
        }
    }
}

/// A place in the network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NetworkAddress {
    /// A TCP service: `tcp://HOST:PORT`.
    Tcp(String),
    /// Datagrams: `udp://HOST:PORT`. The group of a multicast address is joined at the interface that has the second
    /// address: `udp://GROUP:PORT@ADDRESS`; where the kernel's routes lead to without one.
    Udp(String, Option<IpAddr>),
    /// Straight over IP: `ip://ADDRESS/PROTOCOL`.
    Ip(Ipv4Addr, u8),
}

const NETWORK_ADDRESS: &str = "tcp://HOST:PORT, udp://HOST:PORT or ip://ADDRESS/PROTOCOL, such as tcp://daqpc2:5000, \
                               udp://0.0.0.0:9000, udp://[::]:9000 or ip://10.0.0.5/253";

impl FromStr for NetworkAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {NETWORK_ADDRESS}");
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let is_place = |place: &str| place.rsplit_once(':').is_some_and(|(host, _)| !host.is_empty());
        match scheme {
            "tcp" if is_place(rest) && port_of(rest).is_some() => Ok(Self::Tcp(rest.to_owned())),
            "udp" => {
                let (place, interface) = rest.split_once('@').map_or((rest, None), |(place, at)| (place, Some(at)));
                let interface: Option<IpAddr> = interface.map(str::parse).transpose().map_err(|_| wrong())?;
                let is_bare_v6 =
                    place.rsplit_once(':').is_some_and(|(host, _)| host.contains(':') && !host.ends_with(']'));
                if !is_place(place) || port_of(place).is_none() || is_bare_v6 {
                    return Err(wrong());
                }
                let is_same = |group: IpAddr| interface.is_none_or(|interface| interface.is_ipv4() == group.is_ipv4());
                if place.parse().is_ok_and(|place: SocketAddr| !is_same(place.ip())) {
                    return Err(format!(
                        "`{text}`: the group and the interface's address are of the same version of IP"
                    ));
                }
                Ok(Self::Udp(place.to_owned(), interface))
            }
            "ip" => {
                let (address, protocol) = rest.split_once('/').ok_or_else(wrong)?;
                let numbers = address.parse().ok().zip(protocol.parse().ok());
                numbers.map(|(address, protocol)| Self::Ip(address, protocol)).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }
}

impl NetworkAddress {
    /// The port; `None` without one and for port 0, which means any free port.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp(place) | Self::Udp(place, _) => port_of(place).filter(|port| *port != 0),
            Self::Ip(..) => None,
        }
    }
}

/// The port of `HOST:PORT`.
fn port_of(place: &str) -> Option<u16> {
    place.rsplit_once(':').and_then(|(_, port)| port.parse().ok())
}

impl fmt::Display for NetworkAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(place) => write!(out, "tcp://{place}"),
            Self::Udp(place, None) => write!(out, "udp://{place}"),
            Self::Udp(place, Some(interface)) => write!(out, "udp://{place}@{interface}"),
            Self::Ip(address, protocol) => write!(out, "ip://{address}/{protocol}"),
        }
    }
}

read_from_text!(
    NetworkAddress: NETWORK_ADDRESS => Form::Pattern(r"tcp://.+:[0-9]+|udp://.+:[0-9]+(?:@.+)?|ip://.+/[0-9]+".to_owned())
);

/// Which packets of a capture belong to a source.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PacketsTable {
    /// Packets to this port.
    pub port: Option<u16>,
    /// Packets from this address.
    pub from: Option<IpAddr>,
    /// Packets from this port.
    pub from_port: Option<u16>,
    /// Packets to this address.
    pub to: Option<IpAddr>,
    /// Packets directly over IP with this protocol number.
    pub protocol: Option<u8>,
    /// Which of the selected connections, counted from 1 in the order in which they begin to carry something.
    pub connection: Option<NonZeroU32>,
}

/// A table, handed on as TOML, or a text of any form.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings(pub String);

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(from)? {
            toml::Value::String(text) => Ok(Self(text)),
            toml::Value::Table(table) => toml::to_string(&table).map(Self).map_err(de::Error::custom),
            other => Err(de::Error::custom(format!("a table [source.settings] or a text, not {}", other.type_str()))),
        }
    }
}

impl JsonSchema for Settings {
    fn schema_name() -> Cow<'static, str> {
        "Settings".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["object", "string"], "description": "a table, or a text of any form" })
    }
}

impl SourceSection {
    /// The file, FIFO or standard input that it is read from, and which packets of a capture are meant.
    pub const fn file(&self) -> Option<(&ByteOrigin, PacketsTable)> {
        match &self.input {
            SourceInput::File(origin, packets) => Some((origin, *packets)),
            _ => None,
        }
    }

    /// Its e-link, if it is one of a link card.
    pub const fn link(&self) -> Option<&ELinkSection> {
        match &self.input {
            SourceInput::Card(link) => Some(link),
            _ => None,
        }
    }

    /// The settings of a source under run control.
    pub const fn settings(&self) -> Option<&Settings> {
        match &self.input {
            SourceInput::Controlled(settings) => settings.as_ref(),
            _ => None,
        }
    }

    /// The packets to select if it is read from a capture, and the frames if it is read from a stream.
    pub fn wanted(&self) -> Wanted {
        let packets = self.file().map_or_else(PacketsTable::default, |(_, packets)| packets);
        let PacketsTable { port, from, from_port, to, protocol, connection } = packets;
        let connection = connection.map_or(0, |number| number.get() as usize - 1);
        let chosen = self.chosen();
        let senders = match self.named_board() {
            Some(OwnBoard::Addresses(addresses)) => addresses,
            _ => Vec::new(),
        };
        let (frames, max_frame) = (self.stream_frames(), usize::try_from(self.max_fragment.0).unwrap_or(usize::MAX));
        Wanted {
            port,
            from,
            from_port,
            to,
            protocol,
            senders,
            connection,
            others: Vec::new(),
            frames,
            max_frame,
            chosen,
        }
    }

    /// What its frames are in a stream, as far as that can be known before.
    pub fn stream_frames(&self) -> Option<StreamFrames> {
        match self.framing() {
            Some(description) if description.needs_datagrams() => None,
            Some(description) => Some(description.into()),
            None => Some(StreamFrames::Generic),
        }
    }

    /// The same, given all sources of the configuration in order. Sources that are read from the same connections of
    /// the same capture have one each, the first source the first one, unless `connection` selects one. Sources that a
    /// number in the frames of the same stream distinguishes exclude each other's frames.
    pub fn wanted_beside<'s>(&self, sources: impl Iterator<Item = &'s Self>) -> Wanted {
        let sources: Vec<&Self> = sources.collect();
        let beside = sources.iter().filter(|source| self.shares_connections(source)).enumerate();
        let numbered = beside.map(|(place, source)| {
            let said = source.file().and_then(|(_, packets)| packets.connection);
            (source.id, said.map_or(place, |number| number.get() as usize - 1))
        });
        let (own, others): (Vec<_>, Vec<_>) = numbered.partition(|(id, _)| *id == self.id);
        let wanted = self.wanted();
        let connection = own.first().map_or(wanted.connection, |(_, number)| *number);
        let chosen = wanted.chosen.map(|chosen| self.chosen_beside(chosen, &sources));
        Wanted { connection, others: others.into_iter().map(|(_, number)| number).collect(), chosen, ..wanted }
    }

    /// The board whose frames a trial looks at; `None` means all frames, if the configuration does not name the board.
    pub fn tried_board(&self, wanted: &Wanted) -> Option<OwnBoard> {
        wanted.chosen.as_ref().map(|chosen| chosen.board.clone()).or_else(|| self.named_board())
    }

    /// Which frames are its own, where other sources are read from the same stream.
    fn chosen_beside(&self, chosen: Chosen, sources: &[&Self]) -> Chosen {
        let is_beside = |source: &&&Self| self.input == source.input;
        let boards = sources.iter().filter(is_beside).filter_map(|source| Some((source.id, source.chosen()?.board)));
        let boards = boards.enumerate().map(|(place, (id, board))| match board {
            OwnBoard::InOrder(_) => (id, OwnBoard::InOrder(place)),
            board => (id, board),
        });
        let boards: Vec<_> = boards.collect();
        let is_first = boards.first().is_none_or(|(id, _)| *id == self.id);
        let (own, others): (Vec<_>, Vec<_>) = boards.into_iter().partition(|(id, _)| *id == self.id);
        let board = own.into_iter().next().map_or(chosen.board, |(_, board)| board);
        let others = others.into_iter().map(|(_, board)| board).collect();
        Chosen { board, others, is_first, ..chosen }
    }

    /// Whether it is read from a connection that the same words of the same capture mean; it does with itself.
    fn shares_connections<'s>(&'s self, other: &'s Self) -> bool {
        // A source that names its board does not depend on the order of the connections.
        let is_told_apart =
            |demux: &DemuxTable| demux.is.is_some() || matches!(demux.at, PeerOrPlace::Place(_) | PeerOrPlace::Frame);
        let in_connections =
            |source: &Self| !source.has_datagrams() && !source.demux.as_ref().is_some_and(is_told_apart);
        let connections = |source: &'s Self| {
            let (origin, packets) = source.file().filter(|_| in_connections(source))?;
            Some((origin, PacketsTable { connection: None, ..packets }))
        };
        connections(self).is_some_and(|own| connections(other) == Some(own))
    }

    /// Whether it is read from the same packets of the same capture as another source, and something tells them apart.
    pub fn shares_capture(&self, other: &Self) -> bool {
        let is_same = self.file().is_some() && self.input == other.input && self.readout == other.readout;
        is_same && self.demux.is_some() && other.demux.is_some()
    }

    /// Whether its frames come in datagrams, by its address or because they can in no other way.
    pub fn has_datagrams(&self) -> bool {
        let in_frames = |frame: &FrameTable| frame.datagram || frame.several || frame.pieces.is_some();
        let needed = match (&self.frame, self.format) {
            (Some(FrameChoice(frame)), _) => in_frames(frame),
            (None, FormatName::Foreign(format)) => format.needs_datagrams(),
            (None, _) => false,
        };
        needed || self.comes_in_datagrams()
    }

    /// Whether it sends datagrams to the same address as another source, and something tells them apart.
    pub fn shares_socket(&self, other: &Self) -> bool {
        self.listens_beside(other) && self.demux.is_some() && other.demux.is_some()
    }

    /// Whether both receive datagrams at the same address of one readout unit; other readout units may be on other
    /// machines.
    fn listens_beside(&self, other: &Self) -> bool {
        let is_any_port =
            matches!(&self.input, SourceInput::Listen(place @ NetworkAddress::Udp(..)) if place.port().is_none());
        self.comes_in_datagrams() && self.input == other.input && !is_any_port && self.readout == other.readout
    }
}

impl FelixSection {
    /// The place of the event number in the chunks of one of its e-links.
    pub fn rule_of(&self, source: &SourceSection) -> EventRule {
        let own = source.link().and_then(|link| link.event);
        own.unwrap_or(self.event).rule()
    }
}

/// Checks what run control fixes for its sources: their format and their numbers.
pub(crate) fn check_controlled(source: &SourceSection, key: impl Fn(&str) -> String, faults: &mut Faults) {
    let SourceInput::Controlled(settings) = &source.input else { return };
    if source.emulate.is_none() && source.format != FormatName::Generic {
        let message = "a source with `controlled` sends generic fragments: format = \"generic\"";
        faults.add(key("format"), message);
    }
    if source.first.is_some_and(|first| first != 1) {
        faults.add(key("first"), "run control tells a source with `controlled` its first event's number, 1");
    }
    let most = LARGEST_SETTINGS_BYTES;
    if settings.as_ref().is_some_and(|settings| settings.0.len() > most) {
        faults.add(key("settings"), format!("settings have at most {most} bytes"));
    }
}

/// What is wrong with the ways in of a source.
pub(crate) fn check_entrance(source: &SourceSection, key: impl Fn(&str) -> String, faults: &mut Faults) {
    if let (FormatName::Foreign(format), None) = (source.format, &source.emulate) {
        let name = format.name();
        if format.needs_datagrams() && !source.comes_in_datagrams() && source.file().is_none() {
            let message = format!("frames of `{name}` come in datagrams: listen = \"udp://0.0.0.0:9000\"");
            faults.add(key("format"), message);
        }
        if source.input == SourceInput::Readout {
            let message =
                format!("nothing in `{name}` says whose it is: give `listen`, `connect`, `input` or `program`");
            faults.add(key("format"), message);
        }
    }
    if let Err(message) = check_demux(source) {
        faults.add(key("demux"), message);
    }
    if matches!(&source.input, SourceInput::Program(program) if program.is_empty()) {
        faults.add(key("program"), "a program and its arguments, such as [\"ssh\", \"board7\", \"read-out\"]");
    }
    if let SourceInput::Connect(NetworkAddress::Udp(..) | NetworkAddress::Ip(..)) = source.input {
        faults.add(key("connect"), "only TCP connects; datagrams are listened for: `listen`");
    }
}

/// Whether boards can be told apart in the way in which the source comes.
fn check_demux(source: &SourceSection) -> Result<(), &'static str> {
    let Some(demux) = source.demux.as_ref().filter(|_| source.emulate.is_none()) else { return Ok(()) };
    if !source.comes_in_datagrams() && source.file().is_none() {
        return Err(
            "one board sends over a connection; boards can be distinguished in datagrams and in files (`input`)",
        );
    }
    if demux.at == PeerOrPlace::Frame && source.file().is_some() && source.chosen().is_none() {
        return Err("each source takes its own frames of the file: which ones? `is = 3`");
    }
    Ok(())
}

/// Checks that sources sharing a socket or a capture can be told apart.
pub(crate) fn check_shared(sources: &[SourceSection], faults: &mut Faults) {
    for (index, source) in sources.iter().enumerate() {
        for (first, known) in sources[..index].iter().enumerate() {
            let key = |field: &str| format!("source[{index}].{field}");
            if known.listens_beside(source) {
                faults.keep(one_socket(first, known, source).map_err(|message| Fault::new(key("listen"), message)));
            }
            if known.listens_beside(source) || known.shares_capture(source) {
                let (Some(known), Some(demux)) = (&known.demux, &source.demux) else { continue };
                faults.keep(told_apart(first, known, demux).map_err(|message| Fault::new(key("demux"), message)));
            }
        }
    }
}

/// There is one socket, and whose a datagram is must be known.
fn one_socket(first: usize, known: &SourceSection, source: &SourceSection) -> Result<(), String> {
    if known.demux.is_none() || source.demux.is_none() {
        let demux = "`demux = { at = \"ip.source\" }` in both";
        return Err(format!("source[{first}] listens there, too: what tells the two boards apart? {demux}"));
    }
    Ok(())
}

/// Checks that two sources select their boards by the same field, and that no board is named twice.
fn told_apart(first: usize, known: &DemuxTable, demux: &DemuxTable) -> Result<(), String> {
    let by = |demux: &DemuxTable| (demux.at, demux.kind, demux.mask, demux.shift);
    if by(known) != by(demux) {
        return Err(format!(
            "source[{first}], which shares its way in, is distinguished by something else: one of the two is wrong"
        ));
    }
    match (&known.is, &demux.is) {
        (Some(one), Some(other)) => match other.all().iter().find(|board| one.all().contains(board)) {
            Some(board) => Err(format!("source[{first}] is {} already", name(*board))),
            None => Ok(()),
        },
        (Some(_), None) | (None, Some(_)) => {
            Err(format!("either both this and source[{first}] say which board they are (`is`), or neither does"))
        }
        _ => Ok(()),
    }
}

fn name(board: BoardChoice) -> String {
    match board {
        BoardChoice::Number(number) => format!("the board {number}"),
        BoardChoice::Address(address) => format!("the board at {address}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_the_network_are_read_and_written() {
        for text in [
            "tcp://daqpc2:5000",
            "tcp://[::1]:0",
            "udp://239.1.2.3:9000",
            "udp://239.1.2.3:9000@10.0.0.7",
            "udp://daqpc2:9000",
            "udp://[::1]:9000",
            "udp://[ff15::9]:9000@2001:db8::7",
            "udp://[ff02::9%eth0]:9000",
            "ip://10.0.0.5/253",
        ] {
            assert_eq!(text.parse::<NetworkAddress>().map(|place| place.to_string()).as_deref(), Ok(text));
        }
        for text in [
            "daqpc2:5000",
            "tcp://daqpc2",
            "tcp://:1",
            "udp://daqpc2",
            "udp://:1",
            "udp://fe80::1:9000",
            "ip://10.0.0.5",
            "ip://10.0.0.5/256",
            "x://1",
        ] {
            let error = text.parse::<NetworkAddress>().expect_err(text);
            assert!(error.contains("udp://0.0.0.0:9000"), "{error}");
        }
        let mixed = "udp://[ff15::9]:9000@10.0.0.7".parse::<NetworkAddress>().expect_err("two versions");
        assert!(mixed.contains("the same version of IP"), "{mixed}");
    }
}
