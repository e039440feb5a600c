//! Data quality: how many events are complete, incomplete and doubtful, what is wrong with the data, and of which
//! source.
//!
//! ```text
//!  Sample, Sample ── QualityMonitor ──> Quality { state, sentence, events, problems }
//! ```
//!
//! [`bottleneck`](crate::bottleneck) explains the rate of a run; this module explains whether the data are good. A
//! problem stays in the list to the end of the run. It is *current* while its condition holds, or while its count
//! grows.

mod left_behind;
mod losses;
mod nodes;
#[cfg(test)]
mod tests;

pub(crate) use self::left_behind::left_behind;
pub(crate) use self::nodes::filters_given_up;
pub use self::nodes::{filter_problems, not_written};

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use ropewalk_terms::{Cause, Counter, EventKey, Instant, RunNumber, SourceId, Utc, counted, grouped};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::activity::SILENT;
use crate::numbering::{never_began, wrong_beginnings};
use crate::synchrony::disagreements;
use crate::{Activity, Rates, Sample, SourceSample};

/// A problem of the data, the worst first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// Nodes are not connected to the event manager.
    NodeMissing,
    /// Nodes are connected and do not report: they hang, or were stopped.
    NodeSilent,
    /// The first number of a source does not fit the run: its fragments, or the events before, are lost.
    WrongFirstNumber,
    /// A source began to count anew, and nothing shows to which events its fragments belong.
    SourceRestarted,
    /// The fragments of a source belong to other events than their numbers say.
    SourceOutOfStep,
    /// Fragments name another source than the connection they came over.
    WrongSource,
    /// The bunch crossing of a source is not that of most sources of the event.
    BunchCrossingMismatch,
    /// Filter units failed too often and are not restarted; without any, events go undecided to the error stream.
    FiltersGivenUp,
    /// A source was unmasked and sends, but its numbers do not continue those of the run.
    SourceStaysOut,
    /// A source has sent nothing since the run began.
    SourceNeverSent,
    /// A source stopped sending while others send.
    SourceSilent,
    /// The checksum of fragments is wrong.
    ChecksumsWrong,
    /// Fragments are malformed, cut short, or marked as faulty by their front end.
    FragmentsFaulty,
    /// Fragments are in no event: late, duplicate, without a usable number, or dropped.
    FragmentsLost,
    /// Events lack a required source.
    EventsIncomplete,
    /// Nothing is built although sources send or wait.
    DataAcquisitionDead,
    /// A filter fails on events, or its units crash, hang or give wrong results and are restarted.
    FilterFailing,
    /// A source began to count anew, and its fragments found their events again: nothing is lost.
    SourceRecovered,
}

impl ProblemKind {
    /// Every kind, the worst first.
    pub const ALL: [Self; 18] = [
        Self::NodeMissing,
        Self::NodeSilent,
        Self::WrongFirstNumber,
        Self::SourceRestarted,
        Self::SourceOutOfStep,
        Self::WrongSource,
        Self::BunchCrossingMismatch,
        Self::FiltersGivenUp,
        Self::SourceStaysOut,
        Self::SourceNeverSent,
        Self::SourceSilent,
        Self::ChecksumsWrong,
        Self::FragmentsFaulty,
        Self::FragmentsLost,
        Self::EventsIncomplete,
        Self::DataAcquisitionDead,
        Self::FilterFailing,
        Self::SourceRecovered,
    ];

    /// Its count grows with single events or fragments, and says nothing of now while it rests.
    const fn is_of_single_events(self) -> bool {
        matches!(
            self,
            Self::BunchCrossingMismatch
                | Self::ChecksumsWrong
                | Self::FragmentsFaulty
                | Self::FragmentsLost
                | Self::EventsIncomplete
        )
    }

