//! Checks of gateways, flows and the farm beyond syntax.

use super::filter::{check_streams, triggers, unheard_of};
use crate::error::{Faults, no_such};
use crate::gateway::{
    FARM_PROTOCOL, FlowSection, GatewaySection, ListenAddress, ReceiveChoice, SendChoice, TransportChoice,
};
use crate::written::Written;
use crate::{Configuration, StreamSection};
use ropewalk_flow::builder::IncompletePolicy;
use ropewalk_flow::gateway::Output;
use std::collections::BTreeSet;
use std::time::Duration;

/// Checks the sections that only gateways, their flows and their farm use.
pub(super) fn check(configuration: &Configuration, written: &Written, faults: &mut Faults) {
    if configuration.flow.is_empty() || configuration.flow.len() > 16 {
        faults.add("flow", "between 1 and 16 [[flow]] are needed");
    }
    if configuration.gateway.is_empty() {
        faults.add("gateway", "at least one [[gateway]] is needed");
    }
    names(configuration, faults);
    for (index, flow) in configuration.flow.iter().enumerate() {
        self::flow(flow, |field| format!("flow[{index}].{field}"), faults);
        // Without a farm the filter's time is limited.
        if flow.decision_timeout <= flow.timeout && !configuration.decides_itself() {
            let message = format!("not longer than `timeout` ({}): events wait for their packets first", flow.timeout);
            faults.add(format!("flow[{index}].decision_timeout"), message);
        }
    }
    for (index, gateway) in configuration.gateway.iter().enumerate() {
        let key = |field: &str| format!("gateway[{index}].{field}");
        self::gateway(configuration, gateway, key, faults);
        mechanisms(configuration, gateway, key, faults);
    }
    listeners_apart(configuration, faults);
    ordered_streams(configuration, faults);
    super::filter::check_files(configuration, faults);
    if configuration.decides_itself() {
        without_farm(configuration, faults);
    } else {
        filter(configuration, written, faults);
        streams(configuration, faults);
        farm(configuration, faults);
    }
}

/// Gateways without a farm decide as builder units do.
fn without_farm(configuration: &Configuration, faults: &mut Faults) {
    super::filter::check(configuration, faults);
    let first_level = configuration.flow.iter().position(|flow| flow.output == Output::Stream);
    if let Some(index) = first_level {
        let message = "only a farm gives decisions in the order of events: without one (`nodes = 0` in [farm]) a gateway \
                       writes the events that it accepts; leave it out";
        faults.add(format!("flow[{index}].output"), message);
    }
    if configuration.farm.emulate.is_some() {
        faults.add("farm.emulate", "there are no nodes (`nodes = 0`): leave out one of both");
    }
}

/// What the nodes of a farm do not use of a filter.
const NOT_OF_NODES: [&str; 12] = [
    "library",
    "program",
    "configuration",
    "nodes",
    "node_memory",
    "trusted",
    "units",
    "events",
    "timeout",
    "memory",
    "restart_delay",
    "restarts",
];

/// Triggers are the bits of the decision word.
fn filter(configuration: &Configuration, written: &Written, faults: &mut Faults) {
    for key in NOT_OF_NODES.iter().filter(|key| written.has("filter", key)) {
        let message = "the nodes of a farm do not use it: leave it out, or let gateways decide themselves (`nodes = 0` in [farm])";
        faults.add(format!("filter.{key}"), message);
    }
    let Some(filter) = &configuration.filter else { return };
    let is_other = filter.library.is_some() || filter.program.is_some();
    if filter.triggers.is_empty() && !is_other {
        faults.add("filter", "the nodes of a farm decide by triggers: `triggers = [{ present = 7 }]`");
    }
    if filter.triggers.len() > u32::BITS as usize {
        faults.add("filter.triggers", "a farm has 32 triggers at most: the bits of a decision's word");
    }
    if configuration.farm.emulate.is_some() {
        faults.add("farm.emulate", "the nodes decide by the [filter]: leave out one of both");
    }
    triggers("filter", &filter.triggers, configuration, faults);
}

