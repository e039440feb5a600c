//! The rules, each a small function, in an order that is argued below.

use super::{Evidence, Finding, Limit, behind};
use crate::{Activity, Rates, Sample, SourceRates, SourceSample};
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, Counter, NodeId, Role};

/// A source that says nothing for so long, while others send or wait, has stopped.
const SILENT: Duration = Duration::from_secs(2);
/// A source that is not read for more of the time is held back; between two samples a full window may have been an accident.
const HELD_BACK: f64 = 0.2;
/// A pool of which more is held has no room for what comes in bursts.
const FULL: f64 = 0.9;

/// What rules look at.
pub(super) struct View<'a> {
    pub(super) before: &'a Sample,
    pub(super) now: &'a Sample,
    pub(super) rates: &'a Rates,
    pub(super) activity: &'a Activity,
}

impl View<'_> {
    /// Sources of which more is expected.
    fn sources(&self) -> impl Iterator<Item = (&SourceSample, &SourceRates)> {
        self.now.sources.iter().zip(&self.rates.sources).filter(|(source, _)| !source.has_ended())
    }

    /// What comes in is held up: a readout unit's pool is full, or every source waits.
    pub(super) fn is_held_up(&self) -> bool {
        fullest_pool(self).is_some_and(|(_, share)| share >= FULL)
            || least_held_back(self).is_some_and(|least| least >= HELD_BACK)
    }
}

