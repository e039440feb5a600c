//! A file's bytes through a window that grows with the longest frame.

use crate::offline::OfflineError;
use lz4_flex::frame::FrameDecoder;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

/// Bytes of the window, as long as no frame is longer.
const WINDOW_BYTES: usize = 1 << 20;
/// So much is looked at to find out what a file is.
const LOOK_BYTES: usize = 64 << 10;
/// What an LZ4 frame begins with.
const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4D, 0x18];

/// A file that is read from its beginning to its end.
pub(super) struct Input {
    path: PathBuf,
    read: Box<dyn Read>,
    is_packed: bool,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes before the buffer's beginning.
    before: u64,
    is_over: bool,
}

impl Input {
    /// Opens a file, a FIFO, or standard input where the path is `-`; unpacked, if it is an LZ4 frame.
    pub(super) fn open(path: &Path) -> Result<Self, OfflineError> {
        let read: Box<dyn Read> = if path == Path::new("-") {
            Box::new(std::io::stdin())
        } else {
            Box::new(File::open(path).map_err(OfflineError::system("open", path))?)
        };
        Self::of(path, read)
    }

    /// The bytes of `read`; `path` is what errors name.
    pub(super) fn of(path: &Path, mut read: Box<dyn Read>) -> Result<Self, OfflineError> {
        let mut magic = Vec::new();
        let taken = read.by_ref().take(LZ4_MAGIC.len() as u64).read_to_end(&mut magic);
        taken.map_err(OfflineError::system("read", path))?;
        let is_packed = magic == LZ4_MAGIC;
        let whole = Cursor::new(magic).chain(read);
        let read: Box<dyn Read> = if is_packed { Box::new(FrameDecoder::new(whole)) } else { Box::new(whole) };
        let (path, buffer) = (path.to_owned(), vec![0; WINDOW_BYTES]);
        Ok(Self { path, read, is_packed, buffer, start: 0, end: 0, before: 0, is_over: false })
    }

    /// Whether it was unpacked.
    pub(super) const fn is_packed(&self) -> bool {
        self.is_packed
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
    pub(super) fn begin(&mut self) -> Result<&[u8], OfflineError> {
        self.fill(LOOK_BYTES)?;
        Ok(self.window())
    }

    /// Takes bytes from the window's front.
    pub(super) fn take(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.end - self.start, "what is taken was there");
        self.start += bytes;
    }

    /// Reads until the window has at least so many bytes; false where the file ends before.
    pub(super) fn fill(&mut self, bytes: usize) -> Result<bool, OfflineError> {
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
            let read = self.read_some()?;
            self.is_over = read == 0;
            self.end += read;
        }
        Ok(self.end - self.start >= bytes)
    }

    fn read_some(&mut self) -> Result<usize, OfflineError> {
        let room = &mut self.buffer[self.end..];
        let mut read = self.read.read(room).map_err(OfflineError::system("read", &self.path))?;
        if read == 0 && self.is_packed {
            // Where one LZ4 frame ends another one may begin.
            read = self.read.read(room).map_err(OfflineError::system("read", &self.path))?;
        }
        Ok(read)
    }

    /// An error about what the file is.
    pub(super) fn unknown_format(&self) -> OfflineError {
        let begin = self.window().iter().take(8).map(|byte| format!("{byte:02x} ")).collect::<String>();
        OfflineError::UnknownFormat { path: self.path.clone(), begin: begin.trim_end().to_owned() }
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
