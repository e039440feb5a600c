//! A source's layout or format tried on what its board sent.

use crate::arguments::SourceTestOptions;
use crate::exit::{self, Failure};
use crate::output::{print_json, write_results};
use crate::render::grouped;
use ropewalk_config::{NetworkAddress, SourceInput, SourceSection};
use ropewalk_flow::trial::Divide;
use ropewalk_plugin::Keys;
use ropewalk_run::SplitterTrial;
use ropewalk_tools::foreign::{BadReport, BoardReport, NumbersReport, TrialOptions, TrialReport, rule_of, try_layout};
use std::path::Path;

/// Letters of the longest bar of a histogram.
const BAR: u64 = 40;
/// Bytes of a line of a dump.
const LINE: usize = 16;

pub(crate) fn test(options: &SourceTestOptions) -> Result<u8, Failure> {
    let configuration = ropewalk_config::read_pull(&options.config)?;
    let found = configuration.source.iter().position(|source| source.name_or_id() == options.source);
    let Some(index) = found else {
        let names: Vec<String> = configuration.source.iter().map(SourceSection::name_or_id).collect();
        return Err(Failure::Usage(format!("no source is named `{}`; there are {}", options.source, names.join(", "))));
    };
    let (source, key) = (&configuration.source[index], format!("source[{index}]"));
    let no_frames = || {
        let text = "sends generic fragments, which only a run can take; describe its frames with `frame` to test them";
        Failure::Usage(format!("{}: {text}", options.source))
    };
    let framing = source.framing().ok_or_else(no_frames)?;
    let mut wanted = source.wanted_beside(configuration.source.iter());
    match &source.input {
        SourceInput::Listen(place @ NetworkAddress::Udp(..)) => wanted.port = place.port().or(wanted.port),
        SourceInput::Listen(NetworkAddress::Ip(_, protocol)) => wanted.protocol = Some(*protocol),
        _ => {}
    }
    wanted.port = options.port.or(wanted.port);
    let (gathers, grows, own) = (source.gathering().is_some(), source.numbers_grow(), source.tried_board(&wanted));
    let (own, input) = (own.as_ref(), &options.input);
    let limits = source.datagram_limits();
    let bits = source.counter_bits.unwrap_or(64);
    let grows = grows || source.splitter.as_ref().is_some_and(|splitter| splitter.keys == Keys::Times);
    let tried = TrialOptions { framing: &framing, gathers, grows, bits, limits, own, input, wanted: &wanted };
    let mut splitter = SplitterTrial::new(source)?;
    let divide = splitter.as_mut().map(|splitter| Box::new(|frame: &[u8]| splitter.divide(frame)) as Divide<'_>);
    let report = try_layout(&tried, divide, &options.config, &key)?;
    if options.json {
        print_json(&report)?;
    } else {
        write_results(report_text(&report, &options.config, &key).as_bytes());
    }
    Ok(exit::with_reasons(&report.status))
}

fn report_text(report: &TrialReport, config: &Path, key: &str) -> String {
    let mut text = format!("frames     {}\n", grouped(report.frames));
    for (name, count) in [
        ("of others", report.other_frames),
        ("datagrams", report.datagrams),
        ("skipped", report.skipped_bytes),
        ("filler", report.filler_bytes),
        ("left over", report.left_over_bytes),
        ("unfinished", report.unfinished_frames),
    ] {
        if count > 0 {
            text.push_str(&format!("{name:<10} {}\n", grouped(count)));
        }
    }
    for (name, count) in report.faults.iter().chain(&report.aside) {
        text.push_str(&format!("{name:<10} {}\n", grouped(*count)));
    }
    report.holes.iter().for_each(|hole| text.push_str(&format!("MISSING    {hole}\n")));
    if let Some(why) = &report.cut_off {
        text.push_str(&format!("CUT OFF    {why}\n"));
    }
    report.boards.iter().for_each(|board| text.push_str(&board_text(board)));
    text.extend(advice(report).filter(|_| report.frames == 0));
    if let Some(bad) = &report.first_bad {
        let rule = rule_of(config, key, &bad.place);
        text.push_str(&format!("\nthe first of {} bad places is at {}:\n", grouped(report.bad_places), bad.offset));
        text.push_str(&format!("{}\n{rule}\n", dump(bad)));
    }
    text
}

/// The advice if no packet of a capture was the source's.
fn advice(report: &TrialReport) -> Option<String> {
    const MOST: usize = 8;
    let mut ports: Vec<(u16, u64)> = report.other_ports.iter().map(|(port, count)| (*port, *count)).collect();
    ports.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    if let Some((first, _)) = ports.first() {
        let all = ports.iter().take(MOST).map(|(port, count)| format!("{port} ({})", grouped(*count)));
        let all = all.collect::<Vec<_>>().join(", ");
        return Some(format!("packets of this capture went to port {all}: `--port {first}` tries those\n"));
    }
    let has = |name: &str| report.aside.contains_key(name);
    if has("other_address") {
        Some("packets went to its port, but from or to other addresses: compare `packets`\n".to_owned())
    } else if has("other_protocol") {
        let text = "the capture has the other transport (UDP or TCP): compare `listen` and `frame` with what `ropewalk sniff` shows of it\n";
        Some(text.to_owned())
    } else {
        None
    }
}

fn board_text(board: &BoardReport) -> String {
    let (frames, bytes) = (grouped(board.frames), grouped(board.bytes));
    let mut text = format!(
        "{}: {frames} frames, {bytes} bytes, {} to {} each\n",
        board.board, board.least_bytes, board.most_bytes
    );
    if board.pieces > 0 {
        text.push_str(&format!("  the splitter divided them into {} events\n", grouped(board.pieces)));
    }
    for (name, numbers) in [("sequence", board.sequence), ("event", board.event)] {
        if let Some(numbers) = numbers {
            text.push_str(&format!("  {name}: {}\n", numbers_text(&numbers)));
        }
    }
    board.doubts.iter().for_each(|doubt| text.push_str(&format!("  WARNING: {doubt}\n")));
    let (right, wrong) = (board.checksums.right, board.checksums.wrong);
    if right + wrong > 0 {
        text.push_str(&format!("  checksums: {} right, {} wrong\n", grouped(right), grouped(wrong)));
    }
    let most = board.intervals.iter().map(|step| step.count).max().unwrap_or(1);
    for step in &board.intervals {
        let bar = "#".repeat((step.count * BAR).div_ceil(most) as usize);
        let (from, to) = (time_text(step.from_ns), time_text(step.to_ns));
        text.push_str(&format!("  {from:>6} to {to:<6} {:>9}  {bar}\n", grouped(step.count)));
    }
    if board.clock_backward > 0 && board.clock_wrong == 0 {
        text.push_str(&format!("  the clock went backward {} times\n", grouped(board.clock_backward)));
    }
    text
}

fn numbers_text(numbers: &NumbersReport) -> String {
    let mut text = format!("{} to {}", numbers.first, numbers.last);
    for (name, count) in [
        ("gaps", numbers.gaps),
        ("missing", numbers.missing),
        ("wraps", numbers.wraps),
        ("repeated", numbers.duplicates),
        ("out of order", numbers.out_of_order),
        ("restarts", numbers.restarts),
    ] {
        if count > 0 {
            text.push_str(&format!(", {name} {}", grouped(count)));
        }
    }
    text
}

/// `20us`: steps have one digit.
fn time_text(nanoseconds: u64) -> String {
    match nanoseconds {
        0..1_000 => format!("{nanoseconds}ns"),
        1_000..1_000_000 => format!("{}us", nanoseconds / 1_000),
        1_000_000..1_000_000_000 => format!("{}ms", nanoseconds / 1_000_000),
        _ => format!("{}s", nanoseconds / 1_000_000_000),
    }
}

/// The bytes around a bad place, with carets under the bytes that the rule looks at.
fn dump(bad: &BadReport) -> String {
    let place = &bad.place;
    let mut text = String::new();
    // Lines are aligned to the start of the frame, with this many whole lines before it.
    let first = -(place.before.div_ceil(LINE) as i64 * LINE as i64);
    let end = (place.bytes.len() - place.before) as i64;
    let mut at = first;
    while at < end {
        let (mut bytes, mut marks) = (String::new(), String::new());
        for here in at..at + LINE as i64 {
            let index = usize::try_from(here + place.before as i64).ok();
            let byte = index.and_then(|index| place.bytes.get(index));
            bytes.push_str(&byte.map_or_else(|| "   ".to_owned(), |byte| format!(" {byte:02x}")));
            let is_marked = place
                .marked
                .as_ref()
                .is_some_and(|marked| usize::try_from(here).is_ok_and(|here| marked.contains(&here)));
            marks.push_str(if is_marked { " ^^" } else { "   " });
        }
        text.push_str(format!("  {at:>5} |{bytes}").trim_end());
        text.push('\n');
        if marks.contains('^') {
            text.push_str(format!("        |{marks}  {}", bad.key).trim_end());
            text.push('\n');
        }
        at += LINE as i64;
    }
    text
}
