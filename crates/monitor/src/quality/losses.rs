//! Fragments that came and are in no event, lost datagrams, and frames that are missing by number.

use ropewalk_terms::{Cause, Counter, FragmentAccount, SourceId, counted, grouped};

use super::{Finding, ProblemKind, datagrams, fragments};
use crate::sample::{Sample, SourceSample};

/// The losses of a source in one sentence. `begins_wrongly`: another sentence reports its first number.
/// `are_in_lost_events`: the builder unit that could not write its events is named once for all sources. Current also
/// while bytes arrive in which no frame is found: they are not counted as fragments.
pub(super) fn losses(
    (before, sample): (Option<&Sample>, &Sample),
    source: &SourceSample,
    begins_wrongly: bool,
    are_in_lost_events: bool,
) -> Option<Finding> {
    let account = &source.account;
    let wrong = source.numbering.wrong.map_or(0, |wrong| wrong.count);
    let mut parts: Vec<String> = source.numbering.wrong_numbers(wrong.min(account.corrupt)).into_iter().collect();
    let lost = lost_fragments(source, wrong, begins_wrongly, are_in_lost_events);
    let not_taken = source.lost_datagrams.iter().map(|(cause, count)| (cause.name(), count)).collect();
    let mut count = wrong;
    for (what, named) in [(fragments as fn(u64) -> String, lost), (datagrams, not_taken)] {
        let named: Vec<_> = named.into_iter().filter(|(_, count)| *count > 0).collect();
        let total: u64 = named.iter().map(|(_, count)| count).sum();
        let causes = named.iter().map(|(cause, n)| format!("{} {}", grouped(*n), cause.replace('_', " ")));
        if total > 0 {
            parts.push(format!("{} lost: {}", what(total), causes.collect::<Vec<_>>().join(", ")));
        }
        count += total;
    }
    // A board that sends a wrong number skips the right one; its frame is not missing.
    let missing = source.numbers.get(Counter::FramesMissing).saturating_sub(wrong);
    parts.extend(missing_frames(sample, source, missing));
    count += missing;
    let garbage = |source: &SourceSample| source.numbers.get(Counter::GarbageBytes);
    let was = before.and_then(|before| before.source(source.source)).map_or(0, garbage);
    let garbage = garbage(source);
    parts.extend((garbage > 0).then(|| format!("{} in no frame", counted(garbage, "byte"))));
    let first = parts.first()?;
    let is_verb = ["skipped", "sent"].iter().any(|verb| first.starts_with(verb));
    let (name, colon) = (sample.name_of(source.source), if is_verb { "" } else { ":" });
    let sentence = format!("{name}{colon} {}", parts.join("; "));
    Some(Finding {
        kind: ProblemKind::FragmentsLost,
        source: Some(source.source),
        count,
        holds: garbage > was,
        sentence,
    })
}

/// Fragments by the cause for which they are in no event, but for `wrong` ones with numbers that were disproved.
fn lost_fragments(
    source: &SourceSample,
    mut wrong: u64,
    begins_wrongly: bool,
    are_in_lost_events: bool,
) -> Vec<(&'static str, u64)> {
    let FragmentAccount { late, duplicate, corrupt, stale, dropped, .. } = &source.account;
    let stale = stale.saturating_sub(source.numbers.get(Counter::FragmentsBeforeStart));
    let stale = if begins_wrongly { 0 } else { stale };
    let mut without_wrong = |count: u64| {
        let explained = wrong.min(count);
        wrong -= explained;
        count - explained
    };
    let corrupt = without_wrong(*corrupt);
    let mut named = vec![("late", *late), ("duplicate", *duplicate), ("corrupt", corrupt), ("stale", stale)];
    for (cause, count) in dropped.iter().filter(|(cause, _)| is_lost(*cause)) {
        let count = match cause {
            Cause::WriteFailed if are_in_lost_events => 0,
            Cause::ImplausibleJump => without_wrong(count),
            _ => count,
        };
        named.push((cause.name(), count));
    }
    named
}

/// Causes of dropped fragments that are problems of their own here, or none at all.
const fn is_lost(cause: Cause) -> bool {
    !matches!(cause, Cause::Masked | Cause::OutOfSync | Cause::WrongSource)
}

fn missing_frames(sample: &Sample, source: &SourceSample, missing: u64) -> Option<String> {
    let what = match source.numbering.gap {
        _ if missing == 0 => return None,
        Some((from, to)) if missing == 1 && to == from.wrapping_add(2) => format!("skipped number {}", to - 1),
        Some((from, to)) if to.wrapping_sub(from) == missing + 1 => {
            format!("skipped {} numbers, {} to {}", grouped(missing), from + 1, to - 1)
        }
        _ => return Some(format!("{} missing, as the numbers show", counted(missing, "frame"))),
    };
    let doubt = " (a lost frame, or its counter jumped: the step is not checked)";
    Some(format!("{what}{}", if is_in_step(sample, source.source) { "" } else { doubt }))
}

/// Whether there is no other source, or one with which this one is compared, so that a jump of its counter would be
/// seen.
fn is_in_step(sample: &Sample, source: SourceId) -> bool {
    if sample.sources.len() < 2 {
        return true;
    }
    let known = sample.synchrony.iter().filter(|(_, relation)| relation.offset.is_some());
    known.clone().count() > 1 && known.into_iter().any(|(known, _)| *known == source)
}
