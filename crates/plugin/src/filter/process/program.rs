//! A program that is a filter: the process gives up what such a program does not need, and becomes it.

use crate::confinement::Confinement;
use rustix::net::{SendFlags, send};
use std::ffi::OsString;
use std::io::{self, Write, stdin};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Becomes this program with its arguments, which is then a filter's process of the one who started this: standard input is the
/// socket of that one. It may take so many bytes of memory of its own. Returns where that cannot be; the other side was told why then.
pub fn become_program(memory: u64, starter: u32, program: &OsString, arguments: &[OsString]) -> io::Error {
    let confinement = Confinement { memory, starter, speaks_over: Vec::new() };
    let why = match confinement.before_program() {
        Ok(missing) => {
            // The reader may be gone.
            missing.texts().for_each(|text| _ = writeln!(io::stderr(), "filter: {text}"));
            let error = Command::new(program).args(arguments).exec();
            format!("`{}` cannot be started: {error}", program.to_string_lossy())
        }
        Err(error) => format!("it cannot give up its rights: {error}"),
    };
    // Where nobody is there any more nobody needs to hear it.
    let _ = send(stdin().as_fd(), format!("E{why}").as_bytes(), SendFlags::NOSIGNAL);
    io::Error::other(why)
}
