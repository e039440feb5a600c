//! Unknown frames looked at: out of a capture, or as they come to a port. The result is one JSON object, and a draft of
//! a `[[source]]`, to be tried and corrected.

use super::frames::{Carriage, CutOff, Input, Passing};
use super::recording::{SavedAs, capture_begin};
use super::replay::StandIns;
use crate::OfflineError;
use ropewalk_flow::sniff::{Findings, Group, Guess, Limits, Meaning, Peer, PeerAccount, Sniffer, Transport, draft};
use ropewalk_terms::{Instant, Utc};
use ropewalk_wire::capture::{CaptureReader, Carried, Streams, Stretches};
use ropewalk_wire::layout::{Checksum, Clock, Counts, Frame, Layout, Length, Number, Pattern, Size};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The interval of checks of the time limit.
const LOOK: Duration = Duration::from_millis(100);
/// How long the connections are not polled after none of them had data.
const REST: Duration = Duration::from_millis(1);
/// Bytes of the longest datagram, and of the longest piece of a stream.
const MOST_BYTES: usize = 0xFFFF;
/// Bytes of a file that are read.
const MOST_OF_FILE: usize = 4 << 20;
/// The most connections that are read.
const MOST_CONNECTIONS: usize = 32;

/// What was found in a file.
#[derive(Clone, Debug)]
pub struct Sniffed {
    /// What bytes mean.
    pub findings: Findings,
    /// The file breaks off.
    pub cut_off: Option<CutOff>,
    /// Bytes of connections that a capture misses.
    pub missed_bytes: u64,
}

/// Looks at the datagrams and connections of a capture, or at the bytes of another file.
///
/// # Errors
/// If it cannot be read.
pub fn sniff_file(path: &Path) -> Result<Sniffed, OfflineError> {
    let mut input = Input::open(path)?;
    if !CaptureReader::recognises(input.begin()) {
        return Ok(sniff_plain(&mut input));
    }
    let (mut sniffer, mut streams, mut stretches) =
        (Sniffer::new(Limits::default()), Streams::new(), Stretches::default());
    let mut missed_bytes = 0;
    let rest = Carriage::default().read(&mut input, &mut |passing| {
        let Passing::Packet { time, carried, .. } = passing else { return ControlFlow::Continue(()) };
        let now = instant(time.unwrap_or(Utc(0)));
        match carried {
            Carried::Datagram(datagram) => {
                let (port, from) = (datagram.destination.port(), datagram.source);
                sniffer.accept(Peer { port, transport: Transport::Udp, from }, now, datagram.payload);
            }
            Carried::Segment(segment) => {
                stretches.clear();
                streams.accept(&segment, &mut stretches);
                missed_bytes += hear((segment.source, segment.destination), &stretches, now, &mut sniffer);
            }
            Carried::Other(_) | Carried::Aside(_) => {}
        }
        ControlFlow::Continue(())
    });
    streams.end(&mut |whose, stretches| missed_bytes += hear(whose, stretches, Instant::ZERO, &mut sniffer));
    Ok(Sniffed { findings: sniffer.findings(), cut_off: rest.cut_off, missed_bytes })
}

/// Looks at the first bytes of a file that is no capture.
fn sniff_plain(input: &mut Input) -> Sniffed {
    let from = SocketAddr::from(([0; 4], 0));
    let peer = Peer { port: 0, transport: Transport::File, from };
    let mut sniffer = Sniffer::new(Limits { stream_bytes: MOST_OF_FILE, ..Limits::default() });
    let mut left = MOST_OF_FILE;
    while left > 0 && (input.fill(MOST_BYTES) || !input.window().is_empty()) {
        let bytes = input.window().len().min(left);
        sniffer.accept(peer, Instant::ZERO, &input.window()[..bytes]);
        input.take(bytes);
        left -= bytes;
    }
    Sniffed { findings: sniffer.findings(), cut_off: input.cut_off(), missed_bytes: 0 }
}

