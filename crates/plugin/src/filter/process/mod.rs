//! A filter in a separate process, which reads events in place and can do no harm outside it.
//!
//! ```text
//!  FilterProcess                                                        serve, or a program of the user's own
//!    descriptions of events --> events: memory that it can only read --> the event as C sees it --> process
//!    pools of this process ---> mapped, to be read only ----------------/
//!    decisions, checked <------ decisions: memory that it can write <--- decision, result
//!    wake-ups      <----------------- socket --------------------------> wake-ups, ready
//! ```
//! `memory` defines the layout. Memory that the process can write is read once and then checked. The process is
//! [confined](crate::confinement), and dies with the thread that started it; a [`Journal`] has the reason. Each process
//! gets new memory, so that what is left of an earlier process writes to memory that nothing reads.

mod child;
#[cfg(any(test, fuzzing))]
mod hostile;
mod memory;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use super::interface::{RawFill, take_fill, trigger_bits};
use super::{Decision, FilterConfig, FilterEvent, MOST_RESULT};
use crate::confinement::{Missing, WORDS};
use crate::journal::{End, Journal, WrongDecision};
use crate::process::region::{Region, Writable};
use crate::process::worker::{Greeting, MOST_GREETING, Worker, declared, name_of, send_with};
use memory::{
    ACCEPT, ADDRESS, DECISIONS_BYTES, Entry, FILL, Kind, LAST_WORDS, MEMORIES, MEMORY, Marks, RESULTS, RESULTS_RING,
    RING, Ring, SIZES, SLEEPS, Space, UNDECIDED, sequence_of,
};
use ropewalk_flow::filter::{Fills, HistogramError, HistogramShape, MOST_FILLS};
use ropewalk_terms::{Attempt, EventKey, RunNumber};

pub use child::{become_program, serve};
#[cfg(any(test, fuzzing))]
pub use hostile::hear;
pub use memory::{MOST_EVENTS, VERSION};

/// A filter and the resources of its process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessConfig {
    /// The filter.
    pub filter: FilterConfig,
    /// Memory that it may take beside the shared memory, in bytes.
    pub memory: u64,
    /// Size of the ring for copies of data outside shared memory, in bytes: at least twice the size of an event.
    pub copies: usize,
    /// The program and its arguments that call [`serve`] or speak the same protocol.
    pub command: Vec<PathBuf>,
}

/// State of the process.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Sight {
    /// Whether it has become ready.
    pub is_ready: bool,
    /// Whether it has certainly ended.
    pub has_ended: bool,
}

/// Outcome of an offer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Offer {
    /// The process has the event.
    Taken,
    /// There is no room for it now.
    Full,
    /// There will never be room for it: it has too many fragments or pieces, or too many bytes to copy.
    TooLarge,
}

/// Memory that one process shares with this one.
#[derive(Debug)]
struct Memories {
    ring: Ring,
    decisions: Region,
    space: Space,
    /// Address of the events in the process, known when it is ready; 0 if it did not report it.
    base: Option<u64>,
}

/// An event that the process holds.
#[derive(Copy, Clone, Debug)]
struct Offered {
    ticket: u32,
    key: EventKey,
    attempt: Attempt,
    /// Write positions of the rings after it.
    marks: Marks,
}

/// The process of a filter; a new one may replace it. See the diagram of the module. Only [`FilterProcess::try_out`]
/// blocks.
///
/// A thread that drives it first looks, then takes decisions until there are no more, and flushes last. Then it may
/// sleep until a descriptor wakes it.
#[derive(Debug)]
pub struct FilterProcess {
    config: ProcessConfig,
    worker: Worker,
    /// `None` before the first start.
    memories: Option<Memories>,
    run: Option<RunNumber>,
    offered: VecDeque<Offered>,
    /// Number of decisions of this process that were taken, and how many of them were published.
    taken: u64,
    published: u64,
    /// Number of decisions of this process that were seen.
    decided: u64,
    /// Whether something was written after the last publication.
    is_dirty: bool,
    result: Vec<u8>,
    fills: Fills,
    histograms: Vec<HistogramShape>,
    /// Copied bytes of earlier processes.
    copied: u64,
}

