//! From the sections of gateways and flows to input queues: state machines, sockets and rings.

use super::assemble::{BATCH, SEND_MEMORY, pool};
use crate::error::{RunError, packet_error};
use crate::placement::{ThreadPlacement, packets_pool};
use ropewalk_config::{
    Configuration, DefaultChoice, FARM_PROTOCOL, FilterSection, FlowSection, GatewaySection, InputQueue, ReceiveChoice,
    SendChoice, TransportChoice, TriggerNaming,
};
use ropewalk_flow::builder::IncompletePolicy;
use ropewalk_flow::gateway::{
    DefaultDecision, FarmConfig, FlowConfig, GatewayConfig, Incomplete, Naming, PacketSource, ThrottleConfig,
    TriggerConfig,
};
use ropewalk_flow::histogram::HistogramConfig;
use ropewalk_flow::source::TriggerRate;
use ropewalk_flow::source::mep::MepSourceConfig;
use ropewalk_io::packet::{
    Flow, FrameSender, PacketMemory, ReceiveConfig, ReceiveMechanism, Receiver, RingConfig, RingReceiver,
    SendMechanism, SocketReceiver, XdpCard, XdpConfig, XdpInput, XdpTransmit,
};
use ropewalk_memory::{MemoryKind, Pool, PoolConfig, Staging};
use ropewalk_terms::{Incarnation, RunNumber, SourceId};
use std::net::SocketAddrV4;
use std::sync::Arc;

/// Maximum block size of packet memory.
const PACKET_BLOCK: usize = 256 << 10;
/// Minimum block size of a ring.
const RING_BLOCK: usize = 16 << 10;
/// Memory for packets of a flow that do not arrive at their queue of the card: fragments, mostly.
const DETOUR_MEMORY: usize = 4 << 20;
/// Frame size of a card, in bytes.
const FRAME: usize = 4096;
/// Minimum number of frames of a card's queue.
const LEAST_FRAMES: usize = 64;

/// The inputs of an input queue.
pub(super) struct Inputs {
    /// A receiver for each flow, or one for all.
    pub(super) receivers: Vec<Box<dyn Receiver + Send>>,
    /// Address of each flow for its packets.
    pub(super) addresses: Vec<SocketAddrV4>,
    /// Memory of each receiver, in bytes.
    pub(super) memory: u64,
    /// Sender through the same queue of the card.
    pub(super) transmit: Option<FrameSender<XdpTransmit>>,
}

