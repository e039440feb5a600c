//! Sources that do not connect to a readout unit's service point: files, captures, programs, emulators, and sources
//! with their own address.

use super::error::{RunError, endpoint, packet_error, system};
use super::feeder::{ChildSlot, Feed, FeederNotes, Work, how_it_ended};
use super::placement::{Purpose, pool_of};
use super::resolve::{Resolved, SEED};
use super::source_summary::InputSummary;
use super::workshop::Workshop;
use ropewalk_config::ByteOrigin;
use ropewalk_config::{
    BoardChoice, DemuxTable, Emulate, FormatName, NetworkAddress, PeerOrPlace, SourceInput, SourceSection,
};
use ropewalk_engine::{DatagramInputConfig, Demux, Entrance, ReadoutDrive, SourceDriveConfig, SourceFeed, SourceLine};
use ropewalk_flow::choosing::Wanted;
use ropewalk_flow::readout::Boards;
use ropewalk_flow::source::{FrameKind, FrameMaker, TriggerRate};
use ropewalk_io::Dispatcher;
use ropewalk_io::packet::{
    Flow, LocalFeed, Membership, MembershipChange, PacketMemory, ReceiveConfig, ReceiveMechanism, Receiver,
    SocketReceiver, local_packets,
};
use ropewalk_io::tcp::{Tcp, resolve, resolve_to_listen};
use ropewalk_memory::PoolConfig;
use ropewalk_terms::{Requirement, SourceId, Utc};
use ropewalk_tools::foreign::{Passed, capture_has_datagrams, feed_datagrams, feed_stream, is_capture_file};
use ropewalk_wire::fed;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum payload of a datagram, in bytes.
const MOST_DATAGRAM: u64 = 65_507;
/// Maximum datagram size for reception in batches. A batch reserves many times the largest datagram; larger ones are
/// received one by one.
const LARGEST_IN_BATCH: usize = 9216;
/// Size of the kernel's receive buffer.
const SOCKET_BUFFER: usize = 32 << 20;
/// Memory for datagrams of unfinished events.
pub(super) const DATAGRAM_BLOCK: usize = 256 << 10;
pub(super) const DATAGRAM_BLOCKS: usize = 256;
/// How long a write may block before `is_over` is checked.
const LOOK: Duration = Duration::from_millis(50);
/// How often to check whether the network card of a group exists.
const GROUP_LOOK: Duration = Duration::from_millis(200);

/// The entrances of a readout unit's sources.
#[derive(Default)]
pub(super) struct Opened {
    /// Addresses that sources connect to, by their names.
    pub(super) addresses: Vec<(String, String)>,
    pub(super) feeds: Vec<Feed>,
}

