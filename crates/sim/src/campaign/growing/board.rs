//! A board: it sends a frame of each pulse that it sees, with what its clock shows, and takes down what it sent.

use super::super::content::mixed;
use super::super::stand::Connection;
use super::{Mishap, Scenario};
use ropewalk_terms::Instant;
use ropewalk_wire::layout::{Checksum, ChecksumKind, Contents, Counts, Frame, Layout, Length, Number, Plan, Size};
use std::collections::BTreeMap;
use std::ops::Range;

/// The longest frame.
pub(super) const MOST_FRAME: u32 = 1 << 10;
/// Where the pulse stands in a frame, which no machine looks at, and whose it is.
const PULSE: Range<usize> = 16..20;
const BOARD: Range<usize> = 20..24;
/// Bytes before the data.
const HEADER: usize = 24;

/// Frames that begin with a word that is looked for, say what the board's clock shows, and end with a checksum.
pub(super) fn plan(bits: u32) -> Plan {
    let length = Length { number: Number::little_endian(4, 4), unit: 1, counts: Counts::Frame, add: 0 };
    let frame = Frame::Sync { word: b"\xfe\xed\xbe\xef".to_vec(), size: Size::Length(length) };
    let layout = Layout {
        event: vec![Number { mask: Some(u64::MAX >> (64 - bits)), ..Number::little_endian(8, 8) }],
        checksum: Some(Checksum { kind: ChecksumKind::Crc32, number: Number::little_endian(-4, 4), from: 0, to: -4 }),
        ..Layout::new(frame, MOST_FRAME)
    };
    Plan::compile(&layout).expect("a good layout")
}

/// What a frame says of itself that no machine reads.
pub(super) fn pulse_and_board(frame: &[u8]) -> Option<(u64, usize)> {
    let number = |range: Range<usize>| Some(u32::from_le_bytes(frame.get(range)?.try_into().ok()?));
    Some((u64::from(number(PULSE)?), number(BOARD)? as usize))
}

/// What a board sent of a pulse.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) at: Instant,
    /// What its clock showed, without wraps, and whether that was right.
    pub(super) time: u64,
    pub(super) is_right: bool,
    pub(super) frame: Vec<u8>,
}

/// Something that a black box should notice.
#[derive(Copy, Clone, Debug)]
pub(super) struct Wrong {
    pub(super) mishap: Mishap,
    /// Where its bytes begin in what the board sent.
    pub(super) begin: usize,
}

/// What a board did.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    /// Everything that it sent, over all connections.
    pub(super) bytes: Vec<u8>,
    /// Where frames begin in that, and what is none.
    pub(super) begins: Vec<usize>,
    /// By pulse, whole frames.
    pub(super) sent: BTreeMap<u64, Sent>,
    pub(super) wrong: Vec<Wrong>,
    /// Frames that it did not end.
    pub(super) halves: u64,
}

/// A board.
pub(super) struct Board {
    index: usize,
    plan: Plan,
    connection: Connection,
    /// The pulse that comes next.
    next: u64,
    /// It is to hang up before it sends anything else; it did what it had to do at `next`.
    is_leaving: bool,
    is_done: bool,
    /// What it has yet to send of no pulse before the next one, once that is known.
    strays: Option<Vec<(u64, u64)>>,
    /// A pulse whose frame waits until so many others have left.
    held: Option<(u64, u64)>,
    pub(super) journal: Journal,
}

impl Board {
    pub(super) fn new(index: usize, bits: u32, connection: Connection) -> Self {
        let (is_leaving, is_done, strays, held) = (false, false, None, None);
        let (plan, journal) = (plan(bits), Journal::default());
        Self { index, plan, connection, next: 1, is_leaving, is_done, strays, held, journal }
    }

    /// It has sent everything and hung up.
    pub(super) const fn has_left(&self, scenario: &Scenario) -> bool {
        self.next > scenario.pulses && self.held.is_none() && !self.connection.is_up()
    }

    /// Sends what is due, as far as there is room; hangs up when all has left.
    pub(super) fn turn(&mut self, now: Instant, scenario: &Scenario) {
        let has_more = self.next <= scenario.pulses || self.held.is_some();
        self.connection.turn(now, has_more && !self.is_leaving);
        if self.is_leaving {
            self.is_leaving = !self.connection.hang_up();
            return;
        }
        while self.next <= scenario.pulses && now >= Instant::ZERO.after(scenario.pace * self.next as u32) {
            if !self.show(now, scenario) {
                return;
            }
        }
        if self.next > scenario.pulses && self.send_held(now, scenario) {
            self.connection.hang_up();
        }
    }

