//! The rings that packet sockets map (packet(7)): the kernel copies each frame into a ring, or sends it from there.
//!
//! A receiving ring has blocks of frames (TPACKET_V3). A program behind it saves the kernel further work on packets
//! that the ring has got: it drops them in front of IP and UDP, which would look up the receiver (a third of a ring's
//! processor time) and find a mute socket. A sending ring has frames (PACKET_TX_RING): paper 1's zero-copy socket
//! (section III-D).
#![allow(unsafe_code)]

use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ropewalk_memory::Frames;
use ropewalk_terms::{Cause, Instant};
use rustix::net::{SocketType, sockopt};

use super::open::{Opened, Wanted};
use super::sender::{FrameConfig, Transmit};
use super::socket::{Card, ProgramKind, Seen, attach_program, bind, filter, mute, packet_socket, set, steer};
use crate::packet::probe::Around;
use crate::packet::socket::bound_v4;
use crate::packet::{
    Flow, MOST_BATCH, MemoryInUse, Packet, PacketError, QueueInUse, ReceiveCounters, Receiver, append,
};

/// Settings of a receiving ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingConfig {
    /// The packets to receive.
    pub flow: Flow,
    /// The card's address as their destination; with the port (0: any free one) for UDP.
    pub address: SocketAddrV4,
    /// The name of the card.
    pub card: String,
    /// Maximum number of packets delivered by one call, from 1 to [`MOST_BATCH`].
    pub batch: usize,
    /// Bytes of the longest payload; longer packets are refused.
    pub largest: usize,
    /// Bytes of a block, a power of two from 4,096 on: at least twice the longest packet.
    pub block_size: usize,
    /// Number of blocks of the ring. A held packet keeps its block, and the kernel, which fills them in order, stops
    /// there.
    pub blocks: usize,
    /// Time for which the kernel waits for more packets before it hands over a block that is not full; whole
    /// milliseconds.
    pub patience: Duration,
    /// Number of a group of receivers, each of which gets a part of the packets: those of one sender go to the same
    /// receiver.
    pub group: Option<u16>,
    /// Whether to verify UDP checksums that were not verified before: most cards verify them.
    pub verify_checksums: bool,
}

impl RingConfig {
    /// A flow at a card's address.
    pub fn new(flow: Flow, address: SocketAddrV4, card: &str) -> Self {
        Self {
            flow,
            address,
            card: card.to_owned(),
            batch: 64,
            largest: 8972,
            block_size: 256 << 10,
            blocks: 64,
            patience: Duration::from_millis(1),
            group: None,
            verify_checksums: true,
        }
    }
}

/// The block that is being read.
struct Open {
    /// Number of packets that were not examined, and the offset of the next one's description.
    left: u32,
    next: usize,
}

/// Receives a flow from a ring that the kernel fills.
pub struct RingReceiver {
    socket: OwnedFd,
    /// The program that drops packets behind the ring, if it could be attached.
    _spare: Option<OwnedFd>,
    /// To the kernel, this socket is a listener at the address.
    _listener: OwnedFd,
    address: SocketAddrV4,
    wanted: Wanted,
    batch: usize,
    largest: usize,
    verify_checksums: bool,
    frames: Frames,
    blocks: Blocks,
    /// The next or open block.
    block: u32,
    open: Option<Open>,
    /// Number of blocks after that one that are not held, up to the first held one.
    ahead: usize,
    counters: ReceiveCounters,
    around: Around,
}

impl RingReceiver {
    /// Opens a packet socket at a card and maps its ring.
    ///
    /// # Errors
    /// Impossible settings, no such card, an address in use, or no right to use packet sockets.
    pub fn new(config: &RingConfig) -> Result<Self, PacketError> {
        let ring = Self::open(config)?;
        let refused = |source: io::Error| PacketError::of("cannot share the packets", config.address, source);
        join(&ring.socket, config.group).map_err(refused)?;
        Ok(ring)
    }

