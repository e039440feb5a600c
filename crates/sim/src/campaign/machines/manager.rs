//! The event manager: how it is wired, and what must hold of it.

use super::super::broken::{Broken, Checker};
use super::super::endpoints::{Endpoints, Surroundings};
use super::super::node::Machine;
use super::super::scenario::Scenario;
use super::{FINGERPRINT, Site, identity};
use ropewalk_flow::manager::ManagerConfig;
use ropewalk_node::drive::{ManagerDrive, ManagerDriveConfig};
use ropewalk_terms::{Epoch, NodeId, PoolAccount};

/// The drive on simulated endpoints.
pub(in super::super) type ManagerMachine = ManagerDrive<Endpoints>;

/// The only event manager of the run.
pub(in super::super) fn manager(site: &Site<'_>, around: &Surroundings) -> (ManagerMachine, Vec<u32>) {
    let Scenario { readouts, builders, assign, batch, time_outs, rooms, .. } = *site.scenario;
    let peers = site.endpoints("manager receives", 4 << 10, rooms.peer_blocks, around);
    let hosts = vec![peers.host()];
    let config = ManagerDriveConfig {
        manager: ManagerConfig {
            readouts,
            builders,
            capacity: rooms.table,
            policy: assign,
            batch,
            event_timeout: time_outs.manager,
            drain_timeout: time_outs.drain,
            trigger_readout: None,
            epoch: Epoch(1),
        },
        identity: identity(NodeId::MANAGER, around),
        fingerprint: FINGERPRINT,
        address: "manager".to_owned(),
        level: site.scenario.level,
    };
    (ManagerDrive::new(config, peers, site.staging("manager")).expect("the address is free"), hosts)
}

impl Machine for ManagerMachine {
    fn pools(&mut self) -> Vec<PoolAccount> {
        Self::pools(self)
    }

    fn check(&self, scenario: &Scenario) -> Result<(), Broken> {
        let account = self.machine().account();
        Broken::unless(account.assigned == account.accounted(), Checker::Ledger, || {
            format!("events assigned are not those ended and in flight: {account:?}")
        })?;
        for builder in 0..scenario.builders {
            let (events, _) = self.machine().free_credit(builder);
            Broken::unless(events <= u64::from(scenario.rooms.slots), Checker::Credits, || {
                format!("bu{builder} can be given {events} events and has {} slots", scenario.rooms.slots)
            })?;
        }
        Broken::unless(account.in_flight <= u64::from(scenario.rooms.table), Checker::Bounds, || {
            format!("{} events are in flight", account.in_flight)
        })
    }
}
