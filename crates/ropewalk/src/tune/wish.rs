//! What a configuration needs of the host.

use crate::exit::Failure;
use ropewalk_config::quantity::SizeDistribution;
use ropewalk_config::{
    Configuration, FlowSection, NetworkAddress, PlacementChoice, ReadoutSection, ReceiveChoice, SourceInput, ThreadRule,
};
use ropewalk_host::{Card, CardKind, Decision, Kind, Machine, Plan};
use ropewalk_run::{placement_on, receiving_threads};
use ropewalk_tune::{Feeding, Placed, Transport, Wish};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

/// Files and connections of a unit beside those of its sources: segments, other units, control.
const FILES_OF_A_UNIT: u64 = 32;

/// What the configuration in a file, of whichever kind, needs of the machine below `root`.
pub(super) fn of_file(file: &Path, root: &Path) -> Result<Wish, Failure> {
    let machine = Machine::read(root).map_err(|error| Failure::Environment(error.to_string()))?;
    let mut wish = of_machine(file, &machine)?;
    if root == Path::new("/") {
        resolve(&mut wish.outputs);
    } else {
        // The links of the other machine are unknown here.
        let whole = |output: &PathBuf| std::path::absolute(output).unwrap_or_else(|_| output.clone());
        wish.outputs = wish.outputs.iter().map(whole).collect();
    }
    Ok(wish)
}

/// Makes directories of this machine what mounts are compared with: whole paths without links, each of them once.
pub(crate) fn resolve(outputs: &mut Vec<PathBuf>) {
    outputs.iter_mut().for_each(|output| *output = resolved(output));
    outputs.sort();
    outputs.dedup();
}

/// Links are followed as far as the directory exists; a run makes the rest.
fn resolved(output: &Path) -> PathBuf {
    let Ok(whole) = std::path::absolute(output) else { return output.to_owned() };
    let there = whole.ancestors().find_map(|above| Some((above.canonicalize().ok()?, above)));
    let joined = there.map(|(real, above)| {
        let missing = whole.components().skip(above.components().count());
        real.components().chain(missing).collect()
    });
    joined.unwrap_or(whole)
}

fn of_machine(file: &Path, machine: &Machine) -> Result<Wish, Failure> {
    let configuration = ropewalk_config::read(file)?;
    if configuration.has_gateways() {
        return Ok(of_push(&configuration, machine));
    }
    for readout in &configuration.readout {
        if let Some(missing) = readout.card.as_ref().filter(|name| machine.card(name).is_none()) {
            let there = machine.cards.iter().map(|card| card.name.as_str()).collect::<Vec<_>>().join(", ");
            let name = &readout.name;
            return Err(Failure::Usage(format!("{name}: there is no network card `{missing}`; there are: {there}")));
        }
    }
    Ok(of_pull(&configuration, machine))
}

/// What readout units, datagrams of sources, and builder units need.
pub(super) fn of_pull(configuration: &Configuration, machine: &Machine) -> Wish {
    // Rules that this machine cannot follow are reported when a run begins.
    let plan = placement_on(configuration, machine).unwrap_or_default();
    let placed = |thread: &str| match by_rule(&plan, machine, thread) {
        // If it finds too few cores now, it may find them when the interrupts are in their places.
        None if configuration.run.placement == PlacementChoice::Auto => Placed::Automatic,
        decided => decided.unwrap_or_default(),
    };
    let (mut feeding, mut memory_by_node) = (Vec::new(), BTreeMap::new());
    for readout in &configuration.readout {
        let own = configuration.source.iter().filter(|source| source.readout == readout.name);
        let made_here = own.clone().filter(|source| source.is_made_here()).count();
        let streams = own.filter(|source| !source.comes_in_datagrams()).count();
        // Emulated sources are threads of the run: what they send never leaves this machine.
        let card = if made_here == streams { loopback(machine) } else { card_of(readout, machine) };
        let pool = plan.of(Kind::Pool, &format!("{}-fragments", readout.name)).and_then(|pool| pool.node);
        add_memory(&mut memory_by_node, pool.or_else(|| node_of(card?, machine)), readout.pool.0);
        feeding.extend(card.filter(|_| streams > 0).map(|card| Feeding {
            interface: card.name.clone(),
            thread: readout.name.clone(),
            transport: Transport::Tcp,
            streams: streams as u32,
            receive_buffer_bytes: None,
            bytes_per_second: None,
            placed: placed(&readout.name),
        }));
    }
    for source in configuration.source.iter().filter(|source| source.emulate.is_none()) {
        let Some(address) = datagrams_at(&source.input) else { continue };
        feeding.extend(card_at(machine, address).map(|card| Feeding {
            interface: card.name.clone(),
            thread: source.readout.clone(),
            transport: Transport::Datagrams,
            streams: 1,
            receive_buffer_bytes: None,
            bytes_per_second: None,
            placed: placed(&source.readout),
        }));
    }
    let pools = configuration.readout.iter().map(|readout| readout.pool.0);
    // `bytes` limits the events in work; it takes no memory of its own.
    let received = configuration.builder.iter().map(|builder| builder.pool.0);
    let outputs = configuration.builder.iter().map(|builder| {
        let output = builder.output.clone();
        output.unwrap_or_else(|| configuration.run.output.clone())
    });
    let mut outputs: Vec<_> = outputs.filter(|_| configuration.run.write).collect();
    outputs.sort();
    outputs.dedup();
    let threads = plan.placements.iter().filter(|one| one.kind == Kind::Thread);
    let threads = threads.map(|one| (one.name.clone(), placed(&one.name))).collect();
    let units = configuration.readout.len() + configuration.builder.len() + 1;
    Wish {
        feeding,
        threads,
        outputs,
        memory_bytes: pools.chain(received).fold(0, u64::saturating_add),
        memory_by_node,
        files: configuration.source.len() as u64 + units as u64 * FILES_OF_A_UNIT,
        peers: peers(configuration, machine),
        realtime_priority: highest_priority(&configuration.thread),
        ..Wish::default()
    }
}

