//! The laboratory as others see it.

mod bench;
mod campaign;
mod limits;
mod sizing;

#[path = "../../../ropewalk/tests/program/forms.rs"]
mod forms;

use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that has ended.
#[derive(Debug)]
struct Ended {
    status: Option<i32>,
    out: Vec<String>,
    errors: String,
}

impl Ended {
    /// The exit status is this one, and nothing panicked on the way.
    fn expect_status(&self, status: i32) -> &Self {
        assert!(!self.errors.contains("panicked"), "{self:#?}");
        assert_eq!(self.status, Some(status), "{self:#?}");
        self
    }

    /// The last line of standard output.
    fn account(&self) -> Value {
        let line = self.out.last().unwrap_or_else(|| panic!("no account: {self:#?}"));
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// Runs the laboratory to its end.
fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Ended {
    let output = Command::new(env!("CARGO_BIN_EXE_ropewalk-lab")).args(arguments).output().expect("it was built");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ended {
        status: output.status.code(),
        out: text(output.stdout).lines().map(str::to_owned).collect(),
        errors: text(output.stderr),
    }
}

/// A directory of this test's own, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ropewalk-lab-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory can be made");
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
