//! What becomes of io_uring where the user may lock little memory, as most users: in a process of its own, whose limit
//! it lowers.

use std::time::{Duration, Instant};

use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_io::{BrokenCause, Clock, Dispatcher, Endpoint, Event, MonotonicClock, ServicePoint};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Bytes that may be locked: enough for two rings and some forty endpoints.
const LIMIT: u64 = 1 << 20;

/// Runs it on a thread without the right to lock as much as it likes.
fn with_little_memory(test: fn()) {
    setrlimit(Resource::Memlock, Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) }).expect("a lower limit");
    let limited = move || {
        let mut sets = capabilities(None).expect("one's own");
        sets.effective.remove(CapabilitySet::IPC_LOCK);
        set_capabilities(None, sets).expect("fewer rights");
        test();
    };
    if let Err(panic) = std::thread::spawn(limited).join() {
        std::panic::resume_unwind(panic);
    }
}

struct Side {
    tcp: Tcp,
    events: Vec<Event>,
}

impl Side {
    fn new(mechanism: Mechanism, zero_copy_bytes: usize) -> Self {
        let config = TcpConfig { mechanism, zero_copy_bytes, ..TcpConfig::default() };
        let pool = Pool::new(PoolConfig::heap("receive", 8192, 512)).expect("memory for a test");
        Self { tcp: Tcp::new(config, pool).expect("the mechanism"), events: Vec::new() }
    }

    /// One poll; accepts whoever comes, and tells the rest.
    fn poll(&mut self, mut each: impl FnMut(Event)) {
        self.tcp.poll(MonotonicClock.now(), &mut self.events);
        for event in self.events.drain(..) {
            match event {
                Event::ConnectionRequest { endpoint, .. } => self.tcp.accept(endpoint),
                event => each(event),
            }
        }
    }

    fn listen(&mut self) -> String {
        let service_point: ServicePoint = self.tcp.listen("127.0.0.1:0").expect("a free port");
        self.tcp.address_of(service_point).expect("a bound address")
    }
}

fn until(mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it does not happen");
    }
}

fn message(bytes: usize) -> (Pool, Vec<Slice>) {
    let mut pool = Pool::new(PoolConfig::heap("send", bytes, 1)).expect("memory for a test");
    let mut loan = pool.loan(Owner::SHARED).expect("the only block");
    loan.commit(bytes);
    let slices = loan.split_committed().into_iter().collect();
    (pool, slices)
}

#[test]
fn what_cannot_be_lent_to_the_kernel_is_copied() {
    with_little_memory(|| {
        let (bytes, over) = (4 * LIMIT as usize, |zero_copy| Side::new(Mechanism::IoUring, zero_copy));
        let (mut here, mut there, (_pool, mut slices)) = (over(1), over(usize::MAX), message(bytes));
        let to = here.tcp.connect(&there.listen()).expect("an address");
        let (mut stands, mut received) = (false, 0);
        until(|| {
            here.poll(|event| stands |= matches!(event, Event::Established { .. }));
            there.poll(|_| ());
            stands
        });
        here.tcp.send(to, &mut slices).expect("an empty queue takes any");
        until(|| {
            here.poll(|event| panic!("{event:?}"));
            there.poll(|event| match event {
                Event::Received { slice, .. } => received += slice.len(),
                event => assert!(!event.is_last(), "{event:?}"),
            });
            received == bytes
        });
    });
}

/// Whether it tells that an endpoint got no page, in words that help.
fn lacks(event: &Event) -> bool {
    match event {
        Event::Broken { cause: BrokenCause::LockedMemory, .. } => {
            assert!(BrokenCause::LockedMemory.to_string().contains("ulimit -l"));
            true
        }
        Event::Established { .. } | Event::Received { .. } => false,
        event => panic!("{event:?}"),
    }
}

#[test]
fn an_endpoint_too_many_says_what_is_missing_and_the_others_go_on() {
    with_little_memory(|| {
        let (mut here, mut there) =
            (Side::new(Mechanism::Epoll, usize::MAX), Side::new(Mechanism::IoUring, usize::MAX));
        let address = there.listen();
        let all: Vec<Endpoint> = (0..400).map(|_| here.tcp.connect(&address).expect("a descriptor")).collect();
        let (mut reset, mut lacking) = (Vec::new(), 0);
        until(|| {
            here.poll(|event| match event {
                Event::Broken { endpoint, cause: BrokenCause::Reset } => reset.push(endpoint),
                event => assert!(matches!(event, Event::Established { .. }), "{event:?}"),
            });
            there.poll(|event| lacking += usize::from(lacks(&event)));
            lacking > 0 && reset.len() == lacking
        });
        let (_pool, slices) = message(10);
        for &endpoint in all.iter().filter(|endpoint| !reset.contains(endpoint)) {
            here.tcp.send(endpoint, &mut slices.clone()).expect("the others are there");
        }
        let mut received = 0;
        until(|| {
            here.poll(|event| panic!("{event:?}"));
            there.poll(|event| received += usize::from(matches!(event, Event::Received { .. })));
            received == all.len() - lacking
        });
    });
}
