//! Reading a sizing file, and what it must fulfil beyond its syntax.

use super::system::{GroupSection, HostSection, NetworkSection, System};
use ropewalk_node::configuration::{ConfigurationError, Fault, parse_as, read_text};
use ropewalk_node::quantity::{SizeDistribution, TriggerRate};
use ropewalk_terms::AcknowledgementLevel;
use std::path::Path;
use std::time::Duration;

impl System {
    /// Reads and checks a sizing file; the values in `instead` (a key such as `builder.events`, and a value as it
    /// would stand in the file) take the place of the file's.
    ///
    /// # Errors
    /// Where the file cannot be read, or what is in it or in `instead` is no system.
    pub fn read(path: &Path, instead: &[(String, String)]) -> Result<Self, ConfigurationError> {
        let (file, text) = read_text(path)?;
        Self::parse(&file, &text, instead)
    }

    /// As [`System::read`], from a text; errors give `file` as its name.
    ///
    /// # Errors
    /// As [`System::read`].
    pub fn parse(file: &str, text: &str, instead: &[(String, String)]) -> Result<Self, ConfigurationError> {
        parse_as(file, text, &|name| std::env::var(name).ok(), instead, |system, faults| {
            faults.keep(check(system));
        })
    }

    /// Sources in all.
    pub fn sources(&self) -> u32 {
        self.front_ends * self.front_end.streams
    }

    /// The mean size of a fragment in bytes.
    pub fn mean_fragment(&self) -> f64 {
        let all = self.fragment_sizes();
        all.iter().map(|size| size.mean()).sum::<f64>() / all.len().max(1) as f64
    }

    /// The sizes of fragments on each link: groups are spread so that every stretch of links has its share of each.
    pub fn fragment_sizes(&self) -> Vec<SizeDistribution> {
        let others = GroupSection {
            links: self.front_ends.saturating_sub(self.front_end.group.iter().map(|group| group.links).sum()),
            fragment_size: self.front_end.fragment_size,
        };
        let groups: Vec<&GroupSection> = self.front_end.group.iter().chain([&others]).collect();
        let mut given = vec![0_u64; groups.len()];
        let links = u64::from(self.front_ends);
        let next = |link: u64| {
            // Whoever is the furthest behind its share, in links times links.
            let behind = |at: &usize| {
                (u64::from(groups[*at].links) * (link + 1)).cast_signed() - (given[*at] * links).cast_signed()
            };
            let at = (0..groups.len()).max_by_key(behind).unwrap_or(0);
            given[at] += 1;
            groups[at].fragment_size.0
        };
        (0..links).map(next).collect()
    }

    /// The largest fragment, in bytes of its stream.
    fn largest_in_stream(&self) -> u64 {
        let sizes = self.front_end.group.iter().map(|group| group.fragment_size).chain([self.front_end.fragment_size]);
        let largest = sizes.map(|size| size.0.largest()).max().unwrap_or(0);
        self.front_end.format.in_stream(u64::from(largest))
    }

    /// Triggers a second, where a rate is given.
    pub fn trigger_hertz(&self) -> Option<f64> {
        match self.trigger.rate.as_ref()?.0 {
            TriggerRate::Periodic { hertz } | TriggerRate::Poisson { hertz } => Some(hertz),
            TriggerRate::Unlimited => None,
        }
    }
}

/// The most of anything that is counted in a file: beyond, memory and patience end.
const MOST_SOURCES: u32 = 1 << 16;

fn fault(key: &str, message: impl Into<String>) -> Result<(), Fault> {
    Err(Fault::new(key, message))
}

fn check(system: &System) -> Result<(), Fault> {
    if system.version != 1 {
        return fault("version", format!("this program reads version 1, not {}", system.version));
    }
    counts(system)?;
    times(system)?;
    memory(system)?;
    network("front_network", &system.front_network)?;
    network("event_network", &system.event_network)?;
    let hosts = [
        ("readout.host", &system.readout.host),
        ("builder.host", &system.builder.host),
        ("manager.host", &system.manager.host),
    ];
    hosts.into_iter().try_for_each(|(key, section)| host(key, section))?;
    behind_builders(system)
}

