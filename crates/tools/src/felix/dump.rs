//! A walk through blocks for people: each block, its sub-chunks, and what becomes of them.

use super::BlockInput;
use crate::OfflineError;
use ropewalk_wire::felix::{
    Assembly, BlockError, BlockFormat, BlockHeader, ELink, HEADER_BYTES, Place, SubChunk, SubChunkType, Trailer, walk,
};
use std::collections::BTreeMap;
use std::io::Write;

/// What is shown.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DumpOptions {
    /// The first block, counted from 0.
    pub first: u64,
    /// The end, exclusive.
    pub end: u64,
    /// Whether the text is coloured with escape sequences.
    pub colours: bool,
}

/// Shows blocks. Those before the first one are read too, so that chunks that begin there are known.
///
/// # Errors
/// If reading fails, `out` takes nothing, or there is no block with these numbers.
pub fn dump(input: &mut BlockInput, options: &DumpOptions, out: &mut dyn Write) -> Result<(), OfflineError> {
    let format = input.format();
    let mut walker = Walker { format, links: BTreeMap::new(), sub_chunks: Vec::new(), paint: Paint(options.colours) };
    let mut number = 0;
    'all: while let Some((at, blocks)) = input.next_blocks()? {
        for (index, block) in blocks.chunks(format.block_bytes()).enumerate() {
            if number >= options.end {
                break 'all;
            }
            let offset = at + (index * format.block_bytes()) as u64;
            let mut text = Vec::new();
            walker.block(number, offset, block, &mut text)?;
            if number >= options.first {
                out.write_all(&text)?;
            }
            number += 1;
        }
    }
    if number <= options.first {
        return Err(OfflineError::NoSuchBlock { first: options.first, blocks: number });
    }
    Ok(())
}

/// Escape sequences, if enabled.
struct Paint(bool);

impl Paint {
    const HEADER: &'static str = "1";
    const GOOD: &'static str = "32";
    const GOES_ON: &'static str = "36";
    const FAULT: &'static str = "31";
    const FILLER: &'static str = "2";

