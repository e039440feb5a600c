//! Recordings instead of sources: such a run makes run files from a recording.
//!
//! ```text
//!  configuration --> the sources whose frames it describes, and no others
//!                --> each is read from the recording: the packets that went where it listens
//!                --> the first event is the first one in the recording, with any number
//! ```
//! Everything else is as in any run, so that the result is what a run would have written. A source is fed with a
//! capture's datagrams or connection, or with the bytes of any other file. In the other direction, received datagrams
//! are saved as a capture: with their own headers, as far as the socket provides them.

use super::account::{give_on, unreadable, write_holes};
use super::frames::{Carriage, Connections, CutOff, Input, Passing};
use super::trial::{TrialOptions, tried};
use crate::{OfflineError, Packing};
use ropewalk_config::{
    ByteOrigin, Configuration, ManagerSection, NetworkAddress, PacketsTable, PlacementChoice, ReadoutSection,
    SourceInput, SourceSection,
};
use ropewalk_flow::choosing::{Carrier, Chooser, ChosenFrames, Wanted};
use ropewalk_flow::trial::TrialAccount;
use ropewalk_terms::Utc;
use ropewalk_wire::capture::{CaptureReader, Carried, LinkType, Streams, Stretches, encode_interface, encode_packet};
use ropewalk_wire::framing::Framing;
use ropewalk_wire::internet::{IpNumber, PacketBuilder};
use ropewalk_wire::mending::Mended;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a run of a recording is taken with.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The configuration. It still determines the place of the run directory.
    pub configuration: Configuration,
    /// Sources that take no part, because nothing describes their frames.
    pub left_out: Vec<String>,
}

/// Replaces the sources of these names, or all whose frames are described if no name is given, by recordings: each a
/// capture or the bytes of one stream. One recording serves all of them; with several, each source has its own, in the
/// order of the names, or of the configuration.
///
/// # Errors
/// If a recording cannot be read, there is no such source, or it cannot hold what these sources sent.
pub fn of_recordings<P: AsRef<Path>>(
    configuration: &Configuration,
    recordings: &[P],
    names: &[String],
) -> Result<Recorded, OfflineError> {
    let recordings: Vec<&Path> = recordings.iter().map(AsRef::as_ref).collect();
    let mut configuration = configuration.clone();
    let left_out = choose(&mut configuration, recordings.first().copied().unwrap_or(Path::new("")), names)?;
    let sources = &mut configuration.source;
    let recordings = of_each(sources, &recordings, names)?;
    for (source, recording) in sources.iter_mut().zip(&recordings) {
        read_from(source, recording);
    }
    begin_at_its_begin(sources, &recordings)?;
    alone(&mut configuration);
    Ok(Recorded { configuration, left_out })
}

/// The recording of each source.
fn of_each<'r>(
    sources: &[SourceSection],
    recordings: &[&'r Path],
    names: &[String],
) -> Result<Vec<&'r Path>, OfflineError> {
    if let [recording] = recordings {
        fits(sources, recording)?;
        return Ok(vec![recording; sources.len()]);
    }
    let known: Vec<String> = sources.iter().map(SourceSection::name_or_id).collect();
    let order = if names.is_empty() { &known[..] } else { names };
    if recordings.len() == known.len() && order.len() == known.len() {
        let place = |name: &String| order.iter().position(|named| named == name);
        return Ok(known.iter().filter_map(|name| Some(recordings[place(name)?])).collect());
    }
    let why = format!(
        "there are {} files for {}: one for each, in the order of --source; or one capture for all, as `mergecap -w all.pcapng \
         ...` makes of several",
        recordings.len(),
        known.join(", ")
    );
    Err(unfit(recordings.first().copied().unwrap_or(Path::new("no file")), why))
}

fn unfit(recording: &Path, why: String) -> OfflineError {
    OfflineError::Recording { path: recording.to_owned(), why }
}

