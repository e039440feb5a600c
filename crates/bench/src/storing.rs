//! `bench storing`: events in memory into run files, by a builder unit's storage and the machine's disk, beside a bare
//! loop that writes prepared blocks; and compressed by zstd on a separate thread, beside the library alone.
//!
//! `bench write`: from sockets to run files, beside a bare loop on the same device.

use crate::pairs::{Series, alternate};
use crate::session::{Row, Session, case};
use crate::{BenchError, Scale};
use ropewalk_doctor::run::{RunPlan, scratch};
use ropewalk_engine::{EventSink, Filed, Progress, Recorded, Storage, StorageConfig, StreamStorage};
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::disk::{RealDisk, RealDiskConfig, WriteMode};
use ropewalk_limits::{SlinkConfig, process_cpu_seconds};
use ropewalk_memory::{HugePages, Owner, Pool, PoolConfig, Slice, Staging};
use ropewalk_terms::{Attempt, EventKey, Incarnation, NodeId, RunNumber, SourceId, StreamIndex, StreamSet};
use ropewalk_wire::run_file::{
    Compression, EventFlags, EventHead, EventRecordEncoder, FragmentEntry, MissingSource, STRETCH_BYTES,
    run_directory_name,
};
use rustix::fs::{Mode, OFlags};
use serde_json::json;
use std::fs::File;
use std::io::{Error, ErrorKind, Write};
use std::path::Path;
use std::time::{Duration, Instant};

const SOURCES: u32 = 16;
const FRAGMENT_BYTES: usize = 2048;
/// The number of memory blocks for fragments, and the bytes of one.
const FRAGMENT_BLOCKS: usize = 256;
const FRAGMENT_BLOCK: usize = 64 << 10;
/// Bytes of a bare write, as in the disk's thread.
const BLOCK: usize = 1 << 20;
const FILE_BYTES: u64 = 512 << 20;
const NOTE_PLAIN: &str =
    "limit: a bare loop over ordinary memory, 1 MiB a write, in order; nothing is synced; target: 0.9";
const NOTE_HUGE: &str =
    "limit: the same loop over memory in huge pages, which is the most that this machine writes; nothing is synced";

/// The compression level of storage.
const LEVEL: u8 = 1;
const PACKED_NOTE: &str =
    "limit: the library alone on one thread, the same segment, 1 MiB at once, nothing written; target: 0.9";

const PACKED_BY_TWO_NOTE: &str = "limit: the library alone on one thread";

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    // With direct writes, the page size of the source memory matters: ours is huge pages, a simple loop's is not.
    let ways = [
        ("direct", WriteMode::Direct, HugePages::Never, NOTE_PLAIN),
        ("direct", WriteMode::Direct, HugePages::Auto, NOTE_HUGE),
        ("buffered", WriteMode::Buffered, HugePages::Never, NOTE_PLAIN),
    ];
    for (name, mode, huge_pages, note) in ways {
        let is_huge = huge_pages == HugePages::Auto;
        let case = case([
            ("write", json!(name)),
            ("bare_in_huge_pages", json!(is_huge)),
            ("sources", json!(SOURCES)),
            ("fragment_bytes", json!(FRAGMENT_BYTES)),
        ]);
        session.measure(&case, |session| {
            let [rate, all] = measure(session.options.scale, mode, huge_pages, &session.options.output)?;
            session.row(Row::of(&case, "GB/s", &rate, note).with_process_cpu(&all))
        })?;
    }
    for (threads, note) in [(1, PACKED_NOTE), (2, PACKED_BY_TWO_NOTE)] {
        let case = case([
            ("packed", json!("zstd:1")),
            ("threads", json!(threads)),
            ("sources", json!(SOURCES)),
            ("fragment_bytes", json!(FRAGMENT_BYTES)),
        ]);
        session.measure(&case, |session| {
            let [rate, all] = measure_packing(session.options.scale, threads, &session.options.output)?;
            session.row(Row::of(&case, "GB/s", &rate, note).with_process_cpu(&all))
        })?;
    }
    Ok(())
}

