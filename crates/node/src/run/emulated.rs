//! Sources that are not there, emulated or played, and how they come to their readout unit.
//!
//! ```text
//!  FEROL blocks, generic fragments ---> the service point of the readout unit, as a real one would
//!  described frames in a stream ------> a service point of its own, on this machine
//!  described frames in datagrams -----> a receiver of the readout unit, handed over: no network loses them
//! ```
//! So whatever a source's own way in is, its emulator needs neither its cable nor its address.

use super::assemble::{RunError, Workshop, endpoint, system};
use super::entrances::{DATAGRAM_BLOCK, DATAGRAM_BLOCKS};
use super::placement::{Purpose, pool_of};
use super::resolve::{Resolved, SEED};
use crate::configuration::{Emulate, FormatName, SourceSection};
use crate::drive::{DatagramInputConfig, Demux, Entrance, ReadoutDrive, SourceDriveConfig, SourceFeed, SourceLine};
use ropewalk_flow::source::{FrameKind, FrameMaker, TriggerRate};
use ropewalk_io::Dispatcher;
use ropewalk_io::packet::local_packets;
use ropewalk_io::tcp::Tcp;
use ropewalk_memory::PoolConfig;
use ropewalk_terms::SourceId;
use ropewalk_wire::fed;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// By source: its line, where it is not the service point that all share.
pub(super) type Lines = BTreeMap<u32, SourceLine>;

/// Datagrams that may wait between a source and its readout unit.
const MOST_WAITING: usize = 4096;
/// Where an emulated source listens in the place of its own address.
const HERE: &str = "127.0.0.1:0";

impl Workshop<'_> {
    /// Opens what the emulated sources of a readout unit need.
    pub(super) fn emulated<P: Dispatcher>(
        &self,
        index: u16,
        readout: &mut ReadoutDrive<Tcp, P>,
    ) -> Result<Lines, RunError> {
        let mut lines = Lines::new();
        for source in self.resolved.sources_of(index).filter(|source| source.emulate.is_some()) {
            let Some(description) = source.description() else { continue };
            let (id, name) = (SourceId(source.id), source.name_or_id());
            let line = if source.has_datagrams() {
                let pool = PoolConfig::anonymous(&pool_of(&name, Purpose::Datagrams), DATAGRAM_BLOCK, DATAGRAM_BLOCKS);
                let pool = self.placement.untouched_pool(pool)?;
                let (feed, receiver) = local_packets(pool, MOST_WAITING).map_err(system(format!("{name}: a bell")))?;
                readout.add_datagrams(DatagramInputConfig {
                    receiver: Box::new(receiver),
                    sources: vec![(id, description, source.datagram_limits())],
                    demux: Demux::Single,
                    is_live: false,
                });
                SourceLine::Datagrams(Box::new(feed))
            } else {
                let bound = readout.add_entrance(id, Entrance::Listen(HERE.to_owned())).map_err(endpoint(&name))?;
                SourceLine::Stream(bound.unwrap_or_default())
            };
            lines.insert(source.id, line);
        }
        Ok(lines)
    }
}

impl Resolved {
    /// What the emulated and played sources of the readout units with an address send, and on which line.
    pub(super) fn feeds(&self, addresses: &[String], mut lines: Lines) -> Result<Vec<SourceDriveConfig>, RunError> {
        let mut feeds = Vec::new();
        for (source, readout) in self.sources_and_readouts() {
            let address = addresses[usize::from(readout)].clone();
            if address.is_empty() {
                continue;
            }
            let feed = match (&source.emulate, &source.play) {
                (Some(emulate), _) => emulated(source, emulate),
                (None, Some(path)) => recorded(path)?,
                (None, None) => continue,
            };
            let line = lines.remove(&source.id).unwrap_or(SourceLine::Stream(address));
            feeds.push(SourceDriveConfig { id: SourceId(source.id), line, feed });
        }
        Ok(feeds)
    }
}

fn emulated(source: &SourceSection, emulate: &Emulate) -> SourceFeed {
    let kind = match (source.description(), source.format) {
        (Some(description), _) => FrameKind::Described(description),
        (None, FormatName::Generic) => FrameKind::Generic,
        (None, FormatName::Ferol | FormatName::Foreign(_)) => FrameKind::Fed,
    };
    let most = usize::try_from(source.max_fragment.0).unwrap_or(usize::MAX);
    let frames = FrameMaker::new(SourceId(source.id), source.first_event(), kind, most, source.has_datagrams());
    let frames = if source.format.has_several_events() { frames.packed(emulate.packing()) } else { frames };
    SourceFeed::Emulated {
        frames: Box::new(frames),
        size: emulate.fragment_size.0,
        rate: emulate.rate.map_or(TriggerRate::Unlimited, |rate| rate.0),
        seed: SEED,
    }
}

fn recorded(path: &Path) -> Result<SourceFeed, RunError> {
    let bytes = std::fs::read(path).map_err(|source| RunError::System { what: path.display().to_string(), source })?;
    let split = fed::split_file(&bytes);
    if !split.gap.is_empty() {
        let (gap, path) = (split.gap, path.display());
        let message =
            format!("{path}: bytes {} to {} are no S-LINK64 fragments; repair or shorten it", gap.start, gap.end);
        return Err(RunError::Unfit(message));
    }
    Ok(SourceFeed::Recorded { bytes: Arc::new(bytes), fragments: Arc::new(split.fragments) })
}
