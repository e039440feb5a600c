//! The machines on made-up settings: some take only part of their range, some refuse values, some move others.

use super::*;
use crate::{Change, Form, Group, Identity, Plan, RunningThread, SettingError, Settings};
use proptest::prelude::*;
use std::time::Duration;

/// How a made-up setting behaves.
#[derive(Clone, Debug)]
struct Habit {
    /// What is written beyond it becomes this: the kernel has limits of its own.
    most: u8,
    /// What is written beyond it is refused.
    refused: u8,
    /// A later setting that gets this one's value, too, wherever that may have it.
    moves: Option<usize>,
    /// A later setting that is never beyond this one.
    limits: Option<usize>,
}

/// A made-up machine.
#[derive(Clone, Debug)]
struct Made {
    habits: Vec<Habit>,
    values: Vec<u8>,
}

fn setting(index: usize) -> Setting {
    Setting::sysctl(&format!("made.{index}"))
}

impl Made {
    fn index(&self, setting: &Setting) -> Option<usize> {
        (0..self.values.len()).find(|&index| *setting == self::setting(index))
    }

    fn put(&mut self, index: usize, value: u8) {
        let habit = self.habits[index].clone();
        self.values[index] = value.min(habit.most);
        if let Some(other) = habit.moves {
            self.values[other] = value.min(self.habits[other].most).min(self.habits[other].refused);
        }
        if let Some(other) = habit.limits {
            self.values[other] = self.values[other].min(self.values[index]);
        }
    }
}

impl Settings for Made {
    fn read(&mut self, setting: &Setting) -> Result<Option<String>, SettingError> {
        Ok(self.index(setting).map(|index| self.values[index].to_string()))
    }

    fn write(&mut self, setting: &Setting, value: &str) -> Result<(), SettingError> {
        let refused = || SettingError::OutOfRange { path: setting.to_string(), value: value.to_owned() };
        let index = self.index(setting).ok_or_else(|| SettingError::Missing(setting.clone()))?;
        let number = value.parse::<u8>().ok().filter(|&number| number <= self.habits[index].refused);
        self.put(index, number.ok_or_else(refused)?);
        Ok(())
    }
}

/// A journal in memory, and how many actions are done until everything is killed.
#[derive(Clone, Debug, Default)]
struct Rig {
    entries: Vec<Entry>,
    /// Actions that are done whole; of the next one a part may be, where it is a journal's.
    patience: Option<usize>,
    part: usize,
    /// How often the machine was started again.
    restarts: usize,
}

fn identity() -> Identity {
    let (host, machine, boot) = ("made".to_owned(), "4711".to_owned(), "b1".to_owned());
    Identity { host, machine, boot, network: String::new() }
}

impl Rig {
    fn history(&self) -> Option<History> {
        History::of(&self.entries).filter(|history| !history.is_taken_back)
    }

    /// Turns a machine to its end, or to where it is killed.
    fn turn<M: Machine>(&mut self, mut machine: M, made: &mut impl Settings) -> Option<M::Outcome> {
        let mut count = 0;
        while let Some(action) = machine.poll() {
            if self.patience == Some(count) {
                if let Action::Journal(entries) = action {
                    self.entries.extend(entries.into_iter().take(self.part));
                }
                return None;
            }
            count += 1;
            assert!(count < 10_000, "it does not come to an end");
            let answer = match action {
                Action::Read(setting) => made.read(&setting).map(Answer::Value).map_err(|error| error.to_string()),
                Action::Write(setting, value) => {
                    made.write(&setting, &value).map(|()| Answer::Done).map_err(|error| error.to_string())
                }
                Action::Journal(entries) => {
                    self.entries.extend(entries);
                    Ok(Answer::Done)
                }
                Action::PutAway => {
                    assert!(History::of(&self.entries).expect("a journal").is_taken_back);
                    self.entries.clear();
                    Ok(Answer::Done)
                }
            };
            machine.on_answer(answer.unwrap_or_else(Answer::Refused));
        }
        Some(machine.outcome())
    }

    fn identity(&self) -> Identity {
        Identity { boot: format!("b{}", self.restarts + 1), ..identity() }
    }

    fn apply(&mut self, plan: &Plan, made: &mut impl Settings) -> Option<Applied> {
        if History::of(&self.entries).is_none_or(|history| history.is_taken_back) {
            self.entries.clear();
        }
        let machine = Application::new(plan, &self.identity(), "t", self.history());
        self.turn(machine, made)
    }

