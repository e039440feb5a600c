//! Memory shared by two processes: one writes it, the other one reads it and trusts nothing that it reads.
#![allow(unsafe_code)]

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A huge page, reserved or transparent.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Who may write to a region besides its creator.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Writable {
    /// Only the creator: others can only map it for reading.
    ByMakerAlone,
    /// Every process that has its descriptor.
    ByOthers,
}

/// A mapping of shared memory. Pages are allocated on first access.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and is unmapped once, when this is dropped.
unsafe impl Send for Region {}

impl Region {
    /// Creates memory filled with zeros that cannot be resized; returns its descriptor for another process too.
    pub(crate) fn new(name: &str, bytes: usize, writable: Writable) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        let region = Self::map(&file, bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        let resizing = SealFlags::SHRINK | SealFlags::GROW;
        let writing = match writable {
            Writable::ByMakerAlone => SealFlags::FUTURE_WRITE,
            Writable::ByOthers => SealFlags::empty(),
        };
        fcntl_add_seals(&file, resizing | writing | SealFlags::SEAL)?;
        Ok((region, file))
    }

    /// Maps memory of another process for reading, or for writing as well.
    pub(crate) fn open(file: impl AsFd, bytes: usize, is_written: bool) -> io::Result<Self> {
        if fstat(&file)?.st_size as u64 != bytes as u64 {
            return Err(io::Error::other("the memory has another length than was said"));
        }
        Self::map(file, bytes, if is_written { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ })
    }

