//! Somebody who connects to the door for front ends and says nonsense.

use super::super::broken::Broken;
use super::super::content::mixed;
use super::super::endpoints::{Endpoints, Surroundings};
use super::super::node::Machine;
use super::super::scenario::Scenario;
use super::readout::door_of;
use super::{Site, pool};
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::Staging;
use ropewalk_node::drive::Drive;
use ropewalk_terms::{Instant, PoolAccount};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Pause before the next attempt.
const RETRY: Duration = Duration::from_millis(30);

/// Somebody who connects again and again, until told to leave.
pub(in super::super) struct Stranger {
    address: String,
    seed: u64,
    endpoints: Endpoints,
    staging: Staging,
    endpoint: Option<Endpoint>,
    retry: Instant,
    attempts: u64,
    leaving: bool,
}

impl Stranger {
    /// Somebody who bothers this readout unit.
    pub(in super::super) fn new(site: &Site<'_>, around: &Surroundings, readout: u16, seed: u64) -> (Self, Vec<u32>) {
        let endpoints = site.endpoints("stranger receives", 256, 2, around);
        let hosts = vec![endpoints.host()];
        let staging = Staging::new(pool("stranger", 4 << 10, 2));
        let address = door_of(readout);
        let (endpoint, retry) = (None, Instant::ZERO);
        (Self { address, seed, endpoints, staging, endpoint, retry, attempts: 0, leaving: false }, hosts)
    }

    /// Has had enough.
    pub(in super::super) fn leave(&mut self) {
        self.leaving = true;
        if let Some(endpoint) = self.endpoint.take() {
            self.endpoints.abort(endpoint);
        }
    }

    /// Nonsense of some length: too short to be anything, or long enough to be refused.
    fn speak(&mut self, endpoint: Endpoint) {
        let draw = mixed(self.seed, self.attempts, 0);
        let bytes: Vec<u8> = (0..draw % 200).map(|index| mixed(draw, index, 1) as u8).collect();
        let mut message: Vec<_> = self.staging.write(&bytes).into_iter().filter(|slice| !slice.is_empty()).collect();
        if !message.is_empty() {
            // Where there is no room for nonsense it goes unsaid.
            let _ = self.endpoints.send(endpoint, &mut message);
        }
    }
}

impl Drive for Stranger {
    fn turn(&mut self, now: Instant) -> usize {
        if self.endpoint.is_none() && now >= self.retry && !self.leaving {
            self.retry = now.after(RETRY);
            self.attempts += 1;
            self.endpoint = self.endpoints.connect(&self.address).ok();
        }
        let mut events = Vec::new();
        let work = self.endpoints.poll(now, &mut events);
        for event in events {
            match event {
                Event::Established { endpoint } => self.speak(endpoint),
                last if last.is_last() => (self.endpoint, self.retry) = (None, now.after(RETRY)),
                _ => {}
            }
        }
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        let retry = (self.endpoint.is_none() && !self.leaving).then_some(self.retry);
        retry.into_iter().chain(self.endpoints.next_deadline()).min()
    }

    fn prepare_wait(&mut self) -> bool {
        self.endpoints.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, _into: &mut Vec<BorrowedFd<'a>>) {}

    fn is_done(&self) -> bool {
        self.leaving
    }
}

impl Machine for Stranger {
    fn pools(&mut self) -> Vec<PoolAccount> {
        Vec::new()
    }

    fn check(&self, _scenario: &Scenario) -> Result<(), Broken> {
        Ok(())
    }
}
