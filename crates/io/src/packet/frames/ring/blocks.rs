//! The layout of a received block (`linux/if_packet.h`, TPACKET_V3), and who has it.
#![allow(unsafe_code)]

use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

/// Where a block's description has its status, the number of its packets, and where the first one is.
const STATUS: usize = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, block_status);
const COUNT: usize = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, num_pkts);
const FIRST: usize = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt);

/// The mapped ring, to be looked at by one who knows what belongs to whom.
#[derive(Copy, Clone)]
pub(super) struct Blocks {
    pub(super) base: NonNull<u8>,
    pub(super) block_size: usize,
}

// SAFETY: an address, used by the receiver that has it alone.
unsafe impl Send for Blocks {}

/// A packet in a block.
#[derive(Copy, Clone)]
pub(super) struct Entry {
    /// Where its IP header begins, in the block, and how much of it is there.
    pub(super) begin: usize,
    pub(super) captured: usize,
    /// How long it was, from there on.
    pub(super) length: usize,
    /// What the kernel says of it.
    pub(super) status: u32,
    /// Where the next one's description is.
    pub(super) next: usize,
}

impl Blocks {
    /// The status of a block, which the kernel shares.
    fn status(&self, block: u32) -> &AtomicU32 {
        // SAFETY: within the block, aligned to 4, and accessed as an atomic alone, here and in the kernel.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(block as usize * self.block_size + STATUS).cast()) }
    }

    /// Whether the kernel has handed the block over and did not get it back.
    #[inline]
    pub(super) fn is_ours(&self, block: u32) -> bool {
        // Acquire: what the kernel wrote before is seen.
        self.status(block).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Gives the block back to the kernel.
    pub(super) fn give_back(&self, block: u32) {
        // Release: what was read from it comes before what the kernel writes next.
        self.status(block).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }

    /// How many packets a block has, and where the first one is described.
    ///
    /// # Safety
    /// The block must be ours.
    pub(super) unsafe fn packets(&self, block: u32) -> (u32, usize) {
        let start = block as usize * self.block_size;
        // SAFETY: within the block, aligned, and written no more by the kernel.
        unsafe { (self.number(start + COUNT), self.number(start + FIRST) as usize) }
    }

    /// The packet that is described at this place of a block; none where that cannot be.
    ///
    /// # Safety
    /// The block must be ours.
    #[inline]
    pub(super) unsafe fn entry(&self, block: u32, place: usize) -> Option<Entry> {
        let header_end = place.checked_add(size_of::<libc::tpacket3_hdr>())?;
        if header_end > self.block_size || !place.is_multiple_of(align_of::<libc::tpacket3_hdr>()) {
            return None;
        }
        let start = block as usize * self.block_size + place;
        // SAFETY: within the block, aligned, written no more by the kernel; numbers, for which any bits are good.
        let header = unsafe { self.base.as_ptr().add(start).cast::<libc::tpacket3_hdr>().read() };
        let (link, network) = (usize::from(header.tp_mac), usize::from(header.tp_net));
        let before = network.checked_sub(link)?;
        let captured = (header.tp_snaplen as usize).checked_sub(before)?;
        let begin = place + network;
        let is_inside = begin.checked_add(captured).is_some_and(|end| end <= self.block_size);
        let length = (header.tp_len as usize).checked_sub(before)?;
        let (status, next) = (header.tp_status, place.checked_add(header.tp_next_offset as usize)?);
        is_inside.then_some(Entry { begin, captured, length, status, next })
    }

    /// A number in a block.
    ///
    /// # Safety
    /// It must lie in a block that is ours, aligned.
    unsafe fn number(&self, place: usize) -> u32 {
        // SAFETY: says the caller.
        unsafe { self.base.as_ptr().add(place).cast::<u32>().read() }
    }
}
