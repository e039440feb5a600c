//! Threads beside the drives: they write data in place of sources, or save data from before a fault.

use super::source_summary::InputSummary;
use super::workshop::{Workshop, epoch};
use ropewalk_config::ByteOrigin;
use ropewalk_config::{NetworkAddress, SourceInput, SourceSection};
use ropewalk_engine::{BlackBox, BlackBoxConfig, ReadoutDrive, Recording, RecordingLine};
use ropewalk_io::Dispatcher;
use ropewalk_io::tcp::Tcp;
use ropewalk_io::wait::Bell;
use ropewalk_memory::ring::RingWriter;
use ropewalk_terms::{SourceId, Utc};
use ropewalk_tools::OfflineError;
use ropewalk_tools::felix::{BlockInput, blocks};
use ropewalk_tools::foreign::{SavedAs, encode_capture};
use ropewalk_wire::felix::{BlockFormat, BlockHeader, ELINKS, HEADER_BYTES, SEQUENCES};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause before it checks again for room in the ring.
const NO_ROOM: Duration = Duration::from_micros(100);
/// Minimum wait of a rate-limited writer. A shorter lead is ignored.
const LEAST_WAIT: Duration = Duration::from_millis(1);
/// Maximum time between two checks whether there is still a reader.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// Notes of the writer of a ring or of a source.
#[derive(Debug, Default)]
pub(super) struct FeederNotes {
    said: OnceLock<Vec<String>>,
    input: OnceLock<InputSummary>,
}

impl FeederNotes {
    /// Returns the problems. Set at the writer's end.
    pub(super) fn all(&self) -> &[String] {
        self.said.get().map_or(&[], Vec::as_slice)
    }

    /// Records the problems, once.
    pub(super) fn leave(&self, notes: Vec<String>) {
        // This is the only writer of the notes.
        let _ = self.said.set(notes);
    }

    /// Records the account of a file that was read, once.
    pub(super) fn leave_input(&self, input: InputSummary) {
        let _ = self.input.set(input);
    }
}

/// Feeds a source or a card, on a separate thread that starts after all others.
pub(super) struct Feed {
    /// The thread's name.
    pub(super) name: String,
    /// Set to end the thread.
    pub(super) is_over: Arc<AtomicBool>,
    pub(super) work: Work,
}

/// The work of the thread. It ends by itself, or when the flag is set.
pub(super) type Work = Box<dyn FnOnce(&ChildSlot, &FeederNotes, &Arc<AtomicBool>) + Send>;

impl Feed {
    pub(super) fn new(
        name: impl Into<String>,
        work: impl FnOnce(&ChildSlot, &FeederNotes, &Arc<AtomicBool>) + Send + 'static,
    ) -> Self {
        Self { name: name.into(), is_over: Arc::default(), work: Box::new(work) }
    }
}

/// The running thread of a feed.
#[derive(Debug)]
pub(super) struct RunningFeeder {
    /// The card's name.
    pub(super) name: String,
    pub(super) thread: JoinHandle<()>,
    /// Set to end it soon.
    pub(super) is_over: Arc<AtomicBool>,
    pub(super) notes: Arc<FeederNotes>,
    /// Empty if there is no separate process.
    pub(super) child: ChildSlot,
}

impl RunningFeeder {
    /// Returns the account of a file that replaces a source. Set when it has ended.
    pub(super) fn input(&self) -> Option<InputSummary> {
        self.notes.input.get().cloned()
    }

    /// Returns the problems, with the card's name.
    pub(super) fn remarks(&self) -> impl Iterator<Item = String> {
        self.notes.all().iter().map(|note| format!("{}: {note}", self.name))
    }
}

/// Writes blocks into a ring.
pub(super) struct Feeder {
    pub(super) origin: ByteOrigin,
    pub(super) input: BlockInput,
    /// Bytes outside of blocks that earlier passes over the file skipped.
    pub(super) skipped_before: u64,
    pub(super) writer: RingWriter,
    /// Wakes the ring's reader if it sleeps.
    pub(super) bell: Option<Bell>,
    /// Whether to repeat the file, with continuous sequence numbers.
    pub(super) again: bool,
    pub(super) bytes_per_second: Option<f64>,
    /// Set when no more data is wanted.
    pub(super) is_over: Arc<AtomicBool>,
}

