//! The farm: the links between gateways and nodes, and the nodes.

use super::assemble::{BATCH, CONTROL_MEMORY, SEND_MEMORY, SOCKET_BUFFER, SystemPart, pool};
use super::inputs;
use crate::error::{RunError, endpoint, packet_error};
use crate::worker::DriveWithPage;
use ropewalk_config::{Configuration, FarmSection, FilterSection, InputQueue, SendChoice, TransportChoice};
use ropewalk_engine::gateway::{
    Callers, Connections, Datagrams, DecisionReaders, EmulatedFilterConfig, FarmNodeDrive, FarmNodeDriveConfig,
    FarmNodeReport, Link, NodeFilterConfig, Notice, Outage,
};
use ropewalk_flow::gateway::FarmNodeConfig;
use ropewalk_io::packet::{
    Flow, FrameConfig, FrameSender, PacketMemory, ReceiveConfig, Receiver, SendConfig, SendMechanism, Sender,
    SocketReceiver, SocketSender, TransmitRing, XdpTransmit,
};
use ropewalk_io::tcp::{Tcp, TcpConfig};
use ropewalk_memory::Staging;
use ropewalk_terms::Incarnation;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Maximum size of a message to a trigger, a gateway or a node, including pushed events.
const LARGEST_MESSAGE: usize = 65_507;
/// Memory for messages received over a socket: block size and number of blocks.
const MESSAGES_MEMORY: (usize, usize) = (256 << 10, 16);
/// Memory for received data of connections: block size, and maximum number of blocks of each connection.
const CONNECTION_MEMORY: (usize, usize) = (16 << 10, 16);
/// Memory for decisions that readers have not taken: more than the queues of a few of them.
const DECISIONS_MEMORY: (usize, usize) = (256 << 10, 64);
/// Interval of a node's heartbeat.
const NODE_HEARTBEAT: Duration = Duration::from_millis(30);
/// Time-out of a node for the rest of an event.
const NODE_PATIENCE: Duration = Duration::from_millis(100);
/// Maximum size of an event that a node accepts.
const LARGEST_EVENT: u32 = 16 << 20;

/// Creates a socket for messages between nodes, gateways and triggers.
pub(super) fn messages(name: &str, flow: Flow, address: SocketAddrV4) -> Result<SocketReceiver, RunError> {
    let memory = PacketMemory::pool(pool(&format!("{name}-control"), MESSAGES_MEMORY)?);
    let config =
        ReceiveConfig { largest: LARGEST_MESSAGE, socket_buffer: SOCKET_BUFFER, ..ReceiveConfig::new(flow, address) };
    SocketReceiver::new(config, memory).map_err(packet_error(name))
}

fn endpoints(name: &str, peers: u16) -> Result<Tcp, RunError> {
    let (block, blocks) = CONNECTION_MEMORY;
    let pool = pool(&format!("{name}-control"), (block, blocks * usize::from(peers)))?;
    Tcp::new(TcpConfig::default(), pool).map_err(endpoint(name))
}

/// Creates the link of a gateway's input queue to its nodes. Returns it with its address. `transmit` sends through the
/// queue of a card that receives the packets.
pub(super) fn gateway_link(
    configuration: &Configuration,
    queue: &InputQueue<'_>,
    transmit: Option<FrameSender<XdpTransmit>>,
) -> Result<(Box<dyn Link + Send>, SocketAddrV4), RunError> {
    let (farm, name) = (&configuration.farm, queue.name());
    let control = queue.control(farm.transport);
    if farm.transport == TransportChoice::Tcp {
        let staging = Staging::new(pool(&format!("{name}-send"), SEND_MEMORY)?);
        let (link, bound) =
            Connections::listen(endpoints(&name, farm.nodes.max(1))?, &control.to_string(), staging, Callers::Speaking)
                .map_err(endpoint(&name))?;
        return Ok((Box::new(link), bound.parse().unwrap_or(control)));
    }
    let receiver = messages(&name, inputs::farm_carrier(farm.transport), control)?;
    let address = receiver.address_v4();
    let (sender, largest): (Box<dyn Sender + Send>, usize) = match transmit {
        Some(transmit) => sized(transmit),
        None if queue.gateway.send == SendChoice::TxRing => sized(transmit_ring(configuration, queue)?),
        None => sized(sending_socket(configuration, queue, address)?),
    };
    if largest < farm.largest_push.0 as usize {
        let message = format!("{name}: farm.largest_push: frames of its card have room for {largest} bytes");
        return Err(RunError::Unfit(message));
    }
    Ok((Box::new(Datagrams { receiver, sender }), address))
}

/// Returns a sender with its maximum packet size.
fn sized<S: Sender + Send + 'static>(sender: S) -> (Box<dyn Sender + Send>, usize) {
    let largest = sender.largest();
    (Box::new(sender), largest)
}

fn transmit_ring(configuration: &Configuration, queue: &InputQueue<'_>) -> Result<FrameSender<TransmitRing>, RunError> {
    let name = queue.name();
    let (flow, from) = inputs::frames(configuration, queue);
    let card = queue.gateway.interface.as_deref().unwrap_or_default();
    let staging = Staging::new(pool(&format!("{name}-send"), SEND_MEMORY)?);
    FrameSender::<TransmitRing>::new(FrameConfig::new(flow, from, card), staging).map_err(packet_error(&name))
}

