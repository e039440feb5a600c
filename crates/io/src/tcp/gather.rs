//! Lists of slices that one system call sends, or that the kernel reads when it takes over sends.
#![allow(unsafe_code)]

use std::io::IoSlice;

use libc::{iovec, msghdr};
use ropewalk_memory::Slice;

/// Number of slices in one system call: the kernel's limit (`IOV_MAX`).
const MOST: usize = 1024;

/// A list that is made once for all sends of a dispatcher. A full list has 16 KiB: on the stack it would be copied
/// whenever it is collected or moved. Such a copy took a sixth of a sending thread's time (`tests/suites/stack.rs`
/// checks that none returns).
pub(super) struct Gathered {
    /// Valid only while [`Gathered::list`] is borrowed.
    slices: Vec<IoSlice<'static>>,
}

/// Moving it does not move the list.
const _: () = assert!(size_of::<Gathered>() <= 32);

impl Gathered {
    pub(super) fn new() -> Self {
        Self { slices: Vec::with_capacity(MOST) }
    }

    /// Lists as many of the first slices as one call takes; also returns their number of bytes.
    pub(super) fn list<'a>(&'a mut self, slices: impl Iterator<Item = &'a Slice>) -> (&'a [IoSlice<'a>], usize) {
        self.slices.clear();
        // SAFETY: the list is empty, and types that differ only in a lifetime have the same layout. The entries added
        // here are only visible through this borrow, which ends before the slices that they point to: the next user
        // starts with an empty list.
        let list = unsafe { &mut *(&raw mut self.slices).cast::<Vec<IoSlice<'a>>>() };
        let mut bytes = 0;
        list.extend(slices.take(MOST).map(|slice| {
            bytes += slice.len();
            IoSlice::new(slice)
        }));
        (list, bytes)
    }
}

/// Number of slices in one operation: the kernel's limit (`IOV_MAX`).
const GATHERED: usize = 1024;
/// Number of slices and messages between two system calls.
const SLICES: usize = 8 * GATHERED;
const MESSAGES: usize = 512;

/// Lists that stay where they are until they are cleared: none ever grows beyond its initial room.
pub(super) struct Gather {
    slices: Vec<iovec>,
    messages: Vec<msghdr>,
}

// SAFETY: the pointers are only handed to the kernel; no other code follows them.
unsafe impl Send for Gather {}

impl Gather {
    pub(super) fn new() -> Self {
        Self { slices: Vec::with_capacity(SLICES), messages: Vec::with_capacity(MESSAGES) }
    }

    /// Clears all lists, after the kernel has read them.
    pub(super) fn clear(&mut self) {
        self.slices.clear();
        self.messages.clear();
    }

    /// Makes a message of the first slices; also returns its number of bytes. `None` if there is no room.
    pub(super) fn message<'a>(&mut self, slices: impl Iterator<Item = &'a Slice>) -> Option<(*const msghdr, usize)> {
        if self.messages.len() == MESSAGES || self.slices.len() + GATHERED > SLICES {
            return None;
        }
        let (first, mut bytes) = (self.slices.len(), 0);
        self.slices.extend(slices.take(GATHERED).map(|slice| {
            bytes += slice.len();
            iovec { iov_base: slice.as_ptr().cast_mut().cast(), iov_len: slice.len() }
        }));
        let gathered = &mut self.slices[first..];
        self.messages.push(msghdr {
            msg_name: std::ptr::null_mut(),
            msg_namelen: 0,
            msg_iov: gathered.as_mut_ptr(),
            msg_iovlen: gathered.len() as _,
            msg_control: std::ptr::null_mut(),
            msg_controllen: 0,
            msg_flags: 0,
        });
        self.messages.last().map(|message| (std::ptr::from_ref(message), bytes))
    }
}

#[cfg(test)]
mod tests {

    use ropewalk_memory::{Owner, Pool, PoolConfig};

    use super::*;

    #[test]
    fn every_send_has_its_own_slices_in_the_same_place() {
        let mut pool = Pool::new(PoolConfig::heap("slices", 2 * MOST, 1)).expect("memory for a test");
        let mut loan = pool.loan(Owner::SHARED).expect("the pool's only block");
        let mut slices = Vec::new();
        while let Some(slice) = loan.append(&[slices.len() as u8]) {
            slices.push(slice);
        }
        let mut gathered = Gathered::new();
        let (list, bytes) = gathered.list(slices.iter());
        assert_eq!((list.len(), bytes), (MOST, MOST), "as many as one call takes");
        let place = list.as_ptr().addr();
        let (list, bytes) = gathered.list(slices[5..7].iter());
        assert_eq!((list.iter().map(|slice| slice[0]).collect::<Vec<_>>(), bytes), (vec![5, 6], 2));
        assert_eq!(list.as_ptr().addr(), place, "nothing is allocated or moved");
    }
}
