//! Assembly: the set of each packet, and the cause of every other one.

use super::*;
use proptest::prelude::*;
use ropewalk_terms::{Cause, EventKey, Incarnation};
use ropewalk_wire::gateway::{Credit, EventFlags, Frame, Message, PushView};
use ropewalk_wire::mep::MEP_HEADER_BYTES;

/// A finished set: its first event, how it ended, and which sources are missing and why.
pub(super) type Finished = (u64, Ending, Vec<(u16, Cause)>);

pub(super) fn finished(assembly: &mut Assembly) -> Vec<Finished> {
    let mut all = Vec::new();
    while let Some(set) = assembly.take_finished() {
        all.push((set.first().number(), set.ending(), set.missing().collect()));
        assembly.give_back(set);
    }
    assert!(assembly.account().is_balanced(), "{:?}", assembly.account());
    all
}

/// Offers a packet that must not be refused.
pub(super) fn offer(assembly: &mut Assembly, from: Address, packet: Payload, now: Instant) {
    assert_eq!(assembly.on_packet(from, packet, now), None, "there is a set for it");
}

/// Lets time pass after all received packets were read.
pub(super) fn pass(assembly: &mut Assembly, now: Instant) {
    assembly.on_drained(now);
    assembly.on_time(now);
}

pub(super) fn dropped(assembly: &Assembly, cause: Cause) -> u64 {
    assembly.account().packets.dropped.get(cause)
}

#[test]
fn a_set_is_complete_when_every_source_is_there_in_any_order() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(3, 4));
    for (source, first) in [(2, 0), (0, 4), (1, 4), (0, 0), (2, 4), (1, 0)] {
        offer(&mut assembly, address(source), bench.packet(first, 4, 1, 8), at(0));
    }
    assert_eq!(finished(&mut assembly), [(4, Ending::Complete, vec![]), (0, Ending::Complete, vec![])]);
    let account = assembly.account();
    assert_eq!((account.packets.received, account.packets.in_complete_events, account.complete), (6, 6, 2));
    assert_eq!(bench.held(), 0, "an empty set holds nothing");
}

#[test]
fn a_set_that_waited_long_enough_says_which_sources_are_missing() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(3, 4));
    offer(&mut assembly, address(1), bench.packet(8, 4, 1, 8), at(10));
    assert_eq!(assembly.next_deadline(), at(110));
    pass(&mut assembly, at(109));
    assert_eq!(finished(&mut assembly), []);
    pass(&mut assembly, at(110));
    let missing = vec![(0, Cause::TimedOut), (2, Cause::TimedOut)];
    assert_eq!(finished(&mut assembly), [(8, Ending::Incomplete, missing)]);
    assert_eq!(assembly.next_deadline(), Instant::FAR_FUTURE);
    // These packets are late, or duplicates.
    offer(&mut assembly, address(0), bench.packet(8, 4, 1, 8), at(111));
    offer(&mut assembly, address(1), bench.packet(8, 4, 1, 8), at(111));
    let account = assembly.account();
    assert_eq!((account.packets.late, account.packets.duplicate, account.missing.get(Cause::TimedOut)), (1, 1, 2));
}

#[test]
fn incomplete_sets_are_dropped_where_the_policy_says_so() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &FlowConfig { incomplete: Incomplete::Drop, ..flow(2, 4) });
    offer(&mut assembly, address(1), bench.packet(0, 4, 1, 8), at(0));
    pass(&mut assembly, at(100));
    assert_eq!(bench.held(), 0, "the packets go at once");
    let ending = Ending::Dropped(Cause::IncompletePolicy);
    assert_eq!(finished(&mut assembly), [(0, ending, vec![(0, Cause::TimedOut)])]);
    assert_eq!(dropped(&assembly, Cause::IncompletePolicy), 1);
}

#[test]
fn a_packet_that_comes_twice_is_a_duplicate_before_and_after_its_set_is_complete() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(2, 4));
    for source in [0, 0, 1, 1] {
        offer(&mut assembly, address(source), bench.packet(0, 4, 1, 8), at(0));
    }
    assert_eq!(finished(&mut assembly).len(), 1);
    assert_eq!(assembly.account().packets.duplicate, 2);
}