/// Adds the next bytes of a stream, and the number of missing ones.
fn hear((from, to): (SocketAddr, SocketAddr), stretches: &Stretches, now: Instant, sniffer: &mut Sniffer) -> u64 {
    let peer = Peer { port: to.port(), transport: Transport::Tcp, from };
    let mut missed = 0;
    for (piece, bytes) in stretches.iter() {
        missed += piece.lost_bytes;
        if piece.begins || piece.lost_bytes > 0 {
            sniffer.break_off(peer);
        }
        if !bytes.is_empty() {
            sniffer.accept(peer, now, bytes);
        }
    }
    missed
}

/// Looks at the datagrams that a socket receives for this long, and saves them as pcapng if requested.
///
/// # Errors
/// If the socket fails, or the file cannot be written.
pub fn sniff_datagrams(socket: &UdpSocket, time: Duration, save: Option<&Path>) -> Result<Findings, OfflineError> {
    let local = socket.local_addr().map_err(failed)?;
    socket.set_read_timeout(Some(LOOK)).map_err(failed)?;
    let mut save = save.map(Save::capture).transpose()?;
    let (end, mut sniffer, mut room) =
        (std::time::Instant::now() + time, Sniffer::new(Limits::default()), vec![0; MOST_BYTES]);
    while std::time::Instant::now() < end {
        let (bytes, from) = match socket.recv_from(&mut room) {
            Ok(received) => received,
            Err(error) if is_patience(error.kind()) => continue,
            Err(error) => return Err(failed(error)),
        };
        let now = now();
        sniffer.accept(Peer { port: local.port(), transport: Transport::Udp, from }, instant(now), &room[..bytes]);
        if let Some(save) = &mut save {
            save.datagram(now, from, local, &room[..bytes])?;
        }
    }
    save.map(Save::finish).transpose()?;
    Ok(sniffer.findings())
}

/// Looks at what connections send that come to a listener within this long, and saves the bytes of the first one where
/// that is wanted.
///
/// # Errors
/// If the listener fails, or the file cannot be written.
pub fn sniff_connections(
    listener: &TcpListener,
    time: Duration,
    save: Option<&Path>,
) -> Result<Findings, OfflineError> {
    let port = listener.local_addr().map_err(failed)?.port();
    listener.set_nonblocking(true).map_err(failed)?;
    let mut save = save.map(Save::create).transpose()?;
    let (end, mut sniffer, mut room) =
        (std::time::Instant::now() + time, Sniffer::new(Limits::default()), vec![0; MOST_BYTES]);
    let mut connections: Vec<(TcpStream, SocketAddr)> = Vec::new();
    let mut first = None;
    while std::time::Instant::now() < end {
        let mut is_quiet = true;
        match listener.accept() {
            Ok((connection, from)) if connections.len() < MOST_CONNECTIONS => {
                connection.set_nonblocking(true).map_err(failed)?;
                first.get_or_insert(from);
                connections.push((connection, from));
            }
            Ok(_) => {}
            Err(error) if is_patience(error.kind()) => {}
            Err(error) => return Err(failed(error)),
        }
        let mut saved = Ok(());
        connections.retain_mut(|(connection, from)| match connection.read(&mut room) {
            Ok(0) => false,
            Ok(bytes) => {
                is_quiet = false;
                let peer = Peer { port, transport: Transport::Tcp, from: *from };
                sniffer.accept(peer, instant(now()), &room[..bytes]);
                if let Some(save) = save.as_mut().filter(|_| first == Some(*from) && saved.is_ok()) {
                    saved = save.write(&room[..bytes]);
                }
                true
            }
            Err(error) => is_patience(error.kind()),
        });
        saved?;
        if is_quiet {
            std::thread::sleep(REST);
        }
    }
    save.map(Save::finish).transpose()?;
    Ok(sniffer.findings())
}

