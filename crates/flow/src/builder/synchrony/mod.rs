//! Synchrony: do each source's fragments belong to the same triggers as the reference source's?
//!
//! The classic failure of a test beam is that every event is complete and wrong: one source missed a trigger, its own
//! counter stayed gapless, and from then on it delivers the data of the next trigger. Nothing is missing, no checksum
//! fails. Only a key that the trigger itself stamped on the data shows it:
//! ```text
//!   event            1998   1999   2000   2001   2002        observe(key, observations)
//!   reference, BX     654   1574    282   1984   1987             |  history, a ring of rows by event key
//!   source, BX        654   1574   1984   1987   3332             |  in step: compare, count, nothing else
//!                                  ^ one event early              v  in doubt: assess, then search -50..=+50
//!                                    since event 2000        poll() -> Change { source, verdict, since, at }
//! ```
//! **Sign**: a source at offset `k` carries at event `n` the data of trigger `n + k`. It is `k` events *early* if `k` is
//! positive (it lost a trigger and renumbered the rest), *late* if it is negative (it counted one twice). Nothing is
//! ever shifted: the verdict is reported, flagged and counted, and raw ids stay as they are.
//!
//! Witnesses, strongest first: the bunch crossing; the time between triggers, with a fitted clock ratio. A state
//! machine without input or output, clock, or allocation after [`Synchrony::new`].

mod machine;
mod search;
#[cfg(test)]
mod tests;

pub use machine::Synchrony;

use core::fmt;
use ropewalk_terms::{Cause, EventKey, SourceId};
use ropewalk_wire::message::{FragmentFlags, FragmentMeta, SynchronyState};

/// The largest displacement, in events, at which the offset is found.
pub const REACH: i16 = 50;

/// The watched sources, their reference, and the action on displacement.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The sources, in the order of the observations given to [`Synchrony::observe`].
    pub sources: Vec<SourceConfig>,
    /// The source that the others are compared with; by default the first one with a key.
    pub reference: Option<SourceId>,
    /// Events over which a source is judged, 64 to 4096.
    pub window: u16,
    /// Bunch crossings in an orbit, the modulus of configured offsets; 0 if they do not wrap.
    pub orbit: u16,
    /// The action on a displaced source.
    pub action: Action,
}

impl Config {
    /// The defaults for these sources: window 128, orbit 3564 (the LHC's), action flag.
    pub fn new(sources: impl IntoIterator<Item = SourceConfig>) -> Self {
        Self {
            sources: sources.into_iter().collect(),
            reference: None,
            window: 128,
            orbit: 3564,
            action: Action::default(),
        }
    }

    /// The place of the configured reference among the sources.
    ///
    /// # Errors
    /// If the configuration is invalid.
    fn check(&self) -> Result<Option<usize>, ConfigError> {
        if self.sources.len() > usize::from(u16::MAX) {
            return Err(ConfigError::TooManySources(self.sources.len()));
        }
        if !(64..=4096).contains(&self.window) {
            return Err(ConfigError::Window(self.window));
        }
        let Some(reference) = self.reference else { return Ok(None) };
        let place = self.sources.iter().position(|source| source.source == reference);
        place.map(Some).ok_or(ConfigError::UnknownReference(reference))
    }
}

/// How the keys of one source are compared with those of the others.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct SourceConfig {
    /// The source.
    pub source: SourceId,
    /// Added to its bunch crossing, modulo the orbit, before it is compared.
    pub bunch_crossing_offset: i16,
    /// Bits of its bunch crossing that are compared; 0 compares none.
    pub bunch_crossing_mask: u16,
    /// Width of its time stamp: intervals are taken modulo 2 to the power of this. 1 to 64.
    pub time_bits: u8,
    /// The number of ticks (of the coarser of two clocks) by which equal intervals may differ.
    pub time_tolerance: u32,
}

impl SourceConfig {
    /// The defaults: no offsets, all bits of the time, 12 bits of bunch crossing, 8 ticks of tolerance.
    pub const fn new(source: SourceId) -> Self {
        Self { source, bunch_crossing_offset: 0, bunch_crossing_mask: 0xfff, time_bits: 64, time_tolerance: 8 }
    }
}

