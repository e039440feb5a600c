//! One front end under run control, and the incidents of front ends.

use super::pause::Hold;
use core::fmt;
use ropewalk_terms::{Instant, RunNumber, SourceId};
use ropewalk_wire::front_end::{Hello, Stage, Status, Stopped, Vetoed};

/// Configuration of a source under run control.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrontEndConfig {
    /// The source.
    pub source: SourceId,
    /// Whether it is the trigger source: enabled last, vetoed first. At most one is.
    pub is_trigger: bool,
    /// Whether events need it, so that a start waits for it.
    pub is_required: bool,
    /// Its settings as text.
    pub settings: String,
}

/// Slow-control readings of a front end in one run.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Readings {
    /// Taken.
    pub taken: u64,
    /// Refused because they came too fast, or without room.
    pub refused: u64,
    /// Number of readings that may come at once.
    left: f64,
    since: Instant,
}

/// Maximum number of readings per second, and at once after a pause.
pub const READINGS_PER_SECOND: u64 = 1000;

impl Readings {
    const NONE: Self = Self { taken: 0, refused: 0, left: READINGS_PER_SECOND as f64, since: Instant::ZERO };

    /// Takes a reading; false if it is refused.
    pub(super) fn take(&mut self, now: Instant, has_room: bool) -> bool {
        let most = READINGS_PER_SECOND as f64;
        self.left = (self.left + now.since(self.since).as_secs_f64() * most).min(most);
        self.since = self.since.max(now);
        let is_taken = has_room && self.left >= 1.0;
        if is_taken {
            self.left -= 1.0;
            self.taken += 1;
        } else {
            self.refused += 1;
        }
        is_taken
    }
}

/// State of one front end.
#[derive(Clone, Debug)]
pub struct Member {
    pub(super) config: FrontEndConfig,
    /// Its last hello; `None` while it is not connected.
    pub(super) hello: Option<Hello>,
    /// Its name and versions, kept when it disconnects.
    pub(super) name: String,
    pub(super) versions: String,
    /// Whether it was ever connected.
    pub(super) is_known: bool,
    /// Whether it was ready for the present run, and so has its settings.
    pub(super) was_ready: bool,
    /// Its stage in the present run.
    pub(super) reached: Stage,
    /// The stage that it was commanded to reach over this connection.
    pub(super) asked: Option<Stage>,
    /// Whether it is masked, in this run and in later ones.
    pub(super) is_masked: bool,
    /// Whether it is no longer waited for in this run.
    pub(super) is_left_behind: bool,
    /// Whether it reported a failure; the command is not repeated before the next limit.
    pub(super) has_failed: bool,
    /// When it was last heard.
    pub(super) heard: Instant,
    pub(super) ping_due: Instant,
    pub(super) is_silent: bool,
    pub(super) status: Status,
    pub(super) vetoed: Option<Vetoed>,
    pub(super) stopped: Option<Stopped>,
    /// For the trigger source: whether it is held.
    pub(super) hold: Hold,
    pub(super) readings: Readings,
}

impl Member {
    pub(super) fn new(config: FrontEndConfig) -> Self {
        Self {
            config,
            hello: None,
            name: String::new(),
            versions: String::new(),
            is_known: false,
            was_ready: false,
            reached: Stage::Idle,
            asked: None,
            is_masked: false,
            is_left_behind: false,
            has_failed: false,
            heard: Instant::ZERO,
            ping_due: Instant::FAR_FUTURE,
            is_silent: false,
            status: Status::default(),
            vetoed: None,
            stopped: None,
            hold: Hold::default(),
            readings: Readings::NONE,
        }
    }

    /// Clears the state of the last run.
    pub(super) fn begin(&mut self) {
        (self.reached, self.asked, self.was_ready) = (Stage::Idle, None, false);
        (self.is_left_behind, self.has_failed) = (false, false);
        (self.status, self.vetoed, self.stopped) = (Status::default(), None, None);
        self.hold = Hold::default();
        (self.readings.taken, self.readings.refused) = (0, 0);
    }

