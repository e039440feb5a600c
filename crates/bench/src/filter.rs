//! `bench filtering`: events that a filter in C accepts unread, in the thread that owns them and in a process, beside
//! the minimum: a walk over the events, and one cache line in each direction. Long events beside short ones, which must
//! not take longer, since none of their bytes is copied. And a whole run with filter and files, beside the same run
//! without both.

use crate::BenchError;
use crate::pairs::{Series, alternate, median};
use crate::plugins::{Wait, compiled, in_directory};
use crate::session::{Row, Session, case};
use ropewalk_doctor::run::{RunPlan, scratch};
use ropewalk_flow::messages::{Fragment, FragmentFlags, FragmentMeta};
use ropewalk_limits::{SlinkConfig, process_cpu_seconds};
use ropewalk_memory::{MemoryKind, Owner, Pool, PoolConfig};
use ropewalk_plugin::Filter;
use ropewalk_plugin::filter::process::{FilterProcess, Offer, ProcessConfig};
use ropewalk_plugin::filter::{FilterConfig, FilterEvent};
use ropewalk_terms::{Attempt, EventKey, RunNumber, SourceId};
use serde_json::json;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The filter, and its headers.
const FILES: [(&str, &str); 4] = [
    (
        "accepts_all.c",
        "#include \"ropewalk_filter.h\"\n\
         static int process(void *state, const struct ropewalk_event *event, struct ropewalk_decision *decision) {\n\
             (void)state, (void)event;\n\
             decision->accept = 1;\n\
             return 0;\n\
         }\n\
         static const struct ropewalk_filter filter = {\n\
             ROPEWALK_FILTER_HEAD(\"accepts all\"), NULL, NULL, process, NULL, NULL, NULL};\n\
         const struct ropewalk_plugin *ropewalk_plugin(void) { return &filter.plugin; }\n",
    ),
    ("ropewalk_filter.h", include_str!("../../../bindings/c/ropewalk_filter.h")),
    ("ropewalk_event.h", include_str!("../../../bindings/c/ropewalk_event.h")),
    ("ropewalk_plugin.h", include_str!("../../../bindings/c/ropewalk_plugin.h")),
];
const START: Duration = Duration::from_secs(10);
/// Events present, as in a builder unit's table.
const EVENTS: usize = 1024;
/// Events in work at once.
const IN_WORK: u64 = 512;
/// Events between two clock reads.
const ROUND: u64 = 64 << 10;
const BLOCK: usize = 256 << 10;
const NOTE: &str = "limit of the thread: a walk over the events' fragments; of the process: a line of the cache to another \
                    thread, and one back, for each event";

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    in_directory(session, "filtering", measure)
}

fn measure(session: &mut Session<'_>, directory: &Path) -> Result<(), BenchError> {
    let filter = FilterConfig { library: compiled(directory, &FILES)?, configuration: String::new() };
    let pairs = session.options.scale.choose(1, 9, 15);
    let a_moment = Duration::from_millis(session.options.scale.choose(1, 200, 500));
    for by in ["thread", "process"] {
        for (bytes, fragments) in [(256, 1), (2048, 1), (256, 16), (2048, 16)] {
            let case = case([("by", json!(by)), ("event_bytes", json!(bytes)), ("fragments", json!(fragments))]);
            session.measure(&case, |session| {
                let events = events(bytes, fragments)?;
                let mut decider = Decider::new(by, &filter, session)?;
                let ours = || per_second(a_moment, || decider.decided(&events));
                let [series, mut all] = if by == "thread" {
                    alternate(pairs, ours, || per_second(a_moment, || walked(&events)))?
                } else {
                    alternate(pairs, ours, || Echo::with(|echo| per_second(a_moment, || echo.answered())))?
                };
                let nanoseconds = 1e6 / median(series.ours.iter().copied());
                let remark = format!("{nanoseconds:.0} ns an event");
                per_gigabyte(&mut all, bytes);
                session
                    .row(Row::of(&case, "k events/s", &series, NOTE).with_process_cpu(&all).with_remark(Some(remark)))
            })?;
        }
        lengths(session, by, &filter)?;
    }
    chain(session)
}

