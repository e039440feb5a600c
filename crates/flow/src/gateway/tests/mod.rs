//! The rules of a gateway: one by one, and in a world of sources and nodes with faults.

mod assembly;
mod farm;
mod masking;
mod world;

use super::*;
use crate::source::mep::{MepSourceConfig, MepSources};
use core::net::Ipv4Addr;
use core::time::Duration;
use ropewalk_memory::{Payload, Pool, PoolConfig, Staging};
use ropewalk_terms::{EventKey, Incarnation, Instant, SourceId};
use ropewalk_wire::gateway::ThrottleState::{self, Busy, Error, OutOfSync, Ready, Warning};
use ropewalk_wire::gateway::{self, Credit, Decision, Decisions, Frame, Message, PushView as Pushed, Verdict};
use ropewalk_wire::mep::{MepRequest, encode_mep};
use std::collections::VecDeque;

/// Milliseconds after the start.
fn at(milliseconds: u64) -> Instant {
    Instant::ZERO.after(Duration::from_millis(milliseconds))
}

/// The address of a source.
fn address(source: u16) -> Address {
    Address::of(Ipv4Addr::from_bits(0x0A00_0000 + u32::from(source)))
}

/// A flow of this many sources, with this many events in a set.
fn flow(sources: u16, packing: u16) -> FlowConfig {
    let source = |index| PacketSource { id: SourceId(u32::from(index)), address: address(index) };
    FlowConfig::new((0..sources).map(source).collect(), packing)
}

struct Bench {
    staging: Staging,
}

impl Bench {
    fn new() -> Self {
        Self { staging: Staging::new(Pool::new(PoolConfig::heap("gateway", 1 << 12, 400)).expect("memory")) }
    }

    fn payload(&mut self, bytes: &[u8]) -> Payload {
        self.staging.pool_mut().collect();
        self.staging.write(bytes).expect("room").into()
    }

    /// A packet of fragments that each contain `fill` `length` times.
    fn packet(&mut self, first: u64, packing: u16, fill: u8, length: usize) -> Payload {
        let mut bytes = Vec::new();
        let fragment = vec![fill; length];
        encode_mep(first as u32, 0, (0..packing).map(|_| &fragment[..]), &mut bytes).expect("it is short");
        self.payload(&bytes)
    }

    /// Blocks with packets that are still referenced.
    fn held(&mut self) -> usize {
        // A new block is written next, so that it contains no packet.
        let largest = self.staging.largest();
        self.staging.room(largest).expect("room");
        let pool = self.staging.pool_mut();
        pool.collect();
        pool.held() - 1
    }
}

fn throttle() -> Throttle {
    Throttle::new(4, Incarnation(7), &ThrottleConfig::default(), vec![Level::new(100, 20), Level::new(10, 1)])
}

#[test]
fn the_headroom_is_what_comes_in_until_the_trigger_has_stopped() {
    assert_eq!(headroom(Duration::from_millis(2), 1e6, 1.0 / 25.0), 80);
    assert_eq!(headroom(Duration::from_micros(1), 1000.0, 1500.0), 2);
}

#[test]
fn levels_warn_then_stop_and_are_ready_again_below_their_marks() {
    let mut throttle = throttle();
    let mut state = |used| {
        throttle.observe(0, used, at(0));
        throttle.state()
    };
    let up = [(59, Ready), (60, Warning), (79, Warning), (80, Busy), (100, Busy)];
    let down = [(76, Busy), (75, Busy), (74, Warning), (56, Warning), (55, Warning), (54, Ready)];
    for (used, expected) in up.into_iter().chain(down) {
        assert_eq!(state(used), expected, "{used}");
    }
}

#[test]
fn with_any_headroom_an_empty_level_lets_triggers_come() {
    for headroom in 0..30 {
        let levels = vec![Level::new(20, headroom)];
        let mut throttle = Throttle::new(4, Incarnation(7), &ThrottleConfig::default(), levels);
        for used in [0, 20, 0] {
            throttle.observe(0, used, at(0));
            assert_eq!(throttle.state().is_open(), used == 0, "{used} of 20 are used, {headroom} must be left");
        }
    }
}

