//! Random sequences of all operations on blocks, compared with a model that knows each byte.
//!
//! After each step: no block is lost or handed out twice, every quota holds, and all bytes are intact.

#![allow(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use crate::{ByteQueue, Loan, Owner, Payload, Pool, PoolConfig, Returns, Slice, Staging};

const BLOCK_SIZE: usize = 24;
const BLOCKS: usize = 7;
/// Steps of a sequence: fewer under Miri, which is some thousand times slower.
const LONGEST: usize = if cfg!(miri) { 40 } else { 120 };

/// One operation; indexes are taken modulo the number of objects, sizes modulo the possible size.
#[derive(Clone, Debug)]
enum Step {
    Reserve(usize),
    Release(usize),
    Loan(usize),
    Write { loan: usize, bytes: usize, split: bool },
    Append { loan: usize, bytes: usize },
    Post { loan: usize, bytes: usize },
    DropLoan(usize),
    CloneSlice(usize),
    SplitSlice { slice: usize, at: usize },
    JoinSlices { slice: usize, next: usize },
    DropSlice(usize),
    PushToQueue(usize),
    TakeFromQueue(usize),
    TakeIntoPayload { bytes: usize, payload: usize },
    TakeBehind { skip: usize, bytes: usize },
    SkipInQueue(usize),
    ClearQueue,
    PushToPayload { payload: usize, slice: usize },
    SkipInPayload { payload: usize, bytes: usize },
    ClonePayload(usize),
    AppendPayloads { payload: usize, next: usize },
    TakeApart(usize),
    Evacuate(usize),
    DropPayload(usize),
    LetGo(usize),
    Collect,
}

fn step() -> impl Strategy<Value = Step> {
    let n = || 0..64usize;
    prop_oneof![
        1 => (0..4usize).prop_map(Step::Reserve),
        1 => n().prop_map(Step::Release),
        6 => n().prop_map(Step::Loan),
        4 => (n(), n(), any::<bool>()).prop_map(|(loan, bytes, split)| Step::Write { loan, bytes, split }),
        8 => (n(), n()).prop_map(|(loan, bytes)| Step::Append { loan, bytes }),
        1 => (n(), n()).prop_map(|(loan, bytes)| Step::Post { loan, bytes }),
        2 => n().prop_map(Step::DropLoan),
        2 => n().prop_map(Step::CloneSlice),
        3 => (n(), n()).prop_map(|(slice, at)| Step::SplitSlice { slice, at }),
        2 => (n(), n()).prop_map(|(slice, next)| Step::JoinSlices { slice, next }),
        3 => n().prop_map(Step::DropSlice),
        8 => n().prop_map(Step::PushToQueue),
        5 => n().prop_map(Step::TakeFromQueue),
        2 => (n(), n()).prop_map(|(bytes, payload)| Step::TakeIntoPayload { bytes, payload }),
        3 => (n(), n()).prop_map(|(skip, bytes)| Step::TakeBehind { skip, bytes }),
        2 => n().prop_map(Step::SkipInQueue),
        1 => Just(Step::ClearQueue),
        4 => (n(), n()).prop_map(|(payload, slice)| Step::PushToPayload { payload, slice }),
        2 => (n(), n()).prop_map(|(payload, bytes)| Step::SkipInPayload { payload, bytes }),
        1 => n().prop_map(Step::ClonePayload),
        1 => (n(), n()).prop_map(|(payload, next)| Step::AppendPayloads { payload, next }),
        1 => n().prop_map(Step::TakeApart),
        1 => n().prop_map(Step::Evacuate),
        3 => n().prop_map(Step::DropPayload),
        2 => n().prop_map(Step::LetGo),
        1 => Just(Step::Collect),
    ]
}

/// A byte as the model knows it, and the block that holds it.
type Byte = (u8, u32);

struct World {
    pool: Pool,
    staging: Staging,
    owners: Vec<(Owner, usize)>,
    /// The owner of each block that may be lent.
    borrowers: BTreeMap<u32, Owner>,
    /// Loans with the bytes committed and not split.
    loans: Vec<(Loan, Vec<u8>)>,
    slices: Vec<(Slice, Vec<u8>)>,
    payloads: Vec<(Payload, Vec<u8>)>,
    queue: ByteQueue,
    queued: VecDeque<Byte>,
    written: u8,
}

/// Removes the element at `index` modulo the length.
fn pick<T>(from: &mut Vec<T>, index: usize) -> Option<T> {
    if from.is_empty() { None } else { Some(from.swap_remove(index % from.len())) }
}

