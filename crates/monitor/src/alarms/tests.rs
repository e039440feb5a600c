//! Alarms on made-up runs.

use super::{AlarmError, Alarms, Condition, Quantity, Rule, Severity, State, built_in};
use crate::bottleneck::Finder;
use crate::made_up::{held_back, node, sample, source};
use crate::quality::{Problem, ProblemKind, Quality, QualityMonitor};
use crate::{Activity, RunTrend, Sample};
use core::time::Duration;
use ropewalk_terms::{Counter, EventAccount, Instant, NodeId, RunNumber, Utc};
use std::sync::Arc;

const SECOND: Duration = Duration::from_secs(1);

/// Raised while more than 10 blocks are held.
fn rule(hold: Duration, is_latched: bool) -> Rule {
    Rule {
        name: "pool".to_owned(),
        severity: Severity::Warning,
        quantity: Quantity::Value(Counter::PoolHeld),
        condition: Condition::Above(10.0),
        hold,
        is_latched,
    }
}

fn alarms(rule: Rule) -> Alarms {
    Alarms::new(vec![rule]).expect("one name")
}

fn holding(seconds: u64, blocks: u64) -> Sample {
    let mut sample = sample(seconds, Vec::new());
    sample.utc = Utc(seconds as i64 * 1_000_000_000);
    sample.nodes = vec![node(NodeId::readout(0), &[(Counter::PoolHeld, blocks)])];
    sample
}

/// The alarm after a sample a second, each with this many blocks held.
fn states(alarms: &mut Alarms, from: u64, blocks: &[u64]) -> Vec<State> {
    let after = |(place, &blocks): (usize, &u64)| {
        alarms.observe(holding(from + place as u64, blocks), None, &Quality::default());
        alarms.all()[0].state
    };
    blocks.iter().enumerate().map(after).collect()
}

#[test]
fn a_condition_has_to_hold_and_its_limit_is_still_good() {
    use State::{Active, Normal, Pending};
    let mut alarms = alarms(rule(2 * SECOND, false));
    let states = states(&mut alarms, 1, &[10, 11, 10, 11, 11, 11, 11, 10]);
    assert_eq!(states, [Normal, Pending, Normal, Pending, Pending, Active, Active, Normal]);
}

#[test]
fn without_a_hold_time_it_is_raised_at_once() {
    assert_eq!(states(&mut alarms(rule(Duration::ZERO, false)), 1, &[11, 0]), [State::Active, State::Normal]);
}

#[test]
fn a_latched_alarm_stays_until_it_is_acknowledged() {
    let mut alarms = alarms(rule(Duration::ZERO, true));
    assert_eq!(states(&mut alarms, 1, &[11, 0, 0]), [State::Active, State::Latched, State::Latched]);
    assert_eq!(alarms.shown().len(), 1);
    assert_eq!(states(&mut alarms, 4, &[11, 0]), [State::Active, State::Latched]);
    alarms.acknowledge("pool", "Ada").expect("it was raised");
    assert_eq!((alarms.all()[0].state, alarms.shown().len()), (State::Normal, 0));
}

#[test]
fn an_acknowledged_alarm_ends_by_itself_and_is_raised_anew() {
    let mut alarms = alarms(rule(Duration::ZERO, true));
    states(&mut alarms, 1, &[11]);
    alarms.acknowledge("pool", "Ada").expect("it is raised");
    alarms.acknowledge("pool", "Ada").expect("twice is no mistake");
    assert_eq!(states(&mut alarms, 2, &[11, 0, 11]), [State::Acknowledged, State::Normal, State::Active]);
    let by: Vec<_> = alarms.changes_from(0).filter_map(|change| change.by.as_deref()).collect();
    assert_eq!(by, ["Ada"]);
}

/// Known before: it was shelved until this long after the machine had been switched on.
#[test]
fn what_is_shelved_before_the_first_look_is_shelved_from_then_on() {
    let mut alarms = alarms(rule(Duration::ZERO, false));
    alarms.shelve("pool", 10 * SECOND, "Bob").expect("it is there");
    states(&mut alarms, 5_000, &[11, 11]);
    assert!(alarms.shown().is_empty());
    states(&mut alarms, 5_009, &[11, 11]);
    assert_eq!(alarms.shown().len(), 1);
}

