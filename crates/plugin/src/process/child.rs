//! In the process: what is asked for is done, frame by frame.
#![allow(unsafe_code)]

use super::MOST_FRAMES;
use super::confinement::confine;
use super::greeting::{DONE, Greeting, MOST_GREETING, MOST_TEXT, Places};
use super::region::Region;
use crate::library::Library;
use crate::splitter::{Created, Said};
use ropewalk_wire::framing::MOST_PIECES;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send};
use std::io::{self, IoSliceMut, stdin};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Frames that cannot be divided and are told about, on standard error.
const MOST_TOLD: u32 = 10;

/// What the process does: standard input is the socket of the one who started it. Returns when that one has gone.
///
/// # Errors
/// Where standard input is no such socket, or the splitter cannot be had; the other side was told then.
pub fn serve() -> io::Result<()> {
    let socket = stdin().as_fd().try_clone_to_owned()?;
    let (greeting, [frames, answers]) = greeted(&socket)?;
    match Served::new(&greeting, frames, answers) {
        Ok(mut served) => {
            send(&socket, b"R", SendFlags::NOSIGNAL)?;
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
    frames: Region,
    answers: Region,
    created: Created,
    told: u32,
}

impl Served {
    fn new(greeting: &Greeting, frames: OwnedFd, answers: OwnedFd) -> Result<Self, String> {
        let system = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        let places = Places::new(greeting.max_frame).ok_or("frames of that length do not fit into memory")?;
        let frames = Region::open(frames, places.frames_bytes(), false).map_err(system("memory for frames"))?;
        let answers = Region::open(answers, Places::answers_bytes(), true).map_err(system("memory for answers"))?;
        // The library may lie where only the user of the run can read it.
        let library = Library::open(&greeting.library).map_err(|error| error.to_string())?;
        confine(greeting.memory, greeting.starter).map_err(system("it cannot give up its rights"))?;
        let created = Created::new(library, &greeting.configuration).map_err(|error| error.to_string())?;
        Ok(Self { places, frames, answers, created, told: 0 })
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
