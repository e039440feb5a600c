//! Memory whose blocks are filled in an order that is not a pool's: a ring that the kernel maps, an area that is used
//! round and round.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ropewalk_terms::PoolAccount;

use crate::config::{PoolConfig, PoolError};
use crate::loan::LOAN_REFERENCES;
use crate::mapping::{Mapping, Others, Touch};
use crate::registry::{self, MOST_POOLS, PoolId, Shared};
use crate::slice::Slice;
use crate::table::{BlockTable, MOST_BLOCKS};

/// One block, as the owner's thread knows it.
#[derive(Copy, Clone, Default)]
struct Block {
    /// References given to slices since it was lent.
    handed: u64,
    state: State,
}

#[derive(Copy, Clone, PartialEq, Eq, Default)]
enum State {
    /// Whoever fills it has it, or nobody.
    #[default]
    Home,
    /// Slices may be cut from it.
    Lent,
    /// The owner is done with it, and slices may keep it.
    Kept,
}

/// Equal blocks of memory that the owner's thread lends, in an order of its own choice, and that come home when it is
/// [done](Self::done) with them and the last slice was dropped, on whatever thread.
///
/// Dropping this while slices live is fine: the memory stays until the last of them is gone.
pub struct Frames {
    name: String,
    id: PoolId,
    shared: NonNull<Shared>,
    block_size: usize,
    blocks: Box<[Block]>,
    held: usize,
    loans: u64,
    returned: u64,
}

// SAFETY: as for `Pool`: the shared part is made for use from several threads, everything else is owned. Not `Sync`.
unsafe impl Send for Frames {}

impl Frames {
    /// Memory of one's own.
    ///
    /// # Errors
    /// As [`Pool::new`](crate::Pool::new).
    pub fn new(config: PoolConfig) -> Result<Self, PoolError> {
        check(&config)?;
        let (mapping, _) = Mapping::new(&config, Touch::Everything, Others::Read)?;
        Self::of(mapping, config)
    }

    /// Blocks whose memory is got one by one.
    pub(crate) fn of_pieces(name: &str, blocks: usize) -> Result<Self, PoolError> {
        let config = PoolConfig::heap(name, 1, blocks);
        check(&config)?;
        Self::of(Mapping::of_pieces(blocks), config)
    }

    /// Memory that the kernel has and maps at the beginning of a descriptor, as it does for packet rings. The mapping keeps
    /// it, also after the descriptor is closed.
    ///
    /// # Errors
    /// Impossible sizes, or what the kernel says.
    pub fn map(name: &str, descriptor: BorrowedFd<'_>, block_size: usize, blocks: usize) -> Result<Self, PoolError> {
        let config = PoolConfig::heap(name, block_size, blocks);
        check(&config)?;
        let mapping = Mapping::of_descriptor(descriptor, block_size * blocks)
            .map_err(|(call, errno)| config.no_memory(block_size * blocks, call, errno.into()))?;
        Self::of(mapping, config)
    }

    fn of(mapping: Mapping, config: PoolConfig) -> Result<Self, PoolError> {
        let PoolConfig { name, blocks, block_size, .. } = config;
        let shared = Shared { table: BlockTable::new(blocks), mapping: Arc::new(mapping) };
        let Some((id, shared)) = registry::enter(shared) else {
            return Err(PoolError::TooManyPools { name, most: MOST_POOLS });
        };
        let blocks = vec![Block::default(); blocks].into();
        Ok(Self { name, id, shared, block_size, blocks, held: 0, loans: 0, returned: 0 })
    }

    fn shared(&self) -> &Shared {
        // SAFETY: entered by `of`, and freed not before this handle has abandoned it.
        unsafe { self.shared.as_ref() }
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.shared().mapping
    }

