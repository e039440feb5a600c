//! AF_XDP: a program at the card's driver selects the flows. Their frames are copied (or written by the card itself)
//! into our memory, past the kernel's other packet processing.
//!
//! ```text
//!               fill ring ◄── frames ◄── pool of received frames ◄── last drop, on any thread
//!                  │                                                        ▲
//!   card ─ program ─┴─► receive ring ─► XdpReceiver ─► slices ──────────────┤
//!             │                                                             │ a received frame can leave as it is
//!             └► kernel: fragments, other packets        FrameSender<XdpTransmit> ─► transmit ring ─► card
//!                  └► a socket, read by XdpReceiver too       ▲ pool of frames to send ◄── completion ring
//! ```
//! One [`XdpCard`] attaches the program and detaches it when dropped, also when the process ends: the kernel's link to
//! the card is a descriptor. It has one pair of receiver and sender for each queue of the card, each with its own
//! thread. The two pools are one piece of memory, which the kernel knows as a whole (UMEM).
//!
//! Zero copy, where the card itself writes into the frames, needs one word in the configuration. No card with this
//! feature was available: this way has never run.
//!
//! This file has the card, the program with its maps, and the sockets of the card's queues with their frames; [`queue`]
//! receives and sends.
#![allow(unsafe_code)]

mod queue;

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ropewalk_memory::{Loan, Pool, PoolConfig, Posted, Slice, Staging};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::queue::{Ring, offsets};
use super::open::{Input, Wanted};
use super::sender::{FrameConfig, FrameSender};
use super::socket::{Card, ProgramKind, ask, attach_program, call, set};
use crate::packet::{
    Flow, MOST_BATCH, PacketError, PacketMemory, ReceiveConfig, Receiver, SendConfig, Sender, SocketReceiver,
    SocketSender,
};

pub use self::queue::{XdpReceiver, XdpTransmit};

/// Where the program runs that selects packets at the card.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum XdpMode {
    /// In the driver of the card, before the kernel makes a packet of the frame; the kernel copies it into our frames.
    #[default]
    Driver,
    /// In the driver; the card itself writes into the frames. Few drivers can. This was never run.
    ZeroCopy,
    /// Behind the driver, for cards that support nothing else.
    Generic,
}

/// A selection of a card's program: packets to one of the card's addresses.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct XdpInput {
    /// The packets to select.
    pub flow: Flow,
    /// The card's address as their destination; with the port (0: any free one) for UDP.
    pub address: SocketAddrV4,
    /// The card's queue to which they belong. Its receiver gets them, even if the card puts them into other queues, in
    /// which case they take the slow path through the kernel. `None`: the receiver of the queue of arrival gets them.
    pub queue: Option<u32>,
    /// The number of this address in received packets ([`Packet::to`](crate::packet::Packet::to)).
    pub to: u16,
}

/// The flows at a card.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XdpConfig {
    /// The selections; their addresses differ.
    pub inputs: Vec<XdpInput>,
    /// The flow to send, and the card's address to send from (port 0: any free one, a different one for each queue).
    /// `None`: sends from the address of the first input.
    pub sends: Option<(Flow, SocketAddrV4)>,
    /// The name of the card.
    pub card: String,
    /// The card's queues, each of which can have a receiver and a sender.
    pub queues: u32,
    /// Where the program runs.
    pub mode: XdpMode,
    /// Maximum number of packets delivered by one call, from 1 to [`MOST_BATCH`].
    pub batch: usize,
    /// Bytes of the longest payload; longer packets are refused.
    pub largest: usize,
    /// Bytes of a frame, 2,048 or 4,096. A larger packet arrives in several frames.
    pub frame_size: usize,
    /// Number of frames of one queue to receive into. A held packet keeps its frames.
    pub receive_frames: usize,
    /// Maximum number of frames that the kernel has to receive into: the number of packets that can wait while the
    /// receiver does not run. They are used in turn, so that few stay in the cache; the other frames are for held packets.
    pub posted_frames: usize,
    /// Number of frames to send from.
    pub send_frames: usize,
    /// Whether UDP checksums are verified in received packets and computed for sent ones.
    pub checksums: bool,
}

