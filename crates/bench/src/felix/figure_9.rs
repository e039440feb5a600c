//! Figure 9: the roofline, with the paper's estimate of six operations for a trailer, and the layout that the paper
//! only draws: trailers in a separate table.

use super::blocks::{BLOCK, Blocks, FORMAT, Memory, Sizes};
use super::stages::{Plain, Stage, Sum};
use super::{figure_6, nanoseconds_each};
use crate::BenchError;
use crate::pairs::alternate;
use crate::session::{Row, Session, case};
use ropewalk_limits::thread_cpu_seconds;
use ropewalk_limits::touch::touch_every_line;
use ropewalk_memory::{HugePages, Slice};
use ropewalk_wire::felix::{BlockHeader, HEADER_BYTES, Trailer, walk};
use serde_json::{Map, Value, json};
use std::hint::black_box;

/// Operations for a trailer: the paper's estimate (section 3.2).
pub(super) const OPERATIONS: f64 = 6.0;
/// Operations in a cycle: the paper's estimate.
const PER_CYCLE: f64 = 2.0;
const LINE: usize = 64;
const NOTE: &str = "10^9 operations/s, six estimated for a trailer as in the paper, equal chunks of 64 B. Limit: the roof, \
                    the lesser of operations for a byte times memory's GB/s (two bytes read in each line of what the \
                    layout demands) and two operations a cycle";
const SPEED: &str = "GB/s of blocks with their trailers in a table; limit: the layout with the trailers between the data, \
                     decoded by ours";

/// The place of trailers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Layout {
    /// After their data: each costs a read of a 64-byte line.
    Between,
    /// In a separate table.
    Table,
}

pub(super) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let roof = |layout: &str| case([("figure", json!("9")), ("layout", json!(layout))]);
    let speed = case([("figure", json!("9")), ("layout", json!("table")), ("against", json!("between"))]);
    let cases = [roof("between"), roof("table"), speed];
    match cases.iter().find(|case| session.wants(case)) {
        Some(first) => session.attempt(first, |session| measure(session, &cases)),
        None => Ok(()),
    }
}

fn measure(session: &mut Session<'_>, cases: &[Map<String, Value>; 3]) -> Result<(), BenchError> {
    let bytes = figure_6::bytes(session);
    let mut memory = Memory::new(bytes, HugePages::Auto)?;
    let blocks = Blocks::new(&mut memory, Sizes::Equal(64))?;
    let (records, trailers) = table(&blocks)?;
    let mut memory = Memory::new(records.len(), HugePages::Auto)?;
    let table = memory.filled(|bytes| bytes[..records.len()].copy_from_slice(&records))?;
    let bench = Bench { blocks, table, records: records.len(), trailers };
    bench.both_layouts_agree()?;
    let scale = session.options.scale;
    let moment = scale.choose(0.0, 0.1, 0.2);
    for (case, layout) in cases.iter().zip([Layout::Between, Layout::Table]) {
        session.measure(case, |session| {
            let ours = || Ok([bench.operations(layout, moment)]);
            let [series] = alternate(scale.pairs(), ours, || Ok([bench.roof(layout, moment)]))?;
            let mut row = Row::of(case, "10^9 op/s", &series, NOTE);
            row.case.insert("operations_per_byte".to_owned(), json!(bench.intensity(layout)));
            session.row(row)
        })?;
    }
    session.measure(&cases[2], |session| {
        let rate =
            |layout| BLOCK as f64 / nanoseconds_each(bench.blocks.count(), moment, || bench.decode(layout).pieces);
        let [series] = alternate(scale.pairs(), || Ok([rate(Layout::Table)]), || Ok([rate(Layout::Between)]))?;
        session.row(Row::of(&cases[2], "GB/s", &series, SPEED))
    })
}

struct Bench {
    blocks: Blocks,
    table: Slice,
    /// Bytes of the table that are filled.
    records: usize,
    trailers: usize,
}