#[test]
fn time_is_live_or_dead_and_each_reason_has_its_share() {
    let mut throttle = throttle();
    throttle.observe(0, 0, at(0));
    throttle.observe(0, 90, at(10));
    throttle.observe(1, 9, at(15));
    throttle.observe(0, 0, at(30));
    throttle.set_error(true, at(32));
    throttle.observe(1, 0, at(40));
    throttle.set_error(false, at(45));
    throttle.observe(0, 0, at(100));
    assert_eq!(throttle.live_and_dead(), (Duration::from_millis(65), Duration::from_millis(35)));
    let shares: Vec<_> = throttle.levels().map(|level| (level.dead.as_millis(), level.stops)).collect();
    assert_eq!(shares, [(20, 1), (25, 1), (0, 0), (13, 1), (0, 0)]);
}

#[test]
fn while_run_control_holds_triggers_time_is_neither_live_nor_dead() {
    let mut throttle = throttle();
    throttle.set_held(true, at(0));
    assert_eq!(throttle.next_message(at(0)).map(|message| message.state), Some(Busy), "the trigger learns it");
    throttle.observe(0, 90, at(20));
    throttle.set_held(false, at(30));
    assert_eq!(throttle.state(), Busy, "there is another reason");
    throttle.observe(0, 0, at(34));
    throttle.set_error(true, at(40));
    throttle.set_held(true, at(41));
    assert_eq!(throttle.state(), Error, "an error is reported nevertheless");
    throttle.set_error(false, at(50));
    throttle.set_held(true, at(60));
    assert_eq!(throttle.state(), Busy);
    throttle.set_held(false, at(70));
    assert_eq!(throttle.live_and_dead(), (Duration::from_millis(6), Duration::from_millis(5)));
    let held = throttle.levels().last().map(|level| (level.dead.as_millis(), level.stops));
    assert_eq!((held, throttle.state()), (Some((59, 2)), Ready));
}

#[test]
fn the_worst_state_is_said_at_once_and_again_and_again() {
    let mut throttle = throttle();
    let mut said = Vec::new();
    for now in 0..40 {
        match now {
            5 => throttle.observe(0, 99, at(now)),
            7 => throttle.set_out_of_sync(true, at(now)),
            8 => throttle.set_error(true, at(now)),
            9 => throttle.set_out_of_sync(false, at(now)),
            12 => throttle.set_error(false, at(now)),
            _ => {}
        }
        assert!(throttle.next_deadline() <= at(now) || throttle.next_message(at(now)).is_none());
        said.extend(throttle.next_message(at(now)).map(|message| (now, message.sequence, message.state)));
    }
    let expected =
        [(0, 1, Ready), (5, 2, Busy), (7, 3, OutOfSync), (8, 4, Error), (12, 5, Busy), (22, 6, Busy), (32, 7, Busy)];
    assert_eq!(said, expected);
}

/// Two flows of four sources and four events in a packet, a thousand events a second each.
fn known_rates(latency: u64, silence: u64) -> GatewayConfig {
    let milliseconds = Duration::from_millis;
    let throttle = ThrottleConfig {
        latency: milliseconds(latency),
        silence: milliseconds(silence),
        event_rates_hz: vec![1000.0, 1000.0],
        ..ThrottleConfig::default()
    };
    GatewayConfig { throttle, ..GatewayConfig::new(0, vec![flow(4, 4), flow(4, 4)], FarmConfig::new(1)) }
}

#[test]
fn in_front_of_a_gateway_there_is_to_be_room_for_what_comes_until_it_is_taken_for_dead() {
    let config = known_rates(2, 18);
    // 20 ms of 250 sets a second, and one that has begun.
    assert_eq!(config.wanted_queue(&[0], 2304), Some((5 + 1) * 4 * 2304));
    assert_eq!(config.wanted_queue(&[0, 1], 1), Some(2 * (5 + 1) * 4), "flows that share a queue come together");
    let masked = vec![address(90), address(91)];
    let flows = vec![FlowConfig { masked, ..flow(4, 4) }];
    assert_eq!(GatewayConfig { flows, ..config.clone() }.wanted_queue(&[0], 1), Some(6 * 6), "they send as well");
    let event_rates_hz = vec![1000.0, 0.0];
    let throttle = ThrottleConfig { event_rates_hz, ..config.throttle.clone() };
    let config = GatewayConfig { throttle, ..config };
    assert_eq!((config.wanted_queue(&[0], 1), config.wanted_queue(&[0, 1], 1)), (Some(24), None), "a rate is unknown");
}

