//! Triggers and front ends: who has how many fragments of which size, and when the trigger must pause.

use super::network::Network;
use super::system::{FormatChoice, System};
use ropewalk_flow::source::{Random, SizeDistribution, Trigger, TriggerSequence};

/// The triggers of the run, and what became of them.
pub(super) struct Triggers {
    /// None: every front end sends as fast as it can.
    sequence: Option<TriggerSequence>,
    next: Trigger,
    /// The number of the last trigger that was given to the front ends.
    pub(super) issued: u64,
    /// Triggers that found a front end full.
    pub(super) vetoed: u64,
    /// When each event was triggered, by the lowest bits of its number.
    times: Box<[u64]>,
    /// Sources that ask for a pause.
    pub(super) pausing: u32,
    /// No trigger comes at this time or later.
    end: u64,
}

/// A front end's memory: fragments from their trigger until their bytes are released by the readout unit.
struct Source {
    random: Random,
    size: SizeDistribution,
    /// Where each fragment ends in the source's stream, by the lowest bits of its event's number.
    ends: Box<[u64]>,
    /// The last event for which there is a fragment.
    made: u64,
    /// The last event that the readout unit has read.
    read: u64,
    /// Every event before this one is released.
    floor: u64,
    pausing: bool,
}

/// All sources: see the module's text.
pub(super) struct FrontEndModel {
    pub(super) triggers: Triggers,
    sources: Vec<Source>,
    format: FormatChoice,
    streams: u32,
    /// Bytes that a source may keep before it asks for a pause, and below which it asks no more.
    high: u64,
    low: u64,
    mask: u64,
    /// The most that a source has kept.
    pub(super) most_kept: u64,
}

impl FrontEndModel {
    pub(super) fn new(system: &System) -> Self {
        let waiting = (system.front_end.buffer.0 + system.front_network.window.0) as f64 / system.mean_fragment();
        let events = 2 * u64::from(system.readout.capacity) + (waiting as u64).min(1 << 16);
        let ring = events.next_power_of_two().max(1024);
        let mut sequence = system.trigger.rate.map(|rate| TriggerSequence::new(system.seed, rate.0));
        let end = system.duration.0.as_nanos() as u64;
        let none = Trigger { number: 0, bunch_crossing: 0, at: std::time::Duration::MAX };
        let next = sequence.as_mut().map_or(none, TriggerSequence::next_trigger);
        let sizes = system.fragment_sizes();
        let source = |number: u32| Source {
            random: Random::new(system.seed, 1 + u64::from(number)),
            size: sizes[(number / system.front_end.streams) as usize],
            ends: vec![0; ring as usize].into_boxed_slice(),
            made: 0,
            read: 0,
            floor: 1,
            pausing: false,
        };
        let times = vec![0; ring as usize].into_boxed_slice();
        Self {
            triggers: Triggers { sequence, next, issued: 0, vetoed: 0, times, pausing: 0, end },
            sources: (0..system.sources()).map(source).collect(),
            format: system.front_end.format,
            streams: system.front_end.streams,
            high: system.front_end.buffer.0 / 4 * 3,
            low: system.front_end.buffer.0 / 2,
            mask: ring - 1,
            most_kept: 0,
        }
    }

    /// When an event was triggered, in nanoseconds.
    pub(super) fn triggered_at(&self, event: u64) -> u64 {
        self.triggers.times[(event & self.mask) as usize]
    }

    /// Whether triggers come by a clock, and not as fast as the front ends can.
    pub(super) const fn has_clock(&self) -> bool {
        self.triggers.sequence.is_some()
    }

    /// Whether no trigger will come any more, at `now`.
    pub(super) const fn is_over(&self, now: u64) -> bool {
        now >= self.triggers.end
    }

    /// Whether every source of a link has the fragments of all triggers.
    pub(super) fn is_complete(&self, link: u32) -> bool {
        self.on_link(link).all(|source| self.sources[source as usize].made == self.triggers.issued)
    }

    /// The sources of a link; a source's number is also that of its flow.
    fn on_link(&self, link: u32) -> std::ops::Range<u32> {
        link * self.streams..(link + 1) * self.streams
    }

