//! Two threads that sleep when there is nothing to do wake each other: no wake-up is lost.

use std::time::Duration;

use ropewalk_io::in_process::{InProcessConfig, InProcessNetwork};
use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_io::wait::Waiter;
use ropewalk_io::{Clock, Dispatcher, Endpoint, Event, MonotonicClock};
use ropewalk_memory::Slice;

use crate::pools::{Pattern, pool};

/// Sleeps until the dispatcher has events; sleeping too long means that a wake-up was lost.
fn next_events(dispatcher: &mut impl Dispatcher, waiter: &Waiter, events: &mut Vec<Event>) {
    while events.is_empty() {
        dispatcher.poll(MonotonicClock.now(), events);
        if events.is_empty() && dispatcher.prepare_wait() {
            assert!(waiter.wait_in(dispatcher, Some(Duration::from_secs(20))), "nobody woke a sleeper");
        }
    }
}

/// How the threads sleep: as if they served several dispatchers, or in their only one.
#[derive(Copy, Clone)]
enum Sleep {
    General,
    Own,
}

impl Sleep {
    fn waiter_of(self, dispatcher: &mut impl Dispatcher) -> Waiter {
        match self {
            Self::Own => Waiter::of(dispatcher, &[]).expect("descriptors"),
            Self::General => {
                let mut waiter = Waiter::new().expect("an eventfd");
                waiter.watch(dispatcher.wait_descriptor().expect("a descriptor to wait for")).expect("watching it");
                waiter
            }
        }
    }
}

/// Answers every received slice with the slice itself until the peer closes.
fn echo(mut dispatcher: impl Dispatcher, sleep: Sleep) {
    let waiter = sleep.waiter_of(&mut dispatcher);
    let (mut events, mut message) = (Vec::new(), Vec::new());
    loop {
        next_events(&mut dispatcher, &waiter, &mut events);
        for event in core::mem::take(&mut events) {
            match event {
                Event::ConnectionRequest { endpoint, .. } => dispatcher.accept(endpoint),
                Event::Received { endpoint, slice } => {
                    message.push(slice);
                    dispatcher.send(endpoint, &mut message).expect("room for an echo");
                }
                Event::Disconnected { .. } => return,
                _ => {}
            }
        }
    }
}

fn ping(mut dispatcher: impl Dispatcher, sleep: Sleep, address: &str, rounds: usize) {
    let pattern = Pattern::new();
    let waiter = sleep.waiter_of(&mut dispatcher);
    let endpoint: Endpoint = dispatcher.connect(address).expect("an address");
    let (mut events, mut message): (_, Vec<Slice>) = (Vec::new(), Vec::new());
    let (mut sent, mut received) = (0, 0);
    let mut open = true;
    while open {
        next_events(&mut dispatcher, &waiter, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Received { slice, .. } => received += slice.len(),
                Event::Disconnected { .. } => open = false,
                Event::Established { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        }
        if open && received == sent && sent < rounds * 100 {
            pattern.slices(sent, 100, 100, &mut message);
            dispatcher.send(endpoint, &mut message).expect("room for a ping");
            sent += 100;
        } else if open && received == sent {
            dispatcher.close(endpoint);
        }
    }
    assert_eq!(received, rounds * 100);
}

#[test]
fn in_process_threads_wake_each_other() {
    let network = InProcessNetwork::new();
    let [mut there, here] = [0; 2].map(|_| network.dispatcher(InProcessConfig::default()).expect("an eventfd"));
    there.listen("echo").expect("a free name");
    let thread = std::thread::spawn(move || echo(there, Sleep::General));
    ping(here, Sleep::General, "echo", 2_000);
    thread.join().expect("the echo ended well");
}

fn tcp_threads_wake_each_other(mechanism: Mechanism) {
    let config = TcpConfig { mechanism, ..TcpConfig::default() };
    let tcp = || Tcp::new(config.clone(), pool("receive", 4096, 64)).expect("an epoll descriptor");
    for sleep in [Sleep::General, Sleep::Own] {
        let (mut there, here) = (tcp(), tcp());
        let service_point = there.listen("127.0.0.1:0").expect("a free port");
        let address = there.address_of(service_point).expect("a bound address");
        let thread = std::thread::spawn(move || echo(there, sleep));
        ping(here, sleep, &address, 1_000);
        thread.join().expect("the echo ended well");
    }
}

#[test]
fn threads_over_epoll_wake_each_other() {
    tcp_threads_wake_each_other(Mechanism::Epoll);
}

#[test]
fn threads_over_poll_wake_each_other() {
    tcp_threads_wake_each_other(Mechanism::Poll);
}

#[test]
fn threads_over_select_wake_each_other() {
    tcp_threads_wake_each_other(Mechanism::Select);
}

#[test]
fn threads_over_io_uring_wake_each_other() {
    tcp_threads_wake_each_other(Mechanism::IoUring);
}

/// A sender that sleeps because the peer's ring is full is woken when the peer takes something.
#[test]
fn a_sleeping_sender_is_woken_by_room() {
    const TOTAL: usize = 8 << 20;
    let network = InProcessNetwork::new();
    let config = InProcessConfig { send_queue_bytes: 50_000, ring_slices: 4, receive_batch_slices: 2 };
    let [mut there, mut here] = [0; 2].map(|_| network.dispatcher(config).expect("an eventfd"));
    there.listen("sink").expect("a free name");
    let thread = std::thread::spawn(move || {
        let (waiter, mut events, mut received) = (Sleep::Own.waiter_of(&mut there), Vec::new(), 0);
        loop {
            next_events(&mut there, &waiter, &mut events);
            for event in events.drain(..) {
                match event {
                    Event::ConnectionRequest { endpoint, .. } => there.accept(endpoint),
                    Event::Received { slice, .. } => received += slice.len(),
                    Event::Disconnected { .. } => return received,
                    _ => {}
                }
            }
        }
    });
    let (pattern, waiter, mut events, mut message) =
        (Pattern::new(), Sleep::General.waiter_of(&mut here), Vec::new(), Vec::new());
    let endpoint = here.connect("sink").expect("a name");
    let mut sent = 0;
    while sent < TOTAL {
        next_events(&mut here, &waiter, &mut events);
        events.clear();
        loop {
            if message.is_empty() {
                pattern.slices(sent, 20_000.min(TOTAL - sent), 1_000, &mut message);
            }
            if message.is_empty() || here.send(endpoint, &mut message).is_err() {
                break;
            }
            sent = (sent + 20_000).min(TOTAL);
        }
    }
    here.close(endpoint);
    while !matches!(events.last(), Some(Event::Disconnected { .. })) {
        events.clear();
        next_events(&mut here, &waiter, &mut events);
    }
    assert_eq!(thread.join().expect("the sink ended well"), TOTAL);
}
