//! The process of a plug-in of any kind: starts, watches and ends it without ever blocking.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv,
    send, sendmsg, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::confinement::{Ending, Missing, WORDS};
use crate::journal::{End, Journal};
use ropewalk_flow::filter::{HistogramError, HistogramShape};

/// Maximum number of descriptors in one message; the kernel accepts 253.
pub(crate) const MOST_DESCRIPTORS: usize = 64;

/// Number of messages that are kept before the process is ready.
const MOST_TOLD: usize = 65;

/// Time for a process to end after it closed its socket. It closes the socket before its end is certain, on a busy
/// machine much earlier.
const ENDING: Duration = Duration::from_millis(250);

/// Observed state of a process.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    /// Whether it has become ready.
    pub(crate) is_ready: bool,
    /// Whether it has certainly ended.
    pub(crate) has_ended: bool,
}

/// A running process.
#[derive(Debug)]
struct Running {
    child: Child,
    socket: OwnedFd,
    /// Becomes readable when the process ends; [`Worker::waits`] watches it until then.
    _end: OwnedFd,
    is_ready: bool,
    /// Time since which its socket is known to be closed, as at its end.
    deaf_since: Option<Instant>,
    /// Why this side kills it, if it does.
    why: Option<End>,
    /// Whether it is ended because it is no longer needed, which is no fault.
    is_dismissed: bool,
}

/// The processes of a plug-in, one after the other.
#[derive(Debug)]
pub(crate) struct Worker {
    /// The program and its arguments.
    command: Vec<PathBuf>,
    running: Option<Running>,
    /// Watches the current process. A sleeping thread gets one descriptor to wait for, although processes change.
    waits: OwnedFd,
    /// Whether the start failed, which is reported as the end of the process.
    has_failed: bool,
    journal: Journal,
    /// The signal that ended the last process, unless this side killed it; 0 for none.
    last_signal: u8,
    missing: Missing,
    /// The output of the processes.
    words: Words,
    /// The first [`MOST_TOLD`] messages that the last process sent before it was ready, for the code of its kind.
    told: Vec<Vec<u8>>,
}

impl Worker {
    /// Creates the value without starting a process. The printed lines of the processes get this name as prefix.
    pub(crate) fn new(command: Vec<PathBuf>, name: &str) -> io::Result<Self> {
        Ok(Self {
            command,
            words: Words::new(name)?,
            running: None,
            waits: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            has_failed: false,
            journal: Journal::default(),
            last_signal: 0,
            missing: Missing::default(),
            told: Vec::new(),
        })
    }

    /// Starts the process and has `greet` send the first message over its socket; a failure of either is seen as its
    /// end.
    pub(crate) fn start(&mut self, greet: impl FnOnce(&OwnedFd) -> io::Result<()>) {
        self.told.clear();
        match self.spawn(greet) {
            Ok(running) => self.running = Some(running),
            Err(error) => self.fail(&error),
        }
    }

