//! What a configuration must fulfil beyond its syntax.

mod felix;
mod filter;
mod gateway;

use super::error::{Faults, no_such};
use super::model::Configuration;
use super::run::{LumisectionChoice, SyncChoice};
use super::source::{FormatName, SourceInput, SourceSection};
use super::written::Written;
use crate::fields::is_field_name;
use crate::quantity::Bytes;
use ropewalk_terms::AcknowledgementLevel;
use ropewalk_terms::SourceId;
use ropewalk_wire::run_file::{Compression, MAX_RECORD_BYTES};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Checks everything. `written` tells which keys the file contains.
pub(super) fn check(configuration: &Configuration, written: &Written, faults: &mut Faults) {
    if configuration.version != 1 {
        faults.add("version", format!("this program reads version 1, not {}", configuration.version));
    }
    if configuration.has_gateways() {
        gateway::check(configuration, written, faults);
        not_of_gateways(written, faults);
    } else {
        of_readout_units(configuration, faults);
        not_of_readout_units(written, faults);
    }
    lumisection(configuration, faults);
    sizes(configuration, faults);
    if configuration.run.drain.is_some() && written.has("timeouts", "drain") {
        faults.add("run.drain", "`drain` of [timeouts] is set as well: remove this one");
    }
    let hands_over = configuration.stream.iter().any(|stream| stream.hand_over.is_some());
    configuration.storage.check(hands_over, configuration.run.keep, faults);
    pipe(configuration, faults);
    required_fields(&configuration.run.required_fields, faults);
    super::alarms::check_alarms(&configuration.alarm, &configuration.alarms, &configuration.logbook, faults);
    super::alarms::check_control(&configuration.control, faults);
    super::histogram::check(&configuration.histogram, &configuration.source_ids(), faults);
    // Whether the CPUs and nodes exist is checked on the machine that takes the run (`run::placement`).
    super::model::checked_policy(configuration, faults);
}

/// Sections and keys that gateways do not use.
const NOT_OF_GATEWAYS: [(&str, &[&str]); 7] = [
    ("readout", &[]),
    ("builder", &[]),
    ("manager", &[]),
    ("source", &[]),
    ("felix", &[]),
    ("synchrony", &[]),
    (
        "run",
        &[
            "until_sources_end",
            "acknowledge",
            "incomplete",
            "check_crc",
            "check_bunch_crossing",
            "front_ends",
            "tcp",
            "placement",
        ],
    ),
];

fn not_of_gateways(written: &Written, faults: &mut Faults) {
    let timeouts = ("timeouts", &["readout", "builder", "manager", "unreachable", "resync", "front_end"][..]);
    for (section, keys) in NOT_OF_GATEWAYS.into_iter().chain([timeouts]) {
        if keys.is_empty() && written.has_section(section) {
            faults.add(section, "gateways do not use it: a system has either readout and builder units, or gateways");
        }
        for key in keys.iter().filter(|key| written.has(section, key)) {
            faults.add(format!("{section}.{key}"), "gateways do not use it: leave it out");
        }
    }
}

/// Sections that only gateways use.
const OF_GATEWAYS: [&str; 2] = ["farm", "trigger"];

fn not_of_readout_units(written: &Written, faults: &mut Faults) {
    for section in OF_GATEWAYS.into_iter().filter(|section| written.has_section(section)) {
        faults.add(section, "only gateways use it, and the file has readout and builder units: leave it out");
    }
}

/// Checks the sections that only readout units, builder units and their sources use.
fn of_readout_units(configuration: &Configuration, faults: &mut Faults) {
    nodes(configuration, faults);
    addresses(configuration, faults);
    timeouts(configuration, faults);
    sources(configuration, faults);
    triggers(configuration, faults);
    growing(configuration, faults);
    super::source::check_shared(&configuration.source, faults);
    felix::check_cards(configuration, faults);
    filter::check(configuration, faults);
    filter::check_files(configuration, faults);
    pools(configuration, faults);
    references(configuration, faults);
}

