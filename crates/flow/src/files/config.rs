//! What a broker is told before the run.

use core::time::Duration;

/// How patient a broker is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BrokerConfig {
    /// How long a filter unit may take over one file, and to ask for a file when one is ready.
    pub time_out: Duration,
    /// How often a file is tried before it is set aside, 1 or more.
    pub tries: u16,
    /// The pause before a document that could not get its name is tried again.
    pub retry: Duration,
}

impl Default for BrokerConfig {
    /// A minute for a file, three tries, a pause of half a second.
    fn default() -> Self {
        Self { time_out: Duration::from_secs(60), tries: 3, retry: Duration::from_millis(500) }
    }
}
