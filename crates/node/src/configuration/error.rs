//! Configuration errors that point at the place.

use std::fmt;
use std::ops::Range;

/// Why a configuration cannot be used: where, what, and what would be right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigurationError {
    /// The file, as it was named.
    pub file: String,
    /// Line, counted from 1; 0 where no place can be named.
    pub line: usize,
    /// Column, counted from 1.
    pub column: usize,
    /// The key, such as `source[3].readout`; empty for errors of syntax.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
    excerpt: String,
    caret: usize,
}

impl ConfigurationError {
    /// An error at a byte range of the text.
    pub(super) fn at(
        file: &str,
        text: &str,
        place: Option<Range<usize>>,
        key: &str,
        message: impl Into<String>,
    ) -> Self {
        let mut error = Self {
            file: file.to_owned(),
            line: 0,
            column: 0,
            key: key.to_owned(),
            message: message.into(),
            excerpt: String::new(),
            caret: 1,
        };
        if let Some(place) = place {
            let start = place.start.min(text.len());
            let before = text.get(..start).unwrap_or_default();
            let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
            let line = text.get(line_start..).unwrap_or_default().lines().next().unwrap_or_default();
            error.line = before.matches('\n').count() + 1;
            error.column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
            error.caret =
                place.end.saturating_sub(start).clamp(1, line.len().saturating_sub(start - line_start).max(1));
            error.excerpt = line.to_owned();
        }
        error
    }
}

impl fmt::Display for ConfigurationError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = if self.key.is_empty() { String::new() } else { format!("{}: ", self.key) };
        if self.line == 0 {
            return write!(out, "{}: {key}{}", self.file, self.message);
        }
        writeln!(out, "{}:{}:{}: {key}{}", self.file, self.line, self.column, self.message)?;
        let margin = self.line.to_string();
        writeln!(out, " {margin} | {}", self.excerpt)?;
        write!(
            out,
            " {:margin$} | {:column$}{}",
            "",
            "",
            "^".repeat(self.caret),
            margin = margin.len(),
            column = self.column - 1
        )
    }
}

impl std::error::Error for ConfigurationError {}
