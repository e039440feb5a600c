//! `bench splitting`: frames of several triggers that a splitter in C divides, in the reading thread and in a process,
//! beside a copy of the same frames.

use crate::BenchError;
use crate::fragments::{BLOCK, in_blocks};
use crate::pairs::alternate;
use crate::plugins::{Wait, compiled, in_directory};
use crate::session::{Row, Session, case};
use ropewalk_flow::messages::Received;
use ropewalk_flow::readout::{Divider, Divides, Framer, FramerLimits};
use ropewalk_memory::{Payload, Pool, PoolConfig};
use ropewalk_plugin::process::{MOST_FRAMES, ProcessConfig, SplitterProcess};
use ropewalk_plugin::{Keys, Splitter, SplitterConfig};
use ropewalk_terms::{Cause, Instant, SourceId};
use ropewalk_wire::framing::Piece;
use ropewalk_wire::layout::{Frame, Layout, Plan};
use serde_json::json;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The example's splitter, and its headers.
const FILES: [(&str, &str); 3] = [
    ("trigger_board.c", include_str!("../../../examples/splitter/trigger_board.c")),
    ("ropewalk_splitter.h", include_str!("../../../bindings/c/ropewalk_splitter.h")),
    ("ropewalk_plugin.h", include_str!("../../../bindings/c/ropewalk_plugin.h")),
];
const SOURCE: SourceId = SourceId(1);
const LARGEST_FRAME: usize = 64 << 10;
/// Bytes of memory that hold all frames.
const MEMORY: usize = 8 << 20;
/// Fragments per batch, as in a drive.
const BATCH: usize = 128;
const START: Duration = Duration::from_secs(10);
const NOTE: &str = "limit: the same frames copied, one after the other; ours: fragments of each of their triggers";

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    in_directory(session, "splitting", measure)
}

fn measure(session: &mut Session<'_>, directory: &Path) -> Result<(), BenchError> {
    let library = compiled(directory, &FILES)?;
    for (bytes, triggers) in [(600, 7), (8192, 10), (8192, 500)] {
        for by in ["thread", "process"] {
            let case = case([("by", json!(by)), ("frame_bytes", json!(bytes)), ("triggers", json!(triggers))]);
            session.measure(&case, |session| {
                let frames = Frames::new(bytes, triggers)?;
                let config = SplitterConfig {
                    library: library.clone(),
                    configuration: String::new(),
                    keys: Keys::Events,
                    max_frame: LARGEST_FRAME,
                };
                let mut by: Box<dyn Batches> = match by {
                    "thread" => Box::new(Splitter::new(&config).map_err(BenchError::wrong)?),
                    _ => Box::new(Elsewhere::new(config, session.options.program()?.to_owned())?),
                };
                let a_moment = Duration::from_millis(session.options.scale.choose(1, 200, 500));
                let mut copy = vec![0; LARGEST_FRAME];
                let pairs = session.options.scale.choose(1, 9, 15);
                let [series] = alternate(
                    pairs,
                    || frames.per_second(a_moment, |frames| frames.divided(by.as_mut())),
                    || frames.per_second(a_moment, |frames| frames.copied(&mut copy)),
                )?;
                let gigabytes = crate::pairs::median(series.ours.iter().copied()) * bytes as f64 * 1e-6;
                let remark = format!("{gigabytes:.2} GB/s");
                session.row(Row::of(&case, "k frames/s", &series, NOTE).with_remark(Some(remark)))
            })?;
        }
    }
    Ok(())
}

/// Frames of equal length, found by a layout.
struct Frames {
    frames: Vec<Received>,
    triggers: usize,
    plan: Arc<Plan>,
    bytes: usize,
}

impl Frames {
    fn new(bytes: usize, triggers: usize) -> Result<Self, BenchError> {
        let layout = Layout::new(Frame::Fixed { bytes: bytes as u32 }, LARGEST_FRAME as u32);
        let plan = Arc::new(Plan::compile(&layout).map_err(BenchError::wrong)?);
        let limits = FramerLimits { max_fragment: LARGEST_FRAME as u32, check_crc: false, gather: None };
        let mut framer = Framer::described(SOURCE, Arc::clone(&plan), limits);
        let mut pool =
            Pool::new(PoolConfig::anonymous("splitting", BLOCK, MEMORY / BLOCK)).map_err(BenchError::wrong)?;
        let frame = frame(bytes, triggers);
        let count = MEMORY / bytes - 1;
        for slice in in_blocks(&mut pool, &frame.repeat(count))? {
            framer.push(slice);
        }
        let mut frames = Vec::with_capacity(count);
        framer.next_batch(&mut frames, count).map_err(BenchError::wrong)?;
        if frames.len() != count {
            return Err(BenchError::wrong(format!("{} of {count} frames were found", frames.len())));
        }
        Ok(Self { frames, triggers, plan, bytes })
    }

