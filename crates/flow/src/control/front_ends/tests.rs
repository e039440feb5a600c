//! Each arrow of the picture, and front ends that are slow, fail, leave or return.

use super::*;
use crate::control::{RunCommand, RunPhase};
use proptest::prelude::*;
use ropewalk_terms::{EventKey, Instant, RunNumber, SourceId};
use ropewalk_wire::front_end::{Command, Failed, Held, Hello, Stage, Status, Stop, Stopped, Vetoed, Word};
use std::time::Duration;

const RUN: RunNumber = RunNumber(7);
const TRIGGER: usize = 0;
const ANSWER: Duration = Duration::from_secs(10);

fn at(seconds: f64) -> Instant {
    Instant::from_nanoseconds((seconds * 1e9) as u64)
}

fn order() -> RunOrder {
    RunOrder { run: RUN, first: EventKey::new(0, 1), last: None, addresses: vec!["ru0".to_owned(); 3] }
}

/// The trigger source, a telescope, and one that is not required.
fn front_ends() -> FrontEnds {
    let member = |id, is_trigger, is_required| FrontEndConfig {
        source: SourceId(id),
        is_trigger,
        is_required,
        settings: format!("id = {id}"),
    };
    let front_ends = vec![member(1, true, true), member(2, false, true), member(3, false, false)];
    FrontEnds::new(FrontEndsConfig { front_ends, answer: ANSWER, drain: 3 * ANSWER })
}

fn hello(stage: Stage, run: RunNumber) -> Hello {
    Hello { stage, run, ..Hello::new(SourceId(1), "any") }
}

/// All actions due now, without pings.
fn actions(front_ends: &mut FrontEnds, now: Instant) -> Vec<FrontEndAction> {
    std::iter::from_fn(|| front_ends.poll(now))
        .filter(|action| !matches!(action, FrontEndAction::Tell(_, Command::Ping)))
        .collect()
}

/// The next actions, abbreviated: the kind of each command, and its receiver (9 for the nodes).
fn told(front_ends: &mut FrontEnds, now: Instant) -> Vec<(usize, String)> {
    let short = |action| match action {
        FrontEndAction::Tell(place, command) => (place, format!("{:?}", command.kind())),
        FrontEndAction::Nodes(RunCommand::Start { .. }) => (9, "Start".to_owned()),
        FrontEndAction::Nodes(RunCommand::Stop { last }) => (9, format!("Stop {:?}", last.map(EventKey::number))),
        FrontEndAction::Nodes(other) => (9, format!("{other:?}")),
    };
    actions(front_ends, now).into_iter().map(short).collect()
}

fn told_all(kind: &str, places: impl IntoIterator<Item = usize>) -> Vec<(usize, String)> {
    places.into_iter().map(|place| (place, kind.to_owned())).collect()
}

fn connect_all(front_ends: &mut FrontEnds, now: Instant) {
    (0..3).for_each(|place| front_ends.connected(now, place, hello(Stage::Idle, RunNumber(0))));
}

/// A run with triggers.
fn running() -> FrontEnds {
    let mut front_ends = front_ends();
    connect_all(&mut front_ends, at(0.0));
    front_ends.start(at(0.0), order());
    (0..3).for_each(|place| front_ends.heard(at(0.1), place, &Word::Ready(RUN)));
    front_ends.nodes_are(at(0.2), RunPhase::Running);
    (0..3).for_each(|place| front_ends.heard(at(0.3), place, &Word::Started(RUN)));
    front_ends.heard(at(0.4), TRIGGER, &Word::Enabled(RUN));
    actions(&mut front_ends, at(0.4));
    assert_eq!(front_ends.phase(), FrontEndPhase::Running);
    front_ends
}

fn vetoed(last: u64) -> Word {
    Word::Vetoed(Vetoed { run: RUN, last, issued: last, vetoed: Vec::new() })
}

fn held(last: u64) -> Word {
    Word::Held(Held { run: RUN, last })
}

fn stopped(last: u64) -> Word {
    Word::Stopped(Stopped { run: RUN, first: Some(1), last: Some(last), sent: last })
}

/// The incidents except silence: no front end answers pings here.
fn kinds(front_ends: &FrontEnds) -> Vec<(u32, IncidentKind)> {
    let incidents = front_ends.incidents().0.iter().filter(|incident| incident.kind != IncidentKind::Silent);
    incidents.map(|incident| (incident.source.0, incident.kind.clone())).collect()
}

