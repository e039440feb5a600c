//! What went wrong, once for each cause and subject, with a count.
//!
//! A fault that comes a million times is one incident. Their number is limited; without room for a new one, the one
//! that was quiet for longest is forgotten, and the number of forgotten ones is reported.
//!
//! An [`IncidentObserver`] finds what went wrong between two samples, by their counters.

use core::fmt::{Display, Write};
use std::collections::BTreeMap;
use std::sync::Arc;

use ropewalk_terms::{ByCause, CAUSES, COUNTERS, Counter, EventAccount, FragmentAccount, Place, Utc};

use crate::{NodeSample, Sample, SourceSample};

/// Bytes of a subject's name that are kept.
const LONGEST_NAME: usize = 64;
/// Bytes of a text that are kept.
const LONGEST_TEXT: usize = 256;
/// Bytes of data that are kept: a few headers.
const LONGEST_DATA: usize = 64;

/// Names of what goes wrong beside the causes of losses and the counters that show it by themselves.
const OTHERS: &[&str] = &[
    "alarm",
    "connection_lost",
    "corrupt",
    "course_not_kept",
    "duplicate",
    "fault",
    "history_not_kept",
    "incident",
    "incomplete",
    "late",
    "node_lost",
    "node_started_anew",
    "quarantined",
];

/// Every name that the cause of an incident may have; some come twice. Operators look them up in the manual.
pub fn causes() -> impl Iterator<Item = &'static str> {
    let losses = CAUSES.iter().map(|cause| cause.name());
    losses.chain(incident_counters().map(Counter::name)).chain(OTHERS.iter().copied())
}

/// Something that went wrong once.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Occurrence<'a> {
    /// Why, by a stable name, one of [`causes`]: `crc_error`.
    pub cause: &'static str,
    /// Of what: `source 12`, `bu0`.
    pub subject: &'a str,
    /// The text for users.
    pub text: &'a str,
    /// The bytes that show it; empty without any.
    pub data: &'a [u8],
}

/// What went wrong, of one cause and one subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incident {
    /// Why, by a stable name.
    pub cause: String,
    /// Of what.
    pub subject: String,
    /// The last text.
    pub text: String,
    /// The number of occurrences.
    pub count: u64,
    /// When first.
    pub first: Utc,
    /// When last.
    pub last: Utc,
    /// The first bytes that showed it, in hexadecimal digits.
    pub hex: String,
}

/// All incidents, grouped and bounded.
#[derive(Clone, Debug)]
pub struct Incidents {
    most: usize,
    /// By cause and subject.
    known: BTreeMap<(String, String), Incident>,
    forgotten: u64,
}

impl Incidents {
    /// Room for this many, at least one.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), known: BTreeMap::new(), forgotten: 0 }
    }

    /// Something went wrong.
    pub fn note(&mut self, occurrence: Occurrence<'_>, utc: Utc) {
        self.note_many(occurrence, 1, utc);
    }

    /// Something went wrong this many times.
    pub fn note_many(&mut self, occurrence: Occurrence<'_>, count: u64, utc: Utc) {
        debug_assert!(causes().any(|cause| cause == occurrence.cause), "{} is not one of `causes`", occurrence.cause);
        let key = (occurrence.cause.to_owned(), cut(occurrence.subject, LONGEST_NAME));
        if let Some(incident) = self.known.get_mut(&key) {
            incident.count = incident.count.saturating_add(count);
            // Clocks of civil time are set back at times.
            (incident.first, incident.last) = (incident.first.min(utc), incident.last.max(utc));
            incident.text = cut(occurrence.text, LONGEST_TEXT);
            if incident.hex.is_empty() {
                incident.hex = hex(occurrence.data);
            }
            return;
        }
        if self.known.len() == self.most {
            self.forget_one();
        }
        let incident = Incident {
            cause: key.0.clone(),
            subject: key.1.clone(),
            text: cut(occurrence.text, LONGEST_TEXT),
            count,
            first: utc,
            last: utc,
            hex: hex(occurrence.data),
        };
        self.known.insert(key, incident);
    }

    /// Incidents that contain all words of `text`, in any field and case, the latest first. An empty text matches all.
    pub fn search(&self, text: &str) -> Vec<&Incident> {
        let words: Vec<_> = text.split_whitespace().map(str::to_lowercase).collect();
        let has = |incident: &&Incident| {
            let all =
                format!("{}\n{}\n{}\n{}", incident.cause, incident.subject, incident.text, incident.hex).to_lowercase();
            words.iter().all(|word| all.contains(word))
        };
        let mut found: Vec<_> = self.known.values().filter(has).collect();
        found.sort_by_key(|incident| core::cmp::Reverse(incident.last));
        found
    }

    /// Incidents that were forgotten for others.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn forget_one(&mut self) {
        let quietest = self.known.iter().min_by_key(|(_, incident)| incident.last).map(|(key, _)| key.clone());
        if let Some(key) = quietest {
            self.known.remove(&key);
            self.forgotten += 1;
        }
    }
}

fn cut(text: &str, longest: usize) -> String {
    text[..text.floor_char_boundary(longest)].to_owned()
}

