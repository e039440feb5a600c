//! The bare chain: receives TCP streams of fragments, collects the fragments of each event, and sends the events on.
//!
//! This is the limit of every readout unit whose builder units are other processes: it receives and sends everything.
//! One thread is the gateway; another one sends the streams, and shares its processor with the receivers of the events.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk_wire::ferol::{self, BlockHeader};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags};

use crate::pair::{PairFigures, Stopwatch};
use crate::walk::{WalkConfig, listen};
use ropewalk_doctor::emulated::{SlinkSender, connect};
use ropewalk_doctor::processor::pin;

/// Maximum slices of one call.
const SLICES: usize = 1024;

/// Receives streams with one thread, and sends the events on to `sinks` receivers in turn. The counted bytes are those
/// of fragments that the gateway has received.
///
/// # Errors
/// The error of the operating system, or `InvalidData` if a stream is changed or not passed on completely.
pub fn tcp_chain(config: WalkConfig, sinks: usize) -> io::Result<PairFigures> {
    let (front, back) = (listen()?, listen()?);
    let address = |listener: &OwnedFd| -> io::Result<SocketAddr> {
        Ok(SocketAddr::try_from(rustix::net::getsockname(listener)?)?)
    };
    let (front_address, back_address) = (address(&front)?, address(&back)?);
    let stop = AtomicBool::new(false);
    let [gateway_cpu, others_cpu] = config.cpus.map_or([None; 2], |cpus| cpus.map(Some));
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            pin(others_cpu);
            SlinkSender::connect(&[front_address], config.sender)?.run(&stop)
        });
        let gateway = scope.spawn(|| {
            pin(gateway_cpu);
            let mut stopwatch = Stopwatch::new(config.duration / 4, config.duration, &stop);
            let outputs = (0..sinks.max(1)).map(|_| connect(back_address)).collect::<io::Result<Vec<_>>>();
            let passed = outputs.and_then(|outputs| {
                let sockets = accept(&front, config.sender.streams)?;
                Gateway::new(sockets, outputs, config.buffer_bytes).run(&mut stopwatch)
            });
            // Also after an error: the sender would otherwise continue forever.
            stop.store(true, Ordering::Relaxed);
            passed.map(|wire_bytes| (wire_bytes, stopwatch))
        });
        let taking: Vec<_> = accept(&back, sinks.max(1))?
            .into_iter()
            .map(|socket| scope.spawn(move || take(&socket, others_cpu)))
            .collect();
        let panicked = |_| io::Error::other("a probe's thread panicked");
        let (passed, stopwatch) = gateway.join().map_err(panicked)??;
        sending.join().map_err(panicked)??;
        let mut taken = 0;
        for sink in taking {
            taken += sink.join().map_err(panicked)??;
        }
        if taken != passed {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{taken} of {passed} bytes came out")));
        }
        stopwatch.figures((0, 0.0))
    })
}

/// Accepts connections whose calls block.
fn accept(listener: &OwnedFd, count: usize) -> io::Result<Vec<OwnedFd>> {
    (0..count).map(|_| Ok(rustix::net::accept_with(listener, SocketFlags::CLOEXEC)?)).collect()
}

