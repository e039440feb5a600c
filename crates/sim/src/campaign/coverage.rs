//! Which fault struck in which situation: a table whose cells should all have been hit by a campaign.

use super::fault_kind::FaultKind;
use std::collections::BTreeMap;
use std::fmt;

/// How far the run was when a fault struck.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Situation {
    /// Not every node is there: no run has begun.
    Idle,
    /// The run has begun and no event is done.
    Starting,
    /// Events are built.
    Running,
    /// Some node is away or stands still because of another fault.
    Recovering,
    /// The sources have sent everything, or the run was stopped: what is there is finished.
    Draining,
    /// Everything is done, and nodes take their leave.
    Ended,
}

impl Situation {
    /// Every situation, in the order of a run.
    pub const ALL: [Self; 6] =
        [Self::Idle, Self::Starting, Self::Running, Self::Recovering, Self::Draining, Self::Ended];

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Recovering => "recovering",
            Self::Draining => "draining",
            Self::Ended => "ended",
        }
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
        cells
            .filter(|&(fault, situation)| unreachable(situation).is_none() && self.count(fault, situation) == 0)
            .collect()
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

/// Why no fault strikes in a situation, where that is so.
pub const fn unreachable(situation: Situation) -> Option<&'static str> {
    match situation {
        Situation::Ended => Some("nothing is injected any more once the run is over"),
        _ => None,
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:26}", "fault")?;
        let reachable = || Situation::ALL.into_iter().filter(|&situation| unreachable(situation).is_none());
        for situation in reachable() {
            write!(out, "{:>12}", situation.name())?;
        }
        for fault in FaultKind::ALL {
            write!(out, "\n{:26}", fault.name())?;
            for situation in reachable() {
                write!(out, "{:>12}", self.count(fault, situation))?;
            }
        }
        Ok(())
    }
}