/// Events of 2 KiB beside those of 256 B, decided by the same filter in short turns: a machine whose speed changes over
/// seconds is the same for both.
fn lengths(session: &mut Session<'_>, by: &str, filter: &FilterConfig) -> Result<(), BenchError> {
    let turns = session.options.scale.choose(1, 201, 801);
    for fragments in [1, 16] {
        let case = case([("by", json!(by)), ("event_bytes", json!("2048:256")), ("fragments", json!(fragments))]);
        session.measure(&case, |session| {
            let (long, short) = (events(2048, fragments)?, events(256, fragments)?);
            let decider = RefCell::new(Decider::new(by, filter, session)?);
            let a_turn = |events: &[Event]| per_second(Duration::ZERO, || decider.borrow_mut().decided(events));
            let [series, _] = alternate(turns, || a_turn(&long), || a_turn(&short))?;
            session.row(Row::of(&case, "k events/s", &series, "limit: events of 256 B in turns with those of 2 KiB"))
        })?;
    }
    Ok(())
}

/// From sockets through a filter that keeps a tenth to run files, beside the same run that only builds and checks.
fn chain(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    let sender = SlinkConfig { fragment_bytes: 2048, ..SlinkConfig::default() };
    let case = case([("by", json!("chain")), ("sources", json!(sender.streams)), ("fragment_bytes", json!(2048))]);
    session.measure(&case, |session| {
        // The disk thread must not share the nodes' processor.
        let usual = session.plan(sender, [100, 1500, 3000], "chain-built");
        let built = RunPlan { check_crc: true, cpus: None, ..usual };
        let filter = "[filter]\ntriggers = [{ every = 10 }]\n";
        let output = scratch(&session.options.output, "chain");
        let kept = RunPlan { write: true, filter, output, ..built.clone() };
        let measured = |plan: &RunPlan| {
            let ran = plan.run()?;
            Ok([ran.gigabytes_per_second, ran.cpu_seconds_per_gigabyte])
        };
        let [series, all] = alternate(scale.pairs(), || measured(&kept), || measured(&built))?;
        let row = Row::of(&case, "GB/s", &series, "limit: the same run without filter and files");
        session.row(row.with_process_cpu(&all))
    })
}

/// Converts processor seconds per event of this size to processor seconds per 10^9 bytes of events, which are not read.
fn per_gigabyte(all: &mut Series, bytes: usize) {
    all.ours.iter_mut().chain(&mut all.limit).for_each(|figure| *figure *= 1e9 / bytes as f64);
}

/// Repeats rounds until `at_least` has passed. Returns thousands of events per elapsed second, and the processor
/// seconds per event, of all threads and the filter's process.
fn per_second(at_least: Duration, mut round: impl FnMut() -> Result<(), BenchError>) -> Result<[f64; 2], BenchError> {
    let (begin, process, mut all) = (Instant::now(), process_cpu_seconds(), 0);
    while all == 0 || begin.elapsed() < at_least {
        round()?;
        all += ROUND;
    }
    let seconds = begin.elapsed().as_secs_f64();
    Ok([all as f64 / seconds / 1e3, (process_cpu_seconds() - process) / all as f64])
}

/// An event as a builder unit holds it.
struct Event {
    key: EventKey,
    fragments: Vec<Fragment>,
}

impl FilterEvent for Event {
    fn key(&self) -> EventKey {
        self.key
    }

    fn attempt(&self) -> Attempt {
        Attempt(1)
    }

    fn is_complete(&self) -> bool {
        true
    }

    fn trigger_type(&self) -> u16 {
        0
    }

    fn fragments(&self) -> impl Iterator<Item = &Fragment> {
        self.fragments.iter()
    }
}

