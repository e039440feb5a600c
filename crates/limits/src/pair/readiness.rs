//! The bare pair over epoll, at full speed and at given times.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use super::{PairSockets, Stopwatch, connection};
use ropewalk_doctor::memory::{MID_PAGE, PlacedBytes};
use ropewalk_doctor::processor::pin;

/// Bytes of the receiver's single buffer, which stays in the cache.
const RECEIVE: usize = 256 << 10;

/// An epoll that watches one socket.
fn watch(socket: &OwnedFd, what: EventFlags) -> io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, socket, EventData::new_u64(0), what)?;
    Ok(epoll)
}

/// Sleeps until the watched socket is ready.
fn wait(epoll: &OwnedFd) -> io::Result<()> {
    let mut ready = [const { std::mem::MaybeUninit::uninit() }; 4];
    match epoll::wait(epoll, &mut ready, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sends all bytes.
fn send_all(socket: &OwnedFd, epoll: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(taken) => bytes = &bytes[taken..],
            Err(Errno::AGAIN) => wait(epoll)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Sends until the flag is set; returns the number of bytes.
pub(super) fn send(socket: &OwnedFd, message: &[u8], stop: &AtomicBool) -> io::Result<u64> {
    let (epoll, mut sent) = (watch(socket, EventFlags::OUT)?, 0);
    while !stop.load(Ordering::Relaxed) {
        send_all(socket, &epoll, message)?;
        sent += message.len() as u64;
    }
    rustix::net::shutdown(socket, Shutdown::Write)?;
    Ok(sent)
}

/// Receives until the stream ends; returns the number of bytes.
pub(super) fn receive(socket: &OwnedFd, stopwatch: &mut Stopwatch<'_>) -> io::Result<u64> {
    let mut received = 0;
    receive_each(socket, |bytes| {
        received += bytes as u64;
        stopwatch.look(received);
    })?;
    Ok(received)
}

fn receive_each(socket: &OwnedFd, mut each: impl FnMut(usize)) -> io::Result<()> {
    let (epoll, mut buffer) = (watch(socket, EventFlags::IN)?, vec![0; RECEIVE]);
    loop {
        match rustix::net::recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => return Ok(()),
            Ok((bytes, _)) => each(bytes),
            Err(Errno::AGAIN) => wait(&epoll)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Messages at given times.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Paced<'a> {
    /// Bytes of a message.
    pub message_bytes: usize,
    /// When each message is due, from the beginning.
    pub due: &'a [Duration],
    /// Maximum bytes per call, when several messages are due.
    pub most_bytes: usize,
    /// The options of the sockets.
    pub sockets: PairSockets,
    /// The processors of receiver and sender; `None` leaves both to the scheduler.
    pub cpus: Option<[usize; 2]>,
}

/// Sends each message when it is due, or as soon after as the socket accepts it. Returns the delay of each after it was
/// due until it arrived whole, in nanoseconds and in order. The sender never waits for an answer: queueing counts.
///
/// # Errors
/// The error of the operating system.
pub fn paced_pair(paced: Paced<'_>) -> io::Result<Vec<u64>> {
    let [to, from] = connection(paced.sockets, true)?;
    // Both threads exist before the first message is due.
    let begin = Instant::now() + Duration::from_millis(5);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let socket = to;
            pin(paced.cpus.map(|[_, sender]| sender));
            send_when_due(&socket, &paced, begin)
        });
        let receiving = scope.spawn(|| {
            let socket = from;
            pin(paced.cpus.map(|[receiver, _]| receiver));
            let (mut late, mut partial) = (Vec::with_capacity(paced.due.len()), 0);
            receive_each(&socket, |bytes| {
                let now = begin.elapsed();
                partial += bytes;
                for due in &paced.due[late.len()..late.len() + partial / paced.message_bytes] {
                    late.push(now.saturating_sub(*due).as_nanos() as u64);
                }
                partial %= paced.message_bytes;
            })?;
            Ok(late)
        });
        let panicked = |_| io::Error::other("a probe's thread panicked");
        let late = receiving.join().map_err(panicked)?;
        sending.join().map_err(panicked)??;
        late
    })
}

fn send_when_due(socket: &OwnedFd, paced: &Paced<'_>, begin: Instant) -> io::Result<()> {
    let most = (paced.most_bytes / paced.message_bytes).max(1);
    let buffer = PlacedBytes::new(most * paced.message_bytes, MID_PAGE);
    let epoll = watch(socket, EventFlags::OUT)?;
    let mut sent = 0;
    while Instant::now() < begin {
        std::hint::spin_loop();
    }
    while sent < paced.due.len() {
        let now = begin.elapsed();
        let due = paced.due[sent..].iter().take(most).take_while(|due| **due <= now).count();
        if due == 0 {
            // A sleep would be longer than the measured delay.
            std::hint::spin_loop();
            continue;
        }
        send_all(socket, &epoll, &buffer[..due * paced.message_bytes])?;
        sent += due;
    }
    rustix::net::shutdown(socket, Shutdown::Write)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_comes_and_none_before_it_is_due() {
        let due: Vec<Duration> = (0..200).map(|index| Duration::from_micros(20 * index)).collect();
        let paced =
            Paced { message_bytes: 2048, due: &due, most_bytes: 16 << 10, sockets: PairSockets::default(), cpus: None };
        let late = paced_pair(paced).expect("loopback");
        assert_eq!(late.len(), due.len());
        assert!(late.iter().all(|nanoseconds| *nanoseconds > 0), "{late:?}");
    }
}
