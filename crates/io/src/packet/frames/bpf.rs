//! Programs that the kernel runs for each packet of a card, with the system call itself (bpf(2)): two structures. A crate for it
//! would bring thirty others.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::card::Card;

/// Bytes of an instruction.
const STEP: usize = 8;

const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

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

/// What a program is for, by the kernel's numbers (`linux/bpf.h`).
#[derive(Copy, Clone)]
pub(super) struct ProgramKind {
    pub(super) kind: u32,
    pub(super) attachment: u32,
    pub(super) flags: u32,
}

/// Loads a program and attaches it to a card. It is detached when what is returned is dropped, or the process ends in whatever
/// way.
pub(super) fn attach(
    card: &Card,
    kind: ProgramKind,
    name: &[u8],
    instructions: &[u8],
    flags: u32,
) -> io::Result<OwnedFd> {
    let ProgramKind { kind, attachment, flags: of_program } = kind;
    let mut load = ProgramLoad {
        kind,
        instructions: (instructions.len() / STEP) as u32,
        address: instructions.as_ptr() as u64,
        // Any will do: no function is called that is for some alone.
        licence: c"Dual MIT/GPL".as_ptr() as u64,
        flags: of_program,
        attachment,
        ..ProgramLoad::default()
    };
    load.name.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    // SAFETY: the instructions and the licence outlive the call, which reads them alone.
    let program = unsafe { call(PROGRAM_LOAD, &load) }?;
    let link = LinkCreate { program: program.as_raw_fd() as u32, card: card.index, attachment, flags };
    // SAFETY: numbers alone.
    unsafe { call(LINK_CREATE, &link) }
}

/// Asks the kernel, which reads a structure, for a descriptor.
///
/// # Safety
/// What the structure points to must be there.
pub(super) unsafe fn call<T>(command: libc::c_int, what: &T) -> io::Result<OwnedFd> {
    // SAFETY: says the caller.
    let descriptor = unsafe { ask(command, what) }?;
    // SAFETY: new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Asks the kernel, which reads a structure, for a number.
///
/// # Safety
/// What the structure points to must be there.
pub(super) unsafe fn ask<T>(command: libc::c_int, what: &T) -> io::Result<libc::c_int> {
    // SAFETY: a structure of this length; fields that the kernel knows behind it are zeros to it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, core::ptr::from_ref(what), size_of::<T>()) };
    if result >= 0 { Ok(result as libc::c_int) } else { Err(io::Error::last_os_error()) }
}