    /// Opens rings of one card as one group, each with a separate address. The kernel reassembles a packet once, and
    /// gives it only to the ring of its address. (Rings outside a group are given a copy of each packet, but only one
    /// of them gets a packet that arrives in fragments: the copies of a fragment are duplicates to the kernel.)
    ///
    /// # Errors
    /// As [`RingReceiver::new`], or if there are more rings than a group can have.
    pub fn several(configs: &[RingConfig]) -> Result<Vec<Self>, PacketError> {
        if configs.len() > MOST_RINGS || configs.iter().any(|config| config.group.is_some()) {
            return Err(PacketError::Config { what: "at most 256 rings share a card, and are of no other group" });
        }
        let rings = configs.iter().map(Self::open).collect::<Result<Vec<_>, _>>()?;
        let mut group = None;
        for ring in &rings {
            let refused = |source: io::Error| PacketError::of("cannot share the packets", ring.address, source);
            group = Some(join_steered(&ring.socket, group).map_err(refused)?);
        }
        if let Some(first) = rings.first() {
            let refused = |source: io::Error| PacketError::of("cannot steer the packets", first.address, source);
            let addresses: Vec<_> =
                configs.iter().zip(&rings).map(|(config, ring)| (config.flow, ring.address)).collect();
            steer(&first.socket, &addresses).map_err(refused)?;
        }
        Ok(rings)
    }

    /// Opens a ring that is in no group yet.
    fn open(config: &RingConfig) -> Result<Self, PacketError> {
        check(config)?;
        let refused = |what: &'static str| move |source: io::Error| PacketError::of(what, config.address, source);
        let (listener, address) = bound_v4(config.flow, config.address, config.group.is_some())?;
        mute(&listener).map_err(refused("cannot keep a socket mute"))?;
        let card = Card::find(&config.card, &listener).map_err(refused("no such card"))?;
        let wanted = Wanted::one(config.flow, address, config.largest);
        let socket = packet_socket(SocketType::DGRAM).map_err(refused("cannot open a packet socket"))?;
        filter(&socket, config.flow, address).map_err(refused("cannot filter packets"))?;
        let frames = map(&socket, config)?;
        // If packets end behind the ring, it has to see all frames, in front of the kernel's own protocols.
        let spare = drop_behind(&card, config.flow, address).ok();
        let what = if spare.is_some() { Seen::Everything } else { Seen::Ipv4 };
        bind(&socket, &card, what).map_err(refused("cannot listen at the card"))?;
        let blocks = Blocks { base: frames.address(0), block_size: config.block_size };
        Ok(Self {
            socket,
            _spare: spare,
            _listener: listener,
            address,
            wanted,
            batch: config.batch,
            largest: config.largest,
            verify_checksums: config.verify_checksums,
            frames,
            blocks,
            block: 0,
            open: None,
            ahead: config.blocks - 1,
            counters: ReceiveCounters::default(),
            around: Around::new(Some(config.card.clone())),
        })
    }

    /// Returns free blocks to the kernel.
    fn collect(&mut self) {
        let blocks = self.blocks;
        self.frames.collect(|block| blocks.give_back(block));
    }

    /// Opens the next block, if the kernel has handed it over.
    fn open_next(&mut self) -> bool {
        if !self.frames.is_home(self.block) {
            // Held since the last round: the kernel has stopped in front of it.
            self.counters.dry += 1;
            return false;
        }
        if !self.blocks.is_ours(self.block) {
            return false;
        }
        self.frames.lend(self.block);
        // SAFETY: the kernel has handed it over.
        let (left, next) = unsafe { self.blocks.packets(self.block) };
        self.open = Some(Open { left, next });
        self.counters.calls += 1;
        true
    }

    fn close(&mut self) {
        self.open = None;
        self.frames.done(self.block);
        self.block = self.behind(1);
        self.ahead = self.ahead.saturating_sub(1);
    }

    /// The block `count` behind the next or open one.
    fn behind(&self, count: usize) -> u32 {
        ((self.block as usize + count) % self.frames.blocks()) as u32
    }

    /// Number of blocks that the kernel fills before it stops in front of a held one, including the block that is being
    /// read. It fills them in order, so blocks behind a held one are of no use.
    fn usable_blocks(&mut self) -> usize {
        self.collect();
        while self.ahead + 1 < self.frames.blocks() && self.frames.is_home(self.behind(self.ahead + 1)) {
            self.ahead += 1;
        }
        let is_stopped = self.open.is_none() && !self.frames.is_home(self.block);
        if is_stopped { 0 } else { self.ahead + 1 }
    }

