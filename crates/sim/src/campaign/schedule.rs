//! Drawing what goes wrong: when, where, for how long.

use super::content::Format;
use super::fault::{ELSEWHERE, Fault, FaultKind, POWER, Place, RESET, Scheduled};
use super::scenario::{Managers, Scenario};
use ropewalk_flow::source::Random;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The most faults of one run.
const MOST: u64 = 6;
/// How long faults last.
pub(super) const LASTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(4);

/// A fault that begins then, and for how long it goes on where it does.
pub(super) fn scheduled(draw: &mut Random, at: Duration, fault: Fault, lasts: RangeInclusive<Duration>) -> Scheduled {
    let lasts = if fault.kind.is_lasting() { draw.time(*lasts.start(), *lasts.end()) } else { Duration::ZERO };
    Scheduled { at, lasts, fault }
}

/// The faults of a scenario whose sources send for `span`.
pub(super) fn draw(scenario: &Scenario, span: Duration) -> Vec<Scheduled> {
    let mut draw = Random::new(scenario.seed, 2);
    let count = if draw.one_in(12) { 0 } else { draw.between(1, MOST) };
    // Some in a burst: at one time, or while the one before goes on.
    let mut before = Duration::ZERO;
    let mut faults: Vec<Scheduled> = Vec::new();
    for _ in 0..count {
        before = moment(&mut draw, span, before);
        let kind = draw.of(&FaultKind::ALL[..FaultKind::OF_ANY]);
        let fault = fault(&mut draw, scenario, kind);
        faults.push(scheduled(&mut draw, before, fault, LASTS));
    }
    faults.sort_by_key(|scheduled| scheduled.at);
    faults
}

/// When something goes wrong; the fault before it began at `before`.
pub(super) fn moment(draw: &mut Random, span: Duration, before: Duration) -> Duration {
    match draw.below(8) {
        0 => Duration::from_micros(draw.between(0, 3000)),
        1 | 2 => before + draw.time(Duration::from_micros(10), Duration::from_millis(500)),
        3 => span + draw.time(Duration::from_micros(100), Duration::from_secs(1)),
        _ => span.mul_f64(draw.between(0, 1000) as f64 / 1000.0),
    }
}

fn source(draw: &mut Random, scenario: &Scenario) -> u16 {
    draw.below(scenario.sources.len() as u64) as u16
}

fn node(draw: &mut Random, scenario: &Scenario) -> Place {
    match draw.below(u64::from(1 + scenario.readouts + scenario.builders)) as u16 {
        0 => Place::Manager(0),
        index if index <= scenario.readouts => Place::Readout(index - 1),
        index => Place::Builder(index - 1 - scenario.readouts),
    }
}

/// A unit that may die: how event managers die follows below.
fn mortal(draw: &mut Random, scenario: &Scenario) -> Place {
    loop {
        let node = node(draw, scenario);
        if node != Place::Manager(0) {
            return node;
        }
    }
}

/// Two members with a connection between them.
fn link(draw: &mut Random, scenario: &Scenario) -> (Place, Place) {
    let readout = Place::Readout(draw.below(scenario.readouts.into()) as u16);
    let builder = Place::Builder(draw.below(scenario.builders.into()) as u16);
    let source = source(draw, scenario);
    let of_source = Place::Readout(scenario.readout_of(source.into()));
    let (one, other) = draw.of(&[
        (readout, builder),
        (readout, Place::Manager(0)),
        (builder, Place::Manager(0)),
        (Place::Source(source), of_source),
    ]);
    if draw.one_in(2) { (one, other) } else { (other, one) }
}

fn fault(draw: &mut Random, scenario: &Scenario, kind: FaultKind) -> Fault {
    let milliseconds = Duration::from_millis;
    let builder = |draw: &mut Random| Place::Builder(draw.below(scenario.builders.into()) as u16);
    match kind {
        FaultKind::Delay
        | FaultKind::SlowLink
        | FaultKind::Partition
        | FaultKind::OneWay
        | FaultKind::Reset
        | FaultKind::HalfOpen => {
            let (one, other) = link(draw, scenario);
            let fault = Fault::between(kind, one, other);
            match kind {
                FaultKind::Delay => fault.with_time(draw.time(milliseconds(1), milliseconds(300))),
                FaultKind::SlowLink => fault.with_number(1 << draw.between(12, 20)),
                _ => fault,
            }
        }
        FaultKind::Pause => {
            let (source, node) = (Place::Source(source(draw, scenario)), node(draw, scenario));
            Fault::at(kind, if draw.one_in(4) { source } else { node })
        }
        FaultKind::Crash | FaultKind::PowerCut => Fault::at(kind, mortal(draw, scenario)),
        FaultKind::Reconnect | FaultKind::PoolDry => Fault::at(kind, node(draw, scenario)),
        FaultKind::ClockStep => {
            let far = draw.of(&[10, 1000, 3_600_000]);
            let far = if draw.one_in(2) { far } else { -far };
            Fault::at(kind, mortal(draw, scenario)).with_number(far)
        }
        FaultKind::ClockDrift => {
            Fault::at(kind, node(draw, scenario)).with_number(draw.of(&[-50_000, -500, 500, 50_000]))
        }
        FaultKind::DiskFull | FaultKind::DiskErrors => Fault::at(kind, builder(draw)),
        FaultKind::DiskSlow => {
            let latency = draw.time(milliseconds(5), milliseconds(500));
            Fault::at(kind, builder(draw)).with_time(latency)
        }
        FaultKind::Garbage => Fault::at(kind, Place::Readout(draw.below(scenario.readouts.into()) as u16)),
        _ => {
            let (source, count) = (source(draw, scenario), draw.between(1, 12).cast_signed());
            // Generic fragments have no checksum of their own.
            let has_crc = scenario.sources[usize::from(source)] == Format::Ferol;
            let kind = if kind == FaultKind::WrongCrc && !has_crc { FaultKind::Slow } else { kind };
            let counts = matches!(kind, FaultKind::SendTwice | FaultKind::Skip | FaultKind::ResetCounter);
            Fault::at(kind, Place::Source(source)).with_number(if counts { count } else { 0 })
        }
    }
}

