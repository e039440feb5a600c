//! `ropewalk top` and a run's live table on a real terminal, which `script` makes.

use crate::process::Program;
use crate::support::{Setup, wait_for};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// A program on a terminal of its own.
struct OnTerminal {
    child: Child,
    shown: Arc<Mutex<String>>,
}

impl OnTerminal {
    /// Starts `ropewalk` with these words on a terminal of 120 columns.
    fn start(words: &str) -> Self {
        let command = format!("stty rows 40 cols 120; exec {} {words}", env!("CARGO_BIN_EXE_ropewalk"));
        let mut child = Command::new("script")
            .args(["--quiet", "--return", "--flush", "--command", &command, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`script` of bsdutils");
        let mut out = child.stdout.take().expect("it is piped");
        let shown = Arc::new(Mutex::new(String::new()));
        let whole = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut bytes) {
                whole
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { child, shown }
    }

    /// Waits until all of these words were drawn since the terminal was made. Between words there may be jumps.
    fn expect(&self, texts: &[&str]) {
        wait_for(&format!("{texts:?}"), || {
            let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            texts.iter().all(|text| shown.contains(text)).then_some(())
        });
    }

    fn press(&mut self, keys: &str) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        input.write_all(keys.as_bytes()).and_then(|()| input.flush()).expect("it reads");
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_terminal_shows_a_run_and_keys_turn_pages_and_leave() {
    let setup = Setup::new("top", &[841, 843]);
    let file = setup.file();
    let mut run = Program::start(["run".as_ref(), file.as_os_str(), "--control".as_ref(), "127.0.0.1:0".as_ref()]);
    let url = run.expect_error_line("run control and dashboard: ");
    let mut top = OnTerminal::start(&format!("top --url {url}"));
    top.expect(&["RUNNING", "sources", "quit"]);
    // Drawn anew, or letters that stood there already would be missing.
    top.press("2\x0c");
    top.expect(&["ru0", "bu0", "connected"]);
    top.press("5\x0c");
    top.expect(&["start,", "command"]);
    top.press("?\x0c");
    top.expect(&["everything"]);
    run.interrupt();
    run.end();
    top.press("\x0c");
    top.expect(&["ANSWER:"]);
    top.press("q");
    let status = wait_for("the end", || top.child.try_wait().expect("a child"));
    assert!(status.success(), "{status}");
}

#[test]
fn a_run_on_a_terminal_draws_a_table_and_leaves_its_account() {
    let setup = Setup::new("live-table", &[841]);
    let output = setup.output().display().to_string();
    let options = "--duration 2s --rate 1kHz --sources 2 --fragment-size 1KiB --control 127.0.0.1:0";
    let mut demo = OnTerminal::start(&format!("demo {options} --output {output}"));
    demo.expect(&["run 1 running", "to disk", "in flight", "events assigned", "balanced"]);
    let status = wait_for("the end", || demo.child.try_wait().expect("a child"));
    assert!(status.success(), "{status}");
}

#[test]
fn a_pipe_and_a_server_that_is_not_there_are_refused_in_words() {
    let piped = Program::run(["top"]);
    assert!(piped.expect_status(2).errors.contains("draws on a terminal"), "{piped:#?}");
    let mut lonely = OnTerminal::start("top --url http://127.0.0.1:1");
    lonely.expect(&["is there a `ropewalk run ... --control ADDRESS`?"]);
    let status = wait_for("the end", || lonely.child.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(4));
}
