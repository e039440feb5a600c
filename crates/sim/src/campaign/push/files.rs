//! What the run files hold, against what was accepted: every byte, every missing source and its cause.

use super::farm::Held;
use super::referee::Twin;
use super::scenario::{FlowSetting, source_of};
use super::world::World;
use crate::campaign::outcome::{Broken, Checker};
use ropewalk_flow::gateway::Output;
use ropewalk_terms::{Attempt, Cause};
use ropewalk_wire::run_file::{EventFlags, EventView, Item, Items, RecordKind};
use std::collections::{BTreeMap, BTreeSet};

/// Flow, set, and which of its events.
type Place = (u8, u64, u16);

impl World {
    /// Accepted events of flows that are stored are in their gateway's files, each once, and nothing else is.
    pub(super) fn judge_files(&self) -> Result<(), Broken> {
        let referee = self.referee.borrow();
        for (gateway, twin) in (0u16..).zip(&referee.twins) {
            let lives: Vec<&Twin> = referee.lives_of(gateway).collect();
            let found = self.read_files(gateway, &lives)?;
            // What a life that was killed had not written is gone.
            let due = self.accepted(twin);
            let may_be = lives.iter().flat_map(|life| self.accepted(life)).collect::<BTreeSet<Place>>();
            Broken::unless(due.is_subset(&found) && found.is_subset(&may_be), Checker::Loss, || {
                let (lost, made): (Vec<_>, Vec<_>) =
                    (due.difference(&found).collect(), found.difference(&may_be).collect());
                format!("gw{gateway}: events {lost:?} were accepted and are in no file, and {made:?} are there unasked")
            })?;
        }
        Ok(())
    }

    /// Accepted events of flows that are stored.
    fn accepted(&self, twin: &Twin) -> BTreeSet<Place> {
        let mut accepted = BTreeSet::new();
        for (&(flow, set), held) in &twin.farm.sets {
            if self.scenario.flows[usize::from(flow)].output == Output::Storage {
                let wanted = (0..).zip(&held.events).filter(|(_, event)| event.ruling.is_some_and(|one| one.accept));
                accepted.extend(wanted.map(|(event, _)| (flow, set, event)));
            }
        }
        accepted
    }

    fn read_files(&self, gateway: u16, lives: &[&Twin]) -> Result<BTreeSet<Place>, Broken> {
        let storage = &self.storages[usize::from(gateway)];
        let mut found = BTreeMap::<Place, usize>::new();
        for path in storage.paths() {
            let broken =
                |words: String| Broken::new(Checker::Content, format!("gw{gateway} {}: {words}", path.display()));
            let bytes = storage.read(&path).map_err(|cause| broken(cause.to_string()))?;
            for item in Items::new(&bytes) {
                match item {
                    Item::Record { record, .. } if record.kind() == RecordKind::EVENT => {
                        let event = EventView::parse(&record).map_err(|error| broken(error.to_string()))?;
                        let place = self.place_of(&event).ok_or_else(|| broken(format!("no event {}", event.key())))?;
                        self.compare_with(lives, place, &event).map_err(broken)?;
                        // Each life may have had some of its packets.
                        let times = found.entry(place).or_default();
                        *times += 1;
                        Broken::unless(*times <= lives.len(), Checker::Keys, || {
                            format!("gw{gateway}: {place:?} is stored {times} times")
                        })?;
                    }
                    Item::Record { .. } => {}
                    // Whoever was killed had no time to end what it wrote.
                    Item::Damaged { .. } if lives.len() > 1 => {}
                    Item::Damaged { offset, .. } => return Err(broken(format!("damaged at {offset}"))),
                }
            }
        }
        Ok(found.into_keys().collect())
    }

    /// Whether a record holds what one of the gateway's lives decided; what is wrong otherwise.
    fn compare_with(&self, lives: &[&Twin], place: Place, event: &EventView<'_>) -> Result<(), String> {
        let mut wrong = format!("{place:?} was never decided");
        for held in lives.iter().filter_map(|life| life.farm.sets.get(&(place.0, place.1))) {
            match self.compare(place, event, held) {
                Ok(()) => return Ok(()),
                Err(words) => wrong = words,
            }
        }
        Err(wrong)
    }

    /// Which event a record is of: its sources tell the flow.
    fn place_of(&self, event: &EventView<'_>) -> Option<Place> {
        let there = event.fragments().map(|fragment| fragment.entry.source);
        let (flow, _) = source_of(there.chain(event.missing().map(|missing| missing.source)).next()?);
        let (set, index) = self.scenario.flows.get(usize::from(flow))?.place_of(event.key())?;
        Some((flow, set, index))
    }

    /// Whether a record holds what its sources sent, and says of it what is true; what is wrong otherwise.
    fn compare(&self, place: Place, event: &EventView<'_>, held: &Held) -> Result<(), String> {
        let setting = &self.scenario.flows[usize::from(place.0)];
        for fragment in event.fragments() {
            let (_, source) = source_of(fragment.entry.source);
            if fragment.payload != banks(setting, source, event.key().number()) {
                return Err(format!("{place:?}: source {source} sent something else"));
            }
        }
        let there = event.fragments().map(|fragment| source_of(fragment.entry.source)).collect::<Vec<_>>();
        let came = held.came.iter().map(|&source| (place.0, source));
        let missing = event.missing().filter_map(|missing| Some((source_of(missing.source).1, missing.cause()?)));
        let missing = missing.collect::<BTreeMap<u16, Cause>>();
        if !came.eq(there.iter().copied()) || missing != held.absent {
            return Err(format!("{place:?} holds {there:?} and lacks {missing:?}: that should be {held:?}"));
        }
        let known = &held.events[usize::from(place.2)];
        let word = known.ruling.map(|ruling| ruling.word as u16);
        let (head, is_whole) = (event.head(), held.absent.is_empty());
        let is_right = Some(head.trigger_type) == word
            && head.attempt == Attempt(known.attempt)
            && head.flags.contains(EventFlags::INCOMPLETE) != is_whole;
        if is_right { Ok(()) } else { Err(format!("{place:?}: {head:?}, and it is {known:?}")) }
    }
}

/// What a source sends for an event.
pub(super) fn banks(setting: &FlowSetting, source: u16, event: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    setting.sources.append_banks(source, event, &mut bytes);
    bytes
}
