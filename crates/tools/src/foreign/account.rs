//! What each source sent, and every fault by its name. Bytes of connections that a capture misses are reported, and
//! passed over at frames.

use super::frames::{Found, Frame, Peer};
use crate::Packing;
use crate::inspect::utc_text;
use crate::status::StatusSummary;
use ropewalk_flow::trial::Numbers;
use ropewalk_terms::{Asked, Fact, Facts, Status, Utc};
use ropewalk_wire::capture::{Aside, Stretches};
use ropewalk_wire::foreign::{Announced, Counting, Describe, ForeignFormat, Inspector, Value};
use ropewalk_wire::framing::{Fields, Framing};
use ropewalk_wire::mending::{Hole, Mended, Mender};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Arguments, Write};
use std::path::Path;

/// The schema of [`ForeignReport`] as JSON: `docs/schema/foreign.json`.
pub const FOREIGN_SCHEMA: &str = "ropewalk-foreign-1";

/// This many faults are reported with their places.
const FIRST_FAULTS: usize = 10;
/// The most kinds of parts that are counted apart, per source: names may come out of the data.
const MOST_NAMES: usize = 1000;

/// What some files of a format hold together.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct ForeignReport {
    /// The form's name and version.
    #[schemars(extend("const" = FOREIGN_SCHEMA))]
    pub schema: &'static str,
    /// The format's name, as `--format` takes it; null if no frame was found.
    pub format: Option<&'static str>,
    /// The files, in the order in which they were named.
    pub files: Vec<FileReport>,
    /// Whole frames.
    pub frames: u64,
    /// Their bytes.
    pub frame_bytes: u64,
    /// Bytes that belong to no frame.
    pub skipped_bytes: u64,
    /// Filler bytes of the format between frames.
    pub filler_bytes: u64,
    /// Bytes at the end that are no whole frame.
    pub left_over_bytes: u64,
    /// Frames whose own checksum is right or wrong; frames without one are not counted.
    pub checksums: Checksums,
    /// Everything that is wrong, by its name.
    pub faults: BTreeMap<String, u64>,
    /// The first ten, with their places.
    pub first_faults: Vec<Fault>,
    /// Whether there are several sources, and all of them have the same events.
    pub same_events: bool,
    /// Each source, by its address and number.
    pub sources: Vec<SourceReport>,
    /// The exit status of `verify`, and why.
    pub status: StatusSummary,
}

/// A file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct FileReport {
    /// The path.
    pub path: String,
    /// Its bytes, unpacked.
    pub bytes: u64,
    /// Whether it was packed.
    pub packed: bool,
    /// Its compression.
    pub packing: Packing,
    /// Why the input is truncated; null if it is not.
    pub cut_off: Option<String>,
    /// Bytes before that place that are no whole packet or frame.
    pub cut_off_bytes: u64,
    /// Other content of a capture; null for a plain file.
    pub capture: Option<CaptureReport>,
}

/// What a capture holds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct CaptureReport {
    /// Packets.
    pub packets: u64,
    /// Packets that belong to no source, by reason: `icmp`, `ip_fragment`, `no_ip`, `cut`, `malformed`,
    /// `unknown_link`.
    pub aside: BTreeMap<&'static str, u64>,
    /// Datagrams that are no frames of the format, by the port that they went to (0: straight over IP).
    pub other_datagrams: BTreeMap<u16, u64>,
    /// Datagrams of which some IP fragments did not come.
    pub unfinished_datagrams: u64,
    /// Frames of which some datagrams did not come.
    pub unfinished_frames: u64,
    /// Bytes of connections that it misses, and those around them that belong to no whole frame.
    pub missed_bytes: u64,
    /// The first places at which it misses some.
    pub holes: Vec<PeerHole>,
    /// Time of the first packet, in UTC; null if unknown.
    pub first_time: Option<String>,
    /// Time of the last packet, in UTC.
    pub last_time: Option<String>,
}

/// Missing bytes of a connection in a capture.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct PeerHole {
    /// Who sent.
    pub peer: String,
    /// Where, and how many.
    #[serde(flatten)]
    pub hole: HoleReport,
}

/// How frames' own checksums are. Frames of formats without checksums are not counted.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Checksums {
    /// Frames whose checksum is right.
    pub right: u64,
    /// Frames whose checksum is wrong.
    pub wrong: u64,
}

/// Where something was wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Fault {
    /// In which file.
    pub file: String,
    /// Where in it, in bytes, unpacked.
    pub offset: u64,
    /// What is wrong.
    pub fault: String,
}