/// Events of this many bytes in this many fragments, in memory that can be shared with a process.
fn events(bytes: usize, fragments: usize) -> Result<Vec<Event>, BenchError> {
    let config = PoolConfig::anonymous("filtering", BLOCK, EVENTS * bytes / BLOCK + 1);
    let mut pool = Pool::new(PoolConfig { memory: MemoryKind::Memfd, ..config }).map_err(BenchError::wrong)?;
    let mut loan = pool.loan(Owner::SHARED).ok_or_else(|| BenchError::wrong("a pool without blocks"))?;
    let length = bytes / fragments;
    let mut next = |source: usize| {
        if loan.spare_len() < length {
            loan = pool.loan(Owner::SHARED)?;
        }
        let payload = loan.append(&vec![source as u8; length])?.into();
        let meta = FragmentMeta {
            source: SourceId(source as u32),
            length: length as u32,
            flags: FragmentFlags::default(),
            bunch_crossing: 0,
            trigger_type: 0,
            raw_id: 0,
            time: 0,
        };
        Some(Fragment { meta, payload })
    };
    let mut event = |number| {
        let fragments = (0..fragments).map(&mut next).collect::<Option<Vec<_>>>()?;
        Some(Event { key: EventKey::new(0, number), fragments })
    };
    let all: Option<Vec<Event>> = (0..EVENTS as u64).map(&mut event).collect();
    all.ok_or_else(|| BenchError::wrong("the pool is too small for the events"))
}

/// Where the filter decides: in this thread, or in a process.
enum Decider {
    Here(Box<Filter>),
    Elsewhere(Box<Elsewhere>),
}

impl Decider {
    fn new(by: &str, filter: &FilterConfig, session: &Session<'_>) -> Result<Self, BenchError> {
        Ok(if by == "thread" {
            Self::Here(Box::new(Filter::new(filter).map_err(BenchError::wrong)?))
        } else {
            Self::Elsewhere(Box::new(Elsewhere::new(filter.clone(), session.options.program()?.to_owned())?))
        })
    }

    /// Decides a round of events.
    fn decided(&mut self, events: &[Event]) -> Result<(), BenchError> {
        match self {
            Self::Here(filter) => decided_here(filter, events),
            Self::Elsewhere(process) => process.decided(events),
        }
    }
}

/// Decides a round of events in this thread.
fn decided_here(filter: &mut Filter, events: &[Event]) -> Result<(), BenchError> {
    for event in events.iter().cycle().take(ROUND as usize) {
        let decision = filter.process(event).map_err(BenchError::wrong)?;
        if !decision.is_some_and(|decision| decision.accept) {
            return Err(BenchError::wrong("an event was not accepted"));
        }
    }
    Ok(())
}

/// Walks a round of events: the address and length of each fragment's bytes.
fn walked(events: &[Event]) -> Result<(), BenchError> {
    for event in events.iter().cycle().take(ROUND as usize) {
        for fragment in &event.fragments {
            for piece in fragment.payload.pieces() {
                std::hint::black_box((fragment.meta.source, piece.as_ptr(), piece.len()));
            }
        }
    }
    Ok(())
}

struct Elsewhere {
    process: FilterProcess,
    offered: u32,
    decided: u32,
}

impl Elsewhere {
    fn new(filter: FilterConfig, program: PathBuf) -> Result<Self, BenchError> {
        let command = vec![program, "filter-process".into()];
        let config = ProcessConfig { filter, memory: 256 << 20, copies: 1 << 20, command };
        let mut process = FilterProcess::new(config).map_err(BenchError::system("a filter's process"))?;
        process.try_out(START).map_err(BenchError::system("a filter's process"))?;
        process.begin_run(RunNumber(1));
        process.start();
        let wait = Wait::begin();
        while !process.look().is_ready {
            wait.sleep(process.descriptors(), || format!("the filter's process: {:?}", process.journal().ends()))?;
        }
        Ok(Self { process, offered: 0, decided: 0 })
    }

