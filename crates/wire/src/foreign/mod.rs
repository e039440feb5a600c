//! Formats of other experiments and systems, by name: the ends of frames, their numbers, and their contents.
//!
//! ```text
//!  this file   all formats by name, what a frame consists of, emulated frames, the fragments of a frame that holds a whole event
//!  headed      places of numbers in headers; how frames begin, with a marker or behind zeros
//!  cms lhcb atlas alice                          experiments at the LHC
//!  midas nscldaq eudaq dune artdaq               data acquisition systems
//!  srs ess ejfat                                 datagrams
//!  caen                                          boards
//! ```
//! Each format is a unit that implements [`Framing`] (for streams and datagrams) and [`Describe`] (for people), and has
//! an encoder for tests and emulators. `docs/formats-*.md` have every table; `docs/formats.md` lists the data against
//! which each was checked. Layouts were read from the public headers that each module names; none of their code is
//! copied here.

pub mod alice;
pub mod artdaq;
pub mod atlas;
pub mod caen;
pub mod cms;
pub mod dune;
pub mod ejfat;
pub mod ess;
pub mod eudaq;
mod headed;
pub mod lhcb;
pub mod midas;
pub mod nscldaq;
pub mod srs;
#[cfg(test)]
mod tests;

use core::fmt::{self, Arguments, Display, Formatter};
use core::ops::Range;

use crate::framing::{
    Fields, Framing, Front, MOST_PIECES, Piece, PieceHead, PieceKey, Search, Splitter, Tick, Widths, Window,
};
use crate::frd::{self, EventHeader, Version};
use crate::mep::{Bank, encode_bank, encode_mep};
use crate::{fed, ferol, mdf, rod};
use ropewalk_terms::{Cause, SourceId};

pub use headed::{Header, Place};

/// Maximum length of a frame of any format: a larger length is treated as damage.
pub const MOST_FRAME_BYTES: usize = 256 << 20;

/// The number of a format that increases by one from frame to frame of a source, so that a gap is a loss.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Counting {
    /// None.
    Nothing,
    /// The event number.
    Events,
    /// The frame's own number.
    Frames,
    /// The frame's place in its event.
    Places,
}

/// Declares the formats: each with its name, unit, counting, whether it is sent in datagrams, and its description.
macro_rules! formats {
    ($($variant:ident = $name:literal, $unit:expr, $counting:ident, datagrams: $datagrams:literal, $help:literal;)*) => {
        /// A format that other software or hardware defines.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum ForeignFormat { $(#[doc = $help] $variant),* }

        impl ForeignFormat {
            /// All formats, those least likely to be mistaken for another format first.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name on the command line and in configurations.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Its description, for people.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help),* }
            }

            /// Its number that counts.
            pub const fn counting(self) -> Counting {
                match self { $(Self::$variant => Counting::$counting),* }
            }

            /// Whether it is only sent in datagrams, so that a stream of bytes cannot be cut into its frames.
            pub const fn needs_datagrams(self) -> bool {
                match self { $(Self::$variant => $datagrams),* }
            }
        }

        impl Framing for ForeignFormat {
            #[inline]
            fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
                match self { $(Self::$variant => $unit.front(window, search)),* }
            }

            fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
                match self { $(Self::$variant => $unit.front_at_end(window, search)),* }
            }

            #[inline]
            fn fields(&self, frame: &(impl Window + ?Sized)) -> Fields {
                match self { $(Self::$variant => $unit.fields(frame)),* }
            }

            fn checksum(&self, frame: &(impl Window + ?Sized)) -> Option<bool> {
                match self { $(Self::$variant => $unit.checksum(frame)),* }
            }

            fn piece(&self, datagram: &(impl Window + ?Sized)) -> Option<PieceHead> {
                match self { $(Self::$variant => $unit.piece(datagram)),* }
            }

            fn comes_in_pieces(&self) -> bool {
                match self { $(Self::$variant => $unit.comes_in_pieces()),* }
            }

            fn most(&self) -> usize {
                MOST_FRAME_BYTES
            }

            fn counts_together(&self) -> bool {
                match self { $(Self::$variant => $unit.counts_together()),* }
            }

            fn runs_free(&self) -> bool {
                match self { $(Self::$variant => $unit.runs_free()),* }
            }

            fn widths(&self) -> Widths {
                match self { $(Self::$variant => $unit.widths()),* }
            }

            fn tick(&self) -> Tick {
                match self { $(Self::$variant => $unit.tick()),* }
            }
        }

        impl Describe for ForeignFormat {
            fn looks_like(&self, first: &[u8]) -> bool {
                match self { $(Self::$variant => $unit.looks_like(first)),* }
            }

            fn describe(&self, frame: &[u8], to: &mut dyn Inspector) {
                match self { $(Self::$variant => $unit.describe(frame, to)),* }
            }

            fn goes_on(&self, frame: &[u8]) -> bool {
                match self { $(Self::$variant => $unit.goes_on(frame)),* }
            }

            fn is_filler(&self, skipped: &[u8]) -> bool {
                match self { $(Self::$variant => $unit.is_filler(skipped)),* }
            }

            fn announces(&self, frame: &[u8]) -> Option<Announced> {
                match self { $(Self::$variant => $unit.announces(frame)),* }
            }
        }
    };
}

