//! Why an event stands in the files more than once, or is forgotten by who ended the run: each needs a reason of its own.
//!
//! An event manager gives an event to somebody else when its builder unit is lost, and counts that. A successor gives it
//! to somebody again, without a count, where nobody could tell it that it was done: its writer had died by then, was not
//! heard in time, or had forgotten it, because it remembers no more events than the event manager's table and twice its slots
//! hold. The last one matters only where a readout unit still held the event, whose release it had not heard.

use super::broken::{Broken, Checker};
use super::fault::Fault;
use super::machines::ManagerMachine;
use super::place::Place;
use super::referee::{Held, Record};
use super::timeline::Timeline;
use super::world::World;
use ropewalk_terms::{Attempt, Epoch, Instant};
use std::collections::BTreeMap;

/// The epoch whose event manager assigned an event in this attempt: each has a range of its own, but for the first one,
/// which counts from one.
fn epoch_of(attempt: Attempt) -> Epoch {
    Epoch(u32::from(attempt.0 >> 8).max(1))
}

impl World {
    /// Every copy of an event but its first one was assigned for a reason.
    ///
    /// # Errors
    /// Where an event manager had more written again than it had reason to.
    pub(super) fn judge_copies(&self, held: &Held, timeline: &Timeline) -> Result<(), Broken> {
        let mut again: BTreeMap<Epoch, Vec<u64>> = BTreeMap::new();
        for (&event, copies) in &held.events {
            for two in copies.windows(2) {
                let epoch = epoch_of(two[1].attempt);
                let is_excused = || {
                    self.was_untold(event, &two[0], epoch)
                        || self.was_unreleased(timeline, event, epoch) && self.has_forgotten(held, &two[0], epoch)
                };
                if epoch_of(two[0].attempt) == epoch || !is_excused() {
                    again.entry(epoch).or_default().push(event);
                }
            }
        }
        let mut written = 0;
        again.into_iter().try_for_each(|(epoch, events)| {
            // What was assigned again may be written again only when a successor has assigned it once more (seed 21739).
            let reassigned = self.reign.reassigned_until(epoch);
            written += events.len() as u64;
            Broken::unless(written <= reassigned, Checker::Keys, || {
                format!("{written} events were written again until epoch {epoch}, the last ones {events:?}, and {reassigned} \
                         were assigned again")
            })
        })
    }

    /// Whether nobody could tell the successor with this epoch that a copy had been written.
    fn was_untold(&self, event: u64, copy: &Record, epoch: Epoch) -> bool {
        let Some(recovery) = self.reign.recovery_in(epoch) else { return false };
        let heard = recovery.until.unwrap_or(Instant::FAR_FUTURE);
        recovery.is_blind(&self.scenario) || self.writer_died(event, copy, heard)
    }

    /// Whether the builder unit's life that wrote a copy had ended by then.
    fn writer_died(&self, event: u64, copy: &Record, by: Instant) -> bool {
        let mut own = self.safe.deaths.iter().filter(|death| death.place == Place::Builder(copy.writer));
        own.any(|death| death.at <= by && death.copies.contains(&(event, copy.attempt)))
    }

    /// Whether readout units may hold an event that was released: they did not hear the event manager that this one
    /// succeeded.
    fn was_unreleased(&self, timeline: &Timeline, event: u64, epoch: Epoch) -> bool {
        let Some(recovery) = self.reign.recovery_in(epoch) else { return false };
        let heard = recovery.until.unwrap_or(Instant::FAR_FUTURE);
        self.injection.happened.iter().any(|disturbance| {
            let places = disturbance.fault.places();
            let is_manager = |place: &Place| matches!(place, Place::Manager(_));
            let is_readout = |place: &Place| matches!(place, Place::Readout(_));
            let between = places.iter().any(is_manager) && places.iter().any(is_readout);
            let is_deaf = between || matches!(disturbance.fault, Fault::ManagerCutOff(_));
            is_deaf && disturbance.from <= heard && timeline.begun[event as usize] <= disturbance.until
        })
    }

    /// Whether whoever wrote a copy has done so much since, before this epoch, that it may not remember: what it has in
    /// work at one time it acknowledges in any order, so that as many may stand before it as it has slots (seed 21195).
    /// What is in no file may have been dropped, and is remembered as well.
    fn has_forgotten(&self, held: &Held, copy: &Record, epoch: Epoch) -> bool {
        let all = held.events.values().flatten();
        let own = all.filter(|one| one.writer == copy.writer && one.incarnation == copy.incarnation);
        let later = own.filter(|one| one.place > copy.place && epoch_of(one.attempt) < epoch).count() as u64;
        let dropped = self.scenario.events - held.events.len() as u64;
        later + dropped > u64::from(self.scenario.rooms.slots + self.scenario.rooms.table)
    }

    /// Whether the event manager that ended the run cannot have known of an event that is in a file: it is the successor
    /// of who had it written, and whoever held or wrote it had died before that one had heard everybody. Nobody looks into
    /// the files of an earlier life, so that the run may end before it where its sources had nothing more to show.
    pub(super) fn is_forgotten(&self, held: &Held, timeline: &Timeline, event: u64) -> bool {
        let Some(epoch) = self.spoken_for().and_then(ManagerMachine::speaks) else { return false };
        let Some(recovery) = self.reign.recovery_in(epoch) else { return false };
        // Who came too late may have died before it could tell.
        let heard = recovery.until.filter(|_| !recovery.is_blind(&self.scenario)).unwrap_or(Instant::FAR_FUTURE);
        let is_gone = |copy: &Record| epoch_of(copy.attempt) < epoch && self.writer_died(event, copy, heard);
        let held_it = |source: usize| {
            let readout = Place::Readout(self.scenario.readout_of(source));
            let mut deaths = self.safe.deaths.iter().filter(|death| death.place == readout && death.at <= heard);
            timeline.courses[source].delivered[event as usize].is_none_or(|came| deaths.any(|death| death.at >= came))
        };
        held.events[&event].iter().all(is_gone) && (0..self.scenario.sources.len()).all(held_it)
    }
}
