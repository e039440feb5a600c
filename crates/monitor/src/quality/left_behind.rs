//! A source whose fragments all belong to events that are over, while the run builds nothing.

use ropewalk_terms::SourceId;

use crate::Sample;

/// A source whose fragments between two samples were nearly all stale, the number of these fragments, and a sentence.
/// The run has built events before and ends none now: the source started to count again, as an emulated source does
/// when its readout unit restarts.
pub(crate) fn left_behind(before: &Sample, now: &Sample) -> Option<(SourceId, u64, String)> {
    let ended = |sample: &Sample| sample.events.built + sample.incomplete_events();
    if now.phase != "running" || ended(before) == 0 || ended(now) != ended(before) {
        return None;
    }
    let stale = now.sources.iter().find_map(|source| {
        let was = &before.source(source.source)?.account;
        let received = source.account.received.saturating_sub(was.received);
        let stale = source.account.stale.saturating_sub(was.stale);
        (stale > 0 && 2 * stale >= received).then_some((source.source, stale))
    });
    let (source, stale) = stale?;
    let name = now.name_of(source);
    let sentence = format!(
        "{name} began to count again: its fragments are of events that are over (stale); stop this run and start a new one"
    );
    Some((source, stale, sentence))
}

#[cfg(test)]
mod tests {
    use super::super::{ProblemKind, QualityMonitor};
    use super::left_behind;
    use crate::Sample;
    use crate::made_up::{sample, source};

    /// A run that has built events and is given 8 stale fragments of source 1 in ten seconds.
    fn restarted() -> (Sample, Sample) {
        let (mut before, mut now) = (sample(10, vec![source(1, 100)]), sample(20, vec![source(1, 108)]));
        (before.events.built, now.events.built) = (100, 100);
        now.sources[0].account.stale = 8;
        (before, now)
    }

    #[test]
    fn a_source_that_sends_only_what_is_over_is_named() {
        let (before, mut now) = restarted();
        let (_, count, sentence) = left_behind(&before, &now).expect("only stale fragments");
        assert_eq!(count, 8);
        assert!(
            sentence.starts_with("source 1 began to count again: its fragments are of events that are over"),
            "{sentence}"
        );
        now.events.built += 1;
        assert_eq!(left_behind(&before, &now), None, "the run goes on");
    }

    #[test]
    fn left_overs_before_the_first_event_and_other_fragments_are_no_restart() {
        let (mut before, mut now) = restarted();
        (before.events.built, now.events.built) = (0, 0);
        assert_eq!(left_behind(&before, &now), None, "no event was built yet");
        let (before, mut now) = restarted();
        now.sources[0].account.received += 100;
        assert_eq!(left_behind(&before, &now), None, "most of what came has a place");
    }

    #[test]
    fn it_is_a_problem_of_the_data_as_long_as_it_lasts() {
        let (before, now) = restarted();
        let mut monitor = QualityMonitor::default();
        monitor.observe(before);
        monitor.observe(now);
        let problem = monitor.quality().worst(ProblemKind::SourceRestarted).expect("a restart").clone();
        assert!(problem.sentence.contains("began to count again"), "{problem:?}");
    }
}
