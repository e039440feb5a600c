//! FELIX cards of readout units: emulated, read from files or pipes, or written by a separate process.

use super::error::{RunError, endpoint, system};
use super::feeder::{ChildSlot, Feed, Feeder, FeederNotes, Work, how_it_ended};
use super::placement::{Purpose, pool_of};
use super::resolve::{Resolved, SEED};
use super::workshop::Workshop;
use ropewalk_config::ByteOrigin;
use ropewalk_config::{
    Blocks, Configuration, EmulateCard, FelixSection, ServeSection, SourceSection, WakeChoice, WriterChoice,
};
use ropewalk_engine::ReadoutDrive;
use ropewalk_engine::stream::StreamServer;
use ropewalk_flow::readout::felix::{CardConfig, ChunkConfig, EventRules};
use ropewalk_flow::source::TriggerRate;
use ropewalk_flow::source::felix::{CHUNK_HEAD_BYTES, EmulatedCardConfig, EmulatedLinkConfig, Outage};
use ropewalk_io::Dispatcher;
use ropewalk_io::tcp::Tcp;
use ropewalk_io::wait::Bell;
use ropewalk_memory::ring::RingWriter;
use ropewalk_memory::{MemoryKind, PoolConfig, Staging};
use ropewalk_terms::SourceId;
use ropewalk_tools::felix::{BlockInput, blocks, blocks_of_kind};
use ropewalk_wire::felix::{BlockFormat, ELink};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Page size of a ring, rounded up to whole blocks. A single slice keeps its whole page from being reused.
const PAGE: usize = 64 << 10;
/// Minimum number of pages of a ring.
const LEAST_PAGES: u64 = 4;

/// Size and number of blocks for messages of subscribers, which are short and few at once.
const SUBSCRIBERS: (usize, usize) = (16 << 10, 128);
/// Size and number of blocks for staging the data looped back to subscribers.
const LOOP_BACK: (usize, usize) = (128 << 10, 64);

/// The cards of a readout unit.
#[derive(Default)]
pub(super) struct Cards {
    /// Cards that this process emulates. They start when the gate that stops them exists.
    pub(super) emulated: Vec<CardToEmulate>,
    /// Writers of the other cards' blocks.
    pub(super) feeds: Vec<Feed>,
    /// Address for subscribers of each card, by the card's name.
    pub(super) addresses: Vec<(String, String)>,
}

/// An emulated card, and the ring that it writes.
pub(super) struct CardToEmulate {
    /// The card's name, and its thread's.
    pub(super) name: String,
    pub(super) config: EmulatedCardConfig,
    pub(super) ring: RingWriter,
    pub(super) bell: Option<Bell>,
}

