//! What the machine must know about the sources.

use ropewalk_terms::SourceId;

/// Which sources are watched, against which, and what a displaced one leads to.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The sources, in the order in which [`Synchrony::observe`](super::Synchrony::observe) is given them.
    pub sources: Vec<SourceConfig>,
    /// The source that the others are compared with; otherwise the first one that shows a key.
    pub reference: Option<SourceId>,
    /// Events over which a relation is judged, 64 to 4096.
    pub window: u16,
    /// Bunch crossings in an orbit, the modulus of configured offsets; 0 where they do not wrap.
    pub orbit: u16,
    /// What a displaced source leads to.
    pub action: Action,
}

impl Config {
    /// The defaults for these sources: window 128, orbit 3564 (the LHC's), action flag.
    pub fn new(sources: impl IntoIterator<Item = SourceConfig>) -> Self {
        Self {
            sources: sources.into_iter().collect(),
            reference: None,
            window: 128,
            orbit: 3564,
            action: Action::default(),
        }
    }

    /// The place of the configured reference among the sources.
    ///
    /// # Errors
    /// Where something makes no sense.
    pub(super) fn check(&self) -> Result<Option<usize>, ConfigError> {
        if self.sources.len() > usize::from(u16::MAX) {
            return Err(ConfigError::TooManySources(self.sources.len()));
        }
        if !(64..=4096).contains(&self.window) {
            return Err(ConfigError::Window(self.window));
        }
        let Some(reference) = self.reference else { return Ok(None) };
        let place = self.sources.iter().position(|source| source.source == reference);
        place.map(Some).ok_or(ConfigError::UnknownReference(reference))
    }
}

/// How the keys of one source compare with those of the others.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct SourceConfig {
    /// The source.
    pub source: SourceId,
    /// Added to its bunch crossing, modulo the orbit, before it is compared.
    pub bunch_crossing_offset: i16,
    /// Bits of its bunch crossing that are compared; 0 compares none.
    pub bunch_crossing_mask: u16,
    /// Added to its trigger tag, modulo 2^32, before it is compared.
    pub trigger_tag_offset: i32,
    /// Bits of its trigger tag that are compared; 0 compares none.
    pub trigger_tag_mask: u32,
    /// Width of its time stamp: intervals are taken modulo 2 to the power of this. 1 to 64.
    pub time_bits: u8,
    /// By how many ticks (of the coarser of two clocks) equal intervals may differ.
    pub time_tolerance: u32,
}

impl SourceConfig {
    /// The defaults: no offsets, all bits of tag and time, 12 bits of bunch crossing, 8 ticks of tolerance.
    pub const fn new(source: SourceId) -> Self {
        Self {
            source,
            bunch_crossing_offset: 0,
            bunch_crossing_mask: 0xfff,
            trigger_tag_offset: 0,
            trigger_tag_mask: u32::MAX,
            time_bits: 64,
            time_tolerance: 8,
        }
    }
}

/// What a displaced source leads to. Its fragments are flagged and counted in any case, and never shifted.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Action {
    /// Nothing more.
    #[default]
    Flag,
    /// The run pauses.
    Pause,
    /// The run stops.
    Stop,
}

/// Why a configuration is refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// More sources than can be numbered.
    #[error("{0} sources to watch, at most 65535 are possible")]
    TooManySources(usize),
    /// The window is too short to tell anything, or too long to be scanned.
    #[error("a window of {0} events, from 64 to 4096 are possible")]
    Window(u16),
    /// The reference is none of the sources.
    #[error("the reference, source {0}, is none of the configured sources")]
    UnknownReference(SourceId),
}
