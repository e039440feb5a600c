//! A source's bytes into a connection: FED fragments in FEROL blocks, others as they are.

use super::{Content, Sent, SourceFeed};
use ropewalk_flow::source::TriggerGate;
use ropewalk_io::{Dispatcher, Endpoint};
use ropewalk_memory::{Loan, Owner, Pool, Slice};
use ropewalk_terms::{Instant, SourceId};
use ropewalk_wire::ferol::{self, BlockHeader};
use std::collections::VecDeque;
use std::time::Duration;

/// Pause before the next attempt to connect.
const RETRY: Duration = Duration::from_millis(100);
/// Bytes that one source may queue in one turn, so that all have their share.
const TURN_BYTES: usize = 512 * 1024;

/// A connection to a readout unit.
pub(super) struct Stream {
    source: SourceId,
    address: String,
    pub(super) endpoint: Option<Endpoint>,
    pub(super) is_established: bool,
    pub(super) retry: Instant,
    /// FED fragments go in FEROL blocks.
    in_blocks: bool,
    /// What a connection begins with, and whether this one did.
    greeting: Vec<u8>,
    has_greeted: bool,
    /// How much of the frames was sent.
    sent: usize,
    packet: u16,
    loan: Option<Loan>,
    refused: VecDeque<Slice>,
}

impl Stream {
    pub(super) fn new(source: SourceId, address: String, feed: &SourceFeed) -> Self {
        let (in_blocks, greeting) = match feed {
            SourceFeed::Emulated { frames, .. } => (frames.is_fed(), frames.greeting()),
            SourceFeed::Recorded { .. } => (true, Vec::new()),
        };
        Self {
            source,
            address,
            endpoint: None,
            is_established: false,
            retry: Instant::ZERO,
            in_blocks,
            greeting,
            has_greeted: false,
            sent: 0,
            packet: 0,
            loan: None,
            refused: VecDeque::new(),
        }
    }

    /// Connects, where it is time.
    pub(super) fn connect(&mut self, now: Instant, endpoints: &mut impl Dispatcher) {
        if self.endpoint.is_none() && now >= self.retry {
            self.retry = now.after(RETRY);
            self.endpoint = endpoints.connect(&self.address).ok();
        }
    }

    /// The connection has ended, or did not come to stand.
    pub(super) fn disconnected(&mut self, now: Instant, content: &Content) {
        self.endpoint = None;
        self.is_established = false;
        self.has_greeted = false;
        self.retry = now.after(RETRY);
        // A fragment that was under way is lost with the connection; the next connection begins with a whole one.
        self.refused.clear();
        self.loan = None;
        self.sent = content.frames.bytes().len();
    }

    /// Fills and queues blocks of memory; returns the bytes queued, and whether everything is said.
    pub(super) fn feed<S: Dispatcher>(
        &mut self,
        content: &mut Content,
        to: (&mut S, &mut Pool, &mut Vec<Slice>),
        gate: (&TriggerGate, Duration),
        account: &Sent,
    ) -> (usize, bool) {
        let (endpoints, pool, message) = to;
        let (Some(endpoint), true) = (self.endpoint, self.is_established) else { return (0, false) };
        let mut queued = 0;
        while queued < TURN_BYTES {
            if self.refused.is_empty() {
                let Some(slice) = self.fill(content, pool, gate, account) else { break };
                self.refused.push_back(slice);
            }
            message.extend(self.refused.drain(..));
            let bytes: usize = message.iter().map(|slice| slice.len()).sum();
            if endpoints.send(endpoint, message).is_err() {
                self.refused.extend(message.drain(..));
                break;
            }
            queued += bytes;
        }
        let is_done = self.sent == content.frames.bytes().len() && self.refused.is_empty();
        if is_done && content.is_exhausted(gate.0) {
            self.loan = None;
            endpoints.close(endpoint);
            return (queued, true);
        }
        (queued, false)
    }

    /// A slice of whole FEROL blocks, or of whatever was made; none where nothing is due or no block of memory is free.
    fn fill(
        &mut self,
        content: &mut Content,
        pool: &mut Pool,
        gate: (&TriggerGate, Duration),
        account: &Sent,
    ) -> Option<Slice> {
        let least = if self.in_blocks { ferol::MAX_BLOCK_BYTES } else { self.greeting.len().max(1) };
        loop {
            if self.sent == content.frames.bytes().len() {
                if !content.advance(gate.0, gate.1) {
                    break;
                }
                (self.sent, self.packet) = (0, 0);
            }
            if self.loan.as_ref().is_none_or(|loan| loan.spare_len() < least) {
                if let Some(slice) = self.loan.take().and_then(|mut full| full.split_committed()) {
                    return Some(slice);
                }
                self.loan = Some(pool.loan(Owner::SHARED)?);
            }
            self.greet();
            if self.in_blocks {
                self.write_block(content)
            } else {
                self.write_plain(content)
            }
            if self.sent == content.frames.bytes().len() {
                account.note(&content.frames);
            }
        }
        self.loan.as_mut()?.split_committed()
    }

    fn greet(&mut self) {
        let Some(loan) = &mut self.loan else { return };
        if !std::mem::replace(&mut self.has_greeted, true) {
            loan.spare()[..self.greeting.len()].copy_from_slice(&self.greeting);
            loan.commit(self.greeting.len());
        }
    }

    /// Appends the next FEROL block of the fragment to the loan.
    fn write_block(&mut self, content: &Content) {
        let Some(loan) = &mut self.loan else { return };
        let fragment = content.frames.bytes();
        let part = (fragment.len() - self.sent).min(ferol::MAX_PAYLOAD_BYTES);
        let header = BlockHeader {
            source: self.source,
            event_number: content.event,
            packet: self.packet,
            first: self.sent == 0,
            last: self.sent + part == fragment.len(),
            payload_bytes: part as u16,
        };
        let spare = loan.spare();
        spare[..ferol::HEADER_BYTES].copy_from_slice(&header.to_bytes());
        let to = ferol::HEADER_BYTES..ferol::HEADER_BYTES + part;
        ropewalk_kernels::copy(&mut spare[to], &fragment[self.sent..self.sent + part]);
        loan.commit(ferol::HEADER_BYTES + part);
        self.sent += part;
        self.packet += 1;
    }

    /// Appends as much of the frames to the loan as there is room for.
    fn write_plain(&mut self, content: &Content) {
        let Some(loan) = &mut self.loan else { return };
        let rest = &content.frames.bytes()[self.sent..];
        let part = rest.len().min(loan.spare_len());
        ropewalk_kernels::copy(&mut loan.spare()[..part], &rest[..part]);
        loan.commit(part);
        self.sent += part;
    }
}