    fn undo(&mut self, foreign: Foreign, made: &mut impl Settings) -> Option<Undone> {
        let machine = Undoing::new(self.history()?, &self.identity(), "t", foreign);
        self.turn(machine, made)
    }

    fn killed_after(&self, patience: usize, part: usize) -> Self {
        Self { patience: Some(patience), part, ..self.clone() }
    }

    fn unharmed(&self) -> Self {
        Self { patience: None, part: 0, ..self.clone() }
    }
}

fn plan(made: &Made, changes: &[(usize, u8)]) -> Plan {
    let mut plan = Plan::default();
    for &(index, to) in changes {
        let setting = setting(index % made.values.len());
        let from = made.index(&setting).map(|index| made.values[index].to_string()).unwrap_or_default();
        if plan.changes.iter().all(|change| change.setting != setting) {
            let (to, rule) = (to.to_string(), "made".to_owned());
            plan.changes.push(Change { setting, from, to, group: Group::Network, rule });
        }
    }
    plan
}

const COUNT: usize = 5;
const MOST: u8 = 6;

/// Machines whose first state is one that can be written: nothing in it is beyond what is taken.
fn made() -> impl Strategy<Value = Made> {
    let rarely = || prop_oneof![3 => Just(u8::MAX), 1 => 0..MOST];
    let link = |index: usize| prop_oneof![3 => Just(None), 1 => (index + 1..COUNT + 1).prop_map(|other| Some(other).filter(|&other| other < COUNT))];
    let habit = move |index: usize| {
        let habit = (rarely(), rarely(), link(index), link(index));
        habit.prop_map(|(most, refused, moves, limits)| Habit { most, refused, moves, limits })
    };
    let habits: Vec<_> = (0..COUNT).map(habit).collect();
    (habits, prop::collection::vec(0..MOST, COUNT)).prop_map(|(habits, wanted)| {
        let mut made = Made { habits, values: vec![0; COUNT] };
        for (index, value) in wanted.into_iter().enumerate() {
            made.put(index, value.min(made.habits[index].refused));
        }
        made
    })
}

