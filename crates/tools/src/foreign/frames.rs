//! The frames of a file: successive ones, or those in the datagrams and connections of a capture.
//!
//! A file's bytes are read through a window that grows with the longest frame.

use crate::OfflineError;
use crate::origin::open_origin;
use crate::origin::{Packing, Unpacked};
use ropewalk_config::ByteOrigin;
use ropewalk_flow::readout::DatagramLimits;
use ropewalk_flow::trial::Parts;
use ropewalk_terms::{Cause, Utc};
use ropewalk_wire::capture::{
    Aside, CaptureError, CaptureReader, Carried, Found as Captured, Segment, StreamPiece, Streams, Stretches, Traffic,
};
use ropewalk_wire::description::Description;
use ropewalk_wire::foreign::{Describe, ForeignFormat};
use ropewalk_wire::framing::{Framing, Front, Search};
use ropewalk_wire::mending::{Hole, Mended, Mender};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Bytes of the window, as long as no frame is longer.
const WINDOW_BYTES: usize = 1 << 20;
/// This much is read to find out what a file is.
const LOOK_BYTES: usize = 64 << 10;

/// Why an input ends before its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutOff {
    /// Bytes that were read, and are no whole packet or frame.
    pub bytes: u64,
    /// What is wrong, for people.
    pub why: String,
}

/// A file that is read from its beginning to its end.
pub(super) struct Input {
    path: PathBuf,
    read: Unpacked,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes before the buffer's beginning.
    before: u64,
    is_over: bool,
    /// Why reading stopped, if not at the end.
    trouble: Option<String>,
}

impl Input {
    /// Opens a file, a FIFO, or standard input if the path is `-`; decompresses it if it is compressed.
    pub(super) fn open(path: &Path) -> Result<Self, OfflineError> {
        let read: Box<dyn Read + Send> = if path == Path::new("-") {
            Box::new(std::io::stdin())
        } else {
            Box::new(File::open(path).map_err(OfflineError::system("open", path))?)
        };
        Self::of(path, read)
    }

    /// The same for an origin, until `is_over` is set.
    pub(super) fn of_origin(origin: &ByteOrigin, is_over: &Arc<AtomicBool>) -> Result<Self, OfflineError> {
        Self::of(origin.path(), open_origin(origin, is_over)?)
    }

    /// The bytes of `read`; `path` is what errors name.
    pub(super) fn of(path: &Path, read: Box<dyn Read + Send>) -> Result<Self, OfflineError> {
        let read = Unpacked::new(read).map_err(OfflineError::system("read", path))?;
        let (path, buffer) = (path.to_owned(), vec![0; WINDOW_BYTES]);
        Ok(Self { path, read, buffer, start: 0, end: 0, before: 0, is_over: false, trouble: None })
    }

    /// How it is packed.
    pub(super) const fn packing(&self) -> Packing {
        self.read.packing()
    }

    /// Why the input ends early, if it does: it cannot be decompressed or read further. The window then holds no whole
    /// frame.
    pub(super) fn cut_off(&self) -> Option<CutOff> {
        let why = self.trouble.clone()?;
        Some(CutOff { bytes: self.window().len() as u64, why })
    }

    /// Reads the rest, and returns its number of bytes including the window.
    pub(super) fn drain(&mut self) -> u64 {
        let from = self.offset();
        while self.fill(self.window().len() + 1) {
            self.take(self.window().len());
        }
        self.bytes_read() - from
    }

    /// What was read and not taken yet.
    pub(super) fn window(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The offset of the window in the (decompressed) file.
    pub(super) const fn offset(&self) -> u64 {
        self.before + self.start as u64
    }

    /// Bytes of the file (unpacked) as far as it was read.
    pub(super) const fn bytes_read(&self) -> u64 {
        self.before + self.end as u64
    }

    /// The file's first bytes, as many as needed to recognise its format.
    pub(super) fn begin(&mut self) -> &[u8] {
        self.fill(LOOK_BYTES);
        self.window()
    }

    /// Takes bytes from the window's front.
    pub(super) fn take(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.end - self.start, "what is taken was there");
        self.start += bytes;
    }

