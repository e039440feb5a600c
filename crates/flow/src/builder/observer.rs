//! What the builder shows of each event to the watch over synchrony, and what it does about the verdicts.

use super::BuilderSource;
use super::synchrony::{Action, Config, ConfigError, Observation, Synchrony};
use crate::messages::{Fragment, FragmentFlags, SynchronyState};
use ropewalk_terms::{Cause, EventKey, Requirement};
use std::collections::VecDeque;

/// The machine that watches, with its settings for the next run and what it said that the manager has not heard.
#[derive(Debug)]
pub(super) struct Observer {
    config: Config,
    machine: Synchrony,
    observations: Vec<Observation>,
    changes: VecDeque<SynchronyState>,
}

impl Observer {
    /// A watch over these sources.
    pub(super) fn new(config: Config) -> Result<Self, ConfigError> {
        let sources = config.sources.len();
        Ok(Self {
            machine: Synchrony::new(config.clone())?,
            config,
            observations: vec![Observation::MISSING; sources],
            changes: VecDeque::with_capacity(sources),
        })
    }

    /// Forgets everything: a run begins.
    pub(super) fn restart(&mut self) {
        if let Ok(machine) = Synchrony::new(self.config.clone()) {
            self.machine = machine;
        }
        self.changes.clear();
    }

    /// Shows an event and flags its fragments of sources that are displaced. Returns what a source that became
    /// displaced by it leads to.
    pub(super) fn observe(
        &mut self,
        key: EventKey,
        sources: &[BuilderSource],
        fragments: &mut [Option<Fragment>],
        displaced: &mut [u64],
    ) -> Option<(Action, Cause)> {
        let places = self.observations.iter_mut().zip(sources).zip(fragments.iter());
        for ((observation, source), fragment) in places {
            *observation = match fragment {
                Some(fragment) if source.requirement != Requirement::Masked => (&fragment.meta).into(),
                _ => Observation::MISSING,
            };
        }
        self.machine.observe(key, &self.observations);
        if self.machine.any_displaced() {
            for (place, fragment) in fragments.iter_mut().enumerate() {
                if let (Some(_), Some(fragment)) = (self.machine.cause(place), fragment) {
                    fragment.meta.flags = fragment.meta.flags.with(FragmentFlags::DISPLACED);
                    displaced[place] += 1;
                }
            }
        }
        self.take_changes()
    }

    /// The run ends: judges what there is.
    pub(super) fn conclude(&mut self) {
        self.machine.conclude();
        self.take_changes();
    }

    /// The next verdict that the event manager is to hear.
    pub(super) fn next_change(&mut self) -> Option<SynchronyState> {
        self.changes.pop_front()
    }

    /// The machine, for summaries.
    pub(super) const fn machine(&self) -> &Synchrony {
        &self.machine
    }

    fn take_changes(&mut self) -> Option<(Action, Cause)> {
        let mut action = None;
        while let Some(change) = self.machine.poll() {
            self.changes.push_back((&change).into());
            action = change.action.zip(change.verdict.cause()).or(action);
        }
        action
    }
}