#[test]
fn without_a_run_nothing_is_wrong_and_shelves_come_to_their_end() {
    for (is_latched, then) in [(false, State::Normal), (true, State::Latched)] {
        let mut alarms = alarms(rule(Duration::ZERO, is_latched));
        alarms.rest(SECOND);
        states(&mut alarms, 100, &[11]);
        alarms.shelve("pool", 3 * SECOND, "Bob").expect("it is there");
        let shelved_for = |alarms: &Alarms| alarms.shelved_for(&alarms.all()[0]);
        alarms.rest(SECOND);
        assert_eq!((alarms.all()[0].state, shelved_for(&alarms)), (then, Some(2 * SECOND)));
        alarms.rest(2 * SECOND);
        assert_eq!((shelved_for(&alarms), &alarms.all()[0].shelved_by), (None, &None));
        assert_eq!(alarms.changes_from(0).last().map(|change| change.utc_nanoseconds), Some(101_000_000_000));
        // The next run is another one.
        assert_eq!(states(&mut alarms, 200, &[11]), [State::Active]);
    }
}

#[test]
fn an_alarm_names_who_acknowledged_and_who_shelved_it_while_that_lasts() {
    let mut alarms = alarms(rule(Duration::ZERO, false));
    states(&mut alarms, 1, &[11]);
    alarms.acknowledge("pool", "Ada").expect("it is raised");
    alarms.shelve("pool", 2 * SECOND, "Bob").expect("it is there");
    let said = |alarms: &Alarms| {
        let alarm = &alarms.all()[0];
        (alarm.known_by.clone(), alarm.shelved_by.clone())
    };
    assert_eq!(said(&alarms), (Some("Ada".to_owned()), Some("Bob".to_owned())));
    states(&mut alarms, 2, &[0]);
    assert_eq!(said(&alarms), (None, Some("Bob".to_owned())));
    states(&mut alarms, 3, &[0]);
    assert_eq!(said(&alarms), (None, None));
}

#[test]
fn a_run_that_differs_from_its_reference_raises_an_alarm() {
    let quantity: Quantity = "reference:bytes_in_per_second".parse().expect("there is such a series");
    assert_eq!(quantity.to_string(), "reference:bytes_in_per_second");
    let wrong = "reference:beauty".parse::<Quantity>().expect_err("there is no such series").to_string();
    assert!(wrong.contains("pool_share"), "{wrong}");
    let mut alarms = alarms(Rule { quantity, condition: Condition::Below(-20.0), ..rule(Duration::ZERO, false) });
    let bytes = vec![Some(1000.0), Some(1000.0), Some(2000.0), None, Some(0.0)];
    let series = [("bytes_in_per_second".to_owned(), bytes)].into();
    let trend = Arc::new(RunTrend { schema: RunTrend::SCHEMA.to_owned(), run: 2, step_seconds: 1, series });
    let mut after = |age: u64, received: u64| {
        alarms.compare_with(Some((Arc::clone(&trend), Duration::from_secs(age))));
        alarms.observe(sample(100 + age, vec![source(1, received)]), None, &Quality::default());
        (alarms.all()[0].state, alarms.all()[0].value)
    };
    // A fragment has 100 bytes; at the first look there is no rate.
    assert_eq!(after(0, 0), (State::Normal, None));
    assert_eq!(after(1, 10), (State::Normal, Some(0.0)));
    assert_eq!(after(2, 20), (State::Active, Some(-50.0)));
    assert_eq!(after(3, 30), (State::Active, Some(-50.0)), "of what is not known nothing is said");
    assert_eq!(after(4, 40), (State::Normal, Some(100.0)), "there was nothing, and now there is");
    alarms.compare_with(None);
    alarms.observe(sample(105, vec![source(1, 40)]), None, &Quality::default());
    assert_eq!(alarms.all()[0].value, Some(100.0), "without a reference nothing is compared");
}

