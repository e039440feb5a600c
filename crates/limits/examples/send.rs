//! Our TCP endpoints against bare gathered writes, in turns: the sending side.
//! `cargo run --release -p ropewalk-limits --example send -- MECHANISM`, all of them without a word.
//!
//! Prints, for several sizes of messages, 10^9 bytes a second, and the same for each second of the sending thread's
//! processor, which holds on a busy machine too. The receiver is the same for all.

use std::io::IoSlice;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_io::wait::Waiter;
use ropewalk_io::{Clock, Dispatcher, Endpoint, Event, MonotonicClock};
use ropewalk_limits::{pin_to_cpu, thread_cpu_seconds};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{SendAncillaryBuffer, SendFlags};

/// How many streams, and messages of how many bytes are gathered for one write.
#[derive(Copy, Clone)]
struct Shape {
    streams: usize,
    message_bytes: usize,
    messages: usize,
}

const LONG: Duration = Duration::from_millis(100);

fn main() {
    let setting = |name: &str, default: usize| {
        std::env::var(name).ok().and_then(|value| value.parse::<usize>().ok()).unwrap_or(default)
    };
    let (rounds, duration) = (setting("PAIRS", 9), Duration::from_millis(setting("MS", 500) as u64));
    let word = std::env::args().nth(1);
    let named: Option<Mechanism> = word.map(|word| word.parse().expect("a mechanism"));
    let mechanisms: Vec<Mechanism> = named.map_or_else(|| Mechanism::ALL[1..].to_vec(), |named| vec![named]);
    let shapes = [(1, 2048, 32), (1, 16 << 10, 1), (1, 256 << 10, 1), (16, 2048, 32), (16, 2048, 128)];
    for (streams, message_bytes, messages) in shapes {
        let shape = Shape { streams, message_bytes, messages };
        println!("{streams} x {messages} messages of {message_bytes} B");
        let mut rows = vec![Vec::new(); mechanisms.len() + 1];
        for _ in 0..rounds {
            rows[0].push(measure(duration, |address, stop| send_bare(address, shape, stop)));
            for (row, &mechanism) in rows[1..].iter_mut().zip(&mechanisms) {
                row.push(measure(duration, |address, stop| send_ours(mechanism, address, shape, stop)));
            }
        }
        let names = std::iter::once("bare").chain(mechanisms.iter().map(|mechanism| mechanism.name()));
        for (name, row) in names.zip(rows) {
            let [rate, per_cpu] = [0, 1].map(|column| median(row.iter().map(|figures| figures[column]).collect()));
            println!("  {name:8} {rate:.2}, per cpu second {per_cpu:.2}");
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Lets `send` send for this long to a receiver that throws everything away.
fn measure(duration: Duration, send: impl FnOnce(&str, &AtomicBool) -> [f64; 2] + Send) -> [f64; 2] {
    let pool = Pool::new(PoolConfig::anonymous("receive", 256 << 10, 64)).expect("memory");
    let mut sink = Tcp::new(TcpConfig { mechanism: Mechanism::Epoll, ..TcpConfig::default() }, pool).expect("an epoll");
    let service_point = sink.listen("127.0.0.1:0").expect("a port");
    let address = sink.address_of(service_point).expect("a bound address");
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin_to_cpu(1).expect("a processor");
            let (mut waiter, mut events) = (Waiter::new().expect("descriptors"), Vec::new());
            waiter.watch(sink.wait_descriptor().expect("an epoll")).expect("watching");
            while !stop.load(Ordering::Relaxed) {
                if sink.poll(MonotonicClock.now(), &mut events) == 0 && sink.prepare_wait() {
                    waiter.wait(Some(LONG));
                }
                for event in events.drain(..) {
                    if let Event::ConnectionRequest { endpoint, .. } = event {
                        sink.accept(endpoint);
                    }
                }
            }
        });
        let sending = scope.spawn(move || {
            pin_to_cpu(0).expect("a processor");
            send(&address, stop)
        });
        std::thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
        sending.join().expect("no panic")
    })
}

/// Begins when everything is there.
struct Meter(Instant, f64);

impl Meter {
    fn start() -> Self {
        Self(Instant::now(), thread_cpu_seconds())
    }

    fn stop(self, bytes: usize) -> [f64; 2] {
        [self.0.elapsed().as_secs_f64(), thread_cpu_seconds() - self.1].map(|seconds| bytes as f64 / seconds / 1e9)
    }
}

fn send_bare(address: &str, shape: Shape, stop: &AtomicBool) -> [f64; 2] {
    let bytes = vec![1_u8; shape.message_bytes];
    let message = vec![IoSlice::new(&bytes); shape.messages];
    let connect = |_| {
        let socket = TcpStream::connect(address).expect("a listener");
        rustix::net::sockopt::set_tcp_congestion(&socket, "cubic").expect("cubic");
        socket
    };
    let sockets: Vec<TcpStream> = (0..shape.streams).map(connect).collect();
    let (mut sent, meter) = (0, Meter::start());
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: LONG.as_nanos() as i64 };
    while !stop.load(Ordering::Relaxed) {
        let before = sent;
        for socket in &sockets {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            sent += rustix::net::sendmsg(socket, &message, &mut SendAncillaryBuffer::default(), flags).unwrap_or(0);
        }
        if sent == before {
            let mut room: Vec<PollFd<'_>> = sockets.iter().map(|socket| PollFd::new(socket, PollFlags::OUT)).collect();
            rustix::event::poll(&mut room, Some(&now)).expect("sockets");
        }
    }
    meter.stop(sent)
}

fn send_ours(mechanism: Mechanism, address: &str, shape: Shape, stop: &AtomicBool) -> [f64; 2] {
    let bytes = shape.message_bytes * shape.messages;
    let mut source = Pool::new(PoolConfig::anonymous("send", bytes, 1)).expect("memory");
    let mut loan = source.loan(Owner::SHARED).expect("the only block");
    loan.commit(bytes);
    let block = loan.split_committed().expect("what was committed");
    let config = TcpConfig { mechanism, send_queue_bytes: 2 * bytes, ..TcpConfig::default() };
    let nothing = Pool::new(PoolConfig::anonymous("receive", 4096, 64)).expect("memory");
    let mut tcp = Tcp::new(config, nothing).expect("the mechanism");
    let endpoints: Vec<Endpoint> = (0..shape.streams).map(|_| tcp.connect(address).expect("an address")).collect();
    let (mut waiter, mut events, mut message) = (Waiter::new().expect("descriptors"), Vec::new(), Vec::<Slice>::new());
    waiter.watch(tcp.wait_descriptor().expect("a descriptor")).expect("watching");
    let (mut sent, meter) = (0, Meter::start());
    while !stop.load(Ordering::Relaxed) {
        for &endpoint in &endpoints {
            while tcp.send_room(endpoint) >= bytes {
                let mut rest = block.clone();
                message.extend((0..shape.messages).map(|_| rest.split_to(shape.message_bytes)));
                tcp.send(endpoint, &mut message).expect("room");
                sent += bytes;
                if tcp.queued(endpoint) >= bytes {
                    break;
                }
            }
        }
        if tcp.poll(MonotonicClock.now(), &mut events) == 0 && tcp.prepare_wait() {
            waiter.wait(Some(LONG));
        }
        events.clear();
    }
    meter.stop(sent - endpoints.iter().map(|&endpoint| tcp.queued(endpoint)).sum::<usize>())
}
