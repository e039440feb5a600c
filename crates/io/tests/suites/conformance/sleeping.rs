//! Threads that sleep when there is nothing to do wake each other: no wake-up is lost. A thread that serves one
//! dispatcher may sleep in the dispatcher's own call, and every source of wake-ups still wakes it.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ropewalk_io::in_process::{InProcessConfig, InProcessNetwork};
use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_io::wait::{Bell, Waiter};
use ropewalk_io::{Clock, Dispatcher, Endpoint, Event, MonotonicClock};
use ropewalk_memory::Slice;

use super::world::{Pattern, pool};

/// Sleeps until the dispatcher has events; sleeping too long means a lost wake-up.
fn next_events(dispatcher: &mut impl Dispatcher, waiter: &Waiter, events: &mut Vec<Event>) {
    while events.is_empty() {
        dispatcher.poll(MonotonicClock.now(), events);
        if events.is_empty() && dispatcher.prepare_wait() {
            assert!(waiter.wait_in(dispatcher, Some(Duration::from_secs(20))), "a sleeper was not woken");
        }
    }
}

/// The way in which threads sleep: as for several dispatchers, or in their only one.
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

/// Long enough that nothing times out: a sleep of this length has lost its wake-up.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

fn dispatcher(mechanism: Mechanism) -> Tcp {
    let config = TcpConfig { mechanism, ..TcpConfig::default() };
    Tcp::new(config, pool("receive", 4096, 64)).expect("the mechanism")
}

/// Each on a separate thread: leftovers of an io_uring interrupt the next sleep of its thread.
fn with_each(rule: impl Fn(Mechanism) + Sync) {
    for mechanism in Mechanism::ALL {
        std::thread::scope(|scope| scope.spawn(|| rule(mechanism)).join()).expect("the rule holds");
    }
}

/// Makes a dispatcher and its waiter, and polls it once.
fn sleeper(mechanism: Mechanism, bells: &[&Bell]) -> (Tcp, Waiter) {
    let mut tcp = dispatcher(mechanism);
    let bells: Vec<_> = bells.iter().map(|bell| bell.as_fd()).collect();
    let waiter = Waiter::of(&mut tcp, &bells).expect("descriptors");
    assert_eq!(tcp.poll(MonotonicClock.now(), &mut Vec::new()), 0);
    assert!(tcp.prepare_wait());
    (tcp, waiter)
}

/// Sleeps until an event arrives.
fn next_event(tcp: &mut Tcp, waiter: &Waiter) -> Event {
    let mut events = Vec::new();
    loop {
        tcp.poll(MonotonicClock.now(), &mut events);
        if let Some(event) = events.pop() {
            return event;
        }
        if tcp.prepare_wait() {
            assert!(waiter.wait_in(tcp, PATIENCE), "a sleeper was not woken");
        }
    }
}

#[test]
fn a_sleep_ends_when_the_time_is_over() {
    with_each(|mechanism| {
        let (mut tcp, waiter) = sleeper(mechanism, &[]);
        for timeout in [Duration::from_micros(700), Duration::from_millis(2)] {
            let begin = Instant::now();
            assert!(!waiter.wait_in(&mut tcp, Some(timeout)), "{mechanism}");
            assert!(begin.elapsed() >= timeout, "{mechanism}");
        }
    });
}

#[test]
fn a_sleep_may_be_shorter_than_a_millisecond() {
    with_each(|mechanism| {
        let (mut tcp, waiter) = sleeper(mechanism, &[]);
        let shortest = (0..50).map(|_| {
            let begin = Instant::now();
            waiter.wait_in(&mut tcp, Some(Duration::from_micros(50)));
            begin.elapsed()
        });
        assert!(shortest.min() < Some(Duration::from_millis(1)), "{mechanism}");
    });
}

#[test]
fn any_number_of_wakes_ends_one_sleep_although_a_poll_came_in_between() {
    with_each(|mechanism| {
        let (mut tcp, waiter) = sleeper(mechanism, &[]);
        let waker = waiter.waker();
        for polls in [0, 1, 5] {
            waker.wake();
            waker.wake();
            for _ in 0..polls {
                tcp.poll(MonotonicClock.now(), &mut Vec::new());
            }
            assert!(tcp.prepare_wait());
            assert!(waiter.wait_in(&mut tcp, PATIENCE), "{mechanism}, {polls}");
            assert!(!waiter.wait_in(&mut tcp, AT_ONCE), "{mechanism}, {polls}");
        }
    });
}

