//! What leaves as JSON, by topic. Names are part of the interface, `/api/v1`.

mod alarms;
mod balance;
mod event;
mod histograms;
mod history;
mod incidents;
mod live;
mod masks;
mod measures;
mod operator;
mod parameters;
mod parts;
mod reference;
mod state;

pub(crate) use alarms::{Alarm, Limited, name_of};
pub(crate) use balance::Balance;
pub(crate) use event::SampledEvent;
pub(crate) use histograms::{Histogram, histograms};
pub(crate) use history::History;
pub(crate) use incidents::Incidents;
pub(crate) use live::Live;
pub(crate) use masks::{Mask, Masking, Restarted, Restarting, masks};
pub(crate) use measures::{Measured, measures};
pub(crate) use operator::{Holder, Operator};
pub(crate) use parameters::{Parameter, parameters};
pub(crate) use parts::{Address, Count, Node, Source, addresses, counters, nodes, sources};
pub(crate) use reference::Reference;
pub(crate) use state::{JournalEntry, Problem, Reply, State, command_names};
