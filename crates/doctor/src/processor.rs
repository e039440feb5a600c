//! Processors: where a thread runs, how long it takes to wake one, and whether two processors are two cores.

use ropewalk_io::thread::run_on;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Keeps the calling thread on one processor.
///
/// # Errors
/// If there is no such processor, or it is not for us.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    run_on([cpu as u32])
}

/// Keeps the calling thread on one processor, if one is given and the machine allows it.
pub fn pin(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        // A machine with fewer processors measures unpinned.
        let _ = pin_to_cpu(cpu);
    }
}

/// How much more two processors do together than one alone, in arithmetic that fills a core: about 2.0 for two
/// cores, about 1.0 for two threads of one. Figures of two threads mean nothing without it.
///
/// Takes four times `duration`.
pub fn core_scaling(cpus: [usize; 2], duration: Duration) -> f64 {
    let alone: f64 = cpus.iter().map(|&cpu| rounds_per_second(&[cpu], duration)).sum::<f64>() / 2.0;
    let together = rounds_per_second(&cpus, duration);
    if alone > 0.0 { together / alone } else { 0.0 }
}

/// Rounds of arithmetic that these processors do in a second, at once and all together.
fn rounds_per_second(cpus: &[usize], duration: Duration) -> f64 {
    let start = Barrier::new(cpus.len());
    let work = |cpu: usize| {
        // Without the right to pin, the scheduler spreads two busy threads anyway.
        let _ = pin_to_cpu(cpu);
        start.wait();
        let (begin, mut rounds) = (Instant::now(), 0u64);
        while begin.elapsed() < duration {
            black_box(arithmetic(black_box(1.000_001)));
            rounds += 1;
        }
        rounds as f64 / begin.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = cpus.iter().map(|&cpu| scope.spawn(move || work(cpu))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    })
}

/// Multiplications and additions in 64 independent chains: enough to keep every vector unit of a core busy.
fn arithmetic(factor: f64) -> f64 {
    let mut chains = [1.0f64; 64];
    for _ in 0..1000 {
        for chain in &mut chains {
            *chain = *chain * factor + 1e-9;
        }
    }
    chains.iter().sum()
}

/// Processor time that the calling thread has used so far, in seconds. Meaningful on a busy machine too, where elapsed
/// time says little.
pub fn thread_cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Time for a sleeping thread on another processor to wake up, in microseconds: half of a round trip, the median.
///
/// # Errors
/// If no socket pair can be created.
pub fn wake_up_microseconds(cpus: Option<[usize; 2]>, duration: Duration) -> io::Result<f64> {
    let (mut here, mut there) = UnixStream::pair()?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Without permission to pin, the scheduler chooses the processor.
            let _ = cpus.map(|[_, cpu]| pin_to_cpu(cpu));
            let mut word = [0; 1];
            // Until the other end is closed.
            while there.read_exact(&mut word).is_ok() && there.write_all(&word).is_ok() {}
        });
        let asking = scope.spawn(move || {
            let _ = cpus.map(|[cpu, _]| pin_to_cpu(cpu));
            let (begin, mut times) = (Instant::now(), Vec::new());
            while times.is_empty() || begin.elapsed() < duration {
                let asked = Instant::now();
                here.write_all(&[1])?;
                here.read_exact(&mut [0])?;
                times.push(asked.elapsed());
                // Long enough for the other processor to fall asleep.
                std::thread::sleep(Duration::from_micros(200));
            }
            times.sort();
            Ok(times[times.len() / 2].as_secs_f64() * 1e6 / 2.0)
        });
        asking.join().unwrap_or_else(|_| Err(io::Error::other("a panic")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_takes_time_to_wake() {
        let wake_up = wake_up_microseconds(None, Duration::from_millis(5)).expect("sockets");
        assert!(wake_up > 0.1, "{wake_up}");
    }

    #[test]
    fn two_processors_do_something_together() {
        // On a busy machine the one may have had its processor for itself and the two not, or the other way round.
        let scaling = core_scaling([0, 0], Duration::from_millis(10));
        assert!(scaling.is_finite() && scaling > 0.0, "{scaling}");
    }
}
