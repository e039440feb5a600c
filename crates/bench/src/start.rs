//! `bench start`: from exec to the first event built, and beside it the same program that only says its version.

use crate::BenchError;
use crate::pairs::alternate;
use crate::session::{Row, Session, case};
use ropewalk_doctor::run::scratch;
use serde_json::json;
use std::process::{Command, Stdio};
use std::time::Instant;

const NOTE: &str =
    "from exec to the end of a demo of one event: built, written, drained, closed; target: 0.3 s; limit: --version";

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let case = case([("command", json!("demo --events 1"))]);
    session.measure(&case, |session| {
        let options = &session.options;
        let program = options.program()?;
        let output = scratch(&options.output, "start");
        let demo = || {
            let mut command = Command::new(program);
            command.args(["demo", "--events", "1", "--json", "--output"]).arg(&output);
            seconds(&mut command).map(|seconds| [seconds])
        };
        let version = || seconds(Command::new(program).arg("--version")).map(|seconds| [seconds]);
        let series = alternate(options.scale.choose(1, 9, 25), demo, version);
        // What is left behind is this process's own directory; the figure is good all the same.
        let _ = std::fs::remove_dir_all(&output);
        let [series] = series?;
        session.row(Row::of(&case, "s", &series, NOTE))
    })
}

/// How long a program takes from its start to its end in order.
fn seconds(command: &mut Command) -> Result<f64, BenchError> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let status = command.status().map_err(BenchError::system("starting the program"))?;
    let seconds = begin.elapsed().as_secs_f64();
    if status.success() { Ok(seconds) } else { Err(BenchError::wrong(status)) }
}
