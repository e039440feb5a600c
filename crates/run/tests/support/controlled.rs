//! Front ends under run control: the example programs, and a test client that speaks the protocol.

use super::setup::{free_port, wait_for};
use super::{generic_header, generic_hello};
use ropewalk_terms::{RunNumber, SourceId};
use ropewalk_wire::front_end::{Command as Told, FRAME_BYTES, Frame, Held, Hello, Stage, Stopped, Vetoed, Word};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns an address without a listener.
pub(crate) fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}

/// A program that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
}

impl Program {
    /// Starts one of the examples in C, which is compiled first.
    pub(crate) fn in_c(name: &str, control: &str, source: u32, more: &[&str]) -> Self {
        let mut command = Command::new(compiled(name));
        command.args(["--control", control, "--source", &source.to_string()]).args(more);
        Self { child: command.stdout(Stdio::piped()).spawn().expect("it starts") }
    }

    /// Starts the example in Python.
    pub(crate) fn in_python(control: &str, source: u32) -> Self {
        Self::python("examples/own-hardware/slow_control.py", &["--control", control, "--source", &source.to_string()])
    }

    /// Starts a trigger source in Python, which shows its triggers to no other front end.
    pub(crate) fn trigger_in_python(control: &str) -> Self {
        Self::python("crates/run/tests/support/trigger.py", &[control])
    }

    fn python(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new("python3");
        command.arg(project().join(program)).args(arguments);
        command.env("PYTHONPATH", project().join("bindings/python")).env("PYTHONDONTWRITEBYTECODE", "1");
        Self { child: command.spawn().expect("it starts") }
    }

