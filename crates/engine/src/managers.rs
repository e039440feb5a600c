//! The event managers that a readout or builder unit knows: which one it obeys, and how it leaves a run.
//!
//! ```text
//!   call every address --Welcome, epoch as high as any heard of--> obeyed, the earlier one is left with notice
//!        ^                --Welcome, lower epoch--> left
//!        +--- pause -- --Refuse (it stands by)---> left
//! ```
//! A unit calls all event managers and obeys one: the one with the highest epoch that welcomes it.
//! If the UTC clock of a node was set back, its incarnation is lower than the previous one. As long as no event manager
//! has welcomed the node, it has done nothing under this incarnation, and may take one above the known one: see
//! [`Managers::refused`].
//!
//! At the end of a run the event manager asks the unit to finish, the unit sends its last report, the event manager
//! dismisses it, and it exits. An event manager may die before it has all reports. A unit that was not dismissed
//! therefore waits for a successor, which may have events built again that its predecessor knew as done.

use super::link::{Identity, Outbox, Refusal};
use ropewalk_flow::control::RunPhase;
use ropewalk_io::{Dispatcher, Endpoint};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Epoch, Incarnation, Instant, NodeId, RunNumber};
use ropewalk_wire::message::{Header, Message, RefuseReason};
use std::time::Duration;

/// Pause before an event manager is called again.
const RETRY: Duration = Duration::from_millis(200);
/// Time for which a newer incarnation of this node may seem to exist before that is believed. A machine that lost power
/// left a connection behind; a dead connection is detected in half of this time.
const TWIN: Duration = Duration::from_secs(60);
/// Time for which the place may be occupied by an active incarnation.
const TAKEN: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Call {
    address: String,
    endpoint: Option<Endpoint>,
    retry: Instant,
}

/// Result of a welcome.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Welcomed {
    /// This event manager is obeyed from now on. The connection to the previous one is closed.
    Obeyed {
        /// The connection to the previous one, if any, which is closed.
        left: Option<Endpoint>,
    },
    /// Another event manager is obeyed.
    TooOld,
}

/// Event managers by address; at most one is obeyed.
#[derive(Debug)]
pub(super) struct Managers {
    calls: Vec<Call>,
    obeyed: Option<(Endpoint, Epoch)>,
    /// The highest known epoch.
    epoch: Epoch,
    /// Whether an event manager has welcomed this incarnation of the node. From then on its incarnation is fixed.
    is_known: bool,
    /// When the existence of a newer incarnation of this node is believed.
    twin: Option<Instant>,
    /// The sender of the order that was carried out last.
    last_order: Option<(Epoch, Incarnation)>,
}

impl Managers {
    /// Creates the list; no event manager is obeyed yet.
    pub(super) fn new(addresses: &[String]) -> Self {
        let call = |address: &String| Call { address: address.clone(), endpoint: None, retry: Instant::ZERO };
        let calls = addresses.iter().map(call).collect();
        Self { calls, obeyed: None, epoch: Epoch(0), is_known: false, twin: None, last_order: None }
    }

    /// Connects to the event managers that are not connected and whose retry is due. `opened` is called with each new
    /// connection.
    pub(super) fn call(&mut self, now: Instant, peers: &mut impl Dispatcher, mut opened: impl FnMut(Endpoint)) {
        for call in self.calls.iter_mut().filter(|call| call.endpoint.is_none() && now >= call.retry) {
            call.retry = now.after(RETRY);
            call.endpoint = peers.connect(&call.address).ok();
            call.endpoint.into_iter().for_each(&mut opened);
        }
    }

    /// Returns whether the connection leads to an event manager.
    pub(super) fn has(&self, endpoint: Endpoint) -> bool {
        self.calls.iter().any(|call| call.endpoint == Some(endpoint))
    }

    /// Returns the address that the connection leads to.
    pub(super) fn address_of(&self, endpoint: Endpoint) -> &str {
        self.calls.iter().find(|call| call.endpoint == Some(endpoint)).map_or("", |call| &call.address)
    }

    /// Handles the welcome of an event manager of this epoch. The node tells a manager that it does not obey why.
    /// The previously obeyed one may be alive without knowing of the change: its connection is closed.
    pub(super) fn welcomed(
        &mut self,
        endpoint: Endpoint,
        epoch: Epoch,
        outbox: &mut Outbox,
        peers: &mut impl Dispatcher,
    ) -> Welcomed {
        let welcomed = self.welcome(endpoint, epoch);
        match welcomed {
            Welcomed::TooOld => {
                let _ = outbox.send(peers, endpoint, &Message::Refuse(RefuseReason::OldEpoch));
            }
            Welcomed::Obeyed { left } => {
                outbox.identity.epoch = epoch;
                if let Some(left) = left {
                    let _ = outbox.send(peers, left, &Message::Refuse(RefuseReason::OldEpoch));
                    peers.close(left);
                }
            }
        }
        welcomed
    }

