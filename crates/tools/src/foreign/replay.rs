//! What a capture or a file holds on the line again: datagrams as they were sent, connections byte for byte, frames one
//! by one. [`StandIns`] says from which addresses boards are played on a machine that does not have theirs.

use super::account::unreadable;
use super::frames::{self, Carriage, CutOff, Found, Input, Passing, Peer};
use crate::OfflineError;
use crate::status::StatusSummary;
use ropewalk_flow::choosing::{Carrier, Wanted};
use ropewalk_io::tcp::resolve;
use ropewalk_terms::{Asked, Fact, Facts, Utc};
use ropewalk_wire::capture::{CaptureReader, Carried, Streams, Stretches};
use ropewalk_wire::description::Description;
use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::framing::{Framing, Front, Search};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// The destination.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A datagram for each one that was captured, or for each frame of a file.
    Udp(SocketAddr),
    /// A connection for each one that was captured, or for the file.
    Tcp(SocketAddr),
}

/// A text that is not a target, and why.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` is not a target (udp://HOST:PORT or tcp://HOST:PORT): {why}")]
pub struct NoTarget {
    text: String,
    why: String,
}

impl FromStr for Target {
    type Err = NoTarget;

    fn from_str(text: &str) -> Result<Self, NoTarget> {
        let wrong = |why: String| NoTarget { text: text.to_owned(), why };
        let address = |text: &str| resolve(text).map_err(|error| wrong(error.to_string()));
        match text.split_once("://") {
            Some(("udp", rest)) => address(rest).map(Self::Udp),
            Some(("tcp", rest)) => address(rest).map(Self::Tcp),
            _ => Err(wrong("it does not begin with udp:// or tcp://".to_owned())),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => write!(out, "udp://{address}"),
            Self::Tcp(address) => write!(out, "tcp://{address}"),
        }
    }
}

/// How fast it is played.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Pace {
    /// As fast as it goes.
    Most,
    /// As far apart as it was recorded: captures alone.
    Recorded,
    /// This many datagrams, segments or frames in a second, evenly spaced.
    Hertz(f64),
}

/// How it is played.
#[derive(Clone, Debug)]
pub struct ForeignReplayOptions {
    /// The destination.
    pub target: Target,
    /// How fast.
    pub pace: Pace,
    /// Of a capture: what went to this port alone.
    pub port: Option<u16>,
    /// The format, if the file is not a capture; detected if not given.
    pub format: Option<ForeignFormat>,
    /// Describes the frames of a raw recording that has no known format.
    pub by: Option<Description>,
    /// The number of times; 0: without end.
    pub times: u64,
}

/// What was sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ForeignReplayed {
    /// Datagrams, segments or frames.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Who sent it, and from which address it goes now.
    pub lines: Vec<(String, SocketAddr)>,
    /// Packets of a capture that belong to no source, by the reason's name; `other_port` and `other_protocol` are
    /// packets that do not go to this target.
    pub aside: BTreeMap<&'static str, u64>,
    /// Bytes of a file that are no frame, and were not sent.
    pub skipped_bytes: u64,
    /// Bytes of connections that are missing in a capture: those before and after them were sent.
    pub missed_bytes: u64,
    /// Places at which a file is damaged.
    pub faults: u64,
    /// The file breaks off.
    pub cut_off: Option<CutOff>,
}

impl ForeignReplayed {
    /// The exit status, and why.
    pub fn status(&self) -> StatusSummary {
        let facts = Facts::default().with([
            (Fact::Nothing, u64::from(self.messages == 0)),
            (Fact::GarbageBytes, self.skipped_bytes),
            (Fact::Faults, self.faults),
            (Fact::MissedBytes, self.missed_bytes),
            (Fact::PacketsUnreadable, unreadable(&self.aside)),
            (Fact::InputsCutOff, u64::from(self.cut_off.is_some())),
        ]);
        StatusSummary::of(&facts, Asked::Taken)
    }
}

