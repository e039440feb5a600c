//! Who is where on the simulated network.

use super::scenario::Scenario;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;

/// A host of a kind: the second octet tells which.
const fn host(kind: u8, index: u16) -> Ipv4Addr {
    let [high, low] = index.to_be_bytes();
    Ipv4Addr::new(10, kind, high, low)
}

const fn all(kind: u8) -> RangeInclusive<Ipv4Addr> {
    host(kind, 0)..=host(kind, u16::MAX)
}

/// Kinds of hosts.
const GATEWAY: u8 = 0;
const NODE: u8 = 1;
const TRIGGER: u8 = 2;
const READER: u8 = 3;
/// Of the first flow; those of the next flow have the next number.
const SOURCE: u8 = 16;

/// Of gateways' ports the first one of each kind; those of the next gateway lie behind. Here gateways listen to nodes.
pub(super) const CONTROL: u16 = 6900;
/// Here they send from.
pub(super) const VOICE: u16 = 6800;
const INPUT: u16 = 7000;
const DECISIONS: u16 = 8000;
/// Between the first ports of two flows; there are fewer gateways.
const NEXT_FLOW: u16 = 100;

/// The port at which gateways take the packets of a flow.
pub(super) const fn input(flow: u8) -> u16 {
    INPUT + NEXT_FLOW * flow as u16
}

/// The port at which readers of a flow's decisions connect to gateways.
pub(super) const fn decisions(flow: u8) -> u16 {
    DECISIONS + NEXT_FLOW * flow as u16
}

impl Scenario {
    /// One of the addresses of a gateway, by the first port of that kind. Gateways have a host each; as input queues of one gateway
    /// they share it, and only their ports tell them apart.
    pub(super) const fn address(&self, gateway: u16, first: u16) -> SocketAddrV4 {
        SocketAddrV4::new(host(GATEWAY, if self.are_queues { 0 } else { gateway }), first + gateway)
    }
}

/// A reader of decisions.
pub(super) const fn reader(reader: u16) -> SocketAddrV4 {
    SocketAddrV4::new(host(READER, reader), 1000)
}

/// A node of the farm.
pub(super) const fn node(node: u16) -> SocketAddrV4 {
    SocketAddrV4::new(host(NODE, node), 5000)
}

/// Where the trigger of a flow hears gateways.
pub(super) const fn trigger(flow: u8) -> SocketAddrV4 {
    SocketAddrV4::new(host(TRIGGER, flow as u16), 4000)
}

/// A source of a flow.
pub(super) const fn source(flow: u8, source: u16) -> SocketAddrV4 {
    SocketAddrV4::new(host(SOURCE + flow, source), 3000)
}

/// A sender that does not belong to the system.
pub(super) const STRANGER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 99, 0, 1), 2000);

/// All gateways.
pub(super) const GATEWAYS: RangeInclusive<Ipv4Addr> = all(GATEWAY);
/// All nodes.
pub(super) const NODES: RangeInclusive<Ipv4Addr> = all(NODE);
/// All triggers.
pub(super) const TRIGGERS: RangeInclusive<Ipv4Addr> = all(TRIGGER);
/// All sources.
pub(super) const SOURCES: RangeInclusive<Ipv4Addr> = host(SOURCE, 0)..=Ipv4Addr::new(10, 98, 255, 255);

/// One host alone.
pub(super) const fn only(at: SocketAddrV4) -> RangeInclusive<Ipv4Addr> {
    *at.ip()..=*at.ip()
}

/// The gateway and the flow of an input.
pub(super) fn input_at(at: SocketAddrV4) -> Option<(u16, u8)> {
    index_of(at, GATEWAY)?;
    let place = at.port().checked_sub(INPUT).filter(|_| at.port() < DECISIONS)?;
    Some((place % NEXT_FLOW, (place / NEXT_FLOW) as u8))
}

/// The gateway that speaks or listens there.
pub(super) fn gateway_at(at: SocketAddrV4) -> Option<u16> {
    index_of(at, GATEWAY)?;
    let ports = [VOICE, CONTROL, INPUT, DECISIONS];
    let place = ports.iter().rev().find_map(|first| at.port().checked_sub(*first))?;
    Some(place % NEXT_FLOW)
}

/// The node that is there.
pub(super) fn node_at(at: SocketAddrV4) -> Option<u16> {
    index_of(at, NODE)
}

/// The source of a flow that is there.
pub(super) fn source_at(at: SocketAddrV4, flow: u8) -> Option<u16> {
    index_of(at, SOURCE + flow)
}

fn index_of(at: SocketAddrV4, kind: u8) -> Option<u16> {
    let [ten, of, high, low] = at.ip().octets();
    (ten == 10 && of == kind).then_some(u16::from_be_bytes([high, low]))
}