    /// The quality of the events concerned: none if they are complete, as the undecided events of a filter are.
    const fn state(self) -> QualityState {
        match self {
            Self::NodeMissing
            | Self::NodeSilent
            | Self::DataAcquisitionDead
            | Self::FiltersGivenUp
            | Self::FilterFailing
            | Self::SourceRecovered => QualityState::NoData,
            Self::SourceOutOfStep
            | Self::WrongSource
            | Self::BunchCrossingMismatch
            | Self::ChecksumsWrong
            | Self::FragmentsFaulty => QualityState::Doubtful,
            Self::WrongFirstNumber
            | Self::SourceRestarted
            | Self::SourceStaysOut
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
    /// No event has been built, or none is built now because a unit is away or hangs, or for no known reason.
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
    /// Fragments or events concerned so far; 0 if nothing is counted.
    pub count: u64,
    /// When it was first seen, in nanoseconds since 1970 UTC.
    pub since_ns: i64,
    /// When it was last seen, in nanoseconds since 1970 UTC.
    pub last_ns: i64,
    /// Whether it is current: its condition holds, or its count grew in the last ten seconds.
    pub is_current: bool,
    /// What is wrong, in a sentence.
    pub sentence: String,
}

/// The quality of the data of a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Quality {
    /// The worst state of all problems of the run.
    pub state: QualityState,
    /// Whether the problem is current.
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
    /// The number of sources that have this problem now; 1 for a problem of the run.
    pub fn current(&self, kind: ProblemKind) -> usize {
        self.problems.iter().filter(|problem| problem.kind == kind && problem.is_current).count()
    }

    /// The worst current problem of a kind.
    pub fn worst(&self, kind: ProblemKind) -> Option<&Problem> {
        self.problems.iter().find(|problem| problem.kind == kind && problem.is_current)
    }
}

/// A count that has not grown for this long is not current.
const CURRENT: Duration = Duration::from_secs(10);
/// A source that has sent nothing this long after the first sample of a run is missing.
const NEVER_SENT: Duration = Duration::from_secs(5);

/// A run that builds nothing for this long although sources send or wait is dead.
const DEAD: Duration = Duration::from_secs(10);

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
    /// How many events had ended, and when the number was seen to change.
    ended: (u64, Instant),
    last: Option<Arc<Sample>>,
    known: Vec<Known>,
    /// The last restart of each source, and the events that lacked the source before.
    restarts: BTreeMap<SourceId, (EventKey, u64)>,
    /// Since when each source has sent that was unmasked and is not in events again.
    outside: BTreeMap<SourceId, Instant>,
    quality: Quality,
    /// The run that ended last, until the next one begins: its sentence names it.
    ended_run: Option<Quality>,
}

impl QualityMonitor {
    /// Looks at the next sample. A sample that was seen already changes nothing.
    pub fn observe(&mut self, sample: impl Into<Arc<Sample>>) {
        let sample = sample.into();
        let has_not_begun = matches!(sample.phase, "initial" | "configured");
        if self.run != sample.run {
            let ended_run = self.as_ended().filter(|_| has_not_begun);
            *self = Self { run: sample.run, ended_run, ..Self::default() };
        }
        if !has_not_begun {
            self.ended_run = None;
        }
        if self.last.as_ref().is_some_and(|last| last.time == sample.time) {
            return;
        }
        if sample.phase == "running" {
            self.began.get_or_insert(sample.time);
        }
        self.activity.observe(&sample);
        let ended = sample.events.built + sample.incomplete_events();
        if ended != self.ended.0 || sample.phase != "running" || self.last.is_none() {
            self.ended = (ended, sample.time);
        }
        let before = self.last.replace(Arc::clone(&sample));
        let rates = before.as_ref().and_then(|before| Rates::between(before, &sample));
        for finding in self.findings(before.as_deref(), &sample) {
            self.note(finding, &sample);
        }
        for known in &mut self.known {
            let age = sample.time.since(known.last);
            let goes_on = if known.is_condition { age.is_zero() } else { age < CURRENT };
            // What a disk did not take is dropped at the very end of a run.
            let is_of_nodes = known.problem.kind == ProblemKind::FragmentsLost && known.problem.source.is_none();
            known.problem.is_current = goes_on && (sample.phase != "ended" || is_of_nodes && age.is_zero());
        }
        self.quality = self.conclude(before.as_deref(), &sample, rates.as_ref());
        if let Some(ended) = self.ended_run.as_ref().filter(|_| !self.quality.is_current) {
            self.quality = ended.clone();
        }
    }

