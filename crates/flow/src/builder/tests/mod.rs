//! Each rule of the protocol against the builder alone.

mod outcomes;

use crate::builder::{Builder, BuilderAction, BuilderConfig, BuilderSource, IncompletePolicy};
use crate::messages::{
    AcknowledgeEntry, Assign, AssignEntry, BATCH, Credit, Fragment, FragmentFlags, FragmentMeta, Message, ReadoutState,
    RequestEntry, Start, SuperFragmentEntry,
};
use core::time::Duration;
use proptest::prelude::*;
use ropewalk_memory::Payload;
use ropewalk_terms::{AcknowledgementLevel, Attempt, Cause, EventKey, Instant, Outcome, SourceId};

const TIMEOUT: Duration = Duration::from_secs(1);
const BYTES: u32 = 100;

fn key(number: u64) -> EventKey {
    EventKey::new(0, number)
}

/// `readouts` units with two sources each: unit r has 10 r and 10 r + 1.
fn config(readouts: u16) -> BuilderConfig {
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

fn fragment(number: u64, source: u32) -> Fragment {
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

/// The output of a builder, in order.
#[derive(Default, Debug)]
struct Done {
    requests: Vec<(u16, Vec<RequestEntry>)>,
    acknowledged: Vec<AcknowledgeEntry>,
    credits: Vec<Credit>,
    emitted: Vec<u32>,
    other: Vec<Message>,
    stop: Vec<Cause>,
    lumisections: Vec<u32>,
}

struct Hand {
    builder: Builder,
    now: Instant,
    readouts: u16,
}

impl Hand {
    /// A builder unit with all connections open.
    fn new(config: BuilderConfig) -> Self {
        assert_eq!(config.check(), Ok(()));
        let readouts = config.readouts;
        let mut hand = Self { builder: Builder::new(config), now: Instant::from_nanoseconds(5_000_000_000), readouts };
        hand.builder.manager_connected(hand.now);
        for readout in 0..readouts {
            hand.builder.readout_connected(hand.now, readout);
        }
        hand
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    fn say(&mut self, message: &Message) {
        self.builder.message(self.now, message);
    }

    fn assign(&mut self, numbers: impl IntoIterator<Item = u64>, attempt: u16) {
        let entry = |number| AssignEntry { key: key(number), bytes: BYTES, attempt: Attempt(attempt) };
        self.say(&Message::Assign(Assign { entries: numbers.into_iter().map(entry).collect() }));
    }

    fn readout_state(&mut self, readout: u16, present: bool) {
        self.say(&Message::ReadoutState(ReadoutState { readout, present }));
    }

    /// Answers a request with these sources' fragments.
    fn answer(&mut self, readout: u16, request: RequestEntry, sources: &[u32]) {
        let mut fragments: Vec<_> = sources.iter().map(|&id| fragment(request.key.number(), id)).collect();
        self.answer_with(readout, request, &mut fragments, None);
    }

    fn answer_with(
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

    /// Answers every request with all fragments.
    fn answer_all(&mut self, done: &Done) {
        for (readout, entries) in &done.requests {
            for &entry in entries {
                let first = u32::from(10 * readout);
                self.answer(*readout, entry, &[first, first + 1]);
            }
        }
    }

    /// Assigns these events, answers everything, and returns the emitted slots.
    fn build(&mut self, numbers: impl IntoIterator<Item = u64>) -> Vec<u32> {
        self.assign(numbers, 1);
        let done = self.done();
        self.answer_all(&done);
        self.done().emitted
    }

    fn written(&mut self, slot: u32) {
        self.builder.reached(self.now, slot, AcknowledgementLevel::Written);
    }

    fn done(&mut self) -> Done {
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
                BuilderAction::ToReadout { message, .. } => panic!("unexpected message to a readout unit: {message:?}"),
                BuilderAction::EndLumisection(end) => done.lumisections.push(end.number),
                BuilderAction::StopRun { cause } => done.stop.push(cause),
            }
        }
        done.emitted.extend(std::iter::from_fn(|| self.builder.next_event()));
        let account = self.builder.account();
        assert_eq!(account.assigned, account.accounted(), "{account:?}");
        done
    }

    /// The sources of an emitted event, in its order.
    fn sources(&self, slot: u32) -> Vec<u32> {
        self.builder.event(slot).fragments().map(|fragment| fragment.meta.source.0).collect()
    }

    fn missing(&self, slot: u32) -> Vec<(u32, Cause)> {
        self.builder.event(slot).missing().map(|(source, cause)| (source.0, cause)).collect()
    }
}

fn acknowledged(done: &Done) -> Vec<(u64, u16, ropewalk_terms::Outcome)> {
    done.acknowledged.iter().map(|entry| (entry.key.number(), entry.attempt.0, entry.ending.outcome)).collect()
}

/// Builds events of `2 * readouts` fragments; returns the number of complete and acknowledged ones.
fn drive(readouts: u16, events: u64) -> u64 {
    let settings = BuilderConfig { slots: 256, credit_bytes: 1 << 30, ..config(readouts) };
    let mut builder = Builder::new(settings);
    let now = Instant::ZERO;
    for readout in 0..readouts {
        builder.readout_connected(now, readout);
    }
    let (mut next, mut fragments) = (1, Vec::new());
    while next <= events {
        let entry = |number| AssignEntry { key: EventKey::new(0, number), bytes: 32_768, attempt: Attempt(1) };
        let entries = (next..next + BATCH as u64).map(entry).collect();
        next += BATCH as u64;
        builder.message(now, &Message::Assign(Assign { entries }));
        while let Some(action) = builder.poll(now) {
            match action {
                BuilderAction::ToReadout { readout, message: Message::Request(request) } => {
                    for entry in &request.entries {
                        let (key, slot, attempt) = (entry.key, entry.slot, entry.attempt);
                        let first = u32::from(10 * readout);
                        fragments.extend([fragment(key.number(), first), fragment(key.number(), first + 1)]);
                        let answer =
                            SuperFragmentEntry { key, slot, attempt, fragments: 2, bytes: 4096, not_held: None };
                        builder.super_fragment(now, readout, &answer, &mut fragments);
                        fragments.clear();
                    }
                }
                BuilderAction::ToManager(_) => {}
                other => panic!("{other:?}"),
            }
        }
        while let Some(slot) = builder.next_event() {
            builder.reached(now, slot, AcknowledgementLevel::Written);
        }
    }
    assert_eq!(builder.in_work(), 0);
    builder.account().built
}

#[test]
fn every_event_is_built() {
    assert_eq!(drive(8, 64 * 100), 64 * 100);
}

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "inputs of a test, made and used one by one")]
enum Input {
    Assign { number: u64, attempt: u16 },
    Answer { readout: u16, number: u64, slot: u32, attempt: u16, sources: Vec<u32> },
    AnswerAll,
    Reached { slot: u32, level: AcknowledgementLevel },
    Failed { slot: u32 },
    State { readout: u16, present: bool },
    Connected { readout: u16 },
    Lost { readout: u16 },
    Say(Message),
    Pass { percent: u32 },
    Manager,
}

