//! Bunch crossings: offsets, masks, the orbit, and who is right.

use super::hand::{Hand, config, fragment};
use crate::builder::BuilderConfig;
use crate::messages::FragmentFlags;

/// Builds an event whose sources 0, 1, 10, 11 ... have these crossings; returns who is flagged.
fn flagged(config: BuilderConfig, crossings: &[Option<u16>]) -> Vec<u32> {
    let mut hand = Hand::new(config);
    hand.assign([1], 1);
    let requests = hand.done().requests;
    for (readout, entries) in requests {
        let place = 2 * usize::from(readout);
        let mut fragments: Vec<_> = (0..2).map(|number| fragment(1, u32::from(10 * readout) + number)).collect();
        for (fragment, crossing) in fragments.iter_mut().zip(&crossings[place..]) {
            fragment.meta.bunch_crossing = crossing.unwrap_or(0);
            fragment.meta.flags = crossing.map_or(FragmentFlags::default(), |_| FragmentFlags::HAS_BUNCH_CROSSING);
        }
        hand.answer_with(readout, entries[0], &mut fragments, None);
    }
    let slot = hand.done().emitted[0];
    let event = hand.builder.event(slot);
    let wrong = |flags: FragmentFlags| flags.contains(FragmentFlags::BUNCH_CROSSING_MISMATCH);
    let flagged: Vec<_> = event.fragments().filter(|one| wrong(one.meta.flags)).map(|one| one.meta.source.0).collect();
    let counted = hand.builder.bunch_crossing_mismatches().filter(|&(_, count)| count > 0);
    assert_eq!(counted.map(|(source, _)| source.0).collect::<Vec<_>>(), flagged);
    flagged
}

#[test]
fn who_agrees_is_not_flagged() {
    assert!(flagged(config(2), &[Some(9); 4]).is_empty());
    assert!(flagged(config(2), &[Some(9), None, Some(9), None]).is_empty());
    assert!(flagged(config(2), &[None; 4]).is_empty());
}

#[test]
fn the_majority_is_right() {
    assert_eq!(flagged(config(2), &[Some(8), Some(9), Some(9), Some(9)]), [0]);
    assert_eq!(flagged(config(2), &[Some(9), Some(9), Some(8), Some(9)]), [10]);
    assert_eq!(flagged(config(3), &[Some(1), Some(2), Some(7), Some(7), Some(7), Some(7)]), [0, 1]);
    // Without a majority the first source is right.
    assert_eq!(flagged(config(2), &[Some(1), Some(2), Some(3), Some(4)]), [1, 10, 11]);
    assert_eq!(flagged(config(1), &[Some(1), Some(2)]), [1]);
}

#[test]
fn offsets_wrap_with_the_orbit() {
    let mut settings = config(1);
    settings.sources[1].bunch_crossing_offset = 2;
    assert!(flagged(settings.clone(), &[Some(12), Some(10)]).is_empty());
    assert!(flagged(settings.clone(), &[Some(1), Some(3563)]).is_empty());
    assert_eq!(flagged(settings.clone(), &[Some(10), Some(10)]), [1]);
    settings.sources[1].bunch_crossing_offset = -2;
    assert!(flagged(settings.clone(), &[Some(3563), Some(1)]).is_empty());
    settings.orbit = 0;
    settings.sources[0].bunch_crossing_mask = 0xff;
    settings.sources[1].bunch_crossing_mask = 0xff;
    assert!(flagged(settings, &[Some(0xff), Some(1)]).is_empty());
}

#[test]
fn only_bits_that_both_have_are_compared() {
    let mut settings = config(1);
    settings.sources[1].bunch_crossing_mask = 0xf;
    assert!(flagged(settings.clone(), &[Some(0x123), Some(0x3)]).is_empty());
    assert_eq!(flagged(settings.clone(), &[Some(0x123), Some(0x4)]), [1]);
    settings.sources[1].bunch_crossing_mask = 0;
    assert!(flagged(settings, &[Some(0x123), Some(0x4)]).is_empty());
}

#[test]
fn it_can_be_switched_off() {
    let settings = BuilderConfig { check_bunch_crossing: false, ..config(1) };
    assert!(flagged(settings, &[Some(1), Some(2)]).is_empty());
}
