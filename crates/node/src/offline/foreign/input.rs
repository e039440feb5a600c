//! A file's bytes through a window that grows with the longest frame.

use crate::offline::unpack::{Packing, Unpacked};
use crate::offline::{ByteOrigin, OfflineError};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Bytes of the window, as long as no frame is longer.
const WINDOW_BYTES: usize = 1 << 20;
/// So much is looked at to find out what a file is.
const LOOK_BYTES: usize = 64 << 10;

/// Why an input ends before its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutOff {
    /// Bytes that were read, and are no whole packet or frame.
    pub bytes: u64,
    /// What is wrong, for people.
    pub why: String,
}

/// A file that is read from its beginning to its end.
pub(super) struct Input {
    path: PathBuf,
    read: Unpacked,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes before the buffer's beginning.
    before: u64,
    is_over: bool,
    /// Why no more can be read, where that is not the end.
    trouble: Option<String>,
}

impl Input {
    /// Opens a file, a FIFO, or standard input where the path is `-`; unpacked, where it is packed.
    pub(super) fn open(path: &Path) -> Result<Self, OfflineError> {
        let read: Box<dyn Read + Send> = if path == Path::new("-") {
            Box::new(std::io::stdin())
        } else {
            Box::new(File::open(path).map_err(OfflineError::system("open", path))?)
        };
        Self::of(path, read)
    }

    /// The same of what is read until `is_over` is set.
    pub(super) fn of_origin(origin: &ByteOrigin, is_over: &Arc<AtomicBool>) -> Result<Self, OfflineError> {
        Self::of(origin.path(), origin.open(is_over)?)
    }

    /// The bytes of `read`; `path` is what errors name.
    pub(super) fn of(path: &Path, read: Box<dyn Read + Send>) -> Result<Self, OfflineError> {
        let read = Unpacked::new(read).map_err(OfflineError::system("read", path))?;
        let (path, buffer) = (path.to_owned(), vec![0; WINDOW_BYTES]);
        Ok(Self { path, read, buffer, start: 0, end: 0, before: 0, is_over: false, trouble: None })
    }

    /// How it is packed.
    pub(super) const fn packing(&self) -> Packing {
        self.read.packing()
    }

    /// Why it ends before its end, where it does: it cannot be unpacked or read any further. What is in the window is no whole frame.
    pub(super) fn cut_off(&self) -> Option<CutOff> {
        let why = self.trouble.clone()?;
        Some(CutOff { bytes: self.window().len() as u64, why })
    }

    /// Reads what is left, and says how many bytes that were with the window's.
    pub(super) fn drain(&mut self) -> u64 {
        let from = self.offset();
        while self.fill(self.window().len() + 1) {
            self.take(self.window().len());
        }
        self.bytes_read() - from
    }

    /// What was read and not taken yet.
    pub(super) fn window(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Where the window begins in the file (unpacked).
    pub(super) const fn offset(&self) -> u64 {
        self.before + self.start as u64
    }

    /// Bytes of the file (unpacked) as far as it was read.
    pub(super) const fn bytes_read(&self) -> u64 {
        self.before + self.end as u64
    }

    /// The file's first bytes, as many as it takes to know what it is.
    pub(super) fn begin(&mut self) -> &[u8] {
        self.fill(LOOK_BYTES);
        self.window()
    }

    /// Takes bytes from the window's front.
    pub(super) fn take(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.end - self.start, "what is taken was there");
        self.start += bytes;
    }

    /// Reads until the window has at least so many bytes; false where the file ends before.
    pub(super) fn fill(&mut self, bytes: usize) -> bool {
        if self.start + bytes > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.before += self.start as u64;
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < bytes && !self.is_over {
            if self.end == self.buffer.len() {
                // Only as the bytes come: a length that nobody sends costs no memory.
                self.buffer.resize(2 * self.buffer.len(), 0);
            }
            let read = self.read_some();
            self.is_over = read == 0;
            self.end += read;
        }
        self.end - self.start >= bytes
    }

    /// Reads what there is; 0 at the end, and where no more can be read.
    fn read_some(&mut self) -> usize {
        loop {
            match self.read.read(&mut self.buffer[self.end..]) {
                Ok(bytes) => return bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let at = self.before + self.end as u64;
                    let packing = self.packing();
                    self.trouble = Some(match packing {
                        Packing::None => format!("it cannot be read behind {at} bytes: {error}"),
                        _ => format!("{} data cannot be unpacked behind {at} bytes: {error}", packing.name()),
                    });
                    return 0;
                }
            }
        }
    }

    /// Why nothing of it can be read, if that is so.
    pub(super) fn unreadable(&self) -> Option<OfflineError> {
        let why = self.trouble.clone().filter(|_| self.bytes_read() == 0)?;
        Some(OfflineError::Unreadable { path: self.path.clone(), why })
    }

    /// An error about what the file is.
    pub(super) fn unknown_format(&self) -> OfflineError {
        if let Some(error) = self.unreadable() {
            return error;
        }
        let begin = self.window().iter().take(8).map(|byte| format!("{byte:02x} ")).collect::<String>();
        OfflineError::UnknownFormat { path: self.path.clone(), begin: begin.trim_end().to_owned() }
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
