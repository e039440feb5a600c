//! Beside the one who reads: the process is started, asked, looked at and ended, and never waited for.

use super::MOST_FRAMES;
use super::greeting::{DONE, Greeting, LAST_WORDS, MOST_GREETING, MOST_TEXT, Places, missing_of};
use super::region::{Region, Writable};
use crate::confinement::{Ending, Missing, WORDS};
use crate::journal::{End, Journal};
use crate::pieces::{Nonsense, check};
use crate::splitter::SplitterConfig;
use crate::table::RawPiece;
use ropewalk_memory::Payload;
use ropewalk_terms::Cause;
use ropewalk_wire::framing::{MOST_PIECES, Piece};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv,
    send, sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A splitter, and what its process may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessConfig {
    /// Which splitter.
    pub splitter: SplitterConfig,
    /// Bytes of memory that it may take, beside those that it shares.
    pub memory: u64,
    /// The program and its arguments that call [`serve`](super::serve).
    pub command: Vec<PathBuf>,
}

/// What is seen of the process.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Sight {
    /// It has become ready.
    pub is_ready: bool,
    /// Frames of the batch that it has done.
    pub done: usize,
    /// It was there, and has ended: that is certain.
    pub has_ended: bool,
}

/// A process that is there.
#[derive(Debug)]
struct Running {
    child: Child,
    /// None where it has closed it.
    socket: Option<OwnedFd>,
    /// Becomes readable when the process ends; watched by [`SplitterProcess::waits`] as long as it is there.
    _end: OwnedFd,
    is_ready: bool,
    /// It is ended since it has closed what is spoken to it over.
    is_deaf: bool,
    /// Why it is ended otherwise.
    why: Option<End>,
}

/// The process of a splitter, of which there may be several, one after the other: see the module's picture.
#[derive(Debug)]
pub struct SplitterProcess {
    config: ProcessConfig,
    places: Places,
    frames: Region,
    answers: Region,
    /// The descriptors of both.
    memories: [OwnedFd; 2],
    running: Option<Running>,
    /// Watches whichever process there is: whoever sleeps until something comes asks once what to wait for.
    waits: OwnedFd,
    /// It could not be started: that is told as its end.
    has_failed: bool,
    journal: Journal,
    missing: Missing,
    /// Frames of the batch that were copied.
    put: usize,
    lengths: [usize; MOST_FRAMES],
    copied: u64,
}

impl Running {
    /// Ends it, for this reason unless there is an earlier one.
    fn end(&mut self, why: End) {
        self.why.get_or_insert(why);
        let _ = self.child.kill();
    }
}

impl SplitterProcess {
    /// Lays out the memory; nothing is started.
    ///
    /// # Errors
    /// Where memory is refused, or the configuration is longer than 64 KiB.
    pub fn new(config: ProcessConfig) -> io::Result<Self> {
        let places = Places::new(config.splitter.max_frame as u64)
            .ok_or_else(|| io::Error::other("frames of that length do not fit into memory"))?;
        let (frames, frames_file) = Region::new("frames", places.frames_bytes(), Writable::ByMakerAlone)?;
        let (answers, answers_file) = Region::new("answers", Places::answers_bytes(), Writable::ByOthers)?;
        let process = Self {
            places,
            frames,
            answers,
            memories: [frames_file, answers_file],
            running: None,
            waits: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            has_failed: false,
            journal: Journal::default(),
            missing: Missing::default(),
            put: 0,
            lengths: [0; MOST_FRAMES],
            copied: 0,
            config,
        };
        if process.greeting().len() > MOST_GREETING {
            return Err(io::Error::other("the `configuration` of a splitter is at most 60 KiB long"));
        }
        Ok(process)
    }

