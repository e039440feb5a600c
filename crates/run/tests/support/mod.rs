//! Common code of the fault tests. It uses nothing of the product: the data is encoded from the description of the
//! formats, so that a mistake in `wire` is not repeated here.
//!
//! ```text
//! encode     FED fragments, FEROL blocks and generic fragments, byte by byte
//! front_end  a TCP client that sends given data and records it
//! controlled front ends under run control: the example programs, and a test client
//! referee    comparison of the files with the record of the front ends
//! setup      a temporary directory, a configuration, a run, and time-outs
//! disk       faulty disks
//! relay      a relay between two nodes that can be cut, and can falsify reports
//! ```
#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

mod controlled;
mod disk;
mod encode;
mod front_end;
mod referee;
mod relay;
mod setup;

pub(crate) use controlled::{Manner, OwnFrontEnd, Program, free_address};
pub(crate) use disk::{OwnDisk, SmallDisk, replace_with_file};
pub(crate) use encode::{
    Random, SLINK_WORD, fed_fragment, fed_fragment_with, ferol_block, ferol_blocks, generic_header, generic_hello,
    generic_payload,
};
pub(crate) use front_end::{Dialect, FrontEnd, hash, is_closed};
pub(crate) use referee::{Held, HeldEvent, ess_pulses, expect_everything, lost};
pub(crate) use relay::{Relay, Tampering};
pub(crate) use setup::{PATIENCE, Run, Setup, TemporaryDirectory, free_port, wait_for};
