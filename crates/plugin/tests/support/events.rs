//! Events for filters.

use ropewalk_flow::messages::{Fragment, FragmentFlags, FragmentMeta};
use ropewalk_memory::{HugePages, MemoryKind, Payload, Pool, PoolConfig, Staging};
use ropewalk_plugin::filter::FilterEvent;
use ropewalk_terms::{Attempt, EventKey, SourceId};

/// An event of a test.
#[derive(Clone)]
pub(crate) struct Event {
    pub(crate) key: EventKey,
    pub(crate) fragments: Vec<Fragment>,
    pub(crate) is_complete: bool,
}

impl Event {
    pub(crate) fn new(number: u64, fragments: impl IntoIterator<Item = Fragment>) -> Self {
        Self { key: EventKey::new(2, number), fragments: fragments.into_iter().collect(), is_complete: true }
    }
}

impl FilterEvent for Event {
    fn key(&self) -> EventKey {
        self.key
    }

    fn attempt(&self) -> Attempt {
        Attempt(3)
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn trigger_type(&self) -> u16 {
        9
    }

    fn fragments(&self) -> impl Iterator<Item = &Fragment> {
        self.fragments.iter()
    }
}

/// Memory for payloads, which others can be given to read or not.
pub(crate) fn pool(memory: MemoryKind, block_size: usize, blocks: usize) -> Staging {
    let config =
        PoolConfig { memory, huge_pages: HugePages::Never, ..PoolConfig::heap("payloads", block_size, blocks) };
    Staging::new(Pool::new(config).expect("memory"))
}

/// A fragment whose bytes lie in pieces of at most so many.
pub(crate) fn fragment(memory: &mut Staging, source: u32, bytes: &[u8], piece: usize) -> Fragment {
    let mut payload = Payload::default();
    for part in bytes.chunks(piece) {
        // A byte that belongs to nobody keeps neighbours apart.
        let room = memory.write(&[part, b"|"].concat());
        let mut slice = room.expect("room");
        slice.truncate(part.len());
        payload.push(slice);
    }
    let meta = FragmentMeta {
        source: SourceId(source),
        length: bytes.len() as u32,
        flags: FragmentFlags(FragmentFlags::HAS_TIME.0 | FragmentFlags::CRC_CHECKED.0),
        bunch_crossing: 3000,
        trigger_type: 5,
        raw_id: 1 << 40 | u64::from(source),
        time: 1 << 50,
    };
    Fragment { meta, payload }
}
