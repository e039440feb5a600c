//! The sections `[filter]` and `[[stream]]`: what becomes of built events.
//!
//! Triggers and streams may also be on a command line: what a configuration says, in one line of TOML.
//! ```text
//!  --trigger all   --trigger 'random = { share = 0.1 }'   --stream 'name = "physics", triggers = [0], prescale = 10'
//! ```
//! What is read was written as [`Display`](fmt::Display) does it, or by hand.

use super::source::BytesChoice;
use crate::quantity::{Bytes, STREAM_NAME, Time};
use ropewalk_flow::filter::{Builtin, BuiltinFilter, Comparison, StreamConfig, Streams};
use ropewalk_terms::{SourceId, TriggerBits};
use ropewalk_wire::run_file::{Compression, StreamName};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The filter that decides on built events: built-in triggers, a library in C, or a program (`docs/filters.md`). Nodes
/// of a farm behind gateways decide by `triggers` alone; without a farm gateways decide as builder units do.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FilterSection {
    /// [Built-in triggers](configuration-events.md#built-in-triggers). The first in the list sets trigger 0, and so
    /// on, up to 128. An event that passes one of them is accepted.
    pub triggers: Vec<TriggerChoice>,
    /// Shared library with a filter in C (`bindings/c/ropewalk_filter.h`).
    pub library: Option<PathBuf>,
    /// Program with its arguments, in any language, that takes events over shared memory.
    pub program: Option<Vec<String>>,
    /// Text that is passed to the library or program when it begins.
    pub configuration: String,
    /// [Filter nodes](filters.md#on-other-machines) on which the filter units run, each in turn, such as
    /// `["filter1:9500"]`. Without any, filter units run beside the builder unit or gateway.
    pub nodes: Vec<String>,
    /// Memory of a filter node for the events that it has. For all builder units together it must be more than the
    /// longest event times `events`.
    pub node_memory: Bytes,
    /// The library runs in the thread of the builder unit or gateway. This is the fastest way, but the library can then
    /// do any harm. Otherwise it runs in separate processes that can only read events.
    pub trusted: bool,
    /// Number of filter units (processes) of each builder unit, or of each input queue of a gateway, 1 to 256.
    pub units: u16,
    /// Number of events that a filter unit has at once, 1 to 4096.
    pub events: u32,
    /// How long a filter unit may take for an event, at least 1 ms and at most a quarter of `timeouts.drain`. At its
    /// end a run waits for half of `timeouts.drain`; events without a decision are then set aside.
    pub timeout: Time,
    /// Memory that a filter process may take besides what it shares, at least 1 MiB.
    pub memory: Bytes,
    /// Pause before another process is started.
    pub restart_delay: Time,
    /// Number of processes of a filter unit that are started again within a minute, 1 to 1000. With one more the filter
    /// unit is given up.
    pub restarts: u32,
}

impl Default for FilterSection {
    fn default() -> Self {
        Self {
            triggers: Vec::new(),
            library: None,
            program: None,
            configuration: String::new(),
            nodes: Vec::new(),
            node_memory: Bytes(1 << 30),
            trusted: false,
            units: 1,
            events: 256,
            timeout: Time(Duration::from_secs(1)),
            memory: Bytes(1 << 30),
            restart_delay: Time(Duration::from_millis(100)),
            restarts: 30,
        }
    }
}

/// A built-in trigger.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TriggerChoice {
    /// Every event passes.
    All,
    /// Every n-th event passes, by its number. The choice does not depend on which unit decides.
    Every(u64),
    /// An event passes by the size of all its payloads.
    Size(SizeTable),
    /// An event passes if it has a fragment of the source with this id.
    Present(u32),
    /// An event passes by bytes in the fragment of one source. The bytes are one number, the first byte the most
    /// significant. Give one of `is`, `is_not`, `at_least` and `at_most`.
    Bytes(BytesTable),
    /// An event passes by a random choice, for tests. With the same seed the same events pass, whichever unit decides.
    Random(RandomTable),
}

/// Limits of a size.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeTable {
    /// Smallest size.
    #[serde(default = "nothing")]
    pub least: Bytes,
    /// Largest size.
    pub most: Option<Bytes>,
}

/// Bytes at a place in a fragment: one comparison.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BytesTable {
    /// Id of the source.
    pub source: u32,
    /// Bytes before them in the fragment.
    #[serde(default)]
    pub offset: u32,
    /// Bits that count, for 1 to 8 bytes: `[0xff, 0x00]` reads two bytes and counts the bits of the first.
    pub mask: BytesChoice,
    /// They are this number.
    pub is: Option<u64>,
    /// They are another number.
    pub is_not: Option<u64>,
    /// They are this number or a larger one.
    pub at_least: Option<u64>,
    /// They are this number or a smaller one.
    pub at_most: Option<u64>,
}

/// A share of the events.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomTable {
    /// Share of the events that pass, 0 to 1.
    pub share: f64,
    /// Seed of the random numbers.
    #[serde(default)]
    pub seed: u64,
}