fn sources(configuration: &Configuration, faults: &mut Faults) {
    let readouts: BTreeSet<&str> = configuration.readout.iter().map(|readout| readout.name.as_str()).collect();
    if configuration.source.is_empty() {
        faults.add("source", "at least one [[source]] is needed");
    }
    let (mut ids, mut names) = (BTreeMap::new(), BTreeMap::new());
    for (index, source) in configuration.source.iter().enumerate() {
        let key = |field: &str| format!("source[{index}].{field}");
        if !readouts.contains(source.readout.as_str()) {
            let known = readouts.iter().copied();
            faults.add(key("readout"), no_such("readout unit is named", &source.readout, known));
        }
        if let Some(first) = ids.insert(source.id, index) {
            let message = format!("source[{first}] has the id {} already; ids must be unique", source.id);
            faults.add(key("id"), message);
        }
        // Sources without names have equal ids, which was reported above.
        let named = names.insert(source.name_or_id(), (index, source.id));
        if let Some((first, _)) = named.filter(|&(_, id)| id != source.id) {
            let message =
                format!("source[{first}] has the name `{}` already; names must be unique", source.name_or_id());
            faults.add(key("name"), message);
        }
        if SourceId(source.id).is_reserved() {
            let most = SourceId::FIRST_RESERVED.0 - 1;
            let message = format!(
                "the ids above {most} are those of what is stored with events besides fragments, such as a filter's \
                 results and what was around a converted event: give another one"
            );
            faults.add(key("id"), message);
        }
        self::source(source, key, faults);
    }
}

/// Whether nodes can listen at this address, or connect to it: `host:port`, as endpoints read it. The name of a host is
/// looked up when it is used.
pub(super) fn is_host_and_port(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let is_name = !host.is_empty() && !host.contains([':', '/', '[', ']', ' ']);
    address.parse::<SocketAddr>().is_ok() || is_name && port.parse::<u16>().is_ok()
}

/// Addresses that every node, or front ends, must know.
fn addresses(configuration: &Configuration, faults: &mut Faults) {
    let Configuration { readout, manager, run, felix, .. } = configuration;
    let readouts = readout.iter().enumerate().flat_map(|(index, readout)| {
        [(format!("readout[{index}].listen"), &readout.listen), (format!("readout[{index}].address"), &readout.address)]
    });
    let standby = manager.standby.iter().enumerate().map(|(at, address)| (format!("manager.standby[{at}]"), address));
    let serving = felix.iter().enumerate().filter_map(|(index, card)| {
        card.serve.as_ref().map(|serve| (format!("felix[{index}].serve.listen"), &serve.listen))
    });
    let others = [("manager.address".to_owned(), &manager.address), ("run.front_ends".to_owned(), &run.front_ends)];
    for (key, address) in readouts.chain(standby).chain(serving).chain(others) {
        if !is_host_and_port(address) {
            let message = "a host and a port from 0 to 65535, such as \"127.0.0.1:9000\" or \"[::1]:0\"";
            faults.add(key, format!("`{address}` is no address: {message}"));
        }
    }
}

/// The smallest size of a run file.
const LEAST_SEGMENT: Bytes = Bytes(4 << 10);
/// The smallest memory of a builder unit.
const LEAST_BUILDER_POOL: Bytes = Bytes(1 << 20);

/// Sizes with which nothing, or one event at a time, could be done.
fn sizes(configuration: &Configuration, faults: &mut Faults) {
    let run = &configuration.run;
    if run.segment_events == Some(0) {
        faults.add("run.segment_events", "a run file has at least one event; without it the size ends a file");
    }
    if run.segment_bytes.0 < LEAST_SEGMENT.0 {
        faults.add("run.segment_bytes", format!("{LEAST_SEGMENT} at least: a smaller file has no room for a record"));
    }
    if run.segment_time.is_some_and(|time| time.0.is_zero()) {
        faults.add("run.segment_time", "longer than no time at all");
    }
    for (index, builder) in configuration.builder.iter().enumerate() {
        if builder.bytes.0 == 0 {
            faults.add(format!("builder[{index}].bytes"), "more than 0: as many bytes are in work at once");
        }
        if builder.pool.0 < LEAST_BUILDER_POOL.0 {
            let message = format!("{LEAST_BUILDER_POOL} at least: super-fragments are received into it");
            faults.add(format!("builder[{index}].pool"), message);
        }
    }
}

