//! Two event managers and a coordination service that is late, loses answers and is cut off: managers sleep, are cut off
//! from service and nodes, and are replaced again and again. At most one speaks at a time, and nothing is lost.

use super::front_end::mixed;
use super::referee::Held;
use super::world::{MANAGERS, Plan, World, manager};
use ropewalk_engine::{CoordinatedRun, Coordination, Drive, StandbyDrive};
use ropewalk_flow::manager::{LeaseAnswer, LeaseConfig};
use ropewalk_io::disk::DiskFaults;
use ropewalk_io::simulated::{Faults, Simulated};
use ropewalk_terms::{Epoch, EventKey, Instant, RunNumber};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const EVENTS: u64 = 150;
const LEASE: LeaseConfig = LeaseConfig {
    term: Duration::from_secs(1),
    margin: Duration::from_millis(50),
    drift_ppm: 100,
    interval: Duration::from_millis(150),
};

/// Grants the lease to one at a time.
struct Service {
    seed: u64,
    asked: u64,
    holder: Option<(usize, Instant)>,
    epoch: u32,
    cut: [bool; 2],
    /// For whom, when it comes, to which question, what.
    answers: Vec<(usize, Instant, u64, LeaseAnswer)>,
}

impl Service {
    fn ask(&mut self, now: Instant, whose: usize, question: u64, renews: Option<Epoch>) {
        self.asked += 1;
        let draw = mixed(self.seed, self.asked, 7);
        if self.cut[whose] || draw.is_multiple_of(10) {
            return;
        }
        let held = self.holder.filter(|&(_, until)| now < until).map(|(holder, _)| holder);
        let answer = if held.is_some_and(|holder| holder != whose) {
            LeaseAnswer::Denied
        } else {
            self.epoch += u32::from(held.is_none() || renews != Some(Epoch(self.epoch)));
            self.holder = Some((whose, now.after(LEASE.term)));
            LeaseAnswer::Granted(Epoch(self.epoch))
        };
        let late =
            Duration::from_micros(if draw.is_multiple_of(7) { draw >> 8 & 0xf_ffff } else { draw >> 8 & 0x3fff });
        self.answers.push((whose, now.after(late), question, answer));
    }
}

/// One event manager's way to the service.
pub(crate) struct Line {
    service: Rc<RefCell<Service>>,
    whose: usize,
}

impl Coordination for Line {
    fn ask(&mut self, now: Instant, question: u64, renews: Option<Epoch>) {
        self.service.borrow_mut().ask(now, self.whose, question, renews);
    }

    fn answer(&mut self, now: Instant) -> Option<(u64, LeaseAnswer)> {
        let answers = &mut self.service.borrow_mut().answers;
        let next = answers.iter().position(|&(whose, arrives, ..)| whose == self.whose && now >= arrives)?;
        let (_, _, question, answer) = answers.swap_remove(next);
        Some((question, answer))
    }

    fn next_deadline(&self) -> Option<Instant> {
        let service = self.service.borrow();
        service.answers.iter().filter(|(whose, ..)| *whose == self.whose).map(|&(_, arrives, ..)| arrives).min()
    }
}

/// One of two event managers.
pub(crate) struct Contender {
    pub(crate) drive: StandbyDrive<Simulated, Line>,
    pub(crate) asleep: bool,
    host: u32,
}

fn contest(seed: u64) -> (World, Rc<RefCell<Service>>) {
    // A slow disk: the run lasts longer than some leases.
    let (least_latency, most_latency) = (Duration::from_millis(5), Duration::from_millis(60));
    let disk = DiskFaults { least_latency, most_latency, bandwidth: Some(8 << 10), ..DiskFaults::default() };
    let mut world = World::new(Plan { network: Faults::bumpy(), disk, events: EVENTS, ..Plan::new(seed) });
    drop(world.take_manager_out());
    let (asked, epoch, cut, answers) = (0, 0, [false; 2], Vec::new());
    let service = Rc::new(RefCell::new(Service { seed, asked, holder: None, epoch, cut, answers }));
    let run = CoordinatedRun { run: RunNumber(1), first: EventKey::new(0, 1), last: Some(EventKey::new(0, EVENTS)) };
    for (whose, address) in MANAGERS.into_iter().enumerate() {
        let placed = manager(&world.plan, &world.network, address, 1);
        let line = Line { service: Rc::clone(&service), whose };
        let drive = StandbyDrive::new(placed.node, LEASE, line, run);
        world.contenders.push(Contender { drive, asleep: false, host: placed.host });
    }
    (world, service)
}

fn nodes_are_done(world: &World) -> bool {
    world.readouts.iter().all(|one| one.node.is_done()) && world.builders.iter().flatten().all(|one| one.node.is_done())
}

/// Goes on for this long, and looks who speaks.
fn watch(world: &mut World, time: Duration) {
    let end = world.now().after(time);
    while world.now() < end && !nodes_are_done(world) {
        world.step();
        let now = world.now();
        let epochs = world.contenders.iter().filter_map(|one| one.drive.epoch(now)).count();
        assert!(epochs <= 1, "both speak at {now:?}, seed {}", world.plan.seed);
    }
}

#[test]
fn at_most_one_of_two_event_managers_speaks_and_nothing_is_lost() {
    let mut epochs = 0;
    for seed in 0..10 {
        let (mut world, service) = contest(seed);
        for moment in 0..12 {
            let draw = mixed(seed, moment, 3);
            // Mostly it strikes the one that speaks.
            let now = world.now();
            let active = world.contenders.iter().position(|one| one.drive.epoch(now).is_some()).unwrap_or(0);
            let victim = if draw.is_multiple_of(4) { 1 - active } else { active };
            let host = world.contenders[victim].host;
            let node = world.readouts[(draw >> 16) as usize % 2].host;
            watch(&mut world, Duration::from_micros(draw >> 32 & 0xfff));
            match draw >> 8 & 3 {
                0 => world.contenders[victim].asleep = true,
                1 => service.borrow_mut().cut[victim] = true,
                2 => world.network.partition(host, node),
                _ => {
                    world.contenders[victim].asleep = true;
                    world.network.partition(host, node);
                }
            }
            watch(&mut world, Duration::from_micros(draw >> 40 & 0x1f_ffff));
            (world.contenders[victim].asleep, service.borrow_mut().cut[victim]) = (false, false);
            world.network.heal(host, node);
        }
        watch(&mut world, Duration::from_secs(90));
        assert!(nodes_are_done(&world), "seed {seed}: {}", world.described());
        let held = Held::in_storage(&world.storage, seed);
        let sources = world.plan.all_sources();
        held.expect_all(EVENTS, &sources);
        assert!(sources.iter().all(|&source| held.missing(source).is_empty()), "seed {seed}");
        epochs += service.borrow().epoch;
    }
    assert!(epochs > 20, "the lease changed hands {epochs} times only");
}
