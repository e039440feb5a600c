//! Files of what black boxes hand over: a thread that looks after them, beside those that carry data.
//!
//! ```text
//!  black-box/board7-1-crc_error.pcapng    datagrams, as a capture
//!  black-box/caen-1-sync_lost.raw         bytes of a stream, from the begin of a frame on
//! ```

use super::assemble::{Workshop, epoch};
use super::entrances::Opened;
use super::feeder::FeederNotes;
use crate::configuration::{NetworkAddress, SourceSection};
use crate::drive::{BlackBox, BlackBoxConfig, ReadoutDrive, Recording, RecordingLine};
use crate::offline::foreign::{SavedAs, encode_capture};
use ropewalk_io::Dispatcher;
use ropewalk_io::tcp::Tcp;
use ropewalk_terms::{Instant, SourceId, Utc};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where files go, in the run's directory.
const DIRECTORY: &str = "black-box";
/// How often is looked whether there is something to save.
const LOOK: Duration = Duration::from_millis(50);

/// What one source's recordings become.
pub(super) struct Saver {
    name: String,
    /// As what its datagrams are saved; none for a stream.
    datagrams: Option<SavedAs>,
    line: RecordingLine,
    saved: u32,
}

impl Workshop<'_> {
    /// Gives the sources of a readout unit their black boxes, where the configuration wants any. Who listens where was
    /// found out when they were `opened`.
    pub(super) fn black_boxes<P: Dispatcher>(
        &self,
        index: u16,
        readout: &mut ReadoutDrive<Tcp, P>,
        opened: &Opened,
    ) -> Vec<Saver> {
        let mut savers = Vec::new();
        for source in self.resolved.sources_of(index) {
            let Some(wanted) = &source.black_box else { continue };
            let config = BlackBoxConfig { last: wanted.last.0, max_bytes: wanted.max.0 as usize };
            let (black_box, line) = BlackBox::new(SourceId(source.id), config);
            let (name, in_datagrams) = (source.name_or_id(), readout.add_black_box(SourceId(source.id), black_box));
            let bound = opened.addresses.iter().find(|(known, _)| *known == name);
            let datagrams = in_datagrams.then(|| saved_as(source, bound.map(|(_, address)| address.as_str())));
            savers.push(Saver { name, datagrams, line, saved: 0 });
        }
        savers
    }
}

/// As what a source's datagrams are saved: as they came, as far as a socket tells.
fn saved_as(source: &SourceSection, bound: Option<&str>) -> SavedAs {
    let wanted = source.wanted();
    let to = match (source.listen.as_ref(), wanted.to) {
        (Some(NetworkAddress::Ip(address, protocol)), _) => return SavedAs::Packets(*address, *protocol),
        (_, to) => SocketAddr::new(to.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), wanted.port.unwrap_or(0)),
    };
    match (wanted.protocol, bound.and_then(|bound| bound.parse().ok()), to.ip()) {
        (Some(protocol), _, IpAddr::V4(to)) => SavedAs::Packets(to, protocol),
        (_, Some(bound), _) => SavedAs::Datagrams(bound),
        (_, None, _) => SavedAs::Datagrams(to),
    }
}

/// Saves what comes, until `is_over` is set; the notes say what was saved where.
pub(super) fn save(mut savers: Vec<Saver>, directory: &Path, is_over: &AtomicBool, notes: &FeederNotes) {
    let (directory, epoch, mut said) = (directory.join(DIRECTORY), epoch(), Vec::new());
    loop {
        // In this order: what was handed over before the end is still saved.
        let is_last = is_over.load(Ordering::Relaxed);
        for saver in &mut savers {
            while let Some(recording) = saver.line.take_next() {
                said.push(saver.save(&recording, &directory, epoch));
                saver.line.give_back(recording);
            }
        }
        if is_last {
            break;
        }
        std::thread::sleep(LOOK);
    }
    notes.leave(said);
}

impl Saver {
    /// Saves a recording; what there is to say of it.
    fn save(&mut self, recording: &Recording, directory: &Path, epoch: Utc) -> String {
        let Some((what, at)) = recording.incident() else { return String::new() };
        self.saved += 1;
        let ending = if self.datagrams.is_some() { "pcapng" } else { "raw" };
        let file = directory.join(format!("{}-{}-{what}.{ending}", self.name, self.saved));
        let written = std::fs::create_dir_all(directory).and_then(|()| self.write(recording, &file, epoch));
        let seconds = recording.since().map_or(Duration::ZERO, |since| at.since(since)).as_secs_f64();
        match written {
            Ok(()) => format!("{}: {what}; what came in the {seconds:.3} s before is in {}", self.name, file.display()),
            Err(error) => {
                format!("{}: {what}; what came before cannot be saved in {}: {error}", self.name, file.display())
            }
        }
    }

    fn write(&self, recording: &Recording, file: &PathBuf, epoch: Utc) -> std::io::Result<()> {
        let mut out = BufWriter::new(File::create(file)?);
        match self.datagrams {
            None => recording.stream().iter().try_for_each(|piece| out.write_all(piece))?,
            Some(saved_as) => {
                let utc = |at: Instant| Utc(epoch.0.saturating_add(at.as_nanoseconds() as i64));
                let packets = recording.datagrams().map(|(at, from, pieces)| (utc(at), from, pieces.concat()));
                encode_capture(saved_as, packets, &mut out)?;
            }
        }
        out.flush()
    }
}