fn nodes(configuration: &Configuration, faults: &mut Faults) {
    if configuration.readout.is_empty() {
        faults.add("readout", "at least one [[readout]] is needed");
    }
    if configuration.builder.is_empty() {
        faults.add("builder", "at least one [[builder]] is needed");
    }
    let readouts = configuration.readout.iter().enumerate().map(|(at, it)| (format!("readout[{at}].name"), &it.name));
    let builders = configuration.builder.iter().enumerate().map(|(at, it)| (format!("builder[{at}].name"), &it.name));
    let cards = configuration.felix.iter().enumerate().map(|(at, it)| (format!("felix[{at}].name"), &it.name));
    let mut names = BTreeSet::new();
    for (key, name) in readouts.chain(builders).chain(cards) {
        if name.is_empty()
            || name.len() > 32
            || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        {
            faults.add(&key, "a name has 1 to 32 letters, digits, `-` or `_`");
        }
        if !names.insert(name) {
            faults.add(key, format!("the name `{name}` is used twice"));
        }
    }
    for (index, readout) in configuration.readout.iter().enumerate() {
        let key = |field: &str| format!("readout[{index}].{field}");
        if !readout.capacity.is_power_of_two() || readout.capacity < 64 {
            faults.add(key("capacity"), "the number of events held is a power of two, 64 or more");
        }
        if readout.window == 0 || readout.window > readout.capacity / 2 {
            let message = format!("the window lies between 1 and half the capacity ({})", readout.capacity / 2);
            faults.add(key("window"), message);
        }
    }
    for (index, builder) in configuration.builder.iter().enumerate() {
        if builder.events == 0 || builder.events > 1 << 20 {
            faults.add(format!("builder[{index}].events"), "between 1 and 1048576 events in work");
        }
    }
    let manager = &configuration.manager;
    for (index, address) in manager.standby.iter().enumerate() {
        let is_fixed = !address.ends_with(":0");
        if !is_fixed || *address == manager.address || manager.standby[..index].contains(address) {
            let message = "each event manager that stands by needs an address of its own with a fixed port";
            faults.add(format!("manager.standby[{index}]"), message);
        }
    }
    if !(1..=64).contains(&configuration.manager.batch) {
        faults.add("manager.batch", "between 1 and 64 events are assigned at once");
    }
}

fn timeouts(configuration: &Configuration, faults: &mut Faults) {
    let times = &configuration.timeouts;
    let ordered = [
        ("timeouts.builder", times.readout, times.builder, "readout"),
        ("timeouts.manager", times.builder, times.manager, "builder"),
        ("timeouts.drain", times.manager, times.drain, "manager"),
    ];
    for (key, shorter, longer, name) in ordered {
        if longer <= shorter {
            let message = format!(
                "{longer} is not longer than timeouts.{name} ({shorter}): each waits for the one before it, so \
                 readout < builder < manager < drain"
            );
            faults.add(key, message);
        }
    }
}

