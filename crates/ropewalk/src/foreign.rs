//! Files of other formats: their contents, their losses, and the layout of unknown frames.

use crate::arguments::{ForeignName, InspectOptions, ReplayOptions, SniffOptions, Speed, VerifyOptions};
use crate::exit::{self, Failure};
use crate::output::{print_json, write_results};
use crate::render::grouped;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use ropewalk_config::{SourceInput, SourceSection};
use ropewalk_flow::sniff::{Findings, Group, Transport};
use ropewalk_tools::OfflineError;
use ropewalk_tools::foreign::{
    CountingReport, ForeignOptions, ForeignReplayOptions, ForeignReplayed, ForeignReport, InspectReport, Naming,
    NoTarget, Pace, PeerHole, RecordReport, SniffReport, Sniffed, SourceReport, Target, drafts, inspect_foreign,
    is_foreign, replay_foreign, show_record, sniff_connections, sniff_datagrams, sniff_file,
};
use ropewalk_wire::description::Description;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a frame that are shown.
const SHOWN_BYTES: usize = 256;

/// Whether every path is in a foreign format, or a foreign format is named.
pub(crate) fn is_meant<P: AsRef<Path>>(paths: &[P], format: Option<&ForeignName>) -> Result<bool, OfflineError> {
    if format.is_some() {
        return Ok(true);
    }
    for path in paths {
        if !is_foreign(path.as_ref())? {
            return Ok(false);
        }
    }
    Ok(!paths.is_empty())
}

pub(crate) fn verify(options: &VerifyOptions) -> Result<u8, Failure> {
    let wanted = ForeignOptions { format: options.format.as_ref().map(|name| name.0), ..ForeignOptions::default() };
    let (report, _) = inspect_foreign(&options.directories, &wanted)?;
    if options.json {
        print_json(&InspectReport { account: &report, records: &[] })?;
    } else {
        write_results(report_text(&report).as_bytes());
    }
    Ok(exit::with_reasons(&report.status))
}

pub(crate) fn inspect(options: &InspectOptions) -> Result<u8, Failure> {
    let (first_record, records) = options.record.map_or((0, options.records), |record| (record, 1));
    if options.event.is_some() || options.readings {
        let text = "--event and --readings are for run files; in files of other formats --record N shows one frame";
        return Err(Failure::Usage(text.to_owned()));
    }
    let format = options.format.as_ref().map(|name| name.0);
    let wanted = ForeignOptions { format, first_record, records, payload_bytes: SHOWN_BYTES };
    let paths: &[PathBuf] = std::slice::from_ref(&options.path);
    let (report, records) = inspect_foreign(paths, &wanted)?;
    if let Some(number) = options.record.filter(|_| records.is_empty()) {
        return Err(Failure::Usage(format!("there is no frame {number}; there are {}, counted from 0", report.frames)));
    }
    if options.json {
        print_json(&InspectReport { account: &report, records: &records })?;
        return Ok(shown(&report));
    }
    let mut text = Vec::new();
    if options.record.is_some() {
        records.iter().try_for_each(|record| show_record(record, &mut text))?;
    } else {
        let shown = (records.len() as u64) < report.frames;
        let mut lines: String = records.iter().map(record_line).collect();
        if shown {
            lines.push_str("              ... --records shows more of them, --record N one whole\n");
        }
        text.extend_from_slice(lines.as_bytes());
        text.push(b'\n');
        text.extend_from_slice(report_text(&report).as_bytes());
    }
    write_results(&text);
    Ok(shown(&report))
}

/// The status of what was shown: damage is shown as well as anything else, and only what cannot be is lost.
fn shown(report: &ForeignReport) -> u8 {
    if report.files.iter().all(|file| file.cut_off.is_none()) { exit::GOOD } else { exit::LOST }
}

