//! Tests of the readout unit's rules, on the machine alone.

mod beginnings;
mod collator;
mod doubts;
mod framing;
mod layouts;
mod masking;
mod properties;
mod settling;
mod time_outs;

use super::*;
use crate::messages::*;
use core::time::Duration;
use ropewalk_memory::Payload;
use ropewalk_terms::{
    Attempt, Cause, Counter, EventKey, FragmentAccount, Instant, NodeId, Outcome, Parameter, Requirement, SourceId,
};

/// The claimed length of each fragment of these tests, in bytes.
const LENGTH: u32 = 100;
const SOURCE_TIMEOUT: Duration = Duration::from_millis(100);
const RESYNC_TIMEOUT: Duration = Duration::from_millis(500);

fn key(number: u64) -> EventKey {
    EventKey::new(0, number)
}

/// Returns a fragment with a wrong checksum.
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

/// A readout unit and all of its output.
struct Rig {
    readout: Readout,
    now: Instant,
    held: Vec<AnnounceEntry>,
    settled: EventKey,
    answers: Vec<(u16, SuperFragmentEntry)>,
    others: Vec<Message>,
}

impl Rig {
    /// Creates a rig before the start, without connected sources. Numbers are trusted; doubts have separate tests.
    fn new(config: ReadoutConfig) -> Self {
        Self::with_trust(config, true)
    }

    /// Creates a rig whose numbers are not trusted.
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

    /// Creates a rig whose sources are connected and read, in a run that started with event 1.
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

    /// Feeds a fragment by which the source declares the restart of its numbering.
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

    /// Lets time pass, in steps so short that no deadline is missed.
    fn wait(&mut self, duration: Duration) {
        let until = self.now.after(duration);
        while self.now < until {
            self.now = self.now.after(SOURCE_TIMEOUT / 10).min(until);
            self.poll();
        }
    }

    /// Takes all actions, and checks the invariants.
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
            // If an event was built before it was settled here, it is not known whether a fragment would have come.
            assert!(missing >= account.missing.total() + unrecorded, "source {source}: {gaps:?}");
            assert!(gaps.windows(2).all(|pair| pair[0].last < pair[1].first), "source {source}: {gaps:?}");
        }
    }

    /// Returns the stretches in which a source is missing: first and last number, and number of missing events.
    fn gaps(&self, source: usize) -> Vec<(u64, u64, u64)> {
        let gaps = self.readout.sources[source].gaps.iter();
        gaps.map(|gap| (gap.first.number(), gap.last.number(), gap.missing)).collect()
    }

    fn account(&self, source: usize) -> FragmentAccount {
        self.readout.account(source)
    }

    /// Returns the numbers of the announced events.
    fn numbers(&self) -> Vec<u64> {
        self.held.iter().map(|entry| entry.key.number()).collect()
    }

    /// Returns the super-fragment of a held event.
    fn fragments(&self, key: EventKey) -> Vec<Fragment> {
        let super_fragment = self.readout.super_fragment(key).expect("settled and held");
        let mut fragments = Vec::new();
        super_fragment.append_to(&mut fragments);
        assert_eq!(fragments.len(), super_fragment.count());
        fragments
    }

    /// Returns the missing fragments of a held event, by source id.
    fn missing(&self, key: EventKey) -> Vec<(u32, Cause)> {
        let missing = |meta: FragmentMeta| meta.missing_cause().map(|cause| (meta.source.0, cause));
        self.fragments(key).into_iter().filter_map(|fragment| missing(fragment.meta)).collect()
    }
}

#[test]
fn the_same_event_twice_is_a_duplicate() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, [1, 2, 3, 3, 2, 4]);
    rig.feed(1, 1..=4);
    assert_eq!(rig.account(0).duplicate, 2);
    assert_eq!(rig.held.iter().map(|entry| entry.fragments).collect::<Vec<_>>(), [2, 2, 2, 2]);
    rig.release(key(1), 4, Outcome::Complete);
    rig.feed(0, [4]);
    assert_eq!(rig.account(0).duplicate, 3, "the last one again, though it was released");
}

#[test]
fn an_event_that_was_skipped_and_comes_after_all_is_late() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, [1, 3, 2]);
    rig.feed(1, 1..=3);
    assert_eq!((rig.account(0).late, rig.account(0).duplicate), (1, 0));
    assert_eq!(rig.missing(key(2)), [(0, Cause::Skipped)]);
}

