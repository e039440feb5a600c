//! The process's side: the greeting and the loss of rights, common to all plug-ins, and the loop of a splitter, frame
//! by frame.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, IoSliceMut, Write, stdin};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recv, recvmsg, send};

use super::region::Region;
use super::worker::{Greeting, MOST_DESCRIPTORS, MOST_GREETING, MOST_TEXT, ready};
use super::{DONE, LAST_WORDS, MOST_FRAMES, Places};
use crate::confinement::{Confinement, LastWords, Missing};
use crate::library::Library;
use crate::splitter::{Created, Said};
use ropewalk_wire::framing::MOST_PIECES;

/// Main function of the process: standard input is the socket of the process that started it. Returns when that process
/// has ended.
///
/// # Errors
/// If standard input is no such socket, or the splitter cannot be created; the caller got the reason then.
pub fn serve() -> io::Result<()> {
    let caller = Caller::connect()?;
    let (greeting, [frames, answers]) = caller.greeting("a source with a `splitter`")?;
    let served = Served::new(&greeting, &caller, frames, answers);
    caller.tell(served)?.work(caller)
}

/// A splitter at work.
struct Served {
    places: Places,
    created: Created,
    /// Dropped before the memory of the report, which is unmapped last.
    _last_words: LastWords,
    frames: Region,
    answers: Region,
}

impl Served {
    fn new(
        greeting: &Greeting<1>,
        caller: &Caller,
        frames: OwnedFd,
        answers: OwnedFd,
    ) -> Result<(Self, Missing), String> {
        let system = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        let places = Places::new(greeting.sizes[0]).ok_or("frames of that length do not fit into memory")?;
        let frames = Region::open(frames, places.frames_bytes(), false).map_err(system("memory for frames"))?;
        let answers = Region::open(answers, Places::answers_bytes(), true).map_err(system("memory for answers"))?;
        let words = answers.number(LAST_WORDS).as_ptr().cast();
        // SAFETY: there is room for the report at LAST_WORDS, and `answers` outlives `last_words`, in this function as
        // in `Self`.
        let last_words =
            unsafe { LastWords::leave_at(words, frames.addresses()) }.map_err(system("handlers of signals"))?;
        let (library, missing) = caller.confined(greeting)?;
        let created = Created::new(library, &greeting.configuration).map_err(|error| error.to_string())?;
        Ok((Self { places, created, _last_words: last_words, frames, answers }, missing))
    }

    /// Handles requests until the caller has ended.
    fn work(&mut self, mut caller: Caller) -> io::Result<()> {
        let mut asked = [0; 16];
        while caller.receive(&mut asked)? > 0 {
            let [first, count] =
                [0, 8].map(|at| u64::from_le_bytes(*asked[at..].first_chunk().expect("it has 16 bytes")));
            let end = first.saturating_add(count).min(MOST_FRAMES as u64);
            for index in first..end {
                self.split(index as usize, &mut caller);
                self.answers.number(DONE).store(index + 1, Ordering::Release);
            }
            caller.say(b"D")?;
        }
        Ok(())
    }

    fn split(&mut self, index: usize, caller: &mut Caller) {
        let length = self.frames.look::<u64>(Places::length(index)) as usize;
        // SAFETY: requested frames are not written before they are done.
        let frame = unsafe { self.frames.bytes(self.places.frame(index), length) };
        let said = self.created.split(frame, self.answers.values(Places::pieces(index), MOST_PIECES));
        let said = match said {
            Said::Pieces(count) => i64::try_from(count).unwrap_or(i64::MAX),
            Said::Malformed => -1,
        };
        self.answers.values(Places::said(index), 1)[0] = said;
        if said < 0 {
            let what = || format!("splitter: a frame of {length} bytes cannot be divided");
            caller.complain(what, || self.created.why());
        }
    }
}

/// Number of invalid answers of a plug-in that are reported on standard error.
const MOST_TOLD: u32 = 10;

/// The process that started this one, over standard input.
#[derive(Debug)]
pub(crate) struct Caller {
    socket: OwnedFd,
    told: u32,
}

impl Caller {
    /// Closes inherited descriptors other than standard input, output and error.
    pub(crate) fn connect() -> io::Result<Self> {
        // SAFETY: this is the first action of the process, which has opened no descriptor that it needs.
        let _ = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
        let socket = stdin().as_fd().try_clone_to_owned()?;
        // A plug-in that reads standard input finds it empty, and cannot mistake it for the socket.
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        print_line_by_line();
        Ok(Self { socket, told: 0 })
    }

