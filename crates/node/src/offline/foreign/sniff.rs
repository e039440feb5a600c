//! Unknown frames looked at: out of a capture, or as they come to a port.

use super::frames::{Carriage, Passing};
use super::input::{CutOff, Input};
use super::saving::{SavedAs, capture_begin};
use crate::offline::OfflineError;
use ropewalk_flow::sniff::{Findings, Limits, Peer, Sniffer, Transport};
use ropewalk_terms::{Instant, Utc};
use ropewalk_wire::capture::{CaptureReader, Carried, Streams, Stretches};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How often is looked whether the time is over.
const LOOK: Duration = Duration::from_millis(100);
/// How long nobody is asked after nothing came from any connection.
const REST: Duration = Duration::from_millis(1);
/// Bytes of the longest datagram, and of the longest piece of a stream.
const MOST_BYTES: usize = 0xFFFF;
/// Bytes of a file that are looked at.
const MOST_OF_FILE: usize = 4 << 20;
/// Connections that are looked at.
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
/// Where it cannot be read.
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

/// Looks at what follows in a stream, and says how many bytes of it are missing.
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

/// Looks at the datagrams that come to a socket for so long, and saves them as pcapng where that is wanted.
///
/// # Errors
/// Where the socket fails, or the file cannot be written.
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

/// Looks at what connections send that come to a listener within so long, and saves the bytes of the first one where that
/// is wanted.
///
/// # Errors
/// Where the listener fails, or the file cannot be written.
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
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Utc(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

const fn instant(time: Utc) -> Instant {
    Instant::from_nanoseconds(if time.0 > 0 { time.0 as u64 } else { 0 })
}

/// What was heard, as a file.
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