    /// Decides a round of events in the process.
    fn decided(&mut self, events: &[Event]) -> Result<(), BenchError> {
        let (until, begin) = (self.decided.wrapping_add(ROUND as u32), Instant::now());
        while self.decided != until {
            // Offers as many as were decided meanwhile, all at once, like a turn of a builder unit.
            while u64::from(self.offered.wrapping_sub(self.decided)) < IN_WORK && self.offered != until {
                match self.process.offer(self.offered, &events[self.offered as usize % EVENTS]) {
                    Offer::Taken => self.offered = self.offered.wrapping_add(1),
                    Offer::Full => break,
                    Offer::TooLarge => return Err(BenchError::wrong("the process has no room for an event")),
                }
            }
            self.process.flush();
            let before = self.decided;
            while let Some(decision) = self.process.next_decision() {
                let (ticket, decision) = decision.map_err(BenchError::wrong)?;
                if ticket != self.decided || !decision.is_some_and(|decision| decision.accept) {
                    return Err(BenchError::wrong("an event was not accepted in its turn"));
                }
                self.decided = self.decided.wrapping_add(1);
            }
            if self.decided == before {
                let has_ended = self.process.look().has_ended;
                if has_ended || begin.elapsed() > START {
                    return Err(BenchError::wrong(format!("its process: {:?}", self.process.journal().ends())));
                }
            }
        }
        if self.process.copied_bytes() > 0 {
            return Err(BenchError::wrong("events were copied"));
        }
        Ok(())
    }
}

/// A cache line.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; 8]);

/// A second thread that answers each line with a line.
struct Echo<'a> {
    there: &'a [Line],
    back: &'a [Line],
    asked: u64,
    answered: u64,
}

impl Echo<'_> {
    /// Calls `then` while the second thread works.
    fn with<T>(then: impl FnOnce(&mut Echo<'_>) -> Result<T, BenchError>) -> Result<T, BenchError> {
        let lines = || (0..IN_WORK).map(|_| Line::default()).collect::<Vec<_>>();
        let (there, back, is_over) = (lines(), lines(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut next, mut idle) = (1, 0);
                while !is_over.load(Ordering::Relaxed) {
                    let place = ((next - 1) % IN_WORK) as usize;
                    if there[place].0[0].load(Ordering::Acquire) == next {
                        back[place].0[1].store(there[place].0[1].load(Ordering::Relaxed), Ordering::Relaxed);
                        back[place].0[0].store(next, Ordering::Release);
                        next += 1;
                    } else {
                        rest(&mut idle);
                    }
                }
            });
            let result = then(&mut Echo { there: &there, back: &back, asked: 0, answered: 0 });
            is_over.store(true, Ordering::Relaxed);
            result
        })
    }

    /// Sends a round of lines there and back.
    fn answered(&mut self) -> Result<(), BenchError> {
        let (until, mut idle) = (self.answered + ROUND, 0);
        while self.answered < until {
            while self.asked - self.answered < IN_WORK && self.asked < until {
                let line = &self.there[(self.asked % IN_WORK) as usize].0;
                self.asked += 1;
                line[1].store(self.asked * 3, Ordering::Relaxed);
                line[0].store(self.asked, Ordering::Release);
            }
            let line = &self.back[(self.answered % IN_WORK) as usize].0;
            if line[0].load(Ordering::Acquire) == self.answered + 1 {
                self.answered += 1;
                if line[1].load(Ordering::Relaxed) != self.answered * 3 {
                    return Err(BenchError::wrong("a line came back as another one"));
                }
            } else {
                rest(&mut idle);
            }
        }
        Ok(())
    }
}

/// Spins, and yields now and then: the other side may need this processor.
fn rest(idle: &mut u32) {
    *idle += 1;
    if idle.is_multiple_of(1000) { std::thread::yield_now() } else { std::hint::spin_loop() }
}
