//! Each arrow of the picture, and commands in invalid states.

use super::*;
use ropewalk_terms::{Cause, EventKey, Instant, NodeId, RunNumber};

const NOW: Instant = Instant::ZERO;
const START: RunCommand = RunCommand::Start { run: RunNumber(7), first: EventKey::new(0, 1), last: None };

fn control() -> RunControl {
    RunControl::new(vec![NodeId::readout(0), NodeId::builder(0)])
}

fn connect(control: &mut RunControl) {
    control.node_connected(NOW, NodeId::readout(0));
    control.node_connected(NOW, NodeId::builder(0));
}

fn running() -> RunControl {
    let mut control = control();
    connect(&mut control);
    control.command(NOW, START);
    assert!(matches!(control.poll(NOW), Some(ControlAction::Start { run: RunNumber(7), .. })));
    control.node_begun(NOW, NodeId::readout(0));
    control
}

#[test]
fn a_start_waits_for_every_node() {
    let mut control = control();
    control.command(NOW, START);
    control.node_connected(NOW, NodeId::readout(0));
    control.node_connected(NOW, NodeId::builder(9));
    assert_eq!((control.phase(), control.poll(NOW)), (RunPhase::Initial, None));
    control.node_connected(NOW, NodeId::builder(0));
    assert!(control.poll(NOW).is_some());
    control.node_begun(NOW, NodeId::readout(0));
    assert_eq!(control.phase(), RunPhase::Running);
}

/// Before that, the data of its sources does not belong to the run, and no source may be told to begin.
#[test]
fn a_run_is_running_when_every_readout_unit_has_heard_of_it() {
    let both = vec![NodeId::readout(0), NodeId::readout(1), NodeId::builder(0)];
    let begun = || {
        let mut control = RunControl::new(both.clone());
        control.command(NOW, START);
        both.iter().for_each(|&node| control.node_connected(NOW, node));
        assert!(matches!(control.poll(NOW), Some(ControlAction::Start { .. })));
        control.node_begun(NOW, NodeId::builder(0));
        control.node_begun(NOW, NodeId::readout(1));
        assert_eq!(control.phase(), RunPhase::Configured);
        control
    };
    let mut heard = begun();
    heard.node_begun(NOW, NodeId::readout(0));
    assert_eq!((heard.phase(), heard.next_deadline()), (RunPhase::Running, None));
    // A unit that reconnects later does not set the others back.
    heard.node_lost(NOW, NodeId::readout(0));
    heard.node_connected(NOW, NodeId::readout(0));
    assert_eq!(heard.phase(), RunPhase::Running);
    let mut lost = begun();
    lost.node_lost(NOW, NodeId::readout(0));
    assert_eq!(lost.phase(), RunPhase::Running, "it is not waited for");
    let mut hangs = begun();
    let late = hangs.next_deadline().expect("it is not waited for without end");
    assert_eq!((hangs.poll(NOW), hangs.phase()), (None, RunPhase::Configured));
    assert_eq!((hangs.poll(late), hangs.phase(), hangs.next_deadline()), (None, RunPhase::Running, None));
    let mut stopped = begun();
    stopped.command(NOW, RunCommand::Stop { last: None });
    assert_eq!(stopped.phase(), RunPhase::Draining);
}

#[test]
fn a_node_that_left_is_waited_for_again() {
    let mut control = control();
    connect(&mut control);
    assert_eq!(control.phase(), RunPhase::Configured);
    control.node_lost(NOW, NodeId::readout(0));
    control.command(NOW, START);
    assert_eq!((control.phase(), control.poll(NOW)), (RunPhase::Initial, None));
}

#[test]
fn a_stop_drains_once_and_a_second_one_changes_nothing() {
    let mut control = running();
    let last = Some(EventKey::new(0, 9));
    control.command(NOW, RunCommand::Stop { last });
    control.command(NOW, RunCommand::Stop { last: None });
    assert_eq!(control.poll(NOW), Some(ControlAction::Stop { last }));
    assert_eq!((control.phase(), control.poll(NOW)), (RunPhase::Draining, None));
    control.command(NOW, RunCommand::ForceStop);
    assert_eq!(control.poll(NOW), Some(ControlAction::ForceStop));
    control.run_ended(NOW);
    assert!(control.phase().is_final());
    control.command(NOW, START);
    control.command(NOW, RunCommand::ForceStop);
    assert_eq!(control.poll(NOW), None);
}

#[test]
fn a_stop_before_the_start_ends_without_a_run() {
    for stop in [RunCommand::Stop { last: None }, RunCommand::ForceStop] {
        let mut control = control();
        control.command(NOW, START);
        control.command(NOW, stop);
        connect(&mut control);
        assert_eq!((control.phase(), control.poll(NOW)), (RunPhase::Ended, None));
    }
}

#[test]
fn a_node_may_ask_for_the_stop_and_is_named() {
    let mut control = running();
    control.stop_requested(NOW, Cause::SynchronyLost);
    control.stop_requested(NOW, Cause::IncompletePolicy);
    assert_eq!(control.stopped_by(), Some(Cause::SynchronyLost));
    assert_eq!(control.poll(NOW), Some(ControlAction::Stop { last: None }));
    assert_eq!(control.poll(NOW), None);
}

#[test]
fn a_run_that_goes_on_is_taken_over_without_waiting_for_nodes() {
    let take_over = RunCommand::TakeOver { run: RunNumber(7), first: EventKey::new(0, 1), last: None };
    let mut control = control();
    control.command(NOW, take_over);
    control.command(NOW, take_over);
    control.command(NOW, START);
    let expected = ControlAction::TakeOver { run: RunNumber(7), first: EventKey::new(0, 1), last: None };
    assert_eq!((control.poll(NOW), control.poll(NOW)), (Some(expected), None));
    connect(&mut control);
    assert_eq!(control.phase(), RunPhase::Configured, "the readout unit may not have begun it");
    control.node_begun(NOW, NodeId::readout(0));
    control.node_lost(NOW, NodeId::builder(0));
    assert_eq!((control.phase(), control.poll(NOW)), (RunPhase::Running, None));
    control.command(NOW, RunCommand::Stop { last: None });
    assert_eq!(control.poll(NOW), Some(ControlAction::Stop { last: None }));
}

#[test]
fn a_run_that_was_begun_here_is_not_taken_over() {
    let take_over = RunCommand::TakeOver { run: RunNumber(8), first: EventKey::new(0, 1), last: None };
    let mut waiting = control();
    waiting.command(NOW, START);
    for mut control in [waiting, running()] {
        control.command(NOW, take_over);
        assert_eq!(control.poll(NOW), None);
    }
}

#[test]
fn a_run_is_paused_once_and_goes_on_once() {
    let mut early = control();
    early.command(NOW, RunCommand::Pause);
    assert_eq!((early.poll(NOW), early.is_paused()), (None, false));
    let mut control = running();
    for (command, is_paused) in [(RunCommand::Pause, true), (RunCommand::Resume, false)] {
        control.command(NOW, command);
        control.command(NOW, command);
        assert_eq!((control.poll(NOW), control.poll(NOW)), (Some(ControlAction::Pause(is_paused)), None));
        assert_eq!(control.is_paused(), is_paused);
    }
    control.command(NOW, RunCommand::Pause);
    control.command(NOW, RunCommand::Stop { last: None });
    assert!(!control.is_paused());
}