    fn welcome(&mut self, endpoint: Endpoint, epoch: Epoch) -> Welcomed {
        let has_one = self.obeyed.is_some_and(|(obeyed, known)| obeyed != endpoint && epoch == known);
        let is_lower = epoch < self.epoch && !is_planted(Flaw::StaleEpochAccepted);
        if is_lower || has_one {
            return Welcomed::TooOld;
        }
        (self.epoch, self.is_known, self.twin) = (epoch, true, None);
        let before = self.obeyed.replace((endpoint, epoch));
        let left = before.map(|(obeyed, _)| obeyed).filter(|&obeyed| obeyed != endpoint);
        for call in self.calls.iter_mut().filter(|call| left.is_some() && call.endpoint == left) {
            call.endpoint = None;
        }
        Welcomed::Obeyed { left }
    }

    /// Handles a refusal by an event manager. Returns it if it is final. Otherwise the manager is called again, perhaps
    /// with another incarnation number.
    pub(super) fn refused(
        &mut self,
        now: Instant,
        endpoint: Endpoint,
        reason: RefuseReason,
        identity: &mut Identity,
    ) -> Option<Refusal> {
        match reason {
            RefuseReason::LateIncarnation(Incarnation(known)) if !self.is_known => {
                identity.incarnation = Incarnation(known.saturating_add(1));
                None
            }
            // The earlier incarnation may be dead without anything having detected it yet.
            RefuseReason::OldIncarnation if !self.is_known && now < *self.twin.get_or_insert(now.after(TWIN)) => None,
            // The other incarnation may be about to end, as after a restart.
            RefuseReason::Taken if now < *self.twin.get_or_insert(now.after(TAKEN)) => None,
            _ => Refusal::timer(NodeId::MANAGER, self.address_of(endpoint), reason),
        }
    }

    /// Returns whether an order of this epoch that arrived over this connection is obeyed.
    pub(super) fn is_obeyed(&self, endpoint: Endpoint, epoch: Epoch) -> bool {
        self.obeyed == Some((endpoint, epoch)) && epoch >= self.epoch
    }

    /// Records that an order with this header is carried out.
    pub(super) const fn note_order(&mut self, header: &Header) {
        self.last_order = Some((header.epoch, header.incarnation));
    }

    /// Returns the epoch and the incarnation of the event manager whose order was carried out last.
    pub(super) const fn last_order(&self) -> Option<(Epoch, Incarnation)> {
        self.last_order
    }

    /// Records that another node obeys an event manager of this epoch. Lower epochs are no longer obeyed.
    pub(super) fn hear_of(&mut self, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
    }

    /// Handles the end of a connection. Returns whether it was the one to the obeyed event manager.
    pub(super) fn lost(&mut self, now: Instant, endpoint: Endpoint) -> bool {
        for call in self.calls.iter_mut().filter(|call| call.endpoint == Some(endpoint)) {
            (call.endpoint, call.retry) = (None, now.after(RETRY));
        }
        self.obeyed.take_if(|(obeyed, _)| *obeyed == endpoint).is_some()
    }

    /// Returns the connection to the obeyed event manager.
    pub(super) fn obeyed(&self) -> Option<Endpoint> {
        self.obeyed.map(|(endpoint, _)| endpoint)
    }

    /// Returns when the next call to an event manager is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.calls.iter().filter(|call| call.endpoint.is_none()).map(|call| call.retry).min()
    }
}

/// Time for which a unit that has to finish waits for another event manager.
const PATIENCE: Duration = Duration::from_secs(60);

/// Progress of the end of the run.
#[derive(Debug, Default)]
pub(super) struct Shutdown {
    /// Whether the obeyed event manager has sent `Finish`.
    told: bool,
    /// Whether any event manager has sent `Finish`.
    was_told: bool,
    said: bool,
    dismissed: bool,
    leaving: bool,
    patient_until: Option<Instant>,
    done: bool,
}

impl Shutdown {
    /// Records that the event manager announced the end of the events.
    pub(super) const fn finish(&mut self) {
        (self.told, self.was_told) = (true, true);
    }

