//! Front ends of one's own under run control: in which order they and the nodes of a run begin and end.
//!
//! ```text
//!              every source ready      nodes run       every source started
//!  idle -> configuring -------> awaiting nodes -> starting -------> running (now the trigger source is enabled)
//!   ^           |                     |               |                |
//!   |           +---------------------+---------------+----------------+--Stop, or the nodes end by themselves
//!   |                                                                  v
//!   +-- finished <--nodes are stopped-- stopping <--last event known-- vetoing
//!                        (every source's data up to the last event have left)
//! ```
//! Every command is answered, and repeats do no harm: a front end that comes back says how far it is and hears what it
//! missed. While the run is paused the trigger source is held (`pause`). Before the nodes run the start waits for every source that an event needs. Afterwards nobody is waited for
//! longer than a limit: who does not answer is named and left behind, so that every stop finishes.

mod incident;
mod machine;
mod member;
mod pause;
#[cfg(test)]
mod tests;

pub use incident::{Incident, IncidentKind, MOST_INCIDENTS};
pub use machine::{FrontEndAction, FrontEndPhase, FrontEnds, FrontEndsConfig, RunOrder};
pub use member::{FrontEndConfig, Member, READINGS_PER_SECOND, Readings};
