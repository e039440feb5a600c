//! Messages that begin in the middle of a page, so that the place of a buffer does not decide a comparison.
//!
//! Many processors copy strings of bytes (`rep movsb`, which the kernel uses for sockets) some twenty times more slowly
//! where the destination lies 1 to 31 bytes behind the source, whole pages of 4 KiB left out: 3 instead of 60 GB/s on an
//! AMD EPYC of family 25. The kernel puts what is sent on a connection into pages one after the other, begins with a
//! whole page, and leaves out up to 31 bytes now and then. A message that begins with a page is therefore sent at full
//! speed, then at a fraction of it for some 100 MB, and then at full speed again. Half a page away from that a run is
//! over before the two meet.

/// Where in its page a message begins.
pub const MID_PAGE: usize = PAGE / 2;
/// Bytes after which processors mistake one place for another: their smallest page.
const PAGE: usize = 4096;

/// Bytes that begin at a chosen place of a page.
#[derive(Clone, Debug)]
pub struct PlacedBytes {
    buffer: Vec<u8>,
    begin: usize,
    bytes: usize,
}

impl PlacedBytes {
    /// So many bytes of 0x5a, the first of them at byte `place` of a page.
    pub fn new(bytes: usize, place: usize) -> Self {
        let buffer = vec![0x5a; bytes + PAGE];
        let begin = place.wrapping_sub(buffer.as_ptr().addr()) % PAGE;
        Self { buffer, begin, bytes }
    }
}

impl core::ops::Deref for PlacedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.begin..self.begin + self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_begin_where_they_should() {
        for (bytes, place) in [(1, 0), (64, MID_PAGE), (100_000, 4080), (0, 17)] {
            let placed = PlacedBytes::new(bytes, place);
            assert_eq!((placed.len(), placed.as_ptr().addr() % PAGE), (bytes, place));
            assert!(placed.iter().all(|byte| *byte == 0x5a));
        }
    }
}
