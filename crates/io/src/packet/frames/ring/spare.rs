//! Sparing the kernel what a ring has got: a program behind the ring drops it, in front of IP and UDP, which would look for
//! whom it is (a third of a ring's processor time) to find a socket that is mute.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use crate::packet::Flow;
use crate::packet::frames::bpf::{ProgramKind, attach};
use crate::packet::frames::card::Card;

/// A program that looks at what came in at a card, before protocols do but behind those who want everything (tcx, Linux 6.6).
const INGRESS: ProgramKind = ProgramKind { kind: 3, attachment: 46, flags: 0 };

/// What the program says of a packet: others may look at it, or nobody.
const NEXT: i32 = -1;
const DROP: i32 = 2;

/// Where things stand in what the program is told (`struct __sk_buff`), and in the frame.
const KIND: i16 = 4;
const HAS_VLAN: i16 = 20;
const BEGIN: i16 = 76;
const END: i16 = 80;
const ETHER_TYPE: i16 = 12;
const VERSION_AND_LENGTH: i16 = 14;
const FRAGMENTATION: i16 = 20;
const PROTOCOL: i16 = 23;
const DESTINATION: i16 = 30;
const PORT: i16 = 36;
/// The least bytes that are looked at.
const SEEN: i32 = 38;

/// IPv4 without options: with them a packet takes the kernel's way.
const PLAIN: i32 = 0x45;

/// Drops a ring's packets behind it, as long as what is returned is there.
///
/// # Errors
/// What the kernel says: mostly that the right is missing, or that it is an old one. Nothing is wrong then, but slower.
pub(super) fn drop_behind(card: &Card, flow: Flow, address: SocketAddrV4) -> io::Result<OwnedFd> {
    let instructions: Vec<u8> = program(flow, address).into_iter().flatten().collect();
    attach(card, INGRESS, b"ropewalk_spare", &instructions, 0)
}

/// Operations, with the size of what is loaded.
const LOAD_BYTE: u8 = 0x71;
const LOAD_HALF: u8 = 0x69;
const LOAD_WORD: u8 = 0x61;
const MOVE: u8 = 0xBF;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const IS_ABOVE: u8 = 0x2D;
/// Of 32 bits.
const DIFFERS: u8 = 0x56;
const ANSWER: u8 = 0xB7;
const RETURN: u8 = 0x95;

/// One instruction: operation, registers (the one that is read in the upper half), distance, number.
const fn step(operation: u8, registers: u8, distance: i16, number: i32) -> [u8; 8] {
    let ([a, b], [c, d, e, f]) = (distance.to_le_bytes(), number.to_le_bytes());
    [operation, registers, a, b, c, d, e, f]
}

/// Loads something of the frame and goes on if it has this value, as it stands there.
const fn expect(load: u8, place: i16, value: i32) -> [[u8; 8]; 2] {
    [step(load, 0x25, place, 0), step(DIFFERS, 0x05, 0, value)]
}

/// The instructions, in whose end it says that others may look, and in front of that that nobody may.
fn program(flow: Flow, address: SocketAddrV4) -> Vec<[u8; 8]> {
    let big_endian = |number: u16| i32::from(number.to_be());
    let mut steps = vec![
        // Frames of somebody else, and of a network of its own.
        step(LOAD_WORD, 0x15, KIND, 0),
        step(DIFFERS, 0x05, 0, libc::PACKET_HOST.into()),
        step(LOAD_WORD, 0x15, HAS_VLAN, 0),
        step(DIFFERS, 0x05, 0, 0),
        step(LOAD_WORD, 0x12, BEGIN, 0),
        step(LOAD_WORD, 0x13, END, 0),
        step(MOVE, 0x24, 0, 0),
        step(ADD, 0x04, 0, SEEN),
        step(IS_ABOVE, 0x34, 0, 0),
    ];
    steps.extend(expect(LOAD_HALF, ETHER_TYPE, big_endian(0x0800)));
    steps.extend(expect(LOAD_BYTE, VERSION_AND_LENGTH, PLAIN));
    // More to come, or not the first one: a fragment, which the ring gets when the kernel has put all together.
    let [load, compare] = expect(LOAD_HALF, FRAGMENTATION, 0);
    steps.extend([load, step(AND, 0x05, 0, big_endian(0x3FFF)), compare]);
    steps.extend(expect(LOAD_BYTE, PROTOCOL, flow.protocol().into()));
    steps.extend(expect(LOAD_WORD, DESTINATION, i32::from_ne_bytes(address.ip().octets())));
    if flow == Flow::Udp {
        steps.extend(expect(LOAD_HALF, PORT, big_endian(address.port())));
    }
    steps.extend([step(ANSWER, 0, 0, DROP), step(RETURN, 0, 0, 0)]);
    let end = steps.len();
    for (place, step) in steps.iter_mut().enumerate() {
        if [DIFFERS, IS_ABOVE].contains(&step[0]) {
            step[2..4].copy_from_slice(&((end - place - 1) as i16).to_le_bytes());
        }
    }
    steps.extend([step(ANSWER, 0, 0, NEXT), step(RETURN, 0, 0, 0)]);
    steps
}