pub(crate) fn replay(options: &ReplayOptions) -> Result<u8, Failure> {
    let [path] = &options.directories[..] else {
        return Err(Failure::Usage("one capture or file at a time goes out again".to_owned()));
    };
    let target = options.to.parse().map_err(|error: NoTarget| Failure::Usage(error.to_string()))?;
    let pace = match options.speed {
        Speed::Max => Pace::Most,
        Speed::Recorded => Pace::Recorded,
        Speed::Hertz(hertz) => Pace::Hertz(hertz),
    };
    let (format, times) = (options.format.as_ref().map(|name| name.0), u64::from(!options.repeat));
    let (by, port) =
        match options.by.as_deref().map(|config| described(config, options.source.as_deref())).transpose()? {
            Some((by, port)) => (Some(by), options.port.or(port)),
            None => (None, options.port),
        };
    let wanted = ForeignReplayOptions { target, pace, port, format, by, times };
    let sent = replay_foreign(path, &wanted).map_err(|error| match error {
        OfflineError::NothingKnown { .. } | OfflineError::UnknownFormat { .. } if wanted.by.is_none() => {
            let advice = "if a [[source]] of a configuration describes its frames: --by CONFIG --source NAME";
            Failure::Usage(format!("{error}; {advice}"))
        }
        error => error.into(),
    })?;
    let mut text = format!("sent {} messages, {} bytes\n", grouped(sent.messages), grouped(sent.bytes));
    sent.lines.iter().for_each(|(peer, local)| text.push_str(&format!("  {peer} from {local}\n")));
    text.extend(address_advice(&sent).filter(|_| matches!(target, Target::Udp(_))));
    sent.aside.iter().for_each(|(name, count)| text.push_str(&format!("  aside: {name} {}\n", grouped(*count))));
    if let Some(cut_off) = &sent.cut_off {
        text.push_str(&format!("  CUT OFF: {}\n", cut_off.why));
    }
    for (name, count) in
        [("skipped bytes", sent.skipped_bytes), ("missing bytes", sent.missed_bytes), ("damaged places", sent.faults)]
    {
        if count > 0 {
            text.push_str(&format!("  {name}: {}\n", grouped(count)));
        }
    }
    write_results(text.as_bytes());
    Ok(exit::with_reasons(&sent.status()))
}

/// What describes the frames of a source of a configuration, and the port to which it sends datagrams.
fn described(config: &Path, name: Option<&str>) -> Result<(Description, Option<u16>), Failure> {
    let configuration = ropewalk_config::read_pull(config)?;
    let usage = |text: String| Failure::Usage(format!("{}: {text}", config.display()));
    let described = || configuration.source.iter().filter(|source| source.framing().is_some());
    let names = || described().map(SourceSection::name_or_id).collect::<Vec<_>>();
    let source = match name {
        Some(name) => described().find(|source| source.name_or_id() == name),
        None => described().next().filter(|_| names().len() == 1),
    };
    let source = source.ok_or_else(|| match (name, &*names()) {
        (_, []) => usage("no [[source]] describes frames, by `frame` or by a `format` with a name".to_owned()),
        (Some(name), names) => {
            usage(format!("no source with described frames is named `{name}`; there are {}", names.join(", ")))
        }
        (None, names) => usage(format!("name the source that sent the data: --source {}", names.join(" or "))),
    })?;
    let port = match &source.input {
        SourceInput::Listen(place) => place.port(),
        _ => None,
    };
    Ok((source.framing().ok_or_else(|| usage("it describes no frames".to_owned()))?, port))
}

/// What to do if boards are identified by addresses and send from other ones now.
fn address_advice(sent: &ForeignReplayed) -> Option<String> {
    let (own, now) = sent.lines.iter().find_map(|(peer, local)| {
        let own = peer.parse::<SocketAddr>().ok()?.ip();
        (own != local.ip()).then(|| (own, local.ip()))
    })?;
    Some(format!(
        "  a source that is \"{own}\" alone does not take {now}: `is = [\"{own}\", \"{now}\"]` is the board and what plays it\n"
    ))
}

