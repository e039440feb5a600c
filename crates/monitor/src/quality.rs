//! Data quality: how many events are complete, incomplete and doubtful, what is wrong with the data, and of which source.
//!
//! ```text
//!  Sample, Sample ── QualityMonitor ──> Quality { state, sentence, events, problems }
//! ```
//!
//! [`bottleneck`](crate::bottleneck) explains the rate of a run; this module explains whether the data are good. A problem
//! stays in the list to the end of the run. It is *current* while its condition holds, or while its count grows.

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::sync::Arc;

use ropewalk_terms::{Cause, Counter, EventKey, FragmentAccount, Instant, RunNumber, SourceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Activity, Rates, Sample, SourceSample};

/// A problem of the data, the worst first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// A source began to count anew, and nothing shows to which events its fragments belong.
    SourceRestarted,
    /// The fragments of a source belong to other events than their numbers say.
    SourceOutOfStep,
    /// Fragments name another source than the connection they came over.
    WrongSource,
    /// The bunch crossing of a source is not that of most sources of the event.
    BunchCrossingMismatch,
    /// A source has sent nothing since the run began.
    SourceNeverSent,
    /// A source stopped sending while others go on.
    SourceSilent,
    /// The checksum of fragments is wrong.
    ChecksumsWrong,
    /// Fragments are malformed, cut short, or marked as faulty by their front end.
    FragmentsFaulty,
    /// Fragments are in no event: late, duplicate, without a usable number, or dropped.
    FragmentsLost,
    /// Events lack a required source.
    EventsIncomplete,
}

impl ProblemKind {
    /// Every kind, the worst first.
    pub const ALL: [Self; 10] = [
        Self::SourceRestarted,
        Self::SourceOutOfStep,
        Self::WrongSource,
        Self::BunchCrossingMismatch,
        Self::SourceNeverSent,
        Self::SourceSilent,
        Self::ChecksumsWrong,
        Self::FragmentsFaulty,
        Self::FragmentsLost,
        Self::EventsIncomplete,
    ];

    /// What it makes of the events concerned.
    const fn state(self) -> QualityState {
        match self {
            Self::SourceOutOfStep
            | Self::WrongSource
            | Self::BunchCrossingMismatch
            | Self::ChecksumsWrong
            | Self::FragmentsFaulty => QualityState::Doubtful,
            Self::SourceRestarted
            | Self::SourceNeverSent
            | Self::SourceSilent
            | Self::FragmentsLost
            | Self::EventsIncomplete => QualityState::Incomplete,
        }
    }
}

/// The data as a whole.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QualityState {
    /// No event has been built, and no problem is known.
    #[default]
    NoData,
    /// All events are complete, and nothing is in doubt.
    Good,
    /// Events lack sources, or fragments are in no event.
    Incomplete,
    /// Events hold fragments whose content, or whose event, is in doubt.
    Doubtful,
}

/// A number of events: in the run, and per second at present.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize)]
pub struct EventCount {
    /// In the run.
    pub total: u64,
    /// Per second, between the last two samples; 0 before the second one.
    pub per_second: f64,
}

/// Something that is wrong with the data.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Problem {
    /// The kind; also the name of its alarm.
    pub kind: ProblemKind,
    /// The id of the source; none if the problem is not that of one source.
    pub source: Option<u32>,
    /// Fragments or events concerned so far; 0 where nothing is counted.
    pub count: u64,
    /// When it was first seen, in nanoseconds since 1970 UTC.
    pub since_ns: i64,
    /// When it was last seen, in nanoseconds since 1970 UTC.
    pub last_ns: i64,
    /// Whether it goes on: its condition holds, or its count grew in the last ten seconds.
    pub is_current: bool,
    /// What is wrong, in a sentence.
    pub sentence: String,
}

