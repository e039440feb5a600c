//! The bare pair: one connection over loopback, one thread that sends and one that receives, directly on system calls.
//! The limit of every transport that sends as much per call.
//!
//! ```text
//!  sender: the same hot buffer, repeated ────────► receiver: counts bytes, looks at none of them
//!      readiness: send, recv, epoll     ring: io_uring, multishot receive into provided buffers
//! ```

mod readiness;
mod ring;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use ropewalk_doctor::emulated::set_congestion_control;
use ropewalk_doctor::memory::PlacedBytes;
use ropewalk_doctor::processor::{pin, process_cpu_seconds, thread_cpu_seconds};

pub use readiness::{Paced, paced_pair};

/// The kernel interface.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BareMechanism {
    /// Readiness over epoll, then `send` and `recv`.
    Epoll,
    /// One send at a time; a multishot receive fills provided buffers.
    IoUring,
}

/// The options of the sockets, the same on both sides.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct PairSockets {
    /// Cubic, if the kernel has it; otherwise the system's default.
    pub cubic: bool,
    /// Bytes of the kernel's send and receive buffers; 0 leaves both to the kernel.
    pub buffer_bytes: usize,
}

/// The configuration of a pair.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PairConfig {
    /// The kernel interface.
    pub mechanism: BareMechanism,
    /// Bytes per call.
    pub send_bytes: usize,
    /// The offset of the first byte in its page: usually [`MID_PAGE`](crate::MID_PAGE).
    pub place: usize,
    /// The options of the sockets.
    pub sockets: PairSockets,
    /// Whether the sockets send at once, without waiting for more.
    pub no_delay: bool,
    /// Unmeasured time at the beginning.
    pub warm_up: Duration,
    /// Measured time.
    pub duration: Duration,
    /// The processors of receiver and sender; `None` leaves both to the scheduler.
    pub cpus: Option<[usize; 2]>,
}

/// The figures of a pair, bare or not: one form for both, so that both are measured in one way.
#[derive(Copy, Clone, PartialEq, Default, Debug)]
pub struct PairFigures {
    /// Bytes received in the measured time.
    pub bytes: u64,
    /// The measured time.
    pub seconds: f64,
    /// Processor seconds of the receiving thread in it.
    pub receiver_cpu_seconds: f64,
    /// Processor seconds of all threads of this process and its children in it.
    pub process_cpu_seconds: f64,
    /// Bytes sent in the whole time.
    pub sent_bytes: u64,
    /// Processor seconds of the sending thread in the whole time.
    pub sender_cpu_seconds: f64,
}

impl PairFigures {
    /// 10^9 bytes a second.
    pub fn gigabytes_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / self.seconds / 1e9 } else { 0.0 }
    }

    /// Processor seconds per 10^9 bytes, of the sending and of the receiving thread.
    pub fn cpu_seconds_per_gigabyte(&self) -> [f64; 2] {
        let per_gigabyte = |seconds: f64, bytes: u64| seconds / (bytes as f64).max(1.0) * 1e9;
        [per_gigabyte(self.sender_cpu_seconds, self.sent_bytes), per_gigabyte(self.receiver_cpu_seconds, self.bytes)]
    }

    /// The same for all threads of this process and its children.
    pub fn process_seconds_per_gigabyte(&self) -> f64 {
        self.process_cpu_seconds / (self.bytes as f64).max(1.0) * 1e9
    }
}

/// Watches the progress of a receiver, and stops it after the measured time: the one stopwatch of all pairs.
#[derive(Debug)]
pub struct Stopwatch<'a> {
    warm_up: Duration,
    duration: Duration,
    stop: &'a AtomicBool,
    /// When the first bytes arrived.
    began: Option<Instant>,
    /// The end of the warm-up, the bytes received by then, and the processor seconds of the thread and the process.
    measuring: Option<(Instant, u64, [f64; 2])>,
    figures: Option<PairFigures>,
}

impl<'a> Stopwatch<'a> {
    /// Measures `duration` after `warm_up`, and then stops the sender.
    pub fn new(warm_up: Duration, duration: Duration, stop: &'a AtomicBool) -> Self {
        Self { warm_up, duration, stop, began: None, measuring: None, figures: None }
    }

