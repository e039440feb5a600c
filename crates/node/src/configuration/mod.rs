//! The configuration: read once, checked whole, resolved to numbers that nobody has to look up again.
//!
//! ```text
//! TOML text -> parse (syntax, unknown keys, ${VARIABLES}) -> Configuration (model.rs, run.rs, source.rs, ...)
//!           -> check (names, ranges, time-outs that fit together) -> what the run uses
//! ```
//! An error says file, line, column and key, shows the line with a caret, and says what would be right.

mod alarms;
mod black_box;
mod check;
mod control;
mod emulate;
mod entrance;
mod error;
mod felix;
mod felix_check;
mod felix_event;
mod felix_serve;
mod file_based;
mod filter;
mod filter_text;
mod first;
mod format;
mod gateway;
mod gathering;
mod histogram;
mod layout;
mod layout_text;
mod model;
mod parse;
mod placement;
mod run;
mod settings;
mod shared;
mod source;
mod splitter;
mod storage;
#[cfg(test)]
mod tests;
mod written;

pub use alarms::{AlarmSection, AlarmsSection, LogLevel, LogbookSection, MonitorSection, PagesChoice, alarm_rules};
pub use black_box::BlackBoxSection;
pub use control::ControlSection;
pub use emulate::Emulate;
pub use entrance::{InputChoice, NetworkAddress, PacketsTable};
pub use error::ConfigurationError;
pub use felix::{
    Blocks, ELinkSection, EmulateCard, FaultShares, FelixSection, OutageSection, WakeChoice, WriterChoice,
};
pub use felix_event::{Endian, EventChoice, EventField};
pub use felix_serve::ServeSection;
pub use file_based::{FileBasedSection, written_version};
pub use filter::{BytesTable, FilterSection, RandomTable, SizeTable, StreamSection, TriggerChoice};
pub use filter_text::NotThis;
pub use format::FormatName;
pub(crate) use gateway::FARM_PROTOCOL;
pub use gateway::{
    Addresses, Architecture, DefaultChoice, EmulateFarm, EmulateFlow, FarmSection, FlowSection, GatewaySection,
    Gathering, ListenAddress, NodeOutage, ReceiveChoice, SendChoice, SourcesSection, TellSection, ThrottleSection,
    TransportChoice, TriggerNaming, TriggerSection,
};
pub use histogram::{
    BoundChoice, FieldTable, HistogramOf, HistogramSection, ScaleChoice, SourceOrRange, SourcesChoice,
};
pub use layout::{
    BoardChoice, BoardTable, BoardsChoice, ChecksumTable, CountsChoice, DemuxTable, EventTable, FrameChoice,
    FrameTable, LengthTable, NumberTable, NumbersChoice, PatternTable, PiecesTable, StatusTable, TimeTable,
    TrailerTable,
};
pub use layout_text::{BytesChoice, ChecksumName, NumberType, PeerOrPlace, Tick};
pub use model::{
    BuilderSection, Configuration, ManagerSection, PoolRule, ReadoutSection, SchedulingChoice, SynchronyAction,
    SynchronySection, ThreadRule, TimeoutSection,
};
pub use parse::{Fault, Faults, parse, parse_as, point_at, read, read_pull, read_push, read_text};
pub(crate) use placement::{fault_of, policy, policy_of};
pub use run::{LumisectionChoice, PlacementChoice, RestartChoice, RunSection, SyncChoice};
pub use settings::Settings;
pub use source::{BunchCrossing, SourceSection};
pub use splitter::SplitterSection;
pub use storage::{StorageSection, TransferSection};
pub(crate) use written::digest;
pub use written::{Differences, Written};

/// The JSON schema of a configuration, as text.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Configuration);
    serde_json::to_string_pretty(&schema).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
}
