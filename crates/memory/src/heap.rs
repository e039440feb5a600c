//! The C library's heap.
#![allow(unsafe_code)]

/// Heaps that threads share.
#[cfg(target_env = "gnu")]
const ARENAS: libc::c_int = 2;

/// Has threads share a few heaps, where the user has not said how many there are. Otherwise the C library gives each thread one, up to
/// eight for each core: threads come and go with runs, what outlives them is scattered over all of these, and the process grows from run
/// to run. Threads do not allocate while data flow, so that none waits for another. To be called before the first thread is started.
pub fn share_heaps() {
    #[cfg(target_env = "gnu")]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() && std::env::var_os("GLIBC_TUNABLES").is_none() {
        // SAFETY: sets a number of the C library's own.
        let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, ARENAS) };
    }
}
