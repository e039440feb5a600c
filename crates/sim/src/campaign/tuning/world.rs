//! A scenario from the first act until all is taken back.

use super::super::broken::{Broken, Checker};
use super::host::Host;
use super::scenario::{Act, Busy, Kill, Scenario};
use ropewalk_tune::change::{Action, Answer, Application, Applied, Entry, Foreign, History, Machine, Undoing, Undone};
use ropewalk_tune::{Change, Group, Identity, Plan};
use std::collections::{BTreeMap, BTreeSet};

/// More actions than any act has.
const MOST_ACTIONS: u64 = 10_000;

/// A host, a journal, and what must be there in the end.
pub struct World {
    scenario: Scenario,
    host: Host,
    /// The journal; nothing where there is none, or where it was put away.
    entries: Vec<Entry>,
    starts: u64,
    /// What must be there when all is taken back.
    before: Vec<u8>,
    /// Settings whose old values are in the journal, and the host's start in which each was last changed by us.
    held: BTreeMap<usize, u64>,
    /// What somebody else has put there since it was changed: that must be left.
    foreign: BTreeMap<usize, u8>,
    /// The host's start in which others beside a setting of ours were changed or taken back last, that may have moved it: nobody has looked at
    /// it since.
    touched: BTreeMap<usize, u64>,
    /// Settings with which somebody was killed, or that could not be brought back, since the host was started.
    half_way: BTreeSet<usize>,
    counts: [u64; 6],
}

impl World {
    /// Nothing has happened yet.
    pub fn new(scenario: Scenario) -> Self {
        let host = scenario.host.clone();
        let (before, foreign, held) = (host.values.clone(), BTreeMap::new(), BTreeMap::new());
        let (entries, touched, half_way) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        Self { scenario, host, entries, starts: 1, before, held, foreign, touched, half_way, counts: [0; 6] }
    }

    /// How often a plan was applied, failed, or was killed; and how often all was taken back, something was left, or it was
    /// killed.
    pub const fn counts(&self) -> [u64; 6] {
        self.counts
    }

    /// Until all is taken back.
    ///
    /// # Errors
    /// What does not hold.
    pub fn run(&mut self) -> Result<(), Broken> {
        for act in self.scenario.acts.clone() {
            match act {
                Act::Apply { plan, kill, busy } => self.apply(&plan, kill, busy)?,
                Act::Undo { kill, busy } => self.undo(kill, busy)?,
                // What somebody puts there right after a kill cannot be told from what was half done.
                Act::Foreign(index, _) if self.half_way.contains(&index) => {}
                Act::Foreign(index, value) => self.change(index, value),
                Act::Restart(surprise) => self.restart(surprise),
            }
        }
        self.undo(None, None)?;
        self.open();
        self.checked("in the end")?;
        let is_away = self.entries.is_empty();
        let words = || format!("the journal is put away: {is_away}; left: {:?}", self.foreign);
        Broken::unless(is_away == self.foreign.is_empty(), Checker::Liveness, words)
    }

    fn expected(&self) -> Vec<u8> {
        let left = |(index, &value): (usize, &u8)| self.foreign.get(&index).copied().unwrap_or(value);
        self.before.iter().enumerate().map(left).collect()
    }

    fn identity(&self) -> Identity {
        let (host, machine) = ("host".to_owned(), "4711".to_owned());
        Identity { host, machine, boot: format!("start {}", self.starts), network: String::new() }
    }

    /// Somebody else puts a value there.
    fn change(&mut self, index: usize, value: u8) {
        self.open();
        self.host.values[index] = value;
        if self.held.contains_key(&index) {
            // Who puts there what shall be there again cannot be told from one of us.
            self.foreign.remove(&index);
            if value != self.before[index] {
                self.foreign.insert(index, value);
            }
        } else {
            self.before[index] = value;
        }
    }

    fn restart(&mut self, surprise: Option<(usize, u8)>) {
        self.starts += 1;
        self.host.values = self.before.clone();
        self.foreign.clear();
        self.half_way.clear();
        if let Some((index, value)) = surprise {
            self.change(index, value);
        }
    }

    /// As whoever opens a journal does: one that is taken back is put away.
    fn open(&mut self) -> Option<History> {
        let history = History::of(&self.entries).filter(|history| !history.is_taken_back);
        if history.is_none() {
            self.before = self.expected();
            self.entries.clear();
            self.held.clear();
            self.foreign.clear();
        }
        history
    }

