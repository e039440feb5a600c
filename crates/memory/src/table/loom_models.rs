//! Loom's models of the table: every interleaving, and every order that the memory model allows, is tried.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test -p ropewalk-memory --lib loom`. A block's bytes are played by
//! loom's cell, which fails the model when a write is not ordered against every read; so is the life of the
//! whole pool, which ends with a write.
#![cfg(loom)]

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

    /// What a reader does: reads the block and drops its reference. True if the pool was freed.
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

    /// What the home thread does: takes blocks home and writes to them.
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
                // A queue charges, cuts, gives the surplus back and drops its own.
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
        // What came home goes out again at once and comes home from this very thread.
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
        // SAFETY: closed above, and that many blocks did not come home.
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
