//! Plug-ins for benches: compiled on the measured machine, and waits for their processes.

use crate::{BenchError, Session};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A process that takes longer counts as hung.
const PATIENCE: Duration = Duration::from_secs(10);

/// Calls `measure` with a directory for files, which is removed afterwards.
pub(crate) fn in_directory(
    session: &mut Session<'_>,
    name: &str,
    measure: impl FnOnce(&mut Session<'_>, &Path) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let directory = session.options.output.join(name);
    std::fs::create_dir_all(&directory).map_err(BenchError::system("a directory"))?;
    let measured = measure(session, &directory);
    let _ = std::fs::remove_dir_all(&directory);
    measured
}

/// Writes these files, and compiles the first one to a library.
pub(crate) fn compiled(directory: &Path, files: &[(&str, &str)]) -> Result<PathBuf, BenchError> {
    for (name, text) in files {
        std::fs::write(directory.join(name), text).map_err(BenchError::system("a plug-in's files"))?;
    }
    let source = directory.join(files[0].0);
    let library = source.with_extension("so");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-shared", "-fPIC", "-I"]).arg(directory).arg("-o").args([&library, &source]);
    match cc.status().map_err(BenchError::system("a C compiler, `cc`"))? {
        status if status.success() => Ok(library),
        status => Err(BenchError::wrong(format!("cc does not compile {}: {status}", files[0].0))),
    }
}

/// The start of a wait for a process.
#[derive(Debug)]
pub(crate) struct Wait(Instant);

impl Wait {
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Sleeps briefly, or until a descriptor is ready; fails if the wait has taken too long.
    pub(crate) fn sleep<'a>(
        &self,
        descriptors: impl Iterator<Item = BorrowedFd<'a>>,
        who: impl FnOnce() -> String,
    ) -> Result<(), BenchError> {
        if self.0.elapsed() > PATIENCE {
            return Err(BenchError::wrong(who()));
        }
        let mut events: Vec<_> = descriptors.map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)).collect();
        poll(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 })).map_err(BenchError::wrong)?;
        Ok(())
    }
}