fn ordered_streams(configuration: &Configuration, faults: &mut Faults) {
    if let Some(index) = configuration.stream.iter().position(|stream| stream.ordered) {
        let message = "a gateway writes events in the order of their decisions; leave it out";
        faults.add(format!("stream[{index}].ordered"), message);
    }
}

fn streams(configuration: &Configuration, faults: &mut Faults) {
    let sections = &configuration.stream;
    let unset = |stream: &StreamSection| {
        if let Some((section, trigger, count)) = unheard_of(stream, configuration) {
            return Some(format!("trigger {trigger} does not exist: [{section}] has {count}, numbered from 0"));
        }
        let trigger = stream.triggers.iter().find(|&&trigger| trigger >= u32::BITS)?;
        Some(format!("trigger {trigger} does not exist: the word of a decision has bits 0 to 31"))
    };
    check_streams(sections, false, unset, faults);
}

fn names(configuration: &Configuration, faults: &mut Faults) {
    let flows = configuration.flow.iter().enumerate().map(|(at, it)| (format!("flow[{at}].name"), &it.name));
    let gateways = configuration.gateway.iter().enumerate().map(|(at, it)| (format!("gateway[{at}].name"), &it.name));
    let mut names = BTreeSet::new();
    for (key, name) in flows.chain(gateways) {
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if name.is_empty() || name.len() > 32 || !name.bytes().all(is_fit) {
            faults.add(&key, "a name has 1 to 32 letters, digits, `-` or `_`");
        }
        if !names.insert(name) {
            faults.add(key, format!("the name `{name}` is used twice"));
        }
    }
}

/// The most sources of a flow.
const MOST_SOURCES: u16 = 4096;

fn flow(flow: &FlowSection, key: impl Fn(&str) -> String, faults: &mut Faults) {
    let sources = &flow.sources;
    if !(1..=MOST_SOURCES).contains(&sources.count) {
        faults.add(key("sources.count"), format!("between 1 and {MOST_SOURCES} sources"));
        return;
    }
    if sources.first.checked_add(u32::from(sources.count)).is_none() {
        faults.add(key("sources.first"), "the last source's id would be above 4294967295");
        return;
    }
    if sources.address.of(u32::from(sources.count) - 1).is_none() {
        faults.add(key("sources.address"), "the last source's address or port would be none");
    }
    if let Some(id) = sources.masked.iter().find(|&&id| id.wrapping_sub(sources.first) >= u32::from(sources.count)) {
        let last = sources.first + (u32::from(sources.count) - 1);
        let message = format!("there is no source {id}: they are {} to {last}", sources.first);
        faults.add(key("sources.masked"), message);
    }
    if sources.entries(false).next().is_none() {
        faults.add(key("sources.masked"), "at least one source is not masked");
    }
    protocol(flow, &key, faults);
    if flow.packing == 0 {
        faults.add(key("packing"), "at least one event is in a packet");
    }
    if flow.assembling == 0 || flow.assembling > flow.sets || flow.sets > 16_384 {
        let message = format!("between 1 and `sets` ({}), which are at most 16384", flow.sets);
        faults.add(key("assembling"), message);
    }
    if flow.incomplete == IncompletePolicy::Stop {
        faults.add(key("incomplete"), "a gateway does not stop: `emit` or `drop`");
    }
    if flow.timeout.0 < Duration::from_millis(1) {
        faults.add(key("timeout"), "packets need some time to come: 1ms at least");
    }
    if !(64..=65_507).contains(&flow.largest_packet.0) {
        faults.add(key("largest_packet"), "between 64 and 65507 bytes");
    }
    let Some(emulate) = &flow.emulate else { return };
    for (name, share) in [("loss", emulate.loss), ("duplicates", emulate.duplicates), ("reordered", emulate.reordered)]
    {
        if !(0.0..=1.0).contains(&share) {
            faults.add(key(&format!("emulate.{name}")), "a share lies between 0 and 1");
        }
    }
}

