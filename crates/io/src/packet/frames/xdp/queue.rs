//! Receiving frames from a queue of a card, and sending frames to it.
#![allow(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ropewalk_memory::{Loan, Owner, Payload, Pool, Slice};
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::internet::EthernetFrame;
use rustix::event::epoll;

use super::rings::{Ring, ask};
use super::{InFlight, Listener, Umem};
use crate::packet::frames::open::Opened;
use crate::packet::frames::sender::Transmit;
use crate::packet::probe::Around;
use crate::packet::{MemoryInUse, Packet, QueueInUse, ReceiveCounters, Receiver, append};

/// Receives flows from one queue of a card.
pub struct XdpReceiver {
    umem: Arc<Umem>,
    receive: Ring<libc::xdp_desc>,
    fill: Ring<u64>,
    pool: Pool,
    /// By frame, whether the kernel has it; and how many those are.
    posted: Vec<bool>,
    with_kernel: usize,
    /// What the program left to the kernel, and how often it was not looked at.
    listeners: Vec<Listener>,
    looks: u32,
    /// The parts of a packet of which more are to come.
    parts: Payload,
    /// It cannot be had whole: one of its parts is wrong.
    is_broken: bool,
    /// Room for the largest frame that comes in several.
    whole: Box<[u8]>,
    /// Watches both sockets.
    watch: OwnedFd,
    counters: ReceiveCounters,
    around: Around,
}

impl XdpReceiver {
    pub(super) fn new(
        umem: Arc<Umem>,
        receive: Ring<libc::xdp_desc>,
        fill: Ring<u64>,
        pool: Pool,
        listeners: Vec<Listener>,
    ) -> io::Result<Self> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let sockets = listeners.iter().filter_map(|listener| listener.receiver.wait_descriptor());
        let sockets = sockets.chain([umem.socket()]);
        for socket in sockets {
            epoll::add(&watch, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        let around = Around::new(Some(umem.card.card.name.clone()));
        let (posted, counters) = (vec![false; pool.blocks()], ReceiveCounters::default());
        let (parts, is_broken) = (Payload::default(), false);
        let whole = vec![0; umem.card.config.largest + MOST_HEADERS].into();
        let mut receiver = Self {
            umem,
            receive,
            fill,
            pool,
            posted,
            with_kernel: 0,
            listeners,
            looks: 0,
            parts,
            is_broken,
            whole,
            watch,
            counters,
            around,
        };
        receiver.refill();
        Ok(receiver)
    }

    fn frame_size(&self) -> usize {
        self.pool.block_size()
    }

    /// Gives the kernel frames that are at home, those first that came home last, until it has as many as it is to have.
    fn refill(&mut self) {
        let wanted = self.umem.card.config.posted_frames.saturating_sub(self.with_kernel).min(FILL_BATCH);
        let (mut given, frame_size) = (0, self.frame_size());
        while given < wanted
            && self.fill.room(1) > 0
            && let Some(frame) = self.pool.give_out()
        {
            self.posted[frame as usize] = true;
            self.fill.put(u64::from(frame) * frame_size as u64);
            given += 1;
        }
        if given > 0 {
            self.with_kernel += given;
            self.fill.publish();
        } else if self.with_kernel == 0 {
            self.counters.dry += 1;
        }
        if self.fill.needs_wakeup() {
            let mut nothing = [0_u8; 0];
            // SAFETY: asks the kernel to look at the fill ring; nothing is written here.
            unsafe {
                libc::recvfrom(
                    self.umem.socket().as_raw_fd(),
                    nothing.as_mut_ptr().cast(),
                    0,
                    libc::MSG_DONTWAIT,
                    core::ptr::null_mut(),
                    core::ptr::null_mut(),
                );
            }
        }
    }

    /// What the kernel has written into a frame; none where it says what cannot be.
    #[inline]
    fn written(&mut self, entry: &libc::xdp_desc) -> Option<Slice> {
        let size = self.frame_size();
        let address = usize::try_from(entry.addr).ok()?;
        let (frame, begin) = (address / size, address % size);
        if !core::mem::take(self.posted.get_mut(frame)?) {
            return None;
        }
        self.with_kernel -= 1;
        if begin + entry.len as usize > size {
            // SAFETY: the kernel has given the frame back, whatever it says of it.
            drop(unsafe { self.pool.take_back(frame as u32) });
            return None;
        }
        // SAFETY: given out, and the kernel has written these bytes and given the frame back.
        Some(unsafe { self.pool.filled(frame as u32, begin as u32, entry.len) })
    }

    /// Takes a frame, and hands its packet on when it is whole.
    #[inline]
    fn take(&mut self, entry: &libc::xdp_desc, packets: &mut Vec<Packet>) {
        let has_more = entry.options & libc::XDP_PKT_CONTD != 0;
        match self.written(entry) {
            // Most packets lie in one frame, and are handed on without a detour.
            Some(mut slice) if !has_more && self.parts.is_empty() && !self.is_broken => match self.open(&slice) {
                Ok(None) => {}
                Ok(Some(Opened { from, to, payload })) => {
                    slice.skip(payload.start);
                    slice.truncate(payload.len());
                    self.count(payload.len());
                    append(packets, Packet { from: from.into(), to, payload: slice.into(), came: None });
                }
                Err(cause) => self.counters.lost.add(cause, 1),
            },
            part => self.take_part(part, has_more, packets),
        }
    }

    /// Takes one of the frames that a packet lies in.
    fn take_part(&mut self, part: Option<Slice>, has_more: bool, packets: &mut Vec<Packet>) {
        match part {
            Some(slice) => self.parts.push(slice),
            None => self.is_broken = true,
        }
        if has_more {
            return;
        }
        let (mut frame, is_broken) = (core::mem::take(&mut self.parts), core::mem::take(&mut self.is_broken));
        if is_broken {
            self.counters.lost.add(Cause::Malformed, 1);
            return;
        }
        // It is put together to be looked at, and handed on as it lies.
        let mut whole = core::mem::take(&mut self.whole);
        let opened = match whole.get_mut(..frame.len()) {
            Some(bytes) => {
                frame.copy_to(0, bytes);
                self.open(bytes)
            }
            None => Err(Cause::Truncated),
        };
        self.whole = whole;
        match opened {
            Ok(None) => {}
            Ok(Some(Opened { from, to, payload })) => {
                frame.skip(payload.start);
                frame.truncate(payload.len());
                self.count(payload.len());
                append(packets, Packet { from: from.into(), to, payload: frame, came: None });
            }
            Err(cause) => self.counters.lost.add(cause, 1),
        }
    }

    /// Where in a frame the packet lies that it carries, if that is wanted.
    #[inline]
    fn open(&self, frame: &[u8]) -> Result<Option<Opened>, Cause> {
        let (wanted, checksums) = (&self.umem.card.wanted, self.umem.card.config.checksums);
        let ethernet = EthernetFrame::parse(frame).map_err(|error| error.cause())?;
        let before = ethernet.header.byte_count();
        let opened = wanted.open(ethernet.payload, checksums)?;
        Ok(opened.map(|Opened { from, to, payload }| Opened {
            from,
            to,
            payload: before + payload.start..before + payload.end,
        }))
    }

    const fn count(&mut self, bytes: usize) {
        self.counters.packets += 1;
        self.counters.bytes += bytes as u64;
    }

    /// The kernel's counts of this socket.
    fn statistics(&self) -> libc::xdp_statistics {
        let mut numbers = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        // Where it fails they stay 0.
        let _ = ask(self.umem.socket(), libc::XDP_STATISTICS, &mut numbers);
        numbers
    }
}

/// The longest headers: of Ethernet with a tag, of IPv4 with options, and of UDP.
const MOST_HEADERS: usize = 18 + 60 + 8;

/// How often frames are taken before fragments are looked at, which costs a system call, while there are frames.
const LOOKS: u32 = 16;

/// Frames that are given at a time.
const FILL_BATCH: usize = 512;

impl Receiver for XdpReceiver {
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize {
        let before = packets.len();
        self.refill();
        let batch = self.umem.card.config.batch;
        let mut taken = 0;
        packets.reserve(batch);
        while packets.len() - before < batch && self.receive.available() > 0 {
            let entry = self.receive.take();
            self.take(&entry, packets);
            taken += 1;
        }
        if taken > 0 {
            self.receive.release();
            self.counters.calls += 1;
        }
        self.looks += 1;
        if taken == 0 || self.looks >= LOOKS {
            self.looks = 0;
            for Listener { receiver, to, .. } in &mut self.listeners {
                let first = packets.len();
                receiver.receive(now, packets);
                packets[first..].iter_mut().for_each(|packet| packet.to = *to);
            }
        }
        packets.len() - before
    }

