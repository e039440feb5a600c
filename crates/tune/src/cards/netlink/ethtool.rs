//! What the kernel's families `ethtool` and `netdev` say of a card (linux/ethtool_netlink.h, linux/netdev.h).

use super::message::{self, Attributes, Message, attribute, attributes, number};
use crate::Property;
use crate::cards::CardReport;

/// The attribute with the interface, in every request.
const HEADER: u16 = 1;
const HEADER_NAME: u16 = 2;
const HEADER_FLAGS: u16 = 3;
/// Of what was set no account is wanted.
const OMIT_REPLY: u32 = 1 << 1;

/// A command that asks for something; the one that sets it is the next one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Command {
    LinkModes = 4,
    Features = 11,
    Rings = 15,
    Channels = 17,
    Coalesce = 19,
    Pause = 21,
    Spread = 38,
}

impl Command {
    pub(super) const ALL: [Self; 7] =
        [Self::LinkModes, Self::Features, Self::Rings, Self::Channels, Self::Coalesce, Self::Pause, Self::Spread];

    /// The one that asks for a property.
    pub(super) fn of(property: &Property) -> Option<Self> {
        match property {
            Property::Feature(_) => Some(Self::Features),
            _ => {
                positions().into_iter().find(|position| position.property == *property).map(|position| position.command)
            }
        }
    }

    /// Asks for it.
    pub(super) fn get(self, family: u16, interface: &str) -> Message {
        let header = Attributes::default().with(HEADER_NAME, &message::ended(interface));
        Message::generic(family, self as u8).with_nested(HEADER, &header)
    }

    /// Puts what an answer says into the report.
    pub(super) fn read(self, answer: &[u8], report: &mut CardReport) {
        match self {
            Self::LinkModes => link_modes(answer, report),
            Self::Features => features(answer, report),
            Self::Spread => spread(answer, report),
            _ => numbers(self, answer, report),
        }
    }
}

/// Where a property that is a number or a switch stands.
struct Position {
    command: Command,
    property: Property,
    attribute: u16,
    /// The attribute with the largest value, where there is one.
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

/// The bits of a set by name. In a set without a mask only those that are set are named, and all of them count as set.
fn bits(answer: &[u8], kind: u16) -> Vec<(String, bool)> {
    let Some(set) = attribute(answer, kind) else { return Vec::new() };
    let without_mask = attribute(set, 1).is_some();
    let bits = attributes(attribute(set, BITS).unwrap_or_default()).filter(|(kind, _)| *kind == BIT);
    let named = |(_, bit)| {
        let name = attribute(bit, BIT_NAME).map(message::text).filter(|name| !name.is_empty())?;
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

/// The attribute with the links that a card can have, those that it offers being set.
const LINK_MODES: u16 = 3;

fn link_modes(answer: &[u8], report: &mut CardReport) {
    // Such as 100000baseSR4/Full; ports and pauses stand there, too, by other names.
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

/// Sets a property. None where the text is no value of it.
pub(super) fn set(family: u16, interface: &str, property: &Property, value: &str) -> Option<Message> {
    if !property.takes(value) {
        return None;
    }
    let header = Attributes::default().with(HEADER_NAME, &message::ended(interface));
    let header = header.with(HEADER_FLAGS, &OMIT_REPLY.to_ne_bytes());
    let request = |command: Command| Message::generic(family, command as u8 + 1).with_nested(HEADER, &header);
    if let Property::Feature(name) = property {
        let bit = Attributes::default().with(BIT_NAME, &message::ended(name));
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

/// The command of the family `netdev` that tells of one device.
const DEVICE_GET: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_XDP: u16 = 3;
/// The kernel's names, from the lowest bit on.
const XDP: [&str; 7] = ["basic", "redirect", "ndo-xmit", "xsk-zerocopy", "hw-offload", "rx-sg", "ndo-xmit-sg"];

/// Asks for what a driver can do with XDP programs.
pub(super) fn xdp(family: u16, index: u32) -> Message {
    Message::generic(family, DEVICE_GET).with(DEVICE_INDEX, &index.to_ne_bytes())
}

/// Reads the answer to it.
pub(super) fn read_xdp(answer: &[u8], report: &mut CardReport) {
    let bits =
        attribute(answer, DEVICE_XDP).and_then(|value| value.first_chunk()).map_or(0, |bits| u64::from_ne_bytes(*bits));
    let has = |(bit, name): (usize, &&str)| (bits >> bit & 1 == 1).then(|| (*name).to_owned());
    report.xdp = XDP.iter().enumerate().filter_map(has).collect();
}
