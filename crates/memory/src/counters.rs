//! The counter page: numbers that one thread writes and any process may read, while the thread runs or after it ended.
//!
//! A page in a file looks like this, in the byte order of the machine that wrote it:
//!
//! ```text
//!  0         8         12       16       20      64               a multiple of 128
//!  │ magic   │ version │ cells  │ bytes  │ zeros │ text, zeros    │ cells of 8 bytes each ... │
//! ```
//! The text describes the cells and is written once. The writer holds a lock on the file as long as it runs. The kernel
//! releases the lock however the process ends, so that a later process with the same number is not taken for the
//! writer.
#![allow(unsafe_code)]

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU64, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// First bytes of a page in a file.
const MAGIC: &[u8; 8] = b"RWcounts";
const VERSION: u32 = 2;
/// Bytes before the text.
const HEADER: usize = 64;
/// More cells than any page has: bounds the allocation that a broken header can cause in a reader.
const MOST_CELLS: usize = 1 << 22;
/// Longer than the text of any page, for the same reason.
const LONGEST_TEXT: usize = 1 << 22;
/// Two cache lines, which processors fetch together.
const LINES: usize = 128;
const CELLS_IN_LINES: usize = LINES / 8;

/// A fixed array of counters, written by one thread and read by any.
///
/// Clones are handles of the same page. [`CounterPage::add`] is a load and a store, not an atomic addition: each cell
/// must have exactly one writing thread, or counts get lost. No two pages share a cache line.
#[derive(Clone)]
pub struct CounterPage {
    cells: NonNull<AtomicU64>,
    length: usize,
    /// Keeps the cells.
    _memory: Arc<CellMemory>,
}

/// The memory of the cells, which lives as long as any handle.
enum CellMemory {
    Heap {
        base: NonNull<u8>,
        layout: Layout,
    },
    File {
        base: NonNull<u8>,
        bytes: usize,
        /// Holds the lock.
        _file: File,
    },
}

// SAFETY: cells are atomics; the memory stays where it is until the last handle is dropped.
unsafe impl Send for CellMemory {}
// SAFETY: as above.
unsafe impl Sync for CellMemory {}
// SAFETY: as above.
unsafe impl Send for CounterPage {}
// SAFETY: as above.
unsafe impl Sync for CounterPage {}

impl CounterPage {
    /// Makes a page of `cells` zeros in this process.
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

    /// Makes a page of `cells` zeros in the file at `path`, with a text that describes them. The file appears there
    /// complete and replaces any older one. It outlives the process, however that ends.
    ///
    /// Choose a directory in memory (`/run`, `/dev/shm`) so that writing never waits for a disk. Every user may read
    /// the file, but no other user may write it: truncating it ends this process.
    ///
    /// # Errors
    /// More than 2^22 cells or bytes of text, or an error of the system.
    pub fn create(path: &Path, text: &str, cells: usize) -> io::Result<Self> {
        if cells > MOST_CELLS || text.len() > LONGEST_TEXT {
            let message = "a counter page has at most 2^22 cells and bytes of text";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let first = first_cell(text.len());
        let bytes = first + cells * 8;
        let fresh = Fresh::create(path)?;
        // No other process knows the file yet: every later reader finds the lock.
        fresh.file.try_lock().map_err(io::Error::from)?;
        let mut start = vec![0; first];
        start[..8].copy_from_slice(MAGIC);
        start[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        start[12..16].copy_from_slice(&(cells as u32).to_ne_bytes());
        start[16..20].copy_from_slice(&(text.len() as u32).to_ne_bytes());
        start[HEADER..HEADER + text.len()].copy_from_slice(text.as_bytes());
        // Written rather than extended: a full disk is then an error here and does not end the process later.
        (&fresh.file).write_all(&start)?;
        (&fresh.file).write_all(&vec![0; bytes - first])?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses, of a file with as many bytes.
        let base = unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED, &fresh.file, 0)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = Arc::new(CellMemory::File { base, bytes, _file: fresh.publish(path)? });
        // SAFETY: the cells begin behind the text, within the mapping, on a multiple of their alignment.
        let first = unsafe { base.add(first).cast() };
        Ok(Self { cells: first, length: cells, _memory: memory })
    }

    /// Opens the page of another process, running or ended, for reading.
    ///
    /// The file is read and not mapped: a truncated file gives an error instead of a signal.
    ///
    /// # Errors
    /// `InvalidData` if it is no counter page, or an error of the system.
    pub fn open(path: &Path) -> io::Result<CounterFile> {
        CounterFile::open(path)
    }

    fn all(&self) -> &[AtomicU64] {
        // SAFETY: `length` cells begin there; the memory lives as long as this handle.
        unsafe { core::slice::from_raw_parts(self.cells.as_ptr(), self.length) }
    }

    /// Number of cells.
    pub fn cells(&self) -> usize {
        self.length
    }

    /// Sets a cell. Only for its writing thread.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub fn set(&self, cell: usize, value: u64) {
        self.all()[cell].store(value, Ordering::Relaxed);
    }

