//! Moves of fragments from where they lie right to where they belong.
//!
//! A value that may have to be dropped on the way, because a vector has to grow or something else lies in its place, is
//! made on the stack first. There it is read in other pieces than it was written in, and the processor waits for that:
//! longer than all the rest of such a move takes.

/// Appends a value for which there is room.
///
/// # Panics
/// Where there is none: it is to be reserved before.
#[inline(always)]
pub(crate) fn append<T>(out: &mut Vec<T>, value: T) {
    if out.len() < out.capacity() {
        out.push(value);
    } else {
        core::mem::forget(value);
        unreachable!("room is reserved before");
    }
}

/// Overwrites what has nothing to be dropped: what else is there would be lost for its pool.
#[inline(always)]
pub(crate) fn overwrite<T>(vacant: &mut T, value: T) {
    core::mem::forget(core::mem::replace(vacant, value));
}
