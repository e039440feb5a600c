//! Named threads that serve dispatchers (paper 3, II-C and III-A: workloops).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::dispatcher::EventDispatcher;
use super::handler::EventHandler;
use crate::clock::{Clock, MonotonicClock};
use crate::wait::{Idle, Waiter, Waker};

/// What a work loop does when there is nothing to do.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Dispatch {
    /// It sleeps until there is.
    #[default]
    Wait,
    /// It looks again at once: the shortest delay, at the price of a whole core.
    Poll,
}

struct Member {
    dispatcher: EventDispatcher,
    handler: Box<dyn EventHandler + Send>,
}

/// A thread to be: dispatchers with their handlers, which take turns.
pub struct WorkLoop {
    name: String,
    dispatch: Dispatch,
    members: Vec<Member>,
}

impl WorkLoop {
    /// An empty one. Placement rules find the thread by its name (at most 15 bytes are shown by the system).
    pub fn new(name: &str, dispatch: Dispatch) -> Self {
        Self { name: name.to_owned(), dispatch, members: Vec::new() }
    }

    /// Serves this dispatcher too, whose events go to the handler.
    #[must_use]
    pub fn with(mut self, dispatcher: EventDispatcher, handler: impl EventHandler + Send + 'static) -> Self {
        self.members.push(Member { dispatcher, handler: Box::new(handler) });
        self
    }

    /// Starts the thread. `on_start` runs on it first, for its placement.
    ///
    /// # Errors
    /// No thread or no descriptor is left.
    pub fn spawn(mut self, on_start: impl FnOnce() + Send + 'static) -> io::Result<RunningLoop> {
        let waiter = self.waiter()?;
        let (stop, waker) = (Arc::new(AtomicBool::new(false)), waiter.waker());
        let stopped = Arc::clone(&stop);
        let name = self.name.clone();
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            on_start();
            let mut idle = Idle::default();
            while !stopped.load(Ordering::Acquire) {
                self.turn(&waiter, &mut idle);
            }
        })?;
        Ok(RunningLoop { stop, waker, thread: Some(thread) })
    }

    /// Where the thread is to sleep.
    fn waiter(&mut self) -> io::Result<Waiter> {
        if let [only] = &mut self.members[..] {
            return only.dispatcher.waiter();
        }
        let mut waiter = Waiter::new()?;
        for descriptor in self.members.iter().flat_map(|member| member.dispatcher.wait_descriptors()) {
            waiter.watch(descriptor)?;
        }
        Ok(waiter)
    }

    /// Every dispatcher once; sleeps where none has had something to do for a while.
    fn turn(&mut self, waiter: &Waiter, idle: &mut Idle) {
        // One clock read for all.
        let now = MonotonicClock.now();
        let work: usize = (self.members.iter_mut())
            .map(|Member { dispatcher, handler }| dispatcher.dispatch(now, &mut **handler))
            .sum();
        if !idle.is_long_enough(now, work) || self.dispatch == Dispatch::Poll {
            return;
        }
        // All of them, so that each has armed its wake-up.
        let ready = self.members.iter_mut().map(|member| usize::from(!member.dispatcher.prepare_wait()));
        if ready.sum::<usize>() > 0 {
            return;
        }
        let deadline = self.members.iter().filter_map(|member| member.dispatcher.next_deadline()).min();
        let timeout = deadline.map(|deadline| deadline.since(now).max(Duration::from_nanos(1)));
        match &mut self.members[..] {
            [only] => only.dispatcher.wait(waiter, timeout),
            _ => waiter.wait(timeout),
        };
    }
}

/// A work loop on its thread. Dropping it stops it and waits for its end.
pub struct RunningLoop {
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl RunningLoop {
    /// Stops it after the present turn, and waits for its end. Its end points break at their peers unless they were
    /// closed before.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for RunningLoop {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A handler that panicked has said so on its own.
            let _ = thread.join();
        }
    }
}
