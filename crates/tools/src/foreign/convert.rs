//! Makes run files from files of other formats and from captures.
//!
//! ```text
//!  files --frames--> fragments: whose, of which event --> a spool in the run's directory, and a list of what lies in it
//!  the list, in the order of events and sources ------> events, each with the fragments of all its sources --> run files
//! ```
//! Events whose fragments can be separated (FRD, MDF) are split into them, with an envelope for the bytes around them,
//! so that nothing is lost. Data that span several frames (FEROL blocks, pages) or datagrams are one fragment.
//! Fragments may be in any order, and the files one after the other: memory holds one line of the list for each
//! fragment.

use super::account::missed;
use super::frames::{self, CutOff, Found, Frame, Input};
use super::sniff::now;
use crate::OfflineError;
use crate::run_writer::RunWriter;
use crate::status::{StatusSummary, named};
use ropewalk_terms::{Asked, Attempt, Cause, EventKey, Fact, Facts, RunNumber, SourceId};
use ropewalk_wire::capture::Aside;
use ropewalk_wire::ferol;
use ropewalk_wire::foreign::{Describe, ENVELOPE, Enclosed, ForeignFormat, UNDIVIDED};
use ropewalk_wire::framing::{Fields, Framing, Piece, PieceKey, Splitter, Tick};
use ropewalk_wire::run_file::{
    ClockDomain, EventFlags, EventHead, FragmentEntry, FragmentFlags, MissingSource, SourceEntry, SourceFormat,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The result of a conversion.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Converted {
    /// The files' format.
    pub format: &'static str,
    /// Frames that were read, without headers of files.
    pub frames: u64,
    /// Events that were written.
    pub events: u64,
    /// Those among them that lack a source.
    pub incomplete: u64,
    /// Fragments in them: what sources sent, without what stood around it in the file.
    pub fragments: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Fragments of a source and an event that were there already; left out.
    pub duplicates: u64,
    /// Frames with missing datagrams or that cannot be split; places after which no next frame is found.
    pub left_out: u64,
    /// Bytes that belong to no frame.
    pub skipped_bytes: u64,
    /// Frames and fragments whose own checksum is wrong; they are kept, and marked.
    pub wrong_checksums: u64,
    /// Events whose data do not fall apart into fragments, though they should: they are stored in one piece.
    pub undivided: u64,
    /// Fragments that are in doubt for another reason, by its name; they are kept, and marked.
    pub doubts: BTreeMap<&'static str, u64>,
    /// The sources.
    pub sources: Vec<u32>,
    /// Bytes of connections that captures miss, and those around them that belong to no whole frame.
    pub missed_bytes: u64,
    /// Packets of captures that cannot be read.
    pub unreadable_packets: u64,
    /// Files that end before their end, and why.
    pub cut_off: Vec<(PathBuf, CutOff)>,
}

impl Converted {
    /// The exit status, and why.
    pub fn status(&self) -> StatusSummary {
        let facts = Facts::default().with([
            (Fact::Nothing, u64::from(self.events == 0)),
            (Fact::Incomplete, self.incomplete),
            (Fact::Duplicate, self.duplicates),
            (Fact::LeftOut, self.left_out),
            (Fact::GarbageBytes, self.skipped_bytes),
            (Fact::MissedBytes, self.missed_bytes),
            (Fact::PacketsUnreadable, self.unreadable_packets),
            (Fact::InputsCutOff, self.cut_off.len() as u64),
            (Fact::CrcErrors, self.wrong_checksums),
            (Fact::Undivided, self.undivided),
        ]);
        let facts = facts.with(named(self.doubts.iter().map(|(name, count)| (*name, *count))));
        StatusSummary::of(&facts, Asked::Taken)
    }
}

/// The place of a fragment in the spool, and its metadata.
#[derive(Copy, Clone, Debug)]
struct Spooled {
    /// Its event, as all sources count; sources without numbers count from 0.
    number: u64,
    offset: u64,
    entry: FragmentEntry,
}

/// A fragment that further frames may continue.
struct Open {
    one: Spooled,
    bytes: Vec<u8>,
    /// The place of its last frame in the event, and whether that is the event's last one.
    place: Option<u32>,
    is_last: Option<bool>,
}

impl Open {
    /// Whether a frame continues it: a frame of another event does not, even if the first frame of that event is
    /// missing.
    fn is_gone_on_with(&self, format: ForeignFormat, fields: &Fields, bytes: &[u8]) -> bool {
        format.goes_on(bytes) && fields.event.unwrap_or_default() == self.one.entry.raw_id
    }

    /// Adds a frame that continues it.
    fn go_on(&mut self, fields: &Fields, body: &[u8]) {
        self.bytes.extend_from_slice(body);
        let is_behind_gap = fields.place.zip(self.place).is_some_and(|(place, last)| place > last + 1);
        let missing = if is_behind_gap { FragmentFlags::FRAMES_MISSING } else { FragmentFlags::default() };
        self.one.entry.flags = self.one.entry.flags.with(fields.flags).with(missing);
        (self.place, self.is_last) = (fields.place, fields.is_last);
    }

    /// Nothing more comes of it.
    fn end(mut self) -> (Spooled, Vec<u8>) {
        if self.is_last == Some(false) {
            self.one.entry.flags = self.one.entry.flags.with(FragmentFlags::FRAMES_MISSING);
        }
        (self.one, self.bytes)
    }
}

/// Makes the run files of a run in its directory. Each frame is a fragment, or is divided into several; of formats that
/// hold whole events each frame is one.
///
/// # Errors
/// If a file cannot be read or written, or its format is unknown or another one than that of the files before it.
pub fn convert<P: AsRef<Path>>(
    files: &[P],
    format: Option<ForeignFormat>,
    directory: &Path,
    run: RunNumber,
) -> Result<Converted, OfflineError> {
    let mut gatherer = Gatherer::new(directory)?;
    let mut format = format;
    for file in files {
        let mut input = Input::open(file.as_ref())?;
        let mut failed = Ok(());
        let found = frames::read(&mut input, format, &mut |found| {
            if let Found::CutOff(cut_off) = &found {
                gatherer.told.cut_off.push((file.as_ref().to_owned(), cut_off.clone()));
            } else if failed.is_ok() {
                failed = gatherer.take(&found);
            }
        })?;
        failed?;
        format = format.or(Some(found));
    }
    let names: Vec<String> = files.iter().map(|file| file.as_ref().display().to_string()).collect();
    let format_name = format.map_or("nothing", ForeignFormat::name);
    let text = format!("# made by `ropewalk convert` of files of the format {format_name}: {}\n", names.join(", "));
    gatherer.write(directory, run, text, format)
}

/// Takes frames, and remembers whose and of which event they are.
struct Gatherer {
    path: PathBuf,
    spool: BufWriter<File>,
    length: u64,
    list: Vec<Spooled>,
    counters: HashMap<u32, Wide>,
    /// Whose frames do not say it: a number for each address.
    peers: Vec<std::net::IpAddr>,
    /// By source: its last fragment, which further frames may continue.
    open: BTreeMap<u32, Open>,
    split: Vec<Piece>,
    /// Files' headers, as long as no event has followed them.
    ahead: Vec<u8>,
    /// What each source sends.
    formats: BTreeMap<u32, SourceFormat>,
    told: Converted,
}

impl Drop for Gatherer {
    fn drop(&mut self) {
        // The file is no longer needed. If it cannot be removed, that does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Gatherer {
    fn new(directory: &Path) -> Result<Self, OfflineError> {
        let path = directory.join("convert.spool");
        let spool = File::options().read(true).write(true).create_new(true).open(&path);
        let spool = BufWriter::new(spool.map_err(OfflineError::system("create", &path))?);
        Ok(Self {
            path,
            spool,
            length: 0,
            list: Vec::new(),
            counters: HashMap::new(),
            peers: Vec::new(),
            open: BTreeMap::new(),
            split: Vec::new(),
            ahead: Vec::new(),
            formats: BTreeMap::new(),
            told: Converted::default(),
        })
    }

    fn take(&mut self, found: &Found<'_>) -> Result<(), OfflineError> {
        match found {
            Found::Frame(frame) => self.frame(frame),
            Found::Skipped { bytes, is_filler: false, .. } => {
                self.told.skipped_bytes += bytes.len() as u64;
                Ok(())
            }
            Found::LeftOver { bytes } => {
                self.told.skipped_bytes += bytes;
                Ok(())
            }
            Found::Missed { mended, .. } => {
                self.told.missed_bytes += missed(mended);
                Ok(())
            }
            Found::Aside { aside } => {
                self.told.unreadable_packets += u64::from(Aside::UNREADABLE.contains(aside));
                Ok(())
            }
            Found::Lost { .. } | Found::Capture { .. } => {
                self.told.left_out += 1;
                Ok(())
            }
            Found::Unfinished { datagrams, frames } => {
                self.told.left_out += datagrams + frames;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), OfflineError> {
        let (format, fields) = (frame.format, frame.format.fields(frame.bytes));
        let source = fields.source.unwrap_or_else(|| self.peer(frame));
        if format.announces(frame.bytes).is_some() {
            self.ahead.extend_from_slice(frame.bytes);
            return Ok(());
        }
        self.told.frames += 1;
        if format == ForeignFormat::LhcbMep {
            return self.divide(format, source, fields, frame.bytes);
        }
        if let Some(whole) = format.enclosed(frame.bytes) {
            return self.enclose(format, &fields, &whole, frame.bytes);
        }
        self.fragment(format, source, fields, frame.bytes)
    }

    /// The number of a source whose frames do not say whose they are.
    fn peer(&mut self, frame: &Frame<'_>) -> u32 {
        let Some(peer) = frame.peer else { return 0 };
        let address = peer.address();
        let known = self.peers.iter().position(|known| *known == address);
        known.unwrap_or_else(|| {
            self.peers.push(address);
            self.peers.len() - 1
        }) as u32
    }

    /// A whole event: its fragments, then what is around them.
    fn enclose(
        &mut self,
        format: ForeignFormat,
        fields: &Fields,
        whole: &Enclosed,
        bytes: &[u8],
    ) -> Result<(), OfflineError> {
        let number = self.counters.entry(ENVELOPE.0).or_default().count();
        self.told.undivided += u64::from(whole.is_broken);
        for member in &whole.members {
            let (source, fragment) = (member.source.0, &bytes[member.place.clone()]);
            let said = if member.format == format { *fields } else { member.format.fields(fragment) };
            // What cannot be split has no checksum of its own.
            let checksum = member.format.checksum(fragment).filter(|_| member.format != format);
            self.formats.insert(source, source_format(member.format));
            self.spool(Spooled { number, offset: 0, entry: entry(member.format, source, &said) }, fragment, checksum)?;
        }
        let mut envelope = std::mem::take(&mut self.ahead);
        envelope.extend_from_slice(&bytes[..whole.data.start]);
        envelope.extend_from_slice(&bytes[whole.data.end..]);
        self.formats.insert(ENVELOPE.0, SourceFormat::ENVELOPE);
        let around = Spooled { number, offset: 0, entry: entry(format, ENVELOPE.0, fields) };
        self.spool(around, &envelope, format.checksum(bytes))
    }

    /// A frame that holds fragments of several events.
    fn divide(&mut self, format: ForeignFormat, source: u32, fields: Fields, bytes: &[u8]) -> Result<(), OfflineError> {
        let mut split = std::mem::take(&mut self.split);
        split.clear();
        if format.split(bytes, &mut split).is_err() {
            self.told.left_out += 1;
        }
        for piece in &split {
            let (PieceKey::Event(number) | PieceKey::Time(number)) = piece.key;
            let part = &bytes[piece.offset..piece.offset + piece.length];
            self.fragment(format, source, Fields { event: Some(number), ..fields }, part)?;
        }
        self.split = split;
        Ok(())
    }

    fn fragment(
        &mut self,
        format: ForeignFormat,
        source: u32,
        fields: Fields,
        bytes: &[u8],
    ) -> Result<(), OfflineError> {
        // Blocks are how a FED fragment travels.
        let body = if format == ForeignFormat::Ferol { bytes.get(ferol::HEADER_BYTES..).unwrap_or(&[]) } else { bytes };
        if let Some(open) = self.open.get_mut(&source)
            && open.is_gone_on_with(format, &fields, bytes)
        {
            open.go_on(&fields, body);
            return Ok(());
        }
        let counter = self.counters.entry(source).or_default();
        let widths = format.widths();
        let number = match (fields.event, fields.sequence) {
            _ if format.holds_whole_events() => self.told.frames - 1,
            (Some(event), _) => counter.widen(event, widths.event),
            (None, Some(sequence)) => counter.widen(sequence, widths.sequence),
            (None, _) => counter.count(),
        };
        let mut one = Spooled { number, offset: 0, entry: entry(format, source, &fields) };
        if fields.goes_on() {
            // Its first frame is missing.
            one.entry.flags = one.entry.flags.with(FragmentFlags::FRAMES_MISSING);
        }
        self.formats.entry(source).or_insert_with(|| source_format(format));
        let open = Open { one, bytes: body.to_vec(), place: fields.place, is_last: fields.is_last };
        match self.open.insert(source, open).map(Open::end) {
            Some((before, fragment)) => self.put_together(format, before, &fragment),
            None => Ok(()),
        }
    }

    /// Spools what one frame brought, or several of them.
    fn put_together(&mut self, format: ForeignFormat, one: Spooled, fragment: &[u8]) -> Result<(), OfflineError> {
        let framing = if format == ForeignFormat::Ferol { ForeignFormat::Fed } else { format };
        self.spool(one, fragment, framing.checksum(fragment))
    }

    /// Writes a complete fragment to the spool; `checksum` says whether its own is right, if it has one.
    fn spool(&mut self, mut one: Spooled, fragment: &[u8], checksum: Option<bool>) -> Result<(), OfflineError> {
        if let Some(is_right) = checksum {
            self.told.wrong_checksums += u64::from(!is_right);
            let error = if is_right { FragmentFlags::default() } else { FragmentFlags::CRC_ERROR };
            one.entry.flags = one.entry.flags.with(FragmentFlags::CRC_CHECKED).with(error);
        }
        for (flag, name) in FragmentFlags::DOUBTS {
            // Wrong checksums have a count of their own.
            if flag != FragmentFlags::CRC_ERROR && one.entry.flags.contains(flag) {
                *self.told.doubts.entry(name).or_default() += 1;
            }
        }
        (one.offset, one.entry.length) = (self.length, fragment.len() as u32);
        self.list.push(one);
        self.length += fragment.len() as u64;
        self.spool.write_all(fragment).map_err(OfflineError::system("write", &self.path))
    }

    /// Writes everything that was gathered, event by event.
    fn write(
        mut self,
        directory: &Path,
        run: RunNumber,
        text: String,
        format: Option<ForeignFormat>,
    ) -> Result<Converted, OfflineError> {
        if let Some(format) = format {
            for (one, fragment) in std::mem::take(&mut self.open).into_values().map(Open::end) {
                self.put_together(format, one, &fragment)?;
            }
        }
        // A file without events has nothing that its header could precede.
        self.told.left_out += u64::from(!self.ahead.is_empty());
        let sources: BTreeSet<u32> = self.list.iter().map(|one| one.entry.source.0).collect();
        let is_of_parts = format.is_some_and(|format| !format.holds_whole_events());
        // Within a source and an event in order of arrival. The fragments of a whole event keep their order.
        self.list.sort_by_key(|one| (one.number, is_of_parts.then_some(one.entry.source)));
        let ranked = format.is_some_and(ForeignFormat::numbers_grow);
        let first = self.list.first().map_or(0, |one| one.number);
        let entries = sources.iter().map(|source| source_entry(*source, &self.formats)).collect();
        let mut writer = RunWriter::new(directory, run, now(), entries, text);
        let mut told = std::mem::take(&mut self.told);
        let mut spool = Spool::new(&mut self)?;
        for event in self.list.chunk_by(|one, other| one.number == other.number) {
            let rank = told.events + 1;
            let number = if ranked { rank } else { event[0].number - first + 1 };
            let of_once = |(index, one): (usize, &Spooled)| {
                let is_first = index == 0 || event[index - 1].entry.source != one.entry.source;
                (is_first || !is_of_parts).then_some(*one)
            };
            let once: Vec<Spooled> = event.iter().enumerate().filter_map(of_once).collect();
            told.duplicates += (event.len() - once.len()) as u64;
            let present: BTreeSet<u32> = once.iter().map(|one| one.entry.source.0).collect();
            let missing: Vec<MissingSource> = sources
                .difference(&present)
                .filter(|_| is_of_parts)
                .map(|&source| MissingSource::new(SourceId(source), Cause::Skipped))
                .collect();
            let payloads = once.iter().map(|one| spool.read(one)).collect::<Result<Vec<_>, _>>()?;
            let fragments: Vec<_> = once.iter().map(|one| one.entry).zip(payloads.iter().map(Vec::as_slice)).collect();
            let head = event_head(number, &fragments, &missing, &writer);
            writer.event(&head, &missing, &fragments)?;
            told.events += 1;
            told.incomplete += u64::from(!missing.is_empty());
            let sent = fragments.iter().filter(|(entry, _)| entry.source != ENVELOPE);
            told.fragments += sent.clone().count() as u64;
            told.bytes += sent.map(|(_, payload)| payload.len() as u64).sum::<u64>();
        }
        writer.finish()?;
        told.format = format.map_or("nothing", ForeignFormat::name);
        told.sources = sources.into_iter().filter(|&source| source != ENVELOPE.0).collect();
        Ok(told)
    }
}

/// A counter of few bits, made wide: from one number to the next it moves by less than half of its range.
#[derive(Default)]
struct Wide {
    last: Option<u64>,
    counted: u64,
}

impl Wide {
    /// Numbers begin so high that those may come that are a little lower than the first.
    const BEGIN: u64 = 1 << 62;

    fn widen(&mut self, number: u64, bits: u8) -> u64 {
        if bits >= 63 {
            return number;
        }
        let range = 1_u64 << bits;
        let Some(last) = self.last else {
            self.last = Some(Self::BEGIN + number);
            return Self::BEGIN + number;
        };
        let ahead = number.wrapping_sub(last) & (range - 1);
        let wide = if ahead < range / 2 { last + ahead } else { last - (range - ahead) };
        self.last = Some(last.max(wide));
        wide
    }

    fn count(&mut self) -> u64 {
        self.counted += 1;
        self.counted
    }
}

/// The spool, from which is read in another order than it was written in.
struct Spool {
    path: PathBuf,
    file: File,
}

impl Spool {
    fn new(gatherer: &mut Gatherer) -> Result<Self, OfflineError> {
        let path = gatherer.path.clone();
        gatherer.spool.flush().map_err(OfflineError::system("write", &path))?;
        let file = gatherer.spool.get_ref().try_clone().map_err(OfflineError::system("read", &path))?;
        Ok(Self { path, file })
    }

    fn read(&mut self, one: &Spooled) -> Result<Vec<u8>, OfflineError> {
        let mut bytes = vec![0; one.entry.length as usize];
        let read = self.file.seek(SeekFrom::Start(one.offset)).and_then(|_| self.file.read_exact(&mut bytes));
        read.map_err(OfflineError::system("read", &self.path))?;
        Ok(bytes)
    }
}

fn source_format(format: ForeignFormat) -> SourceFormat {
    match format {
        ForeignFormat::Fed | ForeignFormat::Ferol => SourceFormat::FED,
        ForeignFormat::LhcbBanks | ForeignFormat::LhcbMep => SourceFormat::BANKS,
        _ => SourceFormat::OPAQUE,
    }
}

fn source_entry(source: u32, formats: &BTreeMap<u32, SourceFormat>) -> SourceEntry {
    let format = formats.get(&source).copied().unwrap_or_default();
    let name = match SourceId(source) {
        ENVELOPE => "envelope".to_owned(),
        UNDIVIDED => "undivided".to_owned(),
        _ => format!("source-{source}"),
    };
    SourceEntry { id: SourceId(source), format, name }
}

fn entry(format: ForeignFormat, source: u32, fields: &Fields) -> FragmentEntry {
    let mut flags = fields.flags;
    for (is_there, flag) in [
        (fields.bunch_crossing.is_some(), FragmentFlags::HAS_BUNCH_CROSSING),
        (fields.time.is_some(), FragmentFlags::HAS_TIME),
    ] {
        flags = if is_there { flags.with(flag) } else { flags };
    }
    let tick: Tick = format.tick();
    let time = fields.time.map_or(0, |ticks| tick.nanoseconds_of(ticks));
    FragmentEntry {
        source: SourceId(source),
        flags,
        raw_id: fields.event.or(fields.sequence).unwrap_or(0),
        raw_time: fields.time.unwrap_or(0),
        time: time as i64,
        clock: if fields.time.is_some() { ClockDomain::SOURCE } else { ClockDomain::NONE },
        bunch_crossing: fields.bunch_crossing.unwrap_or(0),
        trigger_type: fields.trigger_type.unwrap_or(0),
        length: 0,
    }
}

fn event_head(
    number: u64,
    fragments: &[(FragmentEntry, &[u8])],
    missing: &[MissingSource],
    writer: &RunWriter,
) -> EventHead {
    let mut flags = EventFlags::default();
    if !missing.is_empty() {
        flags = flags.with(EventFlags::INCOMPLETE);
    }
    if fragments.iter().any(|(entry, _)| entry.flags.has_error()) {
        flags = flags.with(EventFlags::DOUBTFUL);
    }
    EventHead {
        key: EventKey::new(0, number),
        incarnation: writer.incarnation(),
        attempt: Attempt(1),
        trigger_type: fragments.first().map_or(0, |(entry, _)| entry.trigger_type),
        flags,
    }
}