    /// Where a block begins.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn address(&self, block: u32) -> NonNull<u8> {
        assert!((block as usize) < self.blocks.len(), "the block is one of those that there are");
        // SAFETY: within the mapping, which has `blocks * block_size` bytes.
        unsafe { self.mapping().base().add(block as usize * self.block_size) }
    }

    /// Lends a block, from which slices can be cut until the owner is [done](Self::done) with it.
    ///
    /// # Panics
    /// If it is not at home.
    pub fn lend(&mut self, block: u32) {
        assert!(self.is_home(block), "a block is lent once at a time");
        self.blocks[block as usize] = Block { handed: 0, state: State::Lent };
        self.shared().table.issue(block, LOAN_REFERENCES);
        self.loans += 1;
        self.held += 1;
    }

    /// The `length` bytes at `start` as a slice, without a copy.
    ///
    /// # Safety
    /// They must lie in memory that belongs to this block, be initialised, and be written by nobody until the block has
    /// come home.
    ///
    /// # Panics
    /// If the block is not lent.
    #[inline]
    pub unsafe fn slice(&mut self, block: u32, start: NonNull<u8>, length: u32) -> Slice {
        let entry = &mut self.blocks[block as usize];
        assert!(entry.state == State::Lent, "slices are cut from what is lent");
        debug_assert!(entry.handed < LOAN_REFERENCES - 1, "a block does not run out of references");
        entry.handed += 1;
        // SAFETY: says the caller; the slice gets one of the references that were issued.
        unsafe { Slice::new(start, length, block, self.id.0) }
    }

    /// The owner needs nothing of this block any more; slices keep it.
    ///
    /// # Panics
    /// If it is not lent.
    pub fn done(&mut self, block: u32) {
        let entry = &mut self.blocks[block as usize];
        assert!(entry.state == State::Lent, "the owner is done once");
        entry.state = State::Kept;
        let left = LOAN_REFERENCES - entry.handed;
        // SAFETY: issued by `lend`, and those that were handed out belong to slices.
        unsafe { registry::give_back(self.id.0, block, left) }
    }

    /// Takes home the blocks whose last reference was dropped, and tells each.
    #[inline]
    pub fn collect(&mut self, mut home: impl FnMut(u32)) {
        if !self.shared().table.has_returned() {
            return;
        }
        // SAFETY: as in `shared`; spelled out so that the other fields can be changed meanwhile.
        let table = unsafe { &self.shared.as_ref().table };
        for block in table.take_returned() {
            self.blocks[block as usize].state = State::Home;
            self.held -= 1;
            self.returned += 1;
            home(block);
        }
    }

    /// Whether nobody has the block, as far as blocks were collected.
    pub fn is_home(&self, block: u32) -> bool {
        self.blocks[block as usize].state == State::Home
    }

    /// Blocks that did not come home, as far as they were collected.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// How many blocks there are.
    pub const fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes of a block.
    pub const fn block_size(&self) -> usize {
        self.block_size
    }

    /// The number of this memory, as its slices name it.
    pub const fn id(&self) -> PoolId {
        self.id
    }

    /// The account of the blocks for the ledger, held ones counted from the table. Collect first for an up-to-date one.
    pub fn account(&self) -> PoolAccount {
        let held = self.blocks.iter().filter(|block| block.state != State::Home).count() as u64;
        PoolAccount { loans: self.loans, returned: self.returned, held }
    }
}

/// Sizes with which there can be such memory.
fn check(config: &PoolConfig) -> Result<(), PoolError> {
    let &PoolConfig { blocks, block_size, .. } = config;
    let possible = (1..=MOST_BLOCKS).contains(&blocks)
        && (1..=1 << 31).contains(&block_size)
        && blocks.checked_mul(block_size).is_some_and(|bytes| bytes <= isize::MAX as usize);
    if possible { Ok(()) } else { Err(PoolError::Size { name: config.name.clone(), blocks, block_size }) }
}

impl Drop for Frames {
    fn drop(&mut self) {
        for block in 0..self.blocks.len() as u32 {
            if self.blocks[block as usize].state == State::Lent {
                self.done(block);
            }
        }
        let came_home = self.shared().table.close().count();
        let out = self.held - came_home;
        // SAFETY: closed above; `out` blocks were lent and not taken from the queue.
        unsafe {
            if BlockTable::abandon(&raw const (*self.shared.as_ptr()).table, out as u64) {
                registry::free(self.id.0);
            }
        }
    }
}

impl core::fmt::Debug for Frames {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { name, block_size, held, .. } = self;
        write!(out, "Frames({name}: {} blocks of {block_size} bytes, {held} held)", self.blocks.len())
    }
}
