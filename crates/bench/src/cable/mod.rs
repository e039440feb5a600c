//! Two hosts with a cable between them, for everything that is measured with packets.
//!
//! ```text
//!  host, CPU 0                        cable        host, CPU 1
//!  Source: frames that lie ready ────────────────► the kernel's part ─► Sink: a receiver of ours, or a bare one
//!     at a rate, as fast as it goes,               (Kernel: where it is done, and when)
//!     or as fast as the sink takes them
//! ```
//! There are no interrupts on such a cable. Without a word the sender's processor would do all of the kernel's work; so it is
//! said where that is done, as a card's interrupts would.

mod backlog;
mod frames;
mod mechanism;
mod sink;
mod source;
mod usage;

use std::io;
use std::net::SocketAddrV4;
use std::time::Duration;

use ropewalk_io::packet::cable::{CARD, Cable, Host, SINK, SOURCE};
use ropewalk_io::packet::{Card, Flow};
use ropewalk_limits::{BareReceiver, Depth, deaf};
use serde_json::{Map, Value};

use crate::BenchError;
use crate::session::Session;

pub(crate) use backlog::{LongBacklog, dropped_on_the_way};
pub(crate) use frames::Frame;
pub(crate) use mechanism::{Mechanism, pool};
pub(crate) use sink::{Sink, Work, wait_for};
pub(crate) use source::{Pace, Sent, Source};
pub(crate) use usage::Usage;

/// The processors of the two hosts.
pub(crate) const SOURCE_CPU: usize = 0;
pub(crate) const SINK_CPU: usize = 1;

/// Where the kernel's part of receiving is done.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kernel {
    /// On the sink's processor, before everything else, as an interrupt does it (RPS). What a program at the card takes is
    /// done on the source's.
    Interrupt,
    /// On the sink's processor, by a thread behind the receiver (threaded NAPI), programs at the card too.
    Thread,
}

impl Kernel {
    pub(crate) const ALL: [Self; 2] = [Self::Interrupt, Self::Thread];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt",
            Self::Thread => "thread",
        }
    }
}

/// Packets that are measured with: of which mechanism, how long, from how many sources.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Traffic {
    pub(crate) mechanism: Mechanism,
    /// Bytes of what UDP or IP carries.
    pub(crate) bytes: usize,
}

/// Two hosts.
pub(crate) struct Rig {
    pub(crate) cable: Cable,
    pub(crate) kernel: Kernel,
    /// How much can wait for a sink that is away, ours or bare.
    pub(crate) depth: Depth,
    macs: [[u8; 6]; 2],
}

/// How long a receiver of a [`Kernel::Thread`] sleeps that has found nothing: were it woken by each packet, it would take them
/// one by one.
const PAUSE: Duration = Duration::from_micros(50);
/// How long it sleeps at most otherwise.
const AWAIT: Duration = Duration::from_millis(1);

impl Rig {
    /// Lays the cable of a case; where that is not allowed, the case is skipped.
    pub(crate) fn of_case(
        session: &mut Session<'_>,
        case: &Map<String, Value>,
        kernel: Kernel,
        mtu: u32,
    ) -> Result<Option<Self>, BenchError> {
        match Self::lay(kernel, mtu) {
            Ok(rig) => Ok(Some(rig)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                session.skip(case, "network namespaces are for the administrator")?;
                Ok(None)
            }
            Err(source) => Err(BenchError::system("a cable between two namespaces")(source)),
        }
    }

    /// Lays a cable.
    ///
    /// # Errors
    /// What the kernel says, mostly that only the administrator may.
    pub(crate) fn lay(kernel: Kernel, mtu: u32) -> io::Result<Self> {
        let cable = Cable::lay(mtu, 1)?;
        cable.resolve()?;
        match kernel {
            Kernel::Interrupt => cable.sink.receive_on(SINK_CPU as u32)?,
            Kernel::Thread => cable.receive_by_thread(SINK_CPU as u32)?,
        }
        // What comes back is the source's to receive.
        cable.source.receive_on(SOURCE_CPU as u32)?;
        let macs = [mac_of(&cable.source)?, mac_of(&cable.sink)?];
        Ok(Self { cable, kernel, depth: Depth::USUAL, macs })
    }

    /// How long a sink sleeps that has found nothing, and whether a packet wakes it.
    pub(crate) const fn patience(&self) -> (Duration, bool) {
        match self.kernel {
            Kernel::Interrupt => (AWAIT, true),
            Kernel::Thread => (PAUSE, false),
        }
    }

    /// A frame from the source to the sink.
    pub(crate) fn frame(&self, from: SocketAddrV4, to: SocketAddrV4, flow: Flow, payload: &[u8]) -> Frame {
        Frame::new(self.macs, from, to, flow, payload)
    }

    /// A receiver of ours.
    pub(crate) fn ours(&self, mechanism: Mechanism) -> Result<Sink, crate::BenchError> {
        self.cable.sink.inside(|| mechanism.receiver(self.depth)).map(Sink::ours).map_err(crate::BenchError::wrong)
    }

    /// A bare one.
    pub(crate) fn bare(&self, mechanism: Mechanism) -> Result<Sink, crate::BenchError> {
        let open = || BareReceiver::open(mechanism.bare(), SocketAddrV4::new(SINK, 0), CARD, self.depth);
        self.cable.sink.inside(open).map(Sink::Bare).map_err(crate::BenchError::system("a bare receiver"))
    }

    /// One source of packets to a sink, of which so many lie ready. What is sent back to it is dropped as soon as it comes.
    pub(crate) fn source(&self, traffic: Traffic, ready: usize, to: SocketAddrV4) -> Result<Source, crate::BenchError> {
        let flow = traffic.mechanism.flow();
        let opened = self.cable.source.inside(|| {
            let home = deaf(SocketAddrV4::new(SOURCE, 0), flow != Flow::Udp)?;
            let frame = self.frame(home.1, to, flow, &vec![0x5A; traffic.bytes]);
            Source::open(&vec![frame; ready], Some(home.0))
        });
        opened.map_err(crate::BenchError::system("a source of packets"))
    }
}

fn mac_of(host: &Host) -> io::Result<[u8; 6]> {
    host.inside(|| Ok(Card::find(CARD, std::net::UdpSocket::bind("0.0.0.0:0")?)?.mac))
}
