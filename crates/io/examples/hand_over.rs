//! Measures how many slices a second two in-process dispatchers of one thread hand over:
//! `cargo run --release -p ropewalk-io --example hand_over`.

use std::time::{Duration, Instant};

use ropewalk_io::in_process::{InProcessConfig, InProcessNetwork};
use ropewalk_io::{Clock, Dispatcher, Event, MonotonicClock};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};

fn main() {
    let mut source = Pool::new(PoolConfig::anonymous("source", 64 << 10, 64)).expect("memory");
    let network = InProcessNetwork::new();
    let [mut readout, mut builder] =
        [0; 2].map(|_| network.dispatcher(InProcessConfig::default()).expect("an eventfd"));
    builder.listen("builder").expect("a free name");
    let endpoint = readout.connect("builder").expect("a name");
    let (mut message, mut events): (Vec<Slice>, Vec<Event>) = (Vec::new(), Vec::new());
    let (mut slices, begin) = (0u64, Instant::now());
    while begin.elapsed() < Duration::from_secs(2) {
        // One clock reading for a round of some hundred slices.
        let now = MonotonicClock.now();
        for _ in 0..16 {
            if message.is_empty() {
                let Some(mut loan) = source.loan(Owner::SHARED) else { break };
                loan.commit(64 << 10);
                let Some(mut rest) = loan.split_committed() else { break };
                (0..31).for_each(|_| message.push(rest.split_to(2048)));
                message.push(rest);
            }
            let _ = readout.send(endpoint, &mut message);
        }
        readout.poll(now, &mut events);
        builder.poll(now, &mut events);
        for event in events.drain(..) {
            match event {
                Event::ConnectionRequest { endpoint, .. } => builder.accept(endpoint),
                Event::Received { slice, .. } => slices += u64::from(slice.len() == 2048),
                _ => {}
            }
        }
    }
    println!("{:.1} million slices a second", slices as f64 / begin.elapsed().as_secs_f64() / 1e6);
    println!("{:.1} million slices a second of processor time", slices as f64 / cpu_seconds() / 1e6);
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
