//! Settings of a host that are changed and taken back, while the process that does it is killed, the host is restarted, and
//! others change settings too.
//!
//! ```text
//!   Scenario: acts --> tune's Application, Undoing --actions--> Host: rounds, refuses, moves others     World: is everything
//!                              |                                                                        there at the end?
//!                              +--entries--> a journal in memory, of which a kill may leave some lines
//! ```
//! The world knows from the acts alone what must be there when all is taken back. It reads the journal only to see whether
//! all steps of a plan are in it.

use super::draw::Draw;
use super::outcome::{Broken, Checker};
use ropewalk_tune::change::{Action, Answer, Application, Applied, Entry, Foreign, History, Machine, Undoing, Undone};
use ropewalk_tune::{Change, Group, Identity, Plan, Setting};
use std::collections::{BTreeMap, BTreeSet};

/// Settings of the host. The first ones may move one another; a plan has all of these or none.
const SETTINGS: usize = 7;
/// See [`SETTINGS`].
const LINKED: usize = 4;
/// Plans and the host begin with values below this; other programs write values that are not below it.
const MOST: u64 = 6;

/// The program is killed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Kill {
    /// After so many actions.
    pub after: u64,
    /// Of the next one, where it is the journal's, so many lines are there.
    pub lines: u64,
}

/// A setting refuses to be written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Busy {
    /// Which.
    pub setting: usize,
    /// After it was written so often in this act.
    pub after: u64,
}

/// Something that is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// Settings are changed.
    Apply {
        /// Which, in order, and to what.
        plan: Vec<(usize, u8)>,
        /// Whether it is killed.
        kill: Option<Kill>,
        /// What refuses.
        busy: Option<Busy>,
    },
    /// The changes are undone.
    Undo {
        /// Whether it is killed.
        kill: Option<Kill>,
        /// What refuses.
        busy: Option<Busy>,
    },
    /// Another program changes a setting.
    Foreign(usize, u8),
    /// The host is started again: settings are as without us, except one that another program has changed for good.
    Restart(Option<(usize, u8)>),
}

/// A host, and what is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// Everything else follows from it.
    pub seed: u64,
    /// The host.
    pub host: Host,
    /// What is done, in order. In the end all is taken back.
    pub acts: Vec<Act>,
}

impl Scenario {
    /// The scenario of a seed. In every fourth nothing is killed and nothing refuses.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 0x70e0);
        let is_quiet = seed.is_multiple_of(4);
        let (mut habits, mut values) = (Vec::new(), Vec::new());
        for index in 0..SETTINGS {
            let (habit, value) = draw_setting(&mut draw, index);
            habits.push(habit);
            values.push(value);
        }
        let acts = (0..draw.between(1, 9)).map(|_| draw_act(&mut draw, is_quiet)).collect();
        Self { seed, host: Host::new(habits, &values), acts }
    }
}

/// A setting, and a value that it takes.
fn draw_setting(draw: &mut Draw, index: usize) -> (Habit, u8) {
    let value = |draw: &mut Draw| draw.below(MOST) as u8;
    let first = value(draw);
    let refuses = draw.one_in(6).then(|| value(draw)).filter(|&refused| refused != first);
    let rounds = draw.one_in(6).then(|| (value(draw), value(draw))).filter(|(from, to)| *from != first && from != to);
    let other = |draw: &mut Draw| {
        let is_linked = index + 1 < LINKED && draw.one_in(3);
        is_linked.then(|| draw.between(index as u64 + 1, LINKED as u64 - 1) as usize)
    };
    (Habit { refuses, rounds, moves: other(draw), limits: other(draw) }, first)
}

