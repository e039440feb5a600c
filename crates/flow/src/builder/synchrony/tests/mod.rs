//! Sources that slip, and sources that do not: with simulated triggers, and those of a real detector.

mod slips;

use super::{Action, Change, Config, ConfigError, Doubt, Observation, SourceConfig, Synchrony, Verdict};
use proptest::prelude::*;
use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use ropewalk_terms::{Cause, EventKey, SourceId};
use ropewalk_wire::message::{FragmentFlags, FragmentMeta, SynchronyState};

/// A small generator of random numbers (SplitMix64): tests must be reproducible on every machine.
struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// From 0 up to 1, exclusive.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }
}

/// The same cases on every machine, every time; `PROPTEST_RNG_SEED` selects others.
fn cases(count: u32) -> ProptestConfig {
    let default = ProptestConfig::with_cases(count);
    let rng_seed = if default.rng_seed == RngSeed::Random { RngSeed::Fixed(843) } else { default.rng_seed };
    ProptestConfig { rng_seed, failure_persistence: None, ..default }
}

/// A true trigger.
#[derive(Copy, Clone, Debug)]
pub(super) struct Trigger {
    pub(super) bunch_crossing: u16,
    /// In ns.
    pub(super) time: f64,
}

/// Triggers at random times, 10 us apart on average, in an orbit of 3564 crossings of 25 ns.
fn random_triggers(seed: u64, count: usize) -> Vec<Trigger> {
    let mut random = Random(seed);
    let mut time = 1e6;
    (0..count)
        .map(|_| {
            time += 75.0 - 10_000.0 * (1.0 - random.fraction()).ln();
            Trigger { bunch_crossing: ((time / 25.0) as u64 % 3564) as u16, time }
        })
        .collect()
}

/// The index of the trigger that a source's n-th event carries.
fn in_step(count: usize) -> Vec<usize> {
    (0..count).collect()
}

/// The source loses `lost` triggers from its event `at` on, and numbers the rest without a gap.
fn losing(mut carried: Vec<usize>, at: usize, lost: usize) -> Vec<usize> {
    carried.drain(at..at + lost);
    carried
}

/// The source counts the trigger of its event `at` another `more` times.
fn doubling(mut carried: Vec<usize>, at: usize, more: usize) -> Vec<usize> {
    let trigger = carried[at];
    carried.splice(at..at, core::iter::repeat_n(trigger, more));
    carried
}

/// Sources 0, 1, 2 ... with default keys.
pub(super) fn config(sources: u32) -> Config {
    Config::new((0..sources).map(|source| SourceConfig::new(SourceId(source))))
}

/// Feeds events 0, 1, 2 ... as `row` gives them; returns the reported changes.
fn feed(machine: &mut Synchrony, events: usize, mut row: impl FnMut(usize) -> Vec<Observation>) -> Vec<Change> {
    let mut changes = Vec::new();
    for event in 0..events {
        machine.observe(EventKey::new(0, event as u64), &row(event));
        changes.extend(core::iter::from_fn(|| machine.poll()));
    }
    changes
}

/// The verdicts on a source, with since and at, in the order of the reports.
fn verdicts(changes: &[Change], source: u32) -> Vec<(Verdict, u64, u64)> {
    changes
        .iter()
        .filter(|change| change.source == SourceId(source))
        .map(|change| (change.verdict, change.since.number(), change.at.number()))
        .collect()
}

pub(super) fn machine(config: Config) -> Synchrony {
    Synchrony::new(config).expect("the test's configuration is right")
}

fn change(verdict: Verdict) -> Change {
    Change { source: SourceId(843), verdict, since: EventKey::new(0, 2000), at: EventKey::new(0, 2040), action: None }
}

