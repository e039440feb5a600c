//! What can be asked for about FELIX blocks.

use clap::{Args, Subcommand};
use ropewalk_flow::source::felix::{CARD_FAULTS, CardFault};
use ropewalk_node::offline::felix::ELinks;
use ropewalk_node::quantity::{Bytes, ChunkBytes};
use ropewalk_wire::felix::BlockFormat;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum FelixCommand {
    /// Count what a file of blocks holds: chunks of each e-link, sizes, errors by name.
    Decode(DecodeOptions),
    /// Show blocks one by one: headers, sub-chunks, trailers, and which chunk each piece is of.
    Dump(DumpOptions),
    /// Write the blocks of an emulated card, with faults if they are wanted.
    Generate(GenerateOptions),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk felix decode card0.dat
  ropewalk felix decode - --json < card0.dat

The kind of the blocks is found by itself. The status is 1 where anything is damaged or missing.")]
pub(crate) struct DecodeOptions {
    /// A file of blocks, a FIFO, or - for standard input.
    pub(crate) file: PathBuf,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk felix dump card0.dat
  ropewalk felix dump card0.dat --blocks 2040..2048 | less -R")]
pub(crate) struct DumpOptions {
    /// A file of blocks, a FIFO, or - for standard input.
    pub(crate) file: PathBuf,
    /// The blocks from N to before M, counted from 0: 5..8, 5.., ..8, or 5 alone.
    #[arg(long, value_name = "N..M", default_value = "0..8", value_parser = block_range)]
    pub(crate) blocks: (u64, u64),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk felix generate card0.dat --elinks 0-23 --chunk-size 64 --size 100MiB
  ropewalk felix generate - --kind 4KiB --chunk-size 'exponential(256)' | ropewalk felix decode -
  ropewalk felix generate bad.dat --chunks 10000 --fault crc=0.001 --fault lost_block=0.0001

Faults of chunks: busy, crc, error, truncated, timed_out, silence, no_first, no_last; of blocks: lost_block,
start_of_block, padding, past_header, undefined_type, lost_bytes.")]
pub(crate) struct GenerateOptions {
    /// The file to write, or - for standard output.
    pub(crate) output: PathBuf,
    /// The kind of blocks: narrow (0xABCD, 1 KiB), wide (0xABCE, 1 KiB) or a size from 1KiB to 64KiB (0xC0CE).
    #[arg(long, value_name = "KIND", default_value = "narrow", value_parser = kind)]
    pub(crate) kind: BlockFormat,
    /// The e-links.
    #[arg(long, value_name = "LIST", default_value = "0-23")]
    pub(crate) elinks: ELinks,
    /// How large chunks are: 64, uniform(16,4KiB), exponential(64), lognormal(256,1.2).
    #[arg(long, value_name = "SIZE", default_value = "64")]
    pub(crate) chunk_size: ChunkBytes,
    /// So many chunks of each e-link (1000 unless --size is given).
    #[arg(long, value_name = "N")]
    pub(crate) chunks: Option<u64>,
    /// About so many bytes of blocks.
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Bytes>,
    /// Everything random follows from it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// A fault and how likely it is, of each chunk or each block; may be given several times.
    #[arg(long = "fault", value_name = "NAME=LIKELIHOOD", value_parser = fault)]
    pub(crate) faults: Vec<(CardFault, f64)>,
}

/// `5..8`, `5..`, `..8` or `5`.
fn block_range(text: &str) -> Result<(u64, u64), String> {
    let wrong = || "blocks are numbers from 0, such as 5..8, 5.., ..8 or 5".to_owned();
    let number = |part: &str| part.trim().parse::<u64>().map_err(|_| wrong());
    let (first, end) = match text.split_once("..") {
        None => (number(text)?, number(text)?.saturating_add(1)),
        Some((first, end)) => {
            (if first.is_empty() { 0 } else { number(first)? }, if end.is_empty() { u64::MAX } else { number(end)? })
        }
    };
    if first < end { Ok((first, end)) } else { Err(wrong()) }
}

fn kind(text: &str) -> Result<BlockFormat, String> {
    let wrong = || "there are narrow, wide, and sizes from 1KiB to 64KiB in whole KiB".to_owned();
    match text {
        "narrow" => Ok(BlockFormat::NARROW),
        "wide" => Ok(BlockFormat::WIDE),
        size => {
            let bytes = size.parse::<Bytes>().map_err(|_| wrong())?.0;
            let kibibytes = if bytes % 1024 == 0 { u16::try_from(bytes / 1024).ok() } else { None };
            kibibytes.and_then(BlockFormat::sized).ok_or_else(wrong)
        }
    }
}

fn fault(text: &str) -> Result<(CardFault, f64), String> {
    let (name, likelihood) = text.split_once('=').ok_or("a fault is NAME=LIKELIHOOD, such as crc=0.001")?;
    let known = CARD_FAULTS.iter().find(|fault| fault.name() == name).ok_or_else(|| {
        let names: Vec<&str> = CARD_FAULTS.iter().map(|fault| fault.name()).collect();
        format!("there is no fault `{name}`; there are {}", names.join(", "))
    })?;
    let likelihood = likelihood.parse().ok().filter(|likelihood| (0.0..=1.0).contains(likelihood));
    Ok((*known, likelihood.ok_or("a likelihood is a number from 0 to 1, such as 0.001")?))
}
