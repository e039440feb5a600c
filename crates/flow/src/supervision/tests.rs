//! The rules of supervision, each as a test of the machine alone.

use super::*;
use core::time::Duration;
use proptest::prelude::*;
use ropewalk_terms::Instant;

const fn at(milliseconds: u64) -> Instant {
    Instant::from_nanoseconds(1_000_000 * milliseconds)
}

const CONFIG: SupervisorConfig = SupervisorConfig {
    timeout: Duration::from_millis(100),
    start_timeout: Duration::from_millis(1000),
    restart_delay: Duration::from_millis(50),
    restarts: 3,
};

/// A supervisor whose process is ready, with this many pieces of work that it was asked for, at 0.
fn busy(count: usize) -> Supervisor {
    let mut supervisor = Supervisor::new(CONFIG, 8);
    assert_eq!(supervisor.poll(at(0)), Some(Order::Start));
    supervisor.ready();
    (0..count).for_each(|_| supervisor.add());
    assert_eq!(supervisor.poll(at(0)), Some(Order::Ask { first: 0, count }));
    supervisor
}

fn outcomes(supervisor: &Supervisor, count: usize) -> String {
    let letter = |outcome| match outcome {
        Outcome::Pending => '-',
        Outcome::Answered => 'a',
        Outcome::Failed => 'f',
    };
    (0..count).map(|index| letter(supervisor.outcome(index))).collect()
}

#[test]
fn work_is_answered_in_its_order() {
    let mut supervisor = busy(3);
    supervisor.progressed(at(1), 2);
    assert_eq!(outcomes(&supervisor, 4), "aa--");
    supervisor.progressed(at(2), 3);
    assert_eq!((outcomes(&supervisor, 4).as_str(), supervisor.next_deadline()), ("aaa-", None));
    supervisor.clear();
    supervisor.add();
    assert_eq!(supervisor.poll(at(3)), Some(Order::Ask { first: 0, count: 1 }));
    supervisor.progressed(at(3), 1000);
    assert_eq!(outcomes(&supervisor, 2), "a-", "what says that it did more than there is did what there is");
}

#[test]
fn what_a_process_crashed_over_is_tried_once_more_and_then_given_up() {
    let mut supervisor = busy(3);
    supervisor.progressed(at(1), 1);
    supervisor.ended(at(2));
    assert_eq!((supervisor.poll(at(51)), supervisor.next_deadline()), (None, Some(at(52))));
    assert_eq!(supervisor.poll(at(52)), Some(Order::Start));
    assert_eq!(supervisor.poll(at(52)), None, "it is not ready");
    supervisor.ready();
    assert_eq!(supervisor.poll(at(53)), Some(Order::Ask { first: 1, count: 2 }), "what was answered stays so");
    supervisor.ended(at(54));
    assert_eq!(outcomes(&supervisor, 3), "af-");
    assert_eq!(supervisor.poll(at(104)), Some(Order::Start));
    supervisor.ready();
    assert_eq!(supervisor.poll(at(104)), Some(Order::Ask { first: 2, count: 1 }));
    supervisor.progressed(at(105), 3);
    assert_eq!((outcomes(&supervisor, 3).as_str(), supervisor.failures(), supervisor.restarted()), ("afa", 1, 2));
}

#[test]
fn a_process_that_hangs_is_ended_and_its_end_waited_for() {
    let mut supervisor = busy(2);
    supervisor.progressed(at(90), 1);
    assert_eq!(supervisor.poll(at(189)), None, "the time is that of one piece of work");
    assert_eq!(supervisor.poll(at(190)), Some(Order::Kill));
    assert_eq!((supervisor.poll(at(5000)), supervisor.next_deadline()), (None, None), "it is not certain yet");
    supervisor.progressed(at(5000), 2);
    assert_eq!(outcomes(&supervisor, 2), "a-", "a process that is being killed is not listened to");
    supervisor.ended(at(5001));
    assert_eq!(supervisor.poll(at(5051)), Some(Order::Start));
    assert_eq!(supervisor.poll(at(6051)), Some(Order::Kill), "it is not ready in time");
    supervisor.ended(at(6052));
    assert_eq!(outcomes(&supervisor, 2), "a-", "a start is not the work's fault");
}