fn hex(data: &[u8]) -> String {
    data.iter().take(LONGEST_DATA).fold(String::new(), |mut text, byte| {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Counters of which each increase is an incident.
fn incident_counters() -> impl Iterator<Item = Counter> {
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

/// Collects the incidents of one sample.
struct Notes<'a> {
    incidents: &'a mut Incidents,
    utc: Utc,
}

impl Notes<'_> {
    /// Something came this many times more, if it did.
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
    // Fragments that came and were dropped for a cause are missing in their events for the same cause: they count once.
    let mut missing = ByCause::default();
    now.missing
        .iter()
        .filter(|(cause, _)| now.dropped.get(*cause) == 0)
        .for_each(|(cause, count)| missing.add(cause, count));
    notes.causes(&known.missing, &missing, &subject, "fragments missing in events");
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
    let name = sample.name_of_node(node.node);
    for counter in incident_counters() {
        let known = before.map_or(0, |before| before.numbers.get(counter));
        notes.more(counter.name(), &name, (known, node.numbers.get(counter)), counter.help().trim(), &[]);
    }
    let Some(before) = before.filter(|_| sample.phase == "running") else { return };
    if before.is_connected && !node.is_connected {
        notes.more("node_lost", &name, (0, 1), "not connected to the event manager any more", &[]);
    }
    if before.incarnation.is_some() && node.incarnation > before.incarnation {
        notes.more("node_started_anew", &name, (0, 1), "a new process has taken its place", &[]);
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

    use ropewalk_terms::{Cause, Incarnation, RunNumber};

    use super::*;
    use crate::made_up::{sample, source};

    const fn of<'a>(cause: &'static str, subject: &'a str) -> Occurrence<'a> {
        Occurrence { cause, subject, text: "Checksum of event 7 is wrong", data: &[0xab, 0x01] }
    }

    #[test]
    fn the_same_cause_and_subject_are_one_incident_with_a_count() {
        let mut incidents = Incidents::new(10);
        for (subject, utc) in [("source 1", 5), ("source 1", 9), ("source 2", 7), ("source 1", 3)] {
            incidents.note(of("crc_error", subject), Utc(utc));
        }
        let all = incidents.search("");
        assert_eq!(all.iter().map(|incident| incident.subject.as_str()).collect::<Vec<_>>(), ["source 1", "source 2"]);
        assert_eq!((all[0].count, all[0].first, all[0].last), (3, Utc(3), Utc(9)));
        assert_eq!((all[1].count, all[1].hex.as_str()), (1, "ab01"));
    }

    #[test]
    fn the_first_bytes_and_the_last_text_are_kept() {
        let mut incidents = Incidents::new(10);
        incidents.note(Occurrence { data: &[], ..of("crc_error", "source 1") }, Utc(1));
        incidents.note(Occurrence { data: &[1], ..of("crc_error", "source 1") }, Utc(2));
        incidents.note(Occurrence { data: &[2], text: "again", ..of("crc_error", "source 1") }, Utc(3));
        assert_eq!((incidents.search("")[0].hex.as_str(), incidents.search("")[0].text.as_str()), ("01", "again"));
    }

    #[test]
    fn without_room_the_one_that_was_quiet_for_longest_is_forgotten() {
        let mut incidents = Incidents::new(2);
        incidents.note(of("late", "x"), Utc(1));
        incidents.note(of("fault", "x"), Utc(2));
        incidents.note(of("late", "x"), Utc(3));
        incidents.note(of("alarm", "x"), Utc(4));
        let causes: Vec<_> = incidents.search("").iter().map(|incident| incident.cause.clone()).collect();
        assert_eq!((causes, incidents.forgotten()), (vec!["alarm".to_owned(), "late".to_owned()], 1));
    }

    #[test]
    fn nothing_that_is_kept_is_longer_than_its_bound() {
        let mut incidents = Incidents::new(2);
        let long = "é".repeat(1_000);
        let data = [0xff; 1_000];
        incidents.note(Occurrence { cause: "late", subject: &long, text: &long, data: &data }, Utc(1));
        // Longer names that begin alike are one incident too.
        incidents.note(Occurrence { cause: "late", subject: &format!("{long}!"), text: &long, data: &data }, Utc(2));
        let all = incidents.search("");
        assert_eq!((all.len(), all[0].subject.len()), (1, LONGEST_NAME));
        assert_eq!((all[0].text.len(), all[0].hex.len()), (LONGEST_TEXT, 2 * LONGEST_DATA));
    }

    #[test]
    fn all_words_have_to_stand_in_an_incident_that_is_found() {
        let mut incidents = Incidents::new(10);
        incidents.note(of("crc_error", "source 1"), Utc(1));
        incidents.note(of("crc_error", "source 2"), Utc(2));
        incidents.note(of("late", "source 2"), Utc(3));
        let found = |text| incidents.search(text).len();
        assert_eq!(
            (found("CRC_error"), found("crc 2"), found("checksum"), found("AB01"), found("nothing")),
            (2, 1, 3, 3, 0)
        );
    }

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
    fn fragments_that_were_dropped_and_are_missing_for_one_cause_count_once() {
        let look = |dropped, missing| {
            let mut source = source(7, 100);
            source.account.dropped.add(Cause::OutOfSync, dropped);
            source.account.missing.add(Cause::OutOfSync, missing);
            source.account.missing.add(Cause::TimedOut, missing);
            sample(1, vec![source])
        };
        let found = noted([look(0, 0), look(9, 8), look(12, 12)]);
        assert_eq!(found, [known("out_of_sync", "source 7", 12), known("timed_out", "source 7", 12)]);
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
    fn a_lost_connection_and_an_expected_end_are_told_apart() {
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