/// Plans that have every setting which another one of them may move, in any order.
fn changes() -> impl Strategy<Value = Vec<(usize, u8)>> {
    let order = Just((0..COUNT).collect::<Vec<_>>()).prop_shuffle();
    (order, prop::collection::vec(0..MOST, COUNT)).prop_map(|(order, values)| order.into_iter().zip(values).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applied_and_undone_is_as_before(first in made(), changes in changes()) {
        let (mut made, mut rig) = (first.clone(), Rig::default());
        let plan = plan(&made, &changes);
        let applied = rig.apply(&plan, &mut made).expect("it is not killed");
        if applied.failure.is_some() {
            prop_assert_eq!(&made.values, &first.values, "it rolls back by itself");
            prop_assert!(rig.entries.is_empty(), "and nothing is left to be undone");
        }
        let undone = rig.undo(Foreign::Leave, &mut made);
        prop_assert!(undone.is_none_or(|undone| undone.is_put_away && undone.troubles.is_empty()));
        prop_assert_eq!(made.values, first.values);
        prop_assert!(rig.entries.is_empty());
    }

    #[test]
    fn what_is_applied_is_there_and_once_is_as_good_as_twice(first in made(), changes in changes()) {
        let (mut made, mut rig) = (first.clone(), Rig::default());
        let plan = plan(&made, &changes);
        if rig.apply(&plan, &mut made).expect("it is not killed").failure.is_none() {
            let again = self::plan(&made, &changes);
            prop_assert!(again.changes.iter().all(|change| change.from == change.to), "nothing is left to be changed");
            let (once, entries) = (made.clone(), rig.entries.clone());
            let second = rig.apply(&plan, &mut made).expect("it is not killed");
            prop_assert_eq!((&second.failure, second.changed.len(), second.already), (&None, 0, COUNT));
            prop_assert_eq!(&made.values, &once.values);
            prop_assert_eq!(&rig.entries, &entries);
        }
    }

    /// Killed after any action, also with a journal of which only some lines are there; and while it is taken back, too.
    #[test]
    fn what_was_done_before_a_kill_can_be_undone(
        first in made(), changes in changes(), patience in 0..90_usize, part in 0..9_usize, again in 0..60_usize,
    ) {
        let (mut made, mut rig) = (first.clone(), Rig::default().killed_after(patience, part));
        rig.apply(&plan(&first, &changes), &mut made);
        rig = rig.killed_after(again, part);
        rig.undo(Foreign::Leave, &mut made);
        rig = rig.unharmed();
        rig.undo(Foreign::Leave, &mut made);
        prop_assert_eq!(made.values, first.values);
        prop_assert!(rig.history().is_none());
    }

    /// The old value of a setting is the one that was journalled first.
    #[test]
    fn several_plans_are_undone_at_once(
        first in made(), one in changes(), other in changes(), patience in prop::option::of(0..90_usize), part in 0..9_usize,
    ) {
        let (mut made, mut rig) = (first.clone(), Rig::default());
        for (changes, patience) in [(&one, patience), (&other, None), (&one, patience)] {
            rig = Rig { patience, part, ..rig };
            let plan = plan(&made, changes);
            let before = made.clone();
            if rig.apply(&plan, &mut made).is_some_and(|applied| applied.failure.is_some()) {
                prop_assert_eq!(&made.values, &before.values, "it rolls back to what was there before it alone");
            }
        }
        rig = rig.unharmed();
        rig.undo(Foreign::Leave, &mut made);
        prop_assert_eq!(made.values, first.values);
    }
}

/// Settings that keep every value that is written.
fn obedient(values: &[u8]) -> Made {
    let habit = Habit { most: u8::MAX, refused: u8::MAX, moves: None, limits: None };
    Made { habits: vec![habit; values.len()], values: values.to_vec() }
}

#[test]
fn the_old_values_are_journalled_before_anything_is_written() {
    let made = obedient(&[1, 2]);
    let mut machine = Application::new(&plan(&made, &[(0, 7), (1, 8)]), &identity(), "t", None);
    let mut seen = Vec::new();
    let mut values = made;
    while let Some(action) = machine.poll() {
        let answer = match &action {
            Action::Read(setting) => Answer::Value(values.read(setting).expect("it can be read")),
            Action::Write(setting, value) => values.write(setting, value).map(|()| Answer::Done).expect("it is taken"),
            _ => Answer::Done,
        };
        seen.push(action);
        machine.on_answer(answer);
    }
    let is_write = |action: &Action| matches!(action, Action::Write(..));
    let journal = seen.iter().position(|action| matches!(action, Action::Journal(_))).expect("there is a journal");
    let write = seen.iter().position(is_write).expect("something is written");
    let Action::Journal(entries) = &seen[journal] else { panic!("it was just found") };
    let olds = entries.iter().filter_map(|entry| match entry {
        Entry::Step { setting, old, new, .. } => Some(format!("{setting} {old} {new}")),
        _ => None,
    });
    assert_eq!(olds.collect::<Vec<_>>(), ["made.0 1 7", "made.1 2 8"]);
    assert!(journal < write);
    assert_eq!(seen.last(), Some(&Action::Journal(vec![Entry::Applied])));
    assert_eq!(seen.iter().filter(|action| is_write(action)).count(), 2);
}

#[test]
fn a_failure_is_reported_with_what_could_not_be_brought_back() {
    let mut made = obedient(&[1, 2, 3]);
    made.habits[1].refused = 5;
    let applied = Rig::default().apply(&plan(&made, &[(0, 7), (1, 6), (2, 9)]), &mut made).expect("it is not killed");
    let failure = applied.failure.expect("the second one is refused");
    assert_eq!(failure.setting, Some(setting(1)));
    assert!(failure.why.contains("the kernel takes no value `6` there"), "{}", failure.why);
    assert_eq!((applied.changed.len(), failure.not_brought_back.len(), made.values), (0, 0, vec![1, 2, 3]));

    let mut made = obedient(&[1, 2]);
    made.habits[1].most = 5;
    let applied = Rig::default().apply(&plan(&made, &[(0, 7), (1, 6)]), &mut made).expect("it is not killed");
    assert_eq!(applied.failure.expect("it is clamped").why, "`6` was written, and `5` is read again");

    // The first one was somewhere where it cannot be put.
    let (mut made, mut rig) = (obedient(&[9, 2]), Rig::default());
    (made.habits[0].refused, made.habits[1].refused) = (8, 5);
    let applied = rig.apply(&plan(&made, &[(0, 7), (1, 6)]), &mut made).expect("it is not killed");
    let troubles = applied.failure.expect("the second one is refused").not_brought_back;
    assert_eq!(
        troubles.iter().map(|trouble| (&trouble.setting, trouble.value.as_str())).collect::<Vec<_>>(),
        [(&setting(0), "9")]
    );
    assert!(rig.history().expect("the journal stays open").is_unfinished());
    made.habits[0].refused = u8::MAX;
    rig.undo(Foreign::Leave, &mut made);
    assert_eq!(made.values, [9, 2]);
}

#[test]
fn what_a_machine_does_not_have_changes_nothing() {
    let mut made = obedient(&[1]);
    let mut plan = plan(&made, &[(0, 7)]);
    plan.changes.push(Change { setting: setting(4), ..plan.changes[0].clone() });
    let mut rig = Rig::default();
    let failure = rig.apply(&plan, &mut made).expect("it is not killed").failure.expect("it is not there");
    assert_eq!((failure.setting, failure.why.as_str()), (Some(setting(4)), "this machine does not have it"));
    assert!(made.values == [1] && rig.entries.is_empty());
}

#[test]
fn settings_that_move_one_another_to_and_fro_are_given_up() {
    let mut made = obedient(&[1, 2]);
    (made.habits[0].moves, made.habits[1].moves) = (Some(1), Some(0));
    let failure = Rig::default().apply(&plan(&made, &[(0, 7), (1, 8)]), &mut made).expect("it is not killed").failure;
    assert_eq!(failure.expect("they cannot both be had").why, "another setting changes it again each time");
}

#[test]
fn foreign_changes_are_left_unless_undoing_is_forced() {
    let start = || {
        let (mut made, mut rig) = (obedient(&[1, 2]), Rig::default());
        rig.apply(&plan(&made, &[(0, 7), (1, 8)]), &mut made).expect("it is not killed");
        made.values[0] = 99;
        (made, rig)
    };
    let (mut made, mut rig) = start();
    for _ in 0..2 {
        let undone = rig.undo(Foreign::Leave, &mut made).expect("it is not killed");
        assert_eq!(undone.fates[0], (setting(0), Fate::Foreign { present: "99".to_owned() }));
        assert_eq!((undone.is_put_away, &made.values), (false, &vec![99, 2]));
    }
    // Killed half-way, and the foreign value is still left alone.
    for patience in 0..9 {
        let (mut made, rig) = start();
        let mut rig = rig.killed_after(patience, 1);
        rig.undo(Foreign::Leave, &mut made);
        rig.unharmed().undo(Foreign::Leave, &mut made);
        assert_eq!(made.values, [99, 2], "{patience}");
    }
    let undone = rig.undo(Foreign::Overwrite, &mut made).expect("it is not killed");
    assert_eq!((undone.is_put_away, made.values), (true, vec![1, 2]));
    let (mut made, mut rig) = start();
    let undone = rig.undo(Foreign::Keep, &mut made).expect("it is not killed");
    assert_eq!((undone.is_put_away, made.values), (true, vec![99, 2]));
}

#[test]
fn after_a_restart_only_what_was_put_there_is_taken_back() {
    let (mut made, mut rig) = (obedient(&[1, 2, 3]), Rig::default());
    let mut machine = plan(&made, &[(0, 7), (1, 8), (2, 9)]);
    rig = rig.killed_after(8, 0);
    rig.apply(&machine, &mut made);
    // The first one is kept by a file in sysctl.d, the second is back, the third was set to something else meanwhile.
    made.values = vec![7, 2, 55];
    let mut rig = Rig { restarts: 1, ..rig.unharmed() };
    let undone = rig.undo(Foreign::Leave, &mut made).expect("it is not killed");
    let fates: Vec<_> = undone.fates.into_iter().map(|(_, fate)| fate).collect();
    let from = "7".to_owned();
    assert_eq!(fates, [Fate::BroughtBack { from }, Fate::AlreadyBack, Fate::Foreign { present: "55".to_owned() }]);
    assert_eq!(made.values, [1, 2, 55]);
    machine.changes.clear();
    assert!(rig.apply(&machine, &mut made).expect("it is not killed").failure.is_none());
}

/// It may come back with what was put there, as a card that is moved to and fro.
#[test]
fn a_setting_that_is_gone_is_reported_and_keeps_the_journal_until_the_machine_is_started_again() {
    let start = || {
        let (mut made, mut rig) = (obedient(&[1, 2]), Rig::default());
        rig.apply(&plan(&made, &[(0, 7), (1, 8)]), &mut made).expect("it is not killed");
        let gone = made.values.pop();
        assert_eq!(gone, Some(8));
        (made, rig)
    };
    let (mut made, mut rig) = start();
    let undone = rig.undo(Foreign::Leave, &mut made).expect("it is not killed");
    assert_eq!((undone.fates[1].1.clone(), undone.is_put_away, &made.values), (Fate::Gone, false, &vec![1]));
    made.values.push(8);
    let undone = rig.undo(Foreign::Leave, &mut made).expect("it is not killed");
    assert_eq!((undone.is_put_away, made.values), (true, vec![1, 2]));
    let (mut made, mut rig) = start();
    rig.undo(Foreign::Leave, &mut made).expect("it is not killed");
    assert!(rig.undo(Foreign::Keep, &mut made).expect("it is not killed").is_put_away);
    let (mut made, rig) = start();
    let mut rig = Rig { restarts: 1, ..rig };
    let undone = rig.undo(Foreign::Leave, &mut made).expect("it is not killed");
    assert_eq!((undone.fates[1].1.clone(), undone.is_put_away), (Fate::Gone, true));
}

/// A setting that is back is no longer half-way: a later foreign change is left alone.
#[test]
fn one_that_cannot_be_brought_back_makes_no_others_ours() {
    let (mut made, mut rig) = (obedient(&[9, 2, 3]), Rig::default());
    rig.apply(&plan(&made, &[(0, 5), (1, 7), (2, 6)]), &mut made).expect("it is not killed");
    made.habits[0].refused = 8;
    let undone = rig.undo(Foreign::Leave, &mut made).expect("it is not killed");
    assert_eq!((undone.troubles.len(), undone.is_put_away, &made.values), (1, false, &vec![5, 2, 3]));
    made.values[1] = 33;
    made.habits[0].refused = u8::MAX;
    let undone = rig.undo(Foreign::Leave, &mut made).expect("it is not killed");
    assert_eq!(
        (undone.fates[1].1.clone(), &made.values),
        (Fate::Foreign { present: "33".to_owned() }, &vec![9, 33, 3])
    );

    // As well where an application could not be rolled back.
    let (mut made, mut rig) = (obedient(&[9, 2, 3]), Rig::default());
    (made.habits[0].refused, made.habits[2].refused) = (8, 5);
    let applied = rig.apply(&plan(&made, &[(0, 5), (1, 7), (2, 6)]), &mut made).expect("it is not killed");
    assert_eq!(applied.failure.expect("the last one is refused").not_brought_back.len(), 1);
    made.values[1] = 33;
    made.habits[0].refused = u8::MAX;
    rig.undo(Foreign::Leave, &mut made).expect("it is not killed");
    assert_eq!(made.values, [9, 33, 3]);
}

/// What the machine was started with is no more what it was when it was first changed.
#[test]
fn after_a_restart_the_old_value_is_what_the_machine_was_started_with() {
    let (mut made, mut rig) = (obedient(&[1, 2, 3, 4]), Rig::default());
    rig.apply(&plan(&made, &[(0, 7), (1, 8), (2, 9), (3, 9)]), &mut made).expect("it is not killed");
    // Our file in sysctl.d keeps the second one. Another file gave the third and the fourth new values; of the fourth
    // the first plan after the restart only sees that it is not ours.
    made.values = vec![1, 8, 33, 44];
    rig.restarts = 1;
    for changes in [vec![(0, 7), (1, 80), (2, 9)], vec![(3, 9)]] {
        let applied = rig.apply(&plan(&made, &changes), &mut made).expect("it is not killed");
        assert_eq!(applied.failure, None);
    }
    assert_eq!(made.values, [7, 80, 9, 9]);
    assert!(rig.undo(Foreign::Leave, &mut made).expect("it is not killed").is_put_away);
    assert_eq!(made.values, [1, 2, 33, 44]);
    // Within one start a third value may be what another setting made of it.
    let (mut made, mut rig) = (obedient(&[1]), Rig::default());
    for value in [7, 8] {
        rig.apply(&plan(&made, &[(0, value)]), &mut made).expect("it is not killed");
        made.values[0] = 5;
    }
    rig.undo(Foreign::Overwrite, &mut made).expect("it is not killed");
    assert_eq!(made.values, [1]);
}

/// Files that keep any value that is written.
struct Files(Vec<(Setting, String)>);

impl Settings for Files {
    fn read(&mut self, setting: &Setting) -> Result<Option<String>, SettingError> {
        Ok(self.0.iter().find(|(other, _)| other == setting).map(|(_, value)| value.clone()))
    }

    fn write(&mut self, setting: &Setting, value: &str) -> Result<(), SettingError> {
        let file = self.0.iter_mut().find(|(other, _)| other == setting);
        file.map(|(_, old)| value.clone_into(old)).ok_or_else(|| SettingError::Missing(setting.clone()))
    }
}

fn file(path: &str) -> Setting {
    Setting::File { path: path.to_owned(), form: Form::CpuList }
}

fn asked(settings: &[(Setting, &str)]) -> Plan {
    let change = |(setting, to): &(Setting, &str)| {
        let (setting, to, from) = (setting.clone(), (*to).to_owned(), String::new());
        Change { setting, from, to, group: Group::Interrupts, rule: "made".to_owned() }
    };
    Plan { changes: settings.iter().map(change).collect() }
}

#[test]
fn interrupts_of_an_earlier_start_are_others_now() {
    let irq = |number: u32| file(&format!("proc/irq/{number}/smp_affinity_list"));
    let machine = |values: [&str; 2]| Files(vec![(irq(120), values[0].to_owned()), (irq(121), values[1].to_owned())]);
    let (mut files, mut rig) = (machine(["0", "1"]), Rig::default());
    rig.apply(&asked(&[(irq(120), "4"), (irq(121), "5")]), &mut files).expect("it is not killed");
    // In the next start 120 is of another card, which has it where we would have put it.
    rig.restarts = 1;
    let mut files = machine(["4", "0-15"]);
    rig.apply(&asked(&[(irq(121), "5")]), &mut files).expect("it is not killed");
    let undone = rig.undo(Foreign::Leave, &mut files).expect("it is not killed");
    let values: Vec<_> = files.0.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!((values, undone.is_put_away), (vec!["4", "0-15"], true));
    assert_eq!(undone.fates[0], (irq(120), Fate::AlreadyBack));
}

fn thread(begun: u64) -> Setting {
    Setting::Thread(RunningThread { process: 4711, thread: 4712, begun, name: "ru0".to_owned() })
}

/// A machine on which a thread ends after it was asked for so often, and another one gets its number.
struct Mortal {
    files: Files,
    asked: usize,
}

impl Mortal {
    fn ask(&mut self, setting: &Setting) {
        let first = self.files.0.iter_mut().find(|(other, _)| other == setting && *setting == thread(7));
        if let Some((setting, value)) = first {
            if self.asked == 0 {
                (*setting, *value) = (thread(9), "0-3".to_owned());
            }
            self.asked = self.asked.saturating_sub(1);
        }
    }
}

impl Settings for Mortal {
    fn read(&mut self, setting: &Setting) -> Result<Option<String>, SettingError> {
        self.ask(setting);
        self.files.read(setting)
    }

    fn write(&mut self, setting: &Setting, value: &str) -> Result<(), SettingError> {
        self.ask(setting);
        // As a place does it: who has ended needs nothing.
        if setting.may_end() && self.files.read(setting)?.is_none() { Ok(()) } else { self.files.write(setting, value) }
    }
}

#[test]
fn threads_that_have_ended_are_passed_over_whenever_that_is() {
    let other = file("sys/other");
    let mut fates = Vec::new();
    for asked_before in 0..60 {
        let files = Files(vec![(thread(7), "0-15".to_owned()), (other.clone(), "1".to_owned())]);
        let (mut machine, mut rig) = (Mortal { files, asked: asked_before }, Rig::default());
        let plan = asked(&[(thread(7), "4"), (other.clone(), "2")]);
        for patience in 0..12 {
            let mut killed = rig.killed_after(patience, 0);
            if killed.apply(&plan, &mut machine).is_some() {
                break;
            }
            rig = killed.unharmed();
        }
        let applied = rig.apply(&plan, &mut machine).expect("it is not killed");
        assert_eq!((applied.failure, machine.files.0[1].1.as_str()), (None, "2"), "{asked_before}");
        let undone = rig.undo(Foreign::Leave, &mut machine).expect("it is not killed");
        assert!(undone.is_put_away && undone.troubles.is_empty(), "{asked_before}: {undone:?}");
        let has_ended = machine.files.0[0].0 == thread(9);
        let values: Vec<_> = machine.files.0.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(
            values,
            [if has_ended { "0-3" } else { "0-15" }, "1"],
            "{asked_before}: the other one is left alone"
        );
        fates.extend(undone.fates.into_iter().find(|(setting, _)| *setting == thread(7)).map(|(_, fate)| fate));
    }
    assert!(fates.contains(&Fate::Ended) && fates.contains(&Fate::BroughtBack { from: "4".to_owned() }), "{fates:?}");
}

#[test]
fn threads_of_an_earlier_start_have_ended() {
    let (mut files, mut rig) = (Files(vec![(thread(7), "0-15".to_owned())]), Rig::default());
    rig.apply(&asked(&[(thread(7), "4")]), &mut files).expect("it is not killed");
    // Another thread with the same number and start time, placed by another program.
    rig.restarts = 1;
    let undone = rig.undo(Foreign::Leave, &mut files).expect("it is not killed");
    assert_eq!((undone.fates, undone.is_put_away), (vec![(thread(7), Fate::Ended)], true));
    assert_eq!(files.0[0].1, "4");
}

/// A card that has a file for each of its queues.
struct Queues(Vec<String>);

impl Queues {
    fn index(setting: &Setting) -> Option<usize> {
        (0..9).find(|index| *setting == queue(*index))
    }
}

fn queue(index: usize) -> Setting {
    file(&format!("sys/class/net/eth0/queues/rx-{index}/rps_cpus"))
}

fn channels() -> Setting {
    Setting::sysctl("made.channels")
}

impl Settings for Queues {
    fn read(&mut self, setting: &Setting) -> Result<Option<String>, SettingError> {
        Ok(Self::index(setting).map_or_else(|| Some(self.0.len().to_string()), |index| self.0.get(index).cloned()))
    }

    fn write(&mut self, setting: &Setting, value: &str) -> Result<(), SettingError> {
        let Some(index) = Self::index(setting) else {
            // Queues that come begin anew.
            self.0.resize(value.parse().expect("a number"), "9".to_owned());
            return Ok(());
        };
        let file = self.0.get_mut(index).ok_or_else(|| SettingError::Missing(setting.clone()))?;
        value.clone_into(file);
        Ok(())
    }
}

#[test]
fn what_comes_back_with_others_is_brought_back_too() {
    let (mut card, mut rig) = (Queues(vec!["0".to_owned(); 4]), Rig::default());
    for (setting, value) in [(queue(3), "2"), (channels(), "2")] {
        rig.apply(&asked(&[(setting, value)]), &mut card).expect("it is not killed");
    }
    let undone = rig.undo(Foreign::Overwrite, &mut card).expect("it is not killed");
    assert_eq!(undone.fates[0].1, Fate::BroughtBack { from: "9".to_owned() });
    assert!(undone.is_put_away && card.0[3] == "0", "{:?}", card.0);
}

#[test]
fn times_are_written_in_utc() {
    let at = |seconds| utc(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
    assert_eq!(at(1_795_219_199), "2026-11-20T23:59:59Z");
}

/// The machine takes less than the plan says: whether what is there then is ours is known from the journal alone.
#[test]
fn a_second_plan_does_not_forget_that_the_first_one_was_killed_half_way() {
    let habit = |most| Habit { most, refused: u8::MAX, moves: None, limits: None };
    let mut half_way = 0;
    for patience in 0.. {
        let mut made = Made { habits: vec![habit(3), habit(u8::MAX)], values: vec![0, 0] };
        let mut rig = Rig { patience: Some(patience), ..Rig::default() };
        if rig.apply(&plan(&made, &[(0, 5), (1, 1)]), &mut made).is_some() {
            break;
        }
        if made.values[0] != 3 {
            continue;
        }
        half_way += 1;
        rig = rig.unharmed();
        rig.apply(&plan(&made, &[(1, 2)]), &mut made).expect("it is not killed");
        assert_eq!(made.values, [3, 2], "killed after {patience} actions");
        rig.undo(Foreign::Leave, &mut made).expect("it is not killed");
        assert_eq!(made.values, [0, 0], "killed after {patience} actions");
    }
    assert!(half_way > 0, "the first plan writes the setting before it is killed");
}
