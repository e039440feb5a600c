//! MDF records.
//!
//! Fragments that are banks go out as they are. Others are wrapped: each becomes one bank of type 255, whose source is the
//! fragment's. A record that came out of such a file has its header in its envelope, and goes out as it came.

use super::output::Output;
use super::{Exported, Exporter, Part, Parts, named};
use crate::offline::OfflineError;
use ropewalk_terms::RunNumber;
use ropewalk_wire::mdf::{AboutEvent, LARGEST_BANK_DATA, RecordHeader, encode_record};
use ropewalk_wire::mep::{BANK_MAGIC, Bank, Banks, FRAGMENT_HEADER_BYTES, FragmentHeader, encode_bank};
use ropewalk_wire::run_file::{FragmentFlags, SourceFormat, run_directory_name};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The type of banks whose data are fragments of another kind.
const WRAPPED: u8 = 255;

/// One file of all events.
pub(super) struct Mdf {
    run: RunNumber,
    output: Output,
    bytes: Vec<u8>,
}

impl Mdf {
    pub(super) fn new(directory: &Path, run: Option<RunNumber>) -> Result<Self, OfflineError> {
        let run = named(run);
        let output = Output::create(directory, &format!("{}.mdf", run_directory_name(run)))?;
        Ok(Self { run, output, bytes: Vec::new() })
    }

    /// A record that was none before.
    fn made(&mut self, event: &Parts<'_>, about: &AboutEvent) -> Result<(), OfflineError> {
        let banks = event.fragments.iter().map(|part| banks_of(event, part)).collect::<Result<Vec<_>, _>>()?;
        let pieces: Vec<&[u8]> = banks.iter().map(|bank| &bank[..]).collect();
        self.bytes.clear();
        encode_record(about, &pieces, &mut self.bytes).map_err(|error| event.refused(error.to_string()))?;
        self.output.write(&self.bytes)
    }

    fn about(&self, event: &Parts<'_>) -> AboutEvent {
        let entries = event.fragments.iter().map(|part| &part.view.entry);
        let crossing = entries.clone().find(|entry| entry.flags.contains(FragmentFlags::HAS_BUNCH_CROSSING));
        let bunch = crossing.map_or(0, |entry| entry.bunch_crossing.into());
        // As LHCb's own writer does it where it knows nothing of the trigger: everything wanted the event.
        AboutEvent { trigger_mask: [u32::MAX; 4], run: self.run.0, orbit: 0, bunch }
    }
}

/// A fragment as banks.
fn banks_of<'a>(event: &Parts<'_>, part: &Part<'a>) -> Result<Cow<'a, [u8]>, OfflineError> {
    let (source, payload) = (part.view.entry.source, part.view.payload);
    if part.format == SourceFormat::BANKS {
        let banks = without_header(payload);
        return match Banks::new(banks).all(|bank| bank.is_ok()) {
            true => Ok(Cow::Borrowed(banks)),
            false => Err(event.refused(format!("the fragment of source {source} does not consist of whole banks"))),
        };
    }
    let Ok(id) = u16::try_from(source.0) else {
        return Err(event.refused(format!("source {source} does not fit into the 16 bits that a bank has for it")));
    };
    if payload.len() > LARGEST_BANK_DATA {
        let bytes = payload.len();
        let why = format!("the fragment of source {source} has {bytes} B, and a bank holds {LARGEST_BANK_DATA} B");
        return Err(event.refused(why));
    }
    let mut bank = Vec::new();
    let encoded = encode_bank(&Bank { kind: WRAPPED, version: 0, source: id.cast_signed(), data: payload }, &mut bank);
    encoded.map_err(|error| event.refused(error.to_string()))?;
    Ok(Cow::Owned(bank))
}

/// Banks without the header that a fragment has in a multi-event packet.
fn without_header(payload: &[u8]) -> &[u8] {
    let is_bank = |bytes: &[u8]| bytes.starts_with(&BANK_MAGIC.to_le_bytes());
    match payload.split_first_chunk::<FRAGMENT_HEADER_BYTES>() {
        Some((&header, rest))
            if !is_bank(payload) && usize::from(FragmentHeader::from_bytes(header).length) == rest.len() =>
        {
            rest
        }
        _ => payload,
    }
}

impl Exporter for Mdf {
    fn event(&mut self, event: &Parts<'_>, told: &mut Exported) -> Result<(), OfflineError> {
        let header = event.envelope.and_then(|bytes| Some((bytes, RecordHeader::read(bytes).ok()?)));
        let own = header.filter(|(bytes, header)| bytes.len() == header.header_bytes());
        let Some((bytes, header)) = own else {
            told.note_made(event);
            told.miss("event numbers", true);
            return self.made(event, &self.about(event));
        };
        if header.header_bytes() as u64 + event.bytes() != u64::from(header.bytes) {
            told.miss("the event's length, which is another one now", true);
            return self.made(event, &header.about.unwrap_or_else(|| self.about(event)));
        }
        self.output.write(bytes)?;
        event.fragments.iter().try_for_each(|part| self.output.write(part.view.payload))
    }

    fn finish(self: Box<Self>) -> Result<Vec<PathBuf>, OfflineError> {
        Ok(vec![self.output.finish()?])
    }
}
