//! A builder unit: how it is wired, and what must hold of it.

use super::super::broken::{Broken, Checker};
use super::super::disk::NodeDisk;
use super::super::endpoints::{Endpoints, Surroundings};
use super::super::filtering;
use super::super::node::Machine;
use super::super::scenario::{Managers, Scenario};
use super::{FINGERPRINT, Site, identity};
use ropewalk_flow::builder::{BuilderConfig, BuilderSource};
use ropewalk_flow::readout::Format;
use ropewalk_node::drive::{BuilderDrive, BuilderDriveConfig, Storage, StorageConfig, StreamStorage};
use ropewalk_terms::{AcknowledgementLevel, Epoch, Incarnation, NodeId, PoolAccount, Utc};
use ropewalk_wire::run_file::{SourceEntry, SourceFormat};

/// The drive on simulated endpoints and a simulated disk.
pub(in super::super) type BuilderMachine = BuilderDrive<Endpoints>;

/// A life of the builder unit with this index.
pub(in super::super) fn builder(site: &Site<'_>, around: &Surroundings, index: u16) -> (BuilderMachine, Vec<u32>) {
    let scenario = site.scenario;
    let node = NodeId::builder(index);
    let peers = site.endpoints("builder receives", 16 << 10, scenario.rooms.peer_blocks, around);
    let hosts = vec![peers.host()];
    let identity = identity(node, around);
    let config = BuilderDriveConfig {
        builder: machine_config(scenario, index),
        identity,
        name: node.to_string(),
        fingerprint: FINGERPRINT,
        managers: scenario.manager_places().map(|place| place.to_string()).collect(),
        readouts: (0..scenario.readouts).map(|index| NodeId::readout(index).to_string()).collect(),
        report_interval: scenario.report_interval,
    };
    let entry = |(index, format): (usize, &Format)| {
        let id = scenario.source_id(index);
        let format = if *format == Format::Ferol { SourceFormat::FED } else { SourceFormat::GENERIC };
        SourceEntry { id, format, name: format!("source-{id}") }
    };
    let utc = around.clock.utc().0.saturating_sub_unsigned(around.clock.now().as_nanoseconds());
    let storage = StorageConfig {
        epoch: Utc(utc),
        sources: scenario.sources.iter().enumerate().map(entry).collect(),
        streams: streams(scenario),
        level: scenario.level,
        sync_batches: scenario.level == AcknowledgementLevel::Synced,
        segment_bytes: 64 << 10,
        batch_bytes: 16 << 10,
        segment_events: scenario.rooms.segment_events,
        give_up_after: scenario.time_outs.drain / 2,
        ..StorageConfig::new(node, "/data")
    };
    let disk = NodeDisk::new(&site.storages[usize::from(index)], &around.clock);
    let storage = Storage::new(disk, storage, site.staging("records"));
    let drive = BuilderDrive::new(config, peers, Some(Box::new(storage)), site.staging("builder"))
        .expect("no address is wrong");
    let drive = match &scenario.filters {
        None => drive,
        Some(filters) => {
            let filtering = filtering::filtering(filters, scenario.rooms.slots.max(1));
            drive.with_filtering(filtering, scenario.time_outs.drain / 2)
        }
    };
    (drive, hosts)
}

/// Where what is kept goes.
fn streams(scenario: &Scenario) -> Vec<StreamStorage> {
    if scenario.filters.is_none() {
        return vec![StreamStorage::default()];
    }
    let stream = |name| StreamStorage { name, selected: true, ..StreamStorage::default() };
    filtering::streams().names().map(stream).collect()
}

fn machine_config(scenario: &Scenario, index: u16) -> BuilderConfig {
    let sources = (0..scenario.sources.len()).map(|source| BuilderSource {
        bunch_crossing_mask: if scenario.sources[source] == Format::Ferol { 0xfff } else { 0 },
        ..BuilderSource::new(scenario.source_id(source), scenario.readout_of(source))
    });
    BuilderConfig {
        slots: scenario.rooms.slots,
        table: scenario.rooms.table,
        credit_bytes: scenario.rooms.credit_bytes,
        event_timeout: scenario.time_outs.builder,
        incomplete: scenario.incomplete,
        level: scenario.level,
        check_bunch_crossing: scenario.bunch_crossings,
        ..BuilderConfig::new(index, scenario.readouts, sources.collect())
    }
}

impl Machine for BuilderMachine {
    fn pools(&mut self) -> Vec<PoolAccount> {
        Self::pools(self)
    }

    fn obeyed(&self) -> Option<(Epoch, Incarnation)> {
        Self::obeyed(self)
    }

    fn check(&self, scenario: &Scenario) -> Result<(), Broken> {
        let account = self.machine().account();
        Broken::unless(account.assigned == account.accounted(), Checker::Ledger, || {
            format!("events assigned are not those ended and in flight: {account:?}")
        })?;
        let misplaced = self.machine().misplaced().filter(|_| scenario.managers == Managers::Alone);
        Broken::unless(misplaced.is_none(), Checker::Keys, || {
            format!("{misplaced:?} is taken for an event of another lumisection")
        })?;
        Broken::unless(self.machine().in_work() <= scenario.rooms.slots as usize, Checker::Bounds, || {
            format!("{} events are in work, {} are allowed", self.machine().in_work(), scenario.rooms.slots)
        })
    }
}
