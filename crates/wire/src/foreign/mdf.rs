//! LHCb: MDF records. Their layout stands in [`mdf`].
//!
//! A record begins with its length, three times: behind damage the next three equal words are looked for.

use super::search::{frame, skip_to};
use super::{Describe, Enclosed, ForeignFormat, Inspector, MOST_FRAME_BYTES, Member, Place};
use crate::framing::{Fields, Framing, Front, Search, Window};
use crate::mdf::{self, FRONT_BYTES, MdfError, RecordHeader};
use crate::mep::BANK_HEADER_BYTES;
use crate::message::FragmentFlags;
use ropewalk_terms::SourceId;

/// The header of a record of version 1 or 3.
pub const HEADER: &[Place] = &[
    Place::little("bytes", 0, 4),
    Place::little("bytes again", 4, 4),
    Place::little("bytes once more", 8, 4),
    Place::little("checksum", 12, 4).hex(),
    Place::little("compression", 16, 1),
    Place::little("words of the rest", 17, 1).bits(0, 4),
    Place::little("version", 17, 1).bits(4, 4),
    Place::little("data type", 18, 1),
    Place::little("trigger mask, 0-31", 20, 4).hex(),
    Place::little("trigger mask, 32-63", 24, 4).hex(),
    Place::little("trigger mask, 64-95", 28, 4).hex(),
    Place::little("trigger mask, 96-127", 32, 4).hex(),
    Place::little("run", 36, 4),
    Place::little("orbit", 40, 4),
    Place::little("bunch", 44, 4),
];
/// How far apart records may begin.
const STEP: usize = 4;

/// Records back to back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Mdf;

/// Whether three lengths may be a record's.
fn are_lengths(bytes: [u8; 12]) -> bool {
    let [first, second, third] = [0, 4, 8].map(|at| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let length = u32::from_le_bytes(first) as usize;
    first == second && second == third && (FRONT_BYTES..=MOST_FRAME_BYTES).contains(&length)
}

impl Framing for Mdf {
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        match (window.array(0).map(are_lengths), RecordHeader::read(window)) {
            (Some(false), _) => skip_to(window, search, STEP, are_lengths),
            (_, Ok(header)) => frame(window, header.bytes.into()),
            (_, Err(MdfError::Short { needed })) => Front::Needs { bytes: needed },
            (_, Err(_)) => skip_to(window, search, STEP, are_lengths),
        }
    }

    fn fields(&self, record: &(impl Window + ?Sized)) -> Fields {
        match RecordHeader::read(record) {
            Err(_) => Fields { flags: FragmentFlags::MALFORMED, ..Fields::default() },
            Ok(header) => Fields {
                run: header.about.map(|about| about.run),
                bunch_crossing: header.about.and_then(|about| u16::try_from(about.bunch).ok()),
                ..Fields::default()
            },
        }
    }

    fn checksum(&self, record: &(impl Window + ?Sized)) -> Option<bool> {
        RecordHeader::read(record).ok()?.is_right(record)
    }
}

impl Describe for Mdf {
    fn looks_like(&self, first: &[u8]) -> bool {
        first.first_chunk().is_some_and(|&lengths| are_lengths(lengths)) && RecordHeader::read(first).is_ok()
    }

    fn describe(&self, record: &[u8], to: &mut dyn Inspector) {
        to.kind("event");
        let Ok(view) = mdf::Record::parse(record) else {
            return to.fault(0, "no record, or less than a whole one");
        };
        let (header, mut at) = (view.header(), view.header().data().start);
        let known = HEADER.iter().filter(|place| header.about.is_some() || place.offset() < FRONT_BYTES);
        known.for_each(|place| place.tell(record, to));
        if !header.has_plain_banks() {
            let what = if header.compression > 0 { "compressed banks" } else { "multi-event packets" };
            return to.part(format_args!("{what}"), at, view.data().len());
        }
        for bank in view.banks() {
            let Ok(bank) = bank else { return to.fault(at, "there is no bank where one should begin") };
            let bytes = BANK_HEADER_BYTES + bank.data.len();
            to.part(format_args!("bank of type {}", bank.kind), at, bytes);
            at += bytes.next_multiple_of(4);
        }
    }
}

/// What a record encloses; nothing where the frame is none. A source is a piece of the detector: a type of banks and the id in
/// them, which counts anew for each type. Banks of one that follow each other are one fragment.
pub(super) fn enclosed(record: &[u8]) -> Option<Enclosed> {
    let view = mdf::Record::parse(record).ok()?;
    let data = view.header().data();
    if !view.header().has_plain_banks() {
        return Some(Enclosed::undivided(ForeignFormat::Mdf, data));
    }
    let (mut members, mut at) = (Vec::<Member>::new(), data.start);
    for bank in view.banks() {
        let Ok(bank) = bank else { return Some(Enclosed::broken(ForeignFormat::Mdf, data)) };
        let source = SourceId(u32::from(bank.kind) << 16 | u32::from(bank.source.cast_unsigned()));
        let end = at + (BANK_HEADER_BYTES + bank.data.len()).next_multiple_of(4);
        match members.last_mut() {
            Some(last) if last.source == source => last.place.end = end,
            _ => members.push(Member { source, format: ForeignFormat::LhcbBanks, place: at..end }),
        }
        at = end;
    }
    Some(Enclosed { data, members, is_broken: false })
}
