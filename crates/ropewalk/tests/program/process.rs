//! The program in a separate process, with its output line by line.

use crate::support::{PATIENCE, TemporaryDirectory};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

/// Lines that a thread reads as they arrive.
#[derive(Debug)]
struct Lines {
    lines: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&lines);
        let thread = std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                shared.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Self { lines, thread: Some(thread) }
    }

    fn so_far(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn all(&mut self) -> Vec<String> {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("reading lines does not fail");
        }
        self.so_far()
    }
}

/// A running program; killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    out: Lines,
    errors: Lines,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit status; `None` if a signal ended it.
    pub(crate) status: Option<i32>,
    /// The lines of stdout.
    pub(crate) out: Vec<String>,
    /// The text of stderr.
    pub(crate) errors: String,
}

impl Ended {
    /// The last line of stdout, which is the account.
    pub(crate) fn account(&self) -> Value {
        let line = self.out.last().unwrap_or_else(|| panic!("no account: {self:#?}"));
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// Checks the exit status, and that nothing panicked.
    pub(crate) fn expect_status(&self, status: i32) -> &Self {
        assert!(!self.errors.contains("panicked"), "{self:#?}");
        assert_eq!(self.status, Some(status), "{self:#?}");
        self
    }
}

impl Program {
    /// Starts the program with these arguments.
    pub(crate) fn start<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Self {
        Self::reading(Stdio::null(), arguments)
    }

    /// The same with a standard input.
    pub(crate) fn reading<A: AsRef<OsStr>>(input: Stdio, arguments: impl IntoIterator<Item = A>) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(arguments);
        Self::spawn(command.stdin(input))
    }

    /// Starts the program with a limit on its open files and connections.
    pub(crate) fn with_descriptors<A: AsRef<OsStr>>(most: u64, arguments: impl IntoIterator<Item = A>) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {most} && exec \"$0\" \"$@\""), PROGRAM]).args(arguments);
        Self::spawn(command.stdin(Stdio::null()))
    }

    /// Starts the program with this environment variable.
    pub(crate) fn with_variable<A: AsRef<OsStr>>(
        (name, value): (&str, &str),
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env(name, value);
        Self::spawn(command.stdin(Stdio::null()))
    }

    fn spawn(command: &mut Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program was built");
        let out = Lines::of(child.stdout.take().expect("it was asked for"));
        let errors = Lines::of(child.stderr.take().expect("it was asked for"));
        Self { child, out, errors }
    }

    /// Starts the program and waits for its end.
    pub(crate) fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Ended {
        Self::start(arguments).end()
    }

    /// Waits for a line of stdout with this beginning, and returns the rest of it.
    pub(crate) fn expect_line(&mut self, begin: &str) -> String {
        self.expect(begin, |program| {
            program.out.so_far().iter().find_map(|line| line.strip_prefix(begin).map(str::to_owned))
        })
    }

    /// Like [`Program::expect_line`], for the n-th of such lines, counted from 1.
    pub(crate) fn expect_line_number(&mut self, number: usize, begin: &str) -> String {
        self.expect(begin, |program| {
            let lines = program.out.so_far();
            lines.iter().filter_map(|line| line.strip_prefix(begin)).nth(number - 1).map(str::to_owned)
        })
    }

    /// Waits for a line of stdout for which `look` returns a value.
    pub(crate) fn expect_line_where<T>(&mut self, what: &str, look: impl Fn(&str) -> Option<T>) -> T {
        self.expect(what, |program| program.out.so_far().iter().find_map(|line| look(line)))
    }

    /// Like [`Program::expect_line`], for stderr.
    pub(crate) fn expect_error_line(&mut self, begin: &str) -> String {
        self.expect(begin, |program| {
            program.errors.so_far().iter().find_map(|line| line.strip_prefix(begin).map(str::to_owned))
        })
    }

    /// Waits for a line of stderr that contains this text.
    pub(crate) fn expect_error_line_with(&mut self, text: &str) {
        self.expect(text, |program| program.errors.so_far().iter().any(|line| line.contains(text)).then_some(()))
    }

    fn expect<T>(&mut self, what: &str, look: impl Fn(&Self) -> Option<T>) -> T {
        let begin = std::time::Instant::now();
        loop {
            // In this order: its last lines before the end are still found.
            let has_ended = self.has_ended();
            if let Some(found) = look(self) {
                return found;
            }
            if has_ended {
                let (out, errors) = (self.out.all(), self.errors.all());
                return look(self)
                    .unwrap_or_else(|| panic!("it ended without a line with `{what}`: {out:#?} {errors:#?}"));
            }
            if begin.elapsed() > PATIENCE {
                let (out, errors) = (self.out.so_far(), self.errors.so_far());
                panic!("waited in vain for a line with `{what}`: {out:#?} {errors:#?}");
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends the signal of Ctrl-C.
    pub(crate) fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Stops the process without its knowledge.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues the stopped process.
    pub(crate) fn wake(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is our child and lives");
    }

    /// Kills the process like `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> Ended {
        let begin = std::time::Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            if begin.elapsed() > PATIENCE {
                let (out, errors) = (self.out.so_far(), self.errors.so_far());
                panic!("the program does not end: {out:#?} {errors:#?}");
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        };
        Ended { status: status.code(), out: self.out.all(), errors: self.errors.all().join("\n") }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Fails if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copies `examples/NAME` to `directory` with these changes, and returns its path. Each changed text must be in the
/// example.
pub(crate) fn example(directory: &TemporaryDirectory, name: &str, changes: &[(&str, &str)]) -> String {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let mut text = std::fs::read_to_string(example).expect("the example is there");
    for (from, to) in changes {
        assert!(text.contains(from), "{name} has no `{from}`");
        text = text.replace(from, to);
    }
    // On a busy machine a test may take longer than the example runs. The test ends its runs itself.
    let text = text.replace("\nduration = \"10s\"\n", "\nduration = \"1000s\"\n");
    let file = directory.path().join(name);
    std::fs::write(&file, text).expect("a file can be written");
    file.display().to_string()
}