fn is_patience(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn failed(error: std::io::Error) -> OfflineError {
    OfflineError::Target { target: "receiving".to_owned(), error }
}

pub(super) fn now() -> Utc {
    Utc::from(SystemTime::now())
}

const fn instant(time: Utc) -> Instant {
    Instant::from_nanoseconds(if time.0 > 0 { time.0 as u64 } else { 0 })
}

/// What was received, as a file.
struct Save {
    path: PathBuf,
    file: BufWriter<File>,
    block: Vec<u8>,
}

impl Save {
    fn create(path: &Path) -> Result<Self, OfflineError> {
        let file = File::create(path).map_err(OfflineError::system("create", path))?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file), block: Vec::new() })
    }

    /// A capture of IP packets.
    fn capture(path: &Path) -> Result<Self, OfflineError> {
        let mut save = Self::create(path)?;
        save.write(&capture_begin())?;
        Ok(save)
    }

    /// Writes a datagram as the IP packet that it came in, as far as a socket tells.
    fn datagram(&mut self, time: Utc, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Result<(), OfflineError> {
        self.block.clear();
        SavedAs::Datagrams(to).encode(time, from, payload, &mut self.block);
        let block = std::mem::take(&mut self.block);
        self.write(&block)?;
        self.block = block;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), OfflineError> {
        self.file.write_all(bytes).map_err(OfflineError::system("write", &self.path))
    }

    fn finish(mut self) -> Result<(), OfflineError> {
        self.file.flush().map_err(OfflineError::system("write", &self.path))
    }
}

/// The schema of [`SniffReport`] as JSON: `docs/schema/sniff.json`.
pub const SNIFF_SCHEMA: &str = "ropewalk-sniff-1";

/// The structure found in unknown frames.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(title = "ropewalk sniff --json")]
pub struct SniffReport {
    /// The form's name and version.
    #[schemars(extend("const" = SNIFF_SCHEMA))]
    pub schema: &'static str,
    /// The frames of each destination.
    pub groups: Vec<GroupReport>,
    /// Packets of peers that were too many to be looked at.
    pub unheard: u64,
    /// Why the input is truncated; null if it is not.
    pub cut_off: Option<String>,
    /// Bytes of connections that a capture misses.
    pub missed_bytes: u64,
}

/// Peers that send to one place.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct GroupReport {
    /// The port; 0 of a file.
    pub port: u16,
    /// How frames arrived.
    pub transport: TransportReport,
    /// The senders.
    pub peers: Vec<PeerReport>,
    /// Frames that were looked at.
    pub frames: u64,
    /// Bytes of the shortest of them.
    pub least_frame: usize,
    /// Bytes of the longest of them.
    pub most_frame: usize,
    /// What bytes may mean.
    pub guesses: Vec<GuessReport>,
    /// Bytes of streams and files that belong to no frame.
    pub unframed_bytes: u64,
    /// Why the draft may be wrong; if empty, it is right for all frames that were examined.
    pub doubts: Vec<String>,
    /// What was looked for and not found.
    pub notes: Vec<String>,
    /// A draft of the sources, in TOML; null if no frames were found.
    pub draft: Option<String>,
}

/// How frames arrived.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransportReport {
    /// In datagrams, each of which is a frame.
    Udp,
    /// As a stream, in which frames have no visible end.
    Tcp,
    /// As the bytes of a file, from the first one on.
    File,
}

/// A peer.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct PeerReport {
    /// Its address.
    pub from: String,
    /// Datagrams, or pieces of a stream as they were received.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of the shortest one.
    pub least_bytes: usize,
    /// Bytes of the longest one.
    pub most_bytes: usize,
    /// Packets in a second; 0 if all came at once.
    #[schemars(range(min = 0))]
    pub rate_hz: f64,
}

/// What some bytes may mean.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct GuessReport {
    /// What they may mean.
    pub meaning: MeaningReport,
    /// Bytes of the frame before it; below 0, counted from the frame's end.
    pub at: i32,
    /// How many bytes it has.
    pub bytes: usize,
    /// Whether the first is the most significant one; null if that means nothing.
    pub is_big_endian: Option<bool>,
    /// The bits of the field; null for all.
    pub mask: Option<u64>,
    /// A clock's tick in nanoseconds; null of anything else.
    pub tick_ns: Option<f64>,
    /// The number of frames, or pairs of frames, in which it holds, out of `of`.
    pub holds: u64,
    /// The number of frames, or pairs of frames, examined.
    pub of: u64,
    /// The same for people.
    pub text: String,
}

