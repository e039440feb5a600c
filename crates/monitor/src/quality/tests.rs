use super::{Problem, ProblemKind, Quality, QualityMonitor, QualityState};
use crate::made_up::{held_back, node, sample, source};
use crate::numbering::{Begun, Recovery, WrongNumber};
use crate::synchrony::Relation;
use crate::{Sample, SourceSample};
use core::time::Duration;
use ropewalk_terms::{Cause, Counter, EventKey, NodeId, RunNumber, SourceId, Utc};
use std::sync::Arc;

const SECOND: i64 = 1_000_000_000;

/// A healthy run of two sources, `seconds` after its start, changed by `change`.
fn look(seconds: u64, change: impl FnOnce(&mut Sample)) -> Sample {
    let mut look = sample(seconds, vec![source(1, 100 * seconds), source(2, 100 * seconds)]);
    look.utc = Utc(seconds as i64 * SECOND);
    look.events.built = 100 * seconds;
    change(&mut look);
    look
}

fn after(samples: impl IntoIterator<Item = Sample>) -> Quality {
    let mut monitor = QualityMonitor::default();
    samples.into_iter().for_each(|sample| monitor.observe(sample));
    monitor.quality().clone()
}

fn only(quality: &Quality) -> &Problem {
    assert_eq!(quality.problems.len(), 1, "{quality:#?}");
    &quality.problems[0]
}

#[test]
fn a_run_without_events_has_no_data_and_one_with_whole_events_is_good() {
    let begun = sample(1, vec![source(1, 0), source(2, 0)]);
    assert_eq!(after([begun]).state, QualityState::NoData);
    let quality = after((1..=20).map(|second| look(second, |_| ())));
    assert_eq!((quality.state, quality.is_current), (QualityState::Good, false), "{quality:#?}");
    assert_eq!((quality.complete.total, quality.complete.per_second), (2_000, 100.0));
    assert_eq!(quality.sentence, "all 2,000 events are complete");
}

#[test]
fn events_of_each_quality_are_counted_in_the_run_and_per_second() {
    let at = |second: u64| {
        look(second, |look| {
            look.events.incomplete_emitted = 10 * second;
            look.events.incomplete_dropped.add(Cause::TimedOut, second);
            look.sources[1].account.missing.add(Cause::TimedOut, 11 * second);
            look.nodes.push(node(NodeId::builder(1), &[(Counter::EventsDoubtful, 3 * second)]));
        })
    };
    let quality = after([at(1), at(3)]);
    assert_eq!((quality.incomplete.total, quality.incomplete.per_second), (33, 11.0));
    assert_eq!((quality.doubtful.total, quality.doubtful.per_second), (9, 3.0));
    assert_eq!(quality.sentence, "33 incomplete events: source 2 is missing");
    assert_eq!((quality.state, quality.is_current), (QualityState::Incomplete, true));
}

#[test]
fn a_source_that_restarted_is_named_with_its_event_and_what_followed() {
    let restarted = |second: u64| {
        look(second, |look| {
            look.names = Arc::new([(SourceId(1), "boardA".to_owned())].into());
            look.sources[0].numbering.restarted_at = Some(EventKey::new(0, 600));
            look.sources[0].account.dropped.add(Cause::OutOfSync, 100 * second);
            look.sources[0].account.missing.add(Cause::OutOfSync, 2_049);
            look.events.incomplete_emitted = 2_049;
        })
    };
    let quality = after([look(9, |_| ()), restarted(10), restarted(11)]);
    let worst = &quality.problems[0];
    assert_eq!(worst.kind, ProblemKind::SourceRestarted);
    assert_eq!(worst.sentence, "boardA (source 1) restarted counting at event 600: 2,049 incomplete events");
    assert_eq!((worst.since_ns, worst.last_ns, worst.count), (10 * SECOND, 11 * SECOND, 1_100));
    assert!(quality.sentence.ends_with("2,049 incomplete events (and 1 more problem)"), "{}", quality.sentence);
}

