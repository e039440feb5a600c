//! Which packets of a source that has started its numbering again a gateway drops.

use ropewalk_flow::gateway::Recount;

/// What one source has sent so far, by the first events of its packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    newest: Option<u32>,
    /// Refused packets since the last one that was placed, each behind the newest one and ahead of the one before.
    refused: Vec<u32>,
    /// How far the run was ahead of the newest one when the first of them came.
    lag: i64,
    pub(super) has_restarted: bool,
}

/// How many events lie from one number to another.
fn from_to(from: u32, to: u32) -> i64 {
    i64::from(to.wrapping_sub(from).cast_signed())
}

impl Sent {
    /// A packet was placed.
    pub(super) fn place(&mut self, number: u32) {
        self.refused.clear();
        match self.newest {
            Some(newest) if from_to(newest, number) <= 0 => {}
            _ => self.newest = Some(number),
        }
    }

    /// A packet came twice or too late. The eighth in a row behind the newest one shows a restart.
    pub(super) fn refuse(&mut self, number: u32, run: u32) -> Option<Recount> {
        let newest = self.newest?;
        if from_to(newest, number) > 0 {
            self.refused.clear();
            return None;
        }
        if self.refused.last().is_none_or(|&last| from_to(last, number) <= 0) {
            self.refused.clear();
            self.lag = from_to(newest, run);
        }
        self.refused.push(number);
        self.has_restarted = self.refused.len() == 8;
        self.has_restarted.then(|| Recount { from: newest, to: self.refused[0] })
    }

    /// Whether a packet is dropped for a restart. It is taken again where it lags behind the run by less than the old lag and half of
    /// what the counter was set back.
    pub(super) fn drops(&mut self, number: u32, run: u32) -> bool {
        let (Some(newest), Some(&first), true) = (self.newest, self.refused.first(), self.has_restarted) else {
            return false;
        };
        let is_ahead = from_to(newest, number) > 0;
        self.has_restarted = !is_ahead || from_to(number, run) > self.lag + from_to(first, newest) / 2;
        self.has_restarted
    }
}
