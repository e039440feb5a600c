//! The cards of a recorded machine, which are in its file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{Place, file_of};
use crate::cards::{CardReport, Cards};
use crate::{CardError, Property};

/// The cards of a recorded machine.
pub(super) struct Recorded {
    root: PathBuf,
    cards: BTreeMap<String, CardReport>,
}

impl Recorded {
    const NAME: &str = "cards";

    pub(super) fn new(root: &Path, record: &Map<String, Value>) -> serde_json::Result<Self> {
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

    /// Writes the record again, with everything else unchanged.
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