    /// Reads until the window has at least this many bytes; false if the file ends before.
    pub(super) fn fill(&mut self, bytes: usize) -> bool {
        if self.start + bytes > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.before += self.start as u64;
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < bytes && !self.is_over {
            if self.end == self.buffer.len() {
                // Grow only as bytes arrive: a length without data costs no memory.
                self.buffer.resize(2 * self.buffer.len(), 0);
            }
            let read = self.read_some();
            self.is_over = read == 0;
            self.end += read;
        }
        self.end - self.start >= bytes
    }

    /// Reads the bytes that are available; 0 at the end, or after an error.
    fn read_some(&mut self) -> usize {
        loop {
            match self.read.read(&mut self.buffer[self.end..]) {
                Ok(bytes) => return bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let at = self.before + self.end as u64;
                    let packing = self.packing();
                    self.trouble = Some(match packing {
                        Packing::None => format!("it cannot be read behind {at} bytes: {error}"),
                        _ => format!("{} data cannot be unpacked behind {at} bytes: {error}", packing.name()),
                    });
                    return 0;
                }
            }
        }
    }

    /// Why nothing of it can be read, in that case.
    pub(super) fn unreadable(&self) -> Option<OfflineError> {
        let why = self.trouble.clone().filter(|_| self.bytes_read() == 0)?;
        Some(OfflineError::Unreadable { path: self.path.clone(), why })
    }

    /// An error about what the file is.
    fn unknown_format(&self) -> OfflineError {
        if let Some(error) = self.unreadable() {
            return error;
        }
        let begin = self.window().iter().take(8).map(|byte| format!("{byte:02x} ")).collect::<String>();
        OfflineError::UnknownFormat { path: self.path.clone(), begin: begin.trim_end().to_owned() }
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// The sender in a capture: an address, with its port if it has one.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Peer {
    /// A datagram's or a connection's.
    Port(SocketAddr),
    /// Straight over IP.
    Address(std::net::IpAddr),
}

impl Peer {
    /// Its address, without a port.
    pub(super) const fn address(&self) -> std::net::IpAddr {
        match self {
            Self::Port(address) => address.ip(),
            Self::Address(address) => *address,
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Port(address) => address.fmt(out),
            Self::Address(address) => address.fmt(out),
        }
    }
}

/// A whole frame.
pub(super) struct Frame<'a> {
    pub(super) format: ForeignFormat,
    pub(super) bytes: &'a [u8],
    /// Its offset in the file; for a capture, the offset of the packet that completed it.
    pub(super) offset: u64,
    pub(super) peer: Option<Peer>,
    /// When it passed.
    pub(super) time: Option<Utc>,
}

/// What a file holds, from its front to its end.
pub(super) enum Found<'a> {
    Frame(Frame<'a>),
    /// Bytes that belong to no frame.
    Skipped {
        offset: u64,
        bytes: &'a [u8],
        is_filler: bool,
        cause: Cause,
    },
    /// The start of the next frame is unknown; the rest of the file or connection is not read.
    Lost {
        offset: u64,
        cause: Cause,
    },
    /// Bytes at the end that are no whole frame.
    LeftOver {
        bytes: u64,
    },
    /// The file breaks off.
    CutOff(CutOff),
    /// A packet of a capture.
    Packet {
        time: Option<Utc>,
    },
    /// A packet that belongs to no source.
    Aside {
        aside: Aside,
    },
    /// A datagram that is no frame of this format.
    OtherDatagram {
        port: u16,
    },
    /// Datagrams of which some IP fragments did not come, and frames of which some datagrams did not.
    Unfinished {
        datagrams: u64,
        frames: u64,
    },
    /// What of a connection the capture misses.
    Missed {
        peer: Peer,
        mended: &'a Mended,
    },
    /// The capture itself is damaged.
    Capture {
        offset: u64,
        error: CaptureError,
    },
}

