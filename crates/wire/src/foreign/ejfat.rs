//! EJFAT datagrams (E2SAR, `e2sarHeaders.hpp`): a segment of an event, with the load balancer's header or without it.
//!
//! ```text
//!  load balancer  "LB" | version, 2 or 3 (u8) | protocol, 1 (u8) | 0 (u16) | entropy (u16) | event (u64)      taken off on the way
//!  reassembly     version, 1 (high nibble), 0 (u16) | data id (u16) | offset (u32) | bytes of the event (u32) | event (u64)
//! ```
//! Big-endian. An event is sent in several datagrams, each of which states the offset of its bytes. The reassembled
//! event is its first datagram followed by the bytes of the others. Version 3 of the load balancer's header has the
//! same length; its field at the place of the entropy is shown as that.

use super::{Describe, Header, Inspector, Place};
use crate::framing::{Fields, Framing, Front, Part, PieceHead, Search, Window};
use crate::message::FragmentFlags;
use ropewalk_terms::Cause;

/// Bytes of the load balancer's header.
pub const BALANCER_BYTES: usize = 16;
/// Bytes of the reassembly header.
pub const HEADER_BYTES: usize = 20;
/// The load balancer's header.
pub const BALANCER: &[Place] = &[
    Place::big("balancer", 0, 2).hex(),
    Place::big("balancer version", 2, 1),
    Place::big("balancer protocol", 3, 1),
    Place::big("entropy", 6, 2),
    Place::big("balancer event", 8, 8),
];
/// The version.
pub const VERSION: Place = Place::big("version", 0, 2).bits(12, 4);
/// The source of the segment.
pub const DATA_ID: Place = Place::big("data id", 2, 2);
/// Offset of its bytes in the event.
pub const OFFSET: Place = Place::big("offset", 4, 4);
/// Bytes of the whole event.
pub const LENGTH: Place = Place::big("event bytes", 8, 4);
/// The event number.
pub const EVENT: Place = Place::big("event", 12, 8);
/// The reassembly header.
pub const HEADER: &[Place] = &[VERSION, DATA_ID, OFFSET, LENGTH, EVENT];

/// The format.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Ejfat;

/// Bytes of the load balancer's header, if it is there.
fn balancer_bytes(datagram: &(impl Window + ?Sized)) -> usize {
    if matches!(datagram.array(0), Some([b'L', b'B', 2 | 3, 1])) { BALANCER_BYTES } else { 0 }
}

/// The bytes behind the load balancer's header; none if the datagram ends within it.
fn behind_balancer(datagram: &[u8]) -> &[u8] {
    datagram.get(balancer_bytes(datagram)..).unwrap_or_default()
}

fn is_segment(datagram: &(impl Window + ?Sized)) -> bool {
    let start = balancer_bytes(datagram);
    datagram.array(start) == Some([0x10, 0]) && datagram.len() >= start + HEADER_BYTES
}

impl Framing for Ejfat {
    fn front(&self, window: &(impl Window + ?Sized), _: &mut Search) -> Front {
        match window.len() {
            0 => Front::Needs { bytes: HEADER_BYTES },
            bytes if is_segment(window) => Front::Frame { bytes },
            bytes => Front::Skip { bytes, cause: Cause::Malformed },
        }
    }

    fn fields(&self, datagram: &(impl Window + ?Sized)) -> Fields {
        let start = balancer_bytes(datagram);
        let header = Part::new(datagram, start, HEADER_BYTES);
        let payload = datagram.len().saturating_sub(start + HEADER_BYTES) as u64;
        let end = OFFSET.read(&header).map(|offset| offset + payload);
        let fits = end.zip(LENGTH.read(&header)).is_some_and(|(end, length)| end <= length);
        Fields {
            event: EVENT.read(&header),
            source: DATA_ID.read(&header).map(|source| source as u32),
            flags: if fits { FragmentFlags::default() } else { FragmentFlags::LENGTH_MISMATCH },
            ..Fields::default()
        }
    }

    fn piece(&self, datagram: &(impl Window + ?Sized)) -> Option<PieceHead> {
        let start = balancer_bytes(datagram);
        let header = Part::new(datagram, start, HEADER_BYTES);
        // Segments of one event are distinguished by their data id.
        let frame = EVENT.read(&header)? ^ DATA_ID.read(&header)? << 48;
        let (place, whole) = (OFFSET.read(&header)?, LENGTH.read(&header));
        Some(PieceHead { frame, place, whole, header: start + HEADER_BYTES, is_in_bytes: true })
    }

    fn comes_in_pieces(&self) -> bool {
        true
    }
}

impl Describe for Ejfat {
    fn looks_like(&self, datagram: &[u8]) -> bool {
        balancer_bytes(datagram) > 0 && datagram.len() >= BALANCER_BYTES + HEADER_BYTES && is_segment(datagram)
    }

    fn describe(&self, datagram: &[u8], to: &mut dyn Inspector) {
        let start = balancer_bytes(datagram);
        if start > 0 {
            BALANCER.iter().for_each(|place| place.tell(datagram, to));
        }
        let segment = behind_balancer(datagram);
        for place in HEADER {
            // Shown at their place in the datagram.
            if let Some(number) = place.read(segment) {
                to.field(place.name(), start + place.offset(), 4, super::Value::Number(number));
            }
        }
        let payload = segment.len().saturating_sub(HEADER_BYTES);
        let is_whole = OFFSET.read(segment) == Some(0) && LENGTH.read(segment) == Some(payload as u64);
        to.kind(if is_whole { "event" } else { "segment" });
        let end = OFFSET.read(segment).unwrap_or_default() + payload as u64;
        if end > LENGTH.read(segment).unwrap_or_default() {
            to.fault(start + OFFSET.offset(), "the segment goes beyond its event");
        }
        to.part(format_args!("payload"), start + HEADER_BYTES, payload);
    }

    fn goes_on(&self, datagram: &[u8]) -> bool {
        OFFSET.read(behind_balancer(datagram)) > Some(0)
    }
}

/// The datagrams of an event, each with at most `most` bytes of it; with the load balancer's header if `balanced`.
pub fn encode(event: u64, data_id: u16, data: &[u8], most: usize, balanced: bool) -> Vec<Vec<u8>> {
    let header = Header::<HEADER_BYTES>::new().with(VERSION, 1).with(DATA_ID, data_id.into()).with(EVENT, event);
    let header = header.with(LENGTH, data.len() as u64);
    let segments = data.chunks(most.max(1)).scan(0, |offset, segment| {
        let mut datagram = Vec::new();
        if balanced {
            datagram.extend_from_slice(b"LB\x02\x01\0\0");
            datagram.extend_from_slice(&data_id.to_be_bytes());
            datagram.extend_from_slice(&event.to_be_bytes());
        }
        datagram.extend_from_slice(&header.with(OFFSET, *offset as u64).0);
        datagram.extend_from_slice(segment);
        *offset += segment.len();
        Some(datagram)
    });
    segments.collect()
}
