//! Unknown datagrams looked at: out of a capture, or as they come to a port.

use super::frames::{Carriage, Passing};
use super::input::Input;
use crate::offline::OfflineError;
use ropewalk_terms::Utc;
use ropewalk_wire::capture::{CaptureReader, Carried, LinkType, encode_interface, encode_packet};
use ropewalk_wire::internet::{Ipv4Header, UDP_BYTES, UDP_PROTOCOL, UdpHeader};
use ropewalk_wire::sniff::{Sniffed, Sniffer};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// How often is looked whether the time is over.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of the longest datagram.
const MOST_BYTES: usize = 0xFFFF;

/// Looks at the datagrams of a capture.
///
/// # Errors
/// Where it cannot be read, or is none.
pub fn sniff_capture(path: &Path) -> Result<Vec<Sniffed>, OfflineError> {
    let mut input = Input::open(path)?;
    if !CaptureReader::recognises(input.begin()?) {
        return Err(OfflineError::NoCapture { path: path.to_owned() });
    }
    let mut sniffer = Sniffer::new();
    Carriage::default().read(&mut input, &mut |passing| {
        if let Passing::Packet { time, carried: Carried::Datagram(datagram), .. } = passing {
            sniffer.push(datagram.source, datagram.destination.port(), time, datagram.payload);
        }
    })?;
    Ok(sniffer.finish())
}

/// Looks at the datagrams that come to a socket for so long, and saves them as pcapng where that is wanted.
///
/// # Errors
/// Where the socket fails, or the file cannot be written.
pub fn sniff_socket(socket: &UdpSocket, time: Duration, save: Option<&Path>) -> Result<Vec<Sniffed>, OfflineError> {
    let failed = |error| OfflineError::Target { target: "receiving".to_owned(), error };
    let local = socket.local_addr().map_err(failed)?;
    socket.set_read_timeout(Some(LOOK)).map_err(failed)?;
    let mut file = save.map(Save::create).transpose()?;
    let (end, mut sniffer, mut room) = (Instant::now() + time, Sniffer::new(), vec![0; MOST_BYTES]);
    while Instant::now() < end {
        let (bytes, source) = match socket.recv_from(&mut room) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(error) => return Err(failed(error)),
        };
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = Utc(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX));
        sniffer.push(source, local.port(), Some(now), &room[..bytes]);
        if let Some(file) = &mut file {
            file.packet(now, source, local, &room[..bytes])?;
        }
    }
    file.map(Save::finish).transpose()?;
    Ok(sniffer.finish())
}

/// A capture that is being written.
struct Save {
    path: std::path::PathBuf,
    file: BufWriter<File>,
    block: Vec<u8>,
}

impl Save {
    fn create(path: &Path) -> Result<Self, OfflineError> {
        let file = File::create(path).map_err(OfflineError::system("create", path))?;
        let mut save = Self { path: path.to_owned(), file: BufWriter::new(file), block: Vec::new() };
        encode_interface(LinkType::RAW, &mut save.block);
        save.write()?;
        Ok(save)
    }

    /// Writes a datagram as the IP packet that it came in, as far as a socket tells; those of IPv6 are left out.
    fn packet(&mut self, time: Utc, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Result<(), OfflineError> {
        let (SocketAddr::V4(source), SocketAddr::V4(destination)) = (from, to) else { return Ok(()) };
        let mut packet = [0; 28];
        let header = Ipv4Header::new(*source.ip(), *destination.ip(), UDP_PROTOCOL);
        let datagram = UdpHeader { source, destination: SocketAddrV4::new(*destination.ip(), destination.port()) };
        let whole = header
            .write(UDP_BYTES + payload.len(), &mut packet)
            .and_then(|start| datagram.write_unchecked(payload.len(), &mut packet[start..]));
        if whole.is_some() {
            self.block.clear();
            encode_packet(time, &[&packet[..], payload].concat(), &mut self.block);
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), OfflineError> {
        self.file.write_all(&self.block).map_err(OfflineError::system("write", &self.path))
    }

    fn finish(mut self) -> Result<(), OfflineError> {
        self.file.flush().map_err(OfflineError::system("write", &self.path))
    }
}