fn source(source: &SourceSection, key: impl Fn(&str) -> String, faults: &mut Faults) {
    super::source::check_input(source, &key, faults);
    let is_elink = source.link().is_some();
    if is_elink && source.emulate.is_some() {
        faults.add(key("felix"), "an e-link is emulated with its whole card: [felix.emulate]");
    }
    if source.format == FormatName::Ferol && source.id > 0xfff && !is_elink && !source.has_layout() {
        faults.add(key("id"), "a FED id has 12 bits: 0 to 4095");
    }
    super::source::check_entrance(source, &key, faults);
    super::source::check_controlled(source, &key, faults);
    super::source::check_layout(source, &key, faults);
    super::source::check_black_box(source, &key, faults);
    super::source::check_splitter(source, &key, faults);
    super::source::check_gathering(source, &key, faults);
    super::source::check_emulated(source, &key, faults);
    let is_played = matches!(source.input, SourceInput::Played(_));
    if is_played && source.emulate.is_some() {
        faults.add(key("play"), "a source is either emulated or played from a file, not both");
    }
    if is_played && source.format != FormatName::Ferol {
        faults.add(key("play"), "only S-LINK64 files can be played: set format = \"ferol\"");
    }
    if source.counter_bits.is_some_and(|bits| !(8..=64).contains(&bits)) {
        faults.add(key("counter_bits"), "a counter has 8 to 64 bits");
    }
    if !(16..=MAX_FRAGMENT).contains(&source.max_fragment.0) {
        faults.add(key("max_fragment"), "between 16 bytes and 1 GiB");
    }
    // Described frames are as long as their description allows.
    let is_described = source.has_layout() || matches!(source.format, FormatName::Foreign(_));
    if let Some(emulate) = &source.emulate
        && !is_described
        && u64::from(emulate.fragment_size.0.largest()) > source.max_fragment.0
    {
        faults.add(key("emulate"), "the emulated fragments are larger than max_fragment allows");
    }
}

/// The largest `max_fragment`.
const MAX_FRAGMENT: u64 = 1 << 30;

fn triggers(configuration: &Configuration, faults: &mut Faults) {
    let mut triggers = configuration.source.iter().enumerate().filter(|(_, source)| source.trigger);
    let first = triggers.next();
    if let (Some((first, _)), Some((second, _))) = (first, triggers.next()) {
        let message = format!("source[{first}] is the trigger source already; there can be one");
        faults.add(format!("source[{second}].trigger"), message);
    }
}

/// Events whose own numbers only grow are numbered where their fragments come together: in one readout unit.
fn growing(configuration: &Configuration, faults: &mut Faults) {
    let mut sources = configuration.source.iter().enumerate();
    let Some((first, known)) = sources.find(|(_, source)| source.numbers_grow()) else { return };
    for (index, source) in configuration.source.iter().enumerate() {
        if !source.numbers_grow() {
            let message = format!(
                "source[{first}] has event numbers that grow in any steps; all sources must, or none (`numbers` in `event`)"
            );
            faults.add(format!("source[{index}]"), message);
        }
        if source.readout != known.readout {
            let message =
                format!("sources whose event numbers grow in any steps are in one readout unit: `{}`", known.readout);
            faults.add(format!("source[{index}].readout"), message);
        }
    }
}

/// Every source needs its own blocks for its largest fragment, one being filled and one waiting. Otherwise a fast
/// source could take the blocks that a slow one needs to complete the event all units wait for.
fn pools(configuration: &Configuration, faults: &mut Faults) {
    for (index, readout) in configuration.readout.iter().enumerate() {
        let sources = configuration.source.iter().filter(|source| source.readout == readout.name);
        let sources = sources.filter(|source| source.link().is_none());
        let block = readout.block.0;
        if !block.is_power_of_two() || !(4096..=1 << 24).contains(&block) {
            faults.add(format!("readout[{index}].block"), "a power of two between 4KiB and 16MiB");
            continue;
        }
        let most = |source: &SourceSection| source.max_fragment.0.min(MAX_FRAGMENT);
        let needed: u64 = sources.map(|source| (most(source).div_ceil(block) + 2) * block).sum();
        if readout.pool.0 < needed {
            let message = format!(
                "{} hold too little for its sources: each needs its largest fragment and two blocks, {} in all; \
                 enlarge the pool, or lower max_fragment or block",
                readout.pool,
                Bytes(needed)
            );
            faults.add(format!("readout[{index}].pool"), message);
        }
    }
}