/// A frame in a line: the first of its fields, and how many parts of which kind.
fn record_line(record: &RecordReport) -> String {
    const MOST_FIELDS: usize = 6;
    let fields = record.fields.iter().take(MOST_FIELDS).map(|field| format!("{} {}", field.name, field.value));
    let mut parts: BTreeMap<&str, u64> = BTreeMap::new();
    record.parts.iter().for_each(|part| *parts.entry(&part.name).or_default() += 1);
    let parts =
        parts.iter().map(|(name, count)| if *count == 1 { (*name).to_owned() } else { format!("{count} x {name}") });
    let all: Vec<String> = fields.chain(parts.take(MOST_FIELDS)).collect();
    let wrong = record.faults.first().map_or_else(String::new, |(_, fault)| format!("  WRONG: {fault}"));
    format!("{:>12}  {:>10} B  {}: {}{wrong}\n", record.offset, record.bytes, record.kind, all.join(", "))
}

fn report_text(report: &ForeignReport) -> String {
    let mut text = String::new();
    let mut line = |name: &str, words: String| text.push_str(&format!("{name:<16}{words}\n"));
    for file in &report.files {
        let packed = if file.packed { format!(", unpacked ({})", file.packing.name()) } else { String::new() };
        line("file", format!("{}: {} bytes{packed}", file.path, grouped(file.bytes)));
        if let Some(why) = &file.cut_off {
            line("CUT OFF", format!("{why}; {} bytes before that are no whole frame", grouped(file.cut_off_bytes)));
        }
        let Some(capture) = &file.capture else { continue };
        let times =
            capture.first_time.iter().zip(&capture.last_time).map(|(first, last)| format!(", {first} to {last}"));
        line("capture", format!("{} packets{}", grouped(capture.packets), times.collect::<String>()));
        let others = capture.other_datagrams.iter().map(|(port, count)| format!("to port {port}: {}", grouped(*count)));
        for (name, count) in &capture.aside {
            line("  aside", format!("{name} {}", grouped(*count)));
        }
        others.for_each(|other| line("  other", other));
        capture.holes.iter().for_each(|PeerHole { peer, hole }| line("  MISSING", format!("{peer}: {hole}")));
        for (name, count) in [
            ("unfinished", capture.unfinished_datagrams),
            ("frames in part", capture.unfinished_frames),
            ("missed bytes", capture.missed_bytes),
        ] {
            if count > 0 {
                line(&format!("  {name}"), grouped(count));
            }
        }
    }
    line("format", report.format.unwrap_or("unknown").to_owned());
    line("frames", format!("{}, {} bytes", grouped(report.frames), grouped(report.frame_bytes)));
    if report.checksums.right + report.checksums.wrong > 0 {
        let (right, wrong) = (grouped(report.checksums.right), grouped(report.checksums.wrong));
        line("checksums", format!("{right} right, {wrong} wrong"));
    }
    for (name, bytes) in
        [("skipped", report.skipped_bytes), ("filler", report.filler_bytes), ("left over", report.left_over_bytes)]
    {
        if bytes > 0 {
            line(name, format!("{} bytes", grouped(bytes)));
        }
    }
    report.faults.iter().for_each(|(fault, count)| line("WRONG", format!("{fault}: {}", grouped(*count))));
    for fault in &report.first_faults {
        line("", format!("{} at {}: {}", fault.file, fault.offset, fault.fault));
    }
    if report.same_events {
        line("events", "the same in all sources".to_owned());
    }
    text.push_str(&source_table(report).to_string());
    text.push('\n');
    text
}

