//! A readout unit: how it is wired, and what must hold of it.

use super::super::broken::{Broken, Checker};
use super::super::endpoints::{Endpoints, Surroundings};
use super::super::node::Machine;
use super::super::scenario::Scenario;
use super::{FINGERPRINT, Site, identity, pool};
use ropewalk_flow::readout::{ReadoutConfig, SourceConfig};
use ropewalk_memory::Staging;
use ropewalk_node::drive::{ReadoutDrive, ReadoutDriveConfig};
use ropewalk_terms::{Epoch, Incarnation, NodeId, PoolAccount};

/// The drive on simulated endpoints.
pub(in super::super) type ReadoutMachine = ReadoutDrive<Endpoints, Endpoints>;

/// A life of the readout unit with this index.
pub(in super::super) fn readout(site: &Site<'_>, around: &Surroundings, index: u16) -> (ReadoutMachine, Vec<u32>) {
    let Scenario { builders, time_outs, rooms, report_interval, .. } = *site.scenario;
    let scenario = site.scenario;
    let mine = (0..scenario.sources.len()).filter(|&source| scenario.readout_of(source) == index);
    let source = |source| match scenario.card_of(source) {
        Some((card, link)) => {
            let bits = scenario.cards[card].rule_of(link).bits().expect("the rules of scenarios are rules");
            SourceConfig::of_card(scenario.source_id(source), bits)
        }
        None => SourceConfig::new(scenario.source_id(source), scenario.sources[source]),
    };
    let begins_anywhere = |source| SourceConfig { begins_anywhere: true, ..source };
    let sources: Vec<SourceConfig> = mine.map(source).map(begins_anywhere).collect();
    let blocks = rooms.blocks_each * sources.len();
    let front_ends = site.endpoints("front ends", rooms.block_bytes, blocks, around).door();
    let peers = site.endpoints("readout receives", 4 << 10, rooms.peer_blocks, around);
    let hosts = vec![front_ends.host(), peers.host()];
    let node = NodeId::readout(index);
    let trigger = scenario.trigger.map(usize::from);
    let is_mine = trigger.is_some_and(|source| scenario.readout_of(source) == index);
    let config = ReadoutDriveConfig {
        readout: ReadoutConfig {
            builders,
            is_alone: scenario.readout_of(scenario.sources.len() - 1) == 0,
            window: rooms.window,
            capacity: rooms.capacity,
            source_timeout: time_outs.source,
            resync_timeout: time_outs.source * 2,
            trigger: trigger.filter(|_| is_mine).map(|source| scenario.source_id(source)),
            trigger_elsewhere: trigger.is_some() && !is_mine,
            ..ReadoutConfig::new(index, sources)
        },
        identity: identity(node, around),
        name: node.to_string(),
        fingerprint: FINGERPRINT,
        descriptions: Vec::new(),
        listen: door_of(index),
        address: node.to_string(),
        managers: scenario.manager_places().map(|place| place.to_string()).collect(),
        builders,
        report_interval,
    };
    let evacuation = Staging::new(pool("evacuation", 16 << 10, 16));
    let drive = ReadoutDrive::new(config, front_ends, peers, site.staging("readout"), evacuation);
    (drive.expect("the addresses are free"), hosts)
}

/// Where front ends connect to.
pub(super) fn door_of(index: u16) -> String {
    format!("{} front ends", NodeId::readout(index))
}

impl Machine for ReadoutMachine {
    fn pools(&mut self) -> Vec<PoolAccount> {
        Self::pools(self)
    }

    fn obeyed(&self) -> Option<(Epoch, Incarnation)> {
        Self::obeyed(self)
    }

    fn check(&self, scenario: &Scenario) -> Result<(), Broken> {
        let (machine, capacity) = (self.machine(), scenario.rooms.capacity.next_power_of_two() as usize);
        for source in 0..scenario.sources_each() {
            let account = machine.account(source);
            Broken::unless(account.received == account.accounted(), Checker::Ledger, || {
                format!("source {source} of it: fragments received are not accounted for: {account:?}")
            })?;
        }
        for (served, absent) in self.served() {
            Broken::unless(absent == 0, Checker::Bounds, || {
                format!("{absent} subscribers of its card are kept whose connections are gone")
            })?;
            let all = served.subscribers;
            Broken::unless(all.is_balanced(), Checker::Ledger, || {
                format!("chunks for subscribers are not accounted for: {all:?}")
            })?;
        }
        let window = u64::from(scenario.rooms.window);
        Broken::unless(machine.lead() <= window, Checker::Bounds, || {
            format!("a source was read {} events past the oldest one, {window} are allowed", machine.lead())
        })?;
        Broken::unless(machine.held() <= capacity, Checker::Bounds, || {
            format!("{} events are held, {capacity} are allowed", machine.held())
        })
    }
}
