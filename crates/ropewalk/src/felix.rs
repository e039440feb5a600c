//! Commands on FELIX blocks.

mod reports;

use self::reports::{CardFaults, ELinkCounts};
pub(crate) use self::reports::{ServeReport, SubscribeReport};
use crate::exit::{self, Failure};
use crate::interrupts::Interrupts;
use crate::output::{self, print_json, write_results};
use crate::render::{counted, grouped, has_colours, unless_closed, with_default};
use clap::{Args, Subcommand, ValueEnum};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use ropewalk_config::ByteOrigin;
use ropewalk_config::quantity::{Bandwidth, Bytes, ChunkBytes, Time};
use ropewalk_config::{Blocks, ServeSection};
use ropewalk_engine::stream::ClientConfig;
use ropewalk_flow::readout::felix::{ChunkConfig, EventRule};
use ropewalk_flow::source::felix::{EmulatedCardConfig, FaultShare, Faults};
use ropewalk_flow::stream::SubscriberAccount;
use ropewalk_run::{CardOffer, LARGEST_CHUNK_BYTES, OfferWriter, Served, Serving};
use ropewalk_tools::felix::{self, DecodeReport, ELinks};
use ropewalk_wire::felix::{ELINKS, ELink};
use ropewalk_wire::stream::{
    Balance, Down, DownRefusal, LARGEST_DOWN_BYTES, MOST_RANGES, Policy, Range, Share, Subscribe,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub(crate) fn felix(command: &FelixCommand) -> Result<u8, Failure> {
    match command {
        FelixCommand::Decode(options) => decode(options),
        FelixCommand::Dump(options) => dump(options),
        FelixCommand::Generate(options) => generate(options),
        FelixCommand::Serve(options) => serve(options),
        FelixCommand::Subscribe(options) => subscribe(options),
        FelixCommand::Card(options) => card(options),
    }
}

fn decode(options: &DecodeOptions) -> Result<u8, Failure> {
    let report = felix::decode(&mut felix::open(&options.file)?, options.max_chunk.0)?;
    if options.json {
        print_json(&report)?;
    } else {
        write_results(report_text(&report).as_bytes());
    }
    Ok(if report.is_damaged() { exit::UNBALANCED } else { exit::GOOD })
}

fn report_text(report: &DecodeReport) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    let (symbol, bytes, bits) = (&report.symbol, report.block_bytes, report.trailer_bits);
    line(format!("blocks     {} of {bytes} bytes, symbol {symbol}, trailers of {bits} bits", grouped(report.blocks)));
    line(format!("chunks     {}", grouped(report.chunks)));
    line(format!("payload    {} bytes", grouped(report.payload_bytes)));
    for (name, count) in [
        ("signals", report.signals),
        ("skipped", report.skipped_bytes),
        ("left over", report.left_over_bytes),
        ("open", report.open_chunks),
    ] {
        if count > 0 {
            line(format!("{name:<10} {}", grouped(count)));
        }
    }
    let rows = [
        ("damaged blocks", &report.block_errors),
        ("chunks given up", &report.chunk_errors),
        ("chunks with a flag", &report.flagged),
    ];
    for (name, counts) in rows.into_iter().filter(|(_, counts)| !counts.is_empty()) {
        line(format!("{name}: {}", by_name(counts)));
    }
    for fault in &report.first_faults {
        let whose = fault.elink.map_or_else(|| "of no known e-link".to_owned(), |elink| format!("e-link {elink}"));
        line(format!("  block {} at {:#x}, {whose}: {}", fault.block, fault.offset, fault.error));
    }
    line(elink_table(report).to_string());
    text
}

fn by_name(counts: &BTreeMap<&str, u64>) -> String {
    counts.iter().map(|(name, count)| format!("{name} {}", grouped(*count))).collect::<Vec<_>>().join(", ")
}

fn total(counts: &BTreeMap<&str, u64>) -> u64 {
    counts.values().sum()
}

