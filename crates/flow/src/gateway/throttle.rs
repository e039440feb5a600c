//! The throttle: asks for fewer triggers before data must be dropped.
//!
//! ```text
//!  0 ------------------------------ warning -------------- busy ------------ capacity
//!                                      |<---- headroom ---->|<--- headroom --->|      headroom = latency x rate x size
//!                 ready again, a quarter of it below each mark
//! ```
//! Packets in flight at the request to stop still need room: the headroom. The state is absolute and repeated; a
//! trigger that does not hear it assumes busy.
//!
//! Run control holds the trigger in the same way, before the run begins and during a pause: the state is busy, and
//! packets in flight are accepted as before. That time counts neither as live nor as dead.

use super::config::GatewayConfigError;
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Incarnation, Instant};
use ropewalk_wire::gateway::{self, ThrottleState};
use ropewalk_wire::mep::MepRequest;

/// Returns the data that arrive within the latency: the room needed when the trigger is asked to stop.
pub fn headroom(latency: Duration, rate_hz: f64, size: f64) -> u64 {
    (latency.as_secs_f64() * rate_hz * size).ceil() as u64
}

/// Fill level of a queue in which packets wait before they are received, in any unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ReceiveQueue {
    /// Used room.
    pub used: u64,
    /// Room until packets are lost.
    pub room: u64,
    /// Size of a packet of maximum length in this unit.
    pub packet: u64,
}

/// Settings of a gateway's throttle.
#[derive(Clone, PartialEq, Debug)]
pub struct ThrottleConfig {
    /// Time from the request to stop until no more packets come.
    pub latency: Duration,
    /// Additional time during which packets come if the gateway's thread cannot run and send a request: as long as a
    /// trigger trusts a gateway that it does not hear. These packets wait in the receive queue.
    pub silence: Duration,
    /// Interval at which the state is sent.
    pub repeat: Duration,
    /// Maximum number of events per second of each flow at this input queue.
    pub event_rates_hz: Vec<f64>,
    /// Maximum number of bytes per second.
    pub bytes_per_second: f64,
}

impl Default for ThrottleConfig {
    /// A latency of 1 ms, a state every 10 ms, and unknown rates: an eighth of the room is headroom.
    fn default() -> Self {
        let (latency, repeat) = (Duration::from_millis(1), Duration::from_millis(10));
        Self { latency, silence: Duration::ZERO, repeat, event_rates_hz: Vec::new(), bytes_per_second: 0.0 }
    }
}

impl ThrottleConfig {
    pub(super) fn check(&self) -> Result<(), GatewayConfigError> {
        let mut rates = self.event_rates_hz.iter().chain([&self.bytes_per_second]);
        let are_rates = rates.all(|rate| rate.is_finite() && *rate >= 0.0);
        if are_rates && !self.repeat.is_zero() { Ok(()) } else { Err(GatewayConfigError::Throttle) }
    }

    /// Returns the headroom in sets of a flow.
    pub(super) fn sets(&self, flow: usize, packing: u16, capacity: u64) -> u64 {
        let rate = self.event_rates_hz.get(flow).copied().unwrap_or_default();
        // One more set: a set that has only begun takes all of its room.
        let sets = headroom(self.latency, rate, 1.0 / f64::from(packing)) + 1;
        if rate > 0.0 { sets } else { capacity.div_ceil(8) }
    }

    /// Returns the headroom in bytes.
    pub(super) fn bytes(&self, capacity: u64) -> u64 {
        let bytes = headroom(self.latency, self.bytes_per_second, 1.0);
        if bytes > 0 { bytes } else { capacity.div_ceil(8) }
    }

    /// Returns the headroom of a receive queue, at most half of it: with more headroom, the gateway would be busy as
    /// soon as a few packets wait.
    pub(super) fn queue(&self, wanted: Option<u64>, room: u64) -> u64 {
        wanted.unwrap_or_else(|| room.div_ceil(8)).min(room / 2)
    }
}

/// Fill level of a resource, and how often and how long it stopped the trigger.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Level {
    /// Capacity.
    pub capacity: u64,
    /// Free room that is needed when the trigger is asked to stop.
    pub headroom: u64,
    /// Used room.
    pub used: u64,
    /// The resulting state.
    pub state: ThrottleState,
    /// How long it stopped the trigger. Several levels can stop it at the same time.
    pub dead: Duration,
    /// How often it stopped the trigger.
    pub stops: u64,
}

impl Level {
    /// Creates an unused level.
    pub const fn new(capacity: u64, headroom: u64) -> Self {
        let (used, state, dead) = (0, ThrottleState::Ready, Duration::ZERO);
        Self { capacity, headroom, used, state, dead, stops: 0 }
    }

    /// Returns the room until the trigger is asked to stop; negative beyond that.
    pub(super) const fn left(&self) -> i64 {
        self.capacity as i64 - self.headroom as i64 - self.used as i64
    }

