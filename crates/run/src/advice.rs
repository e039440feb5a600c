//! Advice after a run. For each source with a problem: what happened since which event, the likely cause, and a
//! configuration key if the run's counts show that it would have helped.

use super::source_summary::{FragmentSummary, NumberingSummary, SynchronySummary, SynchronyVerdict};
use super::summary::RunSummary;
use ropewalk_config::quantity::Time;
use ropewalk_config::{ByteOrigin, Configuration, NumberType, SourceInput, SourceSection};
use ropewalk_flow::messages::NumberingKind;
use ropewalk_monitor::quality::{is_garbage, is_misfit, misfits};
use ropewalk_terms::{Cause, Counter, Requirement};

/// Returns one line for each source that has a problem, with its name and id; or one line for a run that did not begin.
pub fn advice(configuration: &Configuration, summary: &RunSummary) -> Vec<String> {
    if summary.run == 0 {
        return vec!["the run did not begin: start all nodes of the configuration".to_owned()];
    }
    let is_out = |state: &&SynchronySummary| matches!(state.verdict, SynchronyVerdict::Offset | SynchronyVerdict::Lost);
    // The verdict on a source may begin with the second event: in the first one its place was not known yet.
    let is_from_start = |state: &SynchronySummary| state.since.parse::<u64>().is_ok_and(|event| event <= 2);
    let left_over = |numbering: &NumberingSummary| numbering.kind == NumberingKind::LeftOver.name();
    let never_in_step = summary.synchrony.iter().filter(is_out).any(is_from_start)
        || summary.numbering.values().flatten().any(left_over);
    let what = if never_in_step { NEVER_IN_STEP } else { SLIPPED };
    let mut lines: Vec<_> = summary.out_of_step().into_iter().map(|sentence| format!("{sentence}: {what}")).collect();
    let exchanged = exchanged(summary);
    lines.extend((!exchanged.is_empty()).then(|| misfits(&exchanged)));
    lines.extend(have_all_restarted(summary).then(|| ALL_RESTARTED.to_owned()));
    for source in
        configuration.source.iter().filter(|source| !exchanged.contains(&summary.name_of(&source.id.to_string())))
    {
        let Some(account) = summary.by_source.get(&source.id.to_string()) else { continue };
        let numbering = summary.numbering.get(&source.id.to_string()).map_or(&[][..], Vec::as_slice);
        let others = || summary.by_source.iter().filter(|(id, _)| **id != source.id.to_string());
        let evidence = Evidence {
            received: account.received,
            duplicate: account.duplicate,
            repeated: account.counts.get(Counter::NumbersRepeated),
            fell: account.counts.get(Counter::NumbersFell),
            jumped: account.counts.get(Counter::NumbersJumped),
            events_of_others: others().map(|(_, other)| other.received - other.duplicate).max(),
            numbering,
            began_late: summary.began_late.get(&source.id.to_string()).map(|(_, sentence)| &**sentence),
            patience: configuration.timeouts.readout,
            beginner: others()
                .find(|(id, other)| other.received > 0 && !summary.numbering.contains_key(*id))
                .map(|(id, _)| summary.name_of(id)),
        };
        lines.extend(
            about(source, account, &evidence)
                .map(|what| format!("{}: {what}", summary.name_of(&source.id.to_string()))),
        );
    }
    lines
}

/// Advice for sources that are out of step.
const SLIPPED: &str = "a trigger was missed or counted twice; check the trigger cables, reset all boards and start a new run. The \
                       events before are good";

/// The same if they were out of step from the first event on.
const NEVER_IN_STEP: &str = "they were never in step: reset all boards before the run, or, if they begin to count at different \
                             numbers, set `first` in `event` of each";

/// Advice if all sources restarted.
const ALL_RESTARTED: &str = "all sources restarted counting, and no event was built since then: after a reset of all boards \
                             stop the run and start a new one";

/// Returns whether two or more sources sent data, and all of them restarted so that their fragments fit no event.
fn have_all_restarted(summary: &RunSummary) -> bool {
    let sending: Vec<_> = summary.by_source.iter().filter(|(_, account)| account.received > 0).collect();
    sending.len() > 1
        && sending
            .iter()
            .all(|(id, _)| summary.numbering.get(*id).is_some_and(|all| NumberingSummary::out_of_sync(all).is_some()))
}

/// Returns the names of sources that may be exchanged: nearly all fragments of two or more fail their checks.
fn exchanged(summary: &RunSummary) -> Vec<String> {
    let fails = |account: &FragmentSummary| {
        let failed = account.counts.get(Counter::CrcErrors) + account.dropped.get(Cause::NotMatched);
        let finds_none = account.received == account.dropped.total();
        is_misfit(account.received, failed) || finds_none && is_garbage(0, account.counts.get(Counter::GarbageBytes))
    };
    let sources = summary.by_source.iter().filter(|(_, account)| fails(account));
    let names: Vec<_> = sources.map(|(id, _)| summary.name_of(id)).collect();
    if names.len() > 1 { names } else { Vec::new() }
}

