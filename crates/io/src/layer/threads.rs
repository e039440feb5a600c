//! Queues of events and requests between a dispatcher's thread and others, and the named threads that serve dispatchers
//! (paper 3, II-C and III-A: workloops).

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};

use super::EventHandler;
use super::dispatcher::EventDispatcher;
use super::event::{Event, PostError, Refused, Requests, Task, WorkRequest};
use crate::clock::{Clock, MonotonicClock};
use crate::doorbell::Doorbell;
use crate::wait::{Idle, Waiter, Waker};

/// Events of one task, taken on another thread than the dispatcher's. The dispatcher waits while events are not taken.
pub struct EventQueue {
    events: Consumer<Event>,
    /// Rung when there is an event and the owner of this queue sleeps.
    bell: Arc<Doorbell>,
    /// Rung when there is room again and the dispatcher sleeps.
    dispatcher: Arc<Doorbell>,
}

impl EventQueue {
    /// The next event.
    pub fn next_event(&mut self) -> Option<Event> {
        let was_full = self.events.slots() == self.events.buffer().capacity();
        let event = self.events.pop().ok()?;
        if was_full {
            self.dispatcher.notify();
        }
        Some(event)
    }

    /// Passes all available events to the handler; returns their number.
    pub fn dispatch(&mut self, handler: &mut dyn EventHandler, requests: &mut dyn Requests) -> usize {
        let mut taken = 0;
        while let Some(event) = self.next_event() {
            handler.handle(event, requests);
            taken += 1;
        }
        taken
    }

    /// Sleeps until there is an event, the dispatcher is gone, or the time-out passes.
    pub fn wait(&mut self, timeout: Option<Duration>) {
        self.bell.arm();
        if self.events.is_empty() && !self.events.is_abandoned() {
            self.bell.wait_for(timeout);
        }
        self.bell.disarm();
        self.bell.silence();
    }

    /// Whether the dispatcher is gone and every event was taken.
    pub fn is_over(&self) -> bool {
        self.events.is_empty() && self.events.is_abandoned()
    }
}

/// Posts work from another thread than the dispatcher's.
pub struct Requester {
    requests: Producer<WorkRequest>,
    dispatcher: Arc<Doorbell>,
}

impl Requests for Requester {
    /// Only [`PostError::Full`] and [`PostError::Closed`] are known here. Any other reason is reported with the
    /// request's completion.
    fn post(&mut self, request: WorkRequest) -> Result<(), Box<Refused>> {
        if self.requests.is_abandoned() {
            return Err(Box::new(Refused { request, why: PostError::Closed }));
        }
        match self.requests.push(request) {
            Ok(()) => {
                self.dispatcher.notify();
                Ok(())
            }
            Err(rtrb::PushError::Full(request)) => Err(Box::new(Refused { request, why: PostError::Full })),
        }
    }
}

/// A queue of events on the dispatcher's side.
struct Output {
    events: Producer<Event>,
    bell: Arc<Doorbell>,
    /// Events without room in the queue.
    waiting: VecDeque<Event>,
}

/// The destinations of a dispatcher's events, and the sources of its requests.
pub(super) struct Exchange {
    own: VecDeque<Event>,
    outputs: [Option<Output>; 3],
    inputs: Vec<Consumer<WorkRequest>>,
    /// Made with the first queue or requester.
    bell: Option<Arc<Doorbell>>,
    is_armed: bool,
}

impl Exchange {
    pub(super) fn new() -> Self {
        Self {
            own: VecDeque::with_capacity(1024),
            outputs: [const { None }; 3],
            inputs: Vec::new(),
            bell: None,
            is_armed: false,
        }
    }

    fn bell(&mut self) -> std::io::Result<Arc<Doorbell>> {
        if let Some(bell) = &self.bell {
            return Ok(Arc::clone(bell));
        }
        let bell = Arc::new(Doorbell::new()?);
        self.bell = Some(Arc::clone(&bell));
        Ok(bell)
    }

    /// Makes a queue for the events of this task from now on.
    pub(super) fn hand_out(&mut self, task: Task, events: usize) -> std::io::Result<EventQueue> {
        let (producer, consumer) = RingBuffer::new(events.max(1));
        let (bell, dispatcher) = (Arc::new(Doorbell::new()?), self.bell()?);
        let waiting = VecDeque::with_capacity(events);
        self.outputs[task as usize] = Some(Output { events: producer, bell: Arc::clone(&bell), waiting });
        Ok(EventQueue { events: consumer, bell, dispatcher })
    }

