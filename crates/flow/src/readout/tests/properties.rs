//! Random orders of inputs: the ledger balances after each, announcements stay in order, and every run drains.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The action of a source with its next fragment.
#[derive(Clone, Copy, Debug)]
enum Next {
    Plain,
    Skip(u64),
    Again,
    Back(u64),
    Jump,
    Reset,
    Declared,
}

#[derive(Clone, Debug)]
enum Input {
    Feed(usize, Vec<Next>),
    /// As many plain fragments as there is room for.
    Fill(usize),
    Connect(usize),
    Disconnect(usize, bool),
    Read(usize, bool),
    Wait(u64),
    ReleaseAnnounced(usize, Outcome),
    ReleaseAnything(u16, u64, u32),
    Request(u16, u64),
    LoseBuilder(u16),
    Mask(usize, bool),
    Resync(u16),
    Recover,
    Query,
    Stop(u64),
}

const SOURCES: usize = 4;

fn next() -> impl Strategy<Value = Next> {
    prop_oneof![
        20 => Just(Next::Plain),
        2 => (2..40_u64).prop_map(Next::Skip),
        1 => Just(Next::Again),
        1 => (1..9_u64).prop_map(Next::Back),
        1 => Just(Next::Jump),
        1 => Just(Next::Reset),
        1 => Just(Next::Declared),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    let source = 0..SOURCES;
    let outcome =
        prop_oneof![Just(Outcome::Complete), Just(Outcome::IncompleteEmitted), Just(Outcome::Dropped(Cause::TimedOut))];
    prop_oneof![
        20 => (source.clone(), vec(next(), 1..12)).prop_map(|(source, nexts)| Input::Feed(source, nexts)),
        20 => source.clone().prop_map(Input::Fill),
        2 => source.clone().prop_map(Input::Connect),
        2 => (source.clone(), any::<bool>()).prop_map(|(source, cut)| Input::Disconnect(source, cut)),
        3 => (source.clone(), any::<bool>()).prop_map(|(source, read)| Input::Read(source, read)),
        6 => (1..300_u64).prop_map(Input::Wait),
        8 => (1..40_usize, outcome).prop_map(|(count, outcome)| Input::ReleaseAnnounced(count, outcome)),
        1 => (0..3_u16, 0..200_u64, 0..60_u32).prop_map(|(resync, first, count)| {
            Input::ReleaseAnything(resync, first, count)
        }),
        3 => (0..3_u16, 0..200_u64).prop_map(|(builder, number)| Input::Request(builder, number)),
        1 => (0..3_u16).prop_map(Input::LoseBuilder),
        2 => (source, any::<bool>()).prop_map(|(source, is_masked)| Input::Mask(source, is_masked)),
        2 => (0..4_u16).prop_map(Input::Resync),
        1 => Just(Input::Recover),
        1 => Just(Input::Query),
        1 => (0..200_u64).prop_map(Input::Stop),
    ]
}

/// The value of each source's own counter.
type Counters = [u64; SOURCES];

fn fragment_after(counter: &mut u64, source: u32, next: Next) -> Received {
    let raw = match next {
        Next::Plain => *counter + 1,
        Next::Skip(count) => *counter + count,
        Next::Again => *counter,
        Next::Back(count) => return fragment(source, counter.saturating_sub(count)),
        Next::Jump => return fragment(source, *counter + 500_000),
        Next::Reset => 1,
        Next::Declared => {
            *counter = 1;
            return Received { restarts: true, ..fragment(source, 1) };
        }
    };
    *counter = raw;
    fragment(source, raw)
}

fn apply(rig: &mut Rig, counters: &mut Counters, input: Input) {
    match input {
        Input::Feed(source, nexts) => {
            let counter = &mut counters[source];
            let fragments = nexts.into_iter().map(|next| fragment_after(counter, source as u32, next)).collect();
            rig.feed_fragments(source, fragments);
        }
        Input::Fill(source) => {
            let first = counters[source] + 1;
            counters[source] += rig.readout.room(source) as u64;
            rig.feed(source, first..=counters[source]);
        }
        Input::Connect(source) => rig.connect(source),
        Input::Disconnect(source, cut) => rig.readout.source_disconnected(rig.now, source, cut),
        Input::Read(source, read) => rig.readout.set_being_read(rig.now, source, read),
        Input::Wait(milliseconds) => rig.wait(Duration::from_millis(milliseconds)),
        Input::ReleaseAnnounced(count, outcome) => {
            for entry in rig.held.iter().take(count).map(|entry| entry.key).collect::<Vec<_>>() {
                rig.release(entry, 1, outcome);
            }
        }
        Input::ReleaseAnything(resync, first, count) => {
            rig.release(EventKey::new(resync, first), count, Outcome::IncompleteEmitted);
        }
        Input::Request(builder, number) => rig.request(builder, &[key(number)]),
        Input::LoseBuilder(builder) => rig.readout.peer_lost(rig.now, NodeId::builder(builder)),
        Input::Mask(source, is_masked) => {
            rig.mask(source, is_masked);
            assert!(rig.turns(source).is_sorted(), "it leaves and comes back in the order of events");
        }
        Input::Resync(count) => rig.tell(Message::Resync(Resync { first: EventKey::new(count, 1) })),
        Input::Recover => recover(rig),
        Input::Query => rig.tell(Message::QueryHighest),
        Input::Stop(number) => {
            // A later end than any shown event would be waited for.
            let shown = highest(rig);
            rig.settled = EventKey::MIN;
            rig.held.clear();
            rig.tell(Message::StopAt(key(number).min(shown)));
        }
    }
    rig.poll();
}

fn settings(trigger: Option<u32>, requirements: [Requirement; SOURCES], ends: [bool; SOURCES]) -> ReadoutConfig {
    let mut settings = ReadoutConfig { trigger: trigger.map(SourceId), ..config(SOURCES as u32) };
    for (source, (requirement, ends)) in settings.sources.iter_mut().zip(requirements.into_iter().zip(ends)) {
        source.requirement = requirement;
        source.on_close = if ends { OnClose::End } else { OnClose::Wait };
    }
    settings
}

fn requirement() -> impl Strategy<Value = Requirement> {
    prop_oneof![6 => Just(Requirement::Required), 1 => Just(Requirement::Optional), 1 => Just(Requirement::Masked)]
}

/// A new event manager asks for everything.
fn recover(rig: &mut Rig) {
    (rig.held, rig.settled) = (Vec::new(), EventKey::MIN);
    rig.tell(Message::Recover);
}

/// The highest key that a source has shown.
fn highest(rig: &mut Rig) -> EventKey {
    rig.others.clear();
    rig.tell(Message::QueryHighest);
    let Some(&Message::Highest(highest)) = rig.others.first() else { panic!("no answer with the highest key") };
    highest
}

/// Stops the run at its present event and drains it, releasing everything that is announced. Every run must end.
fn drain(rig: &mut Rig) {
    let highest = highest(rig);
    (rig.held, rig.settled) = (Vec::new(), EventKey::MIN);
    rig.tell(Message::StopAt(highest));
    recover(rig);
    for source in 0..SOURCES {
        rig.readout.set_being_read(rig.now, source, true);
    }
    for _ in 0..300 {
        for entry in core::mem::take(&mut rig.held) {
            rig.release(entry.key, 1, Outcome::Complete);
        }
        if rig.readout.is_drained() {
            break;
        }
        rig.wait(SOURCE_TIMEOUT);
    }
    assert!(rig.readout.is_drained());
    rig.tell(Message::Finish);
    assert_eq!(rig.readout.total().in_flight, 0);
}

proptest! {
    #[test]
    fn in_any_order_of_steps_the_ledger_balances_and_the_run_drains(
        trigger in proptest::option::of(0..SOURCES as u32),
        requirements in proptest::array::uniform4(requirement()),
        ends: [bool; SOURCES],
        inputs in vec(input(), 1..120),
        doubts: bool,
    ) {
        let settings = settings(trigger, requirements, ends);
        let mut rig = if doubts { Rig::doubting(settings).start() } else { Rig::started(settings) };
        let mut counters = [0; SOURCES];
        for input in inputs {
            apply(&mut rig, &mut counters, input);
        }
        drain(&mut rig);
    }

    #[test]
    fn what_sources_skip_is_missing_and_nothing_else(
        present in vec(proptest::array::uniform4(proptest::bool::weighted(0.9)), 1..200),
        order in vec((0..SOURCES, 1..20_usize), 50),
    ) {
        let mut rig = Rig::started(config(SOURCES as u32));
        // A last event that all sources have proves which fragments are missing before it.
        let present: Vec<_> = present.into_iter().chain([[true; SOURCES]]).collect();
        let mut queues: Vec<Vec<u64>> = (0..SOURCES)
            .map(|source| (1..=present.len() as u64).rev().filter(|&n| present[n as usize - 1][source]).collect())
            .collect();
        let mut found: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        let mut turns = order.into_iter().cycle();
        while queues.iter().any(|queue| !queue.is_empty()) || !rig.held.is_empty() {
            let Some((source, count)) = turns.next() else { break };
            let room = rig.readout.room(source).min(count);
            let queue = &mut queues[source];
            let ids: Vec<_> = (0..room).map_while(|_| queue.pop()).collect();
            rig.feed(source, ids);
            for entry in core::mem::take(&mut rig.held) {
                let missing = rig.missing(entry.key).into_iter().map(|(source, cause)| {
                    assert_eq!(cause, Cause::Skipped);
                    source
                });
                found.insert(entry.key.number(), missing.collect());
                rig.release(entry.key, 1, Outcome::Complete);
            }
        }
        for (index, present) in present.iter().enumerate() {
            let missing: BTreeSet<u32> = (0..SOURCES).filter(|&source| !present[source]).map(|s| s as u32).collect();
            let expected = (missing.len() < SOURCES).then_some(&missing);
            prop_assert_eq!(found.get(&(index as u64 + 1)), expected);
        }
        prop_assert_eq!(rig.readout.total().lost(), 0);
    }
}
