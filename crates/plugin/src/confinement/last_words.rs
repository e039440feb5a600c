//! A process that crashes, or makes a forbidden call, leaves a report in memory that outlives it.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::io;

/// Number of words of a report: the signal, its subject, and whether memory had run out.
pub const WORDS: usize = 3;
/// The same in bytes.
pub const WORDS_BYTES: usize = WORDS * size_of::<u64>();

/// The second word holds the number of the forbidden call, or the address. This value stands for any address in
/// read-only memory.
pub(super) const READ_ONLY: u64 = u64::MAX;

/// Signals of crashes. A forbidden call becomes SIGSYS.
pub(super) const CRASHES: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];

/// A process that cannot get this many bytes has run out of memory. Most programs ask for less at once, and fail then.
const LITTLE_MEMORY: usize = 4 << 20;

// A signal handler can reach data only through statics.
static PLACE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
static READ_ONLY_START: AtomicUsize = AtomicUsize::new(0);
static READ_ONLY_END: AtomicUsize = AtomicUsize::new(0);

/// Reports are left while this value exists.
#[derive(Debug)]
pub struct LastWords(());

impl LastWords {
    /// From now on the process leaves reports. An attempt to write to memory in `read_only` is reported as such.
    ///
    /// # Safety
    /// `place` points to [`WORDS`] numbers that outlive the returned value.
    ///
    /// # Errors
    /// If the system refuses it.
    pub unsafe fn leave_at(place: *mut AtomicU64, read_only: Range<usize>) -> io::Result<Self> {
        READ_ONLY_START.store(read_only.start, Ordering::Relaxed);
        READ_ONLY_END.store(read_only.end, Ordering::Relaxed);
        PLACE.store(place, Ordering::Release);
        let kept = Self(());
        CRASHES.into_iter().chain([libc::SIGSYS]).try_for_each(handle)?;
        Ok(kept)
    }
}

impl Drop for LastWords {
    fn drop(&mut self) {
        PLACE.store(null_mut(), Ordering::Release);
    }
}

fn handle(signal: c_int) -> io::Result<()> {
    // SAFETY: all bytes zero are a value of this struct of integers and an empty set.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
    // The handler runs once. The process crashes again when it returns, and then ends as it would have without the
    // handler. It needs a stack of its own, because the stack may be what ran out.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
    // SAFETY: the struct is whole, and the handler does only what handlers may.
    match unsafe { libc::sigaction(signal, &raw const action, null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The head of the kernel's data on SIGSYS (`_sigsys` in asm-generic/siginfo.h, on machines with addresses of 64 bits).
#[repr(C)]
struct OfCall {
    signal: c_int,
    error: c_int,
    code: c_int,
    _padding: c_int,
    address: *mut c_void,
    call: c_int,
}

extern "C" fn on_signal(signal: c_int, information: *mut libc::siginfo_t, _: *mut c_void) {
    let about = if signal == libc::SIGSYS {
        // SAFETY: the kernel sent this signal, with this layout, which is shorter than the whole.
        unsafe { (*information.cast::<OfCall>()).call as u64 }
    } else {
        // SAFETY: as above: of a crash it gives an address, and of `abort` something that is not looked at.
        of_address(unsafe { (*information).si_addr() } as usize)
    };
    let place = PLACE.load(Ordering::Acquire);
    if !place.is_null() {
        let words = [signal as u64, about, u64::from(is_out_of_memory())];
        for (index, word) in words.into_iter().enumerate() {
            // SAFETY: there is room for these words (the promise of `leave_at`).
            unsafe { (*place.add(index)).store(word, Ordering::Release) };
        }
    }
    if signal == libc::SIGSYS {
        // The call was not made. Its caller must not continue as if it had failed.
        // SAFETY: it ends the process, with nothing else before.
        unsafe { libc::_exit(128 + signal) }
    }
}

fn of_address(address: usize) -> u64 {
    let is_read_only =
        (READ_ONLY_START.load(Ordering::Relaxed)..READ_ONLY_END.load(Ordering::Relaxed)).contains(&address);
    if is_read_only { READ_ONLY } else { 0 }
}

/// Whether the process can get hardly any memory.
fn is_out_of_memory() -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses the place of the mapping, which is not used; a handler may call `mmap`. If it
    // succeeds, the mapping ends with the process.
    let mapped = unsafe { libc::mmap(null_mut(), LITTLE_MEMORY, libc::PROT_NONE, flags, -1, 0) };
    mapped == without_provenance_mut(usize::MAX)
}
