//! Resolves the configuration once to the configurations of the state machines.

use super::error::RunError;
use super::file_filters::event_files_config;
use super::placement::{Purpose, pool_of};
use super::run_files::RunFiles;
use ropewalk_config::{
    Configuration, FelixSection, FilterSection, FormatName, LumisectionChoice, SourceSection, SyncChoice,
    SynchronyAction,
};
use ropewalk_engine::{
    BuilderDriveConfig, EventFilesConfig, Identity, ManagerDriveConfig, ReadoutDriveConfig, StorageConfig,
    StreamStorage,
};
use ropewalk_flow::builder::{BuilderConfig, BuilderSource, synchrony};
use ropewalk_flow::control::front_ends::{FrontEndConfig, FrontEndsConfig};
use ropewalk_flow::manager::{LumisectionLength, ManagerConfig};
use ropewalk_flow::readout::{Format, OnClose, ReadoutConfig, SourceConfig};
use ropewalk_io::tcp::TcpConfig;
use ropewalk_memory::{MemoryKind, PoolConfig};
use ropewalk_terms::{AcknowledgementLevel, Epoch, NodeId, Requirement, SourceId, Utc};
use ropewalk_wire::felix::ELink;
use ropewalk_wire::ferol;
use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::run_file::{SourceEntry, SourceFormat, StreamName};
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default interval between reports of nodes.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Address of every node for the others.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The event manager and its standbys.
    pub managers: Vec<String>,
    /// The readout units, by index.
    pub readouts: Vec<String>,
}

impl Addresses {
    /// Returns the names on the in-process network.
    pub fn in_process(configuration: &Configuration) -> Self {
        let readouts = configuration.readout.iter().map(|readout| readout.name.clone()).collect();
        Self { managers: vec!["manager".to_owned()], readouts }
    }

    /// Returns the addresses of the configuration.
    pub fn configured(configuration: &Configuration) -> Self {
        let readouts = configuration.readout.iter().map(|readout| readout.address.clone()).collect();
        let manager = &configuration.manager;
        let managers = std::iter::once(&manager.address).chain(&manager.standby).cloned().collect();
        Self { managers, readouts }
    }
}

/// A configuration with every name replaced by an index.
#[derive(Debug)]
pub(super) struct Resolved {
    configuration: Configuration,
    addresses: Addresses,
    fingerprint: u64,
    pub(super) manager: ManagerConfig,
    pub(super) sources: Vec<SourceId>,
    pub(super) staging_block: usize,
    /// Index of the readout unit of each source.
    readout_of: Vec<u16>,
}

/// The largest plausible jump of a source's counter.
const PLAUSIBILITY: u64 = 100_000;
/// Block size for fragments that left the receive pool: small, so that few share one.
const EVACUATION_BLOCK: usize = 32 << 10;
/// Size of a segment of slow readings, in bytes.
const READINGS_SEGMENT: u64 = 64 << 20;
/// Maximum number of preallocated nodes for payloads of several slices (26 MB).
const MAX_CHAIN_NODES: usize = 1 << 16;
/// The seed of emulated triggers, equal for all sources of a run.
pub(super) const SEED: u64 = 0x0072_6f70_6577_616c;

/// Returns the length of a lumisection.
pub(super) fn lumisection_length(configuration: &Configuration) -> LumisectionLength {
    match configuration.run.lumisection {
        None => LumisectionLength::Run,
        Some(LumisectionChoice::Events(events)) => LumisectionLength::Events(events),
        Some(LumisectionChoice::Time(time)) => LumisectionLength::Time(time.0),
    }
}