/// Reads a file to its end, and says of which format it is.
pub(super) fn read(
    input: &mut Input,
    format: Option<ForeignFormat>,
    tell: &mut impl FnMut(Found<'_>),
) -> Result<ForeignFormat, OfflineError> {
    let first = input.begin();
    if CaptureReader::recognises(first) {
        let mut capture = Capture::new(format);
        capture.read(input, tell);
        return capture.format.ok_or_else(|| OfflineError::NothingKnown { path: input.path().to_owned() });
    }
    let format = format.or_else(|| ForeignFormat::recognise(first)).ok_or_else(|| input.unknown_format())?;
    if format.needs_datagrams() {
        return Err(OfflineError::NeedsCapture { path: input.path().to_owned(), format: format.name() });
    }
    let mut search = Search::default();
    loop {
        let mut front = format.front(input.window(), &mut search);
        if let Front::Needs { bytes } = front {
            if input.fill(bytes) {
                continue;
            }
            front = format.front_at_end(input.window(), &mut search).unwrap_or(front);
        }
        let (offset, window) = (input.offset(), input.window());
        let bytes = match front {
            Front::Needs { .. } => break,
            Front::Lost { cause } => {
                tell(Found::Lost { offset, cause });
                break;
            }
            Front::Frame { bytes } => {
                tell(Found::Frame(Frame { format, bytes: &window[..bytes], offset, peer: None, time: None }));
                search = Search::default();
                bytes
            }
            Front::Skip { bytes, cause } => {
                tell(skipped(format, offset, &window[..bytes], cause));
                bytes
            }
        };
        input.take(bytes);
    }
    let bytes = input.drain();
    match input.cut_off() {
        Some(cut_off) => tell(Found::CutOff(CutOff { bytes, ..cut_off })),
        None => tell(Found::LeftOver { bytes }),
    }
    Ok(format)
}

fn skipped(format: ForeignFormat, offset: u64, bytes: &[u8], cause: Cause) -> Found<'_> {
    Found::Skipped { offset, bytes, is_filler: format.is_filler(bytes), cause }
}

/// Goes through the packets of a capture.
#[derive(Default)]
pub(super) struct Carriage {
    traffic: Traffic,
}

/// What passes in a capture.
pub(super) enum Passing<'a> {
    /// A packet: its time, its offset in the file, and its content.
    Packet { time: Option<Utc>, offset: u64, carried: Carried<'a> },
    /// The capture itself is damaged.
    Damage { offset: u64, error: CaptureError },
}

/// What is left when all has passed.
pub(super) struct Rest {
    /// Datagrams of which some IP fragments did not come.
    pub(super) unfinished_datagrams: u64,
    /// The capture breaks off.
    pub(super) cut_off: Option<CutOff>,
}

impl Carriage {
    /// Calls `tell` for each packet, to the end or until `tell` stops it.
    pub(super) fn read(mut self, input: &mut Input, tell: &mut impl FnMut(Passing<'_>) -> ControlFlow<()>) -> Rest {
        let mut reader = CaptureReader::new();
        let cut_off = loop {
            let offset = input.offset();
            let (taken, needed, wanted) = match reader.next(input.window()) {
                Ok(Captured::Needs(bytes)) => (0, bytes, ControlFlow::Continue(())),
                Ok(Captured::Other { bytes }) => (bytes, 0, ControlFlow::Continue(())),
                Ok(Captured::Damaged { bytes, error }) => (bytes, 0, tell(Passing::Damage { offset, error })),
                Ok(Captured::Packet { bytes, packet }) => {
                    let (time, carried) = (packet.time, self.traffic.accept(&packet));
                    (bytes, 0, tell(Passing::Packet { time, offset, carried }))
                }
                Err(error) => {
                    let _ = tell(Passing::Damage { offset, error });
                    let bytes = input.drain();
                    break Some(CutOff {
                        bytes,
                        why: format!("the capture cannot be read behind {offset} bytes: {error}"),
                    });
                }
            };
            input.take(taken);
            if wanted.is_break() {
                break None;
            }
            if !input.fill(needed) {
                break ends_within(input, needed);
            }
        };
        Rest { unfinished_datagrams: self.traffic.unfinished_datagrams(), cut_off }
    }
}

/// Why a capture ends here when this many bytes should follow; `None` if it may end here.
fn ends_within(input: &Input, needed: usize) -> Option<CutOff> {
    let bytes = input.window().len();
    let ends = || CutOff {
        bytes: bytes as u64,
        why: format!("the capture ends within a packet, {} bytes before the packet's end", needed - bytes),
    };
    input.cut_off().or_else(|| (bytes > 0).then(ends))
}

/// The frames of a capture.
struct Capture {
    format: Option<ForeignFormat>,
    streams: Streams,
    /// What a segment adds to its stream.
    stretches: Stretches,
    connections: BTreeMap<(SocketAddr, SocketAddr), Connection>,
    parts: Parts,
}

/// The bytes of one direction of a connection that are no whole frame yet.
#[derive(Default)]
struct Connection {
    bytes: Vec<u8>,
    search: Search,
    is_lost: bool,
    /// Finds whole frames after holes, once the format is known.
    mender: Option<Mender>,
}

impl Capture {
    fn new(format: Option<ForeignFormat>) -> Self {
        Self {
            format,
            streams: Streams::new(),
            stretches: Stretches::default(),
            connections: BTreeMap::new(),
            parts: Parts::new(DatagramLimits::USUAL),
        }
    }

