//! A board's way to its readout unit.

use ropewalk_io::simulated::Simulated;
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::Instant;

/// One connection after the other, to the same address.
pub(in super::super) struct Connection {
    network: Simulated,
    staging: Staging,
    address: String,
    endpoint: Option<Endpoint>,
    is_up: bool,
    message: Vec<Slice>,
}

impl Connection {
    pub(super) const fn new(network: Simulated, staging: Staging, address: String) -> Self {
        Self { network, staging, address, endpoint: None, is_up: false, message: Vec::new() }
    }

    /// Whether something can be sent.
    pub(in super::super) const fn is_up(&self) -> bool {
        self.is_up
    }

    /// Hears what became of it; connects where it is `wanted` and there is none.
    pub(in super::super) fn turn(&mut self, now: Instant, wanted: bool) {
        if self.endpoint.is_none() && wanted {
            self.endpoint = self.network.connect(&self.address).ok();
        }
        let mut events = Vec::new();
        self.network.poll(now, &mut events);
        for event in events {
            if self.endpoint != Some(event.endpoint()) {
                continue;
            }
            match event {
                Event::Established { .. } => self.is_up = true,
                Event::Disconnected { .. } | Event::Broken { .. } | Event::ConnectFailed { .. } => {
                    (self.endpoint, self.is_up) = (None, false);
                }
                _ => {}
            }
        }
    }

    /// Sends these bytes, all of them; false where there is no room now, and none of them left.
    pub(in super::super) fn send(&mut self, bytes: &[u8]) -> bool {
        let Some(endpoint) = self.endpoint.filter(|_| self.is_up) else { return false };
        for part in bytes.chunks(self.staging.largest()) {
            let Some(slice) = self.staging.write(part) else {
                self.message.clear();
                return false;
            };
            self.message.push(slice);
        }
        let is_sent = self.network.send(endpoint, &mut self.message).is_ok();
        self.message.clear();
        is_sent
    }

    /// Hangs up once everything has left; whether it has.
    pub(in super::super) fn hang_up(&mut self) -> bool {
        if let Some(endpoint) = self.endpoint.filter(|&endpoint| self.is_up && self.network.queued(endpoint) == 0) {
            self.network.close(endpoint);
            (self.endpoint, self.is_up) = (None, false);
        }
        !self.is_up
    }
}