#[test]
fn what_is_wrong_with_a_packet_has_a_name() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &FlowConfig { first_event: 100, ..flow(2, 4) });
    let good = bench.packet(100, 4, 1, 8).to_vec();
    let changed = |place: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[place] = value;
        bytes
    };
    let cases = [
        (9, good.clone(), Cause::UnknownSource),
        (0, good[..MEP_HEADER_BYTES - 1].to_vec(), Cause::ShortPacket),
        (0, good[..good.len() - 1].to_vec(), Cause::LengthMismatch),
        (0, [&good[..], &[0]].concat(), Cause::LengthMismatch),
        (0, changed(4, 5), Cause::WrongPacking),
        (0, changed(8, 7), Cause::WrongPartition),
        (0, bench.packet(101, 4, 1, 8).to_vec(), Cause::Misaligned),
        (0, changed(12, 1), Cause::Malformed),
        (0, changed(14, 9), Cause::Malformed),
    ];
    for (index, (source, bytes, cause)) in cases.into_iter().enumerate() {
        let before = dropped(&assembly, cause);
        offer(&mut assembly, address(source), bench.payload(&bytes), at(0));
        assert_eq!(dropped(&assembly, cause), before + 1, "case {index}: {:?}", assembly.account().packets);
    }
    offer(&mut assembly, address(0), bench.packet(96, 4, 1, 8), at(0));
    assert_eq!(assembly.account().packets.stale, 1, "it lies before the run");
    offer(&mut assembly, address(0), bench.payload(&changed(3, 0x40)), at(0));
    assert_eq!((assembly.account().open, assembly.account().packets.in_flight), (0, 1), "no set begins");
    offer(&mut assembly, address(1), bench.payload(&good), at(0));
    assert_eq!(dropped(&assembly, Cause::ImplausibleJump), 1, "the run goes on elsewhere");
    pass(&mut assembly, at(200));
    assert_eq!(
        finished(&mut assembly),
        [(100, Ending::Incomplete, vec![(0, Cause::Malformed)])],
        "the last reason counts"
    );
    assert_eq!(bench.held(), 0);
}

#[test]
fn a_source_that_sends_a_good_packet_after_a_bad_one_is_not_missing() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(2, 4));
    let good = bench.packet(0, 4, 1, 8).to_vec();
    offer(&mut assembly, address(0), bench.payload(&good[..30]), at(0));
    (0..2).for_each(|source| offer(&mut assembly, address(source), bench.payload(&good), at(0)));
    let wrong = bench.packet(4, 5, 1, 8);
    offer(&mut assembly, address(0), wrong.clone(), at(1));
    offer(&mut assembly, address(1), bench.packet(4, 4, 1, 8), at(1));
    offer(&mut assembly, address(0), wrong, at(1));
    pass(&mut assembly, at(200));
    let missing = vec![(0, Cause::WrongPacking)];
    assert_eq!(finished(&mut assembly), [(0, Ending::Complete, vec![]), (4, Ending::Incomplete, missing)]);
}

#[test]
fn one_set_too_many_closes_the_oldest() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &FlowConfig { assembling: 2, sets: 3, ..flow(2, 4) });
    for first in [4, 0, 8] {
        offer(&mut assembly, address(0), bench.packet(first, 4, 1, 8), at(first));
    }
    assert_eq!(finished(&mut assembly), [(4, Ending::Incomplete, vec![(1, Cause::CrowdedOut)])]);
}

#[test]
fn a_set_that_the_window_has_left_behind_is_closed() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &FlowConfig { window: 64, ..flow(2, 4) });
    for set in [0, 63, 64] {
        offer(&mut assembly, address(0), bench.packet(4 * set, 4, 1, 8), at(0));
    }
    assert_eq!(finished(&mut assembly), [(0, Ending::Incomplete, vec![(1, Cause::CrowdedOut)])]);
}

#[test]
fn a_packet_for_which_there_is_no_set_comes_back_and_has_its_place_when_there_is_one() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &FlowConfig { assembling: 1, sets: 1, ..flow(2, 4) });
    (0..2).for_each(|source| offer(&mut assembly, address(source), bench.packet(0, 4, 1, 8), at(0)));
    let set = assembly.take_finished().expect("it is complete");
    let packet = assembly.on_packet(address(0), bench.packet(4, 4, 1, 8), at(0)).expect("there is no set for it");
    assert_eq!(assembly.account().packets.received, 2, "what comes back is in no account");
    assembly.give_back(set);
    offer(&mut assembly, address(0), packet, at(0));
    offer(&mut assembly, address(1), bench.packet(4, 4, 1, 8), at(0));
    assert_eq!(finished(&mut assembly), [(4, Ending::Complete, vec![])]);
}

