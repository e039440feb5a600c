//! The headers that `recvmmsg` and `sendmmsg` take, made once and used for every batch.
#![allow(unsafe_code)]

use core::mem::zeroed;
use core::ptr::null_mut;

use super::address::{NOBODY, Room};

/// Room for one control message that holds a number.
#[repr(C, align(8))]
#[derive(Copy, Clone)]
pub(super) struct Control([u8; 32]);

/// Bytes of a control message with a 16-bit number, as the kernel counts them.
const SEGMENT_SPACE: usize = 24;
const _: () = {
    // SAFETY: arithmetic.
    assert!(unsafe { libc::CMSG_SPACE(size_of::<u16>() as u32) } as usize == SEGMENT_SPACE);
};

impl Control {
    pub(super) const EMPTY: Self = Self([0; 32]);

    /// A message that says how long the pieces of a coupled packet are; returns its length.
    pub(super) fn set_segment(&mut self, bytes: u16) -> usize {
        let header = libc::cmsghdr {
            // SAFETY: arithmetic.
            cmsg_len: unsafe { libc::CMSG_LEN(size_of::<u16>() as u32) } as usize,
            cmsg_level: libc::SOL_UDP,
            cmsg_type: libc::UDP_SEGMENT,
        };
        // SAFETY: 32 bytes, aligned to 8: room for a header of 16 and a number.
        unsafe {
            self.0.as_mut_ptr().cast::<libc::cmsghdr>().write(header);
            self.0.as_mut_ptr().add(size_of::<libc::cmsghdr>()).cast::<u16>().write(bytes);
        }
        SEGMENT_SPACE
    }

    /// How long the pieces of a packet are that the kernel has coupled, if the first message of `length` bytes says so.
    pub(super) fn segment(&self, length: usize) -> Option<usize> {
        if length < size_of::<libc::cmsghdr>() + size_of::<i32>() {
            return None;
        }
        // SAFETY: 32 bytes, aligned to 8; any bits are a header and a number.
        let (header, number) = unsafe {
            let start = self.0.as_ptr();
            (start.cast::<libc::cmsghdr>().read(), start.add(size_of::<libc::cmsghdr>()).cast::<i32>().read())
        };
        let is_segment = header.cmsg_level == libc::SOL_UDP && header.cmsg_type == libc::UDP_GRO;
        usize::try_from(number).ok().filter(|&bytes| is_segment && bytes > 0)
    }

    pub(super) const fn address(&mut self) -> *mut libc::c_void {
        self.0.as_mut_ptr().cast()
    }

    pub(super) const BYTES: usize = 32;
}

/// A header without anything.
pub(super) fn empty_header() -> libc::msghdr {
    // SAFETY: null pointers and numbers, for which zeros are good.
    unsafe { zeroed() }
}

/// Headers, addresses and pieces of a batch. The headers point into the others: nothing is moved after [`Batch::link`].
pub(super) struct Batch {
    pub(super) headers: Box<[libc::mmsghdr]>,
    pub(super) addresses: Box<[Room]>,
    pub(super) pieces: Box<[libc::iovec]>,
}

// SAFETY: the pointers lead to what the batch owns, or are set anew before each call.
unsafe impl Send for Batch {}

impl Batch {
    /// One address and one piece for each of `packets` packets.
    pub(super) fn new(packets: usize) -> Self {
        let piece = libc::iovec { iov_base: null_mut(), iov_len: 0 };
        let header = libc::mmsghdr { msg_hdr: empty_header(), msg_len: 0 };
        Self {
            headers: vec![header; packets].into(),
            addresses: vec![NOBODY; packets].into(),
            pieces: vec![piece; packets].into(),
        }
    }

    /// Prepares packet `index` to be received into `bytes` bytes at `start`.
    pub(super) fn prepare(&mut self, index: usize, start: *mut u8, bytes: usize) {
        self.pieces[index] = libc::iovec { iov_base: start.cast(), iov_len: bytes };
        let header = &mut self.headers[index].msg_hdr;
        header.msg_name = (&raw mut self.addresses[index]).cast();
        header.msg_namelen = size_of::<Room>() as libc::socklen_t;
        header.msg_iov = &raw mut self.pieces[index];
        header.msg_iovlen = 1;
        header.msg_flags = 0;
    }
}
