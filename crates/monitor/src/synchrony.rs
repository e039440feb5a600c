//! Which sources are out of step with the others, and the sentences about them: live, and in the account of a run.

use ropewalk_terms::{EventKey, SourceId};

/// How the events of a source relate to those of the reference source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Relation {
    /// Events by which it is displaced: positive if its event n holds the data of a later trigger (early). None if it
    /// has no fixed offset any more.
    pub offset: Option<i16>,
    /// The first displaced event.
    pub since: EventKey,
}

/// The sources that are out of step, each with a sentence; of two that disagree each with the same one. `all` holds the
/// reference source with offset 0. The event in a sentence is the first that holds data of two triggers.
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
        let other = at(base).map(|(other, ..)| other).find(|other| *other != source).filter(|_| is_tie);
        // A relation is known since the first trigger that both sources have. If the reference lost some, its own event
        // with that trigger comes as many earlier.
        let is_of_reference = offset == 0 || other.is_some();
        let since = if is_of_reference { earlier(since, if offset == 0 { base } else { offset }) } else { since };
        let sentence = match other {
            Some(other) => format!("{} and {name} disagree by {} since event {since}", name_of(other), events(by)),
            None => format!("{name} is {} {} since event {since}", events(by), if by > 0 { "early" } else { "late" }),
        };
        if let Some(other) = other.filter(|other| found.iter().all(|(known, _)| known != other)) {
            found.push((other, sentence.clone()));
        }
        found.push((source, sentence));
    }
    found
}

/// The earlier event to which a negative offset leads.
fn earlier(event: EventKey, offset: i16) -> EventKey {
    let number = event.number().saturating_sub(u64::from(offset.min(0).unsigned_abs())).max(1);
    EventKey::new(event.resync(), number)
}

fn events(by: i16) -> String {
    let count = by.unsigned_abs();
    if count == 1 { "one event".to_owned() } else { format!("{count} events") }
}
