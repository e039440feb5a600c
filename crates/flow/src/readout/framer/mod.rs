//! Finds the fragments in a connection's stream of bytes, without copying them.
//!
//! ```text
//!   push(slice) --> ByteQueue --> FEROL blocks:      header | piece | header | piece ... --> one payload of these
//!                             |-> generic fragments: hello | header | payload | header ... --> one payload each
//!                             \-> described frames: a layout's, or those of a named format --> one payload each
//!   datagrams  --> DatagramFramer: a frame, several frames, or a piece of one in each      --> one payload each
//! ```
//! FEROL and generic fragments, and their sources, are recognised from the first bytes; descriptions are configured
//! ([`Framer::described`]). A fragment with wrong contents is flagged and the stream continues. If the beginning of the
//! next fragment is unknown, the connection is lost.

mod datagrams;
mod described;
mod gatherer;
mod order;
mod streams;

pub(crate) use datagrams::{Assembly, Placed};
pub use datagrams::{DatagramFramer, DatagramLimits};
pub use described::FrameCounts;
pub use gatherer::{Divider, Divides, GATHER_TIMEOUT, MOST_FRAMES};

use super::{Format, FramingError};
use crate::messages::{FragmentMeta, Received};
use core::time::Duration;
use gatherer::Gatherer;
use ropewalk_memory::{ByteQueue, Payload, Slice};
use ropewalk_terms::{Cause, Instant, SourceId};
use ropewalk_wire::description::Description;
use ropewalk_wire::ferol::{BlockError, BlockHeader};
use ropewalk_wire::generic::{GenericError, HELLO_BYTES, Hello};
use streams::{FerolStream, FramedStream, GenericStream};

/// Limits for the fragments of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FramerLimits {
    /// The longest accepted fragment, in bytes of payload.
    pub max_fragment: u32,
    /// Whether checksums are computed, if the format has them.
    pub check_crc: bool,
    /// How long to wait for the next frame when consecutive frames of one event form one fragment; `None` makes each
    /// frame a fragment. For described frames only.
    pub gather: Option<Duration>,
}

/// The recognised kind of stream.
#[derive(Debug)]
enum Stream {
    /// Too few bytes have arrived.
    Unknown,
    Ferol(FerolStream),
    Generic(GenericStream),
    Described(FramedStream),
    /// The boundary of the next fragment is lost, for this cause.
    Lost(Cause),
}

/// Finds the fragments in the bytes of one connection.
#[derive(Debug)]
pub struct Framer {
    queue: ByteQueue,
    stream: Stream,
    limits: FramerLimits,
    /// The source and description of the stream, if they are known before.
    description: Option<(SourceId, Description)>,
    /// The number of the first frame, if frames have no number.
    first: u64,
    /// Used for sources whose events come in several frames.
    gatherer: Gatherer,
}

impl Framer {
    /// Creates a framer for a new connection. The limits can be changed when the source is known.
    pub fn new(limits: FramerLimits) -> Self {
        Self {
            queue: ByteQueue::new(),
            stream: Stream::Unknown,
            limits,
            description: None,
            first: 1,
            gatherer: Gatherer::default(),
        }
    }

    /// Creates a framer for the connections of this source, with described frames. If the front end's clock is narrow
    /// the time of arrival matters: see [`Framer::set_now`].
    pub fn described(source: SourceId, description: impl Into<Description>, limits: FramerLimits) -> Self {
        let mut framer = Self { description: Some((source, description.into())), ..Self::new(limits) };
        framer.clear();
        framer
    }

    /// Counts frames without a number from `first` on instead of 1.
    #[must_use]
    pub fn counting_from(mut self, first: u64) -> Self {
        self.first = first;
        self.clear();
        self
    }

    /// Sets the time of arrival of the bytes pushed from now on. It must stand still while a source is not read.
    pub const fn set_now(&mut self, now: Instant) {
        if let Stream::Described(stream) = &mut self.stream {
            stream.set_now(now);
        }
    }

    /// Ends the input: the next batches contain the rest.
    pub const fn finish(&mut self) {
        if let Stream::Described(stream) = &mut self.stream {
            stream.finish();
        }
    }

    /// Returns the counts of this connection since the last call, besides those of frames; zero unless frames are
    /// described.
    pub const fn take_counts(&mut self) -> FrameCounts {
        match &mut self.stream {
            Stream::Described(stream) => self.gatherer.add_counts(stream.take_counts()),
            Stream::Unknown | Stream::Ferol(_) | Stream::Generic(_) | Stream::Lost(_) => FrameCounts::NONE,
        }
    }

    /// Whether its frames are described, so that it can be used for one source only.
    pub const fn is_described(&self) -> bool {
        self.description.is_some()
    }

