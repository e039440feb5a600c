//! Counts and checks the content of run directories: every key once.
//!
//! Two passes: the first reads every record of every segment and remembers where the events are, the second reads the
//! valid copies in key order. A separate thread computes the digest, which takes longer than everything else.

use super::faulty::Noted;
use super::{EventCopy, FaultyEvent, FooterState, OfflineError, RunEvent, RunIndex, SegmentScan, StreamContent};
use crate::status::{StatusSummary, named};
use ropewalk_terms::{Asked, EventKey, Fact, Facts, SourceId, Status};
use ropewalk_wire::fed;
use ropewalk_wire::run_file::{EventFlags, FragmentFlags, SourceEntry, SourceFormat};
use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

/// The form's name and version.
pub const VERIFY_SCHEMA: &str = "ropewalk-verify-1";

/// The most gaps that a report names; it counts all.
const NAMED_GAPS: usize = 20;

/// The content of one or several run directories.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(title = "What run directories hold: the output of `ropewalk verify RUNDIR... --json`")]
pub struct VerifyReport {
    /// The form's name and version.
    #[schemars(extend("const" = VERIFY_SCHEMA))]
    pub schema: &'static str,
    /// The run number; null if neither a segment header nor a name contains it.
    pub run: Option<u32>,
    /// Events, each key once: of several copies a complete one counts before others, then the one of the latest
    /// attempt.
    pub events: u64,
    /// Fragments in these events.
    pub fragments: u64,
    /// Bytes of these fragments, headers and trailers of the front ends' own format included.
    pub payload_bytes: u64,
    /// SHA-256 of these bytes in hexadecimal digits, event after event in the order of the keys, then by source id.
    #[schemars(regex(pattern = r"^[0-9a-f]{64}$"))]
    pub payload_sha256: String,
    /// Records whose checksum is wrong, and FED fragments whose own checksum is.
    pub crc_errors: u64,
    /// Keys missing between the first and the last of each resync count. If a stream takes a selection of the events
    /// (`selected`), keys that no stream took are missing on purpose.
    pub gaps: u64,
    /// Further copies of keys in the same stream, which do not count as events.
    pub duplicates: u64,
    /// Events in which a required source is missing.
    pub incomplete: u64,
    /// Events with a fragment whose content is in doubt.
    pub doubtful: u64,
    /// Events on which no filter decided.
    pub quarantined: u64,
    /// Events that are incomplete, doubtful or quarantined, or have a fragment with a wrong checksum.
    pub faulty: u64,
    /// The first of them in the order of their keys, 10 at most, with sources and causes.
    pub first_faulty: Vec<FaultyEvent>,
    /// Fragments in doubt, by flag; a wrong checksum that was seen when the fragment came is here, too.
    #[schemars(with = "BTreeMap<String, NonZeroU64>")]
    pub flagged: BTreeMap<&'static str, u64>,
    /// Event records and FED fragments that contradict themselves.
    pub malformed: u64,
    /// Files, unfinished ones included.
    pub segments: u64,
    /// Files that were never closed: `ropewalk recover` closes them.
    pub unfinished_segments: u64,
    /// Closed files whose index is missing or disagrees with their records: `ropewalk recover` makes it anew.
    pub wrong_footers: u64,
    /// Bytes that belong to no readable record.
    pub damaged_bytes: u64,
    /// The first key; null without an event.
    pub first_key: Option<String>,
    /// The last key; null without an event.
    pub last_key: Option<String>,
    /// The last key of the run, if a builder unit recorded it at the end; null otherwise.
    pub end_of_run_key: Option<String>,
    /// The first of the gaps, 20 at most.
    pub first_gaps: Vec<Gap>,
    /// Streams selected events, so that gaps are expected.
    pub selected: bool,
    /// What each named stream holds, in the order of their names; nothing if the run was not divided.
    pub streams: Vec<StreamReport>,
    /// The exit status of `verify`, and why.
    pub status: StatusSummary,
}

impl VerifyReport {
    /// Whether every byte is as it was written and no key is missing that was meant to be there. Incomplete events are
    /// no fault of the files.
    pub fn is_intact(&self) -> bool {
        self.status.code != Status::Wrong as u8 && !self.status.reasons.contains_key(Fact::MissingKeys.name())
    }

    /// What the status depends on.
    fn facts(&self) -> Facts {
        // A flag is a doubt, and not damage of the files: that is found by looking.
        let is_doubt = |fact: &Fact| fact.status(Asked::Checked) == Status::Lost;
        let flagged = named(self.flagged.iter().map(|(name, count)| (*name, *count)));
        Facts::default().with(flagged.filter(|(fact, _)| is_doubt(fact))).with([
            (Fact::Doubtful, self.doubtful),
            (Fact::CrcErrors, self.crc_errors),
            (Fact::Malformed, self.malformed),
            (Fact::DamagedBytes, self.damaged_bytes),
            (Fact::WrongFooters, self.wrong_footers),
            (Fact::UnfinishedSegments, self.unfinished_segments),
            (Fact::MissingKeys, if self.selected { 0 } else { self.gaps }),
            (Fact::Incomplete, self.incomplete),
            (Fact::Quarantined, self.quarantined),
            (Fact::SecondCopies, self.duplicates),
        ])
    }

