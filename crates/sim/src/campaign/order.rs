//! The order of announcements, seen on the network: a readout unit announces what it holds in the order of keys, each
//! event once, and nothing at or below what it called settled. It begins again only when an event manager asks for that.

use ropewalk_terms::EventKey;
use ropewalk_wire::message::{Announce, AnnounceEntry, HEADER_BYTES, Header, Kind, Message};
use std::collections::BTreeMap;

/// What was seen of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    /// By connection: how often the readout unit was asked to begin again, and has not yet.
    asked: BTreeMap<u64, u32>,
    /// By a readout unit's place on the network, which each of its lives has for itself: what it called settled last.
    settled: BTreeMap<u32, EventKey>,
}

/// A message that matters here, from its bytes.
pub(super) fn decoded(bytes: &[u8]) -> Option<Message> {
    let header = Header::decode(bytes.first_chunk::<HEADER_BYTES>()?).ok()?;
    let matters = matches!(header.kind, Kind::Announce | Kind::Recover);
    Message::decode(header.kind, &bytes[HEADER_BYTES..]).ok().filter(|_| matters)
}

impl Order {
    /// A message was sent from a place on the network; what is wrong with it, if anything is.
    pub(super) fn sent(&mut self, host: u32, connection: u64, message: &Message) -> Option<String> {
        match message {
            Message::Recover => *self.asked.entry(connection).or_default() += 1,
            Message::Announce(announce) => return self.announced(host, connection, announce),
            _ => {}
        }
        None
    }

    fn announced(&mut self, host: u32, connection: u64, announce: &Announce) -> Option<String> {
        let Announce { settled, entries } = announce;
        let keys = || entries.iter().map(|entry: &AnnounceEntry| entry.key);
        if !keys().is_sorted_by(|one, other| one < other) {
            return Some(format!("it announces {:?}", keys().collect::<Vec<_>>()));
        }
        if let Some(last) = keys().next_back().filter(|last| last > settled) {
            return Some(format!("it announces {last}, and calls {settled} settled"));
        }
        let before = self.settled.insert(host, *settled)?;
        let goes_on = *settled >= before && keys().next().is_none_or(|first| first > before);
        let mut was_asked = || {
            let asked = self.asked.get_mut(&connection).filter(|asked| **asked > 0);
            asked.map(|asked| *asked -= 1).is_some()
        };
        (!goes_on && !was_asked())
            .then(|| format!("it announces {:?} and {settled} as settled after {before}", keys().collect::<Vec<_>>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announce(settled: u64, numbers: &[u64]) -> Message {
        let key = |number| EventKey::new(0, number);
        let entry = |&number: &u64| AnnounceEntry { key: key(number), bytes: 1, fragments: 1, triggered: false };
        Message::Announce(Announce { settled: key(settled), entries: numbers.iter().map(entry).collect() })
    }

    #[test]
    fn announcements_go_on_and_begin_again_when_that_is_asked_for() {
        let mut order = Order::default();
        for message in [announce(3, &[1, 3]), announce(5, &[]), announce(7, &[6, 7]), Message::Recover] {
            assert_eq!(order.sent(1, 10, &message), None, "{message:?}");
        }
        assert_eq!(order.sent(1, 10, &announce(8, &[8])), None, "it was said before the question came");
        assert_eq!(order.sent(1, 10, &announce(4, &[3, 4])), None);
        assert_eq!(order.sent(1, 10, &announce(7, &[6, 7])), None);
        assert_eq!(order.sent(2, 11, &announce(1, &[1])), None, "another readout unit, or another life");
    }

    #[test]
    fn what_goes_back_without_a_question_or_comes_in_disorder_is_seen() {
        for wrong in
            [announce(7, &[7, 6]), announce(7, &[6, 6]), announce(6, &[6, 7]), announce(7, &[5]), announce(4, &[])]
        {
            let mut order = Order::default();
            assert_eq!(order.sent(1, 10, &announce(5, &[4, 5])), None);
            assert!(order.sent(1, 10, &wrong).is_some(), "{wrong:?}");
        }
        let mut order = Order::default();
        order.sent(1, 10, &announce(5, &[4, 5]));
        order.sent(9, 12, &Message::Recover);
        assert!(order.sent(1, 10, &announce(5, &[4, 5])).is_some(), "somebody else was asked");
    }
}
