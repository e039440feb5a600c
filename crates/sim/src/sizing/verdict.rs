//! What limits: the busiest resource where one has hardly any time left, otherwise what makes somebody wait.

use super::outcome::Outcome;
use schemars::JsonSchema;
use serde::Serialize;

/// What limits a system, and why that is said.
#[derive(Clone, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub struct Limit {
    /// The name of a resource or a buffer, or `the trigger` where everything that was triggered is built.
    pub by: String,
    /// The figures behind it, for people.
    pub because: String,
}

/// A resource that is busy for this part of the time is the limit: queues before it grow without bound soon after.
pub(super) const BUSY: f64 = 0.9;
/// One that is busy for this part of the time does not keep up, even while buffers before it still hide that.
const OVERLOADED: f64 = 0.99;
/// A rate this close to what is offered is what is offered.
pub(super) const ALL: f64 = 0.98;
/// Somebody who waits for this part of the time is held up.
pub(super) const HELD_UP: f64 = 0.05;

/// Judges by what was counted.
pub(super) fn judge(outcome: &Outcome) -> Limit {
    let busiest = outcome.resources.iter().max_by(|one, other| one.utilisation_max.total_cmp(&other.utilisation_max));
    let reached_all = outcome.rate.offered_per_s.is_some_and(|offered| outcome.rate.events_per_s >= ALL * offered);
    let overloaded = busiest.is_some_and(|busiest| busiest.utilisation_max >= OVERLOADED);
    if reached_all && outcome.dead_time < 1.0 - ALL && !overloaded {
        let next = busiest.map_or(String::new(), |next| {
            format!(
                "; the next limit is the {} ({} busy)",
                member(&next.name, next.busiest, next.count),
                percent(next.utilisation_max)
            )
        });
        return Limit {
            by: "the trigger".to_owned(),
            because: format!("everything that was triggered is built{next}"),
        };
    }
    if let Some(busiest) = busiest.filter(|busiest| busiest.utilisation_max >= BUSY) {
        let because = format!(
            "busy {} of the time ({} on average over {})",
            percent(busiest.utilisation_max),
            percent(busiest.utilisation),
            busiest.count
        );
        return Limit { by: member(&busiest.name, busiest.busiest, busiest.count), because };
    }
    waiting(outcome)
        .or_else(|| {
            busiest.map(|busiest| {
                let because = format!(
                    "no resource is busy all the time: round trips; the busiest is busy {}",
                    percent(busiest.utilisation_max)
                );
                Limit { by: busiest.name.clone(), because }
            })
        })
        .unwrap_or_default()
}

/// Nothing is busy: what makes somebody wait? Losses first, since everything behind them fills up as well; then from
/// the builder units backwards, as back-pressure runs.
fn waiting(outcome: &Outcome) -> Option<Limit> {
    let lossy = outcome.networks.iter().find(|network| network.dropped > 0);
    if let Some(network) = lossy {
        let because = format!(
            "{} packets lost, {} time-outs; {:.1} flows stand still at any time until what was lost is sent again",
            network.dropped, network.timeouts, network.stalled_flows
        );
        return Some(Limit { by: format!("switch buffers of the {}", network.name), because });
    }
    let full = |name: &str| {
        let buffer = outcome.buffers.iter().find(|buffer| buffer.name == name)?;
        let part = buffer.full.filter(|&part| part >= HELD_UP)?;
        Some(Limit { by: buffer.name.clone(), because: format!("full {} of the time", percent(part)) })
    };
    let paused = || {
        let network = outcome.networks.iter().rev().find(|network| network.paused >= HELD_UP)?;
        let because = format!(
            "senders are paused {} of the time: whoever waits behind the packet of a full port waits too",
            percent(network.paused)
        );
        Some(Limit { by: format!("switch buffers of the {}", network.name), because })
    };
    full("events of a builder unit")
        .or_else(paused)
        .or_else(|| full("pool of a readout unit"))
        .or_else(|| full("table of a readout unit"))
}

pub(super) fn member(name: &str, index: usize, count: usize) -> String {
    if count > 1 { format!("{name} (number {index} of {count})") } else { name.to_owned() }
}

pub(super) fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}
