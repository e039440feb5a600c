//! Slow readings of a run, in the order of their times.

use super::utc::utc_text;
use super::{Found, OfflineError, SegmentReader, segment_files};
use ropewalk_wire::run_file::{RecordKind, SlowReading, SourceEntry};
use std::io::Write;
use std::path::Path;

/// Every slow reading in these directories or files, by time, and the sources of the first segment that names them.
///
/// # Errors
/// Where there is no segment, or a file cannot be read. Damaged bytes are stepped over.
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
/// As [`readings`], and where `out` takes nothing.
pub fn show_readings(place: &Path, out: &mut dyn Write) -> Result<(), OfflineError> {
    let (readings, sources) = readings(&[place])?;
    for reading in &readings {
        let name = sources.iter().find(|source| source.id == reading.source).map_or("", |source| &source.name);
        let SlowReading { source, time, value, name: what, unit } = reading;
        writeln!(out, "{}  {source:>10} {name:<16} {what:<24} {value} {unit}", utc_text(*time))?;
    }
    Ok(writeln!(out, "{} slow readings", readings.len())?)
}