#[test]
fn each_restart_counts_the_events_that_lack_its_source_since() {
    let at = |second: u64, first: u64, other: u64| {
        look(second, |look| {
            look.sources[0].numbering.restarted_at = Some(EventKey::new(0, 100));
            look.sources[0].account.missing.add(Cause::OutOfSync, first);
            look.sources[1].account.missing.add(Cause::TimedOut, 7);
            look.sources[1].account.missing.add(Cause::OutOfSync, other);
            look.sources[1].numbering.restarted_at = (other > 0).then_some(EventKey::new(0, 900));
            look.events.incomplete_emitted = first + 7;
        })
    };
    let quality = after([look(1, |_| ()), at(2, 50, 0), at(9, 800, 0), at(10, 950, 40), at(11, 1_100, 90)]);
    let sentences: Vec<_> = quality.problems.iter().map(|problem| problem.sentence.as_str()).take(2).collect();
    let expected = [
        "source 1 restarted counting at event 100: 1,100 incomplete events",
        "source 2 restarted counting at event 900: 90 incomplete events",
    ];
    assert_eq!(sentences, expected);
}

#[test]
fn a_place_that_was_found_again_is_not_counted_as_a_further_problem() {
    let quality = after((1..=4).map(|second| {
        look(second, |look| {
            let event = EventKey::new(0, 50);
            look.sources[0].numbering.recovered = Some(Recovery { event, from: 49, to: 1, count: 1 });
            look.sources[1].account.late = 5 * second;
        })
    }));
    assert_eq!(quality.sentence, "source 2: 20 fragments lost: 20 late");
}

#[test]
fn a_source_that_was_unmasked_and_is_in_no_event_is_named_after_seconds() {
    let at = |second: u64, state: u64, received: u64| {
        look(second, |look| {
            look.sources[1].numbers.add(Counter::SourceMasked, state);
            look.sources[1].account.received = received;
        })
    };
    // Masked, unmasked without data, then with data.
    let first = [at(1, 1, 100), at(2, 1, 200), at(3, 2, 200), at(9, 2, 200), at(10, 2, 300)];
    let quality = after(first.clone());
    assert_eq!(quality.problems, []);
    let quality = after(first.into_iter().chain([at(12, 2, 400), at(15, 2, 500)]));
    assert_eq!(only(&quality).kind, ProblemKind::SourceStaysOut);
    assert!(quality.sentence.starts_with("source 2 was unmasked and sends, but its event numbers"), "{quality:#?}");
    assert!(quality.is_current);
}

#[test]
fn a_problem_whose_count_rests_is_over_and_stays_in_the_list() {
    let late = |second: u64, late| look(second, |look| look.sources[0].account.late = late);
    let quality = after([late(1, 0), late(2, 5), late(11, 5)]);
    assert!(only(&quality).is_current);
    let quality = after([late(1, 0), late(2, 5), late(12, 5)]);
    assert!(!only(&quality).is_current && !quality.is_current);
    assert_eq!(quality.sentence, "earlier (00:00:02 to 00:00:02 UTC): source 1: 5 fragments lost: 5 late");
    assert_eq!(quality.state, QualityState::Incomplete);
    let quality = after([late(1, 0), late(2, 5), late(12, 5), late(13, 6)]);
    assert!(only(&quality).is_current);
    assert_eq!((only(&quality).since_ns, only(&quality).last_ns), (2 * SECOND, 13 * SECOND));
}

#[test]
fn a_count_that_rests_says_so_while_it_is_still_red() {
    let late = |second: u64| look(second, |look| look.sources[0].account.late = 5.min(second));
    let sentence = |until: u64| after((1..=until).map(late)).sentence;
    assert_eq!(sentence(6), "source 1: 5 fragments lost: 5 late");
    assert_eq!(sentence(9), "source 1: 5 fragments lost: 5 late (none for 4 s)");
    assert!(sentence(15).starts_with("earlier "), "{}", sentence(15));
}

#[test]
fn a_node_that_hangs_makes_a_run_without_events_no_good_one() {
    let hangs = |second: u64| {
        look(second, |look| {
            look.sources = vec![source(1, 300.min(100 * second))];
            look.events.built = 300.min(100 * second);
            look.nodes[0].reported = Some(sample(second.min(3), Vec::new()).time);
        })
    };
    let quality = after((1..=7).map(hangs));
    assert_eq!((quality.state, quality.problems.len()), (QualityState::Good, 0));
    let quality = after((1..=8).map(hangs));
    let words = "ru0 has not reported for 5 s: it hangs or is stopped";
    assert_eq!((only(&quality).kind, &*quality.sentence), (ProblemKind::NodeSilent, words));
    assert_eq!((quality.state, quality.is_current), (QualityState::NoData, true));
    let again = look(9, |look| look.nodes[0].reported = Some(look.time));
    let quality = after((1..=8).map(hangs).chain([again]));
    assert_eq!((quality.state, quality.is_current), (QualityState::Good, false));
}

