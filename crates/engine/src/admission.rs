//! Connections without a confirmed identity: strangers, and rivals for the identity of a node that is already
//! connected.
//!
//! A node sends its hello immediately. Therefore only a few unidentified connections are kept, and only for a short
//! time.
//!
//! A rival claims to be a node that is already connected. Either the node has restarted after its machine lost power,
//! so that its earlier connection was never closed, or a stranger claims the name of a working node. The earlier
//! connection keeps its place if it sends anything after the rival's hello. It loses the place after a period of
//! silence. Nodes report several times a second.

use super::link::EndpointTable;
use ropewalk_io::Endpoint;
use ropewalk_terms::{Instant, NodeId};
use ropewalk_wire::message::Header;
use std::time::Duration;

/// Maximum number of unidentified connections of a node. The one that has been silent for longest makes room for the
/// next.
pub const MOST_STRANGERS: usize = 32;
/// How long a connection may take to identify itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// Watches unidentified connections. In its functions, `since` returns for an unidentified connection when it last sent
/// something, or was opened.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    due: Option<Instant>,
}

impl Strangers {
    /// Returns the connection to close before another one is admitted.
    pub(super) fn in_the_way<T>(
        &mut self,
        now: Instant,
        connections: &EndpointTable<T>,
        since: impl Fn(&T) -> Option<Instant>,
    ) -> Option<Endpoint> {
        self.due = self.due.or(Some(now.after(PATIENCE)));
        let (count, oldest) = count(connections, since);
        oldest.filter(|_| count >= MOST_STRANGERS).map(|(endpoint, _)| endpoint)
    }

    /// Returns the next connection that did not identify itself in time. To be called until it returns `None`.
    pub(super) fn overdue<T>(
        &mut self,
        now: Instant,
        connections: &EndpointTable<T>,
        since: impl Fn(&T) -> Option<Instant>,
    ) -> Option<Endpoint> {
        if self.due.is_none_or(|due| now < due) {
            return None;
        }
        let (_, oldest) = count(connections, since);
        self.due = oldest.map(|(_, since)| since.after(PATIENCE));
        oldest.filter(|(_, since)| now >= since.after(PATIENCE)).map(|(endpoint, _)| endpoint)
    }

    /// Returns when the next connection is overdue.
    pub(super) const fn next_deadline(&self) -> Option<Instant> {
        self.due
    }
}

/// Returns the number of unidentified connections, and the one that has been silent for longest.
fn count<T>(
    connections: &EndpointTable<T>,
    since: impl Fn(&T) -> Option<Instant>,
) -> (usize, Option<(Endpoint, Instant)>) {
    let unknown = || connections.iter().filter_map(|(endpoint, entry)| Some((endpoint, since(entry)?)));
    (unknown().count(), unknown().min_by_key(|&(_, since)| since))
}

/// Grace time after the hello: bytes that were in transit then do not prove that the sender is alive.
const ON_ITS_WAY: Duration = Duration::from_millis(100);
/// Number of reports that a rarely reporting node may miss.
const REPORTS: u32 = 3;
/// Time of silence after which a node counts as dead.
const SILENCE: Duration = Duration::from_secs(1);

/// A connection that waits for the place of a node.
#[derive(Debug)]
struct Rival {
    endpoint: Endpoint,
    header: Header,
    since: Instant,
    /// When to check it again.
    look: Instant,
}

/// The decision about a waiting rival.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It takes the place: the earlier connection is dead.
    Takes,
    /// It is rejected: the earlier connection is alive.
    StaysOut,
}