#[test]
fn verdicts_are_lines_of_the_summary() {
    let lines = [
        (Verdict::Offset(1), "source 843: one event early since event 2000"),
        (Verdict::Offset(-3), "source 843: 3 events late since event 2000"),
        (Verdict::InSync, "source 843: in sync since event 2000"),
        (Verdict::Lost, "source 843: lost since event 2000"),
        (Verdict::CannotTell(Doubt::NoInformation), "source 843: cannot tell, the triggers are too regular"),
    ];
    for (verdict, line) in lines {
        assert_eq!(change(verdict).to_string(), line);
    }
}

#[test]
fn verdicts_have_causes_and_messages() {
    let offset = change(Verdict::Offset(-2));
    assert_eq!(offset.verdict.cause(), Some(Cause::SynchronyOffset));
    let message = SynchronyState { source: SourceId(843), verdict: 2, offset: -2, since: EventKey::new(0, 2000) };
    assert_eq!(SynchronyState::from(&offset), message);
    assert_eq!(Verdict::Lost.cause(), Some(Cause::SynchronyLost));
    assert_eq!(Verdict::InSync.cause(), None);
    assert_eq!(Verdict::CannotTell(Doubt::TooFew).cause(), None);
}

#[test]
fn a_displacement_carries_the_configured_action_and_flags_its_source_alone() {
    let triggers = random_triggers(50, 700);
    let carried = losing(in_step(700), 300, 1);
    let mut config = config(3);
    config.action = Action::Pause;
    let mut machine = machine(config);
    let crossing = |trigger: &Trigger| Observation::MISSING.with_bunch_crossing(trigger.bunch_crossing);
    let changes = feed(&mut machine, 600, |event| {
        vec![crossing(&triggers[event]), crossing(&triggers[carried[event]]), crossing(&triggers[event])]
    });
    let actions: Vec<_> = changes.iter().map(|change| (change.verdict, change.action)).collect();
    let in_sync = (Verdict::InSync, None);
    assert_eq!(actions, [in_sync, in_sync, (Verdict::Offset(1), Some(Action::Pause))]);
    assert_eq!([0, 1, 2, 3].map(|source| machine.cause(source)), [None, Some(Cause::SynchronyOffset), None, None]);
    assert!(machine.any_displaced());
}

#[test]
fn wrong_configurations_are_refused() {
    let mut unknown = config(2);
    unknown.reference = Some(SourceId(7));
    assert_eq!(Synchrony::new(unknown).err(), Some(ConfigError::UnknownReference(SourceId(7))));
    let mut short = config(2);
    short.window = 10;
    assert_eq!(Synchrony::new(short).err(), Some(ConfigError::Window(10)));
}

#[test]
fn fragments_become_observations() {
    let mut meta = FragmentMeta::missing(SourceId(1), Cause::TimedOut);
    assert!(Observation::from(&meta).is_missing());
    meta.flags = FragmentFlags::HAS_BUNCH_CROSSING;
    meta.bunch_crossing = 654;
    let observation = Observation::from(&meta);
    assert_eq!((observation.bunch_crossing(), observation.time()), (Some(654), None));
    meta.flags = meta.flags.with(FragmentFlags::HAS_TIME);
    meta.time = 99;
    assert_eq!(Observation::from(&meta).time(), Some(99));
}

#[test]
fn an_observation_is_16_bytes() {
    assert_eq!(size_of::<Observation>(), 16);
}

#[test]
fn lists_never_grow() {
    let triggers = random_triggers(51, 3000);
    let mut random = Random(52);
    let mut machine = machine(config(20));
    let room = machine.room();
    for (number, trigger) in triggers.iter().enumerate() {
        // Changes are not polled, so that they accumulate to the maximum.
        let nonsense = number / 400 % 2 == 1;
        let row: Vec<_> = (0..20)
            .map(|source| {
                let crossing = if nonsense && source > 0 { random.below(3564) as u16 } else { trigger.bunch_crossing };
                Observation::MISSING.with_bunch_crossing(crossing)
            })
            .collect();
        machine.observe(EventKey::new(0, number as u64), &row);
    }
    machine.conclude();
    assert_eq!(machine.room(), room);
    assert_eq!(core::iter::from_fn(|| machine.poll()).count(), 19);
}

