//! Rules for io_uring only: the kernel holds memory of ours, and works for one thread.

use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_io::{BrokenCause, Clock, Dispatcher, Endpoint, Event, MonotonicClock};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};

fn pool(block_size: usize, blocks: usize) -> Pool {
    Pool::new(PoolConfig::heap("test", block_size, blocks)).expect("memory for a test")
}

fn is_full(pool: &mut Pool) -> bool {
    pool.collect();
    pool.held() == 0
}

fn tcp() -> Tcp {
    let config = TcpConfig { mechanism: Mechanism::IoUring, send_queue_bytes: 64 << 20, ..TcpConfig::default() };
    Tcp::new(config, pool(4096, 4)).expect("io_uring")
}

fn poll(tcp: &mut Tcp) -> Vec<Event> {
    let mut events = Vec::new();
    tcp.poll(MonotonicClock.now(), &mut events);
    events
}

/// Polls both until they are connected; returns the endpoint of each.
fn connect(here: &mut Tcp, there: &mut Tcp) -> [Endpoint; 2] {
    let service_point = there.listen("127.0.0.1:0").expect("a free port");
    let near = here.connect(&there.address_of(service_point).expect("a bound address")).expect("an address");
    let (mut far, mut established) = (None, 0);
    while established < 2 {
        let events = [poll(here), poll(there)];
        for event in events.iter().flatten() {
            established += usize::from(matches!(event, Event::Established { .. }));
            if let Event::ConnectionRequest { endpoint, .. } = event {
                there.accept(*endpoint);
                far = Some(*endpoint);
            }
        }
    }
    [near, far.expect("established")]
}

/// Two dispatchers in the middle of a stalled transfer: the sender's kernel has slices, the receiver's has blocks.
struct Standstill {
    here: Tcp,
    there: Tcp,
    near: Endpoint,
    sent: Pool,
    posted: Pool,
}

impl Standstill {
    fn new() -> Self {
        let (mut here, mut there, mut sent, mut posted) = (tcp(), tcp(), pool(1 << 20, 1), pool(1 << 10, 8));
        let [near, far] = connect(&mut here, &mut there);
        let [other, quiet] = connect(&mut here, &mut there);
        for endpoint in [far, quiet] {
            for _ in 0..4 {
                let block = posted.loan(Owner::SHARED).expect("eight blocks");
                assert!(there.post_block(endpoint, block).is_ok());
            }
        }
        there.set_reading(far, false);
        let mut message = message(&mut sent);
        here.send(other, &mut vec![message[0].clone().split_to(10)]).expect("room");
        here.send(near, &mut message).expect("room");
        let mut received = 0;
        for _ in 0..50 {
            poll(&mut here);
            received += poll(&mut there).len();
        }
        assert!(here.queued(near) > 0 && received == 1, "it does not stand still, which tests nothing");
        Self { here, there, near, sent, posted }
    }
}

/// More than any socket accepts.
fn message(sent: &mut Pool) -> Vec<Slice> {
    let mut loan = sent.loan(Owner::SHARED).expect("the only block");
    loan.commit(1 << 20);
    vec![loan.split_committed().expect("what was committed"); 60]
}

#[test]
fn the_kernel_has_given_everything_back_when_a_dispatcher_is_gone() {
    let Standstill { here, there, mut sent, mut posted, .. } = Standstill::new();
    assert!(!is_full(&mut sent) && !is_full(&mut posted));
    drop(here);
    assert!(is_full(&mut sent), "the kernel sends none of it any more");
    drop(there);
    assert!(is_full(&mut posted), "the kernel receives into none of them any more");
}

/// Only the thread that polled can make the kernel return memory and learn of it: memory that the kernel may still have
/// is not reused, whether or not that thread has ended.
#[test]
fn on_another_thread_the_kernel_keeps_what_it_has_and_the_peers_learn_of_the_end() {
    let Standstill { here, mut there, mut sent, .. } = Standstill::new();
    std::thread::spawn(move || drop(here)).join().expect("it is dropped");
    assert!(!is_full(&mut sent));
    let mut ended = 0;
    while ended < 1 {
        // The other one is not read, and so gets no report.
        ended += poll(&mut there).iter().filter(|event| event.is_last()).count();
    }
    let Standstill { there, mut posted, .. } = Standstill::new();
    std::thread::spawn(move || drop(there)).join().expect("it is dropped");
    assert!(!is_full(&mut posted));
}

#[test]
fn an_aborted_send_keeps_its_bytes_until_the_kernel_is_done_with_them() {
    let Standstill { mut here, near, mut sent, .. } = Standstill::new();
    here.abort(near);
    assert!(!is_full(&mut sent), "the kernel was not asked yet");
    assert_eq!((here.queued(near), here.send_room(near)), (0, 0), "but for the user it has ended");
    while !is_full(&mut sent) {
        assert!(poll(&mut here).is_empty());
    }
}

/// The kernel works for the first thread; on another thread the endpoints report this instead of stalling.
#[test]
fn on_another_thread_every_endpoint_ends_with_the_cause() {
    let Standstill { mut here, near, .. } = Standstill::new();
    std::thread::spawn(move || {
        let events = poll(&mut here);
        let cause = BrokenCause::System(rustix::io::Errno::EXIST.raw_os_error());
        let ended = |event: &Event| matches!(event, Event::Broken { cause: why, .. } if *why == cause);
        assert!(events.len() == 2 && events.iter().all(ended), "{events:?}");
        assert!(events.iter().any(|event| event.endpoint() == near));
        assert!(poll(&mut here).is_empty());
    })
    .join()
    .expect("the thread ends");
}
