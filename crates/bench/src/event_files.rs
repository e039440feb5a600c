//! `bench filing`: files of events in memory, through a broker to two filter units that accept a tenth. Two limits: two
//! threads that only read the same files; and the same two units with each file given to the next free unit without a
//! broker, which shows the broker's cost, where units that lock files wait for each other.

use crate::pairs::{Series, alternate};
use crate::session::{Row, Session, case};
use crate::{BenchError, Scale};
use ropewalk_doctor::run::scratch;
use ropewalk_engine::documents::{EndOfLumisection, EndOfRun, Numbers};
use ropewalk_flow::files::{BrokerConfig, FileId, Work};
use ropewalk_limits::process_cpu_seconds;
use ropewalk_terms::{Attempt, RunNumber};
use ropewalk_tools::file_based::documents::write_numbers;
use ropewalk_tools::file_based::{BrokerOptions, FilterUnit, Place, UnitTask, serve_files};
use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::frd::{EventHeader, FileHeader, FileKind, FileName, Version, encode_event};
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const RUN: RunNumber = RunNumber(1);
const LUMISECTION: u32 = 1;
const UNITS: u32 = 2;
/// One event in this many is accepted.
const EVERY: u64 = 10;
/// Fragments per event.
const SOURCES: u32 = 2;
const READ: &str = "limit: two threads that read the same files whole, and do nothing else";
const DEALT: &str =
    "limit: the same two units without a broker, which take the next file by a counter; no file is deleted";

#[derive(Copy, Clone)]
struct Files {
    files: u32,
    /// Events per file.
    events: u32,
    fragment_bytes: usize,
}

impl Files {
    fn file_bytes(self) -> usize {
        (self.events * SOURCES) as usize * self.fragment_bytes
    }
}

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    let small = Files { files: scale.choose(20, 2_000, 5_000), events: 10, fragment_bytes: 1024 };
    let large = Files { files: scale.choose(2, 40, 100), events: 512, fragment_bytes: 16 << 10 };
    for (files, unit) in [(small, "files/s"), (large, "GB/s")] {
        for (beside, note) in [("reading", READ), ("dealt", DEALT)] {
            let file_bytes = json!(files.file_bytes());
            let case = case([("file_bytes", file_bytes), ("files", json!(files.files)), ("beside", json!(beside))]);
            session.measure(&case, |session| {
                let place = in_memory(&session.options.output);
                let measured = measure(scale, files, beside == "reading", &place);
                let _ = std::fs::remove_dir_all(&place);
                let factor = if unit == "GB/s" { files.file_bytes() as f64 / 1e9 } else { 1.0 };
                let [mut series, mut all] = measured?;
                series.ours.iter_mut().chain(&mut series.limit).for_each(|figure| *figure *= factor);
                // Per file: all have the same length.
                let gigabytes = files.file_bytes() as f64 / 1e9;
                all.ours.iter_mut().chain(&mut all.limit).for_each(|figure| *figure /= gigabytes);
                session.row(Row::of(&case, unit, &series, note).with_process_cpu(&all))
            })?;
        }
    }
    Ok(())
}

/// A directory in memory, if the machine has one.
fn in_memory(output: &Path) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let is_writable = rustix::fs::access(memory, rustix::fs::Access::WRITE_OK).is_ok();
    scratch(if is_writable { memory } else { output }, "filing")
}

/// Files a second, and the processor seconds of all threads per file.
fn measure(scale: Scale, files: Files, beside_reading: bool, place: &Path) -> Result<[Series; 2], BenchError> {
    let system = |error| BenchError::system("files of events")(error);
    let master = place.join("master");
    std::fs::create_dir_all(&master).map_err(system)?;
    (0..files.files).try_for_each(|index| write(&master.join(name(index)), index, files))?;
    let ours = || by_broker(&Laid::new(place, files)?, files);
    let limit = || match beside_reading {
        true => by_two(files, |_| Vec::new(), |bytes: &mut Vec<u8>, index| read(&master.join(name(index)), bytes)),
        false => dealt(&Laid::new(place, files)?, files),
    };
    let per_second = |took: Took| {
        let files = f64::from(files.files);
        [files / took.duration.as_secs_f64(), took.process_seconds / files]
    };
    alternate(scale.choose(1, 9, 15), || ours().map(per_second), || limit().map(per_second))
}

fn name(index: u32) -> String {
    FileName { run: RUN, lumisection: LUMISECTION, kind: FileKind::Raw { index } }.to_string()
}

fn write(path: &Path, index: u32, files: Files) -> Result<(), BenchError> {
    let mut bytes = vec![0; FileHeader::default().to_bytes().len()];
    for number in index * files.events..(index + 1) * files.events {
        let payload = vec![number as u8; files.fragment_bytes];
        let fragment = |source| {
            let frames = ForeignFormat::Fed.emulate(source, number, &payload);
            frames.map(|pieces| pieces.concat()).ok_or_else(|| BenchError::wrong("a fragment is too long"))
        };
        let fragments = (1..=SOURCES).map(fragment).collect::<Result<Vec<_>, _>>()?;
        let header = EventHeader {
            version: Version::V5,
            flags: 0,
            run: RUN.0,
            lumisection: LUMISECTION,
            event: number.into(),
            data_bytes: 0,
            padding_bytes: 0,
            checksum: 0,
        };
        let pieces: Vec<&[u8]> = fragments.iter().map(Vec::as_slice).collect();
        encode_event(header, &pieces, &mut bytes).map_err(BenchError::wrong)?;
    }
    let header = FileHeader { events: files.events, file_bytes: bytes.len() as u64 }.to_bytes();
    bytes[..header.len()].copy_from_slice(&header);
    std::fs::write(path, bytes).map_err(BenchError::system("a file of events"))
}

