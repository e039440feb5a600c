//! Faults of keys, and configuration errors that point at the place.

use std::fmt;
use std::ops::Range;

/// A key such as `source[3].readout`, and what is wrong with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The key; empty for the whole.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Fault {
    /// A fault of this key.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }
}

/// All faults of a configuration, the first one of each key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Faults(pub(super) Vec<Fault>);

impl Faults {
    /// Adds a fault of this key, unless it has one: later ones are often consequences of the first.
    pub fn add(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.keep::<()>(Err(Fault::new(key, message)));
    }

    /// Adds those of a part, whose keys are within it.
    pub(super) fn take(&mut self, part: Self, key: impl Fn(&str) -> String) {
        part.0.into_iter().for_each(|fault| _ = self.keep::<()>(Err(Fault { key: key(&fault.key), ..fault })));
    }

    /// Returns the value, or adds the fault and returns `None`.
    pub fn keep<T>(&mut self, made: Result<T, Fault>) -> Option<T> {
        match made {
            Ok(made) => Some(made),
            Err(fault) => {
                if !self.0.iter().any(|known| known.key == fault.key) {
                    self.0.push(fault);
                }
                None
            }
        }
    }
}

/// What is made, or the first fault of all that are found while it is made.
pub(crate) fn first_fault<T>(make: impl FnOnce(&mut Faults) -> Option<T>) -> Result<T, Fault> {
    let mut faults = Faults::default();
    let made = make(&mut faults);
    match faults.0.into_iter().next() {
        Some(fault) => Err(fault),
        None => Ok(made.expect("what cannot be made has a fault")),
    }
}

/// Why a configuration cannot be used: where, what, and what would be right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigurationError {
    /// The file, as it was named.
    pub file: String,
    /// Line, counted from 1; 0 if no place can be named.
    pub line: usize,
    /// Column, counted from 1.
    pub column: usize,
    /// The key, such as `source[3].readout`; empty for errors of syntax.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
    shown: Box<Shown>,
    /// The other errors of the file, after this one.
    others: Vec<Self>,
}

/// What is shown below the message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Shown {
    /// The line of the file.
    line: String,
    /// How many characters of it are marked, from the column on.
    marked: usize,
    /// A valid value in TOML syntax, with its kind.
    example: Option<String>,
}

/// How many errors are shown at most.
const MOST_SHOWN: usize = 20;

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
            shown: Box::default(),
            others: Vec::new(),
        };
        if let Some(place) = place {
            let start = place.start.min(text.len());
            let before = text.get(..start).unwrap_or_default();
            let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
            let line = text.get(line_start..).unwrap_or_default().lines().next().unwrap_or_default();
            error.line = before.matches('\n').count() + 1;
            error.column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
            error.shown.marked =
                place.end.saturating_sub(start).clamp(1, line.len().saturating_sub(start - line_start).max(1));
            error.shown.line = line.to_owned();
        }
        error
    }
}

impl ConfigurationError {
    /// With an example of a right value.
    pub(super) fn with_example(mut self, example: Option<String>) -> Self {
        self.shown.example = example;
        self
    }

    /// One error for all of these, in the order of the file; none if nothing is wrong.
    pub(super) fn all(mut errors: Vec<Self>) -> Option<Self> {
        errors.sort_by_key(|error| (error.line == 0, error.line, error.column));
        // A syntax error explains what is wrong with a value; the intended value is not known.
        let place = |error: &Self| (error.line, error.column);
        let of_syntax: Vec<_> = errors.iter().filter(|one| one.key.is_empty() && one.line > 0).map(place).collect();
        errors.retain(|error| error.key.is_empty() || !of_syntax.contains(&place(error)));
        let mut errors = errors.into_iter();
        let first = errors.next()?;
        Some(Self { others: errors.collect(), ..first })
    }

    /// This and all others, in the order of the file.
    pub fn each(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.others)
    }

    fn show(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = if self.key.is_empty() { String::new() } else { format!("{}: ", self.key) };
        if self.line == 0 {
            return write!(out, "{}: {key}{}", self.file, self.message);
        }
        writeln!(out, "{}:{}:{}: {key}{}", self.file, self.line, self.column, self.message)?;
        let margin = self.line.to_string();
        writeln!(out, " {margin} | {}", self.shown.line)?;
        write!(
            out,
            " {:margin$} | {:column$}{}",
            "",
            "",
            "^".repeat(self.shown.marked),
            margin = margin.len(),
            column = self.column - 1
        )?;
        let Some(example) = &self.shown.example else { return Ok(()) };
        let name = self.key.rsplit_once('.').map_or(self.key.as_str(), |(_, name)| name);
        write!(out, "\n {:margin$} = example: {name} = {example}", "", margin = margin.len())
    }
}

