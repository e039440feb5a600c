//! Synchrony: does each source still speak of the same trigger as the reference source?
//!
//! The classic disaster of a test beam is that every event is complete and wrong: one source missed a trigger, its
//! own counter stayed gapless, and from then on it delivers the data of the next trigger. Nothing is missing, no
//! checksum fails. What gives it away is a key that the trigger itself stamped on the data:
//! ```text
//!   event            1998   1999   2000   2001   2002        observe(key, observations)
//!   reference, BX     654   1574    282   1984   1987             |  history, a ring of rows by event key
//!   source, BX        654   1574   1984   1987   3332             |  in step: compare, count, nothing else
//!                                  ^ one event early              v  in doubt: assess, then search -50..=+50
//!                                    since event 2000        poll() -> Change { source, verdict, since, at }
//! ```
//! **Sign**: a source at offset `k` carries at event `n` the data of trigger `n + k`. It is `k` events *early* where
//! `k` is positive (it lost a trigger and renumbered the rest), *late* where it is negative (it counted one twice).
//! Nothing is ever shifted: the verdict is said, flagged and counted, raw ids stay as they are.
//!
//! Witnesses, strongest first: the trigger tag, the bunch crossing, the time between triggers with fitted clock ratio.
//! A pure machine: no input or output, no clock, and no allocation after [`Synchrony::new`].

mod assess;
mod comparer;
mod config;
mod history;
mod machine;
mod observation;
mod pairing;
mod search;
mod standing;
mod verdict;
mod watch;

pub use config::{Action, Config, ConfigError, SourceConfig};
pub use machine::Synchrony;
pub use observation::Observation;
pub use verdict::{Change, Doubt, Status, Verdict};

/// How far a source may be displaced, in events, for the offset to be found.
pub const REACH: i16 = 50;

#[cfg(test)]
mod tests;
