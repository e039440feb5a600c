//! Limits of a process: on its descriptors, on the memory that it may lock, and on the size of files, which represents
//! a small disk. Each test that changes one runs alone, in a separate process.
#![allow(unsafe_code)]

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ropewalk_io::disk::{Completion, Disk, DiskCause, NewFile, RealDisk, RealDiskConfig, WriteMode};
use ropewalk_io::in_process::{InProcessConfig, InProcessNetwork};
use ropewalk_io::simulated::{Faults, Network, SimulatedConfig};
use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_io::{BrokenCause, Clock, Dispatcher, Endpoint, Event, MonotonicClock, ServicePoint, SimulatedClock};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};
use ropewalk_terms::Instant;
use ropewalk_wire::run_file::{Compression, Item, Items, PackedStretch};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Runs the test of this name alone, in a separate process whose limits it may change; true in that process.
fn is_alone(name: &str) -> bool {
    const ALONE: &str = "ROPEWALK_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    let output = child.args(["--exact", name]).env(ALONE, "1").output().expect("a process");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}

fn requests(tcp: &mut Tcp) -> usize {
    let mut events = Vec::new();
    tcp.poll(MonotonicClock.now(), &mut events);
    events.iter().filter(|event| matches!(event, Event::ConnectionRequest { .. })).count()
}

#[test]
fn connections_wait_until_there_are_descriptors() {
    if !is_alone("limits::connections_wait_until_there_are_descriptors") {
        return;
    }
    for mechanism in [Mechanism::Epoll, Mechanism::IoUring] {
        connections_wait(mechanism);
    }
}

fn connections_wait(mechanism: Mechanism) {
    let pool = Pool::new(PoolConfig::heap("receive", 4096, 4)).expect("memory for a test");
    let mut tcp = Tcp::new(TcpConfig { mechanism, ..TcpConfig::default() }, pool).expect("the mechanism");
    let service_point = tcp.listen("127.0.0.1:0").expect("a free port");
    let address = tcp.address_of(service_point).expect("a bound address");
    let clients = [0; 5].map(|_| TcpStream::connect(&address).expect("a listener"));
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum }).expect("lowering the own limit");
    for _ in 0..3 {
        assert_eq!(requests(&mut tcp), 0, "{mechanism}");
    }
    assert!(tcp.prepare_wait(), "a thread must not spin until there are descriptors");
    assert!(tcp.next_deadline().is_some(), "nor sleep for ever");
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).expect("raising it again");
    std::thread::sleep(Duration::from_millis(110));
    assert_eq!(requests(&mut tcp), clients.len());
}

#[test]
fn select_says_clearly_that_it_has_no_room_for_more_descriptors() {
    if !is_alone("limits::select_says_clearly_that_it_has_no_room_for_more_descriptors") {
        return;
    }
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let enough = Some(maximum.unwrap_or(4096).min(4096));
    setrlimit(Resource::Nofile, Rlimit { current: enough, maximum }).expect("a limit up to the hard one");
    let pool = Pool::new(PoolConfig::heap("receive", 4096, 4)).expect("memory for a test");
    let config = TcpConfig { mechanism: Mechanism::Select, ..TcpConfig::default() };
    let mut tcp = Tcp::new(config, pool).expect("select itself");
    let others: Vec<_> = (0..1024).map(|_| std::fs::File::open("/dev/null").expect("a descriptor")).collect();
    let error = tcp.listen("127.0.0.1:0").expect_err("its descriptor is too large").to_string();
    assert!(error.contains("below 1024") && error.contains("choose epoll"), "{error}");
    drop(others);
    assert!(tcp.listen("127.0.0.1:0").is_ok(), "there is room again");
}

/// Bytes that may be locked: enough for two rings and some forty endpoints.
const LIMIT: u64 = 1 << 20;

/// Runs a test on a thread without the right to lock unlimited memory.
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

    /// One poll: accepts every connection, and passes other events on.
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
    let begin = std::time::Instant::now();
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
    if !is_alone("limits::what_cannot_be_lent_to_the_kernel_is_copied") {
        return;
    }
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

/// Whether the event reports that an endpoint got no page, with a helpful text.
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
    if !is_alone("limits::an_endpoint_too_many_says_what_is_missing_and_the_others_go_on") {
        return;
    }
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

