//! Filters in processes of their own, which read events where they lie, crash, hang, lie, and do what they may not.

use crate::support::{Event, MISBEHAVING_FILTER, TemporaryDirectory, build, fragment, pool, process_config as config};
use ropewalk_flow::messages::Fragment;
use ropewalk_memory::{MemoryKind, Staging};
use ropewalk_plugin::WrongDecision;
use ropewalk_plugin::confinement::Missing;
use ropewalk_plugin::filter::process::{FilterProcess, MOST_EVENTS, Offer, ProcessConfig};
use ropewalk_terms::{Attempt, EventKey, RunNumber, TriggerBits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

/// What became of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Decided {
        accept: bool,
        bits: TriggerBits,
        result: Vec<u8>,
    },
    Undecided,
    Nonsense(WrongDecision),
    /// The process ended.
    Ended,
    /// It took too long.
    Slow,
}

/// A filter's process that is waited for.
struct Driven {
    process: FilterProcess,
    is_ready: bool,
    has_ended: bool,
}

impl Driven {
    fn new(library: &Path) -> Self {
        Self::with(config(library, ""))
    }

    fn with(config: ProcessConfig) -> Self {
        Self { process: FilterProcess::new(config).expect("it can be had"), is_ready: false, has_ended: false }
    }

    fn start(&mut self) {
        self.process.start();
        (self.is_ready, self.has_ended) = (false, false);
        self.wait(|this| this.is_ready || this.has_ended);
        assert!(self.is_ready, "{:?}", self.ends());
    }

    /// Sleeps until there is something to look at, and looks.
    fn turn(&mut self) {
        let mut events: Vec<_> =
            self.process.descriptors().map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)).collect();
        poll(&mut events, Some(&Timespec { tv_sec: 20, tv_nsec: 0 })).expect("they can be waited for");
        let seen = self.process.look();
        self.is_ready |= seen.is_ready;
        self.has_ended |= seen.has_ended;
    }

    fn wait(&mut self, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < LONG, "{:?}", self.ends());
            self.turn();
        }
    }

    /// What it decides on one event, in a process that is started if none runs.
    fn decide(&mut self, event: &Event) -> Outcome {
        self.decide_within(event, LONG)
    }

    fn decide_within(&mut self, event: &Event, patience: Duration) -> Outcome {
        if !self.is_ready || self.has_ended {
            self.start();
        }
        assert_eq!(self.process.offer(4711, event), Offer::Taken);
        self.process.flush();
        let begun = Instant::now();
        loop {
            if let Some(outcome) = self.next() {
                return outcome;
            }
            if self.has_ended {
                return Outcome::Ended;
            }
            if begun.elapsed() > patience {
                self.process.kill();
                self.wait(|this| this.has_ended);
                return Outcome::Slow;
            }
            if patience == LONG { self.turn() } else { std::thread::sleep(Duration::from_millis(5)) }
        }
    }

    fn next(&mut self) -> Option<Outcome> {
        Some(match self.process.next_decision()? {
            Ok((ticket, decision)) => {
                assert_eq!(ticket, 4711);
                decision.map_or(Outcome::Undecided, |decision| Outcome::Decided {
                    accept: decision.accept,
                    bits: decision.bits,
                    result: decision.result.to_vec(),
                })
            }
            Err(nonsense) => {
                self.process.kill();
                self.wait(|this| this.has_ended);
                Outcome::Nonsense(nonsense)
            }
        })
    }

    /// Why processes ended, and how often.
    fn ends(&self) -> Vec<(String, u64)> {
        self.process.journal().ends().into_iter().map(|(end, times)| (end.to_string(), times)).collect()
    }
}

fn of(memory: &mut Staging, bytes: &[u8]) -> Event {
    Event::new(5, [fragment(memory, 11, bytes, 4000)])
}

/// What the filter computes of all bytes of an event (FNV-1a).
fn sum_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn text(outcome: &Outcome) -> &str {
    let Outcome::Decided { result, .. } = outcome else { panic!("{outcome:?}") };
    std::str::from_utf8(result).expect("text")
}

