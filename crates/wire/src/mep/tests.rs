//! Every packet comes back as it was sent, and nothing that comes can do harm.

use super::*;
use proptest::prelude::*;

fn packet(first: u32, partition: u32, fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0xEE];
    encode_mep(first, partition, fragments.iter().map(Vec::as_slice), &mut bytes).expect("it is short");
    bytes.split_off(1)
}

/// Of any lengths, or all of the same one.
fn fragments() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let any_length = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..34);
    let equal =
        (0_usize..40).prop_flat_map(|length| prop::collection::vec(prop::collection::vec(any::<u8>(), length), 0..34));
    prop_oneof![any_length, equal]
}

proptest! {
    #[test]
    fn every_packet_comes_back(first in any::<u32>(), partition in any::<u32>(), fragments in fragments()) {
        let bytes = packet(first, partition, &fragments);
        let view = MepView::parse(&bytes).expect("it was encoded");
        let header = MepHeader { first_event: first, packing: fragments.len() as u16, length: bytes.len() as u16, partition };
        prop_assert_eq!(view.header(), header);
        let ids = (0..).map(|index| (first as u16).wrapping_add(index));
        prop_assert!(view.fragments().eq(ids.zip(fragments.iter().map(Vec::as_slice))));
        for cut in 0..bytes.len() {
            let error = if cut < MEP_HEADER_BYTES { MepError::Short } else { MepError::Length };
            prop_assert_eq!(MepView::parse(&bytes[..cut]).err(), Some(error));
        }
    }

    #[test]
    fn a_damaged_fragment_header_is_seen(fragments in fragments(), place in any::<prop::sample::Index>(), bit in 0_u8..32) {
        prop_assume!(!fragments.is_empty());
        let mut bytes = packet(7, 1, &fragments);
        let which = place.index(fragments.len());
        let before: usize = fragments[..which].iter().map(|banks| FRAGMENT_HEADER_BYTES + banks.len()).sum();
        bytes[MEP_HEADER_BYTES + before + usize::from(bit / 8)] ^= 1 << (bit % 8);
        prop_assert!(MepView::parse(&bytes).is_err());
    }

    #[test]
    fn every_bank_comes_back(banks in prop::collection::vec(
        (any::<(u8, u8, i16)>(), prop::collection::vec(any::<u8>(), 0..50)), 0..9)
    ) {
        let mut bytes = Vec::new();
        let bank = |((kind, version, source), data)| Bank { kind, version, source, data };
        let banks: Vec<_> = banks.iter().map(|(head, data)| bank((*head, data.as_slice()))).collect();
        banks.iter().for_each(|bank| encode_bank(bank, &mut bytes).expect("it is short"));
        prop_assert_eq!(bytes.len() % 4, 0);
        let read: Result<Vec<_>, _> = Banks::new(&bytes).collect();
        prop_assert_eq!(read, Ok(banks));
    }

    #[test]
    fn every_request_comes_back((count, sequence, run, seconds, nanoseconds) in any::<(u8, u32, u32, u64, u64)>()) {
        let request = MepRequest { count, sequence, run, seconds, nanoseconds };
        prop_assert_eq!(MepRequest::parse(&request.to_bytes()), Ok(request));
    }

    #[test]
    fn anything_is_refused_or_is_whole(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        if let Ok(view) = MepView::parse(&bytes) {
            let total: usize = view.fragments().map(|(_, banks)| FRAGMENT_HEADER_BYTES + banks.len()).sum();
            prop_assert_eq!(MEP_HEADER_BYTES + total, bytes.len());
        }
        let _ = Banks::new(&bytes).count();
        prop_assert_eq!(MepRequest::parse(&bytes).is_ok(), bytes.len() == MEP_REQUEST_BYTES);
    }
}

#[test]
fn each_error_has_its_cause() {
    use ropewalk_terms::Cause;
    let bytes = packet(0xFFFF, 3, &[vec![1; 8], vec![2; 8]]);
    let wrong = |place: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[place] = value;
        MepView::parse(&bytes).err().map(MepError::cause)
    };
    assert_eq!(MepView::parse(&bytes).err(), None, "the event's low half goes round");
    assert_eq!(wrong(6, 35), Some(Cause::LengthMismatch));
    assert_eq!(wrong(4, 1), Some(Cause::Malformed), "a fragment that no event has");
    assert_eq!(wrong(4, 3), Some(Cause::Malformed), "an event without a fragment");
    assert_eq!(wrong(14, 7), Some(Cause::Malformed));
    assert_eq!(wrong(12, 9), Some(Cause::Malformed));
    assert_eq!(MepView::parse(&bytes[..11]).err().map(MepError::cause), Some(Cause::ShortPacket));
    let long = [0; 0xFFFF];
    let mut out = vec![7];
    assert_eq!(encode_mep(0, 0, [&long[..]].into_iter(), &mut out), Err(MepError::Long));
    let bank = Bank { kind: 0, version: 0, source: 0, data: &long };
    assert_eq!((encode_bank(&bank, &mut out), MepError::Long.cause()), (Err(MepError::Long), Cause::Oversize));
    assert_eq!(out, [7], "nothing was appended");
}

#[test]
fn a_bank_without_magic_or_end_ends_the_fragment() {
    let mut bytes = Vec::new();
    for data in [&[1, 2, 3][..], &[4; 4]] {
        encode_bank(&Bank { kind: 1, version: 2, source: -3, data }, &mut bytes).expect("it is short");
    }
    let read = |bytes: &[u8]| Banks::new(bytes).map(|bank| bank.is_ok()).collect::<Vec<_>>();
    assert_eq!(read(&bytes), [true, true]);
    assert_eq!(read(&bytes[..bytes.len() - 1]), [true, false]);
    for (place, value) in [(12, 0), (14, 7), (14, 13)] {
        let mut wrong = bytes.clone();
        wrong[place] = value;
        assert_eq!(read(&wrong), [true, false], "{place}");
    }
}