impl XdpConfig {
    /// A flow at a card's address.
    pub fn new(flow: Flow, address: SocketAddrV4, card: &str) -> Self {
        Self {
            inputs: vec![XdpInput { flow, address, queue: None, to: 0 }],
            sends: None,
            card: card.to_owned(),
            queues: 1,
            mode: XdpMode::Driver,
            batch: 64,
            largest: 8972,
            frame_size: 4096,
            receive_frames: 4096,
            posted_frames: 4096,
            send_frames: 1024,
            checksums: true,
        }
    }
}

/// A card whose packets of some flows are delivered here and not to the kernel, as long as this value or a receiver or
/// sender of it exists.
pub struct XdpCard {
    program: Program,
    pub(super) card: Card,
    pub(super) config: XdpConfig,
    pub(super) wanted: Wanted,
    /// The selections of the program, with the ports filled in.
    inputs: Vec<XdpInput>,
    /// Sockets for packets that the program leaves to the kernel: fragments, and packets that arrive at another queue.
    /// They go to the receiver of their queue, or to the first one that is opened.
    listeners: Mutex<Vec<Listener>>,
}

/// A socket at the address of an input.
struct Listener {
    pub(super) receiver: SocketReceiver,
    pub(super) to: u16,
    queue: Option<u32>,
}

impl XdpCard {
    /// Attaches the program. `fragments` is memory, one for each input, for packets that arrive in fragments and are
    /// reassembled by the kernel.
    ///
    /// # Errors
    /// Impossible settings, no such card, a card that has a program already, or missing rights (`CAP_NET_ADMIN`,
    /// `CAP_BPF` and `CAP_NET_RAW`).
    pub fn attach(
        config: XdpConfig,
        fragments: impl IntoIterator<Item = impl Into<PacketMemory>>,
    ) -> Result<Arc<Self>, PacketError> {
        check(&config)?;
        let memory: Vec<PacketMemory> = fragments.into_iter().map(Into::into).collect();
        if memory.len() < config.inputs.len() {
            return Err(PacketError::Config {
                what: "each input has memory of its own for packets that come in fragments",
            });
        }
        let listen = |(memory, input): (PacketMemory, &XdpInput)| {
            let receive = ReceiveConfig { largest: config.largest, ..ReceiveConfig::new(input.flow, input.address) };
            let receiver = SocketReceiver::new(receive, memory)?;
            Ok(Listener { receiver, to: input.to, queue: input.queue })
        };
        let listeners = memory.into_iter().zip(&config.inputs).map(listen).collect::<Result<Vec<_>, PacketError>>()?;
        let heard =
            |(input, listener): (&XdpInput, &Listener)| XdpInput { address: listener.receiver.address_v4(), ..*input };
        let inputs: Vec<XdpInput> = config.inputs.iter().zip(&listeners).map(heard).collect();
        let address = inputs[0].address;
        let refused = |what: &'static str| move |source: io::Error| PacketError::of(what, address, source);
        let card = Card::find(&config.card, &listeners[0].receiver).map_err(refused("no such card"))?;
        let picked = |&XdpInput { flow, address, to, .. }: &XdpInput| Input { flow, address, to };
        let wanted = Wanted::new(inputs.iter().map(picked).collect(), config.largest);
        let program = Program::attach(&card, &inputs, config.queues, config.mode)
            .map_err(refused("cannot attach a program to the card"))?;
        Ok(Arc::new(Self { program, card, config, wanted, inputs, listeners: Mutex::new(listeners) }))
    }

    /// The selections, with the ports filled in.
    pub fn inputs(&self) -> &[XdpInput] {
        &self.inputs
    }