    fn read(&mut self, input: &mut Input, tell: &mut impl FnMut(Found<'_>)) {
        let rest = Carriage::default().read(input, &mut |passing| {
            match passing {
                Passing::Packet { time, offset, carried } => self.packet(time, offset, carried, tell),
                Passing::Damage { offset, error } => tell(Found::Capture { offset, error }),
            }
            ControlFlow::Continue(())
        });
        let (format, connections) = (&mut self.format, &mut self.connections);
        let offset = input.offset();
        self.streams.end(&mut |whose, stretches| {
            let (peer, port) = (Peer::Port(whose.0), whose.1.port());
            let connection = connections.entry(whose).or_default();
            connection.take(format, stretches, &Place { offset, time: None, peer, port }, tell);
        });
        for (whose, connection) in &mut self.connections {
            let (peer, port) = (Peer::Port(whose.0), whose.1.port());
            connection.end(self.format, &Place { offset, time: None, peer, port }, tell);
        }
        tell(Found::Unfinished { datagrams: rest.unfinished_datagrams, frames: self.parts.unfinished() });
        let open: usize = self.connections.values().map(|connection| connection.bytes.len()).sum();
        tell(Found::LeftOver { bytes: open as u64 });
        rest.cut_off.into_iter().for_each(|cut_off| tell(Found::CutOff(cut_off)));
    }

    fn packet(&mut self, time: Option<Utc>, offset: u64, carried: Carried<'_>, tell: &mut impl FnMut(Found<'_>)) {
        tell(Found::Packet { time });
        let (format, parts) = (&mut self.format, &mut self.parts);
        match carried {
            Carried::Aside(aside) => tell(Found::Aside { aside }),
            Carried::Datagram(datagram) => {
                let (peer, port) = (Peer::Port(datagram.source), datagram.destination.port());
                read_datagram(format, parts, datagram.payload, &Place { offset, time, peer, port }, tell);
            }
            Carried::Other(ip) => {
                let place = Place { offset, time, peer: Peer::Address(ip.source), port: 0 };
                read_datagram(format, parts, ip.payload, &place, tell);
            }
            Carried::Segment(segment) => {
                self.stretches.clear();
                self.streams.accept(&segment, &mut self.stretches);
                let connection = self.connections.entry((segment.source, segment.destination)).or_default();
                let (peer, port) = (Peer::Port(segment.source), segment.destination.port());
                connection.take(format, &self.stretches, &Place { offset, time, peer, port }, tell);
            }
        }
    }
}

/// Where in a capture something is.
struct Place {
    offset: u64,
    time: Option<Utc>,
    peer: Peer,
    /// The destination port.
    port: u16,
}

impl Place {
    fn frame<'a>(&self, format: ForeignFormat, bytes: &'a [u8]) -> Found<'a> {
        Found::Frame(Frame { format, bytes, offset: self.offset, peer: Some(self.peer), time: self.time })
    }
}

