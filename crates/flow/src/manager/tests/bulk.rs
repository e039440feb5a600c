//! Many events through the manager in full batches.

use super::hand::{Hand, config};
use crate::manager::{ManagerAction, ManagerConfig};
use crate::messages::{Acknowledge, AcknowledgeEntry, Announce, AnnounceEntry, BATCH, Batch, Credit, Message};
use ropewalk_terms::{AcknowledgementLevel, EventKey, NodeId, Outcome};

/// Events that go once through everything: announced by `readouts`, assigned, acknowledged, released.
fn drive(readouts: u16, builders: u16, events: u64) -> u64 {
    let mut hand = Hand::running(ManagerConfig { capacity: 1 << 14, batch: BATCH, ..config(readouts, builders) });
    let mut next = EventKey::new(0, 1);
    let mut released = 0;
    for index in 0..builders {
        hand.credit(index, u64::MAX, u64::MAX);
    }
    while next.number() <= events {
        let entries: Batch<AnnounceEntry> = (0..BATCH as u64)
            .map(|offset| AnnounceEntry { key: next.plus(offset), bytes: 2048, fragments: 4, triggered: true })
            .collect();
        let settled = next.plus(BATCH as u64 - 1);
        next = settled.next();
        let announce = Message::Announce(Announce { settled, entries });
        for readout in 0..readouts {
            hand.say(NodeId::readout(readout), &announce);
        }
        while let Some(action) = hand.manager.poll(hand.now) {
            match action {
                ManagerAction::Send { to, message: Message::Assign(assign) } => {
                    let done = assign.entries.iter().map(|entry| AcknowledgeEntry {
                        key: entry.key,
                        attempt: entry.attempt,
                        ending: Outcome::Complete.into(),
                    });
                    let level = AcknowledgementLevel::Written;
                    hand.say(to, &Message::Acknowledge(Acknowledge { level, entries: done.collect() }));
                    hand.say(to, &Message::Credit(Credit { events: u64::MAX, bytes: u64::MAX }));
                }
                ManagerAction::Send { message: Message::Release(release), .. } => {
                    released += release.entries.iter().map(|entry| u64::from(entry.count)).sum::<u64>();
                }
                other => panic!("{other:?}"),
            }
        }
    }
    released
}

#[test]
fn every_event_comes_out_at_every_readout_unit() {
    assert_eq!(drive(4, 2, 64 * 300), 4 * 64 * 300);
}