    /// The next packet of the open block.
    fn next_entry(&mut self) -> Option<Entry> {
        let open = self.open.as_mut().filter(|open| open.left > 0)?;
        // SAFETY: the block is open: the kernel has handed it over.
        let entry = unsafe { self.blocks.entry(self.block, open.next) }?;
        *open = Open { left: open.left - 1, next: entry.next };
        Some(entry)
    }

    /// Examines a packet, and delivers it if it is wanted and valid.
    fn take(&mut self, entry: &Entry, packets: &mut Vec<Packet>) {
        // SAFETY: within the block, as `entry` has checked.
        let start = unsafe { self.frames.address(self.block).add(entry.begin) };
        // SAFETY: as above, and not written any more by the kernel, which has handed the block over.
        let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr(), entry.captured) };
        if entry.captured < entry.length {
            self.counters.lost.add(Cause::Truncated, 1);
            return;
        }
        let is_known = entry.status & (libc::TP_STATUS_CSUM_VALID | libc::TP_STATUS_CSUMNOTREADY) != 0;
        match self.wanted.open(bytes, self.verify_checksums && !is_known) {
            Ok(None) => {}
            Err(cause) => self.counters.lost.add(cause, 1),
            Ok(Some(Opened { from, to, payload })) => {
                let length = payload.len() as u32;
                self.counters.packets += 1;
                self.counters.bytes += u64::from(length);
                // SAFETY: within the packet; the kernel gets the block back only after its last reference is dropped.
                let payload = unsafe { self.frames.slice(self.block, start.add(payload.start), length) };
                append(packets, Packet { from: from.into(), to, payload: payload.into(), came: None });
            }
        }
    }
}

/// Maximum number of bytes of a packet in a block besides its payload: its description, the headers of IP and UDP, and
/// padding for alignment.
const MOST_BESIDE: usize = 192;

fn check(config: &RingConfig) -> Result<(), PacketError> {
    let what = if !(1..=MOST_BATCH).contains(&config.batch) {
        "a batch has 1 to 1024 packets"
    } else if !config.block_size.is_power_of_two() || !(4096..=1 << 26).contains(&config.block_size) {
        "a block of a ring has 4096 bytes or a power of two times as much, up to 64 MiB"
    } else if config.largest == 0 || config.largest * 2 > config.block_size {
        "a block of a ring must have room for two of the largest packets"
    } else if config.blocks < 2 || config.blocks > 1 << 20 {
        "a ring has at least two blocks"
    } else if config.address.ip().is_unspecified() {
        "a ring needs the card's own address, not 0.0.0.0"
    } else {
        return Ok(());
    };
    Err(PacketError::Config { what })
}

/// Makes the ring and maps it.
fn map(socket: &OwnedFd, config: &RingConfig) -> Result<Frames, PacketError> {
    /// In this kind of ring packets lie directly behind each other, so that this size has no effect.
    const FRAME: u32 = 2048;
    let refused = |source: io::Error| PacketError::of("cannot make a packet ring", config.address, source);
    let number = |name: i32, value: i32| set(socket, libc::SOL_PACKET, name, &value).map_err(refused);
    number(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as i32)?;
    number(libc::PACKET_IGNORE_OUTGOING, 1)?;
    let request = libc::tpacket_req3 {
        tp_block_size: config.block_size as u32,
        tp_block_nr: config.blocks as u32,
        tp_frame_size: FRAME,
        tp_frame_nr: (config.block_size / FRAME as usize * config.blocks) as u32,
        tp_retire_blk_tov: u32::try_from(config.patience.as_millis()).unwrap_or(u32::MAX).max(1),
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request).map_err(refused)?;
    Ok(Frames::map("packet ring", socket.as_fd(), config.block_size, config.blocks)?)
}

