//! The bare receiver: receives TCP streams in large buffers and reads the header of every block and fragment.
//!
//! This is the limit of every event builder that gets its fragments over TCP: each must do at least this.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ropewalk_wire::fed::Header;
use ropewalk_wire::ferol::{self, BlockHeader};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use ropewalk_doctor::emulated::{SlinkConfig, SlinkSender, set_congestion_control};
use ropewalk_doctor::processor::{pin, process_cpu_seconds, thread_cpu_seconds};

/// The configuration of a receiver.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WalkConfig {
    /// What the senders send.
    pub sender: SlinkConfig,
    /// How long to receive.
    pub duration: Duration,
    /// Bytes of each stream's receive buffer.
    pub buffer_bytes: usize,
    /// The processors of receiver and sender; `None` leaves both to the scheduler.
    pub cpus: Option<[usize; 2]>,
}

impl Default for WalkConfig {
    fn default() -> Self {
        let (sender, duration) = (SlinkConfig::default(), Duration::from_secs(1));
        Self { sender, duration, buffer_bytes: 256 << 10, cpus: Some([0, 1]) }
    }
}

/// The received data.
#[derive(Copy, Clone, PartialEq, Default, Debug)]
pub struct Walked {
    /// Bytes of FED fragments.
    pub fragment_bytes: u64,
    /// Fragments.
    pub fragments: u64,
    /// The sum of all event numbers seen: proof that the headers were read.
    pub event_sum: u64,
    /// The elapsed seconds.
    pub seconds: f64,
    /// Processor seconds of the receiving thread meanwhile.
    pub cpu_seconds: f64,
    /// Processor seconds of all threads of this process meanwhile, including the senders.
    pub process_seconds: f64,
}

impl Walked {
    /// 10^9 bytes of fragments a second.
    pub fn gigabytes_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.fragment_bytes as f64 / self.seconds / 1e9 } else { 0.0 }
    }

    /// Processor seconds per 10^9 bytes, of all threads of this process.
    pub fn cpu_seconds_per_gigabyte(&self) -> f64 {
        self.process_seconds / (self.fragment_bytes as f64).max(1.0) * 1e9
    }
}

/// Receives and walks with one thread what another one sends over loopback.
///
/// # Errors
/// The error of the operating system, or `InvalidData` if the stream differs from what was sent.
pub fn tcp_walk(config: WalkConfig) -> io::Result<Walked> {
    let listener = listen()?;
    let address: SocketAddr = rustix::net::getsockname(&listener)?.try_into()?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            pin(config.cpus.map(|[_, sender]| sender));
            SlinkSender::connect(&[address], config.sender)?.run(&stop)
        });
        // On a separate thread too, so that the caller stays unpinned.
        let receiving = scope.spawn(|| {
            pin(config.cpus.map(|[receiver, _]| receiver));
            let walked = accept(&listener, config.sender.streams).and_then(|sockets| receive(sockets, &config, &stop));
            // Also after an error: the sender would otherwise continue forever.
            stop.store(true, Ordering::Relaxed);
            walked
        });
        let panicked = |_| io::Error::other("a probe's thread panicked");
        let walked = receiving.join().map_err(panicked)?;
        sending.join().map_err(panicked)?.and(walked)
    })
}

pub(crate) fn listen() -> io::Result<OwnedFd> {
    let listener = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_congestion_control(&listener);
    rustix::net::bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0)))?;
    rustix::net::listen(&listener, 1024)?;
    Ok(listener)
}

fn accept(listener: &OwnedFd, streams: usize) -> io::Result<Vec<OwnedFd>> {
    (0..streams)
        .map(|_| Ok(rustix::net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?))
        .collect()
}