#[test]
fn a_run_begins_and_ends_in_order() {
    let mut run = front_ends();
    run.start(at(0.0), order());
    assert_eq!(told(&mut run, at(0.0)), [], "no front end is connected");
    connect_all(&mut run, at(1.0));
    assert_eq!(told(&mut run, at(1.0)), told_all("Configure", 0..3));
    run.heard(at(1.1), 1, &Word::Ready(RUN));
    run.heard(at(1.1), 2, &Word::Ready(RUN));
    assert_eq!(told(&mut run, at(1.1)), [], "the last one is waited for");
    run.heard(at(1.2), TRIGGER, &Word::Ready(RUN));
    assert_eq!(told(&mut run, at(1.2)), told_all("Start", [9]), "the nodes");
    run.nodes_are(at(1.3), RunPhase::Running);
    assert_eq!(told(&mut run, at(1.3)), told_all("Start", 0..3));
    run.heard(at(1.4), TRIGGER, &Word::Started(RUN));
    run.heard(at(1.4), 1, &Word::Started(RUN));
    assert_eq!(told(&mut run, at(1.4)), [], "no trigger before the last one has started");
    run.heard(at(1.5), 2, &Word::Started(RUN));
    assert_eq!(told(&mut run, at(1.5)), told_all("Enable", [TRIGGER]));
    run.heard(at(1.5), TRIGGER, &Word::Enabled(RUN));

    run.stop(at(2.0), None);
    run.stop(at(2.0), None);
    assert_eq!(told(&mut run, at(2.0)), told_all("Veto", [TRIGGER]), "first of all");
    run.heard(at(2.1), TRIGGER, &vetoed(50));
    let stop = FrontEndAction::Tell(1, Command::Stop(Stop { run: RUN, last: Some(50) }));
    let stops = actions(&mut run, at(2.1));
    assert_eq!((stops.len(), &stops[1]), (3, &stop));
    run.heard(at(2.2), TRIGGER, &stopped(50));
    run.heard(at(2.2), 1, &stopped(50));
    assert_eq!(told(&mut run, at(2.2)), [], "data of the last one still leave");
    run.heard(at(2.3), 2, &stopped(50));
    assert_eq!(told(&mut run, at(2.3)), [(9, "Stop Some(50)".to_owned())]);
    assert_eq!((run.phase(), run.incidents()), (FrontEndPhase::Finished, (&[][..], 0)));
}

#[test]
fn one_connection_serves_several_runs() {
    let mut front_ends = running();
    front_ends.stop(at(1.0), None);
    front_ends.heard(at(1.0), TRIGGER, &vetoed(5));
    (0..3).for_each(|place| front_ends.heard(at(1.0), place, &stopped(5)));
    actions(&mut front_ends, at(1.0));
    front_ends.start(at(2.0), RunOrder { run: RunNumber(8), ..order() });
    assert_eq!(told(&mut front_ends, at(2.0)), told_all("Configure", 0..3));
    // A delayed word about the last run.
    front_ends.heard(at(2.0), 1, &stopped(5));
    assert_eq!(front_ends.members()[1].stage(), Stage::Idle);
    assert!(front_ends.members()[TRIGGER].vetoed().is_none());
}

#[test]
fn a_front_end_that_was_ready_has_its_settings_and_one_that_only_stopped_has_not() {
    let ready = |front_ends: &FrontEnds| front_ends.members().iter().map(Member::was_ready).collect::<Vec<_>>();
    let mut front_ends = front_ends();
    (0..2).for_each(|place| front_ends.connected(at(0.0), place, hello(Stage::Idle, RunNumber(0))));
    front_ends.start(at(0.0), order());
    assert_eq!(ready(&front_ends), [false; 3]);
    (0..2).for_each(|place| front_ends.heard(at(0.1), place, &Word::Ready(RUN)));
    // The third one does not know the run, and reports so in its answer to the stop.
    front_ends.connected(at(0.2), 2, hello(Stage::Idle, RunNumber(0)));
    front_ends.heard(at(0.3), 2, &stopped(0));
    assert_eq!(ready(&front_ends), [true, true, false]);
    // It is back, and was already in the run before this run control started.
    front_ends.connected(at(0.4), 2, hello(Stage::Started, RUN));
    assert_eq!(ready(&front_ends), [true; 3]);
    front_ends.stop(at(0.5), None);
    front_ends.heard(at(0.5), TRIGGER, &vetoed(0));
    (0..3).for_each(|place| front_ends.heard(at(0.6), place, &stopped(0)));
    assert_eq!((front_ends.phase(), ready(&front_ends)), (FrontEndPhase::Finished, vec![true; 3]));
    front_ends.start(at(0.7), RunOrder { run: RunNumber(RUN.0 + 1), ..order() });
    assert_eq!(ready(&front_ends), [false; 3]);
}

#[test]
fn a_start_waits_for_what_events_need_and_names_front_ends_that_do_not_answer() {
    let mut front_ends = front_ends();
    connect_all(&mut front_ends, at(0.0));
    front_ends.start(at(0.0), order());
    actions(&mut front_ends, at(0.0));
    front_ends.heard(at(0.0), TRIGGER, &Word::Ready(RUN));
    assert_eq!(told(&mut front_ends, at(10.0)), told_all("Configure", [1]), "again; the other one is not needed");
    let no_answer = IncidentKind::NoAnswer(Stage::Ready);
    assert_eq!(kinds(&front_ends), [(2, no_answer.clone()), (3, no_answer)]);
    front_ends.heard(at(11.0), 1, &Word::Ready(RUN));
    assert_eq!(told(&mut front_ends, at(11.0)), told_all("Start", [9]));
}

