//! Serving chunks, and subscribing to them.

use super::arguments::{BalanceName, PolicyName, ServeOptions, SubscribeOptions};
use crate::exit::{self, Failure};
use crate::files::print_json;
use crate::render::grouped;
use crate::signals::Interrupts;
use ropewalk_flow::stream::RouterConfig;
use ropewalk_node::drive::stream::{ClientConfig, ClientReport, ServerConfig};
use ropewalk_node::run::{self, Served, Serving, StreamRunError};
use ropewalk_wire::stream::{Balance, MOST_RANGES, Policy, Range, Share, Subscribe};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

impl From<StreamRunError> for Failure {
    fn from(error: StreamRunError) -> Self {
        let text = error.to_string();
        match error {
            StreamRunError::File(error) => error.into(),
            StreamRunError::Refused { .. } => Self::Usage(text),
            _ => Self::Environment(text),
        }
    }
}

fn interrupts() -> Result<Interrupts, Failure> {
    Interrupts::listen().map_err(|error| Failure::Environment(format!("signals: {error}")))
}

pub(super) fn serve(options: &ServeOptions) -> Result<u8, Failure> {
    let router = RouterConfig {
        subscribers: usize::from(options.subscribers),
        queue_bytes: options.queue.0,
        coalesce_bytes: options.coalesce.0,
        coalesce_time: options.coalesce_time.0,
        ..RouterConfig::default()
    };
    let (wait_for, loop_back) = (options.wait, options.loop_back);
    let wanted = run::ServeOptions {
        file: options.file.clone(),
        listen: options.listen.clone(),
        server: ServerConfig { router, wait_for, loop_back, ..ServerConfig::default() },
        ring_bytes: usize::try_from(options.ring.0).unwrap_or(usize::MAX),
        again: options.again,
        bytes_per_second: options.rate.map(|rate| rate.bytes_per_second),
    };
    let interrupts = interrupts()?;
    let begin = Instant::now();
    let mut is_forced = false;
    let report = run::serve(&wanted, |serving| {
        if let Serving::Listens(address) = serving {
            println!("ready felix {address}");
        }
        is_forced = interrupts.count() > 1;
        if is_forced {
            std::process::exit(i32::from(exit::FORCED));
        }
        interrupts.count() == 0
    })?;
    let account = serve_account(&report, begin.elapsed().as_secs_f64());
    if options.json {
        print_json(&account)?;
    } else {
        print_served(&report);
    }
    let is_balanced = report.server.subscribers.is_balanced();
    Ok(if !is_balanced {
        exit::UNBALANCED
    } else if report.server.subscribers.dropped.total() > 0 {
        exit::LOST
    } else {
        exit::GOOD
    })
}

fn serve_account(served: &Served, seconds: f64) -> Value {
    let (report, all, chunks) = (&served.server, &served.server.subscribers, &served.input.chunks);
    let dropped: BTreeMap<&str, u64> = all.dropped.iter().map(|(cause, count)| (cause.name(), count)).collect();
    json!({
        "schema": "ropewalk-felix-serve-1",
        "duration_s": seconds,
        "blocks": chunks.blocks,
        "bytes": served.input.bytes,
        "chunks": report.received,
        "unwanted": report.unwanted,
        "waits": served.input.waits,
        "subscribers": report.joined,
        "refused": report.refused,
        "offered": all.offered,
        "passed_over": all.passed_over,
        "sent": all.sent,
        "sent_bytes": all.sent_bytes,
        "dropped": dropped,
        "moved": all.moved,
        "queued": all.queued,
        "copied_bytes": report.copied_bytes,
        "down": { "sent": report.down.0, "refused": report.down.1 },
        "ledger": { "balanced": all.is_balanced() },
    })
}

fn print_served(served: &Served) {
    let (report, all) = (&served.server, &served.server.subscribers);
    println!("blocks      {}", grouped(served.input.chunks.blocks));
    println!("chunks      {}", grouped(report.received));
    println!("subscribers {}", grouped(report.joined));
    println!("sent        {} chunks, {} bytes", grouped(all.sent), grouped(all.sent_bytes));
    for (cause, count) in all.dropped.iter() {
        println!("dropped     {} {cause}", grouped(count));
    }
    if report.unwanted > 0 {
        println!("unwanted    {}", grouped(report.unwanted));
    }
    println!("ledger      {}", if all.is_balanced() { "balanced" } else { "NOT BALANCED" });
}

/// What one e-link sent.
#[derive(Default)]
struct Came {
    chunks: u64,
    bytes: u64,
    flagged: u64,
}

pub(super) fn subscribe(options: &SubscribeOptions) -> Result<u8, Failure> {
    let ranges: Vec<Range> = options.elinks.ranges().map(|(first, last)| Range { first, last }).collect();
    if ranges.len() > MOST_RANGES {
        return Err(Failure::Usage(format!("--elinks: at most {MOST_RANGES} ranges; subscribe twice for more")));
    }
    let config = client_config(options, ranges);
    let mut output = options.output.as_deref().map(create).transpose()?;
    let mut written = Ok(());
    let mut came: BTreeMap<u16, Came> = BTreeMap::new();
    let (interrupts, begin, duration) = (interrupts()?, Instant::now(), options.duration.map(|time| time.0));
    let is_over = || interrupts.count() > 0 || duration.is_some_and(|most| begin.elapsed() >= most);
    let report = run::subscribe(
        config,
        |head, payload| {
            let link = came.entry(head.elink.number()).or_default();
            link.chunks += 1;
            link.bytes += u64::from(head.length);
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
        print_json(&subscribe_account(&report, &came, begin.elapsed().as_secs_f64()))?;
    } else {
        eprintln!("chunks {}, {} bytes, of {} e-links", grouped(report.chunks), grouped(report.bytes), came.len());
        if report.lost.chunks > 0 {
            eprintln!("dropped by the server: {} chunks", grouped(report.lost.chunks));
        }
    }
    Ok(if report.lost.chunks > 0 { exit::LOST } else { exit::GOOD })
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

fn subscribe_account(report: &ClientReport, came: &BTreeMap<u16, Came>, seconds: f64) -> Value {
    let elinks: Vec<Value> = came
        .iter()
        .map(|(elink, link)| {
            json!({ "elink": elink, "chunks": link.chunks, "payload_bytes": link.bytes, "flagged": link.flagged })
        })
        .collect();
    json!({
        "schema": "ropewalk-felix-subscribe-1",
        "duration_s": seconds,
        "chunks": report.chunks,
        "payload_bytes": report.bytes,
        "connections": report.connections,
        "dropped": report.lost.chunks,
        "dropped_bytes": report.lost.bytes,
        "server": report.end.map(|end| json!({ "offered": end.offered, "sent": end.sent, "dropped": end.dropped })),
        "elinks": elinks,
    })
}
