//! What went wrong between two samples, as their counters tell it.

use super::{Incidents, Occurrence};
use crate::{NodeSample, Sample, SourceSample};
use core::fmt::Display;
use ropewalk_terms::{ByCause, COUNTERS, Counter, EventAccount, FragmentAccount, Place, Utc};
use std::sync::Arc;

/// Counters of which each increase is an incident.
pub(super) fn incident_counters() -> impl Iterator<Item = Counter> {
    COUNTERS.iter().copied().filter(|counter| counter.places().contains(&Place::Incident))
}

/// Looks at samples one after the other, and notes what went wrong between them. Keeps the last one.
#[derive(Clone, Debug, Default)]
pub struct IncidentObserver {
    last: Option<Arc<Sample>>,
}

impl IncidentObserver {
    /// Looks at the next sample. Of a run that it sees for the first time everything counts.
    pub fn observe(&mut self, sample: impl Into<Arc<Sample>>, incidents: &mut Incidents) {
        let sample = sample.into();
        let before = self.last.take().filter(|before| before.run == sample.run).unwrap_or_default();
        let mut notes = Notes { incidents, utc: sample.utc };
        for source in &sample.sources {
            of_source(before.source(source.source), source, &sample, &mut notes);
        }
        for node in &sample.nodes {
            of_node(before.node(node.node), node, &sample, &mut notes);
        }
        of_events(&before.events, &sample.events, &mut notes);
        notes.causes(&before.lost_datagrams, &sample.lost_datagrams, &"a port of several sources", "datagrams lost");
        self.last = Some(sample);
    }
}

/// Where it is noted, and when.
struct Notes<'a> {
    incidents: &'a mut Incidents,
    utc: Utc,
}

impl Notes<'_> {
    /// Something came so many times more, if it did.
    fn more(&mut self, cause: &'static str, subject: &dyn Display, (before, now): (u64, u64), what: &str, data: &[u8]) {
        let count = if now < before { now } else { now - before };
        if count > 0 {
            let text = format!("{what} ({now} in this run)");
            let subject = subject.to_string();
            self.incidents.note_many(Occurrence { cause, subject: &subject, text: &text, data }, count, self.utc);
        }
    }

    fn causes(&mut self, before: &ByCause, now: &ByCause, subject: &dyn Display, what: &str) {
        for (cause, count) in now.iter() {
            let text = format!("{what}: {}", cause.help().trim());
            self.more(cause.name(), subject, (before.get(cause), count), &text, &[]);
        }
    }
}

fn of_source(before: Option<&SourceSample>, source: &SourceSample, sample: &Sample, notes: &mut Notes<'_>) {
    let subject = format!("source {}", source.source);
    let (nothing, no_account) = (ByCause::default(), FragmentAccount::default());
    let (now, known) = (&source.account, before.map_or(&no_account, |before| &before.account));
    notes.causes(&known.dropped, &now.dropped, &subject, "fragments dropped");
    notes.causes(&known.missing, &now.missing, &subject, "fragments that never came");
    let known_lost = before.map_or(&nothing, |before| &before.lost_datagrams);
    notes.causes(known_lost, &source.lost_datagrams, &subject, "datagrams lost");
    let counts = [
        ("duplicate", known.duplicate, now.duplicate, "fragments that were there already"),
        ("late", known.late, now.late, "fragments that came after their event was finished"),
        ("corrupt", known.corrupt, now.corrupt, "fragments without a usable identity"),
    ];
    for (cause, known, now, what) in counts {
        notes.more(cause, &subject, (known, now), what, &[]);
    }
    let of = |source: &SourceSample, counter| source.numbers.get(counter);
    for counter in incident_counters() {
        let data = if counter == Counter::CrcErrors { &source.corrupt[..] } else { &[] };
        let both = (before.map_or(0, |before| of(before, counter)), of(source, counter));
        notes.more(counter.name(), &subject, both, counter.help().trim(), data);
    }
    // One that has ended was to close its connection.
    if sample.phase == "running" && !source.has_ended() {
        let counter = Counter::SourceDisconnections;
        let both = (before.map_or(0, |before| of(before, counter)), of(source, counter));
        notes.more("connection_lost", &subject, both, "its connection ended", &[]);
    }
}

fn of_node(before: Option<&NodeSample>, node: &NodeSample, sample: &Sample, notes: &mut Notes<'_>) {
    for counter in incident_counters() {
        let known = before.map_or(0, |before| before.numbers.get(counter));
        notes.more(counter.name(), &node.node, (known, node.numbers.get(counter)), counter.help().trim(), &[]);
    }
    let Some(before) = before.filter(|_| sample.phase == "running") else { return };
    if before.is_connected && !node.is_connected {
        notes.more("node_lost", &node.node, (0, 1), "not connected to the event manager any more", &[]);
    }
    if before.incarnation.is_some() && node.incarnation > before.incarnation {
        notes.more("node_started_anew", &node.node, (0, 1), "a new process has taken its place", &[]);
    }
}

