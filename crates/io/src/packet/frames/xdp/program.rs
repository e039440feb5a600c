//! Loading the program and attaching it to a card, with the system call itself (bpf(2)): three structures and a patch. A crate
//! for it would bring thirty others.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use ropewalk_wire::internet::UDP_PROTOCOL;

use super::super::card::Card;
use super::super::open::Wanted;
use super::XdpMode;
use crate::packet::Flow;

/// The instructions that clang makes of `pick.c`; a test compares them.
const INSTRUCTIONS: &[u8] = include_bytes!("pick.bpf");

/// Bytes of an instruction, and the one that loads 64 bits, which has two.
const STEP: usize = 8;
const LOAD_64: u8 = 0x18;

/// The constants of the source that are replaced, from this number on.
const MARKS: u64 = 0x0052_5700_0000_0000;

/// The pseudo register that makes a constant a map.
const MAP: u8 = 1;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

const XSKMAP: u32 = 17;
const XDP_PROGRAM: u32 = 6;
const XDP_ATTACHMENT: u32 = 37;
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

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    address: u64,
    licence: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    card: u32,
    attachment: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    card: u32,
    attachment: u32,
    flags: u32,
}

/// The program at a card. It is detached when this is dropped, or the process ends in whatever way.
pub(super) struct Program {
    _link: OwnedFd,
    sockets: OwnedFd,
}

impl Program {
    /// Loads the program for these packets and attaches it.
    pub(super) fn attach(card: &Card, wanted: &Wanted, queues: u32, mode: XdpMode) -> io::Result<Self> {
        let sockets = create_map(queues)?;
        let instructions = patched(card, wanted, sockets.as_raw_fd());
        let name = *b"ropewalk_pick\0\0\0";
        let load = ProgramLoad {
            kind: XDP_PROGRAM,
            instructions: (instructions.len() / STEP) as u32,
            address: instructions.as_ptr() as u64,
            // Any will do: no function is called that is for some alone.
            licence: c"Dual MIT/GPL".as_ptr() as u64,
            flags: HAS_PARTS,
            name,
            attachment: XDP_ATTACHMENT,
            ..ProgramLoad::default()
        };
        // SAFETY: the instructions and the licence outlive the call, which reads them alone.
        let program = unsafe { call(PROGRAM_LOAD, &load) }?;
        let flags = if mode == XdpMode::Generic { GENERIC } else { DRIVER };
        let (number, attachment) = (program.as_raw_fd() as u32, XDP_ATTACHMENT);
        // SAFETY: numbers alone.
        let link = unsafe { call(LINK_CREATE, &LinkCreate { program: number, card: card.index, attachment, flags }) }?;
        Ok(Self { _link: link, sockets })
    }

    /// Gives a queue's packets to this socket from now on, until the socket is closed.
    pub(super) fn redirect(&self, queue: u32, socket: RawFd) -> io::Result<()> {
        let value = socket as u32;
        let (key, value) = ((&raw const queue) as u64, (&raw const value) as u64);
        let update = MapUpdate { map: self.sockets.as_raw_fd() as u32, key, value, ..MapUpdate::default() };
        // SAFETY: key and value outlive the call, which reads them alone.
        unsafe { ask(MAP_UPDATE, &update) }.map(|_| ())
    }
}

/// A map of sockets by queue.
fn create_map(queues: u32) -> io::Result<OwnedFd> {
    let map = MapCreate { kind: XSKMAP, key_bytes: 4, value_bytes: 4, entries: queues, flags: 0 };
    // SAFETY: numbers alone.
    unsafe { call(MAP_CREATE, &map) }
}

/// The instructions with the constants of a card and a flow.
fn patched(card: &Card, wanted: &Wanted, sockets: RawFd) -> Vec<u8> {
    let number = |bytes: &[u8]| {
        let mut all = [0; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(all)
    };
    let (protocol, port) = match wanted.flow {
        Flow::Udp => (UDP_PROTOCOL, number(&wanted.address.port().to_be_bytes())),
        Flow::Ip(number) => (number, 0),
    };
    let values = [sockets as u64, number(&card.mac.0), number(&wanted.ip().octets()), protocol.into(), port];
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
        if let Some(value) = mark.checked_sub(MARKS + 1).and_then(|place| values.get(place as usize)) {
            instructions[at + 4..at + 8].copy_from_slice(&value.to_le_bytes()[..4]);
            instructions[at + 12..at + 16].copy_from_slice(&value.to_le_bytes()[4..]);
            if mark == MARKS + 1 {
                instructions[at + 1] |= MAP << 4;
            }
        }
        at += 2 * STEP;
    }
    instructions
}

/// Asks the kernel, which reads a structure, for a descriptor.
///
/// # Safety
/// What the structure points to must be there.
unsafe fn call<T>(command: libc::c_int, what: &T) -> io::Result<OwnedFd> {
    // SAFETY: says the caller.
    let descriptor = unsafe { ask(command, what) }?;
    // SAFETY: new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Asks the kernel, which reads a structure, for a number.
///
/// # Safety
/// What the structure points to must be there.
unsafe fn ask<T>(command: libc::c_int, what: &T) -> io::Result<libc::c_int> {
    // SAFETY: a structure of this length; fields that the kernel knows behind it are zeros to it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, core::ptr::from_ref(what), size_of::<T>()) };
    if result >= 0 { Ok(result as libc::c_int) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests;