/// Plays a capture or a file.
///
/// # Errors
/// If the file cannot be read, a line cannot be opened, or breaks.
pub fn replay_foreign(path: &Path, options: &ForeignReplayOptions) -> Result<ForeignReplayed, OfflineError> {
    let (lines, stand_ins) = (BTreeMap::new(), StandIns::default());
    let mut player = Player { options, lines, stand_ins, begin: None, sent: ForeignReplayed::default() };
    let mut time = 0;
    while options.times == 0 || time < options.times {
        player.begin = None;
        let before = player.sent.messages;
        player.play(path)?;
        time += 1;
        if player.sent.messages == before {
            // A file without anything to send would be played for ever.
            break;
        }
    }
    player.sent.lines = player.lines.iter().map(|(peer, line)| (peer_text(*peer), line.local)).collect();
    Ok(player.sent)
}

fn peer_text(peer: Option<Peer>) -> String {
    peer.map_or_else(|| "file".to_owned(), |peer| peer.to_string())
}

struct Player<'a> {
    options: &'a ForeignReplayOptions,
    lines: BTreeMap<Option<Peer>, Line>,
    stand_ins: StandIns,
    /// When the first message went out, its recorded time, and how many did since.
    begin: Option<(Instant, Option<Utc>, u64)>,
    sent: ForeignReplayed,
}

