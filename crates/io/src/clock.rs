//! Clocks: the source of `now`. All code below a thread's loop gets the time passed in.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use ropewalk_terms::{Instant, Utc};

/// Tells the time. One reading costs about 25 ns: take one per batch.
pub trait Clock {
    /// Monotonic time, for decisions.
    fn now(&self) -> Instant;

    /// Civil time, for people and records.
    fn utc(&self) -> Utc;
}

/// The machine's clocks. All copies and all instances in a machine have the same start (its boot), so that instants can
/// be compared between threads.
#[derive(Copy, Clone, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now(&self) -> Instant {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Instant::from_nanoseconds(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    fn utc(&self) -> Utc {
        Utc::from(SystemTime::now())
    }
}

/// Quality of the machine's civil time, as the kernel knows it from the program that sets the clock (NTP, PTP).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ClockQuality {
    /// Whether a program sets the clock, and has done so lately.
    pub is_synchronised: bool,
    /// Probable error.
    pub estimated_error: Duration,
    /// Maximum error; it grows while no program sets the clock. The kernel's greatest value, 16 s, means unknown.
    pub maximum_error: Duration,
}

impl ClockQuality {
    /// The present quality of this machine's clock.
    ///
    /// # Errors
    /// An error of the system, if a process is not allowed to ask.
    #[expect(unsafe_code, reason = "no safe crate asks the kernel for this")]
    pub fn of_this_machine() -> std::io::Result<Self> {
        // SAFETY: a structure of numbers, for which zeroes are valid.
        let mut answer: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: `modes` is 0, so that nothing is set, and the kernel writes into a structure that is ours alone.
        let state = unsafe { libc::adjtimex(&raw mut answer) };
        if state < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self::of(state, &answer))
    }

    /// The errors are in microseconds (adjtimex(2)).
    fn of(state: i32, answer: &libc::timex) -> Self {
        let microseconds = |count: libc::c_long| Duration::from_micros(u64::try_from(count).unwrap_or(0));
        Self {
            is_synchronised: state != libc::TIME_ERROR && answer.status & libc::STA_UNSYNC == 0,
            estimated_error: microseconds(answer.esterror),
            maximum_error: microseconds(answer.maxerror),
        }
    }
}

/// Virtual time: advances only when it is moved. Clones share the time.
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

    /// Moves the time to `now`; no effect if that is before the present time.
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

    #[test]
    #[expect(unsafe_code, reason = "an answer of the kernel's, made up")]
    fn a_clock_is_synchronised_where_nothing_speaks_against_it() {
        // SAFETY: a structure of numbers, for which zeroes are valid.
        let mut answer: libc::timex = unsafe { std::mem::zeroed() };
        (answer.esterror, answer.maxerror) = (12, 340);
        let good = ClockQuality::of(libc::TIME_OK, &answer);
        let (estimated_error, maximum_error) = (Duration::from_micros(12), Duration::from_micros(340));
        assert_eq!(good, ClockQuality { is_synchronised: true, estimated_error, maximum_error });
        // A leap second is no error.
        assert!(ClockQuality::of(libc::TIME_INS, &answer).is_synchronised);
        assert!(!ClockQuality::of(libc::TIME_ERROR, &answer).is_synchronised);
        answer.status = libc::STA_UNSYNC;
        assert!(!ClockQuality::of(libc::TIME_OK, &answer).is_synchronised);
    }

    #[test]
    #[cfg(not(miri))]
    fn the_kernel_says_how_good_the_machines_clock_is() {
        let quality = ClockQuality::of_this_machine().expect("reading needs no right");
        assert!(quality.maximum_error <= Duration::from_secs(16), "{quality:?}");
    }
}