    fn next_state(&self, used: u64) -> ThrottleState {
        // Whatever the headroom, an empty queue never stops the trigger.
        let busy = self.capacity.saturating_sub(self.headroom).max(1);
        let warning = busy.saturating_sub(self.headroom);
        let again = self.headroom.div_ceil(4).min(busy - 1);
        let (is_busy, is_warned) = match self.state {
            ThrottleState::Ready => (used >= busy, used >= warning),
            ThrottleState::Warning => (used >= busy, used + again >= warning),
            _ => (used + again >= busy, used + again >= warning),
        };
        if is_busy {
            ThrottleState::Busy
        } else if is_warned && warning > 0 {
            ThrottleState::Warning
        } else {
            ThrottleState::Ready
        }
    }
}

/// Decides whether triggers may come.
#[derive(Debug)]
pub struct Throttle {
    gateway: u16,
    incarnation: Incarnation,
    repeat: Duration,
    levels: Vec<Level>,
    /// Reasons that are no fill levels, each with the time for which it stopped the trigger.
    out_of_sync: Level,
    error: Level,
    held: Level,
    state: ThrottleState,
    since: Option<Instant>,
    live: Duration,
    dead: Duration,
    sequence: u64,
    said: Option<(Instant, ThrottleState)>,
}

impl Throttle {
    /// Creates a throttle with these levels, all empty.
    pub fn new(gateway: u16, incarnation: Incarnation, config: &ThrottleConfig, levels: Vec<Level>) -> Self {
        let alarm = Level::new(1, 0);
        Self {
            gateway,
            incarnation,
            repeat: config.repeat,
            levels,
            out_of_sync: alarm,
            error: alarm,
            held: alarm,
            state: ThrottleState::Ready,
            since: None,
            live: Duration::ZERO,
            dead: Duration::ZERO,
            sequence: 0,
            said: None,
        }
    }

    /// Sets the use of a level.
    pub fn observe(&mut self, index: usize, used: u64, now: Instant) {
        self.pass(now);
        if let Some(level) = self.levels.get_mut(index) {
            let next = level.next_state(used);
            level.stops += u64::from(level.state.is_open() && !next.is_open());
            (level.used, level.state) = (used, next);
        }
        self.combine();
    }

    /// Sets the use of a level whose capacity may have changed.
    pub fn observe_sized(&mut self, index: usize, size: Level, used: u64, now: Instant) {
        if let Some(level) = self.levels.get_mut(index) {
            (level.capacity, level.headroom) = (size.capacity, size.headroom);
        }
        self.observe(index, used, now);
    }

    /// Sets or clears out of sync: event numbers are implausible.
    pub fn set_out_of_sync(&mut self, is_on: bool, now: Instant) {
        self.pass(now);
        self.out_of_sync.switch(is_on, ThrottleState::OutOfSync);
        self.combine();
    }

    /// Sets or clears the error state.
    pub fn set_error(&mut self, is_on: bool, now: Instant) {
        self.pass(now);
        self.error.switch(is_on, ThrottleState::Error);
        self.combine();
    }

    /// Lets run control stop or resume triggers.
    pub fn set_held(&mut self, is_on: bool, now: Instant) {
        self.pass(now);
        self.held.switch(is_on, ThrottleState::Busy);
        self.combine();
    }

    /// Adds the time since the last call to the live or dead time of each level.
    fn pass(&mut self, now: Instant) {
        let passed = self.since.replace(now).map_or(Duration::ZERO, |since| now.since(since));
        if !self.held.state.is_open() {
            // While run control holds the trigger, the levels cost no triggers.
            self.held.dead += passed;
            return;
        }
        *(if self.state.is_open() { &mut self.live } else { &mut self.dead }) += passed;
        let all = self.levels.iter_mut().chain([&mut self.out_of_sync, &mut self.error]);
        all.filter(|level| !level.state.is_open()).for_each(|level| level.dead += passed);
    }

    fn combine(&mut self) {
        let worst = self.levels.iter().map(|level| level.state).max().unwrap_or_default();
        self.state = worst.max(self.out_of_sync.state).max(self.error.state).max(self.held.state);
    }

    /// Returns the current state.
    pub const fn state(&self) -> ThrottleState {
        self.state
    }

    /// Returns the state if it is due: after a change, and at regular intervals.
    pub fn next_message(&mut self, now: Instant) -> Option<gateway::Throttle> {
        if self.next_deadline() > now {
            return None;
        }
        self.said = Some((now, self.state));
        self.sequence += 1;
        let (gateway, incarnation) = (self.gateway, self.incarnation);
        Some(gateway::Throttle { gateway, incarnation, sequence: self.sequence, state: self.state })
    }

    /// Returns when the state is due again.
    pub fn next_deadline(&self) -> Instant {
        let same = self.said.filter(|(_, state)| *state == self.state);
        same.map_or(Instant::ZERO, |(at, _)| at.after(self.repeat))
    }

