//! Data of link cards, and of their subscribers: the part `cards` of an account.

use crate::drive::RunSnapshot;
use ropewalk_terms::Counter;
use schemars::JsonSchema;
use serde::Serialize;

/// Data of all link cards.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct CardSummary {
    /// Blocks, good and bad.
    pub blocks: u64,
    /// Blocks that were damaged as a whole.
    pub blocks_damaged: u64,
    /// Blocks that their e-links' sequence numbers show to be missing.
    pub blocks_missing: u64,
    /// Chunks that came whole, flagged ones and those of e-links that are no source included.
    pub chunks: u64,
    /// Incomplete chunks that were given up.
    pub given_up: u64,
    /// Flags that cards gave to chunks.
    pub flagged: u64,
    /// Chunks, whole or given up, of e-links that are no source.
    pub nobodys: u64,
    /// Signals beside the data.
    pub signals: u64,
    /// How often a card was found without room.
    pub stalls: u64,
    /// Bytes of an incomplete last block.
    pub left_over_bytes: u64,
    /// Chunks for subscribers, once for each: offered = sent + dropped + moved + queued.
    pub subscribers: SubscriberSummary,
}

/// Data of the subscribers of link cards.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct SubscriberSummary {
    /// Subscribers that came.
    pub joined: u64,
    /// Chunks that a subscriber asked for.
    pub offered: u64,
    /// Chunks that were sent to it.
    pub sent: u64,
    /// Chunks that were dropped: the queue was full, or the subscriber left and no other one took over.
    pub dropped: u64,
    /// Chunks that others of its group took over when it went, to which they are offered anew.
    pub moved: u64,
    /// Chunks that wait, counted from the queues.
    pub queued: u64,
    /// Bytes that were copied for subscribers that may lose chunks.
    pub copied_bytes: u64,
    /// Messages to e-links that were refused: there is no down-link, or no room in it.
    pub down_refused: u64,
}

impl CardSummary {
    pub(super) fn new(snapshot: &RunSnapshot) -> Self {
        let counter = |counter| snapshot.counter(counter);
        let chunks = &snapshot.ledger.chunks;
        Self {
            blocks: counter(Counter::CardBlocks),
            blocks_damaged: counter(Counter::CardBlocksDamaged),
            blocks_missing: counter(Counter::CardBlocksMissing),
            chunks: counter(Counter::CardChunks),
            given_up: counter(Counter::CardChunksGivenUp),
            flagged: counter(Counter::CardChunksFlagged),
            nobodys: counter(Counter::CardChunksNobodys),
            signals: counter(Counter::CardSignals),
            stalls: counter(Counter::CardStalls),
            left_over_bytes: counter(Counter::CardBytesLeftOver),
            subscribers: SubscriberSummary {
                joined: counter(Counter::SubscribersJoined),
                offered: chunks.offered,
                sent: chunks.sent,
                dropped: chunks.dropped,
                moved: chunks.moved,
                queued: chunks.queued,
                copied_bytes: counter(Counter::ChunkBytesCopied),
                down_refused: counter(Counter::DownLinkRefused),
            },
        }
    }
}