#[test]
fn what_waits_in_front_of_a_gateway_stops_the_trigger_before_it_is_full() {
    let state = |config: &GatewayConfig, queues: &[(&[u8], ReceiveQueue)]| {
        let mut gateway = Gateway::new(config).expect("it can be");
        gateway.receiver().on_queues(queues.iter().copied(), at(0));
        let level = gateway.throttle().levels().nth(3).copied().expect("behind the flows and the memory");
        assert_eq!(gateway.receiver().has_full_queue(), level.state != Ready);
        (level.state, level.capacity - level.headroom)
    };
    let waits = |used, room| ReceiveQueue { used, room, packet: 10 };
    let known = known_rates(2, 18);
    assert_eq!(state(&known, &[(&[0], waits(0, 1000))]), (Ready, 760));
    assert_eq!(state(&known, &[(&[0], waits(759, 1000))]), (Warning, 760));
    assert_eq!(state(&known, &[(&[0], waits(760, 1000))]), (Busy, 760));
    assert_eq!(state(&known, &[(&[0], waits(20, 200)), (&[1], waits(20, 200))]), (Ready, 100), "half of it at least");
    let unknown = GatewayConfig { throttle: ThrottleConfig::default(), ..known.clone() };
    assert_eq!(state(&unknown, &[(&[0], waits(874, 1000))]), (Warning, 875));
    assert_eq!(state(&unknown, &[(&[0], waits(875, 1000))]), (Busy, 875));
    // The queue with the fewest free places decides.
    assert_eq!(state(&known, &[(&[0], waits(900, 9000)), (&[1], waits(300, 600))]), (Warning, 360));
    assert_eq!(state(&known, &[(&[0], waits(9000, 9000)), (&[1], waits(300, 600))]), (Busy, 8760));
}

fn trigger(naming: Naming) -> Trigger {
    Trigger::new(TriggerConfig { gateways: 2, naming, silence: Duration::from_millis(30) })
}

fn says(gateway: u16, incarnation: u64, sequence: u64, state: ThrottleState) -> gateway::Throttle {
    gateway::Throttle { gateway, incarnation: Incarnation(incarnation), sequence, state }
}

#[test]
fn two_gateways_take_turns_and_one_that_is_busy_is_passed_over() {
    let mut trigger = trigger(Naming::RoundRobin);
    assert_eq!(trigger.name(at(0)), None, "no gateway was heard yet");
    (0..2).for_each(|gateway| trigger.on_throttle(&says(gateway, 1, 5, Ready), at(0)));
    let names = |trigger: &mut Trigger, now| (0..4).map(|_| trigger.name(at(now))).collect::<Vec<_>>();
    assert_eq!(names(&mut trigger, 0), [Some(0), Some(1), Some(0), Some(1)]);
    trigger.on_throttle(&says(0, 1, 6, Busy), at(1));
    trigger.on_throttle(&says(0, 1, 5, Ready), at(1));
    trigger.on_throttle(&says(9, 1, 5, Ready), at(1));
    assert_eq!(names(&mut trigger, 1), [Some(1); 4], "older words do not count");
    trigger.on_throttle(&says(1, 1, 6, OutOfSync), at(2));
    assert_eq!(names(&mut trigger, 2), [None; 4]);
    trigger.on_throttle(&says(0, 1, 7, Warning), at(2));
    assert_eq!(names(&mut trigger, 2), [Some(0); 4]);
}

#[test]
fn a_gateway_that_is_not_heard_gets_nothing_and_the_time_is_dead() {
    let mut trigger = trigger(Naming::RoundRobin);
    trigger.on_throttle(&says(0, 1, 1, Ready), at(0));
    assert_eq!((trigger.name(at(0)), trigger.name(at(29)), trigger.name(at(30))), (Some(0), Some(0), None));
    trigger.on_throttle(&says(0, 1, 2, Ready), at(50));
    assert_eq!(trigger.name(at(50)), Some(0));
    assert_eq!(trigger.live_and_dead(), (Duration::from_millis(30), Duration::from_millis(20)));
}

