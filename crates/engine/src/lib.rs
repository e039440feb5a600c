//! Drives: they connect flow's state machines to io's endpoints. They use no threads, no sleeps, and files only through
//! `io`.
//!
//! ```text
//!  cards --ring-------+           +--chunks--> subscribers (stream)
//!                     v           |
//!  front ends --TCP--> ReadoutDrive --super-fragments--> BuilderDrive --events--> EventOutput: FilterStage, Storage --> io::disk
//!                          |   ^                            |   ^                          ^
//!                 announce |   | release      credit, acks  |   | assign                   +--> filter units
//!                          v   |                            v   |
//!                          +------------ ManagerDrive ----------+
//! ```
//! Front ends under run control have a connection to [`ControlledDrive`] in addition to their data connection. This
//! drive gives the manager's drive its commands.
//!
//! A drive does a bounded amount of work per [`Drive::turn`]. [`Drive::next_deadline`] then returns how long it may be
//! left alone. All decisions about events are made in flow. Everything is generic over io's twins, so that a simulator
//! can run it unchanged.
//!
//! `pages` has the nodes' counters in shared memory; `tap` copies single events for viewers; `documents` has the JSON
//! documents that accompany event files.

mod account;
mod admission;
mod black_box;
mod builder;
mod cards;
mod connections;
mod controlled;
mod datagrams;
mod delivery;
pub mod documents;
mod event_files;
mod event_machine;
mod event_output;
mod filter;
pub mod gateway;
mod hearing;
mod link;
mod manager;
mod managers;
mod observation;
pub mod pages;
mod readout;
mod record;
mod sink;
mod source;
mod splitter;
mod standby;
mod storage;
pub mod stream;
pub mod tap;

use crate::pages::NodePage;
pub use account::{Doubts, MaskRecord, MaskedInterval, NodeReport, Part, RunSnapshot, Standing, Unknown};
pub use admission::MOST_STRANGERS;
pub use black_box::{BlackBox, BlackBoxConfig, Recording, RecordingLine};
pub use builder::{BuilderDrive, BuilderDriveConfig};
pub use cards::EmulatedCardDrive;
pub use connections::Entrance;
pub use connections::MOST_UNKNOWN;
pub use controlled::{ControlledDrive, ControlledDriveConfig, FrontEndState, FrontEndsAccount};
pub use datagrams::{DatagramInputConfig, Demux};
pub use delivery::{Answers, Delivery};
pub use event_files::{EventFiles, EventFilesConfig};
pub use event_machine::EventMachine;
pub use event_output::EventOutput;
pub use filter::{
    DecidedEvent, FilterLink, FilterSight, FilterStage, LocalFilter, NotBelieved, Offered, RESULT_BYTES, RecordStore,
    RemoteNotes, RemoteUnit, Said, UnitDecision,
};
pub use link::{Identity, Incoming, MessageReader, Outbox, Refusal, Unsent};
pub use manager::{ClosedRuns, ManagerDrive, ManagerDriveConfig};
pub use observation::{numbering_of, observe, phase_name};
pub use readout::{ReadoutDrive, ReadoutDriveConfig};
pub use record::{Filed, Recorded, Sealing, encode_record};
use ropewalk_terms::Instant;
pub use sink::{EventSink, GatewayEvent, LumisectionTotal, Progress, SinkEvent, StorageCounts};
pub use source::{Sent, SourceDrive, SourceDriveConfig, SourceFeed, SourceLine};
pub use splitter::{ProcessSight, SplitterLink};
pub use standby::{CoordinatedRun, Coordination, StandbyDrive};
use std::os::fd::BorrowedFd;
use std::time::Duration;
pub use storage::{OutputRoom, RoomLimits, Storage, StorageConfig, StreamStorage};

/// A drive, which a thread or the simulator turns.
pub trait Drive {
    /// Does a bounded amount of the work that is possible now. Returns the amount, 0 for nothing.
    fn turn(&mut self, now: Instant) -> usize;

    /// Returns when the next turn is due even if nothing happens.
    fn next_deadline(&self) -> Option<Instant>;

    /// Prepares the thread's sleep and arms wake-ups. Returns false if a turn has work to do immediately.
    fn prepare_wait(&mut self) -> bool;

    /// Appends the descriptors that become readable when a turn has work to do.
    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>);

    /// Returns whether the drive has ended, in order or because it was refused, and needs no further turn.
    fn is_done(&self) -> bool;

    /// Returns the final refusal of this node, if any. The drive is then done.
    fn refusal(&self) -> Option<&Refusal> {
        None
    }

    /// Writes its counters into its page, as of the time between two turns; nothing, if it is not a node. Allocates
    /// nothing.
    fn tell(&self, _now: Instant, _page: &mut NodePage) {}
}

/// The total time in which a condition held. The condition is sampled once per turn, with the time of the turn, so that
/// no clock is read. If it held at one sample, it counts until the next.
#[derive(Copy, Clone, Debug, Default)]
struct BusyTimer {
    since: Option<Instant>,
    total: Duration,
}

impl BusyTimer {
    /// Samples the condition.
    fn look(&mut self, now: Instant, is_so: bool) {
        if let Some(since) = self.since {
            self.total += now.since(since);
        }
        self.since = is_so.then_some(now);
    }

    /// Returns the nanoseconds in which it held, up to the last sample.
    const fn nanoseconds(&self) -> u64 {
        self.total.as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_from_a_look_that_says_yes_to_the_next() {
        let mut timer = BusyTimer::default();
        for (at, is_so) in [(10, false), (20, true), (25, true), (40, false), (90, true), (90, false)] {
            timer.look(Instant::from_nanoseconds(at), is_so);
        }
        assert_eq!(timer.nanoseconds(), 20);
    }
}
