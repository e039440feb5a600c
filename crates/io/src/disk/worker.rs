//! A thread that does jobs of one kind in their order, for another one that goes on meanwhile.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::doorbell::Doorbell;

/// Such a thread as whoever gives it jobs sees it. Dropping it ends it, after what it has to do.
pub(super) struct Worker<J, E> {
    /// None as soon as the thread is to end.
    jobs: Option<Producer<J>>,
    ended: Consumer<E>,
    /// Rung when there is a job while the worker sleeps.
    bell: Arc<Doorbell>,
    /// Jobs whose end was not taken.
    under_way: usize,
    thread: Option<JoinHandle<()>>,
}

impl<J: Send + 'static, E: Send + 'static> Worker<J, E> {
    /// Starts the thread, which has `room` jobs at most and rings `done` when one of them has ended. It runs where the calling
    /// thread may.
    pub(super) fn start(
        name: String,
        room: usize,
        done: Arc<Doorbell>,
        mut work: impl FnMut(J) -> E + Send + 'static,
    ) -> io::Result<Self> {
        let (jobs, mut queue) = RingBuffer::<J>::new(room);
        let (mut end, ended) = RingBuffer::new(room);
        let bell = Arc::new(Doorbell::new()?);
        let own = Arc::clone(&bell);
        let run = move || {
            loop {
                match queue.pop() {
                    Ok(job) => {
                        // There is room: there are no more jobs than that.
                        let _ = end.push(work(job));
                        done.notify();
                    }
                    Err(_) if queue.is_abandoned() => return,
                    Err(_) => {
                        own.arm();
                        if queue.is_empty() && !queue.is_abandoned() {
                            own.wait();
                        }
                        own.disarm();
                        own.silence();
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(run)?;
        Ok(Self { jobs: Some(jobs), ended, bell, under_way: 0, thread: Some(thread) })
    }

    /// Jobs whose end was not taken.
    pub(super) const fn under_way(&self) -> usize {
        self.under_way
    }

    /// Hands a job over; false where there is no room for it.
    pub(super) fn give(&mut self, job: J) -> bool {
        let is_given = self.jobs.as_mut().is_some_and(|jobs| jobs.push(job).is_ok());
        self.under_way += usize::from(is_given);
        self.bell.notify();
        is_given
    }

    /// The end of the oldest job, if it has ended.
    pub(super) fn take(&mut self) -> Option<E> {
        let end = self.ended.pop().ok()?;
        self.under_way -= 1;
        Some(end)
    }
}

impl<J, E> Drop for Worker<J, E> {
    fn drop(&mut self) {
        self.jobs = None;
        self.bell.notify();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so on its own.
            let _ = thread.join();
        }
    }
}
