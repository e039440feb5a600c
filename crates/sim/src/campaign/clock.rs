//! Each node has clocks of its own: a monotonic one that may drift, and a UTC clock that may be set.

use ropewalk_io::clock::{Clock, SimulatedClock};
use ropewalk_terms::{Instant, Utc};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One millionth of this is one ppm.
const MILLION: u128 = 1_000_000;

/// The clocks of one node. Clones are the same clocks.
#[derive(Clone, Debug)]
pub struct NodeClock {
    world: SimulatedClock,
    course: Arc<Mutex<Course>>,
}

/// How a node's clocks go since they were last changed.
#[derive(Copy, Clone, Debug)]
struct Course {
    world: Instant,
    local: Instant,
    ppm: i32,
    utc_offset: i64,
}

impl Course {
    /// The rate against the world's, in millionths.
    fn rate(self) -> u128 {
        (MILLION as i128 + i128::from(self.ppm)).max(1) as u128
    }
}

impl NodeClock {
    /// Clocks that agree with the world's but for a drift of `ppm` millionths.
    pub fn new(world: SimulatedClock, ppm: i32) -> Self {
        let now = world.now();
        Self { world, course: Arc::new(Mutex::new(Course { world: now, local: now, ppm, utc_offset: 0 })) }
    }

    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The world's time.
    pub fn world(&self) -> Instant {
        self.world.now()
    }

    /// The world's clock.
    pub const fn world_clock(&self) -> &SimulatedClock {
        &self.world
    }

    /// What the node's monotonic clock shows.
    pub fn now(&self) -> Instant {
        self.local(self.world.now())
    }

    /// What the node's monotonic clock shows at this time of the world.
    fn local(&self, world: Instant) -> Instant {
        let course = *self.course();
        let passed = world.since(course.world).as_nanos() * course.rate() / MILLION;
        Instant::from_nanoseconds(course.local.as_nanoseconds().saturating_add(passed as u64))
    }

    /// The first time of the world at which the node's clock shows at least `local`, if it goes on like this.
    pub fn world_at(&self, local: Instant) -> Instant {
        if local == Instant::FAR_FUTURE {
            return local;
        }
        let course = *self.course();
        let needed = (local.since(course.local).as_nanos() * MILLION).div_ceil(course.rate());
        Instant::from_nanoseconds(course.world.as_nanoseconds().saturating_add(needed as u64))
    }

    /// What the node's monotonic clock shows at the first moment at which the world's shows `world` or more.
    pub fn local_from(&self, world: Instant) -> Instant {
        let local = self.local(world);
        if self.world_at(local) >= world { local } else { local.after(Duration::from_nanos(1)) }
    }

    /// From now on the monotonic clock is wrong by `ppm` millionths.
    pub fn set_drift(&self, ppm: i32) {
        let (world, local) = (self.world.now(), self.now());
        let mut course = self.course();
        *course = Course { world, local, ppm, ..*course };
    }

    /// Sets the UTC clock by so many nanoseconds.
    pub fn step_utc(&self, nanoseconds: i64) {
        self.course().utc_offset += nanoseconds;
    }

    /// What the node's UTC clock shows.
    pub fn utc(&self) -> Utc {
        Utc(self.world.utc().0 + self.course().utc_offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_drifts_reaches_its_deadlines_and_not_before() {
        for ppm in [-50_000, -1, 0, 7, 50_000] {
            let world = SimulatedClock::new(Utc(0));
            let clock = NodeClock::new(world.clone(), ppm);
            world.advance(Duration::from_millis(1234));
            clock.set_drift(-ppm);
            let deadline = clock.now().after(Duration::from_nanos(123_456_789));
            let when = clock.world_at(deadline);
            assert!(clock.local(when) >= deadline, "{ppm}");
            assert!(clock.local(Instant::from_nanoseconds(when.as_nanoseconds() - 2)) < deadline, "{ppm}");
        }
    }

    #[test]
    fn a_late_clock_shows_less_and_goes_on_from_there() {
        let world = SimulatedClock::new(Utc(1_000));
        let clock = NodeClock::new(world.clone(), -500_000);
        world.advance(Duration::from_nanos(1000));
        assert_eq!(clock.now(), Instant::from_nanoseconds(500));
        clock.set_drift(0);
        world.advance(Duration::from_nanos(10));
        clock.step_utc(-7);
        assert_eq!((clock.now(), clock.utc()), (Instant::from_nanoseconds(510), Utc(2_003)));
    }
}
