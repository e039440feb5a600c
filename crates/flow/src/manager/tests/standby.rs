//! Which of two event managers may act: each rule alone, and both with a service that is late and loses answers.

use super::world::Chance;
use crate::manager::{LeaseAnswer, LeaseConfig, LeaseConfigError, Standby, StandbyAction};
use core::time::Duration;
use proptest::prelude::*;
use ropewalk_terms::{Epoch, Instant};

const CONFIG: LeaseConfig = LeaseConfig {
    term: Duration::from_millis(1000),
    margin: Duration::from_millis(100),
    drift_ppm: 1000,
    interval: Duration::from_millis(200),
};

fn at(milliseconds: u64) -> Instant {
    Instant::from_nanoseconds(milliseconds * 1_000_000)
}

fn ask(standby: &mut Standby, now: Instant) -> u64 {
    match standby.poll(now) {
        Some(StandbyAction::Ask { question, .. }) => question,
        other => panic!("it does not ask, but {other:?}"),
    }
}

/// Asked at 0, granted at 50 ms in epoch 3.
fn active() -> Standby {
    let mut standby = Standby::new(CONFIG);
    let question = ask(&mut standby, at(0));
    assert_eq!(standby.epoch(at(0)), None);
    standby.answered(at(50), question, LeaseAnswer::Granted(Epoch(3)));
    assert_eq!(standby.poll(at(50)), Some(StandbyAction::BecomeActive { epoch: Epoch(3) }));
    standby
}

#[test]
fn a_lease_counts_from_the_question_and_ends_early() {
    let standby = active();
    // 1000 ms less twice a thousandth, less the margin.
    assert_eq!(standby.epoch(at(897)), Some(Epoch(3)));
    assert_eq!(standby.epoch(at(898)), None);
}

#[test]
fn an_event_manager_that_sleeps_through_the_end_of_its_lease_steps_down_when_it_wakes_up() {
    let mut standby = active();
    assert_eq!(standby.epoch(at(5000)), None);
    assert_eq!(standby.poll(at(5000)), Some(StandbyAction::StepDown));
    let question = ask(&mut standby, at(5000));
    // Epoch 3 is over, even if the service grants it.
    standby.answered(at(5001), question, LeaseAnswer::Granted(Epoch(3)));
    assert_eq!((standby.poll(at(5001)), standby.epoch(at(5001))), (None, None));
}

#[test]
fn an_event_manager_that_falls_asleep_before_it_hears_that_it_is_active_never_was() {
    let mut standby = Standby::new(CONFIG);
    let question = ask(&mut standby, at(0));
    standby.answered(at(50), question, LeaseAnswer::Granted(Epoch(3)));
    assert!(matches!(standby.poll(at(5000)), Some(StandbyAction::Ask { .. })));
}

#[test]
fn a_renewed_lease_lasts_longer_and_does_not_activate_again() {
    let mut standby = active();
    let question = ask(&mut standby, at(250));
    standby.answered(at(300), question, LeaseAnswer::Granted(Epoch(3)));
    assert_eq!(standby.poll(at(300)), None);
    assert_eq!((standby.epoch(at(1147)), standby.epoch(at(1148))), (Some(Epoch(3)), None));
}

#[test]
fn an_event_manager_without_a_lease_asks_for_a_new_one_not_for_more() {
    let mut standby = active();
    assert_eq!(standby.poll(at(250)), Some(StandbyAction::Ask { question: 2, renews: Some(Epoch(3)) }));
    assert_eq!(standby.poll(at(900)), Some(StandbyAction::StepDown));
    assert_eq!(standby.poll(at(900)), Some(StandbyAction::Ask { question: 3, renews: None }));
}

#[test]
fn a_lease_that_is_over_is_not_prolonged() {
    let mut standby = active();
    let question = ask(&mut standby, at(250));
    standby.answered(at(900), question, LeaseAnswer::Granted(Epoch(3)));
    assert_eq!((standby.epoch(at(900)), standby.poll(at(900))), (None, Some(StandbyAction::StepDown)));
}