/// Keeps the sources that are meant; says who else there was.
fn choose(configuration: &mut Configuration, recording: &Path, names: &[String]) -> Result<Vec<String>, OfflineError> {
    let known: Vec<String> = configuration.source.iter().map(SourceSection::name_or_id).collect();
    if let Some(stranger) = names.iter().find(|name| !known.contains(name)) {
        return Err(unfit(recording, format!("no source is named `{stranger}`; there are {}", known.join(", "))));
    }
    let is_meant = |source: &SourceSection| {
        if names.is_empty() { source.description().is_some() } else { names.contains(&source.name_or_id()) }
    };
    let (meant, others): (Vec<_>, Vec<_>) = configuration.source.drain(..).partition(is_meant);
    if meant.is_empty() {
        let why = "the configuration describes no frames: a [[source]] does, by `frame` or by a `format` with a name";
        return Err(unfit(recording, why.to_owned()));
    }
    configuration.source = meant;
    let left_out = if names.is_empty() { others.iter().map(SourceSection::name_or_id).collect() } else { Vec::new() };
    Ok(left_out)
}

/// A capture holds what many sent; any other file the bytes of one stream, unless its frames say whose they are.
fn fits(sources: &[SourceSection], recording: &Path) -> Result<(), OfflineError> {
    if CaptureReader::recognises(Input::open(recording)?.begin()) {
        return Ok(());
    }
    let is_several = sources.len() > 1 && sources.iter().any(|source| source.chosen().is_none());
    if is_several {
        let names: Vec<String> = sources.iter().map(SourceSection::name_or_id).collect();
        let why = format!("it is no capture, but the bytes of one source: name which, --source {}", names.join(" or "));
        return Err(unfit(recording, why));
    }
    Ok(())
}

/// Makes a source read from the recording: the packets to its own address, unless it selects others.
fn read_from(source: &mut SourceSection, recording: &Path) {
    let address = |place: &str| place.rsplit_once(':').and_then(|(host, _)| host.parse::<IpAddr>().ok());
    let mut packets = PacketsTable::default();
    match &source.input {
        SourceInput::File(_, selected) => packets = *selected,
        SourceInput::Listen(NetworkAddress::Ip(_, protocol)) => packets.protocol = Some(*protocol),
        SourceInput::Listen(place) => packets.port = place.port(),
        SourceInput::Connect(NetworkAddress::Tcp(place)) => packets.from = address(place),
        _ => {}
    }
    source.input = SourceInput::File(ByteOrigin::File(recording.to_owned()), packets);
    (source.emulate, source.black_box) = (None, None);
}

/// The numbers that a source's events have.
struct Begin {
    bits: u32,
    /// How much higher the first number in the recording is than the first of a run.
    shift: u64,
}

impl Begin {
    /// How far this source begins after the event whose number is higher by `shift`, within the bits of its number.
    const fn after(&self, shift: u64) -> i64 {
        let unused = 64 - self.bits;
        (self.shift.wrapping_sub(shift) << unused) as i64 >> unused
    }
}

/// Who records begins in the middle: the first event is the first one of any source.
fn begin_at_its_begin(sources: &mut [SourceSection], recordings: &[&Path]) -> Result<(), OfflineError> {
    let (mut begins, mut has_frames) = (Vec::new(), false);
    for (source, recording) in sources.iter().zip(recordings) {
        let wanted = source.wanted_beside(sources.iter());
        let Some(account) = account(source, &wanted, recording)? else {
            has_frames = true;
            continue;
        };
        has_frames |= account.frames() > 0;
        begins.extend(begin(source, &account).filter(|_| !source.numbers_grow()));
    }
    if !has_frames {
        let names: Vec<String> = sources.iter().map(SourceSection::name_or_id).collect();
        let why = format!("no frame of {} is in it; `ropewalk source test` shows what is", names.join(", "));
        return Err(unfit(recordings[0], why));
    }
    let Some(widest) = begins.iter().max_by_key(|begin| begin.bits) else { return Ok(()) };
    let earliest = begins.iter().map(|begin| begin.after(widest.shift)).min().unwrap_or(0);
    let shift = widest.shift.wrapping_add_signed(earliest);
    for source in sources {
        // Bits beyond the counter's mean nothing.
        source.first = Some(source.first_event().wrapping_add(shift));
        if let Some(event) = &mut source.event {
            event.first = source.first;
        }
    }
    Ok(())
}