    /// Makes the framer ready for another connection. The rest of the last one is dropped.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.gatherer = Gatherer::default();
        self.stream = match &self.description {
            Some((source, description)) => {
                Stream::Described(FramedStream::new(*source, description.clone(), self.first))
            }
            None => Stream::Unknown,
        };
    }

    /// Sets the limits of the fragments that follow. Must be called before the first batch is taken.
    pub fn set_limits(&mut self, limits: FramerLimits) {
        self.limits = limits;
        if let Stream::Ferol(stream) = &mut self.stream {
            stream.set_max_fragment(limits.max_fragment);
        }
    }

    /// Appends received bytes.
    #[inline]
    pub fn push(&mut self, slice: Slice) {
        self.queue.push(slice);
        if let Stream::Unknown = self.stream {
            self.recognise();
        }
    }

    /// Parses the first bytes as soon as there are enough to identify the source: a block's header, or a hello.
    #[cold]
    fn recognise(&mut self) {
        let mut first = [0; Opening::BYTES];
        let known = self.queue.len().min(first.len());
        self.queue.copy_to(0, &mut first[..known]);
        self.stream = match Opening::read(&first[..known]) {
            Opening::Unfinished => return,
            Opening::Ferol(source) => Stream::Ferol(FerolStream::new(source, self.limits.max_fragment)),
            Opening::Generic(hello) => {
                self.queue.skip(HELLO_BYTES);
                Stream::Generic(GenericStream::new(hello))
            }
            Opening::Nonsense(cause) => Stream::Lost(cause),
        };
    }

    /// Returns the source and the framing of the connection; known after the first header or hello.
    pub fn identity(&self) -> Option<(SourceId, Format)> {
        self.source().zip(self.format())
    }

    /// Whether the beginning of the next fragment is permanently unknown.
    pub const fn is_lost(&self) -> bool {
        matches!(self.stream, Stream::Lost(_))
    }

    /// Returns the source of the connection; known after the first header or hello.
    pub const fn source(&self) -> Option<SourceId> {
        match &self.stream {
            Stream::Ferol(stream) => Some(stream.source()),
            Stream::Generic(stream) => Some(stream.hello().source),
            Stream::Described(stream) => Some(stream.source()),
            Stream::Unknown | Stream::Lost(_) => None,
        }
    }

    /// Returns the framing of the stream; known with the source.
    pub const fn format(&self) -> Option<Format> {
        match &self.stream {
            Stream::Ferol(_) => Some(Format::Ferol),
            Stream::Generic(_) => Some(Format::Generic),
            Stream::Described(_) => Some(Format::Described),
            Stream::Unknown | Stream::Lost(_) => None,
        }
    }

    /// Returns the front end's hello, if the format has one.
    pub const fn hello(&self) -> Option<&Hello> {
        match &self.stream {
            Stream::Generic(stream) => Some(stream.hello()),
            Stream::Ferol(_) | Stream::Described(_) | Stream::Unknown | Stream::Lost(_) => None,
        }
    }

    /// Appends the next whole fragments, about `at_most`. They include fragments that were given up, without payload
    /// and with [`FragmentMeta::missing`]: [`Readout::receive`](super::Readout::receive) counts them.
    ///
    /// # Errors
    /// If the boundary of the next fragment is lost. The fragments before it are in `out`, everything after it is
    /// dropped, and the connection must be closed.
    pub fn next_batch(&mut self, out: &mut Vec<Received>, at_most: usize) -> Result<(), FramingError> {
        let end = out.len().saturating_add(at_most);
        let result = match &mut self.stream {
            Stream::Unknown => Ok(()),
            Stream::Ferol(stream) => stream.next_batch(&mut self.queue, out, end, self.limits.check_crc),
            Stream::Generic(stream) => stream.next_batch(&mut self.queue, out, end, self.limits.max_fragment),
            Stream::Described(stream) => stream.next_batch(&mut self.queue, &mut self.gatherer, out, end, self.limits),
            Stream::Lost(cause) => Err(*cause),
        };
        result.map_err(|cause| {
            let bytes_discarded = self.buffered() as u64;
            self.queue.clear();
            self.stream = Stream::Lost(cause);
            FramingError { cause, bytes_discarded }
        })
    }

    /// Applies the time-out of gathering. `was_heard` says whether the source could be received until `now`. Returns
    /// true if a gathered event is complete because the source was silent; the next batch then contains it.
    pub fn settle(&mut self, now: Instant, was_heard: bool) -> bool {
        let Some(timeout) = self.limits.gather else { return false };
        // The rest of a frame that has begun must still arrive.
        self.gatherer.settle(now, was_heard && self.queue.is_empty(), timeout)
    }

    /// Whether frames are gathered, so that [`Framer::settle`] must be called regularly.
    pub const fn gathers(&self) -> bool {
        self.limits.gather.is_some()
    }

    /// Returns when [`Framer::settle`] is due even without input.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.limits.gather.and_then(|timeout| self.gatherer.next_deadline(timeout))
    }

    /// Ends the connection: appends the event whose frames were gathered, if there is one.
    pub fn end(&mut self, out: &mut Vec<Received>) {
        self.gatherer.give(out);
    }

    /// Drops gathered frames. Returns how many fragments they were.
    pub fn abandon(&mut self) -> u64 {
        self.gatherer.abandon()
    }

    /// Returns the number of received bytes that are not in a fragment that was taken.
    pub fn buffered(&self) -> usize {
        let piece = if let Stream::Ferol(stream) = &self.stream { stream.unfinished_bytes() } else { 0 };
        self.queue.len() + piece
    }

    /// Whether a fragment has begun and not ended, once all whole ones were taken. If the connection ends now, it is
    /// cut short.
    pub fn is_mid_fragment(&self) -> bool {
        self.source().is_some() && self.buffered() > 0
    }
}

