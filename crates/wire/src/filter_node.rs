//! The messages between a builder unit and a filter unit on another machine: their directions and layouts.
//!
//! ```text
//!   builder unit -> filter node   Hello (first), Begin, End (of a run), Event
//!   filter node -> builder unit   Welcome (once the filter is ready) or Refuse, Decision
//!
//!   frame     "RWU" | kind | body length (u32)                                                     8 bytes, little-endian
//!   Hello     version (u16) | fingerprint of the filter (u64)
//!   Welcome   events at once (u32) | histograms (u16) | each: bins (u32), low (f64), high (f64), length of its name (u8), name
//!   Refuse    a text
//!   Begin     run (u32)                         End    nothing
//!   Event     sequence (u64) | key (u64) | attempt (u16) | trigger type (u16) | complete (u8) | fragments (u16) |
//!             count x head | the payloads, in order
//!   head      source, length, flags (u32) | bunch crossing, trigger type (u16) | raw id, time (u64)   32 bytes
//!   Decision  sequence (u64) | key (u64) | attempt (u16) | answer (u8): 0 rejected, 1 accepted, 2 undecided | triggers (u128) |
//!             dropped fills (u32) | fills (u16) | each: histogram (u16), value (f64) | the filter's own data
//! ```
//! Each connection belongs to one incarnation of one filter unit. Events are numbered from 1 on each connection, and
//! decided in that order.

use crate::frame::{FrameError, Reader, Writer, frame, kinds};
use crate::message::{FragmentFlags, FragmentMeta};
use ropewalk_terms::{Attempt, EventKey, RunNumber, SourceId, TriggerBits};

/// The version of these messages. A hello with another one is refused.
pub const FILTER_NODE_VERSION: u16 = 1;
/// The longest body of an event.
pub const LARGEST_EVENT: usize = 1 << 30;
/// The longest body of any other message.
pub const LARGEST_CONTROL: usize = 128 << 10;
/// Bytes of an event before the heads of its fragments.
pub const EVENT_HEAD: usize = 23;
/// Bytes of a fragment's head.
pub const FRAGMENT_HEAD: usize = 32;
/// Maximum number of fragments of an event.
pub const MOST_FRAGMENTS: usize = u16::MAX as usize;
/// Maximum bytes of the data that a filter stores with an event.
const MOST_RESULT: usize = crate::filter_result::MOST_RESULT_BYTES;

kinds! {
    /// The sender and its version.
    Hello = 1,
    /// The filter is ready.
    Welcome = 2,
    /// The filter is not available.
    Refuse = 3,
    /// A run begins.
    Begin = 4,
    /// The run has ended.
    End = 5,
    /// An event.
    Event = 6,
    /// The decision on an event.
    Decision = 7,
}

frame!(*b"RWU", |kind| if matches!(kind, Kind::Event) { LARGEST_EVENT } else { LARGEST_CONTROL });

/// A histogram that a filter declares.
#[derive(Clone, PartialEq, Debug)]
pub struct DeclaredHistogram {
    /// Its name.
    pub name: String,
    /// Number of bins.
    pub bins: u32,
    /// Lower edge of the first bin.
    pub low: f64,
    /// Upper edge of the last bin.
    pub high: f64,
}

/// The fields of an event before its fragments.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct EventHead {
    /// Counts from 1 on each connection.
    pub sequence: u64,
    /// The event's key.
    pub key: EventKey,
    /// Number of the assignment.
    pub attempt: Attempt,
    /// The trigger type, 0 if there is none.
    pub trigger_type: u16,
    /// Whether every required source is present.
    pub is_complete: bool,
    /// Number of fragments that follow.
    pub fragments: u16,
}

/// The decision on an event, without fills and the filter's own data.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DecisionHead {
    /// The event's sequence number.
    pub sequence: u64,
    /// The event's key.
    pub key: EventKey,
    /// The event's attempt.
    pub attempt: Attempt,
    /// Whether it is accepted; `None` if it cannot be decided.
    pub accept: Option<bool>,
    /// The triggers that passed.
    pub triggers: TriggerBits,
    /// Number of fills without room.
    pub dropped_fills: u32,
}

