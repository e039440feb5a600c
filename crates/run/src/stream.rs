//! Serving chunks of FELIX blocks, and subscribing to them, without a run.

use super::cards::{chunks, emulated, largest_chunk, ring_of, rules};
use super::feeder::{Feeder, FeederNotes, Unread};
use super::resolve::{Addresses, Resolved};
use super::worker::{DriveWithPage, Ending, Worker};
use ropewalk_config::ByteOrigin;
use ropewalk_config::{Configuration, FelixSection, ServeSection, WakeChoice};
use ropewalk_engine::stream::{CardServer, ClientConfig, ClientReport, ClientState, ServerReport, StreamClient};
use ropewalk_engine::{Drive, EmulatedCardDrive};
use ropewalk_flow::readout::felix::{ChunkConfig, EventRules};
use ropewalk_flow::source::TriggerGate;
use ropewalk_flow::source::felix::EmulatedCardConfig;
use ropewalk_flow::stream::{InputConfig, StreamCounts, StreamInput};
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::tcp::{Tcp, TcpConfig};
use ropewalk_io::wait::{Bell, Idle, Waiter};
use ropewalk_io::{Dispatcher, EndpointError};
use ropewalk_memory::ring::{RingReader, RingWriter, ring};
use ropewalk_memory::{Payload, Pool, PoolConfig, PoolError, Staging};
use ropewalk_terms::Instant;
use ropewalk_tools::OfflineError;
use ropewalk_tools::felix::blocks;
use ropewalk_wire::stream::{ChunkHead, RefuseReason};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest sleep: `watch` is called at least this often.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);
/// Size and number of receive blocks.
const RECEIVE_BLOCKS: (usize, usize) = (256 << 10, 64);
/// Size and number of blocks in which heads and other small messages are staged.
const STAGING_BLOCKS: (usize, usize) = (128 << 10, 64);
/// Maximum chunk size that a subscriber accepts, in bytes: a chunk must fit into its receive pool.
pub const LARGEST_CHUNK_BYTES: u64 = 8 << 20;

