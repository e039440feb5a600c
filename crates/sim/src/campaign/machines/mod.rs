//! How each machine is wired into a run, and what must hold of it: one file each.

mod builder;
mod card;
mod front_end;
mod manager;
mod readout;
mod record;
mod stranger;
mod subscriber;

pub(super) use builder::{BuilderMachine, builder};
pub(super) use card::{Card, Said};
pub(super) use front_end::{FrontEnd, Misbehaviour};
pub(super) use manager::{ManagerMachine, manager, run_of};
pub(super) use readout::{ReadoutMachine, readout};
pub(super) use record::{How, Made, Record};
pub(super) use stranger::Stranger;
pub(super) use subscriber::{Got, Journal, Subscriber, Visit};

use super::coordination::SharedService;
use super::endpoints::{Endpoints, Surroundings};
use super::scenario::Scenario;
use ropewalk_io::disk::SimulatedStorage;
use ropewalk_io::simulated::{Network, SimulatedConfig};
use ropewalk_memory::{Pool, PoolConfig, Staging};
use ropewalk_node::drive::Identity;
use ropewalk_terms::{Epoch, Incarnation, NodeId, RunNumber};

/// All nodes of a run have the same configuration.
const FINGERPRINT: u64 = 7;

/// What machines are wired to.
pub(super) struct Site<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) network: &'a Network,
    /// One for each builder unit.
    pub(super) storages: &'a [SimulatedStorage],
    /// Where event managers have a lease.
    pub(super) coordination: Option<&'a SharedService>,
}

impl Site<'_> {
    /// Endpoints that receive into so many blocks of so many bytes.
    fn endpoints(&self, name: &str, block: usize, blocks: usize, around: &Surroundings) -> Endpoints {
        let config = SimulatedConfig { send_queue_bytes: self.scenario.rooms.send_queue, ..SimulatedConfig::default() };
        Endpoints::new(self.network, config, pool(name, block, blocks), around)
    }

    fn staging(&self, name: &str) -> Staging {
        Staging::new(pool(name, 64 << 10, self.scenario.rooms.staging_blocks))
    }
}

fn pool(name: &str, block: usize, blocks: usize) -> Pool {
    Pool::new_untouched(PoolConfig::heap(name, block, blocks)).expect("there is memory for a small pool")
}

/// Who a node is: its life is told by its UTC clock, as the program does it.
fn identity(node: NodeId, around: &Surroundings) -> Identity {
    let incarnation = Incarnation(around.clock.utc().0.max(1) as u64);
    Identity { node, incarnation, run: RunNumber(0), epoch: Epoch(u32::from(node == NodeId::MANAGER)) }
}
