//! Who reads the files and knows what must be in them.

use super::super::broken::{Broken, Checker};
use super::assigner::{SOURCES, payload};
use super::scenario::{Mishap, Scenario};
use ropewalk_flow::builder::Builder;
use ropewalk_flow::filter::ERROR_STREAM;
use ropewalk_io::disk::SimulatedStorage;
use ropewalk_node::drive::EventOutput;
use ropewalk_terms::{Cause, Ending, Outcome, SourceId, TriggerBits, Verdict};
use ropewalk_wire::filter_result::FilterResult;
use ropewalk_wire::run_file::{EventView, Item, Items, RecordKind, SegmentName};
use std::collections::BTreeMap;

/// By stream, the events in its files, in their order.
type Found = BTreeMap<String, Vec<u64>>;

/// What must hold in the end.
pub(super) fn judge(
    scenario: &Scenario,
    ended: &BTreeMap<u64, Ending>,
    medium: &SimulatedStorage,
    builder: &Builder,
    output: &EventOutput,
    lost_connections: usize,
) -> Result<(), Broken> {
    for (&event, ending) in ended {
        verdict_is_right(scenario, event, *ending)?;
    }
    let aside = ended.values().filter(|ending| ending.verdict == Verdict::Quarantined).count();
    let blamed = scenario.mishaps.len() + scenario.deaths.len() + lost_connections;
    Broken::unless(scenario.restarts <= 100 || scenario.drain.is_some() || aside <= blamed, Checker::Loss, || {
        format!("{aside} events are set aside, over which {blamed} things went wrong")
    })?;
    let found = found(scenario, medium)?;
    let all = |of: &dyn Fn(u64, Verdict) -> bool| -> Vec<u64> {
        let events = ended.iter().filter(|(event, ending)| of(**event, ending.verdict));
        events.map(|(event, _)| *event).collect()
    };
    let passed = |event, trigger| scenario.decision(event).triggers.meets(TriggerBits::of(trigger));
    let is_kept = |event, verdict| verdict != Verdict::Quarantined && scenario.decision(event).accept;
    let first = all(&|event, verdict| is_kept(event, verdict) && passed(event, 0));
    let second = all(&|event, verdict| is_kept(event, verdict) && passed(event, 1));
    let error = all(&|_, verdict| verdict == Verdict::Quarantined);
    holds(&found, "first", &first, scenario.ordered)?;
    holds(&found, ERROR_STREAM, &error, false)?;
    let kept = found.get("second").map_or(0, Vec::len);
    let expected = second.len().div_ceil(scenario.prescale as usize);
    Broken::unless(kept == expected, Checker::Loss, || {
        format!("{kept} events are in the second stream, one of {} of {}", scenario.prescale, second.len())
    })?;
    let accounts = output.filtering().accounts();
    for ((name, selected), account) in
        [("first", first.len()), ("second", second.len()), (ERROR_STREAM, error.len())].into_iter().zip(accounts)
    {
        let written = found.get(name).map_or(0, Vec::len) as u64;
        let is_right = account.selected == selected as u64
            && account.written == written
            && account.selected == account.accounted()
            && account.in_flight == 0;
        Broken::unless(is_right, Checker::Ledger, || format!("stream {name}: {account:?}, {written} in its files"))?;
    }
    let account = builder.account();
    Broken::unless(account.assigned == account.accounted() && account.in_flight == 0, Checker::Ledger, || {
        format!("{account:?}")
    })
}

/// An event ended as its number and its mishap say.
fn verdict_is_right(scenario: &Scenario, event: u64, ending: Ending) -> Result<(), Broken> {
    let is_aside = ending.verdict == Verdict::Quarantined;
    let must_be = scenario.is_set_aside(event);
    let is_undecided = scenario.mishaps.get(&event) == Some(&Mishap::Undecided);
    let aside_is_right = if scenario.is_exact() { is_aside == must_be } else { is_aside || !is_undecided };
    Broken::unless(aside_is_right, Checker::Loss, || format!("event {event} ended as {ending:?}"))?;
    let expected = scenario.verdict(event);
    // A prescale may leave out what only the second stream takes.
    let is_left_out = ending.verdict == Verdict::Unselected && expected == Verdict::Accepted;
    let only_second = scenario.decision(event).triggers == TriggerBits::of(1);
    let is_right = is_aside || ending.verdict == expected || is_left_out && only_second;
    Broken::unless(is_right && ending.outcome == Outcome::Complete, Checker::Loss, || {
        format!("event {event} ended as {ending:?}, and {expected:?} was due")
    })
}

fn holds(found: &Found, stream: &str, expected: &[u64], ordered: bool) -> Result<(), Broken> {
    let mut events = found.get(stream).cloned().unwrap_or_default();
    Broken::unless(!ordered || events.is_sorted(), Checker::Order, || format!("stream {stream} is not in order"))?;
    events.sort_unstable();
    Broken::unless(events == expected, Checker::Keys, || format!("stream {stream} has {events:?} and not {expected:?}"))
}

/// The events in the files, each of which is what it must be.
fn found(scenario: &Scenario, medium: &SimulatedStorage) -> Result<Found, Broken> {
    let mut found = Found::new();
    let mut paths = medium.paths();
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<SegmentName>().ok());
        let (Some(name), Ok(bytes)) = (name, medium.read(&path)) else {
            return Err(Broken::new(Checker::Content, format!("{} is no closed segment", path.display())));
        };
        for item in Items::new(&bytes) {
            let Item::Record { record, .. } = item else { continue };
            if record.kind() != RecordKind::EVENT {
                continue;
            }
            let event = EventView::parse(&record).map_err(|error| Broken::new(Checker::Content, error.to_string()))?;
            content_is_right(scenario, &event)?;
            found.entry(name.stream.to_string()).or_default().push(event.key().number());
        }
    }
    Ok(found)
}

fn content_is_right(scenario: &Scenario, event: &EventView<'_>) -> Result<(), Broken> {
    let number = event.key().number();
    let fragments: Vec<(SourceId, &[u8])> = event.fragments().map(|one| (one.entry.source, one.payload)).collect();
    let [one, other, (SourceId::FILTER, said)] = fragments[..] else {
        return Err(Broken::new(Checker::Content, format!("event {number} has {} fragments", fragments.len())));
    };
    let is_whole = [one, other]
        == SOURCES.map(|source| (source, payload(source, number))).each_ref().map(|(id, bytes)| (*id, &bytes[..]));
    let (said, own) = FilterResult::decode(said).map_err(|error| Broken::new(Checker::Content, error.to_string()))?;
    let is_right = match said.verdict {
        Verdict::Quarantined => said.cause == Some(Cause::FilterFailed) && own.is_empty(),
        _ => said.triggers == scenario.decision(number).triggers && own == scenario.result(number),
    };
    Broken::unless(is_whole && is_right, Checker::Content, || {
        format!("event {number}: {said:?} and {} bytes", own.len())
    })
}