fn limit_file_size(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).expect("lowering the own limit");
}

fn piece(pool: &mut Pool, number: u8) -> Vec<Slice> {
    let mut loan = pool.loan(Owner::SHARED).expect("a block for each piece");
    loan.spare().fill(number);
    loan.commit(loan.spare_len());
    let mut rest = loan.split_committed().expect("what was just committed");
    let head = rest.split_to(100);
    vec![head, rest]
}

fn completions(disk: &mut RealDisk, count: usize) -> Vec<Completion> {
    let mut completions = Vec::new();
    for _ in 0..100_000 {
        if completions.len() >= count {
            break;
        }
        if disk.poll(&mut completions) == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    assert_eq!(completions.len(), count);
    completions
}

#[test]
fn a_full_disk_cuts_back_gives_back_and_goes_on() {
    if !is_alone("limits::a_full_disk_cuts_back_gives_back_and_goes_on") {
        return;
    }
    // SAFETY: ignoring a signal installs no handler, and nothing else in this process uses this one.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    for mode in [WriteMode::Buffered, WriteMode::Direct] {
        write_to_the_limit(mode);
        for compression in [Compression::Zstd(1), Compression::Lz4] {
            for packing_threads in [1, 3] {
                pack_to_the_limit(mode, compression, packing_threads);
            }
        }
    }
}

