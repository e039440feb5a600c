//! What stands for whoever writes files of what black boxes hand over: it keeps each recording for a while, holds it against what
//! the board sent, and gives it back.

use super::super::broken::{Broken, Checker};
use super::board::Journal;
use super::scenario::{BoardSetting, Mishap};
use ropewalk_node::drive::{Recording, RecordingLine};
use ropewalk_terms::Instant;
use std::time::Duration;

/// Between two that are saved lies so much time at least, and there are so many at most: as users are promised.
const PAUSE: Duration = Duration::from_secs(10);
const MOST: usize = 16;
/// Bytes of an arrival for which there is room, on average.
const USUAL_BYTES: usize = 256;

/// The keeper of one board's recordings.
pub(super) struct Keeper {
    board: usize,
    line: RecordingLine,
    /// One that is being written, and until when.
    writing: Option<(Box<Recording>, Instant)>,
    /// How long that takes.
    saving: Duration,
    /// When something was wrong that was saved.
    saved: Vec<Instant>,
}

impl Keeper {
    pub(super) const fn new(board: usize, line: RecordingLine, saving: Duration) -> Self {
        Self { board, line, writing: None, saving, saved: Vec::new() }
    }

    /// Takes what there is to be taken.
    pub(super) fn turn(&mut self, now: Instant, setting: &BoardSetting, journal: &Journal) -> Result<(), Broken> {
        if let Some((recording, _)) = self.writing.take_if(|(_, until)| now >= *until) {
            self.line.give_back(recording);
        }
        if self.writing.is_none()
            && let Some(recording) = self.line.take_next()
        {
            self.look(&recording, setting, journal)?;
            self.writing = Some((recording, now.after(self.saving)));
        }
        Ok(())
    }

    /// A recording is a piece of what the board sent, from the begin of a frame on, and has what was wrong.
    fn look(&mut self, recording: &Recording, setting: &BoardSetting, journal: &Journal) -> Result<(), Broken> {
        let board = self.board;
        let Some((what, at)) = recording.incident() else {
            return Err(Broken::new(Checker::Content, format!("board {board}: nothing was wrong with what was saved")));
        };
        let since = self.saved.last().map(|&last| at.since(last));
        Broken::unless(since.is_none_or(|since| since >= PAUSE) && self.saved.len() < MOST, Checker::Bounds, || {
            format!("board {board}: {what} is saved {since:?} after the one before, of {}", self.saved.len())
        })?;
        let is_first = self.saved.is_empty();
        self.saved.push(at);
        let bytes = recording.stream().concat();
        let oldest = recording.since().map(|since| at.since(since));
        let is_within = bytes.len() <= setting.max_bytes && oldest.is_none_or(|oldest| oldest <= setting.last);
        Broken::unless(is_within, Checker::Bounds, || {
            format!("board {board}: {} bytes, the first of them {oldest:?} old: {setting:?}", bytes.len())
        })?;
        let place =
            (!bytes.is_empty()).then(|| journal.bytes.windows(bytes.len()).position(|part| part == bytes)).flatten();
        let Some(begin) = place else {
            let words =
                format!("board {board}: {} bytes that were saved for {what} are none that it sent so", bytes.len());
            return Err(Broken::new(Checker::Content, words));
        };
        Broken::unless(journal.begins.contains(&begin), Checker::Content, || {
            format!("board {board}: what was saved for {what} begins with byte {begin}, in the midst of a frame")
        })?;
        // While others are written, what was wrong may be gone before it can be handed over; the first one never is.
        let end = begin + bytes.len();
        let is_there = journal.wrong.iter().any(|wrong| {
            let is_it = match wrong.mishap {
                Mishap::Damage => what == "crc_error",
                _ => what == "skipped_bytes" || what == "sync_lost",
            };
            // Of bytes that are no frame the first ones are told at once.
            is_it && begin <= wrong.begin && wrong.begin < end
        });
        Broken::unless(is_there || !is_first, Checker::Content, || {
            format!("board {board}: {what} is not among the bytes from {begin} to {end}, {:?}", journal.wrong)
        })?;
        // There is room for so many arrivals, of which a frame may be several.
        let is_little = journal.begins.len() < setting.max_bytes / (4 * USUAL_BYTES);
        let is_all_young = is_little && at.since(Instant::ZERO) < setting.last && end < setting.max_bytes;
        Broken::unless(begin == 0 || !is_first || !is_all_young, Checker::Loss, || {
            format!("board {board}: what was saved for {what} begins with byte {begin}, and there was room for all")
        })
    }

    /// In the end: something was wrong and was taken, and it was saved; or there was nothing.
    pub(super) fn judge(&self, journal: &Journal) -> Result<(), Broken> {
        Broken::unless(self.saved.is_empty() == journal.wrong.is_empty(), Checker::Loss, || {
            format!("board {}: {} of {:?} are saved", self.board, self.saved.len(), journal.wrong)
        })
    }
}