/// Two readout units, one of which stops or is lost at second 3; nothing is built then.
fn unit_stands_still(second: u64, is_connected: bool) -> Sample {
    look(second, |look| {
        let until = second.min(3);
        look.sources = vec![source(1, 100 * until), source(2, 100 * second)];
        look.sources[1].readout = NodeId::readout(1);
        look.events.built = 100 * until;
        look.nodes.insert(1, node(NodeId::readout(1), &[]));
        look.nodes[0].reported = Some(sample(until, Vec::new()).time);
        look.nodes[0].is_connected = is_connected || second < 4;
    })
}

#[test]
fn sources_behind_a_unit_that_hangs_or_is_away_are_not_blamed_and_the_data_are_good_afterwards() {
    let quality = after((1..=12).map(|second| unit_stands_still(second, true)));
    let kinds = |quality: &Quality| quality.problems.iter().map(|problem| problem.kind).collect::<Vec<_>>();
    assert_eq!(kinds(&quality), [ProblemKind::NodeSilent], "{quality:#?}");
    assert_eq!((quality.state, quality.is_current), (QualityState::NoData, true));
    let begin = "ru0 has not reported for 9 s: it hangs or is stopped";
    assert_eq!(quality.sentence, begin);
    let quality = after((1..=12).map(|second| unit_stands_still(second, false)));
    assert_eq!((kinds(&quality), quality.state), (vec![ProblemKind::NodeMissing], QualityState::NoData));
    // It goes on: what comes next of its sources counts anew.
    for is_connected in [true, false] {
        let again = (13..=20).map(|second| {
            look(second, |look| {
                look.sources[0].account.received = if second == 13 { 300 } else { 100 * second };
                look.nodes[0].reported = Some(look.time);
            })
        });
        let all = (1..=12).map(|second| unit_stands_still(second, is_connected)).chain(again);
        let quality = after(all);
        assert_eq!((quality.state, quality.problems.len()), (QualityState::Good, 1), "{quality:#?}");
        assert!(quality.sentence.starts_with("all 2,000 events are complete; earlier"), "{}", quality.sentence);
    }
}

#[test]
fn a_source_that_was_silent_leaves_good_data_if_no_event_missed_it() {
    let silent = |second: u64| look(second, |look| look.sources[0] = source(1, 100));
    let missed = |count: u64, second: u64| {
        look(second, |look| {
            look.events.incomplete_emitted = count;
            look.sources[0].account.missing.add(Cause::TimedOut, count);
        })
    };
    let quality = after((1..=7).map(silent));
    assert_eq!((quality.state, quality.is_current), (QualityState::Incomplete, true));
    let again = |count: u64| after((1..=7).map(silent).chain((8..=30).map(|second| missed(count, second)))).state;
    assert_eq!((again(0), again(5)), (QualityState::Good, QualityState::Incomplete));
}

#[test]
fn events_that_a_disk_did_not_take_are_named_with_the_builder_unit_once() {
    let lost = |second: u64| {
        look(second, |look| {
            look.outputs = Arc::new([(NodeId::builder(0), "/data0".to_owned())].into());
            look.nodes[1] = node(NodeId::builder(0), &[(Counter::DiskRefusals, 3), (Counter::DiskFull, 1)]);
            look.events.incomplete_dropped.add(Cause::WriteFailed, 10 * second);
            look.sources.iter_mut().for_each(|one| one.account.dropped.add(Cause::WriteFailed, 10 * second));
        })
    };
    let quality = after([lost(1), lost(2)]);
    let words = "bu0 (/data0) did not write 20 events: no space was left";
    assert_eq!((only(&quality).kind, &*quality.sentence), (ProblemKind::FragmentsLost, words));
    assert_eq!(quality.state, QualityState::Incomplete);
}

