//! The two queues that are shared with the kernel: operations go in, completions come out.
//!
//! Operations are gathered and handed over by one system call a poll, and that call is also the only time when the
//! kernel works on them: with *deferred task work* it neither reads nor writes our memory, nor completes anything,
//! while this thread is elsewhere. Buffers can therefore be taken back between two calls without asking.
//!
//! [`Buffers`] are the blocks of one endpoint that the kernel fills, one after the other, and hands on bit by bit.
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

/// Operations that are handed over at once, at most.
const SUBMISSIONS: u32 = 512;
/// Completions for which there is room before the kernel has to keep them itself.
const COMPLETIONS: u32 = 8192;

/// What an operation does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    /// Takes every connection that comes to a listener.
    Accept,
    /// Completes when a socket is connected, or cannot be.
    Connect,
    /// Completes when there is something to receive, and receives nothing.
    Watch,
    /// Receives into provided buffers again and again.
    Receive,
    /// Throws away what comes, once.
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

/// What the kernel says of an operation.
#[derive(Copy, Clone, Debug)]
pub(super) struct Completion {
    pub(super) token: Token,
    pub(super) result: Result<usize, Errno>,
    /// Whether another completion of the same operation follows.
    pub(super) more: bool,
    /// The kernel no longer needs the bytes of a send that copied nothing; `result` says nothing then.
    pub(super) notification: bool,
}

/// The ring, and what it still needs of our memory.
pub(in crate::tcp) struct Ring {
    ring: IoUring,
    /// Rings while a thread sleeps and there is something to complete.
    bell: OwnedFd,
    /// Whether the kernel rings it.
    listening: bool,
    /// The thread that polls: the kernel works for no other one.
    issuer: Option<ThreadId>,
    /// Operations whose last completion has not been taken.
    in_flight: usize,
    gather: Gather,
}

impl Ring {
    /// A ring that belongs to the thread that uses it first.
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

    /// Makes the calling thread the one for which the kernel works; says whether it is.
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

    /// Operations whose last completion has not been taken.
    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Lets the kernel take buffers from there for the group.
    pub(super) fn register(&mut self, buffers: &BufferRing, group: u16) -> io::Result<()> {
        // SAFETY: the owner of both gives the buffers' memory back only when the ring has nothing in flight, and
        // leaks it otherwise.
        unsafe { register(&self.ring, buffers, group) }
    }

    /// Takes every connection that comes to the listener, until a completion says that none follows.
    pub(super) fn accept(&mut self, listener: &OwnedFd, index: u32) -> bool {
        let entry = opcode::AcceptMulti::new(file(listener)).flags(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK).build();
        // SAFETY: names no memory.
        unsafe { self.push(entry, Token::new(Operation::Accept, index)) }
    }

    /// Completes when the socket is connected, or cannot be.
    pub(super) fn connect(&mut self, socket: &OwnedFd, index: u32) -> bool {
        self.watch(socket, libc::POLLOUT, Token::new(Operation::Connect, index))
    }

    /// Completes when there is something to receive, or the end.
    pub(super) fn await_bytes(&mut self, socket: &OwnedFd, index: u32) -> bool {
        self.watch(socket, libc::POLLIN | libc::POLLRDHUP, Token::new(Operation::Watch, index))
    }

    fn watch(&mut self, socket: &OwnedFd, what: i16, token: Token) -> bool {
        let entry = opcode::PollAdd::new(file(socket), what as u32).build();
        // SAFETY: names no memory.
        unsafe { self.push(entry, token) }
    }

    /// Receives into the buffers of the group again and again.
    pub(super) fn receive(&mut self, socket: &OwnedFd, group: u16, index: u32) -> bool {
        let entry = opcode::RecvMulti::new(file(socket), group).build();
        // SAFETY: names no memory but the group's, which holds posted blocks alone.
        unsafe { self.push(entry, Token::new(Operation::Receive, index)) }
    }