#[test]
fn an_answer_that_comes_after_its_lease_is_over_does_not_activate() {
    let mut standby = Standby::new(CONFIG);
    let question = ask(&mut standby, at(0));
    standby.answered(at(898), question, LeaseAnswer::Granted(Epoch(3)));
    assert!(matches!(standby.poll(at(898)), Some(StandbyAction::Ask { .. })));
}

#[test]
fn an_answer_to_an_earlier_question_is_ignored() {
    let mut standby = Standby::new(CONFIG);
    let first = ask(&mut standby, at(0));
    let second = ask(&mut standby, at(200));
    standby.answered(at(210), first, LeaseAnswer::Granted(Epoch(3)));
    assert_eq!(standby.epoch(at(210)), None);
    standby.answered(at(220), second, LeaseAnswer::Granted(Epoch(3)));
    standby.answered(at(230), second, LeaseAnswer::Denied);
    assert_eq!(standby.epoch(at(230)), Some(Epoch(3)), "a repeated answer changes nothing");
}

#[test]
fn an_event_manager_that_is_denied_or_superseded_steps_down_at_once() {
    let denied = |standby: &mut Standby| {
        let question = ask(standby, at(250));
        standby.answered(at(260), question, LeaseAnswer::Denied);
    };
    let inputs: [&dyn Fn(&mut Standby); 2] = [&denied, &|standby| standby.superseded(Epoch(4))];
    for input in inputs {
        let mut standby = active();
        input(&mut standby);
        assert_eq!(standby.epoch(at(260)), None);
        assert_eq!(standby.poll(at(260)), Some(StandbyAction::StepDown));
    }
}

#[test]
fn a_lower_epoch_than_a_node_obeys_is_not_taken_and_that_epoch_is() {
    for (granted, taken) in [(4, false), (5, true)] {
        let mut standby = active();
        standby.superseded(Epoch(5));
        assert_eq!(standby.poll(at(60)), Some(StandbyAction::StepDown));
        let question = ask(&mut standby, at(260));
        standby.answered(at(270), question, LeaseAnswer::Granted(Epoch(granted)));
        assert_eq!(standby.epoch(at(270)).is_some(), taken);
    }
}

#[test]
fn a_lease_in_another_epoch_begins_anew() {
    let mut standby = active();
    let question = ask(&mut standby, at(250));
    standby.answered(at(300), question, LeaseAnswer::Granted(Epoch(5)));
    assert_eq!(standby.poll(at(300)), Some(StandbyAction::StepDown));
    assert_eq!(standby.poll(at(300)), Some(StandbyAction::BecomeActive { epoch: Epoch(5) }));
}

#[test]
fn a_lease_that_ends_before_it_can_be_renewed_is_refused() {
    assert_eq!(CONFIG.check(), Ok(()));
    let short = LeaseConfig { term: Duration::from_millis(500), ..CONFIG };
    assert!(matches!(short.check(), Err(LeaseConfigError::Short { .. })));
}

/// A message to or from the service, and its time of arrival.
struct Travelling {
    arrives: u64,
    manager: usize,
    question: u64,
    /// An answer, or the epoch that a question asks to renew.
    content: Result<LeaseAnswer, Option<Epoch>>,
}

/// Two event managers, a service, and a line that delays, loses, repeats and reorders. All clocks drift as far as
/// permitted; the true time is in microseconds.
struct Contest {
    chance: Chance,
    truth: u64,
    managers: [Standby; 2],
    /// Millionths by which the clocks of the managers and of the service are fast.
    drifts: [i64; 3],
    asleep_until: [u64; 2],
    travelling: Vec<Travelling>,
    holder: Option<(usize, Epoch, Instant)>,
    epoch: u32,
    activations: Vec<(usize, Epoch)>,
}