/// Connections that wait for the places of nodes, at most one for each node.
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
    /// Sets the interval at which nodes report.
    pub(super) fn reports_come(&mut self, interval: Duration) {
        self.silence = SILENCE.max(REPORTS * interval);
    }

    /// Adds a connection that wants an occupied place. Returns false if another one is already waiting for it.
    pub(super) fn add(&mut self, now: Instant, endpoint: Endpoint, header: &Header) -> bool {
        if self.waiting.iter().any(|rival| rival.header.sender == header.sender) {
            return false;
        }
        self.waiting.push(Rival { endpoint, header: *header, since: now, look: now });
        true
    }

    /// Removes a waiting connection that has ended.
    pub(super) fn lost(&mut self, endpoint: Endpoint) {
        self.waiting.retain(|rival| rival.endpoint != endpoint);
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Returns the next decided rival with its verdict. `heard` returns when a node's present connection last sent
    /// something.
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

    /// Returns when the next rival must be checked even if nothing arrives.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|rival| rival.look).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_terms::{Epoch, Incarnation, RunNumber};
    use ropewalk_wire::message::Kind;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    fn endpoint(index: usize) -> Endpoint {
        Endpoint::new(index as u32, 0)
    }

    #[test]
    fn the_one_that_is_silent_for_longest_makes_room() {
        let (mut strangers, mut table) = (Strangers::default(), EndpointTable::default());
        for index in 0..MOST_STRANGERS {
            assert_eq!(strangers.in_the_way(at(1), &table, |&since| since), None);
            // The third one is identified. The second one has been silent for longer than the others.
            table.insert(endpoint(index), (index != 2).then(|| at(if index == 1 { 0 } else { 1 })));
        }
        assert_eq!(strangers.in_the_way(at(1), &table, |&since| since), None, "one of them is known");
        table.insert(endpoint(MOST_STRANGERS), Some(at(1)));
        assert_eq!(strangers.in_the_way(at(1), &table, |&since| since), Some(endpoint(1)));
    }

    #[test]
    fn no_connection_stays_unknown_for_long() {
        let (mut strangers, mut table) = (Strangers::default(), EndpointTable::default());
        assert_eq!(strangers.next_deadline(), None);
        for index in [1, 3] {
            strangers.in_the_way(at(index as u64), &table, |&since| since);
            table.insert(endpoint(index), Some(at(index as u64)));
        }
        assert_eq!(strangers.overdue(at(5), &table, |&since| since), None);
        assert_eq!(strangers.overdue(at(6), &table, |&since| since), Some(endpoint(1)));
        table.remove(endpoint(1));
        assert_eq!(strangers.overdue(at(7), &table, |&since| since), None);
        assert_eq!(strangers.next_deadline(), Some(at(8)));
        assert_eq!(strangers.overdue(at(8), &table, |&since| since), Some(endpoint(3)));
        table.remove(endpoint(3));
        assert_eq!((strangers.overdue(at(9), &table, |&since| since), strangers.next_deadline()), (None, None));
    }

    const ONE: Endpoint = Endpoint::new(1, 0);
    const OTHER: Endpoint = Endpoint::new(2, 0);

    fn at_ms(milliseconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(milliseconds))
    }

    fn hello(index: u16) -> Header {
        let (run, epoch, incarnation) = (RunNumber(1), Epoch(1), Incarnation(9));
        Header { kind: Kind::Hello, body: 0, run, epoch, sender: NodeId::builder(index), incarnation }
    }

    /// Returns the verdict at time `now` about a rival that has waited since 10 s, if the present connection last sent
    /// something at `heard`.
    fn verdict(now: u64, heard: Option<u64>) -> Option<Verdict> {
        let mut rivals = Rivals::default();
        assert!(rivals.add(at_ms(10_000), ONE, &hello(0)));
        rivals.next(at_ms(now), |_| heard.map(at_ms)).map(|(_, _, verdict)| verdict)
    }

    #[test]
    fn a_speaking_connection_keeps_the_place_and_a_silent_or_gone_one_loses_it() {
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
        rivals.add(at_ms(0), ONE, &hello(0));
        assert!(rivals.next(at_ms(5_999), |_| Some(at_ms(0))).is_none());
        assert_eq!(rivals.next_deadline(), Some(at_ms(6_000)));
        assert!(rivals.next(at_ms(6_000), |_| Some(at_ms(0))).is_some());
        assert_eq!(rivals.next_deadline(), None);
    }

    #[test]
    fn one_connection_at_most_waits_for_each_place() {
        let mut rivals = Rivals::default();
        assert!(rivals.add(at_ms(0), ONE, &hello(0)) && !rivals.add(at_ms(0), OTHER, &hello(0)));
        assert!(rivals.add(at_ms(0), OTHER, &hello(1)));
        rivals.lost(ONE);
        assert_eq!(rivals.next(at_ms(0), |_| None).map(|(endpoint, ..)| endpoint), Some(OTHER));
        assert!(rivals.next(at_ms(0), |_| None).is_none());
    }
}