#[test]
fn what_is_not_raised_or_not_there_cannot_be_acknowledged() {
    let mut alarms = alarms(rule(SECOND, true));
    assert_eq!(alarms.acknowledge("pool", "Ada"), Err(AlarmError::NotRaised("pool".to_owned())));
    states(&mut alarms, 1, &[11]);
    assert_eq!(alarms.acknowledge("pool", "Ada"), Err(AlarmError::NotRaised("pool".to_owned())));
    let error = alarms.acknowledge("pond", "Ada").expect_err("there is no such alarm");
    assert_eq!(error.to_string(), "there is no alarm pond; there are pool");
}

#[test]
fn a_shelved_alarm_is_not_shown_until_its_time_is_over_and_goes_on_underneath() {
    let mut alarms = alarms(rule(Duration::ZERO, false));
    states(&mut alarms, 1, &[11]);
    alarms.shelve("pool", 2 * SECOND, "Bob").expect("it is there");
    assert!(alarms.shown().is_empty());
    assert_eq!(states(&mut alarms, 2, &[11]), [State::Active]);
    assert!(alarms.shown().is_empty());
    states(&mut alarms, 3, &[11]);
    assert_eq!(alarms.shown().len(), 1);
    alarms.shelve("pool", SECOND, "Bob").expect("it is there");
    alarms.shelve("pool", Duration::ZERO, "Bob").expect("it is there");
    assert_eq!(alarms.shown().len(), 1);
}

#[test]
fn what_cannot_be_told_leaves_an_alarm_as_it_is() {
    let growth = Rule {
        quantity: Quantity::Growth(Counter::CrcErrors),
        condition: Condition::Above(0.0),
        ..rule(Duration::ZERO, false)
    };
    let mut alarms = alarms(growth);
    let wrong = |seconds, count| {
        let mut sample = sample(seconds, vec![source(1, 5)]);
        sample.sources[0].numbers.add(Counter::CrcErrors, count);
        sample
    };
    alarms.observe(wrong(1, 4), None, &Quality::default());
    assert_eq!((alarms.all()[0].state, alarms.all()[0].value), (State::Normal, None));
    alarms.observe(wrong(3, 8), None, &Quality::default());
    assert_eq!((alarms.all()[0].state, alarms.all()[0].value), (State::Active, Some(2.0)));
    // The same moment once more has no rate.
    alarms.observe(wrong(3, 8), None, &Quality::default());
    assert_eq!(alarms.all()[0].state, State::Active);
    alarms.observe(wrong(4, 8), None, &Quality::default());
    assert_eq!(alarms.all()[0].state, State::Normal);
}

#[test]
fn changes_are_numbered_and_the_oldest_are_forgotten() {
    let mut alarms = alarms(rule(Duration::ZERO, false));
    for second in 0..1_200 {
        states(&mut alarms, second, &[11 * (second % 2)]);
    }
    let numbers: Vec<_> = alarms.changes_from(0).map(|change| change.number).collect();
    assert_eq!((numbers.len(), numbers[0], numbers[999]), (1_000, 199, 1_198));
    assert_eq!(alarms.changes_from(1_198).count(), 1);
}

#[test]
fn rules_on_rates_and_counts_hold_only_while_a_run_takes_data() {
    let slow = Rule { quantity: Quantity::EventRate, condition: Condition::Below(5.0), ..rule(Duration::ZERO, false) };
    let mut alarms = Alarms::new(vec![Rule { name: "slow".to_owned(), ..slow }, rule(Duration::ZERO, false)])
        .expect("their names differ");
    for (second, phase, states) in [
        (1, "configured", [State::Normal; 2]),
        (2, "configured", [State::Normal; 2]),
        (3, "running", [State::Active; 2]),
        (4, crate::PAUSED, [State::Normal; 2]),
        (5, "draining", [State::Normal, State::Active]),
        (6, "ended", [State::Normal; 2]),
    ] {
        alarms.observe(Sample { phase, ..holding(second, 11) }, None, &Quality::default());
        assert_eq!([0, 1].map(|place| alarms.all()[place].state), states, "{phase}");
    }
}

