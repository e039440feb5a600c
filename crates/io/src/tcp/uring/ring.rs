//! The two queues that are shared with the kernel: operations go in, completions come out.
//!
//! Operations are gathered and handed over by one system call per poll. The kernel works on them only during that call:
//! with *deferred task work* it neither reads nor writes our memory, nor completes anything, outside it. Buffers can
//! therefore be taken back between two calls without asking.
//!
//! [`Buffers`] are the blocks of one endpoint that the kernel fills in order and returns incrementally.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use io_uring::types::{self, BufRingEntry};
use io_uring::{EnterFlags, IoUring, Probe, cqueue, opcode, squeue};
use ropewalk_memory::{Loan, Posted, Slice};
use rustix::io::Errno;

use crate::tcp::gather::Gather;
use crate::wait;

/// Maximum number of operations handed over at once.
const SUBMISSIONS: u32 = 512;
/// Room for completions before the kernel has to keep them itself.
const COMPLETIONS: u32 = 8192;

/// Kind of an operation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    /// Accepts every connection of a listener.
    Accept,
    /// Completes when a socket is connected, or cannot be.
    Connect,
    /// Completes when there is something to receive, without receiving it.
    Watch,
    /// Receives into provided buffers repeatedly.
    Receive,
    /// Discards received bytes, once.
    Discard,
    Send,
    /// Ends another operation early.
    Cancel,
}

impl Operation {
    const ALL: [Self; 7] =
        [Self::Accept, Self::Connect, Self::Watch, Self::Receive, Self::Discard, Self::Send, Self::Cancel];
}

/// The receiver of a completion: an operation of a connection, or of a listener, by the place in its table.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Token {
    pub(super) operation: Operation,
    pub(super) index: u32,
}

impl Token {
    pub(super) const fn new(operation: Operation, index: u32) -> Self {
        Self { operation, index }
    }

    const fn encode(self) -> u64 {
        (self.operation as u64) << 32 | self.index as u64
    }

    const fn decode(data: u64) -> Self {
        Self { operation: Operation::ALL[(data >> 32) as usize], index: data as u32 }
    }
}

/// The kernel's report on an operation.
#[derive(Copy, Clone, Debug)]
pub(super) struct Completion {
    pub(super) token: Token,
    pub(super) result: Result<usize, Errno>,
    /// Whether another completion of the same operation follows.
    pub(super) more: bool,
    /// Whether the kernel no longer needs the bytes of a zero-copy send; `result` has no meaning then.
    pub(super) notification: bool,
}

/// The ring, and the memory that it still needs.
pub(in crate::tcp) struct Ring {
    ring: IoUring,
    /// Rung while a thread sleeps and there is something to complete.
    bell: OwnedFd,
    /// Whether the kernel rings it.
    listening: bool,
    /// The thread that polls: the kernel works for no other thread.
    issuer: Option<ThreadId>,
    /// Number of operations whose last completion has not been taken.
    in_flight: usize,
    gather: Gather,
}