/// Storage compresses on its own threads and writes the output; the library compresses the same bytes without output.
fn measure_packing(scale: Scale, threads: u8, output: &Path) -> Result<[Series; 2], BenchError> {
    let bytes = scale.choose(4 << 20, 512 << 20, 2 << 30);
    let directory = scratch(output, "storing-packed");
    let ours = || {
        let config = StorageConfig { packing_threads: threads, ..packed(config(&directory)) };
        let written = store(WriteMode::Buffered, config, bytes);
        let _ = std::fs::remove_dir_all(&directory);
        written
    };
    let segment = segment(&directory)?;
    let limit = || pack_bare(&segment, bytes).map_err(BenchError::system("zstd"));
    alternate(scale.pairs(), ours, limit)
}

/// The beginning of an uncompressed segment: records of the same events, truncated to the total size of the fragments.
fn segment(directory: &Path) -> Result<Vec<u8>, BenchError> {
    let bytes = FRAGMENT_BLOCK * FRAGMENT_BLOCKS;
    store(WriteMode::Buffered, config(directory), bytes as u64)?;
    let read = || {
        let run = directory.join(run_directory_name(RunNumber(1)));
        let file = std::fs::read_dir(run)?.next().ok_or_else(|| Error::other("no segment"))??.path();
        let mut segment = std::fs::read(file)?;
        std::fs::remove_dir_all(directory)?;
        segment.truncate(bytes);
        Ok(segment)
    };
    read().map_err(BenchError::system("a segment"))
}

fn packed(config: StorageConfig) -> StorageConfig {
    StorageConfig {
        streams: vec![StreamStorage { compression: Compression::Zstd(LEVEL), ..StreamStorage::default() }],
        ..config
    }
}

/// Compresses this many bytes of a segment with the library alone, in pieces of the run file's size.
fn pack_bare(segment: &[u8], bytes: u64) -> std::io::Result<[f64; 2]> {
    let mut compressor = zstd::bulk::Compressor::new(LEVEL.into())?;
    let mut out = vec![0; 2 * STRETCH_BYTES];
    let begin = Stretch::begin();
    for stretch in segment.chunks_exact(STRETCH_BYTES).cycle().take(bytes as usize / STRETCH_BYTES) {
        compressor.compress_to_buffer(stretch, &mut out[..])?;
    }
    Ok(begin.figures(bytes))
}

/// Samples of 16 bits with a few bits of noise on a drifting baseline, as digitisers send them. The noise differs per
/// number, or the compressor would find repeated bytes.
fn fill(bytes: &mut [u8], number: u32) {
    let mut noise = 0x9e37_79b9_u32.wrapping_mul(2 * number + 1);
    for (place, sample) in bytes.chunks_exact_mut(2).enumerate() {
        noise ^= noise << 13;
        noise ^= noise >> 17;
        noise ^= noise << 5;
        let value = 2000 + (place / 64 % 200) as u16 + (noise & 0xf) as u16;
        sample.copy_from_slice(&value.to_le_bytes());
    }
}

fn measure(scale: Scale, mode: WriteMode, huge_pages: HugePages, output: &Path) -> Result<[Series; 2], BenchError> {
    let bytes = scale.choose(4 << 20, 1 << 30, 4 << 30);
    let directory = scratch(output, "storing");
    let clean = || {
        // Ignored: what remains is this process's own directory, and the figure is valid.
        let _ = std::fs::remove_dir_all(&directory);
    };
    let ours = || {
        let written = store(mode, config(&directory), bytes);
        clean();
        written
    };
    let limit = || {
        let bare = BareFiles { mode, huge_pages, block: BLOCK };
        let written = bare.write(&directory, |written| written >= bytes).map_err(BenchError::system("bare writing"));
        clean();
        written
    };
    alternate(scale.pairs(), ours, limit)
}

/// An event whose fragments are in memory.
struct Prepared<'a> {
    number: u64,
    fragments: &'a [Slice],
}

impl Recorded for Prepared<'_> {
    fn head(&self, incarnation: Incarnation) -> EventHead {
        let (key, flags) = (EventKey::new(0, self.number), EventFlags::default());
        EventHead { key, incarnation, attempt: Attempt(1), trigger_type: 0, flags }
    }

    fn missing(&self) -> impl Iterator<Item = MissingSource> + Clone {
        std::iter::empty()
    }

    fn entries(&self) -> impl Iterator<Item = FragmentEntry> + Clone {
        let raw_id = self.number;
        (0..)
            .zip(self.fragments)
            .map(move |(source, fragment)| FragmentEntry::bare(SourceId(source), raw_id, fragment.len() as u32))
    }

    fn payloads(&self, encoder: &mut EventRecordEncoder, _: &mut Staging, pieces: &mut Vec<Slice>) -> bool {
        self.fragments.iter().for_each(|fragment| encoder.payload(fragment));
        pieces.extend_from_slice(self.fragments);
        true
    }
}

