//! One node of a run, or of successive runs, as its own process.

use crate::arguments::{NodeOptions, NodeRole};
use crate::exit::{self, Failure};
use crate::interrupts::Interrupts;
use crate::render::warn;
use crate::running::{LEAVING, Limits, conduct, controlled, fields, overrule};
use crate::topology::{self, unknown_addresses};
use ropewalk_config::Configuration;
use ropewalk_run::session::{AfterRun, Launcher, ManagerProcess, Patience};
use ropewalk_run::{Addresses, RunError, TransferSummary, launch_unit, placement_of_node};
use ropewalk_terms::Role;
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn node(options: &NodeOptions) -> Result<u8, Failure> {
    let mut configuration = ropewalk_config::read_pull(&options.config)?;
    overrule(&mut configuration, &options.limits);
    if options.limits.output.is_some() {
        configuration.builder.iter_mut().for_each(|builder| builder.output = None);
    }
    let addresses = addresses(&configuration, &options.at)?;
    let (role, index) = which(&configuration, options)?;
    topology::foresee(&configuration, &options.config, placement_of_node(&configuration, role, index))?;
    if role == Role::Manager {
        return manager(configuration, addresses, index, options);
    }
    if options.take_over {
        return Err(Failure::Usage(
            "--take-over is for the event manager: other nodes are simply started again".to_owned(),
        ));
    }
    if options.control.control.is_some() {
        return Err(Failure::Usage("--control is for the event manager, which knows of all nodes".to_owned()));
    }
    let unknown = unknown_addresses(&configuration, &addresses, role);
    if !unknown.is_empty() {
        tell!(
            "warning: the port of {} is not known here: set a fixed port in `address`, or use --at {}=ADDRESS",
            unknown.join(", "),
            unknown[0]
        );
    }
    unit(&configuration, addresses, role, index)
}

/// Whether the configuration has runs follow each other.
fn follow_each_other(configuration: &Configuration) -> bool {
    matches!(configuration.run.then, Some(AfterRun::Next | AfterRun::Wait))
}

/// The event manager, over one run or several.
fn manager(
    configuration: Configuration,
    addresses: Addresses,
    index: u16,
    options: &NodeOptions,
) -> Result<u8, Failure> {
    if options.take_over && options.limits.events.is_some() {
        return Err(Failure::Usage("--take-over goes on with the events of the run: leave out --events".to_owned()));
    }
    let is_single = !follow_each_other(&configuration);
    // A successor continues with the fields given at the start of the run; of several runs an operator may start the
    // first.
    let can_wait = options.take_over || !is_single && options.control.control.is_some();
    let fields = fields(&configuration.run.required_fields, &options.limits, can_wait)?;
    let control = controlled(&configuration, &options.control, false)?;
    let (json, after_run) = (options.limits.json, AfterRun::Over);
    let patience = if control.is_some() { Patience::ForNodes } else { Patience::Unlimited };
    let limits = Limits { fields, json, after_run, is_single, patience, control };
    let process = ManagerProcess { configuration, addresses, index, takes_over: options.take_over };
    let interrupts = listen()?;
    conduct(Arc::new(Launcher::new(process)), &limits, &interrupts, |view| {
        warn(&view.warnings);
        view.addresses.iter().for_each(|(name, address)| say!("ready {name} {address}"));
    })
}

