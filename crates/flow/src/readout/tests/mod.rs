//! The rules of the readout unit, each as a test of the machine alone.

mod beginnings;
mod collator;
mod doubts;
mod edges;
mod faults;
mod foreign;
mod framing;
mod gathering;
mod growing;
mod histograms;
mod layouts;
mod masking;
mod properties;
mod requests;
mod resynchronisation;
mod settling;
mod successor;
mod time_outs;

use super::*;
use crate::messages::*;
use core::time::Duration;
use ropewalk_memory::Payload;
use ropewalk_terms::{
    Attempt, Cause, Counter, EventKey, FragmentAccount, Instant, NodeId, Outcome, Parameter, Requirement, SourceId,
};

/// Bytes that each fragment of these tests claims to have.
const LENGTH: u32 = 100;
const SOURCE_TIMEOUT: Duration = Duration::from_millis(100);
const RESYNC_TIMEOUT: Duration = Duration::from_millis(500);

fn key(number: u64) -> EventKey {
    EventKey::new(0, number)
}

/// A fragment whose checksum is wrong.
fn damaged(source: u32, raw: u64) -> Received {
    let mut damaged = fragment(source, raw);
    damaged.meta.flags = FragmentFlags::CRC_CHECKED.with(FragmentFlags::CRC_ERROR);
    damaged
}

fn fragment(source: u32, raw_id: u64) -> Received {
    let mut meta = FragmentMeta::missing(SourceId(source), Cause::Skipped);
    (meta.flags, meta.length, meta.raw_id) = (FragmentFlags::default(), LENGTH, raw_id);
    Received { meta, restarts: false, payload: Payload::default() }
}

/// Required sources with ids 0, 1, ... and counters of 24 bits.
fn config(sources: u32) -> ReadoutConfig {
    let sources = (0..sources).map(|id| SourceConfig::new(SourceId(id), Format::Ferol)).collect();
    ReadoutConfig {
        builders: 4,
        window: 16,
        capacity: 32,
        plausibility: 1000,
        source_timeout: SOURCE_TIMEOUT,
        resync_timeout: RESYNC_TIMEOUT,
        ..ReadoutConfig::new(0, sources)
    }
}

/// A readout unit and everything it has said.
struct Rig {
    readout: Readout,
    now: Instant,
    held: Vec<AnnounceEntry>,
    settled: EventKey,
    answers: Vec<(u16, SuperFragmentEntry)>,
    others: Vec<Message>,
}

impl Rig {
    /// Before the start, no source connected. Numbers are taken at their word: what is in doubt has tests of its own.
    fn new(config: ReadoutConfig) -> Self {
        Self::with_trust(config, true)
    }

    /// The same where numbers are claims.
    fn doubting(config: ReadoutConfig) -> Self {
        Self::with_trust(config, false)
    }

    fn with_trust(mut config: ReadoutConfig, trusts_numbers: bool) -> Self {
        config.sources.iter_mut().for_each(|source| source.trusts_numbers = trusts_numbers);
        Self {
            readout: Readout::new(config),
            now: Instant::from_nanoseconds(1_000),
            held: Vec::new(),
            settled: EventKey::MIN,
            answers: Vec::new(),
            others: Vec::new(),
        }
    }

    /// All sources connected and read, the run started with event 1.
    fn started(config: ReadoutConfig) -> Self {
        Self::new(config).start()
    }

    fn start(self) -> Self {
        let mut rig = self;
        let sources = rig.readout.sources.len();
        rig.tell(Message::Start(Start::of_run(key(1))));
        (0..sources).for_each(|source| rig.connect(source));
        rig
    }

    fn connect(&mut self, source: usize) {
        self.readout.source_connected(self.now, source);
        self.readout.set_being_read(self.now, source, true);
        self.poll();
    }

    fn disconnect(&mut self, source: usize) {
        self.readout.source_disconnected(self.now, source, false);
        self.poll();
    }

    fn tell(&mut self, message: Message) {
        self.readout.message(self.now, NodeId::MANAGER, &message);
        self.poll();
    }

    fn feed(&mut self, source: usize, ids: impl IntoIterator<Item = u64>) {
        let id = self.readout.sources[source].id.0;
        self.feed_fragments(source, ids.into_iter().map(|raw| fragment(id, raw)).collect());
    }