impl FilterProcess {
    /// Creates the value without starting a process.
    ///
    /// # Errors
    /// If the system refuses it, or the configuration is longer than 60 KiB.
    pub fn new(config: ProcessConfig) -> io::Result<Self> {
        let process = Self {
            worker: Worker::new(config.command.clone(), &name_of(&config.filter.library, &config.command))?,
            memories: None,
            run: None,
            offered: VecDeque::with_capacity(MOST_EVENTS),
            taken: 0,
            published: 0,
            decided: 0,
            is_dirty: false,
            result: Vec::with_capacity(MOST_RESULT),
            fills: Fills::default(),
            histograms: Vec::new(),
            copied: 0,
            config,
        };
        if greeting(&process.config, &Space::default()).len() > MOST_GREETING {
            return Err(io::Error::other("the `configuration` of a filter is at most 60 KiB long"));
        }
        Ok(process)
    }

    /// Starts the filter, waits until it is ready, and ends it, so that errors are found before a run.
    ///
    /// # Errors
    /// The filter's error, or that it is not ready after `patience`.
    pub fn try_out(&mut self, patience: Duration) -> io::Result<()> {
        self.start();
        let memories = self.memories.as_ref();
        self.worker.try_out(patience, || last_words(memories))?;
        self.histograms = self.declared().map_err(io::Error::other)?;
        Ok(())
    }

    /// Starts the process with new memory and without events; a failure is seen as its end. No process may exist.
    pub fn start(&mut self) {
        self.clear();
        let (copies, config, run) = (self.config.copies, &self.config, self.run);
        let made = Ring::new(copies).and_then(|(ring, events)| {
            let (decisions, file) = Region::new("decisions", DECISIONS_BYTES, Writable::ByOthers)?;
            Ok((Memories { ring, decisions, space: Space::new(copies), base: None }, events, file))
        });
        match made {
            Ok((mut memories, events, decisions)) => {
                if let Some(run) = run {
                    memories.ring.control(Kind::BeginRun, run);
                    memories.ring.publish(0);
                }
                self.worker.start(|socket| greet(socket, config, &memories.space, [&events, &decisions]));
                self.memories = Some(memories);
            }
            Err(error) => self.worker.fail(&error),
        }
    }

    /// Kills the process because it takes too long. Only [`FilterProcess::look`] reports its end as certain.
    pub fn kill(&mut self) {
        self.worker.kill();
    }

    /// Kills a process that did nothing wrong: its end is not recorded.
    pub fn dismiss(&mut self) {
        self.worker.dismiss();
    }

    /// The signal that ended the last process, unless this side killed it; 0 for none.
    pub const fn last_signal(&self) -> u8 {
        self.worker.last_signal()
    }

    /// Looks at the process. Decisions from before its end are still available.
    pub fn look(&mut self) -> Sight {
        if !self.worker.has_news() {
            return Sight::default();
        }
        let memories = self.memories.as_ref();
        let seen = self.worker.look(|| last_words(memories));
        let is_ready = seen.is_ready && self.hear_declarations();
        Sight { is_ready, has_ended: seen.has_ended }
    }

    /// Takes its declarations when it is ready; false if they are invalid, and the process is killed.
    fn hear_declarations(&mut self) -> bool {
        if let Some(memories) = &mut self.memories {
            memories.base = Some(self.worker.told().iter().find_map(|told| address(told)).unwrap_or(0));
        }
        match self.declared() {
            Ok(histograms) => {
                self.histograms = histograms;
                true
            }
            Err(error) => {
                self.worker.blame(End::NotReady(error.to_string()));
                self.worker.kill();
                false
            }
        }
    }

    fn declared(&self) -> Result<Vec<HistogramShape>, HistogramError> {
        self.worker.told().iter().filter_map(|told| declared(told)).collect()
    }

    /// The histograms that the last ready process declared: fills refer to them by their index here.
    pub fn histograms(&self) -> &[HistogramShape] {
        &self.histograms
    }

    /// Announces that events of this run follow. A process that is started later gets this message first.
    pub fn begin_run(&mut self, run: RunNumber) {
        self.run = Some(run);
        self.control(Kind::BeginRun, run);
    }

    /// Announces the end of the run, after all of its events were decided.
    pub fn end_run(&mut self) {
        if let Some(run) = self.run.take() {
            self.control(Kind::EndRun, run);
        }
    }

    fn control(&mut self, kind: Kind, run: RunNumber) {
        if let Some(memories) = &mut self.memories {
            memories.ring.control(kind, run);
            self.is_dirty = true;
            self.flush();
        }
    }

