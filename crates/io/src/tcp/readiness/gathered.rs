//! The list of slices that one system call sends.
#![allow(unsafe_code)]

use std::io::IoSlice;

use ropewalk_memory::Slice;

/// Slices in one system call: the kernel's limit (`IOV_MAX`).
const MOST: usize = 1024;

/// A list that is made once for all sends of a dispatcher. Full, it has 16 KiB: on the stack it would be copied wherever
/// it is collected or moved, and such a copy was a sixth of a sending thread's time (`tests/stack.rs` sees that none
/// comes back).
pub(super) struct Gathered {
    /// Means something only while [`Gathered::list`] is borrowed.
    slices: Vec<IoSlice<'static>>,
}

/// Whoever moves it moves no list.
const _: () = assert!(size_of::<Gathered>() <= 32);

impl Gathered {
    pub(super) fn new() -> Self {
        Self { slices: Vec::with_capacity(MOST) }
    }

    /// Lists as many of the first slices as one call takes; also says how many bytes those are.
    pub(super) fn list<'a>(&'a mut self, slices: impl Iterator<Item = &'a Slice>) -> (&'a [IoSlice<'a>], usize) {
        self.slices.clear();
        // SAFETY: the list is empty, and types that differ in a lifetime alone are laid out alike. What is put in here is
        // seen only through this borrow, which ends before what it points to: whoever comes next begins with an empty list.
        let list = unsafe { &mut *(&raw mut self.slices).cast::<Vec<IoSlice<'a>>>() };
        let mut bytes = 0;
        list.extend(slices.take(MOST).map(|slice| {
            bytes += slice.len();
            IoSlice::new(slice)
        }));
        (list, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_memory::{Owner, Pool, PoolConfig};

    #[test]
    fn every_send_has_its_own_slices_in_the_same_place() {
        let mut pool = Pool::new(PoolConfig::heap("slices", 2 * MOST, 1)).expect("memory for a test");
        let mut loan = pool.loan(Owner::SHARED).expect("the pool's only block");
        let mut slices = Vec::new();
        while let Some(slice) = loan.append(&[slices.len() as u8]) {
            slices.push(slice);
        }
        let mut gathered = Gathered::new();
        let (list, bytes) = gathered.list(slices.iter());
        assert_eq!((list.len(), bytes), (MOST, MOST), "as many as one call takes");
        let place = list.as_ptr().addr();
        let (list, bytes) = gathered.list(slices[5..7].iter());
        assert_eq!((list.iter().map(|slice| slice[0]).collect::<Vec<_>>(), bytes), (vec![5, 6], 2));
        assert_eq!(list.as_ptr().addr(), place, "nothing is allocated or moved");
    }
}
