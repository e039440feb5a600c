//! Accepted events as a stream of records to a FIFO or a Unix socket, in place of run files.
//!
//! ```text
//! event -> record: head staged, payloads by reference, tail staged -> queue -> writev -> reader
//! what a reader receives: segment header, begin of run, events, end of run
//! ```
//! One reader is served at a time. Without a reader, and while it is slow, events wait in the queue and then in the
//! builder, so that back-pressure reaches the sources and nothing is lost. An event counts as written when the kernel
//! has its last byte. When a reader disconnects, the next one receives the interrupted record from its first byte. Data
//! in the kernel that the reader had not read is lost with the reader. Its amount is not known: all events that may
//! have been in the kernel's buffer are counted as gone.

use ropewalk_engine::{
    EventSink, Filed, Progress, Recorded, Sealing, SinkEvent, StorageConfig, StorageCounts, encode_record,
};
use ropewalk_io::disk::DiskCause;
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::{
    AcknowledgementLevel, Cause, EventKey, Incarnation, Instant, PoolAccount, RunNumber, StreamSet, Utc,
};
use ropewalk_wire::run_file::{BeginOfRun, EndOfRun, MINOR_VERSION, SegmentHeader, StreamName};
use rustix::event::epoll;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of events that wait for the reader.
const MOST_EVENTS: usize = 4096;
/// Maximum number of pieces of these events. An event with more is queued alone.
const MOST_PIECES: usize = 1 << 15;
/// Number of pieces in one system call: the limit of Linux (`UIO_MAXIOV`).
const BATCH: usize = 1024;
/// Pause before a FIFO without a reader is tried again. A Unix socket reports its reader by itself.
const RETRY: Duration = Duration::from_millis(100);

/// The kind of the pipe.
#[derive(Debug)]
enum Entrance {
    Fifo,
    Socket(UnixListener),
}

/// An event in the queue.
#[derive(Copy, Clone, Debug)]
struct Record {
    slot: u32,
    pieces: usize,
    bytes: u64,
}

/// The pipe of one builder unit or gateway; see the picture above.
#[derive(Debug)]
pub(super) struct Pipe {
    /// A FIFO that exists, or else a Unix socket that is created here.
    path: PathBuf,
    config: StorageConfig,
    entrance: Entrance,
    /// Readable when a reader has connected or disconnected, or has made room.
    readiness: OwnedFd,
    reader: Option<OwnedFd>,
    staging: Staging,
    scratch: Vec<u8>,
    /// Pieces of the event that is being added.
    pieces: Vec<Slice>,
    run: RunNumber,
    incarnation: Incarnation,
    started: Utc,
    /// Number of readers in this run.
    readers: u32,
    /// The data that a reader receives before its first event, or after the last one, and how much of it the kernel
    /// has.
    frame: Vec<u8>,
    frame_sent: usize,
    queue: VecDeque<Record>,
    queued: VecDeque<Slice>,
    /// Bytes of the first record in the queue that the kernel has.
    sent: u64,
    /// Capacity of the kernel's buffer in bytes, and the lengths of the last records of which that many bytes may be in
    /// it.
    buffer_bytes: u64,
    recent: VecDeque<u64>,
    recent_bytes: u64,
    /// Since when no byte was accepted.
    stalled: Instant,
    retry: Instant,
    counts: StorageCounts,
    last: Option<EventKey>,
    draining: bool,
    given_up: bool,
    end: End,
}

/// Progress of the end of the run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum End {
    Open,
    Framed,
    Closed,
}