    /// Records a failed start, which is seen as the end of the process.
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
        // Its output is for users. The process leaves this session by itself, so no terminal data reaches it.
        command.stdout(Stdio::from(self.words.pipe()?)).stderr(Stdio::from(self.words.pipe()?));
        let mut child = command.spawn()?;
        let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(io::Error::from);
        match end.and_then(|end| self.watch(&socket, &end).and_then(|()| greet(&socket)).map(|()| end)) {
            Ok(end) => Ok(Running {
                child,
                socket,
                _end: end,
                is_ready: false,
                deaf_since: None,
                why: None,
                is_dismissed: false,
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// From now on a message over the socket, and the end of the process, wake up the waiting thread.
    fn watch(&self, socket: &OwnedFd, end: &OwnedFd) -> io::Result<()> {
        for one in [socket, end] {
            epoll::add(&self.waits, one, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// Sends a message. A failure means that the process has ended or soon will.
    pub(crate) fn say(&self, message: &[u8]) {
        if let Some(Running { socket, .. }) = &self.running {
            let _ = send(socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    /// Looks at the process; `last_words` reads its report if it has ended.
    pub(crate) fn look(&mut self, last_words: impl FnOnce() -> [u64; WORDS]) -> Seen {
        if std::mem::take(&mut self.has_failed) {
            return Seen { is_ready: false, has_ended: true };
        }
        let Some(running) = &mut self.running else { return Seen::default() };
        let ended = running.child.try_wait();
        let was_ready = running.is_ready;
        // Read after the check of the process: messages from before its end count.
        self.hear();
        let Some(running) = &mut self.running else { return Seen::default() };
        let is_ready = running.is_ready && !was_ready;
        let has_ended = !matches!(ended, Ok(None));
        if has_ended {
            let (why, is_dismissed) = (running.why.take(), running.is_dismissed);
            self.running = None;
            let status = ended.as_ref().ok().copied().flatten();
            let signal = status.filter(|_| why.is_none()).and_then(|status| status.signal());
            self.last_signal = signal.and_then(|signal| u8::try_from(signal).ok()).unwrap_or(0);
            let of_its_own = || End::Ended(Ending::new(ended.ok().flatten().unwrap_or_default(), last_words()));
            if !is_dismissed {
                self.journal.note(why.unwrap_or_else(of_its_own));
            }
        } else if running.deaf_since.is_some_and(|since| since.elapsed() > ENDING) {
            running.why.get_or_insert(End::Deaf);
            let _ = running.child.kill();
        }
        Seen { is_ready, has_ended }
    }

    /// Takes its messages.
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

    /// Whether there is news: one system call, where [`Worker::look`] makes two.
    pub(crate) fn has_news(&self) -> bool {
        let mut events = [PollFd::new(&self.waits, PollFlags::IN)];
        self.has_failed || poll(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
    }

    /// Kills the process because it takes too long. Only [`Worker::look`] reports its end as certain.
    pub(crate) fn kill(&mut self) {
        if let Some(running) = &mut self.running {
            running.why.get_or_insert(if running.is_ready { End::Slow } else { End::SlowStart });
            let _ = running.child.kill();
        }
    }

    /// Ends the process because it is no longer needed.
    pub(crate) fn dismiss(&mut self) {
        if let Some(running) = &mut self.running {
            running.is_dismissed = running.why.is_none();
            let _ = running.child.kill();
        }
    }

    /// Records the reason for the coming kill, unless there is an earlier reason.
    pub(crate) fn blame(&mut self, why: End) {
        match &mut self.running {
            Some(running) => _ = running.why.get_or_insert(why),
            None => self.journal.note(why),
        }
    }

    /// Waits until the process is ready, and ends it, so that errors of the plug-in are found before a run.
    ///
    /// # Errors
    /// The plug-in's error, or that it is not ready after `patience`.
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

    /// The signal that ended the last process, unless this side killed it; 0 for none.
    pub(crate) const fn last_signal(&self) -> u8 {
        self.last_signal
    }

    /// Why its processes ended.
    pub(crate) fn journal(&self) -> Journal {
        self.journal.clone()
    }

    /// Limits that the system does not support, known after a process was ready.
    pub(crate) const fn missing(&self) -> Missing {
        self.missing
    }

    /// Other messages of the last process before it was ready.
    pub(crate) fn told(&self) -> &[Vec<u8>] {
        &self.told
    }

    /// Becomes readable when there is news; stays the same for all processes.
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

// The first messages between the two processes; each is one packet of the socket.
//
// ```text
//  greeting  memory u64 | sizes u64, as many as the kind has | starter's process u32 | length of the path u32 | path |
//            configuration; with the descriptors of both memories                               -> process
//  ready     "R" and what the system lacks, 1: seccomp, 2: landlock                             <- process
//            or "E" and a text that says why not
//  address   "A", 7 bytes of nothing, u64: where a filter's events begin in it, before it is ready       <- process
//  declares  "H", 3 bytes of nothing, bins u32, low f64, high f64, name: a histogram, before it is ready  <- process
// ```
// Numbers are little-endian.

/// The longest greeting, in bytes.
pub(crate) const MOST_GREETING: usize = 64 << 10;
/// Maximum length of the text that says why the process is not ready.
pub(crate) const MOST_TEXT: usize = 4096;

/// The first message to a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Greeting<const N: usize> {
    /// Memory that it may take beside the shared memory, in bytes.
    pub(crate) memory: u64,
    /// Sizes that it needs to interpret the shared memory.
    pub(crate) sizes: [u64; N],
    /// Process id of its starter.
    pub(crate) starter: u32,
    pub(crate) library: PathBuf,
    pub(crate) configuration: String,
}

impl<const N: usize> Greeting<N> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let library = self.library.as_os_str().as_bytes();
        let mut out = self.memory.to_le_bytes().to_vec();
        self.sizes.iter().for_each(|size| out.extend_from_slice(&size.to_le_bytes()));
        out.extend_from_slice(&self.starter.to_le_bytes());
        out.extend_from_slice(&(library.len() as u32).to_le_bytes());
        out.extend_from_slice(library);
        out.extend_from_slice(self.configuration.as_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (memory, mut rest) = bytes.split_first_chunk()?;
        let mut sizes = [0; N];
        for size in &mut sizes {
            let (bytes, behind) = rest.split_first_chunk()?;
            (*size, rest) = (u64::from_le_bytes(*bytes), behind);
        }
        let (starter, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (library, configuration) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        Some(Self {
            memory: u64::from_le_bytes(*memory),
            sizes,
            starter: u32::from_le_bytes(*starter),
            library: Path::new(&OsString::from_vec(library.to_vec())).to_owned(),
            configuration: String::from_utf8(configuration.to_vec()).ok()?,
        })
    }
}

/// Message of a ready process, with the limits that the system does not support.
pub(crate) fn ready(missing: Missing) -> [u8; 2] {
    [b'R', u8::from(missing.seccomp) | u8::from(missing.landlock) << 1]
}

/// The unsupported limits of a ready process; `told` follows the letter.
pub(crate) fn missing_of(told: &[u8]) -> Missing {
    let bits = told.first().copied().unwrap_or(0);
    Missing { seccomp: bits & 1 != 0, landlock: bits & 2 != 0 }
}

/// Declares a histogram.
pub(crate) fn declaration(shape: &HistogramShape) -> Vec<u8> {
    let mut out = b"H\0\0\0".to_vec();
    out.extend_from_slice(&shape.bins().to_le_bytes());
    out.extend_from_slice(&shape.low().to_le_bytes());
    out.extend_from_slice(&shape.high().to_le_bytes());
    out.extend_from_slice(shape.name().as_bytes());
    out
}

/// The histogram that a message declares; `None` for another kind of message, an error if it is not a valid one.
pub(crate) fn declared(message: &[u8]) -> Option<Result<HistogramShape, HistogramError>> {
    let rest = message.strip_prefix(b"H")?.get(3..)?;
    let (bins, rest) = rest.split_first_chunk()?;
    let (low, rest) = rest.split_first_chunk()?;
    let (high, name) = rest.split_first_chunk()?;
    let name = String::from_utf8_lossy(name);
    Some(HistogramShape::new(&name, u32::from_le_bytes(*bins), f64::from_le_bytes(*low), f64::from_le_bytes(*high)))
}

// The output of a plug-in's process. Its standard output and standard error are a pipe, whose lines are printed with
// the plug-in's name as prefix. So a plug-in has no access to the user's terminal.
//
// [`Lines`] limits the lines per second and prints how many it left out.

/// Printed bytes of a line; the rest of a longer line is dropped.
const MOST_BYTES: usize = 1000;
/// Number of lines that may be printed at once.
const BURST: f64 = 200.0;
/// Lines per second after that.
const A_SECOND: f64 = 20.0;
/// Time to wait for the last lines.
const PATIENCE: Duration = Duration::from_millis(200);

/// The function that prints lines.
static PRINT: OnceLock<fn(&str)> = OnceLock::new();

/// From now on this function prints the lines of plug-ins; without it they go to standard error. The first call counts.
pub fn print_with(print: fn(&str)) {
    let _ = PRINT.set(print);
}

fn print(line: &str) {
    match PRINT.get() {
        Some(print) => print(line),
        // Standard error may be closed.
        None => _ = writeln!(io::stderr(), "{line}"),
    }
}

/// Name of a plug-in: the file name of the library, or of the last program of the command.
pub(crate) fn name_of(library: &Path, command: &[PathBuf]) -> String {
    let is_library = !library.as_os_str().is_empty();
    // A user's program follows this program, its command, and two numbers.
    let file = if is_library { Some(library) } else { command.get(4).or(command.first()).map(PathBuf::as_path) };
    file.and_then(Path::file_name).unwrap_or(OsStr::new("plug-in")).to_string_lossy().into_owned()
}

/// The pipe of a plug-in's processes, and the thread that prints its lines.
#[derive(Debug)]
pub(crate) struct Words {
    /// `None` after the end of the output.
    pipe: Option<OwnedFd>,
    /// Closed after everything is printed.
    end: Receiver<()>,
}

impl Words {
    /// Starts the thread.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let (from, pipe) = pipe_with(PipeFlags::CLOEXEC)?;
        let (told, end) = sync_channel(0);
        let lines = Lines::new(name);
        std::thread::Builder::new().name("plug-in words".to_owned()).spawn(move || {
            tell(&mut File::from(from), lines, print);
            drop(told);
        })?;
        Ok(Self { pipe: Some(pipe), end })
    }

    /// The descriptor that a process prints to.
    pub(crate) fn pipe(&self) -> io::Result<OwnedFd> {
        self.pipe.as_ref().ok_or(io::ErrorKind::BrokenPipe)?.try_clone()
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        self.pipe = None;
        // A program may have left a child that still holds the pipe.
        let _ = self.end.recv_timeout(PATIENCE);
    }
}

/// Prints the output until the other end is closed.
fn tell(from: &mut impl Read, mut lines: Lines, mut print: impl FnMut(&str)) {
    let (mut bytes, begin) = ([0; 4096], Instant::now());
    loop {
        match from.read(&mut bytes) {
            Ok(length @ 1..) => lines.add(begin.elapsed(), &bytes[..length], &mut print),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    lines.end(&mut print);
}

/// Splits bytes into lines, with limits on their number and length.
#[derive(Debug)]
struct Lines {
    name: String,
    /// The current incomplete line.
    line: Vec<u8>,
    /// Number of lines that may be printed now, as of a time.
    allowed: f64,
    as_of: Duration,
    left_out: u64,
}

impl Lines {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), line: Vec::new(), allowed: BURST, as_of: Duration::ZERO, left_out: 0 }
    }

    /// Adds bytes that arrived at this time.
    fn add(&mut self, now: Duration, bytes: &[u8], print: &mut impl FnMut(&str)) {
        self.allowed = BURST.min(self.allowed + A_SECOND * now.saturating_sub(self.as_of).as_secs_f64());
        self.as_of = now;
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (text, is_whole) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            let room = MOST_BYTES - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if is_whole {
                self.line_ends(print);
            }
        }
    }

    fn line_ends(&mut self, print: &mut impl FnMut(&str)) {
        if self.allowed < 1.0 {
            self.left_out += 1;
        } else {
            self.allowed -= 1.0;
            self.tell_left_out(print);
            print(&format!("{}: {}", self.name, harmless(&self.line)));
        }
        self.line.clear();
    }

    fn tell_left_out(&mut self, print: &mut impl FnMut(&str)) {
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            print(&format!("{}: {left_out} lines are left out", self.name));
        }
    }

    /// Ends the output.
    fn end(&mut self, print: &mut impl FnMut(&str)) {
        if !self.line.is_empty() {
            self.line_ends(print);
        }
        self.tell_left_out(print);
    }
}

/// Replaces control characters, so that a terminal only displays the text.
fn harmless(line: &[u8]) -> String {
    let is_shown = |letter: char| !letter.is_control() || letter == '\t';
    String::from_utf8_lossy(line).chars().map(|letter| if is_shown(letter) { letter } else { '\u{fffd}' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_read_as_it_was_written() {
        let (library, configuration) = (PathBuf::from("/lib/a b.so"), "threshold = 7 # \u{e4}".to_owned());
        let greeting = Greeting { memory: 1 << 40, sizes: [9000, u64::MAX], starter: 77, library, configuration };
        let bytes = greeting.encode();
        assert_eq!(Greeting::decode(&bytes), Some(greeting));
        assert!((0..43).all(|cut| Greeting::<2>::decode(&bytes[..cut]).is_none()), "a cut one is not read");
    }

    #[test]
    fn a_declaration_is_read_as_it_was_written_and_one_that_cannot_be_is_refused() {
        let shape = HistogramShape::new("sum of samples", 100, -1.5, 1e6).expect("there can be one");
        let message = declaration(&shape);
        assert_eq!(declared(&message), Some(Ok(shape)));
        assert!((0..24).all(|cut| declared(&message[..cut]).is_none()), "a cut one is not read");
        assert!(matches!(declared(&message[..24]), Some(Err(HistogramError::Name(_)))));
        assert_eq!(declared(b"R\0"), None);
    }

    #[test]
    fn what_is_missing_is_told() {
        for (seccomp, landlock) in [(false, false), (true, false), (false, true), (true, true)] {
            let missing = Missing { seccomp, landlock };
            assert_eq!(missing_of(&ready(missing)[1..]), missing);
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn told(parts: &[(Duration, &[u8])]) -> Vec<String> {
        let (mut lines, mut told) = (Lines::new("my.so"), Vec::new());
        let mut print = |line: &str| told.push(line.to_owned());
        parts.iter().for_each(|(now, bytes)| lines.add(*now, bytes, &mut print));
        lines.end(&mut print);
        told
    }

    #[test]
    fn each_line_has_the_plug_ins_name_and_nothing_that_a_terminal_does_something_at() {
        let parts: [(_, &[u8]); 3] = [(SECOND, b"one\ntw"), (SECOND, b"o\n\x1b]0;title\x07\r"), (SECOND, b"\xff\tend")];
        let third = "my.so: \u{fffd}]0;title\u{fffd}\u{fffd}\u{fffd}\tend";
        assert_eq!(told(&parts), ["my.so: one", "my.so: two", third]);
    }

    #[test]
    fn many_lines_are_left_out_and_counted_and_a_long_one_is_cut() {
        let many = b"line\n".repeat(1000);
        let lines = told(&[(SECOND, &many), (2 * SECOND, &many), (1000 * SECOND, b"last\n")]);
        let shown = lines.iter().filter(|line| line.ends_with(": line")).count();
        assert_eq!(shown, (BURST + A_SECOND) as usize);
        let tail = &lines[lines.len() - 2..];
        assert_eq!(tail, ["my.so: 980 lines are left out", "my.so: last"]);
        assert!(lines.contains(&"my.so: 800 lines are left out".to_owned()), "{lines:?}");
        assert_eq!(told(&[(SECOND, &b"x".repeat(5000))]), [format!("my.so: {}", "x".repeat(MOST_BYTES))]);
    }

    #[test]
    fn a_plug_in_is_called_by_its_file() {
        let program = ["/bin/ropewalk", "filter-program", "1", "2", "/opt/my-filter", "x"].map(PathBuf::from);
        assert_eq!(name_of(Path::new("/lib/threshold.so"), &program), "threshold.so");
        assert_eq!(name_of(Path::new(""), &program), "my-filter");
    }
}
