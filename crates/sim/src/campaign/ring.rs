//! What the referee knows of cards' rings: what was taken from them, and when.

use super::broken::{Broken, Checker};
use super::cards::SubscriberSetting;
use super::machines::{Card, ReadoutMachine, Record};
use super::node::{Health, Node};
use super::recorder::{Inlet, Recorder};
use super::world::World;
use ropewalk_node::drive::Drive;
use ropewalk_terms::Instant;
use ropewalk_wire::stream::Policy;
use std::time::Duration;

/// Whoever could take what waits in a ring does so within this time: at the latest when it reports.
const SOON: Duration = Duration::from_millis(1100);

impl World {
    /// A life of a readout unit begins: its card has a new ring.
    /// Returns where that one's subscribers connect to.
    pub(super) fn attach_card(&mut self, readout: u16, machine: &mut ReadoutMachine) -> Option<u32> {
        let index = self.scenario.cards.iter().position(|card| card.readout == readout)?;
        let mut card = self.cards[index].machine.take()?;
        let host = card.attach(&self.site(), &self.readouts[usize::from(readout)].around, machine);
        let (first, count) = (self.first_of(&card.setting), card.setting.subscribers.len());
        for subscriber in &mut self.subscribers[first..first + count] {
            subscriber.machine.iter_mut().for_each(|machine| machine.ring = card.life());
        }
        // It has room now.
        self.cards[index].machine = Some(card);
        self.cards[index].wake();
        host
    }

    /// The ring that a card of this subscriber writes.
    pub(super) fn ring_of(&self, subscriber: usize) -> u64 {
        let cards = self.cards.iter().filter_map(Node::machine);
        let mut of = cards.filter(|card| {
            let first = self.first_of(&card.setting);
            (first..first + card.setting.subscribers.len()).contains(&subscriber)
        });
        of.next().map_or(0, Card::life)
    }

    /// What a source did with each event, by the source's own record.
    pub(super) fn record(&self, source: usize) -> Option<&Record> {
        match self.scenario.card_of(source) {
            Some((card, link)) => self.cards[card].machine().map(|card| card.record(link)),
            None => self.front_ends[source].machine().map(|front_end| &front_end.record),
        }
    }

    /// What arrived from a source.
    pub(super) fn inlet<'a>(&'a self, source: usize, recorder: &'a Recorder) -> Option<&'a Inlet> {
        match self.scenario.card_of(source) {
            Some((card, _)) => self.cards[card].machine().map(|card| &card.inlet),
            None => self.front_ends[source].hosts.first().and_then(|host| recorder.inlets.get(host)),
        }
    }

    /// Whether what a source wrote into this ring can still be taken from it.
    pub(super) fn is_present_ring(&self, source: usize, ring: u64) -> bool {
        let Some((card, _)) = self.scenario.card_of(source) else { return false };
        let readout = &self.readouts[usize::from(self.scenario.cards[card].readout)];
        readout.machine().is_some() && self.cards[card].machine().is_some_and(|card| card.life() == ring)
    }

    /// Takes note of how far readout units have read their cards' rings, and whether they wait with reading for what only
    /// needs to be released: then nobody's silence counts.
    pub(super) fn look_at_cards(&mut self) {
        let now = self.now();
        for node in &mut self.cards {
            let Some(card) = &mut node.machine else { continue };
            let readout = &mut self.readouts[usize::from(card.setting.readout)];
            // Whoever has just looked in vain is called.
            let written = card.written();
            if written > std::mem::replace(&mut card.seen, written) {
                readout.wake();
            }
            let Some((input, machine)) = readout.machine().and_then(|one| Some((one.cards().next()?, one.machine())))
            else {
                continue;
            };
            let taken = input.handed_on() - card.handed_on;
            if taken > 0 {
                card.inlet.deliver(now, card.life(), taken);
                card.handed_on += taken;
            }
            let is_held_up = card.handed_on < card.written() || card.is_full();
            card.inlet.set_read(now, card.life(), !is_held_up || !machine.holds_settled());
            let each = self.scenario.sources_each();
            let sources = self.scenario.sources_of(&card.setting);
            let may_take = sources.clone().all(|source| machine.room(source % each) > 0);
            // Whoever must miss nothing may keep everybody waiting; who may lose chunks keeps nobody.
            let may_stand = readout.health != Health::Up || !card.setting.has_monitors_alone();
            let waits = card.handed_on < card.written() && may_take;
            let is_kept = card.is_full() && card.handed_on == card.written() && machine.held() == 0;
            let stands = !may_stand && (waits || is_kept && card.oldest_open(card.handed_on).is_none());
            card.stands_since = if stands { card.stands_since.or(Some(now)) } else { None };
            if !card.prepare_wait() {
                node.wake();
            }
        }
    }

