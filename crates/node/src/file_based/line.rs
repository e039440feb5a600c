//! What a broker and a filter unit say to each other: a line of text each.
//!
//! ```text
//!  unit --> broker   want                       broker --> unit   give 1 7 2     lumisection, index, attempt
//!                    done 1 7 2                                   finish         nothing comes any more
//!                    failed 1 7 2 why
//! ```

use ropewalk_flow::files::{FileId, Work};
use ropewalk_terms::Attempt;
use std::fmt;
use std::str::FromStr;

/// What a unit says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FromUnit {
    /// It wants a file.
    Want,
    /// Everything is written for this one.
    Done(Work),
    /// This one cannot be filtered, and why, in words: no line's end is among them.
    Failed(Work, String),
}

/// What a broker says.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ToUnit {
    /// Filter this file.
    Give(Work),
    /// Nothing comes any more.
    Finish,
}

/// The text is no such line.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("neither want, done, failed, give nor finish, with lumisection, index and attempt where they belong")]
pub struct NotALine;

fn write(out: &mut fmt::Formatter<'_>, word: &str, work: &Work) -> fmt::Result {
    write!(out, "{word} {} {} {}", work.file.lumisection, work.file.index, work.attempt.0)
}

/// The word, the work behind it where there is one, and the rest.
fn read(text: &str) -> Option<(&str, Option<Work>, &str)> {
    let mut words = text.trim().splitn(5, ' ');
    let word = words.next()?;
    let Some(lumisection) = words.next() else { return Some((word, None, "")) };
    let file = FileId { lumisection: lumisection.parse().ok()?, index: words.next()?.parse().ok()? };
    let attempt = Attempt(words.next()?.parse().ok()?);
    Some((word, Some(Work { file, attempt }), words.next().unwrap_or_default()))
}

impl fmt::Display for FromUnit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Want => write!(out, "want"),
            Self::Done(work) => write(out, "done", work),
            Self::Failed(work, why) => {
                write(out, "failed", work)?;
                if why.is_empty() { Ok(()) } else { write!(out, " {why}") }
            }
        }
    }
}

impl FromStr for FromUnit {
    type Err = NotALine;

    fn from_str(text: &str) -> Result<Self, NotALine> {
        match read(text).ok_or(NotALine)? {
            ("want", None, "") => Ok(Self::Want),
            ("done", Some(work), "") => Ok(Self::Done(work)),
            ("failed", Some(work), why) => Ok(Self::Failed(work, why.to_owned())),
            _ => Err(NotALine),
        }
    }
}

impl fmt::Display for ToUnit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Give(work) => write(out, "give", work),
            Self::Finish => write!(out, "finish"),
        }
    }
}

impl FromStr for ToUnit {
    type Err = NotALine;

    fn from_str(text: &str) -> Result<Self, NotALine> {
        match read(text).ok_or(NotALine)? {
            ("give", Some(work), "") => Ok(Self::Give(work)),
            ("finish", None, "") => Ok(Self::Finish),
            _ => Err(NotALine),
        }
    }
}