/// A stream: accepted events that are written together.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamSection {
    /// Name, part of the names of its files: 1 to 32 lower-case letters, digits and `_`. Not `error` if there is a
    /// filter.
    #[schemars(regex(pattern = STREAM_NAME))]
    pub name: String,
    /// The stream takes events that passed any of these triggers, given by number. In a gateway trigger N is bit N of
    /// the word of the decision, 0 to 31. Without `triggers` and `trigger_types` it takes every accepted event.
    #[serde(default)]
    pub triggers: Vec<u32>,
    /// The stream takes events to which the trigger source gave any of these trigger types. In a gateway the trigger
    /// type is the lower half of the word of the decision.
    #[serde(default)]
    pub trigger_types: Vec<u16>,
    /// One of this many events that the stream would take is kept, in each builder unit or gateway; the first one is.
    #[serde(default = "prescale")]
    pub prescale: u32,
    /// Each builder unit writes the events in the order of their numbers. An event then waits for the decisions on
    /// those before it. Not in a gateway.
    #[serde(default)]
    pub ordered: bool,
    /// Directories for the run directories of this stream, instead of `output` and `more_outputs`. Its run files go to
    /// them in turn. Give all directories of a run to `verify` and the other commands.
    #[serde(default)]
    pub outputs: Vec<PathBuf>,
    /// Directory to which its closed run files are moved. Without it: `hand_over` of `[storage]`.
    #[serde(default)]
    pub hand_over: Option<PathBuf>,
    /// Compression of its run files. Without it: `compress` of `[storage]`.
    #[serde(default, deserialize_with = "compression")]
    #[schemars(with = "Option<String>")]
    pub compress: Option<Compression>,
}

fn compression<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Compression>, D::Error> {
    super::run::compression(deserializer).map(Some)
}

const fn nothing() -> Bytes {
    Bytes(0)
}

const fn prescale() -> u32 {
    1
}

impl TriggerChoice {
    /// The trigger, in the machine's words. It must have been checked.
    pub fn builtin(&self) -> Builtin {
        match self {
            Self::All => Builtin::All,
            Self::Every(every) => Builtin::Every(*every),
            Self::Size(size) => Builtin::Size { least: size.least.0, most: size.most.map_or(u64::MAX, |most| most.0) },
            Self::Present(source) => Builtin::Present(SourceId(*source)),
            Self::Bytes(bytes) => {
                let (comparison, value) = bytes.comparisons().next().unwrap_or((Comparison::AtLeast, 0));
                let (source, mask) = (SourceId(bytes.source), bytes.mask.0.clone());
                Builtin::Bytes { source, offset: bytes.offset, mask, comparison, value }
            }
            Self::Random(random) => Builtin::Random { share: random.share, seed: random.seed },
        }
    }

    /// Whether it makes sense, where these sources are known.
    pub(super) fn check(&self, is_known: impl Fn(u32) -> bool) -> Result<(), String> {
        match self {
            Self::All => Ok(()),
            Self::Every(0) => Err("every 1st event is every one; there is no 0th".to_owned()),
            Self::Every(_) => Ok(()),
            Self::Size(size) => match size.most {
                Some(most) if most < size.least => {
                    Err(format!("no event has {} at least and {most} at most", size.least))
                }
                _ => Ok(()),
            },
            Self::Present(id) if is_known(*id) => Ok(()),
            Self::Bytes(bytes) if is_known(bytes.source) => match bytes.comparisons().count() {
                _ if !(1..=8).contains(&bytes.mask.0.len()) => Err("a mask has 1 to 8 bytes".to_owned()),
                1 => Ok(()),
                _ => Err("give one of `is`, `is_not`, `at_least` and `at_most`".to_owned()),
            },
            Self::Present(id) | Self::Bytes(BytesTable { source: id, .. }) => Err(format!("no source has the id {id}")),
            Self::Random(random) if (0.0..=1.0).contains(&random.share) => Ok(()),
            Self::Random(_) => Err("a share lies between 0 and 1".to_owned()),
        }
    }
}

impl FilterSection {
    /// Whether the filter runs in its own processes.
    pub const fn has_processes(&self) -> bool {
        (self.library.is_some() && !self.trusted) || self.program.is_some()
    }
}

impl BytesTable {
    fn comparisons(&self) -> impl Iterator<Item = (Comparison, u64)> {
        let all = [
            (Comparison::Is, self.is),
            (Comparison::IsNot, self.is_not),
            (Comparison::AtLeast, self.at_least),
            (Comparison::AtMost, self.at_most),
        ];
        all.into_iter().filter_map(|(comparison, value)| Some((comparison, value?)))
    }
}

impl StreamSection {
    /// The stream as the engine's configuration; `None` if its name is not valid.
    pub fn stream(&self) -> Option<StreamConfig> {
        let triggers = self.triggers.iter().map(|&trigger| TriggerBits::of(trigger));
        Some(StreamConfig {
            name: self.name.parse().ok()?,
            triggers: triggers.fold(TriggerBits::default(), TriggerBits::with),
            trigger_types: self.trigger_types.clone(),
            prescale: self.prescale,
            ordered: self.ordered,
        })
    }

