//! What the fault tests share. Nothing here is taken from the product: the bytes are written down from the
//! description of the formats, so that a mistake in `wire` cannot hide behind itself.
//!
//! ```text
//! encode     FED fragments, FEROL blocks and generic fragments, byte by byte
//! front_end  a TCP client that sends what the test says and remembers what that was
//! controlled front ends under run control: the example programs, and one of the test's own
//! referee    what the files hold, against what the front ends say that they sent
//! setup      a directory of the test's own, a configuration, a run, and patience
//! disk       disks on which something goes wrong
//! relay      a line between two nodes that can be cut, and whose reports can be falsified
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
