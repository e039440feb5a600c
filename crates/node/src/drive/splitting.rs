//! Frames that are divided by somebody else's function in a process of its own: a batch of them at a time, under supervision.

use ropewalk_flow::readout::Divides;
use ropewalk_flow::supervision::{Order, Outcome, Supervisor, SupervisorConfig};
use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::framing::Piece;
use std::os::fd::BorrowedFd;

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

/// A splitter in another process, or what stands for it.
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

    /// Appends the pieces of a frame of the batch that is done, or says what is wrong with it. None where what the process said
    /// cannot be true.
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

    /// Whether it is not known yet what becomes of the next frame of the batch.
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
