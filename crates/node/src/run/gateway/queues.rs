//! Input queues: each is an addressee of its own, which the trigger names and to which nodes give credit.
//!
//! So all packets of a set come to one queue, whatever the network or a card does with them, and queues share nothing: a
//! gateway with several is to everybody else as many gateways.

use crate::configuration::{Configuration, FlowSection, GatewaySection, TransportChoice};
use ropewalk_io::packet::Flow;
use std::net::SocketAddrV4;

/// An input queue.
#[derive(Copy, Clone, Debug)]
pub(super) struct Queue<'a> {
    pub(super) gateway: &'a GatewaySection,
    /// Its number among all queues of all gateways.
    pub(super) number: u16,
    /// Its number in its gateway.
    pub(super) index: u16,
}

/// All queues, gateway by gateway.
pub(super) fn all(configuration: &Configuration) -> impl Iterator<Item = Queue<'_>> {
    let each = configuration.gateway.iter().flat_map(|gateway| (0..gateway.queues).map(move |index| (gateway, index)));
    (0..).zip(each).map(|(number, (gateway, index))| Queue { gateway, number, index })
}

/// What carries the packets of a flow.
pub(super) fn carrier(flow: &FlowSection) -> Flow {
    flow.protocol.map_or(Flow::Udp, Flow::Ip)
}

impl Queue<'_> {
    /// Its name: the gateway's, with its number where there are several.
    pub(super) fn name(&self) -> String {
        let name = &self.gateway.name;
        if self.gateway.queues == 1 { name.clone() } else { format!("{name}-{}", self.index) }
    }

    /// Where the packets of a flow come in.
    pub(super) fn listen(&self, flow: &FlowSection) -> SocketAddrV4 {
        let first = self.gateway.listen[&flow.name];
        first.of_queue(self.index, flow.protocol.is_none()).expect("the configuration was checked")
    }

    /// Where nodes are heard.
    pub(super) fn control(&self, transport: TransportChoice) -> SocketAddrV4 {
        let has_ports = transport != TransportChoice::RawIp;
        self.gateway.control.of_queue(self.index, has_ports).expect("the configuration was checked")
    }

    /// Where readers of a flow's decisions connect, if they may.
    pub(super) fn decisions(&self, flow: &FlowSection) -> Option<SocketAddrV4> {
        let first = self.gateway.decisions.get(&flow.name)?;
        Some(first.of_queue(self.index, true).expect("the configuration was checked"))
    }

    /// Its part of the gateway's memory for packets, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.gateway.memory.0 as usize / usize::from(self.gateway.queues)
    }
}