#[test]
fn one_that_cannot_be_configured_is_named_and_asked_again_later() {
    let mut front_ends = front_ends();
    connect_all(&mut front_ends, at(0.0));
    front_ends.start(at(0.0), order());
    actions(&mut front_ends, at(0.0));
    [TRIGGER, 2].into_iter().for_each(|place| front_ends.heard(at(0.0), place, &Word::Ready(RUN)));
    let failed = Word::Failed(Failed { run: RUN, text: "no high voltage".to_owned() });
    front_ends.heard(at(1.0), 1, &failed);
    assert_eq!(told(&mut front_ends, at(1.0)), [], "not at once: it would fail at once");
    assert_eq!(told(&mut front_ends, at(10.0)), told_all("Configure", [1]));
    front_ends.heard(at(10.0), 1, &failed);
    assert_eq!(kinds(&front_ends), [(2, IncidentKind::Failed("no high voltage".to_owned()))], "once");
    front_ends.stop(at(11.0), None);
    assert_eq!(told(&mut front_ends, at(11.0)), told_all("Stop", [TRIGGER, 2]), "the ones that were ready");
    [TRIGGER, 2].into_iter().for_each(|place| front_ends.heard(at(11.0), place, &stopped(0)));
    assert_eq!(told(&mut front_ends, at(11.0)), [(9, "Stop None".to_owned())]);
}

#[test]
fn a_front_end_that_does_not_start_is_left_behind_and_the_trigger_comes() {
    let mut front_ends = front_ends();
    connect_all(&mut front_ends, at(0.0));
    front_ends.start(at(0.0), order());
    (0..3).for_each(|place| front_ends.heard(at(0.0), place, &Word::Ready(RUN)));
    front_ends.nodes_are(at(0.0), RunPhase::Running);
    [TRIGGER, 2].into_iter().for_each(|place| front_ends.heard(at(0.0), place, &Word::Started(RUN)));
    actions(&mut front_ends, at(0.0));
    assert_eq!(told(&mut front_ends, at(10.0)), told_all("Enable", [TRIGGER]));
    assert_eq!(kinds(&front_ends), [(2, IncidentKind::NoAnswer(Stage::Started))]);
    front_ends.heard(at(10.0), TRIGGER, &Word::Enabled(RUN));
    front_ends.stop(at(20.0), None);
    front_ends.heard(at(20.0), TRIGGER, &vetoed(3));
    assert_eq!(told(&mut front_ends, at(20.0))[1..], told_all("Stop", 0..3), "it is stopped all the same");
    [TRIGGER, 2].into_iter().for_each(|place| front_ends.heard(at(20.0), place, &stopped(3)));
    assert_eq!(told(&mut front_ends, at(20.0)), [(9, "Stop Some(3)".to_owned())], "but not waited for");
}

#[test]
fn a_trigger_source_that_does_not_answer_the_veto_holds_up_no_stop() {
    let mut front_ends = running();
    front_ends.stop(at(1.0), None);
    actions(&mut front_ends, at(1.0));
    assert_eq!(told(&mut front_ends, at(11.0)), told_all("Stop", 0..3), "the last event is not known");
    [1, 2].into_iter().for_each(|place| front_ends.heard(at(11.0), place, &stopped(8)));
    assert_eq!(told(&mut front_ends, at(11.0)), [(9, "Stop None".to_owned())]);
    assert_eq!(kinds(&front_ends), [(1, IncidentKind::NoAnswer(Stage::Vetoed))]);
}

#[test]
fn data_that_still_leave_are_waited_for_but_not_for_ever() {
    let mut front_ends = running();
    front_ends.stop(at(1.0), None);
    front_ends.heard(at(1.0), TRIGGER, &vetoed(90));
    [TRIGGER, 2].into_iter().for_each(|place| front_ends.heard(at(1.0), place, &stopped(90)));
    actions(&mut front_ends, at(1.0));
    for second in 1..=4 {
        let status = Status { run: RUN, sent: second, ..Status::default() };
        front_ends.heard(at(7.0 * second as f64), 1, &Word::Status(status));
        assert_eq!(told(&mut front_ends, at(7.0 * second as f64)), [], "{second}");
    }
    assert_eq!(told(&mut front_ends, at(31.0)), [(9, "Stop Some(90)".to_owned())], "thrice the answer's time is all");
    assert_eq!(kinds(&front_ends), [(2, IncidentKind::NoAnswer(Stage::Stopped))]);
}

#[test]
fn a_front_end_whose_data_no_longer_leave_is_left_behind() {
    let mut front_ends = running();
    front_ends.stop(at(1.0), None);
    front_ends.heard(at(1.0), TRIGGER, &vetoed(90));
    [TRIGGER, 2].into_iter().for_each(|place| front_ends.heard(at(1.0), place, &stopped(90)));
    actions(&mut front_ends, at(1.0));
    // It answers pings, and makes no progress.
    front_ends.heard(at(9.0), 1, &Word::Status(Status { run: RUN, ..Status::default() }));
    assert_eq!(told(&mut front_ends, at(11.0)), [(9, "Stop Some(90)".to_owned())]);
}