fn draw_act(draw: &mut Draw, is_quiet: bool) -> Act {
    let kill = |draw: &mut Draw, most: u64| {
        let is_killed = !is_quiet && draw.one_in(2);
        is_killed.then(|| Kill { after: draw.below(most), lines: draw.below(9) })
    };
    let busy = |draw: &mut Draw| {
        let is_busy = !is_quiet && draw.one_in(4);
        is_busy.then(|| Busy { setting: draw.below(SETTINGS as u64) as usize, after: draw.below(3) })
    };
    // Values of another program, for a setting that no other one moves.
    let foreign = |draw: &mut Draw| {
        let index = draw.between(LINKED as u64, SETTINGS as u64 - 1);
        (index as usize, draw.between(MOST, 2 * MOST) as u8)
    };
    match draw.below(8) {
        0..=3 => Act::Apply { plan: draw_plan(draw), kill: kill(draw, 70), busy: busy(draw) },
        4 | 5 => Act::Undo { kill: kill(draw, 40), busy: busy(draw) },
        6 => {
            let (index, value) = foreign(draw);
            Act::Foreign(index, value)
        }
        _ => Act::Restart(draw.one_in(2).then(|| foreign(draw))),
    }
}

fn draw_plan(draw: &mut Draw) -> Vec<(usize, u8)> {
    let first = if draw.one_in(3) { LINKED } else { 0 };
    let mut rest: Vec<usize> = (first..SETTINGS).filter(|&index| index < LINKED || !draw.one_in(3)).collect();
    let mut plan = Vec::new();
    while !rest.is_empty() {
        let index = rest.swap_remove(draw.below(rest.len() as u64) as usize);
        plan.push((index, draw.below(MOST) as u8));
    }
    plan
}

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
    /// Values that another program has put there since we changed the setting: they must be left.
    foreign: BTreeMap<usize, u8>,
    /// Settings that another change may have moved, and the host's start in which that change was made or undone last:
    /// they have not been looked at since.
    touched: BTreeMap<usize, u64>,
    /// Settings during whose change the program was killed, or that could not be brought back, since the host was
    /// started.
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
                // A foreign value right after a kill cannot be told from a change that was half done.
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

    /// Another program changes a setting.
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

    /// Opens the journal as the program does: one that is taken back is put away.
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

    /// The old values of a plan are in the journal. A value that another program has written since the host was started
    /// is one of them, unless it was put over a value of ours, or over one that another setting of ours may have moved
    /// there.
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

    /// All settings that are held may be moved from now on, except those with a foreign value.
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

    /// All but those that another program had changed before.
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

/// How a setting behaves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Habit {
    /// A value that it refuses.
    pub refuses: Option<u8>,
    /// A value that becomes another one.
    pub rounds: Option<(u8, u8)>,
    /// A later setting that gets its value, too.
    pub moves: Option<usize>,
    /// A later setting that is never beyond it.
    pub limits: Option<usize>,
}

/// A host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    habits: Vec<Habit>,
    /// The present value of each setting.
    pub values: Vec<u8>,
}

impl Host {
    /// A host on which these values were written, one after the other: what it has it can have.
    pub fn new(habits: Vec<Habit>, values: &[u8]) -> Self {
        let mut host = Self { values: vec![0; habits.len()], habits };
        (0..values.len()).for_each(|index| host.put(index, values[index]));
        host
    }

    /// The name of a setting.
    pub fn setting(index: usize) -> Setting {
        Setting::sysctl(&format!("host.setting{index}"))
    }

    /// Which setting it is.
    pub fn index(&self, setting: &Setting) -> Option<usize> {
        (0..self.values.len()).find(|&index| Self::setting(index) == *setting)
    }

    /// Writes a value; whether it was taken.
    pub fn write(&mut self, index: usize, value: &str) -> bool {
        let value = value.parse().ok().filter(|&value| self.habits[index].refuses != Some(value));
        value.map(|value| self.put(index, value)).is_some()
    }

    fn put(&mut self, index: usize, value: u8) {
        let Habit { rounds, moves, limits, .. } = self.habits[index];
        let value = rounds.filter(|(from, _)| *from == value).map_or(value, |(_, to)| to);
        self.values[index] = value;
        if let Some(other) = moves {
            self.values[other] = value;
        }
        if let Some(other) = limits {
            self.values[other] = self.values[other].min(value);
        }
    }
}
