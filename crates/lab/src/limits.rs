//! The bare probes, one after the other: limits that no program on this machine can exceed.

use crate::arguments::LimitsOptions;
use ropewalk_console::exit::{self, Failure};
use ropewalk_doctor::memory::{FAR_BEYOND_CACHES, copy_gigabytes_per_second, scan_gigabytes_per_second};
use ropewalk_doctor::processor::wake_up_microseconds;
use ropewalk_limits::machine::{clock_nanoseconds, system_call_nanoseconds};
use ropewalk_limits::{
    BareMechanism, MID_PAGE, Machine, PairConfig, PairSockets, SlinkConfig, WalkConfig, bare_pair, core_scaling,
    tcp_chain, tcp_walk,
};
use serde_json::json;
use std::io;
use std::time::Duration;

/// Sinks of the bare chain.
const SINKS: usize = 2;

pub(crate) fn limits(options: &LimitsOptions) -> Result<u8, Failure> {
    let duration = Duration::from_millis(if options.quick { 100 } else { 1000 });
    let cpus = (Machine::look().cpus > 1).then_some([0, 1]);
    let tell = |name: &str, unit: &str, figure: f64| {
        if options.json {
            say!("{}", json!({ "limit": name, "figure": figure, "unit": unit }));
        } else {
            say!("{name:<44} {figure:>9.2}  {unit}");
        }
    };
    // If one mechanism is refused, such as io_uring in a container, the others are still measured.
    let tell_or_skip = |name: &str, figure: io::Result<f64>| match figure {
        Ok(figure) => tell(name, "GB/s", figure),
        Err(error) if options.json => say!("{}", json!({ "limit": name, "skipped": error.to_string() })),
        Err(error) => say!("{name:<44} skipped: {error}"),
    };
    if let Some(cpus) = cpus {
        tell("two CPUs relative to one", "", core_scaling(cpus, duration / 4));
    }
    tell("wake-up of a thread", "us", wake_up_microseconds(cpus, duration / 2).map_err(refused)?);
    tell("reading the clock", "ns", clock_nanoseconds());
    tell("a system call", "ns", system_call_nanoseconds());
    tell("memory copied", "GB/s", copy_gigabytes_per_second(FAR_BEYOND_CACHES, 3));
    tell("memory read", "GB/s", scan_gigabytes_per_second(FAR_BEYOND_CACHES, 3));
    for (mechanism, name) in [(BareMechanism::Epoll, "epoll"), (BareMechanism::IoUring, "io_uring")] {
        for send_bytes in [2 << 10, 64 << 10] {
            let sockets = PairSockets { cubic: true, buffer_bytes: 4 << 20 };
            let (place, no_delay, warm_up) = (MID_PAGE, true, duration / 4);
            let pair =
                bare_pair(PairConfig { mechanism, send_bytes, place, sockets, no_delay, warm_up, duration, cpus });
            let name = format!("one TCP connection, {name}, {} KiB a send", send_bytes >> 10);
            tell_or_skip(&name, pair.map(|figures| figures.gigabytes_per_second()));
        }
    }
    let config = WalkConfig { sender: SlinkConfig::default(), duration, cpus, ..WalkConfig::default() };
    let walked = tcp_walk(config).map(|walked| walked.gigabytes_per_second());
    tell_or_skip("16 TCP streams, headers read", walked);
    let passed = tcp_chain(config, SINKS).map(|figures| figures.gigabytes_per_second());
    tell_or_skip("16 TCP streams, events sent on to 2", passed);
    Ok(exit::GOOD)
}

fn refused(error: io::Error) -> Failure {
    Failure::Environment(error.to_string())
}
