//! What drivers of network cards report and let be set.
//!
//! The kernel reports it over netlink (families `ethtool` and `netdev`); a recorded machine has it in a file.
//! Everything is optional: drivers report what they have.

mod netlink;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{CardError, Property};

pub use self::netlink::Netlink;

/// The report of one card's driver.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CardReport {
    /// What can be set, and its present value in its normal form.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<(Property, String)>,
    /// The largest receive ring that the card can have, in descriptors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_receive_ring: Option<u32>,
    /// The largest transmit ring that the card can have, in descriptors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_transmit_ring: Option<u32>,
    /// The most combined channels that the card can have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_combined_channels: Option<u32>,
    /// The largest packet that the card can have, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_mtu: Option<u32>,
    /// The speed of the fastest link that the card can have in Mb/s, if its driver reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_megabits: Option<u32>,
    /// That of the fastest one that it offers to the other side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_megabits: Option<u32>,
    /// Features that cannot be changed, and whether they are on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fixed_features: BTreeMap<String, bool>,
    /// The receive queue that each slot of the card's table of flows leads to (receive side scaling).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<u32>,
    /// What the driver can do with XDP programs, by the kernel's names (`basic`, `redirect`, `xsk-zerocopy`, ...).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub xdp: Vec<String>,
}

impl CardReport {
    /// The largest value of a property, if the driver reports one.
    pub(crate) fn most(&self, property: &Property) -> Option<u32> {
        match property {
            Property::ReceiveRing => self.most_receive_ring,
            Property::TransmitRing => self.most_transmit_ring,
            Property::CombinedChannels => self.most_combined_channels,
            _ => None,
        }
    }

    /// Sets the present value of a property that the driver has; whether it has it.
    pub(crate) fn put(&mut self, property: &Property, value: &str) -> bool {
        let of_it = self.properties.iter_mut().find(|(other, _)| other == property);
        of_it.map(|(_, present)| value.clone_into(present)).is_some()
    }

    /// The present value of a property, if the driver has it.
    pub fn value(&self, property: &Property) -> Option<&str> {
        self.properties.iter().find(|(other, _)| other == property).map(|(_, value)| value.as_str())
    }
}

/// The cards of a machine.
pub trait Cards {
    /// The whole report of this interface's driver.
    ///
    /// # Errors
    /// When there is no such interface, or the kernel does not answer.
    fn report(&mut self, interface: &str) -> Result<CardReport, CardError>;

    /// The present value of one property in its normal form. `None` if the driver does not have it.
    ///
    /// # Errors
    /// When there is no such interface, or the driver does not answer, as while it starts the card again.
    fn value(&mut self, interface: &str, property: &Property) -> Result<Option<String>, CardError>;

    /// Sets one property.
    ///
    /// # Errors
    /// When there is no such interface or property, or the driver refuses the value.
    fn set(&mut self, interface: &str, property: &Property, value: &str) -> Result<(), CardError>;

    /// The largest packet in bytes.
    ///
    /// # Errors
    /// When there is no such interface, or the kernel does not answer.
    fn mtu(&mut self, interface: &str) -> Result<u32, CardError>;

    /// Sets the largest packet in bytes.
    ///
    /// # Errors
    /// When there is no such interface, or the driver refuses the size.
    fn set_mtu(&mut self, interface: &str, bytes: u32) -> Result<(), CardError>;
}