    /// Accepts requests from another thread from now on.
    pub(super) fn requester(&mut self, requests: usize) -> std::io::Result<Requester> {
        let (producer, consumer) = RingBuffer::new(requests.max(1));
        self.inputs.push(consumer);
        Ok(Requester { requests: producer, dispatcher: self.bell()? })
    }

    /// Adds an event to its queue.
    pub(super) fn tell(&mut self, event: Event) {
        match &mut self.outputs[event.task() as usize] {
            None => self.own.push_back(event),
            Some(output) => output.waiting.push_back(event),
        }
    }

    /// Hands over waiting events as far as there is room.
    pub(super) fn hand_over(&mut self) {
        for output in self.outputs.iter_mut().flatten() {
            let mut handed = false;
            while let Some(event) = output.waiting.pop_front() {
                match output.events.push(event) {
                    Ok(()) => handed = true,
                    Err(rtrb::PushError::Full(event)) => {
                        output.waiting.push_front(event);
                        break;
                    }
                }
            }
            if handed {
                output.bell.notify();
            }
        }
    }

    /// Whether users leave events untaken. Then receive and complete no more.
    pub(super) fn is_clogged(&self) -> bool {
        !self.own.is_empty() || self.outputs.iter().flatten().any(|output| !output.waiting.is_empty())
    }

    /// The next event of the dispatcher's own thread.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        self.own.pop_front()
    }

    /// The next request of another thread.
    pub(super) fn next_request(&mut self) -> Option<WorkRequest> {
        self.inputs.iter_mut().find_map(|input| input.pop().ok())
    }

    /// Prepares the thread for sleep. False if there is something to do.
    pub(super) fn prepare_wait(&mut self) -> bool {
        if let Some(bell) = &self.bell {
            bell.arm();
            self.is_armed = true;
        }
        let has_room = |output: &Output| !output.waiting.is_empty() && output.events.slots() > 0;
        let has_work = !self.own.is_empty()
            || self.inputs.iter().any(|input| !input.is_empty())
            || self.outputs.iter().flatten().any(has_room);
        if has_work {
            self.awake();
        }
        !has_work
    }

    /// Notes that the thread is awake.
    pub(super) fn awake(&mut self) {
        if core::mem::take(&mut self.is_armed)
            && let Some(bell) = &self.bell
        {
            bell.disarm();
            bell.silence();
        }
    }

    /// Becomes readable when another thread has posted something, or made room.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(|bell| bell.descriptor())
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // Threads that sleep at a queue have to learn that its dispatcher is gone.
        for output in self.outputs.iter_mut() {
            if let Some(Output { events, bell, .. }) = output.take() {
                drop(events);
                bell.notify();
            }
        }
    }
}

/// The behaviour of an idle work loop.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Dispatch {
    /// Sleeps until there is work.
    #[default]
    Wait,
    /// Polls again at once: the shortest delay, at the cost of a whole core.
    Poll,
}

struct Member {
    dispatcher: EventDispatcher,
    handler: Box<dyn EventHandler + Send>,
}

/// A thread to be started: dispatchers with their handlers, served in turn.
pub struct WorkLoop {
    name: String,
    dispatch: Dispatch,
    members: Vec<Member>,
}

impl WorkLoop {
    /// Makes a loop without dispatchers. Placement rules find the thread by its name (the system shows at most 15
    /// bytes).
    pub fn new(name: &str, dispatch: Dispatch) -> Self {
        Self { name: name.to_owned(), dispatch, members: Vec::new() }
    }

    /// Adds a dispatcher, whose events go to the handler.
    #[must_use]
    pub fn with(mut self, dispatcher: EventDispatcher, handler: impl EventHandler + Send + 'static) -> Self {
        self.members.push(Member { dispatcher, handler: Box::new(handler) });
        self
    }

    /// Starts the thread. `on_start` runs on it first, for its placement.
    ///
    /// # Errors
    /// If no thread or no descriptor is left.
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

    /// Makes the waiter of the thread.
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

    /// Serves every dispatcher once; sleeps if none has had something to do for a while.
    fn turn(&mut self, waiter: &Waiter, idle: &mut Idle) {
        // One clock reading for all.
        let now = MonotonicClock.now();
        let work: usize = (self.members.iter_mut())
            .map(|Member { dispatcher, handler }| dispatcher.dispatch(now, &mut **handler))
            .sum();
        if !idle.is_long_enough(now, work) || self.dispatch == Dispatch::Poll {
            return;
        }
        // All of them, so that each arms its wake-up.
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
            // A handler that panicked has reported that itself.
            let _ = thread.join();
        }
    }
}