impl Ring {
    /// Makes a ring that belongs to the first thread that uses it.
    pub(in crate::tcp) fn new() -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_cqsize(COMPLETIONS)
            .setup_submit_all()
            // Enabled by the first poll, because the dispatcher may be made on another thread.
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(SUBMISSIONS)
            .map_err(no_ring)?;
        probe(&ring)?;
        let bell = wait::new_bell()?;
        ring.submitter().register_eventfd(bell.as_raw_fd())?;
        let mut ring = Self { ring, bell, listening: true, issuer: None, in_flight: 0, gather: Gather::new() };
        ring.stop_listening();
        Ok(ring)
    }

    /// Makes the calling thread the one for which the kernel works; an error if another thread is.
    pub(super) fn adopt(&mut self) -> io::Result<()> {
        let this = std::thread::current().id();
        match self.issuer {
            Some(issuer) if issuer == this => Ok(()),
            Some(_) => Err(Errno::EXIST.into()),
            None => {
                self.ring.submitter().register_enable_rings()?;
                self.issuer = Some(this);
                Ok(())
            }
        }
    }

    /// Number of operations whose last completion has not been taken.
    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Lets the kernel take buffers of this ring for the group.
    pub(super) fn register(&mut self, buffers: &BufferRing, group: u16) -> io::Result<()> {
        // SAFETY: the owner of both frees the buffers' memory only when the ring has nothing in flight, and leaks it
        // otherwise.
        unsafe { register(&self.ring, buffers, group) }
    }

    /// Accepts every connection of the listener, until a completion says that none follows.
    pub(super) fn accept(&mut self, listener: &OwnedFd, index: u32) -> bool {
        let entry = opcode::AcceptMulti::new(file(listener)).flags(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK).build();
        // SAFETY: names no memory.
        unsafe { self.push(entry, Token::new(Operation::Accept, index)) }
    }

    /// Completes when the socket is connected, or cannot be.
    pub(super) fn connect(&mut self, socket: &OwnedFd, index: u32) -> bool {
        self.watch(socket, libc::POLLOUT, Token::new(Operation::Connect, index))
    }

    /// Completes when there is something to receive, or the end of the stream.
    pub(super) fn await_bytes(&mut self, socket: &OwnedFd, index: u32) -> bool {
        self.watch(socket, libc::POLLIN | libc::POLLRDHUP, Token::new(Operation::Watch, index))
    }

    fn watch(&mut self, socket: &OwnedFd, what: i16, token: Token) -> bool {
        let entry = opcode::PollAdd::new(file(socket), what as u32).build();
        // SAFETY: names no memory.
        unsafe { self.push(entry, token) }
    }

    /// Receives into the buffers of the group repeatedly.
    pub(super) fn receive(&mut self, socket: &OwnedFd, group: u16, index: u32) -> bool {
        let entry = opcode::RecvMulti::new(file(socket), group).build();
        // SAFETY: names no memory except the group's, which contains only posted blocks.
        unsafe { self.push(entry, Token::new(Operation::Receive, index)) }
    }

    pub(super) fn discard(&mut self, socket: &OwnedFd, index: u32) -> bool {
        /// Number of bytes discarded by one operation.
        const MOST: u32 = 1 << 20;
        // TCP discards the bytes without copying them, so that no memory is needed.
        let entry = opcode::Recv::new(file(socket), std::ptr::null_mut(), MOST).flags(libc::MSG_TRUNC).build();
        // SAFETY: the kernel writes nothing there, and could not, because no memory is mapped at the null address.
        unsafe { self.push(entry, Token::new(Operation::Discard, index)) }
    }

    /// Sends the slices, as many as one operation takes, with or without a copy by the kernel. Returns their number of
    /// bytes, 0 if there is no room for the operation now.
    ///
    /// # Safety
    /// The slices must stay until the last completion.
    pub(super) unsafe fn send<'a>(
        &mut self,
        socket: &OwnedFd,
        slices: impl Iterator<Item = &'a Slice>,
        copies: bool,
        index: u32,
    ) -> usize {
        let Some((message, bytes)) = self.gather.message(slices) else { return 0 };
        let flags = libc::MSG_NOSIGNAL as u32;
        let entry = if copies {
            opcode::SendMsg::new(file(socket), message).flags(flags).build()
        } else {
            opcode::SendMsgZc::new(file(socket), message).flags(flags).build()
        };
        // SAFETY: the list of slices stays until the operation is handed over, and is not needed afterwards; the slices
        // stay until the last completion (the caller's promise).
        if unsafe { self.push(entry, Token::new(Operation::Send, index)) } { bytes } else { 0 }
    }

    /// Ends the operation early: it completes like any other one, perhaps with [`Errno::CANCELED`].
    pub(super) fn cancel(&mut self, token: Token) -> bool {
        // SAFETY: names no memory.
        unsafe { self.push(opcode::AsyncCancel::new(token.encode()).build(), Token::new(Operation::Cancel, 0)) }
    }

    /// Queues an operation. False if there is no room before the next [`Ring::turn`].
    ///
    /// # Safety
    /// Memory that the operation names must stay as long as the kernel uses it.
    unsafe fn push(&mut self, entry: squeue::Entry, token: Token) -> bool {
        let entry = entry.user_data(token.encode());
        // SAFETY: the caller's promise.
        let pushed = unsafe { self.ring.submission().push(&entry) }.is_ok();
        self.in_flight += usize::from(pushed);
        pushed
    }

    /// Whether [`Ring::turn`] has something to do.
    pub(super) fn has_work(&mut self) -> bool {
        let submission = self.ring.submission();
        let has = !submission.is_empty() || submission.taskrun() || submission.cq_overflow();
        drop(submission);
        has || !self.ring.completion().is_empty()
    }

    /// Hands over the queued operations, lets the kernel work, and appends all completions. No system call if there is
    /// nothing to do.
    pub(super) fn turn(&mut self, completions: &mut Vec<Completion>) {
        loop {
            let submission = self.ring.submission();
            let (queued, waits) = (submission.len(), submission.taskrun() || submission.cq_overflow());
            drop(submission);
            if queued > 0 || waits {
                self.enter(queued);
            }
            self.take(completions);
            // The kernel keeps completions that did not fit into the queue and delivers them at once.
            if !self.ring.submission().cq_overflow() {
                return;
            }
        }
    }

    /// As [`Ring::turn`], but waits up to `limit` for a completion. False if there was none.
    fn wait(&mut self, completions: &mut Vec<Completion>, limit: Duration) -> bool {
        let limit = types::Timespec::from(limit);
        let before = completions.len();
        // Errors are treated as a passed time limit.
        let _ = self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&limit));
        self.take(completions);
        completions.len() > before
    }

    /// Cancels every operation and waits for their ends, up to `patience` between two completions. A thread other than
    /// the polling one can only take operations that have ended already.
    pub(super) fn cancel_everything(&mut self, completions: &mut Vec<Completion>, patience: Duration) {
        self.take(completions);
        if self.in_flight == 0 {
            return;
        }
        let everything = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build();
        // SAFETY: names no memory.
        unsafe { self.push(everything, Token::new(Operation::Cancel, 0)) };
        while self.in_flight > 0 && self.wait(completions, patience) {}
    }

    /// Appends the available completions, without a system call.
    fn take(&mut self, completions: &mut Vec<Completion>) {
        let mut entries = [const { MaybeUninit::<cqueue::Entry>::uninit() }; 64];
        loop {
            let filled = self.ring.completion().fill(&mut entries).len();
            for entry in &entries[..filled] {
                // SAFETY: the first `filled` ones were written just now.
                let completion = understand(unsafe { entry.assume_init_ref() });
                self.in_flight -= usize::from(!completion.more);
                completions.push(completion);
            }
            if filled < entries.len() {
                return;
            }
        }
    }

    /// Makes the system call, without waiting.
    fn enter(&mut self, queued: usize) {
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: the memory that the operations name stays, by the promise of the code that pushed them; no argument
        // is given.
        let entered = unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued as u32, 0, flags, None) };
        if entered.is_ok_and(|entered| entered == queued) {
            self.gather.clear();
        }
        // Otherwise some or all operations are still queued and are handed over next time.
    }

    /// Becomes readable, after [`Ring::listen`], when [`Ring::turn`] has something to do.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Lets the kernel ring the bell from now on. False if there is something to do already.
    pub(super) fn listen(&mut self) -> bool {
        if !self.listening {
            wait::silence(self.bell.as_fd());
            self.ring.completion().enable_eventfd();
            self.listening = true;
            // The kernel first publishes work and then checks whether to ring; here the order is reversed, so that at
            // least one side notices.
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        }
        !self.has_work()
    }

    /// Stops watching the bell: an unneeded bell costs time.
    pub(super) fn stop_listening(&mut self) {
        if self.listening {
            self.ring.completion().disable_eventfd();
            self.listening = false;
        }
    }
}