/// Shares the packets with the other sockets of a group, or forms a group of one: in either case the kernel reassembles
/// fragments before any socket gets them.
fn join(socket: &OwnedFd, group: Option<u16>) -> io::Result<()> {
    // A single receiver gets everything: the kernel then need not examine each packet to find its receiver.
    let kind = match group {
        Some(_) => libc::PACKET_FANOUT_HASH,
        None => libc::PACKET_FANOUT_CPU | libc::PACKET_FANOUT_FLAG_UNIQUEID,
    };
    let kind = kind | libc::PACKET_FANOUT_FLAG_DEFRAG;
    set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &(u32::from(group.unwrap_or(0)) | kind << 16))
}

/// Maximum number of members of a group.
const MOST_RINGS: usize = 256;

/// Founds or joins a group in which a program decides the receiver of each packet. Returns the group's number.
fn join_steered(socket: &OwnedFd, group: Option<u16>) -> io::Result<u16> {
    let first = if group.is_none() { libc::PACKET_FANOUT_FLAG_UNIQUEID } else { 0 };
    let kind = libc::PACKET_FANOUT_CBPF | libc::PACKET_FANOUT_FLAG_DEFRAG | first;
    set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &(u32::from(group.unwrap_or(0)) | kind << 16))?;
    let mut number = 0_u32;
    let mut length = size_of_val(&number) as libc::socklen_t;
    // SAFETY: writes a number of this length.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            (&raw mut number).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(number as u16) } else { Err(io::Error::last_os_error()) }
}

/// Number of packets that the kernel dropped since the last call, because no block was free.
fn drops(socket: &OwnedFd) -> u32 {
    let mut numbers = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
    let mut length = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: writes at most as many bytes as there are. If it fails they stay 0.
    unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut numbers).cast(),
            &raw mut length,
        );
    }
    numbers.tp_drops
}

impl Receiver for RingReceiver {
    fn receive(&mut self, _now: Instant, packets: &mut Vec<Packet>) -> usize {
        let before = packets.len();
        packets.reserve(self.batch);
        self.collect();
        while packets.len() - before < self.batch {
            if self.open.is_none() && !self.open_next() {
                break;
            }
            match self.next_entry() {
                Some(entry) => self.take(&entry, packets),
                None => self.close(),
            }
        }
        packets.len() - before
    }

    fn address(&self) -> SocketAddr {
        self.address.into()
    }

    fn prepare_wait(&mut self) -> bool {
        // A card that went down leaves an error behind, which would keep the descriptor readable.
        let _ = sockopt::socket_error(&self.socket);
        self.collect();
        self.open.is_none() && !(self.frames.is_home(self.block) && self.blocks.is_ours(self.block))
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn counters(&mut self) -> ReceiveCounters {
        self.counters.lost.add(Cause::RingFull, drops(&self.socket).into());
        self.counters.around = self.around.read();
        self.counters
    }

    fn memory_in_use(&mut self) -> MemoryInUse {
        let all = self.frames.blocks();
        MemoryInUse { held: all - self.usable_blocks(), all }
    }

    /// Whole blocks: used ones were handed over and are unread; held blocks are no room.
    fn queue_in_use(&mut self) -> QueueInUse {
        let usable = self.usable_blocks();
        // They are handed over in order, so the first block not handed over is found by bisection.
        let (mut filled, mut empty) = (0, usable);
        while filled < empty {
            let middle = filled.midpoint(empty);
            if self.blocks.is_ours(self.behind(middle)) {
                filled = middle + 1;
            } else {
                empty = middle;
            }
        }
        let bytes = |blocks: usize| (blocks * self.blocks.block_size) as u64;
        let packet = (self.largest + MOST_BESIDE) as u64;
        QueueInUse { used: bytes(filled), room: bytes(usable), packet }
    }
}

/// Offsets in a block's description: its status, the number of its packets, and the offset of the first one.
const BLOCK_STATUS: usize = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, block_status);
const COUNT: usize = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, num_pkts);
const FIRST: usize = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt);

/// The mapped ring. The caller must know which blocks belong to the kernel.
#[derive(Copy, Clone)]
struct Blocks {
    pub(super) base: NonNull<u8>,
    pub(super) block_size: usize,
}

// SAFETY: an address, used only by the receiver that owns it.
unsafe impl Send for Blocks {}