/// What listens must differ: flows, queues and gateways by address and port, and without ports by address and protocol.
fn listeners_apart(configuration: &Configuration, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    let mut enter = |key: String, first: ListenAddress, queue: u16, protocol: Option<u8>| {
        let Some(address) = first.of_queue(queue, protocol.is_none()) else {
            faults.add(key, format!("queue {queue} would have no port, or no address"));
            return;
        };
        let is_any = protocol.is_none() && address.port() == 0;
        if !is_any && !seen.insert((address, protocol)) {
            let twice =
                protocol.map_or(address.to_string(), |number| format!("{} with protocol {number}", address.ip()));
            faults.add(key, format!("{twice} is used twice"));
        }
    };
    let control = (configuration.farm.transport == TransportChoice::RawIp).then_some(FARM_PROTOCOL);
    for (index, gateway) in configuration.gateway.iter().enumerate() {
        for queue in 0..gateway.queues {
            for (name, address) in &gateway.listen {
                let protocol = configuration.flow.iter().find(|flow| flow.name == *name).and_then(|flow| flow.protocol);
                enter(format!("gateway[{index}].listen.{name}"), *address, queue, protocol);
            }
            enter(format!("gateway[{index}].control"), gateway.control, queue, control);
            for (name, address) in &gateway.decisions {
                enter(format!("gateway[{index}].decisions.{name}"), *address, queue, None);
            }
        }
    }
}

/// Protocol numbers without another user: unassigned ones, and RFC 3692's first one for experiments.
const PROTOCOLS: core::ops::RangeInclusive<u8> = 147..=253;

/// Packets straight over IP have no ports.
fn protocol(flow: &FlowSection, key: impl Fn(&str) -> String, faults: &mut Faults) {
    let Some(number) = flow.protocol else { return };
    if !PROTOCOLS.contains(&number) {
        faults.add(key("protocol"), "use a protocol number from 147 to 253: the others are assigned");
    }
    if flow.sources.address.are_ports() {
        let message =
            "packets straight over IP have no ports: each source needs an address of its own, such as 10.0.0.1";
        faults.add(key("sources.address"), message);
    }
}

/// What rings and queues want.
fn mechanisms(
    configuration: &Configuration,
    gateway: &GatewaySection,
    key: impl Fn(&str) -> String,
    faults: &mut Faults,
) {
    if !(1..=64).contains(&gateway.queues) {
        faults.add(key("queues"), "between 1 and 64 input queues");
    }
    let is_raw = configuration.flow.iter().any(|flow| flow.protocol.is_some());
    if is_raw && gateway.receive == ReceiveChoice::Gro {
        faults.add(key("receive"), "the kernel joins UDP packets alone, and a flow has a `protocol`");
    }
    if gateway.send == SendChoice::AfXdp && gateway.receive != ReceiveChoice::AfXdp {
        faults.add(key("send"), "`send = \"af_xdp\"` needs `receive = \"af_xdp\"`: both use one queue of the card");
    }
    let receives_by_ring = matches!(gateway.receive, ReceiveChoice::Tpacket | ReceiveChoice::AfXdp);
    let sends_by_ring = matches!(gateway.send, SendChoice::TxRing | SendChoice::AfXdp);
    if sends_by_ring && configuration.farm.transport == TransportChoice::Tcp {
        faults.add(key("send"), "rings carry packets, and the farm is reached over TCP");
    }
    if (receives_by_ring || sends_by_ring) && gateway.interface.is_none() {
        faults.add(
            key("interface"),
            "`tpacket`, `af_xdp` and `tx_ring` need the name of a network card, such as \"eth0\"",
        );
    }
    let is_unnamed = |address: &ListenAddress| address.0.ip().is_unspecified();
    if let Some((flow, _)) = gateway.listen.iter().find(|(_, address)| receives_by_ring && is_unnamed(address)) {
        faults.add(key(&format!("listen.{flow}")), "a ring needs the card's own address, not 0.0.0.0");
    }
    if (sends_by_ring || gateway.receive == ReceiveChoice::AfXdp) && is_unnamed(&gateway.control) {
        faults.add(key("control"), "a ring needs the card's own address, not 0.0.0.0");
    }
}