formats! {
    Midas = "midas", midas::Midas, Events, datagrams: false, "MIDAS events with banks";
    Eudaq = "eudaq", eudaq::Eudaq, Events, datagrams: false, "EUDAQ2 native events";
    Dune = "dune", dune::Dune, Events, datagrams: false, "DUNE fragments, back to back";
    Atlas = "atlas", atlas::Atlas, Nothing, datagrams: false, "ATLAS full events, ROB fragments and what is between them";
    Mdf = "mdf", lhcb::Mdf, Nothing, datagrams: false, "LHCb MDF records: whole events of raw banks";
    Frd = "frd", cms::Frd, Nothing, datagrams: false, "CMS FED raw data: whole events of FED fragments";
    Ferol = "ferol", cms::FerolBlocks, Events, datagrams: false, "CMS FEROL blocks";
    LhcbBanks = "lhcb-banks", lhcb::RawBanks, Nothing, datagrams: false, "LHCb raw banks, back to back";
    Ess = "ess", ess::Ess, Frames, datagrams: false, "ESS readout packets";
    Srs = "srs", srs::Srs, Frames, datagrams: true, "SRS datagrams with VMM3a hits";
    Ejfat = "ejfat", ejfat::Ejfat, Nothing, datagrams: true, "EJFAT segments";
    Alice = "alice", alice::Alice, Places, datagrams: false, "ALICE raw data pages (RDH version 7)";
    LhcbMep = "lhcb-mep", lhcb::Mep, Events, datagrams: false, "LHCb multi-event packets";
    Nscldaq = "nscldaq", nscldaq::Nscldaq, Nothing, datagrams: false, "NSCLDAQ ring items (version 11)";
    Artdaq = "artdaq", artdaq::Artdaq, Events, datagrams: false, "artdaq fragments (version 2), back to back";
    Fed = "fed", cms::FedFragments, Events, datagrams: false, "CMS FED fragments (S-LINK64), back to back";
    Caen = "caen", caen::Caen, Events, datagrams: false, "Events of CAEN digitizers with waveforms";
}

