//! The event managers that a node knows: it calls all of them, and obeys one, the youngest that welcomes it.
//!
//! ```text
//!   call every address --Welcome, epoch as high as any heard of--> obeyed, the one before is told and left
//!        ^                --Welcome, lower epoch--> left
//!        +--- pause -- --Refuse (it stands by)---> left
//! ```

use super::link::Outbox;
use ropewalk_io::{Dispatcher, Endpoint};
use ropewalk_terms::{Epoch, Instant};
use ropewalk_wire::message::{Message, RefuseReason};
use std::time::Duration;

/// Pause before an event manager is called again.
const RETRY: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Call {
    address: String,
    endpoint: Option<Endpoint>,
    retry: Instant,
}

/// What a welcome means.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Welcomed {
    /// This event manager is obeyed from now on; the one that was until now, if any, is left.
    Obeyed {
        /// The connection to the one before, which is closed.
        left: Option<Endpoint>,
    },
    /// Another one is obeyed.
    TooOld,
}

/// Event managers by address; at most one is obeyed.
#[derive(Debug)]
pub(super) struct Managers {
    calls: Vec<Call>,
    obeyed: Option<(Endpoint, Epoch)>,
    /// The highest that was heard of.
    epoch: Epoch,
}

impl Managers {
    /// Nobody is obeyed.
    pub(super) fn new(addresses: &[String]) -> Self {
        let call = |address: &String| Call { address: address.clone(), endpoint: None, retry: Instant::ZERO };
        Self { calls: addresses.iter().map(call).collect(), obeyed: None, epoch: Epoch(0) }
    }

    /// Calls whoever is not connected, where it is time; `opened` is told of each new connection.
    pub(super) fn call(&mut self, now: Instant, peers: &mut impl Dispatcher, mut opened: impl FnMut(Endpoint)) {
        for call in self.calls.iter_mut().filter(|call| call.endpoint.is_none() && now >= call.retry) {
            call.retry = now.after(RETRY);
            call.endpoint = peers.connect(&call.address).ok();
            call.endpoint.into_iter().for_each(&mut opened);
        }
    }

    /// Whether the connection leads to an event manager.
    pub(super) fn has(&self, endpoint: Endpoint) -> bool {
        self.calls.iter().any(|call| call.endpoint == Some(endpoint))
    }

    /// Where the connection leads to.
    pub(super) fn address_of(&self, endpoint: Endpoint) -> &str {
        self.calls.iter().find(|call| call.endpoint == Some(endpoint)).map_or("", |call| &call.address)
    }

    /// An event manager of this epoch welcomes the node. Whoever is not obeyed now is told why; the one that was obeyed
    /// until now may be alive and not know it, and its connection is closed.
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
        if epoch < self.epoch || has_one {
            return Welcomed::TooOld;
        }
        self.epoch = epoch;
        let before = self.obeyed.replace((endpoint, epoch));
        let left = before.map(|(obeyed, _)| obeyed).filter(|&obeyed| obeyed != endpoint);
        for call in self.calls.iter_mut().filter(|call| left.is_some() && call.endpoint == left) {
            call.endpoint = None;
        }
        Welcomed::Obeyed { left }
    }

    /// Whether an order in this epoch that came over this connection is obeyed.
    pub(super) fn is_obeyed(&self, endpoint: Endpoint, epoch: Epoch) -> bool {
        self.obeyed == Some((endpoint, epoch)) && epoch >= self.epoch
    }

    /// Another node obeys an event manager of this epoch: nobody obeys a lower one any more.
    pub(super) fn hear_of(&mut self, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
    }

    /// A connection has ended. Whether it was the one to the event manager that is obeyed.
    pub(super) fn lost(&mut self, now: Instant, endpoint: Endpoint) -> bool {
        for call in self.calls.iter_mut().filter(|call| call.endpoint == Some(endpoint)) {
            (call.endpoint, call.retry) = (None, now.after(RETRY));
        }
        self.obeyed.take_if(|(obeyed, _)| *obeyed == endpoint).is_some()
    }

    /// The connection to the one that is obeyed.
    pub(super) fn obeyed(&self) -> Option<Endpoint> {
        self.obeyed.map(|(endpoint, _)| endpoint)
    }

    /// When somebody is to be called.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.calls.iter().filter(|call| call.endpoint.is_none()).map(|call| call.retry).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Endpoint = Endpoint::new(1, 0);
    const OTHER: Endpoint = Endpoint::new(2, 0);

    /// Connected to two, obeying nobody.
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
        assert!(!managers.is_obeyed(ONE, Epoch(1)), "nobody has welcomed this node");
        assert_eq!(managers.welcome(ONE, Epoch(1)), Welcomed::Obeyed { left: None });
        assert!(managers.is_obeyed(ONE, Epoch(1)) && !managers.is_obeyed(OTHER, Epoch(1)));
        assert_eq!(managers.welcome(OTHER, Epoch(2)), Welcomed::Obeyed { left: Some(ONE) });
        assert!(managers.is_obeyed(OTHER, Epoch(2)) && !managers.is_obeyed(ONE, Epoch(2)));
        assert_eq!((managers.obeyed(), managers.has(ONE)), (Some(OTHER), false));
    }

    #[test]
    fn one_that_wakes_up_with_a_lower_epoch_is_too_old_even_where_nobody_else_is_there() {
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
    fn whoever_is_lost_is_called_again_after_a_pause() {
        let mut managers = managers();
        assert_eq!(managers.next_deadline(), None);
        let now = Instant::from_nanoseconds(5);
        assert!(!managers.lost(now, ONE), "it was not obeyed");
        assert_eq!(managers.next_deadline(), Some(now.after(RETRY)));
    }
}