impl Resolved {
    pub(super) fn new(configuration: &Configuration, addresses: Addresses) -> Self {
        let names: BTreeMap<&str, u16> = configuration
            .readout
            .iter()
            .enumerate()
            .map(|(index, readout)| (readout.name.as_str(), index as u16))
            .collect();
        let readout_of: Vec<u16> = configuration
            .source
            .iter()
            .map(|source| names.get(source.readout.as_str()).copied().unwrap_or(0))
            .collect();
        let trigger = configuration.source.iter().position(|source| source.trigger);
        let times = &configuration.timeouts;
        let capacity = configuration.readout.iter().map(|readout| readout.capacity).max().unwrap_or(1 << 15);
        let manager = ManagerConfig {
            readouts: configuration.readout.len() as u16,
            builders: configuration.builder.len() as u16,
            capacity: (capacity * 2).next_power_of_two(),
            policy: configuration.manager.policy,
            batch: configuration.manager.batch as usize,
            event_timeout: times.manager.0,
            unreachable_timeout: times.unreachable.0,
            drain_timeout: times.drain.0,
            trigger_readout: trigger.map(|index| readout_of[index]),
            lumisection: lumisection_length(configuration),
            epoch: Epoch(configuration.manager.epoch),
        };
        let sources: Vec<SourceId> = configuration.source.iter().map(|source| SourceId(source.id)).collect();
        // The tables of one super-fragment must fit into one staging block, for any number of sources.
        let staging_block = ((64 << 10) + sources.len() * 64).next_power_of_two();
        let fingerprint = fingerprint(configuration);
        Self {
            configuration: configuration.clone(),
            addresses,
            fingerprint,
            manager,
            sources,
            staging_block,
            readout_of,
        }
    }

    /// Returns the configuration from which it was made.
    pub(super) const fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    pub(super) fn manager_drive(&self, index: u16, identity: Identity) -> ManagerDriveConfig {
        ManagerDriveConfig {
            manager: self.manager.clone(),
            identity,
            fingerprint: self.fingerprint,
            address: self.addresses.managers[usize::from(index)].clone(),
            level: self.level(),
        }
    }

    pub(super) fn readout_drive(&self, index: u16, identity: Identity) -> ReadoutDriveConfig {
        let section = &self.configuration.readout[usize::from(index)];
        let mine =
            || self.configuration.source.iter().zip(&self.readout_of).filter(move |&(_, &readout)| readout == index);
        let sources: Vec<SourceConfig> = mine().map(|(source, _)| self.source(source)).collect();
        let trigger = mine().find(|(source, _)| source.trigger).map(|(source, _)| SourceId(source.id));
        let times = &self.configuration.timeouts;
        let is_alone = self.configuration.readout.len() == 1;
        // Emulated sources and those under run control begin with a given number.
        let may_show = |source: &SourceSection| {
            source.given_first_event().is_none() && source.emulate.is_none() && !source.is_under_run_control()
        };
        let first_is_open = is_alone && self.configuration.source.iter().all(may_show);
        let readout = ReadoutConfig {
            index,
            is_alone,
            first_is_open,
            sources,
            builders: self.manager.builders,
            window: section.window,
            capacity: section.capacity,
            plausibility: PLAUSIBILITY,
            source_timeout: times.readout.0,
            resync_timeout: times.resync.0,
            trigger,
            trigger_elsewhere: trigger.is_none() && self.manager.trigger_readout.is_some(),
            histograms: self.configuration.histogram_configs(),
        };
        ReadoutDriveConfig {
            readout,
            identity,
            name: section.name.clone(),
            fingerprint: self.fingerprint,
            descriptions: mine().filter_map(|(source, _)| Some((SourceId(source.id), source.description()?))).collect(),
            listen: section.listen.clone(),
            address: self.addresses.readouts[usize::from(index)].clone(),
            managers: self.addresses.managers.clone(),
            builders: self.manager.builders,
            report_interval: REPORT_INTERVAL,
        }
    }

