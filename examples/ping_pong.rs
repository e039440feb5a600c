//! Sends a message back and forth between two threads over loopback, and measures the time.
//!
//! ```text
//! cargo run --release -p ropewalk-io --example ping_pong -- [MECHANISM] [BYTES] [ROUNDS] [busy]
//! ```

use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use ropewalk_io::layer::framer::FixedSize;
use ropewalk_io::layer::{
    Cookie, Dispatch, Ended, EventDispatcher, EventHandler, InterfaceAdapter, Received, Requests, Setting, WorkLoop,
    WorkRequest,
};
use ropewalk_io::tcp::TcpConfig;
use ropewalk_io::{Endpoint, Peer, ServicePoint};
use ropewalk_memory::{Owner, Payload, Pool, PoolConfig, Slice};

/// Warm-up rounds, which do not count.
const WARM_UP: usize = 1000;

/// Sends every message back.
struct Pong {
    bytes: usize,
}

impl EventHandler for Pong {
    fn connection_requested(&mut self, work: &mut dyn Requests, _: ServicePoint, endpoint: Endpoint, _: Peer) {
        frame(work, endpoint, self.bytes);
        post(work, WorkRequest::Accept { endpoint });
    }

    fn received(&mut self, work: &mut dyn Requests, endpoint: Endpoint, received: Received) {
        post(work, WorkRequest::Send { endpoint, message: received.payload, cookie: Cookie(0) });
    }
}

/// Sends a message, and the next one when it has come back.
struct Ping {
    message: Slice,
    begin: Instant,
    /// Nanoseconds of every round.
    times: Vec<u64>,
    rounds: usize,
    done: Sender<Vec<u64>>,
}

impl Ping {
    fn send(&mut self, work: &mut dyn Requests, endpoint: Endpoint) {
        let mut message = Payload::default();
        message.push(self.message.clone());
        self.begin = Instant::now();
        post(work, WorkRequest::Send { endpoint, message, cookie: Cookie(0) });
    }
}

impl EventHandler for Ping {
    fn established(&mut self, work: &mut dyn Requests, endpoint: Endpoint, _: Option<Cookie>) {
        frame(work, endpoint, self.message.len());
        self.send(work, endpoint);
    }

    fn received(&mut self, work: &mut dyn Requests, endpoint: Endpoint, _: Received) {
        self.times.push(self.begin.elapsed().as_nanos() as u64);
        if self.times.len() < WARM_UP + self.rounds {
            self.send(work, endpoint);
        } else {
            post(work, WorkRequest::Close { endpoint });
        }
    }

    fn ended(&mut self, _: &mut dyn Requests, _: Endpoint, _: Option<Cookie>, how: Ended) {
        if how != Ended::Disconnected {
            eprintln!("it ended early: {how:?}");
        }
        // The caller waits for it.
        let _ = self.done.send(self.times.split_off(WARM_UP.min(self.times.len())));
    }
}

fn frame(work: &mut dyn Requests, endpoint: Endpoint, bytes: usize) {
    post(work, WorkRequest::Set { endpoint, setting: Setting::Framer(Box::new(FixedSize::new(bytes))) });
}

fn post(work: &mut dyn Requests, request: WorkRequest) {
    if let Err(refused) = work.post(request) {
        eprintln!("{}", refused.why);
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}\nusage: ping_pong [MECHANISM] [BYTES] [ROUNDS] [busy]");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |place: usize, usual: &'static str| arguments.get(place).map_or(usual, String::as_str);
    let mechanism = argument(0, "auto").parse()?;
    let (bytes, rounds): (usize, usize) = (argument(1, "64").parse()?, argument(2, "20000").parse()?);
    let dispatch = if argument(3, "") == "busy" { Dispatch::Poll } else { Dispatch::Wait };

    let adapter = InterfaceAdapter::tcp("127.0.0.1", TcpConfig { mechanism, ..TcpConfig::default() });
    let dispatcher = || -> Result<EventDispatcher, Box<dyn std::error::Error>> {
        Ok(adapter.event_dispatcher(Pool::new(PoolConfig::anonymous("receive", 256 << 10, 16))?)?)
    };
    let (mut there, mut here) = (dispatcher()?, dispatcher()?);
    let service_point = there.listen("0")?;
    let address = there.address_of(service_point).ok_or("no address")?;
    here.post(WorkRequest::Connect { address, cookie: Cookie(0) }).map_err(|refused| refused.why)?;

    let mut pool = Pool::new(PoolConfig::anonymous("message", bytes.max(4096).next_power_of_two(), 1))?;
    let mut block = pool.loan(Owner::SHARED).ok_or("no block")?;
    let message = block.append(&vec![0x5a; bytes]).ok_or("a message of at least one byte is needed")?;
    let (done, times) = channel();
    let ping = Ping { message, begin: Instant::now(), times: Vec::with_capacity(WARM_UP + rounds), rounds, done };
    let pong = WorkLoop::new("pong", dispatch).with(there, Pong { bytes }).spawn(|| {})?;
    let pings = WorkLoop::new("ping", dispatch).with(here, ping).spawn(|| {})?;
    let mut times = times.recv()?;
    pings.stop();
    pong.stop();

    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    println!("{mechanism}, {dispatch:?}, {bytes} bytes, {} round trips in microseconds", times.len());
    for (name, share) in
        [("least", 0.0), ("median", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("99.9 %", 0.999), ("most", 1.0)]
    {
        println!("{name:>8} {:10.1}", at(share));
    }
    Ok(())
}
