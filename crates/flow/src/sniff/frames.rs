//! Finds frames in a stream, and reads numbers from their first bytes.

use super::findings::Meaning;
use super::{Stream, fields};
use core::ops::Range;
use ropewalk_wire::framing::{Framing, Front, Search};
use ropewalk_wire::layout::{Frame, Layout, Length, Number, Plan, Size};
use std::collections::HashMap;

/// The first frames of a peer: the time of arrival, the length and the first bytes of each.
#[derive(Debug)]
pub(super) struct Frames {
    /// Number of bytes kept of a frame.
    head: usize,
    notes: Vec<Note>,
    heads: Vec<u8>,
    /// The first frames as a whole, for their checksums, and their total bytes.
    whole: Vec<Vec<u8>>,
    whole_bytes: usize,
}

/// The most bytes of whole frames that are kept per peer.
const MOST_WHOLE: usize = 64 << 10;

#[derive(Copy, Clone, Debug)]
struct Note {
    at: u64,
    length: usize,
    start: usize,
}

/// A frame: its time of arrival in nanoseconds, its length, and its first bytes.
#[derive(Copy, Clone, Debug)]
pub(super) struct Row<'a> {
    pub(super) at: u64,
    pub(super) length: usize,
    pub(super) head: &'a [u8],
    whole: Option<&'a [u8]>,
}

impl<'a> Row<'a> {
    /// Returns all bytes of the frame, if they were kept.
    pub(super) const fn whole(&self) -> Option<&'a [u8]> {
        self.whole
    }
}

impl Frames {
    pub(super) const fn new(head: usize) -> Self {
        Self { head, notes: Vec::new(), heads: Vec::new(), whole: Vec::new(), whole_bytes: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.notes.len()
    }

    pub(super) fn push(&mut self, at: u64, bytes: &[u8]) {
        self.notes.push(Note { at, length: bytes.len(), start: self.heads.len() });
        self.heads.extend_from_slice(&bytes[..bytes.len().min(self.head)]);
        self.whole_bytes += bytes.len();
        if self.whole_bytes <= MOST_WHOLE {
            self.whole.push(bytes.to_vec());
        }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.notes.iter().enumerate().map(|(index, note)| {
            let kept = note.length.min(self.head);
            let whole = self.whole.get(index).map(Vec::as_slice);
            Row { at: note.at, length: note.length, head: &self.heads[note.start..note.start + kept], whole }
        })
    }
}

/// The frames of several peers. All of them have the bytes before `reach`.
#[derive(Debug)]
pub(super) struct Table<'a> {
    /// The first frames of each peer, in order.
    pub(super) peers: Vec<Vec<Row<'a>>>,
    /// The last frames of each peer, after a gap.
    pub(super) late: Vec<Vec<Row<'a>>>,
    pub(super) reach: usize,
}

/// One frame in this many may be much shorter than the rest, such as a board's heartbeat. It is left out, unless it has
/// room for a usual header.
const SHORT_SHARE: usize = 10;

impl<'a> Table<'a> {
    /// Creates a table of the first and the last frames of each peer.
    pub(super) fn new(peers: impl Iterator<Item = (&'a Frames, &'a Frames)>) -> Self {
        let (mut peers, late): (Vec<Vec<Row<'a>>>, Vec<Vec<Row<'a>>>) =
            peers.map(|(first, last)| (first.rows().collect(), last.rows().collect())).unzip();
        let mut kept: Vec<usize> = peers.iter().flatten().map(|row| row.head.len()).collect();
        kept.sort_unstable();
        let usual = kept.get(kept.len() / SHORT_SHARE).copied().unwrap_or(0);
        let reach = kept.into_iter().find(|length| length * 2 >= usual.min(2 * HEAD)).unwrap_or(0);
        peers.iter_mut().for_each(|rows| rows.retain(|row| row.head.len() >= reach));
        let mut all: Vec<_> = peers.into_iter().zip(late).filter(|(rows, _)| !rows.is_empty()).collect();
        for (rows, late) in &mut all {
            let end = rows.last().map_or(0, |row| row.at);
            late.retain(|row: &Row<'a>| row.head.len() >= reach && row.at > end);
        }
        let (peers, late) = all.into_iter().unzip();
        Self { peers, late, reach }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &Row<'a>> {
        self.peers.iter().flatten()
    }

    /// Returns the number of frames.
    pub(super) fn len(&self) -> usize {
        self.peers.iter().map(Vec::len).sum()
    }

    /// Returns each frame with the next one of its peer.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&Row<'a>, &Row<'a>)> {
        self.peers.iter().flat_map(|rows| rows.iter().zip(rows.iter().skip(1)))
    }

