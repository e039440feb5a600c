//! What went wrong, once for each cause and subject, with a count.
//!
//! A fault that comes a million times is one incident. There are so many at most; when there is no room for a new one, the one
//! that was quiet for longest is forgotten, and how many were is told.

mod observer;

pub use observer::IncidentObserver;

use core::fmt::Write;
use ropewalk_terms::{CAUSES, Counter, Utc};
use std::collections::BTreeMap;

/// Bytes of a subject's name that are kept.
const LONGEST_NAME: usize = 64;
/// Bytes of a text that are kept.
const LONGEST_TEXT: usize = 256;
/// Bytes of data that are kept: a few headers.
const LONGEST_DATA: usize = 64;

/// Names of what goes wrong beside the causes of losses and the counters that tell it by themselves.
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

/// Every name that the cause of an incident may have; some come twice. Whoever is on shift looks them up.
pub fn causes() -> impl Iterator<Item = &'static str> {
    let losses = CAUSES.iter().map(|cause| cause.name());
    losses.chain(observer::incident_counters().map(Counter::name)).chain(OTHERS.iter().copied())
}

/// Something that went wrong once.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Occurrence<'a> {
    /// Why, by a stable name, one of [`causes`]: `crc_error`.
    pub cause: &'static str,
    /// Of what: `source 12`, `bu0`.
    pub subject: &'a str,
    /// What people read.
    pub text: &'a str,
    /// The bytes that show it; empty where there are none.
    pub data: &'a [u8],
}

/// What went wrong, of one cause and one subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incident {
    /// Why, by a stable name.
    pub cause: String,
    /// Of what.
    pub subject: String,
    /// What was said of it last.
    pub text: String,
    /// How often.
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
    /// Room for so many, at least one.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), known: BTreeMap::new(), forgotten: 0 }
    }

    /// Something went wrong.
    pub fn note(&mut self, occurrence: Occurrence<'_>, utc: Utc) {
        self.note_many(occurrence, 1, utc);
    }

    /// Something went wrong so many times.
    pub fn note_many(&mut self, occurrence: Occurrence<'_>, count: u64, utc: Utc) {
        debug_assert!(causes().any(|cause| cause == occurrence.cause), "{} is none of `causes`", occurrence.cause);
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

    /// Those in which all words of `text` stand, in whatever field and case; the latest first. All where there is no word.
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

#[cfg(test)]
mod tests {
    use super::*;

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
            (found("CRC_error"), found("crc 2"), found("checksum"), found("AB01"), found("nobody")),
            (2, 1, 3, 3, 0)
        );
    }
}