#[test]
fn a_lost_connection_changes_nothing_for_one_that_is_back_as_before() {
    let mut front_ends = running();
    front_ends.lost(at(1.0), 1);
    front_ends.connected(at(2.0), 1, hello(Stage::Started, RUN));
    assert_eq!(told(&mut front_ends, at(2.0)), []);
    assert_eq!(kinds(&front_ends), [(2, IncidentKind::Lost), (2, IncidentKind::Returned)]);
    front_ends.stop(at(3.0), None);
    front_ends.lost(at(3.0), TRIGGER);
    actions(&mut front_ends, at(3.0));
    front_ends.connected(at(4.0), TRIGGER, hello(Stage::Triggering, RUN));
    assert_eq!(told(&mut front_ends, at(4.0)), told_all("Veto", [TRIGGER]), "said again over the new connection");
}

#[test]
fn a_program_that_was_started_anew_is_left_out_until_the_next_run() {
    let mut front_ends = running();
    front_ends.lost(at(1.0), 1);
    front_ends.connected(at(2.0), 1, hello(Stage::Idle, RunNumber(0)));
    assert_eq!(told(&mut front_ends, at(2.0)), []);
    assert_eq!(kinds(&front_ends)[1], (2, IncidentKind::StartedAnew));
    front_ends.stop(at(3.0), None);
    front_ends.heard(at(3.0), TRIGGER, &vetoed(9));
    assert_eq!(told(&mut front_ends, at(3.0))[1..], told_all("Stop", [TRIGGER, 2]));
    [TRIGGER, 2].into_iter().for_each(|place| front_ends.heard(at(3.0), place, &stopped(9)));
    assert_eq!(told(&mut front_ends, at(3.0)), [(9, "Stop Some(9)".to_owned())]);
    front_ends.start(at(4.0), RunOrder { run: RunNumber(8), ..order() });
    assert_eq!(told(&mut front_ends, at(4.0)), told_all("Configure", 0..3));
    assert!(!front_ends.members()[1].is_left_behind());
}

#[test]
fn one_that_missed_the_stop_hears_it_when_it_is_back_and_so_does_one_of_another_run() {
    let mut front_ends = running();
    front_ends.lost(at(1.0), 1);
    front_ends.stop(at(1.0), None);
    front_ends.heard(at(1.0), TRIGGER, &vetoed(9));
    [TRIGGER, 2].into_iter().for_each(|place| front_ends.heard(at(1.0), place, &stopped(9)));
    actions(&mut front_ends, at(11.0));
    assert_eq!(front_ends.phase(), FrontEndPhase::Finished, "it is not waited for any longer");
    front_ends.connected(at(12.0), 1, hello(Stage::Started, RUN));
    let stop = |run, last| [FrontEndAction::Tell(1, Command::Stop(Stop { run, last }))];
    assert_eq!(actions(&mut front_ends, at(12.0)), stop(RUN, Some(9)));
    front_ends.connected(at(13.0), 1, hello(Stage::Triggering, RunNumber(3)));
    assert_eq!(actions(&mut front_ends, at(13.0)), stop(RunNumber(3), None));
}

#[test]
fn nodes_that_end_by_themselves_end_the_front_ends_too() {
    let mut front_ends = running();
    front_ends.nodes_are(at(5.0), RunPhase::Draining);
    assert_eq!(told(&mut front_ends, at(5.0)), told_all("Veto", [TRIGGER]));
}

#[test]
fn a_forced_stop_reaches_the_nodes_at_once_and_no_wait_is_long() {
    let mut front_ends = running();
    front_ends.force_stop(at(5.0));
    assert_eq!(told(&mut front_ends, at(5.0))[0], (9, "ForceStop".to_owned()));
    actions(&mut front_ends, at(6.0));
    assert_eq!(front_ends.phase(), FrontEndPhase::Finished);
    assert_eq!(front_ends.next_deadline().map(|due| due > at(6.0)), Some(true));
}

#[test]
fn a_run_without_a_trigger_under_run_control_ends_where_the_stop_says() {
    let member = FrontEndConfig { source: SourceId(2), is_trigger: false, is_required: true, settings: String::new() };
    let mut run = FrontEnds::new(FrontEndsConfig { front_ends: vec![member], answer: ANSWER, drain: ANSWER });
    run.connected(at(0.0), 0, hello(Stage::Idle, RunNumber(0)));
    run.start(at(0.0), order());
    run.heard(at(0.0), 0, &Word::Ready(RUN));
    run.nodes_are(at(0.0), RunPhase::Running);
    run.heard(at(0.0), 0, &Word::Started(RUN));
    actions(&mut run, at(0.0));
    run.stop(at(1.0), Some(EventKey::new(0, 12)));
    assert_eq!(actions(&mut run, at(1.0)), [FrontEndAction::Tell(0, Command::Stop(Stop { run: RUN, last: Some(12) }))]);
}

