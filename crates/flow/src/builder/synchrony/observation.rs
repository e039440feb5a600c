//! What one source says about one trigger.

use ropewalk_wire::message::{FragmentFlags, FragmentMeta};

const HAS_TRIGGER_TAG: u8 = 1 << 0;
const HAS_BUNCH_CROSSING: u8 = 1 << 1;
const HAS_TIME: u8 = 1 << 2;
const COMPARED: u8 = 1 << 0;
const AGREED: u8 = 1 << 1;

/// What one source says about one trigger: 16 bytes, any of the three keys may be absent.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Observation {
    time: u64,
    trigger_tag: u32,
    bunch_crossing: u16,
    holds: u8,
    /// What the comparison at the watched offset said; written by the machine.
    outcome: u8,
}

impl Observation {
    /// The source has no fragment in this event, is masked, or its fragment carries no key.
    pub const MISSING: Self = Self { time: 0, trigger_tag: 0, bunch_crossing: 0, holds: 0, outcome: 0 };

    /// With a number that the trigger system handed out (a trigger logic unit's trigger number).
    #[must_use]
    pub const fn with_trigger_tag(mut self, tag: u32) -> Self {
        self.trigger_tag = tag;
        self.holds |= HAS_TRIGGER_TAG;
        self
    }

    /// With the bunch crossing, as the source gave it.
    #[must_use]
    pub const fn with_bunch_crossing(mut self, bunch_crossing: u16) -> Self {
        self.bunch_crossing = bunch_crossing;
        self.holds |= HAS_BUNCH_CROSSING;
        self
    }

    /// With the trigger's time in ticks of the source's own clock.
    #[must_use]
    pub const fn with_time(mut self, ticks: u64) -> Self {
        self.time = ticks;
        self.holds |= HAS_TIME;
        self
    }

    /// The trigger tag, if there is one.
    pub const fn trigger_tag(&self) -> Option<u32> {
        if self.holds & HAS_TRIGGER_TAG != 0 { Some(self.trigger_tag) } else { None }
    }

    /// The bunch crossing, if there is one.
    pub const fn bunch_crossing(&self) -> Option<u16> {
        if self.holds & HAS_BUNCH_CROSSING != 0 { Some(self.bunch_crossing) } else { None }
    }

    /// The time in ticks of the source's clock, if there is one.
    pub const fn time(&self) -> Option<u64> {
        if self.holds & HAS_TIME != 0 { Some(self.time) } else { None }
    }

    /// Whether there is no key at all.
    pub const fn is_missing(&self) -> bool {
        self.holds == 0
    }

    /// Notes what the comparison at the watched offset said.
    pub(super) const fn note(&mut self, agreed: bool) {
        self.outcome = if agreed { COMPARED | AGREED } else { COMPARED };
    }

    /// What the comparison at the watched offset said, where there was one.
    pub(super) const fn noted(&self) -> Option<bool> {
        if self.outcome & COMPARED == 0 { None } else { Some(self.outcome & AGREED != 0) }
    }

    /// As it was observed.
    pub(super) const fn without_note(self) -> Self {
        Self { outcome: 0, ..self }
    }
}

impl From<&FragmentMeta> for Observation {
    /// The bunch crossing and the time of a fragment, where its flags say that it has them.
    fn from(meta: &FragmentMeta) -> Self {
        if meta.missing_cause().is_some() {
            return Self::MISSING;
        }
        let mut observation = Self::MISSING;
        if meta.flags.contains(FragmentFlags::HAS_BUNCH_CROSSING) {
            observation = observation.with_bunch_crossing(meta.bunch_crossing);
        }
        if meta.flags.contains(FragmentFlags::HAS_TIME) {
            observation = observation.with_time(meta.time);
        }
        observation
    }
}
