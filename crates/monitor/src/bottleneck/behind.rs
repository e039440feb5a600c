//! Rules about what lies behind the readout units' pools, where everything is held up: who is busy all the time.

use super::rules::{View, finding, percent};
use super::{Finding, Limit};
use crate::NodeRates;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Counter, Role};

/// What does something for more of the time can hardly do more.
const BUSY: f64 = 0.8;
/// A thread that has work for more of the time can hardly take more.
const THREAD_BUSY: f64 = 0.95;
/// Builder units without room for so much of the time hold up what is before them. It need not be more: before the next event comes they
/// have room for a while, which they have told and nobody has used yet.
const FULL: f64 = 0.3;
/// A gateway that stops the trigger for more of the time limits the run.
const STOPPED: f64 = 0.2;
/// A connection on which something waits for so much of the time is full.
const WAITS: f64 = 0.5;

/// The builder units, where none of them has room for further events for most of the time: one that has is given those.
fn full_builders<'a>(view: &'a View<'_>) -> Option<impl Iterator<Item = &'a NodeRates>> {
    let builders = || view.rates.nodes.iter().filter(|rates| rates.node.role == Role::Builder);
    let is_full = |rates: &NodeRates| rates.shares.full_share.unwrap_or(0.0) >= FULL;
    (view.is_held_up() && builders().next().is_some() && builders().all(is_full)).then(builders)
}

/// The node of which a share is greatest, if that is so great.
fn greatest<'a>(
    nodes: impl Iterator<Item = &'a NodeRates>,
    share: impl Fn(&NodeRates) -> Option<f64>,
    least: f64,
) -> Option<(&'a NodeRates, f64)> {
    let mut shares = nodes.filter_map(|rates| Some((rates, share(rates)?)));
    if is_planted(Flaw::NeighbourBlamed) {
        return shares.find(|&(_, share)| share >= least);
    }
    shares.max_by(|(_, one), (_, other)| one.total_cmp(other)).filter(|&(_, share)| share >= least)
}

fn full(rates: &NodeRates) -> (String, f64) {
    let share = rates.shares.full_share.unwrap_or(0.0);
    (format!("part of the time that {} has no room for events", rates.node), share)
}

/// Why a gateway lets no trigger come, and what helps.
const STOPS: [(Counter, &str); 4] = [
    (Counter::ThrottleErrorTime, "no node of the farm speaks with it; start some, or look at the network between"),
    (
        Counter::ThrottleQueueTime,
        "packets wait to be received; give its thread a core of its own, or the gateway more `queues`",
    ),
    (
        Counter::ThrottleMemoryTime,
        "the `memory` that packets are received into is full; what holds them is decided too late",
    ),
    (
        Counter::ThrottleSetsTime,
        "its `sets` of events wait for nodes and decisions; more nodes decide on more, or faster ones",
    ),
];

/// A gateway stops the trigger, and every source with it, for so much of the time as a source is held back elsewhere.
pub(super) fn throttle(view: &View<'_>) -> Option<Finding> {
    let share = |node, counter| {
        let (before, now) = (view.before.node(node)?, view.now.node(node)?);
        let time = now.numbers.known(counter).map(|_| now.numbers.increase(&before.numbers, counter))?;
        Some((time as f64 / 1e9 / view.rates.seconds).min(1.0))
    };
    let (rates, stopped) =
        greatest(view.rates.nodes.iter(), |rates| share(rates.node, Counter::ThrottleTime), STOPPED)?;
    let node = rates.node;
    let shares = STOPS.into_iter().filter_map(|(counter, why)| Some((counter, why, share(node, counter)?)));
    // Of two that are alike the first one is the reason of the other.
    let (counter, why, most) = shares.rev().max_by(|(_, _, one), (_, _, other)| one.total_cmp(other))?;
    let sentence =
        format!("rate limited by gateway {node}, which stops the trigger {} of the time: {why}", percent(stopped));
    let evidence = vec![
        (format!("part of the time that {node} stops the trigger"), stopped),
        (format!("{} of {node}, per second", counter.name()), most),
    ];
    Some(finding(Limit::Throttle, node, sentence, evidence))
}

