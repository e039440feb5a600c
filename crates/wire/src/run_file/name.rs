//! The names of segments: `run000001-bu0-000001.rwk`, in a stream with a name `run000001-bu0-physics-000001.rwk`, and
//! with `.open` behind it while it is being written.

use core::fmt;
use core::str::FromStr;

use super::stream_name::StreamName;
use ropewalk_terms::{NodeId, Role, RunNumber};

/// What follows the name of a segment that is being written.
pub const OPEN_EXTENSION: &str = ".open";

/// What follows the name of a segment in that of the file with its checksum.
pub const CHECKSUM_EXTENSION: &str = ".crc32c";

const EXTENSION: &str = ".rwk";
const ROLES: [Role; 4] = [Role::Readout, Role::Builder, Role::Manager, Role::Source];

/// The name of a run's directory: `run000042`.
pub fn run_directory_name(run: RunNumber) -> String {
    format!("run{:06}", run.0)
}

/// The name of a segment. Orders by run, then by writer, then by stream, then by segment.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentName {
    /// The run.
    pub run: RunNumber,
    /// The node that wrote it.
    pub writer: NodeId,
    /// Which of the writer's streams.
    pub stream: StreamName,
    /// Which of the stream's segments by this writer, counted from 1.
    pub segment: u32,
}

impl fmt::Display for SegmentName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "run{:06}-{}-", self.run, self.writer)?;
        if !self.stream.is_unnamed() {
            write!(out, "{}-", self.stream)?;
        }
        write!(out, "{:06}{EXTENSION}", self.segment)
    }
}

/// The text is not the name of a segment.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not the name of a segment, such as run000001-bu0-000001.rwk")]
pub struct NotASegment;

impl FromStr for SegmentName {
    type Err = NotASegment;

    /// Reads what [`Display`](fmt::Display) writes; any number of leading zeros will do.
    fn from_str(text: &str) -> Result<Self, NotASegment> {
        Self::read(text).ok_or(NotASegment)
    }
}

impl SegmentName {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.strip_suffix(EXTENSION)?.strip_prefix("run")?.split('-');
        let (run, writer) = (parts.next()?, parts.next()?);
        let (stream, segment) = match (parts.next()?, parts.next()) {
            (segment, None) => (StreamName::UNNAMED, segment),
            (stream, Some(segment)) => (stream.parse().ok()?, segment),
        };
        if parts.next().is_some() {
            return None;
        }
        let role = ROLES.into_iter().find(|role| writer.starts_with(role.prefix()))?;
        let index = number(&writer[role.prefix().len()..])?;
        Some(Self {
            run: RunNumber(number(run)?),
            writer: NodeId { role, index: u16::try_from(index).ok()? },
            stream,
            segment: number(segment)?,
        })
    }
}

/// Digits alone: `parse` would take a sign too.
fn number(digits: &str) -> Option<u32> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}
