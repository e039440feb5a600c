//! A counting allocator, for test binaries about allocation.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Counts allocations while `COUNTING`, on threads that did not opt out.
struct Counting;

pub(crate) static COUNTING: AtomicBool = AtomicBool::new(false);
pub(crate) static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
pub(crate) static FIRST_SIZES: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];

/// If set, only the threads of gateways are counted, whose names begin with [`GATEWAY`].
pub(crate) static GATEWAYS_ALONE: AtomicBool = AtomicBool::new(false);
/// The prefix of gateway names in these tests.
const GATEWAY: &str = "gw";

thread_local! {
    /// Whether the thread belongs to the test and is not a data thread.
    pub(crate) static OUTSIDE: Cell<bool> = const { Cell::new(false) };
}

fn note(size: usize) {
    if COUNTING.load(Ordering::Relaxed) && !OUTSIDE.try_with(Cell::get).unwrap_or(true) && is_counted() {
        let before = ALLOCATIONS.fetch_add(1, Ordering::Relaxed) as usize;
        if let Some(place) = FIRST_SIZES.get(before) {
            place.store(size, Ordering::Relaxed);
        }
    }
}

/// Whether threads of this name are counted.
fn is_counted() -> bool {
    !GATEWAYS_ALONE.load(Ordering::Relaxed)
        || std::thread::current().name().is_some_and(|name| name.starts_with(GATEWAY))
}

// SAFETY: every call is handed on to the system's allocator unchanged; counting touches atomics and a thread-local
// without a destructor, which allocate nothing.
unsafe impl GlobalAlloc for Counting {
    /// # Safety
    /// As the trait asks for.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    /// # Safety
    /// As the trait asks for.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` or `realloc` above, hence from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    /// # Safety
    /// As the trait asks for.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: the pointer came from the system's allocator, and the caller promises the rest.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