#[test]
fn a_second_program_is_let_in_only_where_the_first_is_silent() {
    let mut front_ends = running();
    assert!(!front_ends.may_connect(at(1.0), 1));
    assert!(front_ends.may_connect(at(9.0), 1));
    actions(&mut front_ends, at(9.0));
    assert!(front_ends.incidents().0.iter().any(|incident| incident.kind == IncidentKind::Silent));
    front_ends.lost(at(9.0), 1);
    assert!(front_ends.may_connect(at(9.0), 1));
}

#[test]
fn a_run_that_is_taken_over_goes_on_with_the_front_ends_that_connect() {
    let mut front_ends = front_ends();
    front_ends.take_over(at(0.0), order());
    front_ends.connected(at(1.0), TRIGGER, hello(Stage::Triggering, RUN));
    front_ends.connected(at(1.0), 1, hello(Stage::Started, RUN));
    assert_eq!(told(&mut front_ends, at(1.0)), []);
    front_ends.stop(at(2.0), None);
    front_ends.heard(at(2.0), TRIGGER, &vetoed(70));
    [TRIGGER, 1].into_iter().for_each(|place| front_ends.heard(at(2.0), place, &stopped(70)));
    assert_eq!(told(&mut front_ends, at(2.0)).last(), Some(&(9, "Stop Some(70)".to_owned())));
}

#[test]
fn a_front_end_that_reports_too_much_is_cut_off_and_counted() {
    let mut front_ends = running();
    let flood = 3 * READINGS_PER_SECOND;
    let taken = (0..flood).filter(|_| front_ends.reported(at(1.0), 1, true)).count() as u64;
    assert_eq!(taken, READINGS_PER_SECOND);
    assert!(front_ends.reported(at(1.5), 1, true), "half a second later there is room for half of that");
    assert!(!front_ends.reported(at(1.5), 2, false), "the disk is behind");
    let readings = front_ends.members()[1].readings();
    assert_eq!((readings.taken, readings.refused), (READINGS_PER_SECOND + 1, flood - READINGS_PER_SECOND));
    assert_eq!(front_ends.members()[2].readings().refused, 1);
}

/// An event of a front end, or of the run.
fn happen(front_ends: &mut FrontEnds, now: Instant, what: u8, place: usize) {
    let failed = || Word::Failed(Failed { run: RUN, text: "failed".to_owned() });
    match what {
        0 | 1 => front_ends.connected(now, place, hello(Stage::Idle, RunNumber(0))),
        2 => front_ends.connected(now, place, hello(Stage::Started, RUN)),
        3 => front_ends.lost(now, place),
        4 => front_ends.heard(now, place, &Word::Ready(RUN)),
        5 => front_ends.heard(now, place, &Word::Started(RUN)),
        6 => front_ends.heard(now, place, &Word::Enabled(RUN)),
        7 => front_ends.heard(now, place, &vetoed(5)),
        8 => front_ends.heard(now, place, &stopped(5)),
        9 => front_ends.heard(now, place, &failed()),
        10 => front_ends.nodes_are(now, RunPhase::Running),
        11 => front_ends.heard(now, place, &held(5)),
        12 => front_ends.heard(now, place, &Word::Released(RUN)),
        13 => front_ends.pause(now, place > 0),
        14 => front_ends.connected(now, place, Hello { is_held: true, ..hello(Stage::Triggering, RUN) }),
        15 => front_ends.connected(now, place, Hello { version: 1, ..hello(Stage::Triggering, RUN) }),
        _ => front_ends.stop(now, None),
    }
}

proptest! {
    /// Front ends may send anything at any time: nodes start at most once and stop once, and they do stop.
    #[test]
    fn every_stop_finishes_with_any_words_of_front_ends(
        story in prop::collection::vec((0_u8..17, 0_usize..3, 0_u64..3000), 0..80)
    ) {
        let (mut run, mut now, mut nodes) = (front_ends(), at(0.0), Vec::new());
        let note = |run: &mut FrontEnds, now, nodes: &mut Vec<(usize, String)>| {
            nodes.extend(told(run, now).into_iter().filter(|(place, _)| *place == 9));
        };
        run.start(now, order());
        for (what, place, milliseconds) in story {
            now = now.after(Duration::from_millis(milliseconds));
            happen(&mut run, now, what, place);
            note(&mut run, now, &mut nodes);
        }
        run.stop(now, None);
        for _ in 0..45 {
            note(&mut run, now, &mut nodes);
            now = now.after(Duration::from_secs(1));
        }
        prop_assert_eq!(run.phase(), FrontEndPhase::Finished);
        let count = |kind: &str| nodes.iter().filter(|(_, told)| told.starts_with(kind)).count();
        prop_assert!(count("Start") <= 1);
        prop_assert_eq!(count("Stop"), 1);
        prop_assert_eq!(count("Pause"), count("Resume"), "a stop ends a pause");
        prop_assert!(nodes.last().is_some_and(|(_, told)| told.starts_with("Stop")));
    }
}

