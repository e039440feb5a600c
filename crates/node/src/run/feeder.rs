//! Blocks of a file, a FIFO or standard input into a ring, in the place of a card.

use super::card_process::ChildSlot;
use super::input_summary::InputSummary;
use crate::offline::felix::BlockInput;
use crate::offline::{ByteOrigin, OfflineError};
use ropewalk_io::wait::Bell;
use ropewalk_memory::ring::RingWriter;
use ropewalk_wire::felix::{BlockFormat, BlockHeader, ELINKS, HEADER_BYTES, SEQUENCES};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long it waits for room in the ring before it looks again.
const NO_ROOM: Duration = Duration::from_micros(100);
/// Who is faster than wanted by less does not wait.
const LEAST_WAIT: Duration = Duration::from_millis(1);
/// It is looked at least this often whether anybody still reads.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// What the writer of a ring or of a source leaves behind.
#[derive(Debug, Default)]
pub(super) struct FeederNotes {
    said: OnceLock<Vec<String>>,
    input: OnceLock<InputSummary>,
}

impl FeederNotes {
    /// What was wrong: known when it has ended.
    pub(super) fn all(&self) -> &[String] {
        self.said.get().map_or(&[], Vec::as_slice)
    }

    /// Says what was wrong, once.
    pub(super) fn leave(&self, notes: Vec<String>) {
        // Nobody else says anything.
        let _ = self.said.set(notes);
    }

    /// Says what was read of a file, once.
    pub(super) fn leave_input(&self, input: InputSummary) {
        let _ = self.input.set(input);
    }
}

/// What writes a ring, on its thread.
#[derive(Debug)]
pub(super) struct RunningFeeder {
    /// The card's name.
    pub(super) name: String,
    pub(super) thread: JoinHandle<()>,
    /// Ends it soon.
    pub(super) is_over: Arc<AtomicBool>,
    pub(super) notes: Arc<FeederNotes>,
    /// Empty where it is no process of its own.
    pub(super) child: ChildSlot,
}

impl RunningFeeder {
    /// What was read of a file in the place of a source: known when it has ended.
    pub(super) fn input(&self) -> Option<InputSummary> {
        self.notes.input.get().cloned()
    }

    /// What was wrong, with the card's name.
    pub(super) fn remarks(&self) -> impl Iterator<Item = String> {
        self.notes.all().iter().map(|note| format!("{}: {note}", self.name))
    }
}

/// Writes blocks into a ring.
pub(super) struct Feeder {
    pub(super) origin: ByteOrigin,
    pub(super) input: BlockInput,
    pub(super) writer: RingWriter,
    /// What wakes the ring's reader, where it sleeps.
    pub(super) bell: Option<Bell>,
    /// Again and again, with sequence numbers that go on counting.
    pub(super) again: bool,
    pub(super) bytes_per_second: Option<f64>,
    /// Set by whoever wants no more.
    pub(super) is_over: Arc<AtomicBool>,
}

impl Feeder {
    /// Writes all blocks, and ends the ring; the notes say what was wrong with them.
    ///
    /// # Errors
    /// Where reading fails: what was read before is written.
    pub(super) fn feed(mut self, notes: &FeederNotes) -> Result<(), OfflineError> {
        let fed = self.feed_all();
        let must_ring = self.writer.close();
        self.ring_if(must_ring);
        let path = self.origin.path().display();
        let (skipped, left_over) = (self.input.skipped_bytes(), self.input.left_over_bytes());
        let mut said = Vec::new();
        if skipped > 0 {
            said.push(format!("{path}: {skipped} bytes between blocks belong to none"));
        }
        if left_over > 0 {
            said.push(format!("{path}: the last {left_over} bytes are no whole block"));
        }
        said.extend(fed.as_ref().err().map(ToString::to_string));
        notes.leave(said);
        fed
    }