/// One trigger every `period` crossings of 25 ns.
fn pulser(period: u64, count: usize) -> Vec<Trigger> {
    (0..count as u64)
        .map(|n| Trigger { bunch_crossing: (n * period % 3564) as u16, time: (n * period) as f64 * 25.0 + 1e6 })
        .collect()
}

fn timed(trigger: &Trigger, random: &mut Random) -> Observation {
    Observation::MISSING.with_time((trigger.time + 3.0 * random.fraction()) as u64)
}

#[test]
fn a_pulser_is_blind_in_time_whether_or_not_a_source_slips() {
    for slips in [false, true] {
        let triggers = pulser(4000, 3000);
        let carried = if slips { losing(in_step(3000), 1000, 1) } else { in_step(3000) };
        let (mut random, mut machine) = (Random(40), machine(config(2)));
        let changes = feed(&mut machine, 2900, |event| {
            vec![timed(&triggers[event], &mut random), timed(&triggers[carried[event]], &mut random)]
        });
        assert_eq!(verdicts(&changes, 1).len(), 1);
        assert_eq!(verdicts(&changes, 1)[0].0, Verdict::CannotTell(Doubt::NoInformation));
    }
}

#[test]
fn a_pulser_locked_to_the_orbit_is_blind_in_bunch_crossing() {
    let mut machine = machine(config(2));
    let changes = feed(&mut machine, 1000, |_| vec![Observation::MISSING.with_bunch_crossing(17); 2]);
    assert_eq!(verdicts(&changes, 1).len(), 1);
    assert_eq!(verdicts(&changes, 1)[0].0, Verdict::CannotTell(Doubt::NoInformation));
}

#[test]
fn a_pulser_beside_the_orbit_tells_by_bunch_crossing() {
    let triggers = pulser(4001, 2000);
    let carried = doubling(in_step(2000), 800, 1);
    let mut machine = machine(config(2));
    let crossing = |trigger: &Trigger| Observation::MISSING.with_bunch_crossing(trigger.bunch_crossing);
    let changes =
        feed(&mut machine, 1500, |event| vec![crossing(&triggers[event]), crossing(&triggers[carried[event]])]);
    let told: Vec<_> = verdicts(&changes, 1).iter().map(|&(verdict, since, _)| (verdict, since)).collect();
    assert_eq!(told, [(Verdict::InSync, 0), (Verdict::Offset(-1), 801)]);
}

#[test]
fn an_ambiguous_offset_is_not_guessed() {
    // Four crossings by turns: one event early is three events late. The slip shows, its size does not.
    let triggers = pulser(891, 2000);
    let carried = losing(in_step(2000), 800, 1);
    let mut machine = machine(config(2));
    let crossing = |trigger: &Trigger| Observation::MISSING.with_bunch_crossing(trigger.bunch_crossing);
    let changes =
        feed(&mut machine, 1500, |event| vec![crossing(&triggers[event]), crossing(&triggers[carried[event]])]);
    let told: Vec<_> = verdicts(&changes, 1).iter().map(|&(verdict, since, _)| (verdict, since)).collect();
    assert_eq!(told, [(Verdict::InSync, 0), (Verdict::Lost, 800)]);
}

#[test]
fn a_few_random_triggers_among_a_pulsers_are_enough() {
    let mut random = Random(41);
    let triggers: Vec<_> = (0..3000)
        .map(|_| Trigger { bunch_crossing: if random.chance(0.2) { random.below(3564) as u16 } else { 17 }, time: 0.0 })
        .collect();
    let carried = losing(in_step(3000), 1000, 1);
    let mut machine = machine(config(2));
    let crossing = |trigger: &Trigger| Observation::MISSING.with_bunch_crossing(trigger.bunch_crossing);
    let changes =
        feed(&mut machine, 2000, |event| vec![crossing(&triggers[event]), crossing(&triggers[carried[event]])]);
    let told = verdicts(&changes, 1);
    let (verdict, since, at) = *told.last().expect("there is a verdict");
    assert_eq!(verdict, Verdict::Offset(1), "{told:?}");
    assert!(since.abs_diff(1000) <= 30 && at <= 1300, "since {since}, at {at}");
}