impl Contest {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let ppm = i64::from(CONFIG.drift_ppm);
        let drifts = [0; 3].map(|_| [-ppm, 0, ppm][chance.below(3) as usize]);
        let managers = [Standby::new(CONFIG), Standby::new(CONFIG)];
        let (asleep_until, travelling, activations) = ([0; 2], Vec::new(), Vec::new());
        Self { chance, truth: 1, managers, drifts, asleep_until, travelling, holder: None, epoch: 0, activations }
    }

    fn clock(&self, whose: usize) -> Instant {
        let truth = i128::from(self.truth) * 1000;
        Instant::from_nanoseconds((truth + truth * i128::from(self.drifts[whose]) / 1_000_000) as u64)
    }

    /// Delivers usually soon, sometimes very late, never, or twice.
    fn send(&mut self, manager: usize, question: u64, content: Result<LeaseAnswer, Option<Epoch>>) {
        for _ in 0..[1, 1, 1, 1, 2, 0][self.chance.below(6) as usize] {
            let late = if self.chance.below(8) == 0 { 1_500_000 } else { 20_000 };
            let arrives = self.truth + self.chance.below(late);
            self.travelling.push(Travelling { arrives, manager, question, content });
        }
    }

    /// The service grants to one at a time.
    fn serve(&mut self, manager: usize, question: u64, renews: Option<Epoch>) {
        let now = self.clock(2);
        let held = self.holder.filter(|&(_, _, until)| now < until);
        let epoch = match held {
            Some((holder, _, _)) if holder != manager => {
                return self.send(manager, question, Ok(LeaseAnswer::Denied));
            }
            Some((_, epoch, _)) if renews == Some(epoch) => epoch,
            _ => {
                self.epoch += 1;
                Epoch(self.epoch)
            }
        };
        self.holder = Some((manager, epoch, now.after(CONFIG.term)));
        self.send(manager, question, Ok(LeaseAnswer::Granted(epoch)));
    }

    fn step(&mut self) {
        self.truth += 1 + self.chance.below(20_000);
        let truth = self.truth;
        for message in self.travelling.extract_if(.., |message| message.arrives <= truth).collect::<Vec<_>>() {
            match message.content {
                Err(renews) => self.serve(message.manager, message.question, renews),
                Ok(_) if self.asleep_until[message.manager] > truth => self.travelling.push(message),
                Ok(answer) => {
                    let now = self.clock(message.manager);
                    self.managers[message.manager].answered(now, message.question, answer);
                }
            }
        }
        for manager in 0..2 {
            if self.chance.below(200) == 0 {
                self.asleep_until[manager] = truth + self.chance.below(3_000_000);
            }
            if self.asleep_until[manager] <= truth {
                self.turn(manager);
            }
        }
        self.check();
    }

    fn turn(&mut self, manager: usize) {
        let now = self.clock(manager);
        while let Some(action) = self.managers[manager].poll(now) {
            match action {
                StandbyAction::Ask { question, renews } => self.send(manager, question, Err(renews)),
                StandbyAction::BecomeActive { epoch } => self.activations.push((manager, epoch)),
                StandbyAction::StepDown => {}
            }
        }
    }

    /// Even a sleeping manager does not believe to be active while another one is.
    fn check(&self) {
        let active = [0, 1].map(|manager| self.managers[manager].epoch(self.clock(manager)));
        assert!(active.iter().flatten().count() <= 1, "both may speak: {active:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn at_most_one_may_speak_and_each_epoch_is_one_s(seed: u64) {
        let mut contest = Contest::new(seed);
        for _ in 0..4000 {
            contest.step();
        }
        let epochs: Vec<_> = contest.activations.iter().map(|&(_, epoch)| epoch).collect();
        prop_assert!(epochs.len() > 1, "the lease changed hands: {:?}", contest.activations);
        prop_assert!(epochs.is_sorted_by(|one, other| one < other), "{:?}", contest.activations);
    }
}
