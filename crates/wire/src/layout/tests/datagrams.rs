//! Frames in datagrams, composed and put together again.

use super::*;

fn in_pieces(place: Place, end: End) -> Layout {
    let pieces = Pieces { header: 12, frame: Number::big_endian(0, 4), place, end };
    let checksum = Checksum { kind: ChecksumKind::Crc32, number: Number::big_endian(-4, 4), from: 0, to: -4 };
    Layout {
        event: vec![Number::big_endian(0, 4)],
        checksum: Some(checksum),
        ..Layout::new(Frame::Pieces(pieces), 100_000)
    }
}

/// What is put together of the datagrams, in whatever order they come.
fn put_together(plan: &Plan, datagrams: &[&[u8]]) -> Vec<u8> {
    let mut bodies = Vec::new();
    let mut whole = None;
    for datagram in datagrams {
        let head = plan.piece(*datagram).expect("a header");
        assert_eq!(head.frame, 77);
        whole = whole.or(head.whole);
        bodies.push((head.place, head.is_in_bytes, &datagram[head.header..]));
    }
    bodies.sort_by_key(|(place, ..)| *place);
    let mut frame = datagrams[0][..12].to_vec();
    for (index, (place, is_in_bytes, body)) in bodies.iter().enumerate() {
        assert_eq!(*place as usize, if *is_in_bytes { frame.len() - 12 } else { index });
        frame.extend_from_slice(body);
    }
    let end = if bodies[0].1 { frame.len() - 12 } else { bodies.len() };
    assert_eq!(whole, Some(end as u64), "some header says when the frame is whole");
    frame
}

#[test]
fn a_composed_frame_is_sent_in_as_many_datagrams_as_it_takes() {
    let (offset, index) = (Place::Offset(Number::big_endian(4, 4)), Place::Index(Number::big_endian(4, 1)));
    let ends = [End::Length(Number::big_endian(8, 4)), End::Last(Number::big_endian(8, 1))];
    let counted = [End::Count(Number::big_endian(8, 1)), End::Last(Number::big_endian(8, 1))];
    let layouts = ends.map(|end| in_pieces(offset, end)).into_iter().chain(counted.map(|end| in_pieces(index, end)));
    for layout in layouts {
        let plan = plan(&layout);
        for (length, most, count) in
            [(40, 100, 1), (1012, 112, 10), (1013, 112, 11), (40_000, 1400, 29), (40_012, 60, 834)]
        {
            let payload: Vec<u8> = (0..length).map(|place| place as u8).collect();
            let (mut out, mut ends) = (vec![9; 5], Vec::new());
            let contents = Contents { event: 77, ..Contents::default() };
            plan.compose_datagrams(&contents, &payload, most, &mut out, &mut ends);
            let begins = [5].into_iter().chain(ends.iter().copied());
            let datagrams: Vec<&[u8]> = begins.zip(&ends).map(|(begin, &end)| &out[begin..end]).collect();
            assert_eq!(ends.last(), Some(&out.len()));
            // A byte cannot count more than 255.
            let is_narrow = !matches!(layout.frame, Frame::Pieces(Pieces { place: Place::Offset(_), .. }));
            assert!(
                datagrams.len() == count || is_narrow && count > 255 && datagrams.len() <= 256,
                "{length}: {}",
                datagrams.len()
            );
            let frame = put_together(&plan, &datagrams);
            assert_eq!((frame.len(), plan.checksum(&frame[..])), (length, Some(true)), "{layout:?}");
            assert_eq!(&frame[12..length - 4], &payload[12..length - 4]);
        }
    }
}

#[test]
fn a_frame_of_one_datagram_is_composed_as_it_is() {
    let plan = plan(&Layout { event: vec![Number::big_endian(0, 4)], ..Layout::new(Frame::Datagram, 1000) });
    let (mut out, mut ends) = (Vec::new(), Vec::new());
    plan.compose_datagrams(&Contents { event: 3, ..Contents::default() }, &[1; 20], 8, &mut out, &mut ends);
    assert_eq!((out.len(), ends), (20, vec![20]));
    assert_eq!(plan.fields(&out[..]).event, Some(3));
}
