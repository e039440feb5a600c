//! Two hosts, a sender and a receiver, each on a thread and a processor of its own.

use std::io;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ropewalk_io::packet::cable::{CARD, Cable, SINK, SOURCE};
use ropewalk_io::packet::{
    Flow, PacketError, PacketMemory, ReceiveConfig, ReceiveMechanism, Receiver, RingConfig, RingReceiver, Sender,
    SocketReceiver, XdpCard, XdpConfig,
};
use ropewalk_io::{Clock, MonotonicClock};
use ropewalk_limits::pin_to_cpu;
use ropewalk_memory::{Pool, PoolConfig, PoolError, Staging};

/// The processors of the two sides.
const SENDER: usize = 0;
const RECEIVER: usize = 1;
/// Packets sent between two looks at the clock.
const BATCH: u64 = 32;

/// A way to receive.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Mechanism {
    RecvFrom,
    RecvMmsg,
    RawIp,
    Ring,
    Xdp,
}

impl Mechanism {
    pub(super) const ALL: [Self; 5] = [Self::RecvFrom, Self::RecvMmsg, Self::RawIp, Self::Ring, Self::Xdp];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::RecvFrom => "recvfrom",
            Self::RecvMmsg => "recvmmsg",
            Self::RawIp => "raw-ip",
            Self::Ring => "ring",
            Self::Xdp => "xdp",
        }
    }

    const fn flow(self) -> Flow {
        if matches!(self, Self::RawIp) { Flow::Ip(253) } else { Flow::Udp }
    }

    fn receiver(self) -> Result<Box<dyn Receiver + Send>, PacketError> {
        let (flow, address) = (self.flow(), SocketAddrV4::new(SINK, 0));
        let mechanism = if self == Self::RecvFrom { ReceiveMechanism::RecvFrom } else { ReceiveMechanism::RecvMmsg };
        Ok(match self {
            Self::RecvFrom | Self::RecvMmsg | Self::RawIp => {
                let memory = PacketMemory::from(pool("packets", 256 << 10, 64)?);
                Box::new(SocketReceiver::new(ReceiveConfig { mechanism, ..ReceiveConfig::new(flow, address) }, memory)?)
            }
            Self::Ring => Box::new(RingReceiver::new(&RingConfig::new(flow, address, CARD))?),
            Self::Xdp => {
                let card = XdpCard::attach(XdpConfig::new(flow, address, CARD), [pool("fragments", 64 << 10, 16)?])?;
                Box::new(card.open(0, Staging::new(pool("staging", 64 << 10, 4)?))?.0)
            }
        })
    }
}

fn pool(name: &str, block: usize, blocks: usize) -> Result<Pool, PoolError> {
    Pool::new(PoolConfig::anonymous(name, block, blocks))
}

/// Packets a second.
#[derive(Copy, Clone, Debug)]
pub(super) struct Measured {
    pub(super) sent: f64,
    pub(super) received: f64,
}

/// Two hosts with all that is needed.
pub(super) struct Rig {
    cable: Cable,
    mechanism: Mechanism,
    bytes: usize,
    work: Duration,
}

impl Rig {
    pub(super) fn lay(mechanism: Mechanism, bytes: usize, work: Duration) -> io::Result<Self> {
        let cable = Cable::lay(1500, 1)?;
        cable.sink.receive_on(RECEIVER as u32)?;
        cable.resolve()?;
        Ok(Self { cable, mechanism, bytes, work })
    }

    /// Sends at this rate, or as fast as it goes, for a while, and counts.
    pub(super) fn run(&mut self, rate: Option<f64>, interval: Duration) -> Result<Measured, PacketError> {
        let mut receiver = self.cable.sink.inside(|| self.mechanism.receiver())?;
        let mut sender = self.cable.source.inside(|| sender(self.mechanism.flow()))?;
        let (to, work, bytes, is_over) = (receiver.address(), self.work, self.bytes, AtomicBool::new(false));
        let (sent, received) = std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                // Without the right to choose it must do as it is.
                let _ = pin_to_cpu(RECEIVER);
                receive(&mut *receiver, work, &is_over)
            });
            let sending = scope.spawn(|| {
                let _ = pin_to_cpu(SENDER);
                let sent = send(&mut *sender, to, bytes, rate, interval);
                is_over.store(true, Ordering::Relaxed);
                sent
            });
            (sending.join(), receiving.join())
        });
        let (sent, received) = (sent.unwrap_or_default(), received.unwrap_or_default());
        let seconds = interval.as_secs_f64();
        Ok(Measured { sent: sent as f64 / seconds, received: received as f64 / seconds })
    }
}

/// The fastest sender that there is.
fn sender(flow: Flow) -> Result<Box<dyn Sender + Send>, PacketError> {
    let address = SocketAddrV4::new(SOURCE, 0);
    let config = XdpConfig { checksums: false, receive_frames: 64, ..XdpConfig::new(flow, address, CARD) };
    let card = XdpCard::attach(config, [pool("fragments", 64 << 10, 16)?])?;
    let (_, mut sender) = card.open(0, Staging::new(pool("staging", 64 << 10, 4)?))?;
    sender.is_near(SINK, MonotonicClock.now());
    Ok(Box::new(sender))
}

/// Sends until the time is over; how many packets.
fn send(sender: &mut dyn Sender, to: SocketAddrV4, bytes: usize, rate: Option<f64>, interval: Duration) -> u64 {
    let (begin, mut offered) = (MonotonicClock.now(), 0);
    loop {
        let now = MonotonicClock.now();
        let passed = now.since(begin);
        if passed >= interval {
            return sender.counters().packets;
        }
        let due = rate.map_or(u64::MAX, |rate| (passed.as_secs_f64() * rate) as u64);
        for _ in 0..BATCH.min(due.saturating_sub(offered)) {
            // A full queue is how a sender is slowed down.
            offered += u64::from(sender.send_with(to, bytes, &mut |_| bytes).is_ok());
        }
        sender.flush(now);
    }
}

/// Receives until it is over, with some work for each packet; how many there were.
fn receive(receiver: &mut dyn Receiver, work: Duration, is_over: &AtomicBool) -> u64 {
    let (mut packets, mut count) = (Vec::new(), 0);
    while !is_over.load(Ordering::Relaxed) {
        let now = MonotonicClock.now();
        let came = receiver.receive(now, &mut packets) as u32;
        packets.clear();
        count += u64::from(came);
        let until = MonotonicClock.now().after(work * came);
        while came > 0 && MonotonicClock.now() < until {
            core::hint::spin_loop();
        }
    }
    count
}
