//! A thread that serves one dispatcher may sleep in the dispatcher's own call: whatever is to wake it does, whoever
//! heard it first.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_io::wait::{Bell, Waiter};
use ropewalk_io::{Clock, Dispatcher, Event, MonotonicClock};

use crate::pools::{Pattern, pool};

/// Longer than anything takes: a sleep of so long has lost its wake-up.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

fn dispatcher(mechanism: Mechanism) -> Tcp {
    let config = TcpConfig { mechanism, ..TcpConfig::default() };
    Tcp::new(config, pool("receive", 4096, 64)).expect("the mechanism")
}

/// Each on a thread of its own: what a ring of io_uring leaves behind interrupts the next sleep of its thread.
fn with_each(rule: impl Fn(Mechanism) + Sync) {
    for mechanism in Mechanism::ALL {
        std::thread::scope(|scope| scope.spawn(|| rule(mechanism)).join()).expect("the rule holds");
    }
}

/// One with a place to sleep, which has had its first look around.
fn sleeper(mechanism: Mechanism, bells: &[&Bell]) -> (Tcp, Waiter) {
    let mut tcp = dispatcher(mechanism);
    let bells: Vec<_> = bells.iter().map(|bell| bell.as_fd()).collect();
    let waiter = Waiter::of(&mut tcp, &bells).expect("descriptors");
    assert_eq!(tcp.poll(MonotonicClock.now(), &mut Vec::new()), 0);
    assert!(tcp.prepare_wait());
    (tcp, waiter)
}

/// Sleeps until something comes.
fn next_event(tcp: &mut Tcp, waiter: &Waiter) -> Event {
    let mut events = Vec::new();
    loop {
        tcp.poll(MonotonicClock.now(), &mut events);
        if let Some(event) = events.pop() {
            return event;
        }
        if tcp.prepare_wait() {
            assert!(waiter.wait_in(tcp, PATIENCE), "nobody woke a sleeper");
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
            assert!(!waiter.wait_in(&mut tcp, AT_ONCE), "{mechanism}: a bell that is silent wakes nobody");
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

/// What the sleep was told of is not told again, and is there at the next poll.
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
