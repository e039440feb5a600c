//! Division of frames that hold several events, behind the framer of their source, in batches for which there is room.
//!
//! ```text
//!  framer --a few frames--> SourceSplitter --fragments, as many as there is room for--> flow::Readout
//!                             ^ |
//!                             | +--> here: a named format, or a library that is trusted
//!                             +----- SplitterLink: a function in a process of its own, supervised, a batch at a time
//! ```
//! Further frames are read only when nothing is left of the last ones. This exerts back-pressure on the source.

use ropewalk_flow::messages::Received;
use ropewalk_flow::readout::{Divider, Divides, Framer, FramingError};
use ropewalk_flow::supervision::{Order, Outcome, Supervisor, SupervisorConfig};
use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, Counter, Instant, SourceId};
use ropewalk_wire::description::Description;
use ropewalk_wire::framing::Piece;
use std::os::fd::BorrowedFd;

/// Number of frames that are divided before others are read.
const FRAMES_AT_ONCE: usize = 32;

/// The implementation of a division.
enum By {
    Here(Box<dyn Divides + Send>),
    Elsewhere(Box<Supervised>),
}

/// The division of one source's frames.
pub(super) struct SourceSplitter {
    source: SourceId,
    divider: Divider,
    by: By,
    frames: Vec<Received>,
    /// Set if the boundary of the frame after the waiting ones was lost.
    lost: Option<FramingError>,
}

impl SourceSplitter {
    /// Creates the splitter of a source whose description defines a division; `None` for others.
    pub(super) fn of(source: SourceId, description: &Description) -> Option<Box<Self>> {
        Some(Self::here(source, description, Box::new(description.splitter()?)))
    }

    /// Creates a splitter that is called in this thread.
    pub(super) fn here(source: SourceId, description: &Description, by: Box<dyn Divides + Send>) -> Box<Self> {
        Self::new(source, description, By::Here(by))
    }

    /// Creates a splitter in a supervised process.
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

    /// Returns whether nothing waits to be taken.
    pub(super) fn is_empty(&self) -> bool {
        self.divider.is_empty() && self.lost.is_none()
    }

    /// Returns whether more frames should be added before they are divided, because each transfer to another process
    /// costs.
    pub(super) fn gathers(&self) -> bool {
        match &self.by {
            By::Here(_) => false,
            By::Elsewhere(by) => by.is_settled() && self.divider.frames().count() < FRAMES_AT_ONCE,
        }
    }

    /// Returns whether nothing can be taken before another process has answered.
    pub(super) fn is_pending(&self) -> bool {
        match &self.by {
            By::Here(_) => false,
            By::Elsewhere(by) => !self.divider.is_known() && by.is_pending(),
        }
    }

    /// Returns the number of frames divided since the last call.
    pub(super) const fn take_divided(&mut self) -> u64 {
        self.divider.take_divided()
    }

    /// Appends the next fragments of a stream whose last bytes arrived at `came`, at most this many. Appends fewer if
    /// there are no more frames, or while it [is pending](SourceSplitter::is_pending).
    ///
    /// # Errors
    /// If the boundary of the next frame is lost, once everything before it was taken: see [`Framer::next_batch`].
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

    /// Adds the frames of a datagram, and empties `frames`.
    pub(super) fn put(&mut self, came: Instant, frames: &mut Vec<Received>) {
        frames.drain(..).for_each(|frame| self.divider.put(came, frame));
    }

    /// Appends the next fragments of the added frames, at most this many.
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

    /// Supervises the other process, if there is one. Returns the amount of work done.
    pub(super) fn turn(&mut self, now: Instant) -> usize {
        match &mut self.by {
            By::Here(_) => 0,
            By::Elsewhere(by) => by.turn(now),
        }
    }

    /// Returns when the next turn is due even if nothing happens.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match &self.by {
            By::Here(_) => None,
            By::Elsewhere(by) => by.next_deadline(),
        }
    }

    /// Appends the descriptors that become readable when the other process has news.
    pub(super) fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        if let By::Elsewhere(by) = &self.by {
            by.descriptors(into);
        }
    }

    /// Returns the cumulative counters of its source.
    pub(super) fn counters(&self) -> [(SourceId, Counter, u64); 2] {
        let (copied, restarted) = match &self.by {
            By::Here(by) => (by.copied_bytes(), 0),
            By::Elsewhere(by) => (by.copied_bytes(), by.restarted()),
        };
        [(self.source, Counter::BytesCopied, copied), (self.source, Counter::SplitterRestarts, restarted)]
    }

    /// Drops the waiting frames. Returns the number of their fragments, as far as it is known.
    pub(super) fn abandon(&mut self) -> u64 {
        let fragments = self.divider.fragments();
        self.divider.clear();
        self.lost = None;
        fragments
    }
}

