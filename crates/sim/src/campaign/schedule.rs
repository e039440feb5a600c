//! Drawing what goes wrong: when, where, for how long.

use super::content::Format;
use super::draw::Draw;
use super::fault::{Fault, FaultKind, Scheduled};
use super::place::Place;
use super::scenario::Scenario;
use std::time::Duration;

/// The most faults of one run.
const MOST: u64 = 6;
/// Faults last from so long ...
const SHORTEST: Duration = Duration::from_millis(1);
/// ... to so long.
const LONGEST: Duration = Duration::from_secs(4);

/// The faults of a scenario whose sources send for `span`.
pub(super) fn draw(scenario: &Scenario, span: Duration) -> Vec<Scheduled> {
    let mut draw = Draw::new(scenario.seed, 2);
    let count = if draw.one_in(12) { 0 } else { draw.between(1, MOST) };
    // Some in a burst: at one time, or while the one before goes on.
    let mut before = Duration::ZERO;
    let mut faults: Vec<Scheduled> = Vec::new();
    for _ in 0..count {
        let at = match draw.below(8) {
            0 => Duration::from_micros(draw.between(0, 3000)),
            1 | 2 => before + draw.time(Duration::from_micros(10), Duration::from_millis(500)),
            3 => span + draw.time(Duration::from_micros(100), Duration::from_secs(1)),
            _ => span.mul_f64(draw.between(0, 1000) as f64 / 1000.0),
        };
        before = at;
        let kind = draw.of(&FaultKind::ALL);
        let (fault, is_lasting) = fault(&mut draw, scenario, kind);
        let lasts = if is_lasting { draw.time(SHORTEST, LONGEST) } else { Duration::ZERO };
        faults.push(Scheduled { at, lasts, fault });
    }
    faults.sort_by_key(|scheduled| scheduled.at);
    faults
}

fn source(draw: &mut Draw, scenario: &Scenario) -> u16 {
    draw.below(scenario.sources.len() as u64) as u16
}

fn node(draw: &mut Draw, scenario: &Scenario) -> Place {
    match draw.below(u64::from(1 + scenario.readouts + scenario.builders)) as u16 {
        0 => Place::Manager,
        index if index <= scenario.readouts => Place::Readout(index - 1),
        index => Place::Builder(index - 1 - scenario.readouts),
    }
}

/// A node that may die: the event manager's successor is another story than its return.
fn mortal(draw: &mut Draw, scenario: &Scenario) -> Place {
    loop {
        let node = node(draw, scenario);
        if node != Place::Manager {
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
        (readout, Place::Manager),
        (builder, Place::Manager),
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
