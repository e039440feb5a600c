//! Holds a finding, so that people can read it.

use super::{Finding, find};
use crate::{Activity, Sample};
use core::time::Duration;
use ropewalk_terms::Instant;
use ropewalk_terms::flaws::{Flaw, is_planted};
use std::sync::Arc;

/// A finding of another kind must hold for so long before it takes the place of the one that is shown.
const HOLD: Duration = Duration::from_secs(3);

/// Looks at samples one after the other and says what limits the run. Findings that lose data or stop the run are shown
/// at once; any other has to hold, so that the sentence does not flicker where two things limit a run about equally.
/// Keeps the last sample.
#[derive(Clone, Debug, Default)]
pub struct Finder {
    activity: Activity,
    last: Option<Arc<Sample>>,
    shown: Option<Finding>,
    /// What may take its place, and since when it has been seen.
    next: Option<(Finding, Instant)>,
}

impl Finder {
    /// Looks at the next sample: about once a second is right.
    pub fn observe(&mut self, sample: impl Into<Arc<Sample>>) {
        let sample = sample.into();
        self.activity.observe(&sample);
        let time = sample.time;
        let found = self.last.as_ref().and_then(|before| find(before, &sample, &self.activity));
        let is_another = self.last.as_ref().is_some_and(|before| before.run != sample.run);
        if is_another && !is_planted(Flaw::LastRunsFinding) {
            (self.shown, self.next) = (None, None);
        }
        self.last = Some(sample);
        if let Some(found) = found {
            self.consider(found, time);
        }
    }

    fn consider(&mut self, found: Finding, time: Instant) {
        let is_same = |other: &Finding| other.limit == found.limit && other.subject == found.subject;
        if found.limit.is_urgent() || self.shown.as_ref().is_none_or(is_same) {
            (self.shown, self.next) = (Some(found), None);
            return;
        }
        let since = self.next.as_ref().filter(|(next, _)| is_same(next)).map_or(time, |&(_, since)| since);
        if time.since(since) >= HOLD || is_planted(Flaw::FindingNotHeld) {
            (self.shown, self.next) = (Some(found), None);
        } else {
            self.next = Some((found, since));
        }
    }

    /// What limits the run; none before two samples of it.
    pub const fn finding(&self) -> Option<&Finding> {
        self.shown.as_ref()
    }

    /// Since when each source is silent.
    pub const fn activity(&self) -> &Activity {
        &self.activity
    }
}