#[test]
fn where_all_sets_are_in_assembly_the_oldest_goes_and_the_packet_waits_for_it() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &FlowConfig { assembling: 2, sets: 2, ..flow(2, 4) });
    for first in [0, 4] {
        offer(&mut assembly, address(0), bench.packet(first, 4, 1, 8), at(0));
    }
    let packet = assembly.on_packet(address(0), bench.packet(8, 4, 1, 8), at(0)).expect("there is no set for it");
    let packet = assembly.on_packet(address(0), packet, at(0)).expect("nor now");
    let set = assembly.take_finished().expect("it was crowded out");
    assert_eq!((set.first().number(), assembly.take_finished().is_none()), (0, true), "one goes, and no other");
    assembly.give_back(set);
    offer(&mut assembly, address(0), packet, at(0));
    assert_eq!((assembly.account().packets.dropped.total(), assembly.account().refused.total()), (0, 0));
}

/// Later sets are decided and cannot leave before it; packets wait for their places, possibly its own among them.
#[test]
fn a_set_that_holds_up_the_order_of_decisions_waits_for_packets_no_longer_than_decisions_take() {
    let mut bench = Bench::new();
    let config = FlowConfig { assembling: 1, sets: 2, output: Output::Stream, ..flow(2, 4) };
    let (timeout, decision) = (config.timeout.as_millis() as u64, config.decision_timeout.as_millis() as u64);
    for (output, closes) in [(Output::Stream, true), (Output::Storage, false)] {
        let mut assembly = Assembly::new(0, &FlowConfig { output, ..config.clone() });
        assembly.on_drained(at(0));
        for (source, first) in [(0, 4), (1, 4), (0, 0)] {
            offer(&mut assembly, address(source), bench.packet(first, 4, 1, 8), at(0));
        }
        let decided = assembly.take_finished().expect("it is complete");
        assert_eq!(assembly.next_deadline(), at(timeout));
        assert!(assembly.on_packet(address(0), bench.packet(8, 4, 1, 8), at(1)).is_some());
        assembly.on_time(at(timeout + decision - 1));
        assert!(assembly.take_finished().is_none(), "what it lacks may wait behind that packet");
        assert_eq!(assembly.next_deadline(), if closes { at(timeout + decision) } else { Instant::FAR_FUTURE });
        assembly.on_time(at(timeout + decision));
        assert_eq!(assembly.take_finished().is_some(), closes);
        assembly.give_back(decided);
    }
}

#[test]
fn where_no_more_is_wanted_a_whole_set_is_refused_even_if_there_were_room() {
    for sets in [2, 3] {
        let mut bench = Bench::new();
        let mut assembly = Assembly::new(0, &FlowConfig { assembling: 2, sets, ..flow(2, 4) });
        for first in [0, 4] {
            offer(&mut assembly, address(0), bench.packet(first, 4, 1, 8), at(0));
        }
        assembly.close_all(Cause::DrainTimedOut);
        let _held = (assembly.take_finished(), assembly.take_finished());
        for source in 0..2 {
            offer(&mut assembly, address(source), bench.packet(12, 4, 1, 8), at(0));
        }
        let account = assembly.account();
        assert_eq!((account.packets.dropped.get(Cause::DrainTimedOut), account.open), (2, 0), "{sets} sets");
        assert_eq!((account.refused.get(Cause::DrainTimedOut), account.refused.total()), (1, 1), "{sets} sets");
    }
}

#[test]
fn a_longer_time_out_holds_for_new_sets_and_a_shorter_one_for_sets_in_assembly_too() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(2, 4));
    let mut begin =
        |assembly: &mut Assembly, first, now| offer(assembly, address(0), bench.packet(first, 4, 1, 8), at(now));
    let firsts = |assembly: &mut Assembly| finished(assembly).into_iter().map(|(first, ..)| first).collect::<Vec<_>>();
    begin(&mut assembly, 0, 0);
    assembly.set_timeout(Duration::from_millis(300), at(1));
    begin(&mut assembly, 4, 1);
    pass(&mut assembly, at(100));
    assert_eq!((firsts(&mut assembly), assembly.next_deadline()), (vec![0], at(301)));
    assembly.set_timeout(Duration::from_millis(10), at(101));
    begin(&mut assembly, 8, 105);
    pass(&mut assembly, at(110));
    assert_eq!((firsts(&mut assembly), assembly.next_deadline()), (vec![], at(111)));
    pass(&mut assembly, at(111));
    assert_eq!((firsts(&mut assembly), assembly.next_deadline()), (vec![4], at(115)));
    pass(&mut assembly, at(115));
    assert_eq!(firsts(&mut assembly), [8]);
}