/// A packet in a block.
#[derive(Copy, Clone)]
pub(super) struct Entry {
    /// Offset of its IP header in the block, and the number of captured bytes from there.
    pub(super) begin: usize,
    captured: usize,
    /// Its original length, from the IP header.
    pub(super) length: usize,
    /// The kernel's status of it.
    pub(super) status: u32,
    /// Offset of the next packet's description.
    pub(super) next: usize,
}

impl Blocks {
    /// The status of a block, which the kernel shares.
    fn status(&self, block: u32) -> &AtomicU32 {
        // SAFETY: within the block, aligned to 4, and only accessed as an atomic, here and in the kernel.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(block as usize * self.block_size + BLOCK_STATUS).cast()) }
    }

    /// Whether the kernel has handed the block over and did not get it back.
    #[inline]
    fn is_ours(&self, block: u32) -> bool {
        // Acquire: the kernel's earlier writes are visible.
        self.status(block).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Gives the block back to the kernel.
    pub(super) fn give_back(&self, block: u32) {
        // Release: the reads of the block come before the kernel's next writes.
        self.status(block).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }

    /// Returns the number of packets in a block, and the offset of the first description.
    ///
    /// # Safety
    /// The block must not belong to the kernel.
    pub(super) unsafe fn packets(&self, block: u32) -> (u32, usize) {
        let start = block as usize * self.block_size;
        // SAFETY: within the block, aligned, and not written any more by the kernel.
        unsafe { (self.number(start + COUNT), self.number(start + FIRST) as usize) }
    }

    /// Returns the packet described at this place of a block; `None` if the description is invalid.
    ///
    /// # Safety
    /// The block must not belong to the kernel.
    #[inline]
    pub(super) unsafe fn entry(&self, block: u32, place: usize) -> Option<Entry> {
        let header_end = place.checked_add(size_of::<libc::tpacket3_hdr>())?;
        if header_end > self.block_size || !place.is_multiple_of(align_of::<libc::tpacket3_hdr>()) {
            return None;
        }
        let start = block as usize * self.block_size + place;
        // SAFETY: within the block, aligned, not written any more by the kernel; numbers, for which any bits are valid.
        let header = unsafe { self.base.as_ptr().add(start).cast::<libc::tpacket3_hdr>().read() };
        let (link, network) = (usize::from(header.tp_mac), usize::from(header.tp_net));
        let before = network.checked_sub(link)?;
        let captured = (header.tp_snaplen as usize).checked_sub(before)?;
        let begin = place + network;
        let is_inside = begin.checked_add(captured).is_some_and(|end| end <= self.block_size);
        let length = (header.tp_len as usize).checked_sub(before)?;
        let (status, next) = (header.tp_status, place.checked_add(header.tp_next_offset as usize)?);
        is_inside.then_some(Entry { begin, captured, length, status, next })
    }

    /// A number in a block.
    ///
    /// # Safety
    /// It must lie, aligned, in a block that does not belong to the kernel.
    unsafe fn number(&self, place: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.base.as_ptr().add(place).cast::<u32>().read() }
    }
}

/// A program that sees a card's incoming packets before protocols do, but after sockets that receive everything
/// (tcx, Linux 6.6).
const INGRESS: ProgramKind = ProgramKind { kind: 3, attachment: 46, flags: 0 };

/// The program's verdict on a packet: leave it to other receivers, or drop it.
const NEXT: i32 = -1;
const DROP: i32 = 2;

/// Offsets in the program's context (`struct __sk_buff`), and in the frame.
const KIND: i16 = 4;
const HAS_VLAN: i16 = 20;
const BEGIN: i16 = 76;
const END: i16 = 80;
const ETHER_TYPE: i16 = 12;
const VERSION_AND_LENGTH: i16 = 14;
const FRAGMENTATION: i16 = 20;
const PROTOCOL: i16 = 23;
const DESTINATION: i16 = 30;
const PORT: i16 = 36;
/// Minimum number of bytes that are examined.
const SEEN: i32 = 38;

/// IPv4 without options: a packet with options is left to the kernel.
const PLAIN: i32 = 0x45;

