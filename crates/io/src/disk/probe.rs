//! Finds out which way into files is faster on a device: past the page cache, or through it.
//!
//! A probe writes up to [`MOST_BYTES`] each way, in turn, into a file without a name, which disappears with the
//! process. It ends early after [`MOST_TIME`]. One probe is made for each device and process, when the first file is
//! written fast.
#![allow(unsafe_code)]

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ropewalk_memory::{Owner, Pool, PoolConfig};
use rustix::fs::{self, Mode, OFlags};

use super::{DiskCause, open_file};

/// Number of bytes written each way.
const MOST_BYTES: u64 = 32 << 20;
/// And at least; on a disk that takes 0.1 GB/s that lasts 0.25 s.
const LEAST_BYTES: u64 = 3 * PIECE;
/// Time after which no further piece is begun.
const MOST_TIME: Duration = Duration::from_millis(100);
/// Number of bytes written one way before it is the other way's turn.
const PIECE: u64 = 4 << 20;
/// Bytes of one write, as for run files.
const BLOCK: usize = 1 << 20;
/// With less free space than this there is no probe.
const LEAST_ROOM: u64 = 1 << 30;
/// Minimum ratio of rates for choosing the page cache. A short probe overrates it, because nothing is written back yet:
/// where probes found up to 2.0 times the rate past it, whole runs through the page cache wrote 0.3 GB/s instead of
/// 0.8.
const CLEARLY: f64 = 4.0;

/// File systems over the network, and those of other programs, by their numbers (statfs(2)). Their servers have their
/// own caches, so that a short probe says nothing about them.
const REMOTE: [u64; 10] = [
    0x6969,      // NFS
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2
    0x00c3_6400, // Ceph
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0x0102_1997, // 9P
    0x5346_414f, // AFS
    0x6573_5546, // FUSE
];

/// The result of a probe.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct WriteProbe {
    /// Bytes a second past the page cache.
    pub direct: f64,
    /// Bytes a second through it, until they were on the device.
    pub buffered: f64,
}

impl WriteProbe {
    /// Whether files should be written past the page cache.
    pub fn prefers_direct(&self) -> bool {
        self.buffered < CLEARLY * self.direct
    }
}

impl fmt::Display for WriteProbe {
    /// `1.87 GB/s past the page cache, 0.64 GB/s through it`
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [direct, buffered] = [self.direct, self.buffered].map(|rate| rate / 1e9);
        write!(out, "{direct:.2} GB/s past the page cache, {buffered:.2} GB/s through it")
    }
}

/// A device, by its number (`st_dev`), and its result: `None` while it is probed, and if it cannot be.
type Known = Vec<(u64, Option<WriteProbe>)>;

static KNOWN: Mutex<Known> = Mutex::new(Vec::new());

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result for the device of a directory; `None` if there is none.
pub fn write_probe(directory: &Path) -> Option<WriteProbe> {
    let device = open_file::file_system(directory)?;
    known().iter().find(|(other, _)| *other == device)?.1
}

/// The result for the device of an open file, and whether it has yet to be probed: true once for each device.
pub(super) fn of_file(file: &OwnedFd) -> (Option<WriteProbe>, bool) {
    let Ok(found) = fs::fstat(file) else { return (None, false) };
    let mut known = known();
    match known.iter().find(|(device, _)| *device == found.st_dev) {
        Some((_, probe)) => (*probe, false),
        None => {
            known.push((found.st_dev, None));
            (None, true)
        }
    }
}

/// Probes the device of a directory, and stores the result.
pub(super) fn probe_and_remember(directory: &Path) {
    let Some(device) = open_file::file_system(directory) else { return };
    let Ok(found) = probe_writes(directory) else { return };
    if let Some((_, known)) = known().iter_mut().find(|(other, _)| *other == device) {
        *known = found;
    }
}

/// Writes both ways into the file system of a directory. `None` if only one way is possible, or a short probe shows
/// nothing: in memory, over the network, without `O_DIRECT` or files without a name, and with less than 1 GiB of free
/// space.
///
/// # Errors
/// If the file system refuses the writes.
pub fn probe_writes(directory: &Path) -> io::Result<Option<WriteProbe>> {
    let system = fs::statfs(directory)?;
    let is_remote = REMOTE.contains(&(system.f_type as u64 & 0xffff_ffff));
    if is_remote || open_file::free_bytes(directory).is_ok_and(|free| free < LEAST_ROOM) {
        return Ok(None);
    }
    let Some((through, past)) = both_ways(directory) else { return Ok(None) };
    let pool = PoolConfig::anonymous("probe", BLOCK, 1);
    let mut pool = Pool::new(pool).map_err(io::Error::other)?;
    let Some(mut loan) = pool.loan(Owner::SHARED) else { return Ok(None) };
    let block = loan.spare();
    block.iter_mut().zip(0_u32..).for_each(|(byte, place)| *byte = (place.wrapping_mul(0x9e37_79b9) >> 24) as u8);
    let began = Instant::now();
    let (mut bytes, mut least) = (0, [Duration::MAX; 2]);
    while bytes < MOST_BYTES && (bytes < LEAST_BYTES || began.elapsed() < MOST_TIME) {
        for (way, file) in [&past, &through].into_iter().enumerate() {
            let begin = Instant::now();
            match write_piece(file, block, bytes, way == 1) {
                // The file system reports only now that it does not support such writes.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
                result => result?,
            }
            // The fastest piece counts: others were delayed by other activity.
            least[way] = least[way].min(begin.elapsed());
        }
        bytes += PIECE;
    }
    let [direct, buffered] = least.map(|time| PIECE as f64 / time.as_secs_f64().max(1e-9));
    Ok(Some(WriteProbe { direct, buffered }))
}

/// Opens two files without a name, the second one past the page cache.
fn both_ways(directory: &Path) -> Option<(OwnedFd, OwnedFd)> {
    let open = |more: OFlags| {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC | more;
        fs::open(directory, flags, Mode::RUSR | Mode::WUSR).ok()
    };
    let past = open(OFlags::DIRECT).filter(|file| !open_file::is_in_memory(file))?;
    Some((open(OFlags::empty())?, past))
}

fn write_piece(file: &OwnedFd, block: &[u8], offset: u64, is_cached: bool) -> io::Result<()> {
    let mut written = 0;
    while written < PIECE {
        let length = open_file::write(file.as_fd(), &[IoSlice::new(block)], offset + written).map_err(error)?;
        if length % super::helper::ALIGNMENT != 0 {
            return Err(error(DiskCause::Full));
        }
        written += length as u64;
    }
    if is_cached {
        let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        // SAFETY: the descriptor is open, and this call reads and writes no memory of this process.
        if unsafe { libc::sync_file_range(file.as_raw_fd(), offset as i64, written as i64, flags) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn error(cause: DiskCause) -> io::Error {
    io::Error::from_raw_os_error(cause.number())
}

/// The directory of a file, to be probed.
pub(super) fn directory_of(path: &Path) -> PathBuf {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}