    /// Returns every possible number of `bytes` bytes, in both byte orders; in one order for a single byte.
    pub(super) fn places(&self, bytes: u8) -> impl Iterator<Item = Number> {
        let end = (self.reach + 1).saturating_sub(bytes.into()) as i32;
        let orders: &[bool] = if bytes == 1 { &[false] } else { &[false, true] };
        (0..end).flat_map(move |at| {
            orders.iter().map(move |&is_big_endian| Number { is_big_endian, ..Number::little_endian(at, bytes) })
        })
    }

    /// Returns how many different values a byte has, at most 256.
    pub(super) fn liveliness(&self, at: usize) -> usize {
        let mut seen = [false; 256];
        self.rows().for_each(|row| seen[usize::from(row.head[at])] = true);
        seen.iter().filter(|seen| **seen).count()
    }
}

/// Returns the byte range of a number.
pub(super) const fn extent(number: &Number) -> core::ops::Range<usize> {
    let at = number.at as usize;
    at..at + number.bytes as usize
}

/// Whether two numbers share a byte.
pub(super) fn overlap(one: &Number, other: &Number) -> bool {
    let (one, other) = (extent(one), extent(other));
    one.start < other.end && other.start < one.end
}

/// Reads a number from a frame that contains it; without a mask all its bits.
pub(super) fn read(row: &Row<'_>, number: &Number) -> u64 {
    let bytes = &row.head[extent(number)];
    let join = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let value = if number.is_big_endian { bytes.iter().fold(0, join) } else { bytes.iter().rev().fold(0, join) };
    number.mask.map_or(value, |mask| (value & mask) >> mask.trailing_zeros())
}

/// Returns the number of bits of a number.
pub(super) fn bits(number: &Number) -> u32 {
    number.mask.map_or(8 * u32::from(number.bytes), u64::count_ones)
}

/// Returns the forward difference of two values of a number.
pub(super) fn ahead(number: &Number, from: &Row<'_>, to: &Row<'_>) -> u64 {
    read(to, number).wrapping_sub(read(from, number)) & (u64::MAX >> (64 - bits(number)))
}

/// The longest plausible frame, in bytes.
const MOST_FRAME: u32 = 1 << 20;
/// Number of frames that are required for any result.
const LEAST_FRAMES: usize = 8;
/// Number of bytes of a frame in which its length is searched, and in which frames may look alike.
const HEAD: usize = 32;
/// Least improbability of a result, in bits per frame and in all. A chain that lost its way returns to frames now and
/// then, and then to places that have a byte in common.
const LEAST_BITS_EACH: f64 = 12.0;
const LEAST_BITS: f64 = 48.0;
/// A number that led this often to a frame of the same size is not a length: in zeros there are a million of them.
const MOST_OF_ONE_SIZE: usize = 256;
/// The longest header that a length may exclude, in bytes.
const MOST_HEADER: i64 = 40;
/// Number of frames of a way that are evaluated.
const COUNTED_FRAMES: usize = 4096;
/// A way with at least this share of the best one's evidence is a rival.
const RIVAL: f64 = 0.6;
const CLOSE: f64 = 0.8;
/// A way that finds all frames of another and more of them ranks before it with this share of its evidence: of short
/// frames two are alike where one is.
const FINER: f64 = 0.4;
/// Number of bytes in which words are counted.
const COUNTED: usize = 128 << 10;
/// Number of words that are tried.
const TRIED_WORDS: usize = 8;
/// Bytes per word.
const WORD: usize = 4;
/// The longest frame of a fixed size without a sync word, in bytes.
const MOST_PERIOD: usize = 4096;

