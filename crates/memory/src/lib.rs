//! Memory of the data: bytes arrive once in a block of a pool and stay there until the last reader is done.
//!
//! ```text
//!  Pool ──loan──► Loan ──split_committed──► Slice ──► ByteQueue ──take──► Payload
//!   ▲              │ the tail, still written   │ the head, any thread may read  │
//!   └──collect── return queue ◄── last drop, on any thread ─────────────────────┘
//! ```
//!
//! A [`Pool`] is one mapping cut into equal blocks. Its home thread lends them out as [`Loan`]s. Written bytes leave a
//! loan as counted [`Slice`]s, which can be moved, cloned and dropped on any thread. When the last one of a block is
//! dropped, the block goes to the pool's return queue, which the home thread empties at once. Nothing here allocates,
//! locks or panics because memory ran out: an empty pool returns `None`, and the caller applies back-pressure to its
//! source.
//!
//! Files, in the order in which bytes pass them: `mapping` gets the memory from the system, `table` counts and returns
//! blocks (the lock-free core), `registry` finds a pool from a slice and lists memory for other processes, `pool` lends
//! blocks and stages copies, `slice` has loans and slices, `payload` and `queue` chain slices, `runs` sends and
//! releases many payloads at once, `ring` is memory that a card or another process writes, `frames` is memory whose
//! blocks are filled in another order (rings of the kernel, the two ways of paper 1), `counters` is the page of numbers
//! that other processes read.

mod config;
mod counters;
mod frames;
mod mapping;
mod payload;
mod pool;
mod queue;
mod registry;
pub mod ring;
mod runs;
mod slice;
mod table;
#[cfg(test)]
mod tests;

pub use config::{HugePages, Lock, MemoryKind, PageKind, PoolConfig, PoolError, PoolReport};
pub use counters::{CounterFile, CounterPage};
pub use frames::{Frames, NextPacket, PacketAllocator};
pub use mapping::share_heaps;
pub use payload::{Payload, chain_allocations, prepare_chains};
pub use pool::{Owner, Pool, Staging};
pub use queue::{ByteQueue, FrontSlice};
pub use registry::{PoolId, SharedMemory, shared_memories};
pub use runs::{Returns, Runs};
pub use slice::{Loan, Posted, Slice};

/// The atomics of the lock-free core: those of the machine, or those of loom when its models run.
mod sync {
    #[cfg(all(loom, test))]
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    #[cfg(not(all(loom, test)))]
    pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
