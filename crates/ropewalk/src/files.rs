//! Commands over run files: verify, inspect, recover, convert.

use crate::arguments::{
    ConvertOptions, ConvertTo, InspectOptions, RecoverOptions, ReplayOptions, Speed, VerifyOptions,
};
use crate::exit::{self, Failure};
use crate::foreign::{self, is_meant};
use crate::output::{print_json, write_results};
use crate::render::{counted, faulty_lines, grouped, unless_closed};
use crate::running::{Limits, take_run};
use ropewalk_config::fields::Fields;
use ropewalk_config::written_version;
use ropewalk_run::Registry;
use ropewalk_run::session::{AfterRun, Launcher, Patience};
use ropewalk_terms::SourceId;
use ropewalk_tools::export::{ExportFormat, Exported, FrdOptions, RunFiles, export};
use ropewalk_tools::foreign::{Converted, Recorded, of_recordings};
use ropewalk_tools::{RecoverAction, segment_files};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn verify(options: &VerifyOptions) -> Result<u8, Failure> {
    if foreign::is_meant(&options.directories, options.format.as_ref())? {
        return foreign::verify(options);
    }
    let report = ropewalk_tools::verify(&options.directories)?;
    if options.json {
        print_json(&report)?;
    } else {
        say!("events          {}", grouped(report.events));
        say!("fragments       {}", grouped(report.fragments));
        say!("payload         {} bytes", grouped(report.payload_bytes));
        say!("sha256          {}", report.payload_sha256);
        say!("checksum errors {}", grouped(report.crc_errors));
        // With streams that select, keys without an event are expected.
        say!("{:<15} {}", if report.selected { "not selected" } else { "missing keys" }, grouped(report.gaps));
        say!("second copies   {}", grouped(report.duplicates));
        say!("incomplete      {}", grouped(report.incomplete));
        say!("doubtful        {}", grouped(report.doubtful));
        for (name, count) in &report.flagged {
            let name = if *name == "crc_errors" { "wrong checksum on arrival" } else { &name.replace('_', " ") };
            say!("  {name}: {} {}", grouped(*count), if *count == 1 { "fragment" } else { "fragments" });
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
        let further = report.faulty - report.first_faulty.len() as u64;
        faulty_lines(&report.first_faulty, Some(further)).iter().for_each(|line| say!("{line}"));
        for stream in &report.streams {
            let (events, duplicates) = (grouped(stream.events), grouped(stream.duplicates));
            say!("stream {}: {events} events, {duplicates} second copies", stream.name);
        }
    }
    if report.unfinished_segments > 0 {
        for directory in options.directories.iter().filter(|directory| has_unfinished(directory)) {
            tell!(
                "advice: after the end of the run, `ropewalk recover {}` closes unfinished files",
                directory.display()
            );
        }
    }
    Ok(exit::with_reasons(&report.status))
}

/// Whether a run file in this directory was not closed.
fn has_unfinished(directory: &Path) -> bool {
    let is_open = |entry: std::fs::DirEntry| entry.path().extension().is_some_and(|extension| extension == "open");
    std::fs::read_dir(directory).is_ok_and(|entries| entries.flatten().any(is_open))
}

pub(crate) fn inspect(options: &InspectOptions) -> Result<u8, Failure> {
    if foreign::is_meant(&[&options.path], options.format.as_ref())? {
        return foreign::inspect(options);
    }
    ropewalk_tools::segment_files(&[&options.path])?;
    if options.json || options.record.is_some() {
        let text =
            "--record and --json are for files of other formats; a run file has --event KEY, and `verify --json`";
        return Err(Failure::Usage(text.to_owned()));
    }
    let mut out = std::io::stdout().lock();
    if options.readings {
        return unless_closed(ropewalk_tools::show_readings(&options.path, &mut out));
    }
    let wanted = ropewalk_tools::InspectOptions {
        event: options.event,
        records: options.records,
        ..ropewalk_tools::InspectOptions::default()
    };
    unless_closed(ropewalk_tools::inspect(&options.path, &wanted, &mut out))
}

pub(crate) fn replay(options: &ReplayOptions) -> Result<u8, Failure> {
    if options.to.contains("://") {
        return foreign::replay(options);
    }
    let is_of_files = options.port.is_some() || options.format.is_some() || options.by.is_some();
    if matches!(options.speed, Speed::Hertz(_)) || is_of_files {
        let text = "a rate, --port, --format and --by are for captures and files of other formats: --to udp://... or tcp://...";
        return Err(Failure::Usage(text.to_owned()));
    }
    let wanted = ropewalk_tools::ReplayOptions {
        sources: options.sources.iter().copied().map(SourceId).collect(),
        in_time: options.speed == Speed::Recorded,
        times: u64::from(!options.repeat),
    };
    let sent = ropewalk_tools::replay(&options.directories, &wanted, |_| TcpStream::connect(&options.to))?;
    let (events, fragments, bytes) = (grouped(sent.events), grouped(sent.fragments), grouped(sent.bytes));
    say!("sent {events} events, {fragments} fragments, {bytes} bytes");
    Ok(exit::with_reasons(&sent.status))
}

pub(crate) fn recover(options: &RecoverOptions) -> Result<u8, Failure> {
    let report = ropewalk_tools::recover(&options.directory)?;
    if options.json {
        print_json(&report)?;
    } else {
        match report.untouched as usize {
            0 if report.segments.is_empty() => {
                say!("nothing to do: no run files in {}", options.directory.display())
            }
            untouched => say!("already closed: {}", counted(untouched, "file")),
        }
        for segment in &report.segments {
            let last = segment.last_key.as_deref().unwrap_or("none");
            let lost = segment.cut_bytes + segment.damaged_bytes;
            let what = match segment.action {
                RecoverAction::InUse => {
                    say!("{}: in use by a running builder unit: not closed", segment.file);
                    continue;
                }
                RecoverAction::Closed => "closed",
                RecoverAction::Rebuilt => "rebuilt",
                RecoverAction::Finished => "earlier recovery finished",
                RecoverAction::Empty => "empty",
                RecoverAction::Conflict => "a closed file of this name has other events: left alone",
            };
            say!("{}: {what}, {} events, last key {last}, {lost} bytes lost", segment.file, segment.events);
        }
    }
    Ok(exit::GOOD)
}

pub(crate) fn convert(options: &ConvertOptions) -> Result<u8, Failure> {
    match (&options.by, options.to) {
        (Some(config), _) => convert_by(options, config),
        (None, ConvertTo::Run) => to_run(options),
        (None, ConvertTo::Frd) => {
            let files = options.file_events.zip(options.lumisection_events);
            let files = files.map(|(events, lumisection_events)| RunFiles { events, lumisection_events });
            let version = written_version(options.frd_version).ok_or_else(|| {
                Failure::Usage("--frd-version: FRD events are written in version 3, 4 or 5".to_owned())
            })?;
            from_run(options, ExportFormat::Frd(FrdOptions { version, files }))
        }
        (None, ConvertTo::Mdf) => from_run(options, ExportFormat::Mdf),
        (None, ConvertTo::Raw) => from_run(options, ExportFormat::Raw),
    }
}

/// Makes a run directory of the files; creates none if it fails before anything is written.
fn to_run(options: &ConvertOptions) -> Result<u8, Failure> {
    let to = &options.output;
    if options.from.is_none() && segment_files(&options.files).is_ok() && !is_meant(&options.files, None)? {
        let advice = "these are run files already: --to frd, mdf or raw makes other files of them";
        return Err(Failure::Usage(advice.to_owned()));
    }
    let failed = |error| Failure::Environment(format!("{}: cannot make a run directory here: {error}", to.display()));
    let run = Registry::open(to).and_then(|registry| registry.next_run()).map_err(failed)?;
    let format = options.from.map(|name| name.0);
    let converted = ropewalk_tools::foreign::convert(&options.files, format, &run.path, run.run);
    let converted = converted.inspect_err(|_| {
        // What holds something stays.
        let _ = std::fs::remove_dir(&run.path);
    })?;
    write_results(converted_text(&converted, &run.path).as_bytes());
    Ok(exit::with_reasons(&converted.status()))
}

/// Takes a run of what was recorded of a configuration's sources.
fn convert_by(options: &ConvertOptions, config: &Path) -> Result<u8, Failure> {
    let Recorded { mut configuration, left_out } =
        of_recordings(&ropewalk_config::read_pull(config)?, &options.files, &options.source)?;
    for name in left_out {
        tell!("warning: {name} is left out: nothing in the configuration describes its frames");
    }
    configuration.run.output.clone_from(&options.output);
    // All of the recordings, without the limits of the recorded runs.
    let run = &mut configuration.run;
    (run.duration, run.events, run.bytes, run.then) = (None, None, None, None);
    run.until_sources_end = true;
    let (fields, after_run) = (Fields::default(), AfterRun::Over);
    take_run(
        Arc::new(Launcher::new(configuration)),
        &Limits { fields, json: false, after_run, is_single: false, patience: Patience::Unlimited, control: None },
    )
}

/// Makes files of another format of a run.
fn from_run(options: &ConvertOptions, format: ExportFormat) -> Result<u8, Failure> {
    let is_foreign = is_meant(&options.files, options.from.as_ref())?;
    if is_foreign {
        let advice =
            "only run files become files of another format: make a run of these first (--to run), then convert that";
        return Err(Failure::Usage(advice.to_owned()));
    }
    let to = &options.output;
    let failed = |error| Failure::Environment(format!("{}: cannot make the directory: {error}", to.display()));
    std::fs::create_dir_all(to).map_err(failed)?;
    let exported = export(&options.files, format, to)?;
    write_results(exported_text(&exported).as_bytes());
    Ok(exit::with_reasons(&exported.status))
}

fn converted_text(converted: &Converted, directory: &Path) -> String {
    let doubts = converted.doubts.iter().map(|(name, count)| (*name, *count));
    let mut text = format!(
        "format     {}\nframes     {}\nevents     {}\nfragments  {}, {} bytes, of {} sources\n",
        converted.format,
        grouped(converted.frames),
        grouped(converted.events),
        grouped(converted.fragments),
        grouped(converted.bytes),
        converted.sources.len()
    );
    for (name, count) in [
        ("incomplete", converted.incomplete),
        ("duplicates", converted.duplicates),
        ("left out", converted.left_out),
        ("skipped", converted.skipped_bytes),
        ("wrong checksums", converted.wrong_checksums),
        ("missed bytes", converted.missed_bytes),
        ("unreadable", converted.unreadable_packets),
        ("undivided", converted.undivided),
    ]
    .into_iter()
    .chain(doubts)
    {
        if count > 0 {
            text.push_str(&format!("{name:<10} {}\n", grouped(count)));
        }
    }
    for (path, cut_off) in &converted.cut_off {
        text.push_str(&format!("CUT OFF    {}: {}\n", path.display(), cut_off.why));
    }
    text + &format!("files      {}\n", directory.display())
}

fn exported_text(exported: &Exported) -> String {
    let (events, fragments) = (grouped(exported.events), grouped(exported.fragments));
    let bytes = grouped(exported.fragment_bytes);
    let mut text = format!("events     {events}\nfragments  {fragments}, {bytes} bytes\n");
    if exported.wrong_checksums > 0 {
        text.push_str(&format!("wrong checksums {}\n", grouped(exported.wrong_checksums)));
    }
    for (what, count) in &exported.not_carried {
        text.push_str(&format!("not carried: {what}, of {} events\n", grouped(*count)));
    }
    match exported.files.as_slice() {
        // They lie side by side.
        [first, _, ..] => {
            let (count, directory) = (grouped(exported.files.len() as u64), first.parent().unwrap_or(first));
            text + &format!("files      {count} in {}\n", directory.display())
        }
        few => few.iter().fold(text, |text, file| text + &format!("file       {}\n", file.display())),
    }
}
