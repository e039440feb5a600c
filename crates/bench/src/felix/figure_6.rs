//! Figure 6: time per block against the size of its chunks, at every stage.

use super::blocks::Lines;
use super::blocks::{BLOCK, Blocks, Memory, Sizes};
use super::stages::{Stage, Sum};
use super::{cost_of, nanoseconds_each};
use crate::BenchError;
use crate::pairs::alternate;
use crate::session::{Row, Session, case};
use ropewalk_memory::HugePages;
use serde_json::{Map, Value, json};

const NOTE: &str = "GB/s of blocks; 1,024 / it is ns per block. Limit: two bytes read in each of these cache lines, and \
                    the output written to the cache and read. Targets of ours to every line: equal 64 B 0.7, random \
                    64 B 0.4, 256 B 0.75; to needed lines: 1 and 4 KiB 0.7";
const SPEED_UP: &str = "GB/s of blocks. Instead of a limit the baseline: the ratio is the speed-up. Targets: 10 up to \
                        256 B, 25 at equal 64 B";

/// Bytes of blocks in memory.
pub(super) const fn bytes(session: &Session<'_>) -> usize {
    session.options.scale.choose(1 << 20, 256 << 20, 1 << 30)
}

pub(super) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let sizes: &[usize] =
        session.options.scale.choose(&[64], &[64, 256, 1024, 4096], &[16, 32, 64, 128, 256, 512, 1024, 2048, 4096]);
    let mut memory = None;
    for &size in sizes {
        for sizes in [Sizes::Equal(size), Sizes::Random(size)] {
            let wanted: Vec<Measured> = measured(sizes).filter(|one| session.wants(&one.case)).collect();
            if wanted.is_empty() {
                continue;
            }
            session.attempt(&wanted[0].case, |session| {
                let memory = match &mut memory {
                    Some(memory) => memory,
                    none => none.insert(Memory::new(bytes(session), HugePages::Auto)?),
                };
                let blocks = Blocks::new(memory, sizes)?;
                all_stages_agree(&blocks)?;
                wanted
                    .iter()
                    .try_for_each(|one| session.measure(&one.case, |session| session.row(one.row(&blocks, session)?)))
            })?;
        }
    }
    Ok(())
}

struct Measured {
    case: Map<String, Value>,
    stage: Stage,
    /// The lines that the limit reads; `None` if ours is compared with the baseline.
    lines: Option<Lines>,
}

/// All rows for these chunks.
fn measured(sizes: Sizes) -> impl Iterator<Item = Measured> {
    let one = move |stage: Stage, lines: Option<Lines>| {
        let limit = lines.map_or("baseline", Lines::name);
        let case = case([
            ("figure", json!("6")),
            ("chunk_bytes", json!(sizes.mean())),
            ("sizes", json!(sizes.name())),
            ("stage", json!(stage.name())),
            ("limit", json!(limit)),
        ]);
        Measured { case, stage, lines }
    };
    let needed = Stage::ALL.map(|stage| one(stage, Some(Lines::Needed)));
    needed.into_iter().chain([one(Stage::Ours, Some(Lines::Every)), one(Stage::Ours, None)])
}

impl Measured {
    fn row(&self, blocks: &Blocks, session: &Session<'_>) -> Result<Row, BenchError> {
        let scale = session.options.scale;
        let rate =
            |work: &dyn Fn() -> u64| BLOCK as f64 / nanoseconds_each(blocks.count(), scale.choose(0.0, 0.1, 0.2), work);
        let ours = || Ok([rate(&|| self.stage.decode(&blocks.bytes).pieces)]);
        let limit = || {
            Ok([match self.lines {
                Some(lines) => rate(&|| lines.touch(blocks)),
                None => rate(&|| Stage::Baseline.decode(&blocks.bytes).pieces),
            }])
        };
        let [series] = alternate(scale.pairs(), ours, limit)?;
        let note = if self.lines.is_some() { NOTE } else { SPEED_UP };
        Ok(Row::of(&self.case, "GB/s", &series, note).with_process_cpu(&cost_of(&series, 1)))
    }
}

/// A stage that decodes something else has no valid speed.
fn all_stages_agree(blocks: &Blocks) -> Result<(), BenchError> {
    let expected = Stage::Baseline.decode(&blocks.bytes);
    for stage in Stage::ALL {
        let found: Sum = stage.decode(&blocks.bytes);
        if found != expected || found.chunks != blocks.chunks {
            return Err(BenchError::wrong(format!("{}: {found:?} where others find {expected:?}", stage.name())));
        }
    }
    Ok(())
}
