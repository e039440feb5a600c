//! The pool: the home thread lends out blocks and takes them back. [`Staging`] copies small pieces into blocks of a
//! pool.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::config::{PoolConfig, PoolError, PoolReport};
use crate::mapping::{Mapping, Others, Touch};
use crate::registry::{self, MOST_POOLS, PoolId, Shared};
use crate::slice::{LOAN_REFERENCES, Loan, Slice};
use crate::table::{BlockTable, MOST_BLOCKS};
use ropewalk_terms::PoolAccount;

/// The largest block.
const MOST_BLOCK_SIZE: usize = 1 << 31;

/// Marks a free block in the table of owners.
const FREE: u16 = u16::MAX;

/// The borrower: a source with blocks reserved for it, or all others together ([`Owner::SHARED`]).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner(u16);

impl Owner {
    /// Borrows from blocks that are not reserved.
    pub const SHARED: Self = Self(0);
}

/// The limit and the use of one owner.
#[derive(Copy, Clone, Default)]
struct Quota {
    reserved: usize,
    held: usize,
    /// Whether the reservation was given up, so that its name can be reused.
    retired: bool,
}

/// The home thread's handle of a pool of equal blocks, which it lends out one by one.
///
/// Can move to another thread, but only one thread uses it at a time. It may be dropped while loans or slices exist:
/// the memory stays until the last of them is dropped.
pub struct Pool {
    id: PoolId,
    shared: NonNull<Shared>,
    /// Address of the first block.
    base: NonNull<u8>,
    block_size: usize,
    /// Free blocks. The block returned last is lent first, because it is still in the cache.
    free: Vec<u32>,
    /// Owner of each block; [`FREE`] for blocks in the free list.
    owners: Vec<u16>,
    /// Indexed by owner; the first entry is the shared quota.
    quotas: Vec<Quota>,
    loans: u64,
    returned: u64,
    report: PoolReport,
}

// SAFETY: the shared part is made for use from several threads (atomics, plain memory), everything else is owned. Not
// `Sync`, because of the pointer: the free list has one user.
unsafe impl Send for Pool {}

impl Pool {
    /// Allocates the memory, binds it to its NUMA node and touches every page once.
    ///
    /// # Errors
    /// Impossible sizes, no memory, no such NUMA node, or too many pools.
    pub fn new(config: PoolConfig) -> Result<Self, PoolError> {
        Self::with_touch(config, Touch::Everything)
    }

    /// Like [`Pool::new`], but touches only the first 2 MiB (and reserved huge pages). For short runs, which would
    /// spend more time on touching memory than on using it. Each other page then costs a few microseconds at its first
    /// use. Blocks are reused last in, first out, so only as many pages are used as are needed.
    ///
    /// # Errors
    /// As [`Pool::new`].
    pub fn new_untouched(config: PoolConfig) -> Result<Self, PoolError> {
        Self::with_touch(config, Touch::Sample)
    }

    fn with_touch(config: PoolConfig, touch: Touch) -> Result<Self, PoolError> {
        let PoolConfig { blocks, block_size, .. } = config;
        let possible = (1..=MOST_BLOCKS).contains(&blocks)
            && (1..=MOST_BLOCK_SIZE).contains(&block_size)
            && blocks.checked_mul(block_size).is_some_and(|bytes| bytes <= isize::MAX as usize);
        if !possible {
            return Err(PoolError::Size { name: config.name, blocks, block_size });
        }
        let (mapping, report) = Mapping::new(&config, touch, Others::Read)?;
        let mapping = Arc::new(mapping);
        crate::registry::enter_shared(&mapping);
        Self::over(mapping, report, 0, blocks, block_size)
    }

    /// Makes two pools from one piece of memory: the first `blocks` blocks that `config` asks for, and the blocks
    /// behind them. Each pool has its own home thread. The kernel can be given both as one piece of memory.
    ///
    /// # Errors
    /// As [`Pool::new`]; also [`PoolError::Size`] if one of the pools would have no blocks.
    pub fn pair(config: PoolConfig, blocks: usize) -> Result<(Self, Self), PoolError> {
        let PoolConfig { blocks: all, block_size, .. } = config;
        if blocks == 0 || blocks >= all {
            return Err(PoolError::Size { name: config.name, blocks, block_size });
        }
        // For its checks; no other code accesses its blocks.
        let whole = Self::new(config)?;
        let (mapping, report) = (Arc::clone(&whole.shared().mapping), whole.report.clone());
        let first = Self::over(Arc::clone(&mapping), report.clone(), 0, blocks, block_size)?;
        Ok((first, Self::over(mapping, report, blocks, all - blocks, block_size)?))
    }

