//! A service point in a process that has run out of descriptors, in a process of its own.

use std::net::TcpStream;
use std::time::Duration;

use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_io::{Clock, Dispatcher, Event, MonotonicClock};
use ropewalk_memory::{Pool, PoolConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn requests(tcp: &mut Tcp) -> usize {
    let mut events = Vec::new();
    tcp.poll(MonotonicClock.now(), &mut events);
    events.iter().filter(|event| matches!(event, Event::ConnectionRequest { .. })).count()
}

#[test]
fn connections_wait_until_there_are_descriptors() {
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
