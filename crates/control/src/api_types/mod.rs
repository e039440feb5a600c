//! What leaves as JSON, by topic. Names are part of the interface, `/api/v1`.

mod balance;
mod monitoring;
mod operating;
mod run;

pub(crate) use self::balance::Balance;
pub(crate) use self::monitoring::{
    Alarm, Histogram, History, Incidents, Limited, Measured, Reference, SampledEvent, histograms, measures, name_of,
};
pub(crate) use self::operating::{
    Holder, Mask, Masking, Operator, Parameter, Restarted, Restarting, masks, parameters,
};
pub(crate) use self::run::{
    Address, Count, JournalEntry, Live, Node, Problem, Reply, Source, State, addresses, command_names, counters, nodes,
    sources,
};