fn elink_table(report: &DecodeReport) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["e-link", "blocks", "chunks", "bytes", "shortest", "longest", "given up", "flags"]);
    for link in &report.elinks {
        let numbers = [link.blocks, link.chunks, link.payload_bytes, link.least_bytes, link.most_bytes].map(grouped);
        let texts = [by_name(&link.chunk_errors), by_name(&link.flagged)];
        table.add_row([link.elink.to_string()].into_iter().chain(numbers).chain(texts));
    }
    for column in table.column_iter_mut().take(6) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn dump(options: &DumpOptions) -> Result<u8, Failure> {
    let stdout = std::io::stdout();
    let (first, end) = options.blocks;
    let wanted = felix::DumpOptions { first, end, colours: has_colours() };
    let mut out = BufWriter::new(stdout.lock());
    let shown = felix::dump(&mut felix::open(&options.file)?, &wanted, &mut out);
    unless_closed(shown.and_then(|()| Ok(out.flush()?)))
}

fn generate(options: &GenerateOptions) -> Result<u8, Failure> {
    let faults = options.faults.iter().copied();
    let faults = Faults::new(faults).map_err(|error| Failure::Usage(format!("--fault: {error}")))?;
    faults.check(options.kind.0).map_err(|error| Failure::Usage(format!("--fault: {error}")))?;
    let card = EmulatedCardConfig::new(options.kind.0, options.elinks.iter(), options.chunk_size.0, options.seed);
    let card = EmulatedCardConfig { faults, ..card };
    let chunks = options.chunks.or(options.size.is_none().then_some(CHUNKS));
    let wanted = felix::GenerateOptions { card, chunks, bytes: options.size.map(|size| size.0) };
    let (output, stdout) = (&options.output, std::io::stdout());
    let made = if output == Path::new("-") {
        felix::generate(&wanted, &mut stdout.lock())?
    } else {
        let mut file = File::create(output).map_err(|error| {
            let text = format!("{}: cannot create: {error}", output.display());
            if error.kind() == ErrorKind::NotFound { Failure::Usage(text) } else { Failure::Environment(text) }
        })?;
        felix::generate(&wanted, &mut file)?
    };
    let (bytes, chunks) = (grouped(made.bytes), grouped(made.chunks_per_elink));
    let elinks = counted(wanted.card.links.len(), "e-link");
    tell!("{bytes} bytes of blocks: {chunks} chunks of each of {elinks}");
    if !made.faults.is_empty() {
        tell!("faults: {}", by_name(&made.faults));
    }
    Ok(exit::GOOD)
}

fn interrupts() -> Result<Interrupts, Failure> {
    Interrupts::listen().map_err(|error| Failure::Environment(format!("signals: {error}")))
}

fn serve(options: &ServeOptions) -> Result<u8, Failure> {
    let offers = offers(options)?;
    let interrupts = interrupts()?;
    let begin = Instant::now();
    let served = ropewalk_run::serve(&offers, |serving| {
        if let Serving::Listens(name, address) = serving {
            say!("ready {name} {address}");
        }
        if interrupts.count() > 1 {
            std::process::exit(i32::from(output::finish(exit::FORCED)));
        }
        interrupts.count() == 0
    })?;
    let mut all = SubscriberAccount::default();
    served.iter().for_each(|card| all.merge(&card.server.subscribers));
    if options.json {
        print_json(&ServeReport::new(&served, &all, begin.elapsed().as_secs_f64()))?;
    } else {
        print_served(&served, &all);
    }
    Ok(if !all.is_balanced() {
        exit::UNBALANCED
    } else if all.dropped.total() > 0 || served.iter().any(Served::is_damaged) {
        exit::LOST
    } else {
        exit::GOOD
    })
}