/// Number of streams that are tried, longest first.
const TRIED_STREAMS: usize = 4;

/// A framing that is ready for use.
#[derive(Debug)]
pub(super) struct Cutting {
    pub(super) frame: Frame,
    /// Another framing that fits almost as well, and finds other frames.
    pub(super) rival: Option<Frame>,
    plan: Plan,
    /// The longest frame of the bytes in which the framing was found.
    longest: usize,
}

impl Cutting {
    fn new(frame: Frame, bytes: &[u8]) -> Option<Self> {
        let plan = Plan::compile(&Layout::new(frame.clone(), MOST_FRAME)).ok()?;
        let mut cutting = Self { frame, rival: None, plan, longest: 0 };
        cutting.longest = cutting.frames(bytes).map(|range| range.len()).max().unwrap_or(0);
        Some(cutting)
    }

    /// Returns the frame ranges of a stream, part by part; `None` if one of its parts does not consist of frames.
    pub(super) fn frames_of(&self, stream: &Stream) -> Option<Vec<Range<usize>>> {
        // Any bytes can be cut into frames of a fixed size, so they must be visible there, too.
        if matches!(self.frame, Frame::Fixed { .. })
            && stream.bytes.len() > LEAST_FRAMES * self.longest
            && find_frame(&stream.bytes[stream.longest_part()]).map(|(frame, _)| frame).as_ref() != Some(&self.frame)
        {
            return None;
        }
        let mut all = Vec::new();
        for part in stream.parts() {
            let found = self.fitting(&stream.bytes[part.clone()])?;
            all.extend(found.into_iter().map(|range| range.start + part.start..range.end + part.start));
        }
        Some(all)
    }

    /// Returns the frames of bytes that may begin within a frame; `None` if they do not lead to the end.
    fn fitting(&self, bytes: &[u8]) -> Option<Vec<Range<usize>>> {
        (0..=self.longest.min(bytes.len())).find_map(|begin| {
            let rest = &bytes[begin..];
            let frames: Vec<Range<usize>> = self.frames(rest).collect();
            let framed: usize = frames.iter().map(Range::len).sum();
            // The last frame may be incomplete.
            let is_led = (framed + self.longest) * 10 >= rest.len() * 9;
            let are_alike = frames.iter().all(|range| range.len() <= 2 * self.longest);
            let moved = |range: &Range<usize>| range.start + begin..range.end + begin;
            (is_led && are_alike).then(|| frames.iter().map(moved).collect())
        })
    }

    /// Returns the ranges of a stream's frames.
    pub(super) fn frames<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = Range<usize>> + 'a {
        let (mut at, mut search) = (0, Search::default());
        core::iter::from_fn(move || {
            loop {
                match self.plan.front(&bytes[at..], &mut search) {
                    Front::Frame { bytes } => {
                        search = Search::default();
                        at += bytes;
                        return Some(at - bytes..at);
                    }
                    Front::Skip { bytes, .. } => at += bytes,
                    Front::Needs { .. } | Front::Lost { .. } => return None,
                }
            }
        })
    }
}

/// Determines how the longest of these streams is cut into frames, if any of them shows it.
///
/// A length field leads from each frame to the next, and the bytes there look alike. A sync word recurs at distances
/// that are constant or that a field after it states. Lines of text have an end. Frames of one size look alike at that
/// distance. The ways are tried in this order, and a result must hold to the end of the input.
pub(super) fn find_cutting(streams: &[&Stream]) -> Option<Cutting> {
    let mut parts: Vec<&[u8]> = streams.iter().map(|stream| &stream.bytes[stream.longest_part()]).collect();
    parts.sort_by_key(|part| core::cmp::Reverse(part.len()));
    parts.into_iter().take(TRIED_STREAMS).find_map(|bytes| {
        let (frame, rival) = find_frame(bytes)?;
        Some(Cutting { rival, ..Cutting::new(frame, bytes)? })
    })
}