    /// Returns the port at which the trigger's program shows triggers, as it reports.
    pub(crate) fn line(&mut self) -> String {
        let said = self.child.stdout.take().expect("it is piped");
        let mut text = String::new();
        BufReader::new(said).read_line(&mut text).expect("it says something");
        format!("127.0.0.1:{}", text.trim().strip_prefix("line ").expect("a port"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the example in C with this name, compiled once for each process.
fn compiled(name: &str) -> PathBuf {
    static PROGRAMS: OnceLock<[PathBuf; 2]> = OnceLock::new();
    let programs = PROGRAMS.get_or_init(|| ["trigger", "telescope"].map(compile));
    programs[usize::from(name != "trigger")].clone()
}

fn compile(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2", "-I"];
    let (bindings, examples) = (project().join("bindings/c"), project().join("examples/own-hardware"));
    let mut cc = Command::new("cc");
    cc.args(flags).arg(&bindings).arg("-o").arg(&program);
    let status = cc.arg(examples.join(name).with_extension("c")).arg(bindings.join("ropewalk_source.c")).status();
    assert!(status.expect("cc is there").success(), "{name}.c does not compile");
    program
}

/// Misbehaviour of a test front end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// None.
    Good,
    /// It never answers this command.
    Ignores(&'static str),
    /// It speaks version 1 of the protocol.
    Old,
}

/// A test front end on a thread. Source 1 is the trigger; any other one follows the trigger's line, or sends nothing
/// without one.
#[derive(Debug)]
pub(crate) struct OwnFrontEnd {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl OwnFrontEnd {
    pub(crate) fn new(control: &str, source: u32, line: Option<String>, manner: Manner) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (control, over) = (control.to_owned(), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || Client::new(&control, source, line, manner).run(&over));
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for OwnFrontEnd {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the front end of the test's own panicked");
        }
    }
}

struct Client {
    source: u32,
    manner: Manner,
    control: TcpStream,
    incoming: Vec<u8>,
    line: Option<String>,
    triggers: Option<TcpStream>,
    seen: Vec<u8>,
    data: Option<TcpStream>,
    run: RunNumber,
    first: Option<u64>,
    last: Option<u64>,
    sent: u64,
    stop: Option<Option<u64>>,
    /// For the trigger source: whether triggers are generated, and whether they make events.
    is_enabled: bool,
    is_held: bool,
}

impl Client {
    fn new(control: &str, source: u32, line: Option<String>, manner: Manner) -> Self {
        let control = wait_for("run control", || TcpStream::connect(control).ok());
        control.set_read_timeout(Some(Duration::from_millis(1))).expect("a plain socket");
        let mut client = Self {
            source,
            manner,
            control,
            incoming: Vec::new(),
            line,
            triggers: None,
            seen: Vec::new(),
            data: None,
            run: RunNumber(0),
            first: None,
            last: None,
            sent: 0,
            stop: None,
            is_enabled: false,
            is_held: false,
        };
        let version = if manner == Manner::Old { 1 } else { 2 };
        client.say(&Word::Hello(Hello { version, ..Hello::new(SourceId(source), "test") }));
        client
    }

    fn run(&mut self, is_over: &AtomicBool) {
        let mut bytes = vec![0; 1 << 16];
        while !is_over.load(Ordering::Relaxed) {
            match self.control.read(&mut bytes) {
                Ok(0) => return,
                Ok(count) => self.incoming.extend_from_slice(&bytes[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return,
            }
            while let Some((command, length)) = next(&self.incoming) {
                self.incoming.drain(..length);
                self.obey(command);
            }
            self.read_out(&mut bytes);
            self.trigger();
            self.finish();
        }
    }

    fn say(&mut self, word: &Word) {
        let mut bytes = Vec::new();
        word.encode(&mut bytes);
        // Run control may have ended. Then the next read reports it.
        let _ = self.control.write_all(&bytes);
    }

    fn obey(&mut self, command: Told) {
        if let Manner::Ignores(kind) = self.manner
            && format!("{:?}", command.kind()) == kind
        {
            return;
        }
        match command {
            Told::Configure(configure) => {
                self.run = configure.run;
                (self.first, self.last, self.sent, self.stop) = (None, None, 0, None);
                self.seen.clear();
                // The readout unit may begin to listen only after run control does.
                let mut data = wait_for("the readout unit", || TcpStream::connect(&configure.address).ok());
                data.write_all(&generic_hello(self.source)).expect("it reads");
                self.data = Some(data);
                self.triggers = self.line.as_ref().map(|line| TcpStream::connect(line).expect("the trigger listens"));
                if let Some(triggers) = &self.triggers {
                    triggers.set_nonblocking(true).expect("a plain socket");
                }
                self.say(&Word::Ready(configure.run));
            }
            Told::Start(start) => self.say(&Word::Started(start.run)),
            Told::Stop(stop) => self.stop = Some(stop.last),
            Told::Enable(run) if self.source == 1 => {
                self.is_enabled = true;
                self.say(&Word::Enabled(run));
            }
            Told::Veto(run) if self.source == 1 => {
                (self.is_enabled, self.is_held) = (false, false);
                let last = self.last.unwrap_or(0);
                self.say(&Word::Vetoed(Vetoed { run, last, issued: last, vetoed: Vec::new() }));
            }
            Told::Hold(run) if self.source == 1 && self.manner != Manner::Old => {
                self.is_held = true;
                self.say(&Word::Held(Held { run, last: self.last.unwrap_or(0) }));
            }
            Told::Release(run) if self.source == 1 && self.manner != Manner::Old => {
                self.is_held = false;
                self.say(&Word::Released(run));
            }
            Told::Ping => {
                let status =
                    ropewalk_wire::front_end::Status { run: self.run, stage: Stage::Started, ..Default::default() };
                self.say(&Word::Status(status));
            }
            Told::Welcome(version) => assert_eq!(version, if self.manner == Manner::Old { 1 } else { 2 }),
            other => panic!("not for source {}, which is {:?}: {other:?}", self.source, self.manner),
        }
    }

    fn read_out(&mut self, bytes: &mut [u8]) {
        let (Some(triggers), Some(data)) = (&mut self.triggers, &mut self.data) else { return };
        let Ok(count) = triggers.read(bytes) else { return };
        self.seen.extend_from_slice(&bytes[..count]);
        let mut out = Vec::new();
        let whole = self.seen.len() / 16 * 16;
        for trigger in self.seen[..whole].chunks_exact(16) {
            let [event, time] = [0, 8].map(|at| u64::from_le_bytes(trigger[at..at + 8].try_into().expect("8 bytes")));
            // Sends the trigger's time, as the other front ends do: with unrelated times the source counts as
            // displaced.
            out.extend_from_slice(&generic_header(self.source, event, 8)[..24]);
            out.extend_from_slice(&time.to_le_bytes());
            out.extend_from_slice(&event.to_le_bytes());
            self.first.get_or_insert(event);
            self.last = Some(event);
            self.sent += 1;
        }
        self.seen.drain(..whole);
        data.write_all(&out).expect("the readout unit reads");
    }

    /// Generates a trigger at each call.
    fn trigger(&mut self) {
        let Some(data) = self.data.as_mut().filter(|_| self.is_enabled && !self.is_held) else { return };
        let event = self.last.unwrap_or(0) + 1;
        let fragment = [&generic_header(self.source, event, 8)[..], &event.to_le_bytes()].concat();
        data.write_all(&fragment).expect("the readout unit reads");
        self.first.get_or_insert(event);
        (self.last, self.sent) = (Some(event), self.sent + 1);
    }

    /// Answers a stop when everything was sent.
    fn finish(&mut self) {
        let Some(last) = self.stop else { return };
        if self.triggers.is_some() && last.is_some_and(|last| last > 0 && self.last < Some(last)) {
            return;
        }
        (self.stop, self.data) = (None, None);
        let Self { run, first, last, sent, .. } = *self;
        self.say(&Word::Stopped(Stopped { run, first, last, sent }));
    }
}

/// Returns the first command in some bytes, and its length.
fn next(bytes: &[u8]) -> Option<(Told, usize)> {
    let frame = Frame::parse(bytes.first_chunk()?).expect("a frame");
    let length = FRAME_BYTES + frame.body as usize;
    let body = bytes.get(FRAME_BYTES..length)?;
    Some((Told::decode(frame.kind, body).expect("a command"), length))
}
