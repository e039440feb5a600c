//! What a source did with each event, for the referee: nobody else is asked what may be missing.

use ropewalk_terms::Instant;
use ropewalk_wire::felix::Status;
use std::collections::BTreeSet;

/// What a source did with an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in super::super) enum How {
    /// Sent it as it should be.
    Right,
    /// Sent it with a wrong bit.
    Damaged,
    /// Sent it with another number.
    Misnumbered,
    /// Sent something that ends the connection.
    Ruinous,
    /// Began to send it, and never ended.
    CutShort,
    /// Left it out.
    Skipped,
    /// Sent it as a chunk with these flags, cut to so many bytes.
    Flagged(Status, u32),
    /// Sent it as a chunk of which a block was lost or damaged, or that is larger than any may be.
    Spoilt,
}

impl How {
    /// Whether the event's fragment can be in a file.
    pub(in super::super) const fn is_whole(self) -> bool {
        matches!(self, Self::Right | Self::Damaged | Self::Flagged(..))
    }
}

/// What became of one event at its source.
#[derive(Copy, Clone, Debug)]
pub(in super::super) struct Made {
    /// When it was sent.
    pub(in super::super) at: Instant,
    /// Over which connection, or in which ring of a card.
    pub(in super::super) connection: u64,
    /// The connection's or the ring's bytes until its end.
    pub(in super::super) end: u64,
    /// What the source did.
    pub(in super::super) how: How,
}

/// What a source did.
#[derive(Clone, Debug)]
pub(in super::super) struct Record {
    /// By event, from 1.
    made: Vec<Option<Made>>,
    /// Connections whose framing the source ruined, and their bytes before that.
    ruined: Vec<(u64, u64)>,
    /// Events whose chunk is whole, and that a reader may miss for reasons of the format.
    doubtful: BTreeSet<u64>,
    /// Numbers that it gave to events that have others.
    lies: Vec<(u64, u64)>,
    /// From when to when its counter was not the run's: until its first fragment over a new connection.
    pub(in super::super) strayed: Vec<(Instant, u64)>,
}

impl Record {
    /// Of a source that has done nothing yet, and has so many events to send.
    pub(in super::super) fn new(events: u64) -> Self {
        let (made, doubtful) = (vec![None; events as usize + 1], BTreeSet::new());
        Self { made, ruined: Vec::new(), doubtful, lies: Vec::new(), strayed: Vec::new() }
    }

    /// What it did with an event; none where it had no occasion.
    pub(in super::super) fn made(&self, event: u64) -> Option<&Made> {
        self.made.get(event as usize)?.as_ref()
    }

    /// Takes note of what it did with an event.
    pub(super) fn note(&mut self, event: u64, made: Made) {
        if let Some(place) = self.made.get_mut(event as usize) {
            *place = Some(made);
        }
    }

    /// Whether a reader may miss the event's fragment although it is there: a time-out in one piece behind a loss looks like
    /// the end of what was lost, and a chunk that is open for a whole ring is given up.
    pub(in super::super) fn is_doubtful(&self, event: u64) -> bool {
        self.doubtful.contains(&event)
    }

    /// A reader may miss it.
    pub(super) fn doubt(&mut self, event: u64) {
        self.doubtful.insert(event);
    }

    /// The event that it sent under the number of another one. A readout unit that has just begun cannot know better.
    pub(in super::super) fn lied_as(&self, number: u64) -> Option<u64> {
        self.lies.iter().find(|&&(said, _)| said == number).map(|&(_, event)| event)
    }

    /// The number that it gave to an event that has another one.
    pub(in super::super) fn said_of(&self, event: u64) -> Option<u64> {
        self.lies.iter().find(|&&(_, of)| of == event).map(|&(said, _)| said)
    }

    /// The first event that it gave the number of another one, because it had begun to count again.
    pub(in super::super) fn counts_again_from(&self) -> Option<u64> {
        self.lies.iter().map(|&(_, event)| event).min()
    }

    /// It gave an event the number of another one.
    pub(super) fn lie(&mut self, number: u64, event: u64) {
        self.lies.push((number, event));
    }

    /// Whether what a connection brought up to its byte `end` lies behind something that ruined its framing.
    pub(in super::super) fn is_ruined(&self, connection: u64, end: u64) -> bool {
        self.ruined.iter().any(|&(ruined, bytes)| ruined == connection && end > bytes)
    }

    /// It ruined a connection's framing behind so many bytes.
    pub(super) fn ruin(&mut self, connection: u64, bytes: u64) {
        self.ruined.push((connection, bytes));
    }
}
