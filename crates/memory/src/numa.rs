//! NUMA: memory is bound to a node before it is touched, and afterwards asked where it lies.
//!
//! The two calls have no safe wrapper; they are the whole reason for `libc` in this crate.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use std::io;

/// Nodes that a mask can name: as many as the kernel can have.
const NODES: usize = 1024;
const WORD: usize = usize::BITS as usize;

/// Pages asked about in one call.
const BATCH: usize = 1024;

/// Binds the memory to `node`: pages touched from now on come from there or not at all.
///
/// # Errors
/// `InvalidInput` if there is no such node.
pub(crate) fn bind(base: NonNull<u8>, bytes: usize, node: u16) -> io::Result<()> {
    let node = node as usize;
    let mut mask = [0usize; NODES / WORD];
    *mask.get_mut(node / WORD).ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node % WORD);
    // SAFETY: reads the mask, whose size is given (the kernel takes one bit less than it is told), and
    // changes only where pages of the range will come from.
    let result =
        unsafe { libc::syscall(libc::SYS_mbind, base.as_ptr(), bytes, libc::MPOL_BIND, mask.as_ptr(), NODES + 1, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How many pages of `step` bytes do not lie on `node`, untouched ones included.
pub(crate) fn pages_elsewhere(base: NonNull<u8>, bytes: usize, step: usize, node: u16) -> io::Result<usize> {
    let mut elsewhere = 0;
    let mut addresses = [core::ptr::null::<u8>(); BATCH];
    let mut nodes = [0i32; BATCH];
    for start in (0..bytes).step_by(step * BATCH) {
        let count = (bytes - start).div_ceil(step).min(BATCH);
        for (index, address) in addresses[..count].iter_mut().enumerate() {
            *address = base.as_ptr().wrapping_add(start + index * step);
        }
        // SAFETY: without target nodes the call moves nothing; it reads `count` addresses and writes as many
        // numbers, for which both arrays have room.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                count,
                addresses.as_ptr(),
                core::ptr::null::<i32>(),
                nodes.as_mut_ptr(),
                0,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        elsewhere += nodes[..count].iter().filter(|&&found| found != i32::from(node)).count();
    }
    Ok(elsewhere)
}
