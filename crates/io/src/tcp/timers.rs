//! How long connecting and closing may take.

use std::time::Duration;

use ropewalk_terms::Instant;

use crate::endpoint::Endpoint;

/// The endpoints whose time runs; few, since most are neither connecting nor closing.
pub(super) struct Timers {
    /// Their time begins with the next poll: only there it is known what time it is.
    untimed: Vec<(Endpoint, Duration)>,
    running: Vec<(Endpoint, Instant)>,
}

impl Timers {
    /// Room for so many before memory is asked for.
    pub(super) fn with_capacity(endpoints: usize) -> Self {
        Self { untimed: Vec::with_capacity(endpoints), running: Vec::with_capacity(endpoints) }
    }

    /// The endpoint has so long from the next poll on, in place of what it had before.
    pub(super) fn start(&mut self, endpoint: Endpoint, limit: Duration) {
        self.untimed.retain(|(known, _)| *known != endpoint);
        self.running.retain(|(known, _)| *known != endpoint);
        self.untimed.push((endpoint, limit));
    }

    /// Lets time begin for those that wait for it, and forgets those that are no longer awaited: a connection can be
    /// there as soon as it was asked for.
    pub(super) fn begin(&mut self, now: Instant, is_awaited: impl Fn(Endpoint) -> bool) {
        self.running.extend(self.untimed.drain(..).map(|(endpoint, limit)| (endpoint, now.after(limit))));
        self.running.retain(|(endpoint, _)| is_awaited(*endpoint));
    }

    /// One whose time is over, once.
    pub(super) fn next_expired(&mut self, now: Instant) -> Option<Endpoint> {
        let place = self.running.iter().position(|(_, deadline)| *deadline <= now)?;
        Some(self.running.swap_remove(place).0)
    }

    /// Whether somebody's time is still to begin.
    pub(super) fn has_untimed(&self) -> bool {
        !self.untimed.is_empty()
    }

    /// When the next one's time is over.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.running.iter().map(|(_, deadline)| *deadline).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Endpoint = Endpoint::new(1, 0);
    const OTHER: Endpoint = Endpoint::new(2, 0);

    fn second(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    #[test]
    fn time_begins_with_the_poll_and_is_over_once() {
        let mut timers = Timers::with_capacity(4);
        timers.start(ONE, Duration::from_secs(5));
        assert!(timers.has_untimed() && timers.next_deadline().is_none());
        timers.begin(second(100), |_| true);
        assert_eq!((timers.has_untimed(), timers.next_deadline()), (false, Some(second(105))));
        assert_eq!(timers.next_expired(second(104)), None);
        assert_eq!((timers.next_expired(second(105)), timers.next_expired(second(106))), (Some(ONE), None));
    }

    #[test]
    fn whoever_is_there_is_not_awaited_and_a_new_time_replaces_the_old_one() {
        let mut timers = Timers::with_capacity(4);
        timers.start(ONE, Duration::from_secs(5));
        timers.start(OTHER, Duration::from_secs(5));
        timers.begin(second(0), |endpoint| endpoint == OTHER);
        assert_eq!(timers.next_deadline(), Some(second(5)));
        timers.start(OTHER, Duration::from_secs(50));
        timers.begin(second(4), |_| true);
        assert_eq!((timers.next_expired(second(10)), timers.next_deadline()), (None, Some(second(54))));
    }
}