impl ForeignFormat {
    /// The format with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.name() == name)
    }

    /// The format of a file that begins with these bytes, if it can be recognised.
    pub fn recognise(first: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| !format.needs_datagrams() && format.looks_like(first))
    }

    /// The format of a datagram, if it can be recognised.
    pub fn recognise_datagram(datagram: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.looks_like(datagram))
    }

    /// Whether its event numbers grow, but not by one: they are the times of pulses.
    pub const fn numbers_grow(self) -> bool {
        matches!(self, Self::Ess)
    }

    /// The number of a run's first event, by the format's convention.
    pub const fn first(self) -> u64 {
        match self {
            Self::Eudaq | Self::Caen => 0,
            _ => 1,
        }
    }

    /// Whether an event may consist of several consecutive frames, each of them whole.
    pub const fn comes_in_several_frames(self) -> bool {
        matches!(self, Self::Alice | Self::Dune)
    }

    /// Whether its frames hold several events each, and are divided ([`Splitter`]).
    pub const fn has_several_events(self) -> bool {
        matches!(self, Self::LhcbMep)
    }

    /// Whether each of its frames is a whole event, already built by the software that wrote it.
    pub const fn holds_whole_events(self) -> bool {
        matches!(self, Self::Midas | Self::Eudaq | Self::Atlas | Self::Nscldaq | Self::Mdf | Self::Frd)
    }

    /// The fragments in a frame that holds a whole event; `None` if the format does not divide it, or if the frame is
    /// no event.
    pub fn enclosed(self, frame: &[u8]) -> Option<Enclosed> {
        match self {
            Self::Mdf => lhcb::enclosed(frame),
            Self::Frd => cms::enclosed(frame),
            _ => None,
        }
    }

    /// Its headers at fixed places, each with its name.
    pub const fn headers(self) -> &'static [(&'static str, &'static [Place])] {
        match self {
            Self::Midas => &[("event, then banks", midas::HEADER)],
            Self::Eudaq => &[("event", eudaq::HEADER)],
            Self::Dune => &[("fragment", dune::HEADER)],
            Self::Atlas => &[("fragment", atlas::HEADER)],
            Self::Mdf => &[("record", lhcb::MDF_HEADER)],
            Self::Frd => &[
                ("file header", cms::FRD_FILE_HEADER),
                ("event of version 3", cms::FRD_VERSION_3),
                ("event of version 4", cms::FRD_VERSION_4),
                ("event of version 5 or 6", cms::FRD_VERSION_5),
            ],
            Self::Ferol => &[("block", cms::BLOCK_HEADER)],
            Self::LhcbBanks => &[("bank", lhcb::BANK_HEADER)],
            Self::Ess => &[("packet", ess::HEADER)],
            Self::Srs => &[("datagram", srs::HEADER)],
            Self::Ejfat => &[("load balancer", ejfat::BALANCER), ("reassembly", ejfat::HEADER)],
            Self::Alice => &[("page", alice::HEADER)],
            Self::LhcbMep => &[("packet", lhcb::MEP_HEADER)],
            Self::Nscldaq => &[("item", nscldaq::HEADER)],
            Self::Artdaq => &[("fragment", artdaq::HEADER)],
            Self::Fed => &[("first word", cms::HEADER), ("last word", cms::TRAILER)],
            Self::Caen => &[("event", caen::HEADER)],
        }
    }

    /// Number of events in a whole frame.
    pub fn events_in(self, frame: &[u8]) -> u64 {
        match self {
            Self::LhcbMep => lhcb::packing(frame).into(),
            _ => 1,
        }
    }
}

/// A frame is one piece, except for formats whose frames hold several events.
impl Splitter for ForeignFormat {
    fn split(&self, frame: &(impl Window + ?Sized), pieces: &mut Vec<Piece>) -> Result<(), Cause> {
        if self.has_several_events() {
            return lhcb::Mep.split(frame, pieces);
        }
        let fields = self.fields(frame);
        let key = fields.event.map(PieceKey::Event).or(fields.time.map(PieceKey::Time)).ok_or(Cause::Malformed)?;
        debug_assert!(pieces.len() < MOST_PIECES, "one piece for each frame");
        pieces.push(Piece { key, offset: 0, length: frame.len() });
        Ok(())
    }
}

/// The source of the envelope of a foreign event: the bytes around its fragments, that is its header, the bytes before
/// it, and padding. No front end has this id.
pub const ENVELOPE: SourceId = SourceId(u32::MAX);
/// The source of a foreign event's data that cannot be divided into fragments. No front end has this id.
pub const UNDIVIDED: SourceId = SourceId(u32::MAX - 2);

const _: () = {
    assert!(UNDIVIDED.0 != SourceId::FILTER.0 && ENVELOPE.0 != SourceId::FILTER.0, "each has an id of its own");
    assert!(UNDIVIDED.is_reserved() && ENVELOPE.is_reserved() && SourceId::FILTER.is_reserved(), "no front end has it");
};

/// A whole event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Enclosed {
    /// Range of its data in the frame; the rest is the envelope.
    pub data: Range<usize>,
    /// The fragments that make up the data, in order and without a gap.
    pub members: Vec<Member>,
    /// Whether the data should be divisible into fragments, but are not.
    pub is_broken: bool,
}

/// A fragment in a whole event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its source.
    pub source: SourceId,
    /// Its format.
    pub format: ForeignFormat,
    /// Its range in the frame.
    pub place: Range<usize>,
}

impl Enclosed {
    /// An event whose data are one piece that cannot be divided.
    fn undivided(format: ForeignFormat, data: Range<usize>) -> Self {
        let whole = Member { source: UNDIVIDED, format, place: data.clone() };
        let members = if data.is_empty() { Vec::new() } else { vec![whole] };
        Self { data, members, is_broken: false }
    }

