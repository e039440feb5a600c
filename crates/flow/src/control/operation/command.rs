//! The commands of an operator, their answers, and who may give commands.

use super::Fault;
use ropewalk_terms::Instant;
use std::time::Duration;

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

/// Identifies the command that an answer belongs to; chosen by the sender.
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
    /// Another operator has control; see [`Controls`].
    HeldByAnother,
}

impl Answer {
    /// Whether the requested state is reached.
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

/// A change of control.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlsChange {
    /// An operator took them. `from` is the previous holder, who was not asked.
    Taken {
        /// Who has them.
        by: String,
        /// Who had them; `None` if they were free.
        from: Option<String>,
    },
    /// The holder gave them to another operator.
    Given {
        /// Who had them.
        by: String,
        /// Who has them.
        to: String,
    },
    /// The holder gave them up: any operator may give commands.
    Released {
        /// Who had them.
        by: String,
    },
    /// The holder gave no sign of life for too long: any operator may give commands.
    Lost {
        /// Who had them.
        by: String,
    },
}

/// Why control does not change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlsRefusal {
    /// Another operator holds them.
    HeldBy(String),
    /// They are free, so that there is nothing to give.
    Free,
}

#[derive(Clone, Debug)]
struct Holder {
    name: String,
    /// The last sign of life.
    heard: Instant,
}

/// Who may give commands. Operators choose their own names: this keeps cooperating operators out of each other's way,
/// and is no protection against anyone else.
#[derive(Clone, Debug)]
pub struct Controls {
    /// A holder that gives no sign of life for so long loses control.
    silence: Duration,
    holder: Option<Holder>,
}

impl Controls {
    /// Free controls.
    pub const fn new(silence: Duration) -> Self {
        Self { silence, holder: None }
    }

    /// Changes how long the holder may be silent.
    pub const fn set_silence(&mut self, silence: Duration) {
        self.silence = silence;
    }

    /// Who holds them.
    pub fn holder(&self) -> Option<&str> {
        self.holder.as_ref().map(|holder| holder.name.as_str())
    }

    /// Whether this operator may give a command now. To ask is a sign of life.
    ///
    /// # Errors
    /// If another operator has control.
    pub fn permit(&mut self, now: Instant, by: &str) -> Result<(), ControlsRefusal> {
        match &mut self.holder {
            Some(holder) if holder.name == by => {
                holder.heard = now;
                Ok(())
            }
            Some(holder) => Err(ControlsRefusal::HeldBy(holder.name.clone())),
            None => Ok(()),
        }
    }

    /// Takes control if it is free; by force, from the holder. A repeat by the holder counts as a sign of life.
    ///
    /// # Errors
    /// If another operator holds them, and it is not forced.
    pub fn take(&mut self, now: Instant, by: &str, is_forced: bool) -> Result<Option<ControlsChange>, ControlsRefusal> {
        let from = self.holder().map(str::to_owned);
        let is_news = from.as_deref() != Some(by);
        if let Some(holder) = from.clone().filter(|_| is_news && !is_forced) {
            return Err(ControlsRefusal::HeldBy(holder));
        }
        self.holder = Some(Holder { name: by.to_owned(), heard: now });
        Ok(is_news.then(|| ControlsChange::Taken { by: by.to_owned(), from }))
    }

    /// The holder releases control, or gives it to the operator `to`.
    ///
    /// # Errors
    /// If another operator holds them, or they are free and `to` names an operator.
    pub fn give(
        &mut self,
        now: Instant,
        by: &str,
        to: Option<&str>,
    ) -> Result<Option<ControlsChange>, ControlsRefusal> {
        let by = by.to_owned();
        match (self.holder(), to) {
            (Some(holder), _) if holder != by => Err(ControlsRefusal::HeldBy(holder.to_owned())),
            (None, Some(_)) => Err(ControlsRefusal::Free),
            (None, None) => Ok(None),
            (Some(_), None) => {
                self.holder = None;
                Ok(Some(ControlsChange::Released { by }))
            }
            (Some(_), Some(to)) => {
                self.holder = Some(Holder { name: to.to_owned(), heard: now });
                Ok((to != by).then(|| ControlsChange::Given { by, to: to.to_owned() }))
            }
        }
    }

    /// Frees control if the holder has been silent for too long.
    pub fn tick(&mut self, now: Instant) -> Option<ControlsChange> {
        self.next_deadline().filter(|&deadline| deadline <= now)?;
        self.holder.take().map(|holder| ControlsChange::Lost { by: holder.name })
    }

    /// When [`Controls::tick`] is of use.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.holder.as_ref().map(|holder| holder.heard.after(self.silence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SILENCE: Duration = Duration::from_secs(10);

    const fn at(seconds: u64) -> Instant {
        Instant::from_nanoseconds(seconds * 1_000_000_000)
    }