    /// A fragment with which the source says that its numbering starts again.
    fn feed_restart(&mut self, source: usize, raw: u64) {
        let id = self.readout.sources[source].id.0;
        self.feed_fragments(source, vec![Received { restarts: true, ..fragment(id, raw) }]);
    }

    fn feed_fragments(&mut self, source: usize, mut fragments: Vec<Received>) {
        self.readout.receive(self.now, source, &mut fragments);
        assert!(fragments.is_empty());
        self.poll();
    }

    fn release(&mut self, first: EventKey, count: u32, outcome: Outcome) {
        let entries = [ReleaseEntry { first, count, outcome }].into_iter().collect();
        self.tell(Message::Release(Release { entries }));
    }

    fn request(&mut self, builder: u16, keys: &[EventKey]) {
        let entry = |&key: &EventKey| RequestEntry { key, slot: key.number() as u32, attempt: Attempt(1) };
        let request = Message::Request(Request { entries: keys.iter().map(entry).collect() });
        self.readout.message(self.now, NodeId::builder(builder), &request);
        self.poll();
    }

    /// Lets time pass, in steps so short that nothing is overdue.
    fn wait(&mut self, duration: Duration) {
        let until = self.now.after(duration);
        while self.now < until {
            self.now = self.now.after(SOURCE_TIMEOUT / 10).min(until);
            self.poll();
        }
    }

    /// Takes all actions, and checks what must hold at any time.
    fn poll(&mut self) {
        while let Some(action) = self.readout.poll(self.now) {
            match action {
                ReadoutAction::ToManager(Message::Announce(announce)) => self.note_announce(&announce),
                ReadoutAction::ToManager(message) => self.others.push(message),
                ReadoutAction::Answer { builder, entry } => self.answers.push((builder, entry)),
            }
        }
        assert!(self.readout.next_deadline().is_none_or(|deadline| deadline > self.now), "the deadline was seen to");
        self.check_ledger();
    }

    fn note_announce(&mut self, announce: &Announce) {
        for entry in &announce.entries {
            assert!(entry.key > self.settled, "{} was settled before", entry.key);
            assert!(self.held.last().is_none_or(|last| last.key < entry.key), "announced in the order of keys");
            assert!(entry.key <= announce.settled);
            self.held.push(*entry);
        }
        assert!(announce.settled >= self.settled, "what is settled stays so");
        self.settled = announce.settled;
    }

    fn check_ledger(&self) {
        for source in 0..self.readout.sources.len() {
            let account = self.readout.account(source);
            assert_eq!(account.received, account.accounted(), "source {source}: {account:?}");
            let gaps: Vec<_> = self.readout.sources[source].gaps.iter().collect();
            let missing: u64 = gaps.iter().map(|gap| gap.missing).sum();
            let unrecorded =
                [Cause::TooLarge, Cause::BuiltWithout, Cause::Late].map(|cause| account.dropped.get(cause));
            let unrecorded: u64 = unrecorded.into_iter().sum();
            // Of an event that was built before it was settled here it is not known whether something would have come.
            assert!(missing >= account.missing.total() + unrecorded, "source {source}: {gaps:?}");
            assert!(gaps.windows(2).all(|pair| pair[0].last < pair[1].first), "source {source}: {gaps:?}");
        }
    }

    /// The stretches in which a source is missing: first and last number, and how many events it lacks.
    fn gaps(&self, source: usize) -> Vec<(u64, u64, u64)> {
        let gaps = self.readout.sources[source].gaps.iter();
        gaps.map(|gap| (gap.first.number(), gap.last.number(), gap.missing)).collect()
    }

    fn account(&self, source: usize) -> FragmentAccount {
        self.readout.account(source)
    }

    /// The numbers of the announced events.
    fn numbers(&self) -> Vec<u64> {
        self.held.iter().map(|entry| entry.key.number()).collect()
    }

    /// The super-fragment of an event that is held.
    fn fragments(&self, key: EventKey) -> Vec<Fragment> {
        let super_fragment = self.readout.super_fragment(key).expect("settled and held");
        let mut fragments = Vec::new();
        super_fragment.append_to(&mut fragments);
        assert_eq!(fragments.len(), super_fragment.count());
        fragments
    }

    /// What is missing in an event that is held, by source id.
    fn missing(&self, key: EventKey) -> Vec<(u32, Cause)> {
        let missing = |meta: FragmentMeta| meta.missing_cause().map(|cause| (meta.source.0, cause));
        self.fragments(key).into_iter().filter_map(|fragment| missing(fragment.meta)).collect()
    }
}