    /// Returns each level, then the other reasons: out of sync, error, held by run control.
    pub fn levels(&self) -> impl Iterator<Item = &Level> {
        self.levels.iter().chain([&self.out_of_sync, &self.error, &self.held])
    }

    /// Returns how long triggers were possible, and how long they were wanted but stopped, as of the last call with a
    /// time.
    pub const fn live_and_dead(&self) -> (Duration, Duration) {
        (self.live, self.dead)
    }
}

impl Level {
    fn switch(&mut self, is_on: bool, state: ThrottleState) {
        self.stops += u64::from(is_on && self.state.is_open());
        self.state = if is_on { state } else { ThrottleState::Ready };
        self.used = u64::from(is_on);
    }
}

/// How gateways are chosen.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Naming {
    /// One after the other.
    RoundRobin,
    /// Gateways that requested packets, in turn, as often as they requested.
    Request,
}

/// Configuration of an emulated trigger.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TriggerConfig {
    /// Number of gateways.
    pub gateways: u16,
    /// How they are chosen.
    pub naming: Naming,
    /// A gateway whose state was not heard for this time counts as busy.
    pub silence: Duration,
}

/// Known state of a gateway.
#[derive(Copy, Clone, Debug, Default)]
struct Destination {
    incarnation: Incarnation,
    /// Sequence number of the last state.
    sequence: u64,
    state: ThrottleState,
    heard: Option<Instant>,
    /// Number of the last request.
    request: u32,
    credit: u64,
}

/// The emulated trigger of a flow. For each set of events it names the gateway to which all sources send their packets.
///
/// It stops when no gateway has room. It fails safe: a gateway that has been silent too long counts as full.
#[derive(Debug)]
pub struct Trigger {
    config: TriggerConfig,
    gateways: Box<[Destination]>,
    next: usize,
    since: Option<Instant>,
    is_open: bool,
    live: Duration,
    dead: Duration,
}

impl Trigger {
    /// Creates a trigger that has heard no gateway yet, and so waits.
    pub fn new(config: TriggerConfig) -> Self {
        Self {
            config,
            gateways: vec![Destination::default(); usize::from(config.gateways)].into_boxed_slice(),
            next: 0,
            since: None,
            is_open: false,
            live: Duration::ZERO,
            dead: Duration::ZERO,
        }
    }

    /// Returns the gateway of the next set; `None` while no gateway is ready. Repeated calls measure that time.
    pub fn name(&mut self, now: Instant) -> Option<u16> {
        let passed = self.since.replace(now).map_or(Duration::ZERO, |since| now.since(since));
        *(if self.is_open { &mut self.live } else { &mut self.dead }) += passed;
        let count = self.gateways.len();
        let found = (0..count).map(|step| (self.next + step) % count).find(|&index| self.is_willing(index, now));
        self.is_open = found.is_some();
        let index = found?;
        self.next = (index + 1) % count;
        if self.config.naming == Naming::Request {
            self.gateways[index].credit -= 1;
        }
        Some(index as u16)
    }

    fn is_willing(&self, index: usize, now: Instant) -> bool {
        let gateway = &self.gateways[index];
        let is_heard = gateway.heard.is_some_and(|heard| now < heard.after(self.config.silence));
        let is_asked = self.config.naming == Naming::RoundRobin || gateway.credit > 0;
        is_heard && gateway.state.is_open() && is_asked
    }

    /// Handles the state of a gateway. States older than the last one are ignored; a new incarnation clears its
    /// requests.
    pub fn on_throttle(&mut self, throttle: &ropewalk_wire::gateway::Throttle, now: Instant) {
        let Some(gateway) = self.gateways.get_mut(usize::from(throttle.gateway)) else { return };
        let is_unseen = is_planted(Flaw::GatewayLifeUnseen) && gateway.heard.is_some();
        if (throttle.incarnation, throttle.sequence) <= (gateway.incarnation, gateway.sequence)
            || (is_unseen && throttle.incarnation > gateway.incarnation)
        {
            return;
        }
        if throttle.incarnation > gateway.incarnation {
            *gateway = Destination { incarnation: throttle.incarnation, ..Destination::default() };
        }
        (gateway.sequence, gateway.state, gateway.heard) = (throttle.sequence, throttle.state, Some(now));
    }

    /// Handles a request for packets. A repeated request, or one older than the last, does not count.
    pub fn on_request(&mut self, gateway: u16, request: &MepRequest) {
        let Some(gateway) = self.gateways.get_mut(usize::from(gateway)) else { return };
        if request.sequence > gateway.request {
            gateway.request = request.sequence;
            gateway.credit += u64::from(request.count);
        }
    }

    /// Returns how long triggers were possible and how long not, until the last call of [`Trigger::name`].
    pub const fn live_and_dead(&self) -> (Duration, Duration) {
        (self.live, self.dead)
    }
}