    /// The quality of this run as it stays when it has ended; none if there was no run.
    fn as_ended(&self) -> Option<Quality> {
        let Some(sample) = self.last.as_ref().filter(|_| self.began.is_some()) else { return self.ended_run.clone() };
        let mut quality = self.quality.clone();
        quality.problems.iter_mut().for_each(|problem| problem.is_current = false);
        quality.problems.sort_by_key(|problem| (problem.kind, core::cmp::Reverse(problem.count)));
        for count in [&mut quality.complete, &mut quality.incomplete, &mut quality.doubtful] {
            count.per_second = 0.0;
        }
        if quality.state == QualityState::NoData && quality.complete.total > 0 {
            quality.state = QualityState::Good;
        }
        let sentence = summed_up(&quality.problems, quality.state, quality.complete.total, sample);
        quality.sentence = format!("run {} has ended: {sentence}", self.run);
        quality.is_current = false;
        Some(quality)
    }

    /// The quality of the data as of the last sample.
    pub const fn quality(&self) -> &Quality {
        &self.quality
    }

    /// Whether [`QualityMonitor::quality`] is still that of the run before.
    pub const fn is_between_runs(&self) -> bool {
        self.ended_run.is_some()
    }

    fn findings(&mut self, before: Option<&Sample>, sample: &Sample) -> Vec<Finding> {
        let mut found = Vec::new();
        let beginnings = beginnings(before, sample, &mut found);
        let (all_restarted, is_not_written) = (self.all_restarted(sample), not_written(sample).is_some());
        for source in &sample.sources {
            let name = sample.name_of(source.source);
            self.restart(source, &name, (before, sample), all_restarted.as_deref(), &mut found);
            doubts(source, &name, &mut found);
            found.extend(losses::losses((before, sample), source, beginnings.contains(&source.source), is_not_written));
            self.stays_out(source, &name, (before, sample), &mut found);
            self.absence(source, &name, (before, sample), &mut found);
        }
        out_of_step(sample, &mut found);
        if let Some((count, sentence)) = not_written(sample) {
            found.push(Finding { kind: ProblemKind::FragmentsLost, source: None, count, holds: false, sentence });
        }
        found.extend(filter_problems(sample).into_iter().map(|(kind, count, sentence)| {
            let holds = kind == ProblemKind::FiltersGivenUp && sample.phase == "running";
            Finding { kind, source: None, count, holds, sentence }
        }));
        if let Some((sources, sentence)) = exchanged(sample) {
            let kind = ProblemKind::WrongSource;
            let found_of =
                |source| Finding { kind, source: Some(source), count: 0, holds: true, sentence: sentence.clone() };
            found.extend(sources.into_iter().map(found_of));
        }
        if let Some((source, count, sentence)) = before.and_then(|before| left_behind(before, sample)) {
            let kind = ProblemKind::SourceRestarted;
            found.push(Finding { kind, source: Some(source), count, holds: true, sentence });
        }
        incomplete(sample, &mut found);
        self.standstill(before, sample, &mut found);
        found
    }

