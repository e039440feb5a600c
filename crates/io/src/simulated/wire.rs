//! One simulated connection: what is under way in each direction, and how it ends.

use std::collections::VecDeque;
use std::time::Duration;

use ropewalk_terms::Instant;

use super::faults::Faults;
use super::random::Random;
use crate::endpoint::{ConnectCause, Endpoint};

/// How a side ended its direction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// In order: everything else arrives before.
    Closed,
    /// By a reset.
    Reset,
}

struct Segment {
    arrival: Instant,
    length: usize,
}

/// One direction, named by the side that sends.
pub(super) struct Direction {
    bytes: VecDeque<u8>,
    segments: VecDeque<Segment>,
    end: Option<(End, Instant)>,
    /// When the last byte has left, as the bandwidth allows.
    busy_until: Instant,
    last_arrival: Instant,
    pub(super) random: Random,
}

/// A connection between two hosts; side 0 connected, side 1 accepts.
pub(super) struct Wire {
    pub(super) hosts: [u32; 2],
    /// What the hosts call it; `None` once (or as long as) they do not know it.
    pub(super) names: [Option<Endpoint>; 2],
    pub(super) directions: [Direction; 2],
    /// The answer to the connection request and when it arrives.
    pub(super) answer: Option<(Result<(), ConnectCause>, Instant)>,
    pub(super) connect_deadline: Instant,
    /// Since when it carries nothing for ever, because one side vanished without a word.
    pub(super) silent_since: Option<Instant>,
}

/// How long a segment takes.
pub(super) fn latency(faults: &Faults, random: &mut Random) -> Duration {
    if random.chance(faults.outlier) {
        return faults.outlier_latency;
    }
    random.between(faults.least_latency, faults.most_latency)
}

impl Direction {
    pub(super) const fn new(random: Random) -> Self {
        Self {
            bytes: VecDeque::new(),
            segments: VecDeque::new(),
            end: None,
            busy_until: Instant::ZERO,
            last_arrival: Instant::ZERO,
            random,
        }
    }

    /// Bytes that may be sent now.
    pub(super) fn room(&self, faults: &Faults) -> usize {
        faults.window.saturating_sub(self.bytes.len())
    }

    /// Puts a segment on its way.
    pub(super) fn send<'a>(
        &mut self,
        now: Instant,
        faults: &Faults,
        length: usize,
        slices: impl Iterator<Item = &'a [u8]>,
    ) {
        let mut left = length;
        for slice in slices {
            if left == 0 {
                break;
            }
            let piece = &slice[..slice.len().min(left)];
            self.bytes.extend(piece);
            left -= piece.len();
        }
        let takes = faults
            .bandwidth
            .map_or(Duration::ZERO, |rate| Duration::from_nanos(length as u64 * 1_000_000_000 / rate.max(1)));
        self.busy_until = self.busy_until.max(now).after(takes);
        let arrival = self.busy_until.after(latency(faults, &mut self.random)).max(self.last_arrival);
        self.last_arrival = arrival;
        self.segments.push_back(Segment { arrival, length });
    }

    /// Ends the direction, once; a close arrives after everything else, a reset throws everything away.
    pub(super) fn end(&mut self, now: Instant, faults: &Faults, end: End) {
        if self.end.is_some_and(|(before, _)| before == End::Reset || end == End::Closed) {
            return;
        }
        let mut arrival = now.after(latency(faults, &mut self.random));
        if end == End::Closed {
            arrival = arrival.max(self.last_arrival);
        }
        self.end = Some((end, arrival));
    }

    /// The end, if it has arrived and nothing stands before it.
    pub(super) fn arrived_end(&self, now: Instant) -> Option<End> {
        let (end, arrival) = self.end?;
        (arrival <= now && (end == End::Reset || self.segments.is_empty())).then_some(end)
    }

    /// Whether the end has arrived, though segments may stand before it.
    pub(super) fn has_end_arrived(&self, now: Instant) -> bool {
        self.end.is_some_and(|(_, arrival)| arrival <= now)
    }

    /// Bytes of the first segment, if that has arrived.
    pub(super) fn arrived(&self, now: Instant) -> usize {
        self.segments.front().filter(|segment| segment.arrival <= now).map_or(0, |segment| segment.length)
    }

    /// Copies the first bytes that have arrived, as many as there are and fit; returns how many.
    pub(super) fn peek(&self, now: Instant, head: &mut [u8]) -> usize {
        let arrived = self.segments.iter().take_while(|segment| segment.arrival <= now);
        let length = arrived.map(|segment| segment.length).sum::<usize>().min(head.len());
        for (to, from) in head[..length].iter_mut().zip(&self.bytes) {
            *to = *from;
        }
        length
    }

    /// Takes bytes of the first segment; `into` is not longer than that.
    pub(super) fn read(&mut self, into: &mut [u8]) {
        let length = into.len();
        let (front, back) = self.bytes.as_slices();
        let (first, second) = into.split_at_mut(front.len().min(length));
        first.copy_from_slice(&front[..first.len()]);
        second.copy_from_slice(&back[..second.len()]);
        self.bytes.drain(..length);
        self.shorten(length);
    }

    /// Throws away what has arrived; returns how many bytes.
    pub(super) fn discard(&mut self, now: Instant) -> usize {
        let mut discarded = 0;
        while self.arrived(now) > 0 {
            let length = self.arrived(now);
            self.bytes.drain(..length);
            self.shorten(length);
            discarded += length;
        }
        discarded
    }

    fn shorten(&mut self, length: usize) {
        if let Some(segment) = self.segments.front_mut() {
            segment.length -= length;
            if segment.length == 0 {
                self.segments.pop_front();
            }
        }
    }

    /// When the next thing arrives.
    pub(super) fn next_arrival(&self) -> Option<Instant> {
        let bytes = self.segments.front().map(|segment| segment.arrival);
        let end = self.end.filter(|&(end, _)| end == End::Reset || bytes.is_none()).map(|(_, arrival)| arrival);
        [bytes, end].into_iter().flatten().min()
    }

    /// When a reset arrives, which is noticed even where nothing is read.
    pub(super) fn next_reset(&self) -> Option<Instant> {
        self.end.filter(|&(end, _)| end == End::Reset).map(|(_, arrival)| arrival)
    }

    /// What waited on a slow link arrives at latest now.
    pub(super) fn hurry_to(&mut self, instant: Instant) {
        for segment in &mut self.segments {
            segment.arrival = segment.arrival.min(instant);
        }
        if let Some((_, arrival)) = &mut self.end {
            *arrival = (*arrival).min(instant);
        }
        self.busy_until = self.busy_until.min(instant);
        self.last_arrival = self.last_arrival.min(instant);
    }

    /// What was held back by a partition arrives after its end.
    pub(super) fn delay_to(&mut self, instant: Instant) {
        for segment in &mut self.segments {
            segment.arrival = segment.arrival.max(instant);
        }
        if let Some((_, arrival)) = &mut self.end {
            *arrival = (*arrival).max(instant);
        }
        self.last_arrival = self.last_arrival.max(instant);
    }
}

impl Wire {
    /// Breaks the connection at both ends.
    pub(super) fn reset(&mut self, now: Instant, faults: &Faults) {
        for direction in &mut self.directions {
            direction.end(now, faults, End::Reset);
        }
    }
}
