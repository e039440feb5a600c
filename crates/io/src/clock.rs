//! Clocks: where `now` comes from. Everything below a thread's loop gets the time passed in.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ropewalk_terms::{Instant, Utc};

/// Tells the time. One reading costs about 25 ns: take one per batch.
pub trait Clock {
    /// Monotonic time, for decisions.
    fn now(&self) -> Instant;

    /// Civil time, for people and records.
    fn utc(&self) -> Utc;
}

/// The machine's clocks. All copies and all instances in a machine share one start (its boot), so that
/// instants can be compared between threads.
#[derive(Copy, Clone, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now(&self) -> Instant {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Instant::from_nanoseconds(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    fn utc(&self) -> Utc {
        // A clock set before 1970 gives 0 rather than an error that nobody could handle.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Utc(since.as_nanos() as i64)
    }
}

/// Virtual time: stands still until it is moved. Clones share the time.
#[derive(Clone, Debug, Default)]
pub struct SimulatedClock {
    time: Arc<Time>,
}

#[derive(Debug, Default)]
struct Time {
    now: AtomicU64,
    utc_at_zero: AtomicI64,
}

impl SimulatedClock {
    /// A clock that shows [`Instant::ZERO`], at which civil time is `utc`.
    pub fn new(utc: Utc) -> Self {
        let time = Time { now: AtomicU64::new(0), utc_at_zero: AtomicI64::new(utc.0) };
        Self { time: Arc::new(time) }
    }

    /// Moves the time forward by `duration`.
    pub fn advance(&self, duration: Duration) {
        self.set(self.now().after(duration));
    }

    /// Moves the time to `now`; a time before the present one changes nothing.
    pub fn set(&self, now: Instant) {
        self.time.now.fetch_max(now.as_nanoseconds(), Ordering::Relaxed);
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Instant {
        Instant::from_nanoseconds(self.time.now.load(Ordering::Relaxed))
    }

    fn utc(&self) -> Utc {
        Utc(self.time.utc_at_zero.load(Ordering::Relaxed) + self.now().as_nanoseconds() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_clock_goes_forward() {
        let clock = MonotonicClock;
        let before = clock.now();
        std::thread::sleep(Duration::from_millis(1));
        assert!(clock.now().since(before) >= Duration::from_millis(1));
        assert!(clock.utc().0 > 1_700_000_000_000_000_000);
    }

    #[test]
    fn clones_of_a_simulated_clock_share_a_time_that_never_goes_back() {
        let clock = SimulatedClock::new(Utc(1_000));
        let other = clock.clone();
        clock.advance(Duration::from_nanos(7));
        other.set(Instant::from_nanoseconds(3));
        assert_eq!((other.now(), other.utc()), (Instant::from_nanoseconds(7), Utc(1_007)));
    }
}
