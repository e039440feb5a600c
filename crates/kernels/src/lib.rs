//! Checksums at the speed of memory, behind safe functions over byte slices.
//!
//! - [`Crc16`]: the CRC-16 of CMS S-LINK64 fragments (FED trailers), over 64-bit words, most significant byte first;
//! - [`crc32c()`]: the CRC-32C of run-file records;
//! - [`copy()`]: a copy whose speed does not depend on the addresses of the two buffers;
//! - [`short_copy()`]: a copy of many short consecutive pieces.
//!
//! Both checksums continue where an earlier piece ended, so that chains of slices need no copy. The fastest kernel that
//! the processor supports is chosen at run time; each has a scalar twin, and property tests compare all of them with a
//! bitwise calculation. This crate is an island of unsafe code: only loads, stores and prefetches, and calls of
//! functions whose processor features were detected.

mod copy;
mod crc16;
mod crc32c;
pub mod felix;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use copy::{copy, short_copy};
pub use crc16::{Crc16, Crc16Kernel, crc16_kernels, crc16_of_bits, crc16_of_change};
pub use crc32c::{Crc32cKernel, crc32c, crc32c_kernels};
