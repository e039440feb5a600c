//! What a pool is to be, what it became, and why it could not.

use std::io;

/// Where a pool's bytes come from.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum MemoryKind {
    /// The allocator. For tests and tools: neither huge pages nor a NUMA node are asked for.
    Heap,
    /// An anonymous mapping of this process.
    Anonymous,
    /// An anonymous file, which other processes can be given to map.
    Memfd,
}

/// Whether huge pages are tried.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum HugePages {
    /// 2 MiB huge pages if there are any, else transparent ones, else plain pages.
    Auto,
    /// Plain pages only.
    Never,
}

/// What a pool is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolConfig {
    /// For people: reports and metrics.
    pub name: String,
    /// Where the bytes come from.
    pub memory: MemoryKind,
    /// Whether huge pages are tried.
    pub huge_pages: HugePages,
    /// Bytes of a block, from 1 to 2^31.
    pub block_size: usize,
    /// Number of blocks, at least 1.
    pub blocks: usize,
    /// The NUMA node that the memory must lie on; `None` leaves it to the kernel.
    pub numa_node: Option<u16>,
    /// Whether its pages are to stay in memory once they are present, never moved out to a disk.
    pub lock: bool,
}

impl PoolConfig {
    /// A small pool from the allocator, for tests and tools.
    pub fn heap(name: &str, block_size: usize, blocks: usize) -> Self {
        let (memory, huge_pages) = (MemoryKind::Heap, HugePages::Never);
        Self { name: name.to_owned(), memory, huge_pages, block_size, blocks, numa_node: None, lock: false }
    }

    /// A pool for data: an anonymous mapping with huge pages where there are any, on any NUMA node.
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

/// Which pages a pool got.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum PageKind {
    /// Memory of the allocator, with any pages.
    Heap,
    /// Pages of the machine's base size.
    Plain,
    /// The kernel was asked for transparent huge pages, and the mapping has some.
    Transparent,
    /// Reserved huge pages of 2 MiB.
    Huge2MiB,
}

impl PageKind {
    /// A word for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Plain => "plain",
            Self::Transparent => "transparent_huge",
            Self::Huge2MiB => "huge_2mib",
        }
    }
}

/// What a pool became.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolReport {
    /// The configured name.
    pub name: String,
    /// Where the bytes come from.
    pub memory: MemoryKind,
    /// Which pages they lie on.
    pub pages: PageKind,
    /// Bytes on huge pages, of either kind, when the pool was made.
    pub huge_bytes: usize,
    /// The NUMA node of every page that was touched, as the kernel says it; `None` if none was asked for.
    pub numa_node: Option<u16>,
    /// Whether its pages stay in memory.
    pub lock: Lock,
    /// Bytes mapped, rounded up to whole pages.
    pub bytes: usize,
}

/// Whether a pool's pages stay in memory once they are present.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Lock {
    /// It was not requested.
    NotAsked,
    /// They do.
    Held,
    /// The kernel refused: it needs `CAP_IPC_LOCK`, or a higher limit of locked memory. The pool is as good without.
    Refused,
}

/// Why there is no such pool or quota.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum PoolError {
    /// A size is zero or beyond what a pool can have.
    #[error(
        "pool `{name}`: {blocks} blocks of {block_size} bytes cannot be: at least one block of 1 to 2147483648 bytes, \
         and less than 2^32 blocks"
    )]
    Size {
        /// The pool.
        name: String,
        /// Blocks asked for.
        blocks: usize,
        /// Bytes of a block asked for.
        block_size: usize,
    },
    /// This process has as many pools as it can have.
    #[error("pool `{name}`: this process has {most} pools already")]
    TooManyPools {
        /// The pool.
        name: String,
        /// The most that there can be.
        most: usize,
    },
    /// The system gave no memory.
    #[error("pool `{name}`: no memory of {bytes} bytes ({call}): {source}; use fewer or smaller blocks")]
    Memory {
        /// The pool.
        name: String,
        /// Bytes asked for.
        bytes: usize,
        /// The call that failed.
        call: &'static str,
        /// What the system said.
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
        /// The node asked for.
        node: u16,
        /// What the system said.
        source: io::Error,
    },
    /// The memory was bound to a node but lies elsewhere.
    #[error("pool `{name}`: {pages} pages lie not on NUMA node {node}, to which they were bound")]
    WrongNode {
        /// The pool.
        name: String,
        /// The node asked for.
        node: u16,
        /// Number of pages that lie elsewhere.
        pages: usize,
    },
    /// More blocks were to be reserved than are left.
    #[error("pool `{name}`: {asked} blocks cannot be reserved, {left} are left; give the pool more blocks")]
    Quota {
        /// The pool.
        name: String,
        /// Blocks asked for.
        asked: usize,
        /// Blocks that are neither reserved nor lent.
        left: usize,
    },
}
