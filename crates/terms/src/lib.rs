//! The words of Ropewalk: every room speaks in these and in no others.
//!
//! Ids, the event key, time, the causes of loss, the one list of counters, what is measured, the arithmetic of the
//! ledger and the exit status. This crate holds no state and does no input or output.
#![forbid(unsafe_code)]

mod binning;
mod cause;
mod counter;
mod decision;
pub mod flaws;
mod ids;
mod key;
mod ledger;
mod level;
mod measure;
mod parameter;
mod requirement;
mod source_counts;
mod status;
mod time;

pub use binning::Binning;
pub use cause::{CAUSES, Cause};
pub use counter::{COUNTERS, Counter, CounterKind, Place, Unit};
pub use decision::{StreamIndex, StreamSet, TriggerBits};
pub use ids::{Attempt, Epoch, Incarnation, NodeId, Role, RunNumber, SourceId};
pub use key::EventKey;
pub use ledger::{ByCause, ChunkAccount, EventAccount, FragmentAccount, Imbalance, Ledger, PoolAccount, StreamAccount};
pub use level::{AcknowledgementLevel, Ending, Outcome, Verdict};
pub use measure::{BUCKETS, MEASURES, Measure, Recorder, bucket_of, greatest_in};
pub use parameter::Parameter;
pub use requirement::Requirement;
pub use source_counts::SourceCounts;
pub use status::{Asked, FACTS, Fact, Facts, Status};
pub use time::{Instant, Utc};
