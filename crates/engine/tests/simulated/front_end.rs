//! A source on the simulated network. What it sends for an event follows from seed, source and event number alone, so
//! that the referee needs no memory of it.

use ropewalk_io::simulated::{Network, Simulated, SimulatedConfig};
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::{Pool, PoolConfig, Slice, Staging};
use ropewalk_terms::{Instant, SourceId};
use ropewalk_wire::{fed, ferol};
use std::time::Duration;

/// Pause before a lost connection is opened again.
const RETRY: Duration = Duration::from_millis(20);
/// Bunch crossings in an orbit of the LHC.
const ORBIT: u64 = 3564;

/// A well mixed number of three.
pub(crate) fn mixed(seed: u64, one: u64, other: u64) -> u64 {
    let mut number = seed ^ one.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ other.wrapping_mul(0xd6e8_feb8_6659_fd93);
    for factor in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
        number = (number ^ (number >> 30)).wrapping_mul(factor);
    }
    number ^ (number >> 31)
}

/// The FED fragment of a source for an event: mostly small, some of them longer than a FEROL block.
pub(crate) fn content(seed: u64, source: SourceId, event: u64) -> Vec<u8> {
    let draw = mixed(seed, u64::from(source.0), event);
    let words = if draw.is_multiple_of(16) { draw >> 8 & 0x2ff } else { draw >> 8 & 0x1f };
    let payload: Vec<u8> = (0..words).flat_map(|word| mixed(draw, word, 1).to_le_bytes()).collect();
    let header = fed::Header::new(source, event as u32 & 0xff_ffff, (event % ORBIT) as u16 + 1);
    let mut fragment = Vec::new();
    fed::encode(header, &payload, fed::Trailer::new(), &mut fragment).expect("the payload is whole words");
    fragment
}

/// One front end.
pub(crate) struct FrontEnd {
    pub(crate) source: SourceId,
    seed: u64,
    address: String,
    endpoints: Simulated,
    staging: Staging,
    endpoint: Option<Endpoint>,
    established: bool,
    retry: Instant,
    /// The next event, its last one, and how far triggers lie apart.
    pub(crate) next: u64,
    last: u64,
    pub(crate) pace: Duration,
    /// Each fragment is sent again and again until so many bytes are sent; all but the first are thrown away where they
    /// arrive.
    pub(crate) waste: usize,
    message: Vec<Slice>,
    /// The last event that was sent, for each connection that broke.
    pub(crate) broken: Vec<u64>,
}

impl FrontEnd {
    pub(crate) fn new(network: &Network, address: &str, source: SourceId, seed: u64, events: u64) -> Self {
        let receive = Pool::new(PoolConfig::heap("front end receives", 256, 2)).expect("memory");
        let config = SimulatedConfig { send_queue_bytes: 16 << 10, ..SimulatedConfig::default() };
        let staging = Pool::new(PoolConfig::heap("front end", 16 << 10, 8)).expect("memory");
        Self {
            source,
            seed,
            address: address.to_owned(),
            endpoints: network.dispatcher(config, receive),
            staging: Staging::new(staging),
            endpoint: None,
            established: false,
            retry: Instant::ZERO,
            next: 1,
            last: events,
            pace: Duration::from_micros(20),
            waste: 0,
            message: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// Its place on the network.
    pub(crate) const fn host(&self) -> u32 {
        self.endpoints.host()
    }

    pub(crate) fn turn(&mut self, now: Instant) -> usize {
        if self.endpoint.is_none() && now >= self.retry && self.next <= self.last {
            self.retry = now.after(RETRY);
            self.endpoint = self.endpoints.connect(&self.address).ok();
        }
        let mut events = Vec::new();
        let mut work = self.endpoints.poll(now, &mut events);
        for event in events {
            match event {
                Event::Established { .. } => self.established = true,
                Event::Disconnected { .. } | Event::Broken { .. } | Event::ConnectFailed { .. } => {
                    if matches!(event, Event::Broken { .. }) {
                        self.broken.push(self.next - 1);
                    }
                    (self.endpoint, self.retry) = (None, now.after(RETRY));
                    self.established = false;
                    self.message.clear();
                }
                Event::ConnectionRequest { .. }
                | Event::Received { .. }
                | Event::HandedOver { .. }
                | Event::SendQueueLow { .. }
                | Event::SendQueueHigh { .. }
                | Event::Finished { .. } => {}
            }
        }
        work += self.send(now);
        work
    }

    fn due(&self) -> Instant {
        Instant::ZERO.after(self.pace * self.next as u32)
    }

    fn send(&mut self, now: Instant) -> usize {
        let (Some(endpoint), true) = (self.endpoint, self.established) else { return 0 };
        let mut sent = 0;
        while self.next <= self.last && self.due() <= now {
            if self.message.is_empty() {
                let fragment = content(self.seed, self.source, self.next);
                let mut bytes = Vec::with_capacity(2 * (fragment.len() + self.waste));
                while bytes.is_empty() || bytes.len() < self.waste {
                    ferol::encode_fragment(&fragment, self.source, self.next as u32 & 0xff_ffff, &mut bytes);
                }
                let Some(slice) = self.staging.write(&bytes) else { break };
                self.message.push(slice);
            }
            if self.endpoints.send(endpoint, &mut self.message).is_err() {
                break;
            }
            self.next += 1;
            sent += 1;
        }
        if self.next > self.last && self.endpoints.queued(endpoint) == 0 {
            self.endpoints.close(endpoint);
            self.established = false;
        }
        sent
    }

    pub(crate) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let retry = (self.endpoint.is_none() && self.next <= self.last).then_some(self.retry);
        // Where something is due but cannot be sent, another look soon.
        let due = (self.established && self.next <= self.last).then(|| self.due().max(now.after(self.pace)));
        [retry, due, self.endpoints.next_deadline()].into_iter().flatten().min()
    }
}
