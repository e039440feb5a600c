//! Drawing what goes wrong: when, where, for how long.

use super::content::Format;
use super::draw::Draw;
use super::fault::{Fault, FaultKind, Place, Scheduled};
use super::scenario::{Managers, Scenario};
use std::time::Duration;

/// The most faults of one run.
const MOST: u64 = 6;
/// Faults last from so long ...
pub(super) const SHORTEST: Duration = Duration::from_millis(1);
/// ... to so long.
pub(super) const LONGEST: Duration = Duration::from_secs(4);

/// The faults of a scenario whose sources send for `span`.
pub(super) fn draw(scenario: &Scenario, span: Duration) -> Vec<Scheduled> {
    let mut draw = Draw::new(scenario.seed, 2);
    let count = if draw.one_in(12) { 0 } else { draw.between(1, MOST) };
    // Some in a burst: at one time, or while the one before goes on.
    let mut before = Duration::ZERO;
    let mut faults: Vec<Scheduled> = Vec::new();
    for _ in 0..count {
        let at = moment(&mut draw, span, before);
        before = at;
        let kind = draw.of(&FaultKind::ALL[..FaultKind::OF_ANY]);
        let (fault, is_lasting) = fault(&mut draw, scenario, kind);
        let lasts = if is_lasting { draw.time(SHORTEST, LONGEST) } else { Duration::ZERO };
        faults.push(Scheduled { at, lasts, fault });
    }
    faults.sort_by_key(|scheduled| scheduled.at);
    faults
}

/// When something goes wrong; the fault before it began at `before`.
pub(super) fn moment(draw: &mut Draw, span: Duration, before: Duration) -> Duration {
    match draw.below(8) {
        0 => Duration::from_micros(draw.between(0, 3000)),
        1 | 2 => before + draw.time(Duration::from_micros(10), Duration::from_millis(500)),
        3 => span + draw.time(Duration::from_micros(100), Duration::from_secs(1)),
        _ => span.mul_f64(draw.between(0, 1000) as f64 / 1000.0),
    }
}

fn source(draw: &mut Draw, scenario: &Scenario) -> u16 {
    draw.below(scenario.sources.len() as u64) as u16
}

fn node(draw: &mut Draw, scenario: &Scenario) -> Place {
    match draw.below(u64::from(1 + scenario.readouts + scenario.builders)) as u16 {
        0 => Place::Manager(0),
        index if index <= scenario.readouts => Place::Readout(index - 1),
        index => Place::Builder(index - 1 - scenario.readouts),
    }
}

/// A unit that may die: how event managers die follows below.
fn mortal(draw: &mut Draw, scenario: &Scenario) -> Place {
    loop {
        let node = node(draw, scenario);
        if node != Place::Manager(0) {
            return node;
        }
    }
}