/// A way of finding the frames from the first byte on.
struct Way {
    frame: Frame,
    /// Offsets at which frames begin.
    starts: Vec<usize>,
    /// Its evidence, in bits per frame: a way through a long run of zeros has many frames, each with little evidence.
    bits_each: f64,
}

impl Way {
    /// Whether all frames have one size.
    fn is_one_size(&self) -> bool {
        is_one_size(&self.starts)
    }

    fn size(&self) -> usize {
        self.starts[1] - self.starts[0]
    }

    /// Whether nine of ten frames have this size.
    fn has_nearly_all_of(&self, size: usize) -> bool {
        let same = self.starts.windows(2).filter(|pair| pair[1] - pair[0] == size).count();
        same * 10 >= self.starts.len() * 9
    }

    fn has_all_of(&self, other: &Self) -> bool {
        other.starts.iter().all(|start| self.starts.binary_search(start).is_ok())
    }

    fn finds_the_same(&self, other: &Self) -> bool {
        self.starts == other.starts || self.is_one_size() && other.is_one_size() && self.size() == other.size()
    }
}

/// Returns the framing of a stream, and another one that fits almost as well.
fn find_frame(bytes: &[u8]) -> Option<(Frame, Option<Frame>)> {
    let shares = shares(bytes);
    let mut ways = by_length(bytes, &shares);
    for way in by_size(bytes, &shares) {
        if !ways.iter().any(|known| known.finds_the_same(&way)) {
            ways.push(way);
        }
    }
    // A number that leads to frames of one size, and elsewhere at its next change, is not a length.
    let sizes: Vec<usize> = ways.iter().filter(|way| way.is_one_size()).map(Way::size).collect();
    ways.retain(|way| way.is_one_size() || !sizes.iter().any(|size| way.has_nearly_all_of(*size)));
    // Frames also begin alike in a way that misses some of them.
    let misses = |way: &Way| {
        let finds_more = |other: &Way| other.starts.len() > way.starts.len() && other.bits_each > FINER * way.bits_each;
        ways.iter().filter(|other| finds_more(other)).any(|other| other.has_all_of(way))
    };
    let missing: Vec<bool> = ways.iter().map(misses).collect();
    let mut kept = missing.iter().map(|misses| !misses);
    ways.retain(|_| kept.next().unwrap_or(true));
    ways.sort_by(|one, other| other.bits_each.total_cmp(&one.bits_each));
    let otherwise =
        || by_word(bytes).or_else(|| by_line(bytes)).or_else(|| by_period(bytes)).map(|frame| (frame, None));
    // Of ways with about the same evidence, the one with the most frames wins: the others lose their way for a while.
    let most = ways.first().map_or(0.0, |way| way.bits_each);
    let close = ways.iter().filter(|way| way.bits_each >= CLOSE * most);
    let Some(best) = close.max_by_key(|way| way.starts.len()) else { return otherwise() };
    let frame = if best.is_one_size() { marked(bytes, best, &shares) } else { best.frame.clone() };
    // A word at the beginning of each frame is doubtful only beside a way that finds more frames.
    let is_marked = matches!(frame, Frame::Sync { .. });
    let is_rival = |way: &&Way| {
        way.bits_each > best.bits_each * RIVAL
            && !best.has_all_of(way)
            && (!is_marked || way.starts.len() > best.starts.len())
    };
    let rival = ways.iter().find(is_rival);
    Some((frame, rival.map(|way| way.frame.clone())))
}

