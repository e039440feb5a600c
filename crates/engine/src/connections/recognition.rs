//! Assignment of a connection to a source: from its first bytes, or from the address that it connected to. A source's
//! second connection waits until the first one has ended. Framers are allocated before the connection exists.

use super::{Connection, FrontEndConnections};
use ropewalk_flow::readout::{Framer, FramerLimits, Opening, Readout, SourceConfig};
use ropewalk_io::{Dispatcher, Endpoint};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Instant, SourceId};
use ropewalk_wire::description::Description;
use ropewalk_wire::generic::HELLO_BYTES;
use std::time::Duration;

/// Limits of unknown connections, in addition to one for each absent source. Above `FEW_UNKNOWN`, connections that were
/// inspected in `TURNS` turns and for `LOOKED_AT` without being recognised are closed. Above `MOST_UNKNOWN`, the oldest
/// is closed.
const FEW_UNKNOWN: usize = 16;
/// Maximum number of unrecognised connections of a readout unit.
pub const MOST_UNKNOWN: usize = 64;
const LOOKED_AT: Duration = Duration::from_millis(100);
const TURNS: u8 = 16;
/// Time for which an unknown connection may send nothing: it may be a front end that waits for its first trigger.
const SILENCE: Duration = Duration::from_secs(10);
/// Time in which a connection that has sent something must identify its source. One that has sent nothing yet may be a
/// front end that waits for its first trigger.
const RECOGNITION: Duration = Duration::from_secs(5);
/// The second connection of a source is refused if the first one receives data this long after its socket was empty.
/// Data that a sender left in the network before it reconnected has arrived by then. If the first one is silent, its
/// sender may be dead.
const PARKING: Duration = Duration::from_secs(2);
/// The socket of a fast source is never empty. The first connection counts as live after more bytes than sockets and
/// networks can hold.
const IN_FLIGHT: u64 = 256 << 20;
/// If two checks are further apart than this, the process did not run, and the clock of [`PARKING`] starts again.
const STALLED: Duration = Duration::from_millis(250);

/// The state of a second connection that waits for the end of the first.
#[derive(Copy, Clone, Debug)]
pub(super) struct Parked {
    /// Since when the first connection is known to be empty and read.
    since: Instant,
    /// Whether the first connection was empty at a check.
    was_empty: bool,
    /// Time of the last check.
    looked: Instant,
    /// Bytes received over the first connection before this one arrived.
    received: u64,
}

/// A connection that is not yet identified.
#[derive(Copy, Clone, Debug)]
pub(super) struct Unknown {
    endpoint: Endpoint,
    since: Instant,
    is_quiet: bool,
    is_unheard: bool,
}

/// State of a source's current connection, from the view of its next one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum First {
    /// There is no connection, or it has ended, or its peer has closed it, or it is not read and its end cannot be
    /// seen. Earlier data may still be processed, which may take long.
    MayBeOver,
    /// It is read, and may be dead.
    Unclear,
    /// It is live: the source has two senders.
    GoesOn,
}

impl<S: Dispatcher> FrontEndConnections<S> {
    /// Makes room for one more unknown connection.
    pub(super) fn make_room(&mut self, now: Instant) {
        self.end_quiet(now);
        if let Some(stranger) = self.look_for_unknown(MOST_UNKNOWN, true) {
            self.turn_away(now, stranger.endpoint);
        }
    }

    /// Closes the oldest excess connections that were inspected and not recognised. Connections of a source that
    /// reconnects often while this process does not run were not inspected yet.
    fn end_quiet(&mut self, now: Instant) {
        while let Some(stranger) = self.look_for_unknown(FEW_UNKNOWN, true).filter(|unknown| unknown.is_quiet) {
            if stranger.is_unheard && self.endpoints.has_waiting(stranger.endpoint) {
                return;
            }
            self.turn_away(now, stranger.endpoint);
        }
    }

