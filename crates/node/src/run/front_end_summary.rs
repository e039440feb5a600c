//! What a run says of its front ends under run control: the part `front_ends` of its account.

use super::fragment_summary::causes;
use super::ledger_summary::UnbalancedSummary;
use crate::drive::{FrontEndState, FrontEndsAccount, RunSnapshot};
use ropewalk_terms::{Cause, FragmentAccount, Instant, SourceId};
use ropewalk_wire::front_end::{Named, Stage};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Front ends under run control, in one run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FrontEndsSummary {
    /// The number of the first event.
    pub first: u64,
    /// That of the last one, where the trigger source or whoever stopped the run said it.
    pub last: Option<u64>,
    /// Triggers, if the trigger source reports them: issued = accepted + vetoed.
    pub trigger: Option<TriggerSummary>,
    /// Each front end, by source id.
    pub by_source: BTreeMap<String, FrontEndSummary>,
    /// What went wrong with them, in the order in which it did.
    pub incidents: Vec<IncidentSummary>,
    /// Incidents for which there was no room in the list.
    pub incidents_beyond: u64,
    /// The equations that do not hold, in the form of the ledger's.
    #[serde(skip)]
    pub(super) unbalanced: Vec<UnbalancedSummary>,
}

/// A front end under run control: expected = in_events + missing.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct FrontEndSummary {
    /// Whether its control connection is open.
    pub connected: bool,
    /// Its own counters, as last reported.
    pub counters: BTreeMap<String, u64>,
    /// Accepted triggers, if every event needs this front end; null otherwise.
    pub expected: Option<u64>,
    /// The first event that it sent; null if none, or not reported.
    pub first: Option<u64>,
    /// Its fragments in events of the run.
    pub in_events: u64,
    /// The last event that it sent; null if none, or not reported.
    pub last: Option<u64>,
    /// The run gave it up.
    pub left_behind: bool,
    /// Events without its fragment, by cause.
    pub missing: BTreeMap<&'static str, u64>,
    /// The name that it reports.
    pub name: String,
    /// Slow readings that were taken.
    pub readings: u64,
    /// Slow readings dropped for their rate or for lack of room.
    pub readings_refused: u64,
    /// Fragments sent, as last reported.
    pub sent: u64,
    /// The SHA-256 of the settings with which it became ready, in hexadecimal digits; null if it did not, or has none.
    pub settings_sha256: Option<String>,
    /// Its last state.
    #[schemars(extend("enum" = stages()))]
    pub stage: &'static str,
    /// Its last message.
    pub text: String,
    /// The versions of firmware and library that it reports.
    pub versions: String,
    /// Seconds of back-pressure.
    #[schemars(range(min = 0))]
    pub waited_s: f64,
}

/// The trigger source's account: issued = accepted + vetoed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TriggerSummary {
    /// The trigger source's id.
    pub source: u32,
    /// Triggers that there were.
    pub issued: u64,
    /// Those that made an event: from the first to the last, as the numbers of these say.
    pub accepted: u64,
    /// Vetoed triggers, by the trigger source's own causes.
    pub vetoed: BTreeMap<String, u64>,
    /// Accepted triggers without any fragment at the end of the run: the fragments were lost with a readout unit.
    /// `missing` of the sources contains them, too.
    pub without_event: u64,
}

/// Something that went wrong with a front end.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct IncidentSummary {
    /// The source's id.
    pub source: u32,
    /// When, in seconds from the run's start.
    #[schemars(range(min = 0))]
    pub at_s: f64,
    /// What happened.
    pub what: String,
}

/// The states of a front end.
fn stages() -> Vec<&'static str> {
    (0..).map_while(Stage::from_u8).map(Stage::name).collect()
}

fn numbers(list: &[Named]) -> BTreeMap<String, u64> {
    list.iter().map(|number| (number.name.clone(), number.count)).collect()
}

/// Fragments of a source that were in the run's events, as the readout units counted them.
fn in_events(account: &FragmentAccount) -> u64 {
    account.expected() - account.missing.total()
}