    /// Repeats over all frames until `at_least` has passed. Returns thousands of frames per elapsed second.
    fn per_second(
        &self,
        at_least: Duration,
        mut once: impl FnMut(&Self) -> Result<(), BenchError>,
    ) -> Result<[f64; 1], BenchError> {
        let (begin, mut all) = (std::time::Instant::now(), 0);
        while all == 0 || begin.elapsed() < at_least {
            once(self)?;
            all += self.frames.len();
        }
        Ok([all as f64 / begin.elapsed().as_secs_f64() / 1e3])
    }

    /// Divides all frames.
    fn divided(&self, by: &mut dyn Batches) -> Result<(), BenchError> {
        let mut divider = Divider::new(SOURCE, &*self.plan);
        let (mut out, mut fragments) = (Vec::with_capacity(BATCH), 0);
        for batch in self.frames.chunks(MOST_FRAMES) {
            batch.iter().for_each(|frame| divider.put(Instant::ZERO, frame.clone()));
            by.begin(batch)?;
            while !divider.is_empty() {
                by.divide(&mut divider, &mut out);
                fragments += out.len();
                out.clear();
            }
        }
        let expected = self.frames.len() * self.triggers;
        if fragments != expected {
            return Err(BenchError::wrong(format!("{fragments} fragments of {expected}")));
        }
        Ok(())
    }

    /// Copies all frames.
    fn copied(&self, to: &mut [u8]) -> Result<(), BenchError> {
        for frame in &self.frames {
            let mut at = 0;
            for piece in frame.payload.pieces() {
                to[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
            std::hint::black_box(&to[..self.bytes]);
        }
        Ok(())
    }
}

/// A frame of the example's board: triggers of equal length; the last one gets the remaining bytes as hits.
fn frame(bytes: usize, triggers: usize) -> Vec<u8> {
    let hits = (bytes - 4) / triggers - 6;
    let mut frame = [&b"TB"[..], &(triggers as u16).to_le_bytes()].concat();
    for trigger in 0..triggers {
        let rest = bytes - frame.len() - 6;
        let length = if trigger + 1 == triggers { rest } else { hits };
        frame.extend_from_slice(&(trigger as u32).to_le_bytes());
        frame.extend_from_slice(&(length as u16).to_le_bytes());
        frame.resize(frame.len() + length, 0x5a);
    }
    frame
}

/// Divides frames, a batch at a time.
trait Batches {
    /// Begins another batch.
    fn begin(&mut self, batch: &[Received]) -> Result<(), BenchError>;

    /// Takes the next fragments.
    fn divide(&mut self, divider: &mut Divider, out: &mut Vec<Received>);
}

impl Batches for Splitter {
    fn begin(&mut self, _: &[Received]) -> Result<(), BenchError> {
        Ok(())
    }

    fn divide(&mut self, divider: &mut Divider, out: &mut Vec<Received>) {
        divider.next_batch(self, out, BATCH);
    }
}

/// A splitter's process that gets one batch at a time, and is waited for.
struct Elsewhere {
    process: SplitterProcess,
    /// The rest of the batch.
    answers: VecDeque<usize>,
}

impl Elsewhere {
    fn new(splitter: SplitterConfig, program: PathBuf) -> Result<Self, BenchError> {
        let command = vec![program, "splitter-process".into()];
        let process = SplitterProcess::new(ProcessConfig { splitter, memory: 256 << 20, command });
        let mut process = process.map_err(BenchError::system("memory for a splitter's process"))?;
        process.try_out(START).map_err(BenchError::system("a splitter's process"))?;
        process.start();
        let mut this = Self { process, answers: VecDeque::new() };
        this.wait(|process| process.look().is_ready)?;
        Ok(this)
    }

    /// Waits until `has_happened`.
    fn wait(&mut self, mut has_happened: impl FnMut(&mut SplitterProcess) -> bool) -> Result<(), BenchError> {
        let wait = Wait::begin();
        while !has_happened(&mut self.process) {
            let who = || format!("the splitter's process: {:?}", self.process.journal().ends());
            wait.sleep(self.process.descriptors(), who)?;
        }
        Ok(())
    }
}

impl Batches for Elsewhere {
    fn begin(&mut self, batch: &[Received]) -> Result<(), BenchError> {
        self.process.clear();
        batch.iter().for_each(|frame| self.process.put(&frame.payload));
        self.process.ask(0, batch.len());
        self.wait(|process| process.look().done >= batch.len())?;
        self.answers = (0..batch.len()).collect();
        Ok(())
    }

    fn divide(&mut self, divider: &mut Divider, out: &mut Vec<Received>) {
        divider.next_batch(self, out, BATCH);
    }
}

impl Divides for Elsewhere {
    fn divide(&mut self, _: &Payload, pieces: &mut Vec<Piece>) -> Option<Result<(), Cause>> {
        let index = self.answers.pop_front()?;
        Some(self.process.answer(index, pieces).unwrap_or(Err(Cause::SplitterFailed)))
    }
}
