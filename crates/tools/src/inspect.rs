//! A segment in readable form: header, sources, records; or one event whole, its front ends' headers decoded; or the
//! slow readings of a run, in the order of their times.

use super::{Footer, Found, OfflineError, SegmentFile, SegmentReader, SegmentScan, segment_files};
use ropewalk_terms::{EventKey, SourceId, Utc};
use ropewalk_wire::fed;
use ropewalk_wire::run_file::{
    BeginOfRun, ClockDomain, Damage, EndOfRun, EventFlags, EventView, FooterView, FragmentFlags, FragmentView,
    IndexEntry, MissingSource, Record, RecordKind, SegmentHeader, SlowReading, SourceEntry, SourceFormat,
};
use std::io::Write;
use std::path::Path;

/// What is shown.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct InspectOptions {
    /// This event whole, every copy of it, and nothing else.
    pub event: Option<EventKey>,
    /// At most this many records, of all files together.
    pub records: u64,
    /// At most this many bytes of each fragment of an event that is shown whole.
    pub payload_bytes: usize,
}

impl Default for InspectOptions {
    fn default() -> Self {
        Self { event: None, records: 20, payload_bytes: 256 }
    }
}

/// Shows a segment, or the segments of a directory.
///
/// # Errors
/// If there is no segment, a file cannot be read, the event is nowhere, or `out` takes nothing.
pub fn inspect(place: &Path, options: &InspectOptions, out: &mut dyn Write) -> Result<(), OfflineError> {
    let mut files = segment_files(&[place])?;
    if let Some(key) = options.event {
        return show_event(&files, key, options, out);
    }
    // Files without an event, such as that of the stream `error` of most runs, come last.
    files.sort_by_key(|file| matches!(Footer::count_events(&file.path), Ok(Some(0))));
    let mut left = options.records;
    for file in &files {
        show_segment(file, &mut left, out)?;
    }
    Ok(())
}

fn show_segment(file: &SegmentFile, left: &mut u64, out: &mut dyn Write) -> Result<(), OfflineError> {
    let mut reader = SegmentReader::open(&file.path)?;
    let closed = match (Footer::read(&file.path)?, file.open) {
        (Some(footer), _) => format!("{} events, closed{}", footer.events.len(), closing_time(&footer)),
        (None, true) => "not closed".to_owned(),
        (None, false) => "no index at its end; `ropewalk recover` writes one".to_owned(),
    };
    writeln!(out, "{}: {closed}", file.path.display())?;
    match reader.header() {
        Some(header) => show_header(header, out)?,
        None => writeln!(out, "  no readable header")?,
    }
    while *left > 0 {
        match reader.advance()? {
            None => return Ok(writeln!(out)?),
            Some(Found::Damaged { offset, bytes, damage }) => {
                writeln!(out, "{offset:>12}  {bytes:>10} B  damaged: {}", damage_text(damage))?;
            }
            Some(Found::Record { offset }) => {
                if let Some(record) = reader.record() {
                    let (bytes, kind) = (record.length(), record.kind());
                    writeln!(out, "{offset:>12}  {bytes:>10} B  {}", record_text(kind, &record))?;
                }
            }
        }
        *left -= 1;
    }
    if reader.advance()?.is_some() {
        writeln!(out, "              ... more records follow: --records shows more of them")?;
    }
    Ok(writeln!(out)?)
}

fn closing_time(footer: &Footer) -> String {
    match (footer.closed.0, footer.rebuilt) {
        (0, true) => " by recovery".to_owned(),
        (0, false) => String::new(),
        _ => format!(" {}", utc_text(footer.closed)),
    }
}

