//! How runs are set up: by one configuration, which may be read again between two of them.

use super::limits::{RunLimits, task_limits};
use super::masks::MaskRules;
use super::parameters::Parameters;
use crate::configuration::{Configuration, Differences, ThenChoice};
use crate::fields::Fields;
use crate::run::{FrontEndService, RunError, RunHandle, launch_with};
use ropewalk_flow::control::operation::{AfterRun, TaskLimits};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Sets up one run after the other. Called on a thread of its own.
pub trait Launch: Send + Sync {
    /// Sets up the next run.
    ///
    /// # Errors
    /// Where something that it needs cannot be had.
    fn launch(&self) -> Result<RunHandle, RunError>;

    /// The configuration by which the next run is set up.
    fn configuration(&self) -> Arc<Configuration>;

    /// Reads the configuration again, where it was read from somewhere: what it says otherwise than before.
    ///
    /// # Errors
    /// Where it cannot be read, or says of something else that outlives runs; then what was read before holds.
    fn read_again(&self) -> Result<Differences, RunError> {
        Ok(Differences::new())
    }
}

/// How a sequence of runs is conducted, besides what their configuration says.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// What follows a run that ends by itself, where the configuration does not say.
    pub after_run: AfterRun,
    /// There is no other run than the first one: a stop ends everything.
    pub is_single: bool,
    /// Whoever watches decides how long is too long, not the configured times.
    pub is_patient: bool,
    /// What is said of each run unless its start says otherwise.
    pub fields: Fields,
}

/// What a configuration says of how its runs are conducted.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// When a run ends by itself.
    pub(super) limits: RunLimits,
    /// What follows then.
    pub(super) after_run: AfterRun,
    /// How long each step may take.
    pub(super) tasks: TaskLimits,
    /// An operator who gives no sign for so long loses the controls.
    pub(super) silence: Duration,
    /// What has to be said of a run when it is started.
    pub(super) required_fields: Vec<String>,
    /// Which sources operators can take out.
    pub(super) masks: MaskRules,
    /// What they can change while a run goes on.
    pub(super) parameters: Parameters,
    /// The configuration, as it is kept with each run.
    pub(super) text: Arc<str>,
}

/// Nobody is in a hurry.
const PATIENT: TaskLimits = {
    let day = Duration::from_secs(24 * 3600);
    TaskLimits { prepare: day, begin: day, pause: day, drain: day, force: day, close: day }
};

impl Rules {
    pub(super) fn of(configuration: &Configuration, session: &SessionConfig) -> Self {
        let then = configuration.run.then.map(|then| match then {
            ThenChoice::Next => AfterRun::Next,
            ThenChoice::Wait => AfterRun::Wait,
            ThenChoice::Over => AfterRun::Over,
        });
        Self {
            limits: RunLimits::of(configuration),
            after_run: then.unwrap_or(session.after_run),
            tasks: if session.is_patient { PATIENT } else { task_limits(&configuration.timeouts) },
            silence: configuration.timeouts.operator.0,
            required_fields: configuration.run.required_fields.clone(),
            masks: MaskRules::of(configuration),
            parameters: Parameters::of(configuration),
            text: configuration.written.text().into(),
        }
    }
}

/// Reads a configuration from where it stands.
type Read = Box<dyn Fn() -> Result<Configuration, RunError> + Send + Sync>;

/// Sets up runs of all nodes in this process. Front ends under run control stay connected from run to run.
pub struct Launcher {
    read: Option<Read>,
    present: Mutex<Present>,
}

impl fmt::Debug for Launcher {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Launcher").finish_non_exhaustive()
    }
}

struct Present {
    configuration: Arc<Configuration>,
    /// Opened with the first run.
    service: Option<Option<FrontEndService>>,
}

/// What outlives runs, and is therefore as it was when the program was started.
const LASTING: [&str; 7] = ["run.output", "control.", "alarm[", "alarms.", "logbook.", "monitor.", "version"];

impl Launcher {
    /// By this configuration.
    pub fn new(configuration: Configuration) -> Self {
        let present = Present { configuration: Arc::new(configuration), service: None };
        Self { read: None, present: Mutex::new(present) }
    }

    /// As [`Launcher::new`], and by what `read` returns when the configuration is read again.
    pub fn reading(
        configuration: Configuration,
        read: impl Fn() -> Result<Configuration, RunError> + Send + Sync + 'static,
    ) -> Self {
        Self { read: Some(Box::new(read)), ..Self::new(configuration) }
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Launch for Launcher {
    fn launch(&self) -> Result<RunHandle, RunError> {
        let mut present = self.present();
        let configuration = Arc::clone(&present.configuration);
        let opened = match present.service.take() {
            Some(opened) => opened,
            None => FrontEndService::open(&configuration)?,
        };
        launch_with(&configuration, configuration.run.events, present.service.insert(opened).as_ref())
    }

    fn configuration(&self) -> Arc<Configuration> {
        Arc::clone(&self.present().configuration)
    }

    fn read_again(&self) -> Result<Differences, RunError> {
        let Some(read) = &self.read else { return Ok(Differences::new()) };
        let configuration = read()?;
        let mut present = self.present();
        let differences = present.configuration.written.differences(&configuration.written);
        let lasting = differences.keys().find(|key| LASTING.iter().any(|lasting| key.starts_with(lasting)));
        if let Some(key) = lasting {
            let why = format!(
                "the configuration says something else of {key} now, which outlives runs: start the program again, or take that back"
            );
            return Err(RunError::Unfit(why));
        }
        if !differences.is_empty() {
            // Whom it waits for, and where, may be something else now.
            *present = Present { configuration: Arc::new(configuration), service: None };
        }
        Ok(differences)
    }
}

/// Hands over a run that is set up already; there is no other one.
#[derive(Debug)]
pub struct OnlyRun {
    handle: Mutex<Option<RunHandle>>,
    configuration: Arc<Configuration>,
}

impl OnlyRun {
    /// This one, which was set up by this configuration.
    pub fn new(handle: RunHandle, configuration: Configuration) -> Self {
        Self { handle: Mutex::new(Some(handle)), configuration: Arc::new(configuration) }
    }
}

impl Launch for OnlyRun {
    fn launch(&self) -> Result<RunHandle, RunError> {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        handle.ok_or_else(|| RunError::Unfit("this process takes one run".to_owned()))
    }

    fn configuration(&self) -> Arc<Configuration> {
        Arc::clone(&self.configuration)
    }
}
