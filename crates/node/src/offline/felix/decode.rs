//! What each e-link sent, and every fault by its name.

use super::BlockInput;
use crate::offline::OfflineError;
use ropewalk_wire::felix::{BlockFormat, BlockHeader, Decoded, Decoder, ELink, Status};
use serde::Serialize;
use std::collections::BTreeMap;

/// The schema of [`DecodeReport`] as JSON: `docs/schema/felix-decode.json`.
pub const DECODE_SCHEMA: &str = "ropewalk-felix-decode-1";

/// So many faults are told with their places.
const FIRST_FAULTS: usize = 10;
/// Chunks that are longer are given up.
const MOST_CHUNK_BYTES: u64 = 64 << 20;

/// What was found in a stream of blocks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DecodeReport {
    /// [`DECODE_SCHEMA`].
    pub schema: &'static str,
    /// The start-of-block symbol, such as `0xABCD`.
    pub symbol: String,
    /// Bytes of a block and of a trailer.
    pub block_bytes: usize,
    /// Bits of a trailer.
    pub trailer_bits: usize,
    /// Blocks, damaged ones included.
    pub blocks: u64,
    /// Chunks that are whole, those with flags included.
    pub chunks: u64,
    /// Bytes of these chunks.
    pub payload_bytes: u64,
    /// Signals beside the data.
    pub signals: u64,
    /// Bytes that belong to no block.
    pub skipped_bytes: u64,
    /// Bytes at the end that are no whole block.
    pub left_over_bytes: u64,
    /// Chunks that had not ended when the stream did.
    pub open_chunks: u64,
    /// Damaged blocks by the name of what is wrong with them.
    pub block_errors: BTreeMap<&'static str, u64>,
    /// Chunks that were given up, by the reason's name.
    pub chunk_errors: BTreeMap<&'static str, u64>,
    /// Chunks with a flag of the card, by its name.
    pub flagged: BTreeMap<&'static str, u64>,
    /// The first faults, with their places.
    pub first_faults: Vec<Fault>,
    /// Each e-link that sent something, in the order of their numbers.
    pub elinks: Vec<ELinkReport>,
}

/// Where something was wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fault {
    /// Where in the stream the block begins in which it shows.
    pub offset: u64,
    /// That block, counted from 0.
    pub block: u64,
    /// The e-link, where it is known.
    pub elink: Option<u16>,
    /// The name of what is wrong.
    pub error: &'static str,
}

/// What one e-link sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ELinkReport {
    /// Its number.
    pub elink: u16,
    /// Good blocks.
    pub blocks: u64,
    /// Whole chunks.
    pub chunks: u64,
    /// Their bytes.
    pub payload_bytes: u64,
    /// The shortest one.
    pub least_bytes: u64,
    /// The longest one.
    pub most_bytes: u64,
    /// Signals beside the data.
    pub signals: u64,
    /// Chunks that were given up, by the reason's name.
    pub chunk_errors: BTreeMap<&'static str, u64>,
    /// Chunks with a flag, by its name.
    pub flagged: BTreeMap<&'static str, u64>,
}

impl ELinkReport {
    fn new(elink: ELink) -> Self {
        let (chunk_errors, flagged) = (BTreeMap::new(), BTreeMap::new());
        let (elink, least_bytes) = (elink.number(), u64::MAX);
        let (blocks, chunks, payload_bytes, most_bytes, signals) = (0, 0, 0, 0, 0);
        Self { elink, blocks, chunks, payload_bytes, least_bytes, most_bytes, signals, chunk_errors, flagged }
    }

    fn chunk(&mut self, bytes: u64, status: Status) {
        self.chunks += 1;
        self.payload_bytes += bytes;
        self.least_bytes = self.least_bytes.min(bytes);
        self.most_bytes = self.most_bytes.max(bytes);
        status.names().for_each(|name| *self.flagged.entry(name).or_default() += 1);
    }
}