    /// Makes a pool of blocks of a mapping, starting with block `first`.
    fn over(
        mapping: Arc<Mapping>,
        report: PoolReport,
        first: usize,
        blocks: usize,
        block_size: usize,
    ) -> Result<Self, PoolError> {
        // SAFETY: the caller passes blocks that lie within the mapping.
        let base = unsafe { mapping.base().add(first * block_size) };
        let shared = Shared { table: BlockTable::new(blocks), mapping };
        let Some((id, shared)) = registry::enter(shared) else {
            return Err(PoolError::TooManyPools { name: report.name, most: MOST_POOLS });
        };
        Ok(Self {
            id,
            shared,
            base,
            block_size,
            free: (0..blocks as u32).rev().collect(),
            owners: vec![FREE; blocks],
            quotas: vec![Quota { reserved: blocks, ..Quota::default() }],
            loans: 0,
            returned: 0,
            report,
        })
    }

    fn shared(&self) -> &Shared {
        // SAFETY: entered by `new`, and not freed before this handle has abandoned it.
        unsafe { self.shared.as_ref() }
    }

    /// Reserves `blocks` blocks. Only the returned owner can borrow them, and it can never hold more.
    ///
    /// # Errors
    /// [`PoolError::Quota`] if fewer blocks are neither reserved nor lent.
    pub fn reserve(&mut self, blocks: usize) -> Result<Owner, PoolError> {
        self.collect();
        let left = self.available(Owner::SHARED);
        let owner = self.quotas.iter().position(|quota| quota.retired).unwrap_or(self.quotas.len());
        if blocks > left || owner >= FREE as usize {
            return Err(PoolError::Quota { name: self.report.name.clone(), asked: blocks, left });
        }
        self.quotas[0].reserved -= blocks;
        self.quotas.resize(self.quotas.len().max(owner + 1), Quota::default());
        self.quotas[owner] = Quota { reserved: blocks, ..Quota::default() };
        Ok(Owner(owner as u16))
    }

    /// Ends a reservation: the quota returns to the shared part, together with the blocks that are still lent. The
    /// owner's name may be reused later. No effect on [`Owner::SHARED`].
    pub fn release(&mut self, owner: Owner) {
        let index = owner.0 as usize;
        if owner == Owner::SHARED || index >= self.quotas.len() || self.quotas[index].retired {
            return;
        }
        let Quota { reserved, held, .. } = self.quotas[index];
        self.quotas[index] = Quota { retired: true, ..Quota::default() };
        self.quotas[0].reserved += reserved;
        self.quotas[0].held += held;
        for holder in self.owners.iter_mut().filter(|holder| **holder == owner.0) {
            *holder = Owner::SHARED.0;
        }
    }

    /// Lends a block. `None` if the owner has reached its limit, or if no block has been returned yet: apply
    /// back-pressure to the source and try again later.
    pub fn loan(&mut self, owner: Owner) -> Option<Loan> {
        self.take_free(owner).map(|block| self.loan_of(block))
    }

    /// Assigns a free block to this owner.
    fn take_free(&mut self, owner: Owner) -> Option<u32> {
        if self.shared().table.has_returned() {
            self.collect();
        }
        let quota = self.quotas.get_mut(owner.0 as usize)?;
        if quota.held >= quota.reserved {
            return None;
        }
        let block = self.free.pop()?;
        quota.held += 1;
        self.owners[block as usize] = owner.0;
        self.loans += 1;
        Some(block)
    }

    /// Returns the loan of a block that was taken and to which no reference exists.
    fn loan_of(&self, block: u32) -> Loan {
        self.shared().table.issue(block, LOAN_REFERENCES);
        // SAFETY: no other reference to the block's bytes exists, and all its references were issued just now.
        unsafe { Loan::new(self.start_of(block), self.block_size as u32, block, self.id) }
    }

    fn start_of(&self, block: u32) -> NonNull<u8> {
        // SAFETY: the block lies within the mapping, which has `blocks * block_size` bytes from the first one on.
        unsafe { self.base.add(block as usize * self.block_size) }
    }

    /// Lends a block to another writer, such as the kernel, which fills it and returns it as a whole. The block is
    /// identified by its number alone, which costs less than a loan. It stays lent until [`filled`](Self::filled) or
    /// [`take_back`](Self::take_back). `None` if no block is free.
    #[inline]
    pub fn give_out(&mut self) -> Option<u32> {
        self.take_free(Owner::SHARED)
    }

    /// Returns the filled bytes of a block that was [given out](Self::give_out). The block is returned when the slice
    /// is dropped.
    ///
    /// # Panics
    /// If the bytes do not lie within the block.
    ///
    /// # Safety
    /// The block must have been given out and not have come back since, and its writer must not write to it any more.
    #[inline]
    pub unsafe fn filled(&mut self, block: u32, begin: u32, length: u32) -> Slice {
        let is_inside = begin as usize + length as usize <= self.block_size && (block as usize) < self.owners.len();
        assert!(is_inside, "the bytes lie in one of the blocks");
        self.shared().table.issue(block, 1);
        // SAFETY: within the block, which is not written any more (the caller's promise); the slice gets the only
        // reference.
        unsafe { Slice::new(self.start_of(block).add(begin as usize), length, block, self.id.0) }
    }

    /// Returns a block that was [given out](Self::give_out), filled or not, as a loan.
    ///
    /// # Safety
    /// As for [`filled`](Self::filled). A loan that is [posted](Loan::post) at once may still be written to.
    pub unsafe fn take_back(&mut self, block: u32) -> Loan {
        self.loan_of(block)
    }