/// The action on a displaced source. Its fragments are always flagged and counted, and never shifted.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Action {
    /// Nothing more.
    #[default]
    Flag,
    /// The run pauses.
    Pause,
    /// The run stops.
    Stop,
}

/// Why a configuration is invalid.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// More sources than can be numbered.
    #[error("{0} sources to watch, at most 65535 are possible")]
    TooManySources(usize),
    /// The window is too short for a verdict, or too long to be scanned.
    #[error("a window of {0} events, from 64 to 4096 are possible")]
    Window(u16),
    /// The reference is not a configured source.
    #[error("the reference, source {0}, is not a configured source")]
    UnknownReference(SourceId),
}

const HAS_BUNCH_CROSSING: u8 = 1 << 0;
const HAS_TIME: u8 = 1 << 1;
const COMPARED: u8 = 1 << 0;
const AGREED: u8 = 1 << 1;

/// The observation of one source for one trigger: 16 bytes, each of the two keys may be absent.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Observation {
    time: u64,
    bunch_crossing: u16,
    holds: u8,
    /// The result of the comparison at the watched offset; written by the machine.
    outcome: u8,
}

impl Observation {
    /// The source has no fragment in this event, is masked, or its fragment has no key.
    pub const MISSING: Self = Self { time: 0, bunch_crossing: 0, holds: 0, outcome: 0 };

    /// Adds the bunch crossing, as the source gave it.
    #[must_use]
    pub const fn with_bunch_crossing(mut self, bunch_crossing: u16) -> Self {
        self.bunch_crossing = bunch_crossing;
        self.holds |= HAS_BUNCH_CROSSING;
        self
    }

    /// Adds the trigger's time, in ticks of the source's own clock.
    #[must_use]
    pub const fn with_time(mut self, ticks: u64) -> Self {
        self.time = ticks;
        self.holds |= HAS_TIME;
        self
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

    /// Records the result of the comparison at the watched offset.
    const fn note(&mut self, agreed: bool) {
        self.outcome = if agreed { COMPARED | AGREED } else { COMPARED };
    }

    /// The result of the comparison at the watched offset, if there was one.
    const fn noted(&self) -> Option<bool> {
        if self.outcome & COMPARED == 0 { None } else { Some(self.outcome & AGREED != 0) }
    }

    /// As it was observed.
    const fn without_note(self) -> Self {
        Self { outcome: 0, ..self }
    }
}

impl From<&FragmentMeta> for Observation {
    /// The bunch crossing and the time of a fragment, if its flags say that it has them.
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

/// The offset of a source relative to the reference.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// Unknown, and why.
    CannotTell(Doubt),
    /// Its event `n` is the reference's event `n`.
    InSync,
    /// Its event `n` is the reference's event `n + offset`: early if positive, late if negative. Never 0.
    Offset(i16),
    /// It agreed with the reference before, and agrees at no offset that was tried any more.
    Lost,
}

/// Why the offset of a source is unknown.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Doubt {
    /// Too few events in which both the source and the reference have the same kind of key.
    TooFew,
    /// The reference's keys repeat from event to event (a fixed-frequency pulser): every offset would look right.
    NoInformation,
    /// The keys never agreed, at any offset that was tried.
    NoRelation,
}

impl Verdict {
    /// The cause with which the source's fragments are flagged and counted, if they are displaced.
    pub const fn cause(self) -> Option<Cause> {
        match self {
            Self::Offset(_) => Some(Cause::SynchronyOffset),
            Self::Lost => Some(Cause::SynchronyLost),
            Self::CannotTell(_) | Self::InSync => None,
        }
    }

    /// Whether the source's fragments are known to be in the wrong events.
    pub const fn is_displaced(self) -> bool {
        self.cause().is_some()
    }

