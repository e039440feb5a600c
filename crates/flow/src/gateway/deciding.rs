//! What nodes say, and what follows when they say nothing.

use super::config::Output;
use super::farm::{Farm, make_room};
use super::nodes::{EventPlace, Greeting, Settled};
use super::set::{Ending, Stage};
use ropewalk_terms::Instant;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_wire::gateway::{Credit, Decision, Decisions, Progress, Verdict};

/// A decision, whoever made it.
#[derive(Copy, Clone, Debug)]
struct Ruling {
    accept: bool,
    word: u32,
    by_default: bool,
}

impl Farm {
    /// A node is there and has room. One that starts again, or comes back, gets nothing of what it had: others have it.
    pub fn on_credit(&mut self, credit: &Credit, now: Instant) {
        if self.nodes.greet(credit, now) == Greeting::New {
            self.take_back(credit.node);
            self.nodes.list(credit.node);
        }
        self.look_again();
    }

    /// A node decided. Each decision is credit as well.
    pub fn on_decisions(&mut self, decisions: &Decisions, now: Instant) {
        let (is_ours, number) = (self.is_for_us(decisions), decisions.node);
        let Some(node) = self.nodes.get(number).filter(|node| is_ours && node.is_in(decisions.incarnation)) else {
            return;
        };
        // What was never pushed cannot be decided: who says so counts wrong.
        if decisions.cumulative > node.next {
            return;
        }
        self.nodes.heard(number, now);
        for decision in &decisions.entries {
            self.on_decision(number, decision, now);
        }
        let Some(node) = self.nodes.get(number) else { return };
        for sequence in node.unsettled().filter(|&sequence| decisions.covers(sequence)) {
            self.on_lost_decision(number, sequence);
        }
        self.nodes.list(number);
    }

    fn is_for_us(&self, decisions: &Decisions) -> bool {
        decisions.gateway == self.gateway && decisions.gateway_incarnation == self.incarnation
    }

    fn on_decision(&mut self, node: u16, decision: &Decision, now: Instant) {
        let Some(known) = self.nodes.get(node) else { return };
        let place = match known.settle(decision.sequence) {
            Settled::Awaited(place) => place,
            Settled::Late(flow) => return self.flows[usize::from(flow)].account.late += 1,
            // Whose event it was is not known any more: the first flow counts it.
            Settled::Nobody => return self.flows[0].account.ignored += 1,
        };
        match decision.verdict {
            Verdict::NotReceived => self.send_again(place, |account| &mut account.not_received),
            Verdict::Accept | Verdict::Reject => {
                let accept = decision.verdict == Verdict::Accept;
                self.decide(place, Ruling { accept, word: decision.word, by_default: false }, now);
            }
        }
    }

    /// The node has decided, and the message that said how was lost.
    fn on_lost_decision(&mut self, node: u16, sequence: u64) {
        if is_planted(Flaw::LostDecisionKeepsCredit) {
            return;
        }
        let settled = self.nodes.get(node).map(|node| node.settle(sequence));
        if let Some(Settled::Awaited(place)) = settled {
            self.send_again(place, |account| &mut account.lost);
        }
    }

    /// An event waits for a node again, before all others.
    fn send_again(&mut self, place: EventPlace, count: impl Fn(&mut super::FarmAccount) -> &mut u64) {
        let Some(held) = self.held(place) else { return };
        held.set.events[usize::from(place.event)].stage = Stage::Waiting;
        let flow = usize::from(held.set.flow);
        let flow = &mut self.flows[flow];
        make_room(&mut flow.waiting, 1, &self.slots);
        flow.waiting.push_front(place);
        *count(&mut flow.account) += 1;
    }

    /// Nothing that a node has is awaited from it any more.
    pub(super) fn take_back(&mut self, node: u16) {
        let mut places = arrayvec::ArrayVec::<EventPlace, { ropewalk_wire::gateway::MOST_OUTSTANDING as usize }>::new();
        if let Some(known) = self.nodes.get(node) {
            known.take_back(|place| places.push(place));
        }
        places.into_iter().for_each(|place| self.send_again(place, |account| &mut account.taken_back));
    }

    /// The time of a set's events is over.
    pub(super) fn decide_by_default(&mut self, slot: u16, now: Instant) {
        let Some(held) = &self.slots[usize::from(slot)] else { return };
        let (serial, events) = (held.serial, held.set.events.len() as u16);
        let flow = held.set.flow;
        let decision = self.flows[usize::from(flow)].config.default_decision;
        let ruling = Ruling { accept: decision.accept, word: decision.word, by_default: true };
        for event in 0..events {
            let place = EventPlace { slot, event, serial };
            let stage = self.held(place).map(|held| held.set.events[usize::from(event)].stage);
            if let Some(Stage::Sent { node, sequence }) = stage
                && let Some(node) = self.nodes.get(node).filter(|_| !is_planted(Flaw::DecidedTwice))
            {
                node.give_up(sequence, flow);
            }
            if stage.is_some_and(|stage| stage != Stage::Decided) {
                self.decide(place, ruling, now);
            }
        }
    }

    fn decide(&mut self, place: EventPlace, ruling: Ruling, now: Instant) {
        let Some(held) = self.slots[usize::from(place.slot)].as_mut().filter(|held| held.serial == place.serial) else {
            return;
        };
        let flow = &mut self.flows[usize::from(held.set.flow)];
        let event = &mut held.set.events[usize::from(place.event)];
        event.stage = Stage::Decided;
        (event.accept, event.word, event.by_default) = (ruling.accept, ruling.word, ruling.by_default);
        held.undecided -= 1;
        let account = &mut flow.account;
        let events = &mut account.events;
        let is_whole = held.set.ending == Ending::Complete;
        *(if is_whole { &mut events.built } else { &mut events.incomplete_emitted }) += 1;
        *(if ruling.accept { &mut events.accepted } else { &mut events.rejected }) += 1;
        *(if ruling.by_default { &mut account.by_default } else { &mut account.decided }) += 1;
        account.in_budget += u64::from(now.since(held.set.opened) <= flow.config.budget);
        match flow.config.output {
            Output::Stream => held.leaving += 1,
            Output::Storage if ruling.accept || is_planted(Flaw::RejectStored) => {
                held.leaving += 1;
                flow.stored.push_back(place);
            }
            Output::Storage => {}
        }
        self.release(place.slot);
    }

    /// When a node is to be told which sequence numbers there are.
    pub(super) fn next_told(&self) -> Instant {
        let due = |told: Option<Instant>| told.map_or(Instant::ZERO, |told| told.after(self.heartbeat));
        let present = self.nodes.iter().filter(|node| node.is_present());
        present.map(|node| due(node.told)).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// A node that was told nothing for a while, and what it is to be told.
    pub fn next_progress(&mut self, now: Instant) -> Option<(u16, Progress)> {
        let (gateway, incarnation, heartbeat) = (self.gateway, self.incarnation, self.heartbeat);
        let is_due = |told: Option<Instant>| told.is_none_or(|told| told.after(heartbeat) <= now);
        let due = self.nodes.iter().position(|node| node.is_present() && is_due(node.told))? as u16;
        let node = self.nodes.get(due)?;
        node.told = Some(now);
        Some((due, Progress { gateway, incarnation, next: node.next, floor: node.awaited_from() }))
    }
}
