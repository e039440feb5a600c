//! A thousand connections at once over each mechanism that has room for them, in a process of its own, because it raises
//! the limit of descriptors.

use std::time::Duration;

use ropewalk_io::in_process::{InProcessConfig, InProcessNetwork};
use ropewalk_io::simulated::{Faults, Network, SimulatedConfig};
use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_io::{Clock, Dispatcher, Endpoint, Event, MonotonicClock, SimulatedClock};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};
use ropewalk_terms::Instant;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const CONNECTIONS: usize = 1_000;
const BYTES: usize = 100;

fn pool(name: &str, block: usize, blocks: usize) -> Pool {
    Pool::new(PoolConfig::heap(name, block, blocks)).expect("memory for a test")
}

/// Sends back whatever comes, and counts the bytes of each endpoint.
struct Side {
    dispatcher: Box<dyn Dispatcher>,
    received: Vec<usize>,
    established: usize,
    ended: usize,
    echoes: bool,
    events: Vec<Event>,
}

impl Side {
    fn new(dispatcher: Box<dyn Dispatcher>, echoes: bool) -> Self {
        Self { dispatcher, received: Vec::new(), established: 0, ended: 0, echoes, events: Vec::new() }
    }

    fn poll(&mut self, now: Instant) -> usize {
        let mut events = core::mem::take(&mut self.events);
        let work = self.dispatcher.poll(now, &mut events);
        for event in events.drain(..) {
            match event {
                Event::ConnectionRequest { endpoint, .. } => self.dispatcher.accept(endpoint),
                Event::Established { .. } => self.established += 1,
                Event::Received { endpoint, slice } => self.take(endpoint, slice),
                Event::Disconnected { .. } => self.ended += 1,
                other => panic!("{other:?}"),
            }
        }
        self.events = events;
        work
    }

    fn take(&mut self, endpoint: Endpoint, slice: Slice) {
        if self.received.len() <= endpoint.index() {
            self.received.resize(endpoint.index() + 1, 0);
        }
        self.received[endpoint.index()] += slice.len();
        if self.echoes {
            self.dispatcher.send(endpoint, &mut vec![slice]).expect("room for an echo");
        }
    }
}

fn a_thousand_connections_are_served(
    make: impl Fn() -> Box<dyn Dispatcher>,
    address: &str,
    clock: &mut dyn FnMut(Option<Instant>) -> Instant,
) {
    let (mut here, mut there) = (Side::new(make(), false), Side::new(make(), true));
    let service_point = there.dispatcher.listen(address).expect("a free address");
    let address = there.dispatcher.address_of(service_point).expect("a bound address");
    let endpoints: Vec<Endpoint> =
        (0..CONNECTIONS).map(|_| here.dispatcher.connect(&address).expect("a descriptor")).collect();
    let begin = clock(None);
    let mut until = |here: &mut Side, there: &mut Side, done: &dyn Fn(&Side, &Side) -> bool| {
        let mut now = begin;
        while !done(here, there) {
            assert!(now.since(begin) < Duration::from_secs(60), "it does not come to an end");
            let work = here.poll(now) + there.poll(now);
            let deadline = here.dispatcher.next_deadline().into_iter().chain(there.dispatcher.next_deadline()).min();
            now = if work > 0 { clock(Some(now)) } else { clock(deadline) };
        }
    };
    until(&mut here, &mut there, &|here, there| (here.established, there.established) == (CONNECTIONS, CONNECTIONS));
    let mut source = pool("source", BYTES, 1);
    let mut loan = source.loan(Owner::SHARED).expect("the only block");
    let message = loan.append(&[7; BYTES]).expect("room");
    for _ in 0..3 {
        for &endpoint in &endpoints {
            here.dispatcher.send(endpoint, &mut vec![message.clone()]).expect("room");
        }
    }
    until(&mut here, &mut there, &|here, _| here.received.iter().sum::<usize>() == 3 * BYTES * CONNECTIONS);
    assert_eq!(here.received, [3 * BYTES; CONNECTIONS], "each its own");
    endpoints.iter().for_each(|&endpoint| here.dispatcher.close(endpoint));
    until(&mut here, &mut there, &|here, there| (here.ended, there.ended) == (CONNECTIONS, CONNECTIONS));
}

fn over_tcp(mechanism: Mechanism) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let enough = maximum.unwrap_or(20_000).min(20_000);
    if enough < 2 * CONNECTIONS as u64 + 200 {
        return ropewalk_tidy::skipped("thousand::over_tcp", "the process may not have 2,200 descriptors");
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(enough), maximum }).expect("a limit up to the hard one");
    let config = TcpConfig { mechanism, ..TcpConfig::default() };
    let make = || -> Box<dyn Dispatcher> {
        Box::new(Tcp::new(config.clone(), pool("receive", 4096, 2 * CONNECTIONS)).expect("a dispatcher"))
    };
    a_thousand_connections_are_served(make, "127.0.0.1:0", &mut |_| MonotonicClock.now());
}

#[test]
fn over_epoll() {
    over_tcp(Mechanism::Epoll);
}

#[test]
fn over_poll() {
    over_tcp(Mechanism::Poll);
}

#[test]
fn over_io_uring() {
    over_tcp(Mechanism::IoUring);
}

#[test]
fn within_a_process() {
    let network = InProcessNetwork::new();
    let config = InProcessConfig { ring_slices: 16, ..InProcessConfig::default() };
    let make = || -> Box<dyn Dispatcher> { Box::new(network.dispatcher(config).expect("an eventfd")) };
    a_thousand_connections_are_served(make, "node:0", &mut |_| MonotonicClock.now());
}

#[test]
fn on_a_simulated_network() {
    let (network, clock) = (Network::new(1, Faults::default()), SimulatedClock::default());
    let make = || -> Box<dyn Dispatcher> {
        Box::new(network.dispatcher(SimulatedConfig::default(), pool("receive", 4096, 2 * CONNECTIONS)))
    };
    let mut go_on = |next: Option<Instant>| {
        clock.set(next.unwrap_or(clock.now()).max(clock.now()));
        clock.now()
    };
    a_thousand_connections_are_served(make, "node:0", &mut go_on);
}
