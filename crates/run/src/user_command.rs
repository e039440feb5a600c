//! The system user, and commands configured by the user. Each command is started in its own process group, so that its
//! children end with it, and is ended at its time-out.

use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, getuid, kill_process_group};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pause between two checks of a command: the shortest one, just after its start, and the longest one.
const LOOK: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(5));

/// Creates a command from its words: a program and its arguments.
pub fn of_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Command {
    let mut words = words.into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).process_group(0);
    command
}

/// Checks that the program of a command can be executed. An empty list is accepted as no command.
///
/// # Errors
/// If there is no such file, in the directories of `PATH` for a name without a slash, or this user may not execute it.
pub fn check(words: &[String]) -> Result<(), String> {
    let Some(program) = words.first() else { return Ok(()) };
    let may_execute = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if !program.contains('/') {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there = std::env::split_paths(&path).any(|directory| may_execute(&directory.join(program)));
        return if is_there { Ok(()) } else { Err(format!("`{program}` is in no directory of PATH")) };
    }
    let path = Path::new(program);
    match std::fs::metadata(path) {
        Err(error) => Err(format!("`{program}`: {error}")),
        Ok(_) if !may_execute(path) => Err(format!("`{program}` is not executable: chmod +x {program}")),
        Ok(_) => Ok(()),
    }
}

/// Returns the name of the system user who runs this process, or the number of a user without a name.
pub fn system_user() -> String {
    let id = getuid().as_raw();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        // An HTTP header only takes ASCII.
        (fields.nth(1)?.parse() == Ok(id) && name.is_ascii()).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("uid {id}"))
}

/// Waits for the end of a command started in this way; `None` if it had to be ended, after `timeout` or because it is
/// halted.
pub fn wait(child: &mut Child, timeout: Duration, is_halted: &AtomicBool) -> Option<ExitStatus> {
    let begin = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if begin.elapsed() >= timeout || is_halted.load(Ordering::Acquire) {
            // A command that has ended meanwhile needs no signal.
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
            let _ = child.wait();
            return None;
        }
        std::thread::sleep((begin.elapsed() / 8).clamp(LOOK.0, LOOK.1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_cannot_be_executed_is_refused_with_its_reason() {
        let why = |program: &str| check(&[program.to_owned()]).expect_err("it cannot be executed");
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&["sh".to_owned(), "-c".to_owned()]), Ok(()));
        assert_eq!(check(&["/bin/sh".to_owned()]), Ok(()));
        assert!(why("ropewalk-no-such-program").contains("in no directory of PATH"));
        assert!(why("/no/such/program").contains("No such file"));
        for program in ["/etc/passwd", "/tmp"] {
            assert!(why(program).contains("is not executable"), "{program}");
        }
    }
}