    /// The stable name for summaries: `cannot_tell`, `in_sync`, `offset` or `lost`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CannotTell(_) => "cannot_tell",
            Self::InSync => "in_sync",
            Self::Offset(_) => "offset",
            Self::Lost => "lost",
        }
    }

    /// Events by which the source is displaced, positive if it is early; 0 unless the verdict is an offset.
    pub const fn offset(self) -> i16 {
        if let Self::Offset(offset) = self { offset } else { 0 }
    }
}

impl fmt::Display for Verdict {
    /// `in sync`, `one event early`, `3 events late`, `lost`, `cannot tell, ...`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::InSync => out.write_str("in sync"),
            Self::Lost => out.write_str("lost"),
            Self::CannotTell(Doubt::TooFew) => out.write_str("cannot tell, too few events with a common key"),
            Self::CannotTell(Doubt::NoInformation) => out.write_str("cannot tell, the triggers are too regular"),
            Self::CannotTell(Doubt::NoRelation) => out.write_str("cannot tell, its keys have no relation"),
            Self::Offset(offset) => {
                match offset.unsigned_abs() {
                    1 => out.write_str("one event")?,
                    events => write!(out, "{events} events")?,
                }
                out.write_str(if offset > 0 { " early" } else { " late" })
            }
        }
    }
}

/// A verdict that changed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The source.
    pub source: SourceId,
    /// Its offset relative to the reference.
    pub verdict: Verdict,
    /// The first event for which this holds, as far back as the window reaches.
    pub since: EventKey,
    /// The event at which it was found.
    pub at: EventKey,
    /// The action, if the source is displaced.
    pub action: Option<Action>,
}

impl fmt::Display for Change {
    /// `source 843: one event early since event 2000`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(out, self.source, self.verdict, self.since)
    }
}

impl From<&Change> for SynchronyState {
    /// The message to the event manager.
    fn from(change: &Change) -> Self {
        let verdict = match change.verdict {
            Verdict::CannotTell(_) => 0,
            Verdict::InSync => 1,
            Verdict::Offset(_) => 2,
            Verdict::Lost => 3,
        };
        let has_no_relation = change.verdict == Verdict::CannotTell(Doubt::NoRelation);
        let offset = if has_no_relation { 1 } else { change.verdict.offset() };
        Self { source: change.source, verdict, offset, since: change.since }
    }
}

/// The present state of a source, and its history.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The source.
    pub source: SourceId,
    /// Whether the others are compared with it.
    pub is_reference: bool,
    /// Its offset relative to the reference.
    pub verdict: Verdict,
    /// The first event for which this holds.
    pub since: EventKey,
    /// Events with a fragment of the source while it was displaced: the flagged fragments.
    pub displaced_events: u64,
    /// Failed comparisons, including single errors of an otherwise good source.
    pub disagreements: u64,
    /// How often it became displaced.
    pub displacements: u32,
    /// The first verdict of displacement and its first event, if there was one.
    pub first_displaced: Option<(Verdict, EventKey)>,
    /// Bits of the source's key that are ignored because they never change.
    pub stuck_bits: u32,
}

impl fmt::Display for Status {
    /// `source 843: one event early since event 2000`, and the earlier verdict if that was worse.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_reference {
            return write!(out, "source {}: the reference", self.source);
        }
        line(out, self.source, self.verdict, self.since)?;
        if let Some((verdict, since)) = self.first_displaced
            && (verdict, since) != (self.verdict, self.since)
        {
            match self.displacements {
                1 => write!(out, "; before that {verdict} since event {since}")?,
                times => write!(out, "; displaced {times} times, first {verdict} since event {since}")?,
            }
        }
        if self.stuck_bits != 0 {
            write!(out, "; bits {:#x} of its key are stuck", self.stuck_bits)?;
        }
        Ok(())
    }
}

fn line(out: &mut fmt::Formatter<'_>, source: SourceId, verdict: Verdict, since: EventKey) -> fmt::Result {
    match verdict {
        Verdict::CannotTell(_) => write!(out, "source {source}: {verdict}"),
        _ => write!(out, "source {source}: {verdict} since event {since}"),
    }
}
