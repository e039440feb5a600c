//! Drives: what connects flow's machines to io's endpoints. No threads, no sleeping, no files but through `io`.
//!
//! ```text
//!  cards --ring-------+           +--chunks--> subscribers (stream)
//!                     v           |
//!  front ends --TCP--> ReadoutDrive --super-fragments--> BuilderDrive --events--> EventOutput: Filtering, Storage --> io::disk
//!                          |   ^                            |   ^                          ^
//!                 announce |   | release      credit, acks  |   | assign                   +--> filter units
//!                          v   |                            v   |
//!                          +------------ ManagerDrive ----------+
//! ```
//! Front ends under run control have a connection to [`ControlledDrive`] beside that of their data; it gives the manager's drive
//! its commands.
//!
//! A drive does a bounded amount of work per [`Drive::turn`] and is then asked how long it may be left alone.
//! Nothing here decides anything about events: that is flow's.

mod account;
mod black_box;
mod builder;
mod busy_timer;
mod card_subscribers;
mod card_writer;
mod cards;
mod controlled;
mod datagrams;
mod delivery;
mod dividing;
mod entrances;
mod event_output;
mod event_sink;
mod filing;
mod filtering;
mod framers;
mod front_ends;
pub mod gateway;
mod link;
mod manager;
mod managers;
mod mask_record;
mod observation;
mod peer;
mod reader;
mod readout;
mod refusal;
mod rivals;
mod shutdown;
mod source;
mod splitting;
mod standby;
mod storage;
mod strangers;
pub mod stream;
mod table;

pub use account::{Doubts, NodeReport, RunSnapshot, Standing, Unknown};
pub use black_box::{BlackBox, BlackBoxConfig, Recording, RecordingLine};
pub use builder::{BuilderDrive, BuilderDriveConfig};
pub use card_writer::EmulatedCardDrive;
pub use controlled::{ControlledDrive, ControlledDriveConfig, FrontEndState, FrontEndsAccount};
pub use datagrams::{DatagramInputConfig, Demux};
pub use delivery::{Answers, Delivery};
pub use entrances::Entrance;
pub use event_output::EventOutput;
pub use event_sink::{EventSink, Filed, SinkEvent};
pub use filing::{Filing, FilingConfig, LumisectionTotal};
pub use filtering::{
    DecidedEvent, FilterLink, FilterSight, Filtering, LocalFilter, NotBelieved, Offered, RESULT_BYTES, RecordKeeper,
    RemoteNotes, RemoteUnit, Said, UnitDecision,
};
pub(crate) use front_ends::MOST_UNKNOWN;
pub use link::{Identity, Outbox, Unsent};
pub use manager::{ClosedRuns, ManagerDrive, ManagerDriveConfig};
pub use mask_record::{MaskRecord, MaskedInterval, Part};
pub use observation::{observe, phase_name};
pub use reader::{Incoming, MessageReader};
pub use readout::{ReadoutDrive, ReadoutDriveConfig};
pub use refusal::Refusal;
pub use source::{Sent, SourceDrive, SourceDriveConfig, SourceFeed, SourceLine};
pub use splitting::{ProcessSight, SplitterLink};
pub use standby::{CoordinatedRun, Coordination, StandbyDrive};
pub use storage::{OutputRoom, Progress, Recorded, RoomLimits, Storage, StorageConfig, StorageCounts, StreamStorage};
pub(crate) use strangers::MOST_STRANGERS;

use crate::pages::NodePage;
use ropewalk_terms::Instant;
use std::os::fd::BorrowedFd;

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

    /// Who refused it for good, where somebody did: then it is done.
    fn refusal(&self) -> Option<&Refusal> {
        None
    }

    /// Writes what it counts into its page, as it stands between two turns: nothing, where it is no node. Allocates nothing.
    fn tell(&self, _now: Instant, _page: &mut NodePage) {}
}