/// Writes a whole message, except for an event's payloads, which have `following` bytes.
fn message(kind: Kind, following: usize, out: &mut Vec<u8>, write: impl FnOnce(&mut Writer<'_>)) {
    let begin = out.len();
    out.extend_from_slice(&[0; FRAME_BYTES]);
    write(&mut Writer(out));
    let body = (out.len() - begin - FRAME_BYTES + following) as u32;
    out[begin..begin + FRAME_BYTES].copy_from_slice(&Frame { kind, body }.to_bytes());
}

/// A hello that asks for the filter with this fingerprint.
pub fn encode_hello(filter: u64, out: &mut Vec<u8>) {
    message(Kind::Hello, 0, out, |to| {
        to.u16(FILTER_NODE_VERSION);
        to.u64(filter);
    });
}

/// The version and the fingerprint in a hello.
///
/// # Errors
/// If the body is not a hello.
pub fn decode_hello(body: &[u8]) -> Result<(u16, u64), FrameError> {
    let mut from = Reader(body);
    let version = from.u16()?;
    if version != FILTER_NODE_VERSION {
        // The rest may have any form then.
        return Ok((version, 0));
    }
    let filter = from.u64()?;
    from.end()?;
    Ok((version, filter))
}

/// Encodes that the filter is ready: it takes `events` events at once, and fills these histograms.
pub fn encode_welcome(events: u32, histograms: &[DeclaredHistogram], out: &mut Vec<u8>) {
    message(Kind::Welcome, 0, out, |to| {
        to.u32(events);
        to.u16(histograms.len() as u16);
        for one in histograms {
            let name = &one.name.as_bytes()[..one.name.len().min(u8::MAX.into())];
            to.u32(one.bins);
            to.u64(one.low.to_bits());
            to.u64(one.high.to_bits());
            to.u8(name.len() as u8);
            to.bytes(name);
        }
    });
}

/// Returns how many events the filter takes at once, and its histograms.
///
/// # Errors
/// If the body is no welcome.
pub fn decode_welcome(body: &[u8]) -> Result<(u32, Vec<DeclaredHistogram>), FrameError> {
    let mut from = Reader(body);
    let (events, count) = (from.u32()?, from.u16()?);
    let mut histograms = Vec::new();
    for _ in 0..count {
        let (bins, low, high) = (from.u32()?, f64::from_bits(from.u64()?), f64::from_bits(from.u64()?));
        let length = usize::from(from.u8()?);
        let (name, rest) = from.0.split_at_checked(length).ok_or(FrameError::Short)?;
        from.0 = rest;
        let name = core::str::from_utf8(name).map_err(|_| FrameError::Meaning)?.to_owned();
        histograms.push(DeclaredHistogram { name, bins, low, high });
    }
    from.end()?;
    Ok((events, histograms))
}

/// Encodes that the filter is not available, with the reason.
pub fn encode_refuse(why: &str, out: &mut Vec<u8>) {
    let why = &why[..why.floor_char_boundary(4096)];
    message(Kind::Refuse, 0, out, |to| to.bytes(why.as_bytes()));
}

/// Encodes that the events of a run follow.
pub fn encode_begin(run: RunNumber, out: &mut Vec<u8>) {
    message(Kind::Begin, 0, out, |to| to.u32(run.0));
}

/// Returns the run that begins.
///
/// # Errors
/// If the body is no begin message.
pub fn decode_begin(body: &[u8]) -> Result<RunNumber, FrameError> {
    let mut from = Reader(body);
    let run = RunNumber(from.u32()?);
    from.end()?;
    Ok(run)
}

/// Encodes that no more events of the run follow.
pub fn encode_end(out: &mut Vec<u8>) {
    message(Kind::End, 0, out, |_| ());
}

/// Encodes an event without its payloads, which follow in the order of the fragments. `head.fragments` is their number.
pub fn encode_event<'a>(
    head: &EventHead,
    fragments: impl Iterator<Item = &'a FragmentMeta> + Clone,
    out: &mut Vec<u8>,
) {
    let payloads = fragments.clone().map(|fragment| fragment.length as usize).sum();
    message(Kind::Event, payloads, out, |to| {
        to.u64(head.sequence);
        to.key(head.key);
        to.u16(head.attempt.0);
        to.u16(head.trigger_type);
        to.u8(u8::from(head.is_complete));
        to.u16(head.fragments);
        for fragment in fragments {
            let FragmentMeta { source, length, flags, bunch_crossing, trigger_type, raw_id, time } = *fragment;
            to.u32(source.0);
            to.u32(length);
            to.u32(flags.0);
            to.u16(bunch_crossing);
            to.u16(trigger_type);
            to.u64(raw_id);
            to.u64(time);
        }
    });
}

