//! The referee: what the simulated files hold, against what the sources sent. It asks neither ledger nor machines.

use super::front_end::content;
use ropewalk_io::disk::SimulatedStorage;
use ropewalk_terms::{Cause, SourceId};
use ropewalk_wire::run_file::{EventView, Item, Items, OPEN_EXTENSION, RecordKind};
use std::collections::BTreeMap;

/// What stands in the files.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// By event: each source with a fragment (none) or the cause of its absence. Of several copies the one with most
    /// fragments.
    pub(crate) events: BTreeMap<u64, BTreeMap<SourceId, Option<Cause>>>,
    /// Further copies of an event.
    pub(crate) copies: u64,
    /// Files that nobody closed.
    pub(crate) open_files: Vec<String>,
}

impl Held {
    /// Reads every file, and holds each payload byte against what its source sent for that event.
    pub(crate) fn in_storage(storage: &SimulatedStorage, seed: u64) -> Self {
        let mut held = Self::default();
        for path in storage.paths() {
            let name = path.to_string_lossy().into_owned();
            if name.ends_with(OPEN_EXTENSION) {
                held.open_files.push(name.clone());
            }
            let bytes = storage.read(&path).expect("the medium can be read");
            for item in Items::new(&bytes) {
                match item {
                    Item::Record { record, .. } if record.kind() == RecordKind::EVENT => {
                        let event = EventView::parse(&record).expect("a record with the right checksum is an event");
                        held.take(&event, seed);
                    }
                    Item::Record { .. } => {}
                    Item::Damaged { offset, .. } => panic!("{name} is damaged at {offset}"),
                }
            }
        }
        held
    }

    fn take(&mut self, event: &EventView<'_>, seed: u64) {
        let number = event.key().number();
        let mut found = BTreeMap::new();
        // What a filter said is no source's.
        for fragment in event.fragments().filter(|fragment| fragment.entry.source != SourceId::FILTER) {
            let source = fragment.entry.source;
            assert_eq!(fragment.payload, content(seed, source, number), "event {number}, source {source}");
            assert!(found.insert(source, None).is_none(), "event {number} holds source {source} twice");
        }
        for missing in event.missing() {
            let cause = Some(missing.cause().expect("a known cause"));
            assert!(found.insert(missing.source, cause).is_none(), "source {} is there and missing", missing.source);
        }
        let fragments = |found: &BTreeMap<SourceId, Option<Cause>>| found.values().filter(|one| one.is_none()).count();
        match self.events.get_mut(&number) {
            None => drop(self.events.insert(number, found)),
            Some(known) => {
                self.copies += 1;
                if fragments(&found) > fragments(known) {
                    *known = found;
                }
            }
        }
    }

    /// The events in which a source is missing, and why.
    pub(crate) fn missing(&self, source: SourceId) -> BTreeMap<u64, Cause> {
        let cause = |sources: &BTreeMap<SourceId, Option<Cause>>| sources.get(&source).copied().flatten();
        self.events.iter().filter_map(|(&event, sources)| Some((event, cause(sources)?))).collect()
    }

    /// Every event up to `last` is there, and no other; each with all of these sources, present or missing.
    pub(crate) fn expect_all(&self, last: u64, sources: &[SourceId]) {
        assert!(self.events.keys().copied().eq(1..=last), "events {:?}", self.events.keys().collect::<Vec<_>>());
        for (event, found) in &self.events {
            assert!(found.keys().eq(sources), "event {event} holds {found:?}");
        }
    }
}