impl fmt::Display for ConfigurationError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show(out)?;
        for other in self.others.iter().take(MOST_SHOWN - 1) {
            out.write_str("\n\n")?;
            other.show(out)?;
        }
        match self.others.len() + 1 {
            1 => Ok(()),
            count @ ..=MOST_SHOWN => write!(out, "\n\n{count} errors in {}", self.file),
            count => write!(out, "\n\n{count} errors in {}; the first {MOST_SHOWN} are shown", self.file),
        }
    }
}

impl std::error::Error for ConfigurationError {}

/// The message for an unknown name; `what` is for example `flow is named`.
pub fn no_such<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let listed = match known.as_slice() {
        [] => "there are none".to_owned(),
        some if some.len() > MOST_NAMES => {
            format!("there are {}, and {} more", some[..MOST_NAMES].join(", "), some.len() - MOST_NAMES)
        }
        some => format!("there are: {}", some.join(", ")),
    };
    match nearest(name, &known) {
        Some(near) => format!("no {what} `{name}`; did you mean `{near}`?"),
        None => format!("no {what} `{name}`; {listed}"),
    }
}

/// How many names are listed at most.
const MOST_NAMES: usize = 12;

/// The name that was probably meant.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |known: &&&str| strsim::osa_distance(&name.to_lowercase(), &known.to_lowercase());
    let near = known.iter().min_by_key(distance)?;
    // One mistake for every three letters.
    (distance(&near) * 3 <= name.len().max(3)).then_some(*near)
}

/// The missing key in a message of serde.
pub(super) fn missing_key(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.split('`').next()
}

/// The unknown key in a message of serde.
pub(super) fn unknown_key(message: &str) -> Option<&str> {
    message.strip_prefix("unknown field `")?.split('`').next()
}

/// The key that was probably meant by an unknown one.
pub(super) fn meant_key(message: &str) -> Option<&str> {
    let name = unknown_key(message)?;
    let names = message.strip_prefix("unknown field `")?.split('`').skip(1);
    nearest(name, &names.skip(1).step_by(2).collect::<Vec<_>>())
}

/// Types in serde's messages, and what users call them.
const TYPES: [(&str, &str); 5] = [
    ("a boolean", "true or false"),
    ("a sequence", "a list"),
    ("a map", "a table"),
    ("f64", "a number"),
    ("a string", "a text in quotes"),
];

/// Rewrites a message of serde for users, with the name that was probably meant.
pub(super) fn plain(message: &str) -> String {
    if let Some(name) = missing_key(message) {
        return format!("`{name}` is missing");
    }
    if let Some((found, expected)) = message.split_once(", expected ")
        && found.starts_with("invalid ")
    {
        fn is_integer(name: &str) -> bool {
            name.strip_prefix(['u', 'i']).is_some_and(|bits| bits.parse::<u8>().is_ok())
        }
        let known = TYPES.iter().find(|(name, _)| *name == expected).map(|(_, words)| *words);
        let words = match known {
            _ if is_integer(expected) => "a whole number",
            _ if expected.strip_prefix("a nonzero ").is_some_and(is_integer) => "a whole number above 0",
            None if expected.starts_with("struct ") => "a table",
            known => known.unwrap_or(expected),
        };
        return format!("{found}, expected {words}");
    }
    if message.starts_with("wanted exactly 1 element") {
        return "a table with exactly one key is expected here".to_owned();
    }
    let (what, rest) = match message.strip_prefix("unknown field `") {
        Some(rest) => ("key is named", rest),
        None => match message.strip_prefix("unknown variant `") {
            Some(rest) => ("value is", rest),
            None => return message.to_owned(),
        },
    };
    // unknown field `a`, expected one of `b`, `c`: every second piece is a name.
    let mut names = rest.split('`');
    let name = names.next().unwrap_or_default();
    no_such(what, name, names.skip(1).step_by(2))
}
