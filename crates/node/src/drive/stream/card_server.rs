//! One card and its subscribers, and nobody else: a drive.

use super::{ServerConfig, ServerReport, StreamServer};
use crate::drive::Drive;
use ropewalk_flow::stream::{StreamCounts, StreamInput};
use ropewalk_io::Dispatcher;
use ropewalk_memory::Staging;
use ropewalk_terms::Instant;
use std::os::fd::BorrowedFd;

/// Serves the chunks of one card.
pub struct CardServer<D> {
    input: StreamInput,
    server: StreamServer<D>,
    is_stopped: bool,
}

impl<D: Dispatcher> CardServer<D> {
    /// Serves what `input` brings; the rest is as for [`StreamServer::new`].
    pub fn new(config: ServerConfig, input: StreamInput, endpoints: D, staging: Staging) -> Self {
        let server = StreamServer::new(config, input.format(), endpoints, staging);
        Self { input, server, is_stopped: false }
    }

    /// Reads no more from the card; what waits is sent, and everybody is told the end.
    pub const fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// What came from the card, and what became of it.
    pub fn report(&self) -> (StreamCounts, ServerReport) {
        (self.input.counts(), self.server.report())
    }
}

impl<D: Dispatcher> Drive for CardServer<D> {
    fn turn(&mut self, now: Instant) -> usize {
        let mut work = self.server.hear_all(now);
        if self.server.has_begun() && !self.is_stopped {
            work += self.input.turn(now, self.server.router_mut());
            if self.input.is_starved() {
                self.server.relieve();
            }
        }
        if self.is_stopped || self.input.is_ended() {
            self.server.end();
        }
        work + self.server.send_all(now)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.server.next_deadline()
    }

    fn prepare_wait(&mut self) -> bool {
        let is_reading = self.server.has_begun() && !self.is_stopped && !self.input.is_waiting();
        (!is_reading || self.input.ring_mut().prepare_wait()) && self.server.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.server.wait_descriptor());
    }

    fn is_done(&self) -> bool {
        self.server.is_done()
    }
}