impl Player<'_> {
    fn play(&mut self, path: &Path) -> Result<(), OfflineError> {
        let mut input = Input::open(path)?;
        if CaptureReader::recognises(input.begin()) {
            return self.play_capture(&mut input);
        }
        if self.options.pace == Pace::Recorded {
            return Err(OfflineError::NoTimes);
        }
        if let Some(framing) = &self.options.by {
            return self.play_described(&mut input, framing);
        }
        let mut failed = Ok(());
        frames::read(&mut input, self.options.format, &mut |found| match found {
            Found::Frame(frame) if failed.is_ok() => failed = self.send(None, None, frame.bytes),
            Found::Skipped { bytes, is_filler: false, .. } => self.sent.skipped_bytes += bytes.len() as u64,
            Found::LeftOver { bytes } => self.sent.skipped_bytes += bytes,
            Found::Lost { .. } => self.sent.faults += 1,
            Found::CutOff(cut_off) => self.sent.cut_off = Some(cut_off),
            _ => {}
        })?;
        failed
    }

    /// Plays what a source with this description sent. A connection gets every byte of the file, so that a run finds
    /// the faults of the recording; datagrams are whole frames.
    fn play_described(&mut self, input: &mut Input, framing: &Description) -> Result<(), OfflineError> {
        if framing.needs_datagrams() {
            let format = match framing {
                Description::Layout(_) => "a layout of datagrams",
                Description::Format(format) | Description::Board(format, _) => format.name(),
            };
            return Err(OfflineError::NeedsCapture { path: input.path().to_owned(), format });
        }
        let mut search = Search::default();
        loop {
            let mut front = framing.front(input.window(), &mut search);
            if let Front::Needs { bytes } = front {
                if input.fill(bytes) {
                    continue;
                }
                front = framing.front_at_end(input.window(), &mut search).unwrap_or(front);
            }
            let bytes = match front {
                Front::Needs { .. } | Front::Lost { .. } => {
                    let is_lost = matches!(front, Front::Lost { .. });
                    self.play_rest(input, is_lost)?;
                    break;
                }
                Front::Frame { bytes } => {
                    self.send(None, None, &input.window()[..bytes])?;
                    search = Search::default();
                    bytes
                }
                Front::Skip { bytes, .. } => {
                    let skipped = &input.window()[..bytes];
                    self.pass(skipped, framing.is_filler(skipped))?;
                    bytes
                }
            };
            input.take(bytes);
        }
        self.sent.cut_off = input.cut_off();
        Ok(())
    }

    /// Bytes between frames.
    fn pass(&mut self, bytes: &[u8], is_filler: bool) -> Result<(), OfflineError> {
        match self.options.target {
            Target::Tcp(_) if !bytes.is_empty() => return self.send(None, None, bytes),
            Target::Udp(_) if !is_filler => self.sent.skipped_bytes += bytes.len() as u64,
            _ => {}
        }
        Ok(())
    }

    /// Sends the bytes after the last frame that is found.
    fn play_rest(&mut self, input: &mut Input, is_lost: bool) -> Result<(), OfflineError> {
        if matches!(self.options.target, Target::Udp(_)) {
            self.sent.faults += u64::from(is_lost);
            self.sent.skipped_bytes += input.drain();
            return Ok(());
        }
        while !input.window().is_empty() || input.fill(1) {
            let bytes = input.window().len();
            self.pass(input.window(), false)?;
            input.take(bytes);
        }
        Ok(())
    }

    fn play_capture(&mut self, input: &mut Input) -> Result<(), OfflineError> {
        let (mut streams, mut stretches, mut failed) = (Streams::new(), Stretches::default(), Ok(()));
        let carrier = match self.options.target {
            Target::Udp(_) => Carrier::Datagrams,
            Target::Tcp(_) => Carrier::Connections,
        };
        let wanted = Wanted::port(self.options.port);
        let rest = Carriage::default().read(input, &mut |passing| {
            let Passing::Packet { time, carried, .. } = passing else {
                self.sent.faults += 1;
                return ControlFlow::Continue(());
            };
            failed = match wanted.pick(carrier, carried) {
                Ok(Carried::Datagram(datagram)) => self.send(Some(Peer::Port(datagram.source)), time, datagram.payload),
                Ok(Carried::Segment(segment)) => {
                    stretches.clear();
                    streams.accept(&segment, &mut stretches);
                    self.send_stretches(segment.source, time, &stretches)
                }
                Ok(Carried::Other(_) | Carried::Aside(_)) => Ok(()),
                Err(name) => self.aside(name),
            };
            if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        self.sent.cut_off = rest.cut_off;
        streams.end(&mut |(from, _), stretches| {
            if failed.is_ok() {
                failed = self.send_stretches(from, None, stretches);
            }
        });
        failed
    }

    fn send_stretches(
        &mut self,
        from: SocketAddr,
        time: Option<Utc>,
        stretches: &Stretches,
    ) -> Result<(), OfflineError> {
        for (piece, bytes) in stretches.iter() {
            self.sent.missed_bytes += piece.lost_bytes;
            if !bytes.is_empty() {
                self.send(Some(Peer::Port(from)), time, bytes)?;
            }
        }
        Ok(())
    }

    fn aside(&mut self, name: &'static str) -> Result<(), OfflineError> {
        *self.sent.aside.entry(name).or_default() += 1;
        Ok(())
    }

    fn send(&mut self, peer: Option<Peer>, time: Option<Utc>, bytes: &[u8]) -> Result<(), OfflineError> {
        self.wait(time);
        let target = self.options.target;
        let failed = |error| OfflineError::Target { target: target.to_string(), error };
        if !self.lines.contains_key(&peer) {
            // Asked for every board, so that its stand-in does not depend on the machine.
            let here = peer.map_or(Ipv4Addr::LOCALHOST, |peer| self.stand_ins.of(peer.address()));
            self.lines.insert(peer, Line::open(target, peer, here).map_err(failed)?);
        }
        let line = self.lines.get_mut(&peer).expect("it was just put there");
        line.send(bytes).map_err(failed)?;
        self.sent.messages += 1;
        self.sent.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Waits until it is the message's time.
    fn wait(&mut self, time: Option<Utc>) {
        let (begin, first, count) = self.begin.get_or_insert_with(|| (Instant::now(), time, 0));
        let since = match self.options.pace {
            Pace::Most => return,
            Pace::Recorded => {
                let nanoseconds = time.zip(*first).map_or(0, |(time, first)| time.0.saturating_sub(first.0));
                Duration::from_nanos(nanoseconds.max(0) as u64)
            }
            Pace::Hertz(rate) => Duration::from_secs_f64((*count as f64 / rate).min(1e9)),
        };
        *count += 1;
        std::thread::sleep((*begin + since).saturating_duration_since(Instant::now()));
    }
}

/// A socket or a connection for one of the senders.
struct Line {
    local: SocketAddr,
    socket: Socket,
}

enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl Line {
    /// Datagrams leave from the board's own address if the machine has it; on one machine they leave from its stand-in
    /// `here`, so that boards still differ by address.
    fn open(target: Target, peer: Option<Peer>, here: Ipv4Addr) -> io::Result<Self> {
        match target {
            Target::Udp(address) => {
                let own = peer.map(|peer| peer.address()).filter(|own| may_send(*own, address.ip()));
                let socket = match own.and_then(|own| UdpSocket::bind((own, 0)).ok()) {
                    Some(socket) => socket,
                    None => UdpSocket::bind((local_address(address.ip(), here), 0))?,
                };
                socket.connect(address)?;
                Ok(Self { local: socket.local_addr()?, socket: Socket::Udp(socket) })
            }
            Target::Tcp(address) => {
                let socket = TcpStream::connect(address)?;
                Ok(Self { local: socket.local_addr()?, socket: Socket::Tcp(socket) })
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.socket {
            Socket::Udp(socket) => socket.send(bytes).map(|_| ()),
            Socket::Tcp(socket) => socket.write_all(bytes),
        }
    }
}

/// Whether datagrams to `target` may come from this address, if this machine has it.
fn may_send(own: IpAddr, target: IpAddr) -> bool {
    let is_one = !own.is_unspecified() && !own.is_multicast();
    is_one && own.is_ipv4() == target.is_ipv4() && (target.is_loopback() || !own.is_loopback())
}

/// From where datagrams go out that do not come from the board's own address.
fn local_address(target: IpAddr, here: Ipv4Addr) -> IpAddr {
    match target {
        IpAddr::V6(_) => IpAddr::from([0; 16]),
        IpAddr::V4(target) if !target.is_loopback() => IpAddr::from([0; 4]),
        IpAddr::V4(_) => here.into(),
    }
}

/// Each board's own address and its local stand-in. All of 127.0.0.0/8 belongs to the local machine.
#[derive(Clone, Debug, Default)]
pub(super) struct StandIns {
    known: BTreeMap<IpAddr, Ipv4Addr>,
}

impl StandIns {
    /// The stand-in for an address: the address itself if it is in 127.0.0.0/8; otherwise 127.0.0.N with its last
    /// number, or the lowest free one if another board has that already.
    pub(super) fn of(&mut self, own: IpAddr) -> Ipv4Addr {
        if let Some(known) = self.known.get(&own) {
            return *known;
        }
        let last = match own {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(address) => address.octets()[15],
        };
        let here = |last: u8| Ipv4Addr::new(127, 0, 0, last);
        let free = |address: &Ipv4Addr| !self.known.values().any(|known| known == address);
        let address = match own {
            IpAddr::V4(own) if own.is_loopback() => own,
            _ => {
                let mut candidates =
                    std::iter::once(last).chain(1..255).filter(|last| (1..255).contains(last)).map(here);
                candidates.find(free).unwrap_or(Ipv4Addr::LOCALHOST)
            }
        };
        self.known.insert(own, address);
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_board_has_an_address_of_its_own_and_keeps_it() {
        let mut stand_ins = StandIns::default();
        let mut of = |text: &str| stand_ins.of(text.parse().expect("an address")).to_string();
        let boards = ["192.168.10.1", "192.168.10.2", "10.0.0.2", "10.0.0.255", "127.0.0.9", "fe80::7", "10.0.0.2"];
        let found = boards.map(&mut of);
        assert_eq!(found, ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.9", "127.0.0.7", "127.0.0.3"]);
    }
}
