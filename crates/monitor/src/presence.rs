//! Nodes that hang, and nodes that are still to join a run.
//!
//! A node that was stopped, or whose thread hangs, keeps its connections open: only its reports show that it lives.
//! Nodes report ten times a second. Between two runs they leave the event manager and come back by themselves.

use core::time::Duration;

use ropewalk_terms::{Instant, NodeId, RunNumber, counted};

use crate::Sample;

/// A node that has not reported for this long hangs or is stopped. A busy machine may delay reports by a second or two.
const SILENT: Duration = Duration::from_secs(5);
/// Sources of a readout unit that has not reported for this long are not blamed for their silence.
const QUIET: Duration = Duration::from_secs(1);
/// A node that reports rarely may miss this many reports.
const REPORTS: u32 = 3;
/// The most that the time between two samples counts. A program that was itself stopped has received nothing meanwhile.
const LONGEST_LOOK: Duration = Duration::from_secs(2);
/// How long nodes that are away before a run begins may take to come back.
const JOINING: Duration = Duration::from_secs(10);

/// A node, and what is known of its reports.
#[derive(Copy, Clone, Debug)]
struct Heard {
    node: NodeId,
    /// When it reported last, by the clock of the event manager.
    reported: Instant,
    /// For how long no further report was seen.
    silent: Duration,
}

/// Looks at samples one after the other. Keeps a few words for each node.
#[derive(Clone, Debug, Default)]
pub struct Presence {
    run: RunNumber,
    /// Whether another run was seen before this one.
    is_further: bool,
    now: Instant,
    heard: Vec<Heard>,
    /// When the run was seen first, unless it has begun.
    joining_since: Option<Instant>,
}

/// Nodes that are connected and do not report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SilentNodes {
    /// The one that has been silent for longest.
    pub first: NodeId,
    /// How many there are.
    pub count: u64,
    /// For how long the first one has been silent.
    pub time: Duration,
    /// What to tell operators.
    pub sentence: String,
}

impl Presence {
    /// Looks at the next sample.
    pub fn observe(&mut self, sample: &Sample) {
        let has_not_begun = matches!(sample.phase, "initial" | "configured");
        if sample.run != self.run {
            self.is_further = self.run != RunNumber::default();
            (self.run, self.now, self.joining_since) = (sample.run, sample.time, None);
            self.heard.clear();
        }
        self.joining_since = has_not_begun.then(|| self.joining_since.unwrap_or(sample.time));
        let passed = sample.time.since(self.now).min(LONGEST_LOOK);
        self.now = sample.time;
        let before = core::mem::take(&mut self.heard);
        let manager = sample.manager_turned.map(|turned| (NodeId::MANAGER, turned));
        let nodes = sample.nodes.iter().filter(|node| node.is_connected);
        let nodes = nodes.filter_map(|node| Some((node.node, node.reported?)));
        let heard = manager.into_iter().chain(nodes).map(|(node, reported)| {
            let known = before.iter().find(|known| known.node == node && known.reported == reported);
            Heard { node, reported, silent: known.map_or(Duration::ZERO, |known| known.silent + passed) }
        });
        self.heard = heard.collect();
    }

    /// Connected nodes that have stopped reporting, as of the last sample; only the event manager if that is silent.
    pub fn silent(&self, sample: &Sample) -> Option<SilentNodes> {
        let silent = || self.all_silent(sample);
        let manager = silent().find(|one| one.node == NodeId::MANAGER);
        let first = manager.or_else(|| silent().max_by_key(|one| (one.silent, core::cmp::Reverse(one.node))))?;
        let count = if manager.is_some() { 1 } else { silent().count() as u64 };
        let name = match first.node {
            NodeId::MANAGER => "the event manager".to_owned(),
            node => sample.name_of_node(node),
        };
        let seconds = first.silent.as_secs();
        let sentence = match count - 1 {
            0 => format!("{name} has not reported for {seconds} s: it hangs or is stopped"),
            others => {
                let others = counted(others, "more node");
                format!("{name} and {others} have not reported for {seconds} s: they hang or are stopped")
            }
        };
        Some(SilentNodes { first: first.node, count, time: first.silent, sentence })
    }

    /// Whether nothing is known of what this node does now: it is away, or has not reported for a while.
    pub fn is_quiet(&self, node: NodeId, sample: &Sample) -> bool {
        let patience = QUIET.max(REPORTS * sample.report_interval);
        let is_away = sample.node(node).is_some_and(|known| !known.is_connected);
        is_away || self.heard.iter().any(|one| one.node == node && one.silent >= patience)
    }

    fn all_silent<'a>(&'a self, sample: &'a Sample) -> impl Iterator<Item = &'a Heard> {
        let patience = SILENT.max(REPORTS * sample.report_interval);
        self.heard.iter().filter(move |one| one.silent >= patience && sample.phase != "ended")
    }

    /// Whether this node is one of [`Presence::silent`].
    pub fn is_silent(&self, node: NodeId, sample: &Sample) -> bool {
        self.all_silent(sample).any(|one| one.node == node)
    }

    /// Nodes that are away and may still join the run by themselves: its first one, how many, and a sentence.
    pub fn joining(&self, sample: &Sample) -> Option<(NodeId, u64, String)> {
        self.joining_since.filter(|since| sample.time.since(*since) < JOINING)?;
        let (first, count, _) = sample.missing_nodes()?;
        let others = if count > 1 { format!(" and {}", counted(count - 1, "more node")) } else { String::new() };
        let to = if self.is_further { "reconnect" } else { "connect" };
        Some((first, count, format!("the run waits for {}{others} to {to}", sample.name_of_node(first))))
    }

