//! What limits a push system: what is lost, what is busy, or what stops the trigger.

use super::super::outcome::Outcome;
use super::super::verdict::{ALL, BUSY, HELD_UP, Limit, member, percent};

/// Judges by what was counted.
pub(super) fn judge(outcome: &Outcome) -> Limit {
    let busiest = outcome.resources.iter().max_by(|one, other| one.utilisation_max.total_cmp(&other.utilisation_max));
    let who = busiest.map_or(String::new(), |one| {
        format!("{} ({} busy)", member(&one.name, one.busiest, one.count), percent(one.utilisation_max))
    });
    if let Some(network) = outcome.networks.iter().find(|network| network.dropped > 0) {
        let incomplete: u64 = outcome.flows.iter().map(|flow| flow.incomplete).sum();
        let because = format!(
            "{} of {} packets lost, and {incomplete} sets of events incomplete; the busiest is the {who}",
            network.dropped, network.packets
        );
        return Limit { by: network.name.clone(), because };
    }
    let reached_all = outcome.rate.offered_per_s.is_some_and(|offered| outcome.rate.events_per_s >= ALL * offered);
    if reached_all {
        let because = format!("everything that was triggered is built; the next limit is the {who}");
        return Limit { by: "the trigger".to_owned(), because };
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
    let full = outcome.buffers.iter().filter(|buffer| buffer.full.is_some_and(|full| full >= HELD_UP));
    let fullest = full.max_by(|one, other| one.full.unwrap_or(0.0).total_cmp(&other.full.unwrap_or(0.0)));
    fullest.map_or_else(
        || Limit {
            by: "the throttle".to_owned(),
            because: format!("nothing is busy all the time; the busiest is the {who}"),
        },
        |buffer| {
            let because = format!("full {} of the time; the busiest is the {who}", percent(buffer.full.unwrap_or(0.0)));
            Limit { by: buffer.name.clone(), because }
        },
    )
}