fn source_table(report: &ForeignReport) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header([
        "source",
        "frames",
        "shortest",
        "longest",
        "events",
        "first",
        "last",
        "missing",
        "repeated",
        "out of order",
        "restarts",
        "parts",
    ]);
    report.sources.iter().for_each(|source| _ = table.add_row(source_row(source)));
    for column in table.column_iter_mut().skip(1).take(10) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn source_row(source: &SourceReport) -> [String; 12] {
    let number = source.source.map(|number| number.to_string());
    let name: Vec<String> = source.peer.iter().cloned().chain(number).collect();
    // What counts is what shows where something is missing.
    let (first, last) = match source.counts {
        CountingReport::Frames => (source.first_sequence, source.last_sequence),
        _ => (source.first_event, source.last_event),
    };
    let known = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), grouped);
    let counted = |number: u64| if source.counts == CountingReport::Nothing { "-".to_owned() } else { grouped(number) };
    let parts = names_text(if source.parts.is_empty() { &source.kinds } else { &source.parts });
    [
        if name.is_empty() { "-".to_owned() } else { name.join(" #") },
        grouped(source.frames),
        grouped(source.least_bytes),
        grouped(source.most_bytes),
        grouped(source.events),
        known(first),
        known(last),
        counted(source.missing),
        counted(source.duplicates),
        counted(source.out_of_order),
        counted(source.restarts),
        parts,
    ]
}

/// The first few names with their counts, and how many more there are.
fn names_text(names: &BTreeMap<String, u64>) -> String {
    const MOST: usize = 4;
    let mut all: Vec<String> =
        names.iter().take(MOST).map(|(name, count)| format!("{name}: {}", grouped(*count))).collect();
    if names.len() > MOST {
        all.push(format!("{} more", names.len() - MOST));
    }
    all.join(", ")
}

pub(crate) fn sniff(options: &SniffOptions) -> Result<u8, Failure> {
    let (time, save) = (Duration::from_secs(options.seconds), options.save.as_deref());
    let environment = |error: std::io::Error| Failure::Environment(format!("{}: {error}", options.input));
    let whole = |findings| Sniffed { findings, cut_off: None, missed_bytes: 0 };
    let sniffed = if let Some(place) = options.input.strip_prefix("udp:") {
        let socket = UdpSocket::bind(address(place, &options.input)?).map_err(environment)?;
        ready("udp", socket.local_addr().map_err(environment)?);
        whole(sniff_datagrams(&socket, time, save)?)
    } else if let Some(place) = options.input.strip_prefix("tcp-listen:") {
        let listener = TcpListener::bind(address(place, &options.input)?).map_err(environment)?;
        ready("tcp", listener.local_addr().map_err(environment)?);
        whole(sniff_connections(&listener, time, save)?)
    } else if options.input.starts_with("tcp:") {
        let text = "sniff accepts connections with tcp-listen:PORT, and opens none; if the board listens, save its data \
                    with `nc BOARD PORT > board.raw`, and run `ropewalk sniff board.raw`";
        return Err(Failure::Usage(format!("{}: {text}", options.input)));
    } else {
        sniff_file(Path::new(&options.input))?
    };
    let naming = Naming { name: options.name.clone(), id: options.id };
    if options.json {
        print_json(&SniffReport::new(&sniffed, &options.input, &naming))?;
    } else {
        let mut text = findings_text(&sniffed.findings, &options.input, &naming);
        if sniffed.missed_bytes > 0 {
            text.push_str(&format!("MISSING: {} bytes of connections\n", grouped(sniffed.missed_bytes)));
        }
        text.extend(sniffed.cut_off.iter().map(|cut_off| format!("CUT OFF: {}\n", cut_off.why)));
        write_results(text.as_bytes());
    }
    if sniffed.findings.groups.is_empty() {
        tell!("{}", silence(&options.input));
    }
    let is_whole = sniffed.cut_off.is_none() && sniffed.missed_bytes == 0;
    Ok(if sniffed.findings.groups.is_empty() || !is_whole { exit::LOST } else { exit::GOOD })
}

/// What to check if no data came.
fn silence(input: &str) -> String {
    let place = match input.split_once(':') {
        Some(("udp" | "tcp-listen", place)) => place,
        _ => return format!("{input}: there are no frames in it"),
    };
    let port = place.rsplit(':').next().unwrap_or(place);
    format!(
        "no data arrived: does the board send to an address of this machine and to port {port}? Does a firewall drop it? \
         `tcpdump -ni any port {port}` shows what arrives; --seconds listens longer"
    )
}