impl Workshop<'_> {
    /// Gives a readout unit the rings of its cards, and their subscribers. With `events`, cards end after this many
    /// triggers.
    pub(super) fn cards<P: Dispatcher>(
        &self,
        index: u16,
        readout: &mut ReadoutDrive<Tcp, P>,
        events: Option<u64>,
    ) -> Result<Cards, RunError> {
        let mut cards = Cards::default();
        for card in self.resolved.cards(index) {
            let links = self.resolved.links(card);
            let config = CardConfig {
                chunks: chunks(card, &links),
                rules: rules(card, &links),
                links: links.iter().map(|&(elink, source)| (elink, SourceId(source.id))).collect(),
            };
            let bell = match card.wake {
                WakeChoice::Interrupt => Some(Bell::new().map_err(system(format!("{}: bell", card.name)))?),
                WakeChoice::Poll => None,
            };
            let name = pool_of(&card.name, Purpose::Ring);
            let memory = if card.writer == WriterChoice::Process { MemoryKind::Memfd } else { MemoryKind::Anonymous };
            let memory = PoolConfig { memory, ..ring_of(&name, card.blocks.0, card.memory.0) };
            let (writer, reader) = self.placement.ring(memory)?;
            let file = reader.file().map(|file| file.try_clone_to_owned()).transpose();
            let file = file.map_err(system(format!("{}: the ring's file", card.name)))?;
            match &card.serve {
                None => readout.add_card(&config, reader, bell.clone()),
                Some(serve) => {
                    let (server, address) = self.server(card, serve)?;
                    readout.add_served_card(&config, reader, bell.clone(), server);
                    cards.addresses.push((card.name.clone(), address));
                }
            }
            let name = card.name.clone();
            match (&card.emulate, &card.input) {
                (Some(_), _) if let Some(ring) = file => {
                    let configuration = self.resolved.file()?;
                    let process = CardProcess { configuration, name: name.clone(), events, ring, writer, bell };
                    cards
                        .feeds
                        .push(Feed::new(name, move |child, notes, is_over| process.watch(child, is_over, notes)));
                }
                (Some(emulate), _) => {
                    let config = emulated(card, emulate, &links);
                    cards.emulated.push(CardToEmulate { name, config, ring: writer, bell });
                }
                (None, Some(input)) => {
                    let feeder = feeder(card, input, writer, bell)?;
                    let is_over = Arc::clone(&feeder.is_over);
                    // The notes also contain the error.
                    let work: Work = Box::new(move |_, notes, _| _ = feeder.feed(notes));
                    cards.feeds.push(Feed { name, is_over, work });
                }
                // Another process writes it: the one that has the ring's file.
                (None, None) => {}
            }
        }
        Ok(cards)
    }

    /// Creates the server of a card. Returns it with its address.
    fn server(&self, card: &FelixSection, serve: &ServeSection) -> Result<(StreamServer<Tcp>, String), RunError> {
        let pool = |purpose, (block, blocks)| {
            self.placement.untouched_pool(PoolConfig::anonymous(&pool_of(&card.name, purpose), block, blocks))
        };
        let tcp = Tcp::new(self.resolved.tcp(), pool(Purpose::Subscribers, SUBSCRIBERS)?);
        let mut endpoints = tcp.map_err(endpoint(&card.name))?;
        let point = endpoints.listen(&serve.listen).map_err(endpoint(&card.name))?;
        let address = endpoints.address_of(point).unwrap_or_default();
        let staging = Staging::new(pool(Purpose::Staging, LOOP_BACK)?);
        Ok((StreamServer::new(serve.server(), card.blocks.0, endpoints, staging), address))
    }
}

impl Resolved {
    /// Returns the cards that a readout unit reads.
    fn cards(&self, index: u16) -> impl Iterator<Item = &FelixSection> {
        self.cards_and_readouts().filter(move |&(_, readout)| readout == index).map(|(card, _)| card)
    }
}

/// Returns the maximum chunk size of its sources, in bytes.
pub(super) fn largest_chunk(links: &[(ELink, &SourceSection)]) -> u64 {
    links.iter().map(|(_, source)| source.max_fragment.0).max().unwrap_or(0)
}

/// Returns the configuration of a ring of this many bytes, whose pages hold whole blocks.
pub(super) fn ring_of(name: &str, format: BlockFormat, bytes: u64) -> PoolConfig {
    let page = PAGE.next_multiple_of(format.block_bytes());
    PoolConfig::anonymous(name, page, (bytes / page as u64).max(LEAST_PAGES) as usize)
}

/// Returns the chunk configuration: room for every e-link's largest chunk at once, as far as the ring can hold that.
pub(super) fn chunks(card: &FelixSection, links: &[(ELink, &SourceSection)]) -> ChunkConfig {
    let format = card.blocks.0;
    let largest = largest_chunk(links);
    let pieces = links.len() * (largest as usize / format.most_data_bytes() + 2);
    let open_pieces = pieces.min(card.memory.0 as usize / format.block_bytes());
    ChunkConfig { most_chunk_bytes: largest, open_pieces, ..ChunkConfig::new(format) }
}

/// Returns where the chunks of each e-link contain the event number.
pub(super) fn rules(card: &FelixSection, links: &[(ELink, &SourceSection)]) -> EventRules {
    let own = links.iter().filter(|(_, source)| source.link().is_some_and(|link| link.event.is_some()));
    own.fold(card.event.rule().into(), |rules, &(elink, source)| rules.with(elink, card.rule_of(source)))
}

/// Checks that the files of cards contain blocks of the configured kind. Files that do not exist yet are not checked.
///
/// # Errors
/// If a file contains other blocks, or none.
pub fn check_card_files(configuration: &Configuration) -> Result<(), RunError> {
    for card in &configuration.felix {
        if let Some(input) = card.input.as_ref().filter(|input| card.emulate.is_none() && input.is_regular()) {
            open(card, input, &Arc::new(AtomicBool::new(false)))?;
        }
    }
    Ok(())
}

