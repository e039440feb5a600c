//! Processors: pinning, the time to wake a thread, and whether two processors are two cores.

use ropewalk_io::thread::run_on;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Pins the calling thread to one processor.
///
/// # Errors
/// If the processor does not exist, or this process may not use it.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    run_on([cpu as u32])
}

/// Pins the calling thread to one processor, if one is given and the machine permits it.
pub fn pin(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        // A machine with fewer processors measures unpinned.
        let _ = pin_to_cpu(cpu);
    }
}

/// The speed of two processors together relative to one, in arithmetic that fills a core: about 2.0 for two cores,
/// about 1.0 for two threads of one. Figures of two threads are meaningless without it.
///
/// Takes four times `duration`.
pub fn core_scaling(cpus: [usize; 2], duration: Duration) -> f64 {
    let alone: f64 = cpus.iter().map(|&cpu| rounds_per_second(&[cpu], duration)).sum::<f64>() / 2.0;
    let together = rounds_per_second(&cpus, duration);
    if alone > 0.0 { together / alone } else { 0.0 }
}

/// Rounds of arithmetic a second, on all of these processors at once.
fn rounds_per_second(cpus: &[usize], duration: Duration) -> f64 {
    let start = Barrier::new(cpus.len());
    let work = |cpu: usize| {
        // Without permission to pin, the scheduler spreads two busy threads anyway.
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

/// Processor time that the calling thread has used, in seconds. Meaningful on a busy machine too, where elapsed time is
/// not.
pub fn thread_cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Processor time that all threads of this process and all its children have used, in seconds. Children count in
/// hundredths of a second, and not at all if the kernel does not list them.
pub fn process_cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let own = time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9;
    let ended = ticks("/proc/self/stat", 2);
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let living = children.flat_map(|pids| pids.split_whitespace().map(child_ticks).collect::<Vec<_>>());
    own + (ended + living.sum::<u64>()) as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Ticks of a child, and of its own children that have ended.
fn child_ticks(pid: &str) -> u64 {
    let stat = format!("/proc/{pid}/stat");
    ticks(&stat, 0) + ticks(&stat, 2)
}

/// Two neighbouring counts of a `stat` file (proc_pid_stat(5)), from utime on: user and system time.
fn ticks(stat: &str, from: usize) -> u64 {
    /// Fields between the program's name, which ends with the last bracket, and utime.
    const BEFORE: usize = 11;
    let text = std::fs::read_to_string(stat).unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    fields.skip(BEFORE + from).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
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
    fn the_process_pays_for_all_threads_and_children() {
        let before = process_cpu_seconds();
        std::thread::spawn(|| {
            let begin = thread_cpu_seconds();
            while thread_cpu_seconds() - begin < 0.05 {
                black_box(arithmetic(1.0));
            }
        });
        // Loops until it is so; without the thread it never is.
        while process_cpu_seconds() - before < 0.05 {
            std::thread::yield_now();
        }
        let before = process_cpu_seconds();
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        while child_ticks(&child.id().to_string()) < 5 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let living = process_cpu_seconds() - (own.tv_sec as f64 + own.tv_nsec as f64 * 1e-9);
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        let ended = process_cpu_seconds() - before;
        // A kernel may not list live children.
        let is_listed = std::path::Path::new("/proc/thread-self/children").exists();
        assert!((living >= 0.05 || !is_listed) && ended >= 0.05, "{living} {ended}");
    }

    #[test]
    fn two_processors_do_something_together() {
        // On a busy machine, the first may have had its processor alone and the two not, or the reverse.
        let scaling = core_scaling([0, 0], Duration::from_millis(10));
        assert!(scaling.is_finite() && scaling > 0.0, "{scaling}");
    }
}