#[test]
fn the_sentence_of_an_alarm_that_is_over_says_so() {
    let missing =
        Rule { quantity: Quantity::NodesMissing, condition: Condition::Above(0.0), ..rule(Duration::ZERO, true) };
    let mut alarms = alarms(missing);
    let mut sentence = |second, is_connected| {
        let mut sample = holding(second, 0);
        sample.nodes[0].is_connected = is_connected;
        alarms.observe(sample, None, &Quality::default());
        alarms.all()[0].sentence.clone()
    };
    let (now, earlier) = ("ru0 not connected to the event manager", "earlier: ru0 not connected to the event manager");
    for (second, is_connected, expected) in [(1, false, now), (2, true, earlier), (3, true, earlier), (4, false, now)] {
        assert_eq!(sentence(second, is_connected), expected, "second {second}");
    }
}

#[test]
fn an_alarm_names_all_problems_since_it_was_raised_and_until_it_is_acknowledged() {
    let mut alarms =
        alarms(Rule { quantity: Quantity::Data(ProblemKind::FragmentsLost), ..rule(Duration::ZERO, true) });
    alarms.alarms[0].rule.condition = Condition::Above(0.0);
    let problem = |source: u32, last: i64, is_current| Problem {
        kind: ProblemKind::FragmentsLost,
        source: Some(source),
        count: 1,
        since_ns: 0,
        last_ns: last * 1_000_000_000,
        is_current,
        sentence: format!("source {source}: 1 fragment lost"),
    };
    let mut at = |second: u64, problems: Vec<Problem>| {
        let mut sample = holding(second, 0);
        sample.utc = Utc(second as i64 * 1_000_000_000);
        alarms.observe(sample, None, &Quality { problems, ..Quality::default() });
        (alarms.all()[0].state, alarms.all()[0].sentence.clone())
    };
    let (one, both) = ("source 1: 1 fragment lost", "source 2: 1 fragment lost; earlier: source 1: 1 fragment lost");
    assert_eq!(at(10, vec![problem(1, 10, true), problem(3, 2, false)]), (State::Active, one.to_owned()));
    assert_eq!(at(30, vec![problem(1, 19, false)]), (State::Latched, format!("earlier: {one}")));
    assert_eq!(at(40, vec![problem(2, 40, true), problem(1, 19, false)]), (State::Active, both.to_owned()));
}

#[test]
fn an_alarm_without_a_sentence_of_its_quantity_says_value_and_limit() {
    let mut alarms = alarms(rule(Duration::ZERO, false));
    states(&mut alarms, 1, &[11]);
    assert_eq!(alarms.all()[0].sentence, "total:pool_held is 11, above 10");
}

#[test]
fn a_name_that_is_too_long_is_cut_between_characters() {
    let mut alarms = alarms(rule(Duration::ZERO, false));
    states(&mut alarms, 1, &[11]);
    alarms.acknowledge("pool", &"aé".repeat(50)).expect("it is raised");
    let by = alarms.changes_from(0).last().and_then(|change| change.by.clone()).expect("an operator did");
    assert_eq!(by, format!("{}a", "aé".repeat(21)));
}

#[test]
fn two_alarms_of_one_name_are_refused() {
    let twice = Alarms::new(vec![rule(SECOND, true), rule(SECOND, false)]).expect_err("one name");
    assert_eq!(twice, AlarmError::Twice("pool".to_owned()));
    assert!(Alarms::new(built_in()).is_ok());
}

/// Which of the built-in alarms are shown after twenty seconds of this, a sample a second.
fn shown_after(of: impl Fn(u64) -> Sample) -> Vec<String> {
    let (mut alarms, mut activity) = (Alarms::new(built_in()).expect("their names differ"), Activity::default());
    let (mut last, mut quality) = (None::<Sample>, QualityMonitor::default());
    for second in 1..=20 {
        let sample = of(second);
        activity.observe(&sample);
        let finding = last.as_ref().and_then(|before| crate::bottleneck::find(before, &sample, &activity));
        quality.observe(sample.clone());
        alarms.observe(sample.clone(), finding.as_ref(), quality.quality());
        last = Some(sample);
    }
    alarms.shown().into_iter().map(|alarm| alarm.rule.name.clone()).collect()
}

