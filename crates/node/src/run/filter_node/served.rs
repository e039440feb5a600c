//! The drive of a filter node: filter units for builder units on other machines.
//!
//! ```text
//!  RemoteUnit of a builder unit --events--> Caller: payloads stay where they were received --offer--> FilterProcess
//!             ^------------- decisions ----------'<------------------------------------------------------'
//! ```
//! It decides nothing about events: a process that ends, or a caller who says what cannot be, costs the connection, and the builder unit
//! does with its events what it does with those of a process that has ended. What the process had decided until then is sent first, so
//! that no event is blamed for what one behind it has done.

use super::caller::{Caller, Wrong};
use crate::drive::Drive;
use ropewalk_io::{Dispatcher, Endpoint, EndpointError, Event};
use ropewalk_memory::{Slice, Staging};
use ropewalk_plugin::filter::process::FilterProcess;
use ropewalk_terms::Instant;
use ropewalk_wire::filter_node::encode_refuse;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a filter node has counted.
#[derive(Debug, Default)]
pub(super) struct NodeCounts {
    /// Callers whose filter became ready.
    pub(super) welcomed: AtomicU64,
    /// Callers of another version, with another filter, or who said what cannot be.
    pub(super) refused: AtomicU64,
    /// Decisions that were sent.
    pub(super) decisions: AtomicU64,
}

/// A filter unit: a process, and the caller that it works for.
struct Unit {
    process: FilterProcess,
    caller: Option<(Endpoint, Caller)>,
    /// Its process was started, and it is not free yet for another caller.
    is_running: bool,
    /// The process has ended for certain; what it decided before may not all be sent.
    has_ended: bool,
}

/// See the module's text.
pub(super) struct FilterNodeDrive<P> {
    peers: P,
    staging: Staging,
    address: String,
    /// Which filter it has.
    filter: u64,
    /// Events that a unit takes at once.
    window: u32,
    units: Vec<Unit>,
    counts: Arc<NodeCounts>,
    events: Vec<Event>,
    text: Vec<u8>,
    slices: Vec<Slice>,
}

impl<P: Dispatcher> FilterNodeDrive<P> {
    /// A node that listens there, with these processes, none of which was started.
    ///
    /// # Errors
    /// Where the address cannot be had.
    pub(super) fn new(
        listen: &str,
        filter: u64,
        window: u32,
        mut peers: P,
        staging: Staging,
        processes: Vec<FilterProcess>,
    ) -> Result<Self, EndpointError> {
        let point = peers.listen(listen)?;
        let address = peers.address_of(point).unwrap_or_default();
        let unit = |process| Unit { process, caller: None, is_running: false, has_ended: false };
        Ok(Self {
            peers,
            staging,
            address,
            filter,
            window,
            units: processes.into_iter().map(unit).collect(),
            counts: Arc::default(),
            events: Vec::with_capacity(256),
            text: Vec::with_capacity(128 << 10),
            slices: Vec::with_capacity(1),
        })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// What it counts.
    pub(super) fn counts(&self) -> Arc<NodeCounts> {
        Arc::clone(&self.counts)
    }

    fn unit_of(&mut self, endpoint: Endpoint) -> Option<&mut Unit> {
        self.units.iter_mut().find(|unit| unit.caller.as_ref().is_some_and(|(known, _)| *known == endpoint))
    }

    fn poll(&mut self, now: Instant) -> usize {
        let mut events = std::mem::take(&mut self.events);
        let mut work = self.peers.poll(now, &mut events);
        work += events.len();
        for event in events.drain(..) {
            match event {
                Event::ConnectionRequest { endpoint, .. } => self.peers.accept(endpoint),
                Event::Established { endpoint } => self.take_in(endpoint),
                Event::Received { endpoint, slice } => {
                    if let Some((_, caller)) = self.unit_of(endpoint).and_then(|unit| unit.caller.as_mut()) {
                        caller.push(slice);
                    }
                }
                Event::Disconnected { endpoint } | Event::Finished { endpoint } | Event::Broken { endpoint, .. } => {
                    if let Some(unit) = self.unit_of(endpoint) {
                        unit.caller = None;
                        unit.process.kill();
                    }
                }
                _ => {}
            }
        }
        self.events = events;
        work
    }

    /// Somebody has connected, and is given a unit that is free.
    fn take_in(&mut self, endpoint: Endpoint) {
        match self.units.iter_mut().find(|unit| unit.caller.is_none() && !unit.is_running) {
            Some(unit) => unit.caller = Some((endpoint, Caller::new(self.filter, self.window))),
            None => self.refuse(endpoint, "every filter unit of this node has somebody that it works for"),
        }
    }

    fn refuse(&mut self, endpoint: Endpoint, why: &str) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
        self.text.clear();
        encode_refuse(why, &mut self.text);
        self.slices.extend(self.staging.write(&self.text));
        let _ = self.peers.send(endpoint, &mut self.slices);
        self.slices.clear();
        self.peers.close(endpoint);
    }

