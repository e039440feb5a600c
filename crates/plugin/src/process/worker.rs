//! The process of a plug-in, of whatever kind: started, listened to, looked at and ended, and never waited for.

use super::greeting::{MOST_TEXT, missing_of};
use super::words::Words;
use crate::confinement::{Ending, Missing, WORDS};
use crate::journal::{End, Journal};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv,
    send, sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Descriptors that one message carries at most; the kernel takes 253.
pub(crate) const MOST_DESCRIPTORS: usize = 64;

/// Messages before it is ready that are kept.
const MOST_TOLD: usize = 64;

/// How long a process may take to end that has closed its socket: it does that before it has ended for certain, and much later on a machine
/// with much to do.
const ENDING: Duration = Duration::from_millis(250);

/// What is seen of a process.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    /// It has become ready.
    pub(crate) is_ready: bool,
    /// It was there, and has ended: that is certain.
    pub(crate) has_ended: bool,
}

/// A process that is there.
#[derive(Debug)]
struct Running {
    child: Child,
    socket: OwnedFd,
    /// Becomes readable when the process ends; watched by [`Worker::waits`] as long as it is there.
    _end: OwnedFd,
    is_ready: bool,
    /// Since when it is known to have closed the socket, as it does when it ends.
    deaf_since: Option<Instant>,
    /// Why it is ended, where that is decided here.
    why: Option<End>,
}

/// The processes of a plug-in, one after the other.
#[derive(Debug)]
pub(crate) struct Worker {
    /// The program and its arguments.
    command: Vec<PathBuf>,
    running: Option<Running>,
    /// Watches whichever process there is: whoever sleeps until something comes asks once what to wait for.
    waits: OwnedFd,
    /// It could not be started: that is told as its end.
    has_failed: bool,
    journal: Journal,
    missing: Missing,
    /// What they print.
    words: Words,
    /// What the last one said before it was ready of which only its kind knows what it means: the first [`MOST_TOLD`] messages.
    told: Vec<Vec<u8>>,
}

impl Worker {
    /// Nothing is started. What the processes print is told with this name in front of it.
    pub(crate) fn new(command: Vec<PathBuf>, name: &str) -> io::Result<Self> {
        Ok(Self {
            command,
            words: Words::new(name)?,
            running: None,
            waits: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            has_failed: false,
            journal: Journal::default(),
            missing: Missing::default(),
            told: Vec::new(),
        })
    }

    /// Starts it, and lets `greet` say over its socket what it is told first; that any of this failed is seen as its end.
    pub(crate) fn start(&mut self, greet: impl FnOnce(&OwnedFd) -> io::Result<()>) {
        self.told.clear();
        match self.spawn(greet) {
            Ok(running) => self.running = Some(running),
            Err(error) => self.fail(&error),
        }
    }

    /// It could not be started, which is seen as its end.
    pub(crate) fn fail(&mut self, why: &io::Error) {
        self.has_failed = true;
        self.journal.note(End::NotStarted(why.to_string()));
    }