/// The quality of the data of a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Quality {
    /// The worst state of all problems of the run.
    pub state: QualityState,
    /// Whether a problem goes on.
    pub is_current: bool,
    /// The worst problem, or that all is well, in a sentence.
    pub sentence: String,
    /// Events with every required source.
    pub complete: EventCount,
    /// Events without a required source, kept or dropped.
    pub incomplete: EventCount,
    /// Built events with a fragment in doubt.
    pub doubtful: EventCount,
    /// Problems: current ones first, then the worst first.
    pub problems: Vec<Problem>,
}

impl Quality {
    /// How many sources have this problem now; 1 where it is not that of one source.
    pub fn current(&self, kind: ProblemKind) -> usize {
        self.problems.iter().filter(|problem| problem.kind == kind && problem.is_current).count()
    }

    /// The worst problem of a kind that goes on.
    pub fn worst(&self, kind: ProblemKind) -> Option<&Problem> {
        self.problems.iter().find(|problem| problem.kind == kind && problem.is_current)
    }
}

/// A count that has not grown for so long is not current.
const CURRENT: Duration = Duration::from_secs(10);
/// A source that sends nothing for so long while others send is silent.
pub(crate) const SILENT: Duration = Duration::from_secs(2);
/// A source that has sent nothing so long after the first sample of a run is missing.
const NEVER_SENT: Duration = Duration::from_secs(5);

/// What a look at one sample finds, before it is known since when.
struct Finding {
    kind: ProblemKind,
    source: Option<SourceId>,
    count: u64,
    /// The condition holds now; a count alone says nothing of now.
    holds: bool,
    sentence: String,
}

#[derive(Clone, Debug)]
struct Known {
    problem: Problem,
    /// When its count grew last, or its condition held last.
    last: Instant,
    /// It is current while its condition holds, and no longer; otherwise while its count grows.
    is_condition: bool,
}

/// Looks at samples one after the other, about once a second. Keeps the last one.
#[derive(Clone, Debug, Default)]
pub struct QualityMonitor {
    run: RunNumber,
    /// When the first sample of the run was seen in phase `running`.
    began: Option<Instant>,
    activity: Activity,
    last: Option<Arc<Sample>>,
    known: Vec<Known>,
    quality: Quality,
}

impl QualityMonitor {
    /// Looks at the next sample. A sample that was seen already changes nothing.
    pub fn observe(&mut self, sample: impl Into<Arc<Sample>>) {
        let sample = sample.into();
        if self.run != sample.run {
            *self = Self { run: sample.run, ..Self::default() };
        }
        if self.last.as_ref().is_some_and(|last| last.time == sample.time) {
            return;
        }
        if sample.phase == "running" {
            self.began.get_or_insert(sample.time);
        }
        self.activity.observe(&sample);
        let before = self.last.replace(Arc::clone(&sample));
        let rates = before.as_ref().and_then(|before| Rates::between(before, &sample));
        for finding in self.findings(before.as_deref(), &sample) {
            self.note(finding, &sample);
        }
        for known in &mut self.known {
            let age = sample.time.since(known.last);
            let goes_on = if known.is_condition { age.is_zero() } else { age < CURRENT };
            known.problem.is_current = goes_on && sample.phase != "ended";
        }
        self.quality = self.conclude(before.as_deref(), &sample, rates.as_ref());
    }

    /// The quality of the data as of the last sample.
    pub const fn quality(&self) -> &Quality {
        &self.quality
    }

    fn findings(&self, before: Option<&Sample>, sample: &Sample) -> Vec<Finding> {
        let mut found = Vec::new();
        for source in &sample.sources {
            let name = sample.name_of(source.source);
            restart(source, &name, sample, &mut found);
            doubts(source, &name, &mut found);
            losses(source, &name, &mut found);
            self.absence(source, &name, (before, sample), &mut found);
        }
        out_of_step(sample, &mut found);
        incomplete(sample, &mut found);
        found
    }