#[test]
fn a_process_that_lies_is_ended_and_nothing_of_what_it_said_since_counts() {
    let mut supervisor = busy(4);
    supervisor.progressed(at(1), 4);
    supervisor.disbelieve(1);
    assert_eq!((outcomes(&supervisor, 4).as_str(), supervisor.poll(at(1))), ("a---", Some(Order::Kill)));
    supervisor.ended(at(2));
    assert_eq!(supervisor.poll(at(52)), Some(Order::Start));
    supervisor.ready();
    assert_eq!(supervisor.poll(at(52)), Some(Order::Ask { first: 1, count: 3 }));
    supervisor.progressed(at(53), 3);
    supervisor.disbelieve(1);
    assert_eq!(supervisor.poll(at(53)), Some(Order::Kill));
    supervisor.ended(at(54));
    assert_eq!(outcomes(&supervisor, 4), "af--", "twice is enough");
}

#[test]
fn when_processes_end_too_often_all_work_fails_at_once() {
    let mut supervisor = busy(2);
    let mut now = at(0);
    for _ in 0..3 {
        supervisor.ended(now);
        now = now.after(CONFIG.restart_delay);
        assert_eq!(supervisor.poll(now), Some(Order::Start));
    }
    supervisor.ended(now);
    assert!(supervisor.is_given_up());
    assert_eq!((outcomes(&supervisor, 2).as_str(), supervisor.poll(at(1_000_000))), ("ff", None));
    supervisor.clear();
    supervisor.add();
    assert_eq!((outcomes(&supervisor, 1).as_str(), supervisor.restarted(), supervisor.failures()), ("f", 3, 3));
}

#[test]
fn restarts_of_long_ago_do_not_count() {
    let mut supervisor = busy(1);
    for minute in 0..100 {
        let now = at(20_000 * minute);
        supervisor.ended(now);
        assert_eq!(supervisor.poll(now.after(CONFIG.restart_delay)), Some(Order::Start), "{minute}");
        supervisor.ready();
    }
}

#[test]
fn a_process_that_counts_backwards_takes_no_answer_back() {
    let mut supervisor = busy(3);
    supervisor.progressed(at(1), 2);
    supervisor.progressed(at(2), 1);
    assert_eq!(outcomes(&supervisor, 3), "aa-");
}

#[test]
fn a_lie_that_is_found_when_its_process_has_gone_counts_as_a_try() {
    // Found while no other process is there, while one starts, and while one that was too slow is ended.
    for (restarts, starts) in [(0, false), (0, true), (1, true)] {
        let mut supervisor = busy(2);
        supervisor.progressed(at(1), 1);
        supervisor.ended(at(2));
        let mut now = at(52);
        if starts {
            assert_eq!(supervisor.poll(now), Some(Order::Start));
        }
        if restarts > 0 {
            now = at(1052);
            assert_eq!(supervisor.poll(now), Some(Order::Kill));
        }
        supervisor.disbelieve(0);
        assert_eq!(outcomes(&supervisor, 2), "--");
        if restarts > 0 {
            supervisor.ended(now);
            now = at(1102);
        }
        if restarts > 0 || !starts {
            assert_eq!(supervisor.poll(now), Some(Order::Start));
        }
        supervisor.ready();
        assert_eq!(supervisor.poll(now), Some(Order::Ask { first: 0, count: 2 }));
        supervisor.ended(now);
        assert_eq!(outcomes(&supervisor, 2), "f-", "{restarts} {starts}");
    }
}

#[test]
fn a_lie_that_is_found_when_no_process_is_started_any_more_fails_its_work_and_the_work_behind_it() {
    let mut supervisor = busy(3);
    supervisor.progressed(at(1), 3);
    for _ in 0..4 {
        supervisor.ended(at(2));
        let _ = supervisor.poll(at(1000));
    }
    assert!(supervisor.is_given_up());
    assert_eq!(outcomes(&supervisor, 3), "aaa");
    supervisor.disbelieve(1);
    assert_eq!(outcomes(&supervisor, 3), "aff");
    supervisor.disbelieve(1);
    assert_eq!((outcomes(&supervisor, 3).as_str(), supervisor.failures()), ("aff", 2), "once");
}

