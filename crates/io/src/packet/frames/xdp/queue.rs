//! Receives frames from a queue of a card, and sends frames to it, by the four rings that an AF_XDP socket maps
//! (Documentation/networking/af_xdp.rst): one side writes entries and advances the producer, the other side reads them
//! and advances the consumer.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ropewalk_memory::{Loan, Owner, Payload, Pool, Slice};
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::internet::behind_ethernet;
use rustix::event::epoll;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

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
    /// Whether the kernel has each frame, indexed by frame; and the number of such frames.
    posted: Vec<bool>,
    with_kernel: usize,
    /// Sockets for the packets that the program left to the kernel, and the number of rounds since they were read.
    listeners: Vec<Listener>,
    looks: u32,
    /// The parts of an incomplete packet.
    parts: Payload,
    /// Whether one of its parts is invalid, so that the packet is lost.
    is_broken: bool,
    /// Room for the largest packet that arrives in several frames.
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

    /// Gives the kernel free frames, the last returned ones first, until it has its full number.
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
            // SAFETY: asks the kernel to check the fill ring; nothing is written here.
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

    /// Returns the bytes that the kernel has written into a frame; `None` if its description is invalid.
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
            // SAFETY: the kernel has given the frame back, even if its description is wrong.
            drop(unsafe { self.pool.take_back(frame as u32) });
            return None;
        }
        // SAFETY: given out; the kernel has written these bytes and given the frame back.
        Some(unsafe { self.pool.filled(frame as u32, begin as u32, entry.len) })
    }

    /// Takes a frame, and delivers its packet when it is complete.
    #[inline]
    fn take(&mut self, entry: &libc::xdp_desc, packets: &mut Vec<Packet>) {
        let has_more = entry.options & libc::XDP_PKT_CONTD != 0;
        match self.written(entry) {
            // Most packets lie in one frame, and are delivered directly.
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

    /// Takes one of the frames of a packet.
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
        // It is copied into one piece for the checks, and delivered from its frames.
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

    /// Finds the range of the packet in a frame, if the packet is wanted.
    #[inline]
    fn open(&self, frame: &[u8]) -> Result<Option<Opened>, Cause> {
        let (wanted, checksums) = (&self.umem.card.wanted, self.umem.card.config.checksums);
        let packet = behind_ethernet(frame).map_err(|error| error.cause())?;
        let before = frame.len() - packet.len();
        let opened = wanted.open(packet, checksums)?;
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
        // If it fails they stay 0.
        let _ = ask(self.umem.socket(), libc::XDP_STATISTICS, &mut numbers);
        numbers
    }
}

/// Bytes of the longest headers: of Ethernet with a tag, of IPv4 with options, and of UDP.
const MOST_HEADERS: usize = 18 + 60 + 8;

/// Number of rounds that take frames before fragments are checked, which costs a system call.
const LOOKS: u32 = 16;

/// Maximum number of frames given to the kernel at a time.
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

    /// Filled frames, out of the kernel's frames; or the queue of a listening socket if that has less room.
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
    /// Index of the first frame in the memory known to the kernel: the receiver's frames come first.
    base: usize,
    frames: usize,
    /// The frame that is filled next, and the offset of the packet in it.
    current: Option<(InFlight, usize)>,
    /// The packets in flight, indexed by frame.
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

    /// Makes the kernel check the ring, which sends a few dozen frames at a time.
    fn kick(&self) -> io::Result<()> {
        let mut left = self.transmit.untaken();
        while left > 0 {
            let socket = self.umem.socket().as_raw_fd();
            // SAFETY: sends the frames in the ring; no bytes are passed in the call.
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
        // SAFETY: within the frame, which the slice keeps; the slice has the only reference to the frame, and stays
        // here until the frame has left.
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
            // Cannot happen: there is a place for each frame.
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
    /// Address of a frame of our own pool, in the kernel's numbering.
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

/// One ring, from our side.
pub(super) struct Ring<T> {
    base: NonNull<c_void>,
    bytes: usize,
    producer: NonNull<u32>,
    consumer: NonNull<u32>,
    flags: NonNull<u32>,
    entries: NonNull<T>,
    size: u32,
    /// Our own counter, and the other side's as last seen.
    own: u32,
    other: u32,
}

// SAFETY: memory shared by this process and the kernel, of which this is the only user here.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps a ring of `size` entries, a power of two.
    ///
    /// # Safety
    /// `socket` must have such a ring of `T` at `place`, with the layout in `offsets`.
    pub(super) unsafe fn map(
        socket: BorrowedFd<'_>,
        place: u64,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        let bytes = offsets.desc as usize + size as usize * size_of::<T>();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap(null_mut(), bytes, protection, flags, socket, place) }?;
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the kernel's own offsets into what it has mapped.
        let at = |offset: u64| unsafe { base.cast::<u8>().add(offset as usize) };
        Ok(Self {
            base,
            bytes,
            producer: at(offsets.producer).cast(),
            consumer: at(offsets.consumer).cast(),
            flags: at(offsets.flags).cast(),
            entries: at(offsets.desc).cast(),
            size,
            own: 0,
            other: 0,
        })
    }

    const fn shared(&self, number: NonNull<u32>) -> &AtomicU32 {
        // SAFETY: within the mapping, aligned, and only accessed as an atomic, here and in the kernel.
        unsafe { AtomicU32::from_ptr(number.as_ptr()) }
    }

    const fn entry(&self, number: u32) -> NonNull<T> {
        // SAFETY: within the ring, whose size is a power of two.
        unsafe { self.entries.add((number & (self.size - 1)) as usize) }
    }

    /// Producer: returns how many entries can be put.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let room = |ring: &Self| ring.size - ring.own.wrapping_sub(ring.other);
        if room(self) < wanted {
            // Acquire: the kernel has read the entries that are overwritten next.
            self.other = self.shared(self.consumer).load(Ordering::Acquire);
        }
        room(self)
    }

    /// Producer: puts an entry, for which there must be room. The kernel sees it after the next
    /// [`publish`](Self::publish).
    pub(super) fn put(&mut self, entry: T) {
        debug_assert!(self.own.wrapping_sub(self.other) < self.size, "there was room");
        // SAFETY: within the ring; the kernel does not read it before it is published.
        unsafe { self.entry(self.own).write(entry) };
        self.own = self.own.wrapping_add(1);
    }

    /// Producer: publishes the entries to the kernel.
    pub(super) fn publish(&self) {
        // Release: the entries are written before this store.
        self.shared(self.producer).store(self.own, Ordering::Release);
    }

    /// Producer: number of entries that the kernel has not taken.
    fn untaken(&self) -> u32 {
        self.own.wrapping_sub(self.shared(self.consumer).load(Ordering::Relaxed))
    }

    /// Consumer: number of entries that are available.
    pub(super) fn available(&mut self) -> u32 {
        if self.other == self.own {
            // Acquire: the kernel's earlier writes are visible.
            self.other = self.shared(self.producer).load(Ordering::Acquire);
        }
        self.other.wrapping_sub(self.own)
    }

    /// Consumer: number of entries that are available by now, read from the kernel each time.
    fn all_available(&mut self) -> u32 {
        // Acquire: the kernel's earlier writes are visible.
        self.other = self.shared(self.producer).load(Ordering::Acquire);
        self.other.wrapping_sub(self.own)
    }

    /// Consumer: takes the next entry, which must be available. Its place is free after the next
    /// [`release`](Self::release).
    pub(super) fn take(&mut self) -> T {
        debug_assert!(self.other != self.own, "there is one");
        // SAFETY: within the ring, written by the kernel, which does not access it again until it is released.
        let entry = unsafe { self.entry(self.own).read() };
        self.own = self.own.wrapping_add(1);
        entry
    }

    /// Consumer: gives the places of taken entries to the kernel.
    pub(super) fn release(&self) {
        // Release: the entries are read before this store.
        self.shared(self.consumer).store(self.own, Ordering::Release);
    }

    /// Whether the kernel sleeps and needs a wake-up.
    fn needs_wakeup(&self) -> bool {
        self.shared(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: mapped when this was made, and this is the only owner.
        let unmapped = unsafe { munmap(self.base.as_ptr(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a ring's own addresses can be unmapped");
    }
}

/// Offsets of the parts of a socket's rings.
pub(super) fn offsets(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    let nothing = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    let mut offsets = libc::xdp_mmap_offsets { rx: nothing, tx: nothing, fr: nothing, cr: nothing };
    ask(socket, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    Ok(offsets)
}

/// Reads numbers from an AF_XDP socket; unknown ones keep their values.
pub(super) fn ask<T: Copy>(socket: BorrowedFd<'_>, name: i32, numbers: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let numbers = core::ptr::from_mut(numbers).cast();
    // SAFETY: writes numbers, at most as many bytes as there are.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, name, numbers, &raw mut length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
