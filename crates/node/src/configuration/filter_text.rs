//! Triggers and streams on a command line: what stands in a configuration, in one line of TOML.
//!
//! ```text
//!  --trigger all   --trigger 'random = { share = 0.1 }'   --stream 'name = "physics", triggers = [0], prescale = 10'
//! ```
//! What is read was written as [`Display`](fmt::Display) does it, or by somebody's hand.

use super::filter::{BytesTable, StreamSection, TriggerChoice};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::str::FromStr;

/// The text is no such thing, with what would be right.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is no {what}: {why}; write it as {like}")]
pub struct NotThis {
    text: String,
    what: &'static str,
    why: String,
    like: &'static str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<T> {
    it: T,
}

/// What stands in a line, with or without the braces of a table; a word alone is one.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let text = text.trim();
    let line = match (text.starts_with('{'), text.contains('=')) {
        (true, _) => format!("it = {text}"),
        (false, true) => format!("it = {{ {text} }}"),
        (false, false) => format!("it = {text:?}"),
    };
    let line: Line<T> = toml::from_str(&line).map_err(|error| error.message().trim_end().replace('\n', "; "))?;
    Ok(line.it)
}

impl FromStr for TriggerChoice {
    type Err = NotThis;

    fn from_str(text: &str) -> Result<Self, NotThis> {
        // Which sources there are is known to whoever wrote the files.
        let trigger = read(text).and_then(|trigger: Self| trigger.check(|_| true).map(|()| trigger));
        let like = "in [filter] triggers: all, 'every = 10' or 'random = { share = 0.1 }'";
        trigger.map_err(|why| NotThis { text: text.to_owned(), what: "trigger", why, like })
    }
}

impl FromStr for StreamSection {
    type Err = NotThis;

    fn from_str(text: &str) -> Result<Self, NotThis> {
        let like = "in [[stream]]: 'name = \"physics\", triggers = [0], prescale = 10'";
        read(text).map_err(|why| NotThis { text: text.to_owned(), what: "stream", why, like })
    }
}

impl fmt::Display for TriggerChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => write!(out, "all"),
            Self::Every(every) => write!(out, "every = {every}"),
            Self::Size(size) => {
                write!(out, "size = {{ least = \"{}\"", size.least.0)?;
                size.most.map_or(Ok(()), |most| write!(out, ", most = \"{}\"", most.0))?;
                write!(out, " }}")
            }
            Self::Present(source) => write!(out, "present = {source}"),
            Self::Bytes(bytes) => write!(out, "bytes = {{ {bytes} }}"),
            Self::Random(random) => write!(out, "random = {{ share = {:?}, seed = {} }}", random.share, random.seed),
        }
    }
}

impl fmt::Display for BytesTable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, offset, mask, is, is_not, at_least, at_most } = self;
        write!(out, "source = {source}, offset = {offset}, mask = {:?}", mask.0)?;
        let comparisons = [("is", is), ("is_not", is_not), ("at_least", at_least), ("at_most", at_most)];
        comparisons.into_iter().try_for_each(|(name, value)| match value {
            Some(value) => write!(out, ", {name} = {value}"),
            None => Ok(()),
        })
    }
}

impl fmt::Display for StreamSection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is said of run files has no place here.
        let Self { name, triggers, trigger_types, prescale, .. } = self;
        write!(
            out,
            "name = {name:?}, triggers = {triggers:?}, trigger_types = {trigger_types:?}, prescale = {prescale}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_and_streams_come_back_as_they_were_written() {
        for text in [
            "all",
            "every = 10",
            "size = { least = \"4096\" }",
            "size = { least = \"0\", most = \"8192\" }",
            "present = 841",
            "bytes = { source = 841, offset = 4, mask = [255, 15], at_least = 258 }",
            "random = { share = 0.1, seed = 3 }",
            "random = { share = 1.0, seed = 0 }",
        ] {
            assert_eq!(text.parse::<TriggerChoice>().map(|trigger| trigger.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("{ every = 2 }".parse(), Ok(TriggerChoice::Every(2)), "with its braces");
        let stream = "name = \"b\", triggers = [0, 7], trigger_types = [3], prescale = 10";
        assert_eq!(stream.parse::<StreamSection>().map(|stream| stream.to_string()).as_deref(), Ok(stream));
        assert_eq!("name = \"b\"".parse::<StreamSection>().map(|stream| stream.prescale), Ok(1));
    }

    #[test]
    fn what_is_no_trigger_and_no_stream_says_what_would_be() {
        for text in ["good", "every = 0", "random = { share = 1.5 }", "every = 1 }, it = { every = 2", "prescale=10"] {
            let error = text.parse::<TriggerChoice>().expect_err(text).to_string();
            assert!(error.contains("share = 0.1"), "{error}");
        }
        for text in ["physics", "name = \"a\", prescales = 2", ""] {
            let error = text.parse::<StreamSection>().expect_err(text).to_string();
            assert!(error.contains("prescale = 10"), "{error}");
        }
    }
}