/// Bytes that were read and belong to no block.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Unread {
    /// Before and between blocks.
    pub(super) skipped: u64,
    /// At the end.
    pub(super) left_over: u64,
}

impl Feeder {
    /// Writes all blocks, and ends the ring. The notes contain the problems. Returns the number of bytes that belonged
    /// to no block.
    ///
    /// # Errors
    /// If reading fails. Blocks read before that are written.
    pub(super) fn feed(mut self, notes: &FeederNotes) -> Result<Unread, OfflineError> {
        let fed = self.feed_all();
        let must_ring = self.writer.close();
        self.ring_if(must_ring);
        let path = self.origin.path().display();
        let (skipped, left_over) = (self.skipped_before + self.input.skipped_bytes(), self.input.left_over_bytes());
        let mut said = Vec::new();
        if skipped > 0 {
            said.push(format!("{path}: {skipped} bytes between blocks belong to none"));
        }
        if left_over > 0 {
            said.push(format!("{path}: the last {left_over} bytes are no whole block"));
        }
        said.extend(fed.as_ref().err().map(ToString::to_string));
        notes.leave(said);
        fed.map(|()| Unread { skipped, left_over })
    }

    fn feed_all(&mut self) -> Result<(), OfflineError> {
        let (format, begin, mut numbers) = (self.input.format(), Instant::now(), Numbers::default());
        loop {
            while let Some((_, blocks)) = self.input.next_blocks()? {
                for block in blocks.chunks_exact(format.block_bytes()) {
                    let due = self.bytes_per_second.map(|rate| {
                        let bytes = self.writer.written() + block.len() as u64;
                        begin + Duration::from_secs_f64(bytes as f64 / rate)
                    });
                    let end = End { is_over: &self.is_over, bell: self.bell.as_ref() };
                    let block = if self.again { &numbers.of(block, format) } else { block };
                    if !end.wait_until(due, &self.writer) || !end.write(&mut self.writer, block) {
                        return Ok(());
                    }
                }
            }
            if !self.again || self.is_over.load(Ordering::Relaxed) {
                // The reader of the ring counts an incomplete block.
                let end = End { is_over: &self.is_over, bell: self.bell.as_ref() };
                end.write(&mut self.writer, self.input.left_over());
                return Ok(());
            }
            numbers.begin_again();
            self.skipped_before += self.input.skipped_bytes();
            self.input = match blocks(&self.origin, &self.is_over) {
                // It was stopped since the file was opened. Then nothing is read, which looks like an empty file.
                Err(_) if self.is_over.load(Ordering::Relaxed) => return Ok(()),
                opened => opened?,
            };
        }
    }

    fn ring_if(&self, must_ring: bool) {
        if must_ring && let Some(bell) = &self.bell {
            bell.ring();
        }
    }
}

/// The reader at the ring's other end, and whether it still wants data.
struct End<'a> {
    is_over: &'a AtomicBool,
    bell: Option<&'a Bell>,
}

impl End<'_> {
    fn is_gone(&self, writer: &RingWriter) -> bool {
        writer.is_abandoned() || self.is_over.load(Ordering::Relaxed)
    }

    /// Waits for a block's time. Returns false if the reader has gone.
    fn wait_until(&self, due: Option<Instant>, writer: &RingWriter) -> bool {
        // Short waits are accumulated: a sleep takes longer than many blocks.
        while let Some(rest) = due.and_then(|due| due.checked_duration_since(Instant::now()))
            && rest > LEAST_WAIT
        {
            if self.is_gone(writer) {
                return false;
            }
            std::thread::sleep(rest.min(LONGEST_WAIT));
        }
        true
    }

    /// Writes a block, or the last part of one, as soon as there is room. Returns false if the reader has gone.
    fn write(&self, writer: &mut RingWriter, block: &[u8]) -> bool {
        while !self.is_gone(writer) {
            if let Some(space) = writer.space().get_mut(..block.len()) {
                space.copy_from_slice(block);
                if writer.commit(block.len())
                    && let Some(bell) = self.bell
                {
                    bell.ring();
                }
                return true;
            }
            std::thread::sleep(NO_ROOM);
        }
        false
    }
}

