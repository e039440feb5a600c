//! The pointers of a ring: the lock-free core, and the only memory that its two sides share besides the bytes.
//!
//! - The writer moves the write pointer with a release, the reader loads it with an acquire: a write is visible before
//!   the byte is read. The read pointer works the other way round: a read is complete before the byte is overwritten.
//! - Before the reader sleeps it sets a flag and polls once more; after the writer has moved its pointer it checks that
//!   flag. Two fences stand between the two writes and the two reads, so that at least one side sees the other.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes in front of the first page.
pub(super) const HEAD_BYTES: usize = size_of::<Head>() + 3 * 64;

const MAGIC: u64 = u64::from_le_bytes(*b"RWRING\x01\0");

/// Description of the ring; never changed once it is shared.
#[derive(Copy, Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Head {
    magic: u64,
    pub(super) page_bytes: u64,
    pub(super) pages: u64,
}

impl Head {
    pub(super) const fn new(page_bytes: usize, pages: usize) -> Self {
        Self { magic: MAGIC, page_bytes: page_bytes as u64, pages: pages as u64 }
    }

    /// Returns the bytes of all pages, or `None` if this is not a ring's head.
    pub(super) fn ring_bytes(&self) -> Option<u64> {
        let is_ring = self.magic == MAGIC && self.page_bytes > 0 && self.page_bytes.is_multiple_of(64);
        self.page_bytes.checked_mul(self.pages).filter(|&bytes| is_ring && bytes > 0)
    }
}

/// A value on a separate cache line.
#[repr(C, align(64))]
struct Line<T>(T);

/// The state shared by both sides. The initial state is all zeros.
#[repr(C)]
pub(crate) struct Pointers {
    written: Line<AtomicU64>,
    released: Line<AtomicU64>,
    states: Line<States>,
}

#[repr(C)]
struct States {
    /// Whether the reader sleeps, or is about to.
    asleep: AtomicU32,
    /// Whether the writer has ended.
    closed: AtomicU32,
    /// Whether the reader has ended.
    gone: AtomicU32,
}

impl Pointers {
    /// Publishes everything before this position. Returns whether the reader must be woken: true once.
    pub(super) fn write_to(&self, position: u64) -> bool {
        self.written.0.store(position, Ordering::Release);
        self.must_wake()
    }

    /// Returns the write pointer.
    pub(super) fn written(&self) -> u64 {
        self.written.0.load(Ordering::Acquire)
    }

    /// Moves the read pointer: the reader needs nothing before this position any more.
    pub(super) fn release_to(&self, position: u64) {
        self.released.0.store(position, Ordering::Release);
    }

    /// Returns the read pointer.
    pub(super) fn released(&self) -> u64 {
        self.released.0.load(Ordering::Acquire)
    }

    /// Ends the writer. Returns whether the reader must be woken.
    pub(super) fn close(&self) -> bool {
        self.states.0.closed.store(1, Ordering::Release);
        self.must_wake()
    }

    /// Whether the writer has ended, in which case everything it wrote is visible.
    pub(super) fn is_closed(&self) -> bool {
        self.states.0.closed.load(Ordering::Acquire) != 0
    }

    /// Ends the reader.
    pub(super) fn go(&self) {
        self.states.0.gone.store(1, Ordering::Relaxed);
    }

    /// Whether the reader has ended, so that there will be no more room.
    pub(super) fn is_gone(&self) -> bool {
        self.states.0.gone.load(Ordering::Relaxed) != 0
    }

    fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        let asleep = &self.states.0.asleep;
        asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0
    }

    /// Announces that the reader is about to sleep. The caller must check its condition after this call.
    pub(super) fn fall_asleep(&self) {
        // A store would be enough. If a sleep ended without the bell, the writer's swap may have replaced the wake-up
        // value. That swap directly follows the wake-up value in the modification order, so this write comes later and
        // is what the writer sees next. Loom knows this only for swaps whose value was read: with a store here it lets
        // the writer see its own old swap and reports a bell that is never rung. With a swap it tries every order
        // without a bound.
        self.states.0.asleep.swap(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Announces that the reader is awake.
    pub(super) fn wake(&self) {
        self.states.0.asleep.store(0, Ordering::Relaxed);
    }
}

/// Loom's models: run by `RUSTFLAGS="--cfg loom" cargo test -p ropewalk-memory --lib loom`. Loom's cells represent the
/// bytes and fail a model when a write is not ordered against every read. A bell that is never rung shows as a
/// deadlock.
#[cfg(all(loom, test))]
mod loom_models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::{Arc, Notify};
    use loom::thread;

    struct Model {
        pointers: Pointers,
        bytes: [UnsafeCell<u64>; 2],
        bell: Notify,
    }

    // SAFETY: that access to the cells is ordered is what the models check.
    #[allow(unsafe_code)]
    unsafe impl Sync for Model {}
    // SAFETY: as above.
    #[allow(unsafe_code)]
    unsafe impl Send for Model {}

    impl Model {
        fn new() -> Arc<Self> {
            let zero = || AtomicU32::new(0);
            let pointers = Pointers {
                written: Line(AtomicU64::new(0)),
                released: Line(AtomicU64::new(0)),
                states: Line(States { asleep: zero(), closed: zero(), gone: zero() }),
            };
            Arc::new(Self { pointers, bytes: [UnsafeCell::new(0), UnsafeCell::new(0)], bell: Notify::new() })
        }

        /// Writes as many of `all` as there is room for, one by one.
        fn write(&self, from: u64, all: u64) -> u64 {
            let end = all.min(self.pointers.released() + 2);
            for position in from..end {
                // SAFETY: loom checks it.
                #[allow(unsafe_code)]
                self.bytes[position as usize % 2].with_mut(|byte| unsafe { *byte = position });
                if self.pointers.write_to(position + 1) {
                    self.bell.notify();
                }
            }
            end.max(from)
        }

        /// Reads the available bytes.
        fn read(&self, from: u64) -> u64 {
            let end = self.pointers.written();
            for position in from..end {
                // SAFETY: loom checks it.
                #[allow(unsafe_code)]
                self.bytes[position as usize % 2].with(|byte| assert_eq!(unsafe { *byte }, position));
            }
            self.pointers.release_to(end);
            end
        }
    }

    #[test]
    fn loom_no_byte_is_written_while_it_may_be_read() {
        loom::model(|| {
            let model = Model::new();
            let writer = Arc::clone(&model);
            let thread = thread::spawn(move || {
                let first = writer.write(0, 3);
                writer.write(first, 3)
            });
            let first = model.read(0);
            let second = model.read(first);
            let written = thread.join().unwrap();
            assert_eq!(model.read(second), written);
        });
    }

    /// Tries every order, with any number of thread switches, regardless of the bound of other models.
    fn model(scene: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = None;
        builder.check(scene);
    }

    /// Sleeps until `is_there` returns true. Loom also lets a sleep end without the bell.
    fn sleep_until(model: &Model, is_there: impl Fn(&Pointers) -> bool) {
        while !is_there(&model.pointers) {
            model.pointers.fall_asleep();
            if !is_there(&model.pointers) {
                model.bell.wait();
            }
            model.pointers.wake();
        }
    }

    #[test]
    fn loom_a_reader_that_sleeps_is_woken_by_what_comes() {
        model(|| {
            let model = Model::new();
            let writer = Arc::clone(&model);
            let thread = thread::spawn(move || writer.write(0, 2));
            sleep_until(&model, |pointers| pointers.written() == 2);
            assert_eq!((model.read(0), thread.join().unwrap()), (2, 2));
        });
    }

    #[test]
    fn loom_a_reader_that_sleeps_is_woken_by_the_end() {
        model(|| {
            let model = Model::new();
            let writer = Arc::clone(&model);
            let thread = thread::spawn(move || {
                if writer.pointers.close() {
                    writer.bell.notify();
                }
            });
            sleep_until(&model, Pointers::is_closed);
            thread.join().unwrap();
        });
    }
}
