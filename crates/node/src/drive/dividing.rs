//! What stands behind the framer of a source whose frames hold several events: they fall apart, in batches for which there
//! is room.
//!
//! ```text
//!  framer --a few frames--> Divider --fragments, as many as there is room for--> flow::Readout
//!                             ^ |
//!                             | +--> here: a named format, or a library that is trusted
//!                             +----- or in another process (splitting), in batches, whenever that has an answer
//! ```
//! More frames are looked for only when nothing is left of the last ones: whoever reads the source is held back by it.

use super::splitting::{SplitterLink, Supervised};
use ropewalk_flow::messages::Received;
use ropewalk_flow::readout::{Divider, Divides, Framer, FramingError};
use ropewalk_flow::supervision::SupervisorConfig;
use ropewalk_terms::{Counter, Instant, SourceId};
use ropewalk_wire::description::Description;
use std::os::fd::BorrowedFd;

/// Frames that are divided before others are looked for.
const FRAMES_AT_ONCE: usize = 32;

/// Who says into which pieces frames fall apart.
enum By {
    Here(Box<dyn Divides + Send>),
    Elsewhere(Box<Supervised>),
}

/// The division of one source's frames.
pub(super) struct Dividing {
    source: SourceId,
    divider: Divider,
    by: By,
    frames: Vec<Received>,
    /// Behind the frames that wait, the boundary of the next one was lost.
    lost: Option<FramingError>,
}

impl Dividing {
    /// For a source whose description says into what its frames fall apart; none for others.
    pub(super) fn of(source: SourceId, description: &Description) -> Option<Box<Self>> {
        Some(Self::here(source, description, Box::new(description.splitter()?)))
    }

    /// By something that is called right here.
    pub(super) fn here(source: SourceId, description: &Description, by: Box<dyn Divides + Send>) -> Box<Self> {
        Self::new(source, description, By::Here(by))
    }

    /// By a process under supervision.
    pub(super) fn elsewhere(
        source: SourceId,
        description: &Description,
        link: Box<dyn SplitterLink>,
        config: SupervisorConfig,
    ) -> Box<Self> {
        Self::new(source, description, By::Elsewhere(Box::new(Supervised::new(link, config))))
    }

    fn new(source: SourceId, description: &Description, by: By) -> Box<Self> {
        let divider = Divider::new(source, description);
        Box::new(Self { source, divider, by, frames: Vec::with_capacity(FRAMES_AT_ONCE), lost: None })
    }

    /// Whether nothing waits to be taken.
    pub(super) fn is_empty(&self) -> bool {
        self.divider.is_empty() && self.lost.is_none()
    }

    /// Whether more frames should be put before they are divided: each crossing to another process costs.
    pub(super) fn gathers(&self) -> bool {
        match &self.by {
            By::Here(_) => false,
            By::Elsewhere(by) => by.is_settled() && self.divider.frames().count() < FRAMES_AT_ONCE,
        }
    }

    /// Whether nothing can be taken before another process has answered.
    pub(super) fn is_pending(&self) -> bool {
        match &self.by {
            By::Here(_) => false,
            By::Elsewhere(by) => !self.divider.is_known() && by.is_pending(),
        }
    }

    /// How many frames fell apart since it was asked last.
    pub(super) const fn take_divided(&mut self) -> u64 {
        self.divider.take_divided()
    }

    /// Appends the next fragments of a stream whose last bytes came at `came`, at most so many; fewer where no more frames
    /// came, or while it [is pending](Dividing::is_pending).
    ///
    /// # Errors
    /// Where the boundary of the next frame is lost, once everything before it was taken: see [`Framer::next_batch`].
    pub(super) fn next_batch(
        &mut self,
        now: Instant,
        came: Instant,
        framer: &mut Framer,
        out: &mut Vec<Received>,
        at_most: usize,
    ) -> Result<(), FramingError> {
        let end = out.len() + at_most;
        while out.len() < end {
            self.take(now, out, end - out.len());
            if out.len() == end || !self.divider.is_empty() {
                break;
            }
            if let Some(error) = self.lost.take() {
                return Err(error);
            }
            self.lost = framer.next_batch(&mut self.frames, FRAMES_AT_ONCE).err();
            if self.frames.is_empty() && self.lost.is_none() {
                break;
            }
            self.frames.drain(..).for_each(|frame| self.divider.put(came, frame));
        }
        Ok(())
    }

    /// Frames came in a datagram; `frames` is left empty.
    pub(super) fn put(&mut self, came: Instant, frames: &mut Vec<Received>) {
        frames.drain(..).for_each(|frame| self.divider.put(came, frame));
    }

    /// Appends the next fragments of what was put, at most so many.
    pub(super) fn take(&mut self, now: Instant, out: &mut Vec<Received>, at_most: usize) {
        let end = out.len() + at_most;
        let by = match &mut self.by {
            By::Here(by) => return self.divider.next_batch(&mut **by, out, at_most),
            By::Elsewhere(by) => by,
        };
        loop {
            self.divider.next_batch(&mut **by, out, end - out.len());
            if out.len() == end || !by.is_settled() || self.divider.frames().next().is_none() {
                return;
            }
            by.begin(self.divider.frames());
            by.turn(now);
        }
    }

    /// Looks after the other process, if there is one. Returns how much happened.
    pub(super) fn turn(&mut self, now: Instant) -> usize {
        match &mut self.by {
            By::Here(_) => 0,
            By::Elsewhere(by) => by.turn(now),
        }
    }

    /// When the next turn is due even if nothing happens.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match &self.by {
            By::Here(_) => None,
            By::Elsewhere(by) => by.next_deadline(),
        }
    }

    /// Appends what becomes readable when the other process has something to say.
    pub(super) fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        if let By::Elsewhere(by) = &self.by {
            by.descriptors(into);
        }
    }

    /// What is counted here of its source, cumulative.
    pub(super) fn counters(&self) -> [(SourceId, Counter, u64); 2] {
        let (copied, restarted) = match &self.by {
            By::Here(by) => (by.copied_bytes(), 0),
            By::Elsewhere(by) => (by.copied_bytes(), by.restarted()),
        };
        [(self.source, Counter::BytesCopied, copied), (self.source, Counter::SplitterRestarts, restarted)]
    }

    /// Drops what waits, and says how many fragments that were, as far as it is known.
    pub(super) fn abandon(&mut self) -> u64 {
        let fragments = self.divider.fragments();
        self.divider.clear();
        self.lost = None;
        fragments
    }
}
