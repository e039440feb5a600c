//! The second pass: the events that count, in the order of their keys.
//!
//! A thread of its own computes the digest, which takes longer than everything else together.

use crate::offline::{OfflineError, RunEvent, RunIndex};
use ropewalk_terms::SourceId;
use ropewalk_wire::fed;
use ropewalk_wire::run_file::{EventFlags, FragmentFlags, SourceEntry, SourceFormat};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

/// Bytes of payload that the digest's thread gets at once.
const BLOCK_BYTES: usize = 1 << 20;
/// How many such blocks there are.
const BLOCKS: usize = 4;

/// What the events hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) events: u64,
    pub(super) incomplete: u64,
    pub(super) doubtful: u64,
    pub(super) quarantined: u64,
    /// Fragments with each of `FragmentFlags::DOUBTS`.
    doubts: [u64; FragmentFlags::DOUBTS.len()],
    pub(super) fragments: u64,
    pub(super) payload_bytes: u64,
    pub(super) payload_sha256: String,
    pub(super) crc_errors: u64,
    pub(super) malformed: u64,
}

/// Reads every event that counts.
///
/// # Errors
/// Where a file cannot be read or was changed since it was indexed.
pub(super) fn read(index: &RunIndex) -> Result<Content, OfflineError> {
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
        // At the end nobody takes blocks any more.
        let _ = spent.send(block);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whose fragments are looked into, and whose are no source's.
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
        let fragments = event.event.fragments();
        order.clear();
        order.extend(fragments.clone().enumerate().map(|(place, fragment)| (fragment.entry.source, place)));
        // Envelopes and filters' results are no source's data: the same events have the same digest with them and without.
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
    }

    /// Fragments in doubt, by the name of their flag.
    pub(super) fn flagged(&self) -> BTreeMap<&'static str, u64> {
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
