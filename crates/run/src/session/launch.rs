//! The setup of runs from one configuration, which may be read again between two runs: a whole system, one gateway, or
//! the event manager alone.

use super::limits::{RunLimits, task_limits};
use super::masks::MaskRules;
use super::parameters::Parameters;
use super::restarts::RestartRules;
use crate::assemble::prepare_part;
use crate::gateway::SystemPart;
use crate::{
    Addresses, FrontEndService, RunError, RunHandle, RunSummary, advice, launch_manager, launch_with, take_over,
};
use ropewalk_config::fields::Fields;
use ropewalk_config::{Configuration, Differences, TimeoutSection, Written};
use ropewalk_flow::control::operation::{AfterRun, TaskLimits};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Sets up one run after the other. Called on a thread of its own.
pub trait Launch: Send + Sync {
    /// Sets up the next run.
    ///
    /// # Errors
    /// If something that it needs is not available.
    fn launch(&self) -> Result<RunHandle, RunError>;

    /// Returns the settings of the next run, according to its configuration.
    fn settings(&self) -> RunSettings;

    /// Reads the configuration again, if it came from a file. Returns the differences.
    ///
    /// # Errors
    /// If it cannot be read, or changes something that outlives runs. The previous configuration then stays in effect.
    fn read_again(&self) -> Result<Differences, RunError> {
        Ok(Differences::new())
    }

    /// Returns advice for the next run, drawn from a run's account.
    fn advice(&self, _account: &RunSummary) -> Vec<String> {
        Vec::new()
    }
}

/// The settings of a configuration for its runs, in both topologies.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Limits at which a run ends by itself.
    pub limits: RunLimits,
    /// What follows then; `None` if not configured.
    pub then: Option<AfterRun>,
    /// Time-outs of the steps of a run.
    pub timeouts: TimeoutSection,
    /// Fields that a run must be given at its start.
    pub required_fields: Vec<String>,
    pub(super) restarts: RestartRules,
    pub(super) masks: MaskRules,
    pub(super) parameters: Parameters,
    /// The whole configuration.
    pub(super) written: Written,
}

impl RunSettings {
    /// Returns the settings of a configuration.
    pub fn of(configuration: &Configuration) -> Self {
        Self {
            limits: RunLimits::of(configuration),
            then: configuration.run.then,
            timeouts: configuration.timeouts.clone(),
            required_fields: configuration.run.required_fields.clone(),
            restarts: RestartRules::of(configuration),
            masks: MaskRules::of(configuration),
            parameters: Parameters::of(configuration),
            written: configuration.written.clone(),
        }
    }
}

/// Time limits of the steps of a run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Patience {
    /// As configured.
    Configured,
    /// As configured, except for the start: nodes in separate processes connect when a user starts them.
    ForNodes,
    /// No limit: the user decides.
    Unlimited,
}

impl Patience {
    fn limits(self, times: &TimeoutSection) -> TaskLimits {
        let (configured, day) = (task_limits(times), Duration::from_secs(24 * 3600));
        match self {
            Self::Configured => configured,
            Self::ForNodes => TaskLimits { begin: day, ..configured },
            Self::Unlimited => TaskLimits { prepare: day, begin: day, pause: day, drain: day, force: day, close: day },
        }
    }
}

/// Settings of a sequence of runs beside the configuration.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// What follows a run that ends by itself, if the configuration does not say.
    pub after_run: AfterRun,
    /// Whether there is only one run: a stop ends the session.
    pub is_single: bool,
    /// The limits for the steps of a run.
    pub patience: Patience,
    /// Default fields of each run.
    pub fields: Fields,
}

/// The settings of a configuration, combined with those of the session.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) settings: RunSettings,
    /// What follows a run.
    pub(super) after_run: AfterRun,
    /// Time limits of tasks.
    pub(super) tasks: TaskLimits,
}

impl Rules {
    pub(super) fn of(settings: RunSettings, session: &SessionConfig) -> Self {
        let after_run = settings.then.unwrap_or(session.after_run);
        Self { after_run, tasks: session.patience.limits(&settings.timeouts), settings }
    }
}

/// A system, or a part of one, whose runs can be set up in this process.
pub trait System: Send + 'static {
    /// State that stays from run to run, until the configuration is read again.
    type Service: Default + Send;

    /// Returns its configuration.
    fn configuration(&self) -> &Configuration;

    /// Sets up a run.
    ///
    /// # Errors
    /// If something that it needs is not available.
    fn launch(&self, service: &mut Self::Service) -> Result<RunHandle, RunError>;
}

/// All nodes of a system. Front ends under run control stay connected from run to run: their service opens with the
/// first run.
impl System for Configuration {
    type Service = Option<Option<FrontEndService>>;

    fn configuration(&self) -> &Configuration {
        self
    }

    fn launch(&self, service: &mut Self::Service) -> Result<RunHandle, RunError> {
        let opened = match service.take() {
            Some(opened) => opened,
            None => FrontEndService::open(self)?,
        };
        launch_with(self, self.run.events, service.insert(opened).as_ref())
    }
}