/// Returns the framing for frames of one size, with the word that they begin with, if there is one.
fn marked(bytes: &[u8], way: &Way, shares: &[f64; 256]) -> Frame {
    let size = Size::Fixed { bytes: way.size() as u32 };
    let first = &bytes[..WORD.min(way.size())];
    let same = way
        .starts
        .iter()
        .filter_map(|start| bytes.get(*start..start + first.len()))
        .map(|other| first.iter().zip(other).take_while(|(one, other)| one == other).count());
    let mut word = first[..same.min().unwrap_or(0)].to_vec();
    while word.last() == Some(&0) {
        word.pop();
    }
    if word.len() > 1 && word.iter().any(|byte| *byte != word[0]) {
        return Frame::Sync { word, size };
    }
    // The stream may begin within a frame. In that case more bytes are alike behind a word than behind its first byte.
    let elsewhere = by_word(bytes).filter(|frame| matches!(frame, Frame::Sync { size: other, .. } if *other == size));
    let begin = |frame: &Frame| match frame {
        Frame::Sync { word, .. } => bytes.windows(word.len()).position(|here| here == word),
        _ => None,
    };
    let is_better = |frame: &Frame| {
        let Some(begin) = begin(frame).filter(|begin| *begin > 0) else { return false };
        let starts: Vec<usize> = (begin..bytes.len().saturating_sub(way.size())).step_by(way.size()).collect();
        alikeness(bytes, &starts, shares) / starts.len().max(1) as f64 > way.bits_each * 1.05
    };
    elsewhere.filter(is_better).unwrap_or_else(|| way.frame.clone())
}

/// Returns the relative frequency of each byte, 0 to 1.
fn shares(bytes: &[u8]) -> [f64; 256] {
    let mut counts = [0_u32; 256];
    bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    counts.map(|count| (f64::from(count) + 0.5) / (bytes.len() as f64 + 128.0))
}

/// Returns the evidence, in bits per frame, of a share `found` where `expected` would be chance.
fn surprise(found: f64, expected: f64) -> f64 {
    let part = |found: f64, expected: f64| if found > 0.0 { found * (found / expected).log2() } else { 0.0 };
    part(found, expected) + part(1.0 - found, 1.0 - expected)
}

/// Returns the length fields that lead from frame to frame; of those that find the same frames, the one with the most
/// evidence.
fn by_length(bytes: &[u8], shares: &[f64; 256]) -> Vec<Way> {
    let mut found: Vec<Way> = Vec::new();
    let is_text = by_line(bytes).is_some();
    for length in possible_lengths() {
        // Any byte is a possible length. The first frames must therefore begin alike, which lines of text do by chance.
        if length.number.bytes == 1 && (is_text || !begins_alike(bytes, &length, shares)) {
            continue;
        }
        let Some(starts) = chain(bytes, &length) else { continue };
        let looked_at = &starts[..starts.len().min(COUNTED_FRAMES)];
        let alikeness = alikeness(bytes, looked_at, shares);
        // Nearly all numbers of 16 bits are possible lengths.
        let frames = looked_at.len() as f64;
        let is_telling = alikeness < LEAST_BITS_EACH * frames && (length.number.bytes > 2 || alikeness > frames);
        // The evidence grows with the number of frames of other sizes.
        let others = starts.windows(2).filter(|pair| pair[1] - pair[0] != starts[1] - starts[0]).count();
        let variety = others as f64 / starts.len() as f64;
        let bits = if is_telling { alikeness + variety * unlikeliness(bytes, &length, looked_at) } else { alikeness };
        let bits_each = bits / frames;
        if bits < LEAST_BITS || bits_each < LEAST_BITS_EACH {
            continue;
        }
        let way = Way { frame: Frame::Length(length), starts, bits_each };
        match found.iter_mut().find(|known| known.finds_the_same(&way)) {
            // Among equally good lengths the first and simplest one wins.
            Some(known) if bits_each > known.bits_each * 1.01 => *known = way,
            Some(_) => {}
            None => found.push(way),
        }
    }
    found
}

/// Number of frame sizes that are tried.
const TRIED_SIZES: usize = 12;