    fn source(&self, source: &SourceSection) -> SourceConfig {
        let (id, card) = (SourceId(source.id), self.card_of(source));
        let usual = match (card.and_then(|card| card.rule_of(source).bits()), source.description()) {
            (Some(bits), _) => SourceConfig::of_card(id, bits),
            (None, Some(description)) => SourceConfig::of_frames(id, &description, description.has_event()),
            (None, None) if source.format == FormatName::Generic => SourceConfig::new(id, Format::Generic),
            (None, None) => SourceConfig::new(id, Format::Ferol),
        };
        SourceConfig {
            requirement: source.requirement,
            counter_bits: source.counter_bits.unwrap_or_else(|| match source.own_splitter() {
                // A splitter's event number is not limited by the frame's counter.
                Some(_) => u64::BITS as u8,
                None => usual.counter_bits,
            }),
            first: source.first_event(),
            begins_anywhere: source.given_first_event().is_none(),
            runs_free: source.runs_free(),
            max_fragment: source.max_fragment.0.min(u64::from(u32::MAX)) as u32,
            is_recorded: source.file().is_some(),
            on_close: match source.on_close {
                // A card or file that has ended outside of this process does not return.
                _ if card.is_some_and(FelixSection::is_foreign) || source.is_read() => OnClose::End,
                given => given,
            },
            check_crc: self.configuration.run.check_crc,
            numbers_grow: source.numbers_grow(),
            reorder: source.reorder,
            reorder_timeout: source.reorder_timeout.0,
            gather: source.gathering(),
            ..usual
        }
    }

    pub(super) fn card(&self, name: &str) -> Option<&FelixSection> {
        self.configuration.felix.iter().find(|card| card.name == name)
    }

    /// Returns whether every source is an e-link of a card whose blocks come from outside of this process, and end
    /// there.
    pub(super) fn is_fed(&self) -> bool {
        self.configuration.source.iter().all(|source| self.card_of(source).is_some_and(FelixSection::is_foreign))
    }

    /// Returns the file from which the configuration was read.
    ///
    /// # Errors
    /// If there is none: another process could not read it.
    pub(super) fn file(&self) -> Result<PathBuf, RunError> {
        let message = "a card with `writer = \"process\"` needs a configuration in a file, which its writer reads too";
        self.configuration.file.clone().ok_or_else(|| RunError::Unfit(message.to_owned()))
    }

    fn card_of(&self, source: &SourceSection) -> Option<&FelixSection> {
        source.link().and_then(|link| self.card(&link.card))
    }

    /// Returns the sources under run control and their time-outs.
    pub(super) fn front_ends(&self) -> FrontEndsConfig {
        let times = &self.configuration.timeouts;
        let front_end = |(source, _): (&SourceSection, u16)| FrontEndConfig {
            source: SourceId(source.id),
            is_trigger: source.trigger,
            is_required: source.requirement == Requirement::Required,
            settings: source.settings().cloned().unwrap_or_default().0,
        };
        FrontEndsConfig {
            front_ends: self.controlled().map(front_end).collect(),
            answer: times.front_end.0,
            drain: times.drain.0.max(times.front_end.0),
        }
    }

    /// Returns the address that front ends under run control connect to.
    pub(super) fn front_ends_address(&self) -> String {
        self.configuration.run.front_ends.clone()
    }

    /// Returns where each front end under run control sends its data, for readout units with these addresses. A
    /// wildcard host is left out: the front end uses the host at which it reached run control.
    pub(super) fn data_addresses(&self, readouts: &[String]) -> Vec<String> {
        let address = |(_, readout): (&SourceSection, u16)| {
            let address = &readouts[usize::from(readout)];
            let port = address.strip_prefix("0.0.0.0").or_else(|| address.strip_prefix("[::]"));
            port.unwrap_or(address).to_owned()
        };
        self.controlled().map(address).collect()
    }

