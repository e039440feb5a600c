//! Receiving from a mapped ring of blocks (TPACKET_V3).
#![allow(unsafe_code)]

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ropewalk_memory::Frames;
use ropewalk_terms::{Cause, Instant};

use rustix::net::{SocketType, sockopt};

use super::blocks::{Blocks, Entry};
use super::spare::drop_behind;
use crate::packet::around::Around;
use crate::packet::frames::card::Card;
use crate::packet::frames::open::{Opened, Wanted};
use crate::packet::frames::socket::{Seen, bind, filter, mute, packet_socket, set, steer};
use crate::packet::receiver::append;
use crate::packet::socket::open::bound_v4;
use crate::packet::{Flow, MOST_BATCH, MemoryInUse, Packet, PacketError, QueueInUse, ReceiveCounters, Receiver};

/// A ring to receive into.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingConfig {
    /// Which packets.
    pub flow: Flow,
    /// The card's address to which they are sent; with the port (0: any free one) for UDP.
    pub address: SocketAddrV4,
    /// The name of the card.
    pub card: String,
    /// Packets handed on by one call at most, from 1 to [`MOST_BATCH`].
    pub batch: usize,
    /// Bytes of the longest payload; longer packets are refused.
    pub largest: usize,
    /// Bytes of a block, a power of two from 4,096 on: twice what the longest packet has, or more.
    pub block_size: usize,
    /// Blocks of the ring. A packet that is held keeps its block, and the kernel, which fills them in order, stops there.
    pub blocks: usize,
    /// How long the kernel waits for more packets before it hands a block over that is not full; whole milliseconds.
    pub patience: Duration,
    /// Several receivers with this number each get a part of the packets: those of one sender go to the same one.
    pub group: Option<u16>,
    /// Whether UDP's checksums are looked at that nobody has looked at before: most cards do.
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
    /// Packets that were not looked at, and where the next one is described.
    left: u32,
    next: usize,
}

/// Receives a flow from a ring that the kernel fills.
pub struct RingReceiver {
    socket: OwnedFd,
    /// Ends the way of what the ring has got, where that may be.
    _spare: Option<OwnedFd>,
    /// For the kernel somebody listens at the address.
    _listener: OwnedFd,
    address: SocketAddrV4,
    wanted: Wanted,
    batch: usize,
    largest: usize,
    verify_checksums: bool,
    frames: Frames,
    blocks: Blocks,
    /// The block that comes next, or is open.
    block: u32,
    open: Option<Open>,
    /// Blocks behind that one that nobody holds, up to the first that somebody does.
    ahead: usize,
    counters: ReceiveCounters,
    around: Around,
}

impl RingReceiver {
    /// Opens a packet socket at a card and maps its ring.
    ///
    /// # Errors
    /// Impossible settings, no such card, an address that is taken, or without the right to have packet sockets.
    pub fn new(config: &RingConfig) -> Result<Self, PacketError> {
        let ring = Self::open(config)?;
        let refused = |source: io::Error| PacketError::of("cannot share the packets", config.address, source);
        join(&ring.socket, config.group).map_err(refused)?;
        Ok(ring)
    }

    /// Rings of one card, each with an address of its own, as one group: the kernel puts a packet together once, and gives it
    /// to the ring of its address alone. (Rings that are not of one group are given a copy of each packet, and of one that
    /// comes in fragments one of them alone: the copies of a fragment are duplicates to the kernel.)
    ///
    /// # Errors
    /// As [`RingReceiver::new`], or where there are more rings than a group can have.
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

    /// A ring that is of no group yet.
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
        // Where the packets end behind the ring it has to be in front of where others get them, among those who want everything.
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

    /// Gives the kernel what came home.
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

    /// The block so many behind the one that comes next, or is open.
    fn behind(&self, count: usize) -> u32 {
        ((self.block as usize + count) % self.frames.blocks()) as u32
    }

    /// How many blocks the kernel fills before it stops in front of one that is held: it fills them in their order, so that
    /// those behind that one are of no use. The block that is being read is one of them.
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

    /// Looks at a packet, and hands it on if it is wanted and good.
    fn take(&mut self, entry: &Entry, packets: &mut Vec<Packet>) {
        // SAFETY: within the block, as `entry` has checked.
        let start = unsafe { self.frames.address(self.block).add(entry.begin) };
        // SAFETY: as above, and written no more by the kernel, which has handed the block over.
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
                // SAFETY: within the packet; the kernel gets the block back when it has come home.
                let payload = unsafe { self.frames.slice(self.block, start.add(payload.start), length) };
                append(packets, Packet { from: from.into(), to, payload: payload.into(), came: None });
            }
        }
    }
}

/// The most bytes that a packet has in a block beside its payload: its description, IP's and UDP's headers, and what aligns them.
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
    /// In this kind of ring packets lie behind each other, whatever size is given here.
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

/// Shares the packets with the other sockets of a group, or is a group of its own: in either case the kernel puts
/// fragments together before anybody gets them.
fn join(socket: &OwnedFd, group: Option<u16>) -> io::Result<()> {
    // Who is alone gets everything: then the kernel need not look at each packet for whose it is.
    let kind = match group {
        Some(_) => libc::PACKET_FANOUT_HASH,
        None => libc::PACKET_FANOUT_CPU | libc::PACKET_FANOUT_FLAG_UNIQUEID,
    };
    let kind = kind | libc::PACKET_FANOUT_FLAG_DEFRAG;
    set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &(u32::from(group.unwrap_or(0)) | kind << 16))
}

/// The most members of a group.
const MOST_RINGS: usize = 256;

/// Is the first one of a group, or joins it, in which a program says whose each packet is. Which group that is.
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

/// Packets that the kernel dropped since it was asked last, since no block was free.
fn drops(socket: &OwnedFd) -> u32 {
    let mut numbers = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
    let mut length = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: writes at most as many bytes as there are. Where it fails they stay 0.
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

    /// Whole blocks: those that are handed over and were not read, of those that nobody holds.
    fn queue_in_use(&mut self) -> QueueInUse {
        let usable = self.usable_blocks();
        // They are handed over in their order, so that the first one that is not is found by halves.
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
