//! The process's side: reads events in place and has a library decide them in order, or becomes a program that does so.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::io::{self, Write, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rustix::net::{SendFlags, send};

use super::super::interface::{Created, Said, dropped};
use super::memory::{
    ACCEPT, ADDRESS, COPIES, DECISIONS_BYTES, ENTRY, EVENT, Entry, FILL, Kind, LAST_WORDS, MEMORIES, MEMORY,
    MOST_EVENTS, MOST_SAID, RECORDS, RESULTS, RESULTS_RING, RING, SEQUENCE, SIZES, SLEEPS, TAKEN, UNDECIDED, VERSION,
    WRITTEN, sequence_of,
};
use crate::confinement::{Confinement, LastWords, Missing};
use crate::filter::MOST_RESULT;
use crate::filter::interface::{RawDecision, RawEvent, RawFill};
use crate::process::child::Caller;
use crate::process::region::Region;
use crate::process::worker::{Greeting, declaration};
use ropewalk_terms::{EventKey, RunNumber};

/// Number of unread decisions at which the caller is woken.
const MANY: u64 = 32;
/// After an event that took this long, the caller is woken at once.
const LONG: Duration = Duration::from_micros(100);
/// Maximum number of events between two readings of the clock: a reading takes as long as a short event.
const STRIDE: u32 = 8;
/// How long the process polls before it sleeps: a wake-up costs its sender more than that.
const A_WHILE: Duration = Duration::from_micros(30);

/// Main function of the process: standard input is the socket of the process that started it. Returns when that process
/// has ended.
///
/// # Errors
/// If standard input is no such socket, or the filter cannot be created; the caller got the reason then.
pub fn serve() -> io::Result<()> {
    let caller = Caller::connect()?;
    let Greeted { greeting, events, decisions } = greeted(&caller)?;
    let served = Served::new(&greeting, &caller, events, &decisions);
    caller.tell(served)?.work(caller)
}

/// The first message of the caller.
struct Greeted {
    greeting: Greeting<SIZES>,
    /// The reservation for the events and all memories.
    events: Region,
    decisions: OwnedFd,
}

/// Receives the first messages and maps all memories at their addresses.
fn greeted(caller: &Caller) -> io::Result<Greeted> {
    let (greeting, [own, decisions]) = caller.greeting::<SIZES>("a filter that is not trusted")?;
    if greeting.sizes[0] != VERSION {
        return Err(io::Error::other(
            "the run that starts this is of another version: both are to be the same program",
        ));
    }
    let [_, _, copies, _, _, addresses, memories] = greeting.sizes.map(|size| size as usize);
    let mut events = Region::reserve(addresses)?;
    events.place_at(0, own, COPIES + copies)?;
    let (mut placed, mut bytes) = (0, [0; 8 + MEMORIES * MEMORY]);
    while placed < memories {
        let mut descriptors = Vec::new();
        let length = caller.receive_with(&mut bytes, &mut descriptors)?.unwrap_or(0);
        let said = bytes.get(8..length).unwrap_or_default().chunks_exact(MEMORY);
        if descriptors.is_empty() || said.len() != descriptors.len() {
            return Err(io::Error::other("a message about memories does not fit their descriptors"));
        }
        for (memory, file) in said.zip(descriptors) {
            events.place_at(u64_at(memory, 0) as usize, file, u64_at(memory, 8) as usize)?;
            placed += 1;
        }
    }
    Ok(Greeted { greeting, events, decisions })
}

/// A filter at work.
struct Served {
    created: Created,
    /// Dropped before the memory of the report, which is unmapped last.
    _last_words: LastWords,
    events: Region,
    decisions: Region,
    /// Position of the next record.
    at: u64,
    decided: u64,
    /// Number of announced decisions.
    announced: u64,
    /// Positions after the last result, and after the last result of each event.
    result: u64,
    results: Vec<u64>,
    /// Position up to which the caller has taken results, as of the last look.
    results_free: u64,
}