/// Why blocks cannot be served, or chunks not received.
#[derive(Debug, thiserror::Error)]
pub enum StreamRunError {
    /// A file error.
    #[error(transparent)]
    File(#[from] OfflineError),
    /// A network error.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// Memory could not be obtained.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A thread or a descriptor could not be obtained.
    #[error("no thread or no descriptor: {0}")]
    System(#[from] std::io::Error),
    /// The request cannot be fulfilled.
    #[error("{0}")]
    Unfit(String),
    /// The server cannot be reached, or the connection broke.
    #[error("{0}; is a server there? `--reconnect` waits for it")]
    Lost(String),
}

/// Receives chunks from a server until it has ended, `config.chunks` have arrived, or `watch` returns false.
///
/// # Errors
/// If the server cannot be reached, refuses, or disconnects and `config.reconnect` is not set.
pub fn subscribe(
    config: ClientConfig,
    take: impl FnMut(ChunkHead, Payload),
    mut watch: impl FnMut(&ClientReport, &ClientState) -> bool,
) -> Result<ClientReport, StreamRunError> {
    let address = config.address.clone();
    let endpoints = Tcp::new(TcpConfig::default(), pool("chunks", RECEIVE_BLOCKS)?)?;
    let staging = Staging::new(pool("messages", STAGING_BLOCKS)?);
    let config = ClientConfig { most_chunk_bytes: config.most_chunk_bytes.min(LARGEST_CHUNK_BYTES as u32), ..config };
    let mut client = StreamClient::new(config, endpoints, staging, take);
    turn(&mut client, Waiter::new()?, |client| {
        if !watch(client.report(), client.state()) {
            client.stop();
        }
    })?;
    match client.state() {
        ClientState::Refused(reason) => {
            Err(StreamRunError::Unfit(format!("{address} refuses the subscription: {}", refusal(*reason))))
        }
        ClientState::Lost(why) => Err(StreamRunError::Lost(why.clone())),
        _ => Ok(client.report().clone()),
    }
}

fn refusal(reason: RefuseReason) -> String {
    match reason {
        RefuseReason::Version(version) => {
            let own = ropewalk_wire::stream::STREAM_VERSION;
            format!("it speaks version {version} of the protocol, this program version {own}; use the same program")
        }
        RefuseReason::Full => "it has as many subscribers as it takes; see its `--subscribers`".to_owned(),
        RefuseReason::Share => {
            "the members of the group share it in another way; use their `--balance`, or another group".to_owned()
        }
    }
}

pub(super) fn pool(name: &str, (block_size, blocks): (usize, usize)) -> Result<Pool, PoolError> {
    Pool::new_untouched(PoolConfig::anonymous(name, block_size, blocks))
}

/// Writes, in the card's process, the blocks of an emulated card into the ring that is standard input. It continues
/// until the data of `events` triggers is written, the ring's reader has ended, or `watch` returns false; in the last
/// case the data of earlier triggers is still written.
///
/// # Errors
/// If there is no such card, it is not emulated, or standard input is no ring.
pub fn write_card(
    configuration: &Configuration,
    name: &str,
    events: Option<u64>,
    mut watch: impl FnMut() -> bool,
) -> Result<(), StreamRunError> {
    // A reader that was killed cannot report its end.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    let resolved = Resolved::new(configuration, Addresses::in_process(configuration));
    let known = || configuration.felix.iter().map(|card| card.name.as_str()).collect::<Vec<_>>().join(", ");
    let card = resolved.card(name);
    let card =
        card.ok_or_else(|| StreamRunError::Unfit(format!("no card is named `{name}`; there are: {}", known())))?;
    let emulate = card.emulate.as_ref();
    let emulate = emulate.ok_or_else(|| StreamRunError::Unfit(format!("{name} has no [felix.emulate]")))?;
    let no_ring = |error| {
        let why = "a run starts this command by itself for a card with `writer = \"process\"`";
        StreamRunError::Unfit(format!("standard input is no ring of a card: {error}; {why}"))
    };
    let ring = RingWriter::open(io::stdin().as_fd().try_clone_to_owned()?).map_err(no_ring)?;
    let bell = match card.wake {
        WakeChoice::Interrupt => Some(Bell::from(io::stdout().as_fd().try_clone_to_owned()?)),
        WakeChoice::Poll => None,
    };
    let gate = Arc::new(TriggerGate::new(events.unwrap_or(u64::MAX)));
    let config = emulated(card, emulate, &resolved.links(card));
    let mut drive = EmulatedCardDrive::new(config, ring, bell, Arc::clone(&gate));
    turn(&mut drive, Waiter::new()?, |_| {
        if !watch() {
            gate.close();
        }
    })?;
    Ok(())
}

/// Turns a drive until it is done. `watch` is called between turns, several times a second.
pub(super) fn turn<D: Drive>(drive: &mut D, mut waiter: Waiter, mut watch: impl FnMut(&mut D)) -> std::io::Result<()> {
    let mut descriptors = Vec::new();
    drive.wait_descriptors(&mut descriptors);
    for descriptor in descriptors {
        waiter.watch(descriptor)?;
    }
    let clock = MonotonicClock;
    let (mut idle, mut watched) = (Idle::default(), ropewalk_terms::Instant::ZERO);
    while !drive.is_done() {
        let now = clock.now();
        if now.since(watched) >= LONGEST_SLEEP {
            watched = now;
            watch(drive);
        }
        if idle.is_long_enough(now, drive.turn(now)) {
            let until =
                drive.next_deadline().unwrap_or(ropewalk_terms::Instant::FAR_FUTURE).min(now.after(LONGEST_SLEEP));
            if drive.prepare_wait() && until > now {
                waiter.wait(Some(until.since(now)));
            }
        }
    }
    Ok(())
}

/// Size and number of blocks for messages of subscribers.
const SUBSCRIBER_BLOCKS: (usize, usize) = (16 << 10, 64);

/// A card that is to be served.
#[derive(Clone, Debug)]
pub struct CardOffer {
    /// Its name, which is also its thread's.
    pub name: String,
    /// The settings of its server.
    pub serve: ServeSection,
    /// Size of its ring in bytes.
    pub memory: u64,
    /// Where a chunk contains its event number.
    pub rules: EventRules,
    /// The writer of its blocks.
    pub writer: OfferWriter,
}

/// The writer of a card's blocks.
#[derive(Clone, Debug)]
pub enum OfferWriter {
    /// Blocks that are read; their kind is detected.
    Blocks {
        /// Where they are read from.
        origin: ByteOrigin,
        /// Whether to repeat them, with continuous sequence numbers.
        again: bool,
        /// Maximum rate in bytes per second.
        bytes_per_second: Option<f64>,
        /// Maximum chunk size. Longer chunks are given up; at most [`LARGEST_CHUNK_BYTES`](super::LARGEST_CHUNK_BYTES).
        most_chunk_bytes: u64,
    },
    /// An emulator.
    Emulated(Box<EmulatedCardConfig>, ChunkConfig),
}

impl CardOffer {
    /// Returns the cards of a configuration. The rest of the configuration is ignored.
    ///
    /// # Errors
    /// If it has no card, or a card without an origin of its blocks.
    pub fn of_configuration(configuration: &Configuration) -> Result<Vec<Self>, StreamRunError> {
        let resolved = Resolved::new(configuration, Addresses::in_process(configuration));
        if configuration.felix.is_empty() {
            return Err(StreamRunError::Unfit(
                "the configuration has no [[felix]] card that could be served".to_owned(),
            ));
        }
        configuration.felix.iter().map(|card| Self::of_card(&resolved, card)).collect()
    }

    fn of_card(resolved: &Resolved, card: &FelixSection) -> Result<Self, StreamRunError> {
        let links = resolved.links(card);
        let writer = match (&card.emulate, &card.input) {
            (Some(emulate), _) => {
                OfferWriter::Emulated(Box::new(emulated(card, emulate, &links)), chunks(card, &links))
            }
            (None, Some(input)) => OfferWriter::Blocks {
                origin: input.clone(),
                again: false,
                bytes_per_second: card.input_speed.map(|speed| speed.bytes_per_second),
                most_chunk_bytes: largest_chunk(&links),
            },
            (None, None) => {
                let why = format!("no blocks for {}: give it `input` or [felix.emulate]", card.name);
                return Err(StreamRunError::Unfit(why));
            }
        };
        let serve = card.serve.clone().unwrap_or_default();
        Ok(Self { name: card.name.clone(), serve, memory: card.memory.0, rules: rules(card, &links), writer })
    }
}

/// Counts of the data from a card, and of its delivery to subscribers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Served {
    /// Counts of its decoder.
    pub input: StreamCounts,
    /// Counts of its server.
    pub server: ServerReport,
    /// Bytes before and between the blocks of a file that belong to no block: bytes were lost, or the file begins
    /// inside of a block.
    pub skipped_bytes: u64,
    /// Bytes of an incomplete block at the end of a file.
    pub left_over_bytes: u64,
}

impl Served {
    /// Returns whether there are damaged blocks, chunks that were given up, or bytes that belong to no block. Bytes at
    /// a file's end are no loss.
    pub fn is_damaged(&self) -> bool {
        let chunks = &self.input.chunks;
        let faults = chunks.block_errors.iter().chain(&chunks.chunk_errors).sum::<u64>();
        faults + chunks.blocks_missing + self.skipped_bytes > 0
    }
}

/// Progress while cards are served.
#[derive(Debug)]
pub enum Serving<'a> {
    /// The card of this name listens for subscribers at this address.
    Listens(&'a str, &'a str),
    /// Serving continues. Reported several times a second.
    GoesOn,
}

