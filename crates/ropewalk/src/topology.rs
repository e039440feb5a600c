//! The machine, and the placement of a configuration's threads and pools on it.

use crate::arguments::TopologyOptions;
use crate::exit::{self, Failure};
use crate::output::{print_json, write_results};
use crate::render::{counted, warn};
use ropewalk_config::{Configuration, Fault};
use ropewalk_host::{Kind, Machine, Picture, Placement, Plan};
use ropewalk_run::{
    Addresses, PlacementError, RunError, check_card_files, placement, placement_on, unusable_library,
    unusable_splitters, user_command,
};
use ropewalk_terms::Role;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;

/// What `topology --json` prints.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "A machine and what is placed on it: the output of `ropewalk topology --json`")]
pub(crate) struct TopologyReport<'a> {
    /// The form's name and version.
    #[schemars(extend("const" = Self::SCHEMA))]
    schema: &'static str,
    /// The machine.
    machine: &'a Machine,
    /// What the configuration places on it; empty without a configuration.
    placement: &'a Plan,
}

impl TopologyReport<'_> {
    const SCHEMA: &'static str = "ropewalk-topology-1";
}

pub(crate) fn topology(options: &TopologyOptions) -> Result<u8, Failure> {
    let unreadable = |error: ropewalk_host::MachineError| Failure::Environment(error.to_string());
    let machine = Machine::read(&options.root).map_err(unreadable)?;
    let plan = match &options.config {
        None => Plan::default(),
        Some(file) => {
            let configuration = ropewalk_config::read(file)?;
            // A run on this machine asks it how many cores it may use at once; another machine cannot be asked.
            let is_this_one = options.root == Path::new("/");
            let plan = if is_this_one { placement(&configuration) } else { placement_on(&configuration, &machine) };
            plan.map_err(|error| unfit(file, error))?
        }
    };
    if options.json {
        print_json(&TopologyReport { schema: TopologyReport::SCHEMA, machine: &machine, placement: &plan })?;
        return Ok(exit::GOOD);
    }
    let mut text = Picture { machine: &machine, plan: &plan }.to_string();
    if options.config.is_some() {
        text.push_str(&format!("\n{plan}"));
    }
    write_results(text.as_bytes());
    Ok(exit::GOOD)
}

/// Checks that the programs that the configuration names can be executed here.
fn check_commands(file: &Path, configuration: &Configuration) -> Result<(), Failure> {
    // A filter with `nodes` runs on other machines.
    let filter = configuration.filter.as_ref().filter(|filter| filter.nodes.is_empty());
    let program = filter.and_then(|filter| filter.program.clone()).unwrap_or_default();
    let (alarms, logbook) = (&configuration.alarms.command, &configuration.logbook.command);
    for (key, command) in [("alarms.command", alarms), ("logbook.command", logbook), ("filter.program", &program)] {
        user_command::check(command).map_err(|why| unfit(file, PlacementError::Unfit(Fault::new(key, why))))?;
    }
    Ok(())
}

