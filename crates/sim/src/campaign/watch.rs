//! What must hold between members whenever everybody has come to rest.

use super::broken::{Broken, Checker};
use super::machines::ManagerMachine;
use super::world::World;
use ropewalk_flow::control::RunPhase;
use ropewalk_terms::Instant;
use std::time::Duration;

/// For so long nobody calls a run running because it has waited long enough for those who have not heard of its start.
const BEGINNING: Duration = Duration::from_secs(1);

impl World {
    /// What must hold while the run goes on.
    ///
    /// # Errors
    /// What does not.
    pub(super) fn watch(&self) -> Result<(), Broken> {
        if let Some(broken) = &self.recorder.borrow().broken {
            return Err(broken.clone());
        }
        self.watch_beginning()?;
        self.watch_credits()?;
        self.watch_cards()?;
        self.watch_inlets()
    }

    /// What is called running has begun where sources are heard: what they send from then on is of the run. Looked at until something
    /// goes wrong, after which units come back that have to be told again.
    fn watch_beginning(&self) -> Result<(), Broken> {
        let is_undisturbed = self.injection.happened.is_empty();
        let manager = self.spoken_for().map(ManagerMachine::drive).filter(|_| is_undisturbed);
        let is_called_running = manager.is_some_and(|manager| manager.phase() == RunPhase::Running);
        if !is_called_running || self.now().since(Instant::ZERO) > BEGINNING {
            return Ok(());
        }
        for (index, node) in self.readouts.iter().enumerate() {
            let has_begun = node.machine().is_none_or(|readout| readout.machine().has_started());
            Broken::unless(has_begun, Checker::Loss, || {
                format!("the run is called running, and ru{index} has not heard of its start")
            })?;
        }
        Ok(())
    }

    /// Room is granted once: a builder unit can be given no more than it has beside what it works on. Less, while
    /// assignments or credits are under way.
    fn watch_credits(&self) -> Result<(), Broken> {
        let Some(manager) = self.spoken_for().map(ManagerMachine::drive) else { return Ok(()) };
        let slots = u64::from(self.scenario.rooms.slots);
        for (index, node) in (0..).zip(&self.builders) {
            let Some(builder) = node.machine() else { continue };
            let (free, in_work) = (manager.machine().free_credit(index).0, builder.machine().in_work() as u64);
            Broken::unless(free + in_work <= slots, Checker::Credits, || {
                format!("bu{index} has {slots} slots, works on {in_work} events and can be given {free} more")
            })?;
        }
        Ok(())
    }

    /// What a readout unit says it received from a source is what the network brought it: nothing is made, and nothing
    /// is left out where it reads the source and has room.
    fn watch_inlets(&self) -> Result<(), Broken> {
        let recorder = self.recorder.borrow();
        for (source, front_end) in self.front_ends.iter().enumerate() {
            let inlet = front_end.hosts.first().and_then(|host| recorder.inlets.get(host));
            let node = &self.readouts[usize::from(self.scenario.readout_of(source))];
            let (Some(inlet), Some(readout)) = (inlet, node.machine()) else { continue };
            let lines = inlet.lines.values().filter(|line| line.door == node.hosts.first().copied());
            let (whole, most) = lines.fold((0, 0), |(whole, most), line| (whole + line.whole, most + line.most()));
            let place = source % self.scenario.sources_each();
            let received = readout.machine().account(place).received;
            let is_taken = inlet.is_read() && readout.machine().room(place) > 0;
            let least = if is_taken { whole } else { 0 };
            Broken::unless((least..=most).contains(&received), Checker::Ledger, || {
                let (id, at) = (self.scenario.source_id(source), self.now().since(Instant::ZERO));
                format!("at {at:?} {received} fragments of source {id} count as received, and {whole} came whole")
            })?;
        }
        Ok(())
    }
}