#[test]
fn a_start_does_not_wait_for_a_front_end_that_is_masked() {
    let mut run = front_ends();
    run.mask(at(0.0), SourceId(2), true);
    run.start(at(0.0), order());
    [TRIGGER, 2].into_iter().for_each(|place| run.connected(at(0.0), place, hello(Stage::Idle, RunNumber(0))));
    [TRIGGER, 2].into_iter().for_each(|place| run.heard(at(0.1), place, &Word::Ready(RUN)));
    assert_eq!(run.phase(), FrontEndPhase::AwaitingNodes);
    run.nodes_are(at(0.2), RunPhase::Running);
    [TRIGGER, 2].into_iter().for_each(|place| run.heard(at(0.3), place, &Word::Started(RUN)));
    run.heard(at(0.4), TRIGGER, &Word::Enabled(RUN));
    assert_eq!(run.phase(), FrontEndPhase::Running);
    run.stop(at(1.0), None);
    run.heard(at(1.0), TRIGGER, &vetoed(9));
    [TRIGGER, 2].into_iter().for_each(|place| run.heard(at(1.0), place, &stopped(9)));
    assert_eq!(run.phase(), FrontEndPhase::Finished, "nor does the stop");
}

#[test]
fn a_board_that_was_begun_anew_is_led_into_the_run_when_it_is_taken_in_again() {
    let mut run = running();
    run.mask(at(1.0), SourceId(2), true);
    run.lost(at(1.0), 1);
    run.connected(at(2.0), 1, hello(Stage::Idle, RunNumber(0)));
    assert_eq!((told(&mut run, at(2.0)), run.members()[1].is_left_behind()), (vec![], true));
    run.mask(at(3.0), SourceId(2), false);
    assert_eq!(told(&mut run, at(3.0)), told_all("Configure", [1]));
    run.heard(at(3.1), 1, &Word::Ready(RUN));
    assert_eq!(told(&mut run, at(3.1)), told_all("Start", [1]));
    run.heard(at(3.2), 1, &Word::Started(RUN));
    run.stop(at(4.0), None);
    run.heard(at(4.0), TRIGGER, &vetoed(9));
    [TRIGGER, 2].into_iter().for_each(|place| run.heard(at(4.0), place, &stopped(9)));
    assert_eq!(run.phase(), FrontEndPhase::Stopping, "its data are waited for again");
    run.heard(at(4.1), 1, &stopped(9));
    assert_eq!(run.phase(), FrontEndPhase::Finished);
}

#[test]
fn the_trigger_source_cannot_be_masked() {
    let mut run = front_ends();
    run.mask(at(0.0), SourceId(1), true);
    assert!(!run.members()[TRIGGER].is_masked());
}

#[test]
fn a_pause_holds_the_trigger_source_then_the_nodes_and_ends_in_the_other_order() {
    let mut run = running();
    run.pause(at(1.0), true);
    run.pause(at(1.0), true);
    assert_eq!(told(&mut run, at(1.0)), told_all("Hold", [TRIGGER]), "detectors hear nothing of it");
    assert!(!run.is_paused());
    run.heard(at(1.1), TRIGGER, &held(42));
    assert_eq!(told(&mut run, at(1.1)), told_all("Pause", [9]));
    assert_eq!((run.is_paused(), run.members()[TRIGGER].held()), (true, Some(42)));
    assert_eq!(told(&mut run, at(60.0)), [], "for as long as it likes");
    run.pause(at(61.0), false);
    assert_eq!(told(&mut run, at(61.0)), [(9, "Resume".to_owned()), (TRIGGER, "Release".to_owned())]);
    run.heard(at(61.1), TRIGGER, &Word::Released(RUN));
    assert_eq!((run.is_paused(), run.members()[TRIGGER].held()), (false, None));
    assert_eq!((told(&mut run, at(90.0)), kinds(&run), run.phase()), (vec![], vec![], FrontEndPhase::Running));
}

#[test]
fn a_trigger_source_that_does_not_say_that_it_is_held_is_named_and_the_run_is_paused_all_the_same() {
    let mut run = running();
    run.pause(at(1.0), true);
    actions(&mut run, at(1.0));
    assert_eq!(run.next_deadline().map(|due| due <= at(11.0)), Some(true));
    assert_eq!(told(&mut run, at(10.9)), []);
    assert_eq!(told(&mut run, at(11.0)), told_all("Pause", [9]));
    assert_eq!(kinds(&run), [(1, IncidentKind::NotHeld)]);
    run.pause(at(12.0), false);
    let resumed = [(9, "Resume".to_owned()), (TRIGGER, "Release".to_owned())];
    assert_eq!(told(&mut run, at(12.0)), resumed, "it may be held all the same");
    run.heard(at(12.5), TRIGGER, &Word::Released(RUN));
    assert_eq!((told(&mut run, at(60.0)), kinds(&run).len()), (vec![], 1), "it answered the last of both");
    run.pause(at(61.0), true);
    run.heard(at(61.0), TRIGGER, &held(43));
    assert_eq!(told(&mut run, at(71.0)).last(), Some(&(9, "Pause".to_owned())), "that may be its first answer");
    run.heard(at(72.0), TRIGGER, &held(43));
    assert!(run.is_paused());
}