    /// Returns the same if the readout units are other processes, of which only the configured addresses are known.
    ///
    /// # Errors
    /// If a readout unit listens at a port that is not configured.
    pub(super) fn fixed_data_addresses(&self) -> Result<Vec<String>, RunError> {
        let listen: Vec<String> = self.configuration.readout.iter().map(|readout| readout.listen.clone()).collect();
        let unknown = self.controlled().find(|(_, readout)| listen[usize::from(*readout)].ends_with(":0"));
        if let Some((source, _)) = unknown {
            let message = format!(
                "source {} is under run control, and its readout unit `{}` is another process: give that a `listen` with \
                 a fixed port, so that the source can be told where to send",
                source.id, source.readout
            );
            return Err(RunError::Unfit(message));
        }
        Ok(self.data_addresses(&listen))
    }

    fn controlled(&self) -> impl Iterator<Item = (&SourceSection, u16)> {
        self.sources_and_readouts().filter(|(source, _)| source.is_under_run_control())
    }

    /// Returns how slow readings are written; `None` if nothing is.
    pub(super) fn readings(&self, epoch: Utc) -> Option<StorageConfig> {
        let usual = self.storage(0, epoch)?;
        // They are few: one segment holds those of a run, and none is deleted for newer ones.
        Some(StorageConfig {
            writer: NodeId::MANAGER,
            output: self.configuration.run.output.clone(),
            more_outputs: Vec::new(),
            checksums: false,
            hand_over: None,
            streams: vec![StreamStorage::default()],
            segment_bytes: READINGS_SEGMENT,
            packing_threads: 1,
            batch_bytes: StorageConfig::BATCH_BYTES,
            preallocate: false,
            segment_events: u64::MAX,
            segment_time: None,
            keep: None,
            ..usual
        })
    }

    /// Returns every source with its readout unit.
    pub(super) fn sources_and_readouts(&self) -> impl Iterator<Item = (&SourceSection, u16)> {
        self.configuration.source.iter().zip(self.readout_of.iter().copied())
    }

    /// Returns every card with the readout unit of its e-links.
    pub(super) fn cards_and_readouts(&self) -> impl Iterator<Item = (&FelixSection, u16)> {
        self.configuration.felix.iter().filter_map(|card| {
            let is_link = |source: &SourceSection| source.link().is_some_and(|link| link.card == card.name);
            let first = self.configuration.source.iter().position(is_link)?;
            Some((card, self.readout_of[first]))
        })
    }

    /// Returns the e-links of a card that are sources.
    pub(super) fn links(&self, card: &FelixSection) -> Vec<(ELink, &SourceSection)> {
        let all = self.configuration.source.iter().filter_map(|source| Some((source.link()?, source)));
        all.filter(|(link, _)| link.card == card.name).map(|(link, source)| (ELink::new(link.elink), source)).collect()
    }

    pub(super) fn readout_pool(&self, index: u16) -> PoolConfig {
        let section = &self.configuration.readout[usize::from(index)];
        let name = pool_of(&section.name, Purpose::Fragments);
        self.of_data(PoolConfig::anonymous(
            &name,
            section.block.0 as usize,
            (section.pool.0 / section.block.0) as usize,
        ))
    }

    /// Returns the number of nodes for payloads of several slices that can be in use when every pool is full. If
    /// fragments span FEROL blocks each of them can be such a payload (if the blocks have any length), in the readout
    /// unit and again in the builder unit. Otherwise only fragments that lie across two blocks of memory are.
    pub(super) fn chain_nodes(&self) -> usize {
        let spans =
            self.configuration.source.iter().any(|source| source.max_fragment.0 > ferol::MAX_PAYLOAD_BYTES as u64);
        let payloads = |readout: &ropewalk_config::ReadoutSection| {
            let smallest = if spans { ferol::MAX_PAYLOAD_BYTES as u64 } else { readout.block.0 };
            2 * (readout.pool.0 / smallest) as usize
        };
        // Every chunk in several blocks can be such a payload.
        let chunks = |card: &FelixSection| 2 * (card.memory.0 as usize / card.blocks.0.block_bytes());
        let cards = self.configuration.felix.iter().map(chunks);
        self.configuration.readout.iter().map(payloads).chain(cards).sum::<usize>().min(MAX_CHAIN_NODES)
    }

