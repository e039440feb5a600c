//! Heads of chunks: each e-link's own way to say to which event a chunk belongs.

use super::card::{LINKS, Rig, elink};
use super::*;
use crate::messages::FragmentFlags;
use crate::source::felix::{EmulatedCard, EmulatedCardConfig};
use crate::source::{SizeDistribution, Trigger, TriggerGate, TriggerRate, TriggerSequence};
use core::time::Duration;
use ropewalk_terms::Cause;
use ropewalk_wire::rod;

const SEED: u64 = 7;

/// The first e-link has a number of three bytes in the middle of its head, the last one heads of ROD fragments.
fn rules() -> EventRules {
    let field = NumberField { offset: 5, bytes: 3, is_big_endian: true, mask: 0xff_ffff };
    EventRules::from(EventRule::USUAL).with(elink(0), EventRule::Field(field)).with(elink(LINKS - 1), EventRule::Rod)
}

#[test]
fn the_chunks_of_an_event_are_found_however_each_link_of_a_card_says_it() {
    let mut rig = Rig::with_rules(256, 100, &rules());
    let size = SizeDistribution::Uniform { least: 40, most: 3000 };
    let mut config = EmulatedCardConfig::new(rig.format(), (0..LINKS).map(elink), size, SEED);
    config.links.iter_mut().for_each(|link| link.rule = rules().of(link.elink));
    let (mut card, gate) = (EmulatedCard::new(config), TriggerGate::new(10));
    rig.write_with(|space| card.fill(Duration::ZERO, &gate, space));
    rig.turn();
    let mut triggers = TriggerSequence::new(SEED, TriggerRate::Unlimited);
    for _ in 0..10 {
        let Trigger { number, bunch_crossing, .. } = triggers.next_trigger();
        let fragments = rig.fragments(number).expect("it is settled");
        let metas: Vec<_> = fragments.iter().map(|fragment| fragment.meta).collect();
        assert!(metas.iter().all(|meta| meta.missing_cause().is_none() && meta.raw_id == number), "{metas:?}");
        let of_rod = metas.last().expect("there are three");
        assert_eq!((of_rod.bunch_crossing, of_rod.flags), (bunch_crossing, FragmentFlags::HAS_BUNCH_CROSSING));
        assert!(metas[..LINKS as usize - 1].iter().all(|meta| meta.flags == FragmentFlags::default()));
        let head = fragments[LINKS as usize - 1].payload.read_array(0).expect("36 bytes");
        assert!(rod::Header::parse(&head).is_ok_and(|head| u64::from(head.level1_id()) == number));
    }
}

#[test]
fn a_chunk_without_the_marker_of_its_head_is_malformed_and_costs_itself() {
    let mut rig = Rig::with_rules(64, 100, &rules());
    let chunk = |number| [&rod::Header::new(1, number, 5, 9).to_bytes()[..], &[0; 20]].concat();
    rig.say_bytes(LINKS - 1, &chunk(1));
    let mut unmarked = chunk(2);
    unmarked[0] = 0;
    rig.say_bytes(LINKS - 1, &unmarked);
    rig.say_bytes(LINKS - 1, &chunk(3)[..35]);
    rig.say_bytes(LINKS - 1, &chunk(4));
    rig.turn();
    let account = rig.account(LINKS - 1);
    assert_eq!((account.received, account.dropped.get(Cause::Malformed), account.in_flight), (4, 2, 2), "{account:?}");
}
