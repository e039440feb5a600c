//! In the process: what is asked for is done, frame by frame.
#![allow(unsafe_code)]

use super::MOST_FRAMES;
use super::caller::Caller;
use super::greeting::Greeting;
use super::places::{DONE, LAST_WORDS, Places};
use super::region::Region;
use crate::confinement::{LastWords, Missing};
use crate::splitter::{Created, Said};
use ropewalk_wire::framing::MOST_PIECES;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// What the process does: standard input is the socket of the one who started it. Returns when that one has gone.
///
/// # Errors
/// Where standard input is no such socket, or the splitter cannot be had; the other side was told then.
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
    /// Before the memory in which they are left, which is unmapped last.
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
        // SAFETY: behind LAST_WORDS is room for them, and `answers` outlives what leaves them, in this function as in `Self`.
        let last_words =
            unsafe { LastWords::leave_at(words, frames.addresses()) }.map_err(system("handlers of signals"))?;
        let (library, missing) = caller.confined(greeting)?;
        let created = Created::new(library, &greeting.configuration).map_err(|error| error.to_string())?;
        Ok((Self { places, created, _last_words: last_words, frames, answers }, missing))
    }

    /// Does what it is asked for until nobody is there any more.
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
        // SAFETY: the frames that were asked for are not written before they are done.
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
