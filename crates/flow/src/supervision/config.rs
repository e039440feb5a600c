//! What a supervisor is told before the run.

use core::time::Duration;

/// How patient a supervisor is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SupervisorConfig {
    /// How long a process may take over one piece of work.
    pub timeout: Duration,
    /// How long it may take until it is ready for the first one.
    pub start_timeout: Duration,
    /// The pause before another process is started.
    pub restart_delay: Duration,
    /// How many processes are started again in any [`SupervisorConfig::PERIOD`]; with one more it is given up.
    pub restarts: u32,
}

impl SupervisorConfig {
    /// The time in which restarts are counted.
    pub const PERIOD: Duration = Duration::from_secs(60);
    /// How often a piece of work is tried.
    pub const TRIES: u8 = 2;
}

impl Default for SupervisorConfig {
    /// 1 s for a piece of work, 10 s for a start, a pause of 100 ms, 10 restarts.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(1),
            start_timeout: Duration::from_secs(10),
            restart_delay: Duration::from_millis(100),
            restarts: 10,
        }
    }
}