#[test]
fn what_a_disk_did_not_take_when_the_run_stopped_is_said_until_the_next_run_begins() {
    let lost = |second: u64, phase: &'static str, count: u64| {
        look(second, |look| {
            (look.phase, look.events.built) = (phase, 100);
            look.nodes[1] = node(NodeId::builder(0), &[(Counter::DiskRefusals, 3), (Counter::DiskFull, 1)]);
            look.events.incomplete_dropped.add(Cause::WriteFailed, count);
        })
    };
    let run = [lost(1, "running", 0), lost(2, "draining", 0), lost(3, "ended", 16)];
    let words = "bu0 did not write 16 events: no space was left";
    let quality = after(run.clone());
    assert_eq!((&*quality.sentence, quality.current(ProblemKind::FragmentsLost)), (words, 1), "its alarm is raised");
    let next = |second: u64, run: u32, phase: &'static str| {
        look(second, |look| {
            (look.run, look.phase, look.events) = (RunNumber(run), phase, Default::default());
            look.sources.clear();
        })
    };
    let configured = run.into_iter().chain([next(4, 0, "initial"), next(5, 4, "configured")]);
    let quality = after(configured.clone());
    assert_eq!((quality.state, quality.is_current), (QualityState::Incomplete, false));
    assert_eq!(quality.sentence, format!("run 3 has ended: earlier (00:00:03 to 00:00:03 UTC): {words}"));
    assert_eq!((quality.complete.total, quality.complete.per_second), (100, 0.0));
    let quality = after(configured.chain([next(6, 4, "running")]));
    assert_eq!((quality.state, &*quality.sentence), (QualityState::NoData, "no events yet"));
}

/// A source whose numbers do not begin at the run's first one, `stale` fragments in.
fn begins_at(look: &mut Sample, first: u64, came: u64, stale: u64) {
    look.sources[0].numbering.begun = Some(Begun { first, came, skipped: None });
    look.sources[0].account.stale = stale;
    look.events.built = 0;
}

#[test]
fn a_source_that_counts_already_is_named_after_two_looks_and_a_left_over_is_not() {
    let outside = |second: u64| look(second, |look| begins_at(look, 826, 4521, 8 * second));
    let quality = after([outside(1), outside(2)]);
    let problem = only(&quality);
    let sentence = "source 1 sends numbers from 4521 instead of 826, source 2 began with the run: reset source 1, or all \
                    boards together";
    assert_eq!((problem.kind, problem.count, &*problem.sentence), (ProblemKind::WrongFirstNumber, 16, sentence));
    assert_eq!((quality.state, quality.is_current), (QualityState::Incomplete, true));
    let joined = look(2, |look| {
        begins_at(look, 826, 4521, 8);
        look.sources[0].account.in_complete_events = 5;
    });
    let quality = after([outside(1), joined]);
    assert_eq!(quality.current(ProblemKind::WrongFirstNumber), 0, "{quality:#?}");
}

#[test]
fn a_restart_whose_place_was_found_again_is_a_notice_and_the_data_are_good() {
    let recovered = |second: u64| {
        look(second, |look| {
            let event = EventKey::new(0, 1806);
            look.sources[0].numbering.recovered = Some(Recovery { event, from: 1804, to: 0, count: 1 });
        })
    };
    let quality = after([look(1, |_| ()), recovered(2)]);
    let sentence =
        "source 1 restarted counting at event 0:1806 (1804 -> 0); its place was found again by time or bunch crossing";
    let sentence = sentence.replace("0:1806", &EventKey::new(0, 1806).to_string());
    assert_eq!((only(&quality).kind, &only(&quality).sentence), (ProblemKind::SourceRecovered, &sentence));
    assert_eq!(quality.state, QualityState::Good);
    assert_eq!(quality.sentence, format!("all 200 events are complete; {sentence}"));
}

#[test]
fn numbers_that_a_source_skipped_are_named() {
    let lost = |missing, gap, is_compared| {
        let quality = after([look(1, |look| {
            look.sources[0].numbers.add(Counter::FramesMissing, missing);
            look.sources[0].numbering.gap = gap;
            let in_step = Relation { offset: Some(0), since: EventKey::new(0, 1) };
            let sources = look.sources.iter().map(|source| source.source);
            look.synchrony = if is_compared { sources.map(|source| (source, in_step)).collect() } else { Vec::new() };
        })]);
        only(&quality).sentence.clone()
    };
    assert_eq!(lost(1, Some((1814, 1816)), true), "source 1 skipped number 1815");
    assert_eq!(lost(5, Some((1814, 1820)), true), "source 1 skipped 5 numbers, 1815 to 1819");
    assert_eq!(lost(1, None, true), "source 1: 1 frame missing, as the numbers show");
    let doubt = "source 1 skipped number 1815 (a lost frame, or its counter jumped: the step is not checked)";
    assert_eq!(lost(1, Some((1814, 1816)), false), doubt);
}