#[test]
fn a_sleep_is_ended_by_another_thread_and_by_any_bell() {
    with_each(|mechanism| {
        let bells = [Bell::new().expect("a descriptor"), Bell::new().expect("a descriptor")];
        let (mut tcp, waiter) = sleeper(mechanism, &[&bells[0], &bells[1]]);
        let waker = waiter.waker();
        std::thread::spawn(move || waker.wake());
        assert!(waiter.wait_in(&mut tcp, PATIENCE), "{mechanism}");
        for bell in bells {
            let there = bell.clone();
            std::thread::spawn(move || there.ring());
            assert!(waiter.wait_in(&mut tcp, PATIENCE), "{mechanism}");
            bell.silence();
            assert!(!waiter.wait_in(&mut tcp, AT_ONCE), "{mechanism}: a silent bell wakes no thread");
        }
    });
}

#[test]
fn what_a_second_dispatcher_of_the_thread_has_to_do_ends_the_sleep_too() {
    with_each(|mechanism| {
        let (mut first, mut waiter) = sleeper(mechanism, &[]);
        let (mut second, mut client) = (dispatcher(mechanism), dispatcher(mechanism));
        waiter.watch(second.wait_descriptor().expect("a descriptor")).expect("watching it");
        let service_point = second.listen("127.0.0.1:0").expect("a free port");
        let address = second.address_of(service_point).expect("a bound address");
        while second.poll(MonotonicClock.now(), &mut Vec::new()) > 0 || !second.prepare_wait() {}
        let connecting = std::thread::spawn(move || {
            client.connect(&address).expect("an address");
            client.poll(MonotonicClock.now(), &mut Vec::new());
            client
        });
        assert!(first.prepare_wait());
        assert!(waiter.wait_in(&mut first, PATIENCE), "{mechanism}: asleep in one of two dispatchers");
        drop(connecting.join().expect("it connects"));
        waiter.waker().wake();
        assert!(waiter.wait_in(&mut first, PATIENCE), "{mechanism}");
    });
}

#[test]
fn dispatchers_and_waiters_outlive_each_other() {
    with_each(|mechanism| {
        let bell = Bell::new().expect("a descriptor");
        let (mut tcp, waiter) = sleeper(mechanism, &[&bell]);
        let old_waker = waiter.waker();
        drop(waiter);
        let waiter = Waiter::of(&mut tcp, &[bell.as_fd()]).expect("a bell may be watched again");
        waiter.waker().wake();
        assert!(waiter.wait_in(&mut tcp, PATIENCE), "{mechanism}: a new waiter of an old dispatcher");
        old_waker.wake();
        drop(old_waker);
        tcp.poll(MonotonicClock.now(), &mut Vec::new());
        drop(tcp);
        waiter.waker().wake();
        assert!(waiter.wait(PATIENCE), "{mechanism}: a waiter without its dispatcher");
        assert!(!waiter.wait(AT_ONCE), "{mechanism}");
    });
}

/// An event that ended a sleep is reported by the next poll, once.
#[test]
fn what_ends_a_sleep_is_there_at_the_next_poll() {
    with_each(|mechanism| {
        let ((mut there, waiter), mut here) = (sleeper(mechanism, &[]), dispatcher(mechanism));
        let service_point = there.listen("127.0.0.1:0").expect("a free port");
        let address = there.address_of(service_point).expect("a bound address");
        let from_here = here.connect(&address).expect("an address");
        let Event::ConnectionRequest { endpoint, .. } = next_event(&mut there, &waiter) else { panic!("no request") };
        there.accept(endpoint);
        assert!(matches!(next_event(&mut there, &waiter), Event::Established { .. }));
        let pattern = Pattern::new();
        let (mut events, mut message) = (Vec::new(), Vec::new());
        while events.is_empty() {
            here.poll(MonotonicClock.now(), &mut events);
        }
        for round in 0..20 {
            pattern.slices(round * 100, 100, 100, &mut message);
            here.send(from_here, &mut message).expect("room for a message");
            here.poll(MonotonicClock.now(), &mut events);
            let Event::Received { slice, .. } = next_event(&mut there, &waiter) else { panic!("nothing received") };
            assert_eq!(slice.len(), 100, "{mechanism}");
        }
    });
}
