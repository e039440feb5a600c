//! A writer thread as its user's thread sees it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use rtrb::{Consumer, Producer, RingBuffer};

use super::RealDiskConfig;
use super::writer::{Command, Done, Tally, Writer};
use crate::doorbell::Doorbell;

/// Commands that may be under way between the threads.
const UNDER_WAY: usize = 4096;

/// The way to a writer thread and back.
pub(super) struct Lane {
    commands: Producer<Command>,
    done: Consumer<Done>,
    /// Commands for which there was no room under way.
    backlog: VecDeque<Command>,
    /// Commands handed to the writer whose end was not yet taken.
    under_way: usize,
    bell: Arc<Doorbell>,
    thread: Option<JoinHandle<()>>,
}

impl Lane {
    /// Starts the thread. `on_start` runs on it first, for its placement.
    pub(super) fn start(
        config: &RealDiskConfig,
        name: String,
        user_bell: &Arc<Doorbell>,
        tally: &Arc<Tally>,
        on_start: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let (commands, for_writer) = RingBuffer::new(UNDER_WAY);
        let (from_writer, done) = RingBuffer::new(UNDER_WAY);
        let bell = Arc::new(Doorbell::new()?);
        let bells = [Arc::clone(&bell), Arc::clone(user_bell)];
        let tally = Arc::clone(tally);
        let RealDiskConfig { sync_on_publish, mode, packing_threads, .. } = *config;
        let writer = Writer::new(for_writer, from_writer, bells, sync_on_publish, mode, packing_threads, tally);
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            on_start();
            writer.run();
        })?;
        let backlog = VecDeque::with_capacity(UNDER_WAY);
        Ok(Self { commands, done, backlog, under_way: 0, bell, thread: Some(thread) })
    }

    pub(super) fn command(&mut self, command: Command) {
        self.backlog.push_back(command);
        self.hand_over();
    }

    /// Hands commands to the writer while there is room for their ends.
    pub(super) fn hand_over(&mut self) {
        let before = self.under_way;
        while self.under_way < UNDER_WAY
            && let Some(command) = self.backlog.pop_front()
        {
            self.under_way += 1;
            // There is room: the ring holds as many as may be under way.
            let _ = self.commands.push(command);
        }
        if self.under_way > before {
            self.bell.notify();
        }
    }

    /// The next command that has ended.
    pub(super) fn take(&mut self) -> Option<Done> {
        let done = self.done.pop().ok()?;
        self.under_way -= 1;
        Some(done)
    }

    /// Nothing has ended.
    pub(super) fn is_idle(&self) -> bool {
        self.done.is_empty()
    }

    /// Whether the writer has everything, or takes nothing any more although nobody asked it to end.
    pub(super) fn is_handed_over(&self) -> bool {
        self.backlog.is_empty() || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the writer, which was told to stop, has ended.
    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A writer that panicked has said so on its own.
            let _ = thread.join();
        }
    }
}
