//! What stands for event manager and builder units: it starts the readout unit, looks at every event that this settles, and lets
//! go of it.

use super::super::broken::{Broken, Checker};
use super::board::data;
use super::scenario::Scenario;
use ropewalk_flow::messages::{Announce, Batch, Message, Release, ReleaseEntry, Start};
use ropewalk_flow::readout::Readout;
use ropewalk_io::simulated::Simulated;
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_node::drive::{Incoming, MessageReader, Outbox};
use ropewalk_terms::{EventKey, Instant, Outcome};

/// See the module's text.
pub(super) struct Overseer {
    network: Simulated,
    outbox: Outbox,
    endpoint: Option<Endpoint>,
    reader: MessageReader,
    unsent: Vec<Message>,
    /// Up to this event all are settled.
    pub(super) settled: u64,
    last: u64,
}

impl Overseer {
    /// One that listens at this address, for a run up to event `last`.
    pub(super) fn new(mut network: Simulated, outbox: Outbox, address: &str, last: u64) -> Self {
        network.listen(address).expect("the address is free");
        let (reader, unsent) = (MessageReader::default(), Vec::new());
        Self { network, outbox, endpoint: None, reader, unsent, settled: 0, last }
    }

    /// Hears and answers; `readout` is the machine that speaks.
    pub(super) fn turn(&mut self, now: Instant, scenario: &Scenario, readout: &Readout) -> Result<(), Broken> {
        let mut events = Vec::new();
        self.network.poll(now, &mut events);
        for event in events {
            match event {
                Event::ConnectionRequest { endpoint, .. } => {
                    self.network.accept(endpoint);
                    self.endpoint = Some(endpoint);
                }
                Event::Received { slice, .. } => self.reader.push(slice),
                _ => {}
            }
        }
        while let Ok(Some(Incoming::Control(_, message))) = self.reader.next_incoming() {
            match message {
                Message::Hello(_) => {
                    let start = Message::Start(Start::of_run(EventKey::new(0, 1)));
                    self.unsent.extend([Message::Welcome, start, Message::StopAt(EventKey::new(0, self.last))]);
                }
                Message::Announce(announce) => self.take(&announce, scenario, readout)?,
                _ => {}
            }
        }
        let Some(endpoint) = self.endpoint else { return Ok(()) };
        while let Some(message) = self.unsent.first() {
            if self.outbox.send(&mut self.network, endpoint, message).is_err() {
                break;
            }
            self.unsent.remove(0);
        }
        Ok(())
    }

    fn take(&mut self, announce: &Announce, scenario: &Scenario, readout: &Readout) -> Result<(), Broken> {
        let mut entries = Batch::new();
        for entry in &announce.entries {
            let is_complete = look(entry.key, scenario, readout)?;
            let outcome = if is_complete { Outcome::Complete } else { Outcome::IncompleteEmitted };
            entries.push(ReleaseEntry { first: entry.key, count: 1, outcome });
        }
        Broken::unless(announce.settled.number() >= self.settled, Checker::Order, || {
            format!("settled up to {} after {}", announce.settled.number(), self.settled)
        })?;
        self.settled = announce.settled.number();
        self.unsent.push(Message::Release(Release { entries }));
        Ok(())
    }
}

/// Compares what a settled event holds with what boards sent of it; says whether it is complete.
fn look(key: EventKey, scenario: &Scenario, readout: &Readout) -> Result<bool, Broken> {
    let event = key.number();
    let mut fragments = Vec::new();
    let held = readout.super_fragment(key);
    Broken::unless(held.is_some(), Checker::Content, || format!("event {event} is announced and not held"))?;
    held.iter().for_each(|held| held.append_to(&mut fragments));
    let mut is_complete = true;
    for (board, setting) in scenario.boards.iter().enumerate() {
        let mine = fragments.iter().find(|one| one.meta.source.0 == board as u32 + 1);
        let there = mine.filter(|one| one.meta.missing_cause().is_none());
        is_complete &= there.is_some();
        let was_sent = event <= setting.events();
        if let Some(fragment) = there {
            let expected = was_sent && fragment.payload.to_vec() == data(board, event);
            Broken::unless(expected, Checker::Content, || format!("event {event}: not what board {board} sent"))?;
        }
        if !setting.is_exact() || !was_sent {
            continue;
        }
        Broken::unless(there.is_none() == setting.loses(event), Checker::Loss, || {
            format!("event {event}: board {board} is {:?}", mine.map(|one| one.meta.missing_cause()))
        })?;
    }
    Ok(is_complete)
}