#[test]
fn an_unbelieved_jump_is_corrupt_and_opens_no_event() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, [1, 2, 1_000_002, 3, 4]);
    rig.feed(1, 1..=4);
    assert_eq!(rig.account(0).corrupt, 1);
    assert_eq!(rig.numbers(), [1, 2, 3, 4]);
    assert!((1..=4).all(|number| rig.missing(key(number)).is_empty()));
    assert_eq!(rig.readout.next_deadline(), None);
}

#[test]
fn an_id_with_more_bits_than_the_counter_is_corrupt() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, [1, 1 << 24 | 2, 2]);
    assert_eq!((rig.account(0).corrupt, rig.numbers()), (1, vec![1, 2]));
}

#[test]
fn event_numbers_end_somewhere() {
    let mut settings = config(1);
    settings.sources[0].counter_bits = 64;
    let mut rig = Rig::new(settings);
    rig.tell(Message::Start(Start::of_run(key(EventKey::MAX_NUMBER - 3))));
    rig.connect(0);
    rig.feed(0, 1..=9);
    assert_eq!((rig.held.len(), rig.account(0).corrupt), (3, 6));
}

#[test]
fn flagged_contents_go_on_and_are_counted() {
    let mut rig = Rig::started(config(1));
    let mut damaged = fragment(0, 1);
    damaged.meta.flags = FragmentFlags::CRC_CHECKED.with(FragmentFlags::CRC_ERROR);
    rig.feed_fragments(0, vec![damaged, fragment(0, 2)]);
    assert_eq!(rig.numbers(), [1, 2]);
    assert!(rig.fragments(key(1))[0].meta.flags.contains(FragmentFlags::CRC_ERROR));
    let counter = ropewalk_terms::Counter::CrcErrors;
    assert_eq!(
        rig.readout.report(rig.now).find(|entry| entry.as_counter() == Some(counter)).map(|entry| entry.value),
        Some(1)
    );
}

#[test]
fn a_fragment_cut_by_a_disconnection_is_counted_by_name() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, [1]);
    rig.readout.source_disconnected(rig.now, 0, true);
    rig.poll();
    assert_eq!((rig.account(0).received, rig.account(0).dropped.get(Cause::CutShort)), (2, 1));
}

#[test]
fn bytes_without_sense_are_counted_by_name() {
    let mut rig = Rig::started(config(1));
    rig.readout.framing_lost(0, FramingError { cause: Cause::Oversize, bytes_discarded: 77 });
    rig.disconnect(0);
    assert_eq!(rig.account(0).dropped.get(Cause::Oversize), 1);
    let counter = ropewalk_terms::Counter::GarbageBytes;
    assert_eq!(
        rig.readout.report(rig.now).find(|entry| entry.as_counter() == Some(counter)).map(|entry| entry.value),
        Some(77)
    );
}

#[test]
fn an_event_that_was_released_before_it_was_settled_takes_nothing_more() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=3);
    rig.release(key(1), 2, Outcome::Dropped(Cause::ReadoutLost));
    assert_eq!(rig.account(0).dropped.get(Cause::ReadoutLost), 2);
    assert_eq!(rig.settled, key(2), "they are not waited for any more");
    rig.feed(1, 1..=3);
    assert_eq!(rig.account(1).late, 2);
    assert_eq!(rig.numbers(), [3]);
}

#[test]
fn an_event_that_was_released_before_any_source_showed_it_takes_nothing() {
    let mut rig = Rig::started(config(2));
    rig.release(key(3), 2, Outcome::IncompleteEmitted);
    rig.feed(0, 1..=5);
    rig.feed(1, 1..=5);
    assert_eq!((rig.numbers(), rig.account(0).late, rig.account(1).late), (vec![1, 2, 5], 2, 2));
    rig.release(key(1), 1, Outcome::Complete);
    rig.release(key(1), u32::MAX, Outcome::Complete);
    assert_eq!((rig.account(0).in_complete_events, rig.readout.held()), (3, 0), "each is counted once");
}

#[test]
fn a_release_that_comes_twice_does_not_reach_later_events() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, 1..=16);
    rig.release(key(1), 16, Outcome::Complete);
    rig.feed(0, 17..=32);
    rig.release(key(17), 16, Outcome::Complete);
    rig.feed(0, 33..=40);
    rig.release(key(1), 8, Outcome::Complete);
    assert_eq!((rig.readout.held(), rig.account(0).in_complete_events), (8, 32));
}

