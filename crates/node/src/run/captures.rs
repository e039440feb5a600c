//! Captures in the place of boards that send datagrams.
//!
//! ```text
//!  capture file --> a thread: the wanted datagrams, in their order --> a receiver of the readout unit, nothing lost
//! ```
//! Boards that sent to one port, and are told apart as those of a socket are, share one reading of the file.

use super::assemble::{RunError, Workshop, system};
use super::entrances::{DATAGRAM_BLOCK, DATAGRAM_BLOCKS, Fed, Opened, Writing, datagram_input, together};
use super::placement::{Purpose, pool_of};
use crate::configuration::{FormatName, InputChoice, SourceSection};
use crate::drive::ReadoutDrive;
use crate::offline::ByteOrigin;
use crate::offline::foreign::{Passed, Wanted, capture_has_datagrams, feed_datagrams, is_capture_file};
use ropewalk_io::Dispatcher;
use ropewalk_io::packet::{LocalFeed, local_packets};
use ropewalk_io::tcp::Tcp;
use ropewalk_memory::PoolConfig;
use ropewalk_terms::Requirement;
use ropewalk_terms::{Instant, Utc};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Datagrams that may wait between the thread that reads and the readout unit.
const MOST_WAITING: usize = 4096;
/// How long the thread waits for room before it looks again.
const NO_ROOM: Duration = Duration::from_micros(100);

impl Workshop<'_> {
    /// Opens what the sources of a readout unit need that are read from captures of datagrams.
    pub(super) fn captures<P: Dispatcher>(
        &self,
        index: u16,
        readout: &mut ReadoutDrive<Tcp, P>,
        opened: &mut Opened,
    ) -> Result<(), RunError> {
        let captured = self.resolved.sources_of(index).filter(|source| is_capture(source));
        for boards in together(captured, SourceSection::shares_capture) {
            let first = boards[0];
            let Some(InputChoice(origin)) = &first.input else { continue };
            let name = first.name_or_id();
            let pool = PoolConfig::anonymous(&pool_of(&name, Purpose::Datagrams), DATAGRAM_BLOCK, DATAGRAM_BLOCKS);
            let pool = self.placement.untouched_pool(pool)?;
            let (feed, receiver) = local_packets(pool, MOST_WAITING).map_err(system(format!("{name}: a bell")))?;
            readout.add_datagrams(datagram_input(&boards, receiver, false));
            opened
                .to_start
                .push(Fed { name, writing: Writing::Capture(origin.clone(), first.wanted(), Box::new(feed)) });
        }
        Ok(())
    }
}

/// Looks whether the file in the place of a required source can be read.
///
/// # Errors
/// Where it cannot, or is no capture though the source's frames come in datagrams. A FIFO is looked at when it is read.
pub(super) fn check_input(source: &SourceSection) -> Result<(), RunError> {
    let Some(InputChoice(ByteOrigin::File(path))) = &source.input else { return Ok(()) };
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

/// Whether a source's datagrams are read from a capture.
pub(super) fn is_capture(source: &SourceSection) -> bool {
    let Some(InputChoice(origin)) = source.input.as_ref().filter(|_| source.emulate.is_none()) else { return false };
    let wanted = source.wanted();
    // Frames of some formats come either way: the file tells, where it can be looked into. What cannot be read is told by
    // whoever reads it.
    let may_be_either = matches!(source.format, FormatName::Foreign(_)) && !source.has_layout() && origin.is_regular();
    source.has_datagrams()
        || wanted.protocol.is_some()
        || may_be_either && capture_has_datagrams(origin.path(), &wanted).is_ok_and(|told| told == Some(true))
}

/// Hands over the datagrams of a capture, until there are no more, nobody takes them, or `is_over` is set.
///
/// # Errors
/// What went wrong, for people.
pub(super) fn hand_over(
    origin: &ByteOrigin,
    wanted: &Wanted,
    mut feed: LocalFeed,
    is_over: &Arc<AtomicBool>,
) -> Result<Passed, String> {
    let mut give = |from: IpAddr, port: u16, time: Option<Utc>, datagram: &[u8]| {
        let came = time.map(|time| Instant::from_nanoseconds(u64::try_from(time.0).unwrap_or(0)));
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
