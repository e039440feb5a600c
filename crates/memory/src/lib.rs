//! Where bytes live: they land once in a block of a pool and stay there until the last reader is done.
//!
//! ```text
//!  Pool ──loan──► Loan ──split_committed──► Slice ──► ByteQueue ──take──► Payload
//!   ▲              │ the tail, still written   │ the head, read by anybody      │
//!   └──collect── return queue ◄── last drop, on any thread ─────────────────────┘
//! ```
//!
//! A [`Pool`] is one mapping cut into equal blocks. Its home thread lends them out as [`Loan`]s; what was
//! written into a loan leaves it as counted [`Slice`]s, which travel, clone and drop on any thread. When
//! the last one of a block drops, the block goes to the pool's return queue, from which the home thread
//! takes all at once. Nothing here allocates, locks or panics because memory ran out: running dry is
//! `None`, and the caller holds its source back.
//!
//! Files, in the order of the way: `mapping` and `numa` get the memory, `table` counts and returns blocks
//! (the lock-free core), `registry` finds a pool from a slice, `pool` lends, `loan` and `slice` are the two
//! ends of a block, `payload` and `queue` chain slices, `returns` and `runs` let many go and send many at once,
//! `staging` copies where a copy is due, `ring` is memory that a card or another process writes, `frames` memory
//! whose blocks are filled in an order of its own (the kernel's rings; `packets` and `pieces`: the ways of paper 1),
//! `shared` lists what other processes can be given to read, `counters` is the page of numbers that they read.

mod config;
mod counters;
mod frames;
mod heap;
mod loan;
mod mapping;
mod numa;
mod packets;
mod payload;
mod pieces;
mod pool;
mod queue;
mod registry;
mod returns;
pub mod ring;
mod runs;
mod shared;
mod slice;
mod staging;
mod sync;
mod table;
#[cfg(test)]
mod tests;

pub use config::{HugePages, Lock, MemoryKind, PageKind, PoolConfig, PoolError, PoolReport};
pub use counters::{CounterFile, CounterPage};
pub use frames::Frames;
pub use heap::share_heaps;
pub use loan::{Loan, Posted};
pub use packets::{NextPacket, PacketAllocator};
pub use payload::{Payload, chain_allocations, prepare_chains};
pub use pool::{Owner, Pool};
pub use queue::{ByteQueue, FrontSlice};
pub use registry::PoolId;
pub use returns::Returns;
pub use runs::Runs;
pub use shared::{SharedMemory, shared_memories};
pub use slice::Slice;
pub use staging::Staging;
