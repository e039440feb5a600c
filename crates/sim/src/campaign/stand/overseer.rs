//! What stands for event manager and builder units: it starts the readout unit, looks at every event that this settles, lets go of
//! it, and ends the run.

use super::super::broken::{Broken, Checker};
use ropewalk_flow::messages::{Announce, Batch, Message, Release, ReleaseEntry, Start};
use ropewalk_flow::readout::Readout;
use ropewalk_io::simulated::Simulated;
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_node::drive::{Incoming, MessageReader, Outbox};
use ropewalk_terms::{EventKey, Instant, Outcome};

/// See the module's text.
pub(in super::super) struct Overseer {
    network: Simulated,
    outbox: Outbox,
    endpoint: Option<Endpoint>,
    reader: MessageReader,
    unsent: Vec<Message>,
    has_begun: bool,
    /// Up to this event all are settled.
    pub(in super::super) settled: u64,
    last: Option<u64>,
    is_over: bool,
}

impl Overseer {
    /// One that listens at this address, for a run up to event `last`, where that is known.
    pub(super) fn new(mut network: Simulated, outbox: Outbox, address: &str, last: Option<u64>) -> Self {
        network.listen(address).expect("the address is free");
        let (reader, unsent) = (MessageReader::default(), Vec::new());
        Self { network, outbox, endpoint: None, reader, unsent, has_begun: false, settled: 0, last, is_over: false }
    }

    /// Whether the run has begun.
    pub(in super::super) const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The run ends with the last event that a source has shown.
    pub(in super::super) fn stop(&mut self) {
        self.unsent.push(Message::QueryHighest);
    }

    /// The run is over: what is still held is dropped.
    pub(in super::super) fn finish(&mut self) {
        self.unsent.push(Message::Finish);
        self.is_over = true;
    }

    /// Hears and answers; `readout` is the machine that speaks, and `look` says of a settled event whether it is complete.
    pub(in super::super) fn turn(
        &mut self,
        now: Instant,
        readout: &Readout,
        mut look: impl FnMut(EventKey, &Readout) -> Result<bool, Broken>,
    ) -> Result<(), Broken> {
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
                    self.has_begun = true;
                    self.unsent.extend([Message::Welcome, start]);
                    self.unsent.extend(self.last.map(|last| Message::StopAt(EventKey::new(0, last))));
                }
                Message::Announce(announce) if !self.is_over => self.take(&announce, readout, &mut look)?,
                Message::Highest(last) => {
                    self.last = Some(last.number());
                    self.unsent.push(Message::StopAt(last));
                }
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

    fn take(
        &mut self,
        announce: &Announce,
        readout: &Readout,
        look: &mut impl FnMut(EventKey, &Readout) -> Result<bool, Broken>,
    ) -> Result<(), Broken> {
        let mut entries = Batch::new();
        // What was announced before the end was known there, and lies behind it, is not there any more.
        let is_wanted = |key: EventKey| self.last.is_none_or(|last| key.number() <= last);
        for entry in announce.entries.iter().filter(|entry| is_wanted(entry.key)) {
            let outcome = if look(entry.key, readout)? { Outcome::Complete } else { Outcome::IncompleteEmitted };
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