    /// Opens the socket of one queue. Its sender uses the same socket, or, for addresses whose card the kernel does not
    /// know, another socket with blocks of `staging`.
    ///
    /// # Errors
    /// No such queue, a queue that is open already, or no memory.
    pub fn open(
        self: &Arc<Self>,
        queue: u32,
        staging: Staging,
    ) -> Result<(XdpReceiver, FrameSender<XdpTransmit>), PacketError> {
        let XdpConfig { ref card, frame_size, receive_frames, send_frames, checksums, .. } = self.config;
        let address = self.inputs[0].address;
        let refused = |what: &'static str| move |source: io::Error| PacketError::of(what, address, source);
        let memory = PoolConfig::anonymous("frames", frame_size, receive_frames + send_frames);
        let pools = Pool::pair(memory, receive_frames)?;
        let (umem, rings) =
            Umem::open(self, queue, &pools.0).map_err(refused("cannot open a socket for the card's queue"))?;
        let listeners = self.listeners_of(queue);
        let (flow, socket) = self.sending_socket(listeners.first(), staging)?;
        let address = socket.address();
        let config = FrameConfig { frames: send_frames, checksums, ..FrameConfig::new(flow, address, card) };
        let transmit = XdpTransmit::new(Arc::clone(&umem), rings.transmit, rings.completion, pools.1);
        let sender = FrameSender::over(transmit, self.card.clone(), config, socket);
        let receiver = XdpReceiver::new(umem, rings.receive, rings.fill, pools.0, listeners);
        Ok((receiver.map_err(refused("cannot watch the sockets"))?, sender))
    }

    /// The listeners that the receiver of this queue reads.
    fn listeners_of(&self, queue: u32) -> Vec<Listener> {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.extract_if(.., |listener| listener.queue.is_none_or(|of| of == queue)).collect()
    }

    /// Makes the socket through which packets leave as long as the kernel does not know the receiver's card.
    fn sending_socket(
        &self,
        listener: Option<&Listener>,
        staging: Staging,
    ) -> Result<(Flow, SocketSender), PacketError> {
        let XdpInput { flow, address, .. } = self.inputs[0];
        let socket = match (self.config.sends, listener) {
            (Some((flow, address)), _) => {
                return Ok((flow, SocketSender::new(SendConfig::new(flow, address), staging)?));
            }
            (None, Some(listener)) => listener.receiver.sender(SendConfig::new(flow, address), staging)?,
            // Packets of another queue are sent from another port.
            (None, None) => SocketSender::new(SendConfig::new(flow, SocketAddrV4::new(*address.ip(), 0)), staging)?,
        };
        Ok((flow, socket))
    }
}

fn check(config: &XdpConfig) -> Result<(), PacketError> {
    let what = if !(1..=MOST_BATCH).contains(&config.batch) {
        "a batch has 1 to 1024 packets"
    } else if ![2048, 4096].contains(&config.frame_size) {
        "a frame has 2048 or 4096 bytes"
    } else if config.receive_frames.min(config.posted_frames) < 64
        || config.send_frames < 1
        || config.receive_frames + config.send_frames > 1 << 24
    {
        "there are at least 64 frames to receive into and one to send from"
    } else if config.largest == 0 || config.queues == 0 {
        "there is at least one queue, and packets have at least one byte"
    } else if config.inputs.is_empty() {
        "there is at least one flow to receive"
    } else if config.inputs.iter().any(|input| input.address.ip().is_unspecified()) {
        "a card's packets are picked by its own address, not 0.0.0.0"
    } else if config.inputs.iter().any(|input| input.queue.is_some_and(|queue| queue >= config.queues)) {
        "packets belong to one of the card's queues"
    } else {
        return Ok(());
    };
    Err(PacketError::Config { what })
}

/// The rings of a socket.
struct Rings {
    pub(super) receive: Ring<libc::xdp_desc>,
    pub(super) transmit: Ring<libc::xdp_desc>,
    pub(super) fill: Ring<u64>,
    pub(super) completion: Ring<u64>,
}

/// The kernel's share of our memory: a socket, and frames that it may read and write until the socket is closed.
struct Umem {
    /// Closed before the frames are returned.
    socket: Option<OwnedFd>,
    pub(super) card: Arc<XdpCard>,
    /// Frames that the kernel still had when their receiver or sender ended.
    left: Mutex<(Vec<Posted>, Vec<InFlight>)>,
}

/// A frame in flight to the card.
enum InFlight {
    /// A frame that was written here.
    Written(Loan),
    /// A frame that was received, and is sent unchanged or with new headers.
    Received(Slice),
}

