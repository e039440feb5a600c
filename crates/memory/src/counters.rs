//! The counter page: numbers that one thread writes and anybody reads, while it runs or after it died.
//!
//! A page in a file looks like this, in the byte order of the machine that wrote it:
//!
//! ```text
//!  0         8         12       16                 64
//!  │ magic   │ version │ cells  │ zeros            │ cells of 8 bytes each ... │
//! ```
#![allow(unsafe_code)]

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU64, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// First bytes of a page in a file.
const MAGIC: &[u8; 8] = b"RWcounts";
const VERSION: u32 = 1;
/// Bytes before the first cell: a cache line, so that cells begin on one.
const HEADER: usize = 64;
/// More cells than any page has: bounds what a broken header can make a reader allocate.
const MOST_CELLS: usize = 1 << 20;
/// Two cache lines, which processors fetch together.
const LINES: usize = 128;
const CELLS_IN_LINES: usize = LINES / 8;

/// A fixed array of counters, written by one thread and read by any.
///
/// Clones are handles of the same page. [`CounterPage::add`] is a load and a store, not an atomic addition:
/// each cell must have one writing thread, or counts get lost. No two pages share a cache line.
#[derive(Clone)]
pub struct CounterPage {
    cells: NonNull<AtomicU64>,
    length: usize,
    /// Keeps the cells.
    _memory: Arc<CellMemory>,
}

/// The memory of the cells, as long as any handle lives.
enum CellMemory {
    Heap { base: NonNull<u8>, layout: Layout },
    File { base: NonNull<u8>, bytes: usize },
}

// SAFETY: cells are atomics; the memory stays where it is until the last handle is gone.
unsafe impl Send for CellMemory {}
// SAFETY: as above.
unsafe impl Sync for CellMemory {}
// SAFETY: as above.
unsafe impl Send for CounterPage {}
// SAFETY: as above.
unsafe impl Sync for CounterPage {}

impl CounterPage {
    /// A page of `cells` zeros in this process.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub fn new(cells: usize) -> Self {
        let lines = cells.div_ceil(CELLS_IN_LINES).max(1);
        let layout = Layout::from_size_align(lines.saturating_mul(LINES), LINES).expect("a page has few cells");
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        Self { cells: base.cast(), length: cells, _memory: Arc::new(CellMemory::Heap { base, layout }) }
    }

    /// A page of `cells` zeros in the file at `path`, which appears there complete, in place of any file that
    /// was there. It outlives the process, whatever ends that.
    ///
    /// Choose a directory in memory (`/run`, `/dev/shm`) so that writing never waits for a disk, and one in
    /// which only this user writes: somebody who truncates the file ends this process.
    ///
    /// # Errors
    /// More than 2^20 cells, or what the system says about the file.
    pub fn create(path: &Path, cells: usize) -> io::Result<Self> {
        if cells > MOST_CELLS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a counter page has at most 2^20 cells"));
        }
        let bytes = HEADER + cells * 8;
        let fresh = Fresh::create(path)?;
        let mut start = [0; HEADER];
        start[..8].copy_from_slice(MAGIC);
        start[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        start[12..16].copy_from_slice(&(cells as u32).to_ne_bytes());
        // Written rather than extended: a full disk is then an error here and not the end of the process later.
        (&fresh.file).write_all(&start)?;
        (&fresh.file).write_all(&vec![0; bytes - HEADER])?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses, of a file with as many bytes.
        let base = unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED, &fresh.file, 0)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = Arc::new(CellMemory::File { base, bytes });
        fresh.publish(path)?;
        // SAFETY: the cells begin behind the header, within the mapping, on a multiple of their alignment.
        let first = unsafe { base.add(HEADER).cast() };
        Ok(Self { cells: first, length: cells, _memory: memory })
    }

    /// Opens the page of another process, or of one that is gone, for reading.
    ///
    /// The file is read and not mapped: one that is cut short gives an error instead of a signal.
    ///
    /// # Errors
    /// `InvalidData` if it is no counter page, or what the system says about the file.
    pub fn open(path: &Path) -> io::Result<CounterFile> {
        CounterFile::open(path)
    }

    fn all(&self) -> &[AtomicU64] {
        // SAFETY: `length` cells begin there; the memory lives as long as this handle.
        unsafe { core::slice::from_raw_parts(self.cells.as_ptr(), self.length) }
    }

    /// How many cells there are.
    pub fn cells(&self) -> usize {
        self.length
    }

    /// Sets a cell. For its one writing thread.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub fn set(&self, cell: usize, value: u64) {
        self.all()[cell].store(value, Ordering::Relaxed);
    }

    /// Adds to a cell. For its one writing thread.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub fn add(&self, cell: usize, count: u64) {
        let cell = &self.all()[cell];
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// The value of a cell.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub fn get(&self, cell: usize) -> u64 {
        self.all()[cell].load(Ordering::Relaxed)
    }

    /// All cells, one after the other: each is right, but they may be of different moments.
    pub fn snapshot(&self) -> Vec<u64> {
        self.all().iter().map(|cell| cell.load(Ordering::Relaxed)).collect()
    }
}

