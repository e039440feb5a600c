//! Two hosts with a cable between them, for all packet measurements.
//!
//! ```text
//!  host, CPU 0                        cable        host, CPU 1
//!  Source: frames that lie ready ────────────────► the kernel's part ─► Sink: a receiver of ours, or a bare one
//!     at a rate, as fast as possible,              (Kernel: where it is done, and when)
//!     or as fast as the sink takes them
//! ```
//! Such a cable has no interrupts, and by default the sender's processor does all of the kernel's work. So [`Kernel`]
//! selects where it is done, as a card's interrupts would.

mod ends;

use crate::BenchError;
use crate::session::Session;
use ropewalk_io::packet::cable::{CARD, Cable, Host, SINK, SOURCE};
use ropewalk_io::packet::{
    Card, Flow, PacketError, PacketMemory, ReceiveConfig, ReceiveMechanism, Receiver, RingConfig, RingReceiver,
    SocketReceiver, XdpCard, XdpConfig,
};
use ropewalk_limits::{BARE_PROTOCOL, BarePackets, BareReceiver, Depth, deaf};
use ropewalk_memory::{Pool, PoolConfig, PoolError, Staging};
use ropewalk_wire::internet::{Ethernet2Header, IpNumber, Ipv4Header, LEAST_FRAME_BYTES, UdpHeader, ether_type};
use serde_json::{Map, Value};
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};
use std::{fs, io};

pub(crate) use ends::{Pace, Sent, Sink, Source, Work, wait_for};

/// The processors of the two hosts.
pub(crate) const SOURCE_CPU: usize = 0;
pub(crate) const SINK_CPU: usize = 1;

/// Where the kernel's part of receiving runs.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kernel {
    /// On the sink's processor, with priority, as an interrupt does it (RPS). The source's processor does the kernel's
    /// part for a program at the card.
    Interrupt,
    /// On the sink's processor, in a thread that yields to the receiver (threaded NAPI), programs at the card too.
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

/// The packets of a measurement: their mechanism and size.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Traffic {
    pub(crate) mechanism: Mechanism,
    /// Bytes of the payload of UDP or IP.
    pub(crate) bytes: usize,
}

pub(crate) struct Rig {
    pub(crate) cable: Cable,
    pub(crate) kernel: Kernel,
    /// The depth of the queue in front of the sink, ours or bare.
    pub(crate) depth: Depth,
    macs: [[u8; 6]; 2],
}

/// How long a receiver with [`Kernel::Thread`] sleeps when it found nothing. If each packet woke it, it would receive
/// them one by one.
const PAUSE: Duration = Duration::from_micros(50);
/// Maximum sleep otherwise.
const AWAIT: Duration = Duration::from_millis(1);

impl Rig {
    /// Lays the cable of a case, or skips the case if that is not permitted.
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
    /// The kernel's error, mostly that this needs root.
    pub(crate) fn lay(kernel: Kernel, mtu: u32) -> io::Result<Self> {
        let cable = Cable::lay(mtu, 1)?;
        cable.resolve()?;
        match kernel {
            Kernel::Interrupt => cable.sink.receive_on(SINK_CPU as u32)?,
            Kernel::Thread => cable.receive_by_thread(SINK_CPU as u32)?,
        }
        // The source receives what is sent back.
        cable.source.receive_on(SOURCE_CPU as u32)?;
        let macs = [mac_of(&cable.source)?, mac_of(&cable.sink)?];
        Ok(Self { cable, kernel, depth: Depth::USUAL, macs })
    }

    /// How long a sink sleeps when it found nothing, and whether a packet wakes it.
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

    pub(crate) fn ours(&self, mechanism: Mechanism) -> Result<Sink, crate::BenchError> {
        self.cable.sink.inside(|| mechanism.receiver(self.depth)).map(Sink::ours).map_err(crate::BenchError::wrong)
    }

    pub(crate) fn bare(&self, mechanism: Mechanism) -> Result<Sink, crate::BenchError> {
        let open = || BareReceiver::open(mechanism.bare(), SocketAddrV4::new(SINK, 0), CARD, self.depth);
        self.cable.sink.inside(open).map(Sink::Bare).map_err(crate::BenchError::system("a bare receiver"))
    }

    /// One source of packets to a sink, with `ready` prepared packets. Packets sent back to it are dropped on arrival.
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

// ---- prepared frames

/// A frame, and the offset of its payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    pub(crate) payload: usize,
}

