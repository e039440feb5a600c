//! The scheduling priority of the calling thread.
#![allow(unsafe_code)]

use std::io;

/// Gives the calling thread a real-time priority (`SCHED_FIFO`, 1 to 99), ahead of all threads without one, or none.
///
/// # Errors
/// The kernel's error, mostly missing permission.
pub fn schedule(real_time: Option<i32>) -> io::Result<()> {
    let policy = if real_time.is_some() { libc::SCHED_FIFO } else { libc::SCHED_OTHER };
    let priority = libc::sched_param { sched_priority: real_time.unwrap_or(0) };
    // SAFETY: reads a number.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const priority) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
#[test]
fn as_usual_is_always_allowed() {
    schedule(None).expect("a lower priority needs no right");
    assert!(schedule(Some(1000)).is_err(), "there is no such priority");
}
