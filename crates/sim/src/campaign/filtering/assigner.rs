//! What stands for event manager and readout unit: it assigns, answers requests in its own order, and hears acknowledgements.

use super::super::broken::{Broken, Checker};
use super::super::draw::Draw;
use super::super::stand::pool;
use super::scenario::Scenario;
use ropewalk_flow::builder::{Builder, BuilderAction};
use ropewalk_flow::messages::{
    Assign, AssignEntry, Batch, Fragment, FragmentFlags, FragmentMeta, Message, RequestEntry, SuperFragmentEntry,
};
use ropewalk_memory::{Owner, Payload, Pool};
use ropewalk_terms::{Attempt, Ending, EventKey, Instant, SourceId};
use std::collections::BTreeMap;

/// The sources of every event.
pub(super) const SOURCES: [SourceId; 2] = [SourceId(1), SourceId(2)];

/// The bytes of a source's fragment.
pub(super) fn payload(source: SourceId, event: u64) -> Vec<u8> {
    let length = 8 + (event * 5 + u64::from(source.0)) % 40;
    (0..length).map(|place| (event * place + u64::from(source.0)) as u8).collect()
}

/// See the module's text.
pub(super) struct Assigner {
    draw: Draw,
    events: u64,
    slots: u64,
    assigned: u64,
    /// Requests that were not answered.
    asked: Vec<RequestEntry>,
    /// How each event ended.
    pub(super) ended: BTreeMap<u64, Ending>,
    fragments: Pool,
}

impl Assigner {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            draw: Draw::new(scenario.seed, 61),
            events: scenario.events,
            slots: scenario.slots.into(),
            assigned: 0,
            asked: Vec::new(),
            ended: BTreeMap::new(),
            fragments: pool("fragments", 256, 4 * scenario.slots as usize),
        }
    }

    /// Whether every event has ended.
    pub(super) fn is_over(&self) -> bool {
        self.ended.len() as u64 == self.events
    }

    /// Blocks of fragments that are held.
    pub(super) fn held(&mut self) -> usize {
        self.fragments.collect();
        self.fragments.held()
    }

    /// Assigns and answers a little.
    pub(super) fn turn(&mut self, now: Instant, builder: &mut Builder) -> usize {
        let room = self.slots - (self.assigned - self.ended.len() as u64);
        let count = self.draw.below(4).min(room).min(self.events - self.assigned);
        let entry = |number| AssignEntry { key: EventKey::new(0, number), bytes: 100, attempt: Attempt(1) };
        let entries: Batch<AssignEntry> = (self.assigned + 1..=self.assigned + count).map(entry).collect();
        self.assigned += count;
        if count > 0 {
            builder.message(now, &Message::Assign(Assign { entries }));
        }
        let mut work = count as usize;
        // Readout units answer when they like.
        for _ in 0..self.draw.below(4) {
            if self.asked.is_empty() {
                break;
            }
            let which = self.draw.below(self.asked.len() as u64) as usize;
            let request = self.asked.swap_remove(which);
            self.answer(now, request, builder);
            work += 1;
        }
        work
    }

    fn answer(&mut self, now: Instant, request: RequestEntry, builder: &mut Builder) {
        let RequestEntry { key, slot, attempt } = request;
        let mut fragments: Vec<Fragment> = SOURCES.map(|source| self.fragment(source, key.number())).into();
        let entry = SuperFragmentEntry { key, slot, attempt, fragments: 2, bytes: 100, not_held: None };
        builder.super_fragment(now, 0, &entry, &mut fragments);
    }

    fn fragment(&mut self, source: SourceId, event: u64) -> Fragment {
        let bytes = payload(source, event);
        let mut loan = self.fragments.loan(Owner::SHARED).expect("as many as there are slots for");
        loan.spare()[..bytes.len()].copy_from_slice(&bytes);
        loan.commit(bytes.len());
        let mut payload = Payload::default();
        payload.push(loan.split_committed().expect("it was filled"));
        let meta = FragmentMeta {
            source,
            length: bytes.len() as u32,
            flags: FragmentFlags::default(),
            bunch_crossing: 0,
            trigger_type: 0,
            raw_id: event,
            time: 0,
        };
        Fragment { meta, payload }
    }

    /// Takes what the machine wants; events that it emits are for `emit`.
    ///
    /// # Errors
    /// Where an event ends twice.
    pub(super) fn hear(&mut self, action: BuilderAction, emit: impl FnOnce(u32)) -> Result<(), Broken> {
        match action {
            BuilderAction::ToManager(Message::Acknowledge(said)) => {
                for entry in &said.entries {
                    let before = self.ended.insert(entry.key.number(), entry.ending);
                    Broken::unless(before.is_none(), Checker::Keys, || format!("event {} ended twice", entry.key))?;
                }
            }
            BuilderAction::ToReadout { message: Message::Request(request), .. } => self.asked.extend(&request.entries),
            BuilderAction::Emit { slot } => emit(slot),
            _ => {}
        }
        Ok(())
    }
}
