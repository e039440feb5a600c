//! Boards of many kinds, made up by a seed: what is drafted of their frames is right for all of them, or doubtful.

use super::*;
use ropewalk_wire::framing::{Framing, Front, Search};
use ropewalk_wire::layout::Plan;

/// The bytes of a frame, and the event's number that they hold.
type Made = Vec<(Vec<u8>, u64)>;

/// How a board's frames are made.
#[derive(Clone, Debug)]
struct Board {
    magic: Vec<u8>,
    /// Bytes of the length, 0 for none, and what it counts.
    length: (usize, bool, Counted, usize),
    /// Bytes of the counter, the order of them, its bits, the bit at which it begins, and what the other bits are.
    counter: (usize, bool, u32, u32, Rest),
    first: u64,
    /// Constant bytes, of which some are 0, a byte that changes, and a number beside the event's.
    constants: Vec<u8>,
    noise: bool,
    other: Other,
    /// Where the length stands: before the magic bytes or behind.
    length_first: bool,
    payload: Payload,
    checksum: bool,
    frames: usize,
    lost: u64,
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum Counted {
    Frame,
    AfterField,
    Payload,
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum Rest {
    Zero,
    Constant,
    Noise,
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum Other {
    None,
    Packets,
    Triggers,
    Part,
    Seconds,
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum Payload {
    Noise,
    Samples,
    Zeros,
    Fixed,
}

impl Board {
    fn new(seed: u64) -> Self {
        let mut noise = Noise(seed);
        (0..8).for_each(|_| _ = noise.next());
        let mut below = |most: u64| (noise.next() >> 20) % most;
        let bytes = [1, 2, 3, 4, 4, 4, 8][below(7) as usize];
        let is_narrow = bytes > 1 && below(3) == 0;
        let bits = if is_narrow { [4, 12, 12, 10][below(4) as usize] } else { 8 * bytes as u32 };
        let shift = if is_narrow { [0, 0, 4][below(3) as usize] } else { 0 };
        let unit = [1, 1, 2, 4][below(4) as usize];
        Self {
            magic: [&b""[..], b"TAES", b"\xca\xfe", b"RUN"][below(4) as usize].to_vec(),
            length: (
                [0, 2, 4, 4][below(4) as usize],
                below(2) == 0,
                [Counted::Frame, Counted::AfterField, Counted::Payload][below(3) as usize],
                unit,
            ),
            counter: (
                bytes,
                below(2) == 0,
                bits,
                shift,
                if is_narrow { [Rest::Zero, Rest::Constant, Rest::Noise][below(3) as usize] } else { Rest::Zero },
            ),
            first: [0, 1, 1, below(1 << 14)][below(4) as usize],
            constants: [&[][..], &[0, 0], &[0, 7, 0], &[0x51, 0, 0, 0], &[1; 8]][below(5) as usize].to_vec(),
            noise: below(3) == 0,
            other: [
                Other::None,
                Other::None,
                Other::None,
                Other::Packets,
                Other::Triggers,
                Other::Part,
                Other::Seconds,
            ][below(7) as usize],
            length_first: below(2) == 0,
            payload: [Payload::Noise, Payload::Samples, Payload::Zeros, Payload::Fixed][below(4) as usize],
            checksum: below(2) == 0,
            frames: [12, 60, 200, 700, 1200][below(5) as usize],
            lost: [0, 0, 0, 100][below(4) as usize],
        }
    }

    /// What it sends; the numbers that it holds are those of the field.
    fn frames(&self, seed: u64) -> Made {
        let (mut noise, mut number, mut parts, mut made) = (Noise(seed ^ 0x5555), self.first, 0_u64, Vec::new());
        for index in 0..self.frames as u64 {
            let is_lost = self.lost > 0 && noise.next() % self.lost == 0;
            number += match self.other {
                Other::Triggers => 1 + (noise.next() >> 30) % 5,
                Other::Part if parts > 0 => 0,
                _ => 1,
            };
            parts = if parts == 0 { 1 + (noise.next() >> 30) % 3 } else { parts - 1 };
            if !is_lost {
                made.push(self.frame(index, number, parts, &mut noise));
            }
        }
        made
    }

    fn frame(&self, index: u64, number: u64, parts: u64, noise: &mut Noise) -> (Vec<u8>, u64) {
        let (length_bytes, is_big, counts, unit) = self.length;
        let mut frame = Vec::new();
        if self.length_first {
            frame.resize(length_bytes, 0);
        }
        frame.extend_from_slice(&self.magic);
        let length_at = if self.length_first { 0 } else { frame.len() };
        if !self.length_first {
            frame.resize(frame.len() + length_bytes, 0);
        }
        frame.extend_from_slice(&self.constants);
        let (bytes, counter_is_big, bits, shift, rest) = self.counter;
        let mask = u64::MAX >> (64 - bits);
        let others = match rest {
            Rest::Zero => 0,
            Rest::Constant => 0x5A5A_5A5A_5A5A_5A5A,
            Rest::Noise => noise.next(),
        };
        let word = (number & mask) << shift | others & !(mask << shift);
        put(&mut frame, word, bytes, counter_is_big);
        if self.noise {
            frame.push(noise.next() as u8);
        }
        match self.other {
            Other::None => {}
            Other::Packets | Other::Triggers => put(&mut frame, 1000 + index, 4, counter_is_big),
            Other::Part => put(&mut frame, parts, 1, true),
            Other::Seconds => put(&mut frame, 1_700_000_000 + index / 50, 4, true),
        }
        let header = frame.len();
        let payload = if self.payload == Payload::Fixed { 40 } else { 8 + (noise.next() >> 24) as usize % 120 };
        let mut data = vec![0; payload];
        match self.payload {
            Payload::Noise | Payload::Fixed => noise.fill(&mut data),
            Payload::Samples => data.chunks_mut(2).for_each(|pair| pair[0] = 100 + (noise.next() >> 30) as u8 % 40),
            Payload::Zeros => data.iter_mut().step_by(17).for_each(|byte| *byte = noise.next() as u8),
        }
        frame.extend_from_slice(&data);
        if self.checksum {
            frame.extend_from_slice(&(noise.next() as u32).to_le_bytes());
        }
        let uncounted = match counts {
            Counted::Frame => 0,
            Counted::AfterField => length_at + length_bytes,
            Counted::Payload => header,
        };
        if length_bytes > 0 {
            let missing = (unit - (frame.len() - uncounted) % unit) % unit;
            frame.resize(frame.len() + missing, 0xEE);
            let mut length = Vec::new();
            put(&mut length, ((frame.len() - uncounted) / unit) as u64, length_bytes, is_big);
            frame[length_at..length_at + length_bytes].copy_from_slice(&length);
        }
        (frame, number & mask)
    }
}

fn put(out: &mut Vec<u8>, number: u64, bytes: usize, is_big_endian: bool) {
    if is_big_endian {
        out.extend_from_slice(&number.to_be_bytes()[8 - bytes..]);
    } else {
        out.extend_from_slice(&number.to_le_bytes()[..bytes]);
    }
}

/// What is drafted of it, as a stream or in datagrams.
fn sniffed(made: &Made, is_stream: bool) -> Group {
    let mut sniffer = Sniffer::new(Limits { frames: 2048, ..Limits::default() });
    let transport = if is_stream { Transport::Tcp } else { Transport::Udp };
    for (index, (frame, _)) in made.iter().enumerate() {
        // All at once, as from a file: no clock helps.
        sniffer.accept(peer(1, transport), at(1 + index as u64 % 2), frame);
    }
    only(&sniffer)
}

/// Why a draft is wrong; `None` if it is right, or nothing was drafted.
fn wrong(group: &Group, made: &Made, is_stream: bool) -> Option<String> {
    let layout = draft(group)?;
    let plan = Plan::compile(&layout).expect("a draft is a plan");
    if is_stream {
        let all: Vec<u8> = made.iter().flat_map(|(frame, _)| frame.iter().copied()).collect();
        let (mut at, mut search) = (0, Search::default());
        for (index, (frame, _)) in made.iter().enumerate() {
            match plan.front(&all[at..], &mut search) {
                Front::Frame { bytes } if bytes == frame.len() => at += bytes,
                other => return Some(format!("frame {index} of {}: {other:?}", frame.len())),
            }
        }
    }
    let event = layout.event.first()?;
    let numbers: Vec<u64> = made.iter().filter_map(|(frame, _)| plan.fields(&frame[..]).event).collect();
    let truth: Vec<u64> = made.iter().map(|(_, number)| *number).collect();
    (numbers != truth).then(|| format!("{event:?}: {:?} for {:?}", &numbers[..4], &truth[..4]))
}

/// Right without a doubt, right with doubts, no event named or no frames found, wrong and said to be doubtful.
#[derive(Debug, Default)]
struct Tally {
    right: usize,
    careful: usize,
    nothing: usize,
    doubtful: usize,
}

fn tally(seeds: std::ops::Range<u64>) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        let board = Board::new(seed);
        let made = board.frames(seed);
        for is_stream in [false, true] {
            let group = sniffed(&made, is_stream);
            let draft = draft(&group);
            let is_named = draft.as_ref().is_some_and(|layout| !layout.event.is_empty());
            match wrong(&group, &made, is_stream) {
                Some(why) => {
                    let doubts: Vec<String> = group.doubts.iter().map(Doubt::to_string).collect();
                    assert!(
                        !group.doubts.is_empty(),
                        "seed {seed}, as a stream: {is_stream}: {why}\n{board:?}\n{doubts:?}\n{}{draft:#?}",
                        told(&group)
                    );
                    tally.doubtful += 1;
                }
                None if !is_named => tally.nothing += 1,
                None if group.doubts.is_empty() => tally.right += 1,
                None => tally.careful += 1,
            }
        }
    }
    tally
}

#[test]
fn a_draft_is_right_or_says_that_it_is_doubtful() {
    let tally = tally(0..80);
    assert!(tally.right >= 14 && tally.right + tally.careful >= 70, "{tally:?}");
}

/// What is as usual is found without a doubt: a word, a length, a counter in every order and width.
#[test]
fn usual_boards_are_drafted_without_doubts() {
    for seed in 0..48 {
        let board = Board {
            magic: b"TAES".to_vec(),
            length: (
                [2, 4][seed as usize % 2],
                seed & 2 == 0,
                [Counted::Frame, Counted::AfterField, Counted::Payload][seed as usize % 3],
                1,
            ),
            counter: ([2, 4, 4][seed as usize % 3], seed & 4 == 0, [16, 32, 32][seed as usize % 3], 0, Rest::Zero),
            first: 1,
            constants: vec![3, 0x51, 0, 0],
            noise: false,
            other: Other::None,
            length_first: seed & 8 == 0,
            payload: Payload::Samples,
            checksum: seed & 16 == 0,
            frames: 700,
            lost: 0,
        };
        let made = board.frames(seed);
        for is_stream in [false, true] {
            let group = sniffed(&made, is_stream);
            assert_eq!(
                (wrong(&group, &made, is_stream), &group.doubts),
                (None, &Vec::new()),
                "{board:?}\n{}",
                told(&group)
            );
            assert!(draft(&group).is_some_and(|layout| layout.event.len() == 1), "{board:?}\n{}", told(&group));
        }
    }
}
