//! Events leave as their keys are.

use crate::filter::Ordering;
use proptest::prelude::*;
use ropewalk_terms::EventKey;

const fn key(number: u64) -> EventKey {
    EventKey::new(0, number)
}

#[test]
fn an_event_waits_for_those_before_it() {
    let mut ordering = Ordering::new(4);
    ordering.hold(key(7), 0);
    assert_eq!(ordering.release(Some(key(5))), None, "5 is not decided");
    ordering.hold(key(5), 1);
    assert_eq!(ordering.release(Some(key(6))), Some(1));
    assert_eq!(ordering.release(Some(key(6))), None);
    assert_eq!(ordering.release(Some(key(8))), Some(0));
    assert!(ordering.is_empty() && ordering.late() == 0);
    ordering.hold(key(2), 2);
    assert_eq!((ordering.release(None), ordering.late()), (Some(2), 1), "somebody else had it and died");
}

proptest! {
    #[test]
    fn whatever_is_decided_first_they_leave_in_order(decided in Just((0..40_u64).collect::<Vec<_>>()).prop_shuffle()) {
        let mut ordering = Ordering::new(40);
        let mut left = Vec::new();
        for (count, &number) in decided.iter().enumerate() {
            ordering.hold(key(number), number as u32);
            let oldest = decided[count + 1..].iter().min().map(|&number| key(number));
            left.extend(std::iter::from_fn(|| ordering.release(oldest)));
            prop_assert!(left.len() as u64 >= oldest.map_or(40, |oldest| oldest.number()), "nothing waits in vain");
        }
        prop_assert!(left.iter().copied().eq(0..40));
    }
}
