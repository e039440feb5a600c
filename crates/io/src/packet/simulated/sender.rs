//! Sending to a simulated network.

use std::net::SocketAddrV4;

use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::Instant;

use super::network::PacketNetwork;
use crate::packet::{Fill, Flow, Refusal, SendConfig, SendCounters, Sender};

/// The most that UDP carries.
const LARGEST: usize = 65_507;

/// Sends a flow on a [`PacketNetwork`].
pub struct SimulatedSender {
    network: PacketNetwork,
    config: SendConfig,
    queue: Vec<(SocketAddrV4, Vec<u8>)>,
    /// A real sender runs dry too.
    staging: Staging,
    counters: SendCounters,
}

impl SimulatedSender {
    pub(super) fn new(network: PacketNetwork, config: SendConfig, staging: Staging) -> Self {
        Self { network, config, queue: Vec::new(), staging, counters: SendCounters::default() }
    }

    fn check(&self, bytes: usize) -> Result<(), Refusal> {
        if bytes > LARGEST {
            Err(Refusal::TooLarge)
        } else if self.queue.len() >= self.config.batch {
            Err(Refusal::Full)
        } else {
            Ok(())
        }
    }
}

impl Sender for SimulatedSender {
    fn send(&mut self, to: SocketAddrV4, payload: &mut Vec<Slice>) -> Result<(), Refusal> {
        self.check(payload.iter().map(|slice| slice.len()).sum())?;
        self.queue.push((to, payload.drain(..).flat_map(|slice| slice.to_vec()).collect()));
        Ok(())
    }

    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal> {
        self.check(most)?;
        if most > self.staging.largest() {
            return Err(Refusal::TooLarge);
        }
        self.staging.room(most.max(1)).ok_or(Refusal::Full)?;
        let piece = self.staging.write_with(most, fill);
        self.queue.push((to, piece.map_or_else(Vec::new, |piece| piece.to_vec())));
        Ok(())
    }

    fn flush(&mut self, now: Instant) -> usize {
        let mut network = self.network.lock();
        let sent = self.queue.len();
        for (to, payload) in self.queue.drain(..) {
            let port = if self.config.flow == Flow::Udp { to.port() } else { 0 };
            let to = SocketAddrV4::new(*to.ip(), port);
            network.send(now, self.config.flow, self.config.address, to, &payload);
            self.counters.packets += 1;
            self.counters.bytes += payload.len() as u64;
        }
        self.counters.calls += u64::from(sent > 0);
        sent
    }

    fn queued(&self) -> usize {
        self.queue.len()
    }

    fn largest(&self) -> usize {
        LARGEST
    }

    fn address(&self) -> SocketAddrV4 {
        self.config.address
    }

    fn counters(&self) -> SendCounters {
        SendCounters { bytes_copied: self.staging.copied(), ..self.counters }
    }
}
