//! The monitoring tap: copies of single events for monitoring clients, taken in passing.
//!
//! ```text
//!  a client --ask: which events, memory for one--> Tap <--offer: each event as it is built-- builder units, gateways
//!        ^------------------- the copy -----------------/
//! ```
//! The requester of an event provides the memory for it. A builder unit that has such an event fills the memory and
//! continues. It never waits for the tap and allocates nothing, so that a viewer cannot delay a run. Without a request,
//! the cost is one check of a number for each event, or for each set of a gateway.

use crate::record::Recorded;
use ropewalk_flow::builder::EventView;
use ropewalk_terms::{Attempt, EventKey, Incarnation, NodeId, SourceId};
use ropewalk_wire::fed;
use ropewalk_wire::message::FragmentFlags;
use ropewalk_wire::run_file::{EventFlags, FragmentEntry, MissingSource};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of open requests.
const MOST_WISHES: usize = 8;
/// Maximum number of bytes copied of an event, of all its fragments together.
pub const SAMPLE_BYTES: usize = 4 << 20;

/// Selection of the requested events. Without a condition any event matches.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct EventSelection {
    /// Whether required sources must be missing.
    pub is_incomplete: bool,
    /// Whether the content of a fragment must be in doubt.
    pub is_doubtful: bool,
    /// A source that must have a fragment in it.
    pub source: Option<SourceId>,
    /// The required trigger type. A gateway's events are copied before they are decided, and have type 0.
    pub trigger_type: Option<u16>,
    /// Minimum number of payload bytes.
    pub least_bytes: u64,
}

impl EventSelection {
    fn takes(&self, event: &impl Recorded) -> bool {
        let head = event.head(Incarnation(0));
        (!self.is_incomplete || head.flags.contains(EventFlags::INCOMPLETE))
            && (!self.is_doubtful || head.flags.contains(EventFlags::DOUBTFUL))
            && self.source.is_none_or(|source| event.entries().any(|entry| entry.source == source))
            && self.trigger_type.is_none_or(|kind| head.trigger_type == kind)
            && (self.least_bytes == 0
                || event.entries().map(|entry| u64::from(entry.length)).sum::<u64>() >= self.least_bytes)
    }

    /// Returns whether an event may match, if only its completeness is known.
    const fn may_take(&self, is_complete: bool) -> bool {
        !(self.is_incomplete && is_complete)
    }
}

/// An event that can be copied, from any kind of builder.
pub(crate) trait Sampled: Recorded {
    /// Returns its lumisection, from 1; 0 without lumisections.
    fn lumisection(&self) -> u32;

    /// Returns the bytes of each fragment, by reference, in the order of the entries.
    fn pieces_of_each(&self) -> impl Iterator<Item = impl Iterator<Item = &[u8]>>;
}

impl Sampled for EventView<'_> {
    fn lumisection(&self) -> u32 {
        self.lumisection
    }

    fn pieces_of_each(&self) -> impl Iterator<Item = impl Iterator<Item = &[u8]>> {
        self.fragments().map(|fragment| fragment.payload.pieces())
    }
}

/// A copy of an event, or of the beginnings of its fragments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventSample {
    /// The unit that built it.
    pub builder: NodeId,
    /// Key of the event.
    pub key: EventKey,
    /// The number of this attempt to build it; 0 before a gateway gives it to a node.
    pub attempt: Attempt,
    /// Its lumisection, from 1; 0 if a gateway built it.
    pub lumisection: u32,
    /// Trigger type; 0 if no fragment has one.
    pub trigger_type: u16,
    /// Flags of the event.
    pub flags: EventFlags,
    /// Its fragments, in the order of the configured sources.
    pub fragments: Vec<SampledFragment>,
    /// The required sources that are missing.
    pub missing: Vec<MissingSource>,
    bytes: Vec<u8>,
}

/// A fragment of a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SampledFragment {
    /// Its metadata, including its whole length.
    pub entry: FragmentEntry,
    copied: Range<usize>,
}

impl SampledFragment {
    /// Returns readable remarks on its content.
    pub fn remarks(&self) -> impl Iterator<Item = &'static str> {
        self.entry.flags.texts()
    }
}

impl EventSample {
    fn with_room(sources: usize, bytes: usize) -> Self {
        Self {
            builder: NodeId::builder(0),
            key: EventKey::new(0, 0),
            attempt: Attempt(0),
            lumisection: 0,
            trigger_type: 0,
            flags: EventFlags::default(),
            fragments: Vec::with_capacity(sources),
            missing: Vec::with_capacity(sources),
            bytes: Vec::with_capacity(bytes),
        }
    }

    /// Returns the first bytes of a fragment of this sample: the requested number, or as many as it has.
    pub fn front_of(&self, fragment: &SampledFragment) -> &[u8] {
        self.bytes.get(fragment.copied.clone()).unwrap_or_default()
    }

    /// Returns whether no required source is missing.
    pub const fn is_complete(&self) -> bool {
        !self.flags.contains(EventFlags::INCOMPLETE)
    }

