//! The table of blocks: the number of references of each block, and the queue on which blocks are returned.
//!
//! This is the lock-free core of the crate, small enough to be checked by loom (see the models at the end).
//!
//! - A block's counter is set by the home thread when it lends the block, raised by holders of a reference, and lowered
//!   by every holder. The holder that lowers it to zero pushes the block onto the return queue.
//! - The return queue is a stack of block indexes, linked through the table. Any thread pushes with a compare-and-swap;
//!   the home thread takes the whole stack with one swap. No thread ever pops a single block, so the head cannot return
//!   to an old value in between (no ABA).
//! - When the pool's handle is dropped, the stack is closed. Blocks returned later find it closed and are only counted;
//!   the thread that completes the count tells its caller to free everything.
//!
//! The functions that lower a counter take a raw pointer to the table: as soon as the last reference is gone, another
//! thread may free the table, while a `&self` would claim it until the function returns.
#![allow(unsafe_code)]

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// End of the return queue.
const NONE: u32 = u32::MAX;
/// Head of the return queue after the pool's handle is dropped.
const CLOSED: u32 = u32::MAX - 1;

/// Maximum number of blocks in a table: every index below the two marks.
pub(crate) const MOST_BLOCKS: usize = CLOSED as usize;

/// One block's entry, on a separate cache line so that blocks do not disturb each other.
#[repr(align(64))]
struct Entry {
    references: AtomicU64,
    /// The next block on the return queue; valid only while this block is on it.
    next: AtomicU32,
}

/// A value on a separate cache line.
#[repr(align(64))]
struct Line<T>(T);

/// The entries of all blocks of one pool, and its return queue.
pub(crate) struct BlockTable {
    entries: Box<[Entry]>,
    returned: Line<AtomicU32>,
    /// Number of blocks that are still lent after the close (modulo 2^64, since some may be counted before the closing
    /// thread has added their number).
    orphans: Line<AtomicU64>,
}

impl BlockTable {
    /// A table of `blocks` blocks (at most [`MOST_BLOCKS`]), none of which is lent.
    pub(crate) fn new(blocks: usize) -> Self {
        assert!(blocks <= MOST_BLOCKS, "indexes of blocks must stay below the marks");
        let entry = || Entry { references: AtomicU64::new(0), next: AtomicU32::new(NONE) };
        Self {
            entries: (0..blocks).map(|_| entry()).collect(),
            returned: Line(AtomicU32::new(NONE)),
            orphans: Line(AtomicU64::new(0)),
        }
    }

    /// Lends a returned (or new) block with `references` references. Home thread only.
    pub(crate) fn issue(&self, block: u32, references: u64) {
        // Relaxed: no other thread has the block; a later holder gets it through a synchronising operation.
        self.entries[block as usize].references.store(references, Ordering::Relaxed);
    }

    /// Takes `count` more references of a block of which the caller holds one.
    pub(crate) fn charge(&self, block: u32, count: u64) {
        // Relaxed: the caller's own reference keeps the block, as in `Arc`.
        self.entries[block as usize].references.fetch_add(count, Ordering::Relaxed);
    }

    /// Gives back `count` references that are not the caller's last one.
    pub(crate) fn refund(&self, block: u32, count: u64) {
        // Relaxed: the release happens when the caller's last reference is given back.
        self.entries[block as usize].references.fetch_sub(count, Ordering::Relaxed);
    }

    /// Whether the caller's reference is the only one.
    pub(crate) fn is_alone(&self, block: u32) -> bool {
        // Acquire: accesses by earlier holders come before those of the last one.
        self.entries[block as usize].references.load(Ordering::Acquire) == 1
    }

    /// Gives back `count` references. True if the caller must free the pool, which then has no handle, loan or slice
    /// any more.
    ///
    /// # Safety
    /// `table` must point to a live table, and the caller must own `count` references of `block`. After the return the
    /// table may be freed (unless the caller knows of another reference that keeps it).
    #[inline]
    pub(crate) unsafe fn give_back(table: *const Self, block: u32, count: u64) -> bool {
        // SAFETY: the references that the caller owns keep the table alive until they are subtracted.
        let entry = unsafe { &raw const (*table).entries[block as usize] };
        // SAFETY: as above. Release: reads and writes through the references come before the reuse.
        let before = unsafe { (*entry).references.fetch_sub(count, Ordering::Release) };
        debug_assert!(before >= count, "more references given back than were taken");
        if before != count {
            return false;
        }
        // SAFETY: the counter is zero now, but the block is neither returned nor counted: the caller does that, and it
        // keeps the table alive.
        unsafe { Self::come_home(table, block) }
    }