/// Evidence from a run about the event numbers of a source.
struct Evidence<'a> {
    received: u64,
    duplicate: u64,
    /// Fragments with the same number as the previous one.
    repeated: u64,
    /// Fragments with a lower number than the previous one.
    fell: u64,
    /// Fragments whose number skips at least one after the previous one.
    jumped: u64,
    /// The maximum number of event numbers that another source sent.
    events_of_others: Option<u64>,
    numbering: &'a [NumberingSummary],
    /// A sentence on its delay relative to the other sources, if it began late.
    began_late: Option<&'a str>,
    /// Time-out of events for this source.
    patience: Time,
    /// Another source whose numbers begin with the run's first one.
    beginner: Option<String>,
}

fn about(source: &SourceSection, account: &FragmentSummary, evidence: &Evidence<'_>) -> Option<String> {
    let received = account.received;
    if received == 0 {
        let is_missed = source.requirement == Requirement::Required;
        return is_missed.then(|| format!("no data in the whole run: {}", origin(source)));
    }
    if let Some(restart) = NumberingSummary::out_of_sync(evidence.numbering) {
        return Some(restarted(source, restart));
    }
    if account.late * 2 > received {
        return Some(evidence.came_late(account.late));
    }
    if evidence.duplicate * 3 >= received && source.gathering().is_none() && source.description().is_some() {
        return Some(format!("{} of {received} fragments are `duplicate`: {}", evidence.duplicate, evidence.repeats()));
    }
    let causes = account.dropped.iter().map(|(cause, count)| (cause.name(), count));
    let kinds = [("corrupt", account.corrupt), ("stale", account.stale)];
    if let Some(begun) = evidence.elsewhere(account) {
        return Some(evidence.begins_apart(source, begun));
    }
    let (cause, count) = causes.chain(kinds).max_by_key(|(_, count)| *count)?;
    if count <= received / 2 {
        return None;
    }
    let since = evidence.numbering.first().map_or_else(String::new, |first| format!(" since event {}", first.event));
    Some(format!("{count} of {received} fragments are `{cause}`{since}: {}", remedy(source, cause, evidence)?))
}

fn restarted(source: &SourceSection, NumberingSummary { event, from, to, .. }: &NumberingSummary) -> String {
    let key = if source.has_layout() && source.time.is_none() && !source.numbers_grow() {
        " A time stamp shows to which events such fragments belong: if the board sends one, add `time` to its layout"
    } else {
        ""
    };
    format!(
        "it restarted counting at event {event}: number {to} followed {from}, and its later fragments are in no event. Was \
         the board reset or switched off during the run?{key}"
    )
}