/// What a source sent.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct SourceReport {
    /// Its address, in a capture; null otherwise.
    pub peer: Option<String>,
    /// Its number; null if frames do not contain it.
    pub source: Option<u32>,
    /// Its frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of the shortest one.
    pub least_bytes: u64,
    /// Bytes of the longest one.
    pub most_bytes: u64,
    /// Events, each once, however many frames it has.
    pub events: u64,
    /// The first event number; null if frames do not contain it.
    pub first_event: Option<u64>,
    /// The last event's number.
    pub last_event: Option<u64>,
    /// The first frame's number; null if frames have none.
    pub first_sequence: Option<u64>,
    /// The last frame's number.
    pub last_sequence: Option<u64>,
    /// The first time, in ticks of the source's clock; null if frames have none.
    pub first_time: Option<u64>,
    /// The last time, in ticks of the source's clock.
    pub last_time: Option<u64>,
    /// The number that should increase by one each time.
    pub counts: CountingReport,
    /// Numbers that were passed over.
    pub missing: u64,
    /// Numbers that came twice in a row.
    pub duplicates: u64,
    /// Numbers that came a little late.
    pub out_of_order: u64,
    /// The number of restarts of the numbering.
    pub restarts: u64,
    /// Frames whose checksum is wrong.
    pub wrong_checksums: u64,
    /// Frames by what they are.
    pub kinds: BTreeMap<String, u64>,
    /// Parts of frames by what they are.
    pub parts: BTreeMap<String, u64>,
}

/// The number of a source that should increase by one each time.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CountingReport {
    /// The event's.
    Events,
    /// The frame's own.
    Frames,
    /// The frame's place in its event.
    Places,
    /// None.
    Nothing,
}

impl From<Counting> for CountingReport {
    fn from(counting: Counting) -> Self {
        match counting {
            Counting::Events => Self::Events,
            Counting::Frames => Self::Frames,
            Counting::Places => Self::Places,
            Counting::Nothing => Self::Nothing,
        }
    }
}

impl ForeignReport {
    /// Whether nothing is missing, misplaced or doubtful.
    pub fn is_complete(&self) -> bool {
        self.facts().reasons(Asked::Checked).all(|(fact, _)| fact.status(Asked::Checked) != Status::Lost)
    }

    /// What the status depends on. Events of a file need not be in the order of their numbers.
    fn facts(&self) -> Facts {
        let captures = self.files.iter().filter_map(|file| file.capture.as_ref());
        let captured = captures.flat_map(|capture| {
            [
                (Fact::DatagramsUnfinished, capture.unfinished_datagrams),
                (Fact::FramesUnfinished, capture.unfinished_frames),
                (Fact::MissedBytes, capture.missed_bytes),
                (Fact::PacketsUnreadable, unreadable(&capture.aside)),
            ]
        });
        let numbered = self.sources.iter().flat_map(|source| {
            // Several kinds of events of one file may each have numbers of their own, so that a restart is no fault.
            [(Fact::FramesMissing, source.missing), (Fact::Duplicate, source.duplicates)]
        });
        Facts::default().with(captured).with(numbered).with([
            (Fact::Nothing, u64::from(self.frames == 0)),
            (Fact::Faults, self.faults.values().sum()),
            (Fact::GarbageBytes, self.skipped_bytes),
            (Fact::FillerBytes, self.filler_bytes),
            (Fact::LeftOverBytes, self.left_over_bytes),
            (Fact::InputsCutOff, self.files.iter().filter(|file| file.cut_off.is_some()).count() as u64),
            (Fact::CrcErrors, self.checksums.wrong),
        ])
    }

    pub(super) fn judged(mut self) -> Self {
        self.status = StatusSummary::of(&self.facts(), Asked::Checked);
        self
    }
}

/// How many of the packets that belong to no source cannot be read.
pub(super) fn unreadable(aside: &BTreeMap<&'static str, u64>) -> u64 {
    Aside::UNREADABLE.iter().filter_map(|unreadable| aside.get(unreadable.name())).sum()
}

/// Counts what is found.
#[derive(Debug, Default)]
pub(super) struct Account {
    files: Vec<FileReport>,
    capture: Option<CaptureReport>,
    times: Option<(Utc, Utc)>,
    frames: u64,
    frame_bytes: u64,
    skipped_bytes: u64,
    filler_bytes: u64,
    left_over_bytes: u64,
    checksums: Checksums,
    faults: BTreeMap<String, u64>,
    first_faults: Vec<Fault>,
    sources: BTreeMap<(Option<Peer>, Option<u32>), Source>,
    /// The format of the frame before.
    format: Option<ForeignFormat>,
    announcement: Option<Announcement>,
}