    /// A source that restarted counting: its place was found again, or its fragments fit no event. `all`: all sources
    /// did.
    fn restart(
        &mut self,
        source: &SourceSample,
        name: &str,
        (before, sample): (Option<&Sample>, &Sample),
        all: Option<&str>,
        found: &mut Vec<Finding>,
    ) {
        let id = source.source;
        if let Some((count, sentence)) = source.numbering.recovery(name) {
            let kind = ProblemKind::SourceRecovered;
            found.push(Finding { kind, source: Some(id), count, holds: false, sentence });
        }
        let Some(event) = source.numbering.restarted_at else { return };
        let lacked = before.and_then(|before| before.source(id)).map_or(0, |before| before.account.never_came());
        let restart = self.restarts.entry(id).or_insert((event, lacked));
        if restart.0 != event {
            *restart = (event, lacked);
        }
        let incomplete = source.account.never_came().saturating_sub(restart.1).min(sample.incomplete_events());
        let events =
            if incomplete == 0 { String::new() } else { format!(": {}", counted(incomplete, "incomplete event")) };
        found.push(Finding {
            kind: ProblemKind::SourceRestarted,
            source: Some(id),
            count: source.account.dropped.get(Cause::OutOfSync),
            holds: false,
            sentence: all.map_or_else(|| format!("{name} restarted counting at event {event}{events}"), str::to_owned),
        });
    }

    /// A source that was unmasked and sends for seconds, and is in no event.
    fn stays_out(
        &mut self,
        source: &SourceSample,
        name: &str,
        (before, sample): (Option<&Sample>, &Sample),
        found: &mut Vec<Finding>,
    ) {
        let received = before.and_then(|before| before.source(source.source)).map_or(0, |was| was.account.received);
        if !source.is_asked_back() || sample.phase != "running" || source.account.received <= received {
            self.outside.remove(&source.source);
            return;
        }
        let since = *self.outside.entry(source.source).or_insert(sample.time);
        if sample.time.since(since) >= NEVER_SENT {
            let sentence = format!(
                "{name} was unmasked and sends, but its event numbers do not go on with those of the run: its fragments \
                 are in no event until a new run"
            );
            let (kind, source) = (ProblemKind::SourceStaysOut, Some(source.source));
            found.push(Finding { kind, source, count: 0, holds: true, sentence });
        }
    }

