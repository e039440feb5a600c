//! `bench gateway`: what a gateway takes in (paper 1).
//!
//! ```text
//!  source, CPU 0                       gateway, CPU 1                                 farm, CPU 0
//!  packets of 126 sources ──────────► received, built to sets, cut to events ──────► discarded once built    
//!    as fast as the gateway             (setup.rs: how)                       ├────► dropped at the card, decided at once
//!    has room: nothing is lost                                                └────► nodes, which decide
//!
//!  table=limits  receiving and building, forwarding with decisions: beside bare loops         limits.rs
//!  table=1 to 4  one thing changed at a time: architecture, memory, gathering, sending        tables.rs
//!  table=5       the paper's nine rows, beside the bare loop                                  tables.rs
//!  effect=...    what the system's settings do (section IV)                                   tables.rs
//! ```
//! Each figure is the rate at which packets come in while none is lost: the source has a window, so that the gateway is the
//! only bottleneck, and the kernel's part of receiving is done on the gateway's processor.

mod farm;
mod limits;
mod run;
mod setup;
mod tables;

use crate::session::Session;
use crate::{BenchError, Scale};
use std::time::Duration;

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    limits::bench(session)?;
    tables::bench(session)?;
    tables::effects(session)
}

/// How long a figure is measured, and the time before.
fn times(scale: Scale) -> (Duration, Duration) {
    let duration = Duration::from_millis(scale.choose(20, 200, 1000));
    (duration / 4, duration)
}
