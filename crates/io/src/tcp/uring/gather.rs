//! What the kernel reads when sends are handed over: lists of slices.
#![allow(unsafe_code)]

use libc::{iovec, msghdr};
use ropewalk_memory::Slice;

/// Slices in one operation: the kernel's limit (`IOV_MAX`).
const GATHERED: usize = 1024;
/// Slices and messages between two system calls.
const SLICES: usize = 8 * GATHERED;
const MESSAGES: usize = 512;

/// Lists that stay where they are until they are cleared: none ever grows beyond the room that it has from the start.
pub(super) struct Gather {
    slices: Vec<iovec>,
    messages: Vec<msghdr>,
}

// SAFETY: the pointers are only handed to the kernel; nobody else follows them.
unsafe impl Send for Gather {}

impl Gather {
    pub(super) fn new() -> Self {
        Self { slices: Vec::with_capacity(SLICES), messages: Vec::with_capacity(MESSAGES) }
    }

    /// Forgets everything: the kernel has read it.
    pub(super) fn clear(&mut self) {
        self.slices.clear();
        self.messages.clear();
    }

    /// A message of the first slices, and how many bytes those are; `None` if there is no room.
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