/// A bit error in a counter: its fragment is dropped, and the right number is missing.
#[test]
fn a_wrong_number_is_said_once_and_not_as_a_lost_frame() {
    let lost = |count, corrupt, frames_missing| {
        let quality = after([look(1, |look| {
            let source = &mut look.sources[0];
            let event = EventKey::new(0, 2001);
            source.numbering.wrong = Some(WrongNumber { event, from: 1999, to: 2032, count });
            source.account.corrupt = corrupt;
            source.account.dropped.add(Cause::ImplausibleJump, count - corrupt.min(count));
            source.numbers.add(Counter::FramesMissing, frames_missing);
        })]);
        let problem = only(&quality);
        (problem.count, problem.sentence.clone())
    };
    let one = "source 1 sent a wrong number: 2032 after 1999, at event 2001";
    assert_eq!(lost(1, 0, 1), (1, one.to_owned()));
    assert_eq!(lost(1, 1, 1), (1, format!("{one}; its checksum was wrong, too")));
    let several = "source 1 sent 3 wrong numbers, the last 2032 after 1999, at event 2001";
    assert_eq!(lost(3, 0, 3), (3, several.to_owned()));
    assert_eq!(lost(1, 3, 1).1, format!("{one}; its checksum was wrong, too; 2 fragments lost: 2 corrupt"));
    assert_eq!(lost(1, 0, 4).1, format!("{one}; 3 frames missing, as the numbers show"));
}

#[test]
fn incomplete_events_name_every_source_that_is_missing() {
    let quality = after([look(1, |look| {
        look.events.incomplete_emitted = 2;
        look.sources[0].account.missing.add(Cause::TimedOut, 1);
        look.sources[1].account.missing.add(Cause::Skipped, 1);
    })]);
    assert_eq!(only(&quality).sentence, "2 incomplete events: source 1 is missing in 1, source 2 in 1");
}

#[test]
fn no_source_is_missing_in_more_events_than_are_incomplete() {
    let quality = after([look(1, |look| {
        look.events.incomplete_emitted = 844;
        look.sources.iter_mut().for_each(|source| source.account.missing.add(Cause::TimedOut, 1_463));
    })]);
    assert_eq!(only(&quality).sentence, "844 incomplete events: source 1 is missing in 844, source 2 in 844");
}

#[test]
fn a_node_that_is_away_and_a_run_that_builds_nothing_are_named() {
    let away = |second: u64, built: u64| {
        look(second, |look| {
            look.events.built = built;
            look.nodes[1].is_connected = false;
        })
    };
    let others_build = after((1..=5).map(|second| away(second, 100 * second)));
    assert_eq!(
        (others_build.state, &*others_build.sentence),
        (QualityState::Good, "all 500 events are complete; bu0 not connected to the event manager")
    );
    let dead = |second: u64| away(second, 100);
    let quality = after((1..=5).map(dead));
    assert_eq!(
        (quality.state, &*quality.sentence),
        (QualityState::NoData, "bu0 not connected to the event manager"),
        "nothing is good where nothing is built"
    );
    let quality = after((1..=12).map(dead));
    assert_eq!(quality.state, QualityState::NoData);
    assert_eq!(quality.sentence, "bu0 not connected to the event manager (and 1 more problem)");
    assert_eq!(
        quality.worst(ProblemKind::DataAcquisitionDead).map(|dead| &*dead.sentence),
        Some("no further event was built in 11 s")
    );
}

#[test]
fn filters_that_fail_are_named_and_undecided_events_are_whole() {
    let failing = |second: u64, numbers: &[(Counter, u64)]| {
        look(second, |look| {
            look.events.quarantined = 40;
            look.nodes.push(node(NodeId::builder(1), numbers));
        })
    };
    let restarted = [(Counter::FilterRestarts, 8), (Counter::FilterUnits, 2)];
    let quality = after((1..=3).map(|second| failing(second, &restarted)));
    let sentence =
        "bu1: filter units were restarted 8 times: they crashed, hung or gave wrong results: 40 events set aside";
    assert_eq!((only(&quality).kind, &*only(&quality).sentence), (ProblemKind::FilterFailing, sentence));
    assert_eq!(quality.state, QualityState::Good);

    let killed = [(Counter::FilterRestarts, 8), (Counter::FilterUnits, 2), (Counter::FilterLastSignal, 9)];
    let quality = after((1..=3).map(|second| failing(second, &killed)));
    let sentence = "bu1: filter units were restarted 8 times: the last one was ended by signal 9: 40 events set aside";
    assert_eq!(only(&quality).sentence, sentence);

    let left = |units| [(Counter::FilterUnitsGivenUp, 2), (Counter::FilterUnits, units)];
    let quality = after((1..=30).map(|second| failing(second, &left(0))));
    // Undecided events are whole, and go to the error stream.
    assert_eq!((quality.state, quality.is_current), (QualityState::Good, true));
    let begin = "bu1: 2 filter units given up after repeated failures";
    let none = format!("{begin}, none is left to decide on events: 40 events set aside");
    assert_eq!(only(&quality).sentence, none);
    let quality = after((1..=3).map(|second| failing(second, &left(1))));
    assert_eq!(only(&quality).sentence, format!("{begin}, 1 still decide: 40 events set aside"));
}

