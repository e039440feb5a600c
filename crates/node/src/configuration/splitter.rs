//! The key `splitter` of a source.

use super::check::fault;
use super::format::FormatName;
use super::layout::EventTable;
use super::model::SourceSection;
use super::parse::Fault;
use crate::quantity::{Bytes, Time};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// A library that says into which events or hits the frames of a source fall apart (`docs/splitters.md`).
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitterSection {
    /// The shared library.
    pub library: PathBuf,
    /// A text that it is told when it begins.
    #[serde(default)]
    pub configuration: String,
    /// What its pieces are kept apart by.
    #[serde(default)]
    pub keys: KeysChoice,
    /// It is called in the thread that reads the source: then it can do any harm there is.
    #[serde(default)]
    pub trusted: bool,
    /// How long its process may take over a frame.
    #[serde(default = "timeout")]
    pub timeout: Time,
    /// How much memory its process may take beside what it shares.
    #[serde(default = "memory")]
    pub memory: Bytes,
    /// The pause before another process is started.
    #[serde(default = "restart_delay")]
    pub restart_delay: Time,
    /// How many processes are started again within a minute.
    #[serde(default = "restarts")]
    pub restarts: u32,
}

/// What the pieces of frames are kept apart by.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeysChoice {
    /// The numbers of their events.
    #[default]
    Events,
    /// Their times: what has the same time is of the same event.
    Times,
}

const fn timeout() -> Time {
    Time(Duration::from_secs(1))
}

const fn memory() -> Bytes {
    Bytes(256 << 20)
}

const fn restart_delay() -> Time {
    Time(Duration::from_millis(100))
}

const fn restarts() -> u32 {
    10
}

impl SourceSection {
    /// The splitter that its frames go through. An emulator in its place sends frames of one event each.
    pub const fn own_splitter(&self) -> Option<&SplitterSection> {
        match &self.emulate {
            None => self.splitter.as_ref(),
            Some(_) => None,
        }
    }
}

/// The first thing that is wrong with the splitter of a source.
pub(super) fn check(source: &SourceSection, key: impl Fn(&str) -> String) -> Result<(), Fault> {
    let Some(splitter) = &source.splitter else { return Ok(()) };
    match source.format {
        _ if source.has_layout() => {}
        FormatName::Foreign(format) if source.format.has_several_events() => {
            let message = format!("frames of `{}` are divided without one: leave it out", format.name());
            return Err(fault(key("splitter"), message));
        }
        FormatName::Foreign(_) => {}
        FormatName::Ferol | FormatName::Generic => {
            let message =
                "it divides frames that a layout describes, or a format by its name: give `frame` or `format`";
            return Err(fault(key("splitter"), message));
        }
    }
    let is_growing = source.event.as_ref().is_some_and(EventTable::grows);
    if is_growing && splitter.keys == KeysChoice::Events {
        let message = "numbers that grow are times here: `keys = \"times\"`";
        return Err(fault(key("splitter.keys"), message));
    }
    if splitter.timeout.0 < Duration::from_millis(1) {
        return Err(fault(key("splitter.timeout"), "how long it may take over a frame, 1ms or more"));
    }
    if splitter.memory.0 < 1 << 20 {
        return Err(fault(key("splitter.memory"), "at least 1MiB, of which it has to live"));
    }
    if !(1..=1000).contains(&splitter.restarts) {
        return Err(fault(key("splitter.restarts"), "1 to 1000 within a minute"));
    }
    Ok(())
}
