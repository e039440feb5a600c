//! Pools for tests, and the pattern that every test stream consists of.

use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};

/// A small pool of ordinary memory.
pub(crate) fn pool(name: &str, block_size: usize, blocks: usize) -> Pool {
    Pool::new(PoolConfig::heap(name, block_size, blocks)).expect("memory for a test")
}

/// Whether every block is back.
pub(crate) fn is_full(pool: &mut Pool) -> bool {
    pool.collect();
    pool.held() == 0
}

/// The period of the pattern: a prime, so that no block or batch size hides a displacement.
const PERIOD: usize = 65_521;

/// An endless stream of known bytes. Slices of it all point into one block.
pub(crate) struct Pattern {
    master: Slice,
    pool: Pool,
}

impl Pattern {
    pub(crate) fn new() -> Self {
        let mut pool = pool("pattern", 2 * PERIOD, 1);
        let mut loan = pool.loan(Owner::SHARED).expect("the pool's only block");
        for (index, byte) in loan.spare().iter_mut().enumerate() {
            let place = index % PERIOD;
            *byte = (place ^ (place >> 7)) as u8;
        }
        loan.commit(2 * PERIOD);
        let master = loan.split_committed().expect("what was just committed");
        Self { master, pool }
    }

    /// The bytes from `position` on, `length` of them, in slices of at most `cut` bytes.
    pub(crate) fn slices(&self, position: usize, length: usize, cut: usize, message: &mut Vec<Slice>) {
        let (mut at, end) = (position, position + length);
        while at < end {
            let mut slice = self.master.clone();
            drop(slice.split_to(at % PERIOD));
            let piece = (end - at).min(cut).min(PERIOD);
            message.push(slice.split_to(piece));
            at += piece;
        }
    }

    /// Whether these bytes are those at `position`.
    pub(crate) fn matches(&self, position: usize, bytes: &[u8]) -> bool {
        let mut at = position;
        bytes.chunks(PERIOD).all(|chunk| {
            let start = at % PERIOD;
            at += chunk.len();
            *chunk == self.master[start..start + chunk.len()]
        })
    }

    /// Whether nobody holds a slice of it any more.
    pub(crate) fn came_back(self) -> bool {
        let Self { master, mut pool } = self;
        drop(master);
        is_full(&mut pool)
    }
}