    /// Returns the pool for fragments that must leave the receive pool: an eighth of it, in small blocks.
    pub(super) fn evacuation_pool(&self, index: u16) -> PoolConfig {
        let section = &self.configuration.readout[usize::from(index)];
        let name = pool_of(&section.name, Purpose::Evacuation);
        let blocks = ((section.pool.0 / 8) as usize / EVACUATION_BLOCK).max(4);
        self.of_data(PoolConfig::anonymous(&name, EVACUATION_BLOCK, blocks))
    }

    pub(super) fn builder_pool(&self, index: u16) -> PoolConfig {
        let section = &self.configuration.builder[usize::from(index)];
        let name = pool_of(&section.name, Purpose::Received);
        self.of_data(PoolConfig::anonymous(&name, 256 << 10, (section.pool.0 / (256 << 10)).max(16) as usize))
    }

    /// Returns the configuration of a pool for fragments, shared if filters in other processes read it.
    fn of_data(&self, config: PoolConfig) -> PoolConfig {
        let is_shared = self.configuration.filter.as_ref().is_some_and(FilterSection::has_processes);
        PoolConfig { memory: if is_shared { MemoryKind::Memfd } else { config.memory }, ..config }
    }

    pub(super) fn builder_drive(&self, index: u16, identity: Identity) -> BuilderDriveConfig {
        let section = &self.configuration.builder[usize::from(index)];
        let run = &self.configuration.run;
        let sources = self.configuration.source.iter().zip(&self.readout_of).map(|(source, &readout)| BuilderSource {
            requirement: source.requirement,
            bunch_crossing_offset: source.bunch_crossing.offset,
            bunch_crossing_mask: source.bunch_crossing.mask,
            ..BuilderSource::new(SourceId(source.id), readout)
        });
        let builder = BuilderConfig {
            slots: section.events,
            table: self.manager.capacity,
            // Received blocks are held until the last event in them is written: half of the pool may be granted.
            credit_bytes: section.bytes.0.min(section.pool.0 / 2),
            event_timeout: self.configuration.timeouts.builder.0,
            unreachable_timeout: self.configuration.timeouts.unreachable.0,
            incomplete: run.incomplete,
            level: self.level(),
            check_bunch_crossing: run.check_bunch_crossing,
            synchrony: self.synchrony(),
            ..BuilderConfig::new(index, self.manager.readouts, sources.collect())
        };
        BuilderDriveConfig {
            builder,
            identity,
            name: section.name.clone(),
            fingerprint: self.fingerprint,
            managers: self.addresses.managers.clone(),
            readouts: self.addresses.readouts.clone(),
            report_interval: REPORT_INTERVAL,
        }
    }

    /// Returns the configured TCP settings.
    pub(super) fn tcp(&self) -> TcpConfig {
        TcpConfig { mechanism: self.configuration.run.tcp, ..TcpConfig::default() }
    }