/// What a file's header says, and what has followed it so far.
#[derive(Copy, Clone, Debug)]
struct Announcement {
    announced: Announced,
    /// The offset of the header.
    offset: u64,
    frames: u64,
}

/// What is known of a source.
#[derive(Debug, Default)]
struct Source {
    frames: u64,
    bytes: u64,
    least_bytes: u64,
    most_bytes: u64,
    events: u64,
    /// The events' numbers without their order: sources with the same events have the same.
    mixed_events: u64,
    event: Range,
    sequence: Range,
    time: Range,
    counter: Numbers,
    places: Places,
    wrong_checksums: u64,
    names: Names,
}

/// The frames of events that come in several, by their places.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Places {
    /// The last frame: its event, its place, and whether it is the last one.
    last: Option<(Option<u64>, u32, Option<bool>)>,
    missing: u64,
}

impl Places {
    /// Counts a frame; says whether frames before it are missing.
    pub(super) fn add(&mut self, fields: &Fields) {
        let place = fields.place.unwrap_or_default();
        let expected = match self.last {
            Some((event, last, _)) if event == fields.event && place > last => last + 1,
            _ => {
                self.missing += self.open();
                0
            }
        };
        self.missing += u64::from(place.saturating_sub(expected));
        self.last = Some((fields.event, place, fields.is_last));
    }

    /// Frames that the last event still lacks, as far as that is known.
    fn open(&self) -> u64 {
        u64::from(matches!(self.last, Some((.., Some(false)))))
    }

    /// Frames that are missing.
    fn missing(&self) -> u64 {
        self.missing + self.open()
    }
}

/// The first and the last of some numbers.
#[derive(Copy, Clone, Debug, Default)]
struct Range {
    first: Option<u64>,
    last: Option<u64>,
}

impl Range {
    fn add(&mut self, number: Option<u64>) {
        self.first = self.first.or(number);
        self.last = number.or(self.last);
    }
}

/// Kinds and parts of a source's frames; and the faults of the frame that was looked at last.
#[derive(Debug, Default)]
struct Names {
    kinds: BTreeMap<String, u64>,
    parts: BTreeMap<String, u64>,
    text: String,
    faults: Vec<(usize, &'static str)>,
}

fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count += 1;
    } else {
        let name = if counts.len() < MOST_NAMES { name } else { "others" };
        *counts.entry(name.to_owned()).or_default() += 1;
    }
}

impl Inspector for Names {
    fn kind(&mut self, name: &str) {
        count(&mut self.kinds, name);
    }

    fn field(&mut self, _: &str, _: usize, _: usize, _: Value<'_>) {}

    fn part(&mut self, name: Arguments<'_>, _: usize, _: usize) {
        self.text.clear();
        // A string takes everything.
        let _ = self.text.write_fmt(name);
        count(&mut self.parts, &self.text);
    }

    fn fault(&mut self, at: usize, what: &'static str) {
        self.faults.push((at, what));
    }
}

impl Source {
    fn add(&mut self, frame: &Frame<'_>, fields: &Fields) {
        let (format, bytes) = (frame.format, frame.bytes.len() as u64);
        self.least_bytes = if self.frames == 0 { bytes } else { self.least_bytes.min(bytes) };
        self.most_bytes = self.most_bytes.max(bytes);
        self.frames += 1;
        self.bytes += bytes;
        self.sequence.add(fields.sequence);
        self.time.add(fields.time);
        let begins = !format.goes_on(frame.bytes);
        let (events, widths) = (format.events_in(frame.bytes), format.widths());
        if let Some(event) = fields.event.filter(|_| begins) {
            self.events += events;
            self.event.add(Some(event));
            (0..events).for_each(|index| self.mixed_events = self.mixed_events.wrapping_add(mixed(event + index)));
        }
        match format.counting() {
            Counting::Events if begins => {
                if let Some(event) = fields.event {
                    self.counter.add(event, widths.event, events);
                }
            }
            Counting::Frames => {
                if let Some(number) = fields.sequence {
                    self.counter.add(number, widths.sequence, 1);
                }
            }
            Counting::Places => self.places.add(fields),
            Counting::Events | Counting::Nothing => {}
        }
        format.describe(frame.bytes, &mut self.names);
    }

