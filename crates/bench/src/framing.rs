//! `bench framing`: fragments found by a configured layout, beside hand-written framing of the same bytes.

use crate::BenchError;
use crate::fragments::{BLOCK, in_blocks};
use crate::pairs::alternate;
use crate::session::{Row, Session, case};
use ropewalk_flow::messages::Received;
use ropewalk_flow::readout::{Framer, FramerLimits};
use ropewalk_limits::thread_cpu_seconds;
use ropewalk_memory::{Pool, PoolConfig, Slice};
use ropewalk_terms::SourceId;
use ropewalk_wire::layout::{Clock, Counts, Frame, Layout, Length, Number, Pattern, Plan, Source};
use ropewalk_wire::{fed, ferol, generic};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SOURCE: SourceId = SourceId(841);
const LIMITS: FramerLimits = FramerLimits { max_fragment: 1 << 20, check_crc: false, gather: None };
/// Fragments per batch, as in a drive.
const BATCH: usize = 128;
const NOTE: &str = "limit: the framer that is written by hand for the same bytes; target: 0.8";

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    for (format, bytes) in [("fed", 96), ("fed", 2048), ("generic", 100), ("generic", 2048)] {
        let case = case([("format", json!(format)), ("fragment_bytes", json!(bytes))]);
        session.measure(&case, |session| {
            let fragments = scale.choose(200, 20_000, 20_000) * 100 / bytes as u32;
            let stream =
                if format == "fed" { fed_stream(bytes, fragments)? } else { generic_stream(bytes, fragments)? };
            let mut pool = Pool::new(PoolConfig::anonymous("framing", BLOCK, 64)).map_err(BenchError::wrong)?;
            let slices = in_blocks(&mut pool, &stream.bytes)?;
            let hello = in_blocks(&mut pool, &stream.hello)?;
            let plan = Arc::new(Plan::compile(&stream.layout).map_err(BenchError::wrong)?);
            let a_moment = Duration::from_millis(scale.choose(1, 100, 300));
            let by_layout = || {
                fragments_per_second(&slices, fragments, a_moment, || {
                    Framer::described(SOURCE, Arc::clone(&plan), LIMITS)
                })
            };
            let by_hand = || {
                fragments_per_second(&slices, fragments, a_moment, || {
                    let mut framer = Framer::new(LIMITS);
                    hello.iter().for_each(|slice| framer.push(slice.clone()));
                    framer
                })
            };
            let [series] = alternate(scale.choose(1, 9, 15), by_layout, by_hand)?;
            session.row(Row::of(&case, "M fragments/s", &series, NOTE))
        })?;
    }
    Ok(())
}

/// The same bytes, to be framed in two ways.
struct Stream {
    /// The beginning of the connection, for hand-written framing.
    hello: Vec<u8>,
    bytes: Vec<u8>,
    layout: Layout,
}

fn length(number: Number, unit: u32, header: u32) -> Length {
    Length { number, unit, counts: Counts::Payload { header }, add: 0 }
}

/// FED fragments of this many bytes with one FEROL block each.
fn fed_stream(bytes: usize, fragments: u32) -> Result<Stream, BenchError> {
    let mut stream = Vec::new();
    for event in 1..=fragments {
        let mut fragment = Vec::new();
        let (header, payload) = (fed::Header::new(SOURCE, event, 100), vec![0x5a; bytes - 16]);
        fed::encode(header, &payload, fed::Trailer::new(), &mut fragment).map_err(BenchError::wrong)?;
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
    Ok(Stream { hello: Vec::new(), bytes: stream, layout })
}

/// Generic fragments with this many bytes after their headers.
fn generic_stream(bytes: usize, fragments: u32) -> Result<Stream, BenchError> {
    let mut stream = Vec::new();
    for event in 1..=u64::from(fragments) {
        let flags = generic::Flags::default();
        let header =
            generic::Header { source: SOURCE, flags, event_number: event, timestamp: 25 * event, payload_bytes: 0 };
        generic::encode(&header, &vec![0x5a; bytes], &mut stream).map_err(BenchError::wrong)?;
    }
    let hello = generic::Hello::new(SOURCE, generic::HelloFlags::default(), "bench").map_err(BenchError::wrong)?;
    let ticks = vec![Number::little_endian(24, 8)];
    let frame = Frame::Length(length(Number::little_endian(12, 4), 1, 32));
    let layout = Layout {
        matches: Some(Pattern { at: 0, bytes: b"RWFR".to_vec(), mask: None }),
        event: vec![Number::little_endian(16, 8)],
        time: Some(Clock { ticks, tick_attoseconds: 1_000_000_000, seconds: None }),
        source: Some(Source { number: Number::little_endian(8, 4), is: None }),
        ..Layout::new(frame, 1 << 20)
    };
    Ok(Stream { hello: hello.to_bytes().to_vec(), bytes: stream, layout })
}

/// Repeats over the whole stream until the time has passed, at least once. Returns millions of fragments per second of
/// the thread's own time.
fn fragments_per_second(
    slices: &[Slice],
    fragments: u32,
    at_least: Duration,
    framer: impl Fn() -> Framer,
) -> Result<[f64; 1], BenchError> {
    let mut out: Vec<Received> = Vec::with_capacity(BATCH);
    let (begin, cpu_begin, mut all) = (Instant::now(), thread_cpu_seconds(), 0_u64);
    while all == 0 || begin.elapsed() < at_least {
        let (mut framer, mut found) = (framer(), 0);
        for slice in slices {
            framer.push(slice.clone());
            loop {
                framer.next_batch(&mut out, BATCH).map_err(BenchError::wrong)?;
                let count = out.len();
                found += count as u64;
                out.clear();
                if count < BATCH {
                    break;
                }
            }
        }
        if found != u64::from(fragments) {
            return Err(BenchError::wrong(format!("{found} of {fragments} fragments were found")));
        }
        all += found;
    }
    Ok([all as f64 / (thread_cpu_seconds() - cpu_begin).max(1e-9) / 1e6])
}
