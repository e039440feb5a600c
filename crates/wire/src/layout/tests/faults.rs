//! What is no layout is refused, by the key that is wrong.

use super::*;

/// The key and the fault of a layout that is no longer good.
fn wrong(layout: Layout, change: impl FnOnce(&mut Layout)) -> (String, LayoutFault) {
    assert!(Plan::compile(&layout).is_ok(), "it is good before");
    let mut layout = layout;
    change(&mut layout);
    let LayoutError { key, fault } = Plan::compile(&layout).expect_err("it is wrong now");
    (key, fault)
}

fn check(layout: Layout, change: impl FnOnce(&mut Layout), key: &str, fault: LayoutFault) {
    assert_eq!(wrong(layout, change), (key.to_owned(), fault));
}

const fn number(at: i32, bytes: u8) -> Number {
    Number::little_endian(at, bytes)
}

#[test]
fn every_layout_of_these_tests_is_good() {
    for layout in streams() {
        assert!(Plan::compile(&layout).is_ok(), "{layout:?}");
    }
}

#[test]
fn numbers_that_are_none_are_refused() {
    let event = |number| move |layout: &mut Layout| layout.event = vec![number];
    check(digitiser(), event(number(4, 0)), "event", LayoutFault::Width(0));
    check(digitiser(), event(number(4, 9)), "event", LayoutFault::Width(9));
    check(digitiser(), event(number(4, 4).masked(0)), "event", LayoutFault::Mask { mask: 0, bits: 32 });
    let gaps = 0xf0f;
    check(digitiser(), event(number(4, 4).masked(gaps)), "event", LayoutFault::Mask { mask: gaps, bits: 32 });
    let beyond = 1 << 32;
    check(digitiser(), event(number(4, 4).masked(beyond)), "event", LayoutFault::Mask { mask: beyond, bits: 32 });
    let shifted = Number { shift: Some(40), ..number(4, 4) };
    check(digitiser(), event(shifted), "event", LayoutFault::Shift(40));
    check(digitiser(), event(number(4, 4).masked(0x7f)), "event", LayoutFault::Bits { bits: 7, least: 8, most: 64 });
    check(digitiser(), event(number(-2, 4)), "event", LayoutFault::Outside { end: 2, frame: 0 });
    let five = |layout: &mut Layout| layout.event = vec![number(4, 1); 5];
    check(digitiser(), five, "event", LayoutFault::Parts(5));
    let nine = |layout: &mut Layout| layout.event = vec![number(20, 8), number(28, 1)];
    check(digitiser(), nine, "event", LayoutFault::Bits { bits: 72, least: 8, most: 64 });
    let kind = |layout: &mut Layout| layout.trigger_type = Some(number(20, 4));
    check(digitiser(), kind, "trigger_type", LayoutFault::Bits { bits: 32, least: 1, most: 16 });
}

#[test]
fn fields_that_overlap_are_refused_but_one_may_mean_two_things() {
    let overlapping = |layout: &mut Layout| layout.sequence = Some(number(10, 4));
    check(digitiser(), overlapping, "sequence", LayoutFault::Overlap("event".to_owned()));
    let length = |layout: &mut Layout| layout.status = Some(Status { number: number(0, 4), error: 1, busy: 0 });
    check(digitiser(), length, "status", LayoutFault::Overlap("frame.length".to_owned()));
    // The upper four bits are free.
    let beside = number(0, 4).masked(0xf000_0000);
    let mut layout = digitiser();
    layout.status = Some(Status { number: beside, error: 1, busy: 2 });
    layout.sequence = Some(layout.event[0]);
    assert!(Plan::compile(&layout).is_ok());
    let constant = |layout: &mut Layout| layout.matches = Some(Pattern { at: 5, bytes: vec![1, 2], mask: None });
    check(fixed(), constant, "event", LayoutFault::Overlap("match".to_owned()));
}

fn check_from_both_ends(sequence: Number, key: &str, fault: LayoutFault) {
    check(fixed(), |layout| layout.sequence = Some(sequence), key, fault);
}

#[test]
fn fields_outside_of_the_frame_are_refused() {
    let beyond = LayoutFault::Outside { end: 26, frame: 24 };
    check_from_both_ends(number(22, 4), "sequence", beyond);
    check_from_both_ends(number(-26, 4), "sequence", LayoutFault::Outside { end: 26, frame: 24 });
    check_from_both_ends(number(-18, 4), "sequence", LayoutFault::Overlap("event".to_owned()));
    let fault = LayoutFault::Outside { end: 408, frame: 400 };
    check(synchronised(), |layout| layout.sequence = Some(number(400, 8)), "sequence", fault);
    let range = |layout: &mut Layout| {
        let kind = ChecksumKind::Sum16Le;
        layout.checksum = Some(Checksum { kind, number: number(-2, 2), from: 0, to: 30 });
    };
    check(fixed(), range, "checksum", LayoutFault::Outside { end: 30, frame: 24 });
}

