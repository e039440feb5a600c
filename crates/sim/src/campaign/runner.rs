//! Campaigns: many seeds, one after the other, each with its verdict. A failure comes with the command that replays it and
//! with a schedule of faults that is as short as could be found. The [`Summary`] is the report in JSON.
//!
//! [`Coverage`] counts which fault struck in which situation: a campaign should have hit every cell of that table. Schedules
//! are shortened by delta debugging (Zeller and Hildebrandt, 2002): faults are taken out as long as the same checker fires,
//! halves first, then quarters, down to single faults.

use super::cluster::Seeded;
use super::fault::FaultKind;
use super::outcome::{Broken, Checker, named, run};
use super::push;
use super::scenario::Scenario;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

named! {
    /// A kind of systems.
    #[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    SystemKind {
        /// Builder units pull.
        Pull = "pull",
        /// Sources push.
        Push = "push",
    }
}

/// A seed for which something did not hold.
// Members are in the order in which they are printed: by name.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FailedSeed {
    /// The checker that found it.
    checker: Checker,
    /// The faults of the run, as few as the same checker fires with.
    faults: Vec<String>,
    /// The command that replays it.
    pub replay: String,
    /// The seed.
    seed: u64,
    /// The system of the seed that failed: each seed is one of either kind.
    system: SystemKind,
    /// What does not hold.
    words: String,
    /// What the checker said of the system with these faults, and a readable description of that one.
    #[serde(skip)]
    small: String,
}

impl FailedSeed {
    fn new<S: Seeded>(seed: u64, Broken { checker, words }: Broken, small: &S, said: &Broken) -> Self {
        let faults = small.faults().iter().map(ToString::to_string).collect();
        let replay = format!("ropewalk simulate --seed {seed} --campaign 1");
        Self { checker, faults, replay, seed, system: S::KIND, words, small: format!("{said}\n{small}") }
    }
}

impl fmt::Display for FailedSeed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { checker, replay, seed, system, words, small, .. } = self;
        writeln!(out, "seed {seed} ({system}): {checker}: {words}\nreplay: {replay}")?;
        write!(out, "with as few faults as possible, {small}")
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
    pub failures: Vec<FailedSeed>,
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
    /// Runs seeds one after the other, and calls `progress` after each.
    pub fn run(orders: Orders, mut progress: impl FnMut(&Self)) -> Self {
        let mut campaign = Self { first: orders.first, ..Self::default() };
        for seed in (orders.first..).take(usize::try_from(orders.seeds).unwrap_or(usize::MAX)) {
            campaign.seeds += 1;
            campaign.take(seed, Scenario::draw(seed));
            campaign.take(seed, push::Scenario::draw(seed));
            progress(&campaign);
            if campaign.failures.len() >= orders.most_failures {
                break;
            }
        }
        campaign
    }

    /// Takes note of a run; a failure comes with a shorter run that fails alike.
    fn take<S: Seeded>(&mut self, seed: u64, scenario: S) {
        let outcome = run(scenario.clone());
        self.coverage.merge(&outcome.coverage);
        self.nanoseconds += u128::from(outcome.nanoseconds);
        self.digest = self.digest.rotate_left(1) ^ outcome.digest;
        if let Some(broken) = outcome.broken {
            let (small, said) = shrink(scenario, broken.clone(), |scenario| run(scenario.clone()).broken);
            self.failures.push(FailedSeed::new(seed, broken, &small, &said));
        }
    }
}

named! {
    /// How far the run was when a fault struck, in the order of a run.
    #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
    #[repr(u8)]
    Situation {
        /// Not every node is there: no run has begun.
        Idle = "idle",
        /// The run has begun and no event is done.
        Starting = "starting",
        /// Events are built.
        Running = "running",
        /// Some node is away or stands still because of another fault.
        Recovering = "recovering",
        /// The sources have sent everything, or the run was stopped: what is there is finished.
        Draining = "draining",
    }
}

const FAULTS: usize = FaultKind::ALL.len();
const SITUATIONS: usize = Situation::ALL.len();

/// How often each fault struck in each situation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage([[u64; SITUATIONS]; FAULTS]);

impl Default for Coverage {
    fn default() -> Self {
        Self([[0; SITUATIONS]; FAULTS])
    }
}

impl Coverage {
    /// A fault struck.
    pub fn hit(&mut self, fault: FaultKind, situation: Situation) {
        self.0[fault as usize][situation as usize] += 1;
    }

    /// How often a fault struck in a situation.
    pub fn count(&self, fault: FaultKind, situation: Situation) -> u64 {
        self.0[fault as usize][situation as usize]
    }

    /// Adds another run's.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().flatten().zip(other.0.iter().flatten()) {
            *mine += theirs;
        }
    }

    /// Cells that should have been hit and were not.
    pub fn missed(&self) -> Vec<(FaultKind, Situation)> {
        let cells = FaultKind::ALL.into_iter().flat_map(|fault| Situation::ALL.map(|situation| (fault, situation)));
        cells.filter(|&(fault, situation)| self.count(fault, situation) == 0).collect()
    }

    /// The table by names: fault, then situation.
    pub fn by_name(&self) -> BTreeMap<&'static str, BTreeMap<&'static str, u64>> {
        let row = |fault: FaultKind| {
            let cells = Situation::ALL.map(|situation| (situation.name(), self.count(fault, situation)));
            (fault.name(), BTreeMap::from(cells))
        };
        FaultKind::ALL.into_iter().map(row).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:26}", "fault")?;
        for situation in Situation::ALL {
            write!(out, "{:>12}", situation.name())?;
        }
        for fault in FaultKind::ALL {
            write!(out, "\n{:26}", fault.name())?;
            for situation in Situation::ALL {
                write!(out, "{:>12}", self.count(fault, situation))?;
            }
        }
        Ok(())
    }
}

