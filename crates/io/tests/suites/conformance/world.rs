//! Nodes on one mechanism, their pools, and the events that they have seen.

use std::collections::BTreeMap;
use std::time::Duration;

use ropewalk_io::{BrokenCause, ConnectCause, Dispatcher, Endpoint, Event, SendError, ServicePoint};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};
use ropewalk_terms::Instant;

/// Sizes of a dispatcher under test.
#[derive(Copy, Clone)]
pub(crate) struct Sizes {
    /// Bytes of a block of the receive pool.
    pub(crate) block: usize,
    /// Blocks of the receive pool.
    pub(crate) blocks: usize,
    pub(crate) send_queue: usize,
    /// Maximum received from one endpoint in one poll: bytes, or slices if slices are handed over.
    pub(crate) receive_batch: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { block: 64 << 10, blocks: 256, send_queue: 1 << 20, receive_batch: 256 << 10 }
    }
}

/// A mechanism under test.
pub(crate) trait Mechanism: Default {
    type D: Dispatcher;

    /// An address to listen on, any port.
    const ANY_ADDRESS: &'static str;
    /// Well-formed, and without a listener.
    const NO_LISTENER: &'static str;
    /// Whether received bytes lie in the receiver's own pool.
    const HAS_POOL: bool;
    /// Whether a rejected connector learns of the rejection; otherwise it sees a connection that breaks.
    const TELLS_REJECTION: bool;

    fn dispatcher(&mut self, sizes: Sizes) -> Self::D;

    fn now(&self) -> Instant;

    /// Lets time pass after an idle round, at most to `deadline` if there is one.
    fn idle(&mut self, deadline: Option<Instant>);
}

/// The last event of an endpoint, or the call that ended it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Last {
    Disconnected,
    Broken(BrokenCause),
    Failed(ConnectCause),
    /// We aborted or rejected it: no event may follow.
    Dropped,
}

/// The events of one endpoint.
#[derive(Default, Debug)]
pub(crate) struct Seen {
    pub(crate) established: bool,
    pub(crate) received: usize,
    pub(crate) highs: usize,
    pub(crate) lows: usize,
    /// Whether the peer's direction has ended, and the endpoint continues.
    pub(crate) finished: bool,
    pub(crate) last: Option<Last>,
    /// Number of bytes of the pattern sent from here.
    pub(crate) sent: usize,
    /// Numbers that were handed over in parcels, and the number of bytes received before each.
    pub(crate) parcels: Vec<(u64, usize)>,
}

/// One dispatcher and its events.
pub(crate) struct Node<D> {
    pub(crate) dispatcher: D,
    pub(crate) seen: BTreeMap<Endpoint, Seen>,
    /// Requests that were not answered automatically.
    pub(crate) requests: Vec<(ServicePoint, Endpoint)>,
    pub(crate) answers: bool,
    /// Received slices that the node keeps instead of dropping them.
    pub(crate) kept: Vec<Slice>,
    pub(crate) keeps: bool,
    pub(crate) largest_slice: usize,
    events: Vec<Event>,
}

/// The nodes and their time.
pub(crate) struct World<M: Mechanism> {
    pub(crate) mechanism: M,
    pub(crate) nodes: Vec<Node<M::D>>,
    pub(crate) pattern: Pattern,
    message: Vec<Slice>,
}

impl<M: Mechanism> World<M> {
    pub(crate) fn new(sizes: &[Sizes]) -> Self {
        let mut mechanism = M::default();
        let nodes = sizes.iter().map(|&sizes| Node::new(mechanism.dispatcher(sizes))).collect();
        Self { mechanism, nodes, pattern: Pattern::new(), message: Vec::new() }
    }

    /// Polls every node once; returns the work done.
    pub(crate) fn step(&mut self) -> usize {
        let now = self.mechanism.now();
        self.nodes.iter_mut().map(|node| node.poll(now, &self.pattern)).sum()
    }