fn counts(system: &System) -> Result<(), Fault> {
    if !(1..=1000).contains(&system.front_end.streams) {
        return fault("front_end.streams", "between 1 and 1000 sources share a link");
    }
    if system.front_ends == 0 || system.front_ends > MOST_SOURCES / system.front_end.streams {
        return fault("front_ends", format!("at least one link, and at most {MOST_SOURCES} sources on all of them"));
    }
    let in_groups = system.front_end.group.iter().map(|group| u64::from(group.links)).sum::<u64>();
    if in_groups > u64::from(system.front_ends) {
        let message = format!("the groups have {in_groups} links, of {} in all (front_ends)", system.front_ends);
        return fault("front_end.group", message);
    }
    if system.readouts == 0 || u32::from(system.readouts) > system.front_ends {
        let message = format!("between 1 and {} readout units: each reads at least one link", system.front_ends);
        return fault("readouts", message);
    }
    if !(1..=4096).contains(&system.builders) {
        return fault("builders", "between 1 and 4096 builder units");
    }
    if !(1..=64).contains(&system.manager.batch) {
        return fault("manager.batch", "between 1 and 64 events are assigned at once");
    }
    if !(1..=1 << 20).contains(&system.builder.events) {
        return fault("builder.events", "between 1 and 1048576 events in work");
    }
    Ok(())
}

fn times(system: &System) -> Result<(), Fault> {
    if system.duration.0 <= system.warm_up.0 {
        return fault("duration", format!("longer than warm_up ({}), which is not counted", system.warm_up));
    }
    if system.duration.0 + system.drain.0 > Duration::from_secs(3600) {
        return fault("duration", "at most an hour, drain included");
    }
    let gather = system.trigger.gather.0;
    if gather < Duration::from_micros(1) || gather > Duration::from_millis(10) {
        return fault("trigger.gather", "between 1us and 10ms");
    }
    match system.trigger_hertz() {
        Some(hertz) if hertz * gather.as_secs_f64() > 64.0 => {
            fault("trigger.gather", "at most 64 triggers are gathered: a shorter time, or a lower trigger.rate")
        }
        _ => Ok(()),
    }
}

fn memory(system: &System) -> Result<(), Fault> {
    for (key, capacity) in
        [("readout.capacity", system.readout.capacity), ("manager.capacity", system.manager.capacity)]
    {
        if !capacity.is_power_of_two() || !(64..=1 << 20).contains(&capacity) {
            return fault(key, "the number of events is a power of two between 64 and 1048576");
        }
    }
    if system.readout.window == 0 || system.readout.window > system.readout.capacity / 2 {
        let most = system.readout.capacity / 2;
        return fault("readout.window", format!("the window lies between 1 and half the capacity ({most})"));
    }
    let largest = system.largest_in_stream();
    let sources = u64::from(system.sources().div_ceil(u32::from(system.readouts)) + system.front_end.streams);
    if system.readout.pool.0 < 2 * largest * sources {
        let message =
            format!("each of up to {sources} sources needs room for two of its largest fragments ({largest} bytes)");
        return fault("readout.pool", message);
    }
    if system.front_end.buffer.0 < 2 * largest {
        return fault("front_end.buffer", format!("room for two of the largest fragments ({largest} bytes each)"));
    }
    if system.front_network.window.0 < largest {
        let message = format!("at least the largest fragment ({largest} bytes): it is read as a whole");
        return fault("front_network.window", message);
    }
    Ok(())
}

fn network(name: &str, network: &NetworkSection) -> Result<(), Fault> {
    let key = |field: &str| format!("{name}.{field}");
    if !(64..=1 << 20).contains(&network.packet.0) {
        return fault(&key("packet"), "between 64 bytes and 1MiB");
    }
    if network.window.0 < 2 * network.packet.0 {
        return fault(&key("window"), format!("at least two packets ({} bytes each)", network.packet.0));
    }
    if network.retransmit_after.0 < Duration::from_micros(100) {
        return fault(&key("retransmit_after"), "at least 100us: TCP's least is 200ms unless told otherwise");
    }
    Ok(())
}

fn host(name: &str, host: &HostSection) -> Result<(), Fault> {
    if host.cores == 0 {
        return fault(&format!("{name}.cores"), "at least one core");
    }
    if host.turn.0 < Duration::from_nanos(100) {
        return fault(&format!("{name}.turn"), "at least 100ns: time must go on");
    }
    Ok(())
}

fn behind_builders(system: &System) -> Result<(), Fault> {
    if let Some(filter) = &system.filter {
        if !(1..=1 << 16).contains(&filter.workers) {
            return fault("filter.workers", "between 1 and 65536");
        }
        if !(0.0..=1.0).contains(&filter.accept) {
            return fault("filter.accept", "a part between 0 and 1");
        }
    }
    match system.builder.acknowledge {
        AcknowledgementLevel::Handed if system.filter.is_none() => {
            fault("builder.acknowledge", "there is no [filter] that an event could be handed to: say \"built\"")
        }
        AcknowledgementLevel::Written | AcknowledgementLevel::Synced if system.disk.is_none() => {
            fault("builder.acknowledge", "there is no [disk] that an event could be written to: say \"built\"")
        }
        _ => Ok(()),
    }
}
