//! The rules of the house as tests, and the one way in which a test may say that it was skipped.
//!
//! The rules live in `tests/house`: one file per rule, each finding with file, line, what is wrong and what to do. This
//! library is for the tests of all crates (a dev-dependency): a test that cannot run on this machine calls [`skipped`],
//! so that `.ci/run` can count it and fail on an unexpected skip.
//! [`differing_schemas`] compares generated schemas with the committed ones.
//!
//! The modules read Rust source for the rules and for `figures`, the program that counts lines of code.
#![forbid(unsafe_code)]

pub mod modules;
pub mod source;
pub mod tree;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What a skip's line starts with.
const SKIPPED: &str = "skipped";
/// The variable that names the file to which skips are appended, one line each.
const SKIP_LOG: &str = "ROPEWALK_SKIP_LOG";
/// The variable that names the directory of real detector data.
const DATA: &str = "ROPEWALK_DATA";

/// Says that `test` did not run, and why, in the form `skipped: TEST: WHY`.
///
/// The line goes to stderr and, where `ROPEWALK_SKIP_LOG` names a file, to its end. `test` is the test's
/// path as `cargo test` prints it.
///
/// # Panics
/// When the file cannot be written: an uncounted skip would look like a test that passed.
pub fn skipped(test: &str, why: &str) {
    let line = format!("{SKIPPED}: {test}: {why}\n");
    eprint!("{line}");
    if let Some(log) = std::env::var_os(SKIP_LOG) {
        let written = append(log.as_ref(), &line);
        assert!(written.is_ok(), "cannot write {SKIP_LOG}: {written:?}");
    }
}

/// One call, so that lines of tests that run at the same time do not mix.
fn append(log: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(log)?.write_all(line.as_bytes())
}

/// The directory `name` of the real data, for example `cms_csc`; without it the skip of `test` is recorded.
///
/// ```no_run
/// if let Some(_directory) = ropewalk_tidy::real_data("cms::every_crc_matches", "cms_csc") {
///     // read the files
/// }
/// ```
///
/// # Panics
/// When `ROPEWALK_DATA` is set and the directory is not there: that is a mistake, not a reason to skip.
pub fn real_data(test: &str, name: &str) -> Option<PathBuf> {
    let Some(root) = std::env::var_os(DATA) else {
        skipped(test, "needs ROPEWALK_DATA");
        return None;
    };
    let directory = PathBuf::from(root).join(name);
    assert!(directory.is_dir(), "{DATA} is set, but {} is no directory", directory.display());
    Some(directory)
}

/// The files of `docs/schema` that differ from these texts, each with a line feed behind it.
///
/// # Panics
/// When a file cannot be written.
pub fn differing_schemas(schemas: impl IntoIterator<Item = (&'static str, String)>) -> Vec<&'static str> {
    let differs =
        |(name, text): &(&'static str, String)| !is_current(&format!("docs/schema/{name}"), &format!("{text}\n"));
    schemas.into_iter().filter(differs).map(|(name, _)| name).collect()
}

/// Whether the file at `path` of the repository has this text. `ROPEWALK_BLESS` writes it first.
///
/// # Panics
/// When the file cannot be written.
pub fn is_current(path: &str, text: &str) -> bool {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("ROPEWALK_BLESS").is_some() {
        std::fs::write(&file, text).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    std::fs::read_to_string(&file).is_ok_and(|found| found == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_of_many_tests_add_up_in_one_file() {
        let log = std::env::temp_dir().join(format!("ropewalk-skips-{}", std::process::id()));
        for line in ["one\n", "two\n"] {
            append(&log, line).expect("a file can be written");
        }
        let text = std::fs::read_to_string(&log).expect("it was just written");
        std::fs::remove_file(&log).expect("it is ours");
        assert_eq!(text, "one\ntwo\n");
    }
}