    fn text(&self, colour: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The chunk of an e-link that is open, and how many there were before.
struct Link {
    assembly: Assembly,
    number: u64,
    bytes: u64,
    blocks: Vec<u64>,
}

struct Walker {
    format: BlockFormat,
    links: BTreeMap<ELink, Link>,
    sub_chunks: Vec<SubChunk>,
    paint: Paint,
}

impl Walker {
    fn block(&mut self, number: u64, offset: u64, block: &[u8], out: &mut Vec<u8>) -> Result<(), OfflineError> {
        let mut sub_chunks = std::mem::take(&mut self.sub_chunks);
        sub_chunks.clear();
        match walk(block, self.format, &mut sub_chunks) {
            Ok(header) => self.good_block(number, offset, header, block, &sub_chunks, out)?,
            Err(error) => self.damaged_block(number, offset, block, error, out)?,
        }
        self.sub_chunks = sub_chunks;
        Ok(())
    }

    fn title(&self, number: u64, offset: u64, header: Option<BlockHeader>) -> String {
        let whose = header.map_or_else(String::new, |BlockHeader { elink, sequence }| {
            let (link, group, path) = (elink.link(), elink.group(), elink.path());
            format!(", e-link {elink} (link {link}, group {group}, path {path}), sequence {sequence}")
        });
        self.paint.text(Paint::HEADER, &format!("block {number} at {offset:#x}{whose}"))
    }

    fn link(&mut self, elink: ELink) -> &mut Link {
        let assembly = Assembly::new(u64::MAX);
        self.links.entry(elink).or_insert(Link { assembly, number: 0, bytes: 0, blocks: Vec::new() })
    }

    fn good_block(
        &mut self,
        number: u64,
        offset: u64,
        header: BlockHeader,
        block: &[u8],
        sub_chunks: &[SubChunk],
        out: &mut Vec<u8>,
    ) -> Result<(), OfflineError> {
        writeln!(out, "{}", self.title(number, offset, Some(header)))?;
        let missing = self.link(header.elink).assembly.begin_block(header);
        if missing > 0 {
            let text = format!("sequence_gap: {missing} blocks of this e-link are missing before it, modulo 32");
            writeln!(out, "│ {}", self.paint.text(Paint::FAULT, &text))?;
        }
        let mut rest = sub_chunks;
        while let [first, more @ ..] = rest {
            let filler = rest.iter().take_while(|sub_chunk| is_null(sub_chunk)).count();
            rest = if filler > 1 { &rest[filler..] } else { more };
            let branch = if rest.is_empty() { "└─" } else { "├─" };
            if filler > 1 {
                let text = format!("{:>5}  null      {filler} trailers: filler", first.offset);
                writeln!(out, "{branch} {}", self.paint.text(Paint::FILLER, &text))?;
            } else {
                let text = self.sub_chunk(number, header.elink, *first, block);
                writeln!(out, "{branch} {text}")?;
            }
        }
        Ok(())
    }

    /// Prints a line about a sub-chunk: the place of its data, its trailer, and the state of the chunk.
    fn sub_chunk(&mut self, block_number: u64, elink: ELink, sub_chunk: SubChunk, block: &[u8]) -> String {
        let trailer = Trailer(sub_chunk.trailer);
        let (start, bytes) = (sub_chunk.offset as usize, trailer.data_bytes() as usize);
        let data = &block[start..start + bytes];
        let link = self.link(elink);
        let accepted = link.assembly.accept(trailer);
        let mut notes = Vec::new();
        if let Some(error) = accepted.gives_up {
            notes.push((Paint::FAULT, format!("{}: {error}", error.name())));
            (link.bytes, link.number) = (0, link.number + u64::from(!link.blocks.is_empty()));
            link.blocks.clear();
        }
        let chunk = format!("chunk {elink}#{}", link.number);
        match accepted.place {
            Place::Whole => notes.push((Paint::GOOD, chunk)),
            Place::Begins => notes.push((Paint::GOES_ON, format!("{chunk} begins"))),
            Place::Continues => notes.push((Paint::GOES_ON, format!("{chunk} goes on"))),
            Place::Ends => {
                let (total, pieces) = (link.bytes + bytes as u64, link.blocks.len() + 1);
                let blocks: Vec<String> = link.blocks.iter().chain([&block_number]).map(u64::to_string).collect();
                let text = format!("{chunk} ends: {total} bytes in {pieces} pieces, blocks {}", blocks.join(" "));
                notes.push((Paint::GOOD, text));
            }
            Place::Signal => notes.push((Paint::GOES_ON, format!("signal {:#x}", trailer.signal(self.format)))),
            Place::Skipped if trailer.has_data() => notes.push((Paint::FILLER, "of no chunk".to_owned())),
            Place::Skipped => notes.push((Paint::FILLER, "filler".to_owned())),
        }
        let link = self.link(elink);
        match accepted.place {
            Place::Begins => (link.bytes, link.blocks) = (bytes as u64, vec![block_number]),
            Place::Continues => {
                link.bytes += bytes as u64;
                link.blocks.push(block_number);
            }
            Place::Whole | Place::Ends => {
                link.number += 1;
                (link.bytes, link.blocks) = (0, Vec::new());
            }
            Place::Signal | Place::Skipped => {}
        }
        let flags: Vec<&str> = trailer.status().names().filter(|_| trailer.has_data()).collect();
        if !flags.is_empty() {
            notes.push((Paint::FAULT, flags.join(" ")));
        }
        let notes: Vec<String> = notes.iter().map(|(colour, text)| self.paint.text(colour, text)).collect();
        let bytes = bytes_text(trailer, data);
        format!("{start:>5}  {:<8}  {bytes:<29}  {}", kind_text(trailer.kind()), notes.join(", "))
    }

    fn damaged_block(
        &mut self,
        number: u64,
        offset: u64,
        block: &[u8],
        error: BlockError,
        out: &mut Vec<u8>,
    ) -> Result<(), OfflineError> {
        let header = block.first_chunk().and_then(|head| BlockHeader::parse(head, self.format).ok());
        if let Some(header) = header {
            let link = self.link(header.elink);
            if link.assembly.damaged_block(header) {
                (link.bytes, link.number) = (0, link.number + u64::from(!link.blocks.is_empty()));
                link.blocks.clear();
            }
        }
        writeln!(out, "{}", self.title(number, offset, header))?;
        let text = format!("{}: {error}", error.name());
        writeln!(out, "├─ {}", self.paint.text(Paint::FAULT, &text))?;
        let ends = [&block[..block.len().min(16)], &block[block.len() - block.len().min(16)..]];
        let [head, tail] = ends.map(hex);
        writeln!(out, "└─ {}", self.paint.text(Paint::FILLER, &format!("{head} ... {tail}")))?;
        Ok(())
    }
}

fn is_null(sub_chunk: &SubChunk) -> bool {
    Trailer(sub_chunk.trailer).kind() == SubChunkType::Null
}

const fn kind_text(kind: SubChunkType) -> &'static str {
    match kind {
        SubChunkType::Null => "null",
        SubChunkType::First => "first",
        SubChunkType::Last => "last",
        SubChunkType::Both => "both",
        SubChunkType::Middle => "middle",
        SubChunkType::Timeout => "timeout",
        SubChunkType::Undefined => "undefined",
        SubChunkType::OutOfBand => "signal",
    }
}

/// How many bytes, and the first few of them.
fn bytes_text(trailer: Trailer, data: &[u8]) -> String {
    let more = if data.len() > 4 { " .." } else { "" };
    let shown = if trailer.has_data() { hex(&data[..data.len().min(4)]) + more } else { String::new() };
    format!("{:>5} B  {shown}", data.len())
}

fn hex(bytes: &[u8]) -> String {
    debug_assert!(bytes.len() <= HEADER_BYTES * 4, "a few bytes are shown");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
