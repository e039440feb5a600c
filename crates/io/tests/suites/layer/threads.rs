//! Work loops, and tasks on separate threads.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use ropewalk_io::layer::framer::FixedSize;
use ropewalk_io::layer::{
    Cookie, Dispatch, Ended, EventDispatcher, EventHandler, InterfaceAdapter, Received, Requests, Setting, Task, Why,
    WorkLoop, WorkRequest,
};
use ropewalk_io::tcp::{Mechanism, TcpConfig};
use ropewalk_io::{Endpoint, Peer, ServicePoint};
use ropewalk_memory::{Owner, Payload, Slice};

use super::pool;

const MESSAGE: usize = 100;
const PATIENCE: Duration = Duration::from_secs(20);

fn dispatcher(mechanism: Mechanism) -> EventDispatcher {
    let adapter = InterfaceAdapter::tcp("127.0.0.1", TcpConfig { mechanism, ..TcpConfig::default() });
    adapter.event_dispatcher(pool("receive", 4096, 64)).expect("a dispatcher")
}

fn message() -> Slice {
    let mut source = pool("source", MESSAGE, 1);
    let mut loan = source.loan(Owner::SHARED).expect("the only block");
    loan.append(&[7; MESSAGE]).expect("room")
}

fn accept(requests: &mut dyn Requests, endpoint: Endpoint) {
    requests.post(WorkRequest::Accept { endpoint }).expect("room for an answer");
    let setting = Setting::Framer(Box::new(FixedSize::new(MESSAGE)));
    requests.post(WorkRequest::Set { endpoint, setting }).expect("room for a setting");
}

/// Sends every message back.
struct Echo;

impl EventHandler for Echo {
    fn connection_requested(
        &mut self,
        requests: &mut dyn Requests,
        _service_point: ServicePoint,
        endpoint: Endpoint,
        _peer: Peer,
    ) {
        accept(requests, endpoint);
    }

    fn received(&mut self, requests: &mut dyn Requests, endpoint: Endpoint, received: Received) {
        if received.why == Why::Boundary {
            let request = WorkRequest::Send { endpoint, message: received.payload, cookie: Cookie(0) };
            requests.post(request).expect("room for one message");
        }
    }
}

/// Sends a message, waits for its echo, and repeats.
struct Ping {
    left: usize,
    message: Slice,
    done: Sender<Ended>,
}

impl Ping {
    fn send(&self, requests: &mut dyn Requests, endpoint: Endpoint) {
        let mut message = Payload::default();
        message.push(self.message.clone());
        let request = WorkRequest::Send { endpoint, message, cookie: Cookie(1) };
        requests.post(request).expect("room for one message");
    }
}

impl EventHandler for Ping {
    fn established(&mut self, requests: &mut dyn Requests, endpoint: Endpoint, _cookie: Option<Cookie>) {
        let setting = Setting::Framer(Box::new(FixedSize::new(MESSAGE)));
        requests.post(WorkRequest::Set { endpoint, setting }).expect("room for a setting");
        self.send(requests, endpoint);
    }

    fn received(&mut self, requests: &mut dyn Requests, endpoint: Endpoint, received: Received) {
        assert_eq!(received.payload.to_vec(), &self.message[..]);
        self.left -= 1;
        if self.left > 0 {
            self.send(requests, endpoint);
        } else {
            requests.post(WorkRequest::Close { endpoint }).expect("room for a request");
        }
    }

    fn ended(&mut self, _requests: &mut dyn Requests, _endpoint: Endpoint, _cookie: Option<Cookie>, how: Ended) {
        self.done.send(how).expect("the test waits");
    }
}

fn ping_pong(mechanism: Mechanism, dispatch: Dispatch) {
    let (mut there, mut here) = (dispatcher(mechanism), dispatcher(mechanism));
    let service_point = there.listen("0").expect("a free port");
    let address = there.address_of(service_point).expect("a bound address");
    here.post(WorkRequest::Connect { address, cookie: Cookie(0) }).expect("an address");
    let message = message();
    let (done, wait) = channel();
    let echo = WorkLoop::new("echo", dispatch).with(there, Echo).spawn(|| {}).expect("a thread");
    let ping = Ping { left: 500, message, done };
    let pings = WorkLoop::new("ping", dispatch).with(here, ping).spawn(|| {}).expect("a thread");
    assert_eq!(wait.recv_timeout(PATIENCE), Ok(Ended::Disconnected));
    pings.stop();
    echo.stop();
}

#[test]
fn loops_that_wait_wake_each_other() {
    for mechanism in Mechanism::ALL {
        ping_pong(mechanism, Dispatch::Wait);
    }
}

