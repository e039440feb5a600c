//! What an operator may ask for, where a sequence of runs can be, and how a command is answered.

use super::machine::Fault;

/// What an operator asks for.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Command {
    /// Set everything up: memory, threads, addresses, front ends.
    Configure,
    /// Begin the next run.
    Start,
    /// Build no further event for now; sources are held back.
    Pause,
    /// Go on.
    Resume,
    /// End the run: what has come is still built, decided and written.
    Stop,
    /// Give everything back; what of a run is not done is dropped, and named in its account.
    Reset,
    /// Stop, and end for good.
    Shutdown,
}

impl Command {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Configure, Self::Start, Self::Pause, Self::Resume, Self::Stop, Self::Reset, Self::Shutdown];

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configure => "configure",
            Self::Start => "start",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Stop => "stop",
            Self::Reset => "reset",
            Self::Shutdown => "shutdown",
        }
    }

    /// The command of this name, or of the one that it has in other systems: `conf`, `enable` (start), `halt` (reset).
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "conf" => Some(Self::Configure),
            "enable" => Some(Self::Start),
            "halt" => Some(Self::Reset),
            _ => Self::ALL.into_iter().find(|command| command.name() == name),
        }
    }
}

/// Where a sequence of runs is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum OperationState {
    /// Nothing is set up.
    #[default]
    Initial,
    /// A run can begin.
    Configured,
    /// Events are built.
    Running,
    /// A run is under way and no further event is built.
    Paused,
    /// No further event is opened; what is there is finished.
    Draining,
    /// Something failed; see the fault.
    Error,
    /// Nothing follows.
    Over,
}

impl OperationState {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Initial, Self::Configured, Self::Running, Self::Paused, Self::Draining, Self::Error, Self::Over];

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Configured => "configured",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Draining => "draining",
            Self::Error => "error",
            Self::Over => "over",
        }
    }

    /// What can be asked for here.
    pub const fn allowed(self) -> &'static [Command] {
        match self {
            Self::Initial => &[Command::Configure, Command::Shutdown],
            Self::Configured => &[Command::Start, Command::Reset, Command::Shutdown],
            Self::Running => &[Command::Pause, Command::Stop, Command::Reset, Command::Shutdown],
            Self::Paused => &[Command::Resume, Command::Stop, Command::Reset, Command::Shutdown],
            Self::Draining => &[Command::Stop, Command::Reset, Command::Shutdown],
            Self::Error => &[Command::Reset, Command::Shutdown],
            Self::Over => &[],
        }
    }

    /// Whether a run is under way.
    pub const fn has_run(self) -> bool {
        matches!(self, Self::Running | Self::Paused | Self::Draining)
    }
}

/// Which command is answered: chosen by whoever gives it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommandNumber(pub u64);

/// How a command ended. Each gets one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is carried out.
    Done,
    /// Nothing had to be done.
    AlreadySo,
    /// Not from here: [`OperationState::allowed`] of this state says what is.
    NotNow(OperationState),
    /// A check before the run says no; nothing has changed.
    Refused,
    /// Something went wrong on the way.
    Failed(Fault),
    /// Another command, a later one, led elsewhere.
    Overtaken,
    /// Somebody else holds the controls; see [`Controls`](super::Controls).
    HeldByAnother,
}

impl Answer {
    /// Whether what was asked for is so.
    pub const fn is_good(self) -> bool {
        matches!(self, Self::Done | Self::AlreadySo)
    }

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::AlreadySo => "already_so",
            Self::NotNow(_) => "not_now",
            Self::Refused => "refused",
            Self::Failed(_) => "failed",
            Self::Overtaken => "overtaken",
            Self::HeldByAnother => "held_by_another",
        }
    }
}