/// The system with as few faults as `broken`'s checker still fires with where it is `run`, and what it then says.
fn shrink<S: Seeded>(mut system: S, mut broken: Broken, run: impl Fn(&S) -> Option<Broken>) -> (S, Broken) {
    let checker = broken.checker;
    let mut parts = 1;
    while parts <= system.faults().len() {
        let count = system.faults().len();
        let size = count.div_ceil(parts);
        let smaller = (0..count).step_by(size).find_map(|from| {
            let mut attempt = system.clone();
            attempt.faults_mut().drain(from..(from + size).min(count));
            let same = run(&attempt).filter(|broken| broken.checker == checker)?;
            Some((attempt, same))
        });
        match smaller {
            Some((attempt, same)) => {
                (system, broken) = (attempt, same);
                parts = parts.saturating_sub(1).max(1);
            }
            None if size == 1 => break,
            None => parts = (2 * parts).min(count),
        }
    }
    (system, broken)
}

/// The report of a campaign.
// Members are in the order in which they are printed: by name.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "What a fault campaign found: the last line of `ropewalk simulate --campaign N --json`")]
pub struct Summary<'a> {
    /// How often each fault struck in each situation: fault, then situation.
    coverage: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// Digest of all events of the campaign, 16 hexadecimal digits; the same for the same seeds and program.
    #[schemars(extend("pattern" = "^[0-9a-f]{16}$"))]
    digest: String,
    /// Seeds that failed. The campaign ends after ten.
    failures: &'a [FailedSeed],
    /// The first seed.
    first_seed: u64,
    /// Faults that never struck in a situation in which they could.
    missed: Vec<Missed>,
    /// The form's name and version.
    #[schemars(extend("const" = Campaign::SCHEMA))]
    schema: &'static str,
    /// How many seeds were run.
    seeds: u64,
    /// Virtual time of all runs together, in seconds.
    #[schemars(range(min = 0))]
    virtual_seconds: f64,
}

/// A fault that did not strike in a situation in which it could.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Missed {
    /// The name of the fault.
    fault: &'static str,
    /// The name of the situation.
    situation: &'static str,
}

impl Campaign {
    /// The name and version of the form of a [`Summary`].
    pub const SCHEMA: &'static str = "ropewalk-simulate-1";

    /// The summary for programs.
    pub fn summary(&self) -> Summary<'_> {
        let missed = self.coverage.missed().into_iter();
        let missed = missed.map(|(fault, situation)| Missed { fault: fault.name(), situation: situation.name() });
        Summary {
            coverage: self.coverage.by_name(),
            digest: format!("{:016x}", self.digest),
            failures: &self.failures,
            first_seed: self.first,
            missed: missed.collect(),
            schema: Self::SCHEMA,
            seeds: self.seeds,
            virtual_seconds: self.nanoseconds as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::fault::{Fault, Place, Scheduled};
    use std::time::Duration;

    #[test]
    fn a_failure_says_what_when_and_how_to_see_it_again() {
        let broken = Broken::new(Checker::Loss, "an event is gone");
        let small = Scenario { faults: Scenario::draw(7).faults, ..Scenario::quiet(7) };
        let failure = FailedSeed::new(7, broken.clone(), &small, &broken);
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
    }

    #[test]
    fn a_campaign_runs_as_many_seeds_as_are_ordered() {
        let orders = Orders { first: 40, seeds: 3, most_failures: 1 };
        let campaign = Campaign::run(orders, |_| ());
        assert_eq!((campaign.first, campaign.seeds), (40, 3));
        assert_ne!(campaign.digest, 0);
    }

    fn jump(source: u16) -> Fault {
        Fault::at(FaultKind::Jump, Place::Source(source))
    }

    fn system(faults: u16) -> Scenario {
        let fault = |source| Scheduled { at: Duration::ZERO, lasts: Duration::ZERO, fault: jump(source) };
        Scenario { faults: (0..faults).map(fault).collect(), ..Scenario::quiet(0) }
    }

    fn jumps(system: &Scenario, source: u16) -> bool {
        system.faults.iter().any(|scheduled| scheduled.fault == jump(source))
    }

    #[test]
    fn only_the_faults_that_matter_stay() {
        let broken = Broken::new(Checker::Loss, "as drawn");
        let fires =
            |system: &Scenario| (jumps(system, 3) && jumps(system, 11)).then(|| Broken::new(Checker::Loss, "smaller"));
        let (small, said) = shrink(system(13), broken, fires);
        assert_eq!(small.faults.len(), 2);
        assert!(jumps(&small, 3) && jumps(&small, 11));
        assert_eq!(said.words, "smaller");
    }

    #[test]
    fn another_checker_is_another_failure() {
        let broken = Broken::new(Checker::Loss, "as drawn");
        let (small, said) = shrink(system(3), broken.clone(), |_| Some(Broken::new(Checker::Keys, "other")));
        assert_eq!((small.faults.len(), said), (3, broken));
    }

    #[test]
    fn what_fails_without_any_fault_needs_none() {
        let broken = Broken::new(Checker::Ledger, "always");
        let (small, _) = shrink(system(5), broken.clone(), |_| Some(broken.clone()));
        assert_eq!(small.faults.len(), 0);
    }
}
