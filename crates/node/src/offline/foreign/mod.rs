//! Files of other people's formats, and captures of network traffic: counted, checked, shown.
//!
//! ```text
//! input      a file, unpacked where it is packed, through a window of bounded size
//! frames     its frames: of a stream, or of the datagrams and connections in a capture
//! holes      bytes of connections that a capture misses
//! account    what each source sent, and every fault by its name
//! record     one frame with all its fields, for people
//! convert    run files made of them
//! replay     what is in it on the line again
//! sniff      frames of an unknown format: what they say (flow::sniff), as JSON (sniff_report), and a [[source]] for them (draft)
//! trial      a source's layout or format tried on what its board sent
//! recording  a capture in the place of the sources of a run, which makes run files of it by their layouts
//! feeding    a file in the place of a source of a run
//! saving     what was received as a capture
//! wanted     which packets of a capture are meant, for all of these
//! ```
//! No case per format: what there is to know stands in `ropewalk_wire::foreign`. Memory holds a window per file, and some numbers
//! per source.

mod account;
mod choosing;
mod connections;
mod convert;
mod draft;
mod feeding;
mod frames;
mod holes;
mod input;
mod record;
mod recording;
mod replay;
mod saving;
mod sniff;
mod sniff_report;
mod stand_ins;
#[cfg(test)]
mod tests;
mod trial;
mod wanted;

pub use account::{
    CaptureReport, Checksums, CountingReport, FOREIGN_SCHEMA, Fault, FileReport, ForeignReport, PeerHole, SourceReport,
};
pub use choosing::{Chosen, ChosenFrames};
pub use convert::{Converted, convert};
pub use draft::draft_text;
pub use feeding::{Passed, capture_has_datagrams, feed_datagrams, feed_stream, is_capture_file};
pub use holes::HoleReport;
pub use input::CutOff;
pub use record::{FieldReport, InspectReport, PartReport, RecordReport, show_record};
pub use recording::{Recorded, of_recordings};
pub use replay::{ForeignReplayOptions, ForeignReplayed, NoTarget, Pace, Target, replay_foreign};
pub use saving::{SavedAs, encode_capture};
pub use sniff::{Sniffed, sniff_connections, sniff_datagrams, sniff_file};
pub use sniff_report::{
    GroupReport, GuessReport, MeaningReport, PeerReport, SNIFF_SCHEMA, SniffReport, TransportReport,
};
pub use trial::{
    BadReport, BoardReport, ChecksumsReport, IntervalReport, NumbersReport, TRIAL_SCHEMA, TrialOptions, TrialReport,
    rule_of, try_layout,
};
pub use wanted::Wanted;

use super::{OfflineError, Packing};
use account::Account;
use input::Input;
use record::Records;
use ropewalk_wire::capture::CaptureReader;
use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::run_file::RECORD_MAGIC;
use std::path::Path;

/// What of the frames is kept, beside the account.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ForeignOptions {
    /// The files' format; it is found out where it is not said.
    pub format: Option<ForeignFormat>,
    /// So many frames from this one on (counted from 0) with all their fields.
    pub first_record: u64,
    /// How many.
    pub records: u64,
    /// At most so many bytes of each of them.
    pub payload_bytes: usize,
}

/// Whether a file is for [`inspect_foreign`] and no run file: a capture, a file whose format is known by its first bytes, or what
/// cannot be looked into without taking its bytes (a FIFO, or `-` for standard input).
///
/// # Errors
/// Where it cannot be read. A directory is none, and neither is what is not there.
pub fn is_foreign(path: &Path) -> Result<bool, OfflineError> {
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() => return Ok(!metadata.is_dir()),
        Err(_) => return Ok(path == Path::new("-")),
        Ok(_) => {}
    }
    let mut input = Input::open(path)?;
    let is_packed = input.packing() != Packing::None;
    let first = input.begin();
    let is_known = CaptureReader::recognises(first) || ForeignFormat::recognise(first).is_some();
    // Run files are never packed as a whole.
    Ok(is_packed || is_known && !first.starts_with(&RECORD_MAGIC))
}

/// Counts and checks files of one format, and keeps some of their frames with all their fields.
///
/// # Errors
/// Where a file cannot be read, or its format is unknown or another one than that of the files before it. Damage is no error.
pub fn inspect_foreign<P: AsRef<Path>>(
    paths: &[P],
    options: &ForeignOptions,
) -> Result<(ForeignReport, Vec<RecordReport>), OfflineError> {
    inspect_inputs(paths.iter().map(|path| Input::open(path.as_ref())), options)
}

fn inspect_inputs(
    inputs: impl Iterator<Item = Result<Input, OfflineError>>,
    options: &ForeignOptions,
) -> Result<(ForeignReport, Vec<RecordReport>), OfflineError> {
    let (mut account, mut records) = (Account::default(), Records::new(options));
    let mut format = options.format;
    for input in inputs {
        let mut input = input?;
        account.begin_file(input.path(), input.packing());
        let found = frames::read(&mut input, format, &mut |found| {
            if let frames::Found::Frame(frame) = &found {
                records.take(frame, account.frames());
            }
            account.add(&found);
        })?;
        account.end_file(input.bytes_read());
        format = format.or(Some(found));
    }
    Ok((account.into_report(format), records.taken))
}
