//! Every decision of event building, as state machines: input and `now` in, actions polled out.
//!
//! No clock, socket, thread, file or log in here. The rooms stand in the order in which data pass them, and talk
//! through [`messages`] alone.
#![forbid(unsafe_code)]

pub mod builder;
pub mod choosing;
pub mod control;
pub mod files;
pub mod filter;
pub mod gateway;
pub mod histogram;
pub mod manager;
pub mod messages;
pub mod readout;
mod run_state;
pub mod sniff;
pub mod source;
pub mod stream;
pub mod supervision;
pub mod trial;
