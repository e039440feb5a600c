//! `select` in a process whose small descriptors are used up, in a process of its own.

use ropewalk_io::Dispatcher;
use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_memory::{Pool, PoolConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn select_says_clearly_that_it_has_no_room_for_more_descriptors() {
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
