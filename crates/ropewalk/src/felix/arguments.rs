//! What can be asked for about FELIX blocks.

use clap::{Args, Subcommand, ValueEnum};
use ropewalk_flow::source::felix::FaultShare;
use ropewalk_node::configuration::Blocks;
use ropewalk_node::offline::felix::ELinks;
use ropewalk_node::quantity::{Bandwidth, Bytes, ChunkBytes, Time};
use ropewalk_wire::felix::{ELINKS, ELink};
use ropewalk_wire::stream::{Down, LARGEST_DOWN_BYTES};
use std::path::PathBuf;

/// The longest chunk where nobody says anything else.
const MAX_CHUNK: &str = "1MiB";

#[derive(Debug, Subcommand)]
pub(crate) enum FelixCommand {
    /// Count what a file of blocks holds: chunks of each e-link, sizes, errors by name.
    Decode(DecodeOptions),
    /// Show blocks one by one: headers, sub-chunks, trailers, and which chunk each piece is of.
    Dump(DumpOptions),
    /// Write the blocks of an emulated card, with faults if they are wanted.
    Generate(GenerateOptions),
    /// Send the chunks of blocks, or of the cards of a configuration, to whoever subscribes to their e-links.
    Serve(ServeOptions),
    /// Get the chunks of e-links from a server.
    Subscribe(SubscribeOptions),
    /// Write the blocks of an emulated card into the ring that a run gives it; a run starts this by itself.
    Card(CardOptions),
}

#[derive(Debug, Args)]
#[command(after_help = "Example, as a run does it for a card of felix.toml with `writer = \"process\"`:
  ropewalk felix card felix.toml flx0 --events 100000 0<>RING 1<>BELL

