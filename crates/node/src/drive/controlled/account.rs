//! What is known of front ends under run control, for readers on other threads.

use ropewalk_flow::control::front_ends::{FrontEndPhase, FrontEnds, Incident, Member};
use ropewalk_terms::{RunNumber, SourceId};
use ropewalk_wire::front_end::{Stage, Status, Stopped, Vetoed};

/// One front end.
#[derive(Clone, Debug)]
pub struct FrontEndState {
    /// Which source it is.
    pub source: SourceId,
    /// It is the trigger source.
    pub is_trigger: bool,
    /// Events need it.
    pub is_required: bool,
    /// It is connected.
    pub is_connected: bool,
    /// It is not waited for in this run any more.
    pub is_left_behind: bool,
    /// How it calls itself, and the versions of its firmware and library; empty before it was connected.
    pub name: String,
    /// See `name`.
    pub versions: String,
    /// It said that it was ready for this run: it has its settings.
    pub was_ready: bool,
    /// How far it came in this run.
    pub stage: Stage,
    /// What it said of itself last.
    pub status: Status,
    /// The trigger source's account.
    pub vetoed: Option<Vetoed>,
    /// The number of the last event so far, while the trigger source is held by a pause.
    pub held: Option<u64>,
    /// What it sent.
    pub stopped: Option<Stopped>,
    /// Slow readings taken in this run, and those that came too fast or found no room.
    pub readings: u64,
    /// See `readings`.
    pub readings_refused: u64,
}

impl FrontEndState {
    fn of(member: &Member) -> Self {
        Self {
            source: member.config().source,
            is_trigger: member.config().is_trigger,
            is_required: member.config().is_required,
            is_connected: member.hello().is_some(),
            is_left_behind: member.is_left_behind(),
            name: member.name().to_owned(),
            versions: member.versions().to_owned(),
            was_ready: member.was_ready(),
            stage: member.stage(),
            status: member.status().clone(),
            vetoed: member.vetoed().cloned(),
            held: member.held(),
            stopped: member.stopped().copied(),
            readings: member.readings().taken,
            readings_refused: member.readings().refused,
        }
    }
}

/// All of them, in one run.
#[derive(Clone, Debug, Default)]
pub struct FrontEndsAccount {
    /// The present run, or the last one; 0 before the first.
    pub run: RunNumber,
    /// How far they are.
    pub phase: FrontEndPhase,
    /// The number of its first event.
    pub first: u64,
    /// That of its last one, once it is known.
    pub last: Option<u64>,
    /// The front ends, in the order of the configuration.
    pub front_ends: Vec<FrontEndState>,
    /// What went wrong in the run.
    pub incidents: Vec<Incident>,
    /// Incidents for which there was no room.
    pub incidents_beyond: u64,
}

impl FrontEndsAccount {
    /// What the machine knows now.
    pub(super) fn of(machine: &FrontEnds) -> Self {
        let (incidents, incidents_beyond) = machine.incidents();
        Self {
            run: machine.run(),
            phase: machine.phase(),
            first: machine.first(),
            last: machine.last(),
            front_ends: machine.members().iter().map(FrontEndState::of).collect(),
            incidents: incidents.to_vec(),
            incidents_beyond,
        }
    }
}
