//! Frames as front ends would send them: for emulators, and for tests of whoever reads them.

use super::{ForeignFormat, Header, alice, artdaq, atlas, dune, ejfat, ess, eudaq, midas, nscldaq, srs};
use crate::frd::{self, EventHeader, Version};
use crate::mep::{Bank, encode_bank, encode_mep};
use crate::{fed, ferol, mdf, rod};
use ropewalk_terms::SourceId;

/// Events in an emulated multi-event packet.
pub const EMULATED_PACKING: u32 = 4;
/// Bytes of an event in an emulated EJFAT segment, at most.
const SEGMENT_BYTES: usize = 8192;
/// The bunch crossing of everything that is emulated.
const BUNCH_CROSSING: u16 = 77;

/// What a frame is to say.
#[derive(Copy, Clone)]
struct Wish<'a> {
    source: u32,
    event: u32,
    payload: &'a [u8],
}

impl ForeignFormat {
    /// The frames that carry a source's part of an event: one, where the format does not cut events into several. Of `source` as
    /// many bits are used as the format has. Multi-event packets hold [`EMULATED_PACKING`] events, the first of them
    /// `event` times as many. None where the payload is too long for a frame.
    pub fn emulate(self, source: u32, event: u32, payload: &[u8]) -> Option<Vec<Vec<u8>>> {
        let (wish, mut frame) = (Wish { source, event, payload }, Vec::new());
        let out = &mut frame;
        match self {
            Self::Ejfat => return Some(segments(wish)),
            Self::Ferol => return blocks(wish),
            Self::Alice => return pages(wish),
            Self::Midas => event_with_banks(wish, out),
            Self::Eudaq => event_of_a_plane(wish, out),
            Self::Dune => dune_fragment(wish, out),
            Self::Atlas => full_event(wish, out),
            Self::Mdf => record(wish, out)?,
            Self::Frd => event_of_fragments(wish, out)?,
            Self::LhcbBanks => bank(wish, out)?,
            Self::Ess => readouts(wish, out)?,
            Self::Srs => hits(wish, out),
            Self::LhcbMep => packet(wish, out)?,
            Self::Nscldaq => item(wish, out),
            Self::Artdaq => artdaq_fragment(wish, out),
            Self::Fed => fed_fragment(wish, out)?,
        }
        Some(vec![frame])
    }
}

fn event_with_banks(wish: Wish<'_>, out: &mut Vec<u8>) {
    let header = Header::new().with(midas::ID, wish.source.into()).with(midas::SERIAL, wish.event.into());
    let banks = [(*b"ADC0", 4, wish.payload), (*b"TDC\0", 6, &[1, 2, 3][..])];
    midas::encode_event(header.with(midas::TIME, wish.event.into()), &banks, out);
}

fn event_of_a_plane(wish: Wish<'_>, out: &mut Vec<u8>) {
    let header = Header::new().with(eudaq::STREAM, wish.source.into()).with(eudaq::EVENT, wish.event.into());
    let header = header.with(eudaq::FLAGS, 32).with(eudaq::BEGIN, wish.event.into());
    let inner = eudaq::Event { header, description: "Plane", blocks: &[(3, b"abc")], ..eudaq::Event::default() };
    let (tags, blocks) = ([("Run", "7"), ("", "")], [(0, wish.payload), (1, b"")]);
    let sub_events = vec![inner.clone(), inner];
    eudaq::encode(&eudaq::Event { header, description: "Telescope", tags: &tags, blocks: &blocks, sub_events }, out);
}

fn dune_fragment(wish: Wish<'_>, out: &mut Vec<u8>) {
    let header = Header::new().with(dune::SOURCE, wish.source.into()).with(dune::TRIGGER_NUMBER, wish.event.into());
    let header = header.with(dune::TRIGGER_TIME, wish.event.into()).with(dune::SUBSYSTEM, 1);
    dune::encode(header, wish.payload, out);
}

fn full_event(wish: Wish<'_>, out: &mut Vec<u8>) {
    let padded =
        wish.payload.chunks(4).map(|chunk| chunk.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte)));
    let (data, mut fragment, mut robs): (Vec<u32>, _, _) = (padded.collect(), Vec::new(), Vec::new());
    let header = rod::Header::new(wish.source, wish.event, BUNCH_CROSSING, 5);
    atlas::encode_rod(&header, &data, &mut fragment);
    atlas::encode(atlas::ROB, wish.source, &[], &fragment, &mut robs);
    atlas::encode(atlas::ROB, wish.source + 1, &[], &fragment, &mut robs);
    let own = [10, 20, wish.event, 0, 4711, 6, wish.event, BUNCH_CROSSING.into(), 5];
    atlas::encode(atlas::FULL_EVENT, wish.source, &own, &robs, out);
}

fn fed_fragment(wish: Wish<'_>, out: &mut Vec<u8>) -> Option<()> {
    let header = fed::Header::new(SourceId(wish.source), wish.event, BUNCH_CROSSING);
    let mut payload = wish.payload.to_vec();
    payload.resize(payload.len().next_multiple_of(fed::WORD_BYTES), 0);
    fed::encode(header, &payload, fed::Trailer::new(), out).ok()
}

