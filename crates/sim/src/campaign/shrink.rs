//! A shorter schedule with the same failure: faults are taken out as long as the same checker fires.
//!
//! Delta debugging (Zeller and Hildebrandt, 2002): halves first, then quarters, down to single faults.

use super::broken::Broken;
use super::outcome::{run, run_push};
use super::push;
use super::scenario::Scenario;

/// A run whose schedule of faults can be made shorter.
trait Schedule: Clone {
    /// How many faults there are.
    fn count(&self) -> usize;

    /// The same run without so many of them.
    fn without(&self, from: usize, count: usize) -> Self;
}

impl Schedule for Scenario {
    fn count(&self) -> usize {
        self.faults.len()
    }

    fn without(&self, from: usize, count: usize) -> Self {
        Self { faults: without(&self.faults, from, count), ..self.clone() }
    }
}

impl Schedule for push::Scenario {
    fn count(&self) -> usize {
        self.faults.len()
    }

    fn without(&self, from: usize, count: usize) -> Self {
        Self { faults: without(&self.faults, from, count), ..self.clone() }
    }
}

/// The scenario with as few faults as `broken`'s checker still fires with, and what it then says.
pub fn shrink(scenario: Scenario, broken: Broken) -> (Scenario, Broken) {
    shrink_with(scenario, broken, |scenario| run(scenario.clone()).broken)
}

/// The same for a system in which sources push.
pub fn shrink_push(scenario: push::Scenario, broken: Broken) -> (push::Scenario, Broken) {
    shrink_with(scenario, broken, |scenario| run_push(scenario.clone()).broken)
}

/// The same for any way to run a scenario.
fn shrink_with<S: Schedule>(mut scenario: S, mut broken: Broken, run: impl Fn(&S) -> Option<Broken>) -> (S, Broken) {
    let checker = broken.checker;
    let mut parts = 1;
    while parts <= scenario.count() {
        let size = scenario.count().div_ceil(parts);
        let smaller = (0..parts).find_map(|part| {
            let attempt = scenario.without(part * size, size);
            let is_smaller = attempt.count() < scenario.count();
            let same = is_smaller.then(|| run(&attempt)).flatten().filter(|broken| broken.checker == checker)?;
            Some((attempt, same))
        });
        match smaller {
            Some((attempt, same)) => {
                (scenario, broken) = (attempt, same);
                parts = parts.saturating_sub(1).max(1);
            }
            None if size == 1 => break,
            None => parts = (2 * parts).min(scenario.count()),
        }
    }
    (scenario, broken)
}

fn without<T: Clone>(faults: &[T], from: usize, count: usize) -> Vec<T> {
    let (from, to) = (from.min(faults.len()), (from + count).min(faults.len()));
    faults[..from].iter().chain(&faults[to..]).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::super::broken::Checker;
    use super::super::fault::{Fault, Scheduled};
    use super::*;
    use std::time::Duration;

    fn scenario(faults: u16) -> Scenario {
        let fault = |source| Scheduled { at: Duration::ZERO, lasts: Duration::ZERO, fault: Fault::Jump(source) };
        Scenario { faults: (0..faults).map(fault).collect(), ..Scenario::quiet(0) }
    }

    fn jumps(scenario: &Scenario, source: u16) -> bool {
        scenario.faults.iter().any(|scheduled| scheduled.fault == Fault::Jump(source))
    }

    #[test]
    fn only_the_faults_that_matter_stay() {
        let broken = Broken::new(Checker::Loss, "as drawn");
        let fires = |scenario: &Scenario| {
            (jumps(scenario, 3) && jumps(scenario, 11)).then(|| Broken::new(Checker::Loss, "smaller"))
        };
        let (small, said) = shrink_with(scenario(13), broken, fires);
        assert_eq!(small.faults.len(), 2);
        assert!(jumps(&small, 3) && jumps(&small, 11));
        assert_eq!(said.words, "smaller");
    }

    #[test]
    fn another_checker_is_another_failure() {
        let broken = Broken::new(Checker::Loss, "as drawn");
        let (small, said) = shrink_with(scenario(3), broken.clone(), |_| Some(Broken::new(Checker::Keys, "other")));
        assert_eq!((small.faults.len(), said), (3, broken));
    }

    #[test]
    fn what_fails_without_any_fault_needs_none() {
        let broken = Broken::new(Checker::Ledger, "always");
        let (small, _) = shrink_with(scenario(5), broken.clone(), |_| Some(broken.clone()));
        assert_eq!(small.faults, []);
    }
}
