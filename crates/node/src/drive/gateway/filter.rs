//! What an emulated node does with its events: it takes its time, and accepts some.

use crate::quantity::Times;
use ropewalk_flow::source::Random;
use ropewalk_terms::Instant;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// How an emulated node decides.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct FilterConfig {
    /// How long a decision takes.
    pub times: Times,
    /// Decisions that are worked on at the same time.
    pub at_once: usize,
    /// The share of events that are accepted.
    pub accept: f64,
}

/// An event in a filter: which gateway's, under which sequence number.
type Work = (u16, u64);

/// Decides on events at random, after random times.
#[derive(Debug)]
pub struct EmulatedFilter {
    config: FilterConfig,
    random: Random,
    waiting: VecDeque<Work>,
    working: BinaryHeap<Reverse<(Instant, Work)>>,
}

impl EmulatedFilter {
    /// A filter without events.
    pub fn new(config: FilterConfig, seed: u64) -> Self {
        let working = BinaryHeap::with_capacity(config.at_once);
        Self { config, random: Random::new(seed, 0xf117), waiting: VecDeque::new(), working }
    }

    /// An event has come.
    pub fn begin(&mut self, gateway: u16, sequence: u64, now: Instant) {
        self.waiting.push_back((gateway, sequence));
        self.work(now);
    }

    fn work(&mut self, now: Instant) {
        while self.working.len() < self.config.at_once {
            let Some(work) = self.waiting.pop_front() else { return };
            let until = now.after(self.config.times.next(&mut self.random));
            self.working.push(Reverse((until, work)));
        }
    }

    /// The next decision that is due: gateway, sequence number, whether the event is accepted.
    pub fn next_decision(&mut self, now: Instant) -> Option<(u16, u64, bool)> {
        let &Reverse((until, (gateway, sequence))) = self.working.peek()?;
        if until > now {
            return None;
        }
        self.working.pop();
        // Whoever works on it was free from then on, not from now on.
        self.work(until);
        Some((gateway, sequence, self.random.unit() < self.config.accept))
    }

    /// When the next decision is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.working.peek().map(|Reverse((until, _))| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn so_many_events_are_worked_on_at_once_and_the_others_wait() {
        let config = FilterConfig { times: Times::Fixed(SECOND), at_once: 2, accept: 1.0 };
        let mut filter = EmulatedFilter::new(config, 1);
        let begin = Instant::ZERO;
        (0..3).for_each(|sequence| filter.begin(7, sequence, begin));
        assert_eq!(filter.next_decision(begin), None);
        let later = begin.after(SECOND);
        assert_eq!(filter.next_deadline(), Some(later));
        assert_eq!(filter.next_decision(later), Some((7, 0, true)));
        assert_eq!(filter.next_decision(later), Some((7, 1, true)));
        assert_eq!(filter.next_decision(later), None, "the third was begun when the first had ended");
        assert_eq!(filter.next_decision(later.after(SECOND)), Some((7, 2, true)));
        assert_eq!(filter.next_deadline(), None);
    }

    #[test]
    fn the_configured_share_is_accepted() {
        let config = FilterConfig { times: Times::Fixed(Duration::ZERO), at_once: 1, accept: 0.25 };
        let mut filter = EmulatedFilter::new(config, 1);
        (0..10_000).for_each(|sequence| filter.begin(0, sequence, Instant::ZERO));
        let accepted = std::iter::from_fn(|| filter.next_decision(Instant::ZERO)).filter(|(_, _, accept)| *accept);
        let accepted = accepted.count();
        assert!((2300..2700).contains(&accepted), "{accepted}");
    }
}
