//! A board: it packs events into frames, and sends them as fast as they are taken.

use super::super::content::mixed;
use super::super::stand::Connection;
use super::scenario::BoardSetting;
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
    connection: Connection,
    next: u64,
}

impl Board {
    pub(super) const fn new(index: usize, setting: BoardSetting, connection: Connection) -> Self {
        Self { index, setting, connection, next: 0 }
    }

    /// It has sent everything and hung up.
    pub(super) const fn has_left(&self) -> bool {
        self.next == self.setting.frames && !self.connection.is_up()
    }

    /// Sends what there is room for; hangs up when all has left.
    pub(super) fn turn(&mut self, now: Instant) {
        self.connection.turn(now, self.next < self.setting.frames);
        while self.next < self.setting.frames && self.connection.send(&frame(self.index, &self.setting, self.next)) {
            self.next += 1;
        }
        if self.next == self.setting.frames {
            self.connection.hang_up();
        }
    }
}
