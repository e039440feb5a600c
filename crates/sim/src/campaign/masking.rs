//! An operator masks and unmasks sources: when, and whether every event then agrees with the account.

use super::fault::Place;
use super::node::Member;
use super::referee::{Record, Timeline};
use super::runner::{Broken, ensure};
use super::scenario::Scenario;
use super::world::World;
use ropewalk_engine::RunSnapshot;
use ropewalk_flow::control::RunCommand;
use ropewalk_flow::source::Random;
use ropewalk_terms::{Cause, EventKey, Instant, SourceId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Which stream of the seed decides on masks.
const STREAM: u64 = 808;

/// By then a readout unit that is there has heard of it.
const TELLING: Duration = Duration::from_millis(100);

/// A mask command for a source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Masking {
    /// When.
    pub at: Duration,
    /// Which one.
    pub source: u16,
    /// It takes part no longer; otherwise again.
    pub is_masked: bool,
}

impl Scenario {
    /// Draws mask commands, never for the trigger source, which cannot be masked. A stream of its own, so that other seeds mean
    /// what they meant before.
    pub(super) fn draw_masks(&mut self, span: Duration) {
        let mut draw = Random::new(self.seed, STREAM);
        if !draw.one_in(5) {
            return;
        }
        for _ in 0..draw.between(1, 2) {
            let source = draw.below(self.sources.len() as u64) as u16;
            let mut at = if draw.one_in(6) { Duration::ZERO } else { draw.time(span / 50, span) };
            let turns = draw.between(1, 5);
            for turn in 0..turns {
                self.masks.push(Masking { at, source, is_masked: turn % 2 == 0 });
                at += draw.time(span / 50, span);
            }
        }
        self.masks.retain(|mask| self.trigger != Some(mask.source));
        self.masks.sort_by_key(|mask| mask.at);
    }
}

/// In which events the account says that each source took no part.
pub(super) struct Masked(BTreeMap<SourceId, Vec<(EventKey, EventKey)>>);

impl Masked {
    fn of(snapshot: &RunSnapshot) -> Self {
        let intervals = snapshot.masks.iter().map(|(&source, record)| {
            let interval = |one: &ropewalk_engine::MaskedInterval| (one.from, one.to.unwrap_or(EventKey::MAX));
            (source, record.intervals.iter().map(interval).collect())
        });
        Self(intervals.collect())
    }

    /// Whether it says so of this event.
    pub(super) fn covers(&self, source: SourceId, key: EventKey) -> bool {
        self.0.get(&source).is_some_and(|intervals| intervals.iter().any(|&(from, to)| from <= key && key < to))
    }
}

impl World {
    /// When the next mask command is due.
    pub(super) fn next_mask(&self) -> Option<Instant> {
        self.scenario
            .masks
            .get(self.masks_said)
            .map(|mask| Instant::ZERO.after(mask.at))
            .filter(|&at| at > self.core.now())
    }

    /// Gives due commands to the event manager that leads the run; without one, a little later.
    pub(super) fn command_masks(&mut self) {
        while let Some(&mask) = self.scenario.masks.get(self.masks_said) {
            if self.core.now() < Instant::ZERO.after(mask.at) || self.reign.ended.is_some() {
                return;
            }
            let Some(index) = self.speaker() else { return };
            let node = &mut self.managers[usize::from(index)];
            let now = node.around.clock.now();
            let Some(manager) = &mut node.machine else { return };
            let source = self.scenario.source_id(mask.source.into());
            manager.drive_mut().command(now, RunCommand::Mask { source, is_masked: mask.is_masked });
            node.wake();
            self.masks_said += 1;
        }
    }

    /// The events in which sources took no part, by the account; none for a source that was never masked.
    ///
    /// # Errors
    /// Where one does.
    pub(super) fn judge_masks(&mut self) -> Result<Masked, Broken> {
        let masked = Masked::of(&self.snapshot());
        for (&source, intervals) in &masked.0 {
            let said = |mask: &&Masking| mask.is_masked && self.scenario.source_id(mask.source.into()) == source;
            let most = self.scenario.masks.iter().filter(said).count();
            let are_in_order = intervals.windows(2).all(|two| two[0].1 <= two[1].0);
            ensure!(Masks, intervals.len() <= most && are_in_order;
                "source {source} was masked {most} times, and the account has {intervals:?}")?;
        }
        self.judge_lasting(&masked)?;
        Ok(masked)
    }