#[test]
fn when_the_pulser_ends_the_verdict_comes() {
    let (regular, mut triggers) = (pulser(4000, 1000), random_triggers(42, 3000));
    let end = regular[999].time;
    triggers.iter_mut().for_each(|trigger| trigger.time += end);
    let all: Vec<_> = regular.into_iter().chain(triggers).collect();
    let carried = losing(in_step(4000), 400, 1);
    let (mut random, mut machine) = (Random(43), machine(config(2)));
    let changes = feed(&mut machine, 2000, |event| {
        vec![timed(&all[event], &mut random), timed(&all[carried[event]], &mut random)]
    });
    let told = verdicts(&changes, 1);
    assert_eq!(told[0].0, Verdict::CannotTell(Doubt::NoInformation));
    let (verdict, since, at) = told[1];
    assert_eq!((told.len(), verdict), (2, Verdict::Offset(1)), "{told:?}");
    // The time of the slip cannot be narrowed further than into the regular triggers.
    assert!((400..=1001).contains(&since) && at <= 1400, "since {since}, at {at}");
}

/// A front end's clock.
#[derive(Copy, Clone, Debug)]
struct Clock {
    /// Nanoseconds per tick.
    tick: f64,
    /// Deviation from that, times 10^-6.
    ppm: f64,
    /// Maximum deviation of each stamp, in ticks, either way.
    jitter: f64,
    /// Its start, in ticks.
    start: f64,
}

impl Clock {
    fn stamp(&self, trigger: &Trigger, random: &mut Random) -> Observation {
        let ticks = trigger.time / self.tick * (1.0 + self.ppm * 1e-6) + self.start;
        let jitter = (random.fraction() * 2.0 - 1.0) * self.jitter;
        Observation::MISSING.with_time((ticks + jitter) as u64)
    }
}

const REFERENCE: Clock = Clock { tick: 25.0, ppm: 0.0, jitter: 1.0, start: 0.0 };

fn clock() -> impl Strategy<Value = Clock> {
    let tick = prop_oneof![Just(1.0), Just(8.0), Just(25.0), Just(100.0 / 3.0)];
    (tick, -100.0..100.0_f64, 0.0..2.0_f64, 0.0..1e12_f64).prop_map(|(tick, ppm, jitter, start)| Clock {
        tick,
        ppm,
        jitter,
        start,
    })
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn in_step_with_any_clock(seed: u64, clock in clock()) {
        let triggers = random_triggers(seed, 1500);
        let (mut random, mut machine) = (Random(seed), machine(config(2)));
        let changes = feed(&mut machine, 1500, |event| {
            vec![REFERENCE.stamp(&triggers[event], &mut random), clock.stamp(&triggers[event], &mut random)]
        });
        let told = verdicts(&changes, 1);
        prop_assert_eq!(told.len(), 1, "{:?}", told);
        prop_assert_eq!(told[0].0, Verdict::InSync);
    }

    #[test]
    fn a_slip_is_found_by_intervals(seed: u64, clock in clock(), at in 0..700_usize, size in 1..50_usize, early: bool) {
        let triggers = random_triggers(seed, 1400);
        let carried = in_step(1400);
        let carried = if early { losing(carried, at, size) } else { doubling(carried, at, size) };
        let (mut random, mut machine) = (Random(seed), machine(config(2)));
        let changes = feed(&mut machine, 1200, |event| {
            vec![REFERENCE.stamp(&triggers[event], &mut random), clock.stamp(&triggers[carried[event]], &mut random)]
        });
        let told = verdicts(&changes, 1);
        let (verdict, since, found) = *told.last().expect("there is a verdict");
        prop_assert!(told.len() <= 2, "{:?}", told);
        prop_assert_eq!(verdict, Verdict::Offset(if early { size as i16 } else { -(size as i16) }));
        // The last of the doubled events begins the first right interval.
        let first = if early { at } else { at + size };
        prop_assert!(since.abs_diff(first as u64) <= size.max(2) as u64, "slipped at {first}, said since {since}");
        prop_assert!(found <= (at + size + 200) as u64, "slipped at {at}, found at {found}");
    }

    #[test]
    fn a_jump_of_time_is_no_offset(seed: u64, clock in clock(), jump in -1e9..1e9_f64) {
        let triggers = random_triggers(seed, 1500);
        let (mut random, mut machine) = (Random(seed), machine(config(2)));
        let jumped = Clock { start: clock.start + 2e9 + jump, ..clock };
        let clock = Clock { start: clock.start + 2e9, ..clock };
        let changes = feed(&mut machine, 1500, |event| {
            let own = if event < 700 { clock } else { jumped };
            vec![REFERENCE.stamp(&triggers[event], &mut random), own.stamp(&triggers[event], &mut random)]
        });
        prop_assert_eq!(verdicts(&changes, 1).len(), 1, "{:?}", changes);
        prop_assert_eq!(verdicts(&changes, 1)[0].0, Verdict::InSync);
    }
}

