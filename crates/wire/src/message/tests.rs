//! Every message goes there and back, and no bytes make a reader panic.

use super::*;
use crate::frame::FrameError;
use proptest::prelude::*;
use ropewalk_terms::{
    AcknowledgementLevel, Attempt, ByCause, Cause, Ending, Epoch, EventKey, Incarnation, NodeId, Outcome, Parameter,
    RunNumber, SourceId, Verdict,
};

fn key() -> impl Strategy<Value = EventKey> {
    any::<u64>().prop_map(EventKey::from_bits)
}

fn outcome() -> impl Strategy<Value = Outcome> {
    any::<u8>().prop_filter_map("a number with meaning", Outcome::from_u8)
}

fn ending() -> impl Strategy<Value = Ending> {
    let verdict = (0..4_u8).prop_filter_map("a number with meaning", Verdict::from_u8);
    (outcome(), verdict).prop_map(|(outcome, verdict)| Ending { outcome, verdict })
}

fn batch<T: std::fmt::Debug + Clone>(entry: impl Strategy<Value = T>) -> impl Strategy<Value = Batch<T>> {
    proptest::collection::vec(entry, 0..=BATCH).prop_map(|entries| entries.into_iter().collect())
}

/// Accounts of what ended, and whatever else is short.
fn of_numbers(below: EventKey, numbers: [u64; 6]) -> impl Strategy<Value = Message> {
    let [built, incomplete_emitted, late, unselected, rejected, quarantined] = numbers;
    let mut dropped = ByCause::default();
    dropped.set(Cause::Late, late);
    let ended = Ended { below, built, incomplete_emitted, dropped, unselected, rejected, quarantined };
    let before = Ended { built: late, ..ended };
    prop_oneof![
        Just(Message::Set(Setting { parameter: Parameter::Prescale, of: late as u16, value: late })),
        Just(Message::Ended(ended)),
        Just(Message::LumisectionEnd(LumisectionEnd { number: late as u32, before, ended })),
        Just(Message::Follows(late % 2 == 0)),
        Just(Message::Mask(Mask { source: SourceId(late as u32), is_masked: late % 2 == 0 })),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let announced = (key(), any::<(u32, u16, bool)>()).prop_map(|(key, (bytes, fragments, triggered))| AnnounceEntry {
        key,
        bytes,
        fragments,
        triggered,
    });
    let assigned = (key(), any::<(u32, u16)>()).prop_map(|(key, (bytes, attempt))| AssignEntry {
        key,
        bytes,
        attempt: Attempt(attempt),
    });
    let requested = (key(), any::<(u32, u16)>()).prop_map(|(key, (slot, attempt))| RequestEntry {
        key,
        slot,
        attempt: Attempt(attempt),
    });
    let acknowledged = (key(), any::<u16>(), ending()).prop_map(|(key, attempt, ending)| AcknowledgeEntry {
        key,
        attempt: Attempt(attempt),
        ending,
    });
    let lacking = (key(), any::<(u16, u16)>()).prop_map(|(key, (attempt, readout))| LackingEntry {
        key,
        attempt: Attempt(attempt),
        readout,
    });
    let released =
        (key(), any::<u32>(), outcome()).prop_map(|(first, count, outcome)| ReleaseEntry { first, count, outcome });
    let unreleased = (key(), any::<u16>(), proptest::option::of(ending()))
        .prop_map(|(key, attempt, ending)| UnreleasedEntry { key, attempt: Attempt(attempt), ending });
    let reported = any::<(Option<u32>, u16, u64)>().prop_map(|(source, what, value)| ReportEntry {
        source: source.map(SourceId),
        what,
        value,
    });
    prop_oneof![
        any::<u64>().prop_map(|configuration| Message::Hello(Hello::new("ru0", configuration))),
        Just(Message::Welcome),
        Just(Message::Refuse(RefuseReason::OldEpoch)),
        Just(Message::Refuse(RefuseReason::RunOver)),
        Just(Message::Refuse(RefuseReason::Taken)),
        any::<u64>().prop_map(|known| Message::Refuse(RefuseReason::LateIncarnation(Incarnation(known)))),
        (key(), key()).prop_map(|(first, origin)| Message::Start(Start { first, origin })),
        key().prop_map(Message::Highest),
        key().prop_map(Message::StopAt),
        key().prop_map(|first| Message::Resync(Resync { first })),
        (key(), batch(announced)).prop_map(|(settled, entries)| Message::Announce(Announce { settled, entries })),
        any::<(u64, u64)>().prop_map(|(events, bytes)| Message::Credit(Credit { events, bytes })),
        batch(assigned).prop_map(|entries| Message::Assign(Assign { entries })),
        batch(requested).prop_map(|entries| Message::Request(Request { entries })),
        batch(acknowledged)
            .prop_map(|entries| { Message::Acknowledge(Acknowledge { level: AcknowledgementLevel::Synced, entries }) }),
        batch(lacking).prop_map(|entries| Message::Lacking(Lacking { entries })),
        batch(released).prop_map(|entries| Message::Release(Release { entries })),
        any::<(u16, bool)>().prop_map(|(readout, present)| Message::ReadoutState(ReadoutState { readout, present })),
        (batch(unreleased), any::<bool>())
            .prop_map(|(entries, more)| Message::Unreleased(Unreleased { entries, more })),
        (any::<u32>(), 0..4_u8, any::<i16>(), key()).prop_map(|(source, verdict, offset, since)| {
            Message::Synchrony(SynchronyState { source: SourceId(source), verdict, offset, since })
        }),
        Just(Message::StopRequest(Cause::SynchronyLost)),
        (key(), any::<[u64; 6]>()).prop_flat_map(|(below, numbers)| of_numbers(below, numbers)),
        (any::<u32>(), key()).prop_map(|(number, first)| Message::Lumisection(Lumisection { number, first })),
        any::<u64>().prop_map(|in_flight| Message::Finished(Finished { in_flight })),
        (batch(reported), any::<bool>()).prop_map(|(entries, last)| Message::Report(Report { entries, last })),
    ]
}

proptest! {
    #[test]
    fn messages_go_there_and_back(message in message()) {
        let mut body = Vec::new();
        message.encode(&mut body);
        prop_assert!(body.len() <= MAX_CONTROL_BODY);
        prop_assert_eq!(Message::decode(message.kind(), &body), Ok(message));
    }

    #[test]
    fn cut_messages_are_refused(message in message(), cut in 1..64_usize) {
        let mut body = Vec::new();
        message.encode(&mut body);
        prop_assume!(cut <= body.len());
        body.truncate(body.len() - cut);
        prop_assert!(Message::decode(message.kind(), &body).is_err());
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512), kind in 0..Kind::ALL.len()) {
        let _ = Message::decode(Kind::ALL[kind], &bytes);
        if let Some(header) = bytes.first_chunk() {
            let _ = Header::decode(header);
        }
        if let Ok(mut view) = SuperFragmentsView::new(&bytes) {
            while let Ok(Some(_)) = view.next_super_fragment() {
                while let Ok(Some(_)) = view.next_fragment() {}
            }
        }
    }
}

