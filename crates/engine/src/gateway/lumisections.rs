//! Lumisections of the input queues of a process: [`LumisectionDrive`] begins them and sums the totals of the queues.
//!
//! ```text
//!  set --> number of its lumisection, the same at every queue --> Farm --closed here--> LumisectionDrive --> account
//!              ^                                                                        |      |
//!              +----- begins, where its length is a time -------------------------------+      +--> over: event sinks
//! ```
//! Queues and drive share a word for each flow: the newest lumisection and the newest set that entered one. A
//! lumisection therefore begins after all events that are in an earlier one, and no queue waits for another.

use crate::Drive;
use ropewalk_flow::gateway::{ClosedLumisection, FlowConfig, LumisectionTotals, Sender};
use ropewalk_flow::manager::LumisectionLength;
use ropewalk_flow::messages::LumisectionEnd;
use ropewalk_terms::{EventKey, Instant};
use rtrb::{Consumer, Producer, RingBuffer};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bits of the shared word for the number of sets. The other bits hold the lumisection.
const SET_BITS: u32 = 40;
const SETS: u64 = (1 << SET_BITS) - 1;
/// Number of lumisections whose first set is stored. Only half of them are looked up, since new ones overwrite the
/// oldest.
const KNOWN: usize = 64;

/// The lumisections of a flow that have begun.
#[derive(Debug)]
struct Begun {
    first_event: u64,
    packing: u64,
    /// Sets in a lumisection; `None` if its length is a time.
    sets: Option<u64>,
    /// Whether the whole run is one lumisection, so that queues share nothing.
    is_one: bool,
    /// The newest lumisection, and the number of sets before the end of the newest set.
    newest: AtomicU64,
    /// The first set of each lumisection, where its length is a time.
    firsts: [AtomicU64; KNOWN],
}

impl Begun {
    fn new(flow: &FlowConfig, length: LumisectionLength) -> Self {
        let packing = u64::from(flow.packing);
        let sets = match length {
            LumisectionLength::Events(events) => Some(events.div_ceil(packing).max(1)),
            LumisectionLength::Run | LumisectionLength::Time(_) => None,
        };
        let newest = AtomicU64::new(1 << SET_BITS);
        let (first_event, is_one) = (flow.first_event, length == LumisectionLength::Run);
        Self { first_event, packing, sets, is_one, newest, firsts: [const { AtomicU64::new(0) }; KNOWN] }
    }

    const fn set_of(&self, first: EventKey) -> u64 {
        first.number().saturating_sub(self.first_event) / self.packing
    }

    const fn first_of(&self, set: u64) -> EventKey {
        EventKey::new(0, self.first_event + set * self.packing)
    }

    /// Enters a set in its lumisection and returns the lumisection's number.
    fn enter(&self, first: EventKey) -> u32 {
        if self.is_one {
            return 1;
        }
        let set = self.set_of(first);
        let enter = |word: u64| Some((word & !SETS) | (word & SETS).max(set + 1).min(SETS));
        let (Ok(before) | Err(before)) = self.newest.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter);
        self.number_of(set, before)
    }

    /// Returns the number of a set's lumisection, according to this word.
    fn number_of(&self, set: u64, word: u64) -> u32 {
        if let Some(sets) = self.sets {
            return u32::try_from(set / sets + 1).unwrap_or(u32::MAX);
        }
        let newest = word >> SET_BITS;
        let oldest = newest.saturating_sub(KNOWN as u64 / 2).max(1);
        let is_in = |number: &u64| self.firsts[*number as usize % KNOWN].load(Ordering::Relaxed) <= set;
        (oldest + 1..=newest).rev().find(is_in).unwrap_or(oldest) as u32
    }

    /// Returns the newest lumisection.
    fn newest(&self) -> u32 {
        let word = self.newest.load(Ordering::Acquire);
        let of_newest_set = self.number_of((word & SETS).saturating_sub(1), word);
        of_newest_set.max((word >> SET_BITS) as u32)
    }

    /// Returns the number of the lumisection of the set that begins with this event, or the highest number behind the
    /// last event.
    fn at(&self, first: EventKey) -> u32 {
        if first == EventKey::MAX {
            return u32::MAX;
        }
        self.number_of(self.set_of(first), self.newest.load(Ordering::Acquire))
    }

    /// Begins the next lumisection after the newest set. Returns its first set. Only one thread may call it.
    fn begin(&self) -> u64 {
        let mut word = self.newest.load(Ordering::Acquire);
        loop {
            let (number, set) = ((word >> SET_BITS) + 1, word & SETS);
            self.firsts[number as usize % KNOWN].store(set, Ordering::Relaxed);
            let next = (number << SET_BITS) | set;
            match self.newest.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return set,
                Err(now) => word = now,
            }
        }
    }
}