impl Umem {
    /// Gives the kernel the frames of both pools and opens the rings.
    fn open(card: &Arc<XdpCard>, queue: u32, frames: &Pool) -> io::Result<(Arc<Self>, Rings)> {
        let config = &card.config;
        let count = config.receive_frames + config.send_frames;
        let socket = net::socket_with(
            AddressFamily::from_raw(libc::AF_XDP as u16),
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        let memory = libc::xdp_umem_reg {
            addr: frames.address().as_ptr() as u64,
            len: (count * config.frame_size) as u64,
            chunk_size: config.frame_size as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(&socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &memory)?;
        // No ring is ever full: each has a place for every frame.
        let size = count.next_power_of_two() as u32;
        let names = [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING];
        names.iter().try_for_each(|&name| set(&socket, libc::SOL_XDP, name, &size))?;
        let offsets = offsets(socket.as_fd())?;
        let (fd, receive, transmit) = (socket.as_fd(), libc::XDP_PGOFF_RX_RING, libc::XDP_PGOFF_TX_RING);
        let (fill, completion) = (libc::XDP_UMEM_PGOFF_FILL_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        // SAFETY: the rings were made above, and their offsets are the kernel's own.
        let rings = unsafe {
            Rings {
                receive: Ring::map(fd, receive as u64, &offsets.rx, size)?,
                transmit: Ring::map(fd, transmit as u64, &offsets.tx, size)?,
                fill: Ring::map(fd, fill, &offsets.fr, size)?,
                completion: Ring::map(fd, completion, &offsets.cr, size)?,
            }
        };
        bind(&socket, card, queue)?;
        card.program.redirect(queue, socket.as_raw_fd())?;
        Ok((Arc::new(Self { socket: Some(socket), card: Arc::clone(card), left: Mutex::default() }), rings))
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("it is taken by drop alone").as_fd()
    }

    /// Keeps frames that the kernel has, until it no longer has them.
    fn keep(&self, received: impl Iterator<Item = Posted>, sent: impl Iterator<Item = InFlight>) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.0.extend(received);
        left.1.extend(sent);
    }
}

/// Time for which a queue may stay in use by a socket that was just closed.
const GONE_AFTER: Duration = Duration::from_secs(2);
const TRY_AGAIN: Duration = Duration::from_millis(5);

/// Binds the socket to a queue of the card.
fn bind(socket: &OwnedFd, card: &XdpCard, queue: u32) -> io::Result<()> {
    let copy = if card.config.mode == XdpMode::ZeroCopy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: copy | libc::XDP_USE_NEED_WAKEUP | libc::XDP_USE_SG,
        sxdp_ifindex: card.card.index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let (begin, length) = (Instant::now(), size_of_val(&address) as libc::socklen_t);
    loop {
        // SAFETY: reads an address of this length.
        let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EBUSY) || begin.elapsed() > GONE_AFTER {
            return Err(error);
        }
        std::thread::sleep(TRY_AGAIN);
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // After this the kernel neither writes into the frames nor reads them: it has copied those that it sends.
        drop(self.socket.take());
        let left = self.left.get_mut().unwrap_or_else(PoisonError::into_inner);
        for posted in left.0.drain(..) {
            // SAFETY: the socket is closed.
            drop(unsafe { posted.reclaim(0) });
        }
    }
}

/// The instructions that clang makes of `pick.c`; a test compares them.
const INSTRUCTIONS: &[u8] = include_bytes!("pick.bpf");

/// Bytes of an instruction, and the instruction that loads 64 bits, which has two of them.
const STEP: usize = 8;
const LOAD_64: u8 = 0x18;

/// The constants of the source that are replaced, numbered from here; the first ones are maps.
const MARKS: u64 = 0x0052_5700_0000_0000;
const MAPS: usize = 2;

/// The pseudo register that makes a constant a map.
const MAP: u8 = 1;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;

const HASH: u32 = 1;
const XSKMAP: u32 = 17;
const XDP_PROGRAM: u32 = 6;
const XDP_ATTACHMENT: u32 = 37;
/// Marks packets to an address that are selected at any queue.
const ANY_QUEUE: u32 = u32::MAX;
/// The program receives the first part of a frame that lies in several.
const HAS_PARTS: u32 = 1 << 5;
const DRIVER: u32 = 1 << 2;
const GENERIC: u32 = 1 << 1;

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapUpdate {
    map: u32,
    zero: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The program at a card. It is detached when this is dropped, or when the process ends for any reason.
struct Program {
    _link: OwnedFd,
    sockets: OwnedFd,
}

impl Program {
    /// Loads the program for these packets and attaches it.
    fn attach(card: &Card, inputs: &[XdpInput], queues: u32, mode: XdpMode) -> io::Result<Self> {
        let sockets = create_map(XSKMAP, size_of::<u32>(), queues)?;
        let picked = create_map(HASH, size_of::<u64>(), inputs.len() as u32)?;
        inputs.iter().try_for_each(|input| update(&picked, &key_of(input), input.queue.unwrap_or(ANY_QUEUE)))?;
        let instructions = patched(card, [sockets.as_raw_fd(), picked.as_raw_fd()]);
        let kind = ProgramKind { kind: XDP_PROGRAM, attachment: XDP_ATTACHMENT, flags: HAS_PARTS };
        let flags = if mode == XdpMode::Generic { GENERIC } else { DRIVER };
        let link = attach_program(card, kind, b"ropewalk_pick", &instructions, flags)?;
        Ok(Self { _link: link, sockets })
    }

    /// Directs a queue's packets to this socket from now on, until the socket is closed.
    fn redirect(&self, queue: u32, socket: RawFd) -> io::Result<()> {
        update(&self.sockets, &queue, socket as u32)
    }
}

/// The program's map key for packets to this address: address and port in network byte order, protocol.
fn key_of(input: &XdpInput) -> [u8; 8] {
    let ([a, b, c, d], [high, low]) = (input.address.ip().octets(), input.address.port().to_be_bytes());
    [a, b, c, d, high, low, input.flow.protocol(), 0]
}

/// Creates a map from keys of `key_bytes` bytes to 32-bit numbers.
fn create_map(kind: u32, key_bytes: usize, entries: u32) -> io::Result<OwnedFd> {
    let map = MapCreate { kind, key_bytes: key_bytes as u32, value_bytes: 4, entries, flags: 0 };
    // SAFETY: passes only numbers.
    unsafe { call(MAP_CREATE, &map) }
}

/// Sets the value of a key, which must be as long as the map's keys.
fn update<K>(map: &OwnedFd, key: &K, value: u32) -> io::Result<()> {
    let (key, value) = (core::ptr::from_ref(key) as u64, (&raw const value) as u64);
    let update = MapUpdate { map: map.as_raw_fd() as u32, key, value, ..MapUpdate::default() };
    // SAFETY: key and value outlive the call, which only reads them.
    unsafe { ask(MAP_UPDATE, &update) }.map(|_| ())
}

/// The instructions with the constants of a card, and these maps.
fn patched(card: &Card, maps: [RawFd; MAPS]) -> Vec<u8> {
    let [a, b, c, d, e, f] = card.mac;
    let values = [maps[0] as u64, maps[1] as u64, u64::from_le_bytes([a, b, c, d, e, f, 0, 0])];
    let mut instructions = INSTRUCTIONS.to_vec();
    let mut at = 0;
    while at + 2 * STEP <= instructions.len() {
        if instructions[at] != LOAD_64 {
            at += STEP;
            continue;
        }
        let low: [u8; 4] = [0, 1, 2, 3].map(|byte| instructions[at + 4 + byte]);
        let high: [u8; 4] = [0, 1, 2, 3].map(|byte| instructions[at + 12 + byte]);
        let mark = u64::from(u32::from_le_bytes(high)) << 32 | u64::from(u32::from_le_bytes(low));
        if let Some(place) = mark.checked_sub(MARKS + 1).map(|place| place as usize)
            && let Some(value) = values.get(place)
        {
            instructions[at + 4..at + 8].copy_from_slice(&value.to_le_bytes()[..4]);
            instructions[at + 12..at + 16].copy_from_slice(&value.to_le_bytes()[4..]);
            if place < MAPS {
                instructions[at + 1] |= MAP << 4;
            }
        }
        at += 2 * STEP;
    }
    instructions
}

#[cfg(test)]
mod tests {
    //! Checks that the instructions are those that clang makes of the source, and that every constant is replaced.

    use std::net::{Ipv4Addr, SocketAddrV4};
    use std::process::Command;

    use super::*;
    use crate::packet::Flow;

    /// The compiler that made the instructions: other versions choose other registers.
    const VERSION: &str = "14.0.6";
    const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/packet/frames/xdp/pick.c");

    fn marks(instructions: &[u8]) -> usize {
        instructions.as_chunks::<4>().0.iter().filter(|word| u32::from_le_bytes(**word) == (MARKS >> 32) as u32).count()
    }

    #[test]
    fn every_constant_is_replaced_by_what_it_stands_for() {
        let card = Card { name: "x".to_owned(), index: 1, mac: [1, 2, 3, 4, 5, 6], mtu: 1500 };
        assert_eq!(marks(INSTRUCTIONS), 3, "three constants, each in one place");
        let patched = patched(&card, [77, 78]);
        assert_eq!((marks(&patched), patched.len()), (0, INSTRUCTIONS.len()));
        let loads = |of: u8, low: [u8; 4], high: [u8; 4]| {
            let is_it = |two: &&[u8]| two[0] == LOAD_64 && two[1] >> 4 == of && two[4..8] == low && two[12..] == high;
            patched.windows(16).step_by(STEP).filter(is_it).count()
        };
        assert_eq!(loads(0, [1, 2, 3, 4], [5, 6, 0, 0]), 1);
        assert_eq!((loads(MAP, [77, 0, 0, 0], [0; 4]), loads(MAP, [78, 0, 0, 0], [0; 4])), (1, 1));
    }

    #[test]
    fn a_key_has_eight_bytes_as_the_program_finds_them_in_a_packet() {
        let address = SocketAddrV4::new(Ipv4Addr::new(10, 20, 30, 40), 0x1234);
        let udp = XdpInput { flow: Flow::Udp, address, queue: None, to: 0 };
        assert_eq!(key_of(&udp), [10, 20, 30, 40, 0x12, 0x34, 17, 0]);
        let raw = XdpInput { flow: Flow::Ip(253), address: SocketAddrV4::new(*address.ip(), 0), ..udp };
        assert_eq!(key_of(&raw), [10, 20, 30, 40, 0, 0, 253, 0]);
    }

    #[test]
    fn the_instructions_are_what_clang_makes_of_the_source() {
        let name = "packet::frames::xdp::program::tests::the_instructions_are_what_clang_makes_of_the_source";
        let speaks = |name: &&&str| {
            let said = Command::new(name).arg("--version").output();
            said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(VERSION))
        };
        let Some(clang) = ["clang-14", "clang"].iter().find(speaks) else {
            return ropewalk_tidy::skipped(name, "needs clang 14.0.6");
        };
        let object = std::env::temp_dir().join(format!("ropewalk-pick-{}.o", std::process::id()));
        let arguments = ["-target", "bpf", "-O2", "-Wall", "-Werror", "-c", SOURCE, "-o"];
        let status = Command::new(clang).args(arguments).arg(&object).status().expect("clang was there");
        assert!(status.success());
        let bytes = std::fs::read(&object).expect("clang has written it");
        std::fs::remove_file(&object).expect("the test's own file");
        assert!(section(&bytes, b"xdp").expect("the section of the program") == INSTRUCTIONS, "compile pick.c again");
    }

    /// A section of an object file (ELF, 64 bits).
    fn section<'a>(object: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
        let number = |at: usize, bytes: usize| {
            object.get(at..at + bytes)?.iter().rev().try_fold(0_usize, |sum, &byte| Some(sum << 8 | usize::from(byte)))
        };
        let (table, entry, count) = (number(40, 8)?, number(58, 2)?, number(60, 2)?);
        let header = |index: usize| {
            let at = table + index * entry;
            Some((number(at, 4)?, number(at + 24, 8)?, number(at + 32, 8)?))
        };
        let (_, names, _) = header(number(62, 2)?)?;
        (0..count).filter_map(header).find_map(|(at, offset, bytes)| {
            let is_named = object.get(names + at..)?.strip_prefix(name)?.first() == Some(&0);
            if is_named { object.get(offset..offset + bytes) } else { None }
        })
    }
}
