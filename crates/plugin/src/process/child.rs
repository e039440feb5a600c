//! In the process: what is asked for is done, frame by frame.
#![allow(unsafe_code)]

use super::MOST_FRAMES;
use super::greeting::{DONE, Greeting, LAST_WORDS, MOST_GREETING, MOST_TEXT, Places, ready};
use super::region::Region;
use crate::confinement::{Confinement, LastWords, Missing};
use crate::library::Library;
use crate::splitter::{Created, Said};
use ropewalk_wire::framing::MOST_PIECES;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send};
use std::io::{self, IoSliceMut, stdin};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Frames that cannot be divided and are told about, on standard error.
const MOST_TOLD: u32 = 10;

/// What the process does: standard input is the socket of the one who started it. Returns when that one has gone.
///
/// # Errors
/// Where standard input is no such socket, or the splitter cannot be had; the other side was told then.
pub fn serve() -> io::Result<()> {
    close_others();
    let socket = stdin().as_fd().try_clone_to_owned()?;
    let (greeting, [frames, answers]) = greeted(&socket)?;
    match Served::new(&greeting, &socket, frames, answers) {
        Ok((mut served, missing)) => {
            send(&socket, &ready(missing), SendFlags::NOSIGNAL)?;
            served.work(&socket)
        }
        Err(why) => {
            let mut text = format!("E{why}");
            text.truncate(text.floor_char_boundary(MOST_TEXT));
            send(&socket, text.as_bytes(), SendFlags::NOSIGNAL)?;
            Err(io::Error::other(why))
        }
    }
}

/// Closes what came along from the one who started this, beside standard input, output and error.
fn close_others() {
    // SAFETY: this is the first thing that the process does, which has opened nothing that it needs.
    let _ = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
}

/// The first message, with the descriptors of both memories.
fn greeted(socket: &OwnedFd) -> io::Result<(Greeting, [OwnedFd; 2])> {
    let mut bytes = vec![0; MOST_GREETING];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    let is_whole = !received.flags.contains(ReturnFlags::TRUNC);
    let greeting = Greeting::decode(&bytes[..received.bytes]).filter(|_| is_whole);
    let memories = descriptors.try_into().ok();
    greeting.zip(memories).ok_or_else(|| io::Error::other("a run starts this by itself for a source with a `splitter`"))
}

/// A splitter at work.
struct Served {
    places: Places,
    created: Created,
    told: u32,
    /// Before the memory in which they are left, which is unmapped last.
    _last_words: LastWords,
    frames: Region,
    answers: Region,
}

impl Served {
    fn new(
        greeting: &Greeting,
        socket: &OwnedFd,
        frames: OwnedFd,
        answers: OwnedFd,
    ) -> Result<(Self, Missing), String> {
        let system = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        let places = Places::new(greeting.max_frame).ok_or("frames of that length do not fit into memory")?;
        let frames = Region::open(frames, places.frames_bytes(), false).map_err(system("memory for frames"))?;
        let answers = Region::open(answers, Places::answers_bytes(), true).map_err(system("memory for answers"))?;
        let words = answers.number(LAST_WORDS).as_ptr().cast();
        // SAFETY: behind LAST_WORDS is room for them, and `answers` outlives what leaves them, in this function as in `Self`.
        let last_words =
            unsafe { LastWords::leave_at(words, frames.addresses()) }.map_err(system("handlers of signals"))?;
        let confinement =
            Confinement { memory: greeting.memory, starter: greeting.starter, speaks_over: vec![socket.as_raw_fd()] };
        let given_up = system("it cannot give up its rights");
        let mut missing = confinement.before_loading().map_err(&given_up)?;
        // The library may lie where only the user of the run can read it.
        let library = Library::open(&greeting.library).map_err(|error| error.to_string())?;
        missing = missing.or(confinement.before_work().map_err(&given_up)?);
        let created = Created::new(library, &greeting.configuration).map_err(|error| error.to_string())?;
        Ok((Self { places, created, told: 0, _last_words: last_words, frames, answers }, missing))
    }

    /// Does what it is asked for until nobody is there any more.
    fn work(&mut self, socket: &OwnedFd) -> io::Result<()> {
        let mut asked = [0; 16];
        loop {
            let (received, _) = rustix::net::recv(socket, &mut asked[..], RecvFlags::empty())?;
            if received == 0 {
                return Ok(());
            }
            let [first, count] =
                [0, 8].map(|at| u64::from_le_bytes(*asked[at..].first_chunk().expect("it has 16 bytes")));
            let end = first.saturating_add(count).min(MOST_FRAMES as u64);
            for index in first..end {
                self.split(index as usize);
                self.answers.number(DONE).store(index + 1, Ordering::Release);
            }
            send(socket, b"D", SendFlags::NOSIGNAL)?;
        }
    }

    fn split(&mut self, index: usize) {
        let length = self.frames.look::<u64>(Places::length(index)) as usize;
        // SAFETY: the frames that were asked for are not written before they are done.
        let frame = unsafe { self.frames.bytes(self.places.frame(index), length) };
        let said = self.created.split(frame, self.answers.values(Places::pieces(index), MOST_PIECES));
        let said = match said {
            Said::Pieces(count) => i64::try_from(count).unwrap_or(i64::MAX),
            Said::Malformed => -1,
        };
        self.answers.values(Places::said(index), 1)[0] = said;
        if said < 0 && self.told < MOST_TOLD {
            self.told += 1;
            let why = self.created.why();
            if !why.is_empty() {
                eprintln!("splitter: a frame of {length} bytes cannot be divided: {why}");
            }
        }
    }
}
