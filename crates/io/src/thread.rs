//! Settings of a thread in the kernel: its CPUs, its scheduling, and the source of its memory. Each call affects only
//! the calling thread.
#![allow(unsafe_code)]

use std::io;

use rustix::thread::{CpuSet, sched_setaffinity};

/// The kernel's scheduling policy of a thread (sched(7)).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Scheduling {
    /// The default.
    Other,
    /// Like the default, but never ahead of a thread that just woke up.
    Batch,
    /// Only when no other thread wants the CPU.
    Idle,
    /// Before all threads that are not real-time, until it sleeps; with a priority of 1 to 99.
    Fifo(u8),
    /// As `Fifo`, but in turns with others of its priority.
    RoundRobin(u8),
}

/// Number of NUMA nodes in a mask: the kernel's maximum.
const NODES: usize = 1024;
const WORD: usize = usize::BITS as usize;

/// Restricts the calling thread to these CPUs.
///
/// # Errors
/// `InvalidInput` if this process has none of them.
pub fn run_on(cpus: impl IntoIterator<Item = u32>) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        if cpu as usize >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(cpu as usize);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Sets the scheduling of the calling thread.
///
/// # Errors
/// `PermissionDenied` if real-time scheduling needs a right that the process lacks (`CAP_SYS_NICE`, or a limit of
/// real-time priority at least as high as the requested one).
pub fn schedule(scheduling: Scheduling) -> io::Result<()> {
    let (policy, priority) = match scheduling {
        Scheduling::Other => (libc::SCHED_OTHER, 0),
        Scheduling::Batch => (libc::SCHED_BATCH, 0),
        Scheduling::Idle => (libc::SCHED_IDLE, 0),
        Scheduling::Fifo(priority) => (libc::SCHED_FIFO, priority),
        Scheduling::RoundRobin(priority) => (libc::SCHED_RR, priority),
    };
    let parameters = libc::sched_param { sched_priority: priority.into() };
    // SAFETY: reads the parameters; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Allocates the calling thread's memory from this NUMA node from now on, as long as the node has any.
///
/// # Errors
/// `InvalidInput` if there is no such node; `PermissionDenied` in containers that do not allow the call.
pub fn prefer_memory_of(node: u32) -> io::Result<()> {
    let node = node as usize;
    let mut mask = [0_usize; NODES / WORD];
    *mask.get_mut(node / WORD).ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node % WORD);
    // SAFETY: reads the mask, whose size is given (the kernel takes one bit less than the number passed), and changes
    // only the source of later pages of this thread.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_PREFERRED, mask.as_ptr(), NODES + 1) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;

    /// The kernel's policy and priority of the calling thread (fields 41 and 40 of proc_pid_stat(5)).
    fn scheduled() -> (i32, u8) {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("Linux has it");
        let behind_name: Vec<&str> =
            stat.rsplit_once(')').expect("a name in brackets").1.split_ascii_whitespace().collect();
        let number = |index: usize| behind_name[index].parse::<u8>().expect("a small number");
        (number(38).into(), number(37))
    }

    /// Runs on a separate thread, so that no other test is scheduled like this.
    fn on_a_thread(what: impl FnOnce() + Send) {
        std::thread::scope(|scope| scope.spawn(what).join()).expect("no assertion failed");
    }

    #[test]
    fn a_thread_is_scheduled_as_it_asked() {
        on_a_thread(|| {
            for (scheduling, policy) in [(Scheduling::Batch, libc::SCHED_BATCH), (Scheduling::Idle, libc::SCHED_IDLE)] {
                schedule(scheduling).unwrap();
                assert_eq!(scheduled(), (policy, 0));
            }
        });
        on_a_thread(|| {
            for (scheduling, policy) in
                [(Scheduling::Fifo(3), libc::SCHED_FIFO), (Scheduling::RoundRobin(4), libc::SCHED_RR)]
            {
                let (before, result) = (scheduled(), schedule(scheduling));
                match result {
                    Ok(()) => assert_eq!(scheduled().0, policy),
                    Err(error) => assert_eq!((error.kind(), scheduled()), (io::ErrorKind::PermissionDenied, before)),
                }
            }
        });
    }

    #[test]
    fn real_time_scheduling_needs_a_right() {
        use rustix::process::{Resource, getrlimit};
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        on_a_thread(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::SYS_NICE);
            set_capabilities(None, sets).unwrap();
            let limit = getrlimit(Resource::Rtprio).current.unwrap_or(u64::MAX);
            if limit < 99 {
                assert_eq!(schedule(Scheduling::Fifo(99)).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
                assert_eq!(scheduled(), (libc::SCHED_OTHER, 0));
            }
        });
    }

    #[test]
    fn a_thread_runs_where_it_asked_or_gets_an_error() {
        on_a_thread(|| {
            let error = run_on([8191]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            let (policies, node) = ("/proc/thread-self/numa_maps", 0);
            prefer_memory_of(node).unwrap();
            let own = std::fs::read_to_string(policies).unwrap();
            assert!(own.lines().any(|line| line.contains("prefer:0")), "{own}");
            for node in [1023, 1024, u32::MAX] {
                assert_eq!(prefer_memory_of(node).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            }
        });
    }
}