fn built(events: u64) -> EventAccount {
    EventAccount { built: events, ..EventAccount::default() }
}

#[test]
fn no_triggers_a_slow_disk_and_a_dead_data_acquisition_are_distinct() {
    let good = |second| Sample { events: built(second), ..sample(second, vec![source(1, second)]) };
    assert!(shown_after(good).is_empty());
    let no_triggers = |_| sample(0, vec![source(1, 5)]);
    let at = |second, of: Sample| Sample { time: sample(second, Vec::new()).time, ..of };
    assert_eq!(shown_after(|second| at(second, no_triggers(second))), ["no_triggers"]);
    // Fragments come, and no event is built of them.
    assert_eq!(shown_after(|second| sample(second, vec![source(1, second)])), ["data_acquisition_dead"]);
    let gone = |second| {
        let mut sample = sample(second, vec![source(1, 5)]);
        sample.nodes[1].is_connected = false;
        sample
    };
    assert_eq!(shown_after(gone), ["node_missing", "data_acquisition_dead"]);
    // Events are built, and the builder unit waits for its disk.
    let slow = |second| {
        let mut sample = good(second);
        sample.sources = vec![held_back(source(1, second), Duration::from_millis(990 * second))];
        for counter in [Counter::BuilderFullTime, Counter::DiskBusyTime] {
            sample.nodes[1].numbers.add(counter, second * 980_000_000);
        }
        sample
    };
    assert_eq!(shown_after(slow), ["disk_slow"]);
    // Nothing comes of a node that hangs either.
    let hangs = |second: u64| {
        let mut sample = sample(second, vec![source(1, 5)]);
        sample.nodes[0].reported = Some(Instant::from_nanoseconds(second.min(3)));
        sample
    };
    assert_eq!(shown_after(hangs), ["node_silent", "data_acquisition_dead"]);
    let stopped = |second| Sample { phase: "configured", ..sample(second, vec![source(1, 5)]) };
    assert!(shown_after(stopped).is_empty());
}

#[test]
fn a_dead_data_acquisition_names_the_cause_and_never_says_that_all_is_well() {
    let (mut finder, mut quality) = (Finder::default(), QualityMonitor::default());
    let mut alarms = Alarms::new(built_in()).expect("their names differ");
    let mut sentence = |second: u64, hangs: bool| {
        let mut sample = sample(second, vec![source(1, 100 * second)]);
        sample.nodes[1].reported = Some(Instant::from_nanoseconds(if hangs { 1 } else { second }));
        finder.observe(sample.clone());
        quality.observe(sample.clone());
        alarms.observe(sample, finder.finding(), quality.quality());
        let alarm =
            alarms.all().iter().find(|alarm| alarm.rule.name == "data_acquisition_dead").expect("it is built in");
        alarm.sentence.clone()
    };
    let pending = (1..=5).map(|second| sentence(second, false)).last().expect("some");
    assert_eq!(pending, "no event is built, and no unit says why");
    (6..=14).for_each(|second| _ = sentence(second, true));
    let words = "no event was built in 14 s; bu0 has not reported for 9 s: it hangs or is stopped";
    assert_eq!(sentence(15, true), words);
}

/// Nodes leave at the end of a run, and come to the next one within seconds.
#[test]
fn nodes_that_come_back_between_two_runs_raise_no_alarm() {
    let mut alarms = Alarms::new(built_in()).expect("their names differ");
    let mut states = |run, seconds: core::ops::Range<u64>, phase: &'static str, is_connected| {
        for second in seconds {
            let mut sample = Sample { run: RunNumber(run), phase, ..sample(second, Vec::new()) };
            sample.nodes[0].is_connected = is_connected;
            alarms.observe(sample, None, &Quality::default());
        }
        alarms.all().iter().find(|alarm| alarm.rule.name == "node_missing").expect("it is built in").state
    };
    assert_eq!(states(1, 1..10, "running", true), State::Normal);
    assert_eq!(states(1, 10..14, "ended", false), State::Normal);
    assert_eq!(states(2, 14..22, "initial", false), State::Normal);
    assert_eq!(states(2, 22..30, "configured", true), State::Normal);
    assert_eq!(states(3, 40..53, "initial", false), State::Active, "it does not come back");
}

