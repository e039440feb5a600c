//! Eight blocks per step with AVX2, and several such groups in flight.
#![allow(unsafe_code)]

use super::steady::Steady;
use super::{
    BlockWalk, HEADER_BYTES, LANES, LINE_BYTES, Layout, MOST_GROUPS, ROUNDED, Rest, Room, SubChunk, fault, prefetch,
    room_for, walk_scalar,
};
use core::arch::x86_64::*;
use std::arch::is_x86_feature_detected;

/// Groups in flight for blocks with many trailers: their bytes stay in the first cache.
const DENSE_GROUPS: usize = 2;
/// Groups in flight for blocks with few: as many outstanding lines as the processor supports.
const SPARSE_GROUPS: usize = MOST_GROUPS;
/// Above this number of trailers per KiB, nearly every line of a block is needed.
const DENSE_TRAILERS_PER_KIBIBYTE: usize = 6;
/// Above this number, guessing trailers is faster, if the guesses are right. Below it, lines are skipped.
const STEADY_TRAILERS_PER_KIBIBYTE: usize = 10;
/// From this size on, only few blocks fit into the cache at once.
const LARGE_BLOCK_BYTES: usize = 8 << 10;
/// Minimum prefetch distance, in bytes; the groups in flight may be longer.
const AHEAD_BYTES: usize = 32 << 10;

/// Whether the processor supports this walk.
pub(super) fn is_there() -> bool {
    is_x86_feature_detected!("avx2")
}

/// State kept from one walk to the next.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    /// The position of each lane's walk after each step, and the trailer it read there: by step, within a step by
    /// group, within a group in the order 0 1 4 5 2 3 6 7.
    rows: Vec<[SubChunk; LANES]>,
    /// Steps of the last groups, which the next ones are expected to take too.
    steps: usize,
    /// Whether their blocks had many trailers.
    is_dense: bool,
    /// Whether most trailers equalled the one after them: then guessing is faster.
    is_steady: bool,
}

impl Lanes {
    pub(super) fn new(layout: Layout) -> Self {
        let rows = MOST_GROUPS * (layout.most_sub_chunks() + ROUNDED);
        Self { rows: vec![[SubChunk::default(); LANES]; rows], steps: 1, is_dense: true, is_steady: false }
    }

    /// Whether in most lanes the third trailer from the end equals the second one.
    fn are_steady<const GROUPS: usize>(&self) -> bool {
        let (second, third) = self.rows[GROUPS..3 * GROUPS].split_at(GROUPS);
        let lanes = second.as_flattened().iter().zip(third.as_flattened());
        lanes.filter(|(second, third)| second.trailer == third.trailer).count() > GROUPS * LANES * 3 / 4
    }

    /// The lines that [`Ahead`] leaves.
    #[inline]
    pub(super) fn rest(&self, layout: Layout, bytes: &[u8], block: usize) -> Rest {
        let behind = SPARSE_GROUPS * LANES;
        let block_bytes = layout.block_bytes;
        let block = bytes.as_ptr().wrapping_add(block * block_bytes);
        if self.is_dense && block_bytes < LARGE_BLOCK_BYTES {
            let next = block.wrapping_add(walked_lines(block_bytes) * LINE_BYTES);
            return Rest { next, block_bytes, other: LINE_BYTES };
        }
        // Lines of later blocks: those of the next blocks must be present already when a walk peeks.
        Rest { next: block.wrapping_add(behind * block_bytes), block_bytes, other: block_bytes - LINE_BYTES }
    }
}

/// Walks until all blocks are done or no room is left.
pub(super) fn walk(
    layout: Layout,
    lanes: &mut Lanes,
    steady: &mut Steady,
    leaves_rest: bool,
    bytes: &[u8],
    room: &mut Room<'_>,
) {
    loop {
        let left = room.blocks - room.done;
        let is_dense = lanes.is_dense && layout.block_bytes < LARGE_BLOCK_BYTES;
        if is_dense && lanes.is_steady {
            let lines = if leaves_rest { walked_lines(layout.block_bytes) } else { layout.block_bytes / LINE_BYTES };
            lanes.is_steady = steady.walk(layout, lines, bytes, room);
            return;
        }
        let groups = if is_dense { DENSE_GROUPS } else { SPARSE_GROUPS };
        if left < LANES {
            return walk_scalar(layout, bytes, room);
        }
        let groups = if left < groups * LANES { 1 } else { groups };
        if room.walked.sub_chunks.len() - room.cursor < room_for(layout, groups) {
            return;
        }
        let mut walk = Walk { layout, bytes, lanes, leaves_rest, room };
        // SAFETY: the caller found AVX2.
        unsafe {
            match (layout.is_wide, groups, is_dense) {
                (true, DENSE_GROUPS, _) => walk.groups::<true, DENSE_GROUPS, true>(),
                (true, SPARSE_GROUPS, _) => walk.groups::<true, SPARSE_GROUPS, false>(),
                (true, _, true) => walk.groups::<true, 1, true>(),
                (true, _, false) => walk.groups::<true, 1, false>(),
                (false, DENSE_GROUPS, _) => walk.groups::<false, DENSE_GROUPS, true>(),
                (false, SPARSE_GROUPS, _) => walk.groups::<false, SPARSE_GROUPS, false>(),
                (false, _, true) => walk.groups::<false, 1, true>(),
                (false, _, false) => walk.groups::<false, 1, false>(),
            }
        }
    }
}

