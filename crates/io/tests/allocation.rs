//! Data paths allocate nothing once they run: endpoints (TCP, in-process), packets and the disk, in a separate process
//! with a counting allocator.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddrV4};

use ropewalk_io::disk::{Completion, Disk, NewFile, RealDisk, RealDiskConfig};
use ropewalk_io::in_process::{InProcessConfig, InProcessNetwork};
use ropewalk_io::packet::{
    Flow, ReceiveConfig, ReceiveMechanism, Receiver, SendConfig, SendMechanism, Sender, SocketReceiver, SocketSender,
};
use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_io::{Clock, Dispatcher, Endpoint, Event, MonotonicClock};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice, Staging};

/// Any free port of this host.
const HERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all calls are passed on to the system's allocator; counting touches no memory that it manages.
unsafe impl GlobalAlloc for Counting {
    /// # Safety
    /// As required by the trait.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending counts no more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    /// # Safety
    /// As required by the trait.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A block of 64 KiB whose slices are sent repeatedly.
fn master(pool: &mut Pool) -> Slice {
    let mut loan = pool.loan(Owner::SHARED).expect("the pool's only block");
    loan.commit(64 << 10);
    loan.split_committed().expect("what was just committed")
}

fn message(master: &Slice, into: &mut Vec<Slice>) {
    let mut rest = master.clone();
    for _ in 0..32 {
        into.push(rest.split_to(2048));
    }
}

/// Two dispatchers: the first sends as much as it can and the second receives it.
struct Traffic<D> {
    dispatchers: [D; 2],
    sender: Endpoint,
    master: Slice,
    message: Vec<Slice>,
    events: Vec<Event>,
    received: usize,
}

impl<D: Dispatcher> Traffic<D> {
    fn new(mut dispatchers: [D; 2], address: &str, master: Slice) -> Self {
        let service_point = dispatchers[1].listen(address).expect("a free address");
        let address = dispatchers[1].address_of(service_point).expect("a bound address");
        let sender = dispatchers[0].connect(&address).expect("an address");
        Self { dispatchers, sender, master, message: Vec::new(), events: Vec::new(), received: 0 }
    }

    fn run_until(&mut self, total: usize) {
        while self.received < total {
            if self.message.is_empty() {
                message(&self.master, &mut self.message);
            }
            // Closed until it is established, and full when its queue is: it is retried in either case.
            let _ = self.dispatchers[0].send(self.sender, &mut self.message);
            for dispatcher in &mut self.dispatchers {
                dispatcher.poll(MonotonicClock.now(), &mut self.events);
                for event in self.events.drain(..) {
                    match event {
                        Event::ConnectionRequest { endpoint, .. } => dispatcher.accept(endpoint),
                        Event::Received { slice, .. } => self.received += slice.len(),
                        _ => {}
                    }
                }
            }
            let _ = self.dispatchers[0].prepare_wait();
        }
    }

    fn allocations_when_running(&mut self) -> usize {
        self.run_until(64 << 20);
        let before = ALLOCATIONS.get();
        self.run_until(256 << 20);
        ALLOCATIONS.get() - before
    }
}

#[test]
fn tcp_allocates_nothing_over_any_mechanism() {
    let mut source = Pool::new(PoolConfig::heap("source", 64 << 10, 1)).expect("memory for a test");
    let master = master(&mut source);
    for mechanism in Mechanism::ALL {
        let tcp = || {
            let pool = Pool::new(PoolConfig::heap("receive", 64 << 10, 64)).expect("memory for a test");
            Tcp::new(TcpConfig { mechanism, ..TcpConfig::default() }, pool).expect("the mechanism")
        };
        let mut traffic = Traffic::new([tcp(), tcp()], "127.0.0.1:0", master.clone());
        assert_eq!(traffic.allocations_when_running(), 0, "{mechanism}");
    }
}

#[test]
fn in_process_allocates_nothing() {
    let mut source = Pool::new(PoolConfig::heap("source", 64 << 10, 1)).expect("memory for a test");
    let network = InProcessNetwork::new();
    let dispatchers = [0; 2].map(|_| network.dispatcher(InProcessConfig::default()).expect("an eventfd"));
    let mut traffic = Traffic::new(dispatchers, "sink", master(&mut source));
    assert_eq!(traffic.allocations_when_running(), 0);
}

#[test]
fn packets_allocate_nothing_over_any_mechanism() {
    let mut source = Pool::new(PoolConfig::heap("source", 64 << 10, 1)).expect("memory for a test");
    let master = master(&mut source);
    for (&receive, &send) in ReceiveMechanism::ALL.iter().zip(SendMechanism::ALL) {
        let pool = || Pool::new(PoolConfig::heap("packets", 256 << 10, 16)).expect("memory for a test");
        let config = ReceiveConfig { mechanism: receive, ..ReceiveConfig::new(Flow::Udp, HERE) };
        let mut receiver = SocketReceiver::new(config, pool()).expect("a socket");
        let config = SendConfig { mechanism: send, ..SendConfig::new(Flow::Udp, HERE) };
        let mut sender = SocketSender::new(config, Staging::new(pool())).expect("a socket");
        let (mut packets, mut pieces, mut before) = (Vec::new(), Vec::with_capacity(40), 0);
        for round in 0..400 {
            for length in 1..40 {
                let mut rest = master.clone();
                pieces.extend((0..length).map(|_| rest.split_to(32)));
                sender.send(receiver.address_v4(), &mut pieces).expect("room");
                let fill = &mut |room: &mut [u8]| room.len().min(100);
                sender.send_with(receiver.address_v4(), 100, fill).expect("room");
                sender.flush(MonotonicClock.now());
                receiver.receive(MonotonicClock.now(), &mut packets);
                packets.clear();
            }
            receiver.counters();
            if round == 100 {
                before = ALLOCATIONS.get();
            }
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "{receive} {send}");
        assert!(receiver.counters().packets > 20_000, "{receive} {send}");
    }
}

#[test]
fn the_disk_allocates_nothing_on_its_users_thread() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("allocation-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let mut source = Pool::new(PoolConfig::heap("source", 64 << 10, 1)).expect("memory for a test");
    let master = master(&mut source);
    let config = RealDiskConfig { queue_bytes: 1 << 20, ..RealDiskConfig::default() };
    let mut disk = RealDisk::new(config, || {}).expect("a thread and two eventfds");
    let file = disk.create(&path, NewFile::default());
    let (mut pieces, mut completions) = (Vec::new(), Vec::new());
    let (mut written, mut before) = (0, 0);
    while written < 400 {
        if pieces.is_empty() {
            message(&master, &mut pieces);
        }
        if disk.append(file, 0, &mut pieces).is_err() && disk.poll(&mut completions) == 0 {
            std::thread::yield_now();
        }
        for completion in completions.drain(..) {
            written += usize::from(matches!(completion, Completion::Appended { .. }));
            if written == 200 {
                before = ALLOCATIONS.get();
            }
        }
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    drop(disk);
    std::fs::remove_file(&path).expect("removing the test's file");
}