/// Drops a ring's packets behind the ring, as long as the returned descriptor is open.
///
/// # Errors
/// The kernel's error: mostly a missing right, or an old kernel. Nothing is wrong then, but slower.
fn drop_behind(card: &Card, flow: Flow, address: SocketAddrV4) -> io::Result<OwnedFd> {
    let instructions: Vec<u8> = program(flow, address).into_iter().flatten().collect();
    attach_program(card, INGRESS, b"ropewalk_spare", &instructions, 0)
}

/// Operations, with the size of what is loaded.
const LOAD_BYTE: u8 = 0x71;
const LOAD_HALF: u8 = 0x69;
const LOAD_WORD: u8 = 0x61;
const MOVE: u8 = 0xBF;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const IS_ABOVE: u8 = 0x2D;
/// Comparison of 32 bits.
const DIFFERS: u8 = 0x56;
const ANSWER: u8 = 0xB7;
const RETURN: u8 = 0x95;

/// One instruction: operation, registers (the source in the upper half), jump distance, number.
const fn step(operation: u8, registers: u8, distance: i16, number: i32) -> [u8; 8] {
    let ([a, b], [c, d, e, f]) = (distance.to_le_bytes(), number.to_le_bytes());
    [operation, registers, a, b, c, d, e, f]
}

/// Loads a part of the frame and continues if it has this value, in the frame's byte order.
const fn expect(load: u8, place: i16, value: i32) -> [[u8; 8]; 2] {
    [step(load, 0x25, place, 0), step(DIFFERS, 0x05, 0, value)]
}

/// The instructions. The last verdict leaves a packet to other receivers; the one before it drops the packet.
fn program(flow: Flow, address: SocketAddrV4) -> Vec<[u8; 8]> {
    let big_endian = |number: u16| i32::from(number.to_be());
    let mut steps = vec![
        // Ignores frames for other hosts, and frames of a VLAN.
        step(LOAD_WORD, 0x15, KIND, 0),
        step(DIFFERS, 0x05, 0, libc::PACKET_HOST.into()),
        step(LOAD_WORD, 0x15, HAS_VLAN, 0),
        step(DIFFERS, 0x05, 0, 0),
        step(LOAD_WORD, 0x12, BEGIN, 0),
        step(LOAD_WORD, 0x13, END, 0),
        step(MOVE, 0x24, 0, 0),
        step(ADD, 0x04, 0, SEEN),
        step(IS_ABOVE, 0x34, 0, 0),
    ];
    steps.extend(expect(LOAD_HALF, ETHER_TYPE, big_endian(0x0800)));
    steps.extend(expect(LOAD_BYTE, VERSION_AND_LENGTH, PLAIN));
    // More fragments follow, or it is not the first one: the ring gets the packet when the kernel has reassembled it.
    let [load, compare] = expect(LOAD_HALF, FRAGMENTATION, 0);
    steps.extend([load, step(AND, 0x05, 0, big_endian(0x3FFF)), compare]);
    steps.extend(expect(LOAD_BYTE, PROTOCOL, flow.protocol().into()));
    steps.extend(expect(LOAD_WORD, DESTINATION, i32::from_ne_bytes(address.ip().octets())));
    if flow == Flow::Udp {
        steps.extend(expect(LOAD_HALF, PORT, big_endian(address.port())));
    }
    steps.extend([step(ANSWER, 0, 0, DROP), step(RETURN, 0, 0, 0)]);
    let end = steps.len();
    for (place, step) in steps.iter_mut().enumerate() {
        if [DIFFERS, IS_ABOVE].contains(&step[0]) {
            step[2..4].copy_from_slice(&((end - place - 1) as i16).to_le_bytes());
        }
    }
    steps.extend([step(ANSWER, 0, 0, NEXT), step(RETURN, 0, 0, 0)]);
    steps
}

/// Offset of a frame's bytes, behind its description.
const DATA: usize = size_of::<libc::tpacket2_hdr>();
/// Offsets of the status and the length in the description.
const FRAME_STATUS: usize = offset_of!(libc::tpacket2_hdr, tp_status);
const LENGTH: usize = offset_of!(libc::tpacket2_hdr, tp_len);