#[test]
fn gateways_get_as_many_sets_as_they_asked_for() {
    let mut trigger = trigger(Naming::Request);
    (0..2).for_each(|gateway| trigger.on_throttle(&says(gateway, 1, 1, Ready), at(0)));
    assert_eq!(trigger.name(at(0)), None);
    let request = |count, sequence| MepRequest { count, sequence, ..MepRequest::default() };
    trigger.on_request(0, &request(3, 1));
    trigger.on_request(1, &request(1, 2));
    trigger.on_request(0, &request(3, 1));
    trigger.on_request(1, &request(9, 1));
    trigger.on_request(7, &request(9, 1));
    let names: Vec<_> = (0..6).map(|_| trigger.name(at(1))).collect();
    assert_eq!(
        names,
        [Some(0), Some(1), Some(0), Some(0), None, None],
        "a repeated request counts once, a late one not"
    );
    trigger.on_request(0, &request(5, 2));
    trigger.on_throttle(&says(0, 2, 1, Ready), at(2));
    assert_eq!(trigger.name(at(2)), None, "an earlier life asked");
    trigger.on_request(0, &request(1, 1));
    assert_eq!((trigger.name(at(2)), trigger.name(at(2))), (Some(0), None));
}

#[test]
fn a_gateway_asks_for_what_it_has_room_for_and_no_more() {
    let flow = FlowConfig { sets: 16, assembling: 16, ..flow(1, 4) };
    let mut gateway = Gateway::new(&GatewayConfig::new(0, vec![flow], FarmConfig::new(1))).expect("it can be");
    let utc = Duration::new(9, 7);
    let first = gateway.next_request(0, utc, at(0)).expect("all is empty");
    let wanted = MepRequest { count: 16, sequence: 1, run: 1, seconds: 9, nanoseconds: 7 };
    assert_eq!((first, gateway.next_request(0, utc, at(0))), (wanted, None));
    let mut bench = Bench::new();
    let packets: Vec<_> = (0..4).map(|set| bench.packet(4 * set, 4, 1, 8)).collect();
    packets.into_iter().for_each(|packet| assert_eq!(gateway.on_packet(0, address(0), packet, at(1)), None));
    gateway.turn(at(1), |_| {});
    assert_eq!(gateway.next_request(0, utc, at(1)), None, "nothing is decided, so there is no more room");
    // A requested trigger that never began was lost, or will never come.
    assert_eq!(gateway.next_request(0, utc, at(200)), None);
    assert_eq!(gateway.next_request(0, utc, at(201)).map(|request| (request.count, request.sequence)), Some((12, 2)));
    assert_eq!(gateway.next_request(1, utc, at(201)), None, "there is no such flow");
}

#[test]
fn a_gateway_without_room_or_nodes_or_in_disorder_says_so() {
    let flow = FlowConfig { sets: 16, assembling: 16, ..flow(1, 4) };
    let mut gateway = Gateway::new(&GatewayConfig::new(0, vec![flow], FarmConfig::new(1))).expect("it can be");
    let mut bench = Bench::new();
    gateway.turn(at(0), |_| {});
    assert_eq!(gateway.throttle().state(), Error, "no node is there");
    let credit = gateway::Credit { node: 0, incarnation: Incarnation(1), window: 4 };
    gateway.on_message(&gateway::Message::Credit(credit), at(0));
    gateway.turn(at(0), |_| {});
    assert_eq!(gateway.throttle().state(), Ready);
    for first in [400_000, 800_000] {
        assert_eq!(gateway.on_packet(0, address(0), bench.packet(first, 4, 1, 8), at(1)), None);
    }
    gateway.turn(at(1), |_| {});
    assert_eq!(gateway.throttle().state(), OutOfSync);
    gateway.turn(at(101), |_| {});
    assert_eq!(gateway.throttle().state(), Ready);
    for set in 0..14 {
        let packet = bench.packet(4 * set, 4, 1, 8);
        assert_eq!(gateway.on_packet(0, address(0), packet, at(102)), None);
    }
    gateway.turn(at(102), |_| {});
    assert_eq!(gateway.throttle().state(), OutOfSync, "the second far packet was wrong, too");
    gateway.turn(at(302), |_| {});
    assert_eq!(gateway.throttle().state(), Busy);
    gateway.receiver().on_pool(9, 10, at(303));
    let used: Vec<_> = gateway.throttle().levels().map(|level| (level.used, level.state)).collect();
    assert_eq!(used[..2], [(14, Busy), (9, Busy)]);
}