fn level() -> impl Strategy<Value = AcknowledgementLevel> {
    (1..=4_u8).prop_filter_map("a level", AcknowledgementLevel::from_u8)
}

fn input() -> impl Strategy<Value = Input> {
    let (readout, slot, number, attempt) = (0..3_u16, 0..5_u32, 0..12_u64, 1..4_u16);
    let sources = proptest::collection::vec(prop_oneof![0..2_u32, 10..12_u32, Just(99)], 0..4);
    prop_oneof![
        6 => (number.clone(), attempt.clone()).prop_map(|(number, attempt)| Input::Assign { number, attempt }),
        3 => (readout.clone(), number, slot.clone(), attempt, sources).prop_map(
            |(readout, number, slot, attempt, sources)| Input::Answer { readout, number, slot, attempt, sources }
        ),
        4 => Just(Input::AnswerAll),
        5 => (slot.clone(), level()).prop_map(|(slot, level)| Input::Reached { slot, level }),
        1 => slot.prop_map(|slot| Input::Failed { slot }),
        1 => (readout.clone(), any::<bool>()).prop_map(|(readout, present)| Input::State { readout, present }),
        1 => readout.clone().prop_map(|readout| Input::Connected { readout }),
        1 => readout.prop_map(|readout| Input::Lost { readout }),
        1 => prop_oneof![Just(Message::Recover), Just(Message::Finish), Just(Message::Start(Start::of_run(key(1))))]
            .prop_map(Input::Say),
        2 => (0..150_u32).prop_map(|percent| Input::Pass { percent }),
        1 => Just(Input::Manager),
    ]
}

