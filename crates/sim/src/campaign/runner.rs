//! One seed: a run and its verdict, and what a checker says when something does not hold. Campaigns: many seeds, one after the
//! other. A failure comes with the command that replays it and
//! with a schedule of faults that is as short as could be found. The [`Summary`] is the report in JSON.
//!
//! [`Coverage`] counts which fault struck in which situation: a campaign should have hit every cell of that table. Schedules
//! are shortened by delta debugging (Zeller and Hildebrandt, 2002): faults are taken out as long as the same checker fires,
//! halves first, then quarters, down to single faults.

use super::cluster::{Cluster, Seeded};
use super::fault::FaultKind;
use super::push;
use super::recorder::Recorder;
use super::scenario::Scenario;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An enum whose variants have stable names.
macro_rules! named {
    ($(#[$attribute:meta])* $name:ident { $($(#[$what:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$attribute])*
        pub enum $name { $($(#[$what])* $variant),* }

        impl $name {
            /// All of them, in the order of tables.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            /// The stable name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str(self.name())
            }
        }
    };
}
pub(super) use named;

/// An error with these words unless something holds: `ensure!(Ledger, left == 0; "{left} are left")`.
macro_rules! ensure {
    ($checker:ident, $holds:expr; $($words:tt)+) => {{
        use $crate::campaign::runner::{Broken, Checker};
        Broken::unless($holds, Checker::$checker, || format!($($words)+))
    }};
}
pub(super) use ensure;

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

/// How often each fault struck in each situation.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Coverage(BTreeMap<(FaultKind, Situation), u64>);

impl Coverage {
    /// A fault struck.
    pub fn hit(&mut self, fault: FaultKind, situation: Situation) {
        *self.0.entry((fault, situation)).or_default() += 1;
    }

    /// How often a fault struck in a situation.
    pub fn count(&self, fault: FaultKind, situation: Situation) -> u64 {
        self.0.get(&(fault, situation)).copied().unwrap_or_default()
    }

    /// Adds another run's.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(&cell, count)| *self.0.entry(cell).or_default() += count);
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

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What a checker said; nothing where everything holds.
    pub broken: Option<Broken>,
    /// Which faults struck when.
    pub coverage: Coverage,
    /// Mixed from everything that happened: equal for equal histories.
    pub digest: u64,
    /// How long the run took, in nanoseconds of virtual time.
    pub nanoseconds: u64,
    /// Every happening as a line, where that was asked for.
    pub text: String,
}

/// Runs a system to its end and judges it.
pub fn run(scenario: impl Seeded) -> Outcome {
    recorded(scenario, Recorder::default())
}

/// The same, with every happening as a line of text.
pub fn run_with_text(scenario: impl Seeded) -> Outcome {
    recorded(scenario, Recorder { text: Some(String::new()), ..Recorder::default() })
}

fn recorded(scenario: impl Seeded, recorder: Recorder) -> Outcome {
    let mut world = scenario.world(recorder);
    let broken = caught(|| world.go_on().and_then(|()| world.judge()));
    let core = world.core();
    let mut recorder = core.recorder.borrow_mut();
    Outcome {
        broken,
        coverage: core.coverage.clone(),
        digest: recorder.digest,
        nanoseconds: core.now().as_nanoseconds(),
        text: recorder.text.take().unwrap_or_default(),
    }
}

/// What a checker found, or the panic. After a panic only the world's record may be looked at.
fn caught(run: impl FnOnce() -> Result<(), Broken>) -> Option<Broken> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(verdict) => verdict.err(),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(Broken::new(Checker::Panic, words.unwrap_or_default()))
        }
    }
}

named! {
    /// What is checked.
    #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    Checker {
        /// The equations of the ledger, in each machine at every step and for the whole run at its end.
        Ledger = "ledger",
        /// Every block of every pool comes back.
        Pools = "pools",
        /// Credit is neither lost nor made.
        Credits = "credits",
        /// No table and no queue grows over its bound.
        Bounds = "bounds",
        /// Files hold what the sources made, word by word.
        Content = "content",
        /// No key twice after `verify`'s rule, and no key that never was.
        Keys = "keys",
        /// Nothing is lost without a cause.
        Loss = "loss",
        /// No source is given up that was not silent.
        TimeOut = "time_out",
        /// Everything comes to its end, within a bound after the last fault.
        Liveness = "liveness",
        /// No event manager speaks without the lease; an epoch is one event manager's; no node goes back to a lower one.
        Epochs = "epochs",
        /// A readout unit announces in the order of keys, and begins again only when it is asked to.
        Order = "order",
        /// Sources are masked in the events in which the account says so, and in no others.
        Masks = "masks",
        /// Nothing panics.
        Panic = "panic",
    }
}

/// Something that does not hold.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{checker}: {words}")]
pub struct Broken {
    /// Who found it.
    pub checker: Checker,
    /// What does not hold.
    pub words: String,
}

impl Broken {
    /// Something that does not hold.
    pub fn new(checker: Checker, words: impl Into<String>) -> Self {
        Self { checker, words: words.into() }
    }

    /// An error with these words unless something holds.
    ///
    /// # Errors
    /// The words, where it does not.
    pub fn unless(holds: bool, checker: Checker, words: impl FnOnce() -> String) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self::new(checker, words())) }
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