#[test]
fn the_release_of_a_trigger_source_is_repeated_and_a_failure_named_once() {
    let mut run = running();
    run.pause(at(1.0), true);
    run.heard(at(1.0), TRIGGER, &held(42));
    run.pause(at(2.0), false);
    actions(&mut run, at(2.0));
    for again in [12.0, 22.0] {
        assert_eq!(told(&mut run, at(again - 0.1)), []);
        assert_eq!(told(&mut run, at(again)), told_all("Release", [TRIGGER]));
    }
    assert_eq!(kinds(&run), [(1, IncidentKind::NotReleased)]);
    (0..3).for_each(|_| run.heard(at(23.0), TRIGGER, &Word::Released(RUN)));
    assert_eq!(told(&mut run, at(60.0)), []);
}

#[test]
fn the_answer_to_an_earlier_hold_is_not_taken_for_that_to_the_last() {
    let mut run = running();
    run.pause(at(1.0), true);
    run.pause(at(1.0), false);
    run.pause(at(1.0), true);
    let order = ["Hold", "Release", "Hold"].map(|kind| (TRIGGER, kind.to_owned()));
    assert_eq!(told(&mut run, at(1.0)), order, "nodes never heard of the first pause");
    run.heard(at(1.1), TRIGGER, &held(42));
    run.heard(at(1.1), TRIGGER, &Word::Released(RUN));
    assert_eq!(told(&mut run, at(1.1)), [], "triggers may have come again");
    run.heard(at(1.2), TRIGGER, &held(43));
    assert_eq!(told(&mut run, at(1.2)), told_all("Pause", [9]));
}

#[test]
fn a_trigger_source_of_version_1_is_never_held_and_named_once() {
    let mut run = running();
    run.lost(at(0.5), TRIGGER);
    run.connected(at(0.6), TRIGGER, Hello { version: 1, ..hello(Stage::Triggering, RUN) });
    for second in 1..4 {
        run.pause(at(f64::from(second)), true);
        assert_eq!(told(&mut run, at(f64::from(second))), told_all("Pause", [9]), "at once");
        run.pause(at(f64::from(second) + 0.5), false);
        assert_eq!(told(&mut run, at(f64::from(second) + 0.5)), told_all("Resume", [9]));
    }
    assert_eq!(kinds(&run)[2..], [(1, IncidentKind::CannotBeHeld)]);
}

#[test]
fn one_that_comes_back_in_a_pause_is_held_unless_it_is_and_is_released_if_it_missed_that() {
    let is_held = |is_held| Hello { is_held, ..hello(Stage::Triggering, RUN) };
    let mut run = running();
    run.pause(at(1.0), true);
    run.lost(at(1.1), TRIGGER);
    actions(&mut run, at(1.1));
    run.connected(at(2.0), TRIGGER, is_held(false));
    assert_eq!(told(&mut run, at(2.0)), told_all("Hold", [TRIGGER]), "it had not heard it");
    run.lost(at(2.1), TRIGGER);
    run.connected(at(3.0), TRIGGER, is_held(true));
    assert_eq!(told(&mut run, at(3.0)), told_all("Pause", [9]), "it had, and its answer was lost");
    run.lost(at(4.0), TRIGGER);
    run.pause(at(5.0), false);
    assert_eq!(told(&mut run, at(5.0)), told_all("Resume", [9]), "the trigger source is gone");
    run.connected(at(6.0), TRIGGER, is_held(true));
    assert_eq!(told(&mut run, at(6.0)), told_all("Release", [TRIGGER]));
    run.heard(at(6.1), TRIGGER, &Word::Released(RUN));
    let went = [(1, IncidentKind::Lost), (1, IncidentKind::Returned)];
    assert_eq!(kinds(&run), went.iter().cycle().take(6).cloned().collect::<Vec<_>>());
}

#[test]
fn a_trigger_source_that_is_away_is_waited_for_like_one_that_does_not_answer() {
    let mut run = running();
    run.lost(at(0.5), TRIGGER);
    run.pause(at(1.0), true);
    assert_eq!(told(&mut run, at(10.9)), []);
    assert_eq!(told(&mut run, at(11.0)), told_all("Pause", [9]));
    assert_eq!(kinds(&run), [(1, IncidentKind::Lost), (1, IncidentKind::NotHeld)]);
    run.connected(at(12.0), TRIGGER, hello(Stage::Idle, RunNumber(0)));
    assert_eq!(told(&mut run, at(12.0)), [], "one that was started anew issues nothing");
    run.pause(at(13.0), false);
    assert_eq!(told(&mut run, at(13.0)), told_all("Resume", [9]));
}