    /// Adds to a cell. Only for its writing thread.
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

    /// Returns all cells. Each value is right, but they may be of different times.
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
            Self::File { base, bytes, .. } => {
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
        // Any existing file was left by a process of the same number that died in this function.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o644).open(&path)?;
        Ok(Self { file, path, published: false })
    }

    /// Renames the file to its final name. The returned descriptor refers to the same open file and has its lock.
    fn publish(mut self, target: &Path) -> io::Result<File> {
        let file = self.file.try_clone()?;
        std::fs::rename(&self.path, target)?;
        self.published = true;
        Ok(file)
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

/// Offset of the first cell of a page with a text of this length.
const fn first_cell(text: usize) -> usize {
    (HEADER + text).next_multiple_of(LINES)
}

fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

/// Describes an early end of the file.
fn cut_short(error: io::Error) -> io::Error {
    match error.kind() {
        kind @ io::ErrorKind::UnexpectedEof => io::Error::new(kind, "no whole counter page: the file is cut short"),
        _ => error,
    }
}

/// A counter page in a file, as seen by a reader.
#[derive(Debug)]
pub struct CounterFile {
    file: File,
    text: String,
    cells: usize,
}

impl CounterFile {
    fn open(path: &Path) -> io::Result<Self> {
        // Opening a FIFO or device could block the reader, and another user may have put one there.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(invalid("not a file, so no counter page"));
        }
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0).map_err(cut_short)?;
        let number = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if header[..8] != MAGIC[..] {
            return Err(invalid("not a counter page"));
        }
        if number(8) != VERSION {
            return Err(invalid(format!("a counter page of version {}; this program reads {VERSION}", number(8))));
        }
        let (cells, length) = (number(12) as usize, number(16) as usize);
        if cells > MOST_CELLS || length > LONGEST_TEXT {
            return Err(invalid("a damaged counter page: no page has so many cells, or so long a text"));
        }
        let mut text = vec![0; length];
        file.read_exact_at(&mut text, HEADER as u64).map_err(cut_short)?;
        let text = String::from_utf8(text).map_err(|_| invalid("a damaged counter page: its text is not UTF-8"))?;
        Ok(Self { file, text, cells })
    }

    /// Description of the cells, as written by the writer.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Number of cells.
    pub fn cells(&self) -> usize {
        self.cells
    }

