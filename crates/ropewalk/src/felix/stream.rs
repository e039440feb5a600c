//! Serving chunks, and subscribing to them.

use super::arguments::{BalanceName, CardOptions, PolicyName, ServeOptions, SubscribeOptions};
use super::report::{ELinkCounts, ServeReport, SubscribeReport};
use crate::exit::{self, Failure};
use crate::output;
use crate::output::print_json;
use crate::render::grouped;
use crate::signals::Interrupts;
use ropewalk_flow::readout::felix::{ChunkConfig, EventRule};
use ropewalk_flow::stream::SubscriberAccount;
use ropewalk_node::configuration::{self, ServeSection};
use ropewalk_node::drive::stream::ClientConfig;
use ropewalk_node::offline::ByteOrigin;
use ropewalk_node::quantity::Bytes;
use ropewalk_node::run::{self, CardOffer, LARGEST_CHUNK_BYTES, OfferWriter, Served, Serving};
use ropewalk_wire::stream::{Balance, DownRefusal, MOST_RANGES, Policy, Range, Share, Subscribe};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

fn interrupts() -> Result<Interrupts, Failure> {
    Interrupts::listen().map_err(|error| Failure::Environment(format!("signals: {error}")))
}

pub(super) fn serve(options: &ServeOptions) -> Result<u8, Failure> {
    let offers = offers(options)?;
    let interrupts = interrupts()?;
    let begin = Instant::now();
    let served = run::serve(&offers, |serving| {
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
    } else if all.dropped.total() > 0 {
        exit::LOST
    } else {
        exit::GOOD
    })
}

/// What is to be served: the cards of a configuration, or the blocks of a file.
fn offers(options: &ServeOptions) -> Result<Vec<CardOffer>, Failure> {
    let is_configuration = options.file.extension().is_some_and(|extension| extension == "toml");
    let mut offers = if is_configuration {
        CardOffer::of_configuration(&configuration::read_pull(&options.file)?)?
    } else {
        let origin = ByteOrigin::File(options.file.clone());
        vec![CardOffer {
            name: "felix".to_owned(),
            serve: ServeSection::default(),
            memory: 64 << 20,
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
pub(super) fn card(options: &CardOptions) -> Result<u8, Failure> {
    let configuration = configuration::read_pull(&options.config)?;
    let interrupts = interrupts()?;
    tell!("{} is written by process {}", options.name, std::process::id());
    run::write_card(&configuration, &options.name, options.events, || interrupts.count() == 0)?;
    Ok(exit::GOOD)
}

fn print_served(served: &[Served], all: &SubscriberAccount) {
    let sum = |of: fn(&Served) -> u64| served.iter().map(of).sum::<u64>();
    say!("blocks      {}", grouped(sum(|card| card.input.chunks.blocks)));
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

pub(super) fn subscribe(options: &SubscribeOptions) -> Result<u8, Failure> {
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
    let report = run::subscribe(
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
