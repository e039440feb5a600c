//! Closed segments are looked for now and then, and all of them at the end: events of deleted ones do not count as written.

use super::places::Places;
use super::segment::{Closed, set_path};
use ropewalk_io::disk::{Disk, DiskCause};
use ropewalk_terms::{Instant, StreamIndex};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

/// Each is looked for so often, as long as there are few.
const INTERVAL: Duration = Duration::from_secs(1);
/// And no more than so many in that time.
const MOST: usize = 20;

/// Looks for closed segments, one after the other.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The place of the file to look for next.
    next: usize,
    is_asked: bool,
    /// The next one is looked for then, while the run goes on.
    due: Instant,
    /// Every segment is closed, and from the first on they are looked for once more.
    is_last_round: bool,
    is_done: bool,
}

impl Watch {
    /// Whether every segment was looked for when all of them were closed.
    pub(super) const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Asks for the next segment. `is_over` where no further one will be closed.
    pub(super) fn look(
        &mut self,
        now: Instant,
        disk: &mut impl Disk,
        closed: &VecDeque<(StreamIndex, Closed)>,
        (places, path): (&[Places], &mut PathBuf),
        is_over: bool,
    ) {
        if is_over != self.is_last_round {
            // One that is asked for is taken as the first of the new round.
            *self = Self { next: 0, is_asked: self.is_asked, is_last_round: is_over, ..Self::default() };
        }
        if self.is_asked || self.is_done || !is_over && now < self.due {
            return;
        }
        if self.next >= closed.len() {
            (self.next, self.is_done) = (0, is_over);
        }
        let Some((stream, segment)) = closed.get(self.next).filter(|_| !self.is_done) else { return };
        set_path(path, places[usize::from(stream.0)].closed(segment.name.segment), segment.name);
        disk.look_for(path, segment_cookie(*stream, segment));
        self.is_asked = true;
        self.due = now.after(INTERVAL / closed.len().clamp(1, MOST) as u32);
    }

    /// The disk has looked. Takes out what is not there.
    pub(super) fn looked(
        &mut self,
        cookie: u64,
        result: Result<(), DiskCause>,
        closed: &mut VecDeque<(StreamIndex, Closed)>,
    ) -> Option<(StreamIndex, Closed)> {
        self.is_asked = false;
        // The oldest ones may have been deleted meanwhile to stay within `keep`.
        let place = closed.iter().position(|(stream, segment)| segment_cookie(*stream, segment) == cookie)?;
        self.next = place + 1;
        if result != Err(DiskCause::NotFound) {
            return None;
        }
        self.next = place;
        closed.remove(place)
    }
}

fn segment_cookie(stream: StreamIndex, segment: &Closed) -> u64 {
    u64::from(segment.name.run.0) << 40 | u64::from(stream.0) << 32 | u64::from(segment.name.segment)
}