    /// Whether events need it, so that a start waits for it.
    pub(super) const fn is_needed(&self) -> bool {
        self.config.is_required && !self.is_masked
    }

    /// Returns its configuration.
    pub const fn config(&self) -> &FrontEndConfig {
        &self.config
    }

    /// Whether it was ready for the present run, and so has its settings.
    pub const fn was_ready(&self) -> bool {
        self.was_ready
    }

    /// Returns its hello while it is connected.
    pub const fn hello(&self) -> Option<&Hello> {
        self.hello.as_ref()
    }

    /// Returns its last name; empty before its first connection.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the versions of its firmware and library.
    pub fn versions(&self) -> &str {
        &self.versions
    }

    /// Returns its slow-control readings in this run.
    pub const fn readings(&self) -> &Readings {
        &self.readings
    }

    /// Returns its stage in the present run, or its last stage in the last run.
    pub const fn stage(&self) -> Stage {
        self.reached
    }

    /// Whether it is masked.
    pub const fn is_masked(&self) -> bool {
        self.is_masked
    }

    /// Whether it is no longer waited for in this run.
    pub const fn is_left_behind(&self) -> bool {
        self.is_left_behind
    }

    /// Returns its last status in this run.
    pub const fn status(&self) -> &Status {
        &self.status
    }

    /// Returns the account of the trigger source after its veto.
    pub const fn vetoed(&self) -> Option<&Vetoed> {
        self.vetoed.as_ref()
    }

    /// Returns what it sent, after its stop.
    pub const fn stopped(&self) -> Option<&Stopped> {
        self.stopped.as_ref()
    }

    /// Returns the number of the last event, while the trigger source reports that it is held.
    pub fn held(&self) -> Option<u64> {
        self.hold.last.filter(|_| self.hold.is_held)
    }

    /// Whether it need not be waited for on the way to `stage`.
    pub(super) fn is_settled(&self, stage: Stage) -> bool {
        self.reached >= stage || self.is_left_behind || self.is_masked
    }

    /// Returns the stage of a connecting front end in this run, by its own report.
    pub(super) fn stage_of(hello: &Hello, run: RunNumber) -> Stage {
        if hello.run == run { hello.stage } else { Stage::Idle }
    }
}

/// Maximum number of incidents of one run that are kept; further ones are counted.
pub const MOST_INCIDENTS: usize = 64;

/// Kind of an incident.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IncidentKind {
    /// Its control connection ended.
    Lost,
    /// It reconnected and is in the run as before.
    Returned,
    /// It reconnected without knowledge of the run, so it was restarted. It is left out until the next run.
    StartedAnew,
    /// It could not obey a command, for this reason.
    Failed(String),
    /// It did not reach this stage in time.
    NoAnswer(Stage),
    /// It has sent nothing for some time, although its connection is open.
    Silent,
    /// The trigger source speaks version 1 and cannot be held.
    CannotBeHeld,
    /// It did not report in time that it is held.
    NotHeld,
    /// It did not report in time that it is released.
    NotReleased,
}

impl fmt::Display for IncidentKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => out.write_str("its control connection was lost"),
            Self::Returned => out.write_str("it is back, and in the run as before"),
            Self::StartedAnew => {
                out.write_str("it is back and knows nothing of the run (started anew?): left out until the next one")
            }
            Self::Failed(text) => write!(out, "it says that it failed: {text}"),
            Self::NoAnswer(stage) => write!(out, "it was not {} in time", stage.name()),
            Self::Silent => out.write_str("it says nothing although its connection stands"),
            Self::CannotBeHeld => out.write_str(
                "it speaks version 1 of the protocol and cannot be held: in a pause it is back-pressure that holds its triggers",
            ),
            Self::NotHeld => out.write_str(
                "it was not held in time: the run is paused all the same, and back-pressure holds its triggers",
            ),
            Self::NotReleased => out.write_str("it was not released in time; the command is repeated"),
        }
    }
}

/// An incident of a front end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incident {
    /// The front end.
    pub source: SourceId,
    /// The time.
    pub at: Instant,
    /// The kind.
    pub kind: IncidentKind,
}