    /// Polls until `done`, and lets time pass if there is nothing to do.
    #[track_caller]
    pub(crate) fn run_until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let limit = self.mechanism.now().after(Duration::from_secs(30));
        while !done(self) {
            assert!(self.mechanism.now() < limit, "{what}: did not happen in time; {:?}", self.summary());
            self.go_on();
        }
    }

    /// Polls once; if there was nothing to do, lets time pass to the next event.
    pub(crate) fn go_on(&mut self) {
        if self.step() == 0 {
            let deadline = self.nodes.iter().filter_map(|node| node.dispatcher.next_deadline()).min();
            self.mechanism.idle(deadline);
        }
    }

    /// Polls until nothing happens for a while.
    pub(crate) fn settle(&mut self) {
        for _ in 0..200 {
            if self.step() == 0 {
                let soon = self.mechanism.now().after(Duration::from_micros(100));
                self.mechanism.idle(Some(soon));
            }
        }
    }

    fn summary(&self) -> Vec<Vec<&Seen>> {
        self.nodes.iter().map(|node| node.seen.values().collect()).collect()
    }

    pub(crate) fn listen(&mut self, node: usize) -> String {
        let dispatcher = &mut self.nodes[node].dispatcher;
        let service_point = dispatcher.listen(M::ANY_ADDRESS).expect("a free address");
        dispatcher.address_of(service_point).expect("the address of a service point that exists")
    }

    pub(crate) fn connect(&mut self, node: usize, address: &str) -> Endpoint {
        let endpoint = self.nodes[node].dispatcher.connect(address).expect("an address that can be understood");
        self.nodes[node].seen.insert(endpoint, Seen::default());
        endpoint
    }

    /// Connects `from` to `to`, which accepts; returns the endpoint of each.
    pub(crate) fn connected_pair(&mut self, from: usize, to: usize) -> (Endpoint, Endpoint) {
        let address = self.listen(to);
        let known: Vec<Endpoint> = self.nodes[to].seen.keys().copied().collect();
        let here = self.connect(from, &address);
        self.run_until("both sides are established", |world| {
            let there = world.nodes[to].seen.iter().find(|(endpoint, _)| !known.contains(endpoint));
            world.nodes[from].seen[&here].established && there.is_some_and(|(_, seen)| seen.established)
        });
        let there = self.nodes[to].seen.keys().find(|endpoint| !known.contains(endpoint));
        (here, *there.expect("the endpoint that was just seen"))
    }

    /// Sends the next `length` bytes of the pattern as one message in slices of at most `cut` bytes.
    pub(crate) fn send(&mut self, node: usize, endpoint: Endpoint, length: usize, cut: usize) -> Result<(), SendError> {
        let Node { dispatcher, seen, .. } = &mut self.nodes[node];
        let seen = seen.get_mut(&endpoint).expect("an endpoint of this node");
        self.message.clear();
        self.pattern.slices(seen.sent, length, cut, &mut self.message);
        let slices = self.message.len();
        let result = dispatcher.send(endpoint, &mut self.message);
        assert_eq!(
            self.message.len(),
            if result.is_ok() { 0 } else { slices },
            "a message is taken whole or not at all"
        );
        if result.is_ok() {
            seen.sent += length;
        }
        result
    }

    /// Sends messages until `total` bytes were accepted, polling in between.
    #[track_caller]
    pub(crate) fn send_all(&mut self, node: usize, endpoint: Endpoint, total: usize, message: usize, cut: usize) {
        self.run_until("everything is queued", |world| {
            loop {
                let left = total - world.seen(node, endpoint).sent;
                if left == 0 {
                    return true;
                }
                match world.send(node, endpoint, left.min(message), cut) {
                    Ok(()) => {}
                    Err(SendError::Full) => return false,
                    Err(SendError::Closed) => panic!("the endpoint closed while it was sending"),
                }
            }
        });
    }

    pub(crate) fn seen(&self, node: usize, endpoint: Endpoint) -> &Seen {
        &self.nodes[node].seen[&endpoint]
    }

    #[track_caller]
    pub(crate) fn until_received(&mut self, node: usize, endpoint: Endpoint, total: usize) {
        self.run_until("everything has arrived", |world| world.seen(node, endpoint).received >= total);
        assert_eq!(self.seen(node, endpoint).received, total);
    }

    #[track_caller]
    pub(crate) fn until_ended(&mut self, node: usize, endpoint: Endpoint) -> Last {
        self.run_until("the endpoint has ended", |world| world.seen(node, endpoint).last.is_some());
        self.seen(node, endpoint).last.expect("just waited for")
    }

    pub(crate) fn abort(&mut self, node: usize, endpoint: Endpoint) {
        self.nodes[node].dispatcher.abort(endpoint);
        self.nodes[node].seen.get_mut(&endpoint).expect("an endpoint of this node").last = Some(Last::Dropped);
    }

    /// Closes open endpoints, waits for every end, and checks that every block was returned.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        for node in &mut self.nodes {
            node.keeps = false;
            node.kept.clear();
            for (&endpoint, seen) in &node.seen {
                if seen.last.is_none() {
                    node.dispatcher.close(endpoint);
                }
            }
        }
        self.run_until("every endpoint has ended", |world| {
            world.nodes.iter().flat_map(|node| node.seen.values()).all(|seen| seen.last.is_some())
        });
        self.settle();
        for node in &mut self.nodes {
            if let Some(pool) = node.dispatcher.pool_mut() {
                assert!(is_full(pool), "a block of the receive pool is lost");
            }
        }
        let Self { nodes, pattern, message, .. } = self;
        drop((nodes, message));
        assert!(pattern.came_back(), "a sent slice is held for ever");
    }
}

