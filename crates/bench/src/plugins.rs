//! Plug-ins for benches: compiled where they are measured, and their processes waited for.

use crate::{BenchError, Session};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a process may take over what it is waited for until it is taken for one that hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Measures with a directory for files, which is removed afterwards.
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

/// The time since which a process is waited for.
#[derive(Debug)]
pub(crate) struct Wait(Instant);

impl Wait {
    /// From now on.
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Sleeps a while, or until there is something to look at; fails where it has taken too long.
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
