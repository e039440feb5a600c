//! Loading the program with its maps and attaching it to a card.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::super::bpf::{ProgramKind, ask, attach, call};
use super::super::card::Card;
use super::{XdpInput, XdpMode};

/// The instructions that clang makes of `pick.c`; a test compares them.
const INSTRUCTIONS: &[u8] = include_bytes!("pick.bpf");

/// Bytes of an instruction, and the one that loads 64 bits, which has two.
const STEP: usize = 8;
const LOAD_64: u8 = 0x18;

/// The constants of the source that are replaced, from this number on; the first ones are maps.
const MARKS: u64 = 0x0052_5700_0000_0000;
const MAPS: usize = 2;

/// The pseudo register that makes a constant a map.
const MAP: u8 = 1;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;

const HASH: u32 = 1;
const XSKMAP: u32 = 17;
const XDP_PROGRAM: u32 = 6;
const XDP_ATTACHMENT: u32 = 37;
/// Packets to an address are picked at whatever queue they come in.
const ANY_QUEUE: u32 = u32::MAX;
/// The program looks at the first part of a frame that lies in several.
const HAS_PARTS: u32 = 1 << 5;
const DRIVER: u32 = 1 << 2;
const GENERIC: u32 = 1 << 1;

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapUpdate {
    map: u32,
    zero: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The program at a card. It is detached when this is dropped, or the process ends in whatever way.
pub(super) struct Program {
    _link: OwnedFd,
    sockets: OwnedFd,
}

impl Program {
    /// Loads the program for these packets and attaches it.
    pub(super) fn attach(card: &Card, inputs: &[XdpInput], queues: u32, mode: XdpMode) -> io::Result<Self> {
        let sockets = create_map(XSKMAP, size_of::<u32>(), queues)?;
        let picked = create_map(HASH, size_of::<u64>(), inputs.len() as u32)?;
        inputs.iter().try_for_each(|input| update(&picked, &key_of(input), input.queue.unwrap_or(ANY_QUEUE)))?;
        let instructions = patched(card, [sockets.as_raw_fd(), picked.as_raw_fd()]);
        let kind = ProgramKind { kind: XDP_PROGRAM, attachment: XDP_ATTACHMENT, flags: HAS_PARTS };
        let flags = if mode == XdpMode::Generic { GENERIC } else { DRIVER };
        let link = attach(card, kind, b"ropewalk_pick", &instructions, flags)?;
        Ok(Self { _link: link, sockets })
    }

    /// Gives a queue's packets to this socket from now on, until the socket is closed.
    pub(super) fn redirect(&self, queue: u32, socket: RawFd) -> io::Result<()> {
        update(&self.sockets, &queue, socket as u32)
    }
}

/// What the program makes of a packet to this address, to look for it: address and port as they stand there, the protocol.
fn key_of(input: &XdpInput) -> [u8; 8] {
    let ([a, b, c, d], [high, low]) = (input.address.ip().octets(), input.address.port().to_be_bytes());
    [a, b, c, d, high, low, input.flow.protocol(), 0]
}

/// A map from keys of so many bytes to 32-bit numbers.
fn create_map(kind: u32, key_bytes: usize, entries: u32) -> io::Result<OwnedFd> {
    let map = MapCreate { kind, key_bytes: key_bytes as u32, value_bytes: 4, entries, flags: 0 };
    // SAFETY: numbers alone.
    unsafe { call(MAP_CREATE, &map) }
}

/// Sets what is under a key, which must be as long as the map's keys.
fn update<K>(map: &OwnedFd, key: &K, value: u32) -> io::Result<()> {
    let (key, value) = (core::ptr::from_ref(key) as u64, (&raw const value) as u64);
    let update = MapUpdate { map: map.as_raw_fd() as u32, key, value, ..MapUpdate::default() };
    // SAFETY: key and value outlive the call, which reads them alone.
    unsafe { ask(MAP_UPDATE, &update) }.map(|_| ())
}

/// The instructions with the constants of a card, and these maps.
fn patched(card: &Card, maps: [RawFd; MAPS]) -> Vec<u8> {
    let [a, b, c, d, e, f] = card.mac.0;
    let values = [maps[0] as u64, maps[1] as u64, u64::from_le_bytes([a, b, c, d, e, f, 0, 0])];
    let mut instructions = INSTRUCTIONS.to_vec();
    let mut at = 0;
    while at + 2 * STEP <= instructions.len() {
        if instructions[at] != LOAD_64 {
            at += STEP;
            continue;
        }
        let low: [u8; 4] = [0, 1, 2, 3].map(|byte| instructions[at + 4 + byte]);
        let high: [u8; 4] = [0, 1, 2, 3].map(|byte| instructions[at + 12 + byte]);
        let mark = u64::from(u32::from_le_bytes(high)) << 32 | u64::from(u32::from_le_bytes(low));
        if let Some(place) = mark.checked_sub(MARKS + 1).map(|place| place as usize)
            && let Some(value) = values.get(place)
        {
            instructions[at + 4..at + 8].copy_from_slice(&value.to_le_bytes()[..4]);
            instructions[at + 12..at + 16].copy_from_slice(&value.to_le_bytes()[4..]);
            if place < MAPS {
                instructions[at + 1] |= MAP << 4;
            }
        }
        at += 2 * STEP;
    }
    instructions
}

#[cfg(test)]
mod tests;