    /// Whether the writer runs and has not released its page.
    ///
    /// # Errors
    /// An error of the system.
    pub fn is_written(&self) -> io::Result<bool> {
        match self.file.try_lock_shared() {
            Ok(()) => self.file.unlock().map(|()| false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Returns the current values of all cells; they may be of different times.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file was truncated, or an error of the system.
    pub fn snapshot(&self) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; self.cells * 8];
        self.file.read_exact_at(&mut bytes, first_cell(self.text.len()) as u64).map_err(cut_short)?;
        let (cells, _) = bytes.as_chunks();
        Ok(cells.iter().map(|cell| u64::from_ne_bytes(*cell)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of one test, removed at its end.
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
        let page = CounterPage::create(&path, "what they are", 100).unwrap();
        page.set(99, u64::MAX);
        let reader = CounterPage::open(&path).unwrap();
        page.add(0, 5);
        drop(page);
        let cells = reader.snapshot().unwrap();
        assert_eq!((reader.text(), cells.len(), cells[0], cells[99]), ("what they are", 100, 5, u64::MAX));
        let next = CounterPage::create(&path, "", 2).unwrap();
        next.set(1, 1);
        assert_eq!(CounterPage::open(&path).unwrap().snapshot().unwrap(), [0, 1]);
        assert_eq!(reader.snapshot().unwrap()[0], 5, "a reader of the old page keeps it");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn whether_a_page_is_written_is_known_while_any_handle_lives_and_looking_changes_nothing() {
        let scratch = Scratch::new("written");
        let page = CounterPage::create(&scratch.path(), "", 1).unwrap();
        let other_handle = page.clone();
        let (reader, another) =
            (CounterPage::open(&scratch.path()).unwrap(), CounterPage::open(&scratch.path()).unwrap());
        assert!(reader.is_written().unwrap() && another.is_written().unwrap());
        drop(page);
        assert!(reader.is_written().unwrap());
        drop(other_handle);
        assert!(!reader.is_written().unwrap() && !another.is_written().unwrap() && !reader.is_written().unwrap());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn cells_begin_on_lines_of_their_own_however_long_the_text_is() {
        let scratch = Scratch::new("lines");
        for length in [0, 1, 63, 64, 65, 1000] {
            let page = CounterPage::create(&scratch.path(), &"x".repeat(length), 3).unwrap();
            page.set(2, length as u64);
            assert!(page.cells.as_ptr().addr().is_multiple_of(LINES), "{length}");
            let reader = CounterPage::open(&scratch.path()).unwrap();
            assert_eq!((reader.text().len(), reader.snapshot().unwrap()), (length, vec![0, 0, length as u64]));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn a_file_cut_short_is_an_error_and_no_signal() {
        let scratch = Scratch::new("short");
        let path = scratch.path();
        drop(CounterPage::create(&path, "text", 4).unwrap());
        let reader = CounterPage::open(&path).unwrap();
        let cut = |length| OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
        cut(first_cell(4) as u64 + 31);
        assert_eq!(reader.snapshot().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        for length in [HEADER as u64 + 3, 10] {
            cut(length);
            assert_eq!(CounterPage::open(&path).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri's files are the host's")]
    fn what_is_no_counter_page_is_refused() {
        let scratch = Scratch::new("other");
        let path = scratch.path();
        std::fs::write(&path, [b'x'; 200]).unwrap();
        let refused = |path: &Path| CounterPage::open(path).unwrap_err();
        assert_eq!(refused(&path).to_string(), "not a counter page");
        assert_eq!(refused(Path::new("/no/such/page")).kind(), io::ErrorKind::NotFound);
        assert_eq!(refused(&scratch.0).to_string(), "not a file, so no counter page");
        let mut bytes = vec![0; 200];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&7_u32.to_ne_bytes());
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(refused(&path).to_string(), "a counter page of version 7; this program reads 2");
        bytes[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        for (at, value, told) in [(12, u32::MAX, "no page has so many cells"), (16, u32::MAX, "or so long a text")] {
            let mut damaged = bytes.clone();
            damaged[at..at + 4].copy_from_slice(&value.to_ne_bytes());
            std::fs::write(&path, damaged).unwrap();
            assert!(refused(&path).to_string().contains(told));
        }
        bytes[16..20].copy_from_slice(&1_u32.to_ne_bytes());
        bytes[HEADER] = 0xff;
        std::fs::write(&path, &bytes).unwrap();
        assert!(refused(&path).to_string().contains("its text is not UTF-8"));
        let too_many = CounterPage::create(&path, "", MOST_CELLS + 1);
        assert_eq!(too_many.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(CounterPage::create(Path::new("/no/such/directory/page"), "", 1).is_err());
    }

    /// A FIFO instead of a page must not block a reader for ever.
    #[test]
    #[cfg_attr(miri, ignore = "Miri makes no FIFO")]
    fn a_fifo_is_refused_at_once() {
        let scratch = Scratch::new("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, scratch.path(), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(CounterPage::open(&scratch.path()).unwrap_err().to_string(), "not a file, so no counter page");
    }
}