impl Bench {
    fn decode(&self, layout: Layout) -> Sum {
        match layout {
            Layout::Between => Stage::Ours.decode(&self.blocks.bytes),
            Layout::Table => decode_table(&self.table[..self.records]),
        }
    }

    fn both_layouts_agree(&self) -> Result<(), BenchError> {
        let (between, table) = (self.decode(Layout::Between), self.decode(Layout::Table));
        if between == table { Ok(()) } else { Err(BenchError::wrong(format!("{between:?} is not {table:?}"))) }
    }

    /// 10^9 operations a second.
    fn operations(&self, layout: Layout, moment: f64) -> f64 {
        OPERATIONS / nanoseconds_each(self.trailers, moment, || self.decode(layout).pieces)
    }

    /// Operations per byte read from memory.
    fn intensity(&self, layout: Layout) -> f64 {
        OPERATIONS * self.trailers as f64 / self.read(layout) as f64
    }

    /// Bytes read from memory.
    fn read(&self, layout: Layout) -> usize {
        match layout {
            Layout::Between => self.blocks.needed.len() * LINE,
            Layout::Table => self.records,
        }
    }

    /// The roof for a layout, in 10^9 operations a second.
    fn roof(&self, layout: Layout, moment: f64) -> f64 {
        let bytes: &[u8] = match layout {
            Layout::Between => &self.blocks.bytes,
            Layout::Table => &self.table,
        };
        let gigabytes = 1.0 / nanoseconds_each(bytes.len(), moment, || touch_every_line(bytes));
        (gigabytes * self.intensity(layout)).min(PER_CYCLE * gigahertz())
    }
}

/// 10^9 cycles a second, from a chain of dependent operations that take one cycle each.
fn gigahertz() -> f64 {
    const LINKS: u64 = 4_000_000;
    let begin = thread_cpu_seconds();
    let mut value = black_box(1_u64);
    for _ in 0..LINKS / 2 {
        // The compiler can neither merge an iteration with the next nor hoist it out of the loop.
        value = value.rotate_left(7) ^ 0x5DEE_CE66;
    }
    black_box(value);
    LINKS as f64 / (thread_cpu_seconds() - begin).max(1e-9) / 1e9
}

/// For each block its header, its number of trailers, and the trailers in order; and the total number of trailers.
fn table(blocks: &Blocks) -> Result<(Vec<u8>, usize), BenchError> {
    let (mut records, mut trailers) = (Vec::new(), 0);
    let mut sub_chunks = Vec::new();
    for block in blocks.bytes.chunks_exact(BLOCK) {
        sub_chunks.clear();
        let header = walk(block, FORMAT, &mut sub_chunks).map_err(BenchError::wrong)?;
        records.extend_from_slice(&header.to_bytes(FORMAT));
        records.extend_from_slice(&(sub_chunks.len() as u16).to_le_bytes());
        for sub_chunk in &sub_chunks {
            let word = Trailer(sub_chunk.trailer).to_word(FORMAT) >> 16;
            records.extend_from_slice(&(word as u16).to_le_bytes());
        }
        trailers += sub_chunks.len();
    }
    Ok((records, trailers))
}

/// Decodes from the table alone, record by record.
fn decode_table(records: &[u8]) -> Sum {
    let mut plain = Plain::<true>::new();
    let (mut rest, mut base) = (records, 0);
    let mut sum = Sum::default();
    while let Some((head, behind)) = rest.split_first_chunk::<{ HEADER_BYTES + 2 }>() {
        let header = BlockHeader::of_word(u32::from_le_bytes([head[0], head[1], head[2], head[3]]));
        let count = usize::from(u16::from_le_bytes([head[4], head[5]]));
        let (trailers, behind) = behind.split_at(count * 2);
        plain.record(header.elink, trailers.as_chunks::<2>().0, base);
        (rest, base) = (behind, base + BLOCK as u64);
        if base.is_multiple_of(64 << 10) {
            plain.sum(&mut sum);
        }
    }
    plain.sum(&mut sum);
    sum
}
