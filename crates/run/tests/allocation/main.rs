//! Data threads allocate nothing between start and stop.
//!
//! A separate binary, because it replaces the allocator by a counting one.

#[path = "../../../engine/tests/support/counting.rs"]
mod counting;
mod gateways;
mod units;

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All threads are counted together, so the tests run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Waits until no other test counts. Then either only the threads of gateways are counted, or all threads that have not
/// opted out.
fn alone(is_of_gateways: bool) -> MutexGuard<'static, ()> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    counting::GATEWAYS_ALONE.store(is_of_gateways, Ordering::Relaxed);
    alone
}
