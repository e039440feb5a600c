//! A manager held in the hand: what goes in is said in one line, what comes out is a list.

use crate::manager::{AssignPolicy, Manager, ManagerAction, ManagerConfig};
use crate::messages::{
    Acknowledge, AcknowledgeEntry, Announce, AnnounceEntry, AssignEntry, Batch, Credit, Lacking, LackingEntry,
    LumisectionEnd, Message, ReleaseEntry,
};
use core::time::Duration;
use ropewalk_terms::{AcknowledgementLevel, Attempt, EventKey, Incarnation, Instant, NodeId, Outcome};

pub(super) const EVENT_TIMEOUT: Duration = Duration::from_secs(3);
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn key(number: u64) -> EventKey {
    EventKey::new(0, number)
}

pub(super) fn config(readouts: u16, builders: u16) -> ManagerConfig {
    ManagerConfig {
        capacity: 64,
        policy: AssignPolicy::RoundRobin,
        batch: 4,
        event_timeout: EVENT_TIMEOUT,
        drain_timeout: DRAIN_TIMEOUT,
        ..ManagerConfig::new(readouts, builders)
    }
}

pub(super) struct Hand {
    pub(super) manager: Manager,
    pub(super) now: Instant,
    pub(super) ended: u32,
    pub(super) lumisections: Vec<LumisectionEnd>,
}

impl Hand {
    /// Nothing is connected.
    pub(super) fn new(config: ManagerConfig) -> Self {
        assert_eq!(config.check(), Ok(()));
        Self {
            manager: Manager::new(config),
            now: Instant::from_nanoseconds(1_000_000_000),
            ended: 0,
            lumisections: Vec::new(),
        }
    }

    /// Everybody is connected in life 1, builders have credit for 1,000 events, and the run has started at key 1.
    pub(super) fn running(config: ManagerConfig) -> Self {
        let (readouts, builders) = (config.readouts, config.builders);
        let mut hand = Self::new(config);
        for index in 0..readouts {
            hand.connect(NodeId::readout(index), 1);
        }
        for index in 0..builders {
            hand.connect(NodeId::builder(index), 1);
            hand.credit(index, 1000, 1 << 30);
        }
        hand.manager.start(hand.now, key(1), None);
        hand.sent();
        hand
    }

    pub(super) fn connect(&mut self, node: NodeId, life: u64) {
        self.manager.node_connected(self.now, node, Incarnation(life));
    }

    pub(super) fn lose(&mut self, node: NodeId) {
        self.manager.node_lost(self.now, node);
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    pub(super) fn say(&mut self, from: NodeId, message: &Message) {
        self.manager.message(self.now, from, message);
    }

    pub(super) fn announce_entries(&mut self, readout: u16, settled: EventKey, entries: &[AnnounceEntry]) {
        let entries = entries.iter().copied().collect();
        self.say(NodeId::readout(readout), &Message::Announce(Announce { settled, entries }));
    }

    /// Announces these numbers of resync count 0 with 100 bytes each, triggered.
    pub(super) fn announce(&mut self, readout: u16, settled: u64, numbers: impl IntoIterator<Item = u64>) {
        let entries: Vec<_> = numbers.into_iter().map(|number| announced(key(number), true)).collect();
        self.announce_entries(readout, key(settled), &entries);
    }

    pub(super) fn credit(&mut self, builder: u16, events: u64, bytes: u64) {
        self.say(NodeId::builder(builder), &Message::Credit(Credit { events, bytes }));
    }

    pub(super) fn acknowledge(&mut self, builder: u16, number: u64, attempt: u16, outcome: Outcome) {
        let entry = AcknowledgeEntry { key: key(number), attempt: Attempt(attempt), ending: outcome.into() };
        let entries = [entry].into_iter().collect();
        let level = AcknowledgementLevel::Written;
        self.say(NodeId::builder(builder), &Message::Acknowledge(Acknowledge { level, entries }));
    }

    /// Events that a builder unit built without these readout units.
    pub(super) fn lack(&mut self, builder: u16, lacking: &[(u64, u16, u16)]) {
        let entry = |&(number, attempt, readout)| LackingEntry { key: key(number), attempt: Attempt(attempt), readout };
        let entries = lacking.iter().map(entry).collect();
        self.say(NodeId::builder(builder), &Message::Lacking(Lacking { entries }));
    }

    /// What is sent, but what lumisections there are.
    pub(super) fn sent(&mut self) -> Vec<(NodeId, Message)> {
        let mut sent = self.all_sent();
        sent.retain(|(_, message)| !matches!(message, Message::Lumisection(_) | Message::LumisectionEnd(_)));
        sent
    }

    pub(super) fn all_sent(&mut self) -> Vec<(NodeId, Message)> {
        let mut sent = Vec::new();
        while let Some(action) = self.manager.poll(self.now) {
            match action {
                ManagerAction::Send { to, message } => sent.push((to, message)),
                ManagerAction::LumisectionEnded(end) => self.lumisections.push(end),
                ManagerAction::RunEnded => self.ended += 1,
            }
            assert!(sent.len() < 10_000, "the manager does not come to rest");
        }
        self.assert_balanced();
        sent
    }

    pub(super) fn assert_balanced(&self) {
        let account = self.manager.account();
        assert_eq!(account.assigned, account.accounted(), "{account:?}");
        assert_eq!(account.accepted, account.built + account.incomplete_emitted);
    }

    /// What was assigned: builder, event number, attempt.
    pub(super) fn assigned(&mut self) -> Vec<(u16, u64, u16)> {
        assigned(&self.sent())
    }
}

pub(super) fn announced(key: EventKey, triggered: bool) -> AnnounceEntry {
    AnnounceEntry { key, bytes: 100, fragments: 1, triggered }
}

pub(super) fn assigned(sent: &[(NodeId, Message)]) -> Vec<(u16, u64, u16)> {
    let assigns = sent.iter().filter_map(|(to, message)| match message {
        Message::Assign(assign) => Some((to.index, assign.entries.clone())),
        _ => None,
    });
    let flat = assigns.flat_map(|(builder, entries): (u16, Batch<AssignEntry>)| {
        entries.into_iter().map(move |entry| (builder, entry.key.number(), entry.attempt.0))
    });
    flat.collect()
}

/// What a readout unit was told to forget.
pub(super) fn released(sent: &[(NodeId, Message)], readout: u16) -> Vec<(EventKey, u32, Outcome)> {
    let releases = sent.iter().filter_map(|(to, message)| match message {
        Message::Release(release) if *to == NodeId::readout(readout) => Some(release.entries.clone()),
        _ => None,
    });
    releases.flatten().map(|ReleaseEntry { first, count, outcome }| (first, count, outcome)).collect()
}

/// The messages to one node.
pub(super) fn to(sent: &[(NodeId, Message)], node: NodeId) -> Vec<Message> {
    sent.iter().filter(|(to, _)| *to == node).map(|(_, message)| message.clone()).collect()
}
