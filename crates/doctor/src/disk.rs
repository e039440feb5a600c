//! The speed of the disk for writes like those of run files: in order, past the page cache; and its activity meanwhile.

use crate::run::scratch;
use ropewalk_host::{DiskActivity, DiskCounters, disk_of};
use ropewalk_io::disk::{WriteProbe, probe_writes};
use ropewalk_memory::{Owner, Pool, PoolConfig};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of one write, as in run files.
const BLOCK: usize = 1 << 20;
/// Bytes between two checks of the time. Buffered writes are synchronised then.
const BATCH: u64 = 64 << 20;

pub(crate) struct DiskFigures {
    /// 10^9 bytes a second that reach the disk.
    pub(crate) rate: f64,
    /// Milliseconds to write and sync the shortest record.
    pub(crate) sync_ms: f64,
    /// The disk's activity meanwhile; `None` in memory and over the network.
    pub(crate) says: Option<String>,
    /// The faster way of writing; `None` if only one is possible.
    pub(crate) probe: Option<WriteProbe>,
}

/// Measures the disk of this directory for about `duration`.
pub(crate) fn measure(output: &Path, duration: Duration) -> io::Result<DiskFigures> {
    let directory = scratch(output, "doctor-disk");
    std::fs::create_dir_all(&directory)?;
    let measured = measure_in(&directory, duration);
    // Ignored: what remains is this process's own directory, and the figures are valid.
    let _ = std::fs::remove_dir_all(&directory);
    measured
}

fn measure_in(directory: &Path, duration: Duration) -> io::Result<DiskFigures> {
    let probe = probe_writes(directory)?;
    let disk = disk_of(directory);
    let counters = || disk.as_deref().and_then(DiskCounters::read);
    let (before, began) = (counters(), Instant::now());
    let rate = write_in_order(directory, duration, probe.is_some())?;
    let seconds = began.elapsed().as_secs_f64();
    let activity = before.zip(counters()).and_then(|(before, now)| DiskActivity::between(&before, &now, seconds));
    let says = activity.zip(disk.as_deref()).map(|(activity, disk)| activity.sentence(disk));
    let sync_ms = sync_time(directory, duration / 4)?;
    Ok(DiskFigures { rate, sync_ms, says, probe })
}

/// 10^9 bytes a second, written in order to one file.
fn write_in_order(directory: &Path, duration: Duration, is_direct: bool) -> io::Result<f64> {
    let mut pool = Pool::new(PoolConfig::anonymous("doctor", BLOCK, 1)).map_err(io::Error::other)?;
    let mut loan = pool.loan(Owner::SHARED).ok_or_else(|| io::Error::other("no memory"))?;
    loan.spare().fill(0x5a);
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
    let flags = if is_direct { flags | OFlags::DIRECT } else { flags };
    let path = directory.join("0");
    let file = File::from(rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))?);
    let (began, mut bytes) = (Instant::now(), 0);
    while began.elapsed() < duration {
        for _ in 0..BATCH / BLOCK as u64 {
            file.write_all_at(&loan.spare()[..BLOCK], bytes)?;
            bytes += BLOCK as u64;
        }
        if !is_direct {
            file.sync_data()?;
        }
    }
    Ok(bytes as f64 / began.elapsed().as_secs_f64() / 1e9)
}

/// Milliseconds to write and sync one short record.
fn sync_time(directory: &Path, duration: Duration) -> io::Result<f64> {
    let mut file = File::create(directory.join("1"))?;
    let (began, mut records) = (Instant::now(), 0_u32);
    while records == 0 || began.elapsed() < duration {
        file.write_all(&[0x5a; 512])?;
        file.sync_data()?;
        records += 1;
    }
    Ok(began.elapsed().as_secs_f64() * 1e3 / f64::from(records))
}