impl core::fmt::Debug for CounterPage {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "CounterPage({} cells)", self.length)
    }
}

impl Drop for CellMemory {
    fn drop(&mut self) {
        match *self {
            // SAFETY: allocated by `new` with this layout, and no handle is left.
            Self::Heap { base, layout } => unsafe { dealloc(base.as_ptr(), layout) },
            Self::File { base, bytes } => {
                // SAFETY: mapped by `create`, and no handle is left.
                let unmapped = unsafe { munmap(base.as_ptr().cast(), bytes) };
                debug_assert!(unmapped.is_ok(), "a mapping's own addresses can be unmapped");
            }
        }
    }
}

/// A file under a temporary name; removed unless published.
struct Fresh {
    file: File,
    path: PathBuf,
    published: bool,
}

impl Fresh {
    fn create(target: &Path) -> io::Result<Self> {
        let mut path = target.as_os_str().to_owned();
        path.push(format!(".new{}", std::process::id()));
        let path = PathBuf::from(path);
        // What is there was left behind by a process of the same number that died in this very place.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        Ok(Self { file, path, published: false })
    }

    fn publish(mut self, target: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, target)?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.published {
            // Nothing more can be done about a temporary file that cannot be removed.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A counter page in a file, as a reader sees it.
#[derive(Debug)]
pub struct CounterFile {
    file: File,
    cells: usize,
}

impl CounterFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0)?;
        let number = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let cells = number(12) as usize;
        if header[..8] != MAGIC[..] || number(8) != VERSION || cells > MOST_CELLS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a counter page of version 1"));
        }
        Ok(Self { file, cells })
    }

    /// How many cells there are.
    pub fn cells(&self) -> usize {
        self.cells
    }

    /// All cells as they are now; they may be of different moments.
    ///
    /// # Errors
    /// `UnexpectedEof` if somebody cut the file short, or what the system says.
    pub fn snapshot(&self) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; self.cells * 8];
        self.file.read_exact_at(&mut bytes, HEADER as u64)?;
        let (cells, _) = bytes.as_chunks();
        Ok(cells.iter().map(|cell| u64::from_ne_bytes(*cell)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of one test, gone with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(test: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("ropewalk-{test}-{}", std::process::id()));
            std::fs::create_dir_all(&directory).unwrap();
            Self(directory)
        }

        fn path(&self) -> PathBuf {
            self.0.join("page")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn handles_share_cells_and_pages_share_no_line() {
        let (page, other) = (CounterPage::new(3), CounterPage::new(1));
        let reader = page.clone();
        page.set(0, 7);
        page.add(0, 3);
        page.add(2, 1);
        assert_eq!((reader.get(0), reader.snapshot()), (10, vec![10, 0, 1]));
        assert_eq!((other.get(0), other.cells()), (0, 1));
        let distance = page.cells.as_ptr().addr().abs_diff(other.cells.as_ptr().addr());
        assert!(distance >= 128 && page.cells.as_ptr().addr().is_multiple_of(128));
        drop(page);
        assert_eq!(reader.get(2), 1);
    }

    #[test]
    fn another_thread_reads_while_one_writes() {
        let page = CounterPage::new(1);
        let reader = page.clone();
        let writer = std::thread::spawn(move || (0..1000).for_each(|_| page.add(0, 1)));
        let mut last = 0;
        while last < 1000 {
            let now = reader.get(0);
            assert!(now >= last);
            last = now;
            std::thread::yield_now();
        }
        writer.join().unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn a_file_outlives_its_writer_and_is_replaced_by_the_next() {
        let scratch = Scratch::new("outlives");
        let path = scratch.path();
        let page = CounterPage::create(&path, 100).unwrap();
        page.set(99, u64::MAX);
        let reader = CounterPage::open(&path).unwrap();
        page.add(0, 5);
        drop(page);
        let cells = reader.snapshot().unwrap();
        assert_eq!((cells.len(), cells[0], cells[99]), (100, 5, u64::MAX));
        let next = CounterPage::create(&path, 2).unwrap();
        next.set(1, 1);
        assert_eq!(CounterPage::open(&path).unwrap().snapshot().unwrap(), [0, 1]);
        assert_eq!(reader.snapshot().unwrap()[0], 5, "who opened the old page keeps it");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn a_file_cut_short_is_an_error_and_no_signal() {
        let scratch = Scratch::new("short");
        let path = scratch.path();
        drop(CounterPage::create(&path, 4).unwrap());
        let reader = CounterPage::open(&path).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(HEADER as u64 + 31).unwrap();
        assert_eq!(reader.snapshot().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
        assert_eq!(CounterPage::open(&path).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri's files are the host's")]
    fn what_is_no_counter_page_is_refused() {
        let scratch = Scratch::new("other");
        let path = scratch.path();
        std::fs::write(&path, [b'x'; 200]).unwrap();
        assert_eq!(CounterPage::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(CounterPage::open(Path::new("/no/such/page")).unwrap_err().kind(), io::ErrorKind::NotFound);
        let too_many = CounterPage::create(&path, MOST_CELLS + 1);
        assert_eq!(too_many.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(CounterPage::create(Path::new("/no/such/directory/page"), 1).is_err());
    }
}