impl Inputs {
    /// Returns a warning, with the remedy, for each receive buffer that is too small: it cannot hold the packets that
    /// may arrive until the trigger stops a gateway that has fallen silent.
    pub(super) fn short_queues(
        &mut self,
        name: &str,
        section: &GatewaySection,
        machine: &GatewayConfig,
    ) -> Vec<String> {
        let flows: Vec<u8> = (0..machine.flows.len() as u8).collect();
        let are_apart = self.receivers.len() == flows.len();
        let each = flows.chunks(if are_apart { 1 } else { flows.len() });
        let short = self.receivers.iter_mut().zip(each).filter_map(|(receiver, flows)| {
            let queue = receiver.queue_in_use();
            let wanted = machine.wanted_queue(flows, queue.packet).filter(|wanted| *wanted > queue.room / 2)?;
            Some((receiver.address_v4(), queue.room, wanted))
        });
        let remedy = match section.receive {
            ReceiveChoice::Tpacket | ReceiveChoice::AfXdp => "more `memory`",
            _ => {
                "a larger `receive_buffer` (beyond twice net.core.rmem_max the kernel gives it to the administrator alone)"
            }
        };
        let warning = |(address, room, wanted): (SocketAddrV4, u64, u64)| {
            format!(
                "{name}: {} of packets can wait at {address}, and {} may come while the trigger still believes a gateway that \
                 has no processor: what has no room is lost; it wants {remedy} or a shorter trigger.silence",
                mebibytes(room),
                mebibytes(wanted)
            )
        };
        short.map(warning).collect()
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// Creates the inputs of a gateway's queues.
///
/// # Errors
/// If memory, an address, a card or a right cannot be obtained.
pub(super) fn inputs(
    configuration: &Configuration,
    queues: &[InputQueue<'_>],
    placement: &ThreadPlacement,
) -> Result<Vec<Inputs>, RunError> {
    let flows = &configuration.flow;
    match queues.first().map(|queue| queue.gateway.receive) {
        Some(ReceiveChoice::AfXdp) => card(configuration, queues),
        Some(ReceiveChoice::Tpacket) => rings(flows, queues),
        _ => queues.iter().map(|queue| sockets(configuration, queue, placement)).collect(),
    }
}

/// Returns the size and number of blocks for this much packet memory: enough blocks for the throttle to measure its
/// use, each with room for some packets.
fn packet_blocks(memory: usize, largest_packet: usize) -> (usize, usize) {
    let least = (4 * largest_packet).next_power_of_two();
    let block = (memory / 32).next_power_of_two().min(PACKET_BLOCK).max(least);
    (block, (memory / block).max(2))
}

/// Creates inputs with a receiver for each flow and this much memory each.
fn apart<R: Receiver + Send + 'static>(receivers: impl IntoIterator<Item = R>, memory: usize) -> Inputs {
    let boxed = |receiver| -> Box<dyn Receiver + Send> { Box::new(receiver) };
    let receivers: Vec<_> = receivers.into_iter().map(boxed).collect();
    let addresses = receivers.iter().map(Receiver::address_v4).collect();
    Inputs { receivers, addresses, memory: memory as u64, transmit: None }
}

/// Opens a socket for each flow of a queue.
fn sockets(
    configuration: &Configuration,
    queue: &InputQueue<'_>,
    placement: &ThreadPlacement,
) -> Result<Inputs, RunError> {
    let (memory, kind) = (queue.memory() / configuration.flow.len(), memory_kind(configuration));
    let socket = |flow: &FlowSection| {
        let (block, blocks) = packet_blocks(memory, flow.largest_packet.0 as usize);
        let pool = PoolConfig::anonymous(&packets_pool(queue, flow), block, blocks);
        socket(queue, flow, placement.pool(PoolConfig { memory: kind, ..pool })?)
    };
    let sockets = configuration.flow.iter().map(socket).collect::<Result<Vec<_>, _>>()?;
    Ok(apart(sockets, memory))
}

/// Opens a ring for each flow of each queue. All rings belong to one group, because the card is common to them.
fn rings(flows: &[FlowSection], queues: &[InputQueue<'_>]) -> Result<Vec<Inputs>, RunError> {
    let memory = |queue: &InputQueue<'_>| queue.memory() / flows.len();
    let each = queues.iter().flat_map(|queue| flows.iter().map(move |flow| ring(queue, flow, memory(queue))));
    let configs: Vec<RingConfig> = each.collect();
    let name = queues.first().map(|queue| queue.gateway.name.clone()).unwrap_or_default();
    let mut rings = RingReceiver::several(&configs).map_err(packet_error(&name))?.into_iter();
    Ok(queues.iter().map(|queue| apart(rings.by_ref().take(flows.len()), memory(queue))).collect())
}

/// Returns the kind of packet memory, such that filter processes can read events in place.
pub(super) fn memory_kind(configuration: &Configuration) -> MemoryKind {
    let filter = configuration.filter.as_ref().filter(|_| configuration.decides_itself());
    if filter.is_some_and(FilterSection::has_processes) { MemoryKind::Memfd } else { MemoryKind::Anonymous }
}

fn socket(queue: &InputQueue<'_>, flow: &FlowSection, pool: Pool) -> Result<SocketReceiver, RunError> {
    let config = ReceiveConfig {
        mechanism: receive(queue.gateway.receive),
        batch: BATCH,
        largest: flow.largest_packet.0 as usize,
        // The kernel doubles the number, and counts by the double.
        socket_buffer: queue.gateway.receive_buffer.0 as usize / 2,
        ..ReceiveConfig::new(carrier(flow), queue.listen(flow))
    };
    SocketReceiver::new(config, PacketMemory::pool(pool)).map_err(packet_error(&queue.name()))
}

fn ring(queue: &InputQueue<'_>, flow: &FlowSection, memory: usize) -> RingConfig {
    let largest = flow.largest_packet.0 as usize;
    // Small blocks: the kernel closes each after a millisecond, and a ring stops at the first one that is held.
    let block_size = (4 * largest).next_power_of_two().max(RING_BLOCK);
    let blocks = (memory / block_size).max(2);
    let card = queue.gateway.interface.as_deref().unwrap_or_default();
    let config = RingConfig::new(carrier(flow), queue.listen(flow), card);
    RingConfig { batch: BATCH, largest, block_size, blocks, ..config }
}

/// Opens the queues of a card, each with a receiver for all flows.
fn card(configuration: &Configuration, queues: &[InputQueue<'_>]) -> Result<Vec<Inputs>, RunError> {
    let Some(InputQueue { gateway, .. }) = queues.first() else { return Ok(Vec::new()) };
    let (name, flows) = (&gateway.name, &configuration.flow);
    let largest = flows.iter().map(|flow| flow.largest_packet.0 as usize).max().unwrap_or_default();
    let (block, blocks) = packet_blocks(DETOUR_MEMORY, largest);
    let detour = |_| Pool::new_untouched(PoolConfig::anonymous(&format!("{name}-detour"), block, blocks));
    let input = |queue: &InputQueue<'_>, (to, flow): (u16, &FlowSection)| {
        let index = Some(u32::from(queue.index));
        XdpInput { flow: carrier(flow), address: queue.listen(flow), queue: index, to }
    };
    let inputs = queues.iter().flat_map(|queue| (0..).zip(flows).map(move |flow| input(queue, flow)));
    let inputs: Vec<XdpInput> = inputs.collect();
    let detours = inputs.iter().map(detour).collect::<Result<Vec<_>, _>>()?;
    let sends = frames(configuration, &queues[0]);
    let card = gateway.interface.as_deref().unwrap_or_default();
    let config = XdpConfig {
        queues: queues.len() as u32,
        inputs,
        sends: Some(sends),
        mode: gateway.xdp,
        batch: BATCH,
        largest,
        frame_size: FRAME,
        receive_frames: (queues[0].memory() / FRAME).max(LEAST_FRAMES),
        ..XdpConfig::new(sends.0, sends.1, card)
    };
    let card = XdpCard::attach(config, detours).map_err(packet_error(name))?;
    queues.iter().map(|queue| card_queue(&card, queue, flows.len())).collect()
}

fn card_queue(card: &Arc<XdpCard>, queue: &InputQueue<'_>, flows: usize) -> Result<Inputs, RunError> {
    let name = queue.name();
    let staging = Staging::new(pool(&format!("{name}-frames"), SEND_MEMORY)?);
    let (receiver, sender) = card.open(queue.index.into(), staging).map_err(packet_error(&name))?;
    let own = card.inputs().iter().skip(usize::from(queue.index) * flows).take(flows);
    let transmit = (queue.gateway.send == SendChoice::AfXdp).then_some(sender);
    Ok(Inputs {
        receivers: vec![Box::new(receiver)],
        addresses: own.map(|input| input.address).collect(),
        memory: queue.memory() as u64,
        transmit,
    })
}

/// Returns the protocol that carries the packets of a flow.
pub(super) fn carrier(flow: &FlowSection) -> Flow {
    flow.protocol.map_or(Flow::Udp, Flow::Ip)
}

/// Returns the maximum packet rate of a flow per second, if its sources are emulated.
fn rate_of(flow: &FlowSection) -> f64 {
    match flow.emulate.as_ref().and_then(|emulate| emulate.rate).map(|rate| rate.0) {
        Some(TriggerRate::Periodic { hertz } | TriggerRate::Poisson { hertz }) => hertz,
        Some(TriggerRate::Unlimited) | None => 0.0,
    }
}

fn flow(section: &FlowSection, histograms: &[HistogramConfig]) -> FlowConfig {
    let wanted = section.sources.entries(false);
    let sources = wanted.map(|(id, address)| PacketSource { id: SourceId(id), address }).collect();
    let accept = section.default_decision == DefaultChoice::Accept;
    FlowConfig {
        masked: section.sources.entries(true).map(|(_, address)| address).collect(),
        partition: section.partition,
        first_event: section.first_event,
        sets: section.sets,
        assembling: section.assembling,
        timeout: section.timeout.0,
        incomplete: if section.incomplete == IncompletePolicy::Drop { Incomplete::Drop } else { Incomplete::Emit },
        output: section.output,
        decision_timeout: section.decision_timeout.0,
        default_decision: DefaultDecision { accept, word: u32::from(accept) },
        budget: section.budget.0,
        histograms: histograms.to_vec(),
        ..FlowConfig::new(sources, section.packing)
    }
}

/// Returns the number of events in work of an input queue that decides itself. Events in an event file are in work
/// until it is closed.
pub(super) fn local_events(configuration: &Configuration) -> u32 {
    let of_files = configuration.file_based.as_ref().map_or(0, |section| section.file_events.saturating_mul(4));
    of_files.clamp(1024, 1 << 16)
}

/// Returns the configuration of the flows, in order.
pub(super) fn flows(configuration: &Configuration) -> Vec<FlowConfig> {
    let histograms = configuration.histogram_configs();
    configuration.flow.iter().map(|section| flow(section, &histograms)).collect()
}

/// Returns the configuration of a gateway's state machine.
pub(super) fn machine(
    configuration: &Configuration,
    gateway: u16,
    section: &GatewaySection,
    incarnation: Incarnation,
    run: RunNumber,
) -> GatewayConfig {
    let usual = FarmConfig::new(configuration.farm.nodes);
    let farm = FarmConfig {
        largest_push: configuration.farm.largest_push.0 as usize,
        most_outstanding: configuration.farm.outstanding,
        local_events: if configuration.decides_itself() { local_events(configuration) } else { 0 },
        silence: configuration.farm.silence.0,
        heartbeat: usual.heartbeat.min(configuration.farm.silence.0 / 3),
        ..usual
    };
    let throttle = ThrottleConfig {
        latency: section.throttle.latency.0,
        silence: configuration.trigger.silence.0,
        event_rates_hz: configuration.flow.iter().map(rate_of).collect(),
        bytes_per_second: section.throttle.rate.map_or(0.0, |rate| rate.bytes_per_second),
        ..ThrottleConfig::default()
    };
    let flows = flows(configuration);
    GatewayConfig { incarnation, run: run.0, throttle, ..GatewayConfig::new(gateway, flows, farm) }
}

/// Returns how a socket receives packets.
pub(super) const fn receive(choice: ReceiveChoice) -> ReceiveMechanism {
    match choice {
        ReceiveChoice::Recvfrom => ReceiveMechanism::RecvFrom,
        ReceiveChoice::Gro => ReceiveMechanism::UdpGro,
        ReceiveChoice::Recvmmsg | ReceiveChoice::Tpacket | ReceiveChoice::AfXdp => ReceiveMechanism::RecvMmsg,
    }
}

/// Returns how a socket sends events.
pub(super) const fn send(choice: SendChoice) -> SendMechanism {
    match choice {
        SendChoice::Sendto => SendMechanism::SendTo,
        SendChoice::Gso => SendMechanism::UdpGso,
        SendChoice::Sendmmsg | SendChoice::TxRing | SendChoice::AfXdp => SendMechanism::SendMmsg,
    }
}

/// Returns the protocol that carries messages between gateways and nodes, if connections do not.
pub(super) const fn farm_carrier(transport: TransportChoice) -> Flow {
    if matches!(transport, TransportChoice::RawIp) { Flow::Ip(FARM_PROTOCOL) } else { Flow::Udp }
}

/// Returns the protocol of the frames that a gateway sends, and their source address, which is not the port that
/// receives from nodes.
pub(super) fn frames(configuration: &Configuration, queue: &InputQueue<'_>) -> (Flow, SocketAddrV4) {
    let transport = configuration.farm.transport;
    (farm_carrier(transport), SocketAddrV4::new(*queue.control(transport).ip(), 0))
}

/// Returns the emulated sources of a flow, and the rate of its events; `None` without emulated sources.
pub(super) fn sources(section: &FlowSection) -> Option<(MepSourceConfig, TriggerRate)> {
    let emulate = section.emulate.as_ref()?;
    let sources = MepSourceConfig {
        seed: emulate.seed,
        partition: section.partition,
        first_event: section.first_event,
        size: emulate.fragment_size.0,
        loss: emulate.loss,
        duplicates: emulate.duplicates,
        reordered: emulate.reordered,
        jitter: emulate.jitter.0,
        ..MepSourceConfig::new(section.sources.count, section.packing, 0)
    };
    Some((sources, emulate.rate.map_or(TriggerRate::Unlimited, |rate| rate.0)))
}

/// Returns the trigger of each flow.
pub(super) fn trigger(configuration: &Configuration) -> TriggerConfig {
    TriggerConfig {
        gateways: configuration.input_queues().count() as u16,
        naming: match configuration.trigger.naming {
            TriggerNaming::RoundRobin => Naming::RoundRobin,
            TriggerNaming::Request => Naming::Request,
        },
        silence: configuration.trigger.silence.0,
    }
}