    /// Starts the splitter, waits until it is ready, and ends it: what is wrong with it is known before a run then.
    ///
    /// # Errors
    /// What it says, or that it has not become ready after `patience`.
    pub fn try_out(&mut self, patience: Duration) -> io::Result<()> {
        let until = Instant::now() + patience;
        self.start();
        loop {
            let sight = self.look();
            if sight.is_ready {
                break;
            }
            if sight.has_ended {
                return Err(io::Error::other(match self.journal.ends().pop() {
                    Some((end @ (End::NotReady(_) | End::NotStarted(_)), _)) => end.to_string(),
                    Some((end, _)) => format!("its process was not ready yet when {end}"),
                    None => "its process ended before it was ready".to_owned(),
                }));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.end_and_wait();
                return Err(io::Error::other(format!("it was not ready after {patience:?}: does its `create` wait?")));
            }
            let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
            let mut events: Vec<_> =
                self.descriptors().map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)).collect();
            poll(&mut events, Some(&timeout))?;
        }
        self.end_and_wait();
        Ok(())
    }

    /// Starts it; that this failed is seen as its end.
    pub fn start(&mut self) {
        for word in 0..WORDS {
            self.answers.number(LAST_WORDS + word * size_of::<u64>()).store(0, Ordering::Relaxed);
        }
        match self.spawn() {
            Ok(running) => self.running = Some(running),
            Err(error) => {
                self.has_failed = true;
                self.journal.note(End::NotStarted(error.to_string()));
            }
        }
    }

    fn greeting(&self) -> Vec<u8> {
        let ProcessConfig { splitter, memory, .. } = &self.config;
        Greeting {
            memory: *memory,
            max_frame: splitter.max_frame as u64,
            starter: std::process::id(),
            library: std::path::absolute(&splitter.library).unwrap_or_else(|_| splitter.library.clone()),
            configuration: splitter.configuration.clone(),
        }
        .encode()
    }

    fn spawn(&self) -> io::Result<Running> {
        let (program, arguments) =
            self.config.command.split_first().ok_or_else(|| io::Error::other("there is no program for it"))?;
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::from(theirs));
        // What it prints is for people. Signals of the terminal are for the run, which ends it in its time.
        command.stdout(Stdio::from(io::stderr().as_fd().try_clone_to_owned()?)).process_group(0);
        let mut child = command.spawn()?;
        let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(io::Error::from);
        match end.and_then(|end| self.watch(&socket, &end).map(|()| end)) {
            Ok(end) => {
                Ok(Running { child, socket: Some(socket), _end: end, is_ready: false, is_deaf: false, why: None })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// From now on whatever comes over the socket, and the end of the process, wake up; says the first word.
    fn watch(&self, socket: &OwnedFd, end: &OwnedFd) -> io::Result<()> {
        for one in [socket, end] {
            epoll::add(&self.waits, one, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        self.greet(socket)
    }

    fn greet(&self, socket: &OwnedFd) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [self.memories[0].as_fd(), self.memories[1].as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(socket, &[IoSlice::new(&self.greeting())], &mut control, flags)?;
        Ok(())
    }

    /// Copies another frame of the batch. It must be no longer than configured, and there must be fewer than [`MOST_FRAMES`].
    pub fn put(&mut self, frame: &Payload) {
        let (index, length) = (self.put, frame.len());
        assert!(index < MOST_FRAMES && length <= self.config.splitter.max_frame, "frame {index} of {length} bytes");
        self.frames.write(Places::length(index), &(length as u64).to_le_bytes());
        let mut at = self.places.frame(index);
        for piece in frame.pieces() {
            self.frames.write(at, piece);
            at += piece.len();
        }
        self.lengths[index] = length;
        self.put += 1;
        self.copied += length as u64;
    }

    /// Another batch begins.
    pub const fn clear(&mut self) {
        self.put = 0;
    }

    /// Lets it divide these frames of the batch.
    pub fn ask(&mut self, first: usize, count: usize) {
        self.answers.number(DONE).store(first as u64, Ordering::Release);
        let mut asked = [0; 16];
        asked[..8].copy_from_slice(&(first as u64).to_le_bytes());
        asked[8..].copy_from_slice(&(count as u64).to_le_bytes());
        if let Some(Running { socket: Some(socket), .. }) = &self.running {
            // Where it cannot be sent the process has gone, or will be missed.
            let _ = send(socket, &asked, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    /// Looks at it.
    pub fn look(&mut self) -> Sight {
        if std::mem::take(&mut self.has_failed) {
            return Sight { has_ended: true, ..Sight::default() };
        }
        let Some(running) = &mut self.running else { return Sight::default() };
        let ended = running.child.try_wait();
        let was_ready = running.is_ready;
        // Only now: what it did before it ended counts.
        self.hear();
        let done = usize::try_from(self.answers.number(DONE).load(Ordering::Acquire)).unwrap_or(usize::MAX);
        let Some(running) = &mut self.running else { return Sight::default() };
        let is_ready = running.is_ready && !was_ready;
        let has_ended = !matches!(ended, Ok(None));
        if has_ended {
            let why = running.why.take();
            let was_deaf = running.is_deaf;
            self.running = None;
            self.journal.note(why.unwrap_or_else(|| self.end(ended.ok().flatten(), was_deaf)));
        } else if running.socket.is_none() {
            // It has closed it, or is about to end: then this changes nothing.
            running.is_deaf = true;
            let _ = running.child.kill();
        }
        Sight { is_ready, done, has_ended }
    }

    /// What its status and its last words say of its end.
    fn end(&self, status: Option<ExitStatus>, was_deaf: bool) -> End {
        let word = |index| self.answers.number(LAST_WORDS + index * size_of::<u64>()).load(Ordering::Acquire);
        match Ending::new(status.unwrap_or_default(), core::array::from_fn(word)) {
            Ending::Ended(signal) if was_deaf && signal == libc::SIGKILL => End::Deaf,
            ending => End::Ended(ending),
        }
    }

    /// Takes what it has said.
    fn hear(&mut self) {
        let Some(running) = &mut self.running else { return };
        let mut said = [0; MOST_TEXT];
        while let Some(socket) = &running.socket {
            match recv(socket, &mut said[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => running.socket = None,
                Ok((length, _)) => match said[0] {
                    b'R' => {
                        running.is_ready = true;
                        self.missing = self.missing.or(missing_of(&said[1..length]));
                    }
                    b'E' => {
                        let why = String::from_utf8_lossy(&said[1..length]).into_owned();
                        running.why.get_or_insert(End::NotReady(why));
                    }
                    _ => {}
                },
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
                Err(_) => running.socket = None,
            }
        }
    }

    /// Ends it; that it has ended is certain only when [`SplitterProcess::look`] says it.
    pub fn kill(&mut self) {
        if let Some(running) = &mut self.running {
            let why = if running.is_ready { End::Slow } else { End::SlowStart };
            running.end(why);
        }
    }

    fn end_and_wait(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }

    /// Appends the pieces of a frame of the batch that is done.
    ///
    /// # Errors
    /// Where what it said cannot be true.
    pub fn answer(&mut self, index: usize, pieces: &mut Vec<Piece>) -> Result<Result<(), Cause>, Nonsense> {
        let checked = self.checked(index, pieces);
        if let Err(nonsense) = checked {
            match &mut self.running {
                // It will be ended for that.
                Some(running) => _ = running.why.get_or_insert(End::Nonsense(nonsense)),
                None => self.journal.note(End::Nonsense(nonsense)),
            }
        }
        checked
    }

    fn checked(&self, index: usize, pieces: &mut Vec<Piece>) -> Result<Result<(), Cause>, Nonsense> {
        let said = self.answers.look::<i64>(Places::said(index));
        let Ok(said) = u64::try_from(said) else { return Ok(Err(Cause::Malformed)) };
        if said > MOST_PIECES as u64 {
            return Err(Nonsense::Count { said, capacity: MOST_PIECES });
        }
        // Each is copied before it is checked: the process may change it at any time.
        let place = |piece| Places::pieces(index) + piece * size_of::<RawPiece>();
        let raw = (0..said as usize).map(|piece| self.answers.look::<RawPiece>(place(piece)));
        check(raw, self.lengths[index], self.config.splitter.keys, pieces).map(Ok)
    }

    /// Bytes of frames that were copied.
    pub const fn copied_bytes(&self) -> u64 {
        self.copied
    }

    /// Why its processes ended.
    pub fn journal(&self) -> Journal {
        self.journal.clone()
    }

    /// What its processes are not kept from, since the system cannot do it: known when one was ready.
    pub const fn missing(&self) -> Missing {
        self.missing
    }

    /// What becomes readable when there is something to look at: the same for all processes.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.waits.as_fd())
    }
}

impl Drop for SplitterProcess {
    fn drop(&mut self) {
        self.end_and_wait();
    }
}
