//! Frames that hold several events are divided behind the framer of their source, in batches for which there is room.
//!
//! ```text
//!  framer --a few frames--> SourceSplitter --fragments, as many as there is room for--> flow::Readout
//!                             ^ |
//!                             | +--> here: a named format, or a library that is trusted
//!                             +----- SplitterLink: a function in a process of its own, supervised, a batch at a time
//! ```
//! More frames are looked for only when nothing is left of the last ones, so that the reader of the source is held back.

use ropewalk_flow::messages::Received;
use ropewalk_flow::readout::{Divider, Divides, Framer, FramingError};
use ropewalk_flow::supervision::{Order, Outcome, Supervisor, SupervisorConfig};
use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, Counter, Instant, SourceId};
use ropewalk_wire::description::Description;
use ropewalk_wire::framing::Piece;
use std::os::fd::BorrowedFd;

/// Frames that are divided before others are looked for.
const FRAMES_AT_ONCE: usize = 32;

/// Who says into which pieces frames fall apart.
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
    /// Behind the frames that wait, the boundary of the next one was lost.
    lost: Option<FramingError>,
}

impl SourceSplitter {
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

    /// Appends the next fragments of a stream whose last bytes came at `came`, at most this many; fewer where no more
    /// frames came, or while it [is pending](SourceSplitter::is_pending).
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

    /// Frames came in a datagram; `frames` is left empty.
    pub(super) fn put(&mut self, came: Instant, frames: &mut Vec<Received>) {
        frames.drain(..).for_each(|frame| self.divider.put(came, frame));
    }

    /// Appends the next fragments of what was put, at most this many.
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

/// What is seen of a splitter's process.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessSight {
    /// It has become ready.
    pub is_ready: bool,
    /// Frames of the batch that it has done.
    pub done: usize,
    /// It was there, and has ended: that is certain.
    pub has_ended: bool,
}

/// A splitter in another process, or a substitute for one.
pub trait SplitterLink: Send {
    /// Frames that a batch has at most.
    fn most_frames(&self) -> usize;

    /// Starts a process; that this failed is seen as its end.
    fn start(&mut self);

    /// Ends the process; when that is certain it is seen.
    fn kill(&mut self);

    /// Another batch begins.
    fn clear(&mut self);

    /// Adds a frame to the batch.
    fn put(&mut self, frame: &Payload);

    /// Lets the process divide these frames of the batch.
    fn ask(&mut self, first: usize, count: usize);

    /// Looks at the process.
    fn look(&mut self, now: Instant) -> ProcessSight;

    /// Appends the pieces of a frame of the batch that is done, or says what is wrong with it. `None` if what the
    /// process said cannot be true.
    fn answer(&mut self, index: usize, pieces: &mut Vec<Piece>) -> Option<Result<(), Cause>>;

    /// Bytes of frames that were copied.
    fn copied_bytes(&self) -> u64;

    /// When it is to be looked at even if nothing becomes readable.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Appends what becomes readable when there is something to look at, of whichever process: it is asked once.
    fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>);
}

/// The division of a source's frames in another process.
pub(super) struct Supervised {
    link: Box<dyn SplitterLink>,
    supervisor: Supervisor,
    /// Frames of the batch, and the next one whose pieces are asked for.
    put: usize,
    next: usize,
}

impl Supervised {
    pub(super) fn new(link: Box<dyn SplitterLink>, config: SupervisorConfig) -> Self {
        let supervisor = Supervisor::new(config, link.most_frames());
        Self { link, supervisor, put: 0, next: 0 }
    }

    /// Whether nothing of a batch is left, so that another one may begin.
    pub(super) const fn is_settled(&self) -> bool {
        self.next == self.put
    }

    /// Whether the next frame of the batch has no answer yet.
    pub(super) fn is_pending(&self) -> bool {
        !self.is_settled() && self.supervisor.outcome(self.next) == Outcome::Pending
    }

    /// Begins another batch, of the first of these frames.
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

    /// Looks at the process and does what must be done. Returns how much happened.
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

    /// Processes that were started in the place of another one.
    pub(super) const fn restarted(&self) -> u64 {
        self.supervisor.restarted()
    }

    /// When the next turn is due even if nothing happens.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.supervisor.next_deadline().into_iter().chain(self.link.next_deadline()).min()
    }

    /// Appends what becomes readable when something happens.
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
                    // It is tried once more, unless it was.
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