impl Configuration {
    /// The warning if an event may be too large to be written, given its sources' longest fragments.
    pub fn largest_event_warning(&self) -> Option<String> {
        let most = match self.file_based {
            None => MAX_RECORD_BYTES as u64,
            Some(_) => u64::from(u32::MAX),
        };
        let largest: u64 = self.source.iter().map(|source| source.max_fragment.0).sum();
        (self.run.write && largest > most).then(|| {
            format!(
                "the sources' `max_fragment` allow events of {}; one of more than {} cannot be written and is dropped (`too_large`)",
                Bytes(largest),
                Bytes(most)
            )
        })
    }
}

fn references(configuration: &Configuration, faults: &mut Faults) {
    if let Some(reference) = configuration.synchrony.reference
        && !configuration.source.iter().any(|source| source.id == reference)
    {
        faults.add("synchrony.reference", format!("no source has the id {reference}"));
    }
    if !(64..=4096).contains(&configuration.synchrony.window) {
        faults.add("synchrony.window", "a relation is judged over 64 to 4096 events");
    }
    if !configuration.run.write && configuration.run.acknowledge >= AcknowledgementLevel::Written {
        let message = "nothing is written (write = false): set acknowledge = \"built\" as well";
        faults.add("run.acknowledge", message);
    }
}

/// Checks that nothing is asked of run files in a run without them.
fn pipe(configuration: &Configuration, faults: &mut Faults) {
    let Configuration { run, storage, .. } = configuration;
    if storage.pipe.is_none() {
        return;
    }
    let of_files = [
        ("run.keep", run.keep.is_some()),
        ("run.segment_events", run.segment_events.is_some()),
        ("run.segment_time", run.segment_time.is_some()),
        ("storage.more_outputs", !storage.more_outputs.is_empty()),
        ("storage.hand_over", storage.hand_over.is_some()),
        ("storage.preallocate", storage.preallocate),
        ("storage.file_mode", storage.file_mode.is_some()),
        ("storage.checksums", storage.checksums),
        ("storage.compress", storage.compress != Compression::default()),
        ("storage.transfer", storage.transfer.is_some()),
        ("stream", !configuration.stream.is_empty()),
    ];
    for (key, _) in of_files.into_iter().filter(|&(_, is_given)| is_given) {
        faults.add(key, "that is for run files, and with `pipe` of [storage] there are none: leave it out");
    }
    if run.acknowledge == AcknowledgementLevel::Synced || run.sync == SyncChoice::Batch {
        let key = if run.sync == SyncChoice::Batch { "run.sync" } else { "run.acknowledge" };
        faults.add(key, "a pipe cannot be synced: leave it out");
    }
    if configuration.file_based.is_some() || !run.write {
        faults.add(
            "storage.pipe",
            "events go to one place: leave out `pipe`, or [file_based] and `write = false` of [run]",
        );
    }
}

fn lumisection(configuration: &Configuration, faults: &mut Faults) {
    match configuration.run.lumisection {
        Some(LumisectionChoice::Events(0)) => faults.add("run.lumisection", "it has at least one event"),
        Some(LumisectionChoice::Time(time)) if time.0 < SHORTEST_LUMISECTION => {
            faults.add(
                "run.lumisection",
                "a lumisection lasts at least 100 ms, because each one costs a message to every node",
            );
        }
        _ => {}
    }
}

/// Each lumisection is announced to every node, and has a line in the run's account.
const SHORTEST_LUMISECTION: Duration = Duration::from_millis(100);

/// Whether everything that has to be said of a run can be a field's name.
pub(super) fn required_fields(names: &[String], faults: &mut Faults) {
    let Some(name) = names.iter().find(|name| !is_field_name(name)) else { return };
    let message = format!(
        "`{name}` is not a name of a field: it has 1 to 32 lower-case letters, digits and `_`, and begins with a letter"
    );
    faults.add("run.required_fields", message)
}