fn enter(hand: &mut Hand, input: Input, asked: &mut Vec<(u16, Vec<RequestEntry>)>) {
    match input {
        Input::Assign { number, attempt } => hand.assign([number], attempt),
        Input::Answer { readout, number, slot, attempt, sources } => {
            hand.answer(readout, RequestEntry { key: key(number), slot, attempt: Attempt(attempt) }, &sources);
        }
        Input::AnswerAll => {
            for (readout, entries) in asked.drain(..) {
                entries.into_iter().for_each(|entry| hand.answer(readout, entry, &[u32::from(10 * readout)]));
            }
        }
        Input::Reached { slot, level } => hand.builder.reached(hand.now, slot, level),
        Input::Failed { slot } => hand.builder.failed(hand.now, slot, Cause::WriteFailed),
        Input::State { readout, present } => hand.readout_state(readout, present),
        Input::Connected { readout } => hand.builder.readout_connected(hand.now, readout),
        Input::Lost { readout } => hand.builder.readout_lost(hand.now, readout),
        Input::Say(message) => hand.say(&message),
        Input::Pass { percent } => hand.pass(TIMEOUT * percent / 100),
        Input::Manager => hand.builder.manager_connected(hand.now),
    }
    // `done` checks the balance.
    asked.extend(hand.done().requests);
}

proptest! {
    #[test]
    fn the_account_balances_and_credit_comes_back(
        inputs in proptest::collection::vec(input(), 0..120), level in level(), drop: bool
    ) {
        let incomplete = if drop { IncompletePolicy::Drop } else { IncompletePolicy::Emit };
        let mut hand = Hand::new(BuilderConfig { level, incomplete, ..config(2) });
        let mut asked = Vec::new();
        for input in inputs {
            enter(&mut hand, input, &mut asked);
        }
        // Everything is given up, written and acknowledged.
        hand.pass(2 * TIMEOUT);
        hand.done();
        hand.pass(2 * TIMEOUT);
        hand.done();
        for slot in 0..4 {
            hand.builder.reached(hand.now, slot, AcknowledgementLevel::Synced);
        }
        prop_assert_eq!(hand.builder.in_work(), 0);
        prop_assert_eq!(hand.builder.account().incomplete_dropped.get(Cause::CrcError), 0);
        prop_assert_eq!(hand.builder.next_deadline(), None);
        hand.builder.manager_connected(hand.now);
        let credits = hand.done().credits;
        let credit = credits.last().expect("a connection begins with credit");
        prop_assert_eq!((credit.events, credit.bytes), (4, 1000));
    }
}

fn credit(done: &Done) -> Option<(u64, u64)> {
    done.credits.last().map(|credit| (credit.events, credit.bytes))
}