/// The account of a source's recording; `None` if only a run finds its frames.
fn account(source: &SourceSection, wanted: &Wanted, recording: &Path) -> Result<Option<TrialAccount>, OfflineError> {
    let Some(framing) = source.framing() else { return Ok(None) };
    let own = source.tried_board(wanted);
    let (gathers, grows) = (source.gathering().is_some(), source.numbers_grow());
    let (limits, own) = (source.datagram_limits(), own.as_ref());
    let bits = source.counter_bits.unwrap_or(64);
    let options = TrialOptions { framing: &framing, gathers, grows, bits, limits, own, input: recording, wanted };
    let (account, _) = tried(&options, None)?;
    Ok(Some(account))
}

/// The first number of a source; `None` if it has no numbers, or if nothing of it was recorded.
fn begin(source: &SourceSection, account: &TrialAccount) -> Option<Begin> {
    let widths = source.framing()?.widths();
    let (first, bits) = first_of(account, (widths.event, widths.sequence))?;
    let bits = u32::from(source.counter_bits.unwrap_or(bits).clamp(8, 64));
    Some(Begin { bits, shift: first.wrapping_sub(source.first_event()) })
}

/// The first number of a source's own boards, and its bits.
fn first_of(account: &TrialAccount, (event, sequence): (u8, u8)) -> Option<(u64, u8)> {
    account.boards.iter().find_map(|(_, account)| {
        account.event.first.map(|first| (first, event)).or(account.sequence.first.map(|first| (first, sequence)))
    })
}

/// Nothing but the recording is needed: no network, no rule about another machine's cores, one place to write to.
fn alone(configuration: &mut Configuration) {
    let Configuration { run, readout, builder, manager, source, felix, synchrony, thread, pool, .. } = configuration;
    (run.duration, run.events, run.keep) = (None, None, None);
    (run.until_sources_end, run.write, run.placement) = (true, true, PlacementChoice::Rules);
    *manager = ManagerSection { policy: manager.policy, batch: manager.batch, ..ManagerSection::default() };
    readout.retain(|readout| source.iter().any(|source| source.readout == readout.name));
    for readout in readout {
        let ReadoutSection { listen, address, card, .. } = readout;
        (*listen, *address, *card) = (manager.address.clone(), manager.address.clone(), None);
    }
    builder.truncate(1);
    builder.iter_mut().for_each(|builder| builder.output = None);
    felix.clear();
    thread.clear();
    pool.clear();
    synchrony.reference = synchrony.reference.filter(|id| source.iter().any(|source| source.id == *id));
}

/// What was read of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// How it is packed.
    pub packing: Packing,
    /// Whether it is a capture.
    pub is_capture: bool,
    /// Bytes that were read, unpacked.
    pub bytes: u64,
    /// Packets that the source was given.
    pub taken: u64,
    /// Packets that do not belong to it, by the reason's name.
    pub aside: BTreeMap<&'static str, u64>,
    /// Connections that no source wants: sender and receiver, with the number of packets.
    pub connections: BTreeMap<String, u64>,
    /// Places at which the capture is damaged.
    pub damaged: u64,
    /// Datagrams of which some IP fragments are missing.
    pub unfinished_datagrams: u64,
    /// The selected frames of a stream that carries several boards.
    pub chosen: Option<ChosenFrames>,
    /// The file breaks off.
    pub cut_off: Option<CutOff>,
    /// Bytes of a connection that a capture misses.
    pub mended: Mended,
}

impl Passed {
    fn aside(&mut self, name: &'static str) {
        *self.aside.entry(name).or_default() += 1;
    }

    /// Whether every packet and frame was some source's, and one was this source's.
    pub fn is_pure(&self) -> bool {
        let has_some = self.chosen.as_ref().map_or(self.has_some(), ChosenFrames::is_pure);
        let is_whole = self.cut_off.is_none()
            && self.mended == Mended::default()
            && self.damaged == 0
            && self.unfinished_datagrams == 0;
        self.aside.is_empty() && is_whole && has_some
    }