/// In any kind of memory, the event is seen as it is; only what cannot be shared is copied.
#[test]
fn a_process_gets_all_that_is_known_of_an_event_and_decides() {
    let directory = TemporaryDirectory::new();
    let library = build(&directory, MISBEHAVING_FILTER, &[]);
    for (kind, copied) in [(MemoryKind::Memfd, 0), (MemoryKind::Anonymous, 14), (MemoryKind::Heap, 14)] {
        let mut memory = pool(kind, 4096, 16);
        let mut filter = Driven::new(&library);
        filter.process.begin_run(RunNumber(77));
        let parts: [(u32, &[u8], usize); 3] = [(11, b"?one four", 4), (12, &[1, 2, 3, 4, 5], 2), (13, b"", 1)];
        let mut event = Event::new(5, parts.map(|(source, bytes, piece)| fragment(&mut memory, source, bytes, piece)));
        event.is_complete = false;
        let outcome = filter.decide(&event);
        assert_eq!(
            text(&outcome),
            "run 77 key 562949953421317 number 5 resync 2 attempt 3 flags 1 type 9; \
             11: 9 bytes 20 in 3, 20001 3000 5 1099511627787 1125899906842624; \
             12: 5 bytes 5 in 3, 20001 3000 5 1099511627788 1125899906842624; \
             13: 0 bytes 0 in 0, 20001 3000 5 1099511627789 1125899906842624"
        );
        let Outcome::Decided { accept: true, bits, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(bits, TriggerBits::of(0).with(TriggerBits::of(127)));
        let Outcome::Decided { accept: false, .. } = filter.decide(&of(&mut memory, b"-")) else { panic!("accepted") };
        assert_eq!(filter.decide(&of(&mut memory, b"u")), Outcome::Undecided, "and goes on:");
        assert_eq!(text(&filter.decide(&of(&mut memory, b"0"))), "77 0 4");
        assert_eq!(filter.process.copied_bytes(), if copied == 0 { 0 } else { copied + 3 }, "{kind:?}");
        assert_eq!(filter.process.missing(), Missing::default());
        filter.process.end_run();
        filter.process.begin_run(RunNumber(78));
        assert_eq!(text(&filter.decide(&of(&mut memory, b"0"))), "78 1 5");
        assert_eq!(filter.ends(), []);
    }
}

/// A caller that takes decisions slowly or in bursts gets all of them, in order, each with what was computed from the
/// event's bytes.
#[test]
fn many_events_go_through_and_none_is_mixed_up() {
    let directory = TemporaryDirectory::new();
    let mut memory = pool(MemoryKind::Memfd, 64 << 10, 16);
    let mut own = pool(MemoryKind::Anonymous, 64 << 10, 4);
    let mut filter = Driven::new(&build(&directory, MISBEHAVING_FILTER, &[]));
    filter.start();
    let events: Vec<(Event, u64)> = (0..997_u64)
        .map(|number| {
            let first: Vec<u8> = (0..number % 97).map(|at| (at * number) as u8).collect();
            let first = [b"#", &first[..]].concat();
            let second = vec![number as u8; number as usize % 50];
            // Some lie where the process must be given a copy.
            let other = if number % 10 == 0 { &mut own } else { &mut memory };
            let second_fragment = fragment(other, 2, &second, 17);
            let sum = sum_of(&[&first[..], &second].concat());
            (Event::new(number, [fragment(&mut memory, 1, &first, 1 + number as usize % 60), second_fragment]), sum)
        })
        .collect();
    let all = 2_000_000_u32;
    let (mut offered, mut decided) = (0_u32, 0_u32);
    while decided < all {
        let burst = 1 + offered % 300;
        for _ in 0..burst.min(all - offered) {
            if filter.process.offer(offered, &events[offered as usize % events.len()].0) != Offer::Taken {
                break;
            }
            offered += 1;
        }
        filter.process.flush();
        if decided + 600 < offered || offered == all {
            filter.turn();
        }
        while let Some(decision) = filter.process.next_decision() {
            let (ticket, decision) = decision.expect("it can be true");
            let expected = events[ticket as usize % events.len()].1;
            assert_eq!((ticket, decision.expect("it decides").result), (decided, &expected.to_ne_bytes()[..]));
            decided += 1;
        }
        assert!((decided..=offered).contains(&(filter.process.decided() as u32)), "taken or not");
    }
    assert_eq!(filter.ends(), []);
}

/// What is mapped at an address of a process: which file, and how far into it.
fn place(process: &str, address: usize) -> Option<(String, usize)> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("it is ours");
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (begin, end) = words.next()?.split_once('-')?;
        let [begin, end, offset] =
            [begin, end, words.nth(1)?].map(|word| usize::from_str_radix(word, 16).expect("a number"));
        let file = format!("{} {}", words.next()?, words.next()?);
        (begin..end).contains(&address).then(|| (file, offset + address - begin))
    })
}

