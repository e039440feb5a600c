//! Trends of finished runs: stored beside their accounts, read again when a later run is compared with one of them.

use ropewalk_monitor::RunTrend;
use ropewalk_run::whole_file;
use ropewalk_run::{Registry, RunDirectory};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The file's name, in a run's directory.
pub(crate) const FILE: &str = "course.json";
/// The largest file that is read, in bytes: ten times the longest trend.
const MOST_BYTES: u64 = 1 << 20;
/// How many runs an error names.
const MOST_NAMED: usize = 10;

/// Why a run cannot be compared with.
#[derive(Debug, thiserror::Error)]
pub enum NoRunTrend {
    /// The run has none.
    #[error("run {run} has no {FILE}: it was taken without run control or by an older version; {known}")]
    Missing {
        /// The run.
        run: u32,
        /// The runs that have one, in words.
        known: String,
    },
    /// It cannot be read.
    #[error("the {FILE} of run {run}: {source}")]
    Unreadable {
        /// The run.
        run: u32,
        /// What is wrong with it.
        source: io::Error,
    },
}

/// Stores a trend in the directory of its run.
///
/// # Errors
/// What the system says.
pub(crate) fn keep(directory: &Path, trend: &RunTrend) -> io::Result<()> {
    whole_file::write(&directory.join(FILE), &serde_json::to_vec(trend)?)
}

/// The trend of a run in this directory of runs.
///
/// # Errors
/// If it has none, or one that cannot be read.
pub(crate) fn read(output: &Path, run: u32) -> Result<RunTrend, NoRunTrend> {
    let unreadable = |source| NoRunTrend::Unreadable { run, source };
    let runs = Registry::open(output).and_then(|registry| registry.runs()).map_err(unreadable)?;
    let directory = runs.iter().find(|known| known.run.0 == run && has_trend(known));
    let Some(directory) = directory else { return Err(NoRunTrend::Missing { run, known: known(&runs) }) };
    let mut text = Vec::new();
    let file = File::open(directory.path.join(FILE)).map_err(unreadable)?;
    file.take(MOST_BYTES).read_to_end(&mut text).map_err(unreadable)?;
    let trend: RunTrend = serde_json::from_slice(&text).map_err(|error| unreadable(error.into()))?;
    if trend.schema != RunTrend::SCHEMA || trend.step_seconds == 0 {
        let why = format!("it is of the form `{}`, and this program reads `{}`", trend.schema, RunTrend::SCHEMA);
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidData, why)));
    }
    Ok(trend)
}

fn has_trend(run: &RunDirectory) -> bool {
    run.path.join(FILE).is_file()
}

/// Lists the latest runs that have a trend, for people.
fn known(runs: &[RunDirectory]) -> String {
    let named: Vec<_> =
        runs.iter().rev().filter(|run| has_trend(run)).take(MOST_NAMED).map(|run| run.run.0.to_string()).collect();
    if named.is_empty() { "no run has one yet".to_owned() } else { format!("these have one: {}", named.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_is_kept_and_read_and_an_invalid_one_is_refused() {
        let output = std::env::temp_dir().join(format!("ropewalk-trends-{}", std::process::id()));
        let run = |number: u32| output.join(format!("run{number:06}"));
        (1..=3).for_each(|number| std::fs::create_dir_all(run(number)).expect("a directory can be made"));
        let error = read(&output, 1).expect_err("run 1 has no course").to_string();
        assert!(error.starts_with("run 1 has no course.json: ") && error.ends_with("no run has one yet"), "{error}");
        let series = [("events_per_second".to_owned(), vec![None, Some(5.0)])].into();
        let trend = RunTrend { schema: RunTrend::SCHEMA.to_owned(), run: 2, step_seconds: 1, series };
        keep(&run(2), &trend).expect("it can be written");
        assert_eq!(read(&output, 2).expect("it was kept"), trend);
        let error = read(&output, 7).expect_err("there is no such run").to_string();
        assert!(error.ends_with("these have one: 2"), "{error}");
        std::fs::write(run(3).join(FILE), "{}").expect("it can be written");
        assert!(matches!(read(&output, 3), Err(NoRunTrend::Unreadable { run: 3, .. })));
        keep(&run(3), &RunTrend { schema: "another".to_owned(), ..trend }).expect("it can be written");
        let error = read(&output, 3).expect_err("it is of another form").to_string();
        assert!(error.contains("of the form `another`"), "{error}");
        std::fs::remove_dir_all(&output).expect("the test's own");
    }
}
