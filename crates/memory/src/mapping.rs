//! Memory from the system: mappings, which are touched once and unmapped with their last user, their binding to NUMA
//! nodes, and memory of the C library.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ops::Range;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MlockFlags, ProtFlags, madvise, mlock_with, mmap, mmap_anonymous, munmap};

use crate::config::{HugePages, Lock, MemoryKind, PageKind, PoolConfig, PoolError, PoolReport};

/// Alignment of blocks, so that direct disk writes can begin there.
const HEAP_ALIGNMENT: usize = 4096;
/// A huge page, reserved or transparent.
const HUGE_PAGE: usize = 2 << 20;

/// Pages to make present at once. All others are zeros too, and become present at their first use.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Touch {
    Everything,
    Sample,
}

/// One piece of memory, all of whose bytes are initialised.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    origin: Origin,
}

/// Rights of other processes on an anonymous file's memory.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Others {
    Read,
    Write,
}

enum Origin {
    Heap(Layout),
    Mapped {
        file: Option<OwnedFd>,
    },
    /// Separate pieces; the mapping itself has no bytes.
    Pieces(Pieces),
}

// SAFETY: the mapping is plain memory, which belongs to no thread; loans and slices decide which bytes a thread
// may touch.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Allocates the memory of a pool and reports its properties. Touches every page, or only as many as are needed to
    /// find out their kind.
    pub(crate) fn new(config: &PoolConfig, touch: Touch, others: Others) -> Result<(Self, PoolReport), PoolError> {
        let (mapping, pages) = match (config.memory, config.huge_pages) {
            (MemoryKind::Heap, _) => (Self::heap(config)?, PageKind::Heap),
            (_, HugePages::Never) => (Self::mapped(config, PageKind::Plain, touch, others)?, PageKind::Plain),
            // Reserved huge pages may be missing altogether, or on the wanted node: then transparent ones are used.
            // They are all touched in any case, because a page that is missing later would end the process.
            (_, HugePages::Auto) => match Self::mapped(config, PageKind::Huge2MiB, Touch::Everything, others) {
                Ok(mapping) => (mapping, PageKind::Huge2MiB),
                Err(_) => (Self::mapped(config, PageKind::Transparent, touch, others)?, PageKind::Transparent),
            },
        };
        let huge_bytes = match pages {
            PageKind::Heap | PageKind::Plain => 0,
            PageKind::Transparent => mapping.transparent_huge_bytes().unwrap_or(0),
            PageKind::Huge2MiB => mapping.bytes,
        };
        let pages = if huge_bytes == 0 && pages == PageKind::Transparent { PageKind::Plain } else { pages };
        let report = PoolReport {
            name: config.name.clone(),
            memory: config.memory,
            pages,
            huge_bytes,
            numa_node: config.numa_node,
            lock: if config.lock { mapping.lock() } else { Lock::NotAsked },
            bytes: mapping.bytes,
        };
        Ok((mapping, report))
    }

    fn heap(config: &PoolConfig) -> Result<Self, PoolError> {
        if config.numa_node.is_some() {
            return Err(PoolError::HeapNotBound { name: config.name.clone() });
        }
        let bytes = config.bytes();
        let refused = || config.no_memory(bytes, "alloc", io::ErrorKind::OutOfMemory.into());
        let layout = Layout::from_size_align(bytes, HEAP_ALIGNMENT).map_err(|_| refused())?;
        // SAFETY: the layout is not empty: a pool has at least one block of at least one byte.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        Ok(Self { base, bytes, origin: Origin::Heap(layout) })
    }

    /// Makes a mapping with pages of one kind, binds it to its node, touches it, and checks its node.
    fn mapped(config: &PoolConfig, pages: PageKind, touch: Touch, others: Others) -> Result<Self, PoolError> {
        let page = match pages {
            PageKind::Heap | PageKind::Plain => rustix::param::page_size(),
            PageKind::Transparent | PageKind::Huge2MiB => HUGE_PAGE,
        };
        let bytes = config.bytes().next_multiple_of(page);
        let refused = |(call, errno): (&'static str, Errno)| config.no_memory(bytes, call, errno.into());
        let mapping = match config.memory {
            MemoryKind::Heap | MemoryKind::Anonymous => Self::anonymous(bytes, pages),
            MemoryKind::Memfd => Self::of_file(&config.name, bytes, pages, others),
        };
        let mapping = mapping.map_err(refused)?;
        mapping.advise(pages);
        if let Some(node) = config.numa_node {
            let name = config.name.clone();
            bind_to_node(mapping.base, bytes, node).map_err(|source| PoolError::NoSuchNode { name, node, source })?;
        }
        let touched = match touch {
            Touch::Everything => bytes,
            Touch::Sample => bytes.min(HUGE_PAGE),
        };
        mapping.touch(touched).map_err(|errno| refused(("touching each page", errno)))?;
        if let Some(node) = config.numa_node {
            let step = if pages == PageKind::Huge2MiB { HUGE_PAGE } else { rustix::param::page_size() };
            mapping.verify_node(config, node, touched, step)?;
        }
        Ok(mapping)
    }

    /// Anonymous memory, aligned to its pages.
    ///
    /// Never with `MAP_FIXED` over own addresses: if that fails (there are too few huge pages), Linux may have freed
    /// those addresses already, and before they are unmapped another thread's memory may lie there.
    fn anonymous(bytes: usize, pages: PageKind) -> Result<Self, (&'static str, Errno)> {
        let (protection, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let base = if pages == PageKind::Huge2MiB {
            let flags = private | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
            // SAFETY: a new mapping at an address that the kernel chooses, a multiple of its pages.
            unsafe { mmap_anonymous(null_mut(), bytes, protection, flags) }.map_err(|errno| ("mmap", errno))?.cast()
        } else {
            Self::aligned(bytes, protection)?
        };
        Self::at(base, bytes, None)
    }

    /// Allocates an anonymous file's memory. Its size is sealed, because a file that shrinks under its mapping kills
    /// its readers. Other processes that get the file can only map it for reading, unless they are to write.
    fn of_file(name: &str, bytes: usize, pages: PageKind, others: Others) -> Result<Self, (&'static str, Errno)> {
        let is_huge = pages == PageKind::Huge2MiB;
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        if is_huge {
            flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        }
        // The name is for people (in /proc): one that the kernel would refuse is replaced.
        let name = if name.len() < 200 && !name.contains('\0') { name } else { "ropewalk" };
        let file = memfd_create(name, flags).map_err(|errno| ("memfd_create", errno))?;
        ftruncate(&file, bytes as u64).map_err(|errno| ("ftruncate", errno))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // The kernel aligns huge pages; others need addresses at which they can become huge ones.
        let (place, flags) = if is_huge {
            (null_mut(), MapFlags::SHARED)
        } else {
            (Self::aligned(bytes, ProtFlags::empty())?, MapFlags::SHARED | MapFlags::FIXED)
        };
        // SAFETY: at an address that the kernel chooses, or over addresses that were reserved for this above and are
        // not in use. If that fails they stay unused: it is then unknown whether they are still ours (see `anonymous`).
        let base =
            unsafe { mmap(place.cast(), bytes, protection, flags, &file, 0) }.map_err(|errno| ("mmap", errno))?;
        let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let seals = if others == Others::Write { size } else { size | SealFlags::FUTURE_WRITE };
        fcntl_add_seals(&file, seals).map_err(|errno| ("fcntl(F_ADD_SEALS)", errno))?;
        Self::at(base.cast(), bytes, Some(file))
    }

    /// Maps a file that another process made with [`Others::Write`].
    pub(crate) fn attach(file: OwnedFd) -> Result<Self, (&'static str, Errno)> {
        // A file that shrinks under its mapping kills its readers: this file must be sealed against it.
        let seals = fcntl_get_seals(&file).map_err(|errno| ("fcntl(F_GET_SEALS)", errno))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(("fcntl(F_GET_SEALS)", Errno::PERM));
        }
        let size = fstat(&file).map_err(|errno| ("fstat", errno))?.st_size;
        let bytes = usize::try_from(size).ok().filter(|&bytes| bytes > 0).ok_or(("fstat", Errno::INVAL))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses, of a file that cannot shrink.
        let base = unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED, &file, 0) };
        Self::at(base.map_err(|errno| ("mmap", errno))?.cast(), bytes, Some(file))
    }

    /// Maps the memory of a descriptor's driver, at offset 0. All of it is initialised: the kernel hands out no other
    /// memory.
    pub(crate) fn of_descriptor(file: BorrowedFd<'_>, bytes: usize) -> Result<Self, (&'static str, Errno)> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED, file, 0) };
        Self::at(base.map_err(|errno| ("mmap", errno))?.cast(), bytes, None)
    }

    /// Makes a mapping without memory: a place for a piece of each block.
    pub(crate) fn of_pieces(blocks: usize) -> Self {
        Self { base: NonNull::dangling(), bytes: 0, origin: Origin::Pieces(Pieces::new(blocks)) }
    }

    fn at(base: *mut u8, bytes: usize, file: Option<OwnedFd>) -> Result<Self, (&'static str, Errno)> {
        let base = NonNull::new(base).ok_or(("mmap", Errno::NOMEM))?;
        Ok(Self { base, bytes, origin: Origin::Mapped { file } })
    }

    /// Maps anonymous memory of plain pages, aligned to a huge page.
    fn aligned(bytes: usize, protection: ProtFlags) -> Result<*mut u8, (&'static str, Errno)> {
        let room = bytes.checked_add(HUGE_PAGE).ok_or(("mmap", Errno::NOMEM))?;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(null_mut(), room, protection, MapFlags::PRIVATE) };
        let start = start.map_err(|errno| ("mmap", errno))?.cast::<u8>();
        let before = start.align_offset(HUGE_PAGE);
        let base = start.wrapping_add(before);
        for (address, length) in [(start, before), (base.wrapping_add(bytes), room - before - bytes)] {
            if length > 0 {
                // SAFETY: the margins of the mapping made above, not in use.
                unsafe { munmap(address.cast(), length) }.map_err(|errno| ("munmap", errno))?;
            }
        }
        Ok(base)
    }

    fn address(&self) -> *mut c_void {
        self.base.as_ptr().cast()
    }

    /// Asks for transparent huge pages, or for none, independent of the system's default.
    fn advise(&self, pages: PageKind) {
        let advice = match pages {
            PageKind::Transparent => Advice::LinuxHugepage,
            PageKind::Plain => Advice::LinuxNoHugepage,
            PageKind::Heap | PageKind::Huge2MiB => return,
        };
        // A kernel without transparent huge pages refuses; the report then says plain, and that is all.
        // SAFETY: of this mapping only the size of its pages changes.
        let _ = unsafe { madvise(self.address(), self.bytes, advice) };
    }

    /// Locks pages in memory: present ones at once, the others at their first use. Unmapping unlocks them.
    fn lock(&self) -> Lock {
        // SAFETY: changes only whether the pages of this mapping may be swapped out.
        match unsafe { mlock_with(self.address(), self.bytes, MlockFlags::ONFAULT) } {
            Ok(()) => Lock::Held,
            Err(_) => Lock::Refused,
        }
    }

    /// Makes the pages of the first `bytes` bytes present. If the kernel supports a request for this, missing memory is
    /// an error here; otherwise the pages are touched, and missing memory ends the process.
    fn touch(&self, bytes: usize) -> Result<(), Errno> {
        // SAFETY: changes only the presence of the pages of this mapping.
        match unsafe { madvise(self.address(), bytes, Advice::LinuxPopulateWrite) } {
            Err(Errno::INVAL) => {}
            result => return result,
        }
        for offset in (0..bytes).step_by(rustix::param::page_size()) {
            // SAFETY: within the mapping, to which no other reference exists yet.
            unsafe { self.base.add(offset).write_volatile(0) };
        }
        Ok(())
    }

    fn verify_node(&self, config: &PoolConfig, node: u16, bytes: usize, step: usize) -> Result<(), PoolError> {
        let name = config.name.clone();
        match pages_elsewhere(self.base, bytes, step, node) {
            Ok(0) => Ok(()),
            Ok(pages) => Err(PoolError::WrongNode { name, node, pages }),
            Err(source) => Err(PoolError::NoSuchNode { name, node, source }),
        }
    }

    /// Number of bytes of the mapping on transparent huge pages.
    fn transparent_huge_bytes(&self) -> io::Result<usize> {
        let areas = std::fs::read_to_string("/proc/self/smaps")?;
        let start = self.base.as_ptr() as usize;
        Ok(huge_bytes_of(&areas, start, start + self.bytes).min(self.bytes))
    }

    /// The first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its bytes: whole pages of its kind.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The addresses of its bytes.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let begin = self.base.addr().get();
        begin..begin + self.bytes
    }

    /// The pieces, if it is made of them.
    pub(crate) const fn pieces(&self) -> Option<&Pieces> {
        if let Origin::Pieces(pieces) = &self.origin { Some(pieces) } else { None }
    }

    /// The file behind the memory, if there is one.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.origin {
            Origin::Heap(_) | Origin::Pieces(_) => None,
            Origin::Mapped { file } => file.as_ref().map(AsFd::as_fd),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: allocated with this layout, and this is the only owner.
            Origin::Heap(layout) => unsafe { dealloc(self.base.as_ptr(), layout) },
            Origin::Pieces(_) => {}
            Origin::Mapped { .. } => {
                // SAFETY: mapped when this was made, and this is the only owner.
                let unmapped = unsafe { munmap(self.address(), self.bytes) };
                debug_assert!(unmapped.is_ok(), "a mapping's own addresses can be unmapped");
            }
        }
    }
}