fn at<T>(from: &mut [T], index: usize) -> Option<&mut T> {
    let length = from.len().max(1);
    from.get_mut(index % length)
}

impl World {
    fn new() -> Self {
        Self {
            pool: Pool::new(PoolConfig::heap("model", BLOCK_SIZE, BLOCKS)).unwrap(),
            staging: Staging::new(Pool::new(PoolConfig::heap("staging", 16, 4)).unwrap()),
            owners: vec![(Owner::SHARED, BLOCKS)],
            borrowers: BTreeMap::new(),
            loans: Vec::new(),
            slices: Vec::new(),
            payloads: Vec::new(),
            queue: ByteQueue::new(),
            queued: VecDeque::new(),
            written: 0,
        }
    }

    /// Bytes that were not written before (the counter wraps far beyond the pool's size).
    fn fresh(&mut self, count: usize) -> Vec<u8> {
        let start = self.written;
        self.written = start.wrapping_add(count as u8);
        (0..count).map(|index| start.wrapping_add(index as u8)).collect()
    }

    /// The blocks held by objects of the model, except the staging's.
    fn live(&self) -> BTreeSet<u32> {
        let pool = self.pool.id();
        let of_payloads = self.payloads.iter().flat_map(|(payload, _)| payload.clone().into_slices());
        let slices = self.slices.iter().map(|(slice, _)| slice.clone()).chain(of_payloads);
        let mut live: BTreeSet<u32> = slices.filter(|slice| slice.pool() == pool).map(|slice| slice.block()).collect();
        live.extend(self.loans.iter().map(|(loan, _)| loan.block()));
        live.extend(self.queued.iter().map(|&(_, block)| block));
        live
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        self.pool.collect();
        let live = self.live();
        self.borrowers.retain(|block, _| live.contains(block));
        prop_assert_eq!(self.pool.held(), live.len(), "blocks out against blocks that are known");
        let account = self.pool.account();
        prop_assert_eq!(account.loans, account.returned + account.held);
        for &(owner, reserved) in &self.owners {
            let held = self.borrowers.values().filter(|&&holder| holder == owner).count();
            prop_assert_eq!(self.pool.held_by(owner), held);
            prop_assert_eq!(self.pool.available(owner), reserved - held);
        }
        for (slice, bytes) in &self.slices {
            prop_assert_eq!(&**slice, &bytes[..]);
        }
        for (payload, bytes) in &self.payloads {
            check_payload(payload, bytes)?;
        }
        prop_assert_eq!(self.queue.len(), self.queued.len());
        let mut all = vec![0; self.queued.len()];
        prop_assert!(self.queue.copy_to(0, &mut all));
        prop_assert!(all.iter().eq(self.queued.iter().map(|(byte, _)| byte)));
        prop_assert!(all.starts_with(self.queue.front()));
        prop_assert_eq!(self.queue.front().is_empty(), self.queued.is_empty());
        Ok(())
    }