#[test]
fn a_stop_of_a_paused_run_lets_the_nodes_go_on_and_vetoes_a_trigger_source_that_is_held() {
    let mut run = running();
    run.pause(at(1.0), true);
    run.heard(at(1.0), TRIGGER, &held(42));
    actions(&mut run, at(1.0));
    run.stop(at(2.0), None);
    // Data of front ends may find no room while no event is built.
    assert_eq!(told(&mut run, at(2.0)), [(9, "Resume".to_owned()), (TRIGGER, "Veto".to_owned())]);
    run.pause(at(2.0), true);
    run.heard(at(2.1), TRIGGER, &vetoed(42));
    assert_eq!(told(&mut run, at(2.1)), told_all("Stop", 0..3), "a run that ends is not paused");
    (0..3).for_each(|place| run.heard(at(2.2), place, &stopped(42)));
    assert_eq!(told(&mut run, at(2.2)), [(9, "Stop Some(42)".to_owned())]);
    run.start(at(3.0), RunOrder { run: RunNumber(8), ..order() });
    assert!(!run.is_paused() && run.members()[TRIGGER].held().is_none());
}

#[test]
fn a_forced_stop_of_a_paused_run_needs_no_resume() {
    let mut run = running();
    run.pause(at(1.0), true);
    run.heard(at(1.0), TRIGGER, &held(42));
    actions(&mut run, at(1.0));
    run.force_stop(at(2.0));
    assert_eq!(told(&mut run, at(2.0))[0], (9, "ForceStop".to_owned()));
    assert_eq!((told(&mut run, at(3.0)), run.phase()), (told_all("Stop None", [9]), FrontEndPhase::Finished));
}

#[test]
fn a_start_that_ends_paused_holds_the_trigger_source_before_it_is_enabled() {
    let mut run = front_ends();
    connect_all(&mut run, at(0.0));
    run.start(at(0.0), order());
    run.pause(at(0.0), true);
    (0..3).for_each(|place| run.heard(at(0.1), place, &Word::Ready(RUN)));
    run.pause(at(0.2), true);
    actions(&mut run, at(0.2));
    assert_eq!(told(&mut run, at(20.0)), [], "nodes are waited for as long as it takes");
    run.nodes_are(at(20.0), RunPhase::Running);
    assert_eq!(told(&mut run, at(20.0)), told_all("Start", 0..3));
    (0..3).rev().for_each(|place| run.heard(at(20.1), place, &Word::Started(RUN)));
    assert_eq!(told(&mut run, at(20.1)), ["Hold", "Enable"].map(|kind| (TRIGGER, kind.to_owned())));
    run.heard(at(20.2), TRIGGER, &held(0));
    assert_eq!(told(&mut run, at(20.2)), told_all("Pause", [9]));
    run.heard(at(20.2), TRIGGER, &Word::Enabled(RUN));
    run.pause(at(21.0), false);
    assert_eq!(told(&mut run, at(21.0))[1..], told_all("Release", [TRIGGER]));
    assert_eq!(kinds(&run), []);
}

#[test]
fn a_trigger_source_that_cannot_be_held_says_why_and_is_vetoed_at_the_stop_like_any_other() {
    let mut run = running();
    run.pause(at(1.0), true);
    run.heard(at(1.1), TRIGGER, &Word::Failed(Failed { run: RUN, text: "the crate is busy".to_owned() }));
    assert_eq!(told(&mut run, at(1.1))[1..], told_all("Pause", [9]));
    assert!(!run.members()[TRIGGER].is_left_behind());
    run.pause(at(2.0), false);
    actions(&mut run, at(2.0));
    run.heard(at(2.1), TRIGGER, &Word::Released(RUN));
    run.stop(at(3.0), None);
    assert_eq!(told(&mut run, at(3.0)), told_all("Veto", [TRIGGER]));
    assert_eq!(kinds(&run), [(1, IncidentKind::Failed("the crate is busy".to_owned()))]);
}

#[test]
fn a_run_that_is_taken_over_goes_on_and_a_trigger_source_that_is_held_is_released() {
    let mut run = front_ends();
    run.take_over(at(0.0), order());
    run.connected(at(1.0), TRIGGER, Hello { is_held: true, ..hello(Stage::Triggering, RUN) });
    assert_eq!(told(&mut run, at(1.0)), told_all("Release", [TRIGGER]));
}

#[test]
fn a_pause_without_a_trigger_source_under_run_control_is_the_nodes_alone() {
    let member = FrontEndConfig { source: SourceId(2), is_trigger: false, is_required: true, settings: String::new() };
    let mut run = FrontEnds::new(FrontEndsConfig { front_ends: vec![member], answer: ANSWER, drain: ANSWER });
    run.connected(at(0.0), 0, hello(Stage::Idle, RunNumber(0)));
    run.start(at(0.0), order());
    run.heard(at(0.0), 0, &Word::Ready(RUN));
    run.nodes_are(at(0.0), RunPhase::Running);
    run.heard(at(0.0), 0, &Word::Started(RUN));
    actions(&mut run, at(0.0));
    run.pause(at(1.0), true);
    assert_eq!(told(&mut run, at(1.0)), told_all("Pause", [9]));
    run.pause(at(2.0), false);
    assert_eq!(told(&mut run, at(2.0)), told_all("Resume", [9]));
}
