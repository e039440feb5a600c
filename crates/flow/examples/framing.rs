//! How fast fragments are found by a layout, beside what is written by hand for the same bytes, in one run.
//!
//! `cargo run --release -p ropewalk-flow --example framing [ROUNDS [CASE]]`
// The machines know no clock and no print; whoever measures them needs both.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use ropewalk_flow::messages::Received;
use ropewalk_flow::readout::{Framer, FramerLimits};
use ropewalk_memory::{Owner, Pool, PoolConfig, Slice};
use ropewalk_terms::SourceId;
use ropewalk_wire::layout::{Clock, Counts, Frame, Layout, Length, Number, Pattern, Plan, Source};
use ropewalk_wire::{fed, ferol, generic};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

const SOURCE: SourceId = SourceId(841);
const LIMITS: FramerLimits = FramerLimits { max_fragment: 1 << 20, check_crc: false };
const BLOCK: usize = 256 << 10;
/// Fragments at a time, as a drive takes them.
const BATCH: usize = 128;

/// The same bytes, to be framed in two ways.
struct Case {
    name: String,
    hello: Vec<u8>,
    stream: Vec<u8>,
    fragments: usize,
    layout: Layout,
}

fn length(number: Number, unit: u32, header: u32) -> Length {
    Length { number, unit, counts: Counts::Payload { header }, add: 0 }
}

/// FED fragments that have one FEROL block each.
fn ferol_case(words: usize, fragments: u32) -> Result<Case, Box<dyn Error>> {
    let mut stream = Vec::new();
    for event in 1..=fragments {
        let mut fragment = Vec::new();
        let header = fed::Header::new(SOURCE, event, 100);
        fed::encode(header, &vec![0x5a; 8 * words], fed::Trailer::new(), &mut fragment)?;
        ferol::encode_fragment(&fragment, SOURCE, event, &mut stream);
    }
    let frame = Frame::Length(length(Number::big_endian(6, 2).masked(0x3ff), 8, 16));
    let layout = Layout {
        matches: Some(Pattern { at: 0, bytes: vec![0x47, 0x5a], mask: None }),
        event: vec![Number::big_endian(12, 4).masked(0xff_ffff)],
        source: Some(Source { number: Number::big_endian(8, 2).masked(0xfff), is: None }),
        trigger_type: Some(Number::little_endian(23, 1).masked(0x0f)),
        ..Layout::new(frame, 1 << 13)
    };
    let name = format!("FED, {} B", 8 * words + 16);
    Ok(Case { name, hello: Vec::new(), stream, fragments: fragments as usize, layout })
}

fn generic_case(bytes: usize, fragments: u32) -> Result<Case, Box<dyn Error>> {
    let mut stream = Vec::new();
    for event in 1..=u64::from(fragments) {
        let flags = generic::Flags::default();
        let header =
            generic::Header { source: SOURCE, flags, event_number: event, timestamp: 25 * event, payload_bytes: 0 };
        generic::encode(&header, &vec![0x5a; bytes], &mut stream)?;
    }
    let hello = generic::Hello::new(SOURCE, generic::HelloFlags::default(), "bench")?.to_bytes().to_vec();
    let ticks = vec![Number::little_endian(24, 8)];
    let frame = Frame::Length(length(Number::little_endian(12, 4), 1, 32));
    let layout = Layout {
        matches: Some(Pattern { at: 0, bytes: b"RWFR".to_vec(), mask: None }),
        event: vec![Number::little_endian(16, 8)],
        time: Some(Clock { ticks, tick_attoseconds: 1_000_000_000, seconds: None }),
        source: Some(Source { number: Number::little_endian(8, 4), is: None }),
        ..Layout::new(frame, 1 << 20)
    };
    let name = format!("generic, {bytes} B");
    Ok(Case { name, hello, stream, fragments: fragments as usize, layout })
}

fn in_blocks(pool: &mut Pool, stream: &[u8]) -> Result<Vec<Slice>, Box<dyn Error>> {
    let slice = |chunk: &[u8]| {
        let mut loan = pool.loan(Owner::SHARED).ok_or("the pool is too small")?;
        loan.append(chunk).ok_or_else(|| "a block is too small".into())
    };
    stream.chunks(BLOCK).map(slice).collect()
}

/// Nanoseconds for each fragment.
fn time(framer: &mut Framer, slices: &[Slice], fragments: usize) -> Result<f64, Box<dyn Error>> {
    let mut out: Vec<Received> = Vec::with_capacity(BATCH);
    let (begin, mut found) = (Instant::now(), 0);
    for slice in slices {
        framer.push(slice.clone());
        loop {
            framer.next_batch(&mut out, BATCH)?;
            found += out.len();
            if out.len() < BATCH {
                break;
            }
            out.clear();
        }
        out.clear();
    }
    let elapsed = begin.elapsed().as_nanos() as f64;
    if found == fragments { Ok(elapsed / fragments as f64) } else { Err(format!("{found} fragments").into()) }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(40), |rounds| rounds.parse())?;
    let wanted = arguments.next();
    let mut pool = Pool::new(PoolConfig::anonymous("framing", BLOCK, 64))?;
    println!("{:<18} {:>12} {:>12} {:>8}", "", "by hand", "by layout", "ratio");
    let cases =
        [ferol_case(10, 20_000)?, ferol_case(254, 2000)?, generic_case(100, 20_000)?, generic_case(2048, 2000)?];
    for case in cases.into_iter().filter(|case| wanted.as_ref().is_none_or(|wanted| case.name.contains(wanted))) {
        let slices = in_blocks(&mut pool, &case.stream)?;
        let plan = Arc::new(Plan::compile(&case.layout)?);
        let (mut by_hand, mut by_layout) = (f64::MAX, f64::MAX);
        for _ in 0..rounds {
            let mut framer = Framer::new(LIMITS);
            if !case.hello.is_empty() {
                in_blocks(&mut pool, &case.hello)?.into_iter().for_each(|slice| framer.push(slice));
            }
            by_hand = by_hand.min(time(&mut framer, &slices, case.fragments)?);
            let mut framer = Framer::described(SOURCE, Arc::clone(&plan), LIMITS);
            by_layout = by_layout.min(time(&mut framer, &slices, case.fragments)?);
        }
        println!("{:<18} {by_hand:>9.2} ns {by_layout:>9.2} ns {:>8.2}", case.name, by_hand / by_layout);
        drop(slices);
        pool.collect();
    }
    Ok(())
}