/// What some bytes of a frame may mean.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MeaningReport {
    /// How long the frame is.
    Length,
    /// Increases by one in each frame of a peer.
    FrameCounter,
    /// Increases by the same number, more than one, in each frame of a peer.
    SteppedCounter,
    /// Constant, and now and then one more.
    SlowCounter,
    /// Increases with time.
    Clock,
    /// The value of another number in the previous frame.
    Before,
    /// Always the same bytes.
    Constant,
    /// Constant for a peer, and different between peers.
    Peer,
    /// A checksum of the frame.
    Checksum,
}

impl SniffReport {
    /// The same as numbers and texts; `input` is what was looked at.
    pub fn new(Sniffed { findings, cut_off, missed_bytes }: &Sniffed, input: &str, naming: &Naming) -> Self {
        let drafts = drafts(&findings.groups, input, naming);
        let groups = findings.groups.iter().zip(drafts).map(|(one, draft)| group(one, draft)).collect();
        let cut_off = cut_off.as_ref().map(|cut_off| cut_off.why.clone());
        Self { schema: SNIFF_SCHEMA, groups, unheard: findings.unheard, cut_off, missed_bytes: *missed_bytes }
    }
}

fn group(group: &Group, draft: Option<String>) -> GroupReport {
    let peer = group.peers.first().map(|account| account.peer);
    GroupReport {
        port: peer.map_or(0, |peer| peer.port),
        transport: match peer.map(|peer| peer.transport) {
            Some(Transport::Tcp) => TransportReport::Tcp,
            Some(Transport::File) => TransportReport::File,
            Some(Transport::Udp) | None => TransportReport::Udp,
        },
        peers: group.peers.iter().map(peer_report).collect(),
        frames: group.frames,
        least_frame: group.least_frame,
        most_frame: group.most_frame,
        guesses: group.guesses.iter().map(guess).collect(),
        unframed_bytes: group.unframed_bytes,
        doubts: group.doubts.iter().map(ToString::to_string).collect(),
        notes: group.notes.iter().map(ToString::to_string).collect(),
        draft,
    }
}

fn peer_report(account: &PeerAccount) -> PeerReport {
    PeerReport {
        from: account.peer.from.to_string(),
        packets: account.packets,
        bytes: account.bytes,
        least_bytes: account.least_bytes,
        most_bytes: account.most_bytes,
        rate_hz: account.rate(),
    }
}

fn guess(guess: &Guess) -> GuessReport {
    let (meaning, tick_ns) = match &guess.meaning {
        Meaning::Length(_) => (MeaningReport::Length, None),
        Meaning::FrameCounter { .. } => (MeaningReport::FrameCounter, None),
        Meaning::Steps { .. } => (MeaningReport::SteppedCounter, None),
        Meaning::SlowCounter { .. } => (MeaningReport::SlowCounter, None),
        Meaning::Clock { tick, .. } => (MeaningReport::Clock, Some(*tick)),
        Meaning::Before { .. } => (MeaningReport::Before, None),
        Meaning::Constant { .. } => (MeaningReport::Constant, None),
        Meaning::Peer { .. } => (MeaningReport::Peer, None),
        Meaning::Checksum(_) => (MeaningReport::Checksum, None),
    };
    let number = match &guess.meaning {
        Meaning::Checksum(checksum) => Some(&checksum.number),
        _ => guess.number(),
    };
    let (at, bytes) = match &guess.meaning {
        Meaning::Constant { at, bytes } => (*at as i32, bytes.len()),
        _ => number.map_or((0, 0), |number| (number.at, usize::from(number.bytes))),
    };
    GuessReport {
        meaning,
        at,
        bytes,
        is_big_endian: number.filter(|number| number.bytes > 1).map(|number| number.is_big_endian),
        mask: number.and_then(|number| number.mask),
        tick_ns,
        holds: guess.holds,
        of: guess.of,
        text: guess.to_string(),
    }
}

