//! A builder unit's disk behind the node's own clock.

use super::clock::NodeClock;
use ropewalk_io::disk::{
    Completion, Disk, DiskCause, FileToken, NewFile, QueueFull, SimulatedDisk, SimulatedDiskConfig, SimulatedStorage,
};
use ropewalk_memory::Slice;
use ropewalk_terms::Instant;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// A simulated disk that lives in the world's time, whatever the node believes.
pub(super) struct NodeDisk {
    inner: SimulatedDisk,
    clock: NodeClock,
}

impl NodeDisk {
    /// A disk that writes `storage`.
    pub(super) fn new(storage: &SimulatedStorage, clock: &NodeClock) -> Self {
        let inner = storage.disk(SimulatedDiskConfig::default(), clock.world_clock().clone());
        Self { inner, clock: clock.clone() }
    }
}

impl Disk for NodeDisk {
    fn enter_directory(&mut self, path: &Path) -> Vec<String> {
        self.inner.enter_directory(path)
    }

    fn read(&mut self, path: &Path) -> Result<Vec<u8>, DiskCause> {
        self.inner.read(path)
    }

    fn create(&mut self, path: &Path, how: NewFile) -> FileToken {
        self.inner.create(path, how)
    }

    fn append(&mut self, file: FileToken, cookie: u64, data: &mut Vec<Slice>) -> Result<(), QueueFull> {
        self.inner.append(file, cookie, data)
    }

    fn sync(&mut self, file: FileToken, cookie: u64) {
        self.inner.sync(file, cookie);
    }

    fn publish(&mut self, file: FileToken, final_path: &Path, cookie: u64) {
        self.inner.publish(file, final_path, cookie);
    }

    fn remove(&mut self, path: &Path, cookie: u64) {
        self.inner.remove(path, cookie);
    }

    fn look_for(&mut self, path: &Path, cookie: u64) {
        self.inner.look_for(path, cookie);
    }

    fn free_bytes(&mut self, path: &Path) -> Result<u64, DiskCause> {
        self.inner.free_bytes(path)
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.inner.poll(completions)
    }

    fn queued_bytes(&self) -> usize {
        self.inner.queued_bytes()
    }

    fn copied_bytes(&self) -> u64 {
        self.inner.copied_bytes()
    }

    fn restored_files(&self) -> u64 {
        self.inner.restored_files()
    }

    fn prepare_wait(&mut self) -> bool {
        self.inner.prepare_wait()
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline().map(|world| self.clock.local_from(world))
    }
}
