//! How full a disk may become: above the high water mark nothing more is taken, until there is room down to the low one.

use ropewalk_io::disk::Disk;
use ropewalk_terms::Instant;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often the disk is asked.
const INTERVAL: Duration = Duration::from_secs(1);

/// Room that is to stay free on each disk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RoomLimits {
    /// With less free bytes than this nothing more is taken.
    pub least: u64,
    /// With so many free bytes it goes on.
    pub resume: u64,
}

/// How much is free where a builder unit writes, for its reports: told by somebody who may wait for the disk's answer.
#[derive(Clone, Debug)]
pub struct OutputRoom(Arc<AtomicU64>);

/// Nobody knows.
const UNKNOWN: u64 = u64::MAX;

impl Default for OutputRoom {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(UNKNOWN)))
    }
}

impl OutputRoom {
    /// So many bytes are free, or nobody knows.
    pub fn tell(&self, free: Option<u64>) {
        self.0.store(free.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    /// What was told last.
    pub(in crate::drive) fn bytes(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&bytes| bytes != UNKNOWN)
    }
}

/// Whether there is room.
#[derive(Debug, Default)]
pub(in crate::drive) struct Room {
    limits: Option<RoomLimits>,
    asked: Option<Instant>,
    is_short: bool,
}

impl Room {
    pub(in crate::drive) fn new(limits: Option<RoomLimits>) -> Self {
        Self { limits, asked: None, is_short: false }
    }

    /// Nothing more should be taken now.
    pub(in crate::drive) const fn is_short(&self) -> bool {
        self.is_short
    }

    /// Asks the disk, if it is time to. What cannot be asked is not short: writing will say what is wrong with it.
    pub(in crate::drive) fn look<'a>(
        &mut self,
        now: Instant,
        disk: &mut impl Disk,
        directories: impl Iterator<Item = &'a Path>,
    ) {
        let Some(RoomLimits { least, resume }) = self.limits else { return };
        if self.asked.is_some_and(|asked| now < asked.after(INTERVAL)) {
            return;
        }
        self.asked = Some(now);
        let wanted = if self.is_short { resume.max(least) } else { least };
        let mut free = directories.filter_map(|directory| disk.free_bytes(directory).ok());
        self.is_short = free.any(|free| free < wanted);
    }

    /// When the disk is asked again, while somebody waits for it.
    pub(in crate::drive) fn next_deadline(&self) -> Option<Instant> {
        self.asked.filter(|_| self.is_short).map(|asked| asked.after(INTERVAL))
    }
}
