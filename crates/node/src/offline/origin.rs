//! Where bytes come from: a file, a FIFO or standard input, read without being stuck there when it is over.

use super::OfflineError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long nothing may come before it is looked whether it is over: 50 ms.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Where bytes come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ByteOrigin {
    /// A file, or a FIFO that is there; standard input where it is `-`.
    File(PathBuf),
    /// A FIFO, which is made where there is none.
    Fifo(PathBuf),
}

impl ByteOrigin {
    /// The path, for people.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Fifo(path) => path,
        }
    }

    /// Whether it is a file as a disk has it: it can be looked into before it is wanted.
    pub fn is_regular(&self) -> bool {
        matches!(self, Self::File(path) if std::fs::metadata(path).is_ok_and(|file| file.is_file()))
    }

    /// Its bytes as they come. They end when nobody writes any more, or when `is_over` is set.
    ///
    /// # Errors
    /// Where it cannot be opened.
    pub(crate) fn open(&self, is_over: &Arc<AtomicBool>) -> Result<Box<dyn Read + Send>, OfflineError> {
        let patient = match self {
            Self::File(path) => Patient::open(path, Arc::clone(is_over)),
            Self::Fifo(path) => Patient::fifo(path, Arc::clone(is_over)),
        };
        Ok(Box::new(patient?))
    }
}

/// Bytes as they come; the end when nobody writes any more, or when it is over.
#[derive(Debug)]
struct Patient {
    file: File,
    is_over: Arc<AtomicBool>,
}

impl Patient {
    /// Opens a file or a FIFO, or standard input where the path is `-`. A FIFO needs no writer yet.
    fn open(path: &Path, is_over: Arc<AtomicBool>) -> Result<Self, OfflineError> {
        let system = OfflineError::system("open", path);
        let descriptor = if path == Path::new("-") {
            std::io::stdin().as_fd().try_clone_to_owned()
        } else {
            // Otherwise opening a FIFO waits for its writer.
            rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
                .map_err(Into::into)
        };
        Ok(Self { file: descriptor.map_err(system)?.into(), is_over })
    }

    /// Opens a FIFO, which is made where there is nothing.
    fn fifo(path: &Path, is_over: Arc<AtomicBool>) -> Result<Self, OfflineError> {
        let mode = Mode::RUSR | Mode::WUSR;
        match rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(OfflineError::system("make the FIFO", path)(error.into())),
        }
        let patient = Self::open(path, is_over)?;
        let stat =
            rustix::fs::fstat(&patient.file).map_err(|error| OfflineError::system("look at", path)(error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Fifo {
            return Ok(patient);
        }
        let error = std::io::Error::new(ErrorKind::AlreadyExists, "it is no FIFO; leave out `fifo:`, or name another");
        Err(OfflineError::system("read it as a FIFO", path)(error))
    }
}

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while !self.is_over.load(Ordering::Relaxed) {
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&LOOK)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match self.file.read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
        Ok(0)
    }
}
