//! Problems of nodes that cost events: filters that fail, and disks that do not take events.

use ropewalk_terms::{Cause, Counter, counted, grouped};

use super::{NAMED, ProblemKind};
use crate::{NodeSample, Sample};

/// Problems of filters: the kind, the count, and a sentence that names the node.
pub fn filter_problems(sample: &Sample) -> Vec<(ProblemKind, u64, String)> {
    let aside = sample.events.quarantined;
    let aside = if aside == 0 { String::new() } else { format!(": {} set aside", counted(aside, "event")) };
    let given_up = filters_given_up(sample);
    let given_up = given_up.map(|(count, what)| (ProblemKind::FiltersGivenUp, count, format!("{what}{aside}")));
    let with = |counter| sample.nodes.iter().find(move |node| node.numbers.get(counter) > 0);
    let failing = with(Counter::FilterRestarts).or_else(|| with(Counter::FilterFailures)).map(|node| {
        let (failures, restarts) = (sample.total(Counter::FilterFailures), sample.total(Counter::FilterRestarts));
        let what = match restarts {
            0 => format!("the filter failed on {}", counted(failures, "event")),
            1 => format!("a filter unit was restarted: {}", ended_by(node, "it crashed, hung or gave a wrong result")),
            _ => {
                let times = grouped(restarts);
                let why = ended_by(node, "they crashed, hung or gave wrong results");
                format!("filter units were restarted {times} times: {why}")
            }
        };
        let sentence = format!("{}: {what}{aside}", sample.name_of_node(node.node));
        (ProblemKind::FilterFailing, failures + restarts, sentence)
    });
    given_up.into_iter().chain(failing).collect()
}

/// The signal that ended the last filter process of a node; `otherwise` if it was none.
fn ended_by(node: &NodeSample, otherwise: &str) -> String {
    match node.numbers.get(Counter::FilterLastSignal) {
        0 => otherwise.to_owned(),
        signal => format!("the last one was ended by signal {signal}"),
    }
}

/// How many filter units were given up, and a sentence on the node that has the fewest left.
pub(crate) fn filters_given_up(sample: &Sample) -> Option<(u64, String)> {
    let given_up = |node: &NodeSample| node.numbers.get(Counter::FilterUnitsGivenUp);
    let left = |node: &NodeSample| node.numbers.get(Counter::FilterUnits);
    let worst = sample.nodes.iter().filter(|node| given_up(node) > 0).min_by_key(|node| left(node))?;
    let rest = match left(worst) {
        // At the end of a run all units are stopped.
        _ if sample.phase != "running" => String::new(),
        0 => ", none is left to decide on events".to_owned(),
        left => format!(", {left} still decide"),
    };
    let (name, count) = (sample.name_of_node(worst.node), counted(given_up(worst), "filter unit"));
    let why = ended_by(worst, "");
    let why = if why.is_empty() { why } else { format!(" ({why})") };
    let sentence = format!("{name}: {count} given up after repeated failures{rest}{why}");
    Some((sample.total(Counter::FilterUnitsGivenUp), sentence))
}

/// Events that were built and dropped because a disk did not take them: how many, and a sentence with the builder units
/// and their directories. None if no disk refused anything.
pub fn not_written(sample: &Sample) -> Option<(u64, String)> {
    let count = sample.events.incomplete_dropped.get(Cause::WriteFailed);
    let refused = sample.nodes.iter().filter(|node| node.numbers.get(Counter::DiskRefusals) > 0);
    let refused: Vec<_> = refused.filter(|_| count > 0).collect();
    let why = match refused.first()? {
        node if node.numbers.get(Counter::DiskFull) > 0 => "no space was left",
        node if node.numbers.get(Counter::DiskFailing) > 0 => "its disk failed",
        _ => "its disk was full or failed",
    };
    let name = |node: &&NodeSample| sample.name_of_node(node.node) + &sample.place_of(node.node);
    let names: Vec<_> = refused.iter().take(NAMED).map(name).collect();
    Some((count, format!("{} did not write {}: {why}", names.join(" and "), counted(count, "event"))))
}

#[cfg(test)]
mod tests {
    use super::not_written;
    use crate::made_up::{node, sample};
    use ropewalk_terms::{Cause, Counter, NodeId};
    use std::sync::Arc;

    #[test]
    fn events_that_a_full_disk_did_not_take_are_named_with_node_and_directory() {
        let mut sample = sample(5, Vec::new());
        sample.events.incomplete_dropped.add(Cause::WriteFailed, 10_240);
        assert_eq!(not_written(&sample), None, "no disk refused anything");
        sample.nodes[1] = node(NodeId::builder(0), &[(Counter::DiskRefusals, 3), (Counter::DiskFull, 1)]);
        sample.outputs = Arc::new([(NodeId::builder(0), "/data0".to_owned())].into());
        let sentence = "bu0 (/data0) did not write 10,240 events: no space was left";
        assert_eq!(not_written(&sample), Some((10_240, sentence.to_owned())));
        sample.nodes[1] = node(NodeId::builder(0), &[(Counter::DiskRefusals, 3)]);
        let sentence = "bu0 (/data0) did not write 10,240 events: its disk was full or failed";
        assert_eq!(not_written(&sample), Some((10_240, sentence.to_owned())), "it has left");
    }
}