/// What to serve: the cards of a configuration, or the blocks of a file.
fn offers(options: &ServeOptions) -> Result<Vec<CardOffer>, Failure> {
    let is_configuration = options.file.extension().is_some_and(|extension| extension == "toml");
    let mut offers = if is_configuration {
        CardOffer::of_configuration(&ropewalk_config::read_pull(&options.file)?)?
    } else {
        let origin = ByteOrigin::File(options.file.clone());
        vec![CardOffer {
            name: "felix".to_owned(),
            serve: ServeSection::default(),
            memory: RING.0,
            rules: EventRule::USUAL.into(),
            writer: OfferWriter::Blocks {
                origin,
                again: false,
                bytes_per_second: None,
                most_chunk_bytes: ChunkConfig::USUAL_MOST_BYTES,
            },
        }]
    };
    for offer in &mut offers {
        let serve = &mut offer.serve;
        serve.listen = options.listen.clone().unwrap_or_else(|| serve.listen.clone());
        serve.wait = options.wait.unwrap_or(serve.wait);
        serve.subscribers = options.subscribers.unwrap_or(serve.subscribers);
        serve.queue = options.queue.unwrap_or(serve.queue);
        serve.coalesce = options.coalesce.unwrap_or(serve.coalesce);
        serve.coalesce_time = options.coalesce_time.unwrap_or(serve.coalesce_time);
        serve.loop_back |= options.loop_back;
        offer.memory = options.ring.map_or(offer.memory, |ring| ring.0);
        if options.max_chunk.is_some_and(|most| is_configuration || most.0 > LARGEST_CHUNK_BYTES) {
            let most = Bytes(LARGEST_CHUNK_BYTES);
            return Err(Failure::Usage(format!("--max-chunk is for blocks of a file, and {most} at most")));
        }
        if let OfferWriter::Blocks { again, bytes_per_second, most_chunk_bytes, .. } = &mut offer.writer {
            *most_chunk_bytes = options.max_chunk.map_or(*most_chunk_bytes, |most| most.0);
            *again = options.again;
            *bytes_per_second = options.rate.map(|rate| rate.bytes_per_second).or(*bytes_per_second);
        } else if options.again || options.rate.is_some() {
            let name = &offer.name;
            return Err(Failure::Usage(format!("{name} is emulated: --loop and --rate are for blocks that are read")));
        }
    }
    Ok(offers)
}

/// Writes a card's blocks for the run that started this process.
fn card(options: &CardOptions) -> Result<u8, Failure> {
    let configuration = ropewalk_config::read_pull(&options.config)?;
    let interrupts = interrupts()?;
    tell!("{} is written by process {}", options.name, std::process::id());
    ropewalk_run::write_card(&configuration, &options.name, options.events, || interrupts.count() == 0)?;
    Ok(exit::GOOD)
}

fn print_served(served: &[Served], all: &SubscriberAccount) {
    let sum = |of: fn(&Served) -> u64| served.iter().map(of).sum::<u64>();
    say!("blocks      {}", grouped(sum(|card| card.input.chunks.blocks)));
    let input = CardFaults::of(served);
    for (name, count) in [
        ("skipped", format!("{} bytes that belong to no block", grouped(input.skipped_bytes))),
        ("left over", format!("{} bytes at the end that are no whole block", grouped(input.left_over_bytes))),
        ("missing", format!("{} blocks, by their sequence numbers", grouped(input.blocks_missing))),
        ("damaged", format!("{} blocks: {}", grouped(total(&input.block_errors)), by_name(&input.block_errors))),
        ("given up", format!("{} chunks: {}", grouped(total(&input.chunk_errors)), by_name(&input.chunk_errors))),
    ] {
        if !count.starts_with("0 ") {
            say!("{name:<11} {count}");
        }
    }
    say!("chunks      {}", grouped(sum(|card| card.server.received)));
    say!("subscribers {}", grouped(sum(|card| card.server.joined)));
    say!("sent        {} chunks, {} bytes", grouped(all.sent), grouped(all.sent_bytes));
    for (cause, count) in all.dropped.iter() {
        say!("dropped     {} {cause}", grouped(count));
    }
    let refused = sum(|card| card.server.down.1);
    if refused > 0 {
        say!("refused     {} messages to e-links", grouped(refused));
    }
    let unwanted = sum(|card| card.server.unwanted);
    if unwanted > 0 {
        say!("unwanted    {}", grouped(unwanted));
    }
    say!("ledger      {}", if all.is_balanced() { "balanced" } else { "NOT BALANCED" });
}

