//! Sources that have nothing but a clock of their own.

use super::*;
use proptest::prelude::*;

/// A front end's clock.
#[derive(Copy, Clone, Debug)]
struct Clock {
    /// Nanoseconds in a tick.
    tick: f64,
    /// Off by this share, times 10^-6.
    ppm: f64,
    /// Each stamp is off by up to so many ticks either way.
    jitter: f64,
    /// Where it starts, in ticks.
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
    fn in_step_whatever_the_clock(seed: u64, clock in clock()) {
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
