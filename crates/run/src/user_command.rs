//! Commands of the user's: started as a group of their own, so that their children end with them, and ended when they
//! take too long.

use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The pause between two checks of a command: the shortest one just after its start, and the longest one.
const LOOK: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(5));

/// A command by its words: a program and its arguments.
pub fn of_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Command {
    let mut words = words.into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).process_group(0);
    command
}

/// Waits for the end of one that was started so; `None` if it had to be ended, after `timeout` or because it is halted.
pub fn wait(child: &mut Child, timeout: Duration, is_halted: &AtomicBool) -> Option<ExitStatus> {
    let begin = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if begin.elapsed() >= timeout || is_halted.load(Ordering::Acquire) {
            // One that has ended meanwhile needs no signal.
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
            let _ = child.wait();
            return None;
        }
        std::thread::sleep((begin.elapsed() / 8).clamp(LOOK.0, LOOK.1));
    }
}
