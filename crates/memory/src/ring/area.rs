//! Where a ring's head and pages lie in its mapping.
#![allow(unsafe_code)]

use super::pointers::{Head, Pointers};
use super::{LEAST_PAGE, RingError};
use crate::mapping::Mapping;
use core::ptr::NonNull;
use std::sync::Arc;

/// A mapping with a ring in it: its head, and where its pages lie.
#[derive(Clone)]
pub(super) struct Area {
    pub(super) mapping: Arc<Mapping>,
    /// Bytes of a page, and of all.
    pub(super) page: u64,
    pub(super) bytes: u64,
}

impl Area {
    /// A new ring in memory that is all zeros.
    pub(super) fn lay_out(mapping: Arc<Mapping>, head: Head) -> Self {
        // SAFETY: the mapping begins with a page for the head, is aligned to more than that asks for, and is new.
        unsafe { mapping.base().cast::<Head>().write(head) };
        Self { mapping, page: head.page_bytes, bytes: head.page_bytes * head.pages }
    }

    /// A ring that another process laid out.
    ///
    /// # Errors
    /// If there is none in the mapping.
    pub(super) fn find(mapping: Mapping) -> Result<Self, RingError> {
        if mapping.bytes() < LEAST_PAGE {
            return Err(RingError::NotARing);
        }
        // SAFETY: within the mapping, all of whose bytes are initialised; read once, and checked as a copy.
        let head = unsafe { mapping.base().cast::<Head>().read_volatile() };
        let bytes = head.ring_bytes().ok_or(RingError::NotARing)?;
        if bytes.checked_add(head.page_bytes).is_none_or(|all| all > mapping.bytes() as u64) {
            return Err(RingError::NotARing);
        }
        Ok(Self { mapping: Arc::new(mapping), page: head.page_bytes, bytes })
    }

    /// The pointers that both sides share.
    pub(super) fn pointers(&self) -> &Pointers {
        // SAFETY: behind the head in the first page, aligned; atomics, for which any bits are good.
        unsafe { self.mapping.base().add(size_of::<Head>()).cast::<Pointers>().as_ref() }
    }

    /// Where the byte at a position lies.
    pub(super) fn address(&self, position: u64) -> NonNull<u8> {
        // SAFETY: the ring lies behind the head's page, and the remainder is below its size.
        unsafe { self.mapping.base().add((self.page + position % self.bytes) as usize) }
    }

    /// The page that a position lies in.
    pub(super) fn page_of(&self, position: u64) -> u32 {
        (position % self.bytes / self.page) as u32
    }

    /// Bytes from a position to where the memory begins anew.
    pub(super) fn until_end(&self, position: u64) -> u64 {
        self.bytes - position % self.bytes
    }
}