impl Frame {
    /// From one card to another, without a UDP checksum: Ethernet has one.
    fn new(
        [source, destination]: [[u8; 6]; 2],
        from: SocketAddrV4,
        to: SocketAddrV4,
        flow: Flow,
        payload: &[u8],
    ) -> Self {
        let ethernet = Ethernet2Header { destination, source, ether_type: ether_type::IPV4 };
        let udp = UdpHeader::without_ipv4_checksum(from.port(), to.port(), payload.len()).expect("it is short");
        let udp = if flow == Flow::Udp { &udp.to_bytes()[..] } else { &[] };
        let (bytes, protocol) = ((udp.len() + payload.len()) as u16, IpNumber(flow.protocol()));
        let ip = Ipv4Header::new(bytes, 64, protocol, from.ip().octets(), to.ip().octets());
        let mut ip = ip.expect("it is short");
        ip.header_checksum = ip.calc_header_checksum();
        let headers = [&ethernet.to_bytes()[..], &ip.to_bytes(), udp].concat();
        let mut bytes = [&headers[..], payload].concat();
        bytes.resize(bytes.len().max(LEAST_FRAME_BYTES), 0);
        Self { bytes, payload: headers.len() }
    }
}

// ---- receive mechanisms, ours and bare

/// Maximum payload of a packet in standard Ethernet frames, in bytes.
const LARGEST: usize = 1480;

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Mechanism {
    RecvFrom,
    RecvMmsg,
    Gro,
    RawIp,
    Ring,
    Xdp,
}

impl Mechanism {
    pub(crate) const ALL: [Self; 6] = [Self::RecvFrom, Self::RecvMmsg, Self::Gro, Self::RawIp, Self::Ring, Self::Xdp];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RecvFrom => "recvfrom",
            Self::RecvMmsg => "recvmmsg",
            Self::Gro => "gro",
            Self::RawIp => "raw-ip",
            Self::Ring => "ring",
            Self::Xdp => "xdp",
        }
    }

    /// Whether it receives into memory that exists already, so that the kernel neither allocates nor frees.
    pub(crate) const fn recycles(self) -> bool {
        matches!(self, Self::Ring | Self::Xdp)
    }

    pub(crate) const fn flow(self) -> Flow {
        if matches!(self, Self::RawIp) { Flow::Ip(BARE_PROTOCOL) } else { Flow::Udp }
    }

    const fn bare(self) -> BarePackets {
        match self {
            Self::RecvFrom => BarePackets::RecvFrom,
            Self::RecvMmsg => BarePackets::RecvMmsg,
            Self::Gro => BarePackets::UdpGro,
            Self::RawIp => BarePackets::RawIp,
            Self::Ring => BarePackets::Ring,
            Self::Xdp => BarePackets::Xdp,
        }
    }

    /// One of our receivers, in the calling thread's namespace.
    pub(crate) fn receiver(self, depth: Depth) -> Result<Box<dyn Receiver + Send>, PacketError> {
        let (flow, address) = (self.flow(), SocketAddrV4::new(SINK, 0));
        Ok(match self {
            Self::Ring => {
                let config = RingConfig::new(flow, address, CARD);
                Box::new(RingReceiver::new(&RingConfig { blocks: depth.blocks, ..config })?)
            }
            Self::Xdp => {
                let config = XdpConfig::new(flow, address, CARD);
                let (receive_frames, posted_frames) = (depth.frames, depth.frames);
                let config = XdpConfig { frame_size: 2048, receive_frames, posted_frames, ..config };
                let card = XdpCard::attach(config, [pool("fragments", 64 << 10, 16)?])?;
                Box::new(card.open(0, Staging::new(pool("staging", 64 << 10, 4)?))?.0)
            }
            _ => Box::new(self.socket(pool("packets", 256 << 10, 64)?.into(), LARGEST, depth)?),
        })
    }

    /// A socket that receives packets of at most `largest` bytes into this memory; not for rings.
    pub(crate) fn socket(
        self,
        memory: PacketMemory,
        largest: usize,
        depth: Depth,
    ) -> Result<SocketReceiver, PacketError> {
        let mechanism = match self {
            Self::RecvFrom => ReceiveMechanism::RecvFrom,
            Self::Gro => ReceiveMechanism::UdpGro,
            _ => ReceiveMechanism::RecvMmsg,
        };
        let config = ReceiveConfig::new(self.flow(), SocketAddrV4::new(SINK, 0));
        let socket_buffer = depth.socket_bytes as usize;
        SocketReceiver::new(ReceiveConfig { mechanism, largest, socket_buffer, ..config }, memory)
    }
}

pub(crate) fn pool(name: &str, block: usize, blocks: usize) -> Result<Pool, PoolError> {
    Pool::new(PoolConfig::anonymous(name, block, blocks))
}

// ---- processor time of the whole machine: no process is charged for the kernel's packet work

/// A reading of the processors' idle times.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    at: Instant,
    idle_seconds: Vec<f64>,
}

/// Ticks of `/proc/stat` per second (`USER_HZ`).
const TICKS: f64 = 100.0;

impl Usage {
    /// A reading now. If the kernel reports nothing, it has no processors.
    pub(crate) fn look() -> Self {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Self { at: Instant::now(), idle_seconds: idle_seconds(&text) }
    }

    /// Processor seconds used since an earlier reading, by all processors together.
    pub(crate) fn used_since(&self, earlier: &Self) -> f64 {
        (0..self.idle_seconds.len()).map(|cpu| self.used_by(cpu, earlier)).sum()
    }

