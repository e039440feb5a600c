//! The paper's tables: one thing changed at a time, and all nine rows beside the bare loop.

use super::run::{Times, bare, gateway};
use super::setup::{Architecture, Memory, Packets, Priority, Sending, Setup, Towards};
use super::times;
use crate::BenchError;
use crate::cable::{Kernel, Mechanism, Rig};
use crate::pairs::{Series, alternate};
use crate::session::{Row, Session, case};
use ropewalk_engine::gateway::Gathering;
use ropewalk_limits::timestamped;
use serde_json::{Map, Value, json};

const ARCHITECTURE: &str = "Table I; limit: two threads that do everything, each for every second set of events, one on the source's processor; \
                            paper: producer and consumer 0.83 of that";
const MEMORY: &str =
    "Table II: memory that packets are received into; limit: the C library's; paper: its own ring 1.05";
const GATHER: &str =
    "Table III: how events are put together; limit: by the kernel (iovec); paper: memcpy 0.95, short copy 1.00";
const SENDING: &str = "Table IV: how events leave; limit: sendmmsg; paper: zero copy 1.14 of its copying socket";
const SUMMARY: &str =
    "Table V, raw IP received; limit: bare loop that receives packets straight over IP and sends each back";

const IOVEC: Gathering = Gathering::Iovec;
const MEMCPY: Gathering = Gathering::Memcpy;
const SHORT: Gathering = Gathering::ShortCopy;

pub(super) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let forward = Setup { gathering: IOVEC, ..Setup::USUAL };
    let two_queues = Setup { architecture: Architecture::TwoQueues, ..forward };
    let others =
        [("producer and consumer", Architecture::ProducerConsumer), ("one thread", Architecture::ToCompletion)];
    for (name, architecture) in others {
        compare(session, "1", name, [Setup { architecture, ..forward }, two_queues], ARCHITECTURE)?;
    }
    for memory in [Memory::Pool, Memory::Ring] {
        let (ours, other) = (Setup { memory, ..forward }, Setup { memory: Memory::Stdlib, ..forward });
        compare(session, "2", memory.name(), [ours, other], MEMORY)?;
    }
    for (name, gathering) in [("memcpy", MEMCPY), ("short copy", SHORT)] {
        let ours = Setup { gathering, ..forward };
        compare(session, "3", name, [ours, forward], GATHER)?;
    }
    for send in [Sending::SendTo, Sending::Gso, Sending::Ring] {
        let ours = Setup { send, ..Setup::USUAL };
        compare(session, "4", send.name(), [ours, Setup::USUAL], SENDING)?;
    }
    // AF_XDP can only send what it received.
    let by_xdp = Setup { receive: Mechanism::Xdp, ..Setup::USUAL };
    compare(session, "4", Sending::Xdp.name(), [Setup { send: Sending::Xdp, ..by_xdp }, by_xdp], SENDING)?;
    summary(session)
}

/// Measures two setups in turns.
fn compare(
    session: &mut Session<'_>,
    table: &str,
    what: &str,
    [ours, other]: [Setup; 2],
    note: &'static str,
) -> Result<(), BenchError> {
    let case = case([("table", json!(table)), ("with", json!(what)), ("mechanism", json!(ours.receive.name()))]);
    session.measure(&case, |session| {
        let kernel = if ours.receive == Mechanism::Xdp { Kernel::Thread } else { Kernel::Interrupt };
        let Some(rig) = Rig::of_case(session, &case, kernel, ours.mtu)? else { return Ok(()) };
        let scale = session.options.scale;
        let [series, all] = alternate(
            scale.pairs(),
            || gateway(&rig, &ours, times(scale)).map(|intake| intake.rate_and_cost()),
            || gateway(&rig, &other, times(scale)).map(|intake| intake.rate_and_cost()),
        )?;
        session.row(Row::of(&case, "Gb/s", &series, note).with_process_cpu(&all))
    })
}