/// Continuous sequence numbers for a file that is written repeatedly.
struct Numbers {
    /// By e-link: the offset added to the file's number, and the last number that was written.
    links: Vec<(u8, Option<u8>)>,
    /// By e-link: whether its first block of this pass has been written.
    is_begun: Vec<bool>,
    is_first_time: bool,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { links: vec![(0, None); ELINKS], is_begun: vec![false; ELINKS], is_first_time: true }
    }
}

impl Numbers {
    fn begin_again(&mut self) {
        self.is_first_time = false;
        self.is_begun.fill(false);
    }

    /// Returns the block with its new number.
    fn of(&mut self, block: &[u8], format: BlockFormat) -> Vec<u8> {
        let mut block = block.to_vec();
        if let Some(head) = block.first_chunk_mut::<HEADER_BYTES>()
            && let Ok(header) = BlockHeader::parse(head, format)
        {
            let (added, last) = &mut self.links[header.elink.index()];
            if !std::mem::replace(&mut self.is_begun[header.elink.index()], true) && !self.is_first_time {
                *added = last.map_or(0, |last| last.wrapping_add(1).wrapping_sub(header.sequence) % SEQUENCES);
            }
            let sequence = (header.sequence + *added) % SEQUENCES;
            *last = Some(sequence);
            *head = BlockHeader { sequence, ..header }.to_bytes(format);
        }
        block
    }
}

/// Name of the directory for the files in the run's directory.
const DIRECTORY: &str = "black-box";
/// How often to check whether there is something to save.
const LOOK: Duration = Duration::from_millis(50);

/// Saves one source's recordings.
pub(super) struct Saver {
    name: String,
    /// Format for its datagrams; `None` for a stream.
    datagrams: Option<SavedAs>,
    line: RecordingLine,
    saved: u32,
}

/// Interval of the checks whether the process is alive.
const LIFE_LOOK: Duration = Duration::from_millis(5);
/// Time in which it may end by itself when the run is over.
const LEAVING: Duration = Duration::from_secs(1);

/// The process, while it is alive.
#[derive(Clone, Debug, Default)]
pub(super) struct ChildSlot(Arc<Mutex<Option<Child>>>);

impl ChildSlot {
    /// Asks the process to end: a card writes the data of earlier triggers, and no more.
    pub(super) fn stop(&self) {
        self.with(|child| {
            // Only for a process that was not waited for: its number is still its own.
            if let Ok(None) = child.try_wait() {
                let _ = kill_process(Pid::from_child(child), Signal::TERM);
            }
        });
    }

    /// Waits for the end of a process. `is_over` ends it at the latest. Returns its number and its exit status.
    pub(super) fn watch(&self, started: Child, is_over: &AtomicBool) -> io::Result<(u32, ExitStatus)> {
        let process = started.id();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        Ok((process, wait(self, is_over)?))
    }

    fn with<T>(&self, what: impl FnOnce(&mut Child) -> T) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(what)
    }
}

fn wait(child: &ChildSlot, is_over: &AtomicBool) -> io::Result<ExitStatus> {
    let mut over_since = None;
    loop {
        let looked = child.with(|child| {
            let since = is_over.load(Ordering::Relaxed).then(|| *over_since.get_or_insert_with(Instant::now));
            if since.is_some_and(|since| since.elapsed() >= LEAVING) {
                child.kill()?;
            }
            child.try_wait()
        });
        match looked {
            Some(Ok(None)) => std::thread::sleep(LIFE_LOOK),
            Some(Ok(Some(status))) => return Ok(status),
            Some(Err(error)) => return Err(error),
            None => return Err(io::Error::other("it is not there")),
        }
    }
}

pub(super) fn how_it_ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, code) => format!("ended with status {}", code.unwrap_or_default()),
    }
}