/// Returns the entry for a fragment that was given up for this cause.
fn given_up(source: SourceId, cause: Cause) -> Received {
    Received { meta: FragmentMeta::missing(source, cause), restarts: false, payload: Payload::default() }
}

/// The first bytes of a connection, as far as they have arrived: a block's header, a hello, or neither.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Opening {
    /// Too few bytes have arrived.
    Unfinished,
    /// It begins with a FEROL block of this source.
    Ferol(SourceId),
    /// It begins with this hello.
    Generic(Hello),
    /// The bytes match neither format. Known from the first bytes on, so that there is no wait for a sender of too few
    /// bytes for a header.
    Nonsense(Cause),
}

impl Opening {
    /// Number of bytes that suffice in both formats.
    pub const BYTES: usize = HELLO_BYTES;

    /// Parses the first bytes, of which [`Opening::BYTES`] or fewer matter.
    pub fn read(first: &[u8]) -> Self {
        let beginning = &first[..first.len().min(4)];
        if !BlockHeader::may_begin_with(beginning) && !Hello::may_begin_with(beginning) {
            return Self::Nonsense(GenericError::Magic.cause());
        }
        let Some(header) = first.first_chunk() else { return Self::Unfinished };
        match (BlockHeader::parse(header), first.first_chunk().map(Hello::parse)) {
            (Ok(header), _) => Self::Ferol(header.source),
            (Err(BlockError::Signature), None) => Self::Unfinished,
            (Err(BlockError::Signature), Some(Ok(hello))) => Self::Generic(hello),
            (Err(BlockError::Signature), Some(Err(error))) => Self::Nonsense(error.cause()),
            (Err(error), _) => Self::Nonsense(error.cause()),
        }
    }

    /// Returns the source and the framing of the connection, if known.
    pub const fn identity(&self) -> Option<(SourceId, Format)> {
        match self {
            Self::Ferol(source) => Some((*source, Format::Ferol)),
            Self::Generic(hello) => Some((hello.source, Format::Generic)),
            Self::Unfinished | Self::Nonsense(_) => None,
        }
    }
}

/// Boards by their distinguishing name: their address, or a number in their frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Boards {
    /// The names of boards, each with the board's index; most boards have one name.
    known: Vec<(u128, usize)>,
    /// The most boards that there can be.
    most: usize,
}

impl Boards {
    /// Creates a table of these boards only. Addresses are numbers: see [`Boards::of_address`].
    pub fn new(boards: Vec<u128>) -> Self {
        Self::of_names(boards.into_iter().map(|board| vec![board]).collect())
    }

    /// Creates a table of boards that have several names each.
    pub fn of_names(boards: Vec<Vec<u128>>) -> Self {
        let most = boards.len();
        let named = |(index, names): (usize, Vec<u128>)| names.into_iter().map(move |name| (name, index));
        Self { known: boards.into_iter().enumerate().flat_map(named).collect(), most }
    }

    /// Creates a table of up to `most` boards with any names, in the order in which they appear.
    pub fn of_count(most: usize) -> Self {
        Self { known: Vec::with_capacity(most), most }
    }

    /// Returns the name of a board that is known by its address.
    pub fn of_address(address: core::net::IpAddr) -> u128 {
        match address.to_canonical() {
            core::net::IpAddr::V4(address) => u128::from(u32::from(address)),
            core::net::IpAddr::V6(address) => u128::from(address),
        }
    }

    /// Returns the index of a board; `None` if it is unknown and no more boards are expected.
    pub fn index_of(&mut self, board: u128) -> Option<usize> {
        let known = self.known.iter().find(|&&(name, _)| name == board).map(|&(_, index)| index);
        let next = self.known.len();
        if known.is_none() && next < self.most {
            self.known.push((board, next));
            return Some(next);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_are_known_or_come_one_after_the_other() {
        let address = |last| Boards::of_address(core::net::IpAddr::from([192, 168, 10, last]));
        let mut two = Boards::new(vec![address(2), address(1)]);
        assert_eq!([1, 2, 3].map(|last| two.index_of(address(last))), [Some(1), Some(0), None]);
        let mut any = Boards::of_count(2);
        assert_eq!([7, 5, 7, 9, 5].map(|board| any.index_of(board)), [Some(0), Some(1), Some(0), None, Some(1)]);
    }

    #[test]
    fn a_board_of_several_names_is_one() {
        let mut two = Boards::of_names(vec![vec![7, 1], vec![8]]);
        assert_eq!([1, 8, 7, 2].map(|name| two.index_of(name)), [Some(0), Some(1), Some(0), None]);
    }

    #[test]
    fn an_address_is_the_same_board_in_both_of_its_forms() {
        let mapped = core::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped();
        assert_eq!(Boards::of_address(mapped.into()), Boards::of_address([10, 0, 0, 1].into()));
    }
}
