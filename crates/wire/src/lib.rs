//! Byte layouts and framing, in two levels: a checked view of bytes, and an owned value. Never panics on input.
#![forbid(unsafe_code)]

pub mod capture;
pub mod description;
pub mod fed;
pub mod felix;
pub mod ferol;
pub mod filter_node;
pub mod filter_result;
pub mod foreign;
pub mod frame;
pub mod framing;
pub mod frd;
pub mod front_end;
pub mod gateway;
pub mod generic;
pub mod internet;
pub mod layout;
pub mod mdf;
pub mod mending;
pub mod mep;
pub mod message;
pub mod rod;
pub mod run_file;
pub mod stream;
mod zeros;
