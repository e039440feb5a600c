//! Whom everybody obeys, over the whole run: an epoch is one event manager's, and nobody goes back to a lower one.

use super::broken::{Broken, Checker};
use super::node::Member;
use super::place::Place;
use ropewalk_terms::{Epoch, Incarnation};
use std::collections::BTreeMap;

/// What was seen of it, from the orders that nodes carried out.
#[derive(Clone, Debug, Default)]
pub(super) struct Obedience {
    /// Whose each epoch is.
    owners: BTreeMap<Epoch, Incarnation>,
    /// The highest epoch that each node obeyed, and in which life. A new life knows of none.
    highest: BTreeMap<Place, (u32, Epoch)>,
}

impl Obedience {
    /// Nobody has obeyed anybody yet.
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// A member has had a turn.
    ///
    /// # Errors
    /// Where it obeyed somebody whom it should not.
    pub(super) fn look(&mut self, member: &dyn Member) -> Result<(), Broken> {
        let Some((life, epoch, incarnation)) = member.obeyed() else { return Ok(()) };
        let place = member.around().place;
        let owner = *self.owners.entry(epoch).or_insert(incarnation);
        Broken::unless(owner == incarnation, Checker::Epochs, || {
            format!("{place} obeys {incarnation} in epoch {epoch}, which is {owner}'s")
        })?;
        let (known, highest) = self.highest.entry(place).or_insert((life, epoch));
        if *known != life {
            (*known, *highest) = (life, epoch);
        }
        Broken::unless(epoch >= *highest, Checker::Epochs, || {
            format!("{place} obeys epoch {epoch} after epoch {highest}")
        })?;
        *highest = epoch;
        Ok(())
    }
}
