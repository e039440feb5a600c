//! Round trips of every message, and robustness against any bytes.

use super::*;
use crate::frame::FrameError;
use proptest::prelude::*;
use ropewalk_terms::{Attempt, EventKey, Incarnation};

fn decision() -> impl Strategy<Value = Decision> {
    let verdict = prop_oneof![Just(Verdict::Reject), Just(Verdict::Accept), Just(Verdict::NotReceived)];
    (any::<u64>(), verdict, any::<u32>()).prop_map(|(sequence, verdict, word)| Decision { sequence, verdict, word })
}

fn decisions() -> impl Strategy<Value = Message> {
    let entries = prop::collection::vec(decision(), 0..=MOST_DECISIONS);
    (any::<(u16, u16, u64, u64, u64)>(), any::<[u64; BITMAP_WORDS]>(), entries).prop_map(|(head, bitmap, entries)| {
        let (node, gateway, incarnation, gateway_incarnation, cumulative) = head;
        let (incarnation, gateway_incarnation) = (Incarnation(incarnation), Incarnation(gateway_incarnation));
        let entries = entries.into_iter().collect();
        Message::Decisions(Decisions { node, gateway, incarnation, gateway_incarnation, cumulative, bitmap, entries })
    })
}

fn stream() -> impl Strategy<Value = Message> {
    let entry = any::<(u64, bool, u32, bool)>().prop_map(|(key, accept, word, by_default)| StreamEntry {
        key: EventKey::from_bits(key),
        accept,
        word,
        by_default,
    });
    let entries = prop::collection::vec(entry, 0..=MOST_DECISIONS);
    (any::<(u16, u8, u64, u64)>(), entries).prop_map(|((gateway, flow, incarnation, before), entries)| {
        let (incarnation, entries) = (Incarnation(incarnation), entries.into_iter().collect());
        Message::Stream(Stream { gateway, flow, incarnation, before, entries })
    })
}

fn message() -> impl Strategy<Value = Message> {
    let state = prop::sample::select(ThrottleState::ALL.to_vec());
    prop_oneof![
        any::<(u16, u64, u16)>().prop_map(|(node, incarnation, window)| {
            Message::Credit(Credit { node, incarnation: Incarnation(incarnation), window })
        }),
        any::<(u16, u64, u64, u64)>().prop_map(|(gateway, incarnation, one, other)| {
            let (next, floor) = (one.max(other), one.min(other));
            Message::Progress(Progress { gateway, incarnation: Incarnation(incarnation), next, floor })
        }),
        decisions(),
        stream(),
        (any::<(u16, u64, u64)>(), state).prop_map(|((gateway, incarnation, sequence), state)| {
            Message::Throttle(Throttle { gateway, incarnation: Incarnation(incarnation), sequence, state })
        }),
    ]
}

fn piece() -> impl Strategy<Value = (PieceHead, Vec<u8>)> {
    let bytes = prop::collection::vec(any::<u8>(), 1..300);
    (any::<(u64, u64, u8, u16)>(), 0_u8..4, bytes, 0_u32..500, 0_u32..500).prop_map(
        |((sequence, key, flow, attempt), flags, bytes, offset, behind)| {
            let (length, key, attempt) = (bytes.len() as u32, EventKey::from_bits(key), Attempt(attempt));
            let (flags, total) = (EventFlags(flags), offset + length + behind);
            (PieceHead { sequence, key, flow, flags, attempt, total, offset, length }, bytes)
        },
    )
}

fn push(head: PushHead, pieces: &[(PieceHead, Vec<u8>)]) -> Vec<u8> {
    let bytes: Vec<u8> = pieces.iter().flat_map(|(head, bytes)| [&head.to_bytes()[..], bytes].concat()).collect();
    [&head.to_bytes(bytes.len())[..], &bytes].concat()
}

