//! Two lives of one node: a connection says that it is a node which is connected already.
//!
//! The node may have restarted, and its earlier connection was never closed, because its machine lost power.
//! Or a stranger claims the name of a node that works. The earlier connection keeps its place if it
//! says something after the hello, and loses it when it has been silent for a while. Nodes report several times a second.

use ropewalk_io::Endpoint;
use ropewalk_terms::{Instant, NodeId};
use ropewalk_wire::message::Header;
use std::time::Duration;

/// Bytes that were in transit when the hello came do not prove that the sender is alive.
const ON_ITS_WAY: Duration = Duration::from_millis(100);
/// A node that reports rarely may miss this many reports.
const REPORTS: u32 = 3;
/// A node that is silent for this long counts as dead.
const SILENCE: Duration = Duration::from_secs(1);

/// A connection that waits for a node's place.
#[derive(Debug)]
struct Rival {
    endpoint: Endpoint,
    header: Header,
    since: Instant,
    /// When it is to be looked at again.
    look: Instant,
}

/// What becomes of a connection that waited.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The earlier one is dead.
    Takes,
    /// The earlier one lives.
    StaysOut,
}

/// Connections that wait for the places of nodes, one for each at most.
#[derive(Debug)]
pub(super) struct Rivals {
    waiting: Vec<Rival>,
    silence: Duration,
}

impl Default for Rivals {
    fn default() -> Self {
        Self { waiting: Vec::with_capacity(8), silence: SILENCE }
    }
}

impl Rivals {
    /// From now on nodes report this often.
    pub(super) fn reports_come(&mut self, interval: Duration) {
        self.silence = SILENCE.max(REPORTS * interval);
    }

    /// A connection wants a place that is taken. False where another one waits for it already.
    pub(super) fn add(&mut self, now: Instant, endpoint: Endpoint, header: &Header) -> bool {
        if self.waiting.iter().any(|rival| rival.header.sender == header.sender) {
            return false;
        }
        self.waiting.push(Rival { endpoint, header: *header, since: now, look: now });
        true
    }

    /// A connection that waits has ended.
    pub(super) fn lost(&mut self, endpoint: Endpoint) {
        self.waiting.retain(|rival| rival.endpoint != endpoint);
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// The next one of which it is known what becomes of it; `heard` says when a node's present connection spoke last.
    pub(super) fn next(
        &mut self,
        now: Instant,
        heard: impl Fn(NodeId) -> Option<Instant>,
    ) -> Option<(Endpoint, Header, Verdict)> {
        for index in 0..self.waiting.len() {
            let rival = &mut self.waiting[index];
            let verdict = match heard(rival.header.sender) {
                None => Verdict::Takes,
                Some(heard) if heard > rival.since.after(ON_ITS_WAY) => Verdict::StaysOut,
                Some(heard) if now >= heard.after(self.silence) => Verdict::Takes,
                Some(heard) => {
                    rival.look = heard.after(self.silence);
                    continue;
                }
            };
            let rival = self.waiting.swap_remove(index);
            return Some((rival.endpoint, rival.header, verdict));
        }
        None
    }

    /// When the next one is to be looked at even if nothing comes.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|rival| rival.look).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_terms::{Epoch, Incarnation, RunNumber};
    use ropewalk_wire::message::Kind;

    const ONE: Endpoint = Endpoint::new(1, 0);
    const OTHER: Endpoint = Endpoint::new(2, 0);

    fn at(milliseconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(milliseconds))
    }

    fn hello(index: u16) -> Header {
        let (run, epoch, incarnation) = (RunNumber(1), Epoch(1), Incarnation(9));
        Header { kind: Kind::Hello, body: 0, run, epoch, sender: NodeId::builder(index), incarnation }
    }

    /// Of one that waits since 10 s: what becomes of it at this time, where the present connection spoke then.
    fn verdict(now: u64, heard: Option<u64>) -> Option<Verdict> {
        let mut rivals = Rivals::default();
        assert!(rivals.add(at(10_000), ONE, &hello(0)));
        rivals.next(at(now), |_| heard.map(at)).map(|(_, _, verdict)| verdict)
    }

    #[test]
    fn who_speaks_keeps_the_place_and_who_is_silent_or_gone_loses_it() {
        assert_eq!(verdict(10_000, None), Some(Verdict::Takes));
        assert_eq!(verdict(10_000, Some(9_000)), Some(Verdict::Takes), "it was silent for long");
        assert_eq!(verdict(10_000, Some(9_900)), None);
        assert_eq!(verdict(10_100, Some(10_100)), None, "that was on its way");
        assert_eq!(verdict(11_100, Some(10_100)), Some(Verdict::Takes));
        assert_eq!(verdict(10_101, Some(10_101)), Some(Verdict::StaysOut));
    }

    #[test]
    fn nodes_that_report_seldom_are_believed_for_longer() {
        let mut rivals = Rivals::default();
        rivals.reports_come(Duration::from_secs(2));
        rivals.add(at(0), ONE, &hello(0));
        assert!(rivals.next(at(5_999), |_| Some(at(0))).is_none());
        assert_eq!(rivals.next_deadline(), Some(at(6_000)));
        assert!(rivals.next(at(6_000), |_| Some(at(0))).is_some());
        assert_eq!(rivals.next_deadline(), None);
    }

    #[test]
    fn one_connection_at_most_waits_for_each_place() {
        let mut rivals = Rivals::default();
        assert!(rivals.add(at(0), ONE, &hello(0)) && !rivals.add(at(0), OTHER, &hello(0)));
        assert!(rivals.add(at(0), OTHER, &hello(1)));
        rivals.lost(ONE);
        assert_eq!(rivals.next(at(0), |_| None).map(|(endpoint, ..)| endpoint), Some(OTHER));
        assert!(rivals.next(at(0), |_| None).is_none());
    }
}
