//! Addresses of sources and of what listens.

use crate::quantity::read_from_text;
use ropewalk_flow::gateway::Address;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;

/// From where the sources of a flow send: `10.0.0.1` and the addresses behind it, or `10.0.0.1:20000` and the ports
/// behind that.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Addresses {
    first: Address,
}

const ADDRESSES: &str = "the first source's IPv4 address, such as 10.0.0.1, the next ones having the addresses behind it; \
                         or an address with a port, such as 10.0.0.1:20000, the next ones having the ports behind that";

impl Addresses {
    /// Where the source with this number, counted from 0, sends from; none behind the last address or port there is.
    pub fn of(self, number: u32) -> Option<Address> {
        if self.first.port == 0 {
            let ip = self.first.ip.to_bits().checked_add(number)?;
            return Some(Address::of(Ipv4Addr::from_bits(ip)));
        }
        let port = u32::from(self.first.port).checked_add(number)?;
        Some(Address { port: u16::try_from(port).ok()?, ..self.first })
    }

    /// Whether sources are told apart by ports.
    pub const fn are_ports(self) -> bool {
        self.first.port != 0
    }
}

impl FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {ADDRESSES}");
        let first = if let Ok(ip) = text.parse() {
            Address::of(ip)
        } else {
            let address: SocketAddrV4 = text.parse().map_err(|_| wrong())?;
            Address { ip: *address.ip(), port: address.port() }
        };
        if text.ends_with(":0") { Err(wrong()) } else { Ok(Self { first }) }
    }
}

/// Where packets or messages come in: an IPv4 address with a port.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenAddress(pub SocketAddrV4);

impl ListenAddress {
    /// Where an input queue listens: the ports of a gateway's queues lie behind the first one's, and where packets have no
    /// ports its addresses. Any free port stays one. None behind the last port or address there is.
    pub fn of_queue(self, queue: u16, has_ports: bool) -> Option<SocketAddrV4> {
        let (ip, port) = (*self.0.ip(), self.0.port());
        if !has_ports {
            return Some(SocketAddrV4::new(Ipv4Addr::from_bits(ip.to_bits().checked_add(queue.into())?), 0));
        }
        let port = if port == 0 { 0 } else { port.checked_add(queue)? };
        Some(SocketAddrV4::new(ip, port))
    }
}

const LISTEN: &str = "an IPv4 address with a port, such as 127.0.0.1:9700";

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("`{text}` is not {LISTEN}"))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

read_from_text!(Addresses: ADDRESSES, ListenAddress: LISTEN);

impl Serialize for ListenAddress {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