/// First what stops the run, whatever else may be seen of it: a run that waits for its disk has full pools too. Then what
/// loses data. Then what nobody can get round: one source that is silent has all others held back soon. Where everything is
/// held up, a gateway says itself why it stops the trigger, and otherwise whoever behind the readout units is busy all the time is the reason, and a full pool only what follows. A full pool is
/// named before the sources that it holds back, and all sources before some. What is left is no limit.
const RULES: &[fn(&View<'_>) -> Option<Finding>] = &[
    disk_failing,
    disk_full,
    node_missing,
    datagrams_lost,
    source_silent,
    behind::throttle,
    behind::disk_or_filter,
    behind::builder,
    behind::link,
    behind::builder_small,
    pool_full,
    behind_readout,
    source_slow,
    behind::readout,
    no_data,
];

/// What limits the run between two samples of it; `activity` has seen both. None where they have no rates.
pub fn find(before: &Sample, now: &Sample, activity: &Activity) -> Option<Finding> {
    let rates = Rates::between(before, now)?;
    if now.phase != "running" {
        let sentence = format!("the run does not take data: it is {}", now.phase);
        return Some(finding(Limit::NotRunning, now.phase, sentence, Vec::new()));
    }
    let view = View { before, now, rates: &rates, activity };
    Some(RULES.iter().find_map(|rule| rule(&view)).unwrap_or_else(|| not_limited(&view)))
}

pub(super) fn finding(limit: Limit, subject: impl ToString, sentence: String, evidence: Vec<(String, f64)>) -> Finding {
    let evidence = evidence.into_iter().map(|(what, value)| Evidence { what, value }).collect();
    Finding { limit, subject: subject.to_string(), sentence, evidence }
}

fn disk_failing(view: &View<'_>) -> Option<Finding> {
    let failing = |node: &&crate::NodeSample| node.numbers.get(Counter::DiskFailing) > 0;
    let node = view.now.nodes.iter().find(failing)?;
    let error = node.numbers.get(Counter::DiskFailing);
    let sentence =
        format!("stopped by {}: its disk refuses what is written (error {error} of the operating system)", node.node);
    Some(finding(Limit::DiskFailing, node.node, sentence, vec![(of(Counter::DiskFailing, node.node), error as f64)]))
}

fn disk_full(view: &View<'_>) -> Option<Finding> {
    let node = view.now.nodes.iter().find(|node| node.numbers.get(Counter::DiskFull) > 0)?;
    let waiting = node.numbers.get(Counter::DiskFull);
    let sentence = format!("stopped by {}: its disk is full; make room, the run goes on by itself", node.node);
    Some(finding(Limit::DiskFull, node.node, sentence, vec![(of(Counter::DiskFull, node.node), waiting as f64)]))
}

fn node_missing(view: &View<'_>) -> Option<Finding> {
    let missing: Vec<_> = view.now.nodes.iter().filter(|node| !node.is_connected).collect();
    let first = missing.first()?.node;
    let others = if missing.len() > 1 { format!(" and {} more", missing.len() - 1) } else { String::new() };
    let sentence = format!("{first}{others} not connected to the event manager");
    Some(finding(Limit::NodeMissing, first, sentence, vec![("nodes not connected".to_owned(), missing.len() as f64)]))
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

/// Silence is a fault of one where others go on or wait for it; where nobody sends, it is a pause of all.
fn source_silent(view: &View<'_>) -> Option<Finding> {
    let silent_for = |source: &SourceSample| view.activity.silent_for(source.source).unwrap_or_default();
    let is_silent = |source: &SourceSample, rates: &SourceRates| {
        let is_read = rates.back_pressure_share < HELD_BACK || is_planted(Flaw::HeldBackCalledSilent);
        silent_for(source) >= SILENT && is_read
    };
    if view.sources().all(|(source, rates)| is_silent(source, rates)) {
        return None;
    }
    let silent = view.sources().filter(|(source, rates)| is_silent(source, rates));
    let (source, _) = silent.max_by_key(|(source, _)| silent_for(source))?;
    let seconds = silent_for(source).as_secs_f64();
    let state = if source.is_connected() { "" } else { " and has no connection" };
    let sentence = format!("source {} is silent since {seconds:.1} s{state}", source.source);
    let subject = format!("source {}", source.source);
    Some(finding(Limit::SourceSilent, &subject, sentence, vec![(format!("seconds of silence of {subject}"), seconds)]))
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
    let sentence = format!(
        "limited by {node}: {} of its pool is held; a larger `pool` takes more of what comes in bursts",
        percent(share)
    );
    Some(finding(Limit::PoolFull, node, sentence, vec![(format!("part of {node}'s pool that is held"), share)]))
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
    // The one that is furthest behind is the one that the others wait for.
    let (source, rates) = read.min_by_key(|(source, _)| source.account.received)?;
    let subject = format!("source {}", source.source);
    let sentence = format!(
        "limited by {subject}, or {} which reads it: it comes with {:.0} fragments per second, and {waiting} of {} sources wait, for up to {} of the time",
        source.readout,
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

/// Told from a data acquisition that is dead: every node is connected, no disk refuses anything, nobody is held back.
fn no_data(view: &View<'_>) -> Option<Finding> {
    let silences = view.now.sources.iter().map(|source| view.activity.silent_for(source.source).unwrap_or_default());
    let shortest = silences.min().unwrap_or(SILENT);
    if shortest < SILENT {
        return None;
    }
    let have_ended = !view.now.sources.is_empty() && view.sources().next().is_none();
    let sentence = if have_ended {
        "every source has ended".to_owned()
    } else {
        "no source sends, and all nodes are connected: no triggers".to_owned()
    };
    Some(finding(
        Limit::NoData,
        "",
        sentence,
        vec![("least seconds of silence of a source".to_owned(), shortest.as_secs_f64())],
    ))
}

fn not_limited(view: &View<'_>) -> Finding {
    let bytes = view.rates.bytes_in_per_second;
    let fragments: f64 = view.rates.sources.iter().map(|rates| rates.fragments_hz).sum();
    let sentence = format!(
        "not limited: sources send {} fragments a second, {:.1} MB/s, and everything is taken",
        grouped(fragments.round() as u64),
        bytes / 1e6
    );
    let evidence = vec![
        ("bytes per second of all sources".to_owned(), bytes),
        ("fragments per second of all sources".to_owned(), fragments),
    ];
    finding(Limit::Sources, "", sentence, evidence)
}

fn of(counter: Counter, node: NodeId) -> String {
    format!("{} of {node}", counter.name())
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// With commas between thousands.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