fn pool(name: &str, block: usize, blocks: usize) -> Result<Pool, BenchError> {
    Pool::new(PoolConfig::anonymous(name, block, blocks)).map_err(|error| BenchError::wrong(error.to_string()))
}

/// Writes events until this many bytes are acknowledged.
fn store(mode: WriteMode, config: StorageConfig, bytes: u64) -> Result<[f64; 2], BenchError> {
    let mut fragments = Vec::new();
    let mut blocks = pool("fragments", FRAGMENT_BLOCK, FRAGMENT_BLOCKS)?;
    let mut number = 0;
    while let Some(mut loan) = blocks.loan(Owner::SHARED) {
        fill(loan.spare(), number);
        number += 1;
        loan.commit(loan.spare_len());
        let mut rest = loan.split_committed().ok_or_else(|| BenchError::wrong("an empty block"))?;
        while rest.len() > FRAGMENT_BYTES {
            fragments.push(rest.split_to(FRAGMENT_BYTES));
        }
        fragments.push(rest);
    }
    let events: Vec<&[Slice]> = fragments.chunks_exact(SOURCES as usize).collect();
    let (threads, packing_threads) = (config.disk_threads(), config.packing_threads);
    let is_packed = config.streams.iter().any(|stream| stream.compression != Compression::None);
    let disk = RealDisk::new(RealDiskConfig { mode, threads, packing_threads, ..RealDiskConfig::default() }, || {});
    let disk = disk.map_err(BenchError::system("the disk's thread"))?;
    let mut storage = Storage::new(disk, config, Staging::new(pool("records", 64 << 10, 512)?));
    let clock = MonotonicClock;
    // A batch takes a disk half a millisecond, and a compressing thread ten.
    let pause = Duration::from_micros(if is_packed { 500 } else { 20 });
    storage.begin(clock.now(), RunNumber(1), Incarnation(1));
    let (mut number, mut progress) = (0, Vec::new());
    let begin = Stretch::begin();
    while storage.counts().bytes < bytes {
        let fragments = events[number as usize % events.len()];
        let event = Prepared { number, fragments };
        if storage.add(clock.now(), 0, &event, StreamSet::of(StreamIndex(0))) == Filed::Taken {
            number += 1;
            if number % 64 != 0 {
                continue;
            }
        } else {
            std::thread::sleep(pause);
        }
        storage.flush(clock.now());
        storage.poll(clock.now(), &mut progress);
        if progress.drain(..).any(|(_, progress)| progress == Progress::Failed) {
            return Err(BenchError::wrong("the disk failed"));
        }
    }
    Ok(begin.figures(storage.counts().bytes))
}

fn config(directory: &Path) -> StorageConfig {
    StorageConfig {
        segment_bytes: FILE_BYTES,
        keep: Some(2 * FILE_BYTES),
        give_up_after: Duration::from_secs(60),
        ..StorageConfig::new(NodeId::builder(0), directory)
    }
}

/// The elapsed time and the processor seconds of a stretch of work.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Stretch {
    begin: Instant,
    process_seconds: f64,
}

impl Stretch {
    pub(crate) fn begin() -> Self {
        Self { begin: Instant::now(), process_seconds: process_cpu_seconds() }
    }

    /// 10^9 bytes a second, and the processor seconds of all threads per 10^9 bytes, for this number of bytes.
    pub(crate) fn figures(self, bytes: u64) -> [f64; 2] {
        let (seconds, process) = (self.begin.elapsed().as_secs_f64(), process_cpu_seconds() - self.process_seconds);
        let gigabytes = (bytes as f64).max(1.0) / 1e9;
        [gigabytes / seconds.max(1e-9), process / gigabytes]
    }
}

