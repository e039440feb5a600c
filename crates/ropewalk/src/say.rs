//! Lines for people on standard output.

use std::fmt;
use std::io::{ErrorKind, Write};

/// Prints a line, as `println!` does. Who stops reading, as `head` does, has enough: a run goes on, and nobody panics.
macro_rules! say {
    ($($words:tt)*) => { $crate::say::line(format_args!($($words)*)) };
}

/// Writes a line; where that fails for another reason than that nobody reads, it is said where errors are.
pub(crate) fn line(words: fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{words}").and_then(|()| out.flush())
        && error.kind() != ErrorKind::BrokenPipe
    {
        eprintln!("error: standard output cannot be written: {error}");
    }
}
