//! What limits the run, what is wrong and how it went, looked at once a second, whoever asks.

use crate::forms::{Alarm, Limited};
use ropewalk_monitor::alarms::{AlarmError, Alarms, built_in};
use ropewalk_monitor::bottleneck::Finder;
use ropewalk_monitor::history::{History, Stretch};
use ropewalk_monitor::{Rates, Sample};
use ropewalk_node::session::Desk;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often it looks.
const PERIOD: Duration = Duration::from_secs(1);

/// Readers of samples that remember the one before.
#[derive(Debug)]
pub(crate) struct Lookout(Mutex<Readers>);

#[derive(Debug)]
struct Readers {
    finder: Finder,
    alarms: Alarms,
    history: History,
    pace: Pace,
}

/// How fast everything was between the last two samples.
#[derive(Debug, Default)]
struct Pace {
    last: Option<Arc<Sample>>,
    rates: Option<Rates>,
}

impl Pace {
    /// Looks at the next sample. One that it has seen says nothing new.
    fn observe(&mut self, sample: &Arc<Sample>) {
        if self.last.as_ref().is_some_and(|last| last.run == sample.run && last.time == sample.time) {
            return;
        }
        self.rates = self.last.as_ref().and_then(|before| Rates::between(before, sample));
        self.last = Some(Arc::clone(sample));
    }
}

impl Lookout {
    /// With the alarms that every run has.
    ///
    /// # Errors
    /// Where two of them have one name.
    pub(crate) fn new() -> Result<Self, AlarmError> {
        let alarms = Alarms::new(built_in())?;
        Ok(Self(Mutex::new(Readers {
            finder: Finder::default(),
            alarms,
            history: History::default(),
            pace: Pace::default(),
        })))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Readers) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at samples for ever.
    pub(crate) async fn watch(self: Arc<Self>, desk: Desk) {
        loop {
            let view = desk.view();
            if view.run.is_some() {
                self.with(|Readers { finder, alarms, history, pace }| {
                    pace.observe(&view.sample);
                    history.observe((*view.sample).clone());
                    finder.observe((*view.sample).clone());
                    alarms.observe((*view.sample).clone(), finder.finding().map(|finding| finding.limit));
                });
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// What limits the run; none before it was looked at twice.
    pub(crate) fn limit(&self) -> Option<Limited> {
        self.with(|readers| readers.finder.finding().map(Limited::of))
    }

    /// How fast everything is; none before a run was looked at twice.
    pub(crate) fn rates(&self) -> Option<Rates> {
        self.with(|readers| readers.pace.rates.clone())
    }

    /// How it went from the second `since` on, in steps of so many seconds.
    pub(crate) fn history(&self, since: i64, step_seconds: u32) -> Stretch {
        self.with(|readers| readers.history.stretch(since, step_seconds))
    }

    /// All alarms.
    pub(crate) fn alarms(&self) -> Vec<Alarm> {
        self.with(|readers| readers.alarms.all().iter().map(Alarm::of).collect())
    }

    /// Those that somebody should see.
    pub(crate) fn shown(&self) -> Vec<Alarm> {
        self.with(|readers| readers.alarms.shown().into_iter().map(Alarm::of).collect())
    }

    /// Somebody knows of it.
    ///
    /// # Errors
    /// Where there is none of this name, or it is not raised.
    pub(crate) fn acknowledge(&self, name: &str, by: &str) -> Result<(), AlarmError> {
        self.with(|readers| readers.alarms.acknowledge(name, by))
    }

    /// It is not shown for a while.
    ///
    /// # Errors
    /// Where there is none of this name.
    pub(crate) fn shelve(&self, name: &str, time: Duration) -> Result<(), AlarmError> {
        self.with(|readers| readers.alarms.shelve(name, time))
    }
}