    /// Returns how run files are written.
    pub(super) fn run_files(&self) -> RunFiles<'_> {
        RunFiles::of(&self.configuration)
    }

    fn level(&self) -> AcknowledgementLevel {
        match self.configuration.run.acknowledge {
            // If nothing is written, a decided event counts as written.
            _ if self.configuration.filter.is_some() && !self.configuration.run.write => AcknowledgementLevel::Written,
            level => level,
        }
    }

    /// Returns the names of the run's streams, in order.
    pub(super) fn streams(&self) -> Vec<StreamName> {
        self.configuration.streams().names().collect()
    }

    /// Returns how a builder unit writes run files; `None` if it writes elsewhere or not at all.
    pub(super) fn storage(&self, index: u16, epoch: Utc) -> Option<StorageConfig> {
        let writes_run_files = self.configuration.writes_to_disk() && self.configuration.file_based.is_none();
        writes_run_files.then(|| self.writer(index, epoch))
    }

    /// Returns how a builder unit writes, to run files or to a pipe.
    pub(super) fn writer(&self, index: u16, epoch: Utc) -> StorageConfig {
        let run = &self.configuration.run;
        let entry = |source: &SourceSection| SourceEntry {
            id: SourceId(source.id),
            format: match source.format {
                _ if source.link().is_some() => SourceFormat::CHUNK,
                _ if source.has_layout() => SourceFormat::OPAQUE,
                FormatName::Ferol => SourceFormat::FED,
                FormatName::Generic => SourceFormat::GENERIC,
                FormatName::Foreign(ForeignFormat::Fed) => SourceFormat::FED,
                FormatName::Foreign(ForeignFormat::LhcbBanks) => SourceFormat::BANKS,
                FormatName::Foreign(_) => SourceFormat::OPAQUE,
            },
            name: source.name_or_id(),
        };
        let of_filter = self.configuration.filter.as_ref().map(|_| SourceEntry {
            id: SourceId::FILTER,
            format: SourceFormat::FILTER_RESULT,
            name: "filter".to_owned(),
        });
        StorageConfig {
            epoch,
            sources: self.configuration.source.iter().map(entry).chain(of_filter).collect(),
            level: self.level(),
            sync_batches: run.sync == SyncChoice::Batch || run.acknowledge == AcknowledgementLevel::Synced,
            ..self.run_files().storage_config(
                NodeId::builder(index),
                self.output(index).to_owned(),
                &self.configuration.streams(),
            )
        }
    }

    /// Returns the parent of a builder unit's run directories.
    pub(super) fn output(&self, index: u16) -> &Path {
        self.configuration.builder[usize::from(index)].output.as_ref().unwrap_or(&self.configuration.run.output)
    }

    /// Returns how a builder unit writes event files; `None` if it does not. Each unit has its own directory.
    pub(super) fn event_files(&self, index: u16) -> Option<EventFilesConfig> {
        let builder = &self.configuration.builder[usize::from(index)];
        let own = (self.configuration.builder.len() > 1).then_some(builder.name.as_str());
        event_files_config(&self.configuration, index, self.output(index), own, self.level())
    }

    /// Returns the synchrony check; `None` if it is off.
    fn synchrony(&self) -> Option<synchrony::Config> {
        let section = &self.configuration.synchrony;
        let action = match section.action {
            SynchronyAction::Off => return None,
            SynchronyAction::Flag => synchrony::Action::Flag,
            SynchronyAction::Pause => synchrony::Action::Pause,
            SynchronyAction::Stop => synchrony::Action::Stop,
        };
        let sources = self.configuration.source.iter().map(|source| synchrony::SourceConfig {
            bunch_crossing_offset: source.bunch_crossing.offset,
            bunch_crossing_mask: source.bunch_crossing.mask,
            ..synchrony::SourceConfig::new(SourceId(source.id))
        });
        Some(synchrony::Config {
            reference: section.reference.map(SourceId),
            window: section.window.min(u32::from(u16::MAX)) as u16,
            action,
            ..synchrony::Config::new(sources)
        })
    }
}

/// Returns a hash of everything that must be equal in the configurations of all nodes of a run: the nodes, and the
/// definition of a complete event. Addresses and directories may differ.
fn fingerprint(configuration: &Configuration) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    for readout in &configuration.readout {
        hasher.write(readout.name.as_bytes());
        hasher.write_u8(0);
    }
    for builder in &configuration.builder {
        hasher.write(builder.name.as_bytes());
        hasher.write_u8(1);
    }
    for source in &configuration.source {
        hasher.write_u32(source.id);
        hasher.write(source.readout.as_bytes());
        hasher.write(source.format.name().as_bytes());
        hasher.write(&[source.requirement as u8, source.trigger.into(), source.is_under_run_control().into()]);
        hasher.write_u64(source.first_event());
        if let Some(link) = source.link() {
            hasher.write(link.card.as_bytes());
            hasher.write_u16(link.elink);
        }
    }
    hasher.finish()
}