/// A loop that writes files of the size of a run's in order, one after the other, and keeps as many.
#[derive(Copy, Clone, Debug)]
pub(crate) struct BareFiles {
    pub(crate) mode: WriteMode,
    pub(crate) huge_pages: HugePages,
    /// Bytes of a write.
    pub(crate) block: usize,
}

impl BareFiles {
    /// Writes until `is_over`, which gets the number of bytes written. Returns rate and cost.
    pub(crate) fn write(self, directory: &Path, is_over: impl Fn(u64) -> bool) -> std::io::Result<[f64; 2]> {
        std::fs::create_dir_all(directory)?;
        let way = if self.mode == WriteMode::Direct { OFlags::DIRECT } else { OFlags::empty() };
        let config = PoolConfig { huge_pages: self.huge_pages, ..PoolConfig::anonymous("bare", self.block, 1) };
        let mut memory = Pool::new(config).map_err(Error::other)?;
        let mut block = memory.loan(Owner::SHARED).ok_or_else(|| Error::other("no block"))?;
        block.spare().fill(0x5a);
        let (begin, mut written) = (Stretch::begin(), 0);
        for number in 0.. {
            let path = directory.join(format!("bare{number}"));
            let flags = way | OFlags::WRONLY | OFlags::CREATE;
            let mut file = File::from(rustix::fs::open(&path, flags, Mode::from_raw_mode(0o644))?);
            for _ in 0..FILE_BYTES / self.block as u64 {
                if is_over(written) {
                    return Ok(begin.figures(written));
                }
                file.write_all(block.spare())?;
                written += self.block as u64;
            }
            if number >= 2 {
                std::fs::remove_file(directory.join(format!("bare{}", number - 2)))?;
            }
        }
        unreachable!("files have no last number")
    }
}

/// Whether the file system of this directory accepts direct writes; some, such as older tmpfs, refuse them.
pub(crate) fn takes_direct_writes(directory: &Path) -> Result<bool, BenchError> {
    let bare = BareFiles { mode: WriteMode::Direct, huge_pages: HugePages::Never, block: BLOCK };
    let written = bare.write(directory, |written| written > 0);
    let _ = std::fs::remove_dir_all(directory);
    match written {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(false),
        Err(error) => Err(BenchError::system("bare writing")(error)),
    }
}

/// Bytes of one bare write: the maximum that the builder unit gathers.
const WRITE_BATCH: usize = 8 << 20;
const NOTE_WRITE: &str =
    "limit: the device, which one thread writes in order with O_DIRECT, 8 MiB at a time; both without sync";
/// The note if the limit is not the device.
const CACHED: &str =
    "this file system takes no O_DIRECT: the limit is a loop of buffered writes, the page cache and not the device";

pub(crate) fn bench_write(session: &mut Session<'_>) -> Result<(), BenchError> {
    let sender = SlinkConfig::default();
    let case = case([("sources", json!(sender.streams)), ("fragment_bytes", json!(sender.fragment_bytes))]);
    session.measure(&case, |session| {
        let scale = session.options.scale;
        // The disk thread must not share the nodes' processor.
        let usual = session.plan(sender, [100, 1500, 3000], "write");
        let plan = RunPlan { check_crc: true, write: true, cpus: None, ..usual };
        let directory = scratch(&session.options.output, "write-bare");
        let is_direct = takes_direct_writes(&directory)?;
        let mode = if is_direct { WriteMode::Direct } else { WriteMode::Buffered };
        let bare =
            BareFiles { mode, huge_pages: HugePages::Auto, block: scale.choose(64 << 10, WRITE_BATCH, WRITE_BATCH) };
        let ours = || {
            let ran = plan.run()?;
            Ok([ran.gigabytes_per_second, ran.cpu_seconds_per_gigabyte])
        };
        let limit = || {
            let begin = Instant::now();
            let written = bare.write(&directory, |_| begin.elapsed() >= plan.interval);
            // Ignored: what remains is this process's own directory, and the figure is valid.
            let _ = std::fs::remove_dir_all(&directory);
            written.map_err(BenchError::system("bare writing"))
        };
        let [rate, all] = alternate(scale.pairs(), ours, limit)?;
        let row = Row::of(&case, "GB/s", &rate, NOTE_WRITE).with_process_cpu(&all);
        session.row(row.with_remark((!is_direct).then(|| CACHED.to_owned())))
    })
}
