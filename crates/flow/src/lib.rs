//! All decisions of event building, as state machines: input and `now` in, actions polled out.
//!
//! This crate has no clock, socket, thread, file or log. Its modules are listed in the order in which data pass them,
//! and communicate only through [`messages`].
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
