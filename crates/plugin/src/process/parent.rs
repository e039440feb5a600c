//! Beside the one who reads: frames are copied to the process, asked for, and what it says of them is checked.

use super::MOST_FRAMES;
use super::greeting::{Greeting, MOST_GREETING};
use super::places::{DONE, LAST_WORDS, Places};
use super::region::{Region, Writable};
use super::words::name_of;
use super::worker::{Worker, send_with};
use crate::confinement::{Missing, WORDS};
use crate::journal::{End, Journal};
use crate::pieces::{Nonsense, check};
use crate::splitter::SplitterConfig;
use crate::table::RawPiece;
use ropewalk_memory::Payload;
use ropewalk_terms::Cause;
use ropewalk_wire::framing::{MOST_PIECES, Piece};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

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

/// The process of a splitter, of which there may be several, one after the other: see the module's picture.
#[derive(Debug)]
pub struct SplitterProcess {
    config: ProcessConfig,
    places: Places,
    frames: Region,
    answers: Region,
    /// The descriptors of both.
    memories: [OwnedFd; 2],
    worker: Worker,
    /// Frames of the batch that were copied.
    put: usize,
    lengths: [usize; MOST_FRAMES],
    copied: u64,
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

    /// Starts the splitter, waits until it is ready, and ends it: what is wrong with it is known before a run then.
    ///
    /// # Errors
    /// What it says, or that it has not become ready after `patience`.
    pub fn try_out(&mut self, patience: Duration) -> io::Result<()> {
        self.start();
        let answers = &self.answers;
        self.worker.try_out(patience, || last_words(answers))
    }

    /// Starts it; that this failed is seen as its end.
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
        self.worker.say(&asked);
    }

    /// Looks at it.
    pub fn look(&mut self) -> Sight {
        let seen = self.worker.look(|| last_words(&self.answers));
        // Only now: what it did before it ended counts.
        let done = usize::try_from(self.answers.number(DONE).load(Ordering::Acquire)).unwrap_or(usize::MAX);
        Sight { is_ready: seen.is_ready, done, has_ended: seen.has_ended }
    }

    /// Ends it; that it has ended is certain only when [`SplitterProcess::look`] says it.
    pub fn kill(&mut self) {
        self.worker.kill();
    }

    /// Appends the pieces of a frame of the batch that is done.
    ///
    /// # Errors
    /// Where what it said cannot be true.
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
        self.worker.journal()
    }

    /// What its processes are not kept from, since the system cannot do it: known when one was ready.
    pub const fn missing(&self) -> Missing {
        self.worker.missing()
    }

    /// What becomes readable when there is something to look at: the same for all processes.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.worker.descriptor())
    }
}

/// What the process left when it ended.
fn last_words(answers: &Region) -> [u64; WORDS] {
    let word = |index| answers.number(LAST_WORDS + index * size_of::<u64>()).load(Ordering::Acquire);
    core::array::from_fn(word)
}
