//! Campaigns: many seeds, one after the other, each with its verdict; a failure comes with the command that replays it
//! and with a schedule of faults that is as short as could be found.

use super::broken::{Broken, Checker};
use super::coverage::Coverage;
use super::outcome::{Outcome, run, run_push};
use super::push;
use super::scenario::Scenario;
use super::shrink::{shrink, shrink_push};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

/// A system of a seed: each seed is one of either kind.
#[derive(Clone, Debug)]
pub enum System {
    /// Builder units pull.
    Pull(Box<Scenario>),
    /// Sources push.
    Push(Box<push::Scenario>),
}

impl System {
    /// Its kind.
    pub const fn kind(&self) -> SystemKind {
        match self {
            Self::Pull(_) => SystemKind::Pull,
            Self::Push(_) => SystemKind::Push,
        }
    }

    /// What goes wrong in it, line by line.
    pub fn faults(&self) -> Vec<String> {
        match self {
            Self::Pull(scenario) => scenario.faults.iter().map(ToString::to_string).collect(),
            Self::Push(scenario) => scenario.faults.iter().map(ToString::to_string).collect(),
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pull(scenario) => scenario.fmt(out),
            Self::Push(scenario) => scenario.fmt(out),
        }
    }
}

/// A kind of systems.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SystemKind {
    /// Builder units pull.
    Pull,
    /// Sources push.
    Push,
}

impl fmt::Display for SystemKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Pull => "pull",
            Self::Push => "push",
        })
    }
}

/// A seed for which something did not hold.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What a checker said of the run as it was drawn.
    pub broken: Broken,
    /// The same run with as few faults as the same checker fires with.
    pub small: System,
    /// What it said of that one.
    pub small_broken: Broken,
}

impl Failure {
    /// The command that replays it.
    pub fn replay(&self) -> String {
        format!("ropewalk simulate --seed {} --campaign 1", self.seed)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "seed {} ({}): {}", self.seed, self.small.kind(), self.broken)?;
        writeln!(out, "replay: {}", self.replay())?;
        write!(out, "with as few faults as possible, {}\n{}", self.small_broken, self.small)
    }
}

/// What a campaign found.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// The first seed.
    pub first: u64,
    /// Seeds that were run.
    pub seeds: u64,
    /// Which faults struck when.
    pub coverage: Coverage,
    /// Virtual time of all runs, in nanoseconds.
    pub nanoseconds: u128,
    /// Mixed from all runs: equal for equal campaigns.
    pub digest: u64,
    /// Where something did not hold.
    pub failures: Vec<Failure>,
}

/// How a campaign goes on.
#[derive(Copy, Clone, Debug)]
pub struct Orders {
    /// The first seed.
    pub first: u64,
    /// How many.
    pub seeds: u64,
    /// The campaign ends when so many failures are known.
    pub most_failures: usize,
}

impl Campaign {
    /// Runs seeds one after the other; `progress` is told after each, and ends the campaign by saying false.
    pub fn run(orders: Orders, mut progress: impl FnMut(&Self) -> bool) -> Self {
        let mut campaign = Self { first: orders.first, ..Self::default() };
        for seed in (orders.first..).take(usize::try_from(orders.seeds).unwrap_or(usize::MAX)) {
            campaign.seeds += 1;
            campaign.take(seed, run(Scenario::draw(seed)), |broken| {
                let (small, broken) = shrink(Scenario::draw(seed), broken);
                (System::Pull(Box::new(small)), broken)
            });
            campaign.take(seed, run_push(push::Scenario::draw(seed)), |broken| {
                let (small, broken) = shrink_push(push::Scenario::draw(seed), broken);
                (System::Push(Box::new(small)), broken)
            });
            if campaign.failures.len() >= orders.most_failures || !progress(&campaign) {
                break;
            }
        }
        campaign
    }

    /// Takes note of a run; a failure comes with a shorter run that fails alike.
    fn take(&mut self, seed: u64, outcome: Outcome, shrink: impl FnOnce(Broken) -> (System, Broken)) {
        self.coverage.merge(&outcome.coverage);
        self.nanoseconds += u128::from(outcome.nanoseconds);
        self.digest = self.digest.rotate_left(1) ^ outcome.digest;
        if let Some(broken) = outcome.broken {
            let (small, small_broken) = shrink(broken.clone());
            self.failures.push(Failure { seed, broken, small, small_broken });
        }
    }

    /// How often each checker fired.
    pub fn fired(&self, checker: Checker) -> usize {
        self.failures.iter().filter(|failure| failure.broken.checker == checker).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_when_and_how_to_see_it_again() {
        let broken = Broken::new(Checker::Loss, "an event is gone");
        let small = Scenario { faults: Scenario::draw(7).faults, ..Scenario::quiet(7) };
        let small = System::Pull(Box::new(small));
        let failure = Failure { seed: 7, small_broken: broken.clone(), small, broken };
        let text = failure.to_string();
        let replay = "ropewalk simulate --seed 7 --campaign 1";
        for part in ["seed 7 (pull): loss: an event is gone", replay, "as few faults as possible"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let campaign = Campaign { seeds: 1, failures: vec![failure], ..Campaign::default() };
        let summary = serde_json::to_value(campaign.summary()).expect("a summary is JSON");
        assert_eq!(
            (&summary["failures"][0]["checker"], &summary["failures"][0]["replay"]),
            (&"loss".into(), &replay.into())
        );
        assert_eq!((campaign.fired(Checker::Loss), campaign.fired(Checker::Keys)), (1, 0));
    }

    #[test]
    fn a_campaign_goes_on_as_long_as_it_is_told_to() {
        let orders = Orders { first: 40, seeds: 100, most_failures: 1 };
        let campaign = Campaign::run(orders, |campaign| campaign.seeds < 3);
        assert_eq!((campaign.first, campaign.seeds), (40, 3));
        assert_ne!(campaign.digest, 0);
    }
}