    pub(super) fn discard(&mut self, socket: &OwnedFd, index: u32) -> bool {
        /// Bytes thrown away by one operation.
        const MOST: u32 = 1 << 20;
        // TCP throws the bytes away without copying them anywhere, so that there need be no memory.
        let entry = opcode::Recv::new(file(socket), std::ptr::null_mut(), MOST).flags(libc::MSG_TRUNC).build();
        // SAFETY: the kernel writes nothing there, and could not, for no memory is mapped at the null address.
        unsafe { self.push(entry, Token::new(Operation::Discard, index)) }
    }

    /// Sends the slices, as many as one operation takes, with or without the kernel's copying them; returns how many
    /// bytes those are, 0 if there is no room for the operation now.
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
        // SAFETY: the list of slices stays until the operation is handed over, and is not needed afterwards; the
        // slices stay until the last completion, says the caller.
        if unsafe { self.push(entry, Token::new(Operation::Send, index)) } { bytes } else { 0 }
    }

    /// Ends the operation early: it completes like any other one, perhaps with [`Errno::CANCELED`].
    pub(super) fn cancel(&mut self, token: Token) -> bool {
        // SAFETY: names no memory.
        unsafe { self.push(opcode::AsyncCancel::new(token.encode()).build(), Token::new(Operation::Cancel, 0)) }
    }

    /// Queues an operation; false if there is no room before the next [`Ring::turn`].
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

    /// Whether [`Ring::turn`] would do something.
    pub(super) fn has_work(&mut self) -> bool {
        let submission = self.ring.submission();
        let has = !submission.is_empty() || submission.taskrun() || submission.cq_overflow();
        drop(submission);
        has || !self.ring.completion().is_empty()
    }

    /// Hands the queued operations over, lets the kernel work, and appends every completion that there is. No system
    /// call if there is nothing to do.
    pub(super) fn turn(&mut self, completions: &mut Vec<Completion>) {
        loop {
            let submission = self.ring.submission();
            let (queued, waits) = (submission.len(), submission.taskrun() || submission.cq_overflow());
            drop(submission);
            if queued > 0 || waits {
                self.enter(queued);
            }
            self.take(completions);
            // What did not fit into the completion queue is kept by the kernel and comes at once.
            if !self.ring.submission().cq_overflow() {
                return;
            }
        }
    }

    /// As [`Ring::turn`], but waits for a completion, at most so long; false if there was none.
    fn wait(&mut self, completions: &mut Vec<Completion>, limit: Duration) -> bool {
        let limit = types::Timespec::from(limit);
        let before = completions.len();
        // Errors are a time that is over.
        let _ = self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&limit));
        self.take(completions);
        completions.len() > before
    }

    /// Ends every operation and waits until it has, at most so long between two completions. Another thread than the
    /// one that polled can only take what has ended already.
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

    /// Appends the completions that have come, without a system call.
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

    /// The system call, without waiting.
    fn enter(&mut self, queued: usize) {
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: what the operations name stays, by the promise of the code that pushed them; no argument is given.
        let entered = unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued as u32, 0, flags, None) };
        if entered.is_ok_and(|entered| entered == queued) {
            self.gather.clear();
        }
        // Otherwise the operations, or some, are still queued: they are handed over next time.
    }

    /// Becomes readable, after [`Ring::listen`], when [`Ring::turn`] has something to do.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Lets the kernel ring the bell from now on; false if there is something to do already.
    pub(super) fn listen(&mut self) -> bool {
        if !self.listening {
            wait::silence(self.bell.as_fd());
            self.ring.completion().enable_eventfd();
            self.listening = true;
            // The kernel first says that there is work and then looks whether it is to ring; here it is the other way
            // round, so that one of both notices.
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        }
        !self.has_work()
    }

    /// Stops watching the bell: a bell that is not heard costs time.
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
    // SAFETY: a page of that many entries, which stays, says the caller.
    unsafe { ring.submitter().register_buf_ring_with_flags(address, entries, group, types::IOU_PBUF_RING_INC as u16) }
}

/// The operations that are used here, by the kernel's names. Zero-copy sends of messages came after receiving and accepting
/// again and again, which are asked for with the same operations as once.
const USED: [(&str, u8); 6] = [
    ("ACCEPT", opcode::AcceptMulti::CODE),
    ("POLL_ADD", opcode::PollAdd::CODE),
    ("RECV", opcode::RecvMulti::CODE),
    ("SENDMSG", opcode::SendMsg::CODE),
    ("SENDMSG_ZC", opcode::SendMsgZc::CODE),
    ("ASYNC_CANCEL", opcode::AsyncCancel2::CODE),
];