fn show_header(header: &SegmentHeader, out: &mut dyn Write) -> Result<(), OfflineError> {
    writeln!(
        out,
        "  run {}, segment {}, version 1.{}, written by {} (incarnation {}), acknowledged when {}",
        header.run,
        header.segment,
        header.minor,
        header.writer,
        header.incarnation,
        header.acknowledgement.name()
    )?;
    if !header.stream.is_unnamed() {
        let selected = if header.selected { ", a selection of the events" } else { "" };
        writeln!(out, "  stream {}{selected}", header.stream)?;
    }
    writeln!(out, "  opened {}", utc_text(header.start))?;
    for source in &header.sources {
        writeln!(out, "  source {:>10}  {:<8} {}", source.id, source.format.name(), source.name)?;
    }
    Ok(())
}

const fn damage_text(damage: Damage) -> &'static str {
    match damage {
        Damage::Checksum => "a record with a wrong checksum",
        Damage::Cut => "a record that was cut: the writer stopped here",
        Damage::NoHeader => "no record can be read here",
    }
}

/// One line about a record.
fn record_text(kind: RecordKind, record: &Record<'_>) -> String {
    let details = match kind {
        RecordKind::BEGIN_OF_RUN => BeginOfRun::decode(record).map(|begin| {
            format!("run {} at {}, {} B of configuration", begin.run, utc_text(begin.start), begin.text.len())
        }),
        RecordKind::END_OF_RUN => EndOfRun::decode(record).map(|end| {
            let last = end.last.map_or_else(|| "none".to_owned(), |last| last.to_string());
            format!("run {} at {}, last event {last}, {} events written", end.run, utc_text(end.end), end.events)
        }),
        RecordKind::EVENT => EventView::parse(record).map(|event| event_text(&event)),
        RecordKind::SLOW_CONTROL => SlowReading::decode(record).map(|reading| {
            let SlowReading { source, time, value, name, unit } = reading;
            format!("source {source} at {}: {name} = {value} {unit}", utc_text(time))
        }),
        RecordKind::FOOTER => FooterView::parse(record).map(|footer| format!("{} events", footer.entries().len())),
        _ => Ok(String::new()),
    };
    match details {
        Ok(details) if details.is_empty() => format!("{} (kind {})", kind.name(), kind.0),
        Ok(details) => format!("{:<14}  {details}", kind.name()),
        Err(error) => format!("{:<14}  {error}", kind.name()),
    }
}

fn event_text(event: &EventView<'_>) -> String {
    let (head, fragments) = (event.head(), event.fragments().len());
    let missing: Vec<String> = event.missing().take(4).map(missing_text).collect();
    let more = if event.missing().len() > missing.len() { ", ..." } else { "" };
    let missing = if missing.is_empty() { String::new() } else { format!(", missing {}{more}", missing.join(", ")) };
    let (attempt, bytes) = (head.attempt, event.payload_bytes());
    format!("{}, attempt {attempt}, {fragments} fragments, {bytes} B{missing}{}", head.key, flag_text(head.flags))
}

fn missing_text(missing: MissingSource) -> String {
    match missing.cause() {
        Some(cause) => format!("{} ({cause})", missing.source),
        None => format!("{} (cause {})", missing.source, missing.cause),
    }
}

fn flag_text(flags: EventFlags) -> String {
    let names = [
        (EventFlags::INCOMPLETE, ", incomplete"),
        (EventFlags::DOUBTFUL, ", doubtful"),
        (EventFlags::QUARANTINED, ", quarantined"),
    ];
    names.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| *name).collect()
}

/// Shows every copy of an event whole.
fn show_event(
    files: &[SegmentFile],
    key: EventKey,
    options: &InspectOptions,
    out: &mut dyn Write,
) -> Result<(), OfflineError> {
    let mut shown = false;
    for file in files {
        for entry in copies_of(key, file)? {
            let mut reader = SegmentReader::open(&file.path)?;
            reader.seek(entry.offset)?;
            reader.advance()?;
            let event = reader.record().and_then(|record| EventView::parse(&record).ok());
            let Some(event) = event.filter(|event| event.key() == key) else {
                writeln!(out, "event {key} at {} of {}: damaged\n", entry.offset, file.path.display())?;
                continue;
            };
            let sources = reader.header().map_or(&[][..], |header| &header.sources);
            writeln!(out, "event {} at {} of {}", event_text(&event), entry.offset, file.path.display())?;
            show_whole(&event, sources, options, out)?;
            shown = true;
        }
    }
    if shown { Ok(()) } else { Err(OfflineError::NoSuchEvent { key }) }
}