    /// What lies in a ring is taken where there is room for it, and each chunk of it counts as one.
    pub(super) fn watch_cards(&self) -> Result<(), Broken> {
        for card in self.cards.iter().filter_map(Node::machine) {
            let readout = &self.readouts[usize::from(card.setting.readout)];
            let Some(machine) = readout.machine() else { continue };
            let stands = card.stands_since.is_some_and(|since| self.now().since(since) > SOON);
            Broken::unless(!stands, Checker::Liveness, || {
                format!(
                    "{} does not take or keeps what its card wrote since {:?}",
                    readout.around.place, card.stands_since
                )
            })?;
            let is_over = card.is_closed() && card.handed_on == card.written();
            self.watch_tally(card, machine, is_over)?;
        }
        Ok(())
    }

    /// Every chunk that began counts once, as a fragment or as given up, and nothing else does.
    fn watch_tally(&self, card: &Card, readout: &ReadoutMachine, is_over: bool) -> Result<(), Broken> {
        let is_over = is_over && readout.cards().all(|input| input.is_ended());
        for (id, least, most, all) in card.tallies() {
            let Some(source) = readout.machine().source_index(id) else { continue };
            let received = readout.machine().account(source).received;
            let least = if is_over { all } else { least };
            Broken::unless((least..=most).contains(&received), Checker::Ledger, || {
                let at = self.now().since(Instant::ZERO);
                format!("at {at:?} {received} chunks of source {id} count as received, and {least} to {most} came")
            })?;
        }
        Ok(())
    }

    /// After the end every page is home that was taken, but for the one that is being written.
    pub(super) fn most_pages_out(&self, readout: u16) -> u64 {
        let card = self.scenario.cards.iter().position(|card| card.readout == readout);
        let Some(card) = card.and_then(|card| self.cards[card].machine()) else { return 0 };
        // A stop by force waits for nobody: what a builder unit did not take lies there until the process ends (seed 52376).
        let readout = self.readouts[usize::from(readout)].machine();
        if self.scenario.end.is_forced() && readout.is_some_and(ReadoutMachine::has_unsent) {
            return u64::MAX;
        }
        // Who must miss nothing and was not told the end in time may have some of them in its transport. For who may lose
        // chunks the last ones wait in its queue, where it did not hear the end before its server went.
        let first = self.first_of(&card.setting);
        let is_untold =
            |subscriber: usize| self.journals[subscriber].borrow().last().is_some_and(|one| one.end.is_none());
        let mut subscribers = (first..).zip(&card.setting.subscribers);
        let may_hold = |(index, one): (usize, &SubscriberSetting)| match one.policy {
            Policy::BackPressure => self.has_left(index),
            Policy::Drop => is_untold(index),
        };
        if subscribers.any(may_hold) {
            return u64::MAX;
        }
        // A batch that was not taken as a whole is not done with.
        let batch = (card.setting.blocks_per_batch * card.setting.format.block_bytes()) as u64;
        let begun = if card.handed_on < card.written() { batch } else { 0 };
        // Nor are chunks that end in it, however long before it they began.
        let done = card.handed_on.saturating_sub(begun);
        let from = card.oldest_open(done).unwrap_or(u64::MAX).min(done);
        let page = card.setting.page_bytes as u64;
        card.written().div_ceil(page) - from / page
    }
}