/// A lumisection of a flow that every input queue has closed, for the event sinks.
type Over = (u8, LumisectionEnd);

/// An input queue's end of the lumisections; see the picture above.
#[derive(Debug)]
pub struct LumisectionLine {
    begun: Arc<[Begun]>,
    /// By flow.
    passed: Vec<Passed>,
    closed: Producer<ClosedLumisection>,
    over: Consumer<Over>,
    /// By flow, the last lumisection that is over everywhere.
    told: Vec<u32>,
}

/// The lumisections of a flow that get no further events.
#[derive(Debug)]
struct Passed {
    /// Time-out for sets after the first set of a later lumisection.
    timeout: Duration,
    /// No event before this lumisection will come.
    below: u32,
    /// From `at` on, no event before this lumisection will come.
    next: u32,
    at: Instant,
}

impl Passed {
    fn below(&mut self, newest: u32, now: Instant) -> u32 {
        if now >= self.at {
            self.below = self.next;
            if newest > self.next {
                (self.next, self.at) = (newest, now.after(self.timeout));
            }
        }
        self.below
    }
}

impl LumisectionLine {
    /// Returns the lumisection of a set of a flow that begins with this event.
    pub(super) fn enter(&self, flow: u8, first: EventKey) -> u32 {
        self.begun.get(usize::from(flow)).map_or(1, |begun| begun.enter(first))
    }

    /// Closes the finished lumisections; with `is_end`, all of them. Returns whether there is nothing left to
    /// close.
    pub(super) fn close(&mut self, machine: &mut Sender, is_end: bool, now: Instant) -> bool {
        for ((flow, begun), passed) in (0..).zip(self.begun.iter()).zip(&mut self.passed) {
            let newest = begun.newest();
            let below = match is_end {
                true => newest.saturating_add(1),
                false => passed.below(newest, now).min(begun.at(machine.farm().open_from(flow))),
            };
            while !self.closed.is_full()
                && let Some(closed) = machine.farm().next_closed_lumisection(flow, below)
            {
                // The queue has room; a push fails only after the reader has gone.
                let _ = self.closed.push(closed);
            }
        }
        !self.closed.is_full() || self.closed.is_abandoned()
    }

    /// Returns the next lumisection that every queue has closed.
    pub(super) fn next_over(&mut self) -> Option<Over> {
        let (flow, end) = self.over.pop().ok()?;
        self.told[usize::from(flow)] = end.number;
        Some((flow, end))
    }

    /// Returns whether every queue has closed every lumisection.
    pub(super) fn are_over(&self) -> bool {
        self.begun.iter().zip(&self.told).all(|(begun, &told)| told >= begun.newest()) || self.over.is_abandoned()
    }
}

/// The ended lumisections of a run, each with its flow, in order.
#[derive(Debug, Default)]
pub struct LumisectionBoard(Mutex<Vec<(u8, LumisectionEnd)>>);

impl LumisectionBoard {
    fn add(&self, flow: u8, end: LumisectionEnd) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((flow, end));
    }

    /// Returns the lumisections that have ended, each with the index of its flow.
    pub fn read(&self) -> Vec<(u8, LumisectionEnd)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An input queue, as seen by the drive.
#[derive(Debug)]
struct Queue {
    closed: Consumer<ClosedLumisection>,
    over: Producer<Over>,
    /// Ended lumisections for which it has no room.
    untold: VecDeque<Over>,
}

