//! The terms of Ropewalk, used by all other crates.
//!
//! Ids, the event key, time, the causes of loss, the one list of counters, measured quantities, the arithmetic of the
//! ledger and the exit status. This crate holds no state and does no input or output.
#![forbid(unsafe_code)]

mod cause;
mod counter;
mod decision;
pub mod flaws;
mod ids;
mod ledger;
mod level;
mod measure;
mod parameter;
mod status;
mod text;
mod time;

pub use cause::{CAUSES, Cause};
pub use counter::{COUNTERS, Counter, CounterKind, Place, SourceCounts, Unit};
pub use decision::{StreamIndex, StreamSet, TriggerBits};
pub use ids::{Attempt, Epoch, EventKey, Incarnation, NodeId, Role, RunNumber, SourceId};
pub use ledger::{
    ByCause, ChunkAccount, EventAccount, FragmentAccount, Imbalance, Ledger, PoolAccount, StreamAccount, Sum,
};
pub use level::{AcknowledgementLevel, Ending, Outcome, Verdict};
pub use measure::{BUCKETS, Binning, MEASURES, Measure, Recorder, bucket_of, greatest_in};
pub use parameter::{Parameter, Requirement};
pub use status::{Asked, FACTS, Fact, Facts, Status};
pub use text::{counted, grouped};
pub use time::{Instant, Utc};
