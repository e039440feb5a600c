//! What happens in a run, as it happens: a digest of everything, on demand a text, and what arrives from each front end, for
//! the referee. A line of the text has the time in nanoseconds, who, and what.

use super::content::mixed;
use super::endpoints::Order;
use super::fault::{Place, Scheduled};
use super::outcome::Broken;
use ropewalk_terms::Instant;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write};
use std::rc::Rc;
use std::time::Duration;

/// A direction of a connection: its number, and 0 for what the end that connected sends.
pub(super) type Direction = (u64, usize);

/// What happened.
#[derive(Copy, Clone, Debug)]
pub(super) enum Happening<'a> {
    /// A process had a turn and did `work`.
    Turn { place: Place, work: usize },
    /// A message was queued.
    Sent { from: Place, direction: Direction, bytes: u64, what: &'a str },
    /// Bytes arrived.
    Received { by: Place, direction: Direction, bytes: u64 },
    /// A fault began.
    Begins(&'a Scheduled),
    /// A fault is over.
    Ends(&'a Scheduled),
}

/// Bytes that a readout unit took from a front end.
#[derive(Copy, Clone, Debug)]
pub(super) struct Delivery {
    /// When.
    pub(super) at: Instant,
    /// Over which connection.
    pub(super) connection: u64,
    /// All bytes of that connection until then.
    pub(super) bytes: u64,
}

/// One connection of a front end, as the network knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    /// Where the fragments end that were sent and have not arrived, in the connection's bytes.
    under_way: VecDeque<u64>,
    /// Whole fragments that arrived.
    pub(super) whole: u64,
    /// Where the last one of them ended.
    end: u64,
    bytes: u64,
    /// The source sent something that ends framing; nothing behind it is a fragment.
    is_ruined: bool,
    /// The door where it was found out whose it is.
    pub(super) door: Option<u32>,
}

impl Line {
    /// A fragment was sent that ends with this byte.
    pub(super) fn send(&mut self, end: u64) {
        if !self.is_ruined {
            self.under_way.push_back(end);
        }
    }

    /// Something was sent that no fragment can be found behind.
    pub(super) const fn ruin(&mut self) {
        self.is_ruined = true;
    }

    fn deliver(&mut self, bytes: u64) {
        self.bytes = bytes;
        while let Some(end) = self.under_way.pop_front_if(|end| *end <= bytes) {
            (self.whole, self.end) = (self.whole + 1, end);
        }
    }

    /// The most fragments that can have been received: one that was cut, or that cost the connection, counts as well.
    pub(super) fn most(&self) -> u64 {
        self.whole + u64::from(self.bytes > self.end)
    }
}

/// What arrived from one front end.
#[derive(Clone, Debug, Default)]
pub(super) struct Inlet {
    /// In the order of time.
    pub(super) deliveries: Vec<Delivery>,
    /// When the readout unit saw the end of each connection, or made it.
    pub(super) ends: BTreeMap<u64, Instant>,
    /// By connection.
    pub(super) lines: BTreeMap<u64, Line>,
    /// Of each connection, from when to when the readout unit did not take what came over it.
    unread: BTreeMap<u64, Vec<(Instant, Instant)>>,
    unread_since: BTreeMap<u64, Instant>,
}

impl Inlet {
    /// Everything that arrives is taken at once.
    pub(super) fn is_read(&self) -> bool {
        self.unread_since.is_empty()
    }

    /// Whether what comes over a connection is taken.
    pub(super) fn set_read(&mut self, now: Instant, connection: u64, read: bool) {
        if !read {
            self.unread_since.entry(connection).or_insert(now);
        } else if let Some(since) = self.unread_since.remove(&connection) {
            self.unread.entry(connection).or_default().push((since, now));
        }
    }

    pub(super) fn deliver(&mut self, at: Instant, connection: u64, bytes: u64) {
        let last = self.deliveries.iter().rev().find(|delivery| delivery.connection == connection);
        let bytes = last.map_or(0, |delivery| delivery.bytes) + bytes;
        self.deliveries.push(Delivery { at, connection, bytes });
        self.lines.entry(connection).or_default().deliver(bytes);
    }

    /// How long, between two times, the readout unit did not take what came over a connection.
    pub(super) fn unread_between(&self, connection: u64, from: Instant, until: Instant) -> Duration {
        let over = self.unread.get(&connection).into_iter().flatten().copied();
        let present = self.unread_since.get(&connection).map(|&since| (since, Instant::FAR_FUTURE));
        over.chain(present).map(|(begin, end)| end.min(until).since(begin.max(from))).sum()
    }
}

/// A connection was refused although a process listens, or none did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refused {
    pub(super) at: Instant,
    pub(super) caller: Place,
    /// Who was called.
    pub(super) address: String,
}

