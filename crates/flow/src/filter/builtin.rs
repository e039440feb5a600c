//! Filters that need no program: each looks at one thing, and passing it sets its trigger.

use super::Decision;
use crate::builder::EventView;
use ropewalk_terms::{EventKey, SourceId, TriggerBits};

/// What triggers look at in an event, wherever it lies.
pub trait TriggerView {
    /// What it is known by.
    fn key(&self) -> EventKey;

    /// Bytes of all payloads.
    fn payload_bytes(&self) -> u64;

    /// The payload of a source's fragment, from its first byte on; none where it has no fragment of that source.
    fn payload_of(&self, source: SourceId) -> Option<impl Iterator<Item = u8>>;
}

impl TriggerView for EventView<'_> {
    fn key(&self) -> EventKey {
        self.key
    }

    fn payload_bytes(&self) -> u64 {
        EventView::payload_bytes(self)
    }

    fn payload_of(&self, source: SourceId) -> Option<impl Iterator<Item = u8>> {
        let fragment = self.fragments().find(|fragment| fragment.meta.source == source)?;
        Some(fragment.payload.pieces().flatten().copied())
    }
}

/// How a number found in a fragment is compared.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// It is this one.
    Is,
    /// It is not this one.
    IsNot,
    /// It is at least as large.
    AtLeast,
    /// It is at most as large.
    AtMost,
}

/// What an event has to be, or to have.
#[derive(Clone, PartialEq, Debug)]
pub enum Builtin {
    /// Anything.
    All,
    /// Every so-manieth by its number, which must be at least 1: the same ones whoever decides.
    Every(u64),
    /// So many bytes of payload at least, and at most.
    Size {
        /// At least.
        least: u64,
        /// At most.
        most: u64,
    },
    /// A fragment of this source.
    Present(SourceId),
    /// Bytes of a source's fragment, in the order of the mask, taken as one number with the first byte foremost.
    Bytes {
        /// Whose fragment.
        source: SourceId,
        /// Where in it they begin.
        offset: u32,
        /// Which bits count; as many bytes as are looked at, 1 to 8.
        mask: Vec<u8>,
        /// How what is found is compared with `value`.
        comparison: Comparison,
        /// What it is compared with.
        value: u64,
    },
    /// This share of the events, by chance, from 0 to 1: the same ones with the same seed, whoever decides. For tests.
    Random {
        /// The share.
        share: f64,
        /// The seed.
        seed: u64,
    },
}

impl Builtin {
    /// Whether an event passes.
    pub fn passes(&self, event: &impl TriggerView) -> bool {
        match self {
            Self::All => true,
            Self::Every(every) => event.key().number().is_multiple_of((*every).max(1)),
            Self::Size { least, most } => (*least..=*most).contains(&event.payload_bytes()),
            Self::Present(source) => event.payload_of(*source).is_some(),
            Self::Bytes { source, offset, mask, comparison, value } => {
                let found = found(event, *source, *offset, mask);
                found.is_some_and(|found| match comparison {
                    Comparison::Is => found == *value,
                    Comparison::IsNot => found != *value,
                    Comparison::AtLeast => found >= *value,
                    Comparison::AtMost => found <= *value,
                })
            }
            Self::Random { share, seed } => chance(*seed, event.key()) < *share,
        }
    }
}

/// The bytes at a place of a source's fragment, masked; none where it has none there.
fn found(event: &impl TriggerView, source: SourceId, offset: u32, mask: &[u8]) -> Option<u64> {
    let bytes = event.payload_of(source)?.skip(offset as usize).take(mask.len());
    let mut count = 0;
    let number = bytes.zip(mask).fold(0, |number: u64, (byte, mask)| {
        count += 1;
        number << 8 | u64::from(byte & mask)
    });
    (count == mask.len()).then_some(number)
}

/// A number from 0 to 1 that belongs to a key.
fn chance(seed: u64, key: EventKey) -> f64 {
    // Multiplications and shifts that spread each bit over all others (SplitMix64).
    let mut mixed = seed ^ key.to_bits().wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 31) as f64 / u64::MAX as f64
}

/// Triggers in a list: the first is trigger 0. An event is accepted where it passes any.
#[derive(Clone, PartialEq, Debug)]
pub struct BuiltinFilter(Vec<Builtin>);

impl BuiltinFilter {
    /// A filter with these triggers, of which there can be [`TriggerBits::COUNT`]; those behind are left out.
    pub fn new(mut triggers: Vec<Builtin>) -> Self {
        triggers.truncate(TriggerBits::COUNT as usize);
        Self(triggers)
    }

    /// Decides on an event.
    pub fn decide(&self, event: &impl TriggerView) -> Decision {
        let passed = (0..).zip(&self.0).filter(|(_, trigger)| trigger.passes(event));
        let triggers = passed.fold(TriggerBits::default(), |all, (number, _)| all.with(TriggerBits::of(number)));
        Decision { accept: triggers != TriggerBits::default(), triggers }
    }
}
