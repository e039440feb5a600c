//! What lies in the directory, and what must hold of it.

use super::super::broken::{Broken, Checker};
use super::super::content::mixed;
use super::scenario::Scenario;
use ropewalk_flow::files::{Decided, FileId, StreamCounts, Work};
use ropewalk_flow::filter::{StreamConfig, Streams};
use ropewalk_terms::TriggerBits;
use std::collections::BTreeMap;

/// What a unit has written for a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Output {
    /// Events that it has looked at so far, and whether each is accepted.
    pub(super) decided: Vec<(u64, bool)>,
    /// The document says that this is all.
    pub(super) is_whole: bool,
}

/// Files outlive everybody.
#[derive(Debug, Default)]
pub(super) struct Directory {
    pub(super) raw: BTreeMap<FileId, Vec<u64>>,
    pub(super) outputs: BTreeMap<Work, Output>,
    /// Documents that have their name.
    pub(super) documents: BTreeMap<FileId, Work>,
    pub(super) set_aside: BTreeMap<FileId, Vec<u64>>,
    /// How often a unit began with each file.
    pub(super) begun: BTreeMap<FileId, u16>,
}

/// Whether a filter accepts an event.
pub(super) fn is_accepted(seed: u64, event: u64) -> bool {
    mixed(seed, event, 3).is_multiple_of(3)
}

/// The trigger that an event passes: one in two passes the second one.
const fn trigger(event: u64) -> TriggerBits {
    TriggerBits::of(event as u32 % 2)
}

/// The streams of every run: one has all that is accepted, and one of three that pass the second trigger go to the other as well.
fn streams() -> Streams {
    let named = |name: &str| StreamConfig { name: name.parse().expect("a name"), ..StreamConfig::everything() };
    let part = StreamConfig { triggers: TriggerBits::of(1), prescale: 3, ..named("monitoring") };
    Streams::new(vec![named("physics"), part], false).expect("they make sense")
}

impl Directory {
    /// A document gets its name.
    pub(super) fn commit(&mut self, work: Work) -> Result<(), Broken> {
        let is_whole = self.outputs.get(&work).is_some_and(|output| output.is_whole);
        Broken::unless(is_whole, Checker::Loss, || format!("{work:?} counts, and is not all written"))?;
        let before = self.documents.insert(work.file, work);
        Broken::unless(before.is_none_or(|before| before == work), Checker::Keys, || {
            format!("{work:?} counts beside {before:?}")
        })
    }

    /// What was written for a try goes away.
    pub(super) fn discard(&mut self, work: Work) -> Result<(), Broken> {
        self.outputs.remove(&work);
        let counts = self.documents.get(&work.file) == Some(&work);
        Broken::unless(!counts, Checker::Loss, || format!("{work:?} counted, and was thrown away"))
    }

    /// A decided file goes away.
    pub(super) fn delete(&mut self, file: FileId) -> Result<(), Broken> {
        self.raw.remove(&file);
        let is_decided = self.documents.contains_key(&file);
        Broken::unless(is_decided, Checker::Loss, || format!("{file:?} was deleted before it was decided"))
    }

    /// A file goes to where somebody can look at it.
    pub(super) fn set_aside(&mut self, scenario: &Scenario, file: FileId) -> Result<(), Broken> {
        let begun = self.begun.get(&file).copied().unwrap_or_default();
        Broken::unless(begun >= scenario.broker.tries, Checker::TimeOut, || {
            format!("{file:?} was given up after {begun} tries")
        })?;
        let events = self.raw.remove(&file);
        let events = events.ok_or_else(|| Broken::new(Checker::Keys, format!("{file:?} was set aside twice")))?;
        self.set_aside.insert(file, events);
        Ok(())
    }

    /// What a document says.
    pub(super) fn account(&self, file: FileId) -> Option<Decided> {
        let output = self.outputs.get(self.documents.get(&file)?)?;
        let accepted: Vec<u64> =
            output.decided.iter().filter(|(_, is_accepted)| *is_accepted).map(|&(event, _)| event).collect();
        let mut streams = streams();
        streams.begin_part(file.index);
        for &event in &accepted {
            let to = streams.select(trigger(event), 0);
            streams.written(to);
        }
        let counts = streams.accounts().map(|(_, account)| StreamCounts {
            selected: account.selected,
            prescaled_away: account.prescaled_away,
            written: account.written,
            bytes: 10 * account.written,
        });
        let (processed, accepted) = (output.decided.len() as u64, accepted.len() as u64);
        Some(Decided { processed, accepted, streams: streams.names().zip(counts).collect() })
    }

    /// What must hold when everything is over: each event has one fate.
    pub(super) fn judge(&self, scenario: &Scenario) -> Result<(), Broken> {
        Broken::unless(self.raw.is_empty(), Checker::Liveness, || format!("{:?} are left", self.raw.keys()))?;
        for (file, events) in &scenario.files {
            let expected: Vec<_> = events.iter().map(|&event| (event, is_accepted(scenario.seed, event))).collect();
            let document = self.documents.get(file).and_then(|work| self.outputs.get(work));
            let right = match (document, self.set_aside.get(file)) {
                (Some(output), None) => output.decided == expected,
                (None, Some(kept)) => kept == events,
                _ => false,
            };
            Broken::unless(right, Checker::Content, || format!("{file:?}: {document:?} of {expected:?}"))?;
        }
        Ok(())
    }
}