/// Receives until the time has passed, and then until every stream has ended.
fn receive(sockets: Vec<OwnedFd>, config: &WalkConfig, stop: &AtomicBool) -> io::Result<Walked> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (index, socket) in sockets.iter().enumerate() {
        epoll::add(&epoll, socket, EventData::new_u64(index as u64), EventFlags::IN)?;
    }
    let mut walkers: Vec<Walker> = sockets.iter().map(|_| Walker::new(config.buffer_bytes)).collect();
    let (mut walked, mut open) = (Walked::default(), sockets.len());
    let mut ready = Vec::with_capacity(sockets.len());
    let (start, cpu_start, process_start) = (Instant::now(), thread_cpu_seconds(), process_cpu_seconds());
    let mut timed = None;
    while open > 0 {
        ready.clear();
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut ready), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &ready {
            let index = event.data.u64() as usize;
            if !walkers[index].receive(&sockets[index], &mut walked)? {
                epoll::delete(&epoll, &sockets[index])?;
                open -= 1;
            }
        }
        if timed.is_none() && start.elapsed() >= config.duration {
            walked.seconds = start.elapsed().as_secs_f64();
            walked.cpu_seconds = thread_cpu_seconds() - cpu_start;
            walked.process_seconds = process_cpu_seconds() - process_start;
            timed = Some(walked);
            stop.store(true, Ordering::Relaxed);
        }
    }
    walked.seconds = start.elapsed().as_secs_f64();
    walked.cpu_seconds = thread_cpu_seconds() - cpu_start;
    walked.process_seconds = process_cpu_seconds() - process_start;
    Ok(timed.unwrap_or(walked))
}

/// One stream's buffer, and the position in the stream.
struct Walker {
    buffer: Vec<u8>,
    /// Bytes at the buffer's beginning that remain from the last read: a header that was cut.
    kept: usize,
    /// Bytes of the current block that have not arrived yet.
    skip: usize,
}

/// Headers that are read together: the block's, and the fragment's after it.
const HEADERS: usize = ferol::HEADER_BYTES + 8;

impl Walker {
    fn new(buffer_bytes: usize) -> Self {
        Self { buffer: vec![0; buffer_bytes.max(ferol::MAX_BLOCK_BYTES)], kept: 0, skip: 0 }
    }

    /// Receives once; false at the stream's end.
    fn receive(&mut self, socket: &OwnedFd, walked: &mut Walked) -> io::Result<bool> {
        let received = match rustix::net::recv(socket, &mut self.buffer[self.kept..], RecvFlags::empty()) {
            Ok((0, _)) => return Ok(false),
            Ok((received, _)) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        let end = self.kept + received;
        let rest = self.walk(end, walked)?;
        self.buffer.copy_within(rest..end, 0);
        self.kept = end - rest;
        Ok(true)
    }

    /// Reads every complete header; returns the offset of the rest.
    fn walk(&mut self, end: usize, walked: &mut Walked) -> io::Result<usize> {
        let mut place = self.skip.min(end);
        self.skip -= place;
        while self.skip == 0
            && let Some(headers) = self.buffer[place..end].first_chunk::<HEADERS>()
        {
            let garbage = || io::Error::new(io::ErrorKind::InvalidData, "the stream is not what was sent");
            let (block, word) = headers.split_at(ferol::HEADER_BYTES);
            let block = BlockHeader::parse(block.try_into().map_err(|_| garbage())?).map_err(|_| garbage())?;
            if block.first {
                let header = Header::parse(word.try_into().map_err(|_| garbage())?).map_err(|_| garbage())?;
                walked.event_sum += u64::from(header.level1_id());
                walked.fragments += 1;
            }
            walked.fragment_bytes += u64::from(block.payload_bytes);
            let bytes = block.block_bytes();
            let here = bytes.min(end - place);
            place += here;
            self.skip = bytes - here;
        }
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_sent_is_walked() {
        for fragment_bytes in [16, 2048, 9000] {
            let sender = SlinkConfig { streams: 3, fragment_bytes, events: Some(1000), ..SlinkConfig::default() };
            let config = WalkConfig { sender, cpus: None, duration: Duration::from_secs(60), ..WalkConfig::default() };
            let walked = tcp_walk(config).expect("loopback");
            assert_eq!(walked.fragments, 3000);
            assert_eq!(walked.fragment_bytes, 3000 * fragment_bytes as u64 / 8 * 8);
            assert_eq!(walked.event_sum, 3 * 500_500);
        }
    }

    #[test]
    fn ends_when_the_time_is_over() {
        let config = WalkConfig { duration: Duration::from_millis(50), cpus: None, ..WalkConfig::default() };
        let walked = tcp_walk(config).expect("loopback");
        assert!(walked.seconds >= 0.05 && walked.gigabytes_per_second() > 0.0);
    }
}
