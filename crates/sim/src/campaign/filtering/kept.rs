//! Who keeps what filters counted, and knows what must be in it.

use super::super::broken::{Broken, Checker};
use super::scenario::Scenario;
use ropewalk_flow::filter::LumisectionRecord;
use ropewalk_node::drive::RecordKeeper;
use ropewalk_terms::{Ending, RunNumber, TriggerBits, Verdict};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Records that were kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept(Arc<Mutex<Vec<LumisectionRecord>>>);

impl RecordKeeper for Kept {
    fn keep(&mut self, _: RunNumber, record: LumisectionRecord) -> Result<(), LumisectionRecord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(record);
        Ok(())
    }
}

impl Kept {
    /// Every event is counted once, as it ended; every event that a filter decided on filled its histogram once, and no other one did.
    pub(super) fn judge(&self, scenario: &Scenario, ended: &BTreeMap<u64, Ending>) -> Result<(), Broken> {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |of: &dyn Fn(&LumisectionRecord) -> u64| records.iter().map(of).sum::<u64>();
        let are = |of: &dyn Fn(u64, Verdict) -> bool| {
            ended.iter().filter(|(event, ending)| of(**event, ending.verdict)).count() as u64
        };
        let is_accepted = |verdict| matches!(verdict, Verdict::Accepted | Verdict::Unselected);
        let passed = |event, trigger| scenario.decision(event).triggers.meets(TriggerBits::of(trigger));
        let trigger = |number: u32| are(&|event, verdict| is_accepted(verdict) && passed(event, number));
        for (what, counted, due) in [
            ("accepted", sum(&|record| record.accepted), are(&|_, verdict| is_accepted(verdict))),
            ("rejected", sum(&|record| record.rejected), are(&|_, verdict| verdict == Verdict::Rejected)),
            ("set aside", sum(&|record| record.quarantined), are(&|_, verdict| verdict == Verdict::Quarantined)),
            ("of trigger 0", sum(&|record| record.triggers[0]), trigger(0)),
            ("of trigger 1", sum(&|record| record.triggers[1]), trigger(1)),
            ("without a place for what was filled in", sum(&|record| record.dropped_fills), 0),
        ] {
            Broken::unless(counted == due, Checker::Ledger, || {
                format!("{counted} events are counted that are {what}, and there were {due}")
            })?;
        }
        for (&event, ending) in ended {
            let filled = sum(&|record| record.histograms.iter().map(|one| one.counts[event as usize]).sum());
            let due = u64::from(ending.verdict != Verdict::Quarantined);
            Broken::unless(filled == due, Checker::Ledger, || {
                format!(
                    "event {event}, which ended as {ending:?}, is {filled} times in the histogram, and {due} were due"
                )
            })?;
        }
        Ok(())
    }
}