impl Pipe {
    /// Opens a pipe at `path`: a FIFO if there is one, else a Unix socket. `config` has the writer, the sources, and
    /// the time-out for a missing reader while the run drains. Heads and tails of records are staged in `staging`.
    ///
    /// # Errors
    /// If the path is neither a FIFO nor a place where a socket can be created.
    pub(super) fn new(path: PathBuf, config: StorageConfig, staging: Staging) -> io::Result<Self> {
        let entrance = entrance(&path)?;
        let readiness = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        if let Entrance::Socket(listener) = &entrance {
            epoll::add(
                &readiness,
                listener,
                epoll::EventData::new_u64(0),
                epoll::EventFlags::IN | epoll::EventFlags::ET,
            )?;
        }
        Ok(Self {
            path,
            config,
            entrance,
            readiness,
            reader: None,
            staging,
            scratch: vec![0; 64 << 10],
            pieces: Vec::with_capacity(4096),
            run: RunNumber(0),
            incarnation: Incarnation(0),
            started: Utc(0),
            readers: 0,
            frame: Vec::with_capacity(4096),
            frame_sent: 0,
            queue: VecDeque::with_capacity(MOST_EVENTS),
            queued: VecDeque::with_capacity(MOST_PIECES),
            sent: 0,
            buffer_bytes: 0,
            recent: VecDeque::with_capacity(MOST_EVENTS),
            recent_bytes: 0,
            stalled: Instant::ZERO,
            retry: Instant::ZERO,
            counts: StorageCounts::default(),
            last: None,
            draining: false,
            given_up: false,
            end: End::Open,
        })
    }

    fn add(&mut self, slot: u32, event: &impl Recorded) -> Filed {
        if self.given_up {
            return Filed::Refused(Cause::WriteFailed);
        }
        if self.queue.len() == MOST_EVENTS {
            return Filed::NoRoom;
        }
        let Self { scratch, staging, pieces, incarnation, .. } = self;
        let (length, index) = match encode_record(event, *incarnation, Sealing::Now, scratch, staging, pieces) {
            Ok(encoded) => encoded,
            Err(filed) => return filed,
        };
        if self.queued.len() + self.pieces.len() > MOST_PIECES && !self.queue.is_empty() {
            self.pieces.clear();
            return Filed::NoRoom;
        }
        self.last = self.last.max(Some(index.key));
        self.queue.push_back(Record { slot, pieces: self.pieces.len(), bytes: length });
        self.queued.extend(self.pieces.drain(..));
        Filed::Taken
    }

    /// Connects the next reader, if there is one.
    fn connect(&mut self, now: Instant) {
        let reader = match &self.entrance {
            Entrance::Socket(listener) => listener.accept().map(|(stream, _)| OwnedFd::from(stream)),
            Entrance::Fifo if now < self.retry => return,
            Entrance::Fifo => {
                self.retry = now.after(RETRY);
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                rustix::fs::open(&self.path, flags, Mode::empty()).map_err(io::Error::from)
            }
        };
        let reader = reader.and_then(|reader| {
            rustix::io::ioctl_fionbio(&reader, true)?;
            let flags = epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(&self.readiness, &reader, epoll::EventData::new_u64(1), flags)?;
            Ok(reader)
        });
        match reader {
            Ok(reader) => {
                let (buffer, fifo) =
                    (rustix::net::sockopt::socket_send_buffer_size(&reader), rustix::pipe::fcntl_getpipe_size(&reader));
                self.buffer_bytes = buffer.or(fifo).unwrap_or(usize::MAX) as u64;
                self.recent.clear();
                self.recent_bytes = 0;
                self.reader = Some(reader);
                self.readers += 1;
                self.counts.refused = None;
                self.stalled = now;
                self.greet();
            }
            // ENXIO: no process has the FIFO open for reading.
            Err(error) => self.refused(error.raw_os_error().unwrap_or_default()),
        }
    }

    fn refused(&mut self, errno: i32) {
        let is_no_reader = [Errno::WOULDBLOCK, Errno::NXIO, Errno::PIPE, Errno::CONNRESET].map(Errno::raw_os_error);
        let errno = if is_no_reader.contains(&errno) { Errno::NOTCONN.raw_os_error() } else { errno };
        self.counts.refused = Some(DiskCause::System(errno));
    }

