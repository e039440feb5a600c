//! That the instructions are what clang makes of the source, and that every constant is replaced.

use super::*;
use crate::packet::Flow;
use ropewalk_wire::internet::MacAddress;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;

/// The compiler that made the instructions: other versions choose other registers.
const VERSION: &str = "14.0.6";
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/packet/frames/xdp/pick.c");

fn marks(instructions: &[u8]) -> usize {
    instructions.as_chunks::<4>().0.iter().filter(|word| u32::from_le_bytes(**word) == (MARKS >> 32) as u32).count()
}

#[test]
fn every_constant_is_replaced_by_what_it_stands_for() {
    let card = Card { name: "x".to_owned(), index: 1, mac: MacAddress([1, 2, 3, 4, 5, 6]), mtu: 1500 };
    assert_eq!(marks(INSTRUCTIONS), 3, "three constants, each in one place");
    let patched = patched(&card, [77, 78]);
    assert_eq!((marks(&patched), patched.len()), (0, INSTRUCTIONS.len()));
    let loads = |of: u8, low: [u8; 4], high: [u8; 4]| {
        let is_it = |two: &&[u8]| two[0] == LOAD_64 && two[1] >> 4 == of && two[4..8] == low && two[12..] == high;
        patched.windows(16).step_by(STEP).filter(is_it).count()
    };
    assert_eq!(loads(0, [1, 2, 3, 4], [5, 6, 0, 0]), 1);
    assert_eq!((loads(MAP, [77, 0, 0, 0], [0; 4]), loads(MAP, [78, 0, 0, 0], [0; 4])), (1, 1));
}

#[test]
fn a_key_has_eight_bytes_as_the_program_finds_them_in_a_packet() {
    let address = SocketAddrV4::new(Ipv4Addr::new(10, 20, 30, 40), 0x1234);
    let udp = XdpInput { flow: Flow::Udp, address, queue: None, to: 0 };
    assert_eq!(key_of(&udp), [10, 20, 30, 40, 0x12, 0x34, 17, 0]);
    let raw = XdpInput { flow: Flow::Ip(253), address: SocketAddrV4::new(*address.ip(), 0), ..udp };
    assert_eq!(key_of(&raw), [10, 20, 30, 40, 0, 0, 253, 0]);
}

#[test]
fn the_instructions_are_what_clang_makes_of_the_source() {
    let name = "packet::frames::xdp::program::tests::the_instructions_are_what_clang_makes_of_the_source";
    let speaks = |name: &&&str| {
        let said = Command::new(name).arg("--version").output();
        said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(VERSION))
    };
    let Some(clang) = ["clang-14", "clang"].iter().find(speaks) else {
        return ropewalk_tidy::skipped(name, "needs clang 14.0.6");
    };
    let object = std::env::temp_dir().join(format!("ropewalk-pick-{}.o", std::process::id()));
    let arguments = ["-target", "bpf", "-O2", "-Wall", "-Werror", "-c", SOURCE, "-o"];
    let status = Command::new(clang).args(arguments).arg(&object).status().expect("clang was there");
    assert!(status.success());
    let bytes = std::fs::read(&object).expect("clang has written it");
    std::fs::remove_file(&object).expect("the test's own file");
    assert!(section(&bytes, b"xdp").expect("the section of the program") == INSTRUCTIONS, "compile pick.c again");
}

/// A section of an object file (ELF, 64 bits).
fn section<'a>(object: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let number = |at: usize, bytes: usize| {
        object.get(at..at + bytes)?.iter().rev().try_fold(0_usize, |sum, &byte| Some(sum << 8 | usize::from(byte)))
    };
    let (table, entry, count) = (number(40, 8)?, number(58, 2)?, number(60, 2)?);
    let header = |index: usize| {
        let at = table + index * entry;
        Some((number(at, 4)?, number(at + 24, 8)?, number(at + 32, 8)?))
    };
    let (_, names, _) = header(number(62, 2)?)?;
    (0..count).filter_map(header).find_map(|(at, offset, bytes)| {
        let is_named = object.get(names + at..)?.strip_prefix(name)?.first() == Some(&0);
        if is_named { object.get(offset..offset + bytes) } else { None }
    })
}