    /// A source that has never sent, or that stopped sending while others go on.
    fn absence(
        &self,
        source: &SourceSample,
        name: &str,
        (before, sample): (Option<&Sample>, &Sample),
        found: &mut Vec<Finding>,
    ) {
        let Some(began) = self.began.filter(|_| sample.phase == "running" && !source.has_ended()) else { return };
        let mut report = |kind, sentence| {
            found.push(Finding { kind, source: Some(source.source), count: 0, holds: true, sentence });
        };
        if source.account.received == 0 {
            if sample.time.since(began) >= NEVER_SENT {
                let connected = if source.is_connected() { "it is connected" } else { "no connection" };
                report(
                    ProblemKind::SourceNeverSent,
                    format!("{name} has sent nothing since the run began ({connected})"),
                );
            }
            return;
        }
        let silent = self.activity.silent_for(source.source).unwrap_or_default();
        let others = sample.sources.iter().filter(|other| other.source != source.source && !other.has_ended());
        let others_send = others.filter(|other| other.account.received > 0).any(|other| {
            self.activity.silent_for(other.source).is_some_and(|time| time < SILENT) || is_held_back(other, before)
        });
        if silent >= SILENT && others_send && !is_held_back(source, before) {
            let connected = if source.is_connected() { "" } else { ", no connection" };
            report(ProblemKind::SourceSilent, format!("{name}: no data for {:.1} s{connected}", silent.as_secs_f64()));
        }
    }

    fn note(&mut self, finding: Finding, sample: &Sample) {
        let Finding { kind, source, count, holds, sentence } = finding;
        let source = source.map(|source| source.0);
        let place = self.known.iter().position(|known| (known.problem.kind, known.problem.source) == (kind, source));
        let known = match place {
            Some(place) => &mut self.known[place],
            None => {
                let (since_ns, last_ns) = (sample.utc.0, sample.utc.0);
                let problem =
                    Problem { kind, source, count: 0, since_ns, last_ns, is_current: true, sentence: String::new() };
                self.known.push(Known { problem, last: sample.time, is_condition: holds });
                self.known.last_mut().expect("it was just added")
            }
        };
        if holds || count > known.problem.count {
            (known.last, known.problem.last_ns) = (sample.time, sample.utc.0);
        }
        (known.problem.count, known.problem.sentence) = (count, sentence);
    }

    fn conclude(&self, before: Option<&Sample>, sample: &Sample, rates: Option<&Rates>) -> Quality {
        let counted = |of: fn(&Sample) -> u64| {
            let total = of(sample);
            let seconds = rates.map(|rates| rates.seconds);
            let more = before.map_or(0, |before| total.saturating_sub(of(before)));
            EventCount { total, per_second: seconds.map_or(0.0, |seconds| more as f64 / seconds) }
        };
        let mut problems: Vec<_> = self.known.iter().map(|known| known.problem.clone()).collect();
        problems.sort_by_key(|problem| (!problem.is_current, problem.kind, core::cmp::Reverse(problem.count)));
        let complete = counted(|sample| sample.events.built);
        let worst = problems.iter().map(|problem| problem.kind.state()).max_by_key(|state| *state as u8);
        let state = worst.unwrap_or(if complete.total > 0 { QualityState::Good } else { QualityState::NoData });
        let sentence = match (problems.first(), state) {
            (Some(worst), _) => {
                let others = problems.iter().filter(|problem| problem.is_current == worst.is_current).count() - 1;
                let more = if others > 0 { format!(" (and {others} more)") } else { String::new() };
                let over = if worst.is_current { "" } else { "; not any more" };
                format!("{}{over}{more}", worst.sentence)
            }
            (None, QualityState::NoData) => "no events yet".to_owned(),
            (None, _) => format!("all {} events are complete", grouped(complete.total)),
        };
        Quality {
            state,
            is_current: problems.first().is_some_and(|problem| problem.is_current),
            sentence,
            complete,
            incomplete: counted(incomplete_events),
            doubtful: counted(|sample| sample.total(Counter::EventsDoubtful)),
            problems,
        }
    }
}

/// Events without a required source, kept or dropped.
pub(crate) fn incomplete_events(sample: &Sample) -> u64 {
    sample.events.incomplete_emitted + sample.events.incomplete_dropped.total()
}

