//! Checks of filter, triggers, streams, and files of events for filter units.

use crate::Configuration;
use crate::error::Faults;
use crate::file_based::unit_streams;
use crate::filter::{FilterSection, StreamSection, TriggerChoice};
use crate::run::check_room;
use crate::source::{FormatName, SourceSection};
use ropewalk_flow::filter::{StreamConfig, Streams};
use ropewalk_terms::{SourceId, TriggerBits};
use ropewalk_wire::foreign::ForeignFormat;
use std::time::Duration;

/// Checks streams. `unset` returns an error message for a stream that selects a trigger which is never set.
pub(super) fn check_streams(
    sections: &[StreamSection],
    is_filtered: bool,
    unset: impl Fn(&StreamSection) -> Option<String>,
    faults: &mut Faults,
) {
    for (index, stream) in sections.iter().enumerate() {
        let key = |field: &str| format!("stream[{index}].{field}");
        if let Err((field, message)) = stream.check() {
            faults.add(key(field), message);
        }
        if let Some(message) = unset(stream) {
            faults.add(key("triggers"), message);
        }
    }
    let streams: Vec<StreamConfig> = sections.iter().filter_map(StreamSection::stream).collect();
    if streams.is_empty() {
        return;
    }
    if let Err(error) = Streams::new(streams, is_filtered) {
        faults.add("stream", error.to_string());
    }
}

/// What is wrong with filter and streams.
pub(super) fn check(configuration: &Configuration, faults: &mut Faults) {
    let has_triggers = configuration.filter.is_some() || configuration.file_based.is_some();
    let unset = |stream: &StreamSection| {
        if !stream.triggers.is_empty() && !has_triggers {
            return Some("without a [filter] no trigger is ever set: add one, or select by `trigger_types`".to_owned());
        }
        let (section, trigger, count) = unheard_of(stream, configuration)?;
        Some(format!("trigger {trigger} does not exist: [{section}] has {count}, numbered from 0"))
    };
    check_streams(&configuration.stream, configuration.filter.is_some(), unset, faults);
    if let Some(filter) = &configuration.filter {
        self::filter(filter, configuration, faults);
    }
}

/// A trigger that a stream takes and that is not built in, the section with the built-in ones and their number. Which
/// triggers a library or a program sets is unknown here.
pub(super) fn unheard_of(stream: &StreamSection, configuration: &Configuration) -> Option<(&'static str, u32, usize)> {
    let (section, count) = match (&configuration.file_based, &configuration.filter) {
        // Without any there is one, which everything passes.
        (Some(files), _) if files.library.is_none() => ("file_based", files.triggers.len().max(1)),
        (None, Some(filter)) if !filter.triggers.is_empty() => ("filter", filter.triggers.len()),
        _ => return None,
    };
    let unknown = stream.triggers.iter().find(|&&trigger| trigger as usize >= count);
    unknown.map(|&trigger| (section, trigger, count))
}

fn filter(filter: &FilterSection, configuration: &Configuration, faults: &mut Faults) {
    let ways = [!filter.triggers.is_empty(), filter.library.is_some(), filter.program.is_some()];
    if ways.into_iter().filter(|&is_given| is_given).count() != 1 {
        faults.add("filter", "give one of `triggers`, `library` and `program`: it decides on events");
    }
    if filter.program.as_ref().is_some_and(Vec::is_empty) {
        faults.add("filter.program", "the program's path, and its arguments");
    }
    if filter.trusted && filter.library.is_none() {
        faults.add("filter.trusted", "only a `library` can be called in the thread of the builder unit or gateway");
    }
    if !filter.nodes.is_empty() && !filter.has_processes() {
        let message = "only a `library` that is not trusted, or a `program`, can be on another machine";
        faults.add("filter.nodes", message);
    }
    if filter.node_memory.0 < 1 << 20 {
        faults.add("filter.node_memory", "at least 1MiB: more than the longest event");
    }
    let key = |field: &str| format!("filter.{field}");
    if !(1..=256).contains(&filter.units) {
        faults.add(key("units"), "1 to 256 filter units of each builder unit or input queue");
    }
    if !(1..=4096).contains(&filter.events) {
        faults.add(key("events"), "a filter unit has 1 to 4096 events at once");
    }
    if filter.timeout.0 < Duration::from_millis(1) {
        faults.add(key("timeout"), "how long it may take over an event, 1ms or more");
    }
    // It is tried twice, and after half of the drain time nothing is awaited.
    if filter.timeout.0 * 4 > configuration.timeouts.drain.0 {
        let message = format!(
            "an event is tried twice in half of timeouts.drain ({}), so that a quarter of that is the most",
            configuration.timeouts.drain
        );
        faults.add(key("timeout"), message);
    }
    if filter.memory.0 < 1 << 20 {
        faults.add(key("memory"), "at least 1MiB, of which it has to live");
    }
    if !(1..=1000).contains(&filter.restarts) {
        faults.add(key("restarts"), "1 to 1000 within a minute");
    }
    triggers("filter", &filter.triggers, configuration, faults);
}