/// The place of the event in a segment: from the index at its end, or, without an index, by reading all of it.
fn copies_of(key: EventKey, file: &SegmentFile) -> Result<Vec<IndexEntry>, OfflineError> {
    let mut events = match Footer::read(&file.path)? {
        Some(footer) => footer.events,
        None => SegmentScan::of(&file.path)?.events,
    };
    events.retain(|entry| entry.key == key);
    Ok(events)
}

fn show_whole(
    event: &EventView<'_>,
    sources: &[SourceEntry],
    options: &InspectOptions,
    out: &mut dyn Write,
) -> Result<(), OfflineError> {
    let head = event.head();
    writeln!(out, "  incarnation {}, trigger type {}", head.incarnation, head.trigger_type)?;
    for missing in event.missing() {
        writeln!(out, "  missing source {}", missing_text(missing))?;
    }
    for fragment in event.fragments() {
        let source = sources.iter().find(|source| source.id == fragment.entry.source);
        show_fragment(&fragment, source, out)?;
        show_bytes(fragment.payload, options.payload_bytes, out)?;
    }
    Ok(writeln!(out)?)
}

fn show_fragment(
    fragment: &FragmentView<'_>,
    source: Option<&SourceEntry>,
    out: &mut dyn Write,
) -> Result<(), OfflineError> {
    let entry = &fragment.entry;
    let (id, length, raw_id) = (entry.source, entry.length, entry.raw_id);
    let name = source.map_or_else(|| "not in the source table".to_owned(), |source| source.name.clone());
    writeln!(
        out,
        "  source {id} ({name}): {length} B, number {raw_id} in its frame (raw id){}",
        fragment_flag_text(entry.flags)
    )?;
    if entry.flags.contains(FragmentFlags::HAS_BUNCH_CROSSING) {
        writeln!(out, "    bunch crossing {}, trigger type {}", entry.bunch_crossing, entry.trigger_type)?;
    }
    // A clock without a relation to civil time has the same value twice.
    if entry.flags.contains(FragmentFlags::HAS_TIME) && entry.raw_time.cast_signed() != entry.time {
        writeln!(out, "    clock in its frame (raw time) {}", entry.raw_time)?;
    }
    match entry.clock {
        ClockDomain::NONE => {}
        ClockDomain::UTC => writeln!(out, "    time {}", utc_text(ropewalk_terms::Utc(entry.time)))?,
        clock => writeln!(out, "    time {} ns in clock domain {}", entry.time, clock.0)?,
    }
    if source.is_some_and(|source| source.format == SourceFormat::FED) {
        writeln!(out, "    {}", fed_text(entry.source, fragment.payload))?;
    }
    Ok(())
}

fn fragment_flag_text(flags: FragmentFlags) -> String {
    flags.texts().map(|text| format!(", {text}")).collect()
}

/// The fields of a FED header and trailer, and whether the CRC holds now.
fn fed_text(source: SourceId, payload: &[u8]) -> String {
    let fragment = match fed::Fragment::parse(payload) {
        Ok(fragment) => fragment,
        Err(error) => return format!("FED: {error}"),
    };
    let (header, trailer) = (fragment.header(), fragment.trailer());
    let crc = if fragment.check_crc().is_ok() { "good" } else { "bad" };
    let other = if header.source() == source { String::new() } else { format!(" (of source {})", header.source()) };
    format!(
        "FED{other}: L1 id {}, BX {}, event type {}, version {}; {} words, CRC {:04x} {crc}, status {}, TTS {}",
        header.level1_id(),
        header.bunch_crossing(),
        header.event_type(),
        header.version(),
        trailer.length_in_words(),
        trailer.crc(),
        trailer.status(),
        trailer.tts()
    )
}

