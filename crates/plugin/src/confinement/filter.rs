//! Seccomp: a filter of system calls, as a program of the kernel's packet filter.
#![allow(unsafe_code)]

use super::calls::{self, Call};
use core::ffi::c_ulong;
use core::mem::offset_of;
use libc::{seccomp_data, sock_filter, sock_fprog};
use std::io;

/// How the kernel calls this machine's system calls (linux/audit.h); none where nobody tried a filter.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<u32> = None;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const IS_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
/// SIGSYS, which tells its handler the call.
const TRAP: u32 = libc::SECCOMP_RET_TRAP;

/// What opens a file to change it, or makes one.
const CHANGES: u32 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u32;

/// A list of what is allowed: one call after the other is compared, and what is not in the list is not.
#[derive(Debug)]
pub(super) struct Filter(Vec<sock_filter>);

const fn step(code: u16, value: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k: value }
}

/// The next steps, so many, are for whoever is equal.
const fn if_equal(value: u32, steps: u8) -> sock_filter {
    sock_filter { code: IS_EQUAL, jt: 0, jf: steps, k: value }
}

impl Filter {
    /// Nothing is allowed.
    pub(super) fn new() -> Self {
        let architecture = step(LOAD, offset_of!(seccomp_data, arch) as u32);
        let is_ours = sock_filter { code: IS_EQUAL, jt: 1, jf: 0, k: ARCHITECTURE.unwrap_or(0) };
        let number = step(LOAD, offset_of!(seccomp_data, nr) as u32);
        Self(vec![architecture, is_ours, step(RETURN, TRAP), number])
    }

    /// These are allowed.
    pub(super) fn allow(self, calls: &[Call]) -> Self {
        self.answer(calls, ALLOW)
    }

    /// These fail, and whoever makes them goes on.
    pub(super) fn refuse(self, calls: &[Call]) -> Self {
        self.answer(calls, REFUSE)
    }

    fn answer(mut self, calls: &[Call], answer: u32) -> Self {
        for &(_, number) in calls {
            self.0.extend([if_equal(number as u32, 1), step(RETURN, answer)]);
        }
        self
    }

    /// These are allowed where their first argument is one of those.
    pub(super) fn allow_of(self, calls: &[Call], first: &[u32]) -> Self {
        self.allow_where(calls, 0, u32::MAX, first)
    }

    /// Files may be opened to be read.
    pub(super) fn allow_reading_of_files(self) -> Self {
        self.allow_where(calls::OPENING, 2, CHANGES, &[libc::O_RDONLY as u32])
    }

    /// These are allowed where these bits of that argument, of its lower half, are one of those values.
    fn allow_where(mut self, calls: &[Call], argument: u32, bits: u32, values: &[u32]) -> Self {
        let place = offset_of!(seccomp_data, args) as u32 + 8 * argument;
        for &(_, number) in calls {
            let mut steps = vec![step(LOAD, place), step(AND, bits)];
            values.iter().for_each(|&value| steps.extend([if_equal(value, 1), step(RETURN, ALLOW)]));
            steps.push(step(RETURN, TRAP));
            let length = u8::try_from(steps.len()).expect("a process has few descriptors to speak over");
            self.0.push(if_equal(number as u32, length));
            self.0.append(&mut steps);
        }
        self
    }

    /// From now on it holds, for all threads of this process.
    pub(super) fn install(mut self) -> io::Result<()> {
        if ARCHITECTURE.is_none() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.0.push(step(RETURN, TRAP));
        let length = u16::try_from(self.0.len()).expect("the lists are short");
        let program = sock_fprog { len: length, filter: self.0.as_mut_ptr() };
        let (mode, flags): (c_ulong, c_ulong) = (libc::SECCOMP_SET_MODE_FILTER.into(), libc::SECCOMP_FILTER_FLAG_TSYNC);
        // SAFETY: the kernel reads `len` steps from `filter`, which `self` holds during the call, and keeps nothing of them.
        match unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
