//! The referee: compares the content of the files with the record of the front ends, without the ledger.

use super::front_end::{FrontEnd, hash};
use ropewalk_terms::{Cause, EventKey};
use ropewalk_tools::RunIndex;
use ropewalk_wire::run_file::FragmentFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// An event in the files.
#[derive(Debug, Default)]
pub(crate) struct HeldEvent {
    /// Hash and flags of each source's fragment.
    pub(crate) fragments: BTreeMap<u32, (u64, FragmentFlags)>,
    /// The missing sources, with the cause.
    pub(crate) missing: BTreeMap<u32, Option<Cause>>,
}

/// The joint content of run directories.
#[derive(Debug)]
pub(crate) struct Held {
    /// One copy of each event.
    pub(crate) events: BTreeMap<EventKey, HeldEvent>,
    /// Further copies.
    pub(crate) copies: usize,
}

impl Held {
    /// Reads every event of the run in these directories.
    pub(crate) fn in_directories<P: AsRef<Path>>(directories: &[P]) -> Self {
        let index = RunIndex::build(directories).expect("the run files can be read");
        let mut reader = index.reader();
        let mut events = BTreeMap::new();
        while let Some(found) = reader.next_event().expect("the run files can be read") {
            let mut held = HeldEvent::default();
            for fragment in found.event.fragments() {
                let one = (hash(fragment.payload), fragment.entry.flags);
                let before = held.fragments.insert(fragment.entry.source.0, one);
                assert!(before.is_none(), "event {} holds source {} twice", found.event.key(), fragment.entry.source.0);
            }
            held.missing = found.event.missing().map(|missing| (missing.source.0, missing.cause())).collect();
            let before = events.insert(found.event.key(), held);
            assert!(before.is_none(), "event {} came twice from an index of one copy per key", found.event.key());
        }
        let copies = index.copies().len() - events.len();
        Self { events, copies }
    }

    /// Returns the event with this number.
    pub(crate) fn event(&self, number: u64) -> &HeldEvent {
        self.events.get(&EventKey::new(0, number)).unwrap_or_else(|| panic!("event {number} is in no file"))
    }

    /// Checks that the files contain exactly the keys from 1 to `last`.
    pub(crate) fn expect_keys_up_to(&self, last: u64) {
        let wanted: BTreeSet<_> = (1..=last).map(|number| EventKey::new(0, number)).collect();
        let held: BTreeSet<_> = self.events.keys().copied().collect();
        let lost: Vec<_> = wanted.difference(&held).collect();
        let foreign: Vec<_> = held.difference(&wanted).collect();
        assert!(lost.is_empty() && foreign.is_empty(), "of 1 to {last} lost: {lost:?}; never sent: {foreign:?}");
    }

    /// Checks that these events lack this source for this cause, and that no other event lacks anything.
    pub(crate) fn expect_missing(&self, source: u32, numbers: impl IntoIterator<Item = u64>, cause: Cause) {
        let wanted: Vec<_> = numbers.into_iter().map(|number| (number, source, Some(cause))).collect();
        let missing = |(key, event): (&EventKey, &HeldEvent)| {
            let number = key.number();
            event.missing.iter().map(move |(&source, &cause)| (number, source, cause)).collect::<Vec<_>>()
        };
        let found: Vec<_> = self.events.iter().flat_map(missing).collect();
        assert_eq!(found, wanted, "event, missing source, cause");
    }
}

/// Returns the fragments (source, event) that front ends sent and that are in no file. Checks that everything in a file
/// was sent by that source for that event, byte by byte.
pub(crate) fn lost(front_ends: &[&FrontEnd], held: &Held) -> BTreeSet<(u32, u64)> {
    let mut missing: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for front_end in front_ends {
        missing.extend(front_end.sent().iter().map(|(&event, &content)| ((front_end.id, event), content)));
    }
    for (key, event) in &held.events {
        for (&source, &(content, _)) in &event.fragments {
            let sent = missing.remove(&(source, key.number()));
            assert!(sent.is_some(), "source {source} never sent a fragment of event {key}");
            assert_eq!(sent, Some(content), "the fragment of source {source} in event {key} is not what was sent");
        }
    }
    missing.into_keys().collect()
}

/// Checks that the files contain the keys from 1 to `last`, each complete, and every sent fragment unchanged.
pub(crate) fn expect_everything(front_ends: &[&FrontEnd], held: &Held, last: u64) {
    held.expect_keys_up_to(last);
    assert_eq!(lost(front_ends, held), BTreeSet::new(), "sent and in no file (source, event)");
    let sources: Vec<u32> = front_ends.iter().map(|front_end| front_end.id).collect();
    for (key, event) in &held.events {
        assert!(event.missing.is_empty(), "event {key} lacks {:?}", event.missing);
        assert!(sources.iter().all(|source| event.fragments.contains_key(source)), "event {key} is not complete");
    }
}

// ---- pulses of the real boards of a neutron source

/// Returns the pulse of each event, in the run's order: two words that every board puts at the same place of its
/// packets. Each event must contain one packet of each of two boards.
pub(crate) fn ess_pulses(run: &Path) -> Vec<[u32; 2]> {
    let index = RunIndex::build(&[run]).expect("the files are whole");
    let (mut reader, mut pulses) = (index.reader(), Vec::new());
    while let Some(event) = reader.next_event().expect("it can be read") {
        let pulse =
            |bytes: &[u8]| [10, 14].map(|at| u32::from_le_bytes(*bytes[at..].first_chunk().expect("a whole head")));
        let both: Vec<_> = event.event.fragments().map(|fragment| pulse(fragment.payload)).collect();
        assert!(both.len() == 2 && both[0] == both[1], "{both:?}");
        pulses.push(both[0]);
    }
    pulses
}
