//! An event as whoever writes it sees it.

use super::BuilderSource;
use crate::messages::Fragment;
use ropewalk_terms::{Attempt, Cause, EventKey, SourceId};

/// An emitted event. It is there until its slot has reached `Written`, or has failed.
#[derive(Copy, Clone, Debug)]
pub struct EventView<'a> {
    /// The event.
    pub key: EventKey,
    /// The attempt that this is.
    pub attempt: Attempt,
    /// The lumisection to which it belongs, from 1.
    pub lumisection: u32,
    /// Every required source is there.
    pub complete: bool,
    pub(super) sources: &'a [BuilderSource],
    pub(super) fragments: &'a [Option<Fragment>],
    pub(super) causes: &'a [Option<Cause>],
}

impl<'a> EventView<'a> {
    /// The fragments, in the order of the configured sources.
    pub fn fragments(&self) -> impl Iterator<Item = &'a Fragment> + Clone + use<'a> {
        self.fragments.iter().flatten()
    }

    /// The required sources that are missing, and why, in the configured order.
    pub fn missing(&self) -> impl Iterator<Item = (SourceId, Cause)> + Clone + use<'a> {
        let places = self.sources.iter().zip(self.causes);
        places.filter_map(|(source, cause)| cause.map(|cause| (source.id, cause)))
    }

    /// The trigger type of the first fragment that has one; 0 where none has.
    pub fn trigger_type(&self) -> u16 {
        self.fragments().map(|fragment| fragment.meta.trigger_type).find(|&kind| kind != 0).unwrap_or(0)
    }

    /// Bytes of all payloads.
    pub fn payload_bytes(&self) -> u64 {
        self.fragments().map(|fragment| u64::from(fragment.meta.length)).sum()
    }
}