/// Not one byte is elsewhere than where it was received: both processes have the same page of the same file there.
#[test]
fn a_process_sees_an_event_at_the_place_in_memory_where_it_was_received() {
    let directory = TemporaryDirectory::new();
    let mut filter = Driven::new(&build(&directory, MISBEHAVING_FILTER, &[]));
    let [mut one, mut other] =
        [(4096, 16), (64 << 10, 4)].map(|(block, blocks)| pool(MemoryKind::Memfd, block, blocks));
    for round in 0..8 {
        // From two pools, in pieces, of which each begins somewhere else.
        let (first, second) = ([b"@", &vec![b'1'; 3000 + round][..]].concat(), vec![b'2'; 50_000 + round]);
        let parts = [fragment(&mut one, 1, &first, 900 + round), fragment(&mut other, 2, &second, 9000)];
        let event = Event::new(5, parts);
        let outcome = filter.decide(&event);
        let (process, told) = text(&outcome).split_once(' ').expect("places");
        let there: Vec<_> =
            told.split(' ').map(|one| place(process, usize::from_str_radix(one, 16).expect("an address"))).collect();
        let pieces = event.fragments.iter().flat_map(|fragment| fragment.payload.pieces());
        let here: Vec<_> = pieces.map(|piece| place("self", piece.as_ptr().addr())).collect();
        assert!(here.len() >= 10 && here.iter().all(Option::is_some), "{here:?}");
        assert_eq!(there, here);
    }
    assert_eq!(filter.process.copied_bytes(), 0);
}

#[test]
fn long_results_and_full_rings_hold_up_and_lose_nothing() {
    let directory = TemporaryDirectory::new();
    let mut memory = pool(MemoryKind::Memfd, 64 << 10, 16);
    let mut filter = Driven::new(&build(&directory, MISBEHAVING_FILTER, &[]));
    filter.start();
    let bytes = fragment(&mut memory, 1, b"R", 1);
    let mut offered = 0;
    while filter.process.offer(offered, &Event::new(offered.into(), [bytes.clone()])) == Offer::Taken {
        offered += 1;
    }
    assert_eq!(offered as usize, MOST_EVENTS);
    filter.process.flush();
    let mut decided = 0;
    while decided < offered {
        if let Some(decision) = filter.process.next_decision() {
            let (ticket, decision) = decision.expect("it can be true");
            let result = decision.expect("it decides").result;
            assert_eq!((ticket, result.len()), (decided, 65_536));
            assert!(result.iter().all(|&byte| byte == ticket as u8), "the result of event {ticket} is another one's");
            decided += 1;
        } else {
            filter.turn();
        }
    }
    let wide: Vec<Fragment> = (0..4000).map(|source| fragment(&mut memory, source, b".", 1)).collect();
    let wide = Event::new(9, wide);
    let mut fitting = 0;
    while filter.process.offer(4711, &wide) == Offer::Taken {
        fitting += 1;
    }
    assert!((3..=4).contains(&fitting), "{fitting} events of 4000 fragments");
    filter.process.flush();
    for _ in 0..fitting {
        filter.wait(|_| true);
        while filter.process.next_decision().map(|decision| decision.expect("it can be true")).is_none() {
            filter.turn();
        }
    }
    assert_eq!(filter.process.offer(4711, &wide), Offer::Taken, "there is room again");
}