    /// Pushes a block without references onto the return queue, or counts it if the queue is closed.
    ///
    /// # Safety
    /// `table` must be live, and the caller must have lowered the block's counter to zero.
    #[cold]
    unsafe fn come_home(table: *const Self, block: u32) -> bool {
        // Acquire: all accesses by the other holders come before the block's reuse.
        fence(Ordering::Acquire);
        // SAFETY: a block that is not yet on the queue keeps the table alive (see `close`).
        let (entry, head) = unsafe { (&raw const (*table).entries[block as usize], &raw const (*table).returned.0) };
        // SAFETY: as above.
        let mut first = unsafe { (*head).load(Ordering::Relaxed) };
        loop {
            if first == CLOSED {
                // SAFETY: as above; this is the last access of this function.
                let before = unsafe { (*table).orphans.0.fetch_sub(1, Ordering::AcqRel) };
                return before == 1;
            }
            // SAFETY: as above. Relaxed: published by the exchange.
            unsafe { (*entry).next.store(first, Ordering::Relaxed) };
            // SAFETY: as above. Release: the link, and through the fence all accesses to the block.
            match unsafe { (*head).compare_exchange_weak(first, block, Ordering::Release, Ordering::Relaxed) } {
                Ok(_) => return false,
                Err(now) => first = now,
            }
        }
    }

    /// Whether blocks wait on the return queue. Cheap, may be out of date.
    #[inline]
    pub(crate) fn has_returned(&self) -> bool {
        self.returned.0.load(Ordering::Relaxed) != NONE
    }

    /// Takes all returned blocks, the last one first. Home thread only.
    pub(crate) fn take_returned(&self) -> ReturnedBlocks<'_> {
        // Acquire: pairs with each push, since every push continues the release sequence of those below it.
        ReturnedBlocks { table: self, next: self.returned.0.swap(NONE, Ordering::Acquire) }
    }

    /// Closes the return queue and takes its blocks. Must be followed by [`BlockTable::abandon`].
    pub(crate) fn close(&self) -> ReturnedBlocks<'_> {
        ReturnedBlocks { table: self, next: self.returned.0.swap(CLOSED, Ordering::Acquire) }
    }

    /// Ends the home thread's part after [`BlockTable::close`], with `out` blocks still lent. True if the caller must
    /// free the pool.
    ///
    /// # Safety
    /// `table` must be live and closed, and exactly `out` lent blocks must not have been taken from the queue. After
    /// the return the table may be freed.
    pub(crate) unsafe fn abandon(table: *const Self, out: u64) -> bool {
        // SAFETY: the table is not freed before this addition: counting `n` of `out` blocks leaves the counter at -n,
        // which is zero for no n from 1 to `out`.
        let before = unsafe { (*table).orphans.0.fetch_add(out, Ordering::AcqRel) };
        before.wrapping_add(out) == 0
    }
}

/// Returned blocks.
pub(crate) struct ReturnedBlocks<'a> {
    table: &'a BlockTable,
    next: u32,
}

impl Iterator for ReturnedBlocks<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let block = self.next;
        if block >= CLOSED {
            return None;
        }
        self.next = self.table.entries[block as usize].next.load(Ordering::Relaxed);
        Some(block)
    }
}

#[cfg(all(loom, test))]
mod loom_models {
    //! Loom's models of the table: every interleaving, and every order that the memory model allows, is tried.
    //!
    //! Run by `RUSTFLAGS="--cfg loom" cargo test -p ropewalk-memory --lib loom`. Loom's cell represents a block's bytes
    //! and fails the model when a write is not ordered against every read. Another cell represents the lifetime of the
    //! whole pool, which ends with a write.

    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    use super::BlockTable;

    struct Model {
        table: BlockTable,
        bytes: [UnsafeCell<u8>; 2],
        life: UnsafeCell<()>,
    }

    // SAFETY: that access to the cells is ordered is what the models check.
    unsafe impl Sync for Model {}
    // SAFETY: as above.
    unsafe impl Send for Model {}

    impl Model {
        fn new(blocks: usize) -> Arc<Self> {
            let bytes = [UnsafeCell::new(0), UnsafeCell::new(0)];
            Arc::new(Self { table: BlockTable::new(blocks), bytes, life: UnsafeCell::new(()) })
        }