    fn spawn(&self, greet: impl FnOnce(&OwnedFd) -> io::Result<()>) -> io::Result<Running> {
        let (program, arguments) =
            self.command.split_first().ok_or_else(|| io::Error::other("there is no program for it"))?;
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::from(theirs));
        // What it prints is for people. It leaves this session by itself, and nothing of the terminal goes to it.
        command.stdout(Stdio::from(self.words.pipe()?)).stderr(Stdio::from(self.words.pipe()?));
        let mut child = command.spawn()?;
        let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(io::Error::from);
        match end.and_then(|end| self.watch(&socket, &end).and_then(|()| greet(&socket)).map(|()| end)) {
            Ok(end) => Ok(Running { child, socket, _end: end, is_ready: false, deaf_since: None, why: None }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// From now on whatever comes over the socket, and the end of the process, wake up.
    fn watch(&self, socket: &OwnedFd, end: &OwnedFd) -> io::Result<()> {
        for one in [socket, end] {
            epoll::add(&self.waits, one, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// Says something to it. Where it cannot be sent the process has gone, or will be missed.
    pub(crate) fn say(&self, message: &[u8]) {
        if let Some(Running { socket, .. }) = &self.running {
            let _ = send(socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    /// Looks at it; `last_words` are what it left if it has ended.
    pub(crate) fn look(&mut self, last_words: impl FnOnce() -> [u64; WORDS]) -> Seen {
        if std::mem::take(&mut self.has_failed) {
            return Seen { is_ready: false, has_ended: true };
        }
        let Some(running) = &mut self.running else { return Seen::default() };
        let ended = running.child.try_wait();
        let was_ready = running.is_ready;
        // Only now: what it did before it ended counts.
        self.hear();
        let Some(running) = &mut self.running else { return Seen::default() };
        let is_ready = running.is_ready && !was_ready;
        let has_ended = !matches!(ended, Ok(None));
        if has_ended {
            let why = running.why.take();
            self.running = None;
            let of_its_own = || End::Ended(Ending::new(ended.ok().flatten().unwrap_or_default(), last_words()));
            self.journal.note(why.unwrap_or_else(of_its_own));
        } else if running.deaf_since.is_some_and(|since| since.elapsed() > ENDING) {
            running.why.get_or_insert(End::Deaf);
            let _ = running.child.kill();
        }
        Seen { is_ready, has_ended }
    }

    /// Takes what it has said.
    fn hear(&mut self) {
        let Some(running) = &mut self.running else { return };
        let mut said = [0; MOST_TEXT];
        loop {
            match recv(&running.socket, &mut said[..], RecvFlags::DONTWAIT) {
                Ok((length @ 1.., _)) => match said[0] {
                    b'R' => {
                        running.is_ready = true;
                        self.missing = self.missing.or(missing_of(&said[1..length]));
                    }
                    b'E' => {
                        let why = String::from_utf8_lossy(&said[1..length]).into_owned();
                        running.why.get_or_insert(End::NotReady(why));
                    }
                    _ if !running.is_ready && self.told.len() < MOST_TOLD => {
                        self.told.push(said[..length].to_vec());
                    }
                    _ => {}
                },
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
                Ok(_) | Err(_) => {
                    running.deaf_since.get_or_insert_with(Instant::now);
                    return;
                }
            }
        }
    }

    /// Whether there is something to look at: one call of the system, where [`Worker::look`] makes two.
    pub(crate) fn has_news(&self) -> bool {
        let mut events = [PollFd::new(&self.waits, PollFlags::IN)];
        self.has_failed || poll(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
    }

    /// Ends it since it takes too long; that it has ended is certain only when [`Worker::look`] says it.
    pub(crate) fn kill(&mut self) {
        if let Some(running) = &mut self.running {
            running.why.get_or_insert(if running.is_ready { End::Slow } else { End::SlowStart });
            let _ = running.child.kill();
        }
    }

    /// It will be ended for this, unless there is an earlier reason.
    pub(crate) fn blame(&mut self, why: End) {
        match &mut self.running {
            Some(running) => _ = running.why.get_or_insert(why),
            None => self.journal.note(why),
        }
    }

    /// Waits until it is ready, and ends it: what is wrong with the plug-in is known before a run then.
    ///
    /// # Errors
    /// What it says, or that it has not become ready after `patience`.
    pub(crate) fn try_out(&mut self, patience: Duration, last_words: impl Fn() -> [u64; WORDS]) -> io::Result<()> {
        let until = Instant::now() + patience;
        loop {
            let seen = self.look(&last_words);
            if seen.is_ready {
                break;
            }
            if seen.has_ended {
                return Err(io::Error::other(match self.journal.ends().pop() {
                    Some((end @ (End::NotReady(_) | End::NotStarted(_)), _)) => end.to_string(),
                    Some((end, _)) => format!("its process was not ready yet when {end}"),
                    None => "its process ended before it was ready".to_owned(),
                }));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.end_and_wait();
                return Err(io::Error::other(format!(
                    "it was not ready after {patience:?}: does its `create` wait, or what runs while it is loaded?"
                )));
            }
            let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
            poll(&mut [PollFd::new(&self.waits, PollFlags::IN)], Some(&timeout))?;
        }
        self.end_and_wait();
        Ok(())
    }

    fn end_and_wait(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }

    /// Why its processes ended.
    pub(crate) fn journal(&self) -> Journal {
        self.journal.clone()
    }

    /// What its processes are not kept from, since the system cannot do it: known when one was ready.
    pub(crate) const fn missing(&self) -> Missing {
        self.missing
    }

    /// What the last process said before it was ready, beside that.
    pub(crate) fn told(&self) -> &[Vec<u8>] {
        &self.told
    }

    /// What becomes readable when there is something to look at: the same for all processes.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.waits.as_fd()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end_and_wait();
    }
}

/// Sends a message with at most [`MOST_DESCRIPTORS`] descriptors.
pub(crate) fn send_with(socket: &OwnedFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other(format!("{} descriptors do not go into a message", descriptors.len())));
    }
    sendmsg(socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}
