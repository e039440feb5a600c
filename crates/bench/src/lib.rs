//! The figures of Ropewalk, each measured in turns with its limit.
//!
//! ```text
//!  run(name) -> builder | machines | scale | monitoring | framing | splitting | filtering | filing | crc | write | storing | start | sizing | tcpla | felix | packet | gateway   one file per bench
//!                  ours, limit, limit, ours, ...               pairs: taken in turns, the ratio is the median of the
//!                                                              pairs' ratios
//!                  rows -> lines or a table                    session: says what machine it was, prints, keeps
//! ```
//! A machine differs from itself by a fifth from one minute to the next; a ratio of two figures of the same second
//! says more than either.

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

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much is measured.
    pub scale: Scale,
    /// One JSON object a line instead of a table.
    pub json: bool,
    /// Only cases whose text, `key=value key=value`, contains this.
    pub case: Option<String>,
    /// The lines are also written under this directory, in one named after date and host.
    pub report: Option<PathBuf>,
    /// Other programs that do the same are measured too, where they are installed.
    pub peers: bool,
    /// Where a bench that writes may write; it removes what it wrote.
    pub output: PathBuf,
    /// The product's program, for benches that start it.
    pub program: PathBuf,
}

impl Options {
    /// The product's program.
    fn program(&self) -> Result<&Path, BenchError> {
        let is_there = self.program.is_file();
        is_there.then_some(&*self.program).ok_or_else(|| BenchError::NoProgram { program: self.program.clone() })
    }
}

/// Why a bench gave no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// There is no such bench.
    #[error("there is no bench `{name}`; there are {}", NAMES.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// No case was chosen.
    #[error("no case of `{name}` contains `{filter}`; without a filter all are measured")]
    NoCase {
        /// The bench.
        name: String,
        /// What was asked for.
        filter: String,
    },
    /// A bench starts the product, and it is not there.
    #[error("there is no {}, which this bench starts: build it, `cargo build --release`", program.display())]
    NoProgram {
        /// Where it should be.
        program: PathBuf,
    },
    /// The system refused something, or a result is wrong.
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

/// Whether a smaller figure of this unit is the better one: times and losses. All others are rates, or parts of them.
pub fn is_lower_better(unit: &str) -> bool {
    ["s", "us", "ns", "ns/event", "exponent", "ns, beside a raw socket", "%", "packets", "packets on their way"]
        .contains(&unit)
}

/// Runs a bench and prints its figures to `out`. Returns how many cases failed; the reasons are printed in their place.
///
/// # Errors
/// If the name or the filter fits nothing, or the machine does not allow it.
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