/// What is wrong with the triggers of a section.
pub(super) fn triggers(section: &str, triggers: &[TriggerChoice], configuration: &Configuration, faults: &mut Faults) {
    if triggers.len() > TriggerBits::COUNT as usize {
        faults.add(format!("{section}.triggers"), "there are 128 triggers at most");
    }
    let ids = configuration.source_ids();
    let is_in_gateway = configuration.decides_itself() && section == "filter";
    let is_known = |id: u32| match configuration.has_gateways() && !is_in_gateway {
        // Nodes of a farm and readers of files know the number in a bank's header, which is the front end's own.
        true => u16::try_from(id).is_ok(),
        false => ids.contains(&SourceId(id)),
    };
    for (index, trigger) in triggers.iter().enumerate() {
        if let Err(message) = trigger.check(is_known) {
            faults.add(format!("{section}.triggers[{index}]"), message);
        }
    }
}

/// What is wrong with files of events.
pub(super) fn check_files(configuration: &Configuration, faults: &mut Faults) {
    let Some(section) = &configuration.file_based else { return };
    let key = |field: &str| format!("file_based.{field}");
    if section.version().is_none() {
        faults.add(key("frd_version"), "headers of events are of version 3, 4 or 5");
    }
    for (field, _) in
        [("file_events", section.file_events), ("tries", section.tries.into())].iter().filter(|it| it.1 == 0)
    {
        faults.add(key(field), "at least 1");
    }
    if section.filter.is_some() {
        let message =
            "that is `triggers` now, with the words of a [filter]: `triggers = [{ random = { share = 0.1 } }]`";
        faults.add(key("filter"), message);
    }
    if section.library.is_some() && !section.triggers.is_empty() {
        faults.add(key("triggers"), "give one of `triggers` and `library`: it decides on events");
    }
    if section.memory.0 < 1 << 20 {
        faults.add(key("memory"), "at least 1MiB, of which a library's process has to live");
    }
    triggers("file_based", &section.triggers, configuration, faults);
    if let Err(error) = unit_streams(&configuration.stream) {
        faults.add("stream", error.to_string());
    }
    configuration.stream.iter().enumerate().for_each(|(index, stream)| of_run_files(index, stream, faults));
    if configuration.filter.is_some() {
        let message = "events are decided once: by the filter units that take files, or by a [filter] in the builder unit or gateway";
        faults.add("filter", message);
    }
    if !configuration.run.write {
        faults.add("run.write", "with [file_based] events are written: leave it out");
    }
    if configuration.run.keep.is_some() {
        faults.add("run.keep", "files of events are deleted when they are decided: leave it out");
    }
    let storage = &configuration.storage;
    let of_run_files = [
        ("hand_over", storage.hand_over.is_some()),
        ("transfer", storage.transfer.is_some()),
        ("more_outputs", !storage.more_outputs.is_empty()),
    ];
    for (field, _) in of_run_files.into_iter().filter(|&(_, is_given)| is_given) {
        let message = "that is for run files, and with [file_based] there are none: leave it out";
        faults.add(format!("storage.{field}"), message);
    }
    if configuration.has_gateways() {
        of_gateways(configuration, faults);
    }
    for (index, source) in configuration.source.iter().enumerate() {
        if !is_fed(source) {
            let message = "files of events (FRD) hold FED fragments alone: `format = \"ferol\"` or `\"fed\"`";
            faults.add(format!("source[{index}].format"), message);
        }
    }
    check_room("file_based", section.least_free, section.resume_free, faults);
}

/// The events of gateways are decided once, and known by their numbers.
fn of_gateways(configuration: &Configuration, faults: &mut Faults) {
    if !configuration.decides_itself() {
        let message = "events are decided once: by the filter units that take files, or by the nodes of a farm; set `nodes = 0` in [farm]";
        faults.add("file_based", message);
    }
    if configuration.flow.len() > 1 {
        let message =
            "files of events (FRD) have no place for the flow of an event: with [file_based] there is one [[flow]]";
        faults.add("flow[1]", message);
    }
}

/// What a stream says of run files, in a run without them.
fn of_run_files(index: usize, stream: &StreamSection, faults: &mut Faults) {
    let said = [
        ("ordered", stream.ordered),
        ("outputs", !stream.outputs.is_empty()),
        ("hand_over", stream.hand_over.is_some()),
        ("compress", stream.compress.is_some()),
    ];
    for (field, _) in said.into_iter().filter(|&(_, is_given)| is_given) {
        let message = "that is for run files, and with [file_based] filter units write streams: leave it out";
        faults.add(format!("stream[{index}].{field}"), message);
    }
}

/// Whether the source's fragments are those of a FED.
fn is_fed(source: &SourceSection) -> bool {
    let format = matches!(source.format, FormatName::Ferol | FormatName::Foreign(ForeignFormat::Fed));
    format && source.link().is_none() && !source.has_layout()
}