    /// Nodes that are away, unless they may still join by themselves, or may leave because the run has ended.
    pub fn missing(&self, sample: &Sample) -> Option<(NodeId, u64, String)> {
        let are_expected = sample.phase != "ended" && self.joining(sample).is_none();
        sample.missing_nodes().filter(|_| are_expected)
    }
}

#[cfg(test)]
mod tests {
    use super::Presence;
    use crate::made_up::sample;
    use crate::{Sample, made_up};
    use core::time::Duration;
    use ropewalk_terms::{Instant, NodeId, RunNumber};

    fn at(seconds: u64) -> Instant {
        made_up::sample(seconds, Vec::new()).time
    }

    /// A run at this second, in which the event manager and both nodes last reported at these seconds.
    fn heard(second: u64, manager: u64, readout: u64, builder: u64) -> Sample {
        let mut sample = sample(second, Vec::new());
        sample.manager_turned = Some(at(manager));
        (sample.nodes[0].reported, sample.nodes[1].reported) = (Some(at(readout)), Some(at(builder)));
        sample
    }

    /// The sentence about silent nodes after these samples.
    fn said(samples: impl IntoIterator<Item = Sample>) -> Option<String> {
        let mut presence = Presence::default();
        let last = samples.into_iter().inspect(|sample| presence.observe(sample)).last()?;
        presence.silent(&last).map(|silent| silent.sentence)
    }

    #[test]
    fn a_connected_node_that_stops_reporting_is_named_until_it_reports_again() {
        let hangs = |until: u64| (1..=until).map(|second| heard(second, second, second.min(3), second));
        assert_eq!(said(hangs(7)), None, "a busy machine may be late");
        assert_eq!(said(hangs(9)).as_deref(), Some("ru0 has not reported for 6 s: it hangs or is stopped"));
        assert_eq!(said(hangs(9).chain([heard(10, 10, 10, 10)])), None);
        let mut presence = Presence::default();
        hangs(9).for_each(|sample| presence.observe(&sample));
        let named = [NodeId::readout(0), NodeId::builder(0)].map(|node| presence.is_silent(node, &heard(9, 9, 3, 9)));
        assert_eq!(named, [true, false]);
        let quiet = |until: u64| {
            let mut presence = Presence::default();
            hangs(until).for_each(|sample| presence.observe(&sample));
            presence.is_quiet(NodeId::readout(0), &heard(until, until, 3, until))
        };
        assert_eq!([3, 4, 9].map(quiet), [false, true, true], "its sources are not blamed before it is named");
        let both = (1..=9).map(|second| heard(second, second, second.min(3), second.min(2)));
        let words = "bu0 and 1 more node have not reported for 7 s: they hang or are stopped";
        assert_eq!(said(both).as_deref(), Some(words));
    }

    #[test]
    fn nodes_that_are_away_or_may_leave_are_not_silent() {
        let changed = |change: fn(&mut Sample)| {
            said((1..=20).map(|second| {
                let mut sample = heard(second, second, 1, second);
                change(&mut sample);
                sample
            }))
        };
        assert!(changed(|_| ()).is_some());
        assert_eq!(changed(|sample| sample.nodes[0].is_connected = false), None);
        assert_eq!(changed(|sample| sample.nodes[0].reported = None), None);
        assert_eq!(changed(|sample| sample.phase = "ended"), None);
        assert_eq!(changed(|sample| sample.report_interval = Duration::from_secs(10)), None, "it reports rarely");
    }

    #[test]
    fn an_event_manager_that_stands_still_is_named_and_not_the_nodes_that_it_does_not_hear() {
        let hangs = (1..=9).map(|second| heard(second, second.min(3), second.min(3), second.min(3)));
        let words = "the event manager has not reported for 6 s: it hangs or is stopped";
        assert_eq!(said(hangs).as_deref(), Some(words));
    }

    #[test]
    fn a_program_that_was_stopped_itself_calls_no_node_silent() {
        let before = (1..=3).map(|second| heard(second, second, second, second));
        assert_eq!(said(before.chain([heard(60, 3, 3, 3), heard(61, 61, 3, 61)])), None);
    }

    /// A run with a node that is away.
    fn away(run: u32, second: u64, phase: &'static str) -> Sample {
        let mut sample = Sample { run: RunNumber(run), phase, ..sample(second, Vec::new()) };
        sample.nodes[0].is_connected = false;
        sample
    }

    #[test]
    fn a_node_may_take_ten_seconds_to_join_a_run() {
        let mut presence = Presence::default();
        let mut look = |sample: Sample| {
            presence.observe(&sample);
            let sentence = |found: Option<(NodeId, u64, String)>| found.map(|(.., sentence)| sentence);
            (sentence(presence.joining(&sample)), sentence(presence.missing(&sample)))
        };
        let (waits, again) = ("the run waits for ru0 to connect", "the run waits for ru0 to reconnect");
        let missing = "ru0 not connected to the event manager";
        // A run has its number when it begins.
        assert_eq!(look(away(0, 100, "initial")), (Some(waits.to_owned()), None));
        assert_eq!(look(away(0, 109, "initial")), (Some(waits.to_owned()), None));
        assert_eq!(look(away(0, 110, "initial")), (None, Some(missing.to_owned())));
        assert_eq!(look(away(1, 111, "running")), (None, Some(missing.to_owned())));
        assert_eq!(look(away(1, 112, "draining")), (None, Some(missing.to_owned())));
        assert_eq!(look(away(1, 113, "ended")), (None, None), "nodes leave after the end of a run");
        assert_eq!(look(away(0, 120, "initial")), (Some(again.to_owned()), None));
        assert_eq!(look(away(2, 121, "running")), (None, Some(missing.to_owned())));
        assert_eq!(look(away(3, 200, "running")), (None, Some(missing.to_owned())), "it was taken over");
    }
}
