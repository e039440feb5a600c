//! A splitter in a separate process, which can do no harm outside it.
//!
//! ```text
//!  SplitterProcess                                                serve
//!    frames, copied to ---> memory that the process can only read ---> split
//!    answers, checked  <--- memory that it can write              <--- pieces, how many frames are done
//!    Ask, wake-up      <-------------- socket ---------------------->  asked for, ready
//! ```
//! Nothing can change the size of the two memories. The process is [confined](crate::confinement), and dies with the
//! thread that started it. A [`Journal`] has the reason.
//!
//! This file and `serve` belong to the splitter. `worker` starts and watches the process of any plug-in, `child` is the
//! code in that process, `region` the memory between them.

pub(crate) mod child;
pub(crate) mod region;
pub(crate) mod worker;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::confinement::{Missing, WORDS, WORDS_BYTES};
use crate::journal::{End, Journal, Nonsense};
use crate::library::RawPiece;
use crate::splitter::{SplitterConfig, check};
use region::{Region, Writable};
use ropewalk_memory::Payload;
use ropewalk_terms::Cause;
use ropewalk_wire::framing::{MOST_PIECES, Piece};
use worker::{Greeting, MOST_GREETING, Worker, name_of, send_with};

pub use child::serve;
pub use worker::print_with;

/// Maximum number of frames in one exchange.
pub const MOST_FRAMES: usize = 32;

/// A splitter and the resources of its process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessConfig {
    /// The splitter.
    pub splitter: SplitterConfig,
    /// Memory that it may take beside the shared memory, in bytes.
    pub memory: u64,
    /// The program and its arguments that call [`serve`].
    pub command: Vec<PathBuf>,
}

/// State of the process.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Sight {
    /// Whether it has become ready.
    pub is_ready: bool,
    /// Number of frames of the batch that it has done.
    pub done: usize,
    /// Whether it has certainly ended.
    pub has_ended: bool,
}

/// The process of a splitter; a new one may replace it. See the diagram of the module.
#[derive(Debug)]
pub struct SplitterProcess {
    config: ProcessConfig,
    places: Places,
    frames: Region,
    answers: Region,
    /// The descriptors of both memories.
    memories: [OwnedFd; 2],
    worker: Worker,
    /// Number of frames of the batch that were copied.
    put: usize,
    lengths: [usize; MOST_FRAMES],
    copied: u64,
}

impl SplitterProcess {
    /// Maps the memory without starting a process.
    ///
    /// # Errors
    /// If the system refuses the memory, or the configuration is longer than 64 KiB.
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
            worker: Worker::new(config.command.clone(), &name_of(&config.splitter.library, &config.command))?,
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

    /// Starts the splitter, waits until it is ready, and ends it, so that errors are found before a run.
    ///
    /// # Errors
    /// The splitter's error, or that it is not ready after `patience`.
    pub fn try_out(&mut self, patience: Duration) -> io::Result<()> {
        self.start();
        let answers = &self.answers;
        self.worker.try_out(patience, || last_words(answers))
    }

    /// Starts the process; a failure is seen as its end.
    pub fn start(&mut self) {
        for word in 0..WORDS {
            self.answers.number(LAST_WORDS + word * size_of::<u64>()).store(0, Ordering::Relaxed);
        }
        let (greeting, [frames, answers]) = (self.greeting(), &self.memories);
        self.worker.start(|socket| send_with(socket, &greeting, &[frames.as_fd(), answers.as_fd()]));
    }

    fn greeting(&self) -> Vec<u8> {
        let ProcessConfig { splitter, memory, .. } = &self.config;
        Greeting {
            memory: *memory,
            sizes: [splitter.max_frame as u64],
            starter: std::process::id(),
            library: std::path::absolute(&splitter.library).unwrap_or_else(|_| splitter.library.clone()),
            configuration: splitter.configuration.clone(),
        }
        .encode()
    }

    /// Copies another frame of the batch. It must not be longer than configured, and there must be fewer than
    /// [`MOST_FRAMES`].
    pub fn put(&mut self, frame: &Payload) {
        self.put_pieces(frame.len(), frame.pieces());
    }

    /// The same for a contiguous frame.
    pub fn put_bytes(&mut self, frame: &[u8]) {
        self.put_pieces(frame.len(), core::iter::once(frame));
    }