/// Returns the sizes at which bytes are equal more often than at neighbouring sizes, if frames of that size begin
/// alike.
fn by_size(bytes: &[u8], shares: &[f64; 256]) -> Vec<Way> {
    let scores = sames(bytes);
    // Words of a payload are equal at all multiples of their size; only the excess of a size counts.
    let around = |at: usize| {
        [at - 8, at - 4, at + 4, at + 8]
            .into_iter()
            .filter_map(|at| scores.get(at))
            .fold(0.0, |one: f64, other| one.max(*other))
    };
    let peaks: Vec<f64> = (0..scores.len()).map(|at| if at < 8 { 0.0 } else { scores[at] - around(at) }).collect();
    let best = peaks.iter().copied().fold(0.0, f64::max);
    // Four times the noise.
    let least = (best * 0.5).max(4.0 * (0.5 / bytes.len().clamp(1, COUNTED) as f64).sqrt());
    let sizes = peaks.iter().zip(LEAST_SIZE..).filter(|(peak, _)| **peak >= least).map(|(_, size)| size);
    let mut found: Vec<Way> = Vec::new();
    for size in sizes.take(TRIED_SIZES) {
        let starts: Vec<usize> = (0..=bytes.len() - size).step_by(size).take(COUNTED_FRAMES).collect();
        let bits_each = alikeness(bytes, &starts, shares) / starts.len() as f64;
        if bits_each >= LEAST_BITS_EACH && starts.len() >= LEAST_FRAMES {
            found.push(Way { frame: Frame::Fixed { bytes: size as u32 }, starts, bits_each });
        }
    }
    found
}

fn possible_lengths() -> impl Iterator<Item = Length> {
    let places = [4_u8, 2, 1].into_iter().flat_map(|bytes| {
        (0..=(HEAD as i32 - i32::from(bytes))).flat_map(move |at| {
            let orders: &[bool] = if bytes == 1 { &[false] } else { &[false, true] };
            orders.iter().map(move |&is_big_endian| Number { is_big_endian, ..Number::little_endian(at, bytes) })
        })
    });
    let whole: Vec<Number> = places.collect();
    let masked = whole.clone().into_iter().flat_map(|number| {
        let masks: &[u64] = match number.bytes {
            4 => &[0x0FFF_FFFF, 0x00FF_FFFF, 0xFFFF],
            2 => &[0x0FFF],
            _ => &[],
        };
        masks.iter().map(move |&mask| number.masked(mask))
    });
    whole.into_iter().chain(masked).flat_map(|number| {
        let end = i64::from(number.at) + i64::from(number.bytes);
        [1, 4, 8, 2].into_iter().flat_map(move |unit| {
            let odd = (1..=MOST_HEADER).filter(move |bytes| bytes % 4 != 0 && number.mask.is_none());
            let others = [4, 8, 12, 16, 20, 24, 28, 32].into_iter().chain(odd);
            let uncounted = [0, end].into_iter().chain(others.filter(move |&bytes| bytes != end));
            uncounted.map(move |bytes| fields::length(number, unit, bytes))
        })
    })
}

/// Returns the size that a length states for the frame at `at`; `None` if it is not possible.
fn stated(bytes: &[u8], at: usize, length: &Length, uncounted: i64) -> Option<usize> {
    let end = length.number.at as usize + usize::from(length.number.bytes);
    let head = bytes.get(at..)?;
    let row = Row { at: 0, length: 0, head: head.get(..end)?, whole: None };
    let counted = (read(&row, &length.number) as i64).checked_mul(length.unit.into())?;
    let stated = usize::try_from(counted + uncounted).ok()?;
    (end..=MOST_FRAME as usize).contains(&stated).then_some(stated)
}

fn uncounted(length: &Length) -> i64 {
    use ropewalk_wire::layout::Counts;
    let counts = match length.counts {
        Counts::Frame => 0,
        Counts::AfterField => i64::from(length.number.at) + i64::from(length.number.bytes),
        Counts::Payload { header } => header.into(),
    };
    counts + i64::from(length.add)
}

/// Returns where frames begin, if the length leads from the beginning of the stream to its end.
fn chain(bytes: &[u8], length: &Length) -> Option<Vec<usize>> {
    let (mut starts, mut at, base) = (Vec::new(), 0, uncounted(length));
    let end = length.number.at as usize + usize::from(length.number.bytes);
    while at + end <= bytes.len() {
        let frame = stated(bytes, at, length, base)?;
        starts.push(at);
        at += frame;
        if starts.len() == MOST_OF_ONE_SIZE && is_one_size(&starts) {
            return None;
        }
    }
    (starts.len() >= LEAST_FRAMES).then_some(starts)
}

/// Number of frames of a stream that are checked first.
const FIRST_FRAMES: usize = 64;