/// A new run directory with the files and the end-of-run file. They are hard links to files that remain, so that
/// nothing is copied.
struct Laid {
    place: Place,
    directory: PathBuf,
}

impl Laid {
    fn new(place: &Path, files: Files) -> Result<Self, BenchError> {
        let directory = place.join("run000001");
        let laid = || {
            std::fs::create_dir_all(directory.join("output"))?;
            let link = |index| std::fs::hard_link(place.join("master").join(name(index)), directory.join(name(index)));
            (0..files.files).try_for_each(link)
        };
        laid().map_err(BenchError::system("the directory of a run"))?;
        let events = u64::from(files.files * files.events);
        let sum = EndOfLumisection { events, files: files.files.into(), total_events: events, ..Default::default() };
        close(&directory, LUMISECTION, FileKind::EndOfLumisection, &sum)?;
        close(&directory, 0, FileKind::EndOfRun, &EndOfRun { events, ..EndOfRun::default() })?;
        let place = Place::open(&directory).map_err(BenchError::wrong)?;
        Ok(Self { place, directory })
    }
}

impl Drop for Laid {
    fn drop(&mut self) {
        // Ignored: the parent directory is removed at the end.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn close(directory: &Path, lumisection: u32, kind: FileKind, document: &impl Numbers) -> Result<(), BenchError> {
    let path = directory.join(FileName { run: RUN, lumisection, kind }.to_string());
    write_numbers(&path, document, "bench").map_err(BenchError::wrong)
}

fn unit() -> Result<FilterUnit, BenchError> {
    let trigger = format!("every = {EVERY}").parse().map_err(BenchError::wrong)?;
    UnitTask::new(&[trigger], None, &[]).load(RUN).map_err(BenchError::wrong)
}

/// Time for all files: elapsed, and of all threads' processors.
#[derive(Copy, Clone, Debug)]
struct Took {
    duration: Duration,
    process_seconds: f64,
}

/// A broker and two units, from the first look to the end of the run.
fn by_broker(laid: &Laid, files: Files) -> Result<Took, BenchError> {
    let options = BrokerOptions { broker: BrokerConfig::default(), units: 0, unit: None };
    let (begin, process, has_failed) = (Instant::now(), process_cpu_seconds(), AtomicBool::new(false));
    let work = |broker| {
        let worked = unit().and_then(|mut unit| unit.filter_files(&laid.place, broker).map_err(BenchError::wrong));
        // A broker without units would wait forever.
        worked.inspect_err(|_| has_failed.store(true, Ordering::Relaxed))
    };
    let summary = thread::scope(|scope| {
        let broker = scope.spawn(|| serve_files(&laid.place, &options, || has_failed.load(Ordering::Relaxed)));
        // The broker listens shortly after its socket has a name.
        while laid.place.connect().is_err() && !broker.is_finished() {
            thread::sleep(Duration::from_micros(50));
        }
        // Both units connect before either works: with few files, the first alone could end the run and the broker.
        let connections = (0..UNITS).map(|_| laid.place.connect()).collect::<Result<Vec<_>, _>>();
        let connections = connections.inspect_err(|_| has_failed.store(true, Ordering::Relaxed));
        let connections = connections.map_err(BenchError::wrong)?;
        let units: Vec<_> = connections.into_iter().map(|broker| scope.spawn(move || work(broker))).collect();
        for unit in units {
            unit.join().map_err(|_| BenchError::wrong("a filter unit panicked"))??;
        }
        let served = broker.join().map_err(|_| BenchError::wrong("the broker panicked"))?;
        served.map_err(BenchError::wrong)
    })?;
    let took = Took { duration: begin.elapsed(), process_seconds: process_cpu_seconds() - process };
    let events = u64::from(files.files * files.events);
    let is_right = summary.balanced && (summary.processed, summary.accepted) == (events, events.div_ceil(EVERY));
    if is_right { Ok(took) } else { Err(BenchError::wrong(format!("{summary:?}"))) }
}

/// Two units without a broker.
fn dealt(laid: &Laid, files: Files) -> Result<Took, BenchError> {
    by_two(
        files,
        |_| unit(),
        |unit, index| {
            let file = FileId { lumisection: LUMISECTION, index };
            let unit = unit.as_mut().map_err(|error| BenchError::wrong(error.to_string()))?;
            unit.filter_file(&laid.place, Work { file, attempt: Attempt(1) }).map_err(BenchError::wrong)
        },
    )
}

/// Two threads, each of which takes the next file until none is left.
fn by_two<T>(
    files: Files,
    begin: impl Fn(u32) -> T + Sync,
    take: impl Fn(&mut T, u32) -> Result<(), BenchError> + Sync,
) -> Result<Took, BenchError> {
    let (next, begun, process) = (AtomicU32::new(0), Instant::now(), process_cpu_seconds());
    let work = |thread| -> Result<(), BenchError> {
        let mut own = begin(thread);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= files.files {
                return Ok(());
            }
            take(&mut own, index)?;
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..UNITS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| BenchError::wrong("a thread panicked"))?)
    })?;
    Ok(Took { duration: begun.elapsed(), process_seconds: process_cpu_seconds() - process })
}

fn read(path: &Path, bytes: &mut Vec<u8>) -> Result<(), BenchError> {
    bytes.clear();
    let read = File::open(path).and_then(|mut file| file.read_to_end(bytes));
    read.map(drop).map_err(BenchError::system("a file of events"))
}
