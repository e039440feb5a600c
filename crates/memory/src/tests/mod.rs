//! Tests of the crate as its users see it; loom's own models are with the lock-free core.
#![cfg(not(loom))]

mod basics;
mod model;
mod system;
mod threads;

use crate::{Owner, Pool, PoolConfig, Slice};

/// A pool from the allocator.
fn pool(block_size: usize, blocks: usize) -> Pool {
    Pool::new(PoolConfig::heap("test", block_size, blocks)).unwrap()
}

/// `bytes` in a block of its own.
fn slice(pool: &mut Pool, bytes: &[u8]) -> Slice {
    pool.loan(Owner::SHARED).unwrap().append(bytes).unwrap()
}

/// How many blocks are still out.
fn held(pool: &mut Pool) -> usize {
    pool.collect();
    let account = pool.account();
    assert_eq!(account.loans, account.returned + account.held);
    pool.held()
}
