//! Sends recorded fragments again, as their front ends sent them.
//!
//! ```text
//! run files -> events in the order of their keys -> each source's own connection: FEROL blocks, generic fragments
//! ```
//! Events are sent one by one, so that no source is ever more than one event ahead of another: a readout unit that
//! makes one of them wait can always read the rest, and memory holds one fragment.

use super::{OfflineError, RunIndex};
use crate::status::StatusSummary;
use ropewalk_terms::{Asked, SourceId};
use ropewalk_wire::run_file::{FragmentFlags, FragmentView, SourceEntry, SourceFormat};
use ropewalk_wire::{fed, ferol, generic};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// How a run is played.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// Only these sources; all of the run if empty.
    pub sources: Vec<SourceId>,
    /// Events lie as far apart as their recorded times say; otherwise they follow each other at once.
    pub in_time: bool,
    /// The number of times that the run is played; event numbers continue from one time to the next. 0: without end.
    pub times: u64,
}

/// What was sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// Events.
    pub events: u64,
    /// Their fragments.
    pub fragments: u64,
    /// Bytes of these, framing not counted.
    pub bytes: u64,
    /// The exit status, and why: what of the files could not be read.
    pub status: StatusSummary,
}

/// Sends the fragments of the run in these directories or files; `connect` opens the line of each source.
///
/// # Errors
/// If files cannot be read, a line cannot be opened or breaks, a source that was asked for is not in the run, or
/// times are asked for and none were recorded.
pub fn replay<P: AsRef<Path>, W: Write>(
    places: &[P],
    options: &ReplayOptions,
    mut connect: impl FnMut(SourceId) -> io::Result<W>,
) -> Result<Replayed, OfflineError> {
    let index = RunIndex::build(places)?;
    let mut lines = open_lines(&index.sources(), options, &mut connect)?;
    let status = StatusSummary::of(&index.facts(), Asked::Taken);
    let mut sent = Replayed { status, ..Replayed::default() };
    let keys = || index.events().map(|copy| copy.entry.key.number());
    let (Some(first), Some(last)) = (keys().min(), keys().max()) else { return Ok(sent) };
    let mut time = 0;
    while options.times == 0 || time < options.times {
        let ahead = time * (last - first + 1);
        let mut reader = index.reader();
        let mut pace = options.in_time.then(Pace::default);
        while let Some(found) = reader.next_event()? {
            if let Some(pace) = &mut pace {
                pace.wait(found.event.fragments())?;
            }
            for fragment in found.event.fragments() {
                let Some(line) = lines.get_mut(&fragment.entry.source) else { continue };
                line.send(&fragment, ahead)?;
                sent.fragments += 1;
                sent.bytes += fragment.payload.len() as u64;
            }
            sent.events += 1;
        }
        time += 1;
    }
    Ok(sent)
}

fn open_lines<W: Write>(
    known: &[SourceEntry],
    options: &ReplayOptions,
    connect: &mut impl FnMut(SourceId) -> io::Result<W>,
) -> Result<BTreeMap<SourceId, Line<W>>, OfflineError> {
    if let Some(&source) = options.sources.iter().find(|&&asked| known.iter().all(|one| one.id != asked)) {
        let known = known.iter().map(|one| one.id.to_string()).collect::<Vec<_>>().join(", ");
        return Err(OfflineError::NoSuchSource { source_id: source, known });
    }
    let fragments = known.iter().filter(|one| one.format.is_of_a_source());
    let played = fragments.filter(|one| options.sources.is_empty() || options.sources.contains(&one.id));
    played.map(|source| Ok((source.id, Line::open(source, connect)?))).collect()
}

/// Whether fragments are played as generic ones: chunks too, for no connection carries them otherwise.
fn is_generic(format: SourceFormat) -> bool {
    matches!(format, SourceFormat::GENERIC | SourceFormat::CHUNK)
}

/// One source's connection.
struct Line<W> {
    source: SourceId,
    format: SourceFormat,
    stream: W,
    bytes: Vec<u8>,
    fragment: Vec<u8>,
}

impl<W: Write> Line<W> {
    fn open(source: &SourceEntry, connect: &mut impl FnMut(SourceId) -> io::Result<W>) -> Result<Self, OfflineError> {
        let stream = connect(source.id).map_err(|error| OfflineError::Line { source_id: source.id, error })?;
        let mut line =
            Self { source: source.id, format: source.format, stream, bytes: Vec::new(), fragment: Vec::new() };
        if is_generic(source.format) {
            // A name that is too long for a hello is for people, and not needed.
            let hello = generic::Hello::new(source.id, generic::HelloFlags::default(), &source.name);
            let unnamed = generic::Hello { source: source.id, flags: Default::default(), name: Default::default() };
            line.bytes.extend_from_slice(&hello.unwrap_or(unnamed).to_bytes());
            line.write()?;
        }
        Ok(line)
    }

    /// Sends a fragment whose number is `ahead` of the recorded one.
    fn send(&mut self, fragment: &FragmentView<'_>, ahead: u64) -> Result<(), OfflineError> {
        let number = fragment.entry.raw_id + ahead;
        self.bytes.clear();
        if is_generic(self.format) {
            let header = generic::Header {
                source: self.source,
                flags: generic::Flags::default(),
                event_number: number,
                timestamp: fragment.entry.raw_time,
                payload_bytes: 0,
            };
            // No record holds as much as a payload may have.
            let encoded = generic::encode(&header, fragment.payload, &mut self.bytes);
            debug_assert!(encoded.is_ok(), "a payload of {} bytes is refused", fragment.payload.len());
        } else {
            let number = number as u32 & 0xff_ffff;
            let renumbered = ahead > 0 && renumber(fragment.payload, number, &mut self.fragment);
            let payload = if renumbered { &self.fragment } else { fragment.payload };
            ferol::encode_fragment(payload, self.source, number, &mut self.bytes);
        }
        self.write()
    }

    fn write(&mut self) -> Result<(), OfflineError> {
        let sent = self.stream.write_all(&self.bytes).and_then(|()| self.stream.flush());
        sent.map_err(|error| OfflineError::Line { source_id: self.source, error })
    }
}

/// Copies a FED fragment with another event number and the matching checksum. Returns false for bytes that are not a
/// fragment: they are sent unchanged.
fn renumber(fragment: &[u8], number: u32, into: &mut Vec<u8>) -> bool {
    into.clear();
    fed::Fragment::parse(fragment).is_ok_and(|parsed| {
        let mut value = parsed.to_value();
        value.header = value.header.with_level1_id(number);
        value.encode(into).is_ok()
    })
}

/// Waits until it is an event's time.
#[derive(Default)]
struct Pace {
    /// When the first event was sent, and its recorded time in nanoseconds.
    begin: Option<(Instant, u64)>,
}

impl Pace {
    fn wait<'a>(&mut self, mut fragments: impl Iterator<Item = FragmentView<'a>>) -> Result<(), OfflineError> {
        let timed = fragments.find(|fragment| fragment.entry.flags.contains(FragmentFlags::HAS_TIME));
        let Some(time) = timed.map(|fragment| fragment.entry.raw_time) else {
            return if self.begin.is_some() { Ok(()) } else { Err(OfflineError::NoTimes) };
        };
        let (begin, first) = *self.begin.get_or_insert((Instant::now(), time));
        let due = begin + Duration::from_nanos(time.saturating_sub(first));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        Ok(())
    }
}