/// Two members with a connection between them.
fn link(draw: &mut Draw, scenario: &Scenario) -> (Place, Place) {
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

fn fault(draw: &mut Draw, scenario: &Scenario, kind: FaultKind) -> (Fault, bool) {
    match kind {
        FaultKind::Delay
        | FaultKind::SlowLink
        | FaultKind::Partition
        | FaultKind::OneWay
        | FaultKind::Reset
        | FaultKind::HalfOpen => network(draw, scenario, kind),
        FaultKind::Pause
        | FaultKind::Crash
        | FaultKind::PowerCut
        | FaultKind::Reconnect
        | FaultKind::ClockStep
        | FaultKind::ClockDrift
        | FaultKind::PoolDry => process(draw, scenario, kind),
        FaultKind::DiskFull => (Fault::DiskFull(draw.below(scenario.builders.into()) as u16), true),
        FaultKind::DiskSlow => {
            let latency = draw.time(Duration::from_millis(5), Duration::from_millis(500));
            (Fault::DiskSlow { builder: draw.below(scenario.builders.into()) as u16, latency }, true)
        }
        FaultKind::DiskErrors => (Fault::DiskErrors(draw.below(scenario.builders.into()) as u16), true),
        FaultKind::Garbage => (Fault::Garbage(draw.below(scenario.readouts.into()) as u16), true),
        _ => of_source(draw, scenario, kind),
    }
}

fn network(draw: &mut Draw, scenario: &Scenario, kind: FaultKind) -> (Fault, bool) {
    let (one, other) = link(draw, scenario);
    match kind {
        FaultKind::Delay => {
            let latency = draw.time(Duration::from_millis(1), Duration::from_millis(300));
            (Fault::Delay { one, other, latency }, true)
        }
        FaultKind::SlowLink => (Fault::SlowLink { one, other, rate: 1 << draw.between(12, 20) }, true),
        FaultKind::Partition => (Fault::Partition { one, other }, true),
        FaultKind::OneWay => (Fault::OneWay { from: one, to: other }, true),
        FaultKind::Reset => (Fault::Reset { one, other }, false),
        _ => (Fault::HalfOpen { one, other }, false),
    }
}

fn process(draw: &mut Draw, scenario: &Scenario, kind: FaultKind) -> (Fault, bool) {
    match kind {
        FaultKind::Pause => {
            let source = Place::Source(source(draw, scenario));
            let node = node(draw, scenario);
            (Fault::Pause(if draw.one_in(4) { source } else { node }), true)
        }
        FaultKind::Crash => (Fault::Crash(mortal(draw, scenario)), true),
        FaultKind::PowerCut => (Fault::PowerCut(mortal(draw, scenario)), true),
        FaultKind::Reconnect => (Fault::Reconnect(node(draw, scenario)), true),
        FaultKind::ClockStep => {
            let far = draw.of(&[10, 1000, 3_600_000]);
            let milliseconds = if draw.one_in(2) { far } else { -far };
            (Fault::ClockStep { place: mortal(draw, scenario), milliseconds }, false)
        }
        FaultKind::ClockDrift => {
            (Fault::ClockDrift { place: node(draw, scenario), ppm: draw.of(&[-50_000, -500, 500, 50_000]) }, true)
        }
        _ => (Fault::PoolDry(node(draw, scenario)), true),
    }
}

fn of_source(draw: &mut Draw, scenario: &Scenario, kind: FaultKind) -> (Fault, bool) {
    let source = source(draw, scenario);
    let count = draw.between(1, 12);
    match kind {
        FaultKind::StopMidFragment => (Fault::StopMidFragment(source), true),
        FaultKind::Disconnect => (Fault::Disconnect(source), true),
        FaultKind::SendTwice => (Fault::SendTwice { source, count }, false),
        FaultKind::Skip => (Fault::Skip { source, count }, false),
        FaultKind::ResetCounter => (Fault::ResetCounter { source, count }, false),
        FaultKind::Jump => (Fault::Jump(source), false),
        // Generic fragments have no checksum of their own.
        FaultKind::WrongCrc if scenario.sources[usize::from(source)] == Format::Ferol => {
            (Fault::WrongCrc(source), false)
        }
        FaultKind::HugeLength => (Fault::HugeLength(source), false),
        _ => (Fault::Slow(source), true),
    }
}

/// A source loses its connection for a moment, and its readout unit has no free block when it comes back, nor for longer
/// than events wait for whoever is absent.
pub(super) fn draw_latecomer(scenario: &Scenario, span: Duration, draw: &mut Draw) -> [Scheduled; 2] {
    let source = source(draw, scenario);
    let readout = Place::Readout(scenario.readout_of(source.into()));
    let at = if draw.one_in(4) { Duration::ZERO } else { span.mul_f64(draw.between(0, 1000) as f64 / 1000.0) };
    let away = draw.time(SHORTEST, Duration::from_millis(50));
    let dry_at = at + away.mul_f64(draw.between(0, 10) as f64 / 10.0);
    let dry = scenario.time_outs.source.mul_f64(draw.between(12, 25) as f64 / 10.0);
    [
        Scheduled { at, lasts: away, fault: Fault::Disconnect(source) },
        Scheduled { at: dry_at, lasts: away + dry, fault: Fault::PoolDry(readout) },
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
    draw: &mut Draw,
) -> Vec<Scheduled> {
    let mut before = begin;
    let count = draw.between(2, MOST_OF_MANAGERS);
    let faults = (0..count).map(|_| {
        let at = match draw.below(10) {
            0 => Duration::from_micros(draw.between(0, 3000)),
            // While the one before is still being dealt with.
            1..4 => before + draw.time(Duration::from_micros(10), Duration::from_millis(1500)),
            4 | 5 => begin + draw.time(Duration::from_micros(10), Duration::from_millis(3)),
            6 | 7 => begin + span + draw.time(Duration::from_micros(10), Duration::from_millis(30)),
            _ => begin + span.mul_f64(draw.between(0, 1000) as f64 / 1000.0),
        };
        before = at;
        let (fault, is_lasting) = match scenario.managers {
            Managers::Succession => (of_succession(draw), true),
            Managers::Alone | Managers::Standby(_) if draw.one_in(4) => of_manager_lines(draw, scenario),
            Managers::Alone | Managers::Standby(_) => (of_contenders(draw), true),
        };
        let lasts = if is_lasting { draw.time(SHORTEST, LONGEST) } else { Duration::ZERO };
        Scheduled { at, lasts, fault }
    });
    faults.collect()
}

fn of_succession(draw: &mut Draw) -> Fault {
    if draw.one_in(2) {
        Fault::ManagerReplaced { power: draw.one_in(3), elsewhere: draw.one_in(2) }
    } else {
        Fault::ManagerOvertaken { reset: draw.one_in(2) }
    }
}

fn of_contenders(draw: &mut Draw) -> Fault {
    let manager = draw.below(2) as u16;
    match draw.below(6) {
        0 => Fault::ManagerCrash(manager),
        1 => Fault::ManagerPowerCut(manager),
        2 => Fault::ManagerPause(manager),
        3 => Fault::ManagerCutOff(manager),
        4 => Fault::CoordinationCut(draw.of(&[None, Some(manager), Some(manager)])),
        _ => {
            let late = draw.time(Duration::from_millis(10), Duration::from_secs(2));
            Fault::CoordinationLate { manager, late }
        }
    }
}

/// What happens to any node, here to an event manager, and to its lines.
fn of_manager_lines(draw: &mut Draw, scenario: &Scenario) -> (Fault, bool) {
    let place = Place::Manager(draw.below(2) as u16);
    let other = draw.of(&[Place::Readout(0), Place::Builder(0)]);
    let other = match other {
        Place::Readout(_) => Place::Readout(draw.below(scenario.readouts.into()) as u16),
        _ => Place::Builder(draw.below(scenario.builders.into()) as u16),
    };
    match draw.below(9) {
        0 => (Fault::Partition { one: place, other }, true),
        1 => (Fault::OneWay { from: place, to: other }, true),
        2 => (Fault::OneWay { from: other, to: place }, true),
        3 => (Fault::Reset { one: place, other }, false),
        4 => (Fault::HalfOpen { one: place, other }, false),
        5 => (Fault::Reconnect(place), true),
        6 => (Fault::ClockStep { place, milliseconds: draw.of(&[-3_600_000, -1000, 1000, 3_600_000]) }, false),
        7 => (Fault::ClockDrift { place, ppm: draw.of(&[-50_000, 50_000]) }, true),
        _ => (Fault::PoolDry(place), true),
    }
}