/// Whether the first frames to which a length leads begin alike.
fn begins_alike(bytes: &[u8], length: &Length, shares: &[f64; 256]) -> bool {
    let (mut starts, mut at, base) = (Vec::new(), 0, uncounted(length));
    while starts.len() < FIRST_FRAMES && at < bytes.len() {
        starts.push(at);
        match stated(bytes, at, length, base) {
            Some(frame) => at += frame,
            None => break,
        }
    }
    alikeness(bytes, &starts, shares) >= LEAST_BITS_EACH * starts.len() as f64
}

/// Whether all frames that begin at these places have one size.
fn is_one_size(starts: &[usize]) -> bool {
    starts.windows(2).all(|pair| pair[1] - pair[0] == starts[1] - starts[0])
}

/// Returns the evidence, in bits, of frames that begin alike. It counts from the first frame on, unlike a chain that
/// first had to find its way.
fn alikeness(bytes: &[u8], starts: &[usize], shares: &[f64; 256]) -> f64 {
    let frames = starts.len() as f64;
    let shortest = starts.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(0).min(HEAD);
    let bits = (0..shortest).map(|place| {
        let values = || starts.iter().filter_map(|start| bytes.get(start + place));
        let Some(&value) = values().next() else { return 0.0 };
        let is_so = |other: &&u8| **other == value;
        let share = values().filter(is_so).count() as f64 / frames;
        if share < 0.97 || !values().take(LEAST_FRAMES / 2).all(|other| is_so(&other)) {
            // The byte may also count frames.
            let steps = values().zip(values().skip(1)).filter(|(one, other)| **other == one.wrapping_add(1)).count();
            let share = steps as f64 / (frames - 1.0).max(1.0);
            return if share < 0.9 { 0.0 } else { frames * surprise(share, 1.0 / 256.0) - 8.0 };
        }
        frames * surprise(share, shares[usize::from(value)]) - 8.0
    });
    bits.sum()
}

/// Returns the evidence, in bits, that each length was possible, and was not 0 if none was.
fn unlikeliness(bytes: &[u8], length: &Length, starts: &[usize]) -> f64 {
    let base = uncounted(length);
    let is_zero = |at: &usize| stated(bytes, *at, length, base) == stated(&[0; HEAD], 0, length, base);
    let has_zeros = starts.iter().any(is_zero);
    let tries = bytes.len().min(1 << 14);
    let is_possible = |at: &usize| stated(bytes, *at, length, base).is_some() && (has_zeros || !is_zero(at));
    let possible = (0..tries).filter(is_possible).count();
    starts.len() as f64 * -((possible as f64 + 0.5) / (tries as f64 + 1.0)).log2()
}

/// Returns the framing by a sync word that is followed by a length or always recurs at the same distance.
fn by_word(bytes: &[u8]) -> Option<Frame> {
    frequent_words(bytes).into_iter().find_map(|(word, places)| {
        let gaps: Vec<usize> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // A word that occurs within a frame by chance divides a gap in two.
        let is_fixed = gaps.iter().filter(|gap| **gap == gaps[0]).count() * 100 >= gaps.len() * 98;
        let size = if is_fixed {
            Size::Fixed { bytes: u32::try_from(gaps[0]).ok()? }
        } else {
            Size::Length(length_behind(bytes, &places)?)
        };
        Some(Frame::Sync { word: word.to_vec(), size })
    })
}

/// Returns the length field of the frames that begin at these places.
fn length_behind(bytes: &[u8], places: &[usize]) -> Option<Length> {
    let mut frames = Frames::new(HEAD);
    places.windows(2).for_each(|pair| frames.push(0, &bytes[pair[0]..pair[1]]));
    let last = Frames::new(HEAD);
    let table = Table::new(core::iter::once((&frames, &last)));
    fields::find_lengths(&table, &[]).into_iter().find_map(|guess| match guess.meaning {
        Meaning::Length(length) => Some(length),
        _ => None,
    })
}