/// Begins lumisections and sums the totals of the input queues. It ends with the last of these.
#[derive(Debug)]
pub struct LumisectionDrive {
    begun: Arc<[Begun]>,
    queues: Vec<Queue>,
    totals: Vec<LumisectionTotals>,
    /// By flow, the first set of each lumisection that began by time.
    firsts: Vec<Vec<u64>>,
    time: Option<Duration>,
    /// When the next lumisection begins; `None` before the run does.
    due: Option<Instant>,
    is_held: Arc<AtomicBool>,
    board: Arc<LumisectionBoard>,
    look_at: Instant,
    is_over: bool,
}

/// Interval at which closed lumisections are collected.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum number of closed lumisections that wait to be collected.
const WAITING: usize = 1024;

impl LumisectionDrive {
    /// Creates the drive for these flows and this length of lumisections, with the ends of `queues` input queues. No
    /// lumisection begins while `is_held` is set.
    pub fn new(
        flows: &[FlowConfig],
        length: LumisectionLength,
        queues: usize,
        is_held: Arc<AtomicBool>,
    ) -> (Self, Vec<LumisectionLine>) {
        let begun: Arc<[Begun]> = flows.iter().map(|flow| Begun::new(flow, length)).collect();
        let passed = |flow: &FlowConfig| Passed { timeout: flow.timeout, below: 1, next: 1, at: Instant::ZERO };
        let ends = (0..queues).map(|_| {
            let ((closed, collected), (tell, over)) = (RingBuffer::new(WAITING), RingBuffer::new(WAITING));
            let passed = flows.iter().map(passed).collect();
            let line = LumisectionLine { begun: Arc::clone(&begun), passed, closed, over, told: vec![0; flows.len()] };
            (Queue { closed: collected, over: tell, untold: VecDeque::new() }, line)
        });
        let (ends, lines) = ends.unzip();
        let total = |flow: &FlowConfig| LumisectionTotals::new(queues, EventKey::new(0, flow.first_event));
        let drive = Self {
            totals: flows.iter().map(total).collect(),
            firsts: vec![vec![0]; flows.len()],
            begun,
            queues: ends,
            time: if let LumisectionLength::Time(time) = length { Some(time) } else { None },
            due: None,
            is_held,
            board: Arc::default(),
            look_at: Instant::ZERO,
            is_over: false,
        };
        (drive, lines)
    }

    /// Returns the board on which ended lumisections are published.
    pub fn board(&self) -> Arc<LumisectionBoard> {
        Arc::clone(&self.board)
    }

    /// Begins another lumisection of every flow if it is time. Returns whether it did.
    fn begin(&mut self, now: Instant) -> bool {
        let Some(time) = self.time.filter(|_| !self.is_held.load(Ordering::Acquire)) else { return false };
        let is_due = self.due.is_some_and(|due| now >= due);
        if is_due {
            self.begun.iter().zip(&mut self.firsts).for_each(|(begun, firsts)| firsts.push(begun.begin()));
        }
        if is_due || self.due.is_none() {
            self.due = Some(now.after(time));
        }
        is_due
    }

    fn collect(&mut self) -> usize {
        let mut work = 0;
        for (index, queue) in self.queues.iter_mut().enumerate() {
            while let Ok(ClosedLumisection { flow, number, account }) = queue.closed.pop() {
                self.totals[usize::from(flow)].closed(index, number, &account);
                work += 1;
            }
        }
        work
    }

    fn tell(&mut self) {
        let Self { begun, totals, firsts, queues, board, .. } = self;
        for (((flow, totals), begun), firsts) in (0..).zip(totals).zip(begun.iter()).zip(firsts) {
            let first = |number: u32| {
                let index = u64::from(number) - 1;
                let newest = || begun.newest.load(Ordering::Acquire) & SETS;
                let set = begun.sets.map(|sets| sets * index);
                begun.first_of(set.unwrap_or_else(|| firsts.get(index as usize).copied().unwrap_or_else(newest)))
            };
            while let Some(end) = totals.next_over(first) {
                board.add(flow, end);
                queues.iter_mut().for_each(|queue| queue.untold.push_back((flow, end)));
            }
        }
        for queue in queues {
            while !queue.over.is_full()
                && let Some(over) = queue.untold.pop_front()
            {
                // There is room, or the queue has ended.
                let _ = queue.over.push(over);
            }
        }
    }
}

