//! Programs at a card: one redirects IPv4 packets to an AF_XDP socket and passes everything else to the kernel; one
//! keeps packets that a ring has received from the kernel's protocols.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const MAP_CREATE: i32 = 0;
const MAP_UPDATE: i32 = 2;
const PROGRAM_LOAD: i32 = 5;
const LINK_CREATE: i32 = 28;
const XSKMAP: u32 = 17;
const XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const IN_DRIVER: u32 = 1 << 2;
const SCHEDULER: u32 = 3;
const ATTACH_INGRESS: u32 = 46;

/// One instruction: operation, registers (`source << 4 | destination`), jump, number.
const fn step(operation: u8, registers: u8, jump: i16, number: i32) -> u64 {
    operation as u64 | (registers as u64) << 8 | (jump as u16 as u64) << 16 | (number as u32 as u64) << 32
}

/// `return type == IPv4 && destination == mac ? bpf_redirect_map(sockets, queue, XDP_PASS) : XDP_PASS`.
const fn instructions(sockets: i32, [a, b, c, d, e, f]: [u8; 6]) -> [u64; 20] {
    [
        step(0xbf, 0x16, 0, 0),       // r6 = frame
        step(0x61, 0x62, 0, 0),       // r2 = begin
        step(0x61, 0x63, 4, 0),       // r3 = end
        step(0xbf, 0x24, 0, 0),       // r4 = begin
        step(0x07, 0x04, 0, 14),      // r4 += 14
        step(0x2d, 0x34, 12, 0),      // if r4 > end: pass
        step(0x69, 0x25, 12, 0),      // r5 = type
        step(0x55, 0x05, 10, 0x0008), // if r5 != IPv4: pass
        step(0x61, 0x25, 0, 0),       // r5 = destination, the first four bytes
        step(0x56, 0x05, 8, i32::from_le_bytes([a, b, c, d])),
        step(0x69, 0x25, 4, 0), // r5 = the last two
        step(0x56, 0x05, 6, i32::from_le_bytes([e, f, 0, 0])),
        step(0x18, 0x11, 0, sockets), // r1 = map
        step(0, 0, 0, 0),
        step(0x61, 0x62, 16, 0), // r2 = queue
        step(0xb7, 0x03, 0, 2),  // r3 = XDP_PASS
        step(0x85, 0, 0, 51),    // r0 = bpf_redirect_map(r1, r2, r3)
        step(0x95, 0, 0, 0),     // return
        step(0xb7, 0x00, 0, 2),  // pass: r0 = XDP_PASS
        step(0x95, 0, 0, 0),     // return
    ]
}

/// Attaches the program to a card with this address, for a socket that gets the first queue's packets, until the
/// returned descriptors are closed.
pub(super) fn attach(card: u32, mac: [u8; 6], socket: &OwnedFd) -> io::Result<[OwnedFd; 2]> {
    let map = descriptor(MAP_CREATE, &[u64::from(XSKMAP) | 4 << 32, 4 | 1 << 32, 0])?;
    let (queue, value) = (0_u32, socket.as_raw_fd() as u32);
    let update = [map.as_raw_fd() as u64, (&raw const queue) as u64, (&raw const value) as u64, 0];
    ask(MAP_UPDATE, &update)?;
    let program = load(XDP, ATTACH_XDP, &instructions(map.as_raw_fd(), mac))?;
    Ok([link(&program, card, ATTACH_XDP, IN_DRIVER)?, map])
}

/// Drops IPv4 packets for this host at a card after the sockets that receive every packet, so that protocols do not see
/// them, until the returned descriptor is closed.
pub(super) fn drop_behind(card: u32) -> io::Result<OwnedFd> {
    let steps = [
        step(0x61, 0x15, 4, 0), // r5 = packet type
        step(0x56, 0x05, 4, libc::PACKET_HOST as i32),
        step(0x61, 0x15, 16, 0), // r5 = type
        step(0x56, 0x05, 2, 0x0008),
        step(0xb7, 0x00, 0, 2), // r0 = TCX_DROP
        step(0x95, 0, 0, 0),
        step(0xb7, 0x00, 0, -1), // r0 = TCX_NEXT
        step(0x95, 0, 0, 0),
    ];
    let program = load(SCHEDULER, ATTACH_INGRESS, &steps)?;
    link(&program, card, ATTACH_INGRESS, 0)
}

fn load(kind: u32, attachment: u32, steps: &[u64]) -> io::Result<OwnedFd> {
    let licence = c"GPL";
    let mut load = [0; 12];
    (load[0], load[1]) = (u64::from(kind) | (steps.len() as u64) << 32, steps.as_ptr() as u64);
    load[2] = licence.as_ptr() as u64;
    // `expected_attach_type` is at byte 68.
    load[8] = u64::from(attachment) << 32;
    descriptor(PROGRAM_LOAD, &load)
}

fn link(program: &OwnedFd, card: u32, attachment: u32, flags: u32) -> io::Result<OwnedFd> {
    let link = [program.as_raw_fd() as u64 | u64::from(card) << 32, u64::from(attachment) | u64::from(flags) << 32];
    descriptor(LINK_CREATE, &link)
}

fn descriptor(command: i32, what: &[u64]) -> io::Result<OwnedFd> {
    // SAFETY: new, and owned by nothing else.
    ask(command, what).map(|number| unsafe { OwnedFd::from_raw_fd(number) })
}

fn ask(command: i32, what: &[u64]) -> io::Result<i32> {
    // SAFETY: reads numbers of this length; what they point to outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, what.as_ptr(), size_of_val(what)) };
    if result >= 0 { Ok(result as i32) } else { Err(io::Error::last_os_error()) }
}
