//! Telling hardware the throttle's state: by datagrams, or by a command.

use crate::drive::gateway::{Shown, ThrottleBoard};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A command that takes longer is killed.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a thread without anything to tell sleeps.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How often it is looked whether a command has ended.
const LOOK: Duration = Duration::from_millis(1);

/// How hardware is told.
#[derive(Clone, Debug)]
pub(in crate::run) enum Way {
    /// Datagrams to this address, at each change and after each such time.
    Datagrams(SocketAddrV4, Duration),
    /// A command with its arguments, at each change.
    Command(Vec<String>),
}

/// A thread that tells hardware until the board is closed.
#[derive(Debug)]
pub(in crate::run) struct Hardware {
    thread: JoinHandle<()>,
    board: Arc<ThrottleBoard>,
}

impl Hardware {
    /// Starts it.
    ///
    /// # Errors
    /// Where the system gives no socket or no thread.
    pub(in crate::run) fn start(gateway: &str, way: Way, board: Arc<ThrottleBoard>) -> io::Result<Self> {
        let (gateway, read) = (gateway.to_owned(), Arc::clone(&board));
        let builder = std::thread::Builder::new().name(format!("{gateway}-tts"));
        let thread = match way {
            Way::Datagrams(to, repeat) => {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
                builder.spawn(move || tell(&read, repeat, |shown, _| Some(send(&socket, to, &gateway, shown))))
            }
            // Of states that came and went during a call only the last one counts.
            Way::Command(words) => builder.spawn(move || {
                tell(&read, LONGEST_WAIT, |shown, is_new| is_new.then(|| call(&words, &gateway, shown)));
            }),
        };
        Ok(Self { thread: thread?, board })
    }

    /// Tells the end, and waits until it is told.
    pub(super) fn finish(self) {
        self.board.close();
        // A thread that panicked has nothing more to tell.
        let _ = self.thread.join();
    }
}

/// Tells what stands on the board, whether it is new or only old enough to be said again, until the board is closed.
fn tell(board: &ThrottleBoard, repeat: Duration, mut tell: impl FnMut(&Shown, bool) -> Option<Result<(), String>>) {
    let mut told = 0;
    loop {
        let shown = board.wait(told, repeat);
        if let Some(outcome) = tell(&shown, shown.changes != told) {
            board.note(outcome);
        }
        told = shown.changes;
        if shown.is_over {
            return;
        }
    }
}

fn send(socket: &UdpSocket, to: SocketAddrV4, gateway: &str, shown: &Shown) -> Result<(), String> {
    let text = format!("{gateway} {} {}\n", shown.state.name(), shown.changes);
    socket.send_to(text.as_bytes(), to).map(drop).map_err(|error| format!("{to}: {error}"))
}

/// Calls the command with `{gateway}` and `{state}` filled in, and waits for its end.
fn call(words: &[String], gateway: &str, shown: &Shown) -> Result<(), String> {
    let fill = |word: &String| word.replace("{gateway}", gateway).replace("{state}", shown.state.name());
    let words: Vec<String> = words.iter().map(fill).collect();
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let failed = |what: String| format!("{program}: {what}");
    let nothing = Stdio::null;
    let child = Command::new(program).args(arguments).stdin(nothing()).stdout(nothing()).stderr(nothing()).spawn();
    let mut child = child.map_err(|error| failed(format!("cannot be called: {error}")))?;
    let until = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(failed(format!("ended with {status}"))),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            Ok(None) => {
                // Whether it could be killed or had just ended: it is waited for, so that it leaves nothing behind.
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(format!("took longer than {} s and was killed", PATIENCE.as_secs())));
            }
            Err(error) => return Err(failed(error.to_string())),
        }
    }
}
