//! The JSON of `felix serve` and `felix subscribe`.

use ropewalk_engine::stream::ClientReport;
use ropewalk_flow::stream::SubscriberAccount;
use ropewalk_run::Served;
use ropewalk_wire::felix::{BlockError, ChunkError};
use ropewalk_wire::stream::End;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

// Members are in the order in which they are printed: by name.

/// The report of a server, over all cards and subscribers.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "What a server of chunks did: the last line of `ropewalk felix serve FILE --json`")]
pub(crate) struct ServeReport {
    /// Damaged blocks by the name of what is wrong with them.
    block_errors: BTreeMap<&'static str, u64>,
    /// Blocks that were decoded, damaged ones included.
    blocks: u64,
    /// Blocks that the sequence numbers show to be missing, modulo 32 for each gap.
    blocks_missing: u64,
    /// Bytes of the blocks that were decoded.
    bytes: u64,
    /// How many cards were served.
    #[schemars(range(min = 1))]
    cards: usize,
    /// Chunks that were given up, by the reason's name.
    chunk_errors: BTreeMap<&'static str, u64>,
    /// Chunks that came from the cards.
    chunks: u64,
    /// Bytes that were copied: of small chunks, and for subscribers that may lose chunks.
    copied_bytes: u64,
    /// Messages to e-links.
    down: DownCounts,
    /// Chunks that were dropped, by cause.
    dropped: BTreeMap<&'static str, u64>,
    /// How long the server ran, in seconds.
    #[schemars(range(min = 0))]
    duration_s: f64,
    /// Whether the account of chunks adds up: offered = sent + dropped + moved + queued.
    ledger: Ledger,
    /// Bytes at the end of the files that are no whole block.
    left_over_bytes: u64,
    /// Chunks that other members of a group took over.
    moved: u64,
    /// Chunks that subscribers asked for, once for each subscriber.
    offered: u64,
    /// Chunks that samples left out. They are in no other count.
    passed_over: u64,
    /// Chunks that still wait.
    queued: u64,
    /// Connections that were refused or sent nonsense.
    refused: u64,
    /// The form's name and version.
    #[schemars(extend("const" = Self::SCHEMA))]
    schema: &'static str,
    /// Chunks that were given to the transport.
    sent: u64,
    /// Bytes of the chunks that were sent.
    sent_bytes: u64,
    /// Bytes before and between the blocks of the files that belong to none.
    skipped_bytes: u64,
    /// Subscribers that came.
    subscribers: u64,
    /// Chunks received that no subscriber asked for.
    unwanted: u64,
    /// The number of times that a card waited for a subscriber that must not lose data.
    waits: u64,
}

/// What was wrong with the blocks of all cards.
pub(super) struct CardFaults {
    pub(super) block_errors: BTreeMap<&'static str, u64>,
    pub(super) chunk_errors: BTreeMap<&'static str, u64>,
    pub(super) blocks_missing: u64,
    pub(super) skipped_bytes: u64,
    pub(super) left_over_bytes: u64,
}

impl CardFaults {
    pub(super) fn of(served: &[Served]) -> Self {
        let sum = |of: &dyn Fn(&Served) -> u64| served.iter().map(of).sum::<u64>();
        let blocks = BlockError::ALL.iter().enumerate();
        let blocks = blocks.map(|(at, error)| (error.name(), sum(&|card| card.input.chunks.block_errors[at])));
        let chunks = ChunkError::ALL.iter().enumerate();
        let chunks = chunks.map(|(at, error)| (error.name(), sum(&|card| card.input.chunks.chunk_errors[at])));
        Self {
            block_errors: blocks.filter(|&(_, count)| count > 0).collect(),
            chunk_errors: chunks.filter(|&(_, count)| count > 0).collect(),
            blocks_missing: sum(&|card| card.input.chunks.blocks_missing),
            skipped_bytes: sum(&|card| card.skipped_bytes),
            left_over_bytes: sum(&|card| card.left_over_bytes),
        }
    }
}

/// Messages to e-links.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DownCounts {
    /// Messages that were refused: there is no down-link, or no room in it.
    refused: u64,
    /// Messages that were accepted: with `--loop-back` the emulated card returns them.
    sent: u64,
}