    fn report(self, peer: Option<Peer>, source: Option<u32>, counting: Counting) -> SourceReport {
        SourceReport {
            peer: peer.map(|peer| peer.to_string()),
            source,
            frames: self.frames,
            bytes: self.bytes,
            least_bytes: self.least_bytes,
            most_bytes: self.most_bytes,
            events: self.events,
            first_event: self.event.first,
            last_event: self.event.last,
            first_sequence: self.sequence.first,
            last_sequence: self.sequence.last,
            first_time: self.time.first,
            last_time: self.time.last,
            counts: counting.into(),
            missing: self.counter.missing + self.places.missing(),
            duplicates: self.counter.duplicates,
            out_of_order: self.counter.out_of_order,
            restarts: self.counter.restarts,
            wrong_checksums: self.wrong_checksums,
            kinds: self.names.kinds,
            parts: self.names.parts,
        }
    }
}

/// Mixes the bits of a number so that they are unrelated to those of the next one (the finish of SplitMix64).
const fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

impl Account {
    pub(super) fn begin_file(&mut self, path: &Path, packing: Packing) {
        self.files.push(FileReport {
            path: path.display().to_string(),
            bytes: 0,
            packed: packing != Packing::None,
            packing,
            cut_off: None,
            cut_off_bytes: 0,
            capture: None,
        });
        (self.capture, self.times) = (None, None);
    }

    pub(super) fn end_file(&mut self, bytes: u64) {
        self.end_announcement(bytes);
        let times = self.times.map(|(first, last)| (utc_text(first), utc_text(last)));
        let (first_time, last_time) = times.unzip();
        if let Some(file) = self.files.last_mut() {
            file.bytes = bytes;
            file.capture = self.capture.take().map(|capture| CaptureReport { first_time, last_time, ..capture });
        }
    }

    /// Frames so far.
    pub(super) const fn frames(&self) -> u64 {
        self.frames
    }

    pub(super) fn add(&mut self, found: &Found<'_>) {
        match *found {
            Found::Frame(ref frame) => self.add_frame(frame),
            Found::Skipped { bytes, is_filler: true, .. } => self.filler_bytes += bytes.len() as u64,
            Found::Skipped { offset, bytes, cause, .. } => {
                self.skipped_bytes += bytes.len() as u64;
                self.fault(offset, cause.name());
            }
            Found::Lost { offset, cause } => self.fault(offset, cause.name()),
            Found::LeftOver { bytes } => self.left_over_bytes += bytes,
            Found::CutOff(ref cut_off) => {
                if let Some(file) = self.files.last_mut() {
                    (file.cut_off, file.cut_off_bytes) = (Some(cut_off.why.clone()), cut_off.bytes);
                }
            }
            Found::Packet { time } => {
                self.capture().packets += 1;
                if let Some(time) = time {
                    let (first, last) = self.times.unwrap_or((time, time));
                    self.times = Some((first.min(time), last.max(time)));
                }
            }
            Found::Aside { aside } => *self.capture().aside.entry(aside.name()).or_default() += 1,
            Found::OtherDatagram { port } => *self.capture().other_datagrams.entry(port).or_default() += 1,
            Found::Unfinished { datagrams, frames } => {
                let capture = self.capture();
                (capture.unfinished_datagrams, capture.unfinished_frames) = (datagrams, frames);
            }
            Found::Missed { peer, mended } => {
                let capture = self.capture();
                capture.missed_bytes += missed(mended);
                let holes = HoleReport::all(mended).into_iter().map(|hole| PeerHole { peer: peer.to_string(), hole });
                capture.holes.extend(holes.take(FIRST_FAULTS.saturating_sub(capture.holes.len())));
            }
            Found::Capture { offset, error } => self.fault(offset, error.name()),
        }
    }

    fn capture(&mut self) -> &mut CaptureReport {
        self.capture.get_or_insert_default()
    }

    fn add_frame(&mut self, frame: &Frame<'_>) {
        self.format = Some(frame.format);
        self.frames += 1;
        self.frame_bytes += frame.bytes.len() as u64;
        self.compare_announced(frame);
        let fields = frame.format.fields(frame.bytes);
        let source = self.sources.entry((frame.peer, fields.source)).or_default();
        source.add(frame, &fields);
        let faults = std::mem::take(&mut source.names.faults);
        let checksum = frame.format.checksum(frame.bytes);
        source.wrong_checksums += u64::from(checksum == Some(false));
        self.checksums.right += u64::from(checksum == Some(true));
        self.checksums.wrong += u64::from(checksum == Some(false));
        if checksum == Some(false) {
            self.fault(frame.offset, ropewalk_terms::Cause::CrcError.name());
        }
        for (at, fault) in faults {
            self.fault(frame.offset + at as u64, fault);
        }
    }