/// # Safety
/// The buffers' memory must stay until the ring has nothing in flight.
unsafe fn register(ring: &IoUring, buffers: &BufferRing, group: u16) -> io::Result<()> {
    let (address, entries) = buffers.memory();
    // SAFETY: a page of that many entries, which stays (the caller's promise).
    unsafe { ring.submitter().register_buf_ring_with_flags(address, entries, group, types::IOU_PBUF_RING_INC as u16) }
}

/// The operations used here, by the kernel's names. Zero-copy sends of messages are newer than repeated receiving and
/// accepting, which use the same operations as their single forms.
const USED: [(&str, u8); 6] = [
    ("ACCEPT", opcode::AcceptMulti::CODE),
    ("POLL_ADD", opcode::PollAdd::CODE),
    ("RECV", opcode::RecvMulti::CODE),
    ("SENDMSG", opcode::SendMsg::CODE),
    ("SENDMSG_ZC", opcode::SendMsgZc::CODE),
    ("ASYNC_CANCEL", opcode::AsyncCancel2::CODE),
];

/// The features of io_uring that are used here, and whether the kernel has them.
///
/// # Errors
/// If no ring can be made at all.
pub(crate) fn used() -> io::Result<Vec<(&'static str, bool)>> {
    let ring = IoUring::new(2).map_err(no_ring)?;
    let mut used = operations(&ring)?;
    used.push(("PBUF_RING_INC", has_buffers(&ring).is_ok()));
    Ok(used)
}