/// Decodes the first [`EVENT_HEAD`] bytes of an event's body.
///
/// # Errors
/// If the bytes are no event head.
pub fn decode_event_head(bytes: &[u8; EVENT_HEAD]) -> Result<EventHead, FrameError> {
    let mut from = Reader(bytes);
    let (sequence, key, attempt) = (from.u64()?, from.key()?, Attempt(from.u16()?));
    let (trigger_type, is_complete, fragments) = (from.u16()?, from.u8()?, from.u16()?);
    from.end()?;
    let is_complete = match is_complete {
        0 => false,
        1 => true,
        _ => return Err(FrameError::Meaning),
    };
    Ok(EventHead { sequence, key, attempt, trigger_type, is_complete, fragments })
}

/// Decodes the head of a fragment.
///
/// # Errors
/// If the bytes are no fragment head.
pub fn decode_fragment(bytes: &[u8; FRAGMENT_HEAD]) -> Result<FragmentMeta, FrameError> {
    let mut from = Reader(bytes);
    let (source, length, flags) = (SourceId(from.u32()?), from.u32()?, FragmentFlags(from.u32()?));
    let (bunch_crossing, trigger_type) = (from.u16()?, from.u16()?);
    let (raw_id, time) = (from.u64()?, from.u64()?);
    from.end()?;
    Ok(FragmentMeta { source, length, flags, bunch_crossing, trigger_type, raw_id, time })
}

/// Encodes a decision, with values for histograms and the data stored with the event.
pub fn encode_decision(
    head: &DecisionHead,
    fills: impl ExactSizeIterator<Item = (u16, f64)>,
    result: &[u8],
    out: &mut Vec<u8>,
) {
    message(Kind::Decision, 0, out, |to| {
        to.u64(head.sequence);
        to.key(head.key);
        to.u16(head.attempt.0);
        to.u8(head.accept.map_or(2, u8::from));
        to.bytes(&head.triggers.0.to_le_bytes());
        to.u32(head.dropped_fills);
        to.u16(fills.len() as u16);
        for (histogram, value) in fills {
            to.u16(histogram);
            to.u64(value.to_bits());
        }
        to.bytes(result);
    });
}

