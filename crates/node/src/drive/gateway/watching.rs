//! Samples of a gateway's events for those who watch: taken from sets that are finished, before their events leave.

use super::event::GatewayEvent;
use crate::tap::Tap;
use ropewalk_flow::gateway::{Ending, EventSet, FragmentPlaces};
use ropewalk_terms::{Instant, NodeId, SourceId};
use std::time::Duration;

/// After a set in which not everybody found an event, no other one is looked at for so long: a wish that nothing fulfils must not cost a
/// walk through every packet.
const REST: Duration = Duration::from_millis(1);

/// Shows events to the tap while somebody asks for one.
pub(super) struct Watching {
    /// What the input queue is called by those who watch.
    unit: NodeId,
    tap: Tap,
    places: FragmentPlaces,
    /// The event that is shown first of the next set: another one each time, or nobody would ever see any but the first.
    next: u16,
    rests_until: Instant,
}

impl Watching {
    /// For sets of so many sources.
    pub(super) fn new(unit: NodeId, tap: Tap, sources: usize) -> Self {
        Self { unit, tap, places: FragmentPlaces::new(sources), next: 0, rests_until: Instant::ZERO }
    }

    /// Shows the events of a set until nobody asks any more; `sources` are the numbers of each flow's.
    pub(super) fn look(&mut self, set: &mut EventSet, sources: &[Vec<SourceId>], now: Instant) {
        let is_complete = set.ending() == Ending::Complete;
        if !self.tap.is_open() || now < self.rests_until || !self.tap.may_take(is_complete) {
            return;
        }
        let events = set.keys().len() as u16;
        let first = self.next % events;
        self.next = first + 1;
        for event in (first..events).chain(0..first) {
            self.tap.offer(self.unit, &GatewayEvent::new(set.show(event, &mut self.places), sources));
            if !self.tap.may_take(is_complete) {
                return;
            }
        }
        self.rests_until = now.after(REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tap::{Asked, EventSelection};
    use ropewalk_flow::gateway::{Address, FarmConfig, FlowConfig, Gateway, GatewayConfig, PacketSource};
    use ropewalk_memory::{Payload, Pool, PoolConfig, Staging};
    use ropewalk_terms::{Cause, EventKey};
    use ropewalk_wire::mep::encode_mep;
    use std::net::Ipv4Addr;

    const SOURCES: [u32; 3] = [100, 101, 102];

    fn at(milliseconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(milliseconds))
    }

    fn address(source: u32) -> Address {
        Address::of(Ipv4Addr::from_bits(0x0A00_0000 + source))
    }

    /// A set of two events, the first of them `first`: of source n the (n - 99)fold of 4 bytes, in the second event twice as many. Only these
    /// sources have sent something.
    fn set(first: u64, sources: &[u32]) -> EventSet {
        let source = |id| PacketSource { id: SourceId(id), address: address(id) };
        let config = GatewayConfig::new(0, vec![FlowConfig::new(SOURCES.map(source).to_vec(), 2)], FarmConfig::new(1));
        let (mut receiver, _) = Gateway::new(&config).expect("it can be").split();
        let mut staging = Staging::new(Pool::new(PoolConfig::heap("watching", 4096, 4)).expect("memory"));
        for &id in sources {
            let fragments = [1, 2].map(|times| vec![id as u8; 4 * times * (id as usize - 99)]);
            let mut bytes = Vec::new();
            encode_mep(first as u32, 0, fragments.iter().map(Vec::as_slice), &mut bytes).expect("it is short");
            let packet: Payload = staging.write(&bytes).expect("room").into();
            assert_eq!(receiver.on_packet(0, address(id), packet, at(0)), None);
        }
        receiver.close_all(Cause::TimedOut);
        receiver.take_set().expect("it is finished")
    }

    fn watching() -> (Tap, Watching) {
        let tap = Tap::new(SOURCES.len());
        (tap.clone(), Watching::new(NodeId::builder(3), tap, SOURCES.len()))
    }

    fn asked(tap: &Tap, selection: EventSelection) -> Asked {
        tap.ask(selection, 6).expect("not many have asked")
    }

    #[test]
    fn whoever_watches_gets_the_events_that_were_asked_for_of_a_set() {
        let (tap, mut watching) = watching();
        let mut any = asked(&tap, EventSelection::default());
        let mut large = asked(&tap, EventSelection { least_bytes: 48, ..EventSelection::default() });
        let mut incomplete = asked(&tap, EventSelection { is_incomplete: true, ..EventSelection::default() });
        let of_source =
            EventSelection { source: Some(SourceId(102)), is_incomplete: true, ..EventSelection::default() };
        let mut of_source = asked(&tap, of_source);
        let ids = [SOURCES.map(SourceId).to_vec()];
        watching.look(&mut set(8, &SOURCES), &ids, at(1));
        let sample = any.take().expect("it was the first event");
        assert_eq!((sample.builder, sample.key, sample.is_complete()), (NodeId::builder(3), EventKey::new(0, 8), true));
        let known: Vec<_> = sample.fragments.iter().map(|one| (one.entry.source.0, one.entry.length)).collect();
        assert_eq!(known, [(100, 4), (101, 8), (102, 12)]);
        let fronts: Vec<&[u8]> = sample.fragments.iter().map(|fragment| sample.front_of(fragment)).collect();
        assert_eq!(fronts, [&[100; 4][..], &[101; 6], &[102; 6]]);
        assert!(sample.missing.is_empty());
        assert_eq!(large.take().expect("the second one").key, EventKey::new(0, 9));
        assert!(incomplete.take().is_none() && of_source.take().is_none(), "every source was there");

        watching.look(&mut set(10, &[100]), &ids, at(10));
        let sample = incomplete.take().expect("two are missing");
        let missing: Vec<_> = sample.missing.iter().map(|missing| (missing.source.0, missing.cause())).collect();
        assert_eq!(missing, [(101, Some(Cause::TimedOut)), (102, Some(Cause::TimedOut))]);
        assert_eq!((sample.fragments.len(), sample.is_complete()), (1, false));
        assert!(of_source.take().is_none(), "that one is missing itself");
        watching.look(&mut set(12, &[100, 102]), &ids, at(20));
        assert_eq!(of_source.take().expect("it has sent something").key, EventKey::new(0, 12));
    }

    #[test]
    fn a_wish_that_nothing_fulfils_costs_one_set_in_a_while_and_none_that_cannot_do() {
        let (tap, mut watching) = watching();
        let ids = [SOURCES.map(SourceId).to_vec()];
        let mut huge = asked(&tap, EventSelection { least_bytes: 1 << 20, ..EventSelection::default() });
        watching.look(&mut set(0, &SOURCES), &ids, at(1));
        // Somebody else, who would take any: not of the next set, but of the one after that, where it begins with another event.
        let mut any = asked(&tap, EventSelection::default());
        watching.look(&mut set(2, &SOURCES), &ids, at(1));
        assert!(any.take().is_none());
        watching.look(&mut set(4, &SOURCES), &ids, at(2));
        assert_eq!(any.take().expect("it has rested").key, EventKey::new(0, 5));
        assert!(huge.take().is_none());
        drop(huge);
        // Complete sets are no reason to rest for who wants incomplete ones.
        let mut incomplete = asked(&tap, EventSelection { is_incomplete: true, ..EventSelection::default() });
        watching.look(&mut set(6, &SOURCES), &ids, at(10));
        watching.look(&mut set(8, &[100]), &ids, at(10));
        assert_eq!(incomplete.take().expect("it was looked at").key, EventKey::new(0, 8));
        assert!(!tap.is_open());
    }
}