    /// Issues all triggers up to `now`, or counts those that came during a pause.
    fn issue(&mut self, now: u64) {
        let triggers = &mut self.triggers;
        let Some(sequence) = &mut triggers.sequence else { return };
        loop {
            let at = triggers.next.at.as_nanos() as u64;
            if at > now || at >= triggers.end {
                return;
            }
            if triggers.pausing > 0 {
                triggers.vetoed += 1;
            } else {
                triggers.issued += 1;
                triggers.times[(triggers.issued & self.mask) as usize] = at;
            }
            triggers.next = sequence.next_trigger();
        }
    }

    /// The sources of a link send what they were triggered for, and ask for a pause where they keep too much.
    pub(super) fn gather(&mut self, now: u64, link: u32, network: &mut Network) {
        self.issue(now);
        for number in self.on_link(link) {
            let bytes = self.make(number, self.triggers.issued);
            if bytes > 0 {
                network.offer(number, bytes);
            }
            let kept = network.flow(number).kept();
            self.most_kept = self.most_kept.max(kept);
            let source = &mut self.sources[number as usize];
            let crowded = source.made + 1 > source.floor + self.mask / 4 * 3;
            let pausing = crowded || kept >= if source.pausing { self.low } else { self.high };
            if pausing != source.pausing {
                source.pausing = pausing;
                self.triggers.pausing = if pausing { self.triggers.pausing + 1 } else { self.triggers.pausing - 1 };
            }
        }
    }

    /// Without a clock: the sources of a link trigger themselves until each has `enough` bytes to send.
    pub(super) fn feed(&mut self, now: u64, link: u32, network: &mut Network, enough: u64) {
        for number in self.on_link(link) {
            while network.flow(number).unsent() < enough {
                let source = &self.sources[number as usize];
                let next = source.made + 1;
                if next > source.floor + self.mask / 4 * 3 || next > self.triggers.issued && now >= self.triggers.end {
                    break;
                }
                if next > self.triggers.issued {
                    self.triggers.issued = next;
                    self.triggers.times[(next & self.mask) as usize] = now;
                }
                let bytes = self.make(number, next);
                network.offer(number, bytes);
            }
            self.most_kept = self.most_kept.max(network.flow(number).kept());
        }
    }

    /// Makes the fragments of a source up to an event; returns their bytes.
    fn make(&mut self, number: u32, last: u64) -> u64 {
        let source = &mut self.sources[number as usize];
        let first = source.ends[(source.made & self.mask) as usize];
        let mut end = first;
        while source.made < last {
            source.made += 1;
            end += self.format.in_stream(u64::from(source.size.next_fragment(&mut source.random)));
            source.ends[(source.made & self.mask) as usize] = end;
        }
        end - first
    }

    /// The next fragment of a source that the readout unit has not read, if it ends within `readable` bytes of the
    /// stream: its event and its length there.
    pub(super) fn next_fragment(&self, number: u32, readable: u64) -> Option<(u64, u64)> {
        let source = &self.sources[number as usize];
        if source.read == source.made {
            return None;
        }
        let event = source.read + 1;
        let end = source.ends[(event & self.mask) as usize];
        (end <= readable).then(|| (event, end - source.ends[(source.read & self.mask) as usize]))
    }

    /// The readout unit has read the next fragment; returns how many bytes of the stream it has read.
    pub(super) fn note_read(&mut self, number: u32) -> u64 {
        let source = &mut self.sources[number as usize];
        source.read += 1;
        source.ends[(source.read & self.mask) as usize]
    }

    /// Bytes of a source's stream for the fragments of these events.
    pub(super) fn bytes(&self, number: u32, first: u64, count: u64) -> u64 {
        let ends = &self.sources[number as usize].ends;
        ends[((first + count - 1) & self.mask) as usize] - ends[((first - 1) & self.mask) as usize]
    }

    /// Every event before `floor` is released by a source's readout unit. Whether the source waited for that.
    pub(super) fn set_floor(&mut self, number: u32, floor: u64) -> bool {
        let source = &mut self.sources[number as usize];
        let waited = source.made + 1 > source.floor + self.mask / 4 * 3;
        source.floor = floor;
        waited
    }

    /// Events that a ring by number must tell apart.
    pub(super) const fn ring(&self) -> u64 {
        self.mask + 1
    }
}