/// The frames of a datagram: successive ones, or the one that this datagram completes. A datagram that does not begin
/// with a frame is not part of this data.
fn read_datagram(
    format: &mut Option<ForeignFormat>,
    parts: &mut Parts,
    payload: &[u8],
    place: &Place,
    tell: &mut impl FnMut(Found<'_>),
) {
    *format = format.or_else(|| ForeignFormat::recognise_datagram(payload));
    let begins = |format: &ForeignFormat| matches!(format.front(payload, &mut Search::default()), Front::Frame { .. });
    let Some(format) = format.filter(begins) else { return tell(Found::OtherDatagram { port: place.port }) };
    if let Some(piece) = format.piece(payload) {
        let from = Some(place.peer.address());
        if let Some(whole) = parts.accept(from, place.time, &piece, payload, format.most()) {
            tell(place.frame(format, &whole));
        }
        return;
    }
    let mut rest = payload;
    while !rest.is_empty() {
        let bytes = match format.front(rest, &mut Search::default()) {
            Front::Frame { bytes } => {
                tell(place.frame(format, &rest[..bytes]));
                bytes
            }
            Front::Skip { bytes, cause } => {
                tell(skipped(format, place.offset, &rest[..bytes], cause));
                bytes
            }
            Front::Needs { .. } | Front::Lost { .. } => {
                let (offset, cause) = (place.offset, Cause::LengthMismatch);
                return tell(Found::Skipped { offset, bytes: rest, is_filler: false, cause });
            }
        };
        rest = &rest[bytes..];
    }
}

impl Connection {
    /// Takes what follows in its stream.
    fn take(
        &mut self,
        format: &mut Option<ForeignFormat>,
        stretches: &Stretches,
        place: &Place,
        tell: &mut impl FnMut(Found<'_>),
    ) {
        for (piece, bytes) in stretches.iter() {
            let Some(mender) = &mut self.mender else {
                self.begin(format, piece, bytes, place, tell);
                continue;
            };
            let whole = &mut self.bytes;
            let mut give = |bytes: &[u8]| {
                whole.extend_from_slice(bytes);
                true
            };
            if piece.begins {
                mender.begin(&mut give);
            }
            if piece.lost_bytes > 0 {
                mender.miss(piece.lost_bytes, &mut give);
            }
            if piece.begins || piece.lost_bytes > 0 {
                self.read_whole(*format, place, tell);
                // The bytes before are not the beginning of what follows.
                tell(Found::LeftOver { bytes: self.bytes.len() as u64 });
                self.bytes.clear();
                (self.search, self.is_lost) = (Search::default(), false);
            }
            self.push(bytes);
            self.read_whole(*format, place, tell);
        }
    }

    /// Takes the first bytes of a stream, until its format is known.
    fn begin(
        &mut self,
        format: &mut Option<ForeignFormat>,
        piece: StreamPiece,
        bytes: &[u8],
        place: &Place,
        tell: &mut impl FnMut(Found<'_>),
    ) {
        if piece.lost_bytes > 0 || piece.begins && !self.bytes.is_empty() {
            let dropped = self.bytes.len() as u64;
            let hole = Hole { at: dropped, bytes: piece.lost_bytes, dropped };
            let first_holes = if piece.lost_bytes > 0 { vec![hole] } else { Vec::new() };
            let holes = first_holes.len() as u64;
            let mended = Mended { holes, missing_bytes: piece.lost_bytes, dropped_bytes: dropped, first_holes };
            tell(Found::Missed { peer: place.peer, mended: &mended });
            self.bytes.clear();
        }
        self.bytes.extend_from_slice(bytes);
        *format = format.or_else(|| ForeignFormat::recognise(&self.bytes));
        match format.filter(|format| !format.needs_datagrams()) {
            Some(known) => {
                self.mender = Some(Mender::new(Some(Description::Format(known).into()), known.most()));
                let first = std::mem::take(&mut self.bytes);
                self.push(&first);
                self.read_whole(*format, place, tell);
            }
            // Of no known format: kept for a while, until the format is recognised.
            None if self.bytes.len() > MOST_UNKNOWN_BYTES => self.bytes.clear(),
            None => {}
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let (mender, whole) = (&mut self.mender, &mut self.bytes);
        if let Some(mender) = mender {
            mender.push(bytes, &mut |bytes| {
                whole.extend_from_slice(bytes);
                true
            });
        }
    }

    /// The stream has ended.
    fn end(&mut self, format: Option<ForeignFormat>, place: &Place, tell: &mut impl FnMut(Found<'_>)) {
        let (mender, whole) = (&mut self.mender, &mut self.bytes);
        if let Some(mender) = mender {
            mender.end(&mut |bytes| {
                whole.extend_from_slice(bytes);
                true
            });
            self.read_whole(format, place, tell);
        }
        if let Some(mended) = self.mender.as_ref().map(Mender::mended).filter(|mended| **mended != Mended::default()) {
            tell(Found::Missed { peer: place.peer, mended });
        }
    }

    /// Reads the whole frames.
    fn read_whole(&mut self, format: Option<ForeignFormat>, place: &Place, tell: &mut impl FnMut(Found<'_>)) {
        match format.filter(|_| !self.is_lost) {
            Some(format) => self.read(format, place, tell),
            None => self.bytes.clear(),
        }
    }

    fn read(&mut self, format: ForeignFormat, place: &Place, tell: &mut impl FnMut(Found<'_>)) {
        let mut at = 0;
        loop {
            let window = &self.bytes[at..];
            at += match format.front(window, &mut self.search) {
                Front::Needs { .. } => break,
                Front::Lost { cause } => {
                    tell(Found::Lost { offset: place.offset, cause });
                    (self.is_lost, at) = (true, self.bytes.len());
                    break;
                }
                Front::Frame { bytes } => {
                    tell(place.frame(format, &window[..bytes]));
                    self.search = Search::default();
                    bytes
                }
                Front::Skip { bytes, cause } => {
                    tell(skipped(format, place.offset, &window[..bytes], cause));
                    bytes
                }
            };
        }
        self.bytes.drain(..at);
    }
}

/// Bytes of a connection that are kept while its format is unknown.
const MOST_UNKNOWN_BYTES: usize = 1 << 20;

/// The most connections that are counted apart. No recording of one detector has more.
const MOST_CONNECTIONS: usize = 1024;

/// The directions of a capture's connections that carry something, in the order in which they began to. One that was
/// cut off and comes again is the same.
#[derive(Debug, Default)]
pub(super) struct Connections {
    known: Vec<KnownConnection>,
}

#[derive(Debug)]
struct KnownConnection {
    source: SocketAddr,
    destination: SocketAddr,
    has_ended: bool,
}

impl KnownConnection {
    fn is(&self, source: SocketAddr, destination: SocketAddr) -> bool {
        self.source == source && self.destination == destination
    }

    /// Whether it ended, and this is it again: between the same two machines, and to or from the same service.
    fn is_again(&self, source: SocketAddr, destination: SocketAddr) -> bool {
        let same_machines = self.source.ip() == source.ip() && self.destination.ip() == destination.ip();
        self.has_ended && same_machines && (self.source == source || self.destination == destination)
    }
}

impl Connections {
    /// The number of a direction that is known.
    pub(super) fn known(&self, (source, destination): (SocketAddr, SocketAddr)) -> Option<usize> {
        self.known.iter().position(|known| known.is(source, destination))
    }

    /// The number of a segment's connection, from 0; `None` as long as it carried nothing, such as the direction with
    /// the acknowledgements to a board.
    pub(super) fn number_of(&mut self, segment: &Segment<'_>) -> Option<usize> {
        let Segment { source, destination, ends, payload, .. } = *segment;
        // If the capture lacks the first bytes, the following ones wait, and still belong to the source.
        let carries = !payload.is_empty();
        let known = self.known.iter().position(|known| known.is(source, destination));
        let again = || self.known.iter().position(|known| carries && known.is_again(source, destination));
        let known = known.or_else(again);
        let connection = KnownConnection { source, destination, has_ended: ends };
        match known {
            Some(number) => {
                self.known[number] = connection;
                Some(number)
            }
            None if carries && self.known.len() < MOST_CONNECTIONS => {
                self.known.push(connection);
                Some(self.known.len() - 1)
            }
            None => None,
        }
    }
}