/// The rows of Table V, each with the paper's change and its rate in Gb/s.
fn rows() -> [(&'static str, f64, Setup); 9] {
    let stdlib = Setup { receive: Mechanism::RawIp, memory: Memory::Stdlib, gathering: IOVEC, ..Setup::USUAL };
    let ring = Setup { memory: Memory::Ring, ..stdlib };
    let zero_copy = Setup { send: Sending::Ring, gathering: SHORT, ..ring };
    let full = Setup { towards: Towards::Nodes, ..zero_copy };
    let large = Setup { mtu: 4096, ..full };
    let more = Setup { packets: Packets { packing: 32, ..Packets::FIRST_LEVEL }, ..large };
    [
        ("1 producer and consumer", 1.35, Setup { architecture: Architecture::ProducerConsumer, ..stdlib }),
        ("2 stdlib memory, iovec", 1.63, stdlib),
        ("3 ring memory, iovec", 1.71, ring),
        ("4 memcpy", 1.63, Setup { gathering: MEMCPY, ..ring }),
        ("5 short copy", 1.71, Setup { gathering: SHORT, ..ring }),
        ("6 zero copy", 1.95, zero_copy),
        ("7 with decisions", 1.77, full),
        ("8 MTU of 4 kB", 1.87, large),
        ("9 packing 32", 1.95, more),
    ]
}

fn summary(session: &mut Session<'_>) -> Result<(), BenchError> {
    for (name, paper, setup) in rows() {
        let described: Map<String, Value> =
            case([("table", json!("5")), ("row", json!(name)), ("paper_gigabits_per_second", json!(paper))]);
        session.measure(&described, |session| {
            let Some(rig) = Rig::of_case(session, &described, Kernel::Interrupt, setup.mtu)? else { return Ok(()) };
            let scale = session.options.scale;
            let [series, all] = alternate(
                scale.pairs(),
                || gateway(&rig, &setup, times(scale)).map(|intake| intake.rate_and_cost()),
                || bare(&rig, &setup, times(scale), true).map(|intake| intake.rate_and_cost()),
            )?;
            session.row(Row::of(&described, "Gb/s", &series, SUMMARY).with_process_cpu(&all))
        })?;
    }
    Ok(())
}

// ---- effects of system settings on a gateway that receives and builds (paper 1, section IV)

const MTU: &str = "packets of 4 kB (as many more events in each); limit: packets of 0.9 kB; paper: 24 % less processor for as many bytes";
const TIMESTAMP: &str = "another socket of the machine requests the time of every packet (SO_TIMESTAMP); limit: no socket does; paper: not negligible";
const PRIORITY: &str = "the gateway at a real-time priority (SCHED_FIFO), beside a thread that computes on its processor; limit: as usual, \
                        beside the same thread; paper: predictability rather than speed";
const AFFINITY: &str =
    "threads kept on their processors; limit: left to the scheduler; paper: better and more predictable";

pub(super) fn effects(session: &mut Session<'_>) -> Result<(), BenchError> {
    let usual = Setup { towards: Towards::Discard, ..Setup::USUAL };
    // 112 fragments of 32 bytes and all headers fit a frame of 4,096 bytes.
    let large = Setup { packets: Packets { packing: 112, ..Packets::FIRST_LEVEL }, mtu: 4082, ..usual };
    compare_effects(session, "mtu", [large, Setup { mtu: 4082, ..usual }], MTU)?;
    let beside = Setup { priority: Priority::Beside, ..usual };
    compare_effects(session, "priority", [Setup { priority: Priority::Before, ..usual }, beside], PRIORITY)?;
    compare_effects(session, "affinity", [usual, Setup { is_placed: false, ..usual }], AFFINITY)?;
    timestamps(session, usual)
}

/// Measures with and without a setting, in turns.
fn compare_effects(
    session: &mut Session<'_>,
    name: &str,
    [with, without]: [Setup; 2],
    note: &'static str,
) -> Result<(), BenchError> {
    let figure = |setup: &Setup, rig: &Rig, times| gateway(rig, setup, times).map(|intake| intake.rate_and_cost());
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
        gateway(rig, &usual, times).map(|intake| intake.rate_and_cost())
    };
    effect(session, "timestamp", TIMESTAMP, usual.mtu, stamped, |rig, times| {
        gateway(rig, &usual, times).map(|intake| intake.rate_and_cost())
    })
}

/// Measures with and without a setting, in turns.
fn effect(
    session: &mut Session<'_>,
    name: &str,
    note: &'static str,
    mtu: u32,
    with: impl Fn(&Rig, Times) -> Result<[f64; 2], BenchError>,
    without: impl Fn(&Rig, Times) -> Result<[f64; 2], BenchError>,
) -> Result<(), BenchError> {
    let case = case([("effect", json!(name))]);
    session.measure(&case, |session| {
        let Some(rig) = Rig::of_case(session, &case, Kernel::Interrupt, mtu)? else { return Ok(()) };
        let scale = session.options.scale;
        let [series, all]: [Series; 2] =
            alternate(scale.pairs(), || with(&rig, times(scale)), || without(&rig, times(scale)))?;
        session.row(Row::of(&case, "Gb/s", &series, note).with_process_cpu(&all))
    })
}