Standard input is the ring, an anonymous file that the run has made; standard output is what it is woken by. Nothing can be
written to anything else. Ctrl-C ends the card behind the last trigger.")]
pub(crate) struct CardOptions {
    /// The configuration of the run.
    pub(crate) config: PathBuf,
    /// The card's name.
    pub(crate) name: String,
    /// End after so many triggers.
    #[arg(long, value_name = "N")]
    pub(crate) events: Option<u64>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk felix decode card0.dat
  ropewalk felix decode - --json < card0.dat

The kind of the blocks is found by itself. The status is 1 where anything is damaged or missing.")]
pub(crate) struct DecodeOptions {
    /// A file of blocks, a FIFO, or - for standard input.
    pub(crate) file: PathBuf,
    /// Chunks that are longer are given up.
    #[arg(long, value_name = "SIZE", default_value = MAX_CHUNK)]
    pub(crate) max_chunk: Bytes,
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

Faults of chunks: busy, crc, error, truncated, timed_out, missing, no_first, no_last, oversize, stalled, silence,
out_of_band; of blocks: lost_block, sequence_gap, start_of_block, padding, past_header, undefined_type, lost_bytes.")]
pub(crate) struct GenerateOptions {
    /// The file to write, or - for standard output.
    pub(crate) output: PathBuf,
    /// The kind of blocks: narrow (0xABCD, 1 KiB), wide (0xABCE, 1 KiB) or a size from 1KiB to 64KiB (0xC0CE).
    #[arg(long, value_name = "KIND", default_value = "narrow")]
    pub(crate) kind: Blocks,
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
    /// A fault and the share of all chunks or blocks that it strikes, 0 to 1; may be given several times.
    #[arg(long = "fault", value_name = "NAME=SHARE")]
    pub(crate) faults: Vec<FaultShare>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk felix serve card0.dat --wait 1
  ropewalk felix generate - --size 10GiB | ropewalk felix serve - --listen 0.0.0.0:12350 --rate 800MB/s
  ropewalk felix serve examples/felix.toml

One line for each card says where subscribers may connect: `ready felix ADDRESS`, or `ready NAME ADDRESS` of a card of a
configuration, where options come before what stands there. It ends when the blocks do and everything is sent, or with Ctrl-C.")]
pub(crate) struct ServeOptions {
    /// A file of blocks, a FIFO, or - for standard input; or a configuration (*.toml), whose `[[felix]]` cards are served.
    pub(crate) file: PathBuf,
    /// Where subscribers connect; port 0 for any free one [default: 127.0.0.1:0].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Begin when so many subscribers are there [default: 0].
    #[arg(long, value_name = "N")]
    pub(crate) wait: Option<u32>,
    /// At most so many subscribers at once [default: 16].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) subscribers: Option<u8>,
    /// What may wait for one subscriber [default: 4MiB].
    #[arg(long, value_name = "SIZE")]
    pub(crate) queue: Option<Bytes>,
    /// The card's ring, in which chunks lie until they are sent [default: 64MiB].
    #[arg(long, value_name = "SIZE")]
    pub(crate) ring: Option<Bytes>,
    /// Chunks that are longer are given up; of a configuration the longest `max_fragment` counts [default: 1MiB].
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_chunk: Option<Bytes>,
    /// So many bytes are sent without waiting for more [default: 64KiB].
    #[arg(long, value_name = "SIZE")]
    pub(crate) coalesce: Option<Bytes>,
    /// What waits for so long is sent, however little it is [default: 1ms].
    #[arg(long, value_name = "TIME")]
    pub(crate) coalesce_time: Option<Time>,
    /// The blocks again and again, with sequence numbers that go on counting; not of emulated cards.
    #[arg(long = "loop")]
    pub(crate) again: bool,
    /// No faster than this; not of emulated cards.
    #[arg(long, value_name = "BANDWIDTH")]
    pub(crate) rate: Option<Bandwidth>,
    /// What subscribers send to e-links comes back as if front ends had said it.
    #[arg(long)]
    pub(crate) loop_back: bool,
    /// Print the account as JSON; the last line is one object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Copy, Clone, Debug, ValueEnum)]
pub(crate) enum PolicyName {
    /// The card waits: nothing is lost.
    Wait,
    /// They are dropped and counted.
    Drop,
}

#[derive(Copy, Clone, Debug, ValueEnum)]
pub(crate) enum BalanceName {
    /// One after the other.
    Turns,
    /// All chunks of an event to the same member.
    Event,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk felix subscribe 127.0.0.1:12350
  ropewalk felix subscribe felix1:12350 --elinks 1,8-15 --output chunks.dat
  ropewalk felix subscribe felix1:12350 --when-full drop --one-in 100 --json
  ropewalk felix subscribe felix1:12350 --group 1 --balance event --reconnect 1s")]
pub(crate) struct SubscribeOptions {
    /// Where the server listens.
    pub(crate) address: String,
    /// The e-links.
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub(crate) elinks: ELinks,
    /// What becomes of chunks for which there is no room at the server.
    #[arg(long, value_enum, default_value = "wait")]
    pub(crate) when_full: PolicyName,
    /// Share the chunks with the other members of this group: each goes to one of them.
    #[arg(long, value_name = "N")]
    pub(crate) group: Option<u16>,
    /// How the group shares.
    #[arg(long, value_enum, default_value = "turns", requires = "group")]
    pub(crate) balance: BalanceName,
    /// Get one chunk in so many.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) one_in: u32,
    /// Leave after so many chunks.
    #[arg(long, value_name = "N")]
    pub(crate) chunks: Option<u64>,
    /// Leave after this time.
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Time>,
    /// Connect again after this time when the connection fails or breaks.
    #[arg(long, value_name = "TIME")]
    pub(crate) reconnect: Option<Time>,
    /// Send this text to an e-link; may be given several times.
    #[arg(long = "send", value_name = "ELINK=TEXT", value_parser = down)]
    pub(crate) send: Vec<Down>,
    /// Write the chunks here, each behind its head of 8 bytes; - for standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) output: Option<PathBuf>,
    /// Print the account as JSON; the last line is one object.
    #[arg(long)]
    pub(crate) json: bool,
}

fn down(text: &str) -> Result<Down, String> {
    let wrong = || "bytes for an e-link are ELINK=TEXT, such as 5=reset".to_owned();
    let (number, bytes) = text.split_once('=').ok_or_else(wrong)?;
    let number = number.parse::<u16>().ok().filter(|&number| usize::from(number) < ELINKS).ok_or_else(wrong)?;
    if bytes.len() > LARGEST_DOWN_BYTES {
        return Err(format!("at most {LARGEST_DOWN_BYTES} bytes can be sent to an e-link at once"));
    }
    Ok(Down { elink: ELink::new(number), bytes: bytes.as_bytes().to_vec() })
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
