//! LHCb: multi-event packets, raw banks and MDF records. [`mep`] and [`mdf`] have the layouts.

use super::headed::{frame, skip_to};
use super::{Describe, Enclosed, ForeignFormat, Inspector, MOST_FRAME_BYTES, Member, Place, Value, headed};
use crate::framing::{Fields, Framing, Front, MOST_PIECES, Part, Piece, PieceKey, Search, Splitter, Widths, Window};
use crate::mdf::{self, FRONT_BYTES, MdfError, RecordHeader};
use crate::mep::{
    self, BANK_HEADER_BYTES, BANK_MAGIC, Banks, FRAGMENT_HEADER_BYTES, FragmentHeader, MEP_HEADER_BYTES, MepHeader,
};
use crate::message::FragmentFlags;
use crate::zeros;
use ropewalk_terms::{Cause, SourceId};

/// The header of a packet.
pub const MEP_HEADER: &[Place] = &[
    Place::little("first event", 0, 4),
    Place::little("packing factor", 4, 2),
    Place::little("bytes", 6, 2),
    Place::little("partition", 8, 4).hex(),
];
/// The header of a raw bank.
pub const BANK_HEADER: &[Place] = &[
    Place::little("magic", 0, 2).hex(),
    Place::little("bytes", 2, 2),
    Place::little("type", 4, 1),
    Place::little("version", 5, 1),
    Place::little("source", 6, 2),
];

/// Multi-event packets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Mep;

fn header(packet: &(impl Window + ?Sized)) -> Option<MepHeader> {
    packet.array(0).map(|bytes| MepHeader::from_bytes(&bytes))
}

/// Number of events in a packet.
pub(super) fn packing(packet: &[u8]) -> u16 {
    header(packet).map_or(0, |header| header.packing)
}

/// Whether it is the header of a packet with events.
pub(super) fn has_events(packet: &(impl Window + ?Sized)) -> bool {
    header(packet).is_some_and(|header| header.packing > 0 && usize::from(header.length) > MEP_HEADER_BYTES)
}

fn check(packet: &(impl Window + ?Sized), header: &MepHeader) -> Result<(), Cause> {
    if usize::from(header.length) != packet.len() {
        return Err(Cause::LengthMismatch);
    }
    mep::check_fragments(header, |at| packet.array(at)).map_err(mep::MepError::cause)
}

impl Mep {
    /// The frame at the front of a stream without zeros.
    pub(super) fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        match header(window) {
            None => Front::Needs { bytes: MEP_HEADER_BYTES },
            Some(header) if usize::from(header.length) < MEP_HEADER_BYTES => Front::Lost { cause: Cause::FramingLost },
            Some(header) => frame(window, header.length.into()),
        }
    }
}

impl Framing for Mep {
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        headed::front(self, window, search)
    }

    fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        zeros::front_at_end(self, window, search)
    }

    fn fields(&self, packet: &(impl Window + ?Sized)) -> Fields {
        let header = header(packet);
        let is_good = header.is_some_and(|header| check(packet, &header).is_ok());
        Fields {
            event: header.map(|header| header.first_event.into()),
            source: header.and_then(|_| source(packet)),
            flags: if is_good { FragmentFlags::default() } else { FragmentFlags::MALFORMED },
            ..Fields::default()
        }
    }

    fn widths(&self) -> Widths {
        Widths { event: 32, ..Widths::default() }
    }
}

/// A packet does not state its source: its first bank does.
fn source(packet: &(impl Window + ?Sized)) -> Option<u32> {
    let at = MEP_HEADER_BYTES + FRAGMENT_HEADER_BYTES;
    let [m0, m1, _, _, _, _, s0, s1] = packet.array(at)?;
    (u16::from_le_bytes([m0, m1]) == BANK_MAGIC).then_some(u16::from_le_bytes([s0, s1]).into())
}

impl Splitter for Mep {
    fn split(&self, packet: &(impl Window + ?Sized), pieces: &mut Vec<Piece>) -> Result<(), Cause> {
        let header = header(packet).ok_or(Cause::ShortPacket)?;
        check(packet, &header)?;
        let mut offset = MEP_HEADER_BYTES;
        for index in 0..header.packing.into() {
            let bytes = packet.array(offset).ok_or(Cause::Malformed)?;
            let length = FRAGMENT_HEADER_BYTES + usize::from(FragmentHeader::from_bytes(bytes).length);
            let event = header.first_event.wrapping_add(index);
            pieces.push(Piece { key: PieceKey::Event(event.into()), offset, length });
            offset += length;
        }
        debug_assert!(pieces.len() <= MOST_PIECES, "a packing factor has 16 bits");
        Ok(())
    }
}