    /// Collects the blocks whose last reference was dropped, on any thread.
    pub fn collect(&mut self) {
        // SAFETY: as in `shared`; spelled out so that the other fields can be changed meanwhile.
        let table = unsafe { &self.shared.as_ref().table };
        for block in table.take_returned() {
            let owner = core::mem::replace(&mut self.owners[block as usize], FREE);
            self.quotas[owner as usize].held -= 1;
            self.free.push(block);
            self.returned += 1;
        }
    }

    /// Returns how many more blocks the owner may borrow now, according to the blocks collected so far.
    pub fn available(&self, owner: Owner) -> usize {
        self.quotas.get(owner.0 as usize).map_or(0, |quota| quota.reserved - quota.held)
    }

    /// Returns how many blocks of the owner have not been collected yet.
    pub fn held_by(&self, owner: Owner) -> usize {
        self.quotas.get(owner.0 as usize).map_or(0, |quota| quota.held)
    }

    /// Returns how many blocks are lent, counted from the table of blocks.
    pub fn held(&self) -> usize {
        self.owners.iter().filter(|&&owner| owner != FREE).count()
    }

    /// Number of blocks of the pool.
    pub fn blocks(&self) -> usize {
        self.owners.len()
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Address of the first block; the others follow it. Loans and slices decide which bytes may be read and written.
    pub const fn address(&self) -> NonNull<u8> {
        self.base
    }

    /// The number of this pool, as in its slices.
    pub fn id(&self) -> PoolId {
        self.id
    }

    /// Returns the account of the blocks for the ledger. Collect first to bring it up to date.
    pub fn account(&self) -> PoolAccount {
        PoolAccount { loans: self.loans, returned: self.returned, held: self.held() as u64 }
    }

    /// The file behind a [`MemoryKind::Memfd`](crate::MemoryKind::Memfd) pool, to be passed to reading processes. They
    /// can only map it for reading, and its size cannot change.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.shared().mapping.file()
    }

    /// Properties of the memory that the pool got.
    pub fn report(&self) -> &PoolReport {
        &self.report
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let came_home = self.shared().table.close().count();
        let out = self.held() - came_home;
        // SAFETY: closed above; `out` blocks were lent and not taken from the queue.
        unsafe {
            if BlockTable::abandon(&raw const (*self.shared.as_ptr()).table, out as u64) {
                registry::free(self.id.0);
            }
        }
    }
}

impl core::fmt::Debug for Pool {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Pool")
            .field("name", &self.report.name)
            .field("id", &self.id)
            .field("blocks", &self.blocks())
            .field("block_size", &self.block_size)
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

/// Writes small pieces (headers, messages, evacuated slices) consecutively into blocks of its own pool.
#[derive(Debug)]
pub struct Staging {
    pool: Pool,
    loan: Option<Loan>,
    copied: u64,
}

impl Staging {
    /// Stages into blocks of `pool`, taken from the shared quota.
    pub fn new(pool: Pool) -> Self {
        Self { pool, loan: None, copied: 0 }
    }

    /// Copies `bytes` into a block. `None` if the pool is empty: try again after a block was released.
    ///
    /// `None` too if `bytes` is longer than a block, which can never be written; see [`Staging::largest`].
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Option<Slice> {
        if bytes.len() > self.largest() {
            return None;
        }
        self.room(bytes.len())?;
        let slice = self.loan.as_mut()?.append(bytes)?;
        self.copied += bytes.len() as u64;
        Some(slice)
    }

    /// Lets `fill` write into a block with room for at least `least` bytes and return how many it wrote. `None` if it
    /// wrote none, or if the pool is empty, in which case `fill` is not called.
    ///
    /// # Panics
    /// If `fill` returns more bytes than there was room for.
    #[inline]
    pub fn write_with(&mut self, least: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> Option<Slice> {
        if least > self.largest() {
            return None;
        }
        self.room(least)?;
        let loan = self.loan.as_mut()?;
        let written = fill(loan.spare());
        loan.commit(written);
        self.copied += written as u64;
        loan.split_committed()
    }

    /// Prepares a block with at least `bytes` free bytes, so that the next writes of that many bytes do not fail.
    /// Returns the number of free bytes. `None` if the pool is empty. No block ever has more than [`Staging::largest`].
    pub fn room(&mut self, bytes: usize) -> Option<usize> {
        if let Some(loan) = self.loan.as_ref().filter(|loan| loan.spare_len() >= bytes) {
            return Some(loan.spare_len());
        }
        // Given up first: a block without slices is returned at once, even if it is the pool's only one.
        self.loan = None;
        let loan = self.pool.loan(Owner::SHARED)?;
        Some(self.loan.insert(loan).spare_len())
    }

    /// Maximum number of bytes in one write.
    pub fn largest(&self) -> usize {
        self.pool.block_size()
    }

    /// Bytes copied so far.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// The pool, for its account and report.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The pool, to collect returned blocks.
    pub fn pool_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }
}