/// The tables of the boards of each group, one for each address that datagrams come from; `None` if no frames were
/// found. With a `[[readout]]` named `ru0` beside them, all together are a valid configuration. `input` is the file in
/// which the frames of a file were found.
pub fn drafts(groups: &[Group], input: &str, naming: &Naming) -> Vec<Option<String>> {
    let mut sources = 0;
    groups.iter().map(|group| draft_text(group, input, naming, &mut sources)).collect()
}

/// The names and ids of the sources in drafts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Naming {
    /// The name of the first source; further ones get a number. `None`: `board-` and the id.
    pub name: Option<String>,
    /// The id of the first source; further ones follow.
    pub id: u32,
}

impl Default for Naming {
    fn default() -> Self {
        Self { name: None, id: 1 }
    }
}

impl Naming {
    /// The name and the id of the source with this index.
    fn of(&self, index: u32) -> (String, u32) {
        let id = self.id.saturating_add(index);
        let name = match (&self.name, index) {
            (None, _) => format!("board-{id}"),
            (Some(name), 0) => name.clone(),
            (Some(name), index) => format!("{name}-{}", index + 1),
        };
        (name, id)
    }
}

/// The tables of a group, after this many sources of other groups.
fn draft_text(group: &Group, input: &str, naming: &Naming, sources: &mut u32) -> Option<String> {
    let layout = draft(group)?;
    let (peer, is_udp) = (group.peers.first()?.peer, group.peers[0].peer.transport == Transport::Udp);
    let addresses: BTreeSet<IpAddr> = group.peers.iter().map(|account| account.peer.from.ip()).collect();
    let boards: Vec<Option<IpAddr>> =
        if is_udp && addresses.len() > 1 { addresses.into_iter().map(Some).collect() } else { vec![None] };
    let (mut text, mut stand_ins) = (String::new(), StandIns::default());
    // In the order in which a replay comes across them.
    group.peers.iter().for_each(|account| _ = stand_ins.of(account.peer.from.ip()));
    for (index, board) in boards.iter().enumerate() {
        let scheme = if is_udp { "udp" } else { "tcp" };
        let is_file = peer.transport == Transport::File;
        let separator = if index == 0 { "" } else { "\n" };
        let ((name, id), port) = (naming.of(*sources), peer.port);
        *sources += 1;
        line(&mut text, format_args!("{separator}[[source]]\nname = {name:?}\nid = {id}\nreadout = \"ru0\""));
        let any = if peer.from.is_ipv6() { "[::]" } else { "0.0.0.0" };
        if is_file {
            line(&mut text, format_args!("input = {input:?}"));
        } else {
            line(&mut text, format_args!("listen = \"{scheme}://{any}:{port}\""));
        }
        frame(&mut text, &layout);
        if let Some(pattern) = &layout.matches {
            line(&mut text, format_args!("match = {}", pattern_text(pattern)));
        }
        if let Some(board) = board {
            demux(&mut text, *board, stand_ins.of(*board));
        }
        group.doubts.iter().for_each(|doubt| line(&mut text, format_args!("# Not certain: {doubt}")));
        fields(&mut text, &layout);
    }
    Some(text)
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    // A string takes everything.
    let _ = text.write_fmt(words);
    text.push('\n');
}

/// Which board it is, by its own address and by that from which `ropewalk replay` plays it on one machine.
fn demux(text: &mut String, board: IpAddr, here: Ipv4Addr) {
    if board == IpAddr::V4(here) {
        return line(text, format_args!("demux = {{ at = \"ip.source\", is = \"{board}\" }}"));
    }
    line(
        text,
        format_args!("# The board's own address, and the one from which `ropewalk replay` plays it on this machine."),
    );
    line(text, format_args!("demux = {{ at = \"ip.source\", is = [\"{board}\", \"{here}\"] }}"));
}

fn fields(text: &mut String, layout: &Layout) {
    if let Some(event) = layout.event.first() {
        // Without `first`: the board counts on until the run begins, which finds its first number itself.
        line(text, format_args!("event = {{ {} }}", number_text(event)));
    }
    if let Some(sequence) = &layout.sequence {
        line(text, format_args!("sequence = {{ {} }}", number_text(sequence)));
    }
    if let Some(time) = &layout.time {
        line(text, format_args!("time = {{ {} }}", clock_text(time)));
    }
    if let Some(Checksum { kind, number, from, .. }) = &layout.checksum {
        let from = if *from == 0 { String::new() } else { format!(", from = {from}") };
        let (kind, number) = (kind.name(), number_text(number));
        line(text, format_args!("checksum = {{ kind = \"{kind}\", {number}{from} }}"));
    }
}