/// Opens the input of a card. The kind of blocks in a file is compared with the configured one.
fn open(card: &FelixSection, origin: &ByteOrigin, is_over: &Arc<AtomicBool>) -> Result<BlockInput, RunError> {
    let wanted = card.blocks.0;
    let opened = if origin.is_regular() { blocks(origin, is_over) } else { blocks_of_kind(origin, wanted, is_over) };
    let input = opened.map_err(|error| RunError::Unfit(format!("{}: {error}", card.name)))?;
    let found = input.format();
    if found == wanted {
        return Ok(input);
    }
    let (path, found, wanted) = (origin.path().display(), Blocks(found), Blocks(wanted));
    let text = format!("{path} has {found} blocks, but `blocks` is \"{wanted}\": set `blocks = \"{found}\"`");
    Err(RunError::Unfit(format!("{}: {text}", card.name)))
}

/// Creates the reader of a card's blocks. A file is inspected immediately, to check that it contains blocks of the
/// configured kind.
fn feeder(
    card: &FelixSection,
    origin: &ByteOrigin,
    writer: RingWriter,
    bell: Option<Bell>,
) -> Result<Feeder, RunError> {
    let is_over = Arc::new(AtomicBool::new(false));
    let input = open(card, origin, &is_over)?;
    let bytes_per_second = card.input_speed.map(|speed| speed.bytes_per_second);
    let origin = origin.clone();
    Ok(Feeder { origin, input, skipped_before: 0, writer, bell, again: false, bytes_per_second, is_over })
}

pub(super) fn emulated(
    card: &FelixSection,
    emulate: &EmulateCard,
    links: &[(ELink, &SourceSection)],
) -> EmulatedCardConfig {
    let outages = |elink: ELink| {
        let mine = emulate.outages.iter().filter(move |outage| outage.elink == elink.number());
        mine.map(|outage| Outage { from: outage.from.0, lasts: outage.lasts.0 }).collect()
    };
    let link = |&(elink, source): &(ELink, &SourceSection)| EmulatedLinkConfig {
        elink,
        source: SourceId(source.id),
        size: if source.trigger { emulate.trigger_chunk_size.0 } else { emulate.chunk_size.0 },
        rule: card.rule_of(source),
        outages: outages(elink),
    };
    let heads = links.iter().map(|&(_, source)| card.rule_of(source).head_bytes());
    let least_chunk_bytes = heads.fold(CHUNK_HEAD_BYTES, usize::max) as u32;
    EmulatedCardConfig {
        format: card.blocks.0,
        links: links.iter().map(link).collect(),
        rate: emulate.rate.map_or(TriggerRate::Unlimited, |rate| rate.0),
        seed: SEED,
        link_bytes_per_second: emulate.link_speed.map(|speed| speed.bytes_per_second),
        least_chunk_bytes,
        most_chunk_bytes: u32::try_from(largest_chunk(links)).unwrap_or(u32::MAX),
        ring_bytes: card.memory.0,
        faults: emulate.faults.0,
    }
}

/// Parameters of a process that writes a card's blocks.
pub(super) struct CardProcess {
    /// The configuration file, which the process reads too.
    pub(super) configuration: PathBuf,
    /// The card's name.
    pub(super) name: String,
    /// Number of triggers after which it ends.
    pub(super) events: Option<u64>,
    /// The ring's file.
    pub(super) ring: OwnedFd,
    /// Ends the ring if the process has not done so.
    pub(super) writer: RingWriter,
    pub(super) bell: Option<Bell>,
}

impl CardProcess {
    /// Starts the process and waits for its end. `is_over` ends it at the latest.
    pub(super) fn watch(mut self, child: &ChildSlot, is_over: &AtomicBool, notes: &FeederNotes) {
        let ended = self.start().and_then(|started| child.watch(started, is_over));
        let must_ring = self.writer.close();
        if must_ring && let Some(bell) = &self.bell {
            bell.ring();
        }
        notes.leave(match ended {
            Ok((_, status)) if status.success() => Vec::new(),
            Ok((process, status)) => vec![format!(
                "its writer, process {process}, {}: what it had not handed over is lost",
                how_it_ended(status)
            )],
            Err(error) => vec![format!("its writer cannot be started: {error}")],
        });
    }

    fn start(&self) -> io::Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["felix", "card"]).arg(&self.configuration).arg(&self.name);
        if let Some(events) = self.events {
            command.args(["--events", &events.to_string()]);
        }
        let bell = self.bell.as_ref().map(|bell| bell.as_fd().try_clone_to_owned()).transpose()?;
        command.stdin(Stdio::from(self.ring.try_clone()?));
        command.stdout(bell.map_or_else(Stdio::null, Stdio::from));
        command.spawn()
    }
}
