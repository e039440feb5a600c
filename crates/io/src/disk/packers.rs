//! Threads that pack: zstd and LZ4 take all of a thread's time, so that they do nothing else: whoever
//! writes gathers what is to be packed, and takes it back in the same order.

use std::io;
use std::sync::Arc;

use ropewalk_wire::run_file::{Compression, Packer};

use super::worker::Worker;
use super::writer::Append;
use crate::doorbell::Doorbell;

/// Appends that a thread has at most: the one that it packs, and the next one.
const ROOM: usize = 2;

/// An append whose bytes stand from `offset` on among those of its file that are not packed.
struct Job {
    append: Append,
    offset: u64,
    compression: Compression,
}

/// The threads, which take turns. Dropping it ends them.
pub(super) struct Packers {
    workers: Vec<Worker<Job, (Append, bool)>>,
    /// Appends that were ever given, and ever taken back.
    given: usize,
    taken: usize,
}

impl Packers {
    /// Starts so many threads, which ring this bell when something is packed; they run where the calling thread may.
    pub(super) fn start(count: u8, bell: &Arc<Doorbell>) -> io::Result<Self> {
        let name = std::thread::current().name().unwrap_or("disk").to_owned();
        let start = |number| {
            let mut packing = Packing::default();
            let pack = move |job| packing.carry_out(job);
            Worker::start(format!("{name}.pack{number}"), ROOM, Arc::clone(bell), pack)
        };
        let workers = (0..count.max(1)).map(start).collect::<io::Result<_>>()?;
        Ok(Self { workers, given: 0, taken: 0 })
    }

    /// Appends that were not taken back.
    pub(super) const fn under_way(&self) -> usize {
        self.given - self.taken
    }

    /// Whether one more can be given.
    pub(super) fn has_room(&self) -> bool {
        self.workers[self.given % self.workers.len()].under_way() < ROOM
    }

    /// Hands an append over, for which there is room.
    pub(super) fn give(&mut self, append: Append, offset: u64, compression: Compression) {
        let turn = self.given % self.workers.len();
        self.given += usize::from(self.workers[turn].give(Job { append, offset, compression }));
    }

    /// The oldest append, as soon as it is packed, and whether it could be.
    pub(super) fn take(&mut self) -> Option<(Append, bool)> {
        let turn = self.taken % self.workers.len();
        let packed = self.workers[turn].take()?;
        self.taken += 1;
        Some(packed)
    }
}

/// What one thread packs with.
#[derive(Default)]
struct Packing {
    /// One for each way of packing that came along: of a writer's files, one or two.
    packers: Vec<(Compression, Packer)>,
}

impl Packing {
    fn carry_out(&mut self, Job { mut append, offset, compression }: Job) -> (Append, bool) {
        let is_packed = self.packer(compression).is_some_and(|packer| append.pack(packer, offset));
        (append, is_packed)
    }

    /// None where the library has no memory.
    fn packer(&mut self, compression: Compression) -> Option<&mut Packer> {
        let known = self.packers.iter().position(|(known, _)| *known == compression);
        let place = match known {
            Some(place) => place,
            None => {
                self.packers.push((compression, Packer::new(compression)?));
                self.packers.len() - 1
            }
        };
        Some(&mut self.packers[place].1)
    }
}
