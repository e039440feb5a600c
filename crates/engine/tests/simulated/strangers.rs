//! Connections to the port of the front ends that are no source's.

use super::world::{Plan, World};
use ropewalk_io::simulated::{Simulated, SimulatedConfig};
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::{Pool, PoolConfig, Staging};
use ropewalk_terms::Counter;
use std::time::Duration;

/// Somebody who connects and says this.
struct Stranger {
    endpoints: Simulated,
    endpoint: Endpoint,
    says: &'static [u8],
    staging: Staging,
    is_open: bool,
}

impl Stranger {
    fn new(world: &World, says: &'static [u8]) -> Self {
        let pool = |name| Pool::new(PoolConfig::heap(name, 256, 2)).expect("memory");
        let mut endpoints = world.network.dispatcher(SimulatedConfig::default(), pool("stranger receives"));
        let endpoint = endpoints.connect(&world.readouts[0].node.source_address()).expect("a name is an address");
        Self { endpoints, endpoint, says, staging: Staging::new(pool("stranger")), is_open: false }
    }

    fn turn(&mut self, world: &World) {
        let mut events = Vec::new();
        self.endpoints.poll(world.now(), &mut events);
        for event in events {
            match event {
                Event::Established { .. } => {
                    self.is_open = true;
                    if !self.says.is_empty() {
                        let mut said = vec![self.staging.write(self.says).expect("it is short")];
                        self.endpoints.send(self.endpoint, &mut said).expect("the queue is empty");
                    }
                }
                _ => self.is_open = false,
            }
        }
        // What is queued leaves with the next poll.
        self.endpoints.poll(world.now(), &mut Vec::new());
    }
}

/// A run that goes on for fifteen seconds, and these strangers after a part of it: which of them are still connected.
fn still_open(world: &mut World, strangers: &mut [Stranger], after: Duration) -> Vec<bool> {
    let end = ropewalk_terms::Instant::ZERO.after(after);
    while world.now() < end {
        strangers.iter_mut().for_each(|stranger| stranger.turn(world));
        world.step();
    }
    strangers.iter().map(|stranger| stranger.is_open).collect()
}

#[test]
fn who_says_too_little_or_nothing_is_turned_away_after_a_while() {
    for seed in 0..3 {
        let mut world = World::new(Plan::new(seed));
        world.front_ends.iter_mut().for_each(|front_end| front_end.pace = Duration::from_millis(100));
        // Half a hello, the first bytes of a block, nothing, and what is neither.
        let said: [&[u8]; 4] = [b"RWHI\x01\0\0\0", b"GZ\0", b"", b"GET / HTTP/1.0"];
        let mut strangers = said.map(|says| Stranger::new(&world, says));
        let mut open = |seconds| still_open(&mut world, &mut strangers, Duration::from_secs(seconds));
        assert_eq!(open(4), [true, true, true, false], "what is neither format shows at once");
        assert_eq!(open(6), [false, false, true, false]);
        assert_eq!(open(9), [false, false, true, false], "it may wait for its first trigger");
        assert_eq!(open(13), [false; 4], "but every source is there");
        world.run_to_end();
        let snapshot = world.snapshot();
        assert_eq!(snapshot.counter(Counter::ConnectionsRefused), 4);
        assert_eq!(snapshot.counter(Counter::GarbageBytes), 8 + 3 + 14);
        world.expect_lossless();
    }
}

/// More of them than there are blocks: whoever is not known yet is looked at where it waits, and only a few are let in at a time.
#[test]
fn strangers_take_no_memory_from_sources_and_few_connections() {
    let mut world = World::new(Plan::new(1));
    let mut strangers: Vec<Stranger> = (0..100).map(|_| Stranger::new(&world, b"RWHI\x01\0\0\0")).collect();
    world.front_ends.iter_mut().for_each(|front_end| front_end.pace = Duration::from_millis(50));
    still_open(&mut world, &mut strangers, Duration::from_secs(4));
    let refused = world.snapshot().counter(Counter::ConnectionsRefused);
    assert!((84..100).contains(&refused), "few are let in at a time, and these may take a while: {refused}");
    still_open(&mut world, &mut strangers, Duration::from_secs(6));
    world.run_to_end();
    assert_eq!(world.snapshot().counter(Counter::ConnectionsRefused), 100);
    world.expect_lossless();
}