/// Whether an account adds up.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Ledger {
    /// Whether it adds up.
    balanced: bool,
}

impl ServeReport {
    const SCHEMA: &'static str = "ropewalk-felix-serve-1";

    /// The report of all cards and subscribers after this many seconds.
    pub(super) fn new(served: &[Served], all: &SubscriberAccount, seconds: f64) -> Self {
        let sum = |of: fn(&Served) -> u64| served.iter().map(of).sum::<u64>();
        let CardFaults { block_errors, chunk_errors, blocks_missing, skipped_bytes, left_over_bytes } =
            CardFaults::of(served);
        Self {
            block_errors,
            blocks: sum(|card| card.input.chunks.blocks),
            blocks_missing,
            bytes: sum(|card| card.input.bytes),
            cards: served.len(),
            chunk_errors,
            chunks: sum(|card| card.server.received),
            copied_bytes: sum(|card| card.server.copied_bytes),
            down: DownCounts { refused: sum(|card| card.server.down.1), sent: sum(|card| card.server.down.0) },
            dropped: all.dropped.iter().map(|(cause, count)| (cause.name(), count)).collect(),
            duration_s: seconds,
            ledger: Ledger { balanced: all.is_balanced() },
            left_over_bytes,
            moved: all.moved,
            offered: all.offered,
            passed_over: all.passed_over,
            queued: all.queued,
            refused: sum(|card| card.server.refused),
            schema: Self::SCHEMA,
            sent: all.sent,
            sent_bytes: all.sent_bytes,
            skipped_bytes,
            subscribers: sum(|card| card.server.joined),
            unwanted: sum(|card| card.server.unwanted),
            waits: sum(|card| card.input.waits),
        }
    }
}

/// The report of a subscriber, over all its connections.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "What a subscriber got: the last line of `ropewalk felix subscribe ADDRESS --json`")]
pub(crate) struct SubscribeReport {
    /// Chunks that came.
    chunks: u64,
    /// The number of subscriptions.
    connections: u64,
    /// Messages to e-links that the server refused.
    down_refused: u64,
    /// Chunks that the server reported as dropped.
    dropped: u64,
    /// Bytes of the chunks that the server dropped.
    dropped_bytes: u64,
    /// How long the subscriber ran, in seconds.
    #[schemars(range(min = 0))]
    duration_s: f64,
    /// Each e-link that sent something, in the order of their numbers.
    elinks: Vec<ELinkCounts>,
    /// Bytes of the chunks that came.
    payload_bytes: u64,
    /// The form's name and version.
    #[schemars(extend("const" = Self::SCHEMA))]
    schema: &'static str,
    /// The server's account of the last connection; null if it sent none.
    server: Option<ServerCounts>,
}

/// What one e-link sent.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ELinkCounts {
    /// Chunks that came from it.
    pub(super) chunks: u64,
    /// The number of the e-link.
    pub(super) elink: u16,
    /// Chunks with a flag of the card.
    pub(super) flagged: u64,
    /// Bytes of the chunks that came from it.
    pub(super) payload_bytes: u64,
}

/// The account of one connection at the server.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ServerCounts {
    /// Chunks that were dropped.
    dropped: u64,
    /// Chunks that this subscriber asked for.
    offered: u64,
    /// Chunks that were sent.
    sent: u64,
}

impl From<End> for ServerCounts {
    fn from(end: End) -> Self {
        Self { dropped: end.dropped, offered: end.offered, sent: end.sent }
    }
}

impl SubscribeReport {
    const SCHEMA: &'static str = "ropewalk-felix-subscribe-1";

    /// The report of these e-links after this many seconds.
    pub(super) fn new(report: &ClientReport, elinks: Vec<ELinkCounts>, seconds: f64) -> Self {
        Self {
            chunks: report.chunks,
            connections: report.connections,
            down_refused: report.down_refused,
            dropped: report.lost.chunks,
            dropped_bytes: report.lost.bytes,
            duration_s: seconds,
            elinks,
            payload_bytes: report.bytes,
            schema: Self::SCHEMA,
            server: report.end.map(ServerCounts::from),
        }
    }
}