#[test]
fn lengths_that_fit_no_frame_are_refused() {
    let narrow = |layout: &mut Layout| {
        let length = Length { number: number(0, 1), unit: 1, counts: Counts::Frame, add: 0 };
        layout.frame = Frame::Length(length);
        layout.event = vec![number(300, 4)];
    };
    let fault = LayoutFault::TooShort { needed: 304, possible: 255 };
    check(fixed(), |layout| (narrow(layout), layout.max = 1000).1, "frame.length", fault);
    let unit = |layout: &mut Layout| layout.frame = Frame::Length(Length { unit: 0, ..length_at(0) });
    check(digitiser(), unit, "frame.length.unit", LayoutFault::Zero);
    let behind = |layout: &mut Layout| layout.frame = Frame::Length(length_at(-4));
    check(digitiser(), behind, "frame.length.at", LayoutFault::WrongEnd("begin (0 or more)"));
    check(fixed(), |layout| layout.frame = Frame::Fixed { bytes: 0 }, "frame.fixed", LayoutFault::Zero);
    let fault = LayoutFault::TooShort { needed: 24, possible: 20 };
    check(fixed(), |layout| layout.max = 20, "frame.max", fault);
    check(fixed(), |layout| layout.max = 0, "frame.max", LayoutFault::Max(0));
    check(fixed(), |layout| layout.max = u32::MAX, "frame.max", LayoutFault::Max(u32::MAX));
}

#[test]
fn trailers_that_contradict_themselves_are_refused() {
    check(trailed(), |layout| layout.matches = None, "frame.trailer", LayoutFault::TrailerWithoutMatch);
    let at_end = |layout: &mut Layout| layout.matches = Some(Pattern { at: -16, bytes: vec![5], mask: None });
    check(trailed(), at_end, "match.at", LayoutFault::TrailerWithoutMatch);
    let change = |change: fn(&mut Length, &mut Option<Pattern>, &mut u32)| {
        move |layout: &mut Layout| {
            let Frame::Trailer { length, mark, step } = &mut layout.frame else { panic!("a trailer") };
            change(length, mark, step);
        }
    };
    check(trailed(), change(|_, _, step| *step = 0), "frame.trailer.step", LayoutFault::Zero);
    let front = change(|length, _, _| length.number.at = 0);
    check(trailed(), front, "frame.trailer.length.at", LayoutFault::WrongEnd("end (below 0)"));
    let after = change(|length, _, _| length.counts = Counts::AfterField);
    let fault = LayoutFault::Contradiction("nothing follows a length at the frame's end");
    check(trailed(), after, "frame.trailer.length.counts", fault);
    let front = change(|_, mark, _| *mark = Some(Pattern { at: 0, bytes: vec![1], mask: None }));
    check(trailed(), front, "frame.trailer.mark.at", LayoutFault::WrongEnd("end (below 0)"));
}

#[test]
fn words_that_are_none_are_refused() {
    let word =
        |word: Vec<u8>| move |layout: &mut Layout| layout.frame = Frame::Sync { word, size: Size::Fixed { bytes: 20 } };
    check(fixed(), word(Vec::new()), "frame.sync", LayoutFault::Pattern(0));
    check(fixed(), word(vec![7; 9]), "frame.sync", LayoutFault::Pattern(9));
    let mask = |mask: Vec<u8>| {
        move |layout: &mut Layout| layout.matches = Some(Pattern { at: 0, bytes: vec![1, 2], mask: Some(mask) })
    };
    check(fixed(), mask(vec![1]), "match", LayoutFault::PatternMask);
    check(fixed(), mask(vec![0, 0]), "match", LayoutFault::PatternMask);
}

#[test]
fn clocks_statuses_and_checksums_that_contradict_themselves_are_refused() {
    let tick = |tick| move |layout: &mut Layout| layout.time.as_mut().expect("it has one").tick_attoseconds = tick;
    check(digitiser(), tick(0), "time.tick", LayoutFault::Tick);
    check(digitiser(), tick(u64::MAX), "time.tick", LayoutFault::Tick);
    let status = |layout: &mut Layout| layout.status = Some(Status { number: number(16, 1), error: 0x100, busy: 0 });
    check(digitiser(), status, "status.error", LayoutFault::Mask { mask: 0x100, bits: 8 });
    let checksum = |bytes, from, to| {
        let kind = ChecksumKind::Crc32;
        let number = number(-4, bytes);
        move |layout: &mut Layout| layout.checksum = Some(Checksum { kind, number, from, to })
    };
    check(digitiser(), checksum(2, 0, -4), "checksum", LayoutFault::ChecksumWidth(32));
    check(digitiser(), checksum(4, 8, 4), "checksum", LayoutFault::Range);
    check(digitiser(), checksum(4, -4, -8), "checksum", LayoutFault::Range);
}

#[test]
fn pieces_that_contradict_themselves_are_refused() {
    let pieces = |place, end| Pieces { header: 16, frame: Number::big_endian(0, 8), place, end };
    let layout = |pieces| Layout::new(Frame::Pieces(pieces), 1 << 16);
    let good = || layout(pieces(Place::Offset(number(8, 4)), End::Length(number(12, 4))));
    let change = |place, end| move |layout: &mut Layout| layout.frame = Frame::Pieces(pieces(place, end));
    let wrong = change(Place::Offset(number(8, 4)), End::Count(number(12, 4)));
    check(good(), wrong, "frame.pieces.count", LayoutFault::PlaceAndEnd);
    let wrong = change(Place::Index(number(8, 4)), End::Length(number(12, 4)));
    check(good(), wrong, "frame.pieces.length", LayoutFault::PlaceAndEnd);
    let wrong = change(Place::Index(number(8, 4)), End::Last(number(14, 4)));
    check(good(), wrong, "frame.pieces.last", LayoutFault::OutsideHeader { header: 16 });
    let wrong = change(Place::Index(number(-8, 4)), End::Last(number(12, 4)));
    check(good(), wrong, "frame.pieces.index", LayoutFault::OutsideHeader { header: 16 });
}