    /// Returns whether the obeyed event manager has done so.
    pub(super) const fn is_told(&self) -> bool {
        self.told
    }

    /// Records that the last message to this event manager was sent.
    pub(super) const fn say(&mut self) {
        self.said = true;
    }

    /// Returns whether the last message was sent.
    pub(super) const fn is_said(&self) -> bool {
        self.said
    }

    /// Records that the event manager has the complete account.
    pub(super) const fn dismiss(&mut self) {
        self.dismissed = true;
    }

    /// Records that another event manager is obeyed: no messages of the end were exchanged with it yet.
    pub(super) fn manager_came(&mut self) {
        *self = Self { was_told: self.was_told, done: self.done, ..Self::default() };
    }

    /// Records the loss of the obeyed event manager.
    pub(super) fn manager_lost(&mut self, now: Instant) {
        if self.was_told {
            self.done |= self.dismissed;
            self.patient_until = Some(now.after(PATIENCE));
        }
    }

    /// Returns whether to close the connection to the event manager now; true once.
    pub(super) const fn leaves(&mut self) -> bool {
        self.said && self.dismissed && !core::mem::replace(&mut self.leaving, true)
    }

    /// Ends the unit, in any state.
    pub(super) const fn end(&mut self) {
        self.done = true;
    }

    /// Checks the time limit.
    pub(super) fn look(&mut self, now: Instant) {
        self.done |= self.patient_until.is_some_and(|until| now >= until);
    }

    /// Returns when the time limit expires.
    pub(super) const fn next_deadline(&self) -> Option<Instant> {
        self.patient_until
    }

    /// Returns whether the unit needs no further turn.
    pub(super) const fn is_done(&self) -> bool {
        self.done
    }