#[test]
fn fragments_come_in_before_the_start_and_are_stale() {
    let mut rig = Rig::new(config(1));
    rig.connect(0);
    assert_eq!(rig.readout.room(0), 0, "it must not be read");
    rig.feed(0, [1]);
    assert_eq!(rig.account(0).stale, 1);
}

#[test]
fn fragments_without_a_payload_are_counted_but_not_missing_ones() {
    let mut rig = Rig::started(config(1));
    let length = |raw, length| {
        let mut fragment = fragment(0, raw);
        fragment.meta.length = length;
        fragment
    };
    let missing = Received { meta: FragmentMeta::missing(SourceId(0), Cause::Skipped), ..fragment(0, 2) };
    rig.feed_fragments(0, vec![length(1, 0), missing, length(3, 1), length(4, 0)]);
    let is_it = |entry: &ReportEntry| entry.as_counter() == Some(Counter::FragmentsEmpty);
    let empty: Vec<u64> = rig.readout.report(rig.now).filter(is_it).map(|entry| entry.value).collect();
    assert_eq!(empty, [2]);
}

#[test]
fn numbers_that_repeat_fall_and_jump_are_counted_as_they_come() {
    let mut rig = Rig::started(config(1));
    let raw = [1, 2, 2, 3, 3, 3, 1, 4];
    rig.feed_fragments(0, raw.map(|raw| fragment(0, raw)).to_vec());
    let count = |counter| {
        let is_it = |entry: &ReportEntry| entry.as_counter() == Some(counter);
        rig.readout.report(rig.now).filter(is_it).map(|entry| entry.value).sum::<u64>()
    };
    let counts = [Counter::NumbersRepeated, Counter::NumbersFell, Counter::NumbersJumped].map(count);
    assert_eq!(counts, [3, 1, 1]);
}

#[test]
fn ids_from_before_the_run_are_stale() {
    let mut settings = config(1);
    settings.sources[0].first = 50;
    let mut rig = Rig::started(settings);
    rig.feed(0, [47, 48, 49, 50, 51]);
    assert_eq!((rig.account(0).stale, rig.numbers()), (3, vec![1, 2]));
}

#[test]
fn a_source_that_was_away_while_its_counter_wrapped_goes_on_with_the_run() {
    let mut settings = config(2);
    settings.sources[1].counter_bits = 12;
    let mut rig = Rig::started(settings);
    rig.feed(0, [1]);
    rig.feed(1, [1]);
    rig.disconnect(1);
    rig.release(key(1), 1, Outcome::Complete);
    for number in 2..=9000 {
        rig.feed(0, [number]);
        if number == 2 {
            rig.wait(SOURCE_TIMEOUT);
        }
        rig.release(key(number), 1, Outcome::IncompleteEmitted);
    }
    rig.connect(1);
    rig.feed(1, [9001 & 0xfff]);
    rig.feed(0, [9001]);
    assert_eq!(rig.missing(key(9001)), []);
}

fn two_sources() -> ReadoutConfig {
    ReadoutConfig::new(0, (1..=2).map(|id| SourceConfig::new(SourceId(id), Format::Ferol)).collect())
}

/// Returns the error of a changed configuration.
fn wrong(change: impl FnOnce(&mut ReadoutConfig)) -> Option<ReadoutConfigError> {
    let mut config = two_sources();
    change(&mut config);
    config.check().err()
}

#[test]
fn wrong_configurations_are_refused() {
    assert_eq!(wrong(|_| {}), None);
    assert_eq!(wrong(|config| config.trigger = Some(SourceId(2))), None);
    let cases = [
        wrong(|config| config.sources[1].id = SourceId(1)),
        wrong(|config| config.trigger = Some(SourceId(3))),
        wrong(|config| config.sources[0].counter_bits = 65),
        wrong(|config| config.plausibility = (1 << 22) + 1),
        wrong(|config| config.window = 5000),
        wrong(|config| config.resync_timeout = config.source_timeout),
        wrong(|config| config.sources = vec![config.sources[0]; 70_000]),
    ];
    let expected = [
        ReadoutConfigError::Twice(SourceId(1)),
        ReadoutConfigError::Trigger(SourceId(3)),
        ReadoutConfigError::CounterBits { source_id: SourceId(1), bits: 65 },
        ReadoutConfigError::Plausibility { source_id: SourceId(1), plausibility: (1 << 22) + 1 },
        ReadoutConfigError::Window { window: 5000, capacity: 4096 },
        ReadoutConfigError::ResyncTimeout,
        ReadoutConfigError::Sources(70_000),
    ];
    assert_eq!(cases, expected.map(Some));
}