impl Describe for Mep {
    fn looks_like(&self, first: &[u8]) -> bool {
        // Whether a file or a packet begins like this: with a packet whose fragments are in order.
        header(first).is_some_and(|header| {
            let packet = Part::new(first, 0, header.length.into());
            header.packing > 0 && check(&packet, &header).is_ok()
        })
    }

    fn describe(&self, packet: &[u8], to: &mut dyn Inspector) {
        to.kind("packet");
        MEP_HEADER.iter().for_each(|place| place.tell(packet, to));
        let view = match mep::MepView::parse(packet) {
            Ok(view) => view,
            Err(_) => return to.fault(MEP_HEADER_BYTES, "the fragments do not match the header"),
        };
        let mut at = MEP_HEADER_BYTES;
        for (event, banks) in view.fragments() {
            to.field("event, lower 16 bits", at, 2, Value::Number(event.into()));
            to.part(format_args!("event"), at, FRAGMENT_HEADER_BYTES + banks.len());
            tell_banks(banks, at + FRAGMENT_HEADER_BYTES, to);
            at += FRAGMENT_HEADER_BYTES + banks.len();
        }
    }
}

/// Reports the banks that begin at `at`. A fragment need not contain banks: one with another beginning is ignored.
fn tell_banks(banks: &[u8], at: usize, to: &mut dyn Inspector) {
    let mut place = at;
    for bank in Banks::new(banks) {
        match bank {
            Ok(bank) => {
                let bytes = BANK_HEADER_BYTES + bank.data.len();
                to.part(format_args!("bank of type {}", bank.kind), place, bytes);
                place += bytes.next_multiple_of(4);
            }
            Err(_) if place == at => to.part(format_args!("no banks"), at, banks.len()),
            Err(_) => to.fault(place, "there is no bank where one should begin"),
        }
    }
}

/// Raw banks back to back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RawBanks;

impl Framing for RawBanks {
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        let is_magic = |bytes| u16::from_le_bytes(bytes) == BANK_MAGIC;
        match (window.array(0), BANK_HEADER[1].read(window)) {
            (Some(magic), _) if !is_magic(magic) => skip_to(window, search, 4, is_magic),
            (_, None) => Front::Needs { bytes: BANK_HEADER_BYTES },
            (_, Some(bytes)) if bytes < BANK_HEADER_BYTES as u64 => skip_to(window, search, 4, is_magic),
            (_, Some(bytes)) => frame(window, bytes.next_multiple_of(4)),
        }
    }

    fn fields(&self, bank: &(impl Window + ?Sized)) -> Fields {
        Fields {
            source: BANK_HEADER[4].read(bank).map(|source| source as u32),
            trigger_type: BANK_HEADER[2].read(bank).map(|kind| kind as u16),
            ..Fields::default()
        }
    }
}

impl Describe for RawBanks {
    fn looks_like(&self, first: &[u8]) -> bool {
        BANK_HEADER[0].read(first) == Some(BANK_MAGIC.into())
            && BANK_HEADER[1].read(first) >= Some(BANK_HEADER_BYTES as u64)
    }

    fn describe(&self, bank: &[u8], to: &mut dyn Inspector) {
        to.kind("bank");
        BANK_HEADER.iter().for_each(|place| place.tell(bank, to));
        tell_banks(bank, 0, to);
    }
}

// MDF records; `crate::mdf` has the layout.
//
// A record begins with its length, three times: after damage the next three equal words are taken for the beginning of
// a record.

/// The header of a record of version 1 or 3.
pub const MDF_HEADER: &[Place] = &[
    Place::little("bytes", 0, 4),
    Place::little("bytes (copy 1)", 4, 4),
    Place::little("bytes (copy 2)", 8, 4),
    Place::little("checksum", 12, 4).hex(),
    Place::little("compression", 16, 1),
    Place::little("words of the specific header", 17, 1).bits(0, 4),
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
/// Alignment of the beginnings of records.
const STEP: usize = 4;

/// Records back to back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Mdf;

/// Whether three lengths may belong to a record.
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
        let known = MDF_HEADER.iter().filter(|place| header.about.is_some() || place.offset() < FRONT_BYTES);
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

/// The fragments in a record; `None` if the frame is not a record. A source is a part of the detector: a type of banks
/// and the id in them, which counts separately for each type. Consecutive banks of a source are one fragment.
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