    fn run(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Reserve(_) | Step::Release(_) | Step::Loan(_) | Step::Collect => self.run_on_pool(step),
            Step::Write { .. } | Step::Append { .. } | Step::Post { .. } | Step::DropLoan(_) => self.run_on_loan(step),
            Step::CloneSlice(_) | Step::SplitSlice { .. } | Step::JoinSlices { .. } | Step::DropSlice(_) => {
                self.run_on_slice(step)
            }
            Step::PushToQueue(_)
            | Step::TakeFromQueue(_)
            | Step::TakeIntoPayload { .. }
            | Step::TakeBehind { .. }
            | Step::SkipInQueue(_)
            | Step::ClearQueue => self.run_on_queue(step),
            _ => self.run_on_payload(step),
        }
    }

    fn run_on_pool(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Reserve(blocks) => {
                let left = self.pool.available(Owner::SHARED);
                let reserved = self.pool.reserve(blocks);
                prop_assert_eq!(reserved.is_ok(), blocks <= left);
                if let Ok(owner) = reserved {
                    prop_assert!(self.owners.iter().all(|&(other, _)| other != owner));
                    self.owners[0].1 -= blocks;
                    self.owners.push((owner, blocks));
                }
            }
            Step::Release(index) if self.owners.len() > 1 => {
                let (owner, blocks) = self.owners.remove(1 + index % (self.owners.len() - 1));
                self.pool.release(owner);
                self.owners[0].1 += blocks;
                let shared = |holder: &mut Owner| {
                    if *holder == owner {
                        *holder = Owner::SHARED
                    }
                };
                self.borrowers.values_mut().for_each(shared);
            }
            Step::Loan(index) => {
                let (owner, _) = self.owners[index % self.owners.len()];
                let expected = self.pool.available(owner) > 0;
                let loan = self.pool.loan(owner);
                prop_assert_eq!(loan.is_some(), expected, "a quota is a promise");
                if let Some(loan) = loan {
                    prop_assert!(!self.live().contains(&loan.block()), "handed out twice");
                    prop_assert_eq!(loan.spare_len(), BLOCK_SIZE);
                    self.borrowers.insert(loan.block(), owner);
                    self.loans.push((loan, Vec::new()));
                }
            }
            _ => self.pool.collect(),
        }
        Ok(())
    }

    fn run_on_loan(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Write { loan, bytes, split } => {
                let fresh = self.fresh(bytes);
                let Some((loan, committed)) = at(&mut self.loans, loan) else { return Ok(()) };
                let bytes = bytes.min(loan.spare_len());
                loan.spare()[..bytes].copy_from_slice(&fresh[..bytes]);
                loan.commit(bytes);
                committed.extend(&fresh[..bytes]);
                if split {
                    let committed = core::mem::take(committed);
                    let slice = loan.split_committed();
                    prop_assert_eq!(slice.is_some(), !committed.is_empty());
                    self.slices.extend(slice.map(|slice| (slice, committed)));
                }
            }
            Step::Append { loan, bytes } => {
                let fresh = self.fresh(bytes);
                let Some((loan, committed)) = at(&mut self.loans, loan) else { return Ok(()) };
                let fits = bytes <= loan.spare_len();
                let slice = loan.append(&fresh);
                prop_assert_eq!(slice.is_some(), fits);
                if let Some(slice) = slice {
                    let mut all = core::mem::take(committed);
                    all.extend(fresh);
                    self.slices.push((slice, all));
                }
            }
            Step::Post { loan, bytes } => {
                let fresh = self.fresh(bytes);
                let Some((loan, mut committed)) = pick(&mut self.loans, loan) else { return Ok(()) };
                let posted = loan.post();
                let bytes = bytes.min(posted.capacity());
                committed.extend(&fresh[..bytes]);
                // SAFETY: here this test plays the kernel; the block has that much capacity.
                let loan = unsafe {
                    posted.address().as_ptr().copy_from(fresh.as_ptr(), bytes);
                    posted.reclaim(bytes)
                };
                self.loans.push((loan, committed));
            }
            Step::DropLoan(loan) => drop(pick(&mut self.loans, loan)),
            _ => {}
        }
        Ok(())
    }

    fn run_on_slice(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::CloneSlice(slice) => {
                let clone = at(&mut self.slices, slice).map(|(slice, bytes)| (slice.clone(), bytes.clone()));
                self.slices.extend(clone);
            }
            Step::SplitSlice { slice, at: place } => {
                let Some((slice, bytes)) = at(&mut self.slices, slice) else { return Ok(()) };
                let place = place % (slice.len() + 1);
                let back = bytes.split_off(place);
                let front = core::mem::replace(bytes, back);
                let slice = slice.split_to(place);
                self.slices.push((slice, front));
            }
            Step::JoinSlices { slice, next } => {
                let Some((next, next_bytes)) = pick(&mut self.slices, next) else { return Ok(()) };
                let Some((slice, bytes)) = at(&mut self.slices, slice) else { return Ok(()) };
                match slice.join(next) {
                    Ok(()) => bytes.extend(next_bytes),
                    Err(next) => self.slices.push((next, next_bytes)),
                }
            }
            Step::DropSlice(slice) => drop(pick(&mut self.slices, slice)),
            _ => {}
        }
        Ok(())
    }

    fn run_on_queue(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::PushToQueue(slice) => {
                let Some((slice, bytes)) = pick(&mut self.slices, slice) else { return Ok(()) };
                if slice.pool() == self.pool.id() {
                    self.queued.extend(bytes.iter().map(|&byte| (byte, slice.block())));
                    self.queue.push(slice);
                }
            }
            Step::TakeFromQueue(bytes) => {
                let bytes = bytes % (self.queued.len() + 1);
                let expected = self.queued.drain(..bytes).map(|(byte, _)| byte).collect();
                self.payloads.push((self.queue.take(bytes), expected));
            }
            Step::TakeIntoPayload { bytes, payload } => {
                let Some((payload, expected)) = at(&mut self.payloads, payload) else { return Ok(()) };
                let bytes = bytes % (self.queued.len() + 1);
                expected.extend(self.queued.drain(..bytes).map(|(byte, _)| byte));
                self.queue.take_into(bytes, payload);
            }
            Step::TakeBehind { skip, bytes } => {
                let there = self.queue.front().len();
                let Some(mut front) = self.queue.front_slice().filter(|_| there > 1) else { return Ok(()) };
                let skip = skip % (there - 1);
                let bytes = 1 + bytes % (there - skip - 1);
                let payload = front.take_behind(skip, bytes);
                self.queued.drain(..skip);
                let expected = self.queued.drain(..bytes).map(|(byte, _)| byte).collect();
                self.payloads.push((payload, expected));
            }
            Step::SkipInQueue(bytes) => {
                let bytes = bytes % (self.queued.len() + 1);
                self.queued.drain(..bytes);
                self.queue.skip(bytes);
            }
            _ => {
                self.queued.clear();
                self.queue.clear();
            }
        }
        Ok(())
    }

    fn run_on_payload(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::PushToPayload { payload, slice } => {
                let Some((payload, expected)) = at(&mut self.payloads, payload) else { return Ok(()) };
                let Some((slice, bytes)) = pick(&mut self.slices, slice) else { return Ok(()) };
                payload.push(slice);
                expected.extend(bytes);
            }
            Step::SkipInPayload { payload, bytes } => {
                let Some((payload, expected)) = at(&mut self.payloads, payload) else { return Ok(()) };
                payload.skip(bytes);
                expected.drain(..bytes.min(expected.len()));
            }
            Step::ClonePayload(payload) => {
                let clone = at(&mut self.payloads, payload).map(|(payload, bytes)| (payload.clone(), bytes.clone()));
                self.payloads.extend(clone);
            }
            Step::AppendPayloads { payload, next } => {
                let Some((next, next_bytes)) = pick(&mut self.payloads, next) else { return Ok(()) };
                let Some((payload, bytes)) = at(&mut self.payloads, payload) else { return Ok(()) };
                payload.append(next);
                bytes.extend(next_bytes);
            }
            Step::TakeApart(payload) => {
                let Some((payload, mut bytes)) = pick(&mut self.payloads, payload) else { return Ok(()) };
                for slice in payload.into_slices() {
                    let rest = bytes.split_off(slice.len());
                    self.slices.push((slice, core::mem::replace(&mut bytes, rest)));
                }
                prop_assert!(bytes.is_empty());
            }
            Step::Evacuate(payload) => {
                let Some((payload, bytes)) = at(&mut self.payloads, payload) else { return Ok(()) };
                let before = self.staging.copied();
                let copy = payload.evacuate(&mut self.staging);
                let copied = self.staging.copied() - before;
                match copy {
                    Some(copy) => {
                        prop_assert_eq!(copied, bytes.len() as u64);
                        *payload = copy;
                    }
                    // Bytes copied before the pool ran out count as copied.
                    None => prop_assert!(copied < bytes.len() as u64),
                }
                check_payload(payload, bytes)?;
            }
            Step::DropPayload(payload) => drop(pick(&mut self.payloads, payload)),
            Step::LetGo(payloads) => {
                let mut returns = Returns::default();
                let kept = self.payloads.len() - payloads % (self.payloads.len() + 1);
                self.payloads.drain(kept..).for_each(|(mut payload, _)| returns.take(&mut payload));
            }
            _ => {}
        }
        Ok(())
    }
}