/// How frames are found.
fn frame(text: &mut String, layout: &Layout) {
    let max = layout.max;
    if matches!(layout.frame, Frame::Length(_) | Frame::Delimiter { .. } | Frame::Sync { size: Size::Length(_), .. }) {
        line(text, format_args!("# `max` is a guess: give the longest frame that the board can send"));
    }
    match &layout.frame {
        Frame::Length(length) => {
            line(text, format_args!("frame = {{ length = {{ {} }}, max = \"{max}B\" }}", length_text(length)));
        }
        Frame::Fixed { bytes } => line(text, format_args!("frame = {{ fixed = \"{bytes}B\" }}")),
        Frame::Sync { word, size: Size::Fixed { bytes } } => {
            line(text, format_args!("frame = {{ sync = {}, fixed = \"{bytes}B\" }}", bytes_text(word)));
        }
        Frame::Sync { word, size: Size::Length(length) } => {
            let (word, length) = (bytes_text(word), length_text(length));
            line(text, format_args!("frame = {{ sync = {word}, length = {{ {length} }}, max = \"{max}B\" }}"));
        }
        Frame::Delimiter { bytes } => {
            line(text, format_args!("frame = {{ delimiter = {}, max = \"{max}B\" }}", bytes_text(bytes)));
        }
        // These forms are not guessed.
        Frame::Datagram | Frame::Several(_) | Frame::Pieces(_) | Frame::Trailer { .. } => {
            line(text, format_args!("frame = \"datagram\""));
        }
    }
}

fn number_text(number: &Number) -> String {
    let Number { at, bytes, is_big_endian, mask, .. } = *number;
    let order = match (bytes, is_big_endian) {
        (1, _) => "",
        (_, true) => "be",
        (_, false) => "le",
    };
    let mask = mask.map_or_else(String::new, |mask| format!(", mask = {mask:#x}"));
    format!("at = {at}, type = \"u{}{order}\"{mask}", 8 * u32::from(bytes))
}

fn length_text(length: &Length) -> String {
    let mut text = number_text(&length.number);
    if length.unit > 1 {
        let _ = write!(text, ", unit = {}", length.unit);
    }
    let _ = match length.counts {
        Counts::Frame => Ok(()),
        Counts::AfterField => write!(text, ", counts = \"after-field\""),
        Counts::Payload { header } => write!(text, ", counts = \"payload\", header = {header}"),
    };
    if length.add != 0 {
        let _ = write!(text, ", add = {}", length.add);
    }
    text
}

fn clock_text(clock: &Clock) -> String {
    let ticks = clock.ticks.first().map(number_text).unwrap_or_default();
    // The period or the frequency, which is the rounder number.
    let period = format!("{}ns", clock.tick_attoseconds as f64 / 1e9);
    let frequency = format!("{}MHz", (1e18 / clock.tick_attoseconds as f64).round() / 1e6);
    let tick = if frequency.len() < period.len() { frequency } else { period };
    let seconds = clock
        .seconds
        .as_ref()
        .map_or_else(String::new, |seconds| format!(", seconds = {{ {} }}", number_text(seconds)));
    format!("{ticks}, tick = \"{tick}\"{seconds}")
}

fn pattern_text(pattern: &Pattern) -> String {
    format!("{{ at = {}, bytes = {} }}", pattern.at, bytes_text(&pattern.bytes))
}

/// Printable letters as they are, other bytes as numbers.
fn bytes_text(bytes: &[u8]) -> String {
    if bytes.iter().all(u8::is_ascii_alphanumeric) {
        return format!("\"{}\"", bytes.escape_ascii());
    }
    let numbers: Vec<String> = bytes.iter().map(|byte| format!("{byte:#04x}")).collect();
    format!("[{}]", numbers.join(", "))
}
