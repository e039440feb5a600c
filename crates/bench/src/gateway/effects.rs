//! What the system's settings do to a gateway that receives and builds (section IV).

use ropewalk_limits::timestamped;
use serde_json::json;

use super::packets::Packets;
use super::run::{Times, gateway};
use super::setup::{Priority, Setup, Towards};
use super::times;
use crate::BenchError;
use crate::cable::{Kernel, Rig};
use crate::pairs::{Series, alternate};
use crate::session::{Row, Session, case};

const MTU: &str = "packets of 4 kB (as many more events in each); limit: packets of 0.9 kB; paper: 24 % less processor for as many bytes";
const TIMESTAMP: &str =
    "another socket of the machine wants every packet's time (SO_TIMESTAMP); limit: nobody does; paper: not negligible";
const PRIORITY: &str = "the gateway at a real-time priority (SCHED_FIFO), beside a thread that computes on its processor; limit: as usual, \
                        beside the same thread; paper: predictability rather than speed";
const AFFINITY: &str =
    "threads kept on their processors; limit: left to the scheduler; paper: better and more predictable";

pub(super) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let usual = Setup { towards: Towards::Nobody, ..Setup::USUAL };
    // 112 fragments of 32 bytes and all headers fit a frame of 4,096 bytes.
    let large = Setup { packets: Packets { packing: 112, ..Packets::FIRST_LEVEL }, mtu: 4082, ..usual };
    compare(session, "mtu", [large, Setup { mtu: 4082, ..usual }], MTU)?;
    let beside = Setup { priority: Priority::Beside, ..usual };
    compare(session, "priority", [Setup { priority: Priority::Before, ..usual }, beside], PRIORITY)?;
    compare(session, "affinity", [usual, Setup { is_placed: false, ..usual }], AFFINITY)?;
    timestamps(session, usual)
}

/// A setting and its absence in turns.
fn compare(
    session: &mut Session<'_>,
    name: &str,
    [with, without]: [Setup; 2],
    note: &'static str,
) -> Result<(), BenchError> {
    let figure = |setup: &Setup, rig: &Rig, times| gateway(rig, setup, times).map(|intake| intake.rate);
    effect(
        session,
        name,
        note,
        with.mtu,
        |rig, times| figure(&with, rig, times),
        |rig, times| figure(&without, rig, times),
    )
}

fn timestamps(session: &mut Session<'_>, usual: Setup) -> Result<(), BenchError> {
    let stamped = |rig: &Rig, times| {
        let _wants_them = timestamped().map_err(BenchError::system("a socket that wants packets' times"))?;
        gateway(rig, &usual, times).map(|intake| intake.rate)
    };
    effect(session, "timestamp", TIMESTAMP, usual.mtu, stamped, |rig, times| {
        gateway(rig, &usual, times).map(|intake| intake.rate)
    })
}

/// A setting and its absence in turns.
fn effect(
    session: &mut Session<'_>,
    name: &str,
    note: &'static str,
    mtu: u32,
    with: impl Fn(&Rig, Times) -> Result<f64, BenchError>,
    without: impl Fn(&Rig, Times) -> Result<f64, BenchError>,
) -> Result<(), BenchError> {
    let case = case([("effect", json!(name))]);
    if !session.wants(&case) {
        return Ok(());
    }
    let Some(rig) = Rig::of_case(session, &case, Kernel::Interrupt, mtu)? else { return Ok(()) };
    let scale = session.options.scale;
    let [series]: [Series; 1] =
        alternate(scale.pairs(), || Ok([with(&rig, times(scale))?]), || Ok([without(&rig, times(scale))?]))?;
    session.row(Row::of(&case, "Gb/s", &series, note))
}
