//! What the process of a plug-in prints: its standard output and standard error are a pipe, and what comes out of it is told line by
//! line, each with the plug-in's name in front of it. So a plug-in has no way to the terminal of whoever runs it.
//!
//! A plug-in that prints much does not fill the terminal: [`Lines`] lets so many lines a second through, and says how many it left out.

use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// Bytes of a line that are told; the rest of a longer one is left out.
const MOST_BYTES: usize = 1000;
/// Lines that are told at once.
const BURST: f64 = 200.0;
/// Lines a second that are told from then on.
const A_SECOND: f64 = 20.0;
/// How long it is waited for the last lines.
const PATIENCE: Duration = Duration::from_millis(200);

/// Where lines are printed.
static PRINT: OnceLock<fn(&str)> = OnceLock::new();

/// From now on lines of plug-ins are printed by this function, and otherwise to standard error. What was said first counts.
pub fn print_with(print: fn(&str)) {
    let _ = PRINT.set(print);
}

fn print(line: &str) {
    match PRINT.get() {
        Some(print) => print(line),
        // Nobody may be there to read it.
        None => _ = writeln!(io::stderr(), "{line}"),
    }
}

/// What a plug-in is called: the file that it is, a library or the last program of the command.
pub(crate) fn name_of(library: &Path, command: &[PathBuf]) -> String {
    let is_library = !library.as_os_str().is_empty();
    // A program stands behind this program, its command, and two numbers.
    let file = if is_library { Some(library) } else { command.get(4).or(command.first()).map(PathBuf::as_path) };
    file.and_then(Path::file_name).unwrap_or(OsStr::new("plug-in")).to_string_lossy().into_owned()
}

/// The pipe of a plug-in's processes, and the thread that tells what comes out of it.
#[derive(Debug)]
pub(crate) struct Words {
    /// None as soon as nothing more is to come.
    pipe: Option<OwnedFd>,
    /// Is closed when everything is told.
    end: Receiver<()>,
}

impl Words {
    /// Starts the thread.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let (from, pipe) = pipe_with(PipeFlags::CLOEXEC)?;
        let (told, end) = sync_channel(0);
        let lines = Lines::new(name);
        std::thread::Builder::new().name("plug-in words".to_owned()).spawn(move || {
            tell(&mut File::from(from), lines, print);
            drop(told);
        })?;
        Ok(Self { pipe: Some(pipe), end })
    }

    /// Where a process may print to.
    pub(crate) fn pipe(&self) -> io::Result<OwnedFd> {
        self.pipe.as_ref().ok_or(io::ErrorKind::BrokenPipe)?.try_clone()
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        self.pipe = None;
        // A program may have left another one that has the pipe still.
        let _ = self.end.recv_timeout(PATIENCE);
    }
}

/// Tells what comes until nobody has the other end any more.
fn tell(from: &mut impl Read, mut lines: Lines, mut print: impl FnMut(&str)) {
    let (mut bytes, begin) = ([0; 4096], Instant::now());
    loop {
        match from.read(&mut bytes) {
            Ok(length @ 1..) => lines.add(begin.elapsed(), &bytes[..length], &mut print),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    lines.end(&mut print);
}

/// Makes lines of bytes, not too many and not too long.
#[derive(Debug)]
struct Lines {
    name: String,
    /// The line that has begun.
    line: Vec<u8>,
    /// Lines that may be told now, as of a time.
    allowed: f64,
    as_of: Duration,
    left_out: u64,
}

impl Lines {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), line: Vec::new(), allowed: BURST, as_of: Duration::ZERO, left_out: 0 }
    }

    /// These bytes came at this time.
    fn add(&mut self, now: Duration, bytes: &[u8], print: &mut impl FnMut(&str)) {
        self.allowed = BURST.min(self.allowed + A_SECOND * now.saturating_sub(self.as_of).as_secs_f64());
        self.as_of = now;
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (text, is_whole) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            let room = MOST_BYTES - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if is_whole {
                self.line_ends(print);
            }
        }
    }

    fn line_ends(&mut self, print: &mut impl FnMut(&str)) {
        if self.allowed < 1.0 {
            self.left_out += 1;
        } else {
            self.allowed -= 1.0;
            self.tell_left_out(print);
            print(&format!("{}: {}", self.name, harmless(&self.line)));
        }
        self.line.clear();
    }

    fn tell_left_out(&mut self, print: &mut impl FnMut(&str)) {
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            print(&format!("{}: {left_out} lines are left out", self.name));
        }
    }

    /// Nothing more comes.
    fn end(&mut self, print: &mut impl FnMut(&str)) {
        if !self.line.is_empty() {
            self.line_ends(print);
        }
        self.tell_left_out(print);
    }
}

/// A text that a terminal only shows: what would have it do something is replaced.
fn harmless(line: &[u8]) -> String {
    let is_shown = |letter: char| !letter.is_control() || letter == '\t';
    String::from_utf8_lossy(line).chars().map(|letter| if is_shown(letter) { letter } else { '\u{fffd}' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn told(parts: &[(Duration, &[u8])]) -> Vec<String> {
        let (mut lines, mut told) = (Lines::new("my.so"), Vec::new());
        let mut print = |line: &str| told.push(line.to_owned());
        parts.iter().for_each(|(now, bytes)| lines.add(*now, bytes, &mut print));
        lines.end(&mut print);
        told
    }

    #[test]
    fn each_line_has_the_plug_ins_name_and_nothing_that_a_terminal_does_something_at() {
        let parts: [(_, &[u8]); 3] = [(SECOND, b"one\ntw"), (SECOND, b"o\n\x1b]0;title\x07\r"), (SECOND, b"\xff\tend")];
        let third = "my.so: \u{fffd}]0;title\u{fffd}\u{fffd}\u{fffd}\tend";
        assert_eq!(told(&parts), ["my.so: one", "my.so: two", third]);
    }

    #[test]
    fn many_lines_are_left_out_and_counted_and_a_long_one_is_cut() {
        let many = b"line\n".repeat(1000);
        let lines = told(&[(SECOND, &many), (2 * SECOND, &many), (1000 * SECOND, b"last\n")]);
        let shown = lines.iter().filter(|line| line.ends_with(": line")).count();
        assert_eq!(shown, (BURST + A_SECOND) as usize);
        let tail = &lines[lines.len() - 2..];
        assert_eq!(tail, ["my.so: 980 lines are left out", "my.so: last"]);
        assert!(lines.contains(&"my.so: 800 lines are left out".to_owned()), "{lines:?}");
        assert_eq!(told(&[(SECOND, &b"x".repeat(5000))]), [format!("my.so: {}", "x".repeat(MOST_BYTES))]);
    }

    #[test]
    fn a_plug_in_is_called_by_its_file() {
        let program = ["/bin/ropewalk", "filter-program", "1", "2", "/opt/my-filter", "x"].map(PathBuf::from);
        assert_eq!(name_of(Path::new("/lib/threshold.so"), &program), "threshold.so");
        assert_eq!(name_of(Path::new(""), &program), "my-filter");
    }
}