    /// The same for one processor; 0 if it does not exist.
    pub(crate) fn used_by(&self, cpu: usize, earlier: &Self) -> f64 {
        let (Some(now), Some(before)) = (self.idle_seconds.get(cpu), earlier.idle_seconds.get(cpu)) else { return 0.0 };
        ((self.at - earlier.at).as_secs_f64() - (now - before)).max(0.0)
    }
}

/// The first line is the sum, then one line per processor: user, nice, system, idle, iowait, and so on. Idle time is
/// idle plus iowait.
fn idle_seconds(text: &str) -> Vec<f64> {
    let processors = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    let idle = |line: &str| {
        let numbers = line.split_ascii_whitespace().skip(4).take(2);
        numbers.filter_map(|word| word.parse::<f64>().ok()).sum::<f64>() / TICKS
    };
    processors.map(idle).collect()
}

// ---- packets that wait for a processor before any receiver sees them

const SETTING: &str = "/proc/sys/net/core/netdev_max_backlog";
const STATISTICS: &str = "/proc/net/softnet_stat";
const INTERFACES: &str = "/proc/thread-self/net/dev";

/// Raises the kernel's limit of a thousand packets that wait for each processor, until it is dropped: a processor that
/// is away for 4 ms would lose packets that no receiver could save. A card has its own ring for that.
pub(crate) struct LongBacklog {
    before: String,
}

impl LongBacklog {
    /// Sets the limit.
    ///
    /// # Errors
    /// The kernel's error, mostly that this needs root.
    pub(crate) fn of(packets: u32) -> io::Result<Self> {
        let before = fs::read_to_string(SETTING)?;
        fs::write(SETTING, packets.to_string())?;
        Ok(Self { before })
    }
}

/// Packets dropped before any receiver could see them: by the processors of this machine since boot, and at both ends
/// of a cable, whose ring of 256 packets cannot be made longer.
///
/// # Errors
/// The kernel's error.
pub(crate) fn dropped_on_the_way(cable: &Cable) -> io::Result<u64> {
    let ends = [&cable.source, &cable.sink].map(|host| host.inside(|| fs::read_to_string(INTERFACES)));
    let at_ends = ends.into_iter().map(|text| Ok(dropped_at_card(&text?))).sum::<io::Result<u64>>()?;
    Ok(dropped_by_processors(&fs::read_to_string(STATISTICS)?) + at_ends)
}

impl Drop for LongBacklog {
    fn drop(&mut self) {
        // If this fails, only later measurements change, and no caller could react.
        let _ = fs::write(SETTING, self.before.trim());
    }
}

/// A line per processor, in hexadecimal: received, dropped, and so on.
fn dropped_by_processors(statistics: &str) -> u64 {
    let second = |line: &str| line.split_whitespace().nth(1).and_then(|number| u64::from_str_radix(number, 16).ok());
    statistics.lines().filter_map(second).sum()
}

/// After a card's name, eight numbers of received packets and eight of sent ones; the fourth of each counts drops.
fn dropped_at_card(interfaces: &str) -> u64 {
    let card = interfaces.lines().find_map(|line| line.trim_start().strip_prefix(CARD)?.strip_prefix(':'));
    let numbers: Vec<u64> = card.unwrap_or_default().split_whitespace().map(|text| text.parse().unwrap_or(0)).collect();
    [3, 11].iter().filter_map(|at| numbers.get(*at)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_idle_is_used() {
        let idle = |text| idle_seconds(text);
        let before = Usage {
            at: Instant::now(),
            idle_seconds: idle("cpu 1 0 1 300 20 0\ncpu0 1 0 1 100 20 0\ncpu1 0 0 0 200 0 0\nintr 1 2 3"),
        };
        let at = before.at + Duration::from_secs(2);
        let now = Usage { at, idle_seconds: idle("cpu 1 0 1 500 20 0\ncpu0 1 0 1 150 70 0\ncpu1 0 0 0 200 0 0") };
        let near = |is: f64, expected: f64| assert!((is - expected).abs() < 1e-9, "{is}, not {expected}");
        near(now.used_by(0, &before), 1.0);
        near(now.used_by(1, &before), 2.0);
        near(now.used_by(2, &before), 0.0);
        near(now.used_since(&before), 3.0);
    }

    #[test]
    fn drops_of_all_processors_are_added_up() {
        assert_eq!(dropped_by_processors("0003f6a1 0000000a 00000002\n00000b12 000000ff 00000000\n"), 265);
        assert_eq!(dropped_by_processors(""), 0);
    }

    #[test]
    fn drops_of_a_card_are_those_of_both_directions() {
        let lo = "    lo: 1 2 3 4 5 6 7 8 1 2 3 4 5 6 7 8";
        let card = format!("Inter-| Receive\n{lo}\n  {CARD}: 64 1 0 30 0 0 0 0 128 2 0 12 0 0 0 0\n");
        assert_eq!((dropped_at_card(&card), dropped_at_card(lo)), (42, 0));
    }
}
