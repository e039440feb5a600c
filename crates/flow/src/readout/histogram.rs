//! What fragments of a source fill into the histograms that a user has asked for.

use crate::histogram::{Histogram, Histogrammed};
use crate::messages::{FragmentFlags, Received};
use core::time::Duration;

/// Counts fragments that came at once, `since` those before them.
pub(super) fn fill(histogram: &mut Histogram, since: Option<Duration>, fragments: &[Received]) {
    let came = fragments.iter().filter(|fragment| !fragment.meta.flags.contains(FragmentFlags::MISSING));
    match histogram.of() {
        Histogrammed::Size => came.for_each(|fragment| histogram.count(u64::from(fragment.meta.length))),
        Histogrammed::Interval => {
            // The first of them came after those before; the others with it.
            let mut since = since;
            for _ in came {
                since.into_iter().for_each(|since| histogram.count_interval(since));
                since = Some(Duration::ZERO);
            }
        }
        Histogrammed::Field(field) => {
            came.for_each(|fragment| histogram.count_field(field.read(fragment.payload.pieces())));
        }
    }
}