/// Returns frequent words with their places, the most promising first.
fn frequent_words(bytes: &[u8]) -> Vec<([u8; WORD], Vec<usize>)> {
    let shares = shares(bytes);
    let counted = &bytes[..bytes.len().min(COUNTED)];
    let mut counts: HashMap<[u8; WORD], usize> = HashMap::new();
    for word in counted.array_windows::<WORD>() {
        if word.iter().any(|byte| *byte != word[0]) {
            *counts.entry(*word).or_default() += 1;
        }
    }
    let bits = |word: &[u8; WORD]| word.iter().map(|byte| -shares[usize::from(*byte)].log2()).sum::<f64>();
    let mut words: Vec<(f64, [u8; WORD])> = counts
        .into_iter()
        .filter(|(_, count)| *count >= LEAST_FRAMES)
        .map(|(word, count)| (bits(&word) * count as f64, word))
        .collect();
    words.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
    words.truncate(TRIED_WORDS);
    let places = |word: &[u8; WORD]| {
        let found = bytes.array_windows::<WORD>().enumerate().filter(|(_, here)| *here == word);
        found.map(|(place, _)| place).collect::<Vec<usize>>()
    };
    let mut found: Vec<([u8; WORD], Vec<usize>)> = words.iter().map(|(_, word)| (*word, places(word))).collect();
    // The bytes in front of a frame vary; those within a longer run of equal bytes do not.
    let is_within = |places: &[usize]| {
        let before: Vec<u8> = places.iter().filter_map(|place| bytes.get(place.wrapping_sub(1)).copied()).collect();
        before.iter().filter(|byte| **byte == before[0]).count() * 10 >= before.len() * 9
    };
    found.sort_by_key(|(_, places)| is_within(places));
    found
}

/// Returns the framing by lines of text.
fn by_line(bytes: &[u8]) -> Option<Frame> {
    let is_text = |byte: &&u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    if lines < LEAST_FRAMES || bytes.iter().filter(is_text).count() * 100 < bytes.len() * 95 {
        return None;
    }
    let returns = bytes.array_windows().filter(|pair| **pair == *b"\r\n").count();
    let delimiter: &[u8] = if returns == lines { b"\r\n" } else { b"\n" };
    Some(Frame::Delimiter { bytes: delimiter.to_vec() })
}

/// The shortest frame of a fixed size.
const LEAST_SIZE: usize = 4;

/// Returns the number of equal bytes. The counter is a single byte, for at most 255 bytes, so that the compiler
/// compares many at once.
fn count_same(one: &[u8], other: &[u8]) -> u64 {
    let mut count = 0;
    for (one, other) in one.chunks(255).zip(other.chunks(255)) {
        let mut same = 0_u8;
        for (one, other) in one.iter().zip(other) {
            same = same.wrapping_add(u8::from(one == other));
        }
        count += u64::from(same);
    }
    count
}

/// Returns how often bytes are equal, 0 to 1, at each distance from the shortest one on.
fn sames(bytes: &[u8]) -> Vec<f64> {
    let bytes = &bytes[..bytes.len().min(COUNTED)];
    let alike = |distance: usize| {
        let pairs = bytes.len().saturating_sub(distance);
        let same = count_same(&bytes[..pairs], bytes.get(distance..).unwrap_or_default());
        same as f64 / pairs.max(1) as f64
    };
    (LEAST_SIZE..=MOST_PERIOD.min(bytes.len() / LEAST_FRAMES)).map(alike).collect()
}

/// Returns the framing by the distance at which bytes are most often equal.
fn by_period(bytes: &[u8]) -> Option<Frame> {
    let scores = sames(bytes);
    let chance = scores.iter().sum::<f64>() / scores.len().max(1) as f64;
    let best = scores.iter().copied().fold(0.0, f64::max);
    // Six times the noise.
    let noise = (chance * (1.0 - chance) / bytes.len().clamp(1, COUNTED) as f64).sqrt();
    if best < chance + 6.0 * noise + 0.01 {
        return None;
    }
    let period = scores.iter().position(|score| score - chance >= (best - chance) * 0.8)? + LEAST_SIZE;
    Some(Frame::Fixed { bytes: period as u32 })
}
