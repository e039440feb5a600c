//! Configuration of a pool, its report, and its errors.

use std::io;

/// Source of a pool's memory.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum MemoryKind {
    /// The allocator. For tests and tools: without huge pages and NUMA binding.
    Heap,
    /// An anonymous mapping of this process.
    Anonymous,
    /// An anonymous file, which other processes can map.
    Memfd,
}

/// Whether to try huge pages.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum HugePages {
    /// 2 MiB huge pages if available, else transparent ones, else plain pages.
    Auto,
    /// Plain pages only.
    Never,
}

/// Configuration of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolConfig {
    /// Name for reports and metrics.
    pub name: String,
    /// Source of the memory.
    pub memory: MemoryKind,
    /// Whether to try huge pages.
    pub huge_pages: HugePages,
    /// Bytes of a block, from 1 to 2^31.
    pub block_size: usize,
    /// Number of blocks, at least 1.
    pub blocks: usize,
    /// The NUMA node that the memory must lie on; `None` leaves it to the kernel.
    pub numa_node: Option<u16>,
    /// Whether to lock pages in memory once they are present, so that they are never swapped out.
    pub lock: bool,
}

impl PoolConfig {
    /// A small pool from the allocator, for tests and tools.
    pub fn heap(name: &str, block_size: usize, blocks: usize) -> Self {
        let (memory, huge_pages) = (MemoryKind::Heap, HugePages::Never);
        Self { name: name.to_owned(), memory, huge_pages, block_size, blocks, numa_node: None, lock: false }
    }

    /// A pool for data: an anonymous mapping with huge pages if available, on any NUMA node.
    pub fn anonymous(name: &str, block_size: usize, blocks: usize) -> Self {
        let (memory, huge_pages) = (MemoryKind::Anonymous, HugePages::Auto);
        Self { name: name.to_owned(), memory, huge_pages, block_size, blocks, numa_node: None, lock: false }
    }

    /// Bytes of all blocks; the sizes must have been checked.
    pub(crate) fn bytes(&self) -> usize {
        self.block_size * self.blocks
    }

    pub(crate) fn no_memory(&self, bytes: usize, call: &'static str, source: io::Error) -> PoolError {
        PoolError::Memory { name: self.name.clone(), bytes, call, source }
    }
}

/// Kind of pages of a pool.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum PageKind {
    /// Memory of the allocator, with any pages.
    Heap,
    /// Pages of the machine's base size.
    Plain,
    /// Transparent huge pages: the kernel was asked for them, and the mapping has some.
    Transparent,
    /// Reserved huge pages of 2 MiB.
    Huge2MiB,
}

impl PageKind {
    /// Name for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Plain => "plain",
            Self::Transparent => "transparent_huge",
            Self::Huge2MiB => "huge_2mib",
        }
    }
}

/// Properties of the memory that a pool got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolReport {
    /// The configured name.
    pub name: String,
    /// Source of the memory.
    pub memory: MemoryKind,
    /// Kind of pages.
    pub pages: PageKind,
    /// Bytes on huge pages, of either kind, when the pool was made.
    pub huge_bytes: usize,
    /// The NUMA node of every touched page, as reported by the kernel; `None` if none was requested.
    pub numa_node: Option<u16>,
    /// Whether the pages are locked in memory.
    pub lock: Lock,
    /// Bytes mapped, rounded up to whole pages.
    pub bytes: usize,
}

/// Whether a pool's pages are locked in memory once they are present.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Lock {
    /// Not requested.
    NotAsked,
    /// Locked.
    Held,
    /// The kernel refused: locking needs `CAP_IPC_LOCK`, or a higher limit of locked memory. The pool works without it.
    Refused,
}

/// Error of making a pool or a quota.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum PoolError {
    /// A size is zero or larger than the limit.
    #[error(
        "pool `{name}`: {blocks} blocks of {block_size} bytes cannot be: at least one block of 1 to 2147483648 bytes, \
         and less than 2^32 blocks"
    )]
    Size {
        /// The pool.
        name: String,
        /// Requested number of blocks.
        blocks: usize,
        /// Requested bytes of a block.
        block_size: usize,
    },
    /// The process has reached its limit of pools.
    #[error("pool `{name}`: this process has {most} pools already")]
    TooManyPools {
        /// The pool.
        name: String,
        /// The limit.
        most: usize,
    },
    /// The system has no memory.
    #[error("pool `{name}`: no memory of {bytes} bytes ({call}): {source}; use fewer or smaller blocks")]
    Memory {
        /// The pool.
        name: String,
        /// Requested bytes.
        bytes: usize,
        /// The call that failed.
        call: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Memory of the allocator cannot be bound to a NUMA node.
    #[error("pool `{name}`: heap memory cannot be bound to a NUMA node; use anonymous memory, or no node")]
    HeapNotBound {
        /// The pool.
        name: String,
    },
    /// The NUMA node does not exist, or its memory may not be used by this process.
    #[error("pool `{name}`: NUMA node {node} cannot be used: {source}; see /sys/devices/system/node/online")]
    NoSuchNode {
        /// The pool.
        name: String,
        /// The requested node.
        node: u16,
        /// The system's error.
        source: io::Error,
    },
    /// The memory was bound to a node but lies elsewhere.
    #[error("pool `{name}`: {pages} pages lie not on NUMA node {node}, to which they were bound")]
    WrongNode {
        /// The pool.
        name: String,
        /// The requested node.
        node: u16,
        /// Number of pages elsewhere.
        pages: usize,
    },
    /// More blocks were to be reserved than are left.
    #[error("pool `{name}`: {asked} blocks cannot be reserved, {left} are left; give the pool more blocks")]
    Quota {
        /// The pool.
        name: String,
        /// Requested number of blocks.
        asked: usize,
        /// Blocks that are neither reserved nor lent.
        left: usize,
    },
}
