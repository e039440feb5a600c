//! The files of the repository, and how a finding is reported.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// One breach of a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the repository.
    pub file: String,
    /// The line, counted from one.
    pub line: usize,
    /// What is wrong and what to do.
    pub what: String,
}

impl Finding {
    /// A finding of its parts.
    pub fn new(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Fails the test with every finding, one per line.
pub fn expect_none(findings: &[Finding]) {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} findings\n{}\n", lines.len(), lines.join("\n"));
}

/// The repository's directory.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        here.ancestors().nth(2).expect("this crate lives two levels below the root").to_owned()
    })
}

/// A text file of the repository.
pub struct TextFile {
    /// Its path relative to the repository, with `/` between the parts.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl TextFile {
    /// Whether it is Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it is a page of Markdown.
    pub fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }
}

/// Every text file that is in the repository or about to be: what git tracks and what it does not ignore.
pub fn text_files() -> &'static [TextFile] {
    static FILES: OnceLock<Vec<TextFile>> = OnceLock::new();
    FILES.get_or_init(|| {
        let listing = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root())
            .output()
            .expect("git lists the files of a clone");
        assert!(listing.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listing.stderr));
        let names = String::from_utf8(listing.stdout).expect("file names of this repository are UTF-8");
        let mut paths: Vec<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
        paths.sort_unstable();
        paths.dedup();
        // What cannot be read is deleted but not yet committed, a link, or no text: no rule is about those.
        let read = |path: &str| std::fs::read_to_string(root().join(path)).ok();
        let with_text = |path: &str| Some(TextFile { path: path.to_owned(), text: read(path)? });
        paths.into_iter().filter_map(with_text).collect()
    })
}

/// Every Rust file.
pub fn rust_files() -> impl Iterator<Item = &'static TextFile> {
    text_files().iter().filter(|file| file.is_rust())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_file_is_found() {
        assert!(rust_files().any(|file| file.path == "crates/tidy/src/tree.rs"));
    }

    #[test]
    fn a_finding_names_file_line_and_what() {
        assert_eq!(Finding::new("a.rs", 3, "too long").to_string(), "a.rs:3: too long");
    }
}
