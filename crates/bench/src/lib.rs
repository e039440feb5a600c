//! The figures of Ropewalk, each measured in turns with its limit.
//!
//! ```text
//!  run(name) -> builder | machines | scale | monitoring | framing | splitting | filtering | filing | crc | write
//!               | storing | start | demo | sizing | tcpla | felix | packet | gateway              one file per bench
//!                  ours, limit, limit, ours, ...               pairs: in turns; ratio: the median of their ratios
//!                  rows -> lines or a table                    session: prints the machine and the rows, keeps them
//! ```
//! A machine's own figures differ by a fifth from one minute to the next; a ratio of two figures of the same second is
//! more reliable than either.

#![forbid(unsafe_code)]

mod builder;
mod cable;
mod crc;
mod demo;
mod event_files;
mod felix;
mod filter;
mod fragments;
mod framing;
mod gateway;
mod machines;
mod monitoring;
mod packet;
mod pairs;
mod plugins;
mod scale;
mod session;
mod sizing;
mod splitter;
mod storing;
mod tcpla;
#[cfg(test)]
mod tests;

pub use pairs::median;
pub use ropewalk_doctor::Scale;
pub use session::{Cpu, ProcessCpu, Row, Session, text_of};

use ropewalk_doctor::DoctorError;
use std::io;
use std::path::{Path, PathBuf};

/// The options of a bench.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much is measured.
    pub scale: Scale,
    /// Whether to print one JSON object a line instead of a table.
    pub json: bool,
    /// Only cases whose text, `key=value key=value`, contains this.
    pub case: Option<String>,
    /// The lines are also written under this directory, in a subdirectory named after date and host.
    pub report: Option<PathBuf>,
    /// Whether to measure other programs for the same task too, if installed.
    pub peers: bool,
    /// The directory for benches that write; they remove their files.
    pub output: PathBuf,
    /// The product's program, for benches that start it.
    pub program: PathBuf,
}

impl Options {
    fn program(&self) -> Result<&Path, BenchError> {
        let is_there = self.program.is_file();
        is_there.then_some(&*self.program).ok_or_else(|| BenchError::NoProgram { program: self.program.clone() })
    }
}

/// The reason why a bench gave no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// There is no such bench.
    #[error("there is no bench `{name}`; there are {}", NAMES.join(", "))]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// No case was chosen.
    #[error("no case of `{name}` contains `{filter}`; without a filter all are measured")]
    NoCase {
        /// The bench.
        name: String,
        /// The requested filter.
        filter: String,
    },
    /// A bench starts the product, and the program does not exist.
    #[error("there is no {}, which this bench starts: build it, `cargo build --release`", program.display())]
    NoProgram {
        /// Its expected path.
        program: PathBuf,
    },
    /// The system refused an operation, or a result is wrong.
    #[error(transparent)]
    Measuring(#[from] DoctorError),
}

impl BenchError {
    fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| DoctorError::System { what, source }.into()
    }

    fn wrong(what: impl ToString) -> Self {
        DoctorError::wrong(what).into()
    }
}

/// The names of all benches.
pub const NAMES: &[&str] = &[
    "builder",
    "machines",
    "scale",
    "monitoring",
    "framing",
    "splitting",
    "filtering",
    "filing",
    "crc",
    "write",
    "storing",
    "start",
    "demo",
    "sizing",
    "tcpla",
    "felix",
    "packet",
    "gateway",
];

/// Whether smaller figures of this unit are better: times and losses. All others are rates, or ratios of them.
pub fn is_lower_better(unit: &str) -> bool {
    ["s", "us", "ns", "ns/event", "exponent", "ns, beside a raw socket", "%", "packets", "packets on their way"]
        .contains(&unit)
}

/// Runs a bench and prints its figures, or why a case failed, to `out`. Returns the number of failed cases.
///
/// # Errors
/// If the name is unknown, if the filter matches no case, or if the system refuses an operation.
pub fn run(name: &str, options: Options, out: &mut dyn io::Write) -> Result<usize, BenchError> {
    let bench = match name {
        "builder" => builder::bench,
        "machines" => machines::bench,
        "scale" => scale::bench,
        "monitoring" => monitoring::bench,
        "framing" => framing::bench,
        "splitting" => splitter::bench,
        "filtering" => filter::bench,
        "filing" => event_files::bench,
        "crc" => crc::bench,
        "write" => storing::bench_write,
        "storing" => storing::bench,
        "start" => demo::bench_start,
        "demo" => demo::bench,
        "sizing" => sizing::bench,
        "tcpla" => tcpla::bench,
        "felix" => felix::bench,
        "packet" => packet::bench,
        "gateway" => gateway::bench,
        _ => return Err(BenchError::Unknown { name: name.to_owned() }),
    };
    let mut session = Session::open(name, options, out)?;
    bench(&mut session)?;
    session.close(name)
}
