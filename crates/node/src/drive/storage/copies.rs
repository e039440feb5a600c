//! Events that go to several streams: each is told of once, when its last copy has come so far.

use super::Progress;
use ropewalk_terms::flaws::{Flaw, is_planted};

/// Whom to tell how far a record has come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Ticket {
    /// The only record of this slot's event.
    Only(u32),
    /// One of several: the place of the event among those.
    Shared(u32),
}

#[derive(Copy, Clone, Debug)]
struct Shared {
    slot: u32,
    /// Copies of which nothing was said yet.
    left: u8,
    /// The least that was said of the others.
    least: Option<Progress>,
}

/// The events with several copies under way.
#[derive(Debug)]
pub(super) struct Copies {
    shared: Vec<Shared>,
    free: Vec<u32>,
}

/// Events with several copies that may be under way: more than fit into the batches of two segments.
const EVENTS: u32 = 1 << 14;

impl Copies {
    pub(super) fn new(streams: usize) -> Self {
        let events = if streams > 1 { EVENTS } else { 0 };
        let nothing = Shared { slot: 0, left: 0, least: None };
        Self { shared: vec![nothing; events as usize], free: (0..events).rev().collect() }
    }

    /// A ticket for each of `copies` copies of an event, at least one; none where too many are under way.
    pub(super) fn enter(&mut self, slot: u32, copies: u8) -> Option<Ticket> {
        if copies <= 1 {
            return Some(Ticket::Only(slot));
        }
        let place = self.free.pop()?;
        self.shared[place as usize] = Shared { slot, left: copies, least: None };
        Some(Ticket::Shared(place))
    }

    /// A copy has come so far. Appends what is thereby known of its event, if anything is.
    pub(super) fn tell(&mut self, ticket: Ticket, reached: Progress, progress: &mut Vec<(u32, Progress)>) {
        let place = match ticket {
            Ticket::Only(slot) => return progress.push((slot, reached)),
            Ticket::Shared(place) => place,
        };
        let event = &mut self.shared[place as usize];
        let is_first = event.least.is_none();
        let least = event.least.map_or(reached, |least| least.min(reached));
        (event.least, event.left) = (Some(least), event.left - 1);
        let is_known = if is_planted(Flaw::FirstCopyAcknowledged) { is_first } else { event.left == 0 };
        if is_known {
            progress.push((event.slot, least));
        }
        if event.left == 0 {
            self.free.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_terms::AcknowledgementLevel::{Synced, Written};

    #[test]
    fn an_event_is_told_of_once_with_the_least_of_its_copies() {
        let (mut copies, mut progress) = (Copies::new(3), Vec::new());
        let ticket = copies.enter(7, 3).expect("there is room");
        for reached in [Progress::Reached(Synced), Progress::Reached(Written)] {
            copies.tell(ticket, reached, &mut progress);
            assert!(progress.is_empty(), "a copy is missing");
        }
        copies.tell(ticket, Progress::Reached(Synced), &mut progress);
        assert_eq!(progress, [(7, Progress::Reached(Written))]);
    }

    #[test]
    fn an_event_with_a_failed_copy_has_failed() {
        let (mut copies, mut progress) = (Copies::new(2), Vec::new());
        let ticket = copies.enter(1, 2).expect("there is room");
        copies.tell(ticket, Progress::Failed, &mut progress);
        copies.tell(ticket, Progress::Reached(Written), &mut progress);
        assert_eq!(progress, [(1, Progress::Failed)]);
    }

    #[test]
    fn room_is_bounded_and_comes_back() {
        let (mut copies, mut progress) = (Copies::new(2), Vec::new());
        let tickets: Vec<_> = std::iter::from_fn(|| copies.enter(0, 2)).collect();
        assert_eq!(tickets.len(), EVENTS as usize);
        assert!(copies.enter(0, 1).is_some(), "an event with one copy needs no room");
        for _ in 0..2 {
            copies.tell(tickets[0], Progress::Reached(Written), &mut progress);
        }
        assert_eq!(copies.enter(0, 2), Some(tickets[0]));
    }
}
