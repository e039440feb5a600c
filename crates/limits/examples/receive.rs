//! Our TCP endpoints against the bare receiver, in turns: `cargo run --release -p ropewalk-limits --example receive`,
//! with the word for the mechanism behind `--`.
//!
//! Prints, for several sizes of fragments, 10^9 bytes a second of both and the median of the ratios; and the same
//! for each second of the receiving thread's processor, which holds on a busy machine too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_io::{Clock, Dispatcher, Event, MonotonicClock};
use ropewalk_limits::{
    Machine, SlinkConfig, SlinkSender, WalkConfig, core_scaling, pin_to_cpu, tcp_walk, thread_cpu_seconds,
};
use ropewalk_memory::{HugePages, MemoryKind, Pool, PoolConfig};
use ropewalk_wire::ferol::{self, BlockHeader};

fn main() {
    let setting =
        |name: &str, default: usize| std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default);
    let (pairs, milliseconds) = (setting("PAIRS", 9), setting("MS", 700));
    let (block, blocks) = (setting("BLOCK", 256 << 10), setting("BLOCKS", 256));
    let (batch, streams) = (setting("BATCH", 1 << 20), setting("STREAMS", 16));
    let word = std::env::args().nth(1);
    let mechanism: Mechanism = word.as_deref().unwrap_or("auto").parse().expect("a mechanism");
    println!("{mechanism}");
    println!("{:?}", Machine::look());
    println!("core scaling {:.2}", core_scaling([0, 1], Duration::from_millis(200)));
    for (fragment_bytes, fragments_per_send) in [(256, 256), (2048, 32), (2048, 128), (16 << 10, 8)] {
        let sender = SlinkConfig { streams, fragment_bytes, fragments_per_send, ..SlinkConfig::default() };
        let duration = Duration::from_millis(milliseconds as u64);
        let mut columns: [Vec<f64>; 6] = Default::default();
        for _ in 0..pairs {
            let config = WalkConfig { sender, duration, ..WalkConfig::default() };
            let bare = tcp_walk(config).expect("loopback");
            let per_cpu = bare.fragment_bytes as f64 / bare.cpu_seconds / 1e9;
            let [ours, ours_per_cpu] = receive(mechanism, sender, duration, [block, blocks, batch]);
            let bare = bare.gigabytes_per_second();
            let row = [bare, ours, ours / bare, per_cpu, ours_per_cpu, ours_per_cpu / per_cpu];
            columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
        }
        let median = |values: &mut Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let medians: Vec<String> = columns.iter_mut().map(|column| format!("{:.2}", median(column))).collect();
        println!(
            "{streams} x {fragment_bytes} B, {fragments_per_send} a send: bare, ours, ratio {:?}, per cpu second {:?}",
            &medians[..3],
            &medians[3..]
        );
    }
}

/// Receives with our endpoints and walks the blocks like the bare receiver.
fn receive(
    mechanism: Mechanism,
    sender: SlinkConfig,
    duration: Duration,
    [block_size, blocks, batch]: [usize; 3],
) -> [f64; 2] {
    std::thread::scope(|scope| {
        let receiving = scope.spawn(move || {
            pin_to_cpu(0).expect("a processor");
            let name = "receive".to_owned();
            let (memory, huge_pages) = (MemoryKind::Anonymous, HugePages::Auto);
            let pool = PoolConfig { name, memory, huge_pages, block_size, blocks, numa_node: None, lock: false };
            let pool = Pool::new(pool).expect("memory");
            let config = TcpConfig { mechanism, receive_batch_bytes: batch, ..TcpConfig::default() };
            let mut tcp = Tcp::new(config, pool).expect("the mechanism");
            let service_point = tcp.listen("127.0.0.1:0").expect("a port");
            let address = tcp.address_of(service_point).and_then(|text| text.parse().ok()).expect("an address");
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let sending = scope.spawn(|| {
                    pin_to_cpu(1).expect("a processor");
                    SlinkSender::connect(&[address], sender).expect("a listener").run(&stop)
                });
                let rate = walk(&mut tcp, sender.streams, duration, &stop);
                sending.join().expect("no panic").expect("no error");
                rate
            })
        });
        receiving.join().expect("no panic")
    })
}

fn walk(tcp: &mut Tcp, streams: usize, duration: Duration, stop: &AtomicBool) -> [f64; 2] {
    let mut waiter = ropewalk_io::wait::Waiter::new().expect("descriptors");
    waiter.watch(tcp.wait_descriptor().expect("an epoll")).expect("watching");
    let (mut events, mut places, mut bytes, mut open) =
        (Vec::new(), vec![(0usize, Vec::new()); streams], 0usize, streams);
    let (mut start, mut rates) = (None, [0.0; 2]);
    while open > 0 {
        if tcp.poll(MonotonicClock.now(), &mut events) == 0 && tcp.prepare_wait() {
            waiter.wait(Some(Duration::from_millis(100)));
        }
        for event in events.drain(..) {
            match event {
                Event::ConnectionRequest { endpoint, .. } => tcp.accept(endpoint),
                Event::Received { endpoint, slice } => {
                    start.get_or_insert_with(|| (Instant::now(), thread_cpu_seconds()));
                    let (skip, kept) = &mut places[endpoint.index()];
                    bytes += step(skip, kept, &slice);
                }
                Event::Disconnected { .. } | Event::Broken { .. } => open -= 1,
                _ => {}
            }
        }
        if let Some((begin, cpu_begin)) = start
            && rates == [0.0; 2]
            && begin.elapsed() > duration
        {
            let seconds = [begin.elapsed().as_secs_f64(), thread_cpu_seconds() - cpu_begin];
            rates = seconds.map(|seconds| bytes as f64 / seconds / 1e9);
            stop.store(true, Ordering::Relaxed);
        }
    }
    rates
}

/// Walks the blocks of a slice; a header that is cut is put together in `kept`.
fn step(skip: &mut usize, kept: &mut Vec<u8>, bytes: &[u8]) -> usize {
    let mut payload = 0;
    let mut place = (*skip).min(bytes.len());
    *skip -= place;
    while place < bytes.len() {
        let missing = ferol::HEADER_BYTES - kept.len();
        let piece = &bytes[place..(place + missing).min(bytes.len())];
        place += piece.len();
        let header: [u8; ferol::HEADER_BYTES] = if kept.is_empty() && piece.len() == ferol::HEADER_BYTES {
            piece.try_into().expect("the length was compared")
        } else {
            kept.extend_from_slice(piece);
            let Ok(header) = kept[..].try_into() else { break };
            kept.clear();
            header
        };
        let header = BlockHeader::parse(&header).expect("a block");
        let length = usize::from(header.payload_bytes);
        payload += length;
        let here = length.min(bytes.len() - place);
        place += here;
        *skip = length - here;
    }
    payload
}
