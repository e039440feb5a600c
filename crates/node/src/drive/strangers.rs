//! Connections that have not identified themselves: few, and for a short time. A node says hello at once.

use super::table::EndpointTable;
use ropewalk_io::Endpoint;
use ropewalk_terms::Instant;
use std::time::Duration;

/// So many are let in at a time; the one that has been silent for longest makes room for the next.
pub(crate) const MOST_STRANGERS: usize = 32;
/// How long a connection may take until it is known whose it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// Watches over them. `since` says of a connection that is not known when it spoke last, or came.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    due: Option<Instant>,
}

impl Strangers {
    /// The connection to close before another one is admitted.
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

    /// The next connection that did not identify itself in time; call it until there is none.
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

    /// When the next connection is overdue.
    pub(super) const fn next_deadline(&self) -> Option<Instant> {
        self.due
    }
}

/// How many are not known, and the one of them that has been silent for longest.
fn count<T>(
    connections: &EndpointTable<T>,
    since: impl Fn(&T) -> Option<Instant>,
) -> (usize, Option<(Endpoint, Instant)>) {
    let unknown = || connections.iter().filter_map(|(endpoint, entry)| Some((endpoint, since(entry)?)));
    (unknown().count(), unknown().min_by_key(|&(_, since)| since))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            // The third one is known, and the second one silent for longer than the others.
            table.insert(endpoint(index), (index != 2).then(|| at(if index == 1 { 0 } else { 1 })));
        }
        assert_eq!(strangers.in_the_way(at(1), &table, |&since| since), None, "one of them is known");
        table.insert(endpoint(MOST_STRANGERS), Some(at(1)));
        assert_eq!(strangers.in_the_way(at(1), &table, |&since| since), Some(endpoint(1)));
    }

    #[test]
    fn nobody_stays_unknown_for_long() {
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
}
