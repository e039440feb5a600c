//! The keys `gather` and `gather_timeout` of a source.

use super::format::FormatName;
use super::parse::Faults;
use super::source::SourceSection;
use crate::quantity::Time;
use ropewalk_flow::readout::GATHER_TIMEOUT;
use std::time::Duration;

/// How long the next frame of an event is waited for, where nothing else is said.
pub(super) const fn timeout() -> Time {
    Time(GATHER_TIMEOUT)
}

impl SourceSection {
    /// Frames of one event that follow each other are one fragment, and the next one is waited for so long; none where each
    /// frame is a fragment.
    pub fn gathering(&self) -> Option<Duration> {
        let usual = match self.format {
            FormatName::Foreign(format) => format.comes_in_several_frames() && !self.has_layout(),
            FormatName::Ferol | FormatName::Generic => false,
        };
        self.gather.unwrap_or(usual && self.own_splitter().is_none()).then_some(self.gather_timeout.0)
    }
}

/// The first thing that is wrong with how the frames of a source are gathered.
pub(super) fn check(source: &SourceSection, key: impl Fn(&str) -> String, faults: &mut Faults) {
    if source.gather == Some(true) {
        let what = match source.description() {
            None => "the frames of a layout or of a format with a name are gathered: give `frame` or another `format`",
            Some(_) if source.splitter.is_some() => "frames that are divided are not gathered: leave one of both out",
            Some(description) if description.splitter().is_some() => "frames of several events each are not gathered",
            Some(description) if !description.has_event() => {
                "frames are gathered by the numbers of their events, and these have none: give `event`"
            }
            Some(_) => "",
        };
        if !what.is_empty() {
            faults.add(key("gather"), what);
        }
    }
    if source.gather_timeout.0 < Duration::from_millis(1) {
        faults.add(key("gather_timeout"), "how long the next frame of an event is waited for, 1ms or more");
    }
}
