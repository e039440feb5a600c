//! Why a process ended, as well as it can be known.

use super::calls::name_of;
use super::last_words::{CRASHES, READ_ONLY, WORDS};
use core::ffi::c_int;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How a process of a plug-in ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It made a call of the system that it may not; its number, unless that was made where no signal is handled, as threads are
    /// started.
    Forbidden(Option<u64>),
    /// It wrote to memory that it may only read.
    WroteToReadOnly,
    /// It crashed by this signal.
    Crashed {
        /// The signal's number.
        signal: c_int,
        /// Hardly any of the memory was left that it may take.
        is_out_of_memory: bool,
    },
    /// It was ended from outside by this signal.
    Ended(c_int),
    /// It ended by itself with this status.
    Left(c_int),
}

impl Ending {
    /// From what the system knows of it, and from its last words, which are zero where it left none. They are not believed in
    /// anything but in what they say of the end.
    pub fn new(status: ExitStatus, words: [u64; WORDS]) -> Self {
        let [signal, about, is_out_of_memory] = words;
        let is_forbidden = signal == libc::SIGSYS as u64 && status.code() == Some(128 + libc::SIGSYS);
        match status.signal() {
            _ if is_forbidden => Self::Forbidden(Some(about)),
            Some(libc::SIGSYS) => Self::Forbidden(None),
            Some(same) if same as u64 == signal && about == READ_ONLY => Self::WroteToReadOnly,
            Some(same) if same as u64 == signal => {
                Self::Crashed { signal: same, is_out_of_memory: is_out_of_memory != 0 }
            }
            // A program of somebody's own leaves no words; nor does one that has no stack left for them.
            Some(crash) if CRASHES.contains(&crash) => Self::Crashed { signal: crash, is_out_of_memory: false },
            Some(other) => Self::Ended(other),
            None => Self::Left(status.code().unwrap_or(0)),
        }
    }
}

fn name_of_signal(signal: c_int) -> String {
    match signal {
        libc::SIGSEGV => "SIGSEGV".to_owned(),
        libc::SIGBUS => "SIGBUS".to_owned(),
        libc::SIGILL => "SIGILL".to_owned(),
        libc::SIGFPE => "SIGFPE".to_owned(),
        libc::SIGABRT => "SIGABRT".to_owned(),
        libc::SIGKILL => "SIGKILL".to_owned(),
        libc::SIGTERM => "SIGTERM".to_owned(),
        other => format!("signal {other}"),
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden(None) => {
                out.write_str("it made a system call that is forbidden in its process, as the start of a thread is")
            }
            Self::Forbidden(Some(number)) => match name_of(*number) {
                Some(name) => write!(out, "it called `{name}`, which is forbidden in its process"),
                None => write!(out, "it made the system call {number}, which is forbidden in its process"),
            },
            Self::WroteToReadOnly => out.write_str("it wrote to what it may only read"),
            Self::Crashed { signal, is_out_of_memory: false } => {
                write!(out, "it crashed ({})", name_of_signal(*signal))
            }
            Self::Crashed { signal, is_out_of_memory: true } => {
                write!(out, "it crashed ({}) when its `memory` had run out", name_of_signal(*signal))
            }
            Self::Ended(signal) => write!(out, "it was ended from outside ({})", name_of_signal(*signal)),
            Self::Left(status) => write!(out, "it ended by itself, with status {status}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn killed(signal: c_int) -> i32 {
        signal
    }

    const fn left(status: c_int) -> i32 {
        status << 8
    }

    fn told(status: i32, words: [u64; WORDS]) -> String {
        Ending::new(ExitStatus::from_raw(status), words).to_string()
    }

    #[test]
    fn what_ended_it_is_named() {
        let openat = libc::SYS_openat as u64;
        assert!(told(left(159), [31, openat, 0]).contains("called `openat`"));
        assert!(told(left(159), [31, 9999, 0]).contains("system call 9999"));
        assert_eq!(told(killed(11), [11, READ_ONLY, 0]), "it wrote to what it may only read");
        assert_eq!(told(killed(11), [11, 0, 0]), "it crashed (SIGSEGV)");
        assert_eq!(told(killed(6), [6, 0, 1]), "it crashed (SIGABRT) when its `memory` had run out");
        assert_eq!(told(killed(9), [0; 3]), "it was ended from outside (SIGKILL)");
        assert_eq!(told(killed(11), [0; 3]), "it crashed (SIGSEGV)", "without a word");
        assert!(told(killed(31), [0; 3]).starts_with("it made a system call that is forbidden"));
        assert_eq!(told(left(3), [0; 3]), "it ended by itself, with status 3");
    }

    #[test]
    fn words_that_do_not_fit_the_end_are_not_believed() {
        assert_eq!(told(killed(9), [11, READ_ONLY, 1]), "it was ended from outside (SIGKILL)");
        assert_eq!(told(left(0), [31, 257, 0]), "it ended by itself, with status 0");
    }
}