const SOURCES: u16 = 6;
const PACKING: u16 = 4;
const SETS: u64 = 40;

fn config() -> GatewayConfig {
    let flow = FlowConfig { output: Output::Stream, sets: 8, assembling: 8, ..flow(SOURCES, PACKING) };
    GatewayConfig::new(2, vec![flow], FarmConfig::new(1))
}

/// Decides everything that is pushed, and returns the sent decisions in order.
fn serve(sender: &mut Sender, now: Instant) -> Vec<(EventKey, bool)> {
    let mut entries = Vec::new();
    while sender.farm().next_push().is_some() {
        let bytes: Vec<u8> = sender.farm().push_view().pieces().flatten().copied().collect();
        sender.farm().sent(now);
        let (_, body, _) = Frame::split(&bytes).expect("a message");
        for (head, _) in Pushed::parse(body).expect("a push").pieces() {
            let verdict = if head.key.number().is_multiple_of(3) { Verdict::Accept } else { Verdict::Reject };
            entries.push(Decision { sequence: head.sequence, verdict, word: 0 });
        }
    }
    for entries in entries.chunks(32) {
        let cumulative = entries.iter().map(|entry| entry.sequence).min().unwrap_or_default();
        let (incarnation, gateway_incarnation) = (Incarnation(1), Incarnation(1));
        let entries = entries.iter().copied().collect();
        let decisions =
            Decisions { gateway: 2, incarnation, gateway_incarnation, cumulative, entries, ..Decisions::default() };
        sender.on_message(&Message::Decisions(decisions), now);
    }
    let mut left = Vec::new();
    while let Some(message) = sender.next_message(now) {
        if let Outgoing::Stream(stream) = message {
            left.extend(stream.entries.iter().map(|entry| (entry.key, entry.accept)));
        }
    }
    left
}

/// Offers all sets, some of whose packets are lost; the other half gets a turn after every `every` of them.
fn run(every: u64) -> (FlowAccount, FarmAccount, Vec<(EventKey, bool)>) {
    let mut bench = Bench::new();
    let mut sources = MepSources::new(MepSourceConfig { loss: 0.02, ..MepSourceConfig::new(SOURCES, PACKING, 60) });
    let (mut receiver, mut sender) = Gateway::new(&config()).expect("it can be").split();
    let credit = Credit { node: 0, incarnation: Incarnation(1), window: 64 };
    sender.on_message(&Message::Credit(credit), at(0));
    let (mut queue, mut left) = (VecDeque::new(), Vec::new());
    for set in 0..SETS + 8 {
        // Incomplete sets are finished before the next one begins.
        let now = at(200 * set);
        if set < SETS {
            sources.trigger(0);
            while let Some(packet) = sources.next_packet() {
                let mut bytes = Vec::new();
                sources.encode(&packet, &mut bytes);
                if !packet.is_lost {
                    assert_eq!(receiver.on_packet(0, address(packet.source), bench.payload(&bytes), now), None);
                }
            }
        }
        receiver.on_drained(0, at(200 * set + 150));
        receiver.on_time(at(200 * set + 150));
        queue.extend(core::iter::from_fn(|| receiver.take_set()));
        if set % every == 0 || set >= SETS {
            sender.on_message(&Message::Credit(credit), now);
            while let Some(set) = queue.pop_front() {
                sender.on_set(set, now);
            }
            left.extend(serve(&mut sender, now));
            sender.on_time(now);
            while let Some(set) = sender.take_empty() {
                receiver.give_back(set);
            }
        }
    }
    assert_eq!(bench.held(), 0);
    (receiver.account(0), sender.farm().account(0), left)
}

#[test]
fn it_makes_no_difference_how_far_the_halves_are_apart() {
    let (packets, farm, left) = run(1);
    assert!(packets.is_balanced() && farm.is_balanced());
    assert_eq!((packets.opened, farm.decided, left.len() as u64), (SETS, SETS * 4, SETS * 4));
    assert!(packets.incomplete > 0 && packets.open == 0);
    for every in [2, 5] {
        let (other_packets, other_farm, other_left) = run(every);
        assert_eq!((other_packets, other_left), (packets, left.clone()));
        assert_eq!(FarmAccount { in_budget: farm.in_budget, ..other_farm }, farm, "they may be later, no more");
    }
}