    /// Every source restarted counting, and no event has ended since: then none will.
    fn all_restarted(&self, sample: &Sample) -> Option<String> {
        let time = sample.time.since(self.ended.1);
        let stands = sample.phase == "running" && time >= SILENT && have_all_restarted(sample);
        let since = Utc(sample.utc.0 - i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
        stands.then(|| format!("no event is built since {} UTC: {RESTARTED}", since.time_of_day()))
    }

    /// Nodes that are away or hang, and a run that builds nothing although it should.
    fn standstill(&self, before: Option<&Sample>, sample: &Sample, found: &mut Vec<Finding>) {
        let mut report = |kind, sentence| found.push(Finding { kind, source: None, count: 0, holds: true, sentence });
        let silent = self.activity.presence().silent(sample);
        if let Some(silent) = &silent {
            report(ProblemKind::NodeSilent, silent.sentence.clone());
        }
        if sample.phase != "running" {
            return;
        }
        let missing = sample.missing_nodes();
        if let Some((.., sentence)) = &missing {
            report(ProblemKind::NodeMissing, sentence.clone());
        }
        let is_busy = |source: &SourceSample| {
            let was = before.and_then(|before| before.source(source.source)).map(SourceSample::came);
            was.is_some_and(|was| source.came() > was) || is_held_back(source, before)
        };
        let time = sample.time.since(self.ended.1);
        let is_away = missing.is_some() || silent.is_some();
        if time >= DEAD && (is_away || sample.sources.iter().any(is_busy)) {
            let (seconds, what) = (time.as_secs(), if self.ended.0 == 0 { "no event" } else { "no further event" });
            report(ProblemKind::DataAcquisitionDead, format!("{what} was built in {seconds} s"));
        }
    }

    /// A source that has never sent, or that stopped sending while others send.
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
        if self.activity.presence().is_quiet(source.readout, sample) {
            return;
        }
        if source.account.received == 0 {
            // An optional source may stay away.
            let is_expected = !sample.optional.contains(&source.source);
            if is_expected && sample.time.since(began) >= NEVER_SENT {
                report(ProblemKind::SourceNeverSent, never_sent(source, sample));
            }
            return;
        }
        let silent = self.activity.silent_itself_for(source);
        let others = sample.sources.iter().filter(|other| other.source != source.source && !other.has_ended());
        let others_send = others.filter(|other| other.account.received > 0).any(|other| {
            self.activity.silent_for(other.source).is_some_and(|time| time < SILENT) || is_held_back(other, before)
        });
        if silent >= SILENT && others_send && !is_held_back(source, before) {
            let connected = if source.sends_datagrams || source.is_connected() { "" } else { ", no connection" };
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
                let is_condition = holds && kind != ProblemKind::FragmentsLost;
                self.known.push(Known { problem, last: sample.time, is_condition });
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
        // A source that was silent while no event missed it has made no event worse, and no event needs an optional
        // one.
        let without_events = sample.incomplete_events() == 0;
        let is_needed = |source: u32| !sample.optional.contains(&SourceId(source));
        let is_harmless = |one: &&Problem| {
            let is_silence = matches!(one.kind, ProblemKind::SourceSilent | ProblemKind::SourceNeverSent);
            is_silence && (!one.is_current && without_events || !one.source.is_some_and(is_needed))
        };
        let states = problems.iter().filter(|one| !is_harmless(one)).map(|one| one.kind.state());
        let worst = states.max_by_key(|state| *state as u8);
        // A node that is away explains at once why nothing is built.
        let is_still = sample.time.since(self.ended.1) >= SILENT;
        let is_now = |kind| problems.iter().any(|one: &Problem| one.kind == kind && one.is_current);
        let is_away = is_still && (is_now(ProblemKind::NodeMissing) || is_now(ProblemKind::NodeSilent));
        let is_dead = is_away || is_now(ProblemKind::DataAcquisitionDead);
        let state = match worst.unwrap_or_default() {
            _ if is_away => QualityState::NoData,
            QualityState::NoData if complete.total > 0 && !is_dead => QualityState::Good,
            state => state,
        };
        let sentence = summed_up(&problems, state, complete.total, sample);
        Quality {
            state,
            is_current: problems.first().is_some_and(|problem| problem.is_current),
            sentence,
            complete,
            incomplete: counted(Sample::incomplete_events),
            doubtful: counted(|sample| sample.total(Counter::EventsDoubtful)),
            problems,
        }
    }
}

/// The worst problem and the number of others, or that all is well; then the masked sources.
fn summed_up(problems: &[Problem], state: QualityState, complete: u64, sample: &Sample) -> String {
    let masked = sample.masked_sources().map(|masked| format!("; {masked}"));
    worst_first(problems, state, complete, sample) + &masked.unwrap_or_default()
}

fn worst_first(problems: &[Problem], state: QualityState, complete: u64, sample: &Sample) -> String {
    let unchecked = || sample.step_not_checked().map_or_else(String::new, |sentence| format!("; {sentence}"));
    let complete = match state {
        QualityState::Good => format!("all {} events are complete{}", grouped(complete), unchecked()),
        _ if problems.is_empty() => "no events yet".to_owned(),
        _ => String::new(),
    };
    let Some(worst) = problems.first() else { return complete };
    // One sentence may be about several sources, and a place that was found again is no problem.
    let is_other =
        |problem: &&Problem| problem.sentence != worst.sentence && problem.kind != ProblemKind::SourceRecovered;
    let others = || problems[1..].iter().filter(|problem| problem.is_current == worst.is_current).filter(is_other);
    let mut sources: Vec<_> = others().filter_map(|problem| problem.source).collect();
    sources.sort_unstable();
    sources.dedup();
    let are_sources = others().all(|problem| problem.source.is_some() && problem.source != worst.source);
    let more = match (others().count(), sources.len()) {
        (0, _) => String::new(),
        (_, 1) if are_sources => " (and 1 more source)".to_owned(),
        (_, sources) if are_sources => format!(" (and {sources} more sources)"),
        (1, _) => " (and 1 more problem)".to_owned(),
        (others, _) => format!(" (and {others} more problems)"),
    };
    let behind = if complete.is_empty() { String::new() } else { format!("{complete}; ") };
    if worst.is_current {
        let seconds = sample.utc.0.saturating_sub(worst.last_ns) / 1_000_000_000;
        let rests = worst.kind.is_of_single_events() && seconds >= SILENT.as_secs() as i64;
        let rests = if rests { format!(" (none for {seconds} s)") } else { String::new() };
        return format!("{behind}{}{rests}{more}", worst.sentence);
    }
    let [begin, end] = [worst.since_ns, worst.last_ns].map(|time| Utc(time).time_of_day());
    format!("{behind}earlier ({begin} to {end} UTC): {}{more}", worst.sentence)
}

/// Whether the source is not read because buffers are full or others are awaited: then it is not the cause of its
/// silence.
fn is_held_back(source: &SourceSample, before: Option<&Sample>) -> bool {
    let Some(before) = before.and_then(|before| before.source(source.source)) else { return false };
    source.numbers.increase(&before.numbers, Counter::BackPressureTime) > 0
}

/// Sources with a first number that does not fit, as this sample and the one before say; the sources are returned.
fn beginnings(before: Option<&Sample>, sample: &Sample, found: &mut Vec<Finding>) -> Vec<SourceId> {
    let of = |sample: &Sample| wrong_beginnings(&sample.numbered(), |source| sample.name_of(source));
    let known = before.map(of).unwrap_or_default();
    let mut sources = Vec::new();
    for (source, count, sentence) in of(sample) {
        sources.push(source);
        // Left-overs of an earlier run may come in front of the first event.
        if known.iter().any(|(other, ..)| *other == source) {
            let kind = ProblemKind::WrongFirstNumber;
            found.push(Finding { kind, source: Some(source), count, holds: false, sentence });
        }
    }
    sources
}

/// What to say if all sources restarted counting, and what to do.
pub(crate) const RESTARTED: &str = "all sources restarted counting: stop this run and start a new one";

/// Whether every source that sends restarted counting so that its fragments fit no event.
pub(crate) fn have_all_restarted(sample: &Sample) -> bool {
    let mut sending = sample.sources.iter().filter(|source| source.account.received > 0 && !source.has_ended());
    let is_out = |source: &SourceSample| source.numbering.restarted_at.is_some();
    sending.next().is_some_and(is_out) && sending.all(is_out)
}

/// Whether nearly all fragments of a source fail their checksum or `match`.
pub const fn is_misfit(received: u64, failed: u64) -> bool {
    failed >= SOME && failed * 10 >= received * 9
}

/// Fewer fragments than these say nothing about a source.
const SOME: u64 = 16;

/// Whether nearly all bytes of a source are in no frame.
pub const fn is_garbage(payload_bytes: u64, garbage_bytes: u64) -> bool {
    garbage_bytes >= SOME_BYTES && garbage_bytes / 9 >= payload_bytes
}

/// Fewer bytes than these say nothing about a source.
const SOME_BYTES: u64 = 4096;

/// Two or more sources of which nearly all fragments have failed their checks since the run began, and a sentence.
pub(crate) fn exchanged(sample: &Sample) -> Option<(Vec<SourceId>, String)> {
    let fails = |source: &&SourceSample| {
        let failed = wrong_checksums(source) + source.account.dropped.get(Cause::NotMatched);
        let bytes = |counter| source.numbers.get(counter);
        is_misfit(source.account.received, failed)
            || is_garbage(bytes(Counter::PayloadBytesReceived), bytes(Counter::GarbageBytes))
    };
    let sources: Vec<_> = sample.sources.iter().filter(fails).map(|source| source.source).collect();
    let names: Vec<_> = sources.iter().map(|source| sample.name_of(*source)).collect();
    (sources.len() > 1).then(|| (sources, misfits(&names)))
}

/// `nearly all fragments of board-1 and board-2 fail their checksum or "match": are the ports or cables exchanged?`
pub fn misfits(names: &[String]) -> String {
    let named = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(" and ");
    let more = names.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {}", counted(more as u64, "more source")) } else { String::new() };
    format!("nearly all fragments of {named}{more} fail their checksum or `match`: are the ports or cables exchanged?")
}

fn wrong_checksums(source: &SourceSample) -> u64 {
    let flagged = source.doubts.iter().find(|(name, _)| *name == "crc_errors").map_or(0, |(_, count)| *count);
    flagged.max(source.numbers.get(Counter::CrcErrors))
}

/// The sentence on a source that has sent nothing.
pub(crate) fn never_sent(source: &SourceSample, sample: &Sample) -> String {
    let name = sample.name_of(source.source);
    let is_connected = source.is_connected() || sample.may_be_connected(source);
    let connected = match (source.sends_datagrams, is_connected) {
        (true, _) => "nothing arrived at its port",
        (false, true) => "it is connected",
        (false, false) => "no connection",
    };
    format!("{name} has sent nothing since the run began ({connected})")
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
    let checksums = wrong_checksums(source);
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

/// Sources that a sentence names at most.
const NAMED: usize = 3;

fn incomplete(sample: &Sample, found: &mut Vec<Finding>) {
    let count = sample.incomplete_events() - not_written(sample).map_or(0, |(count, _)| count);
    if count == 0 {
        return;
    }
    let common = never_began(&sample.numbered());
    // Readout units report a source as missing before the event manager receives the end of the event.
    let missed = |source: &SourceSample| source.account.never_came().saturating_sub(common).min(count);
    let of = |source: &SourceSample| (missed(source), sample.name_of(source.source));
    let mut sources: Vec<_> = sample.sources.iter().map(of).filter(|(events, _)| *events > 0).collect();
    sources.sort_by_key(|(events, _)| core::cmp::Reverse(*events));
    let named = sources.iter().take(NAMED).enumerate();
    let named = named.map(|(place, (events, name))| match place {
        // Nodes report at different moments: the count of a single source would differ from that of all events.
        0 if sources.len() == 1 => format!(": {name} is missing"),
        0 => format!(": {name} is missing in {}", grouped(*events)),
        _ => format!(", {name} in {}", grouped(*events)),
    });
    let mut named: String = named.collect();
    match sources.len().saturating_sub(NAMED) {
        0 => {}
        1 => named.push_str(", and 1 more source"),
        more => named.push_str(&format!(", and {more} more sources")),
    }
    let all = counted(count, "incomplete event");
    found.push(Finding {
        kind: ProblemKind::EventsIncomplete,
        source: None,
        count,
        holds: false,
        sentence: all + &named,
    });
}

/// Names the sources that disagree with most others; if no third source can tell which of two is wrong, both.
fn out_of_step(sample: &Sample, found: &mut Vec<Finding>) {
    for (source, sentence) in disagreements(&sample.synchrony, |source| sample.name_of(source)) {
        let kind = ProblemKind::SourceOutOfStep;
        found.push(Finding { kind, source: Some(source), count: 0, holds: true, sentence });
    }
}

fn fragments(count: u64) -> String {
    counted(count, "fragment")
}

fn datagrams(count: u64) -> String {
    counted(count, "datagram")
}

/// `90 s`, `10 min`.
pub fn lasting(seconds: u64) -> String {
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}
