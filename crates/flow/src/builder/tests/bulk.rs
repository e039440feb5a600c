//! Many events through the builder in full batches.

use super::hand::{config, fragment};
use crate::builder::{Builder, BuilderAction, BuilderConfig};
use crate::messages::{Assign, AssignEntry, BATCH, Message, SuperFragmentEntry};
use ropewalk_terms::{AcknowledgementLevel, Attempt, EventKey, Instant};

/// Builds events of `2 * readouts` fragments; returns how many were complete and acknowledged.
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
                BuilderAction::Emit { slot } => builder.reached(now, slot, AcknowledgementLevel::Written),
                BuilderAction::ToManager(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(builder.in_work(), 0);
    builder.account().built
}

#[test]
fn every_event_is_built() {
    assert_eq!(drive(8, 64 * 100), 64 * 100);
}