#[test]
fn masked_sources_are_not_waited_for_and_their_packets_are_counted_and_let_go() {
    let mut bench = Bench::new();
    let mut config = flow(3, 4);
    config.masked.push(config.sources.remove(1).address);
    let mut assembly = Assembly::new(0, &config);
    for source in [1, 2, 0] {
        offer(&mut assembly, address(source), bench.packet(0, 4, 1, 8), at(0));
    }
    offer(&mut assembly, address(3), bench.packet(0, 4, 1, 8), at(0));
    assert_eq!(finished(&mut assembly), [(0, Ending::Complete, vec![])]);
    assert_eq!((dropped(&assembly, Cause::Masked), dropped(&assembly, Cause::UnknownSource)), (1, 1));
    config.masked.push(address(2));
    let twice = GatewayConfig { flows: vec![config], ..GatewayConfig::new(0, Vec::new(), FarmConfig::new(1)) };
    assert_eq!(twice.check(), Err(GatewayConfigError::Twice { flow: 0, address: address(2) }));
}

#[test]
fn each_source_has_an_account_of_its_own() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(3, 4));
    for (source, first) in [(0, 0), (1, 0), (2, 0), (0, 4), (2, 4), (2, 4), (2, 8)] {
        offer(&mut assembly, address(source), bench.packet(first, 4, 1, 8), at(0));
    }
    pass(&mut assembly, at(100));
    let long = bench.packet(0, 4, 1, 8).len() as u64;
    let of = |(packets, missing)| SourceAccount { packets, bytes: packets * long, missing, ..SourceAccount::default() };
    let wanted = [(2, 1), (1, 2), (3, 0)].map(of);
    assert_eq!(assembly.by_source(), wanted, "the duplicate is not counted");
}

#[test]
fn a_set_does_not_time_out_while_unseen_packets_are_here() {
    let mut bench = Bench::new();
    // A gateway that starts while its sources send has never read everything that had arrived.
    for has_looked in [true, false] {
        let mut assembly = Assembly::new(0, &flow(2, 4));
        if has_looked {
            assembly.on_drained(at(0));
        }
        offer(&mut assembly, address(0), bench.packet(0, 4, 1, 8), at(10));
        assembly.on_time(at(500));
        assert_eq!(finished(&mut assembly), [], "the thread was away, and the other packet may be here already");
        offer(&mut assembly, address(1), bench.packet(0, 4, 1, 8), at(500));
        offer(&mut assembly, address(0), bench.packet(4, 4, 1, 8), at(500));
        pass(&mut assembly, at(600));
        let missing = vec![(1, Cause::TimedOut)];
        assert_eq!(finished(&mut assembly), [(0, Ending::Complete, vec![]), (4, Ending::Incomplete, missing)]);
    }
}

#[test]
fn event_ids_go_round_and_sets_before_the_window_are_late() {
    let mut bench = Bench::new();
    let start = 0xFFFF_FFF8;
    let mut assembly = Assembly::new(0, &FlowConfig { first_event: start, window: 64, ..flow(1, 4) });
    for first in [start, start + 4, start + 8, start + 4 * 66] {
        offer(&mut assembly, address(0), bench.packet(first, 4, 1, 8), at(0));
    }
    let firsts: Vec<u64> = finished(&mut assembly).into_iter().map(|(first, ..)| first).collect();
    assert_eq!(firsts, [start, start + 4, 0x1_0000_0000, start + 4 * 66]);
    for first in [start, start + 8, start + 12] {
        offer(&mut assembly, address(0), bench.packet(first, 4, 1, 8), at(0));
    }
    let packets = assembly.account().packets;
    assert_eq!((packets.duplicate, packets.late, finished(&mut assembly).len()), (1, 1, 1));
}

