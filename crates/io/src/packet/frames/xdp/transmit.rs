//! Sending frames to a queue.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use ropewalk_memory::{Loan, Owner, Pool, Slice};

use super::memory::{InFlight, Umem};
use super::rings::Ring;
use crate::packet::frames::sender::Transmit;

/// The transmit ring of one queue of a card.
pub struct XdpTransmit {
    umem: Arc<Umem>,
    transmit: Ring<libc::xdp_desc>,
    completion: Ring<u64>,
    pool: Pool,
    /// Where the frames begin that the kernel knows: those of the receiver are the first ones.
    base: usize,
    frames: usize,
    /// The frame that is filled next, and where in it the packet begins.
    current: Option<(InFlight, usize)>,
    /// By frame: those that are on their way.
    in_flight: Vec<Option<InFlight>>,
    count: usize,
}

impl XdpTransmit {
    pub(super) fn new(umem: Arc<Umem>, transmit: Ring<libc::xdp_desc>, completion: Ring<u64>, pool: Pool) -> Self {
        let (receive, send) = (umem.card.config.receive_frames, umem.card.config.send_frames);
        let base = pool.address().as_ptr().addr() - receive * pool.block_size();
        let in_flight = (0..receive + send).map(|_| None).collect();
        Self { umem, transmit, completion, pool, base, frames: receive + send, current: None, in_flight, count: 0 }
    }

    /// Takes back the frames that have left.
    fn reclaim(&mut self) {
        let mut taken = 0;
        while self.completion.available() > 0 {
            let frame = self.completion.take() as usize / self.pool.block_size();
            let back = self.in_flight.get_mut(frame).and_then(Option::take);
            self.count -= usize::from(back.is_some());
            taken += 1;
        }
        if taken > 0 {
            self.completion.release();
        }
    }

    /// Tells the kernel to look, which sends a few dozen frames at a time.
    fn kick(&self) -> io::Result<()> {
        let mut left = self.transmit.untaken();
        while left > 0 {
            let socket = self.umem.socket().as_raw_fd();
            // SAFETY: sends what stands in the ring: there are no bytes of its own.
            let sent = unsafe { libc::sendto(socket, core::ptr::null(), 0, libc::MSG_DONTWAIT, core::ptr::null(), 0) };
            let now = self.transmit.untaken();
            if sent < 0 {
                let error = io::Error::last_os_error();
                let goes_on = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS));
                if !goes_on {
                    return Err(error);
                }
                if now == left {
                    break;
                }
            }
            left = now;
        }
        Ok(())
    }
}

impl Transmit for XdpTransmit {
    fn room(&self) -> usize {
        self.pool.block_size()
    }

    fn frame(&mut self) -> Option<&mut [u8]> {
        if !matches!(self.current, Some((InFlight::Written(_), _))) {
            if self.pool.available(Owner::SHARED) == 0 {
                self.reclaim();
            }
            self.current = Some((InFlight::Written(self.pool.loan(Owner::SHARED)?), 0));
        }
        match &mut self.current {
            Some((InFlight::Written(loan), _)) => Some(loan.spare()),
            _ => None,
        }
    }

    fn adopt(&mut self, slice: Slice, before: usize) -> Result<&mut [u8], Slice> {
        let size = self.pool.block_size();
        let offset = slice.as_ptr().addr().wrapping_sub(self.base);
        let is_ours = offset < self.frames * size && offset % size >= before;
        if !is_ours || !slice.is_alone() {
            return Err(slice);
        }
        let (start, length) = (slice.as_ptr().cast_mut().wrapping_sub(before), before + slice.len());
        self.current = Some((InFlight::Received(slice), (offset - before) % size));
        // SAFETY: within the frame, which the slice keeps; it is the only one who refers to the frame, and stays here until
        // the frame has left.
        Ok(unsafe { core::slice::from_raw_parts_mut(start, length) })
    }

    fn submit(&mut self, bytes: usize) {
        let Some((frame, begin)) = self.current.take() else { return };
        let size = self.pool.block_size();
        let address = match &frame {
            InFlight::Written(loan) => self.written_address(loan),
            InFlight::Received(slice) => (slice.as_ptr().addr() - self.base) / size * size,
        } + begin;
        let place = address / size;
        assert!(begin + bytes <= size && self.in_flight[place].is_none(), "a frame that is here and has room");
        if self.transmit.room(1) == 0 {
            // Never: there is a place for each frame.
            return;
        }
        self.transmit.put(libc::xdp_desc { addr: address as u64, len: bytes as u32, options: 0 });
        self.in_flight[place] = Some(frame);
        self.count += 1;
    }

    fn flush(&mut self) -> io::Result<()> {
        self.transmit.publish();
        let result = if self.transmit.needs_wakeup() { self.kick() } else { Ok(()) };
        self.reclaim();
        result
    }

    fn in_flight(&self) -> usize {
        self.count
    }

    fn refused(&self) -> u64 {
        0
    }
}

impl XdpTransmit {
    /// Where a frame of our own pool lies, as the kernel counts.
    fn written_address(&self, loan: &Loan) -> usize {
        let first = self.pool.address().as_ptr().addr() - self.base;
        first + loan.block() as usize * self.pool.block_size()
    }
}

impl Drop for XdpTransmit {
    fn drop(&mut self) {
        self.umem.keep(core::iter::empty(), self.in_flight.iter_mut().filter_map(Option::take));
    }
}