impl Evidence<'_> {
    /// Returns how its numbers begin, if they continue regularly and begin so far from the run's first one that none of
    /// its fragments is in an event.
    fn elsewhere(&self, account: &FragmentSummary) -> Option<&NumberingSummary> {
        let is_outside =
            account.stale * 2 > self.received && account.in_complete_events + account.in_incomplete_events == 0;
        let is_regular = (self.fell + self.repeated + self.jumped) * 10 <= self.received;
        let [begun] = self.numbering else { return None };
        (is_outside && is_regular && begun.is(NumberingKind::LeftOver) && begun.to > begun.from).then_some(begun)
    }

    /// Returns a sentence on fragments that arrived after their events were finished, with advice.
    fn came_late(&self, late: u64) -> String {
        let (received, patience) = (self.received, self.patience);
        match self.began_late {
            Some(began) => format!("{began}. Start it first, or raise `timeouts.readout` ({patience})"),
            None => format!(
                "{late} of {received} fragments are `late`: they came after the end of their events. Find what delays them, or \
                 raise `timeouts.readout` ({patience})"
            ),
        }
    }

    /// Returns a sentence on a first number that differs from the run's, with advice.
    fn begins_apart(&self, source: &SourceSection, begun: &NumberingSummary) -> String {
        let (first, came) = (begun.from, begun.to);
        let remedy = match (&source.input, source.given_first_event()) {
            (_, Some(_)) => "reset the board before the run, with all others, or delete \"first\"",
            (SourceInput::File(..), None) => "the recordings do not begin with the same event",
            (_, None) => "reset all boards before the run",
        };
        match &self.beginner {
            Some(other) if source.given_first_event().is_none() => {
                format!("its numbers begin with {came}, those of {other} with {first}: {remedy}")
            }
            _ => format!("its numbers begin with {came}, but the first event of the run is {first}: {remedy}"),
        }
    }

    /// Returns an explanation of repeated numbers. Frames of one event follow each other, and other sources send as
    /// many events.
    fn repeats(&self) -> String {
        let events = self.received - self.duplicate;
        let about = |wanted: u64| wanted.abs_diff(events) * 10 <= wanted;
        let is_in_a_row = self.repeated * 10 >= self.duplicate * 9;
        match self.events_of_others {
            _ if !is_in_a_row => "event numbers come again after others. Does the board, or the network, send events twice?".into(),
            Some(others) if about(others) => format!(
                "about {} frames in a row have one event number. If they are parts of the event, `gather = true` makes one \
                 fragment of them; if they are equal, the board sends each frame more than once",
                (self.received + events / 2) / events
            ),
            Some(others) if others > events => format!(
                "its numbers change once in {} frames, and other sources sent {others} events. Is there a counter that \
                 changes with each frame? Compare place, type and mask of `event` with the board's manual",
                self.received / events
            ),
            _ => "successive frames have one event number; `ropewalk source test` shows which fields change with each frame"
                .into(),
        }
    }

    /// Returns a description of the numbers of a source with a layout, if most of them do not fit into the run.
    fn misfit(&self, kind: Option<NumberType>) -> String {
        let first = self.numbering.first().map(|one| one.to);
        if let Some((kind, first)) = kind.zip(first).filter(|(kind, first)| is_reversed(*kind, *first)) {
            let other = if kind.is_big_endian { "le" } else { "be" };
            let begin = reversed(kind, first);
            let bits = 8 * u32::from(kind.bytes);
            return format!(
                "its numbers begin with {first}; in the other byte order with {begin}: `type = \"u{bits}{other}\"` in `event`"
            );
        }
        if self.fell * 20 > self.received {
            return "its numbers go up and down, so that they count no events: compare place, type and byte order of `event` \
                    with the board's manual"
                .into();
        }
        if self.repeated * 20 > self.received {
            return "its numbers jump and repeat: compare place, type and mask of `event`, and `first`, with the board's manual"
                .into();
        }
        "its numbers only grow, but not one by one. If they are times: `numbers = \"growing\"` in `event`. Otherwise compare \
         place and type of `event`, and `first`, with the board's manual"
            .into()
    }
}

/// Returns the number with its bytes in the other order.
const fn reversed(kind: NumberType, number: u64) -> u64 {
    number.swap_bytes() >> (64 - 8 * kind.bytes as u32)
}

/// Returns whether a number is large, and small in the other byte order.
fn is_reversed(kind: NumberType, number: u64) -> bool {
    let half = 1 << (4 * u32::from(kind.bytes));
    kind.bytes > 1 && number >= half && reversed(kind, number) < half
}

/// Returns where data are expected from, and what to compare.
fn origin(source: &SourceSection) -> String {
    let (key, place) = match &source.input {
        SourceInput::Listen(place) => ("listen", place),
        SourceInput::Connect(place) => ("connect", place),
        SourceInput::File(..) => {
            return "compare `input`, and `packets` or `demux`, with the content of the file".into();
        }
        _ => return "is the board on, and does it send to the right address?".into(),
    };
    let board = if source.demux.is_some() { "`is` of `demux` with the board's number, and " } else { "" };
    format!("compare {board}`{key}` ({place}) with the address the board sends to")
}

/// Returns the configuration keys that influence a cause.
fn remedy(source: &SourceSection, cause: &str, evidence: &Evidence<'_>) -> Option<String> {
    let text = match cause {
        "corrupt" | "implausible_jump" | "out_of_sync" | "stale" if source.numbers_grow() => return None,
        "corrupt" | "implausible_jump" | "out_of_sync" | "stale" if source.has_layout() => {
            evidence.misfit(source.event.as_ref().and_then(|event| event.kind))
        }
        "corrupt" | "implausible_jump" | "out_of_sync" | "stale" => {
            "its numbers do not fit those of the run: compare `first` with the number the board begins with".into()
        }
        "not_matched" => format!("they do not have the bytes of `match`; {}", trial(source)),
        "framing_lost" | "sync_lost" | "oversize" | "short_packet" | "malformed" => {
            let key = if source.has_layout() { "frame" } else { "format" };
            format!("frames are not where `{key}` says; {}", trial(source))
        }
        "truncated" => "they are longer than `max_fragment`".into(),
        "pieces_missing" => {
            "compare the keys of `frame.pieces`, and its `timeout`, with the packets of the board".into()
        }
        _ => return None,
    };
    Some(text)
}

fn trial(source: &SourceSection) -> String {
    let name = source.name_or_id();
    let recording = match source.file() {
        Some((ByteOrigin::File(path), _)) => path.display().to_string(),
        _ => "RECORDING".to_owned(),
    };
    format!("`ropewalk source test CONFIG --source {name} --input {recording}` shows the first bad place")
}