/// The other machines that it names by their addresses; names are not asked for, since that may take long.
fn peers(configuration: &Configuration, machine: &Machine) -> Vec<IpAddr> {
    let address = |text: &str| text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let readouts = configuration.readout.iter().map(|readout| readout.address.as_str());
    let managers =
        configuration.manager.standby.iter().map(String::as_str).chain([configuration.manager.address.as_str()]);
    let boards = configuration.source.iter().filter(|source| source.emulate.is_none());
    let boards = boards.filter_map(|source| match &source.input {
        SourceInput::Connect(NetworkAddress::Tcp(address)) => Some(address.as_str()),
        _ => None,
    });
    elsewhere(readouts.chain(managers).chain(boards).filter_map(address), machine)
}

/// The other machines of a push system: senders of packets, and receivers of the throttle.
fn push_peers(configuration: &Configuration, machine: &Machine) -> Vec<IpAddr> {
    let flows = configuration.flow.iter().filter(|flow| flow.emulate.is_none());
    let sources = flows.flat_map(|flow| {
        let sources = &flow.sources;
        (0..u32::from(sources.count)).filter_map(|number| Some(IpAddr::V4(sources.address.of(number)?.ip)))
    });
    let told = configuration.gateway.iter().filter_map(|gateway| gateway.throttle.tell.as_ref()?.udp);
    elsewhere(sources.chain(told.map(|address| IpAddr::V4(*address.0.ip()))), machine)
}

/// Those of some addresses that are other machines', each once.
fn elsewhere(addresses: impl Iterator<Item = IpAddr>, machine: &Machine) -> Vec<IpAddr> {
    let own: Vec<IpAddr> =
        machine.cards.iter().flat_map(|card| &card.networks).map(|network| network.address).collect();
    let is_one = |ip: &IpAddr| !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast();
    let mut peers: Vec<IpAddr> = addresses.filter(|ip| is_one(ip) && !own.contains(ip)).collect();
    peers.sort();
    peers.dedup();
    peers
}

/// What gateways need.
fn of_push(configuration: &Configuration, machine: &Machine) -> Wish {
    let plan = placement_on(configuration, machine).unwrap_or_default();
    let (mut feeding, mut memory_by_node) = (Vec::new(), BTreeMap::new());
    let bytes_per_second = bytes_to_each_queue(configuration, machine);
    for gateway in &configuration.gateway {
        let transport = match gateway.receive {
            ReceiveChoice::Tpacket | ReceiveChoice::AfXdp => Transport::Rings,
            ReceiveChoice::Recvfrom | ReceiveChoice::Recvmmsg | ReceiveChoice::Gro => Transport::Datagrams,
        };
        let named = gateway.interface.as_ref().and_then(|name| machine.card(name));
        let listens = gateway.listen.values().next().and_then(|address| card_at(machine, (*address.0.ip()).into()));
        let Some(card) = named.or(listens) else { continue };
        add_memory(&mut memory_by_node, node_of(card, machine), gateway.memory.0);
        // Each queue is read by its own thread.
        feeding.extend(receiving_threads(gateway).into_iter().map(|thread| Feeding {
            interface: card.name.clone(),
            placed: by_rule(&plan, machine, &thread).unwrap_or_default(),
            thread,
            transport,
            streams: gateway.listen.len() as u32,
            // The configuration counts like the kernel, which allocates twice the requested size.
            receive_buffer_bytes: (transport == Transport::Datagrams).then_some(gateway.receive_buffer.0 / 2),
            bytes_per_second,
        }));
    }
    // Its queues share it.
    let memory = configuration.gateway.iter().map(|gateway| gateway.memory.0);
    let threads = plan.placements.iter().filter(|one| one.kind == Kind::Thread);
    let placed = |name: &str| by_rule(&plan, machine, name).unwrap_or_default();
    Wish {
        feeding,
        threads: threads.map(|one| (one.name.clone(), placed(&one.name))).collect(),
        outputs: if configuration.run.write { vec![configuration.run.output.clone()] } else { Vec::new() },
        memory_bytes: memory.fold(0, u64::saturating_add),
        memory_by_node,
        files: (configuration.gateway.len() + 1) as u64 * FILES_OF_A_UNIT + u64::from(configuration.farm.nodes),
        peers: push_peers(configuration, machine),
        realtime_priority: highest_priority(&configuration.thread),
        ..Wish::default()
    }
}