/// Whether the source is not read, because buffers are full or others are waited for: then its silence is not its own.
fn is_held_back(source: &SourceSample, before: Option<&Sample>) -> bool {
    let Some(before) = before.and_then(|before| before.source(source.source)) else { return false };
    source.numbers.increase(&before.numbers, Counter::BackPressureTime) > 0
}

fn restart(source: &SourceSample, name: &str, sample: &Sample, found: &mut Vec<Finding>) {
    let dropped = source.account.dropped.get(Cause::OutOfSync);
    if let Some(event) = source.restarted_at {
        let incomplete = incomplete_events(sample);
        let events =
            if incomplete == 0 { String::new() } else { format!(": {} incomplete events", grouped(incomplete)) };
        found.push(Finding {
            kind: ProblemKind::SourceRestarted,
            source: Some(source.source),
            count: dropped,
            holds: false,
            sentence: format!("{name} restarted counting at event {event}{events}"),
        });
    }
}

/// Fragments of events that are kept, with flags.
fn doubts(source: &SourceSample, name: &str, found: &mut Vec<Finding>) {
    let count_of = |flag: &str| source.doubts.iter().find(|(name, _)| *name == flag).map_or(0, |(_, count)| *count);
    let mut report = |kind, count: u64, sentence: String| {
        if count > 0 {
            found.push(Finding { kind, source: Some(source.source), count, holds: false, sentence });
        }
    };
    let wrong_source = count_of("wrong_source") + source.account.dropped.get(Cause::WrongSource);
    report(
        ProblemKind::WrongSource,
        wrong_source,
        format!("{name}: {} name another source; check the cables", fragments(wrong_source)),
    );
    let crossing = count_of("bunch_crossing_mismatch");
    report(
        ProblemKind::BunchCrossingMismatch,
        crossing,
        format!("{name}: {} with another bunch crossing than the other sources", fragments(crossing)),
    );
    let checksums = count_of("crc_errors").max(source.numbers.get(Counter::CrcErrors));
    report(ProblemKind::ChecksumsWrong, checksums, format!("{name}: {} with a wrong checksum", fragments(checksums)));
    let faults = [
        ("malformed", "malformed"),
        ("length_mismatch", "of another length than stated"),
        ("status_error", "marked as faulty by the front end"),
        ("fragment_incomplete", "without some of their frames"),
    ];
    let named: Vec<_> = faults.into_iter().map(|(flag, what)| (count_of(flag), what)).filter(|(n, _)| *n > 0).collect();
    let total = named.iter().map(|(count, _)| count).sum();
    let named: Vec<_> = named.iter().map(|(count, what)| format!("{} {what}", grouped(*count))).collect();
    report(ProblemKind::FragmentsFaulty, total, format!("{name}: {} faulty: {}", fragments(total), named.join(", ")));
}

/// Fragments that are in no event.
fn losses(source: &SourceSample, name: &str, found: &mut Vec<Finding>) {
    let account = &source.account;
    let stale = account.stale.saturating_sub(source.numbers.get(Counter::FragmentsBeforeStart));
    let FragmentAccount { late, duplicate, corrupt, .. } = account;
    let mut named = vec![("late", *late), ("duplicate", *duplicate), ("corrupt", *corrupt), ("stale", stale)];
    named.extend(account.dropped.iter().filter(|(cause, _)| is_lost(*cause)).map(|(cause, n)| (cause.name(), n)));
    named.extend(source.lost_datagrams.iter().map(|(cause, count)| (cause.name(), count)));
    named.push(("frames_missing", source.numbers.get(Counter::FramesMissing)));
    named.retain(|(_, count)| *count > 0);
    let total: u64 = named.iter().map(|(_, count)| count).sum();
    if total > 0 {
        let named: Vec<_> =
            named.iter().map(|(cause, n)| format!("{} {}", grouped(*n), cause.replace('_', " "))).collect();
        found.push(Finding {
            kind: ProblemKind::FragmentsLost,
            source: Some(source.source),
            count: total,
            holds: false,
            sentence: format!("{name}: {} lost: {}", fragments(total), named.join(", ")),
        });
    }
}