impl FrontEndSummary {
    /// `expected` is the number of accepted triggers, for a front end that every event needs; `settings` the digest of
    /// its settings.
    fn new(state: &FrontEndState, account: &FragmentAccount, expected: Option<u64>, settings: Option<&String>) -> Self {
        let stopped = state.stopped.as_ref();
        Self {
            connected: state.is_connected,
            counters: numbers(&state.status.counters),
            expected,
            first: stopped.and_then(|stopped| stopped.first),
            in_events: in_events(account),
            last: stopped.and_then(|stopped| stopped.last),
            left_behind: state.is_left_behind,
            missing: causes(&account.missing),
            name: state.name.clone(),
            readings: state.readings,
            readings_refused: state.readings_refused,
            sent: stopped.map_or(state.status.sent, |stopped| stopped.sent),
            settings_sha256: settings.filter(|_| state.was_ready).cloned(),
            stage: state.stage.name(),
            text: state.status.text.clone(),
            versions: state.versions.clone(),
            waited_s: state.status.waited_ns as f64 * 1e-9,
        }
    }
}

impl FrontEndsSummary {
    /// The part of an account, of a run that was started then. `snapshot` has what the readout units counted, `settings` the digests of what
    /// front ends are configured with.
    pub(super) fn new(
        account: &FrontEndsAccount,
        snapshot: &RunSnapshot,
        started: Instant,
        settings: &BTreeMap<SourceId, String>,
    ) -> Self {
        let trigger = account.front_ends.iter().find_map(|state| {
            let vetoed = state.vetoed.as_ref().filter(|_| state.is_trigger)?;
            let up_to = |last: u64| (last + 1).saturating_sub(account.first);
            // What it issued behind the run's last event is none of the run's.
            let wanted = up_to(account.last.map_or(vetoed.last, |last| last.min(vetoed.last)));
            let assigned = snapshot.ledger.events.assigned;
            Some(TriggerSummary {
                source: state.source.0,
                issued: vetoed.issued,
                accepted: up_to(vetoed.last),
                vetoed: numbers(&vetoed.vetoed),
                without_event: if snapshot.phase.is_final() { wanted.saturating_sub(assigned) } else { 0 },
            })
        });
        let incident = |incident: &ropewalk_flow::control::front_ends::Incident| IncidentSummary {
            source: incident.source.0,
            at_s: incident.at.since(started).as_secs_f64(),
            what: incident.kind.to_string(),
        };
        let mut unbalanced = trigger.as_ref().and_then(TriggerSummary::unbalanced).into_iter().collect::<Vec<_>>();
        let mut by_source = BTreeMap::new();
        for one in &account.front_ends {
            let received = snapshot.sources.get(&one.source).copied().unwrap_or_default();
            let expected = trigger.as_ref().map(|trigger| trigger.accepted).filter(|_| one.is_required);
            unbalanced.extend(expected.and_then(|expected| unexpected(one, &received, expected, snapshot)));
            let summary = FrontEndSummary::new(one, &received, expected, settings.get(&one.source));
            by_source.insert(one.source.to_string(), summary);
        }
        Self {
            first: account.first,
            last: account.last,
            trigger,
            by_source,
            incidents: account.incidents.iter().map(incident).collect(),
            incidents_beyond: account.incidents_beyond,
            unbalanced,
        }
    }

    /// Accepted triggers that became no event.
    pub(super) fn without_event(&self) -> u64 {
        self.trigger.as_ref().map_or(0, |trigger| trigger.without_event)
    }
}

/// The equation `expected = in events + missing` of a source, where it does not hold. It is for runs that came to their end in
/// order, whose every accepted trigger became known to the event manager: what nobody has shown, nobody can miss.
fn unexpected(
    state: &FrontEndState,
    account: &FragmentAccount,
    expected: u64,
    snapshot: &RunSnapshot,
) -> Option<UnbalancedSummary> {
    let is_whole = snapshot.phase.is_final()
        && snapshot.ledger.events.assigned == expected
        && [Cause::ForcedStop, Cause::OutcomeUnknown, Cause::ReadoutLost].map(|cause| account.dropped.get(cause))
            == [0; 3];
    let right = account.expected();
    let equation = format!("expected of source {}", state.source);
    (is_whole && right != expected).then(|| UnbalancedSummary::sides(equation, expected, right))
}

