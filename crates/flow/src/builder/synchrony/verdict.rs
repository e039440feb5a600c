//! What the machine says about a source, in numbers and in words.

use super::Action;
use core::fmt;
use ropewalk_terms::{Cause, EventKey, SourceId};
use ropewalk_wire::message::SynchronyState;

/// How a source stands to the reference.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// Nothing can be said, and why.
    CannotTell(Doubt),
    /// Its event `n` is the reference's event `n`.
    InSync,
    /// Its event `n` is the reference's event `n + offset`: early where positive, late where negative. Never 0.
    Offset(i16),
    /// It had a relation to the reference and has none any more, at no offset that was tried.
    Lost,
}

/// Why nothing can be said about a source.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Doubt {
    /// Too few events in which both the source and the reference show the same kind of key.
    TooFew,
    /// The reference's keys repeat from event to event (a fixed-frequency pulser): every offset would look right.
    NoInformation,
    /// The keys never had any relation, at no offset that was tried.
    NoRelation,
}

impl Verdict {
    /// The cause that the source's fragments are flagged and counted with, where they are displaced.
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

    /// Events by which the source is displaced, positive where it is early; 0 unless the verdict is an offset.
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
    /// How it stands to the reference.
    pub verdict: Verdict,
    /// The first event of which this is true, as far back as the window shows.
    pub since: EventKey,
    /// The event at which it was found out.
    pub at: EventKey,
    /// What it leads to, where the source is displaced.
    pub action: Option<Action>,
}

impl fmt::Display for Change {
    /// `source 843: one event early since event 2000`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(out, self.source, self.verdict, self.since)
    }
}

impl From<&Change> for SynchronyState {
    /// The message that tells the event manager.
    fn from(change: &Change) -> Self {
        let verdict = match change.verdict {
            Verdict::CannotTell(_) => 0,
            Verdict::InSync => 1,
            Verdict::Offset(_) => 2,
            Verdict::Lost => 3,
        };
        Self { source: change.source, verdict, offset: change.verdict.offset(), since: change.since }
    }
}

/// How a source stands now, and what it went through.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The source.
    pub source: SourceId,
    /// Whether the others are compared with it.
    pub is_reference: bool,
    /// How it stands to the reference.
    pub verdict: Verdict,
    /// The first event of which this is true.
    pub since: EventKey,
    /// Events seen while it was displaced, and in which it had a fragment: what was flagged.
    pub displaced_events: u64,
    /// Comparisons that failed, single errors of an otherwise good source included.
    pub disagreements: u64,
    /// How often it became displaced.
    pub displacements: u32,
    /// The first verdict of displacement and since when, if there was one.
    pub first_displaced: Option<(Verdict, EventKey)>,
    /// Bits of the source's key that are ignored because they never change.
    pub stuck_bits: u32,
}

impl fmt::Display for Status {
    /// `source 843: one event early since event 2000`, and what was before, where that was worse.
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
