//! Bytes read as choices. Where they end, every choice is the first one.

use ropewalk_flow::messages::{
    Acknowledge, AcknowledgeEntry, Announce, AnnounceEntry, Assign, AssignEntry, Batch, Credit, Finished,
    FragmentFlags, FragmentMeta, Lacking, LackingEntry, Mask, Message, ReadoutState, Release, ReleaseEntry, Report,
    Request, RequestEntry, Resync, Setting, Start, SynchronyState, Unreleased, UnreleasedEntry,
};
use ropewalk_terms::{
    AcknowledgementLevel, Attempt, CAUSES, Cause, Ending, EventKey, Instant, NodeId, Outcome, Parameter, SourceId,
    Verdict,
};
use ropewalk_wire::message::{Hello, RefuseReason};
use std::time::Duration;

/// A reader of choices.
pub(super) struct Choices<'a> {
    bytes: &'a [u8],
    now: Instant,
}

impl<'a> Choices<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, now: Instant::ZERO }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        first
    }

    /// A number below `bound`, which is at least 1.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        let number = if bound <= 256 { u64::from(self.byte()) } else { self.wide() };
        number % bound
    }

    pub(super) fn chance(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Eight bytes.
    pub(super) fn wide(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// Up to `most` bytes as they are.
    pub(super) fn raw(&mut self, most: usize) -> &'a [u8] {
        let (head, rest) = self.bytes.split_at(most.min(self.bytes.len()));
        self.bytes = rest;
        head
    }

    /// Mostly no time passes, sometimes milliseconds, rarely seconds; never backwards.
    pub(super) fn now(&mut self) -> Instant {
        let passed = match self.byte() {
            0..=180 => Duration::ZERO,
            short @ 181..=250 => Duration::from_millis(u64::from(short - 180)),
            long => Duration::from_secs(u64::from(long - 250)),
        };
        self.now = self.now.after(passed);
        self.now
    }

    /// Mostly near the run's beginning, where events are; rarely anything.
    pub(super) fn key(&mut self) -> EventKey {
        match self.byte() {
            near @ 0..=199 => EventKey::new(0, u64::from(near % 48)),
            resynced @ 200..=239 => EventKey::new(u16::from(resynced % 3), u64::from(resynced % 16)),
            240..=250 => EventKey::from_bits(self.wide()),
            251 | 252 => EventKey::MIN,
            _ => EventKey::MAX,
        }
    }

    pub(super) fn cause(&mut self) -> Cause {
        CAUSES[self.below(CAUSES.len() as u64) as usize]
    }

    pub(super) fn level(&mut self) -> AcknowledgementLevel {
        AcknowledgementLevel::from_u8(self.byte() % 5).unwrap_or(AcknowledgementLevel::Written)
    }

    fn outcome(&mut self) -> Outcome {
        match self.below(4) {
            0 | 1 => Outcome::Complete,
            2 => Outcome::IncompleteEmitted,
            _ => Outcome::Dropped(self.cause()),
        }
    }

    fn ending(&mut self) -> Ending {
        let verdict = Verdict::from_u8(self.below(8) as u8).unwrap_or_default();
        Ending { outcome: self.outcome(), verdict }
    }

    fn attempt(&mut self) -> Attempt {
        Attempt(if self.below(16) == 0 { self.wide() as u16 } else { self.below(4) as u16 })
    }

    /// A size, mostly one that could be true.
    pub(super) fn bytes(&mut self) -> u32 {
        if self.below(32) == 0 { self.wide() as u32 } else { self.below(64) as u32 * 64 }
    }

    pub(super) fn node(&mut self) -> NodeId {
        match self.below(8) {
            0 => NodeId::MANAGER,
            1..=4 => NodeId::readout(self.below(4) as u16),
            _ => NodeId::builder(self.below(4) as u16),
        }
    }

    pub(super) fn setting(&mut self) -> Setting {
        let parameter = Parameter::ALL[self.below(Parameter::ALL.len() as u64) as usize];
        Setting { parameter, of: self.below(3) as u16, value: self.below(1 << 32) }
    }

    pub(super) fn source(&mut self, sources: u32) -> SourceId {
        SourceId(1 + self.below(u64::from(sources) + 1) as u32)
    }

    pub(super) fn meta(&mut self, sources: u32) -> FragmentMeta {
        let source = self.source(sources);
        if self.below(16) == 0 {
            return FragmentMeta::missing(source, self.cause());
        }
        let raw_id = if self.below(16) == 0 { self.wide() } else { self.below(48) };
        let flags = if self.below(8) == 0 { FragmentFlags(self.wide() as u32) } else { FragmentFlags::default() };
        FragmentMeta {
            source,
            length: self.bytes(),
            flags,
            bunch_crossing: raw_id as u16,
            trigger_type: 0,
            raw_id,
            time: 0,
        }
    }

    /// Some entries, at most eight.
    fn batch<T>(&mut self, mut entry: impl FnMut(&mut Self) -> T) -> Batch<T> {
        let mut batch = Batch::new();
        for _ in 0..self.below(9) {
            batch.push(entry(self));
        }
        batch
    }

    /// Any message of the protocol, whoever should send it.
    pub(super) fn message(&mut self, sources: u32) -> Message {
        match self.below(25) {
            24 => Message::Set(self.setting()),
            23 => Message::Follows(self.chance()),
            22 => Message::Mask(Mask { source: self.source(sources), is_masked: self.chance() }),
            0 => Message::Start(Start { first: self.key(), origin: self.key() }),
            1 => Message::QueryHighest,
            2 => Message::Highest(self.key()),
            3 => Message::StopAt(self.key()),
            4 => Message::Resync(Resync { first: self.key() }),
            5 | 6 => Message::Announce(Announce {
                settled: self.key(),
                entries: self.batch(|own| AnnounceEntry {
                    key: own.key(),
                    bytes: own.bytes(),
                    fragments: own.below(4) as u16,
                    triggered: own.chance(),
                }),
            }),
            7 => Message::Credit(self.credit()),
            8 | 9 => Message::Assign(Assign {
                entries: self.batch(|own| AssignEntry { key: own.key(), bytes: own.bytes(), attempt: own.attempt() }),
            }),
            10 => Message::Request(self.request()),
            11 | 12 => Message::Acknowledge(Acknowledge {
                level: self.level(),
                entries: self.batch(|own| AcknowledgeEntry {
                    key: own.key(),
                    attempt: own.attempt(),
                    ending: own.ending(),
                }),
            }),
            13 => Message::Release(self.release()),
            14 => Message::ReadoutState(ReadoutState { readout: self.below(4) as u16, present: self.chance() }),
            15 => Message::Recover,
            16 => Message::Unreleased(Unreleased {
                entries: self.batch(|own| UnreleasedEntry {
                    key: own.key(),
                    attempt: own.attempt(),
                    ending: own.chance().then(|| own.ending()),
                }),
                more: self.chance(),
            }),
            17 => Message::Synchrony(SynchronyState {
                source: self.source(sources),
                verdict: self.byte(),
                offset: self.wide() as i16,
                since: self.key(),
            }),
            18 => Message::Finish,
            19 => Message::Finished(Finished { in_flight: self.wide() }),
            20 => Message::Report(Report { entries: Batch::new(), last: self.chance() }),
            _ => self.other_message(),
        }
    }

    fn other_message(&mut self) -> Message {
        match self.below(5) {
            4 => Message::Lacking(Lacking {
                entries: self.batch(|own| LackingEntry {
                    key: own.key(),
                    attempt: own.attempt(),
                    readout: own.below(4) as u16,
                }),
            }),
            0 => Message::Welcome,
            1 => Message::Refuse(RefuseReason::OldEpoch),
            2 => Message::Hello(Hello::new("anybody", self.wide())),
            _ => Message::StopRequest(self.cause()),
        }
    }

    fn credit(&mut self) -> Credit {
        let events = if self.below(16) == 0 { self.wide() } else { self.below(64) };
        let bytes = if self.below(16) == 0 { self.wide() } else { self.below(64) * 1024 };
        Credit { events, bytes }
    }

    /// What a builder unit asks of a readout unit.
    pub(super) fn request(&mut self) -> Request {
        let entries =
            self.batch(|own| RequestEntry { key: own.key(), slot: own.below(12) as u32, attempt: own.attempt() });
        Request { entries }
    }

    /// What an event manager lets go of.
    pub(super) fn release(&mut self) -> Release {
        let entries = self.batch(|own| ReleaseEntry {
            first: own.key(),
            count: if own.below(16) == 0 { own.wide() as u32 } else { own.below(8) as u32 },
            outcome: own.outcome(),
        });
        Release { entries }
    }
}