/// A readout or builder unit: for one run, or for each of several runs in a row.
fn unit(configuration: &Configuration, mut addresses: Addresses, role: Role, index: u16) -> Result<u8, Failure> {
    let interrupts = listen()?;
    loop {
        let mut handle = launch_unit(configuration, addresses.clone(), role, index, configuration.run.events)?;
        warn(handle.warnings());
        // One line for each address, so that a caller that starts nodes with port 0 can pass them on.
        for (name, address) in handle.addresses() {
            say!("ready {name} {address}");
        }
        say!("ready");
        if let (Role::Readout, Some((_, address))) = (role, handle.addresses().first()) {
            // The address at which others connect to it in later runs.
            addresses.readouts[usize::from(index)].clone_from(address);
        }
        while !handle.is_ended() {
            std::thread::sleep(Duration::from_millis(20));
            handle.take_news().iter().for_each(|line| tell!("{line}"));
            // The manager stops the run; an interrupted node leaves it, and the others continue.
            if interrupts.count() > 0 {
                return Ok(exit::FORCED);
            }
        }
        let refusal = handle.refusal().cloned();
        let summary = handle.finish(LEAVING);
        warn(&summary.transfer.iter().filter_map(TransferSummary::remark).collect::<Vec<_>>());
        let comes_again = follow_each_other(configuration);
        match refusal {
            None if comes_again => {}
            None => return Ok(exit::GOOD),
            Some(refusal) if comes_again && refusal.is_of_run() => {
                tell!(
                    "the run that this node was in was closed without what it still had; it is there for the next one"
                );
            }
            Some(refusal) => return Err(RunError::from(refusal).into()),
        }
    }
}

fn listen() -> Result<Interrupts, Failure> {
    Interrupts::listen().map_err(|error| Failure::Environment(format!("signals: {error}")))
}

fn which(configuration: &Configuration, options: &NodeOptions) -> Result<(Role, u16), Failure> {
    let (role, unit, names): (Role, _, Vec<&str>) = match options.role {
        NodeRole::Manager => {
            let Some(name) = &options.name else { return Ok((Role::Manager, 0)) };
            let index = manager_index(configuration, name).ok_or_else(|| {
                let known = configuration.manager.standby.len() + 1;
                Failure::Usage(format!(
                    "no event manager is named `{name}`: there are {known}, manager, and with manager.standby in the \
                     configuration manager2 and so on"
                ))
            })?;
            return Ok((Role::Manager, index));
        }
        NodeRole::Gateway => {
            return Err(Failure::Usage("a gateway is a node of a push system: its file has a [[gateway]]".to_owned()));
        }
        NodeRole::Readout => {
            (Role::Readout, "readout", configuration.readout.iter().map(|one| one.name.as_str()).collect())
        }
        NodeRole::Builder => {
            (Role::Builder, "builder", configuration.builder.iter().map(|one| one.name.as_str()).collect())
        }
    };
    let known = names.join(", ");
    let Some(name) = &options.name else {
        return Err(Failure::Usage(format!("say which {unit} unit to be with --name; there are: {known}")));
    };
    match names.iter().position(|one| one == name) {
        Some(index) => Ok((role, index as u16)),
        None => Err(Failure::Usage(format!("no {unit} unit is named `{name}`; there are: {known}"))),
    }
}

/// The first event manager is `manager`, the standbys are `manager2` and so on.
fn manager_index(configuration: &Configuration, name: &str) -> Option<u16> {
    let managers = 1..=configuration.manager.standby.len() + 1;
    let named = |&number: &usize| if number == 1 { name == "manager" } else { name == format!("manager{number}") };
    managers.clone().find(named).map(|number| (number - 1) as u16)
}

/// The configured addresses, with those replaced that were given as `NAME=ADDRESS`.
fn addresses(configuration: &Configuration, given: &[String]) -> Result<Addresses, Failure> {
    let mut addresses = Addresses::configured(configuration);
    for text in given {
        let Some((name, address)) = text.split_once('=') else {
            return Err(Failure::Usage(format!("--at {text}: write NAME=ADDRESS, such as ru0=127.0.0.1:40001")));
        };
        if let Some(index) = manager_index(configuration, name) {
            addresses.managers[usize::from(index)] = address.to_owned();
        } else if let Some(index) = configuration.readout.iter().position(|readout| readout.name == name) {
            addresses.readouts[index] = address.to_owned();
        } else {
            return Err(Failure::Usage(format!("--at {text}: neither `manager` nor a readout unit is named `{name}`")));
        }
    }
    Ok(addresses)
}