/// What has to be copied stays as it is until it is decided, though the ring of copies is passed again and again.
#[test]
fn copies_are_not_written_over_before_their_event_is_decided() {
    let directory = TemporaryDirectory::new();
    let mut memory = pool(MemoryKind::Anonymous, 128 << 10, 40);
    let mut filter = Driven::new(&build(&directory, MISBEHAVING_FILTER, &[]));
    filter.start();
    let all: Vec<(Event, u64)> = (0..37_u8)
        .map(|number| {
            let bytes = [b"#", &vec![number; 90_000 + usize::from(number) * 100][..]].concat();
            (Event::new(number.into(), [fragment(&mut memory, 1, &bytes, 100_000)]), sum_of(&bytes))
        })
        .collect();
    let (mut offered, mut decided, mut was_full) = (0, 0, 0);
    while decided < 200_u32 {
        while offered < 200 {
            let event = &all[offered as usize % all.len()].0;
            if filter.process.offer(offered, event) != Offer::Taken {
                was_full += 1;
                assert!(offered - decided <= 11, "a ring of 1 MiB has room for 11 of them");
                break;
            }
            offered += 1;
        }
        filter.process.flush();
        filter.turn();
        while let Some(decision) = filter.process.next_decision() {
            let (ticket, decision) = decision.expect("it can be true");
            let sum = all[ticket as usize % all.len()].1;
            assert_eq!((ticket, decision.expect("it decides").result), (decided, &sum.to_ne_bytes()[..]));
            decided += 1;
        }
    }
    assert!(was_full > 0);
}

#[test]
fn what_will_never_have_room_is_known() {
    let directory = TemporaryDirectory::new();
    let mut memory = pool(MemoryKind::Anonymous, 2 << 20, 4);
    let mut filter = Driven::new(&build(&directory, MISBEHAVING_FILTER, &[]));
    filter.start();
    let much = Event::new(1, [fragment(&mut memory, 1, &vec![b'.'; (1 << 20) + 1], 2 << 20)]);
    assert_eq!(filter.process.offer(1, &much), Offer::TooLarge, "it would have to be copied");
    let many = Event::new(2, vec![fragment(&mut memory, 1, b".", 1); 30_000]);
    assert_eq!(filter.process.offer(1, &many), Offer::TooLarge, "its description is longer than the ring");
    assert!(matches!(filter.decide(&of(&mut memory, b".")), Outcome::Decided { .. }));
    assert_eq!(filter.process.offer(1, &of(&mut memory, b".")), Offer::Taken);
    assert_eq!(filter.process.offer(2, &much), Offer::Full, "that is known when the process has nothing else");
}

/// Any misdeed costs only the event at hand, and is known by name; the next process decides again.
#[test]
fn an_event_that_ends_its_process_is_lost_alone_and_the_reason_is_known() {
    let directory = TemporaryDirectory::new();
    let library = build(&directory, MISBEHAVING_FILTER, &[]);
    let mut memory = pool(MemoryKind::Memfd, 64 << 10, 16);
    for (bad, what, reason) in [
        (b'c', "crashes", "it crashed (SIGABRT)"),
        (b'e', "ends by itself", "it ended by itself, with status 0"),
        (b'w', "writes to the event", "it wrote to what it may only read"),
        (b'W', "insists on writing to the event", "it wrote to what it may only read"),
        (b'g', "takes all memory", "it crashed (SIGABRT) when its `memory` had run out"),
        (b'f', "starts a process", "`clone`"),
        (b'o', "opens a file", "`openat`"),
        (b's', "opens a socket", "`socket`"),
    ] {
        let mut filter = Driven::new(&library);
        let before = of(&mut memory, b"before");
        assert!(matches!(filter.decide(&before), Outcome::Decided { .. }));
        assert_eq!(filter.decide(&of(&mut memory, &[bad])), Outcome::Ended, "{what}");
        let ends = filter.ends();
        assert!(ends.len() == 1 && ends[0].0.contains(reason), "{what}: {ends:?}");
        assert!(matches!(filter.decide(&of(&mut memory, b"behind")), Outcome::Decided { .. }));
        assert_eq!(&*before.fragments[0].payload.to_vec(), b"before");
    }
}

