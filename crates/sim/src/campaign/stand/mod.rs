//! What small campaigns of one readout unit have in common: boards come to it over a simulated network, and somebody stands for
//! event manager and builder units.
//!
//! ```text
//!   a board's Connection --frames--> ReadoutDrive --settled events--> Overseer: starts, looks at contents, releases, stops
//! ```

mod checks;
mod connection;
mod course;
mod overseer;

pub(super) use checks::{held, is_accounted_for, reads_within};
pub(super) use connection::Connection;
pub(super) use course::{Course, STEP};
pub(super) use overseer::Overseer;

use ropewalk_flow::readout::{Format, ReadoutConfig, SourceConfig};
use ropewalk_io::simulated::{Faults, Network, Simulated, SimulatedConfig};
use ropewalk_memory::{Pool, PoolConfig, Staging};
use ropewalk_node::drive::{Entrance, Identity, Outbox, ReadoutDrive, ReadoutDriveConfig};
use ropewalk_terms::{Epoch, Incarnation, NodeId, RunNumber, SourceId};
use ropewalk_wire::description::Description;
use std::time::Duration;

/// The readout unit of such a campaign.
pub(super) type Machine = ReadoutDrive<Simulated, Simulated>;

pub(super) fn pool(name: &str, block: usize, blocks: usize) -> Pool {
    Pool::new_untouched(PoolConfig::heap(name, block, blocks)).expect("there is memory for a small pool")
}

fn identity(node: NodeId) -> Identity {
    Identity { node, incarnation: Incarnation(1), run: RunNumber(1), epoch: Epoch(1) }
}

pub(super) fn source_of(board: usize) -> SourceId {
    SourceId(board as u32 + 1)
}

fn dispatcher(network: &Network, name: &str, block: usize, blocks: usize) -> Simulated {
    let config = SimulatedConfig { send_queue_bytes: 64 << 10, ..SimulatedConfig::default() };
    network.dispatcher(config, pool(name, block, blocks))
}

/// A readout unit with so many boards, whose frames are described; beyond what every source of theirs has, each is as `source` says.
pub(super) fn readout_config(
    boards: usize,
    window: u32,
    source_timeout: Duration,
    source: impl Fn(SourceConfig) -> SourceConfig,
) -> ReadoutConfig {
    let source = |board| source(SourceConfig::new(source_of(board), Format::Described));
    ReadoutConfig {
        window,
        capacity: 2 * window,
        is_alone: true,
        source_timeout,
        resync_timeout: 2 * source_timeout,
        ..ReadoutConfig::new(0, (0..boards).map(source).collect())
    }
}

/// The network, the readout unit with a door for each board, and who oversees it; each board's connection, too.
pub(super) struct Stand {
    pub(super) readout: Machine,
    pub(super) overseer: Overseer,
    pub(super) connections: Vec<Connection>,
}

impl Stand {
    /// With as many boards as the readout unit has sources, which are described so; the run's last event is known from the start, or
    /// not.
    pub(super) fn new(seed: u64, readout: ReadoutConfig, description: &Description, last: Option<u64>) -> Self {
        let network = Network::new(seed, Faults::bumpy());
        let boards = readout.sources.len();
        let outbox = Outbox::new(identity(NodeId::MANAGER), Staging::new(pool("words", 64 << 10, 16)));
        let overseer = Overseer::new(dispatcher(&network, "overseer", 64 << 10, 64), outbox, "manager", last);
        let config = ReadoutDriveConfig {
            descriptions: readout.sources.iter().map(|source| (source.id, description.clone())).collect(),
            readout,
            identity: identity(NodeId::readout(0)),
            name: "ru0".to_owned(),
            fingerprint: 7,
            listen: "front ends".to_owned(),
            address: "ru0".to_owned(),
            managers: vec!["manager".to_owned()],
            builders: 1,
            report_interval: Duration::from_millis(50),
        };
        let own = dispatcher(&network, "boards", 4 << 10, 24 * boards);
        let peers = dispatcher(&network, "peers", 64 << 10, 16);
        let [staging, evacuation] = ["staging", "evacuation"].map(|name| Staging::new(pool(name, 64 << 10, 16)));
        let mut readout = ReadoutDrive::new(config, own, peers, staging, evacuation).expect("the addresses are free");
        let mut connections = Vec::new();
        for board in 0..boards {
            let address = format!("board {board}");
            let opened = readout.add_entrance(source_of(board), Entrance::Listen(address.clone()));
            opened.expect("the address is free");
            let staging = Staging::new(pool("frames", 16 << 10, 32));
            connections.push(Connection::new(dispatcher(&network, "board", 256, 2), staging, address));
        }
        Self { readout, overseer, connections }
    }
}