    /// Offers an event. There is no room before the process is ready. Payloads must stay in place until the event is
    /// decided, or the process has certainly ended. The process may find the event at any time from now on, at the
    /// latest after a [`flush`](Self::flush).
    pub fn offer(&mut self, ticket: u32, event: &impl FilterEvent) -> Offer {
        let Some(Memories { ring, space, base: Some(base), .. }) = &mut self.memories else { return Offer::Full };
        if self.offered.len() == MOST_EVENTS {
            return Offer::Full;
        }
        let sequence = self.taken + self.offered.len() as u64 + 1;
        let (key, attempt, run) = (event.key(), event.attempt(), self.run.unwrap_or_default());
        match ring.event((space, *base), sequence, run, event) {
            Some(marks) => {
                self.offered.push_back(Offered { ticket, key, attempt, marks });
                self.is_dirty = true;
                Offer::Taken
            }
            None if self.offered.is_empty() && ring.is_empty() => Offer::TooLarge,
            None => Offer::Full,
        }
    }

    /// Publishes offered events and the room of taken decisions; wakes the process if it sleeps.
    pub fn flush(&mut self) {
        let Some(memories) = self.memories.as_ref().filter(|_| self.is_dirty) else { return };
        memories.ring.publish(self.taken);
        (self.published, self.is_dirty) = (self.taken, false);
        // The process sets a flag before it sleeps and looks once more: one of the two sees the other.
        fence(Ordering::SeqCst);
        let sleeps = memories.decisions.number(SLEEPS);
        if sleeps.load(Ordering::Relaxed) != 0 {
            sleeps.store(0, Ordering::Relaxed);
            self.worker.say(b"W");
        }
    }

    /// Takes the next decision, in the order of the offers, with the ticket of its event; `None` inside if the filter
    /// reports that it cannot decide. The payloads are no longer needed.
    ///
    /// # Errors
    /// If the process wrote something impossible. The caller must kill it; it is not asked again.
    pub fn next_decision(&mut self) -> Option<Result<(u32, Option<Decision<'_>>), WrongDecision>> {
        let due = self.taken + 1;
        let found = self.memories.as_ref()?.decisions.number(sequence_of(due)).load(Ordering::Acquire);
        if found == due.saturating_sub(MOST_EVENTS as u64) {
            if self.taken != self.published {
                // The process may wait for the room of these.
                self.flush();
            }
            return None;
        }
        match self.checked(due, found) {
            Ok((offered, entry)) => {
                self.offered.pop_front();
                self.taken = due;
                self.decided = self.decided.max(due);
                self.is_dirty = true;
                self.memories.as_mut()?.ring.release(offered.marks);
                let decision = Decision {
                    accept: entry.flags & ACCEPT != 0,
                    bits: trigger_bits(entry.bits),
                    result: &self.result,
                    fills: &self.fills,
                };
                Some(Ok((offered.ticket, (entry.flags & UNDECIDED == 0).then_some(decision))))
            }
            Err(nonsense) => {
                self.worker.blame(End::Decision(nonsense));
                Some(Err(nonsense))
            }
        }
    }

    /// Checks the entry of the next decision, and copies its result.
    fn checked(&mut self, due: u64, found: u64) -> Result<(Offered, Entry), WrongDecision> {
        if found != due {
            return Err(WrongDecision::Order { expected: due, found });
        }
        let offered = *self.offered.front().ok_or(WrongDecision::Unasked)?;
        let decisions = &self.memories.as_ref().expect("something was offered").decisions;
        // Copied before the check: the process may change it at any time.
        let entry: Entry = decisions.look(sequence_of(due) + size_of::<u64>());
        if (entry.key, entry.attempt) != (offered.key.to_bits(), offered.attempt.0.into()) {
            let (said, said_attempt) = (EventKey::from_bits(entry.key), entry.attempt);
            return Err(WrongDecision::Event { due: offered.key, attempt: offered.attempt, said, said_attempt });
        }
        if entry.flags > ACCEPT && entry.flags != UNDECIDED {
            return Err(WrongDecision::Flags { flags: entry.flags });
        }
        let length = entry.result_length as usize;
        let is_within = entry.result_at.is_multiple_of(8)
            && length <= MOST_RESULT
            && entry.result_at <= (RESULTS_RING - length.next_multiple_of(8)) as u64;
        if !is_within {
            return Err(WrongDecision::Result { at: entry.result_at, length: entry.result_length });
        }
        let fills_at = entry.result_at as usize + length.next_multiple_of(8);
        let fills = usize::from(entry.fills);
        if fills > MOST_FILLS || fills_at + fills * FILL > RESULTS_RING {
            return Err(WrongDecision::Fills { at: entry.result_at, count: entry.fills });
        }
        self.fills.clear();
        for index in 0..fills {
            take_fill(decisions.look::<RawFill>(RESULTS + fills_at + index * FILL), &mut self.fills);
        }
        self.fills.drop_more(entry.dropped_fills.into());
        self.result.clear();
        decisions.copy_to(RESULTS + entry.result_at as usize, length, &mut self.result);
        Ok((offered, entry))
    }