#[test]
fn what_a_process_writes_that_cannot_be_true_is_not_believed() {
    let directory = TemporaryDirectory::new();
    let library = build(&directory, MISBEHAVING_FILTER, &[]);
    let mut memory = pool(MemoryKind::Memfd, 64 << 10, 16);
    let mut filter = Driven::new(&library);
    for (bad, length) in [(b'l', 65_537), (b'L', u32::MAX)] {
        let Outcome::Nonsense(WrongDecision::Result { length: said, .. }) = filter.decide(&of(&mut memory, &[bad]))
        else {
            panic!("it is believed")
        };
        assert_eq!(said, length);
        assert!(matches!(filter.decide(&of(&mut memory, b".")), Outcome::Decided { .. }));
    }
    let told = filter.ends();
    assert!(told.iter().all(|(end, _)| end.contains("its result has")), "{told:?}");
    // The first event of a process writes something where the decision on the second one belongs: one that was taken, ...
    let mut wrote = |bad, expected| {
        let mut filter = Driven::new(&library);
        assert!(matches!(filter.decide(&of(&mut memory, &[bad])), Outcome::Decided { .. }));
        if let WrongDecision::Event { .. } = expected {
            // This event writes nothing there: only the first one did.
            assert_eq!(filter.process.offer(4711, &of(&mut memory, b".")), Offer::Taken);
        }
        assert_eq!(filter.next(), Some(Outcome::Nonsense(expected)));
    };
    wrote(b'2', WrongDecision::Order { expected: 2, found: 1 });
    wrote(b'n', WrongDecision::Order { expected: 2, found: 77 });
    wrote(b'q', WrongDecision::Unasked);
    let (due, said) = (EventKey::new(2, 5), EventKey::new(0, 0));
    wrote(b'q', WrongDecision::Event { due, attempt: Attempt(3), said, said_attempt: 0 });
}

#[test]
fn a_process_that_hangs_is_ended_and_one_that_is_slow_is_waited_for() {
    let directory = TemporaryDirectory::new();
    let mut memory = pool(MemoryKind::Memfd, 64 << 10, 16);
    let mut filter = Driven::new(&build(&directory, MISBEHAVING_FILTER, &[]));
    assert_eq!(filter.decide_within(&of(&mut memory, b"h"), Duration::from_millis(300)), Outcome::Slow);
    assert_eq!(filter.ends(), [("it took longer than `timeout`".to_owned(), 1)]);
    assert!(matches!(filter.decide(&of(&mut memory, b"t")), Outcome::Decided { .. }));
}

#[test]
fn a_process_that_closes_its_descriptors_is_ended() {
    let directory = TemporaryDirectory::new();
    let mut memory = pool(MemoryKind::Memfd, 64 << 10, 16);
    let mut filter = Driven::new(&build(&directory, MISBEHAVING_FILTER, &[]));
    // It has answered before that is noticed, or not.
    filter.decide(&of(&mut memory, b"x"));
    filter.wait(|this| this.has_ended);
    let ends = filter.ends();
    let reasons = ["it closed the socket", "it ended by itself"];
    assert!(reasons.iter().any(|reason| ends[0].0.contains(reason)), "{ends:?}");
    assert!(matches!(filter.decide(&of(&mut memory, b".")), Outcome::Decided { .. }));
}