#[test]
fn three_packets_that_agree_are_believed_however_far_it_is() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(3, 4));
    for (source, first) in [(0, 40_000), (0, 40_000), (1, 80_000), (2, 80_004), (0, 80_000), (1, 80_004)] {
        offer(&mut assembly, address(source), bench.packet(first, 4, 1, 8), at(0));
    }
    let account = assembly.account();
    assert_eq!((dropped(&assembly, Cause::ImplausibleJump), account.packets.duplicate), (1, 1));
    assert_eq!((account.open, account.packets.in_flight), (2, 4), "two were held");
}

#[test]
fn a_lone_source_is_believed_when_it_goes_on() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(1, 4));
    for first in [40_000, 40_000, 40_004, 40_008] {
        offer(&mut assembly, address(0), bench.packet(first, 4, 1, 8), at(0));
    }
    let duplicate = assembly.account().packets.duplicate;
    assert_eq!((dropped(&assembly, Cause::ImplausibleJump), duplicate, finished(&mut assembly).len()), (0, 1, 3));
}

#[test]
fn a_far_packet_is_not_held_after_the_close() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(2, 4));
    assembly.close_all(Cause::DrainTimedOut);
    offer(&mut assembly, address(0), bench.packet(40_000, 4, 1, 8), at(0));
    assert_eq!((dropped(&assembly, Cause::ImplausibleJump), assembly.account().packets.in_flight), (1, 0));
}

#[test]
fn what_lies_behind_the_last_event_is_not_of_the_run() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(2, 4));
    (0..4).for_each(|set| offer(&mut assembly, address(0), bench.packet(4 * set, 4, 1, 8), at(0)));
    assembly.stop_after(7);
    offer(&mut assembly, address(1), bench.packet(12, 4, 1, 8), at(0));
    assembly.close_all(Cause::DrainTimedOut);
    let after = |first| (first, Ending::Dropped(Cause::AfterStop), vec![(1, Cause::AfterStop)]);
    let open = |first| (first, Ending::Incomplete, vec![(1, Cause::DrainTimedOut)]);
    assert_eq!(finished(&mut assembly), [after(8), after(12), open(0), open(4)]);
    assert_eq!((assembly.account().packets.after_stop, dropped(&assembly, Cause::AfterStop)), (1, 2));
}

#[test]
fn each_set_says_from_where_on_sets_are_open() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(2, 4));
    for (source, first) in [(0, 8), (0, 4), (0, 0), (1, 8), (1, 0), (1, 4)] {
        offer(&mut assembly, address(source), bench.packet(first, 4, 1, 8), at(0));
    }
    let from: Vec<_> = core::iter::from_fn(|| assembly.take_finished()).map(|set| set.open_from).collect();
    assert_eq!(from, [EventKey::new(0, 0), EventKey::new(0, 4), EventKey::MAX]);
}

/// Two flows share an input: the first one's packet waits for a set, and all packets behind it are unread.
#[test]
fn a_flow_behind_a_packet_of_another_one_does_not_ask_to_be_woken_in_vain() {
    let mut bench = Bench::new();
    let config = GatewayConfig::new(0, vec![flow(2, 4), flow(2, 4)], FarmConfig::new(1));
    let (mut receiver, _) = Gateway::new(&config).expect("it can be").split();
    assert_eq!(receiver.on_packet(1, address(0), bench.packet(0, 4, 1, 8), at(0)), None);
    receiver.on_drained(1, at(0));
    let wakes = |receiver: &mut Receiver, now| {
        receiver.on_time(now);
        // The throttle's state is repeated in 10 ms.
        while receiver.next_throttle(now).is_some() {}
        receiver.next_deadline()
    };
    assert_eq!(wakes(&mut receiver, at(95)), at(100), "its set waits for 100 ms");
    receiver.on_blocked(1);
    assert_eq!(wakes(&mut receiver, at(200)), at(210), "packets are unseen, and no set times out");
    receiver.on_drained(1, at(300));
    assert_eq!((wakes(&mut receiver, at(300)), receiver.account(1).open), (at(310), 0));
}

