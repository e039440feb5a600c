//! A readout unit among strangers.

use super::MOST_ACTIONS;
use super::choices::Choices;
use ropewalk_flow::messages::{Mask, Message, Received};
use ropewalk_flow::readout::{Format, FramingError, OnClose, Readout, ReadoutAction, ReadoutConfig, SourceConfig};
use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, Instant, NodeId, SourceId};
use std::time::Duration;

const SOURCES: u32 = 3;

fn config(choices: &mut Choices<'_>) -> ReadoutConfig {
    let sources = (1..=SOURCES).map(|id| SourceConfig {
        counter_bits: if choices.chance() { 8 } else { 24 },
        on_close: if choices.chance() { OnClose::End } else { OnClose::Wait },
        ..SourceConfig::new(SourceId(id), Format::Ferol)
    });
    let mut config = ReadoutConfig::new(0, sources.collect());
    config.builders = 2;
    (config.window, config.capacity) = (16, 32);
    config.plausibility = 64;
    (config.source_timeout, config.resync_timeout) = (Duration::from_millis(20), Duration::from_millis(50));
    match choices.below(3) {
        0 => config.trigger = Some(SourceId(1)),
        1 => config.trigger_elsewhere = true,
        _ => {}
    }
    config
}

/// Feeds a readout unit.
///
/// # Panics
/// Where the machine does, or where its account does not balance.
pub fn readout(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let config = config(&mut choices);
    config.check().expect("made to be right");
    let mut readout = Readout::new(config);
    let mut fragments = Vec::new();
    while !choices.is_over() {
        let now = choices.now();
        step(&mut readout, &mut choices, now, &mut fragments);
        settle(&mut readout, now);
        check(&readout, now);
    }
}

fn step(readout: &mut Readout, choices: &mut Choices<'_>, now: Instant, fragments: &mut Vec<Received>) {
    let source = choices.below(u64::from(SOURCES)) as usize;
    match choices.below(12) {
        0..=4 => {
            let count = readout.room(source).min(choices.below(6) as usize);
            fragments.extend((0..count).map(|_| Received {
                meta: choices.meta(SOURCES),
                restarts: choices.below(32) == 0,
                payload: Payload::default(),
            }));
            readout.receive(now, source, fragments);
            fragments.clear();
        }
        5 => readout.source_connected(now, source),
        6 => readout.source_disconnected(now, source, choices.chance()),
        7 => readout.set_being_read(now, source, choices.chance()),
        8 => match choices.below(3) {
            0 => {
                let mask = Mask { source: choices.source(SOURCES), is_masked: choices.chance() };
                readout.message(now, NodeId::MANAGER, &Message::Mask(mask));
            }
            1 => readout.framing_lost(source, FramingError { cause: Cause::FramingLost, bytes_discarded: 1 }),
            _ => readout.peer_lost(now, choices.node()),
        },
        9 => readout.message(now, NodeId::builder(choices.below(3) as u16), &Message::Request(choices.request())),
        10 => readout.message(now, NodeId::MANAGER, &Message::Release(choices.release())),
        _ => {
            let from = choices.node();
            readout.message(now, from, &choices.message(SOURCES));
        }
    }
}

/// Takes every action, and what is answered with.
fn settle(readout: &mut Readout, now: Instant) {
    for _ in 0..MOST_ACTIONS {
        match readout.poll(now) {
            None => return,
            Some(ReadoutAction::Answer { builder, entry }) => {
                assert!(builder < 2, "an answer for builder unit {builder}, which is not configured");
                let held = readout.super_fragment(entry.key).filter(|_| entry.not_held.is_none());
                let mut fragments = Vec::new();
                held.inspect(|held| held.append_to(&mut fragments));
                let sums = fragments
                    .iter()
                    .fold((0, 0_u32), |(count, bytes), one| (count + 1, bytes.wrapping_add(one.meta.length)));
                if entry.not_held.is_none() {
                    assert_eq!(sums, (entry.fragments, entry.bytes), "what is promised is there: {entry:?}");
                }
            }
            Some(ReadoutAction::ToManager(_)) => {}
        }
    }
    panic!("the readout unit does not come to rest");
}

fn check(readout: &Readout, now: Instant) {
    for source in 0..SOURCES as usize {
        let account = readout.account(source);
        assert_eq!(account.received, account.accounted(), "source {source}: {account:?}");
    }
    assert!(readout.held() <= 32, "{} events are held", readout.held());
    let _ = (readout.next_deadline(), readout.held_bytes(), readout.report(now).count());
}
