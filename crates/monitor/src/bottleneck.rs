//! The limit of a run, in a sentence.
//!
//! ```text
//!  Sample, Sample ── rules, in order ── the first finding ── Finder (holds it) ── what people read
//! ```
//!
//! The last rules are about the nodes after the readout units' pools: they find the node that is always busy.

mod limit;
#[cfg(test)]
mod tests;

pub use limit::Limit;

use core::time::Duration;
use std::sync::Arc;

use ropewalk_terms::{Cause, Counter, FragmentAccount, Instant, NodeId, Role, SourceId, grouped};
use serde::Serialize;

use crate::activity::SILENT;
use crate::numbering::wrong_beginnings;
use crate::quality::{RESTARTED, exchanged, filters_given_up, have_all_restarted, left_behind, never_sent};
use crate::{Activity, DiskLoad, NodeRates, Rates, Sample, SourceRates, SourceSample};

/// A number that supports the finding.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Evidence {
    /// The name of the counter or rate, and its node or source.
    pub what: String,
    /// Its value.
    pub value: f64,
}

/// What limits the run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// The kind.
    pub limit: Limit,
    /// The node or source; empty for none.
    pub subject: String,
    /// The text for users.
    pub sentence: String,
    /// The numbers that say so.
    pub evidence: Vec<Evidence>,
}

/// A source that is not read for more of the time is held back; between two samples a full window may have been an
/// accident.
const HELD_BACK: f64 = 0.2;
/// A pool that is fuller than this has no room for bursts.
const FULL: f64 = 0.9;

/// What rules look at.
struct View<'a> {
    before: &'a Sample,
    now: &'a Sample,
    rates: &'a Rates,
    activity: &'a Activity,
}

impl View<'_> {
    /// Sources of which more is expected.
    fn sources(&self) -> impl Iterator<Item = (&SourceSample, &SourceRates)> {
        self.now.sources.iter().zip(&self.rates.sources).filter(|(source, _)| !source.has_ended())
    }

    /// The configured name of a node, with its id.
    fn name(&self, node: NodeId) -> String {
        self.now.name_of_node(node)
    }

    /// Events that were built in between.
    fn built(&self) -> u64 {
        self.now.events.since(&self.before.events).built
    }

    /// Fragments that were lost in between, by this count.
    fn lost(&self, count: impl Fn(&FragmentAccount) -> u64) -> u64 {
        let total = |sample: &Sample| -> u64 { sample.sources.iter().map(|source| count(&source.account)).sum() };
        total(self.now).saturating_sub(total(self.before))
    }

    /// Whether input is held up: a readout unit's pool is full, or every source waits.
    fn is_held_up(&self) -> bool {
        fullest_pool(self).is_some_and(|(_, share)| share >= FULL)
            || least_held_back(self).is_some_and(|least| least >= HELD_BACK)
    }
}