fn sending_socket(
    configuration: &Configuration,
    queue: &InputQueue<'_>,
    address: SocketAddrV4,
) -> Result<SocketSender, RunError> {
    let name = queue.name();
    let flow = inputs::farm_carrier(configuration.farm.transport);
    let mechanism = match flow {
        Flow::Udp => inputs::send(queue.gateway.send),
        Flow::Ip(_) => SendMechanism::SendMmsg,
    };
    // Over IP without ports only the address identifies the sender.
    let from = match flow {
        Flow::Udp => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
        Flow::Ip(_) => address,
    };
    let config = SendConfig { mechanism, batch: BATCH, ..SendConfig::new(flow, from) };
    let staging = Staging::new(pool(&format!("{name}-send"), SEND_MEMORY)?);
    SocketSender::new(config, staging).map_err(packet_error(&name))
}

/// Creates a node's link to this many gateways.
fn node_link(farm: &FarmSection, node: u16, gateways: u16) -> Result<Box<dyn Link + Send>, RunError> {
    let name = format!("node-{node}");
    let staging = Staging::new(pool(&format!("{name}-send"), CONTROL_MEMORY)?);
    if farm.transport == TransportChoice::Tcp {
        return Ok(Box::new(Connections::connect(endpoints(&name, gateways)?, staging)));
    }
    let configured = farm.address.and_then(|addresses| addresses.of(u32::from(node)));
    let address = configured
        .map_or(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), |address| SocketAddrV4::new(address.ip, address.port));
    let carrier = inputs::farm_carrier(farm.transport);
    let receiver = messages(&name, carrier, address)?;
    let config = SendConfig::new(carrier, receiver.address_v4());
    let sender = match farm.transport {
        TransportChoice::RawIp => SocketSender::new(config, staging),
        _ => receiver.sender(config, staging),
    };
    Ok(Box::new(Datagrams { receiver, sender: sender.map_err(packet_error(&name))? }))
}

/// Accepts connections of readers of decisions at this address. Returns the bound address as well.
pub(super) fn decision_readers(
    name: &str,
    address: SocketAddrV4,
) -> Result<(Box<dyn DecisionReaders + Send>, String), RunError> {
    let staging = Staging::new(pool(name, DECISIONS_MEMORY)?);
    let (readers, bound) = Connections::listen(endpoints(name, 1)?, &address.to_string(), staging, Callers::Listening)
        .map_err(endpoint(name))?;
    Ok((Box::new(readers), bound))
}

/// Parameters of the nodes.
pub(super) struct Farm<'a> {
    pub(super) section: &'a FarmSection,
    /// The filter with which they decide; without it they are emulated.
    pub(super) filter: Option<&'a FilterSection>,
    pub(super) incarnation: Incarnation,
    /// Address of each gateway.
    pub(super) gateways: &'a [SocketAddrV4],
    pub(super) is_over: &'a Arc<AtomicBool>,
}

/// The nodes of a part, and their reports.
pub(super) type Nodes = (Vec<DriveWithPage>, Vec<Notice<FarmNodeReport>>);

impl Farm<'_> {
    /// Creates the nodes that are in this process, if any.
    pub(super) fn nodes(&self, part: &SystemPart) -> Result<Nodes, RunError> {
        let nodes = self.section.nodes;
        let numbers = match part {
            SystemPart::Whole if self.section.emulate.is_some() || self.filter.is_some() => 0..nodes,
            SystemPart::Nodes(numbers) => numbers.start..numbers.end.min(nodes),
            SystemPart::Whole | SystemPart::Gateway(_) | SystemPart::Sources(_) => 0..0,
        };
        let (mut drives, mut notices) = (Vec::new(), Vec::new());
        for node in numbers {
            let drive = FarmNodeDrive::new(self.node(node), node_link(self.section, node, self.gateways.len() as u16)?);
            notices.push(drive.notice());
            drives.push(DriveWithPage::new(Box::new(drive), None));
        }
        Ok((drives, notices))
    }

    fn node(&self, node: u16) -> FarmNodeDriveConfig {
        let emulate = self.section.emulate.clone().unwrap_or_default();
        let outages = emulate.outages.iter().filter(|outage| outage.node == node);
        let emulated = EmulatedFilterConfig {
            times: emulate.decision_time.0,
            at_once: usize::from(emulate.at_once),
            accept: emulate.accept,
        };
        FarmNodeDriveConfig {
            machine: FarmNodeConfig {
                node,
                incarnation: self.incarnation,
                gateway: 0,
                window: self.section.outstanding,
                heartbeat: NODE_HEARTBEAT,
                patience: NODE_PATIENCE,
                largest_event: LARGEST_EVENT,
            },
            gateways: self.gateways.to_vec(),
            filter: self.filter.map_or(NodeFilterConfig::Emulated(emulated), |section| {
                NodeFilterConfig::Triggers(section.builtin_filter())
            }),
            outages: outages.map(|outage| Outage { from: outage.from.0, lasts: outage.lasts.0 }).collect(),
            seed: emulate.seed.wrapping_add(u64::from(node)),
            is_over: Arc::clone(self.is_over),
        }
    }
}