/// Observed state of a splitter's process.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessSight {
    /// Whether it has become ready.
    pub is_ready: bool,
    /// Number of frames of the batch that it has completed.
    pub done: usize,
    /// Whether it existed and has certainly ended.
    pub has_ended: bool,
}

/// A splitter in another process, or a substitute for one.
pub trait SplitterLink: Send {
    /// Returns the maximum number of frames in a batch.
    fn most_frames(&self) -> usize;

    /// Starts a process. A failure to start appears as the process's end.
    fn start(&mut self);

    /// Kills the process. Its end becomes visible once it is certain.
    fn kill(&mut self);

    /// Begins another batch.
    fn clear(&mut self);

    /// Adds a frame to the batch.
    fn put(&mut self, frame: &Payload);

    /// Requests the division of these frames of the batch.
    fn ask(&mut self, first: usize, count: usize);

    /// Returns the state of the process.
    fn look(&mut self, now: Instant) -> ProcessSight;

    /// Appends the pieces of a completed frame of the batch, or returns what is wrong with the frame. `None` if the
    /// process's answer cannot be valid.
    fn answer(&mut self, index: usize, pieces: &mut Vec<Piece>) -> Option<Result<(), Cause>>;

    /// Returns the number of bytes of frames that were copied.
    fn copied_bytes(&self) -> u64;

    /// Returns when to look at it even if nothing becomes readable.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Appends the descriptors that become readable when any process has news. They are queried only once, and must
    /// cover every later process.
    fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>);
}

/// The division of a source's frames in another process.
pub(super) struct Supervised {
    link: Box<dyn SplitterLink>,
    supervisor: Supervisor,
    /// Number of frames of the batch, and the next one whose pieces are requested.
    put: usize,
    next: usize,
}

impl Supervised {
    pub(super) fn new(link: Box<dyn SplitterLink>, config: SupervisorConfig) -> Self {
        let supervisor = Supervisor::new(config, link.most_frames());
        Self { link, supervisor, put: 0, next: 0 }
    }

    /// Returns whether nothing of a batch is left, so that another one may begin.
    pub(super) const fn is_settled(&self) -> bool {
        self.next == self.put
    }

    /// Returns whether the next frame of the batch has no answer yet.
    pub(super) fn is_pending(&self) -> bool {
        !self.is_settled() && self.supervisor.outcome(self.next) == Outcome::Pending
    }

    /// Begins another batch with the first of these frames.
    pub(super) fn begin<'a>(&mut self, frames: impl Iterator<Item = &'a Payload>) {
        self.link.clear();
        self.supervisor.clear();
        (self.put, self.next) = (0, 0);
        for frame in frames.take(self.link.most_frames()) {
            self.link.put(frame);
            self.supervisor.add();
            self.put += 1;
        }
    }

    /// Checks the process and does the necessary work. Returns the amount of work done.
    pub(super) fn turn(&mut self, now: Instant) -> usize {
        let was_pending = self.is_pending();
        let sight = self.link.look(now);
        self.supervisor.progressed(now, sight.done);
        if sight.is_ready {
            self.supervisor.ready();
        }
        if sight.has_ended {
            self.supervisor.ended(now);
        }
        let mut work = usize::from(sight.is_ready || sight.has_ended || was_pending && !self.is_pending());
        while let Some(order) = self.supervisor.poll(now) {
            work += 1;
            match order {
                Order::Start => self.link.start(),
                Order::Ask { first, count } => self.link.ask(first, count),
                Order::Kill => self.link.kill(),
            }
        }
        work
    }

    /// Returns the number of processes that were started to replace another one.
    pub(super) const fn restarted(&self) -> u64 {
        self.supervisor.restarted()
    }

    /// Returns when the next turn is due even if nothing happens.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.supervisor.next_deadline().into_iter().chain(self.link.next_deadline()).min()
    }

    /// Appends the descriptors that become readable when something happens.
    pub(super) fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        self.link.descriptors(into);
    }
}

impl Divides for Supervised {
    fn divide(&mut self, _: &Payload, pieces: &mut Vec<Piece>) -> Option<Result<(), Cause>> {
        if self.is_settled() {
            return None;
        }
        let said = match self.supervisor.outcome(self.next) {
            Outcome::Pending => return None,
            Outcome::Failed => Err(Cause::SplitterFailed),
            Outcome::Answered => match self.link.answer(self.next, pieces) {
                Some(said) => said,
                None => {
                    pieces.clear();
                    self.supervisor.disbelieve(self.next);
                    // It is retried once.
                    if self.is_pending() {
                        return None;
                    }
                    Err(Cause::SplitterFailed)
                }
            },
        };
        self.next += 1;
        Some(said)
    }

    fn copied_bytes(&self) -> u64 {
        self.link.copied_bytes()
    }
}