    fn judged(mut self) -> Self {
        self.status = StatusSummary::of(&self.facts(), Asked::Checked);
        self
    }
}

/// What a stream holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct StreamReport {
    /// The stream's name.
    #[schemars(regex(pattern = r"^[a-z0-9_]{1,32}$"))]
    pub name: String,
    /// Events, each key once.
    pub events: u64,
    /// Further copies of their keys in this stream.
    pub duplicates: u64,
}

/// Keys that are missing in a row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Gap {
    /// The first missing key.
    pub first: String,
    /// The last missing key.
    pub last: String,
}

/// Counts and checks what these directories (or files) of one run hold together.
///
/// # Errors
/// If there is no segment, a file cannot be read, or segments of several runs lie there. Damage is no error.
pub fn verify<P: AsRef<Path>>(places: &[P]) -> Result<VerifyReport, OfflineError> {
    let index = RunIndex::build(places)?;
    let content = read(&index)?;
    let flagged = content.flagged();
    let (gaps, first_gaps) = gaps(index.events());
    let scans = index.scans();
    let sum = |count: fn(&SegmentScan) -> u64| scans.iter().map(count).sum::<u64>();
    let closed = index.files().iter().zip(scans).filter(|(file, _)| !file.open);
    let last_of_run = scans.iter().filter_map(|scan| scan.end_of_run.as_ref()?.last).max();
    let key = |copy: &EventCopy| copy.entry.key.to_string();
    Ok(VerifyReport {
        schema: VERIFY_SCHEMA,
        run: index.run().map(|run| run.0),
        events: content.events,
        fragments: content.fragments,
        payload_bytes: content.payload_bytes,
        payload_sha256: content.payload_sha256,
        crc_errors: content.crc_errors + sum(|scan| scan.crc_errors),
        gaps,
        duplicates: index.streams().iter().map(|stream| stream.duplicates).sum(),
        incomplete: content.incomplete,
        doubtful: content.doubtful,
        quarantined: content.quarantined,
        faulty: content.faulty.count,
        first_faulty: content.faulty.first,
        flagged,
        malformed: content.malformed + sum(|scan| scan.malformed),
        segments: scans.len() as u64,
        unfinished_segments: index.files().iter().filter(|file| file.open).count() as u64,
        wrong_footers: closed.filter(|(_, scan)| scan.footer != FooterState::Right).count() as u64,
        damaged_bytes: sum(|scan| scan.damaged_bytes),
        first_key: index.copies().first().map(key),
        last_key: index.copies().last().map(key),
        end_of_run_key: last_of_run.map(|last| last.to_string()),
        first_gaps,
        selected: index.streams().iter().any(|stream| stream.selected),
        streams: index.streams().iter().filter(|stream| !stream.name.is_unnamed()).map(StreamReport::of).collect(),
        status: StatusSummary::default(),
    }
    .judged())
}

impl StreamReport {
    fn of(stream: &StreamContent) -> Self {
        Self { name: stream.name.to_string(), events: stream.events, duplicates: stream.duplicates }
    }
}

/// How many keys are missing between the first and the last of each resync count, and the first gaps by name.
fn gaps<'a>(events: impl Iterator<Item = &'a EventCopy>) -> (u64, Vec<Gap>) {
    let (mut count, mut named) = (0, Vec::new());
    let mut before: Option<EventKey> = None;
    for key in events.map(|event| event.entry.key) {
        let distance = before.and_then(|before| key.since(before)).unwrap_or(1);
        if distance > 1 {
            count += distance - 1;
            if let Some(before) = before.filter(|_| named.len() < NAMED_GAPS) {
                named.push(Gap { first: before.next().to_string(), last: key.previous().to_string() });
            }
        }
        before = Some(key);
    }
    (count, named)
}

/// Bytes of payload that the digest's thread gets at once.
const BLOCK_BYTES: usize = 1 << 20;
/// How many such blocks there are.
const BLOCKS: usize = 4;

/// What the events hold.
#[derive(Clone, Debug, Default)]
struct Content {
    events: u64,
    incomplete: u64,
    doubtful: u64,
    quarantined: u64,
    faulty: Noted,
    /// Fragments with each of `FragmentFlags::DOUBTS`.
    doubts: [u64; FragmentFlags::DOUBTS.len()],
    fragments: u64,
    payload_bytes: u64,
    payload_sha256: String,
    crc_errors: u64,
    malformed: u64,
}