#[test]
fn where_too_much_is_held_what_waits_longest_is_moved_and_stays_what_it_was() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(3, 4));
    // Room for one of the three packets of 68 bytes, and for all.
    let room = |bytes| Staging::new(Pool::new(PoolConfig::heap("moved", bytes, 1)).expect("memory"));
    let (mut little, mut much) = (room(70), room(1000));
    for (source, first, fill) in [(0, 4, 1), (1, 4, 2), (2, 0, 3)] {
        offer(&mut assembly, address(source), bench.packet(first, 4, fill, 10), at(0));
    }
    assert_eq!([0; 2].map(|_| assembly.evacuate(&mut little)), [1, 0], "as far as there is room");
    assert!(bench.held() > 0);
    assert_eq!([0; 2].map(|_| assembly.evacuate(&mut much)), [2, 1], "one set after the other");
    assert_eq!((bench.held(), assembly.evacuate(&mut much)), (0, 0), "nothing is left where it came in");
    offer(&mut assembly, address(2), bench.packet(4, 4, 4, 10), at(1));
    let mut set = assembly.take_finished().expect("it is complete");
    let mut places = Vec::new();
    for event in 0..4 {
        set.gather(event, &mut places);
        let first =
            |place: &set::FragmentPlace| set.packets[usize::from(place.source)].to_vec()[usize::from(place.start)];
        assert_eq!(places.iter().map(first).collect::<Vec<_>>(), [1, 2, 4]);
    }
    assembly.give_back(set);
    for source in 0..2 {
        offer(&mut assembly, address(source), bench.packet(8, 4, 1, 10), at(1));
    }
    assert_eq!([0; 2].map(|_| assembly.evacuate(&mut much)), [2, 0], "a set that is used again has not been moved");
}

/// A packet in several pieces of 16 bytes.
fn scattered(bytes: &[u8]) -> Payload {
    let mut staging = Staging::new(Pool::new(PoolConfig::heap("scattered", 16, 64)).expect("memory"));
    bytes.chunks(16).map(|piece| staging.write(piece).expect("room")).collect()
}

/// Packets of sets in order of arrival: source, set, and the flipped bit of the first event, if any.
fn spoilt_packets(sources: u16, spoilt: &[Option<(u16, u8)>], swaps: &[usize]) -> Vec<(u16, u64, Option<u8>)> {
    let of_set = |(set, spoilt): (u64, &Option<(u16, u8)>)| {
        let spoilt = spoilt.map(|(source, bit)| (source % sources, bit));
        let bit = move |source| spoilt.filter(|&(whose, _)| whose == source).map(|(_, bit)| bit);
        (0..sources).map(move |source| (source, set, bit(source)))
    };
    let mut packets: Vec<_> = (0..).zip(spoilt).flat_map(of_set).collect();
    for swap in swaps {
        let place = swap % (packets.len() - 1);
        // Two sources are not in step; the packets of one stay in order.
        if packets[place].0 != packets[place + 1].0 {
            packets.swap(place, place + 1);
        }
    }
    packets
}

