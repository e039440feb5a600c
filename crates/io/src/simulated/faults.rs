//! What goes wrong on a simulated network, and how often.

use std::time::Duration;

/// The settings of a simulated [`Network`](super::Network). Rates are probabilities from 0 to 1.
///
/// [`Faults::default`] is a fast network without faults; [`Faults::nasty`] has some of everything.
#[derive(Clone, PartialEq, Debug)]
pub struct Faults {
    /// The shortest time that bytes are under way.
    pub least_latency: Duration,
    /// The longest time that bytes are under way, except for outliers.
    pub most_latency: Duration,
    /// How often a segment takes [`Faults::outlier_latency`] instead.
    pub outlier: f64,
    /// How long an outlier takes.
    pub outlier_latency: Duration,
    /// Bytes a second in each direction of a connection; `None` for no limit.
    pub bandwidth: Option<u64>,
    /// Bytes that may be sent and not yet read: TCP's window and both socket buffers.
    pub window: usize,
    /// The most that travels as one segment, in bytes.
    pub segment: usize,
    /// How often a connection is refused although somebody listens.
    pub refuse: f64,
    /// How often a segment is answered by a reset of its connection, which breaks at both ends.
    pub reset: f64,
    /// How often a segment is the last that its connection carries: the peer is gone and says nothing.
    pub half_open: f64,
    /// How often a read gives less than there is, in half of the cases one byte.
    pub short_read: f64,
    /// How often a write takes less than there is room for, in half of the cases one byte.
    pub short_write: f64,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long an established connection lasts that carries nothing (partition, half-open).
    pub give_up: Duration,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            least_latency: Duration::from_micros(20),
            most_latency: Duration::from_micros(20),
            outlier: 0.0,
            outlier_latency: Duration::from_millis(5),
            bandwidth: None,
            window: 1 << 20,
            segment: 64 << 10,
            refuse: 0.0,
            reset: 0.0,
            half_open: 0.0,
            short_read: 0.0,
            short_write: 0.0,
            connect_timeout: Duration::from_secs(10),
            give_up: Duration::from_secs(30),
        }
    }
}

impl Faults {
    /// Some of everything that breaks no connection: spread latency with outliers, a small window, short
    /// reads and writes.
    pub fn bumpy() -> Self {
        Self {
            most_latency: Duration::from_micros(500),
            outlier: 0.01,
            bandwidth: Some(1 << 30),
            window: 50_000,
            segment: 9_000,
            short_read: 0.3,
            short_write: 0.3,
            ..Self::default()
        }
    }

    /// Some of everything.
    pub fn nasty() -> Self {
        Self { refuse: 0.1, reset: 0.001, half_open: 0.000_5, give_up: Duration::from_secs(2), ..Self::bumpy() }
    }
}