/// Checks whether the kernel has every feature that is used here.
fn probe(ring: &IoUring) -> io::Result<()> {
    if operations(ring)?.iter().any(|(_, is_there)| !is_there) {
        return Err(too_old());
    }
    has_buffers(ring)
}

fn operations(ring: &IoUring) -> io::Result<Vec<(&'static str, bool)>> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    Ok(USED.into_iter().map(|(name, code)| (name, probe.is_supported(code))).collect())
}

/// Tries buffers that are filled incrementally.
fn has_buffers(ring: &IoUring) -> io::Result<()> {
    let buffers = BufferRing::new()?;
    // SAFETY: nothing is ever in flight before the group is unregistered, a line below.
    unsafe { register(ring, &buffers, 0) }.map_err(|_| too_old())?;
    ring.submitter().unregister_buf_ring(0)
}

fn too_old() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring lacks buffers that are filled bit by bit (6.12)")
}

fn no_ring(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::NOSYS) => io::Error::new(io::ErrorKind::Unsupported, "this kernel has no io_uring"),
        Some(Errno::PERM | Errno::ACCESS) => {
            io::Error::new(io::ErrorKind::PermissionDenied, "io_uring is switched off here (kernel.io_uring_disabled)")
        }
        Some(Errno::INVAL) => too_old(),
        _ => error,
    }
}

fn file(descriptor: &OwnedFd) -> types::Fd {
    types::Fd(descriptor.as_raw_fd())
}

fn understand(entry: &cqueue::Entry) -> Completion {
    let result = entry.result();
    Completion {
        token: Token::decode(entry.user_data()),
        result: usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result)),
        more: cqueue::more(entry.flags()),
        notification: cqueue::notif(entry.flags()),
    }
}

/// Maximum number of blocks of one endpoint that the kernel has; a power of two.
pub(super) const MOST_POSTED: usize = 32;

/// The list of buffers that the kernel reads, in a separate page.
pub(super) struct BufferRing {
    entries: NonNull<BufRingEntry>,
    layout: Layout,
    /// Index of the next entry; the kernel reads all entries before it.
    tail: u16,
}

// SAFETY: the page has one owner here; the kernel looks at it only while the polling thread is in a system call.
unsafe impl Send for BufferRing {}

impl BufferRing {
    pub(super) fn new() -> io::Result<Self> {
        let page = rustix::param::page_size();
        let layout = Layout::from_size_align(page, page).map_err(io::Error::other)?;
        // SAFETY: the size is that of a page, which is not 0.
        let memory = unsafe { alloc_zeroed(layout) };
        let entries = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { entries, layout, tail: 0 })
    }

    /// Address and number of entries, for the kernel.
    pub(super) fn memory(&self) -> (u64, u16) {
        (self.entries.as_ptr() as u64, MOST_POSTED as u16)
    }

    /// Writes the next entry; the kernel sees it with the next [`BufferRing::publish`].
    fn put(&mut self, block: &Posted) {
        let place = self.tail as usize % MOST_POSTED;
        // SAFETY: within the page, which has room for all entries. The kernel reads and writes entries only during the
        // polling thread's system calls, so nothing else refers to this one.
        let entry = unsafe { self.entries.add(place).as_mut() };
        entry.set_addr(block.address().as_ptr() as u64);
        entry.set_len(block.capacity() as u32);
        entry.set_bid(place as u16);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Takes back the last `entries` entries.
    fn retract(&mut self, entries: usize) {
        self.tail = self.tail.wrapping_sub(entries as u16);
    }

    /// Publishes the entries to the kernel.
    fn publish(&mut self) {
        // SAFETY: the first entry was zeroed; its last two bytes are the ring's tail, aligned as such, and are
        // accessed here alone.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; the owner has made sure that the kernel no longer uses it.
        unsafe { dealloc(self.entries.as_ptr().cast(), self.layout) };
    }
}

