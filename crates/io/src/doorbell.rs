//! Wakes another thread, at the cost of one fence as long as that thread is awake.
//!
//! ```text
//!  sleeper: fall_asleep -> look once more -> sleep        worker: publish -> must_be_woken -> ring
//! ```
//! Before a thread sleeps it sets a flag ([`Sleeper`]), so that it is woken when there is something to do, and never
//! disturbed while it is awake. Two fences stand between the two writes and the two reads, so that at least one side
//! sees the other's write: either the sleeper sees the published work, or the worker sees that it sleeps. Loom tries
//! every order below.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::wait::{new_bell, ring, silence};

/// Wakes one thread, but only if it announced that it sleeps: a running one is never disturbed.
#[derive(Debug)]
pub struct Doorbell {
    sleeper: Sleeper,
    bell: OwnedFd,
}

impl Doorbell {
    /// A doorbell of a thread that is awake.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { sleeper: Sleeper::new(), bell: new_bell()? })
    }

    /// Call it after publishing something.
    pub fn notify(&self) {
        if self.sleeper.must_be_woken() {
            ring(self.bell.as_fd());
        }
    }

    /// Announces that the thread is about to sleep. Its condition must be checked *after* this call.
    pub fn arm(&self) {
        self.sleeper.fall_asleep();
    }

    /// Announces that the thread is awake. A ring at this moment costs one sleep that ends at once.
    pub fn disarm(&self) {
        self.sleeper.wake();
    }

    /// Clears the ring that ended a sleep.
    pub fn silence(&self) {
        silence(self.bell.as_fd());
    }

    /// Sleeps until the bell is rung.
    pub fn wait(&self) {
        self.wait_for(None);
    }

    /// Sleeps until the bell is rung or the time-out passes.
    pub fn wait_for(&self, timeout: Option<Duration>) {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut descriptors = [PollFd::new(&self.bell, PollFlags::IN)];
        // An interrupted sleep ends early: the caller checks for work and sleeps again.
        let _ = rustix::event::poll(&mut descriptors, timeout.as_ref());
    }

    /// Whether a sleep would end at once.
    pub fn has_rung(&self) -> bool {
        let mut descriptors = [PollFd::new(&self.bell, PollFlags::IN)];
        rustix::event::poll(&mut descriptors, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// A descriptor that is readable when the bell was rung.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Whether one thread sleeps, or is about to.
#[derive(Debug)]
pub(crate) struct Sleeper(AtomicBool);

impl Sleeper {
    /// Starts awake.
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Returns whether the thread must be woken. Call it after publishing something. True for one caller only.
    pub(crate) fn must_be_woken(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }

    /// Announces that the thread is about to sleep. Its condition must be checked *after* this call.
    pub(crate) fn fall_asleep(&self) {
        // A store would be enough. Loom does not know that a thread that swaps sees the writes that follow the swap in
        // the modification order; it reports a bell that is never rung, and tries every order of swaps without a bound.
        self.0.swap(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Announces that the thread is awake. A wake-up at this very moment costs one sleep that ends at once.
    pub(crate) fn wake(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Run by `RUSTFLAGS="--cfg loom" cargo test -p ropewalk-io --lib loom`. A bell that is never rung is a deadlock, which
/// fails a model.
#[cfg(all(loom, test))]
mod loom_models {
    use super::*;
    use loom::sync::atomic::AtomicU64;
    use loom::sync::{Arc, Notify};
    use loom::thread;

    struct Scene {
        published: AtomicU64,
        sleeper: Sleeper,
        bell: Notify,
    }

    impl Scene {
        fn new() -> Arc<Self> {
            Arc::new(Self { published: AtomicU64::new(0), sleeper: Sleeper::new(), bell: Notify::new() })
        }

        fn publish(&self) {
            self.published.fetch_add(1, Ordering::Release);
            if self.sleeper.must_be_woken() {
                self.bell.notify();
            }
        }

        /// Takes `all` things and sleeps in between.
        fn take(&self, all: u64) {
            while self.published.load(Ordering::Acquire) < all {
                self.sleeper.fall_asleep();
                if self.published.load(Ordering::Acquire) < all {
                    self.bell.wait();
                }
                self.sleeper.wake();
            }
        }
    }

    /// With two threads every order, also if other models are run with a bound.
    const EVERY: Option<usize> = None;
    /// Three threads have too many orders for that.
    const MANY: Option<usize> = Some(3);

    fn model(preemptions: Option<usize>, scene: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = preemptions;
        builder.check(scene);
    }

    #[test]
    fn loom_what_is_published_wakes_the_sleeper() {
        model(EVERY, || {
            let scene = Scene::new();
            let there = Arc::clone(&scene);
            let worker = thread::spawn(move || {
                there.publish();
                there.publish();
            });
            scene.take(2);
            worker.join().expect("it ends");
        });
    }

    #[test]
    fn loom_two_that_publish_wake_one_that_sleeps() {
        model(MANY, || {
            let scene = Scene::new();
            let workers = [(); 2].map(|()| {
                let there = Arc::clone(&scene);
                thread::spawn(move || there.publish())
            });
            scene.take(2);
            workers.into_iter().for_each(|worker| worker.join().expect("it ends"));
        });
    }

    /// As in-process endpoints do it: a sender without room sets a flag at the ring, and sleeps at its own bell.
    #[test]
    fn loom_a_sender_that_waits_for_room_is_woken_when_there_is_some() {
        model(EVERY, || {
            let (scene, wants_room) = (Scene::new(), Arc::new(Sleeper::new()));
            let (there, wanted) = (Arc::clone(&scene), Arc::clone(&wants_room));
            let receiver = thread::spawn(move || {
                there.published.fetch_add(1, Ordering::Release);
                if wanted.must_be_woken() && there.sleeper.must_be_woken() {
                    there.bell.notify();
                }
            });
            scene.sleeper.fall_asleep();
            wants_room.fall_asleep();
            if scene.published.load(Ordering::Acquire) == 0 {
                scene.bell.wait();
            }
            receiver.join().expect("it ends");
        });
    }
}
