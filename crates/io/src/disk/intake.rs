//! The appends of one pass over a file, in their order: those that came together, and those that come while they are written.

use rtrb::Consumer;

use super::FileToken;
use super::packers::Packers;
use super::writer::{Append, Command};
use crate::doorbell::Doorbell;

/// Appends that came together.
pub(super) type Batch<'a> = std::vec::Drain<'a, Append>;

/// Where a pass takes its appends from, and whom it tells.
pub(super) struct Intake<'a> {
    pub(super) first: Batch<'a>,
    pub(super) file: FileToken,
    /// Where more come from; none where what comes now is the next pass's.
    pub(super) commands: Option<&'a mut Consumer<Command>>,
    /// Who packs; none where there is nobody but the writer.
    pub(super) packers: Option<&'a mut Packers>,
    /// Rung for the writer when there is a command, when something is packed, and when something is written.
    pub(super) own_bell: &'a Doorbell,
    /// Rung for its user.
    pub(super) user_bell: &'a Doorbell,
}

impl Intake<'_> {
    /// The next one that has come.
    pub(super) fn take(&mut self) -> Option<Append> {
        self.first.next().or_else(|| {
            let commands = self.commands.as_deref_mut()?;
            match commands.peek() {
                Ok(Command::Append(next)) if next.file == self.file => {}
                _ => return None,
            }
            if let Ok(Command::Append(next)) = commands.pop() { Some(next) } else { None }
        })
    }

    /// Whether something is packed that was not taken back.
    pub(super) fn is_packing(&self) -> bool {
        self.packers.as_deref().is_some_and(|packers| packers.under_way() > 0)
    }

    /// Nothing that comes from now on belongs to this pass.
    pub(super) fn close(&mut self) {
        self.commands = None;
    }
}

/// Sleep of a thread that has looked for something to do: before it sleeps it looks once more, so that it misses nothing that
/// happens in between.
pub(super) struct Vigil<'a> {
    bell: &'a Doorbell,
    is_armed: bool,
}

impl<'a> Vigil<'a> {
    pub(super) const fn new(bell: &'a Doorbell) -> Self {
        Self { bell, is_armed: false }
    }

    /// There was nothing to do: sleeps when that is so for the second time in a row.
    pub(super) fn nothing_to_do(&mut self) {
        if self.is_armed {
            self.bell.wait();
            self.awake();
        } else {
            self.bell.arm();
            self.is_armed = true;
        }
    }

    /// There was something to do.
    pub(super) fn awake(&mut self) {
        if self.is_armed {
            self.bell.disarm();
            self.bell.silence();
            self.is_armed = false;
        }
    }
}

impl Drop for Vigil<'_> {
    fn drop(&mut self) {
        self.awake();
    }
}
