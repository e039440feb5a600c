//! What stands for a splitter's process.

use super::super::content::mixed;
use super::board::{EVENT_HEADER, HEADER};
use super::scenario::{BoardSetting, MOST_FRAMES, Mishap};
use ropewalk_memory::Payload;
use ropewalk_node::drive::{ProcessSight, SplitterLink};
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::framing::{Piece, PieceKey};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long it takes until a process that was killed has ended.
const DYING: Duration = Duration::from_millis(3);

/// A process.
#[derive(Debug)]
struct Process {
    ready_at: Instant,
    is_ready: bool,
    /// What it still has to do, and when it is done with the first of that.
    asked: Range<usize>,
    due: Instant,
    hangs: bool,
    ends_at: Option<Instant>,
}

/// Everything that happened, for the digest and the referee.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) digest: u64,
    pub(super) started: u64,
    /// Processes that were there at once, at most.
    pub(super) most_at_once: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct SimulatedSplitter {
    setting: BoardSetting,
    deaths: Vec<Instant>,
    now: Instant,
    frames: Vec<Vec<u8>>,
    answers: Vec<Option<Result<Vec<Piece>, Cause>>>,
    done: usize,
    process: Option<Process>,
    /// How often each frame went wrong.
    wrong: BTreeMap<u64, u8>,
    notes: Arc<Mutex<Notes>>,
}

impl SimulatedSplitter {
    pub(super) fn new(setting: BoardSetting, notes: Arc<Mutex<Notes>>) -> Self {
        let deaths = setting.deaths.iter().map(|death| Instant::ZERO.after(*death)).collect();
        Self {
            setting,
            deaths,
            now: Instant::ZERO,
            frames: Vec::new(),
            answers: Vec::new(),
            done: 0,
            process: None,
            wrong: BTreeMap::new(),
            notes,
        }
    }

    fn note(&self, what: u64) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.digest = mixed(notes.digest, what, self.now.as_nanoseconds());
    }

    /// What happens at a frame this time.
    fn mishap(&mut self, index: usize) -> Option<Mishap> {
        let number = number(&self.frames[index], 4);
        let mishap = *self.setting.mishaps.get(&number)?;
        let before = self.wrong.entry(number).or_default();
        if *before >= mishap.times() {
            return None;
        }
        *before += 1;
        Some(mishap)
    }

    /// Works until `now`.
    fn work(&mut self, now: Instant) {
        while let Some(process) = &mut self.process {
            if process.ends_at.is_some() || process.hangs || process.asked.is_empty() || now < process.due {
                return;
            }
            let (index, due) = (process.asked.start, process.due);
            let mishap = self.mishap(index);
            let process = self.process.as_mut().expect("it was looked at above");
            match mishap {
                Some(Mishap::Crash(_)) => {
                    process.ends_at = Some(due);
                    return self.note(1);
                }
                Some(Mishap::Hang(_)) => {
                    process.hangs = true;
                    return self.note(2);
                }
                _ => {}
            }
            process.asked.start += 1;
            process.due = due.after(self.setting.each);
            self.done = index + 1;
            self.answers[index] = match mishap {
                Some(Mishap::Lie(_)) => None,
                Some(Mishap::Malformed) => Some(Err(Cause::Malformed)),
                _ => Some(Ok(pieces(&self.frames[index]))),
            };
        }
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("frames are whole")).into()
}

fn pieces(frame: &[u8]) -> Vec<Piece> {
    let mut at = HEADER;
    let piece = |_| {
        let event = u64::from_le_bytes(*frame[at..].first_chunk().expect("frames are whole"));
        let (offset, length) = (at + EVENT_HEADER, number(frame, at + 8) as usize);
        at = offset + length;
        Piece { key: PieceKey::Event(event), offset, length }
    };
    (0..number(frame, 8)).map(piece).collect()
}

impl SplitterLink for SimulatedSplitter {
    fn most_frames(&self) -> usize {
        MOST_FRAMES
    }

    fn start(&mut self) {
        self.note(3);
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.started += 1;
        notes.most_at_once = notes.most_at_once.max(1 + u64::from(self.process.is_some()));
        let ready_at = self.now.after(self.setting.start);
        let (due, is_ready) = (Instant::ZERO, false);
        self.process = Some(Process { ready_at, is_ready, asked: 0..0, due, hangs: false, ends_at: None });
    }

    fn kill(&mut self) {
        self.note(4);
        let at = self.now.after(DYING);
        self.process.iter_mut().for_each(|process| process.ends_at = Some(at));
    }

    fn clear(&mut self) {
        self.frames.clear();
        self.answers.clear();
        self.done = 0;
    }

    fn put(&mut self, frame: &Payload) {
        self.frames.push(frame.to_vec());
        self.answers.push(None);
    }

    fn ask(&mut self, first: usize, count: usize) {
        self.done = first;
        let due = self.now.after(self.setting.each);
        if let Some(process) = &mut self.process {
            (process.asked, process.due) = (first..first + count, due);
        }
    }

    fn look(&mut self, now: Instant) -> ProcessSight {
        self.now = now;
        self.work(now);
        if self.deaths.pop_if(|death| now >= *death).is_some() {
            self.process.iter_mut().for_each(|process| process.ends_at = Some(now));
        }
        let done = self.done;
        let Some(process) = &mut self.process else { return ProcessSight { done, ..ProcessSight::default() } };
        let has_ended = process.ends_at.is_some_and(|at| now >= at);
        let is_ready = !has_ended && !process.is_ready && now >= process.ready_at;
        process.is_ready |= is_ready;
        if has_ended {
            self.process = None;
        }
        ProcessSight { is_ready, done, has_ended }
    }

    fn answer(&mut self, index: usize, pieces: &mut Vec<Piece>) -> Option<Result<(), Cause>> {
        let answer = self.answers[index].as_ref()?;
        Some(answer.as_ref().map(|answer| pieces.extend_from_slice(answer)).map_err(|cause| *cause))
    }

    fn copied_bytes(&self) -> u64 {
        0
    }

    fn next_deadline(&self) -> Option<Instant> {
        let process = self.process.as_ref()?;
        let ready = Some(process.ready_at).filter(|_| !process.is_ready);
        let due = Some(process.due).filter(|_| !process.asked.is_empty() && !process.hangs);
        process.ends_at.or(ready).or(due)
    }

    fn descriptors<'a>(&'a self, _: &mut Vec<BorrowedFd<'a>>) {}
}