    /// Receives the first message, with the descriptors of two memories; `user` names the key that makes a run start
    /// such a process.
    pub(crate) fn greeting<const N: usize>(&self, user: &str) -> io::Result<(Greeting<N>, [OwnedFd; 2])> {
        let (mut bytes, mut descriptors) = (vec![0; MOST_GREETING], Vec::new());
        // If standard input is something else, the system's error message does not help.
        let length = self.receive_with(&mut bytes, &mut descriptors).unwrap_or_default();
        let greeting = length.and_then(|length| Greeting::decode(&bytes[..length]));
        let memories = descriptors.try_into().ok();
        greeting.zip(memories).ok_or_else(|| io::Error::other(format!("a run starts this by itself for {user}")))
    }

    /// Waits for a message with descriptors; returns its length. `None` if it was truncated.
    pub(crate) fn receive_with(&self, into: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<Option<usize>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(&self.socket, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        let is_whole = !received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        Ok(is_whole.then_some(received.bytes))
    }

    /// Waits for a message; returns its length, and 0 when the caller has ended.
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&self.socket, into, RecvFlags::empty())?.0)
    }

    /// Sends a message.
    pub(crate) fn say(&self, message: &[u8]) -> io::Result<()> {
        send(&self.socket, message, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends a message unless many unread ones were sent already.
    pub(crate) fn ring(&self, message: &[u8]) -> io::Result<()> {
        match send(&self.socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives up all rights that a plug-in does not need, and loads its library in between.
    pub(crate) fn confined<const N: usize>(&self, greeting: &Greeting<N>) -> Result<(Library, Missing), String> {
        let confinement = Confinement {
            memory: greeting.memory,
            starter: greeting.starter,
            speaks_over: vec![self.socket.as_raw_fd()],
        };
        let given_up = |error: io::Error| format!("it cannot give up its rights: {error}");
        let path = &greeting.library;
        let (found, mut copy) = (File::open(path), None);
        let missing = confinement.before_loading(|| copy = copied(path, found)).map_err(given_up)?;
        let library = match &copy {
            Some(copy) => Library::open_copy(path, &Path::new("/proc/self/fd").join(copy.as_raw_fd().to_string())),
            None => Library::open(path),
        };
        let library = library.map_err(|error| error.to_string())?;
        drop(copy);
        Ok((library, missing.or(confinement.before_work().map_err(given_up)?)))
    }

    /// Reports whether it is ready, or why not.
    pub(crate) fn tell<T>(&self, made: Result<(T, Missing), String>) -> io::Result<T> {
        match made {
            Ok((served, missing)) => {
                self.say(&ready(missing))?;
                Ok(served)
            }
            Err(why) => {
                let mut text = format!("E{why}");
                text.truncate(text.floor_char_boundary(MOST_TEXT));
                self.say(text.as_bytes())?;
                Err(io::Error::other(why))
            }
        }
    }

    /// Reports on standard error that the plug-in could not do something, with its reason, the first few times.
    pub(crate) fn complain(&mut self, what: impl FnOnce() -> String, why: impl FnOnce() -> String) {
        if self.told < MOST_TOLD {
            self.told += 1;
            let why = why();
            if !why.is_empty() {
                // The reader may have ended.
                let _ = writeln!(io::stderr(), "{}: {why}", what());
            }
        }
    }
}

/// A copy of a library that only the user of the run can read, and this process no longer can; `None` if it can.
fn copied(path: &Path, found: io::Result<File>) -> Option<OwnedFd> {
    let mut found = found.ok()?;
    if File::open(path).is_ok() {
        return None;
    }
    let mut copy = File::from(memfd_create("library", MemfdFlags::CLOEXEC).ok()?);
    io::copy(&mut found, &mut copy).ok()?;
    Some(copy.into())
}

/// Standard output is a pipe. C would buffer its lines, and lose them if the process is killed.
fn print_line_by_line() {
    // SAFETY: every C library on Linux has this name and type (stdio.h).
    unsafe extern "C" {
        static mut stdout: *mut libc::FILE;
    }
    // SAFETY: the C library has made its standard output, and nothing has been written to it yet.
    let _ = unsafe { libc::setvbuf(stdout, core::ptr::null_mut(), libc::_IOLBF, 0) };
}