impl TriggerSummary {
    /// The equation `issued = accepted + vetoed`, where it does not hold.
    fn unbalanced(&self) -> Option<UnbalancedSummary> {
        let right = self.accepted + self.vetoed.values().sum::<u64>();
        (self.issued != right).then(|| UnbalancedSummary::sides("triggers", self.issued, right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_terms::RunNumber;
    use ropewalk_wire::front_end::{Status, Vetoed};

    fn account(issued: u64) -> FrontEndsAccount {
        let vetoed = vec![Named { name: "busy".to_owned(), count: 3 }];
        let trigger = FrontEndState {
            source: SourceId(7),
            is_trigger: true,
            is_required: true,
            is_connected: true,
            is_left_behind: false,
            name: "trigger".to_owned(),
            versions: String::new(),
            was_ready: true,
            stage: Stage::Stopped,
            status: Status::default(),
            vetoed: Some(Vetoed { run: RunNumber(1), last: 100, issued, vetoed }),
            held: None,
            stopped: None,
            readings: 0,
            readings_refused: 0,
        };
        FrontEndsAccount { first: 1, last: Some(100), front_ends: vec![trigger], ..FrontEndsAccount::default() }
    }

    /// A run of a hundred events that has ended; the source sent so many of them.
    fn snapshot(sent: u64, missing: u64) -> RunSnapshot {
        let mut snapshot = RunSnapshot { phase: ropewalk_flow::control::RunPhase::Ended, ..RunSnapshot::default() };
        snapshot.ledger.events.assigned = 100;
        let mut account = FragmentAccount { received: sent, in_complete_events: sent, ..FragmentAccount::default() };
        account.missing.add(Cause::Skipped, missing);
        snapshot.sources.insert(SourceId(7), account);
        snapshot
    }

    #[test]
    fn what_the_trigger_issued_was_accepted_or_vetoed() {
        let good = FrontEndsSummary::new(&account(103), &snapshot(100, 0), Instant::ZERO, &BTreeMap::new());
        assert_eq!(good.trigger.as_ref().map(|trigger| (trigger.issued, trigger.accepted)), Some((103, 100)));
        assert!(good.unbalanced.is_empty());
        let bad = FrontEndsSummary::new(&account(104), &snapshot(100, 0), Instant::ZERO, &BTreeMap::new()).unbalanced;
        assert_eq!(bad, [UnbalancedSummary::sides("triggers", 104, 103)]);
    }

    #[test]
    fn a_trigger_that_never_came_to_an_event_accepted_none() {
        let mut account = account(3);
        account.front_ends[0].vetoed.as_mut().expect("it told").last = 0;
        let summary = FrontEndsSummary::new(&account, &RunSnapshot::default(), Instant::ZERO, &BTreeMap::new());
        assert_eq!(summary.trigger.as_ref().map(|trigger| trigger.accepted), Some(0));
        assert!(summary.unbalanced.is_empty());
    }

    #[test]
    fn every_event_that_the_trigger_issued_has_a_fragment_or_lacks_it_for_a_cause() {
        let unbalanced = |sent, missing| {
            FrontEndsSummary::new(&account(103), &snapshot(sent, missing), Instant::ZERO, &BTreeMap::new()).unbalanced
        };
        assert_eq!(unbalanced(97, 3), []);
        assert_eq!(unbalanced(97, 2), [UnbalancedSummary::sides("expected of source 7", 100, 99)]);
        // Events that nobody saw were nobody's to miss.
        let mut unseen = snapshot(97, 2);
        unseen.ledger.events.assigned = 99;
        assert!(FrontEndsSummary::new(&account(103), &unseen, Instant::ZERO, &BTreeMap::new()).unbalanced.is_empty());
    }

    #[test]
    fn a_trigger_that_became_no_event_is_lost_once_the_run_has_ended() {
        let summary = |snapshot: &_| FrontEndsSummary::new(&account(103), snapshot, Instant::ZERO, &BTreeMap::new());
        assert_eq!(summary(&snapshot(100, 0)).without_event(), 0);
        let mut unseen = snapshot(98, 2);
        unseen.ledger.events.assigned = 98;
        assert_eq!(summary(&unseen).without_event(), 2);
        // While the run goes on they may be on their way.
        unseen.phase = ropewalk_flow::control::RunPhase::Running;
        assert_eq!(summary(&unseen).without_event(), 0);
    }

    #[test]
    fn the_settings_of_a_front_end_are_told_where_it_said_that_it_has_them() {
        let settings = BTreeMap::from([(SourceId(7), "5e77".to_owned())]);
        let mut account = account(103);
        let told = |account: &_| {
            let summary = FrontEndsSummary::new(account, &snapshot(100, 0), Instant::ZERO, &settings);
            summary.by_source["7"].settings_sha256.clone()
        };
        assert_eq!(told(&account).as_deref(), Some("5e77"));
        account.front_ends[0].was_ready = false;
        assert_eq!(told(&account), None);
    }
}