/// Bytes of a block of the ring; the frames lie behind each other.
const BLOCK: usize = 64 << 10;

/// A mapped ring of frames.
pub struct TransmitRing {
    socket: OwnedFd,
    frames: Frames,
    /// The next frame to fill, and the first frame in flight.
    next: u32,
    first: u32,
    in_flight: usize,
    room: usize,
    refused: u64,
}

impl TransmitRing {
    fn status(&self, frame: u32) -> &AtomicU32 {
        // SAFETY: within the frame, aligned to 4, and only accessed as an atomic while the kernel may have it.
        unsafe { AtomicU32::from_ptr(self.frames.address(frame).as_ptr().add(FRAME_STATUS).cast()) }
    }

    const fn after(&self, frame: u32) -> u32 {
        let next = frame + 1;
        if next as usize == self.frames.blocks() { 0 } else { next }
    }

    /// Takes back the frames that have left.
    fn reclaim(&mut self) {
        while self.in_flight > 0 {
            // Acquire: the kernel has read the frame before it gives it back.
            match self.status(self.first).load(Ordering::Acquire) {
                libc::TP_STATUS_AVAILABLE => {}
                libc::TP_STATUS_WRONG_FORMAT => {
                    self.refused += 1;
                    self.status(self.first).store(libc::TP_STATUS_AVAILABLE, Ordering::Relaxed);
                }
                _ => return,
            }
            self.first = self.after(self.first);
            self.in_flight -= 1;
        }
    }
}

impl TransmitRing {
    pub(in crate::packet::frames) fn open(card: &Card, config: &FrameConfig) -> Result<Self, PacketError> {
        let refused = |source: io::Error| PacketError::of("cannot make a transmit ring", config.address, source);
        let frame = (DATA + 18 + card.mtu).next_power_of_two().max(2048);
        if frame > BLOCK {
            return Err(PacketError::Config { what: "frames of a transmit ring have at most 64 KiB" });
        }
        let blocks = (config.frames.max(2) * frame).div_ceil(BLOCK);
        let frames = blocks * (BLOCK / frame);
        let socket = packet_socket(SocketType::RAW).map_err(refused)?;
        let number = |name: i32, value: i32| set(&socket, libc::SOL_PACKET, name, &value).map_err(refused);
        number(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as i32)?;
        number(libc::PACKET_QDISC_BYPASS, i32::from(config.is_direct))?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: frame as u32,
            tp_frame_nr: frames as u32,
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_TX_RING, &request).map_err(refused)?;
        let frames = Frames::map("transmit ring", socket.as_fd(), frame, frames)?;
        bind(&socket, card, Seen::Nothing).map_err(refused)?;
        Ok(Self { socket, frames, next: 0, first: 0, in_flight: 0, room: frame - DATA, refused: 0 })
    }
}

impl Transmit for TransmitRing {
    fn room(&self) -> usize {
        self.room
    }

    fn frame(&mut self) -> Option<&mut [u8]> {
        if self.in_flight == self.frames.blocks() {
            self.reclaim();
        }
        if self.in_flight == self.frames.blocks() {
            return None;
        }
        // SAFETY: behind the description, within the frame. The frame is not in flight: the kernel does not access it,
        // and nothing else here refers to it. The kernel initialised the memory.
        Some(unsafe { core::slice::from_raw_parts_mut(self.frames.address(self.next).as_ptr().add(DATA), self.room) })
    }

    fn submit(&mut self, bytes: usize) {
        assert!(bytes <= self.room && self.in_flight < self.frames.blocks(), "a frame that there was room for");
        // SAFETY: in the description of a frame that the kernel does not access, aligned to 4.
        unsafe { self.frames.address(self.next).as_ptr().add(LENGTH).cast::<u32>().write(bytes as u32) };
        // Release: the frame's bytes and its length are written before this store.
        self.status(self.next).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.next = self.after(self.next);
        self.in_flight += 1;
    }

    fn flush(&mut self) -> io::Result<()> {
        // SAFETY: sends the frames in the ring; no bytes are passed in the call.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), core::ptr::null(), 0, libc::MSG_DONTWAIT) };
        let result = if sent >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        self.reclaim();
        result
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}
