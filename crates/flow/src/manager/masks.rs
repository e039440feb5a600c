//! Sources that are masked: said to every readout unit, since only the one that has the source knows it; and said again to one that
//! begins anew.

use super::Manager;
use crate::messages::{Mask, Message};
use ropewalk_terms::{NodeId, SourceId};

/// More sources than any system has: beyond that somebody tells nonsense.
const MOST: usize = 1 << 20;

impl Manager {
    /// From now on a source takes part no longer, or again. Before a run this holds from its first event on; during a run the readout
    /// unit that has the source chooses from which event on, and reports it.
    pub fn mask(&mut self, source: SourceId, is_masked: bool) {
        if self.masks.len() < MOST || self.masks.contains_key(&source) {
            self.masks.insert(source, is_masked);
        }
        if !matches!(self.phase, super::run::Phase::Idle) {
            self.send_to_readouts(&Message::Mask(Mask { source, is_masked }));
        }
    }

    /// The sources that take no part, or were told not to.
    pub fn masked(&self) -> impl Iterator<Item = SourceId> + '_ {
        self.masks.iter().filter(|&(_, is_masked)| *is_masked).map(|(&source, _)| source)
    }

    /// A readout unit tells a successor what it was told before.
    pub(super) fn masked_before(&mut self, mask: Mask) {
        if self.masks.len() < MOST {
            self.masks.entry(mask.source).or_insert(mask.is_masked);
        }
    }

    /// To be said to a readout unit before its start, and to one that was away: what was said meanwhile it did not hear.
    pub(super) fn tell_masks(&mut self, node: NodeId) {
        let masks = self.masks.iter().map(|(&source, &is_masked)| (node, Message::Mask(Mask { source, is_masked })));
        self.outbox.extend(masks);
    }
}