/// The builder's report to a new manager: event, attempt, outcome; and the number of messages.
fn told(done: &Done) -> (Vec<(u64, u16, Option<Outcome>)>, usize) {
    let messages: Vec<_> = done
        .other
        .iter()
        .map(|message| match message {
            Message::Unreleased(unreleased) => unreleased,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(messages.iter().rev().skip(1).all(|message| message.more));
    assert!(messages.last().is_some_and(|message| !message.more));
    let entries = messages.iter().flat_map(|message| &message.entries);
    (
        entries.map(|entry| (entry.key.number(), entry.attempt.0, entry.ending.map(|ending| ending.outcome))).collect(),
        messages.len(),
    )
}

#[test]
fn credit_is_absolute_and_grows_by_what_is_freed() {
    let mut hand = Hand::new(config(1));
    assert_eq!(credit(&hand.done()), Some((4, 1000)));
    let emitted = hand.build(1..=3);
    assert_eq!(credit(&hand.done()), None);
    hand.written(emitted[0]);
    hand.written(emitted[2]);
    assert_eq!(credit(&hand.done()), Some((6, 1000 + 2 * u64::from(BYTES))));
}

#[test]
fn a_new_connection_counts_anew_without_what_is_in_work() {
    let mut hand = Hand::new(config(1));
    let emitted = hand.build(1..=3);
    hand.written(emitted[0]);
    hand.done();
    // The manager may have assigned a fourth event that was lost in flight: the credit does not depend on it.
    hand.builder.manager_connected(hand.now);
    assert_eq!(credit(&hand.done()), Some((2, 1000 - 2 * u64::from(BYTES))));
    hand.written(emitted[1]);
    hand.written(emitted[2]);
    assert_eq!(credit(&hand.done()), Some((4, 1000)));
}

/// Pairs of an event and a readout unit whose fragments the event lacks, as reported to the manager.
fn lacking(done: &Done) -> Vec<(u64, u16, u16)> {
    let of = |message: &Message| match message {
        Message::Lacking(lacking) => lacking.entries.to_vec(),
        _ => Vec::new(),
    };
    done.other.iter().flat_map(of).map(|entry| (entry.key.number(), entry.attempt.0, entry.readout)).collect()
}

/// A readout unit that was absent may hold fragments that no record has.
#[test]
fn what_an_event_was_built_without_is_sent_ahead_of_its_acknowledgement_and_of_each_repetition() {
    let mut hand = Hand::new(config(70));
    hand.assign([1, 2], 1);
    let requests = hand.done().requests;
    for (readout, entries) in &requests {
        let first = u32::from(10 * readout);
        let mut fragments = vec![fragment(1, first), fragment(1, first + 1)];
        match readout {
            3 => hand.answer_with(*readout, entries[0], &mut Vec::new(), Some(Cause::Late)),
            69 => {}
            _ => hand.answer_with(*readout, entries[0], &mut fragments, None),
        }
        hand.answer(*readout, entries[1], &[first, first + 1]);
    }
    hand.readout_state(69, false);
    let emitted = hand.done().emitted;
    assert_eq!(emitted.len(), 2);
    emitted.iter().for_each(|&slot| hand.written(slot));
    assert!(matches!(hand.builder.poll(hand.now), Some(BuilderAction::ToManager(Message::Lacking(_)))), "first");
    hand.done();
    hand.assign([1], 2);
    assert_eq!(lacking(&hand.done()), [(1, 2, 3), (1, 2, 69)]);
    hand.say(&Message::Recover);
    assert_eq!(lacking(&hand.done()), [(1, 2, 3), (1, 2, 69)]);
    hand.readout_state(69, true);
    let slots = hand.build([3]);
    slots.iter().for_each(|&slot| hand.written(slot));
    assert_eq!(lacking(&hand.done()), []);
}

#[test]
fn assignments_beyond_the_slots_are_refused() {
    let mut hand = Hand::new(config(1));
    hand.assign(1..=9, 1);
    assert_eq!(hand.builder.counts().refused_assignments, 5);
    assert_eq!(hand.builder.account().assigned, 4);
    hand.done();
}

#[test]
fn an_event_in_work_that_is_assigned_again_is_built_once_and_acknowledged_as_the_newer_attempt() {
    let mut hand = Hand::new(config(1));
    hand.done();
    hand.assign([1], 1);
    let requests = hand.done().requests;
    hand.assign([1], 2);
    hand.assign([1], 1);
    let done = hand.done();
    assert!(done.requests.is_empty());
    assert_eq!(credit(&done), Some((5, 1100)));
    assert_eq!(hand.builder.counts().repeated_assignments, 2);
    hand.answer(0, requests[0].1[0], &[0, 1]);
    let emitted = hand.done().emitted;
    assert_eq!(hand.builder.event(emitted[0]).attempt, Attempt(2));
    hand.written(emitted[0]);
    assert_eq!(acknowledged(&hand.done()), [(1, 2, Outcome::Complete)]);
    assert_eq!(hand.builder.account().assigned, 1);
}

#[test]
fn an_event_that_is_done_and_assigned_again_is_acknowledged_again() {
    let mut hand = Hand::new(config(1));
    let emitted = hand.build([1]);
    hand.written(emitted[0]);
    assert_eq!(credit(&hand.done()), Some((5, 1100)));
    hand.assign([1], 2);
    let done = hand.done();
    assert_eq!(acknowledged(&done), [(1, 2, Outcome::Complete)]);
    assert_eq!(credit(&done), Some((6, 1200)));
    assert!(done.requests.is_empty());
    // A repeated message changes nothing.
    hand.assign([1], 2);
    let done = hand.done();
    assert!(done.acknowledged.is_empty() && done.credits.is_empty());
    assert_eq!(hand.builder.account().built, 1);
}

#[test]
fn a_new_manager_gets_the_events_in_work_and_the_last_finished_ones() {
    let mut hand = Hand::new(config(1));
    for number in 1..=10 {
        let emitted = hand.build([number]);
        hand.written(emitted[0]);
    }
    hand.assign(11..=12, 3);
    hand.done();
    hand.say(&Message::Recover);
    let (entries, _) = told(&hand.done());
    let done: Vec<_> = entries.iter().filter(|entry| entry.2.is_some()).collect();
    let in_work: Vec<_> = entries.iter().filter(|entry| entry.2.is_none()).copied().collect();
    assert_eq!(in_work, [(12, 3, None), (11, 3, None)].iter().rev().copied().collect::<Vec<_>>());
    // Twice as many as there are slots.
    assert_eq!(done.len(), 8);
    assert!(done.iter().all(|entry| (3..=10).contains(&entry.0) && entry.2 == Some(Outcome::Complete)));
}

/// Another builder unit does not finish the oldest event, so that readout units do not learn how later ones ended.
#[test]
fn a_whole_table_of_ended_events_is_remembered_for_a_successor() {
    let mut hand = Hand::new(BuilderConfig { table: 64, ..config(1) });
    for number in 2..=65 {
        let emitted = hand.build([number]);
        hand.written(emitted[0]);
    }
    hand.done();
    hand.say(&Message::Recover);
    let (mut entries, _) = told(&hand.done());
    entries.sort_unstable_by_key(|entry| entry.0);
    assert_eq!(entries, (2..=65).map(|number| (number, 1, Some(Outcome::Complete))).collect::<Vec<_>>());
}

#[test]
fn a_long_list_takes_several_messages_and_an_empty_one_takes_one() {
    let mut hand = Hand::new(BuilderConfig { slots: 150, credit_bytes: 1 << 20, ..config(1) });
    hand.done();
    hand.say(&Message::Recover);
    assert_eq!(told(&hand.done()), (vec![], 1));
    for first in [1, 51, 101] {
        hand.assign(first..first + 50, 1);
        hand.done();
    }
    hand.say(&Message::Recover);
    let (mut entries, messages) = told(&hand.done());
    entries.sort_unstable_by_key(|entry| entry.0);
    assert_eq!(entries, (1..=150).map(|number| (number, 1, None)).collect::<Vec<_>>());
    assert_eq!(messages, 3);
}

#[test]
fn at_the_end_what_is_not_emitted_is_dropped_and_what_is_may_still_be_written() {
    let mut hand = Hand::new(config(1));
    let emitted = hand.build([1]);
    hand.assign([2], 1);
    hand.done();
    hand.say(&Message::Finish);
    assert_eq!(hand.builder.account().incomplete_dropped.get(Cause::ForcedStop), 1);
    assert_eq!(hand.builder.in_work(), 1);
    hand.written(emitted[0]);
    assert_eq!(acknowledged(&hand.done()), [(1, 1, Outcome::Complete)]);
    assert_eq!(hand.builder.in_work(), 0);
    assert_eq!(hand.builder.next_deadline(), None);
}

#[test]
fn a_run_starts_with_a_clean_account_and_the_credit_of_its_connection() {
    let mut hand = Hand::new(config(1));
    hand.readout_state(0, false);
    hand.assign([1], 1);
    hand.readout_state(0, true);
    hand.assign([2], 1);
    hand.say(&Message::Start(Start::of_run(EventKey::new(0, 1))));
    assert_eq!(hand.builder.account(), Default::default());
    assert_eq!(hand.builder.in_work(), 0);
    assert_eq!(credit(&hand.done()), Some((6, 1200)));
    assert_eq!(hand.build([1]).len(), 1);
}

#[test]
fn what_is_still_being_written_does_not_count_in_the_next_run() {
    let mut hand = Hand::new(config(1));
    let old = hand.build([1, 2]);
    hand.say(&Message::Start(Start::of_run(EventKey::new(0, 1))));
    let new = hand.build([1]);
    hand.written(old[0]);
    hand.builder.failed(hand.now, old[1], Cause::WriteFailed);
    assert_eq!(acknowledged(&hand.done()), []);
    assert_eq!((hand.builder.in_work(), hand.builder.account().written), (1, 0));
    hand.written(new[0]);
    assert_eq!(acknowledged(&hand.done()), [(1, 1, Outcome::Complete)]);
    assert_eq!(hand.builder.account().built, 1);
}

#[test]
fn words_for_others_are_refused_and_counted() {
    let mut hand = Hand::new(config(1));
    hand.say(&Message::QueryHighest);
    hand.say(&Message::Highest(EventKey::MIN));
    assert_eq!(hand.builder.counts().refused_messages, 2);
    hand.builder.readout_connected(hand.now, 9);
    hand.builder.readout_lost(hand.now, 9);
    hand.readout_state(9, false);
    hand.done();
}
