//! A filter library in its own process, which is this program started again: confined, with limited memory.

use ropewalk_plugin::filter::FilterConfig;
use ropewalk_plugin::filter::process::{FilterProcess, ProcessConfig};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The command of the program that is a filter's process.
const COMMAND: &str = "filter-process";
/// How long a filter may take until it is ready.
pub const START: Duration = Duration::from_secs(10);
/// Bytes of the ring for what does not lie in memory that others can be given to read.
pub const COPIES: usize = 32 << 20;

/// The process of a library's filter, which may take this many bytes of memory; it is not there yet.
///
/// # Errors
/// As [`FilterProcess::new`], or if this program cannot be found.
pub fn library_process(filter: FilterConfig, memory: u64) -> io::Result<FilterProcess> {
    let command = vec![std::env::current_exe()?, PathBuf::from(COMMAND)];
    FilterProcess::new(ProcessConfig { filter, memory, copies: COPIES, command })
}