/// Whichever of the two is busier: events wait for the disk behind the filter, and then the filter has nothing to do.
pub(super) fn disk_or_filter(view: &View<'_>) -> Option<Finding> {
    let disk = greatest(full_builders(view)?, |rates| rates.shares.disk_busy_share, BUSY);
    let filter = greatest(full_builders(view)?, |rates| rates.shares.filter_busy_share, BUSY);
    let busy = |found: Option<(_, f64)>| found.map_or(0.0, |(_, share)| share);
    if busy(filter) > busy(disk) { filter.map(by_filter) } else { disk.map(by_disk) }
}

fn by_disk((rates, share): (&NodeRates, f64)) -> Finding {
    let (node, rate) = (rates.node, rates.bytes_per_second);
    let sentence =
        format!("rate limited by builder unit {node}: disk writing {} busy, at {:.1} MB/s", percent(share), rate / 1e6);
    let evidence = vec![
        (format!("part of the time that {node}'s disk writes"), share),
        (
            format!("part of the time that built events of {node} wait for it"),
            rates.shares.disk_wait_share.unwrap_or(0.0),
        ),
        full(rates),
    ];
    finding(Limit::Disk, node, sentence, evidence)
}

fn by_filter((rates, share): (&NodeRates, f64)) -> Finding {
    let node = rates.node;
    let sentence = format!(
        "rate limited by the filter of builder unit {node}: its units are {} busy; more `units` decide on more",
        percent(share)
    );
    let evidence = vec![(format!("part of the time that a filter unit of {node} decides"), share), full(rates)];
    finding(Limit::Filter, node, sentence, evidence)
}

/// Requests come, what answers them does not get away, and no builder unit is too busy to take it.
pub(super) fn link(view: &View<'_>) -> Option<Finding> {
    if !view.is_held_up() {
        return None;
    }
    let (rates, share) = greatest(view.rates.nodes.iter(), |rates| rates.shares.link_wait_share, WAITS)?;
    let node = rates.node;
    let sentence = format!(
        "rate limited by the network between {node} and builder units: what they ask for waits to be sent {} of the time",
        percent(share)
    );
    Some(finding(Limit::Link, node, sentence, vec![(format!("part of the time that {node} waits to send"), share)]))
}

/// Its places are taken, and neither a disk nor a filter is what it waits for.
pub(super) fn builder(view: &View<'_>) -> Option<Finding> {
    let (rates, share) = greatest(full_builders(view)?, |rates| rates.shares.busy_share, THREAD_BUSY)?;
    let node = rates.node;
    let sentence = format!(
        "rate limited by builder unit {node}: its thread has work {} of the time; give it a core of its own, or the run another builder unit",
        percent(share)
    );
    let evidence = vec![(format!("part of the time that {node}'s thread has work"), share), full(rates)];
    Some(finding(Limit::Builder, node, sentence, evidence))
}

/// Nobody is busy: events take their time, and there may be too few at once.
pub(super) fn builder_small(view: &View<'_>) -> Option<Finding> {
    let (rates, share) = greatest(full_builders(view)?, |rates| rates.shares.full_share, FULL)?;
    let node = rates.node;
    let sentence = format!(
        "rate limited by the places of builder unit {node}: all are taken {} of the time, and neither its thread nor its disk is busy; \
         a greater `events` or `bytes` (at most half of its `pool` is used) lets it have more at once",
        percent(share)
    );
    Some(finding(Limit::BuilderSmall, node, sentence, vec![full(rates)]))
}

/// Nothing holds it up, and it can hardly take more: sources may wait that it has not got round to.
pub(super) fn readout(view: &View<'_>) -> Option<Finding> {
    let readouts = view.rates.nodes.iter().filter(|rates| rates.node.role == Role::Readout);
    let (rates, share) = greatest(readouts, |rates| rates.shares.busy_share, THREAD_BUSY)?;
    let node = rates.node;
    let sentence = format!(
        "{node} can hardly take more: its thread has work {} of the time, at {:.1} MB/s",
        percent(share),
        rates.bytes_per_second / 1e6
    );
    Some(finding(
        Limit::Readout,
        node,
        sentence,
        vec![(format!("part of the time that {node}'s thread has work"), share)],
    ))
}
