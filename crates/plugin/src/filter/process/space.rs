//! The addresses of a filter's process: the events, and behind them each memory that it reads events from.

use super::layout::COPIES;
use crate::process::region::HUGE_PAGE;
use ropewalk_memory::{SharedMemory, shared_memories};

/// A memory in both processes.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) memory: SharedMemory,
    /// Where it begins there, from the beginning of the events on.
    pub(super) at: u64,
}

/// All of them, sorted by their addresses here.
#[derive(Debug, Default)]
pub(super) struct Space {
    shared: Vec<Shared>,
    /// The one that was found last: neighbours lie in one memory.
    last: usize,
    bytes: u64,
}

impl Space {
    /// All memory of this process that others can be given to read, behind the events with so many bytes of copies.
    pub(super) fn new(copies: usize) -> Self {
        let mut at = (COPIES + copies).next_multiple_of(HUGE_PAGE) as u64;
        let mut shared: Vec<_> = shared_memories().into_iter().map(|memory| Shared { memory, at: 0 }).collect();
        shared.sort_by_key(|shared| shared.memory.addresses().start);
        for one in &mut shared {
            one.at = at;
            at += one.memory.addresses().len().next_multiple_of(HUGE_PAGE) as u64;
        }
        Self { shared, last: 0, bytes: at }
    }

    /// All that is shared.
    pub(super) fn shared(&self) -> &[Shared] {
        &self.shared
    }

    /// Bytes of all addresses.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where bytes lie there; none where they do not lie in one of the memories.
    #[inline]
    pub(super) fn find(&mut self, piece: &[u8]) -> Option<u64> {
        let begin = piece.as_ptr().addr();
        let known = self.shared.get(self.last)?;
        if let Some(at) = within(known, begin, piece.len()) {
            return Some(at);
        }
        let behind = self.shared.partition_point(|shared| shared.memory.addresses().start <= begin);
        self.last = behind.saturating_sub(1);
        within(&self.shared[self.last], begin, piece.len())
    }
}

#[inline]
fn within(shared: &Shared, begin: usize, length: usize) -> Option<u64> {
    let addresses = shared.memory.addresses();
    let is_within = addresses.contains(&begin) && length <= addresses.end - begin;
    is_within.then(|| shared.at + (begin - addresses.start) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_memory::{HugePages, MemoryKind, Owner, Pool, PoolConfig};

    #[test]
    fn bytes_are_found_where_they_lie_in_shared_memory_alone() {
        let kind = |memory| PoolConfig { memory, huge_pages: HugePages::Never, ..PoolConfig::heap("space", 4096, 3) };
        let [mut one, mut other, mut own] = [MemoryKind::Memfd, MemoryKind::Memfd, MemoryKind::Anonymous]
            .map(|memory| Pool::new(kind(memory)).expect("memory"));
        let write = |pool: &mut Pool| pool.loan(Owner::SHARED).and_then(|mut loan| loan.append(b"bytes"));
        let [first, second, alone] = [&mut one, &mut other, &mut own].map(|pool| write(pool).expect("room"));
        let mut space = Space::new(5000);
        for _ in 0..2 {
            let places = [&first, &second].map(|bytes| space.find(bytes).expect("it is shared"));
            assert!(places.iter().all(|&at| at >= HUGE_PAGE as u64 && at + 5 <= space.bytes()));
            assert_ne!(places[0], places[1]);
            assert_eq!(space.find(&first[2..]), Some(places[0] + 2));
            assert_eq!(space.find(&alone), None);
        }
        drop((one, other, first, second));
        assert_eq!(Space::default().find(&alone), None);
    }
}
