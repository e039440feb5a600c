//! How runs went, kept beside their accounts, and read again when later ones are compared with them.

use ropewalk_monitor::Course;
use ropewalk_node::run::{Registry, RunDirectory};
use ropewalk_node::whole_file;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The file's name, in a run's directory.
pub(crate) const FILE: &str = "course.json";
/// Bytes of a course that is read: ten times what the longest one has.
const MOST_BYTES: u64 = 1 << 20;
/// Runs that are named where another one was asked for.
const MOST_NAMED: usize = 10;

/// Why there is nothing to compare with.
#[derive(Debug, thiserror::Error)]
pub enum NoCourse {
    /// The run has none.
    #[error("run {run} has no {FILE}: it was taken without run control, or before courses were kept; {known}")]
    Missing {
        /// The run.
        run: u32,
        /// Those that have one, in words.
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

/// Keeps a course in the directory of its run.
///
/// # Errors
/// What the system says.
pub(crate) fn keep(directory: &Path, course: &Course) -> io::Result<()> {
    whole_file::write(&directory.join(FILE), &serde_json::to_vec(course)?)
}

/// The course of a run in this directory of runs.
///
/// # Errors
/// Where it has none, or one that cannot be read.
pub(crate) fn read(output: &Path, run: u32) -> Result<Course, NoCourse> {
    let unreadable = |source| NoCourse::Unreadable { run, source };
    let runs = Registry::open(output).and_then(|registry| registry.runs()).map_err(unreadable)?;
    let directory = runs.iter().find(|known| known.run.0 == run && has_course(known));
    let Some(directory) = directory else { return Err(NoCourse::Missing { run, known: known(&runs) }) };
    let mut text = Vec::new();
    let file = File::open(directory.path.join(FILE)).map_err(unreadable)?;
    file.take(MOST_BYTES).read_to_end(&mut text).map_err(unreadable)?;
    let course: Course = serde_json::from_slice(&text).map_err(|error| unreadable(error.into()))?;
    if course.schema != Course::SCHEMA || course.step_seconds == 0 {
        let why = format!("it is of the form `{}`, and this program reads `{}`", course.schema, Course::SCHEMA);
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidData, why)));
    }
    Ok(course)
}

fn has_course(run: &RunDirectory) -> bool {
    run.path.join(FILE).is_file()
}

/// The latest runs with a course, in words.
fn known(runs: &[RunDirectory]) -> String {
    let named: Vec<_> =
        runs.iter().rev().filter(|run| has_course(run)).take(MOST_NAMED).map(|run| run.run.0.to_string()).collect();
    if named.is_empty() { "no run has one yet".to_owned() } else { format!("these have one: {}", named.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_is_kept_and_read_and_what_is_none_is_refused() {
        let output = std::env::temp_dir().join(format!("ropewalk-courses-{}", std::process::id()));
        let run = |number: u32| output.join(format!("run{number:06}"));
        (1..=3).for_each(|number| std::fs::create_dir_all(run(number)).expect("a directory can be made"));
        let error = read(&output, 1).expect_err("there is none").to_string();
        assert!(error.starts_with("run 1 has no course.json: ") && error.ends_with("no run has one yet"), "{error}");
        let series = [("events_per_second".to_owned(), vec![None, Some(5.0)])].into();
        let course = Course { schema: Course::SCHEMA.to_owned(), run: 2, step_seconds: 1, series };
        keep(&run(2), &course).expect("it can be written");
        assert_eq!(read(&output, 2).expect("it was kept"), course);
        let error = read(&output, 7).expect_err("there is no such run").to_string();
        assert!(error.ends_with("these have one: 2"), "{error}");
        std::fs::write(run(3).join(FILE), "{}").expect("it can be written");
        assert!(matches!(read(&output, 3), Err(NoCourse::Unreadable { run: 3, .. })));
        keep(&run(3), &Course { schema: "another".to_owned(), ..course }).expect("it can be written");
        let error = read(&output, 3).expect_err("it is of another form").to_string();
        assert!(error.contains("of the form `another`"), "{error}");
        std::fs::remove_dir_all(&output).expect("the test's own");
    }
}
