//! How events ended, said to those who come later: of the whole run, and lumisection by lumisection.

use crate::frame::{FrameError, Reader, Writer};
use ropewalk_terms::{ByCause, CAUSES, Cause, EventAccount, EventKey};

/// How the events ended that nobody holds any more. The event manager leaves it with every RU; a successor is told, and
/// so accounts for what it never saw. What was neither unselected, rejected nor quarantined of what was kept was accepted.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Ended {
    /// Every event below this key has ended and is released, by the event manager that says so or an earlier one.
    pub below: EventKey,
    /// How many of them were built whole.
    pub built: u64,
    /// How many were kept although something was missing.
    pub incomplete_emitted: u64,
    /// How many were assigned and dropped, by cause.
    pub dropped: ByCause,
    /// How many were accepted, and no stream took them.
    pub unselected: u64,
    /// How many were rejected.
    pub rejected: u64,
    /// How many were set aside without a decision.
    pub quarantined: u64,
}

/// EVM to BU and RU: a lumisection begins, said before an event of it is assigned. RU and BU to a new EVM: it had begun.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Lumisection {
    /// Its number, from 1 on.
    pub number: u32,
    /// Its first key: events from there on belong to it, up to the first key of the next one.
    pub first: EventKey,
}

/// EVM to BU and RU: every event of a lumisection has ended, wherever it was. RU and BU to a new EVM: that was said.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LumisectionEnd {
    /// Its number.
    pub number: u32,
    /// How the events before it ended; `before.below` is its first key.
    pub before: Ended,
    /// How the events up to its end did; `ended.below` is the first key of the next one.
    pub ended: Ended,
}

impl Ended {
    pub(super) fn encode(&self, to: &mut Writer<'_>) {
        to.key(self.below);
        to.u64(self.built);
        to.u64(self.incomplete_emitted);
        let causes = || CAUSES.iter().map(|&cause| (cause, self.dropped.get(cause))).filter(|&(_, count)| count > 0);
        to.u8(causes().count() as u8);
        for (cause, count) in causes() {
            to.u8(cause as u8);
            to.u64(count);
        }
        [self.unselected, self.rejected, self.quarantined].into_iter().for_each(|count| to.u64(count));
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (below, built, incomplete_emitted) = (from.key()?, from.u64()?, from.u64()?);
        let mut dropped = ByCause::default();
        for _ in 0..from.u8()? {
            let cause = Cause::from_u8(from.u8()?).ok_or(FrameError::Meaning)?;
            dropped.set(cause, from.u64()?);
        }
        let (unselected, rejected, quarantined) = (from.u64()?, from.u64()?, from.u64()?);
        Ok(Self { below, built, incomplete_emitted, dropped, unselected, rejected, quarantined })
    }

    /// The account of the events below `below`, all of which have ended.
    pub const fn of(below: EventKey, account: &EventAccount) -> Self {
        let EventAccount { built, incomplete_emitted, incomplete_dropped: dropped, .. } = *account;
        let EventAccount { unselected, rejected, quarantined, .. } = *account;
        Self { below, built, incomplete_emitted, dropped, unselected, rejected, quarantined }
    }

    /// The account that these numbers are.
    pub fn account(&self) -> EventAccount {
        let Self { built, incomplete_emitted, dropped, unselected, rejected, quarantined, .. } = *self;
        let kept = built + incomplete_emitted;
        EventAccount {
            assigned: kept + dropped.total(),
            built,
            incomplete_emitted,
            incomplete_dropped: dropped,
            accepted: kept.saturating_sub(rejected + quarantined),
            unselected,
            rejected,
            quarantined,
            ..EventAccount::default()
        }
    }
}

impl Lumisection {
    pub(super) fn encode(self, to: &mut Writer<'_>) {
        to.u32(self.number);
        to.key(self.first);
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { number: from.u32()?, first: from.key()? })
    }
}

impl LumisectionEnd {
    pub(super) fn encode(&self, to: &mut Writer<'_>) {
        to.u32(self.number);
        self.before.encode(to);
        self.ended.encode(to);
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { number: from.u32()?, before: Ended::decode(from)?, ended: Ended::decode(from)? })
    }

    /// The account of its own events.
    pub fn account(&self) -> EventAccount {
        self.ended.account().since(&self.before.account())
    }
}