    /// Puts the beginning of the stream for a reader into the frame.
    fn greet(&mut self) {
        self.frame.clear();
        self.frame_sent = 0;
        let header = SegmentHeader {
            run: self.run,
            segment: self.readers,
            writer: self.config.writer,
            incarnation: self.incarnation,
            start: self.started,
            acknowledgement: AcknowledgementLevel::Written,
            minor: MINOR_VERSION,
            stream: StreamName::UNNAMED,
            // A reader that connects late does not get all events.
            selected: true,
            sources: std::mem::take(&mut self.config.sources),
        };
        let begin = BeginOfRun { run: self.run, start: self.started, text: String::new() };
        // Both fit: the header was checked with the configuration, as that of a run file is.
        let _ = header.encode(&mut self.frame).and_then(|()| begin.encode(&mut self.frame));
        self.config.sources = header.sources;
        if self.end == End::Framed {
            self.frame_end(Utc(0));
        }
    }

    fn frame_end(&mut self, end: Utc) {
        let record = EndOfRun { run: self.run, end, last: self.last, events: self.counts.events, text: String::new() };
        let _ = record.encode(&mut self.frame);
        self.end = End::Framed;
    }

    /// Writes as much as the reader accepts. Returns the number of events that are completely in the kernel.
    fn write(&mut self, now: Instant, progress: &mut Vec<(u32, Progress)>) -> usize {
        let mut written = 0;
        while let Some(reader) = &self.reader
            && (self.frame_sent < self.frame.len() || !self.queue.is_empty())
        {
            let result = if self.frame_sent < self.frame.len() {
                rustix::io::write(reader, &self.frame[self.frame_sent..])
            } else {
                write_records(reader, &self.queued, self.sent)
            };
            match result {
                Ok(bytes) if self.frame_sent < self.frame.len() => self.frame_sent += bytes,
                Ok(bytes) => written += self.took(bytes as u64, progress),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    self.lose_reader(errno);
                    break;
                }
            }
            self.stalled = now;
        }
        written
    }

    /// Accounts for this many further bytes of the records in the kernel.
    fn took(&mut self, bytes: u64, progress: &mut Vec<(u32, Progress)>) -> usize {
        self.sent += bytes;
        self.counts.bytes += bytes;
        let mut written = 0;
        while let Some(&record) = self.queue.front()
            && self.sent >= record.bytes
        {
            self.sent -= record.bytes;
            self.queue.pop_front();
            self.queued.drain(..record.pieces);
            self.counts.events += 1;
            self.remember(record.bytes);
            progress.push((record.slot, Progress::Reached(AcknowledgementLevel::Written)));
            written += 1;
        }
        written
    }

    /// Keeps the lengths of the records that may still be in the kernel's buffer.
    fn remember(&mut self, bytes: u64) {
        while let Some(&oldest) = self.recent.front()
            && (self.recent_bytes + bytes > self.buffer_bytes + oldest || self.recent.len() == MOST_EVENTS)
        {
            self.recent_bytes -= oldest;
            self.recent.pop_front();
        }
        self.recent.push_back(bytes);
        self.recent_bytes += bytes;
    }

    fn lose_reader(&mut self, errno: Errno) {
        self.counts.gone_events += self.recent.len() as u64;
        // The next reader receives the record from its first byte.
        self.counts.bytes -= self.sent;
        self.sent = 0;
        self.reader = None;
        self.frame.clear();
        self.frame_sent = 0;
        self.counts.refusals += 1;
        self.refused(errno.raw_os_error());
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.frame_sent == self.frame.len()
    }

    fn give_up_at(&self) -> Option<Instant> {
        let waits = self.draining && !self.given_up && !self.queue.is_empty();
        waits.then(|| self.stalled.after(self.config.give_up_after))
    }

    fn utc(&self, now: Instant) -> Utc {
        Utc(self.config.epoch.0.saturating_add_unsigned(now.as_nanoseconds()))
    }
}

