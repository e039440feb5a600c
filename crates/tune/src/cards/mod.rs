//! What drivers of network cards report and let be set.
//!
//! The kernel reports it over netlink (families `ethtool` and `netdev`); a recorded machine has it in a file.
//! Everything is optional: drivers report what they have.

mod netlink;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::place::file_of;
use crate::{Place, Property};

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
    /// The largest value of a property, where the driver says one.
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

/// Why a card could not be read or set.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// There is no such interface.
    #[error("there is no network interface `{0}`")]
    Unknown(String),
    /// The driver has no such property.
    #[error("{interface}: the driver cannot set the {property}")]
    Unsupported {
        /// The interface.
        interface: String,
        /// The property.
        property: Property,
    },
    /// The value is not valid for the property.
    #[error("{interface}: `{value}` is no value of the {property}")]
    Value {
        /// The interface.
        interface: String,
        /// The property.
        property: Property,
        /// The value.
        value: String,
    },
    /// The text is no size of a packet.
    #[error("{interface}: `{value}` is no MTU that it can have: write a number of bytes")]
    Mtu {
        /// The interface.
        interface: String,
        /// The value.
        value: String,
    },
    /// The kernel or the driver refused.
    #[error("{interface}: {source}{}", hint(source))]
    Refused {
        /// The interface.
        interface: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// What would help against what the system said.
fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => "; this needs CAP_NET_ADMIN: run it as root",
        _ => "",
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

/// The cards of a recorded machine.
pub(crate) struct Recorded {
    root: PathBuf,
    cards: BTreeMap<String, CardReport>,
}

impl Recorded {
    const NAME: &str = "cards";

    pub(crate) fn new(root: &Path, record: &Map<String, Value>) -> serde_json::Result<Self> {
        let cards = record.get(Self::NAME).cloned().map(serde_json::from_value).transpose()?;
        Ok(Self { root: root.to_owned(), cards: cards.unwrap_or_default() })
    }

    /// The interface's file of the kernel with its MTU.
    fn mtu_file(&self, interface: &str) -> Result<PathBuf, CardError> {
        let unknown = || CardError::Unknown(interface.to_owned());
        if interface.contains('/') || interface.starts_with('.') {
            return Err(unknown());
        }
        // As for all files of settings: a link out of the recorded machine is not followed.
        let file = file_of(&self.root, &format!("sys/class/net/{interface}/mtu"));
        file.ok().flatten().ok_or_else(unknown)
    }

    /// Writes the record anew, everything else in it as it is.
    fn keep(&self) -> io::Result<()> {
        let path = self.root.join(Place::RECORD);
        let mut record: Map<String, Value> = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Map::new(),
            Err(error) => return Err(error),
        };
        record.insert(Self::NAME.to_owned(), serde_json::to_value(&self.cards)?);
        let mut text = serde_json::to_string_pretty(&record)?;
        text.push('\n');
        // Written to a new file and renamed: a kill in between leaves the old record whole.
        let new = path.with_extension("json.new");
        std::fs::write(&new, text)?;
        std::fs::rename(new, path)
    }
}

impl Cards for Recorded {
    fn report(&mut self, interface: &str) -> Result<CardReport, CardError> {
        match self.cards.get(interface) {
            Some(report) => Ok(report.clone()),
            None => self.mtu_file(interface).map(|_| CardReport::default()),
        }
    }

    fn value(&mut self, interface: &str, property: &Property) -> Result<Option<String>, CardError> {
        Ok(self.report(interface)?.value(property).map(str::to_owned))
    }

    fn set(&mut self, interface: &str, property: &Property, value: &str) -> Result<(), CardError> {
        let mut report = self.report(interface)?;
        let most = report.most(property);
        let interface = interface.to_owned();
        if !property.takes(value) || value.parse().is_ok_and(|count: u32| most.is_some_and(|most| count > most)) {
            return Err(CardError::Value { interface, property: property.clone(), value: value.to_owned() });
        }
        if !report.put(property, value) {
            return Err(CardError::Unsupported { interface, property: property.clone() });
        }
        self.cards.insert(interface.clone(), report);
        self.keep().map_err(|source| CardError::Refused { interface, source })
    }

    fn mtu(&mut self, interface: &str) -> Result<u32, CardError> {
        let refused = |source| CardError::Refused { interface: interface.to_owned(), source };
        let text = std::fs::read_to_string(self.mtu_file(interface)?).map_err(refused)?;
        let wrong = || CardError::Mtu { interface: interface.to_owned(), value: text.trim().to_owned() };
        text.trim().parse().map_err(|_| wrong())
    }

    fn set_mtu(&mut self, interface: &str, bytes: u32) -> Result<(), CardError> {
        let refused = |source| CardError::Refused { interface: interface.to_owned(), source };
        std::fs::write(self.mtu_file(interface)?, format!("{bytes}\n")).map_err(refused)
    }
}
