//! A pair of our own end points: the layer as users call it, with posted messages, cookies, completions, and a framer
//! that delivers every message separately.

use crate::BenchError;
use ropewalk_io::layer::framer::FixedSize;
use ropewalk_io::layer::{
    Cookie, Ended, EventDispatcher, EventHandler, InterfaceAdapter, Received, Requests, Setting, WorkRequest,
};
use ropewalk_io::tcp::{Mechanism, TcpConfig};
use ropewalk_io::wait::{Idle, Waiter};
use ropewalk_io::{Clock, Endpoint, MonotonicClock, Peer, ServicePoint};
use ropewalk_limits::{MID_PAGE, PairFigures, PairSockets, Stopwatch, pin, thread_cpu_seconds};
use ropewalk_memory::{Owner, Payload, Pool, PoolConfig, Slice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The parameters of a pair.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct OurPair {
    pub(super) mechanism: Mechanism,
    pub(super) message_bytes: usize,
    /// Messages posted before the kernel is called.
    pub(super) messages_per_send: usize,
    pub(super) sockets: PairSockets,
    pub(super) warm_up: Duration,
    pub(super) duration: Duration,
    pub(super) cpus: Option<[usize; 2]>,
}

/// The longest sleep of a side without a wake-up.
const PATIENCE: Duration = Duration::from_millis(20);
/// Receive blocks, and bytes of each.
const BLOCKS: (usize, usize) = (16, 256 << 10);

/// One side: an event dispatcher, and where its thread sleeps.
pub(super) struct Side {
    dispatcher: EventDispatcher,
    waiter: Waiter,
    idle: Idle,
}

impl Side {
    fn new(adapter: &InterfaceAdapter) -> Result<Self, BenchError> {
        let pool = Pool::new(PoolConfig::anonymous("bench receive", BLOCKS.1, BLOCKS.0)).map_err(BenchError::wrong)?;
        let mut dispatcher = adapter.event_dispatcher(pool).map_err(BenchError::wrong)?;
        let waiter = dispatcher.waiter().map_err(BenchError::system("a place to sleep"))?;
        Ok(Self { dispatcher, waiter, idle: Idle::default() })
    }

    /// One turn; sleeps if there has been nothing to do for a while and it `may_sleep`.
    pub(super) fn turn(&mut self, handler: &mut dyn EventHandler, may_sleep: bool) {
        let now = MonotonicClock.now();
        let work = self.dispatcher.dispatch(now, handler);
        if self.idle.is_long_enough(now, work) && may_sleep && self.dispatcher.prepare_wait() {
            let deadline = self.dispatcher.next_deadline();
            let until = deadline.map_or(PATIENCE, |at| at.since(now).clamp(Duration::from_nanos(1), PATIENCE));
            self.dispatcher.wait(&self.waiter, Some(until));
        }
    }

    fn post(&mut self, request: WorkRequest) -> Result<(), BenchError> {
        self.dispatcher.post(request).map_err(|refused| BenchError::wrong(refused.why))
    }
}

/// The receiving side, which listens, and the sending side, which is about to connect.
pub(super) fn sides(mechanism: Mechanism, sockets: PairSockets) -> Result<[Side; 2], BenchError> {
    let config = TcpConfig {
        mechanism,
        congestion_control: sockets.cubic.then(|| "cubic".to_owned()),
        socket_send_buffer: sockets.buffer_bytes,
        socket_receive_buffer: sockets.buffer_bytes,
        ..TcpConfig::default()
    };
    let adapter = InterfaceAdapter::tcp("127.0.0.1", config);
    let (mut receiver, mut sender) = (Side::new(&adapter)?, Side::new(&adapter)?);
    let service_point = receiver.dispatcher.listen("0").map_err(BenchError::wrong)?;
    let address = receiver.dispatcher.address_of(service_point).ok_or_else(|| BenchError::wrong("no address"))?;
    sender.post(WorkRequest::Connect { address, cookie: Cookie(0) })?;
    Ok([receiver, sender])
}

/// Sends as fast as possible; the figures are taken as those of the bare pair.
pub(super) fn our_pair(pair: OurPair) -> Result<PairFigures, BenchError> {
    let stop = AtomicBool::new(false);
    let [receiver, sender] = sides(pair.mechanism, pair.sockets)?;
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            pin(pair.cpus.map(|[_, sender]| sender));
            send(sender, pair, &stop)
        });
        let receiving = scope.spawn(|| {
            pin(pair.cpus.map(|[receiver, _]| receiver));
            let received = receive(receiver, pair, &stop);
            // Also after an error: the sender would otherwise continue forever.
            stop.store(true, Ordering::Relaxed);
            received
        });
        let (received, stopwatch) = receiving.join().map_err(|_| BenchError::wrong("a panic"))??;
        let sent = sending.join().map_err(|_| BenchError::wrong("a panic"))??;
        if received.bytes != sent.0 {
            return Err(BenchError::wrong(format!("{} of {} bytes have come", received.bytes, sent.0)));
        }
        stopwatch.figures(sent).map_err(BenchError::system("our pair"))
    })
}