    fn compare_announced(&mut self, frame: &Frame<'_>) {
        if let Some(announced) = frame.format.announces(frame.bytes) {
            self.end_announcement(frame.offset);
            self.announcement = Some(Announcement { announced, offset: frame.offset, frames: 0 });
        } else if let Some(announcement) = &mut self.announcement {
            announcement.frames += 1;
        }
    }

    /// Compares a file's header with the frames up to here.
    fn end_announcement(&mut self, end: u64) {
        let Some(Announcement { announced, offset, frames }) = self.announcement.take() else { return };
        if announced.frames != frames {
            self.fault(offset, "the file's header counts other events than there are");
        }
        if announced.bytes != end - offset {
            self.fault(offset, "the file's header counts other bytes than there are");
        }
    }

    fn fault(&mut self, offset: u64, fault: &'static str) {
        count(&mut self.faults, fault);
        if self.first_faults.len() < FIRST_FAULTS {
            let file = self.files.last().map(|file| file.path.clone()).unwrap_or_default();
            self.first_faults.push(Fault { file, offset, fault: fault.to_owned() });
        }
    }

    pub(super) fn into_report(self, format: Option<ForeignFormat>) -> ForeignReport {
        let events: Vec<(u64, u64)> = self
            .sources
            .values()
            .filter(|source| source.events > 0)
            .map(|source| (source.events, source.mixed_events))
            .collect();
        let format = self.format.or(format);
        let counting = format.map_or(Counting::Nothing, ForeignFormat::counting);
        let sources = self.sources.into_iter().map(|((peer, number), source)| source.report(peer, number, counting));
        ForeignReport {
            schema: FOREIGN_SCHEMA,
            format: format.map(ForeignFormat::name),
            files: self.files,
            frames: self.frames,
            frame_bytes: self.frame_bytes,
            skipped_bytes: self.skipped_bytes,
            filler_bytes: self.filler_bytes,
            left_over_bytes: self.left_over_bytes,
            checksums: self.checksums,
            faults: self.faults,
            first_faults: self.first_faults,
            same_events: events.len() > 1 && events.iter().all(|each| *each == events[0]),
            sources: sources.collect(),
            status: StatusSummary::default(),
        }
        .judged()
    }
}

/// Missing bytes of a connection in a capture.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct HoleReport {
    /// How many bytes of the connection are before it.
    pub at: u64,
    /// How many are missing.
    pub bytes: u64,
    /// How many around it belong to no whole frame.
    pub dropped: u64,
}

impl From<&Hole> for HoleReport {
    fn from(&Hole { at, bytes, dropped }: &Hole) -> Self {
        Self { at, bytes, dropped }
    }
}

impl HoleReport {
    /// The first holes of a connection.
    pub fn all(mended: &Mended) -> Vec<Self> {
        mended.first_holes.iter().map(Self::from).collect()
    }
}

impl fmt::Display for HoleReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, bytes, dropped } = self;
        write!(out, "{bytes} bytes of the connection are missing behind its first {at}")?;
        if *dropped > 0 {
            write!(out, ", and {dropped} around them belong to no whole frame")?;
        }
        Ok(())
    }
}

/// What a connection misses in all: the bytes, and those around them that belong to no whole frame.
pub(super) const fn missed(mended: &Mended) -> u64 {
    mended.missing_bytes + mended.dropped_bytes
}

/// Tells what is missing from a connection.
pub(super) fn write_holes(mended: &Mended, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    HoleReport::all(mended).iter().try_for_each(|hole| write!(out, "; {hole}"))?;
    let further = mended.holes.saturating_sub(mended.first_holes.len() as u64);
    if further > 0 {
        write!(out, "; {further} more such places, {} bytes are missing in all", mended.missing_bytes)?;
    }
    if mended.holes == 0 && mended.dropped_bytes > 0 {
        write!(out, "; {} bytes before a new connection are no whole frame", mended.dropped_bytes)?;
    }
    Ok(())
}

/// Passes on the next bytes of a stream, without incomplete frames; false if no more are wanted.
pub(super) fn give_on(stretches: &Stretches, mender: &mut Mender, give: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    let mut is_wanted_still = true;
    for (piece, bytes) in stretches.iter() {
        if piece.begins {
            is_wanted_still &= mender.begin(give);
        }
        if piece.lost_bytes > 0 {
            is_wanted_still &= mender.miss(piece.lost_bytes, give);
        }
        is_wanted_still &= bytes.is_empty() || mender.push(bytes, give);
    }
    is_wanted_still
}
