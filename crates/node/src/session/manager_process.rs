//! The event manager of a system whose nodes are processes of their own: it is set up anew for each run, where it was, and the nodes
//! come again.

use super::launch::System;
use crate::configuration::Configuration;
use crate::run::{Addresses, FrontEndService, RunError, RunHandle, launch_manager, take_over};

/// The event manager alone.
#[derive(Clone, Debug)]
pub struct ManagerProcess {
    /// The whole system.
    pub configuration: Configuration,
    /// Where its nodes listen.
    pub addresses: Addresses,
    /// Which of the configured event managers it is.
    pub index: u16,
    /// The first run is one that goes on without its event manager.
    pub takes_over: bool,
}

/// What stays from run to run.
#[derive(Debug, Default)]
pub struct ManagerService {
    /// That of front ends under run control, where there are any; none before the first run.
    front_ends: Option<Option<FrontEndService>>,
    /// Where the last run's event manager listened, and in which epoch.
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
            // Its nodes call where they called it before, and builder units may have heard of its epoch.
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

/// Where the event manager of a run listens, and in which epoch.
fn listens(run: &RunHandle) -> (String, u32) {
    let address = run.addresses().iter().find(|(name, _)| name == crate::run::MANAGER);
    (address.map(|(_, address)| address.clone()).unwrap_or_default(), run.epoch().map_or(0, |epoch| epoch.0))
}