fn check_payload(payload: &Payload, bytes: &[u8]) -> Result<(), TestCaseError> {
    prop_assert_eq!(&payload.to_vec(), bytes);
    prop_assert_eq!(payload.len(), bytes.len());
    prop_assert_eq!(payload.is_empty(), bytes.is_empty());
    prop_assert_eq!(payload.piece_count(), payload.pieces().count());
    prop_assert!(payload.pieces().all(|piece| !piece.is_empty()));
    prop_assert!(payload.clone().into_slices().map(|slice| slice.to_vec()).eq(payload.pieces().map(<[u8]>::to_vec)));
    prop_assert_eq!(payload.contiguous().is_some(), payload.piece_count() < 2);
    let three = payload.read_array::<3>(1);
    prop_assert_eq!(three.as_ref().map(|array| &array[..]), bytes.get(1..4));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 300 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_block_is_lost_or_handed_out_twice(steps in prop::collection::vec(step(), 1..LONGEST)) {
        let mut world = World::new();
        for step in steps {
            world.run(step)?;
            world.check()?;
        }
        world.loans.clear();
        world.slices.clear();
        world.payloads.clear();
        world.queue.clear();
        world.queued.clear();
        world.check()?;
        prop_assert_eq!(world.pool.held(), 0);
    }
}