impl Workshop<'_> {
    /// Opens the entrances of a readout unit's sources.
    pub(super) fn entrances<P: Dispatcher>(
        &self,
        index: u16,
        readout: &mut ReadoutDrive<Tcp, P>,
    ) -> Result<Opened, RunError> {
        let mut opened = Opened::default();
        self.sockets(index, readout, &mut opened)?;
        self.captures(index, readout, &mut opened)?;
        let mut fed = self.resolved.sources_of(index).filter(|source| source.emulate.is_none());
        fed.try_for_each(check_input)?;
        let streams = |source: &&SourceSection| source.emulate.is_none() && !is_capture(source);
        for source in self.resolved.sources_of(index).filter(streams) {
            let name = source.name_or_id();
            let wanted = source.wanted_beside(self.resolved.sources_and_readouts().map(|(source, _)| source));
            let Some((entrance, work)) = entrance(source, &name, wanted)? else { continue };
            let bound = readout.add_entrance(SourceId(source.id), entrance).map_err(endpoint(&name))?;
            opened.addresses.extend(bound.map(|bound| (name.clone(), bound)));
            opened.feeds.extend(work.map(|work| Feed { name, is_over: Arc::default(), work }));
        }
        Ok(opened)
    }

    /// Opens a socket for each address to which sources send datagrams.
    fn sockets<P: Dispatcher>(
        &self,
        index: u16,
        readout: &mut ReadoutDrive<Tcp, P>,
        opened: &mut Opened,
    ) -> Result<(), RunError> {
        let datagrams = |source: &&SourceSection| source.comes_in_datagrams() && source.emulate.is_none();
        for boards in together(self.resolved.sources_of(index).filter(datagrams), SourceSection::shares_socket) {
            let name = boards[0].name_or_id();
            let mut receiver = self.socket(boards[0], &name, &boards)?;
            opened.feeds.extend(receiver.take_membership().map(|membership| {
                // A thread makes sure that the group stays joined.
                Feed::new(&name, move |_, notes, is_over| notes.leave(watch(membership, is_over).into_iter().collect()))
            }));
            opened.addresses.push((name, receiver.address().to_string()));
            readout.add_datagrams(datagram_input(&boards, receiver, true));
        }
        Ok(())
    }

    /// Opens the socket of sources that send to the same address.
    fn socket(&self, first: &SourceSection, name: &str, boards: &[&SourceSection]) -> Result<SocketReceiver, RunError> {
        let config = match &first.input {
            SourceInput::Listen(NetworkAddress::Ip(address, protocol)) => {
                ReceiveConfig::new(Flow::Ip(*protocol), SocketAddrV4::new(*address, 0))
            }
            SourceInput::Listen(NetworkAddress::Udp(place, interface)) => {
                let place = resolve_to_listen(place).map_err(endpoint(name))?;
                ReceiveConfig { interface: *interface, ..ReceiveConfig::new(Flow::Udp, place) }
            }
            _ => return Err(RunError::Unfit(format!("{name} does not listen for datagrams"))),
        };
        let longest = boards.iter().map(|source| source.max_fragment.0).max().unwrap_or(MOST_DATAGRAM);
        let largest = longest.min(MOST_DATAGRAM) as usize;
        let mechanism =
            if largest <= LARGEST_IN_BATCH { ReceiveMechanism::RecvMmsg } else { ReceiveMechanism::RecvFrom };
        let config = ReceiveConfig { mechanism, largest, socket_buffer: SOCKET_BUFFER, ..config };
        let pool = PoolConfig::anonymous(&pool_of(name, Purpose::Datagrams), DATAGRAM_BLOCK, DATAGRAM_BLOCKS);
        let memory = PacketMemory::pool(self.placement.untouched_pool(pool)?);
        SocketReceiver::new(config, memory).map_err(packet_error(name))
    }
}

/// Groups the sources that share their input.
pub(super) fn together<'s>(
    sources: impl Iterator<Item = &'s SourceSection>,
    share: fn(&SourceSection, &SourceSection) -> bool,
) -> Vec<Vec<&'s SourceSection>> {
    let mut groups: Vec<Vec<&SourceSection>> = Vec::new();
    for source in sources {
        match groups.iter_mut().find(|group| share(group[0], source)) {
            Some(group) => group.push(source),
            None => groups.push(vec![source]),
        }
    }
    groups
}

/// Creates a readout unit's input from a receiver of datagrams of some boards; `is_live` if they come from a network.
pub(super) fn datagram_input(
    boards: &[&SourceSection],
    receiver: impl Receiver + Send + 'static,
    is_live: bool,
) -> DatagramInputConfig {
    let described =
        |source: &&SourceSection| Some((SourceId(source.id), source.description()?, source.datagram_limits()));
    DatagramInputConfig {
        receiver: Box::new(receiver),
        sources: boards.iter().filter_map(described).collect(),
        demux: demux(boards),
        is_live,
    }
}

/// Returns how to tell boards apart that send to the same address.
fn demux(boards: &[&SourceSection]) -> Demux {
    let tables: Vec<&DemuxTable> = boards.iter().filter_map(|source| source.demux.as_ref()).collect();
    let Some(first) = tables.first() else { return Demux::Single };
    let number = |board: &BoardChoice| match *board {
        BoardChoice::Number(number) => number.into(),
        BoardChoice::Address(address) => Boards::of_address(address),
    };
    let names = |table: &&DemuxTable| Some(table.is.as_ref()?.all().iter().map(number).collect());
    let known: Option<Vec<Vec<u128>>> = tables.iter().map(names).collect();
    let boards = known.map_or_else(|| Boards::of_count(tables.len()), Boards::of_names);
    match first.at {
        PeerOrPlace::Peer => Demux::Address(boards),
        PeerOrPlace::Frame | PeerOrPlace::Place(_) => Demux::Field(boards),
    }
}

impl Resolved {
    /// Returns the sources of a readout unit.
    pub(super) fn sources_of(&self, index: u16) -> impl Iterator<Item = &SourceSection> {
        self.sources_and_readouts().filter(move |&(_, readout)| readout == index).map(|(source, _)| source)
    }
}

