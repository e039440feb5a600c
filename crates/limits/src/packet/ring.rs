//! A mapped ring of blocks that the kernel fills, and one of frames that it sends (`linux/if_packet.h`).
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::mem::{offset_of, zeroed};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::socket::{refuse_others, set};
use super::{ROOM, card_number, deaf, program};

/// Bytes of a receive block, as in `io`'s ring.
const BLOCK: usize = 256 << 10;
/// How long the kernel waits for a block to fill, in ms.
const PATIENCE: u32 = 1;
/// Frames for sending, in blocks of 64 KiB.
const FRAMES: usize = 256;
const FRAME_BLOCK: usize = 64 << 10;

const STATUS: usize = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, block_status);
const COUNT: usize = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, num_pkts);
const FIRST: usize = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt);

/// Memory shared by this process and the kernel.
struct Shared {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: an address, used by the loop that has it.
unsafe impl Send for Shared {}

impl Shared {
    fn map(socket: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED | MapFlags::POPULATE, socket, 0) }?;
        Ok(Self { base: base.cast(), bytes })
    }

    fn at(&self, place: usize) -> *mut u8 {
        debug_assert!(place < self.bytes, "within the mapping");
        self.base.wrapping_add(place)
    }

    fn status(&self, place: usize) -> &AtomicU32 {
        // SAFETY: within the mapping, aligned to 4, and accessed as an atomic alone where the kernel has it too.
        unsafe { AtomicU32::from_ptr(self.at(place).cast()) }
    }

    fn number(&self, place: usize) -> u32 {
        // SAFETY: within the mapping and aligned; numbers, for which any bits are good.
        unsafe { self.at(place).cast::<u32>().read() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped when this was made, and this is the only owner.
        let unmapped = unsafe { munmap(self.base.cast::<c_void>(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "its own addresses can be unmapped");
    }
}

/// Both rings of a card.
pub(super) struct RingLoop {
    blocks: Shared,
    block: usize,
    receiver: OwnedFd,
    frames: Shared,
    frame: usize,
    sender: OwnedFd,
    /// The end of packets that came into the ring.
    _spare: OwnedFd,
    /// Shows the kernel a listener.
    pub(super) listener: (OwnedFd, SocketAddrV4),
}

impl RingLoop {
    pub(super) fn open(address: SocketAddrV4, card: &str, blocks: usize) -> io::Result<Self> {
        let listener = deaf(address, false)?;
        let card = card_number(card, listener.0.as_fd())?;
        let receiver = packet_socket(libc::tpacket_versions::TPACKET_V3)?;
        set(receiver.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)?;
        refuse_others(receiver.as_fd())?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: ROOM as u32,
            tp_frame_nr: (BLOCK / ROOM * blocks) as u32,
            tp_retire_blk_tov: PATIENCE,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(receiver.as_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let blocks = Shared::map(&receiver, BLOCK * blocks)?;
        bind(&receiver, card, libc::ETH_P_ALL as u16)?;
        let spare = program::drop_behind(card)?;
        let sender = packet_socket(libc::tpacket_versions::TPACKET_V2)?;
        set(sender.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1)?;
        let request = libc::tpacket_req {
            tp_block_size: FRAME_BLOCK as u32,
            tp_block_nr: (FRAMES * ROOM / FRAME_BLOCK) as u32,
            tp_frame_size: ROOM as u32,
            tp_frame_nr: FRAMES as u32,
        };
        set(sender.as_fd(), libc::SOL_PACKET, libc::PACKET_TX_RING, &request)?;
        let frames = Shared::map(&sender, FRAMES * ROOM)?;
        bind(&sender, card, 0)?;
        Ok(Self { blocks, block: 0, receiver, frames, frame: 0, sender, _spare: spare, listener })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }

    pub(super) fn receive(&mut self) -> u64 {
        self.take_block(|_, _, _| {})
    }

    pub(super) fn echo(&mut self) -> u64 {
        let count = self.take_block(Self::send_back);
        if count > 0 {
            self.kick();
        }
        count
    }

    /// Takes a block, if one is full, and walks its packets: each is described, and so must be read.
    fn take_block(&mut self, mut each: impl FnMut(&mut Self, usize, usize)) -> u64 {
        let start = self.block * BLOCK;
        // Acquire: makes visible what the kernel wrote before.
        if self.blocks.status(start + STATUS).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return 0;
        }
        let count = self.blocks.number(start + COUNT);
        let mut place = start + self.blocks.number(start + FIRST) as usize;
        for _ in 0..count {
            // SAFETY: where the kernel says that a packet is described; numbers, for which any bits are good.
            let header = unsafe { self.blocks.at(place).cast::<libc::tpacket3_hdr>().read() };
            each(self, place + usize::from(header.tp_mac), header.tp_snaplen as usize);
            place += header.tp_next_offset as usize;
        }
        // Release: orders our reads before the kernel's next writes.
        self.blocks.status(start + STATUS).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.block = (self.block + 1) % (self.blocks.bytes / BLOCK);
        u64::from(count)
    }

    /// Copies a packet to the next frame, with sender and receiver exchanged; drops it if no frame is free.
    fn send_back(&mut self, place: usize, bytes: usize) {
        const DATA: usize = size_of::<libc::tpacket2_hdr>();
        let start = self.frame * ROOM;
        let status = start + offset_of!(libc::tpacket2_hdr, tp_status);
        if bytes > ROOM - DATA {
            return;
        }
        // Acquire: the kernel has read the frame before it returns it.
        if self.frames.status(status).load(Ordering::Acquire) != libc::TP_STATUS_AVAILABLE {
            self.kick();
            if self.frames.status(status).load(Ordering::Acquire) != libc::TP_STATUS_AVAILABLE {
                return;
            }
        }
        // SAFETY: a packet of the block that is ours, and a frame that is; they lie apart.
        let frame = unsafe {
            std::ptr::copy_nonoverlapping(self.blocks.at(place), self.frames.at(start + DATA), bytes);
            self.frames.at(start + offset_of!(libc::tpacket2_hdr, tp_len)).cast::<u32>().write(bytes as u32);
            std::slice::from_raw_parts_mut(self.frames.at(start + DATA), bytes)
        };
        exchange(frame);
        // Release: the frame is written before.
        self.frames.status(status).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.frame = (self.frame + 1) % FRAMES;
    }

    fn kick(&self) {
        // SAFETY: sends the frames of the ring; the call has no bytes of its own.
        unsafe { libc::send(self.sender.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT) };
    }
}

/// Exchanges sender and receiver of a frame with UDP in IPv4, which changes no checksum.
pub(super) fn exchange(frame: &mut [u8]) {
    let mut swap = |first: usize, second: usize, bytes: usize| {
        if let Some(both) = frame.get_mut(first..second + bytes) {
            let (left, right) = both.split_at_mut(second - first);
            left[..bytes].swap_with_slice(&mut right[..bytes]);
        }
    };
    swap(0, 6, 6);
    swap(26, 30, 4);
    swap(34, 36, 2);
}

fn packet_socket(version: libc::tpacket_versions) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    set(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VERSION, &(version as i32))?;
    Ok(socket)
}

/// Binds a packet socket to a card, to receive packets of this kind, or none.
fn bind(socket: &OwnedFd, card: u32, kind: u16) -> io::Result<()> {
    // SAFETY: numbers, for which zeros are good.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = kind.to_be();
    address.sll_ifindex = card as i32;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: reads an address of this length.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