#[test]
fn the_worst_is_shown_first() {
    let critical = Rule { name: "worse".to_owned(), severity: Severity::Critical, ..rule(Duration::ZERO, false) };
    let mut alarms = Alarms::new(vec![rule(Duration::ZERO, false), critical]).expect("their names differ");
    alarms.observe(holding(1, 11), None, &Quality::default());
    assert_eq!(alarms.shown()[0].rule.name, "worse");
}

#[test]
fn quantities_are_written_as_they_are_read() {
    for text in [
        "events_per_second",
        "live_share",
        "dead",
        "total:crc_errors",
        "per_second:events_built",
        "limited_by:disk_full",
        "data:source_out_of_step",
        "phase:draining",
    ] {
        let quantity: Quantity = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(quantity.to_string(), text);
    }
    for (wrong, said) in [
        ("events", "`events` is no quantity"),
        ("total:crc_error", "is it crc_errors"),
        ("limited_by:gremlins", "no limit is named `gremlins`: there are not_running, "),
        ("data:gremlins", "no problem of the data is named `gremlins`: there are node_missing, "),
        ("phase:lunch", "there are initial, configured"),
        ("sum:crc_errors", "`sum:crc_errors` is no quantity"),
    ] {
        let error = wrong.parse::<Quantity>().expect_err(wrong).to_string();
        assert!(error.contains(said), "{wrong}: {error}");
    }
}

#[test]
fn a_rule_on_a_phase_holds_in_that_phase() {
    let quantity = Quantity::Phase("draining");
    let mut alarms = alarms(Rule { quantity, condition: Condition::Above(0.0), ..rule(Duration::ZERO, false) });
    for (second, phase, state) in
        [(1, "running", State::Normal), (2, "draining", State::Active), (3, "ended", State::Normal)]
    {
        alarms.observe(Sample { phase, ..holding(second, 0) }, None, &Quality::default());
        assert_eq!(alarms.all()[0].state, state, "{phase}");
    }
}

#[test]
fn each_problem_of_the_data_raises_the_alarm_of_its_name_with_its_sentence() {
    let rules = built_in();
    for kind in ProblemKind::ALL {
        let quantity = Quantity::Data(kind);
        let name = quantity.to_string().replace("data:", "");
        let rule = rules.iter().find(|rule| rule.name == name).unwrap_or_else(|| panic!("{kind:?}"));
        // These two are also looked at before the run.
        let is_counted = matches!(rule.quantity, Quantity::NodesMissing | Quantity::Dead);
        assert!(is_counted || rule.quantity == quantity, "{kind:?}");
    }
    let (mut alarms, mut quality) = (Alarms::new(built_in()).expect("their names differ"), QualityMonitor::default());
    for second in 1..=3 {
        let mut late = sample(second, vec![source(1, second)]);
        late.sources[0].account.late = 2;
        late.events.built = second;
        quality.observe(late.clone());
        alarms.observe(late, None, quality.quality());
    }
    let shown: Vec<_> =
        alarms.shown().iter().map(|alarm| (alarm.rule.name.as_str(), alarm.sentence.as_str())).collect();
    assert_eq!(shown, [("fragments_lost", "source 1: 2 fragments lost: 2 late")]);
}

#[test]
fn the_manual_has_a_section_for_each_alarm_with_its_severity() {
    let manual = include_str!("../../../../docs/alarms.md");
    let sections: Vec<_> = manual.split("\n## ").skip(1).collect();
    for rule in built_in() {
        let begin = format!("{}\n**{:?}.**", rule.name, rule.severity);
        assert!(sections.iter().any(|section| section.starts_with(&begin)), "no section begins with {begin}");
    }
    assert_eq!(sections.len(), built_in().len());
}
