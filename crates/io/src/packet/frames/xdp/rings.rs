//! The four rings that an AF_XDP socket maps (Documentation/networking/af_xdp.rst): one side writes entries and moves the
//! producer on, the other one reads them and moves the consumer on.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// One ring, from our side of it.
pub(super) struct Ring<T> {
    base: NonNull<c_void>,
    bytes: usize,
    producer: NonNull<u32>,
    consumer: NonNull<u32>,
    flags: NonNull<u32>,
    entries: NonNull<T>,
    size: u32,
    /// Our own counter, and the other side's as it was seen last.
    own: u32,
    other: u32,
}

// SAFETY: memory that this process and the kernel share, of which this is the only user here.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps a ring of `size` entries, a power of two.
    ///
    /// # Safety
    /// `socket` must have such a ring of `T` at `place`, laid out as `offsets` says.
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
        // SAFETY: within the mapping, aligned, and accessed as an atomic alone, here and in the kernel.
        unsafe { AtomicU32::from_ptr(number.as_ptr()) }
    }

    const fn entry(&self, number: u32) -> NonNull<T> {
        // SAFETY: within the ring, whose size is a power of two.
        unsafe { self.entries.add((number & (self.size - 1)) as usize) }
    }

    /// As the producer: how many entries can be put.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let room = |ring: &Self| ring.size - ring.own.wrapping_sub(ring.other);
        if room(self) < wanted {
            // Acquire: the kernel has read what is overwritten next.
            self.other = self.shared(self.consumer).load(Ordering::Acquire);
        }
        room(self)
    }

    /// As the producer: puts an entry, for which there must be room. It is seen with the next [`publish`](Self::publish).
    pub(super) fn put(&mut self, entry: T) {
        debug_assert!(self.own.wrapping_sub(self.other) < self.size, "there was room");
        // SAFETY: within the ring; the kernel does not read it before it was published.
        unsafe { self.entry(self.own).write(entry) };
        self.own = self.own.wrapping_add(1);
    }

    /// As the producer: shows the kernel what was put.
    pub(super) fn publish(&self) {
        // Release: the entries are written before.
        self.shared(self.producer).store(self.own, Ordering::Release);
    }

    /// As the producer: entries that the kernel has not taken.
    pub(super) fn untaken(&self) -> u32 {
        self.own.wrapping_sub(self.shared(self.consumer).load(Ordering::Relaxed))
    }

    /// As the consumer: how many entries there are.
    pub(super) fn available(&mut self) -> u32 {
        if self.other == self.own {
            // Acquire: what the kernel wrote before is seen.
            self.other = self.shared(self.producer).load(Ordering::Acquire);
        }
        self.other.wrapping_sub(self.own)
    }

    /// The same, all of those that are there by now.
    pub(super) fn all_available(&mut self) -> u32 {
        // Acquire: what the kernel wrote before is seen.
        self.other = self.shared(self.producer).load(Ordering::Acquire);
        self.other.wrapping_sub(self.own)
    }

    /// As the consumer: takes the next entry, which must be there. Its place is free with the next
    /// [`release`](Self::release).
    pub(super) fn take(&mut self) -> T {
        debug_assert!(self.other != self.own, "there is one");
        // SAFETY: within the ring, written by the kernel, which leaves it alone until it was released.
        let entry = unsafe { self.entry(self.own).read() };
        self.own = self.own.wrapping_add(1);
        entry
    }

    /// As the consumer: gives the kernel the places of what was taken.
    pub(super) fn release(&self) {
        // Release: the entries are read before.
        self.shared(self.consumer).store(self.own, Ordering::Release);
    }

    /// Whether the kernel sleeps and must be told.
    pub(super) fn needs_wakeup(&self) -> bool {
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

/// Where the rings of a socket have their parts.
pub(super) fn offsets(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    let nothing = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    let mut offsets = libc::xdp_mmap_offsets { rx: nothing, tx: nothing, fr: nothing, cr: nothing };
    ask(socket, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    Ok(offsets)
}

/// Asks an AF_XDP socket for numbers; those that it does not know stay as they are.
pub(super) fn ask<T: Copy>(socket: BorrowedFd<'_>, name: i32, numbers: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let numbers = core::ptr::from_mut(numbers).cast();
    // SAFETY: writes numbers, at most as many bytes as there are.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, name, numbers, &raw mut length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
