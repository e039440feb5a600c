//! Run control that gets commands and messages in any order, from nodes and from front ends.

use super::MOST_ACTIONS;
use super::choices::Choices;
use ropewalk_flow::control::front_ends::{
    FrontEndAction, FrontEndConfig, FrontEndPhase, FrontEnds, FrontEndsConfig, MOST_INCIDENTS, RunOrder,
};
use ropewalk_flow::control::{ControlAction, RunCommand, RunControl, RunPhase};
use ropewalk_terms::{NodeId, RunNumber, SourceId};
use ropewalk_wire::front_end::{Command, FRAME_BYTES, Frame, Held, Hello, Kind, Stage, Status, Stopped, Vetoed, Word};
use std::time::Duration;

/// Feeds run control.
///
/// # Panics
/// Where the machine does, where a run is started twice, or where a run that has ended goes on.
pub fn control(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut control = RunControl::new(vec![NodeId::readout(0), NodeId::readout(1), NodeId::builder(0)]);
    let mut starts = 0;
    while !choices.is_over() {
        let (before, now) = (control.phase(), choices.now());
        match choices.below(8) {
            0 => {
                let last = choices.chance().then(|| choices.key());
                control.command(now, RunCommand::Start { run: RunNumber(1), first: choices.key(), last });
            }
            1 => {
                let last = choices.chance().then(|| choices.key());
                control.command(now, RunCommand::Stop { last });
            }
            2 => control.command(now, RunCommand::ForceStop),
            3 => control.node_lost(now, choices.node()),
            4 => control.stop_requested(now, choices.cause()),
            6 => control.command(now, if choices.chance() { RunCommand::Pause } else { RunCommand::Resume }),
            5 if choices.below(8) == 0 => control.run_ended(now),
            5 if choices.chance() => control.node_begun(now, choices.node()),
            7 if choices.chance() => {
                let (source, is_masked) = (choices.source(4), choices.chance());
                control.command(now, RunCommand::Mask { source, is_masked });
            }
            _ => control.node_connected(now, choices.node()),
        }
        let mut actions = 0;
        while let Some(action) = control.poll(now) {
            starts += usize::from(matches!(action, ControlAction::Start { .. }));
            actions += 1;
            assert!(actions < MOST_ACTIONS, "run control does not come to rest");
        }
        assert!(starts <= 1, "a run is started twice");
        assert!(before != RunPhase::Ended || control.phase() == RunPhase::Ended, "what has ended goes on");
        let _ = (control.next_deadline(), control.stopped_by(), control.nodes().count());
    }
}

/// The front ends: the first one is the trigger, the last one may be left out.
const FRONT_ENDS: u64 = 3;

/// Feeds run control of front ends, and reads words and commands out of arbitrary bytes.
///
/// # Panics
/// If the machine or a reader does, if a trigger is enabled before all required front ends have started, if a front end
/// is held that is no trigger or does not know the command, or if more is kept than may be.
pub fn front_ends(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let config = |number: u64| FrontEndConfig {
        source: SourceId(number as u32 + 1),
        is_trigger: number == 0,
        is_required: number + 1 < FRONT_ENDS,
        settings: "threshold = 12".to_owned(),
    };
    let mut control = FrontEnds::new(FrontEndsConfig {
        front_ends: (0..FRONT_ENDS).map(config).collect(),
        answer: Duration::from_secs(10),
        drain: Duration::from_secs(30),
    });
    let mut run = 0;
    while !choices.is_over() {
        let now = choices.now();
        let place = choices.below(FRONT_ENDS) as usize;
        match choices.below(13) {
            0 if !control.phase().is_active() => {
                run += 1;
                let order = RunOrder {
                    run: RunNumber(run),
                    first: choices.key(),
                    last: choices.chance().then(|| choices.key()),
                    addresses: vec!["127.0.0.1:1".to_owned(); FRONT_ENDS as usize],
                };
                if choices.chance() { control.start(now, order) } else { control.take_over(now, order) }
            }
            1 => {
                let last = choices.chance().then(|| choices.key());
                control.stop(now, last);
            }
            2 if choices.below(8) == 0 => control.force_stop(now),
            3 => control.lost(now, place),
            4 if control.may_connect(now, place) => {
                let stage = Stage::from_u8(choices.below(6) as u8).unwrap_or_default();
                let run = RunNumber(choices.below(u64::from(run) + 2) as u32);
                let (version, is_held) = match choices.below(3) {
                    0 => (1, false),
                    1 => (2, false),
                    _ => (2, true),
                };
                let hello = Hello { version, stage, run, is_held, ..Hello::new(SourceId(place as u32 + 1), "any") };
                control.connected(now, place, hello);
            }
            5 => control.nodes_are(now, phase(choices.below(5))),
            6 => _ = control.reported(now, place, choices.chance()),
            8 => control.pause(now, choices.chance()),
            7 => {
                let kind = choices.below(48) as u8;
                read(kind, choices.raw(60));
            }
            _ => {
                let word = word(&mut choices, run);
                control.heard(now, place, &word);
            }
        }
        let mut actions = 0;
        while let Some(action) = control.poll(now) {
            actions += 1;
            assert!(actions < MOST_ACTIONS, "run control does not come to rest");
            expect_sense(&control, &action);
        }
        let (incidents, _) = control.incidents();
        assert!(incidents.len() <= MOST_INCIDENTS, "{} incidents are kept", incidents.len());
        let _ = (control.next_deadline(), control.members().len());
    }
}

