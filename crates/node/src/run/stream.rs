//! Serving the blocks of a file as a card would write them, and subscribing to a server: drives, turned by the calling
//! thread.

use crate::drive::Drive;
use crate::drive::stream::{
    CardServer, ClientConfig, ClientReport, ClientState, ServerConfig, ServerReport, StreamClient,
};
use crate::offline::OfflineError;
use crate::offline::felix::{BlockInput, open};
use ropewalk_flow::readout::felix::{ChunkConfig, EventRule};
use ropewalk_flow::stream::{InputConfig, StreamCounts, StreamInput};
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::tcp::{Tcp, TcpConfig};
use ropewalk_io::wait::{Waiter, Waker};
use ropewalk_io::{Dispatcher, EndpointError};
use ropewalk_memory::ring::{RingWriter, ring};
use ropewalk_memory::{Payload, Pool, PoolConfig, PoolError, Staging};
use ropewalk_wire::felix::{BlockFormat, BlockHeader, ELINKS, HEADER_BYTES, SEQUENCES};
use ropewalk_wire::stream::{ChunkHead, RefuseReason};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest sleep: whoever watches is asked at least this often.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);
/// Turns without work before the thread sleeps.
const IDLE_TURNS: u32 = 64;
/// How long the file's thread waits for room in the ring before it looks again.
const NO_ROOM: Duration = Duration::from_micros(100);
/// Who is faster than wanted by less does not wait.
const LEAST_WAIT: Duration = Duration::from_millis(1);
/// How long the file's thread may take to see that nobody reads any more.
const LEAVING: Duration = Duration::from_millis(500);
/// Bytes of a page of the ring, or of a block if that is more.
const PAGE_BYTES: usize = 64 << 10;
/// Blocks of 256 KiB that are received into.
const RECEIVE_BLOCKS: (usize, usize) = (256 << 10, 64);
/// Blocks that heads and other small messages are staged in.
const STAGING_BLOCKS: (usize, usize) = (128 << 10, 64);
/// The longest chunk that a subscriber believes in: all of it must fit into its receive pool.
const MOST_CHUNK_BYTES: u32 = 8 << 20;

/// Why blocks are not served, or chunks do not come.
#[derive(Debug, thiserror::Error)]
pub enum StreamRunError {
    /// The file.
    #[error(transparent)]
    File(#[from] OfflineError),
    /// The network.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// No memory.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The system gives no thread or no descriptor.
    #[error("no thread or no descriptor: {0}")]
    System(#[from] std::io::Error),
    /// The server refuses.
    #[error("{address} refuses the subscription: {why}")]
    Refused {
        /// Which server.
        address: String,
        /// Why, and what to do.
        why: String,
    },
    /// The server cannot be reached, or the connection broke.
    #[error("{why}; is a server there? `--reconnect` waits for it")]
    Lost {
        /// Where and why.
        why: String,
    },
}

/// What is to be served, and how.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Blocks: a file, a FIFO, or `-`.
    pub file: PathBuf,
    /// Where subscribers connect.
    pub listen: String,
    /// Queues, loop-back.
    pub server: ServerConfig,
    /// Bytes of the emulated card's ring.
    pub ring_bytes: usize,
    /// Again and again.
    pub again: bool,
    /// At most so many bytes a second.
    pub bytes_per_second: Option<f64>,
}

/// What came from a card, and what became of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Served {
    /// What its decoder has seen.
    pub input: StreamCounts,
    /// What its subscribers got.
    pub server: ServerReport,
}