/// Shared by everybody who takes part.
pub(super) type Shared = Rc<RefCell<Recorder>>;

/// The record of a run.
#[derive(Debug, Default)]
pub struct Recorder {
    digest: u64,
    text: Option<String>,
    /// By the front end's host.
    pub(super) inlets: BTreeMap<u32, Inlet>,
    /// Connections that were refused.
    pub(super) refusals: Vec<Refused>,
    /// What readout units announced.
    pub(super) order: Order,
    broken: Option<Broken>,
}

impl Recorder {
    /// A record that also keeps every happening as a line of text.
    pub(super) fn with_text(mut self) -> Self {
        self.text = Some(String::new());
        self
    }

    /// The record, to be shared.
    pub(super) fn shared(self) -> Shared {
        Rc::new(RefCell::new(self))
    }

    /// Mixed from every happening: equal for equal histories.
    pub(super) const fn digest(&self) -> u64 {
        self.digest
    }

    /// Every happening as a line, where that was asked for.
    pub(super) fn take_text(&mut self) -> String {
        self.text.take().unwrap_or_default()
    }

    /// Keeps what was found by a member that cannot say so at once.
    pub(super) fn keep(&mut self, result: Result<(), Broken>) {
        self.broken = self.broken.take().or(result.err());
    }

    /// What was found by members that could not say so at once.
    pub(super) fn verdict(&self) -> Result<(), Broken> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// Takes note of what happens.
    pub(super) fn note(&mut self, at: Instant, happening: Happening<'_>) {
        let (one, other) = match happening {
            Happening::Turn { work, .. } => (1, work as u64),
            Happening::Sent { direction: (connection, side), bytes, .. } => (2 + connection * 4 + side as u64, bytes),
            Happening::Received { direction: (connection, side), bytes, .. } => {
                (4 + connection * 4 + side as u64, bytes)
            }
            Happening::Begins(_) => (6, 0),
            Happening::Ends(_) => (7, 0),
        };
        self.note_line(at, (one, other), || happening.to_string());
    }

    /// Records a line, with numbers that distinguish it from others in the digest.
    pub(super) fn note_line(&mut self, at: Instant, (one, other): (u64, u64), line: impl FnOnce() -> String) {
        let time = at.as_nanoseconds();
        self.digest = mixed(self.digest ^ time, one, other);
        if let Some(text) = &mut self.text {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{time:>12} {}", line());
        }
    }
}

impl fmt::Display for Happening<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turn { place, work } => write!(out, "{place} does {work}"),
            Self::Sent { from, direction: (connection, side), bytes, what } => {
                write!(out, "{from} sends {what}, {bytes} bytes, over {connection}.{side}")
            }
            Self::Received { by, direction: (connection, side), bytes } => {
                write!(out, "{by} receives {bytes} bytes over {connection}.{side}")
            }
            Self::Begins(fault) => write!(out, "begins: {fault}"),
            Self::Ends(fault) => write!(out, "ends: {fault}"),
        }
    }
}