    /// Whether something of it was the source's.
    pub fn has_some(&self) -> bool {
        match &self.chosen {
            Some(chosen) => chosen.own > 0,
            None if self.is_capture => self.taken > 0,
            None => self.bytes > 0,
        }
    }

    /// Packets that cannot be read: damaged, kept in part, or with wrong lengths or checksums.
    pub fn unreadable_packets(&self) -> u64 {
        self.damaged + unreadable(&self.aside)
    }

    /// What an input was, from which all has been read that is wanted.
    fn of(self, input: &Input, is_over: &AtomicBool) -> Self {
        // A run that is stopped does not read to the end.
        let cut_off = self.cut_off.or_else(|| input.cut_off()).filter(|_| !is_over.load(Ordering::Relaxed));
        Self { packing: input.packing(), bytes: input.bytes_read(), cut_off, ..self }
    }
}

impl fmt::Display for Passed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(chosen) = &self.chosen {
            chosen.fmt(out)?;
        }
        if self.is_capture {
            out.write_str(if self.chosen.is_some() { "; " } else { "" })?;
            self.write_packets(out)?;
        } else if self.chosen.is_none() {
            write!(out, "{} bytes were read", self.bytes)?;
        }
        write_holes(&self.mended, out)?;
        if let Some(CutOff { why, .. }) = &self.cut_off {
            write!(out, "; it breaks off: {why}")?;
        }
        Ok(())
    }
}

impl Passed {
    fn write_packets(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 8;
        write!(out, "{} packets were the source's", self.taken)?;
        let aside = self.aside.iter().map(|(name, count)| (*name, *count));
        let others = [("damaged", self.damaged), ("unfinished_datagrams", self.unfinished_datagrams)];
        let not = aside.chain(others.into_iter().filter(|(_, count)| *count > 0));
        let not = not.map(|(name, count)| format!("{name}: {count}")).collect::<Vec<_>>();
        if !not.is_empty() {
            write!(out, "; not {}", not.join(", "))?;
        }
        if self.connections.is_empty() {
            return Ok(());
        }
        let named = self.connections.iter().take(MOST).map(|(whose, count)| format!("{whose} ({count})"));
        let (named, count) = (named.collect::<Vec<_>>().join(", "), self.connections.len());
        write!(
            out,
            "; connections that no source reads: {count}: {named}: `from`, `from_port` or `connection` in `packets` says \
             which one is meant"
        )
    }
}

/// Whether a file is a capture, packed or not.
///
/// # Errors
/// If it cannot be opened, or nothing of it can be read.
pub fn is_capture_file(path: &Path) -> Result<bool, OfflineError> {
    let mut input = Input::open(path)?;
    let is_capture = CaptureReader::recognises(input.begin());
    match input.unreadable() {
        Some(error) => Err(error),
        None => Ok(is_capture),
    }
}

