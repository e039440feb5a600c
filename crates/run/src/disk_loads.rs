//! What takes the time of the disks that builder units of this process write to, between two looks at /proc/diskstats.

use ropewalk_host::{DiskActivity, DiskCounters, disk_of};
use ropewalk_monitor::DiskLoad;
use ropewalk_terms::{Instant, NodeId};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The disks of nodes, and the last look.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskLoads {
    disks: BTreeMap<NodeId, Vec<String>>,
    before: Option<(Instant, String)>,
}

impl DiskLoads {
    /// Those that hold these directories. In memory and over the network there are no disks.
    pub(super) fn of(outputs: &BTreeMap<NodeId, Vec<PathBuf>>) -> Self {
        let disks =
            |directories: &Vec<PathBuf>| directories.iter().filter_map(|directory| disk_of(directory)).collect();
        Self { disks: outputs.iter().map(|(&node, directories)| (node, disks(directories))).collect(), before: None }
    }

    /// Looks at the text of /proc/diskstats: what took the time since the last look, by node; of several disks the busiest one.
    pub(super) fn look(&mut self, now: Instant, statistics: &str) -> BTreeMap<NodeId, DiskLoad> {
        let before = self.before.replace((now, statistics.to_owned()));
        let Some((then, earlier)) = before else { return BTreeMap::new() };
        let seconds = now.since(then).as_secs_f64();
        let activity = |disk: &String| {
            let [before, now] = [&earlier, statistics].map(|text| DiskCounters::of(disk, text));
            DiskActivity::between(disk, &before?, &now?, seconds)
        };
        let busiest = |disks: &Vec<String>| {
            let loads = disks.iter().filter_map(activity);
            loads.max_by(|one, other| one.busy.total_cmp(&other.busy)).map(|busiest| load(&busiest))
        };
        self.disks.iter().filter_map(|(&node, disks)| Some((node, busiest(disks)?))).collect()
    }
}

fn load(activity: &DiskActivity) -> DiskLoad {
    let thousandths = |share: f64| (1000.0 * share).round() as u16;
    DiskLoad {
        sentence: activity.to_string(),
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
        let disks = BTreeMap::from([(node, vec!["sda".to_owned(), "sdb".to_owned(), "gone".to_owned()])]);
        let mut loads = DiskLoads { disks, before: None };
        let text = |second: u64| {
            let line = |disk: &str, written: u64, busy: u64, discards: u64| {
                format!(" 8 0 {disk} 0 0 0 0 1 0 {written} {} 0 {busy} 0 9 0 0 {discards} 0 0\n", busy - discards)
            };
            line("sda", second * 2_000_000, second * 900, second * 405) + &line("sdb", 0, second * 100, 0)
        };
        assert!(loads.look(at(1), &text(1)).is_empty(), "one look says nothing");
        let found = loads.look(at(3), &text(3));
        assert_eq!(found[&node].sentence, "discards take 40 % of the time of disk sda");
        assert_eq!((found[&node].busy_thousandths, found[&node].discards_thousandths), (900, 405));
    }
}