    /// An event whose data should be divisible into fragments, but are not.
    fn broken(format: ForeignFormat, data: Range<usize>) -> Self {
        Self { is_broken: true, ..Self::undivided(format, data) }
    }
}

/// The value of a field.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// A count, an id, a time.
    Number(u64),
    /// A bit pattern.
    Hex(u64),
    /// A text, or the name of a number's value.
    Text(&'a str),
}

impl Display for Value<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(out, "{number}"),
            Self::Hex(number) => write!(out, "{number:#x}"),
            Self::Text(text) => write!(out, "{}", text.escape_debug()),
        }
    }
}

/// Receives the contents of a frame, from its front to its end.
pub trait Inspector {
    /// Reports the kind of the frame: `event`, `begin of run`.
    fn kind(&mut self, name: &str);

    /// Reports a field of a header: its name, its offset in the frame, its length, and its value.
    fn field(&mut self, name: &str, at: usize, bytes: usize, value: Value<'_>);

    /// Reports a part: its name (parts of one kind are counted together), its offset and its length.
    fn part(&mut self, name: Arguments<'_>, at: usize, bytes: usize);

    /// Whether to report a text for every small part: composing them takes time.
    fn wants_details(&self) -> bool {
        false
    }

    /// Reports a contradiction in the frame at this offset.
    fn fault(&mut self, at: usize, what: &'static str);
}

/// An announcement of a frame about the frames after it in its file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Announced {
    /// Number of frames, to the file's end or to the next announcing frame.
    pub frames: u64,
    /// Number of bytes until then, including those of the announcing frame.
    pub bytes: u64,
}

/// A format that can describe the contents of a frame.
pub trait Describe: Framing {
    /// Whether bytes begin like this format. Some kilobytes from a file's beginning are enough; a datagram should be
    /// whole.
    fn looks_like(&self, first: &[u8]) -> bool;

    /// Reports the contents of a frame. Accepts any bytes: a contradiction is a fault, and ends the report if nothing
    /// behind it can be trusted.
    fn describe(&self, frame: &[u8], to: &mut dyn Inspector);

    /// Whether the frame only continues an earlier one, so that its event number is not a new one.
    fn goes_on(&self, frame: &[u8]) -> bool {
        self.fields(frame).goes_on()
    }

    /// Whether bytes that belong to no frame are filler that the format's files have between frames.
    fn is_filler(&self, skipped: &[u8]) -> bool {
        let _ = skipped;
        false
    }

    /// The announcement of a frame that is a file's header and no event.
    fn announces(&self, frame: &[u8]) -> Option<Announced> {
        let _ = frame;
        None
    }
}

/// Events in an emulated multi-event packet.
pub const EMULATED_PACKING: u32 = 4;
/// Maximum bytes of an event in an emulated EJFAT segment.
const SEGMENT_BYTES: usize = 8192;
/// The bunch crossing of all emulated frames.
const BUNCH_CROSSING: u16 = 77;

/// The contents of an emulated frame.
#[derive(Copy, Clone)]
struct Wish<'a> {
    source: u32,
    event: u32,
    payload: &'a [u8],
}

impl ForeignFormat {
    /// The frames with a source's part of an event: one, unless the format cuts events into several. As many bits of
    /// `source` are used as the format has. Multi-event packets hold [`EMULATED_PACKING`] events; the number of their
    /// first event is `event` times as many. `None` if the payload is too long for a frame.
    pub fn emulate(self, source: u32, event: u32, payload: &[u8]) -> Option<Vec<Vec<u8>>> {
        let (wish, mut frame) = (Wish { source, event, payload }, Vec::new());
        let out = &mut frame;
        match self {
            Self::Ejfat => return Some(segments(wish)),
            Self::Ferol => return blocks(wish),
            Self::Alice => return pages(wish),
            Self::Midas => event_with_banks(wish, out),
            Self::Eudaq => event_of_a_plane(wish, out),
            Self::Dune => dune_fragment(wish, out),
            Self::Atlas => full_event(wish, out),
            Self::Mdf => record(wish, out)?,
            Self::Frd => event_of_fragments(wish, out)?,
            Self::LhcbBanks => bank(wish, out)?,
            Self::Ess => readouts(wish, out)?,
            Self::Srs => hits(wish, out),
            Self::LhcbMep => packet(wish, out)?,
            Self::Nscldaq => item(wish, out),
            Self::Artdaq => artdaq_fragment(wish, out),
            Self::Fed => fed_fragment(wish, out)?,
            Self::Caen => waveforms(wish, out),
        }
        Some(vec![frame])
    }
}

fn event_with_banks(wish: Wish<'_>, out: &mut Vec<u8>) {
    let header = Header::new().with(midas::ID, wish.source.into()).with(midas::SERIAL, wish.event.into());
    let banks = [(*b"ADC0", 4, wish.payload), (*b"TDC\0", 6, &[1, 2, 3][..])];
    midas::encode_event(header.with(midas::TIME, wish.event.into()), &banks, out);
}

fn event_of_a_plane(wish: Wish<'_>, out: &mut Vec<u8>) {
    let header = Header::new().with(eudaq::STREAM, wish.source.into()).with(eudaq::EVENT, wish.event.into());
    let header = header.with(eudaq::FLAGS, 32).with(eudaq::BEGIN, wish.event.into());
    let inner = eudaq::Event { header, description: "Plane", blocks: &[(3, b"abc")], ..eudaq::Event::default() };
    let (tags, blocks) = ([("Run", "7"), ("", "")], [(0, wish.payload), (1, b"")]);
    let sub_events = vec![inner.clone(), inner];
    eudaq::encode(&eudaq::Event { header, description: "Telescope", tags: &tags, blocks: &blocks, sub_events }, out);
}

fn dune_fragment(wish: Wish<'_>, out: &mut Vec<u8>) {
    let header = Header::new().with(dune::SOURCE, wish.source.into()).with(dune::TRIGGER_NUMBER, wish.event.into());
    let header = header.with(dune::TRIGGER_TIME, wish.event.into()).with(dune::SUBSYSTEM, 1);
    dune::encode(header, wish.payload, out);
}

fn full_event(wish: Wish<'_>, out: &mut Vec<u8>) {
    let padded =
        wish.payload.chunks(4).map(|chunk| chunk.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte)));
    let (data, mut fragment, mut robs): (Vec<u32>, _, _) = (padded.collect(), Vec::new(), Vec::new());
    let header = rod::Header::new(wish.source, wish.event, BUNCH_CROSSING, 5);
    atlas::encode_rod(&header, &data, &mut fragment);
    atlas::encode(atlas::ROB, wish.source, &[], &fragment, &mut robs);
    atlas::encode(atlas::ROB, wish.source + 1, &[], &fragment, &mut robs);
    let own = [10, 20, wish.event, 0, 4711, 6, wish.event, BUNCH_CROSSING.into(), 5];
    atlas::encode(atlas::FULL_EVENT, wish.source, &own, &robs, out);
}