/// Serves until all cards have ended and everything is sent, or `watch` returns false. Returns the counts of each card.
///
/// # Errors
/// If a file has no blocks or cannot be read, or it cannot listen on an address.
pub fn serve(offers: &[CardOffer], mut watch: impl FnMut(Serving<'_>) -> bool) -> Result<Vec<Served>, StreamRunError> {
    let mut writers = Writers::default();
    let mut cards = Cards(Vec::new());
    let mut begins = Vec::new();
    for offer in offers {
        let (card, begin) = open(offer, &writers)?;
        cards.0.push(card);
        begins.push(begin);
    }
    let mut goes_on = true;
    for (card, offer) in cards.0.iter().zip(offers) {
        goes_on &= watch(Serving::Listens(&offer.name, &card.address));
    }
    for (begin, offer) in begins.into_iter().zip(offers) {
        writers.start(begin, &offer.name)?;
    }
    if !goes_on {
        cards.stop();
    }
    turn(&mut cards, Waiter::new()?, |cards| {
        if !watch(Serving::GoesOn) {
            cards.stop();
        }
    })?;
    let mut served: Vec<Served> = cards.0.iter().map(ServedCard::served).collect();
    // The rings' readers end with the servers. Then their writers end too, wherever they are.
    drop(cards);
    for (card, unread) in served.iter_mut().zip(writers.end()?) {
        (card.skipped_bytes, card.left_over_bytes) = (unread.skipped, unread.left_over);
    }
    Ok(served)
}

/// A card's writer before it is started.
enum Begin {
    Feeder(Box<Feeder>),
    Emulated(Box<EmulatedCardDrive>),
}

/// The writers of all cards.
#[derive(Default)]
struct Writers {
    is_over: Arc<AtomicBool>,
    ending: Arc<Ending>,
    /// By card; `None` if it is emulated.
    feeders: Vec<Option<JoinHandle<Result<Unread, OfflineError>>>>,
    emulated: Vec<Worker>,
}

impl Writers {
    fn start(&mut self, begin: Begin, name: &str) -> std::io::Result<()> {
        match begin {
            Begin::Feeder(feeder) => {
                let thread = std::thread::Builder::new().name(name.to_owned());
                self.feeders.push(Some(thread.spawn(move || feeder.feed(&FeederNotes::default()))?));
            }
            Begin::Emulated(drive) => {
                self.feeders.push(None);
                self.emulated.push(Worker::start(
                    name,
                    vec![DriveWithPage::new(drive, None)],
                    Arc::clone(&self.ending),
                    || (),
                )?);
            }
        }
        Ok(())
    }

    /// Ends all writers, and returns for each card the bytes of its file that belong to no block.
    fn end(self) -> Result<Vec<Unread>, StreamRunError> {
        self.is_over.store(true, Ordering::Relaxed);
        self.ending.halt();
        for worker in self.emulated {
            worker.wake();
            worker.join();
        }
        let joined = self.feeders.into_iter().map(|feeder| match feeder {
            None => Ok(Unread::default()),
            Some(feeder) => feeder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        });
        Ok(joined.collect::<Result<_, OfflineError>>()?)
    }
}

fn open(offer: &CardOffer, writers: &Writers) -> Result<(ServedCard, Begin), StreamRunError> {
    let bell = Bell::new()?;
    let make = |chunks: ChunkConfig| -> Result<(RingWriter, ServedCard), StreamRunError> {
        let (writer, reader) = ring(ring_of("card", chunks.format, offer.memory))?;
        Ok((writer, ServedCard::new(offer, chunks, reader, bell.clone())?))
    };
    match &offer.writer {
        OfferWriter::Blocks { origin, again, bytes_per_second, most_chunk_bytes } => {
            let (again, bytes_per_second, origin) = (*again, *bytes_per_second, origin.clone());
            let is_over = Arc::clone(&writers.is_over);
            let input = blocks(&origin, &is_over)?;
            let chunks = ChunkConfig::with_most(input.format(), *most_chunk_bytes);
            // The ring limits the open pieces.
            let in_ring = offer.memory as usize / chunks.format.block_bytes();
            let (writer, card) = make(ChunkConfig { open_pieces: chunks.open_pieces.min(in_ring), ..chunks })?;
            let (bell, skipped_before) = (Some(bell), 0);
            let feeder = Feeder { origin, input, skipped_before, writer, bell, again, bytes_per_second, is_over };
            Ok((card, Begin::Feeder(Box::new(feeder))))
        }
        OfferWriter::Emulated(config, chunks) => {
            let (writer, card) = make(*chunks)?;
            let gate = Arc::new(TriggerGate::new(u64::MAX));
            let drive = EmulatedCardDrive::new((**config).clone(), writer, Some(bell), gate);
            Ok((card, Begin::Emulated(Box::new(drive))))
        }
    }
}

/// A card with its server.
struct ServedCard {
    server: CardServer<Tcp>,
    address: String,
    /// Rung by the card's writer.
    bell: Bell,
    is_armed: bool,
}

impl ServedCard {
    fn new(offer: &CardOffer, chunks: ChunkConfig, ring: RingReader, bell: Bell) -> Result<Self, StreamRunError> {
        let mut endpoints = Tcp::new(TcpConfig::default(), pool("subscribers", SUBSCRIBER_BLOCKS)?)?;
        let point = endpoints.listen(&offer.serve.listen)?;
        let address = endpoints.address_of(point).unwrap_or_default();
        let stream = StreamInput::new(InputConfig { chunks, rules: offer.rules.clone() }, ring);
        let staging = Staging::new(pool("heads", STAGING_BLOCKS)?);
        let server = CardServer::new(offer.serve.server(), stream, endpoints, staging);
        Ok(Self { server, address, bell, is_armed: false })
    }

    fn served(&self) -> Served {
        let (input, server) = self.server.report();
        Served { input, server, skipped_bytes: 0, left_over_bytes: 0 }
    }
}

/// All served cards, on one thread.
struct Cards(Vec<ServedCard>);

impl Cards {
    fn stop(&mut self) {
        self.0.iter_mut().for_each(|card| card.server.stop());
    }
}

impl Drive for Cards {
    fn turn(&mut self, now: Instant) -> usize {
        let turn = |card: &mut ServedCard| {
            if std::mem::take(&mut card.is_armed) {
                card.bell.silence();
            }
            card.server.turn(now)
        };
        self.0.iter_mut().map(turn).sum()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.0.iter().filter_map(|card| card.server.next_deadline()).min()
    }

    fn prepare_wait(&mut self) -> bool {
        let prepare = |card: &mut ServedCard| {
            card.is_armed = true;
            card.server.prepare_wait()
        };
        // Every one is asked, so that every one is armed.
        self.0.iter_mut().map(prepare).filter(|may_sleep| !may_sleep).count() == 0
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        for card in &self.0 {
            card.server.wait_descriptors(into);
            into.push(card.bell.as_fd());
        }
    }

    fn is_done(&self) -> bool {
        self.0.iter().all(|card| card.server.is_done())
    }
}
