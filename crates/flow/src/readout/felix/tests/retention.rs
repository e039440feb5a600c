//! Blocks go back in order, up to the first one that is needed.

use super::*;
use proptest::prelude::*;

#[test]
fn nothing_is_released_that_a_batch_or_an_open_chunk_needs() {
    let mut retention = Retention::new(0, 4);
    let first = retention.take(0, 100, 2);
    let second = retention.take(100, 200, 1);
    assert_eq!(retention.released_to(None), 0);
    retention.give_back(second, 1);
    assert_eq!(retention.released_to(None), 0);
    retention.give_back(first, 1);
    assert_eq!((retention.released_to(None), retention.references()), (0, 1));
    retention.give_back(first, 1);
    assert_eq!(retention.released_to(None), 200);
    assert_eq!(retention.released_to(Some(150)), 150);
    // A batch with a chunk that began in an earlier one.
    let third = retention.take(150, 300, 1);
    assert_eq!(retention.released_to(Some(280)), 150);
    retention.give_back(third, 1);
    assert_eq!(retention.released_to(Some(280)), 280);
    // A batch that brought nothing.
    retention.take(300, 400, 0);
    assert_eq!(retention.released_to(None), 400);
}

#[test]
fn a_full_retention_has_no_room() {
    let mut retention = Retention::new(0, 2);
    let spans = [retention.take(0, 1, 1), retention.take(1, 2, 1)];
    assert!(!retention.has_room());
    // Room comes back in order, as the blocks do.
    retention.give_back(spans[1], 1);
    assert!(!retention.has_room());
    retention.give_back(spans[0], 1);
    assert!(retention.has_room());
}

proptest! {
    #[test]
    fn what_is_released_is_what_nobody_needs(
        steps in prop::collection::vec((any::<bool>(), 0..4_u32, 0..300_u64, any::<prop::sample::Index>()), 1..100),
    ) {
        let mut retention = Retention::new(0, 1000);
        let mut held: Vec<(SpanId, u64)> = Vec::new();
        let (mut end, mut before) = (0, 0);
        for (takes, references, reach, which) in steps {
            if takes {
                // As the oldest open chunk allows: nothing that was released is needed again.
                let from = end.max(reach) - reach;
                let id = retention.take(from.max(before), end + 100, references);
                held.extend((0..references).map(|_| (id, from.max(before))));
                end += 100;
            } else if !held.is_empty() {
                let (id, _) = held.swap_remove(which.index(held.len()));
                retention.give_back(id, 1);
            }
            let expected = held.iter().map(|(_, from)| *from).fold(end, u64::min);
            prop_assert_eq!(retention.released_to(None), expected);
            prop_assert_eq!(retention.references(), held.len() as u64);
            prop_assert!(expected >= before);
            before = expected;
        }
    }
}