fn fed_fragment(wish: Wish<'_>, out: &mut Vec<u8>) -> Option<()> {
    let header = fed::Header::new(SourceId(wish.source), wish.event, BUNCH_CROSSING);
    let mut payload = wish.payload.to_vec();
    payload.resize(payload.len().next_multiple_of(fed::WORD_BYTES), 0);
    fed::encode(header, &payload, fed::Trailer::new(), out).ok()
}

fn blocks(wish: Wish<'_>) -> Option<Vec<Vec<u8>>> {
    let mut fragment = Vec::new();
    fed_fragment(wish, &mut fragment)?;
    let blocks = ferol::blocks_of(fragment.len(), SourceId(wish.source), wish.event);
    Some(blocks.map(|(header, range)| [&header.to_bytes()[..], &fragment[range]].concat()).collect())
}

fn bank(wish: Wish<'_>, out: &mut Vec<u8>) -> Option<()> {
    encode_bank(&Bank { kind: 12, version: 3, source: wish.source as i16, data: wish.payload }, out).ok()
}

fn packet(wish: Wish<'_>, out: &mut Vec<u8>) -> Option<()> {
    let mut banks = Vec::new();
    bank(wish, &mut banks)?;
    let fragments = (0..EMULATED_PACKING).map(|_| &banks[..]);
    encode_mep(wish.event.wrapping_mul(EMULATED_PACKING), 9, fragments, out).ok()
}

/// Two banks of the source, and one of its neighbour.
fn record(wish: Wish<'_>, out: &mut Vec<u8>) -> Option<()> {
    let mut banks = Vec::new();
    bank(wish, &mut banks)?;
    bank(wish, &mut banks)?;
    bank(Wish { source: wish.source + 1, ..wish }, &mut banks)?;
    let about = mdf::AboutEvent { run: 7, orbit: wish.event, bunch: BUNCH_CROSSING.into(), ..Default::default() };
    mdf::encode_record(&about, &[&banks], out).ok()
}