/// Decodes a decision. Passes each value for a histogram to `fill`, and returns the data stored with the event.
///
/// # Errors
/// If the body is no decision.
pub fn decode_decision(body: &[u8], mut fill: impl FnMut(u16, f64)) -> Result<(DecisionHead, &[u8]), FrameError> {
    let mut from = Reader(body);
    let (sequence, key, attempt) = (from.u64()?, from.key()?, Attempt(from.u16()?));
    let accept = match from.u8()? {
        0 => Some(false),
        1 => Some(true),
        2 => None,
        _ => return Err(FrameError::Meaning),
    };
    let triggers = TriggerBits(u128::from_le_bytes(from.bytes()?));
    let dropped_fills = from.u32()?;
    for _ in 0..from.u16()? {
        fill(from.u16()?, f64::from_bits(from.u64()?));
    }
    if from.0.len() > MOST_RESULT {
        return Err(FrameError::Long);
    }
    let rest = &body[body.len() - from.0.len()..];
    Ok((DecisionHead { sequence, key, attempt, accept, triggers, dropped_fills }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the message's body after checking its frame.
    fn body(bytes: &[u8], kind: Kind, following: usize) -> &[u8] {
        let (frame, body) = bytes.split_first_chunk().expect("a frame");
        let frame = Frame::parse(frame).expect("it is one");
        assert_eq!((frame.kind, frame.body as usize), (kind, body.len() + following));
        body
    }

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_refused() {
        let mut out = Vec::new();
        encode_hello(77, &mut out);
        assert_eq!(decode_hello(body(&out, Kind::Hello, 0)), Ok((FILTER_NODE_VERSION, 77)));
        assert_eq!(decode_hello(&[9, 0, 1, 2]), Ok((9, 0)), "of another version only that is read");
        out.clear();
        let histogram = |name: &str| DeclaredHistogram { name: name.to_owned(), bins: 3, low: -1.0, high: 1e9 };
        let histograms = vec![histogram("one"), histogram("zwei \u{e4}")];
        encode_welcome(64, &histograms, &mut out);
        let welcome = body(&out, Kind::Welcome, 0);
        assert_eq!(decode_welcome(welcome), Ok((64, histograms)));
        assert!((0..welcome.len()).all(|cut| decode_welcome(&welcome[..cut]).is_err()));
        out.clear();
        encode_begin(RunNumber(8), &mut out);
        assert_eq!(decode_begin(body(&out, Kind::Begin, 0)), Ok(RunNumber(8)));
        out.clear();
        encode_end(&mut out);
        encode_refuse("why", &mut out);
        assert_eq!(body(&out[FRAME_BYTES..], Kind::Refuse, 0), b"why");
    }

    #[test]
    fn an_event_is_its_head_and_the_heads_of_its_fragments() {
        let fragment = |source, length| FragmentMeta {
            source: SourceId(source),
            length,
            flags: FragmentFlags(5),
            bunch_crossing: 6,
            trigger_type: 7,
            raw_id: 8,
            time: 9,
        };
        let (key, attempt) = (EventKey::new(1, 2), Attempt(3));
        let head = EventHead { sequence: 4, key, attempt, trigger_type: 5, is_complete: true, fragments: 2 };
        let (fragments, mut out) = ([fragment(1, 100), fragment(2, 23)], Vec::new());
        encode_event(&head, fragments.iter(), &mut out);
        let body = body(&out, Kind::Event, 123);
        let (first, rest) = body.split_first_chunk().expect("its head");
        assert_eq!(decode_event_head(first), Ok(head));
        let heads: Vec<_> =
            rest.chunks(FRAGMENT_HEAD).map(|one| decode_fragment(one.try_into().expect("whole"))).collect();
        assert_eq!(heads, fragments.map(Ok));
        let mut wrong = *first;
        wrong[20] = 2;
        assert_eq!(decode_event_head(&wrong), Err(FrameError::Meaning));
    }

    #[test]
    fn a_decision_has_its_fills_and_its_own_data() {
        let (key, attempt, triggers) = (EventKey::new(1, 2), Attempt(3), TriggerBits(1 << 127 | 1));
        for accept in [Some(true), Some(false), None] {
            let head = DecisionHead { sequence: 9, key, attempt, accept, triggers, dropped_fills: 4 };
            let (fills, mut out, mut found) = ([(0, 1.5), (7, f64::INFINITY)], Vec::new(), Vec::new());
            encode_decision(&head, fills.iter().copied(), b"own", &mut out);
            let body = body(&out, Kind::Decision, 0);
            let read = decode_decision(body, |histogram, value| found.push((histogram, value)));
            assert_eq!((read, &found[..]), (Ok((head, &b"own"[..])), &fills[..]));
            assert!((0..body.len() - 3).all(|cut| decode_decision(&body[..cut], |_, _| ()).is_err()));
        }
        let mut long = Vec::new();
        let head = DecisionHead { sequence: 1, key, attempt, accept: None, triggers, dropped_fills: 0 };
        encode_decision(&head, [].into_iter(), &vec![0; MOST_RESULT + 1], &mut long);
        assert_eq!(decode_decision(body(&long, Kind::Decision, 0), |_, _| ()), Err(FrameError::Long));
    }

    #[test]
    fn no_bytes_cause_a_panic() {
        let mut state = 0x5eed_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random()).map(|_| random() >> (random() % 8)).collect();
            let (_, _) = (decode_hello(&bytes), decode_begin(&bytes));
            let _ = decode_welcome(&bytes).map(|(_, histograms)| assert!(histograms.len() <= bytes.len()));
            let _ = decode_decision(&bytes, |_, _| ()).map(|(_, rest)| assert!(rest.len() <= bytes.len()));
            let _ = bytes.first_chunk().map(decode_event_head);
            let _ = bytes.first_chunk().map(decode_fragment);
            let _ = bytes.first_chunk().map(Frame::parse);
        }
    }
}
