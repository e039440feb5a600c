//! What each e-link sent, and every fault by its name.

use super::BlockInput;
use crate::OfflineError;
use ropewalk_flow::readout::felix::{Chunk, ChunkConfig, ChunkDecoder};
use ropewalk_wire::felix::{BlockError, BlockFormat, BlockHeader, ELINKS, ELink, Status};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// The schema of [`DecodeReport`] as JSON: `docs/schema/felix-decode.json`.
pub const DECODE_SCHEMA: &str = "ropewalk-felix-decode-1";

/// This many faults are reported with their places.
const FIRST_FAULTS: usize = 10;
/// Pieces of all chunks that are open at once: a gigabyte of them in blocks of 1 KiB. Chunks beyond are given up.
const OPEN_PIECES: usize = 1 << 20;

/// What was found in a stream of blocks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(title = "What a stream of FELIX blocks holds: the output of `ropewalk felix decode FILE --json`")]
pub struct DecodeReport {
    /// The form's name and version.
    #[schemars(extend("const" = DECODE_SCHEMA))]
    pub schema: &'static str,
    /// The start-of-block symbol, such as `0xABCD`.
    #[schemars(regex(pattern = r"^0x[0-9A-F]{4}$"))]
    pub symbol: String,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Bits of a trailer.
    #[schemars(extend("enum" = [BlockFormat::NARROW, BlockFormat::WIDE].map(trailer_bits)))]
    pub trailer_bits: usize,
    /// Blocks, damaged ones included.
    pub blocks: u64,
    /// Chunks that are whole, those with flags included.
    pub chunks: u64,
    /// Bytes of these chunks.
    pub payload_bytes: u64,
    /// Signals beside the data (out-of-band trailers).
    pub signals: u64,
    /// Bytes outside blocks: the stream begins in the middle of one, or bytes were lost.
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
    /// The first ten faults, with their places.
    pub first_faults: Vec<Fault>,
    /// Each e-link that sent a good block, in the order of their numbers.
    pub elinks: Vec<ELinkReport>,
}

/// Where something was wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Fault {
    /// Where in the stream the block begins in which it shows.
    pub offset: u64,
    /// That block, counted from 0.
    pub block: u64,
    /// The e-link; null if it is not known.
    pub elink: Option<u16>,
    /// The name of what is wrong.
    pub error: &'static str,
}

/// What one e-link sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct ELinkReport {
    /// Its number.
    pub elink: u16,
    /// Good blocks.
    pub blocks: u64,
    /// Whole chunks.
    pub chunks: u64,
    /// Their bytes.
    pub payload_bytes: u64,
    /// Bytes of the shortest one.
    pub least_bytes: u64,
    /// Bytes of the longest one.
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

    #[inline]
    fn chunk(&mut self, bytes: u64, status: Status) {
        self.chunks += 1;
        self.payload_bytes += bytes;
        self.least_bytes = self.least_bytes.min(bytes);
        self.most_bytes = self.most_bytes.max(bytes);
        if !status.is_good() {
            self.flags(status);
        }
    }

    #[cold]
    fn flags(&mut self, status: Status) {
        status.names().for_each(|name| *self.flagged.entry(name).or_default() += 1);
    }
}

const fn trailer_bits(format: BlockFormat) -> usize {
    8 * format.trailer_bytes()
}