/// Opens a source's entrance, with its writer; `None` for sources that use the readout unit's service point.
fn entrance(source: &SourceSection, name: &str, wanted: Wanted) -> Result<Option<(Entrance, Option<Work>)>, RunError> {
    let pair = || UnixStream::pair().map_err(system(format!("{name}: a pair of sockets")));
    Ok(match &source.input {
        SourceInput::Listen(NetworkAddress::Tcp(address)) => Some((Entrance::Listen(address.clone()), None)),
        SourceInput::Connect(NetworkAddress::Tcp(address)) => {
            // A name that does not resolve is an error before the run. Only a board that is switched off is awaited.
            resolve(address).map_err(endpoint(name))?;
            Some((Entrance::Call(address.clone()), None))
        }
        SourceInput::File(origin, _) => {
            let (ours, theirs) = pair()?;
            let entrance = Entrance::Adopt { socket: ours.into(), name: origin.path().display().to_string() };
            let (origin, name) = (origin.clone(), name.to_owned());
            let work: Work = Box::new(move |_, notes, is_over| {
                let read = copy(&origin, &wanted, theirs, is_over);
                leave(notes, &name, &origin, read, is_over);
            });
            Some((entrance, Some(work)))
        }
        SourceInput::Program(program) => {
            let (ours, theirs) = pair()?;
            let entrance = Entrance::Adopt { socket: ours.into(), name: program.join(" ") };
            let program = program.clone();
            let work: Work = Box::new(move |child, notes, is_over| {
                notes.leave(run(&program, theirs.into(), child, is_over).err().into_iter().collect());
            });
            Some((entrance, Some(work)))
        }
        _ => None,
    })
}

/// Records what was read until the input ended, the receiver closed, or `is_over` was set, and what was wrong.
fn leave(notes: &FeederNotes, name: &str, origin: &ByteOrigin, read: Result<Passed, String>, is_over: &AtomicBool) {
    notes.leave_input(InputSummary::new(name, origin, &read, is_over.load(Ordering::Relaxed)));
    notes.leave(told(origin, read).into_iter().collect());
}

/// Keeps a group joined while its network card disappears and returns. Returns a summary.
fn watch(mut membership: Membership, is_over: &AtomicBool) -> Option<String> {
    let (mut lost, mut joined, mut looked) = (0_u64, 0_u64, Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        if looked.elapsed() < GROUP_LOOK {
            continue;
        }
        looked = Instant::now();
        match membership.look() {
            Some(MembershipChange::Lost) => lost += 1,
            Some(MembershipChange::JoinedAgain) => joined += 1,
            None => {}
        }
    }
    let group = membership.group();
    let again = if joined == lost { "and joined again" } else { "and is not joined: the source is not heard" };
    (lost > 0).then(|| format!("the group {group} was lost with its network card ({lost}), {again}"))
}

/// Returns the remark on a file that was read: an error, or that a capture held packets other than the source's.
fn told(origin: &ByteOrigin, read: Result<Passed, String>) -> Option<String> {
    match read {
        Ok(passed) => (!passed.is_pure()).then(|| format!("{}: {passed}", origin.path().display())),
        Err(error) => Some(error),
    }
}

/// Copies bytes as they arrive.
///
/// # Errors
/// A readable description of the problem.
fn copy(
    origin: &ByteOrigin,
    wanted: &Wanted,
    mut socket: UnixStream,
    is_over: &Arc<AtomicBool>,
) -> Result<Passed, String> {
    let limited = socket.set_write_timeout(Some(LOOK));
    limited.map_err(|error| format!("cannot write to its readout unit: {error}"))?;
    let fed = feed_stream(origin, wanted, is_over, &mut |bytes| write(&mut socket, bytes, is_over));
    fed.map_err(|error| error.to_string())
}