impl Served {
    fn new(
        greeting: &Greeting<SIZES>,
        caller: &Caller,
        events: Region,
        decisions: &OwnedFd,
    ) -> Result<(Self, Missing), String> {
        let decisions =
            Region::open(decisions, DECISIONS_BYTES, true).map_err(|error| format!("memory for decisions: {error}"))?;
        let words = decisions.number(LAST_WORDS).as_ptr().cast();
        // SAFETY: there is room for the report at LAST_WORDS, and `decisions` outlives `last_words`, in this function
        // as in `Self`.
        let last_words = unsafe { LastWords::leave_at(words, events.addresses()) }
            .map_err(|error| format!("handlers of signals: {error}"))?;
        let (library, missing) = caller.confined(greeting)?;
        let created = Created::new(library, &greeting.configuration).map_err(|error| error.to_string())?;
        let mut address = [0; 16];
        address[0] = ADDRESS;
        address[8..].copy_from_slice(&(events.addresses().start as u64).to_le_bytes());
        caller.say(&address).map_err(|error| format!("its addresses cannot be told: {error}"))?;
        for shape in created.histograms() {
            caller.say(&declaration(shape)).map_err(|error| format!("its histograms cannot be told: {error}"))?;
        }
        let served = Self {
            created,
            _last_words: last_words,
            events,
            decisions,
            at: 0,
            decided: 0,
            announced: 0,
            result: 0,
            results: vec![0; MOST_EVENTS],
            results_free: 0,
        };
        Ok((served, missing))
    }

    /// Decides on offered events until the caller has ended.
    fn work(&mut self, mut caller: Caller) -> io::Result<()> {
        // Events between two readings of the clock: 1 while events are long.
        let mut stride = 1;
        while self.wait(&caller, |this| this.written() != this.at)? {
            let written = self.written();
            let (mut before, mut left) = (Instant::now(), stride);
            while self.at != written {
                if !self.record(&mut caller)? {
                    return Ok(());
                }
                left -= 1;
                if left > 0 {
                    continue;
                }
                let now = Instant::now();
                let took = now - before;
                let has_many = self.decided - self.announced.max(self.taken()) >= MANY;
                if has_many || took > LONG {
                    self.announce(&caller)?;
                }
                stride = if took > LONG / 4 { 1 } else { (2 * stride).min(STRIDE) };
                (before, left) = (now, stride);
            }
        }
        Ok(())
    }

    fn written(&self) -> u64 {
        self.events.number(WRITTEN).load(Ordering::Acquire)
    }

    fn taken(&self) -> u64 {
        self.events.number(TAKEN).load(Ordering::Acquire)
    }

    /// Announces decisions that the caller has neither taken nor been woken for.
    fn announce(&mut self, caller: &Caller) -> io::Result<()> {
        if self.decided > self.announced.max(self.taken()) {
            self.announced = self.decided;
            caller.ring(b"D")?;
        }
        Ok(())
    }

    /// Waits until `is_so` holds; false if the caller has ended.
    fn wait(&mut self, caller: &Caller, is_so: impl Fn(&Self) -> bool) -> io::Result<bool> {
        while !is_so(self) {
            self.announce(caller)?;
            let begin = Instant::now();
            while begin.elapsed() < A_WHILE && !is_so(self) {
                (0..32).for_each(|_| std::hint::spin_loop());
            }
            let sleeps = self.decisions.number(SLEEPS);
            sleeps.store(1, Ordering::Relaxed);
            // The other side writes, then checks whether this side sleeps: one of the two sees the other.
            fence(Ordering::SeqCst);
            if !is_so(self) && caller.receive(&mut [0; 16])? == 0 {
                return Ok(false);
            }
            sleeps.store(0, Ordering::Relaxed);
        }
        Ok(true)
    }

    /// Handles the next record; false if the caller has ended.
    fn record(&mut self, caller: &mut Caller) -> io::Result<bool> {
        let at = RECORDS + (self.at % RING as u64) as usize;
        let [length, kind] = [0, 1].map(|word| self.events.look::<u64>(at) >> (32 * word) & 0xffff_ffff);
        if kind == Kind::Event as u64 {
            if !self.event(at, caller)? {
                return Ok(false);
            }
        } else if kind != Kind::Wrap as u64 {
            let run = RunNumber(self.events.look::<u64>(at + 8) as u32);
            if kind == Kind::BeginRun as u64 { self.created.begin_run(run) } else { self.created.end_run() }
        }
        self.at += length;
        Ok(true)
    }