fn blocks(wish: Wish<'_>) -> Option<Vec<Vec<u8>>> {
    let mut fragment = Vec::new();
    fed_fragment(wish, &mut fragment)?;
    let blocks = ferol::blocks_of(fragment.len(), SourceId(wish.source), wish.event);
    Some(blocks.map(|(header, range)| [&header.to_bytes()[..], &fragment[range]].concat()).collect())
}

fn bank(wish: Wish<'_>, out: &mut Vec<u8>) -> Option<()> {
    encode_bank(&Bank { kind: 12, version: 3, source: wish.source as i16, data: wish.payload }, out).ok()
}

fn packet(wish: Wish<'_>, out: &mut Vec<u8>) -> Option<()> {
    let mut banks = Vec::new();
    bank(wish, &mut banks)?;
    let fragments = (0..EMULATED_PACKING).map(|_| &banks[..]);
    encode_mep(wish.event.wrapping_mul(EMULATED_PACKING), 9, fragments, out).ok()
}

/// Two banks of the source, and one of its neighbour.
fn record(wish: Wish<'_>, out: &mut Vec<u8>) -> Option<()> {
    let mut banks = Vec::new();
    bank(wish, &mut banks)?;
    bank(wish, &mut banks)?;
    bank(Wish { source: wish.source + 1, ..wish }, &mut banks)?;
    let about = mdf::AboutEvent { run: 7, orbit: wish.event, bunch: BUNCH_CROSSING.into(), ..Default::default() };
    mdf::encode_record(&about, &[&banks], out).ok()
}

/// An event of version 5 of two sources.
fn event_of_fragments(wish: Wish<'_>, out: &mut Vec<u8>) -> Option<()> {
    let (mut fragments, event) = (Vec::new(), wish.event.into());
    fed_fragment(wish, &mut fragments)?;
    fed_fragment(Wish { source: wish.source + 1, payload: &[], ..wish }, &mut fragments)?;
    let (version, flags, run, lumisection) = (Version::V5, 0, 7, 1);
    let header = EventHeader { version, flags, run, lumisection, event, data_bytes: 0, padding_bytes: 0, checksum: 0 };
    frd::encode_event(header, &[&fragments], out).ok()
}

fn readouts(wish: Wish<'_>, out: &mut Vec<u8>) -> Option<()> {
    let header = Header::new().with(ess::QUEUE, wish.source.into()).with(ess::SEQUENCE, wish.event.into());
    let header = header.with(ess::PULSE_SECONDS, 1).with(ess::PULSE_TICKS, wish.event.into());
    ess::encode(header, &[(1, 2, wish.payload), (0, 0, b"")], out).then_some(())
}

/// A hit for each byte of payload, and a marker before the last one.
fn hits(wish: Wish<'_>, out: &mut Vec<u8>) {
    let hit = |(&byte, channel): (&u8, usize)| srs::Word::Hit {
        trigger_offset: 31,
        chip: 9,
        channel: channel as u8 & 0x3F,
        adc: u16::from(byte) << 2,
        bunch_crossing: 4000,
        tdc: byte,
        over_threshold: true,
    };
    let mut words: Vec<_> = wish.payload.iter().zip(0..).map(hit).collect();
    words.insert(words.len().saturating_sub(1), srs::Word::Marker { chip: 3, time: 0x3FF_1234_5678 });
    let header = Header::new().with(srs::FEC, wish.source.into()).with(srs::FRAME_COUNTER, wish.event.into());
    srs::encode(header, &words, out);
}

fn segments(wish: Wish<'_>) -> Vec<Vec<u8>> {
    let is_balanced = wish.event.is_multiple_of(2);
    ejfat::encode(wish.event.into(), wish.source as u16, wish.payload, SEGMENT_BYTES, is_balanced)
}

/// A heartbeat frame of two pages: one with the payload, and one that closes it, as the readout cards write them.
fn pages(wish: Wish<'_>) -> Option<Vec<Vec<u8>>> {
    let header = Header::new().with(alice::FEE, wish.source.into()).with(alice::ORBIT, wish.event.into());
    let page = |place: u64, payload: &[u8]| {
        let counter = (2 * u64::from(wish.event) + place) & 0xFF;
        let header = header.with(alice::PACKET_COUNTER, counter).with(alice::PAGE, place).with(alice::STOP, place);
        let mut out = Vec::new();
        alice::encode(header, payload, &mut out).map(|()| out)
    };
    Some(vec![page(0, wish.payload)?, page(1, &[])?])
}

fn item(wish: Wish<'_>, out: &mut Vec<u8>) {
    let header = Header::new().with(nscldaq::TYPE, nscldaq::PHYSICS.into()).with(nscldaq::BODY_HEADER, 20);
    let header = header.with(nscldaq::TIMESTAMP, wish.event.into()).with(nscldaq::SOURCE, wish.source.into());
    nscldaq::encode(header, wish.payload, out);
}

fn artdaq_fragment(wish: Wish<'_>, out: &mut Vec<u8>) {
    let header = Header::new().with(artdaq::FRAGMENT, wish.source.into()).with(artdaq::SEQUENCE, wish.event.into());
    let header = header.with(artdaq::TYPE, 3).with(artdaq::VALID, 1).with(artdaq::COMPLETE, 1);
    artdaq::encode(header.with(artdaq::TIMESTAMP, wish.event.into()), &[*b"metadata"], wish.payload, out);
}
