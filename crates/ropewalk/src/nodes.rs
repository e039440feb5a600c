//! One node of a run, as a process of its own.

use crate::arguments::{NodeOptions, NodeRole};
use crate::exit::{self, Failure};
use crate::running::{LEAVING, Limits, Overruled, Watching, conduct, controlled, fields, overrule, warn};
use crate::signals::Interrupts;
use crate::topology;
use ropewalk_node::configuration::{self, Configuration};
use ropewalk_node::run::{Addresses, RunError, TransferSummary, launch_node, placement_of_node, take_over};
use ropewalk_node::session::{AfterRun, OnlyRun};
use ropewalk_terms::Role;
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn node(options: &NodeOptions) -> Result<u8, Failure> {
    let mut configuration = configuration::read(&options.config)?;
    overrule(Overruled::of(&mut configuration), &options.limits);
    if options.limits.output.is_some() {
        configuration.builder.iter_mut().for_each(|builder| builder.output = None);
    }
    let addresses = addresses(&configuration, &options.at)?;
    let events = configuration.run.events;
    let (role, index) = which(&configuration, options)?;
    topology::foresee(&configuration, &options.config, placement_of_node(&configuration, role, index))?;
    let interrupts = Interrupts::listen().map_err(|error| Failure::Environment(format!("signals: {error}")))?;
    if options.take_over && role != Role::Manager {
        return Err(Failure::Usage(
            "--take-over is for the event manager: other nodes are simply started again".to_owned(),
        ));
    }
    if role != Role::Manager && options.control.control.is_some() {
        return Err(Failure::Usage("--control is for the event manager, which knows of all nodes".to_owned()));
    }
    if options.take_over && options.limits.events.is_some() {
        return Err(Failure::Usage("--take-over goes on with the events of the run: leave out --events".to_owned()));
    }
    // Whoever takes over goes on with what was said when the run began.
    let is_new = role == Role::Manager && !options.take_over;
    let fields = fields(&configuration.run.required_fields, &options.limits, !is_new)?;
    let mut handle = if options.take_over {
        take_over(&configuration, addresses, index)?
    } else {
        launch_node(&configuration, addresses, role, index, events)?
    };
    warn(handle.warnings());
    // One line for each address, so that whoever starts nodes with port 0 can tell the others.
    for (name, address) in handle.addresses() {
        say!("ready {name} {address}");
    }
    if role == Role::Manager {
        let control = controlled(&Watching::of(&configuration), &options.control, false)?;
        let (json, after_run) = (options.limits.json, AfterRun::Over);
        let limits = Limits { fields, json, after_run, is_single: true, control };
        let launch = Arc::new(OnlyRun::new(handle, configuration));
        return conduct(launch, &limits, &interrupts, |_| ());
    }
    say!("ready");
    while !handle.is_ended() {
        std::thread::sleep(Duration::from_millis(20));
        handle.take_news().iter().for_each(|line| eprintln!("{line}"));
        // The manager stops the run; a node that is interrupted leaves it, and the others go on.
        if interrupts.count() > 0 {
            return Ok(exit::FORCED);
        }
    }
    let refusal = handle.refusal().cloned();
    let summary = handle.finish(LEAVING);
    warn(&summary.transfer.iter().filter_map(TransferSummary::remark).collect::<Vec<_>>());
    refusal.map_or(Ok(exit::GOOD), |refusal| Err(RunError::from(refusal).into()))
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

/// The first event manager is `manager`, those that stand by are `manager2` and so on.
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