    /// Inspects the first bytes of an unknown connection.
    pub(super) fn look_at(&mut self, now: Instant, endpoint: Endpoint, readout: &mut Readout) {
        let mut first = [0; Opening::BYTES];
        let waiting = self.endpoints.peek(endpoint, &mut first);
        let Some(connection) = self.connections.get_mut(endpoint) else { return };
        match waiting {
            Some(0) => return,
            Some(waiting) => {
                (connection.opening, connection.waiting) = (Opening::read(&first[..waiting]), waiting);
                connection.heard.get_or_insert((now, now));
            }
            None => {
                connection.ended = true;
                connection.framer.finish();
                self.endpoints.close(endpoint);
            }
        }
        self.frame(now, endpoint, readout);
    }

    /// Identifies a connection by its first bytes. Returns false if more bytes are needed or it was refused.
    pub(super) fn identify(&mut self, now: Instant, endpoint: Endpoint, readout: &mut Readout) -> bool {
        let (first, is_next) = (self.first_connection(now, endpoint), self.is_next(now, endpoint));
        let received =
            self.source_and_first(endpoint).and_then(|(_, first)| Some(self.connections.get_mut(first)?.received));
        let received = received.unwrap_or(0);
        let Some(connection) = self.connections.get_mut(endpoint) else { return false };
        let is_nonsense = matches!(connection.opening, Opening::Nonsense(_)) || connection.framer.is_lost();
        let source = match connection.identity() {
            Some((id, format)) => {
                let source = readout.source_index(id);
                let is_here = |&source: &usize| connection.place.is_none_or(|place| place == source);
                source.filter(is_here).filter(|&source| self.sources[source].format == Some(format))
            }
            None if is_nonsense || connection.ended => None,
            None => return false,
        };
        match source {
            Some(source) if is_next && self.connected.get(source).is_some_and(Option::is_none) => {
                connection.framer.set_limits(limits(&self.sources[source]));
                (connection.source, connection.waiting) = (Some(source), 0);
                self.connected[source] = Some(endpoint);
                if let Opening::Generic(hello) = connection.opening {
                    connection.hello_left = HELLO_BYTES;
                    if let Some(black_box) = &mut self.black_boxes[source] {
                        black_box.greet(&hello.to_bytes());
                    }
                }
                if let Some(&owner) = self.owners.get(source) {
                    self.endpoints.set_owner(endpoint, owner);
                }
                readout.source_connected(now, source);
                true
            }
            // Its data waits, even if it has ended, until all earlier data is processed.
            Some(_) if first != First::GoesOn => {
                let new = Parked { since: now, was_empty: false, looked: now, received };
                let parked = connection.parked.get_or_insert(new);
                (parked.looked, parked.was_empty) = (now, first == First::Unclear);
                if first == First::MayBeOver {
                    parked.since = now;
                }
                self.endpoints.set_reading(endpoint, false);
                false
            }
            // It belongs to no source here, or is a second connection while the first is live.
            _ => {
                self.turn_away(now, endpoint);
                false
            }
        }
    }

    /// Returns the source of this connection, and that source's current connection.
    fn source_and_first(&mut self, endpoint: Endpoint) -> Option<(usize, Endpoint)> {
        let (id, _) = self.connections.get_mut(endpoint)?.identity()?;
        let source = self.sources.iter().position(|source| source.id == id)?;
        Some((source, self.connected.get(source).copied().flatten()?))
    }

    /// Returns the state of the source's current connection.
    fn first_connection(&mut self, now: Instant, endpoint: Endpoint) -> First {
        let Some((_, first)) = self.source_and_first(endpoint) else { return First::MayBeOver };
        let parked = self.connections.get_mut(endpoint).and_then(|connection| connection.parked);
        // Its sender may have ended it while earlier data still waits to be read.
        let is_over = self.endpoints.is_dry(first) || self.endpoints.peer_has_ended(first);
        let is_over = is_over || !parked.is_some_and(|parked| parked.was_empty) && self.endpoints.has_waiting(first);
        match (self.connections.get_mut(first), parked) {
            (Some(first), Some(parked)) if !first.ended && first.received > parked.received + IN_FLIGHT => {
                First::GoesOn
            }
            (Some(first), _) if first.ended || first.blocked || is_over => First::MayBeOver,
            (Some(_), Some(parked)) if now >= parked.looked.after(STALLED) => First::MayBeOver,
            (Some(first), Some(parked)) => {
                let goes_on = first.heard.is_some_and(|(_, last)| last >= parked.since.after(PARKING));
                if goes_on { First::GoesOn } else { First::Unclear }
            }
            (Some(_), None) => First::Unclear,
            (None, _) => First::MayBeOver,
        }
    }

