//! A builder held in the hand: what goes in is said in one line, what comes out is a list.

use crate::builder::{Builder, BuilderAction, BuilderConfig, BuilderSource};
use crate::messages::{
    AcknowledgeEntry, Assign, AssignEntry, Credit, Fragment, FragmentFlags, FragmentMeta, Message, ReadoutState,
    RequestEntry, SuperFragmentEntry,
};
use core::time::Duration;
use ropewalk_memory::Payload;
use ropewalk_terms::{AcknowledgementLevel, Attempt, Cause, EventKey, Instant, SourceId};

pub(super) const TIMEOUT: Duration = Duration::from_secs(1);
pub(super) const BYTES: u32 = 100;

pub(super) fn key(number: u64) -> EventKey {
    EventKey::new(0, number)
}

/// `readouts` units with two sources each: unit r has 10 r and 10 r + 1.
pub(super) fn config(readouts: u16) -> BuilderConfig {
    let source = |readout: u16, number: u16| BuilderSource::new(SourceId(u32::from(10 * readout + number)), readout);
    BuilderConfig {
        slots: 4,
        table: 0,
        credit_bytes: 1000,
        event_timeout: TIMEOUT,
        ..BuilderConfig::new(
            0,
            readouts,
            (0..readouts).flat_map(|readout| [source(readout, 0), source(readout, 1)]).collect(),
        )
    }
}

pub(super) fn fragment(number: u64, source: u32) -> Fragment {
    let meta = FragmentMeta {
        source: SourceId(source),
        length: 10,
        flags: FragmentFlags::HAS_BUNCH_CROSSING,
        bunch_crossing: 7,
        trigger_type: 0,
        raw_id: number,
        time: 0,
    };
    Fragment { meta, payload: Payload::default() }
}

/// What a builder did, in the order of its doing.
#[derive(Default, Debug)]
pub(super) struct Done {
    pub(super) requests: Vec<(u16, Vec<RequestEntry>)>,
    pub(super) acknowledged: Vec<AcknowledgeEntry>,
    pub(super) credits: Vec<Credit>,
    pub(super) emitted: Vec<u32>,
    pub(super) other: Vec<Message>,
    pub(super) stop: Vec<Cause>,
    pub(super) lumisections: Vec<u32>,
}

pub(super) struct Hand {
    pub(super) builder: Builder,
    pub(super) now: Instant,
    readouts: u16,
}

impl Hand {
    /// Everybody is connected.
    pub(super) fn new(config: BuilderConfig) -> Self {
        assert_eq!(config.check(), Ok(()));
        let readouts = config.readouts;
        let mut hand = Self { builder: Builder::new(config), now: Instant::from_nanoseconds(5_000_000_000), readouts };
        hand.builder.manager_connected(hand.now);
        for readout in 0..readouts {
            hand.builder.readout_connected(hand.now, readout);
        }
        hand
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    pub(super) fn say(&mut self, message: &Message) {
        self.builder.message(self.now, message);
    }

    pub(super) fn assign(&mut self, numbers: impl IntoIterator<Item = u64>, attempt: u16) {
        let entry = |number| AssignEntry { key: key(number), bytes: BYTES, attempt: Attempt(attempt) };
        self.say(&Message::Assign(Assign { entries: numbers.into_iter().map(entry).collect() }));
    }

    pub(super) fn readout_state(&mut self, readout: u16, present: bool) {
        self.say(&Message::ReadoutState(ReadoutState { readout, present }));
    }

    /// Answers a request with these sources' fragments.
    pub(super) fn answer(&mut self, readout: u16, request: RequestEntry, sources: &[u32]) {
        let mut fragments: Vec<_> = sources.iter().map(|&id| fragment(request.key.number(), id)).collect();
        self.answer_with(readout, request, &mut fragments, None);
    }

    pub(super) fn answer_with(
        &mut self,
        readout: u16,
        request: RequestEntry,
        fragments: &mut Vec<Fragment>,
        not_held: Option<Cause>,
    ) {
        let RequestEntry { key, slot, attempt } = request;
        let count = fragments.len() as u16;
        let entry = SuperFragmentEntry { key, slot, attempt, fragments: count, bytes: 0, not_held };
        self.builder.super_fragment(self.now, readout, &entry, fragments);
        fragments.clear();
    }

    /// Answers everything that was asked with all fragments.
    pub(super) fn answer_all(&mut self, done: &Done) {
        for (readout, entries) in &done.requests {
            for &entry in entries {
                let first = u32::from(10 * readout);
                self.answer(*readout, entry, &[first, first + 1]);
            }
        }
    }

    /// Assigns, answers everything, and returns the emitted slots.
    pub(super) fn build(&mut self, numbers: impl IntoIterator<Item = u64>) -> Vec<u32> {
        self.assign(numbers, 1);
        let done = self.done();
        self.answer_all(&done);
        self.done().emitted
    }

    pub(super) fn written(&mut self, slot: u32) {
        self.builder.reached(self.now, slot, AcknowledgementLevel::Written);
    }

    pub(super) fn done(&mut self) -> Done {
        let mut done = Done::default();
        while let Some(action) = self.builder.poll(self.now) {
            match action {
                BuilderAction::ToManager(Message::Acknowledge(said)) => done.acknowledged.extend(said.entries),
                BuilderAction::ToManager(Message::Credit(credit)) => done.credits.push(credit),
                BuilderAction::ToManager(message) => done.other.push(message),
                BuilderAction::ToReadout { readout, message: Message::Request(request) } => {
                    assert!(readout < self.readouts);
                    done.requests.push((readout, request.entries.to_vec()));
                }
                BuilderAction::ToReadout { message, .. } => panic!("a readout unit is told {message:?}"),
                BuilderAction::Emit { slot } => done.emitted.push(slot),
                BuilderAction::EndLumisection(end) => done.lumisections.push(end.number),
                BuilderAction::StopRun { cause } => done.stop.push(cause),
            }
        }
        let account = self.builder.account();
        assert_eq!(account.assigned, account.accounted(), "{account:?}");
        done
    }

    /// The sources of an emitted event, in its order.
    pub(super) fn sources(&self, slot: u32) -> Vec<u32> {
        self.builder.event(slot).fragments().map(|fragment| fragment.meta.source.0).collect()
    }

    pub(super) fn missing(&self, slot: u32) -> Vec<(u32, Cause)> {
        self.builder.event(slot).missing().map(|(source, cause)| (source.0, cause)).collect()
    }
}

pub(super) fn acknowledged(done: &Done) -> Vec<(u64, u16, ropewalk_terms::Outcome)> {
    done.acknowledged.iter().map(|entry| (entry.key.number(), entry.attempt.0, entry.ending.outcome)).collect()
}
