//! Those who give commands: they take the controls, by force too, give them to each other, and fall silent.

use super::super::broken::{Broken, Checker};
use super::super::draw::Draw;
use super::scenario::Scenario;
use ropewalk_flow::control::operation::Controls;
use ropewalk_terms::Instant;
use std::time::Duration;

/// The real controls, and who should hold them by what was done so far.
pub(super) struct Operators {
    draw: Draw,
    count: u64,
    silence: Duration,
    /// One in so many times they turn to the controls before a command.
    turns: u64,
    controls: Controls,
    /// Who holds them, and the last sign of life.
    holder: Option<(String, Instant)>,
}

impl Operators {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            draw: Draw::new(scenario.seed, 0x0be9),
            count: scenario.operators,
            silence: scenario.silence,
            turns: scenario.turns,
            controls: Controls::new(scenario.silence),
            holder: None,
        }
    }

    fn name(&mut self) -> String {
        format!("operator {}", self.draw.below(self.count))
    }

    /// Somebody wants to give a command; whether that is heard.
    pub(super) fn may_command(&mut self, now: Instant) -> Result<bool, Broken> {
        self.grow_silent(now)?;
        if self.draw.one_in(self.turns) {
            self.turn_to_controls(now)?;
        }
        let by = self.name();
        let is_heard = self.controls.permit(now, &by).is_ok();
        let should = self.may(&by);
        let words = || format!("a command of {by} is heard: {is_heard}, while {:?} holds the controls", self.holder);
        Broken::unless(is_heard == should, Checker::Content, words)?;
        if let Some((_, heard)) = self.holder.as_mut().filter(|(holder, _)| *holder == by) {
            *heard = now;
        }
        Ok(is_heard)
    }

    fn may(&self, by: &str) -> bool {
        self.holder.as_ref().is_none_or(|(holder, _)| holder == by)
    }

    fn grow_silent(&mut self, now: Instant) -> Result<(), Broken> {
        let is_lost = self.holder.take_if(|(_, heard)| heard.after(self.silence) <= now).is_some();
        let is_told = self.controls.tick(now).is_some();
        let words = || format!("a silent operator loses the controls: {is_lost}, and it is told: {is_told}");
        Broken::unless(is_lost == is_told, Checker::Content, words)
    }

    fn turn_to_controls(&mut self, now: Instant) -> Result<(), Broken> {
        let (by, to) = (self.name(), self.name());
        let may = self.may(&by);
        let (is_done, should, after) = match self.draw.below(5) {
            0 | 1 => (self.controls.take(now, &by, false).is_ok(), may, Some(by)),
            2 => (self.controls.take(now, &by, true).is_ok(), true, Some(by)),
            3 => (self.controls.give(now, &by, Some(&to)).is_ok(), may && self.holder.is_some(), Some(to)),
            _ => (self.controls.give(now, &by, None).is_ok(), may, None),
        };
        if should {
            self.holder = after.map(|name| (name, now));
        }
        let holder = self.holder.as_ref().map(|(name, _)| name.as_str());
        let is_so = is_done == should && self.controls.holder() == holder;
        let words = || format!("{:?} holds the controls, and it should be {holder:?}", self.controls.holder());
        Broken::unless(is_so, Checker::Content, words)
    }
}