/// Causes of dropped fragments that are problems of their own here, or none at all.
const fn is_lost(cause: Cause) -> bool {
    !matches!(cause, Cause::Masked | Cause::OutOfSync | Cause::WrongSource)
}

/// Required fragments that never came, without those of masked sources.
fn missing(account: &FragmentAccount) -> u64 {
    account.missing.total() - account.missing.get(Cause::Masked)
}

fn incomplete(sample: &Sample, found: &mut Vec<Finding>) {
    let count = incomplete_events(sample);
    if count == 0 {
        return;
    }
    let most = sample.sources.iter().max_by_key(|source| missing(&source.account));
    let most = most.filter(|source| missing(&source.account) > 0).map_or_else(String::new, |source| {
        let events = missing(&source.account);
        format!("; {} is missing in {}", sample.name_of(source.source), grouped(events))
    });
    let events = if count == 1 { "event" } else { "events" };
    found.push(Finding {
        kind: ProblemKind::EventsIncomplete,
        source: None,
        count,
        holds: false,
        sentence: format!("{} incomplete {events}{most}", grouped(count)),
    });
}

/// How the events of a source relate to those of the reference source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Relation {
    /// Events by which it is displaced: positive if its event n holds the data of a later trigger (early). None if there is
    /// no fixed relation any more.
    pub offset: Option<i16>,
    /// The first displaced event.
    pub since: EventKey,
}

/// Names the sources that disagree with most others; where two sources disagree and no third one can tell, both.
fn out_of_step(sample: &Sample, found: &mut Vec<Finding>) {
    for (source, sentence) in disagreements(&sample.synchrony, |source| sample.name_of(source)) {
        let kind = ProblemKind::SourceOutOfStep;
        found.push(Finding { kind, source: Some(source), count: 0, holds: true, sentence });
    }
}

/// The sources that are out of step, each with a sentence. `all` holds the reference source with offset 0.
pub fn disagreements(all: &[(SourceId, Relation)], name_of: impl Fn(SourceId) -> String) -> Vec<(SourceId, String)> {
    let mut found = Vec::new();
    for (source, relation) in all.iter().filter(|(_, relation)| relation.offset.is_none()) {
        let name = name_of(*source);
        let sentence = format!("{name} has no fixed relation to the other sources since event {}", relation.since);
        found.push((*source, sentence));
    }
    let placed = || all.iter().filter_map(|(source, relation)| Some((*source, relation.offset?, relation.since)));
    let at = |wanted: i16| placed().filter(move |(_, offset, _)| *offset == wanted);
    let most = placed().map(|(_, offset, _)| at(offset).count()).max().unwrap_or(0);
    let displaced = placed().filter(|(_, offset, _)| *offset != 0);
    let Some(first) = displaced.map(|(_, _, since)| since).min() else { return found };
    // Offsets that as many sources have as any other: of two sources both.
    let right: Vec<i16> = placed().map(|(_, offset, _)| offset).filter(|offset| at(*offset).count() == most).collect();
    let reference_is_right = right.contains(&0);
    let is_tie = right.iter().any(|offset| *offset != right[0]);
    let base = if reference_is_right { 0 } else { right[0] };
    for (source, offset, since) in placed().filter(|(_, offset, _)| *offset != base) {
        let (name, by) = (name_of(source), offset - base);
        let since = if offset == 0 { first } else { since };
        let other = at(base).find(|(other, ..)| *other != source).map(|(other, ..)| name_of(other));
        let sentence = match other.filter(|_| is_tie) {
            Some(other) => format!("{other} and {name} disagree by {} since event {since}", events(by)),
            None => format!("{name} is {} {} since event {since}", events(by), if by > 0 { "early" } else { "late" }),
        };
        found.push((source, sentence));
    }
    found
}

fn events(by: i16) -> String {
    let count = by.unsigned_abs();
    if count == 1 { "one event".to_owned() } else { format!("{count} events") }
}

fn fragments(count: u64) -> String {
    format!("{} {}", grouped(count), if count == 1 { "fragment" } else { "fragments" })
}

/// With commas between thousands.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