    /// Does what a unit and its caller want done. Returns how much that was.
    fn turn_unit(&mut self, index: usize) -> usize {
        let Some(unit) = self.units.get_mut(index) else { return 0 };
        let seen = unit.process.look();
        unit.has_ended |= seen.has_ended;
        let work = usize::from(seen.is_ready || seen.has_ended);
        let Some((endpoint, _)) = unit.caller else {
            if std::mem::take(&mut unit.has_ended) {
                unit.is_running = false;
                unit.process.clear();
            }
            return work;
        };
        let is_deaf = unit.has_ended && !seen.is_ready;
        let heard = if is_deaf { Ok(0) } else { self.hear(index, seen.is_ready) };
        match heard.and_then(|heard| Ok(heard + self.send_decisions(index)?)) {
            Ok(done) => work + done,
            Err(wrong) => {
                self.give_up(index, endpoint, &wrong);
                work + 1
            }
        }
    }

    /// Hears a caller, whose process is started when it is wanted, and tells it when that is ready.
    fn hear(&mut self, index: usize, is_ready: bool) -> Result<usize, Wrong> {
        let Self { peers, staging, counts, text, slices, .. } = self;
        let unit = &mut self.units[index];
        let Some((endpoint, caller)) = &mut unit.caller else { return Ok(0) };
        let heard = caller.hear(&mut unit.process)?;
        if caller.wants_process() {
            unit.process.start();
            unit.is_running = true;
        }
        if is_ready {
            counts.welcomed.fetch_add(1, Ordering::Relaxed);
            text.clear();
            caller.welcome(&unit.process, text);
            say(peers, staging, *endpoint, text, slices)?;
        }
        Ok(heard)
    }

    /// Sends what was decided, as far as there is room for it, and says that it is the end where it was the last of a process that
    /// has ended.
    fn send_decisions(&mut self, index: usize) -> Result<usize, Wrong> {
        let Self { peers, staging, counts, text, slices, .. } = self;
        let unit = &mut self.units[index];
        let Some((endpoint, caller)) = &mut unit.caller else { return Ok(0) };
        let mut sent = 0;
        while staging.room(super::MOST_DECISION).is_some() {
            // Only what surely leaves is taken from the process.
            if peers.send_room(*endpoint) < super::MOST_DECISION && peers.queued(*endpoint) > 0 {
                break;
            }
            text.clear();
            if !caller.next_decision(&mut unit.process, text)? {
                return if unit.has_ended { Err(ended(unit)) } else { Ok(sent) };
            }
            say(peers, staging, *endpoint, text, slices)?;
            counts.decisions.fetch_add(1, Ordering::Relaxed);
            sent += 1;
        }
        Ok(sent)
    }

    /// The connection is of no more use.
    fn give_up(&mut self, index: usize, endpoint: Endpoint, wrong: &Wrong) {
        let unit = &mut self.units[index];
        unit.caller = None;
        unit.process.kill();
        match wrong {
            Wrong::Lost => self.peers.close(endpoint),
            Wrong::NotReady(why) => self.refuse(endpoint, why),
            Wrong::Said(why) => self.refuse(endpoint, why),
        }
    }
}

/// Queues what was encoded, or says that the connection is of no more use.
fn say<P: Dispatcher>(
    peers: &mut P,
    staging: &mut Staging,
    endpoint: Endpoint,
    text: &[u8],
    slices: &mut Vec<Slice>,
) -> Result<(), Wrong> {
    slices.extend(staging.write(text));
    let is_sent = !slices.is_empty() && peers.send(endpoint, slices).is_ok();
    slices.clear();
    if is_sent { Ok(()) } else { Err(Wrong::Lost) }
}

/// What a caller is told whose process has ended.
fn ended(unit: &Unit) -> Wrong {
    let is_welcome = unit.caller.as_ref().is_some_and(|(_, caller)| caller.is_welcome());
    let why = || unit.process.journal().ends().pop().map_or_else(String::new, |(end, _)| end.to_string());
    if is_welcome { Wrong::Lost } else { Wrong::NotReady(why()) }
}

impl<P: Dispatcher> Drive for FilterNodeDrive<P> {
    fn turn(&mut self, now: Instant) -> usize {
        let work = self.poll(now);
        let of_units: usize = (0..self.units.len()).map(|index| self.turn_unit(index)).sum();
        work + of_units
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.peers.next_deadline()
    }

    fn prepare_wait(&mut self) -> bool {
        self.peers.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.peers.wait_descriptor());
        self.units.iter().for_each(|unit| into.extend(unit.process.descriptors()));
    }

    fn is_done(&self) -> bool {
        false
    }
}