    fn address(&self) -> SocketAddr {
        self.umem.card.inputs()[0].address.into()
    }

    fn prepare_wait(&mut self) -> bool {
        self.receive.available() == 0
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    fn counters(&mut self) -> ReceiveCounters {
        let (numbers, mut counters) = (self.statistics(), self.counters);
        counters.lost.add(Cause::NoFrame, numbers.rx_dropped);
        counters.lost.add(Cause::RingFull, numbers.rx_ring_full);
        for listener in &mut self.listeners {
            let theirs = listener.receiver.counters();
            counters.packets += theirs.packets;
            counters.bytes += theirs.bytes;
            counters.calls += theirs.calls;
            counters.lost.merge(&theirs.lost);
        }
        counters.around = self.around.read();
        counters
    }

    fn memory_in_use(&mut self) -> MemoryInUse {
        self.pool.collect();
        let out = self.pool.blocks() - self.pool.available(Owner::SHARED);
        MemoryInUse { held: out - self.with_kernel, all: self.pool.blocks() }
    }

    /// Frames that are filled, of those that the kernel has; or of the sockets beside them, where one has less room.
    fn queue_in_use(&mut self) -> QueueInUse {
        let (frame, largest) = (self.frame_size() as u64, self.umem.card.config.largest);
        let filled = u64::from(self.receive.all_available());
        let packet = frame * ((largest + MOST_HEADERS) as u64).div_ceil(frame);
        let own = QueueInUse { used: filled * frame, room: self.with_kernel as u64 * frame, packet };
        let theirs = self.listeners.iter_mut().map(|listener| listener.receiver.queue_in_use());
        theirs.chain([own]).min_by_key(|queue| queue.packets_left()).unwrap_or(own)
    }
}

impl Drop for XdpReceiver {
    fn drop(&mut self) {
        let posted = (0..).zip(&self.posted).filter(|(_, is_posted)| **is_posted);
        // SAFETY: given out, and posted at once: the kernel may still write there.
        let posted = posted.map(|(frame, _)| unsafe { self.pool.take_back(frame) }.post());
        self.umem.keep(posted, core::iter::empty());
    }
}

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
