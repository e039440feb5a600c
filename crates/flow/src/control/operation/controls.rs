//! Who may give commands: one operator at a time holds the controls, or nobody does, and then everybody may.

use ropewalk_terms::Instant;
use ropewalk_terms::flaws::{Flaw, is_planted};
use std::time::Duration;

/// What happened to the controls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlsChange {
    /// Somebody has them now. `from` is whoever had them before, who was not asked.
    Taken {
        /// Who has them.
        by: String,
        /// Who had them; none where they were free.
        from: Option<String>,
    },
    /// Whoever had them gave them to somebody.
    Given {
        /// Who had them.
        by: String,
        /// Who has them.
        to: String,
    },
    /// Whoever had them gave them up: everybody may give commands.
    Released {
        /// Who had them.
        by: String,
    },
    /// Whoever had them gave no sign for too long: everybody may give commands.
    Lost {
        /// Who had them.
        by: String,
    },
}

/// Why the controls stay where they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlsRefusal {
    /// Somebody else holds them.
    HeldBy(String),
    /// Nobody holds them, so that nobody can give them to somebody.
    Free,
}

#[derive(Clone, Debug)]
struct Holder {
    name: String,
    /// The last sign of life.
    heard: Instant,
}

/// Who may give commands. Names are what people say of themselves: this keeps those who mean well out of each other's way, and nobody else.
#[derive(Clone, Debug)]
pub struct Controls {
    /// Whoever gives no sign for so long no longer holds them.
    silence: Duration,
    holder: Option<Holder>,
}

impl Controls {
    /// Nobody holds them.
    pub const fn new(silence: Duration) -> Self {
        Self { silence, holder: None }
    }

    /// Whoever holds the controls may be silent for so long from now on.
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
    /// Where somebody else holds the controls.
    pub fn permit(&mut self, now: Instant, by: &str) -> Result<(), ControlsRefusal> {
        match &mut self.holder {
            Some(holder) if holder.name == by => {
                holder.heard = now;
                Ok(())
            }
            Some(holder) if !is_planted(Flaw::ForeignCommandTaken) => Err(ControlsRefusal::HeldBy(holder.name.clone())),
            _ => Ok(()),
        }
    }

    /// An operator takes the controls where they are free; forcibly, from whoever has them. Who has them already gives a sign of life.
    ///
    /// # Errors
    /// Where somebody else holds them, and it is not forced.
    pub fn take(&mut self, now: Instant, by: &str, is_forced: bool) -> Result<Option<ControlsChange>, ControlsRefusal> {
        let from = self.holder().map(str::to_owned);
        let is_news = from.as_deref() != Some(by);
        if let Some(holder) = from.clone().filter(|_| is_news && !is_forced) {
            return Err(ControlsRefusal::HeldBy(holder));
        }
        self.holder = Some(Holder { name: by.to_owned(), heard: now });
        Ok(is_news.then(|| ControlsChange::Taken { by: by.to_owned(), from }))
    }

    /// Whoever holds the controls gives them up, or to somebody.
    ///
    /// # Errors
    /// Where somebody else holds them, or nobody does and somebody is to get them.
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

    /// Whether whoever holds them has been silent for too long.
    pub fn tick(&mut self, now: Instant) -> Option<ControlsChange> {
        self.next_deadline().filter(|&deadline| deadline <= now && !is_planted(Flaw::SilentHolderKept))?;
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
    fn nobody_holds_them_at_first_and_everybody_may_give_commands() {
        let mut controls = Controls::new(SILENCE);
        assert_eq!((controls.holder(), controls.next_deadline()), (None, None));
        assert_eq!((controls.permit(at(1), "ada"), controls.permit(at(1), "bob")), (Ok(()), Ok(())));
        assert_eq!((controls.give(at(1), "ada", None), controls.tick(at(100))), (Ok(None), None));
        assert_eq!(controls.give(at(1), "ada", Some("bob")), Err(ControlsRefusal::Free));
    }

    #[test]
    fn whoever_holds_them_alone_gives_commands_until_they_are_given_or_taken() {
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
    fn whoever_gives_no_sign_loses_them_and_a_command_is_a_sign() {
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
        /// Whatever operators do: one who was refused changed nothing, one who was not refused holds what was asked for, and whoever
        /// takes by force always has them.
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
