//! Reading the sizing file of a push system, and what it must fulfil beyond its syntax.

use super::system::{FlowSection, GatewaySection, PushSystem, on_the_wire};
use ropewalk_node::configuration::{ConfigurationError, Fault, parse_as};
use ropewalk_wire::gateway::{FRAME_BYTES, LARGEST_BODY_BYTES, MOST_OUTSTANDING, PIECE_HEAD_BYTES, PUSH_HEAD_BYTES};
use ropewalk_wire::mep::{BANK_HEADER_BYTES, LARGEST_MEP_BYTES};
use std::time::Duration;

impl PushSystem {
    /// Reads and checks a text; errors give `file` as its name. The values in `instead` (a key such as `gateway.queues` or
    /// `flow[0].packing`, and a value as it would stand in the file) take the place of the file's.
    ///
    /// # Errors
    /// Where what is in it or in `instead` is no system.
    pub fn parse(file: &str, text: &str, instead: &[(String, String)]) -> Result<Self, ConfigurationError> {
        parse_as(file, text, &|name| std::env::var(name).ok(), instead, |system, faults| {
            faults.keep(check(system));
        })
    }

    /// Input queues of all gateways.
    pub const fn queues(&self) -> u16 {
        self.gateways * self.gateway.queues
    }
}

/// The most input queues: each is a machine with tables of its own.
const MOST_QUEUES: u32 = 1024;
/// The most nodes of all gateways.
const MOST_NODES: u32 = 1 << 14;
/// Sources of all flows, as many as one gateway can tell apart.
const MOST_SOURCES: u32 = 1 << 14;

fn fault(key: &str, message: impl Into<String>) -> Result<(), Fault> {
    Err(Fault::new(key, message))
}

fn check(system: &PushSystem) -> Result<(), Fault> {
    if system.version != 1 {
        return fault("version", format!("this program reads version 1, not {}", system.version));
    }
    let queues = u32::from(system.gateways) * u32::from(system.gateway.queues);
    if !(1..=MOST_QUEUES).contains(&queues) {
        let key = if system.gateway.queues == 0 { "gateway.queues" } else { "gateways" };
        return fault(key, format!("between 1 and {MOST_QUEUES} input queues in all, not {queues}"));
    }
    if system.flow.is_empty() || system.flow.len() > 8 {
        return fault("flow", "between 1 and 8 flows");
    }
    if system.flow.iter().map(|flow| u32::from(flow.sources)).sum::<u32>() > MOST_SOURCES {
        return fault("flow", format!("at most {MOST_SOURCES} sources of all flows"));
    }
    times(system)?;
    system.flow.iter().enumerate().try_for_each(|(index, section)| flow(index, section))?;
    network(system)?;
    gateway(&system.gateway)?;
    farm(system)
}

fn times(system: &PushSystem) -> Result<(), Fault> {
    if system.duration.0 <= system.warm_up.0 {
        return fault("duration", format!("longer than warm_up ({}), which is not counted", system.warm_up));
    }
    if system.duration.0 + system.drain.0 > Duration::from_secs(3600) {
        return fault("duration", "at most an hour, drain included");
    }
    Ok(())
}

fn flow(index: usize, flow: &FlowSection) -> Result<(), Fault> {
    let key = |name: &str| format!("flow[{index}].{name}");
    if flow.sources == 0 || flow.packing == 0 {
        return fault(&key(if flow.sources == 0 { "sources" } else { "packing" }), "at least 1");
    }
    if flow.most_banks() < BANK_HEADER_BYTES || flow.fragment_size.0.mean() > flow.most_banks() as f64 {
        return fault(&key("packing"), format!("so many fragments fit into no packet of {LARGEST_MEP_BYTES} bytes"));
    }
    if flow.rate.0.hertz().is_none_or(|hertz| hertz <= 0.0 || hertz > 1e9) {
        return fault(&key("rate"), "events come at a rate of up to 1GHz: sources that push have no other measure");
    }
    if !(4..=4096).contains(&flow.sets) {
        return fault(&key("sets"), "between 4 and 4096 sets of events");
    }
    if !(0.0..=1.0).contains(&flow.accept) {
        return fault(&key("accept"), "a part between 0 and 1");
    }
    Ok(())
}

fn network(system: &PushSystem) -> Result<(), Fault> {
    for (key, mtu) in [("network.mtu", system.network.mtu.0), ("gateway.mtu", system.gateway.mtu.0)] {
        if !(68..=65_535).contains(&mtu) {
            return fault(key, "between 68 and 65535 bytes");
        }
    }
    let largest = system.flow.iter().map(FlowSection::largest_packet).max().unwrap_or_default() as u64;
    if system.network.buffer.0 < on_the_wire(system.network.mtu.0, largest) {
        return fault("network.buffer", format!("room for the longest packet ({largest} bytes)"));
    }
    if system.gateway.socket.0 < largest {
        return fault("gateway.socket", format!("room for the longest packet ({largest} bytes)"));
    }
    Ok(())
}

fn gateway(gateway: &GatewaySection) -> Result<(), Fault> {
    let least = (PUSH_HEAD_BYTES + PIECE_HEAD_BYTES + 1) as u64;
    let most = (FRAME_BYTES + LARGEST_BODY_BYTES) as u64;
    if !(least..=most).contains(&gateway.largest_push.0) {
        return fault("gateway.largest_push", format!("between {least} and {most} bytes"));
    }
    if !(1..=4096).contains(&gateway.batch) {
        return fault("gateway.batch", "between 1 and 4096 packets");
    }
    if gateway.host.turn.0 < Duration::from_nanos(100) {
        return fault("gateway.host.turn", "at least 100ns: time must go on");
    }
    Ok(())
}

fn farm(system: &PushSystem) -> Result<(), Fault> {
    let nodes = u32::from(system.farm.nodes) * u32::from(system.gateways);
    if !(1..=MOST_NODES).contains(&nodes) {
        return fault("farm.nodes", format!("between 1 and {MOST_NODES} nodes in all, not {nodes}"));
    }
    if !(1..=1 << 16).contains(&system.farm.cores) {
        return fault("farm.cores", "between 1 and 65536");
    }
    if !(1..=MOST_OUTSTANDING).contains(&u64::from(system.farm.outstanding)) {
        return fault("farm.outstanding", format!("between 1 and {MOST_OUTSTANDING} events"));
    }
    Ok(())
}