    /// A source that was masked before its readout unit died, and that the event manager knows to be masked, is so at the end.
    fn judge_lasting(&self, masked: &Masked) -> Result<(), Broken> {
        let Some(manager) = self.spoken_for() else { return Ok(()) };
        for id in manager.drive().machine().masked() {
            let index = (0..self.scenario.sources.len()).find(|&index| self.scenario.source_id(index) == id);
            let Some(source) = index else { continue };
            let (readout, mut said) = (self.scenario.readout_of(source), self.scenario.masks[..self.masks_said].iter());
            let last = said.rfind(|mask| usize::from(mask.source) == source);
            let deaths = self.safe.deaths.iter().filter(|death| death.place == Place::Readout(readout));
            let has_died_since = deaths
                .into_iter()
                .any(|death| last.is_some_and(|mask| death.at >= Instant::ZERO.after(mask.at + TELLING)));
            let node = &self.readouts[usize::from(readout)];
            let is_back = node.is_done() && node.machine().is_some_and(|readout| readout.machine().has_started());
            let is_masked =
                masked.0.get(&id).and_then(|intervals| intervals.last()).is_some_and(|last| last.1 == EventKey::MAX);
            ensure!(Masks, !has_died_since || !is_back || is_masked;
                "source {id} is masked, and its readout unit that began anew did not know: {:?}", masked.0.get(&id))?;
        }
        Ok(())
    }

    /// What an event says of a source that the account says was masked in it: nothing at all, neither a fragment nor a cause.
    pub(super) fn judge_masked(
        &self,
        timeline: &Timeline,
        masked: &Masked,
        event: u64,
        source: usize,
        copy: &Record,
    ) -> Result<(), Broken> {
        let id = self.scenario.source_id(source);
        let Some(found) = copy.found.get(&id) else { return Ok(()) };
        let readout = Place::Readout(self.scenario.readout_of(source));
        // What a readout unit said of an event before it died is not what it says when it has begun anew; and that a source took part
        // again it may not have reported any more.
        let delivered = timeline.histories[source].delivered[event as usize];
        let is_before = |at: Instant| delivered.is_none_or(|delivered| delivered <= at);
        let has_died =
            self.safe.deaths.iter().any(|death| death.place == readout && (found.is_some() || is_before(death.at)));
        // A builder unit that waited for the readout unit in vain was not told who is masked.
        let is_of_builder = matches!(found, Some(Cause::TimedOut | Cause::Disconnected | Cause::ReadoutLost));
        // Nor was one that had no answer: it has the same to say of others that take part, for which that is judged.
        let mut others = copy.found.iter().filter(|&(&other, _)| {
            let other = (0..self.scenario.sources.len()).find(|&index| self.scenario.source_id(index) == other);
            other.is_some_and(|other| {
                let id = self.scenario.source_id(other);
                let is_judged = !masked.covers(id, self.scenario.key_of(event));
                is_judged && self.scenario.readout_of(other) == self.scenario.readout_of(source)
            })
        });
        let is_of_unit = is_of_builder && others.any(|(_, other)| other == found);
        let begun = timeline.begun[event as usize];
        let was_away =
            is_of_unit || is_of_builder && (self.was_away(readout, begun) || self.was_refused(readout, begun));
        ensure!(Masks, has_died || was_away;
            "event {event}: source {id} was masked, and {}", found.map_or("has a fragment", |cause| cause.name()))
    }

    /// Whether an event may say nothing of a source that the account does not call masked: it was masked, and the readout unit
    /// that knew from which event on was not there any more to say so.
    pub(super) fn may_be_masked(&self, source: usize) -> bool {
        let place = Place::Readout(self.scenario.readout_of(source));
        let was_masked = self.scenario.masks.iter().any(|mask| usize::from(mask.source) == source);
        let has_died = self.safe.deaths.iter().any(|death| death.place == place);
        let is_away = self.readouts.iter().any(|node| node.around.place == place && !node.is_done());
        was_masked && (has_died || is_away || self.scenario.end.is_forced())
    }
}