    fn held_by(name: &str) -> ControlsRefusal {
        ControlsRefusal::HeldBy(name.to_owned())
    }

    #[test]
    fn they_are_free_at_first_and_any_operator_may_give_commands() {
        let mut controls = Controls::new(SILENCE);
        assert_eq!((controls.holder(), controls.next_deadline()), (None, None));
        assert_eq!((controls.permit(at(1), "ada"), controls.permit(at(1), "bob")), (Ok(()), Ok(())));
        assert_eq!((controls.give(at(1), "ada", None), controls.tick(at(100))), (Ok(None), None));
        assert_eq!(controls.give(at(1), "ada", Some("bob")), Err(ControlsRefusal::Free));
    }

    #[test]
    fn only_the_holder_gives_commands_until_they_are_given_or_taken() {
        let mut controls = Controls::new(SILENCE);
        let [ada, bob] = ["ada", "bob"].map(str::to_owned);
        let taken = ControlsChange::Taken { by: ada.clone(), from: None };
        assert_eq!(controls.take(at(1), "ada", false), Ok(Some(taken)));
        assert_eq!(controls.take(at(1), "ada", true), Ok(None), "they are hers");
        assert_eq!((controls.permit(at(1), "ada"), controls.permit(at(1), "bob")), (Ok(()), Err(held_by("ada"))));
        assert_eq!(controls.take(at(2), "bob", false), Err(held_by("ada")));
        assert_eq!(controls.give(at(2), "bob", None), Err(held_by("ada")));
        let given = ControlsChange::Given { by: ada.clone(), to: bob.clone() };
        assert_eq!(controls.give(at(2), "ada", Some("bob")), Ok(Some(given)));
        assert_eq!(controls.permit(at(2), "ada"), Err(held_by("bob")));
        let taken = ControlsChange::Taken { by: ada.clone(), from: Some(bob) };
        assert_eq!(controls.take(at(3), "ada", true), Ok(Some(taken)));
        assert_eq!(controls.give(at(3), "ada", None), Ok(Some(ControlsChange::Released { by: ada })));
        assert_eq!(controls.permit(at(3), "bob"), Ok(()));
    }

    #[test]
    fn a_holder_without_a_sign_of_life_loses_them_and_a_command_is_a_sign() {
        let mut controls = Controls::new(SILENCE);
        controls.take(at(0), "ada", false).expect("they are free");
        controls.permit(at(5), "ada").expect("they are hers");
        // That others ask is no sign of hers.
        controls.permit(at(9), "bob").expect_err("they are not his");
        assert_eq!((controls.tick(at(14)), controls.next_deadline()), (None, Some(at(15))));
        controls.take(at(14), "ada", false).expect("they are hers");
        assert_eq!(controls.tick(at(23)), None);
        assert_eq!(controls.tick(at(24)), Some(ControlsChange::Lost { by: "ada".to_owned() }));
        assert_eq!((controls.tick(at(24)), controls.permit(at(24), "bob")), (None, Ok(())));
    }

    proptest! {
        /// In any order of steps: a refused operator changes nothing, an accepted one gets what it asked for, and
        /// taking by force always succeeds.
        #[test]
        fn one_operator_at_most_holds_them(steps in prop::collection::vec((0..5_u8, 0..3_usize, 0..3_usize, 0..8_u64), 0..60)) {
            let names = ["ada", "bob", "eve"];
            let mut controls = Controls::new(SILENCE);
            let (mut now, mut heard) = (0, 0);
            for (step, by, to, seconds) in steps {
                now += seconds;
                let silent = controls.holder().map(str::to_owned).filter(|_| now >= heard + SILENCE.as_secs());
                prop_assert_eq!(controls.tick(at(now)), silent.map(|by| ControlsChange::Lost { by }));
                let before = controls.holder().map(str::to_owned);
                let (by, to) = (names[by], names[to]);
                let may = before.as_deref().is_none_or(|holder| holder == by);
                let (is_good, after) = match step {
                    0 => (controls.permit(at(now), by).is_ok(), before.clone()),
                    1 => (controls.take(at(now), by, false).is_ok(), Some(by.to_owned())),
                    2 => (controls.give(at(now), by, None).is_ok(), None),
                    3 => (controls.give(at(now), by, Some(to)).is_ok(), Some(to.to_owned())),
                    _ => {
                        prop_assert!(controls.take(at(now), by, true).is_ok());
                        prop_assert_eq!(controls.holder(), Some(by));
                        heard = now;
                        continue;
                    }
                };
                prop_assert_eq!(is_good, may && (step != 3 || before.is_some()));
                prop_assert_eq!(controls.holder().map(str::to_owned), if is_good { after } else { before });
                if is_good { heard = now; }
            }
        }
    }
}
