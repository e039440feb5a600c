//! The word that a thread leaves before it sleeps, so that it is woken when there is something to do, and never
//! disturbed while it is awake.
//!
//! ```text
//!  sleeper: fall_asleep -> look once more -> sleep        worker: publish -> must_be_woken -> ring
//! ```
//! Two fences stand between the two writes and the two reads: whoever comes second sees what the first one wrote. So
//! either the sleeper sees what was published, or the worker sees that somebody sleeps. Loom tries every order below.

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Whether one thread sleeps, or is about to.
#[derive(Debug)]
pub(crate) struct Sleeper(AtomicBool);

impl Sleeper {
    /// Awake.
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// To be called after something was published: whether the thread must be woken. True for one caller alone.
    pub(crate) fn must_be_woken(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }

    /// The thread is about to sleep. What it waits for must be looked at *after* this.
    pub(crate) fn fall_asleep(&self) {
        // A store would do. Loom does not know that what stands behind a swap in the order of writes is seen by whoever
        // swapped, reports a bell that nobody rings, and tries every order of swaps without a bound.
        self.0.swap(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The thread is awake. Whoever wanted to wake it at this moment costs it one sleep that ends at once.
    pub(crate) fn wake(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Run by `RUSTFLAGS="--cfg loom" cargo test -p ropewalk-io --lib loom`. A bell that nobody rings is a deadlock, which
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

        /// Takes so many things, asleep in between.
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

    /// With two threads in every order, also where other models are run with a bound.
    const EVERY: Option<usize> = None;
    /// Three threads have too many orders for that.
    const MANY: Option<usize> = Some(3);

    fn model(preemptions: Option<usize>, scene: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = preemptions;
        builder.check(scene);
    }

    #[test]
    fn loom_what_is_published_wakes_whoever_sleeps() {
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

    /// As in-process endpoints do it: a sender without room leaves a word at the ring, and sleeps at its own bell.
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
