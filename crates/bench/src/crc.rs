//! `bench crc`: the checksums on fragments, from a hot cache and from memory, beside a scan of the same bytes.

use crate::BenchError;
use crate::pairs::alternate;
use crate::session::{Row, Session, case};
use ropewalk_kernels::{Crc16, crc32c};
use ropewalk_limits::thread_cpu_seconds;
use serde_json::json;
use std::hint::black_box;
use std::time::{Duration, Instant};

const FRAGMENT: usize = 2048;
const NOTE: &str = "limit: every word of the same bytes added up; target of crc16: 20 GB/s hot";

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    let mut memory = Vec::new();
    for (data, bytes) in [("hot", 16 * FRAGMENT), ("memory", scale.choose(1 << 20, 1 << 30, 1 << 30))] {
        for name in ["crc16", "crc32c"] {
            let case = case([("checksum", json!(name)), ("data", json!(data)), ("fragment_bytes", json!(FRAGMENT))]);
            if session.wants(&case) && memory.len() != bytes {
                memory = payload(bytes);
            }
            let checksum: fn(&[u8]) -> u64 = match name {
                "crc16" => |bytes| u64::from(Crc16::of(bytes)),
                _ => |bytes| u64::from(crc32c(0, bytes)),
            };
            let a_moment = Duration::from_millis(scale.choose(1, 100, 200));
            let ours = || Ok([gigabytes_per_second(&memory, a_moment, checksum)]);
            let bare = || Ok([gigabytes_per_second(&memory, a_moment, scan)]);
            session.measure(&case, |session| {
                let [series] = alternate(scale.choose(1, 9, 15), ours, bare)?;
                session.row(Row::of(&case, "GB/s", &series, NOTE))
            })?;
        }
    }
    Ok(())
}

fn payload(bytes: usize) -> Vec<u8> {
    (0..bytes as u32 / 4).flat_map(|index| index.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

/// Repeats over all fragments until `at_least` has passed, at least once.
fn gigabytes_per_second(memory: &[u8], at_least: Duration, work: impl Fn(&[u8]) -> u64) -> f64 {
    // The thread's own seconds: time that other programs take from the core does not count.
    let (begin, cpu_begin, mut bytes) = (Instant::now(), thread_cpu_seconds(), 0);
    // Several rounds between two clock reads, which cost as much as a fragment.
    let rounds = ((4 << 20) / memory.len()).max(1);
    while bytes == 0 || begin.elapsed() < at_least {
        for _ in 0..rounds {
            for fragment in memory.chunks_exact(FRAGMENT) {
                black_box(work(black_box(fragment)));
            }
        }
        bytes += rounds * memory.len();
    }
    bytes as f64 / (thread_cpu_seconds() - cpu_begin).max(1e-9) / 1e9
}

fn scan(bytes: &[u8]) -> u64 {
    let mut sums = [0_u64; 16];
    for words in bytes.as_chunks::<128>().0 {
        for (sum, word) in sums.iter_mut().zip(words.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}