    /// Updates the total number of bytes that the calling thread has received.
    pub fn look(&mut self, received: u64) {
        if self.figures.is_some() || received == 0 {
            return;
        }
        let now = Instant::now();
        let began = *self.began.get_or_insert(now);
        match self.measuring {
            None if now - began >= self.warm_up => {
                // The process first: the thread pays for the look-up of its children.
                let process = process_cpu_seconds();
                self.measuring = Some((Instant::now(), received, [thread_cpu_seconds(), process]));
            }
            Some((from, before, [cpu, process])) if now - from >= self.duration => {
                self.figures = Some(PairFigures {
                    bytes: received - before,
                    seconds: (now - from).as_secs_f64(),
                    receiver_cpu_seconds: thread_cpu_seconds() - cpu,
                    process_cpu_seconds: process_cpu_seconds() - process,
                    ..PairFigures::default()
                });
                self.stop.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// The measured figures, together with the sender's own: bytes, and processor seconds.
    ///
    /// # Errors
    /// The stream ended before the measured time.
    pub fn figures(&self, (sent_bytes, sender_cpu_seconds): (u64, f64)) -> io::Result<PairFigures> {
        let early = || io::Error::other("the stream ended before it was measured");
        Ok(PairFigures { sent_bytes, sender_cpu_seconds, ..self.figures.ok_or_else(early)? })
    }
}

/// Sends and receives as fast as possible.
///
/// # Errors
/// The error of the operating system; `Other` if not everything sent has arrived.
pub fn bare_pair(config: PairConfig) -> io::Result<PairFigures> {
    let stop = AtomicBool::new(false);
    let ([to, from], cpus) = (connection(config.sockets, config.no_delay)?, config.cpus);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            // Moved in: closing it ends the stream.
            let socket = to;
            pin(cpus.map(|[_, sender]| sender));
            let message = PlacedBytes::new(config.send_bytes.max(1), config.place);
            let sent = match config.mechanism {
                BareMechanism::Epoll => readiness::send(&socket, &message, &stop),
                BareMechanism::IoUring => ring::send(&socket, message, &stop),
            };
            sent.map(|bytes| (bytes, thread_cpu_seconds()))
        });
        let receiving = scope.spawn(|| {
            // Moved in: a receiver that fails ends the sender too.
            let socket = from;
            pin(cpus.map(|[receiver, _]| receiver));
            let mut stopwatch = Stopwatch::new(config.warm_up, config.duration, &stop);
            let received = match config.mechanism {
                BareMechanism::Epoll => readiness::receive(&socket, &mut stopwatch),
                BareMechanism::IoUring => ring::receive(&socket, &mut stopwatch),
            };
            received.map(|bytes| (bytes, stopwatch))
        });
        let panicked = |_| io::Error::other("a probe's thread panicked");
        let (received, stopwatch) = receiving.join().map_err(panicked)??;
        let sent = sending.join().map_err(panicked)??;
        if received != sent.0 {
            return Err(io::Error::other(format!("{received} of {} bytes have come", sent.0)));
        }
        stopwatch.figures(sent)
    })
}

/// Two connected non-blocking sockets over loopback: the connecting one first.
fn connection(sockets: PairSockets, no_delay: bool) -> io::Result<[OwnedFd; 2]> {
    let socket = || -> io::Result<OwnedFd> {
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        if sockets.cubic {
            set_congestion_control(&socket);
        }
        if sockets.buffer_bytes > 0 {
            sockopt::set_socket_send_buffer_size(&socket, sockets.buffer_bytes)?;
            sockopt::set_socket_recv_buffer_size(&socket, sockets.buffer_bytes)?;
        }
        sockopt::set_tcp_nodelay(&socket, no_delay)?;
        Ok(socket)
    };
    let (listener, client) = (socket()?, socket()?);
    rustix::net::bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0)))?;
    rustix::net::listen(&listener, 1)?;
    rustix::net::connect(&client, &SocketAddr::try_from(rustix::net::getsockname(&listener)?)?)?;
    let accepted = rustix::net::accept_with(&listener, SocketFlags::CLOEXEC)?;
    for side in [&client, &accepted] {
        rustix::io::ioctl_fionbio(side, true)?;
    }
    Ok([client, accepted])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(mechanism: BareMechanism, send_bytes: usize) -> PairConfig {
        PairConfig {
            mechanism,
            send_bytes,
            place: crate::MID_PAGE,
            sockets: PairSockets { cubic: true, buffer_bytes: 1 << 20 },
            no_delay: true,
            warm_up: Duration::from_millis(5),
            duration: Duration::from_millis(30),
            cpus: None,
        }
    }

    #[test]
    fn everything_that_is_sent_over_epoll_comes() {
        for bytes in [64, 2048, 1 << 20] {
            let figures = bare_pair(config(BareMechanism::Epoll, bytes)).expect("loopback");
            assert!(figures.seconds >= 0.03 && figures.gigabytes_per_second() > 0.0, "{figures:?}");
            assert!(figures.cpu_seconds_per_gigabyte().into_iter().all(|seconds| seconds > 0.0), "{figures:?}");
        }
    }

    #[test]
    fn everything_that_is_sent_over_a_ring_comes() {
        for bytes in [64, 2048, 1 << 20] {
            match bare_pair(config(BareMechanism::IoUring, bytes)) {
                Ok(figures) => assert!(figures.bytes > 0 && figures.sent_bytes >= figures.bytes, "{figures:?}"),
                Err(error) => {
                    let absent = [io::ErrorKind::Unsupported, io::ErrorKind::PermissionDenied];
                    assert!(absent.contains(&error.kind()), "{error}");
                    return ropewalk_tidy::skipped("limits::pair::ring", "the kernel has no io_uring for us");
                }
            }
        }
    }
}
