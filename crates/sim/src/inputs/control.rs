//! Run control under any order of commands and nodes.

use super::MOST_ACTIONS;
use super::choices::Choices;
use ropewalk_flow::control::{ControlAction, RunCommand, RunControl, RunPhase};
use ropewalk_terms::{NodeId, RunNumber};

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
