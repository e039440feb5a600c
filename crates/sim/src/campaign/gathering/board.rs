//! A board: it sends its events frame by frame, as fast as they are taken.

use super::super::content::mixed;
use super::super::stand::{Connection, source_of};
use super::scenario::{Break, Scenario, Style};
use ropewalk_terms::Instant;
use ropewalk_wire::foreign::{Header, alice, dune};

/// A frame that it sends.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) event: u64,
    /// Which of its event's frames it is, from 0 on.
    pub(super) place: u32,
    /// It is the last one of its event.
    pub(super) is_last: bool,
    pub(super) bytes: Vec<u8>,
    /// What the board does behind it.
    pub(super) behind: Option<Break>,
}

/// A board.
pub(super) struct Board {
    connection: Connection,
    /// All frames but those that are lost.
    pub(super) frames: Vec<Frame>,
    next: usize,
    paused_until: Instant,
    /// It hangs up as soon as everything has left.
    is_leaving: bool,
}

impl Board {
    pub(super) fn new(board: usize, scenario: &Scenario, connection: Connection) -> Self {
        let frames = frames(board, scenario);
        Self { connection, frames, next: 0, paused_until: Instant::ZERO, is_leaving: false }
    }

    /// It has sent everything and hung up.
    pub(super) const fn has_left(&self) -> bool {
        self.next == self.frames.len() && !self.connection.is_up()
    }

    /// The frames that it sends of an event.
    pub(super) fn of(&self, event: u64) -> &[Frame] {
        let start = self.frames.partition_point(|frame| frame.event < event);
        let end = self.frames.partition_point(|frame| frame.event <= event);
        &self.frames[start..end]
    }

    /// Sends what there is room for.
    pub(super) fn turn(&mut self, now: Instant) {
        let wanted = self.next < self.frames.len() && !self.is_leaving;
        self.connection.turn(now, wanted);
        if self.is_leaving {
            self.is_leaving = !self.connection.hang_up();
            return;
        }
        while now >= self.paused_until && self.connection.is_up() && !self.is_leaving {
            let Some(frame) = self.frames.get(self.next) else {
                self.is_leaving = true;
                break;
            };
            if !self.connection.send(&frame.bytes) {
                break;
            }
            self.next += 1;
            self.is_leaving = frame.behind == Some(Break::HangUp);
            self.paused_until = frame.behind.map_or(now, |behind| now.after(behind.pause()));
        }
    }
}

fn frames(board: usize, scenario: &Scenario) -> Vec<Frame> {
    let (setting, mut frames, mut all) = (&scenario.boards[board], Vec::new(), 0);
    for (event, &count) in (1..).zip(&setting.frames) {
        for place in 0..count {
            let is_last = place + 1 == count;
            let bytes = encoded(board, scenario.style, event, place, is_last, all as u64);
            if !setting.lost.contains(&all) {
                frames.push(Frame { event, place, is_last, bytes, behind: setting.breaks.get(&all).copied() });
            }
            all += 1;
        }
    }
    frames
}

/// A frame as it travels; `number` is its own.
fn encoded(board: usize, style: Style, event: u64, place: u32, is_last: bool, number: u64) -> Vec<u8> {
    let (source, chance) = (u64::from(source_of(board).0), mixed(board as u64 + 1, event, place.into()));
    let payload: Vec<u8> = (0..chance % 150).map(|at| (chance >> (at % 57)) as u8).collect();
    let mut out = Vec::new();
    match style {
        Style::Marked => {
            let header =
                Header::new().with(alice::FEE, source).with(alice::ORBIT, event).with(alice::PAGE, place.into());
            let header = header.with(alice::PACKET_COUNTER, number & 0xff).with(alice::STOP, is_last.into());
            alice::encode(header, &payload, &mut out).expect("it is short");
        }
        Style::Placed => {
            let header = Header::new().with(dune::SOURCE, source).with(dune::TRIGGER_NUMBER, event);
            dune::encode(header.with(dune::SEQUENCE, place.into()), &payload, &mut out);
        }
        Style::Numbered => {
            out.extend_from_slice(&(payload.len() as u32 + 12).to_le_bytes());
            out.extend_from_slice(&(event as u32).to_le_bytes());
            out.extend_from_slice(&(number as u32).to_le_bytes());
            out.extend_from_slice(&payload);
        }
    }
    out
}