/// What is told while blocks are served.
#[derive(Debug)]
pub enum Serving<'a> {
    /// Subscribers may connect here.
    Listens(&'a str),
    /// It goes on; asked some times a second.
    GoesOn(&'a Served),
}

/// Serves until the file has ended and everything is sent, or `watch` says false.
///
/// # Errors
/// Where the file has no blocks or cannot be read, or the address cannot be listened on.
pub fn serve(options: &ServeOptions, mut watch: impl FnMut(Serving<'_>) -> bool) -> Result<Served, StreamRunError> {
    let input = open(&options.file)?;
    let format = input.format();
    let page = format.block_bytes() * PAGE_BYTES.div_ceil(format.block_bytes());
    let pages = (options.ring_bytes / page).max(4);
    let (writer, reader) = ring(PoolConfig::anonymous("card", page, pages))?;
    let mut endpoints = Tcp::new(TcpConfig::default(), pool("subscribers", (16 << 10, 64))?)?;
    let point = endpoints.listen(&options.listen)?;
    let address = endpoints.address_of(point).unwrap_or_default();
    let stream = StreamInput::new(InputConfig { chunks: ChunkConfig::new(format), rule: EventRule::USUAL }, reader);
    let staging = Staging::new(pool("heads", STAGING_BLOCKS)?);
    let mut server = CardServer::new(options.server, stream, endpoints, staging);
    if !watch(Serving::Listens(&address)) {
        server.stop();
    }
    let waiter = Waiter::new()?;
    let feeder = Feeder::new(options, input, writer, waiter.waker());
    let thread = std::thread::Builder::new().name("card".to_owned()).spawn(move || feeder.feed())?;
    turn(&mut server, waiter, |server| {
        if !watch(Serving::GoesOn(&served(server))) {
            server.stop();
        }
    })?;
    let report = served(&server);
    // With the server goes the ring's reader: then the feeder ends too, wherever it is.
    drop(server);
    let begin = Instant::now();
    while !thread.is_finished() {
        if begin.elapsed() >= LEAVING {
            // It waits for a FIFO or standard input, and may do so for ever.
            return Ok(report);
        }
        std::thread::sleep(NO_ROOM);
    }
    match thread.join() {
        Ok(fed) => fed.map(|()| report).map_err(StreamRunError::File),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Takes chunks from a server until it has ended, `config.chunks` came, or `watch` says false.
///
/// # Errors
/// Where the server cannot be reached, refuses, or goes away and `config.reconnect` is not set.
pub fn subscribe(
    config: ClientConfig,
    take: impl FnMut(ChunkHead, Payload),
    mut watch: impl FnMut(&ClientReport, &ClientState) -> bool,
) -> Result<ClientReport, StreamRunError> {
    let address = config.address.clone();
    let endpoints = Tcp::new(TcpConfig::default(), pool("chunks", RECEIVE_BLOCKS)?)?;
    let staging = Staging::new(pool("messages", STAGING_BLOCKS)?);
    let config = ClientConfig { most_chunk_bytes: MOST_CHUNK_BYTES.min(config.most_chunk_bytes), ..config };
    let mut client = StreamClient::new(config, endpoints, staging, take);
    turn(&mut client, Waiter::new()?, |client| {
        if !watch(client.report(), client.state()) {
            client.stop();
        }
    })?;
    match client.state() {
        ClientState::Refused(reason) => Err(StreamRunError::Refused { address, why: refusal(*reason) }),
        ClientState::Lost(why) => Err(StreamRunError::Lost { why: why.clone() }),
        _ => Ok(client.report().clone()),
    }
}

fn served<D: Dispatcher>(server: &CardServer<D>) -> Served {
    let (input, server) = server.report();
    Served { input, server }
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

fn pool(name: &str, (block_size, blocks): (usize, usize)) -> Result<Pool, PoolError> {
    Pool::new_untouched(PoolConfig::anonymous(name, block_size, blocks))
}

/// Turns a drive until it is done; `watch` is called between turns, some times a second.
fn turn<D: Drive>(drive: &mut D, mut waiter: Waiter, mut watch: impl FnMut(&mut D)) -> std::io::Result<()> {
    let mut descriptors = Vec::new();
    drive.wait_descriptors(&mut descriptors);
    for descriptor in descriptors {
        waiter.watch(descriptor)?;
    }
    let clock = MonotonicClock;
    let (mut idle, mut watched) = (0, ropewalk_terms::Instant::ZERO);
    while !drive.is_done() {
        let now = clock.now();
        if now.since(watched) >= LONGEST_SLEEP {
            watched = now;
            watch(drive);
        }
        idle = if drive.turn(now) > 0 { 0 } else { idle + 1 };
        if idle >= IDLE_TURNS {
            idle = 0;
            let until =
                drive.next_deadline().unwrap_or(ropewalk_terms::Instant::FAR_FUTURE).min(now.after(LONGEST_SLEEP));
            if drive.prepare_wait() && until > now {
                waiter.wait(Some(until.since(now)));
            }
        }
    }
    Ok(())
}

/// Writes a file's blocks into the ring, in the place of a card.
struct Feeder {
    path: PathBuf,
    input: BlockInput,
    writer: RingWriter,
    bell: Waker,
    again: bool,
    bytes_per_second: Option<f64>,
    begin: Instant,
    numbers: Numbers,
}

impl Feeder {
    fn new(options: &ServeOptions, input: BlockInput, writer: RingWriter, bell: Waker) -> Self {
        let (path, again, bytes_per_second) = (options.file.clone(), options.again, options.bytes_per_second);
        let (begin, numbers) = (Instant::now(), Numbers::default());
        Self { path, input, writer, bell, again, bytes_per_second, begin, numbers }
    }

    fn feed(mut self) -> Result<(), OfflineError> {
        let fed = self.feed_all();
        if self.writer.close() {
            self.bell.wake();
        }
        fed
    }

    fn feed_all(&mut self) -> Result<(), OfflineError> {
        let format = self.input.format();
        loop {
            while let Some((_, blocks)) = self.input.next_blocks()? {
                for block in blocks.chunks_exact(format.block_bytes()) {
                    let due = self.bytes_per_second.map(|rate| {
                        self.begin + Duration::from_secs_f64((self.writer.written() + block.len() as u64) as f64 / rate)
                    });
                    if !wait_until(due, &self.writer)
                        || !write(&mut self.writer, &self.bell, &self.numbers.of(block, format))
                    {
                        return Ok(());
                    }
                }
            }
            if !self.again {
                return Ok(());
            }
            self.numbers.begin_again();
            self.input = open(&self.path)?;
        }
    }
}

/// Waits for a block's time; false where nobody reads any more.
fn wait_until(due: Option<Instant>, writer: &RingWriter) -> bool {
    // Short waits are gathered: a sleep is longer than many blocks.
    while let Some(rest) = due.and_then(|due| due.checked_duration_since(Instant::now()))
        && rest > LEAST_WAIT
    {
        if writer.is_abandoned() {
            return false;
        }
        std::thread::sleep(rest.min(LONGEST_SLEEP));
    }
    true
}

/// Writes a block as soon as there is room; false where nobody reads any more.
fn write(writer: &mut RingWriter, bell: &Waker, block: &[u8]) -> bool {
    while !writer.is_abandoned() {
        if let Some(space) = writer.space().get_mut(..block.len()) {
            space.copy_from_slice(block);
            if writer.commit(block.len()) {
                bell.wake();
            }
            return true;
        }
        std::thread::sleep(NO_ROOM);
    }
    false
}

/// The sequence numbers of a file that is written again and again go on counting.
struct Numbers {
    /// By e-link: what is added to the file's number, and the last number that was written.
    links: Vec<(u8, Option<u8>)>,
    /// Whose first block of this time has come.
    is_begun: Vec<bool>,
    is_first_time: bool,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { links: vec![(0, None); ELINKS], is_begun: vec![false; ELINKS], is_first_time: true }
    }
}

impl Numbers {
    fn begin_again(&mut self) {
        self.is_first_time = false;
        self.is_begun.fill(false);
    }

    /// The block with the number that it has now.
    fn of(&mut self, block: &[u8], format: BlockFormat) -> Vec<u8> {
        let mut block = block.to_vec();
        if let Some(head) = block.first_chunk_mut::<HEADER_BYTES>()
            && let Ok(header) = BlockHeader::parse(head, format)
        {
            let (added, last) = &mut self.links[header.elink.index()];
            if !std::mem::replace(&mut self.is_begun[header.elink.index()], true) && !self.is_first_time {
                *added = last.map_or(0, |last| last.wrapping_add(1).wrapping_sub(header.sequence) % SEQUENCES);
            }
            let sequence = (header.sequence + *added) % SEQUENCES;
            *last = Some(sequence);
            *head = BlockHeader { sequence, ..header }.to_bytes(format);
        }
        block
    }
}