impl DecodeReport {
    fn new(format: BlockFormat) -> Self {
        Self {
            schema: DECODE_SCHEMA,
            symbol: format!("{:#06X}", format.symbol()),
            block_bytes: format.block_bytes(),
            trailer_bits: 8 * format.trailer_bytes(),
            blocks: 0,
            chunks: 0,
            payload_bytes: 0,
            signals: 0,
            skipped_bytes: 0,
            left_over_bytes: 0,
            open_chunks: 0,
            block_errors: BTreeMap::new(),
            chunk_errors: BTreeMap::new(),
            flagged: BTreeMap::new(),
            first_faults: Vec::new(),
            elinks: Vec::new(),
        }
    }

    /// Whether anything was lost or damaged. Flags of the card are no damage, and neither is an end in the middle.
    pub fn is_damaged(&self) -> bool {
        !self.block_errors.is_empty() || !self.chunk_errors.is_empty() || self.skipped_bytes > 0
    }

    fn fault(&mut self, offset: u64, elink: Option<ELink>, error: &'static str) {
        if self.first_faults.len() < FIRST_FAULTS {
            let elink = elink.map(ELink::number);
            self.first_faults.push(Fault { offset, block: self.blocks, elink, error });
        }
    }

    /// The sums over all e-links.
    fn conclude(&mut self, links: BTreeMap<ELink, ELinkReport>) {
        self.elinks = links.into_values().filter(|link| link.blocks > 0).collect();
        for link in &mut self.elinks {
            link.least_bytes = link.least_bytes.min(link.most_bytes);
            self.chunks += link.chunks;
            self.payload_bytes += link.payload_bytes;
            self.signals += link.signals;
            for (&name, count) in &link.chunk_errors {
                *self.chunk_errors.entry(name).or_default() += count;
            }
            for (&name, count) in &link.flagged {
                *self.flagged.entry(name).or_default() += count;
            }
        }
    }
}

/// Decodes blocks to the stream's end and counts what is in them.
///
/// # Errors
/// Where reading fails.
pub fn decode(input: &mut BlockInput) -> Result<DecodeReport, OfflineError> {
    let format = input.format();
    let mut report = DecodeReport::new(format);
    let mut decoder = Decoder::new(format, MOST_CHUNK_BYTES);
    let mut links = Links::default();
    while let Some((at, blocks)) = input.next_blocks()? {
        for (index, block) in blocks.chunks(format.block_bytes()).enumerate() {
            let offset = at + (index * format.block_bytes()) as u64;
            take(&mut decoder, offset, (block, format), &mut report, &mut links);
            report.blocks += 1;
        }
    }
    (report.skipped_bytes, report.left_over_bytes) = (input.skipped_bytes(), input.left_over_bytes());
    report.open_chunks = decoder.open_chunks() as u64;
    report.conclude(links.0);
    Ok(report)
}

#[derive(Default)]
struct Links(BTreeMap<ELink, ELinkReport>);

impl Links {
    fn of(&mut self, elink: ELink) -> &mut ELinkReport {
        self.0.entry(elink).or_insert_with(|| ELinkReport::new(elink))
    }
}

/// Counts what one block brings.
fn take(
    decoder: &mut Decoder,
    offset: u64,
    (block, format): (&[u8], BlockFormat),
    report: &mut DecodeReport,
    links: &mut Links,
) {
    let header = block.first_chunk().and_then(|head| BlockHeader::parse(head, format).ok());
    let mut is_good = true;
    decoder.block(block, &mut |what| match what {
        Decoded::Chunk { elink, bytes, status } => links.of(elink).chunk(bytes.len() as u64, status),
        Decoded::Signal { elink, .. } => links.of(elink).signals += 1,
        Decoded::ChunkError { elink, error } => {
            report.fault(offset, Some(elink), error.name());
            *links.of(elink).chunk_errors.entry(error.name()).or_default() += 1;
        }
        Decoded::BlockError(error) => {
            report.fault(offset, header.map(|header| header.elink), error.name());
            *report.block_errors.entry(error.name()).or_default() += 1;
            is_good = false;
        }
    });
    if let Some(header) = header.filter(|_| is_good) {
        links.of(header.elink).blocks += 1;
    }
}