proptest! {
    #[test]
    fn a_wrong_number_costs_one_packet(
        sources in 2_u16..6,
        packing in 1_u16..40,
        gateways in 1_u64..5,
        first_event in 1_u64 << 17..1 << 33,
        spoilt in prop::collection::vec(prop::option::weighted(0.4, (any::<u16>(), 0_u8..32)), 2..40),
        swaps in prop::collection::vec(any::<usize>(), 0..10),
    ) {
        let mut bench = Bench::new();
        let mut assembly = Assembly::new(0, &FlowConfig { first_event, ..flow(sources, packing) });
        let first_of = |set: u64| first_event + u64::from(packing) * gateways * set;
        let count = spoilt.iter().flatten().count();
        for (source, set, bit) in spoilt_packets(sources, &spoilt, &swaps) {
            let mut bytes = bench.packet(first_of(set), packing, 1, 1).to_vec();
            bit.into_iter().for_each(|bit| bytes[usize::from(bit / 8)] ^= 1 << (bit % 8));
            offer(&mut assembly, address(source), bench.payload(&bytes), at(set));
        }
        assembly.close_all(Cause::DrainTimedOut);
        let (account, finished) = (assembly.account(), finished(&mut assembly));
        prop_assert_eq!((account.complete, account.incomplete), ((spoilt.len() - count) as u64, count as u64));
        prop_assert_eq!(account.packets.in_complete_events + account.packets.in_incomplete_events + count as u64, account.packets.received);
        for (first, _, missing) in finished.into_iter().filter(|(_, ending, _)| *ending == Ending::Incomplete) {
            let set = (first - first_event) / (u64::from(packing) * gateways);
            let due = spoilt[set as usize].map(|(source, _)| source % sources);
            prop_assert_eq!((first_of(set), missing.iter().map(|&(source, _)| source).collect::<Vec<_>>()), (first, due.into_iter().collect()));
        }
    }

    /// Source 0 restarts at one set and is right again at a later one; it lags behind the others throughout.
    #[test]
    fn a_source_that_restarted_is_in_no_wrong_set(
        sources in 2_u16..5,
        packing in 1_u16..40,
        gateways in 1_u64..5,
        first_event in 0_u64..1 << 33,
        restart in 8_u64..80,
        wrong in 0_u64..200,
        lag in 0_u64..4,
    ) {
        let mut bench = Bench::new();
        let config = FlowConfig { first_event, assembling: 16, sets: 64, incomplete: Incomplete::Emit, ..flow(sources, packing) };
        let mut assembly = Assembly::new(0, &config);
        let first_of = |set: u64| first_event + u64::from(packing) * gateways * set;
        let end = restart + wrong + 20;
        for set in 0..end + lag {
            let sent = (1..sources).filter(|_| set < end).map(|source| (source, set));
            let is_wrong = |own: u64| (restart..restart + wrong).contains(&own);
            let own = set.checked_sub(lag).map(|own| (0, if is_wrong(own) { own - restart } else { own }));
            for (source, set) in sent.chain(own) {
                offer(&mut assembly, address(source), bench.packet(first_of(set), packing, 1, 1), at(set));
            }
            finished(&mut assembly);
        }
        assembly.close_all(Cause::DrainTimedOut);
        finished(&mut assembly);
        let (account, own) = (assembly.account(), assembly.by_source()[0]);
        prop_assert_eq!(own.packets, restart + 20, "every right packet has its set, and no wrong one has any: {:?}", own);
        prop_assert_eq!(own.out_of_sync, wrong.saturating_sub(8));
        prop_assert_eq!(account.packets.late + account.packets.duplicate, wrong.min(8));
        let restarts = (own.restarts, own.last_restart.from, own.last_restart.to);
        let expected = (1, first_of(restart - 1) as u32, first_event as u32);
        prop_assert_eq!(restarts, if wrong < 8 { (0, 0, 0) } else { expected });
    }

    #[test]
    fn the_fragments_of_an_event_are_found_in_any_order_and_however_packets_lie(
        lengths in prop::collection::vec(prop::collection::vec(0_usize..40, 5), 1..6),
        asked in prop::collection::vec(0_u16..5, 1..12),
        in_pieces in any::<u8>(),
    ) {
        let mut bench = Bench::new();
        let mut assembly = Assembly::new(0, &flow(lengths.len() as u16, 5));
        let fragment = |source: usize, event: usize| vec![(source * 5 + event) as u8; lengths[source][event]];
        for source in 0..lengths.len() {
            let fragments: Vec<_> = (0..5).map(|event| fragment(source, event)).collect();
            let mut bytes = Vec::new();
            encode_mep(0, 0, fragments.iter().map(Vec::as_slice), &mut bytes).expect("it is short");
            let packet = if in_pieces >> source & 1 == 1 { scattered(&bytes) } else { bench.payload(&bytes) };
            offer(&mut assembly, address(source as u16), packet, at(0));
        }
        let mut set = assembly.take_finished().expect("it is complete");
        let mut places = Vec::new();
        for event in asked {
            let total = set.gather(event, &mut places);
            let found: Vec<u8> = places.iter().flat_map(|place| {
                let packet = &set.packets[usize::from(place.source)];
                let range = set::Range::new(packet, place.start.into(), place.length.into());
                set::InPieces::new(std::iter::once(set::Bytes::In(range))).flatten().copied()
            }).collect();
            let wanted: Vec<u8> = (0..lengths.len()).flat_map(|source| fragment(source, usize::from(event))).collect();
            prop_assert_eq!(total as usize, wanted.len());
            prop_assert_eq!(found, wanted);
        }
    }
}

/// A packet of four events, with these numbers of bytes of `fill`.
fn packet(bench: &mut Bench, fill: u8, lengths: [usize; 4]) -> Payload {
    let fragments = lengths.map(|length| vec![fill; length]);
    let mut bytes = Vec::new();
    encode_mep(8, 0, fragments.iter().map(Vec::as_slice), &mut bytes).expect("it is short");
    bench.payload(&bytes)
}

