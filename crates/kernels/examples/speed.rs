//! The speed of the checksums on fragments in a hot cache, beside crc-fast.
//!
//! `cargo run --release -p ropewalk-kernels --example speed`

use ropewalk_kernels::{Crc16, crc16_kernels, crc32c, crc32c_kernels};
use std::{hint::black_box, time::Instant};

const SIZES: [usize; 7] = [48, 256, 1024, 2040, 2048, 16 << 10, 256 << 10];
const REPEATS: usize = 15;

fn main() {
    let bytes: Vec<u8> = (0..SIZES[6] as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    println!("GB/s on one core, median (largest) of {REPEATS}, bytes hot in cache");
    for size in SIZES {
        let bytes = &bytes[..size];
        for kernel in crc16_kernels() {
            let words = bytes.as_chunks::<8>().0;
            show(size, kernel.name, || u64::from((kernel.run)(0xFFFF, black_box(words))));
        }
        show(size, "Crc16 (chooses)", || u64::from(Crc16::of(black_box(bytes))));
        let other = crc_fast::CrcAlgorithm::Crc16Cms;
        show(size, "crc-fast CRC-16/CMS", || crc_fast::checksum(other, black_box(bytes)));
        for kernel in crc32c_kernels() {
            show(size, kernel.name, || u64::from((kernel.run)(!0, black_box(bytes))));
        }
        show(size, "crc32c (chooses)", || u64::from(crc32c(0, black_box(bytes))));
        let other = crc_fast::CrcAlgorithm::Crc32Iscsi;
        show(size, "crc-fast CRC-32C", || crc_fast::checksum(other, black_box(bytes)));
    }
}

fn show(size: usize, name: &str, mut checksum: impl FnMut() -> u64) {
    let rounds = (1 << 22) / size;
    let mut rates: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..rounds {
                black_box(checksum());
            }
            (rounds * size) as f64 / start.elapsed().as_secs_f64() / 1e9
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    println!("{size:>7} B  {name:<24} {:6.1} ({:.1})", rates[REPEATS / 2], rates[REPEATS - 1]);
}
