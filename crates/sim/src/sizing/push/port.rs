//! A port of a switch, or any link before which packets wait in a buffer of their own, first come, first served.

use super::super::network::{Load, Pace};
use std::collections::VecDeque;

/// A link and its buffer.
#[derive(Debug)]
pub(super) struct Port {
    pace: Pace,
    buffer: u64,
    /// When the last bit of each packet leaves, and the packet's bytes.
    queue: VecDeque<(u64, u64)>,
    held: u64,
    free_at: u64,
    pub(super) most_held: u64,
    pub(super) load: Load,
    pub(super) packets: u64,
    pub(super) lost: u64,
}

impl Port {
    /// A link of so many bytes a second behind a buffer of so many bytes.
    pub(super) fn new(bytes_per_second: f64, buffer: u64) -> Self {
        Self {
            pace: Pace::new(bytes_per_second),
            buffer,
            queue: VecDeque::new(),
            held: 0,
            free_at: 0,
            most_held: 0,
            load: Load::default(),
            packets: 0,
            lost: 0,
        }
    }

    fn forget_until(&mut self, now: u64) {
        while let Some((_, bytes)) = self.queue.pop_front_if(|(leaves, _)| *leaves <= now) {
            self.held -= bytes;
        }
    }

    /// A packet of so many bytes on the wire comes. When its last bit has left; none where it is lost.
    pub(super) fn take(&mut self, now: u64, bytes: u64) -> Option<u64> {
        self.forget_until(now);
        self.packets += 1;
        if self.held + bytes > self.buffer {
            self.lost += 1;
            return None;
        }
        let time = self.pace.take(bytes);
        self.free_at = self.free_at.max(now) + time;
        self.held += bytes;
        self.most_held = self.most_held.max(self.held);
        self.queue.push_back((self.free_at, bytes));
        self.load.busy += time;
        self.load.bytes += bytes;
        Some(self.free_at)
    }

    /// Whether a packet of so many bytes finds room; when it will, otherwise.
    pub(super) fn room_for(&mut self, now: u64, bytes: u64) -> Result<(), u64> {
        self.forget_until(now);
        if self.held + bytes <= self.buffer {
            return Ok(());
        }
        let mut held = self.held;
        let room = self.queue.iter().find(|(_, one)| {
            held -= one;
            held + bytes <= self.buffer
        });
        Err(room.map_or(now, |(leaves, _)| *leaves))
    }

    /// Counts anew from here.
    pub(super) fn reset(&mut self) {
        (self.load, self.packets, self.lost, self.most_held) = (Load::default(), 0, 0, self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_one_behind_the_other_and_what_finds_no_room_is_lost() {
        // A byte a nanosecond.
        let mut port = Port::new(1e9, 250);
        assert_eq!((port.take(0, 100), port.take(0, 100), port.take(10, 100)), (Some(100), Some(200), None));
        assert_eq!(port.room_for(10, 100), Err(100));
        assert_eq!((port.room_for(100, 100), port.take(100, 100)), (Ok(()), Some(300)));
        assert_eq!(port.take(1000, 100), Some(1100), "nobody is before it");
        assert_eq!((port.packets, port.lost, port.most_held, port.load.busy), (5, 1, 200, 400));
    }
}