    /// Ends a silent first connection. If events have waited for a source long enough, and it is silent on one
    /// connection and has returned over another, the first one is dead and the network has not detected it yet. (If no
    /// event waits for the source, it may be silent because there are no triggers.)
    fn end_silent_first(&mut self, now: Instant, endpoint: Endpoint, readout: &mut Readout) {
        let Some((source, first)) = self.source_and_first(endpoint) else { return };
        if !readout.is_overdue(now, source) || self.first_connection(now, endpoint) != First::Unclear {
            return;
        }
        let since = self.connections.get_mut(endpoint).and_then(|connection| Some(connection.parked?.since));
        let Some(connection) = self.connections.get_mut(first) else { return };
        if connection.heard.map(|(_, last)| last) <= since {
            let mid_fragment = connection.framer.is_mid_fragment();
            self.endpoints.abort(first);
            self.end(now, first, mid_fragment, readout);
        }
    }

    /// Returns whether no older connection of the same source waits: a source's connections are taken in order. An
    /// older one at the same place may belong to the same source as long as its first bytes may not have been inspected
    /// yet, and, if the place belongs to one source, until it is older than [`PARKING`].
    fn is_next(&mut self, now: Instant, endpoint: Endpoint) -> bool {
        let Some(connection) = self.connections.get_mut(endpoint) else { return false };
        let (identity, place, number) = (connection.identity(), connection.place, connection.number);
        (0..self.connections.places()).all(|index| {
            self.connections.at(index).is_none_or(|(other, connection)| {
                let is_parked = connection.parked.is_some();
                let is_its_own = is_parked && connection.identity() == identity;
                let is_unheard = connection.source.is_none() && !is_parked && connection.place == place;
                let is_late = place.is_some() && now < connection.since.after(PARKING);
                let may_speak =
                    connection.turns < TURNS || connection.heard.is_none() && self.endpoints.has_waiting(other);
                let waits = is_its_own || is_unheard && (may_speak || is_late);
                other == endpoint || connection.number > number || !waits
            })
        })
    }

    /// Checks a source's second connection again.
    fn unpark(&mut self, now: Instant, endpoint: Endpoint, readout: &mut Readout) {
        self.end_silent_first(now, endpoint, readout);
        if self.identify(now, endpoint, readout) {
            self.endpoints.set_reading(endpoint, true);
            self.frame(now, endpoint, readout);
        }
    }

    /// Closes a connection that belongs to no source.
    fn turn_away(&mut self, now: Instant, endpoint: Endpoint) {
        if let Some(stranger) = self.connections.remove(endpoint) {
            self.counts.garbage += stranger.left_over();
            self.counts.refused += 1;
            self.endpoints.abort(endpoint);
            self.entrances.ended(now, endpoint, true);
            self.keep(stranger.framer);
        }
    }

