//! A board: it packs events into frames, and sends them as fast as they are taken.

use super::super::content::mixed;
use super::scenario::BoardSetting;
use ropewalk_io::simulated::Simulated;
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::Instant;

/// Bytes before the events of a frame: its length, its number, how many events there are.
pub(super) const HEADER: usize = 12;
/// Bytes before the data of an event: its number, and how many bytes of data there are.
pub(super) const EVENT_HEADER: usize = 12;

/// What a board sends of an event.
pub(super) fn data(board: usize, event: u64) -> Vec<u8> {
    let chance = mixed(board as u64 + 1, event, 7);
    (0..chance % 90).map(|place| (chance >> (place % 57)) as u8).collect()
}

/// A whole frame.
fn frame(board: usize, setting: &BoardSetting, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(&(number as u32).to_le_bytes());
    bytes.extend_from_slice(&(setting.packing as u32).to_le_bytes());
    for event in 1 + number * setting.packing..=(number + 1) * setting.packing {
        let data = data(board, event);
        bytes.extend_from_slice(&event.to_le_bytes());
        bytes.extend_from_slice(&(data.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&data);
    }
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// A board.
pub(super) struct Board {
    index: usize,
    setting: BoardSetting,
    network: Simulated,
    staging: Staging,
    address: String,
    endpoint: Option<Endpoint>,
    is_up: bool,
    next: u64,
    message: Vec<Slice>,
}

impl Board {
    pub(super) fn new(
        index: usize,
        setting: BoardSetting,
        network: Simulated,
        staging: Staging,
        address: String,
    ) -> Self {
        Self { index, setting, network, staging, address, endpoint: None, is_up: false, next: 0, message: Vec::new() }
    }

    /// It has sent everything and hung up.
    pub(super) const fn has_left(&self) -> bool {
        self.next == self.setting.frames && !self.is_up
    }

    /// Sends what there is room for; hangs up when all has left.
    pub(super) fn turn(&mut self, now: Instant) {
        if self.endpoint.is_none() && self.next < self.setting.frames {
            self.endpoint = self.network.connect(&self.address).ok();
        }
        let mut events = Vec::new();
        self.network.poll(now, &mut events);
        for event in events {
            match event {
                Event::Established { .. } => self.is_up = true,
                Event::Disconnected { .. } | Event::Broken { .. } | Event::ConnectFailed { .. } => {
                    (self.endpoint, self.is_up) = (None, false);
                }
                _ => {}
            }
        }
        let Some(endpoint) = self.endpoint.filter(|_| self.is_up) else { return };
        while self.next < self.setting.frames && self.send(endpoint) {
            self.next += 1;
        }
        if self.next == self.setting.frames && self.network.queued(endpoint) == 0 {
            self.network.close(endpoint);
            self.is_up = false;
        }
    }

    fn send(&mut self, endpoint: Endpoint) -> bool {
        let bytes = frame(self.index, &self.setting, self.next);
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
}
