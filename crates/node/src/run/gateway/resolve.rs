//! What machines and sockets are told, from what stands in the configuration.

use super::queues::{self, Queue};
use crate::configuration::{
    Configuration, DefaultChoice, FARM_PROTOCOL, FlowSection, GatewaySection, Gathering as GatheringChoice,
    ReceiveChoice, SendChoice, TransportChoice, TriggerNaming,
};
use crate::drive::gateway::Gathering;
use ropewalk_flow::builder::IncompletePolicy;
use ropewalk_flow::gateway::{
    DefaultDecision, FarmConfig, FlowConfig, GatewayConfig, Incomplete, Naming, PacketSource, ThrottleConfig,
    TriggerConfig,
};
use ropewalk_flow::histogram::HistogramConfig;
use ropewalk_flow::source::TriggerRate;
use ropewalk_flow::source::mep::MepSourceConfig;
use ropewalk_io::packet::{Flow, ReceiveMechanism, SendMechanism};
use ropewalk_terms::{Incarnation, RunNumber, SourceId};
use ropewalk_wire::gateway::Copying;
use std::net::SocketAddrV4;

/// How often a second packets of a flow come at most, where its sources are emulated.
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

/// A gateway's machine.
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
    let histograms = configuration.histogram_configs();
    let flows = configuration.flow.iter().map(|section| flow(section, &histograms)).collect();
    GatewayConfig { incarnation, run: run.0, throttle, ..GatewayConfig::new(gateway, flows, farm) }
}

/// How a gateway puts events together.
pub(super) const fn gathering(section: &GatewaySection) -> Gathering {
    match section.gather {
        GatheringChoice::Iovec => Gathering::Iovec,
        GatheringChoice::Memcpy => Gathering::Copy(Copying::Library),
        GatheringChoice::ShortCopy => Gathering::Copy(Copying::Short),
    }
}

/// How a socket receives packets.
pub(super) const fn receive(choice: ReceiveChoice) -> ReceiveMechanism {
    match choice {
        ReceiveChoice::Recvfrom => ReceiveMechanism::RecvFrom,
        ReceiveChoice::Gro => ReceiveMechanism::UdpGro,
        ReceiveChoice::Recvmmsg | ReceiveChoice::Tpacket | ReceiveChoice::AfXdp => ReceiveMechanism::RecvMmsg,
    }
}

/// How a socket sends events.
pub(super) const fn send(choice: SendChoice) -> SendMechanism {
    match choice {
        SendChoice::Sendto => SendMechanism::SendTo,
        SendChoice::Gso => SendMechanism::UdpGso,
        SendChoice::Sendmmsg | SendChoice::TxRing | SendChoice::AfXdp => SendMechanism::SendMmsg,
    }
}

/// What carries messages between gateways and nodes, where connections do not.
pub(super) const fn farm_carrier(transport: TransportChoice) -> Flow {
    if matches!(transport, TransportChoice::RawIp) { Flow::Ip(FARM_PROTOCOL) } else { Flow::Udp }
}

/// What frames carry that a gateway sends, and from where: another port than that where it hears nodes.
pub(super) fn frames(configuration: &Configuration, queue: &Queue<'_>) -> (Flow, SocketAddrV4) {
    let transport = configuration.farm.transport;
    (farm_carrier(transport), SocketAddrV4::new(*queue.control(transport).ip(), 0))
}

/// The emulated sources of a flow, and how often its events come; none where it has none.
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

/// The trigger of each flow.
pub(super) fn trigger(configuration: &Configuration) -> TriggerConfig {
    TriggerConfig {
        gateways: queues::all(configuration).count() as u16,
        naming: match configuration.trigger.naming {
            TriggerNaming::RoundRobin => Naming::RoundRobin,
            TriggerNaming::Request => Naming::Request,
        },
        silence: configuration.trigger.silence.0,
    }
}
