//! Every message comes back as it was sent, and nothing that comes can do harm.

use super::*;
use crate::felix::{ELink, SEQUENCES, Status};
use crate::frame::FrameError;
use proptest::prelude::*;

fn elink() -> impl Strategy<Value = ELink> {
    any::<u16>().prop_map(ELink::new)
}

fn range() -> impl Strategy<Value = Range> {
    (elink(), elink()).prop_map(|(a, b)| Range { first: a.min(b), last: a.max(b) })
}

fn subscribe() -> impl Strategy<Value = Subscribe> {
    let policy = prop_oneof![Just(Policy::BackPressure), Just(Policy::Drop)];
    let balance = prop_oneof![Just(Balance::RoundRobin), Just(Balance::ByEvent)];
    let share =
        prop_oneof![Just(Share::Alone), (any::<u16>(), balance).prop_map(|(group, by)| Share::Group(group, by))];
    (prop::collection::vec(range(), 0..=MOST_RANGES), policy, share, 1_u32..)
        .prop_map(|(ranges, policy, share, one_in)| Subscribe { ranges, policy, share, one_in })
}

fn message() -> impl Strategy<Value = Message> {
    let reason =
        prop_oneof![any::<u16>().prop_map(RefuseReason::Version), Just(RefuseReason::Full), Just(RefuseReason::Share)];
    prop_oneof![
        ("[a-z]{0,40}", any::<u16>())
            .prop_map(|(name, version)| Message::Hello(Hello { version, ..Hello::new(&name) })),
        Just(Message::Welcome),
        reason.prop_map(Message::Refuse),
        subscribe().prop_map(Message::Subscribe),
        any::<u16>().prop_map(|elinks| Message::Subscribed(Subscribed { elinks })),
        any::<(u64, u64)>().prop_map(|(chunks, bytes)| Message::Loss(Loss { chunks, bytes })),
        any::<(u64, u64, u64)>().prop_map(|(offered, sent, dropped)| Message::End(End { offered, sent, dropped })),
        (elink(), prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(elink, bytes)| Message::Down(Down { elink, bytes })),
        (elink(), prop_oneof![Just(DownRefusal::NoDownLink), Just(DownRefusal::NoRoom)])
            .prop_map(|(elink, why)| Message::DownRefused(DownRefused { elink, why })),
    ]
}

fn head() -> impl Strategy<Value = ChunkHead> {
    (elink(), 0_u8..32, 0..SEQUENCES, 0_u32..5000).prop_map(|(elink, status, sequence, length)| ChunkHead {
        elink,
        status: Status(status),
        sequence,
        length,
    })
}

fn split(bytes: &[u8]) -> (Frame, &[u8]) {
    let (head, body) = bytes.split_first_chunk().expect("a frame");
    (Frame::parse(head).expect("a frame"), body)
}

proptest! {
    #[test]
    fn every_message_comes_back(message in message()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let (frame, body) = split(&bytes);
        prop_assert_eq!((frame.kind, frame.body as usize), (message.kind(), body.len()));
        prop_assert_eq!(Message::decode(frame.kind, body), Ok(message));
        // A byte less is something else, and a byte more is too much.
        for cut in 0..body.len() {
            if let Ok(other) = Message::decode(frame.kind, &body[..cut]) {
                prop_assert!(matches!(other, Message::Down(_) | Message::Subscribe(_)), "{:?}", other);
            }
        }
    }

    #[test]
    fn every_head_comes_back(heads in prop::collection::vec(head(), 0..50)) {
        let mut bytes = Vec::new();
        encode_heads(heads.iter().copied(), &mut bytes);
        prop_assert_eq!(bytes.len(), heads_bytes(heads.len()));
        let (frame, table) = split(&bytes);
        let data: u32 = heads.iter().map(|head| head.length).sum();
        prop_assert_eq!((frame.kind, frame.body), (Kind::Chunks, table.len() as u32 + data));
        let view = ChunksView::parse(table, frame.body).expect("it was encoded");
        prop_assert_eq!(view.heads().collect::<Vec<_>>(), heads.clone());
        prop_assert_eq!(ChunksView::parse(table, frame.body + 1).err(), Some(FrameError::Long));
        if data > 0 {
            prop_assert_eq!(ChunksView::parse(table, frame.body - 1).err(), Some(FrameError::Short));
        }
        for cut in 0..table.len() {
            prop_assert!(ChunksView::parse(&table[..cut], frame.body).is_err());
        }
    }

    #[test]
    fn anything_is_refused_or_means_the_same_again(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u8..12) {
        if let Some(head) = bytes.first_chunk() {
            let _ = Frame::parse(head);
            let _ = ChunkHead::parse(head).map(|chunk| assert_eq!(&chunk.to_bytes(), head));
        }
        let _ = ChunksView::parse(&bytes, bytes.len() as u32).map(|view| view.heads().count());
        let Some(kind) = Kind::from_u8(kind) else { return Ok(()) };
        if let Ok(message) = Message::decode(kind, &bytes) {
            let mut again = Vec::new();
            message.encode(&mut again);
            prop_assert_eq!(&again[FRAME_BYTES..], &bytes[..]);
        }
    }
}

#[test]
fn what_a_field_cannot_mean_is_refused() {
    let mut bytes = Vec::new();
    let range = Range { first: ELink::new(5), last: ELink::new(9) };
    let (policy, share) = (Policy::Drop, Share::Group(3, Balance::ByEvent));
    Message::Subscribe(Subscribe { ranges: vec![range], policy, share, one_in: 1 }).encode(&mut bytes);
    let body = &bytes[FRAME_BYTES..];
    for (place, value, error) in [
        (0, 2, FrameError::Meaning),
        (1, 3, FrameError::Meaning),
        (4, 0, FrameError::Meaning),
        (8, 10, FrameError::Meaning),
        (9, 8, FrameError::Meaning),
    ] {
        let mut wrong = body.to_vec();
        wrong[place] = value;
        assert_eq!(Message::decode(Kind::Subscribe, &wrong), Err(error), "{place}");
    }
    let many = [body, &[0; 4 * MOST_RANGES]].concat();
    assert_eq!(Message::decode(Kind::Subscribe, &many), Err(FrameError::Long));
    assert_eq!(Message::decode(Kind::DownRefused, &[5, 0, 3]), Err(FrameError::Meaning), "no such reason");
    assert_eq!(Message::decode(Kind::Hello, b"RWSOMETHING"), Err(FrameError::Magic));
    assert_eq!(Frame::parse(b"GET / HT"), Err(FrameError::Magic));
    assert_eq!(Frame::parse(b"RWF\x0B\0\0\0\0"), Err(FrameError::Meaning));
    assert_eq!(Frame::parse(b"RWF\x01\0\0\xFF\0"), Err(FrameError::Long));
    let many = (MOST_CHUNKS as u32 + 1).to_le_bytes();
    assert_eq!(ChunksView::table_bytes(many, u32::MAX), Err(FrameError::Long));
    assert_eq!(ChunksView::table_bytes(2_u32.to_le_bytes(), 19), Err(FrameError::Long));
}