/// The bytes of all flows that arrive at one queue of a gateway per second, without headers: the trigger assigns events
/// to all equally. `None` if a flow comes from front ends, or has no limited rate.
fn bytes_to_each_queue(configuration: &Configuration, machine: &Machine) -> Option<u64> {
    let bytes = |flow: &FlowSection| {
        let emulate = flow.emulate.as_ref()?;
        // What this machine sends itself comes through no card.
        let first = flow.sources.address.of(0).map(|address| IpAddr::V4(address.ip));
        if elsewhere(first.into_iter(), machine).is_empty() {
            return Some(0.0);
        }
        let size = match emulate.fragment_size.0 {
            SizeDistribution::Fixed(bytes) => f64::from(bytes),
            SizeDistribution::Uniform { least, most } => f64::midpoint(least.into(), most.into()),
            SizeDistribution::Exponential { mean } | SizeDistribution::Lognormal { mean, .. } => f64::from(mean),
        };
        Some(emulate.rate.as_ref()?.0.hertz()? * size * f64::from(flow.sources.count))
    };
    let queues: usize = configuration.gateway.iter().map(|gateway| receiving_threads(gateway).len()).sum();
    let flows: Vec<f64> = configuration.flow.iter().map(bytes).collect::<Option<_>>()?;
    Some((flows.iter().sum::<f64>() / queues.max(1) as f64) as u64)
}

fn add_memory(nodes: &mut BTreeMap<u32, u64>, node: Option<u32>, bytes: u64) {
    if let Some(share) = node.map(|node| nodes.entry(node).or_default()) {
        *share = share.saturating_add(bytes);
    }
}

/// The node of the first card that an interface is made of, as `placement = "auto"` takes it.
fn node_of(card: &Card, machine: &Machine) -> Option<u32> {
    machine.hardware_of(card).first()?.node
}

/// The place of a thread by a matching rule; a rule with only a scheduling allows all CPUs.
fn by_rule(plan: &Plan, machine: &Machine, thread: &str) -> Option<Placed> {
    let placement = plan.of(Kind::Thread, thread).filter(|placement| matches!(placement.by, Decision::Rule(_)))?;
    let is_free = machine.allowed.is_within(&placement.cpus);
    Some(if is_free { Placed::Nobody } else { Placed::Rule(placement.cpus.clone()) })
}

fn highest_priority(rules: &[ThreadRule]) -> Option<u8> {
    rules.iter().filter_map(|rule| rule.priority).max()
}

/// The interface through which a readout unit's front ends come.
fn card_of<'a>(readout: &ReadoutSection, machine: &'a Machine) -> Option<&'a Card> {
    if let Some(name) = &readout.card {
        return machine.card(name);
    }
    let address = readout.listen.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    card_at(machine, address?.ip())
}

/// The address that tells by which interface a source's datagrams come; `None` for other sources.
fn datagrams_at(input: &SourceInput) -> Option<IpAddr> {
    match input {
        SourceInput::Listen(NetworkAddress::Udp(_, Some(interface))) => Some(*interface),
        SourceInput::Listen(NetworkAddress::Udp(place, None)) => Some(place.to_socket_addrs().ok()?.next()?.ip()),
        SourceInput::Listen(NetworkAddress::Ip(address, _)) => Some((*address).into()),
        _ => None,
    }
}

/// The interface with an address; the fastest one for who listens on all of them or for a group.
fn card_at(machine: &Machine, address: IpAddr) -> Option<&Card> {
    if !address.is_unspecified() && !address.is_multicast() {
        return machine.card_at(address);
    }
    // The first of the fastest, as `placement = "auto"` takes it.
    let usable = machine.cards.iter().rev().filter(|card| card.is_usable());
    usable.max_by_key(|card| card.megabits_per_second)
}

fn loopback(machine: &Machine) -> Option<&Card> {
    machine.cards.iter().find(|card| card.kind == CardKind::Loopback)
}