/// Checks that only the trigger is held, while the run goes on, and that it is enabled last: every front end that is
/// waited for has started by then.
fn expect_sense(control: &FrontEnds, action: &FrontEndAction) {
    if let FrontEndAction::Tell(place, Command::Hold(_) | Command::Release(_)) = action {
        assert_eq!(*place, 0, "only the trigger is held and released");
        let hello = control.members()[0].hello().expect("commands go to connected front ends only");
        assert!(hello.may_be_held(), "version {} knows nothing of it", hello.version);
        assert!((FrontEndPhase::Starting..=FrontEndPhase::Running).contains(&control.phase()));
    }
    let FrontEndAction::Tell(place, Command::Enable(_)) = action else { return };
    assert_eq!(*place, 0, "only the trigger is enabled");
    assert!(control.phase() >= FrontEndPhase::Starting, "enabled while {}", control.phase().name());
}

const fn phase(number: u64) -> RunPhase {
    match number {
        0 => RunPhase::Initial,
        1 => RunPhase::Configured,
        2 => RunPhase::Running,
        3 => RunPhase::Draining,
        _ => RunPhase::Ended,
    }
}

/// A word, mostly about the present run.
fn word(choices: &mut Choices<'_>, run: u32) -> Word {
    let run = RunNumber(if choices.below(4) == 0 { choices.below(4) as u32 } else { run });
    match choices.below(8) {
        0 => Word::Ready(run),
        1 => Word::Started(run),
        2 => Word::Enabled(run),
        3 => Word::Vetoed(Vetoed { run, last: choices.wide(), issued: choices.wide(), vetoed: Vec::new() }),
        4 => {
            let numbers = [choices.chance(), choices.chance()].map(|has| has.then(|| choices.wide()));
            Word::Stopped(Stopped { run, first: numbers[0], last: numbers[1], sent: choices.wide() })
        }
        5 => Word::Held(Held { run, last: choices.wide() }),
        6 => Word::Released(run),
        _ => Word::Status(Status { run, sent: choices.wide(), ..Status::default() }),
    }
}

/// What can be read means the same when it is written again.
fn read(kind: u8, body: &[u8]) {
    let _ = body.first_chunk().map(Frame::parse);
    let Some(kind) = Kind::from_u8(kind) else { return };
    let mut again = Vec::new();
    if let Ok(command) = Command::decode(kind, body) {
        command.encode(&mut again);
        assert_eq!(Command::decode(kind, &again[FRAME_BYTES..]), Ok(command));
    } else if let Ok(word) = Word::decode(kind, body) {
        // The time and value of a reading may be no number, and then are not equal to themselves.
        let is_reading = matches!(word, Word::Report(_));
        word.encode(&mut again);
        assert!(is_reading || Word::decode(kind, &again[FRAME_BYTES..]) == Ok(word));
    }
}