/// `PORT`, at all interfaces, or `ADDRESS:PORT`.
fn address(place: &str, whole: &str) -> Result<std::net::SocketAddr, Failure> {
    let port = place.parse::<u16>().map(|port| std::net::SocketAddr::from(([0; 4], port)));
    port.or_else(|_| place.parse()).map_err(|_| {
        let examples = "udp:6006, udp:127.0.0.1:6006, tcp-listen:5000";
        Failure::Usage(format!("`{whole}` is not an address to listen at; valid ones are {examples}"))
    })
}

/// Prints the address: port 0 was replaced by a real one, which the sender needs.
fn ready(scheme: &str, local: std::net::SocketAddr) {
    say!("ready {scheme} {local}");
}

fn findings_text(findings: &Findings, input: &str, naming: &Naming) -> String {
    let drafts = drafts(&findings.groups, input, naming);
    let groups = findings.groups.iter().zip(&drafts).map(|(group, draft)| group_text(group, draft.as_deref()));
    let groups: Vec<String> = groups.collect();
    let mut text = groups.join("\n");
    if findings.unheard > 0 {
        let _ = writeln!(text, "\n{} packets of further peers were not looked at", grouped(findings.unheard));
    }
    text
}

fn group_text(group: &Group, draft: Option<&str>) -> String {
    let mut text = String::new();
    // A string takes everything.
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    let transport = group.peers.first().map_or(Transport::Udp, |account| account.peer.transport);
    let port = group.peers.first().map_or(0, |account| account.peer.port);
    let what = match transport {
        Transport::File => return file_text(group, draft),
        Transport::Tcp => "pieces",
        Transport::Udp => "datagrams",
    };
    line(format!("{} port {port}", if transport.is_stream() { "tcp" } else { "udp" }));
    for account in &group.peers {
        let (packets, bytes, rate) = (grouped(account.packets), grouped(account.bytes), account.rate());
        let (from, least, most) = (account.peer.from, account.least_bytes, account.most_bytes);
        line(format!("  {from}: {packets} {what}, {bytes} bytes, {least} to {most} each, {rate:.1} a second"));
        for shown in &account.shown {
            let hex: Vec<String> = shown.iter().take(32).map(|byte| format!("{byte:02x}")).collect();
            line(format!("    {}", hex.join(" ")));
        }
    }
    text + &frames_text(group, transport.is_stream(), draft)
}

fn file_text(group: &Group, draft: Option<&str>) -> String {
    let bytes = group.peers.iter().map(|account| account.bytes).sum();
    format!("file, of which {} bytes were looked at\n{}", grouped(bytes), frames_text(group, true, draft))
}

/// What frames were found, what they may mean, and the draft.
fn frames_text(group: &Group, is_stream: bool, draft: Option<&str>) -> String {
    let mut text = String::new();
    // A string takes everything.
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    if is_stream && group.framing.is_none() {
        line(
            "  no frames were found: describe `frame` by hand (docs/layouts.md) and check it with `source test`"
                .to_owned(),
        );
    } else {
        let (frames, least, most) = (grouped(group.frames), group.least_frame, group.most_frame);
        let rest = match group.unframed_bytes {
            _ if !is_stream => String::new(),
            0 => ", to the last byte".to_owned(),
            bytes => format!("; {} bytes belong to none", grouped(bytes)),
        };
        line(format!("  looked at {frames} frames of {least} to {most} bytes{rest}"));
    }
    group.guesses.iter().for_each(|guess| line(format!("  {guess}")));
    group.notes.iter().for_each(|note| line(format!("  {note}")));
    group.doubts.iter().for_each(|doubt| line(format!("  NOT CERTAIN: {doubt}")));
    if let Some(draft) = draft {
        line(format!("\n# A draft, to be tried with `ropewalk source test`\n{}", draft.trim_end()));
    }
    text
}