/// The kernel closes its socket a moment before it says that it has ended: that is not the reason.
#[test]
fn a_process_that_is_killed_is_said_to_be_ended_from_outside() {
    let directory = TemporaryDirectory::new();
    let mut memory = pool(MemoryKind::Memfd, 64 << 10, 16);
    let mut filter = Driven::new(&build(&directory, MISBEHAVING_FILTER, &[]));
    let event = of(&mut memory, b"I");
    for _ in 0..20 {
        let id = text(&filter.decide(&event)).parse().ok().and_then(Pid::from_raw).expect("its id");
        kill_process(id, Signal::KILL).expect("it is there");
        let begun = Instant::now();
        while !filter.has_ended && begun.elapsed() < LONG {
            filter.has_ended = filter.process.look().has_ended;
        }
    }
    assert_eq!(filter.ends(), [("it was ended from outside (SIGKILL)".to_owned(), 20)]);
}

/// A process may be killed at any moment: what it decided before counts, once and in order, and what it had is known.
#[test]
fn a_process_that_is_killed_at_any_moment_has_decided_what_it_said_and_nothing_else() {
    let directory = TemporaryDirectory::new();
    let mut memory = pool(MemoryKind::Memfd, 64 << 10, 16);
    let mut filter = Driven::new(&build(&directory, MISBEHAVING_FILTER, &[]));
    let events: Vec<Event> = (0..100).map(|number| Event::new(number, [fragment(&mut memory, 1, b".", 1)])).collect();
    let mut random = 88_172_645_463_325_252_u64;
    println!("seed {random}");
    for _ in 0..20 {
        filter.start();
        let (mut offered, mut decided) = (0, 0);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let until = Instant::now() + Duration::from_micros(random % 3000);
        let mut is_killed = false;
        while !filter.has_ended {
            if Instant::now() > until && !is_killed {
                filter.process.kill();
                is_killed = true;
            }
            while !is_killed && filter.process.offer(offered, &events[offered as usize % 100]) == Offer::Taken {
                offered += 1;
            }
            filter.process.flush();
            let seen = filter.process.look();
            filter.has_ended |= seen.has_ended;
            while let Some(decision) = filter.process.next_decision() {
                assert_eq!(decision.expect("it can be true").0, decided);
                decided += 1;
            }
        }
        assert!(decided <= offered && filter.process.decided() == u64::from(decided));
    }
    assert_eq!(filter.ends(), [("it took longer than `timeout`".to_owned(), 20)]);
}

#[test]
fn what_is_wrong_with_a_filter_is_known_before_the_run() {
    let directory = TemporaryDirectory::new();
    let built = |macros: &[&str]| build(&directory, MISBEHAVING_FILTER, macros);
    let tried_out = |config: ProcessConfig, patience: u64| {
        let mut process = FilterProcess::new(config).expect("it can be had");
        process.try_out(Duration::from_secs(patience)).map_or_else(|error| error.to_string(), |()| "good".to_owned())
    };
    let good = built(&[]);
    assert_eq!(tried_out(config(&good, ""), 30), "good");
    for (library, configuration, word) in [
        (&built(&["VERSION=2"]), "", "built for version 2"),
        (&built(&["NO_TABLE"]), "", "no function `ropewalk_plugin`"),
        (&directory.0.join("nowhere.so"), "", "cannot be loaded"),
        (&good, "refuse", "it wants to hear something else"),
        (&good, "crash", "its process was not ready yet when it crashed (SIGABRT)"),
        (&good, "hang", "it was not ready after 2s"),
    ] {
        let told = tried_out(config(library, configuration), if configuration == "hang" { 2 } else { 30 });
        assert!(told.contains(word), "{told}");
    }
    let long = FilterProcess::new(config(&good, &"x".repeat(70_000)));
    assert!(long.expect_err("it does not fit").to_string().contains("60 KiB"));
    let nowhere = ProcessConfig { command: vec!["/nowhere/ropewalk".into()], ..config(&good, "") };
    let told = tried_out(nowhere, 2);
    assert!(told.contains("cannot be started"), "{told}");
}