/// The walk of eight blocks.
#[derive(Copy, Clone)]
struct Group {
    /// The position of each lane in its block: everything after it is done. At the header's end when the block is done,
    /// before it if the block is damaged.
    at: __m256i,
    /// Steps taken.
    count: __m256i,
    /// The number of sub-chunks that are not whole chunks without flags, and whether the latest is one.
    odd: __m256i,
    latest_odd: __m256i,
    /// All ones in lanes that read an undefined type.
    undefined: __m256i,
}

struct Walk<'a, 'b> {
    layout: Layout,
    bytes: &'a [u8],
    lanes: &'a mut Lanes,
    leaves_rest: bool,
    room: &'a mut Room<'b>,
}

impl Walk<'_, '_> {
    /// Walks the next `GROUPS` times eight blocks. The caller ensures that they exist, with room for their sub-chunks.
    #[target_feature(enable = "avx2")]
    fn groups<const WIDE: bool, const GROUPS: usize, const DENSE: bool>(&mut self) {
        let block_bytes = self.layout.block_bytes;
        let start = self.room.done * block_bytes;
        let here = &self.bytes[start..start + GROUPS * LANES * block_bytes];
        let mut ahead = Ahead::new::<DENSE>(here, block_bytes, self.lanes.steps, self.leaves_rest);
        let mut peek =
            Peek::new::<DENSE>(self.bytes, start + here.len(), GROUPS * LANES, block_bytes, self.lanes.steps);
        let at = _mm256_set1_epi32(block_bytes as i32);
        let zero = _mm256_setzero_si256();
        let mut groups = [Group { at, count: zero, odd: zero, latest_odd: zero, undefined: zero }; GROUPS];
        let mut last_odd = [zero; GROUPS];
        let rows = &mut self.lanes.rows[..GROUPS * (self.layout.most_sub_chunks() + ROUNDED)];
        let mut steps = 0;
        for rows in rows.chunks_exact_mut(GROUPS) {
            ahead.step();
            peek.step::<WIDE>();
            let mut active = zero;
            for (index, (group, row)) in groups.iter_mut().zip(rows).enumerate() {
                let blocks = &here[index * LANES * block_bytes..][..LANES * block_bytes];
                active = _mm256_or_si256(active, group.step::<WIDE, DENSE>(blocks, block_bytes, row));
                if steps == 0 {
                    last_odd[index] = group.latest_odd;
                }
            }
            steps += 1;
            if _mm256_testz_si256(active, active) == 1 {
                break;
            }
        }
        ahead.rest();
        peek.rest::<WIDE>();
        let mut trailers = 0;
        for (index, (group, last_odd)) in groups.iter().zip(last_odd).enumerate() {
            trailers += self.finish::<GROUPS>(index, *group, last_odd, steps);
        }
        self.lanes.steps = steps;
        self.lanes.is_dense = trailers * 1024 > DENSE_TRAILERS_PER_KIBIBYTE * here.len();
        let may_be_steady = trailers * 1024 > STEADY_TRAILERS_PER_KIBIBYTE * here.len();
        self.lanes.is_steady = DENSE && may_be_steady && self.lanes.are_steady::<GROUPS>();
    }

