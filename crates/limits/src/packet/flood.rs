//! A sender whose frames lie ready, headers and all: nothing is left to do but to have the kernel take them.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use std::os::fd::AsFd;

use super::card_number;
use super::xdp::XdpSocket;

/// Bytes of room for a frame: what an AF_XDP socket can have at most.
const FRAME: usize = 4096;

/// Frames that lie ready, each with its number.
pub struct Flood {
    socket: XdpSocket,
    lengths: Vec<u16>,
    /// Queued, and taken by the kernel.
    queued: u64,
    sent: u64,
}

impl Flood {
    /// Lays these frames ready at a card.
    ///
    /// # Errors
    /// What the kernel says, mostly that the right is missing; `InvalidInput` for frames that are too long.
    pub fn open(card: &str, frames: &[Vec<u8>]) -> io::Result<Self> {
        if frames.is_empty() || frames.iter().any(|frame| frame.len() > FRAME) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let any = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        let mut socket = XdpSocket::open(card_number(card, any.as_fd())?, frames.len().next_multiple_of(64), FRAME)?;
        for (index, frame) in frames.iter().enumerate() {
            socket.frame(index * FRAME, frame.len()).copy_from_slice(frame);
        }
        let lengths = frames.iter().map(|frame| frame.len() as u16).collect();
        Ok(Self { socket, lengths, queued: 0, sent: 0 })
    }

    /// The bytes of a frame, to be changed between [`flush`](Self::flush) and [`put`](Self::put).
    pub fn frame(&mut self, index: usize) -> &mut [u8] {
        let bytes = usize::from(self.lengths[index]);
        self.socket.frame(index * FRAME, bytes)
    }

    /// Queues a frame; false if the queue is full.
    pub fn put(&mut self, index: usize) -> bool {
        let is_queued = self.socket.put(index * FRAME, usize::from(self.lengths[index]));
        self.queued += u64::from(is_queued);
        is_queued
    }

    /// Has the kernel take what is queued.
    ///
    /// # Errors
    /// What it says.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.queued > self.sent {
            self.socket.send(false)?;
            self.sent = self.queued;
        }
        Ok(())
    }

    /// Frames that the kernel has taken.
    pub const fn sent(&self) -> u64 {
        self.sent
    }
}