/// The position at which packed data reach the limit cannot be predicted; but they unpack to everything, in order.
fn pack_to_the_limit(mode: WriteMode, compression: Compression, packing_threads: u8) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("disk-full-packed-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let mut pool = Pool::new(PoolConfig::heap("source", 1000, 64)).expect("memory for a test");
    let config = RealDiskConfig { mode, packing_threads, ..RealDiskConfig::default() };
    let mut disk = RealDisk::new(config, || {}).expect("a thread and two eventfds");
    let file = disk.create(&path, NewFile { compression, ..NewFile::default() });
    limit_file_size(Some(1000));
    for number in 0..40 {
        disk.append(file, number.into(), &mut piece(&mut pool, number)).expect("room in the queue");
    }
    let mut back = Vec::new();
    let mut good = 0;
    for completion in completions(&mut disk, 41).into_iter().skip(1) {
        match completion {
            Completion::Appended { .. } => good += 1,
            Completion::AppendFailed { cookie, cause, data, .. } => {
                assert_eq!((cookie, cause), (good + back.len() as u64, DiskCause::Full));
                back.push(data);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(!back.is_empty(), "{good} fit");
    limit_file_size(None);
    for (data, cookie) in back.iter_mut().zip(good..) {
        disk.append(file, cookie, data).expect("room in the queue");
    }
    let ends = completions(&mut disk, back.len());
    assert!(ends.iter().all(|end| matches!(end, Completion::Appended { .. })), "{ends:?}");
    disk.publish(file, &path.with_extension("closed"), 0);
    completions(&mut disk, 1);
    drop(disk);
    let written = std::fs::read(path.with_extension("closed")).expect("the file is closed");
    let (mut all, mut stretch) = (Vec::new(), Vec::new());
    for item in Items::new(&written) {
        let Item::Record { record, .. } = item else { panic!("{item:?}") };
        let packed = PackedStretch::parse(&record).expect("a packed stretch");
        assert_eq!(packed.offset, all.len() as u64);
        packed.unpack(&mut stretch).expect("what was packed");
        all.extend_from_slice(&stretch);
    }
    let expected: Vec<u8> = (0..40_000).map(|place| (place / 1000) as u8).collect();
    assert_eq!(all, expected);
    std::fs::remove_file(path.with_extension("closed")).expect("removing the test's file");
}

fn write_to_the_limit(mode: WriteMode) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("disk-full-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let mut pool = Pool::new(PoolConfig::heap("source", 1000, 16)).expect("memory for a test");
    let mut disk =
        RealDisk::new(RealDiskConfig { mode, ..RealDiskConfig::default() }, || {}).expect("a thread and two eventfds");
    let file = disk.create(&path, NewFile::default());
    limit_file_size(Some(3500));
    for number in 0..6 {
        disk.append(file, number.into(), &mut piece(&mut pool, number)).expect("room in the queue");
    }
    let mut back = Vec::new();
    for (number, completion) in completions(&mut disk, 7).into_iter().skip(1).enumerate() {
        match completion {
            Completion::Appended { offset, .. } if number < 3 => assert_eq!(offset, 1000 * number as u64),
            Completion::AppendFailed { cookie, cause, data, .. } if number >= 3 => {
                assert_eq!((cookie, cause), (number as u64, DiskCause::Full));
                assert!(data.iter().all(|slice| slice.iter().all(|&byte| byte == number as u8)));
                back.push((cookie, data));
            }
            other => panic!("{number}: {other:?}"),
        }
    }
    assert_eq!(std::fs::read(&path).map(|bytes| bytes.len()).ok(), Some(3000), "cut back to the last good append");
    limit_file_size(None);
    for (cookie, data) in &mut back {
        disk.append(file, *cookie, data).expect("room in the queue");
    }
    assert!(completions(&mut disk, 3).iter().all(|completion| matches!(completion, Completion::Appended { .. })));
    drop(disk);
    let expected: Vec<u8> = (0..6000).map(|place| (place / 1000) as u8).collect();
    assert!(std::fs::read(&path).is_ok_and(|bytes| bytes == expected));
    std::fs::remove_file(&path).expect("removing the test's file");
    pool.collect();
    assert_eq!(pool.held(), 0);
}

const CONNECTIONS: usize = 1_000;
const BYTES: usize = 100;

fn pool(name: &str, block: usize, blocks: usize) -> Pool {
    Pool::new(PoolConfig::heap(name, block, blocks)).expect("memory for a test")
}

/// Sends back all received bytes, and counts the bytes of each endpoint.
struct Crowd {
    dispatcher: Box<dyn Dispatcher>,
    received: Vec<usize>,
    established: usize,
    ended: usize,
    echoes: bool,
    events: Vec<Event>,
}

impl Crowd {
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
    let (mut here, mut there) = (Crowd::new(make(), false), Crowd::new(make(), true));
    let service_point = there.dispatcher.listen(address).expect("a free address");
    let address = there.dispatcher.address_of(service_point).expect("a bound address");
    let endpoints: Vec<Endpoint> =
        (0..CONNECTIONS).map(|_| here.dispatcher.connect(&address).expect("a descriptor")).collect();
    let begin = clock(None);
    let mut until = |here: &mut Crowd, there: &mut Crowd, done: &dyn Fn(&Crowd, &Crowd) -> bool| {
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
        return ropewalk_tidy::skipped("limits::over_tcp", "the process may not have 2,200 descriptors");
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(enough), maximum }).expect("a limit up to the hard one");
    let config = TcpConfig { mechanism, ..TcpConfig::default() };
    let make = || -> Box<dyn Dispatcher> {
        Box::new(Tcp::new(config.clone(), pool("receive", 4096, 2 * CONNECTIONS)).expect("a dispatcher"))
    };
    a_thousand_connections_are_served(make, "127.0.0.1:0", &mut |_| MonotonicClock.now());
}

#[test]
fn a_thousand_connections_over_epoll() {
    if !is_alone("limits::a_thousand_connections_over_epoll") {
        return;
    }
    over_tcp(Mechanism::Epoll);
}

#[test]
fn a_thousand_connections_over_poll() {
    if !is_alone("limits::a_thousand_connections_over_poll") {
        return;
    }
    over_tcp(Mechanism::Poll);
}

#[test]
fn a_thousand_connections_over_io_uring() {
    if !is_alone("limits::a_thousand_connections_over_io_uring") {
        return;
    }
    over_tcp(Mechanism::IoUring);
}

#[test]
fn a_thousand_connections_within_a_process() {
    let network = InProcessNetwork::new();
    let config = InProcessConfig { ring_slices: 16, ..InProcessConfig::default() };
    let make = || -> Box<dyn Dispatcher> { Box::new(network.dispatcher(config).expect("an eventfd")) };
    a_thousand_connections_are_served(make, "node:0", &mut |_| MonotonicClock.now());
}

#[test]
fn a_thousand_connections_on_a_simulated_network() {
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
