//! What the processor is told in advance.
#![allow(unsafe_code)]

/// Has the line that holds the byte at `offset` fetched, where there is such a byte. Nothing is read.
#[inline]
pub(crate) fn prefetch(bytes: &[u8], offset: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(byte) = bytes.get(offset) {
        // SAFETY: every processor of this kind has the instruction, and the address is that of a byte that exists.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(core::ptr::from_ref(byte).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, offset);
}