impl Workshop<'_> {
    /// Gives the sources of a readout unit their black boxes, if configured. `addresses` are the listening addresses
    /// found when the entrances were opened.
    pub(super) fn black_boxes<P: Dispatcher>(
        &self,
        index: u16,
        readout: &mut ReadoutDrive<Tcp, P>,
        addresses: &[(String, String)],
    ) -> Vec<Saver> {
        let mut savers = Vec::new();
        for source in self.resolved.sources_of(index) {
            let Some(wanted) = &source.black_box else { continue };
            let config = BlackBoxConfig { last: wanted.last.0, max_bytes: wanted.max.0 as usize };
            let (black_box, line) = BlackBox::new(SourceId(source.id), config);
            let (name, in_datagrams) = (source.name_or_id(), readout.add_black_box(SourceId(source.id), black_box));
            let bound = addresses.iter().find(|(known, _)| *known == name);
            let datagrams = in_datagrams.then(|| saved_as(source, bound.map(|(_, address)| address.as_str())));
            savers.push(Saver { name, datagrams, line, saved: 0 });
        }
        savers
    }
}

/// Returns the format for saving a source's datagrams: as received, as far as a socket tells.
fn saved_as(source: &SourceSection, bound: Option<&str>) -> SavedAs {
    let wanted = source.wanted();
    if let SourceInput::Listen(NetworkAddress::Ip(address, protocol)) = source.input {
        return SavedAs::Packets(address, protocol);
    }
    let to = SocketAddr::new(wanted.to.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), wanted.port.unwrap_or(0));
    match (wanted.protocol, bound.and_then(|bound| bound.parse().ok()), to.ip()) {
        (Some(protocol), _, IpAddr::V4(to)) => SavedAs::Packets(to, protocol),
        (_, Some(bound), _) => SavedAs::Datagrams(bound),
        (_, None, _) => SavedAs::Datagrams(to),
    }
}

/// Saves recordings until `is_over` is set. The notes contain what was saved where.
pub(super) fn save_black_boxes(mut savers: Vec<Saver>, directory: &Path, is_over: &AtomicBool, notes: &FeederNotes) {
    let (directory, epoch, mut said) = (directory.join(DIRECTORY), epoch(), Vec::new());
    loop {
        // In this order: recordings handed over before the end are still saved.
        let is_last = is_over.load(Ordering::Relaxed);
        for saver in &mut savers {
            while let Some(recording) = saver.line.take_next() {
                said.push(saver.save(&recording, &directory, epoch));
                saver.line.give_back(recording);
            }
        }
        if is_last {
            break;
        }
        std::thread::sleep(LOOK);
    }
    notes.leave(said);
}

impl Saver {
    /// Saves a recording; returns the remarks on it.
    fn save(&mut self, recording: &Recording, directory: &Path, epoch: Utc) -> String {
        let Some((what, at)) = recording.incident() else { return String::new() };
        self.saved += 1;
        let ending = if self.datagrams.is_some() { "pcapng" } else { "raw" };
        let file = directory.join(format!("{}-{}-{what}.{ending}", self.name, self.saved));
        let written = std::fs::create_dir_all(directory).and_then(|()| self.write(recording, &file, epoch));
        let seconds = recording.since().map_or(Duration::ZERO, |since| at.since(since)).as_secs_f64();
        match written {
            Ok(()) => format!("{}: {what}; what came in the {seconds:.3} s before is in {}", self.name, file.display()),
            Err(error) => {
                format!("{}: {what}; what came before cannot be saved in {}: {error}", self.name, file.display())
            }
        }
    }

    fn write(&self, recording: &Recording, file: &PathBuf, epoch: Utc) -> std::io::Result<()> {
        let mut out = BufWriter::new(File::create(file)?);
        match self.datagrams {
            None => recording.stream().iter().try_for_each(|piece| out.write_all(piece))?,
            Some(saved_as) => {
                let utc = |at: ropewalk_terms::Instant| Utc(epoch.0.saturating_add(at.as_nanoseconds() as i64));
                let packets = recording.datagrams().map(|(at, from, pieces)| (utc(at), from, pieces.concat()));
                encode_capture(saved_as, packets, &mut out)?;
            }
        }
        out.flush()
    }
}