    /// Reserves readable addresses for several memories, filled with zeros until [`Region::place_at`] maps one there.
    /// They begin at a multiple of the huge page size.
    pub(crate) fn reserve(bytes: usize) -> io::Result<Self> {
        let room = bytes.checked_add(HUGE_PAGE).ok_or_else(|| io::Error::other("there are not that many addresses"))?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let whole = unsafe { mmap_anonymous(core::ptr::null_mut(), room, ProtFlags::READ, flags) }?.cast::<u8>();
        let before = whole.align_offset(HUGE_PAGE);
        let start = whole.wrapping_add(before);
        for (margin, length) in [(whole, before), (start.wrapping_add(bytes), room - before - bytes)] {
            if length > 0 {
                // SAFETY: the margins of the mapping made above, which are not used.
                unsafe { munmap(margin.cast(), length) }?;
            }
        }
        let start = NonNull::new(start).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { start, bytes })
    }

    /// Maps a file, which cannot become shorter, for reading at these addresses of a reservation.
    pub(crate) fn place_at(&mut self, at: usize, file: impl AsFd, bytes: usize) -> io::Result<()> {
        if !fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) || fstat(&file)?.st_size as u64 != bytes as u64 {
            return Err(io::Error::other("the memory has another length than was said, or may become shorter"));
        }
        let place = self.place(at, bytes).as_ptr().cast();
        // SAFETY: the addresses are reserved for this (`place`); `self` is borrowed mutably, so nothing refers to them.
        unsafe { mmap(place, bytes, ProtFlags::READ, MapFlags::SHARED | MapFlags::FIXED, file, 0) }?;
        Ok(())
    }

    fn map(file: impl AsFd, bytes: usize, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice; the seals forbid to truncate the file.
        let start = unsafe { mmap(core::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { start, bytes })
    }

    /// Its addresses in this process.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let start = self.start.addr().get();
        start..start + self.bytes
    }

    /// Address of the `length` bytes from `at` on.
    fn place(&self, at: usize, length: usize) -> NonNull<u8> {
        let end = at.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.bytes), "{length} bytes at {at} of {}", self.bytes);
        // SAFETY: `at` was checked to lie in the mapping, right above.
        unsafe { self.start.add(at) }
    }

    /// Copies `from` to the bytes from `at` on; they must lie in the region, which must be writable.
    pub(crate) fn write(&mut self, at: usize, from: &[u8]) {
        let place = self.place(at, from.len());
        // SAFETY: the bytes lie in the mapping (`place`), `from` lies elsewhere, and this process does nothing else
        // with them meanwhile, since `self` is borrowed alone. The other process only reads.
        unsafe { place.copy_from_nonoverlapping(NonNull::from(from).cast(), from.len()) }
    }

    /// Returns the bytes from `at` on, for a reader that got them from the other process and gives them back before
    /// they are written again.
    ///
    /// # Safety
    /// The other process must not write to them during the borrow.
    pub(crate) unsafe fn bytes(&self, at: usize, length: usize) -> &[u8] {
        let place = self.place(at, length);
        // SAFETY: the bytes lie in the mapping (`place`), are initialised, and are not written meanwhile (the caller's
        // promise).
        unsafe { core::slice::from_raw_parts(place.as_ptr(), length) }
    }

    /// Returns the values from `at` on for writing; the other process may read them at any time.
    pub(crate) fn values<T: Plain>(&mut self, at: usize, count: usize) -> &mut [T] {
        let place = self.place(at, count * size_of::<T>()).cast::<T>();
        assert!(place.is_aligned(), "values have aligned places");
        // SAFETY: they lie in the mapping (`place`) and are aligned, any bytes are a value of a plain type, and `self`
        // is borrowed alone. The other process only reads them.
        unsafe { core::slice::from_raw_parts_mut(place.as_ptr(), count) }
    }

    /// Reads a value that the other process may be writing: it may be a mixture of two.
    pub(crate) fn look<T: Plain>(&self, at: usize) -> T {
        let place = self.place(at, size_of::<T>()).cast::<T>();
        assert!(place.is_aligned(), "values have aligned places");
        // SAFETY: it lies in the mapping (`place`), is aligned, and any bytes are a value of a plain type. Volatile, so
        // that it is read once, however the other process changes it.
        unsafe { place.as_ptr().read_volatile() }
    }

    /// Copies the bytes from `at` on to the end of `into`; the other process may be writing to them.
    pub(crate) fn copy_to(&self, at: usize, length: usize, into: &mut Vec<u8>) {
        for index in 0..length.div_ceil(size_of::<u64>()) {
            let word: u64 = self.look(at + index * size_of::<u64>());
            let left = (length - index * size_of::<u64>()).min(size_of::<u64>());
            into.extend_from_slice(&word.to_ne_bytes()[..left]);
        }
    }

    /// A number that both processes may read and write.
    pub(crate) fn number(&self, at: usize) -> &AtomicU64 {
        let place = self.place(at, size_of::<u64>()).cast::<u64>();
        assert!(place.is_aligned(), "numbers have aligned places");
        // SAFETY: it lies in the mapping (`place`), is aligned, and is only used as an atomic number.
        unsafe { AtomicU64::from_ptr(place.as_ptr()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, and nothing of it is borrowed any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A type for which any bytes are a valid value.
///
/// # Safety
/// Any bytes must be a valid value.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for u8 {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}
// SAFETY: an integer.
unsafe impl Plain for i64 {}
// SAFETY: a struct of integers, without gaps.
unsafe impl Plain for crate::library::RawPiece {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_another_length_than_was_said_is_refused_and_only_its_maker_writes_to_it() {
        let (mut region, file) = Region::new("test", 8192, Writable::ByMakerAlone).expect("memory");
        region.write(4096, b"what it says");
        assert!(Region::open(&file, 4096, false).is_err() && Region::open(&file, 16384, false).is_err());
        assert!(Region::open(&file, 8192, true).is_err(), "it can only be read");
        assert!(Region::open(&file, 8192, false).is_ok());
        let mut several = Region::reserve(2 * HUGE_PAGE).expect("addresses");
        assert!(several.place_at(HUGE_PAGE, &file, 4096).is_err(), "another length");
        assert!(several.place_at(HUGE_PAGE, &file, 8192).is_ok());
        let mut read = Vec::new();
        several.copy_to(HUGE_PAGE + 4096, 12, &mut read);
        assert_eq!(read, b"what it says");
        assert!(ftruncate(&file, 4096).is_err() && ftruncate(&file, 16384).is_err(), "its length stays");
    }
}