fn subscribe(options: &SubscribeOptions) -> Result<u8, Failure> {
    let ranges: Vec<Range> = options.elinks.ranges().map(|(first, last)| Range { first, last }).collect();
    if ranges.len() > MOST_RANGES {
        return Err(Failure::Usage(format!("--elinks: at most {MOST_RANGES} ranges; subscribe twice for more")));
    }
    let config = client_config(options, ranges);
    let mut output = options.output.as_deref().map(create).transpose()?;
    let mut written = Ok(());
    let mut came: BTreeMap<u16, ELinkCounts> = BTreeMap::new();
    let (interrupts, begin, duration) = (interrupts()?, Instant::now(), options.duration.map(|time| time.0));
    let is_over = || interrupts.count() > 0 || duration.is_some_and(|most| begin.elapsed() >= most);
    let report = ropewalk_run::subscribe(
        config,
        |head, payload| {
            let elink = head.elink.number();
            let none = ELinkCounts { chunks: 0, elink, flagged: 0, payload_bytes: 0 };
            let link = came.entry(elink).or_insert(none);
            link.chunks += 1;
            link.payload_bytes += u64::from(head.length);
            link.flagged += u64::from(!head.status.is_good());
            if let (Some(out), Ok(())) = (&mut output, &written) {
                written = out.write_all(&head.to_bytes());
                for piece in payload.pieces() {
                    written = std::mem::replace(&mut written, Ok(())).and_then(|()| out.write_all(piece));
                }
            }
        },
        |_, _| !is_over(),
    )?;
    let flushed = output.as_mut().map_or(Ok(()), Write::flush);
    written.and(flushed).map_err(|error| Failure::Environment(format!("cannot write the chunks: {error}")))?;
    if options.json {
        let elinks = came.into_values().collect();
        print_json(&SubscribeReport::new(&report, elinks, begin.elapsed().as_secs_f64()))?;
    } else {
        tell!("chunks {}, {} bytes, of {} e-links", grouped(report.chunks), grouped(report.bytes), came.len());
        if report.lost.chunks > 0 {
            tell!("dropped by the server: {} chunks", grouped(report.lost.chunks));
        }
    }
    if let Some(refused) = &report.first_down_refused {
        let (count, elink) = (grouped(report.down_refused), refused.elink.number());
        tell!("refused by the server: {count} messages to e-links, the first one to {elink}: {}", why(refused.why));
    }
    Ok(if report.lost.chunks + report.down_refused > 0 { exit::LOST } else { exit::GOOD })
}

fn why(refusal: DownRefusal) -> &'static str {
    match refusal {
        DownRefusal::NoDownLink => {
            "no card's down-link is connected there, so that it would reach no front end; `serve --loop-back` says it back"
        }
        DownRefusal::NoRoom => "the down-link has no room now; send less, or later",
    }
}

fn client_config(options: &SubscribeOptions, ranges: Vec<Range>) -> ClientConfig {
    let balance = match options.balance {
        BalanceName::Turns => Balance::RoundRobin,
        BalanceName::Event => Balance::ByEvent,
    };
    let policy = match options.when_full {
        PolicyName::Wait => Policy::BackPressure,
        PolicyName::Drop => Policy::Drop,
    };
    let share = options.group.map_or(Share::Alone, |group| Share::Group(group, balance));
    ClientConfig {
        address: options.address.clone(),
        name: "ropewalk felix subscribe".to_owned(),
        wanted: Subscribe { ranges, policy, share, one_in: options.one_in },
        down: options.send.clone(),
        reconnect: options.reconnect.map(|time| time.0),
        chunks: options.chunks,
        most_chunk_bytes: u32::MAX,
    }
}

fn create(path: &Path) -> Result<Box<dyn Write>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(BufWriter::new(std::io::stdout())));
    }
    match File::create(path) {
        Ok(file) => Ok(Box::new(BufWriter::with_capacity(1 << 20, file))),
        Err(error) => Err(Failure::Environment(format!("{}: cannot create: {error}", path.display()))),
    }
}

/// The longest chunk by default.
const MAX_CHUNK: &str = "1MiB";
/// The chunks of each e-link of a generated file by default.
const CHUNKS: u64 = 1000;
/// The ring of a file of blocks by default.
const RING: Bytes = Bytes(64 << 20);

/// The help of an option that overrides a key of `[felix.serve]`.
fn serve_help(text: &str, value: impl FnOnce(ServeSection) -> String) -> String {
    with_default(text, value(ServeSection::default()))
}

