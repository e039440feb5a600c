//! The coordination service that event managers with a lease ask: it has a clock of its own, loses some of what it is
//! asked and answered, is late, and can be cut off.

use super::clock::NodeClock;
use super::draw::Draw;
use super::scenario::{COORDINATION_STREAM, Scenario};
use ropewalk_flow::manager::LeaseAnswer;
use ropewalk_node::drive::Coordination;
use ropewalk_terms::{Epoch, Instant};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// One in so many answers is lost.
const LOST: u64 = 20;
/// One in so many is late by up to [`LATE`]; others by up to [`USUAL`].
const RARE: u64 = 12;
const LATE: Duration = Duration::from_secs(1);
const USUAL: Duration = Duration::from_millis(5);

/// Whoever has the lease.
#[derive(Copy, Clone, Debug)]
struct Holder {
    manager: u16,
    until: Instant,
}

/// An answer on its way.
#[derive(Copy, Clone, Debug)]
struct Answer {
    line: u64,
    arrives: Instant,
    question: u64,
    answer: LeaseAnswer,
}

/// How an event manager reaches the service.
#[derive(Copy, Clone, Debug, Default)]
struct Reach {
    /// So many faults cut it off.
    cuts: u32,
    /// Answers take so much longer.
    late: Duration,
}

/// The service: grants the lease to one at a time, each new grant in a new epoch.
#[derive(Debug)]
pub(super) struct Service {
    draw: Draw,
    term: Duration,
    holder: Option<Holder>,
    epoch: u32,
    reach: [Reach; 2],
    answers: Vec<Answer>,
    lines: u64,
    is_over: bool,
}

/// The service, for everybody who asks it.
pub(super) type SharedService = Rc<RefCell<Service>>;

impl Service {
    /// Nobody has the lease.
    pub(super) fn new(scenario: &Scenario, term: Duration) -> SharedService {
        let draw = Draw::new(scenario.seed, COORDINATION_STREAM);
        let (answers, reach) = (Vec::new(), [Reach::default(); 2]);
        let service = Self { draw, term, holder: None, epoch: 0, reach, answers, lines: 0, is_over: false };
        Rc::new(RefCell::new(service))
    }

    /// From now on a fault cuts an event manager off, or one does not any more.
    pub(super) fn set_cut(&mut self, manager: u16, is_cut: bool) {
        let cuts = &mut self.reach[usize::from(manager)].cuts;
        *cuts = if is_cut { *cuts + 1 } else { cuts.saturating_sub(1) };
    }

    /// From now on answers to an event manager take so much longer.
    pub(super) fn set_late(&mut self, manager: u16, late: Duration) {
        self.reach[usize::from(manager)].late = late;
    }

    /// The run has ended: nobody is given the lease any more.
    pub(super) const fn close(&mut self) {
        self.is_over = true;
    }

    /// Who has the lease by the service's own clock, and in which epoch.
    fn held(&self, now: Instant) -> Option<(u16, Epoch)> {
        self.holder.filter(|holder| now < holder.until).map(|holder| (holder.manager, Epoch(self.epoch)))
    }

    fn ask(&mut self, now: Instant, line: &Line, question: u64, renews: Option<Epoch>) {
        let reach = self.reach[usize::from(line.manager)];
        let is_lost = self.draw.one_in(LOST);
        let most = if self.draw.one_in(RARE) { LATE } else { USUAL };
        let late = self.draw.time(Duration::from_micros(50), most) + reach.late;
        if reach.cuts > 0 || is_lost {
            return;
        }
        let held = self.held(now).map(|(holder, _)| holder);
        let answer = if self.is_over || held.is_some_and(|holder| holder != line.manager) {
            LeaseAnswer::Denied
        } else {
            self.epoch += u32::from(held.is_none() || renews != Some(Epoch(self.epoch)));
            self.holder = Some(Holder { manager: line.manager, until: now.after(self.term) });
            LeaseAnswer::Granted(Epoch(self.epoch))
        };
        self.answers.push(Answer { line: line.line, arrives: now.after(late), question, answer });
    }

    fn answer(&mut self, now: Instant, line: &Line) -> Option<(u64, LeaseAnswer)> {
        let is_due = |one: &Answer| one.line == line.line && now >= one.arrives;
        // What comes while it is cut off is lost.
        if self.reach[usize::from(line.manager)].cuts > 0 {
            self.answers.retain(|one| !is_due(one));
        }
        let next = self.answers.iter().position(is_due)?;
        let Answer { question, answer, .. } = self.answers.remove(next);
        Some((question, answer))
    }
}

/// The way of one life of an event manager to the service.
pub(super) struct Line {
    service: SharedService,
    manager: u16,
    /// Answers to an earlier life find nobody.
    line: u64,
    clock: NodeClock,
}

impl Line {
    /// A way for a new life.
    pub(super) fn new(service: &SharedService, manager: u16, clock: &NodeClock) -> Self {
        let line = {
            let mut service = service.borrow_mut();
            service.lines += 1;
            service.lines
        };
        Self { service: Rc::clone(service), manager, line, clock: clock.clone() }
    }

    /// The epoch of the lease that this event manager has now by the service's clock.
    pub(super) fn held(&self) -> Option<Epoch> {
        let held = self.service.borrow().held(self.clock.world());
        held.filter(|&(holder, _)| holder == self.manager).map(|(_, epoch)| epoch)
    }
}

impl Coordination for Line {
    fn ask(&mut self, _now: Instant, question: u64, renews: Option<Epoch>) {
        let now = self.clock.world();
        self.service.borrow_mut().ask(now, self, question, renews);
    }

    fn answer(&mut self, _now: Instant) -> Option<(u64, LeaseAnswer)> {
        let now = self.clock.world();
        self.service.borrow_mut().answer(now, self)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let service = self.service.borrow();
        let own = service.answers.iter().filter(|one| one.line == self.line);
        own.map(|one| self.clock.local_from(one.arrives)).min()
    }
}
