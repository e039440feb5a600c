//! Who may give commands, as it is told to people.

use ropewalk_flow::control::operation::{Controls, ControlsChange, ControlsRefusal};
use ropewalk_terms::{Instant, Utc};
use std::time::Duration;

/// The operator whose commands alone are heard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// What they call themselves.
    pub name: String,
    /// Since when they hold the controls.
    pub since: Utc,
}

/// What an operator wants to do with the controls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlsRequest {
    /// To hold them, or to go on holding them: a sign of life.
    Take {
        /// Also where somebody else holds them.
        is_forced: bool,
    },
    /// To hold them no longer.
    Give {
        /// Who is to hold them; none: nobody.
        to: Option<String>,
    },
}

/// What became of that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlsTold {
    /// Who holds them now.
    pub holder: Option<Holder>,
    /// Why they stay where they are; none where what was asked for is so.
    pub refusal: Option<String>,
}

/// The controls, and since when who has them.
pub(super) struct Rota {
    controls: Controls,
    silence: Duration,
    holder: Option<Holder>,
}

impl Rota {
    /// Nobody holds the controls; whoever does, and gives no sign for so long, loses them.
    pub(super) const fn new(silence: Duration) -> Self {
        Self { controls: Controls::new(silence), silence, holder: None }
    }

    /// Whoever holds the controls may be silent for so long from now on.
    pub(super) const fn set_silence(&mut self, silence: Duration) {
        self.silence = silence;
        self.controls.set_silence(silence);
    }

    pub(super) const fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// Why this operator's command is not heard; none where it is.
    pub(super) fn refusal(&mut self, now: Instant, by: &str) -> Option<String> {
        self.controls.permit(now, by).err().map(|refusal| self.why(&refusal))
    }

    /// Does what an operator wants; with an entry for the journal where it changes something.
    pub(super) fn ask(
        &mut self,
        (now, utc): (Instant, Utc),
        by: &str,
        request: &ControlsRequest,
    ) -> (ControlsTold, Option<String>) {
        let done = match request {
            ControlsRequest::Take { is_forced } => self.controls.take(now, by, *is_forced),
            ControlsRequest::Give { to } => self.controls.give(now, by, to.as_deref()),
        };
        let (refusal, entry) = match done {
            Ok(change) => (None, change.map(|change| self.note(utc, &change))),
            Err(refusal) => (Some(self.why(&refusal)), None),
        };
        (ControlsTold { holder: self.holder.clone(), refusal }, entry)
    }

    /// Whether whoever holds the controls was silent for too long; what the journal says of it.
    pub(super) fn tick(&mut self, now: Instant, utc: Utc) -> Option<String> {
        self.controls.tick(now).map(|change| self.note(utc, &change))
    }

    fn note(&mut self, utc: Utc, change: &ControlsChange) -> String {
        self.holder = self.controls.holder().map(|name| Holder { name: name.to_owned(), since: utc });
        match change {
            ControlsChange::Taken { by, from: None } => format!("{by} takes the controls"),
            ControlsChange::Taken { by, from: Some(from) } => format!("{by} takes the controls from {from}, by force"),
            ControlsChange::Given { by, to } => format!("{by} gives the controls to {to}"),
            ControlsChange::Released { by } => format!("{by} gives the controls up: everybody may give commands"),
            ControlsChange::Lost { by } => {
                let silence = self.silence.as_secs();
                format!("{by} gave no sign for {silence} s and loses the controls: everybody may give commands")
            }
        }
    }

    fn why(&self, refusal: &ControlsRefusal) -> String {
        match refusal {
            ControlsRefusal::HeldBy(name) => {
                let since = self.holder.as_ref().map_or_else(String::new, |holder| holder.since.time_of_day());
                format!("{name} holds the controls since {since} UTC: ask for them, or take them by force")
            }
            ControlsRefusal::Free => "nobody holds the controls, so that nobody can give them: take them".to_owned(),
        }
    }
}