/// Whether a file is a capture with the wanted data in datagrams: the first wanted packet decides, with any transport.
/// `None` if it is not a capture.
///
/// # Errors
/// If it cannot be read.
pub fn capture_has_datagrams(path: &Path, wanted: &Wanted) -> Result<Option<bool>, OfflineError> {
    let mut input = Input::open(path)?;
    if !CaptureReader::recognises(input.begin()) {
        return Ok(None);
    }
    let mut found = false;
    Carriage::default().read(&mut input, &mut |passing| {
        let Passing::Packet { carried, .. } = passing else { return ControlFlow::Continue(()) };
        found = wanted.pick(Carrier::Datagrams, carried).is_ok();
        if found || wanted.pick(Carrier::Connections, carried).is_ok() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    Ok(Some(found))
}

/// Takes a datagram: its sender's address and port, its time and its bytes. Returns false when no more are wanted.
pub(super) type Give<'a> = dyn FnMut(IpAddr, u16, Option<Utc>, &[u8]) -> bool + 'a;

/// Passes the wanted datagrams of a capture to `give`, each with its sender and time, until `give` returns false.
///
/// # Errors
/// If it cannot be read, or is no capture.
pub fn feed_datagrams(
    origin: &ByteOrigin,
    wanted: &Wanted,
    is_over: &Arc<AtomicBool>,
    give: &mut Give<'_>,
) -> Result<Passed, OfflineError> {
    let mut input = Input::of_origin(origin, is_over)?;
    if !is_capture(&mut input) {
        return Err(OfflineError::NeedsCapture { path: origin.path().to_owned(), format: "a source of datagrams" });
    }
    let mut passed = Passed { is_capture: true, ..Passed::default() };
    let rest = Carriage::default().read(&mut input, &mut |passing| {
        let time = if let Passing::Packet { time, .. } = &passing { *time } else { None };
        let Some(carried) = passed.packet(passing) else { return ControlFlow::Continue(()) };
        let is_wanted_still = match wanted.pick(Carrier::Datagrams, carried) {
            Ok(Carried::Datagram(it)) => passed.take(|| give(it.source.ip(), it.source.port(), time, it.payload)),
            Ok(Carried::Other(it)) => passed.take(|| give(it.source, 0, time, it.payload)),
            Ok(Carried::Segment(_) | Carried::Aside(_)) => true,
            Err(name) => {
                passed.aside(name);
                true
            }
        };
        if is_wanted_still { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let (unfinished_datagrams, cut_off) = (rest.unfinished_datagrams, rest.cut_off);
    Ok(Passed { unfinished_datagrams, cut_off, ..passed }.of(&input, is_over))
}

/// Passes on the bytes of a file, unpacked if it is packed. From a capture, only the wanted connection is taken; from
/// frames of several boards, only those of the chosen boards. Returns how much was read, and how many frames were
/// chosen.
///
/// # Errors
/// If it cannot be read.
pub fn feed_stream(
    origin: &ByteOrigin,
    wanted: &Wanted,
    is_over: &Arc<AtomicBool>,
    give: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Passed, OfflineError> {
    let Some(chosen) = &wanted.chosen else { return feed_bytes(origin, wanted, is_over, give) };
    let mut chooser = Chooser::new(chosen.clone());
    let passed = feed_bytes(origin, wanted, is_over, &mut |bytes| chooser.push(bytes, give))?;
    let chosen = Some(chooser.end(give));
    Ok(Passed { chosen, ..passed })
}

fn feed_bytes(
    origin: &ByteOrigin,
    wanted: &Wanted,
    is_over: &Arc<AtomicBool>,
    give: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Passed, OfflineError> {
    let mut input = Input::of_origin(origin, is_over)?;
    if is_capture(&mut input) {
        return Ok(feed_connection(&mut input, wanted, give).of(&input, is_over));
    }
    // Read it as it arrives: the writer may be slow.
    while !input.window().is_empty() || input.fill(1) {
        let count = input.window().len();
        if !give(input.window()) {
            break;
        }
        input.take(count);
    }
    Ok(Passed::default().of(&input, is_over))
}

/// Asks for no more bytes than it takes to see that.
fn is_capture(input: &mut Input) -> bool {
    input.fill(CaptureReader::MAGIC_BYTES);
    CaptureReader::recognises(input.window())
}

fn feed_connection(input: &mut Input, wanted: &Wanted, give: &mut dyn FnMut(&[u8]) -> bool) -> Passed {
    let (mut passed, mut streams, mut stretches) = (Passed::default(), Streams::new(), Stretches::default());
    let (mut connections, mut mender) = (Connections::default(), wanted.mender());
    let rest = Carriage::default().read(input, &mut |passing| {
        let Some(carried) = passed.packet(passing) else { return ControlFlow::Continue(()) };
        let segment = match wanted.pick(Carrier::Connections, carried) {
            Ok(Carried::Segment(segment)) => segment,
            Ok(_) => return ControlFlow::Continue(()),
            Err(name) => {
                passed.aside(name);
                return ControlFlow::Continue(());
            }
        };
        stretches.clear();
        streams.accept(&segment, &mut stretches);
        let is_wanted_still = match connections.number_of(&segment) {
            Some(number) if number == wanted.connection => passed.take(|| give_on(&stretches, &mut mender, give)),
            Some(number) if !wanted.others.contains(&number) => {
                passed.aside("other_connection");
                let whose = format!("{} to {}", segment.source, segment.destination);
                *passed.connections.entry(whose).or_default() += 1;
                true
            }
            _ => true,
        };
        if is_wanted_still { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    streams.end(&mut |whose, stretches| {
        if connections.known(whose) == Some(wanted.connection) {
            give_on(stretches, &mut mender, give);
        }
    });
    mender.end(give);
    Passed { is_capture: true, cut_off: rest.cut_off, mended: mender.mended().clone(), ..passed }
}

impl Passed {
    /// What a packet carries; damage is counted.
    fn packet<'a>(&mut self, passing: Passing<'a>) -> Option<Carried<'a>> {
        match passing {
            Passing::Packet { carried, .. } => Some(carried),
            Passing::Damage { .. } => {
                self.damaged += 1;
                None
            }
        }
    }

    /// Counts and passes on a datagram. Returns false when no more are wanted.
    fn take(&mut self, give: impl FnOnce() -> bool) -> bool {
        self.taken += 1;
        give()
    }
}

/// What the payloads that were received came in.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SavedAs {
    /// Datagrams of UDP that went here.
    Datagrams(SocketAddr),
    /// Straight in IP, to this address and with this protocol number.
    Packets(Ipv4Addr, u8),
}

impl SavedAs {
    /// Appends a payload that `from` sent, as a packet of a capture; nothing if it is longer than there are packets.
    pub fn encode(self, time: Utc, from: SocketAddr, payload: &[u8], out: &mut Vec<u8>) {
        let (mut packet, lives) = (Vec::new(), 64);
        let written = match (self, from) {
            (Self::Datagrams(to), SocketAddr::V6(source)) => {
                let ip = PacketBuilder::ipv6(source.ip().octets(), v6(to.ip()).octets(), lives);
                ip.udp(source.port(), to.port()).write(&mut packet, payload)
            }
            (Self::Datagrams(to), SocketAddr::V4(source)) => {
                let ip = PacketBuilder::ipv4(source.ip().octets(), v4(to.ip()).octets(), lives);
                ip.udp(source.port(), to.port()).write(&mut packet, payload)
            }
            (Self::Packets(to, protocol), from) => {
                let ip = PacketBuilder::ipv4(v4(from.ip()).octets(), to.octets(), lives);
                ip.write(&mut packet, IpNumber(protocol), payload)
            }
        };
        if written.is_ok() {
            encode_packet(time, &packet, out);
        }
    }
}

/// The address; for a socket for both versions of IP, any one.
const fn v4(address: IpAddr) -> Ipv4Addr {
    if let IpAddr::V4(address) = address { address } else { Ipv4Addr::UNSPECIFIED }
}

/// The same the other way round.
const fn v6(address: IpAddr) -> Ipv6Addr {
    if let IpAddr::V6(address) = address { address } else { Ipv6Addr::UNSPECIFIED }
}

/// What a capture of such packets begins with.
pub(super) fn capture_begin() -> Vec<u8> {
    let mut begin = Vec::new();
    encode_interface(LinkType::RAW, &mut begin);
    begin
}

/// Writes a capture of these payloads: when each came, from where, and its bytes.
///
/// # Errors
/// If they cannot be written.
pub fn encode_capture(
    saved_as: SavedAs,
    packets: impl Iterator<Item = (Utc, SocketAddr, Vec<u8>)>,
    out: &mut impl Write,
) -> io::Result<()> {
    out.write_all(&capture_begin())?;
    let mut block = Vec::new();
    for (time, from, payload) in packets {
        block.clear();
        saved_as.encode(time, from, &payload, &mut block);
        out.write_all(&block)?;
    }
    Ok(())
}
