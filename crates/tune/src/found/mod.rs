//! A host as rules see it: read once, changed by nobody.

mod files;
mod probe;
mod probed;
mod sight;

use std::collections::BTreeMap;

use ropewalk_host::{CardKind, Machine, MachineError};

use crate::cards::CardReport;
use crate::{Place, Process, SettingError, Wish};
use files::Files;

pub use probed::{PathMtu, Permission, Probed, Space, Stamping};
pub(crate) use sight::{Unread, kibibytes_of};

/// A host as rules see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Cores, nodes, cards with their interrupts, huge pages, rights.
    pub machine: Machine,
    /// What the drivers of network cards tell, by interface.
    pub cards: BTreeMap<String, CardReport>,
    /// What has to be tried out.
    pub probed: Probed,
    /// The processes of ours that run there.
    pub processes: Vec<Process>,
    files: Files,
}

/// Why a host could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FoundError {
    /// Not even its CPUs could be read.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Somebody named an interface that there is not.
    #[error("there is no network interface `{name}`; there are {there}")]
    UnknownInterface {
        /// The name.
        name: String,
        /// Those that there are.
        there: String,
    },
    /// The record of a recorded machine is damaged.
    #[error(transparent)]
    Record(#[from] SettingError),
}

impl Found {
    /// Reads the host in `place`: files, what drivers tell, and what has to be tried out.
    ///
    /// # Errors
    /// Where its CPUs cannot be read, where its record is damaged, and where the wish names an interface that it has
    /// not. Everything else that is missing or damaged is said by the rule that wanted it.
    pub fn read(place: &mut Place, wish: &Wish) -> Result<Self, FoundError> {
        let machine = Machine::read(place.root())?;
        let named = wish.interfaces.iter().chain(wish.feeding.iter().map(|feeding| &feeding.interface));
        for name in named {
            if machine.card(name).is_none() {
                let there = machine.cards.iter().map(|card| card.name.as_str()).collect::<Vec<_>>().join(", ");
                return Err(FoundError::UnknownInterface { name: name.clone(), there });
            }
        }
        let hardware = machine.cards.iter().filter(|card| card.kind == CardKind::Physical);
        // A driver that does not answer tells nothing; the other rules go on.
        let cards = hardware.filter_map(|card| Some((card.name.clone(), place.card(&card.name).ok()?))).collect();
        let probed =
            if place.is_live() { Probed::live(&machine, wish) } else { place.record("probed")?.unwrap_or_default() };
        let processes = Process::all(place.root());
        Ok(Self { cards, probed, processes, files: Files::read(place.root()), machine })
    }
}