    /// Returns the phase of the run as the unit sees it. The unit gets orders, not the phases of the run.
    pub(super) fn phase(&self, run: RunNumber, has_manager: bool) -> RunPhase {
        match (self.done, self.was_told) {
            (true, _) => RunPhase::Ended,
            (_, true) => RunPhase::Draining,
            _ if run != RunNumber(0) => RunPhase::Running,
            _ if has_manager => RunPhase::Configured,
            _ => RunPhase::Initial,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_terms::RunNumber;

    const ONE: Endpoint = Endpoint::new(1, 0);
    const OTHER: Endpoint = Endpoint::new(2, 0);

    /// Returns a list connected to two event managers, obeying neither.
    fn managers() -> Managers {
        let mut managers = Managers::new(&["one".to_owned(), "other".to_owned()]);
        for (call, endpoint) in managers.calls.iter_mut().zip([ONE, OTHER]) {
            call.endpoint = Some(endpoint);
        }
        managers
    }

    #[test]
    fn the_youngest_that_welcomes_is_obeyed() {
        let mut managers = managers();
        assert!(!managers.is_obeyed(ONE, Epoch(1)), "no event manager has welcomed this node");
        assert_eq!(managers.welcome(ONE, Epoch(1)), Welcomed::Obeyed { left: None });
        assert!(managers.is_obeyed(ONE, Epoch(1)) && !managers.is_obeyed(OTHER, Epoch(1)));
        assert_eq!(managers.welcome(OTHER, Epoch(2)), Welcomed::Obeyed { left: Some(ONE) });
        assert!(managers.is_obeyed(OTHER, Epoch(2)) && !managers.is_obeyed(ONE, Epoch(2)));
        assert_eq!((managers.obeyed(), managers.has(ONE)), (Some(OTHER), false));
    }

    #[test]
    fn one_that_wakes_up_with_a_lower_epoch_is_too_old_even_where_it_is_alone() {
        let mut managers = managers();
        managers.welcome(OTHER, Epoch(2));
        assert!(managers.lost(Instant::ZERO, OTHER));
        assert_eq!(managers.welcome(ONE, Epoch(1)), Welcomed::TooOld);
        assert_eq!(managers.obeyed(), None);
    }

    #[test]
    fn of_two_with_one_epoch_the_first_is_obeyed() {
        let mut managers = managers();
        managers.welcome(ONE, Epoch(3));
        assert_eq!(managers.welcome(OTHER, Epoch(3)), Welcomed::TooOld);
        assert!(managers.is_obeyed(ONE, Epoch(3)));
    }

    #[test]
    fn an_epoch_that_other_nodes_speak_of_ends_the_lower_one() {
        let mut managers = managers();
        managers.welcome(ONE, Epoch(1));
        managers.hear_of(Epoch(2));
        assert!(!managers.is_obeyed(ONE, Epoch(1)));
        assert_eq!(managers.welcome(OTHER, Epoch(2)), Welcomed::Obeyed { left: Some(ONE) });
    }

    #[test]
    fn a_lost_event_manager_is_called_again_after_a_pause() {
        let mut managers = managers();
        assert_eq!(managers.next_deadline(), None);
        let now = Instant::from_nanoseconds(5);
        assert!(!managers.lost(now, ONE), "it was not obeyed");
        assert_eq!(managers.next_deadline(), Some(now.after(RETRY)));
    }

    fn refuse(managers: &mut Managers, now: Instant, reason: RefuseReason) -> (Option<RefuseReason>, Incarnation) {
        let (node, epoch) = (NodeId::builder(0), Epoch(0));
        let mut identity = Identity { node, incarnation: Incarnation(5), run: RunNumber(0), epoch };
        let refusal = managers.refused(now, ONE, reason, &mut identity);
        (refusal.map(|refusal| refusal.reason), identity.incarnation)
    }

    #[test]
    fn a_life_that_was_never_taken_in_takes_a_higher_incarnation() {
        let late = RefuseReason::LateIncarnation(Incarnation(70));
        assert_eq!(refuse(&mut managers(), Instant::ZERO, late), (None, Incarnation(71)));
        let mut known = managers();
        known.welcome(ONE, Epoch(1));
        assert_eq!(refuse(&mut known, Instant::ZERO, late), (Some(late), Incarnation(5)));
    }

    #[test]
    fn a_place_that_is_taken_is_asked_for_again_for_a_while() {
        let mut managers = managers();
        for (passed, timer) in [(0, None), (4, None), (5, Some(RefuseReason::Taken))] {
            let now = Instant::ZERO.after(Duration::from_secs(passed));
            assert_eq!(refuse(&mut managers, now, RefuseReason::Taken).0, timer);
        }
    }

    #[test]
    fn a_younger_life_that_seems_to_be_there_is_waited_for_and_then_believed() {
        let (old, mut managers) = (RefuseReason::OldIncarnation, managers());
        for (passed, timer) in [(0, None), (59, None), (60, Some(old))] {
            let now = Instant::ZERO.after(Duration::from_secs(passed));
            assert_eq!(refuse(&mut managers, now, old), (timer, Incarnation(5)));
        }
        let mut known = self::managers();
        known.welcome(ONE, Epoch(1));
        assert_eq!(refuse(&mut known, Instant::ZERO, old).0, Some(old), "it is a leftover");
    }

    const NOW: Instant = Instant::from_nanoseconds(1);

    #[test]
    fn a_unit_that_has_said_all_and_is_dismissed_leaves_once() {
        let mut shutdown = Shutdown::default();
        shutdown.finish();
        shutdown.dismiss();
        assert!(!shutdown.leaves(), "its last word is not said");
        shutdown.say();
        assert!(shutdown.leaves() && !shutdown.leaves() && !shutdown.is_done());
        shutdown.manager_lost(NOW);
        assert!(shutdown.is_done());
    }

    #[test]
    fn a_unit_that_is_not_dismissed_reports_to_the_next_event_manager() {
        let mut shutdown = Shutdown::default();
        shutdown.finish();
        shutdown.say();
        shutdown.manager_lost(NOW);
        shutdown.look(NOW.after(PATIENCE / 2));
        assert!(!shutdown.is_done());
        shutdown.manager_came();
        assert!(!shutdown.is_said() && !shutdown.is_told(), "the next one may go on with the run");
        shutdown.look(NOW.after(PATIENCE));
        assert!(!shutdown.is_done(), "an event manager is connected");
        shutdown.manager_lost(NOW);
        assert_eq!(shutdown.next_deadline(), Some(NOW.after(PATIENCE)), "nor is that one waited for without an end");
        shutdown.manager_came();
        shutdown.finish();
        shutdown.say();
        shutdown.dismiss();
        assert!(shutdown.leaves());
    }

    #[test]
    fn patience_ends() {
        let mut shutdown = Shutdown::default();
        shutdown.manager_lost(NOW);
        assert_eq!(shutdown.next_deadline(), None, "in mid-run it waits for ever");
        shutdown.finish();
        shutdown.manager_lost(NOW);
        assert_eq!(shutdown.next_deadline(), Some(NOW.after(PATIENCE)));
        shutdown.look(NOW.after(PATIENCE));
        assert!(shutdown.is_done());
    }
}