/// The state of one side, updated by its events.
#[derive(Default)]
pub(super) struct Told {
    message_bytes: usize,
    /// The connection, once established.
    pub(super) endpoint: Option<Endpoint>,
    /// Messages that the transport has accepted.
    pub(super) completed: u64,
    /// Bytes of received messages, and the number of messages.
    bytes: u64,
    pub(super) messages: u64,
    pub(super) ended: Option<Ended>,
}

impl Told {
    pub(super) fn of(message_bytes: usize) -> Self {
        Self { message_bytes, ..Self::default() }
    }
}

impl EventHandler for Told {
    fn connection_requested(&mut self, work: &mut dyn Requests, _: ServicePoint, endpoint: Endpoint, _: Peer) {
        let setting = Setting::Framer(Box::new(FixedSize::new(self.message_bytes)));
        // If the end point is gone, the stream's end reports it.
        let _ = work.post(WorkRequest::Set { endpoint, setting });
        let _ = work.post(WorkRequest::Accept { endpoint });
    }

    fn established(&mut self, _: &mut dyn Requests, endpoint: Endpoint, _: Option<Cookie>) {
        self.endpoint = Some(endpoint);
    }

    fn sent(&mut self, _: &mut dyn Requests, _: Endpoint, _: Cookie) {
        self.completed += 1;
    }

    fn received(&mut self, _: &mut dyn Requests, _: Endpoint, received: Received) {
        self.bytes += received.payload.len() as u64;
        self.messages += 1;
    }

    fn ended(&mut self, _: &mut dyn Requests, _: Endpoint, _: Option<Cookie>, how: Ended) {
        self.ended = Some(how);
    }
}

fn receive<'a>(mut side: Side, pair: OurPair, stop: &'a AtomicBool) -> Result<(Told, Stopwatch<'a>), BenchError> {
    let mut stopwatch = Stopwatch::new(pair.warm_up, pair.duration, stop);
    let mut told = Told::of(pair.message_bytes);
    let begin = Instant::now();
    while told.ended.is_none() {
        let before = told.bytes;
        side.turn(&mut told, true);
        if told.bytes != before {
            stopwatch.look(told.bytes);
        } else if told.bytes == 0 && begin.elapsed() > Duration::from_secs(10) {
            return Err(BenchError::wrong("nothing is received"));
        }
    }
    Ok((told, stopwatch))
}

/// Messages in our own memory, side by side, sent in a cycle.
pub(super) struct Messages {
    each: Vec<Slice>,
    next: usize,
    // Last, so that every slice is returned before the pool is dropped.
    _pool: Pool,
}

impl Messages {
    /// `count` messages of `bytes` each, placed like the bare pair's: from the middle of a page on.
    pub(super) fn new(bytes: usize, count: usize) -> Result<Self, BenchError> {
        let config = PoolConfig::anonymous("bench messages", (MID_PAGE + bytes * count).next_power_of_two(), 1);
        let mut pool = Pool::new(config).map_err(BenchError::wrong)?;
        let each = pool.loan(Owner::SHARED).and_then(|mut block| {
            block.commit(MID_PAGE);
            drop(block.split_committed());
            let message = vec![0x5a; bytes];
            (0..count).map(|_| block.append(&message)).collect::<Option<Vec<_>>>()
        });
        let each = each.filter(|each| !each.is_empty()).ok_or_else(|| BenchError::wrong("no messages"))?;
        Ok(Self { each, next: 0, _pool: pool })
    }

    /// Posts the next message.
    pub(super) fn post(&mut self, side: &mut Side, endpoint: Endpoint) -> Result<(), BenchError> {
        let mut message = Payload::default();
        message.push(self.each[self.next].clone());
        self.next = (self.next + 1) % self.each.len();
        side.post(WorkRequest::Send { endpoint, message, cookie: Cookie(0) })
    }
}

/// Closes the connection in order, behind what is queued, and waits for that.
pub(super) fn close(side: &mut Side, told: &mut Told, endpoint: Endpoint) -> Result<(), BenchError> {
    side.post(WorkRequest::Close { endpoint })?;
    while told.ended.is_none() {
        side.turn(told, true);
    }
    match told.ended {
        Some(Ended::Disconnected) => Ok(()),
        how => Err(BenchError::wrong(format!("the connection ended: {how:?}"))),
    }
}

/// Sends until the flag is set. Returns the bytes sent, and the processor seconds.
fn send(mut side: Side, pair: OurPair, stop: &AtomicBool) -> Result<(u64, f64), BenchError> {
    let mut messages = Messages::new(pair.message_bytes, pair.messages_per_send)?;
    let (mut told, mut posted) = (Told::of(pair.message_bytes), 0);
    // Measured only from here: a pool touches its memory once, which may cost milliseconds.
    let cpu = thread_cpu_seconds();
    while !stop.load(Ordering::Relaxed) {
        if let Some(endpoint) = told.endpoint {
            while posted - told.completed < pair.messages_per_send as u64 {
                messages.post(&mut side, endpoint)?;
                posted += 1;
            }
        }
        side.turn(&mut told, true);
        if let Some(how) = told.ended {
            return Err(BenchError::wrong(format!("the connection ended: {how:?}")));
        }
    }
    let endpoint = told.endpoint.ok_or_else(|| BenchError::wrong("no connection"))?;
    close(&mut side, &mut told, endpoint)?;
    Ok((posted * pair.message_bytes as u64, thread_cpu_seconds() - cpu))
}