/// Writes all bytes. Returns false if the receiver has gone.
fn write(socket: &mut UnixStream, mut bytes: &[u8], is_over: &AtomicBool) -> bool {
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                if is_over.load(Ordering::Relaxed) {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    true
}

/// Runs a program to its end.
///
/// # Errors
/// A readable description of the problem.
fn run(program: &[String], output: OwnedFd, child: &ChildSlot, is_over: &AtomicBool) -> Result<(), String> {
    let Some((name, arguments)) = program.split_first() else { return Ok(()) };
    let started = Command::new(name).args(arguments).stdin(Stdio::null()).stdout(Stdio::from(output)).spawn();
    let started = started.map_err(|error| format!("{name} cannot be started: {error}"))?;
    match child.watch(started, is_over) {
        // A program that is ended with the run may exit with any status.
        Ok(_) if is_over.load(Ordering::Relaxed) => Ok(()),
        Ok((_, status)) if status.success() => Ok(()),
        Ok((process, status)) => Err(format!("{name}, process {process}, {}", how_it_ended(status))),
        Err(error) => Err(format!("{name} is not there any more: {error}")),
    }
}

/// Maximum number of datagrams that wait between a reading thread, or a source, and the readout unit.
const MOST_WAITING: usize = 4096;
/// Pause of the thread before it checks again for room.
const NO_ROOM: Duration = Duration::from_micros(100);

impl Workshop<'_> {
    /// Opens the captures of datagrams of a readout unit's sources.
    pub(super) fn captures<P: Dispatcher>(
        &self,
        index: u16,
        readout: &mut ReadoutDrive<Tcp, P>,
        opened: &mut Opened,
    ) -> Result<(), RunError> {
        let captured = self.resolved.sources_of(index).filter(|source| is_capture(source));
        for boards in together(captured, SourceSection::shares_capture) {
            let first = boards[0];
            let Some((origin, _)) = first.file() else { continue };
            let name = first.name_or_id();
            let pool = PoolConfig::anonymous(&pool_of(&name, Purpose::Datagrams), DATAGRAM_BLOCK, DATAGRAM_BLOCKS);
            let pool = self.placement.untouched_pool(pool)?;
            let (feed, receiver) = local_packets(pool, MOST_WAITING).map_err(system(format!("{name}: a bell")))?;
            readout.add_datagrams(datagram_input(&boards, receiver, false));
            let (origin, wanted) = (origin.clone(), first.wanted());
            opened.feeds.push(Feed::new(name.clone(), move |_, notes, is_over| {
                let read = hand_over(&origin, &wanted, feed, is_over);
                leave(notes, &name, &origin, read, is_over);
            }));
        }
        Ok(())
    }
}

/// Checks that the input file of a required source can be read.
///
/// # Errors
/// If it cannot, or is not a capture though the source's frames come in datagrams. A FIFO is checked when it is read.
pub(super) fn check_input(source: &SourceSection) -> Result<(), RunError> {
    let Some((ByteOrigin::File(path), _)) = source.file() else { return Ok(()) };
    if source.requirement != Requirement::Required {
        return Ok(());
    }
    let is_special = std::fs::metadata(path).is_ok_and(|file| !file.is_file() && !file.is_dir());
    if is_special || path.as_os_str() == "-" {
        return Ok(());
    }
    let name = source.name_or_id();
    let unfit = |why: String| Err(RunError::Unfit(format!("source {name} cannot be read: {why}")));
    match is_capture_file(path) {
        Err(error) => unfit(error.to_string()),
        Ok(false) if source.has_datagrams() || source.wanted().protocol.is_some() => {
            let why =
                "its frames come in datagrams, whose ends a plain file does not have: capture them (pcap, pcapng)";
            unfit(format!("{}: {why}", path.display()))
        }
        Ok(_) => Ok(()),
    }
}

/// Returns whether a source's datagrams are read from a capture.
pub(super) fn is_capture(source: &SourceSection) -> bool {
    let Some((origin, _)) = source.file().filter(|_| source.emulate.is_none()) else { return false };
    let wanted = source.wanted();
    // Some formats come either way: look into the file if possible. If it cannot be read, its reader reports that.
    let may_be_either = matches!(source.format, FormatName::Foreign(_)) && !source.has_layout() && origin.is_regular();
    source.has_datagrams()
        || wanted.protocol.is_some()
        || may_be_either && capture_has_datagrams(origin.path(), &wanted).is_ok_and(|told| told == Some(true))
}

/// Passes on the datagrams of a capture until none is left, the receiver has gone, or `is_over` is set.
///
/// # Errors
/// A readable description of the problem.
pub(super) fn hand_over(
    origin: &ByteOrigin,
    wanted: &Wanted,
    mut feed: LocalFeed,
    is_over: &Arc<AtomicBool>,
) -> Result<Passed, String> {
    let mut give = |from: IpAddr, port: u16, time: Option<Utc>, datagram: &[u8]| {
        let came = time.map(|time| ropewalk_terms::Instant::from_nanoseconds(u64::try_from(time.0).unwrap_or(0)));
        while !feed.send(SocketAddr::new(from, port), came, datagram) {
            if feed.is_abandoned() || is_over.load(Ordering::Relaxed) || datagram.len() > feed.largest() {
                return false;
            }
            std::thread::sleep(NO_ROOM);
        }
        true
    };
    feed_datagrams(origin, wanted, is_over, &mut give).map_err(|error| error.to_string())
}

