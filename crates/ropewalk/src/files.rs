//! Commands on run files, and on files of other formats.

use crate::arguments::{InspectOptions, RecoverOptions, ReplayOptions, Speed, VerifyOptions};
use crate::exit::{self, Failure};
use crate::foreign;
use crate::output::print_json;
use crate::render::grouped;
use ropewalk_node::offline;
use ropewalk_terms::SourceId;
use std::net::TcpStream;

pub(crate) fn verify(options: &VerifyOptions) -> Result<u8, Failure> {
    if foreign::is_meant(&options.directories, options.format.as_ref())? {
        return foreign::verify(options);
    }
    let report = offline::verify(&options.directories)?;
    if options.json {
        print_json(&report)?;
    } else {
        say!("events          {}", grouped(report.events));
        say!("fragments       {}", grouped(report.fragments));
        say!("payload         {} bytes", grouped(report.payload_bytes));
        say!("sha256          {}", report.payload_sha256);
        say!("checksum errors {}", grouped(report.crc_errors));
        say!("missing keys    {}", grouped(report.gaps));
        say!("second copies   {}", grouped(report.duplicates));
        say!("incomplete      {}", grouped(report.incomplete));
        say!("doubtful        {}", grouped(report.doubtful));
        for (name, count) in &report.flagged {
            say!("  {}: {} fragments", name.replace('_', " "), grouped(*count));
        }
        for (name, count) in [
            ("quarantined", report.quarantined),
            ("malformed", report.malformed),
            ("damaged bytes", report.damaged_bytes),
            ("wrong footers", report.wrong_footers),
            ("unfinished files", report.unfinished_segments),
        ] {
            if count > 0 {
                say!("{name:<15} {}", grouped(count));
            }
        }
        for stream in &report.streams {
            let (events, duplicates) = (grouped(stream.events), grouped(stream.duplicates));
            say!("stream {}: {events} events, {duplicates} second copies", stream.name);
        }
    }
    Ok(exit::with_reasons(&report.status))
}

pub(crate) fn inspect(options: &InspectOptions) -> Result<u8, Failure> {
    if foreign::is_meant(&[&options.path], options.format.as_ref())? {
        return foreign::inspect(options);
    }
    offline::segment_files(&[&options.path])?;
    if options.json || options.record.is_some() {
        let text =
            "--record and --json are for files of other formats; a run file has --event KEY, and `verify --json`";
        return Err(Failure::Usage(text.to_owned()));
    }
    let mut out = std::io::stdout().lock();
    if options.readings {
        offline::show_readings(&options.path, &mut out)?;
        return Ok(exit::GOOD);
    }
    let wanted = offline::InspectOptions {
        event: options.event,
        records: options.records,
        ..offline::InspectOptions::default()
    };
    offline::inspect(&options.path, &wanted, &mut out)?;
    Ok(exit::GOOD)
}

pub(crate) fn replay(options: &ReplayOptions) -> Result<u8, Failure> {
    if options.to.contains("://") {
        return foreign::replay(options);
    }
    if matches!(options.speed, Speed::Hertz(_)) || options.port.is_some() || options.format.is_some() {
        let text =
            "a rate, --port and --format are for captures and files of other formats: --to udp://... or tcp://...";
        return Err(Failure::Usage(text.to_owned()));
    }
    let wanted = offline::ReplayOptions {
        sources: options.sources.iter().copied().map(SourceId).collect(),
        in_time: options.speed == Speed::Recorded,
        times: u64::from(!options.repeat),
    };
    let sent = offline::replay(&options.directories, &wanted, |_| TcpStream::connect(&options.to))?;
    let (events, fragments, bytes) = (grouped(sent.events), grouped(sent.fragments), grouped(sent.bytes));
    say!("sent {events} events, {fragments} fragments, {bytes} bytes");
    Ok(exit::with_reasons(&sent.status))
}

pub(crate) fn recover(options: &RecoverOptions) -> Result<u8, Failure> {
    let report = offline::recover(&options.directory)?;
    if options.json {
        print_json(&report)?;
    } else {
        match report.untouched as usize {
            0 if report.segments.is_empty() => {
                say!("nothing to do: no run files in {}", options.directory.display())
            }
            untouched => say!("{} whole and closed before", counted(untouched, "file")),
        }
        for segment in &report.segments {
            let last = segment.last_key.as_deref().unwrap_or("none");
            let lost = segment.cut_bytes + segment.damaged_bytes;
            let what = format!("{:?}", segment.action).to_lowercase();
            say!("{}: {what}, {} events, last key {last}, {lost} bytes lost", segment.file, segment.events);
        }
    }
    Ok(exit::GOOD)
}

/// `1 source`, `2 sources`.
pub(crate) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