    /// Decides on the event of the record at this place; false if the caller has ended.
    fn event(&mut self, at: usize, caller: &mut Caller) -> io::Result<bool> {
        if !self.make_room_for_a_result(caller)? {
            return Ok(false);
        }
        let sequence = self.events.look(at + SEQUENCE);
        // SAFETY: the caller wrote the struct for this place, and does not write to an offered record before its event
        // is decided.
        let event: RawEvent =
            unsafe { self.events.bytes(at + EVENT, size_of::<RawEvent>()).as_ptr().cast::<RawEvent>().read() };
        let result_at = (self.result % RESULTS_RING as u64) as usize;
        let result = self.decisions.values::<u8>(RESULTS + result_at, MOST_RESULT);
        let result = result.try_into().expect("it has this length");
        // SAFETY: the pointers of the structs are addresses within the events, as the caller knows them (`ADDRESS`),
        // and the memory does not change before the event is decided.
        let said = unsafe { self.created.process(&event, result) };
        let mut entry =
            Entry { key: event.key, attempt: event.attempt, result_at: result_at as u64, ..Entry::default() };
        match said {
            Said::Decided(decision) => self.decide(&mut entry, &decision),
            Said::Undecided => {
                entry.flags = UNDECIDED;
                caller.complain(
                    || format!("filter: it cannot decide on event {}", EventKey::from_bits(event.key)),
                    || self.created.why(),
                );
            }
        }
        self.publish(sequence, entry);
        Ok(true)
    }

    /// Fills the entry from the decision, and writes the fills after the result.
    fn decide(&mut self, entry: &mut Entry, decision: &RawDecision) {
        entry.flags = if decision.accept == 0 { 0 } else { ACCEPT };
        (entry.bits, entry.result_length) = (decision.bits, decision.result_length);
        let fills = self.created.fills(decision);
        (entry.fills, entry.dropped_fills) = (fills.len() as u16, dropped(decision).try_into().unwrap_or(u16::MAX));
        // A filter that wrote a longer result is killed by the caller.
        if entry.result_length as usize <= MOST_RESULT && !fills.is_empty() {
            let behind = RESULTS + entry.result_at as usize + (entry.result_length as usize).next_multiple_of(8);
            self.decisions.values::<RawFill>(behind, fills.len()).copy_from_slice(fills);
        }
    }

    /// Writes a decision to its entry.
    fn publish(&mut self, sequence: u64, entry: Entry) {
        let length = u64::from(entry.result_length).min(MOST_RESULT as u64);
        self.result += length.next_multiple_of(8) + u64::from(entry.fills) * FILL as u64;
        self.results[(sequence % MOST_EVENTS as u64) as usize] = self.result;
        let place = sequence_of(sequence);
        debug_assert!(place.is_multiple_of(ENTRY), "an entry is a line of the cache");
        self.decisions.values(place + size_of::<u64>(), 1)[0] = entry;
        self.decisions.number(place).store(sequence, Ordering::Release);
        self.decided = sequence;
    }

    /// Makes room for the longest possible answer; false if the caller has ended.
    fn make_room_for_a_result(&mut self, caller: &Caller) -> io::Result<bool> {
        let size = RESULTS_RING as u64;
        let to_end = size - self.result % size;
        if to_end < MOST_SAID as u64 {
            self.result += to_end;
        }
        let needed = self.result + MOST_SAID as u64;
        let free_then = |this: &Self| {
            let taken = this.taken();
            let free = if taken == 0 { 0 } else { this.results[(taken % MOST_EVENTS as u64) as usize] };
            free + size
        };
        if needed > self.results_free + size {
            if !self.wait(caller, |this| needed <= free_then(this))? {
                return Ok(false);
            }
            self.results_free = free_then(self) - size;
        }
        Ok(true)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("records are whole"))
}

/// Replaces this process by this program with its arguments, which then is a filter's process of the caller: standard
/// input is the caller's socket. The program may take this many bytes of memory of its own. Returns only on failure,
/// after it sent the reason to the caller.
pub fn become_program(memory: u64, starter: u32, program: &OsString, arguments: &[OsString]) -> io::Error {
    let confinement = Confinement { memory, starter, speaks_over: Vec::new() };
    let why = match confinement.before_program() {
        Ok(missing) => {
            // The reader may have ended.
            missing.texts().for_each(|text| _ = writeln!(io::stderr(), "filter: {text}"));
            let error = Command::new(program).args(arguments).exec();
            format!("`{}` cannot be started: {error}", program.to_string_lossy())
        }
        Err(error) => format!("it cannot give up its rights: {error}"),
    };
    // The caller may have ended and needs no reason then.
    let _ = send(stdin().as_fd(), format!("E{why}").as_bytes(), SendFlags::NOSIGNAL);
    io::Error::other(why)
}