/// Sums the huge pages of all areas of an `smaps` text that overlap the addresses from `start` to `end`. An upper
/// bound, because adjacent mappings with the same flags may share an area.
fn huge_bytes_of(smaps: &str, start: usize, end: usize) -> usize {
    let mut inside = false;
    let mut kibibytes = 0;
    for line in smaps.lines() {
        if let Some((first, last)) = area(line) {
            inside = first < end && start < last;
        } else if inside && (line.starts_with("AnonHugePages:") || line.starts_with("ShmemPmdMapped:")) {
            let number = line.split_ascii_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok());
            kibibytes += number.unwrap_or(0);
        }
    }
    kibibytes * 1024
}

/// Parses the addresses from the first line of an area in `smaps`.
fn area(line: &str) -> Option<(usize, usize)> {
    let (first, last) = line.split_ascii_whitespace().next()?.split_once('-')?;
    Some((usize::from_str_radix(first, 16).ok()?, usize::from_str_radix(last, 16).ok()?))
}

// NUMA: memory is bound to a node before it is touched; afterwards the kernel is asked for its node. The two calls have
// no safe wrapper.

/// Number of nodes in a mask: the kernel's maximum.
const NODES: usize = 1024;
const WORD: usize = usize::BITS as usize;

/// Number of pages per call.
const BATCH: usize = 1024;