#[test]
fn a_clock_whose_drift_drifts_stays_in_step() {
    // From +100 to -100 ppm and back, as an oscillator that warms up, and gaps of a second between spills.
    let triggers = random_triggers(30, 20_000);
    let (mut random, mut machine) = (Random(31), machine(config(2)));
    let (mut own, mut gap, mut last) = (0.0, 0.0, triggers[0].time);
    let changes = feed(&mut machine, 20_000, |event| {
        gap = (event / 1000) as f64 * 1e9;
        let time = triggers[event].time + gap;
        let ppm = 100.0 * (event as f64 / 3000.0).cos();
        own += (time - last) / 8.0 * (1.0 + ppm * 1e-6);
        last = time;
        let seen = Trigger { time, ..triggers[event] };
        vec![
            REFERENCE.stamp(&seen, &mut random),
            Observation::MISSING.with_time((own + 2.0 * random.fraction()) as u64),
        ]
    });
    assert_eq!(verdicts(&changes, 1).len(), 1, "{changes:?}");
    assert_eq!(verdicts(&changes, 1)[0].0, Verdict::InSync);
    let status = machine.statuses().nth(1).expect("two sources");
    assert!(status.disagreements <= 40, "{} disagreements", status.disagreements);
}

#[test]
fn a_narrow_counter_wraps() {
    let triggers = random_triggers(32, 3000);
    let carried = losing(in_step(3000), 2000, 1);
    let mut config = config(2);
    config.sources[1].time_bits = 20;
    let (mut random, mut machine) = (Random(33), machine(config));
    let clock = Clock { tick: 8.0, ..REFERENCE };
    let changes = feed(&mut machine, 2500, |event| {
        let wide = clock.stamp(&triggers[carried[event]], &mut random).time().expect("a clock always says something");
        vec![REFERENCE.stamp(&triggers[event], &mut random), Observation::MISSING.with_time(wide & 0xf_ffff)]
    });
    let told: Vec<_> = verdicts(&changes, 1).iter().map(|&(verdict, since, _)| (verdict, since)).collect();
    assert_eq!(told, [(Verdict::InSync, 0), (Verdict::Offset(1), 2000)]);
}

#[test]
fn another_clock_frequency_is_learnt_again() {
    let triggers = random_triggers(34, 3000);
    let (mut random, mut machine) = (Random(35), machine(config(2)));
    let (slow, fast) = (Clock { tick: 25.0, ..REFERENCE }, Clock { tick: 6.25, ..REFERENCE });
    let changes = feed(&mut machine, 3000, |event| {
        let own = if event < 1500 { slow } else { fast };
        vec![REFERENCE.stamp(&triggers[event], &mut random), own.stamp(&triggers[event], &mut random)]
    });
    assert!(verdicts(&changes, 1).iter().all(|told| told.0 == Verdict::InSync), "{changes:?}");
}
