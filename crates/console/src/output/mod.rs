//! Everything that a program prints: results on standard output, and messages on standard error.
//!
//! ```text
//! say!   results --\                        /--> thread of standard output
//! tell!  words   ----> queues of the printer
//! live   table   --/                        \--> thread of standard error
//! ```
//!
//! A command that takes data calls [`start`] before anything else. From then on printing never waits and never fails,
//! even if the terminal was closed, was stopped with Ctrl-S, or is a pipe without a reader. Other commands write at
//! once and wait for the reader, such as a pager. [`finish`] waits for the last results, and reports lost ones.

mod printer;

use crate::exit::{self, Failure};
use printer::{Printer, Stream, write_whole};
use serde::Serialize;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How long to wait for the last results to be written.
const RESULTS_WAIT: Duration = Duration::from_secs(2);
/// The same for messages.
const WORDS_WAIT: Duration = Duration::from_millis(500);

static PRINTER: OnceLock<Printer> = OnceLock::new();
/// Why results of a command without a printer could not be written.
static FAULT: Mutex<Option<String>> = Mutex::new(None);

/// Prints a line of results on standard output.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::output::result(&format!($($words)*)) };
}

/// Prints a message on standard error.
#[macro_export]
macro_rules! tell {
    ($($words:tt)*) => { $crate::output::words(&format!($($words)*)) };
}

/// From now on printing never blocks.
///
/// # Errors
/// If standard output or standard error is closed, or no thread can be started.
pub fn start() -> io::Result<()> {
    let file =
        |stream: io::Result<std::os::fd::OwnedFd>| stream.map(|descriptor| Box::new(File::from(descriptor)) as _);
    let results = file(io::stdout().as_fd().try_clone_to_owned())?;
    let words = file(io::stderr().as_fd().try_clone_to_owned())?;
    let printer = Printer::start(results, words, owns_terminal)?;
    let _ = PRINTER.set(printer);
    ropewalk_plugin::process::print_with(words_of_plugin);
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::capture();
        let is_captured = backtrace.status() == std::backtrace::BacktraceStatus::Captured;
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name").to_owned();
        crate::tell!("thread {name} {panic}{}", if is_captured { format!("\n{backtrace}") } else { String::new() });
        if let Some(printer) = PRINTER.get() {
            printer.wait(Stream::Words, WORDS_WAIT);
        }
    }));
    Ok(())
}

fn words_of_plugin(line: &str) {
    words(line);
}

/// Prints a line of results.
pub fn result(line: &str) {
    write_results(format!("{line}\n").as_bytes());
}

/// Prints a line of results that a program reads.
pub fn awaited(line: &str) {
    match PRINTER.get() {
        Some(printer) => printer.add_awaited(format!("{line}\n").into_bytes()),
        None => result(line),
    }
}

/// Prints a line of JSON, which a program reads.
///
/// # Errors
/// If the value has no form in JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value).map_err(|error| Failure::Environment(error.to_string()))?;
    awaited(&line);
    Ok(())
}

/// Prints results as they are.
pub fn write_results(text: &[u8]) {
    if let Some(printer) = PRINTER.get() {
        return printer.add(Stream::Results, text.to_vec());
    }
    // A reader such as `head` may stop early.
    if let Err(error) = write_whole(&mut io::stdout().lock(), text)
        && error.kind() != ErrorKind::BrokenPipe
    {
        FAULT.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.to_string());
    }
}

/// Prints a message.
pub fn words(line: &str) {
    let line = format!("{line}\n");
    match PRINTER.get() {
        Some(printer) => printer.add(Stream::Words, line.into_bytes()),
        // The reader may be gone.
        None => _ = io::stderr().lock().write_all(line.as_bytes()),
    }
}

/// Whether this process is in the foreground of the terminal of standard error. In the background, redrawn lines would
/// erase the output of other programs, and the command that a user is typing.
pub fn owns_terminal() -> bool {
    rustix::termios::tcgetpgrp(io::stderr()).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Replaces the live lines on the terminal of standard error; `None` erases them. Draws nothing in the background.
pub fn live(lines: Option<String>) {
    if let Some(printer) = PRINTER.get() {
        printer.draw(lines);
    }
}

/// Waits for the output, for a bounded time. Returns the exit status, which tells whether results were lost.
pub fn finish(status: u8) -> u8 {
    let fault = match PRINTER.get() {
        Some(printer) => printer.end_results(RESULTS_WAIT).err(),
        None => FAULT.lock().unwrap_or_else(PoisonError::into_inner).take(),
    };
    if let Some(why) = &fault {
        crate::tell!("error: results are missing on standard output: {why}");
    }
    if let Some(printer) = PRINTER.get() {
        printer.wait(Stream::Words, WORDS_WAIT);
    }
    if fault.is_some() && status == exit::GOOD { exit::ENVIRONMENT } else { status }
}