fn gateway(configuration: &Configuration, gateway: &GatewaySection, key: impl Fn(&str) -> String, faults: &mut Faults) {
    for flow in &configuration.flow {
        if !gateway.listen.contains_key(&flow.name) {
            let message = format!("it does not say where packets of `{}` come in", flow.name);
            faults.add(key("listen"), message);
        }
    }
    let is_known = |name: &String| configuration.flow.iter().any(|flow| flow.name == *name);
    let known = || configuration.flow.iter().map(|flow| flow.name.as_str());
    for unknown in gateway.listen.keys().filter(|name| !is_known(name)) {
        faults.add(key(&format!("listen.{unknown}")), no_such("flow is named", unknown, known()));
    }
    for unknown in configuration.trigger.listen.keys().filter(|name| !is_known(name)) {
        faults.add(format!("trigger.listen.{unknown}"), no_such("flow is named", unknown, known()));
    }
    for name in gateway.decisions.keys() {
        let is_stream = |flow: &FlowSection| flow.name == *name && flow.output == Output::Stream;
        if !configuration.flow.iter().any(is_stream) {
            let message = "no flow of this name has the output \"stream\"";
            faults.add(key(&format!("decisions.{name}")), message);
        }
    }
    if let Some(tell) = &gateway.throttle.tell
        && (tell.udp.is_none() && tell.command.is_empty() || tell.repeat.0.is_zero())
    {
        let message = "it needs `udp` or `command`, and a time to `repeat` it after";
        faults.add(key("throttle.tell"), message);
    }
    if gateway.memory.0 < 1 << 20 {
        faults.add(key("memory"), "1MiB at least: packets wait there for the others of their events");
    }
    if !(64 << 10..1 << 31).contains(&gateway.receive_buffer.0) {
        faults.add(key("receive_buffer"), "at least 64KiB and less than 2GiB, the limit of the kernel");
    }
}

fn farm(configuration: &Configuration, faults: &mut Faults) {
    let farm = &configuration.farm;
    if farm.nodes > 4096 {
        faults.add("farm.nodes", "at most 4096 nodes");
        return;
    }
    if !(256..=65_000).contains(&farm.largest_push.0) {
        faults.add("farm.largest_push", "between 256 and 65000 bytes");
    }
    if !(1..=256).contains(&farm.outstanding) {
        faults.add("farm.outstanding", "between 1 and 256 events");
    }
    farm_over_ip(configuration, faults);
    if farm.silence.0 < Duration::from_millis(100) {
        faults.add("farm.silence", "100ms at least: nodes say every 30 ms that they are there");
    }
    let Some(emulate) = &farm.emulate else { return };
    if !(0.0..=1.0).contains(&emulate.accept) {
        faults.add("farm.emulate.accept", "a share lies between 0 and 1");
    }
    if !(1..=256).contains(&emulate.at_once) {
        faults.add("farm.emulate.at_once", "between 1 and 256 events");
    }
    if let Some(index) = emulate.outages.iter().position(|outage| outage.node >= farm.nodes) {
        let message = format!("the farm has the nodes 0 to {}", farm.nodes - 1);
        faults.add(format!("farm.emulate.outages[{index}].node"), message);
    }
}

/// Nodes and gateways that use IP directly are identified by their addresses only.
fn farm_over_ip(configuration: &Configuration, faults: &mut Faults) {
    let farm = &configuration.farm;
    let last = u32::from(farm.nodes) - 1;
    if farm.address.is_some_and(|addresses| addresses.of(last).is_none()) {
        faults.add("farm.address", "the last node's address or port would be none");
    }
    if farm.transport != TransportChoice::RawIp {
        return;
    }
    if farm.emulate.is_some() && farm.address.is_none_or(|addresses| addresses.are_ports()) {
        let message = "straight over IP there are no ports: each node needs an address of its own, such as 10.0.0.1";
        faults.add("farm.address", message);
    }
}
