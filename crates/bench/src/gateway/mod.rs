//! `bench gateway`: what a gateway takes in (paper 1).
//!
//! ```text
//!  source, CPU 0                       gateway, CPU 1                                 farm, CPU 0
//!  packets of 126 sources ──────────► received, built to sets, cut to events ──────► nobody: built and let go
//!    as fast as the gateway             (setup.rs: how)                       ├────► dropped at the card, decided at once
//!    has room: nothing is lost                                                └────► nodes, which decide
//!
//!  table=limits  receiving and building, forwarding with decisions: beside bare loops         limits.rs
//!  table=1 to 4  one thing changed at a time: architecture, memory, gathering, sending        tables.rs
//!  table=5       the paper's nine rows, beside the bare loop                                  tables.rs
//!  effect=...    what the system's settings do (section IV)                                   effects.rs
//! ```
//! Each figure is the rate at which packets come in while none is lost: the source has a window, so that the gateway is the
//! only bottleneck, and the kernel's part of receiving is done on the gateway's processor.

mod charts;
mod effects;
mod farm;
mod limits;
mod packets;
mod run;
mod setup;
mod tables;

use std::time::Duration;

use crate::session::Session;
use crate::{BenchError, Scale};

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    limits::bench(session)?;
    tables::bench(session)?;
    effects::bench(session)?;
    session.page(&charts::charts(session.rows()))
}

/// How long a figure is measured, and the time before.
fn times(scale: Scale) -> (Duration, Duration) {
    let duration = Duration::from_millis(scale.choose(20, 200, 1000));
    (duration / 4, duration)
}