pub(crate) fn config_check(file: &Path) -> Result<u8, Failure> {
    let configuration = ropewalk_config::read(file)?;
    warn(&configuration.renamed);
    check_commands(file, &configuration)?;
    let plan = placement(&configuration).map_err(|error| unfit(file, error))?;
    // If the kernel places everything, only `topology` shows the table.
    let shows_plan =
        plan.placements.iter().any(Placement::is_placed) || !plan.unused_rules.is_empty() || !plan.remarks.is_empty();
    let plan = if shows_plan { plan.to_string() } else { String::new() };
    if configuration.has_gateways() {
        let sources: usize = configuration.flow.iter().map(|flow| usize::from(flow.sources.count)).sum();
        let parts = [
            counted(configuration.flow.len(), "flow"),
            counted(sources, "source"),
            counted(configuration.gateway.len(), "gateway"),
            counted(usize::from(configuration.farm.nodes), "node"),
        ];
        write_results(format!("{}: good: {}\n{plan}", file.display(), parts.join(", ")).as_bytes());
        return Ok(exit::GOOD);
    }
    check_card_files(&configuration)?;
    // With a fixed address of the event manager the nodes are separate processes.
    let addresses = Addresses::configured(&configuration);
    let unknown = unknown_addresses(&configuration, &addresses, Role::Builder);
    if !unknown.is_empty() && !unknown.contains(&"manager") {
        let (all, first) = (unknown.join(", "), unknown[0]);
        tell!("note: `address` of {all} has no fixed port: `ropewalk node builder` needs --at {first}=ADDRESS then");
    }
    note_unchecked_step(&configuration);
    let mut text = format!(
        "{}: good: {}, {}, {}\n{plan}",
        file.display(),
        counted(configuration.source.len(), "source"),
        counted(configuration.readout.len(), "readout unit"),
        counted(configuration.builder.len(), "builder unit")
    );
    configuration.first_lines().iter().for_each(|line| text.push_str(&format!("{line}\n")));
    for source in &configuration.source {
        if let Ok(Some(layout)) = source.plan() {
            text.push_str(&format!("\n{}: a frame, byte by byte\n{layout}", source.name_or_id()));
        }
    }
    for card in &configuration.felix {
        match &card.serve {
            None => {}
            Some(serve) if serve.loop_back => {
                text.push_str(&format!(
                    "\n{}: messages to e-links come back (`loop_back`) and reach no front end\n",
                    card.name
                ));
            }
            Some(_) => {
                text.push_str(&format!(
                    "\n{}: `serve` sends chunks only from the card: messages to e-links are refused\n",
                    card.name
                ));
            }
        }
    }
    // With a fixed address of the event manager the nodes are separate processes, which may be on other machines.
    check_libraries(&configuration, file, !unknown.contains(&"manager"))?;
    warn(configuration.sequence_beside_splitter().as_slice());
    warn(configuration.largest_event_warning().as_slice());
    // A page long: a reader such as `head` may close the pipe early.
    write_results(text.as_bytes());
    Ok(exit::GOOD)
}

/// Tries the libraries of filters and splitters. An unusable one is an error, or a warning if it may be used on another
/// machine.
fn check_libraries(configuration: &Configuration, file: &Path, is_elsewhere: bool) -> Result<(), Failure> {
    let of_filter = unusable_library(configuration).map(|(key, why)| Fault::new(key, why));
    let of_sources = unusable_splitters(configuration).into_iter();
    let of_sources = of_sources.map(|(index, why)| Fault::new(format!("source[{index}].splitter.library"), why));
    for fault in of_filter.into_iter().chain(of_sources) {
        if !is_elsewhere {
            return Err(unfit(file, PlacementError::Unfit(fault)));
        }
        let (key, why) = (&fault.key, &fault.message);
        tell!("warning: {key}: {why}. This is no error only if the node that uses it runs on another machine");
    }
    Ok(())
}

/// Names the sources in which a slip stays unseen.
fn note_unchecked_step(configuration: &Configuration) {
    if let Some(sentence) = configuration.unchecked_step() {
        tell!("note: {sentence}; if a source slips by one event, complete events hold data of two triggers");
    }
}

/// Warns, before a run begins, of wishes of the configuration that will not be met.
pub(crate) fn foresee(
    configuration: &Configuration,
    file: &Path,
    plan: Result<Plan, PlacementError>,
) -> Result<(), Failure> {
    let plan = plan.map_err(|error| unfit(file, error))?;
    for rule in &plan.unused_rules {
        let (section, pattern) = match rule.kind {
            Kind::Thread => ("thread", &configuration.thread[rule.number - 1].pattern),
            Kind::Pool => ("pool", &configuration.pool[rule.number - 1].pattern),
        };
        let number = rule.number;
        tell!("warning: [[{section}]]: rule {number}, `{pattern}`, matches no {section}; `config check` lists them");
    }
    for remark in &plan.remarks {
        tell!("note: {remark}");
    }
    Ok(())
}

/// The failure for a configuration of another machine, at the place that does not fit.
fn unfit(file: &Path, error: PlacementError) -> Failure {
    match error {
        PlacementError::Unfit(fault) => ropewalk_config::point_at(file, &fault).into(),
        other => RunError::from(other).into(),
    }
}

/// The nodes to which this unit connects and whose configured port is 0, so that it cannot know the port.
pub(crate) fn unknown_addresses<'a>(
    configuration: &'a Configuration,
    addresses: &Addresses,
    role: Role,
) -> Vec<&'a str> {
    let has_no_port = |address: &String| address.ends_with(":0");
    let readouts = configuration.readout.iter().map(|unit| unit.name.as_str()).zip(&addresses.readouts);
    let called = [("manager", &addresses.managers[0])].into_iter();
    let called = called.chain(readouts.filter(|_| role == Role::Builder));
    called.filter(|(_, address)| has_no_port(address)).map(|(name, _)| name).collect()
}
