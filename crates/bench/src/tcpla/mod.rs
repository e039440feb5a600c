//! `bench tcpla`: the figures of paper 3, section V, of our end points and of the event builder over them.
//!
//! ```text
//!  figure=7            throughput against message size, each mechanism, untuned and tuned   throughput.rs, ours.rs
//!  figure=auto         what `auto` takes, beside the best of epoll and io_uring            throughput.rs
//!  figure=coalescing   many small messages, beside one call for each                        throughput.rs
//!  figure=place        what the place of a message in its page does                        throughput.rs
//!  figure=latency      2 KiB messages at 10, 50 and 90 % of what can be sent                latency.rs
//!  figure=11, 12       fragments of 12 and 16 streams, the event builder running            builder.rs, processes.rs
//!  figure=checked      payloads written and checked, as in flesnet's figures                   here
//!  figure=peers        iperf3, ZeroMQ, libfabric, where they are installed                  peers.rs
//! ```
//! The limit of each figure is a bare program that makes the same sends in the same minute.

mod builder;
pub(crate) mod latency;
mod ours;
mod peers;
mod processes;
mod throughput;

use crate::BenchError;
use crate::pairs::alternate;
use crate::session::{Row, Session, bare_receiver, case};
use ropewalk_doctor::run::{Ran, RunPlan};
use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_limits::{BareMechanism, PairSockets, SlinkConfig};
use ropewalk_memory::{Pool, PoolConfig};
use serde_json::json;

/// Bytes sent with one system call where messages coalesce.
const SEND: usize = 64 << 10;
/// Bytes of the kernel's buffers on each side of a tuned connection.
const SOCKET_BUFFER: usize = 4 << 20;

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    throughput::figure_7(session)?;
    throughput::auto(session)?;
    throughput::coalescing(session)?;
    throughput::place(session)?;
    latency::bench(session)?;
    builder::bench(session)?;
    checked(session)?;
    if session.options.peers {
        peers::bench(session)?;
    }
    Ok(())
}

/// The tuning of a connection, after paper 3, section IV.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Tuning {
    /// System defaults: congestion control and buffers, any processor, one message per call.
    Untuned,
    /// Cubic, large buffers, a processor for each side, as many messages per call as fill it.
    Tuned,
}

impl Tuning {
    const fn name(self) -> &'static str {
        match self {
            Self::Untuned => "untuned",
            Self::Tuned => "tuned",
        }
    }

    const fn sockets(self) -> PairSockets {
        match self {
            Self::Untuned => PairSockets { cubic: false, buffer_bytes: 0 },
            Self::Tuned => PairSockets { cubic: true, buffer_bytes: SOCKET_BUFFER },
        }
    }

    /// The processors of receiver and sender.
    const fn cpus(self) -> Option<[usize; 2]> {
        match self {
            Self::Untuned => None,
            Self::Tuned => Some([0, 1]),
        }
    }

    /// Messages sent with one call.
    fn messages_per_send(self, message_bytes: usize) -> usize {
        match self {
            Self::Untuned => 1,
            Self::Tuned => (SEND / message_bytes).max(1),
        }
    }
}

/// The bare mechanism that ours is compared with.
const fn bare(mechanism: Mechanism) -> BareMechanism {
    match mechanism {
        Mechanism::IoUring => BareMechanism::IoUring,
        _ => BareMechanism::Epoll,
    }
}

/// Why the kernel does not offer a mechanism, if it does not.
fn missing(mechanism: Mechanism) -> Option<String> {
    let pool = PoolConfig::heap("bench mechanism", 4096, 1);
    let config = TcpConfig { mechanism, ..TcpConfig::default() };
    let made = Pool::new(pool).map_err(|error| error.to_string()).map(|pool| Tcp::new(config, pool));
    match made {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(why) => Some(why),
    }
}

// ---- payloads that front ends write and the readout unit checks, as in flesnet's figures

const NOTE: &str = "every payload written word by word with its checksum, and checked; limit: bare receiver that walks the \
                    headers of the same streams; flesnet, on a machine like this one: 1.3, 1.7 and 2.1 at 1, 10 and 100 \
                    KiB; target: twice that";

fn checked(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    for &bytes in scale.choose(&[1 << 10][..], &[1 << 10, 10 << 10, 100 << 10], &[1 << 10, 10 << 10, 100 << 10]) {
        let case = case([("figure", json!("checked")), ("streams", json!(2)), ("fragment_bytes", json!(bytes))]);
        session.measure(&case, |session| {
            let sender = SlinkConfig {
                streams: 2,
                fragment_bytes: bytes,
                fragments_per_send: (SEND / bytes).max(1),
                written: true,
                ..SlinkConfig::default()
            };
            let plan = RunPlan { check_crc: true, ..session.plan(sender, [100, 300, 1000], "checked") };
            let limit = || bare_receiver(&plan);
            let ours = || {
                let Ran { gigabytes_per_second, per_processor_second, cpu_seconds_per_gigabyte, .. } = plan.run()?;
                Ok([gigabytes_per_second, per_processor_second, cpu_seconds_per_gigabyte])
            };
            let [rate, per_cpu, all] = alternate(scale.pairs(), ours, limit)?;
            session.row(Row::of(&case, "GB/s", &rate, NOTE).by_processor(&per_cpu).with_process_cpu(&all))
        })?;
    }
    Ok(())
}
