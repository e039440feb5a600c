//! Which streams take an accepted event, in which order they write events, and the account of each.

use super::{FilterConfigError, StreamConfig, check};
use ropewalk_terms::{EventKey, StreamAccount, StreamIndex, StreamSet, TriggerBits};
use ropewalk_wire::run_file::StreamName;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The name of the stream of events of which no decision could be had.
pub const ERROR_STREAM: &str = "error";

#[derive(Clone, Debug)]
struct Stream {
    config: StreamConfig,
    account: StreamAccount,
    /// How many events its prescale takes to have been there before the first one, below the prescale.
    phase: u32,
    /// It is meant to have every event; a check of the files relies on this.
    is_whole: bool,
}

/// The streams of a run, as one builder unit fills them.
#[derive(Clone, Debug)]
pub struct Streams {
    streams: Vec<Stream>,
    error: Option<StreamIndex>,
}

impl Streams {
    /// These streams, and where events are filtered one more for those of which no decision can be had: the last one,
    /// called [`error`](ERROR_STREAM).
    ///
    /// # Errors
    /// Where they make no sense together.
    pub fn new(mut configured: Vec<StreamConfig>, is_filtered: bool) -> Result<Self, FilterConfigError> {
        let error = is_filtered.then_some(StreamIndex(configured.len() as u8));
        if is_filtered {
            // Its files stand beside others, which then need a name too.
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

    /// One stream without a name, which has every event.
    pub fn everything() -> Self {
        Self::new(vec![StreamConfig::everything()], false).expect("one stream alone makes sense")
    }

    /// From now on a stream keeps one of so many of its events, 1 to 2³² - 1. One that is meant to have every event, or
    /// that there is not, stays as it is.
    pub fn set_prescale(&mut self, stream: u16, prescale: u64) {
        if let Some(stream) = self.streams.get_mut(usize::from(stream))
            && let Ok(prescale @ 1..) = u32::try_from(prescale)
            && !stream.is_whole
        {
            stream.config.prescale = prescale;
        }
    }

    /// Their names, in order.
    pub fn names(&self) -> impl Iterator<Item = StreamName> {
        self.streams.iter().map(|stream| stream.config.name)
    }

    /// Whether a stream is meant to have every event.
    pub fn takes_all(&self, index: StreamIndex) -> bool {
        self.streams.get(usize::from(index.0)).is_some_and(|stream| stream.is_whole)
    }

    /// The streams that take an accepted event which passed these triggers, after their prescales.
    pub fn select(&mut self, triggers: TriggerBits, trigger_type: u16) -> StreamSet {
        let (count, error) = (self.streams.len() as u8, self.error);
        let usual = (0..count).map(StreamIndex).filter(|&index| Some(index) != error);
        usual.filter(|&index| self.streams[usize::from(index.0)].takes(triggers, trigger_type)).collect()
    }

    /// Counts an event without a decision in the error stream, and returns that stream; no stream without a filter.
    pub fn set_aside(&mut self) -> StreamSet {
        let Some(index) = self.error else { return StreamSet::EMPTY };
        self.streams[usize::from(index.0)].account.selected += 1;
        StreamSet::of(index)
    }

    /// Whether one of these streams is to be written in order.
    pub fn is_ordered(&self, of: StreamSet) -> bool {
        of.iter().any(|index| self.streams[usize::from(index.0)].config.ordered)
    }

    /// Whether any stream is.
    pub fn any_ordered(&self) -> bool {
        self.streams.iter().any(|stream| stream.config.ordered)
    }

    /// An event is in the files of these streams.
    pub fn written(&mut self, to: StreamSet) {
        to.iter().for_each(|index| self.streams[usize::from(index.0)].account.written += 1);
    }

    /// An event could not be written to these streams.
    pub fn failed(&mut self, to: StreamSet) {
        to.iter().for_each(|index| self.streams[usize::from(index.0)].account.failed += 1);
    }

    /// The account of each, in order. The caller fills in what is in flight, as it has the table of events that wait
    /// for the disk.
    pub fn accounts(&self) -> impl Iterator<Item = (StreamIndex, StreamAccount)> {
        (0..).map(StreamIndex).zip(self.streams.iter().map(|stream| stream.account))
    }

    /// A run begins.
    pub fn restart(&mut self) {
        self.begin_part(0);
    }

    /// Begins a part of a run whose earlier events are unknown, such as a file, by the number of the part. The number
    /// determines where prescales begin: any process that handles the part keeps the same events, and over all parts
    /// the prescale holds however few events a part has. Accounts are those of the part.
    pub fn begin_part(&mut self, number: u32) {
        for Stream { config, account, phase, .. } in &mut self.streams {
            // Multiples of the golden ratio, of which the part behind the point is spread evenly (Fibonacci hashing).
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

/// Holds accepted events of streams that are written in the order of their keys until those before them are there.
#[derive(Debug, Default)]
pub struct Ordering {
    held: BinaryHeap<Reverse<(EventKey, u32)>>,
    /// The highest key that left.
    passed: Option<EventKey>,
    late: u64,
}

impl Ordering {
    /// Room for so many events.
    pub fn new(slots: u32) -> Self {
        Self { held: BinaryHeap::with_capacity(slots as usize), ..Self::default() }
    }

    /// An event waits.
    pub fn hold(&mut self, key: EventKey, slot: u32) {
        self.held.push(Reverse((key, slot)));
    }

    /// The next event in order, if no earlier one is awaited: `oldest` is the lowest key of the awaited events.
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

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Events that were assigned after later ones had left: another builder unit had died with them.
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// A run begins.
    pub fn restart(&mut self) {
        (self.passed, self.late) = (None, 0);
    }
}
