//! Messages as the bytes of datagrams.

use super::link::Link;
use ropewalk_io::packet::{Refusal, Sender};
use ropewalk_memory::Payload;
use ropewalk_terms::Instant;
use std::net::SocketAddrV4;

/// Queues a packet of these bytes; where there is no room, what is queued goes to the system first.
///
/// # Errors
/// [`Refusal`]: the packet was not taken.
pub(super) fn send_bytes<S: Sender>(
    sender: &mut S,
    to: SocketAddrV4,
    bytes: &[u8],
    now: Instant,
) -> Result<(), Refusal> {
    match sender.send_with(to, bytes.len(), &mut copy_of(bytes)) {
        Err(Refusal::Full) if sender.flush(now) > 0 => sender.send_with(to, bytes.len(), &mut copy_of(bytes)),
        queued => queued,
    }
}

/// The same over a link.
///
/// # Errors
/// [`Refusal`]: the message was not taken.
pub(super) fn send_over<L: Link>(link: &mut L, to: SocketAddrV4, bytes: &[u8], now: Instant) -> Result<(), Refusal> {
    match link.send_with(to, bytes.len(), &mut copy_of(bytes)) {
        Err(Refusal::Full) if link.flush(now) > 0 => link.send_with(to, bytes.len(), &mut copy_of(bytes)),
        queued => queued,
    }
}

/// Writes these bytes into the room it is given.
fn copy_of(bytes: &[u8]) -> impl FnMut(&mut [u8]) -> usize {
    |room| {
        room[..bytes.len()].copy_from_slice(bytes);
        bytes.len()
    }
}

/// The bytes of a payload in one piece: where they lie, or put together in `scratch`.
pub(super) fn contiguous<'a>(payload: &'a Payload, scratch: &'a mut Vec<u8>) -> &'a [u8] {
    if let Some(bytes) = payload.contiguous() {
        return bytes;
    }
    scratch.clear();
    payload.pieces().for_each(|piece| scratch.extend_from_slice(piece));
    scratch
}