#[test]
fn each_piece_of_work_of_each_batch_has_two_tries_of_its_own() {
    let mut supervisor = busy(2);
    supervisor.ended(at(1));
    assert_eq!(supervisor.poll(at(51)), Some(Order::Start));
    supervisor.ready();
    assert_eq!(supervisor.poll(at(51)), Some(Order::Ask { first: 0, count: 2 }));
    supervisor.progressed(at(52), 1);
    supervisor.ended(at(53));
    assert_eq!(outcomes(&supervisor, 2), "a-", "over another one than before");
    assert_eq!(supervisor.poll(at(103)), Some(Order::Start));
    supervisor.ready();
    assert_eq!(supervisor.poll(at(103)), Some(Order::Ask { first: 1, count: 1 }));
    supervisor.progressed(at(104), 2);
    supervisor.clear();
    (0..2).for_each(|_| supervisor.add());
    assert_eq!(supervisor.poll(at(105)), Some(Order::Ask { first: 0, count: 2 }));
    supervisor.progressed(at(106), 1);
    supervisor.ended(at(107));
    assert_eq!(outcomes(&supervisor, 2), "a-", "of another batch than before");
}

#[test]
fn what_makes_no_sense_changes_nothing() {
    let mut supervisor = busy(2);
    supervisor.progressed(at(1), 1);
    supervisor.ready();
    assert_eq!(supervisor.poll(at(2)), None, "it was ready before, and is not asked twice");
    supervisor.disbelieve(1);
    assert_eq!((outcomes(&supervisor, 2).as_str(), supervisor.poll(at(2))), ("a-", None), "it has said nothing of it");
}

#[test]
fn every_wait_has_a_deadline() {
    let mut supervisor = Supervisor::new(CONFIG, 8);
    assert_eq!(supervisor.next_deadline(), Some(at(0)));
    assert_eq!(supervisor.poll(at(5)), Some(Order::Start));
    assert_eq!(supervisor.next_deadline(), Some(at(1005)), "until it is ready");
    supervisor.ready();
    supervisor.add();
    assert_eq!((supervisor.next_deadline(), supervisor.poll(at(6)).is_some()), (None, true));
    assert_eq!(supervisor.next_deadline(), Some(at(106)), "until it has done it");
    supervisor.ended(at(7));
    supervisor.ended(at(8));
    assert_eq!((supervisor.next_deadline(), supervisor.restarted()), (Some(at(57)), 1), "until the next one");
}

proptest! {
    /// For any acts of a process, no piece of work waits forever, and no answer is taken back unless the process was
    /// not believed.
    #[test]
    fn all_work_is_settled(acts in proptest::collection::vec(0u8..5, 0..200), count in 1usize..8) {
        let (mut supervisor, mut now, mut acts) = (Supervisor::new(CONFIG, 8), at(0), acts.into_iter());
        (0..count).for_each(|_| supervisor.add());
        let (mut is_there, mut asked) = (false, None);
        for _ in 0..10_000 {
            while let Some(order) = supervisor.poll(now) {
                match order {
                    Order::Start => { prop_assert!(!is_there); is_there = true; supervisor.ready(); }
                    Order::Ask { first, count: asked_for } => {
                        prop_assert!(is_there);
                        prop_assert_eq!(first + asked_for, count);
                        asked = Some(first);
                    }
                    Order::Kill => { prop_assert!(is_there); is_there = false; asked = None; supervisor.ended(now); }
                }
            }
            if supervisor.outcome(count - 1) != Outcome::Pending {
                prop_assert!((0..count).all(|index| supervisor.outcome(index) != Outcome::Pending));
                return Ok(());
            }
            match acts.next().unwrap_or(4) {
                0 if is_there => { is_there = false; asked = None; supervisor.ended(now); }
                1 => now = supervisor.next_deadline().unwrap_or(now),
                2 => if let Some(first) = asked { supervisor.disbelieve(first); },
                3 => now = now.after(Duration::from_millis(1)),
                _ => if let Some(done) = &mut asked {
                    *done += 1;
                    supervisor.progressed(now, *done);
                } else {
                    now = supervisor.next_deadline().unwrap_or(now);
                },
            }
        }
        prop_assert!(false, "some work is still pending: {:?}", supervisor);
    }
}
