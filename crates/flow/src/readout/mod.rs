//! Fragments in, super-fragments out: the readout unit (RU) of the pull protocol, as a machine.
//!
//! ```text
//!  bytes --> Framer --> Received --> [Sequence: raw id -> event] --> Table: source x event --> announce --> EVM
//!            (one per connection)     stale, duplicate, corrupt,       |    settled up to `head`
//!                                     late, out of sync: counted       +--> answer <-- request -- BU
//!                                                                      +--> freed  <-- release -- EVM
//! ```
//! An event is *settled* when every required source has delivered or is known not to: its stream went on, it was
//! silent for too long while it was read, its connection ended. What is not released stays; a full table or window
//! takes no more from the sources ([`Readout::room`]), and TCP makes them wait.

mod absence;
mod announcing;
mod answering;
mod beginning;
mod collating;
mod collator;
mod config;
mod doubt;
mod edges;
mod error;
pub mod felix;
mod framer;
mod gaps;
mod histogram;
mod lane;
mod machine;
mod masking;
mod numbering;
mod reading;
mod realign;
mod receiving;
mod report;
mod requests;
mod resynchronising;
mod sequence;
mod settling;
mod source;
mod super_fragment;
mod table;
#[cfg(test)]
mod tests;
mod timeline;

pub use config::{Format, OnClose, ReadoutConfig, SourceConfig};
pub use error::{FramingError, ReadoutConfigError};
pub(crate) use framer::{Assembly, Placed};
pub use framer::{
    Boards, DatagramFramer, DatagramLimits, Divider, Divides, FrameCounts, Framer, FramerLimits, GATHER_TIMEOUT,
    MOST_FRAMES, Opening,
};
pub use machine::{Readout, ReadoutAction};
pub use super_fragment::SuperFragment;