    fn feed_all(&mut self) -> Result<(), OfflineError> {
        let (format, begin, mut numbers) = (self.input.format(), Instant::now(), Numbers::default());
        loop {
            while let Some((_, blocks)) = self.input.next_blocks()? {
                for block in blocks.chunks_exact(format.block_bytes()) {
                    let due = self.bytes_per_second.map(|rate| {
                        let bytes = self.writer.written() + block.len() as u64;
                        begin + Duration::from_secs_f64(bytes as f64 / rate)
                    });
                    let end = End { is_over: &self.is_over, bell: self.bell.as_ref() };
                    let block = if self.again { &numbers.of(block, format) } else { block };
                    if !end.wait_until(due, &self.writer) || !end.write(&mut self.writer, block) {
                        return Ok(());
                    }
                }
            }
            if !self.again || self.is_over.load(Ordering::Relaxed) {
                // The reader of the ring counts what is no whole block.
                let end = End { is_over: &self.is_over, bell: self.bell.as_ref() };
                end.write(&mut self.writer, self.input.left_over());
                return Ok(());
            }
            numbers.begin_again();
            self.input = match self.origin.blocks(&self.is_over) {
                // Told to stop since it was asked: then nothing is read, which looks like an empty file.
                Err(_) if self.is_over.load(Ordering::Relaxed) => return Ok(()),
                opened => opened?,
            };
        }
    }

    fn ring_if(&self, must_ring: bool) {
        if must_ring && let Some(bell) = &self.bell {
            bell.ring();
        }
    }
}

/// Who is at the ring's other end, and whether it still wants anything.
struct End<'a> {
    is_over: &'a AtomicBool,
    bell: Option<&'a Bell>,
}

impl End<'_> {
    fn is_gone(&self, writer: &RingWriter) -> bool {
        writer.is_abandoned() || self.is_over.load(Ordering::Relaxed)
    }

    /// Waits for a block's time; false where nobody reads any more.
    fn wait_until(&self, due: Option<Instant>, writer: &RingWriter) -> bool {
        // Short waits are gathered: a sleep is longer than many blocks.
        while let Some(rest) = due.and_then(|due| due.checked_duration_since(Instant::now()))
            && rest > LEAST_WAIT
        {
            if self.is_gone(writer) {
                return false;
            }
            std::thread::sleep(rest.min(LONGEST_WAIT));
        }
        true
    }

    /// Writes a block, or the last part of one, as soon as there is room; false where nobody reads any more.
    fn write(&self, writer: &mut RingWriter, block: &[u8]) -> bool {
        while !self.is_gone(writer) {
            if let Some(space) = writer.space().get_mut(..block.len()) {
                space.copy_from_slice(block);
                if writer.commit(block.len())
                    && let Some(bell) = self.bell
                {
                    bell.ring();
                }
                return true;
            }
            std::thread::sleep(NO_ROOM);
        }
        false
    }
}

/// The sequence numbers of a file that is written again and again go on counting.
struct Numbers {
    /// By e-link: what is added to the file's number, and the last number that was written.
    links: Vec<(u8, Option<u8>)>,
    /// Whose first block of this time has come.
    is_begun: Vec<bool>,
    is_first_time: bool,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { links: vec![(0, None); ELINKS], is_begun: vec![false; ELINKS], is_first_time: true }
    }
}

impl Numbers {
    fn begin_again(&mut self) {
        self.is_first_time = false;
        self.is_begun.fill(false);
    }

    /// The block with the number that it has now.
    fn of(&mut self, block: &[u8], format: BlockFormat) -> Vec<u8> {
        let mut block = block.to_vec();
        if let Some(head) = block.first_chunk_mut::<HEADER_BYTES>()
            && let Ok(header) = BlockHeader::parse(head, format)
        {
            let (added, last) = &mut self.links[header.elink.index()];
            if !std::mem::replace(&mut self.is_begun[header.elink.index()], true) && !self.is_first_time {
                *added = last.map_or(0, |last| last.wrapping_add(1).wrapping_sub(header.sequence) % SEQUENCES);
            }
            let sequence = (header.sequence + *added) % SEQUENCES;
            *last = Some(sequence);
            *head = BlockHeader { sequence, ..header }.to_bytes(format);
        }
        block
    }
}
