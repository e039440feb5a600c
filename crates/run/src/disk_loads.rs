//! The load of the disks to which builder units of this process write, between two readings of /proc/diskstats. A
//! reading allocates nothing.

use ropewalk_host::{DiskActivity, DiskCounters, disk_of};
use ropewalk_monitor::DiskLoad;
use ropewalk_terms::{Instant, NodeId};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The disks of nodes, and their last reading.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskLoads {
    /// Each disk once.
    disks: Vec<Watched>,
    /// The indices of each node's disks.
    nodes: BTreeMap<NodeId, Vec<usize>>,
    looked: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Watched {
    name: String,
    before: Option<DiskCounters>,
    activity: Option<DiskActivity>,
}

impl DiskLoads {
    /// Finds the disks of these directories. File systems in memory and over the network have no disk.
    pub(super) fn of(outputs: &BTreeMap<NodeId, Vec<PathBuf>>) -> Self {
        let mut loads = Self::default();
        for (&node, directories) in outputs {
            directories.iter().filter_map(|directory| disk_of(directory)).for_each(|disk| loads.add(node, disk));
        }
        loads
    }

    fn add(&mut self, node: NodeId, name: String) {
        let known = self.disks.iter().position(|disk| disk.name == name);
        let place = known.unwrap_or(self.disks.len());
        if known.is_none() {
            self.disks.push(Watched { name, before: None, activity: None });
        }
        self.nodes.entry(node).or_default().push(place);
    }

    /// Evaluates the text of /proc/diskstats.
    pub(super) fn look(&mut self, now: Instant, statistics: &str) {
        let seconds = self.looked.replace(now).map_or(0.0, |before| now.since(before).as_secs_f64());
        for disk in &mut self.disks {
            let counters = DiskCounters::of(&disk.name, statistics);
            let pair = disk.before.zip(counters);
            disk.activity = pair.and_then(|(before, now)| DiskActivity::between(&before, &now, seconds));
            disk.before = counters;
        }
    }

    /// Returns the load between the last two readings, by node. Of several disks it is that of the busiest one.
    pub(super) fn by_node(&self) -> BTreeMap<NodeId, DiskLoad> {
        let active = |&place: &usize| Some((self.disks[place].name.as_str(), self.disks[place].activity?));
        let busiest = |places: &Vec<usize>| {
            let disks = places.iter().filter_map(active);
            disks.max_by(|(_, one), (_, other)| one.busy.total_cmp(&other.busy))
        };
        let load = |(&node, places)| Some((node, load(busiest(places)?)));
        self.nodes.iter().filter_map(load).collect()
    }
}

fn load((disk, activity): (&str, DiskActivity)) -> DiskLoad {
    let thousandths = |share: f64| (1000.0 * share).round() as u16;
    DiskLoad {
        sentence: activity.sentence(disk),
        busy_thousandths: thousandths(activity.busy),
        discards_thousandths: thousandths(activity.discards),
        flushes_thousandths: thousandths(activity.flushes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    #[test]
    fn the_busiest_of_the_disks_of_a_node_says_what_it_does() {
        let node = NodeId::builder(0);
        let mut loads = DiskLoads::default();
        ["sda", "sdb", "gone"].into_iter().for_each(|disk| loads.add(node, disk.to_owned()));
        loads.add(NodeId::builder(1), "sdb".to_owned());
        let text = |second: u64| {
            let line = |disk: &str, written: u64, busy: u64, discards: u64| {
                format!(" 8 0 {disk} 0 0 0 0 1 0 {written} {} 0 {busy} 0 9 0 0 {discards} 0 0\n", busy - discards)
            };
            line("sda", second * 2_000_000, second * 900, second * 405) + &line("sdb", 0, second * 100, 0)
        };
        loads.look(at(1), &text(1));
        assert!(loads.by_node().is_empty(), "one look says nothing");
        loads.look(at(3), &text(3));
        let found = loads.by_node();
        assert_eq!(found[&node].sentence, "discards take 40 % of the time of disk sda");
        assert_eq!((found[&node].busy_thousandths, found[&node].discards_thousandths), (900, 405));
        assert_eq!(found[&NodeId::builder(1)].busy_thousandths, 100);
        loads.look(at(4), "");
        assert!(loads.by_node().is_empty(), "they are gone");
    }
}