    /// Number of decisions of this process, taken or not. A process hangs if it stands still.
    pub fn decided(&mut self) -> u64 {
        let Some(memories) = &self.memories else { return 0 };
        let has = |sequence| memories.decisions.number(sequence_of(sequence)).load(Ordering::Acquire) == sequence;
        while self.decided < self.taken + MOST_EVENTS as u64 && has(self.decided + 1) {
            self.decided += 1;
        }
        self.decided
    }

    /// Forgets all offers after the process has certainly ended.
    pub fn clear(&mut self) {
        if let Some(memories) = self.memories.take() {
            self.copied += memories.ring.copied();
        }
        self.offered.clear();
        (self.taken, self.published, self.decided, self.is_dirty) = (0, 0, 0, false);
    }

    /// Number of bytes that were copied because they lie outside shared memory.
    pub fn copied_bytes(&self) -> u64 {
        self.copied + self.memories.as_ref().map_or(0, |memories| memories.ring.copied())
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

/// For tests that stand in for the process.
#[cfg(any(test, fuzzing))]
impl FilterProcess {
    /// Shares new memory as for a new process, and starts none.
    fn share_anew(&mut self) {
        self.clear();
        let (ring, _) = Ring::new(self.config.copies).expect("memory");
        let (decisions, _) = Region::new("decisions", DECISIONS_BYTES, Writable::ByOthers).expect("memory");
        self.memories = Some(Memories { ring, decisions, space: Space::default(), base: Some(0) });
    }
    /// Number of events that the process holds.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.offered.len()
    }

    /// Key of the event whose decision is next.
    #[cfg(test)]
    fn due(&self) -> Option<EventKey> {
        self.offered.front().map(|offered| offered.key)
    }

    /// Writes a sequence number and an entry there.
    fn scribble(&mut self, place: usize, sequence: u64, entry: Entry) {
        let decisions = &mut self.memories.as_mut().expect("it was started").decisions;
        decisions.values(place + size_of::<u64>(), 1)[0] = entry;
        decisions.number(place).store(sequence, Ordering::Release);
    }
}

/// Address of the events in a process that reports it.
fn address(told: &[u8]) -> Option<u64> {
    told.strip_prefix(&[ADDRESS])?.get(7..)?.try_into().ok().map(u64::from_le_bytes)
}

fn greeting(config: &ProcessConfig, space: &Space) -> Vec<u8> {
    let sizes: [u64; SIZES] = [
        VERSION,
        RING as u64,
        config.copies as u64,
        RESULTS_RING as u64,
        MOST_EVENTS as u64,
        space.bytes(),
        space.shared().len() as u64,
    ];
    let library = &config.filter.library;
    Greeting {
        memory: config.memory,
        sizes,
        starter: std::process::id(),
        library: std::path::absolute(library).unwrap_or_else(|_| library.clone()),
        configuration: config.filter.configuration.clone(),
    }
    .encode()
}

/// Sends the first messages with all memories.
fn greet(socket: &OwnedFd, config: &ProcessConfig, space: &Space, own: [&OwnedFd; 2]) -> io::Result<()> {
    send_with(socket, &greeting(config, space), &own.map(AsFd::as_fd))?;
    for some in space.shared().chunks(MEMORIES) {
        let mut message = Vec::with_capacity(8 + some.len() * MEMORY);
        message.extend_from_slice(b"M\0\0\0\0\0\0\0");
        for shared in some {
            message.extend_from_slice(&shared.at.to_le_bytes());
            message.extend_from_slice(&(shared.memory.addresses().len() as u64).to_le_bytes());
        }
        let files: Vec<_> = some.iter().map(|shared| shared.memory.file()).collect();
        send_with(socket, &message, &files)?;
    }
    Ok(())
}

/// The report that the process left when it ended.
fn last_words(memories: Option<&Memories>) -> [u64; WORDS] {
    core::array::from_fn(|index| {
        let word = |memories: &Memories| {
            memories.decisions.number(LAST_WORDS + index * size_of::<u64>()).load(Ordering::Acquire)
        };
        memories.map_or(0, word)
    })
}