/// An event of version 5 of two sources.
fn event_of_fragments(wish: Wish<'_>, out: &mut Vec<u8>) -> Option<()> {
    let (mut fragments, event) = (Vec::new(), wish.event.into());
    fed_fragment(wish, &mut fragments)?;
    fed_fragment(Wish { source: wish.source + 1, payload: &[], ..wish }, &mut fragments)?;
    let (version, flags, run, lumisection) = (Version::V5, 0, 7, 1);
    let header = EventHeader { version, flags, run, lumisection, event, data_bytes: 0, padding_bytes: 0, checksum: 0 };
    frd::encode_event(header, &[&fragments], out).ok()
}

fn readouts(wish: Wish<'_>, out: &mut Vec<u8>) -> Option<()> {
    let header = Header::new().with(ess::QUEUE, wish.source.into()).with(ess::SEQUENCE, wish.event.into());
    let header = header.with(ess::PULSE_SECONDS, 1).with(ess::PULSE_TICKS, wish.event.into());
    ess::encode(header, &[(1, 2, wish.payload), (0, 0, b"")], out).then_some(())
}

/// A hit for each byte of payload, and a marker before the last one.
fn hits(wish: Wish<'_>, out: &mut Vec<u8>) {
    let hit = |(&byte, channel): (&u8, usize)| srs::Word::Hit {
        trigger_offset: 31,
        chip: 9,
        channel: channel as u8 & 0x3F,
        adc: u16::from(byte) << 2,
        bunch_crossing: 4000,
        tdc: byte,
        over_threshold: true,
    };
    let mut words: Vec<_> = wish.payload.iter().zip(0..).map(hit).collect();
    words.insert(words.len().saturating_sub(1), srs::Word::Marker { chip: 3, time: 0x3FF_1234_5678 });
    let header = Header::new().with(srs::FEC, wish.source.into()).with(srs::FRAME_COUNTER, wish.event.into());
    srs::encode(header, &words, out);
}

fn segments(wish: Wish<'_>) -> Vec<Vec<u8>> {
    let is_balanced = wish.event.is_multiple_of(2);
    ejfat::encode(wish.event.into(), wish.source as u16, wish.payload, SEGMENT_BYTES, is_balanced)
}

/// A heartbeat frame of two pages: one with the payload, and one that closes it, as the readout cards write them.
fn pages(wish: Wish<'_>) -> Option<Vec<Vec<u8>>> {
    let header = Header::new().with(alice::FEE, wish.source.into()).with(alice::ORBIT, wish.event.into());
    let page = |place: u64, payload: &[u8]| {
        let counter = (2 * u64::from(wish.event) + place) & 0xFF;
        let header = header.with(alice::PACKET_COUNTER, counter).with(alice::PAGE, place).with(alice::STOP, place);
        let mut out = Vec::new();
        alice::encode(header, payload, &mut out).map(|()| out)
    };
    Some(vec![page(0, wish.payload)?, page(1, &[])?])
}

fn item(wish: Wish<'_>, out: &mut Vec<u8>) {
    let header = Header::new().with(nscldaq::TYPE, nscldaq::PHYSICS.into()).with(nscldaq::BODY_HEADER, 20);
    let header = header.with(nscldaq::TIMESTAMP, wish.event.into()).with(nscldaq::SOURCE, wish.source.into());
    nscldaq::encode(header, wish.payload, out);
}

fn artdaq_fragment(wish: Wish<'_>, out: &mut Vec<u8>) {
    let header = Header::new().with(artdaq::FRAGMENT, wish.source.into()).with(artdaq::SEQUENCE, wish.event.into());
    let header = header.with(artdaq::TYPE, 3).with(artdaq::VALID, 1).with(artdaq::COMPLETE, 1);
    artdaq::encode(header.with(artdaq::TIMESTAMP, wish.event.into()), &[*b"metadata"], wish.payload, out);
}

/// Two channels of the same waveform.
fn waveforms(wish: Wish<'_>, out: &mut Vec<u8>) {
    let samples: Vec<u8> = wish.payload.iter().flat_map(|&byte| u16::from(byte).to_le_bytes()).collect();
    let header = Header::new().with(caen::BOARD, wish.source.into()).with(caen::EVENT, wish.event.into());
    caen::encode(header.with(caen::TIME, wish.event.into()), &[&samples, &samples], out);
}
