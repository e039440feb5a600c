//! One front end as run control knows it, and what can go wrong with it.

use super::pause::Hold;
use core::fmt;
use ropewalk_terms::{Instant, RunNumber, SourceId};
use ropewalk_wire::front_end::{Hello, Stage, Status, Stopped, Vetoed};

/// A source under run control.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrontEndConfig {
    /// Which one.
    pub source: SourceId,
    /// It is the trigger source: enabled last, vetoed first. At most one is.
    pub is_trigger: bool,
    /// Events need it, so that a start waits for it.
    pub is_required: bool,
    /// Its settings as text.
    pub settings: String,
}

/// Slow readings of a front end in one run.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Readings {
    /// Taken.
    pub taken: u64,
    /// Came too fast, or found no room.
    pub refused: u64,
    /// So many may come at once.
    left: f64,
    since: Instant,
}

/// Slow readings that a front end may report in a second, and at once after a pause.
pub const READINGS_PER_SECOND: u64 = 1000;

impl Readings {
    const NONE: Self = Self { taken: 0, refused: 0, left: READINGS_PER_SECOND as f64, since: Instant::ZERO };

    /// Whether one more is taken.
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

/// One front end: the commands that it got and what it answered.
#[derive(Clone, Debug)]
pub struct Member {
    pub(super) config: FrontEndConfig,
    /// Its last hello; `None` while it is not connected.
    pub(super) hello: Option<Hello>,
    /// How it called itself, and its versions: kept when it goes.
    pub(super) name: String,
    pub(super) versions: String,
    /// It was connected once.
    pub(super) is_known: bool,
    /// It said that it was ready for the present run: it has its settings.
    pub(super) was_ready: bool,
    /// How far it is in the present run.
    pub(super) reached: Stage,
    /// The stage that it was commanded to reach over this connection.
    pub(super) asked: Option<Stage>,
    /// It takes no part, in this run and in later ones, until it is unmasked.
    pub(super) is_masked: bool,
    /// It is not waited for in this run any more.
    pub(super) is_left_behind: bool,
    /// It reported a failure; the command is not repeated before the next limit.
    pub(super) has_failed: bool,
    /// When something came from it last.
    pub(super) heard: Instant,
    pub(super) ping_due: Instant,
    pub(super) is_silent: bool,
    pub(super) status: Status,
    pub(super) vetoed: Option<Vetoed>,
    pub(super) stopped: Option<Stopped>,
    /// Whether it is held, of the trigger source.
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

    /// Forgets the last run.
    pub(super) fn begin(&mut self) {
        (self.reached, self.asked, self.was_ready) = (Stage::Idle, None, false);
        (self.is_left_behind, self.has_failed) = (false, false);
        (self.status, self.vetoed, self.stopped) = (Status::default(), None, None);
        self.hold = Hold::default();
        (self.readings.taken, self.readings.refused) = (0, 0);
    }

    /// Events need it, so that a start waits for it.
    pub(super) const fn is_needed(&self) -> bool {
        self.config.is_required && !self.is_masked
    }

    /// How it was configured.
    pub const fn config(&self) -> &FrontEndConfig {
        &self.config
    }

    /// Whether it said that it was ready for the present run, and so has its settings.
    pub const fn was_ready(&self) -> bool {
        self.was_ready
    }

    /// What it said of itself, while it is connected.
    pub const fn hello(&self) -> Option<&Hello> {
        self.hello.as_ref()
    }

    /// How it called itself last; empty before its first connection.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The versions of its firmware and library, as it said last.
    pub fn versions(&self) -> &str {
        &self.versions
    }

    /// Its slow readings in this run.
    pub const fn readings(&self) -> &Readings {
        &self.readings
    }

    /// How far it is in the present run, or came in the last one.
    pub const fn stage(&self) -> Stage {
        self.reached
    }

    /// It takes no part until it is unmasked.
    pub const fn is_masked(&self) -> bool {
        self.is_masked
    }

    /// It is not waited for in this run any more.
    pub const fn is_left_behind(&self) -> bool {
        self.is_left_behind
    }

    /// Its last word about itself in this run.
    pub const fn status(&self) -> &Status {
        &self.status
    }

    /// The trigger source's account, once it has given it.
    pub const fn vetoed(&self) -> Option<&Vetoed> {
        self.vetoed.as_ref()
    }

    /// What it sent, once it has said so.
    pub const fn stopped(&self) -> Option<&Stopped> {
        self.stopped.as_ref()
    }

    /// The number of the last event so far, while the trigger source is held as it says itself.
    pub fn held(&self) -> Option<u64> {
        self.hold.last.filter(|_| self.hold.is_held)
    }

    /// Whether it need not be waited for on the way to `stage`.
    pub(super) fn is_settled(&self, stage: Stage) -> bool {
        self.reached >= stage || self.is_left_behind || self.is_masked
    }

    /// How far a front end that calls is in this run, as it says itself.
    pub(super) fn stage_of(hello: &Hello, run: RunNumber) -> Stage {
        if hello.run == run { hello.stage } else { Stage::Idle }
    }
}

/// Incidents of one run that are kept; more are counted.
pub const MOST_INCIDENTS: usize = 64;

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IncidentKind {
    /// Its control connection ended.
    Lost,
    /// It called again, and is in the run as before.
    Returned,
    /// It called again and knows nothing of the run: a program that was started anew. It is left out until the next run.
    StartedAnew,
    /// It could not obey a command; with its reason.
    Failed(String),
    /// It did not come so far in time.
    NoAnswer(Stage),
    /// It has said nothing for some time, although its connection stands.
    Silent,
    /// It is the trigger source, speaks version 1, and so does not know what it is to be held.
    CannotBeHeld,
    /// It did not say in time that it was held.
    NotHeld,
    /// It did not say in time that it was released.
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

/// Something that went wrong with a front end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incident {
    /// Which front end.
    pub source: SourceId,
    /// When.
    pub at: Instant,
    /// What happened.
    pub kind: IncidentKind,
}