    fn put_pieces<'a>(&mut self, length: usize, pieces: impl Iterator<Item = &'a [u8]>) {
        let index = self.put;
        assert!(index < MOST_FRAMES && length <= self.config.splitter.max_frame, "frame {index} of {length} bytes");
        self.frames.write(Places::length(index), &(length as u64).to_le_bytes());
        let mut at = self.places.frame(index);
        for piece in pieces {
            self.frames.write(at, piece);
            at += piece.len();
        }
        self.lengths[index] = length;
        self.put += 1;
        self.copied += length as u64;
    }

    /// Starts another batch.
    pub const fn clear(&mut self) {
        self.put = 0;
    }

    /// Requests the pieces of these frames of the batch.
    pub fn ask(&mut self, first: usize, count: usize) {
        self.answers.number(DONE).store(first as u64, Ordering::Release);
        let mut asked = [0; 16];
        asked[..8].copy_from_slice(&(first as u64).to_le_bytes());
        asked[8..].copy_from_slice(&(count as u64).to_le_bytes());
        self.worker.say(&asked);
    }

    /// Looks at it.
    pub fn look(&mut self) -> Sight {
        let seen = self.worker.look(|| last_words(&self.answers));
        // Read after the check of the process: frames that it did before it ended count.
        let done = usize::try_from(self.answers.number(DONE).load(Ordering::Acquire)).unwrap_or(usize::MAX);
        Sight { is_ready: seen.is_ready, done, has_ended: seen.has_ended }
    }

    /// Kills the process. Only [`SplitterProcess::look`] reports its end as certain.
    pub fn kill(&mut self) {
        self.worker.kill();
    }

    /// Appends the pieces of a frame of the batch that is done.
    ///
    /// # Errors
    /// If the answer is impossible.
    pub fn answer(&mut self, index: usize, pieces: &mut Vec<Piece>) -> Result<Result<(), Cause>, Nonsense> {
        let checked = self.checked(index, pieces);
        if let Err(nonsense) = checked {
            self.worker.blame(End::Nonsense(nonsense));
        }
        checked
    }

    fn checked(&self, index: usize, pieces: &mut Vec<Piece>) -> Result<Result<(), Cause>, Nonsense> {
        let said = self.answers.look::<i64>(Places::said(index));
        let Ok(said) = u64::try_from(said) else { return Ok(Err(Cause::Malformed)) };
        if said > MOST_PIECES as u64 {
            return Err(Nonsense::Count { said, capacity: MOST_PIECES });
        }
        // Each piece is copied before the check: the process may change it at any time.
        let place = |piece| Places::pieces(index) + piece * size_of::<RawPiece>();
        let raw = (0..said as usize).map(|piece| self.answers.look::<RawPiece>(place(piece)));
        check(raw, self.lengths[index], self.config.splitter.keys, pieces).map(Ok)
    }

    /// Number of copied bytes of frames.
    pub const fn copied_bytes(&self) -> u64 {
        self.copied
    }

    /// Why its processes ended.
    pub fn journal(&self) -> Journal {
        self.worker.journal()
    }

    /// Limits that the system does not support, known after a process was ready.
    pub const fn missing(&self) -> Missing {
        self.worker.missing()
    }

    /// Descriptors that become readable when there is news; they stay the same for all processes.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.worker.descriptor())
    }
}

/// The report that the process left when it ended.
fn last_words(answers: &Region) -> [u64; WORDS] {
    let word = |index| answers.number(LAST_WORDS + index * size_of::<u64>()).load(Ordering::Acquire);
    core::array::from_fn(word)
}

/// The layout of the two memories.
#[derive(Copy, Clone, Debug)]
struct Places {
    max_frame: usize,
}

/// Size of a table in bytes: an entry for each frame, and counters.
const TABLE: usize = 4096;
const ENTRY: usize = 16;
/// Answers: number of frames of the batch that are done.
const DONE: usize = 0;
/// Answers: offset of the report on why the process ended.
const LAST_WORDS: usize = TABLE - WORDS_BYTES;

impl Places {
    /// For frames of at most this many bytes; `None` if they do not fit into memory.
    fn new(max_frame: u64) -> Option<Self> {
        let most = usize::try_from(max_frame).ok()?.max(1).checked_next_multiple_of(64)?;
        most.checked_mul(MOST_FRAMES)?.checked_add(TABLE)?;
        Some(Self { max_frame: most })
    }

    /// Size of the memory for frames, in bytes.
    const fn frames_bytes(self) -> usize {
        TABLE + MOST_FRAMES * self.max_frame
    }

    /// Size of the memory for answers, in bytes.
    const fn answers_bytes() -> usize {
        TABLE + MOST_FRAMES * MOST_PIECES * size_of::<RawPiece>()
    }

    /// Frames: offset of the length of this frame.
    const fn length(index: usize) -> usize {
        ENTRY * index
    }

    /// Frames: offset of this frame.
    const fn frame(self, index: usize) -> usize {
        TABLE + index * self.max_frame
    }

    /// Answers: offset of the answer for this frame.
    const fn said(index: usize) -> usize {
        ENTRY * (index + 1)
    }

    /// Answers: offset of this frame's pieces.
    const fn pieces(index: usize) -> usize {
        TABLE + index * MOST_PIECES * size_of::<RawPiece>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps() {
        let places = Places::new(1500).expect("that is little");
        assert!(Places::length(MOST_FRAMES) <= TABLE && Places::said(MOST_FRAMES) <= LAST_WORDS);
        assert_eq!(places.frame(1) - places.frame(0), 1536);
        assert_eq!(places.frame(MOST_FRAMES), places.frames_bytes());
        assert_eq!(Places::pieces(MOST_FRAMES), Places::answers_bytes());
        assert!(Places::new(u64::MAX).is_none());
    }
}