impl<D: Dispatcher> Node<D> {
    fn new(dispatcher: D) -> Self {
        Self {
            dispatcher,
            seen: BTreeMap::new(),
            requests: Vec::new(),
            answers: true,
            kept: Vec::new(),
            keeps: false,
            largest_slice: 0,
            events: Vec::new(),
        }
    }

    fn poll(&mut self, now: Instant, pattern: &Pattern) -> usize {
        let mut events = core::mem::take(&mut self.events);
        let work = self.dispatcher.poll(now, &mut events);
        assert!(work > 0 || events.is_empty(), "events are work");
        for event in events.drain(..) {
            self.judge(event, pattern);
        }
        self.events = events;
        work
    }

    fn judge(&mut self, event: Event, pattern: &Pattern) {
        let endpoint = event.endpoint();
        let seen = self.seen.entry(endpoint).or_default();
        assert_eq!(seen.last, None, "{event:?} after the last event");
        match event {
            Event::ConnectionRequest { service_point, .. } => {
                assert!(!seen.established);
                if self.answers {
                    self.dispatcher.accept(endpoint);
                } else {
                    self.requests.push((service_point, endpoint));
                }
            }
            Event::Established { .. } => {
                assert!(!seen.established, "established twice");
                seen.established = true;
            }
            Event::Received { slice, .. } => {
                assert!(seen.established && !seen.finished && !slice.is_empty());
                assert!(pattern.matches(seen.received, &slice), "wrong bytes at {}", seen.received);
                seen.received += slice.len();
                self.largest_slice = self.largest_slice.max(slice.len());
                if self.keeps {
                    self.kept.push(slice);
                }
            }
            Event::HandedOver { parcel, .. } => {
                assert!(seen.established);
                let number = parcel.open::<u64>().expect("tests hand over numbers");
                seen.parcels.push((*number, seen.received));
            }
            Event::SendQueueHigh { .. } => seen.highs += 1,
            Event::SendQueueLow { .. } => seen.lows += 1,
            Event::Finished { .. } => {
                assert!(!seen.finished, "finished twice");
                seen.finished = true;
            }
            Event::Disconnected { .. } => seen.last = Some(Last::Disconnected),
            Event::Broken { cause, .. } => seen.last = Some(Last::Broken(cause)),
            Event::ConnectFailed { cause, .. } => seen.last = Some(Last::Failed(cause)),
        }
    }
}

/// A small pool of ordinary memory.
pub(crate) fn pool(name: &str, block_size: usize, blocks: usize) -> Pool {
    Pool::new(PoolConfig::heap(name, block_size, blocks)).expect("memory for a test")
}

/// Whether every block was returned.
pub(crate) fn is_full(pool: &mut Pool) -> bool {
    pool.collect();
    pool.held() == 0
}

/// The period of the pattern: a prime, so that no block or batch size hides a displacement.
const PERIOD: usize = 65_521;

/// An endless stream of known bytes. All its slices point into one block.
pub(crate) struct Pattern {
    master: Slice,
    pool: Pool,
}

impl Pattern {
    pub(crate) fn new() -> Self {
        let mut pool = pool("pattern", 2 * PERIOD, 1);
        let mut loan = pool.loan(Owner::SHARED).expect("the pool's only block");
        for (index, byte) in loan.spare().iter_mut().enumerate() {
            let place = index % PERIOD;
            *byte = (place ^ (place >> 7)) as u8;
        }
        loan.commit(2 * PERIOD);
        let master = loan.split_committed().expect("what was just committed");
        Self { master, pool }
    }

    /// The bytes from `position` on, `length` of them, in slices of at most `cut` bytes.
    pub(crate) fn slices(&self, position: usize, length: usize, cut: usize, message: &mut Vec<Slice>) {
        let (mut at, end) = (position, position + length);
        while at < end {
            let mut slice = self.master.clone();
            drop(slice.split_to(at % PERIOD));
            let piece = (end - at).min(cut).min(PERIOD);
            message.push(slice.split_to(piece));
            at += piece;
        }
    }

    /// Whether these bytes are those at `position`.
    pub(crate) fn matches(&self, position: usize, bytes: &[u8]) -> bool {
        let mut at = position;
        bytes.chunks(PERIOD).all(|chunk| {
            let start = at % PERIOD;
            at += chunk.len();
            *chunk == self.master[start..start + chunk.len()]
        })
    }

    /// Whether none of its slices is held any more.
    pub(crate) fn came_back(self) -> bool {
        let Self { master, mut pool } = self;
        drop(master);
        is_full(&mut pool)
    }
}