    /// Whether it makes sense for itself: which key does not, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        self.name.parse::<StreamName>().map_err(|error| ("name", error.to_string()))?;
        match self.triggers.iter().find(|&&trigger| trigger >= TriggerBits::COUNT) {
            Some(trigger) => Err(("triggers", format!("there is no trigger {trigger}: they are 0 to 127"))),
            None => Ok(()),
        }
    }
}

impl FilterSection {
    /// Its built-in triggers. Expects a checked section.
    pub fn builtin_filter(&self) -> BuiltinFilter {
        BuiltinFilter::new(self.triggers.iter().map(TriggerChoice::builtin).collect())
    }
}

/// The streams of these sections; without any, one stream for all events. With a filter, adds the error stream. Expects
/// checked sections.
pub(super) fn streams_of(sections: &[StreamSection], is_filtered: bool) -> Streams {
    let configured: Vec<StreamConfig> = sections.iter().filter_map(StreamSection::stream).collect();
    let configured = if configured.is_empty() { vec![StreamConfig::everything()] } else { configured };
    Streams::new(configured, is_filtered).unwrap_or_else(|_| Streams::everything())
}

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

/// Parses a line with or without the braces of a table. A single word is a string.
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
        // The list of sources is not known here, so every source id passes.
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
        // Options of run files do not belong in this text.
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
    use crate::parse;
    use ropewalk_terms::StreamIndex;

    fn refused(text: &str) -> String {
        let whole = format!("{text}\n{}", BASE);
        parse("test", &whole, &|_| None).err().map_or_else(String::new, |error| error.to_string())
    }

    const BASE: &str = "[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n[[source]]\nid = 7\nreadout = \"ru0\"\n\
                        emulate = { fragment_size = \"2KiB\" }\n";

    #[test]
    fn faults_name_their_key() {
        for (text, key, what) in [
            ("[filter]", "filter", "give one of"),
            ("[filter]\ntriggers = [\"all\"]\nlibrary = \"x.so\"", "filter", "give one of"),
            ("[filter]\ntriggers = [\"all\"]\ntrusted = true", "filter.trusted", "library"),
            ("[filter]\ntriggers = [{ every = 0 }]", "filter.triggers[0]", "0th"),
            ("[filter]\ntriggers = [\"all\", { present = 8 }]", "filter.triggers[1]", "id 8"),
            (
                "[filter]\ntriggers = [{ size = { least = \"2KiB\", most = \"1KiB\" } }]",
                "filter.triggers[0]",
                "at most",
            ),
            ("[filter]\ntriggers = [{ bytes = { source = 7, mask = [255] } }]", "filter.triggers[0]", "give one of"),
            ("[filter]\ntriggers = [{ random = { share = 1.5 } }]", "filter.triggers[0]", "between 0 and 1"),
            ("[filter]\nlibrary = \"x.so\"\nunits = 0", "filter.units", "1 to 256"),
            ("[filter]\nlibrary = \"x.so\"\ntimeout = \"10s\"", "filter.timeout", "tried twice"),
            ("[[stream]]\nname = \"A\"", "stream[0].name", "a-z"),
            ("[[stream]]\nname = \"a\"\ntriggers = [0]", "stream[0].triggers", "[filter]"),
            (
                "[filter]\ntriggers = [\"all\", \"all\"]\n[[stream]]\nname = \"a\"\ntriggers = [1, 2]",
                "stream[0].triggers",
                "trigger 2 does not exist",
            ),
            ("[[stream]]\nname = \"a\"\n[[stream]]\nname = \"a\"", "stream", "two streams"),
            ("[filter]\ntriggers = [\"all\"]\n[[stream]]\nname = \"error\"", "stream", "two streams"),
            ("[[stream]]\nname = \"a\"\nprescale = 0", "stream", "prescale"),
        ] {
            let said = refused(&format!("version = 1\n{text}"));
            assert!(said.contains(key) && said.contains(what), "{text}: {said}");
        }
    }

    #[test]
    fn streams_are_the_configured_ones_and_one_for_errors() {
        let streams = |text: &str| {
            let whole = format!("version = 1\n{text}\n{BASE}");
            parse("test", &whole, &|_| None).unwrap_or_else(|error| panic!("{error}")).streams()
        };
        let names = |text: &str| streams(text).names().map(|name| name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(""), [""]);
        assert_eq!(names("[filter]\ntriggers = [\"all\"]"), ["physics", "error"]);
        let two = "[[stream]]\nname = \"a\"\n[[stream]]\nname = \"b\"\nprescale = 10\ntrigger_types = [3]";
        assert_eq!(names(two), ["a", "b"]);
        assert!(streams(two).takes_all(StreamIndex(0)) && !streams(two).takes_all(StreamIndex(1)));
    }

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
