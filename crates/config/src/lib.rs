//! The configuration: parsed once, checked completely, resolved to numbers that need no further lookup.
//!
//! ```text
//! TOML text -> parse (syntax, unknown keys, ${VARIABLES}) -> Configuration (model.rs, run.rs, source.rs, ...)
//!           -> check (names, ranges, time-outs that fit together) -> what the run uses
//! ```
//! `quantity` has sizes, times and rates in text form; `fields` has the fields that describe a run. An error gives
//! file, line, column and key, shows the line with a caret, and suggests a correct value.

mod alarms;
mod check;
mod error;
mod felix;
pub mod fields;
mod file_based;
mod filter;
mod gateway;
mod histogram;
mod model;
mod parse;
pub mod quantity;
mod run;
mod source;
#[cfg(test)]
mod tests;
mod written;

pub use alarms::{AlarmSection, AlarmsSection, ControlSection, LogLevel, LogbookSection, MonitorSection, alarm_rules};
pub use error::{ConfigurationError, Fault, Faults, no_such};
pub use felix::{
    Blocks, ELinkSection, EmulateCard, Endian, EventChoice, EventField, FaultShares, FelixSection, OutageSection,
    ServeSection, WakeChoice, WriterChoice,
};
pub use file_based::{FileBasedSection, unit_streams, written_version};
pub use filter::{BytesTable, FilterSection, NotThis, RandomTable, SizeTable, StreamSection, TriggerChoice};
pub use gateway::FARM_PROTOCOL;
pub use gateway::{
    Addresses, Architecture, DefaultChoice, EmulateFarm, EmulateFlow, FarmSection, FlowSection, GatewaySection,
    InputQueue, ListenAddress, NodeOutage, ReceiveChoice, SendChoice, SourcesSection, TellSection, ThrottleSection,
    TransportChoice, TriggerNaming, TriggerSection,
};
pub use histogram::{
    BoundChoice, FieldTable, HistogramOf, HistogramSection, ScaleChoice, SourceOrRange, SourcesChoice,
};
pub use model::{
    BuilderSection, Configuration, ManagerSection, PoolRule, ReadoutSection, SchedulingChoice, SynchronyAction,
    SynchronySection, ThreadRule, TimeoutSection,
};
pub use model::{fault_of, policy};
pub use parse::{parse, parse_as, point_at, read, read_pull, read_push, read_text};
pub use quantity::ByteOrigin;
pub use run::{
    LumisectionChoice, PlacementChoice, RestartChoice, RunSection, StorageSection, SyncChoice, TransferSection,
};
pub use source::{
    BlackBoxSection, BoardChoice, BoardTable, BoardsChoice, BunchCrossing, BytesChoice, ChecksumName, ChecksumTable,
    CountsChoice, DemuxTable, Emulate, EventTable, FormatName, FrameChoice, FrameTable, LengthTable, NetworkAddress,
    NumberTable, NumberType, NumbersChoice, PacketsTable, PatternTable, PeerOrPlace, PiecesTable, Settings,
    SourceInput, SourceSection, SplitterSection, StatusTable, Tick, TimeTable, TrailerTable,
};
pub use written::digest;
pub use written::{Differences, Written};

/// The JSON schema of a configuration, as text.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Configuration);
    serde_json::to_string_pretty(&schema).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
}
