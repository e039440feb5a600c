//! Boards shared between a gateway's threads and others, on which neither side waits: [`OrderBoard`] holds the changes
//! that run control makes during a run, [`ThrottleBoard`] shows the throttle's state to the thread that passes it to
//! hardware.

use ropewalk_terms::SourceId;
use ropewalk_wire::gateway::ThrottleState;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A change during a run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Masks a source, or unmasks it.
    Mask(SourceId, bool),
    /// Sets the time-out for the packets of a set of a flow, given by its place in the configuration.
    SetTimeout(u16, Duration),
    /// Sets the prescale of a stream, given by its place in the configuration: it keeps one of this many of its events.
    SetPrescale(u16, u64),
}

/// Position of a reader of the board.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Read {
    changes: u64,
    masks: usize,
}

/// All changes since the run was set up.
#[derive(Debug, Default)]
struct Said {
    /// Each masked or unmasked source, in order. A reader that was absent in between must record as many changes as all
    /// other readers. The number allowed per source keeps the list short.
    masks: Vec<(SourceId, bool)>,
    /// The last time-out of each flow, if it was changed.
    timeouts: BTreeMap<u16, Duration>,
    /// The last prescale of each stream, if it was changed.
    prescales: BTreeMap<u16, u64>,
}

/// A board that all input queues of a process read. In each turn they check for news without the lock, and take the
/// lock only if there are any.
#[derive(Debug, Default)]
pub struct OrderBoard {
    changes: AtomicU64,
    said: Mutex<Said>,
    /// Interval between reports of gateways, in nanoseconds; 0 for the default.
    interval: AtomicU64,
}

impl OrderBoard {
    /// Default interval between reports of gateways.
    pub const INTERVAL: Duration = Duration::from_millis(50);

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a change: later checks will see it.
    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Masks or unmasks a source.
    pub fn mask(&self, source: SourceId, is_masked: bool) {
        self.lock().masks.push((source, is_masked));
        self.changed();
    }

    /// Sets the time-out for packets, for sets of a flow that begin from now on.
    pub fn set_timeout(&self, flow: u16, timeout: Duration) {
        self.lock().timeouts.insert(flow, timeout);
        self.changed();
    }

    /// Sets the prescale of a stream: it keeps one of this many of its events from now on.
    pub fn set_prescale(&self, stream: u16, prescale: u64) {
        self.lock().prescales.insert(stream, prescale);
        self.changed();
    }

    /// Sets the interval between reports of gateways.
    pub fn set_interval(&self, interval: Duration) {
        self.interval.store(interval.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns the interval between reports of gateways.
    pub fn interval(&self) -> Duration {
        match self.interval.load(Ordering::Relaxed) {
            0 => Self::INTERVAL,
            interval => Duration::from_nanos(interval),
        }
    }

    /// Returns whether there are changes after this position.
    #[inline]
    pub fn has_news(&self, read: &Read) -> bool {
        self.changes.load(Ordering::Acquire) != read.changes
    }

    /// Passes the changes after this position to `hear`, and the current value of each time-out and prescale. Advances
    /// the position.
    pub fn read(&self, read: &mut Read, mut hear: impl FnMut(Order)) {
        // Loaded before the changes are read: a later change causes another read.
        read.changes = self.changes.load(Ordering::Acquire);
        let said = self.lock();
        let news = said.masks.get(read.masks..).unwrap_or_default();
        news.iter().for_each(|&(source, is_masked)| hear(Order::Mask(source, is_masked)));
        said.timeouts.iter().for_each(|(&flow, &timeout)| hear(Order::SetTimeout(flow, timeout)));
        said.prescales.iter().for_each(|(&stream, &prescale)| hear(Order::SetPrescale(stream, prescale)));
        read.masks = said.masks.len();
    }
}

/// Content of the board.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// The state. Before the first state and after the gateway's end: error.
    pub state: ThrottleState,
    /// Number of changes of the state.
    pub changes: u64,
    /// Whether the gateway has ended and no state follows.
    pub is_over: bool,
    /// Number of times the state was sent to the hardware.
    pub told: u64,
    /// Number of failed attempts to send it.
    pub failed: u64,
    /// Reason of the last failure.
    pub failure: Option<String>,
}

/// A board with one state. The gateway's thread takes its lock only when the state changes.
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

    /// Shows another state.
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

    /// Returns the current content.
    pub fn read(&self) -> Shown {
        self.lock().clone()
    }

    /// Waits until the state has changed since this many changes, or for the maximum time. Returns the current content.
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