/// Binds the memory to `node`: pages touched from now on come only from there.
///
/// # Errors
/// `InvalidInput` if there is no such node.
fn bind_to_node(base: NonNull<u8>, bytes: usize, node: u16) -> io::Result<()> {
    let node = node as usize;
    let mut mask = [0usize; NODES / WORD];
    *mask.get_mut(node / WORD).ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node % WORD);
    // SAFETY: reads the mask, whose size is given (the kernel takes one bit less than the number passed), and changes
    // only the node from which pages of the range will come.
    let result =
        unsafe { libc::syscall(libc::SYS_mbind, base.as_ptr(), bytes, libc::MPOL_BIND, mask.as_ptr(), NODES + 1, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Number of pages of `step` bytes that do not lie on `node`, including untouched ones.
fn pages_elsewhere(base: NonNull<u8>, bytes: usize, step: usize, node: u16) -> io::Result<usize> {
    let mut elsewhere = 0;
    let mut addresses = [core::ptr::null::<u8>(); BATCH];
    let mut nodes = [0i32; BATCH];
    for start in (0..bytes).step_by(step * BATCH) {
        let count = (bytes - start).div_ceil(step).min(BATCH);
        for (index, address) in addresses[..count].iter_mut().enumerate() {
            *address = base.as_ptr().wrapping_add(start + index * step);
        }
        // SAFETY: without target nodes the call moves nothing; it reads `count` addresses and writes as many numbers,
        // for which both arrays have room.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                count,
                addresses.as_ptr(),
                core::ptr::null::<i32>(),
                nodes.as_mut_ptr(),
                0,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        elsewhere += nodes[..count].iter().filter(|&&found| found != i32::from(node)).count();
    }
    Ok(elsewhere)
}

/// Pieces of memory of any size, one per block. Only the owner's thread allocates and frees them. Atomic because the
/// last holder may be on another thread, which frees the rest.
pub(crate) struct Pieces(Box<[AtomicPtr<u8>]>);

impl Pieces {
    pub(crate) fn new(blocks: usize) -> Self {
        Self((0..blocks).map(|_| AtomicPtr::new(null_mut())).collect())
    }

    /// Address of a block's piece, if it has one.
    pub(crate) fn get(&self, block: u32) -> Option<NonNull<u8>> {
        NonNull::new(self.0[block as usize].load(Ordering::Relaxed))
    }

    /// Allocates a piece for a block that has none, not initialised; `None` if the system has no memory.
    pub(crate) fn allocate(&self, block: u32, bytes: usize) -> Option<NonNull<u8>> {
        debug_assert!(self.get(block).is_none(), "a block has one piece");
        // SAFETY: any size is valid; the memory is not read before it was written.
        let piece = unsafe { libc::malloc(bytes) };
        self.0[block as usize].store(piece.cast(), Ordering::Relaxed);
        self.get(block)
    }

    /// Shrinks a block's piece to its first `bytes` bytes, and returns its new address.
    ///
    /// # Safety
    /// No other reference to the piece may exist.
    pub(crate) unsafe fn shrink(&self, block: u32, bytes: usize) -> Option<NonNull<u8>> {
        let piece = self.get(block)?;
        // SAFETY: allocated by `allocate`, and only the caller refers to it.
        let shrunk = unsafe { libc::realloc(piece.as_ptr().cast(), bytes) };
        // If that fails the piece stays as it was.
        if !shrunk.is_null() {
            self.0[block as usize].store(shrunk.cast(), Ordering::Relaxed);
        }
        self.get(block)
    }

    /// Frees a block's piece, if it has one.
    ///
    /// # Safety
    /// No reference to the piece may exist.
    pub(crate) unsafe fn free(&self, block: u32) {
        let piece = self.0[block as usize].swap(null_mut(), Ordering::Relaxed);
        // SAFETY: allocated by `allocate` or null, and its pointer was cleared just now.
        unsafe { libc::free(piece.cast::<c_void>()) };
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        for block in 0..self.0.len() as u32 {
            // SAFETY: this is dropped with the last slice.
            unsafe { self.free(block) };
        }
    }
}

/// Number of heaps that threads share.
#[cfg(target_env = "gnu")]
const ARENAS: libc::c_int = 2;

/// Makes threads share a few heaps, unless the user has set their number. By default the C library gives each thread a
/// heap, up to eight for each core. Threads start and end with runs, so that memory that outlives them is scattered
/// over all heaps, and the process grows from run to run. Threads do not allocate while data flow, so none waits for
/// another. Call it before the first thread is started.
pub fn share_heaps() {
    #[cfg(target_env = "gnu")]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() && std::env::var_os("GLIBC_TUNABLES").is_none() {
        // SAFETY: sets a parameter of the C library.
        let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, ARENAS) };
    }
}

#[cfg(test)]
mod tests {
    use super::huge_bytes_of;

    #[test]
    fn huge_pages_are_counted_in_the_overlapping_areas_only() {
        let smaps = "1000-3000 rw-p 00000000 00:00 0\nAnonHugePages:      2048 kB\nShmemPmdMapped:        0 kB\n\
                     3000-5000 rw-s 00000000 00:01 9 /memfd:x\nAnonHugePages:   0 kB\nShmemPmdMapped:     4096 kB\n";
        assert_eq!(huge_bytes_of(smaps, 0x1000, 0x3000), 2 << 20);
        assert_eq!(huge_bytes_of(smaps, 0x3000, 0x4000), 4 << 20);
        assert_eq!(huge_bytes_of(smaps, 0x2000, 0x4000), 6 << 20);
        assert_eq!(huge_bytes_of(smaps, 0x5000, 0x6000), 0);
    }
}