/// What of io_uring is used here, and whether the kernel has it.
///
/// # Errors
/// Where no ring can be made at all.
pub(crate) fn used() -> io::Result<Vec<(&'static str, bool)>> {
    let ring = IoUring::new(2).map_err(no_ring)?;
    let mut used = operations(&ring)?;
    used.push(("PBUF_RING_INC", has_buffers(&ring).is_ok()));
    Ok(used)
}

/// Looks whether the kernel has everything that is used here.
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

/// Tries buffers that are filled bit by bit.
fn has_buffers(ring: &IoUring) -> io::Result<()> {
    let buffers = BufferRing::new()?;
    // SAFETY: nothing is ever in flight before the group is given up again, a line below.
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

/// Blocks that the kernel can have of one endpoint; a power of two.
pub(super) const MOST_POSTED: usize = 32;

/// The list of buffers that the kernel reads, in a page of its own.
pub(super) struct BufferRing {
    entries: NonNull<BufRingEntry>,
    layout: Layout,
    /// Where the next entry goes; the kernel reads everything before it.
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

    /// Takes back the last entries that were put.
    fn retract(&mut self, entries: usize) {
        self.tail = self.tail.wrapping_sub(entries as u16);
    }

    /// Shows the kernel which entries there are.
    fn publish(&mut self) {
        // SAFETY: the first entry was zeroed; its last two bytes are the ring's tail, aligned as such, and are
        // accessed here alone.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; the owner has made sure that the kernel is done with it.
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
    /// Bytes that were received into the first one and not taken.
    fresh: usize,
    /// Received and not taken, before what is fresh.
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

    /// Bytes that the kernel has room for.
    pub(super) fn room(&self) -> usize {
        self.posted.iter().map(Posted::capacity).sum::<usize>() - self.fresh
    }

    /// Blocks that the kernel has.
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

    /// Counts bytes that the kernel has received; false if it cannot have.
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
        // SAFETY: the kernel said that it has received so many bytes, and only ever goes on behind them.
        self.full.extend(unsafe { first.split_filled(bytes) });
        self.fresh -= bytes;
    }

    /// Gives back the first block, which the kernel does not fill any further; false if no block is posted.
    fn reclaim_first(&mut self) -> bool {
        // SAFETY: either it is full, so that the kernel is behind it, or it was retracted: the kernel looks for the
        // next buffer anew in every system call, and this thread is in none.
        self.posted.pop_front().map(|block| drop(unsafe { block.reclaim(0) })).is_some()
    }

    /// Whether something was received that was not taken.
    pub(super) fn has_some(&self) -> bool {
        self.fresh > 0 || !self.full.is_empty()
    }

    /// The next bytes that were received, at most so many.
    pub(super) fn take(&mut self, most: usize) -> Option<Slice> {
        if self.full.is_empty() && self.fresh > 0 {
            self.split(self.fresh.min(most));
        }
        match self.full.front_mut() {
            Some(first) if first.len() > most => Some(first.split_to(most)),
            _ => self.full.pop_front(),
        }
    }

    /// How many blocks were filled since the last time.
    pub(super) fn take_turnover(&mut self) -> usize {
        core::mem::take(&mut self.turnover)
    }

    /// Gives back to the pool every block into which nothing was received yet but the first one; returns how many.
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

    /// The end. If the kernel may still use the blocks, they and the list of them stay for ever.
    pub(super) fn end(mut self, idle: bool) {
        if idle {
            self.give_back();
        } else {
            core::mem::forget(self);
        }
    }

    /// Takes every block from the kernel and gives it back to its pool; what was received stays to be taken. Must not be
    /// called while there are completions that were not counted.
    pub(super) fn release(&mut self) {
        self.ring.retract(self.posted.len());
        self.ring.publish();
        self.split(self.fresh);
        while self.reclaim_first() {}
        self.turnover = 0;
    }

    /// Gives every block back to its pool, and drops what was received and not taken.
    pub(super) fn give_back(&mut self) {
        self.release();
        self.full.clear();
    }
}