    /// Writes the records and sub-chunks of a group after `steps` steps; returns the number of sub-chunks.
    #[target_feature(enable = "avx2")]
    fn finish<const GROUPS: usize>(&mut self, index: usize, group: Group, last_odd: __m256i, steps: usize) -> usize {
        let first_block = self.room.done;
        let steps = steps.next_multiple_of(ROUNDED);
        let block_bytes = self.layout.block_bytes;
        let base = first_block * block_bytes;
        let headers = gather(&self.bytes[base..base + LANES * block_bytes], block_bytes, _mm256_set1_epi32(4));
        let faults = group.faults(headers, self.layout.symbol);
        let odd = _mm256_add_epi32(group.odd, _mm256_add_epi32(last_odd, group.latest_odd));
        // A block of one sub-chunk has none between its first and its last one; of a damaged block nothing is known.
        let is_good = _mm256_cmpeq_epi32(faults, _mm256_setzero_si256());
        let has_several = _mm256_cmpgt_epi32(group.count, _mm256_set1_epi32(1));
        let odd = _mm256_and_si256(odd, has_several);
        let odd = _mm256_blendv_epi8(_mm256_set1_epi32(i32::from(u16::MAX)), odd, is_good);
        let counts_shown = _mm256_and_si256(group.count, is_good);
        let (counts, shown) = (array(group.count), array(counts_shown));
        let (faults, odd, headers) = (array(faults), array(odd), array(headers));
        // Lanes are written whole, even if they have fewer steps: the excess precedes the lane's own sub-chunks, and is
        // overwritten by those of the lanes before. Before the first lane it needs room.
        let mut cursor = self.room.cursor + steps - counts[0] as usize;
        let mut ends = [0; LANES];
        let blocks = &mut self.room.walked.blocks[first_block..first_block + LANES];
        for (lane, block) in blocks.iter_mut().enumerate() {
            *block = BlockWalk {
                header: headers[lane],
                first: cursor as u32,
                count: shown[lane],
                fault: faults[lane] as u16,
                odd: odd[lane] as u16,
            };
            cursor += counts[lane] as usize;
            ends[lane] = cursor;
        }
        let rows = &self.lanes.rows[..GROUPS * steps];
        let bases = core::array::from_fn(|lane| (base + lane * block_bytes) as i64);
        for place in (0..steps / ROUNDED).rev() {
            let row = |row: usize| &rows[(place * ROUNDED + row) * GROUPS + index];
            let taken = (place + 1) * ROUNDED;
            turn([row(0), row(1), row(2), row(3)], &bases, |lane, four| {
                let out = &mut self.room.walked.sub_chunks[ends[lane] - taken..][..ROUNDED];
                // SAFETY: `out` has the vector's size; the store needs no alignment.
                unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), four) };
            });
        }
        self.room.cursor = cursor;
        self.room.done += LANES;
        counts.iter().sum::<u32>() as usize
    }
}

impl Group {
    /// One step of each lane that is after its header; the others stay. Returns all ones in lanes that continue.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn step<const WIDE: bool, const DENSE: bool>(
        &mut self,
        blocks: &[u8],
        block_bytes: usize,
        row: &mut [SubChunk; LANES],
    ) -> __m256i {
        let header = _mm256_set1_epi32(HEADER_BYTES as i32);
        let active = _mm256_cmpgt_epi32(self.at, header);
        let word = gather(blocks, block_bytes, self.at);
        let kind = _mm256_srli_epi32::<29>(word);
        // Types 0 and 7 have no data, for any length: with 1 added they are 0 and 8.
        let with_one = _mm256_add_epi32(word, _mm256_set1_epi32(1 << 29));
        let has_no_data = _mm256_cmpeq_epi32(_mm256_srli_epi32::<30>(with_one), _mm256_setzero_si256());
        let flags = _mm256_set1_epi32(if WIDE { 0xFE00_0000_u32 } else { 0xFC00_0000 } as i32);
        let (trailer, length) = if WIDE {
            (word, _mm256_and_si256(word, _mm256_set1_epi32(0xFFFF)))
        } else {
            let length = _mm256_and_si256(_mm256_srli_epi32::<16>(word), _mm256_set1_epi32(0x3FF));
            (_mm256_or_si256(_mm256_and_si256(word, flags), length), length)
        };
        let length = _mm256_andnot_si256(has_no_data, length);
        let (more, whole) = if WIDE { (7, !3) } else { (3, !1) };
        let bytes = _mm256_and_si256(_mm256_add_epi32(length, _mm256_set1_epi32(more)), _mm256_set1_epi32(whole));
        self.at = _mm256_sub_epi32(self.at, _mm256_and_si256(bytes, active));
        let is_plain = _mm256_cmpeq_epi32(_mm256_and_si256(word, flags), _mm256_set1_epi32(3 << 29));
        let odd = _mm256_andnot_si256(is_plain, active);
        self.odd = _mm256_sub_epi32(self.odd, odd);
        self.latest_odd = _mm256_blendv_epi8(self.latest_odd, odd, active);
        self.count = _mm256_sub_epi32(self.count, active);
        let undefined = _mm256_and_si256(_mm256_cmpeq_epi32(kind, _mm256_set1_epi32(6)), active);
        self.undefined = _mm256_or_si256(self.undefined, undefined);
        store(row, _mm256_unpacklo_epi32(self.at, trailer), _mm256_unpackhi_epi32(self.at, trailer));
        if !DENSE {
            prefetch_next(blocks, block_bytes, self.at);
        }
        _mm256_cmpgt_epi32(self.at, header)
    }

    /// The fault of each block, or 0.
    #[target_feature(enable = "avx2")]
    fn faults(&self, headers: __m256i, symbol: u16) -> __m256i {
        let is = |mask: __m256i, fault: u32| _mm256_and_si256(mask, _mm256_set1_epi32(fault as i32));
        let header = _mm256_set1_epi32(HEADER_BYTES as i32);
        let past = _mm256_cmpgt_epi32(_mm256_setzero_si256(), self.at);
        let before = _mm256_cmpgt_epi32(header, self.at);
        let symbols = _mm256_srli_epi32::<16>(headers);
        let begins = _mm256_cmpeq_epi32(symbols, _mm256_set1_epi32(i32::from(symbol)));
        let fault = _mm256_blendv_epi8(is(before, fault::PADDING), is(past, fault::PAST_HEADER), past);
        let fault = _mm256_blendv_epi8(fault, is(self.undefined, fault::UNDEFINED), self.undefined);
        _mm256_blendv_epi8(_mm256_set1_epi32(fault::START_OF_BLOCK as i32), fault, begins)
    }
}