/// One gateway. Its sources and its farm are other processes.
#[derive(Clone, Debug)]
pub struct GatewayProcess {
    /// The whole system.
    pub configuration: Configuration,
    /// The gateway's name.
    pub name: String,
}

impl System for GatewayProcess {
    type Service = ();

    fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    fn launch(&self, (): &mut ()) -> Result<RunHandle, RunError> {
        prepare_part(&self.configuration, &SystemPart::Gateway(self.name.clone()), None)
    }
}

/// Reads the description of a system again.
type Read<S> = Box<dyn Fn() -> Result<S, RunError> + Send + Sync>;

/// Sets up runs of a system.
pub struct Launcher<S: System> {
    read: Option<Read<S>>,
    present: Mutex<Present<S>>,
}

impl<S: System> fmt::Debug for Launcher<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Launcher").finish_non_exhaustive()
    }
}

struct Present<S: System> {
    system: S,
    service: S::Service,
}

/// Settings of the program, not of a run. They keep the values from the start of the program.
const PROGRAM_SETTINGS: [&str; 7] = ["run.output", "control.", "alarm[", "alarms.", "logbook.", "monitor.", "version"];

impl<S: System> Launcher<S> {
    /// Creates a launcher of runs of this system.
    pub fn new(system: S) -> Self {
        Self { read: None, present: Mutex::new(Present { system, service: S::Service::default() }) }
    }

    /// Like [`Launcher::new`]; `read` reads the configuration again.
    pub fn reading(system: S, read: impl Fn() -> Result<S, RunError> + Send + Sync + 'static) -> Self {
        Self { read: Some(Box::new(read)), ..Self::new(system) }
    }

    fn present(&self) -> MutexGuard<'_, Present<S>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: System> Launch for Launcher<S> {
    fn launch(&self) -> Result<RunHandle, RunError> {
        let Present { system, service } = &mut *self.present();
        system.launch(service)
    }

    fn settings(&self) -> RunSettings {
        RunSettings::of(self.present().system.configuration())
    }

    fn advice(&self, account: &RunSummary) -> Vec<String> {
        advice(self.present().system.configuration(), account)
    }

    fn read_again(&self) -> Result<Differences, RunError> {
        let Some(read) = &self.read else { return Ok(Differences::new()) };
        let system = read()?;
        let mut present = self.present();
        let differences = present.system.configuration().written.differences(&system.configuration().written);
        let changed = differences.keys().find(|key| PROGRAM_SETTINGS.iter().any(|setting| key.starts_with(setting)));
        if let Some(key) = changed {
            let why = format!(
                "the configuration says something else of {key} now, which outlives runs: start the program again, or take that back"
            );
            return Err(RunError::Unfit(why));
        }
        if !differences.is_empty() {
            // The expected nodes, and their addresses, may have changed.
            *present = Present { system, service: S::Service::default() };
        }
        Ok(differences)
    }
}

/// The event manager alone.
#[derive(Clone, Debug)]
pub struct ManagerProcess {
    /// The whole system.
    pub configuration: Configuration,
    /// Addresses of its nodes.
    pub addresses: Addresses,
    /// Its index among the configured event managers.
    pub index: u16,
    /// Whether the first run is a continuation of a run that lost its event manager.
    pub takes_over: bool,
}

/// State that stays from run to run.
#[derive(Debug, Default)]
pub struct ManagerService {
    /// The service for front ends under run control, if there are any; `None` before the first run.
    front_ends: Option<Option<FrontEndService>>,
    /// Address and epoch of the last run's event manager.
    last: Option<(String, u32)>,
}

impl System for ManagerProcess {
    type Service = ManagerService;

    fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    fn launch(&self, service: &mut ManagerService) -> Result<RunHandle, RunError> {
        let (mut configuration, mut addresses) = (self.configuration.clone(), self.addresses.clone());
        let opened = match service.front_ends.take() {
            Some(opened) => opened,
            None => FrontEndService::open(&configuration)?,
        };
        let front_ends = service.front_ends.insert(opened).as_ref();
        let run = match &service.last {
            None if self.takes_over => take_over(&configuration, addresses, self.index, front_ends)?,
            None => launch_manager(&configuration, addresses, self.index, front_ends)?,
            // Its nodes call the same address as before, and builder units may know its epoch.
            Some((address, epoch)) => {
                addresses.managers[usize::from(self.index)].clone_from(address);
                configuration.manager.epoch = *epoch;
                launch_manager(&configuration, addresses, self.index, front_ends)?
            }
        };
        service.last = Some(listens(&run));
        Ok(run)
    }
}

/// Returns the address and the epoch of a run's event manager.
fn listens(run: &RunHandle) -> (String, u32) {
    let address = run.addresses().iter().find(|(name, _)| name == crate::MANAGER);
    (address.map(|(_, address)| address.clone()).unwrap_or_default(), run.epoch().map_or(0, |epoch| epoch.0))
}