/// First what stops the run, whatever other symptoms it has: a run that waits for its disk has full pools too. Then
/// what loses data. Then what blocks the whole run: one silent source soon holds back all others. If everything is held
/// up, a gateway reports itself why it stops the trigger; otherwise the reason is a node after the readout units that
/// is always busy, and a full pool only its consequence. A full pool is named before the sources that it holds back,
/// and all sources before some. Otherwise nothing limits the run.
const RULES: &[fn(&View<'_>) -> Option<Finding>] = &[
    disk_failing,
    disk_full,
    node_missing,
    node_silent,
    datagrams_lost,
    wrong_first_number,
    sources_restarted,
    sources_exchanged,
    source_silent,
    throttle,
    filter_stuck,
    disk_or_filter,
    builder,
    link,
    builder_small,
    pool_full,
    behind_readout,
    source_slow,
    readout,
    no_data,
];

/// What limits the run between two samples of it; `activity` has seen both. `None` if they have no rates.
pub fn find(before: &Sample, now: &Sample, activity: &Activity) -> Option<Finding> {
    let rates = Rates::between(before, now)?;
    let view = View { before, now, rates: &rates, activity };
    if now.phase != "running" {
        return Some(not_running(&view));
    }
    Some(RULES.iter().find_map(|rule| rule(&view)).unwrap_or_else(|| not_limited(&view)))
}

fn finding(limit: Limit, subject: impl ToString, sentence: String, evidence: Vec<(String, f64)>) -> Finding {
    let evidence = evidence.into_iter().map(|(what, value)| Evidence { what, value }).collect();
    Finding { limit, subject: subject.to_string(), sentence, evidence }
}

/// What the end of a run waits for, or why a run does not begin.
fn not_running(view: &View<'_>) -> Finding {
    let (now, presence) = (view.now, view.activity.presence());
    let stopping: &[fn(&View<'_>) -> Option<Finding>] = match now.phase {
        "draining" => &[disk_failing, disk_full, node_missing, node_silent],
        _ => &[],
    };
    if let Some(found) = stopping.iter().find_map(|rule| rule(view)) {
        return Finding { sentence: format!("stopping: {}", found.sentence), ..found };
    }
    if let Some(found) = node_silent(view) {
        return found;
    }
    let sentence = match (presence.joining(now), presence.missing(now).filter(|_| now.phase == "initial")) {
        (Some((.., sentence)), _) => sentence,
        (None, Some((.., sentence))) => format!("the run cannot begin: {sentence}; start the node"),
        (None, None) => format!("the run does not take data: it is {}", now.phase),
    };
    finding(Limit::NotRunning, now.phase, sentence, Vec::new())
}

/// What to say of a disk that takes nothing while the run ends: what waits for it is dropped after a time.
fn cannot_write(view: &View<'_>, node: NodeId, why: &str) -> String {
    let place = view.now.outputs.get(&node).map_or_else(|| "its disk".to_owned(), ToString::to_string);
    format!("{} cannot write to {place}: {why} now, or the data that wait for it are dropped", view.name(node))
}

fn disk_failing(view: &View<'_>) -> Option<Finding> {
    let failing = |node: &&crate::NodeSample| node.numbers.get(Counter::DiskFailing) > 0;
    let node = view.now.nodes.iter().find(failing)?;
    let error = node.numbers.get(Counter::DiskFailing);
    let (name, place) = (view.name(node.node), view.now.place_of(node.node));
    let sentence = if view.now.phase == "draining" {
        cannot_write(view, node.node, &format!("error {error} of the operating system; repair it"))
    } else {
        format!("stopped by {name}: its disk refuses what is written{place}, error {error} of the operating system")
    };
    Some(finding(Limit::DiskFailing, node.node, sentence, vec![(of(Counter::DiskFailing, &name), error as f64)]))
}

fn disk_full(view: &View<'_>) -> Option<Finding> {
    let node = view.now.nodes.iter().find(|node| node.numbers.get(Counter::DiskFull) > 0)?;
    let waiting = node.numbers.get(Counter::DiskFull);
    let can_write = |one: &crate::NodeSample| one.is_connected && one.numbers.get(Counter::DiskFull) == 0;
    let mut builders = view.now.nodes.iter().filter(|one| one.node.role == Role::Builder);
    let (name, place) = (view.name(node.node), view.now.place_of(node.node));
    let sentence = if view.now.phase == "draining" {
        cannot_write(view, node.node, "no space left; free some")
    } else if view.built() > 0 && builders.any(can_write) {
        format!("{name} waits, because its disk is full{place}; make room, it goes on by itself. The others go on")
    } else {
        format!("stopped by {name}: its disk is full{place}; make room, the run goes on by itself")
    };
    Some(finding(Limit::DiskFull, node.node, sentence, vec![(of(Counter::DiskFull, &name), waiting as f64)]))
}

fn node_missing(view: &View<'_>) -> Option<Finding> {
    let (first, count, sentence) = view.now.missing_nodes()?;
    Some(finding(Limit::NodeMissing, first, sentence, vec![("nodes not connected".to_owned(), count as f64)]))
}

/// Such a node holds up the nodes before it and starves those after it: sources that it does not read look silent.
fn node_silent(view: &View<'_>) -> Option<Finding> {
    let silent = view.activity.presence().silent(view.now)?;
    let evidence = vec![
        ("nodes that do not report".to_owned(), silent.count as f64),
        (format!("seconds without a report of {}", silent.first), silent.time.as_secs_f64()),
    ];
    Some(finding(Limit::NodeSilent, silent.first, silent.sentence, evidence))
}

/// Such a source is held back while its numbers are in doubt, and others wait for it.
fn wrong_first_number(view: &View<'_>) -> Option<Finding> {
    let of = |sample: &Sample| wrong_beginnings(&sample.numbered(), |source| sample.name_of(source));
    let before = of(view.before);
    let stands = |(source, count, _): &(SourceId, u64, String)| {
        before.iter().any(|(other, known, _)| other == source && known < count)
    };
    let (source, count, sentence) = of(view.now).into_iter().find(stands)?;
    let evidence = vec![(format!("fragments of source {source} in no event"), count as f64)];
    Some(finding(Limit::WrongFirstNumber, format!("source {source}"), sentence, evidence))
}

fn sources_restarted(view: &View<'_>) -> Option<Finding> {
    if let Some((source, count, sentence)) = left_behind(view.before, view.now) {
        let evidence = vec![(format!("stale fragments of source {source}"), count as f64)];
        return Some(finding(Limit::SourcesRestarted, format!("source {source}"), sentence, evidence));
    }
    let count = view.lost(|account| account.dropped.get(Cause::OutOfSync));
    if count == 0 || view.built() > 0 || !have_all_restarted(view.now) {
        return None;
    }
    let (sentence, evidence) =
        (format!("no event is built: {RESTARTED}"), ("fragments out of sync".to_owned(), count as f64));
    Some(finding(Limit::SourcesRestarted, "", sentence, vec![evidence]))
}

fn sources_exchanged(view: &View<'_>) -> Option<Finding> {
    let (sources, sentence) = exchanged(view.now).filter(|_| view.built() == 0)?;
    let evidence = ("sources whose fragments fail their checks".to_owned(), sources.len() as f64);
    Some(finding(Limit::SourcesExchanged, "", sentence, vec![evidence]))
}

fn datagrams_lost(view: &View<'_>) -> Option<Finding> {
    let lost = |sample: &Sample, source| {
        sample.source(source).map_or(0, |source| source.lost_datagrams.get(Cause::SocketQueueFull))
    };
    let of_sources = view.now.sources.iter().map(|source| {
        (
            format!("source {}", source.source),
            lost(view.now, source.source).saturating_sub(lost(view.before, source.source)),
        )
    });
    let queue_full = |sample: &Sample| sample.lost_datagrams.get(Cause::SocketQueueFull);
    let shared = queue_full(view.now).saturating_sub(queue_full(view.before));
    let all = of_sources.chain([("a port of several sources".to_owned(), shared)]);
    let (whose, count) = all.max_by_key(|&(_, count)| count).filter(|&(_, count)| count > 0)?;
    let sentence =
        format!("the receiving socket of {whose} dropped {} packets: raise net.core.rmem_max", grouped(count));
    let what = format!("{} of {whose}", Cause::SocketQueueFull);
    Some(finding(Limit::DatagramsLost, whose, sentence, vec![(what, count as f64)]))
}

/// Silence of one source is a fault if others send or wait for it; silence of all is a pause.
fn source_silent(view: &View<'_>) -> Option<Finding> {
    let silent_for = |source: &SourceSample| view.activity.silent_itself_for(source);
    let is_silent = |source: &SourceSample, rates: &SourceRates| {
        let is_read = rates.back_pressure_share < HELD_BACK;
        let may_stay_away = source.account.received == 0 && view.now.optional.contains(&source.source);
        silent_for(source) >= SILENT && is_read && !may_stay_away
    };
    if view.sources().all(|(source, rates)| is_silent(source, rates)) {
        return None;
    }
    let silent = view.sources().filter(|(source, rates)| is_silent(source, rates));
    let (source, _) = silent.max_by_key(|(source, _)| silent_for(source))?;
    let seconds = silent_for(source).as_secs_f64();
    let name = view.now.name_of(source.source);
    let state = if source.sends_datagrams || source.is_connected() { "" } else { ", no connection" };
    let sentence = match source.account.received {
        0 => never_sent(source, view.now),
        _ => format!("{name}: no data for {seconds:.1} s{state}"),
    };
    let subject = format!("source {}", source.source);
    Some(finding(
        Limit::SourceSilent,
        &subject,
        sentence,
        vec![(format!("seconds without data of {subject}"), seconds)],
    ))
}

fn fullest_pool(view: &View<'_>) -> Option<(NodeId, f64)> {
    let readouts = view.rates.nodes.iter().filter(|rates| rates.node.role == Role::Readout);
    let shares = readouts.filter_map(|rates| Some((rates.node, rates.pool_share?)));
    shares.max_by(|(_, one), (_, other)| one.total_cmp(other))
}

fn least_held_back(view: &View<'_>) -> Option<f64> {
    view.sources().map(|(_, rates)| rates.back_pressure_share).min_by(f64::total_cmp)
}

fn pool_full(view: &View<'_>) -> Option<Finding> {
    let (node, share) = fullest_pool(view).filter(|&(_, share)| share >= FULL)?;
    let name = view.name(node);
    let sentence = format!(
        "limited by {name}: {} of its pool is held; a larger `pool` takes more of what comes in bursts",
        percent(share)
    );
    Some(finding(Limit::PoolFull, node, sentence, vec![(format!("part of {name}'s pool that is held"), share)]))
}

fn behind_readout(view: &View<'_>) -> Option<Finding> {
    let least = least_held_back(view).filter(|&least| least >= HELD_BACK)?;
    let sentence = format!(
        "limited behind the readout units, by builder units, filters or disks: every source is held back, for at least {} of the time",
        percent(least)
    );
    Some(finding(
        Limit::BehindReadout,
        "",
        sentence,
        vec![("least part of the time that a source is held back".to_owned(), least)],
    ))
}

fn source_slow(view: &View<'_>) -> Option<Finding> {
    let most = view.sources().map(|(_, rates)| rates.back_pressure_share).fold(0.0, f64::max);
    if most < HELD_BACK {
        return None;
    }
    let waiting = view.sources().filter(|(_, rates)| rates.back_pressure_share >= HELD_BACK).count();
    let read = view.sources().filter(|(_, rates)| rates.back_pressure_share < HELD_BACK);
    // The others wait for the source that is furthest behind.
    let (source, rates) = read.min_by_key(|(source, _)| source.account.received)?;
    let subject = format!("source {}", source.source);
    let sentence = format!(
        "limited by {}, or by {} which reads it: it sends {:.0} fragments a second, and {waiting} of {} sources wait for it, for up to {} of the time",
        view.now.name_of(source.source),
        view.name(source.readout),
        rates.fragments_hz,
        view.sources().count(),
        percent(most)
    );
    let evidence = vec![
        (format!("fragments per second of {subject}"), rates.fragments_hz),
        ("most part of the time that a source is held back".to_owned(), most),
    ];
    Some(finding(Limit::SourceSlow, subject, sentence, evidence))
}

/// Distinguishes a pause from a dead data acquisition: every node is connected, no disk refuses anything, no source is
/// held back.
fn no_data(view: &View<'_>) -> Option<Finding> {
    let silences = view.now.sources.iter().map(|source| view.activity.silent_for(source.source).unwrap_or_default());
    let shortest = silences.min().unwrap_or(SILENT);
    let is_still = view.rates.sources.iter().all(|rates| rates.fragments_hz == 0.0);
    let is_held = view.sources().any(|(_, rates)| rates.back_pressure_share > 0.0);
    if shortest < SILENT && (!is_still || is_held) {
        return None;
    }
    let have_ended = !view.now.sources.is_empty() && view.sources().next().is_none();
    let mut none_sent = view.now.sources.iter().filter(|source| source.account.received == 0);
    if !have_ended && none_sent.clone().count() == view.now.sources.len() {
        let first =
            none_sent.next().map_or_else(|| "no source is known".to_owned(), |one| view.now.name_of(one.source));
        let others = none_sent.count();
        let more = match others {
            0 => String::new(),
            1 => " and 1 more source".to_owned(),
            others => format!(" and {others} more sources"),
        };
        let sentence = format!("no source has sent anything: waiting for {first}{more}");
        let evidence = vec![("sources that have sent nothing".to_owned(), view.now.sources.len() as f64)];
        return Some(finding(Limit::NoSources, "", sentence, evidence));
    }
    let sentence = if have_ended {
        "every source has ended".to_owned()
    } else {
        let seconds = shortest.as_secs().max(1);
        format!("no triggers: all nodes are connected, and no source has sent for {seconds} s")
    };
    Some(finding(
        Limit::NoData,
        "",
        sentence,
        vec![("seconds without data of all sources".to_owned(), shortest.as_secs_f64())],
    ))
}

fn not_limited(view: &View<'_>) -> Finding {
    let bytes = view.rates.bytes_in_per_second;
    let fragments: f64 = view.rates.sources.iter().map(|rates| rates.fragments_hz).sum();
    let ended = view.now.events.since(&view.before.events);
    let incomplete = ended.incomplete_emitted + ended.incomplete_dropped.total();
    if incomplete > 0 {
        let all = incomplete + ended.built;
        let sentence = format!(
            "the rate is not limited, but events are incomplete: {} of the last {}",
            grouped(incomplete),
            grouped(all)
        );
        let evidence = vec![("incomplete events of the last ones".to_owned(), incomplete as f64)];
        return finding(Limit::Incomplete, "", sentence, evidence);
    }
    if let Some((count, sentence)) = filters_given_up(view.now) {
        let evidence = vec![("filter units given up".to_owned(), count as f64)];
        return finding(Limit::Incomplete, "", format!("the rate is not limited, but {sentence}"), evidence);
    }
    let lost = view.lost(in_no_event);
    if lost > 0 {
        let all = view.lost(|account| account.received).max(lost);
        let sentence = format!(
            "the rate is not limited, but fragments are in no event: {} of the last {}",
            grouped(lost),
            grouped(all)
        );
        let evidence = vec![("fragments of the last ones that are in no event".to_owned(), lost as f64)];
        return finding(Limit::FragmentsLost, "", sentence, evidence);
    }
    let sends = format!("sources send {} fragments a second", grouped(fragments.round() as u64));
    let evidence = vec![
        ("bytes per second of all sources".to_owned(), bytes),
        ("fragments per second of all sources".to_owned(), fragments),
    ];
    if let Some(why) = nothing_built(view).filter(|_| fragments > 0.0) {
        return finding(Limit::NothingBuilt, "", format!("{sends}, and {why}"), evidence);
    }
    let sentence = format!("not limited: {sends}, {:.1} MB/s, and everything is taken", bytes / 1e6);
    finding(Limit::Sources, "", sentence, evidence)
}

/// Why it would be wrong to say that everything is taken: no event is built, or none yet.
fn nothing_built(view: &View<'_>) -> Option<String> {
    let (events, idle) = (&view.now.events, view.activity.idle_for());
    let ended = events.built + events.incomplete_emitted + events.incomplete_dropped.total();
    if idle < SILENT {
        return (ended == 0).then(|| "no event is built yet".to_owned());
    }
    let waiting = events.assigned.saturating_sub(ended);
    let likely = match waiting {
        0 => String::new(),
        _ if ended > 0 => String::new(),
        _ => format!(
            ", although {} {} assigned: check that the builder units reach the readout units",
            grouped(waiting),
            if waiting == 1 { "is" } else { "are" }
        ),
    };
    Some(format!("no event was built for {} s{likely}", idle.as_secs()))
}

/// Fragments that were taken and are in no event; those of masked sources are meant to be in none.
fn in_no_event(account: &FragmentAccount) -> u64 {
    let FragmentAccount { late, duplicate, corrupt, stale, dropped, .. } = account;
    late + duplicate + corrupt + stale + dropped.total() - dropped.get(Cause::Masked)
}

fn of(counter: Counter, node: &str) -> String {
    format!("{} of {node}", counter.name())
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// What does something for more of the time can hardly do more.
const BUSY: f64 = 0.8;
/// A thread that has work for more of the time can hardly take more.
const THREAD_BUSY: f64 = 0.95;
/// Builder units without room for this share of the time hold up the nodes before them. It can be less than 1: before
/// the next event arrives they have room for a while, which they have announced and which is not used yet.
const BUILDERS_FULL: f64 = 0.3;
/// A gateway that stops the trigger for more of the time limits the run.
const STOPPED: f64 = 0.2;
/// A connection on which data wait for this share of the time is full.
const WAITS: f64 = 0.5;

/// The builder units, where none of them has room for further events for most of the time: one that has is given those.
fn full_builders<'a>(view: &'a View<'_>) -> Option<impl Iterator<Item = &'a NodeRates>> {
    let builders = || view.rates.nodes.iter().filter(|rates| rates.node.role == Role::Builder);
    let is_full = |rates: &NodeRates| rates.shares.full_share.unwrap_or(0.0) >= BUILDERS_FULL;
    (view.is_held_up() && builders().next().is_some() && builders().all(is_full)).then(builders)
}

/// The node with the greatest share, if that is at least `least`.
fn greatest<'a>(
    nodes: impl Iterator<Item = &'a NodeRates>,
    share: impl Fn(&NodeRates) -> Option<f64>,
    least: f64,
) -> Option<(&'a NodeRates, f64)> {
    let shares = nodes.filter_map(|rates| Some((rates, share(rates)?)));
    shares.max_by(|(_, one), (_, other)| one.total_cmp(other)).filter(|&(_, share)| share >= least)
}

fn full(name: &str, rates: &NodeRates) -> (String, f64) {
    let share = rates.shares.full_share.unwrap_or(0.0);
    (format!("part of the time that {name} has no room for events"), share)
}

/// Why a gateway stops the trigger, and the remedy.
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

/// A gateway stops the trigger, and every source with it, for the share of time for which a source is held back
/// elsewhere.
fn throttle(view: &View<'_>) -> Option<Finding> {
    let share = |node, counter| {
        let (before, now) = (view.before.node(node)?, view.now.node(node)?);
        let time = now.numbers.known(counter).map(|_| now.numbers.increase(&before.numbers, counter))?;
        Some((time as f64 / 1e9 / view.rates.seconds).min(1.0))
    };
    let (rates, stopped) =
        greatest(view.rates.nodes.iter(), |rates| share(rates.node, Counter::ThrottleTime), STOPPED)?;
    let (node, name) = (rates.node, view.name(rates.node));
    let shares = STOPS.into_iter().filter_map(|(counter, why)| Some((counter, why, share(node, counter)?)));
    // Of two that are alike the first one is the reason of the other.
    let (counter, why, most) = shares.rev().max_by(|(_, _, one), (_, _, other)| one.total_cmp(other))?;
    let sentence =
        format!("rate limited by gateway {name}, which stops the trigger {} of the time: {why}", percent(stopped));
    let evidence = vec![
        (format!("part of the time that {name} stops the trigger"), stopped),
        (format!("{}, per second", of(counter, &name)), most),
    ];
    Some(finding(Limit::Throttle, node, sentence, evidence))
}

/// The busier of the two: events wait for the disk after the filter, and then the filter is idle.
fn disk_or_filter(view: &View<'_>) -> Option<Finding> {
    let disk = greatest(full_builders(view)?, |rates| rates.shares.disk_busy_share, BUSY);
    let filter = greatest(full_builders(view)?, |rates| rates.shares.filter_busy_share, BUSY);
    let busy = |found: Option<(_, f64)>| found.map_or(0.0, |(_, share)| share);
    let name = |rates: &NodeRates| view.name(rates.node);
    if busy(filter) > busy(disk) {
        filter.map(|(rates, share)| by_filter(&name(rates), rates, share))
    } else {
        disk.map(|(rates, share)| by_disk(&name(rates), rates, share, view.now.disk_loads.get(&rates.node)))
    }
}

/// Fragments come, events wait for a filter, and none was decided between the two samples.
fn filter_stuck(view: &View<'_>) -> Option<Finding> {
    let builders = view.rates.nodes.iter().filter(|rates| rates.node.role == Role::Builder);
    let (rates, share) =
        greatest(builders, |rates| rates.shares.filter_busy_share, BUSY).filter(|_| view.built() == 0)?;
    let name = view.name(rates.node);
    let sentence = format!(
        "stopped by the filter of builder unit {name}: its units are {} busy and decide nothing; a unit that hangs is restarted after `filter.timeout`",
        percent(share)
    );
    let evidence = vec![(format!("part of the time that a filter unit of {name} decides"), share)];
    Some(finding(Limit::FilterStuck, rates.node, sentence, evidence))
}

fn by_disk(name: &str, rates: &NodeRates, share: f64, load: Option<&DiskLoad>) -> Finding {
    let rate = rates.bytes_per_second;
    let why = load.map_or(String::new(), |load| format!("; {}", load.sentence));
    let sentence = format!(
        "rate limited by builder unit {name}: disk writing {} busy, at {:.1} MB/s{why}",
        percent(share),
        rate / 1e6
    );
    let mut evidence = vec![
        (format!("part of the time that {name}'s disk writes"), share),
        (
            format!("part of the time that built events of {name} wait for it"),
            rates.shares.disk_wait_share.unwrap_or(0.0),
        ),
        full(name, rates),
    ];
    let parts = |load: &DiskLoad| {
        let DiskLoad { busy_thousandths, discards_thousandths, flushes_thousandths, .. } = *load;
        [("busy", busy_thousandths), ("discarding", discards_thousandths), ("flushing", flushes_thousandths)]
    };
    let parts = load.map(parts).into_iter().flatten();
    let part = |(what, part)| (format!("part of the time that the device of {name} is {what}"), f64::from(part) / 1e3);
    evidence.extend(parts.map(part));
    finding(Limit::Disk, rates.node, sentence, evidence)
}

fn by_filter(name: &str, rates: &NodeRates, share: f64) -> Finding {
    let sentence = format!(
        "rate limited by the filter of builder unit {name}: its units are {} busy; more `units` decide on more",
        percent(share)
    );
    let evidence = vec![(format!("part of the time that a filter unit of {name} decides"), share), full(name, rates)];
    finding(Limit::Filter, rates.node, sentence, evidence)
}

/// Requests come, what answers them does not get away, and no builder unit is too busy to take it.
fn link(view: &View<'_>) -> Option<Finding> {
    if !view.is_held_up() {
        return None;
    }
    let (rates, share) = greatest(view.rates.nodes.iter(), |rates| rates.shares.link_wait_share, WAITS)?;
    let (node, name) = (rates.node, view.name(rates.node));
    let sentence = format!(
        "rate limited by the network between {name} and builder units: what they ask for waits to be sent {} of the time",
        percent(share)
    );
    Some(finding(Limit::Link, node, sentence, vec![(format!("part of the time that {name} waits to send"), share)]))
}

/// Its places are taken, and neither a disk nor a filter is what it waits for.
fn builder(view: &View<'_>) -> Option<Finding> {
    let (rates, share) = greatest(full_builders(view)?, |rates| rates.shares.busy_share, THREAD_BUSY)?;
    let (node, name) = (rates.node, view.name(rates.node));
    let sentence = format!(
        "rate limited by builder unit {name}: its thread has work {} of the time; give it a core of its own, or the run another builder unit",
        percent(share)
    );
    let evidence = vec![(format!("part of the time that {name}'s thread has work"), share), full(&name, rates)];
    Some(finding(Limit::Builder, node, sentence, evidence))
}

/// Nothing is busy: events take their time, and too few may be in work at once.
fn builder_small(view: &View<'_>) -> Option<Finding> {
    let (rates, share) = greatest(full_builders(view)?, |rates| rates.shares.full_share, BUILDERS_FULL)?;
    let (node, name) = (rates.node, view.name(rates.node));
    let sentence = format!(
        "rate limited by the places of builder unit {name}: all are taken {} of the time, and neither its thread nor its disk is busy; \
         a greater `events` or `bytes` (at most half of its `pool` is used) lets it have more at once",
        percent(share)
    );
    Some(finding(Limit::BuilderSmall, node, sentence, vec![full(&name, rates)]))
}

/// Nothing holds it up, and it can hardly take more: sources may wait that it has not got round to.
fn readout(view: &View<'_>) -> Option<Finding> {
    let readouts = view.rates.nodes.iter().filter(|rates| rates.node.role == Role::Readout);
    let (rates, share) = greatest(readouts, |rates| rates.shares.busy_share, THREAD_BUSY)?;
    let (node, name) = (rates.node, view.name(rates.node));
    let sentence = format!(
        "{name} can hardly take more: its thread has work {} of the time, at {:.1} MB/s",
        percent(share),
        rates.bytes_per_second / 1e6
    );
    Some(finding(
        Limit::Readout,
        node,
        sentence,
        vec![(format!("part of the time that {name}'s thread has work"), share)],
    ))
}

/// A finding of another kind must hold for this long before it takes the place of the one that is shown.
const HOLD: Duration = Duration::from_secs(3);
/// Without any data it is soon wrong that sources send.
const HOLD_WITHOUT_DATA: Duration = Duration::from_secs(1);

/// Follows samples and returns what limits the run. Findings that lose data or stop the run are shown at once and only
/// while they hold. Any other must hold for a while, so that two nearly equal limits do not flicker.
#[derive(Clone, Debug, Default)]
pub struct Finder {
    activity: Activity,
    last: Option<Arc<Sample>>,
    shown: Option<Finding>,
    /// What may take its place, and since when it has been seen.
    next: Option<(Finding, Instant)>,
}

impl Finder {
    /// Looks at the next sample: about once a second is right.
    pub fn observe(&mut self, sample: impl Into<Arc<Sample>>) {
        let sample = sample.into();
        self.activity.observe(&sample);
        let time = sample.time;
        let found = self.last.as_ref().and_then(|before| find(before, &sample, &self.activity));
        let is_another = self.last.as_ref().is_some_and(|before| before.run != sample.run);
        if is_another {
            (self.shown, self.next) = (None, None);
        }
        self.last = Some(sample);
        if let Some(found) = found {
            self.consider(found, time);
        }
    }

    fn consider(&mut self, found: Finding, time: Instant) {
        let is_same = |other: &Finding| other.limit == found.limit && other.subject == found.subject;
        let may_go = |shown: &Finding| is_same(shown) || shown.limit.is_condition();
        if found.limit.is_urgent() || self.shown.as_ref().is_none_or(may_go) {
            (self.shown, self.next) = (Some(found), None);
            return;
        }
        let since = self.next.as_ref().filter(|(next, _)| is_same(next)).map_or(time, |&(_, since)| since);
        let hold = if found.limit == Limit::NoData { HOLD_WITHOUT_DATA } else { HOLD };
        if time.since(since) >= hold {
            (self.shown, self.next) = (Some(found), None);
        } else {
            self.next = Some((found, since));
        }
    }

    /// What limits the run; `None` before two samples of it.
    pub const fn finding(&self) -> Option<&Finding> {
        self.shown.as_ref()
    }

    /// Since when each source is silent.
    pub const fn activity(&self) -> &Activity {
        &self.activity
    }
}
