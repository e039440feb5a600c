//! Do an event's fragments speak of the same bunch crossing?

use super::BuilderSource;
use crate::messages::{Fragment, FragmentFlags};

/// The bunch crossing of a fragment as it is compared, where there is one to compare.
fn compared(source: &BuilderSource, fragment: &Fragment, orbit: u16) -> Option<u16> {
    let meta = &fragment.meta;
    if source.bunch_crossing_mask == 0 || !meta.flags.contains(FragmentFlags::HAS_BUNCH_CROSSING) {
        return None;
    }
    let moved = i32::from(meta.bunch_crossing) + i32::from(source.bunch_crossing_offset);
    let wrapped = if orbit == 0 { moved } else { moved.rem_euclid(i32::from(orbit)) };
    Some(wrapped as u16 & source.bunch_crossing_mask)
}

/// Whether two bunch crossings agree in the bits that both sources have.
fn agree(one: (&BuilderSource, u16), two: (&BuilderSource, u16)) -> bool {
    let bits = one.0.bunch_crossing_mask & two.0.bunch_crossing_mask;
    one.1 & bits == two.1 & bits
}

/// Whether every fragment has the same number and is compared in the same way, as nearly always: then all agree.
fn are_plainly_equal(sources: &[BuilderSource], fragments: &[Option<Fragment>]) -> bool {
    let mut all =
        sources.iter().zip(fragments).filter_map(|(source, fragment)| Some((source, &fragment.as_ref()?.meta)));
    let Some((first, as_first)) = all.next() else { return true };
    all.all(|(source, meta)| {
        meta.bunch_crossing == as_first.bunch_crossing
            && meta.flags.contains(FragmentFlags::HAS_BUNCH_CROSSING)
            && source.bunch_crossing_offset == first.bunch_crossing_offset
            && source.bunch_crossing_mask == first.bunch_crossing_mask
    })
}

/// Flags every fragment whose bunch crossing is not that of the majority, and counts it by place in `mismatches`.
/// Where there is no majority, the first source in the configured order is right.
pub(super) fn flag_mismatches(
    sources: &[BuilderSource],
    fragments: &mut [Option<Fragment>],
    orbit: u16,
    mismatches: &mut [u64],
) {
    if are_plainly_equal(sources, fragments) {
        return;
    }
    let mut all = sources.iter().zip(fragments.iter()).filter_map(|(source, fragment)| {
        let fragment = fragment.as_ref()?;
        compared(source, fragment, orbit).map(|crossing| (source, crossing))
    });
    let Some(first) = all.next() else { return };
    if all.clone().all(|other| agree(first, other)) {
        return;
    }
    let right = majority(first, all);
    for ((source, fragment), count) in sources.iter().zip(fragments).zip(mismatches) {
        let Some(fragment) = fragment else { continue };
        if compared(source, fragment, orbit).is_some_and(|crossing| !agree(right, (source, crossing))) {
            fragment.meta.flags = fragment.meta.flags.with(FragmentFlags::BUNCH_CROSSING_MISMATCH);
            *count += 1;
        }
    }
}

/// The crossing of more than half of the sources, `first` included; `first` where there is none.
fn majority<'a>(
    first: (&'a BuilderSource, u16),
    others: impl Iterator<Item = (&'a BuilderSource, u16)> + Clone,
) -> (&'a BuilderSource, u16) {
    // Boyer and Moore: whoever has the majority survives when different votes cancel each other.
    let (mut candidate, mut lead) = (first, 1_u32);
    for other in others.clone() {
        if lead == 0 {
            (candidate, lead) = (other, 1);
        } else if agree(candidate, other) {
            lead += 1;
        } else {
            lead -= 1;
        }
    }
    let all = core::iter::once(first).chain(others);
    let (total, votes) = all.fold((0, 0), |(total, votes), one| (total + 1, votes + u32::from(agree(candidate, one))));
    if 2 * votes > total { candidate } else { first }
}