#[derive(Debug, Subcommand)]
pub(crate) enum FelixCommand {
    /// Count the chunks, sizes and errors in a file of blocks.
    Decode(DecodeOptions),
    /// Show single blocks: headers, sub-chunks, trailers.
    Dump(DumpOptions),
    /// Write the blocks of an emulated card, optionally with faults.
    Generate(GenerateOptions),
    /// Serve the chunks of a file or of emulated cards to subscribers.
    Serve(ServeOptions),
    /// Receive the chunks of e-links from a server.
    Subscribe(SubscribeOptions),
    /// Write the blocks of an emulated card; started by a run.
    Card(CardOptions),
}

#[derive(Debug, Args)]
#[command(after_help = "A run starts this command for a card with `writer = \"process\"`:
  ropewalk felix card felix.toml flx0 --events 100000 0<>RING 1<>BELL

Standard input is the ring, an anonymous file of the run. Standard output wakes
the run. Ctrl-C ends the card after the last trigger.")]
pub(crate) struct CardOptions {
    /// Configuration of the run.
    pub(crate) config: PathBuf,
    /// Name of the card.
    pub(crate) name: String,
    /// Number of triggers; by default without end.
    #[arg(long, value_name = "N")]
    pub(crate) events: Option<u64>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk felix decode card0.dat
  ropewalk felix decode - --json < card0.dat

The kind of the blocks is detected.

Exit status: 0 no damage, 1 damaged or missing data.")]
pub(crate) struct DecodeOptions {
    /// File of blocks, FIFO, or - for standard input.
    pub(crate) file: PathBuf,
    /// Largest chunk; longer chunks are dropped.
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
    /// File of blocks, FIFO, or - for standard input.
    pub(crate) file: PathBuf,
    /// Blocks to show, from 0, M excluded: 5..8, 5.., ..8 or 5.
    #[arg(long, value_name = "N..M", default_value = "0..8", value_parser = block_range)]
    pub(crate) blocks: (u64, u64),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk felix generate card0.dat --elinks 0-23 --chunk-size 64 --size 100MiB
  ropewalk felix generate - --kind 4KiB | ropewalk felix decode -
  ropewalk felix generate bad.dat --fault crc=0.001 --fault lost_block=0.0001

Chunk faults: busy, crc, error, truncated, timed_out, missing, no_first,
no_last, oversize, stalled, silence, out_of_band.
Block faults: lost_block, sequence_gap, start_of_block, padding, past_header,
undefined_type, lost_bytes.")]
pub(crate) struct GenerateOptions {
    /// Output file, or - for standard output.
    pub(crate) output: PathBuf,
    /// Kind of blocks: narrow (0xABCD, 1 KiB), wide (0xABCE, 1 KiB) or a size from 1KiB to 64KiB (0xC0CE).
    #[arg(long, value_name = "KIND", default_value = "narrow")]
    pub(crate) kind: Blocks,
    /// E-links: numbers and ranges such as 1,8-15, or all.
    #[arg(long, value_name = "LIST", default_value = "0-23")]
    pub(crate) elinks: ELinks,
    /// Size of the chunks: 64, uniform(16,4KiB), exponential(64), lognormal(256,1.2).
    #[arg(long, value_name = "SIZE", default_value = "64")]
    pub(crate) chunk_size: ChunkBytes,
    #[arg(long, value_name = "N")]
    #[arg(help = with_default("Number of chunks of each e-link", format!("{CHUNKS} without --size")))]
    pub(crate) chunks: Option<u64>,
    /// Approximate size of the output.
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Bytes>,
    /// Seed of the random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Fault and the share of chunks or blocks with it, 0 to 1; repeatable.
    #[arg(long = "fault", value_name = "NAME=SHARE")]
    pub(crate) faults: Vec<FaultShare>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk felix serve card0.dat --wait 1
  ropewalk felix generate - --size 10GiB | ropewalk felix serve - --rate 800MB/s
  ropewalk felix serve examples/felix.toml

`ready NAME ADDRESS` is printed for each card when subscribers can connect; the
name of a file is `felix`. Options override the configuration. The server ends
when all blocks are sent, or with Ctrl-C.

Exit status: 0 everything sent, 3 chunks dropped.")]
pub(crate) struct ServeOptions {
    /// File of blocks, FIFO, or - for standard input; or a configuration (*.toml) with `[[felix]]` cards.
    pub(crate) file: PathBuf,
    #[arg(long, value_name = "ADDRESS")]
    #[arg(help = serve_help("Address for subscribers; port 0 selects a free port", |serve| serve.listen))]
    pub(crate) listen: Option<String>,
    #[arg(long, value_name = "N")]
    #[arg(help = serve_help("Number of subscribers to wait for before sending", |serve| serve.wait.to_string()))]
    pub(crate) wait: Option<u32>,
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    #[arg(help = serve_help("Maximum number of subscribers", |serve| serve.subscribers.to_string()))]
    pub(crate) subscribers: Option<u8>,
    #[arg(long, value_name = "SIZE")]
    #[arg(help = serve_help("Queue of each subscriber", |serve| serve.queue.exact()))]
    pub(crate) queue: Option<Bytes>,
    #[arg(long, value_name = "SIZE")]
    #[arg(help = with_default("Ring buffer of the card", RING.exact()))]
    pub(crate) ring: Option<Bytes>,
    #[arg(long, value_name = "SIZE")]
    #[arg(help = with_default("Largest chunk of a file of blocks; longer chunks are dropped", Bytes(ChunkConfig::USUAL_MOST_BYTES).exact()))]
    pub(crate) max_chunk: Option<Bytes>,
    #[arg(long, value_name = "SIZE")]
    #[arg(help = serve_help("Bytes that are sent without waiting for more", |serve| serve.coalesce.exact()))]
    pub(crate) coalesce: Option<Bytes>,
    #[arg(long, value_name = "TIME")]
    #[arg(help = serve_help("Maximum time that bytes wait for more", |serve| serve.coalesce_time.exact()))]
    pub(crate) coalesce_time: Option<Time>,
    /// Repeat the file with continued sequence numbers.
    #[arg(long = "loop")]
    pub(crate) again: bool,
    /// Maximum rate at which the file is sent [default: unlimited].
    #[arg(long, value_name = "BANDWIDTH")]
    pub(crate) rate: Option<Bandwidth>,
    /// Return messages that subscribers send to e-links, as data of these e-links.
    #[arg(long)]
    pub(crate) loop_back: bool,
    /// Print the account as one JSON object, in the last line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Copy, Clone, Debug, ValueEnum)]
pub(crate) enum PolicyName {
    /// Hold the card back; nothing is lost.
    Wait,
    /// Drop chunks and count them.
    Drop,
}

#[derive(Copy, Clone, Debug, ValueEnum)]
pub(crate) enum BalanceName {
    /// To the members in turn.
    Turns,
    /// All chunks of an event to one member.
    Event,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk felix subscribe 127.0.0.1:12350
  ropewalk felix subscribe felix1:12350 --elinks 1,8-15 --output chunks.dat
  ropewalk felix subscribe felix1:12350 --when-full drop --one-in 100 --json
  ropewalk felix subscribe felix1:12350 --group 1 --balance event --reconnect 1s

Exit status: 0 complete, 2 refused, 3 chunks dropped, 4 no connection.")]
pub(crate) struct SubscribeOptions {
    /// Address of the server.
    pub(crate) address: String,
    /// E-links to receive: numbers and ranges such as 1,8-15.
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub(crate) elinks: ELinks,
    /// Action of the server when the queue is full.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "wait")]
    pub(crate) when_full: PolicyName,
    /// Group whose members share the chunks: each chunk goes to one of them.
    #[arg(long, value_name = "N")]
    pub(crate) group: Option<u16>,
    /// Distribution of the chunks in the group.
    #[arg(long, value_enum, default_value = "turns", requires = "group")]
    pub(crate) balance: BalanceName,
    /// Sampling: receive one chunk in N.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) one_in: u32,
    /// Number of chunks to receive.
    #[arg(long, value_name = "N")]
    pub(crate) chunks: Option<u64>,
    /// Time limit.
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Time>,
    /// Delay before connecting again when the connection fails [default: no reconnection].
    #[arg(long, value_name = "TIME")]
    pub(crate) reconnect: Option<Time>,
    /// Text to send to an e-link; repeatable.
    #[arg(long = "send", value_name = "ELINK=TEXT", value_parser = down)]
    pub(crate) send: Vec<Down>,
    /// File for the chunks, each with a header of 8 bytes; - for standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) output: Option<PathBuf>,
    /// Print the account as one JSON object, in the last line.
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