/// The blocks of one endpoint: blocks that the kernel fills, and filled bytes that have not been taken yet.
///
/// ```text
///  full: slices ─► posted: the first one partly filled, some of it not yet split off ─► others, empty
/// ```
pub(super) struct Buffers {
    ring: BufferRing,
    /// In the order in which the kernel fills them.
    posted: VecDeque<Posted>,
    /// Number of bytes that were received into the first block and not taken.
    fresh: usize,
    /// Received slices that were not taken, before the fresh bytes.
    full: VecDeque<Slice>,
    /// Blocks filled since the last [`Buffers::take_turnover`].
    turnover: usize,
}

impl Buffers {
    pub(super) fn new() -> io::Result<Self> {
        let (posted, full) = (VecDeque::with_capacity(MOST_POSTED), VecDeque::with_capacity(2 * MOST_POSTED));
        Ok(Self { ring: BufferRing::new()?, posted, fresh: 0, full, turnover: 0 })
    }

    pub(super) const fn ring(&self) -> &BufferRing {
        &self.ring
    }

    /// Number of bytes that the kernel has room for.
    pub(super) fn room(&self) -> usize {
        self.posted.iter().map(Posted::capacity).sum::<usize>() - self.fresh
    }

    /// Number of blocks that the kernel has.
    pub(super) fn posted(&self) -> usize {
        self.posted.len()
    }

    /// Gives the kernel a block.
    pub(super) fn post(&mut self, loan: Loan) {
        let block = loan.post();
        self.ring.put(&block);
        self.ring.publish();
        self.posted.push_back(block);
    }

    /// Counts bytes that the kernel has received. False if the number is impossible.
    pub(super) fn received(&mut self, bytes: usize) -> bool {
        let Some(first) = self.posted.front_mut() else { return false };
        let filled = self.fresh + bytes;
        if filled > first.capacity() {
            return false;
        }
        self.fresh = filled;
        if filled == first.capacity() {
            self.turnover += 1;
            self.split(filled);
            self.reclaim_first();
        }
        true
    }

    /// Moves fresh bytes to `full`.
    fn split(&mut self, bytes: usize) {
        let Some(first) = self.posted.front_mut() else { return };
        // SAFETY: the kernel reported that it has received this many bytes, and only ever continues behind them.
        self.full.extend(unsafe { first.split_filled(bytes) });
        self.fresh -= bytes;
    }

    /// Returns the first block, which the kernel does not fill any further. False if no block is posted.
    fn reclaim_first(&mut self) -> bool {
        // SAFETY: either the block is full, so that the kernel is behind it, or it was retracted: the kernel looks up
        // the next buffer again in every system call, and this thread is in none.
        self.posted.pop_front().map(|block| drop(unsafe { block.reclaim(0) })).is_some()
    }

    /// Whether there are received bytes that were not taken.
    pub(super) fn has_some(&self) -> bool {
        self.fresh > 0 || !self.full.is_empty()
    }

    /// Takes the next received bytes, at most `most`.
    pub(super) fn take(&mut self, most: usize) -> Option<Slice> {
        if self.full.is_empty() && self.fresh > 0 {
            self.split(self.fresh.min(most));
        }
        match self.full.front_mut() {
            Some(first) if first.len() > most => Some(first.split_to(most)),
            _ => self.full.pop_front(),
        }
    }

    /// Number of blocks filled since the last call.
    pub(super) fn take_turnover(&mut self) -> usize {
        core::mem::take(&mut self.turnover)
    }

    /// Returns every empty block except the first one to the pool; returns their number.
    pub(super) fn give_back_surplus(&mut self) -> usize {
        let surplus = self.posted.len().saturating_sub(1);
        self.ring.retract(surplus);
        self.ring.publish();
        for _ in 0..surplus {
            // SAFETY: retracted, as in `reclaim_first`.
            drop(self.posted.pop_back().map(|block| unsafe { block.reclaim(0) }));
        }
        surplus
    }

    /// Ends the list. If the kernel may still use the blocks, they and the list are leaked.
    pub(super) fn end(mut self, idle: bool) {
        if idle {
            self.give_back();
        } else {
            core::mem::forget(self);
        }
    }

    /// Takes every block back from the kernel and returns it to its pool; received bytes can still be taken. Must not
    /// be called while there are completions that were not counted.
    pub(super) fn release(&mut self) {
        self.ring.retract(self.posted.len());
        self.ring.publish();
        self.split(self.fresh);
        while self.reclaim_first() {}
        self.turnover = 0;
    }

    /// Returns every block to its pool, and drops received bytes that were not taken.
    pub(super) fn give_back(&mut self) {
        self.release();
        self.full.clear();
    }
}