/// Uses an existing FIFO; otherwise creates a socket, and replaces one that an earlier run left.
fn entrance(path: &Path) -> io::Result<Entrance> {
    match rustix::fs::lstat(path).map(|status| FileType::from_raw_mode(status.st_mode)) {
        Ok(FileType::Fifo) => return Ok(Entrance::Fifo),
        Ok(FileType::Socket) => rustix::fs::unlink(path)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is neither a FIFO nor a socket")),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(Entrance::Socket(listener))
}

/// Writes the first pieces, skipping the bytes that the kernel has.
fn write_records(reader: &OwnedFd, pieces: &VecDeque<Slice>, mut sent: u64) -> Result<usize, Errno> {
    let mut slices = [IoSlice::new(&[]); BATCH];
    let mut count = 0;
    for piece in pieces {
        let Some(rest) = piece.get(sent as usize..).filter(|rest| !rest.is_empty()) else {
            sent -= piece.len() as u64;
            continue;
        };
        sent = 0;
        slices[count] = IoSlice::new(rest);
        count += 1;
        if count == BATCH {
            break;
        }
    }
    rustix::io::writev(reader, &slices[..count])
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if let Entrance::Socket(_) = self.entrance {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

impl EventSink for Pipe {
    fn begin(&mut self, now: Instant, run: RunNumber, incarnation: Incarnation) {
        (self.run, self.incarnation, self.started) = (run, incarnation, self.utc(now));
        (self.counts, self.last, self.readers) = (StorageCounts::default(), None, 0);
        (self.draining, self.given_up, self.end) = (false, false, End::Open);
        (self.reader, self.sent) = (None, 0);
        self.queue.clear();
        self.queued.clear();
    }

    fn add_event(&mut self, _: Instant, slot: u32, event: &SinkEvent<'_>, _: StreamSet) -> Filed {
        match event {
            SinkEvent::Built(event) => self.add(slot, event),
            SinkEvent::Gathered(event) => self.add(slot, event),
        }
    }

    fn flush(&mut self, _: Instant) {}

    fn poll(&mut self, now: Instant, progress: &mut Vec<(u32, Progress)>) -> usize {
        if self.run == RunNumber(0) || self.end == End::Closed {
            return 0;
        }
        if self.reader.is_none() {
            self.connect(now);
        }
        let work = self.write(now, progress);
        if self.give_up_at().is_some_and(|deadline| now >= deadline) {
            self.given_up = true;
            self.reader = None;
            self.queued.clear();
            progress.extend(self.queue.drain(..).map(|record| (record.slot, Progress::Failed)));
        }
        work
    }

    fn drain(&mut self, now: Instant) {
        if !self.draining {
            (self.draining, self.stalled) = (true, now);
        }
    }

    fn finish(&mut self, now: Instant) {
        self.drain(now);
        if self.end == End::Open && self.queue.is_empty() {
            self.frame_end(self.utc(now));
        }
        // The end is sent to a connected reader; none is awaited.
        if self.end == End::Framed && (self.is_empty() || self.reader.is_none() || self.given_up) {
            (self.reader, self.end) = (None, End::Closed);
        }
    }

    fn is_closed(&self) -> bool {
        self.run == RunNumber(0) || self.end == End::Closed
    }

    fn has_given_up(&self) -> bool {
        self.given_up
    }

    fn counts(&self) -> StorageCounts {
        StorageCounts { refused: self.counts.refused.filter(|_| !self.queue.is_empty()), ..self.counts }
    }

    fn copied_bytes(&self) -> u64 {
        0
    }

    fn is_writing(&self) -> bool {
        !self.queue.is_empty()
    }

    fn pool(&mut self) -> PoolAccount {
        self.staging.pool_mut().collect();
        self.staging.pool().account()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let is_due = matches!(self.entrance, Entrance::Fifo) && self.reader.is_none() && self.end == End::Open;
        is_due.then_some(self.retry).into_iter().chain(self.give_up_at()).min()
    }

    fn prepare_wait(&mut self) -> bool {
        // Edge-triggered: an event since the last write must still be taken from the set, so that it wakes only once.
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 4];
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.readiness, &mut events, Some(&timeout)).is_ok_and(|(ready, _)| ready.is_empty())
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.readiness.as_fd())
    }
}