fn show_bytes(bytes: &[u8], most: usize, out: &mut dyn Write) -> Result<(), OfflineError> {
    for (line, row) in bytes[..bytes.len().min(most)].chunks(16).enumerate() {
        let hex: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(out, "    {:>6x}  {}", 16 * line, hex.join(" "))?;
    }
    if bytes.len() > most {
        writeln!(out, "            ... {} more bytes", bytes.len() - most)?;
    }
    Ok(())
}

/// Every slow reading in these directories or files, by time, and the sources of the first segment that names them.
///
/// # Errors
/// If there is no segment, or a file cannot be read. Damaged bytes are stepped over.
pub fn readings<P: AsRef<Path>>(places: &[P]) -> Result<(Vec<SlowReading>, Vec<SourceEntry>), OfflineError> {
    let (mut readings, mut sources) = (Vec::new(), Vec::new());
    for file in segment_files(places)? {
        let mut reader = SegmentReader::open(&file.path)?;
        if let Some(header) = reader.header().filter(|_| sources.is_empty()) {
            sources.clone_from(&header.sources);
        }
        while let Some(found) = reader.advance()? {
            let record = reader.record().filter(|_| matches!(found, Found::Record { .. }));
            let record = record.filter(|record| record.kind() == RecordKind::SLOW_CONTROL);
            readings.extend(record.and_then(|record| SlowReading::decode(&record).ok()));
        }
    }
    readings.sort_by_key(|reading| reading.time);
    Ok((readings, sources))
}

/// Shows them, one a line.
///
/// # Errors
/// As [`readings`], and if `out` takes nothing.
pub fn show_readings(place: &Path, out: &mut dyn Write) -> Result<(), OfflineError> {
    let (readings, sources) = readings(&[place])?;
    for reading in &readings {
        let name = sources.iter().find(|source| source.id == reading.source).map_or("", |source| &source.name);
        let SlowReading { source, time, value, name: what, unit } = reading;
        writeln!(out, "{}  {source:>10} {name:<16} {what:<24} {value} {unit}", utc_text(*time))?;
    }
    Ok(writeln!(out, "{} slow readings", readings.len())?)
}

const NANOSECONDS: i64 = 1_000_000_000;
const SECONDS_OF_A_DAY: i64 = 24 * 60 * 60;

/// The time as `2026-11-21T07:10:00.000000000Z`.
pub(super) fn utc_text(time: Utc) -> String {
    let (seconds, nanoseconds) = (time.0.div_euclid(NANOSECONDS), time.0.rem_euclid(NANOSECONDS));
    let (days, of_day) = (seconds.div_euclid(SECONDS_OF_A_DAY), seconds.rem_euclid(SECONDS_OF_A_DAY));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z")
}

/// Year, month and day of a day counted from 1970-01-01; 64-bit nanoseconds reach from 1677 to 2262, so that
/// walking over years is quick enough.
fn date(mut days: i64) -> (i64, usize, i64) {
    let mut year = 1970;
    while days < 0 {
        year -= 1;
        days += length_of(year);
    }
    while days >= length_of(year) {
        days -= length_of(year);
        year += 1;
    }
    let february = length_of(year) - 337;
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= months[month] {
        days -= months[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

/// Days of a year.
const fn length_of(year: i64) -> i64 {
    if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) { 366 } else { 365 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (nanoseconds, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (951_825_599_000_000_001, "2000-02-29T11:59:59.000000001Z"),
            (1_700_000_000_123_456_789, "2023-11-14T22:13:20.123456789Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00.000000000Z"),
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
        ] {
            assert_eq!(utc_text(Utc(nanoseconds)), text);
        }
    }
}