fn of_events(before: &EventAccount, now: &EventAccount, notes: &mut Notes<'_>) {
    notes.causes(&before.incomplete_dropped, &now.incomplete_dropped, &"events", "events dropped");
    let incomplete = (before.incomplete_emitted, now.incomplete_emitted);
    notes.more("incomplete", &"events", incomplete, "events kept although something was missing", &[]);
    let quarantined = (before.quarantined, now.quarantined);
    notes.more("quarantined", &"events", quarantined, "events of which no decision could be had", &[]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::{sample, source};
    use ropewalk_terms::{Cause, Incarnation, RunNumber};

    /// Causes, subjects and counts that are known after these samples, ordered.
    fn noted(samples: impl IntoIterator<Item = Sample>) -> Vec<(String, String, u64)> {
        let (mut observer, mut incidents) = (IncidentObserver::default(), Incidents::new(100));
        for (second, sample) in (1..).zip(samples) {
            observer.observe(Sample { utc: Utc(second), ..sample }, &mut incidents);
        }
        let all = incidents.search("");
        let mut all: Vec<_> = all.into_iter().map(|one| (one.cause.clone(), one.subject.clone(), one.count)).collect();
        all.sort();
        all
    }

    fn known(cause: &str, subject: &str, count: u64) -> (String, String, u64) {
        (cause.to_owned(), subject.to_owned(), count)
    }

    #[test]
    fn each_loss_is_an_incident_of_its_source_with_the_count_of_all_looks() {
        let damaged = |dropped, crc| {
            let mut source = source(7, 100);
            source.account.dropped.add(Cause::Oversize, dropped);
            source.numbers.add(Counter::CrcErrors, crc);
            source.corrupt = vec![0xde, 0xad];
            sample(1, vec![source])
        };
        let (mut observer, mut incidents) = (IncidentObserver::default(), Incidents::new(100));
        for (second, look) in (1..).zip([damaged(0, 0), damaged(2, 1), damaged(2, 1), damaged(5, 1)]) {
            observer.observe(Sample { utc: Utc(second), ..look }, &mut incidents);
        }
        let found = incidents.search("");
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].cause.as_str(), found[0].subject.as_str()), ("oversize", "source 7"));
        assert_eq!((found[0].count, found[0].first, found[0].last), (5, Utc(2), Utc(4)));
        assert!(found[0].text.contains("(5 in this run)"), "{}", found[0].text);
        assert_eq!((found[1].cause.as_str(), found[1].count, found[1].hex.as_str()), ("crc_errors", 1, "dead"));
    }

    #[test]
    fn a_node_that_goes_and_one_that_comes_anew_are_incidents_while_the_run_goes_on() {
        let look = |is_connected, life, phase| {
            let mut look = Sample { phase, ..sample(1, vec![]) };
            (look.nodes[1].is_connected, look.nodes[1].incarnation) = (is_connected, Some(Incarnation(life)));
            look
        };
        let goes = [look(true, 1, "running"), look(false, 1, "running"), look(true, 2, "running")];
        assert_eq!(noted(goes), [known("node_lost", "bu0", 1), known("node_started_anew", "bu0", 1)]);
        assert_eq!(noted([look(true, 1, "draining"), look(false, 1, "ended")]), [], "all go at the end");
    }

    #[test]
    fn a_connection_that_was_lost_is_told_from_one_that_was_to_end() {
        let look = |connections_ended, has_ended| {
            let mut source = source(7, 100);
            source.numbers.add(Counter::SourceDisconnections, connections_ended);
            source.numbers.add(Counter::SourcesEnded, has_ended);
            sample(1, vec![source])
        };
        assert_eq!(noted([look(0, 0), look(1, 0)]), [known("connection_lost", "source 7", 1)]);
        assert_eq!(noted([look(0, 0), look(1, 1)]), []);
    }

    #[test]
    fn in_another_run_everything_begins_anew() {
        let look = |run, late| {
            let mut source = source(7, 100);
            source.account.late = late;
            Sample { run: RunNumber(run), ..sample(1, vec![source]) }
        };
        assert_eq!(noted([look(1, 5), look(2, 7), look(2, 7)]), [known("late", "source 7", 12)]);
    }

    #[test]
    fn events_that_are_lost_or_incomplete_are_incidents_too() {
        let mut look = sample(1, vec![]);
        look.events.incomplete_dropped.add(Cause::TimedOut, 3);
        look.events.quarantined = 2;
        assert_eq!(noted([look]), [known("quarantined", "events", 2), known("timed_out", "events", 3)]);
    }
}
