//! Which of the connections in a capture is a source's.

use ropewalk_wire::capture::Segment;
use std::net::SocketAddr;

/// Connections that are told apart; nobody records more of one detector.
const MOST_CONNECTIONS: usize = 1024;

/// The directions of a capture's connections that carry something, in the order in which they began to. One that was cut off and
/// comes again is the same.
#[derive(Debug, Default)]
pub(super) struct Connections {
    known: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    source: SocketAddr,
    destination: SocketAddr,
    has_ended: bool,
}

impl Connection {
    fn is(&self, source: SocketAddr, destination: SocketAddr) -> bool {
        self.source == source && self.destination == destination
    }

    /// Whether it ended, and this is it again: between the same two machines, and to or from the same service.
    fn is_again(&self, source: SocketAddr, destination: SocketAddr) -> bool {
        let same_machines = self.source.ip() == source.ip() && self.destination.ip() == destination.ip();
        self.has_ended && same_machines && (self.source == source || self.destination == destination)
    }
}

impl Connections {
    /// The number of a direction that is known.
    pub(super) fn known(&self, (source, destination): (SocketAddr, SocketAddr)) -> Option<usize> {
        self.known.iter().position(|known| known.is(source, destination))
    }

    /// The number of a segment's connection, from 0; none as long as it carried nothing, as the direction in which a board is
    /// only told that its bytes came.
    pub(super) fn number_of(&mut self, segment: &Segment<'_>) -> Option<usize> {
        let Segment { source, destination, ends, payload, .. } = *segment;
        // Where the capture misses the first bytes, those behind them wait, and are the source's all the same.
        let carries = !payload.is_empty();
        let known = self.known.iter().position(|known| known.is(source, destination));
        let again = || self.known.iter().position(|known| carries && known.is_again(source, destination));
        let known = known.or_else(again);
        let connection = Connection { source, destination, has_ended: ends };
        match known {
            Some(number) => {
                self.known[number] = connection;
                Some(number)
            }
            None if carries && self.known.len() < MOST_CONNECTIONS => {
                self.known.push(connection);
                Some(self.known.len() - 1)
            }
            None => None,
        }
    }
}