impl DecodeReport {
    fn new(format: BlockFormat) -> Self {
        Self {
            schema: DECODE_SCHEMA,
            symbol: format!("{:#06X}", format.symbol()),
            block_bytes: format.block_bytes(),
            trailer_bits: trailer_bits(format),
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
    fn conclude(&mut self, links: Vec<ELinkReport>) {
        self.elinks = links.into_iter().filter(|link| link.blocks > 0).collect();
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

/// Decodes blocks to the stream's end and counts what is in them. Chunks of more than `most_chunk_bytes` are given up.
///
/// # Errors
/// If reading fails.
pub fn decode(input: &mut BlockInput, most_chunk_bytes: u64) -> Result<DecodeReport, OfflineError> {
    let format = input.format();
    let mut report = DecodeReport::new(format);
    let config = ChunkConfig { most_chunk_bytes, open_pieces: OPEN_PIECES, ..ChunkConfig::new(format) };
    let mut decoder = ChunkDecoder::new(config);
    let mut links: Vec<_> = (0..ELINKS as u16).map(|number| ELinkReport::new(ELink::new(number))).collect();
    while let Some((mut at, mut blocks)) = input.next_blocks()? {
        while !blocks.is_empty() {
            let taken = decoder.decode(blocks, at);
            take(&decoder, &mut report, &mut links);
            (at, blocks) = (at + taken as u64, &blocks[taken..]);
        }
    }
    (report.skipped_bytes, report.left_over_bytes) = (input.skipped_bytes(), input.left_over_bytes());
    report.open_chunks = decoder.open_chunks() as u64;
    report.conclude(links);
    Ok(report)
}

/// Counts what a batch of blocks brought.
fn take(decoder: &ChunkDecoder, report: &mut DecodeReport, links: &mut [ELinkReport]) {
    let batch = decoder.batch();
    for (elink, chunk) in batch.chunks() {
        let link = &mut links[elink.index()];
        match chunk {
            Chunk::Short { piece, status } => link.chunk(u64::from(piece.length), status),
            Chunk::Scattered { bytes, status, .. } => link.chunk(bytes, status),
            Chunk::Signal(_) => link.signals += 1,
        }
    }
    let mut faults = decoder.faults().iter().peekable();
    for (index, block) in batch.blocks().iter().enumerate() {
        let offset = batch.position() + (index * decoder.block_bytes()) as u64;
        let elink = BlockHeader::of_word(block.header).elink;
        match BlockError::from_u8(block.fault as u8) {
            None => links[elink.index()].blocks += 1,
            Some(error) => {
                // What does not begin as a block says nothing of an e-link.
                report.fault(offset, (error != BlockError::StartOfBlock).then_some(elink), error.name());
                *report.block_errors.entry(error.name()).or_default() += 1;
            }
        }
        while let Some(fault) = faults.next_if(|fault| fault.block as usize == index) {
            report.fault(offset, Some(fault.elink), fault.error.name());
            *links[fault.elink.index()].chunk_errors.entry(fault.error.name()).or_default() += 1;
        }
        report.blocks += 1;
    }
}

#[cfg(test)]
mod tests {
    //! The report against that of the plain decoder.

    use super::super::{GenerateOptions, generate};
    use super::{
        BTreeMap, BlockFormat, BlockHeader, BlockInput, ChunkConfig, DecodeReport, ELINKS, ELink, ELinkReport, decode,
    };
    use ropewalk_flow::source::SizeDistribution;
    use ropewalk_flow::source::felix::{EmulatedCardConfig, FAULTS, Fault, FaultShare, Faults};
    use ropewalk_wire::felix::{Decoded, Decoder};
    use std::io::Cursor;
    use std::path::Path;

    const MOST: u64 = ChunkConfig::USUAL_MOST_BYTES;

    fn input(bytes: &[u8]) -> BlockInput {
        BlockInput::new(Path::new("-"), Box::new(Cursor::new(bytes.to_vec()))).expect("there are blocks")
    }

    /// The same report, block by block from the decoder that copies.
    fn plainly(input: &mut BlockInput) -> DecodeReport {
        let format = input.format();
        let mut report = DecodeReport::new(format);
        let mut decoder = Decoder::new(format, MOST);
        let mut links: Vec<_> = (0..ELINKS as u16).map(|number| ELinkReport::new(ELink::new(number))).collect();
        while let Some((at, blocks)) = input.next_blocks().expect("a vector can be read") {
            for (index, block) in blocks.chunks(format.block_bytes()).enumerate() {
                let offset = at + (index * format.block_bytes()) as u64;
                plain_block(&mut decoder, offset, (block, format), &mut report, &mut links);
                report.blocks += 1;
            }
        }
        (report.skipped_bytes, report.left_over_bytes) = (input.skipped_bytes(), input.left_over_bytes());
        report.open_chunks = decoder.open_chunks() as u64;
        report.conclude(links);
        report
    }

    fn plain_block(
        decoder: &mut Decoder,
        offset: u64,
        (block, format): (&[u8], BlockFormat),
        report: &mut DecodeReport,
        links: &mut [ELinkReport],
    ) {
        let header = block.first_chunk().and_then(|head| BlockHeader::parse(head, format).ok());
        let mut is_good = true;
        decoder.block(block, &mut |what| match what {
            Decoded::Chunk { elink, bytes, status } => links[elink.index()].chunk(bytes.len() as u64, status),
            Decoded::Signal { elink, .. } => links[elink.index()].signals += 1,
            Decoded::ChunkError { elink, error } => {
                report.fault(offset, Some(elink), error.name());
                *links[elink.index()].chunk_errors.entry(error.name()).or_default() += 1;
            }
            Decoded::BlockError(error) => {
                report.fault(offset, header.map(|header| header.elink), error.name());
                *report.block_errors.entry(error.name()).or_default() += 1;
                is_good = false;
            }
        });
        if let Some(header) = header.filter(|_| is_good) {
            links[header.elink.index()].blocks += 1;
        }
    }

    #[test]
    fn a_chunk_that_is_longer_than_wanted_is_given_up() {
        let size = SizeDistribution::Fixed(100_000);
        let card = EmulatedCardConfig::new(BlockFormat::WIDE, [ELink::new(3)], size, 1);
        let mut blocks = Vec::new();
        generate(&GenerateOptions { card, chunks: Some(10), bytes: None }, &mut blocks).expect("a vector");
        let found = |most| decode(&mut input(&blocks), most).expect("a vector");
        assert_eq!((found(100_000).chunks, found(100_000).is_damaged()), (10, false));
        assert_eq!((found(99_999).chunks, found(99_999).chunk_errors["oversize"]), (0, 10));
    }

    #[test]
    fn the_report_is_that_of_the_plain_decoder_whatever_the_card_and_the_wire_did() {
        let sized = |kibibytes| BlockFormat::sized(kibibytes).expect("a size");
        let mut names = BTreeMap::new();
        for (seed, format) in (1..).zip([BlockFormat::NARROW, BlockFormat::WIDE, sized(4), sized(64)]) {
            for most in [60, 3000] {
                let size = SizeDistribution::Uniform { least: 0, most };
                let mut card = EmulatedCardConfig::new(format, [1, 64, 83, 2047].map(ELink::new), size, seed);
                // These two are long.
                let is_short = |fault: &&Fault| !matches!(fault, Fault::Oversize | Fault::Stalled);
                let share = |&fault| FaultShare::new(fault, 0.02).expect("a fiftieth is a share");
                card.faults = Faults::new(FAULTS.iter().filter(is_short).map(share)).expect("less than all");
                let mut blocks = Vec::new();
                let options = GenerateOptions { card, chunks: Some(300), bytes: None };
                generate(&options, &mut blocks).expect("a vector takes everything");
                // Bytes that were lost or changed on the way.
                let place = blocks.len() / 3;
                blocks[place] ^= 0x55;
                blocks.drain(2 * place..2 * place + 100);
                let (found, expected) =
                    (decode(&mut input(&blocks), MOST).expect("a vector"), plainly(&mut input(&blocks)));
                assert_eq!(found, expected, "{format}, chunks of up to {most} bytes");
                names.extend(found.block_errors);
                names.extend(found.chunk_errors);
                names.extend(found.flagged);
            }
        }
        let all = ["start_of_block", "sequence_gap", "damaged", "no_first", "no_last", "crc", "timed_out"];
        assert!(all.iter().all(|name| names.contains_key(name)), "{names:?}");
    }
}