/// A gateway's halves, and a finished set of sources 0 and 2 with the tested fragments; source 1 has sent nothing.
fn halves(bench: &mut Bench, change: impl FnOnce(&mut FlowConfig)) -> (Receiver, Sender, EventSet) {
    let mut flow = flow(3, 4);
    change(&mut flow);
    let config = GatewayConfig::new(5, vec![flow], FarmConfig::new(1));
    let (mut receiver, sender) = Gateway::new(&config).expect("it can be").split();
    for (source, lengths) in [(0, [3, 5, 0, 7]), (2, [2, 0, 0, 4])] {
        let packet = packet(bench, source as u8, lengths);
        assert_eq!(receiver.on_packet(0, address(source), packet, at(0)), None);
    }
    receiver.on_drained(0, at(100));
    receiver.on_time(at(100));
    let set = receiver.take_set().expect("it waited long enough");
    (receiver, sender, set)
}

/// Everything pushed to the only node: events and their bytes.
fn pushed(sender: &mut Sender) -> Vec<(EventKey, Vec<u8>)> {
    let credit = Credit { node: 0, incarnation: Incarnation(1), window: 8 };
    sender.on_message(&Message::Credit(credit), at(100));
    let mut all = Vec::new();
    while sender.farm().next_push().is_some() {
        let bytes: Vec<u8> = sender.farm().push_view().pieces().flatten().copied().collect();
        sender.farm().sent(at(100));
        let (_, body, _) = Frame::split(&bytes).expect("a message");
        let view = PushView::parse(body).expect("a push");
        all.extend(view.pieces().map(|(head, bytes)| (head.key, bytes.to_vec())));
    }
    all
}

#[test]
fn an_event_is_shown_with_its_fragments_apart_and_with_what_is_missing() {
    let mut bench = Bench::new();
    let (_, mut sender, set) = halves(&mut bench, |_| {});
    let set = sender.on_set(set, at(100)).expect("its events wait for nodes");
    let mut places = FragmentPlaces::new(3);
    // In any order.
    for (event, fragments) in [(3, vec![(0, 7), (2, 4)]), (0, vec![(0, 3), (2, 2)]), (1, vec![(0, 5)]), (2, vec![])] {
        let view = set.show(event, &mut places);
        assert_eq!(view.fragments().collect::<Vec<_>>(), fragments);
        let each: Vec<Vec<u8>> = view.pieces_of_each().map(|pieces| pieces.flatten().copied().collect()).collect();
        let sent: Vec<Vec<u8>> =
            fragments.iter().map(|&(source, length)| vec![source as u8; usize::from(length)]).collect();
        assert_eq!(each, sent);
        assert_eq!(view.missing().collect::<Vec<_>>(), [(1, Cause::TimedOut)]);
        let head = view.head();
        assert_eq!((head.key, head.attempt.0, view.word()), (EventKey::new(0, 8 + u64::from(event)), 0, 0));
        assert!(head.flags.has(EventFlags::INCOMPLETE));
        assert_eq!(head.total as usize, sent.concat().len());
    }
}

#[test]
fn nodes_get_the_same_events_observed_or_not() {
    let mut bench = Bench::new();
    let (_, mut sender, set) = halves(&mut bench, |_| {});
    sender.on_set(set, at(100));
    let as_ever = pushed(&mut sender);
    assert_eq!(as_ever.len(), 4);
    for looked_at in [vec![0], vec![3], vec![0, 1, 2, 3], vec![2, 1]] {
        let (_, mut sender, set) = halves(&mut bench, |_| {});
        let set = sender.on_set(set, at(100)).expect("its events wait for nodes");
        let mut places = FragmentPlaces::new(3);
        for event in &looked_at {
            set.show(*event, &mut places);
        }
        assert_eq!(pushed(&mut sender), as_ever, "observed: {looked_at:?}");
    }
}

#[test]
fn a_dropped_set_is_not_shown() {
    let mut bench = Bench::new();
    let (_, mut sender, set) = halves(&mut bench, |flow| flow.incomplete = Incomplete::Drop);
    assert!(sender.on_set(set, at(100)).is_none());
    assert!(sender.take_empty().is_some());
}