#[test]
fn another_run_begins_without_problems() {
    let late = look(2, |look| look.sources[0].account.late = 5);
    let next = look(3, |look| look.run = RunNumber(4));
    assert_eq!(after([late, next]).problems, []);
}

#[test]
fn fragments_in_doubt_are_problems_of_their_source() {
    let doubtful = |doubts: &[(&'static str, u64)]| {
        let quality = after([look(1, |look| look.sources[1].doubts = doubts.to_vec())]);
        let Problem { kind, source, count, ref sentence, .. } = *only(&quality);
        assert_eq!((source, quality.state), (Some(2), QualityState::Doubtful));
        (kind, count, sentence.clone())
    };
    let checksums = (ProblemKind::ChecksumsWrong, 1, "source 2: 1 fragment with a wrong checksum".to_owned());
    assert_eq!(doubtful(&[("crc_errors", 1)]), checksums);
    let cables = "source 2: 7 fragments name another source; check the cables";
    assert_eq!(doubtful(&[("wrong_source", 7)]), (ProblemKind::WrongSource, 7, cables.to_owned()));
    let crossing = "source 2: 3 fragments with another bunch crossing than the other sources";
    let mismatch = ProblemKind::BunchCrossingMismatch;
    assert_eq!(doubtful(&[("bunch_crossing_mismatch", 3)]), (mismatch, 3, crossing.to_owned()));
    let faulty = "source 2: 1,003 fragments faulty: 1,000 malformed, 3 marked as faulty by the front end";
    let faults = [("malformed", 1_000), ("status_error", 3)];
    assert_eq!(doubtful(&faults), (ProblemKind::FragmentsFaulty, 1_003, faulty.to_owned()));
}

#[test]
fn what_is_masked_stale_from_before_the_run_or_over_is_no_problem() {
    let quality = after([look(1, |look| {
        look.sources[0].account.dropped.add(Cause::Masked, 9);
        look.sources[0].account.stale = 4;
        look.sources[0].numbers.add(Counter::FragmentsBeforeStart, 4);
        look.sources[0].account.after_stop = 7;
    })]);
    assert_eq!(quality.problems, []);
}

#[test]
fn a_source_that_never_sent_is_told_from_one_that_stopped() {
    let never = |second: u64| look(second, |look| look.sources[0] = SourceSample { ..source(1, 0) });
    assert_eq!(after((1..=5).map(never)).problems, [], "it has five seconds");
    let quality = after((1..=6).map(never));
    assert_eq!(only(&quality).kind, ProblemKind::SourceNeverSent);
    assert_eq!(only(&quality).sentence, "source 1 has sent nothing since the run began (it is connected)");
    let datagrams =
        |second: u64| look(second, |look| look.sources[0] = SourceSample { sends_datagrams: true, ..source(1, 0) });
    let quality = after((1..=6).map(datagrams));
    assert!(only(&quality).sentence.ends_with("(nothing arrived at its port)"), "{quality:#?}");
    let stopped = |second: u64| look(second, |look| look.sources[0] = source(1, 500));
    let quality = after((1..=7).map(stopped));
    assert_eq!(only(&quality).kind, ProblemKind::SourceSilent);
    assert_eq!(only(&quality).sentence, "source 1: no data for 6.0 s");
}

#[test]
fn an_optional_source_may_stay_away_and_no_event_needs_it() {
    let optional = |second: u64, received: u64| {
        look(second, |look| {
            look.optional = Arc::new([SourceId(1)].into());
            look.sources[0] = source(1, received);
        })
    };
    let quality = after((1..=9).map(|second| optional(second, 0)));
    assert_eq!((quality.state, quality.problems.len()), (QualityState::Good, 0), "{quality:#?}");
    let quality = after((1..=9).map(|second| optional(second, 500)));
    assert_eq!((only(&quality).kind, quality.state), (ProblemKind::SourceSilent, QualityState::Good), "it is named");
}

#[test]
fn silence_is_over_as_soon_as_the_source_sends() {
    let stopped = |second: u64| look(second, |look| look.sources[0] = source(1, 500));
    let quality = after((1..=7).map(stopped).chain([look(8, |_| ())]));
    assert!(!only(&quality).is_current, "{quality:#?}");
    assert_eq!(quality.current(ProblemKind::SourceSilent), 0);
}

#[test]
fn silence_of_all_is_no_fault_of_one_and_who_is_held_back_is_not_silent() {
    let pause = |second: u64| sample(second, vec![source(1, 500), source(2, 500)]);
    assert_eq!(after((1..=9).map(pause)).problems, []);
    // Source 2 is held back because it waits for source 1.
    let held =
        |second: u64| sample(second, vec![source(1, 500), held_back(source(2, 700), Duration::from_secs(second))]);
    let quality = after((1..=9).map(held));
    assert_eq!((only(&quality).kind, only(&quality).source), (ProblemKind::SourceSilent, Some(1)));
}

/// Sentences about sources with these offsets, the reference first; none: no fixed relation.
fn disagreement(offsets: &[Option<i16>]) -> Vec<String> {
    let relation = |(id, &offset): (u32, &Option<i16>)| {
        let since = EventKey::new(0, if offset == Some(0) { 1 } else { 700 + u64::from(id) });
        (SourceId(id), Relation { offset, since })
    };
    let quality = after([look(1, |look| {
        look.names = Arc::new((1..=4).map(|id| (SourceId(id), format!("board{id}"))).collect());
        look.synchrony = (1..).zip(offsets).map(relation).collect();
    })]);
    quality.problems.into_iter().map(|problem| problem.sentence.replace(" (source ", "(")).collect()
}

#[test]
fn the_source_that_all_others_disagree_with_is_named_also_if_it_is_the_reference() {
    let (same, early, late) = (Some(0), Some(1), Some(-3));
    assert_eq!(disagreement(&[same, same, same]), [""; 0]);
    assert_eq!(disagreement(&[same, same, early]), ["board3(3) is one event early since event 703"]);
    assert_eq!(disagreement(&[same, same, late]), ["board3(3) is 3 events late since event 703"]);
    // All others are displaced by the same: the reference lost a trigger the other way round.
    assert_eq!(disagreement(&[same, early, early]), ["board1(1) is one event late since event 702"]);
    assert_eq!(disagreement(&[same, late, late, late]), ["board1(1) is 3 events early since event 699"]);
    assert_eq!(
        disagreement(&[same, same, None]),
        ["board3(3) has no fixed relation to the other sources since event 703"]
    );
}

#[test]
fn of_two_sources_that_disagree_both_are_named_and_marked() {
    let both = |since| vec![format!("board1(1) and board2(2) disagree by one event since event {since}"); 2];
    assert_eq!(disagreement(&[Some(0), Some(1)]), both(702));
    assert_eq!(
        disagreement(&[Some(0), Some(-1)]),
        both(701),
        "event 701 of board1 has the trigger of event 702 of board2"
    );
    let four = disagreement(&[Some(0), Some(0), Some(2), Some(2)]);
    assert_eq!(four.len(), 3);
    assert!(four.iter().all(|sentence| sentence.contains("disagree by 2 events")), "{four:?}");
    let quality = after([look(1, |look| {
        let relation = |offset, since| Relation { offset: Some(offset), since: EventKey::new(0, since) };
        look.synchrony = vec![(SourceId(1), relation(0, 1)), (SourceId(2), relation(-1, 702))];
    })]);
    assert_eq!(quality.sentence, "source 1 and source 2 disagree by one event since event 701", "it is one problem");
}

#[test]
fn a_restart_of_every_source_says_since_when_nothing_is_built_and_what_to_do() {
    let reset = |second: u64, sources: usize| {
        look(second, |look| {
            look.events.built = 100;
            for source in &mut look.sources[..sources] {
                source.numbering.restarted_at = Some(EventKey::new(0, 101));
                source.account.dropped.add(Cause::OutOfSync, 100 * second);
            }
        })
    };
    let quality = after([look(1, |_| ()), reset(2, 2), reset(3, 2)]);
    let sentence =
        "no event is built since 00:00:01 UTC: all sources restarted counting: stop this run and start a new one";
    assert_eq!(quality.sentence, sentence);
    let quality = after([look(1, |_| ()), reset(2, 1), reset(3, 1)]);
    assert_eq!(quality.sentence, "source 1 restarted counting at event 101");
}

#[test]
fn boards_whose_fragments_all_fail_their_checks_may_be_exchanged() {
    let quality = |failed: [u64; 2]| {
        after([look(1, |look| {
            look.sources[0].doubts = vec![("crc_errors", failed[0])];
            look.sources[1].account.dropped.add(Cause::NotMatched, failed[1]);
        })])
    };
    let sentence = "nearly all fragments of source 1 and source 2 fail their checksum or `match`: are the ports or cables exchanged?";
    assert!(quality([100, 95]).sentence.starts_with(sentence), "{}", quality([100, 95]).sentence);
    assert!(!quality([100, 40]).sentence.contains("exchanged"), "one of them is right");
}

/// Over TCP one fragment is given up, and all bytes behind it are passed over in search of a frame.
fn without_frames(second: u64, ids: &[u32]) -> Sample {
    look(second, |look| {
        look.events.built = if ids.len() > 1 { 0 } else { 100 * second };
        for id in ids {
            let one = &mut look.sources[*id as usize - 1];
            *one = source(*id, 1);
            one.account.dropped.add(Cause::NotMatched, 1);
            one.numbers.add(Counter::GarbageBytes, 80_000 * second);
        }
    })
}

#[test]
fn boards_of_which_no_frame_is_found_send_and_may_be_exchanged() {
    let quality = after((1..=20).map(|second| without_frames(second, &[1, 2])));
    let current = |kind| quality.current(kind);
    assert_eq!((current(ProblemKind::WrongSource), current(ProblemKind::SourceSilent)), (2, 0), "{quality:#?}");
    assert!(quality.sentence.starts_with("nearly all fragments of source 1 and source 2 fail"), "{}", quality.sentence);
    let quality = after((1..=20).map(|second| without_frames(second, &[2])));
    let words = "source 2: 1 fragment lost: 1 not matched; 1,600,000 bytes in no frame";
    assert_eq!((only(&quality).kind, &*only(&quality).sentence), (ProblemKind::FragmentsLost, words));
    assert!(quality.is_current, "it goes on as long as bytes come");
}

#[test]
fn masked_sources_are_named_whatever_the_state() {
    let mask = |look: &mut Sample, count: usize| {
        look.sources.iter_mut().take(count).for_each(|source| source.numbers.add(Counter::SourceMasked, 1));
    };
    let quality = after([look(1, |look| mask(look, 1))]);
    assert_eq!(
        (quality.state, &*quality.sentence),
        (QualityState::Good, "all 100 events are complete; masked: source 1")
    );
    let four = look(1, |look| {
        look.sources = (1..=4).map(|id| source(id, 100)).collect();
        mask(look, 4);
    });
    assert!(after([four]).sentence.ends_with("; masked: source 1, source 2, source 3 and 1 more"));
    let unmasked = |look: &mut Sample| look.sources[0].numbers.add(Counter::SourceMasked, 2);
    assert!(!after([look(1, unmasked)]).sentence.contains("masked:"), "it was asked back");
}

#[test]
fn good_data_whose_step_is_not_checked_say_so() {
    let unchecked = |look: &mut Sample| look.unchecked_step = Some(Arc::from("step not checked: straw has no `time`"));
    let quality = after([look(1, unchecked)]);
    assert_eq!((quality.state, quality.problems.len()), (QualityState::Good, 0));
    assert_eq!(quality.sentence, "all 100 events are complete; step not checked: straw has no `time`");
    let never = "times or bunch crossings of source 2 never matched those of the others";
    let quality = after([look(1, |look| look.unrelated = vec![SourceId(2)])]);
    assert_eq!(quality.sentence, format!("all 100 events are complete; step not checked: {never}"));
    let both = |look: &mut Sample| {
        unchecked(look);
        look.unrelated = vec![SourceId(2)];
    };
    let expected = format!("all 100 events are complete; step not checked: straw has no `time`; {never}");
    assert_eq!(after([look(1, both)]).sentence, expected);
}
