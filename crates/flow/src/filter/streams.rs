//! Which streams take an accepted event, the order in which they write events, and the account of each.

use super::{FilterConfigError, StreamConfig, check};
use ropewalk_terms::{EventKey, StreamAccount, StreamIndex, StreamSet, TriggerBits};
use ropewalk_wire::run_file::StreamName;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The name of the stream of events without a decision.
pub const ERROR_STREAM: &str = "error";

#[derive(Clone, Debug)]
struct Stream {
    config: StreamConfig,
    account: StreamAccount,
    /// The initial value of the prescale counter, below the prescale.
    phase: u32,
    /// The stream must contain every event; the check of the files relies on this.
    is_whole: bool,
}

/// The streams of a run, as one builder unit fills them.
#[derive(Clone, Debug)]
pub struct Streams {
    streams: Vec<Stream>,
    error: Option<StreamIndex>,
}

impl Streams {
    /// Creates the configured streams, and with a filter one more, the last, for events without a decision. It is
    /// called [`error`](ERROR_STREAM).
    ///
    /// # Errors
    /// If the streams contradict each other.
    pub fn new(mut configured: Vec<StreamConfig>, is_filtered: bool) -> Result<Self, FilterConfigError> {
        let error = is_filtered.then_some(StreamIndex(configured.len() as u8));
        if is_filtered {
            // The error stream's files are beside the others, which then need a name too.
            if let [alone] = configured.as_mut_slice()
                && alone.name.is_unnamed()
            {
                alone.name = named("physics");
            }
            configured.push(StreamConfig { name: named(ERROR_STREAM), ..StreamConfig::everything() });
        }
        check(&configured)?;
        let stream = |config: StreamConfig| {
            let is_whole = config.takes_all() && config.prescale == 1 && error.is_none();
            Stream { config, account: StreamAccount::default(), phase: 0, is_whole }
        };
        Ok(Self { streams: configured.into_iter().map(stream).collect(), error })
    }

    /// One stream without a name that has every event.
    pub fn everything() -> Self {
        Self::new(vec![StreamConfig::everything()], false).expect("one stream alone makes sense")
    }

    /// Sets the prescale of a stream: it keeps one of every `prescale` events, 1 to 2³² - 1. A stream that must contain
    /// every event stays as it is, and an unknown stream is ignored.
    pub fn set_prescale(&mut self, stream: u16, prescale: u64) {
        if let Some(stream) = self.streams.get_mut(usize::from(stream))
            && let Ok(prescale @ 1..) = u32::try_from(prescale)
            && !stream.is_whole
        {
            stream.config.prescale = prescale;
        }
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = StreamName> {
        self.streams.iter().map(|stream| stream.config.name)
    }

    /// Whether a stream must contain every event.
    pub fn takes_all(&self, index: StreamIndex) -> bool {
        self.streams.get(usize::from(index.0)).is_some_and(|stream| stream.is_whole)
    }

    /// Selects the streams that take an accepted event which passed these triggers, after their prescales.
    pub fn select(&mut self, triggers: TriggerBits, trigger_type: u16) -> StreamSet {
        let (count, error) = (self.streams.len() as u8, self.error);
        let usual = (0..count).map(StreamIndex).filter(|&index| Some(index) != error);
        usual.filter(|&index| self.streams[usize::from(index.0)].takes(triggers, trigger_type)).collect()
    }

    /// Counts an event without a decision in the error stream, and returns that stream; none if there is no filter.
    pub fn set_aside(&mut self) -> StreamSet {
        let Some(index) = self.error else { return StreamSet::EMPTY };
        self.streams[usize::from(index.0)].account.selected += 1;
        StreamSet::of(index)
    }

    /// Whether one of these streams must be written in order.
    pub fn is_ordered(&self, of: StreamSet) -> bool {
        of.iter().any(|index| self.streams[usize::from(index.0)].config.ordered)
    }

    /// Whether any stream must be written in order.
    pub fn any_ordered(&self) -> bool {
        self.streams.iter().any(|stream| stream.config.ordered)
    }

    /// Counts an event that is in the files of these streams.
    pub fn written(&mut self, to: StreamSet) {
        to.iter().for_each(|index| self.streams[usize::from(index.0)].account.written += 1);
    }

    /// Counts an event that could not be written to these streams.
    pub fn failed(&mut self, to: StreamSet) {
        to.iter().for_each(|index| self.streams[usize::from(index.0)].account.failed += 1);
    }

    /// The account of each stream, in order. The caller adds what is in flight, because it has the table of events that
    /// wait for the disk.
    pub fn accounts(&self) -> impl Iterator<Item = (StreamIndex, StreamAccount)> {
        (0..).map(StreamIndex).zip(self.streams.iter().map(|stream| stream.account))
    }

    /// Prepares for another run.
    pub fn restart(&mut self) {
        self.begin_part(0);
    }

    /// Begins a part of a run, such as a file, whose earlier events are unknown. The number of the part determines the
    /// initial value of the prescales: any process that handles the part keeps the same events, and over all parts
    /// the prescale holds even if a part has few events. Accounts are those of the part.
    pub fn begin_part(&mut self, number: u32) {
        for Stream { config, account, phase, .. } in &mut self.streams {
            // The fractional parts of multiples of the golden ratio are spread evenly (Fibonacci hashing).
            let spread = u64::from(number.wrapping_mul(0x9e37_79b9));
            (*account, *phase) = (StreamAccount::default(), ((spread * u64::from(config.prescale)) >> 32) as u32);
        }
    }
}

fn named(name: &str) -> StreamName {
    name.parse().expect("small letters alone")
}

impl Stream {
    fn takes(&mut self, triggers: TriggerBits, trigger_type: u16) -> bool {
        let Self { config, account, phase, .. } = self;
        if !config.takes_all() && !config.triggers.meets(triggers) && !config.trigger_types.contains(&trigger_type) {
            return false;
        }
        account.selected += 1;
        let before = account.selected - 1 + u64::from(*phase);
        let is_kept = before.is_multiple_of(u64::from(config.prescale));
        account.prescaled_away += u64::from(!is_kept);
        is_kept
    }
}

/// Holds accepted events of streams that are written in key order until all earlier events are written.
#[derive(Debug, Default)]
pub struct Ordering {
    held: BinaryHeap<Reverse<(EventKey, u32)>>,
    /// The highest key that was released.
    passed: Option<EventKey>,
    late: u64,
}

impl Ordering {
    /// Creates it with room for this number of events.
    pub fn new(slots: u32) -> Self {
        Self { held: BinaryHeap::with_capacity(slots as usize), ..Self::default() }
    }

    /// Holds an event.
    pub fn hold(&mut self, key: EventKey, slot: u32) {
        self.held.push(Reverse((key, slot)));
    }

    /// Returns the next event in order if no earlier one is awaited: `oldest` is the lowest awaited key.
    pub fn release(&mut self, oldest: Option<EventKey>) -> Option<u32> {
        let &Reverse((key, slot)) = self.held.peek()?;
        if oldest.is_some_and(|oldest| oldest < key) {
            return None;
        }
        self.held.pop();
        self.late += u64::from(self.passed.is_some_and(|passed| key < passed));
        self.passed = self.passed.max(Some(key));
        Some(slot)
    }

    /// Whether no event is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Events that were assigned after later ones were released: they were in a builder unit that died.
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Prepares for another run.
    pub fn restart(&mut self) {
        (self.passed, self.late) = (None, 0);
    }
}