/// A source loses its connection for a moment, and its readout unit has no free block when it comes back, nor for longer
/// than events wait for an absent source.
pub(super) fn draw_latecomer(scenario: &Scenario, span: Duration, draw: &mut Random) -> [Scheduled; 2] {
    let source = source(draw, scenario);
    let readout = Place::Readout(scenario.readout_of(source.into()));
    let at = if draw.one_in(4) { Duration::ZERO } else { span.mul_f64(draw.between(0, 1000) as f64 / 1000.0) };
    let away = draw.time(*LASTS.start(), Duration::from_millis(50));
    let dry_at = at + away.mul_f64(draw.between(0, 10) as f64 / 10.0);
    let dry = scenario.time_outs.source.mul_f64(draw.between(12, 25) as f64 / 10.0);
    [
        Scheduled { at, lasts: away, fault: Fault::at(FaultKind::Disconnect, Place::Source(source)) },
        Scheduled { at: dry_at, lasts: away + dry, fault: Fault::at(FaultKind::PoolDry, readout) },
    ]
}

/// The most faults of event managers in one run.
const MOST_OF_MANAGERS: u64 = 6;

/// What happens to event managers where there are two, beside everything else, in a run that goes on for `span` after
/// its `begin`.
pub(super) fn draw_of_managers(
    scenario: &Scenario,
    begin: Duration,
    span: Duration,
    draw: &mut Random,
) -> Vec<Scheduled> {
    let mut before = begin;
    let count = draw.between(2, MOST_OF_MANAGERS);
    let faults = (0..count).map(|_| {
        before = match draw.below(10) {
            0 => Duration::from_micros(draw.between(0, 3000)),
            // While the one before is still being dealt with.
            1..4 => before + draw.time(Duration::from_micros(10), Duration::from_millis(1500)),
            4 | 5 => begin + draw.time(Duration::from_micros(10), Duration::from_millis(3)),
            6 | 7 => begin + span + draw.time(Duration::from_micros(10), Duration::from_millis(30)),
            _ => begin + span.mul_f64(draw.between(0, 1000) as f64 / 1000.0),
        };
        let fault = match scenario.managers {
            Managers::Succession => of_succession(draw),
            Managers::Alone | Managers::Standby(_) if draw.one_in(4) => of_manager_lines(draw, scenario),
            Managers::Alone | Managers::Standby(_) => of_contenders(draw),
        };
        scheduled(draw, before, fault, LASTS)
    });
    faults.collect()
}

fn of_succession(draw: &mut Random) -> Fault {
    let mut manner = |times, manner| if draw.one_in(times) { manner } else { 0 };
    if manner(2, 1) != 0 {
        Fault::new(FaultKind::ManagerReplaced).with_number(manner(3, POWER) | manner(2, ELSEWHERE))
    } else {
        Fault::new(FaultKind::ManagerOvertaken).with_number(manner(2, RESET))
    }
}

fn of_contenders(draw: &mut Random) -> Fault {
    let place = Place::Manager(draw.below(2) as u16);
    let kind = draw.of(&[
        FaultKind::ManagerCrash,
        FaultKind::ManagerPowerCut,
        FaultKind::ManagerPause,
        FaultKind::ManagerCutOff,
        FaultKind::CoordinationCut,
        FaultKind::CoordinationLate,
    ]);
    match kind {
        FaultKind::CoordinationCut if draw.one_in(3) => Fault::new(kind),
        FaultKind::CoordinationLate => {
            Fault::at(kind, place).with_time(draw.time(Duration::from_millis(10), Duration::from_secs(2)))
        }
        _ => Fault::at(kind, place),
    }
}

/// What happens to any node, here to an event manager, and to its lines.
fn of_manager_lines(draw: &mut Random, scenario: &Scenario) -> Fault {
    let place = Place::Manager(draw.below(2) as u16);
    let other = match draw.below(2) {
        0 => Place::Readout(draw.below(scenario.readouts.into()) as u16),
        _ => Place::Builder(draw.below(scenario.builders.into()) as u16),
    };
    match draw.below(9) {
        0 => Fault::between(FaultKind::Partition, place, other),
        1 => Fault::between(FaultKind::OneWay, place, other),
        2 => Fault::between(FaultKind::OneWay, other, place),
        3 => Fault::between(FaultKind::Reset, place, other),
        4 => Fault::between(FaultKind::HalfOpen, place, other),
        5 => Fault::at(FaultKind::Reconnect, place),
        6 => Fault::at(FaultKind::ClockStep, place).with_number(draw.of(&[-3_600_000, -1000, 1000, 3_600_000])),
        7 => Fault::at(FaultKind::ClockDrift, place).with_number(draw.of(&[-50_000, 50_000])),
        _ => Fault::at(FaultKind::PoolDry, place),
    }
}
