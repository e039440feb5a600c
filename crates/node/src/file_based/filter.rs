//! Filters that are built in.

use ropewalk_flow::source::Random;
use ropewalk_terms::SourceId;
use ropewalk_wire::fed;
use ropewalk_wire::frd;
use std::fmt;
use std::str::FromStr;

/// Decides on events.
pub trait EventFilter {
    /// Whether the event is accepted. The answer should depend on the event alone: another process may have to give it again.
    ///
    /// # Errors
    /// Where that cannot be said: the event's file is then given back.
    fn accepts(&mut self, event: &frd::Event<'_>) -> Result<bool, Undecided>;
}

/// Why a filter cannot decide.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Undecided(pub String);

/// A filter that needs no code of anybody.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum BuiltIn {
    /// Accepts all.
    All,
    /// Accepts events whose number is a multiple of this.
    Prescale(u64),
    /// Accepts events of at least so many bytes of data.
    Size(u64),
    /// Accepts events with a fragment of this source.
    Source(SourceId),
    /// Accepts this share of events, drawn from their numbers and this seed.
    Random(f64, u64),
}

/// The text names no filter.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{text:?} is no filter: there are all, prescale=10, size=4096 (bytes), source=841, random=0.1 and random=0.1,SEED"
)]
pub struct NoSuchFilter {
    text: String,
}

impl EventFilter for BuiltIn {
    fn accepts(&mut self, event: &frd::Event<'_>) -> Result<bool, Undecided> {
        let number = event.header().event;
        Ok(match *self {
            Self::All => true,
            Self::Prescale(step) => number.is_multiple_of(step),
            Self::Size(least) => event.data().len() as u64 >= least,
            Self::Source(source) => has_source(event, source),
            Self::Random(share, seed) => Random::new(seed, number).unit() < share,
        })
    }
}

fn has_source(event: &frd::Event<'_>, source: SourceId) -> bool {
    let is_its = |place: std::ops::Range<usize>| {
        let fragment = fed::Fragment::parse(&event.data()[place]);
        fragment.is_ok_and(|fragment| fragment.header().source() == source)
    };
    event.fragments().is_some_and(|fragments| fragments.into_iter().any(is_its))
}

impl fmt::Display for BuiltIn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => write!(out, "all"),
            Self::Prescale(step) => write!(out, "prescale={step}"),
            Self::Size(bytes) => write!(out, "size={bytes}"),
            Self::Source(source) => write!(out, "source={}", source.0),
            Self::Random(share, seed) => write!(out, "random={share},{seed}"),
        }
    }
}

impl FromStr for BuiltIn {
    type Err = NoSuchFilter;

    fn from_str(text: &str) -> Result<Self, NoSuchFilter> {
        Self::read(text).ok_or_else(|| NoSuchFilter { text: text.to_owned() })
    }
}

impl BuiltIn {
    fn read(text: &str) -> Option<Self> {
        let Some((name, value)) = text.split_once('=') else { return (text == "all").then_some(Self::All) };
        match name {
            "prescale" => value.parse().ok().filter(|&step| step > 0).map(Self::Prescale),
            "size" => value.parse().ok().map(Self::Size),
            "source" => value.parse().ok().map(SourceId).map(Self::Source),
            "random" => {
                let (share, seed) = value.split_once(',').unwrap_or((value, "1"));
                let share = share.parse().ok().filter(|share| (0.0..=1.0).contains(share))?;
                Some(Self::Random(share, seed.parse().ok()?))
            }
            _ => None,
        }
    }
}