/// A loop that serves two sleeps in neither: an idle one does not block the other.
#[test]
fn a_loop_of_two_dispatchers_is_woken_by_either() {
    for mechanism in Mechanism::ALL {
        for is_first in [true, false] {
            let (mut there, mut here, quiet) = (dispatcher(mechanism), dispatcher(mechanism), dispatcher(mechanism));
            let service_point = there.listen("0").expect("a free port");
            let address = there.address_of(service_point).expect("a bound address");
            here.post(WorkRequest::Connect { address, cookie: Cookie(0) }).expect("an address");
            let members = if is_first { [there, quiet] } else { [quiet, there] };
            let (message, (done, wait)) = (message(), channel());
            let both = members.into_iter().fold(WorkLoop::new("both", Dispatch::Wait), |both, it| both.with(it, Echo));
            let both = both.spawn(|| {}).expect("a thread");
            let ping = Ping { left: 50, message, done };
            let pings = WorkLoop::new("ping", Dispatch::Wait).with(here, ping).spawn(|| {}).expect("a thread");
            assert_eq!(wait.recv_timeout(PATIENCE), Ok(Ended::Disconnected), "{mechanism}");
            pings.stop();
            both.stop();
        }
    }
}

#[test]
fn loops_that_poll_need_no_waking() {
    ping_pong(Mechanism::Auto, Dispatch::Poll);
}

/// Reports its events to a channel.
struct Teller {
    task: Task,
    told: Sender<(Task, u64)>,
}

impl EventHandler for Teller {
    fn connection_requested(
        &mut self,
        requests: &mut dyn Requests,
        _service_point: ServicePoint,
        endpoint: Endpoint,
        _peer: Peer,
    ) {
        accept(requests, endpoint);
    }

    fn received(&mut self, requests: &mut dyn Requests, endpoint: Endpoint, received: Received) {
        self.told.send((self.task, received.payload.len() as u64)).expect("the test listens");
        let request = WorkRequest::Send { endpoint, message: received.payload, cookie: Cookie(3) };
        requests.post(request).expect("room for one message");
    }

    fn sent(&mut self, _requests: &mut dyn Requests, _endpoint: Endpoint, cookie: Cookie) {
        self.told.send((self.task, cookie.0)).expect("the test listens");
    }

    fn ended(&mut self, _requests: &mut dyn Requests, _endpoint: Endpoint, _cookie: Option<Cookie>, _how: Ended) {
        self.told.send((self.task, 0)).expect("the test listens");
    }
}

/// As in the paper: one thread for connections, one for received data, one for sent data; and one for sockets.
#[test]
fn each_task_has_its_own_thread() {
    for mechanism in [Mechanism::Epoll, Mechanism::IoUring] {
        each_task_has_its_own(mechanism);
    }
}

fn each_task_has_its_own(mechanism: Mechanism) {
    const TASKS: [Task; 3] = [Task::Connections, Task::Receives, Task::Sends];
    let (told, listen): (_, Receiver<(Task, u64)>) = channel();
    let mut there = dispatcher(mechanism);
    let service_point = there.listen("0").expect("a free port");
    let address = there.address_of(service_point).expect("a bound address");
    let threads = TASKS.map(|task| {
        let mut queue = there.hand_out(task, 4).expect("a descriptor");
        let mut requester = there.requester(64).expect("a descriptor");
        let mut teller = Teller { task, told: told.clone() };
        std::thread::spawn(move || {
            while !queue.is_over() {
                if queue.dispatch(&mut teller, &mut requester) == 0 {
                    queue.wait(Some(Duration::from_secs(1)));
                }
            }
        })
    });
    drop(told);
    let sockets = WorkLoop::new("sockets", Dispatch::Wait).with(there, Echo).spawn(|| {}).expect("a thread");
    let mut here = dispatcher(mechanism);
    here.post(WorkRequest::Connect { address, cookie: Cookie(0) }).expect("an address");
    let message = message();
    let (done, wait) = channel();
    let ping = Ping { left: 200, message, done };
    let pings = WorkLoop::new("ping", Dispatch::Wait).with(here, ping).spawn(|| {}).expect("a thread");
    assert_eq!(wait.recv_timeout(PATIENCE), Ok(Ended::Disconnected));
    pings.stop();
    sockets.stop();
    threads.into_iter().for_each(|thread| thread.join().expect("it ends well"));
    let told: Vec<(Task, u64)> = listen.into_iter().collect();
    let of = |task| told.iter().filter(|(by, _)| *by == task).map(|(_, what)| *what).collect::<Vec<_>>();
    assert_eq!(of(Task::Receives), [MESSAGE as u64; 200]);
    assert_eq!(of(Task::Sends), [3; 200]);
    assert_eq!(of(Task::Connections), [0]);
}
