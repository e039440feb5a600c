//! What must hold between members whenever everybody has come to rest.

use super::broken::{Broken, Checker};
use super::machines::ManagerMachine;
use super::world::World;
use ropewalk_terms::Instant;

impl World {
    /// What must hold while the run goes on.
    ///
    /// # Errors
    /// What does not.
    pub(super) fn watch(&self) -> Result<(), Broken> {
        if let Some(broken) = &self.recorder.borrow().broken {
            return Err(broken.clone());
        }
        self.watch_credits()?;
        self.watch_cards()?;
        self.watch_inlets()
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
