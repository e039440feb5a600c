//! Sending from a mapped ring of frames (PACKET_TX_RING): paper 1's zero-copy socket (section III-D).
#![allow(unsafe_code)]

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use ropewalk_memory::Frames;
use rustix::net::SocketType;

use crate::packet::PacketError;
use crate::packet::frames::card::Card;
use crate::packet::frames::sender::{FrameConfig, Transmit};
use crate::packet::frames::socket::{Seen, bind, packet_socket, set};

/// Where a frame's bytes begin, behind its description.
const DATA: usize = size_of::<libc::tpacket2_hdr>();
/// Where its description has its status and length.
const STATUS: usize = offset_of!(libc::tpacket2_hdr, tp_status);
const LENGTH: usize = offset_of!(libc::tpacket2_hdr, tp_len);

/// Bytes of a block of the ring; the frames lie behind each other.
const BLOCK: usize = 64 << 10;

/// A mapped ring of frames.
pub struct TransmitRing {
    socket: OwnedFd,
    frames: Frames,
    /// The frame that is filled next, and the first of those that are on their way.
    next: u32,
    first: u32,
    in_flight: usize,
    room: usize,
    refused: u64,
}

impl TransmitRing {
    fn status(&self, frame: u32) -> &AtomicU32 {
        // SAFETY: within the frame, aligned to 4, and accessed as an atomic alone while the kernel may have it.
        unsafe { AtomicU32::from_ptr(self.frames.address(frame).as_ptr().add(STATUS).cast()) }
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
        // SAFETY: behind the description, within the frame, which is not on its way: the kernel does not look at it, and
        // nobody else here refers to it. The kernel gave the memory initialised.
        Some(unsafe { core::slice::from_raw_parts_mut(self.frames.address(self.next).as_ptr().add(DATA), self.room) })
    }

    fn submit(&mut self, bytes: usize) {
        assert!(bytes <= self.room && self.in_flight < self.frames.blocks(), "a frame that there was room for");
        // SAFETY: in the description of a frame that the kernel does not look at, aligned to 4.
        unsafe { self.frames.address(self.next).as_ptr().add(LENGTH).cast::<u32>().write(bytes as u32) };
        // Release: the frame's bytes and its length are written before.
        self.status(self.next).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.next = self.after(self.next);
        self.in_flight += 1;
    }

    fn flush(&mut self) -> io::Result<()> {
        // SAFETY: sends what stands in the ring: there are no bytes of its own.
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
