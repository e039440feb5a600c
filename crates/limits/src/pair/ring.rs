//! The bare pair over io_uring.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::io::Errno;
use rustix::net::Shutdown;

use super::Stopwatch;
use ropewalk_doctor::memory::PlacedBytes;

/// Buffers that the kernel may fill; a power of two.
const BUFFERS: u16 = 16;
/// Bytes of each.
const BUFFER: usize = 256 << 10;
/// The only group of buffers.
const GROUP: u16 = 0;
/// Send everything, or fail.
const WHOLE: i32 = 0x100;
/// Do not raise a signal when the peer is gone.
const NO_SIGNAL: i32 = 0x4000;

fn new_ring() -> io::Result<IoUring> {
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(8).map_err(|error| match Errno::from_io_error(
        &error,
    ) {
        Some(Errno::NOSYS | Errno::INVAL) => io::Error::new(io::ErrorKind::Unsupported, error),
        _ => error,
    })
}

/// Sends until the flag is set; returns the number of bytes.
pub(super) fn send(socket: &OwnedFd, message: PlacedBytes, stop: &AtomicBool) -> io::Result<u64> {
    let mut ring = new_ring()?;
    let sent = send_from(socket, &mut ring, &message, stop);
    if sent.is_err() {
        // The operation may still be pending, and would read memory that another owner has by then.
        std::mem::forget(message);
    }
    sent
}

fn send_from(socket: &OwnedFd, ring: &mut IoUring, buffer: &[u8], stop: &AtomicBool) -> io::Result<u64> {
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut place = 0;
        while place < buffer.len() {
            let rest = &buffer[place..];
            let entry = opcode::Send::new(types::Fd(socket.as_raw_fd()), rest.as_ptr(), rest.len() as u32)
                .flags(WHOLE | NO_SIGNAL)
                .build();
            // SAFETY: the caller keeps the buffer until the operation is complete, and forever on an error.
            unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
            place += outcome(&next(ring)?)? as usize;
        }
        sent += buffer.len() as u64;
    }
    rustix::net::shutdown(socket, Shutdown::Write)?;
    Ok(sent)
}

/// Submits what is queued and waits for the next completion.
fn next(ring: &mut IoUring) -> io::Result<cqueue::Entry> {
    loop {
        if let Some(completion) = ring.completion().next() {
            return Ok(completion);
        }
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The result of an operation: bytes, or an error.
fn outcome(completion: &cqueue::Entry) -> io::Result<u32> {
    let result = completion.result();
    u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

/// Receives until the stream ends; returns the number of bytes.
pub(super) fn receive(socket: &OwnedFd, stopwatch: &mut Stopwatch<'_>) -> io::Result<u64> {
    let (mut ring, mut buffers) = (new_ring()?, Buffers::new()?);
    // SAFETY: the memory is that of `buffers`, which stays until the kernel is done with it: see below.
    unsafe { ring.submitter().register_buf_ring_with_flags(buffers.entries.as_ptr() as u64, BUFFERS, GROUP, 0) }?;
    (0..BUFFERS).for_each(|buffer| buffers.put(buffer));
    buffers.publish();
    let received = receive_into(socket, &mut ring, &mut buffers, stopwatch);
    if received.is_err() {
        // The operation may still be pending, and would write to memory that another owner has by then.
        std::mem::forget(buffers);
    }
    received
}

/// Succeeds only when the operation has ended with the stream.
fn receive_into(
    socket: &OwnedFd,
    ring: &mut IoUring,
    buffers: &mut Buffers,
    stopwatch: &mut Stopwatch<'_>,
) -> io::Result<u64> {
    let (mut received, mut armed) = (0u64, false);
    loop {
        if !armed {
            let entry = opcode::RecvMulti::new(types::Fd(socket.as_raw_fd()), GROUP).build();
            // SAFETY: names no memory but the group's, which stays until the operation has ended.
            unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
        }
        let completion = next(ring)?;
        armed = cqueue::more(completion.flags());
        match outcome(&completion) {
            Ok(0) => return Ok(received),
            Ok(bytes) => received += u64::from(bytes),
            // Every buffer was full; all of them are back by now.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => {}
            Err(error) => return Err(error),
        }
        if let Some(buffer) = cqueue::buffer_select(completion.flags()) {
            buffers.put(buffer);
            buffers.publish();
        }
        stopwatch.look(received);
    }
}

/// Buffers for the kernel, and their list, which it reads.
struct Buffers {
    memory: Vec<u8>,
    entries: NonNull<BufRingEntry>,
    layout: Layout,
    tail: u16,
}

impl Buffers {
    fn new() -> io::Result<Self> {
        let page = rustix::param::page_size();
        let layout = Layout::from_size_align(page, page).map_err(io::Error::other)?;
        // SAFETY: the size is that of a page, which is not 0.
        let entries = NonNull::new(unsafe { alloc_zeroed(layout) }.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory: vec![0; BUFFER * BUFFERS as usize], entries, layout, tail: 0 })
    }

    /// Gives the kernel a buffer to fill; the kernel sees it after the next [`Buffers::publish`].
    fn put(&mut self, buffer: u16) {
        let address = self.memory[buffer as usize * BUFFER..].as_mut_ptr();
        // SAFETY: within the page, which holds more than `BUFFERS` entries of 16 bytes.
        let entry = unsafe { self.entries.add((self.tail % BUFFERS) as usize).as_mut() };
        entry.set_addr(address as u64);
        entry.set_len(BUFFER as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry, aligned as such, and is written here alone.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; the ring that knew of it is gone.
        unsafe { dealloc(self.entries.as_ptr().cast(), self.layout) };
    }
}