#[test]
fn headers_go_there_and_back() {
    for &kind in Kind::ALL {
        let header = Header {
            kind,
            body: 77,
            run: RunNumber(3),
            epoch: Epoch(2),
            sender: NodeId::builder(7),
            incarnation: Incarnation(1 << 60),
        };
        let bytes = header.to_bytes();
        assert_eq!(Header::decode(&bytes), Ok(header));
        let mut wrong = bytes;
        wrong[0] = b'X';
        assert_eq!(Header::decode(&wrong), Err(FrameError::Magic));
    }
}

#[test]
fn super_fragments_go_there_and_back() {
    let fragment = |source, length, offset| {
        let flags = FragmentFlags::HAS_BUNCH_CROSSING;
        let (source, bunch_crossing, trigger_type) = (SourceId(source), 3000, 1);
        let meta = FragmentMeta { source, length, flags, bunch_crossing, trigger_type, raw_id: 17, time: 1 << 60 };
        FragmentEntry { meta, offset }
    };
    let held = SuperFragmentEntry {
        key: EventKey::new(1, 17),
        slot: 5,
        attempt: Attempt(2),
        fragments: 2,
        bytes: 300,
        not_held: None,
    };
    let absent = SuperFragmentEntry {
        key: EventKey::new(1, 18),
        fragments: 0,
        bytes: 0,
        not_held: Some(Cause::NotHeld),
        ..held
    };
    let mut head = Vec::new();
    let mut encoder = SuperFragmentsEncoder::new(&mut head);
    encoder.add(held, [fragment(1, 100, 0), fragment(2, 200, 116)]);
    encoder.add(absent, []);
    encoder.finish();
    assert_eq!(head.len(), SuperFragmentsEncoder::head_bytes(2, 2));
    assert_eq!(head.len(), 8 + 2 * SUPER_FRAGMENT_ENTRY_BYTES + 2 * FRAGMENT_ENTRY_BYTES);
    let prefix = *head.first_chunk().expect("the head is longer than its prefix");
    assert_eq!(SuperFragmentsView::table_bytes(prefix), Ok(head.len() - 8));
    let mut view = SuperFragmentsView::new(&head).expect("a well-formed head");
    assert_eq!(view.next_super_fragment(), Ok(Some(held)));
    assert_eq!(view.next_fragment(), Ok(Some(fragment(1, 100, 0))));
    assert_eq!(view.next_fragment(), Ok(Some(fragment(2, 200, 116))));
    assert_eq!(view.next_fragment(), Ok(None));
    assert_eq!(view.next_super_fragment(), Ok(Some(absent)));
    assert_eq!(view.next_super_fragment(), Ok(None));
}
