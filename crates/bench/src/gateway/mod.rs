//! `bench gateway`: the input rate of a gateway (paper 1).
//!
//! ```text
//!  source, CPU 0                      gateway, CPU 1                               farm, CPU 0
//!  packets of 126 sources ─────────► received, built to sets, cut to events ────► discarded once built
//!    as fast as the gateway            (setup.rs: how)                     ├────► dropped at the card, decided at once
//!    has room: nothing is lost                                             └────► nodes, which decide
//!
//!  table=limits  receiving and building, forwarding with decisions: beside bare loops
//!  table=1 to 4  one thing changed at a time: architecture, memory, gathering, sending        tables.rs
//!  table=5       the paper's nine rows, beside the bare loop                                  tables.rs
//!  effect=...    what the system's settings do (section IV)                                   tables.rs
//! ```
//! Each figure is the rate of incoming packets while none is lost: the source has a window, so that the gateway is the
//! only bottleneck, and the kernel's part of receiving runs on the gateway's processor.

mod farm;
mod run;
mod setup;
mod tables;

use crate::cable::{Kernel, Mechanism, Rig};
use crate::pairs::alternate;
use crate::session::{Row, Session, case};
use crate::{BenchError, Scale};
use run::{Intake, bare, gateway};
use serde_json::json;
use setup::{Packets, Sending, Setup, Towards};
use std::time::Duration;

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    limits(session)?;
    tables::bench(session)?;
    tables::effects(session)
}

/// Warm-up, and measured time of a figure.
fn times(scale: Scale) -> (Duration, Duration) {
    let duration = Duration::from_millis(scale.choose(20, 200, 1000));
    (duration / 4, duration)
}

const BUILDING: &str =
    "received, checked and built to sets; limit: bare receiver of the same mechanism; target at 1 KiB: 0.9";
const GATHERING: &str = "and every event put together by copy, and let go; limit: the same";
const FORWARDING: &str = "built, events sent to two nodes on the source's processor, which decide; limit: bare loop that sends each packet \
                          back, same mechanisms; target: 0.85";

/// The unit of the main figure; the figure per busy second of the processor follows it.
pub(super) const RATE: &str = "Gb/s";

const PROCESSOR: &str = "the same in the time in which the gateway's processor had something to do: it sleeps where its source and its nodes, \
                         which share the other one, are slower";

/// How packets come and how events leave.
const WAYS: [(Mechanism, Sending); 5] = [
    (Mechanism::RecvFrom, Sending::SendTo),
    (Mechanism::RecvMmsg, Sending::SendMmsg),
    (Mechanism::RawIp, Sending::SendMmsg),
    (Mechanism::Ring, Sending::Ring),
    (Mechanism::Xdp, Sending::Xdp),
];

fn limits(session: &mut Session<'_>) -> Result<(), BenchError> {
    let all = [(Towards::Discard, BUILDING), (Towards::Itself, GATHERING), (Towards::Nodes, FORWARDING)];
    for (flow, packets) in [("l1", Packets::FIRST_LEVEL), ("hlt", Packets::HIGH_LEVEL)] {
        for (towards, note) in all {
            for (receive, send) in WAYS {
                let setup = Setup { packets, receive, send, towards, ..Setup::USUAL };
                measure(session, flow, &setup, note)?;
            }
        }
    }
    Ok(())
}

fn measure(session: &mut Session<'_>, flow: &str, setup: &Setup, note: &'static str) -> Result<(), BenchError> {
    let kernel = kernel_for(setup.receive);
    let case = case([
        ("table", json!("limits")),
        ("flow", json!(flow)),
        ("job", json!(job(setup.towards))),
        ("kernel", json!(kernel.name())),
        ("mechanism", json!(setup.receive.name())),
        ("payload_bytes", json!(setup.packets.bytes())),
    ]);
    session.measure(&case, |session| {
        let Some(rig) = Rig::of_case(session, &case, kernel, setup.mtu)? else { return Ok(()) };
        let scale = session.options.scale;
        let figures = |intake: Intake| [intake.rate, intake.rate_of_processor, intake.process_seconds_per_gigabyte];
        let [rate, of_processor, all] = alternate(
            scale.pairs(),
            || gateway(&rig, setup, times(scale)).map(figures),
            || bare(&rig, setup, times(scale), setup.towards == Towards::Nodes).map(figures),
        )?;
        session.row(Row::of(&case, RATE, &rate, note).by_processor(&of_processor).with_process_cpu(&all))?;
        session.row(Row::of(&case, "Gb/busy s", &of_processor, PROCESSOR))
    })
}

const fn job(towards: Towards) -> &'static str {
    match towards {
        Towards::Discard => "build",
        Towards::Itself => "build and gather",
        Towards::Card => "forward",
        Towards::Nodes => "forward with decisions",
    }
}

/// A program at the card receives without interrupts: on the gateway's processor a thread does that work.
const fn kernel_for(receive: Mechanism) -> Kernel {
    if matches!(receive, Mechanism::Xdp) { Kernel::Thread } else { Kernel::Interrupt }
}
