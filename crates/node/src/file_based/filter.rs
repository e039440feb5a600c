//! Who decides on events of files, and what is looked at in them.

use ropewalk_flow::filter::{BuiltinFilter, Decision, TriggerView};
use ropewalk_terms::{EventKey, SourceId};
use ropewalk_wire::{fed, frd};

/// Decides on events.
pub trait EventFilter {
    /// Decides on the events of a file, in their order, and adds what it decides: whether each is accepted, and which triggers it passed.
    /// That should depend on the event alone: another process may have to decide again.
    ///
    /// # Errors
    /// Where it cannot be said of the event behind those whose decisions were added: the file is then given back.
    fn decide(&mut self, events: &[FileEvent<'_>], decisions: &mut Vec<Decision>) -> Result<(), Undecided>;

    /// What the system lacks for it, for people.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Why a filter cannot decide.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Undecided(pub String);

/// Triggers that are built in, the same ones as a `[filter]` has.
impl EventFilter for BuiltinFilter {
    fn decide(&mut self, events: &[FileEvent<'_>], decisions: &mut Vec<Decision>) -> Result<(), Undecided> {
        decisions.extend(events.iter().map(|event| Self::decide(self, event)));
        Ok(())
    }
}

/// An event of a file, with its fragments.
#[derive(Clone, Debug)]
pub struct FileEvent<'a> {
    event: frd::Event<'a>,
    /// None where the data do not fall apart into fragments.
    fragments: Option<Vec<fed::Fragment<'a>>>,
}

impl<'a> FileEvent<'a> {
    /// Finds the fragments of an event.
    pub fn new(event: frd::Event<'a>) -> Self {
        let places = event.fragments();
        let fragment = |place| fed::Fragment::parse(&event.data()[place]).ok();
        Self { fragments: places.and_then(|places| places.into_iter().map(fragment).collect()), event }
    }

    /// The event as it stands in the file.
    pub const fn event(&self) -> &frd::Event<'a> {
        &self.event
    }

    /// Its fragments; none where its data do not fall apart into such.
    pub fn fragments(&self) -> Option<&[fed::Fragment<'a>]> {
        self.fragments.as_deref()
    }

    /// The event type of the first fragment that has one; 0 where none has.
    pub fn trigger_type(&self) -> u16 {
        let types = self.fragments.iter().flatten().map(|fragment| u16::from(fragment.header().event_type()));
        types.into_iter().find(|&kind| kind != 0).unwrap_or(0)
    }
}

impl TriggerView for FileEvent<'_> {
    fn key(&self) -> EventKey {
        // Resync counts have no place in FRD.
        EventKey::new(0, self.event.header().event)
    }

    fn payload_bytes(&self) -> u64 {
        self.event.data().len() as u64
    }

    fn payload_of(&self, source: SourceId) -> Option<impl Iterator<Item = u8>> {
        let fragment = self.fragments.iter().flatten().find(|fragment| fragment.header().source() == source)?;
        Some(fragment.bytes().iter().copied())
    }
}
