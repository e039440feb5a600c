//! Commands on FELIX blocks.

mod arguments;
pub(crate) mod report;
mod stream;

use crate::exit::{self, Failure};
use crate::files::counted;
use crate::output::{print_json, write_results};
use crate::render::grouped;
pub(crate) use arguments::FelixCommand;
use arguments::{DecodeOptions, DumpOptions, GenerateOptions};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use ropewalk_flow::source::felix::{EmulatedCardConfig, Faults};
use ropewalk_node::offline::OfflineError;
use ropewalk_node::offline::felix::{self, DecodeReport};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, IsTerminal, Write};
use std::path::Path;

pub(crate) fn felix(command: &FelixCommand) -> Result<u8, Failure> {
    match command {
        FelixCommand::Decode(options) => decode(options),
        FelixCommand::Dump(options) => dump(options),
        FelixCommand::Generate(options) => generate(options),
        FelixCommand::Serve(options) => stream::serve(options),
        FelixCommand::Subscribe(options) => stream::subscribe(options),
        FelixCommand::Card(options) => stream::card(options),
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
    let colours = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (first, end) = options.blocks;
    let wanted = felix::DumpOptions { first, end, colours };
    let mut out = BufWriter::new(stdout.lock());
    let shown = felix::dump(&mut felix::open(&options.file)?, &wanted, &mut out);
    match shown.and_then(|()| Ok(out.flush()?)) {
        Err(OfflineError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(exit::GOOD),
        shown => shown.map(|()| exit::GOOD).map_err(Failure::from),
    }
}

fn generate(options: &GenerateOptions) -> Result<u8, Failure> {
    let faults = options.faults.iter().copied();
    let faults = Faults::new(faults).map_err(|error| Failure::Usage(format!("--fault: {error}")))?;
    let card = EmulatedCardConfig::new(options.kind.0, options.elinks.iter(), options.chunk_size.0, options.seed);
    let card = EmulatedCardConfig { faults, ..card };
    let chunks = options.chunks.or(options.size.is_none().then_some(1000));
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
