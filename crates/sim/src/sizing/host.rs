//! Computers: each looks for work in turns, does what has come meanwhile, and hands on the results when the work is
//! done. Under load turns become longer and batches larger, as in the real drives.

use super::system::HostSection;
use std::ops::Range;

/// What one turn had to do.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Work {
    /// Messages and super-fragments, received or sent.
    pub(super) messages: u64,
    /// Fragments received.
    pub(super) fragments: u64,
    /// Bytes received.
    pub(super) received: u64,
    /// Bytes sent.
    pub(super) sent: u64,
}

/// What work costs, in nanoseconds.
#[derive(Copy, Clone, Debug)]
pub(super) struct Costs {
    turn: u64,
    message: f64,
    fragment: f64,
    byte_received: f64,
    byte_sent: f64,
}

impl Costs {
    pub(super) fn new(section: &HostSection) -> Self {
        // Looking for work is not made faster by more cores.
        let cores = f64::from(section.cores);
        Self {
            turn: section.turn.0.as_nanos() as u64,
            message: section.per_message.0.as_nanos() as f64 / cores,
            fragment: section.per_fragment.0.as_nanos() as f64 / cores,
            byte_received: 1e9 / section.receive.bytes_per_second / cores,
            byte_sent: 1e9 / section.send.bytes_per_second / cores,
        }
    }

    /// How long looking for work and the work itself take. Only the work keeps a computer busy: the more it has to do,
    /// the fewer turns it takes.
    pub(super) fn of(&self, work: Work) -> (u64, u64) {
        let time = self.message * work.messages as f64
            + self.fragment * work.fragments as f64
            + self.byte_received * work.received as f64
            + self.byte_sent * work.sent as f64;
        (self.turn, time.round() as u64)
    }
}

/// A computer.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) costs: Costs,
    /// The units on it.
    pub(super) units: Range<u32>,
    pub(super) working: bool,
    pub(super) busy: u64,
}

/// Measures how long something lasts.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Stopwatch {
    since: Option<u64>,
    total: u64,
}

impl Stopwatch {
    /// It lasts, or not, from `now` on.
    pub(super) fn set(&mut self, now: u64, lasts: bool) {
        match (self.since, lasts) {
            (None, true) => self.since = Some(now),
            (Some(since), false) => {
                self.total += now - since;
                self.since = None;
            }
            _ => {}
        }
    }

    /// Nanoseconds so far.
    pub(super) fn total(&self, now: u64) -> u64 {
        self.total + self.since.map_or(0, |since| now.saturating_sub(since))
    }

    /// Measures anew from here.
    pub(super) fn reset(&mut self, now: u64) {
        *self = Self { since: self.since.map(|_| now), total: 0 };
    }
}