/// Receives events without reading them; returns the number of bytes.
fn take(socket: &OwnedFd, cpu: Option<usize>) -> io::Result<u64> {
    pin(cpu);
    let (mut buffer, mut taken) = (vec![0; 256 << 10], 0);
    loop {
        match rustix::net::recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => return Ok(taken),
            Ok((bytes, _)) => taken += bytes as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

struct Gateway {
    inputs: Vec<Input>,
    outputs: Vec<OwnedFd>,
    /// The output of the next events.
    turn: usize,
}

/// A stream's buffer: whole fragments, the beginning of the next one, and free space.
struct Input {
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// The ranges of whole fragments, in the order in which they are sent.
    whole: std::collections::VecDeque<(usize, usize)>,
    /// Where the incomplete fragment begins, how far its blocks were walked, and where the received bytes end.
    begin: usize,
    walked: usize,
    end: usize,
    /// Received bytes of fragments, without the headers of their blocks.
    fragment_bytes: u64,
}

impl Gateway {
    fn new(sockets: Vec<OwnedFd>, outputs: Vec<OwnedFd>, buffer_bytes: usize) -> Self {
        let inputs = sockets.into_iter().map(|socket| Input {
            socket,
            buffer: vec![0; buffer_bytes],
            whole: std::collections::VecDeque::new(),
            begin: 0,
            walked: 0,
            end: 0,
            fragment_bytes: 0,
        });
        Self { inputs: inputs.collect(), outputs, turn: 0 }
    }

    /// Runs until the streams end; returns the number of bytes sent on.
    fn run(mut self, stopwatch: &mut Stopwatch<'_>) -> io::Result<u64> {
        let mut passed = 0;
        let most = (SLICES / self.inputs.len()).max(1);
        while self.fill()? {
            let events = self.inputs.iter().map(|input| input.whole.len()).min().unwrap_or(0).min(most);
            passed += self.send(events)?;
            stopwatch.look(self.inputs.iter().map(|input| input.fragment_bytes).sum());
        }
        for output in &self.outputs {
            rustix::net::shutdown(output, Shutdown::Write)?;
        }
        Ok(passed)
    }

    /// Receives until every stream has a fragment; false when the streams have ended.
    fn fill(&mut self) -> io::Result<bool> {
        for input in &mut self.inputs {
            while input.whole.is_empty() {
                if !input.receive()? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Sends this many events, each fragment from where it was received.
    fn send(&mut self, events: usize) -> io::Result<u64> {
        let fragments = (0..events).flat_map(|event| self.inputs.iter().map(move |input| (input, input.whole[event])));
        let mut slices: Vec<IoSlice<'_>> =
            fragments.map(|(input, (from, to))| IoSlice::new(&input.buffer[from..to])).collect();
        let (mut rest, mut sent) = (slices.as_mut_slice(), 0);
        while !rest.is_empty() {
            let output = &self.outputs[self.turn];
            match rustix::net::sendmsg(output, rest, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL) {
                Ok(bytes) => {
                    sent += bytes as u64;
                    IoSlice::advance_slices(&mut rest, bytes);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.turn = (self.turn + 1) % self.outputs.len();
        for input in &mut self.inputs {
            input.whole.drain(..events);
        }
        Ok(sent)
    }
}

impl Input {
    /// Receives once, and finds the fragments that are now whole; false at the stream's end.
    fn receive(&mut self) -> io::Result<bool> {
        // No whole fragment remains here: only the beginning of the next one moves.
        self.buffer.copy_within(self.begin..self.end, 0);
        self.walked -= self.begin;
        self.end -= self.begin;
        self.begin = 0;
        match rustix::net::recv(&self.socket, &mut self.buffer[self.end..], RecvFlags::empty()) {
            Ok((0, _)) => return Ok(false),
            Ok((bytes, _)) => self.end += bytes,
            Err(Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
        while let Some(header) = self.buffer[self.walked..self.end].first_chunk::<{ ferol::HEADER_BYTES }>() {
            let block = BlockHeader::parse(header)
                .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the stream is not what was sent"))?;
            if self.walked + block.block_bytes() > self.end {
                break;
            }
            self.walked += block.block_bytes();
            self.fragment_bytes += u64::from(block.payload_bytes);
            if block.last {
                self.whole.push_back((self.begin, self.walked));
                self.begin = self.walked;
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_doctor::emulated::SlinkConfig;
    use std::time::Duration;

    #[test]
    fn everything_that_comes_in_goes_out() {
        for (fragment_bytes, sinks) in [(256, 1), (2048, 2), (9000, 1)] {
            let sender = SlinkConfig { streams: 3, fragment_bytes, ..SlinkConfig::default() };
            let duration = Duration::from_millis(30);
            let config = WalkConfig { sender, cpus: None, duration, ..WalkConfig::default() };
            let figures = tcp_chain(config, sinks).expect("loopback");
            assert!(figures.seconds >= 0.03 && figures.gigabytes_per_second() > 0.0, "{figures:?}");
        }
    }
}
