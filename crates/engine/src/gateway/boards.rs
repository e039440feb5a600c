//! Boards between a gateway's threads and others, which neither side waits at: [`OrderBoard`] holds what run control changes
//! while a run goes on, [`ThrottleBoard`] shows the throttle's state to the thread that passes it to hardware.

use ropewalk_terms::SourceId;
use ropewalk_wire::gateway::ThrottleState;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Something that changes while a run goes on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// A source takes part no longer, or again.
    Mask(SourceId, bool),
    /// Sets of a flow, by its place in the configuration, wait this long for their packets.
    SetTimeout(u16, Duration),
    /// A stream, by its place in the configuration, keeps one of this many of its events.
    SetPrescale(u16, u64),
}

/// How far a reader of the board has read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Read {
    changes: u64,
    masks: usize,
}

/// What was said since the run was set up.
#[derive(Debug, Default)]
struct Said {
    /// Each source that was masked or unmasked, in order: a reader that was away in between has to record as many turns
    /// as all other readers. The number allowed per source keeps the list short.
    masks: Vec<(SourceId, bool)>,
    /// By flow, the last time-out, if there was one.
    timeouts: BTreeMap<u16, Duration>,
    /// By stream, the last prescale, if there was one.
    prescales: BTreeMap<u16, u64>,
}

/// A board that all input queues of a process read. Each looks in its turns whether anything was said since, and takes the lock only if so.
#[derive(Debug, Default)]
pub struct OrderBoard {
    changes: AtomicU64,
    said: Mutex<Said>,
    /// How often gateways report, in nanoseconds; 0 by default.
    interval: AtomicU64,
}

impl OrderBoard {
    /// How often gateways report by default.
    pub const INTERVAL: Duration = Duration::from_millis(50);

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was written: who looks from now on sees it.
    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// A source takes part no longer, or again.
    pub fn mask(&self, source: SourceId, is_masked: bool) {
        self.lock().masks.push((source, is_masked));
        self.changed();
    }

    /// Sets of a flow that are begun from now on wait this long for their packets.
    pub fn set_timeout(&self, flow: u16, timeout: Duration) {
        self.lock().timeouts.insert(flow, timeout);
        self.changed();
    }

    /// A stream keeps one of this many of its events from now on.
    pub fn set_prescale(&self, stream: u16, prescale: u64) {
        self.lock().prescales.insert(stream, prescale);
        self.changed();
    }

    /// Gateways report this often.
    pub fn set_interval(&self, interval: Duration) {
        self.interval.store(interval.as_nanos() as u64, Ordering::Relaxed);
    }

    /// How often gateways report.
    pub fn interval(&self) -> Duration {
        match self.interval.load(Ordering::Relaxed) {
            0 => Self::INTERVAL,
            interval => Duration::from_nanos(interval),
        }
    }

    /// Whether anything was said since.
    #[inline]
    pub fn has_news(&self, read: &Read) -> bool {
        self.changes.load(Ordering::Acquire) != read.changes
    }

    /// Reads on: `hear` gets what was said since, and each time-out and prescale as it is now.
    pub fn read(&self, read: &mut Read, mut hear: impl FnMut(Order)) {
        // Before what is read: what comes behind it is looked at once more.
        read.changes = self.changes.load(Ordering::Acquire);
        let said = self.lock();
        let news = said.masks.get(read.masks..).unwrap_or_default();
        news.iter().for_each(|&(source, is_masked)| hear(Order::Mask(source, is_masked)));
        said.timeouts.iter().for_each(|(&flow, &timeout)| hear(Order::SetTimeout(flow, timeout)));
        said.prescales.iter().for_each(|(&stream, &prescale)| hear(Order::SetPrescale(stream, prescale)));
        read.masks = said.masks.len();
    }
}

/// What is on the board.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// The state. Before anything was shown, and behind the gateway's end: error.
    pub state: ThrottleState,
    /// How often it changed.
    pub changes: u64,
    /// The gateway has ended: nothing follows.
    pub is_over: bool,
    /// How often the state was sent to the hardware.
    pub told: u64,
    /// How often sending it failed.
    pub failed: u64,
    /// Why it failed last.
    pub failure: Option<String>,
}

/// A board with one state. Its lock is taken by the gateway's thread only when the state changes.
#[derive(Debug)]
pub struct ThrottleBoard {
    shown: Mutex<Shown>,
    changed: Condvar,
}

impl Default for ThrottleBoard {
    fn default() -> Self {
        let state = ThrottleState::Error;
        let shown = Shown { state, changes: 0, is_over: false, told: 0, failed: 0, failure: None };
        Self { shown: Mutex::new(shown), changed: Condvar::new() }
    }
}

impl ThrottleBoard {
    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another state.
    pub fn show(&self, state: ThrottleState) {
        let mut shown = self.lock();
        shown.state = state;
        shown.changes += 1;
        self.changed.notify_all();
    }

    /// Ends the board in the error state. Hardware that misses this message must assume the same state.
    pub fn close(&self) {
        let mut shown = self.lock();
        (shown.state, shown.is_over) = (ThrottleState::Error, true);
        shown.changes += 1;
        self.changed.notify_all();
    }

    /// What is shown.
    pub fn read(&self) -> Shown {
        self.lock().clone()
    }

    /// What is shown as soon as it has changed since this many changes, or after this long.
    pub fn wait(&self, changes: u64, most: Duration) -> Shown {
        let is_same = |shown: &mut Shown| shown.changes == changes;
        let waited = self.changed.wait_timeout_while(self.lock(), most, is_same);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Counts a state sent to the hardware, or a failure to send it.
    pub fn note(&self, outcome: Result<(), String>) {
        let mut shown = self.lock();
        match outcome {
            Ok(()) => shown.told += 1,
            Err(failure) => {
                shown.failed += 1;
                shown.failure = Some(failure);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(board: &OrderBoard, reader: &mut Read) -> Vec<Order> {
        let mut heard = Vec::new();
        board.read(reader, |order| heard.push(order));
        heard
    }

    #[test]
    fn every_reader_reads_each_mask_once_and_in_order() {
        let board = OrderBoard::default();
        let mut readers = [Read::default(); 2];
        let [out, back] = [true, false].map(|is_masked| Order::Mask(SourceId(3), is_masked));
        assert!(!board.has_news(&readers[0]));
        board.mask(SourceId(3), true);
        assert!(board.has_news(&readers[0]));
        assert_eq!(read(&board, &mut readers[0]), [out]);
        assert!(!board.has_news(&readers[0]) && board.has_news(&readers[1]));
        board.mask(SourceId(3), false);
        board.mask(SourceId(3), true);
        assert_eq!(read(&board, &mut readers[0]), [back, out]);
        assert_eq!(read(&board, &mut readers[1]), [out, back, out], "though it was away in between");
        assert_eq!(readers[0], readers[1]);
    }

    #[test]
    fn of_a_time_out_the_last_value_is_read() {
        let (board, mut reader) = (OrderBoard::default(), Read::default());
        let [short, long] = [2, 9].map(Duration::from_millis);
        for (flow, timeout) in [(1, short), (0, short), (1, long)] {
            board.set_timeout(flow, timeout);
        }
        assert!(board.has_news(&reader));
        assert_eq!(read(&board, &mut reader), [Order::SetTimeout(0, short), Order::SetTimeout(1, long)]);
        assert!(!board.has_news(&reader));
        assert_eq!(board.interval(), OrderBoard::INTERVAL);
        board.set_interval(long);
        assert_eq!(board.interval(), long);
    }
}
