//! What limits the run and what is wrong, looked at once a second, whoever asks.

use crate::forms::{Alarm, Limited};
use ropewalk_monitor::alarms::{AlarmError, Alarms, built_in};
use ropewalk_monitor::bottleneck::Finder;
use ropewalk_node::session::Desk;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often it looks.
const PERIOD: Duration = Duration::from_secs(1);

/// Readers of samples that remember the one before.
#[derive(Debug)]
pub(crate) struct Lookout(Mutex<(Finder, Alarms)>);

impl Lookout {
    /// With the alarms that every run has.
    ///
    /// # Errors
    /// Where two of them have one name.
    pub(crate) fn new() -> Result<Self, AlarmError> {
        Ok(Self(Mutex::new((Finder::default(), Alarms::new(built_in())?))))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Finder, &mut Alarms) -> T) -> T {
        let (finder, alarms) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        work(finder, alarms)
    }

    /// Looks at samples for ever.
    pub(crate) async fn watch(self: Arc<Self>, desk: Desk) {
        loop {
            let view = desk.view();
            if view.run.is_some() {
                self.with(|finder, alarms| {
                    finder.observe((*view.sample).clone());
                    alarms.observe((*view.sample).clone(), finder.finding().map(|finding| finding.limit));
                });
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// What limits the run; none before it was looked at twice.
    pub(crate) fn limit(&self) -> Option<Limited> {
        self.with(|finder, _| finder.finding().map(Limited::of))
    }

    /// All alarms.
    pub(crate) fn alarms(&self) -> Vec<Alarm> {
        self.with(|_, alarms| alarms.all().iter().map(Alarm::of).collect())
    }

    /// Those that somebody should see.
    pub(crate) fn shown(&self) -> Vec<Alarm> {
        self.with(|_, alarms| alarms.shown().into_iter().map(Alarm::of).collect())
    }

    /// Somebody knows of it.
    ///
    /// # Errors
    /// Where there is none of this name, or it is not raised.
    pub(crate) fn acknowledge(&self, name: &str, by: &str) -> Result<(), AlarmError> {
        self.with(|_, alarms| alarms.acknowledge(name, by))
    }

    /// It is not shown for a while.
    ///
    /// # Errors
    /// Where there is none of this name.
    pub(crate) fn shelve(&self, name: &str, time: Duration) -> Result<(), AlarmError> {
        self.with(|_, alarms| alarms.shelve(name, time))
    }
}
