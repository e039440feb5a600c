//! Front ends that send arbitrary bytes: to framers of known formats and of any layout, and to the sniffer that guesses
//! layouts.

use super::Choices;
use ropewalk_flow::messages::Received;
use ropewalk_flow::readout::{DatagramFramer, DatagramLimits, Framer, FramerLimits, FramingError};
use ropewalk_flow::sniff::{Limits, Peer, Sniffer, Transport, draft};
use ropewalk_memory::{Pool, PoolConfig, Slice, Staging};
use ropewalk_terms::SourceId;
use ropewalk_wire::foreign::Counting;
use ropewalk_wire::framing::Framing;
use ropewalk_wire::layout::{
    CHECKSUM_KINDS, Checksum, Clock, Contents, Counts, End, Frame, Layout, Length, Number, Pattern, Pieces, Place,
    Plan, Size, Source, Status,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Fragments up to this length are accepted.
const LIMITS: FramerLimits = FramerLimits { max_fragment: 4096, check_crc: true, gather: None };
/// Maximum bytes of a connection.
const MOST_BYTES: usize = 16 << 10;

/// Feeds a framer with the same bytes cut in two ways: the result must not depend on the cuts.
///
/// # Panics
/// If the machine panics, if cuts matter, or if bytes are not accounted for.
pub fn framer(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let cuts = cuts(&mut choices);
    agree(&|| Framer::new(LIMITS), &cuts, choices.raw(MOST_BYTES));
}

/// The lengths of a stream's pieces.
fn cuts(choices: &mut Choices<'_>) -> [usize; 4] {
    std::array::from_fn(|_| 1 + choices.below(200) as usize)
}

/// Checks that the fragments of a stream do not depend on its cuts.
fn agree(framer: &dyn Fn() -> Framer, cuts: &[usize], stream: &[u8]) {
    let Some(whole) = staged(stream) else { return };
    // A loss is found as well: at most one between two fragments.
    let at_once = found(framer(), std::iter::once(whole.clone()), 2 * stream.len());
    let mut rest = whole;
    let mut next = cuts.iter().cycle();
    let pieces = std::iter::from_fn(|| {
        let cut = next.next().copied().unwrap_or(1).min(rest.len());
        (cut > 0).then(|| rest.split_to(cut))
    });
    let in_pieces = found(framer(), pieces, usize::MAX);
    assert_eq!(at_once.0.len(), in_pieces.0.len(), "cuts change how many fragments there are");
    for (one, other) in at_once.0.iter().zip(&in_pieces.0) {
        assert_eq!((one.meta, one.restarts), (other.meta, other.restarts));
        assert_eq!(contents(one), contents(other));
    }
    let cause = |error: Option<FramingError>| error.map(|error| error.cause);
    assert_eq!(cause(at_once.1), cause(in_pieces.1), "cuts change what is wrong");
}

fn contents(fragment: &Received) -> Vec<u8> {
    let mut bytes = vec![0; fragment.payload.len()];
    assert!(fragment.payload.copy_to(0, &mut bytes));
    bytes
}

/// The bytes in a pool block.
fn staged(bytes: &[u8]) -> Option<Slice> {
    let pool = Pool::new(PoolConfig::heap("stream", MOST_BYTES, 1)).expect("memory for one block");
    Staging::new(pool).write(bytes).filter(|_| !bytes.is_empty())
}

fn found(
    mut framer: Framer,
    pieces: impl Iterator<Item = Slice>,
    most: usize,
) -> (Vec<Received>, Option<FramingError>) {
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    for piece in pieces {
        framer.push(piece);
        loop {
            let result = framer.next_batch(&mut batch, 8);
            let count = batch.len();
            assert!(count <= 8 && all.len() <= most, "more fragments than bytes");
            all.append(&mut batch);
            match result {
                Err(error) => return (all, Some(error)),
                Ok(()) if count == 0 => break,
                Ok(()) => {}
            }
        }
        let _ = (framer.is_mid_fragment(), framer.source(), framer.format());
    }
    (all, None)
}

const SOURCE: SourceId = SourceId(1);

/// Compiles a layout and, if it is valid, feeds it frames of it and other bytes: in a stream the result must not depend
/// on the cuts, in datagrams everything is accounted for.
///
/// # Panics
/// If the layout, its plan or its framer panics, if cuts matter, or if more is kept than permitted.
pub fn layout(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let layout = any_layout(&mut choices);
    let plan = match Plan::compile(&layout) {
        Ok(plan) => Arc::new(plan),
        Err(error) => {
            assert!(!error.key.is_empty() && !error.to_string().is_empty());
            return;
        }
    };
    assert!(plan.least() <= plan.most() && !plan.to_string().is_empty());
    let cuts = cuts(&mut choices);
    let mut stream = Vec::new();
    for _ in 0..choices.below(6) {
        if choices.chance() {
            let contents = Contents { event: choices.wide(), sequence: choices.below(256), ..Contents::default() };
            let payload = choices.raw(40);
            let length = plan.compose(&contents, payload, &mut stream);
            assert!(length <= plan.most(), "a frame that is too long was made");
        }
        stream.extend_from_slice(choices.raw(20));
    }
    stream.extend_from_slice(choices.raw(MOST_BYTES / 2));
    stream.truncate(MOST_BYTES);
    if plan.is_of_datagrams() {
        datagrams(&plan, &mut choices, &cuts, &stream);
    } else {
        agree(&|| Framer::described(SOURCE, Arc::clone(&plan), LIMITS), &cuts, &stream);
    }
}

fn datagrams(plan: &Arc<Plan>, choices: &mut Choices<'_>, cuts: &[usize], stream: &[u8]) {
    let counting = [Counting::Nothing, Counting::Events, Counting::Frames][choices.below(3) as usize];
    let waits = DatagramLimits { counting, ..DatagramLimits::USUAL };
    let mut framer = DatagramFramer::new(SOURCE, Arc::clone(plan), LIMITS, waits);
    let Some(mut rest) = staged(stream) else { return };
    let (mut out, mut came, mut found) = (Vec::new(), 0, 0);
    for cut in cuts.iter().cycle() {
        let datagram = rest.split_to((*cut).min(rest.len()));
        let (now, length) = (choices.now(), datagram.len());
        framer.advance(now, &mut out);
        assert!(framer.next_deadline().is_none_or(|due| due > now), "what is due was done");
        framer.push(now, datagram, choices.chance(), &mut out);
        // The oldest frame in reassembly may be given up besides.
        (came, found) = (came + length + 2, found + out.len());
        assert!(found <= came, "more fragments than bytes");
        assert!(out.iter().all(|one| one.payload.len() <= plan.most().min(LIMITS.max_fragment as usize)));
        out.clear();
        if rest.is_empty() {
            break;
        }
    }
}

fn any_layout(choices: &mut Choices<'_>) -> Layout {
    let max = 1 + choices.below(5000) as u32;
    let mut layout = Layout::new(any_frame(choices), max);
    let has = choices.below(256);
    let if_bit = |bit: u32| has >> bit & 1 == 1;
    if if_bit(0) {
        layout.event = vec![any_number(choices)];
    }
    if if_bit(1) {
        layout.event.push(any_number(choices));
    }
    if if_bit(2) {
        layout.matches = Some(any_pattern(choices));
    }
    if if_bit(3) {
        layout.sequence = Some(any_number(choices));
    }
    if if_bit(4) {
        let seconds = choices.chance().then(|| any_number(choices));
        let tick_attoseconds = 1 + (choices.wide() >> 1);
        layout.time = Some(Clock { ticks: vec![any_number(choices)], tick_attoseconds, seconds });
    }
    if if_bit(5) {
        layout.source = Some(Source { number: any_number(choices), is: None });
        layout.trigger_type = Some(any_number(choices));
    }
    if if_bit(6) {
        let number = any_number(choices);
        layout.status = Some(Status { number, error: choices.below(256), busy: choices.below(256) });
    }
    if if_bit(7) {
        let kind = CHECKSUM_KINDS[choices.below(CHECKSUM_KINDS.len() as u64) as usize];
        let number = Number { bytes: (kind.bits() / 8) as u8, mask: None, ..any_number(choices) };
        layout.checksum = Some(Checksum { kind, number, from: any_place(choices), to: any_place(choices) });
    }
    layout
}

fn any_frame(choices: &mut Choices<'_>) -> Frame {
    match choices.below(8) {
        0 => Frame::Length(any_length(choices)),
        1 => Frame::Fixed { bytes: choices.below(256) as u32 },
        2 => Frame::Sync { word: choices.raw(4).to_vec(), size: Size::Length(any_length(choices)) },
        3 => Frame::Sync { word: choices.raw(2).to_vec(), size: Size::Fixed { bytes: choices.below(100) as u32 } },
        4 => Frame::Trailer {
            length: any_length(choices),
            mark: choices.chance().then(|| any_pattern(choices)),
            step: choices.below(9) as u32,
        },
        5 => Frame::Delimiter { bytes: choices.raw(2).to_vec() },
        6 => Frame::Several(Size::Length(any_length(choices))),
        _ if choices.chance() => Frame::Datagram,
        _ => any_pieces(choices),
    }
}

fn any_pieces(choices: &mut Choices<'_>) -> Frame {
    let (frame, place, end) = (any_number(choices), any_number(choices), any_number(choices));
    let place = if choices.chance() { Place::Offset(place) } else { Place::Index(place) };
    let end = match (choices.chance(), &place) {
        (true, _) => End::Last(end),
        (false, Place::Offset(_)) => End::Length(end),
        (false, Place::Index(_)) => End::Count(end),
    };
    Frame::Pieces(Pieces { header: choices.below(64) as u32, frame, place, end })
}

fn any_length(choices: &mut Choices<'_>) -> Length {
    let counts = match choices.below(3) {
        0 => Counts::Frame,
        1 => Counts::AfterField,
        _ => Counts::Payload { header: choices.below(40) as u32 },
    };
    Length { number: any_number(choices), unit: choices.below(9) as u32, counts, add: any_place(choices) / 4 }
}

/// An offset in the first bytes of a frame, or in the last ones.
fn any_place(choices: &mut Choices<'_>) -> i32 {
    choices.below(64) as i32 - 24
}

fn any_number(choices: &mut Choices<'_>) -> Number {
    let (at, bytes) = (any_place(choices), 1 + choices.below(8) as u8);
    let is_big_endian = choices.chance();
    let mask = choices.chance().then(|| u64::MAX >> choices.below(64) << choices.below(16));
    let shift = choices.chance().then(|| choices.below(70) as u8).filter(|shift| *shift < 66);
    Number { at, bytes, is_big_endian, mask, shift }
}

fn any_pattern(choices: &mut Choices<'_>) -> Pattern {
    let (at, length) = (any_place(choices), 1 + choices.below(9) as usize);
    let bytes = choices.raw(length).to_vec();
    let mask = choices.chance().then(|| choices.raw(length).to_vec());
    Pattern { at, bytes, mask }
}

/// Maximum bytes of a packet, and limits of the sniffer: small, so that they are reached.
const PACKET_BYTES: usize = 80;
const SNIFF_LIMITS: Limits = Limits { peers: 4, frames: 64, head_bytes: 48, stream_bytes: 2048 };

/// Feeds the sniffer packets of noise, or with a counter and a clock, and requests the findings.
///
/// # Panics
/// If the sniffer panics, reports more than there was, or drafts an invalid layout.
pub fn sniff(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let (mut sniffer, mut packets, mut number) = (Sniffer::new(SNIFF_LIMITS), 0_u64, 0_u32);
    while !choices.is_over() {
        let transport = if choices.chance() { Transport::Udp } else { Transport::Tcp };
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 1 + choices.below(6) as u16));
        let peer = Peer { port: 9000 + choices.below(2) as u16, transport, from };
        let mut packet = Vec::new();
        if choices.chance() {
            number = number.wrapping_add(choices.below(3) as u32);
            let length = 12 + choices.below(4) as u32;
            packet.extend([length.to_be_bytes(), number.to_be_bytes(), number.to_le_bytes()].concat());
            packet.resize(length as usize, 0x55);
        }
        let most = choices.below(PACKET_BYTES as u64) as usize;
        packet.extend_from_slice(choices.raw(most));
        sniffer.accept(peer, choices.now(), &packet);
        packets += 1;
    }
    assert_eq!(sniffer.packets(), packets, "each packet is counted");
    let findings = sniffer.findings();
    let told: u64 = findings.groups.iter().flat_map(|group| &group.peers).map(|peer| peer.packets).sum();
    assert_eq!(told + findings.unheard, packets, "and reported once");
    for group in &findings.groups {
        for guess in &group.guesses {
            assert!(guess.holds <= guess.of && guess.score() <= 1.0, "{guess:?}");
        }
        assert!(draft(group).is_none_or(|layout| Plan::compile(&layout).is_ok()), "the draft of {group:?}");
    }
}
