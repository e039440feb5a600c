//! What the files must hold, read without a look at storage.

use super::super::broken::{Broken, Checker};
use super::event::payload;
use super::scenario::Scenario;
use super::world::{Asked, stream_name};
use ropewalk_io::disk::SimulatedStorage;
use ropewalk_terms::{Incarnation, StreamIndex, StreamSet};
use ropewalk_wire::run_file::{
    EventView, FooterView, IndexEntry, Item, Items, OPEN_EXTENSION, Record, RecordKind, SegmentName,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What was found.
#[derive(Default)]
struct Found {
    /// By event: the streams that it is in.
    streams: BTreeMap<u64, StreamSet>,
    /// Every record's stream, event and life.
    records: BTreeSet<(StreamIndex, u64, Incarnation)>,
}

/// Holds the files against what was asked for.
pub(super) fn judge(scenario: &Scenario, medium: &SimulatedStorage, asked: &Asked) -> Result<(), Broken> {
    let mut found = Found::default();
    for path in medium.paths() {
        let bytes = medium.read(&path).map_err(|cause| Broken::new(Checker::Content, cause.to_string()))?;
        look(scenario, &path, &bytes, &mut found)?;
    }
    for number in &asked.acknowledged {
        let (there, wanted) = (found.streams.get(number), asked.taken.get(number));
        Broken::unless(there == wanted, Checker::Loss, || {
            format!("event {number} was acknowledged for {wanted:?} and is in {there:?}")
        })?;
    }
    for (number, &streams) in &found.streams {
        let taken = asked.taken.get(number).copied().unwrap_or_default();
        let all = streams.iter().all(|stream| taken.contains(stream));
        Broken::unless(all, Checker::Keys, || {
            format!("event {number} is in {streams:?}, and was taken for {taken:?}")
        })?;
    }
    Ok(())
}

/// Looks at one file.
fn look(scenario: &Scenario, path: &Path, bytes: &[u8], found: &mut Found) -> Result<(), Broken> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (text, is_open) = name.strip_suffix(OPEN_EXTENSION).map_or((&name[..], false), |closed| (closed, true));
    let stream = text.parse().ok().and_then(|name: SegmentName| {
        (0..scenario.streams).map(StreamIndex).find(|&stream| stream_name(scenario, stream) == name.stream)
    });
    let Some(stream) = stream else {
        return Err(Broken::new(Checker::Content, format!("{name} is no segment of a stream")));
    };
    let (mut entries, mut has_footer) = (Vec::new(), false);
    for item in Items::new(bytes) {
        match item {
            Item::Damaged { offset, .. } => Broken::unless(is_open, Checker::Content, || {
                format!("{name} was closed, and cannot be read at {offset}")
            })?,
            Item::Record { offset, record } if record.kind() == RecordKind::EVENT => {
                entries.push(take(scenario, stream, offset, &record, found)?);
            }
            Item::Record { record, .. } if record.kind() == RecordKind::FOOTER => {
                has_footer =
                    FooterView::parse(&record).is_ok_and(|footer| footer.entries().eq(entries.iter().copied()));
            }
            Item::Record { .. } => {}
        }
    }
    Broken::unless(is_open || has_footer, Checker::Content, || format!("{name} was closed without its index"))
}

/// Takes note of an event.
fn take(
    scenario: &Scenario,
    stream: StreamIndex,
    offset: u64,
    record: &Record<'_>,
    found: &mut Found,
) -> Result<IndexEntry, Broken> {
    let event = EventView::parse(record).map_err(|error| Broken::new(Checker::Content, error.to_string()))?;
    let number = event.key().number();
    let expected = payload(scenario.seed, number);
    let is_right = event.fragments().map(|fragment| fragment.payload).eq([&expected[..]]);
    Broken::unless(is_right, Checker::Content, || format!("event {number} does not hold what it was made of"))?;
    let is_new = found.records.insert((stream, number, event.head().incarnation));
    Broken::unless(is_new, Checker::Keys, || format!("event {number} is twice in {stream:?} by the same life"))?;
    let streams = found.streams.entry(number).or_default();
    *streams = streams.with(StreamSet::of(stream));
    Ok(IndexEntry::of(&event, offset, record.length()))
}
