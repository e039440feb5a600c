//! The memory of a program whose threads come and go with runs.

use crate::process::Program;
use crate::support::Setup;

/// The C library sets 64 MiB of addresses aside for each heap of threads.
const HEAP: u64 = 64 << 20;

/// How many heaps of threads a process has: what is set aside of one and not used yet may not be read.
fn heaps(process: u32) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("it runs");
    let unused = |line: &&str| {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let ends = range.split_once('-').map(|(begin, end)| [begin, end].map(|text| u64::from_str_radix(text, 16)));
        rights == "---p" && matches!(ends, Some([Ok(begin), Ok(end)]) if (HEAP / 2..HEAP).contains(&(end - begin)))
    };
    maps.lines().filter(unused).count()
}

#[test]
fn threads_share_a_few_heaps() {
    let setup = Setup::new("heaps", &[841]);
    let output = setup.output().display().to_string();
    let options = "demo --duration 5s --rate 1kHz --control 127.0.0.1:0 --output";
    let mut demo = Program::start(options.split(' ').chain([output.as_str()]));
    demo.expect_error_line("run 1 running");
    assert!(heaps(demo.id()) <= 2, "{} heaps", heaps(demo.id()));
    demo.interrupt();
    demo.end().expect_status(0);
}