    /// Sends the frame that was held, if there is one; whether it has left.
    fn send_held(&mut self, now: Instant, scenario: &Scenario) -> bool {
        let Some((pulse, _)) = self.held else { return true };
        let (time, is_right) = scenario.time_at(self.index, pulse);
        let frame = self.frame(scenario, pulse, time);
        let is_sent = self.send(&frame);
        if is_sent {
            self.journal.sent.insert(pulse, Sent { at: now, time, is_right, frame });
            self.held = None;
        }
        is_sent
    }

    /// Sends what comes before the next frame and is of no pulse; whether all has left.
    fn send_strays(&mut self, now: Instant, scenario: &Scenario) -> bool {
        if self.strays.is_none() {
            let mut strays = scenario.strays(self.index, self.next, self.journal.sent.is_empty());
            strays.reverse();
            self.strays = Some(strays);
        }
        while let Some(&(pulse, time)) = self.strays.as_ref().and_then(|strays| strays.last()) {
            let frame = self.frame(scenario, pulse, time);
            if !self.send(&frame) {
                return false;
            }
            self.journal.sent.insert(pulse, Sent { at: now, time, is_right: false, frame });
            self.strays.as_mut().map(Vec::pop);
        }
        true
    }

    /// Does what is to be done at the next pulse; false where it must go on later.
    fn show(&mut self, now: Instant, scenario: &Scenario) -> bool {
        let pulse = self.next;
        if !scenario.sees(self.index, pulse) {
            self.next += 1;
            return true;
        }
        let mishap = scenario.boards[self.index].mishaps.get(&pulse).copied();
        if mishap.is_some_and(|mishap| matches!(mishap, Mishap::Restart { reconnects: true, .. })) && !self.is_done {
            (self.is_leaving, self.is_done) = (true, true);
            return false;
        }
        let has_held = self.held.is_some_and(|(_, others)| others == 0);
        if has_held && !self.send_held(now, scenario) || !self.send_strays(now, scenario) {
            return false;
        }
        let (time, is_right) = scenario.time_at(self.index, pulse);
        let mut bytes = self.frame(scenario, pulse, time);
        match mishap {
            Some(Mishap::Overtaken { by }) if scenario.reorder > 0 && self.held.is_none() => {
                self.held = Some((pulse, by));
                (self.next, self.is_done, self.strays) = (pulse + 1, false, None);
                return true;
            }
            Some(Mishap::CutOff) => {
                bytes.truncate(bytes.len() / 2);
                if !self.send(&bytes) {
                    return false;
                }
                self.journal.halves += 1;
                (self.next, self.is_leaving, self.strays) = (pulse + 1, true, None);
                return false;
            }
            Some(Mishap::Damage) => *bytes.last_mut().expect("no frame is empty") ^= 0x10,
            Some(Mishap::Noise) if !self.is_done => {
                let noise = vec![0x55; 1 + (mixed(scenario.seed, pulse, 9) % 60) as usize];
                if !self.send(&noise) {
                    return false;
                }
                self.is_done = true;
                self.note_wrong(Mishap::Noise, noise.len());
            }
            _ => {}
        }
        if !self.send(&bytes) {
            return false;
        }
        if let Some(mishap @ Mishap::Damage) = mishap {
            self.note_wrong(mishap, bytes.len());
        }
        self.journal.sent.insert(pulse, Sent { at: now, time, is_right, frame: bytes });
        (self.next, self.is_done, self.strays) = (pulse + 1, false, None);
        if let Some((_, others)) = &mut self.held {
            *others -= 1;
        }
        true
    }

    fn send(&mut self, bytes: &[u8]) -> bool {
        let is_sent = self.connection.send(bytes);
        if is_sent {
            self.journal.begins.push(self.journal.bytes.len());
            self.journal.bytes.extend_from_slice(bytes);
        }
        is_sent
    }

    /// The last so many bytes are wrong.
    fn note_wrong(&mut self, mishap: Mishap, bytes: usize) {
        let begin = self.journal.bytes.len() - bytes;
        self.journal.wrong.push(Wrong { mishap, begin });
    }

    fn frame(&self, scenario: &Scenario, pulse: u64, time: u64) -> Vec<u8> {
        let chance = mixed(scenario.seed, pulse, 200 + self.index as u64);
        let mut payload: Vec<u8> =
            (0..HEADER as u64 + 4 + chance % 200).map(|place| (chance >> (place % 57)) as u8).collect();
        payload[PULSE].copy_from_slice(&(pulse as u32).to_le_bytes());
        payload[BOARD].copy_from_slice(&(self.index as u32).to_le_bytes());
        let mut frame = Vec::new();
        self.plan.compose(
            &Contents { event: time & (u64::MAX >> (64 - scenario.bits)), ..Contents::default() },
            &payload,
            &mut frame,
        );
        frame
    }
}
