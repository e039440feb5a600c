//! An event manager among strangers.

use super::MOST_ACTIONS;
use super::choices::Choices;
use ropewalk_flow::manager::{AssignPolicy, Manager, ManagerAction, ManagerConfig};
use ropewalk_flow::messages::Message;
use ropewalk_terms::{Attempt, Epoch, EventKey, Incarnation, Instant, Role};
use std::collections::BTreeMap;
use std::time::Duration;

const READOUTS: u16 = 3;
const BUILDERS: u16 = 3;

/// Feeds an event manager.
///
/// # Panics
/// Where the machine does, where its account does not balance, or where an attempt is used twice in a run.
pub fn manager(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let config = ManagerConfig {
        capacity: 32,
        policy: [AssignPolicy::RoundRobin, AssignPolicy::LeastLoaded, AssignPolicy::FreeBytes]
            [choices.below(3) as usize],
        batch: 1 + choices.below(8) as usize,
        event_timeout: Duration::from_millis(50),
        drain_timeout: Duration::from_millis(500),
        trigger_readout: choices.chance().then_some(0),
        epoch: Epoch(1 + choices.below(3) as u32),
        ..ManagerConfig::new(READOUTS, BUILDERS)
    };
    config.check().expect("made to be right");
    let mut manager = Manager::new(config);
    let mut attempts = BTreeMap::new();
    while !choices.is_over() {
        let now = choices.now();
        if step(&mut manager, &mut choices, now) {
            attempts.clear();
        }
        settle(&mut manager, now, &mut attempts);
        check(&manager);
    }
}

/// One thing happens; true where a run may have begun.
fn step(manager: &mut Manager, choices: &mut Choices<'_>, now: Instant) -> bool {
    let node = choices.node();
    match choices.below(16) {
        0 | 1 => manager.node_connected(now, node, Incarnation(choices.below(3))),
        2 => manager.node_lost(now, node),
        3 => {
            let last = choices.chance().then(|| choices.key());
            manager.start(now, choices.key(), last);
            return true;
        }
        4 if choices.below(4) == 0 => {
            manager.recover(now, choices.key(), None);
            return true;
        }
        5 => match choices.below(4) {
            0 => manager.stop(now),
            1 => manager.stop_at(now, choices.key()),
            2 => manager.force_stop(now),
            _ => manager.mask(choices.source(4), choices.chance()),
        },
        _ => manager.message(now, node, &choices.message(4)),
    }
    false
}

fn settle(manager: &mut Manager, now: Instant, attempts: &mut BTreeMap<EventKey, Attempt>) {
    for _ in 0..MOST_ACTIONS {
        match manager.poll(now) {
            None => return,
            Some(ManagerAction::Send { to, message }) => {
                let configured = if to.role == Role::Readout { READOUTS } else { BUILDERS };
                assert!(to.role != Role::Manager && to.index < configured, "a message for {to}");
                if let Message::Assign(assign) = message {
                    for entry in assign.entries {
                        let before = attempts.insert(entry.key, entry.attempt);
                        assert!(before < Some(entry.attempt), "{:?} again in attempt {:?}", entry.key, entry.attempt);
                    }
                }
            }
            Some(ManagerAction::LumisectionEnded(_) | ManagerAction::RunEnded) => {}
        }
    }
    panic!("the event manager does not come to rest");
}

fn check(manager: &Manager) {
    let account = manager.account();
    assert_eq!(account.assigned, account.accounted(), "{account:?}");
    assert!(account.in_flight <= 32, "{account:?}");
    let _ = (manager.next_deadline(), manager.state(), manager.highest());
}