proptest! {
    #[test]
    fn every_message_comes_back(message in message(), behind in prop::collection::vec(any::<u8>(), 0..9)) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let whole = bytes.len();
        bytes.extend_from_slice(&behind);
        let (kind, body, rest) = Frame::split(&bytes).expect("it was encoded");
        prop_assert_eq!((kind, rest), (message.kind(), &behind[..]));
        prop_assert_eq!(Message::decode(kind, body), Ok(message));
        for cut in 0..whole {
            prop_assert_eq!(Frame::split(&bytes[..cut]), Err(FrameError::Short));
        }
        for cut in 0..body.len() {
            prop_assert!(Message::decode(kind, &body[..cut]).is_err());
        }
    }

    #[test]
    fn every_push_comes_back(
        (gateway, incarnation, floor) in any::<(u16, u64, u64)>(),
        pieces in prop::collection::vec(piece(), 0..8),
    ) {
        let head = PushHead { gateway, incarnation: Incarnation(incarnation), pieces: pieces.len() as u16, floor };
        let bytes = push(head, &pieces);
        let (kind, body, rest) = Frame::split(&bytes).expect("it was encoded");
        prop_assert_eq!((kind, rest.len()), (Kind::Push, 0));
        let view = PushView::parse(body).expect("it was encoded");
        prop_assert_eq!(view.head(), head);
        prop_assert!(view.pieces().eq(pieces.iter().map(|(head, bytes)| (*head, bytes.as_slice()))));
        for cut in 0..body.len() {
            prop_assert!(PushView::parse(&body[..cut]).is_err());
        }
        prop_assert!(Message::decode(kind, body).is_err(), "a push is no owned message");
    }

    #[test]
    fn anything_is_refused_or_means_the_same_again(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u8..8) {
        let _ = Frame::split(&bytes);
        if let Ok(view) = PushView::parse(&bytes) {
            prop_assert_eq!(view.pieces().count(), usize::from(view.head().pieces));
        }
        let Some(kind) = Kind::from_u8(kind) else { return Ok(()) };
        if let Ok(message) = Message::decode(kind, &bytes) {
            let mut again = Vec::new();
            message.encode(&mut again);
            prop_assert_eq!(Message::decode(kind, &again[FRAME_BYTES..]), Ok(message));
        }
    }

    #[test]
    fn pieces_one_behind_the_other_fill_a_buffer(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 0..20),
        short in any::<bool>(),
    ) {
        let copying = if short { Copying::Short } else { Copying::Library };
        let wanted = pieces.concat();
        let mut buffer = vec![0; wanted.len() + 3];
        let mut to = &mut buffer[..];
        for piece in &pieces {
            to = copy_piece(to, piece, copying).expect("there is room");
        }
        prop_assert_eq!(to.len(), 3);
        prop_assert!(copy_piece(to, &[0; 4], copying).is_none());
        prop_assert_eq!(&buffer[..wanted.len()], &wanted[..]);
    }
}

#[test]
fn what_a_field_cannot_mean_is_refused() {
    let head = PieceHead { total: 9, offset: 4, length: 5, ..PieceHead::default() };
    let parse = |head: PieceHead, bytes: usize| {
        let all = push(PushHead { pieces: 1, ..PushHead::default() }, &[(head, vec![0; bytes])]);
        PushView::parse(&all[FRAME_BYTES..]).map(|view| view.pieces().count())
    };
    assert_eq!(parse(head, 5), Ok(1));
    assert_eq!(parse(PieceHead::default(), 0), Ok(1), "an event without bytes");
    assert_eq!(parse(head, 6), Err(FrameError::Long));
    assert_eq!(parse(head, 4), Err(FrameError::Short));
    for wrong in [
        PieceHead { offset: 5, ..head },
        PieceHead { offset: u32::MAX, ..head },
        PieceHead { length: 0, ..head },
        PieceHead { flags: EventFlags(4), ..head },
    ] {
        assert_eq!(parse(wrong, wrong.length as usize), Err(FrameError::Meaning), "{wrong:?}");
    }
    assert_eq!(Frame::split(b"RG\x02\x01\0\0\0\0"), Err(FrameError::Magic), "another version");
    assert_eq!(Frame::split(b"RG\x01\x09\0\0\0\0"), Err(FrameError::Meaning));
    assert_eq!(Frame::split(b"RG\x01\x01\0\0\x01\0"), Err(FrameError::Long));
    let mut bytes = Vec::new();
    Message::Progress(Progress { next: 3, floor: 4, ..Progress::default() }).encode(&mut bytes);
    assert_eq!(Message::decode(Kind::Progress, &bytes[FRAME_BYTES..]), Err(FrameError::Meaning));
    let many = [0_u16.to_le_bytes(), 0_u16.to_le_bytes(), 65_u16.to_le_bytes(), [0; 2]].concat();
    let many = [many, vec![0; 24 + 8 * BITMAP_WORDS + 16 * 65]].concat();
    assert_eq!(Message::decode(Kind::Decisions, &many), Err(FrameError::Long));
}

#[test]
fn a_decision_is_covered_by_the_count_or_by_its_bit() {
    let decisions = Decisions { cumulative: 10, bitmap: [0b100, 0, 0, 1 << 63], ..Decisions::default() };
    let covered: Vec<u64> = (8..400).filter(|&sequence| decisions.covers(sequence)).collect();
    assert_eq!(covered, [8, 9, 12, 10 + 255]);
    assert!(decisions.covers(0) && !decisions.covers(u64::MAX));
}

#[test]
fn triggers_may_come_while_ready_or_warned() {
    let open: Vec<&str> = ThrottleState::ALL.iter().filter(|state| state.is_open()).map(|state| state.name()).collect();
    assert_eq!(open, ["ready", "warning"]);
    let both = EventFlags::INCOMPLETE.with(EventFlags::SENT_AGAIN);
    assert!(both.has(EventFlags::SENT_AGAIN) && !EventFlags::INCOMPLETE.has(both));
}