/// The four bytes before `at` in each of eight blocks; `at` is clamped to between the header and the end.
#[target_feature(enable = "avx2")]
#[inline]
fn gather(blocks: &[u8], block_bytes: usize, at: __m256i) -> __m256i {
    assert!(blocks.len() == LANES * block_bytes);
    let (first, last) = (_mm256_set1_epi32(HEADER_BYTES as i32), _mm256_set1_epi32(block_bytes as i32));
    let at = _mm256_min_epi32(_mm256_max_epi32(at, first), last);
    let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let starts = _mm256_mullo_epi32(lanes, _mm256_set1_epi32(block_bytes as i32));
    let places = _mm256_sub_epi32(_mm256_add_epi32(starts, at), _mm256_set1_epi32(4));
    // SAFETY: each lane reads four bytes of its own block, all of which `blocks` has: `at` was held between 4 and the
    // block's size just above.
    unsafe { _mm256_i32gather_epi32::<1>(blocks.as_ptr().cast(), places) }
}

/// Prefetches the line in which each lane's next trailer ends.
#[target_feature(enable = "avx2")]
#[inline]
fn prefetch_next(blocks: &[u8], block_bytes: usize, at: __m256i) {
    for (lane, at) in array(at).into_iter().enumerate() {
        let place = blocks.as_ptr().wrapping_add(lane * block_bytes).wrapping_offset(at as i32 as isize - 1);
        prefetch(place);
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn array(vector: __m256i) -> [u32; LANES] {
    let mut out = [0; LANES];
    // SAFETY: the array has the vector's size; the store needs no alignment.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), vector) };
    out
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(row: &mut [SubChunk; LANES], low: __m256i, high: __m256i) {
    let row = row.as_mut_ptr();
    // SAFETY: the row has the size of two vectors; the stores need no alignment.
    unsafe {
        _mm256_storeu_si256(row.cast(), low);
        _mm256_storeu_si256(row.add(LANES / 2).cast(), high);
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(four: &[SubChunk]) -> __m256i {
    let four: &[SubChunk; LANES / 2] = four.first_chunk().expect("half a row");
    // SAFETY: four sub-chunks have the vector's size; the load needs no alignment.
    unsafe { _mm256_loadu_si256(four.as_ptr().cast()) }
}

/// Transposes four rows of eight lanes into four sub-chunks per lane, the last row first, with the lane's base added,
/// and passes them on lane by lane, the last lane first.
#[target_feature(enable = "avx2")]
#[inline]
fn turn(rows: [&[SubChunk; LANES]; ROUNDED], bases: &[i64; LANES], mut put: impl FnMut(usize, __m256i)) {
    let half = |from: usize| {
        let [row3, row2, row1, row0] = rows.map(|row| load(&row[from..]));
        let (even, odd) = (_mm256_unpacklo_epi64(row0, row1), _mm256_unpackhi_epi64(row0, row1));
        let (more_even, more_odd) = (_mm256_unpacklo_epi64(row2, row3), _mm256_unpackhi_epi64(row2, row3));
        [
            _mm256_permute2x128_si256::<0x20>(even, more_even),
            _mm256_permute2x128_si256::<0x20>(odd, more_odd),
            _mm256_permute2x128_si256::<0x31>(even, more_even),
            _mm256_permute2x128_si256::<0x31>(odd, more_odd),
        ]
    };
    let [lane0, lane1, lane4, lane5] = half(0);
    let [lane2, lane3, lane6, lane7] = half(LANES / 2);
    let lanes = [lane0, lane1, lane2, lane3, lane4, lane5, lane6, lane7];
    for (lane, four) in lanes.into_iter().enumerate().rev() {
        put(lane, _mm256_add_epi64(four, _mm256_set1_epi64x(bases[lane])));
    }
}

/// Lines of a block with many trailers that the walk prefetches itself if it leaves a rest: all but two.
const fn walked_lines(block_bytes: usize) -> usize {
    (block_bytes / LINE_BYTES).saturating_sub(2)
}

/// Prefetches lines some way after the walked blocks, a few at each step.
struct Ahead {
    /// The next line.
    next: *const u8,
    /// The end of the prefetched lines of its block.
    end: *const u8,
    /// The distance from there to the next block's first line, and from line to line.
    skip: usize,
    stride: usize,
    block_bytes: usize,
    /// Remaining lines, and lines due at each step.
    left: usize,
    each_step: usize,
}

impl Ahead {
    #[inline]
    fn new<const DENSE: bool>(here: &[u8], block_bytes: usize, steps: usize, leaves_rest: bool) -> Self {
        let (each, stride) = match (DENSE, leaves_rest) {
            (true, false) => (block_bytes / LINE_BYTES, LINE_BYTES),
            (true, true) => (walked_lines(block_bytes), LINE_BYTES),
            // The first and the last line of each block; those in between are prefetched when they are known.
            (false, false) => (2, block_bytes - LINE_BYTES),
            (false, true) => (0, LINE_BYTES),
        };
        let left = here.len() / block_bytes * each;
        let next = here.as_ptr().wrapping_add(if DENSE { here.len().max(AHEAD_BYTES) } else { 2 * here.len() });
        let used = each * stride;
        let skip = block_bytes.wrapping_sub(used);
        let each_step = left / steps + 1;
        Self { next, end: next.wrapping_add(used), skip, stride, block_bytes, left, each_step }
    }

    #[inline]
    fn step(&mut self) {
        let lines = self.each_step.min(self.left);
        self.left -= lines;
        for _ in 0..lines {
            prefetch(self.next);
            self.next = self.next.wrapping_add(self.stride);
            if self.next == self.end {
                self.next = self.next.wrapping_add(self.skip);
                self.end = self.end.wrapping_add(self.block_bytes);
            }
        }
    }

    fn rest(&mut self) {
        self.each_step = self.left;
        self.step();
    }
}

/// Prefetches the second trailers of the next blocks, whose last trailers are in the cache already.
struct Peek<'a> {
    bytes: &'a [u8],
    /// The end of the next block.
    end: usize,
    block_bytes: usize,
    /// Remaining blocks, and blocks due at each step.
    left: usize,
    each_step: usize,
}

impl<'a> Peek<'a> {
    #[inline]
    fn new<const DENSE: bool>(bytes: &'a [u8], start: usize, blocks: usize, block_bytes: usize, steps: usize) -> Self {
        let left = if DENSE { 0 } else { blocks.min((bytes.len() - start) / block_bytes) };
        Self { bytes, end: start + block_bytes, block_bytes, left, each_step: left / steps + 1 }
    }

    #[inline]
    fn step<const WIDE: bool>(&mut self) {
        let blocks = self.each_step.min(self.left);
        self.left -= blocks;
        for _ in 0..blocks {
            let Some(word) = self.bytes[..self.end].last_chunk() else { return };
            let word = u32::from_le_bytes(*word);
            let bytes = if WIDE { ((word & 0xFFFF) + 7) & !3 } else { ((word >> 16 & 0x3FF) + 3) & !1 };
            prefetch(self.bytes.as_ptr().wrapping_add(self.end).wrapping_sub(bytes as usize + 1));
            self.end += self.block_bytes;
        }
    }

    #[inline]
    fn rest<const WIDE: bool>(&mut self) {
        self.each_step = self.left;
        self.step::<WIDE>();
    }
}
