//! The emulated trigger of a flow: it names the gateway to which all sources send their packets of a set.
//!
//! It stops when no gateway wants more, and fails safe: a gateway of which nothing was heard for a while wants nothing.

use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Incarnation, Instant};
use ropewalk_wire::gateway::{Throttle, ThrottleState};
use ropewalk_wire::mep::MepRequest;

/// How gateways are chosen.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Naming {
    /// One after the other.
    RoundRobin,
    /// Those that asked for packets, one after the other, as often as they asked.
    Request,
}

/// What a trigger is to be.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TriggerConfig {
    /// How many gateways there are.
    pub gateways: u16,
    /// How they are chosen.
    pub naming: Naming,
    /// A gateway whose state was not heard for so long is taken for busy.
    pub silence: Duration,
}

/// What is known of a gateway.
#[derive(Copy, Clone, Debug, Default)]
struct Destination {
    incarnation: Incarnation,
    /// Of the last state.
    sequence: u64,
    state: ThrottleState,
    heard: Option<Instant>,
    /// Of the last request.
    request: u32,
    credit: u64,
}

/// Names a gateway for each set of events.
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
    /// A trigger that has heard of nobody yet: it waits.
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

    /// The gateway of the next set; none while nobody wants it. Asked again and again, it measures how long that is.
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

    /// A gateway says how it is. Older words than the last are ignored; with a new life what it asked for is forgotten.
    pub fn on_throttle(&mut self, throttle: &Throttle, now: Instant) {
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

    /// A gateway asks for packets. A request that comes twice, or after a later one, counts once or not.
    pub fn on_request(&mut self, gateway: u16, request: &MepRequest) {
        let Some(gateway) = self.gateways.get_mut(usize::from(gateway)) else { return };
        if request.sequence > gateway.request {
            gateway.request = request.sequence;
            gateway.credit += u64::from(request.count);
        }
    }

    /// How long triggers could come and how long they could not, until the last time a gateway was asked for.
    pub const fn live_and_dead(&self) -> (Duration, Duration) {
        (self.live, self.dead)
    }
}