/// Reads every event that counts.
///
/// # Errors
/// If a file cannot be read or was changed since it was indexed.
fn read(index: &RunIndex) -> Result<Content, OfflineError> {
    let (full, blocks) = sync_channel(BLOCKS);
    let (spent, empty) = channel();
    for _ in 0..BLOCKS {
        let _ = spent.send(Vec::with_capacity(BLOCK_BYTES));
    }
    thread::scope(|scope| {
        let digest = scope.spawn(move || digest(&blocks, &spent));
        // The blocks' sender ends with `count`, and with it the digest's thread.
        let content = count(index, PayloadBlocks { block: Vec::with_capacity(BLOCK_BYTES), full, empty });
        match digest.join() {
            Ok(payload_sha256) => Ok(Content { payload_sha256, ..content? }),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn digest(blocks: &Receiver<Vec<u8>>, spent: &Sender<Vec<u8>>) -> String {
    let mut digest = Sha256::new();
    for mut block in blocks {
        digest.update(&block);
        block.clear();
        // At the end the sender has gone and takes no blocks back.
        let _ = spent.send(block);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The sources whose fragments are checked, and the entries that are not sources.
struct Sources {
    fed: BTreeSet<SourceId>,
    none: BTreeSet<SourceId>,
}

impl Sources {
    fn of(entries: &[SourceEntry]) -> Self {
        let ids = |wanted: fn(SourceFormat) -> bool| {
            entries.iter().filter(move |entry| wanted(entry.format)).map(|entry| entry.id).collect()
        };
        Self { fed: ids(|format| format == SourceFormat::FED), none: ids(|format| !format.is_of_a_source()) }
    }
}

fn count(index: &RunIndex, mut payload: PayloadBlocks) -> Result<Content, OfflineError> {
    let sources = Sources::of(&index.sources());
    let mut content = Content::default();
    let mut order = Vec::new();
    let mut reader = index.reader();
    while let Some(event) = reader.next_event()? {
        content.add(&event, &sources, &mut order, &mut payload);
    }
    payload.send();
    Ok(content)
}

impl Content {
    /// Adds an event; `order` is room for its fragments' order.
    fn add(
        &mut self,
        event: &RunEvent<'_>,
        sources: &Sources,
        order: &mut Vec<(SourceId, usize)>,
        payload: &mut PayloadBlocks,
    ) {
        self.events += 1;
        let flags = event.event.head().flags;
        self.incomplete += u64::from(flags.contains(EventFlags::INCOMPLETE));
        self.quarantined += u64::from(flags.contains(EventFlags::QUARANTINED));
        let mut is_doubtful = flags.contains(EventFlags::DOUBTFUL);
        let before = self.crc_errors + self.malformed;
        let is_left = flags.contains(EventFlags::INCOMPLETE) || flags.contains(EventFlags::QUARANTINED);
        let fragments = event.event.fragments();
        order.clear();
        order.extend(fragments.clone().enumerate().map(|(place, fragment)| (fragment.entry.source, place)));
        // Envelopes and filters' results are not source data: an event has the same digest with and without them.
        order.retain(|(source, _)| !sources.none.contains(source));
        order.sort_unstable();
        for &(source, place) in &*order {
            let Some(fragment) = fragments.clone().nth(place) else { continue };
            self.fragments += 1;
            let flags = fragment.entry.flags;
            flags.doubts().for_each(|doubt| self.doubts[doubt] += 1);
            is_doubtful |= flags.has_error();
            self.payload_bytes += fragment.payload.len() as u64;
            if sources.fed.contains(&source) {
                match fed::Fragment::parse(fragment.payload) {
                    Ok(parsed) => self.crc_errors += u64::from(parsed.check_crc().is_err()),
                    Err(_) => self.malformed += 1,
                }
            }
            payload.append(fragment.payload);
        }
        self.doubtful += u64::from(is_doubtful);
        if is_left || is_doubtful || self.crc_errors + self.malformed > before {
            self.faulty.add(event);
        }
    }

    /// Fragments in doubt, by the name of their flag.
    fn flagged(&self) -> BTreeMap<&'static str, u64> {
        let by_flag = FragmentFlags::DOUBTS.into_iter().zip(self.doubts);
        by_flag.filter(|(_, count)| *count > 0).map(|((_, name), count)| (name, count)).collect()
    }
}

/// The payload on its way to the digest's thread.
struct PayloadBlocks {
    block: Vec<u8>,
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
}

impl PayloadBlocks {
    fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK_BYTES {
                self.send();
            }
        }
    }

    /// Hands the block over and takes an empty one. The digest's thread ends before this one only by a panic,
    /// which the join tells.
    fn send(&mut self) {
        let empty = self.empty.recv().unwrap_or_default();
        let _ = self.full.send(std::mem::replace(&mut self.block, empty));
    }
}
