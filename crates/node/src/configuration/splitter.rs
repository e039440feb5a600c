//! The key `splitter` of a source.

use super::format::FormatName;
use super::layout::EventTable;
use super::parse::Faults;
use super::source::SourceSection;
use crate::quantity::{Bytes, Time};
use ropewalk_plugin::Keys;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// A library that divides the frames of a source into events or hits (`docs/splitters.md`).
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitterSection {
    /// The shared library.
    pub library: PathBuf,
    /// Text that is passed to the library when it begins.
    #[serde(default)]
    pub configuration: String,
    /// What identifies the pieces of a frame.
    #[serde(default)]
    pub keys: Keys,
    /// The library runs in the thread that reads the source; it can then do any harm.
    #[serde(default)]
    pub trusted: bool,
    /// How long its process may take for a frame, at least 1 ms.
    #[serde(default = "timeout")]
    pub timeout: Time,
    /// Memory that its process may take besides what it shares, at least 1 MiB.
    #[serde(default = "memory")]
    pub memory: Bytes,
    /// Pause before another process is started.
    #[serde(default = "restart_delay")]
    pub restart_delay: Time,
    /// Number of processes that are started again within a minute, 1 to 1000.
    #[serde(default = "restarts")]
    pub restarts: u32,
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
pub(super) fn check(source: &SourceSection, key: impl Fn(&str) -> String, faults: &mut Faults) {
    let Some(splitter) = &source.splitter else { return };
    match source.format {
        _ if source.has_layout() => {}
        FormatName::Foreign(format) if source.format.has_several_events() => {
            let message = format!("frames of `{}` are divided without one: leave it out", format.name());
            faults.add(key("splitter"), message);
        }
        FormatName::Foreign(_) => {}
        FormatName::Ferol | FormatName::Generic => {
            let message =
                "it divides frames that a layout describes, or a format by its name: give `frame` or `format`";
            faults.add(key("splitter"), message);
        }
    }
    let is_growing = source.event.as_ref().is_some_and(EventTable::grows);
    if is_growing && splitter.keys == Keys::Events {
        let message = "numbers that grow are times here: `keys = \"times\"`";
        faults.add(key("splitter.keys"), message);
    }
    if splitter.timeout.0 < Duration::from_millis(1) {
        faults.add(key("splitter.timeout"), "how long it may take over a frame, 1ms or more");
    }
    if splitter.memory.0 < 1 << 20 {
        faults.add(key("splitter.memory"), "at least 1MiB, of which it has to live");
    }
    if !(1..=1000).contains(&splitter.restarts) {
        faults.add(key("splitter.restarts"), "1 to 1000 within a minute");
    }
}