    /// Returns the fields of a fragment's header as decoded on arrival, and its FED header if it has one.
    pub fn fields_of(&self, fragment: &SampledFragment) -> Vec<(&'static str, u64)> {
        let entry = &fragment.entry;
        let mut fields = vec![("number", entry.raw_id), ("trigger type", entry.trigger_type.into())];
        if entry.flags.contains(FragmentFlags::HAS_BUNCH_CROSSING) {
            fields.push(("bunch crossing", entry.bunch_crossing.into()));
        }
        if entry.flags.contains(FragmentFlags::HAS_TIME) {
            fields.push(("time", entry.raw_time));
        }
        // Other formats may begin like a FED fragment, but hardly with their own source number in the right place.
        let header = self.front_of(fragment).first_chunk().and_then(|bytes| fed::Header::parse(*bytes).ok());
        if let Some(header) = header.filter(|header| header.source() == entry.source) {
            let level1 = ("FED L1 id", header.level1_id().into());
            fields.extend([
                level1,
                ("FED event type", header.event_type().into()),
                ("FED version", header.version().into()),
            ]);
        }
        fields
    }

    /// Copies an event into the existing memory, at most `front` bytes of each fragment.
    fn fill(&mut self, builder: NodeId, event: &impl Sampled, front: usize) {
        let head = event.head(Incarnation(0));
        (self.builder, self.key, self.attempt) = (builder, head.key, head.attempt);
        (self.lumisection, self.trigger_type, self.flags) = (event.lumisection(), head.trigger_type, head.flags);
        let room = self.fragments.capacity();
        for (pieces, entry) in event.pieces_of_each().zip(event.entries()).take(room) {
            let begin = self.bytes.len();
            let end = self.bytes.capacity().min(begin + front);
            for piece in pieces {
                self.bytes.extend_from_slice(&piece[..piece.len().min(end - self.bytes.len())]);
            }
            self.fragments.push(SampledFragment { entry, copied: begin..self.bytes.len() });
        }
        let room = self.missing.capacity();
        self.missing.extend(event.missing().take(room));
    }
}

/// A request for an event.
#[derive(Debug)]
struct Wish {
    number: u64,
    selection: EventSelection,
    front: usize,
    sample: EventSample,
    is_filled: bool,
}

#[derive(Debug, Default)]
struct Wishes {
    wishes: Vec<Wish>,
    last: u64,
}

#[derive(Debug)]
struct Shared {
    /// Number of open requests.
    open: AtomicUsize,
    wishes: Mutex<Wishes>,
    sources: usize,
}

impl Shared {
    /// Locks the requests, for the clients; builder units never wait for this lock.
    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The point where events are requested and offered. Clones refer to the same tap.
#[derive(Clone, Debug)]
pub struct Tap(Arc<Shared>);

impl PartialEq for Tap {
    /// Compares identity: whether both refer to the same tap.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Tap {}

impl Tap {
    /// Creates a tap for a run with this many sources.
    pub fn new(sources: usize) -> Self {
        let wishes = Wishes { wishes: Vec::with_capacity(MOST_WISHES), last: 0 };
        Self(Arc::new(Shared { open: AtomicUsize::new(0), wishes: Mutex::new(wishes), sources }))
    }

    /// Requests the next event of this selection, with the first `front` bytes of each fragment, or fewer if all of
    /// them together would exceed [`SAMPLE_BYTES`]. `None` if too many requests are open.
    pub fn ask(&self, selection: EventSelection, front: usize) -> Option<Asked> {
        let sources = self.0.sources.max(1);
        let front = front.min(SAMPLE_BYTES / sources);
        let sample = EventSample::with_room(sources, front * sources);
        let mut wishes = self.0.wishes();
        if wishes.wishes.len() == MOST_WISHES {
            return None;
        }
        wishes.last += 1;
        let number = wishes.last;
        wishes.wishes.push(Wish { number, selection, front, sample, is_filled: false });
        self.0.open.fetch_add(1, Ordering::Relaxed);
        Some(Asked { tap: self.clone(), number })
    }

    /// Returns whether a request is waiting.
    pub(crate) fn is_open(&self) -> bool {
        self.0.open.load(Ordering::Relaxed) > 0
    }

    /// Returns whether a request for a complete (or incomplete) event may be waiting, so that it is worth checking.
    /// Never waits.
    pub(crate) fn may_take(&self, is_complete: bool) -> bool {
        let Ok(wishes) = self.0.wishes.try_lock() else { return false };
        wishes.wishes.iter().any(|wish| !wish.is_filled && wish.selection.may_take(is_complete))
    }

    /// Offers a built event: each matching request gets a copy. Never waits.
    pub(crate) fn offer(&self, builder: NodeId, event: &impl Sampled) {
        if !self.is_open() {
            return;
        }
        // Another thread holds the lock. There will be other events.
        let Ok(mut wishes) = self.0.wishes.try_lock() else { return };
        for wish in wishes.wishes.iter_mut().filter(|wish| !wish.is_filled && wish.selection.takes(event)) {
            wish.sample.fill(builder, event, wish.front);
            wish.is_filled = true;
            self.0.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A requested event. Dropping this cancels the request.
#[derive(Debug)]
pub struct Asked {
    tap: Tap,
    number: u64,
}

impl Asked {
    /// Returns the event, once, when it has arrived.
    pub fn take(&mut self) -> Option<EventSample> {
        let mut wishes = self.tap.0.wishes();
        let place = wishes.wishes.iter().position(|wish| wish.number == self.number && wish.is_filled)?;
        Some(wishes.wishes.swap_remove(place).sample)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut wishes = self.tap.0.wishes();
        if let Some(place) = wishes.wishes.iter().position(|wish| wish.number == self.number)
            && !wishes.wishes.swap_remove(place).is_filled
        {
            self.tap.0.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