/// By source: its line, if it is not the common service point.
pub(super) type Lines = BTreeMap<u32, SourceLine>;

/// Address on which an emulated source listens instead of its own address.
const HERE: &str = "127.0.0.1:0";

impl Workshop<'_> {
    /// Opens the entrances of the emulated sources of a readout unit.
    pub(super) fn emulated<P: Dispatcher>(
        &self,
        index: u16,
        readout: &mut ReadoutDrive<Tcp, P>,
    ) -> Result<Lines, RunError> {
        let mut lines = Lines::new();
        for source in self.resolved.sources_of(index).filter(|source| source.emulate.is_some()) {
            let Some(description) = source.description() else { continue };
            let (id, name) = (SourceId(source.id), source.name_or_id());
            let line = if source.has_datagrams() {
                let pool = PoolConfig::anonymous(&pool_of(&name, Purpose::Datagrams), DATAGRAM_BLOCK, DATAGRAM_BLOCKS);
                let pool = self.placement.untouched_pool(pool)?;
                let (feed, receiver) = local_packets(pool, MOST_WAITING).map_err(system(format!("{name}: a bell")))?;
                readout.add_datagrams(DatagramInputConfig {
                    receiver: Box::new(receiver),
                    sources: vec![(id, description, source.datagram_limits())],
                    demux: Demux::Single,
                    is_live: false,
                });
                SourceLine::Datagrams(Box::new(feed))
            } else {
                let bound = readout.add_entrance(id, Entrance::Listen(HERE.to_owned())).map_err(endpoint(&name))?;
                SourceLine::Stream(bound.unwrap_or_default())
            };
            lines.insert(source.id, line);
        }
        Ok(lines)
    }
}

impl Resolved {
    /// Returns the configuration of the emulated and played sources of the readout units with an address, each with its
    /// line.
    pub(super) fn feeds(&self, addresses: &[String], mut lines: Lines) -> Result<Vec<SourceDriveConfig>, RunError> {
        let mut feeds = Vec::new();
        for (source, readout) in self.sources_and_readouts() {
            let address = addresses[usize::from(readout)].clone();
            if address.is_empty() {
                continue;
            }
            let feed = match (&source.emulate, &source.input) {
                (Some(emulate), _) => emulated(source, emulate),
                (None, SourceInput::Played(path)) => recorded(path)?,
                (None, _) => continue,
            };
            let line = lines.remove(&source.id).unwrap_or(SourceLine::Stream(address));
            feeds.push(SourceDriveConfig { id: SourceId(source.id), line, feed });
        }
        Ok(feeds)
    }
}

fn emulated(source: &SourceSection, emulate: &Emulate) -> SourceFeed {
    let kind = match (source.description(), source.format) {
        (Some(description), _) => FrameKind::Described(description),
        (None, FormatName::Generic) => FrameKind::Generic,
        (None, FormatName::Ferol | FormatName::Foreign(_)) => FrameKind::Fed,
    };
    let most = usize::try_from(source.max_fragment.0).unwrap_or(usize::MAX);
    let frames = FrameMaker::new(SourceId(source.id), source.first_event(), kind, most, source.has_datagrams());
    let frames = if source.format.has_several_events() { frames.packed(emulate.packing()) } else { frames };
    SourceFeed::Emulated {
        frames: Box::new(frames),
        size: emulate.fragment_size.0,
        rate: emulate.rate.map_or(TriggerRate::Unlimited, |rate| rate.0),
        seed: SEED,
    }
}

fn recorded(path: &Path) -> Result<SourceFeed, RunError> {
    let bytes = std::fs::read(path).map_err(system(path.display().to_string()))?;
    let split = fed::split_file(&bytes);
    if !split.gap.is_empty() {
        let (gap, path) = (split.gap, path.display());
        let message =
            format!("{path}: bytes {} to {} are no S-LINK64 fragments; repair or shorten it", gap.start, gap.end);
        return Err(RunError::Unfit(message));
    }
    Ok(SourceFeed::Recorded { bytes: Arc::new(bytes), fragments: Arc::new(split.fragments) })
}
