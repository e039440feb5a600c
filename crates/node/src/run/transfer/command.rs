//! The user's command for one file: it is run, watched, and asked for the checksum of what has arrived.

use super::places::Found;
use crate::user_command;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// So long is waited for the last words of a command that has ended; somebody whom it started may keep its output open.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// A line is cut behind so many bytes.
const LINE_BYTES: u64 = 4096;

/// Why a file was not transferred.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The file here, or what stands beside it.
    #[error("the run file cannot be read, marked or deleted: {0}")]
    File(io::Error),
    /// The command cannot be started.
    #[error("`{program}` cannot be started: {error}; see `command` of [storage.transfer]")]
    Start { program: String, error: io::Error },
    /// The command says that it failed.
    #[error("`{program}` ended with {status}: {said}")]
    Status { program: String, status: ExitStatus, said: String },
    /// It took too long.
    #[error("`{program}` was ended: it took longer than {timeout:?}; see `timeout` of [storage.transfer]")]
    TimedOut { program: String, timeout: Duration },
    /// The run is over.
    #[error("`{program}` was ended with the run")]
    Halted { program: String },
    /// What it said last is no checksum.
    #[error(
        "the last line of `{program}` is `{said}`: it should begin with the file's CRC-32C in eight hexadecimal digits"
    )]
    NoChecksum { program: String, said: String },
    /// Something else has arrived.
    #[error("the file has the checksum {here:08x}, and what has arrived {there:08x}")]
    WrongChecksum { here: u32, there: u32 },
}

/// What is done for each file.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) command: Vec<String>,
    pub(super) checksum: Option<Vec<String>>,
    pub(super) delete: bool,
    pub(super) timeout: Duration,
    /// What runs is to be ended.
    pub(super) is_halted: Arc<AtomicBool>,
}

impl Order {
    /// Runs the command, and the one that tells the checksum where it is another one; returns the checksum.
    pub(super) fn carry_out(&self, file: &Found) -> Result<u32, Failure> {
        let mut said = self.run(&self.command, file)?;
        let mut teller = &self.command;
        if let Some(checksum) = &self.checksum {
            (said, teller) = (self.run(checksum, file)?, checksum);
        }
        read_checksum(&said).ok_or_else(|| Failure::NoChecksum { program: program_of(teller), said })
    }

    /// Runs a command; returns the last line that it wrote.
    fn run(&self, words: &[String], file: &Found) -> Result<String, Failure> {
        let program = program_of(words);
        let words: Vec<_> =
            words.iter().take(1).cloned().chain(words.iter().skip(1).map(|word| filled(word, file))).collect();
        let mut command = user_command::of_words(words.iter().map(String::as_str));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Err(Failure::Start { program, error }),
        };
        let said = [child.stdout.take().map(last_line), child.stderr.take().map(last_line)];
        let ended = user_command::wait(&mut child, self.timeout, &self.is_halted);
        let [out, errors] =
            said.map(|line| line.and_then(|line| line.recv_timeout(LAST_WORDS).ok()).unwrap_or_default());
        match ended {
            Some(status) if status.success() => Ok(out),
            Some(status) => {
                Err(Failure::Status { program, status, said: if errors.is_empty() { out } else { errors } })
            }
            None if self.is_halted.load(Ordering::Acquire) => Err(Failure::Halted { program }),
            None => Err(Failure::TimedOut { program, timeout: self.timeout }),
        }
    }
}

fn program_of(words: &[String]) -> String {
    words.first().cloned().unwrap_or_default()
}

/// A word of the command for this file.
fn filled(word: &str, file: &Found) -> String {
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    word.replace("{file}", &file.path.display().to_string())
        .replace("{name}", &name)
        .replace("{run}", &format!("{:06}", file.run))
}

/// The checksum that a line begins with.
pub(super) fn read_checksum(line: &str) -> Option<u32> {
    let word = line.split_whitespace().next()?;
    (word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| u32::from_str_radix(word, 16).ok())?
}

/// Reads what somebody writes, on a thread of its own so that nobody waits for a reader; tells the last line at the end.
fn last_line(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, line) = channel();
    std::thread::spawn(move || {
        let (mut stream, mut last, mut next) = (BufReader::new(stream), String::new(), Vec::new());
        while (&mut stream).take(LINE_BYTES).read_until(b'\n', &mut next).is_ok_and(|bytes| bytes > 0) {
            let text = String::from_utf8_lossy(&next);
            if !text.trim().is_empty() {
                text.trim().clone_into(&mut last);
            }
            next.clear();
        }
        // Whoever waited may have gone.
        let _ = sender.send(last);
    });
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_filled_with_what_the_file_is() {
        let file = Found { path: "/data/run000007/run000007-bu0-000002.rwk".into(), run: 7 };
        let filled = ["{file}", "host:/{run}/{name}", "-a"].map(|word| filled(word, &file));
        let expected = ["/data/run000007/run000007-bu0-000002.rwk", "host:/000007/run000007-bu0-000002.rwk", "-a"];
        assert_eq!(filled, expected);
    }

    #[test]
    fn a_checksum_is_eight_digits_and_nothing_less() {
        assert_eq!(read_checksum("e3069283  file"), Some(0xe306_9283));
        assert_eq!(read_checksum("E3069283"), Some(0xe306_9283));
        for line in ["", "e306928", "e30692833", "+3069283", "sent e3069283"] {
            assert_eq!(read_checksum(line), None, "{line}");
        }
    }
}
