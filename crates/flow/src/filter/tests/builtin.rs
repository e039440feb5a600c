//! Each of the filters that need no program, on events that a builder built.

use crate::builder::{Builder, BuilderAction, BuilderConfig, BuilderSource};
use crate::filter::{Builtin, BuiltinFilter, Comparison};
use crate::messages::{Assign, AssignEntry, Fragment, FragmentFlags, FragmentMeta, Message, SuperFragmentEntry};
use core::time::Duration;
use ropewalk_memory::{Owner, Payload, Pool, PoolConfig};
use ropewalk_terms::{Attempt, EventKey, Instant, Requirement, SourceId, TriggerBits};

/// An event in a builder: sources 1 and 2, of which the second has bytes 0, 1, 2 ... in two pieces.
struct Bench {
    builder: Builder,
    slot: u32,
    _pool: Pool,
}

impl Bench {
    fn new(number: u64) -> Self {
        let source = |id| BuilderSource {
            requirement: Requirement::Optional,
            bunch_crossing_mask: 0,
            ..BuilderSource::new(SourceId(id), 0)
        };
        let config = BuilderConfig {
            slots: 1,
            table: 0,
            credit_bytes: 1000,
            event_timeout: Duration::from_secs(1),
            check_bunch_crossing: false,
            orbit: 0,
            ..BuilderConfig::new(0, 1, [1, 2, 3].map(source).to_vec())
        };
        let mut pool = Pool::new(PoolConfig::heap("fragments", 64, 4)).expect("there is memory");
        let (now, key, attempt) = (Instant::ZERO, EventKey::new(0, number), Attempt(1));
        let mut builder = Builder::new(config);
        builder.manager_connected(now);
        builder.readout_connected(now, 0);
        let entries = [AssignEntry { key, bytes: 30, attempt }].into_iter().collect();
        builder.message(now, &Message::Assign(Assign { entries }));
        let mut fragments =
            vec![fragment(&mut pool, 1, &[&[7; 10]]), fragment(&mut pool, 2, &[&[0, 1, 2], &[3, 4, 5]])];
        while let Some(action) = builder.poll(now) {
            let BuilderAction::ToReadout { message: Message::Request(request), .. } = action else { continue };
            let slot = request.entries[0].slot;
            let entry = SuperFragmentEntry { key, slot, attempt, fragments: 2, bytes: 16, not_held: None };
            builder.super_fragment(now, 0, &entry, &mut fragments);
        }
        Self { builder, slot: 0, _pool: pool }
    }

    fn passes(&self, trigger: &Builtin) -> bool {
        trigger.passes(&self.builder.event(self.slot))
    }
}

fn fragment(pool: &mut Pool, source: u32, pieces: &[&[u8]]) -> Fragment {
    let mut payload = Payload::default();
    for piece in pieces {
        let mut loan = pool.loan(Owner::SHARED).expect("there is a block");
        loan.spare()[..piece.len()].copy_from_slice(piece);
        loan.commit(piece.len());
        payload.push(loan.split_committed().expect("it was filled"));
    }
    let meta = FragmentMeta {
        source: SourceId(source),
        length: payload.len() as u32,
        flags: FragmentFlags::default(),
        bunch_crossing: 0,
        trigger_type: 0,
        raw_id: 0,
        time: 0,
    };
    Fragment { meta, payload }
}

fn bytes(offset: u32, mask: &[u8], comparison: Comparison, value: u64) -> Builtin {
    Builtin::Bytes { source: SourceId(2), offset, mask: mask.to_vec(), comparison, value }
}

#[test]
fn sizes_and_sources_are_looked_at() {
    let bench = Bench::new(10);
    assert!(bench.passes(&Builtin::All));
    for (least, most, passes) in [(16, 16, true), (0, 15, false), (17, 99, false)] {
        assert_eq!(bench.passes(&Builtin::Size { least, most }), passes, "{least} to {most}");
    }
    assert!(bench.passes(&Builtin::Present(SourceId(2))) && !bench.passes(&Builtin::Present(SourceId(3))));
    assert!(bench.passes(&Builtin::Every(5)) && !bench.passes(&Builtin::Every(4)));
}

#[test]
fn bytes_are_compared_where_they_lie_also_across_pieces() {
    let bench = Bench::new(10);
    for (trigger, passes) in [
        (bytes(2, &[0xff, 0xff], Comparison::Is, 0x0203), true),
        (bytes(2, &[0xff, 0x02], Comparison::Is, 0x0202), true),
        (bytes(2, &[0xff], Comparison::IsNot, 2), false),
        (bytes(5, &[0xff], Comparison::AtLeast, 5), true),
        (bytes(5, &[0xff], Comparison::AtMost, 4), false),
        (bytes(5, &[0xff, 0xff], Comparison::AtLeast, 0), false),
    ] {
        assert_eq!(bench.passes(&trigger), passes, "{trigger:?}");
    }
    let elsewhere =
        Builtin::Bytes { source: SourceId(3), offset: 0, mask: vec![0xff], comparison: Comparison::AtLeast, value: 0 };
    assert!(!bench.passes(&elsewhere), "a source that is not there has no bytes");
}

#[test]
fn chance_is_the_same_for_whoever_decides_and_has_the_share() {
    let half = Builtin::Random { share: 0.5, seed: 3 };
    let passed: Vec<bool> = (0..400).map(|number| Bench::new(number).passes(&half)).collect();
    let again: Vec<bool> = (0..400).map(|number| Bench::new(number).passes(&half)).collect();
    let count = passed.iter().filter(|&&passes| passes).count();
    assert!(passed == again && (150..250).contains(&count), "{count} of 400");
}

#[test]
fn every_trigger_that_is_passed_is_set_and_one_is_enough() {
    let bench = Bench::new(10);
    let event = bench.builder.event(bench.slot);
    let filter = BuiltinFilter::new(vec![Builtin::Every(2), Builtin::Every(3), Builtin::Every(5)]);
    let decision = filter.decide(&event);
    assert!(decision.accept);
    assert_eq!(decision.triggers, TriggerBits::of(0).with(TriggerBits::of(2)));
    assert!(!BuiltinFilter::new(vec![Builtin::Every(3)]).decide(&event).accept);
}