        /// Acts as a reader: reads the block and drops its reference. True if the pool was freed.
        fn read_and_drop(&self, block: u32, references: u64) -> bool {
            self.life.with(|_| ());
            self.bytes[block as usize].with(|_| ());
            // SAFETY: each model hands out as many references as it gives back; the table outlives the threads.
            let last = unsafe { BlockTable::give_back(&raw const self.table, block, references) };
            if last {
                self.life.with_mut(|_| ());
            }
            last
        }

        /// Acts as the home thread: collects blocks and writes to them.
        fn collect(&self) -> Vec<u32> {
            let blocks: Vec<u32> = self.table.take_returned().collect();
            blocks.iter().for_each(|&block| self.bytes[block as usize].with_mut(|_| ()));
            blocks
        }
    }

    #[test]
    fn a_block_comes_home_once_after_all_its_readers() {
        loom::model(|| {
            let model = Model::new(1);
            model.table.issue(0, 3);
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let model = Arc::clone(&model);
                    thread::spawn(move || assert!(!model.read_and_drop(0, 1)))
                })
                .collect();
            model.read_and_drop(0, 1);
            let mut home = model.collect();
            readers.into_iter().for_each(|reader| reader.join().expect("the model's thread"));
            home.extend(model.collect());
            assert_eq!(home, [0]);
        });
    }

    #[test]
    fn clones_made_meanwhile_keep_the_block() {
        loom::model(|| {
            let model = Model::new(1);
            model.table.issue(0, 2);
            let reader = {
                let model = Arc::clone(&model);
                thread::spawn(move || {
                    // A queue charges, cuts, gives back the surplus and drops its own reference.
                    model.table.charge(0, 3);
                    model.read_and_drop(0, 1);
                    model.table.refund(0, 2);
                    model.read_and_drop(0, 1);
                })
            };
            model.read_and_drop(0, 1);
            let mut home = model.collect();
            reader.join().expect("the model's thread");
            home.extend(model.collect());
            assert_eq!(home, [0]);
        });
    }

    #[test]
    fn two_blocks_pushed_and_taken_at_the_same_time_both_come_home() {
        loom::model(|| {
            let model = Model::new(2);
            let pushers: Vec<_> = (0..2)
                .map(|block| {
                    model.table.issue(block, 1);
                    let model = Arc::clone(&model);
                    thread::spawn(move || assert!(!model.read_and_drop(block, 1)))
                })
                .collect();
            let mut home = model.collect();
            home.extend(model.collect());
            pushers.into_iter().for_each(|pusher| pusher.join().expect("the model's thread"));
            home.extend(model.collect());
            home.sort_unstable();
            assert_eq!(home, [0, 1]);
        });
    }

    #[test]
    fn a_block_is_lent_again_while_another_one_comes_home() {
        loom::model(|| {
            let model = Model::new(2);
            let pushers: Vec<_> = (0..2)
                .map(|block| {
                    model.table.issue(block, 1);
                    let model = Arc::clone(&model);
                    thread::spawn(move || assert!(!model.read_and_drop(block, 1)))
                })
                .collect();
            let mut came = [0; 2];
            let mut count = |blocks: Vec<u32>| blocks.iter().for_each(|&block| came[block as usize] += 1);
            let first = model.collect();
            // Returned blocks are lent again at once and returned by this same thread.
            for &block in &first {
                model.table.issue(block, 1);
                model.read_and_drop(block, 1);
            }
            let again = first.clone();
            count(first);
            pushers.into_iter().for_each(|pusher| pusher.join().expect("the model's thread"));
            count(model.collect());
            again.iter().for_each(|&block| came[block as usize] -= 1);
            assert_eq!(came, [1, 1]);
        });
    }

    #[test]
    fn a_pool_is_freed_once_and_after_everything_else() {
        loom::model(|| {
            let model = Model::new(2);
            let readers: Vec<_> = (0..2)
                .map(|block| {
                    model.table.issue(block, 1);
                    let model = Arc::clone(&model);
                    thread::spawn(move || model.read_and_drop(block, 1))
                })
                .collect();
            model.life.with(|_| ());
            let out = 2 - model.table.close().count() as u64;
            // SAFETY: closed above, and that many blocks were not returned.
            let mut frees = usize::from(unsafe { BlockTable::abandon(&raw const model.table, out) });
            if frees == 1 {
                model.life.with_mut(|_| ());
            }
            for reader in readers {
                frees += usize::from(reader.join().expect("the model's thread"));
            }
            assert_eq!(frees, 1);
        });
    }
}
