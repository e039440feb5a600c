//! Drives: what connects flow's machines to io's endpoints. No threads, no sleeping, no files but through `io`.
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
//! Front ends under run control have a connection to [`ControlledDrive`] beside that of their data; it gives the manager's drive
//! its commands.
//!
//! A drive does a bounded amount of work per [`Drive::turn`] and is then asked how long it may be left alone.
//! Nothing here decides anything about events: that is flow's. Everything is generic over io's twins, so that a simulator can run it
//! as it is.
//!
//! `pages` has what nodes count, in memory that others read; `tap` copies single events for viewers; `documents` has the JSON
//! documents beside files of events.

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
pub use event_files::{EventFiles, EventFilesConfig, LumisectionTotal};
pub use event_output::{EventMachine, EventOutput, EventSink, SinkEvent};
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
pub use source::{Sent, SourceDrive, SourceDriveConfig, SourceFeed, SourceLine};
pub use splitter::{ProcessSight, SplitterLink};
pub use standby::{CoordinatedRun, Coordination, StandbyDrive};
use std::os::fd::BorrowedFd;
use std::time::Duration;
pub use storage::{OutputRoom, Progress, RoomLimits, Storage, StorageConfig, StorageCounts, StreamStorage};

/// Something that a thread, or the simulator, turns.
pub trait Drive {
    /// Does what can be done now, a bounded amount; returns how much that was, 0 for nothing.
    fn turn(&mut self, now: Instant) -> usize;

    /// When the next turn is due even if nothing happens.
    fn next_deadline(&self) -> Option<Instant>;

    /// Before the thread sleeps: false if a turn has something to do right now; arms wake-ups.
    fn prepare_wait(&mut self) -> bool;

    /// What becomes readable when a turn has something to do.
    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>);

    /// The drive has ended, in order or because it was refused, and needs no further turn.
    fn is_done(&self) -> bool;

    /// The final refusal of this node, if any: then the drive is done.
    fn refusal(&self) -> Option<&Refusal> {
        None
    }

    /// Writes what it counts into its page, as it stands between two turns: nothing, where it is no node. Allocates nothing.
    fn tell(&self, _now: Instant, _page: &mut NodePage) {}
}

/// The total time in which a condition held. It is sampled once a turn, with the time of the turn, so that it reads no clock: a
/// condition that held at one sample counts until the next.
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

    /// Nanoseconds in which it held, up to the last sample.
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