impl Drive for LumisectionDrive {
    fn turn(&mut self, now: Instant) -> usize {
        self.look_at = now.after(LOOK);
        // Checked before the lines are read: nothing follows their end.
        let have_ended = self.queues.iter().all(|queue| queue.closed.is_abandoned());
        let work = usize::from(self.begin(now)) + self.collect();
        self.tell();
        self.is_over = have_ended;
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        Some(self.due.map_or(self.look_at, |due| due.min(self.look_at)))
    }

    fn prepare_wait(&mut self) -> bool {
        true
    }

    fn wait_descriptors<'a>(&'a self, _: &mut Vec<BorrowedFd<'a>>) {}

    fn is_done(&self) -> bool {
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_flow::gateway::{Address, PacketSource};
    use ropewalk_terms::SourceId;
    use std::net::Ipv4Addr;

    const FIRST: u64 = 100;
    const PACKING: u16 = 5;

    fn begun(length: LumisectionLength) -> Begun {
        let source = PacketSource { id: SourceId(1), address: Address::of(Ipv4Addr::LOCALHOST) };
        Begun::new(&FlowConfig { first_event: FIRST, ..FlowConfig::new(vec![source], PACKING) }, length)
    }

    fn event(set: u64) -> EventKey {
        EventKey::new(0, FIRST + set * u64::from(PACKING))
    }

    #[test]
    fn events_are_counted_in_whole_sets() {
        let begun = begun(LumisectionLength::Events(8));
        assert_eq!([0, 1, 2, 3, 7].map(|set| begun.enter(event(set))), [1, 1, 2, 2, 4]);
        assert_eq!((begun.newest(), begun.at(event(2)), begun.at(EventKey::MAX)), (4, 2, u32::MAX));
    }

    #[test]
    fn one_begins_behind_the_newest_set_and_earlier_sets_stay_where_they_were() {
        let begun = begun(LumisectionLength::Time(Duration::from_secs(1)));
        assert_eq!((begun.enter(event(3)), begun.newest(), begun.begin(), begun.newest()), (1, 1, 4, 2));
        assert_eq!([2, 3, 4].map(|set| begun.enter(event(set))), [1, 1, 2]);
        assert_eq!((begun.begin(), begun.begin()), (5, 5), "without an event");
        assert_eq!([4, 5, 1].map(|set| begun.enter(event(set))), [2, 4, 1]);
        (0..KNOWN).for_each(|_| _ = begun.begin());
        assert_eq!(begun.enter(event(1)), 4 + KNOWN as u32 / 2, "the oldest one that is known");
    }

    #[test]
    fn queues_agree_on_every_set_whenever_another_lumisection_begins() {
        let begun = begun(LumisectionLength::Time(Duration::from_secs(1)));
        let (firsts, found) = std::thread::scope(|scope| {
            let enter = |queue: u64| {
                let begun = &begun;
                move || {
                    (0..20_000)
                        .map(|turn| 2 * turn + queue)
                        .map(|set| (set, begun.enter(event(set))))
                        .collect::<Vec<_>>()
                }
            };
            let queues = [0, 1].map(|queue| scope.spawn(enter(queue)));
            let mut firsts = vec![0];
            while !queues.iter().all(|queue| queue.is_finished()) {
                firsts.push(begun.begin());
                std::thread::sleep(Duration::from_micros(50));
            }
            (firsts, queues.map(|queue| queue.join().expect("it enters sets")))
        });
        for (set, number) in found.into_iter().flatten() {
            let own = firsts.partition_point(|&first| first <= set) as u32;
            // A queue that is far behind the other one knows no earlier lumisection.
            let oldest_known = firsts.len() as u32 - own >= KNOWN as u32 / 2 && number > own;
            assert!(number == own || oldest_known, "set {set}: {number} is not {own} of {}", firsts.len());
        }
    }
}