    fn apply(&mut self, plan: &[(usize, u8)], kill: Option<Kill>, busy: Option<Busy>) -> Result<(), Broken> {
        let change = |&(index, to): &(usize, u8)| {
            let (setting, from) = (Host::setting(index), self.host.values[index].to_string());
            Change { setting, from, to: to.to_string(), group: Group::Network, rule: "rule".to_owned() }
        };
        let changes = Plan { changes: plan.iter().map(change).collect() };
        let (history, before) = (self.open(), self.host.values.clone());
        let lines = self.entries.len();
        let machine = Application::new(&changes, &self.identity(), "now", history);
        let applied = self.turn(machine, kill, busy)?;
        // Nothing was written before all of its steps were in the journal.
        let new = self.entries.get(lines..).unwrap_or_default();
        let there = new.iter().filter(|entry| matches!(entry, Entry::Step { .. })).count();
        let is_begun = new.iter().any(|entry| matches!(entry, Entry::Applying { steps, .. } if *steps == there));
        let stuck = new.iter().find_map(|entry| match entry {
            Entry::RolledBack { stuck } => Some(stuck.iter().filter_map(|setting| self.host.index(setting)).collect()),
            _ => None,
        });
        if is_begun {
            self.hold(plan);
        }
        match applied {
            Some(Applied { failure: None, .. }) => {
                let is_there = plan.iter().all(|&(index, to)| self.host.values[index] == to);
                let words = || format!("{plan:?} is applied, and there is {:?}", self.host.values);
                Broken::unless(is_there, Checker::Content, words)?;
                self.counts[0] += 1;
                let is_other = |index: &usize| plan.iter().all(|(other, _)| other != index);
                self.foreign.retain(|index, _| is_other(index));
                self.half_way.retain(is_other);
            }
            Some(Applied { failure: Some(failure), .. }) if failure.not_brought_back.is_empty() => {
                let words = || format!("it is rolled back to {:?}, and not to {before:?}", self.host.values);
                Broken::unless(self.host.values == before, Checker::Content, words)?;
                self.counts[1] += 1;
            }
            _ => {
                self.counts[2] += 1;
                match stuck {
                    Some(stuck) => self.leave_half_way(&stuck),
                    None if is_begun => {
                        self.leave_half_way(&plan.iter().map(|(index, _)| *index).collect());
                        self.leave_all_half_way();
                    }
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// The old values of a plan are in the journal. What somebody put there since the host was started is one of them, unless
    /// it was put over a value of ours, or over one that another setting of ours may have moved there.
    fn hold(&mut self, plan: &[(usize, u8)]) {
        for (index, _) in plan {
            let is_touched = self.touched.get(index) == Some(&self.starts);
            let last = self.held.insert(*index, self.starts);
            if last.is_some_and(|last| last != self.starts) && !is_touched {
                self.before[*index] = self.foreign.remove(index).unwrap_or(self.before[*index]);
            }
        }
        self.touch();
    }

    /// All that is held may be moved from now on, but for what somebody else has there.
    fn touch(&mut self) {
        for index in self.held.keys() {
            if self.foreign.contains_key(index) {
                self.touched.remove(index);
            } else {
                self.touched.insert(*index, self.starts);
            }
        }
    }

    /// Whatever these have then may be ours.
    fn leave_half_way(&mut self, settings: &BTreeSet<usize>) {
        self.half_way.extend(settings);
        self.foreign.retain(|index, _| !settings.contains(index));
    }

    /// All but what somebody else had changed before.
    fn leave_all_half_way(&mut self) {
        self.half_way.extend(self.held.keys().filter(|index| !self.foreign.contains_key(index)));
    }

    fn undo(&mut self, kill: Option<Kill>, busy: Option<Busy>) -> Result<(), Broken> {
        let Some(history) = self.open() else { return Ok(()) };
        let machine = Undoing::new(history, &self.identity(), "now", Foreign::Leave);
        let lines = self.entries.len();
        let undone = self.turn(machine, kill, busy)?;
        if self.entries.len() > lines {
            self.touch();
        }
        match undone {
            Some(Undone { is_put_away: true, .. }) => {
                self.counts[3] += 1;
                self.half_way.clear();
                self.checked("all is taken back")?;
                self.open();
            }
            Some(Undone { troubles, .. }) if troubles.is_empty() => {
                self.counts[4] += 1;
                self.half_way.clear();
                self.touched.clear();
                self.checked("all is taken back but for what is left")?;
            }
            Some(Undone { troubles, .. }) => {
                self.counts[5] += 1;
                self.half_way = troubles.iter().filter_map(|trouble| self.host.index(&trouble.setting)).collect();
                self.touched.retain(|index, _| self.half_way.contains(index));
            }
            None => {
                self.counts[5] += 1;
                self.leave_all_half_way();
                // The last thing that it did may have been to say that it was done.
                if let Some(Entry::Undone { stuck }) = self.entries.last() {
                    let stuck: BTreeSet<_> = stuck.iter().filter_map(|setting| self.host.index(setting)).collect();
                    self.touched.retain(|index, _| stuck.contains(index));
                }
            }
        }
        Ok(())
    }

    /// What is there must be what is expected.
    fn checked(&self, what: &str) -> Result<(), Broken> {
        let expected = self.expected();
        let words = || format!("{what}: there is {:?}, and not {expected:?}", self.host.values);
        Broken::unless(self.host.values == expected, Checker::Loss, words)
    }

    /// Turns a machine to its end. None where it was killed.
    fn turn<M: Machine>(
        &mut self,
        mut machine: M,
        kill: Option<Kill>,
        busy: Option<Busy>,
    ) -> Result<Option<M::Outcome>, Broken> {
        let (mut count, mut writes) = (0, 0);
        while let Some(action) = machine.poll() {
            if let Some(kill) = kill.filter(|kill| kill.after == count) {
                if let Action::Journal(entries) = action {
                    self.entries.extend(entries.into_iter().take(kill.lines as usize));
                }
                return Ok(None);
            }
            count += 1;
            Broken::unless(count < MOST_ACTIONS, Checker::Liveness, || "it does not come to its end".to_owned())?;
            let answer = match action {
                Action::Read(setting) => {
                    Answer::Value(self.host.index(&setting).map(|index| self.host.values[index].to_string()))
                }
                Action::Write(setting, value) => {
                    let index = self.host.index(&setting).expect("no plan has another one");
                    let is_it = busy.filter(|busy| busy.setting == index);
                    writes += u64::from(is_it.is_some());
                    let is_busy = is_it.is_some_and(|busy| writes > busy.after);
                    let is_taken = !is_busy && self.host.write(index, &value);
                    if is_taken { Answer::Done } else { Answer::Refused("refused".to_owned()) }
                }
                Action::Journal(entries) => {
                    self.entries.extend(entries);
                    Answer::Done
                }
                Action::PutAway => {
                    self.entries.clear();
                    Answer::Done
                }
            };
            machine.on_answer(answer);
        }
        Ok(Some(machine.outcome()))
    }
}