    /// Returns the oldest of the excess unknown connections, if there are this many or more beyond one for each missing
    /// source; the first ones may belong to those sources. Connections that have sent something count only with `all`.
    fn look_for_unknown(&mut self, most: usize, all: bool) -> Option<Unknown> {
        self.unknown.clear();
        for (endpoint, connection) in self.connections.iter() {
            let is_unknown = connection.source.is_none() && connection.parked.is_none() && !connection.ended;
            if is_unknown && (all || connection.heard.is_none()) && self.unknown.len() < self.unknown.capacity() {
                let &Connection { since, is_quiet, heard, .. } = connection;
                self.unknown
                    .push((connection.number, Unknown { endpoint, since, is_quiet, is_unheard: heard.is_none() }));
            }
        }
        self.unknown.sort_unstable_by_key(|&(number, ..)| number);
        let missing = self.connected.iter().filter(|connected| connected.is_none()).count();
        let oldest = self.unknown.get(missing).map(|&(_, unknown)| unknown);
        oldest.filter(|_| self.unknown.len() >= missing + most)
    }

    /// Closes unrecognised connections that have sent nothing for too long.
    pub(super) fn end_silent(&mut self, now: Instant) {
        self.end_quiet(now);
        while let Some(stranger) = self.look_for_unknown(1, false) {
            let due = stranger.since.after(SILENCE);
            if now < due {
                self.recognition_due = self.recognition_due.into_iter().chain([due]).min();
                return;
            }
            self.turn_away(now, stranger.endpoint);
        }
    }

    /// Inspects an unknown connection, or one that waits for its source's first one. Closes one that has sent too
    /// little for too long. Returns true if it now belongs to a source.
    pub(super) fn go_on_with_unknown(&mut self, now: Instant, endpoint: Endpoint, readout: &mut Readout) -> bool {
        if self.connections.get_mut(endpoint).is_some_and(|connection| connection.parked.is_some()) {
            self.unpark(now, endpoint, readout);
        } else if self.endpoints.is_dry(endpoint) && !(is_planted(Flaw::UnknownHeldBack) && self.is_pool_empty()) {
            self.look_at(now, endpoint, readout);
        }
        let Some(connection) = self.connections.get_mut(endpoint) else { return false };
        if connection.source.is_some() {
            return true;
        }
        // Waiting bytes become visible after some turns, however long those take.
        if connection.heard.is_some() || !self.endpoints.has_waiting(endpoint) {
            connection.turns = connection.turns.saturating_add(1);
            connection.is_quiet |= connection.turns >= TURNS && now >= connection.since.after(LOOKED_AT);
        }
        let due = match connection.parked {
            Some(parked) if now < parked.since.after(PARKING) => Some(now.after(LOOKED_AT / 8)),
            Some(_) => Some(now.after(LOOKED_AT)),
            None => connection.heard.map(|(first, _)| first.after(RECOGNITION)),
        };
        if connection.parked.is_none() && due.is_some_and(|due| now >= due) {
            self.turn_away(now, endpoint);
        } else {
            self.recognition_due = self.recognition_due.into_iter().chain(due).min();
        }
        false
    }
}

/// Creates framers for two connections of each source: both exist for a moment when a source reconnects.
pub(crate) fn spare_framers(sources: usize) -> Vec<Framer> {
    (0..2 * sources).map(|_| Framer::new(FramerLimits { max_fragment: 0, check_crc: false, gather: None })).collect()
}

/// Returns the frame description of a source; `None` if its bytes identify their own framing.
pub(crate) fn described<'a>(
    source: &SourceConfig,
    descriptions: &'a [(SourceId, Description)],
) -> Option<&'a Description> {
    descriptions.iter().find(|(id, _)| *id == source.id).map(|(_, description)| description)
}

/// Creates framers for two connections of a source with a frame description; none for another one.
pub(crate) fn own_framers(source: &SourceConfig, description: Option<&Description>) -> Vec<Framer> {
    (0..2).filter_map(|_| own_framer(source, description)).collect()
}

pub(crate) fn own_framer(source: &SourceConfig, description: Option<&Description>) -> Option<Framer> {
    Some(Framer::described(source.id, description?.clone(), limits(source)).counting_from(source.first))
}

/// Returns the framing limits of a source.
pub(crate) const fn limits(source: &SourceConfig) -> FramerLimits {
    let SourceConfig { max_fragment, check_crc, gather, .. } = *source;
    FramerLimits { max_fragment, check_crc, gather }
}
